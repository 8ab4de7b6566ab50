/*
  Many ranges or keys at once, in the order of keys or of rows: the server's own way (DS-MRR), which
  asks this handler for index entries and, through a second one, for rows by position.
*/

#include "ha_weir.h"

using namespace weir;

// A second handler of the table, for the same statement, which locks as this one does.
handler *ha_weir::clone(const char *name, MEM_ROOT *root)
{
  auto made= static_cast<ha_weir *>(handler::clone(name, root));
  if (made)
  {
    made->wanted_lock= wanted_lock;
    made->callers_lock= callers_lock;
  }
  return made;
}

int ha_weir::multi_range_read_init(RANGE_SEQ_IF *seq, void *of_seq, uint ranges, uint mode,
                                   HANDLER_BUFFER *buffer)
{
  if (!RangesAhead::takes(*seq, ranges, mode))
    return mrr.dsmrr_init(this, seq, of_seq, ranges, mode, buffer);
  auto read= [this](const std::vector<KEY_MULTI_RANGE> &next) { read_ranges_ahead(next); };
  RANGE_SEQ_IF ours= ranges_ahead.begin(*seq, of_seq, ranges, read);
  return mrr.dsmrr_init(this, &ours, &ranges_ahead, ranges, mode, buffer);
}

// Reads the beginnings of these ranges together.
void ha_weir::read_ranges_ahead(const std::vector<KEY_MULTI_RANGE> &next)
{
  std::vector<Bytes> made;
  for (const KEY_MULTI_RANGE &range : next)
  {
    if (!range.start_key.key)
      continue;
    made.emplace_back();
    keys[active_index].from_image(range.start_key.key, range.start_key.keypart_map, made.back());
  }
  read_ahead(index_position(active_index), made);
}

// Reads what the primary keys lead to, or the beginnings of keys in an index.
void ha_weir::read_ahead(uint32_t index, const std::vector<Bytes> &of)
{
  std::vector<WeirBytes> wanted;
  for (const Bytes &key : of)
    wanted.push_back(bytes_of(key));
  if (WeirTransaction *with= transaction(); with && !wanted.empty())
    weir_read_ahead(with, share->table, index, wanted.data(), wanted.size());
}

int ha_weir::multi_range_read_next(range_id_t *range)
{
  return mrr.dsmrr_next(range);
}

ha_rows ha_weir::multi_range_read_info_const(uint index, RANGE_SEQ_IF *seq, void *of_seq,
                                             uint ranges, uint *buffer_size, uint *flags,
                                             Cost_estimate *cost)
{
  mrr.init(this, table);
  // Rows are locked in the order in which they are asked for.
  if (lock != WEIR_LOCK_NONE)
    *flags|= HA_MRR_USE_DEFAULT_IMPL;
  return mrr.dsmrr_info_const(index, seq, of_seq, ranges, buffer_size, flags, cost);
}

ha_rows ha_weir::multi_range_read_info(uint index, uint ranges, uint rows_wanted, uint parts,
                                       uint *buffer_size, uint *flags, Cost_estimate *cost)
{
  mrr.init(this, table);
  return mrr.dsmrr_info(index, ranges, rows_wanted, parts, buffer_size, flags, cost);
}

int ha_weir::multi_range_read_explain_info(uint mode, char *text, size_t size)
{
  return mrr.dsmrr_explain_info(mode, text, size);
}

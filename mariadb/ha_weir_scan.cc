/*
  A scan of the engine: its entries, one after the other, and the row of each, which is locked as
  the statement asks for. The server's own calls are in ha_weir_read.cc.
*/

#include "ha_weir.h"
#include "computed.h"

using namespace weir;

int ha_weir::open_scan(uint32_t index, WeirBound low, WeirBound high, bool back)
{
  close_scan();
  WeirTransaction *with= transaction();
  if (!with)
    return HA_ERR_INTERNAL_ERROR;
  WeirLock how= reads_committed() && index == WEIR_PRIMARY ? WEIR_LOCK_NONE : lock;
  scan_is_unlocked= how != lock;
  return fail(cursor.open(with, share->table, index, low, high, back, how));
}

void ha_weir::close_scan()
{
  leave_entry();
  cursor.close();
}

// The statement ends, and perhaps its transaction, but HANDLER may go on from here in the next one.
void ha_weir::pause_scan()
{
  leave_entry();
  cursor.pause(active_index != MAX_KEY);
}

void ha_weir::leave_entry()
{
  // A number that the engine gave is nowhere else.
  if (hidden)
    find_key();
  key_is_due= scan_is_unlocked= is_unlocked= repeats= ends_with_range= false;
}

/* Which columns are decoded */

void ha_weir::want(const MY_BITMAP *columns, Wanted &out) const
{
  row_format.want(columns, out.row);
  out.primary= hidden ? 0 : primary()->reach(columns);
  out.entries.clear();
  for (const KeyFormat &key : keys)
    out.entries.push_back(key.reach(columns));
}

const ha_weir::Wanted &ha_weir::wanted()
{
  // A filter asks for positions, which are made of columns that the statement may not want.
  if (reads_all || handler_rowid_filter_is_active(this))
    return all;
  const MY_BITMAP *columns= table->read_set;
  const my_bitmap_map *words= columns->bitmap;
  size_t count= no_words_in_map(columns), same= 0;
  // For each row anew: mostly one word, for which no function is called.
  while (same < count && same < some.columns.size() && words[same] == some.columns[same])
    same++;
  if (same < count || count != some.columns.size())
  {
    want(columns, some);
    some.columns.assign(words, words + count);
  }
  return some;
}

// Goes on to the next entry.
int ha_weir::step()
{
  WeirResult result= cursor.take() ? WEIR_RESULT_OK : cursor.read(transaction());
  key_is_due= result == WEIR_RESULT_OK;
  if (result == WEIR_RESULT_NOT_FOUND)
    return HA_ERR_END_OF_FILE;
  if (result != WEIR_RESULT_OK)
    return fail(result);
  is_unlocked= scan_is_unlocked;
  return 0;
}

/*
  As it was committed when the scan began, the server wants the row: now as it is, and locked, if it
  still is there. One that has changed since, or had to be waited for, may have another key, and
  others may have changed with it: the scan goes on with what is committed by then.
*/
int ha_weir::repeat_locked(uchar *buf)
{
  const WeirScanned &at= cursor.entry();
  repeats= is_unlocked= false;
  if (!find_key())
    return bad_entry();
  WeirBytes found;
  WeirTransaction *with= transaction();
  uint64_t waits= weir_lock_waits(with);
  WeirResult result= weir_get(with, share->table, bytes_of(pk), lock, row, &found);
  bool is_as_it_was= result == WEIR_RESULT_OK && weir_lock_waits(with) == waits &&
                     found.len == at.value.len && !memcmp(found.data, at.value.data, found.len);
  if (!is_as_it_was && (result == WEIR_RESULT_OK || result == WEIR_RESULT_NOT_FOUND))
  {
    if (WeirResult ended= cursor.read_anew_as_of_now(with))
      return fail(ended);
  }
  return result == WEIR_RESULT_OK ? read_primary(buf, bytes_of(pk), found) : fail(result);
}

// The next row of the scan.
int ha_weir::next_entry(uchar *buf)
{
  if (repeats)
  {
    int error= repeat_locked(buf);
    if (error != HA_ERR_KEY_NOT_FOUND)
      return error;
  }
  bool skip= true;
  while (skip)
  {
    if (int error= step())
      return error;
    skip= false;
    if (int error= read_entry(buf, skip))
      return error;
    if (skip && is_killed(ha_thd()))
      return HA_ERR_ABORTED_BY_USER;
  }
  return 0;
}

// Whether rows that others have locked are read as they are committed. Only a scan may pass them
// over: who asks for a row waits for it.
bool ha_weir::reads_committed() const
{
  return semi_consistent && lock == WEIR_LOCK_EXCLUSIVE &&
         thd_tx_isolation(ha_thd()) == ISO_READ_COMMITTED;
}

bool ha_weir::was_semi_consistent_read()
{
  repeats= is_unlocked;
  return repeats;
}

bool ha_weir::scans_rows() const
{
  return active_index == MAX_KEY || index_position(active_index) == WEIR_PRIMARY;
}

// Whether the record has nothing but what the entry at hand of an index holds. Of columns that the
// primary key has in part, that isn't what its key is made of.
bool ha_weir::is_record_of_entry() const
{
  return cursor.is_at_entry() && !scans_rows() && (only_index || key_is_due);
}

// Makes sure that `pk` is the primary key of the row at hand. False: the entry makes no sense.
bool ha_weir::find_key()
{
  if (!key_is_due)
    return true;
  key_is_due= false;
  pk.clear();
  if (!scans_rows())
    return keys[active_index].primary_of(cursor.entry().key, cursor.entry().value, pk);
  append(pk, cursor.entry().key.data, cursor.entry().key.len);
  return true;
}

// The same for a row that is in a record.
bool ha_weir::find_key_of(const uchar *record)
{
  if (hidden)
    return find_key();
  key_is_due= false;
  encode_primary(record, pk);
  return true;
}

// The row of the entry at hand. `skip`: it isn't wanted, or the entry isn't its.
int ha_weir::read_entry(uchar *buf, bool &skip)
{
  const WeirScanned &at= cursor.entry();
  if (scans_rows())
    return read_primary(buf, at.key, at.value);
  const KeyFormat &key= keys[active_index];
  bool asks= pushed_idx_cond && pushed_idx_cond_keyno == active_index;
  if (asks || handler_rowid_filter_is_active(this))
  {
    int error= check_entry(buf, asks, skip);
    if (error || skip)
      return error;
  }
  // The server may want positions alone, and yet compare columns that the index holds in part.
  if (only_index && at.current && key.is_whole())
    return key.decode(table, at.key, at.value, wanted().entries[active_index], buf) ? 0
                                                                                    : bad_entry();
  int error= read_row_of_entry(buf, skip);
  if (error || skip)
    return error;
  compute_for_merge(buf);
  if (only_index && !key.decode(table, at.key, at.value, wanted().entries[active_index], buf))
    return bad_entry();
  return 0;
}

// Reads the rows of so many entries together, from the one at hand on, whose key is in `pk`.
void ha_weir::read_rows_ahead(size_t rows)
{
  std::vector<Bytes> made= {pk};
  while (made.size() < rows)
  {
    WeirScanned entry= cursor.entry_behind(made.size() - 1);
    made.emplace_back();
    // One that makes no sense is told when the scan comes to it.
    if (!keys[active_index].primary_of(entry.key, entry.value, made.back()))
      break;
  }
  read_ahead(WEIR_PRIMARY, made);
}

// Looks the row of an index's entry up, and locks it as the statement asks for. `skip`: it is gone,
// or has another entry by now.
int ha_weir::read_row_of_entry(uchar *buf, bool &skip)
{
  if (!find_key())
    return bad_entry();
  if (size_t rows= cursor.rows_due())
    read_rows_ahead(rows);
  WeirBytes found;
  WeirTransaction *with= transaction();
  bool in_turn= lock == WEIR_LOCK_SHARED || lock == WEIR_LOCK_EXCLUSIVE;
  uint64_t waits= in_turn ? weir_lock_waits(with) : 0;
  WeirResult result= weir_get(with, share->table, bytes_of(pk), lock, row, &found);
  // A row that had to be waited for, or has another entry by now: that may lie further on, among
  // entries that were read before.
  if (in_turn && (result == WEIR_RESULT_NOT_FOUND || weir_lock_waits(with) != waits))
    cursor.read_anew_behind();
  if (result == WEIR_RESULT_NOT_FOUND)
  {
    skip= true;
    return 0;
  }
  if (result != WEIR_RESULT_OK)
    return fail(result);
  bool dirty= lock == WEIR_LOCK_NONE && thd_tx_isolation(ha_thd()) == ISO_READ_UNCOMMITTED;
  bool may_differ= !cursor.entry().current || dirty, kept= reads_all;
  reads_all|= may_differ;
  int error= read_primary(buf, bytes_of(pk), found);
  reads_all= kept;
  if (error)
    return error;
  skip= may_differ && !entry_is_of(buf, active_index);
  if (skip)
  {
    if (in_turn)
      cursor.read_anew_behind();
    unlock_row();
  }
  return 0;
}

// Of rows that the server merges in the order of an index it computes virtual columns too late.
void ha_weir::compute_for_merge(uchar *buf)
{
  const std::vector<Field *> &columns= computed_parts[active_index];
  if (columns.empty() || buf == table->record[0])
    return;
  Computed computed(table, columns, buf);
  merged_by.resize(columns.size());
  for (size_t i= 0; i < columns.size(); i++)
    computed.keep(columns[i], merged_by[i]);
}

static int outcome(check_result_t result, bool &skip)
{
  switch (result) {
  case CHECK_POS:
    return 0;
  case CHECK_NEG:
    skip= true;
    return 0;
  case CHECK_OUT_OF_RANGE:
    return HA_ERR_END_OF_FILE;
  default:
    return HA_ERR_ABORTED_BY_USER;
  }
}

// Asks the pushed condition and the pushed filter, with the columns that the index holds. The end
// of the range is the scan's own, and the server must not look for it: of a column that is indexed
// in part the record has nothing.
int ha_weir::check_entry(uchar *buf, bool asks, bool &skip)
{
  const WeirScanned &at= cursor.entry();
  if (!keys[active_index].decode(table, at.key, at.value, wanted().entries[active_index], buf))
    return bad_entry();
  key_range *kept_end= end_range;
  end_range= nullptr;
  int error= asks ? outcome(handler_index_cond_check(this), skip) : 0;
  if (!error && !skip && handler_rowid_filter_is_active(this))
    error= outcome(handler_rowid_filter_check(this), skip);
  end_range= kept_end;
  return error;
}

// Puts a row into a record.
int ha_weir::read_primary(uchar *buf, WeirBytes key, WeirBytes from)
{
  return decode_row(key, from, wanted(), buf) ? 0 : bad_row();
}

// Puts what is wanted of a row into a record. False: the bytes make no sense.
bool ha_weir::decode_row(WeirBytes key, WeirBytes from, const Wanted &what, uchar *record) const
{
  return row_format.decode(table, from, what.row, record) &&
         (hidden || primary()->decode_primary(table, key, what.primary, record));
}

// Whether the row in `buf` has the entry at hand.
bool ha_weir::entry_is_of(uchar *buf, uint index)
{
  const WeirScanned &at= cursor.entry();
  Computed computed(table, computed_parts[index], buf);
  Encoded entry;
  encode_entry(index, buf, pk, entry);
  return entry.key.size() == at.key.len && !memcmp(entry.key.data(), at.key.data, at.key.len) &&
         entry.value.size() == at.value.len &&
         !memcmp(entry.value.data(), at.value.data, at.value.len);
}

// A scan was begun: its first row.
int ha_weir::found(uchar *buf, int error_at_end)
{
  int error= next_entry(buf);
  return error == HA_ERR_END_OF_FILE ? error_at_end : error;
}

void ha_weir::encode_primary(const uchar *record, Bytes &out)
{
  out.clear();
  primary()->primary_key(table, record, out);
}

// Whether rows are locked that a statement doesn't keep locked unless they match.
bool ha_weir::keeps_matches_locked_only() const
{
  return lock != WEIR_LOCK_NONE && thd_tx_isolation(ha_thd()) <= ISO_READ_COMMITTED;
}

// The row at hand isn't wanted: others may have it, unless it was locked before.
void ha_weir::unlock_row()
{
  if (!keeps_matches_locked_only() || is_unlocked || !transaction() || !find_key())
    return;
  weir_unlock(transaction(), share->table, bytes_of(pk));
}

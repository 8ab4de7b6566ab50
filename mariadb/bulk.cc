#include "bulk.h"

namespace weir {

bool Bulk::begin(const std::vector<uint32_t> &indexes)
{
  if (is_taken)
    return false;
  is_taken= true;
  if (!bytes)
    bytes.reset(new uchar[ROOM]);
  positions= indexes;
  if (entries.size() < indexes.size())
    entries.resize(indexes.size());
  clear();
  return true;
}

void Bulk::end()
{
  clear();
  is_taken= false;
}

void Bulk::clear()
{
  used= 0;
  rows.clear();
  for (std::vector<WeirPair> &of_index : entries)
    of_index.clear();
}

WeirBytes Bulk::copy(const Bytes &from)
{
  uchar *to= bytes.get() + used;
  memcpy(to, from.data(), from.size());
  used+= from.size();
  return WeirBytes{to, from.size()};
}

WeirPair Bulk::copy(const Bytes &key, const Bytes &value)
{
  DBUG_ASSERT(has_room(key.size() + value.size()));
  WeirBytes first= copy(key);
  return WeirPair{first, copy(value)};
}

void Bulk::list_entries(WeirEntries *of_indexes) const
{
  for (size_t n= 0; n < positions.size(); n++)
    of_indexes[n]= WeirEntries{positions[n], entries[n].data()};
}

WeirResult Bulk::insert(WeirTransaction *transaction, const WeirTable *table) const
{
  WeirEntries of_indexes[MAX_KEY];
  list_entries(of_indexes);
  return weir_insert_many(transaction, table, rows.data(), rows.size(), of_indexes, positions.size());
}

WeirResult Bulk::remove(WeirTransaction *transaction, const WeirTable *table) const
{
  WeirEntries of_indexes[MAX_KEY];
  list_entries(of_indexes);
  return weir_delete_many(transaction, table, rows.data(), rows.size(), of_indexes, positions.size());
}

WeirResult Bulk::insert_one(WeirTransaction *transaction, const WeirTable *table, size_t at) const
{
  WeirEntry of_row[MAX_KEY];
  for (size_t n= 0; n < positions.size(); n++)
    of_row[n]= WeirEntry{positions[n], entries[n][at].key, entries[n][at].value};
  return weir_insert(transaction, table, rows[at].key, rows[at].value, of_row, positions.size(),
                     WEIR_IN_THE_WAY_LOCKED);
}

} // namespace weir

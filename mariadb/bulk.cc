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

bool Bulk::add(const Bytes &key, const Bytes &row, const WeirEntry *of_row)
{
  size_t more= key.size() + row.size();
  for (size_t n= 0; n < positions.size(); n++)
    more+= of_row[n].key.len + of_row[n].value.len;
  if (more > ROOM - used || rows.size() == MOST)
    return false;
  copy(bytes_of(key), bytes_of(row), rows.emplace_back());
  for (size_t n= 0; n < positions.size(); n++)
    copy(of_row[n].key, of_row[n].value, entries[n].emplace_back());
  return true;
}

void Bulk::copy(WeirBytes key, WeirBytes value, WeirPair &pair)
{
  uchar *to= bytes.get() + used;
  std::copy_n(key.data, key.len, to);
  std::copy_n(value.data, value.len, to + key.len);
  used+= key.len + value.len;
  pair.key.data= to;
  pair.key.len= key.len;
  pair.value.data= to + key.len;
  pair.value.len= value.len;
}

WeirResult Bulk::write(decltype(weir_insert_many) *how, WeirTransaction *transaction,
                       const WeirTable *table) const
{
  WeirEntries of_indexes[MAX_KEY];
  for (size_t n= 0; n < positions.size(); n++)
    of_indexes[n]= WeirEntries{positions[n], entries[n].data()};
  return how(transaction, table, rows.data(), rows.size(), of_indexes, positions.size());
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

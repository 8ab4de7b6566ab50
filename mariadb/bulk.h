/*
  Rows of one INSERT or DELETE that are handed to the engine together, with their index entries: by
  trees, so that the engine can write each tree's in order.

  A connection has room for them, which one statement uses at a time. Nobody reads what they change
  in between: where triggers, functions or subqueries might, nothing is collected.
*/
#pragma once

#include "bytes.h"
#include <memory>

namespace weir {

class Bulk
{
public:
  // Begins, for rows that have entries in these indexes, unless another statement is at it.
  bool begin(const std::vector<uint32_t> &indexes);
  void end();
  void clear();
  size_t count() const { return rows.size(); }
  // Adds a row with its entries, in the order of `begin`, if there is room for them. What is to be
  // deleted needs no values.
  bool add(const Bytes &key, const Bytes &row, const WeirEntry *of_row);

  WeirPair row(size_t at) const { return rows[at]; }
  // `how`: whether they are inserted or deleted.
  WeirResult write(decltype(weir_insert_many) *how, WeirTransaction *transaction,
                   const WeirTable *table) const;
  // Inserts one of them alone.
  WeirResult insert_one(WeirTransaction *transaction, const WeirTable *table, size_t at) const;

private:
  static const size_t ROOM= 64 << 10, MOST= 1000;
  bool is_taken= false;
  std::unique_ptr<uchar[]> bytes;
  size_t used= 0;
  std::vector<WeirPair> rows;
  std::vector<uint32_t> positions;
  std::vector<std::vector<WeirPair>> entries;

  void copy(WeirBytes key, WeirBytes value, WeirPair &pair);
};

} // namespace weir

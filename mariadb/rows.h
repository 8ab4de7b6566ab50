/*
  Rows as bytes: how many stored columns the table had when the row was written, a bit for each of these
  that can be NULL, then each column that isn't NULL and can't be had from the primary key: fixed
  columns as they are, others as length and bytes. Columns that are computed at each read aren't stored.

  A table that was given columns at its end has rows that lack them: they have the values of the table's
  `added` record, which is what the columns' defaults were then. Of a column that was dropped rows keep the place: those
  from before have its value, later ones NULL, or the least that it takes.
*/
#pragma once

#include "keys.h"

namespace weir {

class Rows
{
public:
  // `primary`: the primary key, or null if that is hidden. `dropped`: columns that only rows still have, as of
  // `with_dropped`. False: its bytes make no sense.
  bool init(TABLE *table, const KeyFormat *primary, const Bytes &dropped);
  // The columns that only rows have once the table keeps no others than these: of each its place among the stored ones,
  // whether it can be NULL, and 1 more than its length, or 0 if each value has its own.
  Bytes with_dropped(const std::vector<const Field *> &kept) const;
  // How many columns have a place in rows.
  size_t places() const { return nullable_among.size() - 1; }
  void encode(TABLE *table, const uchar *record, Bytes &out) const;
  // Whether the rows of two records are the same, given that their primary keys are.
  bool are_same(TABLE *table, const uchar *one, const uchar *other) const;
  // Values of columns that a row lacks, as a row of `encode`. False: the bytes make no sense.
  bool set_added(TABLE *table, const Bytes &row);
  // Such a row: values of columns added earlier, and the defaults of the others.
  Bytes added_row(TABLE *table) const;
  // Which of a row's columns are wanted, up to the last one that is; null: all.
  void want(const MY_BITMAP *columns, std::vector<uchar> &wanted) const;
  // Puts the columns that are wanted into a record. Blobs point into `row`. False: the bytes make no sense.
  bool decode(TABLE *table, WeirBytes row, const std::vector<uchar> &wanted, uchar *record) const;

private:
  enum class Form : uchar { Fixed, Char, Var, Blob };
  struct Column
  {
    Field *field; // null: it was dropped
    Form form;
    uint index, offset, length, null_offset;
    uint stored;   // which of the stored columns
    uint nullable; // which of those that can be NULL
    uchar null_bit, length_bytes;
    bool can_be_null;
  };
  std::vector<Column> columns;
  // For each number of stored columns: how many of the first ones can be NULL.
  std::vector<uint> nullable_among;
  // Record with the values that short rows lack.
  std::vector<uchar> added;

  void place(Column &c, bool can_be_null);
  bool place_dropped(const uchar *&from, const uchar *end);
  static Value value_in(const Column &c, TABLE *table, const uchar *record);
  static const uchar *take(const Column &c, const uchar *from, const uchar *end, uchar *to, bool wanted);
};

} // namespace weir

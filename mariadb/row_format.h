/*
  Rows as bytes: how many places the row has, a bit for each of these that can be NULL, then the
  value of each place that isn't NULL and can't be had from the primary key: fixed ones as they are,
  others as length and bytes. Columns that are computed at each read aren't stored.

  Each stored column has a place, which it keeps: of a table that was never altered, the columns' in
  their order. A column that is added gets the next place, wherever it stands in the definition.
  Rows from before lack it: they have the value of the table's `added` record, which is what the
  column's default was then. Of a column that was dropped rows keep the place: those from before
  have its value, later ones NULL, or the least that it takes. A column that couldn't be NULL before
  gets another place beside its own, which holds nothing but the bit; rows that lack that have the
  value, and those where it is NULL the least that it takes.
*/
#pragma once

#include "keys.h"

namespace weir {

// What tells the places of a table's columns, where they aren't simply in the columns' order.
struct Places
{
  // The places that no column has, or only its NULL bit: of each its number, whether it can be
  // NULL, and 1 more than its length, or 0 if each value has its own.
  Bytes dropped;
  // Of each stored column its place, and 1 more than that of its NULL bit, or 0 if this is its own.
  // Empty: the columns have the places left, in their order.
  Bytes order;
};

class RowFormat
{
public:
  // `primary`: the primary key, or null if that is hidden. False: the places make no sense.
  bool init(TABLE *table, const KeyFormat *primary, const Places &places);
  // The places of an altered table's columns. `before`: what each was in this one; null: it is new.
  Places places_of(const TABLE *altered, const std::vector<const Field *> &before) const;
  // How many places rows have.
  size_t places() const { return nullable_among.size() - 1; }
  void encode(TABLE *table, const uchar *record, Bytes &out) const;
  // Whether the rows of two records are the same, given that their primary keys are.
  bool are_same(TABLE *table, const uchar *one, const uchar *other) const;
  // Values of columns that a row lacks, as a row of `encode`. False: the bytes make no sense.
  bool set_added(TABLE *table, const Bytes &row);
  // Such a row, which is kept as if set: what rows lacked `before`, as of `set_added`, and the
  // record's value of other columns. Empty: `before` makes no sense.
  Bytes added_row(TABLE *table, const uchar *record, const Bytes &before);
  // Which of a row's columns are wanted, up to the last one that is; null: all.
  void want(const MY_BITMAP *columns, std::vector<uchar> &wanted) const;
  // Puts the wanted columns into a record. Blobs point into `row`. False: the bytes make no sense.
  bool decode(TABLE *table, WeirBytes row, const std::vector<uchar> &wanted, uchar *record) const;

private:
  enum class Form : uchar { Fixed, Char, Var, Blob };
  struct Column
  {
    Field *field; // null: it was dropped
    Form form;
    uint index, offset, length, null_offset;
    uint stored;   // its place
    uint told_at;  // the place whose bit tells whether it is NULL
    uint nullable; // which of the places that can be NULL that is
    uchar null_bit, length_bytes;
    bool can_be_null; // its own place
    bool has_bytes;   // false: it is had from the primary key, or only a column's NULL bit
    bool is_taken;
  };
  std::vector<Column> columns;  // those that have bytes
  std::vector<Column> by_place; // all
  // For each number of places: how many of the first ones can be NULL.
  std::vector<uint> nullable_among;
  // Record with the values that short rows lack.
  std::vector<uchar> added;

  static Column describe(TABLE *table, Field *field);
  bool put(const Column &c);
  static bool read_dropped(const Bytes &dropped, std::vector<Column> &out);
  bool put_columns(TABLE *table, const KeyFormat *primary, const Bytes &order);
  bool number_bits();
  const Column *column_of(const Field *field) const;
  bool fill(TABLE *table, const uchar *others, const Bytes &row);
  static Value value_in(const Column &c, TABLE *table, const uchar *record);
  static const uchar *take(const Column &c, const uchar *from, const uchar *end, uchar *to,
                           bool wanted);
};

} // namespace weir

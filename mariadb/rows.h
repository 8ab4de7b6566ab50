/*
  Rows as bytes: a format byte, the record's NULL bits, then each column that isn't NULL, isn't computed at
  each read and can't be had from the primary key: fixed columns as they are, others as length and bytes.
*/
#pragma once

#include "keys.h"

namespace weir {

class Rows
{
public:
  // `primary`: the primary key, or null if that is hidden.
  void init(TABLE *table, const KeyFormat *primary);
  void encode(TABLE *table, const uchar *record, Bytes &out) const;
  // Puts the columns in `wanted`, or all of them, into a record. Blobs point into `row`. False: the bytes
  // make no sense.
  bool decode(TABLE *table, WeirBytes row, const MY_BITMAP *wanted, uchar *record) const;

private:
  enum class Form : uchar { Fixed, Char, Var, Blob };
  struct Column
  {
    Field *field;
    Form form;
    uint index, offset, length, null_offset;
    uchar null_bit, length_bytes;
  };
  std::vector<Column> columns;

  static const uchar *take(const Column &c, const uchar *from, const uchar *end, uchar *to, bool wanted);
};

} // namespace weir

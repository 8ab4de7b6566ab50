/* What the engine keeps for the server with each table. */
#pragma once

#include "row_format.h"

namespace weir {

struct Meta
{
  ulonglong auto_increment= 0;
  ulonglong number= 0; // its name among the numbers; 0: it has none
  Bytes version; // the definition's unique id
  Bytes added;   // a row with the values that rows from before a column was added lack
  Places places; // of columns in rows
  // Of a partition that was given away and not opened since; or its own table. See partitions.h.
  Bytes table_before;
  uchar keys_made= KEYS_NOW; // see keys.h

  Bytes encode() const;
  bool decode(WeirBytes from);
};

// The version of a definition.
inline Bytes to_bytes(const LEX_CUSTRING &version)
{
  return Bytes(reinterpret_cast<const char *>(version.str), version.length);
}

// An error, too, if it isn't understood: nothing may take its place then. `name`: the table's.
WeirResult read_meta(const WeirTable *table, const Bytes &name, Meta *meta);
WeirResult write_meta(const WeirTable *table, const Meta &meta);
// Of a table that isn't open.
WeirResult read_meta(const Bytes &name, Meta *meta);

} // namespace weir

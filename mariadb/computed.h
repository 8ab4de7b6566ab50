/*
  Virtual columns that are indexed, computed from a row in a record.

  What a record holds of them isn't always the row's. When the engine looks at a row that it has
  read, the server has yet to compute them; in rows of partitions, which it merges in the order of
  an index, it never does, nor in a row that a row event of the binary log changes, if the event
  lacks them. And of a BLOB a record has a pointer to a buffer of the column's, which serves several
  records in turn: an UPDATE of a table with system versioning leaves the old row with the new row's
  value.
*/
#pragma once

#include "keys.h"

namespace weir {

// The virtual columns of a key.
std::vector<Field *> computed_parts_of(const KeyFormat &key);

// Computes a virtual column in the table's first record; how many errors that gave. `is_lenient`:
// values that don't fit are cut without a word. As the server's `TABLE::update_virtual_field`, but
// that computes the stored columns anew, too, that the column is made of: of those the row has what
// counts, though they would be others by now, in another time zone for example.
int compute_virtual(TABLE *table, Field *column, bool is_lenient);

// While it lives, a record has the right values of some virtual columns; then the old ones.
class Computed
{
public:
  Computed(TABLE *table, const std::vector<Field *> &columns, const uchar *record);
  ~Computed();
  // Has the record keep a column's value; that of a BLOB is put into `value`, and lives as long.
  void keep(Field *column, std::string &value);
  Computed(const Computed &)= delete;
  Computed &operator=(const Computed &)= delete;

private:
  TABLE *table;
  uchar *record;
  std::vector<uchar> kept;
  // All virtual BLOBs, since one column may be computed from another, and their buffers' contents.
  std::vector<Field_blob *> blobs;
  std::unique_ptr<String[]> buffers;

  void compute(const std::vector<Field *> &columns);
  void swap_buffers();
};

} // namespace weir

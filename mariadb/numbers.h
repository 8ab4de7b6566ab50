/*
  Numbers that must not come again: for each table the highest value of AUTO_INCREMENT that a row of
  it ever had, also once that row is gone.

  They are rows of a table of the engine's own, by the number that `Meta` gives the table, and are
  written in small transactions apart from those that insert: ahead of their commit in the log, so
  that who finds a row finds its number too. Many inserts write it once: it is written ahead, by
  more the faster they come. A restart after a crash may therefore skip some values, none after a
  shutdown.
*/
#pragma once

#include "bytes.h"

namespace weir {

// Finds the table of numbers, or makes it; false if that failed, for which the engine has words.
bool open_numbers();
void close_numbers();

// A name for a new table's number.
ulonglong new_number();
// What was written last; 0 if nothing was.
WeirResult read_number(ulonglong number, ulonglong *value);
WeirResult write_number(ulonglong number, ulonglong value);
// Lowers a number that was written too far ahead, unless somebody has written another since.
// Failing does no harm.
void take_back_number(ulonglong number, ulonglong written, ulonglong value);
void drop_number(ulonglong number);

} // namespace weir

#include "cursor.h"

namespace weir {

WeirResult Cursor::open(WeirTransaction *with, const WeirTable *table, uint32_t index,
                        WeirBound low, WeirBound high, bool back, WeirLock how)
{
  close();
  backward= back;
  if (ahead)
    weir_ahead_begin(ahead, entries);
  else
    entries= 0;
  return weir_scan_open(with, table, index, low, high, back, how, &scan);
}

void Cursor::close()
{
  weir_scan_close(scan);
  scan= nullptr;
  drop_rest();
  at_entry= at_end= is_placed= false;
}

void Cursor::pause(bool of_index)
{
  bool is_behind_key= scan && one_key && !at_entry && of_index, ended= at_end;
  if (at_entry)
    place_at_entry();
  if (is_behind_key)
    behind= key;
  bool pauses= is_placed || is_behind_key;
  close();
  is_placed= pauses;
  at_end= ended;
}

WeirResult Cursor::read(WeirTransaction *with)
{
  if (at_entry)
    place_at_entry();
  drop_rest();
  WeirResult result= weir_scan_next(scan, with, &at, &rest);
  at_entry= result == WEIR_RESULT_OK;
  entries+= at_entry;
  at_end= result == WEIR_RESULT_NOT_FOUND && !one_key;
  // One key ends behind that key, not behind its last entry.
  if (one_key && (result == WEIR_RESULT_OK || result == WEIR_RESULT_NOT_FOUND))
    is_placed= false;
  return result;
}

void Cursor::place_at_entry()
{
  behind.assign(reinterpret_cast<const char *>(at.key.data), at.key.len);
  is_placed= true;
}

void Cursor::note_place(const Bytes &other)
{
  if (at_entry)
    place_at_entry();
  else if (!is_placed)
    behind= scan ? key : other;
}

void Cursor::read_anew_behind()
{
  weir_scan_behind(scan, at.key);
  drop_rest();
}

WeirResult Cursor::read_anew_as_of_now(WeirTransaction *with)
{
  WeirResult result= weir_scan_behind_as_of_now(scan, with, at.key);
  if (result == WEIR_RESULT_OK)
    drop_rest();
  return result;
}

} // namespace weir

/*
  A scan of the engine as the server goes through it: the entry at hand, and the place where the
  scan goes on if it is closed in between, as at the end of a statement.
*/
#pragma once

#include "bytes.h"
#include "weir.h"

namespace weir {

class Cursor
{
public:
  Cursor()= default;
  ~Cursor()
  {
    weir_scan_close(scan);
    forget_ahead();
  }
  Cursor(const Cursor &)= delete;
  Cursor &operator=(const Cursor &)= delete;

  // Of what is scanned next one key is wanted, or more than that.
  void want_key(const Bytes &wanted)
  {
    one_key= true;
    key= wanted;
  }
  void want_many() { one_key= false; }
  bool is_of_one_key() const { return one_key; }

  // Scans an index anew, without a place.
  WeirResult open(WeirTransaction *with, const WeirTable *table, uint32_t index, WeirBound low,
                  WeirBound high, bool back, WeirLock how);
  void close();
  // Closes it, and keeps the place. A scan of one key that found nothing, or nothing more, is where
  // the key would be, if it is one of an index.
  void pause(bool of_index);
  bool is_open() const { return scan; }
  bool is_backward() const { return backward; }

  // Goes on to an entry that was read with the one at hand. False: there is none.
  bool take()
  {
    if (rest_given == rest.count)
      return false;
    at= entry_behind(0);
    rest_given++;
    at_entry= true;
    entries++;
    return true;
  }
  // Goes on to the entry that comes then; NOT_FOUND at the end.
  WeirResult read(WeirTransaction *with);
  bool is_at_entry() const { return at_entry; }
  const WeirScanned &entry() const { return at; }
  // Of how many entries, from the one at hand on, the rows are to be read together; 0 for none. To
  // be asked before the row of that one is looked up.
  size_t rows_due()
  {
    if (!ahead)
      ahead= weir_ahead_open();
    return weir_ahead_due(ahead, entries - 1, 1 + rest.count - rest_given);
  }
  // Scans to come are of another statement.
  void forget_ahead()
  {
    weir_ahead_close(ahead);
    ahead= nullptr;
  }
  // The `n`th entry behind the one at hand, of those that were read with it.
  WeirScanned entry_behind(size_t n) const
  {
    const WeirPlace &place= rest.places[rest_given + n];
    return {{rest.bytes + place.key, place.value - place.key},
            {rest.bytes + place.value, place.end - place.value},
            rest.current && !place.outdated};
  }

  // Has come past the last entry, of a scan of more than one key.
  bool is_at_end() const { return at_end; }

  // Where it goes on that has ended, or was closed: behind this key.
  bool has_place() const { return is_placed; }
  const Bytes &place() const { return behind; }
  // The place is from now on the entry at hand; without one, and without a place, the key that was
  // wanted, or `other` if no scan is open.
  void note_place(const Bytes &other);
  // It has been opened at its place, and may end at once.
  void keep_place() { is_placed= true; }

  // What lies behind the entry at hand is read once more, though it was read with it.
  void read_anew_behind();
  // The same, as it is committed by now.
  WeirResult read_anew_as_of_now(WeirTransaction *with);

private:
  WeirScan *scan= nullptr;
  WeirScanned at= {};
  WeirBatch rest= {}; // what was read with it and isn't given yet
  size_t rest_given= 0;
  WeirAhead *ahead= nullptr; // of a statement's scans
  uint64_t entries= 0;       // how many these have given
  Bytes key, behind;
  bool one_key= false, backward= false, at_entry= false, at_end= false, is_placed= false;

  void place_at_entry();
  void drop_rest()
  {
    rest= {};
    rest_given= 0;
  }
};

} // namespace weir

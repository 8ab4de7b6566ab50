/* Reading of rows: by index, in the order of rows, by position. */

#include "errors.h"
#include "ha_weir.h"

using namespace weir;

/* Indexes */

int ha_weir::index_init(uint index, bool)
{
  close_scan();
  active_index= index;
  return 0;
}

int ha_weir::index_end()
{
  // Its second handler is on this index, and the next ranges may be of another.
  mrr.dsmrr_close();
  close_scan();
  active_index= MAX_KEY;
  return 0;
}

WeirBound ha_weir::bound_of_end(uint index, const key_range *end)
{
  high_bytes.clear();
  keys[index].from_image(end->key, end->keypart_map, high_bytes);
  return bound(end->flag == HA_READ_BEFORE_KEY ? WEIR_BOUND_KIND_EXCLUDED
                                               : WEIR_BOUND_KIND_INCLUDED,
               high_bytes);
}

int ha_weir::index_read_map(uchar *buf, const uchar *key, key_part_map map,
                            enum ha_rkey_function flag)
{
  Accounted accounted(this);
  uint32_t index= index_position(active_index);
  const KeyFormat &of= keys[active_index];
  low_bytes.clear();
  of.from_image(key, map, low_bytes);
  WeirBound low= no_bound(), high= no_bound();
  bool back= false;
  cursor.want_many();
  switch (flag) {
  case HA_READ_KEY_EXACT:
  case HA_READ_PREFIX:
    cursor.want_key(low_bytes);
    if (index == WEIR_PRIMARY && map >= (key_part_map(1) << of.parts().size()) - 1)
    {
      close_scan();
      pk= low_bytes;
      return get_row(buf);
    }
    low= high= bound(WEIR_BOUND_KIND_INCLUDED, low_bytes);
    break;
  case HA_READ_PREFIX_LAST:
    low= high= bound(WEIR_BOUND_KIND_INCLUDED, low_bytes);
    back= true;
    break;
  case HA_READ_KEY_OR_NEXT:
    low= bound(WEIR_BOUND_KIND_INCLUDED, low_bytes);
    break;
  case HA_READ_AFTER_KEY:
    low= bound(WEIR_BOUND_KIND_EXCLUDED, low_bytes);
    break;
  case HA_READ_KEY_OR_PREV:
  case HA_READ_PREFIX_LAST_OR_PREV:
    high= bound(WEIR_BOUND_KIND_INCLUDED, low_bytes);
    back= true;
    break;
  case HA_READ_BEFORE_KEY:
    high= bound(WEIR_BOUND_KIND_EXCLUDED, low_bytes);
    back= true;
    break;
  default:
    return HA_ERR_WRONG_COMMAND;
  }
  bool to_range_end= range_end && !back && !cursor.is_of_one_key();
  if (to_range_end)
    high= bound_of_end(active_index, range_end);
  if (int error= open_scan(index, low, high, back))
    return error;
  ends_with_range= to_range_end && of.takes(range_end->keypart_map);
  return found(buf, HA_ERR_KEY_NOT_FOUND);
}

int ha_weir::read_range_first(const key_range *start, const key_range *end, bool is_equal,
                              bool sorted)
{
  range_end= end;
  int error= handler::read_range_first(start, end, is_equal, sorted);
  range_end= nullptr;
  return error;
}

int ha_weir::read_range_next()
{
  // The scan ends where the range does: no row is compared with that.
  return ends_with_range && !eq_range ? ha_index_next(table->record[0])
                                      : handler::read_range_next();
}

// The row of `pk`, read alone; a scan may go on from there.
int ha_weir::get_row(uchar *buf)
{
  WeirBytes found;
  WeirTransaction *with= transaction();
  if (!with)
    return HA_ERR_INTERNAL_ERROR;
  WeirResult result= weir_get(with, share->table, bytes_of(pk), lock, row, &found);
  // The server doesn't ask for it where there is no row.
  if (result == WEIR_RESULT_NOT_FOUND && keeps_matches_locked_only())
    weir_unlock(with, share->table, bytes_of(pk));
  return result == WEIR_RESULT_OK ? read_primary(buf, bytes_of(pk), found) : fail(result);
}

// The row of a short form.
int ha_weir::get_row_at(uchar *buf, WeirBytes short_form)
{
  WeirBytes key, found;
  WeirTransaction *with= transaction();
  if (!with)
    return HA_ERR_INTERNAL_ERROR;
  WeirResult result=
      weir_get_by_short_form(with, share->table, short_form, lock, row, &key, &found);
  if (result != WEIR_RESULT_OK)
    return fail(result);
  pk.assign(reinterpret_cast<const char *>(key.data), key.len);
  return read_primary(buf, key, found);
}

// Goes on behind a place, in a direction.
int ha_weir::go_on(uint32_t index, bool back, WeirBoundKind from, uchar *buf)
{
  WeirBound here= bound(from, cursor.place());
  if (int error= open_scan(index, back ? no_bound() : here, back ? here : no_bound(), back))
    return error;
  cursor.keep_place();
  return next_entry(buf);
}

// Goes on: from the entry at hand if the scan goes the other way, or from the end of one key.
int ha_weir::turn(bool back, uchar *buf)
{
  uint32_t index= index_position(active_index);
  bool comes_back= cursor.is_at_end() && back != cursor.is_backward();
  if (cursor.is_at_end() && !cursor.has_place())
  {
    // Behind the last entry in one direction is before the first in the other.
    if (!comes_back)
      return HA_ERR_END_OF_FILE;
    int error= open_scan(index, no_bound(), no_bound(), back);
    return error ? error : next_entry(buf);
  }
  cursor.note_place(pk);
  cursor.want_many();
  return go_on(index, back, comes_back ? WEIR_BOUND_KIND_INCLUDED : WEIR_BOUND_KIND_EXCLUDED, buf);
}

int ha_weir::index_next(uchar *buf)
{
  Accounted accounted(this);
  if (!cursor.is_open() || cursor.is_backward())
    return turn(false, buf);
  int error= next_entry(buf);
  // A scan of one key has ended, and the caller wants what comes after.
  return error == HA_ERR_END_OF_FILE && cursor.is_of_one_key() && !cursor.is_at_entry()
             ? turn(false, buf)
             : error;
}

int ha_weir::index_prev(uchar *buf)
{
  Accounted accounted(this);
  if (!cursor.is_open() || !cursor.is_backward())
    return turn(true, buf);
  return next_entry(buf);
}

int ha_weir::index_next_same(uchar *buf, const uchar *key, uint length)
{
  Accounted accounted(this);
  if (!cursor.is_of_one_key())
    return handler::index_next_same(buf, key, length);
  // A row read alone by its whole key is the only one.
  return cursor.is_open() ? next_entry(buf) : HA_ERR_END_OF_FILE;
}

int ha_weir::index_first(uchar *buf)
{
  Accounted accounted(this);
  cursor.want_many();
  WeirBound high= range_end ? bound_of_end(active_index, range_end) : no_bound();
  if (int error= open_scan(index_position(active_index), no_bound(), high, false))
    return error;
  ends_with_range= range_end && keys[active_index].takes(range_end->keypart_map);
  return found(buf, HA_ERR_END_OF_FILE);
}

int ha_weir::index_last(uchar *buf)
{
  Accounted accounted(this);
  cursor.want_many();
  if (int error= open_scan(index_position(active_index), no_bound(), no_bound(), true))
    return error;
  return found(buf, HA_ERR_END_OF_FILE);
}

Item *ha_weir::idx_cond_push(uint index, Item *condition)
{
  pushed_idx_cond= condition;
  pushed_idx_cond_keyno= index;
  in_range_check_pushed_down= true;
  return nullptr;
}

bool ha_weir::rowid_filter_push(Rowid_filter *filter)
{
  pushed_rowid_filter= filter;
  return false;
}

/* Rows in their own order, and by position */

int ha_weir::rnd_init(bool)
{
  close_scan();
  cursor.want_many();
  active_index= MAX_KEY;
  return sequence ? fail(begin_own(WEIR_ISOLATION_READ_COMMITTED)) : 0;
}

int ha_weir::rnd_end()
{
  mrr.dsmrr_close();
  close_scan();
  if (!own_transaction)
    return 0;
  int error= fail(own_transaction->commit());
  own_transaction.reset();
  return error;
}

int ha_weir::rnd_next(uchar *buf)
{
  Accounted accounted(this);
  if (cursor.is_open())
    return next_entry(buf);
  cursor.want_many();
  if (cursor.has_place())
    return go_on(WEIR_PRIMARY, false, WEIR_BOUND_KIND_EXCLUDED, buf);
  if (cursor.is_at_end())
    return HA_ERR_END_OF_FILE;
  int error= open_scan(WEIR_PRIMARY, no_bound(), no_bound(), false);
  return error ? error : next_entry(buf);
}

// A position: the primary key, or its short form; if keys differ in length, zeros and its length.
// So positions are ordered as rows are, but for very long keys.
void ha_weir::position(const uchar *record)
{
  Bytes &key= key_bytes;
  bool is_found= true;
  if (hidden || is_record_of_entry())
  {
    is_found= find_key();
    key= pk;
  }
  else
    encode_primary(record, key);
  size_t room= ref_length - (key_is_fixed ? 0 : 2);
  if (!is_found || (!key_may_be_long && key.size() > room))
  {
    // The server asks for no result: the statement ends in this error. The position is no row's.
    print_error(fail(damaged("a row has a primary key that makes no sense")), MYF(0));
    key.clear();
  }
  size_t len= key.size();
  if (key_may_be_long)
    len= weir_short_form(bytes_of(key), ref);
  else
    memcpy(ref, key.data(), len);
  memset(ref + len, 0, room - len);
  if (!key_is_fixed)
    int2store(ref + room, static_cast<uint16>(len));
}

int ha_weir::rnd_pos(uchar *buf, uchar *pos)
{
  Accounted accounted(this);
  close_scan();
  size_t len= key_is_fixed ? ref_length : uint2korr(pos + ref_length - 2);
  if (key_may_be_long)
    return get_row_at(buf, WeirBytes{pos, len});
  pk.assign(reinterpret_cast<const char *>(pos), len);
  return get_row(buf);
}

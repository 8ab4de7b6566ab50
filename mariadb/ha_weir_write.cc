/* Writing of rows, with their index entries. */

#include "ha_weir.h"
#include "computed.h"
#include "errors.h"
#include "numbers.h"

using namespace weir;

static void append_number(Bytes &out, ulonglong n)
{
  for (int shift= 56; shift >= 0; shift-= 8)
    out.push_back(static_cast<char>(n >> shift));
}

void ha_weir::encode_entry(uint index, const uchar *record, const Bytes &of, Encoded &out)
{
  out.key.clear();
  out.value.clear();
  keys[index].entry(table, record, of, out.key, out.value);
}

// The row of `pk` as the engine has it, where its entries may depend on that: the server may have
// computed stored columns of the record anew, in another time zone for example, which makes others.
const uchar *ha_weir::as_stored(const uchar *record)
{
  if (!indexes_generated)
    return record;
  WeirBytes found;
  WeirResult result= weir_get(transaction(), share->table, bytes_of(pk), WEIR_LOCK_EXCLUSIVE,
                              stored, &found);
  stored_record.assign(record, record + table->s->reclength);
  // What isn't there, or makes no sense, the write itself tells.
  bool is_there= result == WEIR_RESULT_OK &&
                 decode_row(bytes_of(pk), found, all, stored_record.data());
  return is_there ? stored_record.data() : record;
}

// Of a row that was read. Nobody has computed its virtual columns for sure: who applies row events
// of the binary log only has what these hold, and what the engine reads itself the server hasn't
// seen.
void ha_weir::encode_old(const std::vector<uint> &indexes, const uchar *record)
{
  Computed right(table, computed, record);
  for (uint i : indexes)
    encode_entry(i, record, pk, old_entries[i]);
}

// Nor has anybody in a row that a row event inserts or changes, if the source's table lacks them.
void ha_weir::encode_new(const std::vector<uint> &indexes, const uchar *record)
{
  THD *thd= table->in_use;
  bool is_of_event= thd->rgi_slave || thd->rgi_fake;
  // What an UPDATE of several tables has put aside is from before its triggers.
  bool may_be_wrong= is_of_event || is_one_of(thd, {SQLCOM_UPDATE_MULTI});
  Computed right(table, may_be_wrong ? computed : computed_blobs, record);
  for (uint i : indexes)
    encode_entry(i, record, pk, new_entries[i]);
}

// As the engine wants them; how many there are.
size_t ha_weir::list_entries(const std::vector<uint> &indexes, const std::vector<Encoded> &entries,
                             WeirEntry *out) const
{
  size_t count= 0;
  for (uint i : indexes)
    out[count++]=
        WeirEntry{index_position(i), bytes_of(entries[i].key), bytes_of(entries[i].value)};
  return count;
}

// The server asks for the index by its number.
int ha_weir::duplicate_error(WeirResult result)
{
  uint named= index_named(table, weir_error_index());
  duplicate= named == MAX_KEY ? table->s->primary_key : named;
  // What the server itself has found last, perhaps in an earlier statement, it would name instead.
  table->file->lookup_errkey= uint(-1);
  if (Session *session= Session::find(ha_thd()))
    session->duplicate= duplicate;
  return error_of(result);
}

// A row was changed.
void ha_weir::note_write()
{
  if (is_noted || own_transaction)
    return;
  is_noted= true;
  if (table->s->tmp_table == NO_TMP_TABLE)
    Session::find(ha_thd())->written.note(share->last_write);
}

// Encodes a row that is to be inserted; how many entries it has.
size_t ha_weir::encode_inserted(const uchar *record, WeirEntry *entries)
{
  encode_new(secondary, record);
  row_bytes.clear();
  row_format.encode(table, record, row_bytes);
  share->changes++;
  return list_entries(secondary, new_entries, entries);
}

int ha_weir::insert(const uchar *record)
{
  WeirEntry entries[MAX_KEY];
  size_t count= encode_inserted(record, entries);
  WeirResult result= weir_insert(transaction(), share->table, bytes_of(pk), bytes_of(row_bytes),
                                 entries, count, WEIR_IN_THE_WAY_LOCKED);
  if (result == WEIR_RESULT_OK)
    note_write();
  return result == WEIR_RESULT_DUPLICATE ? duplicate_error(result) : fail(result);
}

// Inserts the row of `pk`, or locks the one that is in its way, which the server is to change or to
// replace: it must find that one, and nobody else may be about to change it.
int ha_weir::insert_or_lock(const uchar *record)
{
  WeirEntry entries[MAX_KEY];
  size_t count= encode_inserted(record, entries);
  for (;;)
  {
    WeirResult result= weir_insert(transaction(), share->table, bytes_of(pk), bytes_of(row_bytes),
                                   entries, count, WEIR_IN_THE_WAY_LEFT);
    if (result == WEIR_RESULT_OK)
      note_write();
    if (result != WEIR_RESULT_DUPLICATE)
      return fail(result);
    int error= duplicate_error(result);
    result= lock_duplicate();
    if (result != WEIR_RESULT_NOT_FOUND)
      return result == WEIR_RESULT_OK ? error : fail(result);
    if (is_killed(ha_thd()))
      return HA_ERR_ABORTED_BY_USER;
  }
}

WeirResult ha_weir::lock_row(const Bytes &key)
{
  // Not the handler's own: BLOBs of the server's records may lie there.
  WeirRow *holder= weir_row_open();
  WeirBytes found;
  WeirResult result=
      weir_get(transaction(), share->table, bytes_of(key), WEIR_LOCK_EXCLUSIVE, holder, &found);
  weir_row_close(holder);
  return result;
}

// Which of several rows ON DUPLICATE KEY UPDATE changes depends on the keys before that are free:
// where the statement is repeated elsewhere, they stay so. `NOT_FOUND`: one isn't free any more.
WeirResult ha_weir::keep_free_before_duplicate()
{
  THD *thd= ha_thd();
  bool is_repeated= thd->slave_thread || !thd->is_current_stmt_binlog_format_row();
  if (thd->lex->duplicates != DUP_UPDATE || !is_repeated || !locks_ranges(thd, table))
    return WEIR_RESULT_OK;
  Bytes owner;
  for (uint i= 0; i < duplicate; i++)
  {
    if (!(table->key_info[i].flags & HA_NOSAME))
      continue;
    WeirResult result= i == table->s->primary_key ? lock_row(pk) : find_owner(i, owner);
    if (result != WEIR_RESULT_NOT_FOUND)
      return result == WEIR_RESULT_OK ? WEIR_RESULT_NOT_FOUND : result;
  }
  return WEIR_RESULT_OK;
}

// Locks the row that is in the way of that of `pk` and `new_entries`. `NOT_FOUND`: it has gone.
WeirResult ha_weir::lock_duplicate()
{
  // A number that the engine gave is nothing that the server asks for.
  if (duplicate == MAX_KEY)
    return WEIR_RESULT_OK;
  if (WeirResult result= keep_free_before_duplicate())
    return result;
  if (duplicate == table->s->primary_key)
    return lock_row(pk);
  Bytes owner, owner_now;
  if (WeirResult result= find_owner(duplicate, owner))
    return result;
  WeirResult result= lock_row(owner);
  if (result != WEIR_RESULT_OK && result != WEIR_RESULT_NOT_FOUND)
    return result;
  // Who holds a row holds its entries.
  bool is_there= result == WEIR_RESULT_OK;
  result= find_owner(duplicate, owner_now);
  if (result == WEIR_RESULT_OK && owner == owner_now)
    return is_there ? WEIR_RESULT_OK
                    : damaged("an index has an entry of a row that the table lacks");
  if (result != WEIR_RESULT_OK && result != WEIR_RESULT_NOT_FOUND)
    return result;
  weir_unlock(transaction(), share->table, bytes_of(owner));
  return WEIR_RESULT_NOT_FOUND;
}

// The primary key of the row that has the new row's entry of a unique index. As the server's own
// reads do, it locks the entry's range, where ranges are locked, before the row.
WeirResult ha_weir::find_owner(uint index, Bytes &owner)
{
  WeirScan *finds= nullptr;
  WeirScanned entry= {};
  WeirBound key= bound(WEIR_BOUND_KIND_INCLUDED, new_entries[index].key);
  WeirResult result= weir_scan_open(transaction(), share->table, index_position(index), key,
                                    key, false, WEIR_LOCK_EXCLUSIVE, &finds);
  if (result == WEIR_RESULT_OK)
    result= weir_scan_next(finds, transaction(), &entry, nullptr);
  owner.clear();
  if (result == WEIR_RESULT_OK && !keys[index].primary_of(entry.key, entry.value, owner))
    result= damaged("an index has an entry that makes no sense");
  weir_scan_close(finds);
  return result;
}

int ha_weir::write_row(const uchar *buf)
{
  Accounted accounted(this);
  if (table->next_number_field && buf == table->record[0])
    if (int error= update_auto_increment())
      return error;
  if (bulk)
  {
    int error= collect(buf);
    return error ? error : note_auto_increment(buf);
  }
  if (hidden)
    if (int error= know_next_hidden())
      return error;
  bool is_own= sequence && !own_transaction;
  if (is_own)
    if (WeirResult result= begin_own(WEIR_ISOLATION_READ_COMMITTED))
      return fail(result);
  if (hidden)
  {
    key_is_due= false;
    pk.clear();
    append_number(pk, share->next_hidden++);
  }
  else
    find_key_of(buf);
  auto put= changes_duplicates ? &ha_weir::insert_or_lock : &ha_weir::insert;
  int error= transaction() ? (this->*put)(buf) : HA_ERR_INTERNAL_ERROR;
  // A row that somebody had deleted when the numbers were asked for last, and who took that back.
  while (hidden && error == HA_ERR_FOUND_DUPP_KEY && duplicate == MAX_KEY)
  {
    pk.clear();
    append_number(pk, share->next_hidden++);
    error= (this->*put)(buf);
  }
  if (is_own)
  {
    if (!error)
      error= fail(own_transaction->commit());
    own_transaction.reset();
  }
  return error ? error : note_auto_increment(buf);
}

// Whether an update may change an index's entry.
bool ha_weir::index_may_change(uint index) const
{
  return !computed_parts[index].empty() || keys[index].touches(table->write_set);
}

int ha_weir::update_row(const uchar *old_row, const uchar *new_row)
{
  Accounted accounted(this);
  if (!transaction())
    return HA_ERR_INTERNAL_ERROR;
  // Somebody may have changed it since.
  if (is_unlocked)
    return fail(misused("a row is updated that was read without its lock"));
  if (!find_key_of(old_row))
    return bad_row();
  if (!hidden)
  {
    encode_primary(new_row, low_bytes);
    if (pk != low_bytes)
      return update_new_key(old_row, new_row, low_bytes);
  }
  const uchar *was= as_stored(old_row);
  // The server can't tell if it hasn't read all columns that it writes, or replaces a row.
  if (!sequence && row_format.are_same(table, was, new_row))
    return HA_ERR_RECORD_IS_THE_SAME;
  int error= update_same_key(was, new_row);
  return error ? error : note_auto_increment(new_row);
}

int ha_weir::update_same_key(const uchar *old_row, const uchar *new_row)
{
  changing.clear();
  stayed.clear();
  for (uint i : secondary)
    (index_may_change(i) ? changing : stayed).push_back(i);
  encode_old(changing, old_row);
  encode_new(changing, new_row);
  size_t left= 0;
  for (uint i : changing)
    if (old_entries[i].key == new_entries[i].key && old_entries[i].value == new_entries[i].value)
      stayed.push_back(i);
    else
      changing[left++]= i;
  changing.resize(left);
  WeirEntry removed[MAX_KEY], added[MAX_KEY];
  list_entries(changing, old_entries, removed);
  size_t count= list_entries(changing, new_entries, added);
  row_bytes.clear();
  row_format.encode(table, new_row, row_bytes);
  bool unseen= false;
  WeirResult result= weir_update(transaction(), share->table, bytes_of(pk), bytes_of(row_bytes),
                                 removed, count, added, count, &unseen);
  if (result == WEIR_RESULT_DUPLICATE)
    return duplicate_error(result);
  if (result != WEIR_RESULT_OK)
    return fail(result);
  note_write();
  return unseen && !stayed.empty() ? touch_stayed(new_row) : 0;
}

// Makes entries that stayed the transaction's own, as their row is now.
int ha_weir::touch_stayed(const uchar *record)
{
  WeirEntry entries[MAX_KEY];
  encode_new(stayed, record);
  size_t count= list_entries(stayed, new_entries, entries);
  return fail(weir_touch(transaction(), share->table, entries, count));
}

// A row with another primary key is another row. If that can't be, the old one must be there still.
int ha_weir::update_new_key(const uchar *old_row, const uchar *new_row, const Bytes &new_pk)
{
  Bytes to= new_pk;
  uint64_t savepoint;
  WeirTransaction *with= transaction();
  if (WeirResult result= weir_savepoint(with, &savepoint))
    return fail(result);
  int error= delete_row(old_row);
  if (!error)
  {
    pk= to;
    error= insert(new_row);
  }
  if (error && weir_is_running(with))
    if (WeirResult result= weir_savepoint_rollback(with, savepoint))
      error= fail(result);
  return error ? error : note_auto_increment(new_row);
}

int ha_weir::delete_row(const uchar *buf)
{
  Accounted accounted(this);
  if (!transaction())
    return HA_ERR_INTERNAL_ERROR;
  if (!find_key_of(buf))
    return bad_row();
  encode_old(secondary, as_stored(buf));
  return leaving ? collect_deleted() : delete_encoded();
}

// Deletes the row of `pk` and `old_entries`.
int ha_weir::delete_encoded()
{
  WeirEntry entries[MAX_KEY];
  size_t count= list_entries(secondary, old_entries, entries);
  share->changes++;
  WeirResult result= weir_delete(transaction(), share->table, bytes_of(pk), entries, count);
  if (result == WEIR_RESULT_OK)
    note_write();
  return fail(result);
}

/* Numbers that the engine gives */

// The last row of the table or the last entry of an index, in the order of keys.
struct Last
{
  Scanner scanner;
  WeirScanned at= {};

  WeirResult find(const WeirTable *table, uint32_t index, bool backward)
  {
    WeirResult result= scanner.open(table, index, backward);
    return result == WEIR_RESULT_OK ? scanner.next(&at) : result;
  }
};

// Finds out which number the next row gets of a table that has no primary key.
int ha_weir::know_next_hidden()
{
  if (share->next_hidden != 0)
    return 0;
  Last last;
  ulonglong next= 1;
  WeirResult result= last.find(share->table, WEIR_PRIMARY, true);
  if (result != WEIR_RESULT_OK && result != WEIR_RESULT_NOT_FOUND)
    return fail(result);
  if (result == WEIR_RESULT_OK && last.at.key.len == 8)
  {
    next= 0;
    for (uint i= 0; i < 8; i++)
      next= next << 8 | last.at.key.data[i];
    next++;
  }
  ulonglong unknown= 0;
  share->next_hidden.compare_exchange_strong(unknown, next);
  return 0;
}

// The server's own conversion of numbers that are too large for a BIGINT fails the statement.
static ulonglong whole_number(double value)
{
  if (!(value > 0))
    return 0;
  return value < double(ULONGLONG_MAX) ? ulonglong(value) : ULONGLONG_MAX;
}

static ulonglong value_at(TABLE *table, Field *field, uchar *record)
{
  my_ptrdiff_t diff= record - table->record[0];
  field->move_field_offset(diff);
  ulonglong value= 0;
  if (field->is_null())
    ;
  else if (field->result_type() == REAL_RESULT)
    value= whole_number(field->val_real());
  else if (longlong whole= field->val_int(); whole > 0 || (field->flags & UNSIGNED_FLAG))
    value= ulonglong(whole);
  field->move_field_offset(-diff);
  return value;
}

// The highest value of AUTO_INCREMENT that an index holds, committed or not; 0: it is empty.
int ha_weir::last_value(uint index, Field *field, ulonglong *value)
{
  *value= 0;
  Last last;
  const KeyFormat &key= keys[index];
  uint32_t position= index_position(index);
  WeirResult result= last.find(share->table, position, !key.parts()[0].descending);
  if (result != WEIR_RESULT_OK)
    return result == WEIR_RESULT_NOT_FOUND ? 0 : fail(result);
  std::vector<uchar> record(table->s->default_values,
                            table->s->default_values + table->s->reclength);
  uchar *to= record.data();
  MY_BITMAP *kept_read= dbug_tmp_use_all_columns(table, &table->read_set);
  bool ok= position == WEIR_PRIMARY
               ? decode_row(last.at.key, last.at.value, all, to)
               : key.decode(table, last.at.key, last.at.value, all.entries[index], to);
  if (ok)
    *value= value_at(table, field, to);
  dbug_tmp_restore_column_map(&table->read_set, kept_read);
  return ok ? 0 : bad_row();
}

// Whether a value moves AUTO_INCREMENT on: a FLOAT or DOUBLE doesn't tell those above its largest
// whole number from the next ones.
static bool counts(const Field *field, ulonglong value)
{
  return value <= field->get_max_int_value();
}

// Finds out the next value of AUTO_INCREMENT.
int ha_weir::know_next_auto()
{
  if (share->auto_is_known)
    return 0;
  ulonglong last= 0, kept= 0;
  if (table->s->next_number_keypart == 0)
    if (int error= last_value(table->s->next_number_index, table->found_next_number_field, &last))
      return error;
  if (WeirResult result= share->recall(&kept))
    return fail(result);
  if (!counts(table->found_next_number_field, last))
    last= 0;
  ulonglong from= std::max(last == ULONGLONG_MAX ? last : last + 1, kept), next= share->next_auto;
  while (next < from && !share->next_auto.compare_exchange_weak(next, from)) {}
  share->auto_is_known= true;
  return 0;
}

/*
  Nobody locks the table for its numbers: a statement's follow one another for sure only if it knows
  at its begin how many it needs. The binary log, which as statements has the first one alone, has
  others as rows.
*/
bool ha_weir::autoinc_lock_mode_stmt_unsafe() const
{
  return is_one_of(ha_thd(), {SQLCOM_INSERT_SELECT, SQLCOM_REPLACE_SELECT, SQLCOM_CREATE_TABLE,
                              SQLCOM_LOAD});
}

void ha_weir::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted,
                                 ulonglong *first, ulonglong *reserved)
{
  // Values that begin anew for each value of the columns before them are found by reading.
  if (table->s->next_number_keypart != 0)
  {
    handler::get_auto_increment(offset, increment, wanted, first, reserved);
    return;
  }
  if (know_next_auto())
  {
    // The server's word for an error.
    *first= ULONGLONG_MAX;
    *reserved= 0;
    return;
  }
  // `base`: what the values after those that are handed out now are counted from.
  ulonglong next= share->next_auto, base;
  do
  {
    if (next == ULONGLONG_MAX || next > table->next_number_field->get_max_int_value())
    {
      // The server finds that it doesn't fit.
      *first= next;
      *reserved= next == ULONGLONG_MAX ? 0 : 1;
      return;
    }
    *first= base= std::max<ulonglong>(next, 1);
    if (increment > 1)
    {
      // What the server makes of it, in the same arithmetic.
      base= (*first - 1 + increment - offset) / increment * increment + offset;
      if (base < *first)
      {
        // No such value is left; the server doesn't find one either. From now on there is none at
        // all, as with InnoDB.
        share->next_auto= ULONGLONG_MAX;
        *reserved= 1;
        return;
      }
      // An offset above the increment doesn't count for what comes next, as with InnoDB.
      if (offset > increment)
        base-= base % increment;
    }
    if (wanted > (ULONGLONG_MAX - base) / increment)
      wanted= 1;
  } while (!share->next_auto.compare_exchange_weak(
      next, base > ULONGLONG_MAX - wanted * increment ? ULONGLONG_MAX : base + wanted * increment));
  *reserved= wanted;
}

// A row has a value, perhaps a chosen one: the next one is above it, also after a restart.
int ha_weir::note_auto_increment(const uchar *record)
{
  Field *field= table->found_next_number_field;
  if (!field || table->s->next_number_keypart != 0)
    return 0;
  if (int error= know_next_auto())
    return error;
  ulonglong value= value_at(table, field, const_cast<uchar *>(record)), next= share->next_auto;
  if (!counts(field, value))
    return 0;
  while (next <= value && !share->next_auto.compare_exchange_weak(
                              next, value == ULONGLONG_MAX ? value : value + 1)) {}
  return fail(share->keep(value));
}

int ha_weir::reset_auto_increment(ulonglong value)
{
  Meta meta;
  if (WeirResult result= read_meta(share->table, share->name, &meta))
    return fail(result);
  meta.auto_increment= value;
  if (meta.number)
    meta.number= new_number();
  if (WeirResult result= write_meta(share->table, meta))
    return fail(result);
  share->forget(meta.number);
  share->next_auto= value;
  share->auto_is_known= false;
  return 0;
}

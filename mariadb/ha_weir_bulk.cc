/* INSERT and DELETE of many rows: they are collected, and written together. */

#include "ha_weir.h"
#include "computed.h"
#include "errors.h"

using namespace weir;

// Whether this is the only table of a statement, which is of that kind, and no function or trigger
// runs in it, or around it: these may have temporary tables that the statement doesn't name.
bool ha_weir::is_alone(enum_sql_command statement) const
{
  THD *thd= ha_thd();
  const LEX *lex= thd->lex;
  return lex->sql_command == statement && lex->query_tables && !lex->query_tables->next_global &&
         table->file == this && thd->locked_tables_mode <= LTM_LOCK_TABLES;
}

// Room for rows with entries in all secondary indexes.
Bulk *ha_weir::begin_bulk() const
{
  Session *session= Session::find(ha_thd());
  if (!session)
    return nullptr;
  std::vector<uint32_t> indexes;
  for (uint i : secondary)
    indexes.push_back(index_position(i));
  return session->bulk.begin(indexes) ? &session->bulk : nullptr;
}

void ha_weir::end_bulk(Bulk *&which)
{
  if (which)
    which->end();
  which= nullptr;
}

// Hands all rows that are collected to the engine.
int ha_weir::write_collected(Bulk *collected, decltype(weir_insert_many) *how)
{
  size_t count= collected->count();
  if (count == 0)
    return 0;
  WeirTransaction *with= transaction();
  if (!with)
    return HA_ERR_INTERNAL_ERROR;
  share->changes+= count;
  WeirResult result= collected->write(how, with, share->table);
  if (result == WEIR_RESULT_OK)
    note_write();
  // A DELETE meets none.
  int error= result == WEIR_RESULT_DUPLICATE ? insert_one_by_one(with) : fail(result);
  collected->clear();
  return error;
}

/* INSERT */

// Whether nobody can tell that rows come later: no row is to be passed over or changed for being
// there already, and the server looks nothing up in the table for the rows that follow.
bool ha_weir::may_collect_inserted() const
{
  const TABLE_SHARE *s= table->s;
  return is_alone(SQLCOM_INSERT) && !hidden && !sequence && !expects_duplicates &&
         !s->long_unique_table && !s->period.unique_keys && s->next_number_keypart == 0;
}

void ha_weir::start_bulk_insert(ha_rows expected, uint)
{
  if (expected >= 2 && may_collect_inserted())
    bulk= begin_bulk();
}

int ha_weir::end_bulk_insert()
{
  Accounted accounted(this);
  if (!bulk)
    return 0;
  // After the error of a later row, a duplicate among those before is the statement's first error.
  THD *thd= ha_thd();
  bool has_failed= thd->is_error();
  int error= has_failed && is_killed(thd) ? 0 : insert_collected();
  end_bulk(bulk);
  if (has_failed && error == HA_ERR_FOUND_DUPP_KEY)
  {
    thd->clear_error();
    print_error(error, MYF(0));
  }
  if (error)
    my_errno= error;
  return error;
}

int ha_weir::collect(const uchar *record)
{
  find_key_of(record);
  row_bytes.clear();
  row_format.encode(table, record, row_bytes);
  encode_new(secondary, record);
  WeirEntry entries[MAX_KEY];
  list_entries(secondary, new_entries, entries);
  if (!bulk->add(pk, row_bytes, entries))
  {
    if (int error= insert_collected())
      return error;
    if (!bulk->add(pk, row_bytes, entries))
      return insert(record);
  }
  if (bulk->count() == 1)
    first_collected= ha_thd()->get_stmt_da()->current_row_for_warning();
  return 0;
}

int ha_weir::insert_collected()
{
  return write_collected(bulk, weir_insert_many);
}

// Finds the first row whose key is taken, as if there had been no collecting.
int ha_weir::insert_one_by_one(WeirTransaction *with)
{
  for (size_t i= 0; i < bulk->count(); i++)
  {
    WeirResult result= bulk->insert_one(with, share->table, i);
    if (result == WEIR_RESULT_OK)
      continue;
    if (result != WEIR_RESULT_DUPLICATE)
      return fail(result);
    int error= duplicate_error(result);
    show_collected(i);
    return error;
  }
  return 0;
}

// Makes a collected row the one at hand, and its number that which the server tells in its error.
void ha_weir::show_collected(size_t at)
{
  ha_thd()->get_stmt_da()->reset_current_row_for_warning(int(first_collected + at));
  WeirPair found= bulk->row(at);
  uchar *record= table->record[0];
  if (!decode_row(found.key, found.value, all, record))
    return;
  for (const Part &part : keys[duplicate].parts())
    if (!part.field->stored_in_db())
      compute_virtual(table, part.field, true);
}

/* DELETE */

// Whether nobody can tell that rows go later: none comes in the place of one that goes, and an
// error is the statement's.
bool ha_weir::may_collect_deleted() const
{
  const LEX *lex= ha_thd()->lex;
  return is_alone(SQLCOM_DELETE) && !lex->ignore && !sequence && !table->versioned() &&
         !lex->query_tables->has_period();
}

// Whether the server is to tell them one by one, as if there were no such statements. It asks
// partitions, too, that it has not opened, since the statement leaves them out.
bool ha_weir::start_bulk_delete()
{
  if (table && may_collect_deleted())
    leaving= begin_bulk();
  return !leaving;
}

int ha_weir::end_bulk_delete()
{
  Accounted accounted(this);
  if (!leaving)
    return 0;
  THD *thd= ha_thd();
  // A statement that has failed deletes nothing, and has told why. Of one that was killed the
  // server may not know yet.
  int error= 0;
  if (!thd->is_error())
    error= is_killed(thd) ? HA_ERR_ABORTED_BY_USER : delete_collected();
  end_bulk(leaving);
  return error;
}

// Collects the row of `pk` and `old_entries`.
int ha_weir::collect_deleted()
{
  WeirEntry entries[MAX_KEY];
  size_t count= list_entries(secondary, old_entries, entries);
  for (size_t n= 0; n < count; n++)
    entries[n].value= WeirBytes{nullptr, 0};
  if (leaving->add(pk, Bytes(), entries))
    return 0;
  if (int error= delete_collected())
    return error;
  return leaving->add(pk, Bytes(), entries) ? 0 : delete_encoded();
}

int ha_weir::delete_collected()
{
  return write_collected(leaving, weir_delete_many);
}

#include "share.h"
#include "engine_table.h"
#include "errors.h"
#include "numbers.h"
#include "session.h"

namespace weir {

extern "C" WeirResult no_entry(void *, uint32_t, WeirBytes, WeirBytes, WeirEntry *)
{
  return WEIR_RESULT_CORRUPT;
}

uint index_named(const TABLE *table, const Bytes &name)
{
  for (uint i= 0; i < table->s->keys; i++)
    if (name == table->key_info[i].name.str)
      return i;
  return MAX_KEY;
}

/*
  Indexes that the server doesn't know: a crash came between the change of the engine's definition
  and that of the server's, which stayed as it was. They would not be kept from now on, so they go.
  But for the connection whose ALTER is about to end, which has the table to itself.
*/
int Share::drop_unknown(std::vector<Bytes> &names, const TABLE *form)
{
  std::vector<WeirBytes> unknown;
  for (const Bytes &name : names)
    if (uint at= index_named(form, name); at == MAX_KEY || at == form->s->primary_key)
      unknown.push_back(bytes_of(name));
  if (unknown.empty())
    return 0;
  if (form->in_use && holds_lock_of(form->in_use, form, MDL_SHARED_NO_WRITE))
    return 0;
  sql_print_warning(
      "WEIR: table %s has %zu indexes that its definition doesn't name; they are dropped",
      name.c_str(), unknown.size());
  WeirTableChange drops= {table, unknown.data(), unknown.size(), nullptr, 0, nullptr, 0, nullptr};
  WeirPatience patience= patience_of(current_thd);
  WeirAlteration *alteration;
  WeirResult result= weir_alteration_begin(database, patience, &alteration);
  if (result != WEIR_RESULT_OK)
    return error_of(result);
  result= weir_alteration_add(alteration, patience, &drops);
  if (result == WEIR_RESULT_OK)
    result= weir_alteration_finish(alteration, patience, no_entry);
  else
    weir_alteration_drop(alteration);
  if (result != WEIR_RESULT_OK)
    return error_of(result);
  names.clear();
  return error_of(weir_table_indexes(table, collect_name, &names));
}

// It is opened: the server has ended its RENAME. One that remembers too long does no harm.
static void forget_table_before(const WeirTable *table, Meta meta)
{
  meta.table_before.clear();
  write_meta(table, meta);
}

int Share::open(const Bytes &table_name, TABLE *form)
{
  if (WeirResult result= weir_table_open(database, bytes_of(table_name), &table))
    return error_of(result);
  name= table_name;
  last_write= last_write_of(name);
  std::vector<Bytes> names;
  if (WeirResult result= weir_table_indexes(table, collect_name, &names))
    return error_of(result);
  if (int error= drop_unknown(names, form))
    return error;
  positions.assign(form->s->keys, WEIR_PRIMARY);
  for (uint i= 0; i < form->s->keys; i++)
  {
    if (i == form->s->primary_key)
      continue;
    const char *wanted= form->key_info[i].name.str;
    auto found= std::find(names.begin(), names.end(), wanted);
    if (found == names.end())
    {
      sql_print_error("WEIR: table %s: the engine has no index `%s`", name.c_str(), wanted);
      return HA_ERR_CRASHED;
    }
    positions[i]= uint32_t(found - names.begin());
  }
  Meta meta;
  if (WeirResult result= read_meta(table, name, &meta))
    return error_of(result);
  next_auto= meta.auto_increment;
  number= meta.number;
  added= meta.added;
  places= meta.places;
  keys_made= meta.keys_made;
  if (!meta.table_before.empty())
    forget_table_before(table, meta);
  return 0;
}

// Longest time between two values, in microseconds, that counts as in a row; most written ahead.
static const ulonglong IN_A_ROW_US= 20000, AHEAD_AT_MOST= 4096;

WeirResult Share::recall(ulonglong *value)
{
  *value= 0;
  return number ? read_number(number, value) : WEIR_RESULT_OK;
}

WeirResult Share::keep(ulonglong value)
{
  if (value == ULONGLONG_MAX)
    return WEIR_RESULT_OK;
  ulonglong before= highest;
  while (before < value && !highest.compare_exchange_weak(before, value)) {}
  if (value < kept.load(std::memory_order_acquire))
    return WEIR_RESULT_OK;
  std::lock_guard<std::mutex> guard(keeping);
  if (number == 0 || value < kept)
    return WEIR_RESULT_OK;
  ulonglong now= microsecond_interval_timer();
  ahead= now - kept_at < IN_A_ROW_US ? std::min(2 * ahead + 1, AHEAD_AT_MOST) : 0;
  kept_at= now;
  ulonglong next= value > ULONGLONG_MAX - 1 - ahead ? ULONGLONG_MAX : value + 1 + ahead;
  WeirResult result= write_number(number, next);
  if (result == WEIR_RESULT_OK)
    kept.store(next, std::memory_order_release);
  return result;
}

void Share::forget(ulonglong new_name)
{
  std::lock_guard<std::mutex> guard(keeping);
  drop_number(number);
  number= new_name;
  highest= ahead= 0;
  kept= 0;
}

Share::~Share()
{
  // What was written ahead is needed no more, unless the table was opened anew, and more written.
  if (highest && kept > highest + 1)
    take_back_number(number, kept, highest + 1);
  weir_table_close(table);
}


} // namespace weir

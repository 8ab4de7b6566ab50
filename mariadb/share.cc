#include "share.h"
#include "session.h"
#include "numbers.h"
#include "errors.h"
#include "partitions.h"

namespace weir {

/*
  "./db/table" is "db/table". Temporary tables live outside of the data directory and keep their whole
  path: it is theirs alone.
*/
Bytes table_name(const char *path)
{
  if (path[0] == '.' && path[1] == FN_LIBCHAR)
    return Bytes(path + 2);
  size_t len= strlen(mysql_real_data_home);
  if (len > 0 && !strncmp(path, mysql_real_data_home, len))
    return Bytes(path + len);
  return Bytes(path);
}

bool has_base(const Bytes &name, const Bytes &begins)
{
  size_t slash= name.rfind(FN_LIBCHAR);
  return slash != Bytes::npos && name.compare(slash + 1, begins.size(), begins) == 0;
}

bool is_temporary(const Bytes &name)
{
  return has_base(name, "#sql-temptable");
}

extern "C" void collect_name(void *context, WeirBytes name)
{
  static_cast<std::vector<Bytes> *>(context)->push_back(to_bytes(name));
}

std::vector<Bytes> table_names(const Bytes &prefix)
{
  std::vector<Bytes> names;
  weir_table_names(database, bytes_of(prefix), collect_name, &names);
  return names;
}

extern "C" WeirResult no_entry(void *, uint32_t, WeirBytes, WeirBytes, WeirEntry *)
{
  return WEIR_RESULT_CORRUPT;
}

static bool knows(const TABLE *form, const Bytes &name)
{
  for (uint i= 0; i < form->s->keys; i++)
    if (i != form->s->primary_key && name.compare(form->key_info[i].name.str) == 0)
      return true;
  return false;
}

/*
  Indexes that the server doesn't know: a crash came between the change of the engine's definition and that of
  the server's, which stayed as it was. They would not be kept from now on, so they go. But for the connection whose
  ALTER is about to end, which has the table to itself.
*/
int Share::drop_unknown(std::vector<Bytes> &names, const TABLE *form)
{
  std::vector<WeirBytes> unknown;
  for (const Bytes &name : names)
    if (!knows(form, name))
      unknown.push_back(bytes_of(name));
  if (unknown.empty())
    return 0;
  if (form->in_use && form->in_use->mdl_context.is_lock_owner(MDL_key::TABLE, form->s->db.str,
                                                              form->s->table_name.str, MDL_SHARED_NO_WRITE))
    return 0;
  sql_print_warning("WEIR: table %s has %zu indexes that its definition doesn't name; they are dropped",
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
  Bytes encoded= meta.encode();
  weir_table_set_meta(table, bytes_of(encoded));
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
    const LEX_CSTRING &wanted= form->key_info[i].name;
    for (uint n= 0; n < names.size(); n++)
      if (names[n].size() == wanted.length && !memcmp(names[n].data(), wanted.str, wanted.length))
        positions[i]= n;
    if (positions[i] == WEIR_PRIMARY)
    {
      sql_print_error("WEIR: table %s: the engine has no index `%s`", name.c_str(), wanted.str);
      return HA_ERR_CRASHED;
    }
  }
  Meta meta;
  if (WeirResult result= meta_of(table, name, &meta))
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

// Longest time between two values, in microseconds, that counts as many in a row; most that is written ahead.
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
  // What was written ahead isn't needed any more. The table may have been opened anew, and more have been written.
  if (highest && kept > highest + 1)
    take_back_number(number, kept, highest + 1);
  weir_table_close(table);
}

WeirResult drop_table(const Bytes &name, WeirPatience patience)
{
  WeirTable *table;
  ulonglong number= 0;
  if (weir_table_open(database, bytes_of(name), &table) == WEIR_RESULT_OK)
  {
    Meta meta;
    if (meta_of(table, name, &meta) == WEIR_RESULT_OK)
      number= meta.number;
    weir_table_close(table);
  }
  WeirResult result= weir_table_drop(database, bytes_of(name), patience);
  if (result == WEIR_RESULT_OK)
  {
    drop_number(number);
    forget_last_write(name);
  }
  return result;
}

// Whether a table has a name that the server gives to a copy while that gets its rows.
static bool is_copy(const Bytes &name)
{
  size_t slash= name.rfind(FN_LIBCHAR);
  size_t base= slash == Bytes::npos ? 0 : slash + 1;
  static const Bytes COPY= tmp_file_prefix "-", EXCHANGED= tmp_file_prefix "-exchange-";
  if (name.find("#TMP#", base) != Bytes::npos)
    return true;
  return name.compare(base, COPY.size(), COPY) == 0 && name.compare(base, EXCHANGED.size(), EXCHANGED) != 0;
}

static WeirResult rename_in_engine(const Bytes &from, const Bytes &to, WeirPatience patience)
{
  Bytes before= to_remember(from, to);
  if (before.empty())
    return weir_table_rename(database, bytes_of(from), bytes_of(to), nullptr, patience);
  WeirTable *table;
  if (WeirResult result= weir_table_open(database, bytes_of(from), &table))
    return result;
  Meta meta;
  WeirResult result= meta_of(table, from, &meta);
  weir_table_close(table);
  if (result != WEIR_RESULT_OK)
    return result;
  meta.table_before= before;
  Bytes encoded= meta.encode();
  WeirBytes bytes= bytes_of(encoded);
  return weir_table_rename(database, bytes_of(from), bytes_of(to), &bytes, patience);
}

WeirResult rename_table(const Bytes &from, const Bytes &to, WeirPatience patience)
{
  if (is_copy(from))
    if (WeirResult result= weir_table_hide_from_older(database, bytes_of(from), patience))
      return result;
  WeirResult result= rename_in_engine(from, to, patience);
  if (result == WEIR_RESULT_OK)
    rename_last_write(from, to);
  return result;
}

/*
  Format, value of AUTO_INCREMENT, length of the version; from format 2 on the name among the numbers; from 3 on the
  length of the name of the table before; from 4 on how keys are made; from 5 on the length of the dropped columns; from 6
  on that of the order of columns; version, that name, dropped columns, order, added. What an older format lacks is 0, or empty.
*/
static constexpr uchar META_FIRST= 1, META_NOW= 6;
static constexpr size_t META_HEADS[]= {0, 13, 21, 25, 26, 30, 34};

Bytes Meta::encode() const
{
  uchar head[34];
  static_assert(sizeof head == META_HEADS[META_NOW], "head");
  head[0]= META_NOW;
  int8store(head + 1, auto_increment);
  int4store(head + 9, static_cast<uint32>(version.size()));
  int8store(head + 13, number);
  int4store(head + 21, static_cast<uint32>(table_before.size()));
  head[25]= keys_made;
  int4store(head + 26, static_cast<uint32>(places.dropped.size()));
  int4store(head + 30, static_cast<uint32>(places.order.size()));
  return Bytes(reinterpret_cast<const char *>(head), sizeof head) + version + table_before + places.dropped +
         places.order + added;
}

bool Meta::decode(WeirBytes from)
{
  if (from.len == 0 || from.data[0] < META_FIRST || from.data[0] > META_NOW)
    return false;
  size_t len_of_head= META_HEADS[from.data[0]];
  if (from.len < len_of_head)
    return false;
  uchar head[34]= {};
  memcpy(head, from.data, len_of_head);
  auto_increment= uint8korr(head + 1);
  number= uint8korr(head + 13);
  keys_made= head[25];
  if (keys_made > KEYS_NOW)
    return false;
  auto rest= reinterpret_cast<const char *>(from.data) + len_of_head;
  size_t left= from.len - len_of_head;
  auto take= [&](const uchar *len, Bytes &to) {
    size_t count= uint4korr(len);
    if (count > left)
      return false;
    to.assign(rest, count);
    rest+= count;
    left-= count;
    return true;
  };
  if (!take(head + 9, version) || !take(head + 21, table_before) || !take(head + 26, places.dropped) ||
      !take(head + 30, places.order))
    return false;
  added.assign(rest, left);
  return true;
}

struct Decoded
{
  Meta *meta;
  bool ok;
};

extern "C" void take_meta(void *context, WeirBytes bytes)
{
  auto to= static_cast<Decoded *>(context);
  to->ok= to->meta->decode(bytes);
}

WeirResult meta_of(const WeirTable *table, const Bytes &name, Meta *meta)
{
  Decoded to= {meta, false};
  WeirResult result= weir_table_meta(table, take_meta, &to);
  if (result != WEIR_RESULT_OK || to.ok)
    return result;
  Bytes text= "what is kept for the server with table " + name + " is damaged, or of a newer format";
  weir_error_set(bytes_of(text));
  return WEIR_RESULT_CORRUPT;
}

} // namespace weir

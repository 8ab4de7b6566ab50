#include "share.h"
#include "session.h"
#include "errors.h"

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

extern "C" void collect_name(void *context, WeirBytes name)
{
  static_cast<std::vector<Bytes> *>(context)->emplace_back(
      reinterpret_cast<const char *>(name.data), name.len);
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
  Indexes that the server doesn't know: a crash came between building them and changing the definition. They
  would not be kept from now on, so they go. While an ALTER is on, nobody opens the table anew but for
  reading, and a table in use isn't changed.
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
  WeirResult result= weir_table_alter(table, unknown.data(), unknown.size(), nullptr, 0, nullptr,
                                      no_entry, nullptr);
  if (result != WEIR_RESULT_OK)
    return error_of(result);
  names.clear();
  return error_of(weir_table_indexes(table, collect_name, &names));
}

int Share::open(const Bytes &table_name, TABLE *form)
{
  if (WeirResult result= weir_table_open(database, bytes_of(table_name), &table))
    return error_of(result);
  name= table_name;
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
  Meta meta= meta_of(table);
  next_auto= meta.auto_increment;
  added= meta.added;
  return 0;
}

static const uchar META_FORMAT= 1;
static const size_t META_HEAD= 1 + 8 + 4;

Bytes Meta::encode() const
{
  uchar head[META_HEAD];
  head[0]= META_FORMAT;
  int8store(head + 1, auto_increment);
  int4store(head + 9, static_cast<uint32>(version.size()));
  return Bytes(reinterpret_cast<const char *>(head), sizeof head) + version + added;
}

bool Meta::decode(WeirBytes from)
{
  if (from.len < META_HEAD || from.data[0] != META_FORMAT)
    return false;
  auto_increment= uint8korr(from.data + 1);
  size_t len= uint4korr(from.data + 9);
  if (len > from.len - META_HEAD)
    return false;
  auto rest= reinterpret_cast<const char *>(from.data) + META_HEAD;
  version.assign(rest, len);
  added.assign(rest + len, from.len - META_HEAD - len);
  return true;
}

extern "C" void take_meta(void *context, WeirBytes bytes)
{
  static_cast<Meta *>(context)->decode(bytes);
}

Meta meta_of(const WeirTable *table)
{
  Meta meta;
  weir_table_meta(table, take_meta, &meta);
  return meta;
}

} // namespace weir

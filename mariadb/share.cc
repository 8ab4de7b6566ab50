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

int Share::open(const Bytes &table_name, TABLE *form)
{
  if (WeirResult result= weir_table_open(database, bytes_of(table_name), &table))
    return error_of(result);
  name= table_name;
  std::vector<Bytes> names;
  if (WeirResult result= weir_table_indexes(table, collect_name, &names))
    return error_of(result);
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
  next_auto= meta_of(table).auto_increment;
  return 0;
}

static const char META_FORMAT= 1;

Bytes Meta::encode() const
{
  uchar number[8];
  int8store(number, auto_increment);
  Bytes out(1, META_FORMAT);
  out.append(reinterpret_cast<const char *>(number), sizeof number);
  return out + version;
}

bool Meta::decode(WeirBytes from)
{
  if (from.len < 9 || from.data[0] != META_FORMAT)
    return false;
  auto_increment= uint8korr(from.data + 1);
  version.assign(reinterpret_cast<const char *>(from.data) + 9, from.len - 9);
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

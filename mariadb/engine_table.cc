#include "engine_table.h"
#include "last_write.h"
#include "meta.h"
#include "numbers.h"
#include "partitions.h"

namespace weir {

/*
  "./db/table" is "db/table". Temporary tables live outside of the data directory and keep their
  whole path: it is theirs alone.
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

bool is_in_database(const Bytes &name)
{
  size_t slash= name.find(FN_LIBCHAR);
  return slash != Bytes::npos && slash != 0;
}

// Behind the name of a table its partition has its own.
Bytes shown_name(const Bytes &of_file)
{
  size_t own= std::min(of_file.find("#P#"), of_file.size());
  char name[NAME_LEN + 1];
  size_t len= filename_to_tablename(of_file.substr(0, own).c_str(), name, sizeof name, true);
  return Bytes(name, len) + of_file.substr(own);
}

Bytes shown_table(const Bytes &name)
{
  // A temporary table's is a path.
  if (!is_in_database(name))
    return name;
  size_t slash= name.find(FN_LIBCHAR);
  return shown_name(name.substr(0, slash)) + FN_LIBCHAR + shown_name(name.substr(slash + 1));
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

WeirResult drop_table(const Bytes &name, WeirPatience patience)
{
  Meta meta;
  ulonglong number= read_meta(name, &meta) == WEIR_RESULT_OK ? meta.number : 0;
  WeirResult result= weir_table_drop(database, bytes_of(name), patience);
  if (result == WEIR_RESULT_OK)
  {
    drop_number(number);
    forget_last_write(name);
  }
  return result;
}

void warn_of_drop(const Bytes &name)
{
  sql_print_warning("WEIR: table %s could not be dropped: %s", name.c_str(), weir_error_message());
}

bool drop_table_or_warn(const Bytes &name, WeirPatience patience)
{
  if (drop_table(name, patience) == WEIR_RESULT_OK)
    return true;
  warn_of_drop(name);
  return false;
}

// Whether a table has a name that the server gives to a copy while that gets its rows.
static bool is_copy(const Bytes &name)
{
  size_t slash= name.rfind(FN_LIBCHAR);
  size_t base= slash == Bytes::npos ? 0 : slash + 1;
  static const Bytes COPY= tmp_file_prefix "-", EXCHANGED= tmp_file_prefix "-exchange-";
  if (name.find("#TMP#", base) != Bytes::npos)
    return true;
  return name.compare(base, COPY.size(), COPY) == 0 &&
         name.compare(base, EXCHANGED.size(), EXCHANGED) != 0;
}

static WeirResult rename_in_engine(const Bytes &from, const Bytes &to, WeirPatience patience)
{
  Bytes before= to_remember(from, to);
  if (before.empty())
    return weir_table_rename(database, bytes_of(from), bytes_of(to), nullptr, patience);
  Meta meta;
  if (WeirResult result= read_meta(from, &meta))
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

} // namespace weir

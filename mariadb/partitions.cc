#include "partitions.h"
#include "engine_table.h"
#include "files.h"
#include "meta.h"
#include "session.h"
#include <set>

namespace weir {

static const char SEPARATOR[]= "#P#";

bool is_partition(const Bytes &name)
{
  return name.find(SEPARATOR) != Bytes::npos;
}

Bytes table_of_partition(const Bytes &name)
{
  return name.substr(0, name.find(SEPARATOR));
}

std::vector<Bytes> partitions_of(const Bytes &table)
{
  return table_names(table + SEPARATOR);
}

/*
  Whether the list of a table that has no partitions here is of this engine, or cut short. Behind
  its length, checksum and number of partitions a list has a byte for the engine of each of them.
*/
static bool has_list_of_ours(const Bytes &table)
{
  static const my_off_t ENGINES_AT= 12;
  File file= my_open(path_of(table, LIST).c_str(), O_RDONLY, MYF(0));
  if (file < 0)
    return false;
  uchar engine= 0;
  bool is_cut_short= my_pread(file, &engine, 1, ENGINES_AT, MYF(MY_NABP)) != 0;
  my_close(file, MYF(0));
  return is_cut_short || engine == hton->db_type;
}

Bytes to_remember(const Bytes &from, const Bytes &to)
{
  if (!is_partition(from) || !is_partition(to))
    return Bytes();
  Bytes before= table_of_partition(from);
  return before == table_of_partition(to) ? Bytes() : before;
}

// The table that a partition remembers; empty: none.
static Bytes table_before_of(const Bytes &name)
{
  Meta meta;
  if (read_meta(name, &meta) == WEIR_RESULT_OK)
    return meta.table_before;
  sql_print_error("WEIR: %s", weir_error_message());
  return Bytes();
}

// The list comes first: while there is a partition to be put back, it is known whereto.
static void put_back(const Bytes &name, const Bytes &table, const Bytes &before)
{
  if (has_file(table, LIST) && lacks_file(before, LIST))
    my_rename(path_of(table, LIST).c_str(), path_of(before, LIST).c_str(), MYF(MY_WME));
  Bytes old_name= before + name.substr(table.size());
  if (rename_table(name, old_name, patience_of(nullptr)) == WEIR_RESULT_OK)
    sql_print_information("WEIR: table %s is %s again: its RENAME was cut short", name.c_str(),
                          old_name.c_str());
  else
    sql_print_error("WEIR: table %s could not be renamed: %s", name.c_str(), weir_error_message());
}

void put_back_partitions()
{
  for (const Bytes &name : table_names(""))
  {
    Bytes table= table_of_partition(name);
    if (table == name || !lacks_file(table, reg_ext))
      continue;
    Bytes before= table_before_of(name);
    if (!before.empty() && has_file(before, reg_ext))
      put_back(name, table, before);
  }
}

// Tables whose definitions were put aside, and the names that the server gives to these.
static std::vector<std::pair<Bytes, Bytes>> put_aside;

static void copy_unless_there(const Bytes &from, const Bytes &to, const char *extension)
{
  if (has_file(from, extension) && lacks_file(to, extension))
    my_copy(path_of(from, extension).c_str(), path_of(to, extension).c_str(), MYF(MY_WME));
}

// While the new definition waits under a name of its own, `db/#sql-shadow-NUMBER-table`, the old
// one is in its place or aside, in `db/#sql-backup-NUMBER-table`.
void put_definitions_aside()
{
  static const Bytes NEW= "/" tmp_file_prefix "-shadow-", ASIDE= "/" tmp_file_prefix "-backup-";
  for (const Bytes &name : tables_with(reg_ext))
  {
    size_t slash= name.find(FN_LIBCHAR), number= slash + NEW.size();
    if (name.compare(slash, NEW.size(), NEW) != 0 || name.find('-', number) == Bytes::npos)
      continue;
    Bytes table= name.substr(0, slash + 1) + name.substr(name.find('-', number) + 1);
    if (partitions_of(table).empty())
      continue;
    Bytes aside= name.substr(0, slash) + ASIDE + name.substr(number);
    copy_unless_there(table, aside, reg_ext);
    copy_unless_there(table, aside, LIST);
    put_aside.emplace_back(table, aside);
  }
}

static void delete_if_doubled(const Bytes &table, const Bytes &aside, const char *extension)
{
  if (has_file(table, extension) && has_file(aside, extension))
    my_delete(path_of(aside, extension).c_str(), MYF(MY_WME));
}

void drop_put_aside()
{
  for (const auto &[table, aside] : put_aside)
  {
    delete_if_doubled(table, aside, reg_ext);
    delete_if_doubled(table, aside, LIST);
  }
  put_aside.clear();
}

static void write_table_before(const Bytes &name, const Bytes &table_before)
{
  OpenTable open;
  Meta meta;
  WeirResult result= open.open(name);
  if (result == WEIR_RESULT_OK)
    result= read_meta(open.table, name, &meta);
  meta.table_before= table_before;
  if (result == WEIR_RESULT_OK)
    result= write_meta(open.table, meta);
  if (result != WEIR_RESULT_OK)
    sql_print_error("WEIR: %s", weir_error_message());
}

// A partition that remembers its own table: a DROP of that may have been cut short.
static bool may_be_dropped(const Bytes &name)
{
  return table_before_of(name) == table_of_partition(name);
}

void remember_lost_lists()
{
  for (const Bytes &name : table_names(""))
  {
    Bytes table= table_of_partition(name);
    if (is_partition(name) && has_file(table, reg_ext) && lacks_file(table, LIST))
      write_table_before(name, table);
  }
}

bool is_left_by_drop(const Bytes &name)
{
  if (!is_partition(name))
    return false;
  Bytes table= table_of_partition(name);
  return lacks_file(table, reg_ext) && lacks_file(table, LIST) && may_be_dropped(name);
}

void tell_lost_partitions()
{
  std::set<Bytes> lost;
  for (const Bytes &name : table_names(""))
  {
    Bytes table= table_of_partition(name);
    if (!is_partition(name))
      continue;
    if (lacks_file(table, reg_ext))
      lost.insert(table);
    else if (lacks_file(table, LIST) && may_be_dropped(name))
      write_table_before(name, Bytes());
  }
  for (const Bytes &table : lost)
    sql_print_warning(
        "WEIR: partitions of %s have lost its definition; they are kept. Put back its files (%s "
        "and %s), or give them up with DROP TABLE",
        table.c_str(), reg_ext, LIST);
}

void drop_left_lists()
{
  for (const Bytes &table : tables_with(LIST))
    if (lacks_file(table, reg_ext) && partitions_of(table).empty() && has_list_of_ours(table) &&
        !my_delete(path_of(table, LIST).c_str(), MYF(MY_WME)))
      sql_print_information("WEIR: list of partitions %s is deleted: a crash left it behind",
                            table.c_str());
}

WeirResult drop_with_list(const Bytes &table, WeirPatience patience)
{
  std::vector<Bytes> names= partitions_of(table);
  if (names.empty() && !has_list_of_ours(table))
    return WEIR_RESULT_NO_TABLE;
  for (const Bytes &name : names)
    if (WeirResult result= drop_table(name, patience))
      return result;
  my_delete(path_of(table, LIST).c_str(), MYF(0));
  return WEIR_RESULT_OK;
}

WeirResult rename_with_list(const Bytes &from, const Bytes &to, WeirPatience patience)
{
  std::vector<Bytes> names= partitions_of(from);
  bool has_list= has_file(from, LIST);
  if (names.empty() && !has_list)
    return WEIR_RESULT_NO_TABLE;
  for (const Bytes &name : names)
    if (WeirResult result= rename_table(name, to + name.substr(from.size()), patience))
      return result;
  if (has_list)
    my_rename(path_of(from, LIST).c_str(), path_of(to, LIST).c_str(), MYF(MY_WME));
  return WEIR_RESULT_OK;
}

} // namespace weir

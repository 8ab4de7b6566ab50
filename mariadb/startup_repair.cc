#include "startup_repair.h"
#include "engine_table.h"
#include "files.h"
#include "left_tables.h"
#include "partitions.h"
#include "session.h"

namespace weir {

// Drops the temporary tables of a server that was killed; those that a prepared transaction uses
// when that has ended.
static void drop_temporary_tables()
{
  for (const Bytes &name : table_names(""))
    if (is_temporary(name))
      leave_table(name);
  if (size_t dropped= drop_left_tables())
    sql_print_information("WEIR: %zu temporary tables of a server that was killed are dropped",
                          dropped);
}

void repair_at_start()
{
  put_back_partitions();
  put_definitions_aside();
  remember_lost_lists();
  drop_temporary_tables();
}

// Drops tables that nobody can name any more; `what` they are.
static void drop_garbage(bool is_garbage(const Bytes &name), const char *what)
{
  size_t dropped= 0;
  for (const Bytes &name : table_names(""))
    if (is_garbage(name))
      dropped+= drop_table_or_warn(name, patience_of(nullptr));
  if (dropped)
    sql_print_information("WEIR: %zu %s are dropped", dropped, what);
}

/*
  Whether a table, or the table that it is a partition of, has a name that only the server gives,
  while it changes definitions, and no definition. Once the server has ended what a crash has
  interrupted, it has forgotten such a table.
*/
static bool is_forgotten(const Bytes &name)
{
  if (!has_base(name, tmp_file_prefix "-") || is_temporary(name))
    return false;
  size_t slash= name.rfind(FN_LIBCHAR);
  return !has_file(name.substr(0, name.find("#P#", slash)), reg_ext);
}

// A server that couldn't open the database has dropped definitions alone.
static void tell_lost_definitions()
{
  std::vector<Bytes> lost;
  for (const Bytes &name : table_names(""))
    if (is_in_database(name) && !is_partition(name) && !has_base(name, tmp_file_prefix) &&
        lacks_file(name, reg_ext))
      lost.push_back(name);
  if (!lost.empty())
    sql_print_warning(
        "WEIR: %zu tables have no definition, %s among them; they are kept. Put back the file %s, "
        "or give them up with DROP TABLE, after CREATE DATABASE if that is gone, too",
        lost.size(), lost.front().c_str(), path_of(lost.front(), reg_ext).c_str());
}

int ddl_is_recovered(handlerton *)
{
  drop_garbage(is_forgotten, "copies of tables that a crash left behind");
  drop_garbage(is_left_by_drop, "partitions of tables whose DROP a crash cut short");
  drop_put_aside();
  drop_left_lists();
  tell_lost_partitions();
  tell_lost_definitions();
  return 0;
}

void tell_lost_tables()
{
  std::vector<Bytes> lost= tables_defined();
  if (!lost.empty())
    sql_print_warning(
        "WEIR: a new, empty database was made in %sweir, where there was none, but %zu tables are "
        "defined with ENGINE=WEIR, %s among them: their rows are not there. If you have that "
        "directory elsewhere, stop the server, put it in place of the new one, and start again",
        mysql_real_data_home, lost.size(), lost.front().c_str());
}

} // namespace weir

#include "files.h"
#include "database.h"

namespace weir {

Bytes path_of(const Bytes &table, const char *extension)
{
  return Bytes(mysql_real_data_home) + table + extension;
}

bool has_file(const Bytes &table, const char *extension)
{
  return access(path_of(table, extension).c_str(), F_OK) == 0;
}

bool lacks_file(const Bytes &table, const char *extension)
{
  return access(path_of(table, extension).c_str(), F_OK) != 0 && errno == ENOENT;
}

// Names in a directory, either of directories or of files.
static std::vector<Bytes> names_in(const Bytes &directory, bool of_directories)
{
  std::vector<Bytes> names;
  if (MY_DIR *dir= my_dir(directory.c_str(), MYF(MY_WANT_STAT)))
  {
    for (size_t i= 0; i < dir->number_of_files; i++)
      if (bool(MY_S_ISDIR(dir->dir_entry[i].mystat->st_mode)) == of_directories)
        names.emplace_back(dir->dir_entry[i].name);
    my_dirend(dir);
  }
  return names;
}

std::vector<Bytes> tables_with(const char *extension)
{
  std::vector<Bytes> tables;
  size_t len= strlen(extension);
  for (const Bytes &database : names_in(mysql_real_data_home, true))
    if (database != DIRECTORY)
      for (const Bytes &file : names_in(mysql_real_data_home + database, false))
        if (file.size() > len && !file.compare(file.size() - len, len, extension))
          tables.push_back(database + FN_LIBCHAR + file.substr(0, file.size() - len));
  return tables;
}

/*
  Whether a definition is of this engine. Behind two bytes that all definitions of tables begin with
  it has one for the engine; if that is the server's own for partitions, a later one for theirs.
*/
static bool is_defined_here(const Bytes &table)
{
  static const size_t ENGINE_AT= 3, ENGINE_OF_PARTITIONS_AT= 61, NEEDED= 64;
  uchar head[NEEDED];
  File file= my_open(path_of(table, reg_ext).c_str(), O_RDONLY, MYF(0));
  if (file < 0)
    return false;
  bool is_read= !my_pread(file, head, NEEDED, 0, MYF(MY_NABP));
  my_close(file, MYF(0));
  if (!is_read || !is_binary_frm_header(head))
    return false;
  uchar engine= head[head[ENGINE_AT] == DB_TYPE_PARTITION_DB ? ENGINE_OF_PARTITIONS_AT : ENGINE_AT];
  return engine == hton->db_type;
}

std::vector<Bytes> tables_defined()
{
  std::vector<Bytes> tables= tables_with(reg_ext);
  auto is_other= [](const Bytes &table) { return !is_defined_here(table); };
  tables.erase(std::remove_if(tables.begin(), tables.end(), is_other), tables.end());
  return tables;
}

} // namespace weir

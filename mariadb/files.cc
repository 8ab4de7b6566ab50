#include "files.h"

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
    if (database != "weir")
      for (const Bytes &file : names_in(mysql_real_data_home + database, false))
        if (file.size() > len && !file.compare(file.size() - len, len, extension))
          tables.push_back(database + FN_LIBCHAR + file.substr(0, file.size() - len));
  return tables;
}

} // namespace weir

/* Tables of the engine, by their names. */
#pragma once

#include "bytes.h"
#include "database.h"

namespace weir {

// For callbacks that are told names: collects them in a vector of Bytes.
extern "C" void collect_name(void *context, WeirBytes name);

// Names of the engine's tables that begin so.
std::vector<Bytes> table_names(const Bytes &prefix);

// Name in the engine of a table that the server names by a path.
Bytes table_name(const char *path);
// Whether the last part of a table's name begins so.
bool has_base(const Bytes &name, const Bytes &begins);
// Whether it is the table of one connection.
bool is_temporary(const Bytes &name);
// Whether it is in a database of the server's: neither the engine's own nor a temporary one.
bool is_in_database(const Bytes &name);

// What is the name of a file in the engine, as the server shows it.
Bytes shown_name(const Bytes &of_file);
// The same of a table's whole name, `schema/table`.
Bytes shown_table(const Bytes &name);

// A table, open while this lives.
class OpenTable
{
public:
  OpenTable()= default;
  ~OpenTable() { weir_table_close(table); }
  OpenTable(const OpenTable &)= delete;
  OpenTable &operator=(const OpenTable &)= delete;
  WeirResult open(const Bytes &name) { return weir_table_open(database, bytes_of(name), &table); }

  WeirTable *table= nullptr;
};

// Drops a table with all that belongs to it, after waiting for its users.
WeirResult drop_table(const Bytes &name, WeirPatience patience);
// The same; the error log is told of one that can't be dropped.
bool drop_table_or_warn(const Bytes &name, WeirPatience patience);
void warn_of_drop(const Bytes &name);

// Gives a table another name, after waiting for its users.
WeirResult rename_table(const Bytes &from, const Bytes &to, WeirPatience patience);

} // namespace weir

/*
  Files of the data directory in which the server keeps what it knows of tables: definitions, and
  lists of partitions. A table is named as in the engine, by the path of these files.
*/
#pragma once

#include "bytes.h"

namespace weir {

// Ends the name of a table's list of partitions; that of its definition ends in `reg_ext`.
static const char LIST[]= ".par";

Bytes path_of(const Bytes &table, const char *extension);
bool has_file(const Bytes &table, const char *extension);
// Not one that can't be asked for.
bool lacks_file(const Bytes &table, const char *extension);
// Names of all tables, of whatever engine, that have such a file.
std::vector<Bytes> tables_with(const char *extension);
// Names of the tables that by their definitions are of this engine.
std::vector<Bytes> tables_defined();

} // namespace weir

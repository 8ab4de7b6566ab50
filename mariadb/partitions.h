/*
  Partitions. To the engine each is a table, `db/table#P#partition`, and the server treats one after
  the other; it keeps a list of a table's partitions in a file (`db/table.par`). A crash in between
  would leave some as before and some as after. So:
  - those that a statement empties are emptied all at once, when it comes to the first
    (`ha_weir::truncate`);
  - one that gets another table's name remembers the one before, until it is opened. The server
    moves partitions, then the list, then the definition: so at a start a partition of a table
    without definition goes back to the table before, if that has one, and the list with it. Then
    the server takes back, or ends, what it was at;
  - a DROP deletes the list first, and the definition last. A start that finds a definition
    without list has the partitions remember their own table. If the server then deletes the
    definition, it has ended a DROP: the partitions go, too, as does a list that is left alone.
    Partitions whose table has lost its definition otherwise are kept, and told;
  - CONVERT PARTITION ... TO TABLE puts the old definition and list aside before the new ones get
    their names. That a start is to put them back the server notes before it puts them aside: what
    is still in its place a start would delete. So copies of it are put aside first.
*/
#pragma once

#include "bytes.h"

namespace weir {

// Whether a table is a partition.
bool is_partition(const Bytes &name);
// Name of the table that a partition belongs to.
Bytes table_of_partition(const Bytes &name);
// Names of all partitions of a table.
std::vector<Bytes> partitions_of(const Bytes &table);
// What a partition is to remember when it gets another name; empty if it stays with its table.
Bytes to_remember(const Bytes &from, const Bytes &to);

// Before the server ends what a crash has interrupted.
void put_back_partitions();
void put_definitions_aside();
// Then: of tables whose DROP may have been cut short.
void remember_lost_lists();
// After it: whether a partition's table was dropped.
bool is_left_by_drop(const Bytes &name);
// And then: a table that has its definition isn't being dropped; one that has none is told.
void tell_lost_partitions();

// And deletes what was put aside of tables that are whole.
void drop_put_aside();

// And deletes lists of tables that have neither definition nor partitions.
void drop_left_lists();

// Drops all partitions of a table, and then the server's list of them; NO_TABLE: neither is there.
WeirResult drop_with_list(const Bytes &table, WeirPatience patience);
// Gives all partitions of a table, and the server's list, another one's name; NO_TABLE as before.
WeirResult rename_with_list(const Bytes &from, const Bytes &to, WeirPatience patience);

} // namespace weir

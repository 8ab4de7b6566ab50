/* What the statement that a connection is at means for locks, and for the time it may take. */
#pragma once

#include "server.h"

namespace weir {

// Whether the statement is of one of these kinds.
inline bool is_one_of(THD *thd, std::initializer_list<int> kinds)
{
  return std::find(kinds.begin(), kinds.end(), thd_sql_command(thd)) != kinds.end();
}

// Whether the connection's transaction goes on when its statement ends.
bool in_transaction(THD *thd);

// Whether the connection's statement is to end. `thd_killed` knows nothing of one that has taken
// too long, or is asked softly.
inline bool is_killed(THD *thd)
{
  return thd_kill_level(thd) != THD_IS_NOT_KILLED;
}

// Whether the connection holds a metadata lock of a table.
bool holds_lock_of(THD *thd, const TABLE *table, enum_mdl_type type);

// Whether the server looks for duplicates of a UNIQUE that it checks itself (USING HASH, WITHOUT
// OVERLAPS) once a row is written, not before: so it sees all who write at once.
bool checks_unique_after_write(THD *thd);

// How the transaction is isolated that begins with the statement. `reads_only`: that takes no locks
// and writes nothing.
WeirIsolation isolation_for(THD *thd, bool reads_only);

// Whether what the statement is told of others' rows must stay true until its transaction ends, for
// the sake of this table.
bool locks_ranges(THD *thd, const TABLE *table);

// Whether a replica may repeat the transaction's statements: they see a state that doesn't change
// under them.
bool may_log_statements(THD *thd);

// Whether the binary log would have the statement where it wants rows; has then been told why.
bool needs_rows_logged(THD *thd);

// How it locks the rows that it reads of a table.
WeirLock lock_for(THD *thd, thr_lock_type type, const TABLE *table, bool is_temporary);

// A trigger or a function reads for the statement that calls it, and locks as that does: but for a
// SELECT of which nothing is repeated elsewhere.
bool locks_as_caller(THD *thd, thr_lock_type type);

} // namespace weir

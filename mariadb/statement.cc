#include "statement.h"

namespace weir {

bool in_transaction(THD *thd)
{
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

bool holds_lock_of(THD *thd, const TABLE *table, enum_mdl_type type)
{
  return thd->mdl_context.is_lock_owner(MDL_key::TABLE, table->s->db.str, table->s->table_name.str,
                                        type);
}

/* UNIQUE that the server checks itself */

bool checks_unique_after_write(THD *thd)
{
  LEX *lex= thd->lex;
  bool changes= lex->duplicates == DUP_UPDATE ||
                is_one_of(thd, {SQLCOM_UPDATE, SQLCOM_UPDATE_MULTI});
  // The server doesn't take the row back of a statement that passes over duplicates, nor of an
  // ALTER. The handler of a trigger or a function may go on after the error, and so may a replica
  // after that of a row event.
  return !(lex->ignore && changes) && lex->sql_command != SQLCOM_ALTER_TABLE &&
         !thd->in_sub_stmt && !lex->requires_prelocking() && !lex->is_stmt_row_injection();
}

// Whether nobody may write what the server has looked for in vain before it writes. Into the copy
// that an ALTER makes nobody else does.
static bool checks_before_writing(THD *thd, const TABLE *table)
{
  return (table->s->long_unique_table || table->s->period.unique_keys) &&
         thd->lex->sql_command != SQLCOM_ALTER_TABLE && !checks_unique_after_write(thd);
}

/* Isolation */

bool may_log_statements(THD *thd)
{
  return thd_tx_isolation(thd) > ISO_READ_COMMITTED;
}

// Whether a replica that applies rows goes on where it doesn't find one. Else a worker that is
// ahead of its turn waits for that, and tries again.
static bool passes_over_missing_rows()
{
  return slave_exec_mode_options == SLAVE_EXEC_MODE_IDEMPOTENT;
}

// Whether the statement is or may be repeated by a replica, in the order of commits: it has to find
// there what it found at the source. The server decides for a single statement only after its
// tables are locked; where rows are logged nothing is repeated.
static bool may_be_repeated(THD *thd)
{
  if (thd_tx_isolation(thd) != ISO_REPEATABLE_READ)
    return false;
  // A replica's workers run several at once, whatever it logs itself.
  if (thd->slave_thread && (!thd->lex->is_stmt_row_injection() || passes_over_missing_rows()))
    return true;
  int format= thd_binlog_format(thd);
  return format == BINLOG_FORMAT_STMT || format == BINLOG_FORMAT_MIXED;
}

bool locks_ranges(THD *thd, const TABLE *table)
{
  return may_be_repeated(thd) || checks_before_writing(thd, table);
}

// The server would refuse it, too, but say only that the engine's rows must be logged.
bool needs_rows_logged(THD *thd)
{
  if (may_log_statements(thd) || thd_binlog_format(thd) != BINLOG_FORMAT_STMT ||
      !thd_binlog_filter_ok(thd) || !thd_sqlcom_can_generate_row_events(thd))
    return false;
  my_error(ER_BINLOG_STMT_MODE_AND_ROW_ENGINE, MYF(0),
           " WEIR is limited to row-logging at READ COMMITTED and READ UNCOMMITTED.");
  return true;
}

// Whether the statement changes a definition, and may read the table's rows to write them into a
// copy or to see where they belong.
static bool may_copy_table(THD *thd)
{
  return is_one_of(thd, {SQLCOM_ALTER_TABLE, SQLCOM_CREATE_INDEX, SQLCOM_DROP_INDEX,
                         SQLCOM_OPTIMIZE});
}

WeirIsolation isolation_for(THD *thd, bool reads_only)
{
  auto isolation= static_cast<WeirIsolation>(thd_tx_isolation(thd));
  // A statement that is a transaction of its own and only reads can be put where its snapshot is.
  bool is_movable= isolation == WEIR_ISOLATION_SERIALIZABLE && reads_only && !in_transaction(thd);
  // What is copied is locked by ranges, not each row.
  return is_movable || may_copy_table(thd) ? WEIR_ISOLATION_REPEATABLE_READ : isolation;
}

/* Locks of rows */

// Whether a statement that writes must see tables that it only reads as they are when it commits,
// so that a replica which repeats it does the same.
static bool locks_what_it_reads(THD *thd)
{
  // As InnoDB: what several tables are changed by is what is committed.
  if (thd_tx_isolation(thd) <= ISO_READ_COMMITTED)
    return is_one_of(thd, {SQLCOM_UPDATE_MULTI, SQLCOM_DELETE, SQLCOM_DELETE_MULTI});
  return is_one_of(thd, {SQLCOM_INSERT, SQLCOM_INSERT_SELECT, SQLCOM_REPLACE,
                         SQLCOM_REPLACE_SELECT, SQLCOM_UPDATE, SQLCOM_UPDATE_MULTI, SQLCOM_DELETE,
                         SQLCOM_DELETE_MULTI, SQLCOM_CREATE_TABLE, SQLCOM_LOAD});
}

// Whether the server wants what a trigger or a function reads to stay as it is, since the statement
// that calls them is logged as it stands.
static bool locks_for_caller(THD *thd, thr_lock_type type)
{
  return type == TL_READ_NO_INSERT && thd->lex->requires_prelocking() &&
         thd_tx_isolation(thd) > ISO_READ_COMMITTED;
}

// Whether the server may copy a table: it keeps others from writing then, which the CHECK of a
// partition doesn't, though that is an ALTER, too.
static bool may_be_copied(THD *thd, const TABLE *table)
{
  return may_copy_table(thd) && holds_lock_of(thd, table, MDL_SHARED_UPGRADABLE);
}

WeirLock lock_for(THD *thd, thr_lock_type type, const TABLE *table, bool is_temporary)
{
  switch (type) {
  case TL_READ_WITH_SHARED_LOCKS:
    return WEIR_LOCK_SHARED;
  case TL_READ_SKIP_LOCKED:
    return WEIR_LOCK_SHARED_SKIP;
  case TL_WRITE_SKIP_LOCKED:
    return WEIR_LOCK_EXCLUSIVE_SKIP;
  default:
    if (type >= TL_FIRST_WRITE)
      return WEIR_LOCK_EXCLUSIVE;
    // A prepared transaction whose connection has gone holds no lock of the server's: the copy
    // waits until it is decided, and has its rows then.
    if (!is_temporary && may_be_copied(thd, table))
      return WEIR_LOCK_SHARED;
    return locks_what_it_reads(thd) || locks_for_caller(thd, type) ? WEIR_LOCK_SHARED
                                                                   : WEIR_LOCK_NONE;
  }
}

bool locks_as_caller(THD *thd, thr_lock_type type)
{
  return thd->in_sub_stmt && (type != TL_READ || thd_sql_command(thd) != SQLCOM_SELECT);
}

} // namespace weir

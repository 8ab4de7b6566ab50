#include "errors.h"
#include "statement.h"

namespace weir {

static int code_of(WeirResult result)
{
  switch (result) {
  case WEIR_RESULT_OK: return 0;
  case WEIR_RESULT_NOT_FOUND: return HA_ERR_KEY_NOT_FOUND;
  case WEIR_RESULT_DUPLICATE: return HA_ERR_FOUND_DUPP_KEY;
  case WEIR_RESULT_DEADLOCK: return HA_ERR_LOCK_DEADLOCK;
  case WEIR_RESULT_ENDED: return HA_ERR_LOCK_DEADLOCK;
  case WEIR_RESULT_LOCK_TIMEOUT: return HA_ERR_LOCK_WAIT_TIMEOUT;
  case WEIR_RESULT_CANCELLED: return HA_ERR_ABORTED_BY_USER;
  case WEIR_RESULT_TOO_MANY_TRANSACTIONS: return HA_ERR_TOO_MANY_CONCURRENT_TRXS;
  case WEIR_RESULT_TABLE_EXISTS: return HA_ERR_TABLE_EXIST;
  case WEIR_RESULT_NO_TABLE: return HA_ERR_NO_SUCH_TABLE;
  case WEIR_RESULT_INDEX_EXISTS: return HA_ERR_WRONG_INDEX;
  case WEIR_RESULT_NO_INDEX: return HA_ERR_WRONG_INDEX;
  case WEIR_RESULT_TABLE_IN_USE: return HA_ERR_LOCK_WAIT_TIMEOUT;
  case WEIR_RESULT_INDEX_TOO_NEW:
  case WEIR_RESULT_TABLE_TOO_NEW: return HA_ERR_TABLE_DEF_CHANGED;
  case WEIR_RESULT_NO_SPACE: return HA_ERR_RECORD_FILE_FULL;
  case WEIR_RESULT_TOO_LONG: return HA_ERR_TO_BIG_ROW;
  case WEIR_RESULT_CORRUPT: return HA_ERR_CRASHED;
  // No table is at fault: `ha_weir::get_error_message` has the cause.
  case WEIR_RESULT_STOPPED: return HA_ERR_INTERNAL_ERROR;
  case WEIR_RESULT_NO_PREPARED: return HA_ERR_KEY_NOT_FOUND;
  case WEIR_RESULT_FAILED: return HA_ERR_INTERNAL_ERROR;
  }
  return HA_ERR_INTERNAL_ERROR;
}

// Whether an operator must know what happened.
static bool is_serious(WeirResult result)
{
  return result == WEIR_RESULT_CORRUPT || result == WEIR_RESULT_STOPPED ||
         result == WEIR_RESULT_FAILED;
}

int error_of(WeirResult result)
{
  if (is_serious(result))
    sql_print_error("WEIR: %s", weir_error_message());
  return code_of(result);
}

int error_of(WeirResult result, THD *thd)
{
  int error= error_of(result);
  // A KILL that came when its statement had ended has ended a wait of the next one. The server has
  // no words for that: it would tell success.
  if (error == HA_ERR_ABORTED_BY_USER && !is_killed(thd))
    error= HA_ERR_LOCK_WAIT_TIMEOUT;
  if (error == HA_ERR_LOCK_DEADLOCK)
    thd->mark_transaction_to_rollback(true);
  else if (error == HA_ERR_LOCK_WAIT_TIMEOUT)
    thd->mark_transaction_to_rollback(false);
  else if (is_serious(result) || result == WEIR_RESULT_NO_SPACE || result == WEIR_RESULT_TOO_LONG)
    // A note: a warning would take the error's place in strict mode.
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_GET_ERRMSG, "WEIR: %s",
                        weir_error_message());
  return error;
}

WeirResult damaged(const Bytes &words)
{
  weir_error_set(bytes_of(words));
  return WEIR_RESULT_CORRUPT;
}

WeirResult misused(const Bytes &words)
{
  weir_error_set(bytes_of(words));
  return WEIR_RESULT_FAILED;
}

} // namespace weir

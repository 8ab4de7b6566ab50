#include "sysvars.h"
#include "backup.h"
#include "database.h"
#include "errors.h"
#include <mutex>

static ulonglong memory, redo_capacity;
static double dirty_limit;
static ulong durability_index;
static my_bool clean, give_up_damaged, stages_most, write_back_binlog;

static const char *durability_names[]= {"sync", "write", "relaxed", NullS};
static TYPELIB durability_list= {array_elements(durability_names) - 1, "", durability_names,
                                 nullptr};

static MYSQL_SYSVAR_ULONGLONG(memory, memory, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "All memory that the engine may use, in bytes", nullptr, nullptr, 128ULL << 20, 8ULL << 20,
    ULONGLONG_MAX, 1ULL << 20);

/*
  Files are made or removed, which may take its time: all that asks for a variable, a new connection
  among it, must not wait for that, so the server's mutex is given back meanwhile. Who changes the
  capacity then comes to the engine and to the variable in the same order as others.
*/
static void set_redo_capacity(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  static std::mutex changing;
  uint64_t actual= 0;
  ulonglong wanted= *static_cast<const ulonglong *>(from);
  mysql_mutex_unlock(&LOCK_global_system_variables);
  std::lock_guard<std::mutex> guard(changing);
  WeirResult result= weir_set_redo_capacity(weir::database, wanted, &actual);
  mysql_mutex_lock(&LOCK_global_system_variables);
  if (result == WEIR_RESULT_OK)
    *static_cast<ulonglong *>(to)= actual;
  else
    my_printf_error(ER_CANT_CREATE_HANDLER_FILE, "WEIR: the redo capacity stays as it is: %s",
                    MYF(0), weir_error_message());
}

static MYSQL_SYSVAR_ULONGLONG(redo_capacity, redo_capacity, PLUGIN_VAR_RQCMDARG,
    "Bytes of redo log: a larger one means fewer page writes", nullptr, set_redo_capacity,
    512ULL << 20, 1ULL << 20, 16ULL << 40, 1ULL << 20);

static void set_dirty_limit(THD *thd, struct st_mysql_sys_var *, void *to, const void *from)
{
  double wanted= *static_cast<const double *>(from);
  if (weir_set_dirty_limit(weir::database, wanted) == WEIR_RESULT_OK)
  {
    *static_cast<double *>(to)= wanted;
    return;
  }
  push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG,
                      "WEIR: the limit of dirty pages stays as it is: %s", weir_error_message());
}

static char *backup_dir;

// That nothing can be written there is to be known before all else is copied.
static bool may_hold_backup(const char *directory, size_t length)
{
  weir::Bytes parent(directory, length);
  while (!parent.empty() && parent.back() == FN_LIBCHAR)
    parent.pop_back();
  if (length >= FN_REFLEN || parent.empty() || parent.front() != FN_LIBCHAR)
  {
    my_printf_error(ER_WRONG_VALUE_FOR_VAR,
                    "WEIR: weir_backup_dir is the path of a directory, from / on", MYF(0));
    return false;
  }
  parent.resize(parent.rfind(FN_LIBCHAR) + 1);
  if (!access(parent.c_str(), W_OK | X_OK))
    return true;
  my_printf_error(ER_WRONG_VALUE_FOR_VAR, "WEIR: the server can't make weir_backup_dir in %s: %s",
                  MYF(0), parent.c_str(), strerror(errno));
  return false;
}

static int check_backup_dir(THD *, st_mysql_sys_var *, void *save, st_mysql_value *value)
{
  int length= 0;
  const char *wanted= value->val_str(value, nullptr, &length);
  if (wanted && length > 0 && !may_hold_backup(wanted, size_t(length)))
    return 1;
  *static_cast<const char **>(save)= wanted;
  return 0;
}

static void set_backup_dir(THD *, struct st_mysql_sys_var *, void *to, const void *from)
{
  const char *wanted= *static_cast<const char *const *>(from);
  bool is_empty= !wanted || !*wanted;
  my_free(backup_dir);
  *static_cast<char **>(to)= is_empty ? nullptr : my_strdup(PSI_NOT_INSTRUMENTED, wanted, MYF(0));
  if (is_empty)
    weir::give_up_backup();
}

static MYSQL_SYSVAR_STR(backup_dir, backup_dir,
    PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_NOCMDOPT | PLUGIN_VAR_MEMALLOC,
    "A new directory, into which the next BACKUP STAGE copies the database at its end, while the "
    "server goes on; the status variable Weir_backup tells what becomes of it. Set to '' while "
    "that is done, it is given up",
    check_backup_dir, set_backup_dir, nullptr);

static MYSQL_SYSVAR_DOUBLE(dirty_limit, dirty_limit, PLUGIN_VAR_RQCMDARG,
    "Share of memory whose pages may have unwritten changes: at the limit, which is never "
    "exceeded, writers wait for pages to be written", nullptr, set_dirty_limit, 0.9, 0.01, 1.0, 0);

static MYSQL_SYSVAR_ENUM(durability, durability_index, PLUGIN_VAR_RQCMDARG,
    "When a commit returns: sync (when it is on the device), write (when it survives the server's "
    "process), relaxed (at once; it is on the device within about half a second)",
    nullptr, nullptr, WEIR_DURABILITY_SYNC, &durability_list);

static MYSQL_THDVAR_ULONG(lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
    "Seconds to wait for a locked row", nullptr, nullptr, 50, 0, 100000000, 1);

static MYSQL_THDVAR_BOOL(ignore_foreign_keys, PLUGIN_VAR_OPCMDARG,
    "Whether a table with FOREIGN KEYs is made without them, with a warning. Without that it is "
    "refused", nullptr, nullptr, false);

static MYSQL_SYSVAR_BOOL(clean_shutdown, clean, PLUGIN_VAR_OPCMDARG,
    "Whether all pages are written at shutdown. Without that, the next start applies the log",
    nullptr, nullptr, false);

static MYSQL_SYSVAR_BOOL(give_up_damaged, give_up_damaged,
    PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
    "Whether recovery empties pages that are damaged, for good, and goes on; without that it stops "
    "at them", nullptr, nullptr, false);

static MYSQL_SYSVAR_BOOL(staging_debug, stages_most, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
    "Whether most entries of secondary indexes are staged, also those whose leaf is in memory: for "
    "tests", nullptr, nullptr, false);

static MYSQL_SYSVAR_BOOL(binlog_writeback, write_back_binlog, PLUGIN_VAR_OPCMDARG,
    "Whether the writing of the binary log to its device is begun as it grows, a MB at a time. "
    "Without that the page cache writes it in bursts where sync_binlog doesn't have it synced",
    nullptr, nullptr, true);

namespace weir {

struct st_mysql_sys_var *system_variables[]= {
    MYSQL_SYSVAR(memory), MYSQL_SYSVAR(redo_capacity), MYSQL_SYSVAR(durability),
    MYSQL_SYSVAR(dirty_limit), MYSQL_SYSVAR(lock_wait_timeout), MYSQL_SYSVAR(ignore_foreign_keys),
    MYSQL_SYSVAR(clean_shutdown),
    MYSQL_SYSVAR(give_up_damaged), MYSQL_SYSVAR(backup_dir), MYSQL_SYSVAR(binlog_writeback),
    MYSQL_SYSVAR(staging_debug),
    nullptr};

WeirDurability durability()
{
  return static_cast<WeirDurability>(durability_index);
}

// Whether SET STATEMENT, or what stands for it, gives a variable for the statement.
static bool statement_sets(THD *thd, const char *variable)
{
  List_iterator_fast<set_var_base> it(thd->lex->stmt_var_list);
  while (set_var_base *one= it++)
    if (one->is_system() && !strcmp(static_cast<set_var *>(one)->var->name.str, variable))
      return true;
  return false;
}

// Whether the statement says how long it waits. NOWAIT and WAIT n set InnoDB's timeout, where there
// is one, and the server's, which is for definitions and tells nothing of rows by itself.
static bool says_how_long_it_waits(THD *thd)
{
  static const LEX_CSTRING INNODB= {STRING_WITH_LEN("InnoDB")};
  return statement_sets(thd, "lock_wait_timeout") &&
         (statement_sets(thd, "innodb_lock_wait_timeout") ||
          !plugin_is_ready(&INNODB, MYSQL_STORAGE_ENGINE_PLUGIN));
}

uint64_t lock_wait_timeout_ms(THD *thd)
{
  ulonglong seconds= says_how_long_it_waits(thd) ? thd->variables.lock_wait_timeout
                                                 : THDVAR(thd, lock_wait_timeout);
  return seconds * 1000;
}

uint64_t definition_wait_timeout_ms(THD *thd)
{
  return std::min<uint64_t>(lock_wait_timeout_ms(thd), thd->variables.lock_wait_timeout * 1000);
}

WeirOptions open_options()
{
  return WeirOptions{memory, redo_capacity, durability(), 50000, dirty_limit, bool(give_up_damaged),
                     bool(stages_most), nullptr};
}

// The log consists of whole files, a few at least: the variable shows what that comes to.
void show_redo_capacity()
{
  uint64_t actual;
  if (weir_set_redo_capacity(database, redo_capacity, &actual) == WEIR_RESULT_OK)
    redo_capacity= actual;
}

Bytes take_backup_dir()
{
  mysql_mutex_lock(&LOCK_global_system_variables);
  Bytes directory= backup_dir ? backup_dir : "";
  my_free(backup_dir);
  backup_dir= nullptr;
  mysql_mutex_unlock(&LOCK_global_system_variables);
  return directory;
}

bool binlog_writeback()
{
  return write_back_binlog;
}

bool ignores_foreign_keys(THD *thd)
{
  return THDVAR(thd, ignore_foreign_keys);
}

bool clean_shutdown()
{
  return clean;
}

} // namespace weir

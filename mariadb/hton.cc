/* The engine as the server sees it: transactions, two-phase commit, start and end. */

#include "ha_weir.h"
#include "backup.h"
#include "binlog_writeback.h"
#include "engine_table.h"
#include "errors.h"
#include "information_schema.h"
#include "left_tables.h"
#include "meta.h"
#include "numbers.h"
#include "partitions.h"
#include "recovery_log.h"
#include "startup_repair.h"
#include "status.h"
#include "sysvars.h"

#if MYSQL_VERSION_ID == 101118
// As in Debian's binaries: headers or options that differ would load, and corrupt.
static_assert(sizeof(handler) == 1328, "handler");
static_assert(sizeof(handlerton) == 456, "handlerton");
static_assert(sizeof(THD) == 27312, "THD");
static_assert(sizeof(TABLE) == 992, "TABLE");
static_assert(sizeof(TABLE_SHARE) == 1168, "TABLE_SHARE");
static_assert(sizeof(Field) == 200, "Field");
static_assert(sizeof(KEY) == 192, "KEY");
#endif

namespace weir {

static handler *create_handler(handlerton *hton, TABLE_SHARE *table, MEM_ROOT *root)
{
  return new (root) ha_weir(hton, table);
}

/* Transactions */

// Whether the transaction ends, not only a statement of it.
static bool ends(THD *thd, bool all)
{
  return all || !in_transaction(thd);
}

static int commit(handlerton *, THD *thd, bool all)
{
  Session *session= Session::find(thd);
  if (!session)
    return 0;
  if (ends(thd, all))
    return session->commit(thd);
  session->end_statement();
  return 0;
}

static int rollback(handlerton *, THD *thd, bool all)
{
  Session *session= Session::find(thd);
  if (!session)
    return 0;
  return ends(thd, all) ? session->rollback() : session->rollback_statement();
}

static Bytes bytes_of_xid(const XID *xid)
{
  uchar head[12];
  int4store(head, static_cast<uint32>(xid->formatID));
  int4store(head + 4, static_cast<uint32>(xid->gtrid_length));
  int4store(head + 8, static_cast<uint32>(xid->bqual_length));
  Bytes out(reinterpret_cast<const char *>(head), sizeof head);
  return out.append(xid->data, xid->gtrid_length + xid->bqual_length);
}

static bool xid_of_bytes(WeirBytes from, XID *xid)
{
  if (from.len < 12)
    return false;
  size_t gtrid= uint4korr(from.data + 4), bqual= uint4korr(from.data + 8);
  if (gtrid > MAXGTRIDSIZE || bqual > MAXBQUALSIZE || from.len != 12 + gtrid + bqual)
    return false;
  xid->set(sint4korr(from.data), reinterpret_cast<const char *>(from.data) + 12, long(gtrid),
           reinterpret_cast<const char *>(from.data) + 12 + gtrid, long(bqual));
  return true;
}

static int prepare(handlerton *, THD *thd, bool all)
{
  Session *session= Session::find(thd);
  if (!session)
    return 0;
  if (!ends(thd, all))
  {
    session->end_statement();
    return 0;
  }
  XID xid;
  thd_get_xid(thd, reinterpret_cast<MYSQL_XID *>(&xid));
  bool users_own= xid.get_my_xid() == 0;
  // The binary log orders the commits of those who have written to it; a replica's worker whose
  // rows were as they were to become has not. Where its position is in another engine, nothing else
  // would make it wait for its turn, and an earlier transaction's worker would find the rows free
  // that this one has read.
  if (!users_own && mysql_bin_log.is_open() && !trans_has_updated_trans_table(thd) &&
      thd->wait_for_prior_commit())
    return HA_ERR_LOCK_DEADLOCK;
  return session->prepare(thd, bytes_of_xid(&xid), users_own);
}

static void commit_ordered(handlerton *, THD *thd, bool)
{
  if (Session *session= Session::find(thd))
    session->commit_in_order();
}

struct Recovery
{
  XID *list;
  uint room, count;
};

// Those that have been handed out already: the server asks until there are no more.
static std::vector<Bytes> handed_out;

extern "C" void recover_one(void *context, WeirBytes bytes)
{
  auto to= static_cast<Recovery *>(context);
  Bytes id= to_bytes(bytes);
  if (to->count >= to->room ||
      std::find(handed_out.begin(), handed_out.end(), id) != handed_out.end() ||
      !xid_of_bytes(bytes, &to->list[to->count]))
    return;
  to->count++;
  handed_out.push_back(id);
}

static int recover(handlerton *, XID *list, uint room)
{
  if (!list || room == 0)
    return 0;
  Recovery to= {list, room, 0};
  weir_prepared(database, recover_one, &to);
  if (to.count < room)
    handed_out.clear();
  return int(to.count);
}

// The X/Open codes, which the server has no names for.
static const int XA_DONE= 0, XA_RM_ERROR= -3, XA_UNKNOWN= -4;

static int xa_result(WeirResult result)
{
  switch (result) {
  case WEIR_RESULT_OK:
    return XA_DONE;
  case WEIR_RESULT_NOT_FOUND:
  case WEIR_RESULT_NO_PREPARED:
    return XA_UNKNOWN;
  default:
    error_of(result);
    // The server forgets the name unless an error is set: it looks at nothing else.
    if (current_thd)
      my_error(ER_XAER_RMERR, MYF(0));
    return XA_RM_ERROR;
  }
}

// Ends a prepared transaction by its name.
template <decltype(weir_commit_prepared) end> static int end_by_xid(handlerton *, XID *xid)
{
  Bytes id= bytes_of_xid(xid);
  Session::let_go_of(id);
  int result= xa_result(end(database, bytes_of(id), durability()));
  drop_left_tables();
  return result;
}

static void commit_checkpoint_request(void *cookie)
{
  if (weir_sync(database) == WEIR_RESULT_OK)
    commit_checkpoint_notify_ha(cookie);
  else
    sql_print_error("WEIR: %s", weir_error_message());
}

// The server keeps a savepoint anywhere in memory, and may forget one silently: it is numbers.
struct SavepointData
{
  uint64_t savepoint;
  size_t written;
};

static int savepoint_set(handlerton *, THD *thd, void *to)
{
  Session *session= Session::find(thd);
  SavepointData at= {};
  int error= 0;
  if (session && session->transaction)
  {
    error= error_of(weir_savepoint(session->transaction, &at.savepoint));
    at.written= session->written.count();
  }
  memcpy(to, &at, sizeof at);
  return error;
}

static int savepoint_rollback(handlerton *, THD *thd, void *to)
{
  Session *session= Session::find(thd);
  if (!session || !session->transaction)
    return 0;
  SavepointData at;
  memcpy(&at, to, sizeof at);
  session->written.rollback_to(at.written);
  return error_of(weir_savepoint_rollback(session->transaction, at.savepoint));
}

// The engine keeps the table's definition until the transaction ends, and so must the server.
static bool savepoint_rollback_can_release_mdl(handlerton *, THD *)
{
  return false;
}

static int start_consistent_snapshot(handlerton *, THD *thd)
{
  return Session::of(thd)->consistent_snapshot(thd);
}

static int close_connection(handlerton *hton, THD *thd)
{
  Session *session= Session::find(thd);
  if (!session)
    return 0;
  // Until then a KILL finds it, under this lock; the server itself forgets it too late.
  mysql_mutex_lock(&thd->LOCK_thd_data);
  thd->ha_data[hton->slot].ha_ptr= nullptr;
  mysql_mutex_unlock(&thd->LOCK_thd_data);
  session->close();
  return 0;
}

static void kill_query(handlerton *, THD *thd, enum thd_kill_levels)
{
  if (Session *session= Session::find(thd))
    session->cancel();
}

/*
  A transaction is about to wait for others, or others have come ahead of it. A replica's workers
  commit in the source's order: one that is in the way of an earlier one is killed by the server,
  and tried again. The binary log notes who had to wait, so that replicas don't try such
  transactions together.
*/
extern "C" void report_wait(void *const *owners, size_t count)
{
  THD *thd= current_thd;
  if (!thd || !thd_need_wait_reports(thd))
    return;
  thd_rpl_deadlock_check(thd, nullptr);
  for (size_t i= 0; i < count; i++)
    thd_rpl_deadlock_check(thd, static_cast<THD *>(owners[i]));
}

extern "C" int thd_deadlock_victim_preference(const THD *one, const THD *other);

// Of a replica's workers the one goes that is to commit later, not the one that has done less.
extern "C" int prefer_victim(void *one, void *other)
{
  return thd_deadlock_victim_preference(static_cast<THD *>(one), static_cast<THD *>(other));
}

// The server's pool of threads lets another one work meanwhile: who holds what this one waits for
// may have none.
extern "C" void thread_blocks()
{
  thd_wait_begin(nullptr, THD_WAIT_ROW_LOCK);
}

extern "C" void thread_goes_on()
{
  thd_wait_end(nullptr);
}

static bool flush_logs(handlerton *)
{
  return error_of(weir_sync(database)) != 0;
}

/* Definitions */

// What a directory still has when it goes. Its path ends in a slash.
static void drop_database(handlerton *, char *path)
{
  Bytes prefix= table_name(path);
  if (prefix.empty() || prefix.back() != FN_LIBCHAR)
    prefix.push_back(FN_LIBCHAR);
  for (const Bytes &name : table_names(prefix))
    drop_table_or_warn(name, patience_of(current_thd));
}

// Whether an ALTER in place that a crash has interrupted was done, to all partitions or to none.
static int check_version(handlerton *, const char *path, const LEX_CUSTRING *version, ulonglong)
{
  static const int IS_VERSION= 0, IS_ANOTHER= 1, IS_UNKNOWN= 2;
  Meta meta;
  Bytes name= table_name(path);
  WeirResult result= read_meta(name, &meta);
  if (result == WEIR_RESULT_NO_TABLE)
    if (std::vector<Bytes> partitions= partitions_of(name); !partitions.empty())
      result= read_meta(partitions.front(), &meta);
  if (result != WEIR_RESULT_OK)
    return IS_UNKNOWN;
  return meta.version == to_bytes(*version) ? IS_VERSION : IS_ANOTHER;
}

/* Start and end */

// Among those that the server gives to engines without one, far from the first of them.
static const int OWN_NUMBER= 113;
static_assert(OWN_NUMBER > DB_TYPE_FIRST_DYNAMIC && OWN_NUMBER < DB_TYPE_DEFAULT,
              "a number for plugins");

// The server asks for prepared transactions at its start alone. Of an engine that is installed
// later it is told those that a user ends; about the others, which its log ends, it must be started
// with the engine.
extern "C" void make_known(void *, WeirBytes bytes)
{
  XID xid;
  if (!xid_of_bytes(bytes, &xid))
    return;
  if (xid.get_my_xid())
    sql_print_warning(
        "WEIR: a transaction waits for the binary log to say whether it was committed: start the "
        "server with the plugin (plugin-load-add)");
  else
    xid_cache_insert(&xid);
}

static int deinit(void *)
{
  stop_binlog_writeback();
  stop_backup();
  close_numbers();
  WeirDatabase *closing= take_database();
  if (closing && weir_close(closing, clean_shutdown()) != WEIR_RESULT_OK)
    sql_print_error("WEIR: %s", weir_error_message());
  return 0;
}

// What the server calls.
static void set_hooks(handlerton *to)
{
  // Lists of partitions have it: it must not depend on which other plugins were loaded before.
  to->db_type= static_cast<legacy_db_type>(OWN_NUMBER);
  to->create= create_handler;
  to->flags= HTON_SUPPORTS_EXTENDED_KEYS;
  to->savepoint_offset= sizeof(SavepointData);
  to->commit= commit;
  to->rollback= rollback;
  to->prepare= prepare;
  to->commit_ordered= commit_ordered;
  to->recover= recover;
  to->commit_by_xid= end_by_xid<weir_commit_prepared>;
  to->rollback_by_xid= end_by_xid<weir_rollback_prepared>;
  to->commit_checkpoint_request= commit_checkpoint_request;
  to->savepoint_set= savepoint_set;
  to->savepoint_rollback= savepoint_rollback;
  to->savepoint_rollback_can_release_mdl= savepoint_rollback_can_release_mdl;
  to->start_consistent_snapshot= start_consistent_snapshot;
  to->close_connection= close_connection;
  to->kill_query= kill_query;
  to->flush_logs= flush_logs;
  to->prepare_for_backup= prepare_for_backup;
  to->end_backup= end_backup;
  to->pre_shutdown= stop_binlog_writeback;
  to->show_status= show_status;
  to->drop_database= drop_database;
  to->check_version= check_version;
  to->signal_ddl_recovery_done= ddl_is_recovered;
  // There are no files of a table's own.
  static const char *no_files[]= {NullS};
  to->tablefile_extensions= no_files;
}

static int init(void *p)
{
  hton= static_cast<handlerton *>(p);
  set_hooks(hton);
  // Beside the directories of databases, but none of them.
  ignore_db_dirs_append(DIRECTORY);
  Bytes directory= Bytes(mysql_real_data_home) + DIRECTORY;
  if (open_telling(bytes_of(directory), open_options(), &database) != WEIR_RESULT_OK)
  {
    sql_print_error("WEIR: the database can't be opened: %s", weir_error_message());
    return 1;
  }
  show_redo_capacity();
  weir_observe_waits(database, report_wait);
  weir_observe_blocking(thread_blocks, thread_goes_on);
  weir_prefer_victims(database, prefer_victim);
  // One that was ever open has the table of numbers.
  if (table_names("").empty())
    tell_lost_tables();
  if (!open_numbers())
  {
    sql_print_error("WEIR: the numbers of AUTO_INCREMENT can't be opened: %s",
                    weir_error_message());
    // The server doesn't call `deinit` of a plugin that couldn't begin.
    deinit(nullptr);
    return 1;
  }
  repair_at_start();
  if (mysqld_server_started)
    weir_prepared(database, make_known, nullptr);
  start_binlog_writeback();
  return 0;
}

} // namespace weir

static struct st_mysql_storage_engine engine= {MYSQL_HANDLERTON_INTERFACE_VERSION};
static struct st_mysql_information_schema information_schema= {
    MYSQL_INFORMATION_SCHEMA_INTERFACE_VERSION};

static constexpr st_maria_plugin table(const char *name, const char *description, int init(void *))
{
  return {MYSQL_INFORMATION_SCHEMA_PLUGIN, &information_schema, name, "Weir", description,
          PLUGIN_LICENSE_GPL, init, nullptr, 0x0100, nullptr, nullptr, "0.1",
          MariaDB_PLUGIN_MATURITY_EXPERIMENTAL};
}

maria_declare_plugin(weir)
{
  MYSQL_STORAGE_ENGINE_PLUGIN,
  &engine,
  "WEIR",
  "Weir",
  "Transactional B+trees with even write throughput",
  PLUGIN_LICENSE_GPL,
  weir::init,
  weir::deinit,
  0x0100,
  weir::status_variables,
  weir::system_variables,
  "0.1",
  MariaDB_PLUGIN_MATURITY_EXPERIMENTAL
},
table("WEIR_TRX", "Transactions of WEIR that have written, have locked rows, or read at a snapshot",
      weir::init_transactions_table),
table("WEIR_LOCKS", "Explicit row locks of WEIR, and waits", weir::init_locks_table),
table("WEIR_INDEX_STATS", "How large the indexes of WEIR are", weir::init_index_table)
maria_declare_plugin_end;

#include "information_schema.h"
#include "engine_table.h"
#include "session.h"
#include <map>
#include <unordered_set>
#include <tztime.h>

namespace Show {

static ST_FIELD_INFO transactions_fields[]= {
    Column("TRX_ID", ULonglong(), NOT_NULL),
    Column("TRX_STATE", Varchar(16), NOT_NULL),
    Column("TRX_UNDO_RECORDS", ULonglong(), NOT_NULL),
    Column("TRX_AGE_US", ULonglong(), NOT_NULL),
    Column("TRX_WAITS_FOR", ULonglong(), NULLABLE),
    Column("TRX_MYSQL_THREAD_ID", ULonglong(), NULLABLE),
    Column("TRX_STARTED", Datetime(0), NOT_NULL),
    Column("TRX_SNAPSHOT_AGE_S", ULonglong(), NULLABLE),
    Column("TRX_UNSEEN_COMMITS", ULonglong(), NULLABLE),
    CEnd()};

static ST_FIELD_INFO locks_fields[]= {
    Column("LOCK_TRX_ID", ULonglong(), NOT_NULL),
    Column("LOCK_TABLE", Varchar(512), NOT_NULL),
    Column("LOCK_INDEX", Varchar(NAME_CHAR_LEN), NULLABLE),
    Column("LOCK_KEY", Varchar(256), NOT_NULL),
    Column("LOCK_MODE", Varchar(1), NOT_NULL),
    Column("LOCK_STATE", Varchar(16), NOT_NULL),
    Column("LOCK_WAITED_US", ULonglong(), NOT_NULL),
    Column("LOCK_WAITS_FOR", ULonglong(), NULLABLE),
    Column("LOCK_MYSQL_THREAD_ID", ULonglong(), NULLABLE),
    CEnd()};

static ST_FIELD_INFO index_fields[]= {
    Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
    Column("TABLE_NAME", Varchar(4 * NAME_CHAR_LEN), NOT_NULL), // with (sub)partition
    Column("INDEX_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
    Column("ENTRIES", ULonglong(), NOT_NULL),
    Column("LEAF_PAGES", ULonglong(), NOT_NULL),
    Column("OVERFLOW_PAGES", ULonglong(), NOT_NULL),
    Column("SIZE_BYTES", ULonglong(), NOT_NULL),
    Column("STAGED_ENTRIES", ULonglong(), NOT_NULL),
    Column("STAGED_LEAF_PAGES", ULonglong(), NOT_NULL),
    CEnd()};

} // namespace Show

namespace weir {

// Where rows go, and whether the server has had enough.
struct TableFill
{
  THD *thd;
  TABLE *table;
  bool failed= false;
  std::unordered_map<uint64_t, Session::Connection> connections= {};
  // The oldest of each connection, as long as no row has told it.
  std::map<uint64_t, WeirSnapshotInfo> snapshots= {};
  // Transactions that a row has told.
  std::unordered_set<uint64_t> told= {};
  // Others that have locked something, and whom they wait for, or 0.
  std::map<uint64_t, uint64_t> lockers= {};
  my_hrtime_t now= my_hrtime();

  // That of a transaction. One that was prepared may have none any more.
  Session::Connection connection_of(uint64_t transaction) const
  {
    auto found= connections.find(transaction);
    return found == connections.end() ? Session::Connection{0, 0} : found->second;
  }
};

static void put(Field *field, ulonglong value)
{
  field->set_notnull();
  field->store(static_cast<longlong>(value), true);
}

static void put(Field *field, const char *text, size_t len)
{
  field->set_notnull();
  field->store(text, len, system_charset_info);
}

static void put(Field *field, const Bytes &text)
{
  put(field, text.data(), text.size());
}

static void put_or_null(Field *field, ulonglong value)
{
  if (value)
    put(field, value);
  else
    field->set_null();
}

static void put_time(Field *field, THD *thd, my_hrtime_t time)
{
  MYSQL_TIME local;
  thd->variables.time_zone->gmt_sec_to_TIME(&local, hrtime_to_my_time(time));
  field->set_notnull();
  field->store_time(&local);
}

static void finish(TableFill *to)
{
  to->failed= schema_table_store_record(to->thd, to->table);
}

// A transaction of a connection, and the snapshot that it reads at, or null. Either may be 0.
static void put_transaction(TableFill *to, const WeirTransactionInfo &info,
                            const Session::Connection &connection, const WeirSnapshotInfo *snapshot)
{
  static const LEX_CSTRING names[]= {
      {STRING_WITH_LEN("RUNNING")}, {STRING_WITH_LEN("LOCK WAIT")}, {STRING_WITH_LEN("PREPARED")}};
  uint64_t age_us=
      std::max({info.age_us, uint64_t(connection.age_us), snapshot ? snapshot->age_us : 0});
  Field **f= to->table->field;
  put(f[0], info.id);
  put(f[1], names[info.state].str, names[info.state].length);
  put(f[2], info.undo_records);
  put(f[3], age_us);
  put_or_null(f[4], info.waits_for);
  put_or_null(f[5], connection.id);
  put_time(f[6], to->thd, my_hrtime_t{to->now.val - age_us});
  f[7]->set_null();
  f[8]->set_null();
  if (snapshot)
  {
    put(f[7], snapshot->age_us / 1000000);
    put(f[8], snapshot->unseen_commits);
  }
  finish(to);
}

// A transaction, with the snapshot of its connection, which is told thereby.
static void put_with_snapshot(TableFill *to, const WeirTransactionInfo &info)
{
  Session::Connection connection= to->connection_of(info.id);
  auto snapshot= connection.id ? to->snapshots.find(connection.id) : to->snapshots.end();
  if (snapshot == to->snapshots.end())
    return put_transaction(to, info, connection, nullptr);
  put_transaction(to, info, connection, &snapshot->second);
  to->snapshots.erase(snapshot);
}

// One that has written.
extern "C" void transaction_row(void *context, const WeirTransactionInfo *info)
{
  auto to= static_cast<TableFill *>(context);
  if (to->failed)
    return;
  to->told.insert(info->id);
  put_with_snapshot(to, *info);
}

// They come oldest first.
extern "C" void collect_snapshot(void *context, const WeirSnapshotInfo *info)
{
  static_cast<TableFill *>(context)->snapshots.emplace(info->connection, *info);
}

extern "C" void collect_locker(void *context, const WeirLockInfo *info)
{
  auto to= static_cast<TableFill *>(context);
  if (to->told.count(info->transaction))
    return;
  uint64_t &waits_for= to->lockers[info->transaction];
  if (info->waits)
    waits_for= info->waits_for;
}

// Those that have written nothing, and have locked something, or wait for it.
static void put_lockers(TableFill *to)
{
  for (auto [id, waits_for] : to->lockers)
  {
    if (to->failed)
      return;
    WeirTransactionInfo info= {};
    info.id= id;
    info.state= waits_for ? WEIR_STATE_WAITING : WEIR_STATE_RUNNING;
    info.waits_for= waits_for;
    put_with_snapshot(to, info);
  }
}

// Connections that read, and whose transactions have neither written nor locked anything.
static void put_readers(TableFill *to)
{
  for (auto &[connection, snapshot] : to->snapshots)
    if (!to->failed)
      put_transaction(to, {}, {my_thread_id(connection), 0}, &snapshot);
}

extern "C" void lock_row(void *context, const WeirLockInfo *info)
{
  auto to= static_cast<TableFill *>(context);
  if (to->failed)
    return;
  Field **f= to->table->field;
  put(f[0], info->transaction);
  put(f[1], shown_table(to_bytes(info->table)));
  if (info->index == WEIR_PRIMARY)
    f[2]->set_null();
  else
    put(f[2], to_bytes(info->index_name));
  put(f[3], hex_beginning(info->key));
  put(f[4], info->exclusive ? "X" : "S", 1);
  if (info->waits)
    put(f[5], STRING_WITH_LEN("WAITING"));
  else
    put(f[5], STRING_WITH_LEN("GRANTED"));
  put(f[6], info->waited_us);
  put_or_null(f[7], info->waits_for);
  put_or_null(f[8], to->connection_of(info->transaction).id);
  finish(to);
}

// Keys are other people's data: only who may see all processes may see them.
static bool may_see(THD *thd)
{
  return !check_global_access(thd, PROCESS_ACL, true);
}

// Fills a table: with nothing for who may not see it, or where the engine is being taken away.
template <void put_rows(TableFill *)> static int fill(THD *thd, TABLE_LIST *tables, Item *)
{
  TableFill to= {thd, tables->table};
  Visitor visitor;
  if (visitor && may_see(thd))
    put_rows(&to);
  return to.failed;
}

static void put_transactions(TableFill *to)
{
  weir_snapshots(database, collect_snapshot, to);
  to->connections= Session::connections();
  weir_transactions(database, transaction_row, to);
  weir_locks(database, collect_locker, to);
  put_lockers(to);
  put_readers(to);
}

static void put_locks(TableFill *to)
{
  to->connections= Session::connections();
  weir_locks(database, lock_row, to);
}

// One index of a table, whose name is `schema/table`. What has gone meanwhile isn't listed.
static void index_row(TableFill *to, const WeirTable *table, const Bytes &name, const Bytes &index,
                      uint32_t position)
{
  WeirIndexFigures figures= {};
  if (to->failed || weir_index_figures(table, position, &figures) != WEIR_RESULT_OK)
    return;
  size_t slash= name.find(FN_LIBCHAR);
  Field **f= to->table->field;
  put(f[0], shown_name(name.substr(0, slash)));
  put(f[1], shown_name(name.substr(slash + 1)));
  put(f[2], index);
  put(f[3], figures.entries);
  put(f[4], figures.leaf_pages);
  put(f[5], figures.overflow_pages);
  put(f[6], figures.size_bytes);
  put(f[7], figures.staged_entries);
  put(f[8], figures.staged_leaf_pages);
  finish(to);
}

static void put_indexes(TableFill *to)
{
  for (const Bytes &name : table_names(""))
  {
    OpenTable open;
    // Temporary tables are their connection's.
    if (!is_in_database(name) || open.open(name) != WEIR_RESULT_OK)
      continue;
    std::vector<Bytes> indexes;
    weir_table_indexes(open.table, collect_name, &indexes);
    index_row(to, open.table, name, "PRIMARY", WEIR_PRIMARY);
    for (size_t i= 0; i < indexes.size(); i++)
      index_row(to, open.table, name, indexes[i], uint32_t(i));
  }
}

/*
  An engine that was uninstalled while it was in use stays until it isn't any more, and is passed
  over when it is installed again; these tables, which have gone at once, aren't. So it is they who
  say that nothing is installed.
*/
static bool may_install()
{
  if (!hton || !database || hton2plugin[hton->slot]->state != PLUGIN_IS_DELETED)
    return true;
  my_printf_error(
      ER_PLUGIN_INSTALLED,
      "WEIR was uninstalled, but is still in use: it can be installed again when the transactions "
      "and connections that use it have ended, and FLUSH TABLES has closed its tables", MYF(0));
  return false;
}

static int init(void *p, ST_FIELD_INFO *fields, int fill_table(THD *, TABLE_LIST *, Item *))
{
  if (!may_install())
    return 1;
  auto schema= static_cast<ST_SCHEMA_TABLE *>(p);
  schema->fields_info= fields;
  schema->fill_table= fill_table;
  return 0;
}

int init_transactions_table(void *p)
{
  return init(p, Show::transactions_fields, fill<put_transactions>);
}

int init_index_table(void *p) { return init(p, Show::index_fields, fill<put_indexes>); }
int init_locks_table(void *p) { return init(p, Show::locks_fields, fill<put_locks>); }

} // namespace weir

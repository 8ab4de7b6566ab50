#include "session.h"
#include <mutex>
#include <unordered_set>
#include "errors.h"
#include "huge_pages.h"
#include "share.h"

namespace weir {

static std::shared_mutex door;

Visitor::Visitor() : held(door) {}

WeirDatabase *take_database()
{
  std::lock_guard<std::shared_mutex> guard(door);
  WeirDatabase *taken= database;
  database= nullptr;
  return taken;
}

Session *Session::find(THD *thd)
{
  return static_cast<Session *>(thd_get_ha_data(thd, hton));
}

static std::mutex listing; // for the following
static std::unordered_set<Session *> sessions;

// A replica's workers commit in an order that the server keeps, and with `binlog_commit_wait_count` a commit waits for
// others: the server wants to know who waits for them.
Session::Session(THD *thd)
    : connection(thd->thread_id),
      canceller(weir_canceller_open(thd->slave_thread || thd_need_wait_reports(thd) ? thd : nullptr, connection))
{
  std::lock_guard<std::mutex> guard(listing);
  sessions.insert(this);
}

Session *Session::of(THD *thd)
{
  Session *session= find(thd);
  if (!session)
  {
    allow_huge_pages();
    session= new Session(thd);
    thd_set_ha_data(thd, hton, session);
  }
  return session;
}

std::unordered_map<uint64_t, my_thread_id> Session::connections()
{
  std::unordered_map<uint64_t, my_thread_id> of_transactions;
  std::lock_guard<std::mutex> guard(listing);
  for (const Session *session : sessions)
    if (uint64_t transaction= weir_canceller_transaction(session->canceller))
      of_transactions.emplace(transaction, session->connection);
  return of_transactions;
}

bool in_transaction(THD *thd)
{
  return thd_test_options(thd, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN);
}

int Session::begin(THD *thd, WeirIsolation isolation)
{
  DBUG_ASSERT(!transaction);
  ordered= prepared_by_user= may_write= false;
  if (!ended_one)
    return error_of(weir_begin(database, isolation, canceller, &transaction), thd);
  if (WeirResult result= weir_begin_again(ended_one, isolation))
    return error_of(result, thd);
  std::swap(transaction, ended_one);
  return 0;
}

// Whether the statement is or may be repeated by a replica, in the order of commits: it has to find there what it found
// at the source. The server decides for a single statement only after its tables are locked; where rows are logged
// nothing is repeated.
static bool may_be_repeated(THD *thd)
{
  if (thd_tx_isolation(thd) != ISO_REPEATABLE_READ)
    return false;
  // A replica's workers run several at once, whatever it logs itself.
  if (thd->slave_thread && !thd->lex->is_stmt_row_injection())
    return true;
  int format= thd_binlog_format(thd);
  return format == BINLOG_FORMAT_STMT || format == BINLOG_FORMAT_MIXED;
}

bool is_update_ignore(THD *thd)
{
  return thd->lex->ignore && (thd->lex->sql_command == SQLCOM_UPDATE || thd->lex->sql_command == SQLCOM_UPDATE_MULTI);
}

bool may_copy_table(THD *thd)
{
  switch (thd->lex->sql_command) {
  case SQLCOM_ALTER_TABLE:
  case SQLCOM_CREATE_INDEX:
  case SQLCOM_DROP_INDEX:
  case SQLCOM_OPTIMIZE:
    return true;
  default:
    return false;
  }
}

// Whether nobody may write what the server has looked for in vain, for a UNIQUE that it checks itself before it writes:
// also in a trigger or a function, whose statements aren't known yet.
static bool checks_before_writing(THD *thd)
{
  if (!is_update_ignore(thd) && !thd->lex->requires_prelocking())
    return false;
  for (const TABLE_LIST *one= thd->lex->query_tables; one; one= one->next_global)
    if (one->table && (one->table->s->long_unique_table || one->table->s->period.unique_keys))
      return true;
  return false;
}

int Session::begin_statement(THD *thd, bool reads_only)
{
  leave_prepared_if_reset(thd);
  if (!transaction)
  {
    auto isolation= static_cast<WeirIsolation>(thd_tx_isolation(thd));
    // A statement that is a transaction of its own and only reads can be put where its snapshot is.
    if (isolation == WEIR_ISOLATION_SERIALIZABLE && reads_only && !in_transaction(thd))
      isolation= WEIR_ISOLATION_REPEATABLE_READ;
    // So that it locks ranges of what it copies, not each row.
    if (may_copy_table(thd))
      isolation= WEIR_ISOLATION_REPEATABLE_READ;
    if (int error= begin(thd, isolation))
      return error;
  }
  if (!in_statement)
  {
    // A KILL of an earlier statement may have met no wait. One from here on is told to the canceller; one in between is
    // seen here.
    weir_canceller_renew(canceller);
    if (is_killed(thd))
      cancel();
    WeirResult result= weir_statement_begin(transaction, lock_wait_timeout_ms(thd),
                                            may_be_repeated(thd) || checks_before_writing(thd));
    if (result != WEIR_RESULT_OK)
      return error_of(result, thd);
    in_statement= true;
  }
  trans_register_ha(thd, false, hton, 0);
  if (in_transaction(thd))
    trans_register_ha(thd, true, hton, 0);
  return 0;
}

int Session::consistent_snapshot(THD *thd)
{
  leave_prepared_if_reset(thd);
  if (!transaction)
    if (int error= begin(thd, static_cast<WeirIsolation>(thd_tx_isolation(thd))))
      return error;
  trans_register_ha(thd, true, hton, 0);
  return error_of(weir_take_snapshot(transaction));
}

// Temporary tables end with the connection: nobody looks for what they had.
WeirDurability Session::wanted_durability() const
{
  return may_write ? durability() : WEIR_DURABILITY_RELAXED;
}

int Session::commit(THD *thd)
{
  WeirResult result= WEIR_RESULT_OK;
  if (ordered)
  {
    // The coordinator's log has it: nobody need wait until the engine's has it, too. But at a start the
    // server asks its log about its own transactions only.
    result= ordered_result;
    if (result != WEIR_RESULT_OK)
      weir_error_set(bytes_of(ordered_words));
    else if (prepared_by_user)
      result= weir_commit_wait(transaction);
    thd_wakeup_subsequent_commits(thd, 0);
  }
  else if (transaction)
  {
    // A replica's next worker, which waits for its turn, goes on before the log has this: both may be one sync's.
    result= weir_commit_in_order(transaction, wanted_durability());
    if (result == WEIR_RESULT_OK)
    {
      thd_wakeup_subsequent_commits(thd, 0);
      result= weir_commit_wait(transaction);
    }
  }
  if (result == WEIR_RESULT_OK)
    written.commit();
  ended();
  return error_of(result, thd);
}

int Session::rollback()
{
  WeirResult result= transaction ? weir_rollback(transaction) : WEIR_RESULT_OK;
  ended();
  return error_of(result);
}

void Session::ended()
{
  if (prepared_by_user)
  {
    std::lock_guard<std::mutex> guard(listing);
    prepared_as.clear();
  }
  if (transaction)
    std::swap(transaction, ended_one);
  in_statement= ordered= prepared_by_user= false;
  written.rollback();
  for (const Bytes &name : to_drop)
    if (drop_table(name, patience_of(nullptr)) != WEIR_RESULT_OK)
      sql_print_warning("WEIR: table %s could not be dropped: %s", name.c_str(), weir_error_message());
  to_drop.clear();
}

void Session::end_statement()
{
  in_statement= false;
  // What it saw at READ COMMITTED may be purged, however long the connection sleeps now.
  if (transaction)
    weir_statement_end(transaction);
  written.end_statement();
}

int Session::rollback_statement()
{
  in_statement= false;
  written.rollback_statement();
  if (!transaction)
    return 0;
  int error= error_of(weir_statement_rollback(transaction));
  weir_statement_end(transaction);
  return error;
}

int Session::prepare(THD *thd, const Bytes &xid, bool users_own)
{
  if (!transaction)
    return 0;
  prepared_by_user= users_own;
  end_statement();
  // What has changed nothing that outlives the connection is rolled back with it: nobody could look for it.
  if (users_own && !may_write)
    return 0;
  int error= error_of(weir_prepare(transaction, bytes_of(xid), wanted_durability()), thd);
  // A replica looks for rows in other ways than its source, and locks more of them: a transaction that the source has
  // committed between this one's XA PREPARE and its end would wait for that, which comes behind it.
  if (!error && users_own && (thd->slave_thread || thd->variables.pseudo_slave_mode))
    error= error_of(weir_release_reads(transaction), thd);
  if (!error && users_own)
  {
    std::lock_guard<std::mutex> guard(listing);
    prepared_as= xid;
  }
  return error;
}

void Session::commit_in_order()
{
  if (!transaction)
    return;
  ordered_result= weir_commit_in_order(transaction, wanted_durability());
  if (ordered_result != WEIR_RESULT_OK)
    ordered_words= weir_error_message();
  ordered= true;
}

// What it has prepared waits for its coordinator, and keeps its tables. Under `listing`.
void Session::detach()
{
  weir_detach(transaction);
  std::swap(transaction, ended_one);
  for (const Bytes &name : to_drop)
    leave_table(name);
  to_drop.clear();
  prepared_as.clear();
}

void Session::let_go_of(const Bytes &xid)
{
  std::lock_guard<std::mutex> guard(listing);
  for (Session *session : sessions)
    if (session->prepared_as == xid)
      session->detach();
}

void Session::leave_prepared()
{
  if (!prepared_by_user)
    return;
  std::lock_guard<std::mutex> guard(listing);
  if (!prepared_as.empty())
    detach();
}

// The server takes a connection that is reset (COM_RESET_CONNECTION, COM_CHANGE_USER) from the transaction that it has
// prepared, and goes on with it. It doesn't tell.
void Session::leave_prepared_if_reset(THD *thd)
{
  if (!prepared_by_user)
    return;
  // It may have begun another one since.
  const XID_STATE &state= thd->transaction->xid_state;
  if (state.is_explicit_XA() && state.get_state_code() != XA_ACTIVE)
    return;
  leave_prepared();
  rollback();
}

bool Session::uses(THD *thd, const Bytes &name)
{
  leave_prepared_if_reset(thd);
  return transaction && weir_uses(transaction, bytes_of(name));
}

// The connection goes.
void Session::close()
{
  leave_prepared();
  weir_transaction_close(transaction);
  transaction= nullptr;
  ended();
  weir_transaction_close(ended_one);
  {
    std::lock_guard<std::mutex> guard(listing);
    sessions.erase(this);
  }
  weir_canceller_close(canceller);
  delete this;
}

static std::mutex leaving;
static std::vector<Bytes> left;

void leave_table(const Bytes &name)
{
  std::lock_guard<std::mutex> guard(leaving);
  left.push_back(name);
}

size_t drop_left_tables()
{
  std::lock_guard<std::mutex> guard(leaving);
  std::vector<Bytes> used;
  size_t dropped= 0;
  for (const Bytes &name : left)
    switch (drop_table(name, WeirPatience{nullptr, 0})) {
    case WEIR_RESULT_OK:
      dropped++;
      break;
    case WEIR_RESULT_NO_TABLE:
      break;
    case WEIR_RESULT_TABLE_IN_USE:
      used.push_back(name);
      break;
    default:
      sql_print_warning("WEIR: table %s could not be dropped: %s", name.c_str(), weir_error_message());
    }
  left.swap(used);
  return dropped;
}

static const uint64_t TIDYING_MS= 50000;

WeirPatience Session::patience(THD *thd)
{
  // A KILL from here on is told to the canceller.
  weir_canceller_renew(canceller);
  if (is_killed(thd))
  {
    // Waits for rows end as before.
    cancel();
    return WeirPatience{nullptr, TIDYING_MS};
  }
  return WeirPatience{canceller, lock_wait_timeout_ms(thd)};
}

WeirPatience patience_of(THD *thd)
{
  return thd ? Session::of(thd)->patience(thd) : WeirPatience{nullptr, TIDYING_MS};
}

Alone::Alone() : canceller(weir_canceller_open(nullptr, current_thd ? current_thd->thread_id : 0)) {}

Alone::~Alone()
{
  weir_transaction_close(transaction);
  weir_canceller_close(canceller);
}

WeirResult Alone::begin()
{
  return weir_begin(database, WEIR_ISOLATION_READ_COMMITTED, canceller, &transaction);
}

WeirResult Alone::begin_dirty()
{
  return weir_begin(database, WEIR_ISOLATION_READ_UNCOMMITTED, canceller, &transaction);
}

WeirResult Alone::begin_repeatable()
{
  return weir_begin(database, WEIR_ISOLATION_REPEATABLE_READ, canceller, &transaction);
}

WeirResult Scanner::open(const WeirTable *table, uint32_t index, bool backward)
{
  WeirBound all= {WEIR_BOUND_KIND_OPEN, {nullptr, 0}};
  WeirResult result= reader.begin_dirty();
  return result == WEIR_RESULT_OK ? weir_scan_open(reader.transaction, table, index, all, all, backward,
                                                   WEIR_LOCK_NONE, &scan)
                                  : result;
}

WeirResult Alone::commit()
{
  return weir_commit(transaction, durability());
}

} // namespace weir

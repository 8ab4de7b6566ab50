#include "session.h"
#include "engine_table.h"
#include "errors.h"
#include "huge_pages.h"
#include "left_tables.h"
#include "sysvars.h"
#include <mutex>
#include <unordered_set>

namespace weir {

Session *Session::find(THD *thd)
{
  return static_cast<Session *>(thd_get_ha_data(thd, hton));
}

static std::mutex listing; // for the following
static std::unordered_set<Session *> sessions;

// A replica's workers commit in an order that the server keeps, and with `binlog_commit_wait_count`
// a commit waits for others: the server wants to know who waits for them.
Session::Session(THD *thd)
    : connection(thd->thread_id),
      canceller(weir_canceller_open(
          thd->slave_thread || thd_need_wait_reports(thd) ? thd : nullptr, connection))
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

std::unordered_map<uint64_t, Session::Connection> Session::connections()
{
  std::unordered_map<uint64_t, Connection> of_transactions;
  ulonglong now= microsecond_interval_timer();
  std::lock_guard<std::mutex> guard(listing);
  for (const Session *session : sessions)
    if (uint64_t transaction= weir_canceller_transaction(session->canceller))
    {
      ulonglong begun= std::min(session->begun.load(std::memory_order_relaxed), now);
      of_transactions.emplace(transaction, Connection{session->connection, now - begun});
    }
  return of_transactions;
}

int Session::begin_unless_running(THD *thd, WeirIsolation isolation)
{
  leave_prepared_if_reset(thd);
  if (transaction)
    return 0;
  ordered= prepared_by_user= may_write= false;
  begun.store(thd->start_utime, std::memory_order_relaxed);
  if (!ended_one)
    return error_of(weir_begin(database, isolation, canceller, &transaction), thd);
  if (WeirResult result= weir_begin_again(ended_one, isolation))
    return error_of(result, thd);
  std::swap(transaction, ended_one);
  return 0;
}

int Session::begin_statement(THD *thd, bool reads_only, bool locks_ranges)
{
  if (int error= begin_unless_running(thd, isolation_for(thd, reads_only)))
    return error;
  if (!in_statement)
  {
    // A KILL of an earlier statement may have met no wait. One from here on is told to the
    // canceller; one in between is seen here.
    weir_canceller_renew(canceller);
    if (is_killed(thd))
      cancel();
    if (WeirResult result=
            weir_statement_begin(transaction, lock_wait_timeout_ms(thd), locks_ranges))
      return error_of(result, thd);
    in_statement= true;
  }
  else if (locks_ranges)
    weir_statement_lock_ranges(transaction);
  trans_register_ha(thd, false, hton, 0);
  if (in_transaction(thd))
    trans_register_ha(thd, true, hton, 0);
  return 0;
}

int Session::consistent_snapshot(THD *thd)
{
  if (int error= begin_unless_running(thd, static_cast<WeirIsolation>(thd_tx_isolation(thd))))
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
    // The coordinator's log has it: nobody need wait until the engine's has it, too. But at a start
    // the server asks its log about its own transactions only.
    result= ordered_result;
    if (result != WEIR_RESULT_OK)
      weir_error_set(bytes_of(ordered_words));
    else if (prepared_by_user)
      result= weir_commit_wait(transaction);
    thd_wakeup_subsequent_commits(thd, 0);
  }
  else if (transaction)
  {
    // A replica's next worker goes on before the log has this: both may be one sync's.
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
    drop_table_or_warn(name, patience_of(nullptr));
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
  // What has changed nothing that outlives the connection ends with it: nobody could look for it.
  if (users_own && !may_write)
    return 0;
  int error= error_of(weir_prepare(transaction, bytes_of(xid), wanted_durability()), thd);
  // A replica looks for rows in other ways than its source, and locks more of them: a transaction
  // that the source has committed between this one's XA PREPARE and its end would wait for that,
  // which comes behind it.
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

// The server takes a connection that is reset (COM_RESET_CONNECTION, COM_CHANGE_USER) from the
// transaction that it has prepared, and goes on with it. It doesn't tell.
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

static const uint64_t TIDYING_MS= 50000;

WeirPatience Session::patience(THD *thd)
{
  // A KILL from here on is told to the canceller.
  weir_canceller_renew(canceller);
  if (is_killed(thd))
    cancel();
  return WeirPatience{canceller, definition_wait_timeout_ms(thd)};
}

WeirPatience patience_of_change(THD *thd)
{
  return Session::of(thd)->patience(thd);
}

WeirPatience patience_of(THD *thd)
{
  WeirPatience tidying{nullptr, TIDYING_MS};
  if (!thd)
    return tidying;
  WeirPatience patience= patience_of_change(thd);
  return is_killed(thd) ? tidying : patience;
}

} // namespace weir

/*
  A connection's transaction in the engine.

  It begins with the first table that a statement locks (`external_lock`), and ends in the
  handlerton's commit or rollback. Each statement has a savepoint in it, to which a failed one is
  rolled back.
*/
#pragma once

#include "bulk.h"
#include "database.h"
#include "last_write.h"
#include "statement.h"
#include <atomic>
#include <unordered_map>

namespace weir {

class Alteration;

class Session
{
public:
  // The connection's session, made if there is none.
  static Session *of(THD *thd);
  // The connection's session, or null.
  static Session *find(THD *thd);

  // Begins a transaction if none runs, and a statement in it if none has begun; registers both with
  // the server. `reads_only`: the statement takes no locks and writes nothing.
  int begin_statement(THD *thd, bool reads_only, bool locks_ranges);
  int consistent_snapshot(THD *thd);
  int commit(THD *thd);
  int rollback();
  void end_statement();
  int rollback_statement();
  // `users_own`: the name is a user's (XA), not the server's.
  int prepare(THD *thd, const Bytes &xid, bool users_own);
  void commit_in_order();
  void close();
  // If a connection that goes, or is reset, has the transaction prepared under this name still, it
  // is taken from it: the server has it decided by another one.
  static void let_go_of(const Bytes &xid);
  void cancel() { weir_cancel(canceller); }
  WeirPatience patience(THD *thd);
  // Whether the transaction uses a table, whose definition therefore stays.
  bool uses(THD *thd, const Bytes &name);
  // Drops a table when the transaction, which uses it, has ended.
  void drop_later(const Bytes &name) { to_drop.push_back(name); }
  // The transaction may change a table that outlives the connection.
  void note_write() { may_write= true; }
  // Whether the statement that is on has emptied the tables that it is to empty.
  bool has_emptied(THD *thd) const { return emptied_by == thd->query_id; }
  void note_emptied(THD *thd) { emptied_by= thd->query_id; }

  /*
    The one that is on, or null. It begins with a statement or a snapshot. The server may have it
    prepared, and then committed in the order of its binary log (`ordered`) before it says that it
    ends; or a user (XA PREPARE: `prepared_as`): then it outlives the connection, is detached, and
    another one decides it by name. One that has ended is kept, to begin anew (`ended_one`).
  */
  WeirTransaction *transaction= nullptr;
  Bulk bulk;
  Written written;
  // That of the ALTER that is on.
  std::weak_ptr<Alteration> alteration;
  // Index of the last duplicate. The server may ask another partition than the one that found it.
  uint duplicate= MAX_KEY;

  struct Connection
  {
    my_thread_id id;
    ulonglong age_us; // of its transaction
  };
  // The connections of all transactions that have written or locked something, by their numbers.
  static std::unordered_map<uint64_t, Connection> connections();

private:
  explicit Session(THD *thd);
  const my_thread_id connection;
  // Where none runs, one that has ended, if there was one.
  WeirTransaction *ended_one= nullptr;
  WeirCanceller *const canceller;
  // When the last transaction began, as the server's clock of intervals has it, in microseconds.
  std::atomic<ulonglong> begun{0};
  bool in_statement= false, ordered= false, may_write= false;
  bool prepared_by_user= false; // though it may have nothing to be kept
  // What the commit has come to, and the engine's words: another thread may have asked for it.
  WeirResult ordered_result= WEIR_RESULT_OK;
  Bytes ordered_words;
  std::vector<Bytes> to_drop;
  // The name under which the engine keeps it prepared for a user. While there is one, another
  // connection may take the transaction, and what is to be dropped: under the mutex of all
  // sessions.
  Bytes prepared_as;
  query_id_t emptied_by= 0;

  int begin_unless_running(THD *thd, WeirIsolation isolation);
  WeirDurability wanted_durability() const;
  void ended();
  void detach();
  void leave_prepared();
  void leave_prepared_if_reset(THD *thd);
};

// How long a connection's change of definitions waits for those who use the table, which KILL ends:
// prepared transactions that nobody has may use it. What follows a KILL is tidying up, and takes
// its time. `thd` may be null.
WeirPatience patience_of(THD *thd);
// That of a change which may as well not happen: once its connection is killed it doesn't wait.
WeirPatience patience_of_change(THD *thd);

} // namespace weir

//! Transactions as users see them. Their statements: [`super::typed`], [`super::raw`].

use super::Inner;
use super::catalog::TableDef;
use super::commit::Committed;
use super::encoded::Encoded;
use super::error::{Error, Result};
use super::savepoint::{Rollbacks, Savepoint};
use super::table::{Table, Use, WaitLimit};
use super::write::Writer;
use crate::storage::Fault;
use crate::tree::{Hint, Tree};
use crate::txn::{self, Canceller, Durability, Txn, TxnError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What a transaction's reads see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// The newest versions, committed or not.
    ReadUncommitted,
    /// What was committed when the statement began.
    ReadCommitted,
    /// What was committed when the transaction first read. Writes and locking reads see the newest.
    #[default]
    RepeatableRead,
    /// The newest versions, and nobody else changes what was read, keys that weren't there
    /// included, until the transaction ends: as if one transaction ran after the other. Reads wait
    /// for writers and may end in a deadlock.
    Serializable,
}

/// A transaction. Dropped without commit, it is rolled back; a prepared one is left to the
/// database.
///
/// *Lock errors* of its statements are [`Error::Deadlock`], [`Error::LockWaitTimeout`] and
/// [`Error::Cancelled`]. The first statement on a table, a read too, may have to wait for a change
/// of the table's definition: that ends in [`Error::TableInUse`] after as long as for a lock.
/// [`Error::is_retryable`] tells which errors are gone when the transaction is begun again.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use weir::{Database, Isolation, Options, Schema, Type, Value};
/// let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
/// let schema = Schema::builder()
///     .column("id", Type::U64)
///     .column("name", Type::Text)
///     .primary_key(&["id"])
///     .index("by_name", &["name"])
///     .build()?;
/// let people = db.create_table("people", schema)?;
/// let mut txn = db.begin(Isolation::RepeatableRead)?;
/// txn.insert(&people, &[Value::U64(1), Value::Text("Ada")])?;
/// txn.commit()?;
///
/// let mut txn = db.begin(Isolation::RepeatableRead)?;
/// let row = txn.get(&people, &[Value::U64(1)])?.expect("was inserted");
/// assert_eq!(row.get(1), Value::Text("Ada"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transaction {
    db: Arc<Inner>,
    /// `None` once it has ended.
    txn: Option<Txn>,
    /// What has committed, to begin anew.
    ended: Option<Txn>,
    isolation: Isolation,
    pub(super) locks_ranges: bool,
    durability: Durability,
    used: Vec<Use>,
    pub(super) rollbacks: Rollbacks,
    /// Its name, once it is prepared.
    xid: Option<Vec<u8>>,
    /// Tells it from all others of the process; 0 until it begins a scan.
    pub(super) serial: u64,
    /// The row at hand.
    row: Encoded,
    hints: Vec<Hint>,
    met_duplicate: bool,
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("isolation", &self.isolation)
            .field("durability", &self.durability)
            .field("has_ended", &self.has_ended())
            .field("is_prepared", &self.is_prepared())
            .finish_non_exhaustive()
    }
}

/// A wait for a table has failed: if it was cancelled, later waits go on.
#[cold]
fn note_cancelled(txn: &Txn, error: &Error) {
    if matches!(error, Error::Cancelled) {
        txn.note_cancelled();
    }
}

impl Transaction {
    pub(super) fn new(db: Arc<Inner>, txn: Txn, isolation: Isolation) -> Self {
        let durability = db.options.durability;
        let mut transaction = Transaction {
            db,
            txn: None,
            ended: None,
            isolation,
            locks_ranges: false,
            durability,
            used: Vec::new(),
            rollbacks: Rollbacks::default(),
            xid: None,
            serial: 0,
            row: Encoded::default(),
            hints: Vec::new(),
            met_duplicate: false,
        };
        transaction.start(txn, isolation);
        transaction
    }

    fn start(&mut self, mut txn: Txn, isolation: Isolation) {
        self.isolation = isolation;
        self.locks_ranges = isolation == Isolation::Serializable;
        txn.locks_duplicates = self.locks_ranges;
        self.txn = Some(txn);
    }

    /// A prepared one, to be rolled back.
    pub(super) fn of_prepared(db: Arc<Inner>, xid: &[u8], txn: Txn, used: Vec<Use>) -> Self {
        let mut transaction = Transaction::new(db, txn, Isolation::default());
        transaction.used = used;
        transaction.xid = Some(xid.to_vec());
        transaction
    }

    /// Sets when [`Transaction::commit`] returns, for this transaction only.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    /// What its reads see.
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// Says for whom it reads, as [`super::Database::snapshots`] tells it from its next snapshot
    /// on: a number of the caller's, of a connection for example. It stays when the transaction
    /// begins again.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn set_connection(&mut self, connection: u64) -> Result<()> {
        self.txn()?.connection = connection;
        Ok(())
    }

    /// When its commit returns.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Whether it has used the table, whose definition can't change before it ends.
    pub fn uses(&self, table: &Table) -> bool {
        self.used.iter().any(|used| used.is_of(table))
    }

    /// The name of the table that it uses and whose rows are in that tree.
    #[cold]
    pub(super) fn name_of(&self, rows: Tree) -> String {
        let used = self.used.iter().find(|used| used.def.primary == rows);
        used.map_or_else(String::new, Use::name)
    }

    pub(super) fn txn(&mut self) -> Result<&mut Txn> {
        self.check_running()?;
        self.txn.as_mut().ok_or(Error::Ended)
    }

    /// Whether it takes statements.
    pub(super) fn check_running(&self) -> Result<()> {
        match (&self.txn, &self.xid) {
            (None, _) => Err(Error::Ended),
            (Some(_), Some(_)) => Err(Error::Prepared),
            (Some(_), None) => Ok(()),
        }
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.xid.is_some()
    }

    pub(super) fn prepare_as(&mut self, xid: &[u8]) -> Result<()> {
        let durability = self.durability;
        let txn = self.txn()?;
        let result = txn.prepare(xid, durability);
        if txn.is_prepared() {
            self.xid = Some(xid.to_vec());
        }
        Ok(result?)
    }

    pub(super) fn prepared_txn(&self) -> Result<&Txn> {
        self.txn.as_ref().filter(|txn| txn.is_prepared()).ok_or(Error::NotPrepared)
    }

    pub(super) fn db(&self) -> &Inner {
        &self.db
    }

    /// The table's definition, fixed from its first use to the end of the transaction.
    #[inline]
    pub(super) fn enter(&mut self, table: &Table) -> Result<Arc<TableDef>> {
        let at = self.used_at(table)?;
        Ok(self.used[at].def.clone())
    }

    /// As [`Transaction::enter`], where the definition isn't needed beyond the transaction's next
    /// use.
    #[inline]
    pub(super) fn entered(&mut self, table: &Table) -> Result<&TableDef> {
        let at = self.used_at(table)?;
        Ok(&self.used[at].def)
    }

    /// As [`Transaction::enter`], to write to it.
    #[inline]
    pub(super) fn enter_to_write(&mut self, table: &Table) -> Result<Arc<TableDef>> {
        self.db.check_writable()?;
        let at = self.used_at(table)?;
        let used = &mut self.used[at];
        used.begin_writing();
        Ok(used.def.clone())
    }

    fn used_at(&mut self, table: &Table) -> Result<usize> {
        // What a statement could not take back for want of space is taken back before the next.
        self.txn()?.finish_rollback()?;
        if let Some(at) = self.used.iter().rposition(|used| used.is_of(table)) {
            return Ok(at);
        }
        self.db.home.check(table)?;
        let txn = self.txn.as_ref().ok_or(Error::Ended)?;
        let limit = WaitLimit { timeout: txn.lock_timeout, is_cancelled: &|| txn.is_cancelled() };
        let used = Use::of(table, limit).inspect_err(|error| note_cancelled(txn, error))?;
        self.used.push(used);
        Ok(self.used.len() - 1)
    }

    /// How often it has waited for a row's lock and got it.
    pub fn lock_waits(&self) -> u64 {
        self.txn.as_ref().map_or(0, |txn| txn.lock_waits)
    }

    /// Sets how long its statements wait for a lock.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn set_lock_wait_timeout(&mut self, timeout: Duration) -> Result<()> {
        self.txn()?.lock_timeout = timeout;
        Ok(())
    }

    /// Whether what locking reads and writes are told of others' rows stays true until the
    /// transaction ends, as it does anyway under [`Isolation::Serializable`]: they lock the ranges
    /// that they read, and the rows that are in an insert's way. Then statements do the same if
    /// they are repeated elsewhere in the order of commits (replication by statements).
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn set_locks_ranges(&mut self, locks_ranges: bool) -> Result<()> {
        let locks_ranges = locks_ranges || self.isolation == Isolation::Serializable;
        self.txn()?.locks_duplicates = locks_ranges;
        self.locks_ranges = locks_ranges;
        Ok(())
    }

    /// Runs what does something about rows that are in an insert's way, and locks them itself.
    pub(super) fn without_locks_on_duplicates<T>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.txn()?.locks_duplicates = false;
        let result = run(self);
        if let Some(txn) = &mut self.txn {
            txn.locks_duplicates = self.locks_ranges;
        }
        result
    }

    /// Ends a statement: a failed one has done nothing; a deadlock has undone all.
    fn conclude<T>(&mut self, before: txn::Savepoint, result: Result<T>) -> Result<T> {
        let error = match result {
            Ok(done) => return Ok(done),
            Err(Error::Deadlock) => {
                return match self.take_back_all() {
                    // It has ended all the same, and waits for nobody: the rest is taken back
                    // later.
                    Err(error) if !error.is_no_space() => Err(error),
                    _ => Err(Error::Deadlock),
                };
            }
            Err(error) => error,
        };
        let Some(txn) = &mut self.txn else { return Err(error) };
        let error = match error {
            Error::Storage(Fault::Interrupted) => {
                // Whatever becomes of the rollback, which isn't interrupted.
                txn.note_cancelled();
                Error::Cancelled
            }
            error => error,
        };
        txn.rollback_to(before)?;
        Err(error)
    }

    pub(super) fn statement<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let txn = self.txn()?;
        let before = txn.savepoint();
        let _ends_with_canceller = txn.interruptible();
        let result = run(self);
        self.conclude(before, result)
    }

    /// What may wait for a lock, as a statement.
    pub(super) fn waiting<T>(
        &mut self,
        wait: impl FnOnce(&mut Txn) -> std::result::Result<T, TxnError>,
    ) -> Result<T> {
        self.statement(|t| Ok(wait(t.txn()?)?))
    }

    /// What a statement writes with, and the row that was encoded.
    pub(super) fn writer<'a>(
        &'a mut self,
        table: &'a Table,
        def: &'a TableDef,
    ) -> Result<(Writer<'a>, &'a Encoded)> {
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        let (storage, hints) = (&*self.db.transactions.storage, &mut self.hints);
        let met_duplicate = &mut self.met_duplicate;
        let used = self.used.iter().rfind(|used| used.is_of(table));
        let notes = used.and_then(|used| used.notes.as_deref());
        Ok((Writer { txn, storage, table, def, hints, met_duplicate, notes }, &self.row))
    }

    pub(super) fn encoded(&mut self) -> &mut Encoded {
        &mut self.row
    }

    /// Takes the buffers of key and value, to be given back.
    pub(super) fn take_buffers(&mut self) -> (Vec<u8>, Vec<u8>) {
        (std::mem::take(&mut self.row.key), std::mem::take(&mut self.row.value))
    }

    pub(super) fn put_buffers(&mut self, key: Vec<u8>, value: Vec<u8>) {
        (self.row.key, self.row.value) = (key, value);
    }

    /// Grows with each of its changes.
    pub(super) fn change_count(&mut self) -> Result<u64> {
        Ok(self.txn()?.change_count())
    }

    /// Its number.
    pub(super) fn own_id(&mut self) -> Result<weir_page::TxnId> {
        Ok(self.txn()?.ensure_id())
    }

    /// Whether it has ended: a deadlock ends the one that is rolled back for it.
    pub fn has_ended(&self) -> bool {
        self.txn.is_none()
    }

    pub(super) fn transactions(&self) -> &Arc<crate::txn::Transactions> {
        &self.db.transactions
    }

    /// Ends this transaction's waits from another thread: those for locks and for changes of a
    /// table, and of statements that write those for log space and for pages to be written.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn canceller(&mut self) -> Result<Canceller> {
        Ok(self.txn()?.canceller())
    }

    /// Where the transaction stands.
    ///
    /// # Errors
    /// [`Error::Ended`]; those of a rollback that has failed, and is ended first.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        let txn = self.txn()?;
        txn.finish_rollback()?;
        let at = txn.savepoint();
        Ok(self.rollbacks.savepoint(at))
    }

    /// Takes back what was done since the savepoint. Locks of locking reads are kept; rows that
    /// were only written since are free for others again. Savepoints since then are no more.
    /// Another transaction's savepoint isn't always found out: what it takes back here is anyone's
    /// guess.
    ///
    /// # Errors
    /// [`Error::NoSuchSavepoint`]; storage errors.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        let now = self.txn()?.savepoint();
        if !self.rollbacks.know(savepoint, now) {
            return Err(Error::NoSuchSavepoint);
        }
        self.rollbacks.note(savepoint);
        Ok(self.txn()?.rollback_to(savepoint.place())?)
    }

    /// Takes everything back; what can't be taken back for want of space is taken back later.
    fn take_back_all(&mut self) -> Result<()> {
        let txn = self.txn.take().ok_or(Error::Ended)?;
        Ok(self.db.orphans.take_back(txn, std::mem::take(&mut self.used), self.xid.take())?)
    }

    /// Commits. Returns when the transaction is as durable as was asked for.
    ///
    /// # Errors
    /// [`Error::Ended`]; storage errors: then it isn't known whether it is durable. A prepared
    /// transaction that could not be committed is left to the database.
    pub fn commit(mut self) -> Result<()> {
        let committed = self.commit_in_order()?;
        Ok(self.db.transactions.wait_for_commit(committed.end, committed.durability)?)
    }

    /// Commits without waiting: others see it when this returns, in the order of these calls. It is
    /// durable after [`super::Database::wait`], or with a later commit that is. Another transaction
    /// may take its place then: [`Transaction::begin_again`].
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_in_order(&mut self) -> Result<Committed> {
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        let end = txn.commit_visibly()?;
        self.ended = self.txn.take();
        // Its tables and its name are free.
        self.used.clear();
        if let Some(xid) = self.xid.take() {
            self.db.prepared.remove(&xid);
        }
        Ok(Committed { end, home: self.db.home, durability: self.durability })
    }

    /// Begins another transaction in place of this one, which has ended. Where many follow one
    /// another that do little, this costs less than [`super::Database::begin`]: what a transaction
    /// needs is there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// for _ in 0..3 {
    ///     // Statements.
    ///     db.wait(txn.commit_in_order()?)?;
    ///     txn.begin_again(Isolation::ReadCommitted)?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotEnded`]; the database has stopped after a failure.
    pub fn begin_again(&mut self, isolation: Isolation) -> Result<()> {
        if !self.has_ended() {
            return Err(Error::NotEnded);
        }
        let txn = self.db.begin(self.ended.take())?;
        self.start(txn, isolation);
        self.durability = self.db.options.durability;
        self.rollbacks = Rollbacks::default();
        self.serial = 0;
        Ok(())
    }

    /// Takes everything back, as does dropping the transaction. Each change is taken back by
    /// itself, which takes about as long as it took, and many times as long where it was one of
    /// very many whose data is larger than memory: each place is read again, in the order in which
    /// they were changed. Nothing ends that. For a prepared transaction, returns when that is as
    /// durable as its commit was to be.
    ///
    /// # Errors
    /// [`Error::Ended`]; storage errors: the rest is taken back later.
    pub fn rollback(mut self) -> Result<()> {
        let prepared = self.is_prepared();
        self.take_back_all()?;
        match prepared {
            true => Ok(self.db.transactions.wait_for_all_log(self.durability)?),
            false => Ok(()),
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        match self.xid.take().filter(|_| self.txn.is_some()) {
            Some(xid) => {
                let txn = self.txn.take().expect("it was asked for");
                self.db.prepared.put(xid, txn, std::mem::take(&mut self.used));
            }
            // Whatever fails: its rows stay locked until it has been taken back.
            None => drop(self.take_back_all()),
        }
    }
}

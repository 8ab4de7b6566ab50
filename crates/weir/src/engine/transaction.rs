//! Transactions as users see them. Their statements: [`super::typed`], [`super::raw`].

use super::Inner;
use super::catalog::{Rows, TableDef};
use super::error::{Error, Result, inconsistent};
use super::lock::{Lock, Wait};
use super::prepared::Committed;
use super::savepoint::{Rollbacks, Savepoint};
use super::scan::{Begin, RawScan, Reads};
use super::table::{Table, Use, Waits};
use super::typed::Encoded;
use super::write::Writer;
use crate::key::long::{is_long, short_form, split_rest};
use crate::lock::Mode;
use crate::schema::KeyOf;
use crate::storage::Fault;
use crate::tree::{Hint, Tree};
use crate::txn::{
    self, Canceller, Direction, Durability, HeldSnapshot, Range, Txn, TxnError, View,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
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
    /// The newest versions, and nobody else changes what was read, keys that weren't there included, until
    /// the transaction ends: as if one transaction ran after the other. Reads wait for writers and may
    /// end in a deadlock.
    Serializable,
}

/// A transaction. Dropped without commit, it is rolled back; a prepared one is left to the database.
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
    locks_ranges: bool,
    durability: Durability,
    used: Vec<Use>,
    rollbacks: Rollbacks,
    /// Its name, once it is prepared.
    xid: Option<Vec<u8>>,
    /// Tells it from all others of the process; 0 until it begins a scan.
    serial: u64,
    /// The row at hand.
    row: Encoded,
    hints: Vec<Hint>,
}

static SERIAL: AtomicU64 = AtomicU64::new(1);

/// Takes the key's rest off what was read under a short form, if anything was found.
pub(super) fn without_rest(tree: Tree, found: bool, value: &mut Vec<u8>) -> Result<bool> {
    if found {
        let len = split_rest(value).ok_or_else(|| lacks_rest(tree))?.0.len();
        value.truncate(len);
    }
    Ok(found)
}

/// An entry under a short form isn't one.
pub(super) fn lacks_rest(tree: Tree) -> Error {
    inconsistent(tree, "an entry under a short form lacks the rest of its key")
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

    /// When its commit returns.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Whether it has used the table, whose definition can't change before it ends.
    pub fn uses(&self, table: &Table) -> bool {
        self.used.iter().any(|used| used.is_of(table))
    }

    fn txn(&mut self) -> Result<&mut Txn> {
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

    pub(super) fn db(&self) -> &Inner {
        &self.db
    }

    /// The table's definition, fixed from its first use to the end of the transaction.
    #[inline]
    pub(super) fn enter(&mut self, table: &Table) -> Result<Arc<TableDef>> {
        let at = self.used_at(table)?;
        Ok(self.used[at].def.clone())
    }

    /// As [`Transaction::enter`], where the definition isn't needed beyond the transaction's next use.
    #[inline]
    pub(super) fn entered(&mut self, table: &Table) -> Result<&TableDef> {
        let at = self.used_at(table)?;
        Ok(&self.used[at].def)
    }

    /// As [`Transaction::enter`], to write to it.
    #[inline]
    pub(super) fn enter_to_write(&mut self, table: &Table) -> Result<Arc<TableDef>> {
        let at = self.used_at(table)?;
        let txn = self.txn.as_ref().ok_or(Error::Ended)?;
        let waits = Waits {
            timeout: self.db.options.lock_wait_timeout,
            is_cancelled: &|| txn.is_cancelled(),
        };
        let used = &mut self.used[at];
        used.begin_writing(waits).inspect_err(|error| note_cancelled(txn, error))?;
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
        let waits = Waits {
            timeout: self.db.options.lock_wait_timeout,
            is_cancelled: &|| txn.is_cancelled(),
        };
        let used = Use::of(table, waits).inspect_err(|error| note_cancelled(txn, error))?;
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

    /// Whether what locking reads and writes are told of others' rows stays true until the transaction ends, as it
    /// does anyway under [`Isolation::Serializable`]: they lock the ranges that they read, and the rows that are in an insert's
    /// way. Then statements do the same if they are repeated elsewhere in the order of commits (replication by statements).
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn set_locks_ranges(&mut self, locks_ranges: bool) -> Result<()> {
        self.locks_ranges = locks_ranges || self.isolation == Isolation::Serializable;
        self.txn()?.locks_duplicates = self.locks_ranges;
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

    /// Begins a statement of several raw reads: under [`Isolation::ReadCommitted`] they see what is
    /// committed now. A typed read is a statement of its own.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn begin_statement(&mut self) -> Result<()> {
        self.renew_snapshot()
    }

    /// Takes the snapshot now that the first read would take otherwise (CONSISTENT SNAPSHOT).
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn take_snapshot(&mut self) -> Result<()> {
        self.txn()?.take_snapshot();
        Ok(())
    }

    pub(super) fn renew_snapshot(&mut self) -> Result<()> {
        let isolation = self.isolation;
        let txn = self.txn()?;
        if isolation == Isolation::ReadCommitted {
            txn.drop_snapshot();
        }
        Ok(())
    }

    /// Keeps what the statement sees.
    pub(super) fn hold_snapshot(&mut self) -> Result<HeldSnapshot> {
        Ok(self.txn()?.hold_snapshot())
    }

    /// What the statement sees.
    pub(super) fn view(&mut self) -> Result<View> {
        let isolation = self.isolation;
        let txn = self.txn()?;
        Ok(match isolation {
            Isolation::ReadUncommitted => View { own: txn.id(), snapshot: View::EVERYTHING },
            Isolation::ReadCommitted | Isolation::RepeatableRead | Isolation::Serializable => {
                txn.view()
            }
        })
    }

    /// What the statement sees of a table.
    fn view_of(&mut self, rows: Rows) -> Result<View> {
        let view = self.view()?;
        match rows.since {
            Some(since) if view.snapshot < since => Err(Error::TableTooNew),
            _ => Ok(view),
        }
    }

    /// Ends a statement: a failed one has done nothing; a deadlock has undone all.
    fn conclude<T>(&mut self, before: txn::Savepoint, result: Result<T>) -> Result<T> {
        let error = match result {
            Ok(done) => return Ok(done),
            Err(Error::Deadlock) => {
                return match self.roll_back() {
                    // It has ended all the same, and waits for nobody: the rest is taken back later.
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
        let (storage, hints) = (&*self.db.shared.storage, &mut self.hints);
        Ok((Writer { txn, storage, table, def, hints }, &self.row))
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

    /// Reads a row by its key, in place of what is in `out`; whether there is one.
    #[inline]
    pub(super) fn read_row(
        &mut self,
        rows: Rows,
        key: &[u8],
        lock: Lock,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match is_long(key) {
            false => self.read_stored(rows, key, lock, out),
            true => {
                let found = self.read_stored(rows, &short_form(key), lock, out)?;
                without_rest(rows.tree, found, out)
            }
        }
    }

    /// As [`Transaction::read_row`], by the key that is stored; what is found is as it is stored.
    pub(super) fn read_stored(
        &mut self,
        rows: Rows,
        key: &[u8],
        lock: Lock,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match lock.mode() {
            Some((mode, wait)) => self.get_stored_locked(rows.tree, key, mode, wait, out),
            None if self.isolation == Isolation::Serializable => {
                self.get_stored_locked(rows.tree, key, Mode::Shared, Wait::ForTimeout, out)
            }
            None => {
                let view = self.view_of(rows)?;
                self.get_stored_in(view, rows.tree, key, out)
            }
        }
    }

    /// Reads what a view sees of a row.
    pub(super) fn get_in(
        &mut self,
        view: View,
        tree: Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let found = self.get_stored_in(view, tree, &short_form(key), out)?;
        if is_long(key) { without_rest(tree, found, out) } else { Ok(found) }
    }

    /// As [`Transaction::get_in`], by the key that is stored; what is found is as it is stored.
    pub(super) fn get_stored_in(
        &mut self,
        view: View,
        tree: Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        Ok(self.txn()?.get_into(view, tree, key, out)?)
    }

    /// Locks a row and reads its newest version; whether there is one, and it isn't passed over.
    pub(super) fn get_locked(
        &mut self,
        tree: Tree,
        key: &[u8],
        mode: Mode,
        wait: Wait,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let found = self.get_stored_locked(tree, &short_form(key), mode, wait, out)?;
        if is_long(key) { without_rest(tree, found, out) } else { Ok(found) }
    }

    /// As [`Transaction::get_locked`], by the key that is stored; what is found is as it is stored.
    pub(super) fn get_stored_locked(
        &mut self,
        tree: Tree,
        key: &[u8],
        mode: Mode,
        wait: Wait,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let waits = wait == Wait::ForTimeout;
        match self.waiting(|txn| txn.get_locked(tree, key, mode, waits, out)) {
            Ok(found) => Ok(found),
            Err(Error::LockWaitTimeout) if wait == Wait::Skip => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Grows with each of its changes.
    pub(super) fn changes(&mut self) -> Result<u64> {
        Ok(self.txn()?.changes())
    }

    pub(super) fn unlock_key(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        self.txn()?.unlock(tree, &short_form(key));
        Ok(())
    }

    /// Begins a scan of a table that it has entered.
    pub(super) fn begin_scan(
        &mut self,
        table: &Table,
        def: Arc<TableDef>,
        of: KeyOf,
        range: Range,
        direction: Direction,
        lock: Lock,
    ) -> Result<RawScan> {
        if self.serial == 0 {
            self.serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        }
        let serializable = self.isolation == Isolation::Serializable;
        let (reads, ranges) = match lock.mode() {
            Some((mode, Wait::Skip)) => (Reads::Locked(mode, Wait::Skip), None),
            Some((mode, wait)) => (Reads::Locked(mode, wait), self.locks_ranges.then_some(mode)),
            None if serializable => (Reads::Newest, Some(Mode::Shared)),
            None => (Reads::View(self.view_of(def.rows())?), None),
        };
        if let (KeyOf::Index(n), Reads::View(view)) = (of, reads)
            && view.snapshot < def.indexes[n].since
        {
            let index = def.layout.index_name(n).to_string();
            return Err(Error::IndexTooNew { table: table.name(), index });
        }
        // Under the other levels the transaction keeps its snapshot as long as the scan can go on.
        let held = match reads {
            Reads::View(_) if self.isolation == Isolation::ReadCommitted => {
                Some(self.hold_snapshot()?)
            }
            _ => None,
        };
        let widens = (self.isolation == Isolation::RepeatableRead || ranges.is_some())
            && of == KeyOf::Primary
            && matches!(reads, Reads::Locked(_, Wait::ForTimeout | Wait::No));
        Ok(RawScan::new(self, Begin { def, of, reads, ranges, widens }, range, direction, held))
    }

    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Its number.
    pub(super) fn own_id(&mut self) -> Result<weir_page::TxnId> {
        Ok(self.txn()?.ensure_id())
    }

    /// A statement depends on whether there is a row with this key: where ranges are locked that mustn't change.
    pub(super) fn lock_for_write(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        if !self.locks_ranges {
            return Ok(());
        }
        let mut old = Vec::new();
        self.get_locked(tree, key, Mode::Exclusive, Wait::ForTimeout, &mut old)?;
        Ok(())
    }

    /// Whether it has ended: a deadlock ends the one that is rolled back for it.
    pub fn has_ended(&self) -> bool {
        self.txn.is_none()
    }

    pub(super) fn shared(&self) -> &Arc<crate::txn::Transactions> {
        &self.db.shared
    }

    /// Ends this transaction's waits from another thread: those for locks and for changes of a table, and of statements
    /// that write those for log space and for pages to be written.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn canceller(&mut self) -> Result<Canceller> {
        Ok(self.txn()?.canceller())
    }

    /// Where the transaction stands.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        let txn = self.txn()?;
        txn.finish_rollback()?;
        let at = txn.savepoint();
        Ok(self.rollbacks.savepoint(at))
    }

    /// Takes back what was done since the savepoint. Locks of locking reads are kept; rows that were only
    /// written since are free for others again. Savepoints since then are no more.
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
    fn roll_back(&mut self) -> Result<()> {
        let txn = self.txn.take().ok_or(Error::Ended)?;
        Ok(self.db.take_back(txn, std::mem::take(&mut self.used), self.xid.take())?)
    }

    fn commit_visibly(&mut self) -> Result<Committed> {
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        let end = txn.commit_visibly()?;
        self.ended = self.txn.take();
        // Its tables and its name are free.
        self.used.clear();
        if let Some(xid) = self.xid.take() {
            self.db.prepared.remove(&xid);
        }
        Ok(Committed { end, durability: self.durability })
    }

    /// Commits. Returns when the transaction is as durable as was asked for.
    ///
    /// # Errors
    /// [`Error::Ended`]; storage errors: then it isn't known whether it is durable. A prepared
    /// transaction that could not be committed is left to the database.
    pub fn commit(mut self) -> Result<()> {
        let committed = self.commit_visibly()?;
        let Some(end) = committed.end else { return Ok(()) };
        Ok(self.db.shared.wait_for_log(end, committed.durability)?)
    }

    /// Commits without waiting: others see it when this returns, in the order of these calls. It is
    /// durable after [`super::Database::wait`], or with a later commit that is. Another transaction may
    /// take its place then: [`Transaction::begin_again`].
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn commit_in_order(&mut self) -> Result<Committed> {
        self.commit_visibly()
    }

    /// Begins another transaction in place of this one, which has ended. Where many follow one another that do little,
    /// this costs less than [`super::Database::begin`]: what a transaction needs is there.
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
    /// The database has stopped after a failure.
    ///
    /// # Panics
    /// If this one has not ended.
    pub fn begin_again(&mut self, isolation: Isolation) -> Result<()> {
        assert!(self.has_ended(), "a transaction ends before another one takes its place");
        let txn = self.db.begin(self.ended.take())?;
        self.start(txn, isolation);
        self.durability = self.db.options.durability;
        self.rollbacks = Rollbacks::default();
        self.serial = 0;
        Ok(())
    }

    /// Takes everything back. For a prepared transaction, returns when that is as durable as its commit
    /// was to be.
    ///
    /// # Errors
    /// [`Error::Ended`]; storage errors: the rest is taken back later.
    pub fn rollback(mut self) -> Result<()> {
        let prepared = self.is_prepared();
        self.roll_back()?;
        match prepared {
            true => Ok(self.db.shared.wait_for_all_log(self.durability)?),
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
            None => drop(self.roll_back()),
        }
    }
}

/// A transaction whose user has left it, or a change of definitions, that could not be rolled back for want
/// of space.
pub(super) struct Orphan {
    txn: Txn,
    /// Their definitions must not change before.
    _used: Vec<Use>,
    /// Its name, if it was prepared: nobody else may have it before the log says that this one isn't any more.
    xid: Option<Vec<u8>>,
}

impl Inner {
    /// Takes everything back that a transaction has done; what can't be for want of space, later. `used`: its
    /// tables; `xid`: its name, if it was prepared.
    ///
    /// # Errors
    /// Faults of the storage.
    pub(super) fn take_back(
        &self,
        mut txn: Txn,
        used: Vec<Use>,
        xid: Option<Vec<u8>>,
    ) -> std::result::Result<(), TxnError> {
        let result = txn.roll_back();
        let orphan = Orphan { txn, _used: used, xid };
        match &result {
            Err(TxnError::Fault(fault)) if fault.is_no_space() => {
                self.orphans.lock().push(orphan);
                self.has_orphans.store(true, Ordering::Release);
            }
            _ => self.forget(orphan),
        }
        result
    }

    /// It has ended: its tables and its name are free. If it has not, that stops the storage.
    fn forget(&self, orphan: Orphan) {
        let Orphan { txn, _used, xid } = orphan;
        drop((txn, _used));
        if let Some(xid) = xid {
            self.prepared.remove(&xid);
        }
    }

    /// Leaves what could not be rolled back to the next opening.
    pub(super) fn leave_orphans(&self) {
        self.orphans.lock().drain(..).for_each(|orphan| orphan.txn.leave());
    }

    /// Rolls back what could not be before, as far as there is space now.
    #[inline]
    pub(super) fn roll_back_orphans(&self) {
        if self.has_orphans.load(Ordering::Acquire) {
            self.try_orphans();
        }
    }

    #[cold]
    fn try_orphans(&self) {
        let Some(mut orphans) = self.orphans.try_lock() else { return };
        while let Some(mut orphan) = orphans.pop() {
            match orphan.txn.roll_back() {
                Err(TxnError::Fault(fault)) if fault.is_no_space() => return orphans.push(orphan),
                _ => self.forget(orphan),
            }
        }
        self.has_orphans.store(false, Ordering::Release);
    }
}

//! Transactions: beginning, end, savepoints, two-phase commit, cancelling from another thread.

use crate::bytes::WeirBytes;
use crate::database::{WeirDatabase, WeirDurability};
use crate::error::{failed, handle, result, WeirResult};
use crate::patience::Waiting;
use crate::table::WeirTable;
use crate::waits::Owners;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir::{Canceller, Committed, Error, Isolation, Lock, Savepoint, Transaction, TxnId, Wait};

/// A transaction.
pub struct WeirTransaction {
    /// `None` once it was rolled back, or given away.
    pub(crate) txn: Option<Transaction>,
    database: weir::Database,
    statement: Option<Savepoint>,
    committed: Option<Committed>,
    cancelling: Arc<Mutex<Cancelling>>,
    /// Its number, once its waits can be cancelled.
    number: Option<TxnId>,
    connection: u64,
    owners: Arc<Owners>,
    /// Null if nobody is to be told who waits for it.
    owner: *mut c_void,
}

/// Ends waits of a connection from other threads: of its transactions for locks, and of its changes
/// of definitions. One serves all of a connection, one after the other.
pub struct WeirCanceller {
    cancelling: Arc<Mutex<Cancelling>>,
    waiting: Waiting,
    owner: *mut c_void,
    /// Its number, which snapshots tell.
    pub(crate) connection: u64,
}

/// The end of a connection's waits for locks.
#[derive(Default)]
struct Cancelling {
    /// Whether waits are to end, also of a transaction that has never waited before.
    is_cancelled: bool,
    /// Of the transaction that may wait.
    canceller: Option<Canceller>,
}

impl Cancelling {
    fn cancel(&mut self) {
        self.is_cancelled = true;
        if let Some(canceller) = &self.canceller {
            canceller.cancel();
        }
    }

    fn renew(&mut self) {
        self.is_cancelled = false;
        if let Some(canceller) = &self.canceller {
            canceller.renew();
        }
    }

    fn enter(&mut self, canceller: Canceller) {
        if self.is_cancelled {
            canceller.cancel();
        }
        self.canceller = Some(canceller);
    }
}

impl WeirCanceller {
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.waiting
    }
}

/// What a transaction's reads see.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeirIsolation {
    /// The newest versions, committed or not.
    ReadUncommitted = 0,
    /// What was committed when the statement began.
    ReadCommitted,
    /// What was committed when the transaction first read.
    RepeatableRead,
    /// As if transactions ran one after the other.
    Serializable,
}

impl From<WeirIsolation> for Isolation {
    fn from(isolation: WeirIsolation) -> Self {
        match isolation {
            WeirIsolation::ReadUncommitted => Isolation::ReadUncommitted,
            WeirIsolation::ReadCommitted => Isolation::ReadCommitted,
            WeirIsolation::RepeatableRead => Isolation::RepeatableRead,
            WeirIsolation::Serializable => Isolation::Serializable,
        }
    }
}

/// How a read locks.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeirLock {
    /// Not at all.
    None = 0,
    /// Against writers.
    Shared,
    /// Against all others.
    Exclusive,
    /// Against writers; rows that are locked are passed over.
    SharedSkip,
    /// Against all others; rows that are locked are passed over.
    ExclusiveSkip,
}

impl From<WeirLock> for Lock {
    fn from(lock: WeirLock) -> Self {
        match lock {
            WeirLock::None => Lock::None,
            WeirLock::Shared => Lock::Shared(Wait::ForTimeout),
            WeirLock::Exclusive => Lock::Exclusive(Wait::ForTimeout),
            WeirLock::SharedSkip => Lock::Shared(Wait::Skip),
            WeirLock::ExclusiveSkip => Lock::Exclusive(Wait::Skip),
        }
    }
}

impl WeirTransaction {
    /// The transaction, if it goes on.
    pub(crate) fn running(&mut self) -> weir::Result<&mut Transaction> {
        self.txn.as_mut().ok_or(Error::Ended)
    }

    /// The transaction, which may have to wait for a lock: from now on that can be cancelled.
    pub(crate) fn waiting(&mut self) -> weir::Result<&mut Transaction> {
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        if self.number.is_none() {
            let canceller = txn.canceller()?;
            let number = canceller.transaction();
            lock(&self.cancelling).enter(canceller);
            self.number = Some(number);
            if !self.owner.is_null() {
                self.owners.enter(number, self.owner);
            }
        }
        Ok(txn)
    }

    /// The transaction, for a read, which may have to wait for a lock if it takes any: at
    /// `Serializable` each does.
    pub(crate) fn reading(&mut self, lock: WeirLock) -> weir::Result<&mut Transaction> {
        let isolation = self.txn.as_ref().map(Transaction::isolation);
        match (lock, isolation) {
            (WeirLock::None, Some(Isolation::Serializable)) => self.waiting(),
            (WeirLock::None, _) => self.running(),
            _ => self.waiting(),
        }
    }

    /// Makes a commit visible, and keeps what may begin again.
    fn commit(&mut self, durability: WeirDurability) -> weir::Result<Committed> {
        self.leave();
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        txn.set_durability(durability.into());
        let committed = txn.commit_in_order();
        if committed.is_err() {
            self.txn = None;
        }
        committed
    }

    fn begin_again(&mut self, isolation: Isolation) -> weir::Result<()> {
        match &mut self.txn {
            Some(txn) => txn.begin_again(isolation)?,
            None => self.txn = Some(begin(&self.database, isolation, self.connection)?),
        }
        (self.statement, self.committed) = (None, None);
        Ok(())
    }

    /// From now on nobody can cancel its waits, or is told of them.
    fn leave(&mut self) {
        if let Some(number) = self.number.take() {
            lock(&self.cancelling).canceller = None;
            if !self.owner.is_null() {
                self.owners.leave(number);
            }
        }
    }

    fn end(&mut self) -> weir::Result<Transaction> {
        self.leave();
        self.txn.take().ok_or(Error::Ended)
    }
}

impl Drop for WeirTransaction {
    fn drop(&mut self) {
        // What has not ended is rolled back.
        drop(self.end());
    }
}

fn begin(
    database: &weir::Database,
    isolation: Isolation,
    connection: u64,
) -> weir::Result<Transaction> {
    let mut txn = database.begin(isolation)?;
    txn.set_connection(connection)?;
    Ok(txn)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a canceller. `owner` is what the callback of `weir_observe_waits` is told if somebody
/// waits for one of the connection's transactions; null if it needn't be told. `connection` is its
/// number, which `weir_snapshots` tells; 0 if it has none.
#[no_mangle]
pub extern "C" fn weir_canceller_open(owner: *mut c_void, connection: u64) -> *mut WeirCanceller {
    let (cancelling, waiting) = Default::default();
    Box::into_raw(Box::new(WeirCanceller { cancelling, waiting, owner, connection }))
}

/// Gives back a canceller, or null.
///
/// # Safety
/// `canceller` is a handle, given back by this, or null.
#[no_mangle]
pub unsafe extern "C" fn weir_canceller_close(canceller: *mut WeirCanceller) {
    if !canceller.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(canceller) });
    }
}

/// Number of the connection's transaction that has written or locked something, as in
/// `WeirTransactionInfo`; 0 if there is none.
///
/// # Safety
/// `canceller` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_canceller_transaction(canceller: *const WeirCanceller) -> u64 {
    // SAFETY: the caller's promise.
    let cancelling = lock(unsafe { &(*canceller).cancelling });
    cancelling.canceller.as_ref().map_or(0, |canceller| canceller.transaction().0)
}

/// Ends the wait for a lock that is on, or the transaction's next one; and those of changes of
/// definitions, until `weir_canceller_renew`.
///
/// # Safety
/// `canceller` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_cancel(canceller: *const WeirCanceller) {
    // SAFETY: the caller's promise.
    let canceller = unsafe { &*canceller };
    canceller.waiting.cancel();
    lock(&canceller.cancelling).cancel();
}

/// From now on waits go on again, until they are cancelled: what was cancelled before and met no
/// wait is forgotten.
///
/// # Safety
/// `canceller` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_canceller_renew(canceller: *const WeirCanceller) {
    // SAFETY: the caller's promise.
    let canceller = unsafe { &*canceller };
    canceller.waiting.renew();
    lock(&canceller.cancelling).renew();
}

/// Begins a transaction.
///
/// # Safety
/// `database` and `canceller` are handles; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_begin(
    database: *const WeirDatabase,
    isolation: WeirIsolation,
    canceller: *const WeirCanceller,
    out: *mut *mut WeirTransaction,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, canceller) = unsafe { (&*database, &*canceller) };
    let begun = begin(&database.0, isolation.into(), canceller.connection);
    let begun = begun.map(|txn| WeirTransaction {
        txn: Some(txn),
        database: database.0.clone(),
        statement: None,
        committed: None,
        cancelling: canceller.cancelling.clone(),
        number: None,
        connection: canceller.connection,
        owners: database.1.clone(),
        owner: canceller.owner,
    });
    // SAFETY: the caller's promise.
    unsafe { handle(begun, out) }
}

/// Begins another transaction in place of one that has ended, which costs less than `weir_begin`.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_begin_again(
    transaction: *mut WeirTransaction,
    isolation: WeirIsolation,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    result(transaction.begin_again(isolation.into()))
}

/// Gives back a transaction. What has not ended is rolled back.
///
/// # Safety
/// `transaction` is a handle, given back by this, or null.
#[no_mangle]
pub unsafe extern "C" fn weir_transaction_close(transaction: *mut WeirTransaction) {
    if !transaction.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(transaction) });
    }
}

/// Takes the snapshot of its reads now.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_take_snapshot(transaction: *mut WeirTransaction) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    result(transaction.running().and_then(Transaction::take_snapshot))
}

/// How often the transaction has waited for a row's lock and got it.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_lock_waits(transaction: *const WeirTransaction) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*transaction }.txn.as_ref().map_or(0, Transaction::lock_waits)
}

/// Begins a statement: reads at `ReadCommitted` see what is committed now, and
/// `weir_statement_rollback` comes back to here. `locks_ranges`: what it is told of others' rows
/// stays true until the transaction ends, as it does anyway at `Serializable`.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_statement_begin(
    transaction: *mut WeirTransaction,
    lock_wait_timeout_ms: u64,
    locks_ranges: bool,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    let begin = |transaction: &mut WeirTransaction| {
        let txn = transaction.running()?;
        txn.set_lock_wait_timeout(Duration::from_millis(lock_wait_timeout_ms))?;
        txn.set_locks_ranges(locks_ranges)?;
        txn.begin_statement()?;
        transaction.statement = Some(transaction.running()?.savepoint()?);
        Ok(())
    };
    result(begin(transaction))
}

/// From now on, until the statement ends, what it is told of others' rows stays true until the
/// transaction ends.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_statement_lock_ranges(transaction: *mut WeirTransaction) {
    // SAFETY: the caller's promise.
    if let Ok(txn) = unsafe { &mut *transaction }.running() {
        // One that has ended locks nothing.
        let _ = txn.set_locks_ranges(true);
    }
}

/// Ends a statement: at `ReadCommitted` nothing of what it saw is kept for it any more. Scans that
/// go on keep what they see.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_statement_end(transaction: *mut WeirTransaction) {
    // SAFETY: the caller's promise.
    if let Ok(txn) = unsafe { &mut *transaction }.running() {
        // One that has ended or is prepared has no snapshot.
        let _ = txn.end_statement();
    }
}

/// Takes back what the statement has done; locks are kept. If the transaction has ended, all has
/// been taken back.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_statement_rollback(transaction: *mut WeirTransaction) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    match (&mut transaction.txn, transaction.statement) {
        (Some(txn), Some(savepoint)) if !txn.has_ended() => result(txn.rollback_to(savepoint)),
        _ => WeirResult::Ok,
    }
}

/// Where the transaction stands, for `weir_savepoint_rollback`; 0 is where it began.
///
/// # Safety
/// `transaction` is a handle; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_savepoint(
    transaction: *mut WeirTransaction,
    out: *mut u64,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    match transaction.running().and_then(Transaction::savepoint) {
        Ok(savepoint) => {
            // SAFETY: the caller's promise.
            unsafe { *out = savepoint.number() };
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

/// Takes back what was done since the transaction stood there. Savepoints from then on mean nothing
/// any more.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_savepoint_rollback(
    transaction: *mut WeirTransaction,
    savepoint: u64,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    let to = Savepoint::of_number(savepoint);
    result(transaction.running().and_then(|txn| txn.rollback_to(to)))
}

/// Whether the transaction goes on. A deadlock ends one.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_is_running(transaction: *const WeirTransaction) -> bool {
    // SAFETY: the caller's promise.
    unsafe { &*transaction }.txn.as_ref().is_some_and(|txn| !txn.has_ended())
}

/// Whether the transaction has used a table, which therefore can't be dropped before it ends.
///
/// # Safety
/// `transaction` is a handle; `name` is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_uses(transaction: *const WeirTransaction, name: WeirBytes) -> bool {
    // SAFETY: the caller's promises.
    let (transaction, name) = unsafe { (&*transaction, name.name()) };
    let Some(table) = name.ok().and_then(|name| transaction.database.table(&name)) else {
        return false;
    };
    transaction.txn.as_ref().is_some_and(|txn| txn.uses(&table))
}

/// Commits; returns when that is as durable as asked for.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_commit(
    transaction: *mut WeirTransaction,
    durability: WeirDurability,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    let committed = transaction.commit(durability);
    result(committed.and_then(|committed| transaction.database.wait(committed)))
}

/// Rolls back. One that has ended already is left alone.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_rollback(transaction: *mut WeirTransaction) -> WeirResult {
    // SAFETY: the caller's promise.
    match unsafe { &mut *transaction }.end() {
        Ok(txn) if !txn.has_ended() => result(txn.rollback()),
        _ => WeirResult::Ok,
    }
}

/// Makes the transaction survive a restart, to be committed or rolled back under this name.
///
/// # Safety
/// `transaction` is a handle; `xid` is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_prepare(
    transaction: *mut WeirTransaction,
    xid: WeirBytes,
    durability: WeirDurability,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (transaction, xid) = unsafe { (&mut *transaction, xid.slice()) };
    result(transaction.running().and_then(|txn| {
        txn.set_durability(durability.into());
        txn.prepare(xid)
    }))
}

/// Gives up what a prepared transaction has locked by reading; what it has written stays locked.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_release_reads(transaction: *mut WeirTransaction) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    result(transaction.running().and_then(weir::Transaction::release_reads))
}

/// Commits without waiting for durability: for commits in the order of a coordinator. An error is
/// kept for `weir_commit_wait`.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_commit_in_order(
    transaction: *mut WeirTransaction,
    durability: WeirDurability,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    match transaction.commit(durability) {
        Ok(committed) => {
            transaction.committed = Some(committed);
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

/// Waits until a commit in order is as durable as was asked for.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_commit_wait(transaction: *mut WeirTransaction) -> WeirResult {
    // SAFETY: the caller's promise.
    let transaction = unsafe { &mut *transaction };
    match transaction.committed.take() {
        Some(committed) => result(transaction.database.wait(committed)),
        None => WeirResult::Ok,
    }
}

/// Leaves a prepared transaction to whoever commits or rolls it back by its name.
///
/// # Safety
/// `transaction` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_detach(transaction: *mut WeirTransaction) -> WeirResult {
    // SAFETY: the caller's promise.
    match unsafe { &mut *transaction }.end() {
        Ok(txn) => result(txn.detach()),
        Err(error) => failed(&error),
    }
}

/// Gives up the lock that the last locking read took, if it is on this row. What was locked before
/// that read, or changed, stays locked.
///
/// # Safety
/// `transaction` and `table` are handles; `key` is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_unlock(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    key: WeirBytes,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (transaction, table, key) = unsafe { (&mut *transaction, &*table, key.slice()) };
    result(transaction.running().and_then(|txn| txn.unlock_raw(&table.table, key)))
}

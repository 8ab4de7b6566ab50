//! Transactions: snapshots, versions and undo, row locks, commit, rollback, purge.
//!
//! A tree maps a key to its newest version. The version's header names the transaction that wrote
//! it and its undo record, from which the version before can be had. Whether a snapshot sees a
//! version is decided by comparing two numbers: the writer's commit timestamp and the snapshot's. A
//! writer holds its rows by its name in their headers; [`crate::lock`] holds the locks of those who
//! read under lock or had to wait.
//!
//! Undo records lie in *lanes*: queues of undo pages. A transaction has a lane to itself while it
//! runs; its records go to the end, rollback takes them off again, purge frees pages from the
//! front. A lane's last page says whether its transaction is still running: that is all that
//! recovery needs.
//!
//! This layer knows trees and entries; it sees undo pages through [`lane`], no other pages.

mod backlog;
mod dead;
mod end;
mod history;
mod lane;
mod losers;
mod merged;
mod pace;
mod prepare;
mod purge;
mod range;
mod read;
mod recover;
mod rollback;
mod run;
mod scan;
mod snapshots;
mod staging;
mod status;
#[cfg(test)]
pub(crate) mod tests;
mod undo_record;
mod versions;
mod work;
mod write;

pub use lane::{LANE_DIRECTORY, Running};
pub use merged::MergedScan;
pub use prepare::Resurrected;
pub use range::{Direction, Range};
pub use read::{Look, View, read_chain};
pub use run::Pair;
pub use scan::{Batch, EntryPlace, Scan, ScanEntry, ScanStop};
pub use snapshots::Reader;
pub use staging::{HeldStaging, Staging, Stagings};
pub use status::State;
pub use write::{Op, Outcome};

use crate::lock::{LockError, LockTable, Mode, Request};
use crate::storage::{
    Fault, Interruptible, Interrupts, Need, Storage, interruptible, retry, to_make_room,
};
use crate::tree::{Near, Tree};
use crossbeam_utils::CachePadded;
use dead::DeadRanges;
use history::Histories;
use lane::{LaneUse, Lanes};
use losers::Losers;
use pace::Pace;
use parking_lot::Mutex;
use snapshots::{Snapshot, Snapshots};
use status::StatusTable;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use weir_page::{Lsn, RECORD_BYTES, Redo, TreeId, TxnId, Undo};
use work::Work;

/// No tree's number: its keys in the lock table stand for transactions. Each holds its own key from
/// the moment when somebody waits for its end.
pub const ENDS: TreeId = TreeId(0);

/// When a commit returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Once it is on the device.
    #[default]
    Sync,
    /// Once it survives the process.
    Write,
    /// At once; it is on the device within about half a second.
    Relaxed,
}

/// Why a transaction's operation failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TxnError {
    /// The storage.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// A lock could not be had.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// All undo lanes are in use.
    #[error("too many read-write transactions at once: at most {most}")]
    TooMany {
        /// Their number.
        most: usize,
    },
}

/// What each commit changes.
#[derive(Default)]
struct Commits {
    order: Mutex<()>,
    /// Timestamp of the last one; they are counted from 1 on when the database is opened.
    clock: AtomicU64,
    history: Mutex<Histories>,
}

/// What all transactions of a database share.
pub struct Transactions {
    /// Pages and log.
    pub storage: Arc<Storage>,
    /// Explicit row locks.
    pub locks: LockTable,
    commits: CachePadded<Commits>,
    status: StatusTable,
    /// The first transaction since the database was opened.
    first: TxnId,
    snapshots: Snapshots,
    /// Everybody sees what transactions before this one have written.
    horizon: CachePadded<AtomicU64>,
    advancing: Mutex<()>,
    /// How far transactions had come, in chunks, when the status table was trimmed.
    trimmed: AtomicU64,
    lanes: Lanes,
    purging: Mutex<()>,
    /// Keeps writers from leaving more to purge than it does.
    pub pace: Pace,
    /// What scans need not look through again.
    dead: DeadRanges,
    /// Transactions that were running when the database ended.
    losers: Losers,
    /// Staging trees of secondary indexes.
    pub staging: Stagings,
    /// Counters.
    pub figures: TxnFigures,
}

/// Keeps what a snapshot sees, whatever becomes of the transaction that took it.
pub struct HeldSnapshot {
    transactions: Arc<Transactions>,
    snapshot: Snapshot,
}

impl HeldSnapshot {
    /// What it sees.
    pub fn view(&self) -> View {
        View { own: TxnId(0), snapshot: self.snapshot.at }
    }
}

impl Drop for HeldSnapshot {
    fn drop(&mut self) {
        self.transactions.snapshots.end(self.snapshot);
    }
}

/// Counted since the database was opened.
#[derive(Debug, Default)]
pub struct TxnFigures {
    /// Transactions that were rolled back.
    pub rollbacks: AtomicU64,
    /// Undo records that purge had work with.
    pub purged: AtomicU64,
    /// Those of them of whose work something was left because of damaged pages.
    pub purged_damaged: AtomicU64,
}

impl Transactions {
    /// The transaction's number that comes next is above all that were ever used.
    fn next_id(&self) -> TxnId {
        let id = TxnId(self.storage.next_txn.fetch_add(1, Ordering::Relaxed));
        self.status.begin(id);
        id
    }

    /// Timestamp of the last commit.
    pub fn now(&self) -> u64 {
        self.commits.clock.load(Ordering::Acquire)
    }

    /// Whether a transaction has not ended.
    pub fn is_active(&self, txn: TxnId) -> bool {
        txn.0 >= self.horizon.load(Ordering::Acquire) && self.status.get(txn) == State::Active
    }

    /// What has become of a transaction; of one before the horizon that may not be told any more.
    pub fn state(&self, txn: TxnId) -> State {
        self.status.get(txn)
    }

    /// Transactions before this one are seen by everybody.
    pub fn horizon(&self) -> TxnId {
        TxnId(self.horizon.load(Ordering::Acquire))
    }

    /// Transactions that have written and not ended.
    pub fn running(&self) -> Vec<Running> {
        self.lanes.running()
    }

    /// Number of committed transactions whose undo is still kept.
    pub fn history_len(&self) -> u64 {
        self.commits.history.lock().transactions()
    }

    /// The oldest live snapshot; without one, what the next would be.
    fn oldest_snapshot(&self) -> u64 {
        self.snapshots.oldest(|| self.now())
    }

    /// Who reads at a snapshot.
    pub fn readers(&self) -> Vec<Reader> {
        self.snapshots.readers()
    }

    /// Whether every snapshot, live or to come, sees what `txn` wrote. Once it does, it always
    /// will.
    fn seen_by_all(&self, txn: TxnId) -> bool {
        txn < self.horizon()
            || matches!(self.status.get(txn), State::SeenFrom(at) if at <= self.oldest_snapshot())
    }

    /// Moves the horizon on, unless somebody else is at it.
    pub fn advance_horizon(&self) {
        let Some(_one) = self.advancing.try_lock() else { return };
        let oldest = self.oldest_snapshot();
        let from = self.horizon.load(Ordering::Relaxed);
        let next = self.storage.next_txn.load(Ordering::Acquire);
        let at = self.status.settled_up_to(from, next, oldest);
        self.horizon.store(at, Ordering::Release);
        // Where one transaction keeps the horizon, the table is looked through once in a while
        // only.
        let grown = self.trimmed.swap(next / 4096, Ordering::Relaxed) != next / 4096;
        if at / 4096 != from / 4096 || grown {
            let (snapshots, now) = self.snapshots.all(|| self.now());
            self.status.trim(TxnId(at), &snapshots, now);
        }
    }

    /// A transaction that has done nothing yet.
    pub fn begin(self: &Arc<Self>) -> Txn {
        Txn {
            transactions: self.clone(),
            id: TxnId(0),
            lane: None,
            snapshot: None,
            work: Work::default(),
            connection: 0,
            changes: 0,
            overwrote_unseen: false,
            newest_lock: NewestLock::default(),
            near: Near::default(),
            locks_duplicates: false,
            lock_timeout: Duration::from_secs(50),
            lock_waits: 0,
            interrupts: Interrupts::default(),
            has_canceller: false,
        }
    }
}

/// One transaction. Dropped, it is rolled back; one that is prepared stays so.
pub struct Txn {
    transactions: Arc<Transactions>,
    /// 0 until it writes or locks.
    id: TxnId,
    lane: Option<LaneUse>,
    snapshot: Option<Snapshot>,
    work: Work,
    /// The caller's number of who it is for, which its snapshots tell; 0 if nobody has said so.
    pub connection: u64,
    /// Undo records written, and taken back.
    changes: u64,
    /// Whether the last write replaced a version that its snapshot doesn't cover.
    pub overwrote_unseen: bool,
    /// The lock that the last locking read took.
    newest_lock: NewestLock,
    /// Where it has read and written last.
    near: Near,
    /// Whether an insert locks what is there already, so that it stays.
    pub locks_duplicates: bool,
    /// How long to wait for a row lock.
    pub lock_timeout: Duration,
    /// How often it has waited for a row lock and got it.
    pub lock_waits: u64,
    /// By its number, what ends its waits.
    interrupts: Interrupts,
    /// Whether somebody may end them.
    has_canceller: bool,
}

/// A row's lock, if it was taken by the last locking read.
#[derive(Default)]
struct NewestLock {
    tree: TreeId,
    key: Vec<u8>,
    is_held: bool,
}

impl NewestLock {
    fn note(&mut self, tree: TreeId, key: &[u8], is_new: bool) {
        self.is_held = is_new;
        if is_new {
            self.tree = tree;
            self.key.clear();
            self.key.extend_from_slice(key);
        }
    }
}

/// Ends a transaction's waits; see [`crate::Transaction::canceller`].
pub struct Canceller {
    transactions: Arc<Transactions>,
    id: TxnId,
    interrupts: Interrupts,
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("transaction", &self.id).finish_non_exhaustive()
    }
}

impl Canceller {
    /// Whose waits it ends.
    pub fn transaction(&self) -> TxnId {
        self.id
    }

    /// The wait that is on, or the next one, fails.
    pub fn cancel(&self) {
        self.interrupts.raise(self.id.0);
        self.transactions.locks.cancel(self.id);
        self.transactions.storage.tell_interrupted();
    }

    /// What was cancelled before and met no wait ends no later one.
    pub fn renew(&self) {
        self.interrupts.take_back(self.id.0);
    }
}

/// A point to which a transaction can be rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Savepoint(u64);

impl Savepoint {
    /// Undo records before it.
    pub fn number(self) -> u64 {
        self.0
    }

    /// The one behind so many undo records.
    pub fn of_number(number: u64) -> Self {
        Savepoint(number)
    }
}

impl Txn {
    /// It has committed, and begins anew: as one of [`Transactions::begin`].
    pub fn begin_again(&mut self) {
        assert!(
            self.id.0 == 0 && self.snapshot.is_none(),
            "a transaction ends before it begins anew"
        );
        self.changes = 0;
        self.overwrote_unseen = false;
        self.newest_lock.is_held = false;
        self.lock_waits = 0;
        // Whoever could cancel the one that has ended can't cancel this one, whose number will be
        // another.
        self.has_canceller = false;
    }

    /// Its number; 0 until it writes or locks.
    pub fn id(&self) -> TxnId {
        self.id
    }

    fn storage(&self) -> &Storage {
        &self.transactions.storage
    }

    /// Takes its snapshot now, unless it has one.
    pub fn take_snapshot(&mut self) -> u64 {
        let transactions = &self.transactions;
        let take = || transactions.snapshots.take(self.connection, || transactions.now());
        self.snapshot.get_or_insert_with(take).at
    }

    /// Keeps what its snapshot sees, taken now unless it has one, longer than the transaction
    /// might.
    pub fn hold_snapshot(&mut self) -> HeldSnapshot {
        self.take_snapshot();
        let snapshot = self.snapshot.expect("it was taken");
        HeldSnapshot {
            transactions: self.transactions.clone(),
            snapshot: self.transactions.snapshots.hold(snapshot),
        }
    }

    /// Gives up its snapshot: the next read takes a new one.
    pub fn drop_snapshot(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.transactions.snapshots.end(snapshot);
        }
    }

    /// What it sees.
    pub fn view(&mut self) -> View {
        View { own: self.id, snapshot: self.take_snapshot() }
    }

    /// Grows with each write, and with each that is taken back.
    pub fn change_count(&self) -> u64 {
        self.changes
    }

    /// Where it stands.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.work.undo_records)
    }

    /// Its number, given now if it has none.
    pub fn ensure_id(&mut self) -> TxnId {
        if self.id.0 == 0 {
            self.id = self.transactions.next_id();
        }
        self.id
    }

    /// Locks a row; whether it wasn't locked before. `owner`: an active transaction seen in the
    /// row's header. `wait`: whether to wait if others are in the way.
    fn lock_row(
        &mut self,
        tree: TreeId,
        key: &[u8],
        mode: Mode,
        owner: Option<TxnId>,
        wait: bool,
    ) -> Result<bool, TxnError> {
        let id = self.ensure_id();
        let transactions = &self.transactions;
        let is_stopped = || transactions.storage.check().is_err();
        let request = Request {
            txn: id,
            tree,
            key,
            mode,
            wait,
            timeout: self.lock_timeout,
            weight: self.work.undo_records,
            connection: self.connection,
            implicit_owner: owner,
            is_active: &|txn| transactions.is_active(txn),
            is_cancelled: &|| self.is_cancelled() || is_stopped(),
        };
        let granted = transactions.locks.lock(&request).map_err(|error| self.wait_failed(error))?;
        self.lock_waits += u64::from(granted.waited);
        Ok(granted.is_new)
    }

    /// What a wait has come to that didn't get its lock.
    #[cold]
    fn wait_failed(&self, error: LockError) -> TxnError {
        if error == LockError::Cancelled {
            if let Err(stopped) = self.storage().check() {
                return stopped.into();
            }
            // This wait has been ended: later ones go on.
            self.note_cancelled();
        }
        error.into()
    }

    /// Waits until another transaction has ended. `wait`: `false` fails at once unless it has.
    ///
    /// # Errors
    /// Deadlock, lock wait timeout.
    pub fn wait_for_end(&mut self, other: TxnId, wait: bool) -> Result<(), TxnError> {
        let key = other.0.to_be_bytes();
        self.lock_row(ENDS, &key, Mode::Shared, Some(other), wait)?;
        self.transactions.locks.release(self.id, ENDS, &key);
        Ok(())
    }

    /// Gives up the lock that the last locking read took, if it is this one. A row that was locked
    /// before that read, or written, stays held.
    pub fn unlock(&mut self, tree: Tree, key: &[u8]) {
        if self.took_lock(tree, key) {
            self.newest_lock.is_held = false;
            self.transactions.locks.release(self.id, tree.id, key);
        }
    }

    /// Whether the last locking read took this lock, which wasn't held before.
    pub fn took_lock(&self, tree: Tree, key: &[u8]) -> bool {
        let newest = &self.newest_lock;
        newest.is_held && newest.tree == tree.id && newest.key == key
    }

    /// Gives up a lock that a locking read took, as [`Txn::took_lock`] said then, of a row that has
    /// been written since: that holds the row as long as it isn't taken back.
    pub fn release_written(&mut self, tree: Tree, key: &[u8]) {
        self.newest_lock.is_held &= !self.took_lock(tree, key);
        self.transactions.locks.release(self.id, tree.id, key);
    }

    /// Ends its waits from another thread: those for locks, and what statements wait for otherwise
    /// that are [`Txn::interruptible`].
    pub fn canceller(&mut self) -> Canceller {
        let id = self.ensure_id();
        self.has_canceller = true;
        Canceller {
            transactions: self.transactions.clone(),
            id,
            interrupts: self.interrupts.clone(),
        }
    }

    /// While the result lives, this thread's waits for log space, for pages to be written and for
    /// frames end with [`Fault::Interrupted`] once the transaction's canceller says so. Whoever
    /// meets that says so by [`Txn::note_cancelled`], and takes back what was half done.
    #[inline]
    pub fn interruptible(&self) -> Option<Interruptible> {
        self.has_canceller.then(|| interruptible(&self.interrupts, self.id.0))
    }

    /// Whether the wait that is on, or the next one, is to end.
    pub fn is_cancelled(&self) -> bool {
        self.interrupts.is_raised(self.id.0)
    }

    /// A wait has been ended: later ones go on.
    pub fn note_cancelled(&self) {
        self.interrupts.take_back(self.id.0);
    }

    /// Creates a tree; rolled back, it is gone.
    ///
    /// # Errors
    /// Faults of the storage; too many transactions.
    pub fn create_tree(&mut self) -> Result<Tree, TxnError> {
        let place = self.undo_room(64)?;
        let tree = retry(self.storage(), || {
            let mut mtr = self.storage().mtr(Need::log(1024).and_pages(1))?;
            mtr.latch(place.page)?;
            let tree = Tree::create(&mut mtr);
            self.transactions.dead.forget(tree.id);
            let undo = Undo::CreateTree { root: tree.root() };
            mtr.log(&Redo::UndoPush { page: place.page, first: place.first, undo });
            mtr.commit();
            Ok::<_, crate::storage::Restart<Fault>>(tree)
        })?;
        self.undo_pushed(1, false);
        Ok(tree)
    }

    /// Drops a tree once everybody sees that this transaction has committed.
    ///
    /// # Errors
    /// Faults of the storage; too many transactions.
    pub fn drop_tree(&mut self, tree: Tree) -> Result<(), TxnError> {
        let _room = to_make_room();
        let undo = Undo::DropTree { root: tree.root() };
        self.push_undo(&undo)?;
        self.undo_pushed(1, true);
        Ok(())
    }

    /// Writes an undo record that goes with no entry.
    /// Returns where it ends in the log.
    fn push_undo(&mut self, undo: &Undo<'_>) -> Result<Lsn, TxnError> {
        let place = self.undo_room(undo.size())?;
        let appended = retry(self.storage(), || {
            let mut mtr = self.storage().mtr(Need::log(undo.size() + RECORD_BYTES))?;
            mtr.latch(place.page)?;
            mtr.log(&Redo::UndoPush { page: place.page, first: place.first, undo: *undo });
            Ok::<_, crate::storage::Restart<Fault>>(mtr.commit())
        })?;
        Ok(appended.end)
    }
}

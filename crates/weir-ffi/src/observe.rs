//! Who runs, who reads at which snapshot, who waits for whom, which locks there are.

use crate::bytes::WeirBytes;
use crate::database::WeirDatabase;
use crate::table::WEIR_PRIMARY;
use std::collections::HashMap;
use std::ffi::c_void;
use std::time::{Duration, Instant, UNIX_EPOCH};
use weir::{Database, KeyOf, LockInfo, LockMode, TransactionState, TreeId};

/// What a transaction is doing.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeirState {
    /// It runs, or waits for its user.
    Running = 0,
    /// It waits for a lock.
    Waiting,
    /// It is prepared.
    Prepared,
}

/// A transaction that has written and not ended.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WeirTransactionInfo {
    /// Its number.
    pub id: u64,
    /// What it is doing.
    pub state: WeirState,
    /// Undo records that it has written.
    pub undo_records: u64,
    /// How long ago it wrote first, in microseconds.
    pub age_us: u64,
    /// One that it waits for; 0 if none.
    pub waits_for: u64,
}

/// A snapshot that somebody reads at.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct WeirSnapshotInfo {
    /// Number of the connection, as `weir_canceller_open` was told; 0 if it is for none.
    pub connection: u64,
    /// How long ago it was taken, in microseconds.
    pub age_us: u64,
    /// Transactions that have committed since, whose undo is kept for it.
    pub unseen_commits: u64,
}

/// A lock that is held or waited for.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirLockInfo {
    /// Who holds it or waits for it.
    pub transaction: u64,
    /// The table; empty if it isn't known.
    pub table: WeirBytes,
    /// Position of the index whose entry is locked; `WEIR_PRIMARY` for a row.
    pub index: u32,
    /// Name of that index; empty for a row, or if the index has gone.
    pub index_name: WeirBytes,
    /// The key.
    pub key: WeirBytes,
    /// Whether it keeps away all others, not only writers.
    pub exclusive: bool,
    /// Whether it is waited for.
    pub waits: bool,
    /// For how long, in microseconds.
    pub waited_us: u64,
    /// One that is waited for; 0 if none.
    pub waits_for: u64,
}

/// A circle of waits that was broken.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirDeadlock {
    /// When, in seconds since 1970.
    pub at_s: u64,
    /// The transaction that was rolled back for it.
    pub victim: u64,
}

/// Called with a transaction. `context` is what the caller handed over.
pub type WeirTransactionCallback =
    extern "C" fn(context: *mut c_void, info: *const WeirTransactionInfo);

/// Called with a snapshot. `context` is what the caller handed over.
pub type WeirSnapshotCallback = extern "C" fn(context: *mut c_void, info: *const WeirSnapshotInfo);

/// Called with a lock, whose bytes are valid during the call. `context` is what the caller handed
/// over.
pub type WeirLockCallback = extern "C" fn(context: *mut c_void, info: *const WeirLockInfo);

/// Hands out all transactions that have written and not ended, oldest first. Who has only read
/// isn't among them: its snapshot is told by `weir_snapshots`, and its locks by `weir_locks`.
///
/// # Safety
/// `database` is a handle; `callback` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn weir_transactions(
    database: *const WeirDatabase,
    callback: WeirTransactionCallback,
    context: *mut c_void,
) {
    // SAFETY: the caller's promise.
    for info in unsafe { &*database }.0.transactions() {
        let state = match info.state {
            TransactionState::Waiting => WeirState::Waiting,
            TransactionState::Prepared => WeirState::Prepared,
            _ => WeirState::Running,
        };
        let out = WeirTransactionInfo {
            id: info.id.0,
            state,
            undo_records: info.undo_records,
            age_us: info.age.as_micros() as u64,
            waits_for: info.waiting_for.first().map_or(0, |id| id.0),
        };
        callback(context, &out);
    }
}

/// Hands out all snapshots that somebody reads at, oldest first.
///
/// # Safety
/// `database` is a handle; `callback` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn weir_snapshots(
    database: *const WeirDatabase,
    callback: WeirSnapshotCallback,
    context: *mut c_void,
) {
    // SAFETY: the caller's promise.
    for info in unsafe { &*database }.0.snapshots() {
        let out = WeirSnapshotInfo {
            connection: info.connection,
            age_us: info.age.as_micros() as u64,
            unseen_commits: info.unseen_commits,
        };
        callback(context, &out);
    }
}

/// Hands out all locks that are explicit or waited for. Rows that a transaction has written are
/// locked by that alone.
///
/// # Safety
/// `database` is a handle; `callback` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn weir_locks(
    database: *const WeirDatabase,
    callback: WeirLockCallback,
    context: *mut c_void,
) {
    let now = Instant::now();
    // SAFETY: the caller's promise.
    let database = unsafe { &(*database).0 };
    let mut trees = LockedTrees::new(database);
    for info in database.locks() {
        let waited = info.wait.as_ref().map(|wait| now.saturating_duration_since(wait.since));
        let mut tell = |out: &WeirLockInfo| callback(context, out);
        tell_lock(trees.of(info.tree), &info, waited.unwrap_or_default(), &mut tell);
    }
}

/// Called with a wait in a deadlock, whose bytes are valid during the call, and the number of the
/// connection, as `weir_canceller_open` was told, or 0. `context` is what the caller handed over.
pub type WeirDeadlockCallback =
    extern "C" fn(context: *mut c_void, info: *const WeirLockInfo, connection: u64);

/// Whether there was a deadlock since the database was opened: tells of the last one, and hands out
/// its waits, each for the transaction of the next, the last for that of the first.
///
/// # Safety
/// `database` is a handle; `deadlock` may be written; `callback` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn weir_last_deadlock(
    database: *const WeirDatabase,
    deadlock: *mut WeirDeadlock,
    callback: WeirDeadlockCallback,
    context: *mut c_void,
) -> bool {
    // SAFETY: the caller's promise.
    let database = unsafe { &(*database).0 };
    let Some(last) = database.last_deadlock() else { return false };
    let at_s = last.at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    // SAFETY: the caller's promise.
    unsafe { *deadlock = WeirDeadlock { at_s, victim: last.victim.0 } };
    let mut trees = LockedTrees::new(database);
    for wait in &last.waits {
        let mut tell = |out: &WeirLockInfo| callback(context, out, wait.connection);
        tell_lock(trees.of(wait.lock.tree), &wait.lock, wait.waited, &mut tell);
    }
    true
}

/// What a lock is of, by its tree.
struct LockedTree {
    table: String,
    index: u32,
    index_name: String,
}

/// Those that were asked for. Each is looked up once: that goes through the indexes of all tables,
/// and there may be many locks of one.
struct LockedTrees<'a> {
    database: &'a Database,
    known: HashMap<TreeId, LockedTree>,
}

impl<'a> LockedTrees<'a> {
    fn new(database: &'a Database) -> Self {
        Self { database, known: HashMap::new() }
    }

    fn of(&mut self, tree: TreeId) -> &LockedTree {
        self.known.entry(tree).or_insert_with(|| locked_tree(self.database, tree))
    }
}

fn locked_tree(database: &Database, tree: TreeId) -> LockedTree {
    let (table, of) = database.owner_of_tree(tree).unwrap_or((String::new(), KeyOf::Primary));
    let (index, index_name) = match of {
        KeyOf::Primary => (WEIR_PRIMARY, None),
        KeyOf::Index(n) => (n as u32, index_name(database, &table, n)),
    };
    LockedTree { table, index, index_name: index_name.unwrap_or_default() }
}

/// `None` if the table has gone meanwhile, or has another definition.
fn index_name(database: &Database, table: &str, n: usize) -> Option<String> {
    let schema = database.table(table)?.raw_schema().ok()?;
    schema.indexes().get(n).map(|index| index.name.clone())
}

fn tell_lock(
    tree: &LockedTree,
    info: &LockInfo,
    waited: Duration,
    tell: &mut dyn FnMut(&WeirLockInfo),
) {
    let waits_for = info.wait.as_ref().and_then(|wait| wait.waits_for.first());
    let out = WeirLockInfo {
        transaction: info.txn.0,
        table: tree.table.as_bytes().into(),
        index: tree.index,
        index_name: tree.index_name.as_bytes().into(),
        key: info.key.as_slice().into(),
        exclusive: info.mode == LockMode::Exclusive,
        waits: info.wait.is_some(),
        waited_us: waited.as_micros() as u64,
        waits_for: waits_for.map_or(0, |id| id.0),
    };
    tell(&out);
}

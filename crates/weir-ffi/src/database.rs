//! Opening and closing a database, and what concerns all of it.

use crate::bytes::{WeirBytes, WeirBytesCallback};
use crate::error::{failed, handle, result, WeirResult};
use crate::waits::Owners;
use std::ffi::{c_void, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;
use weir::{Database, Durability, Options, Progress, Shutdown};

/// An open database.
pub struct WeirDatabase(pub(crate) Database, pub(crate) Arc<Owners>);

/// When a commit returns.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeirDurability {
    /// When it is on the device.
    Sync = 0,
    /// When it survives the process.
    Write,
    /// At once; it is on the device within about half a second.
    Relaxed,
}

impl From<WeirDurability> for Durability {
    fn from(durability: WeirDurability) -> Self {
        match durability {
            WeirDurability::Sync => Durability::Sync,
            WeirDurability::Write => Durability::Write,
            WeirDurability::Relaxed => Durability::Relaxed,
        }
    }
}

/// Called while a database is recovered. While the log is read for its end, by whoever opens it:
/// `all_bytes` is 0 and `done_bytes` is what was read. Then, once by whoever opens it and from then
/// on by a thread of its own while the database is open: `done_bytes` of `all_bytes` are applied,
/// none at first and all at last.
pub type WeirRecoveryCallback = Option<extern "C" fn(done_bytes: u64, all_bytes: u64)>;

/// How to open a database.
#[repr(C)]
pub struct WeirOptions {
    /// All memory that it may use.
    pub memory_bytes: u64,
    /// Capacity of the redo log; 0 keeps what the database has.
    pub redo_capacity_bytes: u64,
    /// When commits return.
    pub durability: WeirDurability,
    /// How long to wait for a lock.
    pub lock_wait_timeout_ms: u64,
    /// Share of memory, from 0.0 to 1.0, whose pages may have unwritten changes.
    pub dirty_limit: f64,
    /// Whether recovery empties pages that are damaged, for good, and goes on.
    pub give_up_damaged: bool,
    /// Whether most entries of secondary indexes are staged, also those whose leaf is in memory:
    /// for tests.
    pub stages_most: bool,
    /// Is told of the progress of recovery; may be null.
    pub on_recovery: WeirRecoveryCallback,
}

/// Few, so that entries are moved all the time.
const LEAVES_STAGED_IN_TESTS: usize = 16;

/// Opens the database in a directory, or creates one there.
///
/// # Safety
/// `directory` is readable; `options` is valid; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_open(
    directory: WeirBytes,
    options: *const WeirOptions,
    out: *mut *mut WeirDatabase,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (directory, options) = unsafe { (directory.slice(), &*options) };
    let mut with = Options::default()
        .memory_bytes(options.memory_bytes)
        .durability(options.durability.into())
        .lock_wait_timeout(Duration::from_millis(options.lock_wait_timeout_ms))
        .dirty_limit(options.dirty_limit)
        .give_up_damaged(options.give_up_damaged);
    if options.stages_most {
        with = with.staging_leaves(LEAVES_STAGED_IN_TESTS);
    }
    if options.redo_capacity_bytes > 0 {
        with = with.redo_capacity_bytes(options.redo_capacity_bytes);
    }
    if let Some(on_recovery) = options.on_recovery {
        with = with.on_progress(move |Progress { from, at, end, .. }| {
            on_recovery(at.0 - from.0, end.map_or(0, |end| end.0 - from.0));
        });
    }
    let opened = Database::open(OsStr::from_bytes(directory), with);
    // SAFETY: the caller's promise.
    unsafe { handle(opened.map(|database| WeirDatabase(database, Arc::default())), out) }
}

/// Closes a database; `clean` writes all pages first, so that the next opening has nothing to do.
/// Its tables, transactions and scans must have been given back.
///
/// # Safety
/// `database` is a handle, given back by this.
#[no_mangle]
pub unsafe extern "C" fn weir_close(database: *mut WeirDatabase, clean: bool) -> WeirResult {
    // SAFETY: the caller's promise.
    let database = unsafe { Box::from_raw(database) };
    let how = if clean { Shutdown::Clean } else { Shutdown::Fast };
    result(database.0.close(how, &mut |_| {}))
}

/// Makes all that was committed durable on the device.
///
/// # Safety
/// `database` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_sync(database: *const WeirDatabase) -> WeirResult {
    // SAFETY: the caller's promise.
    result(unsafe { &*database }.0.sync())
}

/// Changes the redo capacity; `actual` is what it is now.
///
/// # Safety
/// `database` is a handle; `actual` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_set_redo_capacity(
    database: *const WeirDatabase,
    bytes: u64,
    actual: *mut u64,
) -> WeirResult {
    // SAFETY: the caller's promise.
    match unsafe { &*database }.0.set_redo_capacity(bytes) {
        Ok(now) => {
            // SAFETY: the caller's promise.
            unsafe { *actual = now };
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

/// Changes the share of memory, from 0.0 to 1.0, whose pages may have unwritten changes.
///
/// # Safety
/// `database` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_set_dirty_limit(
    database: *const WeirDatabase,
    share: f64,
) -> WeirResult {
    // SAFETY: the caller's promise.
    result(unsafe { &*database }.0.set_dirty_limit(share))
}

/// Names all tables that begin with `prefix`.
///
/// # Safety
/// `database` is a handle; `prefix` is readable; `callback` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn weir_table_names(
    database: *const WeirDatabase,
    prefix: WeirBytes,
    callback: WeirBytesCallback,
    context: *mut c_void,
) {
    // SAFETY: the caller's promises.
    let (database, prefix) = unsafe { (&*database, prefix.slice()) };
    let names = database.0.table_names();
    for name in names.iter().map(|name| name.as_bytes()).filter(|name| name.starts_with(prefix)) {
        callback(context, name.into());
    }
}

/// Names the prepared transactions that nobody has: after a restart, or detached.
///
/// # Safety
/// `database` is a handle; `callback` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn weir_prepared(
    database: *const WeirDatabase,
    callback: WeirBytesCallback,
    context: *mut c_void,
) {
    // SAFETY: the caller's promise.
    for xid in unsafe { &*database }.0.prepared() {
        callback(context, xid.as_slice().into());
    }
}

/// How long a connection that has gone may take to let go of its prepared transaction.
const LET_GO: Duration = Duration::from_secs(30);

/// Commits a prepared transaction. If a connection has it still, that is waited for.
///
/// # Safety
/// `database` is a handle; `xid` is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_commit_prepared(
    database: *const WeirDatabase,
    xid: WeirBytes,
    durability: WeirDurability,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, xid) = unsafe { (&*database, xid.slice()) };
    database.0.wait_until_detached(xid, LET_GO);
    result(database.0.commit_prepared(xid, durability.into()))
}

/// Rolls back a prepared transaction. If a connection has it still, that is waited for.
///
/// # Safety
/// `database` is a handle; `xid` is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_rollback_prepared(
    database: *const WeirDatabase,
    xid: WeirBytes,
    durability: WeirDurability,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, xid) = unsafe { (&*database, xid.slice()) };
    database.0.wait_until_detached(xid, LET_GO);
    result(database.0.rollback_prepared(xid, durability.into()))
}

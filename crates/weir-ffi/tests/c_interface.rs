//! The C interface as a C program would use it: handles, results, bytes.

use std::ffi::{c_void, CStr};
use std::path::Path;
use std::ptr::{null, null_mut};
use std::slice;
use std::sync::Mutex;
use weir_ffi::bytes::WeirBytes;
use weir_ffi::database::{
    weir_close, weir_open, weir_set_redo_capacity, WeirDatabase, WeirDurability, WeirOptions,
};
use weir_ffi::error::{
    weir_error_index, weir_error_key, weir_error_message, weir_error_set, WeirResult,
};
use weir_ffi::observe::{weir_snapshots, WeirSnapshotInfo};
use weir_ffi::patience::WeirPatience;
use weir_ffi::scan::{
    weir_scan_close, weir_scan_next, weir_scan_open, WeirBatch, WeirBound, WeirBoundKind,
    WeirScanned,
};
use weir_ffi::table::{
    weir_index_figures, weir_table_close, weir_table_create, weir_table_drop, weir_table_open,
    WeirIndex, WeirIndexFigures, WeirTable, WEIR_PRIMARY,
};
use weir_ffi::transaction::{
    weir_begin, weir_begin_again, weir_cancel, weir_canceller_close, weir_canceller_open,
    weir_canceller_renew, weir_commit, weir_is_running, weir_rollback, weir_savepoint,
    weir_savepoint_rollback, weir_statement_end, weir_transaction_close, WeirCanceller,
    WeirIsolation, WeirLock, WeirTransaction,
};
use weir_ffi::write::{
    weir_get, weir_insert, weir_row_close, weir_row_open, WeirEntry, WeirInTheWay,
};

fn bytes(of: &[u8]) -> WeirBytes {
    of.into()
}

/// A database with one table and one unique index.
struct World {
    database: *mut WeirDatabase,
    table: *mut WeirTable,
    canceller: *mut WeirCanceller,
    _directory: tempfile::TempDir,
}

const SMALL: WeirOptions = WeirOptions {
    memory_bytes: 8 << 20,
    redo_capacity_bytes: 4 << 20,
    durability: WeirDurability::Relaxed,
    lock_wait_timeout_ms: 0,
    dirty_limit: 0.9,
    give_up_damaged: false,
    stages_most: false,
    on_recovery: None,
};

fn open(directory: &Path, options: &WeirOptions, database: &mut *mut WeirDatabase) -> WeirResult {
    let path = directory.to_string_lossy();
    // SAFETY: all arguments are valid during the call.
    unsafe { weir_open(bytes(path.as_bytes()), options, database) }
}

impl World {
    fn new() -> World {
        let directory = tempfile::tempdir().expect("a temporary directory can be made");
        let (mut database, mut table) = (null_mut(), null_mut());
        assert_eq!(open(directory.path(), &SMALL, &mut database), WeirResult::Ok);
        // SAFETY: all arguments are valid during the calls.
        unsafe {
            let index = WeirIndex { name: bytes(b"by_name"), unique: true };
            let made =
                weir_table_create(database, bytes(b"people"), &index, 1, bytes(b"meta"), false);
            assert_eq!(made, WeirResult::Ok);
            assert_eq!(weir_table_open(database, bytes(b"people"), &mut table), WeirResult::Ok);
        }
        World {
            database,
            table,
            canceller: weir_canceller_open(null_mut(), 0),
            _directory: directory,
        }
    }

    fn begin(&self) -> *mut WeirTransaction {
        self.begin_at(WeirIsolation::RepeatableRead)
    }

    fn begin_at(&self, isolation: WeirIsolation) -> *mut WeirTransaction {
        let mut txn = null_mut();
        // SAFETY: the handles are open, and `txn` may be written.
        let begun = unsafe { weir_begin(self.database, isolation, self.canceller, &mut txn) };
        assert_eq!(begun, WeirResult::Ok);
        txn
    }

    fn insert(&self, txn: *mut WeirTransaction, key: &[u8], name: &[u8]) -> WeirResult {
        let entry = WeirEntry { index: 0, key: bytes(name), value: bytes(key) };
        // SAFETY: the handles are open, and the bytes live.
        unsafe {
            weir_insert(txn, self.table, bytes(key), bytes(b"row"), &entry, 1, WeirInTheWay::Locked)
        }
    }

    fn names(&self, txn: *mut WeirTransaction) -> Vec<Vec<u8>> {
        let open = WeirBound { kind: WeirBoundKind::Open, key: WeirBytes { data: null(), len: 0 } };
        let (mut scan, mut out) = (null_mut(), Vec::new());
        let none = WeirBytes { data: null(), len: 0 };
        let mut at = WeirScanned { key: none, value: none, current: false };
        let mut rest = WeirBatch { bytes: null(), places: null(), count: 0, current: false };
        // SAFETY: the handles are open; what a step gives is copied before the next.
        unsafe {
            let lock = WeirLock::None;
            let begun = weir_scan_open(txn, self.table, 0, open, open, false, lock, &mut scan);
            assert_eq!(begun, WeirResult::Ok);
            while weir_scan_next(scan, txn, &mut at, &mut rest) == WeirResult::Ok {
                out.push(at.key.slice().to_vec());
                for n in 0..rest.count {
                    let place = *rest.places.add(n);
                    let key = (place.value - place.key) as usize;
                    let key = slice::from_raw_parts(rest.bytes.add(place.key as usize), key);
                    assert!(rest.current && !place.outdated);
                    out.push(key.to_vec());
                }
            }
            weir_scan_close(scan);
        }
        out
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: the handles are given back once, the database last.
        unsafe {
            weir_table_close(self.table);
            weir_canceller_close(self.canceller);
            assert_eq!(weir_close(self.database, true), WeirResult::Ok);
        }
    }
}

#[test]
fn rows_are_written_read_and_taken_back() {
    let world = World::new();
    let txn = world.begin();
    assert_eq!(world.insert(txn, b"1", b"Ada"), WeirResult::Ok);
    let mut savepoint = 0;
    // SAFETY: the handles are open, and what is written to may be.
    unsafe {
        assert_eq!(weir_savepoint(txn, &mut savepoint), WeirResult::Ok);
        assert_eq!(world.insert(txn, b"2", b"Bob"), WeirResult::Ok);
        assert_eq!(world.names(txn), [b"Ada", b"Bob"]);
        assert_eq!(weir_savepoint_rollback(txn, savepoint), WeirResult::Ok);
        assert_eq!(weir_commit(txn, WeirDurability::Write), WeirResult::Ok);
        assert!(!weir_is_running(txn));
        weir_transaction_close(txn);
        let mut figures = WeirIndexFigures {
            entries: 0,
            leaf_pages: 0,
            overflow_pages: 0,
            size_bytes: 0,
            staged_entries: 0,
            staged_leaf_pages: 0,
        };
        let asked = weir_index_figures(world.table, WEIR_PRIMARY, &mut figures);
        assert_eq!(asked, WeirResult::Ok);
        assert_eq!((figures.entries, figures.leaf_pages, figures.staged_entries), (1, 1, 0));
    }
    let txn = world.begin();
    let row = weir_row_open();
    let mut found = WeirBytes { data: null(), len: 0 };
    // SAFETY: the handles are open; `found` is read before the holder is used again.
    unsafe {
        let mut get =
            |key: &[u8]| weir_get(txn, world.table, bytes(key), WeirLock::Shared, row, &mut found);
        assert_eq!(get(b"2"), WeirResult::NotFound);
        assert_eq!(get(b"1"), WeirResult::Ok);
        assert_eq!(found.slice(), b"row");
        weir_row_close(row);
        assert_eq!(weir_rollback(txn), WeirResult::Ok);
        weir_transaction_close(txn);
    }
}

#[test]
fn a_failure_says_which_index_or_what_happened() {
    let world = World::new();
    let (one, two) = (world.begin(), world.begin());
    assert_eq!(world.insert(one, b"1", b"Ada"), WeirResult::Ok);
    assert_eq!(world.insert(one, b"2", b"Ada"), WeirResult::Duplicate);
    // SAFETY: the words are valid until the next call that can fail.
    let index = unsafe { CStr::from_ptr(weir_error_index()) }.to_owned();
    assert_eq!(index.as_c_str(), c"by_name");
    // SAFETY: as above.
    assert_eq!(unsafe { weir_error_key().slice() }, b"Ada");
    assert_eq!(world.insert(two, b"1", b"Eve"), WeirResult::LockTimeout);
    // SAFETY: as above.
    let message = unsafe { CStr::from_ptr(weir_error_message()) }.to_string_lossy().into_owned();
    assert!(message.contains("timeout"), "{message}");
    // SAFETY: the handles are given back once; what runs is rolled back.
    unsafe {
        weir_transaction_close(one);
        weir_transaction_close(two);
    }
}

/// More than any device of our time has.
const TOO_MUCH: u64 = 15 << 40;

#[test]
fn a_log_for_which_the_device_has_no_space_is_no_failure_of_ours() {
    let world = World::new();
    let mut actual = 0;
    // SAFETY: the handle is open, and `actual` may be written.
    let set = unsafe { weir_set_redo_capacity(world.database, TOO_MUCH, &mut actual) };
    assert_eq!(set, WeirResult::NoSpace);
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let large = WeirOptions { redo_capacity_bytes: TOO_MUCH, ..SMALL };
    assert_eq!(open(directory.path(), &large, &mut null_mut()), WeirResult::NoSpace);
}

#[test]
fn a_damaged_database_is_told_from_other_failures() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let mut database = null_mut();
    assert_eq!(open(directory.path(), &SMALL, &mut database), WeirResult::Ok);
    assert_eq!(open(directory.path(), &SMALL, &mut null_mut()), WeirResult::Failed, "it is in use");
    // SAFETY: the handle is given back once.
    assert_eq!(unsafe { weir_close(database, true) }, WeirResult::Ok);
    for file in ["data", "map", "control"] {
        let path = directory.path().join(file);
        let whole = std::fs::read(&path).expect("the file is there");
        std::fs::write(&path, &whole[..4096]).expect("it can be cut");
        let opened = open(directory.path(), &SMALL, &mut null_mut());
        assert_eq!(opened, WeirResult::Corrupt, "{file} is cut short");
        std::fs::write(&path, &whole).expect("it can be restored");
    }
    for file in ["redo-0000000001", "control"] {
        std::fs::remove_file(directory.path().join(file)).expect("it is there");
        let opened = open(directory.path(), &SMALL, &mut null_mut());
        assert_eq!(opened, WeirResult::Corrupt, "{file} is lost");
    }
}

static RECOVERY: Mutex<Vec<(u64, u64)>> = Mutex::new(Vec::new());

extern "C" fn note_recovery(done_bytes: u64, all_bytes: u64) {
    RECOVERY.lock().expect("nobody panicked with it").push((done_bytes, all_bytes));
}

#[test]
fn the_progress_of_recovery_is_told_from_nothing_to_all() {
    let directory = tempfile::tempdir().expect("a temporary directory can be made");
    let telling = WeirOptions { on_recovery: Some(note_recovery), ..SMALL };
    let open_and_close = |clean| {
        let mut database = null_mut();
        assert_eq!(open(directory.path(), &telling, &mut database), WeirResult::Ok);
        // SAFETY: the handle is given back once.
        assert_eq!(unsafe { weir_close(database, clean) }, WeirResult::Ok);
        std::mem::take(&mut *RECOVERY.lock().expect("nobody panicked with it"))
    };
    assert_eq!(open_and_close(false), [], "a new database has nothing to recover");
    let told = open_and_close(true);
    let all = told[0].1;
    assert!(all > 0);
    assert_eq!((told[0], told.last()), ((0, all), Some(&(all, all))));
    assert_eq!(open_and_close(true), [], "all pages were written");
}

/// Reads a row that another transaction has written: what the wait for it comes to.
fn get(world: &World, txn: *mut WeirTransaction, key: &[u8], lock: WeirLock) -> WeirResult {
    let row = weir_row_open();
    let mut found = WeirBytes { data: null(), len: 0 };
    // SAFETY: the handles are open, and `row` is given back once.
    unsafe {
        let got = weir_get(txn, world.table, bytes(key), lock, row, &mut found);
        weir_row_close(row);
        got
    }
}

fn wait_for(world: &World, txn: *mut WeirTransaction, key: &[u8]) -> WeirResult {
    get(world, txn, key, WeirLock::Shared)
}

/// The first row of a scan that asks for no lock.
fn first(world: &World, txn: *mut WeirTransaction) -> WeirResult {
    let none = WeirBytes { data: null(), len: 0 };
    let open = WeirBound { kind: WeirBoundKind::Open, key: none };
    let mut scan = null_mut();
    let mut at = WeirScanned { key: none, value: none, current: false };
    // SAFETY: the handles are open, and what is written to may be.
    unsafe {
        let (table, lock) = (world.table, WeirLock::None);
        let begun = weir_scan_open(txn, table, WEIR_PRIMARY, open, open, false, lock, &mut scan);
        assert_eq!(begun, WeirResult::Ok);
        let found = weir_scan_next(scan, txn, &mut at, null_mut());
        weir_scan_close(scan);
        found
    }
}

/// It locks all the same; nobody could cancel its wait.
#[test]
fn a_serializable_read_that_asks_for_no_lock_can_be_cancelled() {
    let world = World::new();
    let writer = world.begin();
    assert_eq!(world.insert(writer, b"1", b"Ada"), WeirResult::Ok);
    let reads: [fn(&World, *mut WeirTransaction) -> WeirResult; 2] =
        [|world, txn| get(world, txn, b"1", WeirLock::None), first];
    for read in reads {
        let txn = world.begin_at(WeirIsolation::Serializable);
        // SAFETY: the handles are open, and the transaction is given back once.
        unsafe {
            weir_cancel(world.canceller);
            assert_eq!(read(&world, txn), WeirResult::Cancelled);
            weir_canceller_renew(world.canceller);
            // The database's time for a wait is none.
            assert_eq!(read(&world, txn), WeirResult::LockTimeout);
            weir_transaction_close(txn);
        }
    }
    // SAFETY: it is given back once; what runs is rolled back.
    unsafe { weir_transaction_close(writer) };
}

#[test]
fn what_was_cancelled_ends_waits_until_it_is_renewed() {
    let world = World::new();
    let others = weir_canceller_open(null_mut(), 0);
    let mut other = null_mut();
    // SAFETY: the handles are open, each is given back once, and `other` may be written.
    unsafe {
        let read_committed = WeirIsolation::ReadCommitted;
        let begun = weir_begin(world.database, read_committed, others, &mut other);
        assert_eq!(begun, WeirResult::Ok);
        assert_eq!(world.insert(other, b"1", b"Ada"), WeirResult::Ok);

        // Of a transaction that has never waited.
        let txn = world.begin();
        weir_cancel(world.canceller);
        assert_eq!(wait_for(&world, txn, b"1"), WeirResult::Cancelled);
        // The database's time for a wait is none.
        weir_canceller_renew(world.canceller);
        assert_eq!(wait_for(&world, txn, b"1"), WeirResult::LockTimeout);
        // Of one that has, and meets no wait before the next statement.
        weir_cancel(world.canceller);
        weir_canceller_renew(world.canceller);
        assert_eq!(wait_for(&world, txn, b"1"), WeirResult::LockTimeout);

        for of in [txn, other] {
            assert_eq!(weir_rollback(of), WeirResult::Ok);
            weir_transaction_close(of);
        }
        weir_canceller_close(others);
    }
}

extern "C" fn collect_snapshot(context: *mut c_void, info: *const WeirSnapshotInfo) {
    // SAFETY: it is called with the vector below.
    unsafe { (*context.cast::<Vec<WeirSnapshotInfo>>()).push(*info) }
}

#[test]
fn a_connection_is_told_as_long_as_it_reads_at_a_snapshot() {
    let world = World::new();
    let readers = || {
        let mut all: Vec<WeirSnapshotInfo> = Vec::new();
        // SAFETY: the handle is open; the callback is called with the vector.
        unsafe { weir_snapshots(world.database, collect_snapshot, (&raw mut all).cast()) };
        all.iter().map(|info| info.connection).collect::<Vec<u64>>()
    };
    let canceller = weir_canceller_open(null_mut(), 7);
    let mut txn = null_mut();
    // SAFETY: the handles are open, each is given back once, and `txn` may be written.
    unsafe {
        let begun = weir_begin(world.database, WeirIsolation::ReadCommitted, canceller, &mut txn);
        assert_eq!(begun, WeirResult::Ok);
        for isolation in [WeirIsolation::ReadCommitted, WeirIsolation::RepeatableRead] {
            assert_eq!(get(&world, txn, b"1", WeirLock::None), WeirResult::NotFound);
            assert_eq!(readers(), [7]);
            weir_statement_end(txn);
            let keeps = isolation == WeirIsolation::RepeatableRead;
            assert_eq!(readers().len(), usize::from(keeps));
            assert_eq!(weir_commit(txn, WeirDurability::Relaxed), WeirResult::Ok);
            assert_eq!(readers(), []);
            weir_statement_end(txn);
            let again = weir_begin_again(txn, WeirIsolation::RepeatableRead);
            assert_eq!(again, WeirResult::Ok);
        }
        weir_transaction_close(txn);
        weir_canceller_close(canceller);
    }
}

/// They were replaced, so that one name stood for another.
#[test]
fn names_that_are_no_text_are_nobodys() {
    let world = World::new();
    let patience = WeirPatience { canceller: null(), timeout_ms: 0 };
    let (none, name) = (WeirBytes { data: null(), len: 0 }, bytes("t\u{fffd}".as_bytes()));
    // SAFETY: the handles are open, and the names live.
    unsafe {
        let create = |name| weir_table_create(world.database, name, null(), 0, none, false);
        assert_eq!(create(name), WeirResult::Ok);
        assert_eq!(create(bytes(b"t\xff")), WeirResult::Failed);
        let message = CStr::from_ptr(weir_error_message()).to_string_lossy().into_owned();
        assert!(message.contains("isn't UTF-8"), "{message}");
        assert_eq!(weir_table_drop(world.database, bytes(b"t\xfe"), patience), WeirResult::Failed);
        assert_eq!(weir_table_drop(world.database, name, patience), WeirResult::Ok);
    }
}

#[test]
fn a_directory_may_have_any_name() {
    use std::os::unix::ffi::OsStrExt;
    let parent = tempfile::tempdir().expect("a temporary directory can be made");
    let path = parent.path().join(std::ffi::OsStr::from_bytes(b"d\xff"));
    let mut database = null_mut();
    // SAFETY: all arguments are valid during the calls; the handle is given back once.
    unsafe {
        let opened = weir_open(bytes(path.as_os_str().as_bytes()), &SMALL, &mut database);
        assert_eq!(opened, WeirResult::Ok);
        assert_eq!(weir_close(database, false), WeirResult::Ok);
    }
    assert!(path.join("control").exists());
}

#[test]
fn a_transaction_that_runs_does_not_begin_again() {
    let world = World::new();
    let txn = world.begin();
    assert_eq!(world.insert(txn, b"1", b"Ada"), WeirResult::Ok);
    // SAFETY: the handles are open.
    unsafe {
        assert_eq!(weir_begin_again(txn, WeirIsolation::RepeatableRead), WeirResult::Failed);
        assert_eq!(weir_commit(txn, WeirDurability::Relaxed), WeirResult::Ok);
        assert_eq!(weir_begin_again(txn, WeirIsolation::RepeatableRead), WeirResult::Ok);
        assert_eq!(world.names(txn).len(), 1);
        weir_transaction_close(txn);
    }
}

#[test]
fn the_caller_may_have_words_of_its_own() {
    let said = || {
        // SAFETY: the words are copied before the next call.
        unsafe { CStr::from_ptr(weir_error_message()) }.to_owned()
    };
    // SAFETY: the bytes live.
    unsafe { weir_error_set(bytes(b"not understood")) };
    assert_eq!(said().as_c_str(), c"not understood");
    // SAFETY: there are no bytes.
    unsafe { weir_error_set(bytes(b"")) };
    assert!(said().is_empty());
}

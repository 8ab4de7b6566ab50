//! Backups of a database that is in use. How they bear crashes and faults: `crash/backup.rs`.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir::{BackgroundStep, Database, Error, Isolation, Options, Shutdown, Table, Value};
use weir_os::sim::{ObservedDisk, Operation};
use weir_os::{Create, Disk, Mode, SimDisk};

fn item(id: u64) -> Item {
    let mut rng = fastrand::Rng::with_seed(id);
    (id as i64 % 100, format!("{id}"), (0..300).map(|_| rng.u8(..)).collect())
}

fn insert(db: &Database, table: &Table, ids: impl Iterator<Item = u64>) {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in ids {
        txn.insert(table, &values(id, &item(id))).unwrap();
    }
    txn.commit().unwrap();
}

fn ids(db: &Database) -> Vec<u64> {
    let table = db.table("items").unwrap();
    let items = all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table);
    items.into_iter().map(|(id, _)| id).collect()
}

/// It was where the copy had come to, in the middle of a group: no start could read the log from
/// there.
#[test]
fn a_checkpoint_beside_a_backup_is_where_the_log_can_be_read_from() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Database::open(dir.path(), options(64 << 20, 64 << 20)).unwrap();
    let db = open();
    let table = db.create_table("items", items()).unwrap();
    drop((table, db));
    for (nth, steps) in (1..=4).enumerate() {
        let db = open();
        let first = nth as u64 * 10_000;
        insert(&db, &db.table("items").unwrap(), first..first + 10_000);
        let copy = tempfile::tempdir().unwrap();
        let mut backup = db.begin_backup(copy.path()).unwrap();
        for _ in 0..steps {
            assert!(backup.step().unwrap());
            db.checkpoint().unwrap();
        }
        drop((backup, db));
        let db = open();
        assert!(ids(&db).into_iter().eq(0..first + 10_000), "after {steps} steps");
        db.check(&mut |finding| panic!("{finding}")).unwrap();
    }
}

const WRITERS: u64 = 3;
/// Rows of a transaction.
const BLOCK: u64 = 20;
/// Blocks of each writer that there are.
const LIVE: u64 = 200;

/// What writers have committed: blocks, by their numbers.
struct Committed([AtomicU64; WRITERS as usize]);

impl Committed {
    fn now(&self) -> Vec<u64> {
        self.0.iter().map(|blocks| blocks.load(Ordering::Acquire)).collect()
    }
}

fn ids_of(writer: u64, block: u64) -> impl Iterator<Item = u64> {
    (block * BLOCK..(block + 1) * BLOCK).map(move |n| n * WRITERS + writer)
}

/// Inserts blocks of rows and deletes the oldest ones, and takes back what it has done now and
/// then.
fn write(db: &Database, table: &Table, writer: u64, committed: &Committed, stop: &AtomicBool) {
    for block in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        ids_of(writer, block).for_each(|id| txn.insert(table, &values(id, &item(id))).unwrap());
        let oldest = block.checked_sub(LIVE).into_iter().flat_map(|old| ids_of(writer, old));
        oldest.for_each(|id| assert!(txn.delete(table, &[Value::U64(id)]).unwrap()));
        txn.commit().unwrap();
        committed.0[writer as usize].store(block + 1, Ordering::Release);
        if block % 7 == 0 {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            ids_of(writer, block).for_each(|id| {
                txn.delete(table, &[Value::U64(id)]).unwrap();
            });
            txn.rollback().unwrap();
        }
    }
}

/// A copy has all blocks of each writer up to one that was its last between `before` and `after`,
/// and no part of another.
fn assert_one_moment(copy: &Database, before: &[u64], after: &[u64]) {
    let found = ids(copy);
    for writer in 0..WRITERS {
        let of_writer: Vec<u64> =
            found.iter().copied().filter(|id| id % WRITERS == writer).collect();
        let last = of_writer.last().map_or(0, |id| id / WRITERS / BLOCK + 1);
        let range = before[writer as usize]..=after[writer as usize] + 1;
        assert!(range.contains(&last), "{last} of {range:?}");
        let blocks = last.saturating_sub(LIVE)..last;
        assert_eq!(of_writer, blocks.flat_map(|b| ids_of(writer, b)).collect::<Vec<_>>());
    }
    check_quiet(copy);
}

/// Beside writers, and a log that becomes longer and shorter, and is full all the time.
#[test]
fn a_backup_beside_writers_is_the_database_at_one_moment() {
    let _watchdog = Watchdog::new("a backup beside writers");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path().join("db"), options(8 << 20, 4 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let (stop, committed) = (AtomicBool::new(false), Committed(Default::default()));
    let backups = 8 * factor();
    std::thread::scope(|scope| {
        let (db, table, committed) = (&db, &table, &committed);
        let stopped = &stop;
        for writer in 0..WRITERS {
            scope.spawn(move || write(db, table, writer, committed, stopped));
        }
        scope.spawn(move || {
            for capacity in [2, 16, 1, 6, 32, 3].into_iter().cycle() {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                db.set_redo_capacity(capacity << 20).unwrap();
                std::thread::sleep(Duration::from_millis(40));
            }
        });
        // The others end, too, if this fails.
        let _stop = Stop(&stop);
        let mut rng = fastrand::Rng::with_seed(seed());
        for number in 0..backups {
            while committed.now().iter().any(|&blocks| blocks < 50 * (number + 1)) {
                std::thread::yield_now();
            }
            let to = dir.path().join(format!("backup-{number}"));
            let before = committed.now();
            let mut backup = db.begin_backup(&to).unwrap();
            let after = committed.now();
            let pause = Duration::from_millis(rng.u64(..20));
            while backup.step().unwrap() {
                std::thread::sleep(pause);
            }
            let progress = backup.progress();
            assert_eq!(progress.bytes_done, progress.bytes_total);
            drop(backup);
            let copy = Database::open(&to, options(64 << 20, 4 << 20)).unwrap();
            assert_one_moment(&copy, &before, &after);
            copy.close(Shutdown::Fast, &mut |_| {}).unwrap();
        }
    });
    assert_eq!(db.status().backups_made, backups);
    check_quiet(&db);
}

/// Has others stop, however its owner ends.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Holds up operations of a file while it is closed.
#[derive(Default)]
struct Gate {
    closed: AtomicBool,
    /// Whether somebody waits.
    waiting: AtomicBool,
}

impl Gate {
    fn pass(&self) {
        if self.closed.load(Ordering::SeqCst) {
            self.waiting.store(true, Ordering::SeqCst);
            until(|| !self.closed.load(Ordering::SeqCst));
        }
    }
}

fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A disk that has the gate before some operations.
fn gated(
    disk: &SimDisk,
    gate: &Arc<Gate>,
    is_before: impl Fn(&Operation<'_>) -> bool + Send + Sync + 'static,
) -> Arc<ObservedDisk> {
    let gate = gate.clone();
    Arc::new(ObservedDisk::new(disk.clone(), move |operation| {
        if !operation.is_done && is_before(operation) {
            gate.pass();
        }
        Ok(())
    }))
}

/// Checkpoints waited for it, and commits that only they sync.
#[test]
fn a_target_that_hangs_while_the_map_is_copied_holds_nobody_up() {
    let _watchdog = Watchdog::new("a target that hangs");
    let db = Database::open_on(Arc::new(SimDisk::new(1)), options(8 << 20, 64 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    insert(&db, &table, 0..1000);
    db.checkpoint().unwrap();
    let gate = Arc::new(Gate { closed: AtomicBool::new(true), ..Gate::default() });
    let to = SimDisk::new(2);
    std::thread::scope(|scope| {
        let hanging = gated(&to, &gate, |operation| {
            operation.file == "map" && matches!(operation.name, "read" | "write")
        });
        let backup = scope.spawn(|| db.begin_backup_on(hanging).unwrap().finish().unwrap());
        until(|| gate.waiting.load(Ordering::SeqCst));
        for first in (1000..20_000).step_by(1000) {
            insert(&db, &table, first..first + 1000);
            db.checkpoint().unwrap();
            db.sync().unwrap();
        }
        gate.closed.store(false, Ordering::SeqCst);
        backup.join().unwrap();
    });
    let copy = Database::open_on(Arc::new(to), options(8 << 20, 64 << 20)).unwrap();
    assert_eq!(ids(&copy), (0..20_000).collect::<Vec<_>>());
    check_quiet(&copy);
}

/// The copy's data file was as long as this one's before the moment, and lacked images of just
/// then.
#[test]
fn a_data_file_that_grows_while_the_moment_is_settled_is_copied_to_its_end() {
    let _watchdog = Watchdog::new("a data file that grows");
    let gate = Arc::new(Gate::default());
    let with = || options(8 << 20, 64 << 20);
    let disk = gated(&SimDisk::new(1), &gate, |operation| {
        operation.file.starts_with("redo-") && operation.name == "sync"
    });
    let db = Database::open_on(disk, with()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    insert(&db, &table, 0..20_000);
    db.checkpoint().unwrap();
    let (to, stop) = (SimDisk::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (db, table, stopped, gate) = (&db, &table, &stop, &gate);
        scope.spawn(move || {
            for first in (20_000..).step_by(100).take_while(|_| !stopped.load(Ordering::Relaxed)) {
                insert(db, table, first..first + 100);
            }
        });
        scope.spawn(move || {
            until(|| gate.waiting.load(Ordering::SeqCst));
            let before = db.status();
            until(|| {
                let now = db.status();
                let written = now.page_bytes_written - before.page_bytes_written;
                now.data_file_bytes > before.data_file_bytes && written > 3 << 20
            });
            gate.closed.store(false, Ordering::SeqCst);
        });
        let _stop = Stop(&stop);
        // Once the copy's map is open, a sync of the log waits.
        let closing = gate.clone();
        let target = ObservedDisk::new(to.clone(), move |operation| {
            if !operation.is_done && (operation.file, operation.name) == ("map", "open") {
                closing.closed.store(true, Ordering::SeqCst);
                until(|| closing.waiting.load(Ordering::SeqCst));
            }
            Ok(())
        });
        let backup = db.begin_backup_on(Arc::new(target)).unwrap();
        backup.finish().unwrap();
    });
    check_quiet(&Database::open_on(Arc::new(to), with()).unwrap());
}

#[test]
fn a_directory_that_is_in_use_for_something_else_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("notes"), "mine").unwrap();
    let db = filled(&SimDisk::new(1), 100);
    let error = db.backup(dir.path()).unwrap_err();
    assert!(matches!(error, Error::BackupTarget { .. }), "{error}");
    let names = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["notes"]);
}

/// A thread that writes more than the log holds, instead of going on with its backup, waited for
/// itself.
#[test]
fn a_backup_that_is_not_gone_on_with_is_given_up() {
    let _watchdog = Watchdog::new("a backup that is not gone on with");
    let db = Database::open_on(Arc::new(SimDisk::new(1)), options(8 << 20, 1 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let to = SimDisk::new(2);
    let mut backup = db.begin_backup_on(Arc::new(to.clone())).unwrap();
    (0..50).for_each(|n| insert(&db, &table, n * 100..(n + 1) * 100));
    for _ in 0..2 {
        let error = backup.step().unwrap_err().to_string();
        assert!(error.contains("given up"), "{error}");
    }
    drop(backup);
    assert_eq!(to.list().unwrap(), Vec::<String>::new());
    assert_eq!(db.status().backups_failed, 1);
}

/// A step that failed kept the log, and writers waited until the backup was dropped.
#[test]
fn a_step_that_failed_keeps_nothing_and_its_directory_keeps_what_others_put_there() {
    let _watchdog = Watchdog::new("a step that failed");
    let db = Database::open_on(Arc::new(SimDisk::new(1)), options(8 << 20, 1 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    insert(&db, &table, 0..500);
    let to = SimDisk::new(2);
    let mut backup = db.begin_backup_on(Arc::new(to.clone())).unwrap();
    to.open("notes", Create::New, Mode::Cached).unwrap();
    to.set_capacity(Some(0));
    let error = backup.step().unwrap_err().to_string();
    assert!(error.contains("sim/redo-"), "{error}");
    let before = db.status().lsn_last_checkpoint;
    insert(&db, &table, 500..600);
    db.checkpoint().unwrap();
    assert!(db.status().lsn_last_checkpoint > before);
    drop(backup);
    assert_eq!(to.list().unwrap(), ["notes"]);
}

fn small() -> Options {
    options(4 << 20, 4 << 20).single_threaded()
}

fn filled(disk: &SimDisk, rows: u64) -> Database {
    let db = Database::open_on(Arc::new(disk.clone()), small()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    insert(&db, &table, 0..rows);
    db.checkpoint().unwrap();
    db
}

#[test]
fn a_backup_goes_into_an_empty_directory_and_one_is_made_at_a_time() {
    let db = filled(&SimDisk::new(1), 100);
    // With a table of dirty pages, which comes along.
    insert(&db, &db.table("items").unwrap(), 100..200);
    db.background_step(BackgroundStep::NoteDirtyPages).unwrap();
    let to = SimDisk::new(2);
    let backup = db.begin_backup_on(Arc::new(to.clone())).unwrap();
    let other = db.begin_backup_on(Arc::new(SimDisk::new(3)));
    assert!(matches!(other, Err(Error::BackupRunning)), "{:?}", other.err());
    // Nobody opens what isn't complete.
    let opened = Database::open_on(Arc::new(to.clone()), small());
    assert!(matches!(opened, Err(Error::Storage(_))), "{:?}", opened.err());
    backup.finish().unwrap();
    assert!(to.list().unwrap().contains(&"dirty".to_string()));
    let again = db.begin_backup_on(Arc::new(to.clone()));
    assert!(matches!(again, Err(Error::BackupTarget { .. })), "{:?}", again.err());
    assert_eq!((db.status().backups_made, db.status().backups_failed), (1, 1));
    assert_eq!(ids(&Database::open_on(Arc::new(to), small()).unwrap()).len(), 200);
}

#[test]
fn a_backup_that_is_dropped_leaves_nothing_and_holds_nothing() {
    const ROWS: u64 = 15_000;
    let db = filled(&SimDisk::new(1), ROWS);
    let table = db.table("items").unwrap();
    let to = SimDisk::new(2);
    let mut backup = db.begin_backup_on(Arc::new(to.clone())).unwrap();
    assert!(backup.step().unwrap());
    assert!(db.status().backup_bytes_left > 0);
    drop(backup);
    assert_eq!(to.list().unwrap(), Vec::<String>::new());
    assert_eq!((db.status().backups_failed, db.status().backup_bytes_left), (1, 0));
    // What is given up from now on is free again.
    let before = db.status().data_file_bytes;
    for _ in 0..8 {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in 0..ROWS {
            txn.upsert(&table, &values(id, &item(id))).unwrap();
        }
        txn.commit().unwrap();
        db.checkpoint().unwrap();
    }
    db.purge_all().unwrap();
    assert!(db.status().data_file_bytes < 3 * before, "{before}, {}", db.status().data_file_bytes);
}

/// The database goes on at the backup's cost.
#[test]
fn a_device_without_room_ends_the_backup_and_not_the_database() {
    let disk = SimDisk::new(1);
    let db = filled(&disk, 2000);
    let table = db.table("items").unwrap();
    let to = SimDisk::new(2);
    let mut backup = db.begin_backup_on(Arc::new(to.clone())).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + (1 << 20)));
    // Each turn writes all pages anew.
    for turn in 0..10 {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in 0..2000 {
            let (_, b, body) = item(id);
            txn.upsert(&table, &values(id, &(turn, b, body))).unwrap();
        }
        txn.commit().unwrap();
        db.checkpoint().unwrap();
        db.purge_all().unwrap();
    }
    let error = loop {
        match backup.step() {
            Ok(more) => assert!(more, "the space was needed"),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("has no room left"), "{error}");
    drop(backup);
    assert_eq!(to.list().unwrap(), Vec::<String>::new());
    assert_eq!(ids(&db).len(), 2000);
    check_quiet(&db);
}

#[test]
fn a_full_target_or_a_closed_database_ends_a_backup() {
    let db = filled(&SimDisk::new(1), 2000);
    let full = SimDisk::new(2);
    full.set_capacity(Some(1 << 20));
    let error =
        db.begin_backup_on(Arc::new(full.clone())).and_then(weir::Backup::finish).unwrap_err();
    assert!(error.to_string().contains("sim/"), "{error}");
    assert_eq!(full.list().unwrap(), Vec::<String>::new());
    let to = SimDisk::new(3);
    let mut backup = db.begin_backup_on(Arc::new(to.clone())).unwrap();
    db.close(Shutdown::Fast, &mut |_| {}).unwrap();
    let error = backup.step().unwrap_err().to_string();
    assert!(error.contains("closed"), "{error}");
    drop(backup);
    assert_eq!(to.list().unwrap(), Vec::<String>::new());
}

/// The copy told of it when it was opened, which might be when it was needed.
#[test]
fn a_damaged_log_is_no_part_of_a_backup() {
    let disk = SimDisk::new(1);
    let db = Database::open_on(Arc::new(disk.clone()), small().single_threaded()).unwrap();
    let segment_bytes = db.status().lsn_last_checkpoint;
    let table = db.create_table("items", items()).unwrap();
    insert(&db, &table, 0..500);
    db.sync().unwrap();
    let (from, to) = (db.status().lsn_last_checkpoint, db.status().lsn_current);
    let backup = |to: &SimDisk| db.begin_backup_on(Arc::new(to.clone()))?.finish();
    for place in (from..to).step_by((to - from) as usize / 50).chain([to - 1]) {
        let file = format!("redo-{:010}", place / segment_bytes);
        let rot = || disk.rot(&file, 4096 + place % segment_bytes, 5).unwrap();
        rot();
        let copy = SimDisk::new(2);
        let error = backup(&copy).unwrap_err();
        let text = error.to_string();
        assert!(
            error.is_corrupt() && text.contains("redo-") && text.contains(" at offset "),
            "{text}"
        );
        assert!(copy.list().unwrap().is_empty(), "nothing is left of it");
        rot();
    }
    disk.rot(&format!("redo-{:010}", from / segment_bytes), 20, 5).unwrap();
    assert!(backup(&SimDisk::new(3)).unwrap_err().is_corrupt(), "its header");
    disk.rot(&format!("redo-{:010}", from / segment_bytes), 20, 5).unwrap();
    backup(&SimDisk::new(4)).unwrap();
}

/// What is damaged would be damaged in each copy, and nobody might look before the last good one is
/// gone.
#[test]
fn a_damaged_page_is_no_part_of_a_backup() {
    let disk = SimDisk::new(1);
    let db = filled(&disk, 2000);
    let (mut failed, mut whole) = (0, 0);
    for unit in 0..disk.open("data", Create::No, Mode::Direct).unwrap().len().unwrap() / 4096 {
        let rot = || disk.rot("data", unit * 4096 + 16, 1).unwrap();
        rot();
        let to = SimDisk::new(2);
        match db.begin_backup_on(Arc::new(to.clone())).and_then(|backup| backup.finish()) {
            // The middle of an image, which may be free of payload, or free space.
            Ok(_) => whole += 1,
            Err(error) => {
                failed += 1;
                assert!(error.is_damaged_page(), "{error}");
                let found = error.to_string();
                assert!(found.contains("data is corrupt at offset"), "{found}");
                assert!(to.list().unwrap().is_empty(), "nothing is left of it");
            }
        }
        rot();
    }
    assert!(failed > 100 && whole > 0, "{failed} failed, {whole} whole");
    assert_eq!(db.status().backups_failed, failed);
    db.begin_backup_on(Arc::new(SimDisk::new(3))).unwrap().finish().unwrap();
}

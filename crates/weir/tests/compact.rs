//! A data file full of holes becomes shorter, and nothing in it changes.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir::{Database, Isolation, Table, Value};
use weir_os::SimDisk;

fn item(id: u64) -> Item {
    let mut rng = fastrand::Rng::with_seed(id);
    (id as i64, format!("{id}"), (0..1500).map(|_| rng.u8(..)).collect())
}

/// A table of which every tenth row is left, and few of the pages that were there.
fn with_holes(db: &Database, rows: u64) -> Table {
    let table = db.create_table("items", items()).unwrap();
    let passing = db.create_table("passing", items()).unwrap();
    for from in (0..rows).step_by(50) {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in from..from + 50 {
            let into = if id % 10 == 0 { &table } else { &passing };
            txn.insert(into, &values(id, &item(id))).unwrap();
        }
        txn.commit().unwrap();
        // So that pages of both lie in turn.
        if from % 1000 == 0 {
            db.checkpoint().unwrap();
        }
    }
    db.drop_table(&passing).unwrap();
    db.purge_all().unwrap();
    db.checkpoint().unwrap();
    table
}

fn assert_rows(db: &Database, table: &Table, rows: u64) {
    let expected: Vec<(u64, Item)> = (0..rows).step_by(10).map(|id| (id, item(id))).collect();
    let found = all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), table);
    same(&expected, &found, "after compaction");
}

#[test]
fn a_file_with_holes_becomes_shorter() {
    const ROWS: u64 = 30_000;
    let disk = SimDisk::new(1);
    let open = |disk: &SimDisk| {
        let options = options(8 << 20, 8 << 20).single_threaded();
        Database::open_on(Arc::new(disk.clone()), options).unwrap()
    };
    let db = open(&disk);
    let table = with_holes(&db, ROWS);
    let used = db.status().data_used_bytes;
    let before = db.status().data_file_bytes;
    assert!(before > 2 * used + (4 << 20), "{before} bytes for {used}: there are holes");
    let compacted = db.compact(&mut |_| {}).unwrap();
    let after = db.status().data_file_bytes;
    assert_eq!((compacted.bytes_before, compacted.bytes_after), (before, after));
    assert!(compacted.pages_moved > 0);
    assert!(after < used + used / 4 + (4 << 20), "{after} bytes for {used}, {before} before");
    assert_rows(&db, &table, ROWS);
    check_quiet(&db);
    let again = db.compact(&mut |_| {}).unwrap();
    assert_eq!(again.pages_moved, 0, "there is nothing left to win");
    drop((table, db));
    let db = open(&disk.crash(1));
    let table = db.table("items").unwrap();
    assert_rows(&db, &table, ROWS);
    check_quiet(&db);
}

/// The power fails at any operation of a compaction.
#[test]
fn a_crash_while_a_file_is_compacted_loses_nothing() {
    const ROWS: u64 = 12_000;
    let disk = SimDisk::new(1);
    let options = options(4 << 20, 4 << 20).single_threaded();
    let open = |disk: &SimDisk| Database::open_on(Arc::new(disk.clone()), options.clone());
    drop({
        let db = open(&disk).unwrap();
        with_holes(&db, ROWS);
        db
    });
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut shorter = 0;
    for _ in 0..20 * factor() {
        let disk = disk.process_kill();
        let db = open(&disk).unwrap();
        disk.crash_at(disk.operations() + rng.u64(..400));
        shorter += u32::from(db.compact(&mut |_| {}).is_ok());
        disk.power_off();
        drop(db);
        let db = open(&disk.crash(rng.u64(..))).unwrap();
        let table = db.table("items").unwrap();
        assert_rows(&db, &table, ROWS);
        let mut findings = Vec::new();
        db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "{findings:#?}");
    }
    assert!(shorter < 20 * factor() as u32, "some crashed");
}

/// Rows are written and read while the file is compacted, again and again.
#[test]
fn others_go_on_while_a_file_is_compacted() {
    let _watchdog = Watchdog::new("others_go_on_while_a_file_is_compacted");
    const ROWS: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
    let table = with_holes(&db, ROWS);
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let (db, table, running) = (&db, &table, &running);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                while running.load(Ordering::Relaxed) {
                    let id = (rng.u64(..ROWS / 20) * 2 + thread) * 10;
                    retried(db, Isolation::default(), |txn| {
                        assert!(txn.delete(table, &[Value::U64(id)])?);
                        txn.insert(table, &values(id, &item(id)))
                    });
                }
            });
        }
        for _ in 0..5 {
            db.compact(&mut |_| {}).unwrap();
            let passing = db.create_table("more", items()).unwrap();
            retried(&db, Isolation::default(), |txn| {
                (0..2000).try_for_each(|id| txn.insert(&passing, &values(id, &item(id))))
            });
            db.drop_table(&passing).unwrap();
        }
        running.store(false, Ordering::Relaxed);
    });
    assert_rows(&db, &table, ROWS);
    check_quiet(&db);
}

//! Backups of a database that is in use. How they bear crashes and faults: `crash/backup.rs`.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir::{Database, Error, Isolation, Options, Shutdown, Table};
use weir_os::{Disk, SimDisk};

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

/// Writers that insert rows in order, each with the rows that its transaction takes back: a backup has all rows up to one of
/// each writer, at least those that were there when it began.
#[test]
fn a_backup_beside_writers_is_the_database_at_one_moment() {
    let _watchdog = Watchdog::new("a backup beside writers");
    const WRITERS: u64 = 3;
    const ROWS: u64 = 5;
    let dir = tempfile::tempdir().unwrap();
    // A log that is full all the time, and memory for a part of the data.
    let with = || options(8 << 20, 4 << 20);
    let db = Database::open(dir.path().join("db"), with()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let stop = AtomicBool::new(false);
    let committed: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, table, stop, committed) = (&db, &table, &stop, &committed);
            scope.spawn(move || {
                for turn in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let ids = (turn * ROWS..(turn + 1) * ROWS).map(|n| n * WRITERS + writer);
                    insert(db, table, ids.clone());
                    committed[writer as usize].store(turn + 1, Ordering::Release);
                    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                    for id in ids {
                        assert!(txn.delete(table, &[weir::Value::U64(id)]).unwrap());
                    }
                    txn.rollback().unwrap();
                }
            });
        }
        for number in 0..3 * factor() {
            while committed[0].load(Ordering::Acquire) < 300 * (number + 1) {
                std::thread::yield_now();
            }
            let to = dir.path().join(format!("backup-{number}"));
            let turns = || committed.iter().map(|turns| turns.load(Ordering::Acquire));
            let before: Vec<u64> = turns().collect();
            let backup = db.begin_backup(&to).unwrap();
            let after: Vec<u64> = turns().map(|turns| turns + 1).collect();
            let progress = backup.finish().unwrap();
            assert_eq!(progress.bytes_done, progress.bytes_total);
            let copy = Database::open(&to, options(64 << 20, 4 << 20)).unwrap();
            let found = ids(&copy);
            for writer in 0..WRITERS {
                let of_writer = found.iter().filter(|&&id| id % WRITERS == writer);
                let numbers: Vec<u64> = of_writer.map(|id| id / WRITERS).collect();
                let turns = numbers.len() as u64 / ROWS;
                let range = before[writer as usize]..=after[writer as usize];
                assert!(range.contains(&turns), "{turns} of {range:?}");
                assert_eq!(numbers, (0..turns * ROWS).collect::<Vec<_>>());
            }
            check_quiet(&copy);
            copy.close(Shutdown::Fast, &mut |_| {}).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(db.status().backups_made, 3 * factor());
    check_quiet(&db);
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
    let to = SimDisk::new(2);
    let backup = db.begin_backup_on(Arc::new(to.clone())).unwrap();
    let other = db.begin_backup_on(Arc::new(SimDisk::new(3)));
    assert!(matches!(other, Err(Error::BackupRunning)), "{:?}", other.err());
    // Nobody opens what isn't complete.
    let opened = Database::open_on(Arc::new(to.clone()), small());
    assert!(matches!(opened, Err(Error::Storage(_))), "{:?}", opened.err());
    backup.finish().unwrap();
    let again = db.begin_backup_on(Arc::new(to.clone()));
    assert!(matches!(again, Err(Error::BackupTarget { .. })), "{:?}", again.err());
    assert_eq!((db.status().backups_made, db.status().backups_failed), (1, 1));
    assert_eq!(ids(&Database::open_on(Arc::new(to), small()).unwrap()).len(), 100);
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

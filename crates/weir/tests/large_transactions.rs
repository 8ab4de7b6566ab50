//! Transactions larger than what may be staged: what they have staged is moved while they run.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::staged::*;
use common::*;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use weir::{
    BackgroundStep, Bounds, Database, Direction, Durability, Entry, IndexRef, Isolation, KeyOf,
    Lock, RawIndex, RawRange, Schema, Table, Transaction, Value, Wait,
};
use weir_os::SimDisk;

const ROWS: u64 = 400;

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ends {
    Commits,
    /// The machine fails before what it leaves is purged.
    CommitsInTime,
    RollsBack,
    /// The machine fails while it runs.
    Crashes,
    /// It is prepared, the machine fails, and then it is decided.
    CommitsPrepared,
    RollsBackPrepared,
}

/// Everything that is staged is moved as soon as it may be.
fn open(disk: SimDisk) -> Database {
    let options = eager(8 << 20, 0).single_threaded().durability(Durability::Sync);
    Database::open_on(Arc::new(disk), options).unwrap()
}

/// Random inserts, deletes, and updates that change the place in the index, some of which are taken
/// back.
fn change(
    db: &Database,
    txn: &mut Transaction,
    table: &Table,
    rng: &mut fastrand::Rng,
    model: &mut Model,
) {
    for _ in 0..rng.u32(10..40) {
        let (savepoint, before) = (txn.savepoint().unwrap(), model.clone());
        for _ in 0..rng.u32(1..30) {
            let id = rng.u64(..2 * ROWS);
            // So few that entries come back to where they were.
            let new = (rng.i64(..5), format!("{id}"), vec![rng.u8(..); rng.usize(..20)]);
            match model.contains_key(&id) {
                false => txn.insert(table, &values(id, &new)).unwrap(),
                true if rng.bool() => {
                    assert!(txn.delete(table, &[Value::U64(id)]).unwrap());
                    model.remove(&id);
                    continue;
                }
                true => assert!(txn.update(table, &values(id, &new)).unwrap()),
            }
            model.insert(id, new);
        }
        if rng.u8(..4) == 0 {
            txn.rollback_to(savepoint).unwrap();
            *model = before;
        }
        if rng.bool() {
            db.background_step(BackgroundStep::MoveStaged).unwrap();
        }
        if rng.u8(..4) == 0 {
            compare(txn, table, model, "own writes");
        }
    }
}

#[test]
fn what_is_moved_of_a_running_transaction_is_as_it_leaves_it() {
    let seed = seed();
    for round in 0..10 * factor() {
        for ends in [
            Ends::Commits,
            Ends::CommitsInTime,
            Ends::RollsBack,
            Ends::Crashes,
            Ends::CommitsPrepared,
            Ends::RollsBackPrepared,
        ] {
            let mut rng = fastrand::Rng::with_seed(seed + round);
            ends_well(&mut rng, ends, &format!("{ends:?}, round {round}"));
        }
    }
}

fn ends_well(rng: &mut fastrand::Rng, ends: Ends, what: &str) {
    let disk = SimDisk::new(rng.u64(..));
    let mut db = open(disk.clone());
    let mut table = db.create_table("items", items()).unwrap();
    let before = load(&db, &table, rng, 0..ROWS);
    (0..100).for_each(|_| db.background_step(BackgroundStep::MoveStaged).unwrap());
    let moved = db.status().staged_entries_moved;
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    compare(&mut reader, &table, &before, what);
    let mut after = before.clone();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    // By chance some change little before they come to a move.
    let is_moved = || db.status().staged_entries_moved > moved + 20;
    for _ in 0..10 {
        change(&db, &mut txn, &table, rng, &mut after);
        if is_moved() {
            break;
        }
    }
    assert!(is_moved(), "{what}: it is moved meanwhile");
    compare(&mut reader, &table, &before, what);
    compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &before, what);
    compare(&mut txn, &table, &after, what);
    let mut seen = &before;
    match ends {
        Ends::Commits => txn.commit().unwrap(),
        Ends::RollsBack => txn.rollback().unwrap(),
        Ends::CommitsInTime | Ends::Crashes | Ends::CommitsPrepared | Ends::RollsBackPrepared => {
            match ends {
                Ends::CommitsInTime => txn.commit().unwrap(),
                Ends::Crashes => {
                    // What it has written is on the device.
                    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
                    other.insert(&table, &values(3 * ROWS, &(0, "other".into(), vec![]))).unwrap();
                    other.delete(&table, &[Value::U64(3 * ROWS)]).unwrap();
                    other.commit().unwrap();
                    std::mem::forget(txn);
                }
                _ => {
                    txn.prepare(b"x").unwrap();
                    txn.detach().unwrap();
                }
            }
            if rng.bool() {
                db.checkpoint().unwrap();
            }
            let failed = disk.crash(rng.u64(..));
            drop((reader, table));
            std::mem::forget(db);
            db = open(failed);
            table = db.table("items").unwrap();
            reader = db.begin(Isolation::RepeatableRead).unwrap();
            if ends == Ends::CommitsInTime {
                seen = &after;
            }
            compare(&mut reader, &table, seen, what);
            if rng.bool() {
                db.background_step(BackgroundStep::MoveStaged).unwrap();
            }
            match ends {
                Ends::CommitsPrepared => db.commit_prepared(b"x", Durability::Sync).unwrap(),
                Ends::RollsBackPrepared => db.rollback_prepared(b"x", Durability::Sync).unwrap(),
                _ => {}
            }
        }
    }
    let rows = match ends {
        Ends::Commits | Ends::CommitsInTime | Ends::CommitsPrepared => &after,
        Ends::RollsBack | Ends::RollsBackPrepared | Ends::Crashes => &before,
    };
    compare(&mut reader, &table, seen, what);
    compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, rows, what);
    assert_sound(&db);
    drop(reader);
    for _ in 0..100 {
        db.background_step(BackgroundStep::MoveStaged).unwrap();
        db.purge_all().unwrap();
    }
    assert_eq!(db.status().staging_pages, 0, "{what}: all is moved");
    compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, rows, what);
    assert_sound(&db);
}

/// What is taken back by a tombstone is in the main tree until both are moved, and a scan that
/// began when nothing was staged doesn't look for tombstones.
#[test]
fn a_scan_that_began_before_a_rollback_sees_nothing_of_it() {
    const LOADED: u64 = 4000;
    for direction in [Direction::Forward, Direction::Backward] {
        let db = open(SimDisk::new(1));
        let table = db.create_table("items", items()).unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        load(&db, &table, &mut rng, 0..LOADED);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in LOADED..2 * LOADED {
            txn.insert(&table, &values(id, &(rng.i64(..), format!("{id:08}"), vec![]))).unwrap();
        }
        (0..200).for_each(|_| db.background_step(BackgroundStep::MoveStaged).unwrap());
        assert_eq!(db.status().staging_pages, 0, "all is moved");
        let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
        let by_a = IndexRef::Named("by_a");
        let mut scan = reader.scan(&table, by_a, Bounds::all(), direction).unwrap();
        let mut found = 0;
        while found < 10 {
            scan.next().unwrap().unwrap();
            found += 1;
        }
        let staged = db.status().staged_entries;
        txn.rollback().unwrap();
        assert!(db.status().staged_entries - staged > LOADED / 2, "tombstones are put");
        for n in 0..100 {
            let mut other = db.begin(Isolation::RepeatableRead).unwrap();
            other.insert(&table, &values(3 * LOADED + n, &(0, format!("o{n}"), vec![]))).unwrap();
            other.commit().unwrap();
            db.background_step(BackgroundStep::Purge).unwrap();
        }
        while scan.next().unwrap().is_some() {
            found += 1;
        }
        assert_eq!(found, LOADED, "{direction:?}");
    }
}

/// A raw table with an index whose entries have the keys of their rows.
fn keyed(db: &Database) -> Table {
    let schema = Schema::raw(vec![RawIndex::new("keys", false)], Vec::new()).unwrap();
    db.create_table("raw", schema).unwrap()
}

fn insert(txn: &mut Transaction, table: &Table, id: u32) -> weir::Result<()> {
    let key = id.to_be_bytes();
    txn.insert_raw(table, &key, b"row", &[Entry { index: 0, key: &key, value: b"v" }])
}

fn keys(txn: &mut Transaction, table: &Table, of: KeyOf, lock: Lock) -> weir::Result<Vec<u32>> {
    let mut scan = txn.scan_raw(table, of, RawRange::all(), Direction::Forward, lock)?;
    let mut found = Vec::new();
    while let Some(entry) = scan.next(txn)? {
        found.push(u32::from_be_bytes(entry.key.try_into().unwrap()));
    }
    Ok(found)
}

/// Scans passed over it, and gave what it hides.
#[test]
fn a_tombstone_that_a_rollback_puts_into_a_dead_range_is_seen() {
    let db = open(SimDisk::new(1));
    let table = keyed(&db);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (10..60).for_each(|id| insert(&mut txn, &table, 100 * id).unwrap());
    (0..200).for_each(|_| db.background_step(BackgroundStep::MoveStaged).unwrap());
    assert_eq!(db.status().staging_pages, 0, "all is moved");
    // Keeps purge away.
    let mut old = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(keys(&mut old, &table, KeyOf::Index(0), Lock::None).unwrap().is_empty());
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    let between = || (1000..6000).filter(|id| id % 100 != 0);
    for id in between() {
        // Until it is staged.
        loop {
            let (before, savepoint) = (db.status().staged_entries, other.savepoint().unwrap());
            insert(&mut other, &table, id).unwrap();
            if db.status().staged_entries > before {
                break;
            }
            other.rollback_to(savepoint).unwrap();
        }
    }
    for id in between() {
        let key = id.to_be_bytes();
        let entry = Entry { index: 0, key: &key, value: b"v" };
        other.delete_raw(&table, &key, &[entry]).unwrap();
    }
    other.commit().unwrap();
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(keys(&mut reader, &table, KeyOf::Index(0), Lock::None).unwrap().is_empty());
    let staged = db.status().staged_entries;
    txn.rollback().unwrap();
    assert!(db.status().staged_entries > staged + 10, "tombstones are put");
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(keys(&mut reader, &table, KeyOf::Index(0), Lock::None).unwrap().is_empty());
    assert_sound(&db);
}

/// Entries that tombstones stood for were its own until it ended, and had lost their undo records.
#[test]
fn what_is_taken_back_to_a_savepoint_is_nobody_s() {
    for round in 0..20 {
        let options = eager(8 << 20, 0).single_threaded().lock_wait_timeout(Duration::ZERO);
        let db = Database::open_on(Arc::new(SimDisk::new(round)), options).unwrap();
        let table = keyed(&db);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        insert(&mut txn, &table, 7).unwrap();
        let savepoint = txn.savepoint().unwrap();
        insert(&mut txn, &table, 1000).unwrap();
        (0..50).for_each(|_| db.background_step(BackgroundStep::MoveStaged).unwrap());
        txn.rollback_to(savepoint).unwrap();
        let mut other = db.begin(Isolation::ReadCommitted).unwrap();
        let low = Bound::Included(&1000_u32.to_be_bytes()[..]);
        let range = RawRange::new(low, Bound::Unbounded);
        let (of, lock) = (KeyOf::Index(0), Lock::Exclusive(Wait::ForTimeout));
        let mut scan = other.scan_raw(&table, of, range, Direction::Forward, lock).unwrap();
        assert!(scan.next(&mut other).unwrap().is_none());
        drop(scan);
        insert(&mut other, &table, 1000).unwrap();
        other.rollback().unwrap();
        txn.prepare(b"x").unwrap();
        assert_sound(&db);
    }
}

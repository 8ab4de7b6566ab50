//! Scans that lock what they give.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Watchdog, factor, items, options, values};
use std::time::Duration;
use weir::{
    Bounds, Database, Direction, Error, IndexRef, Isolation, Lock, Table, Transaction, Value, Wait,
};

fn open(dir: &std::path::Path, staging: bool, timeout: Duration) -> (Database, Table) {
    let options = options(8 << 20, 8 << 20).lock_wait_timeout(timeout);
    let options = if staging { options.staging_leaves(4) } else { options };
    let db = Database::open(dir, options).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 0..100 {
        txn.insert(&table, &values(id, &(id as i64 % 10, format!("b{id:03}"), vec![]))).unwrap();
    }
    txn.commit().unwrap();
    (db, table)
}

fn scan(
    txn: &mut Transaction,
    table: &Table,
    index: IndexRef<'_>,
    bounds: Bounds<'_>,
    lock: Lock,
) -> weir::Result<Vec<u64>> {
    let mut cursor = txn.scan_locking(table, index, bounds, Direction::Forward, lock)?;
    let mut ids = Vec::new();
    while let Some(row) = cursor.next()? {
        ids.push(row.get(0)?.as_u64().unwrap());
    }
    Ok(ids)
}

#[test]
fn rows_of_an_index_are_locked_and_those_of_others_refused_or_passed_over() {
    for staging in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(dir.path(), staging, Duration::ZERO);
        let three = [Value::I64(3)];
        let of_three = Bounds::prefix(&three);
        let by_a = IndexRef::Named("by_a");
        let mut one = db.begin(Isolation::ReadCommitted).unwrap();
        let mut two = db.begin(Isolation::ReadCommitted).unwrap();
        // One moves a row out of the group, another one into it, and locks a third.
        one.upsert(&table, &values(13, &(4, "b013".into(), vec![]))).unwrap();
        one.upsert(&table, &values(99, &(3, "b099".into(), vec![]))).unwrap();
        one.get_for_update(&table, &[Value::U64(23)]).unwrap();
        for wait in [Wait::No, Wait::ForTimeout] {
            let found = scan(&mut two, &table, by_a, of_three, Lock::Exclusive(wait));
            assert!(matches!(found, Err(Error::LockWaitTimeout)));
        }
        let skip = Lock::Exclusive(Wait::Skip);
        let rest = [3, 33, 43, 53, 63, 73, 83, 93];
        assert_eq!(scan(&mut two, &table, by_a, of_three, skip).unwrap(), rest);
        one.commit().unwrap();
        let mut one = db.begin(Isolation::RepeatableRead).unwrap();
        assert_eq!(scan(&mut one, &table, by_a, of_three, skip).unwrap(), [23, 99]);
        let all = scan(&mut two, &table, by_a, of_three, Lock::Shared(Wait::Skip)).unwrap();
        assert_eq!(all, rest);
        let locked = one.delete(&table, &[Value::U64(3)]);
        assert!(matches!(locked, Err(Error::LockWaitTimeout)));
    }
}

/// No increment is lost, whatever the level: each is of the newest version, under lock.
#[test]
fn increments_by_locking_scans_are_all_there() {
    let _watchdog = Watchdog::new("increments");
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable]
    {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(dir.path(), true, Duration::from_secs(60));
        let rounds = 20 * factor();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        common::retried(&db, isolation, |txn| {
                            let group = [Value::I64(7)];
                            let mut cursor = txn.scan_locking(
                                &table,
                                "by_a",
                                Bounds::prefix(&group),
                                Direction::Backward,
                                Lock::Exclusive(Wait::ForTimeout),
                            )?;
                            let mut rows = Vec::new();
                            while let Some(row) = cursor.next()? {
                                rows.push(common::item_of(&row.to_row()?));
                            }
                            assert_eq!(rows.len(), 10);
                            for (id, (a, b, body)) in rows {
                                let count = body.first().copied().unwrap_or(0) + 1;
                                txn.update(&table, &values(id, &(a, b, vec![count])))?;
                            }
                            Ok(())
                        });
                    }
                });
            }
        });
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let items = common::all_items(&mut txn, &table);
        let counts = items.iter().filter(|(_, item)| item.0 == 7).map(|(_, item)| item.2[0]);
        assert!(counts.clone().all(|count| u64::from(count) == 3 * rounds), "{isolation:?}");
        assert_eq!(counts.count(), 10);
    }
}

/// Somebody reads rows under lock, moves one of them ahead of a scan that waits for it, and
/// commits: the scan finds it there, though it had read that far before.
#[test]
fn a_row_that_moves_ahead_of_a_waiting_scan_is_found() {
    let _watchdog = Watchdog::new("moving rows");
    for (staging, index, direction) in [
        (false, IndexRef::Primary, Direction::Forward),
        (false, IndexRef::Primary, Direction::Backward),
        (false, IndexRef::Named("by_a"), Direction::Forward),
        (true, IndexRef::Named("by_a"), Direction::Forward),
        (true, IndexRef::Named("by_a"), Direction::Backward),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(dir.path(), staging, Duration::from_secs(60));
        let mut mover = db.begin(Isolation::RepeatableRead).unwrap();
        mover.get_for_update(&table, &[Value::U64(55)]).unwrap();
        let found = std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                let all = Bounds::all();
                let lock = Lock::Exclusive(Wait::ForTimeout);
                let mut cursor = txn.scan_locking(&table, index, all, direction, lock).unwrap();
                let mut moved = Vec::new();
                while let Some(row) = cursor.next().unwrap() {
                    moved.push(row.get(2).unwrap() == Value::Text("moved"));
                }
                moved
            });
            while db.status().row_lock_waits == 0 {
                std::thread::yield_now();
            }
            mover.delete(&table, &[Value::U64(55)]).unwrap();
            // Its group is 5: 1 and 8 lie on either side.
            let (id, a) = match direction {
                Direction::Forward => (1000, 8),
                Direction::Backward => (0, 1),
            };
            if direction == Direction::Backward {
                mover.delete(&table, &[Value::U64(0)]).unwrap();
            }
            mover.insert(&table, &values(id, &(a, "moved".into(), vec![]))).unwrap();
            mover.commit().unwrap();
            waiter.join().unwrap()
        });
        let count = if direction == Direction::Forward { 100 } else { 99 };
        assert_eq!(found.len(), count, "{staging} {index:?} {direction:?}");
        let moved = found.iter().filter(|moved| **moved).count();
        assert_eq!(moved, 1, "{staging} {index:?} {direction:?}");
    }
}

/// A row that others have locked ends no scan: it comes to it again, as often as it is asked to.
#[test]
fn a_scan_comes_again_to_a_row_that_it_could_not_lock() {
    for (staging, index, direction) in [
        (false, IndexRef::Primary, Direction::Forward),
        (false, IndexRef::Primary, Direction::Backward),
        (false, IndexRef::Named("by_a"), Direction::Forward),
        (true, IndexRef::Named("by_a"), Direction::Forward),
        (true, IndexRef::Named("by_a"), Direction::Backward),
        (false, IndexRef::Named("by_b"), Direction::Forward),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(dir.path(), staging, Duration::ZERO);
        let mut other = db.begin(Isolation::RepeatableRead).unwrap();
        other.get_for_update(&table, &[Value::U64(40)]).unwrap();
        other.get_for_update(&table, &[Value::U64(75)]).unwrap();
        let (mut other, mut failed) = (Some(other), 0);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let lock = Lock::Exclusive(Wait::ForTimeout);
        let mut cursor = txn.scan_locking(&table, index, Bounds::all(), direction, lock).unwrap();
        let mut found = Vec::new();
        loop {
            match cursor.next() {
                Ok(None) => break,
                Ok(Some(row)) => found.push(row.get(0).unwrap().as_u64().unwrap()),
                Err(Error::LockWaitTimeout) => {
                    failed += 1;
                    if failed == 3 {
                        other.take().unwrap().rollback().unwrap();
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        let mut expected: Vec<u64> = (0..100).collect();
        if index == IndexRef::Named("by_a") {
            expected.sort_by_key(|id| (id % 10, *id));
        }
        if direction == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(found, expected, "{staging} {index:?} {direction:?}");
        assert_eq!(failed, 3);
    }
}

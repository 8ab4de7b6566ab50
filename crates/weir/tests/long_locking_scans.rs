//! Scans that lock many rows lock what they have read as a whole: to others and to themselves that
//! is the same as locks of the rows.
#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::{Item, Watchdog, factor, item_of, items, options, retried, seed, values};
use std::time::Duration;
use weir::{
    Bounds, Database, Direction, Error, IndexRef, Isolation, KeyOf, Lock, LockExtent, RawRange,
    Row, Schema, Table, Transaction, Value, Wait,
};

const ROWS: u64 = 3000;
const FOR_UPDATE: Lock = Lock::Exclusive(Wait::ForTimeout);

/// Every second id has a row.
fn open(dir: &std::path::Path, timeout: Duration) -> (Database, Table) {
    let options = options(16 << 20, 32 << 20).lock_wait_timeout(timeout);
    let db = Database::open(dir, options).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in (0..2 * ROWS).step_by(2) {
        txn.insert(&table, &values(id, &item(id, 0))).unwrap();
    }
    txn.commit().unwrap();
    (db, table)
}

fn item(id: u64, count: i64) -> Item {
    (count, format!("b{id}"), vec![7; 20])
}

fn scan(
    txn: &mut Transaction,
    table: &Table,
    way: Direction,
    lock: Lock,
) -> weir::Result<Vec<Row>> {
    let mut cursor = txn.scan_locking(table, IndexRef::Primary, Bounds::all(), way, lock)?;
    let mut rows = Vec::new();
    while let Some(row) = cursor.next()? {
        rows.push(row.to_row()?);
    }
    Ok(rows)
}

fn id_of(row: &Row) -> u64 {
    item_of(row).0
}

fn timed_out<T>(result: weir::Result<T>) {
    assert!(matches!(result, Err(Error::LockWaitTimeout)), "it had to wait for nobody");
}

/// Ways of a scan, and whether its transaction locks ranges from the first row on.
fn kinds() -> impl Iterator<Item = (Direction, bool)> {
    let ways = [Direction::Forward, Direction::Backward];
    ways.into_iter().flat_map(|way| [(way, false), (way, true)])
}

#[test]
fn a_long_scan_takes_few_locks_and_keeps_others_out() {
    for (way, locks_ranges) in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(dir.path(), Duration::ZERO);
        let mut one = db.begin(Isolation::RepeatableRead).unwrap();
        one.set_locks_ranges(locks_ranges).unwrap();
        assert_eq!(scan(&mut one, &table, way, FOR_UPDATE).unwrap().len() as u64, ROWS);
        let locks = db.locks();
        assert!(locks.len() < 300, "{} locks", locks.len());
        let ranges = locks.iter().filter(|lock| lock.extent != LockExtent::Key).count();
        assert_eq!(ranges, 1);

        let mut two = db.begin(Isolation::RepeatableRead).unwrap();
        for id in (0..2 * ROWS).step_by(500) {
            let key = [Value::U64(id)];
            timed_out(two.get_for_update(&table, &key));
            timed_out(two.get_for_update_nowait(&table, &key));
            timed_out(two.update(&table, &values(id, &item(id, 1))));
            timed_out(two.delete(&table, &key));
            assert!(two.get(&table, &key).unwrap().is_some());
        }
        timed_out(scan(&mut two, &table, way, Lock::Shared(Wait::ForTimeout)));
        timed_out(scan(&mut two, &table, way, Lock::Exclusive(Wait::No)));
        let skip = Lock::Exclusive(Wait::Skip);
        assert_eq!(scan(&mut two, &table, way, skip).unwrap().len(), 0);
        // Its own.
        one.update(&table, &values(500, &item(500, 1))).unwrap();
        assert!(one.get_for_update(&table, &[Value::U64(1000)]).unwrap().is_some());
        one.commit().unwrap();
        let found = scan(&mut two, &table, way, FOR_UPDATE).unwrap();
        assert_eq!(found.iter().map(|row| item_of(row).1.0).sum::<i64>(), 1);
    }
}

#[test]
fn shared_scans_go_side_by_side_and_keep_writers_out() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(dir.path(), Duration::ZERO);
    let shared = Lock::Shared(Wait::ForTimeout);
    let begin = || db.begin(Isolation::RepeatableRead).unwrap();
    let (mut one, mut two, mut three) = (begin(), begin(), begin());
    for txn in [&mut one, &mut two] {
        assert_eq!(scan(txn, &table, Direction::Forward, shared).unwrap().len() as u64, ROWS);
    }
    let key = [Value::U64(2000)];
    timed_out(three.get_for_update(&table, &key));
    timed_out(three.delete(&table, &key));
    one.commit().unwrap();
    timed_out(three.delete(&table, &key));
    two.commit().unwrap();
    assert!(three.delete(&table, &key).unwrap());
}

#[test]
fn who_has_waited_to_read_a_row_keeps_no_other_reader_out() {
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(dir.path(), Duration::from_secs(60));
    let begin = || {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.set_locks_ranges(true).unwrap();
        txn
    };
    let mut one = begin();
    scan(&mut one, &table, Direction::Forward, FOR_UPDATE).unwrap();
    std::thread::scope(|scope| {
        let two = scope.spawn(|| {
            let mut two = begin();
            two.get_for_share(&table, &[Value::U64(2000)]).unwrap();
            two
        });
        while db.status().row_lock_waits == 0 {
            std::thread::yield_now();
        }
        one.commit().unwrap();
        let _two = two.join().unwrap();
        let at_once = Lock::Shared(Wait::No);
        let found = scan(&mut begin(), &table, Direction::Forward, at_once).unwrap();
        assert_eq!(found.len() as u64, ROWS);
    });
}

#[test]
fn a_row_that_others_have_locked_is_waited_for_where_it_lies() {
    for locks_ranges in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(dir.path(), Duration::ZERO);
        let mut other = db.begin(Isolation::RepeatableRead).unwrap();
        other.get_for_update(&table, &[Value::U64(4000)]).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.set_locks_ranges(locks_ranges).unwrap();
        let (all, way) = (Bounds::all(), Direction::Forward);
        let mut cursor = txn.scan_locking(&table, IndexRef::Primary, all, way, FOR_UPDATE).unwrap();
        for id in (0..4000).step_by(2) {
            assert_eq!(id_of(&cursor.next().unwrap().unwrap().to_row().unwrap()), id);
        }
        timed_out(cursor.next().map(drop));
        drop(cursor);
        // It isn't waited for by those for whom it waits.
        other.update(&table, &values(4000, &item(4000, 1))).unwrap();
        other.commit().unwrap();
        let found = scan(&mut txn, &table, way, FOR_UPDATE).unwrap();
        assert_eq!(found.len() as u64, ROWS);
        assert_eq!(found.iter().map(|row| item_of(row).1.0).sum::<i64>(), 1);
    }
}

/// Nobody gets a row's lock who could not write the row: the scan would wait for it, and be waited
/// for.
#[test]
fn what_a_scan_has_locked_the_range_of_is_locked_by_no_other() {
    for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(dir.path(), Duration::ZERO);
        let (mut one, mut two) = (db.begin(isolation).unwrap(), db.begin(isolation).unwrap());
        one.set_locks_ranges(true).unwrap();
        let (all, way) = (Bounds::all(), Direction::Forward);
        let mut cursor = one.scan_locking(&table, IndexRef::Primary, all, way, FOR_UPDATE).unwrap();
        cursor.next().unwrap().unwrap();
        for id in (0..40).step_by(2) {
            if two.get_for_update(&table, &[Value::U64(id)]).is_ok() {
                two.update(&table, &values(id, &item(id, 1))).unwrap();
                break;
            }
        }
        two.rollback().unwrap();
        for id in (2..100).step_by(2) {
            assert_eq!(id_of(&cursor.next().unwrap().unwrap().to_row().unwrap()), id);
        }
    }
}

/// One increments the rows that its scans come to, others one row at a time: none is lost, whoever
/// locks how.
#[test]
fn increments_beside_long_scans_are_all_there() {
    let _watchdog = Watchdog::new("increments_beside_long_scans");
    let seed = seed();
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(dir.path(), Duration::from_secs(60));
    let (rounds, points) = (6 * factor(), 200 * factor());
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + thread);
                for _ in 0..rounds {
                    let way = if rng.bool() { Direction::Forward } else { Direction::Backward };
                    let locks_ranges = rng.bool();
                    retried(db, Isolation::RepeatableRead, |txn| {
                        txn.set_locks_ranges(locks_ranges)?;
                        for row in scan(txn, table, way, FOR_UPDATE)? {
                            let (id, (count, ..)) = item_of(&row);
                            if id % 20 == 0 {
                                txn.update(table, &values(id, &item(id, count + 1)))?;
                            }
                        }
                        Ok(())
                    });
                }
            });
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + 10 + thread);
                for _ in 0..points {
                    retried(db, Isolation::ReadCommitted, |txn| {
                        let id = 20 * rng.u64(..2 * ROWS / 20);
                        let row = txn.get_for_update(table, &[Value::U64(id)])?.unwrap();
                        let count = item_of(&row).1.0;
                        txn.update(table, &values(id, &item(id, count + 1))).map(drop)
                    });
                }
            });
        }
    });
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let rows = common::all_items(&mut txn, &table);
    let sum: i64 = rows.iter().map(|(_, item)| item.0).sum();
    assert_eq!(sum as u64, 2 * points + 2 * rounds * (2 * ROWS / 20));
}

/// What a transaction changes ahead of its own scan, the scan gives as changed: rows that are
/// locked one by one, then together, and rows whose long keys begin alike.
#[test]
fn a_long_scan_sees_what_its_transaction_changes_meanwhile() {
    for prefix in [0, 3500] {
        sees_what_its_transaction_changes_meanwhile(&vec![7; prefix]);
    }
}

fn sees_what_its_transaction_changes_meanwhile(prefix: &[u8]) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(16 << 20, 32 << 20)).unwrap();
    let table = db.create_table("raw", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let key = |id: u32| [prefix, &id.to_be_bytes()].concat();
    let long = vec![9; 5000];
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 0..2000 {
        txn.insert_raw(&table, &key(id), b"old", &[]).unwrap();
    }
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let (of, all, way) = (KeyOf::Primary, RawRange::all(), Direction::Forward);
    let mut scan = txn.scan_raw(&table, of, all, way, FOR_UPDATE).unwrap();
    let mut before = None;
    while let Some(entry) = scan.next(&mut txn).unwrap() {
        let id = u32::from_be_bytes(entry.key[prefix.len()..].try_into().unwrap());
        let expected: &[u8] = match id % 10 {
            5 => b"new",
            6 => &long,
            _ => b"old",
        };
        assert_eq!((id % 10 == 7, entry.value), (false, expected), "{id}");
        let follows = if id % 10 == 8 { id - 2 } else { id.saturating_sub(1) };
        assert!(before.is_none_or(|before| before == follows), "{before:?} before {id}");
        before = Some(id);
        if id % 10 == 0 {
            assert!(!txn.update_raw(&table, &key(id + 5), b"new", &[], &[]).unwrap());
            txn.update_raw(&table, &key(id + 6), &long, &[], &[]).unwrap();
            txn.delete_raw(&table, &key(id + 7), &[]).unwrap();
        }
    }
    assert_eq!(before, Some(1999));
}

/// As a queue's first job is taken: `SELECT ... LIMIT 1 FOR UPDATE`.
#[test]
fn a_scan_that_wants_one_row_leaves_the_next_to_others() {
    for (way, locks_ranges) in kinds() {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = open(dir.path(), Duration::ZERO);
        let mut one = db.begin(Isolation::RepeatableRead).unwrap();
        one.set_locks_ranges(locks_ranges).unwrap();
        let mut cursor =
            one.scan_locking(&table, IndexRef::Primary, Bounds::all(), way, FOR_UPDATE).unwrap();
        let first = id_of(&cursor.next().unwrap().unwrap().to_row().unwrap());
        drop(cursor);
        let next = if way == Direction::Forward { first + 2 } else { first - 2 };
        let mut two = db.begin(Isolation::RepeatableRead).unwrap();
        timed_out(two.get_for_update(&table, &[Value::U64(first)]));
        assert!(two.get_for_update(&table, &[Value::U64(next)]).unwrap().is_some());
    }
}

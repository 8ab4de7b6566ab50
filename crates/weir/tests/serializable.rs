//! Serializable transactions: as if one ran after the other.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Watchdog, check_quiet, factor, items, options, retried, seed, values};
use fastrand::Rng;
use std::ops::Bound::{Excluded, Included};
use std::sync::Barrier;
use std::time::Duration;
use weir::{
    Bounds, Database, Direction, Entry, Error, IndexRef, Isolation, KeyOf, Lock, Options, Pair,
    RawIndex, RawRange, Schema, Table, Transaction, Value, Wait,
};

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

fn impatient(staging: bool) -> Options {
    let options = options(8 << 20, 8 << 20).lock_wait_timeout(Duration::ZERO);
    if staging { options.staging_leaves(4) } else { options }
}

fn insert(txn: &mut Transaction, table: &Table, id: u64, a: i64) -> weir::Result<()> {
    txn.insert(table, &values(id, &(a, format!("b{id:06}"), vec![1; 20])))
}

/// Ids of the rows of a part of an index.
fn ids(
    txn: &mut Transaction,
    table: &Table,
    index: IndexRef<'_>,
    bounds: Bounds<'_>,
    direction: Direction,
) -> weir::Result<Vec<u64>> {
    let mut cursor = txn.scan(table, index, bounds, direction)?;
    let mut ids = Vec::new();
    while let Some(row) = cursor.next()? {
        ids.push(row.get(0)?.as_u64().unwrap());
    }
    Ok(ids)
}

fn filled(db: &Database, rows: u64) -> Table {
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (0..rows).for_each(|id| insert(&mut txn, &table, 10 * id, id as i64).unwrap());
    txn.commit().unwrap();
    table
}

fn times_out<T>(result: weir::Result<T>) -> bool {
    match result {
        Ok(_) => false,
        Err(Error::LockWaitTimeout) => true,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn nothing_appears_in_or_goes_from_what_was_read() {
    for (staging, direction) in [false, true].into_iter().flat_map(|s| DIRECTIONS.map(|d| (s, d))) {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), impatient(staging)).unwrap();
        let table = filled(&db, 1000);
        for index in ["primary", "by_a", "by_b"] {
            let (low, high) = match index {
                "primary" => (Value::U64(3000), Value::U64(4000)),
                "by_a" => (Value::I64(300), Value::I64(400)),
                _ => (Value::Text("b003000"), Value::Text("b004000")),
            };
            let of = if index == "primary" { IndexRef::Primary } else { IndexRef::Named(index) };
            let (low, high) = ([low], [high]);
            let bounds = Bounds::new(Included(&low), Excluded(&high));
            let mut reader = db.begin(Isolation::Serializable).unwrap();
            let found = ids(&mut reader, &table, of, bounds, direction).unwrap();
            assert_eq!(found.len(), 100, "{index}");
            let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
            assert!(times_out(insert(&mut writer, &table, 3005, 350)), "{index}");
            assert!(times_out(writer.delete(&table, &[Value::U64(3500)])), "{index}");
            let moved = (350, "b003505".to_string(), vec![9]);
            let stays_out = times_out(writer.upsert(&table, &values(7777, &moved)));
            assert_eq!(stays_out, index != "primary", "{index}");
            // What lies outside of it may be written.
            insert(&mut writer, &table, 4005, 4000).unwrap();
            assert!(writer.delete(&table, &[Value::U64(4500)]).unwrap());
            assert_eq!(ids(&mut reader, &table, of, bounds, direction).unwrap(), found);
            writer.rollback().unwrap();
            reader.commit().unwrap();
            let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
            insert(&mut writer, &table, 3005, 350).unwrap();
            writer.rollback().unwrap();
        }
        assert!(db.locks().is_empty());
        check_quiet(&db);
    }
}

#[test]
fn a_row_that_was_not_there_stays_away() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), impatient(false)).unwrap();
    let table = filled(&db, 10);
    let mut reader = db.begin(Isolation::Serializable).unwrap();
    assert!(reader.get(&table, &[Value::U64(5)]).unwrap().is_none());
    assert!(!reader.delete(&table, &[Value::U64(15)]).unwrap());
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(times_out(insert(&mut writer, &table, 5, 5)));
    assert!(times_out(insert(&mut writer, &table, 15, 5)));
    insert(&mut writer, &table, 6, 6).unwrap();
    // Nor does a reader see what is not committed.
    assert!(times_out(reader.get(&table, &[Value::U64(6)])));
    let all = ids(&mut reader, &table, IndexRef::Primary, Bounds::all(), Direction::Forward);
    assert!(times_out(all));
    writer.commit().unwrap();
    assert!(reader.get(&table, &[Value::U64(6)]).unwrap().is_some());
    insert(&mut reader, &table, 5, 5).unwrap();
    reader.commit().unwrap();
}

/// Which rows are there is told by a duplicate, too.
#[test]
fn what_was_in_the_way_of_an_insert_stays_there() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), impatient(false)).unwrap();
    let table = filled(&db, 10);
    let raw = db.create_table("raw", Schema::raw(Vec::new(), Vec::new()).unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert_raw(&raw, b"key", b"row", &[]).unwrap();
    txn.commit().unwrap();
    let is_duplicate = |result| matches!(result, Err(Error::Duplicate { .. }));
    // By the unique index, several at once, by the key of a raw table.
    let mut reader = db.begin(Isolation::Serializable).unwrap();
    let taken = |id: u64| (0, format!("b{id:06}"), vec![]);
    assert!(is_duplicate(reader.insert(&table, &values(1000, &taken(20)))));
    assert!(is_duplicate(reader.insert_many(&table, &[values(1001, &taken(30))])));
    assert!(is_duplicate(reader.insert_raw(&raw, b"key", b"other", &[])));
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(times_out(writer.delete(&table, &[Value::U64(20)])));
    assert!(times_out(writer.delete(&table, &[Value::U64(30)])));
    assert!(times_out(writer.delete_raw(&raw, b"key", &[])));
    assert!(writer.delete(&table, &[Value::U64(40)]).unwrap());
    assert!(is_duplicate(reader.insert(&table, &values(1000, &taken(20)))));
    reader.commit().unwrap();
    assert!(writer.delete(&table, &[Value::U64(20)]).unwrap());
    writer.delete_raw(&raw, b"key", &[]).unwrap();
}

#[test]
fn ranges_are_listed_and_gone_with_their_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), impatient(false)).unwrap();
    let table = filled(&db, 100);
    let mut reader = db.begin(Isolation::Serializable).unwrap();
    let all = Bounds::all();
    ids(&mut reader, &table, IndexRef::Primary, all, Direction::Forward).unwrap();
    let locks = db.locks();
    assert_eq!(locks.len(), 1);
    assert_eq!((&locks[0].key[..], &locks[0].extent), (&b""[..], &weir::LockExtent::To(None)));
    let savepoint = reader.savepoint().unwrap();
    reader.rollback_to(savepoint).unwrap();
    assert_eq!(db.locks().len(), 1);
    drop(reader);
    assert!(db.locks().is_empty());
}

#[test]
fn locking_reads_of_overlapping_ranges_wait_for_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), impatient(false)).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert_raw(&table, b"b", b"", &[]).unwrap();
    txn.commit().unwrap();
    let scan = |txn: &mut Transaction, prefix: &[u8], lock| {
        let range = RawRange::prefix(prefix);
        let mut scan = txn.scan_raw(&table, KeyOf::Primary, range, Direction::Forward, lock)?;
        while scan.next(txn)?.is_some() {}
        Ok::<_, Error>(())
    };
    let mut one = db.begin(Isolation::Serializable).unwrap();
    let mut two = db.begin(Isolation::Serializable).unwrap();
    // There is no row in that range.
    scan(&mut one, b"a", Lock::Exclusive(Wait::ForTimeout)).unwrap();
    assert!(times_out(scan(&mut two, b"ab", Lock::Exclusive(Wait::No))));
    assert!(times_out(scan(&mut two, b"ab", Lock::None)));
    scan(&mut two, b"b", Lock::Exclusive(Wait::No)).unwrap();
    assert!(times_out(two.insert_raw(&table, b"ab", b"", &[])));
    one.insert_raw(&table, b"ab", b"", &[]).unwrap();
    one.commit().unwrap();
    scan(&mut two, b"ab", Lock::Exclusive(Wait::No)).unwrap();
}

/// Two go off duty, each having seen the other on duty.
#[test]
fn write_skew_ends_in_a_deadlock_for_one_of_two() {
    let _watchdog = Watchdog::new("write skew");
    for by in [IndexRef::Primary, IndexRef::Named("by_a")] {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (1..=2).for_each(|id| insert(&mut txn, &table, id, 1).unwrap());
        txn.commit().unwrap();
        let both_have_read = Barrier::new(2);
        let go_off = |id: u64| {
            let mut txn = db.begin(Isolation::Serializable)?;
            let on_duty = ids(&mut txn, &table, by, Bounds::all(), Direction::Forward)?;
            both_have_read.wait();
            assert_eq!(on_duty, [1, 2]);
            assert!(txn.delete(&table, &[Value::U64(id)])?);
            txn.commit()
        };
        let results = std::thread::scope(|scope| {
            let threads = [1, 2].map(|id| scope.spawn(move || go_off(id)));
            threads.map(|thread| thread.join().unwrap())
        });
        let deadlocks = results.iter().filter(|r| matches!(r, Err(Error::Deadlock))).count();
        assert_eq!(deadlocks, 1, "{results:?}");
        assert!(results.iter().any(Result::is_ok), "{results:?}");
        assert!(db.locks().is_empty());
        check_quiet(&db);
    }
}

/// Two read the same empty range, then both insert into it.
#[test]
fn range_readers_that_insert_deadlock_and_one_goes_on() {
    let _watchdog = Watchdog::new("range readers");
    for staging in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = if staging {
            options(8 << 20, 8 << 20).staging_leaves(4)
        } else {
            options(8 << 20, 8 << 20)
        };
        let db = Database::open(dir.path(), options).unwrap();
        let schema = Schema::raw(vec![RawIndex::new("i", false)], vec![]).unwrap();
        let table = db.create_table("t", schema).unwrap();
        let both_have_read = Barrier::new(2);
        let add = |n: u8| {
            let mut txn = db.begin(Isolation::Serializable)?;
            let range = RawRange::prefix(b"x");
            let (of, forward) = (KeyOf::Index(0), Direction::Forward);
            let mut scan = txn.scan_raw(&table, of, range, forward, Lock::None)?;
            assert!(scan.next(&mut txn)?.is_none());
            both_have_read.wait();
            let entry = Entry { index: 0, key: &[b'x', n], value: b"" };
            txn.insert_raw(&table, &[n], b"row", &[entry])?;
            txn.commit()
        };
        let results = std::thread::scope(|scope| {
            let threads = [1, 2].map(|n| scope.spawn(move || add(n)));
            threads.map(|thread| thread.join().unwrap())
        });
        let deadlocks = results.iter().filter(|r| matches!(r, Err(Error::Deadlock))).count();
        assert_eq!(deadlocks, 1, "{results:?}");
        assert!(results.iter().any(Result::is_ok), "{results:?}");
        check_quiet(&db);
    }
}

/// Each transaction counts what is there and writes the count down. One after the other, they write
/// each number once.
#[test]
fn counts_written_down_are_those_of_a_serial_order() {
    let _watchdog = Watchdog::new("counts");
    let seed = seed();
    for (round, by) in ["primary", "by_a", "by_b"].into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(8 << 20, 8 << 20).staging_leaves(4);
        let db = Database::open(dir.path(), options).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let threads = 4;
        let each = 25 * factor();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (db, table) = (&db, &table);
                let mut rng = Rng::with_seed(seed ^ (round as u64 * 100 + thread));
                scope.spawn(move || {
                    for _ in 0..each {
                        let (id, direction) = (rng.u64(..), DIRECTIONS[rng.usize(..2)]);
                        retried(db, Isolation::Serializable, |txn| {
                            let of = match by {
                                "primary" => IndexRef::Primary,
                                name => IndexRef::Named(name),
                            };
                            let seen = ids(txn, table, of, Bounds::all(), direction)?.len();
                            let row = (seen as i64, format!("{id:x}"), vec![]);
                            txn.insert(table, &values(id, &row))
                        });
                    }
                });
            }
        });
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let items = common::all_items(&mut txn, &table);
        let mut counts: Vec<i64> = items.iter().map(|(_, item)| item.0).collect();
        counts.sort_unstable();
        assert_eq!(counts, (0..(threads * each) as i64).collect::<Vec<_>>(), "{by}");
        drop(txn);
        assert!(db.locks().is_empty());
        check_quiet(&db);
    }
}

/// Groups never have more members than is checked before one joins, whatever joins and leaves
/// meanwhile.
#[test]
fn a_limit_that_is_checked_before_each_insert_holds() {
    const LIMIT: usize = 3;
    let _watchdog = Watchdog::new("limit");
    let seed = seed();
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20).staging_leaves(4)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, table) = (&db, &table);
            let mut rng = Rng::with_seed(seed + thread);
            scope.spawn(move || {
                for _ in 0..100 * factor() {
                    let (group, id, leaves) = (rng.i64(..5), rng.u64(..), rng.u8(..4) == 0);
                    retried(db, Isolation::Serializable, |txn| {
                        let only = [Value::I64(group)];
                        let (by_a, of_group) = (IndexRef::Named("by_a"), Bounds::prefix(&only));
                        let members = ids(txn, table, by_a, of_group, Direction::Forward)?;
                        assert!(members.len() <= LIMIT);
                        match members.first() {
                            Some(first) if leaves => {
                                txn.delete(table, &[Value::U64(*first)]).map(drop)
                            }
                            _ if members.len() < LIMIT => {
                                txn.insert(table, &values(id, &(group, format!("{id:x}"), vec![])))
                            }
                            _ => Ok(()),
                        }
                    });
                }
            });
        }
    });
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for group in 0..5 {
        let only = [Value::I64(group)];
        let by_a = IndexRef::Named("by_a");
        let members =
            ids(&mut txn, &table, by_a, Bounds::prefix(&only), Direction::Forward).unwrap();
        assert!(members.len() <= LIMIT, "group {group}: {members:?}");
    }
    drop(txn);
    check_quiet(&db);
}

#[test]
fn a_statement_to_be_repeated_elsewhere_locks_what_it_depends_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), impatient(false)).unwrap();
    let table = filled(&db, 1000);
    let (low, high) = ([Value::I64(300)], [Value::I64(400)]);
    let bounds = Bounds::new(Included(&low), Excluded(&high));
    for locks_ranges in [false, true] {
        let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
        writer.set_locks_ranges(locks_ranges).unwrap();
        let lock = Lock::Exclusive(Wait::ForTimeout);
        let index = IndexRef::Named("by_a");
        let mut cursor =
            writer.scan_locking(&table, index, bounds, Direction::Forward, lock).unwrap();
        while cursor.next().unwrap().is_some() {}
        drop(cursor);
        assert!(matches!(insert(&mut writer, &table, 5000, 1), Err(Error::Duplicate { .. })));
        let mut other = db.begin(Isolation::RepeatableRead).unwrap();
        assert_eq!(times_out(insert(&mut other, &table, 3005, 350)), locks_ranges);
        assert_eq!(times_out(other.delete(&table, &[Value::U64(5000)])), locks_ranges);
        other.rollback().unwrap();
    }
    check_quiet(&db);
}

#[test]
fn a_row_that_is_not_there_stays_away_from_who_locks_ranges() {
    let dir = tempfile::tempdir().unwrap();
    let db =
        Database::open(dir.path(), options(8 << 20, 8 << 20).lock_wait_timeout(Duration::ZERO));
    let db = db.unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    type Change = fn(&mut Transaction, &Table) -> weir::Result<()>;
    let changes: [Change; 3] = [
        |txn, table| txn.update_raw(table, b"k", b"v", &[], &[]).map(drop),
        |txn, table| txn.delete_raw(table, b"k", &[]),
        |txn, table| txn.delete_many_raw(table, &mut [Pair::key_alone(b"k")], &mut []),
    ];
    for change in changes {
        let mut txn = db.begin(Isolation::Serializable).unwrap();
        assert!(matches!(change(&mut txn, &table), Err(Error::NoSuchRow(_))));
        let mut other = db.begin(Isolation::Serializable).unwrap();
        let inserted = other.insert_raw(&table, b"k", b"v", &[]);
        assert!(matches!(inserted, Err(Error::LockWaitTimeout)), "{inserted:?}");
        assert!(matches!(change(&mut txn, &table), Err(Error::NoSuchRow(_))));
    }
    check_quiet(&db);
}

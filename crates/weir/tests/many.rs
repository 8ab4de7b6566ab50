//! Rows inserted or deleted at once: the same as one after the other, or nothing.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use weir::{
    Database, Error, Isolation, Lock, Options, Pair, RawIndex, Schema, Shutdown, Table,
    Transaction, Value,
};

type Model = BTreeMap<u64, Item>;

fn random_item(rng: &mut fastrand::Rng, id: u64) -> Item {
    let long = if rng.u8(..40) == 0 { 9000 } else { 30 };
    // Now and then two rows have the same, which must be unique.
    let b = if rng.u8(..60) == 0 { rng.u64(..50) } else { 1000 + id };
    (rng.i64(-50..50), b.to_string(), vec![id as u8; rng.usize(..long)])
}

/// Whether the model takes all of the rows.
fn takes(model: &Model, rows: &[(u64, Item)]) -> bool {
    let mut texts: BTreeSet<&str> = model.values().map(|item| &item.1[..]).collect();
    let mut ids: BTreeSet<u64> = model.keys().copied().collect();
    rows.iter().all(|(id, item)| ids.insert(*id) && texts.insert(&item.1))
}

fn insert_many(txn: &mut Transaction, table: &Table, rows: &[(u64, Item)]) -> weir::Result<()> {
    let rows: Vec<_> = rows.iter().map(|(id, item)| values(*id, item)).collect();
    txn.insert_many(table, &rows)
}

fn delete_many(txn: &mut Transaction, table: &Table, ids: &[u64]) -> weir::Result<usize> {
    let keys: Vec<_> = ids.iter().map(|id| [Value::U64(*id)]).collect();
    txn.delete_many(table, &keys)
}

fn compare(db: &Database, table: &Table, model: &Model) {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let expected: Vec<(u64, Item)> = model.iter().map(|(k, v)| (*k, v.clone())).collect();
    same(&expected, &all_items(&mut txn, table), "rows");
}

/// Batches of all sizes among deletes and rollbacks, with and without staging; reopened, the log
/// tells the same.
#[test]
fn model_of_batches_with_duplicates_deletes_and_rollbacks() {
    let seed = seed();
    for round in 0..6 * factor() {
        let mut rng = fastrand::Rng::with_seed(seed + round);
        let dir = tempfile::tempdir().unwrap();
        let options = || {
            let options = options(4 << 20, 64 << 20);
            if round % 2 == 0 { options } else { options.staging_leaves(3) }
        };
        let db = Database::open(dir.path(), options()).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let mut model = Model::new();
        for _ in 0..60 {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            let mut after = model.clone();
            for _ in 0..rng.usize(1..4) {
                let (first, ascends) = (rng.u64(..20_000), rng.bool());
                let count = [1, 10, 100, 700][rng.usize(..4)];
                let mut rows: Vec<(u64, Item)> = Vec::new();
                for n in 0..count {
                    let id = if ascends { first + n } else { rng.u64(..20_000) };
                    rows.push((id, random_item(&mut rng, id)));
                }
                match insert_many(&mut txn, &table, &rows) {
                    Ok(()) => {
                        assert!(takes(&after, &rows), "a duplicate was inserted");
                        after.extend(rows);
                    }
                    Err(Error::Duplicate { .. }) => assert!(!takes(&after, &rows)),
                    Err(error) => panic!("{error}"),
                }
                for _ in 0..rng.usize(..40) {
                    let id = rng.u64(..20_000);
                    let there = after.remove(&id).is_some();
                    assert_eq!(txn.delete(&table, &[Value::U64(id)]).unwrap(), there);
                }
                let (first, ascends) = (rng.u64(..20_000), rng.bool());
                // Some of them twice.
                let ids: Vec<u64> = (0..[0, 10, 700][rng.usize(..3)])
                    .map(|n| if ascends { first + n } else { rng.u64(..20_000) })
                    .collect();
                let there = ids.iter().filter(|&id| after.remove(id).is_some()).count();
                assert_eq!(delete_many(&mut txn, &table, &ids).unwrap(), there);
            }
            if rng.u8(..4) == 0 {
                txn.rollback().unwrap();
            } else {
                txn.commit().unwrap();
                model = after;
            }
        }
        compare(&db, &table, &model);
        assert_sound(&db);
        db.close(Shutdown::Fast, &mut |_| {}).unwrap();
        let db = Database::open(dir.path(), options()).unwrap();
        compare(&db, &db.table("items").unwrap(), &model);
        assert_sound(&db);
    }
}

/// Threads insert and delete batches in the same leaves, beside purge; what they were told is what
/// is there.
#[test]
fn threads_delete_batches_side_by_side() {
    let _watchdog = Watchdog::new("threads_delete_batches_side_by_side");
    let seed = seed();
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(16 << 20, 64 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let left = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, table, left) = (&db, &table, &left);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + thread);
                for _ in 0..100 * factor() {
                    let mut ids: Vec<u64> = (0..60).map(|_| rng.u64(..5_000)).collect();
                    let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
                    let done = match rng.bool() {
                        true => delete_many(&mut txn, table, &ids).map(|n| -(n as i64)),
                        false => {
                            ids.sort_unstable();
                            ids.dedup();
                            let mut item = |id: u64| (rng.i64(..9), id.to_string(), vec![]);
                            let rows: Vec<_> = ids.iter().map(|&id| (id, item(id))).collect();
                            insert_many(&mut txn, table, &rows).map(|()| rows.len() as i64)
                        }
                    };
                    match done {
                        Ok(more) => {
                            txn.commit().unwrap();
                            left.fetch_add(more as u64, Ordering::Relaxed);
                        }
                        Err(Error::Duplicate { .. } | Error::Deadlock) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert_eq!(all_items(&mut txn, &table).len() as u64, left.into_inner());
    drop(txn);
    assert_sound(&db);
}

/// Threads insert batches into the same leaves; what they were told is what is there.
#[test]
fn threads_insert_batches_side_by_side() {
    let _watchdog = Watchdog::new("threads_insert_batches_side_by_side");
    let seed = seed();
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(16 << 20, 64 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let inserted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (db, table, inserted) = (&db, &table, &inserted);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + thread);
                for _ in 0..100 * factor() {
                    // Few enough that threads come to the same rows.
                    let mut ids: Vec<u64> = (0..60).map(|_| rng.u64(..200_000)).collect();
                    ids.sort_unstable();
                    ids.dedup();
                    let rows: Vec<(u64, Item)> = ids
                        .iter()
                        .map(|&id| (id, (rng.i64(..9), id.to_string(), vec![])))
                        .collect();
                    let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
                    match insert_many(&mut txn, table, &rows) {
                        Ok(()) => {
                            txn.commit().unwrap();
                            inserted.fetch_add(rows.len() as u64, Ordering::Relaxed);
                        }
                        Err(Error::Duplicate { .. } | Error::Deadlock) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert_eq!(all_items(&mut txn, &table).len() as u64, inserted.into_inner());
    drop(txn);
    assert_sound(&db);
}

/// A key that others have inserted, and perhaps take back, is waited for.
#[test]
fn a_row_that_others_hold_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let timeout = std::time::Duration::ZERO;
    let options = options(8 << 20, 64 << 20).lock_wait_timeout(timeout);
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let rows: Vec<(u64, Item)> =
        (0..50).map(|id| (id, (0, format!("of the batch {id}"), vec![]))).collect();
    let mut one = db.begin(Isolation::RepeatableRead).unwrap();
    one.insert(&table, &values(30, &(1, "another".into(), vec![]))).unwrap();
    let mut two = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(matches!(insert_many(&mut two, &table, &rows), Err(Error::LockWaitTimeout)));
    one.rollback().unwrap();
    insert_many(&mut two, &table, &rows).unwrap();
    two.commit().unwrap();
    compare(&db, &table, &rows.into_iter().collect());
}

#[test]
fn rows_at_once_that_clash_do_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20)).unwrap();
    let schema = Schema::raw(vec![RawIndex::new("unique", true)], Vec::new()).unwrap();
    let table = db.create_table("raw", schema).unwrap();
    let pair = |key: &'static [u8]| Pair { key, value: b"value" };
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let duplicate = |result| match result {
        Err(Error::Duplicate { index, key, .. }) => (index, key),
        other => panic!("{other:?}"),
    };
    let mut rows = [pair(b"c"), pair(b"a"), pair(b"b")];
    let entries = vec![pair(b"x"), pair(b"y"), pair(b"x")];
    let found = txn.insert_many_raw(&table, &mut rows, &mut [(0, entries)]);
    assert_eq!(duplicate(found), ("unique".into(), b"x".to_vec()));
    let mut rows = [pair(b"c"), pair(b"a"), pair(b"c")];
    let entries = vec![pair(b"x"), pair(b"y"), pair(b"z")];
    let found = txn.insert_many_raw(&table, &mut rows, &mut [(0, entries)]);
    assert_eq!(duplicate(found), ("primary".into(), b"c".to_vec()));
    for key in [b"a", b"b", b"c"] {
        assert!(!txn.get_raw(&table, key, Lock::None, &mut Vec::new()).unwrap());
    }
    let too_long = vec![0; 300_000];
    let mut rows = [pair(b"c"), Pair { key: &too_long, value: b"" }];
    assert!(matches!(txn.insert_many_raw(&table, &mut rows, &mut []), Err(Error::Row(_))));
    txn.insert_many_raw(&table, &mut [], &mut []).unwrap();
}

#[test]
fn rows_deleted_at_once_of_which_one_is_missing_stay() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20)).unwrap();
    let schema = Schema::raw(vec![RawIndex::new("by", false)], Vec::new()).unwrap();
    let table = db.create_table("raw", schema).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let pair = |key: &'static [u8]| Pair { key, value: b"value" };
    let mut rows = [pair(b"a"), pair(b"b"), pair(b"c")];
    let entries = vec![pair(b"x"), pair(b"y"), pair(b"z")];
    txn.insert_many_raw(&table, &mut rows, &mut [(0, entries)]).unwrap();
    let mut alone = [b"c", b"d", b"a"].map(|key| Pair::key_alone(key));
    let entries = [b"z", b"v", b"x"].map(|key| Pair::key_alone(key)).to_vec();
    let missing = txn.delete_many_raw(&table, &mut alone, &mut [(0, entries)]);
    assert!(matches!(missing, Err(Error::NoSuchRow(_))), "{missing:?}");
    // A row without its entry.
    let mut alone = [Pair::key_alone(b"a")];
    let entries = vec![Pair::key_alone(b"v")];
    let missing = txn.delete_many_raw(&table, &mut alone, &mut [(0, entries)]);
    assert!(matches!(missing, Err(Error::Storage(_))), "{missing:?}");
    for key in [b"a", b"b", b"c"] {
        assert!(txn.get_raw(&table, key, Lock::None, &mut Vec::new()).unwrap());
    }
    txn.delete_many_raw(&table, &mut [], &mut []).unwrap();
    let mut all = [b"b", b"c", b"a"].map(|key| Pair::key_alone(key));
    let entries = [b"x", b"z", b"y"].map(|key| Pair::key_alone(key)).to_vec();
    txn.delete_many_raw(&table, &mut all, &mut [(0, entries)]).unwrap();
    txn.commit().unwrap();
    assert_sound(&db);
}

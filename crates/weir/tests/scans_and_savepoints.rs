//! Scans whose transaction is taken back to a savepoint meanwhile: what they give from then on is
//! there.

#![allow(clippy::unwrap_used)]

mod common;

use common::options;
use std::collections::BTreeMap;
use weir::{
    Bounds, Database, Direction, Error, IndexRef, Isolation, Lock, Schema, Table, Type, Value, Wait,
};

const ROWS: u64 = 300;

fn database(dir: &tempfile::TempDir, staging: bool) -> (Database, Table) {
    let options = if staging {
        options(4 << 20, 4 << 20).staging_leaves(1000)
    } else {
        options(4 << 20, 4 << 20)
    };
    let db = Database::open(dir.path(), options).unwrap();
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("n", Type::U64)
        .column("stem", Type::Bytes)
        .primary_key(&["id"])
        .index("by_n", &["n"])
        .index("by_stem", &["stem", "n"])
        .build();
    let table = db.create_table("numbers", schema.unwrap()).unwrap();
    (db, table)
}

/// A row; keys of `by_stem` are so long that they share a stem.
fn row<'a>(id: u64, n: u64, stem: &'a [u8]) -> [Value<'a>; 3] {
    [Value::U64(id), Value::U64(n), Value::Bytes(stem)]
}

fn number(value: Value<'_>) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn a_scan_goes_on_with_what_a_rollback_to_a_savepoint_has_left() {
    let locks = [Lock::None, Lock::Exclusive(Wait::ForTimeout)];
    let levels = [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];
    for (staging, isolation) in [false, true].into_iter().flat_map(|s| levels.map(|l| (s, l))) {
        let dir = tempfile::tempdir().unwrap();
        let (db, table) = database(&dir, staging);
        let stem = vec![b's'; 3600];
        let mut txn = db.begin(isolation).unwrap();
        for id in 0..ROWS {
            txn.insert(&table, &row(2 * id, id % 70, &stem)).unwrap();
        }
        txn.commit().unwrap();
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..60 {
            let mut txn = db.begin(isolation).unwrap();
            // What stays.
            for _ in 0..rng.u64(0..5) {
                let id = 2 * rng.u64(0..ROWS);
                let _ = txn.delete(&table, &[Value::U64(id)]).unwrap();
                txn.upsert(&table, &row(id, rng.u64(0..70), &stem)).unwrap();
            }
            let savepoint = txn.savepoint().unwrap();
            let expected = contents(&mut txn, &table);
            for _ in 0..rng.u64(1..200) {
                let id = rng.u64(0..2 * ROWS);
                match rng.u8(0..3) {
                    0 => drop(txn.delete(&table, &[Value::U64(id)]).unwrap()),
                    1 => drop(txn.upsert(&table, &row(id, rng.u64(0..70), &stem)).unwrap()),
                    _ => match txn.insert(&table, &row(id, rng.u64(0..70), &stem)) {
                        Ok(()) | Err(Error::Duplicate { .. }) => {}
                        Err(error) => panic!("{error}"),
                    },
                }
            }
            let index = ["", "by_n", "by_stem"][round % 3];
            let lock = locks[rng.usize(0..2)];
            let direction = [Direction::Forward, Direction::Backward][rng.usize(0..2)];
            let of = if index.is_empty() { IndexRef::Primary } else { IndexRef::Named(index) };
            let mut cursor = txn.scan_locking(&table, of, Bounds::all(), direction, lock).unwrap();
            let before = rng.usize(0..100);
            let key = |id: u64, n: u64| if index.is_empty() { (id, 0) } else { (n, id) };
            let mut last = None;
            for _ in 0..before {
                let Some(found) = cursor.next().unwrap() else { break };
                let (id, n) = (number(found.get(0).unwrap()), number(found.get(1).unwrap()));
                last = Some(key(id, n));
            }
            cursor.transaction().rollback_to(savepoint).unwrap();
            let mut found = Vec::new();
            while let Some(row) = cursor.next().unwrap() {
                let (id, n) = (number(row.get(0).unwrap()), number(row.get(1).unwrap()));
                found.push(key(id, n));
            }
            let mut wanted: Vec<_> = expected.iter().map(|(id, n)| key(*id, *n)).collect();
            wanted.sort_unstable();
            if direction == Direction::Backward {
                wanted.reverse();
            }
            let is_left = |at: &(u64, u64)| match (last, direction) {
                (None, _) => true,
                (Some(last), Direction::Forward) => *at > last,
                (Some(last), Direction::Backward) => *at < last,
            };
            wanted.retain(is_left);
            let what = format!("{isolation:?} {index} {lock:?} {direction:?} {staging} {round}");
            assert_eq!(found, wanted, "{what}");
        }
    }
}

/// All rows: numbers by ids.
fn contents(txn: &mut weir::Transaction, table: &Table) -> BTreeMap<u64, u64> {
    let (of, all) = (IndexRef::Primary, Bounds::all());
    let mut cursor = txn.scan(table, of, all, Direction::Forward).unwrap();
    let mut out = BTreeMap::new();
    while let Some(row) = cursor.next().unwrap() {
        out.insert(number(row.get(0).unwrap()), number(row.get(1).unwrap()));
    }
    out
}

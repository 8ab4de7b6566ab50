//! A transaction that changes rows which others changed after its snapshot finds its own rows, and
//! only those, by every index.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

use std::sync::Arc;
use weir::{
    Bounds, Database, Direction, Isolation, Options, Schema, Table, Transaction, Type, Value,
};
use weir_os::SimDisk;

fn database() -> (Database, Table) {
    let options =
        Options::default().memory_bytes(2 << 20).redo_capacity_bytes(1 << 20).single_threaded();
    let db = Database::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("a", Type::I64)
        .column("note", Type::Text)
        .column("b", Type::I64)
        .primary_key(&["id"])
        .index("by_a", &["a"])
        .unique_index("by_b", &["b"])
        .build()
        .unwrap();
    let table = db.create_table("t", schema).unwrap();
    (db, table)
}

/// `a` is `b`, too.
fn row(id: u64, a: i64, note: &str) -> [Value<'_>; 4] {
    [Value::U64(id), Value::I64(a), Value::Text(note), Value::I64(a)]
}

/// `(a, id)` by the index, read from the rows and from the entries.
fn by_a(txn: &mut Transaction, table: &Table) -> Vec<(i64, u64)> {
    let mut both = Vec::new();
    for keys_only in [false, true] {
        let (all, forward) = (Bounds::all(), Direction::Forward);
        let mut cursor = match keys_only {
            true => txn.scan_keys(table, "by_a", all, forward).unwrap(),
            false => txn.scan(table, "by_a", all, forward).unwrap(),
        };
        let mut found = Vec::new();
        while let Some(row) = cursor.next().unwrap() {
            let number = |v: Value<'_>| v.as_u64().unwrap();
            found.push((row.get(1).unwrap().as_i64().unwrap(), number(row.get(0).unwrap())));
        }
        both.push(found);
    }
    assert_eq!(both[0], both[1]);
    both.remove(0)
}

/// `(a, id)` by the unique index `by_b`, sorted, and by the primary key.
fn by_b(txn: &mut Transaction, table: &Table) -> Vec<(i64, u64)> {
    let mut all = Vec::new();
    for way in [Direction::Forward, Direction::Backward] {
        for keys_only in [false, true] {
            let mut cursor = match keys_only {
                true => txn.scan_keys(table, "by_b", Bounds::all(), way).unwrap(),
                false => txn.scan(table, "by_b", Bounds::all(), way).unwrap(),
            };
            let mut found = Vec::new();
            while let Some(row) = cursor.next().unwrap() {
                let b = row.get(3).unwrap().as_i64().unwrap();
                found.push((b, row.get(0).unwrap().as_u64().unwrap()));
            }
            found.sort_unstable();
            all.push(found);
        }
    }
    let mut rows = Vec::new();
    let (primary, forward) = (weir::IndexRef::Primary, Direction::Forward);
    let mut cursor = txn.scan(table, primary, Bounds::all(), forward).unwrap();
    while let Some(row) = cursor.next().unwrap() {
        let b = row.get(3).unwrap().as_i64().unwrap();
        rows.push((b, row.get(0).unwrap().as_u64().unwrap()));
    }
    rows.sort_unstable();
    for found in all {
        assert_eq!(found, rows, "the index and the rows");
    }
    rows
}

/// A transaction whose snapshot has row 1 with `a` = 1, while it is 2 by now.
fn outdated(db: &Database, table: &Table) -> Transaction {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(table, &row(1, 1, "first")).unwrap();
    txn.commit().unwrap();
    let mut old = db.begin(Isolation::RepeatableRead).unwrap();
    assert_eq!(by_a(&mut old, table), [(1, 1)]);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(txn.update(table, &row(1, 2, "second")).unwrap());
    txn.commit().unwrap();
    assert_eq!(by_a(&mut old, table), [(1, 1)]);
    old
}

#[test]
fn a_row_with_another_key_is_found_once() {
    let (db, table) = database();
    let mut old = outdated(&db, &table);
    assert!(old.update(&table, &row(1, 3, "third")).unwrap());
    assert_eq!(by_a(&mut old, &table), [(3, 1)]);
}

#[test]
fn a_row_with_the_newest_key_is_found() {
    let (db, table) = database();
    let mut old = outdated(&db, &table);
    assert!(old.update(&table, &row(1, 2, "third")).unwrap());
    assert_eq!(by_a(&mut old, &table), [(2, 1)]);
    old.rollback().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert_eq!(by_a(&mut txn, &table), [(2, 1)]);
}

#[test]
fn a_deleted_row_is_not_found() {
    let (db, table) = database();
    let mut old = outdated(&db, &table);
    assert!(old.delete(&table, &[Value::U64(1)]).unwrap());
    assert_eq!(by_a(&mut old, &table), []);
}

/// The snapshot's row 1 has the value that row 2 has by now, whose entry the transaction takes
/// away.
#[test]
fn a_row_is_found_by_a_unique_value_that_another_row_has_had_since() {
    let (db, table) = database();
    let mut old = outdated(&db, &table);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&table, &row(2, 1, "has the value now")).unwrap();
    txn.commit().unwrap();
    assert!(old.update(&table, &row(2, 5, "and loses it")).unwrap());
    assert_eq!(by_b(&mut old, &table), [(1, 1), (5, 2)]);
    assert!(old.delete(&table, &[Value::U64(2)]).unwrap());
    assert_eq!(by_b(&mut old, &table), [(1, 1)]);
}

/// The snapshot has a row with a value that the transaction gives to a row of its own: both are
/// there.
#[test]
fn a_unique_value_taken_anew_stands_for_the_snapshot_s_row_as_well() {
    let (db, table) = database();
    let mut old = outdated(&db, &table);
    old.insert(&table, &row(3, 1, "own")).unwrap();
    assert_eq!(by_b(&mut old, &table), [(1, 1), (1, 3)]);
    assert!(old.delete(&table, &[Value::U64(3)]).unwrap());
    assert_eq!(by_b(&mut old, &table), [(1, 1)]);
}

#[test]
fn a_row_that_gets_its_unique_value_back_is_found_once() {
    let (db, table) = database();
    let mut old = outdated(&db, &table);
    assert!(old.update(&table, &row(1, 1, "third")).unwrap());
    assert_eq!(by_b(&mut old, &table), [(1, 1)]);
    assert!(old.update(&table, &row(1, 7, "fourth")).unwrap());
    assert_eq!(by_b(&mut old, &table), [(7, 1)]);
    old.rollback().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert_eq!(by_b(&mut txn, &table), [(2, 1)]);
}

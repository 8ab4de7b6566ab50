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
        .primary_key(&["id"])
        .index("by_a", &["a"])
        .build()
        .unwrap();
    let table = db.create_table("t", schema).unwrap();
    (db, table)
}

fn row(id: u64, a: i64, note: &str) -> [Value<'_>; 3] {
    [Value::U64(id), Value::I64(a), Value::Text(note)]
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

//! Files that must not become longer (`ulimit -f`): the same as a full device.
#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::is_limited;
use weir::{Database, Isolation, Options, Schema, Type, Value};

#[test]
fn rows_are_deleted_where_files_must_not_be_longer() {
    // In blocks of 512 bytes.
    if !is_limited("rows_are_deleted_where_files_must_not_be_longer", "-f 12000") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let limits = Options::default().memory_bytes(3 << 20).redo_capacity_bytes(1 << 20);
    let db = Database::open(dir.path(), limits).unwrap();
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("body", Type::Bytes)
        .primary_key(&["id"])
        .index("by_body", &["body"])
        .build()
        .unwrap();
    let table = db.create_table("t", schema).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut filled = 0;
    let full = loop {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let mut body = [0; 1000];
        let inserted = (0..100).try_for_each(|_| {
            rng.fill(&mut body);
            filled += 1;
            txn.insert(&table, &[Value::U64(filled), Value::Bytes(&body)])
        });
        match inserted {
            Ok(()) => txn.commit().unwrap(),
            Err(full) => {
                txn.rollback().unwrap();
                break full;
            }
        }
    };
    assert!(full.is_no_space(), "{full}");
    for id in 1..filled {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.delete(&table, &[Value::U64(id)]).unwrap();
        txn.commit().unwrap();
    }
    db.drop_table(&table).unwrap();
}

/// How long files may become they are listed for, which takes a descriptor: without one the
/// database stopped.
#[test]
fn pages_are_made_without_a_descriptor_left_where_files_must_not_be_longer() {
    let limits = "-f 2000000; ulimit -n 100";
    if !is_limited(
        "pages_are_made_without_a_descriptor_left_where_files_must_not_be_longer",
        limits,
    ) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().memory_bytes(3 << 20).redo_capacity_bytes(1 << 20);
    let db = Database::open(dir.path(), options).unwrap();
    let schema = Schema::builder().column("id", Type::U64).column("body", Type::Bytes);
    let table = db.create_table("t", schema.primary_key(&["id"]).build().unwrap()).unwrap();
    let open = || std::fs::File::open("/dev/null");
    let taken: Vec<_> = std::iter::repeat_with(open).map_while(Result::ok).collect();
    let mut rng = fastrand::Rng::with_seed(1);
    for id in 0..5000 {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let mut body = [0; 1000];
        rng.fill(&mut body);
        txn.insert(&table, &[Value::U64(id), Value::Bytes(&body)]).unwrap();
        txn.commit().unwrap();
    }
    drop(taken);
}

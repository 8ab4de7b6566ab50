//! What tests of changed definitions share: tables, and what is in them.

use super::*;
use weir::{Entry, KeyOf, Lock, RawIndex, RawRange};

pub fn open(dir: &std::path::Path) -> Database {
    Database::open(dir, options(8 << 20, 8 << 20).lock_wait_timeout(Duration::ZERO)).unwrap()
}

pub fn raw_table(db: &Database, rows: u32) -> Table {
    let schema = Schema::raw(vec![RawIndex::new("a", false)], vec![1]).unwrap();
    let table = db.create_table("t", schema).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..rows {
        let key = n.to_be_bytes();
        txn.insert_raw(&table, &key, &row(n), &[Entry { index: 0, key: &key, value: b"" }])
            .unwrap();
    }
    txn.commit().unwrap();
    table
}

pub fn row(n: u32) -> [u8; 4] {
    (n ^ 0xff).to_be_bytes()
}

pub fn keys(db: &Database, table: &Table, of: KeyOf) -> Vec<Vec<u8>> {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let all = RawRange::all();
    let mut scan = txn.scan_raw(table, of, all, Direction::Forward, Lock::None).unwrap();
    let mut keys = Vec::new();
    while let Some(entry) = scan.next(&mut txn).unwrap() {
        keys.push(entry.key.to_vec());
    }
    keys
}

pub fn names(table: &Table) -> Vec<String> {
    table.raw_schema().unwrap().indexes().iter().map(|index| index.name.clone()).collect()
}

pub fn pair_table(db: &Database) -> Table {
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("a", Type::Text)
        .primary_key(&["id"])
        .index("by_a", &["a"]);
    let table = db.create_table("pairs", schema.build().unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (0..100).for_each(|id| txn.insert(&table, &[Value::U64(id), Value::Text("old")]).unwrap());
    txn.commit().unwrap();
    table
}

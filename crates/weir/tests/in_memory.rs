//! Databases that are in memory alone.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::collections::BTreeMap;
use weir::{Database, Durability, Error, Isolation, Options, Shutdown, Table};

fn small() -> Options {
    options(2 << 20, 1 << 20)
}

fn item(id: u64, rng: &mut fastrand::Rng) -> Item {
    (rng.i64(..100), format!("{id}"), (0..300).map(|_| rng.u8(..)).collect())
}

fn rows(db: &Database) -> Vec<(u64, Item)> {
    let table = db.table("items").unwrap();
    all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table)
}

/// Writes rows, and takes back every tenth transaction.
fn work(
    db: &Database,
    table: &Table,
    model: &mut BTreeMap<u64, Item>,
    rng: &mut fastrand::Rng,
    most: u64,
) {
    let before = model.clone();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for _ in 0..20 {
        let id = rng.u64(..most);
        if rng.u8(..4) == 0 {
            let key = [weir::Value::U64(id)];
            let is_there = model.remove(&id).is_some();
            assert_eq!(txn.get(table, &key).unwrap().is_some(), is_there);
            if is_there {
                txn.delete(table, &key).unwrap();
            }
        } else {
            let item = item(id, rng);
            txn.upsert(table, &values(id, &item)).unwrap();
            model.insert(id, item);
        }
    }
    if rng.u8(..10) == 0 {
        txn.rollback().unwrap();
        *model = before;
    } else {
        txn.commit().unwrap();
    }
}

#[test]
fn all_works_as_in_a_directory_and_a_backup_saves_it() {
    let mut rng = fastrand::Rng::with_seed(seed());
    let db = Database::in_memory(small().durability(Durability::Sync)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut model = BTreeMap::new();
    (0..500).for_each(|_| work(&db, &table, &mut model, &mut rng, 3000));
    db.create_index(&table, "by_body", &["body"], false).unwrap();
    (0..100).for_each(|_| work(&db, &table, &mut model, &mut rng, 3000));
    db.drop_index(&table, "by_body").unwrap();
    db.reorganize_table(&table).unwrap();
    db.compact(&mut |_| {}).unwrap();
    assert_eq!(db.set_redo_capacity(4 << 20).unwrap(), 4 << 20);
    db.sync().unwrap();
    db.checkpoint().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let (id, prepared) = (9999, item(9999, &mut rng));
    txn.insert(&table, &values(id, &prepared)).unwrap();
    txn.prepare(b"prepared").unwrap();
    txn.detach().unwrap();
    db.commit_prepared(b"prepared", Durability::Sync).unwrap();
    model.insert(id, prepared);
    assert_sound(&db);
    let model: Vec<_> = model.into_iter().collect();
    same(&model, &rows(&db), "in memory");
    let dir = tempfile::tempdir().unwrap();
    db.backup(dir.path()).unwrap();
    drop(table);
    db.close(Shutdown::Clean, &mut |_| {}).unwrap();
    let db = Database::open(dir.path(), small()).unwrap();
    same(&model, &rows(&db), "saved");
    assert_sound(&db);
}

#[test]
fn each_is_one_of_its_own_and_begins_empty() {
    let dbs = [(); 2].map(|()| Database::in_memory(small()).unwrap());
    dbs[0].create_table("items", items()).unwrap();
    assert_eq!((dbs[0].table_names().len(), dbs[1].table_names().len()), (1, 0));
    let refused = Database::in_memory(small().read_only(true)).unwrap_err();
    assert!(matches!(refused, Error::Options { option: "read_only", .. }), "{refused}");
    Database::in_memory(small().create(false)).unwrap();
}

/// What is written over, deleted or purged gives its memory back: an update of a row doesn't cost
/// any, however many there were.
#[test]
fn updates_without_end_take_no_memory_without_end() {
    const ROWS: u64 = 4000;
    const REDO: u64 = 1 << 20;
    let mut rng = fastrand::Rng::with_seed(seed());
    let db = Database::in_memory(small()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let memory = || db.status().disk.memory_bytes;
    let update_all = |rng: &mut fastrand::Rng| {
        for first in (0..ROWS).step_by(100) {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            for _ in first..first + 100 {
                let id = rng.u64(..ROWS);
                txn.upsert(&table, &values(id, &item(id, rng))).unwrap();
            }
            txn.commit().unwrap();
        }
    };
    (0..5).for_each(|_| update_all(&mut rng));
    let once = memory();
    assert!(once > 0);
    let written = db.status().disk.write_bytes;
    let most = (0..40 * factor()).map(|_| {
        update_all(&mut rng);
        memory()
    });
    let most = most.max().unwrap();
    let written = db.status().disk.write_bytes - written;
    assert!(written > 10 * once, "{written} of {once}");
    assert!(most < 3 * once + 4 * REDO, "{most} after {once}");
    let deleted = (0..ROWS).try_for_each(|id| {
        let mut txn = db.begin(Isolation::RepeatableRead)?;
        if txn.get(&table, &[weir::Value::U64(id)])?.is_some() {
            txn.delete(&table, &[weir::Value::U64(id)])?;
        }
        txn.commit()
    });
    deleted.unwrap();
    db.purge_all().unwrap();
    db.reorganize_table(&table).unwrap();
    db.checkpoint().unwrap();
    db.compact(&mut |_| {}).unwrap();
    eprintln!("once {once}, most {most}, written {written}, emptied {}", memory());
    assert!(memory() < once / 2 + 2 * REDO, "{} after {once}", memory());
}

//! Who changes a table and who uses it wait for each other, as long as either cares to.
#![allow(clippy::unwrap_used)]

mod common;

use common::definitions::{keys, open, pair_table, raw_table, row};
use common::{check_quiet, items, options};
use std::time::Duration;
use weir::{
    Database, Direction, Error, Isolation, KeyOf, Lock, Patience, RawIndex, RawRange, Schema,
    TableChange, Transaction, Type, Value,
};

#[test]
fn the_end_of_patience_ends_a_change_that_waits_for_users() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = raw_table(&db, 10);
    let mut user = db.begin(Isolation::RepeatableRead).unwrap();
    let all = RawRange::all();
    drop(user.scan_raw(&table, KeyOf::Primary, all, Direction::Forward, Lock::None).unwrap());
    let endless = Patience::new(Duration::MAX);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| db.changes(&endless).drop_table(&table));
        endless.end();
        assert!(matches!(waiter.join().unwrap(), Err(Error::Cancelled)));
    });
    let changes = db.changes(&endless);
    assert!(matches!(changes.truncate_table(&table), Err(Error::Cancelled)));
    assert!(matches!(changes.rename_table(&table, "other"), Err(Error::Cancelled)));
    let drops = TableChange { table: &table, drop: &["a"], rename: &[], add: &[], meta: None };
    let altered = changes.alter_tables(&[drops], &mut |_, _, _, _, _, _| Ok(()));
    assert!(matches!(altered, Err(Error::Cancelled)));
    assert_eq!(keys(&db, &table, KeyOf::Index(0)).len(), 10);
    user.rollback().unwrap();
    // Nobody is waited for: patience isn't asked.
    changes.rename_table(&table, "other").unwrap();
    changes.drop_table(&table).unwrap();
    assert!(db.table("other").is_none());
}

#[test]
fn the_end_of_patience_ends_the_building_of_an_index() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let schema = Schema::builder().column("id", Type::U64).column("size", Type::U64);
    let typed = db.create_table("typed", schema.primary_key(&["id"]).build().unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&typed, &[Value::U64(1), Value::U64(2)]).unwrap();
    txn.commit().unwrap();
    let raw = raw_table(&db, 10);
    let add = [RawIndex::new("b", false)];
    let change = TableChange { table: &raw, drop: &[], rename: &[], add: &add, meta: None };

    // The last row has been read: what is left is to write the entries.
    let patience = Patience::new(Duration::MAX);
    let mut rows = 0;
    let altered = db.changes(&patience).alter_tables(&[change], &mut |_, _, key, _, of_key, _| {
        rows += 1;
        if rows == 10 {
            patience.end();
        }
        of_key.extend_from_slice(key);
        Ok(())
    });
    assert!(matches!(altered, Err(Error::Cancelled)), "{altered:?}");
    let created = db.changes(&patience).create_index(&typed, "by_size", &["size"], false);
    assert!(matches!(created, Err(Error::Cancelled)), "{created:?}");
    check_quiet(&db);

    let patience = Patience::new(Duration::MAX);
    db.changes(&patience).create_index(&typed, "by_size", &["size"], false).unwrap();
    check_quiet(&db);
}

#[test]
fn the_end_of_patience_ends_all_waits_that_it_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let tables = ["a", "b", "c"]
        .map(|name| db.create_table(name, Schema::raw(vec![], vec![]).unwrap()).unwrap());
    let mut user = db.begin(Isolation::RepeatableRead).unwrap();
    for table in &tables {
        user.get_raw(table, b"k", Lock::None, &mut Vec::new()).unwrap();
    }
    // Without an end of it the test would hang.
    let patience = Patience::new(Duration::MAX);
    std::thread::scope(|scope| {
        let waits = tables.each_ref().map(|table| {
            let (db, patience) = (&db, &patience);
            scope.spawn(move || db.changes(patience).drop_table(table))
        });
        std::thread::sleep(Duration::from_millis(100));
        patience.end();
        for wait in waits {
            assert!(matches!(wait.join().unwrap(), Err(Error::Cancelled)));
        }
    });
    user.rollback().unwrap();
    check_quiet(&db);
}

#[test]
fn a_wait_for_whoever_changes_a_table_can_be_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(4 << 20, 4 << 20).lock_wait_timeout(Duration::MAX);
    let db = Database::open(dir.path(), options).unwrap();
    let table = raw_table(&db, 3);
    let mut user = db.begin(Isolation::default()).unwrap();
    user.get_raw(&table, &row(1), Lock::None, &mut Vec::new()).unwrap();
    let patience = Patience::new(Duration::MAX);
    std::thread::scope(|scope| {
        let (db, table, of_thread) = (&db, &table, patience.clone());
        let change = scope.spawn(move || db.changes(&of_thread).truncate_table(table));
        // Some come before it. The first that comes later waits.
        let ended = loop {
            let mut later = db.begin(Isolation::default()).unwrap();
            later.canceller().unwrap().cancel();
            match later.get_raw(table, &row(1), Lock::None, &mut Vec::new()) {
                Ok(_) => std::thread::yield_now(),
                Err(error) => break error,
            }
        };
        assert!(matches!(ended, Error::Cancelled), "{ended}");
        patience.end();
        assert!(matches!(change.join().unwrap(), Err(Error::Cancelled)));
    });
    let mut later = db.begin(Isolation::default()).unwrap();
    later.get_raw(&table, &row(1), Lock::None, &mut Vec::new()).unwrap();
}

/// It waited as long as the database's transactions do, whatever was set for this one.
#[test]
fn who_comes_to_a_table_that_is_being_changed_waits_as_long_as_its_own_timeout_says() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = raw_table(&db, 10);
    let mut user = db.begin(Isolation::ReadCommitted).unwrap();
    let (db, table) = (&db, &table);
    let get = |txn: &mut Transaction| txn.get_raw(table, b"", Lock::None, &mut Vec::new());
    get(&mut user).unwrap();
    std::thread::scope(|scope| {
        let patience = Patience::new(Duration::from_secs(3600));
        scope.spawn(move || db.changes(&patience).truncate_table(table).unwrap());
        let is_changing = || {
            let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
            matches!(get(&mut txn), Err(Error::TableInUse(_)))
        };
        while !is_changing() {
            std::thread::yield_now();
        }
        let mut patient = db.begin(Isolation::ReadCommitted).unwrap();
        patient.set_lock_wait_timeout(Duration::from_secs(3600)).unwrap();
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            user.rollback().unwrap();
        });
        get(&mut patient).unwrap();
    });
}

/// A read that doesn't lock, too: programs looked for deadlocks and lock waits alone, and gave up.
#[test]
fn who_waits_for_a_change_of_a_table_for_too_long_may_begin_again() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let (db, table) = (&db, &table);
    let read = |txn: &mut Transaction| txn.get(table, &[Value::U64(0)]);
    let patience = &Patience::new(Duration::from_secs(3600));
    std::thread::scope(|scope| {
        let mut user = db.begin(Isolation::RepeatableRead).unwrap();
        read(&mut user).unwrap();
        scope.spawn(move || db.changes(patience).truncate_table(table).unwrap());
        let mut other = db.begin(Isolation::RepeatableRead).unwrap();
        let error = loop {
            match read(&mut other) {
                Err(error) => break error,
                Ok(_) => other = db.begin(Isolation::RepeatableRead).unwrap(),
            }
        };
        assert!(matches!(error, Error::TableInUse(_)) && error.is_retryable(), "{error}");
        assert!(error.to_string().contains("being changed"), "{error}");
        assert!(!other.has_ended());
        user.rollback().unwrap();
        other.set_lock_wait_timeout(Duration::from_secs(3600)).unwrap();
        // It has no snapshot yet, so the table isn't newer.
        assert_eq!(read(&mut other).unwrap(), None);
    });
    assert!(!Error::Ended.is_retryable());
}

#[test]
fn a_column_waits_for_those_who_use_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = pair_table(&db);
    let mut user = db.begin(Isolation::RepeatableRead).unwrap();
    assert_eq!(user.schema(&table).unwrap(), table.schema().unwrap());
    let add = || db.add_column(&table, "n", Type::I64, Value::Null);
    assert!(matches!(add(), Err(Error::TableInUse(_))));
    let nonsense = db.drop_column(&table, "x");
    assert!(matches!(nonsense, Err(Error::Schema(_))), "isn't waited for");
    user.rollback().unwrap();
    add().unwrap();
    let raw = raw_table(&db, 1);
    let not_typed = db.add_column(&raw, "n", Type::I64, Value::Null);
    assert!(matches!(not_typed, Err(Error::NotTyped(_))));
}

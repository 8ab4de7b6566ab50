//! Changes of several tables that are made together, or not at all.
#![allow(clippy::unwrap_used)]

mod common;

use common::definitions::{keys, names, open, raw_table, row};
use common::{check_quiet, options};
use std::sync::Arc;
use std::time::Duration;
use weir::{
    Database, Direction, Durability, Entry, Error, Isolation, KeyOf, Lock, Patience, RawIndex,
    RawRange, Schema, Table, TableChange,
};
use weir_os::SimDisk;

/// What a change of several tables comes to: names of indexes and meta of each.
fn definitions(tables: &[Table]) -> Vec<(Vec<String>, Vec<u8>)> {
    tables.iter().map(|table| (names(table), table.meta().unwrap())).collect()
}

fn several(db: &Database) -> Vec<Table> {
    let schema = || Schema::raw(vec![RawIndex::new("a", false)], vec![1]).unwrap();
    let made = |n: u32| match db.table(&format!("part {n}")) {
        Some(table) => table,
        None => db.create_table(&format!("part {n}"), schema()).unwrap(),
    };
    (0..3).map(made).collect()
}

fn fill(db: &Database, tables: &[Table]) {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for (table, first) in tables.iter().zip([0_u32, 100, 200]) {
        for n in first..first + 50 {
            let key = n.to_be_bytes();
            let entry = Entry { index: 0, key: &key, value: b"" };
            txn.insert_raw(table, &key, &row(n), &[entry]).unwrap();
        }
    }
    txn.commit().unwrap();
}

/// Index `a` goes, `b` comes: each row's bytes.
fn alter_all(db: &Database, tables: &[Table], unique: bool) -> weir::Result<()> {
    let add = [RawIndex::new("b", unique)];
    let change =
        |table| TableChange { table, drop: &["a"], rename: &[], add: &add, meta: Some(&[2]) };
    let changes: Vec<TableChange<'_>> = tables.iter().map(change).collect();
    db.alter_tables(&changes, &mut |nth, n, key, row, of_key, _| {
        assert_eq!((n, u32::from_be_bytes(key.try_into().unwrap()) / 100), (0, nth as u32));
        of_key.extend_from_slice(row);
        Ok(())
    })
}

#[test]
fn several_tables_change_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let tables = several(&db);
    fill(&db, &tables);
    let before = definitions(&tables);
    // The last one has a duplicate.
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let (key, entry) = (299_u32.to_be_bytes(), Entry { index: 0, key: b"twice", value: b"" });
    txn.insert_raw(&tables[2], &key, &row(200), &[entry]).unwrap();
    txn.commit().unwrap();
    let twice = alter_all(&db, &tables, true);
    let Err(Error::Duplicate { table, index, .. }) = twice else { panic!("{twice:?}") };
    assert_eq!((table, index), (tables[2].name(), "b".to_string()));
    assert_eq!(definitions(&tables), before);
    // The second one is in use.
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    reader.get_raw(&tables[1], b"", Lock::None, &mut Vec::new()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.delete_raw(&tables[2], &key, &[entry]).unwrap();
    txn.commit().unwrap();
    assert!(matches!(alter_all(&db, &tables, true), Err(Error::TableInUse(_))));
    assert_eq!(definitions(&tables), before);
    drop(reader);
    check_quiet(&db);
    alter_all(&db, &tables, true).unwrap();
    for table in &tables {
        assert_eq!((names(table), table.meta().unwrap()), (vec!["b".to_string()], vec![2]));
        assert_eq!(keys(&db, table, KeyOf::Index(0)).len(), 50);
    }
    check_quiet(&db);
}

#[test]
fn a_crash_leaves_all_tables_of_a_change_as_before_or_as_after() {
    let options = options(8 << 20, 16 << 20).durability(Durability::Sync).single_threaded();
    let mut ends = [0, 0];
    for cut in 0.. {
        let disk = SimDisk::new(1);
        let db = Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        let tables = several(&db);
        fill(&db, &tables);
        let before = definitions(&tables);
        disk.crash_at(disk.operations() + cut);
        let done = alter_all(&db, &tables, false).is_ok();
        drop((tables, db));
        let db = Database::open_on(Arc::new(disk.crash(cut)), options.clone()).unwrap();
        let tables = several(&db);
        let found = definitions(&tables);
        let is_new = found != before;
        assert!(is_new || !done, "crash at {cut}: what was done is there");
        assert!(found.iter().all(|one| *one == found[0]), "crash at {cut}: {found:?}");
        for table in &tables {
            assert_eq!(keys(&db, table, KeyOf::Index(0)).len(), 50, "crash at {cut}");
        }
        check_quiet(&db);
        ends[usize::from(is_new)] += 1;
        if done {
            break;
        }
    }
    assert!(ends[0] > 0 && ends[1] > 0, "{ends:?}");
}

#[test]
fn what_is_written_to_a_table_before_its_turn_is_in_its_new_index() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let tables = several(&db);
    fill(&db, &tables);
    let add = [RawIndex::new("b", false)];
    let change = |table| TableChange { table, drop: &[], rename: &[], add: &add, meta: None };
    let changes: Vec<TableChange<'_>> = tables.iter().map(change).collect();
    let mut is_written = false;
    db.alter_tables(&changes, &mut |nth, _, key, _, of_key, _| {
        if nth == 0 && !is_written {
            is_written = true;
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            txn.insert_raw(&tables[2], b"late", b"row", &[]).unwrap();
            txn.commit().unwrap();
        }
        of_key.extend_from_slice(key);
        Ok(())
    })
    .unwrap();
    assert!(is_written);
    assert_eq!(keys(&db, &tables[2], KeyOf::Index(1)).last().unwrap(), b"late");
    check_quiet(&db);
}

#[test]
fn of_several_tables_all_are_truncated_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let tables = several(&db);
    fill(&db, &tables);
    let counts = |db: &Database, tables: &[Table]| -> Vec<usize> {
        tables.iter().map(|table| keys(db, table, KeyOf::Index(0)).len()).collect()
    };
    let full = counts(&db, &tables);
    assert!(full.iter().all(|&count| count > 0), "{full:?}");
    let patience = Patience::new(Duration::ZERO);
    let all: Vec<&Table> = tables.iter().collect();
    let mut user = db.begin(Isolation::RepeatableRead).unwrap();
    let range = RawRange::all();
    drop(user.scan_raw(&tables[1], KeyOf::Primary, range, Direction::Forward, Lock::None).unwrap());
    let refused = db.changes(&patience).truncate_tables(&all);
    assert!(matches!(refused, Err(Error::TableInUse(_))), "{refused:?}");
    user.rollback().unwrap();
    assert_eq!(counts(&db, &tables), full);
    db.changes(&patience).truncate_tables(&all).unwrap();
    assert_eq!(counts(&db, &tables), vec![0; full.len()]);
    check_quiet(&db);
    let names: Vec<String> = tables.iter().map(Table::name).collect();
    drop((tables, db));
    let db = open(dir.path());
    let tables: Vec<Table> = names.iter().map(|name| db.table(name).unwrap()).collect();
    assert_eq!(counts(&db, &tables), vec![0; full.len()]);
    check_quiet(&db);
}

/// Entries that a new index has for rows of bytes.
fn entry_of_row(
    _: usize,
    _: usize,
    key: &[u8],
    row: &[u8],
    of_key: &mut Vec<u8>,
    _: &mut Vec<u8>,
) -> weir::Result<()> {
    of_key.extend([row, key].concat());
    Ok(())
}

#[test]
fn an_index_is_named_once_in_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let indexes = vec![RawIndex::new("x", false), RawIndex::new("y", true)];
    let table = db.create_table("t", Schema::raw(indexes, Vec::new()).unwrap()).unwrap();
    let patience = Patience::new(Duration::from_secs(10));
    let refused = |drop: &[&str], rename: &[(&str, &str)]| {
        let change = TableChange { table: &table, drop, rename, add: &[], meta: None };
        let error = db.changes(&patience).alter_tables(&[change], &mut entry_of_row).unwrap_err();
        assert!(matches!(error, Error::IndexNamedTwice { .. }), "{error}");
        assert_eq!(names(&table), ["x", "y"]);
    };
    refused(&["x", "x"], &[]);
    refused(&["y", "y"], &[]);
    refused(&[], &[("x", "a"), ("x", "b")]);
    refused(&["y"], &[("y", "z")]);
    db.alter_indexes(&table, &["x", "y"], &[], None, &mut |_, _, _, _, _| Ok(())).unwrap();
}

#[test]
fn tables_may_be_added_after_others_were_built() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let tables = ["a", "b"].map(|name| {
        let table = db.create_table(name, Schema::raw(vec![], vec![]).unwrap()).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (0..2000).for_each(|n| txn.insert_raw(&table, &row(n), b"row", &[]).unwrap());
        txn.commit().unwrap();
        table
    });
    let (patience, add) = (Patience::new(Duration::from_secs(10)), [RawIndex::new("i", false)]);
    let changes = db.changes(&patience);
    let mut alteration = changes.begin_alter().unwrap();
    for table in &tables {
        let change = TableChange { table, drop: &[], rename: &[], add: &add, meta: None };
        changes.add_change(&mut alteration, &change).unwrap();
        for _ in 0..2 {
            changes.build_indexes(&mut alteration, &mut entry_of_row).unwrap();
        }
    }
    changes.finish_alter(alteration, &mut entry_of_row).unwrap();
    tables.iter().for_each(|table| assert_eq!(keys(&db, table, KeyOf::Index(0)).len(), 2000));
    check_quiet(&db);
}

#[test]
fn only_its_own_database_goes_on_with_a_change() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, other] = dirs.each_ref().map(|dir| open(dir.path()));
    let [of_one, of_other] = [&one, &other].map(|db| raw_table(db, 10));
    let (patience, add) = (Patience::new(Duration::from_secs(10)), [RawIndex::new("i", false)]);
    let change = |table| TableChange { table, drop: &[], rename: &[], add: &add, meta: None };
    let changes = [&one, &other].map(|db| db.changes(&patience));
    let refused = |result: weir::Result<()>| {
        assert!(matches!(result, Err(Error::ForeignTable(_))), "{result:?}");
    };
    let mut alteration = changes[0].begin_alter().unwrap();
    refused(changes[1].add_change(&mut alteration, &change(&of_other)));
    changes[0].add_change(&mut alteration, &change(&of_one)).unwrap();
    refused(changes[1].build_indexes(&mut alteration, &mut entry_of_row));
    refused(changes[1].finish_alter(alteration, &mut entry_of_row));
    [one, other].iter().for_each(check_quiet);
}

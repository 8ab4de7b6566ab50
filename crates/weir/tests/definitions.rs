//! Changes of what a table is, by the public interface.
#![allow(clippy::unwrap_used)]

mod common;

use common::definitions::{keys, names, open, pair_table, raw_table, row};
use common::{all_items, check_quiet, items, retried, values};
use std::time::Duration;
use weir::{
    Bounds, Database, Direction, Entry, Error, Isolation, KeyOf, Lock, NewIndex, OwnedValue,
    Patience, RawIndex, RawRange, Schema, Table, TableChange, Type, Value,
};

#[test]
fn a_truncated_table_is_empty_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let row = |id: u64| (id as i64, format!("b{id}"), vec![7; 300]);
    let fill = |db: &Database, table: &Table| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (0..2000).for_each(|id| txn.insert(table, &values(id, &row(id))).unwrap());
        txn.commit().unwrap();
    };
    fill(&db, &table);
    let mut user = db.begin(Isolation::RepeatableRead).unwrap();
    user.get(&table, &[Value::U64(1)]).unwrap();
    assert!(matches!(db.truncate_table(&table), Err(Error::TableInUse(_))));
    user.rollback().unwrap();
    let mut older = db.begin(Isolation::RepeatableRead).unwrap();
    older.take_snapshot().unwrap();
    db.truncate_table(&table).unwrap();
    assert!(matches!(older.get(&table, &[Value::U64(1)]), Err(Error::TableTooNew(_))));
    older.rollback().unwrap();
    for _ in 0..2 {
        fill(&db, &table);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        assert_eq!(all_items(&mut txn, &table).len(), 2000);
        txn.commit().unwrap();
        db.truncate_table(&table).unwrap();
    }
    check_quiet(&db);
    drop((table, db));
    db = open(dir.path());
    let table = db.table("items").unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(all_items(&mut txn, &table).is_empty());
}

#[test]
fn snapshots_from_before_do_not_read_what_is_newer() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = raw_table(&db, 10);
    let mut older = db.begin(Isolation::RepeatableRead).unwrap();
    older.take_snapshot().unwrap();
    db.rename_table(&table, "copy").unwrap();
    let mut row = Vec::new();
    let first = 0u32.to_be_bytes();
    assert!(older.get_raw(&table, &first, Lock::None, &mut row).unwrap(), "another name");
    older.rollback().unwrap();
    older = db.begin(Isolation::RepeatableRead).unwrap();
    older.take_snapshot().unwrap();
    let mut filler = db.begin(Isolation::RepeatableRead).unwrap();
    filler.insert_raw(&table, b"new", b"row", &[]).unwrap();
    filler.commit().unwrap();
    db.changes(&Patience::new(Duration::ZERO)).hide_from_older(&table).unwrap();
    db.rename_table(&table, "gone").unwrap();
    let made = raw_table(&db, 20);
    let own = db.create_own_table("own", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    older.insert_raw(&own, b"key", b"row", &[]).unwrap();
    let mut get = |txn: &mut weir::Transaction, table: &Table, key: &[u8], lock: Lock| {
        txn.get_raw(table, key, lock, &mut row)
    };
    for newer in [&table, &made] {
        assert!(matches!(get(&mut older, newer, &first, Lock::None), Err(Error::TableTooNew(_))));
        for of in [KeyOf::Primary, KeyOf::Index(0)] {
            let all = RawRange::all();
            let scan = older.scan_raw(newer, of, all, Direction::Forward, Lock::None);
            assert!(matches!(scan.map(drop), Err(Error::TableTooNew(_))));
        }
        // What is read to be changed is the newest.
        assert!(get(&mut older, newer, &first, Lock::Exclusive(weir::Wait::No)).unwrap());
    }
    assert!(get(&mut older, &own, b"key", Lock::None).unwrap());
    older.commit().unwrap();
    let mut newer = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(get(&mut newer, &made, &first, Lock::None).unwrap());
}

#[test]
fn meta_changes_while_the_table_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = raw_table(&db, 3);
    let mut user = db.begin(Isolation::RepeatableRead).unwrap();
    user.insert_raw(&table, b"new", b"", &[]).unwrap();
    db.set_meta(&table, b"other").unwrap();
    user.delete_raw(&table, b"new", &[]).unwrap();
    user.commit().unwrap();
    assert!(matches!(db.set_meta(&table, &[0; 65537]), Err(Error::Schema(_))));
    drop((table, db));
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    assert_eq!(table.meta().unwrap(), b"other");
    assert_eq!(names(&table), ["a"]);
    let typed = db.create_table("items", items()).unwrap();
    assert!(matches!(db.set_meta(&typed, b""), Err(Error::NotRaw(_))));
}

#[test]
fn others_go_on_while_indexes_are_built() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = raw_table(&db, 500);
    let mut older = db.begin(Isolation::RepeatableRead).unwrap();
    older.take_snapshot().unwrap();
    let add = [RawIndex::new("by_row", true), RawIndex::new("parity", false)];
    let mut made = 0;
    db.alter_indexes(&table, &["a"], &add, Some(&[2]), &mut |n, key, row, of_key, value| {
        made += 1;
        if made == 400 {
            assert_eq!(keys(&db, &table, KeyOf::Index(0)).len(), 500);
            let (mut writer, new) = (db.begin(Isolation::RepeatableRead)?, 500u32.to_be_bytes());
            let in_a = Entry { index: 0, key: &new, value: b"" };
            writer.insert_raw(&table, &new, &self::row(500), &[in_a])?;
            writer.commit()?;
            // Other tables don't wait.
            db.create_table("other", Schema::raw(vec![], vec![]).unwrap()).unwrap();
        }
        match n {
            0 => of_key.extend_from_slice(row),
            _ => of_key.extend([row[3] & 1].iter().chain(key)),
        }
        value.extend_from_slice(key);
        Ok(())
    })
    .unwrap();
    assert_eq!((made, names(&table)), (1002, vec!["by_row".to_string(), "parity".to_string()]));
    assert_eq!(table.meta().unwrap(), [2]);
    let mut rows: Vec<Vec<u8>> = (0..=500).map(|n| row(n).to_vec()).collect();
    rows.sort();
    assert_eq!(keys(&db, &table, KeyOf::Index(0)), rows);
    assert_eq!(keys(&db, &table, KeyOf::Index(1)).len(), 501);
    let all = RawRange::all();
    let scan = older.scan_raw(&table, KeyOf::Index(1), all, Direction::Forward, Lock::None);
    assert!(matches!(scan.map(drop), Err(Error::IndexTooNew { .. })));
    drop(older);
    check_quiet(&db);
}

#[test]
fn a_failed_change_of_indexes_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = raw_table(&db, 100);
    let same = |_: usize, _: &[u8], _: &[u8], key: &mut Vec<u8>, _: &mut Vec<u8>| {
        key.push(1);
        Ok(())
    };
    let (unique, named_a) = ([RawIndex::new("u", true)], [RawIndex::new("a", true)]);
    let twice = db.alter_indexes(&table, &["a"], &unique, None, &mut { same });
    let Err(Error::Duplicate { table: of, index, key }) = twice else { panic!("{twice:?}") };
    assert_eq!((of, index, key), (table.name(), "u".to_string(), vec![1]));
    let exists = db.alter_indexes(&table, &[], &named_a, None, &mut { same });
    assert!(matches!(exists, Err(Error::IndexExists { .. })));
    let missing = db.alter_indexes(&table, &["x"], &[], None, &mut { same });
    assert!(matches!(missing, Err(Error::NoSuchIndex { .. })));
    let fails =
        db.alter_indexes(&table, &["a"], &unique, None, &mut |_, _, _, _, _| Err(Error::Cancelled));
    assert!(matches!(fails, Err(Error::Cancelled)));
    let empty = db.alter_indexes(&table, &["a"], &unique, None, &mut |_, _, _, _, _| Ok(()));
    assert!(matches!(empty, Err(Error::Row(_))));
    // A reader is in the way at the end.
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    reader.get_raw(&table, b"", Lock::None, &mut Vec::new()).unwrap();
    let own_key = |_: usize, key: &[u8], _: &[u8], of_key: &mut Vec<u8>, _: &mut Vec<u8>| {
        of_key.extend_from_slice(key);
        Ok(())
    };
    let in_use = db.alter_indexes(&table, &["a"], &unique, None, &mut { own_key });
    assert!(matches!(in_use, Err(Error::TableInUse(_))));
    drop(reader);
    assert_eq!(names(&table), ["a"]);
    assert_eq!(keys(&db, &table, KeyOf::Index(0)).len(), 100);
    check_quiet(&db);
    db.alter_indexes(&table, &["a"], &named_a, None, &mut { own_key }).unwrap();
    assert_eq!(names(&table), ["a"]);
    assert!(table.raw_schema().unwrap().indexes()[0].unique);
    check_quiet(&db);
}

/// Key and primary key of a unique entry together are longer than what a leaf takes.
#[test]
fn entries_too_long_for_a_leaf_are_built_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let schema = Schema::builder()
        .column("k", Type::Text)
        .column("u", Type::Text)
        .primary_key(&["k"])
        .unique_index("before", &["u"])
        .build()
        .unwrap();
    let table = db.create_table("t", schema).unwrap();
    let text = |n: usize, len: usize| format!("{n:05}{}", "x".repeat(len));
    let row =
        |n: usize| (text(n, if n.is_multiple_of(3) { 3000 } else { 3 }), text(n * 7 % 100, 1500));
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..100 {
        let (k, u) = row(n);
        txn.insert(&table, &[Value::Text(&k), Value::Text(&u)]).unwrap();
    }
    txn.commit().unwrap();
    db.create_index(&table, "after", &["u"], true).unwrap();
    let mut expected: Vec<_> = (0..100).map(row).collect();
    expected.sort_by(|x, y| x.1.cmp(&y.1));
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for index in ["before", "after"] {
        for keys_only in [false, true] {
            let (all, forward) = (Bounds::all(), Direction::Forward);
            let mut cursor = match keys_only {
                false => txn.scan(&table, index, all, forward).unwrap(),
                true => txn.scan_keys(&table, index, all, forward).unwrap(),
            };
            for (k, u) in &expected {
                let found = cursor.next().unwrap().unwrap();
                assert_eq!(found.get(0).unwrap().as_str(), Some(&k[..]), "{index}");
                assert_eq!(found.get(1).unwrap().as_str(), Some(&u[..]), "{index}");
            }
            assert!(cursor.next().unwrap().is_none());
        }
    }
    drop(txn);
    check_quiet(&db);
    db.drop_index(&table, "after").unwrap();
    check_quiet(&db);
}

/// Sorts that are larger than their memory, at the same time: two of each table, two tables.
#[test]
fn indexes_are_built_beside_others() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let body = |id: u32| [&id.to_be_bytes()[..], &[7; 400]].concat();
    let tables: Vec<_> = ["one", "two"]
        .map(|name| {
            let table = db.create_table(name, Schema::raw(vec![], vec![]).unwrap()).unwrap();
            retried(&db, Isolation::default(), |txn| {
                (0..8000).try_for_each(|id| txn.insert_raw(&table, &body(id), b"row", &[]))
            });
            table
        })
        .into();
    std::thread::scope(|scope| {
        for table in &tables {
            let db = &db;
            scope.spawn(move || {
                let add = [RawIndex::new("a", false), RawIndex::new("b", true)];
                db.alter_indexes(table, &[], &add, None, &mut |n, key, _, of_key, _| {
                    of_key.push(n as u8);
                    of_key.extend(key.iter().rev());
                    Ok(())
                })
                .unwrap();
            });
        }
    });
    for table in &tables {
        for n in 0..2 {
            assert_eq!(keys(&db, table, KeyOf::Index(n)).len(), 8000);
        }
    }
    check_quiet(&db);
}

#[test]
fn indexes_get_other_names() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = raw_table(&db, 10);
    let change = |rename: &[(&str, &str)], add: &[RawIndex]| {
        let change = TableChange { table: &table, drop: &[], rename, add, meta: None };
        db.alter_tables(&[change], &mut |_, _, key, _, of_key, _| {
            of_key.extend(key.iter().rev());
            Ok(())
        })
    };
    // One takes the name that another gives up.
    change(&[("a", "b")], &[RawIndex::new("a", false)]).unwrap();
    change(&[("a", "b"), ("b", "a")], &[]).unwrap();
    for wrong in [("a", "b"), ("c", "d"), ("a", "")] {
        assert!(change(&[wrong], &[]).is_err());
    }
    change(&[("b", "c")], &[]).unwrap();
    let of_rows = keys(&db, &table, KeyOf::Primary);
    drop(table);
    drop(db);
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    assert_eq!(names(&table), ["a", "c"]);
    assert_eq!(keys(&db, &table, KeyOf::Index(0)), of_rows);
    assert_eq!(keys(&db, &table, KeyOf::Index(1))[1], [1, 0, 0, 0]);
    check_quiet(&db);
}

#[test]
fn a_name_and_what_is_kept_with_a_table_change_together() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = raw_table(&db, 10);
    let patience = Patience::new(Duration::ZERO);
    let too_long = vec![0; 1 << 20];
    assert!(db.changes(&patience).rename_raw_table(&table, "u", &too_long).is_err());
    assert_eq!((table.name().as_str(), table.meta().unwrap()), ("t", vec![1]));
    db.changes(&patience).rename_raw_table(&table, "u", &[2, 3]).unwrap();
    assert_eq!((table.name().as_str(), table.meta().unwrap()), ("u", vec![2, 3]));
    drop((table, db));
    let db = open(dir.path());
    assert!(db.table("t").is_none());
    let table = db.table("u").unwrap();
    assert_eq!(table.meta().unwrap(), [2, 3]);
    assert_eq!(keys(&db, &table, KeyOf::Index(0)).len(), 10);
    check_quiet(&db);
}

#[test]
fn all_of_several_indexes_are_created_or_none() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = pair_table(&db);
    let names = |table: &Table| -> Vec<String> {
        table.schema().unwrap().indexes().iter().map(|index| index.name().to_string()).collect()
    };
    let plain = |name: &'static str| NewIndex { name, columns: &["a", "id"], unique: false };
    let unique = NewIndex { name: "unique", columns: &["a"], unique: true };
    let of_none = NewIndex { name: "none", columns: &["b"], unique: false };
    let refused = |indexes: &[NewIndex<'_>]| {
        let error = db.create_indexes(&table, indexes).unwrap_err();
        assert_eq!(names(&table), ["by_a"]);
        check_quiet(&db);
        error
    };
    assert!(matches!(refused(&[plain("x"), unique]), Error::Duplicate { .. }));
    assert!(matches!(refused(&[plain("x"), plain("by_a")]), Error::IndexExists { .. }));
    assert!(matches!(refused(&[plain("x"), plain("x")]), Error::IndexExists { .. }));
    assert!(matches!(refused(&[plain("x"), of_none]), Error::Schema(_)));

    let unique = NewIndex { columns: &["a", "id"], ..unique };
    db.create_indexes(&table, &[]).unwrap();
    db.create_indexes(&table, &[plain("x"), unique]).unwrap();
    assert_eq!(names(&table), ["by_a", "x", "unique"]);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for index in ["x", "unique"] {
        let mut rows = txn.scan(&table, index, Bounds::all(), Direction::Forward).unwrap();
        for id in 0..100 {
            assert_eq!(rows.next().unwrap().unwrap().get(0).unwrap(), Value::U64(id));
        }
        assert!(rows.next().unwrap().is_none());
    }
    drop(txn);
    check_quiet(&db);
}

#[test]
fn a_table_has_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let schema = || Schema::raw(vec![], vec![]).unwrap();
    assert!(matches!(db.create_table("", schema()), Err(Error::NoName)));
    let table = db.create_table("t", schema()).unwrap();
    assert!(matches!(db.rename_table(&table, ""), Err(Error::NoName)));
    assert_eq!(table.name(), "t");
}

fn row_of(db: &Database, table: &Table, id: u64) -> Vec<OwnedValue> {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let row = txn.get(table, &[Value::U64(id)]).unwrap().unwrap();
    row.values().map(|value| value.to_owned()).collect()
}

#[test]
fn columns_come_and_go_and_rows_stay() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = pair_table(&db);
    let mut older = db.begin(Isolation::RepeatableRead).unwrap();
    older.take_snapshot().unwrap();

    db.add_column(&table, "n", Type::I64, Value::I64(-1)).unwrap();
    db.add_column(&table, "b", Type::Bytes, Value::Null).unwrap();
    let put = |id: u64, row: &[Value<'_>]| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.upsert(&table, &[&[Value::U64(id)], row].concat()).unwrap();
        txn.commit().unwrap();
    };
    put(7, &["new".into(), 7.into(), (&[1u8][..]).into()]);
    put(200, &["new".into(), 8.into(), Value::Null]);
    assert_eq!(
        row_of(&db, &table, 6),
        [6u64.into(), "old".into(), OwnedValue::from(-1), OwnedValue::Null]
    );
    let seven = older.get(&table, &[Value::U64(7)]).unwrap().unwrap();
    assert_eq!(seven.values().nth(2), Some(Value::I64(-1)), "as it was at the snapshot");
    older.rollback().unwrap();

    // What is made of old rows and of new ones.
    db.create_index(&table, "by_n", &["n"], false).unwrap();
    let with = |n: i64| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let n = [Value::I64(n)];
        let mut rows = txn.scan(&table, "by_n", Bounds::prefix(&n), Direction::Forward).unwrap();
        let mut ids = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            ids.push(row.get(0).unwrap().as_u64().unwrap());
        }
        ids
    };
    assert_eq!((with(-1).len(), with(7), with(8)), (99, vec![7], vec![200]));

    let refused = db.drop_column(&table, "n").unwrap_err().to_string();
    assert_eq!(refused, "the column `n` is part of the index `by_n`");
    db.drop_index(&table, "by_n").unwrap();
    db.drop_column(&table, "n").unwrap();
    db.rename_column(&table, "b", "n").unwrap();
    assert_eq!(row_of(&db, &table, 7), [7u64.into(), "new".into(), OwnedValue::from(vec![1])]);
    put(8, &["newer".into(), Value::Null]);
    check_quiet(&db);
    let copy = db.create_table("copy", table.schema().unwrap()).unwrap();
    assert_eq!(copy.schema().unwrap(), table.schema().unwrap());
    drop(db);

    let db = open(dir.path());
    let table = db.table("pairs").unwrap();
    let columns: Vec<_> =
        table.schema().unwrap().columns().iter().map(|c| c.name().to_string()).collect();
    assert_eq!(columns, ["id", "a", "n"]);
    assert_eq!(row_of(&db, &table, 8), [8u64.into(), "newer".into(), OwnedValue::Null]);
    assert_eq!(row_of(&db, &table, 9), [9u64.into(), "old".into(), OwnedValue::Null]);
    check_quiet(&db);
}

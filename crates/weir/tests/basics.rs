//! The public interface, end to end.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

use std::time::Duration;
use weir::{
    Bounds, Database, Direction, Durability, Error, IndexRef, Isolation, Lock, Options, Schema,
    Shutdown, Type, Value, Wait,
};

fn options() -> Options {
    Options::default()
        .memory_bytes(8 << 20)
        .redo_capacity_bytes(4 << 20)
        .durability(Durability::Write)
}

fn people() -> Schema {
    Schema::builder()
        .column("id", Type::U64)
        .column("name", Type::Text)
        .column("age", Type::I64)
        .primary_key(&["id"])
        .index("by_age", &["age"])
        .unique_index("by_name", &["name"])
        .build()
        .unwrap()
}

fn insert(db: &Database, table: &weir::Table, ids: std::ops::Range<u64>) {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in ids {
        let name = format!("name {id}");
        let age = Value::I64((id % 100) as i64);
        txn.insert(table, &[Value::U64(id), Value::Text(&name), age]).unwrap();
    }
    txn.commit().unwrap();
}

#[test]
fn a_row_is_read_by_a_unique_index() {
    let db = Database::in_memory(options()).unwrap();
    let schema = Schema::builder().column("id", Type::U64).nullable_column("a", Type::I64);
    let schema = schema.column("b", Type::Text).primary_key(&["id"]).index("by_b", &["b"]);
    let table = db.create_table("t", schema.unique_index("by_a", &["a"]).build().unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for (id, a) in [(1u64, Some(10i64)), (2, Some(20)), (3, None), (4, None)] {
        txn.insert(&table, &[id.into(), a.into(), "x".into()]).unwrap();
    }
    txn.commit().unwrap();

    let mut older = db.begin(Isolation::RepeatableRead).unwrap();
    let id_of = |row: Option<weir::Row>| row.map(|row| row.get(0).as_u64().unwrap());
    assert_eq!(id_of(older.get_by(&table, "by_a", &[20i64.into()]).unwrap()), Some(2));
    assert_eq!(id_of(older.get_by(&table, "by_a", &[30i64.into()]).unwrap()), None);
    assert_eq!(id_of(older.get_by(&table, "by_a", &[Value::Null]).unwrap()), None);
    assert_eq!(id_of(older.get_by(&table, IndexRef::Primary, &[4u64.into()]).unwrap()), Some(4));
    let error = older.get_by(&table, "by_b", &["x".into()]).unwrap_err();
    assert!(matches!(error, Error::NotUnique { .. }), "{error}");
    let error = older.get_by(&table, "by_a", &[]).unwrap_err();
    assert_eq!(error.to_string(), "the index `by_a` has 1 columns; 0 values were given");
    assert!(older.get_by(&table, "by_c", &[]).is_err());

    // What the snapshot sees, and what is there now, locked.
    let mut newer = db.begin(Isolation::RepeatableRead).unwrap();
    newer.set_lock_wait_timeout(Duration::ZERO).unwrap();
    assert!(newer.update_columns(&table, &[1u64.into()], &[("a", 30i64.into())]).unwrap());
    newer.commit().unwrap();
    assert_eq!(id_of(older.get_by(&table, "by_a", &[30i64.into()]).unwrap()), None);
    assert_eq!(id_of(older.get_by(&table, "by_a", &[10i64.into()]).unwrap()), Some(1));
    let lock = Lock::Exclusive(Wait::No);
    let locked = older.get_by_locking(&table, "by_a", &[30i64.into()], lock).unwrap();
    assert_eq!(id_of(locked), Some(1));
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    let error = other.get_by_locking(&table, "by_a", &[30i64.into()], lock).unwrap_err();
    assert!(matches!(error, Error::LockWaitTimeout), "{error}");
}

#[test]
fn some_columns_of_a_row_are_changed_by_name() {
    let db = Database::in_memory(options()).unwrap();
    let table = db.create_table("people", people()).unwrap();
    insert(&db, &table, 0..3);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let one = [Value::U64(1)];
    let (age, name) = (("age", 50i64.into()), ("name", "Ada".into()));
    assert!(txn.update_columns(&table, &one, &[age, name]).unwrap());
    assert!(!txn.update_columns(&table, &[Value::U64(7)], &[age]).unwrap());
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    other.set_lock_wait_timeout(Duration::ZERO).unwrap();
    other.insert(&table, &[7u64.into(), "Eve".into(), 7i64.into()]).unwrap();
    other.rollback().unwrap();
    let of_unknown = txn.update_columns(&table, &one, &[age, ("agee", 1i64.into())]).unwrap_err();
    assert_eq!(of_unknown.to_string(), "the table has no column `agee`");
    let of_key = txn.update_columns(&table, &one, &[age, ("id", 9u64.into())]).unwrap_err();
    assert_eq!(of_key.to_string(), "the column `id` is part of the primary key");
    let of_type = txn.update_columns(&table, &one, &[("age", "old".into())]).unwrap_err();
    assert!(matches!(of_type, Error::Row(_)), "{of_type}");
    let taken =
        txn.update_columns(&table, &one, &[("age", 1i64.into()), ("name", "name 2".into())]);
    assert!(matches!(taken, Err(Error::Duplicate { .. })), "{taken:?}");
    let row = txn.get(&table, &one).unwrap().unwrap();
    assert!(row.values().eq([Value::U64(1), Value::Text("Ada"), Value::I64(50)]), "{row:?}");
    txn.commit().unwrap();
    let mut findings = Vec::new();
    db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{findings:?}");
}

/// They were told as files that can't be opened, and as no damage.
#[test]
fn a_missing_file_of_a_database_is_damage_and_told_by_name() {
    for (name, after) in [("data", "data is missing"), ("map", "map is missing")] {
        let dir = tempfile::tempdir().unwrap();
        drop(Database::open(dir.path(), options()).unwrap());
        std::fs::rename(dir.path().join(name), dir.path().join("elsewhere")).unwrap();
        let error = Database::open(dir.path(), options()).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains(after), "{error}");
        std::fs::rename(dir.path().join("elsewhere"), dir.path().join(name)).unwrap();
        Database::open(dir.path(), options()).unwrap();
    }
}

/// A struct that has one can derive it; `unwrap_err` wants it of what wasn't to be had.
#[test]
fn handles_are_debug() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Database::open(dir.path(), options().create(false)).unwrap_err();
    assert!(matches!(missing, Error::NoDatabase { .. }));
    let db = Database::open(dir.path().join("db"), options()).unwrap();
    let table = db.create_table("people", people()).unwrap();
    let backup = db.begin_backup(dir.path().join("copy")).unwrap();
    let patience = weir::Patience::new(Duration::from_secs(1));
    let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
    let canceller = txn.canceller().unwrap();
    let handles = [format!("{db:?} {backup:?} {patience:?} {canceller:?} {:?}", options())];
    let cursor = txn.scan(&table, "by_age", Bounds::all(), Direction::Forward).unwrap();
    let all = format!("{handles:?} {cursor:?} {:?}", db.changes(&patience));
    for name in ["Database", "Backup", "Patience", "Canceller", "Options", "Cursor", "Changes"] {
        assert!(all.contains(name), "{name} in {all}");
    }
    assert!(all.contains("isolation: ReadCommitted"), "{all}");
}

fn count(db: &Database, table: &weir::Table, index: IndexRef<'_>) -> usize {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let mut cursor = txn.scan_keys(table, index, Bounds::all(), Direction::Forward).unwrap();
    let mut n = 0;
    while cursor.next().unwrap().is_some() {
        n += 1;
    }
    n
}

#[test]
fn rows_survive_reopening() {
    let dir = tempfile::tempdir().unwrap();
    {
        let db = Database::open(dir.path(), options()).unwrap();
        let table = db.create_table("people", people()).unwrap();
        for part in 0..200 {
            insert(&db, &table, part * 100..(part + 1) * 100);
        }
        assert_eq!(count(&db, &table, IndexRef::Primary), 20_000);
        assert_eq!(count(&db, &table, "by_age".into()), 20_000);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.insert(&table, &[Value::U64(1 << 40), Value::Text("loser"), Value::I64(1)]).unwrap();
        std::mem::forget(txn);
        db.sync().unwrap();
    }
    for how in [Shutdown::Fast, Shutdown::Clean, Shutdown::Fast] {
        // The forgotten transaction keeps the first handle's state alive; its lock is the
        // process's.
        let db = match Database::open(dir.path(), options()) {
            Ok(db) => db,
            Err(error) => {
                assert!(error.to_string().contains("lock"), "{error}");
                return;
            }
        };
        let table = db.table("people").unwrap();
        assert_eq!(count(&db, &table, IndexRef::Primary), 20_000);
        db.close(how, &mut |_| {}).unwrap();
    }
}

#[test]
fn a_duplicate_undoes_its_statement_only() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("people", people()).unwrap();
    insert(&db, &table, 0..10);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&table, &[Value::U64(100), Value::Text("new"), Value::I64(5)]).unwrap();
    let error = txn.insert(&table, &[Value::U64(101), Value::Text("name 3"), Value::I64(5)]);
    assert!(
        matches!(error, Err(Error::Duplicate { ref index, .. }) if index == "by_name"),
        "{error:?}"
    );
    let error = txn.insert(&table, &[Value::U64(3), Value::Text("x"), Value::I64(5)]);
    assert!(matches!(error, Err(Error::Duplicate { ref index, .. }) if index == "primary"));
    txn.commit().unwrap();
    assert_eq!(count(&db, &table, IndexRef::Primary), 11);
    assert_eq!(count(&db, &table, "by_age".into()), 11);
    assert_eq!(count(&db, &table, "by_name".into()), 11);
}

#[test]
fn snapshots_do_not_see_what_comes_later() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("people", people()).unwrap();
    insert(&db, &table, 0..1000);
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(reader.get(&table, &[Value::U64(1)]).unwrap().is_some());
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 0..1000 {
        if id % 2 == 0 {
            assert!(writer.delete(&table, &[Value::U64(id)]).unwrap());
        } else {
            let name = format!("renamed {id}");
            let row = [Value::U64(id), Value::Text(&name), Value::I64(-1)];
            assert!(writer.update(&table, &row).unwrap());
        }
    }
    writer.commit().unwrap();
    db.purge_all().unwrap();
    for id in 0..1000 {
        let row = reader.get(&table, &[Value::U64(id)]).unwrap().unwrap();
        assert_eq!(row.get(1), Value::Text(&format!("name {id}")));
    }
    let mut cursor = reader
        .scan(&table, "by_age", Bounds::prefix(&[Value::I64(7)]), Direction::Backward)
        .unwrap();
    let mut ids = Vec::new();
    while let Some(row) = cursor.next().unwrap() {
        ids.push(row.get(0).unwrap().as_u64().unwrap());
    }
    assert_eq!(ids, (0..10).rev().map(|n| n * 100 + 7).collect::<Vec<_>>());
    drop(cursor);
    drop(reader);
    db.purge_all().unwrap();
    assert_eq!(count(&db, &table, IndexRef::Primary), 500);
    assert_eq!(count(&db, &table, "by_age".into()), 500);
    assert_eq!(db.status().history_list_length, 0);
}

#[test]
fn long_values_and_indexes_on_filled_tables() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("body", Type::Bytes)
        .column("n", Type::U64)
        .primary_key(&["id"])
        .build()
        .unwrap();
    let table = db.create_table("docs", schema).unwrap();
    let body = |id: u64| vec![id as u8; (id as usize % 7) * 9000];
    for id in 0..300u64 {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let row = [Value::U64(id), Value::Bytes(&body(id)), Value::U64(1000 - id)];
        txn.insert(&table, &row).unwrap();
        if id % 3 == 2 { txn.rollback().unwrap() } else { txn.commit().unwrap() }
    }
    db.create_index(&table, "by_n", &["n"], true).unwrap();
    assert_eq!(count(&db, &table, "by_n".into()), 200);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let mut cursor = txn.scan(&table, "by_n", Bounds::all(), Direction::Backward).unwrap();
    let mut last = 0;
    while let Some(row) = cursor.next().unwrap() {
        let id = row.get(0).unwrap().as_u64().unwrap();
        assert!(last <= id);
        last = id;
        assert_eq!(row.get(1).unwrap(), Value::Bytes(&body(id)));
    }
    drop(cursor);
    txn.commit().unwrap();
    db.drop_index(&table, "by_n").unwrap();
    db.drop_table(&table).unwrap();
    db.purge_all().unwrap();
    assert!(db.table("docs").is_none());
    assert!(db.status().pages_allocated < 10, "{}", db.status().pages_allocated);
}

/// A reader of uncommitted rows must not take the pages of a chain that has been freed for the
/// chain.
#[test]
fn a_dirty_reader_meets_no_foreign_chain() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("body", Type::Text)
        .primary_key(&["id"])
        .build()
        .unwrap();
    let table = db.create_table("docs", schema).unwrap();
    let write = |id: u64, body: &str| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.upsert(&table, &[Value::U64(id), Value::Text(body)]).unwrap();
        txn.commit().unwrap();
    };
    write(1, "a");
    write(2, &"x".repeat(100_000));
    let mut reader = db.begin(Isolation::ReadUncommitted).unwrap();
    let mut cursor =
        reader.scan(&table, IndexRef::Primary, Bounds::all(), Direction::Forward).unwrap();
    assert!(cursor.next().unwrap().is_some());
    write(2, "short");
    db.purge_all().unwrap();
    write(3, &"y".repeat(100_000));
    let row = cursor.next().unwrap().unwrap();
    assert_eq!(row.get(1).unwrap(), Value::Text("short"));
}

#[test]
fn a_dirty_scan_by_an_index_keeps_to_its_range() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("a", Type::I64)
        .primary_key(&["id"])
        .index("by_a", &["a"])
        .build()
        .unwrap();
    let table = db.create_table("t", schema).unwrap();
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 0..50 {
        writer.insert(&table, &[Value::U64(id), Value::I64(5)]).unwrap();
    }
    writer.commit().unwrap();
    let mut reader = db.begin(Isolation::ReadUncommitted).unwrap();
    let five = [Value::I64(5)];
    let mut rows = reader.scan(&table, "by_a", Bounds::prefix(&five), Direction::Forward).unwrap();
    assert!(rows.next().unwrap().is_some());
    // Entries of some of them have been read already.
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    for id in (2..50).step_by(2) {
        assert!(writer.update(&table, &[Value::U64(id), Value::I64(77)]).unwrap());
    }
    let mut ids = Vec::new();
    while let Some(row) = rows.next().unwrap() {
        assert_eq!(row.get(1).unwrap(), Value::I64(5));
        ids.push(row.get(0).unwrap().as_u64().unwrap());
    }
    assert_eq!(ids, (1..50).step_by(2).collect::<Vec<_>>());
}

#[test]
fn a_locked_row_is_refused_at_once_until_it_is_unlocked() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("people", people()).unwrap();
    insert(&db, &table, 0..3);
    let key = [Value::U64(1)];
    let mut holder = db.begin(Isolation::ReadCommitted).unwrap();
    assert!(holder.get_for_update(&table, &key).unwrap().is_some());
    assert_eq!(db.locks().len(), 1);
    let mut other = db.begin(Isolation::ReadCommitted).unwrap();
    let refused = other.get_for_update_nowait(&table, &key);
    assert!(matches!(refused, Err(Error::LockWaitTimeout)), "{refused:?}");
    holder.unlock(&table, &key).unwrap();
    assert!(other.get_for_update_nowait(&table, &key).unwrap().is_some());
    // A wait that is cancelled ends, though the lock is never given up.
    holder.canceller().unwrap().cancel();
    let ended = holder.get_for_update(&table, &key);
    assert!(matches!(ended, Err(Error::Cancelled)), "{ended:?}");
    // The next one isn't.
    holder.set_lock_wait_timeout(Duration::ZERO).unwrap();
    let later = holder.get_for_update(&table, &key);
    assert!(matches!(later, Err(Error::LockWaitTimeout)), "{later:?}");
}

#[test]
fn another_transaction_takes_the_place_of_one_that_has_committed() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("people", people()).unwrap();
    insert(&db, &table, 0..3);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.delete(&table, &[Value::U64(1)]).unwrap();
    let of_the_first = txn.canceller().unwrap();
    db.wait(txn.commit_in_order().unwrap()).unwrap();
    assert!(txn.has_ended() && matches!(txn.get(&table, &[Value::U64(0)]), Err(Error::Ended)));

    let mut holder = db.begin(Isolation::ReadCommitted).unwrap();
    holder.delete(&table, &[Value::U64(2)]).unwrap();
    txn.begin_again(Isolation::ReadCommitted).unwrap();
    let found = [0, 1, 2].map(|id| txn.get(&table, &[Value::U64(id)]).unwrap().is_some());
    assert_eq!(found, [true, false, true]);
    // What ends waits of the one before doesn't end its own.
    of_the_first.cancel();
    txn.set_lock_wait_timeout(Duration::ZERO).unwrap();
    let refused = txn.get_for_update(&table, &[Value::U64(2)]);
    assert!(matches!(refused, Err(Error::LockWaitTimeout)), "{refused:?}");
    db.wait(txn.commit_in_order().unwrap()).unwrap();
    holder.commit().unwrap();

    // Nor does it use what that one used.
    txn.begin_again(Isolation::RepeatableRead).unwrap();
    db.drop_table(&table).unwrap();
    let lacking = txn.get(&table, &[Value::U64(0)]);
    assert!(matches!(lacking, Err(Error::NoSuchTable(_))), "{lacking:?}");
    txn.rollback().unwrap();
}

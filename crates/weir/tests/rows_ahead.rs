//! Rows of an index's entries are read together where they are not in memory.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use weir::{
    Bounds, Database, Direction, Entry, Isolation, KeyOf, Lock, RawIndex, RawRange, RowsAhead,
    Schema, Status, Table, Type, Value, Wait, take_work,
};

const ROWS: u64 = 60_000;
/// Rows with one value of the index lie so far from each other.
const VALUES: u64 = 100;

/// Rows have twice as much as this memory.
fn database(dir: &tempfile::TempDir) -> Database {
    Database::open(dir.path(), options(32 << 20, 64 << 20)).unwrap()
}

/// Pages that were read one by one since then, and ahead.
fn reads_since(db: &Database, before: &Status) -> (u64, u64) {
    let after = db.status();
    (after.pages_read - before.pages_read, after.pages_read_ahead - before.pages_read_ahead)
}

fn typed(db: &Database) -> Table {
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("value", Type::U64)
        .column("body", Type::Bytes)
        .primary_key(&["id"])
        .index("by_value", &["value"])
        .build()
        .unwrap();
    let table = db.create_table("rows", schema).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 0..ROWS {
        let body = [id as u8; 1100];
        txn.insert(&table, &[id.into(), (id % VALUES).into(), Value::Bytes(&body)]).unwrap();
    }
    txn.commit().unwrap();
    db.purge_all().unwrap();
    db.checkpoint().unwrap();
    table
}

#[test]
fn a_cursor_by_an_index_reads_rows_together_whichever_way_it_goes_and_locks() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(&dir);
    let table = typed(&db);
    let exclusive = Lock::Exclusive(Wait::ForTimeout);
    for (value, way, lock) in [
        (3, Direction::Forward, Lock::None),
        (27, Direction::Backward, Lock::None),
        (51, Direction::Forward, exclusive),
        (78, Direction::Backward, exclusive),
    ] {
        let before = db.status();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let wanted = [Value::U64(value)];
        let bounds = Bounds::prefix(&wanted);
        let mut rows = txn.scan_locking(&table, "by_value", bounds, way, lock).unwrap();
        let mut found = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            let id = row.get(0).unwrap().as_u64().unwrap();
            assert_eq!(row.get(2).unwrap(), Value::Bytes(&[id as u8; 1100]));
            found.push(id);
        }
        let mut expected: Vec<u64> = (0..ROWS).filter(|id| id % VALUES == value).collect();
        if way == Direction::Backward {
            expected.reverse();
        }
        assert_eq!(found, expected);
        let (alone, ahead) = reads_since(&db, &before);
        assert!(2 * ahead > alone, "{way:?}, {lock:?}: {ahead} ahead, {alone} alone");
        assert!(
            alone + ahead < 3 * ROWS / VALUES / 2,
            "few pages are read twice: {ahead}, {alone}"
        );
    }
}

/// Where few are wanted few are read.
#[test]
fn of_the_first_rows_by_an_index_few_others_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(&dir);
    let table = typed(&db);
    take_work();
    for value in 0..10 {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let wanted = [Value::U64(value)];
        let bounds = Bounds::prefix(&wanted);
        let mut rows = txn.scan(&table, "by_value", bounds, Direction::Forward).unwrap();
        (0..2).for_each(|_| assert!(rows.next().unwrap().is_some()));
    }
    // Two of the index, two rows and perhaps three more.
    let read = take_work().pages_read;
    assert!(read <= 10 * 7, "{read} pages");
}

#[test]
fn rows_of_many_keys_are_read_together_and_come_in_the_order_of_keys() {
    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        rows_of_many_keys(isolation);
    }
}

fn rows_of_many_keys(isolation: Isolation) {
    let dir = tempfile::tempdir().unwrap();
    let db = database(&dir);
    let table = typed(&db);
    // Some are not there, one is asked for twice.
    let ids: Vec<u64> = (0..700).map(|n| n * 6607 % (ROWS + 200)).chain([5, 5]).collect();
    let keys: Vec<_> = ids.iter().map(|id| [Value::U64(*id)]).collect();
    let before = db.status();
    let mut txn = db.begin(isolation).unwrap();
    let rows = txn.get_many(&table, &keys).unwrap();
    let (alone, ahead) = reads_since(&db, &before);
    assert!(2 * ahead > alone, "{ahead} ahead, {alone} alone");
    assert_eq!(rows.len(), ids.len());
    for (id, row) in ids.iter().zip(&rows) {
        let found = row.as_ref().map(|row| (row.get(0), row.get(2)));
        let body = [*id as u8; 1100];
        assert_eq!(found, (*id < ROWS).then_some((Value::U64(*id), Value::Bytes(&body))));
    }
    let wrong = txn.get_many(&table, &[vec![Value::U64(1)], vec![]]);
    assert!(wrong.unwrap_err().to_string().contains("primary key"));
    // Those that are deleted are, too.
    let before = db.status();
    let gone: Vec<_> = (0..700).map(|n| [Value::U64(n * 85 + 40)]).collect();
    assert_eq!(txn.delete_many(&table, &gone).unwrap(), 700);
    let (alone, ahead) = reads_since(&db, &before);
    assert!(2 * ahead > alone, "{ahead} ahead, {alone} alone");
    assert!(txn.get_many(&table, &gone).unwrap().iter().all(Option::is_none));
}

#[test]
fn a_long_value_is_read_together() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(&dir);
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let value = |n: u8| [n].repeat(1_000_000 + usize::from(n));
    for n in 0..64 {
        retried(&db, Isolation::default(), |txn| txn.insert_raw(&table, &[n], &value(n), &[]));
    }
    db.purge_all().unwrap();
    db.checkpoint().unwrap();
    let before = db.status();
    let (mut txn, mut row) = (db.begin(Isolation::RepeatableRead).unwrap(), Vec::new());
    for n in 0..64 {
        assert!(txn.get_raw(&table, &[n], Lock::None, &mut row).unwrap());
        assert!(row == value(n), "{n}");
    }
    let (alone, ahead) = reads_since(&db, &before);
    assert!(2 * ahead > alone, "{ahead} ahead, {alone} alone");
}

#[test]
fn raw_rows_are_read_together_for_who_asks() {
    let dir = tempfile::tempdir().unwrap();
    let db = database(&dir);
    let schema = Schema::raw(vec![RawIndex::new("by_value", false)], vec![]).unwrap();
    let table = db.create_table("rows", schema).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 0..ROWS {
        let (id, value) = (id.to_be_bytes(), (id % VALUES).to_be_bytes());
        let entry = Entry { index: 0, key: &[value, id].concat(), value: b"" };
        txn.insert_raw(&table, &id, &[id[7]; 1100], &[entry]).unwrap();
    }
    txn.commit().unwrap();
    db.purge_all().unwrap();
    db.checkpoint().unwrap();
    let before = db.status();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let (prefix, way) = (50_u64.to_be_bytes(), Direction::Forward);
    let (of, range) = (KeyOf::Index(0), RawRange::prefix(&prefix));
    let mut scan = txn.scan_raw(&table, of, range, way, Lock::None).unwrap();
    let (mut ahead, mut given, mut row) = (RowsAhead::default(), 0, Vec::new());
    while let Some(entry) = scan.next(&mut txn).unwrap() {
        let mut keys = vec![entry.key[8..].to_vec()];
        keys.extend(scan.take_rest().iter().map(|entry| entry.key[8..].to_vec()));
        for (n, key) in keys.iter().enumerate() {
            let due = ahead.due(given, keys.len() - n);
            let together = keys[n..][..due].iter().map(Vec::as_slice);
            txn.read_ahead_raw(&table, KeyOf::Primary, together).unwrap();
            assert!(txn.get_raw(&table, key, Lock::None, &mut row).unwrap());
            assert_eq!(row, [key[7]; 1100]);
            given += 1;
        }
    }
    assert_eq!(given, ROWS / VALUES);
    let (alone, ahead) = reads_since(&db, &before);
    assert!(2 * ahead > alone, "{ahead} ahead, {alone} alone");
}

//! Raw tables: the caller's bytes, kept like rows.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Given, check_quiet, factor, options, seed};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::time::Duration;
use weir::{
    BackgroundStep, Database, Direction, Entry, Error, Isolation, KeyOf, Lock, Options, RawIndex,
    RawRange, Schema, Shutdown, Table, Transaction, Value, Wait,
};

/// A row as the tests' caller keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    unique: Option<u16>,
    group: u8,
    /// Kept in the values of an index, too.
    note: Vec<u8>,
    body: Vec<u8>,
}

type Owned = (usize, Vec<u8>, Vec<u8>);

impl Row {
    fn new(unique: Option<u16>, group: u8, note: &[u8]) -> Row {
        Row { unique, group, note: note.to_vec(), body: b"body".to_vec() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = vec![u8::from(self.unique.is_some()), self.group, self.note.len() as u8];
        out.extend_from_slice(&self.unique.unwrap_or(0).to_be_bytes());
        out.extend_from_slice(&self.note);
        out.extend_from_slice(&self.body);
        out
    }

    fn entries(&self, key: &[u8]) -> Vec<Owned> {
        let unique = match self.unique {
            Some(u) => [&[1][..], &u.to_be_bytes()].concat(),
            None => [&[0][..], key].concat(),
        };
        let of_group = [&[self.group][..], key].concat();
        vec![
            (0, unique, key.to_vec()),
            (1, of_group.clone(), Vec::new()),
            (2, of_group, self.note.clone()),
        ]
    }
}

fn borrowed(entries: &[Owned]) -> Vec<Entry<'_>> {
    entries.iter().map(|(index, key, value)| Entry { index: *index, key, value }).collect()
}

fn schema() -> weir::RawSchema {
    let indexes = vec![
        RawIndex::new("unique", true),
        RawIndex::new("group", false),
        RawIndex::new("notes", false),
    ];
    Schema::raw(indexes, b"about the table".to_vec()).unwrap()
}

fn insert(txn: &mut Transaction, table: &Table, key: &[u8], row: &Row) -> weir::Result<()> {
    txn.insert_raw(table, key, &row.bytes(), &borrowed(&row.entries(key)))
}

/// Updates as a caller does who knows the row: only what differs is passed.
fn update(
    txn: &mut Transaction,
    table: &Table,
    key: &[u8],
    old: &Row,
    new: &Row,
) -> weir::Result<()> {
    let (old, entries) = (old.entries(key), new.entries(key));
    let differ = |n: &usize| old[*n] != entries[*n];
    let removed: Vec<Owned> = (0..3).filter(differ).map(|n| old[n].clone()).collect();
    let added: Vec<Owned> = (0..3).filter(differ).map(|n| entries[n].clone()).collect();
    let same: Vec<Owned> = (0..3).filter(|n| !differ(n)).map(|n| entries[n].clone()).collect();
    if txn.update_raw(table, key, &new.bytes(), &borrowed(&removed), &borrowed(&added))? {
        txn.touch_raw(table, &borrowed(&same))?;
    }
    Ok(())
}

fn delete(txn: &mut Transaction, table: &Table, key: &[u8], old: &Row) -> weir::Result<()> {
    txn.delete_raw(table, key, &borrowed(&old.entries(key)))
}

fn scan(
    txn: &mut Transaction,
    table: &Table,
    of: KeyOf,
    range: RawRange<'_>,
    direction: Direction,
    lock: Lock,
) -> weir::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut scan = txn.scan_raw(table, of, range, direction, lock)?;
    let mut out = Vec::new();
    while let Some(entry) = scan.next(txn)? {
        out.push((entry.key.to_vec(), entry.value.to_vec()));
    }
    if lock == Lock::None {
        let together = scan_together(txn, table, of, range, direction)?;
        assert!(together == out, "{of:?}: not the same as one by one");
    }
    Ok(out)
}

/// What a scan gives together with each entry that it is asked for.
fn scan_together(
    txn: &mut Transaction,
    table: &Table,
    of: KeyOf,
    range: RawRange<'_>,
    direction: Direction,
) -> weir::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut scan = txn.scan_raw(table, of, range, direction, Lock::None)?;
    let mut out = Vec::new();
    while let Some(entry) = scan.next(txn)? {
        out.push((entry.key.to_vec(), entry.value.to_vec()));
        let given = Given::of(&entry);
        let rest = scan.take_rest();
        given.assert_is(out.last().unwrap());
        out.extend(rest.iter().map(|entry| (entry.key.to_vec(), entry.value.to_vec())));
        let Some(last) = rest.entries.last().map(|_| out.last().cloned().unwrap()) else {
            continue;
        };
        assert!(scan.last().key == last.0 && scan.last().value == last.1);
    }
    Ok(out)
}

fn all(txn: &mut Transaction, table: &Table, of: KeyOf) -> Vec<(Vec<u8>, Vec<u8>)> {
    scan(txn, table, of, RawRange::all(), Direction::Forward, Lock::None).unwrap()
}

type Model = BTreeMap<Vec<u8>, Row>;

/// Compares every index, in both directions, with a model.
fn compare(txn: &mut Transaction, table: &Table, model: &Model) {
    let mut expected = vec![model.iter().map(|(k, r)| (k.clone(), r.bytes())).collect::<Vec<_>>()];
    for n in 0..3 {
        let mut entries: Vec<_> = model
            .iter()
            .map(|(key, row)| {
                let (_, key, value) = row.entries(key).swap_remove(n);
                (key, value)
            })
            .collect();
        entries.sort();
        expected.push(entries);
    }
    let trees = [KeyOf::Primary, KeyOf::Index(0), KeyOf::Index(1), KeyOf::Index(2)];
    for (of, mut expected) in trees.into_iter().zip(expected) {
        assert!(all(txn, table, of) == expected, "{of:?} forwards");
        expected.reverse();
        let found = scan(txn, table, of, RawRange::all(), Direction::Backward, Lock::None).unwrap();
        assert!(found == expected, "{of:?} backwards");
    }
}

fn open(dir: &std::path::Path) -> Database {
    Database::open(dir, options(8 << 20, 8 << 20)).unwrap()
}

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes()[4..].to_vec()
}

#[test]
fn meta_and_indexes_are_there_after_opening_anew() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", schema()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    insert(&mut txn, &table, b"a", &Row::new(Some(1), 2, b"n")).unwrap();
    txn.commit().unwrap();
    db.rename_table(&table, "u").unwrap();
    db.clone().close(Shutdown::Clean, &mut |_| {}).unwrap();
    drop((table, db));

    let db = open(dir.path());
    let table = db.table("u").unwrap();
    assert_eq!(table.raw_schema().unwrap(), schema());
    assert_eq!(table.meta().unwrap(), b"about the table");
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let model = Model::from([(b"a".to_vec(), Row::new(Some(1), 2, b"n"))]);
    compare(&mut txn, &table, &model);
    drop(txn);
    db.drop_table(&table).unwrap();
    assert!(matches!(table.meta(), Err(Error::NoSuchTable(_))));
    check_quiet(&db);
}

#[test]
fn the_two_interfaces_keep_to_their_tables() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let raw = db.create_table("raw", schema()).unwrap();
    let typed = db.create_table("typed", common::items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(matches!(txn.insert(&raw, &[]), Err(Error::NotTyped(_))));
    assert!(matches!(txn.get(&raw, &[Value::U64(1)]), Err(Error::NotTyped(_))));
    assert!(matches!(txn.insert_raw(&typed, b"k", b"", &[]), Err(Error::NotRaw(_))));
    let mut out = Vec::new();
    assert!(matches!(txn.get_raw(&typed, b"k", Lock::None, &mut out), Err(Error::NotRaw(_))));
    drop(txn);
    assert!(matches!(raw.schema(), Err(Error::NotTyped(_))));
    assert!(matches!(typed.meta(), Err(Error::NotRaw(_))));
    assert!(matches!(db.create_index(&raw, "i", &["c"], false), Err(Error::NotTyped(_))));
    assert!(matches!(db.drop_index(&raw, "group"), Err(Error::NotTyped(_))));
}

#[test]
fn wrong_bytes_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", schema()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let message = |result: weir::Result<()>| result.unwrap_err().to_string();
    assert_eq!(
        message(txn.insert_raw(&table, b"", b"", &[])),
        "the primary key: a key has at least one byte"
    );
    let long = &vec![1; 262_145];
    let too_long = "the primary key: the encoded key has at least 262145 bytes; 262144 are allowed";
    assert_eq!(message(txn.insert_raw(&table, long, b"", &[])), too_long);
    assert_eq!(message(txn.update_raw(&table, long, b"", &[], &[]).map(drop)), too_long);
    assert_eq!(message(txn.delete_raw(&table, long, &[])), too_long);
    let entry = |index, key| Entry { index, key, value: b"" };
    assert!(message(txn.insert_raw(&table, b"k", b"", &[entry(1, b"")])).starts_with("group: "));
    assert_eq!(
        message(txn.insert_raw(&table, b"k", b"", &[entry(3, b"k")])),
        "table `t` has no index `number 3`"
    );
    assert_eq!(message(txn.delete_raw(&table, b"k", &[])), "table `t` has no row with that key");
    let updated = txn.update_raw(&table, b"k", b"", &[], &[]).map(drop);
    assert_eq!(message(updated), "table `t` has no row with that key");
    compare(&mut txn, &table, &Model::new());
}

#[test]
fn a_duplicate_undoes_its_statement_alone() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", schema()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let (a, b) = (Row::new(Some(7), 1, b"a"), Row::new(Some(8), 2, b"b"));
    insert(&mut txn, &table, b"a", &a).unwrap();
    insert(&mut txn, &table, b"b", &b).unwrap();
    let index_of = |result: weir::Result<()>| match result {
        Err(Error::Duplicate { index, key, .. }) => {
            assert_eq!(key == b"a", index == "primary", "the key is that of the index");
            index
        }
        other => panic!("{other:?}"),
    };
    let same = Row::new(Some(7), 3, b"c");
    assert_eq!(index_of(insert(&mut txn, &table, b"c", &same)), "unique");
    assert_eq!(index_of(insert(&mut txn, &table, b"a", &b)), "primary");
    assert_eq!(index_of(update(&mut txn, &table, b"b", &b, &same)), "unique");
    let model = Model::from([(b"a".to_vec(), a), (b"b".to_vec(), b)]);
    compare(&mut txn, &table, &model);
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    compare(&mut txn, &table, &model);
    drop(txn);
    check_quiet(&db);
}

#[test]
fn ranges_of_keys_and_of_prefixes() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let keys: [&[u8]; 6] = [b"a", b"b", b"b\0", b"ba", b"c", b"\xff\xff"];
    for key in keys {
        txn.insert_raw(&table, key, b"", &[]).unwrap();
    }
    let mut found = |range: RawRange<'_>| {
        let mut both = [Direction::Forward, Direction::Backward].map(|direction| {
            let rows = scan(&mut txn, &table, KeyOf::Primary, range, direction, Lock::None);
            rows.unwrap().into_iter().map(|(key, _)| key).collect::<Vec<_>>()
        });
        both[1].reverse();
        assert_eq!(both[0], both[1]);
        let expected: Vec<_> = keys.iter().filter(|key| range.contains(key)).collect();
        assert_eq!(both[0].iter().map(|k| &k[..]).collect::<Vec<_>>(), expected_keys(&expected));
        both[0].len()
    };
    assert_eq!(found(RawRange::all()), 6);
    assert_eq!(found(RawRange::prefix(b"b")), 3);
    assert_eq!(found(RawRange::prefix(b"")), 6);
    assert_eq!(found(RawRange::prefix(b"\xff")), 1);
    assert_eq!(found(RawRange::new(Included(b"b"), Included(b"b"))), 1);
    assert_eq!(found(RawRange::new(Excluded(b"b"), Unbounded)), 4);
    assert_eq!(found(RawRange::prefixes(Excluded(b"b"), Unbounded)), 2);
    assert_eq!(found(RawRange::prefixes(Unbounded, Excluded(b"b"))), 1);
    assert_eq!(found(RawRange::prefixes(Excluded(b"\xff"), Unbounded)), 0);
    assert_eq!(found(RawRange::new(Included(b"c"), Excluded(b"a"))), 0);
}

fn expected_keys<'a>(keys: &[&&'a [u8]]) -> Vec<&'a [u8]> {
    keys.iter().map(|key| **key).collect()
}

#[test]
fn many_scans_are_open_while_rows_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", schema()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..2000 {
        insert(&mut txn, &table, &key(n), &Row::new(Some(n as u16), n as u8, b"")).unwrap();
    }
    txn.commit().unwrap();

    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let (forward, backward) = (Direction::Forward, Direction::Backward);
    let all = RawRange::all();
    let mut up = txn.scan_raw(&table, KeyOf::Primary, all, forward, Lock::None).unwrap();
    let mut down = txn.scan_raw(&table, KeyOf::Index(0), all, backward, Lock::None).unwrap();
    for n in 0..1000 {
        assert_eq!(up.next(&mut txn).unwrap().unwrap().key, key(n));
        assert_eq!(down.next(&mut txn).unwrap().unwrap().value, key(1999 - n));
        let row = Row::new(Some(n as u16), n as u8, b"");
        delete(&mut txn, &table, &key(n), &row).unwrap();
    }
    assert_eq!(up.next(&mut txn).unwrap().unwrap().key, key(1000));
    // A scan goes on with its own transaction only.
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(matches!(up.next(&mut other), Err(Error::ForeignScan)));
    txn.rollback().unwrap();
    assert!(matches!(down.next(&mut other), Err(Error::ForeignScan)));
}

#[test]
fn read_committed_sees_what_was_committed_when_its_statement_began() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", schema()).unwrap();
    let (old, new) = (Row::new(Some(1), 1, b"old"), Row::new(Some(1), 1, b"new"));
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    insert(&mut writer, &table, b"k", &old).unwrap();
    writer.commit().unwrap();

    let mut committed = db.begin(Isolation::ReadCommitted).unwrap();
    let mut repeatable = db.begin(Isolation::RepeatableRead).unwrap();
    repeatable.take_snapshot().unwrap();
    let read = |txn: &mut Transaction| {
        let mut row = Vec::new();
        assert!(txn.get_raw(&table, b"k", Lock::None, &mut row).unwrap());
        row
    };
    assert_eq!(read(&mut committed), old.bytes());
    let all = RawRange::all();
    let mut open_scan =
        committed.scan_raw(&table, KeyOf::Index(2), all, Direction::Forward, Lock::None).unwrap();
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    update(&mut writer, &table, b"k", &old, &new).unwrap();
    writer.commit().unwrap();
    assert_eq!(read(&mut committed), old.bytes());
    committed.begin_statement().unwrap();
    assert_eq!(read(&mut committed), new.bytes());
    assert_eq!(open_scan.next(&mut committed).unwrap().unwrap().value, b"old");
    repeatable.begin_statement().unwrap();
    assert_eq!(read(&mut repeatable), old.bytes());
}

/// The row is changed from a version that the snapshot doesn't cover; its entries stay as they are.
#[test]
fn touched_entries_are_found_by_their_own_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", schema()).unwrap();
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    let first = Row::new(Some(1), 1, b"x");
    insert(&mut writer, &table, b"k", &first).unwrap();
    writer.commit().unwrap();
    let mut own = db.begin(Isolation::RepeatableRead).unwrap();
    own.take_snapshot().unwrap();
    let second = Row::new(Some(2), 5, b"y");
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    update(&mut writer, &table, b"k", &first, &second).unwrap();
    writer.commit().unwrap();
    let third = Row { body: b"other".to_vec(), ..second.clone() };
    update(&mut own, &table, b"k", &second, &third).unwrap();
    for n in 0..3 {
        let of = KeyOf::Index(n);
        let mut scan =
            own.scan_raw(&table, of, RawRange::all(), Direction::Forward, Lock::None).unwrap();
        let mut current = Vec::new();
        while let Some(entry) = scan.next(&mut own).unwrap() {
            if entry.current {
                current.push(entry.key.to_vec());
            }
        }
        assert_eq!(current, [third.entries(b"k")[n].1.clone()], "index {n}");
    }
}

#[test]
fn long_rows_and_long_entries_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", Schema::raw(vec![RawIndex::new("i", true)], vec![]).unwrap());
    let table = table.unwrap();
    let (row, value) = (vec![3; 100_000], vec![4; 9000]);
    let (key, of_entry) = (vec![1; 3500], vec![2; 3500]);
    let mut txn = db.begin(Isolation::ReadUncommitted).unwrap();
    let entry = Entry { index: 0, key: &of_entry, value: &value };
    txn.insert_raw(&table, &key, &row, &[entry]).unwrap();
    for lock in [Lock::None, Lock::Shared(Wait::ForTimeout)] {
        for (of, expected) in
            [(KeyOf::Primary, (&key, &row)), (KeyOf::Index(0), (&of_entry, &value))]
        {
            let found =
                scan(&mut txn, &table, of, RawRange::all(), Direction::Forward, lock).unwrap();
            assert!(found == [(expected.0.clone(), expected.1.clone())], "{of:?} {lock:?}");
        }
    }
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(all(&mut txn, &table, KeyOf::Index(0)) == [(of_entry.clone(), value.clone())]);
    txn.delete_raw(&table, &key, &[entry]).unwrap();
    txn.commit().unwrap();
    check_quiet(&db);
}

#[test]
fn locked_rows_are_waited_for_refused_or_passed_over() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().memory_bytes(8 << 20).lock_wait_timeout(Duration::ZERO);
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.create_table("t", schema()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let row = |n: u64| Row::new(Some(n as u16), 0, b"");
    for n in 0..5 {
        insert(&mut txn, &table, &key(n), &row(n)).unwrap();
    }
    txn.commit().unwrap();

    let mut holder = db.begin(Isolation::RepeatableRead).unwrap();
    let mut out = Vec::new();
    let exclusive = Lock::Exclusive(Wait::ForTimeout);
    assert!(holder.get_raw(&table, &key(1), exclusive, &mut out).unwrap());
    assert!(holder.get_raw(&table, &key(2), Lock::Shared(Wait::No), &mut out).unwrap());
    delete(&mut holder, &table, &key(3), &row(3)).unwrap();
    insert(&mut holder, &table, &key(9), &row(9)).unwrap();

    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for wait in [Wait::ForTimeout, Wait::No] {
        for (n, lock) in [
            (1, Lock::Shared(wait)),
            (2, Lock::Exclusive(wait)),
            (3, Lock::Shared(wait)),
            (9, Lock::Shared(wait)),
        ] {
            let found = txn.get_raw(&table, &key(n), lock, &mut out);
            assert!(matches!(found, Err(Error::LockWaitTimeout)), "{n} {lock:?}");
        }
        let all = RawRange::all();
        for of in [KeyOf::Primary, KeyOf::Index(1)] {
            let lock = Lock::Shared(wait);
            let found = scan(&mut txn, &table, of, all, Direction::Forward, lock);
            assert!(matches!(found, Err(Error::LockWaitTimeout)), "{of:?} {lock:?}");
        }
    }
    let mut skipping = |of, lock: fn(Wait) -> Lock| {
        let all = RawRange::all();
        let rows = scan(&mut txn, &table, of, all, Direction::Forward, lock(Wait::Skip)).unwrap();
        rows.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    assert_eq!(skipping(KeyOf::Primary, Lock::Shared), [key(0), key(2), key(4)]);
    assert_eq!(skipping(KeyOf::Primary, Lock::Exclusive), [key(0), key(4)]);
    // Entries of rows that are locked and not written are given: their rows say that they are
    // locked.
    let entries = skipping(KeyOf::Index(0), Lock::Exclusive);
    assert_eq!(entries.len(), 4);
    assert!(!txn.get_raw(&table, &key(1), Lock::Exclusive(Wait::Skip), &mut out).unwrap());
    assert!(txn.get_raw(&table, &key(2), Lock::Shared(Wait::Skip), &mut out).unwrap());

    holder.commit().unwrap();
    let found =
        scan(&mut txn, &table, KeyOf::Primary, RawRange::all(), Direction::Backward, exclusive);
    let keys: Vec<_> = found.unwrap().into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [9, 4, 2, 1, 0].map(key));
    // What the last read locked is given up; what was locked before it isn't.
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(txn.get_raw(&table, &key(0), exclusive, &mut out).unwrap());
    assert!(txn.get_raw(&table, &key(4), exclusive, &mut out).unwrap());
    txn.unlock_raw(&table, &key(0)).unwrap();
    txn.unlock_raw(&table, &key(4)).unwrap();
    assert!(txn.get_raw(&table, &key(0), exclusive, &mut out).unwrap());
    txn.unlock_raw(&table, &key(0)).unwrap();
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(other.get_raw(&table, &key(4), exclusive, &mut out).unwrap());
    assert!(other.get_raw(&table, &key(0), exclusive, &mut out).is_err());
}

#[test]
fn a_rollback_to_a_savepoint_keeps_the_locks_of_reads_alone() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options::default().memory_bytes(8 << 20).lock_wait_timeout(Duration::ZERO);
    let db = Database::open(dir.path(), options).unwrap();
    let table = db.create_table("t", schema()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let row = Row::new(None, 0, b"");
    for key in [b"read", b"only"] {
        insert(&mut txn, &table, key, &row).unwrap();
    }
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let savepoint = txn.savepoint().unwrap();
    let (lock, mut out) = (Lock::Exclusive(Wait::ForTimeout), Vec::new());
    assert!(txn.get_raw(&table, b"read", lock, &mut out).unwrap());
    for key in [b"read", b"only"] {
        delete(&mut txn, &table, key, &row).unwrap();
    }
    txn.rollback_to(savepoint).unwrap();
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(matches!(delete(&mut other, &table, b"read", &row), Err(Error::LockWaitTimeout)));
    delete(&mut other, &table, b"only", &row).unwrap();
}

#[test]
fn transactions_and_scans_may_change_threads() {
    fn is_send<T: Send>() {}
    is_send::<Transaction>();
    is_send::<weir::RawScan>();
    is_send::<weir::Committed>();
}

/// A locking scan meets entries of a transaction that ends meanwhile, either way.
#[test]
fn a_locking_scan_waits_for_writers_and_gives_what_they_leave() {
    for commits in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        let table = db.create_table("t", schema()).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let (a, b) = (Row::new(Some(5), 1, b"a"), Row::new(Some(6), 1, b"b"));
        insert(&mut txn, &table, b"a", &a).unwrap();
        insert(&mut txn, &table, b"b", &b).unwrap();
        txn.commit().unwrap();
        // The unique key 5 passes from one row to another.
        let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
        delete(&mut writer, &table, b"a", &a).unwrap();
        insert(&mut writer, &table, b"c", &Row::new(Some(5), 2, b"c")).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                let range = RawRange::prefix(&[1, 0, 5]);
                let lock = Lock::Shared(Wait::ForTimeout);
                scan(&mut txn, &table, KeyOf::Index(0), range, Direction::Forward, lock).unwrap()
            });
            while db.status().row_lock_waits == 0 {
                std::thread::yield_now();
            }
            if commits {
                writer.commit().unwrap()
            } else {
                writer.rollback().unwrap()
            }
            let owner = if commits { b"c".to_vec() } else { b"a".to_vec() };
            assert_eq!(reader.join().unwrap(), [(vec![1, 0, 5], owner)]);
        });
    }
}

/// Random work of one transaction after the other, with savepoints, against a model.
#[test]
fn random_work_agrees_with_a_model() {
    let mut rng = Rng::with_seed(seed());
    for _ in 0..3 * factor() {
        let dir = tempfile::tempdir().unwrap();
        let staging = [None, Some(0), Some(3), Some(40)][rng.usize(..4)];
        let open = |dir: &std::path::Path| match staging {
            None => open(dir),
            Some(leaves) => {
                Database::open(dir, options(8 << 20, 8 << 20).staging_leaves(leaves)).unwrap()
            }
        };
        let mut db = open(dir.path());
        db.create_table("t", schema()).unwrap();
        let mut model = Model::new();
        for _ in 0..40 {
            if rng.u8(..10) == 0 {
                drop(db);
                db = open(dir.path());
            }
            let table = db.table("t").unwrap();
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            let mut changed = model.clone();
            work(&mut rng, &mut txn, &table, &mut changed);
            compare(&mut txn, &table, &changed);
            if rng.u8(..4) == 0 {
                txn.rollback().unwrap();
            } else {
                txn.commit().unwrap();
                model = changed;
            }
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            compare(&mut txn, &table, &model);
        }
        check_quiet(&db);
    }
}

fn random_row(rng: &mut Rng) -> Row {
    let body_len = if rng.u8(..30) == 0 { rng.usize(..20_000) } else { rng.usize(..200) };
    let note = rng.usize(..40);
    Row {
        unique: (rng.u8(..4) > 0).then(|| rng.u16(..400)),
        group: rng.u8(..6),
        note: std::iter::repeat_with(|| rng.u8(..)).take(note).collect(),
        body: vec![rng.u8(..); body_len],
    }
}

fn work(rng: &mut Rng, txn: &mut Transaction, table: &Table, model: &mut Model) {
    let mut saved = Vec::new();
    for _ in 0..rng.usize(..60) {
        let key = key(rng.u64(..300));
        let row = random_row(rng);
        let taken = |u: Option<u16>, model: &Model, key: &[u8]| {
            u.is_some() && model.iter().any(|(k, r)| r.unique == u && k != key)
        };
        match (rng.u8(..10), model.get(&key).cloned()) {
            (0..6, None) => match insert(txn, table, &key, &row) {
                Ok(()) => {
                    assert!(!taken(row.unique, model, &key));
                    model.insert(key, row);
                }
                Err(Error::Duplicate { .. }) => assert!(taken(row.unique, model, &key)),
                Err(error) => panic!("{error}"),
            },
            (0..6, Some(old)) => {
                let row = if rng.bool() { Row { group: old.group, ..row } } else { row };
                match update(txn, table, &key, &old, &row) {
                    Ok(()) => {
                        assert!(!taken(row.unique, model, &key));
                        model.insert(key, row);
                    }
                    Err(Error::Duplicate { .. }) => assert!(taken(row.unique, model, &key)),
                    Err(error) => panic!("{error}"),
                }
            }
            (6..8, Some(old)) => {
                delete(txn, table, &key, &old).unwrap();
                model.remove(&key);
            }
            (8, _) => saved.push((txn.savepoint().unwrap(), model.clone())),
            (9, _) if !saved.is_empty() => {
                saved.truncate(rng.usize(..saved.len()) + 1);
                let (savepoint, then) = saved.pop().expect("one was left");
                txn.rollback_to(savepoint).unwrap();
                *model = then;
            }
            (_, old) => {
                let mut out = Vec::new();
                let lock = [Lock::None, Lock::Exclusive(Wait::No)][rng.usize(..2)];
                assert_eq!(txn.get_raw(table, &key, lock, &mut out).unwrap(), old.is_some());
                assert!(old.is_none_or(|old| old.bytes() == out));
            }
        }
    }
}

/// As of now, entries may be staged that were not when the scan began.
#[test]
fn a_scan_that_goes_on_as_of_now_finds_what_was_staged_since() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(4 << 20, 64 << 20).staging_leaves(0).single_threaded();
    let db = Database::open(dir.path(), options).unwrap();
    let schema = Schema::raw(vec![RawIndex::new("by_key", false)], Vec::new()).unwrap();
    let table = db.create_table("raw", schema).unwrap();
    let insert = |keys: std::ops::Range<u8>| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for key in keys.map(|key| [key]) {
            let entry = Entry { index: 0, key: &key, value: b"" };
            txn.insert_raw(&table, &key, b"row", &[entry]).unwrap();
        }
        txn.commit().unwrap();
    };
    insert(0..10);
    (0..10).for_each(|_| db.background_step(BackgroundStep::MoveStaged).unwrap());
    let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
    let (all, of) = (RawRange::all(), KeyOf::Index(0));
    let mut scan = txn.scan_raw(&table, of, all, Direction::Forward, Lock::None).unwrap();
    let first = scan.next(&mut txn).unwrap().unwrap().key.to_vec();
    let staged = db.status().staged_entries;
    insert(10..90);
    assert!(db.status().staged_entries > staged);
    scan.behind_as_of_now(&mut txn, &first).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = scan.next(&mut txn).unwrap() {
        found.push(entry.key[0]);
    }
    assert_eq!(found, (1..90).collect::<Vec<u8>>());
}

/// A scan goes on behind a key with its own transaction only: with another's view it would give
/// what that has written and not committed.
#[test]
fn a_scan_never_takes_the_view_of_another_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", schema()).unwrap();
    let [mut reader, mut writer] = [(); 2].map(|()| db.begin(Isolation::ReadCommitted).unwrap());
    reader.insert_raw(&table, b"a", &[0, 0], &[]).unwrap();
    let (all, forward) = (RawRange::all(), Direction::Forward);
    let mut scan = reader.scan_raw(&table, KeyOf::Primary, all, forward, Lock::None).unwrap();
    assert_eq!(scan.next(&mut reader).unwrap().unwrap().key, b"a");
    writer.insert_raw(&table, b"b", &[0, 0], &[]).unwrap();
    let refused = scan.behind_as_of_now(&mut writer, b"a");
    assert!(matches!(refused, Err(Error::ForeignScan)));
    scan.behind_as_of_now(&mut reader, b"a").unwrap();
    assert!(scan.next(&mut reader).unwrap().is_none());
}

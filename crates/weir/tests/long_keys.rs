//! Keys longer than a tree takes: whatever their length, they are found, ordered and unique as any
//! others.
#![allow(clippy::unwrap_used)]

mod common;

use common::{check_quiet, factor, options, seed};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use weir::{
    Bounds, Database, Direction, Entry, EntryOf, Error, Isolation, KeyOf, Lock, Pair, RawIndex,
    RawRange, Schema, Table, Transaction, Type, Value, Wait, short_form,
};

/// Bytes that all keys of a stem begin with.
const STEM: usize = 3500;
const BOTH: [Direction; 2] = [Direction::Forward, Direction::Backward];

/// A row: what two indexes have of it, and more.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    unique: Vec<u8>,
    group: Vec<u8>,
    body: Vec<u8>,
}

type Rows = BTreeMap<Vec<u8>, Row>;
type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

impl Row {
    fn bytes(&self) -> Vec<u8> {
        let len = |bytes: &[u8]| (bytes.len() as u32).to_le_bytes();
        [&len(&self.unique)[..], &len(&self.group), &self.unique, &self.group, &self.body].concat()
    }

    fn from_bytes(bytes: &[u8]) -> Row {
        let len = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
        let (unique, rest) = bytes[8..].split_at(len(0));
        let (group, body) = rest.split_at(len(4));
        Row { unique: unique.to_vec(), group: group.to_vec(), body: body.to_vec() }
    }

    /// The length behind the primary key makes sure that no two rows have the same.
    fn in_group(&self, key: &[u8]) -> Vec<u8> {
        [&self.group[..], key, &(key.len() as u32).to_be_bytes()].concat()
    }

    /// Key and value of the entry in an index: 0 is unique, 1 isn't.
    fn entry(&self, index: usize, key: &[u8]) -> (Vec<u8>, Vec<u8>) {
        match index {
            0 => (self.unique.clone(), key.to_vec()),
            _ => (self.in_group(key), self.body[..self.body.len().min(40)].to_vec()),
        }
    }
}

/// A key of some length, often one that shares a stem with others.
fn any_key(rng: &mut Rng) -> Vec<u8> {
    let stem = |rng: &mut Rng| vec![rng.u8(b'a'..b'c'); STEM];
    match rng.u8(0..8) {
        0 => vec![rng.u8(..); rng.usize(1..40)],
        1 => stem(rng)[..STEM - rng.usize(0..3)].to_vec(),
        2 => {
            let mut key = stem(rng);
            key[rng.usize(STEM - 5..STEM)] ^= 1;
            key.extend((0..rng.usize(0..60)).map(|_| rng.u8(..)));
            key
        }
        n => {
            let rest = if n == 7 { rng.usize(100..30_000) } else { rng.usize(1..4) };
            let mut key = stem(rng);
            key.extend((0..rest).map(|_| rng.u8(0..4)));
            key
        }
    }
}

fn any_row(rng: &mut Rng) -> Row {
    let group = if rng.bool() { vec![rng.u8(..3); rng.usize(1..3)] } else { any_key(rng) };
    let body = vec![rng.u8(..); if rng.u8(..10) == 0 { rng.usize(..9000) } else { 9 }];
    Row { unique: any_key(rng), group, body }
}

fn schema() -> weir::RawSchema {
    let indexes = vec![RawIndex::new("unique", true), RawIndex::new("group", false)];
    Schema::raw(indexes, Vec::new()).unwrap()
}

fn with_entries<T>(key: &[u8], row: &Row, run: impl FnOnce(&[Entry<'_>]) -> T) -> T {
    let owned = [row.entry(0, key), row.entry(1, key)];
    let entry = |n: usize| Entry { index: n, key: &owned[n].0, value: &owned[n].1 };
    run(&[entry(0), entry(1)])
}

fn insert(txn: &mut Transaction, table: &Table, key: &[u8], row: &Row) -> weir::Result<()> {
    with_entries(key, row, |entries| txn.insert_raw(table, key, &row.bytes(), entries))
}

fn update(
    txn: &mut Transaction,
    table: &Table,
    key: &[u8],
    old: &Row,
    new: &Row,
) -> weir::Result<()> {
    with_entries(key, old, |old| {
        with_entries(key, new, |entries| {
            let differ = |n: &usize| old[*n] != entries[*n];
            let removed: Vec<_> = (0..2).filter(differ).map(|n| old[n]).collect();
            let added: Vec<_> = (0..2).filter(differ).map(|n| entries[n]).collect();
            let same: Vec<_> = (0..2).filter(|n| !differ(n)).map(|n| entries[n]).collect();
            if txn.update_raw(table, key, &new.bytes(), &removed, &added)? {
                txn.touch_raw(table, &same)?;
            }
            Ok(())
        })
    })
}

fn delete(txn: &mut Transaction, table: &Table, key: &[u8], old: &Row) -> weir::Result<()> {
    with_entries(key, old, |entries| txn.delete_raw(table, key, entries))
}

/// What a scan gives, one by one or with what is given together. Of what isn't current, what the
/// rows have.
fn scan(
    txn: &mut Transaction,
    table: &Table,
    of: KeyOf,
    range: RawRange<'_>,
    direction: Direction,
    lock: Lock,
    together: bool,
) -> weir::Result<Pairs> {
    let mut scan = txn.scan_raw(table, of, range, direction, lock)?;
    let mut out: Vec<(Vec<u8>, Vec<u8>, bool)> = Vec::new();
    while let Some(entry) = scan.next(txn)? {
        out.push((entry.key.to_vec(), entry.value.to_vec(), entry.current));
        if together {
            let rest = scan.take_rest();
            for place in rest.entries {
                let bytes = |from: u32, to: u32| rest.bytes[from as usize..to as usize].to_vec();
                let current = rest.current && !place.outdated;
                out.push((bytes(place.key, place.value), bytes(place.value, place.end), current));
            }
        }
    }
    let mut pairs = Pairs::new();
    for (key, value, current) in out {
        if !current && !is_of_its_row(txn, table, of, (&key, &value), lock)? {
            continue;
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

fn is_of_its_row(
    txn: &mut Transaction,
    table: &Table,
    of: KeyOf,
    (key, value): (&[u8], &[u8]),
    lock: Lock,
) -> weir::Result<bool> {
    let KeyOf::Index(index) = of else { panic!("a row is always current") };
    // The model's rows have keys of their own: whose entry it is only all of them tell.
    let mut rows =
        txn.scan_raw(table, KeyOf::Primary, RawRange::all(), Direction::Forward, lock)?;
    while let Some(row) = rows.next(txn)? {
        if Row::from_bytes(row.value).entry(index, row.key) == (key.to_vec(), value.to_vec()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What the model says that a scan of a whole index gives.
fn expected(rows: &Rows, of: KeyOf) -> Pairs {
    let mut all: Pairs = match of {
        KeyOf::Primary => rows.iter().map(|(key, row)| (key.clone(), row.bytes())).collect(),
        KeyOf::Index(n) => rows.iter().map(|(key, row)| row.entry(n, key)).collect(),
    };
    all.sort();
    all
}

fn any_bound(rng: &mut Rng, of: &Pairs) -> Bound<Vec<u8>> {
    let mut key = match of.len() {
        0 => any_key(rng),
        len if rng.u8(..4) > 0 => of[rng.usize(..len)].0.clone(),
        _ => any_key(rng),
    };
    if rng.u8(..4) == 0 {
        key.truncate(rng.usize(1..=key.len()));
    }
    match rng.u8(..5) {
        0 => Unbounded,
        1 | 2 => Included(key),
        _ => Excluded(key),
    }
}

fn compare_ranges(txn: &mut Transaction, table: &Table, rows: &Rows, rng: &mut Rng) {
    for of in [KeyOf::Primary, KeyOf::Index(0), KeyOf::Index(1)] {
        let all = expected(rows, of);
        for _ in 0..6 {
            let ends = [any_bound(rng, &all), any_bound(rng, &all)];
            let [low, high] = ends.each_ref().map(|end| end.as_ref().map(|key| &key[..]));
            let range = match rng.bool() {
                true => RawRange::new(low, high),
                false => RawRange::prefixes(low, high),
            };
            let inside: Pairs = all.iter().filter(|(k, _)| range.contains(k)).cloned().collect();
            for direction in BOTH {
                let mut inside = inside.clone();
                if direction == Direction::Backward {
                    inside.reverse();
                }
                let exclusive = Lock::Exclusive(Wait::ForTimeout);
                for (lock, together) in
                    [(Lock::None, false), (Lock::None, true), (exclusive, false)]
                {
                    let found = scan(txn, table, of, range, direction, lock, together);
                    let found = found.unwrap_or_else(|e| {
                        panic!("{of:?} {direction:?} {lock:?} {together}: {e}")
                    });
                    assert!(found == inside, "{of:?} {direction:?} {lock:?} {together}");
                }
            }
        }
    }
}

fn compare_rows(txn: &mut Transaction, table: &Table, rows: &Rows, rng: &mut Rng) {
    let (mut out, mut key_out) = (Vec::new(), Vec::new());
    for (key, row) in rows {
        assert!(txn.get_raw(table, key, Lock::None, &mut out).unwrap());
        assert!(out == row.bytes());
        let short = short_form(key);
        let none = Lock::None;
        assert!(txn.get_raw_by_short_form(table, &short, none, &mut key_out, &mut out).unwrap());
        assert!(out == row.bytes() && key_out == *key);
    }
    for _ in 0..20 {
        let key = any_key(rng);
        let found = txn.get_raw(table, &key, Lock::None, &mut out).unwrap();
        assert_eq!(found, rows.contains_key(&key));
    }
    compare_ranges(txn, table, rows, rng);
}

/// Inserts several rows at once.
fn insert_together(txn: &mut Transaction, table: &Table, rows: &mut Rows, rng: &mut Rng) {
    let mut new = Rows::new();
    for _ in 0..rng.usize(2..8) {
        let (key, row) = (any_key(rng), any_row(rng));
        let mut others = rows.iter().chain(&new);
        if others.all(|(k, other)| *k != key && other.unique != row.unique) {
            new.insert(key, row);
        }
    }
    // The last one is there already.
    let twice = rows.iter().next().filter(|_| rng.u8(..3) == 0);
    let mut given: Vec<(&Vec<u8>, &Row)> = new.iter().chain(twice).collect();
    rng.shuffle(&mut given);
    let bytes: Vec<Vec<u8>> = given.iter().map(|(_, row)| row.bytes()).collect();
    let entries: Vec<Pairs> =
        (0..2).map(|n| given.iter().map(|(key, row)| row.entry(n, key)).collect()).collect();
    let mut pairs: Vec<Pair<'_>> =
        given.iter().zip(&bytes).map(|((key, _), value)| Pair { key, value }).collect();
    let of_index = |n: usize| entries[n].iter().map(|(key, value)| Pair { key, value }).collect();
    let mut of_indexes: Vec<(usize, Vec<Pair<'_>>)> = (0..2).map(|n| (n, of_index(n))).collect();
    let done = txn.insert_many_raw(table, &mut pairs, &mut of_indexes);
    match twice {
        None => done.unwrap(),
        Some((there, _)) => {
            let error = done.unwrap_err();
            let Error::Duplicate { index, key, .. } = error else { panic!("{error}") };
            assert!(index == "primary" && key == *there, "the whole key is named");
            return;
        }
    }
    rows.extend(new);
}

/// Some writes; whoever is in the way of a unique key keeps it.
fn write_some(txn: &mut Transaction, table: &Table, rows: &mut Rows, rng: &mut Rng) {
    for _ in 0..rng.usize(1..12) {
        if rng.u8(..6) == 0 {
            insert_together(txn, table, rows, rng);
            continue;
        }
        let key = match rows.len() {
            len if len > 0 && rng.bool() => rows.keys().nth(rng.usize(..len)).unwrap().clone(),
            _ => any_key(rng),
        };
        let mut new = any_row(rng);
        let taken = |rows: &Rows, new: &Row| {
            rows.iter().any(|(k, row)| *k != key && row.unique == new.unique)
        };
        match rows.get(&key).cloned() {
            None => {
                let done = insert(txn, table, &key, &new);
                if taken(rows, &new) {
                    let error = done.unwrap_err();
                    let Error::Duplicate { index, key, .. } = error else { panic!("{error}") };
                    assert!(index == "unique" && key == new.unique, "the whole key is named");
                } else {
                    done.unwrap();
                    rows.insert(key, new);
                }
            }
            Some(old) if rng.u8(..3) > 0 => {
                if rng.bool() || taken(rows, &new) {
                    new.unique = old.unique.clone();
                }
                update(txn, table, &key, &old, &new).unwrap();
                rows.insert(key, new);
            }
            Some(old) => {
                assert!(matches!(insert(txn, table, &key, &old), Err(Error::Duplicate { .. })));
                delete(txn, table, &key, &old).unwrap();
                rows.remove(&key);
            }
        }
    }
}

#[test]
fn keys_of_any_length_are_as_in_a_model() {
    let mut rng = Rng::with_seed(seed());
    for round in 0..3 * factor() {
        let dir = tempfile::tempdir().unwrap();
        let options = options(8 << 20, 16 << 20);
        let options = if round % 2 == 1 { options.staging_leaves(2) } else { options };
        let mut db = Database::open(dir.path(), options.clone()).unwrap();
        let mut table = db.create_table("t", schema()).unwrap();
        let mut rows = Rows::new();
        for step in 0..25 {
            let before = rows.clone();
            let mut old = db.begin(Isolation::RepeatableRead).unwrap();
            old.take_snapshot().unwrap();
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            write_some(&mut txn, &table, &mut rows, &mut rng);
            if step % 5 == 0 {
                compare_rows(&mut txn, &table, &rows, &mut rng);
            }
            if rng.u8(..4) == 0 {
                txn.rollback().unwrap();
                rows = before.clone();
            } else {
                txn.commit().unwrap();
            }
            if step % 7 == 0 {
                for of in [KeyOf::Primary, KeyOf::Index(0), KeyOf::Index(1)] {
                    let all = RawRange::all();
                    let found =
                        scan(&mut old, &table, of, all, Direction::Forward, Lock::None, true);
                    assert!(found.unwrap() == expected(&before, of), "{of:?} of a snapshot");
                }
            }
            drop(old);
            if step % 6 == 0 {
                let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                compare_rows(&mut txn, &table, &rows, &mut rng);
            }
            if step % 10 == 9 {
                drop(table);
                drop(db);
                db = Database::open(dir.path(), options.clone()).unwrap();
                table = db.table("t").unwrap();
            }
        }
        check_quiet(&db);
    }
}

fn entry_of(index: usize) -> Box<EntryOf<'static>> {
    Box::new(move |_, key, row, to, value| {
        let (k, v) = Row::from_bytes(row).entry(index, key);
        to.extend_from_slice(&k);
        value.extend_from_slice(&v);
        Ok(())
    })
}

#[test]
fn indexes_of_long_keys_are_built_from_rows_with_long_keys() {
    let mut rng = Rng::with_seed(seed());
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 16 << 20)).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let mut rows = Rows::new();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    while rows.len() < 150 {
        let (key, row) = (any_key(&mut rng), any_row(&mut rng));
        if rows.contains_key(&key) || rows.values().any(|other| other.unique == row.unique) {
            continue;
        }
        txn.insert_raw(&table, &key, &row.bytes(), &[]).unwrap();
        rows.insert(key, row);
    }
    txn.commit().unwrap();
    let indexes = schema().indexes().to_vec();
    db.alter_indexes(&table, &[], &indexes[..1], None, &mut *entry_of(0)).unwrap();
    db.alter_indexes(&table, &[], &indexes[1..], None, &mut *entry_of(1)).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    compare_rows(&mut txn, &table, &rows, &mut rng);
    txn.commit().unwrap();

    // The same long key twice.
    let (twice, mut row) = (any_key(&mut rng), any_row(&mut rng));
    row.unique = [&[b'z'; STEM + 500][..], &twice].concat();
    db.alter_indexes(&table, &["unique"], &[], None, &mut *entry_of(0)).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for key in [b"one", b"two"] {
        let of_group = row.entry(1, key);
        let entry = Entry { index: 0, key: &of_group.0, value: &of_group.1 };
        txn.insert_raw(&table, key, &row.bytes(), &[entry]).unwrap();
    }
    txn.commit().unwrap();
    let error = db.alter_indexes(&table, &[], &indexes[..1], None, &mut *entry_of(0)).unwrap_err();
    let Error::Duplicate { key, .. } = error else { panic!("{error}") };
    assert!(key == row.unique);
    check_quiet(&db);
}

#[test]
fn a_stem_of_more_than_fits_memory_is_given_in_order() {
    let mut rng = Rng::with_seed(seed());
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(32 << 20, 64 << 20)).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let mut keys = Vec::new();
    // Large and small ones, so that a small one fits where a large one before it doesn't.
    for n in 0..220_u32 {
        let mut key = vec![b's'; STEM];
        key.extend_from_slice(&rng.u32(..).to_be_bytes());
        key.resize(STEM + 8 + if n % 2 == 0 { 100_000 } else { 5 }, 1);
        keys.push(key);
    }
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for key in &keys {
        txn.insert_raw(&table, key, b"row", &[]).unwrap();
    }
    txn.commit().unwrap();
    keys.sort();
    let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
    for direction in BOTH {
        let all = RawRange::all();
        let mut scan = txn.scan_raw(&table, KeyOf::Primary, all, direction, Lock::None).unwrap();
        let mut found = Vec::new();
        while let Some(entry) = scan.next(&mut txn).unwrap() {
            found.push(entry.key.to_vec());
        }
        assert!(found == keys, "{direction:?}");
        keys.reverse();
    }
}

#[test]
fn typed_tables_have_long_keys_too() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 16 << 20)).unwrap();
    let schema = Schema::builder()
        .column("name", Type::Text)
        .column("n", Type::U64)
        .column("note", Type::Text)
        .primary_key(&["name"])
        .index("by_note", &["note"])
        .unique_index("by_n", &["n"])
        .build()
        .unwrap();
    let table = db.create_table("t", schema).unwrap();
    let name = |n: u64| format!("{}{n:05}", "x".repeat(if n.is_multiple_of(2) { 4000 } else { 9 }));
    let note = |n: u64| format!("{}{:05}", "y".repeat(5000), 1000 - n);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..50 {
        let (name, note) = (name(n), note(n));
        txn.insert(&table, &[Value::Text(&name), Value::U64(n), Value::Text(&note)]).unwrap();
    }
    for n in (0..50).step_by(3) {
        let (name, note) = (name(n), note(n + 500));
        let row = [Value::Text(&name), Value::U64(n), Value::Text(&note)];
        assert!(txn.update(&table, &row).unwrap());
    }
    for n in (0..50).step_by(5) {
        assert!(txn.delete(&table, &[Value::Text(&name(n))]).unwrap());
    }
    txn.commit().unwrap();
    let left: Vec<u64> = (0..50).filter(|n| n % 5 != 0).collect();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for &n in &left {
        let row = txn.get(&table, &[Value::Text(&name(n))]).unwrap().unwrap();
        assert_eq!(row.get(1), Value::U64(n));
        let key = [Value::U64(n)];
        let mut rows = txn.scan(&table, "by_n", Bounds::prefix(&key), Direction::Forward).unwrap();
        let found = rows.next().unwrap().unwrap();
        assert_eq!(found.get(0).unwrap().as_str(), Some(&name(n)[..]));
    }
    let mut by_note: Vec<(String, u64)> =
        left.iter().map(|&n| (if n % 3 == 0 { note(n + 500) } else { note(n) }, n)).collect();
    by_note.sort();
    let mut rows = txn.scan(&table, "by_note", Bounds::all(), Direction::Forward).unwrap();
    for (_, n) in by_note {
        assert_eq!(rows.next().unwrap().unwrap().get(1).unwrap().as_u64(), Some(n));
    }
    assert!(rows.next().unwrap().is_none());
    drop(rows);
    txn.commit().unwrap();
    db.create_index(&table, "by_note_and_n", &["note", "n"], true).unwrap();
    check_quiet(&db);
}

const FOR_UPDATE: Lock = Lock::Exclusive(Wait::ForTimeout);

/// Rows with keys of one byte, in groups that share a stem.
fn rows_of_a_stem(dir: &std::path::Path) -> (Database, Table, Rows) {
    let options = options(8 << 20, 16 << 20).lock_wait_timeout(std::time::Duration::ZERO);
    let db = Database::open(dir, options).unwrap();
    let table = db.create_table("t", schema()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let mut rows = Rows::new();
    for n in 0..10 {
        let row = Row { unique: vec![n], group: of_stem(10 * n), body: Vec::new() };
        insert(&mut txn, &table, &[n], &row).unwrap();
        rows.insert(vec![n], row);
    }
    txn.commit().unwrap();
    (db, table, rows)
}

fn of_stem(n: u8) -> Vec<u8> {
    [&[b'g'; STEM][..], &[n]].concat()
}

/// Rows are moved, within a stem that a locking scan has read and out of it, before the scan comes
/// to lock them: it finds them where they are then.
#[test]
fn rows_that_move_on_within_a_stem_are_found_by_a_locking_scan() {
    for (direction, expected, to) in [
        (Direction::Forward, [0, 1, 2, 3, 4, 7, 5, 8, 9, 6], [of_stem(75), b"z".to_vec()]),
        (Direction::Backward, [9, 8, 7, 4, 3, 2, 5, 1, 0, 6], [of_stem(15), b"a".to_vec()]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (db, table, rows) = rows_of_a_stem(dir.path());
        let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
        let (of, all) = (KeyOf::Index(1), RawRange::all());
        let mut scan = txn.scan_raw(&table, of, all, direction, FOR_UPDATE).unwrap();
        let (mut found, mut out) = (Vec::new(), Vec::new());
        while let Some(entry) = scan.next(&mut txn).unwrap() {
            let (key, value) = (entry.key.to_vec(), entry.value.to_vec());
            let of_row = [key[key.len() - 5]];
            let is_there = txn.get_raw(&table, &of_row, FOR_UPDATE, &mut out).unwrap();
            if !is_there || Row::from_bytes(&out).entry(1, &of_row) != (key.clone(), value) {
                txn.unlock_raw(&table, &of_row).unwrap();
                scan.behind(&key);
                continue;
            }
            found.push(of_row[0]);
            if found.len() == 1 {
                let mut mover = db.begin(Isolation::ReadCommitted).unwrap();
                for (n, group) in [5, 6].into_iter().zip(&to) {
                    let old = &rows[&[n][..]];
                    let new = Row { group: group.clone(), ..old.clone() };
                    update(&mut mover, &table, &[n], old, &new).unwrap();
                }
                mover.commit().unwrap();
            }
        }
        assert_eq!(found, expected, "{direction:?}");
    }
}

#[test]
fn a_scan_comes_again_to_a_row_of_a_stem_that_it_could_not_lock() {
    for direction in BOTH {
        let dir = tempfile::tempdir().unwrap();
        let (db, table, _) = rows_of_a_stem(dir.path());
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for n in 0..10 {
            let row = Row { unique: of_stem(n), group: vec![n], body: Vec::new() };
            insert(&mut txn, &table, &of_stem(n), &row).unwrap();
        }
        txn.commit().unwrap();
        let mut other = db.begin(Isolation::RepeatableRead).unwrap();
        let mut out = Vec::new();
        assert!(other.get_raw(&table, &of_stem(4), FOR_UPDATE, &mut out).unwrap());
        let (mut other, mut failed) = (Some(other), 0);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let (of, stem) = (KeyOf::Primary, of_stem(0));
        let range = RawRange::prefix(&stem[..STEM]);
        let mut scan = txn.scan_raw(&table, of, range, direction, FOR_UPDATE).unwrap();
        let mut found = Vec::new();
        loop {
            match scan.next(&mut txn) {
                Ok(None) => break,
                Ok(Some(entry)) => found.push(entry.key[STEM]),
                Err(Error::LockWaitTimeout) => {
                    failed += 1;
                    if failed == 3 {
                        other.take().unwrap().rollback().unwrap();
                    }
                }
                Err(error) => panic!("{error}"),
            }
        }
        found.sort_unstable();
        assert_eq!(found, (0..10).collect::<Vec<u8>>(), "{direction:?}");
        assert_eq!(failed, 3);
    }
}

#[test]
fn a_scan_that_goes_on_as_of_now_within_a_stem_sees_what_is_committed_now() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
    let table = db.create_table("raw", Schema::raw(Vec::new(), Vec::new()).unwrap()).unwrap();
    let keys: Vec<Vec<u8>> = (0..10).map(|n| [&vec![b'a'; STEM][..], &[n]].concat()).collect();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    keys.iter().for_each(|key| txn.insert_raw(&table, key, b"old", &[]).unwrap());
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
    let all = RawRange::all();
    let mut scan =
        txn.scan_raw(&table, KeyOf::Primary, all, Direction::Forward, Lock::None).unwrap();
    assert_eq!(scan.next(&mut txn).unwrap().unwrap().key, keys[0]);
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    for key in &keys {
        other.update_raw(&table, key, b"new", &[], &[]).unwrap();
    }
    other.commit().unwrap();
    scan.behind_as_of_now(&mut txn, &keys[0]).unwrap();
    for key in &keys[1..] {
        let entry = scan.next(&mut txn).unwrap().unwrap();
        assert_eq!((entry.key, entry.value), (&key[..], &b"new"[..]));
    }
    assert!(scan.next(&mut txn).unwrap().is_none());
}

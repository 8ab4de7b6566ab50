//! Indexes that are built while others write to their table.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir::{
    Alteration, BackgroundStep, Database, Direction, Entry, EntryOfOne, Error, Isolation, KeyOf,
    Lock, NewIndex, Options, Patience, RawIndex, RawRange, Schema, Table, TableChange, Transaction,
    Type, Value,
};
use weir_os::SimDisk;

fn plain_items() -> Schema {
    Schema::builder()
        .column("id", Type::U64)
        .column("a", Type::I64)
        .column("b", Type::Text)
        .column("body", Type::Bytes)
        .primary_key(&["id"])
        .build()
        .unwrap()
}

const WRITERS: u64 = 3;

/// Inserts, updates and deletes rows of its own, several in a transaction, which it takes back now
/// and then.
fn write(db: &Database, table: &Table, writer: u64, stop: &AtomicBool, done: &AtomicU64) {
    let mut rng = fastrand::Rng::with_seed(writer);
    let mut model: BTreeMap<u64, Item> = BTreeMap::new();
    while !stop.load(Ordering::Relaxed) {
        let mut now = model.clone();
        let result = (|| {
            let mut txn = db.begin(Isolation::ReadCommitted)?;
            for _ in 0..rng.u64(1..20) {
                let id = rng.u64(..3000) * WRITERS + writer;
                let item =
                    (rng.i64(..50), format!("{id}-{}", rng.u8(..3)), vec![7; rng.usize(..200)]);
                match (now.contains_key(&id), rng.u8(..4)) {
                    (false, _) => txn.insert(table, &values(id, &item))?,
                    (true, 0) => {
                        txn.delete(table, &[Value::U64(id)])?;
                        now.remove(&id);
                        continue;
                    }
                    (true, _) => txn.upsert(table, &values(id, &item)).map(drop)?,
                }
                now.insert(id, item);
            }
            if rng.u8(..5) == 0 {
                txn.rollback()?;
                return Ok(false);
            }
            txn.commit()?;
            Ok::<_, Error>(true)
        })();
        match result {
            Ok(true) => model = now,
            Ok(false) => {}
            Err(error) => panic!("{error}"),
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    // What others think that it has written is what it knows.
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let all = rows(&mut txn, table, weir::IndexRef::Primary, Direction::Forward).unwrap();
    let own: BTreeMap<u64, Item> =
        all.iter().map(item_of).filter(|(id, _)| id % WRITERS == writer).collect();
    assert_eq!(own, model);
}

#[test]
fn indexes_of_a_table_that_is_written_all_the_time_have_what_its_rows_have() {
    let _watchdog = Watchdog::new("indexes beside writers");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
    let table = db.create_table("items", plain_items()).unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, table, stop, done) = (&db, &table, &stop, &done);
                scope.spawn(move || write(db, table, writer, stop, done))
            })
            .collect();
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        let rounds = 8 * factor();
        for round in 0..rounds {
            let from = done.load(Ordering::Relaxed);
            while done.load(Ordering::Relaxed) < from + 100 && !writers[0].is_finished() {
                std::thread::yield_now();
            }
            let by_a = NewIndex { name: "by_a", columns: &["a"], unique: false };
            let by_b = NewIndex { name: "by_b", columns: &["b"], unique: true };
            if round % 2 == 0 {
                db.create_indexes(&table, &[by_a, by_b]).unwrap();
            } else {
                for NewIndex { name, columns, unique } in [by_a, by_b] {
                    db.create_index(&table, name, columns, unique).unwrap();
                }
            }
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            all_items(&mut txn, &table);
            txn.commit().unwrap();
            if round + 1 == rounds {
                break;
            }
            db.drop_index(&table, "by_a").unwrap();
            db.drop_index(&table, "by_b").unwrap();
        }
    });
    check_quiet(&db);
}

/// A table of rows of 4 bytes by keys of 4 bytes. Index `n` is of a row's byte `n`; the last one is
/// unique, of two bytes.
struct Model {
    rows: BTreeMap<u32, [u8; 4]>,
    indexes: Vec<&'static str>,
}

const INDEXES: [&str; 3] = ["first", "second", "both"];

fn is_unique(index: &str) -> bool {
    index == "both"
}

fn entry_key(index: &str, key: u32, row: &[u8]) -> Vec<u8> {
    match index {
        "first" => [&row[..1], &key.to_be_bytes()].concat(),
        "second" => [&row[1..2], &key.to_be_bytes()].concat(),
        _ => row[2..4].to_vec(),
    }
}

/// The last byte of an entry's value changes with the row, though its key may stay.
fn entry_value(index: &str, key: u32, row: &[u8]) -> Vec<u8> {
    match is_unique(index) {
        true => [&key.to_be_bytes()[..], &row[..1]].concat(),
        false => vec![row[3]],
    }
}

/// Makes the entries of the one new index.
fn entry_of(index: &'static str) -> Box<EntryOfOne<'static>> {
    Box::new(move |_, _, key, row, of_key, value| {
        let key = u32::from_be_bytes(key.try_into().unwrap());
        *of_key = entry_key(index, key, row);
        *value = entry_value(index, key, row);
        Ok(())
    })
}

struct Open {
    txn: Transaction,
    writes: BTreeMap<u32, Option<[u8; 4]>>,
}

struct World {
    rng: fastrand::Rng,
    db: Database,
    table: Table,
    model: Model,
    open: Vec<Open>,
    alteration: Option<(Alteration, &'static str, Vec<&'static str>)>,
    built: u64,
    duplicates: u64,
}

fn simulated() -> Options {
    options(4 << 20, 4 << 20).single_threaded().lock_wait_timeout(Duration::ZERO)
}

fn patience() -> Patience {
    Patience::new(Duration::ZERO)
}

impl World {
    fn new(seed: u64, disk: &SimDisk) -> World {
        let db = Database::open_on(Arc::new(disk.clone()), simulated()).unwrap();
        let table = db.create_table("t", Schema::raw(vec![], vec![0]).unwrap()).unwrap();
        World {
            rng: fastrand::Rng::with_seed(seed),
            db,
            table,
            model: Model { rows: BTreeMap::new(), indexes: Vec::new() },
            open: Vec::new(),
            alteration: None,
            built: 0,
            duplicates: 0,
        }
    }

    fn step(&mut self) {
        match self.rng.u8(..20) {
            0 if self.open.len() < 4 => {
                let txn = self.db.begin(Isolation::ReadCommitted).unwrap();
                self.open.push(Open { txn, writes: BTreeMap::new() });
            }
            1 | 2 if !self.open.is_empty() => self.end(),
            3 => self.alter(),
            4 if self.rng.u8(..4) == 0 => {
                self.alteration = None;
            }
            5 => {
                let step = BackgroundStep::ALL[self.rng.usize(..10)];
                self.db.background_step(step).unwrap();
            }
            _ if !self.open.is_empty() => self.write(),
            _ => {}
        }
    }

    fn end(&mut self) {
        let at = self.rng.usize(..self.open.len());
        let Open { txn, writes } = self.open.swap_remove(at);
        if self.rng.u8(..3) == 0 {
            return txn.rollback().unwrap();
        }
        txn.commit().unwrap();
        for (key, row) in writes {
            match row {
                Some(row) => self.model.rows.insert(key, row),
                None => self.model.rows.remove(&key),
            };
        }
    }

    fn write(&mut self) {
        let (at, key) = (self.rng.usize(..self.open.len()), self.rng.u32(..60));
        // Another's row would be waited for.
        if self.open.iter().enumerate().any(|(n, open)| n != at && open.writes.contains_key(&key)) {
            return;
        }
        let Open { txn, writes } = &mut self.open[at];
        let old = writes.get(&key).copied().unwrap_or(self.model.rows.get(&key).copied());
        let new = match self.rng.u8(..4) {
            0 if old.is_some() => None,
            // Two bytes that are another's only now and then.
            _ => Some([
                self.rng.u8(..4),
                self.rng.u8(..4),
                key as u8 >> self.rng.u8(..2),
                self.rng.u8(..30),
            ]),
        };
        if old.is_none() && new.is_none() {
            return;
        }
        let of = |row: Option<[u8; 4]>| -> Vec<(usize, Vec<u8>, Vec<u8>)> {
            let one = |(n, index): (usize, &&'static str), row: [u8; 4]| {
                (n, entry_key(index, key, &row), entry_value(index, key, &row))
            };
            let all = self.model.indexes.iter().enumerate();
            row.map_or(Vec::new(), |row| all.map(|index| one(index, row)).collect())
        };
        let (before, after) = (of(old), of(new));
        let entries = |all: &[(usize, Vec<u8>, Vec<u8>)], others: &[(usize, Vec<u8>, Vec<u8>)]| {
            let all = all.iter().filter(|one| !others.contains(one));
            all.map(|(index, key, value)| (*index, key.clone(), value.clone())).collect::<Vec<_>>()
        };
        let (removed, added) = (entries(&before, &after), entries(&after, &before));
        fn as_entries(all: &[(usize, Vec<u8>, Vec<u8>)]) -> Vec<Entry<'_>> {
            all.iter().map(|(index, key, value)| Entry { index: *index, key, value }).collect()
        }
        let bytes = key.to_be_bytes();
        let result = match (old, new) {
            (None, Some(row)) => txn.insert_raw(&self.table, &bytes, &row, &as_entries(&after)),
            (Some(_), None) => txn.delete_raw(&self.table, &bytes, &as_entries(&before)),
            (_, row) => {
                let (removed, added) = (as_entries(&removed), as_entries(&added));
                txn.update_raw(&self.table, &bytes, &row.unwrap(), &removed, &added).map(drop)
            }
        };
        match result {
            Ok(()) => {
                writes.insert(key, new);
            }
            // Of the unique index, or an entry that another one holds.
            Err(Error::Duplicate { .. } | Error::LockWaitTimeout | Error::TableInUse(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// Begins to add an index, perhaps in place of another one, or finishes that.
    fn alter(&mut self) {
        match self.alteration.take() {
            None => self.begin_alter(),
            Some((alteration, add, drop)) => self.finish_alter(alteration, add, drop),
        }
    }

    fn begin_alter(&mut self) {
        let add = INDEXES[self.rng.usize(..3)];
        let drop: Vec<&'static str> = match self.model.indexes.contains(&add) {
            true => vec![add],
            false => self.model.indexes.iter().copied().filter(|_| self.rng.bool()).collect(),
        };
        let patience = patience();
        let changes = self.db.changes(&patience);
        let mut alteration = changes.begin_alter().unwrap();
        let adds = [RawIndex::new(add, is_unique(add))];
        let change =
            TableChange { table: &self.table, drop: &drop, rename: &[], add: &adds, meta: None };
        let result = changes
            .add_change(&mut alteration, &change)
            // It is built in the end, or now.
            .and_then(|()| match self.rng.u8(..4) {
                0 => Ok(()),
                _ => changes.build_indexes(&mut alteration, &mut entry_of(add)),
            });
        match result {
            Ok(()) => self.alteration = Some((alteration, add, drop)),
            Err(Error::TableInUse(_)) => self.is_in_use(),
            Err(Error::Duplicate { .. }) => self.has_duplicates(add),
            Err(error) => panic!("{error}"),
        }
    }

    fn finish_alter(
        &mut self,
        mut alteration: Alteration,
        add: &'static str,
        drop: Vec<&'static str>,
    ) {
        alteration.set_meta(0, b"1").unwrap();
        let patience = patience();
        let result = self.db.changes(&patience).finish_alter(alteration, &mut entry_of(add));
        match result {
            Ok(()) => {
                self.model.indexes.retain(|index| !drop.contains(index));
                self.model.indexes.push(add);
                self.built += 1;
                assert_eq!(self.table.meta().unwrap(), b"1");
                self.verify();
            }
            Err(Error::TableInUse(_)) => self.is_in_use(),
            Err(Error::Duplicate { .. }) => self.has_duplicates(add),
            Err(error) => panic!("{error}"),
        }
    }

    fn is_in_use(&self) {
        assert!(self.open.iter().any(|open| open.txn.uses(&self.table)), "nobody uses the table");
    }

    fn has_duplicates(&mut self, index: &str) {
        let mut keys: Vec<_> =
            self.model.rows.iter().map(|(key, row)| entry_key(index, *key, row)).collect();
        keys.sort();
        assert!(is_unique(index) && keys.windows(2).any(|two| two[0] == two[1]));
        self.duplicates += 1;
    }

    fn verify(&mut self) {
        for n in 0..self.model.indexes.len() {
            let index = self.model.indexes[n];
            let mut expected: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            for (key, row) in &self.model.rows {
                expected.push((entry_key(index, *key, row), entry_value(index, *key, row)));
            }
            expected.sort();
            let mut txn = self.db.begin(Isolation::ReadCommitted).unwrap();
            let (all, forward) = (RawRange::all(), Direction::Forward);
            let mut scan =
                txn.scan_raw(&self.table, KeyOf::Index(n), all, forward, Lock::None).unwrap();
            let mut found = Vec::new();
            while let Some(entry) = scan.next(&mut txn).unwrap() {
                found.push((entry.key.to_vec(), entry.value.to_vec()));
            }
            assert_eq!(found, expected, "index {index}");
        }
        self.db.check(&mut |finding| panic!("{finding}")).unwrap();
    }
}

#[test]
fn whatever_is_written_while_an_index_is_built_is_in_it() {
    let (mut built, mut duplicates) = (0, 0);
    for seed in 0..60 * factor() {
        let disk = SimDisk::new(seed);
        let mut world = World::new(seed, &disk);
        (0..2000).for_each(|_| world.step());
        world.alteration = None;
        while !world.open.is_empty() {
            world.end();
        }
        world.verify();
        (built, duplicates) = (built + world.built, duplicates + world.duplicates);
    }
    assert!(built > 100 && duplicates > 20, "{built} built, {duplicates} duplicates");
}

#[test]
fn a_crash_while_an_index_is_built_leaves_none_or_all_of_it() {
    for seed in 0..100 * factor() {
        let disk = SimDisk::new(seed);
        let mut world = World::new(seed, &disk);
        let steps = world.rng.usize(100..1000);
        (0..steps).for_each(|_| world.step());
        let named = world.table.raw_schema().unwrap();
        // Nothing of it is given back in order.
        let found = if world.rng.bool() { disk.process_kill() } else { disk.crash(seed) };
        let db = Database::open_on(Arc::new(found), simulated()).unwrap();
        db.finish_recovery().unwrap();
        db.check(&mut |finding| panic!("seed {seed}: {finding}")).unwrap();
        let table = db.table("t").unwrap();
        let names = |schema: &weir::RawSchema| -> Vec<String> {
            schema.indexes().iter().map(|index| index.name.clone()).collect()
        };
        // Definitions are changed durably.
        assert_eq!(names(&table.raw_schema().unwrap()), names(&named));
    }
}

#[test]
fn who_writes_already_is_waited_for_and_who_reads_is_not() {
    let db = Database::open_on(Arc::new(SimDisk::new(1)), simulated()).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![0]).unwrap()).unwrap();
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    writer.insert_raw(&table, b"1", b"row", &[]).unwrap();
    let patience = patience();
    let changes = db.changes(&patience);
    let add = [RawIndex::new("by_row", false)];
    let change = TableChange { table: &table, drop: &[], rename: &[], add: &add, meta: None };
    let by_row = &mut |_, _, key: &[u8], row: &[u8], of_key: &mut Vec<u8>, _: &mut Vec<u8>| {
        of_key.extend([row, key].concat());
        Ok(())
    };
    let mut alteration = changes.begin_alter().unwrap();
    let result = changes.add_change(&mut alteration, &change);
    assert!(matches!(result, Err(Error::TableInUse(_))), "{result:?}");
    writer.commit().unwrap();
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    let mut row = Vec::new();
    assert!(reader.get_raw(&table, b"1", Lock::None, &mut row).unwrap());
    let mut alteration = changes.begin_alter().unwrap();
    changes.add_change(&mut alteration, &change).unwrap();
    changes.build_indexes(&mut alteration, by_row).unwrap();
    // Nobody else changes the table meanwhile.
    assert!(matches!(db.set_meta(&table, b"1"), Err(Error::TableInUse(_))));
    let mut writer = db.begin(Isolation::RepeatableRead).unwrap();
    writer.insert_raw(&table, b"2", b"another", &[]).unwrap();
    writer.commit().unwrap();
    reader.rollback().unwrap();
    changes.finish_alter(alteration, by_row).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let (all, forward) = (RawRange::all(), Direction::Forward);
    let mut scan = txn.scan_raw(&table, KeyOf::Index(0), all, forward, Lock::None).unwrap();
    assert_eq!(scan.next(&mut txn).unwrap().unwrap().key, b"another2");
    assert_eq!(scan.next(&mut txn).unwrap().unwrap().key, b"row1");
    assert!(scan.next(&mut txn).unwrap().is_none());
}

#[test]
fn an_index_that_is_half_built_does_not_outlive_its_database() {
    let disk = SimDisk::new(1);
    let db = Database::open_on(Arc::new(disk.clone()), simulated()).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![0]).unwrap()).unwrap();
    let patience = patience();
    let add = [RawIndex::new("by_row", false)];
    let change = TableChange { table: &table, drop: &[], rename: &[], add: &add, meta: None };
    let changes = db.changes(&patience);
    let by_key = &mut |_, _, key: &[u8], _: &[u8], of_key: &mut Vec<u8>, _: &mut Vec<u8>| {
        of_key.extend(key);
        Ok(())
    };
    let mut alteration = changes.begin_alter().unwrap();
    changes.add_change(&mut alteration, &change).unwrap();
    changes.build_indexes(&mut alteration, by_key).unwrap();
    let other = db.clone();
    other.close(weir::Shutdown::Fast, &mut |_| {}).unwrap();
    let finished = changes.finish_alter(alteration, by_key);
    assert!(finished.is_err());
    drop((table, db));
    let db = Database::open_on(Arc::new(disk), simulated()).unwrap();
    db.finish_recovery().unwrap();
    db.check(&mut |finding| panic!("{finding}")).unwrap();
    assert!(db.table("t").unwrap().raw_schema().unwrap().indexes().is_empty());
}

/// The first of several tables was closed while the indexes of the others were built.
#[test]
fn tables_are_read_and_written_while_the_indexes_of_all_of_them_are_built() {
    let db = Database::open_on(Arc::new(SimDisk::new(1)), simulated()).unwrap();
    let insert = |table: &Table, key: &[u8]| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.insert_raw(table, key, b"row", &[]).unwrap();
        txn.commit().unwrap();
    };
    let tables = ["a", "b"].map(|name| {
        let table = db.create_table(name, Schema::raw(vec![], vec![0]).unwrap()).unwrap();
        insert(&table, b"1");
        table
    });
    let add = [RawIndex::new("by_key", false)];
    let changes = [0, 1].map(|n| TableChange {
        table: &tables[n],
        drop: &[],
        rename: &[],
        add: &add,
        meta: None,
    });
    let mut left = 2;
    db.alter_tables(&changes, &mut |_, _, key, _, of_key, _| {
        if key == b"1" && left > 0 {
            left -= 1;
            tables.iter().for_each(|table| insert(table, &[b'9', left]));
        }
        of_key.extend(key);
        Ok(())
    })
    .unwrap();
    for table in &tables {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let (all, forward) = (RawRange::all(), Direction::Forward);
        let mut scan = txn.scan_raw(table, KeyOf::Index(0), all, forward, Lock::None).unwrap();
        for key in [&b"1"[..], &[b'9', 0], &[b'9', 1]] {
            assert_eq!(scan.next(&mut txn).unwrap().unwrap().key, key);
        }
        assert!(scan.next(&mut txn).unwrap().is_none());
    }
}

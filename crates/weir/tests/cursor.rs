//! Cursors that go both ways, and to any place: against a model, and where rows are locked or
//! changed by others.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::options;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;
use std::time::Duration;
use weir::{
    Bounds, Cursor, Database, Direction, Error, IndexRef, Isolation, Lock, Schema, Table,
    Transaction, Type, Value, Wait,
};
use weir_os::SimDisk;

const IDS: u64 = 101;
const INDEXES: [IndexRef<'_>; 3] =
    [IndexRef::Primary, IndexRef::Named("by_a"), IndexRef::Named("by_b")];

/// Place in an index: value of its first column, and the row's id.
type Key = (i64, u64);

/// A table whose rows follow from their ids; `stem` begins each text.
struct World {
    db: Database,
    table: Table,
    stem: String,
}

impl World {
    fn new(stem_bytes: usize) -> World {
        let options = options(4 << 20, 2 << 20).single_threaded().staging_leaves(2);
        let options = options.lock_wait_timeout(Duration::ZERO);
        let db = Database::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
        let schema = Schema::builder()
            .column("id", Type::U64)
            .column("a", Type::I64)
            .column("b", Type::Text)
            .primary_key(&["id"])
            .index("by_a", &["a"])
            .unique_index("by_b", &["b"])
            .build()
            .unwrap();
        let table = db.create_table("t", schema).unwrap();
        World { db, table, stem: "s".repeat(stem_bytes) }
    }

    fn begin(&self, isolation: Isolation) -> Transaction {
        self.db.begin(isolation).unwrap()
    }

    fn insert(&self, txn: &mut Transaction, id: u64) {
        let b = self.b(key_of(2, id).0);
        let row = [id.into(), key_of(1, id).0.into(), Value::Text(&b)];
        txn.insert(&self.table, &row).unwrap();
    }

    fn delete(&self, txn: &mut Transaction, id: u64) {
        assert!(txn.delete(&self.table, &[id.into()]).unwrap());
    }

    fn b(&self, number: i64) -> String {
        format!("{}{number:03}", self.stem)
    }
}

/// Where a row is in one of [`INDEXES`].
fn key_of(index: usize, id: u64) -> Key {
    let value = match index {
        0 => id,
        1 => id * 7 % 13,
        _ => id * 37 % IDS,
    };
    (value as i64, id)
}

fn id_of(row: Option<weir::RowRef<'_>>) -> Option<u64> {
    row.map(|row| row.get(0).unwrap().as_u64().unwrap())
}

/// What a cursor of the model stands at.
#[derive(Debug, Clone, Copy)]
enum Place {
    Low,
    High,
    At(Key),
    /// Between the keys below and those from there on.
    Between(Key),
}

/// What a scan may give.
struct Model {
    rows: BTreeMap<Key, u64>,
    /// First columns, from one to below the other.
    bounds: (i64, i64),
    place: Place,
    going: Option<Direction>,
    /// What the transaction has changed since the scan began, last time: the scan may come to that,
    /// as it is or was.
    changed: BTreeMap<Key, u64>,
}

impl Model {
    fn lies_ahead(&self, key: Key, way: Direction) -> bool {
        let forward = way == Direction::Forward;
        (self.bounds.0..self.bounds.1).contains(&key.0)
            && match self.place {
                Place::Low => forward,
                Place::High => !forward,
                Place::At(at) => {
                    if forward {
                        key > at
                    } else {
                        key < at
                    }
                }
                Place::Between(at) => (key >= at) == forward,
            }
    }

    /// The first row ahead for which `counts`.
    fn first(&self, way: Direction, counts: impl Fn(&Key) -> bool) -> Option<Key> {
        let mut ahead =
            self.rows.keys().copied().filter(|key| self.lies_ahead(*key, way) && counts(key));
        if way == Direction::Forward { ahead.next() } else { ahead.next_back() }
    }

    /// The cursor has given this row, or none.
    fn step(&mut self, way: Direction, given: Option<Key>) {
        if self.going != Some(way) {
            self.going = Some(way);
            self.changed.clear();
        }
        let settled = self.first(way, |key| !self.changed.contains_key(key));
        match given {
            Some(key) if self.changed.contains_key(&key) => {
                assert!(self.lies_ahead(key, way), "{key:?} from {:?}", self.place);
                let is_nearer = |settled: Key| {
                    if way == Direction::Forward { settled < key } else { settled > key }
                };
                assert!(!settled.is_some_and(is_nearer), "{settled:?} left out before {key:?}");
            }
            _ => assert_eq!(given, settled, "{way:?} from {:?}", self.place),
        }
        if given.is_none() {
            self.going = None;
        }
        self.place = match (given, way) {
            (Some(key), _) => Place::At(key),
            (None, Direction::Forward) => Place::High,
            (None, Direction::Backward) => Place::Low,
        };
    }

    fn set(&mut self, key: Key, is_there: bool) {
        self.changed.insert(key, key.1);
        if is_there {
            self.rows.insert(key, key.1)
        } else {
            self.rows.remove(&key)
        };
    }
}

#[derive(Debug, Clone)]
enum Step {
    Next(usize),
    Prev(usize),
    Seek(i64, Option<u64>),
    /// Inserts the row, or deletes it if it is there.
    Change(u64),
    Savepoint,
    Rollback,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..8_usize).prop_map(Step::Next),
        4 => (1..8_usize).prop_map(Step::Prev),
        2 => (-2..IDS as i64 + 2, proptest::option::of(0..IDS)).prop_map(|(v, id)| Step::Seek(v, id)),
        4 => (0..IDS).prop_map(Step::Change),
        1 => Just(Step::Savepoint),
        1 => Just(Step::Rollback),
    ]
}

#[derive(Debug, Clone)]
struct Case {
    index: usize,
    direction: Direction,
    keys_only: bool,
    lock: Lock,
    isolation: Isolation,
    stem_bytes: usize,
    bounds: (i64, i64),
    there: Vec<bool>,
    steps: Vec<Step>,
}

fn case() -> impl Strategy<Value = Case> {
    let ways = prop_oneof![Just(Direction::Forward), Just(Direction::Backward)];
    let locks = prop_oneof![2 => Just(Lock::None), 1 => Just(Lock::Exclusive(Wait::ForTimeout))];
    let isolations = prop_oneof![
        Just(Isolation::ReadUncommitted),
        Just(Isolation::ReadCommitted),
        Just(Isolation::RepeatableRead),
        Just(Isolation::Serializable),
    ];
    let stems = prop_oneof![3 => Just(0_usize), 1 => Just(3600)];
    let bounds = prop_oneof![Just((-9, 999)), (0..IDS as i64, 0..IDS as i64 + 2)];
    let there = proptest::collection::vec(any::<bool>(), IDS as usize);
    let steps = proptest::collection::vec(step(), 1..80);
    let how = (0..INDEXES.len(), ways, any::<bool>(), locks, isolations, stems);
    (how, bounds, there, steps).prop_map(|(how, bounds, there, steps)| {
        let (index, direction, keys_only, lock, isolation, stem_bytes) = how;
        let keys_only = keys_only && lock == Lock::None;
        Case { index, direction, keys_only, lock, isolation, stem_bytes, bounds, there, steps }
    })
}

/// A value of an index's first column, and an id behind it where the index has one.
fn seek(cursor: &mut Cursor<'_>, world: &World, index: usize, value: i64, id: Option<u64>) {
    let b = world.b(value);
    match (index, id) {
        (0, _) => cursor.seek(&[(value as u64).into()]),
        (1, Some(id)) => cursor.seek(&[value.into(), id.into()]),
        (1, None) => cursor.seek(&[value.into()]),
        _ => cursor.seek(&[Value::Text(&b)]),
    }
    .unwrap();
}

fn run(case: &Case) {
    let Case { index, direction, keys_only, lock, isolation, bounds, .. } = *case;
    let world = World::new(case.stem_bytes);
    let mut rows = BTreeMap::new();
    let there: Vec<u64> = (0..IDS).filter(|id| case.there[*id as usize]).collect();
    for ids in there.chunks(7) {
        let mut txn = world.begin(Isolation::RepeatableRead);
        for &id in ids {
            world.insert(&mut txn, id);
            rows.insert(key_of(index, id), id);
        }
        txn.commit().unwrap();
    }
    // No text is below 0, or has four digits.
    let bounds = if index == 1 { bounds } else { (bounds.0.max(0), bounds.1) };
    let texts = [bounds.0, bounds.1].map(|value| world.b(value));
    let ends = match index {
        0 => [bounds.0, bounds.1].map(|value| [Value::U64(value as u64)]),
        1 => [[bounds.0.into()], [bounds.1.into()]],
        _ => [[Value::Text(&texts[0])], [Value::Text(&texts[1])]],
    };
    let range = Bounds::new(Included(&ends[0]), Excluded(&ends[1]));
    let mut txn = world.begin(isolation);
    let mut cursor = match keys_only {
        true => txn.scan_keys(&world.table, INDEXES[index], range, direction).unwrap(),
        false => txn.scan_locking(&world.table, INDEXES[index], range, direction, lock).unwrap(),
    };
    let (place, going) = match direction {
        Direction::Forward => (Place::Low, Some(direction)),
        Direction::Backward => (Place::High, Some(direction)),
    };
    let mut model = Model { rows, bounds, place, going, changed: BTreeMap::new() };
    let mut saved = None;
    for step in &case.steps {
        match *step {
            Step::Next(times) => {
                for _ in 0..times {
                    let given = id_of(cursor.next().unwrap()).map(|id| key_of(index, id));
                    model.step(direction, given);
                }
            }
            Step::Prev(times) => {
                for _ in 0..times {
                    let given = id_of(cursor.prev().unwrap()).map(|id| key_of(index, id));
                    model.step(direction.opposite(), given);
                }
            }
            Step::Seek(value, id) => {
                let value = if index == 1 { value % 15 } else { value.max(0) };
                let id = id.filter(|_| index == 1);
                seek(&mut cursor, &world, index, value, id);
                let at = match (direction, id) {
                    (Direction::Forward, id) => (value, id.unwrap_or(0)),
                    (Direction::Backward, Some(id)) => (value, id + 1),
                    (Direction::Backward, None) => (value + 1, 0),
                };
                (model.place, model.going) = (Place::Between(at), None);
            }
            Step::Change(id) => {
                let key = key_of(index, id);
                let is_there = !model.rows.contains_key(&key);
                match is_there {
                    true => world.insert(cursor.transaction(), id),
                    false => world.delete(cursor.transaction(), id),
                }
                model.set(key, is_there);
            }
            Step::Savepoint => {
                saved = Some((cursor.transaction().savepoint().unwrap(), model.rows.clone()));
            }
            Step::Rollback => {
                let Some((savepoint, rows)) = &saved else { continue };
                cursor.transaction().rollback_to(*savepoint).unwrap();
                for key in (0..IDS).map(|id| key_of(index, id)) {
                    if rows.contains_key(&key) != model.rows.contains_key(&key) {
                        model.set(key, rows.contains_key(&key));
                    }
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256 * common::factor() as u32,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn next_prev_and_seek_give_what_a_model_gives(case in case()) {
        run(&case);
    }
}

#[test]
fn a_cursor_that_could_not_wait_for_a_row_is_where_it_was() {
    for stem_bytes in [0, 3600] {
        for index in INDEXES {
            let world = World::new(stem_bytes);
            let mut txn = world.begin(Isolation::RepeatableRead);
            world.insert(&mut txn, 0);
            world.insert(&mut txn, 1);
            // In the same order by each index.
            let b = world.b(90);
            txn.insert(&world.table, &[Value::U64(2), 12.into(), Value::Text(&b)]).unwrap();
            txn.commit().unwrap();
            let mut holder = world.begin(Isolation::RepeatableRead);
            holder.get_for_update(&world.table, &[Value::U64(2)]).unwrap();

            let mut txn = world.begin(Isolation::RepeatableRead);
            let (forward, lock) = (Direction::Forward, Lock::Shared(Wait::ForTimeout));
            let all = Bounds::all();
            let mut cursor = txn.scan_locking(&world.table, index, all, forward, lock).unwrap();
            let timeout = |cursor: &mut Cursor<'_>| {
                assert!(matches!(cursor.next(), Err(Error::LockWaitTimeout)), "{index:?}");
            };
            assert_eq!(id_of(cursor.next().unwrap()), Some(0));
            assert_eq!(id_of(cursor.next().unwrap()), Some(1));
            timeout(&mut cursor);
            timeout(&mut cursor);
            assert_eq!(id_of(cursor.prev().unwrap()), Some(0), "{index:?}");
            assert_eq!(id_of(cursor.next().unwrap()), Some(1));
            match index {
                IndexRef::Primary => cursor.seek(&[Value::U64(2)]).unwrap(),
                IndexRef::Named("by_a") => cursor.seek(&[12.into()]).unwrap(),
                IndexRef::Named(_) => cursor.seek(&[Value::Text(&b)]).unwrap(),
            }
            timeout(&mut cursor);
            assert_eq!(id_of(cursor.prev().unwrap()), Some(1), "{index:?}");
            timeout(&mut cursor);
            holder.commit().unwrap();
            assert_eq!(id_of(cursor.next().unwrap()), Some(2));
            assert_eq!(id_of(cursor.next().unwrap()), None);
            assert_eq!(id_of(cursor.prev().unwrap()), Some(2));
        }
    }
}

#[test]
fn a_cursor_that_turns_sees_of_others_what_it_saw_at_first() {
    for index in INDEXES {
        let world = World::new(0);
        let mut other = world.begin(Isolation::ReadCommitted);
        for id in 0..5 {
            world.insert(&mut other, id);
        }
        other.commit().unwrap();
        let mut txn = world.begin(Isolation::ReadCommitted);
        let mut cursor = txn.scan(&world.table, index, Bounds::all(), Direction::Forward).unwrap();
        let mut expected = Vec::new();
        while let Some(id) = id_of(cursor.next().unwrap()) {
            expected.push(id);
        }
        let mut other = world.begin(Isolation::ReadCommitted);
        world.delete(&mut other, 3);
        world.insert(&mut other, 9);
        other.commit().unwrap();
        let mut found = Vec::new();
        while let Some(id) = id_of(cursor.prev().unwrap()) {
            found.push(id);
        }
        found.reverse();
        assert_eq!(found, expected, "{index:?}");
    }
}

#[test]
fn values_that_an_index_cannot_have_leave_a_cursor_where_it_was() {
    let world = World::new(0);
    let mut txn = world.begin(Isolation::RepeatableRead);
    for id in 0..3 {
        world.insert(&mut txn, id);
    }
    let all = Bounds::all();
    let mut cursor = txn.scan(&world.table, INDEXES[0], all, Direction::Forward).unwrap();
    cursor.next().unwrap();
    for values in [&[Value::Text("one")][..], &[Value::U64(1), Value::U64(2)]] {
        assert!(matches!(cursor.seek(values), Err(Error::Row(_))));
    }
    assert_eq!(id_of(cursor.next().unwrap()), Some(1));
    // No values: before all rows.
    cursor.seek(&[]).unwrap();
    assert_eq!(id_of(cursor.next().unwrap()), Some(0));
}

/// What the scan had come to the stem by was no more at hand.
#[test]
fn a_locking_scan_within_a_stem_goes_on_after_a_rollback_and_a_delete() {
    let world = World::new(3600);
    let mut txn = world.begin(Isolation::RepeatableRead);
    for id in 0..6 {
        world.insert(&mut txn, id);
    }
    let (all, lock) = (Bounds::all(), Lock::Exclusive(Wait::ForTimeout));
    let mut cursor =
        txn.scan_locking(&world.table, INDEXES[2], all, Direction::Forward, lock).unwrap();
    // By `b`: 0, 3, 1, 4, 2, 5.
    assert_eq!(id_of(cursor.next().unwrap()), Some(0));
    let savepoint = cursor.transaction().savepoint().unwrap();
    cursor.transaction().rollback_to(savepoint).unwrap();
    assert_eq!(id_of(cursor.next().unwrap()), Some(3));
    world.delete(cursor.transaction(), 1);
    assert_eq!(id_of(cursor.next().unwrap()), Some(4));
}

//! Deletes of ranges: what they delete, lock, take back, and keep in memory.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::staged::{Model, compare, eager, load};
use common::*;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::time::Duration;
use weir::{Bounds, Database, Error, IndexRef, Isolation, Table, Transaction, Value};

const ROWS: u64 = 3000;

struct World {
    _dir: tempfile::TempDir,
    db: Database,
    table: Table,
    model: Model,
    rng: fastrand::Rng,
}

impl World {
    fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let options = eager(16 << 20, 16).lock_wait_timeout(Duration::ZERO);
        let db = Database::open(dir.path(), options).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let mut rng = fastrand::Rng::with_seed(seed());
        let model = load(&db, &table, &mut rng, 0..ROWS);
        World { _dir: dir, db, table, model, rng }
    }

    fn begin(&self, isolation: Isolation) -> Transaction {
        self.db.begin(isolation).unwrap()
    }

    fn assert_has(&self, model: &Model, what: &str) {
        compare(&mut self.begin(Isolation::RepeatableRead), &self.table, model, what);
        assert_sound(&self.db);
    }
}

#[test]
fn all_rows_within_the_bounds_are_deleted_by_any_index_and_nothing_else() {
    for isolation in [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ] {
        let World { db, table, mut model, mut rng, _dir } = World::new();
        let mut txn = db.begin(isolation).unwrap();
        for step in 0..6 {
            let ends = [rng.u64(..ROWS), rng.u64(..ROWS)];
            let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
            let text = format!("{low:08}");
            let ids = [[Value::U64(low)], [Value::U64(high)]];
            let from = rng.i64(..);
            let a = [Value::I64(from)];
            let b = [Value::Text(&text)];
            let is_within = |id: u64, item: &Item| match step % 3 {
                0 => (low..high).contains(&id),
                1 => from <= item.0,
                _ => item.1 <= text,
            };
            let (index, bounds) = match step % 3 {
                0 => (IndexRef::Primary, Bounds::new(Included(&ids[0]), Excluded(&ids[1]))),
                1 => (IndexRef::Named("by_a"), Bounds::new(Included(&a), Unbounded)),
                _ => (IndexRef::Named("by_b"), Bounds::new(Unbounded, Included(&b))),
            };
            let before = model.len();
            model.retain(|id, item| !is_within(*id, item));
            let expected = (before - model.len()) as u64;
            assert_eq!(txn.delete_range(&table, index, bounds).unwrap(), expected, "{index:?}");
            // Of these it has some of its own, not committed.
            for id in ROWS * (step + 1)..ROWS * (step + 1) + 20 {
                let new = (rng.i64(..), format!("{id:08}"), vec![2; 4]);
                txn.insert(&table, &values(id, &new)).unwrap();
                model.insert(id, new);
            }
            compare(&mut txn, &table, &model, "within the transaction");
        }
        txn.commit().unwrap();
        compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "after it");
        assert_sound(&db);
    }
}

#[test]
fn one_that_comes_to_a_row_which_is_locked_has_done_nothing_and_can_be_repeated() {
    for index in [IndexRef::Primary, IndexRef::Named("by_a"), IndexRef::Named("by_b")] {
        let world = World::new();
        let mut holder = world.begin(Isolation::RepeatableRead);
        holder.get_for_update(&world.table, &[Value::U64(ROWS - 1)]).unwrap();
        let mut txn = world.begin(Isolation::RepeatableRead);
        let new = (5, "new".to_string(), vec![]);
        txn.insert(&world.table, &values(ROWS, &new)).unwrap();
        let failed = txn.delete_range(&world.table, index, Bounds::all());
        assert!(matches!(failed, Err(Error::LockWaitTimeout)), "{failed:?}");
        let mut model = world.model.clone();
        model.insert(ROWS, new);
        compare(&mut txn, &world.table, &model, "after the failure");
        drop(holder);
        assert_eq!(txn.delete_range(&world.table, index, Bounds::all()).unwrap(), ROWS + 1);
        txn.rollback().unwrap();
        world.assert_has(&world.model, "after the rollback");
    }
}

#[test]
fn one_that_is_cancelled_has_done_nothing() {
    let world = World::new();
    let mut txn = world.begin(Isolation::RepeatableRead);
    txn.canceller().unwrap().cancel();
    let failed = txn.delete_range(&world.table, IndexRef::Primary, Bounds::all());
    assert!(matches!(failed, Err(Error::Cancelled)), "{failed:?}");
    assert_eq!(txn.delete_range(&world.table, IndexRef::Primary, Bounds::all()).unwrap(), ROWS);
    drop(txn);
    world.assert_has(&world.model, "after the rollback");
}

#[test]
fn rows_that_were_deleted_stay_held_without_a_lock_for_each() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        for index in [IndexRef::Primary, IndexRef::Named("by_a")] {
            let mut world = World::new();
            let mut txn = world.begin(isolation);
            // Was locked before: it stays so, whatever becomes of the statement.
            txn.get_for_update(&world.table, &[Value::U64(7)]).unwrap();
            let savepoint = txn.savepoint().unwrap();
            txn.delete_range(&world.table, index, Bounds::all()).unwrap();
            let locks = world.db.locks().len();
            assert!(locks < 500, "{locks} locks for {ROWS} rows");
            let mut other = world.begin(isolation);
            for id in [0, 7, world.rng.u64(..ROWS)] {
                let held = other.get_for_update(&world.table, &[id.into()]);
                assert!(matches!(held, Err(Error::LockWaitTimeout)), "{id}");
            }
            txn.rollback_to(savepoint).unwrap();
            let held = other.get_for_update(&world.table, &[Value::U64(7)]);
            assert!(matches!(held, Err(Error::LockWaitTimeout)), "{held:?}");
        }
    }
}

#[test]
fn others_cannot_insert_into_a_range_that_a_serializable_transaction_has_deleted() {
    let world = World::new();
    let (low, high) = ([Value::U64(10)], [Value::U64(20)]);
    let bounds = Bounds::new(Included(&low), Excluded(&high));
    let mut txn = world.begin(Isolation::Serializable);
    assert_eq!(txn.delete_range(&world.table, IndexRef::Primary, bounds).unwrap(), 10);
    let mut other = world.begin(Isolation::ReadCommitted);
    let new = (1, "new".to_string(), vec![]);
    let failed = other.insert(&world.table, &values(15, &new));
    assert!(matches!(failed, Err(Error::LockWaitTimeout)), "{failed:?}");
    txn.commit().unwrap();
    other.insert(&world.table, &values(15, &new)).unwrap();
}

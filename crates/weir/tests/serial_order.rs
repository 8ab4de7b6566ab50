//! Serializable transactions of many threads, replayed one after the other in the order of their
//! commits: each statement comes to what it came to then.
//!
//! Locks are held until a transaction ends, so the order of commits must be such an order. A wait
//! that ends in a timeout is a deadlock that was not found.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included};
use std::sync::Mutex;
use std::time::Duration;
use weir::{
    Bounds, Database, Direction, Error, IndexRef, Isolation, Savepoint, Table, Transaction, Value,
};

const IDS: u64 = 24;
const THREADS: u64 = 4;

type Model = BTreeMap<u64, Item>;

/// A statement.
#[derive(Debug, Clone)]
enum Op {
    Get(u64),
    GetForUpdate(u64),
    Insert(u64, Item),
    InsertMany(Vec<(u64, Item)>),
    Update(u64, Item),
    Upsert(u64, Item),
    Delete(u64),
    /// Rows with `a` from, and to before.
    ScanA(i64, i64, Direction),
    /// Rows with `b` from, and to before.
    ScanB(String, String, Direction),
    /// Values of `a` alone.
    KeysA(i64, i64),
    ScanIds(u64, u64, Direction),
}

/// What a statement came to.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Row(Option<Item>),
    Done(bool),
    Duplicate,
    Rows(Vec<(u64, Item)>),
    Values(Vec<i64>),
}

fn item(rng: &mut Rng) -> Item {
    (rng.i64(0..8), format!("{:02}", rng.u8(..40)), vec![rng.u8(..); rng.usize(..300)])
}

impl Op {
    fn random(rng: &mut Rng) -> Op {
        let id = rng.u64(..IDS);
        let direction = if rng.bool() { Direction::Forward } else { Direction::Backward };
        let (a, b) = (rng.i64(0..8), rng.u8(..40));
        match rng.u8(..15) {
            0 => Op::Get(id),
            1 => Op::GetForUpdate(id),
            2..5 => Op::Insert(id, item(rng)),
            5 => Op::InsertMany((0..3).map(|n| (id + n * 7, item(rng))).collect()),
            6 => Op::Update(id, item(rng)),
            7 | 8 => Op::Upsert(id, item(rng)),
            9 | 10 => Op::Delete(id),
            11 => Op::ScanA(a, a + rng.i64(1..3), direction),
            12 => Op::ScanB(format!("{b:02}"), format!("{:02}", b + rng.u8(1..6)), direction),
            13 => Op::KeysA(a, a + 1),
            _ => Op::ScanIds(id, id + rng.u64(1..5), direction),
        }
    }

    /// Does it.
    fn run(&self, txn: &mut Transaction, table: &Table) -> Result<Outcome, Error> {
        let done = match self {
            Op::Get(id) => Ok(Outcome::Row(txn.get(table, &[Value::U64(*id)])?.map(of_row))),
            Op::GetForUpdate(id) => {
                Ok(Outcome::Row(txn.get_for_update(table, &[Value::U64(*id)])?.map(of_row)))
            }
            Op::Insert(id, item) => {
                txn.insert(table, &values(*id, item)).map(|()| Outcome::Done(true))
            }
            Op::InsertMany(rows) => {
                let rows: Vec<_> = rows.iter().map(|(id, item)| values(*id, item)).collect();
                txn.insert_many(table, &rows).map(|()| Outcome::Done(true))
            }
            Op::Update(id, item) => txn.update(table, &values(*id, item)).map(Outcome::Done),
            Op::Upsert(id, item) => txn.upsert(table, &values(*id, item)).map(Outcome::Done),
            Op::Delete(id) => txn.delete(table, &[Value::U64(*id)]).map(Outcome::Done),
            Op::ScanA(low, high, direction) => {
                let (low, high) = ([Value::I64(*low)], [Value::I64(*high)]);
                let bounds = Bounds::new(Included(&low), Excluded(&high));
                scan(txn, table, "by_a".into(), bounds, *direction)
            }
            Op::ScanB(low, high, direction) => {
                let (low, high) = ([Value::Text(low)], [Value::Text(high)]);
                let bounds = Bounds::new(Included(&low), Excluded(&high));
                scan(txn, table, "by_b".into(), bounds, *direction)
            }
            Op::ScanIds(low, high, direction) => {
                let (low, high) = ([Value::U64(*low)], [Value::U64(*high)]);
                let bounds = Bounds::new(Included(&low), Excluded(&high));
                scan(txn, table, IndexRef::Primary, bounds, *direction)
            }
            Op::KeysA(low, high) => {
                let (low, high) = ([Value::I64(*low)], [Value::I64(*high)]);
                let bounds = Bounds::new(Included(&low), Excluded(&high));
                let mut rows = txn.scan_keys(table, "by_a", bounds, Direction::Forward)?;
                let mut found = Vec::new();
                while let Some(row) = rows.next()? {
                    found.push(row.get(1)?.as_i64().unwrap());
                }
                Ok(Outcome::Values(found))
            }
        };
        match done {
            Err(Error::Duplicate { .. }) => Ok(Outcome::Duplicate),
            done => done,
        }
    }

    /// What it comes to where nobody else is.
    fn replay(&self, model: &mut Model) -> Outcome {
        let put = |model: &mut Model, rows: &[(u64, Item)]| {
            let before = model.clone();
            for (id, item) in rows {
                let is_taken = model.iter().any(|(other, there)| other != id && there.1 == item.1);
                if is_taken || model.insert(*id, item.clone()).is_some() {
                    *model = before;
                    return Outcome::Duplicate;
                }
            }
            Outcome::Done(true)
        };
        let in_order = |mut rows: Vec<(u64, Item)>, direction: &Direction| {
            if *direction == Direction::Backward {
                rows.reverse();
            }
            Outcome::Rows(rows)
        };
        fn rows(model: &Model) -> impl Iterator<Item = (u64, Item)> + '_ {
            model.iter().map(|(id, item)| (*id, item.clone()))
        }
        match self {
            Op::Get(id) | Op::GetForUpdate(id) => Outcome::Row(model.get(id).cloned()),
            Op::Insert(id, item) => put(model, &[(*id, item.clone())]),
            Op::InsertMany(rows) => put(model, rows),
            Op::Update(id, item) | Op::Upsert(id, item) => {
                let old = model.remove(id);
                if old.is_none() && matches!(self, Op::Update(..)) {
                    return Outcome::Done(false);
                }
                match put(model, &[(*id, item.clone())]) {
                    Outcome::Duplicate => {
                        model.extend(old.map(|old| (*id, old)));
                        Outcome::Duplicate
                    }
                    _ => Outcome::Done(old.is_some()),
                }
            }
            Op::Delete(id) => Outcome::Done(model.remove(id).is_some()),
            Op::ScanA(low, high, direction) => {
                let within = |row: &(u64, Item)| (*low..*high).contains(&row.1.0);
                let mut found: Vec<_> = rows(model).filter(within).collect();
                found.sort_by_key(|(id, item)| (item.0, *id));
                in_order(found, direction)
            }
            Op::ScanB(low, high, direction) => {
                let within = |row: &(u64, Item)| row.1.1 >= *low && row.1.1 < *high;
                let mut found: Vec<_> = rows(model).filter(within).collect();
                found.sort_by(|x, y| x.1.1.cmp(&y.1.1));
                in_order(found, direction)
            }
            Op::ScanIds(low, high, direction) => in_order(
                rows(model).filter(|(id, _)| (*low..*high).contains(id)).collect(),
                direction,
            ),
            Op::KeysA(low, high) => {
                let mut found: Vec<i64> = rows(model).map(|(_, item)| item.0).collect();
                found.retain(|a| (*low..*high).contains(a));
                found.sort_unstable();
                Outcome::Values(found)
            }
        }
    }
}

fn of_row(row: weir::Row) -> Item {
    item_of(&row).1
}

fn scan(
    txn: &mut Transaction,
    table: &Table,
    index: IndexRef<'_>,
    bounds: Bounds<'_>,
    direction: Direction,
) -> Result<Outcome, Error> {
    let mut rows = txn.scan(table, index, bounds, direction)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(item_of(&row.to_row()?));
    }
    Ok(Outcome::Rows(found))
}

/// Statements of a transaction that committed, and what they came to.
type Log = Vec<(Op, Outcome)>;

/// Runs a transaction; `None` if it was chosen to give way. What it takes back is not in the log:
/// nobody keeps for it what it has only written since a savepoint.
fn work(txn: &mut Transaction, table: &Table, rng: &mut Rng) -> Option<Log> {
    let (mut log, mut savepoints): (Log, Vec<(usize, Savepoint)>) = Default::default();
    for _ in 0..rng.usize(1..8) {
        savepoints.push((log.len(), txn.savepoint().unwrap()));
        if rng.u8(..16) == 0 {
            savepoints.truncate(1 + rng.usize(..savepoints.len()));
            let (kept, savepoint) = savepoints[savepoints.len() - 1];
            txn.rollback_to(savepoint).unwrap();
            log.truncate(kept);
        }
        let op = Op::random(rng);
        match op.run(txn, table) {
            Ok(outcome) => log.push((op, outcome)),
            Err(Error::Deadlock) => return None,
            Err(error) => panic!("{op:?}: {error}"),
        }
    }
    Some(log)
}

fn replay(log: &Log, model: &mut Model, nth: usize) {
    for (op, outcome) in log {
        let expected = op.replay(model);
        assert_eq!(*outcome, expected, "{op:?} of commit {nth}: {log:?}");
    }
}

#[test]
fn each_statement_comes_to_what_it_does_in_the_order_of_commits() {
    let _watchdog = Watchdog::new("serial order");
    let seed = seed();
    for staging_leaves in [None, Some(2)] {
        let dir = tempfile::tempdir().unwrap();
        let options = with_staging(options(4 << 20, 4 << 20), staging_leaves);
        let db = Database::open(dir.path(), options).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let order: Mutex<Vec<Log>> = Mutex::default();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (db, table, order) = (&db, &table, &order);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(seed + thread);
                    for _ in 0..1000 * factor() {
                        let mut txn = db.begin(Isolation::Serializable).unwrap();
                        txn.set_lock_wait_timeout(Duration::from_secs(100)).unwrap();
                        let Some(log) = work(&mut txn, table, &mut rng) else { continue };
                        if rng.u8(..8) == 0 {
                            txn.rollback().unwrap();
                            continue;
                        }
                        let mut order = order.lock().unwrap();
                        txn.commit().unwrap();
                        order.push(log);
                    }
                });
            }
        });
        let (mut model, order) = (Model::new(), order.into_inner().unwrap());
        order.iter().enumerate().for_each(|(nth, log)| replay(log, &mut model, nth));
        println!("{} commits, {} deadlocks", order.len(), db.status().deadlocks);
        let expected: Vec<_> = model.into_iter().collect();
        same(&expected, &all_items(&mut db.begin(Isolation::default()).unwrap(), &table), "end");
        check_quiet(&db);
    }
}

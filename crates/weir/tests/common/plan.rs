//! Transactions of several threads that follow from seed, thread and number alone: what a database
//! has to hold after a crash can be worked out. No two threads write the same row.

use super::{Item, all_items, values};
use std::collections::BTreeMap;
use weir::{Database, Durability, Error, Isolation, Table, Value};

/// Threads that commit.
pub const THREADS: u64 = 4;
/// Rows of each of them.
const KEYS: u64 = 128;

/// What a thread's transactions make of the table.
pub type Model = BTreeMap<u64, Item>;

/// The rows of a model, in order.
pub fn rows_of(model: &Model) -> Vec<(u64, Item)> {
    model.clone().into_iter().collect()
}

/// The rows of a thread that a table has, in order.
pub fn found_of(found: &[(u64, Item)], thread: u64) -> Vec<(u64, Item)> {
    found.iter().filter(|(id, _)| id % THREADS == thread).cloned().collect()
}

/// All that the table has, as one snapshot sees it.
pub fn found_in(db: &Database, table: &Table) -> Vec<(u64, Item)> {
    all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), table)
}

/// What a thread's transaction of a number does.
pub struct Plan {
    ops: Vec<(u64, Option<Item>)>,
    pub commits: bool,
    /// Whether its commit waits for the device.
    syncs: bool,
}

impl Plan {
    pub fn of(seed: u64, thread: u64, number: u64) -> Plan {
        let mut rng = fastrand::Rng::with_seed(seed ^ thread << 56 ^ number << 20);
        let most = if rng.u8(..40) == 0 { 130 } else { 9 };
        let ops = (0..rng.u32(1..most)).map(|n| {
            let id = rng.u64(..KEYS) * THREADS + thread;
            let long = if rng.u8(..30) == 0 { 40_000 } else { 500 };
            let body = vec![rng.u8(..); rng.usize(..long)];
            let item = (rng.i64(-9..9), format!("{number}.{n} of {thread}"), body);
            (id, (rng.u8(..4) != 0).then_some(item))
        });
        let ops = ops.collect();
        Plan { ops, commits: rng.u8(..6) != 0, syncs: rng.u8(..5) < 2 }
    }

    pub fn apply(&self, model: &mut Model) {
        if !self.commits {
            return;
        }
        for (id, item) in &self.ops {
            match item {
                Some(item) => drop(model.insert(*id, item.clone())),
                None => drop(model.remove(id)),
            }
        }
    }

    /// Whether its commit waits for the device: one that only deletes may have found nothing to
    /// delete.
    pub fn is_durable(&self) -> bool {
        self.commits && self.syncs && self.ops.iter().any(|(_, item)| item.is_some())
    }

    /// Does it. `otherwise`: how durable commits are that don't wait for the device.
    pub fn run(&self, db: &Database, table: &Table, otherwise: Durability) -> Result<(), Error> {
        let mut txn = db.begin(Isolation::RepeatableRead)?;
        txn.set_durability(if self.syncs { Durability::Sync } else { otherwise });
        for (id, item) in &self.ops {
            match item {
                Some(item) => drop(txn.upsert(table, &values(*id, item))?),
                None => drop(txn.delete(table, &[Value::U64(*id)])?),
            }
        }
        if self.commits { txn.commit() } else { txn.rollback() }
    }
}

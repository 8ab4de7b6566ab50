//! What tests of staged index entries share: a table's rows and a model of them.

use super::*;
use std::collections::BTreeMap;

pub type Model = BTreeMap<u64, Item>;

/// Entries are staged now and then without need.
pub fn eager(memory: u64, leaves: usize) -> Options {
    options(memory, 64 << 20).staging_leaves(leaves)
}

/// The table has the rows of the model.
pub fn compare(txn: &mut Transaction, table: &Table, model: &Model, what: &str) {
    let expected: Vec<(u64, Item)> = model.iter().map(|(k, v)| (*k, v.clone())).collect();
    same(&expected, &all_items(txn, table), what);
}

/// Rows with random values in `by_a`, from `ids`, a commit for each hundred.
pub fn load(
    db: &Database,
    table: &Table,
    rng: &mut fastrand::Rng,
    ids: std::ops::Range<u64>,
) -> Model {
    let mut model = Model::new();
    for from in ids.clone().step_by(100) {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in from..(from + 100).min(ids.end) {
            let new = (rng.i64(..), format!("{id:08}"), vec![1; 4]);
            txn.insert(table, &values(id, &new)).unwrap();
            model.insert(id, new);
        }
        txn.commit().unwrap();
    }
    model
}

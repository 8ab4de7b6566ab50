//! Transactions on a simulated disk, for tests.

use super::{Durability, Op, Transactions};
use crate::storage::{Need, Storage, StorageOptions};
use crate::tree::Tree;
use std::sync::Arc;
use weir_os::SimDisk;

/// Of a new database with so many frames and without threads.
pub(crate) fn transactions(frames: usize) -> Arc<Transactions> {
    let options = StorageOptions { inline: true, ..StorageOptions::small(frames) };
    let storage = Storage::create(Arc::new(SimDisk::new(1)), &options).unwrap();
    let mut mtr = storage.mtr(Need::log(64).and_pages(1)).unwrap();
    Transactions::init(&mut mtr);
    mtr.commit();
    Transactions::first(Arc::new(storage))
}

/// A new tree.
pub(crate) fn tree(txns: &Arc<Transactions>) -> Tree {
    let mut txn = txns.begin();
    let tree = txn.create_tree().unwrap();
    txn.commit(Durability::Relaxed).unwrap();
    tree
}

/// A write in a transaction of its own.
pub(crate) fn commit(txns: &Arc<Transactions>, tree: Tree, key: &[u8], op: Op<'_>) {
    let mut txn = txns.begin();
    txn.write(tree, key, op).unwrap();
    txn.commit(Durability::Relaxed).unwrap();
}

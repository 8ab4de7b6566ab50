//! The check finds nothing after random work, and exactly what was broken after damage. Here: a
//! database to be worked on and damaged.

mod chains;
mod damage;
mod descents;
mod rollback;
mod trees;
mod undo;
mod work;

use super::*;
use crate::storage::{Background, Need, OnProgress, Restart, StorageOptions, retry};
use crate::tree::Tree;
use crate::txn::{Durability, LANE_DIRECTORY, Op, Outcome, Transactions, Txn, TxnError, View};
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use weir_os::SimDisk;
use weir_os::sim::{Fault as SimFault, OpKind, Times};
use weir_page::node::Builder;
use weir_page::overflow::Reference;
use weir_page::version::{Flags, UndoPtr, Version};
use weir_page::{Entry, Redo, TxnId, lanes, node};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(frames: usize) -> StorageOptions {
    let mut options = StorageOptions { inline: true, ..StorageOptions::small(frames) };
    options.redo.capacity_bytes = 8 << 20;
    options
}

/// A small database and what it should hold.
struct Bed {
    disk: SimDisk,
    frames: usize,
    txns: Arc<Transactions>,
    trees: Vec<(Tree, Rows)>,
}

fn get_in(txn: &Txn, view: View, tree: Tree, key: &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    txn.get_into(view, tree, key, &mut value).unwrap().then_some(value)
}

/// All that was running is rolled back.
fn recovered(storage: Arc<Storage>) -> Result<Arc<Transactions>, TxnError> {
    let (txns, _) = Transactions::recover(storage)?;
    txns.roll_back_losers(usize::MAX)?;
    Ok(txns)
}

impl Bed {
    fn new(seed: u64, trees: usize) -> Bed {
        Bed::with_frames(seed, trees, 200)
    }

    fn with_frames(seed: u64, trees: usize, frames: usize) -> Bed {
        let disk = SimDisk::new(seed);
        let storage = Storage::create(Arc::new(disk.clone()), &options(frames)).unwrap();
        let mut mtr = storage.mtr(Need::log(64).and_pages(1)).unwrap();
        Transactions::init(&mut mtr);
        mtr.commit();
        let txns = Transactions::first(Arc::new(storage));
        let mut bed = Bed { disk, frames, txns, trees: Vec::new() };
        for _ in 0..trees {
            let mut txn = bed.txns.begin();
            bed.trees.push((txn.create_tree().unwrap(), Rows::new()));
            txn.commit(Durability::Sync).unwrap();
        }
        bed
    }

    fn storage(&self) -> &Storage {
        &self.txns.storage
    }

    fn roots(&self) -> Roots {
        let named = self.trees.iter().enumerate();
        let trees = named.map(|(n, (tree, _))| (tree.id, format!("t{n}"))).collect();
        Roots { trees, ..Roots::default() }
    }

    /// Findings of a full check, and the summary; the quick check agrees.
    fn findings(&self) -> (Vec<Finding>, Summary) {
        let mut found = Vec::new();
        let summary = check(self.storage(), &self.roots(), &mut |f| found.push(f)).unwrap();
        assert_eq!(summary.findings, found.len() as u64);
        (found, summary)
    }

    fn assert_clean(&self, when: &str) -> Summary {
        let (found, summary) = self.findings();
        let lines: Vec<String> = found.iter().take(10).map(Finding::to_string).collect();
        assert!(found.is_empty(), "{when}: {}", lines.join("\n"));
        let quick = check_quickly(self.storage(), &self.roots(), &mut |f| panic!("{when}: {f}"));
        let free_units = summary.free_units;
        assert_eq!(Summary { free_units, ..quick.unwrap() }, summary, "{when}");
        let alive: usize = self.trees.iter().map(|(_, rows)| rows.len()).sum();
        if summary.trees == self.trees.len() as u64 {
            assert_eq!(summary.entries, alive as u64, "{when}");
        }
        summary
    }

    /// Everything is there as the model says.
    fn assert_rows(&self, when: &str) {
        let mut txn = self.txns.begin();
        let view = txn.view();
        for (tree, rows) in &self.trees {
            for (key, value) in rows {
                let got = get_in(&txn, view, *tree, key);
                assert!(got.as_ref() == Some(value), "{when}: key {key:?} of tree {}", tree.id);
            }
        }
    }

    fn purge_all(&self) {
        while self.txns.purge_up_to(64).unwrap() > 0 {}
        assert_eq!(self.txns.history_len(), 0);
    }

    /// The same database after a power cut, recovered.
    fn crashed(self, seed: u64) -> Bed {
        let disk = self.disk.crash(seed);
        let on: Arc<dyn weir_os::Disk> = Arc::new(disk.clone());
        let storage = Storage::open(on, &options(self.frames), OnProgress::default()).unwrap();
        // The pass is at its beginning, on its way, or at its end.
        for _ in 0..seed % 4 {
            storage.recovery_step(64 << (2 * seed % 12)).unwrap();
        }
        let txns = recovered(Arc::new(storage)).unwrap();
        Bed { disk, txns, ..self }
    }

    fn put(&mut self, tree: usize, key: &[u8], value: &[u8]) {
        let mut txn = self.txns.begin();
        txn.write(self.trees[tree].0, key, Op::Upsert(value)).unwrap();
        txn.commit(Durability::Relaxed).unwrap();
        self.trees[tree].1.insert(key.to_vec(), value.to_vec());
    }

    /// Three levels' worth of short rows would take long: keys are long instead.
    fn fill(&mut self, rows: u32) {
        let mut txn = self.txns.begin();
        for n in 0..rows {
            let key = long_key(n);
            txn.write(self.trees[0].0, &key, Op::Insert(b"value")).unwrap();
            self.trees[0].1.insert(key, b"value".to_vec());
        }
        txn.commit(Durability::Sync).unwrap();
    }

    fn page(&self, page: PageId) -> Box<Page> {
        retry(self.storage(), || {
            let mut copy = Page::boxed();
            copy.0.copy_from_slice(&self.storage().read(page, true)?.0);
            Ok::<_, Restart<Fault>>(copy)
        })
        .unwrap()
    }

    /// Logs `redo` as it is.
    fn apply(&self, redo: &Redo<'_>) {
        retry(self.storage(), || {
            let mut mtr = self.storage().mtr(Need::log(1 << 16))?;
            mtr.latch(redo.page().unwrap())?;
            mtr.log(redo);
            mtr.commit();
            Ok::<_, Restart<Fault>>(())
        })
        .unwrap();
    }

    fn set_page(&self, page: &Page) {
        let mut body = Vec::new();
        page.append_body(&mut body);
        self.apply(&Redo::Image { page: page.id(), body: &body });
    }

    /// The leaf that holds `key`, by way of the inner pages.
    fn leaf_of(&self, tree: usize, key: &[u8]) -> PageId {
        let mut at = self.trees[tree].0.root();
        loop {
            let page = self.page(at);
            if page.level() == 0 {
                return at;
            }
            at = node::child(&page, node::child_slot(&page, key));
        }
    }

    /// Asserts that the check finds the damage, on these pages and no others.
    fn assert_found(&self, expected: &[(PageId, &str)]) {
        let (found, _) = self.findings();
        let lines: Vec<String> = found.iter().map(Finding::to_string).collect();
        let matches = found.len() == expected.len()
            && expected
                .iter()
                .all(|(page, what)| found.iter().any(|f| f.page == *page && f.what.contains(what)));
        assert!(matches, "expected {expected:?}, found:\n{}", lines.join("\n"));
    }
}

fn long_key(n: u32) -> Vec<u8> {
    let mut key = format!("{n:06}").into_bytes();
    key.resize(1500, b'.');
    key
}

fn random_value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.u32(..20) {
        0 => rng.usize(4_000..70_000),
        1..4 => rng.usize(1_000..3_800),
        _ => rng.usize(..200),
    };
    let mut value = vec![rng.u8(..); len];
    let random = len.min(64);
    rng.fill(&mut value[..random]);
    value
}

fn random_key(rng: &mut Rng) -> Vec<u8> {
    let n = rng.u32(..600);
    let len = [4, 12, 300][n as usize % 3];
    let mut key = format!("{n:04}").into_bytes();
    key.resize(len, b'k');
    key
}

/// A tree of two levels: its root, its children.
fn two_levels(seed: u64) -> (Bed, Box<Page>, Vec<PageId>) {
    let mut bed = Bed::new(seed, 1);
    bed.fill(100);
    bed.assert_clean("before damage");
    let root = bed.page(bed.trees[0].0.root());
    assert_eq!(root.level(), 1);
    let children = (0..node::count(&root)).map(|slot| node::child(&root, slot)).collect();
    (bed, root, children)
}

/// The same inner page with other children.
fn with_children(page: &Page, children: &[PageId]) -> Box<Page> {
    let (lower, upper) = (node::lower(page), node::upper(page));
    let mut b = Builder::new(page.id(), node::tree(page), page.level(), lower, upper);
    for (slot, child) in children.iter().enumerate() {
        b.push_child(&node::key(page, slot), *child);
    }
    b.finish()
}

/// Puts an entry as it is.
fn set_entry(bed: &Bed, key: &[u8], entry: Entry<'_>) {
    let tree = bed.trees[0].0;
    retry(bed.storage(), || {
        let mut mtr = bed.storage().mtr(Need::log(1 << 14))?;
        tree.slot(&mut mtr, key)?.set(&mut mtr, key, entry);
        mtr.commit();
        Ok::<_, Restart<Fault>>(())
    })
    .unwrap();
}

/// A database with a long value at `a`, and the reference to its chain.
fn with_chain() -> (Bed, Reference) {
    let mut bed = Bed::new(1, 1);
    bed.put(0, b"a", &[1; 40_000]);
    let leaf = bed.page(bed.leaf_of(0, b"a"));
    let reference = Reference::from_bytes(node::entry(&leaf, 0).value).unwrap();
    assert_eq!(bed.assert_clean("before damage").overflow_bytes, 40_000);
    (bed, reference)
}

const CHAIN: Flags = Flags { deleted: false, overflow: true, hides: false };

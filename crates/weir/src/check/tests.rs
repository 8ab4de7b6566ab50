//! The check finds nothing after random work, and exactly what was broken after damage.

use super::*;
use crate::storage::{Need, Restart, StorageOptions, retry};
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
use weir_redo::RedoOptions;
use weir_store::Compression;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn options(frames: usize) -> StorageOptions {
    StorageOptions {
        frames,
        redo: RedoOptions {
            capacity_bytes: 8 << 20,
            segment_bytes: 1 << 20,
            buffer_bytes: 1 << 20,
            database_id: 7,
        },
        dirty_limit: 0.9,
        keep_redo_capacity: false,
        compression: Compression::Lz4,
        inline: true,
        policy: Default::default(),
    }
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

impl Bed {
    fn new(seed: u64, trees: usize) -> Bed {
        Bed::with_frames(seed, trees, 200)
    }

    fn with_frames(seed: u64, trees: usize, frames: usize) -> Bed {
        let disk = SimDisk::new(seed);
        let storage = Storage::create(Arc::new(disk.clone()), &options(frames)).unwrap();
        let mut mtr = storage.mtr(Need::pages(64, 1)).unwrap();
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

    fn roots(&self) -> Vec<(TreeId, String)> {
        let named = self.trees.iter().enumerate();
        named.map(|(n, (tree, _))| (tree.id, format!("t{n}"))).collect()
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
        let (storage, _) = Storage::open(on, &options(self.frames), &mut |_| {}).unwrap();
        let (txns, _) = Transactions::recover(Arc::new(storage), &mut |_| {}).unwrap();
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

/// A transaction under way, and the rows as they will be once it commits.
struct Open {
    txn: Txn,
    writes: Vec<(usize, Vec<u8>, Option<Vec<u8>>)>,
}

impl Open {
    fn step(&mut self, bed: &Bed, rng: &mut Rng) -> Result<(), TxnError> {
        let at = rng.usize(..bed.trees.len());
        let (key, value) = (random_key(rng), random_value(rng));
        let op = match rng.u32(..10) {
            0..3 => Op::Delete,
            3..5 => Op::Insert(&value),
            5..7 => Op::Update(&value),
            _ => Op::Upsert(&value),
        };
        if let Outcome::Done(_) = self.txn.write(bed.trees[at].0, &key, op)? {
            let after = (!matches!(op, Op::Delete)).then_some(value);
            self.writes.push((at, key, after));
        }
        Ok(())
    }
}

/// A tree that is created, filled, and dropped, unless a rollback does one of the two.
fn short_lived_tree(bed: &Bed, rng: &mut Rng) {
    let mut txn = bed.txns.begin();
    let tree = txn.create_tree().unwrap();
    for _ in 0..rng.u32(..60) {
        let (key, value) = (random_key(rng), random_value(rng));
        txn.write(tree, &key, Op::Upsert(&value)).unwrap();
    }
    if rng.bool() {
        return txn.rollback().unwrap();
    }
    txn.commit(Durability::Relaxed).unwrap();
    let mut txn = bed.txns.begin();
    for _ in 0..rng.u32(..10) {
        txn.write(tree, &random_key(rng), Op::Delete).unwrap();
    }
    txn.drop_tree(tree).unwrap();
    if rng.bool() {
        txn.rollback().unwrap();
        txn = bed.txns.begin();
        txn.drop_tree(tree).unwrap();
    }
    txn.commit(Durability::Relaxed).unwrap();
}

/// Interleaved transactions with savepoints, rollbacks and purge; some are left open at the end.
fn random_work(bed: &mut Bed, rng: &mut Rng, steps: usize) -> Vec<Open> {
    let mut open: Vec<Open> = Vec::new();
    let mut snapshots: Vec<(Txn, crate::txn::View, Vec<Rows>)> = Vec::new();
    for _ in 0..steps {
        if open.len() < 3 {
            let mut txn = bed.txns.begin();
            txn.lock_timeout = Duration::ZERO;
            open.push(Open { txn, writes: Vec::new() });
        }
        let at = rng.usize(..open.len());
        match rng.u32(..100) {
            0..80 => match open[at].step(bed, rng) {
                Ok(()) => {}
                Err(TxnError::Lock(_)) if rng.bool() => {}
                Err(TxnError::Lock(_)) => open.swap_remove(at).txn.rollback().unwrap(),
                Err(error) => panic!("{error}"),
            },
            80..84 => {
                let o = &mut open[at];
                let (to, kept) = (o.txn.savepoint(), o.writes.len());
                for _ in 0..rng.u32(1..20) {
                    let _ = o.step(bed, rng);
                }
                o.txn.rollback_to(to).unwrap();
                o.writes.truncate(kept);
            }
            84..92 => {
                let done = open.swap_remove(at);
                done.txn.commit(Durability::Relaxed).unwrap();
                for (tree, key, value) in done.writes {
                    match value {
                        Some(value) => bed.trees[tree].1.insert(key, value),
                        None => bed.trees[tree].1.remove(&key),
                    };
                }
            }
            92..93 => open.swap_remove(at).txn.rollback().unwrap(),
            93..94 => short_lived_tree(bed, rng),
            94..96 => {
                bed.txns.purge_up_to(rng.usize(1..20)).unwrap();
            }
            96..98 if snapshots.len() < 2 => {
                let mut txn = bed.txns.begin();
                let view = txn.view();
                snapshots.push((txn, view, bed.trees.iter().map(|t| t.1.clone()).collect()));
            }
            _ => {
                let Some((txn, view, rows)) = snapshots.pop() else { continue };
                for ((tree, _), rows) in bed.trees.iter().zip(&rows) {
                    for n in 0..100 {
                        let key = random_key(rng);
                        let got = get_in(&txn, view, *tree, &key);
                        let want = rows.get(&key);
                        if got.as_ref() != want {
                            retry(bed.storage(), || {
                                let leaf =
                                    tree.leaf(bed.storage(), crate::tree::Target::At(&key), false)?;
                                let (slot, found) = leaf.seek(&key);
                                if found {
                                    let e = leaf.entry(slot);
                                    eprintln!("{:?} {:?} {}", e.flags, e.version, e.value.len());
                                    eprintln!(
                                        "{view:?} {:?} hz {}",
                                        e.version.map(|v| bed.txns.sees(view, v.txn)),
                                        bed.txns.horizon()
                                    );
                                } else {
                                    eprintln!("absent");
                                }
                                Ok::<_, Restart<Fault>>(())
                            })
                            .unwrap();
                        }
                        assert!(
                            got.as_ref() == want,
                            "probe {n}: {key:?} {:?} {:?}",
                            got.map(|g| g.len()),
                            want.map(|g| g.len())
                        );
                    }
                }
            }
        }
    }
    open
}

#[test]
fn nothing_is_found_after_random_work() {
    let seeds = std::env::var("WEIR_SEEDS").map_or(12, |n| n.parse().unwrap());
    for seed in 0..seeds {
        let mut rng = Rng::with_seed(seed);
        let mut bed = Bed::with_frames(seed, 2, [64, 100, 400][seed as usize % 3]);
        for round in 0..3 {
            let when = format!("seed {seed}, round {round}");
            let open = random_work(&mut bed, &mut rng, 1500);
            let crash = round == 1;
            if crash {
                // What was acknowledged as relaxed counts once the log is synced.
                bed.storage().redo.write_step(true).unwrap();
                let crashed = bed.disk.crash(seed);
                drop(open);
                bed = Bed { disk: crashed, ..bed }.crashed(seed + 1);
            } else {
                drop(open);
            }
            bed.assert_clean(&when);
            bed.assert_rows(&when);
            if rng.bool() {
                bed.purge_all();
                let summary = bed.assert_clean(&format!("{when}, purged"));
                assert_eq!(summary.dead_entries, 0, "{when}: purge leaves nothing dead");
            }
        }
    }
}

#[test]
fn a_dead_row_that_purge_passed_by_is_gone_after_rollback() {
    for len in [10, 20_000] {
        let mut bed = Bed::new(1, 1);
        let tree = bed.trees[0].0;
        bed.put(0, b"k", &vec![1; len]);
        // Keeps the horizon where it is, yet has no snapshot.
        let mut idle = bed.txns.begin();
        idle.write(tree, b"other", Op::Insert(b"")).unwrap();
        let mut deleter = bed.txns.begin();
        deleter.write(tree, b"k", Op::Delete).unwrap();
        deleter.commit(Durability::Sync).unwrap();
        bed.trees[0].1.clear();
        let mut writer = bed.txns.begin();
        writer.write(tree, b"k", Op::Insert(b"again")).unwrap();
        bed.purge_all();
        writer.rollback().unwrap();
        idle.rollback().unwrap();
        bed.purge_all();
        let summary = bed.assert_clean("after purge");
        assert_eq!((summary.dead_entries, summary.overflow_pages), (0, 0), "length {len}");
    }
}

/// One thread's share of the work: rows whose keys begin with its number.
/// A tree created by a transaction whose history is kept; the next transaction has the same lane.
fn with_history(seed: u64) -> Bed {
    let mut bed = Bed::new(seed, 1);
    bed.put(0, b"kept", b"1");
    let mut txn = bed.txns.begin();
    txn.write(bed.trees[0].0, b"kept", Op::Upsert(b"2")).unwrap();
    let created = txn.create_tree().unwrap();
    txn.commit(Durability::Sync).unwrap();
    bed.trees[0].1.insert(b"kept".to_vec(), b"2".to_vec());
    bed.trees.push((created, Rows::new()));
    bed.put(1, b"row", b"of the new tree");
    bed
}

/// A transaction that has filled some leaves.
fn with_loser(bed: &Bed) -> Txn {
    let mut loser = bed.txns.begin();
    for n in 0..100u8 {
        loser.write(bed.trees[0].0, &[n], Op::Insert(&[n; 1000])).unwrap();
    }
    bed.storage().flush_all(crate::storage::Reason::Checkpoint, &mut |_| {}).unwrap();
    loser
}

#[test]
fn a_rollback_that_fails_once_takes_back_nothing_of_others() {
    for nth in 0.. {
        let bed = with_history(5);
        let loser = with_loser(&bed);
        bed.storage().evict_step(bed.frames).unwrap();
        let at = bed.disk.operations() + nth;
        bed.disk.inject(SimFault::Io { on: Some(OpKind::Read), at, times: Times::Once });
        // A failure is told; what is left is taken back all the same.
        let _ = loser.rollback();
        let came_so_far = bed.disk.operations() > at;
        bed.disk.clear_faults();
        bed.storage().check().unwrap();
        bed.assert_clean(&format!("failed at read {nth}"));
        bed.assert_rows(&format!("failed at read {nth}"));
        if !came_so_far {
            assert!(nth > 5, "the pages have to be read");
            return;
        }
    }
}

#[test]
fn a_rollback_at_the_start_that_fails_takes_back_nothing_of_others() {
    let mut failed = 0;
    for nth in 0.. {
        let bed = with_history(5);
        with_loser(&bed).leave();
        let disk = bed.disk.crash(nth);
        let on: Arc<dyn weir_os::Disk> = Arc::new(disk.clone());
        let (storage, _) = Storage::open(on, &options(bed.frames), &mut |_| {}).unwrap();
        let storage = Arc::new(storage);
        let at = disk.operations() + nth;
        disk.inject(SimFault::Io { on: Some(OpKind::Read), at, times: Times::Once });
        let recovered = Transactions::recover(storage.clone(), &mut |_| {});
        if disk.operations() <= at {
            break;
        }
        failed += u32::from(recovered.is_err());
        drop(recovered);
        // The log is written by a thread of its own.
        let _ = storage.redo.write_step(true);
        drop(storage);
        let bed = Bed { disk, ..bed }.crashed(nth);
        bed.assert_clean(&format!("failed at read {nth}"));
        bed.assert_rows(&format!("failed at read {nth}"));
    }
    assert!(failed > 2, "{failed} starts failed");
}

fn thread_work(txns: &Arc<Transactions>, tree: Tree, number: u8, turns: usize) -> Rows {
    let mut rng = Rng::with_seed(u64::from(number));
    let mut rows = Rows::new();
    for turn in 0..turns {
        let mut txn = txns.begin();
        let mut after = rows.clone();
        for _ in 0..rng.u32(1..12) {
            let mut key = random_key(&mut rng);
            key.insert(0, number);
            let value = random_value(&mut rng);
            if rng.u32(..3) == 0 {
                txn.write(tree, &key, Op::Delete).unwrap();
                after.remove(&key);
            } else {
                txn.write(tree, &key, Op::Upsert(&value)).unwrap();
                after.insert(key, value);
            }
        }
        match rng.u32(..5) {
            0 => txn.rollback().unwrap(),
            _ => {
                txn.commit(Durability::Relaxed).unwrap();
                rows = after;
            }
        }
        if turn % 8 == 0 {
            txns.purge_up_to(30).unwrap();
        }
    }
    rows
}

#[test]
fn nothing_is_found_after_work_of_many_threads() {
    for seed in 0..3 {
        let mut bed = Bed::with_frames(seed, 1, 150);
        let open = StorageOptions { inline: false, ..options(150) };
        let disk = bed.disk.process_kill();
        let on: Arc<dyn weir_os::Disk> = Arc::new(disk.clone());
        let storage = Arc::new(Storage::open(on, &open, &mut |_| {}).unwrap().0);
        let (txns, _) = Transactions::recover(storage.clone(), &mut |_| {}).unwrap();
        let background = crate::storage::Background::start(&storage).unwrap();
        let tree = bed.trees[0].0;
        bed.trees[0].1 = std::thread::scope(|scope| {
            let work = |n| {
                let txns = &txns;
                scope.spawn(move || thread_work(txns, tree, n, 300))
            };
            let threads: Vec<_> = (0..4).map(work).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        bed = Bed { disk, txns, ..bed };
        bed.assert_rows("after the threads");
        drop(background);
        storage.check().unwrap();
        storage.redo.write_step(true).unwrap();
        drop(storage);
        bed = bed.crashed(seed);
        bed.assert_clean("after a crash");
        bed.assert_rows("after a crash");
        bed.purge_all();
        assert_eq!(bed.assert_clean("after purge").dead_entries, 0);
    }
}

/// The same slots in a page that may have other fences, children or tree.
fn rebuilt(page: &Page, tree: TreeId, lower: &[u8], upper: Option<&[u8]>) -> Box<Page> {
    let mut b = Builder::new(page.id(), tree, page.level(), lower, upper);
    node::copy_slots(page, 0..node::count(page), &mut b);
    b.finish()
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

#[test]
fn a_wrong_fence_is_found() {
    let (bed, _, children) = two_levels(1);
    let leaf = bed.page(children[2]);
    let mut upper = node::key(&leaf, node::count(&leaf) - 1);
    upper.truncate(6);
    upper.push(b'5');
    bed.set_page(&rebuilt(&leaf, node::tree(&leaf), node::lower(&leaf), Some(&upper)));
    bed.assert_found(&[(children[2], "holds [")]);
}

#[test]
fn a_page_of_another_tree_is_found() {
    let (bed, _, children) = two_levels(1);
    let leaf = bed.page(children[2]);
    bed.set_page(&rebuilt(&leaf, TreeId(99), node::lower(&leaf), node::upper(&leaf)));
    bed.assert_found(&[(children[2], "says that it is of tree 99")]);
}

#[test]
fn swapped_children_are_found() {
    let (bed, root, mut children) = two_levels(1);
    children.swap(1, 2);
    bed.set_page(&with_children(&root, &children));
    bed.assert_found(&[(children[1], "holds ["), (children[2], "holds [")]);
}

#[test]
fn a_child_with_two_parents_is_found_and_the_one_it_displaced() {
    let (bed, root, children) = two_levels(1);
    let mut changed = children.clone();
    changed[2] = children[1];
    bed.set_page(&with_children(&root, &changed));
    bed.assert_found(&[
        (children[1], "is referred to twice"),
        (children[2], "nothing refers to it"),
    ]);
}

#[test]
fn a_lost_page_is_found() {
    let bed = Bed::new(1, 1);
    let mut mtr = bed.storage().mtr(Need::pages(1024, 1)).unwrap();
    let lost = Tree::create(&mut mtr).root();
    mtr.commit();
    bed.assert_found(&[(lost, "nothing refers to it")]);
}

#[test]
fn a_malformed_page_hides_what_is_below_it() {
    let (bed, root, children) = two_levels(1);
    let mut broken = Page::boxed();
    broken.0 = root.0;
    // The number of garbage bytes.
    broken.set_u16(42, 9000);
    bed.set_page(&broken);
    bed.assert_found(&[(root.id(), "is malformed"), (children[0], "were not reached")]);
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

const CHAIN: Flags = Flags { deleted: false, overflow: true };

#[test]
fn a_chain_of_two_entries_is_found() {
    let (bed, reference) = with_chain();
    set_entry(&bed, b"b", Entry { flags: CHAIN, version: None, value: &reference.to_bytes() });
    bed.assert_found(&[(reference.first, "is referred to twice")]);
}

#[test]
fn a_chain_of_another_length_is_found() {
    let (bed, reference) = with_chain();
    let longer = Reference { len: 40_001, ..reference };
    set_entry(&bed, b"a", Entry { flags: CHAIN, version: None, value: &longer.to_bytes() });
    bed.assert_found(&[(reference.first, "holds 40000 bytes, not 40001")]);
}

#[test]
fn a_reference_to_a_free_page_is_found() {
    let (bed, _) = with_chain();
    let nowhere = Reference { first: PageId(77_777), len: 5 };
    set_entry(&bed, b"b", Entry { flags: CHAIN, version: None, value: &nowhere.to_bytes() });
    bed.assert_found(&[(nowhere.first, "not allocated")]);
}

#[test]
fn a_malformed_reference_is_found() {
    let (bed, _) = with_chain();
    let leaf = bed.leaf_of(0, b"b");
    set_entry(&bed, b"b", Entry { flags: CHAIN, version: None, value: b"short" });
    bed.assert_found(&[(leaf, "malformed reference")]);
}

#[test]
fn a_dead_entry_that_purge_will_not_find_is_found() {
    let mut bed = Bed::new(1, 1);
    bed.put(0, b"a", b"value");
    let leaf = bed.leaf_of(0, b"a");
    let flags = Flags { deleted: true, overflow: false };
    set_entry(&bed, b"x", Entry { flags, version: None, value: b"" });
    bed.assert_found(&[(leaf, "is dead, but has no version")]);

    let (head, _) = lanes::get(&bed.page(LANE_DIRECTORY), 0);
    let undo = UndoPtr { page: head, offset: 8000 };
    let version = Some(Version { txn: TxnId(1), undo });
    set_entry(&bed, b"x", Entry { flags, version, value: b"" });
    bed.assert_found(&[(leaf, "holds no undo record")]);
}

#[test]
fn a_version_from_the_future_is_found() {
    let bed = Bed::new(1, 1);
    let leaf = bed.leaf_of(0, b"x");
    let version = Some(Version { txn: TxnId(1 << 40), undo: UndoPtr::default() });
    set_entry(&bed, b"x", Entry { flags: Flags::default(), version, value: b"" });
    bed.assert_found(&[(leaf, "was written by transaction")]);
}

/// A database whose first lane has several pages, and those.
fn with_lane() -> (Bed, Vec<PageId>) {
    let mut bed = Bed::new(1, 1);
    bed.fill(40);
    let mut txn = bed.txns.begin();
    for key in bed.trees[0].1.keys() {
        txn.write(bed.trees[0].0, key, Op::Update(b"other")).unwrap();
    }
    txn.commit(Durability::Sync).unwrap();
    bed.trees[0].1.values_mut().for_each(|value| *value = b"other".to_vec());
    bed.assert_clean("before damage");
    let (head, tail) = lanes::get(&bed.page(LANE_DIRECTORY), 0);
    let mut pages = vec![head];
    while pages[pages.len() - 1] != tail {
        pages.push(weir_page::undo::next(&bed.page(pages[pages.len() - 1])));
    }
    assert!(pages.len() > 3);
    (bed, pages)
}

#[test]
fn a_cut_lane_is_found() {
    let (bed, pages) = with_lane();
    bed.apply(&Redo::UndoLink { page: pages[1], next: PageId::NONE });
    bed.assert_found(&[(pages[1], "links to no page"), (pages[2], "were not reached")]);
}

#[test]
fn a_lane_that_goes_round_is_found() {
    let (bed, pages) = with_lane();
    bed.apply(&Redo::UndoLink { page: pages[1], next: pages[0] });
    bed.assert_found(&[(pages[0], "is referred to twice"), (pages[2], "were not reached")]);
}

#[test]
fn a_wrong_link_back_is_found() {
    let (bed, pages) = with_lane();
    let mut page = bed.page(pages[2]);
    page.set_u32(40, pages[0].0);
    bed.set_page(&page);
    bed.assert_found(&[(pages[2], "links back to page")]);
}

#[test]
fn a_lane_that_goes_on_behind_its_tail_is_found() {
    let (bed, pages) = with_lane();
    bed.apply(&Redo::UndoLink { page: pages[pages.len() - 1], next: pages[0] });
    bed.assert_found(&[(pages[pages.len() - 1], "ends the lane, but links to")]);
}

#[test]
fn a_page_of_two_lanes_is_found() {
    let (bed, pages) = with_lane();
    let (head, tail) = (pages[0], pages[pages.len() - 1]);
    bed.apply(&Redo::LaneSet { page: LANE_DIRECTORY, lane: 3, head, tail });
    bed.assert_found(&[(head, "is referred to twice")]);
}

#[test]
fn a_running_transaction_is_found() {
    let (bed, pages) = with_lane();
    let tail = bed.page(pages[pages.len() - 1]);
    let (used, last) = (weir_page::undo::used(&tail) as u16, weir_page::undo::last(&tail));
    let state = weir_page::undo::State::Active;
    bed.apply(&Redo::UndoTail { page: tail.id(), used, last, txn: TxnId(900), state });
    bed.assert_found(&[(tail.id(), "transaction 900 is still running")]);
}

#[test]
fn a_rotten_image_is_found_though_the_page_is_in_memory() {
    let (bed, _, children) = two_levels(1);
    bed.storage().flush_all(crate::storage::Reason::Checkpoint, &mut |_| {}).unwrap();
    bed.assert_clean("after writing");
    let extent = bed.storage().store.map().slot(children[0]).extent().unwrap();
    bed.disk.rot("data", extent.offset() + 200, 3).unwrap();
    let (found, _) = bed.findings();
    let text = found.iter().map(Finding::to_string).collect::<String>();
    assert!(found.len() == 1 && text.contains(&format!("(page {})", children[0])), "{text}");
    check_quickly(bed.storage(), &bed.roots(), &mut |f| panic!("{f}")).unwrap();
}

#[test]
fn a_purge_cut_short_is_no_finding() {
    let (mut bed, reference) = with_chain();
    let mut txn = bed.txns.begin();
    txn.write(bed.trees[0].0, b"a", Op::Delete).unwrap();
    txn.commit(Durability::Sync).unwrap();
    bed.trees[0].1.clear();
    assert_eq!(bed.assert_clean("deleted").overflow_pages, 3);
    crate::tree::overflow::free_rest(bed.storage(), reference.first).unwrap();
    assert_eq!(bed.assert_clean("half freed").overflow_pages, 1);
    bed.purge_all();
    assert_eq!(bed.assert_clean("purged").overflow_pages, 0);
}

#[test]
fn a_drop_cut_short_is_no_finding() {
    let (mut bed, _, _) = two_levels(1);
    bed.put(0, b"long", &[7; 50_000]);
    let (tree, _) = bed.trees.remove(0);
    let mut txn = bed.txns.begin();
    txn.drop_tree(tree).unwrap();
    txn.commit(Durability::Sync).unwrap();
    let mut before = u64::MAX;
    for turn in 0..3 {
        let summary = bed.findings();
        assert_eq!(summary.0, []);
        assert!(turn == 0 || summary.1.leaf_pages < before);
        before = summary.1.leaf_pages;
        let stop = || Restart::Error(Fault::page(tree.root(), "stop"));
        tree.destroy(bed.storage(), &mut |_| Err(stop())).unwrap_err();
        if turn == 1 {
            break;
        }
    }
    bed.purge_all();
    let (found, summary) = bed.findings();
    assert_eq!((found, summary.trees, summary.leaf_pages), (vec![], 0, 0));
}

#[test]
fn a_dropped_tree_that_is_listed_is_found() {
    let bed = Bed::new(1, 1);
    let mut txn = bed.txns.begin();
    txn.drop_tree(bed.trees[0].0).unwrap();
    txn.commit(Durability::Sync).unwrap();
    let (head, _) = lanes::get(&bed.page(LANE_DIRECTORY), 0);
    bed.assert_found(&[(head, "is dropped, but it is listed as t0")]);
}

#[test]
fn recovery_of_more_pages_than_frames_needs_no_background_threads() {
    let mut bed = Bed::with_frames(5, 1, 400);
    bed.fill(1500);
    let disk = bed.disk.crash(1);
    let (done, opened) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let options = StorageOptions { inline: false, ..options(64) };
        let opened = Storage::open(Arc::new(disk), &options, &mut |_| {}).is_ok();
        done.send(opened).unwrap();
    });
    assert_eq!(opened.recv_timeout(Duration::from_secs(60)), Ok(true));
}

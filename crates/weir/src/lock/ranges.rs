//! Range locks: what serializable transactions have read, and long locking scans, absent keys
//! included.
//!
//! # Protocol for callers
//! - A reader registers the part of a tree that it has read under the latch of the leaf that it
//!   read it from. It reads past no entry of a running transaction: it waits for that one's end
//!   first.
//! - A reader whose range stands for locks of the rows in it asks for others' row locks first,
//!   under the same latch ([`super::LockTable::conflicts`]); its range ends before the first of
//!   them, and it goes on once it has that row's lock.
//! - Who locks a row by reading it asks [`RangeLocks::in_the_way`] under the latch of the leaf,
//!   having entered its lock; if the row lies in a range that conflicts, it gives up the lock and
//!   waits for that one's end.
//! - A writer asks [`RangeLocks::holder`] under the latch of the leaf that it is about to change;
//!   if the key lies in somebody's range it lets go of the latch and waits for that one's end.
//!
//! Whichever of the two latches the leaf first is seen by the other, so nothing appears in, or goes
//! from, a range that was read before its reader has ended. Waits are those of the lock table, for
//! transactions instead of rows, so deadlocks are found as they are among rows.
//!
//! A writer that waits says so ([`RangeLocks::intend`]): who comes later to read there waits for
//! it, so that readers who come and go don't keep it waiting for ever.
//!
//! Ranges of one transaction in one tree are kept merged. Past [`MAX_RANGES`] they become one range
//! from the first to the last: that locks more than was read, never less.

use super::{Extent, LockInfo, Mode};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_page::types::{TreeId, TxnId};

/// Ranges of one transaction in one tree, of one mode. A few megabytes of them: one range instead
/// locks out everybody else, and who looks up many rows by an index has one for each.
const MAX_RANGES: usize = 1 << 14;
const SHARDS: usize = 16;

/// Disjoint, not adjoining ranges `[low, high)` by `low`; no `high`: to the end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Ranges(BTreeMap<Vec<u8>, Option<Vec<u8>>>);

impl Ranges {
    /// The last range that begins before this.
    fn last(&self, before: Bound<&[u8]>) -> Option<(&Vec<u8>, &Option<Vec<u8>>)> {
        self.0.range::<[u8], _>((Bound::Unbounded, before)).next_back()
    }

    fn contain(&self, key: &[u8]) -> bool {
        self.last(Bound::Included(key))
            .is_some_and(|(_, high)| high.as_deref().is_none_or(|high| key < high))
    }

    fn overlap(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        self.last(high.map_or(Bound::Unbounded, Bound::Excluded))
            .is_some_and(|(_, end)| end.as_deref().is_none_or(|end| end > low))
    }

    fn add(&mut self, low: &[u8], high: Option<&[u8]>) {
        let (mut low, mut high) = (low.to_vec(), high.map(<[u8]>::to_vec));
        // From the last range that begins at or before `high`, back to the first that it joins.
        loop {
            let before = high.as_deref().map_or(Bound::Unbounded, Bound::Included);
            let Some((at, end)) = self.last(before) else { break };
            if end.as_deref().is_some_and(|end| end < &low[..]) {
                break;
            }
            let (at, end) = (at.clone(), end.clone());
            self.0.remove(&at);
            low = low.min(at);
            high = high.zip(end).map(|(x, y)| x.max(y));
        }
        self.0.insert(low, high);
        if self.0.len() > MAX_RANGES {
            let first = self.0.keys().next().cloned().expect("there are many");
            let last = self.0.values().next_back().cloned().expect("there are many");
            self.0 = BTreeMap::from([(first, last)]);
        }
    }
}

/// How a range is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeMode {
    /// Against whom.
    pub mode: Mode,
    /// Whether it stands for locks of the rows in it, too.
    pub for_rows: bool,
}

/// Ranges of both modes.
#[derive(Debug, Default)]
struct OfModes {
    shared: Ranges,
    exclusive: Ranges,
}

impl OfModes {
    fn contain(&self, key: &[u8]) -> bool {
        self.shared.contain(key) || self.exclusive.contain(key)
    }

    /// Whether one that overlaps keeps others from locking in this mode.
    fn conflict(&self, low: &[u8], high: Option<&[u8]>, mode: Mode) -> bool {
        self.exclusive.overlap(low, high)
            || (mode == Mode::Exclusive && self.shared.overlap(low, high))
    }
}

/// What a transaction has locked of a tree.
#[derive(Debug, Default)]
struct Held {
    /// Ranges alone; their rows are locked one by one, if at all.
    keys: OfModes,
    /// Ranges that stand for locks of their rows.
    rows: OfModes,
}

/// A write, or a read under lock, that waits because its key lies in somebody's range.
#[derive(Debug)]
struct Intent {
    key: Vec<u8>,
    /// Whose end it waits for.
    waits_for: TxnId,
}

#[derive(Debug, Default)]
struct OfTree {
    held: HashMap<TxnId, Held>,
    /// Those who wait, or have just waited; one entry for each.
    intents: HashMap<TxnId, Intent>,
}

type Trees = HashMap<TreeId, OfTree>;

/// See the module.
#[derive(Default)]
pub struct RangeLocks {
    /// Transactions that hold any: incremented before their first range is entered.
    holders: AtomicUsize,
    shards: [Mutex<Trees>; SHARDS],
    /// Trees in which a transaction holds ranges.
    lists: Mutex<HashMap<TxnId, Vec<TreeId>>>,
}

impl RangeLocks {
    fn shard(&self, tree: TreeId) -> &Mutex<Trees> {
        &self.shards[tree.0 as usize % SHARDS]
    }

    /// Another transaction in whose range the key lies. Never waits; meant to be called under the
    /// leaf's latch.
    #[inline]
    pub fn holder(&self, txn: TxnId, tree: TreeId, key: &[u8]) -> Option<TxnId> {
        // Relaxed: the leaf's latch orders a range that matters before this load.
        if self.holders.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let shard = self.shard(tree).lock();
        let others = shard.get(&tree)?.held.iter().filter(|(holder, _)| **holder != txn);
        let mut holders =
            others.filter(|(_, held)| held.keys.contain(key) || held.rows.contain(key));
        holders.next().map(|(holder, _)| *holder)
    }

    /// Whether the key lies in another transaction's exclusive range, of keys or of rows, so that
    /// others can't even read it under lock. Never waits; meant to be called under the leaf's
    /// latch.
    #[inline]
    pub fn is_exclusive_to_another(&self, txn: TxnId, tree: TreeId, key: &[u8]) -> bool {
        // Relaxed: as in `holder`.
        if self.holders.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let shard = self.shard(tree).lock();
        let Some(of) = shard.get(&tree) else { return false };
        let mut others = of.held.iter().filter(|(holder, _)| **holder != txn);
        others.any(|(_, of)| of.keys.exclusive.contain(key) || of.rows.exclusive.contain(key))
    }

    /// Another transaction whose range keeps this one from locking the key. Never waits; meant to
    /// be called under the leaf's latch, after the key's lock was entered.
    #[inline]
    pub fn in_the_way(&self, txn: TxnId, tree: TreeId, key: &[u8], mode: Mode) -> Option<TxnId> {
        // Relaxed: as in `holder`.
        if self.holders.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let shard = self.shard(tree).lock();
        let mut others = shard.get(&tree)?.held.iter().filter(|(holder, _)| **holder != txn);
        let conflicts = |rows: &OfModes| {
            rows.exclusive.contain(key) || (mode == Mode::Exclusive && rows.shared.contain(key))
        };
        others.find(|(_, held)| conflicts(&held.rows)).map(|(holder, _)| *holder)
    }

    /// Locks `[low, high)`. Never waits; meant to be called under the leaf's latch.
    ///
    /// # Errors
    /// Another transaction that holds a conflicting range, or that waits to write there: nothing
    /// was locked.
    pub fn lock(
        &self,
        txn: TxnId,
        tree: TreeId,
        (low, high): (&[u8], Option<&[u8]>),
        RangeMode { mode, for_rows }: RangeMode,
    ) -> Result<(), TxnId> {
        if high.is_some_and(|high| high <= low) {
            return Ok(());
        }
        self.enlist(txn, tree);
        let mut shard = self.shard(tree).lock();
        let OfTree { held, intents } = shard.entry(tree).or_default();
        let inside = |key: &[u8]| key >= low && high.is_none_or(|high| key < high);
        let writer = intents.iter().find(|(writer, intent)| {
            **writer != txn && intent.waits_for != txn && inside(&intent.key)
        });
        if let Some((writer, _)) = writer {
            return Err(*writer);
        }
        let conflicts =
            |of: &Held| of.keys.conflict(low, high, mode) || of.rows.conflict(low, high, mode);
        let other = held.iter().find(|(holder, of)| **holder != txn && conflicts(of));
        if let Some((other, _)) = other {
            return Err(*other);
        }
        let own = held.entry(txn).or_default();
        let own = if for_rows { &mut own.rows } else { &mut own.keys };
        match mode {
            Mode::Shared => own.shared.add(low, high),
            Mode::Exclusive => own.exclusive.add(low, high),
        }
        Ok(())
    }

    /// A transaction is about to wait for `holder` to write `key`, or to lock it, which lies in a
    /// range of that one.
    pub fn intend(&self, txn: TxnId, tree: TreeId, key: &[u8], holder: TxnId) {
        self.enlist(txn, tree);
        let intent = Intent { key: key.to_vec(), waits_for: holder };
        self.shard(tree).lock().entry(tree).or_default().intents.insert(txn, intent);
    }

    /// The transaction has written or locked it, or doesn't after all: who was told to wait for it
    /// mustn't, as it may only read.
    pub fn give_up(&self, txn: TxnId, tree: TreeId) {
        if let Some(of) = self.shard(tree).lock().get_mut(&tree) {
            of.intents.remove(&txn);
        }
    }

    fn enlist(&self, txn: TxnId, tree: TreeId) {
        let mut lists = self.lists.lock();
        let list = lists.entry(txn).or_insert_with(|| {
            self.holders.fetch_add(1, Ordering::Relaxed);
            Vec::new()
        });
        if !list.contains(&tree) {
            list.push(tree);
        }
    }

    /// Gives up all ranges of a transaction that has ended.
    pub fn release_all(&self, txn: TxnId) {
        if self.holders.load(Ordering::Relaxed) == 0 {
            return;
        }
        let Some(trees) = self.lists.lock().remove(&txn) else { return };
        for tree in trees {
            let mut shard = self.shard(tree).lock();
            let Some(of) = shard.get_mut(&tree) else { continue };
            of.held.remove(&txn);
            of.intents.remove(&txn);
            if of.held.is_empty() && of.intents.is_empty() {
                shard.remove(&tree);
            }
        }
        self.holders.fetch_sub(1, Ordering::Relaxed);
    }

    /// All ranges.
    pub(super) fn describe(&self, infos: &mut Vec<LockInfo>) {
        for shard in &self.shards {
            for (&tree, of_tree) in shard.lock().iter() {
                let held = of_tree.held.iter();
                for (&txn, of) in held.flat_map(|(txn, of)| [(txn, &of.keys), (txn, &of.rows)]) {
                    let shared = of.shared.0.iter().map(|range| (range, Mode::Shared));
                    let exclusive = of.exclusive.0.iter().map(|range| (range, Mode::Exclusive));
                    infos.extend(shared.chain(exclusive).map(|((low, high), mode)| LockInfo {
                        tree,
                        key: low.clone(),
                        extent: Extent::To(high.clone()),
                        txn,
                        mode,
                        wait: None,
                    }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    const TREE: TreeId = TreeId(9);

    fn keys(mode: Mode) -> RangeMode {
        RangeMode { mode, for_rows: false }
    }

    #[test]
    fn ranges_are_merged_and_agree_with_a_set_of_keys() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        for _ in 0..200 {
            let (mut ranges, mut keys) = (Ranges::default(), [false; 40]);
            for _ in 0..20 {
                let low = rng.u8(..39);
                let high = (rng.u8(..8) > 0).then(|| rng.u8(low + 1..40));
                let end = high.unwrap_or(40);
                let overlaps = keys[low as usize..end as usize].iter().any(|k| *k);
                let high = high.map(|high| vec![high]);
                assert_eq!(ranges.overlap(&[low], high.as_deref()), overlaps);
                ranges.add(&[low], high.as_deref());
                keys[low as usize..end as usize].fill(true);
                for (n, covered) in keys.iter().enumerate() {
                    assert_eq!(ranges.contain(&[n as u8]), *covered, "{n}: {ranges:?}");
                }
                let all: Vec<_> = ranges.0.iter().collect();
                assert!(all.windows(2).all(|w| w[0].1.as_ref().is_some_and(|end| end < w[1].0)));
            }
        }
    }

    #[test]
    fn too_many_ranges_become_one() {
        let mut ranges = Ranges::default();
        for n in 0..=MAX_RANGES as u16 {
            assert!(!ranges.contain(&1u16.to_be_bytes()), "there is a range for each of {n}");
            ranges.add(&(2 * n).to_be_bytes(), Some(&(2 * n + 1).to_be_bytes()));
        }
        assert_eq!(ranges.0.len(), 1);
        assert!(ranges.contain(&1u16.to_be_bytes()));
        assert!(!ranges.contain(&(2 * MAX_RANGES as u16 + 1).to_be_bytes()));
    }

    #[test]
    fn later_readers_wait_for_a_writer_that_waits() {
        let (table, reader, writer, later) = (RangeLocks::default(), TxnId(1), TxnId(2), TxnId(3));
        let lock = |txn, low: &[u8]| table.lock(txn, TREE, (low, None), keys(Mode::Shared));
        lock(reader, b"c").unwrap();
        table.intend(writer, TREE, b"d", reader);
        assert_eq!(lock(later, b"c"), Err(writer));
        assert_eq!(lock(later, b"e"), Ok(()));
        // Those whom it waits for go on.
        assert_eq!(lock(reader, b"a"), Ok(()));
        assert_eq!(lock(writer, b"a"), Ok(()));
        table.give_up(writer, TREE);
        assert_eq!(lock(later, b"c"), Ok(()));
        [reader, writer, later].iter().for_each(|txn| table.release_all(*txn));
        assert!(table.shards.iter().all(|shard| shard.lock().is_empty()));
    }

    #[test]
    fn shared_ranges_keep_out_writers_and_exclusive_ones_readers_too() {
        let (table, one, two) = (RangeLocks::default(), TxnId(1), TxnId(2));
        let (all, part) = ((&b""[..], None), (&b"b"[..], Some(&b"c"[..])));
        assert_eq!(table.lock(one, TREE, part, keys(Mode::Shared)), Ok(()));
        assert_eq!(table.lock(two, TREE, all, keys(Mode::Shared)), Ok(()));
        assert_eq!(table.holder(one, TREE, b"a"), Some(two));
        assert_eq!(table.holder(two, TREE, b"a"), None);
        assert_eq!(table.holder(two, TREE, b"bz"), Some(one));
        assert_eq!(table.holder(two, TreeId(8), b"bz"), None);
        assert_eq!(table.lock(two, TREE, all, keys(Mode::Exclusive)), Err(one));
        table.release_all(one);
        assert_eq!(table.lock(two, TREE, all, keys(Mode::Exclusive)), Ok(()));
        assert_eq!(table.lock(one, TREE, part, keys(Mode::Shared)), Err(two));
        table.release_all(two);
        table.release_all(one);
        assert_eq!(table.holders.load(Ordering::Relaxed), 0);
        assert!(table.shards.iter().all(|shard| shard.lock().is_empty()));
    }
    #[test]
    fn a_range_for_rows_keeps_out_those_who_lock_rows() {
        let (table, one, two) = (RangeLocks::default(), TxnId(1), TxnId(2));
        let part = (&b"b"[..], Some(&b"d"[..]));
        table.lock(one, TREE, part, keys(Mode::Exclusive)).unwrap();
        assert_eq!(table.in_the_way(two, TREE, b"c", Mode::Exclusive), None);
        table.lock(one, TREE, part, RangeMode { mode: Mode::Shared, for_rows: true }).unwrap();
        assert_eq!(table.in_the_way(two, TREE, b"c", Mode::Shared), None);
        assert_eq!(table.in_the_way(two, TREE, b"c", Mode::Exclusive), Some(one));
        assert_eq!(table.in_the_way(two, TREE, b"d", Mode::Exclusive), None);
        assert_eq!(table.in_the_way(one, TREE, b"c", Mode::Exclusive), None);
        assert_eq!(table.lock(two, TREE, part, keys(Mode::Shared)), Err(one));
        table.release_all(one);
        assert_eq!(table.in_the_way(two, TREE, b"c", Mode::Exclusive), None);
    }
}

//! Dead ranges: parts of trees that scans pass over, because nobody who comes later sees anything
//! there.
//!
//! Deleted entries stay for as long as a snapshot needs them: a dump of an hour keeps an hour of
//! them, and who takes the first row of a queue would go through all of them each time. A scan that
//! finds many dead entries in a row, and nothing else, notes the range, and from which commit on it
//! is dead; later scans go on behind it.
//!
//! # Protocol for callers
//! - A scan notes a range ([`DeadRanges::note`]) under the latch of the leaf in which it lies.
//! - Whoever makes a key alive takes it out of its range first ([`DeadRanges::revive`]), under the
//!   latch of the key's leaf, and before asking for others' locks. So a range is never noted
//!   between that and the change; and who passes over a range and locks it in the same moment
//!   ([`DeadRanges::pass`]) is seen by whoever writes there later.
//!
//! Only keys are kept, no pages: splits, merges and purge change nothing about what is dead.
//!
//! Neighbours become one range once the older has come to no more leaves than the newer. So there
//! are as many as a binary number has digits, and a snapshot that is a little too old for the
//! newest of them still passes over most.

use super::range::following;
use super::{Direction, Range, State, Transactions};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_page::{Entry, TreeId};

const SHARDS: usize = 16;
/// Most ranges of a tree. Revived keys leave two of one; beyond that, all are forgotten.
const RANGES_MAX: usize = 1 << 10;

/// A range `[low, high)`, kept by `low`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Dead {
    /// No `high`: to the end.
    high: Option<Vec<u8>>,
    /// Timestamp of the last commit that deleted something there.
    since: u64,
    /// Leaves in which it was noted.
    leaves: u32,
}

impl Dead {
    fn reaches_beyond(&self, key: &[u8]) -> bool {
        self.high.as_deref().is_none_or(|high| key < high)
    }

    /// Of one range and a neighbour.
    fn take_in(&mut self, other: &Dead) {
        self.since = self.since.max(other.since);
        self.leaves = self.leaves.saturating_add(other.leaves);
    }
}

/// Those of one tree: disjoint.
#[derive(Debug, Default)]
struct OfTree(BTreeMap<Vec<u8>, Dead>);

impl OfTree {
    /// The last range that begins before this.
    fn last(&self, before: Bound<&[u8]>) -> Option<(&Vec<u8>, &Dead)> {
        self.0.range::<[u8], _>((Bound::Unbounded, before)).next_back()
    }

    /// The range in which a key lies.
    fn of(&self, key: &[u8]) -> Option<(&Vec<u8>, &Dead)> {
        self.last(Bound::Included(key)).filter(|(_, dead)| dead.reaches_beyond(key))
    }

    /// The range in which the keys just before `end` lie.
    fn before(&self, end: Option<&[u8]>) -> Option<(&Vec<u8>, &Dead)> {
        let last = self.last(end.map_or(Bound::Unbounded, Bound::Excluded))?;
        match end {
            Some(end) => last.1.high.as_deref().is_none_or(|high| high >= end),
            None => last.1.high.is_none(),
        }
        .then_some(last)
    }

    /// Adds what lies between its neighbours of a range, and makes one of it and them where that is
    /// due.
    fn add(&mut self, low: &[u8], high: Option<&[u8]>, since: u64) {
        let mut low = match self.last(Bound::Included(low)) {
            Some((_, before)) if before.reaches_beyond(low) => match &before.high {
                Some(end) => end.clone(),
                None => return,
            },
            _ => low.to_vec(),
        };
        let next = self.0.range::<[u8], _>((Bound::Included(&low[..]), Bound::Unbounded)).next();
        let next = next.map(|(next, _)| next.clone());
        let ends_first = |next: &Vec<u8>| high.is_none_or(|high| &next[..] < high);
        let high = next.filter(ends_first).or_else(|| high.map(<[u8]>::to_vec));
        if high.as_ref().is_some_and(|high| *high <= low) {
            return;
        }
        let mut dead = Dead { high, since, leaves: 1 };
        loop {
            let before = self.before(Some(&low)).filter(|(_, other)| other.leaves <= dead.leaves);
            if let Some(at) = before.map(|(at, _)| at.clone()) {
                let other = self.0.remove(&at).expect("it was there just now");
                dead.take_in(&other);
                low = at;
                continue;
            }
            let Some(end) = dead.high.clone() else { break };
            match self.0.get(&end).filter(|other| other.leaves <= dead.leaves) {
                None => break,
                Some(_) => {
                    let other = self.0.remove(&end).expect("it was there just now");
                    dead.take_in(&other);
                    dead.high = other.high;
                }
            }
        }
        self.0.insert(low, dead);
    }

    /// Takes a key out of the range in which it lies.
    fn remove(&mut self, key: &[u8]) {
        let Some(low) = self.of(key).map(|(low, _)| low.clone()) else { return };
        let whole = self.0.remove(&low).expect("it was there just now");
        let half = Dead { leaves: whole.leaves.div_ceil(2), ..whole };
        let behind = following(key);
        if half.reaches_beyond(&behind) {
            self.0.insert(behind, half.clone());
        }
        if low[..] < *key {
            self.0.insert(low, Dead { high: Some(key.to_vec()), ..half });
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct DeadRanges {
    /// Trees that have any: incremented before the first is noted.
    trees: AtomicUsize,
    shards: [Mutex<HashMap<TreeId, OfTree>>; SHARDS],
}

impl DeadRanges {
    fn shard(&self, tree: TreeId) -> &Mutex<HashMap<TreeId, OfTree>> {
        &self.shards[tree.0 as usize % SHARDS]
    }

    /// Whether no tree has any.
    #[inline]
    fn are_none(&self) -> bool {
        // Relaxed: the leaf's latch orders a range that matters before this load.
        self.trees.load(Ordering::Relaxed) == 0
    }

    /// All keys in `[low, high)` are dead for those who see commits up to `since`.
    pub fn note(&self, tree: TreeId, low: &[u8], high: Option<&[u8]>, since: u64) {
        let mut shard = self.shard(tree).lock();
        let of_tree = shard.entry(tree).or_insert_with(|| {
            self.trees.fetch_add(1, Ordering::Relaxed);
            OfTree::default()
        });
        of_tree.add(low, high, since);
        if of_tree.0.len() > RANGES_MAX {
            of_tree.0.clear();
        }
    }

    /// A key is about to be alive.
    #[inline]
    pub fn revive(&self, tree: TreeId, key: &[u8]) {
        if !self.are_none()
            && let Some(of_tree) = self.shard(tree).lock().get_mut(&tree)
        {
            of_tree.remove(key);
        }
    }

    /// Nothing is known of a tree: it is new, in the place of one that is gone.
    pub fn forget(&self, tree: TreeId) {
        if !self.are_none() && self.shard(tree).lock().remove(&tree).is_some() {
            self.trees.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Nothing of what was noted is worth knowing any more: it is purged.
    pub fn forget_all(&self) {
        if self.are_none() {
            return;
        }
        for shard in &self.shards {
            let trees = std::mem::take(&mut *shard.lock()).len();
            self.trees.fetch_sub(trees, Ordering::Relaxed);
        }
    }

    /// What is left of a range for who sees commits up to `snapshot`, if its beginning is dead; in
    /// the backward direction, its end. `lock` is given what is passed over, while nobody revives a
    /// key of it.
    ///
    /// # Errors
    /// Those of `lock`: nothing is passed over.
    #[inline]
    pub fn pass<E>(
        &self,
        tree: TreeId,
        range: &Range,
        direction: Direction,
        snapshot: u64,
        lock: impl FnOnce(&Range) -> Result<(), E>,
    ) -> Result<Option<Range>, E> {
        if self.are_none() {
            return Ok(None);
        }
        let shard = self.shard(tree).lock();
        let Some(of_tree) = shard.get(&tree) else { return Ok(None) };
        let Some((passed, left)) = of_tree.pass(range, direction, snapshot) else {
            return Ok(None);
        };
        lock(&passed)?;
        Ok(Some(left))
    }
}

impl Transactions {
    /// The commit from which on nobody sees an entry, if there is one.
    pub fn dead_since(&self, entry: &Entry<'_>) -> Option<u64> {
        let version = entry.version.filter(|version| version.txn >= self.horizon());
        let state = version.map_or(State::SeenFrom(0), |version| self.status.get(version.txn));
        match state {
            // What a tombstone hides comes to light where it is passed over.
            State::SeenFrom(at) if entry.flags.deleted && !entry.flags.hides => Some(at),
            _ => None,
        }
    }
}

impl OfTree {
    /// The dead part with which a range begins in a direction, and what is left of it.
    fn pass(&self, range: &Range, direction: Direction, snapshot: u64) -> Option<(Range, Range)> {
        let is_seen = |(_, dead): &(&Vec<u8>, &Dead)| dead.since <= snapshot;
        match direction {
            Direction::Forward => {
                let mut at = &range.low[..];
                while let Some((_, dead)) = self.of(at).filter(is_seen) {
                    match dead.high.as_deref() {
                        Some(end) if range.reaches_beyond(end) => at = end,
                        _ => return Some((range.clone(), Range::EMPTY)),
                    }
                }
                (*at > *range.low).then(|| range.split(at))
            }
            Direction::Backward => {
                let mut at = range.high.as_deref();
                while let Some((low, _)) = self.before(at).filter(is_seen) {
                    if *low <= range.low {
                        return Some((range.clone(), Range::EMPTY));
                    }
                    at = Some(low);
                }
                let at = at.filter(|at| range.reaches_beyond(at))?;
                let (left, passed) = range.split(at);
                Some((passed, left))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{commit, transactions, tree};
    use super::super::{Durability, Look, Op, Scan, Txn, View};
    use super::*;
    use crate::lock::{Mode, RangeMode};
    use crate::tree::Tree;
    use fastrand::Rng;
    use std::collections::BTreeSet;
    use std::sync::Arc;
    use weir_page::TxnId;

    const TREE: TreeId = TreeId(9);

    fn range(low: &[u8], high: Option<&[u8]>) -> Range {
        Range { low: low.to_vec(), high: high.map(<[u8]>::to_vec) }
    }

    /// Against each key's own timestamp.
    #[test]
    fn ranges_agree_with_a_timestamp_for_each_key() {
        const KEYS: u8 = 40;
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        for _ in 0..300 {
            let dead = DeadRanges::default();
            let mut since = [u64::MAX; KEYS as usize];
            for now in 0..60 {
                let low = rng.u8(..KEYS);
                if rng.u8(..3) == 0 {
                    dead.revive(TREE, &[low]);
                    since[usize::from(low)] = u64::MAX;
                } else {
                    let high = (rng.u8(..8) > 0).then(|| rng.u8(low + 1..=KEYS));
                    dead.note(TREE, &[low], high.map(|high| [high]).as_ref().map(|h| &h[..]), now);
                    // What a range of one commit says of a key stays true of later ones.
                    let end = high.unwrap_or(KEYS);
                    since[low.into()..end.into()].iter_mut().for_each(|at| *at = (*at).min(now));
                }
                let snapshot = rng.u64(..=now);
                let (low, high) = (rng.u8(..KEYS), rng.u8(1..=KEYS));
                let whole = range(&[low], (high < KEYS).then_some(&[high]));
                let is_dead = |key: u8| since[usize::from(key)] <= snapshot;
                for direction in [Direction::Forward, Direction::Backward] {
                    if low >= high {
                        continue;
                    }
                    let Ok::<_, ()>(left) =
                        dead.pass(TREE, &whole, direction, snapshot, |_| Ok(()))
                    else {
                        unreachable!("nothing is locked")
                    };
                    let left = left.unwrap_or_else(|| whole.clone());
                    let is_left =
                        |key: &u8| left.low[..] <= [*key][..] && left.reaches_beyond(&[*key]);
                    for key in (low..high).filter(|key| !is_left(key)) {
                        assert!(is_dead(key), "{key} is passed over in {whole:?}, {direction:?}");
                    }
                }
                let shard = dead.shard(TREE).lock();
                let all: Vec<_> = shard.get(&TREE).iter().flat_map(|of| of.0.iter()).collect();
                let is_disjoint = |two: &[(&Vec<u8>, &Dead)]| !two[0].1.reaches_beyond(two[1].0);
                assert!(all.windows(2).all(is_disjoint), "{all:?}");
                assert!(all.iter().all(|(low, dead)| dead.reaches_beyond(low)), "{all:?}");
            }
        }
    }

    #[test]
    fn ranges_of_a_queue_are_few_and_end_with_small_ones() {
        let dead = DeadRanges::default();
        let key = |n: u64| n.to_be_bytes();
        for n in 0..1000 {
            dead.note(TREE, &key(n), Some(&key(n + 1)), n);
        }
        assert!(dead.shard(TREE).lock()[&TREE].0.len() <= 10);
        for (snapshot, passed) in [(999, 1000), (998, 992), (0, 0)] {
            let all = range(&key(0), None);
            let Ok::<_, ()>(left) = dead.pass(TREE, &all, Direction::Forward, snapshot, |_| Ok(()))
            else {
                unreachable!("nothing is locked")
            };
            assert_eq!(left.map_or(key(0).to_vec(), |left| left.low), key(passed), "{snapshot}");
        }
        dead.forget(TREE);
        assert!(dead.are_none());
    }

    const ROWS: u32 = 4000;

    fn key(n: u32) -> [u8; 4] {
        n.to_be_bytes()
    }

    /// Keys that a scan gives, in ascending order.
    fn scanned(
        txns: &Arc<Transactions>,
        tree: Tree,
        direction: Direction,
        look: Look,
    ) -> Vec<Vec<u8>> {
        let mut scan = Scan::new(txns.clone(), tree, Range::default(), direction, 10);
        let mut keys = Vec::new();
        while let Some(row) = scan.look(look).unwrap() {
            keys.push(row.key.to_vec());
        }
        if direction == Direction::Backward {
            keys.reverse();
        }
        keys
    }

    fn delete(txns: &Arc<Transactions>, tree: Tree, keys: impl Iterator<Item = u32>) {
        let mut txn = txns.begin();
        keys.for_each(|n| drop(txn.write(tree, &key(n), Op::Delete).unwrap()));
        txn.commit(Durability::Relaxed).unwrap();
    }

    fn filled(txns: &Arc<Transactions>) -> (Tree, Txn, View) {
        let rows = tree(txns);
        let mut txn = txns.begin();
        for n in 0..ROWS {
            txn.write(rows, &key(n), Op::Insert(&[7; 60])).unwrap();
        }
        txn.commit(Durability::Relaxed).unwrap();
        let mut reader = txns.begin();
        let view = reader.view();
        (rows, reader, view)
    }

    fn now(txns: &Transactions) -> Look {
        Look::At(View { own: TxnId(0), snapshot: txns.now() })
    }

    #[test]
    fn what_was_found_dead_is_passed_over_and_what_is_revived_is_seen() {
        let txns = transactions(400);
        let (rows, _reader, before) = filled(&txns);
        delete(&txns, rows, 0..ROWS - 1);
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(scanned(&txns, rows, direction, now(&txns)), [key(ROWS - 1)]);
        }
        let passed = |from: u32| {
            let range = range(&key(from), None);
            let passed = txns
                .dead
                .pass(rows.id, &range, Direction::Forward, txns.now(), |_| Ok::<_, ()>(()));
            passed.unwrap().is_some_and(|left| left.low[..] > key(ROWS - 200)[..])
        };
        assert!(passed(0) && passed(ROWS / 2));
        commit(&txns, rows, &key(ROWS / 3), Op::Insert(b"again"));
        assert!(!passed(0) && passed(ROWS / 2));
        for direction in [Direction::Forward, Direction::Backward] {
            let expected = [key(ROWS / 3), key(ROWS - 1)];
            assert_eq!(scanned(&txns, rows, direction, now(&txns)), expected);
            let old = scanned(&txns, rows, direction, Look::At(before));
            assert_eq!(old.len(), ROWS as usize, "an older snapshot sees all");
        }
    }

    #[test]
    fn entries_of_who_has_not_committed_are_not_noted() {
        let txns = transactions(400);
        let (rows, _reader, _) = filled(&txns);
        let mut txn = txns.begin();
        (0..ROWS).for_each(|n| drop(txn.write(rows, &key(n), Op::Delete).unwrap()));
        let own = Look::At(View { own: txn.id, snapshot: txns.now() });
        assert!(scanned(&txns, rows, Direction::Forward, own).is_empty());
        assert!(txns.dead.are_none());
        txn.rollback().unwrap();
        assert_eq!(scanned(&txns, rows, Direction::Forward, now(&txns)).len(), ROWS as usize);
    }

    /// Who passed over a dead range without a lock let others insert there.
    #[test]
    fn a_locking_scan_locks_what_it_passes_over() {
        let txns = transactions(400);
        let (rows, _reader, _) = filled(&txns);
        delete(&txns, rows, 0..ROWS - 1);
        let (mut locker, elsewhere) = (txns.begin(), tree(&txns));
        locker.write(elsewhere, b"row", Op::Insert(b"written")).unwrap();
        let own = locker.id();
        let ranges = Some(RangeMode { mode: Mode::Exclusive, for_rows: false });
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(scanned(&txns, rows, direction, now(&txns)), [key(ROWS - 1)]);
            let look = Look::Newest { own, skip: false, ranges };
            assert_eq!(scanned(&txns, rows, direction, look), [key(ROWS - 1)]);
            let mut other = txns.begin();
            other.lock_timeout = std::time::Duration::ZERO;
            other.write(rows, &key(5), Op::Insert(b"phantom")).unwrap_err();
            txns.locks.ranges.release_all(own);
        }
        locker.rollback().unwrap();
        commit(&txns, rows, &key(5), Op::Insert(b"again"));
        assert_eq!(scanned(&txns, rows, Direction::Forward, now(&txns)).len(), 2);
    }

    #[test]
    fn scans_beside_random_deletes_and_inserts_agree_with_a_model() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        let txns = transactions(600);
        let (rows, _reader, _) = filled(&txns);
        let mut alive: BTreeSet<u32> = (0..ROWS).collect();
        let mut snapshots: Vec<(Txn, View, Vec<u32>)> = Vec::new();
        for _ in 0..200 {
            let from = rng.u32(..ROWS);
            if rng.u8(..4) > 0 {
                let end = ROWS.min(from + rng.u32(1..800));
                let gone: Vec<u32> = alive.range(from..end).copied().collect();
                delete(&txns, rows, gone.iter().copied());
                alive.retain(|n| !(from..end).contains(n));
            } else {
                for n in (from..ROWS).step_by(rng.usize(1..300)).take(20) {
                    if alive.insert(n) {
                        commit(&txns, rows, &key(n), Op::Insert(b"again"));
                    }
                }
            }
            if rng.u8(..8) == 0 {
                let mut reader = txns.begin();
                let view = reader.view();
                snapshots.push((reader, view, alive.iter().copied().collect()));
            }
            let direction = [Direction::Forward, Direction::Backward][rng.usize(..2)];
            let keys = |alive: &[u32]| alive.iter().map(|n| key(*n).to_vec()).collect::<Vec<_>>();
            let current: Vec<u32> = alive.iter().copied().collect();
            assert_eq!(scanned(&txns, rows, direction, now(&txns)), keys(&current));
            if let Some(at) = snapshots.len().checked_sub(1) {
                let (_, view, then) = &snapshots[rng.usize(..=at)];
                assert_eq!(scanned(&txns, rows, direction, Look::At(*view)), keys(then));
            }
        }
        assert!(!txns.dead.are_none());
    }
}

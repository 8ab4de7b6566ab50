//! Ordered reads of a tree's range, forwards or backwards, a leaf at a time.
//!
//! A scan copies what its view sees of a leaf while it holds the latch, and goes on from the leaf's
//! fence: it keeps no page between calls, so it neither hinders nor is hindered by splits and merges.

use super::{Look, Transactions, View};
use crate::lock::RangeMode;
use crate::storage::{Fault, Restart, Stop, Storage};
use crate::tree::cursor::LeafRead;
use crate::tree::{Target, Tree};
use std::cmp::Ordering;
use std::sync::Arc;
use weir_page::{Entry, PageId, TxnId};

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// In ascending order of keys.
    Forward,
    /// In descending order.
    Backward,
}

/// Keys in `[low, high)`; no `high`: to the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Range {
    /// First key.
    pub low: Vec<u8>,
    /// First key behind.
    pub high: Option<Vec<u8>>,
}

/// Leaves that a scan looks ahead.
const READ_AHEAD: usize = 32;
/// Leaves after which it looks ahead anew.
const READ_AHEAD_EVERY: usize = READ_AHEAD / 2;
/// Entries that a scan copies together from when on it reads ahead.
const READ_AHEAD_FROM: usize = 256;
/// Entries of a batch for each leaf that a scan looks ahead: one that has just begun may end soon.
const ENTRIES_PER_LEAF_AHEAD: usize = 64;
/// Room that a scan begins with, in bytes, and most that it makes at once for what comes of a leaf.
const FIRST_ROOM: usize = 4 << 10;
const ROOM_AT_ONCE: usize = 16 << 10;
/// Entries of a leaf that the CPU is told of before they are copied.
const CELLS_AHEAD: usize = 6;

/// A running scan.
pub struct Scan {
    shared: Arc<Transactions>,
    tree: Tree,
    /// Another tree of which the same ranges are locked, if any are.
    locks_too: Option<Tree>,
    /// Whether the tree is a unique index, in which one key may stand for several rows in turn.
    unique: bool,
    direction: Direction,
    /// What is left of the range.
    range: Range,
    /// What it is a part of, if it is one of several.
    whole: Option<Range>,
    done: bool,
    bytes: Vec<u8>,
    rows: Vec<Copied>,
    next: usize,
    /// Entries of the batch to come, at most: small scans stay small.
    most: usize,
    /// Leaves after which the scan looks ahead; `None` before it has met one that is not in memory.
    looks_ahead_in: Option<usize>,
}

/// Where an entry lies in a scan's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Copied {
    /// Where its key begins.
    pub key: u32,
    /// Where its key ends and its value begins.
    pub value: u32,
    /// Where its value ends.
    pub end: u32,
    /// See [`Row::overflow`].
    pub overflow: bool,
    /// See [`Row::outdated`].
    pub outdated: bool,
}

/// Entries that a scan has copied together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batch<'a> {
    /// Their keys and values.
    pub bytes: &'a [u8],
    /// Where in `bytes` each of them lies.
    pub entries: &'a [Copied],
}

/// Entries of several scans, in a buffer of their own.
#[derive(Default)]
pub(super) struct Together {
    bytes: Vec<u8>,
    entries: Vec<Copied>,
}

impl Together {
    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Adds an entry that lies in `bytes`.
    #[inline]
    fn push(&mut self, entry: &Copied, bytes: &[u8]) {
        let key = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&bytes[entry.key as usize..entry.end as usize]);
        let value = key + (entry.value - entry.key);
        self.entries.push(Copied { key, value, end: self.bytes.len() as u32, ..*entry });
    }
}

/// An entry that a scan has copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, or the reference to its chain.
    pub value: &'a [u8],
    /// Whether the value is a reference.
    pub overflow: bool,
    /// Whether the scan's transaction has written, and the entry is seen as it was before a later
    /// commit: the transaction's own row may have another entry. It is what the transaction's snapshot
    /// covers, its own writes set aside.
    pub outdated: bool,
}

/// Why a scan gives nothing now.
#[derive(Debug, thiserror::Error)]
pub enum ScanStop {
    /// The storage.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The next entry is held by this transaction: once it has ended, the scan goes on.
    #[error("the next entry is held by transaction {0}")]
    Held(TxnId),
    /// Others have locked some of the next rows: they can't be locked as a range.
    #[error("some of the next rows are locked by others")]
    RowsLocked,
}

impl ScanStop {
    /// Of a look at a view, which nobody's holding ends.
    pub(super) fn into_fault(self) -> Fault {
        match self {
            ScanStop::Fault(fault) => fault,
            ScanStop::Held(_) | ScanStop::RowsLocked => {
                unreachable!("only a look at the newest versions waits")
            }
        }
    }
}

impl Scan {
    /// A scan of `range`; `most` rows are fetched at first, more later.
    pub fn new(
        shared: Arc<Transactions>,
        tree: Tree,
        range: Range,
        direction: Direction,
        most: usize,
    ) -> Scan {
        let done = range.high.as_ref().is_some_and(|h| *h <= range.low);
        // Room for what a short scan copies, so that it doesn't grow piece by piece.
        let (bytes, rows) = (Vec::with_capacity(FIRST_ROOM), Vec::with_capacity(most.min(64)));
        Scan {
            shared,
            tree,
            locks_too: None,
            unique: false,
            direction,
            range,
            whole: None,
            done,
            bytes,
            rows,
            next: 0,
            most: most.max(1),
            looks_ahead_in: None,
        }
    }

    /// The tree is a unique index: where the scan's transaction has overwritten what its snapshot
    /// doesn't cover, what the snapshot covers is given as well, as outdated.
    pub fn of_unique_index(self) -> Scan {
        Scan { unique: true, ..self }
    }

    /// A scan of the same range of another tree; this one ends where it is, and gets the range back part by part.
    pub(super) fn hand_over(&mut self, tree: Tree) -> Scan {
        let other =
            Scan::new(self.shared.clone(), tree, self.range.clone(), self.direction, self.most);
        self.abandon();
        self.whole = Some(std::mem::take(&mut self.range));
        other
    }

    /// Range locks are taken of this tree, too: its entries move there.
    pub(super) fn locking_too(self, tree: Tree) -> Scan {
        Scan { locks_too: Some(tree), ..self }
    }

    /// The next entry that `view` sees.
    ///
    /// # Errors
    /// Faults of the storage.
    #[inline]
    pub fn next(&mut self, view: View) -> Result<Option<Row<'_>>, Fault> {
        self.look(Look::At(view)).map_err(ScanStop::into_fault)
    }

    /// The next entry that a look gives.
    ///
    /// # Errors
    /// [`ScanStop`].
    #[inline]
    pub fn look(&mut self, look: Look) -> Result<Option<Row<'_>>, ScanStop> {
        while self.next == self.rows.len() {
            if self.done {
                return Ok(None);
            }
            self.fetch(look)?;
        }
        self.next += 1;
        Ok(Some(self.last()))
    }

    /// The entry that was given last.
    ///
    /// # Panics
    /// If it gave none.
    #[inline]
    pub fn last(&self) -> Row<'_> {
        self.row(self.next - 1)
    }

    #[inline]
    fn row(&self, at: usize) -> Row<'_> {
        let Copied { key, value, end, overflow, outdated } = self.rows[at];
        let (key, value) =
            (&self.bytes[key as usize..value as usize], &self.bytes[value as usize..end as usize]);
        Row { key, value, overflow, outdated }
    }

    /// Makes sure that there is an entry to give, unless the range is at its end; returns it.
    pub(super) fn fill(&mut self, look: Look) -> Result<Option<Row<'_>>, ScanStop> {
        while self.next == self.rows.len() && !self.done {
            self.fetch(look)?;
        }
        Ok(self.peek())
    }

    /// Copies more entries, all that were copied having been given; none at the end of the range.
    pub(super) fn refill(&mut self, look: Look) -> Result<(), ScanStop> {
        assert_eq!(self.next, self.rows.len(), "copied entries are given before more are");
        if !self.done {
            return self.fetch(look);
        }
        self.rows.clear();
        self.next = 0;
        Ok(())
    }

    /// Gives the entries at once that have been copied and not given yet, up to the first whose value is
    /// not here, or that is outdated, or whose key has more than `key_bytes_max`. What was given before them stays
    /// where it is.
    #[inline]
    pub fn take_copied(&mut self, key_bytes_max: usize) -> Batch<'_> {
        let rest = &self.rows[self.next..];
        let most = key_bytes_max as u32;
        let apart = |row: &Copied| row.overflow || row.outdated || row.value - row.key > most;
        let here = rest.iter().position(apart).unwrap_or(rest.len());
        self.next += here;
        Batch { bytes: &self.bytes, entries: &rest[..here] }
    }

    /// As [`Scan::take_copied`], of this scan and of `other`, which has copied what lies beside it; in the order of
    /// keys, one of two that are equal once. It ends where this scan has to read on. Also returns whether the
    /// last of them is `other`'s.
    pub(super) fn take_merged<'a>(
        &mut self,
        other: &mut Scan,
        key_bytes_max: usize,
        together: &'a mut Together,
    ) -> (Batch<'a>, bool) {
        let most = key_bytes_max as u32;
        let apart = |row: &Copied| row.overflow || row.outdated || row.value - row.key > most;
        let mut last_is_others = false;
        together.clear();
        loop {
            let (ours, others) = (self.rows.get(self.next), other.rows.get(other.next));
            let order = match (ours, others) {
                (None, Some(_)) if self.done => Ordering::Greater,
                (None, _) => break,
                (Some(_), None) => Ordering::Less,
                (Some(ours), Some(others)) => self.order(self.key(ours), other.key(others)),
            };
            let (taken, bytes) = match order.is_gt() {
                true => (others, &other.bytes),
                false => (ours, &self.bytes),
            };
            let taken = taken.expect("it is the one, or the only one");
            if apart(taken) {
                break;
            }
            together.push(taken, bytes);
            last_is_others = order.is_gt();
            self.next += usize::from(order.is_le());
            other.next += usize::from(order.is_ge());
        }
        (Batch { bytes: &together.bytes, entries: &together.entries }, last_is_others)
    }

    /// How two keys follow one another in the scan's direction.
    #[inline]
    pub(super) fn order(&self, one: &[u8], other: &[u8]) -> Ordering {
        match self.direction {
            Direction::Forward => one.cmp(other),
            Direction::Backward => other.cmp(one),
        }
    }

    #[inline]
    fn key(&self, row: &Copied) -> &[u8] {
        &self.bytes[row.key as usize..row.value as usize]
    }

    /// The next entry, if it has been copied.
    #[inline]
    pub(super) fn peek(&self) -> Option<Row<'_>> {
        (self.next < self.rows.len()).then(|| self.row(self.next))
    }

    /// Counts the next entry, which has been copied, as given.
    #[inline]
    pub(super) fn skip(&mut self) {
        self.next += 1;
    }

    /// The part of the range behind what has been copied.
    pub(super) fn unread(&self) -> Option<&Range> {
        (!self.done).then_some(&self.range)
    }

    /// Whether the next entry has yet to be copied, if there is one.
    #[inline]
    pub(super) fn is_to_read(&self) -> bool {
        self.next == self.rows.len() && !self.done
    }

    /// Key of the last entry that was copied and given.
    pub(super) fn given(&self) -> Option<&[u8]> {
        self.next.checked_sub(1).map(|at| self.row(at).key)
    }

    pub(super) fn tree(&self) -> Tree {
        self.tree
    }

    pub(super) fn direction(&self) -> Direction {
        self.direction
    }

    /// The entry that was given last is given again.
    pub(super) fn give_again(&mut self) {
        self.next = self.next.checked_sub(1).expect("an entry has been given");
    }

    /// What lies behind `key`, which has been given, is read anew.
    pub(super) fn behind(&mut self, key: &[u8]) {
        self.abandon();
        match self.direction {
            Direction::Forward => self.range.low = [key, &[0]].concat(),
            Direction::Backward => self.range.high = Some(key.to_vec()),
        }
        self.done = self.range.high.as_ref().is_some_and(|h| *h <= self.range.low);
    }

    /// What has not been given is not to be given.
    pub(super) fn abandon(&mut self) {
        self.rows.clear();
        self.bytes.clear();
        (self.next, self.done) = (0, true);
    }

    /// Goes on with another range, all of the one before having been given.
    pub(super) fn restart(&mut self, range: Range) {
        assert!(self.done && self.next == self.rows.len(), "a range is read to its end");
        self.abandon();
        self.done = range.high.as_ref().is_some_and(|h| *h <= range.low);
        self.range = range;
    }

    /// Copies entries of the next leaf that has any.
    fn fetch(&mut self, look: Look) -> Result<(), ScanStop> {
        self.make_room();
        self.next = 0;
        let shared = self.shared.clone();
        let s = &*shared.storage;
        let mut absent = 0;
        while self.rows.is_empty() && !self.done {
            match self.fetch_leaf(s, look) {
                Ok(()) => self.look_ahead(s),
                Err(Restart::Stop(Stop::Retry)) => {}
                Err(Restart::Error(ScanStop::Held(_))) if !self.rows.is_empty() => break,
                Err(Restart::Error(stop)) => return Err(stop),
                Err(Restart::Stop(Stop::Load(page))) => {
                    if !self.rows.is_empty() {
                        break;
                    }
                    self.read_from_here(s);
                    absent = if s.load(page)? { 0 } else { absent + 1 };
                    if absent > 1000 {
                        return Err(s.lost_page(page).into());
                    }
                }
            }
        }
        self.most = (2 * self.most).min(1 << 16);
        Ok(())
    }

    /// Takes what was copied out, and makes room for as many entries as are to be copied, if they are like those.
    fn make_room(&mut self) {
        let entry = self.bytes.len() / self.rows.len().max(1);
        self.bytes.clear();
        self.rows.clear();
        self.bytes.reserve((entry * self.most).min(ROOM_AT_ONCE));
        self.rows.reserve(self.most.min(ROOM_AT_ONCE / size_of::<Copied>()));
    }

    /// Reads the leaf that is missing together with those behind it, and has more read meanwhile from now on.
    fn read_from_here(&mut self, s: &Storage) {
        if self.most < READ_AHEAD_FROM {
            return;
        }
        s.prefetch(&self.leaves_ahead(s));
        self.looks_ahead_in = Some(READ_AHEAD_EVERY);
    }

    /// Copied from a leaf: has others read that will be needed, now and then.
    #[inline]
    fn look_ahead(&mut self, s: &Storage) {
        let Some(leaves) = &mut self.looks_ahead_in else { return };
        *leaves = leaves.saturating_sub(1);
        if *leaves == 0 && !self.done {
            *leaves = READ_AHEAD_EVERY;
            s.read_ahead(self.leaves_ahead(s));
        }
    }

    /// The leaves that the scan will need next, more if it has copied much.
    fn leaves_ahead(&self, s: &Storage) -> Vec<PageId> {
        let most = (self.most / ENTRIES_PER_LEAF_AHEAD).min(READ_AHEAD);
        let whole = self.whole.as_ref().unwrap_or(&self.range);
        let to = match (self.direction, &whole.high) {
            (Direction::Backward, _) => Target::At(&whole.low),
            (Direction::Forward, Some(high)) => Target::Below(high),
            (Direction::Forward, None) => Target::Last,
        };
        self.tree.leaves_between(s, self.target(), to, most)
    }

    fn target(&self) -> Target<'_> {
        match (self.direction, &self.range.high) {
            (Direction::Forward, _) => Target::At(&self.range.low),
            (Direction::Backward, Some(high)) => Target::Below(high),
            (Direction::Backward, None) => Target::Last,
        }
    }

    fn fetch_leaf(&mut self, s: &Storage, look: Look) -> Result<(), Restart<ScanStop>> {
        let scan_use = self.most > 4096;
        let leaf = self.tree.leaf(s, self.target(), scan_use)?;
        let before = match look {
            Look::Newest { ranges: Some(_), .. } => Some(self.range.clone()),
            _ => None,
        };
        let fetched = match self.direction {
            Direction::Forward => self.fetch_forward(&leaf, look),
            Direction::Backward => self.fetch_backward(&leaf, look),
        };
        if let (Look::Newest { own, ranges: Some(how), .. }, Some(before)) = (look, before)
            && let Err(stop) = self.lock_fetched(own, how, &before)
        {
            // As if it had not been read.
            self.rows.clear();
            self.bytes.clear();
            (self.range, self.done) = (before, false);
            return Err(Restart::Error(stop));
        }
        fetched
    }

    /// Locks the part of the range before, `range`, that has been read; its leaf is latched.
    fn lock_fetched(&self, own: TxnId, how: RangeMode, range: &Range) -> Result<(), ScanStop> {
        let locks = &self.shared.locks;
        let is_locked = |at| locks.conflicts(own, self.tree.id, self.row(at).key, how.mode);
        if how.for_rows && (0..self.rows.len()).any(is_locked) {
            return Err(ScanStop::RowsLocked);
        }
        let read = match (self.done, self.direction) {
            (true, _) => (&range.low[..], range.high.as_deref()),
            (false, Direction::Forward) => (&range.low[..], Some(&self.range.low[..])),
            (false, Direction::Backward) => {
                let from = self.range.high.as_deref();
                (from.expect("a scan from the end has come past an entry"), range.high.as_deref())
            }
        };
        for tree in [Some(self.tree), self.locks_too].into_iter().flatten() {
            locks.ranges.lock(own, tree.id, read, how).map_err(ScanStop::Held)?;
        }
        Ok(())
    }

    /// Whether the leaf ends at or behind the range.
    fn ends_in(&self, leaf: &LeafRead<'_>) -> bool {
        match (leaf.upper(), &self.range.high) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(upper), Some(high)) => upper >= &high[..],
        }
    }

    fn fetch_forward(&mut self, leaf: &LeafRead<'_>, look: Look) -> Result<(), Restart<ScanStop>> {
        let (from, _) = leaf.seek(&self.range.low);
        let last = self.ends_in(leaf);
        let to = match &self.range.high {
            Some(high) if last && leaf.upper().is_none_or(|u| &high[..] < u) => leaf.seek(high).0,
            _ => leaf.len(),
        };
        let horizon = self.shared.horizon();
        for slot in from..to {
            if self.rows.len() >= self.most {
                self.range.low = key_of(leaf, slot);
                return Ok(());
            }
            leaf.prefetch_cell(slot + CELLS_AHEAD);
            if let Err(stop) = self.copy(leaf, slot, look, horizon) {
                self.range.low = key_of(leaf, slot);
                return Err(stop);
            }
        }
        match leaf.upper() {
            Some(upper) if !last => self.range.low = upper.to_vec(),
            _ => self.done = true,
        }
        Ok(())
    }

    fn fetch_backward(&mut self, leaf: &LeafRead<'_>, look: Look) -> Result<(), Restart<ScanStop>> {
        let to = match &self.range.high {
            Some(high) if leaf.upper().is_none_or(|u| &high[..] < u) => leaf.seek(high).0,
            _ => leaf.len(),
        };
        let first = self.range.low[..] >= *leaf.lower();
        let from = if first { leaf.seek(&self.range.low).0 } else { 0 };
        let horizon = self.shared.horizon();
        for slot in (from..to).rev() {
            if self.rows.len() >= self.most {
                self.range.high = Some(after(leaf, slot));
                return Ok(());
            }
            if let Err(stop) = self.copy(leaf, slot, look, horizon) {
                self.range.high = Some(after(leaf, slot));
                return Err(stop);
            }
        }
        if first || leaf.lower().is_empty() {
            self.done = true;
        } else {
            self.range.high = Some(leaf.lower().to_vec());
        }
        Ok(())
    }

    /// Copies an entry if the look gives it. `horizon`: who wrote before it is seen by everybody.
    #[inline]
    fn copy(
        &mut self,
        leaf: &LeafRead<'_>,
        slot: usize,
        look: Look,
        horizon: TxnId,
    ) -> Result<(), Restart<ScanStop>> {
        let cell = leaf.cell(slot);
        if cell.writer.is_some_and(|writer| writer >= horizon) {
            return self.copy_version(leaf, slot, look);
        }
        if !cell.flags.deleted {
            let key = self.bytes.len();
            self.bytes.reserve(leaf.prefix().len() + cell.bytes.len());
            self.bytes.extend_from_slice(leaf.prefix());
            let value = self.bytes.len() + cell.key_len;
            self.bytes.extend_from_slice(cell.bytes);
            self.note(key, value, cell.flags.overflow, false);
        }
        Ok(())
    }

    /// Copies the version of an entry that the look gives.
    fn copy_version(
        &mut self,
        leaf: &LeafRead<'_>,
        slot: usize,
        look: Look,
    ) -> Result<(), Restart<ScanStop>> {
        let entry = leaf.entry(slot);
        let view = match look {
            Look::At(view) => view,
            Look::Newest { own, skip, .. } => {
                return self.copy_newest(leaf, slot, &entry, own, skip);
            }
        };
        let visible = self.shared.visible(view, &entry).map_err(widen)?;
        let is_own = |txn| view.own.0 != 0 && txn == view.own;
        let below = match self.unique && entry.version.is_some_and(|v| is_own(v.txn)) {
            true => self.shared.overwritten_unseen(view, &entry).map_err(widen)?,
            false => None,
        };
        // The same value is of the same row, which the transaction has then written.
        let below = below.filter(|(_, below)| visible.as_ref().is_none_or(|(_, v)| v != below));
        if let Some((overflow, value)) = &visible {
            let outdated =
                view.own.0 != 0 && entry.version.is_some_and(|v| !self.shared.sees(view, v.txn));
            self.push(leaf, slot, value, *overflow, outdated);
        }
        if let Some((overflow, value)) = &below {
            self.push(leaf, slot, value, *overflow, true);
        }
        Ok(())
    }

    /// Copies an entry's newest version, unless it is dead or held.
    fn copy_newest(
        &mut self,
        leaf: &LeafRead<'_>,
        slot: usize,
        entry: &Entry<'_>,
        own: TxnId,
        skip: bool,
    ) -> Result<(), Restart<ScanStop>> {
        if let Some(v) = entry.version.filter(|v| v.txn != own && self.shared.is_active(v.txn)) {
            return if skip { Ok(()) } else { Err(Restart::Error(ScanStop::Held(v.txn))) };
        }
        if !entry.flags.deleted {
            self.push(leaf, slot, entry.value, entry.flags.overflow, false);
        }
        Ok(())
    }

    fn push(
        &mut self,
        leaf: &LeafRead<'_>,
        slot: usize,
        value: &[u8],
        overflow: bool,
        outdated: bool,
    ) {
        let key = self.bytes.len();
        self.bytes.extend_from_slice(leaf.prefix());
        self.bytes.extend_from_slice(leaf.suffix(slot));
        let value_at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.note(key, value_at, overflow, outdated);
    }

    /// Notes what has been copied: from `key` and `value` on.
    #[inline]
    fn note(&mut self, key: usize, value: usize, overflow: bool, outdated: bool) {
        let (key, value, end) = (key as u32, value as u32, self.bytes.len() as u32);
        self.rows.push(Copied { key, value, end, overflow, outdated });
    }
}

fn widen(restart: Restart<Fault>) -> Restart<ScanStop> {
    match restart {
        Restart::Stop(stop) => Restart::Stop(stop),
        Restart::Error(fault) => Restart::Error(ScanStop::Fault(fault)),
    }
}

fn key_of(leaf: &LeafRead<'_>, slot: usize) -> Vec<u8> {
    [leaf.prefix(), leaf.suffix(slot)].concat()
}

/// The least key above that of a slot.
fn after(leaf: &LeafRead<'_>, slot: usize) -> Vec<u8> {
    [leaf.prefix(), leaf.suffix(slot), &[0]].concat()
}

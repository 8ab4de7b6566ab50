//! Ordered reads of a tree's range, forwards or backwards, a leaf at a time.
//!
//! A scan copies what its view sees of a leaf while it holds the latch, and goes on from the leaf's
//! fence: it keeps no page between calls, so it neither hinders nor is hindered by splits and
//! merges. What it copies, and how: [`fetch`].

mod fetch;

use super::versions::Walks;
use super::{Direction, Look, Range, Transactions, View};
use crate::storage::{Fault, retry};
use crate::tree::Tree;
use std::cell::Cell;
use std::cmp::Ordering;
use std::sync::Arc;
use weir_page::{PageId, TxnId};

/// Room that a scan begins with, in bytes and in entries.
const FIRST_ROOM: (usize, usize) = (4 << 10, 64);
/// Most room that a thread's scan leaves for its next one.
const ROOM_LEFT: (usize, usize) = (32 << 10, 1 << 10);

/// A running scan.
pub struct Scan {
    transactions: Arc<Transactions>,
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
    copies: Copies,
    /// Which of the copied entries is given next.
    next: usize,
    /// Entries of the batch to come, at most: small scans stay small.
    most: usize,
    /// Leaves after which the scan looks ahead; `None` before it has met one that is not in memory.
    looks_ahead_in: Option<usize>,
    /// How far back it has looked at entries of the leaf that it is at.
    walks: Walks,
    /// Undo pages that it lacks to go on in that leaf.
    lacks: Vec<PageId>,
}

/// Where an entry lies in a scan's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct EntryPlace {
    /// Where its key begins.
    pub key: u32,
    /// Where its key ends and its value begins.
    pub value: u32,
    /// Where its value ends.
    pub end: u32,
    /// See `ScanEntry::overflow`.
    pub overflow: bool,
    /// See `ScanEntry::outdated`.
    pub outdated: bool,
    /// See [`ScanEntry::hides`].
    pub(super) hides: bool,
    /// See [`ScanEntry::deleted`].
    pub(super) deleted: bool,
}

impl EntryPlace {
    /// Whether it is given by itself: its value isn't here, or it is outdated, or its key has more
    /// than `key_bytes_max`.
    #[inline]
    fn is_apart(&self, key_bytes_max: usize) -> bool {
        self.overflow || self.outdated || self.value - self.key > key_bytes_max as u32
    }
}

/// Entries that a scan has copied together.
#[derive(Debug, Clone, Copy, Default)]
pub struct Batch<'a> {
    /// Their keys and values.
    pub bytes: &'a [u8],
    /// Where in `bytes` each of them lies.
    pub entries: &'a [EntryPlace],
}

/// Entries that were copied together.
#[derive(Default)]
pub(super) struct Copies {
    bytes: Vec<u8>,
    entries: Vec<EntryPlace>,
}

thread_local! {
    /// What the thread's last scan has left for its next one.
    static LEFT: Cell<Option<Copies>> = const { Cell::new(None) };
}

impl Copies {
    /// With room for what a short scan copies, so that it doesn't grow piece by piece.
    fn with_room() -> Copies {
        LEFT.take().unwrap_or_else(|| Copies {
            bytes: Vec::with_capacity(FIRST_ROOM.0),
            entries: Vec::with_capacity(FIRST_ROOM.1),
        })
    }

    /// Leaves the room to the thread's next scan, unless it is much.
    fn leave_room(mut self) {
        if self.bytes.capacity() <= ROOM_LEFT.0 && self.entries.capacity() <= ROOM_LEFT.1 {
            self.clear();
            // A thread that ends has none.
            let _ = LEFT.try_with(|left| left.set(Some(self)));
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Adds an entry that lies in `bytes`.
    #[inline]
    fn push(&mut self, entry: &EntryPlace, bytes: &[u8]) {
        let key = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&bytes[entry.key as usize..entry.end as usize]);
        let value = key + (entry.value - entry.key);
        self.entries.push(EntryPlace { key, value, end: self.bytes.len() as u32, ..*entry });
    }
}

/// An entry that a scan has copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value, or the reference to its chain.
    pub value: &'a [u8],
    /// Whether the value is a reference.
    pub overflow: bool,
    /// Whether the scan's transaction has written, and the entry is seen as it was before a later
    /// commit: the transaction's own row may have another entry. It is what the transaction's
    /// snapshot covers, its own writes set aside.
    pub outdated: bool,
    /// Whether the entry, of a staging tree, counts in place of one of the same key in the main
    /// tree.
    pub hides: bool,
    /// Whether it is a tombstone: only a scan of a staging tree gives such. One that is outdated
    /// the view doesn't see: it hides nothing, but what it would hide is outdated.
    pub deleted: bool,
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
    /// Others have locked the next row, of this key: once its lock has been had, the scan locks a
    /// range that covers it.
    #[error("the next row is locked by others")]
    RowLocked(Vec<u8>),
}

impl ScanStop {
    /// Of a look at a view, which nobody's holding ends.
    pub(super) fn into_fault(self) -> Fault {
        match self {
            ScanStop::Fault(fault) => fault,
            ScanStop::Held(_) | ScanStop::RowLocked(_) => {
                unreachable!("only a look at the newest versions waits")
            }
        }
    }
}

impl Scan {
    /// A scan of `range`; `most` entries are fetched at first, more later.
    pub fn new(
        transactions: Arc<Transactions>,
        tree: Tree,
        range: Range,
        direction: Direction,
        most: usize,
    ) -> Scan {
        let done = range.is_empty();
        Scan {
            transactions,
            tree,
            locks_too: None,
            unique: false,
            direction,
            range,
            whole: None,
            done,
            copies: Copies::with_room(),
            next: 0,
            most: most.max(1),
            looks_ahead_in: None,
            walks: Walks::default(),
            lacks: Vec::new(),
        }
    }

    /// The tree is a unique index: where the scan's transaction has overwritten what its snapshot
    /// doesn't cover, what the snapshot covers is given as well, as outdated.
    pub fn of_unique_index(mut self) -> Scan {
        self.unique = true;
        self
    }

    /// A scan of the same range of another tree; this one ends where it is, and gets the range back
    /// part by part.
    pub(super) fn hand_over(&mut self, tree: Tree) -> Scan {
        let other = Scan::new(
            self.transactions.clone(),
            tree,
            self.range.clone(),
            self.direction,
            self.most,
        );
        self.abandon();
        self.whole = Some(std::mem::take(&mut self.range));
        other
    }

    /// Range locks are taken of this tree, too: its entries move there.
    pub(super) fn locking_too(mut self, tree: Tree) -> Scan {
        self.locks_too = Some(tree);
        self
    }

    /// The next entry that `view` sees.
    ///
    /// # Errors
    /// Faults of the storage.
    #[inline]
    pub fn next(&mut self, view: View) -> Result<Option<ScanEntry<'_>>, Fault> {
        self.look(Look::At(view)).map_err(ScanStop::into_fault)
    }

    /// The next entry that a look gives.
    ///
    /// # Errors
    /// [`ScanStop`].
    #[inline]
    pub fn look(&mut self, look: Look) -> Result<Option<ScanEntry<'_>>, ScanStop> {
        while self.next == self.copies.entries.len() {
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
    pub fn last(&self) -> ScanEntry<'_> {
        self.entry(self.next - 1)
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> ScanEntry<'_> {
        let EntryPlace { key, value, end, overflow, outdated, hides, deleted } =
            self.copies.entries[at];
        let (key, value) = (
            &self.copies.bytes[key as usize..value as usize],
            &self.copies.bytes[value as usize..end as usize],
        );
        ScanEntry { key, value, overflow, outdated, hides, deleted }
    }

    /// Makes sure that there is an entry to give, unless the range is at its end; returns it.
    pub(super) fn fill(&mut self, look: Look) -> Result<Option<ScanEntry<'_>>, ScanStop> {
        while self.next == self.copies.entries.len() && !self.done {
            self.fetch(look)?;
        }
        Ok(self.peek())
    }

    /// Copies more entries, all that were copied having been given; none at the end of the range.
    pub(super) fn refill(&mut self, look: Look) -> Result<(), ScanStop> {
        assert_eq!(
            self.next,
            self.copies.entries.len(),
            "copied entries are given before more are"
        );
        if !self.done {
            return self.fetch(look);
        }
        self.copies.entries.clear();
        self.next = 0;
        Ok(())
    }

    /// Gives the next entry if it has been copied and need not be given by itself, as
    /// [`Scan::take_copied`] says; whether it is given. The tree has no tombstones.
    #[inline(always)]
    pub(super) fn take_one(&mut self, key_bytes_max: usize) -> bool {
        let taken =
            self.copies.entries.get(self.next).is_some_and(|entry| !entry.is_apart(key_bytes_max));
        self.next += usize::from(taken);
        taken
    }

    /// Gives the entries at once that have been copied and not given yet, up to the first whose
    /// value is not here, or that is outdated, or whose key has more than `key_bytes_max`. What was
    /// given before them stays where it is.
    #[inline]
    pub fn take_copied(&mut self, key_bytes_max: usize) -> Batch<'_> {
        let rest = &self.copies.entries[self.next..];
        let apart = |entry: &EntryPlace| entry.is_apart(key_bytes_max);
        let here = rest.iter().position(apart).unwrap_or(rest.len());
        self.next += here;
        Batch { bytes: &self.copies.bytes, entries: &rest[..here] }
    }

    /// The entries that have been copied and not given yet.
    pub(super) fn copied(&self) -> impl ExactSizeIterator<Item = ScanEntry<'_>> {
        (self.next..self.copies.entries.len()).map(|at| self.entry(at))
    }

    /// As [`Scan::take_copied`], of this scan and of `other`, which has copied what lies beside it
    /// in the staging tree; in the order of keys, of two that are equal one. It ends where this
    /// scan has to read on. Also returns whether the last of them is `other`'s.
    pub(super) fn take_merged<'a>(
        &mut self,
        other: &mut Scan,
        key_bytes_max: usize,
        together: &'a mut Copies,
    ) -> (Batch<'a>, bool) {
        let apart = |entry: &EntryPlace| entry.is_apart(key_bytes_max);
        let mut last_is_others = false;
        // Behind the last that is given: what is hidden may be followed by nothing.
        let (mut our_next, mut others_next) = (self.next, other.next);
        together.clear();
        loop {
            let (ours, others) =
                (self.copies.entries.get(our_next), other.copies.entries.get(others_next));
            let order = match (ours, others) {
                (None, Some(_)) if self.done => Ordering::Greater,
                (None, _) => break,
                (Some(_), None) => Ordering::Less,
                (Some(ours), Some(others)) => {
                    self.direction.order(self.key(ours), other.key(others))
                }
            };
            if let (Ordering::Equal, Some(others)) = (order, others)
                && others.deleted
                && others.outdated
            {
                // Outdated, it is given by itself.
                break;
            }
            let is_others =
                order.is_gt() || (order.is_eq() && others.is_some_and(|others| others.hides));
            let (taken, bytes) = match is_others {
                true => (others, &other.copies.bytes),
                false => (ours, &self.copies.bytes),
            };
            let taken = taken.expect("it is the one, or the only one");
            if !taken.deleted && apart(taken) {
                break;
            }
            our_next += usize::from(order.is_le());
            others_next += usize::from(order.is_ge());
            if !taken.deleted {
                together.push(taken, bytes);
                last_is_others = is_others;
                (self.next, other.next) = (our_next, others_next);
            }
        }
        (Batch { bytes: &together.bytes, entries: &together.entries }, last_is_others)
    }

    #[inline]
    fn key(&self, entry: &EntryPlace) -> &[u8] {
        &self.copies.bytes[entry.key as usize..entry.value as usize]
    }

    /// The next entry, if it has been copied.
    #[inline]
    pub(super) fn peek(&self) -> Option<ScanEntry<'_>> {
        (self.next < self.copies.entries.len()).then(|| self.entry(self.next))
    }

    /// The next entry, which has been copied, is outdated.
    pub(super) fn outdate(&mut self) {
        self.copies.entries[self.next].outdated = true;
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
        self.next == self.copies.entries.len() && !self.done
    }

    /// Key of the last entry that was copied and given.
    pub(super) fn given(&self) -> Option<&[u8]> {
        self.next.checked_sub(1).map(|at| self.entry(at).key)
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

    /// Has what lies behind `key`, which has been given, read anew.
    pub(super) fn read_anew_behind(&mut self, key: &[u8]) {
        self.abandon();
        self.range.begin_behind(key, self.direction);
        self.done = self.range.is_empty();
    }

    /// Has what was copied and not given read anew, and what lies between.
    pub(super) fn read_rest_anew(&mut self) {
        if let Some(given) = self.given().map(<[u8]>::to_vec) {
            self.read_anew_behind(&given);
        } else if let Some(next) = self.peek().map(|entry| entry.key.to_vec()) {
            self.abandon();
            self.range.begin_with(next, self.direction);
            self.done = false;
        }
    }

    /// What has not been given is not to be given.
    pub(super) fn abandon(&mut self) {
        self.copies.clear();
        (self.next, self.done) = (0, true);
    }

    /// Where the rest of the range is to be cut so that its part that is read next is of one leaf
    /// and has no more entries than would be copied; what is known to be dead there isn't counted.
    /// `None`: it is small enough.
    pub(super) fn cut(&self) -> Result<Option<Vec<u8>>, Fault> {
        let transactions = &self.transactions;
        let no_lock = |_: &Range| Ok::<(), Fault>(());
        let left =
            transactions.dead.pass(self.tree.id, &self.range, self.direction, u64::MAX, no_lock)?;
        let left = left.as_ref().unwrap_or(&self.range);
        if left.is_empty() {
            return Ok(None);
        }
        retry(&transactions.storage, || {
            let leaf = self.tree.leaf(&transactions.storage, left.first(self.direction), false)?;
            Ok(fetch::cut_in(&leaf, left, self.direction, self.most))
        })
    }

    /// Goes on with another range, all of the one before having been given.
    pub(super) fn restart(&mut self, range: Range) {
        assert!(self.done && self.next == self.copies.entries.len(), "a range is read to its end");
        self.abandon();
        self.done = range.is_empty();
        self.range = range;
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        std::mem::take(&mut self.copies).leave_room();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_leaves_its_room_to_the_next_one_of_its_thread_unless_it_is_much() {
        let grown = |bytes| {
            let mut copies = Copies::with_room();
            copies.bytes.reserve(bytes);
            copies.entries.push(EntryPlace {
                key: 0,
                value: 0,
                end: 0,
                overflow: false,
                outdated: false,
                hides: false,
                deleted: false,
            });
            let room = copies.bytes.capacity();
            copies.leave_room();
            room
        };
        let room = grown(3 * FIRST_ROOM.0);
        assert!(room > FIRST_ROOM.0);
        let next = Copies::with_room();
        assert_eq!((next.bytes.capacity(), next.entries.len()), (room, 0));
        next.leave_room();
        grown(2 * ROOM_LEFT.0);
        assert_eq!(Copies::with_room().bytes.capacity(), FIRST_ROOM.0);
    }
}

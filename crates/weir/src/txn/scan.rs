//! Ordered reads of a tree's range, forwards or backwards, a leaf at a time.
//!
//! A scan copies what its view sees of a leaf while it holds the latch, and goes on from the leaf's
//! fence: it keeps no page between calls, so it neither hinders nor is hindered by splits and merges.

use super::{Transactions, View};
use crate::storage::{Fault, Restart, Stop, Storage};
use crate::tree::cursor::LeafRead;
use crate::tree::{Target, Tree};
use std::sync::Arc;

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

/// Leaves that are read ahead together.
const READ_AHEAD: usize = 32;

/// A running scan.
pub struct Scan {
    shared: Arc<Transactions>,
    tree: Tree,
    direction: Direction,
    /// What is left of the range.
    range: Range,
    done: bool,
    bytes: Vec<u8>,
    rows: Vec<Copied>,
    next: usize,
    /// Leaves of the batch to come, at most: small scans stay small.
    most: usize,
}

/// Where an entry lies in a scan's buffer.
#[derive(Debug, Clone, Copy)]
struct Copied {
    key: u32,
    value: u32,
    end: u32,
    overflow: bool,
    outdated: bool,
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
    /// commit: the transaction's own row may have another entry.
    pub outdated: bool,
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
        let (bytes, rows) = (Vec::new(), Vec::new());
        Scan { shared, tree, direction, range, done, bytes, rows, next: 0, most: most.max(1) }
    }

    /// The next entry that `view` sees.
    ///
    /// # Errors
    /// Faults of the storage.
    #[inline]
    pub fn next(&mut self, view: View) -> Result<Option<Row<'_>>, Fault> {
        while self.next == self.rows.len() {
            if self.done {
                return Ok(None);
            }
            self.fetch(view)?;
        }
        self.next += 1;
        Ok(Some(self.last()))
    }

    /// The entry that [`Scan::next`] gave last.
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
    pub(super) fn fill(&mut self, view: View) -> Result<Option<Row<'_>>, Fault> {
        while self.next == self.rows.len() && !self.done {
            self.fetch(view)?;
        }
        Ok(self.peek())
    }

    /// Copies more entries, all that were copied having been given; none at the end of the range.
    pub(super) fn refill(&mut self, view: View) -> Result<(), Fault> {
        assert_eq!(self.next, self.rows.len(), "copied entries are given before more are");
        if !self.done {
            return self.fetch(view);
        }
        self.rows.clear();
        self.next = 0;
        Ok(())
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

    /// Goes on with another range, all of the one before having been given.
    pub(super) fn restart(&mut self, range: Range) {
        assert!(self.done && self.next == self.rows.len(), "a range is read to its end");
        self.done = range.high.as_ref().is_some_and(|h| *h <= range.low);
        self.range = range;
    }

    /// Copies entries of the next leaf that has any.
    fn fetch(&mut self, view: View) -> Result<(), Fault> {
        self.bytes.clear();
        self.rows.clear();
        self.next = 0;
        let shared = self.shared.clone();
        let s = &*shared.storage;
        let mut absent = 0;
        while self.rows.is_empty() && !self.done {
            match self.fetch_leaf(s, view) {
                Ok(()) | Err(Restart::Stop(Stop::Retry)) => {}
                Err(Restart::Error(fault)) => return Err(fault),
                Err(Restart::Stop(Stop::Load(page))) => {
                    if !self.rows.is_empty() {
                        break;
                    }
                    self.read_ahead(s, page);
                    absent = if s.load(page)? { 0 } else { absent + 1 };
                    if absent > 1000 {
                        return Err(s.lost_page(page));
                    }
                }
            }
        }
        self.most = (2 * self.most).min(1 << 16);
        Ok(())
    }

    /// Reads the leaf that is missing together with those behind it.
    fn read_ahead(&self, s: &Storage, missing: weir_page::PageId) {
        if self.most < 256 {
            return;
        }
        let mut pages = self.tree.neighbours(s, self.target(), READ_AHEAD);
        pages.push(missing);
        s.prefetch(&pages);
    }

    fn target(&self) -> Target<'_> {
        match (self.direction, &self.range.high) {
            (Direction::Forward, _) => Target::At(&self.range.low),
            (Direction::Backward, Some(high)) => Target::Below(high),
            (Direction::Backward, None) => Target::Last,
        }
    }

    fn fetch_leaf(&mut self, s: &Storage, view: View) -> Result<(), Restart<Fault>> {
        let scan_use = self.most > 4096;
        let leaf = self.tree.leaf(s, self.target(), scan_use)?;
        match self.direction {
            Direction::Forward => self.fetch_forward(&leaf, view),
            Direction::Backward => self.fetch_backward(&leaf, view),
        }
    }

    /// Whether the leaf ends at or behind the range.
    fn ends_in(&self, leaf: &LeafRead<'_>) -> bool {
        match (leaf.upper(), &self.range.high) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(upper), Some(high)) => upper >= &high[..],
        }
    }

    fn fetch_forward(&mut self, leaf: &LeafRead<'_>, view: View) -> Result<(), Restart<Fault>> {
        let (from, _) = leaf.seek(&self.range.low);
        let last = self.ends_in(leaf);
        let to = match &self.range.high {
            Some(high) if last && leaf.upper().is_none_or(|u| &high[..] < u) => leaf.seek(high).0,
            _ => leaf.len(),
        };
        for slot in from..to {
            if self.rows.len() >= self.most {
                self.range.low = key_of(leaf, slot);
                return Ok(());
            }
            if let Err(stop) = self.copy(leaf, slot, view) {
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

    fn fetch_backward(&mut self, leaf: &LeafRead<'_>, view: View) -> Result<(), Restart<Fault>> {
        let to = match &self.range.high {
            Some(high) if leaf.upper().is_none_or(|u| &high[..] < u) => leaf.seek(high).0,
            _ => leaf.len(),
        };
        let first = self.range.low[..] >= *leaf.lower();
        let from = if first { leaf.seek(&self.range.low).0 } else { 0 };
        for slot in (from..to).rev() {
            if self.rows.len() >= self.most {
                self.range.high = Some(after(leaf, slot));
                return Ok(());
            }
            if let Err(stop) = self.copy(leaf, slot, view) {
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

    /// Copies an entry if the view sees it.
    #[inline]
    fn copy(&mut self, leaf: &LeafRead<'_>, slot: usize, view: View) -> Result<(), Restart<Fault>> {
        let entry = leaf.entry(slot);
        let Some((overflow, value)) = self.shared.visible(view, &entry)? else { return Ok(()) };
        let outdated =
            view.own.0 != 0 && entry.version.is_some_and(|v| !self.shared.sees(view, v.txn));
        let key = self.bytes.len() as u32;
        self.bytes.extend_from_slice(leaf.prefix());
        self.bytes.extend_from_slice(leaf.suffix(slot));
        let value_at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(&value);
        let end = self.bytes.len() as u32;
        self.rows.push(Copied { key, value: value_at, end, overflow, outdated });
        Ok(())
    }
}

fn key_of(leaf: &LeafRead<'_>, slot: usize) -> Vec<u8> {
    [leaf.prefix(), leaf.suffix(slot)].concat()
}

/// The least key above that of a slot.
fn after(leaf: &LeafRead<'_>, slot: usize) -> Vec<u8> {
    [leaf.prefix(), leaf.suffix(slot), &[0]].concat()
}

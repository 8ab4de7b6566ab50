//! Building a tree from sorted input, leaf by leaf.
//!
//! The tree is whole at every moment: each step fills the empty last leaf and hangs a new empty one
//! behind it, in one mini-transaction. A build that is cut short is dropped like any tree.
//!
//! Leaves for keys that come in random order are filled to half of their room or more, which
//! differs from leaf to leaf, as such inserts leave them: were all full, each of them would be
//! split by the next inserts, all in the same second. Those for keys that are appended are filled,
//! as appending leaves them.

use super::restructure::log_image;
use super::{Target, Tree};
use crate::storage::{Fault, Restart, Stop, Storage, retry};
use weir_page::node::{self, Builder, SLOT};
use weir_page::page::BODY;
use weir_page::{Entry, Flags, PAGE_SIZE, Page, PageId};

/// Bytes of an entry beside key and value.
const ENTRY: usize = 2 + SLOT;
/// Bytes of a leaf for entries and fences.
pub(super) const ROOM: usize = PAGE_SIZE - BODY;

/// How full leaves become, by the inserts that are to be expected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fill {
    /// For keys above all others.
    Whole,
    /// For keys anywhere.
    Spread,
}

/// Fills an empty tree with entries in ascending key order, none of them versioned.
pub struct BulkBuilder<'s> {
    storage: &'s Storage,
    tree: Tree,
    lower: Vec<u8>,
    fill: Fill,
    /// How much of its room the next leaf is to take.
    room: usize,
    bytes: Vec<u8>,
    /// `(start of key, end of key, end of value, overflow)` in `bytes`.
    entries: Vec<(usize, usize, usize, bool)>,
}

impl<'s> BulkBuilder<'s> {
    /// A builder of `tree`, which is empty and known to nobody else.
    pub fn new(storage: &'s Storage, tree: Tree, fill: Fill) -> Self {
        BulkBuilder {
            storage,
            tree,
            lower: Vec::new(),
            fill,
            room: ROOM,
            bytes: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// Appends an entry; `key` must be above all before.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn push(&mut self, key: &[u8], value: &[u8], overflow: bool) -> Result<(), Fault> {
        let n = self.entries.len();
        let prefix = node::common_prefix(&self.lower, key);
        let used = self.bytes.len() - n * prefix + n * ENTRY + self.lower.len() + key.len();
        if n > 0 && used + key.len() + value.len() + ENTRY > self.room {
            self.finish_leaf(Some(key))?;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push((start, start + key.len(), self.bytes.len(), overflow));
        Ok(())
    }

    /// Whether the first `n` entries fit a leaf that ends before `upper`.
    fn fits(&self, n: usize, upper: Option<&[u8]>) -> bool {
        let prefix = upper.map_or(0, |u| node::common_prefix(&self.lower, u));
        let bytes = self.entries.get(n).map_or(self.bytes.len(), |e| e.0);
        let fences = self.lower.len() + upper.map_or(0, <[u8]>::len);
        bytes - n * prefix + n * ENTRY + fences <= ROOM
    }

    /// Shortest key between entry `n - 1` and what follows it.
    fn separator(&self, n: usize, next: Option<&[u8]>) -> Option<Vec<u8>> {
        let (start, mid, ..) = self.entries[n - 1];
        let after = self.entries.get(n).map(|e| &self.bytes[e.0..e.1]).or(next)?;
        Some(node::separator(&self.bytes[start..mid], after).to_vec())
    }

    fn page(&self, id: PageId, n: usize, upper: Option<&[u8]>) -> Box<Page> {
        let mut b = Builder::new(id, self.tree.id, 0, &self.lower, upper);
        for &(start, mid, end, overflow) in &self.entries[..n] {
            let flags = Flags { overflow, ..Flags::default() };
            let value = &self.bytes[mid..end];
            b.push(&self.bytes[start..mid], &Entry { flags, version: None, value });
        }
        b.finish()
    }

    /// Writes a leaf with as many entries as fit; `next` is the key behind the last of them.
    fn finish_leaf(&mut self, next: Option<&[u8]>) -> Result<(), Fault> {
        let mut n = self.entries.len();
        let separator = loop {
            assert!(n > 0, "a leaf holds at least one entry");
            match self.separator(n, next) {
                Some(upper) if self.fits(n, Some(&upper)) => break upper,
                _ => n -= 1,
            }
        };
        while let Some(room) = retry(self.storage, || self.try_append(n, &separator))? {
            self.tree.split_inner(self.storage, &separator, 1, room)?;
        }
        if self.fill == Fill::Spread {
            self.room = ROOM - node::differing(&separator, None, ROOM / 2);
        }
        self.lower = separator;
        let start = self.entries.get(n).map_or(self.bytes.len(), |e| e.0);
        self.bytes.drain(..start);
        self.entries.drain(..n);
        for e in &mut self.entries {
            *e = (e.0 - start, e.1 - start, e.2 - start, e.3);
        }
        Ok(())
    }

    /// Fills the last leaf and hangs an empty one behind it; or says how much room the parent
    /// lacks.
    fn try_append(&self, n: usize, separator: &[u8]) -> Result<Option<usize>, Restart<Fault>> {
        let s = self.storage;
        let mut mtr = s.mtr(Tree::restructure_need(2))?;
        let at = self.tree.descend(s, Target::Last, 0)?;
        let Some(p) = at.parent else {
            mtr.latch_frame(at.frame, at.page)?;
            let (left, right) = (mtr.create(), mtr.create());
            let full = self.page(left, n, Some(separator));
            let empty = Builder::new(right, self.tree.id, 0, separator, None).finish();
            self.tree.grow_root(mtr, (left, &full), separator, (right, &empty));
            return Ok(None);
        };
        mtr.latch_if(p.frame, p.page, p.seen)?;
        mtr.latch_frame(at.frame, at.page)?;
        if !node::fits_child(mtr.page(p.page), separator.len()) {
            return Ok(Some(separator.len()));
        }
        let right = mtr.create();
        log_image(&mut mtr, at.page, &self.page(at.page, n, Some(separator)));
        let empty = Builder::new(right, self.tree.id, 0, separator, None).finish();
        log_image(&mut mtr, right, &empty);
        self.tree.insert_child(&mut mtr, p.page, separator, right);
        mtr.commit();
        Ok(None)
    }

    /// Writes the last leaf.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn finish(mut self) -> Result<(), Fault> {
        while !self.fits(self.entries.len(), None) {
            self.finish_leaf(None)?;
        }
        retry(self.storage, || {
            let s = self.storage;
            let mut mtr = s.mtr(Tree::restructure_need(0))?;
            let at = self.tree.descend(s, Target::Last, 0)?;
            mtr.latch_frame(at.frame, at.page)?;
            if mtr.page(at.page).level() != 0 {
                return Err(Restart::Stop(Stop::Retry));
            }
            log_image(&mut mtr, at.page, &self.page(at.page, self.entries.len(), None));
            mtr.commit();
            Ok(())
        })
    }
}

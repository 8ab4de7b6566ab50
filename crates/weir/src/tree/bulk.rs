//! Building a tree from sorted input, leaf by leaf.
//!
//! The tree is whole at every moment: each step fills the empty last leaf and hangs a new empty one
//! behind it, in one mini-transaction. A build that is cut short is dropped like any tree.

use super::restructure::log_image;
use super::{Target, Tree};
use crate::storage::{Fault, Restart, Stop, Storage, retry};
use weir_page::node::{self, Builder, SLOT};
use weir_page::page::BODY;
use weir_page::{Entry, Flags, PAGE_SIZE, Page, PageId};

/// Fills an empty tree with entries in ascending key order, none of them versioned.
pub struct BulkBuilder<'s> {
    storage: &'s Storage,
    tree: Tree,
    lower: Vec<u8>,
    bytes: Vec<u8>,
    /// `(start of key, end of key, end of value, overflow)` in `bytes`.
    entries: Vec<(usize, usize, usize, bool)>,
    key_bytes: usize,
    value_bytes: usize,
}

impl<'s> BulkBuilder<'s> {
    /// A builder of `tree`, which is empty and known to nobody else.
    pub fn new(storage: &'s Storage, tree: Tree) -> Self {
        BulkBuilder {
            storage,
            tree,
            lower: Vec::new(),
            bytes: Vec::new(),
            entries: Vec::new(),
            key_bytes: 0,
            value_bytes: 0,
        }
    }

    /// The key that was pushed last.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.entries.last().map(|e| &self.bytes[e.0..e.1])
    }

    /// Appends an entry; `key` must be above all before.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn push(&mut self, key: &[u8], value: &[u8], overflow: bool) -> Result<(), Fault> {
        if !self.fits(key) {
            self.finish_leaf(key)?;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.entries.push((start, start + key.len(), self.bytes.len(), overflow));
        self.key_bytes += key.len();
        self.value_bytes += value.len();
        Ok(())
    }

    /// Whether the leaf could end before `next` if its next entry were as large as the largest inline one.
    fn fits(&self, next: &[u8]) -> bool {
        let n = self.entries.len();
        let prefix = node::common_prefix(&self.lower, next);
        let used = self.key_bytes - n * prefix + self.value_bytes + n * (2 + SLOT);
        let fences = self.lower.len() + next.len();
        let one_more = next.len() + 2 + SLOT + (node::MAX_INLINE - next.len()).min(256);
        n == 0 || used + fences + one_more <= PAGE_SIZE - BODY
    }

    fn page(&self, id: PageId, upper: Option<&[u8]>) -> Box<Page> {
        let mut b = Builder::new(id, self.tree.id, 0, &self.lower, upper);
        for &(start, mid, end, overflow) in &self.entries {
            let flags = Flags { deleted: false, overflow };
            let value = &self.bytes[mid..end];
            b.push(&self.bytes[start..mid], &Entry { flags, version: None, value });
        }
        b.finish()
    }

    fn finish_leaf(&mut self, next: &[u8]) -> Result<(), Fault> {
        let last = self.last_key().expect("a leaf that is full has entries");
        let separator = node::separator(last, next).to_vec();
        let parent_full = |room| self.tree.split_inner(self.storage, next, 1, room);
        while let Some(room) = retry(self.storage, || self.try_append(&separator))? {
            parent_full(room)?;
        }
        self.lower = separator;
        self.bytes.clear();
        self.entries.clear();
        (self.key_bytes, self.value_bytes) = (0, 0);
        Ok(())
    }

    /// Fills the last leaf and hangs an empty one behind it; or says how much room the parent lacks.
    fn try_append(&self, separator: &[u8]) -> Result<Option<usize>, Restart<Fault>> {
        let s = self.storage;
        let mut mtr = s.mtr(Tree::restructure_need(2))?;
        let at = self.tree.descend(s, Target::Last, 0)?;
        let Some(p) = at.parent else {
            mtr.latch_frame(at.frame, at.page)?;
            let (left, right) = (mtr.create(), mtr.create());
            let full = self.page(left, Some(separator));
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
        log_image(&mut mtr, at.page, &self.page(at.page, Some(separator)));
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
    pub fn finish(self) -> Result<(), Fault> {
        retry(self.storage, || {
            let s = self.storage;
            let mut mtr = s.mtr(Tree::restructure_need(0))?;
            let at = self.tree.descend(s, Target::Last, 0)?;
            mtr.latch_frame(at.frame, at.page)?;
            if mtr.page(at.page).level() != 0 {
                return Err(Restart::Stop(Stop::Retry));
            }
            log_image(&mut mtr, at.page, &self.page(at.page, None));
            mtr.commit();
            Ok(())
        })
    }
}

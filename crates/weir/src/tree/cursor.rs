//! Leaves as the transaction layer sees them: keys and entries, not pages.

use super::{Hint, Target, Tree};
use crate::storage::{Mtr, PageRead, Stop, Storage};
use std::ops::Range;
use weir_page::node::{Cell, Ties};
use weir_page::overflow::Reference;
use weir_page::version::Entry;
use weir_page::{PageId, Redo, Write, node};

/// A leaf latched for reading.
pub struct LeafRead<'s>(pub(super) PageRead<'s>);

impl LeafRead<'_> {
    /// Its number.
    pub fn page(&self) -> PageId {
        self.0.id()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        node::count(&self.0)
    }

    /// See [`node::alive`].
    pub fn alive(&self, slots: Range<usize>) -> isize {
        node::alive(&self.0, slots)
    }

    /// Number of pages in the chains of the leaf's entries.
    pub fn overflow_pages(&self) -> u64 {
        let entries = (0..self.len()).map(|slot| self.entry(slot));
        let chains = entries.filter(|e| e.flags.overflow);
        chains.filter_map(|e| Reference::from_bytes(e.value)).map(Reference::pages).sum()
    }

    /// First slot whose key is not below `key`, which the leaf covers, and whether it is equal.
    #[inline]
    pub fn seek(&self, key: &[u8]) -> (usize, bool) {
        node::search(&self.0, key)
    }

    /// The entry of a slot.
    #[inline]
    pub fn entry(&self, slot: usize) -> Entry<'_> {
        node::entry(&self.0, slot)
    }

    /// The entry of a slot, its key and value together.
    #[inline]
    pub fn cell(&self, slot: usize) -> Cell<'_> {
        node::cell(&self.0, slot)
    }

    /// Tells the CPU that [`LeafRead::cell`] will be asked for a slot, if there is that slot.
    #[inline]
    pub fn prefetch_cell(&self, slot: usize) {
        node::prefetch_cell(&self.0, slot);
    }

    /// The key of a slot.
    pub fn key(&self, slot: usize) -> Vec<u8> {
        [self.prefix(), self.suffix(slot)].concat()
    }

    /// What all keys of the leaf begin with.
    pub fn prefix(&self) -> &[u8] {
        node::prefix(&self.0)
    }

    /// The key of a slot without the prefix.
    #[inline]
    pub fn suffix(&self, slot: usize) -> &[u8] {
        node::suffix(&self.0, slot)
    }

    /// Lowest key that the leaf may hold.
    pub fn lower(&self) -> &[u8] {
        node::lower(&self.0)
    }

    /// First key that the leaf may not hold; `None` for the last leaf.
    pub fn upper(&self) -> Option<&[u8]> {
        node::upper(&self.0)
    }
}

/// A leaf latched by an mtr, and the place of a key in it.
#[derive(Debug, Clone, Copy)]
pub struct LeafSlot {
    /// The leaf.
    pub leaf: PageId,
    /// The key's slot, or where it would go.
    pub slot: usize,
    /// Whether the key is there.
    pub found: bool,
}

impl LeafSlot {
    /// The place of a key that a latched leaf covers.
    #[inline]
    pub fn find(mtr: &Mtr<'_>, leaf: PageId, key: &[u8]) -> LeafSlot {
        let (slot, found) = node::search(mtr.page(leaf), key);
        LeafSlot { leaf, slot, found }
    }

    /// The first half of [`LeafSlot::find`]; tells the CPU what the second will look at.
    #[inline]
    pub fn near(mtr: &Mtr<'_>, leaf: PageId, key: &[u8]) -> Ties {
        let page = mtr.page(leaf);
        let ties = node::ties(page, key);
        node::prefetch_ties(page, ties);
        ties
    }

    /// The second half of [`LeafSlot::find`]; the leaf has not changed since the first.
    #[inline]
    pub fn settle(mtr: &Mtr<'_>, leaf: PageId, key: &[u8], near: Ties) -> LeafSlot {
        let (slot, found) = node::settle(mtr.page(leaf), key, near);
        LeafSlot { leaf, slot, found }
    }

    /// The entry, if the key is there.
    #[inline]
    pub fn entry<'m>(&self, mtr: &'m Mtr<'_>) -> Option<Entry<'m>> {
        self.found.then(|| node::entry(mtr.page(self.leaf), self.slot))
    }

    /// Whether the leaf has room for the key with a value of `value_len` bytes in place of what is
    /// there.
    #[inline]
    pub fn fits(&self, mtr: &Mtr<'_>, key: &[u8], value_len: usize, versioned: bool) -> bool {
        let page = mtr.page(self.leaf);
        if self.found {
            node::fits_replace(page, self.slot, value_len, versioned)
        } else {
            node::fits_insert(page, key.len(), value_len, versioned)
        }
    }

    /// Puts an entry as it is, without undo; the leaf has room.
    pub fn set(&self, mtr: &mut Mtr<'_>, key: &[u8], entry: Entry<'_>) {
        let (page, slot) = (self.leaf, self.slot as u16);
        mtr.log(&Redo::Set { page, slot, insert: !self.found, key, entry });
    }

    /// Removes the entry; returns whether the leaf has become sparse.
    pub fn remove(&self, mtr: &mut Mtr<'_>) -> bool {
        mtr.log(&Redo::Remove { page: self.leaf, slot: self.slot as u16 });
        node::is_sparse(mtr.page(self.leaf))
    }

    /// Logs a transaction's write; leaf and undo page have room and are latched.
    #[inline]
    pub fn write(&self, mtr: &mut Mtr<'_>, write: &Write<'_>) {
        mtr.log(&Redo::Write(*write));
    }
}

impl Tree {
    /// Latches the leaf that `target` says, for reading.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn leaf<'s>(
        &self,
        s: &'s Storage,
        target: Target<'_>,
        scan: bool,
    ) -> Result<LeafRead<'s>, Stop> {
        Ok(LeafRead(self.read_leaf(s, target, scan)?))
    }

    /// Latches the leaf that covers `key` for a change, and finds the key in it.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn slot(&self, mtr: &mut Mtr<'_>, key: &[u8]) -> Result<LeafSlot, Stop> {
        self.slot_at(mtr, key, Hint::default())
    }

    /// As [`Tree::slot`], with a hint where the leaf is.
    ///
    /// # Errors
    /// [`Stop`]; if the hint was out of date, [`Stop::Retry`].
    #[inline]
    pub fn slot_at(&self, mtr: &mut Mtr<'_>, key: &[u8], hint: Hint) -> Result<LeafSlot, Stop> {
        let leaf = self.latch_leaf(mtr, key, hint)?;
        Ok(LeafSlot::find(mtr, leaf, key))
    }
}

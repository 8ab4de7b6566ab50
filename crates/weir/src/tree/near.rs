//! Leaves that were found last: who goes through neighbouring keys one by one finds the next one
//! there, without a descent.

use super::cursor::{LeafRead, LeafSlot};
use super::descent::Position;
use super::{Target, Tree};
use crate::storage::{Mtr, Stop, Storage, work};
use std::cell::Cell;
use weir_page::{Page, TreeId, node};

/// Trees whose leaves are remembered.
const TREES: usize = 4;

/// Where leaves were a moment ago. Whether a leaf still is there, and covers the key, is found out
/// when it is latched.
#[derive(Default)]
pub struct Near([Cell<Last>; TREES]);

#[derive(Clone, Copy, Default)]
struct Last {
    tree: TreeId,
    at: Option<Position>,
    /// Whether two descents in turn have come to it. Among keys in no order the next one isn't
    /// looked for there.
    again: bool,
}

impl Near {
    #[inline]
    fn last(&self, tree: Tree) -> &Cell<Last> {
        &self.0[tree.id.0 as usize % TREES]
    }

    /// Where to look before a descent.
    #[inline]
    fn promising(&self, tree: Tree) -> Option<Position> {
        let last = self.last(tree).get();
        last.at.filter(|_| last.again && last.tree == tree.id)
    }

    /// What was promising wasn't it.
    fn forget(&self, tree: Tree) {
        self.last(tree).take();
    }

    /// A descent has come to a leaf.
    #[inline]
    fn note(&self, tree: Tree, at: Position) {
        let before = self.last(tree).get();
        let again = before.tree == tree.id && before.at.is_some_and(|last| last.page == at.page);
        self.last(tree).set(Last { tree: tree.id, at: Some(at), again });
    }
}

/// Whether a leaf of the right tree is that of the key.
#[inline]
fn covers(leaf: &Page, key: &[u8]) -> bool {
    node::lower(leaf) <= key && node::upper(leaf).is_none_or(|upper| key < upper)
}

impl Tree {
    /// As [`Tree::slot`], in an mtr that holds nothing yet.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn slot_near(&self, mtr: &mut Mtr<'_>, key: &[u8], near: &Near) -> Result<LeafSlot, Stop> {
        if let Some(at) = near.promising(*self) {
            if mtr.latch_frame(at.frame, at.page).is_ok() {
                if self.is_leaf_at(mtr, &at) && covers(mtr.page(at.page), key) {
                    work::note(|work| work.pages_accessed += 1);
                    self.keep(mtr.storage(), &at);
                    return Ok(LeafSlot::find(mtr, at.page, key));
                }
                mtr.release(at.page);
            }
            near.forget(*self);
        }
        let at = self.descend_to_change(mtr.storage(), key)?;
        near.note(*self, at);
        self.latch_leaf_at(mtr, &at)?;
        Ok(LeafSlot::find(mtr, at.page, key))
    }

    /// Whether a latched page is the leaf that it was.
    #[inline]
    fn is_leaf_at(&self, mtr: &Mtr<'_>, at: &Position) -> bool {
        at.is_still_child(mtr.storage()) && self.owns(mtr.page(at.page), 0)
    }

    /// Latches the leaf that covers `key` for reading.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn leaf_near<'s>(
        &self,
        s: &'s Storage,
        key: &[u8],
        near: &Near,
    ) -> Result<LeafRead<'s>, Stop> {
        let _epoch = s.enter_epoch();
        if let Some(at) = near.promising(*self) {
            if let Ok(leaf) = self.read_leaf_at(s, &at, false)
                && covers(&leaf, key)
            {
                work::note(|work| work.pages_accessed += 1);
                return Ok(LeafRead(leaf));
            }
            near.forget(*self);
        }
        let at = self.descend_to_read(s, Target::At(key), false)?;
        near.note(*self, at);
        Ok(LeafRead(self.read_leaf_at(s, &at, false)?))
    }
}

//! Splits and merges.

use super::descent::{Parent, Position};
use super::{Target, Tree};
use crate::storage::{Fault, Mtr, Restart, Stop, Storage, retry};
use weir_page::node::{self, Builder, Split};
use weir_page::{PAGE_SIZE, Page, PageId, Redo, TxnId};

/// What an attempt to split came to.
enum Outcome {
    Done,
    /// The parent has no room for a separator of that length.
    ParentFull(usize),
}

/// Gain that makes freezing a leaf worth more than splitting it.
const FREEZE_GAIN: usize = PAGE_SIZE / 16;

impl Tree {
    /// Makes room in the leaf that covers `key`: drops versions older than `below` if that helps,
    /// splits it otherwise.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn make_room(&self, s: &Storage, key: &[u8], below: TxnId) -> Result<(), Fault> {
        loop {
            match retry(s, || self.try_split_leaf(s, key, below))? {
                Outcome::Done => return Ok(()),
                Outcome::ParentFull(room) => self.split_inner(s, key, 1, room)?,
            }
        }
    }

    /// Makes room for a separator of `room` bytes in the inner page of `level` that covers `key`.
    pub(super) fn split_inner(
        &self,
        s: &Storage,
        key: &[u8],
        level: u32,
        room: usize,
    ) -> Result<(), Fault> {
        loop {
            match retry(s, || self.try_split_inner(s, key, level, room))? {
                Outcome::Done => return Ok(()),
                Outcome::ParentFull(room) => self.split_inner(s, key, level + 1, room)?,
            }
        }
    }

    fn try_split_leaf(
        &self,
        s: &Storage,
        key: &[u8],
        below: TxnId,
    ) -> Result<Outcome, Restart<Fault>> {
        let mut mtr = s.mtr(Tree::restructure_need(2))?;
        let at = self.descend(s, Target::At(key), 0)?;
        self.latch_with_parent(&mut mtr, &at, 0)?;
        let leaf = mtr.page(at.page);
        if node::freezable(leaf, below) >= FREEZE_GAIN {
            mtr.log(&Redo::Freeze { page: at.page, below });
            mtr.commit();
            return Ok(Outcome::Done);
        }
        let (slot, found) = node::search(leaf, key);
        // Others may have made room meanwhile: alone in a leaf, an entry has room for any state of
        // it.
        if node::count(leaf) == usize::from(found) {
            return Ok(Outcome::Done);
        }
        let split = node::plan_leaf_split(leaf, slot, key);
        Ok(self.split_latched(mtr, &at, &split))
    }

    fn try_split_inner(
        &self,
        s: &Storage,
        key: &[u8],
        level: u32,
        room: usize,
    ) -> Result<Outcome, Restart<Fault>> {
        let mut mtr = s.mtr(Tree::restructure_need(2))?;
        let at = self.descend(s, Target::At(key), level)?;
        self.latch_with_parent(&mut mtr, &at, level)?;
        let page = mtr.page(at.page);
        if node::fits_child(page, room.max(node::prefix(page).len())) || node::count(page) < 2 {
            return Ok(Outcome::Done);
        }
        let slot = node::child_slot(page, key) + 1;
        let split = node::plan_inner_split(page, slot);
        Ok(self.split_latched(mtr, &at, &split))
    }

    /// Latches a page and, before it, the parent that it was found through, both unchanged since.
    fn latch_with_parent(&self, mtr: &mut Mtr<'_>, at: &Position, level: u32) -> Result<(), Stop> {
        if let Some(p) = at.parent {
            mtr.latch_if(p.frame, p.page, p.seen)?;
        }
        mtr.latch_frame(at.frame, at.page)?;
        if u32::from(mtr.page(at.page).level()) != level {
            return Err(Stop::Retry);
        }
        Ok(())
    }

    fn split_latched(&self, mtr: Mtr<'_>, at: &Position, split: &Split) -> Outcome {
        match at.parent {
            None => self.split_root(mtr, split),
            Some(parent) => self.split_below(mtr, at.page, &parent, split),
        }
    }

    fn split_below(
        &self,
        mut mtr: Mtr<'_>,
        left: PageId,
        parent: &Parent,
        split: &Split,
    ) -> Outcome {
        let separator = &split.separator[..];
        if !node::fits_child(mtr.page(parent.page), separator.len()) {
            return Outcome::ParentFull(separator.len());
        }
        let right = mtr.create();
        let page = mtr.page(left);
        let image =
            self.part(right, page, separator, node::upper(page), split.at..node::count(page));
        log_image(&mut mtr, right, &image);
        mtr.log(&Redo::Truncate { page: left, at: split.at as u16, upper: separator });
        self.insert_child(&mut mtr, parent.page, separator, right);
        mtr.commit();
        Outcome::Done
    }

    pub(super) fn insert_child(
        &self,
        mtr: &mut Mtr<'_>,
        parent: PageId,
        key: &[u8],
        child: PageId,
    ) {
        let slot = node::child_slot(mtr.page(parent), key) as u16 + 1;
        mtr.log(&Redo::InsertChild { page: parent, slot, key, child });
    }

    /// The root stays where it is: its contents move down into two new pages.
    fn split_root(&self, mut mtr: Mtr<'_>, split: &Split) -> Outcome {
        let (left, right) = (mtr.create(), mtr.create());
        let separator = &split.separator[..];
        let page = mtr.page(self.root());
        let low = self.part(left, page, node::lower(page), Some(separator), 0..split.at);
        let high = self.part(right, page, separator, None, split.at..node::count(page));
        self.grow_root(mtr, (left, &low), separator, (right, &high));
        Outcome::Done
    }

    /// Makes the root the parent of two new pages and commits.
    pub(super) fn grow_root(
        &self,
        mut mtr: Mtr<'_>,
        left: (PageId, &Page),
        separator: &[u8],
        right: (PageId, &Page),
    ) {
        log_image(&mut mtr, left.0, left.1);
        log_image(&mut mtr, right.0, right.1);
        let mut root = Builder::new(self.root(), self.id, left.1.level() + 1, &[], None);
        root.push_child(&[], left.0);
        root.push_child(separator, right.0);
        log_image(&mut mtr, self.root(), &root.finish());
        mtr.commit();
    }

    /// A page of the tree with some of the slots of another.
    pub(super) fn part(
        &self,
        id: PageId,
        from: &Page,
        lower: &[u8],
        upper: Option<&[u8]>,
        slots: std::ops::Range<usize>,
    ) -> Box<Page> {
        let mut b = Builder::new(id, self.id, from.level(), lower, upper);
        node::copy_slots(from, slots, &mut b);
        b.finish()
    }

    /// Merges the leaf that covers `key` with a neighbour if both together leave room, and then the
    /// pages above it.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn merge(&self, s: &Storage, key: &[u8]) -> Result<(), Fault> {
        for level in 0.. {
            let mut parent_is_sparse = false;
            while let Some(sparse) = self.merge_at(s, key, level)? {
                parent_is_sparse = sparse;
            }
            if !parent_is_sparse {
                break;
            }
        }
        Ok(())
    }

    /// As [`Tree::merge`]; where there is damage, pages stay apart, and whoever needs what is
    /// damaged is told.
    ///
    /// # Errors
    /// Other faults of the storage.
    pub fn merge_unless_damaged(&self, s: &Storage, key: &[u8]) -> Result<(), Fault> {
        match self.merge(s, key) {
            Err(fault) if fault.damaged_page().is_some() => Ok(()),
            merged => merged,
        }
    }

    /// Merges a page with its right neighbour if it can, or else with the left one: whether the
    /// parent has become sparse itself.
    fn merge_at(&self, s: &Storage, key: &[u8], level: u32) -> Result<Option<bool>, Fault> {
        // Each in an mtr of its own: pages are latched from left to right.
        match retry(s, || self.try_merge(s, key, level, 1))? {
            None => retry(s, || self.try_merge(s, key, level, 0)),
            merged => Ok(merged),
        }
    }

    /// Merges the page `further` slots to the right of the one that covers `key` into its left
    /// neighbour.
    fn try_merge(
        &self,
        s: &Storage,
        key: &[u8],
        level: u32,
        further: usize,
    ) -> Result<Option<bool>, Restart<Fault>> {
        let mut mtr = s.mtr(Tree::restructure_need(0))?;
        let at = self.descend(s, Target::At(key), level)?;
        let Some(p) = at.parent else { return Ok(None) };
        mtr.latch_if(p.frame, p.page, p.seen)?;
        let right_slot = p.slot + further;
        if right_slot == 0 || right_slot >= node::count(mtr.page(p.page)) {
            return Ok(None);
        }
        let left = node::child(mtr.page(p.page), right_slot - 1);
        let right = node::child(mtr.page(p.page), right_slot);
        mtr.latch(left)?;
        mtr.latch(right)?;
        let (l, r) = (mtr.page(left), mtr.page(right));
        // Damage is left to those who read it.
        let are_neighbours = node::upper(l) == Some(node::lower(r));
        if !self.owns(l, level) || !self.owns(r, level) || !are_neighbours {
            return Ok(None);
        }
        if !(node::is_sparse(l) || node::is_sparse(r)) || !node::can_merge(l, r) {
            return Ok(None);
        }
        let merged = node::merged(l, r);
        log_image(&mut mtr, left, &merged);
        mtr.log(&Redo::RemoveChild { page: p.page, slot: right_slot as u16 });
        mtr.free(right);
        let parent_is_sparse = node::is_sparse(mtr.page(p.page));
        mtr.commit();
        Ok(Some(parent_is_sparse))
    }
}

/// Logs the whole of `image` as the contents of `page`.
pub(super) fn log_image(mtr: &mut Mtr<'_>, page: PageId, image: &Page) {
    let mut body = Vec::with_capacity(PAGE_SIZE);
    image.append_body(&mut body);
    mtr.log(&Redo::Image { page, body: &body });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::Op;
    use crate::txn::tests::{commit, transactions, tree};

    /// Whoever found the leaf full comes late: others have split it, or removed its neighbours.
    #[test]
    fn an_entry_alone_in_its_leaf_has_room() {
        let txns = transactions(64);
        let tree = tree(&txns);
        commit(&txns, tree, b"key", Op::Insert(&[1; 3900]));
        let leaf = |key: &[u8]| tree.leaf(&txns.storage, Target::At(key), false).unwrap().len();
        tree.make_room(&txns.storage, b"key", TxnId(0)).unwrap();
        assert_eq!(leaf(b"key"), 1);
        commit(&txns, tree, b"next", Op::Insert(&[1; 3900]));
        tree.make_room(&txns.storage, b"next", TxnId(0)).unwrap();
        assert_eq!((leaf(b"key"), leaf(b"next")), (1, 1), "the leaf of two has been split");
    }
}

//! What a write leaves out because the write before it in its group says the same.
//!
//! The writes of a statement go to one undo page, for one transaction, and those of a run to one
//! tree and often to one leaf. An index entry of the Insert Benchmark takes 25 bytes behind
//! another, and 35 as the first (docs/results).

use super::Write;
use crate::types::{Lsn, PageId, TreeId, TxnId};
use crate::version::UndoPtr;

/// The last write of a group so far, if there is one: for each group one that begins empty, on both
/// sides.
#[derive(Debug, Clone, Copy, Default)]
pub struct Before(Option<Place>);

/// Where a write went, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub leaf: PageId,
    pub prev: Lsn,
    pub slot: u16,
    pub undo: UndoPtr,
    pub prev_undo: Lsn,
    pub txn: TxnId,
    pub tree: TreeId,
}

impl Place {
    #[inline]
    pub fn of(w: &Write<'_>, prev: Lsn, prev_undo: Lsn) -> Place {
        let Write { leaf, slot, undo, txn, tree, .. } = *w;
        Place { leaf, prev, slot, undo, prev_undo, txn, tree }
    }

    /// Whether a write that isn't its transaction's first may leave out what both share.
    #[inline]
    fn leads_to(&self, next: &Place) -> bool {
        let shared = |p: &Place| (p.undo.page, p.prev_undo, p.txn, p.tree);
        shared(self) == shared(next) && self.undo.offset < next.undo.offset
    }

    /// How far behind it the next one is, to which it leads.
    #[inline]
    fn step_to(&self, next: &Place) -> Step {
        let is_beside = (self.leaf, self.prev) == (next.leaf, next.prev) && self.slot <= next.slot;
        let slots = is_beside.then(|| next.slot - self.slot);
        Step { slots, undo_bytes: next.undo.offset - self.undo.offset }
    }
}

/// What a write says that leaves out what the one before it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// Slots from that one to this, if the leaf is the same.
    pub slots: Option<u16>,
    /// Bytes from its undo to this one's.
    pub undo_bytes: u16,
}

impl Before {
    /// Notes a write; returns how far behind the one before it is, if that says part of it.
    #[inline]
    pub(super) fn follow(&mut self, next: &Place, is_first: bool) -> Option<Step> {
        let before = self.0.as_ref().filter(|before| !is_first && before.leads_to(next));
        let step = before.map(|before| before.step_to(next));
        self.0 = Some(*next);
        step
    }

    /// The write before.
    pub(super) fn last(&self) -> Option<Place> {
        self.0
    }

    /// Notes a write that was read.
    pub(super) fn note(&mut self, read: Place) {
        self.0 = Some(read);
    }
}

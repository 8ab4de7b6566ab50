//! Leaves that one mini-transaction changes for several ascending keys.
//!
//! The first leaf is latched as for any write. The others are latched only if that needs no wait:
//! they are where hints say, in no order that others keep to.

use super::cursor::LeafSlot;
use super::{Hint, Tree};
use crate::storage::{Mtr, PER_MTR, Storage};
use smallvec::SmallVec;
use weir_page::node::{self, Ties};
use weir_page::{PageId, Redo};

/// Most leaves that one mtr changes: what it may dirty beside an undo page.
pub const LEAVES: usize = PER_MTR as usize - 1;
/// Hinted leaves that the CPU is told of before they are changed.
pub const LEAVES_AHEAD: usize = 2 * LEAVES;

/// A latched leaf that covers some keys of a run.
pub struct RunLeaf {
    leaf: PageId,
    /// Where the first of them lies, until somebody asks: all leaves are looked at before the first
    /// is changed.
    first: Option<Ties>,
    /// Where in the run they end.
    pub end: usize,
}

impl RunLeaf {
    /// The place of the next key of the run.
    #[inline]
    pub fn find(&mut self, mtr: &Mtr<'_>, key: &[u8]) -> LeafSlot {
        match self.first.take() {
            Some(near) => LeafSlot::settle(mtr, self.leaf, key, near),
            None => LeafSlot::find(mtr, self.leaf, key),
        }
    }

    /// Removes the entries of ascending slots; returns whether the leaf has become sparse.
    pub fn remove(&self, mtr: &mut Mtr<'_>, slots: &[usize]) -> bool {
        let page = self.leaf;
        // From the end, so that the others stay where they are.
        for neighbours in slots.chunk_by(|a, b| a + 1 == *b).rev() {
            let (slot, count) = (neighbours[0] as u16, neighbours.len() as u16);
            match count {
                1 => mtr.log(&Redo::Remove { page, slot }),
                _ => mtr.log(&Redo::RemoveRun { page, slot, count }),
            }
        }
        node::is_sparse(mtr.page(page))
    }
}

/// Finds out where the leaves of ascending keys are.
pub fn approach<'k>(
    s: &Storage,
    tree: Tree,
    keys: impl Iterator<Item = &'k [u8]>,
    hints: &mut Vec<Hint>,
) {
    hints.clear();
    // One for all: to enter an epoch is an atomic exchange, within another it is none.
    let _epoch = s.enter_epoch();
    hints.extend(keys.map(|key| tree.approach(s, key)));
    hints.iter_mut().for_each(|hint| hint.arrive(s));
}

/// As [`approach`]; reads the leaves that aren't in memory, side by side, as far as there is room
/// for them.
pub fn approach_and_read<'k>(
    s: &Storage,
    tree: Tree,
    keys: impl Iterator<Item = &'k [u8]>,
    hints: &mut Vec<Hint>,
) {
    approach(s, tree, keys, hints);
    read(s, hints);
}

/// Reads the leaves that aren't in memory, side by side, as far as there is room for them.
pub fn read(s: &Storage, hints: &mut [Hint]) {
    let missing: Vec<PageId> = hints.iter().filter_map(Hint::missing_leaf).collect();
    if !missing.is_empty() {
        s.load_many(&missing);
        hints.iter_mut().for_each(|hint| hint.arrive(s));
    }
}

/// The hint of a run's key, where there is one for each key or none at all.
#[inline]
pub fn hint_of(hints: &[Hint], n: usize) -> Hint {
    hints.get(n).copied().unwrap_or_default()
}

/// Latches the leaves of the first of `count` ascending keys, as many as one mtr changes: none if
/// the first can't be latched now. `hints`: of each key or of none.
#[inline]
pub fn latch<'k>(
    mtr: &mut Mtr<'_>,
    tree: Tree,
    count: usize,
    key: impl Fn(usize) -> &'k [u8],
    hints: &[Hint],
) -> SmallVec<[RunLeaf; LEAVES]> {
    let mut leaves = SmallVec::new();
    let mut end = 0;
    while end < count && leaves.len() < LEAVES {
        let hint = hint_of(hints, end);
        let leaf = match leaves.is_empty() {
            true => tree.latch_leaf(mtr, key(end), hint),
            false => tree.latch_leaf_beside(mtr, hint),
        };
        let Ok(leaf) = leaf else { break };
        let first = Some(LeafSlot::near(mtr, leaf, key(end)));
        end += 1;
        while end < count && covers_further(mtr, leaf, key(end), hint_of(hints, end)) {
            end += 1;
        }
        leaves.push(RunLeaf { leaf, first, end });
    }
    leaves
}

/// Whether a latched leaf of a smaller key covers this one, too. `hint`: of the key.
#[inline]
fn covers_further(mtr: &Mtr<'_>, leaf: PageId, key: &[u8], hint: Hint) -> bool {
    // The fence lies far from all else that is looked at.
    !hint.is_elsewhere(leaf) && node::upper(mtr.page(leaf)).is_none_or(|upper| key < upper)
}

//! Runs: ascending keys that are inserted into a tree together, several in one mini-transaction.
//!
//! Neighbours share a descent and a latch, and a few leaves share a mini-transaction: admission and a group of
//! the log cost nearly as much as the insert of an entry does. What can't be inserted by the way is left to
//! [`Txn::write`], one key at a time: a key that is there, alive or dead, a row that is held, a leaf or an
//! undo page that is full, a page that isn't in memory.
//!
//! The first leaf is latched as for any write. The others of the same mini-transaction are latched only if that
//! needs no wait: they are where hints say, in no order that others keep to.

use super::lane::NextUndo;
use super::{Op, Outcome, Txn, TxnError};
use crate::storage::{Fault, Mtr, Need, PER_MTR};
use crate::tree::cursor::{self, LeafSlot};
use crate::tree::{Hint, Tree};
use smallvec::SmallVec;
use weir_page::node::{MAX_INLINE, Ties};
use weir_page::version::Flags;
use weir_page::{Change, PageId};

/// Most leaves that one mtr changes: what it may dirty beside the undo page.
const LEAVES: usize = PER_MTR as usize - 1;
/// Most redo of one mtr, and of an entry beside its key and value.
const REDO_BYTES: usize = 32 << 10;
const REDO_PER_ENTRY: usize = 160;
/// Hinted leaves that the CPU is told of before they are changed.
const LEAVES_AHEAD: usize = 2 * LEAVES;

/// A key and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl Pair<'_> {
    fn redo_bytes(&self) -> usize {
        REDO_PER_ENTRY + self.key.len() + self.value.len()
    }
}

impl Txn {
    /// Inserts keys in ascending order; returns how many were inserted before one that is there already:
    /// all of them if there is none. `hints`: where the leaves are, of each key or of none.
    ///
    /// # Errors
    /// As [`Txn::write`]; those before were inserted.
    pub fn insert_run(
        &mut self,
        tree: Tree,
        run: &[Pair<'_>],
        hints: &[Hint],
    ) -> Result<usize, TxnError> {
        debug_assert!(run.is_sorted_by(|a, b| a.key <= b.key), "a run ascends");
        assert!(hints.is_empty() || hints.len() == run.len(), "a hint for each key, or none");
        let (mut done, mut told) = (0, 0);
        while done < run.len() {
            let tell_to = hints.len().min(done + LEAVES_AHEAD);
            for (hint, pair) in hints[..tell_to].iter().zip(run).skip(told) {
                hint.prefetch_insert(self.storage(), pair.key);
            }
            told = told.max(tell_to);
            let next = self.next_undo()?;
            let mut inserted =
                self.insert_some(tree, &run[done..], &hints[done.min(hints.len())..], next)?;
            if inserted == 0 && !hints.is_empty() {
                // Perhaps the hint was out of date.
                inserted = self.insert_some(tree, &run[done..], &[], next)?;
            }
            self.undo_pushed_by_inserts(inserted as u64);
            done += inserted;
            if inserted == 0 {
                let Pair { key, value } = run[done];
                if self.write(tree, key, Op::Insert(value))? == Outcome::Exists {
                    return Ok(done);
                }
                done += 1;
            }
        }
        self.overwrote_unseen = false;
        Ok(done)
    }

    /// Inserts the first keys of a run in one mtr; returns how many.
    fn insert_some(
        &self,
        tree: Tree,
        run: &[Pair<'_>],
        hints: &[Hint],
        mut next: NextUndo,
    ) -> Result<usize, Fault> {
        let (most, redo_bytes) = in_one_group(run);
        if most == 0 {
            return Ok(0);
        }
        let mut mtr = self.storage().mtr(Need::log(redo_bytes))?;
        let hint = |n: usize| hints.get(n).copied().unwrap_or_default();
        let leaves = latch_leaves(&mut mtr, tree, &run[..most], hint);
        let mut done = 0;
        'leaves: for Latched { leaf, first, end } in leaves {
            let mut near = Some(first);
            for pair in &run[done..end] {
                let at = match near.take() {
                    Some(near) => LeafSlot::settle(&mtr, leaf, pair.key, near),
                    None => LeafSlot::find(&mtr, leaf, pair.key),
                };
                if !self.insert_in_passing(&mut mtr, tree, *pair, at, next) {
                    break 'leaves;
                }
                next.first = None;
                done += 1;
            }
        }
        if done > 0 {
            mtr.commit();
        }
        Ok(done)
    }

    /// Inserts a key at its place, if nothing is in the way; whether it did.
    #[inline]
    fn insert_in_passing(
        &self,
        mtr: &mut Mtr<'_>,
        tree: Tree,
        pair: Pair<'_>,
        at: LeafSlot,
        next: NextUndo,
    ) -> bool {
        let Pair { key, value } = pair;
        if at.found
            || self.held_by_other(tree, key, &at, mtr).is_some()
            || !at.fits(mtr, key, value.len(), true)
        {
            return false;
        }
        let change = Change::Insert { flags: Flags { deleted: false, overflow: false }, value };
        self.log_write(mtr, tree, key, at, change, next).unwrap_or(false)
    }
}

/// A leaf that takes some keys of a run.
struct Latched {
    leaf: PageId,
    /// Where the first of them goes: all leaves are looked at before the first is changed.
    first: Ties,
    /// Where in the run they end.
    end: usize,
}

/// Latches the leaves of a run's first keys, as many as one mtr changes.
fn latch_leaves(
    mtr: &mut Mtr<'_>,
    tree: Tree,
    run: &[Pair<'_>],
    hint: impl Fn(usize) -> Hint,
) -> SmallVec<[Latched; LEAVES]> {
    let mut leaves = SmallVec::new();
    let mut end = 0;
    while end < run.len() && leaves.len() < LEAVES {
        let key = run[end].key;
        let leaf = match leaves.is_empty() {
            true => tree.latch_leaf(mtr, key, hint(end)),
            false => tree.latch_leaf_beside(mtr, hint(end)),
        };
        let Ok(leaf) = leaf else { break };
        let first = LeafSlot::near(mtr, leaf, key);
        end += 1;
        while end < run.len() && cursor::covers_further(mtr, leaf, run[end].key, hint(end)) {
            end += 1;
        }
        leaves.push(Latched { leaf, first, end });
    }
    leaves
}

/// How many of a run's first keys go into one mtr by their redo, and how much that is. None if the first
/// needs a chain.
fn in_one_group(run: &[Pair<'_>]) -> (usize, usize) {
    let (mut most, mut bytes) = (0, 0);
    for pair in run {
        let more = pair.redo_bytes();
        if pair.key.len() + pair.value.len() > MAX_INLINE || bytes + more > REDO_BYTES {
            break;
        }
        most += 1;
        bytes += more;
    }
    (most, bytes)
}

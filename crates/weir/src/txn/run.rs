//! Runs: ascending keys that are inserted into a tree together, or deleted, several in one
//! mini-transaction.
//!
//! Neighbours share a descent and a latch, and a few leaves share a mini-transaction
//! ([`crate::tree::run`]): admission and a group of the log cost nearly as much as the write of an
//! entry does. What can't be done by the way is left to [`Txn::write`], one key at a time: the
//! insert of a key that is there, alive or dead, an entry that hides another, a row that is held, a
//! leaf or an undo page that is full, a page that isn't in memory.

use super::lane::NextUndo;
use super::{Op, Outcome, Txn, TxnError};
use crate::storage::{Fault, Mtr, Need, to_make_room};
use crate::tree::cursor::LeafSlot;
use crate::tree::run::{self, LEAVES_AHEAD};
use crate::tree::{Hint, Tree};
use weir_page::node::MAX_INLINE;
use weir_page::version::Flags;
use weir_page::{Change, WRITE_BYTES};

/// Most redo of one mtr.
const REDO_BYTES: usize = 32 << 10;

/// A key and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl<'a> Pair<'a> {
    /// A key that needs no value.
    pub fn key_alone(key: &'a [u8]) -> Pair<'a> {
        Pair { key, value: &[] }
    }
}

/// What happens to the keys of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// They get their values.
    Insert,
    /// They go; their values don't matter.
    Delete,
    /// They get tombstones.
    Hide,
}

impl Way {
    /// What happens to one of them alone.
    fn op<'a>(self, pair: Pair<'a>) -> Op<'a> {
        match self {
            Way::Insert => Op::Insert(pair.value),
            Way::Delete => Op::Delete,
            Way::Hide => Op::Hide,
        }
    }

    /// Bytes of the key and of the value that it gets.
    fn bytes(self, pair: Pair<'_>) -> usize {
        pair.key.len() + self.op(pair).value().map_or(0, <[u8]>::len)
    }
}

impl Txn {
    /// Inserts keys in ascending order; returns how many were inserted before one that is there
    /// already: all of them if there is none. `hints`: where the leaves are, of each key or of
    /// none.
    ///
    /// # Errors
    /// As [`Txn::write`]; those before were inserted.
    pub fn insert_run(
        &mut self,
        tree: Tree,
        run: &[Pair<'_>],
        hints: &[Hint],
    ) -> Result<usize, TxnError> {
        self.write_run(tree, Way::Insert, run, hints)
    }

    /// Deletes keys in ascending order, whose values don't matter; returns how many were deleted
    /// before one that isn't there: all of them if there is none. `hints`: where the leaves are, of
    /// each key or of none.
    ///
    /// # Errors
    /// As [`Txn::write`]; those before were deleted.
    pub fn delete_run(
        &mut self,
        tree: Tree,
        run: &[Pair<'_>],
        hints: &[Hint],
    ) -> Result<usize, TxnError> {
        let _room = to_make_room();
        self.write_run(tree, Way::Delete, run, hints)
    }

    /// Puts tombstones, of keys in ascending order, into a staging tree; returns how many before
    /// one for which there is no room there: its key is there, dead and hiding none.
    ///
    /// # Errors
    /// As [`Txn::write`]; those before were put.
    pub(super) fn hide_run(&mut self, tree: Tree, run: &[Pair<'_>]) -> Result<usize, TxnError> {
        let _room = to_make_room();
        self.write_run(tree, Way::Hide, run, &[])
    }

    fn write_run(
        &mut self,
        tree: Tree,
        way: Way,
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
            let left = &run[done..];
            let mut written =
                self.write_some(tree, way, left, &hints[done.min(hints.len())..], next)?;
            if written == 0 && !hints.is_empty() {
                // Perhaps the hint was out of date.
                written = self.write_some(tree, way, left, &[], next)?;
            }
            self.undo_pushed(written as u64, written > 0 && way != Way::Insert);
            done += written;
            if written == 0 {
                let pair = run[done];
                match self.write(tree, pair.key, way.op(pair))? {
                    Outcome::Done(_) => done += 1,
                    Outcome::Exists | Outcome::Absent => return Ok(done),
                }
            }
        }
        self.overwrote_unseen = false;
        Ok(done)
    }

    /// Writes the first keys of a run in one mtr; returns how many.
    fn write_some(
        &self,
        tree: Tree,
        way: Way,
        run: &[Pair<'_>],
        hints: &[Hint],
        mut next: NextUndo,
    ) -> Result<usize, Fault> {
        let (most, redo_bytes) = in_one_group(way, run);
        if most == 0 {
            return Ok(0);
        }
        let mut mtr = self.storage().mtr(Need::log(redo_bytes))?;
        let leaves = run::latch(&mut mtr, tree, most, |n| run[n].key, hints);
        let mut done = 0;
        'leaves: for mut leaf in leaves {
            for pair in &run[done..leaf.end] {
                let at = leaf.find(&mtr, pair.key);
                if !self.write_in_passing(&mut mtr, tree, way, *pair, at, next) {
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

    /// Writes a key at its place, if nothing is in the way; whether it did.
    #[inline]
    fn write_in_passing(
        &self,
        mtr: &mut Mtr<'_>,
        tree: Tree,
        way: Way,
        pair: Pair<'_>,
        at: LeafSlot,
        next: NextUndo,
    ) -> bool {
        let Pair { key, value } = pair;
        let (change, len) = match (way, at.entry(mtr)) {
            (Way::Insert, None) => (Change::Insert { flags: Flags::default(), value }, value.len()),
            (Way::Hide, None) => (Change::Insert { flags: Flags::TOMBSTONE, value: &[] }, 0),
            (Way::Delete, Some(e)) if !e.flags.deleted && !e.flags.hides => {
                let (old_flags, old_version) = (e.flags, e.version);
                (Change::Delete { old_flags, old_version }, e.value.len())
            }
            _ => return false,
        };
        self.held_by_other(tree, key, &at, mtr).is_none()
            && at.fits(mtr, key, len, true)
            && self.log_write(mtr, tree, key, at, change, next).unwrap_or(false)
    }
}

/// How many of a run's first keys go into one mtr by their redo, and how much that is. None if the
/// first needs a chain.
fn in_one_group(way: Way, run: &[Pair<'_>]) -> (usize, usize) {
    let (mut most, mut redo_bytes) = (0, 0);
    for pair in run {
        let bytes = way.bytes(*pair);
        if bytes > MAX_INLINE || redo_bytes + WRITE_BYTES + bytes > REDO_BYTES {
            break;
        }
        most += 1;
        redo_bytes += WRITE_BYTES + bytes;
    }
    (most, redo_bytes)
}

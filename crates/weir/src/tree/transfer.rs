//! Moving entries from one tree into another that holds the same kind of entries.
//!
//! A step takes the entries of one leaf that go into one leaf of the other tree: an mtr latches
//! both, the receiving one first, and moves what it may. So an entry is in one of the two trees at
//! every moment, also after a crash, and each leaf is changed once for many entries. What an entry
//! hides there it takes the place of, and a tombstone goes together with it.

use super::transfer_plan::{End, MOVE_BYTES, Plan};
use super::{Hint, Target, Tree};
use crate::storage::{Fault, Need, Restart, Stop, Storage, retry};
use weir_page::node;
use weir_page::{Entry, Version};

/// What is to become of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It stays where it is.
    Stays,
    /// It may be moved, and has this version when it arrives. A tombstone, which everybody sees
    /// then, goes together with what it hides.
    Moves(Option<Version>),
    /// It is a tombstone whose transaction runs: what it hides is dead from now on, by this
    /// version, if it has none that somebody may need. The tombstone goes.
    Buries(Version),
}

/// Who has entries moved.
pub trait Mover {
    /// What is to become of an entry.
    fn fate(&self, entry: &Entry<'_>) -> Fate;
    /// An entry of this key is about to arrive, in the same mtr: its leaf is latched.
    fn arrives(&self, key: &[u8]);
    /// An entry is about to be buried by this version, in the same mtr: whether it may still be.
    fn buries(&self, by: Version) -> bool;
    /// Whether everybody sees what has this version.
    fn is_settled(&self, version: Option<Version>) -> bool;
}

/// What a step came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Moved {
    /// That many entries were moved.
    Entries {
        /// Their number.
        count: u64,
        /// Where to go on; `None` at the end of the tree.
        next: Option<Vec<u8>>,
        /// Whether the leaf that they came from has become sparse.
        sparse: bool,
        /// A key of the leaf that they went to, if that has become sparse.
        into_sparse: Option<Vec<u8>>,
    },
    /// The receiving leaf has no room for this key.
    Full(Vec<u8>),
    /// What a tombstone hides in the receiving leaf under this key has a chain, and is to be
    /// deleted otherwise.
    HidesChain(Vec<u8>),
}

impl Tree {
    /// Moves entries from `key` on into `to`: those of one leaf that go to one leaf, as far as
    /// `mover` says so and `to` has none under their keys but those that they hide.
    ///
    /// # Errors
    /// [`Restart`].
    pub fn move_step(
        &self,
        s: &Storage,
        to: Tree,
        key: &[u8],
        mover: &impl Mover,
    ) -> Result<Moved, Restart<Fault>> {
        let first = match self.first_to_move(s, key, mover)? {
            Ok(first) => first,
            Err(next) => {
                return Ok(Moved::Entries { count: 0, next, sparse: false, into_sparse: None });
            }
        };
        let mut mtr = s.mtr(Need::log(MOVE_BYTES + 1024))?;
        let into = to.latch_leaf(&mut mtr, &first, Hint::default())?;
        let from = self.latch_leaf(&mut mtr, &first, Hint::default())?;
        let (plan, end) = Plan::make(&mtr, from, into, &first, mover)?;
        let count = plan.carry_out(&mut mtr);
        let next = match end {
            End::Full(key) if count == 0 => return Ok(Moved::Full(key)),
            End::HidesChain(key) if count == 0 => return Ok(Moved::HidesChain(key)),
            End::Full(key) | End::HidesChain(key) | End::At(key) => Some(key),
            End::OfLeaf => node::upper(mtr.page(from)).map(<[u8]>::to_vec),
        };
        let is_sparse = |leaf| count > 0 && node::is_sparse(mtr.page(leaf));
        let (sparse, into_sparse) = (is_sparse(from), is_sparse(into).then_some(first));
        if count > 0 {
            mtr.commit();
        }
        Ok(Moved::Entries { count, next, sparse, into_sparse })
    }

    /// Key of the first entry that moves, in the leaf of `key` from there on; else where the next
    /// leaf begins, if there is one.
    fn first_to_move(
        &self,
        s: &Storage,
        key: &[u8],
        mover: &impl Mover,
    ) -> Result<Result<Vec<u8>, Option<Vec<u8>>>, Stop> {
        let leaf = self.leaf(s, Target::At(key), true)?;
        let from = leaf.seek(key).0;
        let first = (from..leaf.len()).find(|&slot| mover.fate(&leaf.entry(slot)) != Fate::Stays);
        Ok(first.map(|slot| leaf.key(slot)).ok_or_else(|| leaf.upper().map(<[u8]>::to_vec)))
    }

    /// Where the leaf that covers `key` ends, as its parent says; `None` for the last leaf. The
    /// leaf itself isn't read.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn end_of_leaf(&self, s: &Storage, key: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
        retry(s, || {
            let _epoch = s.enter_epoch();
            let Some(at) = self.approach_leaf(s, Target::At(key))?.parent else { return Ok(None) };
            let parent = s.pool.read_frame(at.frame, at.page, true).ok_or(Stop::Retry)?;
            if !at.is_unchanged(s) {
                return Err(Stop::Retry.into());
            }
            Ok::<_, Restart<Fault>>(match at.slot + 1 < node::count(&parent) {
                true => Some(node::key(&parent, at.slot + 1)),
                false => node::upper(&parent).map(<[u8]>::to_vec),
            })
        })
    }
}

//! An index's trees: its own, and that in which entries wait ([`Staging`]); which of them a write
//! of an entry goes to.

use crate::storage::Storage;
use crate::tree::{Hint, Tree, run};
use crate::txn::{Op, Outcome, Pair, Staging, Txn, TxnError};
use smallvec::SmallVec;
use std::sync::Arc;

/// Longest entry that is staged, in bytes: it fits a leaf, so none of its bytes are elsewhere.
const MAX_STAGED: usize = 3600;

/// Leaves that are looked up together.
const HINTS: usize = 32;

/// An index's trees.
#[derive(Debug, Clone)]
pub struct IndexDef {
    /// The tree.
    pub tree: Tree,
    /// The tree for entries whose leaf isn't in memory; none for a unique index.
    pub staging: Option<Arc<Staging>>,
    /// Snapshots before this one can't use it: it was built from newer rows.
    pub since: u64,
}

impl IndexDef {
    /// Its trees.
    pub fn trees(&self) -> impl Iterator<Item = Tree> + use<> {
        let staging = self.staging.as_ref().map(|staging| staging.tree);
        [Some(self.tree), staging].into_iter().flatten()
    }

    /// Inserts an entry, whose row the transaction holds. `hint` is of the main tree.
    #[inline]
    pub fn insert(
        &self,
        txn: &mut Txn,
        key: &[u8],
        value: &[u8],
        hint: Hint,
    ) -> std::result::Result<Outcome, TxnError> {
        if let Some(staging) = &self.staging
            && key.len() + value.len() <= MAX_STAGED
            && txn.is_staged(staging, &hint)?
        {
            return txn.insert_staged(staging, key, value);
        }
        let outcome = txn.write_at(self.tree, key, Op::Insert(value), hint)?;
        if outcome == Outcome::Exists && self.staging.is_some() {
            return self.insert_hidden(txn, key, value);
        }
        Ok(outcome)
    }

    /// Inserts an entry that the main tree has: it is hidden by a tombstone, or was.
    #[cold]
    fn insert_hidden(
        &self,
        txn: &mut Txn,
        key: &[u8],
        value: &[u8],
    ) -> std::result::Result<Outcome, TxnError> {
        if let Some(staging) = self.staging.as_ref().filter(|staging| !staging.is_empty()) {
            // Who scans both trees sees them anew.
            let _entered = staging.enter();
            if key.len() + value.len() <= MAX_STAGED {
                let revived = txn.write(staging.tree, key, Op::Revive(value))?;
                if revived != Outcome::Absent {
                    return Ok(revived);
                }
            } else if txn.write(staging.tree, key, Op::Expose)? != Outcome::Absent {
                return txn.write(self.tree, key, Op::Update(value));
            }
        }
        // Both have gone meanwhile, or there was no tombstone.
        txn.write(self.tree, key, Op::Insert(value))
    }

    /// Inserts entries in ascending order, whose rows the transaction holds; returns how many were
    /// inserted before one that is there already. `hints`: room for hints.
    pub fn insert_run(
        &self,
        txn: &mut Txn,
        storage: &Storage,
        run: &[Pair<'_>],
        hints: &mut Vec<Hint>,
    ) -> std::result::Result<usize, TxnError> {
        let mut done = 0;
        for part in run.chunks(HINTS) {
            run::approach(storage, self.tree, part.iter().map(|pair| pair.key), hints);
            let inserted = match self.staging.as_deref() {
                Some(staging) => self.insert_either_way(txn, staging, part, hints)?,
                None => txn.insert_run(self.tree, part, hints)?,
            };
            done += inserted;
            if inserted < part.len() {
                break;
            }
        }
        Ok(done)
    }

    /// Inserts ascending entries into the main tree or the staging tree, as each of their hints
    /// says.
    fn insert_either_way(
        &self,
        txn: &mut Txn,
        staging: &Staging,
        run: &[Pair<'_>],
        hints: &[Hint],
    ) -> std::result::Result<usize, TxnError> {
        let mut staged = [false; HINTS];
        for ((pair, hint), staged) in run.iter().zip(hints).zip(&mut staged) {
            let bytes = pair.key.len() + pair.value.len();
            *staged = bytes <= MAX_STAGED && txn.is_staged(staging, hint)?;
        }
        let mut done = 0;
        while done < run.len() {
            let way = staged[done];
            let same = staged[done..run.len()].iter().take_while(|staged| **staged == way).count();
            let part = done..done + same;
            let inserted = match way {
                true => txn.insert_run_staged(staging, &run[part])?,
                false => txn.insert_run(self.tree, &run[part.clone()], &hints[part])?,
            };
            done += inserted;
            if inserted < same {
                let Pair { key, value } = run[done];
                if way || self.insert_hidden(txn, key, value)? == Outcome::Exists {
                    break;
                }
                done += 1;
            }
        }
        Ok(done)
    }

    /// Deletes entries in ascending order, whose rows the transaction holds; returns how many come
    /// before one that isn't there. `hints`: room for hints.
    pub fn delete_run(
        &self,
        txn: &mut Txn,
        storage: &Storage,
        run: &[Pair<'_>],
        hints: &mut Vec<Hint>,
    ) -> std::result::Result<usize, TxnError> {
        for (n, part) in run.chunks(HINTS).enumerate() {
            let mut left: SmallVec<[Pair<'_>; HINTS]> = SmallVec::from_slice(part);
            // In this order: entries move from the staging tree to the main tree.
            if let Some(staging) = self.staging.as_ref().filter(|staging| !staging.is_empty()) {
                left.clear();
                for pair in part {
                    if txn.write(staging.tree, pair.key, Op::Delete)? == Outcome::Absent {
                        left.push(*pair);
                    }
                }
            }
            run::approach(storage, self.tree, left.iter().map(|pair| pair.key), hints);
            if let Some(staging) = &self.staging {
                hide_staged(txn, staging, &mut left, hints)?;
            }
            run::read(storage, hints);
            let deleted = txn.delete_run(self.tree, &left, hints)?;
            if let Some(missing) = left.get(deleted) {
                let before = part.iter().take_while(|pair| pair.key != missing.key).count();
                return Ok(n * HINTS + before);
            }
        }
        Ok(run.len())
    }

    /// Updates or deletes an entry, whose row the transaction holds, where it is. One that becomes
    /// too long to be staged goes to the main tree; what is to be deleted there may get a
    /// tombstone. `hint`: of the main tree.
    #[inline]
    pub fn write_existing(
        &self,
        txn: &mut Txn,
        key: &[u8],
        op: Op<'_>,
        hint: Hint,
    ) -> std::result::Result<Outcome, TxnError> {
        // In this order: entries move from the staging tree to the main tree.
        if let Some(staging) = self.staging.as_ref().filter(|staging| !staging.is_empty()) {
            let too_long = op.value().filter(|value| key.len() + value.len() > MAX_STAGED);
            // Who scans both trees sees them anew.
            let _entered = too_long.map(|_| staging.enter());
            let staged_op = if too_long.is_some() { Op::Uncover } else { op };
            let outcome = txn.write(staging.tree, key, staged_op)?;
            match too_long {
                _ if outcome == Outcome::Absent => {}
                None => return Ok(outcome),
                Some(value) => return txn.write(self.tree, key, Op::Upsert(value)),
            }
        }
        if let (Some(staging), Op::Delete) = (&self.staging, op)
            && txn.is_hidden(staging, &hint)?
            && txn.hide_run_staged(staging, &[Pair::key_alone(key)])? == 1
        {
            return Ok(Outcome::Done(None));
        }
        txn.write_at(self.tree, key, op, hint)
    }
}

/// Puts tombstones of those of a run of ascending keys whose hints, of the main tree, say so: what
/// is left of the run, and of the hints, is to be deleted there.
fn hide_staged(
    txn: &mut Txn,
    staging: &Staging,
    run: &mut SmallVec<[Pair<'_>; HINTS]>,
    hints: &mut Vec<Hint>,
) -> std::result::Result<(), TxnError> {
    let mut staged = [false; HINTS];
    for (hint, staged) in hints.iter().zip(&mut staged) {
        *staged = txn.is_hidden(staging, hint)?;
    }
    let of_run = || run.iter().zip(staged);
    let to_hide: SmallVec<[Pair<'_>; HINTS]> =
        of_run().filter_map(|(pair, staged)| staged.then_some(*pair)).collect();
    if to_hide.is_empty() {
        return Ok(());
    }
    let mut hidden = txn.hide_run_staged(staging, &to_hide)?;
    let stays = staged.map(|staged| {
        let is_hidden = staged && hidden > 0;
        hidden -= usize::from(is_hidden);
        !is_hidden
    });
    let mut each = stays.iter();
    run.retain(|_| *each.next().expect("there is one for each"));
    let mut each = stays.iter();
    hints.retain(|_| *each.next().expect("there is one for each"));
    Ok(())
}

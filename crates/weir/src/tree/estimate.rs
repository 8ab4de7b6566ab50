//! How large a tree is, and how many entries a range has, from a few pages.
//!
//! A range is judged by the ways from the root to its two ends: where they part, the children between
//! them are counted, and further down what lies beside each way; pages that neither way touches count
//! as the average of those that they do. So a range within one leaf or two neighbours is counted
//! exactly. A tree is judged by walks to places evenly spread over it (Knuth, "Estimating the
//! efficiency of backtrack programs", 1975; here the places are fractions instead of random): each
//! leaf counts as many times as there are leaves for each walk.

use super::cursor::LeafRead;
use super::{Target, Tree};
use crate::storage::{Fault, Restart, Stop, Storage, retry};
use smallvec::SmallVec;
use weir_page::SharedPage;

/// A slot of an inner page on a way, and the number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    slot: usize,
    count: usize,
}

/// A way from the root: few trees are higher.
type Steps = SmallVec<[Step; 6]>;

/// Where a key lies.
struct Place {
    steps: Steps,
    /// Living entries of the leaf, and those before the key.
    alive: isize,
    before: isize,
}

impl Tree {
    /// Goes down to a leaf, by the slot that `choose` says of each inner page.
    fn walk<'s>(
        &self,
        s: &'s Storage,
        choose: &mut dyn FnMut(&SharedPage<'_>) -> usize,
    ) -> Result<(Steps, LeafRead<'s>), Stop> {
        let _epoch = s.enter_epoch();
        let mut steps = Steps::new();
        let at = self.descend_by(s, 0, |page| {
            let slot = choose(page);
            steps.push(Step { slot, count: page.count() });
            slot
        })?;
        Ok((steps, LeafRead(self.read_leaf_at(s, &at, true)?)))
    }

    /// The place of a key; without one, the end.
    fn place(&self, s: &Storage, key: Option<&[u8]>) -> Result<Place, Fault> {
        let target = key.map_or(Target::Last, Target::At);
        retry(s, || {
            let (steps, leaf) = self.walk(s, &mut |page| target.slot(page))?;
            let slot = key.map_or(leaf.len(), |key| leaf.seek(key).0);
            let before = leaf.alive(0..slot);
            let all = before + leaf.alive(slot..leaf.len());
            Ok::<_, Restart<Fault>>(Place { steps, alive: all, before })
        })
    }

    /// About how many living entries lie in `[low, high)`; of a staging tree, how many more there are for it than the main tree
    /// has.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn estimate_between(
        &self,
        s: &Storage,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<i64, Fault> {
        let (low, high) = (self.place(s, Some(low))?, self.place(s, high)?);
        let pairs = || low.steps.iter().zip(&high.steps);
        let Some(fork) = pairs().position(|(l, h)| l.slot != h.slot) else {
            return Ok((high.before - low.before) as i64);
        };
        let mut pages = 0.0;
        for (depth, (l, h)) in pairs().enumerate().skip(fork) {
            if depth == fork {
                pages = h.slot.saturating_sub(l.slot + 1) as f64;
                continue;
            }
            let average = (l.count + h.count) as f64 / 2.0;
            pages = pages * average + l.count.saturating_sub(l.slot + 1) as f64 + h.slot as f64;
        }
        let average = (low.alive + high.alive) as f64 / 2.0;
        let beside = low.alive - low.before + high.before;
        Ok((pages * average) as i64 + beside as i64)
    }

    /// Calls `visit` with some leaves, evenly spread, and for how many leaves each stands. Of a tree
    /// with up to `most` leaves, all are visited.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn sample(
        &self,
        s: &Storage,
        most: usize,
        visit: &mut dyn FnMut(f64, &LeafRead<'_>),
    ) -> Result<(), Fault> {
        let middle = self.walk_to(s, 0.5)?.0;
        if middle <= most as f64 {
            let mut visited = 0;
            let mut key = Vec::new();
            // The middle was an estimate: the tree may be larger.
            while visited < 4 * most {
                let leaf =
                    retry(s, || Ok::<_, Restart<Fault>>(self.leaf(s, Target::At(&key), true)?))?;
                visit(1.0, &leaf);
                visited += 1;
                match leaf.upper() {
                    Some(upper) => key = upper.to_vec(),
                    None => return Ok(()),
                }
            }
            return Ok(());
        }
        for n in 0..most {
            let (stands_for, leaf) = self.walk_to(s, (n as f64 + 0.5) / most as f64)?;
            visit(stands_for / most as f64, &leaf);
        }
        Ok(())
    }

    /// The leaf at a fraction of the tree, and how many leaves there are if all is as on the way to it.
    fn walk_to<'s>(&self, s: &'s Storage, at: f64) -> Result<(f64, LeafRead<'s>), Fault> {
        retry(s, || {
            let mut rest = at;
            let (steps, leaf) = self.walk(s, &mut |page| {
                let count = page.count().max(1);
                let slot = ((rest * count as f64) as usize).min(count - 1);
                rest = rest * count as f64 - slot as f64;
                slot
            })?;
            let leaves = steps.iter().map(|step| step.count as f64).product();
            Ok::<_, Restart<Fault>>((leaves, leaf))
        })
    }
}

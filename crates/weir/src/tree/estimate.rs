//! How large a tree is, and how many entries a range has, from a few pages; its leaves, from those
//! above them.
//!
//! A range is judged by the ways from the root to its two ends: where they part, the children
//! between them are counted, and further down what lies beside each way; inner pages that neither
//! way touches count as the average of those that they do, leaves as the average of some of them,
//! evenly spread: those at the ends say little, since where rows of one value come one after the
//! other, the last of its leaves is just being filled. So a range within one leaf or two neighbours
//! is counted exactly. A tree is judged by walks to places evenly spread over it (Knuth,
//! "Estimating the efficiency of backtrack programs", 1975; here the places are fractions instead
//! of random): each leaf counts as many times as there are leaves for each walk.

use super::cursor::LeafRead;
use super::{Target, Tree};
use crate::storage::{Fault, Restart, Stop, Storage, retry};
use smallvec::SmallVec;
use std::cmp::Ordering;
use weir_page::{SharedPage, node};

/// A slot of an inner page on a way, and the number of slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    slot: usize,
    count: usize,
}

/// A way from the root: few trees are higher.
type Steps = SmallVec<[Step; 6]>;

/// Leaves of a range that are looked at beside those at its ends.
const LEAVES_BETWEEN: usize = 8;

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

    /// About how many living entries lie in `[low, high)`; of a staging tree, how many more there
    /// are for it than the main tree has.
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
        let beside = low.alive - low.before + high.before;
        if pages == 0.0 {
            return Ok(beside as i64);
        }
        let looks = LEAVES_BETWEEN.min(pages as usize);
        let mut alive = 0;
        for n in 0..looks {
            // Both ends' leaves are passed over.
            let at = (1.5 + n as f64 * pages / looks as f64) / (pages + 2.0);
            alive += self.alive_between(s, fork, [&low.steps, &high.steps], at)?;
        }
        Ok((pages * alive as f64 / looks as f64) as i64 + beside as i64)
    }

    /// Living entries of the leaf at a fraction of what lies from one way, whose leaf counts, to
    /// another, which part at `fork`.
    fn alive_between(
        &self,
        s: &Storage,
        fork: usize,
        [low, high]: [&Steps; 2],
        at: f64,
    ) -> Result<isize, Fault> {
        // Where in the page at the fork a way leads to, in slots and parts of one.
        let place = |steps: &Steps, end: f64| {
            let below = steps[fork + 1..].iter().rev();
            let part = below.fold(end, |part, step| (step.slot as f64 + part) / step.count as f64);
            steps[fork].slot as f64 + part
        };
        let (from, to) = (place(low, 0.0), place(high, 1.0));
        let place = from + at * (to - from);
        retry(s, || {
            let (mut depth, mut rest) = (0, 0.0);
            let (_, leaf) = self.walk(s, &mut |page| {
                let slot = match depth.cmp(&fork) {
                    Ordering::Less => low[depth].slot as f64,
                    Ordering::Equal => place,
                    Ordering::Greater => rest * page.count() as f64,
                };
                depth += 1;
                rest = slot.fract();
                (slot as usize).min(page.count().saturating_sub(1))
            })?;
            Ok::<_, Restart<Fault>>(leaf.alive(0..leaf.len()))
        })
    }

    /// Calls `visit` with some leaves, evenly spread, and for how many leaves each stands. Of a
    /// tree with up to `most` leaves, all are visited.
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

    /// The leaf at a fraction of the tree, and how many leaves there are if all is as on the way to
    /// it.
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

    /// Number of leaves, but 0 if there is no entry. Reads no leaf unless it is the only one.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn leaves(&self, s: &Storage) -> Result<usize, Fault> {
        let (mut total, mut key) = (0, Vec::new());
        loop {
            let (leaves, upper) = retry(s, || self.leaves_below(s, &key))?;
            total += leaves;
            match upper {
                Some(upper) if upper > key => key = upper,
                Some(_) => return Err(Fault::stray_page(self.root())),
                None if total == 1 && retry(s, || self.is_one_empty_leaf(s))? => return Ok(0),
                None => return Ok(total),
            }
        }
    }

    fn is_one_empty_leaf(&self, s: &Storage) -> Result<bool, Restart<Fault>> {
        let leaf = self.leaf(s, Target::Last, true)?;
        Ok(leaf.len() == 0 && leaf.lower().is_empty() && leaf.upper().is_none())
    }

    /// Leaves below the lowest inner page on the way to `key`, and where the next begins.
    fn leaves_below(
        &self,
        s: &Storage,
        key: &[u8],
    ) -> Result<(usize, Option<Vec<u8>>), Restart<Fault>> {
        let root = s.read(self.root(), true)?;
        if root.level() == 0 {
            return Ok((1, None));
        }
        drop(root);
        let page = self.page_at(s, key, 1)?;
        Ok((node::count(&page), node::upper(&page).map(<[u8]>::to_vec)))
    }
}

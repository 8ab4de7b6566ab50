//! Filling the pages of a tree anew, in place.
//!
//! Entries that were deleted here and there leave pages that are half empty, but not so sparse that
//! two of them are merged ([`Tree::merge`]). Here each page takes what fits from its right
//! neighbours of the same parent, in an mtr of its own: the tree is whole at every moment, others
//! go on beside it, and no room is needed but that of the log. Where little would be won, all pages
//! of a parent stay as they are. Where keys are so long that a parent has few children, more is
//! left for another time.

use super::bulk::{Fill, ROOM};
use super::descent::{Parent, Position};
use super::restructure::log_image;
use super::{Target, Tree};
use crate::storage::{Fault, Mtr, Restart, Stop, Storage, retry};
use weir_page::node::{self, Split};
use weir_page::{Page, PageId, Redo, TxnId};

/// Neighbours that a page takes what they hold from, at a time: all are latched.
const NEIGHBOURS: usize = 4;

/// How a tree is reorganized.
#[derive(Clone, Copy)]
pub struct Plan {
    /// How full pages become.
    pub fill: Fill,
    /// Versions of transactions before this one are seen by everybody.
    pub below: TxnId,
}

impl Plan {
    /// How many bytes of a page that begins with `lower` are to be taken.
    fn room(self, lower: &[u8]) -> usize {
        ROOM - match self.fill {
            // For versions of rows that are changed.
            Fill::Whole => ROOM / 16,
            Fill::Spread => node::differing(lower, None, ROOM / 4),
        }
    }

    /// That of a page on average.
    fn usual_room(self) -> usize {
        ROOM - match self.fill {
            Fill::Whole => ROOM / 16,
            Fill::Spread => ROOM / 8,
        }
    }

    /// Whether so many pages hold so little that a sixteenth of them, or one of fewer, can go.
    fn is_worthwhile(self, pages: usize, bytes: usize) -> bool {
        bytes.div_ceil(self.usual_room()) + (pages / 16).max(1) <= pages
    }
}

/// What a step came to.
struct Step {
    freed: u64,
    /// Where to go on; `None` at the end of the tree.
    next: Option<Vec<u8>>,
}

/// The pages below one parent.
struct Siblings {
    /// Where each begins.
    firsts: Vec<Vec<u8>>,
    /// Of entries and fences, but for old versions.
    bytes: usize,
    /// Where the next parent's begin.
    next: Option<Vec<u8>>,
}

/// What a page takes from its right neighbours, which its parent names behind it.
struct Take<'p> {
    parent: &'p Parent,
    /// The page, and those that it takes all of.
    pages: Vec<PageId>,
    /// One more, and what it takes of that.
    part: Option<(PageId, Split)>,
}

/// Bytes that a leaf gets from dropping versions before `below`, if they are worth it.
fn freeze_gain(leaf: &Page, below: TxnId) -> usize {
    let gain = node::freezable(leaf, below);
    if gain >= ROOM / 16 { gain } else { 0 }
}

impl Tree {
    /// Fills the tree's pages; returns how many it has freed. `goes_on` is asked between the steps.
    ///
    /// # Errors
    /// Faults of the storage; what `goes_on` says. What was done stays.
    pub fn reorganize<E: From<Fault>>(
        &self,
        s: &Storage,
        plan: Plan,
        goes_on: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<u64, E> {
        let root = retry(s, || Ok::<_, Restart<Fault>>(s.read(self.root(), true)?.level()))?;
        let height = u32::from(root);
        let mut freed = 0;
        // Inner pages first: what has one parent then is filled together. They have less to hold
        // afterwards.
        for level in (1..height).rev().chain(0..height) {
            let mut from = Some(Vec::new());
            while let Some(key) = from {
                from = self.fill_siblings(s, plan, key, level, &mut freed, goes_on)?;
            }
        }
        Ok(freed)
    }

    /// Fills the pages of `level` that have the parent of the one that covers `key`; where the next
    /// parent's begin.
    fn fill_siblings<E: From<Fault>>(
        &self,
        s: &Storage,
        plan: Plan,
        key: Vec<u8>,
        level: u32,
        freed: &mut u64,
        goes_on: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let Siblings { firsts, bytes, next } =
            self.look_at_siblings(s, plan, &key, level, goes_on)?;
        if !plan.is_worthwhile(firsts.len(), bytes) {
            return Ok(next);
        }
        if level == 0 {
            firsts.iter().try_for_each(|first| self.freeze(s, first, plan.below))?;
        }
        let mut at = key;
        loop {
            let step = retry(s, || self.fill_step(s, plan, &at, level))?;
            *freed += step.freed;
            goes_on()?;
            match step.next {
                Some(key) if next.as_ref().is_none_or(|next| key < *next) => at = key,
                beyond => return Ok(beyond),
            }
        }
    }

    /// Reads the pages of `level` that have the parent of the one that covers `key`, which begins
    /// there.
    fn look_at_siblings<E: From<Fault>>(
        &self,
        s: &Storage,
        plan: Plan,
        key: &[u8],
        level: u32,
        goes_on: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Siblings, E> {
        let end = retry(s, || self.end_of_parent(s, key, level))?;
        let mut siblings = Siblings { firsts: Vec::new(), bytes: 0, next: end };
        let mut at = key.to_vec();
        let most = s.load_many_max();
        loop {
            goes_on()?;
            if level == 0 && siblings.firsts.len().is_multiple_of(most) {
                s.load_many(&self.leaves_between(s, Target::At(&at), Target::Last, most));
            }
            let (bytes, upper) = retry(s, || {
                let page = self.page_at(s, &at, level)?;
                let old = if level == 0 { freeze_gain(&page, plan.below) } else { 0 };
                let upper = node::upper(&page).map(<[u8]>::to_vec);
                Ok::<_, Restart<Fault>>((ROOM - node::free_bytes(&page) - old, upper))
            })?;
            siblings.firsts.push(at);
            siblings.bytes += bytes;
            match upper {
                Some(upper) if siblings.next.as_ref().is_none_or(|end| upper < *end) => at = upper,
                // Others may have given the parent another end.
                _ => return Ok(siblings),
            }
        }
    }

    /// Where the parent of the page of `level` that covers `key` ends.
    fn end_of_parent(
        &self,
        s: &Storage,
        key: &[u8],
        level: u32,
    ) -> Result<Option<Vec<u8>>, Restart<Fault>> {
        let parent = self.page_at(s, key, level + 1)?;
        Ok(node::upper(&parent).map(<[u8]>::to_vec))
    }

    /// Drops versions before `below` of the leaf that covers `key`, if that gives it much room.
    fn freeze(&self, s: &Storage, key: &[u8], below: TxnId) -> Result<(), Fault> {
        retry(s, || {
            if freeze_gain(&*self.page_at(s, key, 0)?, below) == 0 {
                return Ok(());
            }
            let mut mtr = s.mtr(Tree::restructure_need(0))?;
            let leaf = self.slot(&mut mtr, key)?.leaf;
            if freeze_gain(mtr.page(leaf), below) > 0 {
                mtr.log(&Redo::Freeze { page: leaf, below });
                mtr.commit();
            }
            Ok::<_, Restart<Fault>>(())
        })
    }

    /// Has the page of `level` that covers `key` take what fits from its right neighbours.
    fn fill_step(
        &self,
        s: &Storage,
        plan: Plan,
        key: &[u8],
        level: u32,
    ) -> Result<Step, Restart<Fault>> {
        let mut mtr = s.mtr(Tree::restructure_need(0))?;
        let at = self.descend(s, Target::At(key), level)?;
        let Position { page, frame, parent: Some(parent) } = at else {
            return Ok(Step { freed: 0, next: None });
        };
        mtr.latch_if(parent.frame, parent.page, parent.seen)?;
        mtr.latch_frame(frame, page)?;
        let first = mtr.page(page);
        if !self.owns(first, level) {
            return Err(Stop::Astray(page).into());
        }
        let upper = node::upper(first).map(<[u8]>::to_vec);
        let room = plan.room(node::lower(first));
        if ROOM - node::free_bytes(first) + ROOM / 8 > room {
            return Ok(Step { freed: 0, next: upper });
        }
        let take = self.plan_take(&mut mtr, page, &parent, room, level)?;
        if take.pages.len() == 1 && take.part.is_none() {
            return Ok(Step { freed: 0, next: upper });
        }
        // It may have room for more of them.
        let goes_on = take.part.is_none() && take.pages.len() > NEIGHBOURS;
        let freed = take.pages.len() as u64 - 1;
        let next = self.take(mtr, take);
        Ok(Step { freed, next: if goes_on { Some(key.to_vec()) } else { next } })
    }

    /// Latches the right neighbours that `page` can take something of.
    fn plan_take<'p>(
        &self,
        mtr: &mut Mtr<'_>,
        page: PageId,
        parent: &'p Parent,
        room: usize,
        level: u32,
    ) -> Result<Take<'p>, Stop> {
        let mut take = Take { parent, pages: vec![page], part: None };
        while take.pages.len() <= NEIGHBOURS {
            let slot = parent.slot + take.pages.len();
            if slot >= node::count(mtr.page(parent.page)) {
                break;
            }
            let right = node::child(mtr.page(parent.page), slot);
            mtr.latch(right)?;
            let left = mtr.page(take.pages[take.pages.len() - 1]);
            let page = mtr.page(right);
            // Damage is left to those who read it.
            if !self.owns(page, level) || node::upper(left) != Some(node::lower(page)) {
                break;
            }
            let mut all: Vec<_> = take.pages.iter().map(|&page| mtr.page(page)).collect();
            all.push(page);
            if node::fit_together(&all, room) {
                take.pages.push(right);
                continue;
            }
            let in_parent = mtr.page(parent.page);
            let has_room = |split: &Split| {
                let (old, new) = (node::key(in_parent, slot).len(), split.separator.len());
                new <= old || node::fits_child(in_parent, new)
            };
            take.part = node::plan_fill(&all, room).filter(has_room).map(|split| (right, split));
            break;
        }
        Ok(take)
    }

    /// Moves what is to be taken, and commits; where the page ends then.
    fn take(&self, mut mtr: Mtr<'_>, take: Take<'_>) -> Option<Vec<u8>> {
        let Take { parent, pages, part } = take;
        let first = pages[0];
        let mut all: Vec<_> = pages.iter().map(|&page| mtr.page(page)).collect();
        let (filled, rest) = match &part {
            None => {
                let last = all[all.len() - 1];
                (node::together(&all, node::count(last), node::upper(last)), None)
            }
            Some((page, split)) => {
                let last = mtr.page(*page);
                all.push(last);
                let filled = node::together(&all, split.at, Some(&split.separator));
                let slots = split.at..node::count(last);
                let rest = self.part(*page, last, &split.separator, node::upper(last), slots);
                (filled, Some(rest))
            }
        };
        let upper = node::upper(&filled).map(<[u8]>::to_vec);
        log_image(&mut mtr, first, &filled);
        for _ in 1..pages.len() + usize::from(part.is_some()) {
            mtr.log(&Redo::RemoveChild { page: parent.page, slot: parent.slot as u16 + 1 });
        }
        if let (Some((page, split)), Some(rest)) = (&part, rest) {
            log_image(&mut mtr, *page, &rest);
            self.insert_child(&mut mtr, parent.page, &split.separator, *page);
        }
        pages[1..].iter().for_each(|&page| mtr.free(page));
        mtr.commit();
        upper
    }
}

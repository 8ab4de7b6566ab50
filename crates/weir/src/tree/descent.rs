//! The way down from the root: inner pages are read without latches, each step validated.

use super::Tree;
use crate::storage::latch::Seen;
use crate::storage::{Stop, Storage, work};
use std::sync::atomic::Ordering;
use weir_page::{PageId, SharedPage};

/// A level above all that there are.
pub(super) const LEVELS: u32 = 1 << 8;

/// Where a descent goes.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// The leaf that covers the key.
    At(&'a [u8]),
    /// The leaf that covers the keys just below the key.
    Below(&'a [u8]),
    /// The last leaf.
    Last,
}

impl Target<'_> {
    /// The slot of an inner page that leads there.
    #[inline]
    pub(super) fn slot(self, page: &SharedPage<'_>) -> usize {
        match self {
            Target::At(key) => page.child_slot(key),
            Target::Below(key) => page.child_slot_below(key),
            Target::Last => page.count().max(1) - 1,
        }
    }
}

/// The inner page that a descent came through, as it was.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parent {
    pub page: PageId,
    pub frame: u32,
    pub seen: Seen,
    pub slot: usize,
}

impl Parent {
    /// Whether it still is as it was.
    #[inline]
    pub fn is_unchanged(&self, s: &Storage) -> bool {
        s.pool.frame(self.frame).latch.validate(self.seen)
    }
}

/// A page that its parent names; not looked at yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Approach {
    pub page: PageId,
    pub parent: Option<Parent>,
}

impl Approach {
    /// Finds the page's frame and looks at it: its level, and what it has been seen as. Fails if
    /// the parent no longer says that this is the page, and if it isn't `above` it, the level that
    /// becomes this page's.
    #[inline]
    fn look(&self, s: &Storage, above: &mut u32) -> Result<(u32, u32, Seen), Stop> {
        let frame = s.pool.find(&s.store, self.page)?;
        let seen = s.pool.optimistic(frame, self.page)?;
        let level = u32::from(s.pool.frame(frame).level.load(Ordering::Acquire));
        if self.parent.is_some_and(|parent| !parent.is_unchanged(s)) {
            return Err(Stop::Retry);
        }
        if level >= *above {
            return Err(Stop::Astray(self.page));
        }
        *above = level;
        Ok((frame, level, seen))
    }

    /// The child that `choose` says of this inner page.
    #[inline]
    fn child(
        &self,
        s: &Storage,
        frame: u32,
        seen: Seen,
        choose: impl FnOnce(&SharedPage<'_>) -> usize,
    ) -> Result<Approach, Stop> {
        let shared = s.pool.shared_page(frame);
        let slot = choose(&shared);
        let (page, parent) = (shared.child(slot), Parent { page: self.page, frame, seen, slot });
        match parent.is_unchanged(s) {
            true => Ok(Approach { page, parent: Some(parent) }),
            false => Err(Stop::Retry),
        }
    }
}

/// A page that a descent arrived at; not latched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position {
    pub page: PageId,
    pub frame: u32,
    pub parent: Option<Parent>,
}

impl Position {
    /// Whether its parent, if it has one, still says that this is the page.
    #[inline]
    pub fn is_still_child(&self, s: &Storage) -> bool {
        self.parent.is_none_or(|parent| parent.is_unchanged(s))
    }
}

impl Tree {
    /// Goes down to the page of `level` that `target` says. The caller is in an epoch
    /// (`Storage::enter_epoch`).
    #[inline]
    pub(super) fn descend(
        &self,
        s: &Storage,
        target: Target<'_>,
        level: u32,
    ) -> Result<Position, Stop> {
        self.descend_by(s, level, |page| target.slot(page))
    }

    /// As [`Tree::descend`], by the slot that `choose` says of each inner page.
    #[inline]
    pub(super) fn descend_by(
        &self,
        s: &Storage,
        level: u32,
        mut choose: impl FnMut(&SharedPage<'_>) -> usize,
    ) -> Result<Position, Stop> {
        let mut at = Approach { page: self.root(), parent: None };
        let (mut above, mut pages) = (LEVELS, 0);
        loop {
            let (frame, here, seen) = at.look(s, &mut above)?;
            pages += 1;
            if here == level {
                work::note(|work| work.pages_accessed += pages);
                return Ok(Position { page: at.page, frame, parent: at.parent });
            }
            if here < level {
                return Err(Stop::Astray(at.page));
            }
            at = at.child(s, frame, seen, &mut choose)?;
        }
    }

    /// Goes down to where a leaf is known by number. The caller is in an epoch
    /// (`Storage::enter_epoch`).
    #[inline]
    pub(super) fn approach_leaf(&self, s: &Storage, target: Target<'_>) -> Result<Approach, Stop> {
        let mut at = Approach { page: self.root(), parent: None };
        let (mut above, mut pages) = (LEVELS, 0);
        loop {
            let (frame, here, seen) = at.look(s, &mut above)?;
            pages += 1;
            if here > 0 {
                at = at.child(s, frame, seen, |page| target.slot(page))?;
            }
            if here <= 1 {
                work::note(|work| work.pages_accessed += pages);
                return Ok(at);
            }
        }
    }

    /// The page that a descent to `key` lacks first.
    pub fn missing_page(&self, s: &Storage, key: &[u8]) -> Option<PageId> {
        let _epoch = s.enter_epoch();
        match self.descend(s, Target::At(key), 0) {
            Err(Stop::Load(page)) => Some(page),
            _ => None,
        }
    }
}

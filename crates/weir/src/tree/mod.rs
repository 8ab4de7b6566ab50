//! B+trees over mini-transactions.
//!
//! A tree is known by its root, which never moves: when the root splits, its contents move down
//! into two new pages. Descents read inner pages without latches, each step validated (optimistic
//! lock coupling; Leis, Haubenschild, Neumann, 2019), and latch the leaf. There are no links
//! between neighbours: whoever goes on does so by the fence key. Splits and merges are
//! mini-transactions of their own, made before the change that needs them is begun anew.
//!
//! This layer knows page contents through `weir_page::node`, and frames only through [`Mtr`] and
//! [`Storage::read`].

pub mod bulk;
mod check;
pub mod cursor;
mod damage;
mod descent;
pub mod destroy;
mod estimate;
mod near;
pub mod overflow;
pub mod reorganize;
mod restructure;
pub mod run;
mod transfer;
mod transfer_plan;

pub use damage::past_damage;
pub use descent::Target;
pub use near::Near;
pub use transfer::{Fate, Moved, Mover};

use crate::storage::{Mtr, Need, PageRead, Stop, Storage};
use descent::{Approach, Position};
use weir_page::record::empty_leaf;
use weir_page::{Kind, Page, PageId, Redo, TreeId, node};

/// A tree; its number is that of its root page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tree {
    /// The number.
    pub id: TreeId,
    /// Leaves that are changed are kept in memory before others.
    stays: bool,
}

/// Where a key's leaf was a moment ago. Whether it still is there is found out when it is latched:
/// a frame that has been used otherwise has another version.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hint {
    /// The leaf, as its parent names it.
    leaf: Option<Approach>,
    found: Found,
}

/// What is known of a hint's leaf.
#[derive(Debug, Clone, Copy, Default)]
enum Found {
    /// It was not looked at yet.
    #[default]
    Nothing,
    /// Its frame.
    At(u32),
    /// It was not in memory, or a page on the way was not.
    Missing,
}

impl Hint {
    /// Finds the frame of the leaf that was approached and tells the CPU that it is about to be
    /// used.
    #[inline]
    pub fn arrive(&mut self, s: &Storage) {
        let Some(leaf) = self.leaf else { return };
        self.found = match s.pool.find(&s.store, leaf.page) {
            Ok(frame) => {
                s.pool.prefetch_frame(frame);
                Found::At(frame)
            }
            Err(_) => Found::Missing,
        };
    }

    /// The leaf and its frame.
    #[inline]
    fn at(&self) -> Option<Position> {
        match (self.leaf, self.found) {
            (Some(Approach { page, parent }), Found::At(frame)) => {
                Some(Position { page, frame, parent })
            }
            _ => None,
        }
    }

    /// Whether it names a leaf.
    #[inline]
    pub fn is_known(&self) -> bool {
        matches!(self.found, Found::At(_))
    }

    /// Whether a page on the way, or the leaf itself, was not in memory.
    #[inline]
    pub fn is_missing(&self) -> bool {
        matches!(self.found, Found::Missing)
    }

    /// The leaf, if it is known and was not in memory.
    pub fn missing_leaf(&self) -> Option<PageId> {
        self.leaf.filter(|_| self.is_missing()).map(|leaf| leaf.page)
    }

    /// Whether it names another leaf than this.
    #[inline]
    pub fn is_elsewhere(&self, leaf: PageId) -> bool {
        self.at().is_some_and(|at| at.page != leaf)
    }

    /// The leaf, if it was in memory and has no unwritten change: a change of it costs a write.
    #[inline]
    pub fn clean_leaf(&self, s: &Storage) -> Option<PageId> {
        self.at().filter(|at| !s.pool.is_dirty(at.frame)).map(|at| at.page)
    }

    /// Tells the CPU that `key` is about to be inserted into the leaf.
    #[inline]
    pub fn prefetch_insert(&self, s: &Storage, key: &[u8]) {
        if let Found::At(frame) = self.found {
            s.pool.prefetch_insert(frame, key);
        }
    }
}

/// Redo that splitting, merging or filling pages takes at most.
const RESTRUCTURE_BYTES: usize = 64 << 10;

impl Tree {
    /// The tree with that number.
    pub const fn new(id: TreeId) -> Tree {
        Tree { id, stays: false }
    }

    /// The same, but leaves that are changed through this are kept in memory before those of
    /// others.
    pub fn staying(self) -> Tree {
        Tree { stays: true, ..self }
    }

    /// Its root page.
    pub fn root(&self) -> PageId {
        PageId(self.id.0)
    }

    /// Makes a new, empty tree in a running mtr that asked for a page.
    pub fn create(mtr: &mut Mtr<'_>) -> Tree {
        let root = mtr.create();
        Tree::init(mtr, root)
    }

    /// Makes the page, held by the mtr and new, the root of an empty tree.
    pub fn init(mtr: &mut Mtr<'_>, root: PageId) -> Tree {
        let id = TreeId(root.0);
        mtr.log(&Redo::Image { page: root, body: &empty_leaf(root, id) });
        Tree::new(id)
    }

    /// Latches the page of `level` that covers `key` for reading, as a scan does.
    fn page_at<'s>(&self, s: &'s Storage, key: &[u8], level: u32) -> Result<PageRead<'s>, Stop> {
        let _epoch = s.enter_epoch();
        let at = self.descend(s, Target::At(key), level)?;
        let page = s.pool.read_frame(at.frame, at.page, true).ok_or(Stop::Retry)?;
        if !at.is_still_child(s) {
            return Err(Stop::Retry);
        }
        match self.owns(&page, level) {
            true => Ok(page),
            false => Err(Stop::Astray(at.page)),
        }
    }

    /// Latches a leaf for reading. `scan` leaves its standing for replacement as it is.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn read_leaf<'s>(
        &self,
        s: &'s Storage,
        target: Target<'_>,
        scan: bool,
    ) -> Result<PageRead<'s>, Stop> {
        let _epoch = s.enter_epoch();
        let at = self.descend_to_read(s, target, scan)?;
        self.read_leaf_at(s, &at, scan)
    }

    /// Goes down to a leaf and tells the CPU that it is about to be read.
    #[inline]
    fn descend_to_read(
        &self,
        s: &Storage,
        target: Target<'_>,
        scan: bool,
    ) -> Result<Position, Stop> {
        let at = self.descend(s, target, 0)?;
        s.pool.prefetch_frame(at.frame);
        match target {
            Target::At(key) | Target::Below(key) if !scan => s.pool.prefetch_search(at.frame, key),
            _ => s.pool.prefetch_slots(at.frame),
        }
        Ok(at)
    }

    /// Latches the leaf that a descent arrived at for reading.
    #[inline]
    fn read_leaf_at<'s>(
        &self,
        s: &'s Storage,
        at: &Position,
        scan: bool,
    ) -> Result<PageRead<'s>, Stop> {
        let leaf = s.pool.read_frame(at.frame, at.page, scan).ok_or(Stop::Retry)?;
        if !at.is_still_child(s) {
            return Err(Stop::Retry);
        }
        if !self.owns(&leaf, 0) {
            return Err(Stop::Astray(at.page));
        }
        Ok(leaf)
    }

    /// Latches the leaf that covers `key` for a change.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn latch_leaf(&self, mtr: &mut Mtr<'_>, key: &[u8], hint: Hint) -> Result<PageId, Stop> {
        let at = match hint.at() {
            Some(at) => at,
            None => self.descend_to_change(mtr.storage(), key)?,
        };
        match self.latch_leaf_at(mtr, &at) {
            // A hint may be to a root that has grown since.
            Err(Stop::Astray(_)) if hint.is_known() => Err(Stop::Retry),
            latched => latched.map(|()| at.page),
        }
    }

    /// Goes down to a key's leaf and tells the CPU that it is about to be changed.
    #[inline]
    fn descend_to_change(&self, s: &Storage, key: &[u8]) -> Result<Position, Stop> {
        let at = self.descend(s, Target::At(key), 0)?;
        s.pool.prefetch_insert(at.frame, key);
        Ok(at)
    }

    /// Latches the leaf that a descent arrived at for a change.
    #[inline]
    fn latch_leaf_at(&self, mtr: &mut Mtr<'_>, at: &Position) -> Result<(), Stop> {
        let s = mtr.storage();
        mtr.latch_frame(at.frame, at.page)?;
        if !at.is_still_child(s) {
            return Err(Stop::Retry);
        }
        if !self.owns(mtr.page(at.page), 0) {
            return Err(Stop::Astray(at.page));
        }
        self.keep(s, at);
        Ok(())
    }

    /// Has a leaf that is changed stay in memory, if that is for the tree.
    #[inline]
    fn keep(&self, s: &Storage, at: &Position) {
        if self.stays {
            s.pool.frame(at.frame).keep();
        }
    }

    /// Latches the leaf that a hint names, in an mtr that holds others, if that needs no wait.
    /// There is no descent, which might wait for somebody who waits for those.
    ///
    /// # Errors
    /// [`Stop::Retry`], without a hint or if it is out of date as well.
    #[inline]
    pub fn latch_leaf_beside(&self, mtr: &mut Mtr<'_>, hint: Hint) -> Result<PageId, Stop> {
        let at = hint.at().ok_or(Stop::Retry)?;
        mtr.try_latch_frame(at.frame, at.page)?;
        if !self.owns(mtr.page(at.page), 0) || !at.is_still_child(mtr.storage()) {
            return Err(Stop::Retry);
        }
        Ok(at.page)
    }

    /// Whether it is a page of this tree, at that level.
    #[inline]
    fn owns(&self, page: &Page, level: u32) -> bool {
        let kind = if level == 0 { Kind::Leaf } else { Kind::Inner };
        page.kind() == kind && u32::from(page.level()) == level && node::tree(page) == self.id
    }

    /// Finds the number of `key`'s leaf and tells the CPU that it is about to be looked up. With
    /// [`Hint::arrive`] it makes up the search for a leaf in two halves: whoever has several to
    /// find does the first half for all of them, so that the waits for memory overlap.
    #[inline]
    pub fn approach(&self, s: &Storage, key: &[u8]) -> Hint {
        let _epoch = s.enter_epoch();
        match self.approach_leaf(s, Target::At(key)) {
            Ok(approach) => {
                s.pool.prefetch_slot(s.store.map().slot(approach.page));
                Hint { leaf: Some(approach), found: Found::Nothing }
            }
            Err(Stop::Load(_)) => Hint { leaf: None, found: Found::Missing },
            Err(_) => Hint::default(),
        }
    }

    /// The leaf that `from` says and those after it, or before it if that is where `to` lies: as
    /// far as their parent knows them, and not beyond `to`. They needn't be in memory.
    pub fn leaves_between(
        &self,
        s: &Storage,
        from: Target<'_>,
        to: Target<'_>,
        most: usize,
    ) -> Vec<PageId> {
        let _epoch = s.enter_epoch();
        let parent_of = |target| self.approach_leaf(s, target).ok().and_then(|leaf| leaf.parent);
        let Some(parent) = parent_of(from) else { return Vec::new() };
        let shared = s.pool.shared_page(parent.frame);
        let first = parent.slot;
        let to = parent_of(to).filter(|to| to.page == parent.page).map(|to| to.slot);
        let slots: Vec<usize> = match from {
            Target::At(_) => {
                let last = to.unwrap_or(shared.count().saturating_sub(1));
                (first..=last).take(most).collect()
            }
            Target::Below(_) | Target::Last => (to.unwrap_or(0)..=first).rev().take(most).collect(),
        };
        let pages = slots.into_iter().map(|slot| shared.child(slot)).collect();
        if parent.is_unchanged(s) { pages } else { Vec::new() }
    }

    fn restructure_need(pages: usize) -> Need {
        Need::log(RESTRUCTURE_BYTES).and_pages(pages)
    }
}

//! Whether a record was made for a page like this: what [`Redo::apply`] relies on.
//!
//! Whoever logs a change sees to it beforehand. In recovery, pages and records are what was stored:
//! where they don't agree, though the checksums of both are right, that is told instead of ending
//! the process.

use super::{Change, Redo, Write};
use crate::node::{self, MAX_KEY};
use crate::page::{BODY, Kind, Page};
use crate::types::{PAGE_SIZE, PageId};
use crate::undo::{self, Undo};

impl Redo<'_> {
    /// Checks that the record can be applied to `page`, which is well formed and whose number is
    /// `id`.
    ///
    /// # Errors
    /// What doesn't fit, in words.
    #[inline]
    pub fn check(&self, id: PageId, page: &Page) -> Result<(), String> {
        match *self {
            Redo::Write(w) if id == w.undo.page => {
                let used = undo::used(page);
                ensure(w.undo.offset as usize == used, || {
                    format!("an undo record at {} goes behind {used}", w.undo.offset)
                })?;
                check_push(page, &w.undo_record())
            }
            Redo::Write(w) => check_write(page, &w),
            Redo::Set { slot, insert: true, key, entry, .. } => {
                let versioned = entry.version.is_some();
                check_insert(page, slot.into(), key, entry.value.len(), versioned)
            }
            Redo::Set { slot, entry, .. } => {
                check_slots(page, Kind::Leaf, slot, 1)?;
                let (len, versioned) = (entry.value.len(), entry.version.is_some());
                check_room(node::fits_replace(page, slot.into(), len, versioned))
            }
            Redo::Remove { slot, .. } => check_slots(page, Kind::Leaf, slot, 1),
            Redo::InsertRun { entries, .. } => entries.check(page),
            Redo::RemoveRun { slot, count, .. } => check_slots(page, Kind::Leaf, slot, count),
            Redo::Freeze { .. } => check_kind(page, Kind::Leaf),
            Redo::Truncate { at, upper, .. } => {
                check_slots(page, node_kind(page), 0, at)?;
                let can = node::can_truncate(page, at.into(), upper);
                ensure(can, || format!("it can't be made to end before slot {at}"))
            }
            Redo::InsertChild { slot, key, .. } => {
                ensure(slot > 0, || "a child goes before the first".into())?;
                check_slots(page, Kind::Inner, slot, 0)?;
                check_key(page, key.len())?;
                check_room(node::fits_child(page, key.len()))
            }
            Redo::RemoveChild { slot, .. } => check_slots(page, Kind::Inner, slot, 1),
            Redo::UndoPush { undo, .. } => check_push(page, &undo),
            Redo::UndoTail { used, .. } => {
                check_kind(page, Kind::Undo)?;
                let is_inside = (BODY..=PAGE_SIZE).contains(&used.into());
                ensure(is_inside, || format!("undo records end at {used}"))
            }
            Redo::UndoLink { .. } | Redo::UndoPurged { .. } => check_kind(page, Kind::Undo),
            Redo::LaneSet { .. } => check_kind(page, Kind::Lanes),
            Redo::OverflowLink { .. } => check_kind(page, Kind::Overflow),
            // What they need was checked when they were read.
            Redo::Image { .. }
            | Redo::Free { .. }
            | Redo::UndoInit { .. }
            | Redo::LanesInit { .. }
            | Redo::OverflowInit { .. }
            | Redo::Relocate { .. } => Ok(()),
        }
    }
}

#[inline]
fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

pub(super) fn check_kind(page: &Page, kind: Kind) -> Result<(), String> {
    ensure(page.kind() == kind, || format!("it is for another page than a {:?} one", page.kind()))
}

/// The page's kind if it is of a tree.
fn node_kind(page: &Page) -> Kind {
    if page.level() == 0 { Kind::Leaf } else { Kind::Inner }
}

/// That there are `count` slots from `slot` on.
fn check_slots(page: &Page, kind: Kind, slot: u16, count: u16) -> Result<(), String> {
    check_kind(page, kind)?;
    let (end, n) = (usize::from(slot) + usize::from(count), node::count(page));
    ensure(end <= n, || format!("it is for slots {slot}..{end}, and there are {n}"))
}

pub(super) fn check_key(page: &Page, len: usize) -> Result<(), String> {
    let lens = node::prefix(page).len()..=MAX_KEY;
    ensure(lens.contains(&len), || format!("its key has {len} bytes, others {lens:?}"))
}

pub(super) fn check_room(fits: bool) -> Result<(), String> {
    ensure(fits, || "there is no room for it".into())
}

/// That an entry can go to `slot` of `n`.
pub(super) fn check_slot(slot: usize, n: usize) -> Result<(), String> {
    ensure(slot <= n, || format!("it is for slot {slot}, and there are {n}"))
}

fn check_push(page: &Page, undo: &Undo<'_>) -> Result<(), String> {
    check_kind(page, Kind::Undo)?;
    check_room(undo::fits(page, undo.size()))
}

fn check_insert(
    page: &Page,
    slot: usize,
    key: &[u8],
    value_len: usize,
    versioned: bool,
) -> Result<(), String> {
    check_kind(page, Kind::Leaf)?;
    check_slot(slot, node::count(page))?;
    check_key(page, key.len())?;
    check_room(node::fits_insert(page, key.len(), value_len, versioned))
}

fn check_write(page: &Page, w: &Write<'_>) -> Result<(), String> {
    if let Change::Insert { value, .. } = w.change {
        return check_insert(page, w.slot.into(), w.key, value.len(), true);
    }
    check_slots(page, Kind::Leaf, w.slot, 1)?;
    let old = node::entry(page, w.slot.into()).value.len();
    let new = match w.change {
        Change::Update { front, back, new_middle, .. } => {
            ensure(front + back <= old, || {
                format!("it keeps more than the {old} bytes there are")
            })?;
            front + new_middle.len() + back
        }
        _ => old,
    };
    check_room(node::fits_replace(page, w.slot.into(), new, true))
}

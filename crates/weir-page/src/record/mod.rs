//! Redo records, and [`Redo::apply`], the one function that changes the bytes of a page.
//!
//! A record: u8 operation, varint page, varint previous LSN of the page divided by 8, operands of
//! the operation in the order of the fields below. Integers are LEB128 unless a width is said;
//! slices have their length in front. Operation 0 ends a group (its padding). A `Write` changes a
//! leaf and an undo page, and carries page and previous LSN of both; what it looks like, behind
//! another `Write` and elsewhere, is said where it is encoded (`codec`).
//!
//! Records are self-contained once they are read: what they do to a page follows from the page and
//! the operands alone, so pages can be brought up to date one by one, in any order among pages. A
//! group is read from its begin: a `Write` leaves out what the one before it says.

mod before;
mod check;
mod codec;
mod entries;

pub use before::Before;
pub use entries::{Entries, EntriesBuilder};

use crate::node::{self, Builder};
use crate::page::{Kind, Page};
use crate::types::{Lsn, PageId, TreeId, TxnId};
use crate::undo::{self, State, Undo};
use crate::version::{Delta, Entry, Flags, UndoPtr, Version};
use crate::{lanes, overflow};

/// Most bytes of a record beside a key, values and other slices; not of a [`Write`].
pub const RECORD_BYTES: usize = 64;

/// Most bytes of a [`Write`] beside its key and values.
pub const WRITE_BYTES: usize = 128;

/// What a transaction's write does to a leaf entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// A new key.
    Insert {
        /// Whether the value is an overflow reference.
        flags: Flags,
        /// The value.
        value: &'a [u8],
    },
    /// Another value; also gives life to a dead entry.
    Update {
        /// Flags before.
        old_flags: Flags,
        /// Version before.
        old_version: Option<Version>,
        /// Flags after.
        flags: Flags,
        /// Bytes shared at the front of both values.
        front: usize,
        /// Bytes shared at their back.
        back: usize,
        /// What stands between in the old value.
        old_middle: &'a [u8],
        /// What stands between in the new value.
        new_middle: &'a [u8],
    },
    /// The entry dies, and hides none any more.
    Delete {
        /// Flags before.
        old_flags: Flags,
        /// Version before.
        old_version: Option<Version>,
    },
}

/// A transaction's write: the leaf entry and the record that takes it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write<'a> {
    /// The leaf.
    pub leaf: PageId,
    /// Slot of the key, or where it goes.
    pub slot: u16,
    /// Where the undo record goes: the end of its page.
    pub undo: UndoPtr,
    /// Whether it is the transaction's first record.
    pub first: bool,
    /// The transaction.
    pub txn: TxnId,
    /// The tree.
    pub tree: TreeId,
    /// The key.
    pub key: &'a [u8],
    /// What happens to the entry.
    pub change: Change<'a>,
}

impl<'a> Write<'a> {
    /// The record that takes the write back.
    pub fn undo_record(&self) -> Undo<'a> {
        let (tree, key) = (self.tree, self.key);
        match self.change {
            Change::Insert { flags, .. } if flags.hides => Undo::Hide { tree, key },
            Change::Insert { .. } => Undo::Insert { tree, key },
            Change::Update { old_flags, old_version, front, back, old_middle, .. } => {
                let delta = Delta { front, back, middle: old_middle };
                Undo::Update { tree, key, flags: old_flags, version: old_version, delta }
            }
            Change::Delete { old_flags, old_version } => {
                Undo::Delete { tree, key, flags: old_flags, version: old_version }
            }
        }
    }

    fn apply_leaf(&self, page: &mut Page) {
        let slot = self.slot as usize;
        let version = Some(Version { txn: self.txn, undo: self.undo });
        match self.change {
            Change::Insert { flags, value } => {
                let version = Some(Version { txn: self.txn, undo: self.undo.of_insert() });
                node::insert(page, slot, self.key, &Entry { flags, version, value });
            }
            Change::Update { flags, front, back, new_middle, .. } => {
                let delta = Delta { front, back, middle: new_middle };
                let value = delta.apply(node::entry(page, slot).value);
                node::replace(page, slot, &Entry { flags, version, value: &value });
            }
            Change::Delete { old_flags, .. } => {
                let value = node::entry(page, slot).value.to_vec();
                let flags = Flags { deleted: true, hides: false, ..old_flags };
                node::replace(page, slot, &Entry { flags, version, value: &value });
            }
        }
    }

    fn apply_undo(&self, page: &mut Page) {
        let at = undo::push(page, &self.undo_record(), self.first.then_some(self.txn));
        assert_eq!(at, self.undo.offset, "an undo record goes to the end of its page");
    }
}

/// A logged change. Fields named `page` are the page that changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redo<'a> {
    /// A transaction's write of a leaf and its undo page.
    Write(Write<'a>),
    /// Whole contents of a page ([`Page::append_body`]), LZ4-compressed in the log.
    Image {
        /// The page.
        page: PageId,
        /// Its body.
        body: &'a [u8],
    },
    /// The page is given up.
    Free {
        /// The page.
        page: PageId,
    },
    /// A leaf entry is put as it is, without undo: rollback, and trees without transactions.
    Set {
        /// The leaf.
        page: PageId,
        /// Slot of the key, or where it goes.
        slot: u16,
        /// Whether the key is new.
        insert: bool,
        /// The key.
        key: &'a [u8],
        /// Its state.
        entry: Entry<'a>,
    },
    /// A leaf entry is removed.
    Remove {
        /// The leaf.
        page: PageId,
        /// Its slot.
        slot: u16,
    },
    /// Leaf entries of new keys are put as they are.
    InsertRun {
        /// The leaf.
        page: PageId,
        /// The entries.
        entries: Entries<'a>,
    },
    /// Leaf entries of neighbouring slots are removed.
    RemoveRun {
        /// The leaf.
        page: PageId,
        /// The first slot.
        slot: u16,
        /// How many there are.
        count: u16,
    },
    /// Versions that everybody sees are dropped.
    Freeze {
        /// The leaf.
        page: PageId,
        /// Transactions before this one are seen by everybody.
        below: TxnId,
    },
    /// Slots from `at` on are dropped: they are on the right neighbour now.
    Truncate {
        /// The left page of a split.
        page: PageId,
        /// First slot to go.
        at: u16,
        /// The new upper fence.
        upper: &'a [u8],
    },
    /// An inner page gets a child.
    InsertChild {
        /// The inner page.
        page: PageId,
        /// Its slot.
        slot: u16,
        /// First key of the child's range.
        key: &'a [u8],
        /// The child.
        child: PageId,
    },
    /// An inner page loses a child.
    RemoveChild {
        /// The inner page.
        page: PageId,
        /// Its slot.
        slot: u16,
    },
    /// A page becomes the tail of an undo lane.
    UndoInit {
        /// The page.
        page: PageId,
        /// The lane.
        lane: u16,
        /// The tail before.
        prev: PageId,
        /// The transaction at work.
        txn: TxnId,
        /// Its state.
        state: State,
    },
    /// An undo page learns the next one of its lane.
    UndoLink {
        /// The page.
        page: PageId,
        /// The next one; 0 for none.
        next: PageId,
    },
    /// An undo record without a leaf.
    UndoPush {
        /// The undo page.
        page: PageId,
        /// Set for the transaction's first record.
        first: Option<TxnId>,
        /// The record.
        undo: Undo<'a>,
    },
    /// The end of a lane moves back, or its transaction ends.
    UndoTail {
        /// The undo page.
        page: PageId,
        /// End of the last record.
        used: u16,
        /// Offset of the last record.
        last: u16,
        /// The transaction.
        txn: TxnId,
        /// Its state.
        state: State,
    },
    /// Purge has been through the page up to an offset.
    UndoPurged {
        /// The undo page.
        page: PageId,
        /// First offset not done.
        from: u16,
    },
    /// The lane directory becomes empty.
    LanesInit {
        /// The page.
        page: PageId,
    },
    /// A lane's ends change.
    LaneSet {
        /// The directory.
        page: PageId,
        /// The lane.
        lane: u16,
        /// Oldest page.
        head: PageId,
        /// Newest page.
        tail: PageId,
    },
    /// A page becomes a link of an overflow chain.
    OverflowInit {
        /// The page.
        page: PageId,
        /// Bytes of the value.
        data: &'a [u8],
    },
    /// An overflow page learns the next one of its chain.
    OverflowLink {
        /// The page.
        page: PageId,
        /// The next one.
        next: PageId,
    },
    /// Images have moved; changes no page. The payload is the store's.
    Relocate {
        /// As the store encodes it.
        moves: &'a [u8],
    },
}

/// A record as read from the log, with the previous LSN of its page and, for a `Write`, of the undo
/// page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged<'a> {
    /// The record.
    pub redo: Redo<'a>,
    /// LSN of the record before it of its page.
    pub prev: Lsn,
    /// The same of the undo page of a `Write`.
    pub prev_undo: Lsn,
}

impl<'a> Redo<'a> {
    /// The page that changes (for a `Write`, the leaf); `None` for relocations.
    pub fn page(&self) -> Option<PageId> {
        Some(match *self {
            Redo::Write(w) => w.leaf,
            Redo::Image { page, .. }
            | Redo::Free { page }
            | Redo::Set { page, .. }
            | Redo::Remove { page, .. }
            | Redo::InsertRun { page, .. }
            | Redo::RemoveRun { page, .. }
            | Redo::Freeze { page, .. }
            | Redo::Truncate { page, .. }
            | Redo::InsertChild { page, .. }
            | Redo::RemoveChild { page, .. }
            | Redo::UndoInit { page, .. }
            | Redo::UndoLink { page, .. }
            | Redo::UndoPush { page, .. }
            | Redo::UndoTail { page, .. }
            | Redo::UndoPurged { page, .. }
            | Redo::LanesInit { page }
            | Redo::LaneSet { page, .. }
            | Redo::OverflowInit { page, .. }
            | Redo::OverflowLink { page, .. } => page,
            Redo::Relocate { .. } => return None,
        })
    }

    /// The second page that changes: the undo page of a `Write`.
    pub fn second_page(&self) -> Option<PageId> {
        match self {
            Redo::Write(w) => Some(w.undo.page),
            _ => None,
        }
    }

    /// Whether the page's former contents don't matter: redo of it needs no read.
    pub fn initialises(&self) -> bool {
        matches!(
            self,
            Redo::Image { .. }
                | Redo::Free { .. }
                | Redo::UndoInit { .. }
                | Redo::LanesInit { .. }
                | Redo::OverflowInit { .. }
        )
    }

    /// Changes `page`, whose number is `id`: the part of the record that concerns it.
    ///
    /// # Panics
    /// If the page isn't in the state that the record was made for; [`Redo::check`] says so
    /// beforehand.
    pub fn apply(&self, id: PageId, page: &mut Page) {
        match *self {
            Redo::Write(w) if id == w.undo.page => w.apply_undo(page),
            Redo::Write(w) => w.apply_leaf(page),
            Redo::Image { body, .. } => page.set_body(id, body),
            Redo::Free { .. } => page.reset(id, Kind::Blank, 0),
            Redo::Set { slot, insert: true, key, entry, .. } => {
                node::insert(page, slot as usize, key, &entry);
            }
            Redo::Set { slot, entry, .. } => node::replace(page, slot as usize, &entry),
            Redo::Remove { slot, .. } | Redo::RemoveChild { slot, .. } => {
                node::remove(page, slot as usize);
            }
            Redo::InsertRun { entries, .. } => entries.insert(page),
            Redo::RemoveRun { slot, count, .. } => {
                node::remove_run(page, slot as usize, count as usize);
            }
            Redo::Freeze { below, .. } => node::freeze(page, below),
            Redo::Truncate { at, upper, .. } => node::truncate(page, at as usize, upper),
            Redo::InsertChild { slot, key, child, .. } => {
                node::insert_child(page, slot as usize, key, child);
            }
            Redo::UndoInit { lane, prev, txn, state, .. } => {
                undo::init(page, id, lane, prev, txn, state);
            }
            Redo::UndoLink { next, .. } => undo::set_next(page, next),
            Redo::UndoPush { first, undo, .. } => {
                undo::push(page, &undo, first);
            }
            Redo::UndoTail { used, last, txn, state, .. } => {
                undo::set_tail(page, used, last, txn, state);
            }
            Redo::UndoPurged { from, .. } => undo::set_purge_from(page, from),
            Redo::LanesInit { .. } => lanes::init(page, id),
            Redo::LaneSet { lane, head, tail, .. } => lanes::set(page, lane, head, tail),
            Redo::OverflowInit { data, .. } => overflow::init(page, id, PageId::NONE, data),
            Redo::OverflowLink { next, .. } => overflow::set_next(page, next),
            Redo::Relocate { .. } => panic!("a relocation changes no page"),
        }
    }
}

/// Bytes in a group that are no record, though its checksum is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed redo record with operation number {op}")]
pub struct Malformed {
    /// The operation's number.
    pub op: u8,
}

/// An empty root leaf, as the body of an [`Redo::Image`].
pub fn empty_leaf(id: PageId, tree: TreeId) -> Vec<u8> {
    let mut body = Vec::new();
    Builder::new(id, tree, 0, &[], None).finish().append_body(&mut body);
    body
}

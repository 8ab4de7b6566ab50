//! Redo records, and [`Redo::apply`], the one function that changes the bytes of a page.
//!
//! A record: u8 operation, varint page, varint previous LSN of the page divided by 8, operands of
//! the operation in the order of the fields below. A `Write` changes a leaf and an undo page, and
//! carries page and previous LSN of both. Integers are LEB128 unless a width is said; slices have
//! their length in front. Operation 0 ends a group (its padding).
//!
//! Records are self-contained: what they do to a page follows from the page and the operands alone,
//! so pages can be brought up to date one by one, in any order among pages.

use crate::node::{self, Builder};
use crate::page::{Kind, Page, body_is_valid};
use crate::types::{Lsn, PAGE_SIZE, PageId, TreeId, TxnId};
use crate::undo::{self, State, Undo};
use crate::varint::{self, Input};
use crate::version::{Delta, Entry, Flags, UndoPtr, Version};
use crate::{lanes, overflow};

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
    /// The entry dies.
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
                node::insert(page, slot, self.key, &Entry { flags, version, value });
            }
            Change::Update { flags, front, back, new_middle, .. } => {
                let delta = Delta { front, back, middle: new_middle };
                let value = delta.apply(node::entry(page, slot).value);
                node::replace(page, slot, &Entry { flags, version, value: &value });
            }
            Change::Delete { old_flags, .. } => {
                let value = node::entry(page, slot).value.to_vec();
                let flags = Flags { deleted: true, ..old_flags };
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

/// A record as read from the log, with the previous LSN of its page and, for a `Write`, of the undo page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged<'a> {
    /// The record.
    pub redo: Redo<'a>,
    /// LSN of the record before it of its page.
    pub prev: Lsn,
    /// The same of the undo page of a `Write`.
    pub prev_undo: Lsn,
}

const WRITE_INSERT: u8 = 1;
const WRITE_UPDATE: u8 = 2;
const WRITE_DELETE: u8 = 3;
const IMAGE: u8 = 4;
const FREE: u8 = 5;
const SET: u8 = 6;
const REMOVE: u8 = 7;
const FREEZE: u8 = 8;
const TRUNCATE: u8 = 9;
const INSERT_CHILD: u8 = 10;
const REMOVE_CHILD: u8 = 11;
const UNDO_INIT: u8 = 12;
const UNDO_LINK: u8 = 13;
const UNDO_PUSH: u8 = 14;
const UNDO_TAIL: u8 = 15;
const UNDO_PURGED: u8 = 16;
const LANES_INIT: u8 = 17;
const LANE_SET: u8 = 18;
const OVERFLOW_INIT: u8 = 19;
const OVERFLOW_LINK: u8 = 20;
const RELOCATE: u8 = 21;

impl<'a> Redo<'a> {
    /// The page that changes (for a `Write`, the leaf); `None` for relocations.
    pub fn page(&self) -> Option<PageId> {
        Some(match *self {
            Redo::Write(w) => w.leaf,
            Redo::Image { page, .. }
            | Redo::Free { page }
            | Redo::Set { page, .. }
            | Redo::Remove { page, .. }
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
    /// If the page isn't in the state that the record was made for.
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

    /// Appends the record's stored form.
    ///
    /// # Panics
    /// If a previous LSN isn't a multiple of 8.
    pub fn encode(&self, prev: Lsn, prev_undo: Lsn, out: &mut Vec<u8>) {
        assert!((prev.0 | prev_undo.0).is_multiple_of(8), "groups begin at multiples of 8");
        let mut start = |op: u8, page: PageId| {
            out.push(op);
            varint::put(out, u64::from(page.0));
            varint::put(out, prev.0 / 8);
        };
        match *self {
            Redo::Write(w) => {
                let op = match w.change {
                    Change::Insert { .. } => WRITE_INSERT,
                    Change::Update { .. } => WRITE_UPDATE,
                    Change::Delete { .. } => WRITE_DELETE,
                };
                start(op, w.leaf);
                encode_write(&w, prev_undo, out);
            }
            Redo::Image { page, body } => {
                start(IMAGE, page);
                let packed = lz4_flex::block::compress(body);
                varint::put(out, body.len() as u64);
                put_slice(out, &packed);
            }
            Redo::Free { page } => start(FREE, page),
            Redo::Set { page, slot, insert, key, entry } => {
                start(SET, page);
                varint::put(out, u64::from(slot));
                out.push(u8::from(insert));
                put_slice(out, key);
                undo::put_state(out, entry.flags, entry.version);
                put_slice(out, entry.value);
            }
            Redo::Remove { page, slot } => {
                start(REMOVE, page);
                varint::put(out, u64::from(slot));
            }
            Redo::Freeze { page, below } => {
                start(FREEZE, page);
                varint::put(out, below.0);
            }
            Redo::Truncate { page, at, upper } => {
                start(TRUNCATE, page);
                varint::put(out, u64::from(at));
                put_slice(out, upper);
            }
            Redo::InsertChild { page, slot, key, child } => {
                start(INSERT_CHILD, page);
                varint::put(out, u64::from(slot));
                put_slice(out, key);
                varint::put(out, u64::from(child.0));
            }
            Redo::RemoveChild { page, slot } => {
                start(REMOVE_CHILD, page);
                varint::put(out, u64::from(slot));
            }
            Redo::UndoInit { page, lane, prev: before, txn, state } => {
                start(UNDO_INIT, page);
                varint::put(out, u64::from(lane));
                varint::put(out, u64::from(before.0));
                varint::put(out, txn.0);
                out.push(state as u8);
            }
            Redo::UndoLink { page, next } => {
                start(UNDO_LINK, page);
                varint::put(out, u64::from(next.0));
            }
            Redo::UndoPush { page, first, undo } => {
                start(UNDO_PUSH, page);
                varint::put(out, first.map_or(0, |t| t.0));
                undo.encode(out);
            }
            Redo::UndoTail { page, used, last, txn, state } => {
                start(UNDO_TAIL, page);
                varint::put(out, u64::from(used));
                varint::put(out, u64::from(last));
                varint::put(out, txn.0);
                out.push(state as u8);
            }
            Redo::UndoPurged { page, from } => {
                start(UNDO_PURGED, page);
                varint::put(out, u64::from(from));
            }
            Redo::LanesInit { page } => start(LANES_INIT, page),
            Redo::LaneSet { page, lane, head, tail } => {
                start(LANE_SET, page);
                varint::put(out, u64::from(lane));
                varint::put(out, u64::from(head.0));
                varint::put(out, u64::from(tail.0));
            }
            Redo::OverflowInit { page, data } => {
                start(OVERFLOW_INIT, page);
                put_slice(out, data);
            }
            Redo::OverflowLink { page, next } => {
                start(OVERFLOW_LINK, page);
                varint::put(out, u64::from(next.0));
            }
            Redo::Relocate { moves } => {
                start(RELOCATE, PageId::NONE);
                put_slice(out, moves);
            }
        }
    }

    /// Reads the next record of a group; `Ok(None)` at its end. `scratch` keeps an unpacked image.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no record.
    pub fn decode(
        input: &mut Input<'a>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Option<Logged<'a>>, Malformed> {
        match input.u8() {
            None | Some(0) => Ok(None),
            Some(op) => decode_operands(op, input, scratch).map(Some).ok_or(Malformed { op }),
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

fn put_slice(out: &mut Vec<u8>, bytes: &[u8]) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Operands of a `Write` after page and previous LSN: previous LSN of the undo page / 8, undo page,
/// u16 undo offset, slot * 2 + first, transaction, tree, key, then those of the change.
fn encode_write(w: &Write<'_>, prev_undo: Lsn, out: &mut Vec<u8>) {
    varint::put(out, prev_undo.0 / 8);
    varint::put(out, u64::from(w.undo.page.0));
    out.extend_from_slice(&w.undo.offset.to_le_bytes());
    varint::put(out, u64::from(w.slot) * 2 + u64::from(w.first));
    varint::put(out, w.txn.0);
    varint::put(out, u64::from(w.tree.0));
    put_slice(out, w.key);
    match w.change {
        Change::Insert { flags, value } => {
            out.push(flags.to_bits());
            put_slice(out, value);
        }
        Change::Update { old_flags, old_version, flags, front, back, old_middle, new_middle } => {
            undo::put_state(out, old_flags, old_version);
            out.push(flags.to_bits());
            varint::put(out, front as u64);
            varint::put(out, back as u64);
            put_slice(out, old_middle);
            put_slice(out, new_middle);
        }
        Change::Delete { old_flags, old_version } => undo::put_state(out, old_flags, old_version),
    }
}

fn page_id(input: &mut Input<'_>) -> Option<PageId> {
    Some(PageId(u32::try_from(input.varint()?).ok()?))
}

fn lsn(input: &mut Input<'_>) -> Option<Lsn> {
    Some(Lsn(input.varint()?.checked_mul(8)?))
}

fn u16(input: &mut Input<'_>) -> Option<u16> {
    u16::try_from(input.varint()?).ok()
}

/// A number that is at most the size of a page.
fn small(input: &mut Input<'_>) -> Option<usize> {
    input.varint().filter(|&v| v <= PAGE_SIZE as u64).map(|v| v as usize)
}

/// A transaction's number: 48 bits.
fn txn_id(input: &mut Input<'_>) -> Option<TxnId> {
    input.varint().filter(|&v| v < 1 << 48).map(TxnId)
}

fn state(input: &mut Input<'_>) -> Option<State> {
    Some(match input.u8()? {
        0 => State::Ended,
        1 => State::Active,
        2 => State::Prepared,
        _ => return None,
    })
}

fn decode_write<'a>(op: u8, leaf: PageId, input: &mut Input<'a>) -> Option<(Write<'a>, Lsn)> {
    let prev_undo = lsn(input)?;
    let undo = UndoPtr { page: page_id(input)?, offset: input.u16()? };
    let slot_first = input.varint()?;
    let slot = u16::try_from(slot_first / 2).ok()?;
    let first = slot_first & 1 != 0;
    let txn = txn_id(input)?;
    let tree = TreeId(u32::try_from(input.varint()?).ok()?);
    let key = input.slice()?;
    let change = match op {
        WRITE_INSERT => {
            Change::Insert { flags: Flags::from_bits(input.u8()?), value: input.slice()? }
        }
        WRITE_UPDATE => {
            let (old_flags, old_version) = undo::get_state(input)?;
            let flags = Flags::from_bits(input.u8()?);
            let (front, back) = (small(input)?, small(input)?);
            let (old_middle, new_middle) = (input.slice()?, input.slice()?);
            Change::Update { old_flags, old_version, flags, front, back, old_middle, new_middle }
        }
        _ => {
            let (old_flags, old_version) = undo::get_state(input)?;
            Change::Delete { old_flags, old_version }
        }
    };
    Some((Write { leaf, slot, undo, first, txn, tree, key, change }, prev_undo))
}

fn decode_operands<'a>(
    op: u8,
    input: &mut Input<'a>,
    scratch: &'a mut Vec<u8>,
) -> Option<Logged<'a>> {
    let page = page_id(input)?;
    let prev = lsn(input)?;
    let mut prev_undo = Lsn(0);
    let redo = match op {
        WRITE_INSERT | WRITE_UPDATE | WRITE_DELETE => {
            let (write, of_undo) = decode_write(op, page, input)?;
            prev_undo = of_undo;
            Redo::Write(write)
        }
        IMAGE => {
            let len = small(input)?;
            scratch.resize(len, 0);
            let unpacked = lz4_flex::block::decompress_into(input.slice()?, scratch).ok()?;
            if unpacked != len || !body_is_valid(scratch) {
                return None;
            }
            Redo::Image { page, body: scratch }
        }
        FREE => Redo::Free { page },
        SET => {
            let slot = u16(input)?;
            let insert = input.u8()? != 0;
            let key = input.slice()?;
            let (flags, version) = undo::get_state(input)?;
            let value = input.slice()?;
            Redo::Set { page, slot, insert, key, entry: Entry { flags, version, value } }
        }
        REMOVE => Redo::Remove { page, slot: u16(input)? },
        FREEZE => Redo::Freeze { page, below: TxnId(input.varint()?) },
        TRUNCATE => Redo::Truncate { page, at: u16(input)?, upper: input.slice()? },
        INSERT_CHILD => {
            let (slot, key) = (u16(input)?, input.slice()?);
            Redo::InsertChild { page, slot, key, child: page_id(input)? }
        }
        REMOVE_CHILD => Redo::RemoveChild { page, slot: u16(input)? },
        UNDO_INIT => {
            let (lane, before) = (u16(input)?, page_id(input)?);
            let txn = txn_id(input)?;
            Redo::UndoInit { page, lane, prev: before, txn, state: state(input)? }
        }
        UNDO_LINK => Redo::UndoLink { page, next: page_id(input)? },
        UNDO_PUSH => {
            let first = Some(txn_id(input)?).filter(|t| t.0 != 0);
            Redo::UndoPush { page, first, undo: Undo::decode(input)? }
        }
        UNDO_TAIL => {
            let (used, last) = (u16(input)?, u16(input)?);
            let txn = txn_id(input)?;
            Redo::UndoTail { page, used, last, txn, state: state(input)? }
        }
        UNDO_PURGED => Redo::UndoPurged { page, from: u16(input)? },
        LANES_INIT => Redo::LanesInit { page },
        LANE_SET => {
            let lane = u16(input).filter(|&l| (l as usize) < lanes::LANES)?;
            Redo::LaneSet { page, lane, head: page_id(input)?, tail: page_id(input)? }
        }
        OVERFLOW_INIT => Redo::OverflowInit {
            page,
            data: input.slice().filter(|d| d.len() <= overflow::CAPACITY)?,
        },
        OVERFLOW_LINK => Redo::OverflowLink { page, next: page_id(input)? },
        RELOCATE => Redo::Relocate { moves: input.slice()? },
        _ => return None,
    };
    Some(Logged { redo, prev, prev_undo })
}

/// An empty root leaf, as the body of an [`Redo::Image`].
pub fn empty_leaf(id: PageId, tree: TreeId) -> Vec<u8> {
    let mut body = Vec::new();
    Builder::new(id, tree, 0, &[], None).finish().append_body(&mut body);
    body
}

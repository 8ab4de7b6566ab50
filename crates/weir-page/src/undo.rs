//! Undo pages: the records of one undo lane, oldest first.
//!
//! | bytes | what |
//! |---|---|
//! | 34 u16 | used: end of the last record |
//! | 36 u16 | last: offset of the last record, 0 when the page has none |
//! | 38 u16 | lane |
//! | 40 u32, 44 u32 | previous and next page of the lane, 0 when there is none |
//! | 48 u48 | transaction that the last record belongs to |
//! | 54 u8 | its state: [`State`] |
//! | 55 u8 | bit 0: some record here has work for purge |
//! | 56 u16 | offset from which purge has not been through |
//! | 64.. | records |
//!
//! Record: u16 length, u16 offset of the record before it in this page (0: none), u8 kind (bit 7:
//! first of its transaction), u48 transaction if first, operands of the kind.

use crate::page::{BODY, Kind, Page};
use crate::types::{PAGE_SIZE, PageId, TreeId, TxnId};
use crate::varint::{self, Input, Output, Sink};
use crate::version::{Delta, Flags, Version};

const USED: usize = 34;
const LAST: usize = 36;
const LANE: usize = 38;
const PREV: usize = 40;
const NEXT: usize = 44;
const TXN: usize = 48;
const STATE: usize = 54;
const PURGE_FLAGS: usize = 55;
const PURGE_FROM: usize = 56;
const FIRST: u8 = 0x80;
const RECORD_HEADER: usize = 5;

/// What has become of the transaction that wrote the last record of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// It has ended; its records are history, or there are none.
    Ended = 0,
    /// It runs; after a crash it is rolled back.
    Active = 1,
    /// It is prepared; after a crash it waits for its coordinator.
    Prepared = 2,
}

/// How a write is taken back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undo<'a> {
    /// The key was not there: remove it.
    Insert {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
    },
    /// There was no tombstone of the key: remove it. Or, where it has been moved to the tree whose
    /// entry it hid, since it was put by a transaction that was running: that entry was alive,
    /// without a version, and with the value that it still has.
    Hide {
        /// The staging tree.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
    },
    /// The entry had another value.
    Update {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
        /// Flags before.
        flags: Flags,
        /// Version before.
        version: Option<Version>,
        /// Yields the value before from the one after.
        delta: Delta<'a>,
    },
    /// The entry was alive, with the value that it still has.
    Delete {
        /// The tree.
        tree: TreeId,
        /// The key.
        key: &'a [u8],
        /// Flags before.
        flags: Flags,
        /// Version before.
        version: Option<Version>,
    },
    /// The transaction was prepared under this name.
    Prepare {
        /// The coordinator's name of the transaction.
        xid: &'a [u8],
    },
    /// A chain of overflow pages was begun.
    Overflow {
        /// Its first page.
        first: PageId,
    },
    /// A tree was created.
    CreateTree {
        /// Its root.
        root: PageId,
    },
    /// A tree was dropped: nothing to take back, but pages to free once everybody sees it.
    DropTree {
        /// Its root.
        root: PageId,
    },
}

/// An undo record as it lies in its page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Offset of the next record.
    pub end: u16,
    /// Offset of the record before it in the page, 0 when it is the page's first.
    pub prev: u16,
    /// Set on the first record of a transaction.
    pub first: Option<TxnId>,
    /// The operands.
    pub undo: Undo<'a>,
}

impl<'a> Undo<'a> {
    fn kind(&self) -> u8 {
        match self {
            Undo::Insert { .. } => 1,
            Undo::Update { .. } => 2,
            Undo::Delete { .. } => 3,
            Undo::Prepare { .. } => 4,
            Undo::Overflow { .. } => 5,
            Undo::CreateTree { .. } => 6,
            Undo::DropTree { .. } => 7,
            Undo::Hide { .. } => 8,
        }
    }

    /// Whether purge has something to do once everybody sees the transaction.
    pub fn needs_purge(&self) -> bool {
        match self {
            Undo::Update { .. }
            | Undo::Delete { .. }
            | Undo::Hide { .. }
            | Undo::DropTree { .. } => true,
            Undo::Insert { .. }
            | Undo::Prepare { .. }
            | Undo::Overflow { .. }
            | Undo::CreateTree { .. } => false,
        }
    }

    /// Appends kind and operands (without the FIRST bit).
    pub fn encode(&self, out: &mut impl Sink) {
        out.put_u8(self.kind());
        self.encode_operands(out);
    }

    #[inline]
    fn encode_operands(&self, out: &mut impl Sink) {
        match self {
            Undo::Insert { tree, key } | Undo::Hide { tree, key } => put_key(out, *tree, key),
            Undo::Update { tree, key, flags, version, delta } => {
                put_key(out, *tree, key);
                put_state(out, *flags, *version);
                varint::put(out, delta.front as u64);
                varint::put(out, delta.back as u64);
                varint::put(out, delta.middle.len() as u64);
                out.put_bytes(delta.middle);
            }
            Undo::Delete { tree, key, flags, version } => {
                put_key(out, *tree, key);
                put_state(out, *flags, *version);
            }
            Undo::Prepare { xid } => {
                varint::put(out, xid.len() as u64);
                out.put_bytes(xid);
            }
            Undo::Overflow { first: page }
            | Undo::CreateTree { root: page }
            | Undo::DropTree { root: page } => varint::put(out, u64::from(page.0)),
        }
    }

    /// Reads kind and operands; `None` if they make no sense.
    pub fn decode(input: &mut Input<'a>) -> Option<Undo<'a>> {
        let kind = input.u8()?;
        Self::decode_operands(kind, input)
    }

    fn decode_operands(kind: u8, input: &mut Input<'a>) -> Option<Undo<'a>> {
        Some(match kind {
            1 => {
                let (tree, key) = get_key(input)?;
                Undo::Insert { tree, key }
            }
            2 => {
                let (tree, key) = get_key(input)?;
                let (flags, version) = get_state(input)?;
                let front = small(input.varint()?)?;
                let back = small(input.varint()?)?;
                let middle = input.slice()?;
                Undo::Update { tree, key, flags, version, delta: Delta { front, back, middle } }
            }
            3 => {
                let (tree, key) = get_key(input)?;
                let (flags, version) = get_state(input)?;
                Undo::Delete { tree, key, flags, version }
            }
            4 => Undo::Prepare { xid: input.slice()? },
            5 => Undo::Overflow { first: get_page(input)? },
            6 => Undo::CreateTree { root: get_page(input)? },
            7 => Undo::DropTree { root: get_page(input)? },
            8 => {
                let (tree, key) = get_key(input)?;
                Undo::Hide { tree, key }
            }
            _ => return None,
        })
    }

    /// Upper bound of the stored size, header included.
    pub fn size(&self) -> usize {
        let operands = match self {
            Undo::Insert { key, .. } | Undo::Hide { key, .. } => 8 + key.len(),
            Undo::Update { key, delta, .. } => 31 + key.len() + delta.middle.len(),
            Undo::Delete { key, .. } => 22 + key.len(),
            Undo::Prepare { xid } => 3 + xid.len(),
            Undo::Overflow { .. } | Undo::CreateTree { .. } | Undo::DropTree { .. } => 5,
        };
        RECORD_HEADER + 6 + operands
    }
}

fn small(v: u64) -> Option<usize> {
    (v <= PAGE_SIZE as u64).then_some(v as usize)
}

#[inline]
fn put_key(out: &mut impl Sink, tree: TreeId, key: &[u8]) {
    varint::put(out, u64::from(tree.0));
    varint::put(out, key.len() as u64);
    out.put_bytes(key);
}

fn get_key<'a>(input: &mut Input<'a>) -> Option<(TreeId, &'a [u8])> {
    let tree = TreeId(u32::try_from(input.varint()?).ok()?);
    Some((tree, input.slice()?))
}

fn get_page(input: &mut Input<'_>) -> Option<PageId> {
    Some(PageId(u32::try_from(input.varint()?).ok()?))
}

/// Flags and version: one byte, and 12 more if its bit 7 is set.
pub fn put_state(out: &mut impl Sink, flags: Flags, version: Option<Version>) {
    out.put_u8(flags.to_bits() | if version.is_some() { 0x80 } else { 0 });
    if let Some(v) = version {
        out.put_bytes(&v.to_bytes());
    }
}

/// The inverse of [`put_state`].
pub fn get_state(input: &mut Input<'_>) -> Option<(Flags, Option<Version>)> {
    let bits = input.u8()?;
    let version = if bits & 0x80 != 0 {
        Some(Version::from_bytes(input.bytes(Version::SIZE)?.try_into().ok()?))
    } else {
        None
    };
    Some((Flags::from_bits(bits), version))
}

/// Makes a page the empty tail of a lane.
pub fn init(p: &mut Page, id: PageId, lane: u16, prev: PageId, txn: TxnId, state: State) {
    p.reset(id, Kind::Undo, 0);
    p.set_u16(USED, BODY as u16);
    p.set_u16(LANE, lane);
    p.set_u32(PREV, prev.0);
    set_txn(p, txn, state);
    p.set_u16(PURGE_FROM, BODY as u16);
}

fn set_txn(p: &mut Page, txn: TxnId, state: State) {
    p.0[TXN..TXN + 6].copy_from_slice(&txn.0.to_le_bytes()[..6]);
    p.0[STATE] = state as u8;
}

/// End of the last record, in bytes from the start of the page.
#[inline]
pub fn used(p: &Page) -> usize {
    (p.u16(USED) as usize).clamp(BODY, PAGE_SIZE)
}

/// Offset of the last record; 0 when there is none.
pub fn last(p: &Page) -> u16 {
    p.u16(LAST)
}

/// The lane that the page belongs to.
pub fn lane(p: &Page) -> u16 {
    p.u16(LANE)
}

/// The page before this one in its lane.
pub fn prev(p: &Page) -> PageId {
    PageId(p.u32(PREV))
}

/// The page after this one in its lane.
pub fn next(p: &Page) -> PageId {
    PageId(p.u32(NEXT))
}

/// Sets the page after this one.
pub fn set_next(p: &mut Page, next: PageId) {
    p.set_u32(NEXT, next.0);
}

/// The transaction that wrote last, and its state.
pub fn txn(p: &Page) -> (TxnId, State) {
    let mut id = [0; 8];
    id[..6].copy_from_slice(&p.0[TXN..TXN + 6]);
    let state = match p.0[STATE] {
        1 => State::Active,
        2 => State::Prepared,
        _ => State::Ended,
    };
    (TxnId(u64::from_le_bytes(id)), state)
}

/// Whether a record of this page has work for purge.
pub fn needs_purge(p: &Page) -> bool {
    p.0[PURGE_FLAGS] & 1 != 0
}

/// Offset from which purge has not been through.
pub fn purge_from(p: &Page) -> u16 {
    p.u16(PURGE_FROM)
}

/// Sets the offset from which purge has not been through.
pub fn set_purge_from(p: &mut Page, from: u16) {
    p.set_u16(PURGE_FROM, from);
}

/// Whether a record of at most `size` bytes ([`Undo::size`]) fits.
#[inline]
pub fn fits(p: &Page, size: usize) -> bool {
    used(p) + size <= PAGE_SIZE
}

/// Appends a record and returns its offset.
///
/// # Panics
/// If it doesn't fit ([`fits`]).
pub fn push(p: &mut Page, undo: &Undo<'_>, first: Option<TxnId>) -> u16 {
    assert!(fits(p, undo.size()), "room is checked before a page changes");
    let (at, prev) = (used(p), last(p));
    let mut out = Output::new(&mut p.0[at + 2..]);
    out.put_bytes(&prev.to_le_bytes());
    match first {
        Some(txn) => {
            out.put_u8(undo.kind() | FIRST);
            out.put_bytes(&txn.0.to_le_bytes()[..6]);
        }
        None => out.put_u8(undo.kind()),
    }
    undo.encode_operands(&mut out);
    let len = 2 + out.len();
    p.set_u16(at, len as u16);
    p.set_u16(USED, (at + len) as u16);
    p.set_u16(LAST, at as u16);
    if let Some(txn) = first {
        set_txn(p, txn, State::Active);
    }
    if matches!(undo, Undo::Prepare { .. }) {
        p.0[STATE] = State::Prepared as u8;
    }
    if undo.needs_purge() {
        p.0[PURGE_FLAGS] |= 1;
    }
    at as u16
}

/// The record at `at`; `None` if there is none that makes sense.
pub fn record(p: &Page, at: u16) -> Option<Record<'_>> {
    let at = at as usize;
    if at < BODY || at + RECORD_HEADER > used(p) {
        return None;
    }
    let end = at + p.u16(at) as usize;
    if end > used(p) || end < at + RECORD_HEADER {
        return None;
    }
    let mut input = Input::new(&p.0[at + 4..end]);
    let kind = input.u8()?;
    let first = if kind & FIRST != 0 {
        let mut id = [0; 8];
        id[..6].copy_from_slice(input.bytes(6)?);
        Some(TxnId(u64::from_le_bytes(id)))
    } else {
        None
    };
    let undo = Undo::decode_operands(kind & !FIRST, &mut input)?;
    if !input.rest().is_empty() {
        return None;
    }
    let prev = p.u16(at + 2);
    ((prev as usize) < at).then_some(Record { end: end as u16, prev, first, undo })
}

/// Sets the end of the page back (or marks its transaction's new state).
pub fn set_tail(p: &mut Page, used: u16, last: u16, txn: TxnId, state: State) {
    assert!((BODY..=PAGE_SIZE).contains(&(used as usize)), "used {used} out of bounds");
    p.set_u16(USED, used);
    p.set_u16(LAST, last);
    set_txn(p, txn, state);
    if p.u16(PURGE_FROM) > used {
        p.set_u16(PURGE_FROM, used);
    }
    if used as usize == BODY {
        p.0[PURGE_FLAGS] &= !1;
    }
}

/// Checks that the page is well formed.
///
/// # Errors
/// What is wrong, in words.
pub fn validate(p: &Page) -> Result<(), String> {
    if p.kind() != Kind::Undo {
        return Err(format!("kind {:?}", p.kind()));
    }
    if used(p) != p.u16(USED) as usize {
        return Err(format!("the last record ends at {}", p.u16(USED)));
    }
    let (mut at, mut before) = (BODY as u16, 0);
    while (at as usize) < used(p) {
        let r = record(p, at).ok_or_else(|| format!("no record at offset {at}"))?;
        if r.prev != before {
            return Err(format!("record at {at} names {} as the one before, not {before}", r.prev));
        }
        if r.undo.needs_purge() && !needs_purge(p) {
            return Err(format!("record at {at} has work for purge, the page has none"));
        }
        (before, at) = (at, r.end);
    }
    if before != last(p) {
        return Err(format!("the last record is at {before}, not {}", last(p)));
    }
    if !(BODY..=used(p)).contains(&(purge_from(p) as usize)) {
        return Err(format!("purge has been through to {}", purge_from(p)));
    }
    Ok(())
}

//! The stored form of redo records: one number per operation, never reused.

use super::before::{Place, Step};
use super::*;
use crate::page::body_is_valid;
use crate::types::PAGE_SIZE;
use crate::varint::{self, Input};

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
const INSERT_RUN: u8 = 22;
const REMOVE_RUN: u8 = 23;
/// As those without: behind a write of the same group that says part of it.
const WRITE_INSERT_BEHIND: u8 = 24;
const WRITE_UPDATE_BEHIND: u8 = 25;
const WRITE_DELETE_BEHIND: u8 = 26;

impl<'a> Redo<'a> {
    /// Appends the record's stored form. `before`: of its group.
    ///
    /// # Panics
    /// If a previous LSN isn't a multiple of 8.
    pub fn encode(&self, prev: Lsn, prev_undo: Lsn, before: &mut Before, out: &mut Vec<u8>) {
        assert!((prev.0 | prev_undo.0).is_multiple_of(8), "groups begin at multiples of 8");
        let mut start = |op: u8, page: PageId| {
            out.push(op);
            varint::put(out, u64::from(page.0));
            varint::put(out, prev.0 / 8);
        };
        match *self {
            Redo::Write(w) => {
                let place = Place::of(&w, prev, prev_undo);
                match before.follow(&place, w.first) {
                    Some(step) => encode_write_behind(&w, prev, step, out),
                    None => {
                        let op = match w.change {
                            Change::Insert { .. } => WRITE_INSERT,
                            Change::Update { .. } => WRITE_UPDATE,
                            Change::Delete { .. } => WRITE_DELETE,
                        };
                        start(op, w.leaf);
                        encode_write(&w, prev_undo, out);
                    }
                }
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
            Redo::InsertRun { page, entries } => {
                start(INSERT_RUN, page);
                put_slice(out, entries.bytes());
            }
            Redo::RemoveRun { page, slot, count } => {
                start(REMOVE_RUN, page);
                varint::put(out, u64::from(slot));
                varint::put(out, u64::from(count));
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

    /// Reads the next record of a group; `Ok(None)` at its end. `before`: of the group; `scratch`
    /// keeps an unpacked image.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no record.
    pub fn decode<'i: 'a>(
        input: &mut Input<'i>,
        before: &mut Before,
        scratch: &'a mut Vec<u8>,
    ) -> Result<Option<Logged<'a>>, Malformed> {
        let op = match input.u8() {
            None | Some(0) => return Ok(None),
            Some(op) => op,
        };
        let logged = match op {
            WRITE_INSERT_BEHIND..=WRITE_DELETE_BEHIND => {
                before.last().and_then(|last| decode_write_behind(op, &last, input))
            }
            _ => decode_operands(op, input, scratch),
        };
        let logged = logged.ok_or(Malformed { op })?;
        if let Redo::Write(w) = &logged.redo {
            before.note(Place::of(w, logged.prev, logged.prev_undo));
        }
        Ok(Some(logged))
    }
}

pub(super) fn put_slice(out: &mut Vec<u8>, bytes: &[u8]) {
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
    encode_change(&w.change, out);
}

/// A `Write` behind another: operation; slot * 2 + 1 if its leaf is the same, and the slot then
/// counts from that one's; page and previous LSN / 8 unless it is; how far its undo record lies
/// behind; key, then the operands of the change.
fn encode_write_behind(w: &Write<'_>, prev: Lsn, step: Step, out: &mut Vec<u8>) {
    out.push(match w.change {
        Change::Insert { .. } => WRITE_INSERT_BEHIND,
        Change::Update { .. } => WRITE_UPDATE_BEHIND,
        Change::Delete { .. } => WRITE_DELETE_BEHIND,
    });
    match step.slots {
        Some(slots) => varint::put(out, u64::from(slots) * 2 + 1),
        None => {
            varint::put(out, u64::from(w.slot) * 2);
            varint::put(out, u64::from(w.leaf.0));
            varint::put(out, prev.0 / 8);
        }
    }
    varint::put(out, u64::from(step.undo_bytes));
    put_slice(out, w.key);
    encode_change(&w.change, out);
}

fn encode_change(change: &Change<'_>, out: &mut Vec<u8>) {
    match *change {
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
    let change = decode_change(op, input)?;
    Some((Write { leaf, slot, undo, first, txn, tree, key, change }, prev_undo))
}

fn decode_write_behind<'a>(op: u8, last: &Place, input: &mut Input<'a>) -> Option<Logged<'a>> {
    let Place { prev_undo, txn, tree, .. } = *last;
    let slot_beside = input.varint()?;
    let slot = u16::try_from(slot_beside / 2).ok()?;
    let (leaf, prev, slot) = match slot_beside & 1 != 0 {
        true => (last.leaf, last.prev, last.slot.checked_add(slot)?),
        false => (page_id(input)?, lsn(input)?, slot),
    };
    let behind = u16(input).filter(|&bytes| bytes > 0)?;
    let undo = UndoPtr { offset: last.undo.offset.checked_add(behind)?, ..last.undo };
    let key = input.slice()?;
    let change = decode_change(op - WRITE_INSERT_BEHIND + WRITE_INSERT, input)?;
    let write = Write { leaf, slot, undo, first: false, txn, tree, key, change };
    Some(Logged { redo: Redo::Write(write), prev, prev_undo })
}

/// `op`: that of a write with nothing before it.
fn decode_change<'a>(op: u8, input: &mut Input<'a>) -> Option<Change<'a>> {
    Some(match op {
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
        WRITE_DELETE => {
            let (old_flags, old_version) = undo::get_state(input)?;
            Change::Delete { old_flags, old_version }
        }
        _ => return None,
    })
}

fn decode_operands<'a, 'i: 'a>(
    op: u8,
    input: &mut Input<'i>,
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
        INSERT_RUN => Redo::InsertRun { page, entries: Entries::new(input.slice()?)? },
        REMOVE_RUN => Redo::RemoveRun { page, slot: u16(input)?, count: u16(input)? },
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

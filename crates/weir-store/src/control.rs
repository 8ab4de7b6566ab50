//! The control file: where the log begins and what the database is.
//!
//! File `control` has two slots of 4 KiB; version `v` lies in slot `v % 2`, and the valid slot with
//! the higher version counts. A write goes to the other slot and counts after its sync; the file
//! gets its name only when it is complete, so its presence means that a database was created. A
//! broken newer slot can't be told from a torn write: the older one then counts, and the redo log
//! says so if it no longer reaches back to the older checkpoint. The slot that counts is written
//! again, as it is, at each open: its sync may have failed. Little endian; magic, format and
//! checksum keep their places in every format.
//!
//! | offset | width | what                                              |
//! |--------|-------|---------------------------------------------------|
//! | 0      | 8     | magic `WEIRCTL\0`                                 |
//! | 8      | 4     | format, 7; see below                              |
//! | 12     | 4     | CRC-32C over the slot with this field zero        |
//! | 16     | 8     | version of this slot                              |
//! | 24     | 8     | database id                                       |
//! | 32     | 8     | checkpoint LSN                                    |
//! | 40     | 8     | durable LSN when it was written                   |
//! | 48     | 8     | next transaction id                               |
//! | 56     | 4     | 1 in a new database, 0 later; nobody reads it     |
//! | 60     | 4     | page size                                         |
//! | 64     | 8     | bytes of the redo segments that are made; nobody reads it |
//! | 72     | 8     | redo capacity in bytes                            |
//! | 80     | 1     | 1 after a clean shutdown                          |
//! | 81     | 7     | 0                                                 |
//! | 88     | 8     | bytes of the map file; 0: not told                |
//! | 96     | 8     | LSN of the dirty page table that counts; 0: none  |
//! | 104    | 8     | newest version of a map block, as far as they were synced; 0: not told |
//! | 112    |       | 0                                                 |
//!
//! Format 1 was before there were keys in short form, 2 before key heads had gaps, 3 before images
//! left out holes, 4 before a write in the log left out what the one before it says, 5 before there
//! were tombstones, 6 before entries were moved whose transaction was running. The file of an older
//! format is written anew when recovery begins to change pages: an older build would misread them.

use crate::error::{Result, StoreError};
use crate::image::field;
use weir_page::{Lsn, PAGE_SIZE, PageId, TxnId};

/// Bytes of a slot.
pub(crate) const SLOT: usize = 4096;
/// Newest format known here.
pub const CONTROL_FORMAT: u32 = 7;
const MAGIC: [u8; 8] = *b"WEIRCTL\0";
/// More than any log comes to.
pub(crate) const LSN_MAX: u64 = 1 << 60;
/// Transactions' numbers have 48 bits.
const TXN_MAX: u64 = (1 << 48) - 1;

/// The contents of the control file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Control {
    /// Drawn when the database was created; the redo files carry it too.
    pub database_id: u64,
    /// Redo before it is not needed.
    pub checkpoint: Lsn,
    /// The log was durable up to here when this was written.
    pub durable: Lsn,
    /// No transaction with this id or above has started.
    pub next_txn_id: TxnId,
    /// Part of the format that nobody reads: 1 in a new database, 0 later. The map says which pages
    /// there are.
    pub next_page_id: PageId,
    /// Part of the format that nobody reads: bytes of the redo segments that are made. Each says
    /// its own length.
    pub segment_bytes: u64,
    /// Redo capacity in bytes.
    pub redo_capacity: u64,
    /// Whether the database was shut down cleanly, with nothing left to redo.
    pub clean: bool,
    /// LSN of the dirty page table that was made last, by builds that make one; 0 if there is none.
    pub dirty_table: Lsn,
    /// The map file was durably as long as that, as the store fills in: a shorter one lacks blocks.
    pub map_bytes: u64,
    /// Map blocks up to this version had been synced, and those that are written later have newer
    /// ones, as the store fills in: a broken one of them is no write cut short.
    pub map_version: u64,
}

/// Byte offset of the slot that holds `version`.
pub(crate) fn slot_offset(version: u64) -> u64 {
    version % 2 * SLOT as u64
}

/// Writes a slot.
pub(crate) fn encode(control: &Control, version: u64, out: &mut [u8]) {
    assert_eq!(out.len(), SLOT, "a control slot is 4 KiB");
    assert!(control.checkpoint <= control.durable, "checkpoint past the durable log: {control:?}");
    out.fill(0);
    out[0..8].copy_from_slice(&MAGIC);
    out[8..12].copy_from_slice(&CONTROL_FORMAT.to_le_bytes());
    out[16..24].copy_from_slice(&version.to_le_bytes());
    out[24..32].copy_from_slice(&control.database_id.to_le_bytes());
    out[32..40].copy_from_slice(&control.checkpoint.0.to_le_bytes());
    out[40..48].copy_from_slice(&control.durable.0.to_le_bytes());
    out[48..56].copy_from_slice(&control.next_txn_id.0.to_le_bytes());
    out[56..60].copy_from_slice(&control.next_page_id.0.to_le_bytes());
    out[60..64].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
    out[64..72].copy_from_slice(&control.segment_bytes.to_le_bytes());
    out[72..80].copy_from_slice(&control.redo_capacity.to_le_bytes());
    out[80] = u8::from(control.clean);
    out[88..96].copy_from_slice(&control.map_bytes.to_le_bytes());
    out[96..104].copy_from_slice(&control.dirty_table.0.to_le_bytes());
    out[104..112].copy_from_slice(&control.map_version.to_le_bytes());
    let crc = crc32c::crc32c(out);
    out[12..16].copy_from_slice(&crc.to_le_bytes());
}

/// Picks the newer valid slot; returns its version and its format, too.
///
/// # Errors
/// `NewerFormat`; `Corrupt` when no slot is valid or the page size is another.
pub(crate) fn decode(slots: [&[u8]; 2], file: &str) -> Result<(Control, u64, u32)> {
    let valid = slots.map(is_valid);
    for (slot, _) in slots.iter().zip(valid).filter(|(_, valid)| *valid) {
        let format = u32::from_le_bytes(field(slot, 8));
        if format > CONTROL_FORMAT {
            return Err(StoreError::NewerFormat {
                file: file.to_string(),
                found: format,
                supported: CONTROL_FORMAT,
            });
        }
    }
    let version = |slot: &[u8]| u64::from_le_bytes(field(slot, 16));
    let newest = (0..2).filter(|&i| valid[i]).max_by_key(|&i| version(slots[i]));
    let Some(newest) = newest else {
        let found = format!("{:02x?} and {:02x?}", &slots[0][..16], &slots[1][..16]);
        return Err(corrupt(file, 0, "both control slots", "a valid slot".into(), found));
    };
    let slot = slots[newest];
    let page_size = u32::from_le_bytes(field(slot, 60));
    if page_size as usize != PAGE_SIZE {
        let offset = (newest * SLOT + 60) as u64;
        let expected = PAGE_SIZE.to_string();
        return Err(corrupt(file, offset, "page size", expected, page_size.to_string()));
    }
    let control = Control {
        database_id: u64::from_le_bytes(field(slot, 24)),
        checkpoint: Lsn(u64::from_le_bytes(field(slot, 32))),
        durable: Lsn(u64::from_le_bytes(field(slot, 40))),
        next_txn_id: TxnId(u64::from_le_bytes(field(slot, 48))),
        next_page_id: PageId(u32::from_le_bytes(field(slot, 56))),
        segment_bytes: u64::from_le_bytes(field(slot, 64)),
        redo_capacity: u64::from_le_bytes(field(slot, 72)),
        clean: slot[80] == 1,
        map_bytes: u64::from_le_bytes(field(slot, 88)),
        dirty_table: Lsn(u64::from_le_bytes(field(slot, 96))),
        map_version: u64::from_le_bytes(field(slot, 104)),
    };
    if let Some((at, what, expected, found)) = control.absurdity() {
        let offset = (newest * SLOT + at) as u64;
        return Err(corrupt(file, offset, what, expected, found.to_string()));
    }
    Ok((control, version(slot), u32::from_le_bytes(field(slot, 8))))
}

impl Control {
    /// A field that can't be as it is, whatever the checksum says: its offset, what it is, what is
    /// expected, what it says.
    fn absurdity(&self) -> Option<(usize, &'static str, String, u64)> {
        let Control { checkpoint, durable, next_txn_id, .. } = *self;
        if checkpoint > durable {
            let expected = format!("{durable}, where the log ends, or less");
            return Some((32, "checkpoint", expected, checkpoint.0));
        }
        if durable.0 > LSN_MAX {
            return Some((40, "end of the log", format!("{LSN_MAX} or less"), durable.0));
        }
        if next_txn_id.0 > TXN_MAX {
            return Some((48, "next transaction", format!("{TXN_MAX} or less"), next_txn_id.0));
        }
        None
    }
}

fn is_valid(slot: &[u8]) -> bool {
    assert_eq!(slot.len(), SLOT, "a control slot is 4 KiB");
    let mut crc = crc32c::crc32c(&slot[..12]);
    crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc = crc32c::crc32c_append(crc, &slot[16..]);
    field::<8>(slot, 0) == MAGIC && u32::from_le_bytes(field(slot, 12)) == crc
}

fn corrupt(
    file: &str,
    offset: u64,
    what: &'static str,
    expected: String,
    found: String,
) -> StoreError {
    StoreError::Corrupt { file: file.to_string(), offset, page: None, what, expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Control {
        Control {
            database_id: 0x1122_3344_5566_7788,
            checkpoint: Lsn(1000),
            durable: Lsn(2000),
            next_txn_id: TxnId(77),
            next_page_id: PageId(99),
            segment_bytes: 1 << 26,
            redo_capacity: 1 << 30,
            clean: true,
            map_bytes: 0,
            dirty_table: Lsn(0),
            map_version: 0,
        }
    }

    #[test]
    fn slot_is_golden() {
        let mut slot = [0; SLOT];
        let (map_bytes, dirty_table) = (1 << 18, Lsn(1500));
        encode(&Control { map_bytes, dirty_table, ..sample() }, 5, &mut slot);
        let crc = field::<4>(&slot, 12);
        let mut expected = [0u8; SLOT];
        expected[..12].copy_from_slice(b"WEIRCTL\0\x07\0\0\0");
        expected[12..16].copy_from_slice(&crc);
        for (at, value) in [
            (16, 5u64),
            (24, 0x1122_3344_5566_7788),
            (32, 1000),
            (40, 2000),
            (48, 77),
            (56, 99 | 0x4000 << 32),
            (64, 1 << 26),
            (72, 1 << 30),
            (80, 1),
            (88, 1 << 18),
            (96, 1500),
        ] {
            expected[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        assert_eq!(slot, expected);
        assert_eq!(u32::from_le_bytes(crc), 4_073_510_073);
    }

    #[test]
    fn slots_of_older_formats_are_read() {
        let mut slot = [0; SLOT];
        let crcs = [3_692_991_720_u32, 1_593_525_888, 3_691_240_183, 1_591_514_273];
        for (format, crc) in (1..).zip(crcs) {
            encode(&sample(), 5, &mut slot);
            slot[8] = format;
            slot[12..16].copy_from_slice(&crc.to_le_bytes());
            let found = decode([&[0; SLOT], &slot], "c").unwrap();
            assert_eq!(found, (sample(), 5, format.into()));
        }
    }

    #[test]
    fn newer_valid_slot_wins_and_a_broken_one_does_not_count() {
        let (mut a, mut b) = ([0; SLOT], [0; SLOT]);
        encode(&sample(), 5, &mut a);
        let later = Control { checkpoint: Lsn(1500), ..sample() };
        encode(&later, 6, &mut b);
        assert_eq!(decode([&a, &b], "c").unwrap(), (later, 6, CONTROL_FORMAT));
        b[100] ^= 1;
        assert_eq!(decode([&a, &b], "c").unwrap(), (sample(), 5, CONTROL_FORMAT));
        a[0] ^= 1;
        let error = decode([&a, &b], "dir/control").unwrap_err().to_string();
        assert!(error.contains("dir/control is corrupt at offset 0"), "{error}");
    }

    #[test]
    fn any_bytes_decode_or_fail() {
        let mut rng = fastrand::Rng::with_seed(4);
        let mut slot = [0; SLOT];
        for round in 0..500 {
            rng.fill(&mut slot);
            assert!(decode([&slot, &[0; SLOT]], "c").is_err());
            slot[..12].copy_from_slice(b"WEIRCTL\0\x01\0\0\0");
            slot[12..16].fill(0);
            if round % 2 == 0 {
                slot[32..56].fill(0);
                slot[60..64].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
            }
            let crc = crc32c::crc32c(&slot);
            slot[12..16].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(decode([&[0; SLOT], &slot], "c").is_ok(), round % 2 == 0);
        }
    }

    #[test]
    fn what_can_not_be_is_refused_whatever_its_checksum() {
        let checkpoint = Lsn(3000);
        let (durable, next_txn_id) = (Lsn(LSN_MAX + 8), TxnId(TXN_MAX + 1));
        for (control, what) in [
            (Control { durable, ..sample() }, "4136: end of the log"),
            (Control { next_txn_id, ..sample() }, "4144: next transaction"),
            (Control { checkpoint, durable: checkpoint, ..sample() }, "4128: checkpoint"),
        ] {
            let mut slot = [0; SLOT];
            encode(&control, 5, &mut slot);
            if control.checkpoint == checkpoint {
                slot[40..48].copy_from_slice(&2000u64.to_le_bytes());
            }
            slot[12..16].fill(0);
            let crc = crc32c::crc32c(&slot);
            slot[12..16].copy_from_slice(&crc.to_le_bytes());
            let error = decode([&[0; SLOT], &slot], "control").unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }

    #[test]
    fn newer_format_is_refused() {
        let mut slot = [0; SLOT];
        encode(&sample(), 5, &mut slot);
        let newer = CONTROL_FORMAT + 1;
        slot[8] = newer as u8;
        slot[12..16].fill(0);
        let crc = crc32c::crc32c(&slot);
        slot[12..16].copy_from_slice(&crc.to_le_bytes());
        let error = decode([&slot, &[0; SLOT]], "c").unwrap_err();
        let StoreError::NewerFormat { found, supported, .. } = error else { panic!("{error}") };
        assert_eq!((found, supported), (newer, CONTROL_FORMAT));
    }
}

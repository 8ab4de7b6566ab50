//! The persisted page map, and what is known of each of its blocks.
//!
//! File `map` is an array of 4 KiB slots. Block `i` covers pages `508 i .. 508 i + 508` and
//! alternates between slots `2i` and `2i + 1`: version `v` lies in slot `2i + v % 2`. All numbers
//! are little endian.
//!
//! | offset | width   | what                                                           |
//! |--------|---------|----------------------------------------------------------------|
//! | 0      | 4       | magic `WMB2`                                                   |
//! | 4      | 4       | block number                                                   |
//! | 8      | 8       | version, 1 for the first                                       |
//! | 16     | 8       | newest LSN: start of the last redo group whose change is here  |
//! | 24     | 4       | CRC-32C over the slot with this field zero                     |
//! | 28     | 4       | low half of the database id                                    |
//! | 32     | 508 * 8 | entries, see [`crate::extent`]                                 |
//!
//! A block is written only when the log is durable past its newest LSN, into the slot that does
//! not hold the current version, and is current only after the sync. So at every crash the valid
//! slot with the higher version, with the log replayed from the checkpoint, is the whole truth. A
//! block with both slots zero or past the end of the file was never written: it is empty. One slot
//! zero and the other broken is a torn first write: empty too. Both broken is corruption. What a
//! killed process wrote counts, but may be lost at a later power cut, if the sync of it failed: so
//! slots with changes since the checkpoint are written again, as they are, before it may matter.
//!
//! A lone broken slot is damage rather than a torn write in four cases. After a clean shutdown,
//! because recovery zeroes torn slots before it finishes. When it has no header of this block,
//! though not nothing either, or one of which a single bit is wrong, because the header lies in one
//! sector. When its header claims a version above the other slot's and a newest LSN before the
//! checkpoint, because the checkpoint can't pass a change that was not synced. (A torn slot with
//! the header of its older version claims a lower version.) And when version and newest LSN that it
//! claims are not both those of an earlier write of the block, or of the one that comes next:
//! newest LSNs grow with versions, and versions one by one, or two. Damage to a block written since
//! the last checkpoint can't be told from a torn write; a lost write leaves a valid older block.
//! What then goes wrong shows as soon as an image is read whose place was used again: its id or
//! image check does not match.

use crate::extent::Entry;
use crate::image::field;
use crate::map::PageMap;
use std::collections::{BTreeMap, BTreeSet};
use weir_page::{Lsn, PageId};

/// Bytes of a slot of the map file.
pub(crate) const SLOT: usize = 4096;
/// Pages that a map block covers.
pub const BLOCK_PAGES: u32 = 508;
const HEADER: usize = 32;
const MAGIC: [u8; 4] = *b"WMB2";
const _: () = assert!(HEADER + BLOCK_PAGES as usize * 8 == SLOT);

/// Number of the block that covers a page.
pub(crate) fn block_of(page: PageId) -> u32 {
    page.0 / BLOCK_PAGES
}

/// The pages of a block; the last block of all is cut short by the range of ids.
pub(crate) fn pages_of(block: u32) -> impl Iterator<Item = PageId> {
    let first = u64::from(block) * u64::from(BLOCK_PAGES);
    (first..first + u64::from(BLOCK_PAGES)).map_while(|page| u32::try_from(page).ok()).map(PageId)
}

/// Byte offset of the slot that holds `version` of a block.
pub(crate) fn slot_offset(block: u32, version: u64) -> u64 {
    (2 * u64::from(block) + version % 2) * SLOT as u64
}

/// Writes a block as the map has it now.
pub(crate) fn encode(map: &PageMap, draft: Draft, database_id: u64, out: &mut [u8]) {
    let Draft { block, version, newest } = draft;
    assert_eq!(out.len(), SLOT, "a map block is 4 KiB");
    out.fill(0);
    out[0..4].copy_from_slice(&MAGIC);
    out[4..8].copy_from_slice(&block.to_le_bytes());
    out[8..16].copy_from_slice(&version.to_le_bytes());
    out[16..24].copy_from_slice(&newest.0.to_le_bytes());
    out[28..32].copy_from_slice(&(database_id as u32).to_le_bytes());
    for (page, place) in pages_of(block).zip(out[HEADER..].chunks_exact_mut(8)) {
        place.copy_from_slice(&map.entry(page).0.to_le_bytes());
    }
    let crc = crc32c::crc32c(out);
    out[24..28].copy_from_slice(&crc.to_le_bytes());
}

/// A slot as found on disk.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// All zeros.
    Empty,
    /// A block of this version and newest LSN.
    Valid {
        /// Its version.
        version: u64,
        /// Its newest LSN.
        newest: Lsn,
    },
    /// A whole block of another database, of which this is the low half of the id.
    Foreign(u32),
    /// Something else: what, expected, found.
    Broken(&'static str, String, String),
}

/// Checks the slot of `block` with `version % 2 == parity`.
pub(crate) fn inspect(slot: &[u8], block: u32, parity: u64, database_id: u64) -> Found {
    assert_eq!(slot.len(), SLOT, "a map block is 4 KiB");
    if slot.iter().all(|&b| b == 0) {
        return Found::Empty;
    }
    let magic = field::<4>(slot, 0);
    if magic != MAGIC {
        return Found::Broken("map block magic", format!("{MAGIC:02x?}"), format!("{magic:02x?}"));
    }
    let crc = u32::from_le_bytes(field(slot, 24));
    let mut actual = crc32c::crc32c(&slot[..24]);
    actual = crc32c::crc32c_append(actual, &[0; 4]);
    actual = crc32c::crc32c_append(actual, &slot[28..]);
    if crc != actual {
        return Found::Broken("map block checksum", format!("{crc:08x}"), format!("{actual:08x}"));
    }
    let database = u32::from_le_bytes(field(slot, 28));
    if database != database_id as u32 {
        return Found::Foreign(database);
    }
    let number = u32::from_le_bytes(field(slot, 4));
    if number != block {
        return Found::Broken("map block number", block.to_string(), number.to_string());
    }
    let version = u64::from_le_bytes(field(slot, 8));
    if version == 0 || version % 2 != parity {
        let expected = format!("a version with parity {parity}");
        return Found::Broken("map block version", expected, version.to_string());
    }
    if let Some(bad) = entries(slot).find(|e| !e.is_valid()) {
        return Found::Broken("map entry", "an extent".into(), format!("{:#018x}", bad.0));
    }
    Found::Valid { version, newest: Lsn(u64::from_le_bytes(field(slot, 16))) }
}

/// Version and newest LSN that a broken slot claims; zeros if there was nothing before. `None` if
/// no write that was cut short has left this header: such a write leaves the first sector as it was
/// or as it was to be.
pub(crate) fn claim(slot: &[u8], block: u32, parity: u64, database_id: u64) -> Option<(u64, Lsn)> {
    let version = u64::from_le_bytes(field(slot, 8));
    let readable = field::<4>(slot, 0) == MAGIC
        && u32::from_le_bytes(field(slot, 4)) == block
        && version % 2 == parity;
    let nothing = slot[..HEADER].iter().all(|&byte| byte == 0);
    let torn = nothing || (readable && !is_whole_but_for_a_bit(slot, block, parity, database_id));
    torn.then(|| (version, Lsn(u64::from_le_bytes(field(slot, 16)))))
}

/// Whether nothing is wrong with a slot but one bit of its header: who claims another version is
/// not told by what he claims.
fn is_whole_but_for_a_bit(slot: &[u8], block: u32, parity: u64, database_id: u64) -> bool {
    let mut slot = slot.to_vec();
    (0..8 * HEADER).any(|bit| {
        slot[bit / 8] ^= 1 << (bit % 8);
        let found = inspect(&slot, block, parity, database_id);
        slot[bit / 8] ^= 1 << (bit % 8);
        matches!(found, Found::Valid { .. })
    })
}

/// The entries of a slot that [`inspect`] found valid.
pub(crate) fn entries(slot: &[u8]) -> impl Iterator<Item = Entry> {
    slot[HEADER..].chunks_exact(8).map(|bytes| Entry(u64::from_le_bytes(field(bytes, 0))))
}

/// A block about to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draft {
    pub block: u32,
    pub version: u64,
    pub newest: Lsn,
}

const CLEAN: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct BlockState {
    /// Version on disk; 0 when never written.
    version: u64,
    /// Newest change in memory.
    newest: u64,
    /// First change in memory that no write has taken up; `CLEAN` for none.
    rec_lsn: u64,
}

const FRESH: BlockState = BlockState { version: 0, newest: 0, rec_lsn: CLEAN };

/// The state of every map block. Its lock also guards the extents in the page map.
#[derive(Default)]
pub(crate) struct BlockTable {
    states: Vec<BlockState>,
    /// The newest version of all blocks: the next ones are newer.
    newest_version: u64,
    /// Dirty blocks by `rec_lsn`.
    dirty: BTreeSet<(u64, u32)>,
    /// Blocks being written, with the `rec_lsn` that they have until the sync.
    writing: BTreeMap<u32, u64>,
}

impl BlockTable {
    fn state(&mut self, block: u32) -> &mut BlockState {
        if self.states.len() <= block as usize {
            self.states.resize(block as usize + 1, FRESH);
        }
        &mut self.states[block as usize]
    }

    /// Notes what was found on disk.
    pub fn load(&mut self, block: u32, version: u64, newest: Lsn) {
        let state = self.state(block);
        state.version = version;
        state.newest = newest.0;
        self.take_version(version);
    }

    /// No block is given this version, or an older one, from now on.
    fn take_version(&mut self, version: u64) {
        self.newest_version = self.newest_version.max(version);
    }

    /// The newest version of all blocks.
    pub fn newest_version(&self) -> u64 {
        self.newest_version
    }

    /// The version of a block that was last persisted; 0 if none was.
    pub fn version(&self, block: u32) -> u64 {
        self.states.get(block as usize).map_or(0, |state| state.version)
    }

    /// The newest change of all blocks.
    pub fn newest(&self) -> Lsn {
        Lsn(self.states.iter().map(|state| state.newest).max().unwrap_or(0))
    }

    /// Notes a change of the block.
    pub fn touch(&mut self, block: u32, rec_lsn: Lsn, newest: Lsn) {
        assert!(rec_lsn <= newest && newest.0 < CLEAN, "a change from {rec_lsn} to {newest}");
        let state = self.state(block);
        state.newest = state.newest.max(newest.0);
        let old = state.rec_lsn;
        if rec_lsn.0 < old {
            state.rec_lsn = rec_lsn.0;
            if old != CLEAN {
                self.dirty.remove(&(old, block));
            }
            self.dirty.insert((rec_lsn.0, block));
        }
    }

    /// First change that is not on disk.
    pub fn oldest(&self) -> Option<Lsn> {
        let waiting = self.dirty.first().map(|&(lsn, _)| lsn);
        let writing = self.writing.values().min().copied();
        waiting.into_iter().chain(writing).min().map(Lsn)
    }

    /// The `most` dirty blocks with the oldest first change that is before `below`, in order of
    /// numbers.
    pub fn dirty_below(&self, below: Lsn, most: usize) -> Vec<u32> {
        let oldest = self.dirty.range(..(below.0, 0)).take(most);
        let mut blocks: Vec<u32> = oldest.map(|&(_, b)| b).collect();
        blocks.sort_unstable();
        blocks
    }

    /// Takes up a dirty block for writing. Its version is newer than those of all blocks that were
    /// persisted.
    pub fn start_write(&mut self, block: u32) -> Draft {
        let next = self.newest_version + 1;
        let state = self.state(block);
        let rec_lsn = std::mem::replace(&mut state.rec_lsn, CLEAN);
        // It goes to the other slot.
        let version = next + u64::from(next % 2 == state.version % 2);
        let draft = Draft { block, version, newest: Lsn(state.newest) };
        assert!(self.dirty.remove(&(rec_lsn, block)), "block {block} was written while clean");
        let before = self.writing.insert(block, rec_lsn);
        assert!(before.is_none(), "block {block} is written twice at once");
        draft
    }

    /// The write is synced.
    pub fn finish_write(&mut self, draft: &Draft) {
        self.writing.remove(&draft.block).expect("a finished write was started");
        self.state(draft.block).version = draft.version;
        self.take_version(draft.version);
    }

    /// Dirty blocks, those being written included.
    pub fn dirty_len(&self) -> usize {
        self.dirty.len() + self.writing.len()
    }
}

#[cfg(test)]
mod tests;

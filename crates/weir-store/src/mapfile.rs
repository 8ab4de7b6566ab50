//! Loading and writing the map and control files; formats in [`crate::block`], [`crate::control`].

use crate::block::{self, Draft, Found, SLOT};
use crate::control::{self, Control};
use crate::error::{Result, StoreError};
use crate::extent::UNIT;
use crate::space::no_space;
use crate::store::{MapIo, Store};
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use weir_os::{AlignedBuf, Io};
use weir_page::Lsn;

/// Most blocks in a draft, which are written in flight together.
const BLOCKS_PER_DRAFT: usize = 1024;
/// Blocks read at a time when the map is loaded, and operations in flight.
const LOAD_BLOCKS: usize = 128;
const LOAD_READS: usize = 8;
/// Step by which the map file grows.
const GROWTH_BYTES: u64 = 256 << 10;

/// Copies of map blocks on their way to the map file; see [`Store::draft_map`].
#[must_use = "blocks of a draft count as unpersisted until it is written"]
#[derive(Default)]
pub struct MapDraft {
    blocks: Vec<Draft>,
    writes: Vec<Io>,
}

/// A slot that a write cut short may have left.
struct Torn {
    /// The version that it claims.
    version: u64,
    /// What is wrong with it.
    error: StoreError,
}

/// Blocks that are written get versions up to so much newer than the newest that is persisted
/// ([`BlockTable::start_write`]).
///
/// [`BlockTable::start_write`]: block::BlockTable::start_write
const VERSIONS_AHEAD: u64 = 2;

impl MapDraft {
    /// The last change in it: start of a redo group.
    pub fn newest(&self) -> Lsn {
        self.blocks.iter().map(|b| b.newest).max().expect("a draft has a block")
    }
}

impl Store {
    /// Reads all blocks; the last control contents say which can't have been cut short.
    pub(crate) fn load_map(&self, last: &Control) -> Result<()> {
        let mut io = self.map_io.lock();
        io.map_bytes = self.map_file.len()? / SLOT as u64 * SLOT as u64;
        if io.map_bytes < last.map_bytes {
            let block = io.map_bytes / (2 * SLOT as u64);
            let expected = format!("a file of {} bytes or more", last.map_bytes);
            let found = format!("{} bytes", io.map_bytes);
            return Err(self.corrupt_block(block as u32, 0, "map block", expected, found));
        }
        // More may be there that isn't durable: of a process that was killed.
        io.synced_bytes = last.map_bytes;
        let read_bytes = (LOAD_BLOCKS * 2 * SLOT) as u64;
        let (mut offset, mut torn) = (0, Vec::new());
        while offset < io.map_bytes {
            let mut batch = Vec::with_capacity(LOAD_READS);
            let first = offset;
            while offset < io.map_bytes && batch.len() < LOAD_READS {
                let len = read_bytes.min(io.map_bytes - offset);
                batch.push(Io::Read { offset, buf: AlignedBuf::zeroed(len as usize) });
                offset += len;
            }
            let mut block = (first / (2 * SLOT as u64)) as u32;
            for buf in self.map_file.run(batch)? {
                for slots in buf.chunks(2 * SLOT) {
                    self.load_block(block, slots, last, &mut io, &mut torn)?;
                    block += 1;
                }
            }
        }
        // The slot of the newest version that was synced is written over only once a newer one is.
        let newest = self.blocks.lock().newest_version();
        let is_too_new = |torn: &Torn| torn.version > newest.saturating_add(VERSIONS_AHEAD);
        if let Some(at) = torn.iter().position(is_too_new) {
            return Err(torn.swap_remove(at).error);
        }
        if newest < last.map_version {
            let expected = format!("a block of version {} or newer", last.map_version);
            let found = format!("{newest}");
            return Err(self.corrupt_block(
                0,
                0,
                "version of the newest map block",
                expected,
                found,
            ));
        }
        Ok(())
    }

    /// Adds slots that a write cut short may have left to `torn`.
    fn load_block(
        &self,
        block: u32,
        slots: &[u8],
        last: &Control,
        io: &mut MapIo,
        torn: &mut Vec<Torn>,
    ) -> Result<()> {
        let mut newest_slot: Option<(u64, Lsn, usize)> = None;
        let mut broken = Vec::new();
        for (parity, slot) in slots.chunks_exact(SLOT).enumerate() {
            match block::inspect(slot, block, parity as u64, self.database_id) {
                Found::Empty => {}
                Found::Valid { version, newest } => {
                    if newest_slot.is_none_or(|(v, _, _)| v < version) {
                        newest_slot = Some((version, newest, parity));
                    }
                }
                Found::Foreign(id) => {
                    let expected = format!("an id ending in {:08x}", self.database_id as u32);
                    let what = "map block of another database";
                    return Err(self.corrupt_block(
                        block,
                        parity,
                        what,
                        expected,
                        format!("{id:08x}"),
                    ));
                }
                Found::Broken(what, expected, found) => {
                    let offset = block::slot_offset(block, parity as u64);
                    let error = self.corrupt_block(block, parity, what, expected, found);
                    let claim = block::claim(slot, block, parity as u64, self.database_id);
                    broken.push((offset, claim, error));
                }
            }
        }
        let both = broken.len() == 2;
        let (valid_version, valid_newest) =
            newest_slot.map_or((0, Lsn(0)), |(version, newest, _)| (version, newest));
        for (offset, claim, error) in broken.into_iter().rev() {
            let claim = claim.filter(|_| !both && !last.clean);
            let claim = claim.filter(|&(version, newest)| match version > valid_version {
                // Some of its changes may be from before the checkpoint, or the dirty page table,
                // also if the newest isn't.
                true => newest >= valid_newest.max(last.checkpoint) && version > last.map_version,
                false => newest <= valid_newest,
            });
            let Some((version, _)) = claim else { return Err(error) };
            torn.push(Torn { version, error });
            io.broken_slots.push(offset);
        }
        let Some((version, newest, parity)) = newest_slot else { return Ok(()) };
        if newest >= last.checkpoint && !last.clean {
            io.doubtful_slots.push(block::slot_offset(block, version));
        }
        let entries = block::entries(&slots[parity * SLOT..][..SLOT]);
        for (page, entry) in block::pages_of(block).zip(entries) {
            // Looking at an empty slot would allocate its chunk.
            if entry.0 != 0 {
                self.map.slot(page).replace(entry);
            }
        }
        self.blocks.lock().load(block, version, newest);
        Ok(())
    }

    pub(crate) fn corrupt_block(
        &self,
        block: u32,
        parity: usize,
        what: &'static str,
        expected: String,
        found: String,
    ) -> StoreError {
        StoreError::Corrupt {
            file: self.map_file.name().to_string(),
            offset: block::slot_offset(block, parity as u64),
            page: None,
            what,
            expected,
            found,
        }
    }

    /// Zeroes the slots that a crash left broken; they are not current.
    pub(crate) fn clear_broken_slots(&self) -> Result<()> {
        let mut io = self.map_io.lock();
        let broken = std::mem::take(&mut io.broken_slots);
        if broken.is_empty() {
            return Ok(());
        }
        for part in broken.chunks(BLOCKS_PER_DRAFT) {
            let write = |&offset| Io::Write { offset, buf: AlignedBuf::zeroed(SLOT) };
            let batch = part.iter().map(write).collect();
            self.map_file.run(batch).map_err(|e| self.poisoned(e))?;
        }
        self.map_file.sync().map_err(|e| self.poisoned(e))
    }

    /// Writes slots again that a killed process may have written and not synced: if a sync of them
    /// failed, the system may take them for clean. To be done before a block's other slot is
    /// written over, or the checkpoint or a dirty page table passes its changes. The bytes are
    /// those that are there, so it can't be torn.
    fn rewrite_doubtful_slots(&self, io: &mut MapIo) -> Result<()> {
        if io.doubtful_slots.is_empty() {
            return Ok(());
        }
        for part in io.doubtful_slots.chunks(BLOCKS_PER_DRAFT) {
            let read = |&offset| Io::Read { offset, buf: AlignedBuf::zeroed(SLOT) };
            let found = self.map_file.run(part.iter().map(read).collect());
            let write = |(&offset, buf)| Io::Write { offset, buf };
            let batch = part.iter().zip(found.map_err(|e| self.poisoned(e))?).map(write).collect();
            self.map_file.run(batch).map_err(|e| self.poisoned(e))?;
        }
        self.map_file.sync().map_err(|e| self.poisoned(e))?;
        io.doubtful_slots.clear();
        Ok(())
    }

    /// Copies map blocks whose first unpersisted change is before `below`, the oldest first, to be
    /// written when the log is durable past [`MapDraft::newest`]; `None` if there is no such block.
    /// Changes from now on are for a later draft: they don't hold up this one.
    ///
    /// To be followed by [`Store::write_map`], before the next draft is made; until then
    /// [`Store::oldest_unpersisted`] does not pass the draft's changes.
    ///
    /// # Errors
    /// `NoSpace`: nothing changed. `Disk`: the store is poisoned. `Poisoned`.
    pub fn draft_map(&self, below: Lsn) -> Result<Option<MapDraft>> {
        self.assert_recovered();
        let mut io = self.map_io.lock();
        self.check_poison()?;
        let dirty = self.blocks.lock().dirty_below(below, BLOCKS_PER_DRAFT);
        let Some(&last) = dirty.last() else { return Ok(None) };
        self.grow_map(&mut io, last)?;
        self.rewrite_doubtful_slots(&mut io)?;
        let mut draft = MapDraft::default();
        for &block in &dirty {
            let mut buf = AlignedBuf::zeroed(SLOT);
            // The lock is taken per block, so that nobody waits for more than one encoding.
            let mut blocks = self.blocks.lock();
            let taken = blocks.start_write(block);
            block::encode(&self.map, taken, self.database_id, &mut buf);
            drop(blocks);
            draft.writes.push(Io::Write { offset: block::slot_offset(block, taken.version), buf });
            draft.blocks.push(taken);
        }
        Ok(Some(draft))
    }

    /// Persists a draft; the log is durable up to `durable`.
    ///
    /// # Errors
    /// `Disk`: the store is poisoned. `Poisoned`.
    ///
    /// # Panics
    /// If the log is not durable past the draft's changes.
    pub fn write_map(&self, draft: MapDraft, durable: Lsn) -> Result<()> {
        let newest = draft.newest();
        assert!(newest < durable, "the map at {newest} with a log durable up to {durable}");
        let mut io = self.map_io.lock();
        self.check_poison()?;
        self.map_file.run(draft.writes).map_err(|e| self.poisoned(e))?;
        self.map_file.sync().map_err(|e| self.poisoned(e))?;
        io.synced_bytes = io.map_bytes;
        let mut blocks = self.blocks.lock();
        for taken in &draft.blocks {
            blocks.finish_write(taken);
        }
        io.synced_version = blocks.newest_version();
        let count = draft.blocks.len() as u64;
        self.counters.map_blocks_written.fetch_add(count, Ordering::Relaxed);
        Ok(())
    }

    /// Makes the map file long enough for a block. Synced with the blocks: until then a missing
    /// block reads as empty, which is what it was.
    pub(crate) fn grow_map(&self, io: &mut MapIo, block: u32) -> Result<()> {
        let needed = (2 * u64::from(block) + 2) * SLOT as u64;
        if needed <= io.map_bytes {
            return Ok(());
        }
        let step = GROWTH_BYTES.max(io.map_bytes / 16);
        let better = needed.max(io.map_bytes + step).next_multiple_of(GROWTH_BYTES);
        for bytes in [better, needed] {
            match self.map_file.set_len(bytes) {
                Ok(()) => {
                    io.map_bytes = bytes;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::StorageFull => {}
                Err(e) => return Err(self.poisoned(e)),
            }
        }
        no_space(self.map_file.name(), (needed - io.map_bytes) / UNIT as u64)
    }

    /// Replaces the contents of the control file, durably.
    ///
    /// # Errors
    /// `Disk`: either the old or the new contents hold, and the store is poisoned. `Poisoned`.
    pub fn write_control(&self, control: &Control) -> Result<()> {
        let mut io = self.map_io.lock();
        self.check_poison()?;
        // Beside a dirty page table the log isn't read for the places of images from the checkpoint
        // on, but from the table on.
        if control.checkpoint.max(control.dirty_table) > io.opened_checkpoint {
            self.rewrite_doubtful_slots(&mut io)?;
            io.synced_version = self.blocks.lock().newest_version();
        }
        let version = io.control_version + 1;
        let mut slot = AlignedBuf::zeroed(control::SLOT);
        let (map_bytes, map_version) = (io.synced_bytes, io.synced_version);
        let control = Control { map_bytes, map_version, ..control.clone() };
        control::encode(&control, version, &mut slot);
        let offset = control::slot_offset(version);
        self.control.write(offset, slot).map_err(|e| self.poisoned(e))?;
        self.control.sync().map_err(|e| self.poisoned(e))?;
        io.control_version = version;
        Ok(())
    }
}

//! The dirty page table: what analysis would otherwise have to find in the log.
//!
//! Now and then, as the log grows, all dirty pages are noted with their last LSNs, after everything that was relocated or
//! freed before has been written to the page map. Recovery then reads the log from the table's LSN on, not from the
//! checkpoint, to know where it ends and which pages lag behind it (a fuzzy checkpoint as in ARIES; Mohan et al., 1992).
//! The control file says which table counts. Without it, or with one that is broken or too old, recovery reads more, and
//! finds the same.
//!
//! File `dirty`, little endian:
//!
//! | offset | width | what |
//! |---|---|---|
//! | 0 | 8 | magic `WEIRDPT1` |
//! | 8 | 4 | CRC-32C over this block with this field zero |
//! | 12 | 4 | CRC-32C over the entries |
//! | 16 | 8 | database id |
//! | 24 | 8 | LSN of the table: what the log has from here on is not in it |
//! | 32 | 8 | LSN that the log was durable up to: the table names none from here on |
//! | 40 | 8 | next transaction id |
//! | 48 | 8 | number of entries |
//! | 56 | | 0 |
//! | 4096 | 12 each | page id (4 bytes), LSN of its last change (8) |

use super::super::pool::{DIRTY, FREED, FREEING, WRITING};
use super::super::{Fault, Storage};
use std::sync::atomic::Ordering;
use weir_os::{AlignedBuf, BLOCK, Create, Disk, DiskError, File, Mode};
use weir_page::{Lsn, PageId, TxnId};

/// The table's file.
pub(super) const NAME: &str = "dirty";
const NEW: &str = "dirty.new";
const MAGIC: [u8; 8] = *b"WEIRDPT1";
const ENTRY: usize = 12;
/// Bytes written or read at once.
const CHUNK: usize = 1 << 20;

/// The log grows by this much from one table to the next, at least, and so many times as much as the table has bytes.
const EVERY_BYTES: u64 = 64 << 20;
const TIMES_OWN_BYTES: u64 = 16;

/// What is kept of the moment `at`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub at: Lsn,
    pub durable: Lsn,
    pub next_txn: TxnId,
    /// Dirty pages and their last LSNs, in no order.
    pub pages: Vec<(PageId, Lsn)>,
}

impl Storage {
    /// Makes a table if the log has grown enough since the last, or since there was no room for one. `false`: not needed, or
    /// not possible at this moment.
    ///
    /// # Errors
    /// Those of writing the page map and the table.
    pub(in crate::storage) fn note_dirty_pages_if_due(&self) -> Result<bool, Fault> {
        let tried = self.tabled.load(Ordering::Relaxed).max(self.untabled.load(Ordering::Relaxed));
        let last = tried.max(self.redo.checkpoint().0);
        let own_bytes = self.pool.dirty_pages() * ENTRY as u64;
        let every = EVERY_BYTES.max(TIMES_OWN_BYTES * own_bytes);
        if self.redo.reserved().0 - last < every {
            return Ok(false);
        }
        self.note_dirty_pages()
    }

    /// Makes a table; `false` if this is not the moment for it, or the device is full: the last one counts on then.
    ///
    /// # Errors
    /// Those of writing the page map and the table.
    pub fn note_dirty_pages(&self) -> Result<bool, Fault> {
        if self.is_recovering() {
            return Ok(false);
        }
        let _one = self.checkpointing.lock();
        // No image's place is logged and not in the page map.
        let at = {
            let _nobody = self.installing.write();
            self.redo.reserved()
        };
        let next_txn = TxnId(self.next_txn.load(Ordering::Acquire));
        let Some(pages) = self.dirty_pages() else { return Ok(false) };
        let changed_to = self.redo.reserved();
        self.persist_map(at)?;
        self.redo.wait_durable(changed_to)?;
        let durable = self.redo.durable();
        let table = Table { at, durable, next_txn, pages };
        if let Err(error) = table.write_new(&*self.disk, self.database_id) {
            if !error.may_be_passed_over() {
                return Err(error.into());
            }
            let _ = self.disk.remove(NEW);
            self.untabled.store(at.0, Ordering::Relaxed);
            return Ok(false);
        }
        self.disk.rename(NEW, NAME)?;
        self.disk.sync_dir()?;
        self.tabled.store(at.0, Ordering::Relaxed);
        // It counts from here on: a table that was left behind, say beside files from a backup, doesn't.
        self.store.write_control(&self.control(self.redo.checkpoint(), durable, false))?;
        Ok(true)
    }

    /// All dirty pages with their last LSNs. Whoever has appended to the log before this begins is waited for: he holds the
    /// latches of what he has changed. `None` if a page is being freed whose image is just being written.
    fn dirty_pages(&self) -> Option<Vec<(PageId, Lsn)>> {
        let mut pages = Vec::with_capacity(self.pool.dirty_pages() as usize);
        for frame in &self.pool.frames {
            let (page, lsn, state) = frame.settled(|f| {
                let (page, lsn) = (&f.page, &f.lsn);
                let state = f.state.load(Ordering::Relaxed);
                (page.load(Ordering::Relaxed), lsn.load(Ordering::Relaxed), state)
            });
            if state & (FREED | FREEING) != 0 {
                return None;
            }
            if state & (DIRTY | WRITING) != 0 {
                pages.push((PageId(page), Lsn(lsn)));
            }
        }
        Some(pages)
    }
}

impl Table {
    /// Writes the table into a file of its own.
    fn write_new(&self, disk: &dyn Disk, database_id: u64) -> Result<(), DiskError> {
        let file = disk.open(NEW, Create::IfAbsent, Mode::Cached)?;
        file.set_len(0)?;
        let mut crc = 0;
        let mut offset = BLOCK as u64;
        for part in self.pages.chunks(CHUNK / ENTRY) {
            let mut buf = AlignedBuf::zeroed((part.len() * ENTRY).next_multiple_of(BLOCK));
            for ((page, lsn), to) in part.iter().zip(buf.chunks_exact_mut(ENTRY)) {
                to[..4].copy_from_slice(&page.0.to_le_bytes());
                to[4..].copy_from_slice(&lsn.0.to_le_bytes());
            }
            crc = crc32c::crc32c_append(crc, &buf[..part.len() * ENTRY]);
            let bytes = buf.len() as u64;
            file.write(offset, buf)?;
            offset += bytes;
        }
        let mut head = AlignedBuf::zeroed(BLOCK);
        head[..8].copy_from_slice(&MAGIC);
        head[12..16].copy_from_slice(&crc.to_le_bytes());
        let fields =
            [database_id, self.at.0, self.durable.0, self.next_txn.0, self.pages.len() as u64];
        for (field, to) in fields.iter().zip(head[16..].chunks_exact_mut(8)) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        let of_head = crc32c::crc32c(&head);
        head[8..12].copy_from_slice(&of_head.to_le_bytes());
        file.write(0, head)?;
        file.sync()
    }

    /// The table of this database, if there is a whole one that can be read: without it recovery takes longer.
    pub fn read(disk: &dyn Disk, database_id: u64) -> Option<Table> {
        Table::try_read(disk, database_id).unwrap_or(None)
    }

    fn try_read(disk: &dyn Disk, database_id: u64) -> Result<Option<Table>, Fault> {
        if !disk.list()?.iter().any(|name| name == NAME) {
            return Ok(None);
        }
        let file = disk.open(NAME, Create::No, Mode::Cached)?;
        let mut left = file.len()?;
        if left < BLOCK as u64 {
            return Ok(None);
        }
        let mut head = file.read(0, AlignedBuf::zeroed(BLOCK))?;
        left -= BLOCK as u64;
        let (of_head, of_entries) = (u32_at(&head, 8), u32_at(&head, 12));
        head[8..12].fill(0);
        if head[..8] != MAGIC
            || crc32c::crc32c(&head) != of_head
            || u64_at(&head, 16) != database_id
        {
            return Ok(None);
        }
        let count = u64_at(&head, 48);
        // Each chunk is padded.
        if count.saturating_mul(ENTRY as u64) > left {
            return Ok(None);
        }
        let mut table = Table {
            at: Lsn(u64_at(&head, 24)),
            durable: Lsn(u64_at(&head, 32)),
            next_txn: TxnId(u64_at(&head, 40)),
            pages: Vec::with_capacity(count as usize),
        };
        Ok(table.read_entries(&*file, count as usize, of_entries)?.then_some(table))
    }

    fn read_entries(&mut self, file: &dyn File, count: usize, wanted: u32) -> Result<bool, Fault> {
        let (mut crc, mut offset) = (0, BLOCK as u64);
        let length = file.len()?;
        while self.pages.len() < count {
            let entries = (count - self.pages.len()).min(CHUNK / ENTRY);
            let bytes = (entries * ENTRY).next_multiple_of(BLOCK);
            if offset + bytes as u64 > length {
                return Ok(false);
            }
            let buf = file.read(offset, AlignedBuf::zeroed(bytes))?;
            crc = crc32c::crc32c_append(crc, &buf[..entries * ENTRY]);
            self.pages.extend(
                buf.chunks_exact(ENTRY)
                    .take(entries)
                    .map(|entry| (PageId(u32_at(entry, 0)), Lsn(u64_at(entry, 4)))),
            );
            offset += bytes as u64;
        }
        Ok(crc == wanted)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_os::{SimDisk, sim};

    fn table(pages: u32) -> Table {
        let entry = |n| (PageId(n), Lsn(1000 + 8 * u64::from(n)));
        let pages = (1..=pages).map(entry).collect();
        Table { at: Lsn(4096), durable: Lsn(8192), next_txn: TxnId(17), pages }
    }

    fn write(table: &Table, disk: &SimDisk) {
        table.write_new(disk, 7).unwrap();
        disk.rename(NEW, NAME).unwrap();
    }

    #[test]
    fn what_was_written_is_read() {
        let disk = SimDisk::new(1);
        assert_eq!(Table::read(&disk, 7), None);
        for pages in [0, 1, 1000, 200_000] {
            write(&table(pages), &disk);
            assert_eq!(Table::read(&disk, 7), Some(table(pages)), "{pages} pages");
        }
        assert_eq!(Table::read(&disk, 8), None, "another database's");
    }

    #[test]
    fn a_damaged_table_is_none() {
        let disk = SimDisk::new(1);
        write(&table(500), &disk);
        let file = disk.open(NAME, Create::No, Mode::Cached).unwrap();
        for at in [0, 9, 13, 17, 30, 41, 49, 4096, 5000, 4096 + 499 * 12] {
            let block = at / BLOCK * BLOCK;
            let whole = file.read(block as u64, AlignedBuf::zeroed(BLOCK)).unwrap();
            let mut damaged = AlignedBuf::copy_of(&whole);
            damaged[at - block] ^= 4;
            file.write(block as u64, damaged).unwrap();
            assert_eq!(Table::read(&disk, 7), None, "damaged at {at}");
            file.write(block as u64, whole).unwrap();
        }
        assert!(Table::read(&disk, 7).is_some());
        for bytes in [0, 100, 4096, 8192] {
            file.set_len(bytes).unwrap();
            assert_eq!(Table::read(&disk, 7), None, "cut to {bytes}");
        }
    }

    /// The database was not opened, and could do without it.
    #[test]
    fn a_table_that_can_not_be_read_is_none() {
        let disk = SimDisk::new(1);
        write(&table(500), &disk);
        for nth in 0.. {
            let (on, at, times) = (None, disk.operations() + nth, sim::Times::Once);
            disk.inject(sim::Fault::Io { on, at, times });
            let read = Table::read(&disk, 7);
            disk.clear_faults();
            if nth > 0 && read.is_some() {
                assert!(nth > 2, "{nth} operations");
                break;
            }
            assert_eq!(read, None, "operation {nth}");
        }
    }
}

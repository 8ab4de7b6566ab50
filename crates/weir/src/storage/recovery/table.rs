//! The dirty page table: what analysis would otherwise have to find in the log.
//!
//! Now and then, as the log grows, all dirty pages are noted with their last LSNs, after everything
//! that was relocated or freed before has been written to the page map. Recovery then reads the log
//! from the table's LSN on, not from the checkpoint, to know where it ends and which pages lag
//! behind it (a fuzzy checkpoint as in ARIES; Mohan et al., 1992). The control file says which
//! table counts. Without it, or with one that is broken or too old, recovery reads more, and finds
//! the same.
//!
//! File `dirty`, little endian:
//!
//! | offset | width | what |
//! |---|---|---|
//! | 0 | 8 | magic `WEIRDPT2` |
//! | 8 | 4 | CRC-32C over this block with this field zero |
//! | 12 | 4 | CRC-32C over the entries |
//! | 16 | 8 | database id |
//! | 24 | 8 | LSN of the table: what the log has from here on is not in it |
//! | 32 | 8 | LSN that the log was durable up to: the table names none from here on |
//! | 40 | 8 | next transaction id |
//! | 48 | 8 | number of entries |
//! | 56 | 8 | bytes of entries |
//! | 64 | | 0 |
//! | 4096 | | entries, by page id, and zeros up to a whole block |
//!
//! An entry is two varints ([`weir_page::varint`]): how much higher its page id is than that of the
//! entry before (of the first: the id), and how far its page's last LSN lies before the one at 32,
//! in units of 8 bytes.

use super::super::pool::{DIRTY, FREED, FREEING, WRITING};
use super::super::{Fault, Storage};
use std::sync::atomic::Ordering;
use weir_os::{AlignedBuf, BLOCK, Create, Disk, DiskError, Mode};
use weir_page::varint::{self, Input};
use weir_page::{Lsn, PageId, TxnId};

/// The table's file.
pub(super) const NAME: &str = "dirty";
const NEW: &str = "dirty.new";
const MAGIC: [u8; 8] = *b"WEIRDPT2";
/// Bytes of an entry, about.
const ENTRY: u64 = 6;
/// Bytes written or read at once.
const CHUNK: usize = 1 << 20;

/// The log grows by this much from one table to the next, at least, and so many times as much as
/// the table has bytes.
const EVERY_BYTES: u64 = 32 << 20;
const TIMES_OWN_BYTES: u64 = 16;

/// What is kept of the moment `at`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::storage) struct Table {
    pub at: Lsn,
    pub durable: Lsn,
    pub next_txn: TxnId,
    /// Dirty pages, by their ids, and their last LSNs.
    pub pages: Vec<(PageId, Lsn)>,
}

impl Storage {
    /// Makes a table if the log has grown enough since the last, or since there was no room for
    /// one. `false`: not needed, or not possible at this moment.
    ///
    /// # Errors
    /// Those of writing the page map and the table.
    pub(in crate::storage) fn note_dirty_pages_if_due(&self) -> Result<bool, Fault> {
        let tried = self.tabled.load(Ordering::Relaxed).max(self.untabled.load(Ordering::Relaxed));
        let last = tried.max(self.redo.checkpoint().0);
        let own_bytes = self.pool.dirty_pages() * ENTRY;
        let every = EVERY_BYTES.max(TIMES_OWN_BYTES * own_bytes);
        if self.redo.reserved().0 - last < every {
            return Ok(false);
        }
        self.note_dirty_pages()
    }

    /// Makes a table; `false` if this is not the moment for it, or the device is full: the last one
    /// counts on then.
    ///
    /// # Errors
    /// Those of writing the page map and the table.
    pub fn note_dirty_pages(&self) -> Result<bool, Fault> {
        if self.is_recovering() {
            return Ok(false);
        }
        let mut noted = self.checkpointing.lock();
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
        self.redo.sync_names()?;
        self.tabled.store(at.0, Ordering::Relaxed);
        // It counts from here on: a table that was left behind, say beside files from a backup,
        // doesn't.
        self.write_control(&mut noted, &self.control(self.redo.checkpoint(), durable, false))?;
        Ok(true)
    }

    /// The table that counts, if there is one. No other is made meanwhile: the caller sees to that.
    pub(in crate::storage) fn current_dirty_table(&self) -> Option<Table> {
        let at = Lsn(self.tabled.load(Ordering::Relaxed));
        Table::read(&*self.disk, self.database_id).filter(|table| table.at == at)
    }

    /// All dirty pages with their last LSNs, by their ids. Whoever has appended to the log before
    /// this begins is waited for: he holds the latches of what he has changed. `None` if a page is
    /// being freed whose image is just being written.
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
        pages.sort_unstable();
        Some(pages)
    }
}

impl Table {
    /// Writes the table to the disk of another database, durably but for its name.
    pub(in crate::storage) fn copy_to(
        &self,
        disk: &dyn Disk,
        database_id: u64,
    ) -> Result<(), DiskError> {
        self.write_new(disk, database_id)?;
        disk.rename(NEW, NAME)
    }

    /// Writes the table into a file of its own.
    fn write_new(&self, disk: &dyn Disk, database_id: u64) -> Result<(), DiskError> {
        let file = disk.open(NEW, Create::IfAbsent, Mode::Cached)?;
        file.set_len(0)?;
        let entries = self.entries();
        for (nth, part) in entries.chunks(CHUNK).enumerate() {
            let mut buf = AlignedBuf::zeroed(part.len().next_multiple_of(BLOCK));
            buf[..part.len()].copy_from_slice(part);
            file.write((BLOCK + nth * CHUNK) as u64, buf)?;
        }
        let mut head = AlignedBuf::zeroed(BLOCK);
        head[..8].copy_from_slice(&MAGIC);
        head[12..16].copy_from_slice(&crc32c::crc32c(&entries).to_le_bytes());
        let (count, bytes) = (self.pages.len() as u64, entries.len() as u64);
        let fields = [database_id, self.at.0, self.durable.0, self.next_txn.0, count, bytes];
        for (field, to) in fields.iter().zip(head[16..].chunks_exact_mut(8)) {
            to.copy_from_slice(&field.to_le_bytes());
        }
        let of_head = crc32c::crc32c(&head);
        head[8..12].copy_from_slice(&of_head.to_le_bytes());
        file.write(0, head)?;
        file.sync()
    }

    fn entries(&self) -> Vec<u8> {
        let mut entries = Vec::with_capacity(self.pages.len() * ENTRY as usize);
        let mut before = 0;
        for &(page, last) in &self.pages {
            varint::put(&mut entries, u64::from(page.0 - before));
            varint::put(&mut entries, (self.durable.0 - last.0) / 8);
            before = page.0;
        }
        entries
    }

    /// Takes over `count` entries; whether they are such.
    fn take_entries(&mut self, count: u64, entries: &[u8]) -> bool {
        let mut input = Input::new(entries);
        let mut before = 0u32;
        // Each has two bytes, at least.
        self.pages.reserve(count.min(entries.len() as u64 / 2) as usize);
        for _ in 0..count {
            let page = input.varint().and_then(|by| before.checked_add(u32::try_from(by).ok()?));
            let behind = input.varint().and_then(|units| units.checked_mul(8));
            let last = behind.and_then(|bytes| self.durable.0.checked_sub(bytes));
            let (Some(page), Some(last)) = (page, last) else { return false };
            self.pages.push((PageId(page), Lsn(last)));
            before = page;
        }
        input.rest().is_empty()
    }

    /// The table of this database, if there is a whole one that can be read: without it recovery
    /// takes longer.
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
        let (count, bytes) = (u64_at(&head, 48), u64_at(&head, 56));
        // The last block is padded.
        if bytes > left {
            return Ok(None);
        }
        let mut entries = Vec::with_capacity(bytes as usize);
        while (entries.len() as u64) < bytes {
            let part = (bytes as usize - entries.len()).min(CHUNK);
            let buf = AlignedBuf::zeroed(part.next_multiple_of(BLOCK));
            let buf = file.read((BLOCK + entries.len()) as u64, buf)?;
            entries.extend_from_slice(&buf[..part]);
        }
        let mut table = Table {
            at: Lsn(u64_at(&head, 24)),
            durable: Lsn(u64_at(&head, 32)),
            next_txn: TxnId(u64_at(&head, 40)),
            pages: Vec::new(),
        };
        let is_whole =
            crc32c::crc32c(&entries) == of_entries && table.take_entries(count, &entries);
        Ok(is_whole.then_some(table))
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
    use super::super::super::StorageOptions;
    use super::super::super::mtr::tests::new_page;
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread::{self, Builder};
    use std::time::Duration;
    use weir_os::SimDisk;
    use weir_os::sim::{self, ObservedDisk, OpKind, Times};

    const MOMENT: Duration = Duration::from_millis(1);

    fn table(pages: u32) -> Table {
        let entry = |n| (PageId(3 * n), Lsn(1000 + 8 * u64::from(n)));
        let pages = (1..=pages).map(entry).collect();
        Table { at: Lsn(4096), durable: Lsn(2_000_000), next_txn: TxnId(17), pages }
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
        for at in [0, 9, 13, 17, 30, 41, 49, 57, 4096, 4600, 4096 + 499 * 3] {
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

    /// The log's own sync, which came next, succeeded: it took the names of its new files for
    /// durable.
    #[test]
    fn names_that_can_not_be_made_durable_stop_a_log_that_is_just_made_longer() {
        let sim = SimDisk::new(1);
        let (of, made) = (sim.clone(), Arc::new(AtomicBool::new(false)));
        let (is_made, noted) = (made.clone(), Arc::new(AtomicBool::new(false)));
        let is_noted = noted.clone();
        let disk = ObservedDisk::new(sim.clone(), move |op| {
            if (op.name, op.file, op.is_done) != ("sync", "", false) {
                return Ok(());
            }
            match thread::current().name() {
                Some("grows") => {
                    is_made.store(true, Ordering::Release);
                    // Who notes may have to wait for this.
                    let waits = || !is_noted.load(Ordering::Acquire);
                    (0..50).take_while(|_| waits()).for_each(|_| thread::sleep(MOMENT));
                }
                Some("notes") => {
                    let (on, at) = (Some(OpKind::Sync), of.operations());
                    of.inject(sim::Fault::Io { on, at, times: Times::Once });
                }
                _ => {}
            }
            Ok(())
        });
        let storage = Storage::create(Arc::new(disk), &StorageOptions::small(64)).unwrap();
        new_page(&storage);
        thread::scope(|scope| {
            let named = |name: &str| Builder::new().name(name.into());
            let grow = || drop(storage.redo.set_capacity(8 << 20));
            named("grows").spawn_scoped(scope, grow).unwrap();
            while !made.load(Ordering::Acquire) {
                thread::yield_now();
            }
            let note = || {
                storage.note_dirty_pages().unwrap_err();
                noted.store(true, Ordering::Release);
            };
            named("notes").spawn_scoped(scope, note).unwrap();
        });
        assert!(storage.redo.check().is_err());
    }
}

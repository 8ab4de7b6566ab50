//! The page writer: dirty pages to their new places.
//!
//! For a batch: take space in the log for what will be said of it; copy each page under its shared
//! latch and mark it being written; compress and write all; one data sync; one relocation record;
//! point the map to the new places. While a batch runs, its oldest recovery LSN holds the
//! checkpoint. A page that was freed meanwhile gets a second `Free` record behind the relocation,
//! so that the log's last word on it is that it is free.

use super::flush_list::FlushList;
use super::pool::{DIRTY, FREED, FREEING, Frame, NO_FRAME, WRITING};
use super::writers::Done;
use super::{Fault, Storage};
use crate::sync::spin_hint;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weir_page::{Before, Kind, Lsn, Page, PageId, Redo, node};
use weir_redo::{Credit, group_bytes};
use weir_store::{PageCopy, Relocation, StoreError};

/// Most batches noted for the governor.
const NOTED_MAX: usize = 1 << 12;

/// Most bytes of a record that a page is free, and of a record of relocations without those.
const RECORD_BYTES_MAX: usize = 24;

/// Space in the log for what is said of a batch once it is written: where its pages are now, and
/// which of them were freed meanwhile. Had before the first page is marked, for want of it can't be
/// mended later.
pub(super) struct LogSpace<'s> {
    credit: Credit<'s>,
    _counted: Counted<'s>,
}

/// One of those that a counter counts.
struct Counted<'s>(&'s AtomicU32);

impl<'s> Counted<'s> {
    fn by(counter: &'s AtomicU32) -> Self {
        counter.fetch_add(1, Ordering::Relaxed);
        Counted(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why pages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The log needs their space.
    Deadline,
    /// Too many pages are dirty.
    DirtyLimit,
    /// Frames are needed.
    FreeFrames,
    /// Somebody asked for a checkpoint, or for a shorter file.
    Checkpoint,
    /// The database shuts down.
    Shutdown,
}

/// A dirty page, copied to be written with the others of its batch.
pub(super) struct CopiedPage {
    frame: u32,
    page: PageId,
    page_lsn: Lsn,
    rec_lsn: Lsn,
    /// Where among the batch's bytes those of the page are, its hole left out.
    used: Range<usize>,
    hole: usize,
    alike: u32,
}

impl CopiedPage {
    /// What the store is to write; `bytes`: of the batch.
    pub(super) fn to_store<'b>(&self, bytes: &'b [u8]) -> PageCopy<'b> {
        PageCopy {
            page: self.page,
            lsn: self.page_lsn,
            used: &bytes[self.used.clone()],
            hole: self.hole,
            alike: self.alike,
        }
    }
}

/// The same for pages that compress alike: leaves of a tree, and pages of any other kind.
fn alike(page: &Page) -> u32 {
    match page.kind() {
        Kind::Leaf => node::tree(page).0,
        // No tree has such a number.
        other => u32::MAX - other as u32,
    }
}

impl Storage {
    /// Has the page of a frame written soon: it has been changed very often since it was.
    #[cold]
    pub(super) fn cut_chain_of(&self, frame: u32) {
        self.pool.flush.lock().push_hot(frame);
        self.flusher.raise();
    }

    /// Writes those of `frames` that are dirty; returns how many there were.
    ///
    /// # Errors
    /// No space on the device, or for that reason none in the log: the pages are dirty as before.
    /// Everything else stops the database.
    pub fn write_pages(&self, frames: &[u32], reason: Reason) -> Result<usize, Fault> {
        assert!(frames.len() <= self.batch_pages(), "a batch has its limit");
        if frames.is_empty() {
            return Ok(0);
        }
        let mut bytes = self.copies.lock().pop().unwrap_or_default();
        let written = self.write_copies(frames, reason, &mut bytes);
        bytes.clear();
        self.copies.lock().push(bytes);
        written
    }

    /// Most pages written together: one sync for many, in buffers that are small beside the pool.
    pub(super) fn batch_pages(&self) -> usize {
        (self.pool.frames() / 64).clamp(16, 256)
    }

    fn write_copies(
        &self,
        frames: &[u32],
        reason: Reason,
        bytes: &mut Vec<u8>,
    ) -> Result<usize, Fault> {
        let began = Instant::now();
        let space = self.log_space(frames.len())?;
        let mut copied = Vec::with_capacity(frames.len());
        for &frame in frames {
            self.copy_page(frame, &mut copied, bytes);
        }
        let Some(guard) = copied.iter().map(|c| c.rec_lsn).min() else { return Ok(0) };
        {
            let mut list = self.pool.flush.lock();
            list.guard(guard);
            copied.iter().for_each(|c| list.unguard(c.rec_lsn));
        }
        let batch: Vec<_> = copied.iter().map(|c| c.to_store(bytes)).collect();
        match self.store.write_batch(&batch) {
            Ok(moved) => self.relocate(space, &copied, &moved, guard),
            Err(error) => {
                self.put_back(&copied);
                self.pool.flush.lock().unguard(guard);
                if matches!(error, StoreError::NoSpace { .. }) {
                    self.full.lock().replace(error.clone());
                    // For who tries again.
                    self.release_pending()?;
                }
                return Err(error.into());
            }
        }
        *self.full.lock() = None;
        self.figures.count_written(reason, copied.len());
        self.note_written(copied.len(), began);
        if self.inline {
            self.release_much_pending()?;
        }
        Ok(copied.len())
    }

    /// Copies a dirty page and marks it being written, holding the checkpoint at its recovery LSN.
    pub(super) fn copy_page(&self, frame: u32, copied: &mut Vec<CopiedPage>, bytes: &mut Vec<u8>) {
        let state = self.pool.frame(frame);
        if state.state.load(Ordering::Relaxed) & (DIRTY | WRITING) != DIRTY {
            return;
        }
        if !state.latch.try_shared() {
            return;
        }
        // Whoever has changed a page by half has stopped the database with the page latched.
        if !self.has_stopped() {
            let mut list = self.pool.flush.lock();
            let now = state.state.load(Ordering::Relaxed);
            if now & (DIRTY | WRITING) == DIRTY {
                state.state.store(WRITING, Ordering::Relaxed);
                state.cut_chain();
                let rec_lsn = Lsn(state.rec_lsn.load(Ordering::Relaxed));
                list.write_begins(rec_lsn);
                list.guard(rec_lsn);
                drop(list);
                // SAFETY: the shared latch is held: nobody writes the frame.
                let page = unsafe { &*self.pool.ptr(frame) };
                let start = bytes.len();
                let hole = page.append_used(bytes);
                copied.push(CopiedPage {
                    frame,
                    page: page.id(),
                    page_lsn: page.lsn(),
                    rec_lsn,
                    used: start..bytes.len(),
                    hole,
                    alike: alike(page),
                });
            }
        }
        state.latch.unlock_shared();
    }

    /// Waits for space in the log for what will be said of a batch of so many pages: a group of
    /// relocations, and one of ends of pages.
    pub(super) fn log_space(&self, pages: usize) -> Result<LogSpace<'_>, Fault> {
        let relocations = weir_store::relocations_bytes_max(pages) + RECORD_BYTES_MAX;
        let credit = self.admit_writer(group_bytes(relocations) + pages * RECORD_BYTES_MAX)?;
        Ok(LogSpace { credit, _counted: Counted::by(&self.log_spaces) })
    }

    /// Logs where the pages are now, and points the map there.
    pub(super) fn relocate(
        &self,
        space: LogSpace<'_>,
        copied: &[CopiedPage],
        moved: &[Relocation],
        guard: Lsn,
    ) {
        let mut moves = Vec::new();
        weir_store::encode_relocations(moved, &mut moves);
        let relocations = group(&[Redo::Relocate { moves: &moves }]);
        let (credit, for_frees) = space.credit.split(relocations.len());
        let rec_lsn = self.redo.reserved();
        self.append_system(credit, &relocations, |start| {
            self.store.install(moved, rec_lsn, start);
        });
        copied.iter().for_each(|c| self.wait_for_free(c.frame));
        let mut freed = Vec::new();
        {
            let mut list = self.pool.flush.lock();
            let mut clean = 0;
            for c in copied {
                let state = self.pool.frame(c.frame);
                let before = state.state.fetch_and(!WRITING, Ordering::Relaxed);
                if before & FREED != 0 {
                    freed.push(c);
                }
                if before & DIRTY == 0 {
                    list.write_ends();
                    clean += 1;
                }
            }
            self.page_is_clean(&mut list, clean);
        }
        if !freed.is_empty() {
            let frees: Vec<_> = freed.iter().map(|c| Redo::Free { page: c.page }).collect();
            self.append_system(for_frees, &group(&frees), |again| {
                freed.iter().for_each(|c| self.give_up_page(c.page, c.frame, rec_lsn, again));
            });
        }
        self.pool.flush.lock().unguard(guard);
    }

    /// Waits until whoever has begun to free the page has done so: for memory operations only, as
    /// for a latch. Who begins later logs the page's end behind its new place.
    fn wait_for_free(&self, frame: u32) {
        let (state, mut turns) = (&self.pool.frame(frame).state, 0);
        while state.load(Ordering::Acquire) & FREEING != 0 {
            spin_hint(&mut turns);
        }
    }

    /// Makes pages whose write failed dirty again, as long as they were.
    fn put_back(&self, copied: &[CopiedPage]) {
        for c in copied {
            let state = self.pool.frame(c.frame);
            let mut list = self.pool.flush.lock();
            let now = state.state.load(Ordering::Relaxed);
            if now & FREED != 0 {
                let lsn = Lsn(state.rec_lsn.load(Ordering::Relaxed));
                list.write_ends();
                self.page_is_clean(&mut list, 1);
                drop(list);
                self.give_up_page(c.page, c.frame, c.rec_lsn, lsn);
                continue;
            }
            if now & DIRTY != 0 {
                list.forget(Lsn(state.rec_lsn.load(Ordering::Relaxed)));
                list.write_goes_on();
            }
            state.rec_lsn.store(c.rec_lsn.0, Ordering::Relaxed);
            state.state.store(DIRTY, Ordering::Relaxed);
            list.put_back(c.rec_lsn, c.frame);
        }
    }

    /// Notes a batch for the governor, if there is one to take note.
    fn note_written(&self, pages: usize, began: Instant) {
        if !self.inline {
            let mut written = self.written.lock();
            // Between the opening and the first turn nobody takes note.
            if written.len() < NOTED_MAX {
                written.push(Done { pages, began, ended: Instant::now() });
            }
        }
    }

    /// Batches written since the last call.
    pub(super) fn take_written(&self) -> Vec<Done> {
        std::mem::take(&mut self.written.lock())
    }

    /// Gives back the credits of frames that are neither dirty nor being written any more.
    pub(super) fn page_is_clean(&self, list: &mut FlushList, pages: u64) {
        if pages == 0 {
            return;
        }
        self.dirty.give_back(pages);
        if list.most() != self.dirty.limit() && self.dirty.outstanding() <= self.dirty.limit() {
            list.set_most(self.dirty.limit());
        }
        self.clean.raise();
    }

    /// Gives up image, number and frame of a page that is free by the record at `lsn`.
    pub(super) fn give_up_page(&self, page: PageId, frame: u32, rec_lsn: Lsn, lsn: Lsn) {
        self.store.free_page(page, rec_lsn, lsn);
        self.store.map().slot(page).frame.store(NO_FRAME, Ordering::Release);
        self.store.release_page(page);
        self.pool.frame(frame).state.store(0, Ordering::Release);
        self.pool.retire(vec![frame]);
    }

    /// Waits until the pages are given up that were freed while they were being written. Nobody
    /// frees others meanwhile.
    ///
    /// # Errors
    /// Those of [`Storage::check`].
    pub fn wait_for_freed(&self) -> Result<(), Fault> {
        let is_left = |frame: &Frame| frame.state.load(Ordering::Acquire) & FREED != 0;
        while self.pool.frames.iter().any(is_left) {
            self.check()?;
            self.clean.wait(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Appends a group on the log's reserve, and has the page map say the same.
    fn append_system(&self, credit: Credit<'_>, group: &[u8], install: impl FnOnce(Lsn)) {
        let _installing = self.installing.read();
        install(self.redo.append(credit, group).start);
    }
}

/// A group of records that belong to no page's chain.
fn group(records: &[Redo<'_>]) -> Vec<u8> {
    let (mut group, mut before) = (Vec::new(), Before::default());
    records.iter().for_each(|r| r.encode(Lsn(0), Lsn(0), &mut before, &mut group));
    group
}

#[cfg(test)]
mod tests {
    use super::super::StorageOptions;
    use super::super::mtr::tests::new_page;
    use super::*;
    use std::sync::Arc;
    use weir_os::SimDisk;
    use weir_redo::Admission;

    /// Takes the log's space but for a group of `left` bytes.
    fn with_log_taken(storage: &Storage, left: usize) -> Vec<Credit<'_>> {
        let rest = storage.redo.try_admit(left, Admission::System).unwrap();
        let take = || storage.redo.try_admit(8, Admission::System).ok();
        let taken = std::iter::from_fn(take).collect();
        drop(rest);
        taken
    }

    /// A storage whose log buffer is longer than the log.
    fn storage() -> Storage {
        let mut options = StorageOptions::small(64);
        options.redo.buffer_bytes = 8 << 20;
        Storage::create(Arc::new(SimDisk::new(1)), &options).unwrap()
    }

    /// It was found only once the pages had been written, and stopped the database.
    #[test]
    fn pages_are_not_written_before_the_log_has_space_to_say_where_they_are() {
        let storage = storage();
        let page = new_page(&storage);
        let frame = storage.pool.find(&storage.store, page).unwrap();
        let taken = with_log_taken(&storage, 8);
        storage.full.lock().replace(StoreError::NoSpace { needed: 1, file: "map".into() });
        let refused = storage.write_pages(&[frame], Reason::Deadline).unwrap_err();
        assert!(refused.is_no_space(), "{refused}");
        drop(taken);
        storage.check().unwrap();
        assert_eq!(storage.write_pages(&[frame], Reason::Deadline).unwrap(), 1);
    }

    /// However slow the device is: who has space in the log gives it back.
    #[test]
    fn who_lacks_log_space_waits_for_batches_that_are_being_written() {
        let storage = storage();
        let taken = with_log_taken(&storage, 128);
        let space = storage.log_space(1).unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| storage.log_space(1).map(drop));
            // Much longer than it would wait for the checkpoint to move.
            for _ in 0..500 {
                assert!(!next.is_finished());
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(space);
            next.join().unwrap().unwrap();
        });
        drop(taken);
    }

    #[test]
    fn records_are_no_longer_than_the_space_for_them() {
        let free = group(&[Redo::Free { page: PageId(u32::MAX) }]);
        assert!(free.len() <= RECORD_BYTES_MAX, "{}", free.len());
        let moves = [0; 1 << 20];
        let relocations = group(&[Redo::Relocate { moves: &moves }]);
        assert!(relocations.len() - moves.len() <= RECORD_BYTES_MAX);
    }
}

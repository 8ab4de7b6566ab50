//! Pages brought into memory, one or several at once, by who waits for them; pages latched for
//! reading.
//!
//! What is read needs frames, which the caller waits for or does without (`frames`). Who can go on
//! meanwhile has others read (`ahead`).

use super::pool::{Claim, PageRead, Stop};
use super::{Fault, Storage, work};
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_os::Blocked;
use weir_page::PageId;
use weir_store::{MapSlot, StoreError};

impl Storage {
    /// Brings a page into memory. The caller holds no latch. `false` if no such page is stored: the
    /// reference to it was out of date.
    ///
    /// # Errors
    /// The image can't be read or is corrupt.
    pub fn load(&self, page: PageId) -> Result<bool, Fault> {
        let slot = self.store.map().slot(page);
        if self.pool.behind(slot).is_some() {
            self.catch_up(page, slot)?;
            return Ok(true);
        }
        let Some(claim) = self.pool.claim(slot, page) else { return Ok(true) };
        Ok(slot.extent().is_some() && self.load_claimed(page, slot, &claim)?)
    }

    /// Brings a page into a frame as it is stored; `false` if it isn't.
    pub(super) fn load_claimed(
        &self,
        page: PageId,
        slot: &MapSlot,
        claim: &Claim<'_>,
    ) -> Result<bool, Fault> {
        let frame = self.take_frame()?;
        // SAFETY: the frame is free and ours alone until it is published.
        let to = unsafe { &mut *self.pool.ptr(frame) };
        let read = {
            let _blocked = Blocked::begin();
            let began = Instant::now();
            let read = self.store.read_page(page, &mut to.0);
            work::note_read(began);
            read
        };
        let read = read.map_err(Fault::from);
        let read = read.and_then(|()| to.check_bounds().map_err(|what| malformed(page, &what)));
        if let Err(error) = read {
            self.return_frames(&[frame]);
            return match error {
                Fault::Store(StoreError::NotStored { .. }) => Ok(false),
                error => Err(error),
            };
        }
        self.figures.pages_loaded.fetch_add(1, Ordering::Relaxed);
        self.pool.publish(slot, claim, frame, 1);
        Ok(true)
    }

    /// Brings several pages into memory, read at once, as far as free frames go, and waits for
    /// them. The caller holds no latch. What can't be had is left to [`Storage::load`].
    pub fn load_many(&self, pages: &[PageId]) {
        self.load_many_with_hits(pages, 0);
    }

    /// As [`Storage::load_many`]; `hits`: uses that count for replacement, those to come among
    /// them.
    pub(super) fn load_many_with_hits(&self, pages: &[PageId], hits: u32) {
        /// So many at once are read as fast as more, and keep no more frames from others meanwhile.
        const AT_ONCE: usize = 256;
        pages.chunks(AT_ONCE).for_each(|pages| self.load_batch(pages, hits));
    }

    fn load_batch(&self, pages: &[PageId], hits: u32) {
        let mut frames = self.pool.free.pop_up_to(pages.len(), self.frames_left_to_others());
        let mut claims = Vec::new();
        for &page in pages {
            let slot = self.store.map().slot(page);
            if claims.len() == frames.len() {
                break;
            }
            if slot.extent().is_some() {
                claims.extend(self.pool.try_claim(slot, page).map(|claim| (page, claim)));
            }
        }
        self.return_frames(&frames.split_off(claims.len()));
        let wanted: Vec<PageId> = claims.iter().map(|c| c.0).collect();
        if wanted.is_empty() {
            return;
        }
        let _blocked = Blocked::begin();
        let began = Instant::now();
        self.store.read_pages(&wanted, &mut |page, read| {
            let Some(at) = claims.iter().position(|c| c.0 == page) else { return };
            let (_, claim) = claims.swap_remove(at);
            // What can't be read is left to who needs it, who gets the error.
            let Ok(bytes) = read else { return };
            let frame = frames.pop().expect("there is one for each claim");
            // SAFETY: the frame is free and ours alone until it is published.
            let to = unsafe { &mut *self.pool.ptr(frame) };
            to.0.copy_from_slice(bytes);
            if to.check_bounds().is_err() {
                frames.push(frame);
                return;
            }
            self.figures.pages_read_ahead.fetch_add(1, Ordering::Relaxed);
            self.pool.publish(self.store.map().slot(page), &claim, frame, hits);
        });
        work::note_read_together(wanted.len(), began);
        self.return_frames(&frames);
        self.ask_for_frames();
    }

    /// Reads those of the pages side by side that are not in memory, for who comes to them now; as
    /// far as there are frames for them, or clean pages to be evicted.
    pub fn read_together(&self, mut pages: Vec<PageId>) {
        pages.retain(|page| !self.is_resident(*page));
        pages.sort_unstable();
        pages.dedup();
        if !pages.is_empty() {
            self.evict_clean_for_load(pages.len());
            self.load_many_with_hits(&pages, 1);
        }
    }

    /// Whether a page is in memory, for all.
    pub fn is_resident(&self, page: PageId) -> bool {
        self.pool.find(&self.store, page).is_ok()
    }

    /// Latches a resident page for reading. `scan` leaves its standing for replacement as it is.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn read(&self, page: PageId, scan: bool) -> Result<PageRead<'_>, Stop> {
        self.pool.read(&self.store, page, scan)
    }
}

/// An image is whole, and yet no page.
#[cold]
fn malformed(page: PageId, what: &str) -> Fault {
    Fault::page(page, format!("is malformed, though its checksum is right: {what}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Need, OnProgress, Reason, StorageOptions};
    use super::*;
    use std::sync::Arc;
    use weir_os::SimDisk;

    /// Its checksum was made after it had been spoilt, and who read it panicked.
    #[test]
    fn an_image_that_is_no_page_is_a_fault_of_the_page() {
        let disk = SimDisk::new(1);
        let options = StorageOptions::small(64);
        let storage = Storage::create(Arc::new(disk.clone()), &options).unwrap();
        let mut mtr = storage.mtr(Need::log(1 << 10).and_pages(1)).unwrap();
        let page = mtr.create();
        crate::tree::Tree::init(&mut mtr, page);
        mtr.commit();
        let frame = storage.pool.find(&storage.store, page).unwrap();
        // SAFETY: nobody else uses the storage.
        let bytes = unsafe { &mut *storage.pool.ptr(frame) };
        let slots = 34;
        bytes.set_u16(slots, 5000);
        storage.flush_all(Reason::Checkpoint, &mut |_| {}).unwrap();
        storage.note_clean().unwrap();
        drop(storage);
        let storage = Storage::open(Arc::new(disk), &options, OnProgress::default()).unwrap();
        let fault = storage.load(page).unwrap_err();
        assert_eq!(fault.damaged_page(), Some(page), "{fault}");
        assert!(fault.to_string().contains("5000 slots"), "{fault}");
        storage.load_many(&[page]);
        assert!(storage.pool.find(&storage.store, page).is_err());
    }
}

//! Pages in memory: frames for them, pages read when they are needed or ahead of that, pages latched for reading.
//!
//! A frame is waited for with no latch held. It comes from the evictor (`evict`); without threads, whoever needs
//! one evicts pages itself.

use super::admission::Wait;
use super::pool::{Claim, PageRead, Stop};
use super::{Fault, Storage, work};
use crossbeam_epoch as epoch;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use weir_os::Blocked;
use weir_page::PageId;
use weir_store::{MapSlot, StoreError};

/// Frames that are left by those who make new pages, while recovery goes on: they may wait for space in the log, which comes
/// free as recovery brings pages in.
pub(super) const LEFT_TO_RECOVERY: usize = 2;

/// How long a frame is waited for before somebody looks whether anything is in the way, at first, and at most.
const FIRST_WAIT: Duration = Duration::from_micros(500);
const LONGEST_WAIT: Duration = Duration::from_millis(20);

impl Storage {
    /// A free frame, after waiting for one.
    pub(super) fn take_frame(&self) -> Result<u32, Fault> {
        let mut wait = Wait::default();
        loop {
            if let Some(frame) = self.pool.free.pop() {
                self.ask_for_frames();
                return Ok(frame);
            }
            self.wait_for_frames(1, &mut wait)?;
        }
    }

    /// So many free frames, after waiting for them. Who waits for the last of them holds none: those who need fewer
    /// go on meanwhile, and give theirs back.
    #[inline]
    pub(super) fn take_frames(&self, number: usize) -> Result<Vec<u32>, Fault> {
        if number == 0 {
            return Ok(Vec::new());
        }
        let mut wait = Wait::default();
        loop {
            let left = if self.is_recovering() { LEFT_TO_RECOVERY } else { 0 };
            if let Some(frames) = self.pool.free.pop_many(number, left) {
                self.ask_for_frames();
                return Ok(frames);
            }
            self.wait_for_frames(number + left, &mut wait)?;
        }
    }

    /// Evicts pages, or waits for them to be evicted.
    fn wait_for_frames(&self, wanted: usize, wait: &mut Wait) -> Result<(), Fault> {
        self.check_waiting()?;
        let turns = wait.turn();
        if self.inline {
            self.evict_step(wanted)?;
            // In recovery of a database with threads, frames may wait for those of other databases.
            if turns > 1_000_000 {
                return Err(Fault::NoFrame { frames: self.pool.frames() });
            }
            std::thread::yield_now();
            return Ok(());
        }
        self.figures.frame_waits.fetch_add(1, Ordering::Relaxed);
        self.evictor.raise();
        let _blocked = Blocked::begin();
        // Many who look again soon would leave the evictor no processor.
        self.pool.free.wait(wanted, FIRST_WAIT.saturating_mul(turns).min(LONGEST_WAIT));
        self.fail_if_full(wait.is_in_vain(&self.vain.evictions, &self.vain.releases))
    }

    pub(super) fn return_frames(&self, frames: &[u32]) {
        if !frames.is_empty() {
            self.pool.free.push(frames);
        }
    }

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

    /// Brings pages into memory ahead of their use, as far as free frames go. Holds no latch.
    pub fn prefetch(&self, pages: &[PageId]) {
        self.read_ahead_of_use(pages, 0);
    }

    /// As [`Storage::prefetch`]; `hits`: uses that count for replacement, those to come among them.
    pub(super) fn read_ahead_of_use(&self, pages: &[PageId], hits: u32) {
        /// So many at once are read as fast as more, and keep no more frames from others meanwhile.
        const AT_ONCE: usize = 256;
        pages.chunks(AT_ONCE).for_each(|pages| self.read_side_by_side(pages, hits));
    }

    fn read_side_by_side(&self, pages: &[PageId], hits: u32) {
        let mut frames = self.pool.free.pop_up_to(pages.len(), self.frame_reserve() / 4);
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
            // What can't be read ahead is left to who needs it, who gets the error.
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

    /// Wakes the evictor if its reserve is half used.
    fn ask_for_frames(&self) {
        if !self.inline && self.pool.free.len() < self.frame_reserve() / 2 {
            self.evictor.raise();
        }
    }

    /// Latches a resident page for reading. `scan` leaves its standing for replacement as it is.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn read(&self, page: PageId, scan: bool) -> Result<PageRead<'_>, Stop> {
        self.pool.read(&self.store, page, scan)
    }

    /// Enters an epoch: until it is left, by dropping the guard, frames that this thread looks up are not used for other pages.
    /// Never held across a wait.
    #[inline]
    pub fn enter_epoch(&self) -> epoch::Guard {
        epoch::pin()
    }
}

/// An image is whole, and yet no page.
#[cold]
fn malformed(page: PageId, what: &str) -> Fault {
    Fault::page(page, format!("is malformed, though its checksum is right: {what}"))
}

#[cfg(test)]
mod tests {
    use super::super::{Interrupts, Need, OnProgress, Reason, StorageOptions, interruptible};
    use super::*;
    use std::sync::Arc;
    use weir_os::SimDisk;

    /// A storage whose frames nobody frees.
    fn storage() -> Storage {
        let options = StorageOptions::small(64);
        Storage::create(Arc::new(SimDisk::new(1)), &options).unwrap()
    }

    /// Under load the evictor may come late: that says nothing of the device.
    #[test]
    fn who_waits_for_a_frame_on_a_full_device_waits_until_evictions_are_in_vain() {
        let storage = storage();
        let taken: Vec<u32> = (0..64).map_while(|_| storage.pool.free.pop()).collect();
        let full = StoreError::NoSpace { needed: 1, file: "data".into() };
        let in_vain = || {
            let _ = storage.note_vain(&storage.vain.evictions, Err::<(), _>(full.clone().into()));
        };
        (0..9).for_each(|_| in_vain());
        let waits = || storage.figures.frame_waits.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| storage.take_frame());
            while waits() < 50 && !waiter.is_finished() {
                std::thread::yield_now();
            }
            storage.return_frames(&taken);
            let frame = waiter.join().unwrap().expect("nothing was in vain since it waits");
            let _taken: Vec<u32> = (0..63).map_while(|_| storage.pool.free.pop()).collect();
            let before = waits();
            let waiter = scope.spawn(|| storage.take_frame());
            while waits() == before {
                std::thread::yield_now();
            }
            while !waiter.is_finished() {
                in_vain();
                std::thread::yield_now();
            }
            assert!(waiter.join().unwrap().unwrap_err().is_no_space());
            storage.return_frames(&[frame]);
        });
    }

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
        storage.prefetch(&[page]);
        assert!(storage.pool.find(&storage.store, page).is_err());
    }

    /// Many who split pages at once would share all frames, and each would wait for the others' for ever.
    #[test]
    fn who_waits_for_its_last_frame_holds_none() {
        let storage = storage();
        let taken: Vec<u32> = (1..64).map_while(|_| storage.pool.free.pop()).collect();
        assert_eq!(storage.pool.free.len(), 1);
        let interrupts = Interrupts::default();
        std::thread::scope(|scope| {
            let (of_waiter, storage) = (interrupts.clone(), &storage);
            let waiter = scope.spawn(move || {
                let _ends = interruptible(&of_waiter, 1);
                storage.mtr(Need::log(256).and_pages(2)).map(drop)
            });
            while storage.figures.frame_waits.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let one = storage.pool.free.pop();
            interrupts.raise(1);
            assert!(matches!(waiter.join().unwrap(), Err(Fault::Interrupted)));
            assert!(one.is_some(), "the last frame is held by who waits for another");
        });
        storage.return_frames(&taken);
    }
}

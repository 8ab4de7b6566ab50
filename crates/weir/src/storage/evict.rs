//! Free frames: a reserve for those who load or make pages.
//!
//! A clock hand goes round the frames. A frame that was used since is spared that many rounds (at
//! most three, leaves of staging trees more often); pages read by scans start without credit, so a
//! scan passes through few frames. Clean victims are dropped; cold dirty ones are written, and
//! dropped in a later round.

use super::pool::{DIRTY, HITS_KEPT, WRITING};
use super::write::Reason;
use super::{Fault, Storage};
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_page::PageId;

/// How many frames more than the reserve are kept free: more and more while somebody waits. Frames
/// that are given up come free later, and of many who wait most take theirs before the evictor's
/// turn has come again.
#[derive(Debug, Default)]
pub struct Margin {
    /// Changed by the evictor alone.
    frames: AtomicUsize,
}

impl Margin {
    /// For each of those who wait.
    const EACH: usize = 8;

    /// Adjusts it to so many who wait, and so many frames in the reserve and in all; once a turn of
    /// the evictor.
    pub fn adjust(&self, waiting: usize, reserve: usize, frames: usize) {
        let now = self.frames();
        let most = (Self::EACH * waiting).min(frames / 8);
        let next = match waiting {
            0 => now - now.div_ceil(8),
            _ => now.max((2 * now).max(reserve / 4).min(most)),
        };
        self.frames.store(next, Ordering::Relaxed);
    }

    fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }
}

impl Storage {
    /// Number of frames to keep free.
    pub fn frame_reserve(&self) -> usize {
        (self.pool.frames.len() / 32).clamp(8, 8192)
    }

    /// Most pages that one call loads or has read ahead: the reserve has frames for them, and for
    /// others.
    pub fn load_many_max(&self) -> usize {
        self.frame_reserve() - self.frames_left_to_others()
    }

    /// Free frames that who reads several pages at once leaves to others.
    pub(super) fn frames_left_to_others(&self) -> usize {
        self.frame_reserve() / 4
    }

    /// Whether pages have to be evicted for others to come in.
    #[inline]
    pub fn is_short_of_frames(&self) -> bool {
        self.pool.free.len() < self.frame_reserve() + self.free_target()
    }

    /// Number of frames that the evictor keeps free now, without those that somebody waits for.
    pub fn free_target(&self) -> usize {
        self.frame_reserve() + self.margin.frames()
    }

    /// Evicts clean pages until there are frames to load so many pages together, as far as that
    /// needs no search, and has the evictor do the rest.
    pub(super) fn evict_clean_for_load(&self, pages: usize) {
        let wanted = pages + self.frames_left_to_others();
        let missing = wanted.saturating_sub(self.pool.free.len() + self.pool.free.expected());
        if missing > 0 {
            // Among many dirty ones those that are clean have just been read.
            self.sweep(missing, missing / 2);
            self.pool.reclaim();
            self.evictor.raise();
        }
    }

    /// Frees frames for pages read ahead, writing dirty ones if need be; the thread that reads
    /// ahead waits for it.
    pub(super) fn evict_for_read_ahead(&self, pages: usize) {
        let wanted = pages + self.frames_left_to_others();
        if self.pool.free.len() < wanted {
            // What goes wrong here goes wrong for the evictor, too, which tells.
            let _ = self.evict_step(wanted);
        }
    }

    /// Frees frames until `wanted` are free or there is nothing to evict. Returns whether it got
    /// there.
    ///
    /// # Errors
    /// Those of writing pages.
    pub fn evict_step(&self, wanted: usize) -> Result<bool, Fault> {
        let mut rounds = 0;
        while self.pool.free.len() < wanted {
            // Those on their way come once whoever may know them gets on.
            let expected = self.pool.free.len() + self.pool.free.expected();
            let missing = wanted.saturating_sub(expected);
            let (_, cold) = self.sweep(missing, (4 * missing).min(self.batch_pages()));
            self.pool.reclaim();
            let written = match self.write_pages(&cold, Reason::FreeFrames) {
                Err(fault) if fault.is_no_space() => return self.evict_clean(wanted, fault),
                written => written?,
            };
            rounds += 1;
            if rounds > 8 && written == 0 {
                return Ok(false);
            }
            if missing == 0 {
                std::thread::yield_now();
            }
        }
        Ok(true)
    }

    /// What is left on a full device: clean pages go, so that those who only read can go on.
    fn evict_clean(&self, wanted: usize, full: Fault) -> Result<bool, Fault> {
        // So often the hand passes over a page that is kept, and once more drops it.
        for _ in 0..=HITS_KEPT {
            let missing = wanted.saturating_sub(self.pool.free.len());
            let (dropped, _) = self.sweep(missing, usize::MAX);
            self.pool.reclaim();
            if missing == 0 || dropped > 0 {
                return Ok(missing == 0);
            }
        }
        // Those that were dropped before arrive once whoever may know them gets on.
        if self.pool.free.expected() > 0 {
            return Ok(false);
        }
        Err(full)
    }

    /// One turn of the hand at most: drops up to `wanted` clean pages, and says how many; collects
    /// cold dirty ones, up to `cold_limit`.
    fn sweep(&self, wanted: usize, cold_limit: usize) -> (usize, Vec<u32>) {
        /// They are given up so many at a time: others wait for the first of them.
        const TOGETHER: usize = 256;
        let frames = self.pool.frames.len();
        let (mut clean, mut cold, mut dropped) = (Vec::new(), Vec::new(), 0);
        for _ in 0..frames {
            if dropped >= wanted || cold.len() >= cold_limit {
                break;
            }
            let at = self.pool.hand.fetch_add(1, Ordering::Relaxed) % frames;
            let frame = &self.pool.frames[at];
            if frame.page.load(Ordering::Relaxed) == 0 {
                continue;
            }
            if !frame.is_cold() {
                continue;
            }
            let state = frame.state.load(Ordering::Relaxed);
            if state & (DIRTY | WRITING) == DIRTY {
                cold.push(at as u32);
            } else if state == 0 && self.drop_clean(at as u32) {
                dropped += 1;
                clean.push(at as u32);
                if clean.len() == TOGETHER {
                    self.pool.retire(std::mem::take(&mut clean));
                }
            }
        }
        if !clean.is_empty() {
            self.pool.retire(clean);
        }
        self.figures.evicted.fetch_add(dropped as u64, Ordering::Relaxed);
        (dropped, cold)
    }

    /// Takes a frame's page out of it, if it may go; the frame is to be retired then.
    fn drop_clean(&self, frame: u32) -> bool {
        let state = self.pool.frame(frame);
        if !state.latch.try_exclusive() {
            return false;
        }
        let page = PageId(state.page.load(Ordering::Relaxed));
        if page == PageId::NONE || state.state.load(Ordering::Relaxed) != 0 {
            state.latch.unlock_unchanged();
            return false;
        }
        let slot = self.store.map().slot(page);
        self.pool.forget_frame(slot, frame);
        state.page.store(0, Ordering::Relaxed);
        state.latch.unlock_exclusive();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::StorageOptions;
    use super::super::mtr::tests::new_page;
    use super::super::pool::NO_FRAME;
    use super::*;
    use std::sync::Arc;
    use weir_os::{SimDisk, sim};

    const FRAMES: usize = 64;

    fn storage() -> Storage {
        let options = StorageOptions::small(FRAMES);
        Storage::create(Arc::new(SimDisk::new(1)), &options).unwrap()
    }

    /// A storage on a full device: pages that are dirty, and others that are clean.
    fn full_storage() -> (Storage, Vec<PageId>) {
        let disk = SimDisk::new(1);
        let options = StorageOptions::small(FRAMES);
        let storage = Storage::create(Arc::new(disk.clone()), &options).unwrap();
        let clean: Vec<PageId> = (0..10).map(|_| new_page(&storage)).collect();
        storage.flush_all(Reason::Checkpoint, &mut |_| {}).unwrap();
        disk.inject(sim::Fault::NoSpace { at: disk.operations(), times: sim::Times::Forever });
        for _ in 0..10 {
            new_page(&storage);
        }
        (storage, clean)
    }

    fn is_resident(storage: &Storage, page: PageId) -> bool {
        storage.store.map().slot(page).frame.load(Ordering::Relaxed) != NO_FRAME
    }

    #[test]
    fn on_a_full_device_clean_pages_go_however_well_they_are_kept() {
        let (storage, clean) = full_storage();
        for page in clean.iter().filter(|page| is_resident(&storage, **page)) {
            let frame = storage.store.map().slot(*page).frame.load(Ordering::Relaxed);
            storage.pool.frame(frame).keep();
        }
        // Others go first.
        while clean.iter().any(|page| is_resident(&storage, *page)) {
            storage.evict_step(FRAMES).unwrap();
        }
        let left = std::iter::repeat_with(|| storage.evict_step(FRAMES)).find_map(Result::err);
        assert!(left.unwrap().is_no_space(), "nothing is left but dirty pages");
    }

    #[test]
    fn the_margin_grows_while_somebody_waits_by_how_many_they_are_and_goes_later() {
        let margin = Margin::default();
        let next = |waiting| {
            margin.adjust(waiting, 100, 3200);
            margin.frames()
        };
        assert_eq!(next(0), 0);
        assert_eq!([(); 6].map(|()| next(200)), [25, 50, 100, 200, 400, 400]);
        assert_eq!([0, 0, 1, 200].map(next), [350, 306, 306, 400]);
        (0..50).for_each(|_| _ = next(0));
        assert_eq!([0, 3, 3].map(next), [0, 24, 24]);
    }

    /// A thread that has lost its processor keeps them for long.
    #[test]
    fn frames_that_somebody_may_know_are_not_missed_for_good() {
        let (storage, clean) = full_storage();
        let knows = storage.enter_epoch();
        while clean.iter().any(|page| is_resident(&storage, *page)) {
            storage.evict_step(FRAMES).unwrap();
        }
        (0..9).for_each(|_| assert!(!storage.evict_step(FRAMES).unwrap()));
        drop(knows);
    }

    /// Each round took as many pages as the one before had, whose frames had yet to arrive.
    #[test]
    fn pages_that_somebody_may_know_are_evicted_in_no_greater_number() {
        let storage = storage();
        let pages: Vec<PageId> = (0..40).map(|_| new_page(&storage)).collect();
        storage.flush_all(Reason::Checkpoint, &mut |_| {}).unwrap();
        let resident = || pages.iter().filter(|page| is_resident(&storage, **page)).count();
        let (before, knows) = (resident(), storage.enter_epoch());
        assert!(!storage.evict_step(storage.pool.free_frames() + 5).unwrap());
        assert_eq!(before - resident(), 5);
        drop(knows);
    }

    #[test]
    fn kept_pages_go_after_all_others_but_they_go() {
        let storage = storage();
        let pages: Vec<PageId> = (0..40).map(|_| new_page(&storage)).collect();
        let (kept, others) = pages.split_at(10);
        let frame = |page: PageId| storage.store.map().slot(page).frame.load(Ordering::Relaxed);
        let resident = |pages: &[PageId]| pages.iter().filter(|&&p| frame(p) != NO_FRAME).count();
        kept.iter().for_each(|&page| storage.pool.frame(frame(page)).keep());
        while resident(others) > 0 {
            let more = storage.pool.free_frames() + 1;
            storage.evict_step(more).unwrap();
            assert_eq!(resident(kept), kept.len());
        }
        while resident(kept) > 0 {
            storage.evict_step(FRAMES).unwrap();
        }
    }

    /// Its frame said which page it held, and the page's slot not yet where it was: the evictor
    /// panicked.
    #[test]
    fn a_page_that_just_comes_into_memory_is_not_evicted() {
        let storage = storage();
        let page = new_page(&storage);
        storage.flush_all(Reason::Checkpoint, &mut |_| {}).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        let evicted = std::thread::scope(|scope| {
            let evictor = scope.spawn(|| {
                let mut evicted = 0;
                while !done.load(Ordering::Relaxed) {
                    evicted += storage.sweep(1, usize::MAX).0;
                    storage.pool.reclaim();
                }
                evicted
            });
            while storage.figures.pages_read_ahead.load(Ordering::Relaxed) < 100_000 {
                storage.load_many(&[page]);
                if evictor.is_finished() {
                    break;
                }
            }
            done.store(true, Ordering::Relaxed);
            evictor.join().unwrap()
        });
        assert!(evicted > 0);
    }
}

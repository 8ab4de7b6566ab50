//! Free frames: a reserve for those who load or make pages.
//!
//! A clock hand goes round the frames. A frame that was used since is spared that many rounds (at
//! most three); pages read by scans start without credit, so a scan passes through few frames. Clean
//! victims are dropped; cold dirty ones are written, and dropped in a later round.

use super::pool::{DIRTY, NO_FRAME, WRITING};
use super::write::{BATCH_PAGES, Reason};
use super::{Fault, Storage};
use std::sync::atomic::Ordering;
use weir_page::PageId;

impl Storage {
    /// Number of frames to keep free.
    pub fn frame_reserve(&self) -> usize {
        (self.pool.frames.len() / 64).clamp(8, 4096)
    }

    /// Whether pages have to be evicted for others to come in.
    #[inline]
    pub fn is_short_of_frames(&self) -> bool {
        self.pool.free.len() < 2 * self.frame_reserve()
    }

    /// Frees frames until `wanted` are free or there is nothing to evict. Returns whether it got there.
    ///
    /// # Errors
    /// Those of writing pages.
    pub fn evict_step(&self, wanted: usize) -> Result<bool, Fault> {
        let mut rounds = 0;
        while self.pool.free.len() < wanted {
            let cold = self.sweep(wanted.saturating_sub(self.pool.free.len()));
            self.pool.reclaim();
            let mut written = 0;
            for part in cold.chunks(BATCH_PAGES) {
                written += self.write_pages(part, Reason::FreeFrames)?;
            }
            rounds += 1;
            if rounds > 8 && written == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One turn of the hand at most: drops up to `wanted` clean pages; returns cold dirty ones.
    fn sweep(&self, wanted: usize) -> Vec<u32> {
        let frames = self.pool.frames.len();
        let (mut dropped, mut cold) = (0, Vec::new());
        let cold_limit = (4 * wanted).min(BATCH_PAGES);
        for _ in 0..frames {
            if dropped >= wanted || cold.len() >= cold_limit {
                break;
            }
            let at = self.pool.hand.fetch_add(1, Ordering::Relaxed) % frames;
            let frame = &self.pool.frames[at];
            if frame.page.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let hits = frame.hits.load(Ordering::Relaxed);
            if hits > 0 {
                frame.hits.store(hits - 1, Ordering::Relaxed);
                continue;
            }
            let state = frame.state.load(Ordering::Relaxed);
            if state & (DIRTY | WRITING) == DIRTY {
                cold.push(at as u32);
            } else if state == 0 && self.drop_clean(at as u32) {
                dropped += 1;
            }
        }
        self.figures.evicted.fetch_add(dropped as u64, Ordering::Relaxed);
        cold
    }

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
        let before = slot.frame.swap(NO_FRAME, Ordering::AcqRel);
        assert_eq!(before, frame, "a resident page is in the frame that its slot names");
        state.page.store(0, Ordering::Relaxed);
        state.latch.unlock_exclusive();
        self.pool.retire(frame);
        true
    }
}

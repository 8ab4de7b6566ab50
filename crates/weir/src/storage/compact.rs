//! Compaction: a data file full of holes becomes shorter.
//!
//! What was deleted leaves free extents all over the file; its tail is cut off, and large holes are
//! punched, but small ones stay until something fits into them. Compaction has the store place
//! images below a *ceiling*, as far as there is room. Pages stored above it are read, marked dirty
//! though nothing in them has changed, and written like any others; then the tail is cut off. To
//! log and recovery that is nothing new, and it may end at any point. Nothing is written here
//! unless somebody asks for it.

use super::pool::{DIRTY, Stop, WRITING};
use super::write::Reason;
use super::{Fault, Storage};
use std::sync::atomic::Ordering;
use weir_page::PageId;
use weir_store::Store;

/// How often the tail is gone through, at most: what is written meanwhile, and what found no hole,
/// may take another turn.
const PASSES: usize = 4;

/// Lifts the ceiling at the end, however that comes.
struct Ceiling<'s>(&'s Store);

impl Drop for Ceiling<'_> {
    fn drop(&mut self) {
        self.0.lift_ceiling();
    }
}

impl Storage {
    /// Moves `most` pages at the most from the end of the data file to free places before, and cuts
    /// it off. `goes_on` is told how many were moved; returns their number. Others go on meanwhile.
    /// Damaged pages stay where they are.
    ///
    /// # Errors
    /// Those of reading and writing pages and of checkpoints; what `goes_on` says. What was moved
    /// stays moved.
    pub fn compact<E: From<Fault>>(
        &self,
        most: u64,
        goes_on: &mut dyn FnMut(u64) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut moved = 0;
        self.free_given_up()?;
        for _ in 0..PASSES {
            let left = most - moved.min(most);
            if left == 0 {
                break;
            }
            let Some(behind) = self.store.lower_ceiling(left as usize) else { break };
            let _lifted = Ceiling(&self.store);
            let before = self.store.stats().file_bytes;
            for pages in behind.chunks(self.batch_pages()) {
                self.check()?;
                moved += self.rewrite(pages)? as u64;
                self.checkpoint_if_due()?;
                goes_on(moved)?;
            }
            self.free_given_up()?;
            if self.store.stats().file_bytes >= before {
                break;
            }
        }
        Ok(moved)
    }

    /// Makes free what was given up, and gives it back to the file system.
    fn free_given_up(&self) -> Result<(), Fault> {
        self.checkpoint()?;
        self.trim()
    }

    /// Writes pages to new places, changed or not; returns how many were written.
    fn rewrite(&self, pages: &[PageId]) -> Result<usize, Fault> {
        self.load_many(pages);
        let mut frames = Vec::with_capacity(pages.len());
        for &page in pages {
            match self.mark_dirty(page) {
                // Whoever needs it is told.
                Err(fault) if fault.damaged_page().is_some() => {}
                marked => frames.extend(marked?),
            }
        }
        self.write_pages(&frames, Reason::Checkpoint)
    }

    /// Marks a page dirty as it is; its frame, unless the page is no more.
    fn mark_dirty(&self, page: PageId) -> Result<Option<u32>, Fault> {
        loop {
            let credits = self.reserve_credits()?;
            let frame = match self.pool.latch(&self.store, page) {
                Ok(frame) => frame,
                Err(Stop::Retry | Stop::Astray(_)) => continue,
                Err(Stop::Load(_)) => {
                    drop(credits);
                    if !self.load(page)? {
                        return Ok(None);
                    }
                    continue;
                }
            };
            let state = self.pool.frame(frame);
            let mut list = self.pool.flush.lock();
            // One that is being written is on its way to a new place.
            if state.state.load(Ordering::Relaxed) & (DIRTY | WRITING) == 0 {
                let lsn = self.redo.reserved();
                state.rec_lsn.store(lsn.0, Ordering::Relaxed);
                state.state.fetch_or(DIRTY, Ordering::Relaxed);
                list.push(lsn, frame, false);
                credits.spend(1);
            }
            drop(list);
            state.latch.unlock_unchanged();
            return Ok(Some(frame));
        }
    }
}

//! Which dirty pages are written next.
//!
//! For the log's sake it must be the oldest, behind those that are hot: changed so often that after
//! a crash their first reader would wait long. For the dirty limit's sake any will do, and one that
//! is changed again at once is written for nothing: leaves of staging trees, pages at a tree's
//! right edge. So a hand goes over the flush list, from the oldest page to the newest and round
//! again, as that of the evictor goes over the frames (`evict`): a page that was used since it came
//! by is passed over.

use super::write::Reason;
use super::{Fault, Storage};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use weir_page::Lsn;

/// For each page wanted, so many are looked at.
const LOOK_AT: usize = 32;

impl Storage {
    /// Writes up to `pages` dirty pages for the log's sake, then moves the checkpoint if that frees
    /// much.
    ///
    /// # Errors
    /// Those of writing pages and of checkpoints.
    pub fn flush_step(&self, pages: usize) -> Result<usize, Fault> {
        let mut left = pages;
        while left > 0 {
            let written = self.write_what_fits(left.min(self.batch_pages()), Reason::Deadline)?;
            if written == 0 {
                break;
            }
            left -= written.min(left);
        }
        self.checkpoint_if_due()?;
        Ok(pages - left)
    }

    /// As [`Storage::write_next`]; fewer pages if there is no space for all of them.
    ///
    /// # Errors
    /// Those of writing pages; no space for a single one.
    pub(super) fn write_what_fits(&self, mut pages: usize, reason: Reason) -> Result<usize, Fault> {
        loop {
            match self.write_next(pages, reason) {
                Err(fault) if fault.is_no_space() && pages > 1 => {
                    pages = pages.div_ceil(2).min(pages - 1);
                }
                written => return written,
            }
        }
    }

    /// Writes a batch of dirty pages: hot ones, then the oldest, or for the dirty limit's sake
    /// those not used lately.
    ///
    /// # Errors
    /// Those of writing pages.
    pub(super) fn write_next(&self, pages: usize, reason: Reason) -> Result<usize, Fault> {
        let frames = match reason {
            Reason::DirtyLimit => self.cold_dirty(pages),
            _ => {
                let mut frames = self.pool.flush.lock().take_hot(pages);
                frames.extend(self.oldest_dirty(pages - frames.len(), Lsn(u64::MAX)));
                frames
            }
        };
        self.write_pages(&frames, reason)
    }

    /// Oldest dirty frames, at most `limit`, of pages that have been dirty since before `below`.
    pub(super) fn oldest_dirty(&self, limit: usize, below: Lsn) -> Vec<u32> {
        let mut list = self.pool.flush.lock();
        list.trim(|lsn, frame| self.pool.is_current(lsn, frame));
        list.oldest()
            .take(2 * limit)
            .take_while(|(lsn, _)| *lsn < below)
            .filter(|&(lsn, frame)| self.pool.is_current(lsn, frame))
            .take(limit)
            .map(|(_, frame)| frame)
            .collect()
    }

    /// Dirty frames to be written for the dirty limit's sake, at most `limit`: those whose age is
    /// more than half of what it may be, then those not used lately, then the oldest.
    fn cold_dirty(&self, limit: usize) -> Vec<u32> {
        let aged = Lsn(self.redo.reserved().0.saturating_sub(self.redo.user_capacity() / 2));
        let mut list = self.pool.flush.lock();
        list.trim(|lsn, frame| self.pool.is_current(lsn, frame));
        let is_current = |&(lsn, frame): &(Lsn, u32)| self.pool.is_current(lsn, frame);
        let old = list.oldest().take(2 * limit).take_while(|(lsn, _)| *lsn < aged);
        let mut chosen: Vec<(Lsn, u32)> = old.filter(is_current).take(limit).collect();
        let from = Lsn(self.pool.cold_from.load(Ordering::Relaxed)).max(aged);
        let mut hand = Lsn(0);
        for (looked, entry) in list.from(from).enumerate() {
            if chosen.len() == limit || looked == LOOK_AT * limit {
                hand = entry.0;
                break;
            }
            if is_current(&entry) && self.pool.frame(entry.1).is_cold() {
                chosen.push(entry);
            }
        }
        self.pool.cold_from.store(hand.0, Ordering::Relaxed);
        if chosen.len() < limit {
            let missing = limit - chosen.len();
            let known: HashSet<(Lsn, u32)> = chosen.iter().copied().collect();
            let new = |entry: &(Lsn, u32)| is_current(entry) && !known.contains(entry);
            chosen.extend(list.oldest().take(4 * limit).filter(new).take(missing));
        }
        chosen.into_iter().map(|(_, frame)| frame).collect()
    }
}

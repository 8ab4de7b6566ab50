//! Which pages are written because too many are dirty: those not used lately.
//!
//! The oldest page must be written for the log's sake. For the dirty limit's sake any will do, and one that is
//! changed again at once is written for nothing: leaves of staging trees, pages at a tree's right edge. So a
//! hand goes over the flush list, from the oldest page to the newest and round again, as that of the
//! evictor goes over the frames (`evict`): a page that was used since it came by is passed over.

use super::Storage;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use weir_page::Lsn;

/// For each page wanted, so many are looked at.
const LOOK_AT: usize = 32;

impl Storage {
    /// Dirty frames to be written for the dirty limit's sake, at most `limit`: those whose age is more than
    /// half of what it may be, then those not used lately, then the oldest.
    pub(super) fn cold_dirty(&self, limit: usize) -> Vec<u32> {
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

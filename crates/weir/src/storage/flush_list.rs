//! The flush list: which pages are dirty since when, and what else holds the checkpoint back.
//!
//! Entries are appended with the log's end read under the list's mutex, before the group's LSN is
//! reserved. So the list is sorted, every recovery LSN is at or below the LSN of the change, and
//! the front bounds the checkpoint. Pages that recovery dirties while the database is open have a
//! list of their own: their recovery LSNs are where its pass is, before all others.

use std::collections::VecDeque;
use weir_governor::DirtyHistogram;
use weir_page::Lsn;

/// The list; lives in a mutex.
pub struct FlushList {
    /// Entries of recovery, all before `recovered_to`.
    recovered: VecDeque<(Lsn, u32)>,
    recovered_to: Lsn,
    /// All others.
    queue: VecDeque<(Lsn, u32)>,
    /// Dirty pages by recovery LSN, for the governor; without those being written.
    histogram: DirtyHistogram,
    /// Pages being written that are not dirty again.
    writing: u64,
    /// Most pages that may be dirty or being written.
    most: u64,
    guards: Vec<Lsn>,
    /// Frames whose pages have been changed very often since they were written
    /// ([`super::pool::LINKS_MAX`]): they come first.
    hot: Vec<u32>,
}

impl FlushList {
    /// An empty list whose histogram has buckets of `bucket_bytes`, for `most` pages.
    pub fn new(bucket_bytes: u64, most: u64) -> Self {
        FlushList {
            recovered: VecDeque::new(),
            recovered_to: Lsn(0),
            queue: VecDeque::new(),
            histogram: DirtyHistogram::new(bucket_bytes.max(1)),
            writing: 0,
            most,
            guards: Vec::new(),
            hot: Vec::new(),
        }
    }

    /// From now on buckets are that long.
    pub fn set_bucket_bytes(&mut self, bucket_bytes: u64) {
        self.histogram.set_bucket_bytes(bucket_bytes.max(1));
    }

    /// Most pages that may be dirty or being written, from now on.
    pub fn set_most(&mut self, most: u64) {
        self.most = most;
    }

    /// Most pages that may be dirty or being written.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// A frame has become dirty; `lsn` is the log's end now. `again` if it is being written.
    ///
    /// # Panics
    /// If too many pages are dirty: credits were given for too many.
    pub fn push(&mut self, lsn: Lsn, frame: u32, again: bool) {
        assert!(lsn >= self.recovered_to, "nothing is logged before the log's end");
        self.add(lsn, frame, again);
    }

    /// Recovery, which has come to `lsn`, has made a frame dirty.
    ///
    /// # Panics
    /// As [`FlushList::push`].
    pub fn push_recovered(&mut self, lsn: Lsn, frame: u32, again: bool) {
        assert!(lsn < self.recovered_to, "recovery changes nothing once it is at its end");
        self.add(lsn, frame, again);
    }

    /// Recovery will apply the log up to there.
    pub fn expect_recovered(&mut self, to: Lsn) {
        self.recovered_to = to;
    }

    fn queue_of(&mut self, lsn: Lsn) -> &mut VecDeque<(Lsn, u32)> {
        if lsn < self.recovered_to { &mut self.recovered } else { &mut self.queue }
    }

    fn add(&mut self, lsn: Lsn, frame: u32, again: bool) {
        let queue = self.queue_of(lsn);
        assert!(queue.back().is_none_or(|b| b.0 <= lsn), "the flush list is sorted");
        queue.push_back((lsn, frame));
        self.histogram.add(lsn.0, 1);
        if again {
            self.writing -= 1;
        }
        let unwritten = self.unwritten();
        assert!(unwritten <= self.most, "{unwritten} pages are dirty, {} may be", self.most);
    }

    /// A dirty page is being written.
    pub fn write_begins(&mut self, lsn: Lsn) {
        self.forget(lsn);
        self.writing += 1;
    }

    /// A write has ended of a page that did not become dirty meanwhile.
    pub fn write_ends(&mut self) {
        self.writing -= 1;
    }

    /// A page could not be written: it is dirty again, as long as before.
    pub fn put_back(&mut self, lsn: Lsn, frame: u32) {
        let queue = self.queue_of(lsn);
        let at = queue.partition_point(|e| e.0 < lsn);
        // Its entry is still there unless somebody has trimmed the list meanwhile.
        let is_there = queue.range(at..).take_while(|e| e.0 == lsn).any(|e| e.1 == frame);
        if !is_there {
            queue.insert(at, (lsn, frame));
        }
        self.writing -= 1;
        self.histogram.add(lsn.0, 1);
    }

    /// A page that became dirty while being written is not any more; the write goes on.
    pub fn write_goes_on(&mut self) {
        self.writing += 1;
    }

    /// A frame has ceased to be dirty; its entry is dropped when it reaches the front.
    pub fn forget(&mut self, lsn: Lsn) {
        self.histogram.remove(lsn.0, 1);
    }

    /// Number of dirty pages, those not counted that are being written.
    pub fn dirty(&self) -> u64 {
        self.histogram.pages()
    }

    /// Pages whose image lacks changes: dirty or being written.
    pub fn unwritten(&self) -> u64 {
        self.dirty() + self.writing
    }

    /// Dirty pages by recovery LSN.
    pub fn histogram(&self) -> &DirtyHistogram {
        &self.histogram
    }

    /// A frame's page has been changed very often since it was written.
    pub fn push_hot(&mut self, frame: u32) {
        if !self.hot.contains(&frame) {
            self.hot.push(frame);
        }
    }

    /// How many such pages wait.
    pub fn hot(&self) -> usize {
        self.hot.len()
    }

    /// Takes up to `limit` of them.
    pub fn take_hot(&mut self, limit: usize) -> Vec<u32> {
        self.hot.split_off(self.hot.len().saturating_sub(limit))
    }

    /// Holds the checkpoint at `lsn` until [`FlushList::unguard`].
    pub fn guard(&mut self, lsn: Lsn) {
        self.guards.push(lsn);
    }

    /// Gives up one hold at `lsn`.
    pub fn unguard(&mut self, lsn: Lsn) {
        let at = self.guards.iter().position(|g| *g == lsn).expect("a guard is given up once");
        self.guards.swap_remove(at);
    }

    /// Drops entries at the front that `is_current` denies.
    pub fn trim(&mut self, is_current: impl Fn(Lsn, u32) -> bool) {
        let dirty = self.dirty();
        for queue in [&mut self.recovered, &mut self.queue] {
            while queue.pop_front_if(|entry| !is_current(entry.0, entry.1)).is_some() {}
            // Pages that are written for other reasons leave stale entries behind the front.
            if queue.len() as u64 > 2 * dirty + 1024 {
                queue.retain(|&(lsn, frame)| is_current(lsn, frame));
            }
        }
    }

    /// The oldest entries, after a [`FlushList::trim`].
    pub fn oldest(&self) -> impl Iterator<Item = (Lsn, u32)> + '_ {
        self.recovered.iter().chain(&self.queue).copied()
    }

    /// Entries from `lsn` on, the oldest first.
    pub fn from(&self, lsn: Lsn) -> impl Iterator<Item = (Lsn, u32)> + '_ {
        let from = |queue: &'_ VecDeque<(Lsn, u32)>| queue.partition_point(|e| e.0 < lsn);
        let recovered = self.recovered.range(from(&self.recovered)..);
        recovered.chain(self.queue.range(from(&self.queue)..)).copied()
    }

    /// What the checkpoint may not pass: the oldest dirty page, the oldest guard.
    pub fn bound(&self) -> Option<Lsn> {
        let front = self.oldest().next().map(|e| e.0);
        front.into_iter().chain(self.guards.iter().copied()).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_being_written_count_until_they_are_clean() {
        let mut list = FlushList::new(100, 10);
        for lsn in [10, 90, 100, 250] {
            list.push(Lsn(lsn), lsn as u32, false);
        }
        list.write_begins(Lsn(10));
        list.write_begins(Lsn(100));
        assert_eq!((list.dirty(), list.unwritten()), (2, 4));
        list.put_back(Lsn(100), 100);
        list.write_ends();
        assert_eq!((list.dirty(), list.unwritten()), (3, 3));
        list.write_begins(Lsn(90));
        list.push(Lsn(300), 90, true);
        assert_eq!((list.dirty(), list.unwritten()), (3, 3));
        list.forget(Lsn(300));
        list.write_goes_on();
        list.write_ends();
        assert_eq!((list.dirty(), list.unwritten()), (2, 2));
    }

    #[test]
    fn a_page_that_can_not_be_written_has_one_entry() {
        let mut list = FlushList::new(100, 10);
        for frame in 1..4 {
            list.push(Lsn(7), frame, false);
        }
        for _ in 0..5 {
            list.write_begins(Lsn(7));
            list.put_back(Lsn(7), 2);
        }
        list.write_begins(Lsn(7));
        list.trim(|_, frame| frame == 2);
        list.put_back(Lsn(7), 1);
        assert_eq!(list.oldest().collect::<Vec<_>>(), [(Lsn(7), 1), (Lsn(7), 2), (Lsn(7), 3)]);
    }

    #[test]
    #[should_panic(expected = "3 pages are dirty, 2 may be")]
    fn more_dirty_pages_than_may_be_are_a_bug() {
        let mut list = FlushList::new(1000, 2);
        list.push(Lsn(1), 1, false);
        list.write_begins(Lsn(1));
        list.push(Lsn(2), 1, true);
        list.push(Lsn(2), 2, false);
        list.push(Lsn(3), 3, false);
    }
}

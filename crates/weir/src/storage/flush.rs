//! The flush list: which pages are dirty since when, and what else holds the checkpoint back.
//!
//! Entries are appended with the log's end read under the list's mutex, before the group's LSN is
//! reserved. So the list is sorted, every recovery LSN is at or below the LSN of the change, and
//! the front bounds the checkpoint.

use std::collections::{BTreeMap, VecDeque};
use weir_page::Lsn;

/// The list; lives in a mutex.
#[derive(Default)]
pub struct FlushList {
    queue: VecDeque<(Lsn, u32)>,
    /// Dirty pages per bucket of recovery LSN: the governor's histogram.
    histogram: BTreeMap<u64, u64>,
    bucket_bytes: u64,
    dirty: u64,
    guards: Vec<Lsn>,
}

impl FlushList {
    /// An empty list whose histogram has buckets of `bucket_bytes`.
    pub fn new(bucket_bytes: u64) -> Self {
        FlushList { bucket_bytes: bucket_bytes.max(1), ..Default::default() }
    }

    /// A frame has become dirty; `lsn` is the log's end now.
    pub fn push(&mut self, lsn: Lsn, frame: u32) {
        assert!(self.queue.back().is_none_or(|b| b.0 <= lsn), "the flush list is sorted");
        self.queue.push_back((lsn, frame));
        self.count(lsn, 1);
    }

    /// A page could not be written: it is dirty again, as long as before.
    pub fn put_back(&mut self, lsn: Lsn, frame: u32) {
        let at = self.queue.partition_point(|e| e.0 < lsn);
        self.queue.insert(at, (lsn, frame));
        self.count(lsn, 1);
    }

    /// A frame has ceased to be dirty; its entry is dropped when it reaches the front.
    pub fn forget(&mut self, lsn: Lsn) {
        self.dirty -= 1;
        let bucket = lsn.0 / self.bucket_bytes;
        let left = self.histogram.get_mut(&bucket).expect("a dirty page is in its bucket");
        *left -= 1;
        if *left == 0 {
            self.histogram.remove(&bucket);
        }
    }

    fn count(&mut self, lsn: Lsn, by: u64) {
        self.dirty += by;
        *self.histogram.entry(lsn.0 / self.bucket_bytes).or_default() += by;
    }

    /// Number of dirty pages.
    pub fn dirty(&self) -> u64 {
        self.dirty
    }

    /// `(end of bucket, dirty pages at or before it)`, ascending.
    pub fn deadlines(&self) -> Vec<(u64, u64)> {
        let mut sum = 0;
        self.histogram
            .iter()
            .map(|(bucket, n)| {
                sum += n;
                ((bucket + 1) * self.bucket_bytes, sum)
            })
            .collect()
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
        while let Some(&(lsn, frame)) = self.queue.front() {
            if is_current(lsn, frame) {
                break;
            }
            self.queue.pop_front();
        }
        // Pages that are written for other reasons leave stale entries behind the front.
        if self.queue.len() as u64 > 2 * self.dirty + 1024 {
            self.queue.retain(|&(lsn, frame)| is_current(lsn, frame));
        }
    }

    /// The oldest entries, after a [`FlushList::trim`].
    pub fn oldest(&self) -> impl Iterator<Item = (Lsn, u32)> + '_ {
        self.queue.iter().copied()
    }

    /// What the checkpoint may not pass: the oldest dirty page, the oldest guard.
    pub fn bound(&self) -> Option<Lsn> {
        let front = self.queue.front().map(|e| e.0);
        front.into_iter().chain(self.guards.iter().copied()).min()
    }
}

//! How many pages are dirty since when.
//!
//! Buckets of recovery LSNs, oldest first, with a bounded number of them. A bucket covers the LSNs
//! from its own first one to the next bucket's. New buckets are opened as the log grows; how wide
//! may change at any time. A bucket's pages all count as being as old as its first LSN, so that
//! what is computed from the histogram errs on the early side, by less than a bucket.

use std::collections::VecDeque;

/// Buckets at most; past it, the two that are narrowest together become one. Tests come there soon.
const BUCKETS_MAX: usize = if cfg!(test) { 16 } else { 1024 };

#[derive(Debug, Clone, Copy)]
struct Bucket {
    first: u64,
    /// The newest LSN counted here: the next bucket begins behind it.
    newest: u64,
    pages: u64,
}

impl Bucket {
    fn new(first: u64, lsn: u64, pages: u64) -> Self {
        Bucket { first, newest: lsn, pages }
    }
}

/// Dirty pages by recovery LSN.
#[derive(Debug, Clone)]
pub struct DirtyHistogram {
    /// Ascending in `first`; never empty in the middle of use: a page's bucket outlives the page.
    buckets: VecDeque<Bucket>,
    bucket_bytes: u64,
    pages: u64,
}

impl DirtyHistogram {
    /// Nothing dirty. Buckets will be `bucket_bytes` wide: a 500th of the redo capacity is plenty.
    ///
    /// # Panics
    /// When `bucket_bytes` is 0.
    pub fn new(bucket_bytes: u64) -> Self {
        let mut histogram = DirtyHistogram { buckets: VecDeque::new(), bucket_bytes: 1, pages: 0 };
        histogram.set_bucket_bytes(bucket_bytes);
        histogram
    }

    /// Changes the width of buckets that are opened from now on.
    ///
    /// # Panics
    /// When `bucket_bytes` is 0.
    pub fn set_bucket_bytes(&mut self, bucket_bytes: u64) {
        assert!(bucket_bytes > 0, "a bucket holds something");
        self.bucket_bytes = bucket_bytes;
    }

    /// Dirty pages in all.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// `pages` have become dirty at `lsn`.
    #[inline]
    pub fn add(&mut self, lsn: u64, pages: u64) {
        self.pages += pages;
        if let Some(last) = self.buckets.back_mut()
            && lsn >= last.first
            && (lsn <= last.newest || lsn - last.first < self.bucket_bytes)
        {
            last.newest = last.newest.max(lsn);
            last.pages += pages;
            return;
        }
        self.add_slowly(lsn, pages);
    }

    fn add_slowly(&mut self, lsn: u64, pages: u64) {
        let aligned = lsn - lsn % self.bucket_bytes;
        match self.find(lsn) {
            Some(at) => {
                let bucket = &mut self.buckets[at];
                if lsn <= bucket.newest || lsn - bucket.first < self.bucket_bytes {
                    bucket.newest = bucket.newest.max(lsn);
                    bucket.pages += pages;
                    return;
                }
                // What the width was before doesn't matter: buckets don't overlap.
                let first = aligned.max(bucket.newest + 1);
                self.buckets.insert(at + 1, Bucket::new(first, lsn, pages));
            }
            None if self.buckets.is_empty() => {
                self.buckets.push_back(Bucket::new(aligned, lsn, pages));
            }
            None => self.buckets.push_front(Bucket::new(lsn, lsn, pages)),
        }
        if self.buckets.len() > BUCKETS_MAX {
            self.merge_narrowest();
        }
        assert!(self.buckets.len() <= BUCKETS_MAX, "the histogram is bounded");
    }

    /// `pages` that became dirty at `lsn` are dirty no more.
    ///
    /// # Panics
    /// When there are fewer in that bucket.
    #[inline]
    pub fn remove(&mut self, lsn: u64, pages: u64) {
        let at = self.find(lsn).expect("a dirty page has its bucket");
        let bucket = &mut self.buckets[at];
        let left = bucket.pages.checked_sub(pages);
        bucket.pages = left.expect("a dirty page is in its bucket");
        self.pages -= pages;
        if at == 0 {
            self.drop_empty_front();
        }
    }

    /// Up to `pages` of the oldest are dirty no more; how many there were.
    pub fn remove_oldest(&mut self, pages: u64) -> u64 {
        let mut left = pages;
        while left > 0
            && let Some(front) = self.buckets.front_mut()
        {
            let taken = left.min(front.pages);
            front.pages -= taken;
            left -= taken;
            self.drop_empty_front();
        }
        self.pages -= pages - left;
        pages - left
    }

    fn drop_empty_front(&mut self) {
        while self.buckets.front().is_some_and(|b| b.pages == 0) {
            self.buckets.pop_front();
        }
    }

    /// The bucket that covers `lsn`.
    #[inline]
    fn find(&self, lsn: u64) -> Option<usize> {
        self.buckets.partition_point(|b| b.first <= lsn).checked_sub(1)
    }

    fn merge_narrowest(&mut self) {
        let span = |at: usize| self.buckets[at + 2].first - self.buckets[at].first;
        let at = (0..self.buckets.len() - 2).min_by_key(|&at| span(at));
        let at = at.expect("there are many buckets");
        let next = self.buckets.remove(at + 1).expect("it is within bounds");
        self.buckets[at].newest = next.newest;
        self.buckets[at].pages += next.pages;
    }

    /// A bound below which no page is dirty.
    pub fn oldest(&self) -> Option<u64> {
        self.buckets.front().map(|b| b.first)
    }

    /// Puts `(x, pages dirty since x or before)` into `out`, ascending in `x`.
    pub fn deadlines(&self, out: &mut Vec<(u64, u64)>) {
        out.clear();
        let mut sum = 0;
        for bucket in self.buckets.iter().filter(|b| b.pages > 0) {
            sum += bucket.pages;
            out.push((bucket.first, sum));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn deadlines(histogram: &DirtyHistogram) -> Vec<(u64, u64)> {
        let mut out = Vec::new();
        histogram.deadlines(&mut out);
        out
    }

    #[test]
    fn pages_are_as_old_as_their_bucket() {
        let mut histogram = DirtyHistogram::new(100);
        for lsn in [105, 150, 199, 200, 420] {
            histogram.add(lsn, 1);
        }
        assert_eq!(deadlines(&histogram), [(100, 3), (200, 4), (400, 5)]);
        histogram.remove(150, 1);
        histogram.remove(200, 1);
        assert_eq!(deadlines(&histogram), [(100, 2), (400, 3)]);
        histogram.add(150, 1);
        assert_eq!(histogram.remove_oldest(4), 4);
        assert_eq!(histogram.pages(), 0);
        assert_eq!(histogram.oldest(), None);
    }

    #[test]
    fn one_put_back_may_be_older_than_all() {
        let mut histogram = DirtyHistogram::new(100);
        histogram.add(900, 1);
        histogram.add(310, 2);
        histogram.add(950, 1);
        assert_eq!(deadlines(&histogram), [(310, 2), (900, 4)]);
        histogram.remove(310, 2);
        histogram.remove(950, 1);
        assert_eq!(deadlines(&histogram), [(900, 1)]);
    }

    /// Recovery goes through the log while others append to it.
    #[test]
    fn of_two_streams_each_has_its_buckets() {
        let mut histogram = DirtyHistogram::new(100);
        for step in 0..5 {
            histogram.add(1000 + 60 * step, 1);
            histogram.add(5000 + 60 * step, 1);
        }
        assert_eq!(
            deadlines(&histogram),
            [(1000, 2), (1100, 4), (1200, 5), (5000, 7), (5100, 9), (5200, 10)]
        );
        (0..4).for_each(|step| histogram.remove(1000 + 60 * step, 1));
        assert_eq!(histogram.oldest(), Some(1200), "what is done holds up nobody");
    }

    #[test]
    fn the_width_may_change_at_any_time() {
        let mut histogram = DirtyHistogram::new(1000);
        histogram.add(5500, 1);
        histogram.set_bucket_bytes(10);
        histogram.add(5555, 1);
        histogram.add(5561, 1);
        histogram.set_bucket_bytes(100_000);
        histogram.add(5999, 1);
        histogram.set_bucket_bytes(10);
        histogram.add(5600, 1);
        assert_eq!(deadlines(&histogram), [(5000, 1), (5550, 2), (5560, 5)]);
        for lsn in [5500, 5555, 5561, 5600, 5999] {
            histogram.remove(lsn, 1);
        }
        assert_eq!(histogram.pages(), 0);
    }

    proptest! {
        #[test]
        fn it_counts_what_a_list_counts(
            steps in prop::collection::vec((0u64..40, any::<bool>(), 0usize..1000), 1..4000),
            widths in prop::collection::vec(1u64..200, 1..8),
        ) {
            let mut histogram = DirtyHistogram::new(7);
            let (mut list, mut end) = (Vec::new(), 1000u64);
            for (i, (growth, remove, which)) in steps.into_iter().enumerate() {
                end += growth;
                if i % 256 == 0 {
                    histogram.set_bucket_bytes(widths[i / 256 % widths.len()]);
                }
                if remove && !list.is_empty() {
                    histogram.remove(list.swap_remove(which % list.len()), 1);
                } else {
                    // What lies far behind is of a stream of its own.
                    let back = if which % 7 == 0 { end / 2 } else { (which as u64 % 3) * growth };
                    let lsn = end - back;
                    histogram.add(lsn, 1);
                    list.push(lsn);
                }
                prop_assert_eq!(histogram.pages(), list.len() as u64);
                prop_assert!(histogram.buckets.len() <= BUCKETS_MAX);
            }
            for (x, pages) in deadlines(&histogram) {
                let older = list.iter().filter(|&&lsn| lsn <= x).count() as u64;
                prop_assert!(older <= pages, "{older} are older than {x}, {pages} are counted");
            }
        }
    }
}

//! Pages in numbers: how many of each area are cached, and dirty since when.
//!
//! `T` changes at random places of `N` pages hit `N (1 - e^(-T/N))` different ones; of the clean
//! ones the same share becomes dirty. Expected values throughout, fractions included.

use std::collections::VecDeque;

use crate::workload::{Area, Workload};

/// Buckets that the age's limit is divided into.
const BUCKETS: u64 = 400;

/// Parts of a page that are nothing.
const TRACE: f64 = 1e-6;

struct AreaState {
    area: Area,
    pages: f64,
    clean: f64,
    dirty: f64,
}

impl AreaState {
    fn uncached(&self) -> f64 {
        (self.pages - self.clean - self.dirty).max(0.0)
    }

    /// Changes per page and second, relative to others: who is coldest is evicted first.
    fn heat(&self) -> f64 {
        self.area.touches / self.pages.max(1.0)
    }
}

struct Bucket {
    first: u64,
    /// Dirty pages by area.
    dirty: Vec<f64>,
}

/// See the module.
pub struct Pages {
    areas: Vec<AreaState>,
    buckets: VecDeque<Bucket>,
    bucket_bytes: u64,
    frames: f64,
    /// Frames whose pages are being written and leave then.
    leaving: f64,
    keeps_size: bool,
}

/// What an operation costs at this moment, on average.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Pages that become dirty.
    pub dirtied: f64,
    /// Pages that have to be read.
    pub reads: f64,
    /// Frames that are taken.
    pub frames: f64,
}

/// Pages whose frames became free.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Freed {
    /// Without a write.
    pub clean: f64,
    /// After a write.
    pub written: f64,
}

impl Pages {
    /// The workload's pages, the hottest cached, none dirty.
    pub fn new(workload: &Workload, frames: u64, age_max: u64) -> Self {
        let mut pages = Pages {
            areas: Vec::new(),
            buckets: VecDeque::new(),
            bucket_bytes: (age_max / BUCKETS).max(1),
            frames: frames as f64,
            leaving: 0.0,
            keeps_size: workload.keeps_size,
        };
        for area in &workload.areas {
            let state = AreaState { area: area.clone(), pages: area.pages, clean: 0.0, dirty: 0.0 };
            pages.areas.push(state);
        }
        let mut free = pages.frames * 0.98;
        for at in pages.coldest_first().into_iter().rev() {
            let area = &mut pages.areas[at];
            area.clean = area.pages.min(free);
            free -= area.clean;
        }
        pages
    }

    fn coldest_first(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.areas.len()).collect();
        order.sort_by(|&a, &b| self.areas[a].heat().total_cmp(&self.areas[b].heat()));
        order
    }

    /// Dirty pages.
    pub fn dirty(&self) -> f64 {
        self.areas.iter().map(|a| a.dirty).sum()
    }

    /// All pages.
    pub fn total(&self) -> f64 {
        self.areas.iter().map(|a| a.pages).sum()
    }

    /// Frames that hold nothing.
    pub fn free(&self) -> f64 {
        self.frames - self.leaving - self.areas.iter().map(|a| a.clean + a.dirty).sum::<f64>()
    }

    /// Frames whose pages are being written and leave then.
    pub fn leaving(&self) -> f64 {
        self.leaving
    }

    /// So many pages that leave have been written.
    pub fn written(&mut self, pages: f64) {
        self.leaving = (self.leaving - pages).max(0.0);
    }

    /// What the next operations cost, if they are not too many.
    pub fn cost(&self) -> Cost {
        let mut cost = Cost { dirtied: 0.0, reads: 0.0, frames: 0.0 };
        for a in &self.areas {
            let per_page = a.area.touches / a.pages.max(1.0);
            let reads = per_page * a.uncached();
            cost.reads += reads;
            cost.frames += reads + a.area.grows;
            cost.dirtied += per_page * a.clean + reads + a.area.grows;
        }
        cost
    }

    /// `operations` are done, and the log ends at `lsn` now. Returns what they cost.
    pub fn change(&mut self, operations: f64, lsn: u64) -> Cost {
        let mut cost = Cost { dirtied: 0.0, reads: 0.0, frames: 0.0 };
        self.open_bucket(lsn);
        for at in 0..self.areas.len() {
            let a = &mut self.areas[at];
            let hit = -(-a.area.touches * operations / a.pages.max(1.0)).exp_m1();
            let reads = a.uncached() * hit;
            let dirtied = a.clean * hit;
            let added = a.area.grows * operations;
            a.clean -= dirtied;
            a.pages += added;
            a.dirty += dirtied + reads + added;
            let bucket = self.buckets.back_mut().expect("it was opened");
            bucket.dirty[at] += dirtied + reads + added;
            if self.keeps_size {
                self.drop_oldest(at, added);
            }
            cost.reads += reads;
            cost.frames += reads + added;
            cost.dirtied += dirtied + reads + added;
        }
        cost
    }

    /// Pages of an area go: clean ones, else uncached ones, else the longest dirty, which are never
    /// written.
    fn drop_oldest(&mut self, at: usize, pages: f64) {
        let a = &mut self.areas[at];
        let of_clean = pages.min(a.clean);
        let of_uncached = (pages - of_clean).min(a.uncached());
        let of_dirty = (pages - of_clean - of_uncached).min(a.dirty);
        a.clean -= of_clean;
        a.dirty -= of_dirty;
        a.pages -= of_clean + of_uncached + of_dirty;
        let mut left = of_dirty;
        for bucket in &mut self.buckets {
            let taken = left.min(bucket.dirty[at]);
            bucket.dirty[at] -= taken;
            left -= taken;
            if left <= 0.0 {
                break;
            }
        }
    }

    fn open_bucket(&mut self, lsn: u64) {
        let first = lsn - lsn % self.bucket_bytes;
        if self.buckets.back().is_none_or(|b| b.first < first) {
            self.buckets.push_back(Bucket { first, dirty: vec![0.0; self.areas.len()] });
        }
    }

    /// Up to `pages` of the oldest dirty pages become clean. Returns how many, and the LSN of the
    /// oldest.
    pub fn write_oldest(&mut self, pages: f64) -> (f64, u64) {
        let oldest = self.oldest().unwrap_or(u64::MAX);
        let mut left = pages;
        while left > 1e-9
            && let Some(bucket) = self.buckets.front_mut()
        {
            let all: f64 = bucket.dirty.iter().sum();
            let share = if all <= left { 1.0 } else { left / all };
            for (a, dirty) in self.areas.iter_mut().zip(&mut bucket.dirty) {
                let taken = *dirty * share;
                *dirty -= taken;
                a.dirty = (a.dirty - taken).max(0.0);
                a.clean += taken;
            }
            left -= all * share;
            if share >= 1.0 {
                if self.buckets.len() == 1 {
                    break;
                }
                self.buckets.pop_front();
            }
        }
        (pages - left.max(0.0), oldest)
    }

    /// Frees up to `wanted` frames of the coldest pages, writing at most `writes` dirty ones, whose
    /// frames are free when that is told ([`Pages::written`]).
    pub fn free_coldest(&mut self, wanted: f64, writes: f64) -> Freed {
        let mut freed = Freed::default();
        for at in self.coldest_first() {
            let left = wanted - freed.clean - freed.written;
            if left <= 1e-9 {
                break;
            }
            let a = &mut self.areas[at];
            let resident = a.clean + a.dirty;
            if resident <= 0.0 {
                continue;
            }
            // Victims are dirty as often as pages are; those that may not be written are passed
            // over.
            let victims = left.min(resident);
            let dirty = (victims * a.dirty / resident).min(writes - freed.written).max(0.0);
            let clean = (victims - dirty).min(a.clean);
            a.clean -= clean;
            freed.clean += clean;
            if dirty > 0.0 {
                let share = dirty / a.dirty;
                a.dirty -= dirty;
                freed.written += dirty;
                self.leaving += dirty;
                self.buckets.iter_mut().for_each(|b| b.dirty[at] *= 1.0 - share);
            }
        }
        freed
    }

    /// LSN since which the oldest page is dirty.
    pub fn oldest(&self) -> Option<u64> {
        let held = |b: &&Bucket| b.dirty.iter().any(|&d| d > TRACE);
        self.buckets.iter().find(held).map(|b| b.first)
    }

    /// `(x, pages dirty since x or before)`, ascending.
    pub fn deadlines(&self, out: &mut Vec<(u64, u64)>) {
        out.clear();
        let mut sum = 0.0;
        for bucket in &self.buckets {
            let pages = bucket.dirty.iter().sum::<f64>();
            sum += pages;
            if pages > TRACE {
                out.push((bucket.first, sum.ceil() as u64));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::WorkloadKind;

    fn uniform(pages: u64) -> Workload {
        Workload::new(WorkloadKind::Cached, pages * crate::PAGE_BYTES, 1.0, 1.0, 0)
    }

    #[test]
    fn changes_hit_as_many_pages_as_a_sample_does() {
        let mut pages = Pages::new(&uniform(10_000), 20_000, 1 << 20);
        let mut rng = fastrand::Rng::with_seed(3);
        let mut sample = vec![false; 10_000];
        for tick in 1..=20 {
            pages.change(700.0, tick * 1000);
            (0..700).for_each(|_| sample[rng.usize(..10_000)] = true);
        }
        let hit = sample.iter().filter(|&&hit| hit).count() as f64;
        assert!((pages.dirty() / hit - 1.0).abs() < 0.02, "{} and {hit}", pages.dirty());
    }

    #[test]
    fn the_oldest_go_first_and_become_dirty_again() {
        let mut pages = Pages::new(&uniform(1000), 2000, 400_000);
        pages.change(200.0, 1_000_000);
        let first = pages.dirty();
        pages.change(200.0, 1_010_000);
        assert_eq!(pages.oldest(), Some(1_000_000));
        let (written, oldest) = pages.write_oldest(first);
        assert!((written - first).abs() < 1e-6 && oldest == 1_000_000);
        assert_eq!(pages.oldest(), Some(1_010_000));
        pages.change(10_000.0, 1_020_000);
        assert!(pages.dirty() > 999.0);
    }

    #[test]
    fn dropped_pages_keep_the_size_though_all_are_dirty() {
        let mut workload = uniform(1000);
        workload.areas[0].grows = 0.5;
        workload.keeps_size = true;
        let mut pages = Pages::new(&workload, 2000, 400_000);
        for tick in 1..=100 {
            pages.change(100.0, tick * 10_000);
            assert!((pages.total() - 1000.0).abs() < 1e-6, "{}", pages.total());
        }
        assert!((pages.dirty() - 1000.0).abs() < 1.0, "{}", pages.dirty());
        let mut deadlines = Vec::new();
        pages.deadlines(&mut deadlines);
        let last = deadlines.last().expect("some are dirty").1;
        assert!((last as f64 - pages.dirty()).abs() <= 1.0, "{last}: the buckets agree");
        assert!(pages.oldest() > Some(500_000), "the longest dirty are dropped first");
    }

    #[test]
    fn pages_that_are_not_cached_are_read_and_take_frames() {
        let mut pages = Pages::new(&uniform(10_000), 1000, 400_000);
        let cost = pages.cost();
        assert!((cost.reads - 0.902).abs() < 1e-3, "{cost:?}");
        let before = pages.free();
        let done = pages.change(10.0, 1000);
        assert!((done.frames - 9.02).abs() < 0.01, "{done:?}");
        assert!((before - pages.free() - done.frames).abs() < 1e-6);
        let freed = pages.free_coldest(100.0, 0.5);
        assert!((freed.clean + freed.written - 100.0).abs() < 1e-6);
        assert!(freed.written <= 0.5);
        let free = pages.free();
        let freed = pages.free_coldest(1e6, 1e6);
        assert!(freed.written > 0.0 && pages.leaving() >= freed.written);
        assert!(
            (pages.free() - free - freed.clean).abs() < 1e-6,
            "those written are held until then"
        );
        pages.written(freed.written);
        assert!((pages.free() - free - freed.clean - freed.written).abs() < 1e-6);
    }
}

//! Spared pages: clean ones that are better not changed now.
//!
//! A change of a clean page costs a write of it, sooner or later. Near the dirty limit that is now,
//! and who changes clean pages goes at the pace of the device. Who can put a change off until it is
//! made together with others, as the staging of index entries does, asks here first.
//!
//! The share of the clean pages that are spared rises evenly from none at one part of the dirty
//! limit to all at another, below the one at which writers are held back ([`OF_DIRTY_LIMIT`]).
//! Which pages they are follows from their numbers: a page is either changed or spared for as long
//! as the share is the same, so that what is put off gathers. A share that follows the number of
//! dirty pages doesn't swing: the more is spared, the slower that number grows.
//!
//! The same where a log that is small beside the data takes all that the device can do
//! ([`Spare::follow_log`]): a change of a clean page is a write of it within one lap of the log.

use super::Storage;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use weir_page::{PAGE_SIZE, PageId};

/// Of the dirty limit: where the first pages are spared, and from where on all are.
const OF_DIRTY_LIMIT: (f64, f64) = (0.85, 0.95);

/// The same of what the log may grow by on this device.
const OF_LOG: (f64, f64) = (0.85, 1.0);

/// Of all pages' bytes: with a log smaller than the first all that may be are spared for its sake,
/// with one larger than the second none.
const SMALL_LOG: (f64, f64) = (1.0 / 8.0, 1.0 / 4.0);

/// Time over which the log's share is averaged, in seconds.
const LOG_SECONDS: f64 = 2.0;

/// So many parts the pages are divided into, by their numbers.
const PARTS: f64 = 256.0;

/// Which clean pages are spared for the log's sake.
#[derive(Debug, Default)]
pub struct Spare {
    /// Their share, the bits of an `f32`.
    for_log: AtomicU32,
}

impl Spare {
    /// `used` of what the log may grow by is, in the `seconds` since the last call; it has
    /// `log_bytes`, the pages `page_bytes`.
    pub fn follow_log(&self, used: f64, log_bytes: u64, page_bytes: u64, seconds: f64) {
        let size = log_bytes as f64 / page_bytes.max(1) as f64;
        let wanted = rise(used, OF_LOG) * (1.0 - rise(size, SMALL_LOG));
        let before = f64::from(f32::from_bits(self.for_log.load(Relaxed)));
        let now = before + (wanted - before) * (seconds / LOG_SECONDS).min(1.0);
        self.for_log.store((now as f32).to_bits(), Relaxed);
    }

    fn log_parts(&self) -> u32 {
        (f64::from(f32::from_bits(self.for_log.load(Relaxed))) * PARTS) as u32
    }
}

/// How far `x` has come from `from` (0) to `to` (1).
fn rise(x: f64, (from, to): (f64, f64)) -> f64 {
    ((x - from) / (to - from)).clamp(0.0, 1.0)
}

/// How many parts of the pages are spared when `used` of the dirty limit is.
fn spared_parts(used: f64) -> u32 {
    (rise(used, OF_DIRTY_LIMIT) * PARTS) as u32
}

/// The part that a page belongs to.
fn part(page: PageId) -> u32 {
    // Neighbours in a tree often have neighbouring numbers: Fibonacci hashing spreads them.
    page.0.wrapping_mul(0x9e37_79b1) >> 24
}

impl Storage {
    /// Whether a change of this page, which is clean, is better put off.
    #[inline]
    pub fn spares(&self, page: PageId) -> bool {
        let parts = self.spare.log_parts().max(spared_parts(self.dirty.used()));
        parts > 0 && part(page) < parts
    }

    /// Whether all pages fit into memory and few enough are dirty, so that what was put off may be
    /// done.
    pub fn has_room_to_spare(&self) -> bool {
        /// Well below where pages are spared, so that one isn't followed by the other.
        const ROOMY: f64 = 0.7;
        self.dirty.used() < ROOMY && self.spare.log_parts() == 0 && self.fits_into_memory()
    }

    /// Whether all pages fit into memory.
    pub fn fits_into_memory(&self) -> bool {
        let most = self.pool.frames() - 2 * self.frame_reserve();
        self.store.stats().pages_allocated <= most as u64
    }

    /// Bytes of all pages, in memory.
    pub fn page_bytes(&self) -> u64 {
        self.store.stats().pages_allocated * PAGE_SIZE as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_are_spared_before_writers_are_held_back() {
        assert_eq!(spared_parts(OF_DIRTY_LIMIT.0), 0);
        assert_eq!(spared_parts(0.9), PARTS as u32 / 2);
        assert_eq!(spared_parts(OF_DIRTY_LIMIT.1), PARTS as u32);
        assert_eq!(spared_parts(1.5), PARTS as u32);
    }

    #[test]
    fn a_share_of_the_pages_is_spared_wherever_they_are() {
        for first in [1, 1000, 1 << 30] {
            let spared = (first..first + 1000).filter(|&n| part(PageId(n)) < 64).count();
            assert!((200..300).contains(&spared), "{spared} of 1000 from {first} on");
        }
    }

    /// Parts that are spared after `seconds` of such a log.
    fn parts_after(spare: &Spare, used: f64, log_bytes: u64, seconds: u32) -> u32 {
        const TURNS: u32 = 100;
        (0..seconds * TURNS).for_each(|_| spare.follow_log(used, log_bytes, 1 << 30, 0.01));
        spare.log_parts()
    }

    #[test]
    fn a_small_log_at_its_limit_spares_all_pages_before_long() {
        let spare = Spare::default();
        let after_one = parts_after(&spare, 1.0, 1 << 26, 1);
        assert!((64..192).contains(&after_one), "{after_one}");
        assert!(parts_after(&spare, 1.0, 1 << 26, 20) >= 250);
        assert_eq!(parts_after(&spare, 0.5, 1 << 26, 20), 0);
    }

    #[test]
    fn a_large_log_or_one_below_its_limit_spares_none() {
        assert_eq!(parts_after(&Spare::default(), 1.0, 1 << 28, 20), 0);
        assert_eq!(parts_after(&Spare::default(), OF_LOG.0, 1 << 26, 20), 0);
        let between = parts_after(&Spare::default(), 1.0, 3 << 26, 20);
        assert!((100..150).contains(&between), "{between}");
    }
}

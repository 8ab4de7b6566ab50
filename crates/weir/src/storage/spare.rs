//! Spared pages: clean ones that are better not changed now.
//!
//! A change of a clean page costs a write of it, sooner or later. Near the dirty limit that is now, and who
//! changes clean pages goes at the pace of the device. Who can put a change off until it is made together
//! with others, as the staging of index entries does, asks here first.
//!
//! The share of the clean pages that are spared rises evenly from none at one part of the dirty limit to
//! all at another, below the one at which writers are held back ([`SPARED`]). Which pages they are follows
//! from their numbers: a page is either changed or spared for as long as the share is the same, so that
//! what is put off gathers. A share that follows the number of dirty pages doesn't swing: the more
//! is spared, the slower that number grows.

use super::Storage;
use weir_page::PageId;

/// Of the dirty limit: where the first pages are spared, and from where on all are.
const SPARED: (f64, f64) = (0.85, 0.95);

/// So many parts the pages are divided into, by their numbers.
const PARTS: f64 = 256.0;

/// How many parts of the pages are spared when `used` of the dirty limit is.
fn spared_parts(used: f64) -> u32 {
    let (from, all) = SPARED;
    (((used - from) / (all - from)).clamp(0.0, 1.0) * PARTS) as u32
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
        let used = self.dirty.used();
        used > SPARED.0 && part(page) < spared_parts(used)
    }

    /// Whether all pages fit into memory and few enough are dirty, so that what was put off may be done.
    pub fn has_room_to_spare(&self) -> bool {
        /// Well below where pages are spared, so that one isn't followed by the other.
        const ROOMY: f64 = 0.7;
        let most = self.pool.frames() - 2 * self.frame_reserve();
        self.dirty.used() < ROOMY && self.store.stats().pages_allocated <= most as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_are_spared_before_writers_are_held_back() {
        assert_eq!(spared_parts(SPARED.0), 0);
        assert_eq!(spared_parts(0.9), PARTS as u32 / 2);
        assert_eq!(spared_parts(SPARED.1), PARTS as u32);
        assert_eq!(spared_parts(1.5), PARTS as u32);
    }

    #[test]
    fn a_share_of_the_pages_is_spared_wherever_they_are() {
        for first in [1, 1000, 1 << 30] {
            let spared = (first..first + 1000).filter(|&n| part(PageId(n)) < 64).count();
            assert!((200..300).contains(&spared), "{spared} of 1000 from {first} on");
        }
    }
}

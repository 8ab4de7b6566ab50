//! Which pages are worth compressing.
//!
//! An image takes whole units, so compression gains something only if it saves one. What a page's
//! bytes shrink to is much the same for all leaves of a tree: it is learnt from those that are
//! compressed, and where it would save nothing the page is stored as it is, now and then excepted.
//! A few leaves that shrink more than all others of their tree are mostly stored as they are, too.

/// Of so many kinds of pages is it known; of one more, one of them is forgotten.
const KINDS: usize = 256;
/// A page counts for one part of so many in a mean.
const MEMORY: f32 = 8.0;
/// Mean deviation from the first page of a kind, as a share of what was left of it.
const FIRST_DEVIATION: f32 = 0.25;
/// Mean deviations by which a page may do better than its like and be tried for it.
const MARGIN: f32 = 1.0;
/// Of so many pages in a row one is tried, whatever is expected.
const TRIED: u8 = 16;

/// What pages that are alike shrink to.
#[derive(Debug, Clone, Copy, Default)]
struct Learnt {
    /// Which pages they are.
    alike: u32,
    /// Mean share of the bytes that is left; 0: none was tried.
    left: f32,
    /// Mean deviation from it.
    deviation: f32,
    /// Pages since the last try.
    passed: u8,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Worth([Learnt; KINDS]);

impl Default for Worth {
    fn default() -> Self {
        Worth([Learnt::default(); KINDS])
    }
}

impl Worth {
    /// Whether to compress `bytes` of a page, where that saves a unit if `most` bytes are left at
    /// most.
    pub fn is_tried(&mut self, alike: u32, bytes: usize, most: usize) -> bool {
        let learnt = self.of(alike);
        let best = learnt.left - MARGIN * learnt.deviation;
        learnt.passed += 1;
        best * bytes as f32 <= most as f32 || learnt.passed >= TRIED
    }

    /// Of so many bytes so many were left.
    pub fn learn(&mut self, alike: u32, bytes: usize, left: usize) {
        let learnt = self.of(alike);
        let left = left as f32 / bytes as f32;
        if learnt.left == 0.0 {
            (learnt.left, learnt.deviation) = (left, FIRST_DEVIATION * left);
        }
        let off = left - learnt.left;
        learnt.left += off / MEMORY;
        learnt.deviation += (off.abs() - learnt.deviation) / MEMORY;
        learnt.passed = 0;
    }

    fn of(&mut self, alike: u32) -> &mut Learnt {
        // Fibonacci hashing: numbers of trees are those of pages.
        let at = alike.wrapping_mul(0x9e37_79b1) >> (32 - KINDS.ilog2());
        let learnt = &mut self.0[at as usize];
        if learnt.alike != alike {
            *learnt = Learnt { alike, ..Learnt::default() };
        }
        learnt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `pages` pages of `bytes` bytes are compressed, each to `left` bytes.
    fn tried(worth: &mut Worth, pages: usize, bytes: usize, most: usize, left: usize) -> usize {
        (0..pages)
            .filter(|_| {
                let is_tried = worth.is_tried(3, bytes, most);
                if is_tried {
                    worth.learn(3, bytes, left);
                }
                is_tried
            })
            .count()
    }

    #[test]
    fn what_saves_a_unit_is_compressed_and_the_rest_only_now_and_then() {
        let mut worth = Worth::default();
        assert_eq!(tried(&mut worth, 100, 10_000, 8000, 7000), 100);
        let most_pages = 100 / usize::from(TRIED) + 1;
        assert!((1..=most_pages).contains(&tried(&mut worth, 100, 12_000, 8000, 8400)));
        assert_eq!(tried(&mut worth, 100, 11_000, 8000, 7700), 100);
    }

    #[test]
    fn pages_that_have_changed_their_ways_are_noticed() {
        let mut worth = Worth::default();
        tried(&mut worth, 100, 10_000, 8000, 10_000);
        assert!(tried(&mut worth, 1000, 10_000, 8000, 6000) > 900);
        assert!(tried(&mut worth, 1, 10_000, 8000, 10_000) == 1 && worth.is_tried(4, 10_000, 1));
    }

    #[test]
    fn one_page_unlike_the_others_at_the_beginning_is_soon_forgotten() {
        let mut worth = Worth::default();
        tried(&mut worth, 1, 10_000, 8000, 10_000);
        assert!(tried(&mut worth, 100, 10_000, 8000, 6000) > 60);
    }

    #[test]
    fn trees_that_share_a_place_do_not_mix() {
        let mut worth = Worth::default();
        (0..10_000).for_each(|alike| worth.learn(alike, 10_000, 9900));
        worth.learn(3, 10_000, 5000);
        assert!((worth.of(3).left - 0.5).abs() < 0.01);
    }

    #[test]
    fn where_pages_differ_more_of_them_are_tried() {
        let mut worth = Worth::default();
        for left in [7000, 9000].repeat(50) {
            worth.learn(3, 10_000, left);
        }
        assert!(worth.is_tried(3, 10_000, 7000));
        assert!(!worth.is_tried(3, 10_000, 5000));
    }
}

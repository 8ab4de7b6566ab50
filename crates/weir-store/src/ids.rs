//! Page ids in use: a hierarchical bitmap that hands out the lowest free one.
//!
//! Level 0 has a bit per id; a bit of level `n + 1` says that the word of level `n` is full. So the
//! lowest free id is one word per level away.

use weir_page::PageId;

const LEVELS: usize = 6;

/// The set of page ids in use.
pub(crate) struct IdSet {
    levels: [Vec<u64>; LEVELS],
    used: u64,
}

impl IdSet {
    /// All ids free but 0, which is never a page.
    pub fn new() -> Self {
        let mut ids = IdSet { levels: Default::default(), used: 0 };
        ids.mark(PageId::NONE);
        ids.used = 0;
        ids
    }

    /// Takes the lowest free id.
    ///
    /// # Panics
    /// When all 2^32 ids are in use (64 TiB of pages).
    pub fn allocate(&mut self) -> PageId {
        let mut index = 0u64;
        for level in (0..LEVELS).rev() {
            let word = self.levels[level].get(index as usize).copied().unwrap_or(0);
            index = index * 64 + u64::from(word.trailing_ones());
        }
        let page = PageId(u32::try_from(index).expect("fewer than 2^32 pages"));
        assert!(self.mark(page), "page {page} was free");
        page
    }

    /// Marks an id as used; whether it was free.
    pub fn mark(&mut self, page: PageId) -> bool {
        if self.contains(page) {
            return false;
        }
        self.used += 1;
        let mut index = page.0 as usize;
        for level in &mut self.levels {
            if level.len() <= index / 64 {
                level.resize(index / 64 + 1, 0);
            }
            level[index / 64] |= 1 << (index % 64);
            if level[index / 64] != u64::MAX {
                break;
            }
            index /= 64;
        }
        true
    }

    /// Marks an id as free; whether it was used.
    pub fn unmark(&mut self, page: PageId) -> bool {
        assert_ne!(page, PageId::NONE, "page 0 is never handed out");
        if !self.contains(page) {
            return false;
        }
        self.used -= 1;
        let mut index = page.0 as usize;
        for level in &mut self.levels {
            let word = &mut level[index / 64];
            let was_full = *word == u64::MAX;
            *word &= !(1 << (index % 64));
            if !was_full {
                break;
            }
            index /= 64;
        }
        true
    }

    pub fn contains(&self, page: PageId) -> bool {
        let index = page.0 as usize;
        self.levels[0].get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    /// The ids in use, ascending.
    pub fn iter(&self) -> impl Iterator<Item = PageId> + '_ {
        let bits = |word: u64| (0..64).filter(move |bit| word >> bit & 1 == 1);
        let words = self.levels[0].iter().enumerate();
        let ids = words.flat_map(move |(at, &word)| bits(word).map(move |bit| at * 64 + bit));
        ids.skip(1).map(|id| PageId(id as u32))
    }

    /// Ids from here on were never in use, and are handed out after all below.
    pub fn fresh_from(&self) -> u64 {
        self.levels[0].len() as u64 * 64
    }

    /// Number of ids in use.
    pub fn len(&self) -> u64 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn lowest_free_id_as_in_a_model() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut ids = IdSet::new();
        let mut model = BTreeSet::new();
        for step in 0..60_000 {
            let bias = if step < 40_000 { 3 } else { 1 };
            if rng.u32(..4) < bias || model.is_empty() {
                let page = ids.allocate();
                assert!(model.insert(page.0));
                assert!(model.range(..page.0).count() == page.0 as usize - 1 || step % 64 != 0);
            } else {
                let near = rng.u32(..=*model.last().unwrap());
                let page = *model.range(near..).next().unwrap();
                assert!(ids.unmark(PageId(page)));
                assert!(!ids.unmark(PageId(page)));
                model.remove(&page);
            }
            assert_eq!(ids.len(), model.len() as u64);
        }
        assert!(ids.iter().map(|page| page.0).eq(model.iter().copied()));
        let high = PageId(u32::MAX);
        assert!(ids.mark(high) && ids.contains(high) && !ids.mark(high) && ids.unmark(high));
    }
}

//! Inner pages as readers without a latch see them: through relaxed atomic words.
//!
//! An inner page may be replaced while it is read. Readers load aligned 64-bit words, bound every
//! offset, and use the result only after the frame's version has been found unchanged; writers
//! prepare the new page elsewhere and [`publish`](SharedPage::publish) it word by word.

use crate::node::{AROUND, CHILD, COUNT, PREFIX, SLOT, Slot, evenly_spread};
use crate::page::{BODY, Page};
use crate::types::{PAGE_SIZE, PageId};
use std::cmp::Ordering as Cmp;
use std::hint::select_unpredictable;
use std::sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = PAGE_SIZE / 8;

/// A page that others may be changing.
#[derive(Clone, Copy)]
pub struct SharedPage<'a>(&'a [AtomicU64; WORDS]);

impl<'a> SharedPage<'a> {
    /// The page at `ptr`.
    ///
    /// # Safety
    /// `ptr` is valid for `'a`, aligned to 8, and every access to it that isn't ordered with this
    /// one goes through `SharedPage`.
    pub unsafe fn new(ptr: *const Page) -> Self {
        // SAFETY: an array of atomics has the layout of the bytes; the caller vouches for the rest.
        SharedPage(unsafe { &*ptr.cast::<[AtomicU64; WORDS]>() })
    }

    #[inline]
    fn word(&self, i: usize) -> u64 {
        self.0[i & (WORDS - 1)].load(Ordering::Relaxed)
    }

    #[inline]
    fn u16(&self, at: usize) -> usize {
        (self.word(at / 8) >> (8 * (at % 8))) as u16 as usize
    }

    /// Eight bytes from any offset, as a big-endian number; bytes past the page read as anything.
    #[inline]
    fn be64(&self, at: usize) -> u64 {
        let shift = 8 * (at % 8);
        let low = self.word(at / 8) >> shift;
        let high = if shift == 0 { 0 } else { self.word(at / 8 + 1) << (64 - shift) };
        (low | high).swap_bytes()
    }

    #[inline]
    fn u32(&self, at: usize) -> u32 {
        (self.be64(at).swap_bytes()) as u32
    }

    #[inline]
    fn slot(&self, slot: usize) -> Slot {
        Slot::from_word(self.word(BODY / 8 + slot))
    }

    /// Number of children.
    #[inline]
    pub fn count(&self) -> usize {
        self.u16(COUNT).min((PAGE_SIZE - BODY) / SLOT)
    }

    /// Compares `len` bytes at `at` with `key`.
    fn compare(&self, at: usize, len: usize, key: &[u8]) -> Cmp {
        let shared = len.min(key.len());
        let (chunks, rest) = key[..shared].as_chunks::<8>();
        for (i, chunk) in chunks.iter().enumerate() {
            match self.be64(at + 8 * i).cmp(&u64::from_be_bytes(*chunk)) {
                Cmp::Equal => {}
                other => return other,
            }
        }
        if !rest.is_empty() {
            let unused = 64 - 8 * rest.len();
            let wanted = rest.iter().fold(0, |n, &b| n << 8 | u64::from(b));
            match (self.be64(at + shared - rest.len()) >> unused).cmp(&wanted) {
                Cmp::Equal => {}
                other => return other,
            }
        }
        len.cmp(&key.len())
    }

    /// What of `key` comes after the page's prefix.
    #[inline]
    fn past_prefix<'k>(&self, key: &'k [u8]) -> &'k [u8] {
        key.get(self.u16(PREFIX)..).unwrap_or(&[])
    }

    /// Slot of the child that covers `key`, if the page is what it seems to be.
    #[inline]
    pub fn child_slot(&self, key: &[u8]) -> usize {
        let wanted = self.past_prefix(key);
        let wanted_head = crate::node::head(wanted);
        let at_or_below = |order| order != Cmp::Greater;
        // Last slot whose head isn't above the wanted one; slot 0 stands for the lower fence.
        let count = self.count().max(1);
        let head = |slot: usize| self.slot(slot).head;
        if count > 2 && head(1) == wanted_head && head(count - 1) == wanted_head {
            return self.last_slot(count / 2, count, wanted, at_or_below);
        }
        let (mut slot, mut len) = (0, count);
        // It is looked for first where it would be if heads were evenly spread, as in a leaf.
        if count > 4 * AROUND {
            let guess = evenly_spread(head(1), head(count - 1), count, wanted_head);
            let (from, to) = (guess.saturating_sub(AROUND), (guess + AROUND).min(count));
            let begins = from == 0 || head(from) <= wanted_head;
            if begins && (to == count || head(to) > wanted_head) {
                (slot, len) = (from, to - from);
            }
        }
        while len > 1 {
            let half = len / 2;
            let above = head(slot + half) > wanted_head;
            slot = select_unpredictable(above, slot, slot + half);
            len -= half;
        }
        if slot == 0 || head(slot) != wanted_head {
            return slot;
        }
        // Mostly only this one has the same head: it is probed first.
        self.last_slot(slot, slot + 1, wanted, at_or_below)
    }

    /// Slot of the child that covers the keys just below `key`.
    pub fn child_slot_below(&self, key: &[u8]) -> usize {
        let count = self.count().max(1);
        self.last_slot(count / 2, count, self.past_prefix(key), |order| order == Cmp::Less)
    }

    /// Last slot under `high` whose key's order to `wanted` satisfies `before`; `mid` is probed
    /// first.
    fn last_slot(
        &self,
        mut mid: usize,
        mut high: usize,
        wanted: &[u8],
        before: impl Fn(Cmp) -> bool,
    ) -> usize {
        let wanted_head = crate::node::head(wanted);
        let mut low = 1;
        while low < high {
            let slot = self.slot(mid);
            let order = match slot.head.cmp(&wanted_head) {
                Cmp::Equal => self.compare(slot.offset as usize + CHILD, slot.key_len(), wanted),
                other => other,
            };
            if before(order) {
                low = mid + 1
            } else {
                high = mid
            }
            mid = (low + high) / 2;
        }
        low - 1
    }

    /// Child of a slot.
    #[inline]
    pub fn child(&self, slot: usize) -> PageId {
        PageId(self.u32(self.slot(slot).offset as usize))
    }

    /// Replaces the page word by word.
    pub fn publish(&self, page: &Page) {
        for (i, word) in page.0.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            self.0[i].store(word, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{self, Builder};
    use crate::types::TreeId;

    #[test]
    fn finds_the_children_that_the_page_itself_finds() {
        let mut rng = fastrand::Rng::with_seed(7);
        for round in 0..200 {
            let mut keys: Vec<Vec<u8>> = (0..rng.usize(1..60))
                .map(|_| (0..rng.usize(1..20)).map(|_| rng.u8(0..3)).collect())
                .collect();
            keys.sort();
            keys.dedup();
            let fenced = rng.bool() && keys[0][0] == 1;
            let (lower, upper) =
                if fenced { (&[1u8][..], Some(&[3u8][..])) } else { (&[][..], None) };
            let mut b = Builder::new(PageId(1), TreeId(1), 1, lower, upper);
            for (i, k) in keys.iter().enumerate() {
                b.push_child(k, PageId(i as u32 + 10));
            }
            let page = b.finish();
            // SAFETY: the page lives on, unchanged, while it is read.
            let shared = unsafe { SharedPage::new(&*page) };
            for _ in 0..100 {
                let key: Vec<u8> = (0..rng.usize(1..20)).map(|_| rng.u8(1..3)).collect();
                let slot = node::child_slot(&page, &key);
                assert_eq!(shared.child_slot(&key), slot, "round {round} key {key:?}");
                assert_eq!(shared.child(slot), node::child(&page, slot));
            }
        }
    }

    /// Pages of many children, whose place is guessed: keys that are evenly spread, and such as are
    /// anything but that.
    #[test]
    fn finds_the_children_of_large_pages() {
        let mut rng = fastrand::Rng::with_seed(11);
        for round in 0..200 {
            // The more, the more of the keys lie at the low end.
            let skew = rng.u32(0..4) * 10;
            let some = |rng: &mut fastrand::Rng| rng.u32(..) >> rng.u32(0..=skew.min(30));
            let keys: Vec<u32> = (0..rng.usize(65..900)).map(|_| some(&mut rng)).collect();
            let keys: std::collections::BTreeSet<u32> = keys.into_iter().collect();
            let mut b = Builder::new(PageId(1), TreeId(1), 1, &[], None);
            b.push_child(&[], PageId(9));
            for (i, k) in keys.iter().enumerate() {
                b.push_child(&k.to_be_bytes(), PageId(i as u32 + 10));
            }
            let page = b.finish();
            // SAFETY: the page lives on, unchanged, while it is read.
            let shared = unsafe { SharedPage::new(&*page) };
            let near = keys.iter().flat_map(|k| [k.saturating_sub(1), *k, k.saturating_add(1)]);
            for key in near.chain((0..100).map(|_| some(&mut rng))).map(u32::to_be_bytes) {
                let slot = node::child_slot(&page, &key);
                assert_eq!(shared.child_slot(&key), slot, "round {round} key {key:?}");
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        let mut page = Page::boxed();
        for seed in 0..2000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            if seed % 50 == 0 {
                page.0.fill_with(|| if rng.bool() { rng.u8(..) } else { 0xff });
            }
            page.0[34..64].fill_with(|| rng.u8(..));
            page.0[52] = rng.u8(0..3);
            page.0[53] = 0;
            let key: Vec<u8> = (0..rng.usize(0..30)).map(|_| 0xff).collect();
            // SAFETY: the page lives on, unchanged, while it is read.
            let shared = unsafe { SharedPage::new(&*page) };
            let slot = shared.child_slot(&key);
            assert!(slot <= shared.count());
            let _ = shared.child(slot);
        }
    }
}

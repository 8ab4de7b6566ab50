//! What of a leaf is kept apart from it: enough to tell which of its cache lines a search will look
//! at, before any of them is in a cache.

use super::find::{AROUND, evenly_spread};
use super::heads::{Heads, Rank};
use super::*;
use crate::page::Kind;

/// A copy of some of a leaf's header and of its first and last key head. It may be out of date, or
/// torn: what it says is where to look, not what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sketch {
    /// As in the page's header.
    heads: u64,
    first: u32,
    last: u32,
    prefix: u16,
    slots: u16,
    heap_top: u16,
    last_insert: u16,
}

impl Sketch {
    /// Of a page; empty if it is no leaf. `before`: what it was before a change.
    #[inline]
    pub fn of(p: &Page, before: Sketch) -> Sketch {
        if p.kind() != Kind::Leaf {
            return Sketch::default();
        }
        let (heads, slots) = (p.u64(GAPS & !7), count(p));
        let (prefix, heap_top, last_insert) = (p.u16(PREFIX), p.u16(HEAP_TOP), p.u16(LAST));
        // The last slot lies far from all else of a small change.
        let same_slots = slots == before.slots as usize
            && prefix == before.prefix
            && (heads ^ before.heads) >> 16 == 0;
        let (first, last) = match slots {
            _ if same_slots => (before.first, before.last),
            0 => (0, 0),
            n => (Slot::get(p, 0).head, Slot::get(p, n - 1).head),
        };
        Sketch { heads, first, last, prefix, slots: slots as u16, heap_top, last_insert }
    }

    /// The same as words.
    #[inline]
    pub fn to_words(self) -> [u64; 3] {
        let ends = u64::from(self.first) | u64::from(self.last) << 32;
        let rest = [self.prefix, self.slots, self.heap_top, self.last_insert];
        [
            self.heads,
            ends,
            rest.into_iter().rev().fold(0, |word, part| word << 16 | u64::from(part)),
        ]
    }

    /// What [`Sketch::to_words`] gave.
    #[inline]
    pub fn from_words([heads, ends, rest]: [u64; 3]) -> Sketch {
        let [prefix, slots, heap_top, last_insert] =
            [0, 16, 32, 48].map(|bit| (rest >> bit) as u16);
        let (first, last) = (ends as u32, (ends >> 32) as u32);
        Sketch { heads, first, last, prefix, slots, heap_top, last_insert }
    }

    /// The slots that a search for `key` looks at first, as bytes of the page.
    #[inline]
    pub fn searched(&self, key: &[u8]) -> [Range<usize>; 2] {
        [self.place(key), self.last_insert as usize].map(|at| self.around(at))
    }

    /// The slots that a search for `key`, and then an insert of it, look at.
    #[inline]
    pub fn moved(&self, key: &[u8]) -> [Range<usize>; 2] {
        let [spread, last_insert] = self.searched(key);
        [last_insert, spread.start..self.all().end]
    }

    /// All slots.
    pub fn all(&self) -> Range<usize> {
        BODY..BODY + SLOT * self.slots as usize
    }

    /// Where the heap begins.
    #[inline]
    pub fn heap_top(&self) -> usize {
        self.heap_top as usize
    }

    #[inline]
    fn around(&self, slot: usize) -> Range<usize> {
        let to = (slot + AROUND + 1).min(self.slots as usize);
        BODY + SLOT * slot.saturating_sub(AROUND + 1)..BODY + SLOT * to
    }

    #[inline]
    fn place(&self, key: &[u8]) -> usize {
        let suffix = key.get(self.prefix as usize..).unwrap_or_default();
        match Heads::from_word(self.heads).rank(suffix) {
            Rank::Head(head) | Rank::Between(Some(head)) => {
                evenly_spread(self.first, self.last, self.slots as usize, head)
            }
            Rank::Between(None) => self.slots as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(keys: &[u32]) -> Box<Page> {
        let mut b = Builder::new(PageId(1), TreeId(1), 0, &[], None);
        for key in keys {
            let flags = Flags::default();
            b.push(&key.to_be_bytes(), &Entry { flags, version: None, value: &[] });
        }
        b.finish()
    }

    #[test]
    fn tells_the_slots_that_evenly_spread_keys_are_at() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut keys: Vec<u32> = (0..500).map(|_| rng.u32(..)).collect();
        keys.sort_unstable();
        let page = leaf(&keys);
        let sketch = Sketch::of(&page, Sketch::default());
        assert_eq!(Sketch::from_words(sketch.to_words()), sketch);
        assert_eq!(Sketch::of(&page, sketch), sketch);
        let told = |(slot, key): &(usize, &u32)| {
            let at = BODY + SLOT * slot;
            sketch.searched(&key.to_be_bytes()).iter().any(|slots| slots.contains(&at))
        };
        let found = keys.iter().enumerate().filter(told).count();
        assert!(found > 450, "{found} of 500");
        assert_eq!(sketch.all().len(), SLOT * 500);
        for key in keys {
            let [_, moved] = sketch.moved(&key.to_be_bytes());
            assert_eq!(moved.end, sketch.all().end);
        }
    }

    #[test]
    fn torn_sketches_and_any_keys_give_some_range() {
        let mut rng = fastrand::Rng::with_seed(6);
        let sketches: Vec<[u64; 3]> = (0..20)
            .map(|_| {
                let shift = rng.u32(0..30);
                let mut keys: Vec<u32> =
                    (0..rng.usize(0..600)).map(|_| rng.u32(..) >> shift).collect();
                keys.sort_unstable();
                Sketch::of(&leaf(&keys), Sketch::default()).to_words()
            })
            .collect();
        for _ in 0..10_000 {
            let sketch = Sketch::from_words(
                [0, 1, 2].map(|word| rng.choice(&sketches).expect("some")[word]),
            );
            let key: Vec<u8> = (0..rng.usize(0..20)).map(|_| rng.u8(..)).collect();
            for slots in sketch.searched(&key).into_iter().chain(sketch.moved(&key)) {
                assert!(slots.end <= PAGE_SIZE, "{slots:?}");
            }
        }
    }
}

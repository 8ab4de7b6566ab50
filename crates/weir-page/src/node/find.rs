//! Searching a page: first among the key heads, then among the keys that share one.
//!
//! Which way a probe of a binary search goes is a coin toss, so it is computed, not predicted.

use super::heads::{Heads, Rank};
use super::*;
use std::hint::select_unpredictable;

type SlotBytes = [u8; SLOT];

/// Probes among ties whose keys are prefetched: each more doubles the keys.
const PREFETCHED_PROBES: u32 = 3;

/// Slots to each side of a guess that are searched first: most of evenly drawn keys are off by
/// fewer, even on a leaf of 500.
pub(crate) const AROUND: usize = 16;

/// The slots whose heads are that of a key; the key's place is among them or right behind.
#[derive(Debug, Clone, Copy)]
pub struct Ties {
    low: usize,
    high: usize,
}

/// First slot whose key is not below `key`, and whether it is equal.
///
/// `key` must be covered by the page.
#[inline]
pub fn search(p: &Page, key: &[u8]) -> (usize, bool) {
    settle(p, key, ties(p, key))
}

/// The first half of a [`search`], which looks at the slots alone. Whoever has several pages to
/// search does it for all of them, and then [`prefetch_ties`], so that their keys are on their way
/// at once.
#[inline]
pub fn ties(p: &Page, key: &[u8]) -> Ties {
    let (slots, _) = p.0[BODY..BODY + SLOT * count(p)].as_chunks::<SLOT>();
    let (n, last_insert) = (slots.len(), p.u16(LAST) as usize);
    let none = |slot| Ties { low: slot, high: slot };
    let wanted = match Heads::of(p).rank(&key[p.u16(PREFIX) as usize..]) {
        Rank::Head(head) => head,
        Rank::Between(Some(above)) => return none(first_not_below(slots, last_insert, above)),
        Rank::Between(None) => return none(n),
    };
    // At the right edge of a tree no prefix is cut off, and all heads may be the same.
    if n > 0 && slot_head(&slots[0]) == wanted && slot_head(&slots[n - 1]) == wanted {
        return Ties { low: 0, high: n };
    }
    let low = first_not_below(slots, last_insert, wanted);
    if low == n || slot_head(&slots[low]) != wanted {
        return none(low);
    }
    if low + 1 == n || slot_head(&slots[low + 1]) != wanted {
        return Ties { low, high: low + 1 };
    }
    let high = match wanted.checked_add(1) {
        Some(next) => low + first_not_below_among(&slots[low..], next),
        None => n,
    };
    Ties { low, high }
}

/// The second half of a [`search`]; the page is as it was in the first.
#[inline]
pub fn settle(p: &Page, key: &[u8], Ties { low, high }: Ties) -> (usize, bool) {
    let wanted = &key[p.u16(PREFIX) as usize..];
    if low == high {
        return (low, false);
    }
    if low + 1 == high {
        return match suffix(p, low).cmp(wanted) {
            Ordering::Less => (high, false),
            order => (low, order == Ordering::Equal),
        };
    }
    // Loads in key order go on behind the last key.
    if high == count(p) && suffix(p, high - 1) < wanted {
        return (high, false);
    }
    search_ties(p, low, high, wanted)
}

/// Tells the CPU which keys [`settle`] will compare.
#[inline]
pub fn prefetch_ties(p: &Page, Ties { low, high }: Ties) {
    if low == high {
        return;
    }
    prefetch_key(p, low);
    if low + 1 < high {
        prefetch_key(p, high - 1);
        prefetch_probes(p, low, high - low, PREFETCHED_PROBES);
    }
}

#[inline]
fn slot_head(slot: &SlotBytes) -> u32 {
    u64::from_le_bytes(*slot) as u32
}

/// First slot whose head isn't below `wanted`. It is looked for first where it would be if heads
/// were evenly spread, as they mostly are within a leaf, and then where the last insert was: few
/// lines of the slots are needed then (Graefe, "B-tree indexes, interpolation search, and skew",
/// 2006).
#[inline]
fn first_not_below(slots: &[SlotBytes], last_insert: usize, wanted: u32) -> usize {
    let n = slots.len();
    let (mut low, mut high) = (0, n);
    if n > 4 * AROUND {
        let spread = evenly_spread(slot_head(&slots[0]), slot_head(&slots[n - 1]), n, wanted);
        for guess in [spread, last_insert] {
            let (from, to) = (guess.saturating_sub(AROUND).max(low), (guess + AROUND).min(high));
            if to <= from {
                break;
            }
            if from > low && slot_head(&slots[from - 1]) >= wanted {
                high = from - 1;
            } else if to < high && slot_head(&slots[to]) < wanted {
                low = to + 1;
            } else {
                (low, high) = (from, to);
                break;
            }
        }
    }
    low + first_not_below_among(&slots[low..high], wanted)
}

/// The slot out of `n`, or right behind them, at which `wanted` would be if heads were evenly
/// spread from `first` to `last`.
#[inline]
pub(crate) fn evenly_spread(first: u32, last: u32, n: usize, wanted: u32) -> usize {
    if wanted <= first {
        return 0;
    }
    if wanted > last {
        return n;
    }
    let share = u64::from(wanted - first) * n.saturating_sub(1) as u64;
    (share / u64::from(last - first)) as usize
}

/// First slot whose head isn't below `wanted`, by halves.
#[inline]
fn first_not_below_among(slots: &[SlotBytes], wanted: u32) -> usize {
    let (mut low, mut len) = (0, slots.len());
    while len > 1 {
        let half = len / 2;
        let below = slot_head(&slots[low + half - 1]) < wanted;
        low = select_unpredictable(below, low + half, low);
        len -= half;
    }
    low + usize::from(len == 1 && slot_head(&slots[low]) < wanted)
}

/// [`search`] among the slots `low..high`, at least two, whose heads are that of `wanted`.
fn search_ties(p: &Page, mut low: usize, high: usize, wanted: &[u8]) -> (usize, bool) {
    prefetch_key(p, high - 1);
    prefetch_probes(p, low, high - low, PREFETCHED_PROBES);
    let first = suffix(p, low);
    let skip = common_prefix(first, suffix(p, high - 1));
    match wanted[..skip.min(wanted.len())].cmp(&first[..skip]) {
        Ordering::Less => return (low, false),
        Ordering::Greater => return (high, false),
        Ordering::Equal => {}
    }
    let wanted_tail = number(&wanted[skip..]);
    let mut len = high - low;
    while len > 1 {
        let half = len / 2;
        let tail = slot_number(p, low + half - 1, skip);
        if tail == wanted_tail {
            return search_keys(p, low, low + len, wanted);
        }
        low = select_unpredictable(tail < wanted_tail, low + half, low);
        len -= half;
    }
    search_keys(p, low, low + len, wanted)
}

/// Tells the CPU which keys the first probes of a search among `len` slots from `low` on may read:
/// all that they might, so that their way through memory is made once and not probe by probe.
fn prefetch_probes(p: &Page, low: usize, len: usize, probes: u32) {
    if probes == 0 || len < 2 {
        return;
    }
    let half = len / 2;
    prefetch_key(p, low + half - 1);
    prefetch_probes(p, low, len - half, probes - 1);
    prefetch_probes(p, low + half, len - half, probes - 1);
}

#[inline]
fn prefetch_key(p: &Page, slot: usize) {
    prefetch_byte(p, suffix_at(p, Slot::get(p, slot)).start);
}

/// [`search`] among the slots `low..high` by whole keys.
fn search_keys(p: &Page, mut low: usize, mut high: usize, wanted: &[u8]) -> (usize, bool) {
    while low < high {
        // Begins with the slot whose number was found equal.
        let mid = low + (high - low) / 2 - usize::from(high - low > 1);
        match suffix(p, mid).cmp(wanted) {
            Ordering::Less => low = mid + 1,
            Ordering::Greater => high = mid,
            Ordering::Equal => return (mid, true),
        }
    }
    (low, false)
}

/// First eight bytes as an ordered number, zero padded.
#[inline]
pub(super) fn number(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(b) => u64::from_be_bytes(*b),
        None => {
            let mut b = [0; 8];
            b[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(b)
        }
    }
}

/// [`number`] of a slot's key from byte `skip` on.
#[inline]
fn slot_number(p: &Page, slot: usize, skip: usize) -> u64 {
    let key = suffix_at(p, Slot::get(p, slot));
    let at = key.start + skip;
    match p.0.get(at..at + 8) {
        Some(b) => {
            let bits = 8 * (key.end - at) as u32;
            let beyond = u64::MAX.checked_shr(bits).unwrap_or(0);
            u64::from_be_bytes(b.try_into().expect("eight bytes")) & !beyond
        }
        None => number(&p.0[at..key.end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_a_head_however_heads_are_spread() {
        let mut rng = fastrand::Rng::with_seed(4);
        for round in 0..300 {
            let clusters: Vec<u32> = (0..rng.usize(1..5)).map(|_| rng.u32(..)).collect();
            let width = 1 << rng.u32(0..31);
            let mut heads: Vec<u32> = (0..rng.usize(0..700))
                .map(|_| rng.choice(&clusters).expect("some").saturating_add(rng.u32(0..width)))
                .collect();
            heads.sort_unstable();
            let slots: Vec<SlotBytes> = heads
                .iter()
                .map(|&head| (u64::from(head) | rng.u64(..) << 32).to_le_bytes())
                .collect();
            let mut wanted = heads.clone();
            wanted.extend((0..50).map(|_| rng.u32(..)));
            wanted.extend([0, u32::MAX]);
            for wanted in wanted {
                let last_insert = rng.usize(0..900);
                let found = first_not_below(&slots, last_insert, wanted);
                assert_eq!(found, heads.partition_point(|&head| head < wanted), "round {round}");
            }
        }
    }
}

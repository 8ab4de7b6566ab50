//! Searching a page: first among the key heads, then among the keys that share one.
//!
//! Which way a probe of a binary search goes is a coin toss, so it is computed, not predicted.

use super::heads::{Heads, Rank};
use super::*;
use std::hint::select_unpredictable;

type SlotBytes = [u8; SLOT];

/// Probes among ties whose keys are prefetched: each more doubles the keys.
const PREFETCHED_PROBES: u32 = 3;

/// First slot whose key is not below `key`, and whether it is equal.
///
/// `key` must be covered by the page.
#[inline]
pub fn search(p: &Page, key: &[u8]) -> (usize, bool) {
    let wanted = &key[p.u16(PREFIX) as usize..];
    let (slots, _) = p.0[BODY..BODY + SLOT * count(p)].as_chunks::<SLOT>();
    let n = slots.len();
    let wanted_head = match Heads::of(p).rank(wanted) {
        Rank::Head(head) => head,
        Rank::Between(Some(above)) => return (first_not_below(slots, above), false),
        Rank::Between(None) => return (n, false),
    };
    // At the right edge of a tree no prefix is cut off, and all heads may be the same.
    let all_tie =
        n > 0 && slot_head(&slots[0]) == wanted_head && slot_head(&slots[n - 1]) == wanted_head;
    let low = if all_tie { 0 } else { first_not_below(slots, wanted_head) };
    if low == n || slot_head(&slots[low]) != wanted_head {
        return (low, false);
    }
    if low + 1 == n || slot_head(&slots[low + 1]) != wanted_head {
        return match suffix(p, low).cmp(wanted) {
            Ordering::Less => (low + 1, false),
            order => (low, order == Ordering::Equal),
        };
    }
    let high = match wanted_head.checked_add(1) {
        Some(next) if !all_tie => low + first_not_below(&slots[low..], next),
        _ => n,
    };
    search_ties(p, low, high, wanted)
}

/// Tells the CPU which keys a [`search`] will compare, so that several pages' can be on their way at once.
pub fn prefetch_search(p: &Page, key: &[u8]) {
    let Rank::Head(wanted_head) = Heads::of(p).rank(&key[p.u16(PREFIX) as usize..]) else { return };
    let (slots, _) = p.0[BODY..BODY + SLOT * count(p)].as_chunks::<SLOT>();
    let low = first_not_below(slots, wanted_head);
    if slots.get(low).is_none_or(|slot| slot_head(slot) != wanted_head) {
        return;
    }
    let ties = match wanted_head.checked_add(1) {
        Some(next) => first_not_below(&slots[low..], next),
        None => slots.len() - low,
    };
    prefetch_key(p, low);
    prefetch_key(p, low + ties - 1);
    prefetch_probes(p, low, ties, PREFETCHED_PROBES);
}

#[inline]
fn slot_head(slot: &SlotBytes) -> u32 {
    u64::from_le_bytes(*slot) as u32
}

/// First slot whose head isn't below `wanted`.
#[inline]
fn first_not_below(slots: &[SlotBytes], wanted: u32) -> usize {
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

/// Tells the CPU which keys the first probes of a search among `len` slots from `low` on may read: all
/// that they might, so that their way through memory is made once and not probe by probe.
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
    prefetch(p, suffix_at(p, Slot::get(p, slot)).start);
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

//! Where to split a page, and when two pages fit one.

use super::*;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Number of bytes that `a` and `b` share at the front.
#[inline]
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let (chunks_a, _) = a.as_chunks::<8>();
    let (chunks_b, _) = b.as_chunks::<8>();
    let mut shared = 0;
    for (x, y) in chunks_a.iter().zip(chunks_b) {
        let differ = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if differ != 0 {
            return shared + differ.trailing_zeros() as usize / 8;
        }
        shared += 8;
    }
    shared + a[shared..].iter().zip(&b[shared..]).take_while(|(x, y)| x == y).count()
}

/// Shortest key `s` with `left < s <= right`.
pub fn separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    &right[..(common_prefix(left, right) + 1).min(right.len())]
}

/// Whether [`truncate`] can be called: the slots below `at` are there and lie below `upper`, which
/// has room as a fence.
pub fn can_truncate(p: &Page, at: usize, upper: &[u8]) -> bool {
    // An inner page keeps its first child, which has no key.
    let first = usize::from(p.level() > 0);
    if at < first || at > count(p) {
        return false;
    }
    let l = lower(p);
    let is_above = l < upper && (at == first || key(p, at - 1)[..] < *upper);
    if !is_above || super::upper(p).is_some_and(|u| upper > u) {
        return false;
    }
    // The keys that stay have the new fence's longer prefix in common.
    let shorter = common_prefix(l, upper) - p.u16(PREFIX) as usize;
    let bytes: usize = (0..at).map(|slot| heap_size(p, slot) + SLOT).sum();
    let saved = (at - first) * shorter;
    bytes - saved + l.len() + upper.len() <= PAGE_SIZE - BODY
}

/// Keeps the slots below `at`; `upper` becomes the upper fence.
pub fn truncate(p: &mut Page, at: usize, upper: &[u8]) {
    let mut b = Builder::new(p.id(), tree(p), p.level(), lower(p), Some(upper));
    copy_slots(p, 0..at, &mut b);
    let built = b.finish();
    let lsn = p.lsn();
    p.0.copy_from_slice(&built.0);
    p.set_lsn(lsn);
}

/// Where to split a page, and the separator.
#[derive(Debug, PartialEq, Eq)]
pub struct Split {
    /// Slots from here on move to the right page.
    pub at: usize,
    /// First key of the right page's range.
    pub separator: Vec<u8>,
}

/// Chooses where to split a leaf that has no room for `new_key` at `slot`, so that loads in key
/// order leave full pages behind and others split near the middle.
///
/// Were it the very middle, leaves of equal ranges of random keys would become full at the same
/// time, and again whenever their number has doubled: waves of splits, in which a row costs half as
/// much again. How far from the middle differs from leaf to leaf, so that two or three generations
/// on they are at every state of fullness.
///
/// Both halves always fit their pages, and the one that covers `new_key` has fewer entries than the
/// page had: entries within [`MAX_KEY`] and [`MAX_INLINE`] fit after a few splits.
///
/// # Panics
/// If the page has no entry but (perhaps) that of `new_key`: it has room for any other state of it.
pub fn plan_leaf_split(p: &Page, slot: usize, new_key: &[u8]) -> Split {
    let n = count(p);
    let exists = slot < n && suffix(p, slot) == &new_key[p.u16(PREFIX) as usize..];
    if let Some(split) = plan_run_split(p, slot, new_key).filter(|_| !exists) {
        return split;
    }
    if n == 1 {
        assert!(!exists, "a leaf of one entry has room for any state of it");
        return split_beside(p, slot, new_key);
    }
    let at = split_slot(p, left_share(p), |at| common_prefix(suffix(p, at - 1), suffix(p, at)));
    Split { at, separator: separator(&key(p, at - 1), &key(p, at)).to_vec() }
}

/// The split right behind a run of ascending inserts that goes on with `new_key`, if there is one
/// and both pages hold what they get.
fn plan_run_split(p: &Page, slot: usize, new_key: &[u8]) -> Option<Split> {
    let n = count(p);
    let at_end = slot == n && (upper(p).is_none() || run(p) >= 8);
    let inside = slot < n && run(p) >= 8;
    if n == 0 || slot == 0 || !(at_end || inside) {
        return None;
    }
    let split = split_beside(p, slot, new_key);
    // The separator stems from a key that isn't here: unlike one from two neighbours on this page,
    // it may be longer than what the page loses.
    let fence = split.separator.len();
    let (l, u) = (lower(p), upper(p));
    let left = bytes_between(p, 0..slot, l, Some(&split.separator)) + l.len() + fence;
    let right = bytes_between(p, slot..n, &split.separator, u) + fence + u.map_or(0, <[u8]>::len);
    (left.max(right) <= PAGE_SIZE - BODY).then_some(split)
}

/// Separates `new_key` from the slot that it would take and from those behind it; at the end of the
/// page, from all slots.
fn split_beside(p: &Page, slot: usize, new_key: &[u8]) -> Split {
    let separator = if slot == count(p) {
        separator(&key(p, slot - 1), new_key).to_vec()
    } else {
        separator(new_key, &key(p, slot)).to_vec()
    };
    Split { at: slot, separator }
}

/// Bytes that the slots of `range` take on a page with these fences.
fn bytes_between(p: &Page, range: Range<usize>, lower: &[u8], upper: Option<&[u8]>) -> usize {
    let prefix = upper.map_or(0, |u| common_prefix(lower, u));
    let old_prefix = p.u16(PREFIX) as usize;
    range.map(|s| heap_size(p, s) + SLOT + old_prefix - prefix).sum()
}

/// Of a leaf's bytes, in parts of 256, what is to stay on the left page: 0.35 to 0.65.
fn left_share(p: &Page) -> usize {
    90 + differing(lower(p), upper(p), 77)
}

/// A number below `n` that differs from leaf to leaf, by the fences: the same keys make the same
/// tree.
pub fn differing(lower: &[u8], upper: Option<&[u8]>, n: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    (lower, upper).hash(&mut hasher);
    (hasher.finish() % n as u64) as usize
}

/// The slot behind so many 256th parts of the page's bytes, or near it, that makes the shortest
/// separator.
///
/// Whatever slot it is, both pages hold their part: each loses, with the entry beside the split, at
/// least the bytes of the separator that becomes its fence.
fn split_slot(p: &Page, left: usize, separator_len: impl Fn(usize) -> usize) -> usize {
    let n = count(p);
    let total: usize = (0..n).map(|s| heap_size(p, s) + SLOT).sum();
    let (mut bytes, mut middle) = (0, 0);
    while middle < n && bytes + heap_size(p, middle) + SLOT <= total * left / 256 {
        bytes += heap_size(p, middle) + SLOT;
        middle += 1;
    }
    let middle = middle.clamp(1, n - 1);
    let window = n / 16;
    let candidates = middle.saturating_sub(window).max(1)..(middle + window + 1).min(n);
    candidates.min_by_key(|&at| (separator_len(at), at.abs_diff(middle))).unwrap_or(middle)
}

/// Chooses where to split an inner page that has no room for a child at `slot`.
///
/// # Panics
/// If the page has fewer than two children: it has room for any child.
pub fn plan_inner_split(p: &Page, slot: usize) -> Split {
    let n = count(p);
    assert!(n >= 2, "an inner page of {n} children has room for any child");
    let at = if slot == n && upper(p).is_none() {
        n - 1
    } else {
        split_slot(p, 128, |at| suffix(p, at).len())
    };
    Split { at, separator: key(p, at) }
}

/// Whether the contents of `left` and its right neighbour fit one page and leave a quarter free.
pub fn can_merge(left: &Page, right: &Page) -> bool {
    fit_together(&[left, right], (PAGE_SIZE - BODY) * 3 / 4)
}

/// Whether all that neighbours hold, from left to right, fits `room` bytes of one page.
pub fn fit_together(pages: &[&Page], room: usize) -> bool {
    let last = pages[pages.len() - 1];
    bytes_together(pages, count(last), upper(last)) <= room
}

/// How much of the last of `pages`, neighbours from left to right, fits `room` bytes of one page
/// together with all the others: [`Split::at`] slots, with the separator behind them; `None` if not
/// even one does. All of it doesn't ([`fit_together`]).
pub fn plan_fill(pages: &[&Page], room: usize) -> Option<Split> {
    let last = pages[pages.len() - 1];
    let split_at = |at: usize| {
        let separator = match last.level() {
            0 => separator(&key(last, at - 1), &key(last, at)).to_vec(),
            _ => key(last, at),
        };
        Split { at, separator }
    };
    // Searched as if more never took less; a shorter separator may make it so, by a few bytes.
    let (mut most, mut fitting) = (count(last), None);
    let mut least = 1;
    while least < most {
        let split = split_at(least + (most - least) / 2);
        match bytes_together(pages, split.at, Some(&split.separator)) <= room {
            true => {
                least = split.at + 1;
                fitting = Some(split);
            }
            false => most = split.at,
        }
    }
    fitting
}

/// Bytes that the contents of neighbours take on one page that ends with `upper`: all slots of all
/// of `pages`, but of the last one the first `end`.
fn bytes_together(pages: &[&Page], end: usize, upper: Option<&[u8]>) -> usize {
    let lowest = lower(pages[0]);
    let prefix = upper.map_or(0, |u| common_prefix(lowest, u));
    let mut bytes = lowest.len() + upper.map_or(0, <[u8]>::len);
    for (n, page) in pages.iter().enumerate() {
        let slots = if n + 1 == pages.len() { end } else { count(page) };
        let own_prefix = page.u16(PREFIX) as usize;
        // The first child has no key, until another one comes before it.
        let keyless = page.level() > 0 && slots > 0;
        if keyless {
            bytes += CHILD + SLOT + if n == 0 { 0 } else { lower(page).len() - prefix };
        }
        for slot in usize::from(keyless)..slots {
            bytes += SLOT + heap_size(page, slot) + own_prefix - prefix;
        }
    }
    bytes
}

/// One page with the contents of `left` and its right neighbour, under the left one's id.
pub fn merged(left: &Page, right: &Page) -> Box<Page> {
    together(&[left, right], count(right), upper(right))
}

/// One page with the contents of neighbours, from left to right, under the first one's id, that
/// ends with `upper`: of the last one the first `end` slots.
pub fn together(pages: &[&Page], end: usize, upper: Option<&[u8]>) -> Box<Page> {
    let first = pages[0];
    let mut b = Builder::new(first.id(), tree(first), first.level(), lower(first), upper);
    for (n, page) in pages.iter().enumerate() {
        let slots = if n + 1 == pages.len() { end } else { count(page) };
        copy_slots(page, 0..slots, &mut b);
    }
    b.finish()
}

/// Whether a page is so empty that a merge with a neighbour is worth trying.
pub fn is_sparse(p: &Page) -> bool {
    free_bytes(p) > (PAGE_SIZE - BODY) * 3 / 4
}

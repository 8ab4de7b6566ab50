//! Where to split a page, and when two pages fit one.

use super::*;

/// Number of bytes that `a` and `b` share at the front.
pub fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Shortest key `s` with `left < s <= right`.
pub fn separator<'a>(left: &[u8], right: &'a [u8]) -> &'a [u8] {
    &right[..(common_prefix(left, right) + 1).min(right.len())]
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
/// order leave full pages behind and others split in halves.
pub fn plan_leaf_split(p: &Page, slot: usize, new_key: &[u8]) -> Split {
    let n = count(p);
    let ascending = slot == n && (upper(p).is_none() || run(p) >= 8);
    if ascending && n > 0 {
        return Split { at: n, separator: separator(&key(p, n - 1), new_key).to_vec() };
    }
    if run(p) >= 8 && slot > 0 && slot < n {
        return Split { at: slot, separator: separator(new_key, &key(p, slot)).to_vec() };
    }
    let total: usize = (0..n).map(|s| heap_size(p, s) + SLOT).sum();
    let (mut bytes, mut middle) = (0, 0);
    while middle < n && bytes + heap_size(p, middle) + SLOT <= total / 2 {
        bytes += heap_size(p, middle) + SLOT;
        middle += 1;
    }
    let middle = middle.clamp(1, n - 1);
    let window = n / 16;
    let candidates = middle.saturating_sub(window).max(1)..(middle + window + 1).min(n);
    let at = candidates
        .min_by_key(|&at| {
            let len = common_prefix(suffix(p, at - 1), suffix(p, at));
            (len, at.abs_diff(middle))
        })
        .unwrap_or(middle);
    Split { at, separator: separator(&key(p, at - 1), &key(p, at)).to_vec() }
}

/// Chooses where to split an inner page that has no room for a child at `slot`.
pub fn plan_inner_split(p: &Page, slot: usize) -> Split {
    let n = count(p);
    let at = if slot == n && upper(p).is_none() { n - 1 } else { n / 2 };
    let at = at.max(1);
    Split { at, separator: key(p, at) }
}

/// Whether the contents of `left` and its right neighbour fit one page and leave a quarter free.
pub fn can_merge(left: &Page, right: &Page) -> bool {
    let used = |p: &Page| PAGE_SIZE - BODY - free_bytes(p);
    // Prefixes may shrink: every key may take its whole former prefix again.
    let regrown = |p: &Page| count(p) * p.u16(PREFIX) as usize;
    let separator = if left.level() > 0 { lower(right).len() } else { 0 };
    used(left) + used(right) + regrown(left) + regrown(right) + separator
        <= (PAGE_SIZE - BODY) * 3 / 4
}

/// One page with the contents of `left` and its right neighbour, under the left one's id.
pub fn merged(left: &Page, right: &Page) -> Box<Page> {
    let mut b = Builder::new(left.id(), tree(left), left.level(), lower(left), upper(right));
    copy_slots(left, 0..count(left), &mut b);
    copy_slots(right, 0..count(right), &mut b);
    b.finish()
}

/// Whether a page is so empty that a merge with a neighbour is worth trying.
pub fn is_sparse(p: &Page) -> bool {
    free_bytes(p) > (PAGE_SIZE - BODY) * 3 / 4
}

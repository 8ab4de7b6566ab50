//! Checking that a tree page is well formed.

use super::heads::{Heads, Rank};
use super::*;
use crate::page::Kind;

/// Where a fence lies; nothing if there is none.
fn fence_at(p: &Page, fence: usize) -> Range<usize> {
    let (at, len) = (p.u16(fence) as usize, p.u16(fence + 2));
    at..at + if len == NO_UPPER { 0 } else { len as usize }
}

/// Checks that all that the page refers to lies in it. That is quickly done, and enough to read it;
/// whether it makes sense, says [`validate`].
///
/// # Errors
/// What is wrong, in words.
pub(crate) fn check_bounds(p: &Page) -> Result<(), String> {
    let n = count(p);
    let kind = if p.level() == 0 { Kind::Leaf } else { Kind::Inner };
    if p.kind() != kind {
        return Err(format!("kind {:?} on level {}", p.kind(), p.level()));
    }
    let top = p.u16(HEAP_TOP) as usize;
    if BODY + SLOT * n > top || top > PAGE_SIZE {
        return Err(format!("{n} slots and heap top {top} overlap"));
    }
    let in_heap = |at: usize, len: usize| at >= top && at + len <= PAGE_SIZE;
    let (lo, up) = (fence_at(p, LOWER), fence_at(p, UPPER));
    let has_upper = p.u16(UPPER + 2) != NO_UPPER;
    if !in_heap(lo.start, lo.len()) || (has_upper && !in_heap(up.start, up.len())) {
        return Err("a fence lies outside the heap".into());
    }
    if lo.len().max(up.len()) > MAX_KEY {
        return Err(format!("a fence is longer than {MAX_KEY} bytes"));
    }
    let expected_prefix = upper(p).map_or(0, |u| common_prefix(lower(p), u));
    if p.u16(PREFIX) as usize != expected_prefix {
        return Err(format!("prefix length {} should be {expected_prefix}", p.u16(PREFIX)));
    }
    heads::validate(p)?;
    let mut live = lo.len() + up.len();
    let (slots, _) = p.0[BODY..BODY + SLOT * n].as_chunks::<SLOT>();
    for (slot, word) in slots.iter().enumerate() {
        let s = Slot::from_word(u64::from_le_bytes(*word));
        let (at, key_len) = (s.offset as usize, expected_prefix + s.key_len());
        let (value_len, size) = if kind == Kind::Leaf {
            let value_len = p.u16(at.min(PAGE_SIZE - 2)) as usize;
            (value_len, leaf_size(s.key_len(), value_len, s.versioned()))
        } else {
            (0, CHILD + s.key_len())
        };
        if !in_heap(at, size) || key_len > MAX_KEY || key_len + value_len > MAX_INLINE {
            let found = format!("a key of {key_len} bytes, and a value of {value_len}");
            return Err(format!("slot {slot} leads to {at}: {found}"));
        }
        live += size;
    }
    if p.level() > 0 && (n == 0 || Slot::get(p, 0).len_flags != 0) {
        return Err("the first child has a key, or there is none".into());
    }
    let garbage = p.u16(GARBAGE) as usize;
    if live + garbage != PAGE_SIZE - top {
        return Err(format!("{live} live and {garbage} garbage bytes, heap top {top}"));
    }
    Ok(())
}

/// Checks that the page is well formed.
///
/// # Errors
/// What is wrong, in words.
pub fn validate(p: &Page) -> Result<(), String> {
    check_bounds(p)?;
    let heads = Heads::of(p);
    let mut extents = vec![fence_at(p, LOWER), fence_at(p, UPPER)];
    let mut last: Option<Vec<u8>> = None;
    for slot in 0..count(p) {
        let s = Slot::get(p, slot);
        let at = s.offset as usize;
        extents.push(at..at + heap_size(p, slot));
        if heads.rank(suffix(p, slot)) != Rank::Head(s.head) {
            return Err(format!("slot {slot} has a wrong key head"));
        }
        if p.level() > 0 && slot == 0 {
            continue;
        }
        let key = key(p, slot);
        if !covers(p, &key) {
            return Err(format!("key of slot {slot} lies outside the fences"));
        }
        if last.as_ref().is_some_and(|l| *l >= key) {
            return Err(format!("key of slot {slot} isn't above the one before it"));
        }
        last = Some(key);
    }
    extents.retain(|e| !e.is_empty());
    extents.sort_by_key(|e| e.start);
    if let Some(pair) = extents.windows(2).find(|pair| pair[0].end > pair[1].start) {
        return Err(format!("heap bytes {:?} and {:?} overlap", pair[0], pair[1]));
    }
    Ok(())
}

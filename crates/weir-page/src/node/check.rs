//! Checking that a tree page is well formed.

use super::heads::Rank;
use super::*;
use crate::page::Kind;

/// Checks that the page is well formed.
///
/// # Errors
/// What is wrong, in words.
pub fn validate(p: &Page) -> Result<(), String> {
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
    let (lo, lo_len) = (p.u16(LOWER) as usize, p.u16(LOWER + 2) as usize);
    let (up, up_len) = (p.u16(UPPER) as usize, p.u16(UPPER + 2));
    let up_len_bytes = if up_len == NO_UPPER { 0 } else { up_len as usize };
    if !in_heap(lo, lo_len) || (up_len != NO_UPPER && !in_heap(up, up_len_bytes)) {
        return Err("a fence lies outside the heap".into());
    }
    if lo_len.max(up_len_bytes) > MAX_KEY {
        return Err(format!("a fence is longer than {MAX_KEY} bytes"));
    }
    let expected_prefix = upper(p).map_or(0, |u| common_prefix(lower(p), u));
    if p.u16(PREFIX) as usize != expected_prefix {
        return Err(format!("prefix length {} should be {expected_prefix}", p.u16(PREFIX)));
    }
    let heads = heads::validate(p)?;
    let mut live = lo_len + up_len_bytes;
    let mut extents = vec![lo..lo + lo_len, up..up + up_len_bytes];
    let mut last: Option<Vec<u8>> = None;
    for slot in 0..n {
        let s = Slot::get(p, slot);
        let at = s.offset as usize;
        if !in_heap(at, CHILD + s.key_len()) && !in_heap(at, 2 + s.key_len()) {
            return Err(format!("slot {slot} lies outside the heap"));
        }
        let size = heap_size(p, slot);
        if !in_heap(at, size) {
            return Err(format!("slot {slot} ends outside the heap"));
        }
        live += size;
        extents.push(at..at + size);
        if heads.rank(suffix(p, slot)) != Rank::Head(s.head) {
            return Err(format!("slot {slot} has a wrong key head"));
        }
        if p.level() > 0 && slot == 0 {
            if s.len_flags != 0 {
                return Err("the first child has a key".into());
            }
            continue;
        }
        let key = key(p, slot);
        if key.len() > MAX_KEY {
            return Err(format!("key of slot {slot} has {} bytes, more than {MAX_KEY}", key.len()));
        }
        let inline = if p.level() == 0 { key.len() + entry(p, slot).value.len() } else { 0 };
        if inline > MAX_INLINE {
            return Err(format!("slot {slot} has {inline} bytes, more than {MAX_INLINE}"));
        }
        if !covers(p, &key) {
            return Err(format!("key of slot {slot} lies outside the fences"));
        }
        if last.as_ref().is_some_and(|l| *l >= key) {
            return Err(format!("key of slot {slot} isn't above the one before it"));
        }
        last = Some(key);
    }
    let garbage = p.u16(GARBAGE) as usize;
    if live + garbage != PAGE_SIZE - top {
        return Err(format!("{live} live and {garbage} garbage bytes, heap top {top}"));
    }
    extents.retain(|e| !e.is_empty());
    extents.sort_by_key(|e| e.start);
    if let Some(pair) = extents.windows(2).find(|pair| pair[0].end > pair[1].start) {
        return Err(format!("heap bytes {:?} and {:?} overlap", pair[0], pair[1]));
    }
    Ok(())
}

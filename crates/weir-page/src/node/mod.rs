//! Tree pages: slots that grow up, a heap that grows down, fence keys and prefix truncation.
//!
//! | bytes | what |
//! |---|---|
//! | 34 u16 | number of slots |
//! | 36 u32 | tree id |
//! | 40 u16 | heap top: lowest byte in use by the heap |
//! | 42 u16 | garbage: heap bytes that no slot or fence uses |
//! | 44 u16, 46 u16 | lower fence: offset, length |
//! | 48 u16, 50 u16 | upper fence: offset, length; length 0xffff means no upper bound |
//! | 52 u16 | length of the prefix that all keys of the page share: that of both fences |
//! | 54 u16, 56 u16 | slot of the last insert; length of the ascending run it belongs to |
//! | 58 u8, 59 u8 | two gaps: bits 0..3 where past the prefix, bits 4..7 length, 0 for none |
//! | 60 u32 | the bytes in the gaps, as a big-endian number stored little-endian, zero padded |
//! | 64.. | slots of 8 bytes: u32 key head, u16 heap offset, u16 key length and flags |
//!
//! A key head is the first four bytes of the key past the prefix without the gaps (`heads`), zero
//! padded, as a big-endian number stored little-endian, so that most comparisons never leave the
//! slot array. Flags: bit 12 versioned, 13 deleted, 14 overflow, 15 hides; bits 0..12 the length of
//! the key past the prefix.
//!
//! Heap, leaf: u16 value length, 12 bytes of version if versioned, key suffix, value.
//! Heap, inner: u32 child, key suffix. Child `i` holds the keys in `[key i, key i + 1)`; the key of
//! slot 0 is empty and stands for the lower fence.
//!
//! A page holds keys in `[lower fence, upper fence)`. Head arrays, fences and hints follow Graefe,
//! "Modern B-Tree Techniques" (2011), and Leis et al., "LeanStore" (2018).

mod build;
mod check;
mod compact;
mod find;
mod heads;
mod sketch;
mod split;

pub use build::{Builder, copy_slots};
pub(crate) use check::check_bounds;
pub use check::validate;
pub use compact::{compact, freezable, freeze};
pub(crate) use find::{AROUND, evenly_spread};
pub use find::{Ties, prefetch_ties, search, settle, ties};
pub use sketch::Sketch;
pub use split::{
    Split, can_merge, can_truncate, common_prefix, differing, fit_together, is_sparse, merged,
    plan_fill, plan_inner_split, plan_leaf_split, separator, together, truncate,
};

use crate::page::{BODY, Page};
use crate::prefetch;
use crate::types::{PAGE_SIZE, PageId, TreeId, TxnId};
use crate::version::{Entry, Flags, Version};
use std::cmp::Ordering;
use std::ops::Range;

/// Longest key, in bytes: two of them as fences leave a page room for two entries of
/// [`MAX_INLINE`].
pub const MAX_KEY: usize = 3532;
/// Longest inline leaf entry: key and value together, in bytes. A longer value goes to overflow
/// pages.
pub const MAX_INLINE: usize = 3900;
/// Bytes of a slot.
pub const SLOT: usize = 8;

/// Bytes of a value's length, in front of a leaf's entry.
const VALUE_LEN: usize = 2;
/// Bytes of a child's number, in front of its key.
pub(crate) const CHILD: usize = 4;

pub(crate) const COUNT: usize = 34;
const TREE: usize = 36;
const HEAP_TOP: usize = 40;
const GARBAGE: usize = 42;
const LOWER: usize = 44;
const UPPER: usize = 48;
pub(crate) const PREFIX: usize = 52;
const LAST: usize = 54;
const RUN: usize = 56;
const GAPS: usize = 58;
const NO_UPPER: u16 = 0xffff;

/// A version begins with the writer's number, in 6 bytes.
const TXN_MASK: u64 = (1 << 48) - 1;
const LEN_MASK: u16 = 0x0fff;
const VERSIONED: u16 = 1 << 12;
const DELETED: u16 = 1 << 13;
const OVERFLOW: u16 = 1 << 14;
const HIDES: u16 = 1 << 15;

/// Number of slots.
#[inline]
pub fn count(p: &Page) -> usize {
    p.u16(COUNT) as usize
}

/// The tree that the page belongs to.
#[inline]
pub fn tree(p: &Page) -> TreeId {
    TreeId(p.u32(TREE))
}

/// Length of the ascending run that the last insert belongs to.
pub fn run(p: &Page) -> usize {
    p.u16(RUN) as usize
}

/// Lowest key that the page may hold.
pub fn lower(p: &Page) -> &[u8] {
    let (at, len) = (p.u16(LOWER) as usize, p.u16(LOWER + 2) as usize);
    &p.0[at..at + len]
}

/// First key that the page may not hold; `None` at the right edge of the tree.
pub fn upper(p: &Page) -> Option<&[u8]> {
    let (at, len) = (p.u16(UPPER) as usize, p.u16(UPPER + 2));
    (len != NO_UPPER).then(|| &p.0[at..at + len as usize])
}

/// What all keys of the page begin with.
pub fn prefix(p: &Page) -> &[u8] {
    let at = p.u16(LOWER) as usize;
    &p.0[at..at + p.u16(PREFIX) as usize]
}

/// Whether `key` belongs on this page.
pub fn covers(p: &Page, key: &[u8]) -> bool {
    lower(p) <= key && upper(p).is_none_or(|u| key < u)
}

/// First four bytes of `suffix` as an ordered number.
#[inline]
pub fn head(suffix: &[u8]) -> u32 {
    match suffix.first_chunk::<4>() {
        Some(b) => u32::from_be_bytes(*b),
        None => {
            let mut b = [0; 4];
            b[..suffix.len()].copy_from_slice(suffix);
            u32::from_be_bytes(b)
        }
    }
}

/// A slot as it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) head: u32,
    pub(crate) offset: u16,
    len_flags: u16,
}

impl Slot {
    #[inline]
    fn get(p: &Page, slot: usize) -> Slot {
        Slot::from_word(p.u64(BODY + SLOT * slot))
    }

    #[inline]
    pub(crate) fn from_word(word: u64) -> Slot {
        Slot { head: word as u32, offset: (word >> 32) as u16, len_flags: (word >> 48) as u16 }
    }

    #[inline]
    fn set(self, p: &mut Page, slot: usize) {
        let word =
            u64::from(self.head) | u64::from(self.offset) << 32 | u64::from(self.len_flags) << 48;
        p.set_u64(BODY + SLOT * slot, word);
    }

    #[inline]
    pub(crate) fn key_len(self) -> usize {
        (self.len_flags & LEN_MASK) as usize
    }

    #[inline]
    fn flags(self) -> Flags {
        Flags {
            deleted: self.len_flags & DELETED != 0,
            overflow: self.len_flags & OVERFLOW != 0,
            hides: self.len_flags & HIDES != 0,
        }
    }

    #[inline]
    fn versioned(self) -> bool {
        self.len_flags & VERSIONED != 0
    }

    /// Offset of the key suffix in a leaf's heap.
    #[inline]
    fn leaf_key_at(self) -> usize {
        leaf_key_at(self.offset as usize, self.versioned())
    }
}

fn len_flags(key_len: usize, flags: Flags, versioned: bool) -> u16 {
    key_len as u16
        | if versioned { VERSIONED } else { 0 }
        | if flags.deleted { DELETED } else { 0 }
        | if flags.overflow { OVERFLOW } else { 0 }
        | if flags.hides { HIDES } else { 0 }
}

/// The hole between slots and heap.
pub fn hole(p: &Page) -> Range<usize> {
    BODY + SLOT * count(p)..p.u16(HEAP_TOP) as usize
}

/// Bytes that inserts can use, after compaction if need be.
#[inline]
pub fn free_bytes(p: &Page) -> usize {
    hole(p).len() + p.u16(GARBAGE) as usize
}

/// Key of a slot without the page's prefix.
#[inline]
pub fn suffix(p: &Page, slot: usize) -> &[u8] {
    &p.0[suffix_at(p, Slot::get(p, slot))]
}

/// Where the key suffix of a slot lies.
#[inline]
fn suffix_at(p: &Page, s: Slot) -> Range<usize> {
    let at = if p.level() == 0 { s.leaf_key_at() } else { s.offset as usize + CHILD };
    at..at + s.key_len()
}

/// Whole key of a slot.
pub fn key(p: &Page, slot: usize) -> Vec<u8> {
    let mut out = prefix(p).to_vec();
    out.extend_from_slice(suffix(p, slot));
    out
}

/// Tells the CPU that the byte at `at` is about to be read.
#[inline(always)]
fn prefetch_byte(p: &Page, at: usize) {
    prefetch(p.0.as_ptr().wrapping_add(at.min(PAGE_SIZE - 1)));
}

/// State of a leaf entry.
#[inline]
pub fn entry(p: &Page, slot: usize) -> Entry<'_> {
    let s = Slot::get(p, slot);
    let at = s.offset as usize;
    let value_at = s.leaf_key_at() + s.key_len();
    let version = s.versioned().then(|| {
        let version = &p.0[at + VALUE_LEN..at + VALUE_LEN + Version::SIZE];
        Version::from_bytes(version.try_into().expect("12 bytes"))
    });
    Entry { flags: s.flags(), version, value: &p.0[value_at..value_at + p.u16(at) as usize] }
}

/// A leaf entry as it lies in the heap, key and value together.
#[derive(Debug, Clone, Copy)]
pub struct Cell<'a> {
    /// Dead, overflowing, hiding another.
    pub flags: Flags,
    /// Who wrote it, unless everybody sees it.
    pub writer: Option<TxnId>,
    /// Length of the key without the page's prefix.
    pub key_len: usize,
    /// The key without the page's prefix, and the value.
    pub bytes: &'a [u8],
}

/// The entry of a slot as it lies in the heap.
#[inline]
pub fn cell(p: &Page, slot: usize) -> Cell<'_> {
    let s = Slot::get(p, slot);
    let at = s.offset as usize;
    let (key_at, key_len) = (s.leaf_key_at(), s.key_len());
    let writer = s.versioned().then(|| writer(p, s));
    let bytes = &p.0[key_at..key_at + key_len + p.u16(at) as usize];
    Cell { flags: s.flags(), writer, key_len, bytes }
}

/// Who wrote a leaf's entry, which is versioned.
#[inline]
fn writer(p: &Page, s: Slot) -> TxnId {
    TxnId(p.u64(s.offset as usize + VALUE_LEN) & TXN_MASK)
}

/// Tells the CPU that [`cell`] will be asked for a slot, if there is that slot.
#[inline]
pub fn prefetch_cell(p: &Page, slot: usize) {
    if slot < count(p) {
        prefetch_byte(p, Slot::get(p, slot).offset as usize);
    }
}

/// Number of a leaf's entries in these slots that are not dead. Where entries hide others, a
/// tombstone counts as one less, and one that is alive as none: so it is of this leaf and what is
/// hidden together.
pub fn alive(p: &Page, slots: Range<usize>) -> isize {
    let n = count(p);
    assert!(slots.start <= slots.end && slots.end <= n, "slots {slots:?} of {n}");
    let (words, _) = p.0[BODY + SLOT * slots.start..BODY + SLOT * slots.end].as_chunks::<SLOT>();
    let flags = |word: &[u8; SLOT]| (u64::from_le_bytes(*word) >> 48) as u16 & (DELETED | HIDES);
    words.len() as isize - words.iter().map(|word| flags(word).count_ones() as isize).sum::<isize>()
}

/// Heap bytes of a leaf entry.
#[inline]
pub fn leaf_size(key_len: usize, value_len: usize, versioned: bool) -> usize {
    leaf_key_at(0, versioned) + key_len + value_len
}

fn heap_size(p: &Page, slot: usize) -> usize {
    in_heap(p, Slot::get(p, slot)).len()
}

/// Where in the heap a slot's bytes are.
#[inline]
fn in_heap(p: &Page, s: Slot) -> Range<usize> {
    let at = s.offset as usize;
    let len = match p.level() {
        0 => leaf_size(s.key_len(), p.u16(at) as usize, s.versioned()),
        _ => CHILD + s.key_len(),
    };
    at..at + len
}

/// What one more entry takes of [`free_bytes`], with its key covered by the leaf.
#[inline]
pub fn insert_size(p: &Page, key_len: usize, value_len: usize, versioned: bool) -> usize {
    leaf_size(key_len - p.u16(PREFIX) as usize, value_len, versioned) + SLOT
}

/// Whether a leaf has room for one more entry, with `key` covered by it.
#[inline]
pub fn fits_insert(p: &Page, key_len: usize, value_len: usize, versioned: bool) -> bool {
    insert_size(p, key_len, value_len, versioned) <= free_bytes(p)
}

/// Whether a leaf has room for `value_len` (versioned or not) in place of a slot's present state.
pub fn fits_replace(p: &Page, slot: usize, value_len: usize, versioned: bool) -> bool {
    let len = Slot::get(p, slot).key_len();
    leaf_size(len, value_len, versioned) <= free_bytes(p) + heap_size(p, slot)
}

/// Takes `bytes` from the heap, compacting it first if they aren't contiguous.
fn take_heap(p: &mut Page, bytes: usize, slots: usize) -> usize {
    if (p.u16(HEAP_TOP) as usize) < BODY + SLOT * slots + bytes {
        compact(p);
    }
    let top = p.u16(HEAP_TOP) as usize;
    assert!(top >= BODY + SLOT * slots + bytes, "room is checked before a page changes");
    p.set_u16(HEAP_TOP, (top - bytes) as u16);
    top - bytes
}

/// Offset of the key suffix of a leaf entry at `at`.
#[inline]
fn leaf_key_at(at: usize, versioned: bool) -> usize {
    at + VALUE_LEN + if versioned { Version::SIZE } else { 0 }
}

/// Writes a leaf entry's heap bytes but for the key suffix.
#[inline]
fn write_state(p: &mut Page, at: usize, key_len: usize, e: &Entry<'_>) {
    p.set_u16(at, e.value.len() as u16);
    if let Some(v) = e.version {
        p.0[at + VALUE_LEN..at + VALUE_LEN + Version::SIZE].copy_from_slice(&v.to_bytes());
    }
    let value_at = leaf_key_at(at, e.version.is_some()) + key_len;
    p.0[value_at..value_at + e.value.len()].copy_from_slice(e.value);
}

fn open_slot(p: &mut Page, slot: usize) {
    let n = count(p);
    p.0.copy_within(BODY + SLOT * slot..BODY + SLOT * n, BODY + SLOT * (slot + 1));
    p.set_u16(COUNT, (n + 1) as u16);
    let follows = slot > 0 && p.u16(LAST) as usize + 1 == slot;
    let run = if follows { p.u16(RUN).saturating_add(1) } else { 0 };
    p.set_u16(RUN, run);
    p.set_u16(LAST, slot as u16);
}

/// Inserts a leaf entry at `slot`, the place that [`search`] gave for `key`.
///
/// # Panics
/// If there is no room ([`fits_insert`]).
pub fn insert(p: &mut Page, slot: usize, key: &[u8], e: &Entry<'_>) {
    let suffix = &key[p.u16(PREFIX) as usize..];
    let versioned = e.version.is_some();
    let size = leaf_size(suffix.len(), e.value.len(), versioned);
    let n = count(p);
    assert!(slot <= n, "slot {slot} of {n}");
    let head = heads::admit(p, suffix);
    let at = take_heap(p, size, n + 1);
    let key_at = leaf_key_at(at, versioned);
    p.0[key_at..key_at + suffix.len()].copy_from_slice(suffix);
    write_state(p, at, suffix.len(), e);
    open_slot(p, slot);
    let len_flags = len_flags(suffix.len(), e.flags, versioned);
    Slot { head, offset: at as u16, len_flags }.set(p, slot);
}

/// Gives a leaf entry a new state.
///
/// # Panics
/// If there is no room ([`fits_replace`]).
pub fn replace(p: &mut Page, slot: usize, e: &Entry<'_>) {
    let s = Slot::get(p, slot);
    let (old_size, key_len) = (heap_size(p, slot), s.key_len());
    let versioned = e.version.is_some();
    let size = leaf_size(key_len, e.value.len(), versioned);
    let at = if size <= old_size {
        s.offset as usize + old_size - size
    } else if size <= hole(p).len() {
        p.u16(HEAP_TOP) as usize - size
    } else {
        return replace_compacting(p, slot, e);
    };
    if size > old_size {
        p.set_u16(HEAP_TOP, at as u16);
        add_garbage(p, old_size);
    } else {
        add_garbage(p, old_size - size);
    }
    let key_at = s.leaf_key_at();
    p.0.copy_within(key_at..key_at + key_len, leaf_key_at(at, versioned));
    write_state(p, at, key_len, e);
    let len_flags = len_flags(key_len, e.flags, versioned);
    Slot { head: s.head, offset: at as u16, len_flags }.set(p, slot);
}

/// [`replace`] where the new state finds room only once the old one is gone.
#[cold]
fn replace_compacting(p: &mut Page, slot: usize, e: &Entry<'_>) {
    let s = Slot::get(p, slot);
    let suffix = suffix(p, slot).to_vec();
    let versioned = e.version.is_some();
    add_garbage(p, heap_size(p, slot));
    // Compaction keeps what a slot refers to: for its time there is none.
    let n = count(p);
    p.0.copy_within(BODY + SLOT * (slot + 1)..BODY + SLOT * n, BODY + SLOT * slot);
    p.set_u16(COUNT, (n - 1) as u16);
    let at = take_heap(p, leaf_size(suffix.len(), e.value.len(), versioned), n);
    p.0.copy_within(BODY + SLOT * slot..BODY + SLOT * (n - 1), BODY + SLOT * (slot + 1));
    p.set_u16(COUNT, n as u16);
    let key_at = leaf_key_at(at, versioned);
    p.0[key_at..key_at + suffix.len()].copy_from_slice(&suffix);
    write_state(p, at, suffix.len(), e);
    let len_flags = len_flags(suffix.len(), e.flags, versioned);
    Slot { head: s.head, offset: at as u16, len_flags }.set(p, slot);
}

/// Removes a slot. On an inner page, the child behind the first slot takes over its range.
pub fn remove(p: &mut Page, slot: usize) {
    let n = count(p);
    assert!(slot < n, "slot {slot} of {n}");
    add_garbage(p, heap_size(p, slot));
    p.0.copy_within(BODY + SLOT * (slot + 1)..BODY + SLOT * n, BODY + SLOT * slot);
    p.set_u16(COUNT, (n - 1) as u16);
    p.set_u16(RUN, 0);
    if p.level() > 0 && slot == 0 && n > 1 {
        let first = Slot::get(p, 0);
        add_garbage(p, first.key_len());
        Slot { head: 0, len_flags: 0, ..first }.set(p, 0);
    }
}

/// Removes neighbouring slots of a leaf.
pub fn remove_run(p: &mut Page, slot: usize, run: usize) {
    let n = count(p);
    assert!(p.level() == 0 && slot + run <= n, "slots {slot} to {} of {n}", slot + run);
    let bytes = (slot..slot + run).map(|slot| heap_size(p, slot)).sum();
    add_garbage(p, bytes);
    p.0.copy_within(BODY + SLOT * (slot + run)..BODY + SLOT * n, BODY + SLOT * slot);
    p.set_u16(COUNT, (n - run) as u16);
    p.set_u16(RUN, 0);
}

fn add_garbage(p: &mut Page, bytes: usize) {
    p.set_u16(GARBAGE, p.u16(GARBAGE) + bytes as u16);
}

/// Child of a slot of an inner page.
pub fn child(p: &Page, slot: usize) -> PageId {
    PageId(p.u32(Slot::get(p, slot).offset as usize))
}

/// Slot of the child that covers `key`.
pub fn child_slot(p: &Page, key: &[u8]) -> usize {
    let (slot, exact) = search(p, key);
    if exact { slot } else { slot.saturating_sub(1) }
}

/// Whether an inner page has room for one more child.
pub fn fits_child(p: &Page, key_len: usize) -> bool {
    CHILD + key_len - p.u16(PREFIX) as usize + SLOT <= free_bytes(p)
}

/// Inserts a child at `slot`, at least 1.
///
/// # Panics
/// If there is no room ([`fits_child`]).
pub fn insert_child(p: &mut Page, slot: usize, key: &[u8], child: PageId) {
    let suffix = &key[p.u16(PREFIX) as usize..];
    put_child(p, slot, suffix, child);
}

fn put_child(p: &mut Page, slot: usize, suffix: &[u8], child: PageId) {
    let n = count(p);
    assert!(slot <= n, "slot {slot} of {n}");
    let at = take_heap(p, CHILD + suffix.len(), n + 1);
    p.set_u32(at, child.0);
    p.0[at + CHILD..at + CHILD + suffix.len()].copy_from_slice(suffix);
    open_slot(p, slot);
    let len_flags = suffix.len() as u16;
    Slot { head: head(suffix), offset: at as u16, len_flags }.set(p, slot);
}

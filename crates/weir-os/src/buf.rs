//! Owned buffers aligned for direct I/O.

use crate::BLOCK;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

/// A byte buffer of fixed capacity, aligned to [`BLOCK`], zeroed when made.
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    len: usize,
    capacity: usize,
}

impl AlignedBuf {
    /// A zeroed buffer of `len` bytes (capacity rounded up to a multiple of [`BLOCK`], at least
    /// one).
    pub fn zeroed(len: usize) -> Self {
        let capacity = len.max(1).next_multiple_of(BLOCK);
        let layout = Self::layout(capacity);
        // SAFETY: the layout's size is at least BLOCK, hence not zero.
        let raw = unsafe { alloc_zeroed(layout) };
        let ptr = NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuf { ptr, len, capacity }
    }

    /// A buffer holding a copy of `bytes`, its capacity past them zeroed.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }

    /// Sets the visible length; bytes keep their values.
    ///
    /// # Panics
    /// If `len` is above the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} above capacity {}", self.capacity);
        self.len = len;
    }

    /// Bytes that the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    fn layout(capacity: usize) -> Layout {
        Layout::from_size_align(capacity, BLOCK).expect("a buffer's layout is valid")
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this same layout, freed once.
        unsafe { dealloc(self.ptr.as_ptr(), Self::layout(self.capacity)) }
    }
}

// SAFETY: the buffer owns its memory; shared references only read it.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuf {}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len <= capacity` bytes are allocated and initialised (zeroed when made).
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is exclusive.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

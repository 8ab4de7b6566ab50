//! Large memory straight from the kernel: the buffer pool's frames.

use crate::{DiskError, Result};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::io;
use std::ops::Range;
use std::ptr::{self, NonNull};

/// Alignment of a region: the huge page.
pub const REGION_ALIGN: usize = 2 << 20;

/// A multiple of the kernel's pages, whatever the machine.
const SMALL_PAGE: usize = 64 << 10;

/// Zeroed memory in huge pages where the kernel has them; unmapped when dropped.
///
/// The region hands out a pointer and no reference: who shares what of it is up to its user.
#[derive(Debug)]
pub struct Region {
    /// First byte for the user, aligned to [`REGION_ALIGN`].
    start: NonNull<u8>,
    len: usize,
    mapped: NonNull<u8>,
    mapped_len: usize,
}

impl Region {
    /// Maps `bytes` of zeroed memory aligned to [`REGION_ALIGN`]. Pages are taken from the machine
    /// as they are first touched, not here.
    ///
    /// # Errors
    /// `OutOfMemory` when the kernel refuses.
    ///
    /// ```
    /// let region = weir_os::Region::map(1 << 20)?;
    /// // SAFETY: inside the region, and no other reference to it exists.
    /// assert_eq!(unsafe { *region.as_ptr() }, 0);
    /// # Ok::<(), weir_os::DiskError>(())
    /// ```
    pub fn map(bytes: usize) -> Result<Self> {
        let fail = |error| DiskError::new("map", &format!("{bytes} bytes of memory"), error);
        let mapped_len = bytes
            .max(1)
            .checked_next_multiple_of(REGION_ALIGN)
            .and_then(|len| len.checked_add(REGION_ALIGN))
            .ok_or_else(|| fail(io::ErrorKind::OutOfMemory.into()))?;
        let (access, kind) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let raw = unsafe { mmap_anonymous(ptr::null_mut(), mapped_len, access, kind) }
            .map_err(|errno| fail(errno.into()))?;
        let mapped = NonNull::new(raw.cast::<u8>()).expect("the kernel maps nothing at zero");
        let skip = mapped.as_ptr().align_offset(REGION_ALIGN);
        assert!(skip <= REGION_ALIGN, "one huge page of slack is enough to align");
        // SAFETY: `skip` bytes on is still inside the mapping, which is longer than that.
        let start = unsafe { mapped.add(skip) };
        // Only an advice: a kernel without huge pages refuses it, and small pages do.
        // SAFETY: the range is inside the mapping; the advice changes no content.
        let _ = unsafe {
            madvise(start.as_ptr().cast(), mapped_len - REGION_ALIGN, Advice::LinuxHugepage)
        };
        Ok(Region { start, len: bytes, mapped, mapped_len })
    }

    /// The first byte. The region is readable and writable from here for [`Region::len`] bytes,
    /// until it is dropped.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Takes memory from the machine for `bytes` of the region now, so that nobody waits for it
    /// when they are first touched. What they hold stays. Only an advice: before Linux 5.14 nothing
    /// happens.
    ///
    /// # Panics
    /// When `bytes` are not inside the region.
    pub fn populate(&self, bytes: Range<usize>) {
        assert!(bytes.end <= self.len, "{bytes:?} of {} bytes", self.len);
        let start = bytes.start & !(SMALL_PAGE - 1);
        if bytes.is_empty() {
            return;
        }
        // SAFETY: the range is inside the mapping, which begins at a page; the advice changes no
        // content.
        let _ = unsafe {
            let first = self.start.as_ptr().add(start);
            madvise(first.cast(), bytes.end - start, Advice::LinuxPopulateWrite)
        };
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; whoever holds the pointer knows that it ends
        // with the region.
        let unmapped = unsafe { munmap(self.mapped.as_ptr().cast(), self.mapped_len) };
        debug_assert!(unmapped.is_ok(), "a whole mapping can be unmapped");
    }
}

// SAFETY: the region owns its mapping, which belongs to no thread; access goes through raw
// pointers.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out nothing but the pointer and the length.
unsafe impl Sync for Region {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_zeroed_aligned_and_writable_to_its_end() {
        for bytes in [1, 4096, REGION_ALIGN, REGION_ALIGN + 1, 5 << 20] {
            let region = Region::map(bytes).unwrap();
            assert_eq!((region.len(), region.is_empty()), (bytes, false));
            assert!(region.as_ptr().addr().is_multiple_of(REGION_ALIGN));
            // SAFETY: the region has `bytes` bytes and only this reference.
            let slice = unsafe { std::slice::from_raw_parts_mut(region.as_ptr(), bytes) };
            assert!(slice.iter().all(|byte| *byte == 0));
            slice.fill(7);
            region.populate(bytes / 2..bytes);
            assert!(slice.iter().all(|byte| *byte == 7));
        }
    }

    #[test]
    fn absurd_sizes_are_refused() {
        for bytes in [usize::MAX, usize::MAX / 2] {
            assert_eq!(Region::map(bytes).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        }
    }
}

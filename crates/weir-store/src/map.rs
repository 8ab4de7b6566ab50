//! The page map in memory: page id to frame and extent, two dependent loads away.
//!
//! A directory of lazily allocated chunks, each of 64 Ki slots of 16 bytes. Reading takes no lock.
//! `frame` belongs to the buffer pool, `tag` to its recovery; the extent is changed only by this
//! crate, under the lock of the block table, so that a map block is always written as it was at one
//! LSN.

use crate::extent::{Entry, Extent};
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use weir_page::PageId;

const CHUNK_BITS: u32 = 16;
const CHUNK_SLOTS: usize = 1 << CHUNK_BITS;
const CHUNKS: usize = 1 << (32 - CHUNK_BITS);

/// What the map knows of one page.
#[repr(C, align(16))]
pub struct MapSlot {
    /// The buffer pool's frame that holds the page; `u32::MAX` for none. What else it may say is
    /// the pool's.
    pub frame: AtomicU32,
    /// While a database is recovered: what recovery knows of the page.
    pub tag: AtomicU32,
    extent: AtomicU64,
}

impl MapSlot {
    /// Where the page is stored, if it is.
    pub fn extent(&self) -> Option<Extent> {
        self.entry().extent()
    }

    pub(crate) fn entry(&self) -> Entry {
        Entry(self.extent.load(Ordering::Acquire))
    }

    pub(crate) fn replace(&self, entry: Entry) -> Entry {
        Entry(self.extent.swap(entry.0, Ordering::AcqRel))
    }
}

const _: () = assert!(size_of::<MapSlot>() == 16);

type Chunk = [MapSlot; CHUNK_SLOTS];

/// The array of all slots.
pub struct PageMap {
    chunks: Box<[AtomicPtr<Chunk>; CHUNKS]>,
}

impl PageMap {
    pub(crate) fn new() -> Self {
        let chunks: Box<[_]> = (0..CHUNKS).map(|_| AtomicPtr::new(ptr::null_mut())).collect();
        PageMap { chunks: chunks.try_into().expect("as many as were made") }
    }

    /// The slot of a page; its chunk is allocated on first use.
    #[inline]
    pub fn slot(&self, page: PageId) -> &MapSlot {
        let chunk = self.chunks[(page.0 >> CHUNK_BITS) as usize].load(Ordering::Acquire);
        // SAFETY: a chunk pointer is null or points to a chunk that lives as long as the map.
        let chunk = match unsafe { chunk.as_ref() } {
            Some(chunk) => chunk,
            None => self.add_chunk(page.0 >> CHUNK_BITS),
        };
        &chunk[page.0 as usize & (CHUNK_SLOTS - 1)]
    }

    /// The entry of a page, without allocating anything.
    pub(crate) fn entry(&self, page: PageId) -> Entry {
        let chunk = self.chunks[(page.0 >> CHUNK_BITS) as usize].load(Ordering::Acquire);
        // SAFETY: as in `slot`.
        match unsafe { chunk.as_ref() } {
            Some(chunk) => chunk[page.0 as usize & (CHUNK_SLOTS - 1)].entry(),
            None => Entry::NONE,
        }
    }

    /// Every stored page with its entry, in order of page ids.
    pub(crate) fn stored(&self) -> impl Iterator<Item = (PageId, Entry)> {
        let loaded = self.chunks.iter().enumerate().filter_map(|(number, chunk)| {
            // SAFETY: as in `slot`.
            unsafe { chunk.load(Ordering::Acquire).as_ref() }.map(|chunk| (number, chunk))
        });
        loaded.flat_map(|(number, chunk)| {
            chunk.iter().enumerate().filter_map(move |(index, slot)| {
                let entry = slot.entry();
                let page = PageId((number << CHUNK_BITS | index) as u32);
                (entry != Entry::NONE).then_some((page, entry))
            })
        })
    }

    #[cold]
    #[inline(never)]
    fn add_chunk(&self, number: u32) -> &Chunk {
        let slots: Box<[MapSlot]> = (0..CHUNK_SLOTS)
            .map(|_| MapSlot {
                frame: AtomicU32::new(u32::MAX),
                tag: AtomicU32::new(0),
                extent: AtomicU64::new(0),
            })
            .collect();
        let fresh = Box::into_raw(slots).cast::<Chunk>();
        let place = &self.chunks[number as usize];
        let winner = match place.compare_exchange(
            ptr::null_mut(),
            fresh,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => fresh,
            Err(other) => {
                // SAFETY: `fresh` came from a box of this size above and was not published.
                drop(unsafe { Box::from_raw(fresh) });
                other
            }
        };
        // SAFETY: not null, and chunks live as long as the map.
        unsafe { &*winner }
    }
}

impl Drop for PageMap {
    fn drop(&mut self) {
        for chunk in self.chunks.iter_mut() {
            let chunk = *chunk.get_mut();
            if !chunk.is_null() {
                // SAFETY: made by `add_chunk` from a box, owned by the map alone.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_found_from_many_threads() {
        let map = PageMap::new();
        std::thread::scope(|scope| {
            for t in 0..4u32 {
                let map = &map;
                scope.spawn(move || {
                    for page in [1, 0xFFFF, 0x1_0000, u32::MAX] {
                        map.slot(PageId(page)).tag.fetch_add(t + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        for page in [1, 0xFFFF, 0x1_0000, u32::MAX] {
            let slot = map.slot(PageId(page));
            assert_eq!(slot.tag.load(Ordering::Relaxed), 10);
            assert_eq!(slot.frame.load(Ordering::Relaxed), u32::MAX);
            assert_eq!(slot.extent(), None);
        }
        assert_eq!(map.entry(PageId(0x20_0000)), Entry::NONE);
        assert_eq!(map.stored().count(), 0);
    }
}

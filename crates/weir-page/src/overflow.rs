//! Overflow pages: a chain that holds one value too long for a leaf.
//!
//! | bytes | what |
//! |---|---|
//! | 34 u16 | bytes of the value held here |
//! | 40 u32 | next page of the chain, 0 at its end |
//! | 64.. | bytes of the value |
//!
//! A leaf entry with the overflow flag has, as its value, a [`Reference`]: u32 LE first page, u64
//! LE length.

use crate::page::{BODY, Kind, Page};
use crate::types::{PAGE_SIZE, PageId};

/// Most bytes of a value that one page holds.
pub const CAPACITY: usize = PAGE_SIZE - BODY;

/// What a leaf keeps in place of an overflowing value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference {
    /// First page of the chain.
    pub first: PageId,
    /// Length of the value in bytes.
    pub len: u64,
}

impl Reference {
    /// Stored size in bytes.
    pub const SIZE: usize = 12;

    /// Number of pages of the chain.
    pub fn pages(self) -> u64 {
        self.len.div_ceil(CAPACITY as u64)
    }

    /// Stored form.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..4].copy_from_slice(&self.first.0.to_le_bytes());
        out[4..].copy_from_slice(&self.len.to_le_bytes());
        out
    }

    /// The inverse of [`Reference::to_bytes`]; `None` if `bytes` has another length.
    pub fn from_bytes(bytes: &[u8]) -> Option<Reference> {
        let (first, len) = bytes.split_at_checked(4)?;
        Some(Reference {
            first: PageId(u32::from_le_bytes(first.try_into().ok()?)),
            len: u64::from_le_bytes(len.try_into().ok()?),
        })
    }
}

/// Makes a page one link of a chain.
pub fn init(p: &mut Page, id: PageId, next: PageId, data: &[u8]) {
    p.reset(id, Kind::Overflow, 0);
    p.set_u16(34, data.len() as u16);
    p.set_u32(40, next.0);
    p.0[BODY..BODY + data.len()].copy_from_slice(data);
}

/// End of the bytes held here.
pub fn end(p: &Page) -> usize {
    (BODY + p.u16(34) as usize).min(PAGE_SIZE)
}

/// The bytes held here.
pub fn data(p: &Page) -> &[u8] {
    &p.0[BODY..end(p)]
}

/// The next page of the chain.
pub fn next(p: &Page) -> PageId {
    PageId(p.u32(40))
}

/// Sets the next page of the chain.
pub fn set_next(p: &mut Page, next: PageId) {
    p.set_u32(40, next.0);
}

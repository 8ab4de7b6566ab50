//! The page in memory and the header that all kinds share.
//!
//! | bytes | what | owner |
//! |---|---|---|
//! | 0..4 | image format and compression | store, when written |
//! | 4..8 | page id, u32 LE | set when the page is initialised |
//! | 8..16 | page LSN, u64 LE: start of the group that changed it last | stamped by the mini-transaction |
//! | 16..32 | stored length, hole, checksum, database | store, when written |
//! | 32 | kind | this crate |
//! | 33 | level: 0 for leaves and for pages outside trees | this crate |
//! | 34..64 | fields of the kind | `node`, `undo`, `overflow`, `lanes` |
//! | 64.. | body | as above |

use crate::types::{Lsn, PAGE_SIZE, PageId};

/// Bytes at the start of a page that the store owns on disk.
pub const STORE_HEADER: usize = 32;
/// First byte of a page's body.
pub const BODY: usize = 64;

/// What a page is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Never initialised.
    Blank = 0,
    /// Leaf of a tree.
    Leaf = 1,
    /// Inner page of a tree.
    Inner = 2,
    /// Undo records of one lane.
    Undo = 3,
    /// Part of a value that did not fit its leaf.
    Overflow = 4,
    /// The directory of undo lanes.
    Lanes = 5,
}

impl Kind {
    /// The kind with that number.
    pub fn from_u8(n: u8) -> Option<Kind> {
        Some(match n {
            0 => Kind::Blank,
            1 => Kind::Leaf,
            2 => Kind::Inner,
            3 => Kind::Undo,
            4 => Kind::Overflow,
            5 => Kind::Lanes,
            _ => return None,
        })
    }
}

/// One page image in memory.
#[repr(C, align(4096))]
pub struct Page(pub [u8; PAGE_SIZE]);

impl Page {
    /// A zeroed page on the heap.
    pub fn boxed() -> Box<Page> {
        Box::new(Page([0; PAGE_SIZE]))
    }

    /// The u16 at `at`.
    #[inline]
    pub fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.0[at], self.0[at + 1]])
    }

    /// The u32 at `at`.
    #[inline]
    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    /// The u64 at `at`.
    #[inline]
    pub fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Stores a u16 at `at`.
    #[inline]
    pub fn set_u16(&mut self, at: usize, v: u16) {
        self.0[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }

    /// Stores a u32 at `at`.
    #[inline]
    pub fn set_u32(&mut self, at: usize, v: u32) {
        self.0[at..at + 4].copy_from_slice(&v.to_le_bytes());
    }

    /// Stores a u64 at `at`.
    #[inline]
    pub fn set_u64(&mut self, at: usize, v: u64) {
        self.0[at..at + 8].copy_from_slice(&v.to_le_bytes());
    }

    /// The page's number.
    #[inline]
    pub fn id(&self) -> PageId {
        PageId(self.u32(4))
    }

    /// Start of the group that changed the page last.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.u64(8))
    }

    /// Stamps the page LSN.
    #[inline]
    pub fn set_lsn(&mut self, lsn: Lsn) {
        self.set_u64(8, lsn.0);
    }

    /// What the page is for; `Blank` for numbers that are none of ours.
    #[inline]
    pub fn kind(&self) -> Kind {
        Kind::from_u8(self.0[32]).unwrap_or(Kind::Blank)
    }

    /// Distance from the leaves.
    #[inline]
    pub fn level(&self) -> u8 {
        self.0[33]
    }

    /// Checks that all that the page refers to lies in it, so that it can be read and changed. A
    /// few steps for each entry of a tree's page.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check_bounds(&self) -> Result<(), String> {
        match Kind::from_u8(self.0[32]) {
            Some(Kind::Leaf | Kind::Inner) => crate::node::check_bounds(self),
            Some(_) => Ok(()),
            None => Err(format!("kind {}", self.0[32])),
        }
    }

    /// Zeroes everything but the LSN and names the page.
    pub fn reset(&mut self, id: PageId, kind: Kind, level: u8) {
        let lsn = self.lsn();
        self.0.fill(0);
        self.set_u32(4, id.0);
        self.set_lsn(lsn);
        self.0[32] = kind as u8;
        self.0[33] = level;
    }

    /// The bytes between the two used parts of the body, which hold nothing; none if the page is
    /// malformed.
    pub fn hole(&self) -> std::ops::Range<usize> {
        let hole = match self.kind() {
            Kind::Leaf | Kind::Inner => crate::node::hole(self),
            Kind::Undo => crate::undo::used(self)..PAGE_SIZE,
            Kind::Overflow => crate::overflow::end(self)..PAGE_SIZE,
            Kind::Lanes => PAGE_SIZE..PAGE_SIZE,
            Kind::Blank => BODY..PAGE_SIZE,
        };
        let is_sound = hole.start <= hole.end && hole.end <= PAGE_SIZE;
        if is_sound { hole } else { PAGE_SIZE..PAGE_SIZE }
    }

    /// Appends the page's bytes past the store's header, without the hole; returns where the hole
    /// begins.
    pub fn append_used(&self, out: &mut Vec<u8>) -> usize {
        let hole = self.hole();
        out.extend_from_slice(&self.0[STORE_HEADER..hole.start]);
        out.extend_from_slice(&self.0[hole.end..]);
        hole.start
    }

    /// The same behind the hole's beginning, u16.
    pub fn append_body(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.hole().start as u16).to_le_bytes());
        self.append_used(out);
    }

    /// Sets the page to what [`Page::append_body`] gave.
    ///
    /// # Panics
    /// If `body` isn't of that form; [`body_is_valid`] says so beforehand.
    pub fn set_body(&mut self, id: PageId, body: &[u8]) {
        assert!(body_is_valid(body), "a page body's lengths must agree");
        let start = u16::from_le_bytes([body[0], body[1]]) as usize;
        let front = start - STORE_HEADER;
        let back = body.len() - 2 - front;
        let lsn = self.lsn();
        self.0[..STORE_HEADER].fill(0);
        self.set_u32(4, id.0);
        self.set_lsn(lsn);
        self.0[STORE_HEADER..start].copy_from_slice(&body[2..2 + front]);
        self.0[start..PAGE_SIZE - back].fill(0);
        self.0[PAGE_SIZE - back..].copy_from_slice(&body[2 + front..]);
    }
}

/// Whether `body` has the form that [`Page::append_body`] gives.
pub fn body_is_valid(body: &[u8]) -> bool {
    if body.len() < 2 {
        return false;
    }
    let start = u16::from_le_bytes([body[0], body[1]]) as usize;
    (BODY..=PAGE_SIZE).contains(&start)
        && body.len() - 2 >= start - STORE_HEADER
        && body.len() - 2 <= PAGE_SIZE - STORE_HEADER
}

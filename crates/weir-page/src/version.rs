//! Version headers and the state of a leaf entry.

use crate::types::{PageId, TxnId};

/// Where an undo record lies: a page of an undo lane and a byte offset in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct UndoPtr {
    /// The undo page.
    pub page: PageId,
    /// Offset of the record in it, in bytes. Bit 15 is set in the version of an inserted entry:
    /// there is no version before it, and readers need no undo record, which may be gone.
    pub offset: u16,
}

const INSERTED: u16 = 1 << 15;

impl UndoPtr {
    /// The same place, marked as that of an insert.
    pub fn of_insert(self) -> UndoPtr {
        UndoPtr { offset: self.offset | INSERTED, ..self }
    }

    /// Whether the entry was inserted: there is no version before.
    pub fn is_insert(self) -> bool {
        self.offset & INSERTED != 0
    }
}

/// Who wrote an entry last, and where the version before it can be had. 12 bytes stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Version {
    /// The writer.
    pub txn: TxnId,
    /// Its undo record of this write.
    pub undo: UndoPtr,
}

impl Version {
    /// Stored size in bytes.
    pub const SIZE: usize = 12;

    /// txn u48 LE, undo page u32 LE, undo offset u16 LE.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut out = [0; Self::SIZE];
        out[..8].copy_from_slice(&self.txn.0.to_le_bytes());
        out[6..10].copy_from_slice(&self.undo.page.0.to_le_bytes());
        out[10..].copy_from_slice(&self.undo.offset.to_le_bytes());
        out
    }

    /// The inverse of [`Version::to_bytes`].
    #[inline]
    pub fn from_bytes(b: &[u8; Self::SIZE]) -> Self {
        let txn = u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], 0, 0]);
        let page = PageId(u32::from_le_bytes([b[6], b[7], b[8], b[9]]));
        let offset = u16::from_le_bytes([b[10], b[11]]);
        Version { txn: TxnId(txn), undo: UndoPtr { page, offset } }
    }
}

impl UndoPtr {
    /// Where the record is, or was: without the mark of an insert.
    pub fn place(self) -> UndoPtr {
        UndoPtr { offset: self.offset & !INSERTED, ..self }
    }
}

/// Flags of an entry, beside its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Flags {
    /// The entry is dead: it stays until no snapshot needs it.
    pub deleted: bool,
    /// The value is a reference to a chain of overflow pages.
    pub overflow: bool,
    /// The entry, of a staging tree, takes the place of one of the same key in the main tree, which
    /// is as it was.
    pub hides: bool,
}

impl Flags {
    /// Those of a tombstone: an entry of a staging tree that says of one in the main tree that it
    /// is dead.
    pub const TOMBSTONE: Flags = Flags { deleted: true, overflow: false, hides: true };

    /// Bit 0 deleted, bit 1 overflow, bit 2 hides.
    #[inline]
    pub fn to_bits(self) -> u8 {
        u8::from(self.deleted) | u8::from(self.overflow) << 1 | u8::from(self.hides) << 2
    }

    /// The inverse of [`Flags::to_bits`]; other bits are ignored.
    #[inline]
    pub fn from_bits(bits: u8) -> Self {
        Flags { deleted: bits & 1 != 0, overflow: bits & 2 != 0, hides: bits & 4 != 0 }
    }
}

/// A leaf entry's state beside its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Dead, overflowing, hiding another.
    pub flags: Flags,
    /// `None` once everybody sees the entry.
    pub version: Option<Version>,
    /// The value, or the reference to its overflow chain.
    pub value: &'a [u8],
}

/// How one value differs from another: `front` and `back` bytes are shared, `middle` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta<'a> {
    /// Shared bytes at the front.
    pub front: usize,
    /// Shared bytes at the back.
    pub back: usize,
    /// What stands between them in the value that the delta yields.
    pub middle: &'a [u8],
}

impl<'a> Delta<'a> {
    /// The delta that turns `from` into `to`.
    pub fn between(from: &[u8], to: &'a [u8]) -> Delta<'a> {
        let limit = from.len().min(to.len());
        let front = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let back = from.iter().rev().zip(to.iter().rev()).take_while(|(a, b)| a == b).count();
        let back = back.min(limit - front);
        Delta { front, back, middle: &to[front..to.len() - back] }
    }

    /// The delta that yields `to` from anything.
    pub fn whole(to: &'a [u8]) -> Delta<'a> {
        Delta { front: 0, back: 0, middle: to }
    }

    /// Whether it can be applied to a value of `len` bytes.
    pub fn fits(&self, len: usize) -> bool {
        self.front + self.back <= len
    }

    /// The value that the delta yields from `from`.
    ///
    /// # Panics
    /// If the delta keeps more bytes than `from` has.
    pub fn apply(&self, from: &[u8]) -> Vec<u8> {
        assert!(self.fits(from.len()), "a delta must keep no more than there is");
        let mut out = Vec::with_capacity(self.front + self.middle.len() + self.back);
        out.extend_from_slice(&from[..self.front]);
        out.extend_from_slice(self.middle);
        out.extend_from_slice(&from[from.len() - self.back..]);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_bytes_are_golden() {
        let v = Version {
            txn: TxnId(0x0605_0403_0201),
            undo: UndoPtr { page: PageId(0x0a09_0807), offset: 0x0c0b },
        };
        assert_eq!(v.to_bytes(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(Version::from_bytes(&v.to_bytes()), v);
    }

    #[test]
    fn a_pointer_to_an_insert_says_so() {
        let at = UndoPtr { page: PageId(3), offset: 16_000 };
        assert!(!at.is_insert() && at.of_insert().is_insert());
        assert_eq!((at.place(), at.of_insert().place()), (at, at));
    }

    #[test]
    fn deltas() {
        for (a, b) in
            [("", ""), ("abc", "abc"), ("abc", "axc"), ("aa", "aaa"), ("aaa", "a"), ("x", "")]
        {
            let d = Delta::between(a.as_bytes(), b.as_bytes());
            assert_eq!(d.apply(a.as_bytes()), b.as_bytes(), "{a} -> {b}");
        }
    }
}

//! Places in the data file, and their packed form in the page map.
//!
//! A map entry is 8 bytes, little endian on disk, 0 for a page without an image:
//!
//! | bits   | what                                                             |
//! |--------|------------------------------------------------------------------|
//! | 0..40  | start of the extent, in units of 4 KiB                           |
//! | 40..44 | length of the extent in units, 1 to 4                            |
//! | 44..64 | image check: low 20 bits of CRC-32C over page id and page LSN    |
//!
//! The image check makes a lost write visible: an older image of the same page, left in place by
//! a write that never reached the device, carries another page LSN.

use weir_page::{Lsn, PageId};

/// Bytes of an allocation unit.
pub const UNIT: usize = 4096;
/// Units of the longest image.
pub const UNITS_MAX: u8 = 4;
/// Units that the data file can have (4 PiB).
pub const FILE_UNITS_MAX: u64 = 1 << 40;

/// A place in the data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Extent {
    /// First unit.
    pub start_unit: u64,
    /// Number of units, 1 to 4.
    pub units: u8,
}

impl Extent {
    /// Byte offset in the data file.
    pub fn offset(self) -> u64 {
        self.start_unit * UNIT as u64
    }

    /// Length in bytes.
    pub fn bytes(self) -> usize {
        usize::from(self.units) * UNIT
    }

    /// The unit after the last one.
    pub fn end_unit(self) -> u64 {
        self.start_unit + u64::from(self.units)
    }

    /// Whether it is a place that a data file can have.
    pub fn is_valid(self) -> bool {
        (1..=UNITS_MAX).contains(&self.units)
            && self.start_unit < FILE_UNITS_MAX
            && self.end_unit() <= FILE_UNITS_MAX
    }
}

/// The move of a page to a new place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relocation {
    /// The page.
    pub page: PageId,
    /// Where its image is now.
    pub extent: Extent,
    /// LSN of the last change in the image.
    pub page_lsn: Lsn,
}

impl Relocation {
    pub(crate) fn entry(&self) -> Entry {
        assert!(self.extent.is_valid(), "page {} moved to {:?}", self.page, self.extent);
        Entry(
            self.extent.start_unit
                | u64::from(self.extent.units) << 40
                | u64::from(image_check(self.page, self.page_lsn)) << 44,
        )
    }
}

/// Low 20 bits of CRC-32C over page id and page LSN.
pub(crate) fn image_check(page: PageId, lsn: Lsn) -> u32 {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&page.0.to_le_bytes());
    bytes[4..].copy_from_slice(&lsn.0.to_le_bytes());
    crc32c::crc32c(&bytes) & 0xF_FFFF
}

/// A packed map entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry(pub u64);

impl Entry {
    pub const NONE: Entry = Entry(0);

    pub fn extent(self) -> Option<Extent> {
        (self.0 != 0).then_some(Extent {
            start_unit: self.0 & (FILE_UNITS_MAX - 1),
            units: (self.0 >> 40 & 0xF) as u8,
        })
    }

    pub fn check(self) -> u32 {
        (self.0 >> 44) as u32
    }

    pub fn is_valid(self) -> bool {
        self.extent().is_none_or(Extent::is_valid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_golden() {
        let extent = Extent { start_unit: 0x12_3456_789A, units: 3 };
        let entry = Relocation { page: PageId(7), extent, page_lsn: Lsn(0x0102_0304) }.entry();
        assert_eq!(entry.extent(), Some(extent));
        assert_eq!(entry.check(), image_check(PageId(7), Lsn(0x0102_0304)));
        assert_eq!(entry.0 & 0xFFF_FFFF_FFFF, 0x312_3456_789A);
        assert!(entry.is_valid());
        assert!(Entry::NONE.is_valid());
        assert!(!Entry(1).is_valid());
        assert!(!Entry(5 << 40).is_valid());
        assert!(!Entry(4 << 40 | (FILE_UNITS_MAX - 1)).is_valid());
    }
}

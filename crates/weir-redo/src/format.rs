//! Bytes of the log on disk. See the crate's head for the layout tables.

use weir_os::BLOCK;
use weir_page::Lsn;

use crate::{RedoError, head};

/// Format version written by this release.
pub const FORMAT_VERSION: u32 = 3;
/// From this version on groups note how far the log was durable.
pub(crate) const NOTES_SINCE: u32 = 2;
/// Bytes before the payload in each segment file.
pub const SEGMENT_HEADER_BYTES: u64 = BLOCK as u64;
/// Bytes of a group header.
pub const GROUP_HEADER_BYTES: usize = 8;
/// Groups are multiples of this and start at multiples of it.
pub const GROUP_ALIGN: usize = 8;
/// Longest group, header and padding included.
pub const MAX_GROUP_BYTES: usize = 1 << 20;
/// Longest payload of a group.
pub const MAX_PAYLOAD_BYTES: usize = MAX_GROUP_BYTES - GROUP_HEADER_BYTES;
/// Fewest segments of a log's capacity.
pub const MIN_SEGMENTS: u64 = 4;

/// First eight bytes of a segment file.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"WEIRREDO");
const AT_VERSION: usize = 8;
const AT_CRC: usize = 12;
const AT_DATABASE: usize = 16;
const AT_NUMBER: usize = 24;
const AT_SEGMENT_BYTES: usize = 32;

/// Longest payload of a segment.
pub(crate) const MAX_SEGMENT_BYTES: u64 = 1 << 40;

/// Whether segments may have `bytes` of payload.
pub(crate) fn is_segment_size(bytes: u64) -> bool {
    bytes.is_multiple_of(BLOCK as u64) && (BLOCK as u64..=MAX_SEGMENT_BYTES).contains(&bytes)
}

/// Largest segment number that ten digits hold.
pub(crate) const MAX_SEGMENT: u64 = 9_999_999_999;

/// Length of the group for a payload of `payload` bytes.
#[inline]
pub const fn group_bytes(payload: usize) -> usize {
    (GROUP_HEADER_BYTES + payload + GROUP_ALIGN - 1) & !(GROUP_ALIGN - 1)
}

/// Checksum of a group at `lsn` that begins with `word`; `payload` may come without its padding.
#[inline]
pub(crate) fn group_crc(lsn: u64, word: u32, payload: &[u8]) -> u32 {
    let mut seed = [0u8; 12];
    seed[..8].copy_from_slice(&lsn.to_le_bytes());
    seed[8..].copy_from_slice(&word.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&seed), payload);
    let padding = head::length(word) - GROUP_HEADER_BYTES - payload.len();
    if padding == 0 { crc } else { crc32c::crc32c_append(crc, &[0u8; GROUP_ALIGN][..padding]) }
}

/// Header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub version: u32,
    pub database_id: u64,
    pub number: u64,
    pub segment_bytes: u64,
}

impl SegmentHeader {
    /// Writes the header over `block`.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK, "a segment header is one block");
        block.fill(0);
        block[..8].copy_from_slice(&MAGIC.to_le_bytes());
        block[AT_VERSION..][..4].copy_from_slice(&self.version.to_le_bytes());
        block[AT_DATABASE..][..8].copy_from_slice(&self.database_id.to_le_bytes());
        block[AT_NUMBER..][..8].copy_from_slice(&self.number.to_le_bytes());
        block[AT_SEGMENT_BYTES..][..8].copy_from_slice(&self.segment_bytes.to_le_bytes());
        let crc = header_crc(block);
        block[AT_CRC..][..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a header of this database from the first block of `file`.
    pub fn decode(block: &[u8], file: &str, database_id: u64) -> Result<Self, RedoError> {
        assert_eq!(block.len(), BLOCK, "a segment header is one block");
        let file = || file.to_string();
        let found = u64_at(block, 0);
        if found != MAGIC {
            return Err(RedoError::BadMagic { file: file(), offset: 0, expected: MAGIC, found });
        }
        let (expected, found) = (header_crc(block), u32_at(block, AT_CRC));
        if expected != found {
            let offset = AT_CRC as u64;
            return Err(RedoError::HeaderChecksum { file: file(), offset, expected, found });
        }
        let version = u32_at(block, AT_VERSION);
        if version > FORMAT_VERSION {
            let (offset, expected, found) = (AT_VERSION as u64, FORMAT_VERSION, version);
            return Err(RedoError::NewerVersion { file: file(), offset, expected, found });
        }
        let found = u64_at(block, AT_DATABASE);
        if found != database_id {
            let (offset, expected) = (AT_DATABASE as u64, database_id);
            return Err(RedoError::WrongDatabase { file: file(), offset, expected, found });
        }
        let segment_bytes = u64_at(block, AT_SEGMENT_BYTES);
        if !is_segment_size(segment_bytes) {
            return Err(RedoError::BadHeader {
                file: file(),
                offset: AT_SEGMENT_BYTES as u64,
                field: "segment size",
                expected: segment_bytes.clamp(BLOCK as u64, MAX_SEGMENT_BYTES)
                    & !(BLOCK as u64 - 1),
                found: segment_bytes,
            });
        }
        let number = u64_at(block, AT_NUMBER);
        Ok(SegmentHeader { version, database_id, number, segment_bytes })
    }

    /// Asserts for the caller that this header belongs to segment `number` of a log with `segment_bytes`.
    pub fn expect(&self, file: &str, number: u64, segment_bytes: u64) -> Result<(), RedoError> {
        let (offset, field, expected, found) = if self.number != number {
            (AT_NUMBER, "segment number", number, self.number)
        } else if self.segment_bytes != segment_bytes {
            (AT_SEGMENT_BYTES, "segment size", segment_bytes, self.segment_bytes)
        } else {
            return Ok(());
        };
        let (file, offset) = (file.to_string(), offset as u64);
        Err(RedoError::BadHeader { file, offset, field, expected, found })
    }
}

/// Checksum of a header block, its own field taken as zero.
fn header_crc(block: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..AT_CRC]), &[0; 4]);
    crc32c::crc32c_append(crc, &block[AT_CRC + 4..])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// File name of segment `number`.
pub(crate) fn segment_name(number: u64) -> String {
    format!("redo-{number:010}")
}

/// Number of the segment file `name`, if it is one.
pub(crate) fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("redo-")?;
    (digits.len() == 10 && digits.bytes().all(|b| b.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

/// Where stream positions lie: the arithmetic of a log with segments of one size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub segment_bytes: u64,
}

impl Geometry {
    pub fn segment(self, lsn: u64) -> u64 {
        lsn / self.segment_bytes
    }
    pub fn start(self, segment: u64) -> u64 {
        segment * self.segment_bytes
    }
    pub fn file_offset(self, lsn: u64) -> u64 {
        SEGMENT_HEADER_BYTES + lsn % self.segment_bytes
    }
    pub fn file_bytes(self) -> u64 {
        SEGMENT_HEADER_BYTES + self.segment_bytes
    }
    /// Whole segments in `capacity_bytes`, at least [`MIN_SEGMENTS`].
    pub fn segments(self, capacity_bytes: u64) -> u64 {
        (capacity_bytes / self.segment_bytes).max(MIN_SEGMENTS)
    }
}

/// File name and byte offset of `lsn`, for messages.
pub(crate) fn place(geometry: Geometry, lsn: Lsn) -> (String, u64) {
    (segment_name(geometry.segment(lsn.0)), geometry.file_offset(lsn.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_header_has_golden_bytes() {
        let header = SegmentHeader {
            version: FORMAT_VERSION,
            database_id: 0x0102_0304_0506_0708,
            number: 7,
            segment_bytes: 1 << 20,
        };
        let mut block = [0xff; BLOCK];
        header.encode(&mut block);
        let golden = [
            b'W', b'E', b'I', b'R', b'R', b'E', b'D', b'O', 3, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4,
            3, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0,
        ];
        let crc = u32_at(&block, AT_CRC);
        assert_eq!(crc, GOLDEN_HEADER_CRC, "{crc:#x}");
        block[AT_CRC..][..4].fill(0);
        assert_eq!(block[..40], golden);
        assert!(block[40..].iter().all(|&b| b == 0));
    }
    const GOLDEN_HEADER_CRC: u32 = 0x7589_5e8c;

    #[test]
    fn header_errors_are_distinct() {
        let header = SegmentHeader { version: 1, database_id: 5, number: 7, segment_bytes: 8192 };
        let mut block = [0; BLOCK];
        header.encode(&mut block);
        assert_eq!(SegmentHeader::decode(&block, "f", 5).expect("valid"), header);
        let damaged = |at: usize, seal: bool, id: u64| {
            let mut block = block;
            block[at] ^= 0x40;
            if seal {
                let crc = header_crc(&block);
                block[AT_CRC..][..4].copy_from_slice(&crc.to_le_bytes());
            }
            SegmentHeader::decode(&block, "f", id).expect_err("damaged")
        };
        assert!(matches!(damaged(0, true, 5), RedoError::BadMagic { offset: 0, .. }));
        assert!(matches!(damaged(900, false, 5), RedoError::HeaderChecksum { offset: 12, .. }));
        assert!(matches!(
            damaged(AT_VERSION, true, 5),
            RedoError::NewerVersion { offset: 8, expected: 3, found: 0x41, .. }
        ));
        assert!(matches!(
            damaged(900, true, 6),
            RedoError::WrongDatabase { offset: 16, expected: 6, found: 5, .. }
        ));
        assert!(matches!(damaged(AT_SEGMENT_BYTES, true, 5), RedoError::BadHeader { .. }));
        assert!(matches!(
            header.expect("f", 8, 8192),
            Err(RedoError::BadHeader { offset: 24, .. })
        ));
        assert!(matches!(
            header.expect("f", 7, 4096),
            Err(RedoError::BadHeader { offset: 32, .. })
        ));
    }

    #[test]
    fn names_are_ten_digits() {
        assert_eq!(segment_name(12), "redo-0000000012");
        assert_eq!(segment_number("redo-0000000012"), Some(12));
        for other in ["redo-12", "redo-00000000012", "redo-000000001x", "data", "redo-+000000012"] {
            assert_eq!(segment_number(other), None);
        }
    }

    #[test]
    fn group_lengths_are_padded() {
        assert_eq!(group_bytes(0), 8);
        assert_eq!(group_bytes(1), 16);
        assert_eq!(group_bytes(8), 16);
        assert_eq!(group_bytes(MAX_PAYLOAD_BYTES), MAX_GROUP_BYTES);
        assert_eq!(group_crc(9, 16, b"abc"), group_crc(9, 16, b"abc\0\0\0\0\0"));
        assert_ne!(group_crc(9, 16, b"abc"), group_crc(17, 16, b"abc"));
    }
}

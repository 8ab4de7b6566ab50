//! Bytes of the log on disk. See the crate's head for the layout tables.

use weir_os::BLOCK;

use crate::layout::Span;
use crate::reader::EndReason;
use crate::{RedoError, head};

/// Format version written by this release.
pub const FORMAT_VERSION: u32 = 4;
/// From this version on groups note how far the log was durable.
pub(crate) const NOTES_SINCE: u32 = 2;
/// From this version on headers say where the segment begins: the segments of a log may differ in
/// length.
const STARTS_SINCE: u32 = 4;
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
const AT_START: usize = 40;

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

/// Checksum of what comes before the payload of a group at `lsn` that begins with `word`.
#[inline]
pub(crate) fn head_crc(lsn: u64, word: u32) -> u32 {
    let mut seed = [0u8; 12];
    seed[..8].copy_from_slice(&lsn.to_le_bytes());
    seed[8..].copy_from_slice(&word.to_le_bytes());
    crc32c::crc32c(&seed)
}

/// Checksum of a group at `lsn` that begins with `word`; `payload` may come without its padding.
#[inline]
pub(crate) fn group_crc(lsn: u64, word: u32, payload: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(head_crc(lsn, word), payload);
    let padding = head::length(word) - GROUP_HEADER_BYTES - payload.len();
    if padding == 0 { crc } else { crc32c::crc32c_append(crc, &[0u8; GROUP_ALIGN][..padding]) }
}

/// Length of the group that begins with these bytes.
pub(crate) fn group_len(bytes: &[u8]) -> Result<usize, EndReason> {
    let word = u32_at(bytes, 0);
    match head::length(word) {
        _ if word == 0 => Err(EndReason::Unwritten),
        len if head::is_length(len) => Ok(len),
        len => Err(EndReason::BadLength { found: len as u32 }),
    }
}

/// The payload of the group at `lsn`, with its padding; `group` is as long as [`group_len`] says.
pub(crate) fn group_payload(lsn: u64, group: &[u8]) -> Result<&[u8], EndReason> {
    let (word, found) = (u32_at(group, 0), u32_at(group, 4));
    let payload = &group[GROUP_HEADER_BYTES..];
    let expected = group_crc(lsn, word, payload);
    if expected == found { Ok(payload) } else { Err(EndReason::BadChecksum { expected, found }) }
}

/// Header of a segment file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub version: u32,
    pub database_id: u64,
    pub span: Span,
}

impl SegmentHeader {
    /// Writes the header over `block`.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK, "a segment header is one block");
        block.fill(0);
        block[..8].copy_from_slice(&MAGIC.to_le_bytes());
        block[AT_VERSION..][..4].copy_from_slice(&self.version.to_le_bytes());
        block[AT_DATABASE..][..8].copy_from_slice(&self.database_id.to_le_bytes());
        let Span { number, start, bytes } = self.span;
        block[AT_NUMBER..][..8].copy_from_slice(&number.to_le_bytes());
        block[AT_SEGMENT_BYTES..][..8].copy_from_slice(&bytes.to_le_bytes());
        block[AT_START..][..8].copy_from_slice(&start.to_le_bytes());
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
        let start = match version >= STARTS_SINCE {
            true => u64_at(block, AT_START),
            false => number.saturating_mul(segment_bytes),
        };
        if !start.is_multiple_of(BLOCK as u64) || start.checked_add(segment_bytes).is_none() {
            return Err(bad_start(&file(), start / BLOCK as u64 * BLOCK as u64, start));
        }
        let span = Span { number, start, bytes: segment_bytes };
        Ok(SegmentHeader { version, database_id, span })
    }

    /// Fails unless this header is of segment `number`.
    pub fn expect_number(&self, file: &str, number: u64) -> Result<(), RedoError> {
        let (expected, found) = (number, self.span.number);
        if found == expected {
            return Ok(());
        }
        let (file, offset, field) = (file.to_string(), AT_NUMBER as u64, "segment number");
        Err(RedoError::BadHeader { file, offset, field, expected, found })
    }

    /// Fails unless the segment begins there.
    pub fn expect_start(&self, file: &str, start: u64) -> Result<(), RedoError> {
        if self.span.start == start { Ok(()) } else { Err(bad_start(file, start, self.span.start)) }
    }
}

/// A segment doesn't begin where it must.
fn bad_start(file: &str, expected: u64, found: u64) -> RedoError {
    let (file, offset, field) = (file.to_string(), AT_START as u64, "first LSN");
    RedoError::BadHeader { file, offset, field, expected, found }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_header_has_golden_bytes() {
        let header = SegmentHeader {
            version: FORMAT_VERSION,
            database_id: 0x0102_0304_0506_0708,
            span: Span { number: 7, start: 0x0a0b_0c0d_e000, bytes: 1 << 20 },
        };
        let mut block = [0xff; BLOCK];
        header.encode(&mut block);
        let golden = [
            b'W', b'E', b'I', b'R', b'R', b'E', b'D', b'O', 4, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4,
            3, 2, 1, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0xe0, 0x0d, 0x0c, 0x0b,
            0x0a, 0, 0,
        ];
        let crc = u32_at(&block, AT_CRC);
        assert_eq!(crc, GOLDEN_HEADER_CRC, "{crc:#x}");
        block[AT_CRC..][..4].fill(0);
        assert_eq!(block[..48], golden);
        assert!(block[48..].iter().all(|&b| b == 0));
    }
    const GOLDEN_HEADER_CRC: u32 = 0xa20f_e9d2;

    #[test]
    fn header_errors_are_distinct() {
        let span = Span { number: 7, start: 7 * 8192, bytes: 8192 };
        let header = SegmentHeader { version: FORMAT_VERSION, database_id: 5, span };
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
            RedoError::NewerVersion { offset: 8, expected: 4, found: 0x44, .. }
        ));
        assert!(matches!(
            damaged(900, true, 6),
            RedoError::WrongDatabase { offset: 16, expected: 6, found: 5, .. }
        ));
        assert!(matches!(damaged(AT_SEGMENT_BYTES, true, 5), RedoError::BadHeader { .. }));
        assert!(matches!(damaged(AT_START, true, 5), RedoError::BadHeader { offset: 40, .. }));
        assert!(matches!(
            header.expect_number("f", 8),
            Err(RedoError::BadHeader { offset: 24, .. })
        ));
        assert!(matches!(
            header.expect_start("f", 8 * 8192),
            Err(RedoError::BadHeader { offset: 40, expected: 65536, found: 57344, .. })
        ));
    }

    #[test]
    fn segments_of_older_versions_are_all_of_one_length() {
        let mut block = [0; BLOCK];
        let span = Span { number: 7, start: 7 * 8192, bytes: 8192 };
        for version in 1..STARTS_SINCE {
            SegmentHeader { version, database_id: 5, span }.encode(&mut block);
            block[AT_START..][..8].fill(0);
            let crc = header_crc(&block);
            block[AT_CRC..][..4].copy_from_slice(&crc.to_le_bytes());
            assert_eq!(SegmentHeader::decode(&block, "f", 5).expect("valid").span, span);
        }
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

//! The stored form of a page.
//!
//! An image is a 32-byte header and a payload, zero-padded to units of 4 KiB. All numbers are
//! little endian.
//!
//! | offset | width | what                                                            |
//! |--------|-------|-----------------------------------------------------------------|
//! | 0      | 2     | format, `0x5732`                                                |
//! | 2      | 1     | compression: 0 raw, 1 LZ4 block, 2 zstd frame                   |
//! | 3      | 1     | 0                                                               |
//! | 4      | 4     | page id                                                         |
//! | 8      | 8     | page LSN: LSN of the last change in the image                   |
//! | 16     | 2     | payload bytes                                                   |
//! | 18     | 2     | where in the page its hole begins; 0: it has none               |
//! | 20     | 4     | CRC-32C over the header with this field zero, then the payload  |
//! | 24     | 8     | database id                                                     |
//! | 32     |       | payload: bytes 32..16384 of the page without the hole, as compressed |
//!
//! The hole of a page holds nothing: it isn't stored, and read as zeros. What is stored is
//! compressed only where that saves a unit, as far as it can be foreseen ([`Worth`]).
//!
//! A page leaves its first 32 bytes to this header, so that a raw image without a hole takes
//! exactly 4 units; in memory it keeps page id and page LSN at the offsets they have here, and
//! zeros in the rest. An image is valid when a map entry points to it; it is synced before any
//! record names its place, and never overwritten while one does.

use crate::error::{Result, StoreError};
use crate::extent::{Entry, UNIT, image_check};
use crate::worth::Worth;
use lz4_flex::block::{
    CompressTable, compress_into_with_table, decompress_into, get_maximum_output_size,
};
use std::cell::RefCell;
use weir_page::{Lsn, PAGE_SIZE, PageId};

/// Bytes that the store owns at the start of every page.
pub const IMAGE_HEADER: usize = 32;
const BODY: usize = PAGE_SIZE - IMAGE_HEADER;
const FORMAT: u16 = 0x5732;
const RAW: u8 = 0;
const LZ4: u8 = 1;
const ZSTD: u8 = 2;

/// How images are compressed when written. Each image says itself how to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Stored raw.
    None,
    /// LZ4 blocks.
    #[default]
    Lz4,
    /// zstd at a level.
    Zstd(i32),
}

/// A page that is to be stored.
#[derive(Debug, Clone, Copy)]
pub struct PageCopy<'a> {
    /// Its number.
    pub page: PageId,
    /// Its page LSN.
    pub lsn: Lsn,
    /// Its bytes from [`IMAGE_HEADER`] on, without the hole.
    pub used: &'a [u8],
    /// Where in the page the hole begins. It is as long as what `used` lacks of a whole page; if
    /// that is nothing, any number.
    pub hole: usize,
    /// The same for pages that compress alike, as leaves of a tree do: from some of them it is
    /// learnt what to expect of others.
    pub alike: u32,
}

impl<'a> PageCopy<'a> {
    /// A page of 16 KiB that has no hole.
    pub fn whole(page: PageId, lsn: Lsn, bytes: &'a [u8]) -> Self {
        assert_eq!(bytes.len(), PAGE_SIZE, "page {page} is not 16 KiB");
        PageCopy { page, lsn, used: &bytes[IMAGE_HEADER..], hole: 0, alike: 0 }
    }
}

/// Makes images; keeps its tables and buffers from one page to the next.
pub(crate) struct Encoder {
    database_id: u64,
    codec: Codec,
    worth: Worth,
    scratch: Vec<u8>,
}

enum Codec {
    None,
    Lz4(CompressTable),
    Zstd(Box<zstd::bulk::Compressor<'static>>),
}

impl Encoder {
    pub fn new(compression: Compression, database_id: u64) -> Self {
        let codec = match compression {
            Compression::None => Codec::None,
            Compression::Lz4 => Codec::Lz4(CompressTable::small()),
            Compression::Zstd(level) => {
                let compressor = zstd::bulk::Compressor::new(level);
                Codec::Zstd(Box::new(compressor.expect("zstd takes any level")))
            }
        };
        let scratch_bytes = match codec {
            Codec::None => 0,
            Codec::Lz4(_) => get_maximum_output_size(BODY),
            Codec::Zstd(_) => zstd::zstd_safe::compress_bound(BODY),
        };
        Encoder { database_id, codec, worth: Worth::default(), scratch: vec![0; scratch_bytes] }
    }

    /// Writes the image of a page to the start of `out` (16 KiB or more) and returns its units.
    pub fn encode(&mut self, copy: &PageCopy<'_>, out: &mut [u8]) -> u8 {
        let PageCopy { page, lsn, used, .. } = *copy;
        let hole = if used.len() == BODY { 0 } else { copy.hole };
        assert!(is_sound(hole, used.len()), "page {page}: {} bytes, hole {hole}", used.len());
        assert_ne!(page, PageId::NONE, "page 0 is never stored");
        let (compression, payload_bytes) = match self.compress(copy.alike, used) {
            Some((compression, len)) => {
                out[IMAGE_HEADER..][..len].copy_from_slice(&self.scratch[..len]);
                (compression, len)
            }
            None => {
                out[IMAGE_HEADER..][..used.len()].copy_from_slice(used);
                (RAW, used.len())
            }
        };
        let end = IMAGE_HEADER + payload_bytes;
        let stored = end.next_multiple_of(UNIT);
        out[end..stored].fill(0);
        out[0..2].copy_from_slice(&FORMAT.to_le_bytes());
        out[2] = compression;
        out[3] = 0;
        out[4..8].copy_from_slice(&page.0.to_le_bytes());
        out[8..16].copy_from_slice(&lsn.0.to_le_bytes());
        out[16..18].copy_from_slice(&(payload_bytes as u16).to_le_bytes());
        out[18..20].copy_from_slice(&(hole as u16).to_le_bytes());
        out[20..24].fill(0);
        out[24..32].copy_from_slice(&self.database_id.to_le_bytes());
        let crc = crc32c::crc32c(&out[..end]);
        out[20..24].copy_from_slice(&crc.to_le_bytes());
        (stored / UNIT) as u8
    }

    /// Compresses the payload into `scratch`, if that is likely to save a unit and does.
    fn compress(&mut self, alike: u32, used: &[u8]) -> Option<(u8, usize)> {
        let units = (IMAGE_HEADER + used.len()).div_ceil(UNIT);
        let most = ((units - 1) * UNIT).checked_sub(IMAGE_HEADER)?;
        if matches!(self.codec, Codec::None) || !self.worth.is_tried(alike, used.len(), most) {
            return None;
        }
        let (compression, len) = match &mut self.codec {
            Codec::None => return None,
            Codec::Lz4(table) => {
                let len = compress_into_with_table(used, &mut self.scratch, table);
                (LZ4, len.expect("the buffer holds the longest output"))
            }
            // What can't be compressed saves nothing.
            Codec::Zstd(zstd) => {
                let len = zstd.compress_to_buffer(used, &mut self.scratch[..]);
                (ZSTD, len.unwrap_or(used.len()))
            }
        };
        self.worth.learn(alike, used.len(), len);
        (len <= most).then_some((compression, len))
    }
}

/// Whether a page may have so many bytes and its hole there, if it has one.
fn is_sound(hole: usize, used: usize) -> bool {
    match hole {
        0 => used == BODY,
        _ => (IMAGE_HEADER..=IMAGE_HEADER + used).contains(&hole) && used < BODY,
    }
}

/// Where an image was read and what it must be.
pub(crate) struct Expected<'a> {
    pub file: &'a str,
    pub offset: u64,
    pub database_id: u64,
    pub page: PageId,
    /// The map's entry, if it is known; its image check is compared.
    pub entry: Option<Entry>,
}

impl Expected<'_> {
    fn corrupt(&self, what: &'static str, expected: String, found: String) -> StoreError {
        StoreError::Corrupt {
            file: self.file.to_string(),
            offset: self.offset,
            page: Some(self.page),
            what,
            expected,
            found,
        }
    }
}

/// Which page the image that `bytes` begin with says that it is of. Unchecked.
pub(crate) fn page_of(bytes: &[u8]) -> PageId {
    PageId(u32::from_le_bytes(field(bytes, 4)))
}

/// How long the image that `bytes` begin with says that it is: whole units. Unchecked.
pub(crate) fn bytes_of(bytes: &[u8]) -> usize {
    let payload_bytes = u16::from_le_bytes(field(bytes, 16)) as usize;
    (IMAGE_HEADER + payload_bytes).next_multiple_of(UNIT)
}

/// Checks all of the image in `stored` (whole units) that needs no unpacking.
///
/// # Errors
/// `Corrupt` when anything does not match.
pub(crate) fn verify(stored: &[u8], expected: &Expected<'_>) -> Result<()> {
    Header::read(stored, expected).map(drop)
}

/// Checks the image in `stored` (whole units) and writes the page to `out` (16 KiB).
///
/// # Errors
/// `Corrupt` when anything does not match; `out` is then undefined.
pub(crate) fn decode(stored: &[u8], expected: &Expected<'_>, out: &mut [u8]) -> Result<Lsn> {
    assert_eq!(out.len(), PAGE_SIZE, "a page buffer is 16 KiB");
    let header = Header::read(stored, expected)?;
    let payload = &stored[IMAGE_HEADER..][..header.payload_bytes];
    let lsn = header.lsn;
    let (head, body) = out.split_at_mut(IMAGE_HEADER);
    let unpacked = match header.compression {
        // No longer than the page: an image has four units at most.
        RAW => {
            body[..payload.len()].copy_from_slice(payload);
            Ok(payload.len())
        }
        LZ4 => decompress_into(payload, body).map_err(|e| e.to_string()),
        ZSTD => unzstd(payload, body),
        other => Err(format!("compression {other}")),
    };
    match unpacked {
        Ok(used) if is_sound(header.hole, used) => open_hole(body, header.hole, used),
        unpacked => {
            let found = unpacked.map_or_else(|e| e, |n| format!("{n} bytes"));
            let wanted = match header.hole {
                0 => format!("{BODY} bytes"),
                hole => format!("a page with a hole at {hole}"),
            };
            return Err(expected.corrupt("unpacked page", wanted, found));
        }
    }
    head.fill(0);
    head[4..8].copy_from_slice(&header.page.0.to_le_bytes());
    head[8..16].copy_from_slice(&lsn.0.to_le_bytes());
    Ok(lsn)
}

/// Moves what comes behind the hole to the end of the page.
fn open_hole(body: &mut [u8], hole: usize, used: usize) {
    if hole != 0 {
        let front = hole - IMAGE_HEADER;
        let behind = BODY - (used - front);
        body.copy_within(front..used, behind);
        body[front..behind].fill(0);
    }
}

struct Header {
    compression: u8,
    hole: usize,
    page: PageId,
    lsn: Lsn,
    payload_bytes: usize,
}

impl Header {
    /// Reads the header and checks all of the image that needs no unpacking.
    fn read(stored: &[u8], expected: &Expected<'_>) -> Result<Header> {
        assert!(stored.len() >= UNIT, "an image is at least a unit");
        let format = u16::from_le_bytes(field(stored, 0));
        if format != FORMAT {
            let (wanted, found) = (format!("{FORMAT:#06x}"), format!("{format:#06x}"));
            return Err(expected.corrupt("image format", wanted, found));
        }
        let page = page_of(stored);
        let payload_bytes = u16::from_le_bytes(field(stored, 16)) as usize;
        let hole = u16::from_le_bytes(field(stored, 18)) as usize;
        if bytes_of(stored) != stored.len() {
            let wanted = format!("a payload that fills {} units", stored.len() / UNIT);
            return Err(expected.corrupt("image size", wanted, format!("{payload_bytes} bytes")));
        }
        let crc = u32::from_le_bytes(field(stored, 20));
        let actual = checksum(&stored[..IMAGE_HEADER + payload_bytes]);
        if crc != actual {
            let (wanted, found) = (format!("{crc:08x}"), format!("{actual:08x}"));
            return Err(expected.corrupt("image checksum", wanted, found));
        }
        let database_id = u64::from_le_bytes(field(stored, 24));
        if database_id != expected.database_id {
            let wanted = format!("database {:016x}", expected.database_id);
            let found = format!("{database_id:016x}");
            return Err(expected.corrupt("image of another database", wanted, found));
        }
        if page != expected.page {
            let wanted = format!("page {}", expected.page);
            return Err(expected.corrupt("image of another page", wanted, format!("page {page}")));
        }
        let lsn = Lsn(u64::from_le_bytes(field(stored, 8)));
        if let Some(entry) = expected.entry
            && image_check(page, lsn) != entry.check()
        {
            let wanted = format!("an image with check {:05x}", entry.check());
            let found = format!("page LSN {lsn}, check {:05x}", image_check(page, lsn));
            return Err(expected.corrupt("an older image (lost write)", wanted, found));
        }
        Ok(Header { compression: stored[2], hole, page, lsn, payload_bytes })
    }
}

/// CRC-32C of an image with its checksum field taken as zero.
fn checksum(image: &[u8]) -> u32 {
    let crc = crc32c::crc32c(&image[..20]);
    let crc = crc32c::crc32c_append(crc, &[0; 4]);
    crc32c::crc32c_append(crc, &image[24..])
}

fn unzstd(payload: &[u8], body: &mut [u8]) -> std::result::Result<usize, String> {
    thread_local! {
        static ZSTD_DECODER: RefCell<Option<zstd::bulk::Decompressor<'static>>> =
            const { RefCell::new(None) };
    }
    ZSTD_DECODER.with_borrow_mut(|slot| {
        let decoder = match slot {
            Some(decoder) => decoder,
            None => slot.insert(zstd::bulk::Decompressor::new().map_err(|e| e.to_string())?),
        };
        decoder.decompress_to_buffer(payload, body).map_err(|e| e.to_string())
    })
}

pub(crate) fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes is an array of N bytes")
}

#[cfg(test)]
mod tests;

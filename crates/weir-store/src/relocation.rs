//! The body of a relocation record in the redo log.
//!
//! A varint count, then per relocation three varints (LEB128):
//!
//! 1. page id less the one before, zigzag;
//! 2. `(start unit - end of the extent before, zigzag) << 2 | units - 1`;
//! 3. page LSN less the one before, zigzag, wrapping.
//!
//! A batch in page order written to one run takes 4 to 6 bytes per page. Valid when the redo group
//! around it is (the log's checksum covers it); durable with the log.

use crate::error::{Result, StoreError};
use crate::extent::{Extent, Relocation};
use weir_page::{Lsn, PageId};

/// Most bytes that one relocation takes in a record body: a page id of 32 bits and its sign, twice
/// 64 bits.
const RELOCATION_BYTES_MAX: usize = 5 + 10 + 10;

/// Most bytes that [`encode_relocations`] appends for `count` relocations.
pub fn relocations_bytes_max(count: usize) -> usize {
    10 + count * RELOCATION_BYTES_MAX
}

/// Appends the record body of `relocations` to `out`.
pub fn encode_relocations(relocations: &[Relocation], out: &mut Vec<u8>) {
    put(out, relocations.len() as u64);
    let (mut page, mut end, mut lsn) = (0i64, 0i64, 0u64);
    for r in relocations {
        assert!(r.extent.is_valid() && r.page != PageId::NONE, "relocation {r:?}");
        put(out, zigzag(i64::from(r.page.0) - page));
        let start = zigzag(r.extent.start_unit as i64 - end);
        put(out, start << 2 | u64::from(r.extent.units - 1));
        put(out, zigzag(r.page_lsn.0.wrapping_sub(lsn) as i64));
        page = i64::from(r.page.0);
        end = r.extent.end_unit() as i64;
        lsn = r.page_lsn.0;
    }
}

/// Reads a record body back.
///
/// # Errors
/// `BadRecord` for bytes that [`encode_relocations`] can't have made.
pub fn decode_relocations(bytes: &[u8]) -> Result<Vec<Relocation>> {
    let mut input = Input { bytes, at: 0 };
    let count = input.varint()?;
    if count > (bytes.len() as u64) / 3 {
        return input.bad("more relocations than bytes");
    }
    let mut relocations = Vec::with_capacity(count as usize);
    let (mut page, mut end, mut lsn) = (0i64, 0i64, 0u64);
    for _ in 0..count {
        page = page.wrapping_add(unzigzag(input.varint()?));
        let place = input.varint()?;
        let start = end.wrapping_add(unzigzag(place >> 2));
        lsn = lsn.wrapping_add(unzigzag(input.varint()?) as u64);
        let extent = Extent { start_unit: start as u64, units: (place & 3) as u8 + 1 };
        if !extent.is_valid() {
            return input.bad("extent outside of any file");
        }
        let Some(id) = u32::try_from(page).ok().filter(|&id| id != 0) else {
            return input.bad("page id out of range");
        };
        end = extent.end_unit() as i64;
        relocations.push(Relocation { page: PageId(id), extent, page_lsn: Lsn(lsn) });
    }
    if input.at != bytes.len() {
        return input.bad("bytes left over");
    }
    Ok(relocations)
}

struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Input<'_> {
    fn varint(&mut self) -> Result<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let Some(&byte) = self.bytes.get(self.at) else { return self.bad("cut short") };
            self.at += 1;
            if shift == 63 && byte > 1 {
                return self.bad("number too large");
            }
            value |= u64::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        self.bad("number too long")
    }

    fn bad<T>(&self, what: &'static str) -> Result<T> {
        Err(StoreError::BadRecord { what, at: self.at })
    }
}

fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63) as u64
}

fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extent::FILE_UNITS_MAX;

    fn relocation(page: u32, start_unit: u64, units: u8, lsn: u64) -> Relocation {
        Relocation { page: PageId(page), extent: Extent { start_unit, units }, page_lsn: Lsn(lsn) }
    }

    #[test]
    fn record_is_golden() {
        let mut out = Vec::new();
        encode_relocations(&[relocation(5, 2, 3, 1000), relocation(6, 5, 1, 990)], &mut out);
        assert_eq!(out, [2, 10, 18, 0xD0, 0x0F, 2, 0, 19]);
    }

    #[test]
    fn no_relocation_is_longer_than_the_most() {
        let far = [
            relocation(u32::MAX, FILE_UNITS_MAX - 4, 4, 1 << 63),
            relocation(1, 0, 4, 0),
            relocation(u32::MAX, FILE_UNITS_MAX - 4, 4, 1 << 63),
        ];
        let mut out = Vec::new();
        encode_relocations(&far, &mut out);
        assert!(out.len() <= relocations_bytes_max(far.len()), "{} bytes", out.len());
    }

    #[test]
    fn random_batches_come_back() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..500 {
            let batch: Vec<_> = (0..rng.usize(..40))
                .map(|_| {
                    let shift = rng.u32(..32);
                    relocation(
                        (rng.u32(..) >> shift).max(1),
                        rng.u64(..FILE_UNITS_MAX - 4) >> shift,
                        rng.u8(1..=4),
                        rng.u64(..) >> rng.u32(..64),
                    )
                })
                .collect();
            let mut out = Vec::new();
            encode_relocations(&batch, &mut out);
            assert_eq!(decode_relocations(&out).unwrap(), batch);
            for cut in 0..out.len() {
                assert!(decode_relocations(&out[..cut]).is_err());
            }
        }
    }

    #[test]
    fn any_bytes_decode_or_fail() {
        let mut rng = fastrand::Rng::with_seed(2);
        for _ in 0..20_000 {
            let mut bytes: Vec<u8> = (0..rng.usize(..60)).map(|_| rng.u8(..)).collect();
            if let Some(first) = bytes.first_mut() {
                *first %= 16;
            }
            if let Ok(batch) = decode_relocations(&bytes) {
                assert!(batch.iter().all(|r| r.extent.is_valid() && r.page.0 != 0));
            }
        }
    }
}

//! A group's first word: its length, and how far the log was durable when it was appended.
//!
//! Bits 0 to 20 are the length. Bits 21 to 31 are a *note*: 0 says nothing; else the log was known
//! to be durable up to the group's LSN less a distance. The distance is counted in units of 8 bytes
//! and rounded up to seven significant bits, `mantissa << exponent`; the note is `1 + (exponent <<
//! 7 | mantissa)`.

use crate::format::{GROUP_ALIGN, GROUP_HEADER_BYTES, MAX_GROUP_BYTES};

const LENGTH_BITS: u32 = 21;
const MANTISSA_BITS: u32 = 7;
const NOTE_MAX: u64 = (1 << (u32::BITS - LENGTH_BITS)) - 1;

/// The word of a group of `len` bytes at `start`; `durable`: up to where the log is, 0 if that
/// isn't to be noted.
#[inline]
pub fn encode(len: usize, start: u64, durable: u64) -> u32 {
    debug_assert!(is_length(len) && durable <= start);
    let note = if durable == 0 { 0 } else { note_of(start - durable) };
    len as u32 | note << LENGTH_BITS
}

#[inline]
fn note_of(distance: u64) -> u32 {
    let units = distance.div_ceil(GROUP_ALIGN as u64);
    let mut exponent = (u64::BITS - units.leading_zeros()).saturating_sub(MANTISSA_BITS);
    let mut mantissa = units.div_ceil(1 << exponent);
    if mantissa >> MANTISSA_BITS != 0 {
        (mantissa, exponent) = (mantissa.div_ceil(2), exponent + 1);
    }
    let note = 1 + (u64::from(exponent) << MANTISSA_BITS | mantissa);
    if note <= NOTE_MAX { note as u32 } else { 0 }
}

/// The length that a word says; whether a group can have it tells [`is_length`].
#[inline]
pub fn length(word: u32) -> usize {
    (word & ((1 << LENGTH_BITS) - 1)) as usize
}

/// Whether a group can have this length.
#[inline]
pub fn is_length(len: usize) -> bool {
    (GROUP_HEADER_BYTES..=MAX_GROUP_BYTES).contains(&len) && len.is_multiple_of(GROUP_ALIGN)
}

/// Up to where the log was durable when the group at `start` was appended, as far as its word says.
pub fn durable(word: u32, start: u64) -> u64 {
    let Some(note) = (word >> LENGTH_BITS).checked_sub(1) else { return 0 };
    let (exponent, mantissa) = (note >> MANTISSA_BITS, note & ((1 << MANTISSA_BITS) - 1));
    start.saturating_sub((u64::from(mantissa) << exponent) * GROUP_ALIGN as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_golden() {
        assert_eq!(encode(256, 1 << 30, 0), 256);
        assert_eq!(encode(256, 1 << 30, 1 << 30), 1 << 21 | 256);
        assert_eq!(encode(1 << 20, 1 << 30, (1 << 30) - 24), 4 << 21 | 1 << 20);
        assert_eq!(encode(8, 1 << 30, (1 << 30) - 8 * 129), (1 + (1 << 7 | 65)) << 21 | 8);
    }

    #[test]
    fn notes_say_no_more_than_is_so_and_not_much_less() {
        let mut rng = fastrand::Rng::with_seed(1);
        let start = 1 << 40;
        for _ in 0..100_000 {
            let distance = rng.u64(..30 << 20) >> rng.u32(..25);
            let len = 8 * rng.usize(1..=MAX_GROUP_BYTES / 8);
            let word = encode(len, start, start - distance);
            assert_eq!(length(word), len);
            let noted = start - durable(word, start);
            assert!(noted >= distance, "{distance} is noted as {noted}");
            assert!(noted <= distance + distance / 32 + 8, "{distance} is noted as {noted}");
        }
        // What is too far is not noted.
        assert_eq!(durable(encode(8, start, start - (1 << 30)), start), 0);
        assert_eq!(durable(encode(8, start, 0), start), 0);
    }
}

//! Integers as bytes whose order is theirs, short ones in few bytes.
//!
//! u64, after the variable-length integers of SQLite 4:
//!
//! | value | bytes |
//! |---|---|
//! | 0..=240 | the value |
//! | 241..=2287 | 241 + (v - 240) / 256, (v - 240) % 256 |
//! | 2288..=67823 | 249, v - 2288 in 2 bytes |
//! | to 2^24, 2^32, ... 2^64 | 250, 251, ... 255, then v in 3, 4, ... 8 bytes |
//!
//! i64: 0x80 + n for v >= 0 and 0x7f - n for v < 0, then the low n bytes of v, big-endian; n is the
//! least number of bytes that v (or !v) takes, 0 to 8.

use weir_page::varint::Sink;

/// Appends a u64.
#[inline]
pub fn put_u64(v: u64, out: &mut Vec<u8>) {
    let (tag, n, low) = match v {
        0..=240 => (v, 0, 0),
        241..=2287 => (241 + (v - 240) / 256, 1, v - 240),
        2288..=67823 => (249, 2, v - 2288),
        _ => {
            let n = significant(v).max(3);
            (247 + n as u64, n, v)
        }
    };
    put_tagged(tag as u8, n, low, out);
}

/// Appends an i64.
#[inline]
pub fn put_i64(v: i64, out: &mut Vec<u8>) {
    let (n, tag) = if v >= 0 {
        let n = significant(v as u64);
        (n, 0x80 + n)
    } else {
        let n = significant(!v as u64);
        (n, 0x7f - n)
    };
    put_tagged(tag as u8, n, v as u64, out);
}

/// Appends a tag and the low `n` bytes of a number, big-endian.
#[inline]
fn put_tagged(tag: u8, n: usize, v: u64, out: &mut Vec<u8>) {
    let mut bytes = [0; 9];
    bytes[0] = tag;
    let low = v.checked_shl(64 - 8 * n as u32).unwrap_or(0);
    bytes[1..].copy_from_slice(&low.to_be_bytes());
    out.put_first(bytes, 1 + n);
}

fn significant(v: u64) -> usize {
    8 - v.leading_zeros() as usize / 8
}

/// Length of a u64 that begins with `tag`.
#[inline]
pub fn len_u64(tag: u8) -> usize {
    match tag {
        0..=240 => 1,
        241..=248 => 2,
        _ => tag as usize - 246,
    }
}

/// Length of an i64 that begins with `tag`; `None` if none does.
#[inline]
pub fn len_i64(tag: u8) -> Option<usize> {
    let n = if tag >= 0x80 { tag - 0x80 } else { 0x7f - tag };
    (n <= 8).then_some(1 + n as usize)
}

/// The u64 in `bytes` at `at`, which is moved behind it; `None` if there is none.
#[inline(always)]
pub fn take_u64(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let tag = *bytes.get(*at)?;
    let low = take_big_endian(bytes, at, len_u64(tag) - 1)?;
    Some(
        low + match tag {
            0..=240 => u64::from(tag),
            241..=248 => 240 + 256 * u64::from(tag - 241),
            249 => 2288,
            _ => 0,
        },
    )
}

/// The i64 in `bytes` at `at`, which is moved behind it; `None` if there is none.
#[inline(always)]
pub fn take_i64(bytes: &[u8], at: &mut usize) -> Option<i64> {
    let tag = *bytes.get(*at)?;
    let n = len_i64(tag)? - 1;
    let low = take_big_endian(bytes, at, n)?;
    let above = if tag >= 0x80 { 0 } else { !low_bytes(n) };
    Some((low | above) as i64)
}

/// The number in the `n` bytes behind that at `at`, which is moved behind them; 0 to 8.
#[inline(always)]
fn take_big_endian(bytes: &[u8], at: &mut usize, n: usize) -> Option<u64> {
    let end = *at + 1 + n;
    let until = bytes.get(..end)?;
    *at = end;
    Some(match until.last_chunk() {
        Some(&word) => u64::from_be_bytes(word) & low_bytes(n),
        None => until[end - n..].iter().fold(0, |v, &b| v << 8 | u64::from(b)),
    })
}

/// The bits of the `n` low bytes.
#[inline]
fn low_bytes(n: usize) -> u64 {
    u64::MAX.checked_shr(64 - 8 * n as u32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edges() -> Vec<u64> {
        let mut values: Vec<u64> = (0..64)
            .flat_map(|bit| [(1u64 << bit).wrapping_sub(1), 1 << bit, (1 << bit) + 1])
            .chain([240, 241, 2287, 2288, 67823, 67824, u64::MAX - 1, u64::MAX])
            .collect();
        values.sort_unstable();
        values.dedup();
        values
    }

    #[test]
    fn order_and_value_are_kept() {
        let bytes = |put: &dyn Fn(&mut Vec<u8>)| {
            let mut out = Vec::new();
            put(&mut out);
            out
        };
        let unsigned: Vec<_> = edges().iter().map(|&v| (v, bytes(&|o| put_u64(v, o)))).collect();
        assert!(unsigned.is_sorted_by(|a, b| a.1 < b.1));
        unsigned.iter().for_each(|(v, b)| comes_back(*v, b, len_u64(b[0]), take_u64));
        let mut signed: Vec<i64> = edges().iter().map(|&v| v as i64).collect();
        signed.sort_unstable();
        let signed: Vec<_> = signed.iter().map(|&v| (v, bytes(&|o| put_i64(v, o)))).collect();
        assert!(signed.is_sorted_by(|a, b| a.1 < b.1));
        signed.iter().for_each(|(v, b)| comes_back(*v, b, len_i64(b[0]).unwrap(), take_i64));
    }

    /// It is taken from between other bytes, and not if its last one is missing.
    fn comes_back<T: PartialEq + std::fmt::Debug>(
        value: T,
        bytes: &[u8],
        len: usize,
        take: fn(&[u8], &mut usize) -> Option<T>,
    ) {
        assert_eq!(bytes.len(), len);
        for before in [0, 1, 7, 8, 20] {
            for after in [0, 1, 9] {
                let whole = [&vec![0xa5; before][..], bytes, &vec![0x5a; after]].concat();
                let mut at = before;
                assert_eq!(take(&whole, &mut at).as_ref(), Some(&value), "{before} {after}");
                assert_eq!(at, before + len);
            }
            let short = [&vec![0xa5; before][..], &bytes[..len - 1]].concat();
            assert_eq!(take(&short, &mut before.clone()), None);
        }
    }
}

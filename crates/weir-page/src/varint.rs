//! LEB128 integers and a cursor that never panics on short input.

/// Where encoded operands go.
pub trait Sink {
    /// Appends one byte.
    fn put_u8(&mut self, byte: u8);
    /// Appends bytes.
    fn put_bytes(&mut self, bytes: &[u8]);
    /// Appends the first `len` of these bytes. A copy of all of them costs less than one of a
    /// length that is known only then.
    fn put_first<const N: usize>(&mut self, bytes: [u8; N], len: usize);
}

impl Sink for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, byte: u8) {
        self.push(byte);
    }

    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    #[inline]
    fn put_first<const N: usize>(&mut self, bytes: [u8; N], len: usize) {
        let end = self.len() + len;
        self.extend_from_slice(&bytes);
        self.truncate(end);
    }
}

/// Writes operands into bytes that are there already.
///
/// It panics when they run out.
pub struct Output<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Output<'a> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'a mut [u8]) -> Self {
        Output { bytes, len: 0 }
    }

    /// Number of bytes written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Sink for Output<'_> {
    #[inline]
    fn put_u8(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline]
    fn put_first<const N: usize>(&mut self, bytes: [u8; N], len: usize) {
        match self.bytes[self.len..].first_chunk_mut() {
            Some(room) => *room = bytes,
            None => self.bytes[self.len..self.len + len].copy_from_slice(&bytes[..len]),
        }
        self.len += len;
    }
}

/// Appends `v`, seven bits a byte, low bits first.
#[inline]
pub fn put(out: &mut impl Sink, v: u64) {
    let bits = u64::BITS - (v | 1).leading_zeros();
    let len = bits.div_ceil(7);
    if len > 8 {
        return put_by_bytes(out, v);
    }
    // All bytes but the last say that another follows.
    let follow = HIGH_BITS & !(u64::MAX << (8 * (len - 1)));
    out.put_first((split_groups(v) | follow).to_le_bytes(), len as usize);
}

#[cold]
fn put_by_bytes(out: &mut impl Sink, mut v: u64) {
    while v >= 0x80 {
        out.put_u8(v as u8 | 0x80);
        v >>= 7;
    }
    out.put_u8(v as u8);
}

/// Reads operands from a byte slice. What rows need of it is inlined: one whose address is passed
/// on lies in memory, where each step waits for the one before.
pub struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    /// A cursor at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Input { rest: bytes }
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// The next `n` bytes.
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        if n > self.rest.len() {
            return None;
        }
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest;
        Some(head)
    }

    /// The next u16, little-endian.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes(2)?.try_into().ok()?))
    }

    /// The next LEB128 integer; `None` when cut or longer than 64 bits.
    #[inline(always)]
    pub fn varint(&mut self) -> Option<u64> {
        match self.short_varint() {
            Some((len, groups)) => {
                self.rest = &self.rest[len..];
                Some(join_groups(groups))
            }
            None => self.take_by_bytes(),
        }
    }

    /// Steps over a LEB128 integer; `None` as for [`Input::varint`].
    #[inline]
    pub fn skip_varint(&mut self) -> Option<()> {
        match self.short_varint() {
            Some((len, _)) => self.rest = &self.rest[len..],
            None => drop(self.take_by_bytes()?),
        }
        Some(())
    }

    /// Steps over so many LEB128 integers; `None` when they are cut. Doesn't look whether each has
    /// at most 64 bits.
    #[inline]
    pub fn skip_varints(&mut self, mut n: usize) -> Option<()> {
        while n > 0
            && let Some((word, rest)) = self.rest.split_first_chunk()
        {
            let mut ends = !u64::from_le_bytes(*word) & HIGH_BITS;
            while ends != 0 {
                if n == 1 {
                    self.rest = &self.rest[ends.trailing_zeros() as usize / 8 + 1..];
                    return Some(());
                }
                n -= 1;
                ends &= ends - 1;
            }
            self.rest = rest;
        }
        while n > 0 {
            n -= usize::from(self.u8()? < 0x80);
        }
        Some(())
    }

    /// Length of the integer and its bytes, if it has at most eight and so many can be read at
    /// once.
    #[inline(always)]
    fn short_varint(&self) -> Option<(usize, u64)> {
        let word = u64::from_le_bytes(*self.rest.first_chunk()?);
        let bits = (!word & HIGH_BITS).trailing_zeros() + 1;
        (bits <= 64).then(|| (bits as usize / 8, word & (u64::MAX >> (64 - bits))))
    }

    // By value, so that the reader stays in registers.
    #[inline(always)]
    fn take_by_bytes(&mut self) -> Option<u64> {
        let (v, rest) = varint_by_bytes(self.rest)?;
        self.rest = rest;
        Some(v)
    }

    /// The bytes behind a length, a LEB128 integer.
    #[inline(always)]
    pub fn slice(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.varint()?).ok()?;
        self.bytes(n)
    }
}

/// The integer at the start, and what follows it.
#[inline(never)]
fn varint_by_bytes(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut v = 0u64;
    for (nth, &byte) in bytes.iter().enumerate().take(10) {
        if nth == 9 && byte > 1 {
            return None;
        }
        v |= u64::from(byte & 0x7f) << (7 * nth);
        if byte < 0x80 {
            return Some((v, &bytes[nth + 1..]));
        }
    }
    None
}

/// The bit of each byte that says that another follows.
const HIGH_BITS: u64 = 0x8080_8080_8080_8080;

/// Groups of seven of the low 56 bits, one in each byte.
#[inline]
fn split_groups(v: u64) -> u64 {
    let v = v & 0x0fff_ffff | (v & 0x00ff_ffff_f000_0000) << 4;
    let v = v & 0x0000_3fff_0000_3fff | (v & 0x0fff_c000_0fff_c000) << 2;
    v & 0x007f_007f_007f_007f | (v & 0x3f80_3f80_3f80_3f80) << 1
}

/// The low seven bits of each byte, side by side.
#[inline]
fn join_groups(groups: u64) -> u64 {
    let v = groups & !HIGH_BITS;
    let v = v & 0x007f_007f_007f_007f | (v & 0x7f00_7f00_7f00_7f00) >> 1;
    let v = v & 0x0000_3fff_0000_3fff | (v & 0x3fff_0000_3fff_0000) >> 2;
    v & 0x0fff_ffff | (v & 0x0fff_ffff_0000_0000) >> 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip() {
        let powers = (0..64).map(|bit| 1u64 << bit);
        for v in powers.flat_map(|power| [power - 1, power, power | power >> 1, !power]) {
            for follow in [0, 3, 20] {
                let mut out = Vec::new();
                put(&mut out, v);
                for room in [out.len(), out.len() + 20] {
                    let mut bytes = vec![0xa5; room];
                    let mut output = Output::new(&mut bytes);
                    put(&mut output, v);
                    assert_eq!(output.len(), out.len());
                    assert_eq!(bytes[..out.len()], out);
                }
                let cut = out.len() - 1;
                assert_eq!(Input::new(&out[..cut]).varint(), None);
                out.resize(out.len() + follow, 0xff);
                let mut input = Input::new(&out);
                assert_eq!(input.varint(), Some(v));
                assert_eq!(input.rest().len(), follow);
                let mut input = Input::new(&out);
                assert_eq!(input.skip_varint(), Some(()));
                assert_eq!(input.rest().len(), follow);
            }
        }
    }

    #[test]
    fn several_are_stepped_over_together() {
        let values: Vec<u64> = (0..64).map(|bit| u64::MAX >> (bit * 29 % 64)).collect();
        let mut bytes = Vec::new();
        let ends: Vec<usize> = (values.iter())
            .map(|&v| {
                put(&mut bytes, v);
                bytes.len()
            })
            .collect();
        for n in 1..=values.len() {
            let mut input = Input::new(&bytes);
            assert_eq!(input.skip_varints(n), Some(()));
            assert_eq!(input.rest(), &bytes[ends[n - 1]..]);
            assert_eq!(Input::new(&bytes[..ends[n - 1] - 1]).skip_varints(n), None);
        }
        let mut input = Input::new(&bytes);
        assert_eq!(input.skip_varints(0), Some(()));
        assert_eq!(input.rest(), bytes);
    }

    #[test]
    fn more_than_64_bits_are_none() {
        for last in [0x02, 0x80, 0xff] {
            let bytes = [&[0xff; 9][..], &[last, 0, 0, 0]].concat();
            assert_eq!(Input::new(&bytes).varint(), None);
            assert_eq!(Input::new(&bytes).skip_varint(), None);
        }
    }
}

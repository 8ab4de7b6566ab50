//! Keys longer than a tree takes, and their short forms.
//!
//! A *long* key has more than [`PLAIN`] bytes. A tree keeps its row or entry under the key's *short
//! form*, and what the short form lacks behind the value. Any other key is stored as it is.
//!
//! # Persisted form
//! | | bytes |
//! |---|---|
//! | key | the first 3,500 of the long key: its *stem*; then SHA-256 of the others: its *rest* |
//! | value | the value; the rest; u32 LE length of the rest |
//!
//! A stored key of more than 3,500 bytes is a short form, therefore, and has 3,532.
//!
//! # Order
//! Stored keys are in the order of the keys, but for those that share a stem: their short forms are
//! in no order that means anything, and who scans sorts them (`engine/stem.rs`).
//!
//! Equal keys have equal short forms. Two different ones with the same short form would be a
//! collision of SHA-256, of which none is known; the second would be refused as a duplicate.

use super::KEY_BYTES_MAX;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use weir_page::node::MAX_KEY;

/// Bytes of the hash in a short form.
const HASH: usize = 32;
/// Bytes of the length behind a rest.
const LENGTH: usize = 4;
/// Longest short form, in bytes.
pub const SHORT_FORM_BYTES_MAX: usize = MAX_KEY;
/// Longest key that is stored as it is.
pub(crate) const PLAIN: usize = MAX_KEY - HASH;

/// Whether a key is stored under a short form.
#[inline]
pub(crate) fn is_long(key: &[u8]) -> bool {
    key.len() > PLAIN
}

/// Whether a stored key is a short form.
#[inline]
pub(crate) fn is_short_form(stored: &[u8]) -> bool {
    stored.len() > PLAIN
}

/// The bytes under which a tree keeps a key: the key, or, if it has more than 3,500 bytes, 3,532
/// that stand for it.
///
/// ```
/// assert_eq!(weir::short_form(b"plain"), &b"plain"[..]);
/// let (long, other) = (vec![7; 5000], vec![7; 5001]);
/// assert_eq!(weir::short_form(&long).len(), 3532);
/// assert_ne!(weir::short_form(&long), weir::short_form(&other));
/// ```
#[inline]
pub fn short_form(key: &[u8]) -> Cow<'_, [u8]> {
    if is_long(key) { Cow::Owned(shortened(key)) } else { Cow::Borrowed(key) }
}

#[cold]
fn shortened(key: &[u8]) -> Vec<u8> {
    let (stem, rest) = key.split_at(PLAIN);
    [stem, Sha256::digest(rest).as_slice()].concat()
}

/// A long key and what belongs to it, as they are stored.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

impl Stored {
    /// # Panics
    /// If the key isn't a long one.
    pub fn of(key: &[u8], value: &[u8]) -> Stored {
        assert!(is_long(key) && key.len() <= KEY_BYTES_MAX, "a key of {} bytes", key.len());
        let rest = &key[PLAIN..];
        let value = [value, rest, &(rest.len() as u32).to_le_bytes()].concat();
        Stored { key: shortened(key), value }
    }
}

/// Splits the value that is stored for a long key: what the caller gave, and the key's rest. `None`
/// if it isn't one.
pub(crate) fn split_rest(stored: &[u8]) -> Option<(&[u8], &[u8])> {
    let (rest, len) = stored.split_last_chunk::<LENGTH>()?;
    let len = u32::from_le_bytes(*len) as usize;
    (len > 0 && len <= KEY_BYTES_MAX).then_some(())?;
    rest.split_at_checked(rest.len().checked_sub(len)?)
}

/// The key whose short form and rest these are.
pub(crate) fn whole_key(short_form: &[u8], rest: &[u8]) -> Vec<u8> {
    [&short_form[..PLAIN], rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_key_and_its_value_are_golden() {
        let mut key = vec![b'k'; PLAIN];
        assert!(matches!(short_form(&key), Cow::Borrowed(_)));
        key.extend_from_slice(b"abc");
        let stored = Stored::of(&key, b"value");
        let of_abc = [
            0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae,
            0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61,
            0xf2, 0x00, 0x15, 0xad,
        ];
        assert_eq!(stored.key, [&key[..PLAIN], &of_abc].concat());
        assert_eq!(stored.key, *short_form(&key));
        assert_eq!(stored.key.len(), MAX_KEY);
        assert_eq!(stored.value, *b"valueabc\x03\0\0\0");
        assert_eq!(split_rest(&stored.value), Some((&b"value"[..], &b"abc"[..])));
        assert_eq!(whole_key(&stored.key, b"abc"), key);
    }

    #[test]
    fn what_was_not_stored_for_a_long_key_is_no_split() {
        for bytes in [&b""[..], b"abc", b"\0\0\0\0", b"x\x02\0\0\0", b"xx\xff\xff\xff\xff"] {
            assert_eq!(split_rest(bytes), None, "{bytes:?}");
        }
    }
}

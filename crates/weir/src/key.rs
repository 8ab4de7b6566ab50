//! Keys: column values as bytes whose order is the order of the values, and ranges of them.
//!
//! # Persisted form
//! A key is its columns' encodings, one after the other. None is a prefix of another of the same
//! column, so keys compare column by column, and the keys that begin with given values are those
//! that begin with their bytes. Compared as bytes (memcmp):
//!
//! | column | bytes |
//! |---|---|
//! | nullable, NULL | 00 |
//! | nullable, other | 01, then as below |
//! | bool | 00 or 01 |
//! | i64, u64 | 1 to 9, see `integer` |
//! | f64 | 8, big-endian; sign bit flipped if positive, else all bits (IEEE 754 total order) |
//! | text, bytes | each 00 as 00 FF; then 00 01 |
//!
//! # Trees
//! | tree | key | value |
//! |---|---|---|
//! | primary | primary key | the other columns (`row`) |
//! | index | index columns, then primary key columns that are not among them | empty |
//! | unique index | index columns | the primary key's bytes |
//! | unique index, an index column is NULL | as an index that is not unique | empty |
//!
//! The last line lets any number of rows have NULL in a unique index. A primary key is never empty,
//! so an empty value tells the two forms apart.

mod integer;
pub(crate) mod long;
#[cfg(test)]
pub(crate) mod tests;

use crate::row::{RowError, Unpacked};
use crate::schema::{Column, KeyOf, Schema};
use crate::value::{OwnedValue, Type, Value};
use std::ops::Bound;

/// Longest key, in bytes.
pub const KEY_BYTES_MAX: usize = 256 << 10;

const NULL: u8 = 0;
const PRESENT: u8 = 1;
const ESCAPE: u8 = 0;
const ESCAPED_ZERO: u8 = 0xff;
const END: u8 = 1;
const SIGN: u64 = 1 << 63;

/// Appends the key that a tree has for the first `values.len()` of its key columns
/// ([`Schema::key_parts`]); a prefix is fine for searching.
///
/// # Errors
/// [`RowError`]; `out` is as before.
pub fn encode_key(
    schema: &Schema,
    of: KeyOf,
    values: &[Value<'_>],
    out: &mut Vec<u8>,
) -> Result<(), RowError> {
    let parts = schema.key_parts(of);
    if values.len() > parts.len() {
        let (what, expected) = (schema.key_name(of), parts.len());
        return Err(RowError::Count { what, expected, found: values.len() });
    }
    encode_parts(schema, of, &parts[..values.len()], |nth, _| Ok(values[nth]), out)
}

/// Appends the primary key of a row.
///
/// # Errors
/// [`RowError`]; `out` is as before.
pub fn encode_primary_key(
    schema: &Schema,
    row: &[Value<'_>],
    out: &mut Vec<u8>,
) -> Result<(), RowError> {
    crate::row::check_count(schema, row)?;
    let parts = schema.primary_key();
    encode_parts(schema, KeyOf::Primary, parts, |_, column| Ok(row[column]), out)
}

/// Appends `parts`, whose values `get` gives by place in the key and position in the table.
pub(crate) fn encode_parts<'v>(
    schema: &Schema,
    of: KeyOf,
    parts: &[u16],
    get: impl Fn(usize, usize) -> Result<Value<'v>, RowError>,
    out: &mut Vec<u8>,
) -> Result<(), RowError> {
    let start = out.len();
    let mut append = || {
        for (nth, &column) in parts.iter().enumerate() {
            let value = get(nth, column as usize)?;
            put_part(&schema.columns()[column as usize], value, out)?;
            if out.len() - start > KEY_BYTES_MAX {
                let (key, bytes) = (schema.key_name(of), out.len() - start);
                return Err(RowError::KeyTooLong { key, bytes });
            }
        }
        Ok(())
    };
    let result = append();
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn put_part(column: &Column, value: Value<'_>, out: &mut Vec<u8>) -> Result<(), RowError> {
    if column.nullable() {
        if value.is_null() {
            out.push(NULL);
            return Ok(());
        }
        out.push(PRESENT);
    }
    match (column.column_type(), value) {
        (Type::Bool, Value::Bool(v)) => out.push(u8::from(v)),
        (Type::I64, Value::I64(v)) => integer::put_i64(v, out),
        (Type::U64, Value::U64(v)) => integer::put_u64(v, out),
        (Type::F64, Value::F64(v)) => out.extend_from_slice(&ordered_bits(v).to_be_bytes()),
        (Type::Text, Value::Text(v)) => put_escaped(v.as_bytes(), out),
        (Type::Bytes, Value::Bytes(v)) => put_escaped(v, out),
        _ => return Err(RowError::mismatch(column, value)),
    }
    Ok(())
}

fn put_escaped(bytes: &[u8], out: &mut Vec<u8>) {
    // A longer one is an error whatever follows: don't copy all of it.
    let mut rest = &bytes[..bytes.len().min(KEY_BYTES_MAX)];
    while let Some(at) = rest.iter().position(|&byte| byte == ESCAPE) {
        out.extend_from_slice(&rest[..=at]);
        out.push(ESCAPED_ZERO);
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.extend_from_slice(&[ESCAPE, END]);
}

fn ordered_bits(v: f64) -> u64 {
    let bits = v.to_bits();
    if bits & SIGN == 0 { bits ^ SIGN } else { !bits }
}

fn from_ordered_bits(bits: u64) -> f64 {
    f64::from_bits(if bits & SIGN == 0 { !bits } else { bits ^ SIGN })
}

/// Reads the columns of a key one after the other. All of it is inlined: one whose address is
/// passed on lies in memory, where a key written as two words and read as one costs a wait.
pub(crate) struct KeyReader<'a> {
    key: &'a [u8],
    at: usize,
}

impl<'a> KeyReader<'a> {
    /// Before the first column.
    #[inline]
    pub fn new(key: &'a [u8]) -> Self {
        KeyReader::at(key, 0)
    }

    /// Where another reader of the key was.
    #[inline]
    pub fn at(key: &'a [u8], position: usize) -> Self {
        KeyReader { key, at: position }
    }

    /// How many bytes it has read.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Whether all has been read.
    pub fn is_at_end(&self) -> bool {
        self.at == self.key.len()
    }

    /// Steps over the next column, and returns its bytes; `None` if they are not the encoding of
    /// one.
    #[inline(always)]
    pub fn skip(&mut self, column: &Column) -> Option<&'a [u8]> {
        let start = self.at;
        if !self.next_is_null(column)? {
            let tag = || self.key.get(self.at).copied();
            let len = match column.column_type() {
                Type::Bool => 1,
                Type::I64 => integer::len_i64(tag()?)?,
                Type::U64 => integer::len_u64(tag()?),
                Type::F64 => 8,
                Type::Text | Type::Bytes => escaped_len(&self.key[self.at..])?,
            };
            self.bytes(len)?;
        }
        Some(&self.key[start..self.at])
    }

    /// The next column's value; `None` if the bytes are not the encoding of one.
    #[inline(always)]
    pub fn next(&mut self, column: &Column) -> Option<Unpacked<'a>> {
        if self.next_is_null(column)? {
            return Some(Unpacked::NULL);
        }
        Some(match column.column_type() {
            Type::Bool => Unpacked::bool(self.bytes(1)?[0])?,
            Type::I64 => {
                Unpacked::number(Type::I64, integer::take_i64(self.key, &mut self.at)? as u64)
            }
            Type::U64 => Unpacked::number(Type::U64, integer::take_u64(self.key, &mut self.at)?),
            Type::F64 => {
                let bits = u64::from_be_bytes(*self.bytes(8)?.first_chunk()?);
                Unpacked::number(Type::F64, from_ordered_bits(bits).to_bits())
            }
            text @ (Type::Text | Type::Bytes) => {
                let len = escaped_len(&self.key[self.at..])?;
                let (bytes, _end) = self.bytes(len)?.split_last_chunk::<2>()?;
                Unpacked::bytes(text, bytes, bytes.contains(&ESCAPE))
            }
        })
    }

    /// Whether the next column is NULL; steps over the byte that says so.
    #[inline]
    fn next_is_null(&mut self, column: &Column) -> Option<bool> {
        if !column.nullable() {
            return Some(false);
        }
        match self.bytes(1)? {
            [NULL] => Some(true),
            [PRESENT] => Some(false),
            _ => None,
        }
    }

    #[inline]
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.key.get(self.at..self.at + len)?;
        self.at += len;
        Some(bytes)
    }
}

/// Length of escaped bytes with their end.
fn escaped_len(bytes: &[u8]) -> Option<usize> {
    let mut from = 0;
    loop {
        let at = from + bytes[from..].iter().position(|&byte| byte == ESCAPE)?;
        match *bytes.get(at + 1)? {
            END => return Some(at + 2),
            ESCAPED_ZERO => from = at + 2,
            _ => return None,
        }
    }
}

/// The value of an [`Unpacked`] that is escaped; `None` for a text that is none.
pub(crate) fn unescape(of: Type, escaped: &[u8]) -> Option<OwnedValue> {
    let mut plain = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some(at) = rest.iter().position(|&byte| byte == ESCAPE) {
        plain.extend_from_slice(&rest[..=at]);
        rest = rest.get(at + 2..)?;
    }
    plain.extend_from_slice(rest);
    Some(match of {
        Type::Text => OwnedValue::Text(String::from_utf8(plain).ok()?),
        _ => OwnedValue::Bytes(plain),
    })
}

/// The values of a tree's key, as many as it has.
///
/// # Errors
/// [`RowError::Malformed`] if the bytes are not such a key.
pub fn decode_key(schema: &Schema, of: KeyOf, key: &[u8]) -> Result<Vec<OwnedValue>, RowError> {
    let parts = schema.key_parts(of);
    let mut values = Vec::with_capacity(parts.len());
    let mut reader = KeyReader::new(key);
    for &at in parts {
        if reader.is_at_end() {
            break;
        }
        let column = &schema.columns()[at as usize];
        let value = reader.next(column).and_then(Unpacked::to_owned);
        values.push(value.ok_or_else(|| RowError::malformed(column))?);
    }
    match (reader.is_at_end(), parts.last()) {
        (false, Some(&last)) => Err(RowError::malformed(&schema.columns()[last as usize])),
        _ => Ok(values),
    }
}

/// A range of a tree's keys: from `lower` inclusive to `upper` exclusive.
///
/// ```
/// use std::ops::Bound::{Excluded, Included, Unbounded};
/// use weir::key::{KeyRange, encode_key};
/// use weir::schema::{KeyOf, Schema};
/// use weir::value::{Type, Value};
///
/// let schema = Schema::builder()
///     .column("country", Type::Text)
///     .column("year", Type::I64)
///     .primary_key(&["country", "year"])
///     .build()?;
/// let range = KeyRange::new(
///     &schema,
///     KeyOf::Primary,
///     Excluded(&["at".into(), 1999.into()]),
///     Included(&["ch".into()]),
/// )?;
/// let key = |country: &str, year: i64| {
///     let mut key = Vec::new();
///     encode_key(&schema, KeyOf::Primary, &[country.into(), year.into()], &mut key).map(|()| key)
/// };
/// assert!(!range.contains(&key("at", 1999)?));
/// assert!(range.contains(&key("at", 2000)?));
/// assert!(range.contains(&key("ch", 9999)?));
/// assert!(!range.contains(&key("cz", 0)?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> KeyRange {
        KeyRange { lower: Vec::new(), upper: None }
    }

    /// No key.
    pub fn empty() -> KeyRange {
        KeyRange { lower: Vec::new(), upper: Some(Vec::new()) }
    }

    /// The keys whose first columns have the given values.
    ///
    /// # Errors
    /// [`RowError`].
    pub fn prefix(schema: &Schema, of: KeyOf, values: &[Value<'_>]) -> Result<KeyRange, RowError> {
        Self::new(schema, of, Bound::Included(values), Bound::Included(values))
    }

    /// The keys between two prefixes. An included prefix includes, and an excluded one excludes,
    /// every key whose first columns have its values.
    ///
    /// # Errors
    /// [`RowError`].
    pub fn new(
        schema: &Schema,
        of: KeyOf,
        from: Bound<&[Value<'_>]>,
        to: Bound<&[Value<'_>]>,
    ) -> Result<KeyRange, RowError> {
        let encode = |values: &[Value<'_>]| {
            let mut key = Vec::new();
            encode_key(schema, of, values, &mut key).map(|()| key)
        };
        let lower = match from {
            Bound::Unbounded => Some(Vec::new()),
            Bound::Included(values) => Some(encode(values)?),
            Bound::Excluded(values) => after_prefix(encode(values)?),
        };
        let upper = match to {
            Bound::Unbounded => None,
            Bound::Included(values) => after_prefix(encode(values)?),
            Bound::Excluded(values) => Some(encode(values)?),
        };
        let Some(lower) = lower else { return Ok(KeyRange::empty()) };
        Ok(KeyRange { lower, upper })
    }

    /// The first key that may be in the range.
    pub fn lower(&self) -> &[u8] {
        &self.lower
    }

    /// The first key behind the range; `None` if it goes to the end.
    pub fn upper(&self) -> Option<&[u8]> {
        self.upper.as_deref()
    }

    /// Whether a key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        *key >= *self.lower && self.upper.as_deref().is_none_or(|upper| key < upper)
    }

    /// Whether no key can be in the range.
    pub fn is_empty(&self) -> bool {
        self.upper.as_ref().is_some_and(|upper| *upper <= self.lower)
    }
}

/// The least bytes greater than all that begin with `prefix`; `None` if there are none.
pub(crate) fn after_prefix(mut prefix: Vec<u8>) -> Option<Vec<u8>> {
    while prefix.pop_if(|last| *last == 0xff).is_some() {}
    *prefix.last_mut()? += 1;
    Some(prefix)
}

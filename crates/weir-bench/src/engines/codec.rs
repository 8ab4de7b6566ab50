//! Rows and index entries as bytes, for engines that store bytes.
//!
//! Keys compare as bytes in the order of their columns: every number is big-endian and of fixed
//! width, 4 bytes where SQL would have an `int`, 8 for dates and transaction ids. An index key is
//! the index's columns and the primary key; its value is empty. A row's value is every column but
//! the primary key, the text last.

use crate::engine::IndexEntry;
use crate::error::{Error, Result};
use crate::row::{DATA_MAX, Data, IndexKey, Row, Secondary};

/// Longest index key.
pub const KEY_MAX: usize = 24;
const ROW_FIXED: usize = 24;

/// Bytes of at most `N`, held in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes<const N: usize> {
    bytes: [u8; N],
    len: u8,
}

impl<const N: usize> Bytes<N> {
    fn empty() -> Self {
        Bytes { bytes: [0; N], len: 0 }
    }

    /// A copy of `bytes`; `None` when they are too many.
    pub fn copy(bytes: &[u8]) -> Option<Self> {
        let mut copy = Self::empty();
        (bytes.len() <= N).then(|| copy.push(bytes))?;
        Some(copy)
    }

    fn push(&mut self, bytes: &[u8]) {
        let len = usize::from(self.len);
        self.bytes[len..len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// An index key.
pub type Key = Bytes<KEY_MAX>;
/// A row without its primary key.
pub type Value = Bytes<{ ROW_FIXED + DATA_MAX }>;

/// Widths of an index's columns.
fn widths(index: Secondary) -> [usize; 3] {
    match index {
        Secondary::Market | Secondary::Register => [4, 4, 4],
        Secondary::Price => [4, 8, 4],
    }
}

/// The primary key.
pub fn primary_key(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// The entry of the row `id` with the columns `key`.
pub fn index_key(index: Secondary, key: &IndexKey, id: u64) -> Key {
    let mut bytes = Key::empty();
    for (column, width) in key.iter().zip(widths(index)) {
        bytes.push(&column.to_be_bytes()[8 - width..]);
    }
    bytes.push(&id.to_be_bytes());
    bytes
}

/// The entry that `bytes` stand for; `None` when they are no key of this index.
fn index_entry(index: Secondary, bytes: &[u8]) -> Option<IndexEntry> {
    let mut rest = bytes;
    let mut key = [0; 3];
    for (column, width) in key.iter_mut().zip(widths(index)) {
        *column = number(rest.get(..width)?);
        rest = &rest[width..];
    }
    (rest.len() == 8).then(|| IndexEntry { key, id: number(rest) })
}

/// The primary key at the end of any key, primary or secondary.
pub fn id_of(key: &[u8]) -> Option<u64> {
    Some(number(key.get(key.len().checked_sub(8)?..)?))
}

/// All columns but the primary key.
pub fn row_value(row: &Row) -> Value {
    let mut bytes = Value::empty();
    bytes.push(&row.dateandtime.to_be_bytes());
    for column in [row.cashregisterid, row.customerid, row.productid, row.price] {
        bytes.push(&column.to_be_bytes());
    }
    bytes.push(row.data.as_bytes());
    bytes
}

/// The text of a row's value; nothing when it is none of [`row_value`]'s.
pub fn text(value: &[u8]) -> &[u8] {
    value.get(ROW_FIXED..).unwrap_or_default()
}

/// The row that has this key and this value.
///
/// # Errors
/// [`Error::Contents`] of the engine that gave them, when they are none of this benchmark.
pub fn row_of(engine: &'static str, key: &[u8], value: &[u8]) -> Result<Row> {
    id_of(key).and_then(|id| row(id, value)).ok_or_else(|| {
        let message = format!("no row of this benchmark at key {key:02x?}");
        Error::Contents { engine, message }
    })
}

/// The entry that an index has by this key.
///
/// # Errors
/// As [`row_of`].
pub fn entry_of(engine: &'static str, index: Secondary, key: &[u8]) -> Result<IndexEntry> {
    index_entry(index, key).ok_or_else(|| {
        let message = format!("no entry of {} at key {key:02x?}", index.name());
        Error::Contents { engine, message }
    })
}

/// The row `id`; `None` when `value` is none of [`row_value`]'s.
fn row(id: u64, value: &[u8]) -> Option<Row> {
    let text = value.get(ROW_FIXED..)?;
    let column = |at: usize| number(&value[at..at + 4]) as u32;
    (text.len() <= DATA_MAX && text.is_ascii()).then(|| Row {
        transactionid: id,
        dateandtime: number(&value[..8]),
        cashregisterid: column(8),
        customerid: column(12),
        productid: column(16),
        price: column(20),
        data: Data::new(text),
    })
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Generator;

    #[test]
    fn everything_reads_back() {
        let generator = Generator::new(5);
        for id in 1..2000 {
            let made = generator.row(0, id);
            assert_eq!(row(id, row_value(&made).as_slice()), Some(made));
            for index in Secondary::ALL {
                let key = index_key(index, &index.key(&made), id);
                let entry = IndexEntry { key: index.key(&made), id };
                assert_eq!(index_entry(index, key.as_slice()), Some(entry));
                assert_eq!(id_of(key.as_slice()), Some(id));
            }
        }
    }

    #[test]
    fn keys_order_as_their_columns() {
        let generator = Generator::new(6);
        for index in Secondary::ALL {
            let mut entries: Vec<_> = (1..500)
                .map(|id| IndexEntry { key: index.key(&generator.row(0, id)), id })
                .collect();
            let bytes = |entry: &IndexEntry| index_key(index, &entry.key, entry.id);
            let mut by_bytes = entries.clone();
            by_bytes.sort_by(|a, b| bytes(a).as_slice().cmp(bytes(b).as_slice()));
            entries.sort();
            assert_eq!(entries, by_bytes);
            // As keys are sorted before an index is filled.
            let mut keys: Vec<Key> = entries.iter().rev().map(bytes).collect();
            keys.sort_unstable();
            assert_eq!(keys, entries.iter().map(bytes).collect::<Vec<_>>());
        }
    }

    #[test]
    fn foreign_bytes_are_refused() {
        assert_eq!(row(1, &[0; 10]), None);
        assert_eq!(row(1, &[200; 30]), None);
        assert_eq!(index_entry(Secondary::Market, &[0; 19]), None);
        assert_eq!(id_of(&[1, 2, 3]), None);
    }
}

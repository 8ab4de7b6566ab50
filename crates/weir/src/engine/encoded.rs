//! The bytes of typed rows: of each its key and value, and those of its entries in the table's
//! indexes.

use super::catalog::TableDef;
use super::error::Result;
use super::write::Entry;
use crate::key::encode_primary_key;
use crate::row::{RowError, RowRef, encode_value, index_entry};
use crate::txn::Pair;
use crate::value::Value;

/// Most room that is made for rows before they come: the first may be the largest.
const RESERVE_BYTES_MAX: usize = 1 << 20;

/// Keys and values, end to end.
#[derive(Default)]
struct Pairs {
    bytes: Vec<u8>,
    /// Ends of keys and values, in turn.
    ends: Vec<usize>,
}

impl Pairs {
    /// What was added since the last call is a key, or a value.
    #[inline]
    fn end_part(&mut self) {
        self.ends.push(self.bytes.len());
    }

    /// Adds a row's entries; `entry` appends an index's key to the first, and its value to the
    /// second.
    fn push_entries(
        &mut self,
        indexes: usize,
        mut entry: impl FnMut(usize, &mut Vec<u8>, &mut Vec<u8>) -> std::result::Result<(), RowError>,
    ) -> Result<()> {
        let mut value = Vec::new();
        for index in 0..indexes {
            entry(index, &mut self.bytes, &mut value)?;
            self.end_part();
            self.bytes.append(&mut value);
            self.end_part();
        }
        Ok(())
    }

    #[inline]
    fn len(&self) -> usize {
        self.ends.len() / 2
    }

    #[inline]
    fn get(&self, n: usize) -> Pair<'_> {
        let start = if n == 0 { 0 } else { self.ends[2 * n - 1] };
        let (key_end, end) = (self.ends[2 * n], self.ends[2 * n + 1]);
        Pair { key: &self.bytes[start..key_end], value: &self.bytes[key_end..end] }
    }
}

/// A row's bytes.
#[derive(Default)]
pub struct Encoded {
    pub key: Vec<u8>,
    pub value: Vec<u8>,
    pub entries: Entries,
}

impl Encoded {
    /// Becomes those of a row.
    pub fn encode(&mut self, def: &TableDef, row: &[Value<'_>]) -> Result<()> {
        self.key.clear();
        self.value.clear();
        encode_primary_key(def.schema(), row, &mut self.key)?;
        encode_value(def.schema(), row, &mut self.value)?;
        self.entries.encode(def, row)
    }
}

/// A row's entries, one of each index.
#[derive(Default)]
pub struct Entries(Pairs);

impl Entries {
    /// Becomes those of a row.
    fn encode(&mut self, def: &TableDef, row: &[Value<'_>]) -> Result<()> {
        self.0.bytes.clear();
        self.0.ends.clear();
        self.0.push_entries(def.indexes.len(), |index, key, value| {
            index_entry(def.schema(), index, row, key, value)
        })
    }

    /// Those of a stored row.
    pub fn of_stored(def: &TableDef, key: &[u8], value: &[u8]) -> Result<Entries> {
        let mut entries = Pairs::default();
        let row = RowRef::primary(def.schema(), key, value);
        entries.push_entries(def.indexes.len(), |index, key, value| {
            row.index_entry(index, key, value)
        })?;
        Ok(Entries(entries))
    }

    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Entry<'_>> + Clone {
        (0..self.0.len()).map(|index| {
            let Pair { key, value } = self.0.get(index);
            Entry { index, key, value }
        })
    }
}

/// The bytes of many rows: each row, then its entries.
#[derive(Default)]
pub struct EncodedRows(Pairs);

impl EncodedRows {
    /// Adds a row.
    pub fn push(&mut self, def: &TableDef, row: &[Value<'_>]) -> Result<()> {
        encode_primary_key(def.schema(), row, &mut self.0.bytes)?;
        self.0.end_part();
        encode_value(def.schema(), row, &mut self.0.bytes)?;
        self.0.end_part();
        self.0.push_entries(def.indexes.len(), |index, key, value| {
            index_entry(def.schema(), index, row, key, value)
        })
    }

    /// Makes room for `more` rows like those that are there.
    pub fn reserve(&mut self, more: usize) {
        let Pairs { bytes, ends } = &mut self.0;
        bytes.reserve(bytes.len().saturating_mul(more).min(RESERVE_BYTES_MAX));
        ends.reserve(ends.len() * more);
    }

    /// Adds a stored row that is to be deleted: its key and those of its entries, without values.
    pub fn push_stored(&mut self, def: &TableDef, key: &[u8], value: &[u8]) -> Result<()> {
        let row = RowRef::primary(def.schema(), key, value);
        self.0.bytes.extend_from_slice(key);
        self.0.end_part();
        self.0.end_part();
        let mut unused = Vec::new();
        self.0.push_entries(def.indexes.len(), |index, key, _| {
            unused.clear();
            row.index_entry(index, key, &mut unused)
        })
    }

    /// How many they take.
    pub fn bytes(&self) -> usize {
        self.0.bytes.len()
    }

    /// The rows of a table with so many indexes, and the entries by index.
    pub fn pairs(&self, indexes: usize) -> (Vec<Pair<'_>>, Vec<(usize, Vec<Pair<'_>>)>) {
        let of_row = 1 + indexes;
        let all = |first| (first..self.0.len()).step_by(of_row).map(|n| self.0.get(n)).collect();
        (all(0), (0..indexes).map(|index| (index, all(1 + index))).collect())
    }
}

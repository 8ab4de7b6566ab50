//! Entries of secondary indexes. The forms are described at the head of `key`.

use super::{RowError, RowRef, check_count};
use crate::key::{KeyReader, encode_parts, encode_primary_key};
use crate::schema::{KeyOf, Schema};
use crate::value::Value;

/// Appends the key and the value that an index has for a row.
///
/// # Errors
/// [`RowError`]; both are as before.
///
/// # Panics
/// If there is no such index.
pub fn index_entry(
    schema: &Schema,
    index: usize,
    row: &[Value<'_>],
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<(), RowError> {
    check_count(schema, row)?;
    let start = key.len();
    if encode_index_key(schema, index, |column| Ok(row[column]), key)? {
        encode_primary_key(schema, row, value).inspect_err(|_| key.truncate(start))?;
    }
    Ok(())
}

impl RowRef<'_> {
    /// Appends the key and the value that an index has for this entry of the primary tree.
    ///
    /// # Errors
    /// [`RowError`]; both are as before.
    ///
    /// # Panics
    /// If there is no such index, or this is an entry of another index.
    pub fn index_entry(
        &self,
        index: usize,
        key: &mut Vec<u8>,
        value: &mut Vec<u8>,
    ) -> Result<(), RowError> {
        assert_eq!(self.tree, KeyOf::Primary, "only the primary tree has every column");
        if encode_index_key(self.schema, index, |column| self.get(column), key)? {
            value.extend_from_slice(self.key);
        }
        Ok(())
    }
}

/// Appends the key; says whether the primary key goes to the value.
fn encode_index_key<'v>(
    schema: &Schema,
    index: usize,
    get: impl Fn(usize) -> Result<Value<'v>, RowError>,
    key: &mut Vec<u8>,
) -> Result<bool, RowError> {
    let of_index = &schema.indexes()[index];
    let mut split = of_index.unique();
    for &column in of_index.columns() {
        split = split && !get(column as usize)?.is_null();
    }
    let parts = if split { of_index.columns() } else { of_index.parts() };
    encode_parts(schema, KeyOf::Index(index), parts, |_, column| get(column), key)?;
    Ok(split)
}

/// Appends the key that the primary tree has for the row of an index entry.
///
/// # Errors
/// [`RowError::Malformed`] if the bytes are no entry of this index; `out` is as before.
///
/// # Panics
/// If there is no such index.
pub fn primary_key_of_entry(
    schema: &Schema,
    index: usize,
    key: &[u8],
    value: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), RowError> {
    if !value.is_empty() {
        out.extend_from_slice(value);
        return Ok(());
    }
    let parts = schema.indexes()[index].parts();
    let start = out.len();
    for &wanted in schema.primary_key() {
        let mut reader = KeyReader::new(key);
        for &part in parts {
            let column = &schema.columns()[part as usize];
            let Some(bytes) = reader.skip(column) else {
                out.truncate(start);
                return Err(RowError::malformed(column));
            };
            if part == wanted {
                out.extend_from_slice(bytes);
                break;
            }
        }
    }
    Ok(())
}

//! Rows: the value bytes of the primary tree, rows read column by column, and index entries.
//!
//! # Persisted form
//! The columns that are not in the primary key, in the table's order:
//!
//! | bytes | field |
//! |---|---|
//! | (nullable columns + 7) / 8 | null bitmap: bit n (low first) is set if the n-th nullable one is NULL |
//! | per column that is not NULL | bool: 00 or 01; i64: zigzag LEB128; u64: LEB128; f64: 8, little-endian; text, bytes: length as LEB128, then the bytes |
//! | per column that was added to the table, in the order of that | 00 for NULL, or 01 and then as above; a row that ends before has the column's default |
//!
//! A column that was dropped has its place, too: NULL if it may be, else 0, 0.0, false, or an empty
//! text.

mod index;
mod owned;
#[cfg(test)]
mod tests;
mod unpacked;

pub use index::{index_entry, primary_key_of_entry};
pub use owned::Row;
pub(crate) use unpacked::Unpacked;

use crate::key::{KEY_BYTES_MAX, KeyReader, unescape};
use crate::schema::{Column, KeyOf, Place, Schema, ValueColumn};
use crate::value::{OwnedValue, Type, Value};
use std::cell::{Cell, OnceCell};
use std::fmt;
use weir_page::varint::{self, Input};

/// Why values are not a row, or bytes not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// Not as many values as there are columns.
    #[error("{what} has {expected} columns; {found} values were given")]
    Count {
        /// The row, or which key.
        what: String,
        /// Columns.
        expected: usize,
        /// Values.
        found: usize,
    },
    /// A value is of another type than its column.
    #[error("the column `{column}` is of type {expected}; a value of type {found} was given")]
    Type {
        /// The column.
        column: String,
        /// Its type.
        expected: Type,
        /// The value's type.
        found: Type,
    },
    /// NULL in a column that is not nullable.
    #[error("the column `{column}` must not be NULL")]
    Null {
        /// The column.
        column: String,
    },
    /// An encoded key is too long.
    #[error("{key}: the encoded key has at least {bytes} bytes; {KEY_BYTES_MAX} are allowed")]
    KeyTooLong {
        /// Which key.
        key: String,
        /// Encoded bytes, up to the column that is too much.
        bytes: usize,
    },
    /// A raw key has no byte.
    #[error("{key}: a key has at least one byte")]
    EmptyKey {
        /// Which key.
        key: String,
    },
    /// An index does not have the column.
    #[error("the column `{column}` is not in the {index}")]
    NotCovered {
        /// The column.
        column: String,
        /// The index.
        index: String,
    },
    /// The bytes are not a row of this schema.
    #[error("the stored bytes of the column `{column}` are malformed")]
    Malformed {
        /// The column, or the last one before bytes that belong to none.
        column: String,
    },
}

impl RowError {
    #[cold]
    pub(crate) fn mismatch(column: &Column, value: Value<'_>) -> RowError {
        let name = column.name().to_string();
        match value.column_type() {
            None => RowError::Null { column: name },
            Some(found) => RowError::Type { column: name, expected: column.column_type(), found },
        }
    }

    #[cold]
    pub(crate) fn malformed(column: &Column) -> RowError {
        RowError::Malformed { column: column.name().to_string() }
    }
}

pub(crate) fn check_count(schema: &Schema, row: &[Value<'_>]) -> Result<(), RowError> {
    if row.len() != schema.columns().len() {
        let (what, expected) = ("the row".to_string(), schema.columns().len());
        return Err(RowError::Count { what, expected, found: row.len() });
    }
    Ok(())
}

/// Appends the value that the primary tree has for a row: the columns not in the primary key.
///
/// # Errors
/// [`RowError`]; `out` is as before.
pub fn encode_value(schema: &Schema, row: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), RowError> {
    check_count(schema, row)?;
    let start = out.len();
    let result = put_columns(schema, row, out);
    if result.is_err() {
        out.truncate(start);
    }
    result
}

fn put_columns(schema: &Schema, row: &[Value<'_>], out: &mut Vec<u8>) -> Result<(), RowError> {
    let bitmap = out.len();
    out.resize(bitmap + schema.bitmap_bytes(), 0);
    let mut nullable = 0;
    for of in schema.value_columns() {
        let value = row.get(usize::from(of.at)).copied().unwrap_or_else(|| in_dropped(of));
        let is_null = value.is_null() && of.nullable;
        if of.added {
            out.push(u8::from(!is_null));
        } else if of.nullable {
            out[bitmap + nullable / 8] |= u8::from(is_null) << (nullable % 8);
            nullable += 1;
        }
        match (of.column_type, value) {
            (Type::Bool, Value::Bool(v)) => out.push(u8::from(v)),
            (Type::I64, Value::I64(v)) => varint::put(out, zigzag(v)),
            (Type::U64, Value::U64(v)) => varint::put(out, v),
            (Type::F64, Value::F64(v)) => out.extend_from_slice(&v.to_le_bytes()),
            (Type::Text, Value::Text(v)) => put_bytes(v.as_bytes(), out),
            (Type::Bytes, Value::Bytes(v)) => put_bytes(v, out),
            _ if is_null => {}
            _ => return Err(RowError::mismatch(schema.of_value(of), value)),
        }
    }
    Ok(())
}

/// What a row has in the place of a column that was dropped.
#[cold]
fn in_dropped(column: &ValueColumn) -> Value<'static> {
    match column.column_type {
        _ if column.nullable => Value::Null,
        Type::Bool => Value::Bool(false),
        Type::I64 => Value::I64(0),
        Type::U64 => Value::U64(0),
        Type::F64 => Value::F64(0.0),
        Type::Text => Value::Text(""),
        Type::Bytes => Value::Bytes(b""),
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn zigzag(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

fn unzigzag(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

/// A column at its beginning.
enum Begun {
    /// Its value follows.
    Bytes,
    /// It is NULL, and has no more bytes.
    Null,
    /// The row ends before it: it has its default.
    Default,
}

/// Reads value columns one after the other.
struct ValueReader<'a> {
    schema: &'a Schema,
    bitmap: &'a [u8],
    /// What follows the bitmap.
    bytes: &'a [u8],
    input: Input<'a>,
    /// Columns that it has read, and those in the bitmap among them.
    columns: usize,
    nullable: usize,
}

impl<'a> ValueReader<'a> {
    #[inline(always)]
    fn at(schema: &'a Schema, value: &'a [u8], from: Reached) -> Option<Self> {
        let (bitmap, bytes) = value.split_at_checked(schema.bitmap_bytes())?;
        let input = Input::new(&bytes[from.bytes as usize..]);
        let (columns, nullable) = (from.columns.into(), from.nullable.into());
        Some(ValueReader { schema, bitmap, bytes, input, columns, nullable })
    }

    /// Notes how far it has read.
    #[inline(always)]
    fn note(&self, at: &Cell<Reached>) {
        let bytes = self.bytes.len() - self.input.rest().len();
        Reached::note(at, self.columns, self.nullable, bytes);
    }

    /// Begins with the next column.
    #[inline(always)]
    fn begin(&mut self) -> Option<(Type, Begun)> {
        let of = self.schema.value_columns()[self.columns];
        self.columns += 1;
        let begun = if of.added {
            match self.input.rest() {
                [] => Begun::Default,
                _ => match self.input.u8()? {
                    0 => Begun::Null,
                    1 => Begun::Bytes,
                    _ => return None,
                },
            }
        } else if of.nullable {
            let bit = self.nullable;
            self.nullable += 1;
            match self.bitmap[bit / 8] & (1 << (bit % 8)) {
                0 => Begun::Bytes,
                _ => Begun::Null,
            }
        } else {
            Begun::Bytes
        };
        Some((of.column_type, begun))
    }

    /// Steps over the columns before the n-th; `None` if the bytes are not the encodings of such.
    /// Whether an integer beside others has at most 64 bits is left to who reads it.
    #[inline(always)]
    fn skip_to(&mut self, nth: usize) -> Option<()> {
        while self.columns < nth {
            let integers = self.schema.value_columns()[self.columns].integers.into();
            let together = (nth - self.columns).min(integers);
            if together > 0 {
                self.input.skip_varints(together)?;
                self.columns += together;
            } else {
                self.skip()?;
            }
        }
        Some(())
    }

    /// Steps over the next column; `None` if the bytes are not the encoding of one.
    #[inline(always)]
    fn skip(&mut self) -> Option<()> {
        let (column_type, Begun::Bytes) = self.begin()? else { return Some(()) };
        match column_type {
            Type::Bool => self.input.u8().map(drop),
            Type::I64 | Type::U64 => self.input.skip_varint(),
            Type::F64 => self.input.bytes(8).map(drop),
            Type::Text | Type::Bytes => self.input.slice().map(drop),
        }
    }

    /// The next column's value; `None` as for [`ValueReader::skip`].
    #[inline(always)]
    fn next(&mut self) -> Option<Unpacked<'a>> {
        let (column_type, begun) = self.begin()?;
        match begun {
            Begun::Bytes => {}
            Begun::Null => return Some(Unpacked::NULL),
            Begun::Default => {
                return Some(Unpacked::from_owned(self.schema.default_of(self.columns - 1)));
            }
        }
        Some(match column_type {
            Type::Bool => Unpacked::bool(self.input.u8()?)?,
            Type::I64 => Unpacked::number(Type::I64, unzigzag(self.input.varint()?) as u64),
            Type::U64 => Unpacked::number(Type::U64, self.input.varint()?),
            Type::F64 => {
                let bits = u64::from_le_bytes(*self.input.bytes(8)?.first_chunk()?);
                Unpacked::number(Type::F64, bits)
            }
            text @ (Type::Text | Type::Bytes) => Unpacked::bytes(text, self.input.slice()?, false),
        })
    }
}

/// A row, or an index's part of one, read from its encoded bytes column by column.
///
/// ```
/// use weir::key::encode_primary_key;
/// use weir::row::{RowRef, encode_value};
/// use weir::schema::Schema;
/// use weir::value::{Type, Value};
///
/// let schema = Schema::builder()
///     .column("id", Type::U64)
///     .nullable_column("name", Type::Text)
///     .primary_key(&["id"])
///     .build()?;
/// let (mut key, mut value) = (Vec::new(), Vec::new());
/// let row = [7u64.into(), "weir".into()];
/// encode_primary_key(&schema, &row, &mut key)?;
/// encode_value(&schema, &row, &mut value)?;
///
/// let row = RowRef::primary(&schema, &key, &value);
/// assert_eq!(row.get(1)?, Value::Text("weir"));
/// assert_eq!(row.get(0)?.as_u64(), Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RowRef<'a> {
    schema: &'a Schema,
    tree: KeyOf,
    key: &'a [u8],
    value: &'a [u8],
    /// How far key and value have been read: who reads one column after the other doesn't begin
    /// anew for each.
    key_read: Cell<Reached>,
    value_read: Cell<Reached>,
    /// By column, those whose bytes in the key are escaped, once they have been read.
    unescaped: OnceCell<Box<[OnceCell<OwnedValue>]>>,
}

/// A place behind some columns.
#[derive(Clone, Copy, Default)]
struct Reached {
    columns: u16,
    /// Columns among them that may be NULL, of a value.
    nullable: u16,
    /// From the first column's on.
    bytes: u32,
}

impl Reached {
    #[inline]
    fn note(at: &Cell<Reached>, columns: usize, nullable: usize, bytes: usize) {
        // What lies behind more bytes is looked for from an earlier place each time.
        if let Ok(bytes) = u32::try_from(bytes) {
            at.set(Reached { columns: columns as u16, nullable: nullable as u16, bytes });
        }
    }

    /// Where to look for a column from: here, or at the start if it comes before.
    #[inline]
    fn before(at: &Cell<Reached>, column: usize) -> Reached {
        let reached = at.get();
        if usize::from(reached.columns) <= column { reached } else { Reached::default() }
    }
}

impl<'a> RowRef<'a> {
    /// An entry of the primary tree.
    #[inline]
    pub fn primary(schema: &'a Schema, key: &'a [u8], value: &'a [u8]) -> Self {
        RowRef::new(schema, KeyOf::Primary, key, value)
    }

    /// An entry of a secondary index: has the index's columns and the primary key.
    ///
    /// # Panics
    /// If there is no such index.
    #[inline]
    pub fn index(schema: &'a Schema, index: usize, key: &'a [u8], value: &'a [u8]) -> Self {
        assert!(index < schema.indexes().len(), "no index {index}");
        RowRef::new(schema, KeyOf::Index(index), key, value)
    }

    #[inline]
    pub(crate) fn new(schema: &'a Schema, tree: KeyOf, key: &'a [u8], value: &'a [u8]) -> Self {
        let (key_read, value_read) = (Cell::default(), Cell::default());
        RowRef { schema, tree, key, value, key_read, value_read, unescaped: OnceCell::new() }
    }

    /// The table's schema.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// The key's bytes.
    pub fn key(&self) -> &'a [u8] {
        self.key
    }

    /// The value's bytes.
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Whether the entry has the column: always in the primary tree.
    pub fn covers(&self, column: usize) -> bool {
        match self.tree {
            KeyOf::Primary => column < self.schema.columns().len(),
            KeyOf::Index(index) => {
                self.schema.indexes()[index].parts().iter().any(|&part| part as usize == column)
            }
        }
    }

    /// A column's value. Only columns before it are stepped over, those between it and the one read
    /// before if that was an earlier one; nothing else is decoded.
    ///
    /// # Errors
    /// [`RowError::NotCovered`], or [`RowError::Malformed`] if the bytes are no row of this schema.
    ///
    /// # Panics
    /// If the table has no such column.
    pub fn get(&self, column: usize) -> Result<Value<'_>, RowError> {
        let of_column = &self.schema.columns()[column];
        let unpacked = match self.tree {
            KeyOf::Primary => match self.schema.place(column) {
                Place::Key(nth) => {
                    let parts = self.schema.primary_key();
                    self.key_part(parts, self.key, nth.into(), &self.key_read)
                }
                Place::Value(nth) => self.value_column(nth.into()),
            },
            KeyOf::Index(index) => self.index_part(index, column)?,
        };
        let unpacked = unpacked.ok_or_else(|| RowError::malformed(of_column))?;
        match unpacked.escaped() {
            None => unpacked.value().ok_or_else(|| RowError::malformed(of_column)),
            Some(bytes) => self.unescaped(column, bytes),
        }
    }

    /// An owned copy of the row.
    ///
    /// # Errors
    /// As [`RowRef::get`].
    pub fn to_row(&self) -> Result<Row, RowError> {
        let mut row = Row::of_nulls(self.schema.columns().len(), self.value.len());
        match self.tree {
            KeyOf::Primary => self.each_of_primary(|column, value| row.set(column, value))?,
            KeyOf::Index(_) => {
                for column in 0..self.schema.columns().len() {
                    row.set(column, self.get(column)?);
                }
            }
        }
        Ok(row)
    }

    /// Every column of an entry of the primary tree, each decoded once.
    fn each_of_primary(&self, mut put: impl FnMut(usize, Value<'_>)) -> Result<(), RowError> {
        let column = |at: u16| &self.schema.columns()[at as usize];
        let malformed = |at: u16| RowError::malformed(column(at));
        let mut reader = KeyReader::new(self.key);
        for &at in self.schema.primary_key() {
            let unpacked = reader.next(column(at)).ok_or_else(|| malformed(at))?;
            match unpacked.escaped() {
                None => put(at.into(), unpacked.value().ok_or_else(|| malformed(at))?),
                Some(_) => {
                    let value = unpacked.to_owned().ok_or_else(|| malformed(at))?;
                    put(at.into(), value.as_value());
                }
            }
        }
        let columns = self.schema.value_columns();
        let Some(first) = columns.first() else { return Ok(()) };
        let malformed = |of: &ValueColumn| RowError::malformed(self.schema.of_value(of));
        let reader = ValueReader::at(self.schema, self.value, Reached::default());
        let mut reader = reader.ok_or_else(|| malformed(first))?;
        for of in columns {
            let value = reader.next().and_then(Unpacked::value).ok_or_else(|| malformed(of))?;
            if usize::from(of.at) < self.schema.columns().len() {
                put(of.at.into(), value);
            }
        }
        Ok(())
    }

    // Inlined like what it calls: what goes from one to the next by memory costs more than to
    // decode it.
    #[inline(always)]
    fn index_part(&self, index: usize, column: usize) -> Result<Option<Unpacked<'a>>, RowError> {
        let position = |parts: &[u16]| parts.iter().position(|&part| part as usize == column);
        let of_index = &self.schema.indexes()[index];
        let Some(nth) = position(of_index.parts()) else {
            let column = self.schema.columns()[column].name().to_string();
            let index = self.schema.key_name(self.tree);
            return Err(RowError::NotCovered { column, index });
        };
        if nth < of_index.columns().len() || self.value.is_empty() {
            return Ok(self.key_part(of_index.parts(), self.key, nth, &self.key_read));
        }
        let parts = self.schema.primary_key();
        let of_row = |nth| self.key_part(parts, self.value, nth, &Cell::default());
        Ok(position(parts).and_then(of_row))
    }

    #[inline(always)]
    fn key_part(
        &self,
        parts: &[u16],
        key: &'a [u8],
        nth: usize,
        read: &Cell<Reached>,
    ) -> Option<Unpacked<'a>> {
        let column = |part: u16| &self.schema.columns()[part as usize];
        let from = Reached::before(read, nth);
        let mut reader = KeyReader::at(key, from.bytes as usize);
        for &part in &parts[from.columns.into()..nth] {
            reader.skip(column(part))?;
        }
        let value = reader.next(column(parts[nth]))?;
        Reached::note(read, nth + 1, 0, reader.position());
        Some(value)
    }

    #[inline(always)]
    fn value_column(&self, nth: usize) -> Option<Unpacked<'a>> {
        let from = Reached::before(&self.value_read, nth);
        let mut reader = ValueReader::at(self.schema, self.value, from)?;
        reader.skip_to(nth)?;
        let value = reader.next()?;
        reader.note(&self.value_read);
        Some(value)
    }

    /// The value of a key's part whose bytes are escaped.
    #[cold]
    fn unescaped(&self, column: usize, bytes: &[u8]) -> Result<Value<'_>, RowError> {
        let of_column = &self.schema.columns()[column];
        let of_none = || self.schema.columns().iter().map(|_| OnceCell::new()).collect();
        let unescaped = &self.unescaped.get_or_init(of_none)[column];
        if let Some(value) = unescaped.get() {
            return Ok(value.as_value());
        }
        let value = unescape(of_column.column_type(), bytes);
        let value = value.ok_or_else(|| RowError::malformed(of_column))?;
        Ok(unescaped.get_or_init(|| value).as_value())
    }
}

impl fmt::Debug for RowRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (at, column) in self.schema.columns().iter().enumerate() {
            match self.get(at) {
                Ok(value) => map.entry(&column.name(), &value),
                Err(RowError::NotCovered { .. }) => continue,
                Err(error) => map.entry(&column.name(), &error),
            };
        }
        map.finish()
    }
}

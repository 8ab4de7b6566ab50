//! Tables: columns, primary key, secondary indexes.
//!
//! Columns come and go without a change of the rows that are there ([`Schema::with_column`],
//! [`Schema::without_column`]): a row written before a column was added ends before it, and has its
//! default; a column that was dropped keeps its place in the rows, and its name is free. The form
//! of rows: [`crate::row`].

mod builder;
mod columns;
mod error;
mod raw;
mod stored;

pub use builder::SchemaBuilder;
pub use error::SchemaError;
pub use raw::{Layout, MAX_META, RawIndex, RawSchema};

use crate::value::{OwnedValue, Type};
use serde::{Deserialize, Serialize};
use stored::{Stored, StoredIndex};

pub use stored::FORMAT;

/// Columns that a table may have, dropped ones among them.
pub const MAX_COLUMNS: usize = 1024;
/// Secondary indexes that a table may have.
pub const MAX_INDEXES: usize = 64;
/// Bytes that a column's or index's name may have.
pub const MAX_NAME: usize = 255;

/// What errors call the primary key.
pub(crate) const PRIMARY: &str = "primary";

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    name: String,
    column_type: Type,
    nullable: bool,
}

impl Column {
    /// The name, unique in the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type.
    pub fn column_type(&self) -> Type {
        self.column_type
    }

    /// Whether NULL is allowed.
    pub fn nullable(&self) -> bool {
        self.nullable
    }
}

/// A secondary index of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    name: String,
    columns: usize,
    unique: bool,
    /// The index's columns, then those of the primary key that are not among them.
    parts: Vec<u16>,
}

impl Index {
    /// The name, unique in the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Positions of its columns in the table.
    pub fn columns(&self) -> &[u16] {
        &self.parts[..self.columns]
    }

    /// Whether two rows can't have the same values in its columns (NULL equals nothing).
    pub fn unique(&self) -> bool {
        self.unique
    }

    /// Positions of its columns, then of the primary key's columns that are not among them.
    pub fn parts(&self) -> &[u16] {
        &self.parts
    }
}

/// The tree whose key order is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyOf {
    /// The primary tree.
    Primary,
    /// The secondary index at this position in [`Schema::indexes`].
    Index(usize),
}

/// Where the primary tree has a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The n-th column of the key.
    Key(u16),
    /// The n-th column of the value.
    Value(u16),
}

/// A column that the primary tree keeps in the value: what it takes to read it, close together.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueColumn {
    /// Its position in the table; behind the table's columns if it was dropped.
    pub at: u16,
    pub column_type: Type,
    pub nullable: bool,
    /// Whether it was added to a table that was there: rows that end before it have its default.
    pub added: bool,
    /// So many columns from this one on are integers that are there in every row.
    pub integers: u16,
}

impl ValueColumn {
    /// Whether every row has an integer here.
    fn is_integer(&self) -> bool {
        matches!(self.column_type, Type::I64 | Type::U64) && !self.nullable && !self.added
    }
}

/// A table's columns, primary key and indexes; immutable once built.
///
/// ```
/// use weir::schema::Schema;
/// use weir::value::Type;
///
/// let schema = Schema::builder()
///     .column("id", Type::U64)
///     .column("name", Type::Text)
///     .nullable_column("email", Type::Text)
///     .primary_key(&["id"])
///     .index("by_name", &["name"])
///     .unique_index("by_email", &["email"])
///     .build()?;
/// assert_eq!(schema.column_index("email"), Some(2));
/// assert_eq!(Schema::decode(&schema.encode())?, schema);
/// # Ok::<(), weir::schema::SchemaError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Schema {
    /// The table's columns, then those that were dropped.
    columns: Vec<Column>,
    /// How many of them the table has.
    live: usize,
    /// Positions of all of them in the order in which rows have them.
    order: Vec<u16>,
    primary_key: Vec<u16>,
    indexes: Vec<Index>,
    /// Columns that the primary tree keeps in the value, in order, dropped ones among them.
    value_columns: Vec<ValueColumn>,
    /// What rows have that end before the last of `value_columns`, those that were added.
    defaults: Vec<OwnedValue>,
    places: Vec<Place>,
    nullable_values: usize,
}

/// Those are equal that have the same columns, keys and indexes, whatever columns came and went.
impl PartialEq for Schema {
    fn eq(&self, other: &Schema) -> bool {
        let keys_are_equal = self.primary_key == other.primary_key && self.indexes == other.indexes;
        keys_are_equal && self.columns() == other.columns()
    }
}

impl Eq for Schema {}

impl Schema {
    /// Starts with no columns.
    pub fn builder() -> SchemaBuilder {
        SchemaBuilder::default()
    }

    /// The schema of a raw table: the caller encodes keys, rows and entries.
    ///
    /// # Errors
    /// [`SchemaError`]: names, too many indexes, too long a `meta`.
    pub fn raw(indexes: Vec<RawIndex>, meta: Vec<u8>) -> Result<RawSchema, SchemaError> {
        indexes.iter().try_for_each(|index| check_new_index(&index.name))?;
        RawSchema::new(indexes, meta)
    }

    /// The columns, in order.
    pub fn columns(&self) -> &[Column] {
        &self.columns[..self.live]
    }

    /// Positions of the primary key's columns.
    pub fn primary_key(&self) -> &[u16] {
        &self.primary_key
    }

    /// The secondary indexes, in order.
    pub fn indexes(&self) -> &[Index] {
        &self.indexes
    }

    /// Position of a column.
    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns().iter().position(|column| column.name == name)
    }

    /// Position of a secondary index.
    pub fn index_index(&self, name: &str) -> Option<usize> {
        self.indexes.iter().position(|index| index.name == name)
    }

    /// The columns that a tree's keys may have, in order. An entry of a unique index without NULL
    /// has only [`Index::columns`] of them.
    ///
    /// # Panics
    /// If there is no such index.
    pub fn key_parts(&self, of: KeyOf) -> &[u16] {
        match of {
            KeyOf::Primary => &self.primary_key,
            KeyOf::Index(index) => &self.indexes[index].parts,
        }
    }

    /// What errors call a tree's key.
    pub(crate) fn key_name(&self, of: KeyOf) -> String {
        match of {
            KeyOf::Primary => primary_name(),
            KeyOf::Index(index) => index_name(&self.indexes[index].name),
        }
    }

    /// The columns of a value.
    #[inline]
    pub(crate) fn value_columns(&self) -> &[ValueColumn] {
        &self.value_columns
    }

    /// A value's column; it may have been dropped.
    pub(crate) fn of_value(&self, column: &ValueColumn) -> &Column {
        &self.columns[usize::from(column.at)]
    }

    /// What rows have that end before the `nth` column of a value, which was added.
    pub(crate) fn default_of(&self, nth: usize) -> &OwnedValue {
        &self.defaults[nth - (self.value_columns.len() - self.defaults.len())]
    }

    #[inline]
    pub(crate) fn place(&self, column: usize) -> Place {
        self.places[column]
    }

    /// Bytes of a value's null bitmap.
    pub(crate) fn bitmap_bytes(&self) -> usize {
        self.nullable_values.div_ceil(8)
    }

    /// The same table with one index more, after the others.
    ///
    /// # Errors
    /// As [`SchemaBuilder::build`].
    pub fn with_index(
        &self,
        name: &str,
        columns: &[&str],
        unique: bool,
    ) -> Result<Schema, SchemaError> {
        check_new_index(name)?;
        let columns = resolve(self.columns(), &index_name(name), columns)?;
        let mut stored = Stored::from(self);
        stored.indexes.push(StoredIndex { name: name.to_string(), columns, unique });
        stored.try_into()
    }

    /// The same table without an index.
    pub fn without_index(&self, name: &str) -> Schema {
        let mut schema = self.clone();
        schema.indexes.retain(|index| index.name != name);
        schema
    }
}

fn primary_name() -> String {
    "primary key".to_string()
}

fn index_name(name: &str) -> String {
    format!("index `{name}`")
}

fn check_name(name: &str) -> Result<(), SchemaError> {
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(SchemaError::BadName(name.to_string()));
    }
    Ok(())
}

/// The name of an index that is made; one that is there may have it, from before it was refused.
fn check_new_index(name: &str) -> Result<(), SchemaError> {
    if name == PRIMARY { Err(SchemaError::NamedPrimary) } else { Ok(()) }
}

fn check_columns(columns: &[Column], dropped: usize) -> Result<(), SchemaError> {
    if columns.len() + dropped > MAX_COLUMNS {
        return Err(SchemaError::TooManyColumns { columns: columns.len(), dropped });
    }
    for (at, column) in columns.iter().enumerate() {
        check_name(&column.name)?;
        if columns[..at].iter().any(|other| other.name == column.name) {
            return Err(SchemaError::DuplicateColumn(column.name.clone()));
        }
    }
    Ok(())
}

fn check_key(columns: &[Column], key: &str, parts: &[u16]) -> Result<(), SchemaError> {
    if parts.is_empty() {
        return Err(SchemaError::EmptyKey(key.to_string()));
    }
    for (nth, &at) in parts.iter().enumerate() {
        let Some(column) = columns.get(at as usize) else {
            return Err(SchemaError::Malformed(format!("{key} has column {at}")));
        };
        if parts[..nth].contains(&at) {
            let (key, column) = (key.to_string(), column.name.clone());
            return Err(SchemaError::DuplicateKeyColumn { key, column });
        }
    }
    Ok(())
}

fn check_indexes(columns: &[Column], indexes: &[StoredIndex]) -> Result<(), SchemaError> {
    if indexes.len() > MAX_INDEXES {
        return Err(SchemaError::TooManyIndexes(indexes.len()));
    }
    for (at, index) in indexes.iter().enumerate() {
        check_name(&index.name)?;
        if indexes[..at].iter().any(|other| other.name == index.name) {
            return Err(SchemaError::DuplicateIndex(index.name.clone()));
        }
        check_key(columns, &index_name(&index.name), &index.columns)?;
    }
    Ok(())
}

fn resolve(columns: &[Column], key: &str, names: &[&str]) -> Result<Vec<u16>, SchemaError> {
    let position = |name: &&str| {
        let at = columns.iter().position(|column| column.name == *name);
        let unknown =
            || SchemaError::UnknownColumn { key: key.to_string(), column: name.to_string() };
        at.map(|at| at as u16).ok_or_else(unknown)
    };
    names.iter().map(position).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> SchemaBuilder {
        Schema::builder()
            .column("a", Type::I64)
            .nullable_column("b", Type::Text)
            .column("c", Type::F64)
    }

    #[test]
    fn no_index_is_named_as_the_primary_key() {
        let keyed = || table().primary_key(&["a"]);
        assert_eq!(keyed().index("primary", &["a"]).build(), Err(SchemaError::NamedPrimary));
        let built = keyed().build().unwrap();
        assert_eq!(built.with_index("primary", &["a"], true), Err(SchemaError::NamedPrimary));
        let raw = Schema::raw(vec![RawIndex::new("primary", true)], Vec::new());
        assert_eq!(raw, Err(SchemaError::NamedPrimary));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let message = |builder: SchemaBuilder| builder.build().unwrap_err().to_string();
        let keyed = || table().primary_key(&["a"]);
        for (builder, expected) in [
            (table(), "the table has no primary key"),
            (table().primary_key(&[]), "the table has no primary key"),
            (keyed().primary_key(&["c"]), "the primary key is given twice"),
            (table().primary_key(&["x"]), "primary key names the unknown column `x`"),
            (
                table().primary_key(&["a", "b"]),
                "the column `b` is part of the primary key and must not be nullable",
            ),
            (table().primary_key(&["a", "a"]), "primary key names the column `a` twice"),
            (keyed().column("a", Type::Bool), "two columns are named `a`"),
            (keyed().column("", Type::Bool), "`` is not a name: 1 to 255 bytes are allowed"),
            (keyed().index("i", &["x"]), "index `i` names the unknown column `x`"),
            (keyed().index("i", &["b", "b"]), "index `i` names the column `b` twice"),
            (keyed().index("i", &[]), "index `i` has no column"),
            (keyed().index("i", &["b"]).unique_index("i", &["c"]), "two indexes are named `i`"),
        ] {
            assert_eq!(message(builder), expected);
        }
        let many = (0..65).fold(keyed(), |b, at| b.index(&format!("i{at}"), &["b"]));
        assert_eq!(message(many), "the table has 65 indexes; 64 are allowed");
        let many = (0..1024).fold(keyed(), |b, at| b.column(&format!("c{at}"), Type::Bool));
        assert_eq!(message(many), "the table has 1027 columns; 1024 are allowed");
    }

    #[test]
    fn indexes_come_and_go() {
        let schema = table().primary_key(&["a"]).build().unwrap();
        let more = schema.with_index("i", &["b"], true).unwrap();
        assert!(more.indexes()[0].unique());
        assert!(more.with_index("i", &["c"], false).is_err());
        assert_eq!(more.without_index("i"), schema);
    }
}

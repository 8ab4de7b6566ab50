//! Why a schema is not one.

use super::raw::MAX_META;
use super::{MAX_COLUMNS, MAX_INDEXES, MAX_NAME, PRIMARY};
use crate::value::Type;

/// Why a schema is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A key names a column that the table does not have.
    #[error("{key} names the unknown column `{column}`")]
    UnknownColumn {
        /// Which key: `primary key` or `index `name``.
        key: String,
        /// The column.
        column: String,
    },
    /// Two columns have the same name.
    #[error("two columns are named `{0}`")]
    DuplicateColumn(String),
    /// An index has the name that stands for the primary key in errors and figures.
    #[error("an index can't be named `{PRIMARY}`: that is the primary key")]
    NamedPrimary,
    /// Two indexes have the same name.
    #[error("two indexes are named `{0}`")]
    DuplicateIndex(String),
    /// A key names a column twice.
    #[error("{key} names the column `{column}` twice")]
    DuplicateKeyColumn {
        /// Which key.
        key: String,
        /// The column.
        column: String,
    },
    /// A key has no column.
    #[error("{0} has no column")]
    EmptyKey(String),
    /// The table has no primary key.
    #[error("the table has no primary key")]
    NoPrimaryKey,
    /// The primary key was given twice.
    #[error("the primary key is given twice")]
    TwoPrimaryKeys,
    /// A column of the primary key may be NULL.
    #[error("the column `{0}` is part of the primary key and must not be nullable")]
    NullablePrimaryKey(String),
    /// More than [`MAX_COLUMNS`].
    #[error("the table has {columns} columns{}; {MAX_COLUMNS} are allowed", and_dropped(*.dropped))]
    TooManyColumns {
        /// Those that it has.
        columns: usize,
        /// Those that were dropped: rows still have places for them.
        dropped: usize,
    },
    /// The table has no such column.
    #[error("the table has no column `{0}`")]
    NoSuchColumn(String),
    /// A column that a key has can't be dropped, and rows can't change one of the primary key.
    #[error("the column `{column}` is part of the {key}")]
    KeyColumn {
        /// The column.
        column: String,
        /// Which key.
        key: String,
    },
    /// A default is of another type than its column, or NULL where the column must not be.
    #[error("the column `{column}` is of type {expected}; its default is of type {found}")]
    WrongDefault {
        /// The column.
        column: String,
        /// Its type.
        expected: Type,
        /// The default's type, or NULL.
        found: String,
    },
    /// More than [`MAX_INDEXES`].
    #[error("the table has {0} indexes; {MAX_INDEXES} are allowed")]
    TooManyIndexes(usize),
    /// A name is empty or longer than [`MAX_NAME`] bytes.
    #[error("`{0}` is not a name: 1 to {MAX_NAME} bytes are allowed")]
    BadName(String),
    /// A name isn't UTF-8; what that is with each wrong part replaced.
    #[error("`{0}` is not a name: it isn't UTF-8")]
    NotText(String),
    /// [`super::RawSchema::meta`] is longer than [`MAX_META`].
    #[error("{0} bytes of meta; {MAX_META} are allowed")]
    MetaTooLong(usize),
    /// The bytes were written by a later version.
    #[error("the schema has format version {found}; this program reads up to {newest}")]
    UnknownFormat {
        /// The version byte.
        found: u8,
        /// The newest that is known.
        newest: u8,
    },
    /// The bytes are not a schema.
    #[error("the bytes are not a schema: {0}")]
    Malformed(String),
}

fn and_dropped(dropped: usize) -> String {
    match dropped {
        0 => String::new(),
        _ => format!(" and places of {dropped} dropped ones"),
    }
}

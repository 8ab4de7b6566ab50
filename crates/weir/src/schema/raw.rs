//! Raw tables: the caller encodes keys, rows and index entries; the engine stores, versions and
//! locks them.
//!
//! # Persisted form
//! Of a raw schema: the format version byte [`FORMAT`], then the postcard encoding of [`StoredRaw`]
//! (indexes: name, unique; meta). Of a [`Layout`]: a byte that says which kind, then the schema's
//! own form.

use super::{MAX_INDEXES, Schema, SchemaError, check_name};
use serde::{Deserialize, Serialize};

/// Format version of a persisted raw schema.
pub const FORMAT: u8 = 1;
/// Bytes that [`RawSchema::meta`] may have.
pub const MAX_META: usize = 64 << 10;

const TYPED: u8 = 0;
const RAW: u8 = 1;

/// An index of a raw table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RawIndex {
    /// Its name, unique in the table.
    pub name: String,
    /// Whether keys are unique by themselves. Of an index that isn't, the caller makes every key
    /// distinct, by appending the primary key.
    pub unique: bool,
}

impl RawIndex {
    /// An index of that name.
    pub fn new(name: impl Into<String>, unique: bool) -> RawIndex {
        RawIndex { name: name.into(), unique }
    }
}

/// What the engine knows of a raw table: its indexes, and bytes that it keeps for the caller.
///
/// ```
/// use weir::schema::{RawIndex, Schema};
///
/// let schema = Schema::raw(vec![RawIndex::new("by_name", false)], b"columns: id, name".to_vec())?;
/// assert_eq!(schema.indexes()[0].name, "by_name");
/// assert_eq!(schema.meta(), b"columns: id, name");
/// # Ok::<(), weir::schema::SchemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawSchema {
    indexes: Vec<RawIndex>,
    meta: Vec<u8>,
}

/// What is persisted of a raw schema, format version 1.
#[derive(Serialize, Deserialize)]
struct StoredRaw {
    indexes: Vec<RawIndex>,
    meta: Vec<u8>,
}

impl RawSchema {
    pub(super) fn new(indexes: Vec<RawIndex>, meta: Vec<u8>) -> Result<RawSchema, SchemaError> {
        if indexes.len() > MAX_INDEXES {
            return Err(SchemaError::TooManyIndexes(indexes.len()));
        }
        if meta.len() > MAX_META {
            return Err(SchemaError::MetaTooLong(meta.len()));
        }
        for (at, index) in indexes.iter().enumerate() {
            check_name(&index.name)?;
            if indexes[..at].iter().any(|other| other.name == index.name) {
                return Err(SchemaError::DuplicateIndex(index.name.clone()));
            }
        }
        Ok(RawSchema { indexes, meta })
    }

    /// The indexes, in order.
    pub fn indexes(&self) -> &[RawIndex] {
        &self.indexes
    }

    /// What the caller keeps with the table.
    pub fn meta(&self) -> &[u8] {
        &self.meta
    }

    fn encode(&self, out: Vec<u8>) -> Vec<u8> {
        let stored = StoredRaw { indexes: self.indexes.clone(), meta: self.meta.clone() };
        let mut out = out;
        out.push(FORMAT);
        postcard::to_extend(&stored, out).expect("writing to memory does not fail")
    }

    fn decode(bytes: &[u8]) -> Result<RawSchema, SchemaError> {
        let malformed = |why: &str| SchemaError::Malformed(why.to_string());
        let (&found, rest) = bytes.split_first().ok_or_else(|| malformed("no bytes"))?;
        if found != FORMAT {
            return Err(SchemaError::UnknownFormat { found, newest: FORMAT });
        }
        let (stored, rest) = postcard::take_from_bytes::<StoredRaw>(rest)
            .map_err(|error| malformed(&error.to_string()))?;
        if !rest.is_empty() {
            return Err(malformed("bytes after its end"));
        }
        RawSchema::new(stored.indexes, stored.meta)
    }
}

/// What a table's bytes are: encoded by the engine from columns, or by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Rows of values.
    Typed(Schema),
    /// Bytes.
    Raw(RawSchema),
}

impl From<Schema> for Layout {
    fn from(schema: Schema) -> Self {
        Layout::Typed(schema)
    }
}

impl From<RawSchema> for Layout {
    fn from(schema: RawSchema) -> Self {
        Layout::Raw(schema)
    }
}

impl Layout {
    /// Number of secondary indexes.
    pub fn index_count(&self) -> usize {
        match self {
            Layout::Typed(schema) => schema.indexes().len(),
            Layout::Raw(schema) => schema.indexes.len(),
        }
    }

    /// Name of an index.
    ///
    /// # Panics
    /// If there is no such index.
    pub fn index_name(&self, index: usize) -> &str {
        match self {
            Layout::Typed(schema) => schema.indexes()[index].name(),
            Layout::Raw(schema) => &schema.indexes[index].name,
        }
    }

    /// Whether an index is unique.
    ///
    /// # Panics
    /// If there is no such index.
    pub fn index_unique(&self, index: usize) -> bool {
        match self {
            Layout::Typed(schema) => schema.indexes()[index].unique(),
            Layout::Raw(schema) => schema.indexes[index].unique,
        }
    }

    /// Position of a secondary index.
    pub fn index_index(&self, name: &str) -> Option<usize> {
        (0..self.index_count()).find(|&n| self.index_name(n) == name)
    }

    /// The persisted form.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Layout::Typed(schema) => [&[TYPED][..], &schema.encode()].concat(),
            Layout::Raw(schema) => schema.encode(vec![RAW]),
        }
    }

    /// Reads the persisted form.
    ///
    /// # Errors
    /// As [`Schema::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Layout, SchemaError> {
        match bytes.split_first() {
            Some((&TYPED, rest)) => Ok(Layout::Typed(Schema::decode(rest)?)),
            Some((&RAW, rest)) => Ok(Layout::Raw(RawSchema::decode(rest)?)),
            _ => Err(SchemaError::Malformed("neither typed nor raw".to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::Type;
    use proptest::prelude::*;

    #[test]
    fn persisted_form() {
        let indexes = vec![RawIndex::new("ab", true), RawIndex::new("c", false)];
        let raw = Layout::from(Schema::raw(indexes, vec![9, 8]).unwrap());
        let golden = [1, 1, 2, 2, b'a', b'b', 1, 1, b'c', 0, 2, 9, 8];
        assert_eq!(raw.encode(), golden);
        assert_eq!(Layout::decode(&golden).unwrap(), raw);
        assert_eq!(raw.index_index("c"), Some(1));
        for cut in 0..golden.len() {
            assert!(Layout::decode(&golden[..cut]).is_err());
        }
        assert!(Layout::decode(&[&golden[..], &[0]].concat()).is_err());
        assert_eq!(
            Layout::decode(&[1, 2]),
            Err(SchemaError::UnknownFormat { found: 2, newest: 1 })
        );
        let typed = Schema::builder().column("a", Type::I64).primary_key(&["a"]).build().unwrap();
        let encoded = Layout::from(typed.clone()).encode();
        assert_eq!((encoded[0], &encoded[1..]), (0, &typed.encode()[..]));
        assert_eq!(Layout::decode(&encoded).unwrap(), Layout::Typed(typed));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let index = |name: &str| RawIndex::new(name, false);
        let message = |indexes: Vec<RawIndex>, meta: usize| {
            Schema::raw(indexes, vec![0; meta]).unwrap_err().to_string()
        };
        assert_eq!(message(vec![index("i"), index("i")], 0), "two indexes are named `i`");
        assert_eq!(message(vec![index("")], 0), "`` is not a name: 1 to 255 bytes are allowed");
        let many = (0..65).map(|n| index(&n.to_string())).collect();
        assert_eq!(message(many, 0), "the table has 65 indexes; 64 are allowed");
        assert_eq!(message(vec![], MAX_META + 1), "65537 bytes of meta; 65536 are allowed");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_layout_or_an_error(mut bytes: Vec<u8>, raw: bool) {
            bytes.splice(0..0, [u8::from(raw), 1]);
            if let Ok(layout) = Layout::decode(&bytes) {
                prop_assert_eq!(Layout::decode(&layout.encode()), Ok(layout));
            }
        }
    }
}

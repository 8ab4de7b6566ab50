//! How a schema is persisted.
//!
//! A format version byte, then the postcard encoding of what that version has. A later version gets
//! a structure of its own; old ones stay readable. What is read is validated like what is built.
//!
//! | offset | width | field |
//! |---|---|---|
//! | 0 | 1 | format version: 1 of a table that no column was added to or dropped from, else 2 |
//! | 1 | rest | version 1: columns (name, type, nullable), primary key, indexes (name, columns, unique), each by position of its columns |
//! | | | version 2: columns, those that were dropped last; how many weren't; positions of all in the order of rows; defaults of the last ones of these, which were added; primary key; indexes |

use super::{
    Column, Index, Place, Schema, SchemaError, ValueColumn, check_columns, check_indexes,
    check_key, primary_name,
};
use crate::value::OwnedValue;
use serde::{Deserialize, Serialize};

/// Newest format version of a persisted schema.
pub const FORMAT: u8 = 2;
/// The format of a table whose columns are those that it was made with.
const AS_CREATED: u8 = 1;

/// What is persisted of a schema, format version 2.
#[derive(Serialize, Deserialize)]
pub(super) struct Stored {
    /// See [`Schema`], like all of this.
    pub columns: Vec<Column>,
    pub live: u16,
    pub order: Vec<u16>,
    pub defaults: Vec<OwnedValue>,
    pub primary_key: Vec<u16>,
    pub indexes: Vec<StoredIndex>,
}

#[derive(Serialize, Deserialize)]
pub(super) struct StoredIndex {
    pub name: String,
    pub columns: Vec<u16>,
    pub unique: bool,
}

/// What is persisted of a schema, format version 1.
#[derive(Serialize, Deserialize)]
struct AsCreated {
    columns: Vec<Column>,
    primary_key: Vec<u16>,
    indexes: Vec<StoredIndex>,
}

impl Stored {
    /// A table as it is created.
    pub fn new(columns: Vec<Column>, primary_key: Vec<u16>, indexes: Vec<StoredIndex>) -> Stored {
        let live = columns.len() as u16;
        let order = (0..live).collect();
        Stored { columns, live, order, defaults: Vec::new(), primary_key, indexes }
    }

    fn encode(self) -> Vec<u8> {
        let is_as_created = self.defaults.is_empty() && self.columns.len() == self.live.into();
        let Stored { columns, primary_key, indexes, .. } = self;
        match is_as_created {
            true => to_bytes(AS_CREATED, &AsCreated { columns, primary_key, indexes }),
            false => to_bytes(FORMAT, &Stored { columns, primary_key, indexes, ..self }),
        }
    }
}

fn to_bytes(format: u8, stored: &impl Serialize) -> Vec<u8> {
    postcard::to_extend(stored, vec![format]).expect("writing to memory does not fail")
}

fn malformed(why: impl ToString) -> SchemaError {
    SchemaError::Malformed(why.to_string())
}

fn from_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, SchemaError> {
    match postcard::take_from_bytes(bytes).map_err(malformed)? {
        (stored, []) => Ok(stored),
        _ => Err(malformed("bytes after its end")),
    }
}

impl Schema {
    /// The persisted form.
    pub fn encode(&self) -> Vec<u8> {
        Stored::from(self).encode()
    }

    /// Reads the persisted form.
    ///
    /// # Errors
    /// [`SchemaError::UnknownFormat`], [`SchemaError::Malformed`], or what is wrong with the
    /// schema.
    pub fn decode(bytes: &[u8]) -> Result<Schema, SchemaError> {
        let (&found, rest) = bytes.split_first().ok_or_else(|| malformed("no bytes"))?;
        let stored = match found {
            AS_CREATED => {
                let AsCreated { columns, primary_key, indexes } = from_bytes(rest)?;
                if columns.len() > u16::MAX.into() {
                    return Err(SchemaError::TooManyColumns { columns: columns.len(), dropped: 0 });
                }
                Stored::new(columns, primary_key, indexes)
            }
            FORMAT => from_bytes(rest)?,
            _ => return Err(SchemaError::UnknownFormat { found, newest: FORMAT }),
        };
        stored.try_into()
    }
}

impl From<&Schema> for Stored {
    fn from(schema: &Schema) -> Self {
        let index = |index: &Index| StoredIndex {
            name: index.name.clone(),
            columns: index.columns().to_vec(),
            unique: index.unique,
        };
        Stored {
            columns: schema.columns.clone(),
            live: schema.live as u16,
            order: schema.order.clone(),
            defaults: schema.defaults.clone(),
            primary_key: schema.primary_key.clone(),
            indexes: schema.indexes.iter().map(index).collect(),
        }
    }
}

impl TryFrom<Stored> for Schema {
    type Error = SchemaError;

    fn try_from(stored: Stored) -> Result<Schema, SchemaError> {
        let Stored { columns, live, order, defaults, primary_key, indexes } = stored;
        let live = usize::from(live);
        let live_ones =
            columns.get(..live).ok_or_else(|| malformed("fewer columns than it has"))?;
        check_columns(live_ones, columns.len() - live)?;
        if primary_key.is_empty() {
            return Err(SchemaError::NoPrimaryKey);
        }
        check_key(live_ones, &primary_name(), &primary_key)?;
        let nullable = primary_key.iter().map(|&at| &columns[at as usize]).find(|c| c.nullable);
        if let Some(column) = nullable {
            return Err(SchemaError::NullablePrimaryKey(column.name.clone()));
        }
        check_indexes(live_ones, &indexes)?;
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if !sorted.iter().map(|&at| usize::from(at)).eq(0..columns.len()) {
            return Err(malformed("not every column has one place in a row"));
        }
        let in_value: Vec<u16> =
            order.iter().filter(|at| !primary_key.contains(at)).copied().collect();
        let first_added = in_value.len().checked_sub(defaults.len());
        let first_added = first_added.ok_or_else(|| malformed("more defaults than columns"))?;
        for (&at, default) in in_value[first_added..].iter().zip(&defaults) {
            columns[at as usize].check_default(default.as_value())?;
        }
        let value_column = |(nth, &at): (usize, &u16)| {
            let &Column { column_type, nullable, .. } = &columns[at as usize];
            ValueColumn { at, column_type, nullable, added: nth >= first_added, integers: 0 }
        };
        let mut value_columns: Vec<ValueColumn> =
            in_value.iter().enumerate().map(value_column).collect();
        value_columns.iter_mut().rev().fold(0, |behind, of| {
            of.integers = if of.is_integer() { 1 + behind } else { 0 };
            of.integers
        });
        let place = |at: u16| {
            let position = |of: &[u16]| of.iter().position(|&column| column == at);
            match position(&primary_key) {
                Some(nth) => Place::Key(nth as u16),
                None => {
                    let nth = position(&in_value);
                    Place::Value(nth.expect("a column is in the key or in the value") as u16)
                }
            }
        };
        let in_bitmap = |of: &&ValueColumn| of.nullable && !of.added;
        Ok(Schema {
            live,
            nullable_values: value_columns.iter().filter(in_bitmap).count(),
            places: (0..live as u16).map(place).collect(),
            indexes: indexes.into_iter().map(|index| index.lay_out(&primary_key)).collect(),
            columns,
            order,
            primary_key,
            value_columns,
            defaults,
        })
    }
}

impl StoredIndex {
    fn lay_out(self, primary_key: &[u16]) -> Index {
        let StoredIndex { name, columns: mut parts, unique } = self;
        let columns = parts.len();
        let others = primary_key.iter().filter(|at| !parts.contains(at));
        parts.extend(others.copied().collect::<Vec<_>>());
        Index { name, columns, unique, parts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{Type, Value};
    use proptest::prelude::*;

    fn table() -> Schema {
        let columns = Schema::builder()
            .column("a", Type::I64)
            .nullable_column("b", Type::Text)
            .column("c", Type::F64);
        columns.primary_key(&["c", "a"]).unique_index("i", &["b", "a"]).build().unwrap()
    }

    #[test]
    fn persisted_form() {
        let schema = table();
        let golden =
            [1, 3, 1, b'a', 1, 0, 1, b'b', 4, 1, 1, b'c', 3, 0, 2, 2, 0, 1, 1, b'i', 2, 1, 0, 1];
        assert_eq!(schema.encode(), golden);
        assert_eq!(Schema::decode(&golden).unwrap(), schema);
        assert_eq!(schema.indexes()[0].columns(), [1, 0]);
        assert_eq!(schema.indexes()[0].parts(), [1, 0, 2]);
        for cut in 0..golden.len() {
            assert!(Schema::decode(&golden[..cut]).is_err());
        }
        assert!(Schema::decode(&[&golden[..], &[0]].concat()).is_err());
        assert_eq!(Schema::decode(&[3]), Err(SchemaError::UnknownFormat { found: 3, newest: 2 }));
    }

    #[test]
    fn persisted_form_of_a_table_whose_columns_have_changed() {
        let schema = table()
            .with_column("d", Type::U64, Value::U64(7))
            .and_then(|s| s.with_column("e", Type::Text, Value::Null))
            .and_then(|s| s.without_column("d"))
            .unwrap();
        let columns = [1, b'a', 1, 0, 1, b'b', 4, 1, 1, b'c', 3, 0, 1, b'e', 4, 1, 1, b'd', 2, 0];
        let (order, defaults) = ([5, 0, 1, 2, 4, 3], [2, 3, 7, 0]);
        let keys = [2, 2, 0, 1, 1, b'i', 2, 1, 0, 1];
        let golden = [&[2, 5][..], &columns, &[4], &order, &defaults, &keys].concat();
        assert_eq!(schema.encode(), golden);
        assert_eq!(Schema::decode(&golden).unwrap().encode(), golden);
        for cut in 0..golden.len() {
            assert!(Schema::decode(&golden[..cut]).is_err());
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let change = |change: fn(&mut Stored)| {
            let schema = table().with_column("d", Type::U64, Value::U64(7)).unwrap();
            let mut stored = Stored::from(&schema.without_column("d").unwrap());
            change(&mut stored);
            Schema::try_from(stored).map(drop).unwrap_err().to_string()
        };
        for (found, expected) in [
            (change(|s| s.live = 9), "fewer columns than it has"),
            (change(|s| s.order[0] = 2), "not every column has one place in a row"),
            (change(|s| s.defaults = vec![OwnedValue::Null; 9]), "more defaults than columns"),
            (change(|s| s.defaults[0] = OwnedValue::Null), "its default is of type NULL"),
            (change(|s| s.primary_key = vec![3]), "primary key has column 3"),
            (change(|s| s.indexes[0].columns = vec![3]), "index `i` has column 3"),
        ] {
            assert!(found.contains(expected), "{found}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_schema_or_an_error(mut bytes: Vec<u8>, format in AS_CREATED..=FORMAT) {
            bytes.insert(0, format);
            if let Ok(schema) = Schema::decode(&bytes) {
                let again = Schema::decode(&schema.encode());
                prop_assert_eq!(again.map(|s| s.encode()), Ok(schema.encode()));
            }
        }

        #[test]
        fn any_changed_bytes_are_a_schema_or_an_error(at: usize, byte: u8) {
            let schema = table().with_column("d", Type::U64, Value::U64(7)).unwrap();
            let mut bytes = schema.without_column("d").unwrap().encode();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Ok(schema) = Schema::decode(&bytes) {
                let again = Schema::decode(&schema.encode());
                prop_assert_eq!(again.map(|s| s.encode()), Ok(schema.encode()));
            }
        }
    }
}

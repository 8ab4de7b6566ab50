//! Schemas of tables with a column more, one less, or one renamed.

use super::stored::Stored;
use super::{Column, KeyOf, Schema, SchemaError};
use crate::value::{Type, Value};

impl Schema {
    /// The same table with one column more, after the others, which has `default` in rows that are
    /// there; it may be NULL if the default is.
    ///
    /// # Errors
    /// As [`super::SchemaBuilder::build`]; [`SchemaError::WrongDefault`].
    pub fn with_column(
        &self,
        name: &str,
        column_type: Type,
        default: Value<'_>,
    ) -> Result<Schema, SchemaError> {
        let nullable = default.is_null();
        let mut stored = Stored::from(self);
        let Stored { columns, live, order, defaults, .. } = &mut stored;
        let added = *live;
        // Dropped ones come last.
        order.iter_mut().filter(|at| **at >= added).for_each(|at| *at += 1);
        order.push(added);
        defaults.push(default.to_owned());
        *live += 1;
        columns.insert(added.into(), Column { name: name.to_string(), column_type, nullable });
        stored.try_into()
    }

    /// The same table without a column. Rows that are there keep what they have in it, unseen;
    /// others get nothing in its place.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchColumn`]; [`SchemaError::KeyColumn`] if the primary key has it, or an
    /// index.
    pub fn without_column(&self, name: &str) -> Result<Schema, SchemaError> {
        let gone = self.position(name)?;
        let keys = (0..self.indexes.len()).map(KeyOf::Index);
        let mut keys = [KeyOf::Primary].into_iter().chain(keys);
        if let Some(of) = keys.find(|&of| self.key_parts(of).contains(&gone)) {
            return Err(SchemaError::KeyColumn { column: name.into(), key: self.key_name(of) });
        }
        let mut stored = Stored::from(self);
        let last = stored.columns.len() as u16 - 1;
        let column = stored.columns.remove(gone.into());
        stored.columns.push(column);
        stored.live -= 1;
        let of_keys = stored.indexes.iter_mut().flat_map(|index| &mut index.columns);
        for at in stored.order.iter_mut().chain(&mut stored.primary_key).chain(of_keys) {
            *at = if *at == gone { last } else { *at - u16::from(*at > gone) };
        }
        stored.try_into()
    }

    /// The same table, a column of which has another name.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchColumn`], [`SchemaError::DuplicateColumn`], [`SchemaError::BadName`].
    pub fn with_renamed_column(&self, from: &str, to: &str) -> Result<Schema, SchemaError> {
        let at = self.position(from)?;
        let mut stored = Stored::from(self);
        stored.columns[usize::from(at)].name = to.to_string();
        stored.try_into()
    }

    /// That of a new table with the same columns, keys and indexes: nothing has come or gone there.
    pub(crate) fn as_created(&self) -> Schema {
        let Stored { primary_key, indexes, .. } = Stored::from(self);
        let schema = Stored::new(self.columns().to_vec(), primary_key, indexes).try_into();
        schema.expect("a table's columns, keys and indexes are a schema")
    }

    /// The position of a column that rows may change, which those in the primary key aren't.
    ///
    /// # Errors
    /// [`SchemaError::NoSuchColumn`], [`SchemaError::KeyColumn`].
    pub(crate) fn changeable(&self, name: &str) -> Result<usize, SchemaError> {
        let at = self.position(name)?;
        if self.primary_key().contains(&at) {
            return Err(SchemaError::KeyColumn {
                column: name.into(),
                key: self.key_name(KeyOf::Primary),
            });
        }
        Ok(usize::from(at))
    }

    fn position(&self, name: &str) -> Result<u16, SchemaError> {
        let at = self.column_index(name).map(|at| at as u16);
        at.ok_or_else(|| SchemaError::NoSuchColumn(name.to_string()))
    }
}

impl Column {
    /// Whether a value can be what rows without the column have.
    pub(super) fn check_default(&self, default: Value<'_>) -> Result<(), SchemaError> {
        let found = default.column_type();
        if found.map_or(self.nullable, |found| found == self.column_type) {
            return Ok(());
        }
        let found = found.map_or("NULL".to_string(), |found| found.to_string());
        let (column, expected) = (self.name.clone(), self.column_type);
        Err(SchemaError::WrongDefault { column, expected, found })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Schema {
        let columns =
            Schema::builder().column("a", Type::I64).column("b", Type::Text).column("c", Type::F64);
        columns.primary_key(&["b"]).index("by_c", &["c"]).build().unwrap()
    }

    fn names(schema: &Schema) -> Vec<&str> {
        schema.columns().iter().map(Column::name).collect()
    }

    #[test]
    fn positions_follow_columns_that_come_and_go() {
        let more = table().with_column("d", Type::U64, Value::Null).unwrap();
        assert_eq!(names(&more), ["a", "b", "c", "d"]);
        assert!(more.columns()[3].nullable());
        let fewer = more.without_column("a").unwrap();
        assert_eq!(names(&fewer), ["b", "c", "d"]);
        assert_eq!((fewer.primary_key(), fewer.indexes()[0].parts()), (&[0][..], &[1, 0][..]));
        let again = fewer.with_column("a", Type::Bool, Value::Bool(true)).unwrap();
        assert_eq!(names(&again), ["b", "c", "d", "a"]);
        assert!(!again.columns()[3].nullable());
        let indexed = again.with_index("by_a", &["a"], false).unwrap();
        assert_eq!(indexed.indexes()[1].parts(), [3, 0]);
        let renamed = indexed.with_renamed_column("b", "x").unwrap();
        assert_eq!(names(&renamed), ["x", "c", "d", "a"]);
        let read = Schema::decode(&renamed.encode()).unwrap();
        assert_eq!(read, renamed);
        assert_eq!(read.encode(), renamed.encode());
        let created = renamed.as_created();
        assert_eq!(created, renamed);
        assert_eq!((created.encode()[0], renamed.encode()[0]), (1, 2));
    }

    #[test]
    fn errors_say_what_is_wrong() {
        let add = |name: &str, default: Value<'_>| table().with_column(name, Type::U64, default);
        let drop = |name: &str| table().without_column(name);
        for (result, expected) in [
            (add("a", Value::Null), "two columns are named `a`"),
            (add("", Value::Null), "`` is not a name: 1 to 255 bytes are allowed"),
            (add("d", Value::I64(1)), "the column `d` is of type u64; its default is of type i64"),
            (drop("x"), "the table has no column `x`"),
            (drop("b"), "the column `b` is part of the primary key"),
            (drop("c"), "the column `c` is part of the index `by_c`"),
            (table().with_renamed_column("x", "y"), "the table has no column `x`"),
            (table().with_renamed_column("a", "b"), "two columns are named `b`"),
        ] {
            assert_eq!(result.unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn dropped_columns_count() {
        let mut schema = table();
        for _ in 0..1021 {
            schema = schema.with_column("d", Type::Bool, Value::Null).unwrap();
            schema = schema.without_column("d").unwrap();
        }
        let error = schema.with_column("d", Type::Bool, Value::Null).unwrap_err();
        let expected = "the table has 4 columns and places of 1021 dropped ones; 1024 are allowed";
        assert_eq!(error.to_string(), expected);
    }
}

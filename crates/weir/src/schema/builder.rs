//! How a schema is put together.

use super::{
    Column, Schema, SchemaError, Stored, StoredIndex, check_columns, check_new_index, index_name,
    primary_name, resolve,
};
use crate::value::Type;

/// Collects a [`Schema`]; everything is checked by [`SchemaBuilder::build`].
#[derive(Debug, Clone, Default)]
pub struct SchemaBuilder {
    columns: Vec<Column>,
    primary_keys: Vec<Vec<String>>,
    indexes: Vec<(String, Vec<String>, bool)>,
}

impl SchemaBuilder {
    /// Adds a column that has a value in every row.
    pub fn column(self, name: &str, column_type: Type) -> Self {
        self.add_column(name, column_type, false)
    }

    /// Adds a column that may be NULL.
    pub fn nullable_column(self, name: &str, column_type: Type) -> Self {
        self.add_column(name, column_type, true)
    }

    fn add_column(mut self, name: &str, column_type: Type, nullable: bool) -> Self {
        self.columns.push(Column { name: name.to_string(), column_type, nullable });
        self
    }

    /// Names the primary key's columns, in the order in which rows are sorted.
    pub fn primary_key(mut self, columns: &[&str]) -> Self {
        self.primary_keys.push(columns.iter().map(ToString::to_string).collect());
        self
    }

    /// Adds a secondary index.
    pub fn index(self, name: &str, columns: &[&str]) -> Self {
        self.add_index(name, columns, false)
    }

    /// Adds a secondary index in which two rows can't have the same values; NULL equals nothing.
    pub fn unique_index(self, name: &str, columns: &[&str]) -> Self {
        self.add_index(name, columns, true)
    }

    fn add_index(mut self, name: &str, columns: &[&str], unique: bool) -> Self {
        let columns = columns.iter().map(ToString::to_string).collect();
        self.indexes.push((name.to_string(), columns, unique));
        self
    }

    /// Checks everything and makes the schema.
    ///
    /// # Errors
    /// [`SchemaError`], the first one found.
    pub fn build(self) -> Result<Schema, SchemaError> {
        check_columns(&self.columns, 0)?;
        let resolve = |key: &str, names: &[String]| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            resolve(&self.columns, key, &names)
        };
        let primary_key = match &self.primary_keys[..] {
            [] => return Err(SchemaError::NoPrimaryKey),
            [names] => resolve(&primary_name(), names)?,
            _ => return Err(SchemaError::TwoPrimaryKeys),
        };
        let mut indexes = Vec::with_capacity(self.indexes.len());
        for (name, columns, unique) in &self.indexes {
            check_new_index(name)?;
            let columns = resolve(&index_name(name), columns)?;
            indexes.push(StoredIndex { name: name.clone(), columns, unique: *unique });
        }
        Stored::new(self.columns, primary_key, indexes).try_into()
    }
}

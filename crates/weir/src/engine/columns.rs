//! Columns of typed tables added, dropped and renamed: the catalog's entry changes, no row does
//! ([`crate::schema`]).

use super::Database;
use super::catalog::TableDef;
use super::ddl::Changes;
use super::error::Result;
use super::table::Table;
use crate::schema::{Layout, Schema, SchemaError};
use crate::value::{Type, Value};

impl Database {
    /// Adds a column to a typed table, after the others, at once however many rows there are: these
    /// have `default` in it, and rows that are written from now on what is given. Waits for those
    /// who use the table. The column may be NULL if the default is.
    ///
    /// Definitions have no versions: a snapshot from before sees the rows that it saw, with the
    /// columns that there are now.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// # txn.insert(&people, &[Value::U64(1)])?;
    /// # txn.commit()?;
    /// // An opening of a newer program brings the table up to date.
    /// if people.schema()?.column_index("visits").is_none() {
    ///     db.add_column(&people, "visits", Type::U64, Value::U64(0))?;
    /// }
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// let one = txn.get(&people, &[Value::U64(1)])?.expect("it was there before");
    /// assert_eq!(one.get(1), Value::U64(0));
    /// txn.update(&people, &[Value::U64(1), Value::U64(5)])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`super::Error::Schema`]: the name is taken, the default of another type, or there are too
    /// many columns; [`super::Error::TableInUse`], [`super::Error::NotTyped`]; storage errors.
    /// Nothing changed then.
    pub fn add_column(
        &self,
        table: &Table,
        column: &str,
        column_type: Type,
        default: Value<'_>,
    ) -> Result<()> {
        self.changes(&self.patience()).add_column(table, column, column_type, default)
    }

    /// Drops a column of a typed table, at once, after waiting for those who use it. A column that
    /// an index has can be dropped after the index, one of the primary key not at all. The rows
    /// keep its bytes until they are written the next time, and a place for it for good; it counts
    /// among the 1,024 columns that a table may have.
    ///
    /// The columns behind it move up by one, and rows are given by position: threads that write
    /// meanwhile ask for [`Transaction::schema`](super::Transaction::schema) in each transaction.
    /// [`Database::create_table`] of another table by this one's schema has no such places.
    ///
    /// # Errors
    /// [`super::Error::Schema`]: there is no such column, or a key has it;
    /// [`super::Error::TableInUse`], [`super::Error::NotTyped`]; storage errors. Nothing changed
    /// then.
    pub fn drop_column(&self, table: &Table, column: &str) -> Result<()> {
        self.changes(&self.patience()).drop_column(table, column)
    }

    /// Gives a column of a typed table another name, after waiting for those who use the table.
    ///
    /// # Errors
    /// [`super::Error::Schema`]: there is no such column, or the name is taken;
    /// [`super::Error::TableInUse`], [`super::Error::NotTyped`]; storage errors. Nothing changed
    /// then.
    pub fn rename_column(&self, table: &Table, from: &str, to: &str) -> Result<()> {
        self.changes(&self.patience()).rename_column(table, from, to)
    }
}

impl Changes<'_> {
    /// As [`Database::add_column`].
    ///
    /// # Errors
    /// As there; [`super::Error::Cancelled`] if patience ends. Nothing changed then.
    pub fn add_column(
        &self,
        table: &Table,
        column: &str,
        column_type: Type,
        default: Value<'_>,
    ) -> Result<()> {
        self.change_schema(table, |schema| schema.with_column(column, column_type, default))
    }

    /// As [`Database::drop_column`].
    ///
    /// # Errors
    /// As there; [`super::Error::Cancelled`] if patience ends. Nothing changed then.
    pub fn drop_column(&self, table: &Table, column: &str) -> Result<()> {
        self.change_schema(table, |schema| schema.without_column(column))
    }

    /// As [`Database::rename_column`].
    ///
    /// # Errors
    /// As there; [`super::Error::Cancelled`] if patience ends. Nothing changed then.
    pub fn rename_column(&self, table: &Table, from: &str, to: &str) -> Result<()> {
        self.change_schema(table, |schema| schema.with_renamed_column(from, to))
    }

    /// Replaces the schema by one that the rows there are have as well.
    fn change_schema(
        &self,
        table: &Table,
        change: impl Fn(&Schema) -> std::result::Result<Schema, SchemaError>,
    ) -> Result<()> {
        self.db.0.home.check(table)?;
        // What makes no sense isn't waited for.
        change(table.0.def()?.typed(table)?)?;
        let _held = self.exclusively(table)?;
        let old = table.0.def()?;
        let layout = Layout::Typed(change(old.typed(table)?)?);
        self.db.0.replace_def(table, TableDef { layout, ..TableDef::clone(&old) })
    }
}

//! Changes of raw tables' definitions: of one table, or of several as one.

use super::Database;
use super::catalog::TableDef;
use super::ddl::{Changes, with_meta};
use super::ddl_txn::DdlTxn;
use super::error::{Error, Result};
use super::indexes::{EntryOut, TableInChange, Wanted};
use super::raw::check_key;
use super::table::{self, Hold, Home, Table};
use crate::schema::{Layout, RawIndex, Schema};
use std::fmt;

/// Makes the entry that a new index has for a row: `(which of the new ones, key, row, entry's key,
/// entry's value)`; the last two are empty before.
pub type EntryOf<'f> =
    dyn FnMut(usize, &[u8], &[u8], &mut Vec<u8>, &mut Vec<u8>) -> Result<()> + 'f;

/// As [`EntryOf`], behind the position of the table's change.
pub type EntryOfOne<'f> =
    dyn FnMut(usize, usize, &[u8], &[u8], &mut Vec<u8>, &mut Vec<u8>) -> Result<()> + 'f;

/// What is to happen to a raw table.
#[derive(Debug, Clone, Copy)]
pub struct TableChange<'a> {
    /// The table.
    pub table: &'a Table,
    /// Names of indexes that go.
    pub drop: &'a [&'a str],
    /// Indexes that get another name, all at once: what they are called now, and what then.
    pub rename: &'a [(&'a str, &'a str)],
    /// New indexes, which come after those that stay.
    pub add: &'a [RawIndex],
    /// What is kept with the table from now on; `None`: what was.
    pub meta: Option<&'a [u8]>,
}

impl TableChange<'_> {
    fn apply(&self, old: &TableDef) -> Result<Wanted> {
        let table = || self.table.name();
        let schema = old.raw(self.table)?;
        let mut named: Vec<usize> = Vec::new();
        let mut position = |index: &str| {
            let at = old.index_named(self.table, index)?;
            if named.contains(&at) {
                return Err(Error::IndexNamedTwice { table: table(), index: index.into() });
            }
            named.push(at);
            Ok(at)
        };
        let dropped = self.drop.iter().map(|index| position(index));
        let dropped: Vec<usize> = dropped.collect::<Result<_>>()?;
        let mut indexes = schema.indexes().to_vec();
        for (from, to) in self.rename {
            indexes[position(from)?].name = (*to).to_string();
        }
        let mut at = 0..indexes.len();
        indexes.retain(|_| at.next().is_some_and(|n| !dropped.contains(&n)));
        let is_there = |new: &&RawIndex| indexes.iter().any(|index| index.name == new.name);
        if let Some(twice) = self.add.iter().find(is_there) {
            return Err(Error::IndexExists { table: table(), index: twice.name.clone() });
        }
        indexes.extend_from_slice(self.add);
        let meta = self.meta.unwrap_or(schema.meta()).to_vec();
        let layout = Layout::Raw(Schema::raw(indexes, meta)?);
        Ok(Wanted { layout, dropped, added: self.add.len() })
    }
}

impl Database {
    /// Drops and adds indexes of a raw table, and replaces its meta if another is given, all or
    /// nothing. New indexes come after those that stay; `entry_of` makes their entries from rows.
    /// Others read and write meanwhile, without entries for them; in the beginning those who are
    /// writing are waited for, in the end all who use the table. A snapshot from before can't use a
    /// new index ([`Error::IndexTooNew`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Direction, Isolation, KeyOf, Lock, Options, RawIndex, RawRange, Schema};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let table = db.create_table("t", Schema::raw(vec![RawIndex::new("old", false)], vec![])?)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert_raw(&table, b"key", b"row", &[])?;
    /// txn.commit()?;
    /// let add = [RawIndex::new("by_row", false)];
    /// db.alter_indexes(&table, &["old"], &add, Some(b"2"), &mut |_, key, row, of_key, _| {
    ///     of_key.extend_from_slice(row);
    ///     of_key.extend_from_slice(key);
    ///     Ok(())
    /// })?;
    /// # assert_eq!(table.meta()?, b"2");
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// let all = RawRange::all();
    /// let mut scan = txn.scan_raw(&table, KeyOf::Index(0), all, Direction::Forward, Lock::None)?;
    /// assert_eq!(scan.next(&mut txn)?.expect("there is one").key, b"rowkey");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotRaw`], [`Error::NoSuchIndex`], [`Error::IndexNamedTwice`],
    /// [`Error::IndexExists`], [`Error::Schema`]; [`Error::Duplicate`] if an index isn't unique as
    /// it should be; [`Error::TableInUse`]; what `entry_of` fails with; storage errors. Nothing
    /// changed then.
    pub fn alter_indexes(
        &self,
        table: &Table,
        drop: &[&str],
        add: &[RawIndex],
        meta: Option<&[u8]>,
        entry_of: &mut EntryOf<'_>,
    ) -> Result<()> {
        let change = TableChange { table, drop, rename: &[], add, meta };
        self.alter_tables(&[change], &mut |_, n, key, row, to, value| {
            entry_of(n, key, row, to, value)
        })
    }

    /// As [`Database::alter_indexes`], of several raw tables, each named once: all of it happens or
    /// nothing.
    ///
    /// # Errors
    /// As [`Database::alter_indexes`]. Nothing changed then.
    pub fn alter_tables(
        &self,
        changes: &[TableChange<'_>],
        entry_of: &mut EntryOfOne<'_>,
    ) -> Result<()> {
        self.changes(&self.patience()).alter_tables(changes, entry_of)
    }
}

/// A change of raw tables' definitions that is made in steps: [`Changes::begin_alter`]. Dropped, it
/// has changed nothing.
#[must_use = "it changes nothing until it is finished"]
pub struct Alteration {
    /// Of the database that it was begun in.
    home: Home,
    txn: DdlTxn,
    tables: Vec<TableInChange>,
}

impl fmt::Debug for Alteration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alteration").field("tables", &self.tables.len()).finish_non_exhaustive()
    }
}

impl Alteration {
    /// What is kept with its `nth` table from then on.
    ///
    /// # Errors
    /// [`Error::Schema`] if it is too long.
    pub fn set_meta(&mut self, nth: usize, meta: &[u8]) -> Result<()> {
        let one = &mut self.tables[nth];
        one.def.layout = with_meta(&one.def, &one.table, meta)?;
        Ok(())
    }
}

impl Changes<'_> {
    /// As [`Database::alter_tables`].
    ///
    /// # Errors
    /// As there; [`Error::Cancelled`] if patience ends. Nothing changed then.
    pub fn alter_tables(
        &self,
        changes: &[TableChange<'_>],
        entry_of: &mut EntryOfOne<'_>,
    ) -> Result<()> {
        let tables: Vec<&Table> = changes.iter().map(|change| change.table).collect();
        tables.iter().try_for_each(|table| self.db.0.home.check(table))?;
        let mut alteration = self.begin_alter()?;
        let holds = table::hold_all(&tables, self.patience)?;
        for (change, hold) in changes.iter().zip(holds) {
            self.add(&mut alteration, change, hold)?;
        }
        self.finish_alter(alteration, entry_of)
    }

    /// Begins a change that is made in steps: tables are added to it ([`Changes::add_change`]),
    /// their new indexes built, and all is finished.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Patience, RawIndex, Schema, TableChange};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let table = db.create_table("t", Schema::raw(vec![], vec![])?)?;
    /// let add = [RawIndex::new("by_row", false)];
    /// let change = TableChange { table: &table, drop: &[], rename: &[], add: &add, meta: None };
    /// let by_row = &mut |_, _, key: &[u8], row: &[u8], of_key: &mut Vec<u8>, _: &mut Vec<u8>| {
    ///     of_key.extend([row, key].concat());
    ///     Ok(())
    /// };
    ///
    /// let patience = Patience::new(std::time::Duration::from_secs(10));
    /// let changes = db.changes(&patience);
    /// let mut alteration = changes.begin_alter()?;
    /// changes.add_change(&mut alteration, &change)?;
    /// changes.build_indexes(&mut alteration, by_row)?;
    /// // Others have written rows meanwhile, and go on, without entries for the new index.
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert_raw(&table, b"key", b"row", &[])?;
    /// txn.commit()?;
    /// changes.finish_alter(alteration, by_row)?;
    /// # db.check(&mut |finding| panic!("{finding}"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Storage errors; [`Error::Cancelled`] if patience ends.
    pub fn begin_alter(&self) -> Result<Alteration> {
        self.db.0.prepare_for_ddl(self.patience)?;
        Ok(Alteration { home: self.db.0.home, txn: self.db.0.begin_ddl(), tables: Vec::new() })
    }

    /// Adds a table and what is to happen to it. Nobody else changes its definition from now on. If
    /// it is to get indexes, those who are writing to it are waited for; others write meanwhile.
    ///
    /// # Errors
    /// As [`Database::alter_tables`]; [`Error::Cancelled`] if patience ends. The alteration can
    /// only be dropped then.
    pub fn add_change(&self, alteration: &mut Alteration, change: &TableChange<'_>) -> Result<()> {
        self.db.0.home.check(change.table)?;
        alteration.home.check(change.table)?;
        let hold = change.table.0.hold(self.patience)?;
        self.add(alteration, change, hold)
    }

    fn add(&self, alteration: &mut Alteration, change: &TableChange<'_>, hold: Hold) -> Result<()> {
        let txn = &mut alteration.txn;
        let one =
            self.db.begin_table(txn, change.table, hold, self.patience, |old| change.apply(old))?;
        alteration.tables.push(one);
        Ok(())
    }

    /// Builds the new indexes of all tables that were added, unless that was done, beside those who
    /// read and write them.
    ///
    /// # Errors
    /// As [`Database::alter_tables`]; [`Error::Cancelled`] if patience ends. The alteration can
    /// only be dropped then.
    pub fn build_indexes(
        &self,
        alteration: &mut Alteration,
        entry_of: &mut EntryOfOne<'_>,
    ) -> Result<()> {
        let Alteration { txn, tables, .. } = alteration;
        tables.iter().try_for_each(|one| self.db.0.home.check(&one.table))?;
        for (nth, one) in tables.iter_mut().enumerate() {
            let of_index = &mut of_raw_index(nth, one.first, entry_of);
            self.db.build_added(txn, one, self.patience, of_index)?;
        }
        // Others have written while the indexes of the last tables were built, and since.
        for (nth, one) in tables.iter_mut().enumerate() {
            let of_index = &mut of_raw_index(nth, one.first, entry_of);
            self.db.catch_up(txn, one, self.patience, of_index)?;
        }
        Ok(())
    }

    /// Does all of it, or nothing, after waiting for those who use the tables. Indexes that are not
    /// built yet are, and what has been written since to tables of those that are is added to them.
    ///
    /// # Errors
    /// As [`Changes::alter_tables`]. Nothing changed then.
    pub fn finish_alter(
        &self,
        mut alteration: Alteration,
        entry_of: &mut EntryOfOne<'_>,
    ) -> Result<()> {
        let (db, patience) = (self.db, self.patience);
        self.build_indexes(&mut alteration, entry_of)?;
        for one in &mut alteration.tables {
            one.hold.wait_for_all(patience)?;
        }
        let Alteration { txn, tables, .. } = &mut alteration;
        for (nth, one) in tables.iter_mut().enumerate() {
            let of_index = &mut of_raw_index(nth, one.first, entry_of);
            db.catch_up_last(txn, one, patience, of_index)?;
        }
        let Alteration { txn, tables, .. } = alteration;
        db.exchange(txn, tables)
    }
}

/// Entries of the new indexes of the `nth` table, of which the first is `first` of all.
fn of_raw_index<'f, 'c>(
    nth: usize,
    first: usize,
    entry_of: &'f mut EntryOfOne<'c>,
) -> impl FnMut(&TableDef, usize, &[u8], &[u8], EntryOut<'_>) -> Result<()> + use<'f, 'c> {
    move |def, n, key, row, out| {
        entry_of(nth, n - first, key, row, out.0, out.1)?;
        check_key(def.layout.index_name(n), out.0)
    }
}

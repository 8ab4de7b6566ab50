//! Changes of raw tables' definitions: of one table, or of several as one.

use super::Database;
use super::catalog::TableDef;
use super::change::Change;
use super::ddl::{Changes, raw};
use super::error::{Error, Result};
use super::indexes::{Beside, Changing, Entry, Wanted, position};
use super::raw::check_key;
use super::table::{self, Table};
use crate::schema::{Layout, RawIndex, Schema};
use std::sync::Arc;

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
        let name = self.table.name();
        let schema = raw(old, &name)?;
        let position = |index: &&str| position(old, &name, index);
        let dropped: Vec<usize> = self.drop.iter().map(position).collect::<Result<_>>()?;
        let mut indexes = schema.indexes().to_vec();
        for (from, to) in self.rename {
            indexes[position(from)?].name = (*to).to_string();
        }
        let mut at = 0..indexes.len();
        indexes.retain(|_| at.next().is_some_and(|n| !dropped.contains(&n)));
        let is_there = |new: &&RawIndex| indexes.iter().any(|index| index.name == new.name);
        if let Some(twice) = self.add.iter().find(is_there) {
            return Err(Error::IndexExists { table: name, index: twice.name.clone() });
        }
        indexes.extend_from_slice(self.add);
        let meta = self.meta.unwrap_or(schema.meta()).to_vec();
        let layout = Layout::Raw(Schema::raw(indexes, meta)?);
        Ok(Wanted { layout, dropped, added: self.add.len() })
    }
}

impl Database {
    /// Drops and adds indexes of a raw table, and replaces its meta if another is given, all or nothing.
    /// New indexes come after those that stay; `entry_of` makes their entries from rows. Readers go on
    /// meanwhile; the transactions that use the table are waited for in the end. One that reads and then
    /// wants to write waits for the change, which waits for it: one of the two times out. A snapshot from
    /// before can't use a new index ([`Error::IndexTooNew`]).
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
    /// [`Error::NotRaw`], [`Error::NoSuchIndex`], [`Error::IndexExists`], [`Error::Schema`]; [`Error::Duplicate`] if
    /// an index isn't unique as it should be; [`Error::TableInUse`]; what `entry_of` fails with; storage
    /// errors. Nothing changed then.
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

    /// As [`Database::alter_indexes`], of several raw tables, each named once: all of it happens or nothing.
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

/// A change of raw tables' definitions of which some of the work is done while others write to them: [`Changes::begin_alter`].
/// Dropped, it has changed nothing.
#[must_use = "it changes nothing until it is finished"]
pub struct Alteration {
    txn: Change,
    tables: Vec<Changing>,
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
        self.finish_alter(self.begin_alter()?, changes, entry_of)
    }

    /// Begins a change whose indexes are built, by [`Changes::build_indexes`], while others read and write the tables; see
    /// [`Changes::finish_alter`]. Nobody else changes these tables' definitions meanwhile.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Patience, RawIndex, Schema, TableChange};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let table = db.create_table("t", Schema::raw(vec![], vec![])?)?;
    /// let add = [RawIndex::new("by_row", false)];
    /// let change = TableChange { table: &table, drop: &[], rename: &[], add: &add, meta: None };
    /// let by_row = |key: &[u8], row: &[u8], of_key: &mut Vec<u8>| of_key.extend([row, key].concat());
    ///
    /// let patience = Patience::new(std::time::Duration::from_secs(10));
    /// let mut alteration = db.changes(&patience).begin_alter()?;
    /// db.changes(&patience).build_indexes(&mut alteration, &change, &mut |_, key, row, of_key, _| {
    ///     by_row(key, row, of_key);
    ///     Ok(())
    /// })?;
    /// // Others have written rows meanwhile, and gone on after that, without entries for the new index.
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert_raw(&table, b"key", b"row", &[])?;
    /// txn.commit()?;
    /// db.changes(&patience).finish_alter(alteration, &[change], &mut |_, _, key, row, of_key, _| {
    ///     by_row(key, row, of_key);
    ///     Ok(())
    /// })?;
    /// let found = db.check(&mut |finding| panic!("{finding}"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Storage errors; [`Error::Cancelled`] if patience ends.
    pub fn begin_alter(&self) -> Result<Alteration> {
        self.db.0.prepare_for_change(self.patience)?;
        Ok(Alteration { txn: self.db.0.change(), tables: Vec::new() })
    }

    /// Builds the new indexes of a table beside those who read and write it; who is writing at the beginning is waited for. What is
    /// written from then on is added, the rest of it by [`Changes::finish_alter`], which is given the same change.
    ///
    /// # Errors
    /// As [`Database::alter_tables`]; [`Error::Cancelled`] if patience ends. The alteration can only be dropped then.
    pub fn build_indexes(
        &self,
        alteration: &mut Alteration,
        change: &TableChange<'_>,
        entry_of: &mut EntryOf<'_>,
    ) -> Result<()> {
        self.db.0.home.check(change.table)?;
        let hold = change.table.0.change(self.patience)?;
        let apply = |old: &TableDef, _: &str| change.apply(old);
        let txn = &mut alteration.txn;
        let mut one = self.db.begin_change(txn, change.table, hold, apply)?;
        let of_index = &mut of_raw_index(one.first, entry_of);
        self.db.build_added(txn, &mut one, Beside::Writers, self.patience, of_index)?;
        alteration.tables.push(one);
        Ok(())
    }

    /// Does all of `changes`, or nothing. Of tables whose indexes have been built already what is left to be done is so once those who use
    /// the table have been waited for; of others they are built first, beside readers.
    ///
    /// # Errors
    /// As [`Changes::alter_tables`]. Nothing changed then.
    pub fn finish_alter(
        &self,
        alteration: Alteration,
        changes: &[TableChange<'_>],
        entry_of: &mut EntryOfOne<'_>,
    ) -> Result<()> {
        let (db, patience) = (self.db, self.patience);
        let Alteration { mut txn, tables: mut built } = alteration;
        changes.iter().try_for_each(|change| db.0.home.check(change.table))?;
        let is_built = |change: &&TableChange<'_>| {
            built.iter().any(|one| Arc::ptr_eq(&one.table.0, &change.table.0))
        };
        let others: Vec<&Table> =
            changes.iter().filter(|c| !is_built(c)).map(|change| change.table).collect();
        let mut holds = table::change_all(&others, patience)?.into_iter();
        let mut all = Vec::with_capacity(changes.len());
        for (nth, change) in changes.iter().enumerate() {
            let of_table =
                &mut |n: usize, key: &[u8], row: &[u8], of_key: &mut _, value: &mut _| {
                    entry_of(nth, n, key, row, of_key, value)
                };
            let at = built.iter().position(|one| Arc::ptr_eq(&one.table.0, &change.table.0));
            let mut one = match at {
                Some(at) => built.swap_remove(at),
                None => {
                    // There is one for each of the others, if none is named twice.
                    let twice = || Error::TableInUse(change.table.name());
                    let hold = holds.next().ok_or_else(twice)?;
                    let apply = |old: &TableDef, _: &str| change.apply(old);
                    let mut one = db.begin_change(&mut txn, change.table, hold, apply)?;
                    let of_index = &mut of_raw_index(one.first, of_table);
                    db.build_added(&mut txn, &mut one, Beside::Readers, patience, of_index)?;
                    one
                }
            };
            let of_index = &mut of_raw_index(one.first, of_table);
            db.finish_added(&mut txn, &mut one, patience, of_index)?;
            if let Some(meta) = change.meta {
                let indexes = raw(&one.def, &change.table.name())?.indexes().to_vec();
                one.def.layout = Layout::Raw(Schema::raw(indexes, meta.to_vec())?);
            }
            all.push(one);
        }
        db.exchange(txn, all)
    }
}

/// Entries of new indexes, of which the first is `first` of all.
fn of_raw_index<'f, 'c>(
    first: usize,
    entry_of: &'f mut EntryOf<'c>,
) -> impl FnMut(&TableDef, usize, &[u8], &[u8], Entry<'_>) -> Result<()> + use<'f, 'c> {
    move |def, n, key, row, out| {
        entry_of(n - first, key, row, out.0, out.1)?;
        check_key(def.layout.index_name(n), out.0)
    }
}

//! Changes of raw tables' definitions: of one table, or of several as one.

use super::Database;
use super::catalog::TableDef;
use super::ddl::{Changes, raw};
use super::error::{Error, Result};
use super::indexes::{Beside, Entry, Wanted, position};
use super::raw::check_key;
use super::table::{self, Table};
use crate::schema::{Layout, RawIndex, Schema};

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
        let (db, patience) = (self.db, self.patience);
        let tables: Vec<&Table> = changes.iter().map(|change| change.table).collect();
        tables.iter().try_for_each(|table| db.0.home.check(table))?;
        db.0.prepare_for_change(patience)?;
        let holds = table::change_all(&tables, patience)?;
        let mut txn = db.0.change();
        let mut all = Vec::with_capacity(changes.len());
        for (nth, (change, hold)) in changes.iter().zip(holds).enumerate() {
            let apply = |old: &TableDef, _: &str| change.apply(old);
            let mut one = db.begin_change(&mut txn, change.table, hold, apply)?;
            let first = one.first;
            let entry_of =
                &mut |def: &TableDef, n: usize, key: &[u8], row: &[u8], out: Entry<'_>| {
                    entry_of(nth, n - first, key, row, out.0, out.1)?;
                    check_key(def.layout.index_name(n), out.0)
                };
            db.build_added(&mut txn, &mut one, Beside::Readers, patience, entry_of)?;
            all.push(one);
        }
        db.exchange(txn, all)
    }
}

//! Indexes added to filled tables, and dropped, in one atomic change. That of raw tables:
//! [`super::alter`].
//!
//! Entries are made from the rows of a snapshot, sorted, and built into new trees. Others go on
//! meanwhile with the indexes that they know; what they write is caught up with
//! ([`super::online`]). The table's users are waited for when the definition is exchanged.

use super::Database;
use super::catalog::{self, PutOp, TableDef};
use super::ddl::{Changes, create_trees, drop_trees, hold_stagings};
use super::ddl_txn::DdlTxn;
use super::error::{Error, Result};
use super::index_trees::IndexDef;
use super::online::Online;
use super::patience::Patience;
use super::read::lacks_rest;
use super::table::{Hold, Table};
use crate::key::KEY_BYTES_MAX;
use crate::key::long::{Stored, is_long, is_short_form, split_rest, whole_key};
use crate::row::RowRef;
use crate::schema::Layout;
use crate::sort::{Sorted, Sorter, Workers};
use crate::tree::Tree;
use crate::tree::bulk::{BulkBuilder, Fill};
use crate::txn::{Direction, HeldStaging, Op, Outcome, Range, Scan, Txn, View, read_chain};
use std::sync::atomic::Ordering;
use weir_page::node::MAX_INLINE;

/// Memory for sorting an index's entries that are too long for a leaf: one may take an eighth of
/// it.
pub(super) const LONG_SORT_BYTES: usize = 8 * 2 * KEY_BYTES_MAX;

/// An index that a typed table is to get: [`Database::create_indexes`].
#[derive(Debug, Clone, Copy)]
pub struct NewIndex<'a> {
    /// Its name.
    pub name: &'a str,
    /// Names of its columns.
    pub columns: &'a [&'a str],
    /// Whether no two rows may have the same values there, unless one of them is NULL.
    pub unique: bool,
}

/// What a table is to have.
pub(super) struct Wanted {
    pub layout: Layout,
    /// Positions of indexes that go.
    pub dropped: Vec<usize>,
    /// How many are new; they come last.
    pub added: usize,
}

/// A table whose definition is about to be exchanged.
pub(super) struct TableInChange {
    pub table: Table,
    pub hold: Hold,
    /// What it will be; indexes from `first` on are new.
    pub def: TableDef,
    pub first: usize,
    gone: Vec<IndexDef>,
    /// If there are new indexes.
    pub online: Option<Online>,
    /// Whether those have the entries of the rows that were there when the change began.
    is_built: bool,
}

/// Sorted entries of a new index.
struct Entries {
    sorted: Sorted,
    /// Those too long for a leaf.
    long: Sorted,
}

impl Database {
    /// Creates an index on a typed table, which may be filled. Others read and write meanwhile; at
    /// the beginning those who write are waited for, in the end all who use the table. Who then
    /// begins to use it waits for the end. Snapshots from before can't use the index
    /// ([`Error::IndexTooNew`]).
    ///
    /// # Errors
    /// [`Error::IndexExists`], [`Error::Duplicate`] if `unique` doesn't hold,
    /// [`Error::TableInUse`], [`Error::NotTyped`]; storage errors. Nothing changed then.
    pub fn create_index(
        &self,
        table: &Table,
        index: &str,
        columns: &[&str],
        unique: bool,
    ) -> Result<()> {
        self.changes(&self.patience()).create_index(table, index, columns, unique)
    }

    /// As [`Database::create_index`], of several indexes at once, for which the rows are read once:
    /// all of them or none.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use weir::{Database, NewIndex, Options, Schema, Type};
    /// let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let people = Schema::builder().column("id", Type::U64).column("name", Type::Text);
    /// let people = db.create_table("people", people.primary_key(&["id"]).build()?)?;
    /// db.create_indexes(&people, &[
    ///     NewIndex { name: "by_name", columns: &["name"], unique: false },
    ///     NewIndex { name: "by_both", columns: &["name", "id"], unique: true },
    /// ])?;
    /// assert_eq!(people.schema()?.indexes().len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As there. Nothing changed then.
    pub fn create_indexes(&self, table: &Table, indexes: &[NewIndex<'_>]) -> Result<()> {
        self.changes(&self.patience()).create_indexes(table, indexes)
    }

    /// Drops an index of a typed table, after waiting for those who use the table.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`], [`Error::TableInUse`], [`Error::NotTyped`]; storage errors. Nothing
    /// changed then.
    pub fn drop_index(&self, table: &Table, index: &str) -> Result<()> {
        let change = |old: &TableDef| {
            let layout = Layout::Typed(old.typed(table)?.without_index(index));
            let dropped = vec![old.index_named(table, index)?];
            Ok(Wanted { layout, dropped, added: 0 })
        };
        self.change_indexes(table, change, &self.patience(), &mut |_, _, _, _, _| Ok(()))
    }

    fn change_indexes(
        &self,
        table: &Table,
        change: impl FnOnce(&TableDef) -> Result<Wanted>,
        patience: &Patience,
        entry_of: &mut OfIndex<'_>,
    ) -> Result<()> {
        self.0.home.check(table)?;
        self.0.prepare_for_ddl(patience)?;
        let hold = table.0.hold(patience)?;
        let mut txn = self.0.begin_ddl();
        let mut one = self.begin_table(&mut txn, table, hold, patience, change)?;
        self.build_added(&mut txn, &mut one, patience, entry_of)?;
        self.catch_up(&mut txn, &mut one, patience, entry_of)?;
        one.hold.wait_for_all(patience)?;
        self.catch_up_last(&mut txn, &mut one, patience, entry_of)?;
        self.exchange(txn, vec![one])
    }

    /// Makes trees for the indexes that a table is to get; from now on others note what they write.
    pub(super) fn begin_table(
        &self,
        txn: &mut Txn,
        table: &Table,
        mut hold: Hold,
        patience: &Patience,
        change: impl FnOnce(&TableDef) -> Result<Wanted>,
    ) -> Result<TableInChange> {
        let old = table.0.def()?;
        let Wanted { layout, dropped, added } = change(&old)?;
        let first = layout.index_count() - added;
        let stay = old.indexes.iter().enumerate().filter(|(n, _)| !dropped.contains(n));
        let mut indexes: Vec<IndexDef> = stay.map(|(_, index)| index.clone()).collect();
        for n in first..layout.index_count() {
            indexes.push(create_trees(txn, layout.index_unique(n))?);
        }
        let gone = dropped.iter().map(|&n| old.indexes[n].clone()).collect();
        let def = TableDef { layout, primary: old.primary, indexes, since: old.since };
        let online = match added {
            0 => None,
            _ => Some(self.begin_online(txn, &mut hold, patience)?),
        };
        let (table, is_built) = (table.clone(), false);
        Ok(TableInChange { table, hold, def, first, gone, online, is_built })
    }

    /// Fills the indexes that a table is to get, from the rows that were there when the change
    /// began, unless that was done.
    pub(super) fn build_added(
        &self,
        txn: &mut Txn,
        one: &mut TableInChange,
        patience: &Patience,
        entry_of: &mut OfIndex<'_>,
    ) -> Result<()> {
        let Some(online) = one.online.as_ref().filter(|_| !one.is_built) else { return Ok(()) };
        let _taking = self.0.transactions.storage.begin_taking()?;
        let entries = self.sort_entries(online.seen.view(), one, patience, entry_of)?;
        for (n, entries) in (one.first..).zip(entries) {
            self.build(txn, &one.table, &one.def, n, patience, entries)?;
        }
        one.is_built = true;
        Ok(())
    }

    /// Exchanges the definitions of tables, all or none; nobody uses them, and each has all that
    /// its new indexes are to have.
    pub(super) fn exchange(&self, txn: DdlTxn, mut all: Vec<TableInChange>) -> Result<()> {
        let _one = self.0.ddl.lock();
        // If it fails it is taken back before others can change the tables: they would find its
        // entries locked.
        let mut txn = txn;
        let held: Vec<HeldStaging<'_>> =
            all.iter().flat_map(|one| hold_stagings(&one.gone)).collect();
        for one in &all {
            catalog::put(&mut txn, &one.table.name(), &one.def, PutOp::Changed)?;
            for index in &one.gone {
                drop_trees(&mut txn, index)?;
            }
        }
        txn.commit()?;
        held.into_iter().for_each(HeldStaging::retire);
        let since = self.0.transactions.now();
        for TableInChange { table, def, first, .. } in &mut all {
            self.add_stagings(&def.indexes[*first..]);
            def.indexes[*first..].iter_mut().for_each(|index| index.since = since);
            table.0.set_def(Some(def.clone()));
        }
        Ok(())
    }

    /// A sort with that much memory, or the least that there is, of which little comes at once.
    pub(super) fn sorter(&self, memory_bytes: usize) -> Sorter {
        self.sorter_with(memory_bytes, Workers::One)
    }

    fn sorter_with(&self, memory_bytes: usize, workers: Workers) -> Sorter {
        // Other indexes are being built, too: of this table and of others.
        let name = format!("index-{}", self.0.sorts.fetch_add(1, Ordering::Relaxed));
        Sorter::new(self.0.transactions.storage.disk.clone(), &name, memory_bytes, workers)
    }

    /// All entries that the table's new indexes have for the rows that `view` sees, sorted.
    fn sort_entries(
        &self,
        view: View,
        one: &TableInChange,
        patience: &Patience,
        entry_of: &mut OfIndex<'_>,
    ) -> Result<Vec<Entries>> {
        let (transactions, def, first) = (&self.0.transactions, &one.def, one.first);
        let count = def.indexes.len() - first;
        let memory = (self.0.options.memory_bytes / 16).min(64 << 20) as usize / count;
        let workers = if self.0.options.inline { Workers::One } else { Workers::Two };
        let pair = |_| (self.sorter_with(memory, workers), self.sorter(LONG_SORT_BYTES));
        let mut sorters: Vec<_> = (0..count).map(pair).collect();
        let (all, forward) = (Range::default(), Direction::Forward);
        let mut scan = Scan::new(transactions.clone(), def.primary, all, forward, 1 << 14);
        let (mut key, mut value, mut whole_row_key) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(row) = scan.next(view)? {
            patience.check()?;
            let chain;
            let bytes = if row.overflow {
                chain = read_chain(&transactions.storage, def.primary, row.value)?;
                &chain[..]
            } else {
                row.value
            };
            let (of_row, bytes) = as_given(def.primary, row.key, bytes, &mut whole_row_key)?;
            for (n, (short, long)) in (first..).zip(&mut sorters) {
                key.clear();
                value.clear();
                entry_of(def, n, of_row, bytes, (&mut key, &mut value))?;
                if is_long(&key) {
                    let stored = Stored::of(&key, &value);
                    (key, value) = (stored.key, stored.value);
                }
                let fits = key.len() + value.len() <= MAX_INLINE;
                if fits { short } else { long }.push(&key, &value)?;
            }
        }
        let finish = |(short, long): (Sorter, Sorter)| {
            Ok(Entries { sorted: short.finish()?, long: long.finish()? })
        };
        sorters.into_iter().map(finish).collect()
    }

    /// Fills the tree of a new index.
    fn build(
        &self,
        txn: &mut Txn,
        table: &Table,
        def: &TableDef,
        n: usize,
        patience: &Patience,
        entries: Entries,
    ) -> Result<()> {
        let tree = def.indexes[n].tree;
        let Entries { mut sorted, mut long } = entries;
        // What order rows have by their keys, they will mostly have been inserted in, and will be.
        let fill = if sorted.came_ascending { Fill::Whole } else { Fill::Spread };
        let mut builder = BulkBuilder::new(&self.0.transactions.storage, tree, fill);
        let mut last: Option<Vec<u8>> = None;
        while let Some((key, value)) = sorted.next()? {
            patience.check()?;
            if last.as_deref() == Some(key) {
                return Err(duplicate(table, def, n, key, value));
            }
            builder.push(key, value, false)?;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        builder.finish()?;
        // Those with chains of their own are inserted like any others, so that each chain is
        // announced.
        while let Some((key, value)) = long.next()? {
            patience.check()?;
            if txn.write(tree, key, Op::Insert(value))? == Outcome::Exists {
                return Err(duplicate(table, def, n, key, value));
            }
        }
        Ok(())
    }
}

impl Changes<'_> {
    /// As [`Database::create_index`].
    ///
    /// # Errors
    /// As there; [`Error::Cancelled`] if patience ends, also while the index is built. Nothing
    /// changed then.
    pub fn create_index(
        &self,
        table: &Table,
        index: &str,
        columns: &[&str],
        unique: bool,
    ) -> Result<()> {
        self.create_indexes(table, &[NewIndex { name: index, columns, unique }])
    }

    /// As [`Database::create_indexes`].
    ///
    /// # Errors
    /// As [`Changes::create_index`].
    pub fn create_indexes(&self, table: &Table, indexes: &[NewIndex<'_>]) -> Result<()> {
        let change = |old: &TableDef| {
            let mut schema = old.typed(table)?.clone();
            for NewIndex { name: index, columns, unique } in indexes {
                if schema.indexes().iter().any(|there| there.name() == *index) {
                    let (table, index) = (table.name(), (*index).into());
                    return Err(Error::IndexExists { table, index });
                }
                schema = schema.with_index(index, columns, *unique)?;
            }
            Ok(Wanted { layout: Layout::Typed(schema), dropped: Vec::new(), added: indexes.len() })
        };
        let entry_of =
            &mut |def: &TableDef, n: usize, key: &[u8], row: &[u8], out: EntryOut<'_>| {
                Ok(RowRef::primary(def.schema(), key, row).index_entry(n, out.0, out.1)?)
            };
        self.db.change_indexes(table, change, self.patience, entry_of)
    }
}

/// The error for an entry, as it is stored, that a new index has already for another row.
pub(super) fn duplicate(
    table: &Table,
    def: &TableDef,
    n: usize,
    key: &[u8],
    value: &[u8],
) -> Error {
    let key = match is_short_form(key) {
        false => key.to_vec(),
        true => match split_rest(value) {
            Some((_, rest)) => whole_key(key, rest),
            None => return lacks_rest(def.indexes[n].tree),
        },
    };
    let index = def.layout.index_name(n).to_string();
    Error::Duplicate { table: table.name(), index, key }
}

/// Key and value of a stored row as their writer gave them.
pub(super) fn as_given<'r>(
    tree: Tree,
    key: &'r [u8],
    value: &'r [u8],
    whole: &'r mut Vec<u8>,
) -> Result<(&'r [u8], &'r [u8])> {
    if !is_short_form(key) {
        return Ok((key, value));
    }
    let (value, rest) = split_rest(value).ok_or_else(|| lacks_rest(tree))?;
    *whole = whole_key(key, rest);
    Ok((whole, value))
}

/// Where an entry's key and value go.
pub(super) type EntryOut<'o> = (&'o mut Vec<u8>, &'o mut Vec<u8>);

/// Makes the entry of the n-th index for a row.
pub(super) type OfIndex<'f> =
    dyn FnMut(&TableDef, usize, &[u8], &[u8], EntryOut<'_>) -> Result<()> + 'f;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Options, TableChange};
    use crate::schema::Schema;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use weir_os::SimDisk;

    /// Who waited for the table found it locked by a change that was still being taken back.
    #[test]
    fn a_change_that_fails_is_taken_back_before_others_may_change_its_tables() {
        let options = Options::default().memory_bytes(8 << 20).redo_capacity_bytes(8 << 20);
        let db = Database::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
        let table =
            |name: String| db.create_table(&name, Schema::raw(vec![], vec![0]).unwrap()).unwrap();
        let tables: Vec<Table> = (0..60).map(|n| table(format!("t{n}"))).collect();
        let last = table("last".into());
        // In the way of the last of a change of all.
        let mut in_the_way = db.0.begin_ddl();
        let def = last.0.def().unwrap();
        catalog::put(&mut in_the_way, "last", &def, PutOp::Changed).unwrap();
        let changes: Vec<TableChange<'_>> = tables
            .iter()
            .chain([&last])
            .map(|table| TableChange { table, drop: &[], rename: &[], add: &[], meta: Some(b"1") })
            .collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..30 {
                    let failed = db.alter_tables(&changes, &mut |_, _, _, _, _, _| Ok(()));
                    assert!(matches!(failed, Err(Error::TableInUse(name)) if name == "last"));
                }
                done.store(true, Ordering::Release);
            });
            for others in 0.. {
                db.set_meta(&tables[others % 7], b"2").unwrap();
                if done.load(Ordering::Acquire) {
                    break;
                }
            }
        });
    }
}

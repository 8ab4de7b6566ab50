//! Indexes added to filled tables, and dropped, in one atomic change.
//!
//! Entries are made from the rows of a snapshot, sorted, and built into new trees. Writers are kept
//! out meanwhile. Beside a change of a raw table, whose caller sees to it that nobody who reads then
//! wants to write, readers go on with the indexes that they know, and the table's users are waited for
//! only when the definition is exchanged. Of a typed table all users are waited for first.

use super::Database;
use super::catalog::{self, IndexDef, PutOp, TableDef};
use super::ddl::{Changes, create_trees, drop_trees, hold_stagings, raw, typed};
use super::error::{Error, Result};
use super::raw::check_key;
use super::table::Table;
use crate::row::RowRef;
use crate::schema::{Layout, RawIndex, Schema};
use crate::sort::{Sorted, Sorter};
use crate::tree::bulk::BulkBuilder;
use crate::txn::{Direction, HeldStaging, Op, Outcome, Range, Scan, Txn, whole};
use std::sync::atomic::Ordering;
use weir_page::node::MAX_INLINE;

/// Makes the entry that a new index has for a row: `(which of the new ones, key, row, entry's key,
/// entry's value)`; the last two are empty before.
pub type EntryOf<'f> =
    dyn FnMut(usize, &[u8], &[u8], &mut Vec<u8>, &mut Vec<u8>) -> Result<()> + 'f;

/// What a table is to have.
struct Change {
    layout: Layout,
    /// Positions of indexes that go.
    dropped: Vec<usize>,
    /// How many are new; they come last.
    added: usize,
}

/// Who may use the table while indexes are built.
enum Beside {
    Nobody,
    Readers,
}

/// Sorted entries of a new index.
struct Entries {
    sorted: Sorted,
    /// Those too long for a leaf.
    long: Sorted,
}

impl Database {
    /// Creates an index on a typed table, which may be filled, after waiting for those who use the
    /// table. Others wait meanwhile.
    ///
    /// # Errors
    /// [`Error::IndexExists`], [`Error::Duplicate`] if `unique` doesn't hold, [`Error::TableInUse`],
    /// [`Error::NotTyped`]; storage errors. Nothing changed then.
    pub fn create_index(
        &self,
        table: &Table,
        index: &str,
        columns: &[&str],
        unique: bool,
    ) -> Result<()> {
        let change = |old: &TableDef, name: &str| {
            if old.layout.index_index(index).is_some() {
                return Err(Error::IndexExists { table: name.into(), index: index.into() });
            }
            let schema = typed(old, name)?.with_index(index, columns, unique)?;
            Ok(Change { layout: Layout::Typed(schema), dropped: Vec::new(), added: 1 })
        };
        let entry_of = &mut |def: &TableDef, n: usize, key: &[u8], row: &[u8], out: Entry<'_>| {
            Ok(RowRef::primary(def.schema(), key, row).index_entry(n, out.0, out.1)?)
        };
        self.changes(&self.patience()).change_indexes(table, Beside::Nobody, change, entry_of)
    }

    /// Drops an index of a typed table, after waiting for those who use the table.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`], [`Error::TableInUse`], [`Error::NotTyped`]; storage errors. Nothing changed
    /// then.
    pub fn drop_index(&self, table: &Table, index: &str) -> Result<()> {
        let change = |old: &TableDef, name: &str| {
            let dropped = vec![position(old, name, index)?];
            let layout = Layout::Typed(typed(old, name)?.without_index(index));
            Ok(Change { layout, dropped, added: 0 })
        };
        let none = &mut |_: &TableDef, _: usize, _: &[u8], _: &[u8], _: Entry<'_>| Ok(());
        self.changes(&self.patience()).change_indexes(table, Beside::Nobody, change, none)
    }

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
        self.changes(&self.patience()).alter_indexes(table, drop, add, meta, entry_of)
    }

    /// All entries that the table's indexes from `first` on have, sorted. Nobody writes to the table.
    fn sort_entries(
        &self,
        txn: &mut Txn,
        def: &TableDef,
        first: usize,
        entry_of: &mut OfIndex<'_>,
    ) -> Result<Vec<Entries>> {
        let shared = &self.0.shared;
        let count = def.indexes.len() - first;
        let memory = (self.0.options.memory_bytes / 16).min(64 << 20) as usize / count;
        let disk = &shared.storage.disk;
        // Other indexes are being built, too: of this table and of others.
        let sorter = |memory: usize| {
            let name = format!("index-{}", self.0.sorts.fetch_add(1, Ordering::Relaxed));
            Sorter::new(disk.clone(), &name, memory.max(1 << 20))
        };
        let mut sorters: Vec<_> = (0..count).map(|_| (sorter(memory), sorter(0))).collect();
        let view = txn.view();
        let (all, forward) = (Range::default(), Direction::Forward);
        let mut scan = Scan::new(shared.clone(), def.primary, all, forward, 1 << 14);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while let Some(row) = scan.next(view)? {
            let chain;
            let bytes = if row.overflow {
                chain = whole(&shared.storage, def.primary, true, row.value)?;
                &chain[..]
            } else {
                row.value
            };
            for (n, (short, long)) in (first..).zip(&mut sorters) {
                key.clear();
                value.clear();
                entry_of(def, n, row.key, bytes, (&mut key, &mut value))?;
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
        entries: Entries,
    ) -> Result<()> {
        let duplicate = |key: &[u8]| {
            let index = def.layout.index_name(n).to_string();
            Error::Duplicate { table: table.name(), index, key: key.to_vec() }
        };
        let tree = def.indexes[n].tree;
        let Entries { mut sorted, mut long } = entries;
        let mut builder = BulkBuilder::new(&self.0.shared.storage, tree);
        let mut last: Option<Vec<u8>> = None;
        while let Some((key, value)) = sorted.next()? {
            if last.as_deref() == Some(key) {
                return Err(duplicate(key));
            }
            builder.push(key, value, false)?;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        builder.finish()?;
        // Those with chains of their own are inserted like any others, so that each chain is announced.
        while let Some((key, value)) = long.next()? {
            if txn.write(tree, key, Op::Insert(value))? == Outcome::Exists {
                return Err(duplicate(key));
            }
        }
        Ok(())
    }
}

impl Changes<'_> {
    /// As [`Database::alter_indexes`].
    ///
    /// # Errors
    /// As there; [`Error::Cancelled`] if patience ends. Nothing changed then.
    pub fn alter_indexes(
        &self,
        table: &Table,
        drop: &[&str],
        add: &[RawIndex],
        meta: Option<&[u8]>,
        entry_of: &mut EntryOf<'_>,
    ) -> Result<()> {
        let kept = std::cell::Cell::new(0);
        let change = |old: &TableDef, name: &str| {
            let schema = raw(old, name)?;
            let dropped: Vec<usize> =
                drop.iter().map(|index| position(old, name, index)).collect::<Result<_>>()?;
            let all = schema.indexes().iter().enumerate();
            let mut indexes: Vec<RawIndex> =
                all.filter(|(n, _)| !dropped.contains(n)).map(|(_, index)| index.clone()).collect();
            kept.set(indexes.len());
            if let Some(twice) = add.iter().find(|new| indexes.iter().any(|i| i.name == new.name)) {
                let index = twice.name.clone();
                return Err(Error::IndexExists { table: name.into(), index });
            }
            indexes.extend_from_slice(add);
            let meta = meta.unwrap_or(schema.meta()).to_vec();
            let layout = Layout::Raw(Schema::raw(indexes, meta)?);
            Ok(Change { layout, dropped, added: add.len() })
        };
        let entry_of = &mut |def: &TableDef, n: usize, key: &[u8], row: &[u8], out: Entry<'_>| {
            entry_of(n - kept.get(), key, row, out.0, out.1)?;
            check_key(def.layout.index_name(n), out.0)
        };
        self.change_indexes(table, Beside::Readers, change, entry_of)
    }

    fn change_indexes(
        &self,
        table: &Table,
        beside: Beside,
        change: impl FnOnce(&TableDef, &str) -> Result<Change>,
        entry_of: &mut OfIndex<'_>,
    ) -> Result<()> {
        self.db.0.roll_back_orphans();
        let mut hold = table.0.change(self.patience)?;
        let (old, name) = (table.0.def()?, table.name());
        let Change { layout, dropped, added } = change(&old, &name)?;
        let first = layout.index_count() - added;
        let mut txn = self.db.0.change();
        let stay = old.indexes.iter().enumerate().filter(|(n, _)| !dropped.contains(n));
        let mut indexes: Vec<IndexDef> = stay.map(|(_, index)| index.clone()).collect();
        for n in first..layout.index_count() {
            indexes.push(create_trees(&mut txn, layout.index_unique(n))?);
        }
        let mut def = TableDef { layout, primary: old.primary, indexes };
        if added > 0 {
            match beside {
                Beside::Nobody => hold.wait_for_all()?,
                Beside::Readers => hold.wait_for_writers()?,
            }
            let entries = self.db.sort_entries(&mut txn, &def, first, entry_of)?;
            for (n, entries) in (first..).zip(entries) {
                self.db.build(&mut txn, table, &def, n, entries)?;
            }
        }
        hold.wait_for_all()?;
        let _one = self.db.0.ddl.lock();
        let gone: Vec<IndexDef> = dropped.iter().map(|&n| old.indexes[n].clone()).collect();
        let held = hold_stagings(&gone);
        catalog::put(&mut txn, &table.name(), &def, PutOp::Changed)?;
        for index in &gone {
            drop_trees(&mut txn, index)?;
        }
        txn.commit()?;
        held.into_iter().for_each(HeldStaging::retire);
        self.db.add_stagings(&def.indexes[first..]);
        let since = self.db.0.shared.now();
        def.indexes[first..].iter_mut().for_each(|index| index.since = since);
        table.0.set_def(Some(def));
        Ok(())
    }
}

/// Where an entry's key and value go.
type Entry<'o> = (&'o mut Vec<u8>, &'o mut Vec<u8>);

/// Makes the entry of the n-th index for a row.
type OfIndex<'f> = dyn FnMut(&TableDef, usize, &[u8], &[u8], Entry<'_>) -> Result<()> + 'f;

fn position(def: &TableDef, table: &str, index: &str) -> Result<usize> {
    def.layout
        .index_index(index)
        .ok_or_else(|| Error::NoSuchIndex { table: table.into(), index: index.into() })
}

//! Creation and removal of tables and indexes.
//!
//! Each is one transaction: trees it makes are gone if it fails, trees it drops are freed once it has
//! committed and nobody can see them. A table's definition changes while nobody uses the table.

use super::Database;
use super::catalog::{self, IndexDef, PutOp, TableDef};
use super::error::{Error, Result};
use super::table::{Shared, Table};
use crate::row::RowRef;
use crate::schema::{Layout, Schema};
use crate::sort::{Sorted, Sorter};
use crate::tree::Tree;
use crate::tree::bulk::BulkBuilder;
use crate::txn::{Direction, Durability, HeldStaging, Range, Scan, Staging, Txn, whole};
use std::sync::Arc;
use weir_page::node::MAX_KEY;

impl Database {
    /// Creates a table: typed, of a [`Schema`], or raw, of a [`crate::schema::RawSchema`].
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::NameTooLong`]; storage errors. Nothing changed then.
    pub fn create_table(&self, name: &str, schema: impl Into<Layout>) -> Result<Table> {
        let layout = schema.into();
        check_name(name)?;
        let _one = self.0.ddl.lock();
        if self.table(name).is_some() {
            return Err(Error::TableExists(name.into()));
        }
        let mut txn = self.0.shared.begin();
        let primary = txn.create_tree()?;
        let mut indexes = Vec::new();
        for n in 0..layout.index_count() {
            indexes.push(create_trees(&mut txn, layout.index_unique(n))?);
        }
        let def = TableDef { layout, primary, indexes };
        catalog::put(&mut txn, name, &def, PutOp::New)?;
        txn.commit(Durability::Sync)?;
        self.add_stagings(&def.indexes);
        let table = Table(Arc::new(Shared::new(name.to_string(), def)));
        self.0.tables.write().insert(name.to_string(), table.clone());
        Ok(table)
    }

    /// Drops a table, after waiting for those who use it. Its space is given back soon after.
    ///
    /// # Errors
    /// [`Error::TableInUse`], [`Error::NoSuchTable`]; storage errors. Nothing changed then.
    pub fn drop_table(&self, table: &Table) -> Result<()> {
        let _one = self.0.ddl.lock();
        let _hold = table.0.exclusive(self.0.options.lock_wait_timeout)?;
        let (def, name) = (table.0.def()?, table.name());
        let held = hold_stagings(&def.indexes);
        let mut txn = self.0.shared.begin();
        catalog::remove(&mut txn, &name)?;
        txn.drop_tree(def.primary)?;
        for index in &def.indexes {
            drop_trees(&mut txn, index)?;
        }
        txn.commit(Durability::Sync)?;
        held.into_iter().for_each(HeldStaging::retire);
        table.0.set_def(None);
        self.0.tables.write().remove(&name);
        Ok(())
    }

    /// Gives a table another name.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::NameTooLong`], [`Error::TableInUse`], [`Error::NoSuchTable`];
    /// storage errors. Nothing changed then.
    pub fn rename_table(&self, table: &Table, to: &str) -> Result<()> {
        check_name(to)?;
        let _one = self.0.ddl.lock();
        if self.table(to).is_some() {
            return Err(Error::TableExists(to.into()));
        }
        let _hold = table.0.exclusive(self.0.options.lock_wait_timeout)?;
        let (def, from) = (table.0.def()?, table.name());
        let mut txn = self.0.shared.begin();
        catalog::remove(&mut txn, &from)?;
        catalog::put(&mut txn, to, &def, PutOp::New)?;
        txn.commit(Durability::Sync)?;
        let mut tables = self.0.tables.write();
        tables.remove(&from);
        *table.0.name.write() = to.to_string();
        tables.insert(to.to_string(), table.clone());
        Ok(())
    }

    /// Creates an index on a table, which may be filled. Others wait meanwhile.
    ///
    /// # Errors
    /// [`Error::IndexExists`], [`Error::Duplicate`] if `unique` doesn't hold, [`Error::TableInUse`];
    /// storage errors. Nothing changed then.
    pub fn create_index(
        &self,
        table: &Table,
        index: &str,
        columns: &[&str],
        unique: bool,
    ) -> Result<()> {
        let _one = self.0.ddl.lock();
        let _hold = table.0.exclusive(self.0.options.lock_wait_timeout)?;
        let (old, name) = (table.0.def()?, table.name());
        if old.layout.index_index(index).is_some() {
            return Err(Error::IndexExists { table: name, index: index.into() });
        }
        let schema = typed(&old, &name)?.with_index(index, columns, unique)?;
        let mut txn = self.0.shared.begin();
        let new = create_trees(&mut txn, unique)?;
        let tree = new.tree;
        let layout = Layout::Typed(schema);
        let mut def = TableDef { layout, primary: old.primary, indexes: old.indexes.clone() };
        def.indexes.push(new);
        let entries = self.sort_entries(&mut txn, &def)?;
        self.build(table, index, tree, entries)?;
        catalog::put(&mut txn, &name, &def, PutOp::Changed)?;
        txn.commit(Durability::Sync)?;
        self.add_stagings(&def.indexes[old.indexes.len()..]);
        let since = self.0.shared.now();
        def.indexes.last_mut().expect("an index was pushed").since = since;
        table.0.set_def(Some(def));
        Ok(())
    }

    /// All entries that the table's last index has, sorted.
    fn sort_entries(&self, txn: &mut Txn, def: &TableDef) -> Result<Sorted> {
        let shared = &self.0.shared;
        let index = def.indexes.len() - 1;
        let memory = (self.0.options.memory_bytes / 16).clamp(1 << 20, 64 << 20);
        let mut sorter = Sorter::new(shared.storage.disk.clone(), "index", memory as usize);
        let view = txn.view();
        let (all, forward) = (Range::default(), Direction::Forward);
        let mut scan = Scan::new(shared.clone(), def.primary, all, forward, 1 << 14);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while let Some(row) = scan.next(view)? {
            key.clear();
            value.clear();
            if row.overflow {
                let bytes = whole(&shared.storage, def.primary, true, row.value)?;
                let row = RowRef::primary(def.schema(), row.key, &bytes);
                row.index_entry(index, &mut key, &mut value)?;
            } else {
                let row = RowRef::primary(def.schema(), row.key, row.value);
                row.index_entry(index, &mut key, &mut value)?;
            }
            sorter.push(&key, &value)?;
        }
        Ok(sorter.finish()?)
    }

    fn build(&self, table: &Table, index: &str, tree: Tree, mut entries: Sorted) -> Result<()> {
        let mut builder = BulkBuilder::new(&self.0.shared.storage, tree);
        let mut last: Option<Vec<u8>> = None;
        while let Some((key, value)) = entries.next()? {
            if last.as_deref() == Some(key) {
                return Err(Error::Duplicate { table: table.name(), index: index.into() });
            }
            builder.push(key, value, false)?;
            let last = last.get_or_insert_default();
            last.clear();
            last.extend_from_slice(key);
        }
        Ok(builder.finish()?)
    }

    /// Drops an index, after waiting for those who use the table.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`], [`Error::TableInUse`]; storage errors. Nothing changed then.
    pub fn drop_index(&self, table: &Table, index: &str) -> Result<()> {
        let _one = self.0.ddl.lock();
        let _hold = table.0.exclusive(self.0.options.lock_wait_timeout)?;
        let (old, name) = (table.0.def()?, table.name());
        let at = old
            .layout
            .index_index(index)
            .ok_or_else(|| Error::NoSuchIndex { table: name.clone(), index: index.into() })?;
        let mut indexes = old.indexes.clone();
        let gone = indexes.remove(at);
        let layout = Layout::Typed(typed(&old, &name)?.without_index(index));
        let def = TableDef { layout, primary: old.primary, indexes };
        let gone = [gone];
        let held = hold_stagings(&gone);
        let mut txn = self.0.shared.begin();
        catalog::put(&mut txn, &name, &def, PutOp::Changed)?;
        drop_trees(&mut txn, &gone[0])?;
        txn.commit(Durability::Sync)?;
        held.into_iter().for_each(HeldStaging::retire);
        table.0.set_def(Some(def));
        Ok(())
    }

    fn add_stagings(&self, indexes: &[IndexDef]) {
        for staging in indexes.iter().filter_map(|index| index.staging.clone()) {
            self.0.shared.staging.add(staging);
        }
    }
}

/// The columns of a table that has some.
fn typed<'a>(def: &'a TableDef, name: &str) -> Result<&'a Schema> {
    match &def.layout {
        Layout::Typed(schema) => Ok(schema),
        Layout::Raw(_) => Err(Error::NotTyped(name.to_string())),
    }
}

/// Creates the trees of an index.
fn create_trees(txn: &mut Txn, unique: bool) -> Result<IndexDef> {
    let tree = txn.create_tree()?;
    let staging = match unique {
        true => None,
        false => Some(Arc::new(Staging::new(tree, txn.create_tree()?))),
    };
    Ok(IndexDef { tree, staging, since: 0 })
}

/// Drops the trees of an index.
fn drop_trees(txn: &mut Txn, index: &IndexDef) -> Result<()> {
    txn.drop_tree(index.tree)?;
    if let Some(staging) = &index.staging {
        txn.drop_tree(staging.tree)?;
    }
    Ok(())
}

/// Keeps entries of these indexes from being moved.
fn hold_stagings(indexes: &[IndexDef]) -> Vec<HeldStaging<'_>> {
    indexes.iter().filter_map(|index| index.staging.as_ref()).map(|s| s.hold()).collect()
}

/// Whether a name can be a table's: it is a key of the catalog.
fn check_name(name: &str) -> Result<()> {
    if name.len() <= MAX_KEY {
        return Ok(());
    }
    let start = name.chars().take(20).collect();
    Err(Error::NameTooLong { start, bytes: name.len() })
}

//! Creation and removal of tables, and changes of what the catalog says of them.
//!
//! Each is one transaction: trees it makes are gone if it fails, trees it drops are freed once it
//! has committed and nobody can see them ([`super::ddl_txn`]). A table's trees change while nobody
//! uses the table. Who waits for a table's users holds nothing that others need: the mutex of
//! definitions is taken afterwards.

use super::catalog::{self, PutOp, TableDef};
use super::error::{Error, Result};
use super::index_trees::IndexDef;
use super::patience::Patience;
use super::table::{self, Hold, Table, TableInner};
use super::{Database, Inner};
use crate::schema::{Layout, Schema};
use crate::storage::to_make_room;
use crate::tree::Tree;
use crate::txn::{Durability, HeldStaging, Staging, Txn};
use parking_lot::MutexGuard;
use std::fmt;
use std::sync::Arc;

impl Database {
    /// Creates a table: typed, of a [`Schema`], or raw, of a [`RawSchema`](crate::RawSchema). Older
    /// snapshots can't read it ([`Error::TableTooNew`]).
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::NameTooLong`]; storage errors. Nothing changed then.
    pub fn create_table(&self, name: &str, schema: impl Into<Layout>) -> Result<Table> {
        self.create(name, schema.into(), false)
    }

    /// As [`Database::create_table`], of a table that only its maker uses: also in a transaction
    /// whose snapshot is older. That it was made, emptied or dropped is as durable as a
    /// [`Durability::Relaxed`] commit: its maker ends with the process.
    ///
    /// # Errors
    /// As there. Nothing changed then.
    pub fn create_own_table(&self, name: &str, schema: impl Into<Layout>) -> Result<Table> {
        self.create(name, schema.into(), true)
    }

    fn create(&self, name: &str, layout: Layout, is_own: bool) -> Result<Table> {
        check_name(name)?;
        self.0.prepare_for_ddl(&self.patience())?;
        let _one = self.0.ddl.lock();
        if self.table(name).is_some() {
            return Err(Error::TableExists(name.into()));
        }
        let layout = match layout {
            Layout::Typed(schema) => Layout::Typed(schema.as_created()),
            raw => raw,
        };
        let mut txn = self.0.begin_ddl();
        let mut def = create_all_trees(&mut txn, layout)?;
        catalog::put(&mut txn, name, &def, PutOp::New)?;
        txn.commit_as(durability_of_change(is_own))?;
        def.since = (!is_own).then(|| self.0.transactions.now());
        self.add_stagings(&def.indexes);
        let table = Table(Arc::new(TableInner::new(self.0.home, name.to_string(), def)));
        self.0.tables.write().insert(name.to_string(), table.clone());
        Ok(table)
    }

    /// Drops a table, after waiting for those who use it. Its space is given back soon after.
    ///
    /// # Errors
    /// [`Error::TableInUse`], [`Error::NoSuchTable`]; storage errors. Nothing changed then.
    pub fn drop_table(&self, table: &Table) -> Result<()> {
        self.changes(&self.patience()).drop_table(table)
    }

    /// Takes all rows out of a table at once, after waiting for those who use it: it gets new
    /// trees. Snapshots from before can't read it ([`Error::TableTooNew`]).
    ///
    /// # Errors
    /// As [`Database::drop_table`].
    pub fn truncate_table(&self, table: &Table) -> Result<()> {
        self.changes(&self.patience()).truncate_table(table)
    }

    /// Gives a table another name. Handles stay valid. Who could read it before still can.
    ///
    /// # Errors
    /// [`Error::TableExists`], [`Error::NameTooLong`], [`Error::TableInUse`],
    /// [`Error::NoSuchTable`]; storage errors. Nothing changed then.
    pub fn rename_table(&self, table: &Table, to: &str) -> Result<()> {
        self.changes(&self.patience()).rename_table(table, to)
    }

    /// Changes of definitions that wait for a table's users as long as there is patience, instead
    /// of [`super::Options::lock_wait_timeout`].
    pub fn changes<'a>(&'a self, patience: &'a Patience) -> Changes<'a> {
        Changes { db: self, patience }
    }

    /// That of changes that nobody ends.
    pub(super) fn patience(&self) -> Patience {
        Patience::new(self.0.options.lock_wait_timeout)
    }

    /// Replaces what the caller keeps with a raw table. Nobody who uses the table is waited for.
    ///
    /// # Errors
    /// [`Error::NotRaw`], [`Error::NoSuchTable`]; [`Error::Schema`] if it is too long;
    /// [`Error::TableInUse`] while the table is being changed otherwise; storage errors. Nothing
    /// changed then.
    pub fn set_meta(&self, table: &Table, meta: &[u8]) -> Result<()> {
        self.0.home.check(table)?;
        let patience = self.patience();
        self.0.prepare_for_ddl(&patience)?;
        let _hold = table.0.hold(&patience)?;
        let _one = self.0.ddl.lock();
        let old = table.0.def()?;
        let layout = with_meta(&old, table, meta)?;
        self.0.replace_def(table, TableDef { layout, ..TableDef::clone(&old) })
    }

    pub(super) fn add_stagings(&self, indexes: &[IndexDef]) {
        for staging in indexes.iter().filter_map(|index| index.staging.clone()) {
            self.0.transactions.staging.add(staging);
        }
    }
}

/// Changes of definitions, with a patience of their own: [`Database::changes`].
pub struct Changes<'a> {
    pub(super) db: &'a Database,
    pub(super) patience: &'a Patience,
}

impl fmt::Debug for Changes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changes").field("patience", self.patience).finish_non_exhaustive()
    }
}

impl Changes<'_> {
    /// As [`Database::drop_table`].
    ///
    /// # Errors
    /// As there; [`Error::Cancelled`] if patience ends. Nothing changed then.
    pub fn drop_table(&self, table: &Table) -> Result<()> {
        self.db.0.home.check(table)?;
        let _held = self.exclusively(table)?;
        let (def, name) = (table.0.def()?, table.name());
        let held = hold_stagings(&def.indexes);
        let _room = to_make_room();
        let mut txn = self.db.0.begin_ddl();
        catalog::remove(&mut txn, &name)?;
        drop_all_trees(&mut txn, &def)?;
        txn.commit_as(durability_of_change(def.is_own()))?;
        held.into_iter().for_each(HeldStaging::retire);
        table.0.set_def(None);
        self.db.0.tables.write().remove(&name);
        Ok(())
    }

    /// As [`Database::truncate_table`].
    ///
    /// # Errors
    /// As [`Changes::drop_table`].
    pub fn truncate_table(&self, table: &Table) -> Result<()> {
        self.truncate_tables(&[table])
    }

    /// As [`Changes::truncate_table`], of several tables: all of them or none.
    ///
    /// # Errors
    /// As there. Nothing changed then.
    pub fn truncate_tables(&self, tables: &[&Table]) -> Result<()> {
        tables.iter().try_for_each(|table| self.db.0.home.check(table))?;
        self.db.0.prepare_for_ddl(self.patience)?;
        let mut holds = table::hold_all(tables, self.patience)?;
        holds.iter_mut().try_for_each(|hold| hold.wait_for_all(self.patience))?;
        let _one = self.db.0.ddl.lock();
        let old = tables.iter().map(|table| table.0.def()).collect::<Result<Vec<_>>>()?;
        let held: Vec<_> = old.iter().flat_map(|def| hold_stagings(&def.indexes)).collect();
        let _room = to_make_room();
        let mut txn = self.db.0.begin_ddl();
        let mut new = Vec::with_capacity(old.len());
        for (table, old) in tables.iter().zip(&old) {
            let def = create_all_trees(&mut txn, old.layout.clone())?;
            catalog::put(&mut txn, &table.name(), &def, PutOp::Changed)?;
            drop_all_trees(&mut txn, old)?;
            new.push(def);
        }
        txn.commit_as(durability_of_change(old.iter().all(|def| def.is_own())))?;
        held.into_iter().for_each(HeldStaging::retire);
        let now = self.db.0.transactions.now();
        for ((table, mut def), old) in tables.iter().zip(new).zip(&old) {
            def.since = old.since.map(|_| now);
            self.db.add_stagings(&def.indexes);
            table.0.set_def(Some(def));
        }
        Ok(())
    }

    /// Waits until nobody uses the table, and keeps others out; then nobody else changes
    /// definitions either.
    pub(super) fn exclusively(&self, table: &Table) -> Result<Exclusive<'_>> {
        self.db.0.prepare_for_ddl(self.patience)?;
        let hold = table.0.exclusive(self.patience)?;
        Ok(Exclusive { _one: self.db.0.ddl.lock(), _hold: hold })
    }

    /// From now on snapshots from before can't read the table ([`Error::TableTooNew`]), after
    /// waiting for those who use it: of a copy that has got its rows and takes another table's
    /// place. A snapshot from meanwhile would miss some.
    ///
    /// # Errors
    /// [`Error::TableInUse`], [`Error::NoSuchTable`]; [`Error::Cancelled`] if patience ends.
    /// Nothing changed then.
    pub fn hide_from_older(&self, table: &Table) -> Result<()> {
        self.db.0.home.check(table)?;
        let _held = self.exclusively(table)?;
        let mut def = TableDef::clone(&*table.0.def()?);
        def.since = def.since.map(|_| self.db.0.transactions.now());
        table.0.set_def(Some(def));
        Ok(())
    }

    /// As [`Database::rename_table`].
    ///
    /// # Errors
    /// As there; [`Error::Cancelled`] if patience ends. Nothing changed then.
    pub fn rename_table(&self, table: &Table, to: &str) -> Result<()> {
        self.rename(table, to, None)
    }

    /// As [`Changes::rename_table`], of a raw table; what the caller keeps with it is replaced at
    /// once.
    ///
    /// # Errors
    /// As there, and [`Error::NotRaw`]; [`Error::Schema`] if `meta` is too long. Nothing changed
    /// then.
    pub fn rename_raw_table(&self, table: &Table, to: &str, meta: &[u8]) -> Result<()> {
        self.rename(table, to, Some(meta))
    }

    fn rename(&self, table: &Table, to: &str, meta: Option<&[u8]>) -> Result<()> {
        check_name(to)?;
        self.db.0.home.check(table)?;
        if self.db.table(to).is_some() {
            return Err(Error::TableExists(to.into()));
        }
        let _held = self.exclusively(table)?;
        if self.db.table(to).is_some() {
            return Err(Error::TableExists(to.into()));
        }
        let from = table.name();
        let mut def = TableDef::clone(&*table.0.def()?);
        if let Some(meta) = meta {
            def.layout = with_meta(&def, table, meta)?;
        }
        let mut txn = self.db.0.begin_ddl();
        catalog::remove(&mut txn, &from)?;
        catalog::put(&mut txn, to, &def, PutOp::New)?;
        txn.commit()?;
        table.0.set_def(Some(def));
        let mut tables = self.db.0.tables.write();
        tables.remove(&from);
        *table.0.name.write() = to.to_string();
        tables.insert(to.to_string(), table.clone());
        Ok(())
    }
}

/// What keeps others from a table and from definitions; given up in this order.
#[must_use]
pub(super) struct Exclusive<'a> {
    _one: MutexGuard<'a, ()>,
    _hold: Hold,
}

impl Inner {
    /// Puts a table's new definition into the catalog, and then in place of the old one. The caller
    /// has a hold on the table, and the mutex of definitions.
    pub(super) fn replace_def(self: &Arc<Self>, table: &Table, def: TableDef) -> Result<()> {
        let mut txn = self.begin_ddl();
        catalog::put(&mut txn, &table.name(), &def, PutOp::Changed)?;
        txn.commit()?;
        table.0.set_def(Some(def));
        Ok(())
    }
}

/// How durable a change of definitions is to be: one of a maker's own table concerns nobody after
/// the process has ended.
fn durability_of_change(is_own: bool) -> Durability {
    if is_own { Durability::Relaxed } else { Durability::Sync }
}

/// A raw table's layout with other bytes of its caller's.
pub(super) fn with_meta(def: &TableDef, table: &Table, meta: &[u8]) -> Result<Layout> {
    let indexes = def.raw(table)?.indexes().to_vec();
    Ok(Layout::Raw(Schema::raw(indexes, meta.to_vec())?))
}

fn create_all_trees(txn: &mut Txn, layout: Layout) -> Result<TableDef> {
    let primary = txn.create_tree()?;
    let mut indexes = Vec::new();
    for n in 0..layout.index_count() {
        indexes.push(create_trees(txn, layout.index_unique(n))?);
    }
    Ok(TableDef { layout, primary, indexes, since: None })
}

fn drop_all_trees(txn: &mut Txn, def: &TableDef) -> Result<()> {
    txn.drop_tree(def.primary)?;
    for index in &def.indexes {
        drop_trees(txn, index)?;
    }
    Ok(())
}

/// Creates the trees of an index.
pub(super) fn create_trees(txn: &mut Txn, unique: bool) -> Result<IndexDef> {
    let tree: Tree = txn.create_tree()?;
    let staging = match unique {
        true => None,
        false => Some(Arc::new(Staging::new(tree, txn.create_tree()?))),
    };
    Ok(IndexDef { tree, staging, since: 0 })
}

/// Drops the trees of an index.
pub(super) fn drop_trees(txn: &mut Txn, index: &IndexDef) -> Result<()> {
    txn.drop_tree(index.tree)?;
    if let Some(staging) = &index.staging {
        txn.drop_tree(staging.tree)?;
    }
    Ok(())
}

/// Keeps entries of these indexes from being moved.
pub(super) fn hold_stagings(indexes: &[IndexDef]) -> Vec<HeldStaging<'_>> {
    indexes.iter().filter_map(|index| index.staging.as_ref()).map(|s| s.hold()).collect()
}

/// Longest name of a table, in bytes.
pub(super) const NAME_BYTES_MAX: usize = crate::key::long::PLAIN;

/// Whether a name can be a table's: it is a key of the catalog.
fn check_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::NoName);
    }
    if name.len() <= NAME_BYTES_MAX {
        return Ok(());
    }
    let start = name.chars().take(20).collect();
    Err(Error::NameTooLong { start, bytes: name.len() })
}

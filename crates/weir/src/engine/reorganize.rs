//! A table's pages filled anew, after much was deleted or has grown page by page.

use super::ddl::Changes;
use super::error::{Error, Result};
use super::patience::Patience;
use super::table::{Table, Use, WaitLimit};
use super::{Database, Inner};
use crate::tree::Tree;
use crate::tree::bulk::Fill;
use crate::tree::reorganize::Plan;

/// What [`Database::reorganize_table`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reorganized {
    /// Pages that held rows and entries before, about.
    pub leaf_pages: u64,
    /// Pages that were freed.
    pub freed_pages: u64,
}

impl Database {
    /// Fills the pages of a table and of its indexes anew, where that frees many: of rows to
    /// fifteen sixteenths, of indexes to three quarters or more. Others read and write meanwhile;
    /// changes of the table's definition wait. It may end at any point: what was done stays. Then
    /// the file is made shorter as [`Database::compact`] does where a fifth of it or more is free,
    /// unless that is being done or a backup is being made; no more pages are moved for that than
    /// were freed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build()?;
    /// # let table = db.create_table("numbers", schema)?;
    /// let mut txn = db.begin(Isolation::ReadCommitted)?;
    /// (0..20_000).try_for_each(|id| txn.insert(&table, &[Value::U64(id)]))?;
    /// txn.commit()?;
    /// let mut txn = db.begin(Isolation::ReadCommitted)?;
    /// for id in (0..20_000).filter(|id| id % 3 > 0) {
    ///     txn.delete(&table, &[Value::U64(id)])?;
    /// }
    /// txn.commit()?;
    /// let reorganized = db.reorganize_table(&table)?;
    /// assert!(reorganized.freed_pages > reorganized.leaf_pages / 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::NoSuchTable`], [`Error::TableInUse`] while its definition
    /// is exchanged; storage errors.
    pub fn reorganize_table(&self, table: &Table) -> Result<Reorganized> {
        self.changes(&self.patience()).reorganize_table(table)
    }
}

impl Changes<'_> {
    /// As [`Database::reorganize_table`].
    ///
    /// # Errors
    /// As there; [`Error::Cancelled`] if patience ends.
    pub fn reorganize_table(&self, table: &Table) -> Result<Reorganized> {
        let (db, patience) = (&self.db.0, self.patience);
        db.home.check(table)?;
        db.writable()?;
        let is_cancelled = &|| patience.has_ended();
        let used = Use::of(table, WaitLimit { timeout: patience.timeout(), is_cancelled })?;
        let mut all = db.reorganize(used.def.primary, Fill::Whole, patience)?;
        for index in &used.def.indexes {
            if let Some(staging) = &index.staging {
                db.transactions.move_staged(staging, || patience.check())?;
            }
            let one = db.reorganize(index.tree, Fill::Spread, patience)?;
            all.leaf_pages += one.leaf_pages;
            all.freed_pages += one.freed_pages;
        }
        drop(used);
        let Some(one) = db.compacting.try_lock() else { return Ok(all) };
        match db.compact(one, all.freed_pages, &mut |_| patience.check()) {
            Ok(_) | Err(Error::BackupRunning) => Ok(all),
            Err(error) if error.is_no_space() => Ok(all),
            Err(error) => Err(error),
        }
    }
}

impl Inner {
    fn reorganize(&self, tree: Tree, fill: Fill, patience: &Patience) -> Result<Reorganized> {
        let s = self.running()?;
        self.transactions.advance_horizon();
        let plan = Plan { fill, below: self.transactions.horizon() };
        let leaf_pages = tree.leaves(s)? as u64;
        let freed_pages = tree.reorganize(s, plan, &mut || patience.check())?;
        Ok(Reorganized { leaf_pages, freed_pages })
    }
}

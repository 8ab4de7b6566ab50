//! The check of a whole database: its structure, and that indexes and rows agree.

use super::catalog::CATALOG;
use super::error::Result;
use super::{Bounds, Database, IndexRef, Isolation, Table};
use crate::check::{self, Finding, Summary};
use crate::txn::Direction;
use weir_page::{PageId, TreeId};

impl Database {
    /// Checks everything: pages, trees, chains, undo lanes, the page map, free space, checksums of all
    /// images, and that each index has exactly the entries that its table's rows ask for. No
    /// transaction may be running; a database opened with [`super::Options::single_threaded`] is quiet.
    ///
    /// # Errors
    /// What keeps the check from going on. Pages that can't be read are findings.
    pub fn check(&self, report: &mut dyn FnMut(Finding)) -> Result<Summary> {
        let mut summary = check::check(&self.0.shared.storage, &self.roots(), report)?;
        for name in self.table_names() {
            let Some(table) = self.table(&name) else { continue };
            self.check_indexes(&table, &mut |finding| {
                summary.findings += 1;
                report(finding);
            })?;
        }
        Ok(summary)
    }

    /// The structure alone, without reading the images of pages that are in memory.
    ///
    /// # Errors
    /// As [`Database::check`].
    pub fn check_quickly(&self, report: &mut dyn FnMut(Finding)) -> Result<Summary> {
        Ok(check::check_quickly(&self.0.shared.storage, &self.roots(), report)?)
    }

    /// All trees in use, and what to call them.
    fn roots(&self) -> Vec<(TreeId, String)> {
        let mut roots = vec![(CATALOG.id, "catalog".to_string())];
        for (name, table) in self.0.tables.read().iter() {
            let Ok(def) = table.0.def() else { continue };
            roots.push((def.primary.id, format!("table `{name}`")));
            for (index, schema) in def.indexes.iter().zip(def.schema.indexes()) {
                let owner = format!("index `{}` of table `{name}`", schema.name());
                if let Some(staging) = &index.staging {
                    roots.push((staging.tree.id, format!("staging of {owner}")));
                }
                roots.push((index.tree.id, owner));
            }
        }
        roots.sort();
        roots
    }

    /// Whether each index has as many entries as the table has rows, and a row for each.
    fn check_indexes(&self, table: &Table, report: &mut dyn FnMut(Finding)) -> Result<()> {
        let def = table.0.def()?;
        let rows = self.count(table, IndexRef::Primary, false)?;
        for (index, schema) in def.indexes.iter().zip(def.schema.indexes()) {
            let owner = format!("index `{}` of table `{}`", schema.name(), table.name());
            let page = PageId(index.tree.id.0);
            let entries = self.count(table, IndexRef::Named(schema.name()), true);
            let what = match entries {
                Ok(entries) if entries == rows => continue,
                Ok(entries) => format!("{entries} entries, but the table has {rows} rows"),
                Err(error) => error.to_string(),
            };
            report(Finding { page, place: None, owner, what });
        }
        Ok(())
    }

    fn count(&self, table: &Table, index: IndexRef<'_>, with_rows: bool) -> Result<u64> {
        let mut txn = self.begin(Isolation::RepeatableRead)?;
        let forward = Direction::Forward;
        let mut cursor = match with_rows {
            true => txn.scan(table, index, Bounds::all(), forward)?,
            false => txn.scan_keys(table, index, Bounds::all(), forward)?,
        };
        let mut n = 0;
        while cursor.next()?.is_some() {
            n += 1;
        }
        Ok(n)
    }
}

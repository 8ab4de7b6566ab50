//! The check of a whole database: its structure, and that indexes and rows agree.

use super::catalog::CATALOG;
use super::ddl::hold_stagings;
use super::error::Result;
use super::{Bounds, Database, IndexRef, Isolation, Table};
use crate::check::{self, Finding, Summary};
use crate::schema::Layout;
use crate::storage::{Fault, Storage};
use crate::txn::Direction;
use weir_page::TreeId;

impl Database {
    /// Checks everything: pages, trees, chains, undo lanes, the page map, free space, checksums of all
    /// images, and that each index has exactly the entries that its table's rows ask for.
    ///
    /// No transaction may be running that writes: what it is just doing may be reported as findings. The database's own
    /// threads may be at work; purge and moves of staged entries rest meanwhile.
    ///
    /// # Errors
    /// What keeps the check from going on. Pages that can't be read are findings.
    pub fn check(&self, report: &mut dyn FnMut(Finding)) -> Result<Summary> {
        let mut summary = self.at_rest(|storage, roots| check::check(storage, roots, report))?;
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
        self.at_rest(|storage, roots| check::check_quickly(storage, roots, report))
    }

    /// What `check` finds while none of the database's own threads changes a tree.
    fn at_rest(
        &self,
        check: impl FnOnce(&Storage, &[(TreeId, String)]) -> std::result::Result<Summary, Fault>,
    ) -> Result<Summary> {
        self.0.prepare_for_work()?;
        let _one = self.0.ddl.lock();
        let tables: Vec<Table> = self.0.tables.read().values().cloned().collect();
        let defs: Vec<_> = tables.iter().filter_map(|table| table.0.def().ok()).collect();
        let _staged: Vec<_> = defs.iter().flat_map(|def| hold_stagings(&def.indexes)).collect();
        let _purge = self.0.shared.hold_purge();
        self.0.shared.storage.wait_for_freed()?;
        Ok(check(&self.0.shared.storage, &self.roots())?)
    }

    /// All trees in use, and what to call them.
    fn roots(&self) -> Vec<(TreeId, String)> {
        let mut roots = vec![(CATALOG.id, "catalog".to_string())];
        for (name, table) in self.0.tables.read().iter() {
            let Ok(def) = table.0.def() else { continue };
            roots.push((def.primary.id, format!("table `{name}`")));
            for (n, index) in def.indexes.iter().enumerate() {
                let owner = format!("index `{}` of table `{name}`", def.layout.index_name(n));
                if let Some(staging) = &index.staging {
                    roots.push((staging.tree.id, format!("staging of {owner}")));
                }
                roots.push((index.tree.id, owner));
            }
        }
        roots.sort();
        roots
    }

    /// Whether each index has an entry for each of the table's rows, as the row asks for it, and no
    /// others. Only the caller knows what the rows of a raw table ask for.
    fn check_indexes(&self, table: &Table, report: &mut dyn FnMut(Finding)) -> Result<()> {
        let def = table.0.def()?;
        let Layout::Typed(schema) = &def.layout else { return Ok(()) };
        if def.indexes.is_empty() {
            return Ok(());
        }
        let rows = match self.count_rows(table) {
            Ok(rows) => rows,
            Err(error) => {
                let owner = format!("table `{}`", table.name());
                let what = format!("its indexes can't be compared with its rows: {error}");
                report(Finding { page: def.primary.root(), place: None, owner, what });
                return Ok(());
            }
        };
        for (n, (index, schema)) in def.indexes.iter().zip(schema.indexes()).enumerate() {
            let what = match self.compare_index(table, n, schema.name()) {
                Ok((entries, 0)) if entries == rows => continue,
                Ok((entries, 0)) => format!("{entries} entries, but the table has {rows} rows"),
                Ok((_, wrong)) => format!("{wrong} entries differ from what their rows ask for"),
                Err(error) => error.to_string(),
            };
            let owner = format!("index `{}` of table `{}`", schema.name(), table.name());
            report(Finding { page: index.tree.root(), place: None, owner, what });
        }
        Ok(())
    }

    fn count_rows(&self, table: &Table) -> Result<u64> {
        let mut txn = self.begin(Isolation::RepeatableRead)?;
        let mut rows =
            txn.scan_keys(table, IndexRef::Primary, Bounds::all(), Direction::Forward)?;
        let mut n = 0;
        while rows.next()?.is_some() {
            n += 1;
        }
        Ok(n)
    }

    /// Number of entries of index `n`, and of those that aren't what their rows ask for.
    fn compare_index(&self, table: &Table, n: usize, name: &str) -> Result<(u64, u64)> {
        let mut txn = self.begin(Isolation::RepeatableRead)?;
        let mut rows = txn.scan(table, name, Bounds::all(), Direction::Forward)?;
        let (mut entries, mut wrong) = (0, 0);
        while rows.next()?.is_some() {
            entries += 1;
            wrong += u64::from(!rows.is_entry_of_row(n)?);
        }
        Ok((entries, wrong))
    }
}

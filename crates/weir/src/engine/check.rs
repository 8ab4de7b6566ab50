//! The check of a whole database: its structure, and that indexes and rows agree.

use super::catalog::CATALOG;
use super::ddl::hold_stagings;
use super::error::Result;
use super::{Bounds, Database, IndexRef, Isolation, Table};
use crate::check::{self, Finding, Place, Roots, Summary};
use crate::schema::Layout;
use crate::storage::{Fault, Storage};
use crate::txn::Direction;
use std::hash::{DefaultHasher, Hash, Hasher};

/// How many entries there are, and the sum of their hashes: the same for the same entries in any
/// order. So rows and entries are each read in their own order, and no row is looked up for an
/// entry, which would be a read of a page for each where memory is smaller than the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sum {
    entries: u64,
    hashes: u64,
}

impl Sum {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        let mut hasher = DefaultHasher::new();
        (key, value).hash(&mut hasher);
        self.entries += 1;
        self.hashes = self.hashes.wrapping_add(hasher.finish());
    }
}

impl Database {
    /// Checks everything: pages, trees, chains, undo lanes, the page map, free space, checksums of
    /// all images; and, if all of these are sound, that no entry is alive in both trees of an
    /// index, and that each index has exactly the entries that its table's rows ask for, but for
    /// raw tables, whose rows only the caller can read.
    ///
    /// No transaction may be running that writes: what it is just doing may be reported as
    /// findings. The database's own threads may be at work; purge and moves of staged entries rest
    /// meanwhile.
    ///
    /// # Errors
    /// What keeps the check from going on. Pages that can't be read are findings.
    pub fn check(&self, report: &mut dyn FnMut(Finding)) -> Result<Summary> {
        let mut summary = self.at_rest(|storage, roots| {
            let mut summary = check::check(storage, roots, report)?;
            if summary.findings == 0 {
                self.check_stagings(&mut |finding| {
                    summary.findings += 1;
                    report(finding);
                })?;
            }
            Ok(summary)
        })?;
        let is_sound = summary.findings == 0;
        for name in self.table_names() {
            let Some(table) = self.table(&name) else { continue };
            let Ok(def) = table.0.def() else { continue };
            if !is_sound || matches!(def.layout, Layout::Raw(_)) {
                summary.uncompared_indexes += def.indexes.len() as u64;
                continue;
            }
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
        check: impl FnOnce(&Storage, &Roots) -> std::result::Result<Summary, Fault>,
    ) -> Result<Summary> {
        self.0.running()?;
        self.0.orphans.retry();
        let _one = self.0.ddl.lock();
        let tables: Vec<Table> = self.0.tables.read().values().cloned().collect();
        let defs: Vec<_> = tables.iter().filter_map(|table| table.0.def().ok()).collect();
        let _staged: Vec<_> = defs.iter().flat_map(|def| hold_stagings(&def.indexes)).collect();
        let _purge = self.0.transactions.hold_purge();
        self.finish_recovery()?;
        self.0.transactions.storage.wait_for_freed()?;
        Ok(check(&self.0.transactions.storage, &self.roots())?)
    }

    /// All trees in use.
    fn roots(&self) -> Roots {
        let mut roots = Roots::default();
        roots.trees.push((CATALOG.id, "catalog".to_string()));
        for (name, table) in self.0.tables.read().iter() {
            let Ok(def) = table.0.def() else { continue };
            roots.trees.push((def.primary.id, format!("table `{name}`")));
            for (n, index) in def.indexes.iter().enumerate() {
                let owner = format!("index `{}` of table `{name}`", def.layout.index_name(n));
                if let Some(staging) = &index.staging {
                    roots.trees.push((staging.tree.id, format!("staging of {owner}")));
                    roots.moves.insert(staging.tree.id, index.tree.id);
                }
                roots.trees.push((index.tree.id, owner));
            }
        }
        roots.trees.sort();
        roots
    }

    /// Reports where the staging tree and the main tree of an index contradict one another. All is
    /// at rest, and all trees are sound.
    fn check_stagings(&self, report: &mut dyn FnMut(Finding)) -> std::result::Result<(), Fault> {
        let storage = &self.0.transactions.storage;
        let tables: Vec<Table> = self.0.tables.read().values().cloned().collect();
        for table in tables {
            let Ok(def) = table.0.def() else { continue };
            for (n, index) in def.indexes.iter().enumerate() {
                let Some(staging) = &index.staging else { continue };
                let name = def.layout.index_name(n);
                let owner = format!("index `{name}` of table `{}`", table.name());
                for (page, slot, what) in staging.tree.contradictions(storage, index.tree)? {
                    let (place, owner) = (Some(Place::Slot(slot)), owner.clone());
                    let what = what.into();
                    report(Finding { page, place, owner, what });
                }
            }
        }
        Ok(())
    }

    /// Whether each index has an entry for each of the table's rows, as the row asks for it, and no
    /// others. Only the caller knows what the rows of a raw table ask for.
    fn check_indexes(&self, table: &Table, report: &mut dyn FnMut(Finding)) -> Result<()> {
        let def = table.0.def()?;
        let Layout::Typed(schema) = &def.layout else { return Ok(()) };
        if def.indexes.is_empty() {
            return Ok(());
        }
        let wanted = match self.sum_rows(table, def.indexes.len()) {
            Ok(wanted) => wanted,
            Err(error) => {
                let owner = format!("table `{}`", table.name());
                let what = format!("its indexes can't be compared with its rows: {error}");
                report(Finding { page: def.primary.root(), place: None, owner, what });
                return Ok(());
            }
        };
        for (n, (index, schema)) in def.indexes.iter().zip(schema.indexes()).enumerate() {
            if self.sum_entries(table, schema.name()).is_ok_and(|found| found == wanted[n]) {
                continue;
            }
            let rows = wanted[n].entries;
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

    /// What the table's rows ask of each of its indexes.
    fn sum_rows(&self, table: &Table, indexes: usize) -> Result<Vec<Sum>> {
        let mut txn = self.begin(Isolation::RepeatableRead)?;
        let mut rows =
            txn.scan_keys(table, IndexRef::Primary, Bounds::all(), Direction::Forward)?;
        let mut sums = vec![Sum::default(); indexes];
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while let Some(row) = rows.next()? {
            for (n, sum) in sums.iter_mut().enumerate() {
                key.clear();
                value.clear();
                row.index_entry(n, &mut key, &mut value)?;
                sum.add(&key, &value);
            }
        }
        Ok(sums)
    }

    /// What is in an index.
    fn sum_entries(&self, table: &Table, name: &str) -> Result<Sum> {
        let mut txn = self.begin(Isolation::RepeatableRead)?;
        let mut entries = txn.scan_keys(table, name, Bounds::all(), Direction::Forward)?;
        let mut sum = Sum::default();
        while entries.next()?.is_some() {
            let entry = entries.entry();
            sum.add(entry.key, entry.value);
        }
        Ok(sum)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Options;
    use crate::schema::Schema;
    use crate::txn::Op;
    use crate::value::{Type, Value};
    use std::sync::Arc;
    use weir_os::SimDisk;

    /// A table of a hundred rows with an index on the second column.
    fn database() -> (Database, Table) {
        let options = Options::default().memory_bytes(8 << 20).redo_capacity_bytes(8 << 20);
        let db = Database::open_on(Arc::new(SimDisk::new(1)), options.single_threaded()).unwrap();
        let schema = Schema::builder()
            .column("id", Type::U64)
            .column("a", Type::U64)
            .primary_key(&["id"])
            .index("by_a", &["a"])
            .build()
            .unwrap();
        let table = db.create_table("t", schema).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in 0..100 {
            txn.insert(&table, &[Value::U64(id), Value::U64(1000 - id)]).unwrap();
        }
        txn.commit().unwrap();
        (db, table)
    }

    /// What the check says after a change of the index behind its table's back.
    fn found(change: impl FnOnce(&mut Vec<(Vec<u8>, Vec<u8>)>)) -> Vec<String> {
        let (db, table) = database();
        let tree = table.0.def().unwrap().indexes[0].tree;
        let before = entries(&db, &table);
        let mut after = before.clone();
        change(&mut after);
        let mut txn = db.0.begin_ddl();
        for (key, _) in before.iter().filter(|entry| !after.contains(entry)) {
            txn.write(tree, key, Op::Delete).unwrap();
        }
        for (key, value) in after.iter().filter(|entry| !before.contains(entry)) {
            txn.write(tree, key, Op::Insert(value)).unwrap();
        }
        txn.commit().unwrap();
        let mut findings = Vec::new();
        let summary = db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
        assert_eq!(summary.findings, findings.len() as u64);
        findings
    }

    #[test]
    fn an_entry_that_is_alive_in_two_trees_is_found_and_not_moved() {
        let (db, table) = database();
        let def = table.0.def().unwrap();
        let index = &def.indexes[0];
        let (key, value) = &entries(&db, &table)[50];
        let mut txn = db.0.begin_ddl();
        let staging = index.staging.as_ref().unwrap();
        txn.insert_staged(staging, key, value).unwrap();
        txn.commit().unwrap();
        let mut findings = Vec::new();
        let summary = db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
        assert_eq!((summary.findings, summary.uncompared_indexes), (1, 1));
        let page = index.tree.root();
        let what = "slot 50: is alive in the staging tree, too";
        assert_eq!(findings, [format!("index `by_a` of table `t`: page {page}, {what}")]);
        db.0.transactions.staging_step().unwrap();
        let before = std::mem::take(&mut findings);
        db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
        assert_eq!(findings, before, "nothing is moved");
    }

    fn entries(db: &Database, table: &Table) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let mut scan = txn.scan_keys(table, "by_a", Bounds::all(), Direction::Forward).unwrap();
        let mut entries = Vec::new();
        while scan.next().unwrap().is_some() {
            let entry = scan.entry();
            entries.push((entry.key.to_vec(), entry.value.to_vec()));
        }
        entries
    }

    #[test]
    fn an_index_that_differs_from_its_table_is_found() {
        assert_eq!(found(|_| {}), Vec::<String>::new());
        let says = |findings: Vec<String>, what: &str| {
            assert_eq!(findings.len(), 1, "{findings:?}");
            assert!(findings[0].contains("index `by_a` of table `t`"), "{findings:?}");
            assert!(findings[0].contains(what), "{findings:?}");
        };
        says(found(|entries| drop(entries.remove(50))), "99 entries, but the table has 100 rows");
        // The last byte of the indexed column: as many entries, one of them of another value.
        let other_value = |entries: &mut Vec<(Vec<u8>, Vec<u8>)>| entries[50].0[1] ^= 1;
        says(found(other_value), "1 entries differ from what their rows ask for");
    }
}

//! The structural check of an open database.

use super::Database;
use super::catalog::CATALOG;
use super::error::Result;
use crate::check::{self, Finding, Summary};
use weir_page::TreeId;

impl Database {
    /// Checks the structure of everything stored, reading every image. No transaction may be running.
    ///
    /// # Errors
    /// What keeps the check from going on. Pages that can't be read are findings.
    pub fn check(&self, report: &mut dyn FnMut(Finding)) -> Result<Summary> {
        Ok(check::check(&self.0.shared.storage, &self.roots(), report)?)
    }

    /// As [`Database::check`], but images of pages in memory are not read.
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
                roots.push((index.tree.id, format!("index `{}` of table `{name}`", schema.name())));
            }
        }
        roots.sort();
        roots
    }
}

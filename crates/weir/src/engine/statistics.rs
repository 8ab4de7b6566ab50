//! Statistics for who plans queries: sizes, ranges, different keys, from a few pages each.
//!
//! Entries count whether or not they are committed. Nothing is kept: who asks often keeps what it was
//! told.

use super::Database;
use super::catalog::TableDef;
use super::error::{Error, Result};
use super::scan::{RawRange, tree_of};
use super::table::{Table, Use};
use crate::schema::KeyOf;
use crate::tree::Tree;
use weir_page::PAGE_SIZE;

/// Leaves that are looked at to judge a tree.
const SAMPLE_LEAVES: usize = 16;
/// Leaves that are looked at to judge how many different keys there are.
const CARDINALITY_LEAVES: usize = 64;

impl Database {
    /// About how many rows the table has; exact for a small one.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; storage errors.
    pub fn estimate_rows(&self, table: &Table) -> Result<u64> {
        let used = self.used(table)?;
        Ok(self.sampled(used.def.primary)?.1)
    }

    /// About how many entries the range has; exact within a leaf or two.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`], [`Error::NoSuchTable`]; storage errors.
    pub fn estimate_range(&self, table: &Table, of: KeyOf, range: RawRange<'_>) -> Result<u64> {
        let used = self.used(table)?;
        let range = range.to_range();
        if range.high.as_ref().is_some_and(|high| *high <= range.low) {
            return Ok(0);
        }
        let mut entries = 0;
        for tree in trees(table, &used.def, of)? {
            let s = &self.0.shared.storage;
            entries += tree.estimate_between(s, &range.low, range.high.as_deref())?;
        }
        Ok(entries)
    }

    /// About how many bytes of pages the rows, or an index, take in memory.
    ///
    /// # Errors
    /// As [`Database::estimate_range`].
    pub fn size_bytes(&self, table: &Table, of: KeyOf) -> Result<u64> {
        let used = self.used(table)?;
        let mut leaves = 0;
        for tree in trees(table, &used.def, of)? {
            leaves += self.sampled(tree)?.0;
        }
        Ok(leaves * PAGE_SIZE as u64)
    }

    /// About how many different keys there are, by each of their first `parts` parts: `split` appends
    /// where each part of a key ends. Exact for a small index.
    ///
    /// # Errors
    /// As [`Database::estimate_range`].
    pub fn cardinality(
        &self,
        table: &Table,
        of: KeyOf,
        parts: usize,
        split: &mut dyn FnMut(&[u8], &mut Vec<usize>),
    ) -> Result<Vec<u64>> {
        let used = self.used(table)?;
        let mut entries = 0.0;
        let mut pairs = 0.0;
        let mut changes = vec![0.0; parts];
        for tree in trees(table, &used.def, of)? {
            let (mut last, mut ends) = (Vec::new(), Vec::new());
            tree.sample(&self.0.shared.storage, CARDINALITY_LEAVES, &mut |stands_for, leaf| {
                // Of neighbours, the last key of one leaf and the first of the next are compared, too.
                if stands_for != 1.0 {
                    last.clear();
                }
                for slot in (0..leaf.len()).filter(|&slot| !leaf.entry(slot).flags.deleted) {
                    let key = [leaf.prefix(), leaf.suffix(slot)].concat();
                    entries += stands_for;
                    if !last.is_empty() {
                        pairs += stands_for;
                        ends.clear();
                        split(&key, &mut ends);
                        for (part, change) in changes.iter_mut().enumerate() {
                            let end = ends.get(part).map_or(key.len(), |end| *end).min(key.len());
                            let same = last.get(..end) == Some(&key[..end]);
                            *change += if same { 0.0 } else { stands_for };
                        }
                    }
                    last = key;
                }
            })?;
        }
        let different = |changes: f64| match pairs {
            0.0 => entries,
            pairs => (changes / pairs * (entries - 1.0) + 1.0).clamp(1.0, entries),
        };
        Ok(changes.into_iter().map(|changes| different(changes).round() as u64).collect())
    }

    fn used(&self, table: &Table) -> Result<Use> {
        Use::of(table, self.0.options.lock_wait_timeout)
    }

    /// About how many leaves and living entries a tree has.
    fn sampled(&self, tree: Tree) -> Result<(u64, u64)> {
        let (mut leaves, mut entries) = (0.0, 0.0);
        tree.sample(&self.0.shared.storage, SAMPLE_LEAVES, &mut |stands_for, leaf| {
            let alive = (0..leaf.len()).filter(|&slot| !leaf.entry(slot).flags.deleted).count();
            leaves += stands_for;
            entries += stands_for * alive as f64;
        })?;
        Ok((leaves.round() as u64, entries.round() as u64))
    }
}

/// The trees that hold a table's rows or an index's entries.
fn trees(table: &Table, def: &TableDef, of: KeyOf) -> Result<Vec<Tree>> {
    let staging = match of {
        KeyOf::Primary => None,
        KeyOf::Index(n) => {
            let index = def.indexes.get(n).ok_or_else(|| Error::NoSuchIndex {
                table: table.name(),
                index: format!("number {n}"),
            })?;
            index.staging.as_ref().filter(|staging| !staging.is_empty()).map(|s| s.tree)
        }
    };
    Ok([Some(tree_of(def, of)), staging].into_iter().flatten().collect())
}

//! Statistics for who plans queries: sizes, ranges, different keys, from a few pages each.
//!
//! Entries count whether or not they are committed. Nothing is kept: who asks often keeps what it
//! was told.

use super::Database;
use super::catalog::TableDef;
use super::cursor::{Bounds, IndexRef};
use super::error::Result;
use super::scan::{RawRange, tree_of};
use super::stem::stored_range;
use super::table::{Table, Use, WaitLimit};
use crate::schema::KeyOf;
use crate::tree::Tree;
use crate::txn::Range;
use weir_page::PAGE_SIZE;

/// Leaves that are looked at to judge a tree.
const SAMPLE_LEAVES: usize = 16;
/// Leaves that are looked at to judge how many different keys there are.
const CARDINALITY_LEAVES: usize = 64;

/// About how large an index is, or a table's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexFigures {
    /// Entries that are not dead, those staged among them, without what those hide.
    pub entries: u64,
    /// Pages that hold them.
    pub leaf_pages: u64,
    /// Pages that hold the values too long for these.
    pub overflow_pages: u64,
    /// Entries of the staging tree, dead ones and tombstones as well.
    pub staged_entries: u64,
    /// Pages of the staging tree that hold them.
    pub staged_leaf_pages: u64,
}

impl IndexFigures {
    /// Bytes of the pages, in memory.
    pub fn size_bytes(&self) -> u64 {
        (self.leaf_pages + self.overflow_pages) * PAGE_SIZE as u64
    }
}

/// Where each part of a key ends.
type Split<'a> = dyn FnMut(&[u8], &mut Vec<usize>) + 'a;

impl Database {
    /// About how many rows the table has; exact for a small one.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; storage errors.
    pub fn estimate_rows(&self, table: &Table) -> Result<u64> {
        let used = self.used(table)?;
        Ok(self.sampled(used.def.primary)?.entries.round() as u64)
    }

    /// About how many entries the range has; exact within a leaf or two.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`], [`Error::NoSuchTable`]; storage errors.
    pub fn estimate_range(&self, table: &Table, of: KeyOf, range: RawRange<'_>) -> Result<u64> {
        let used = self.used(table)?;
        self.estimate_between(table, &used.def, of, range.to_range())
    }

    fn estimate_between(
        &self,
        table: &Table,
        def: &TableDef,
        of: KeyOf,
        mut range: Range,
    ) -> Result<u64> {
        stored_range(&mut range);
        if range.high.as_ref().is_some_and(|high| *high <= range.low) {
            return Ok(0);
        }
        let mut entries = 0;
        for tree in trees(table, def, of)? {
            let s = &self.0.transactions.storage;
            entries += tree.estimate_between(s, &range.low, range.high.as_deref())?;
        }
        Ok(entries.max(0) as u64)
    }

    /// About how many rows of a typed table lie within bounds of an index: exact where they are in
    /// a leaf or two, else judged by a few leaves, and wrong by half or more where rows differ much
    /// in size. Rows that aren't committed count, too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Bounds, Database, Isolation, Options, Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).column("city", Type::Text);
    /// # let schema = schema.primary_key(&["id"]).index("by_city", &["city"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// # for (id, city) in [(1, "London"), (2, "London"), (3, "Turin")] {
    /// #     txn.insert(&people, &[Value::U64(id), Value::Text(city)])?;
    /// # }
    /// # txn.commit()?;
    /// let london = [Value::Text("London")];
    /// assert_eq!(db.estimate_bounds(&people, "by_city", Bounds::prefix(&london))?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`], [`Error::NoSuchTable`], [`Error::NotTyped`], [`Error::Row`]; storage
    /// errors.
    pub fn estimate_bounds<'i>(
        &self,
        table: &Table,
        index: impl Into<IndexRef<'i>>,
        bounds: Bounds<'_>,
    ) -> Result<u64> {
        let used = self.used(table)?;
        used.def.typed(table)?;
        let of = index.into().resolve(table, &used.def)?;
        let range = bounds.encode(used.def.schema(), of)?;
        self.estimate_between(table, &used.def, of, range)
    }

    /// About how large the rows, or an index, are.
    ///
    /// # Errors
    /// As [`Database::estimate_range`].
    pub fn index_figures(&self, table: &Table, of: KeyOf) -> Result<IndexFigures> {
        let used = self.used(table)?;
        let (mut figures, mut entries) = (IndexFigures::default(), 0.0);
        for (n, tree) in trees(table, &used.def, of)?.into_iter().enumerate() {
            let of_tree = self.sampled(tree)?;
            entries += of_tree.entries;
            figures.leaf_pages += of_tree.leaf_pages;
            figures.overflow_pages += of_tree.overflow_pages;
            if n > 0 {
                figures.staged_entries += of_tree.all_entries as u64;
                figures.staged_leaf_pages += of_tree.leaf_pages;
            }
        }
        figures.entries = entries.max(0.0).round() as u64;
        Ok(figures)
    }

    /// About how many different keys there are, by each of their first `parts` parts: `split`
    /// appends where each part of a key ends. Exact for a small index.
    ///
    /// # Errors
    /// As [`Database::estimate_range`].
    pub fn cardinality(
        &self,
        table: &Table,
        of: KeyOf,
        parts: usize,
        split: &mut Split<'_>,
    ) -> Result<Vec<u64>> {
        let used = self.used(table)?;
        let mut total: Option<Keys> = None;
        for tree in trees(table, &used.def, of)? {
            let keys = self.keys_of(tree, parts, split)?;
            total = Some(match total {
                None => keys,
                Some(main) => main.with_staged(&keys),
            });
        }
        let different = total.map_or(Vec::new(), |keys| keys.different);
        Ok(different.into_iter().map(|different| different.round() as u64).collect())
    }

    /// Counts a tree's keys: as many as change from one entry to the next in the leaves that are
    /// looked at, taken for all leaves, and no fewer than were seen.
    fn keys_of(&self, tree: Tree, parts: usize, split: &mut Split<'_>) -> Result<Keys> {
        let (mut entries, mut pairs, mut hidden) = (0.0, 0.0, 0.0);
        let (mut changes, mut seen) = (vec![0.0; parts], vec![1.0; parts]);
        let (mut last, mut key, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        tree.sample(&self.0.transactions.storage, CARDINALITY_LEAVES, &mut |stands_for, leaf| {
            // Leaves that aren't neighbours: between them there is one change at least if their
            // keys differ.
            let mut follows = stands_for == 1.0;
            for slot in 0..leaf.len() {
                let flags = leaf.entry(slot).flags;
                hidden += if flags.hides { stands_for } else { 0.0 };
                if flags.deleted {
                    continue;
                }
                key.clear();
                key.extend_from_slice(leaf.prefix());
                key.extend_from_slice(leaf.suffix(slot));
                entries += stands_for;
                if !last.is_empty() {
                    let weight = if follows { stands_for } else { 0.0 };
                    pairs += weight;
                    ends.clear();
                    split(&key, &mut ends);
                    for part in 0..parts {
                        let end = ends.get(part).map_or(key.len(), |end| *end).min(key.len());
                        if last.get(..end) != Some(&key[..end]) {
                            changes[part] += weight;
                            seen[part] += 1.0;
                        }
                    }
                }
                follows = true;
                std::mem::swap(&mut last, &mut key);
            }
        })?;
        let different = |(&changes, &seen): (&f64, &f64)| match pairs {
            0.0 => entries,
            pairs => (changes / pairs * (entries - 1.0) + 1.0).max(seen).min(entries),
        };
        Ok(Keys { entries, hidden, different: changes.iter().zip(&seen).map(different).collect() })
    }

    fn used(&self, table: &Table) -> Result<Use> {
        self.0.home.check(table)?;
        Use::of(table, WaitLimit::of(self.0.options.lock_wait_timeout))
    }

    /// About how large a tree is.
    fn sampled(&self, tree: Tree) -> Result<Sampled> {
        let (mut leaves, mut entries, mut overflow) = (0.0, 0.0, 0.0);
        let mut all_entries = 0.0;
        tree.sample(&self.0.transactions.storage, SAMPLE_LEAVES, &mut |stands_for, leaf| {
            leaves += stands_for;
            entries += stands_for * leaf.alive(0..leaf.len()) as f64;
            all_entries += stands_for * leaf.len() as f64;
            overflow += stands_for * leaf.overflow_pages() as f64;
        })?;
        let [leaf_pages, overflow_pages] =
            [leaves, overflow].map(|pages: f64| pages.round() as u64);
        Ok(Sampled { entries, all_entries, leaf_pages, overflow_pages })
    }
}

/// About how large a tree is.
struct Sampled {
    /// As [`weir_page::node::alive`] counts them.
    entries: f64,
    /// Dead ones as well.
    all_entries: f64,
    leaf_pages: u64,
    overflow_pages: u64,
}

/// How many different keys a tree has, by each of their first parts.
struct Keys {
    entries: f64,
    /// Those of the main tree that this, a staging tree, hides.
    hidden: f64,
    different: Vec<f64>,
}

impl Keys {
    /// Together with the keys of the staging tree. How many of these are new isn't known without
    /// reading what staging avoids: they are taken to be spread as those of the main tree are.
    fn with_staged(self, staged: &Keys) -> Keys {
        let entries = (self.entries - staged.hidden).max(0.0) + staged.entries;
        let growth = if self.entries > 0.0 { entries / self.entries } else { 1.0 };
        let together = |(&main, &new): (&f64, &f64)| {
            (main * growth).clamp(main.min(entries).max(new), main + new)
        };
        let different = self.different.iter().zip(&staged.different).map(together).collect();
        Keys { entries, hidden: 0.0, different }
    }
}

/// The trees that hold a table's rows or an index's entries: the main one first.
fn trees(table: &Table, def: &TableDef, of: KeyOf) -> Result<Vec<Tree>> {
    let staging = match of {
        KeyOf::Primary => None,
        KeyOf::Index(n) => {
            let staging = def.index(table, n)?.staging.as_ref();
            staging.filter(|staging| !staging.is_empty()).map(|staging| staging.tree)
        }
    };
    Ok([Some(tree_of(def, of)), staging].into_iter().flatten().collect())
}

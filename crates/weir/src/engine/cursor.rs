//! Ordered reads of a table.

use super::catalog::TableDef;
use super::error::{Error, Result, inconsistent};
use super::transaction::{Transaction, tree_of};
use crate::key::KeyRange;
use crate::row::{RowError, RowRef, primary_key_of_entry};
use crate::schema::{KeyOf, Schema};
use crate::txn::{Direction, HeldSnapshot, MergedScan, Range, View};
use crate::value::Value;
use std::ops::Bound;
use std::sync::Arc;

/// Which index a scan goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexRef<'a> {
    /// The primary key.
    Primary,
    /// The secondary index of that name.
    Named(&'a str),
}

impl<'a> From<&'a str> for IndexRef<'a> {
    fn from(name: &'a str) -> Self {
        IndexRef::Named(name)
    }
}

/// Which part of an index a scan covers, by values of its first columns.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'a> {
    low: Bound<&'a [Value<'a>]>,
    high: Bound<&'a [Value<'a>]>,
}

impl<'a> Bounds<'a> {
    /// All of it.
    pub fn all() -> Bounds<'static> {
        Bounds { low: Bound::Unbounded, high: Bound::Unbounded }
    }

    /// Entries whose first columns have these values.
    pub fn prefix(values: &'a [Value<'a>]) -> Bounds<'a> {
        Bounds { low: Bound::Included(values), high: Bound::Included(values) }
    }

    /// From one end to the other; an included end covers every entry that begins with its values.
    pub fn new(low: Bound<&'a [Value<'a>]>, high: Bound<&'a [Value<'a>]>) -> Bounds<'a> {
        Bounds { low, high }
    }

    pub(super) fn encode(
        &self,
        schema: &Schema,
        of: KeyOf,
    ) -> std::result::Result<Range, RowError> {
        let range = KeyRange::new(schema, of, self.low, self.high)?;
        Ok(Range { low: range.lower().to_vec(), high: range.upper().map(<[u8]>::to_vec) })
    }
}

/// A running scan. The transaction can be used through [`Cursor::transaction`] meanwhile; the scan
/// sees what its statement saw at the start.
pub struct Cursor<'t> {
    transaction: &'t mut Transaction,
    def: Arc<TableDef>,
    of: KeyOf,
    view: View,
    /// The transaction may take another snapshot meanwhile, or end in a deadlock.
    _held: Option<HeldSnapshot>,
    scan: MergedScan,
    keys_only: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Rows fetched at first; more later.
const FIRST_FETCH: usize = 16;

impl<'t> Cursor<'t> {
    pub(super) fn new(
        transaction: &'t mut Transaction,
        def: Arc<TableDef>,
        of: KeyOf,
        view: View,
        range: Range,
        direction: Direction,
        keys_only: bool,
    ) -> Self {
        let tree = tree_of(&def, of);
        let staging = match of {
            KeyOf::Primary => None,
            KeyOf::Index(n) => def.indexes[n].staging.as_deref(),
        };
        let shared = transaction.shared();
        let scan = MergedScan::new(shared, tree, staging, range, direction, FIRST_FETCH);
        let covers_all = view.snapshot == View::EVERYTHING;
        let _held = (!covers_all).then(|| transaction.shared().hold_snapshot(view.snapshot));
        let (key, value) = (Vec::new(), Vec::new());
        Cursor { transaction, def, of, view, _held, scan, keys_only, key, value }
    }

    /// The next row; it lives until the next call.
    ///
    /// # Errors
    /// Storage errors.
    #[expect(clippy::should_implement_trait, reason = "rows borrow from the cursor")]
    #[inline]
    pub fn next(&mut self) -> Result<Option<RowRef<'_>>> {
        if self.transaction.has_ended() {
            return Err(Error::Ended);
        }
        let KeyOf::Index(n) = self.of else { return self.next_row() };
        while let Some(entry) = self.scan.next(self.view)? {
            if self.keys_only && !entry.outdated {
                // Borrowed anew: the borrow checker doesn't see that the loop ends here.
                let entry = self.scan.last();
                return Ok(Some(RowRef::index(&self.def.schema, n, entry.key, entry.value)));
            }
            if !self.find_row(n)? {
                continue;
            }
            let schema = &self.def.schema;
            if self.keys_only {
                let entry = self.scan.last();
                return Ok(Some(RowRef::index(schema, n, entry.key, entry.value)));
            }
            return Ok(Some(RowRef::primary(schema, &self.key, &self.value)));
        }
        Ok(None)
    }

    fn next_row(&mut self) -> Result<Option<RowRef<'_>>> {
        while let Some(entry) = self.scan.next(self.view)? {
            if !entry.overflow {
                // Borrowed anew: the borrow checker doesn't see that the loop ends here.
                let entry = self.scan.last();
                return Ok(Some(RowRef::primary(&self.def.schema, entry.key, entry.value)));
            }
            // The entry was copied a while ago: a version that isn't committed may have gone with its
            // chain since, so the row is looked up anew.
            self.key.clear();
            self.key.extend_from_slice(entry.key);
            let row = self.transaction.get_encoded(self.view, self.def.primary, &self.key)?;
            if let Some(row) = row {
                self.value = row;
                return Ok(Some(RowRef::primary(&self.def.schema, &self.key, &self.value)));
            }
        }
        Ok(None)
    }

    /// Reads the row of the entry at hand. `false`: the transaction has changed the row from a newer
    /// version than its snapshot's, so the snapshot's entry is no longer that of the row.
    fn find_row(&mut self, n: usize) -> Result<bool> {
        let entry = self.scan.last();
        let schema = &self.def.schema;
        self.key.clear();
        primary_key_of_entry(schema, n, entry.key, entry.value, &mut self.key)?;
        match self.transaction.get_encoded(self.view, self.def.primary, &self.key)? {
            Some(row) => self.value = row,
            None if entry.outdated => return Ok(false),
            // What isn't committed may change between the two looks: others' rows, or our own when
            // rows are deleted while they are scanned.
            None if !self.view.is_committed() => return Ok(false),
            None => {
                let tree = tree_of(&self.def, self.of);
                return Err(inconsistent(tree, "an entry of the index has no row"));
            }
        }
        if !entry.outdated {
            return Ok(true);
        }
        self.is_entry_of_row(n)
    }

    /// Whether index `n`'s entry at hand is the one that the row at hand asks for.
    pub(super) fn is_entry_of_row(&self, n: usize) -> Result<bool> {
        let entry = self.scan.last();
        let row = RowRef::primary(&self.def.schema, &self.key, &self.value);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        row.index_entry(n, &mut key, &mut value)?;
        Ok(key == entry.key && value == entry.value)
    }

    /// The transaction that scans.
    pub fn transaction(&mut self) -> &mut Transaction {
        self.transaction
    }
}

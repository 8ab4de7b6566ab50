//! Ordered reads of a table.

use super::catalog::TableDef;
use super::error::{Error, Result, inconsistent};
use super::transaction::{Transaction, tree_of};
use crate::key::KeyRange;
use crate::row::{RowError, RowRef, primary_key_of_entry};
use crate::schema::{KeyOf, Schema};
use crate::txn::{Direction, HeldSnapshot, Range, Scan, View, whole};
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
    scan: Scan,
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
        let scan = Scan::new(transaction.shared().clone(), tree, range, direction, FIRST_FETCH);
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
        match self.of {
            KeyOf::Index(n) if !self.keys_only => self.next_by_index(n),
            of => self.next_entry(of),
        }
    }

    /// The next entry of the tree itself.
    #[inline]
    fn next_entry(&mut self, of: KeyOf) -> Result<Option<RowRef<'_>>> {
        let schema = &self.def.schema;
        let Some(entry) = self.scan.next(self.view)? else { return Ok(None) };
        match of {
            KeyOf::Index(n) => Ok(Some(RowRef::index(schema, n, entry.key, entry.value))),
            KeyOf::Primary if !entry.overflow => {
                Ok(Some(RowRef::primary(schema, entry.key, entry.value)))
            }
            KeyOf::Primary => {
                let storage = &self.transaction.shared().storage;
                self.value = whole(storage, self.def.primary, true, entry.value)?;
                Ok(Some(RowRef::primary(schema, entry.key, &self.value)))
            }
        }
    }

    /// The row that the next entry of the index refers to.
    fn next_by_index(&mut self, n: usize) -> Result<Option<RowRef<'_>>> {
        while let Some(entry) = self.scan.next(self.view)? {
            self.key.clear();
            primary_key_of_entry(&self.def.schema, n, entry.key, entry.value, &mut self.key)?;
            if let Some(row) =
                self.transaction.get_encoded(self.view, self.def.primary, &self.key)?
            {
                self.value = row;
                return Ok(Some(RowRef::primary(&self.def.schema, &self.key, &self.value)));
            }
            // What isn't committed may change between the two looks: others' rows, or our own when
            // rows are deleted while they are scanned.
            if self.view.is_committed() {
                let tree = tree_of(&self.def, self.of);
                return Err(inconsistent(tree, "an entry of the index has no row"));
            }
        }
        Ok(None)
    }

    /// The transaction that scans.
    pub fn transaction(&mut self) -> &mut Transaction {
        self.transaction
    }
}

//! Ordered reads of a table.

use super::error::{Result, inconsistent};
use super::lock::{Lock, Wait};
use super::scan::{RawEntry, RawScan, Reads, tree_of};
use super::transaction::Transaction;
use crate::key::KeyRange;
use crate::row::{RowError, RowRef, primary_key_of_entry};
use crate::schema::{KeyOf, Schema};
use crate::txn::Range;
use crate::value::Value;
use std::fmt;
use std::ops::Bound;

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

/// A running scan. The transaction can be used through [`Cursor::transaction`] meanwhile. Of others, a scan that doesn't lock
/// sees what its statement saw at the start. What the transaction itself changes ahead of the scan, the scan may come to: a loop
/// that moves rows ahead, or inserts there, may not end. Taken back to a savepoint meanwhile, the transaction finds what is there then.
pub struct Cursor<'t> {
    transaction: &'t mut Transaction,
    scan: RawScan,
    keys_only: bool,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("transaction", &self.transaction).finish_non_exhaustive()
    }
}

impl<'t> Cursor<'t> {
    pub(super) fn new(transaction: &'t mut Transaction, scan: RawScan, keys_only: bool) -> Self {
        Cursor { transaction, scan, keys_only, key: Vec::new(), value: Vec::new() }
    }

    /// The next row; it lives until the next call.
    ///
    /// # Errors
    /// Storage errors; lock errors where it locks. All but a deadlock leave the scan where it is.
    #[expect(clippy::should_implement_trait, reason = "rows borrow from the cursor")]
    // So that a row is made where the caller has it: to move one that has just been written costs more than to read it.
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<RowRef<'_>>> {
        while self.scan.advance(self.transaction)? {
            let of = self.scan.of();
            if let KeyOf::Index(n) = of {
                let stands_alone = self.keys_only && self.scan.last().current;
                if !stands_alone && !self.find_row_in_turn(n)? {
                    continue;
                }
            }
            let schema = self.scan.def().schema();
            return Ok(Some(match of {
                KeyOf::Index(_) if !self.keys_only => {
                    RowRef::primary(schema, &self.key, &self.value)
                }
                _ => {
                    let entry = self.scan.last();
                    RowRef::new(schema, of, entry.key, entry.value)
                }
            }));
        }
        Ok(None)
    }

    /// Reads the row of the entry at hand. `false`: the row is passed over, or has another entry by now:
    /// the transaction has changed it from a newer version than its snapshot's, or others have before it
    /// was locked.
    fn find_row(&mut self, n: usize) -> Result<bool> {
        let reads = self.scan.reads();
        let entry = self.scan.last();
        let def = self.scan.def();
        self.key.clear();
        primary_key_of_entry(def.schema(), n, entry.key, entry.value, &mut self.key)?;
        let found = match reads {
            Reads::View(view) => {
                self.transaction.get_in(view, def.primary, &self.key, &mut self.value)?
            }
            Reads::Newest => {
                self.transaction.read_row(def.rows(), &self.key, Lock::None, &mut self.value)?
            }
            Reads::Locked(mode, wait) => {
                let (key, value) = (&self.key[..], &mut self.value);
                self.transaction.get_locked(def.primary, key, mode, wait, value)?
            }
        };
        if !found {
            // What isn't committed may change between the two looks: others' rows, or our own when
            // rows are deleted while they are scanned.
            let settled = matches!(reads, Reads::View(view) if view.is_committed());
            if !entry.current || !settled {
                return Ok(false);
            }
            let tree = tree_of(def, self.scan.of());
            return Err(inconsistent(tree, "an entry of the index has no row"));
        }
        // A dirty read may find what was written between the two looks.
        if entry.current && !matches!(reads, Reads::View(view) if view.is_dirty()) {
            return Ok(true);
        }
        self.is_entry_of_row(n)
    }

    /// As [`Cursor::find_row`]; where a row had to be waited for, or has another entry now, the scan looks for that
    /// behind the entry at hand. If it fails, the scan comes to the entry again.
    fn find_row_in_turn(&mut self, n: usize) -> Result<bool> {
        let waits = self.transaction.lock_waits();
        let found = match self.find_row(n) {
            Ok(found) => found,
            Err(error) => {
                self.scan.give_again();
                return Err(error);
            }
        };
        let is_in_turn = matches!(self.scan.reads(), Reads::Locked(_, wait) if wait != Wait::Skip);
        if is_in_turn && (!found || self.transaction.lock_waits() != waits) {
            let key = self.scan.last().key.to_vec();
            self.scan.behind(&key);
        }
        Ok(found)
    }

    /// The entry at hand, as its tree has it.
    pub(super) fn entry(&self) -> RawEntry<'_> {
        self.scan.last()
    }

    /// Whether index `n`'s entry at hand is the one that the row at hand asks for.
    pub(super) fn is_entry_of_row(&self, n: usize) -> Result<bool> {
        let entry = self.scan.last();
        let row = RowRef::primary(self.scan.def().schema(), &self.key, &self.value);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        row.index_entry(n, &mut key, &mut value)?;
        Ok(key == entry.key && value == entry.value)
    }

    /// The transaction that scans.
    pub fn transaction(&mut self) -> &mut Transaction {
        self.transaction
    }
}

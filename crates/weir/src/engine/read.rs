//! Reads of rows, as bytes: the path that typed and raw statements share, and what they see.
//!
//! Long keys become short forms here ([`crate::key::long`]).

use super::catalog::{Rows, TableDef};
use super::error::{Error, Result, inconsistent};
use super::lock::{Lock, Wait};
use super::scan::{Begin, RawScan, Reads};
use super::table::Table;
use super::transaction::{Isolation, Transaction};
use crate::key::long::{is_long, short_form, split_rest};
use crate::lock::Mode;
use crate::schema::KeyOf;
use crate::tree::Tree;
use crate::txn::{Direction, HeldSnapshot, Range, View};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static SERIAL: AtomicU64 = AtomicU64::new(1);

/// Takes the key's rest off what was found under a short form.
pub(super) fn cut_rest(tree: Tree, value: &mut Vec<u8>) -> Result<()> {
    let len = split_rest(value).ok_or_else(|| lacks_rest(tree))?.0.len();
    value.truncate(len);
    Ok(())
}

/// An entry under a short form isn't one.
pub(super) fn lacks_rest(tree: Tree) -> Error {
    inconsistent(tree, "an entry under a short form lacks the rest of its key")
}

impl Transaction {
    /// Begins a statement of several raw reads: under [`Isolation::ReadCommitted`] they see what is
    /// committed now. A typed read is a statement of its own.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn begin_statement(&mut self) -> Result<()> {
        self.drop_statement_snapshot()
    }

    /// Ends a statement of several raw reads: under [`Isolation::ReadCommitted`] nothing of what it
    /// saw is kept for it any more, whenever the next one comes. Scans that go on keep what they
    /// see.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn end_statement(&mut self) -> Result<()> {
        self.drop_statement_snapshot()
    }

    /// Takes the snapshot now that the first read would take otherwise (CONSISTENT SNAPSHOT).
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn take_snapshot(&mut self) -> Result<()> {
        self.txn()?.take_snapshot();
        Ok(())
    }

    /// Gives up what the last statement saw, at the level at which each sees what is committed by
    /// then.
    pub(super) fn drop_statement_snapshot(&mut self) -> Result<()> {
        let isolation = self.isolation();
        let txn = self.txn()?;
        if isolation == Isolation::ReadCommitted {
            txn.drop_snapshot();
        }
        Ok(())
    }

    /// Keeps what the statement sees.
    pub(super) fn hold_snapshot(&mut self) -> Result<HeldSnapshot> {
        Ok(self.txn()?.hold_snapshot())
    }

    /// What the statement sees.
    pub(super) fn view(&mut self) -> Result<View> {
        let isolation = self.isolation();
        let txn = self.txn()?;
        Ok(match isolation {
            Isolation::ReadUncommitted => View { own: txn.id(), snapshot: View::EVERYTHING },
            Isolation::ReadCommitted | Isolation::RepeatableRead | Isolation::Serializable => {
                txn.view()
            }
        })
    }

    /// What the statement sees of a table.
    fn view_of(&mut self, rows: Rows) -> Result<View> {
        let view = self.view()?;
        match rows.since {
            Some(since) if view.snapshot < since => {
                Err(Error::TableTooNew(self.name_of(rows.tree)))
            }
            _ => Ok(view),
        }
    }

    /// Reads a row by its key, in place of what is in `out`; whether there is one.
    #[inline]
    pub(super) fn read_row(
        &mut self,
        rows: Rows,
        key: &[u8],
        lock: Lock,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match is_long(key) {
            false => self.read_stored(rows, key, lock, out),
            true => {
                let found = self.read_stored(rows, &short_form(key), lock, out)?;
                if found {
                    cut_rest(rows.tree, out)?;
                }
                Ok(found)
            }
        }
    }

    /// As [`Transaction::read_row`], by the key that is stored; what is found is as it is stored.
    pub(super) fn read_stored(
        &mut self,
        rows: Rows,
        key: &[u8],
        lock: Lock,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        match lock.mode() {
            Some((mode, wait)) => self.get_stored_locked(rows.tree, key, mode, wait, out),
            None if self.isolation() == Isolation::Serializable => {
                self.get_stored_locked(rows.tree, key, Mode::Shared, Wait::ForTimeout, out)
            }
            None => {
                let view = self.view_of(rows)?;
                self.get_stored_in(view, rows.tree, key, out)
            }
        }
    }

    /// Reads what a view sees of a row.
    pub(super) fn get_in(
        &mut self,
        view: View,
        tree: Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let found = self.get_stored_in(view, tree, &short_form(key), out)?;
        if found && is_long(key) {
            cut_rest(tree, out)?;
        }
        Ok(found)
    }

    /// As [`Transaction::get_in`], by the key that is stored; what is found is as it is stored.
    pub(super) fn get_stored_in(
        &mut self,
        view: View,
        tree: Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        Ok(self.txn()?.get_into(view, tree, key, out)?)
    }

    /// Locks a row and reads its newest version; whether there is one, and it isn't passed over.
    pub(super) fn get_locked(
        &mut self,
        tree: Tree,
        key: &[u8],
        mode: Mode,
        wait: Wait,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let found = self.get_stored_locked(tree, &short_form(key), mode, wait, out)?;
        if found && is_long(key) {
            cut_rest(tree, out)?;
        }
        Ok(found)
    }

    /// As [`Transaction::get_locked`], by the key that is stored; what is found is as it is stored.
    pub(super) fn get_stored_locked(
        &mut self,
        tree: Tree,
        key: &[u8],
        mode: Mode,
        wait: Wait,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let waits = wait == Wait::ForTimeout;
        match self.waiting(|txn| txn.get_locked(tree, key, mode, waits, out)) {
            Ok(found) => Ok(found),
            Err(Error::LockWaitTimeout) if wait == Wait::Skip => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn unlock_key(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        self.txn()?.unlock(tree, &short_form(key));
        Ok(())
    }

    /// Whether the last locking read took the lock of this row, which wasn't held before, and the
    /// row's being written can replace it: not where what was read is to stay as it is even if the
    /// transaction goes back to a savepoint.
    pub(super) fn took_lock(&mut self, tree: Tree, key: &[u8]) -> Result<bool> {
        Ok(!self.locks_ranges && self.txn()?.took_lock(tree, &short_form(key)))
    }

    /// Gives up the lock of a row that has been written since it was taken: that holds the row.
    pub(super) fn release_written(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        self.txn()?.release_written(tree, &short_form(key));
        Ok(())
    }

    /// Begins a scan of a table that it has entered.
    pub(super) fn begin_scan(
        &mut self,
        table: &Table,
        def: Arc<TableDef>,
        of: KeyOf,
        range: Range,
        direction: Direction,
        lock: Lock,
    ) -> Result<RawScan> {
        if self.serial == 0 {
            self.serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        }
        let serializable = self.isolation() == Isolation::Serializable;
        let (reads, ranges) = match lock.mode() {
            Some((mode, Wait::Skip)) => (Reads::Locked(mode, Wait::Skip), None),
            Some((mode, wait)) => (Reads::Locked(mode, wait), self.locks_ranges.then_some(mode)),
            None if serializable => (Reads::Newest, Some(Mode::Shared)),
            None => (Reads::View(self.view_of(def.rows())?), None),
        };
        if let (KeyOf::Index(n), Reads::View(view)) = (of, reads)
            && view.snapshot < def.indexes[n].since
        {
            let index = def.layout.index_name(n).to_string();
            return Err(Error::IndexTooNew { table: table.name(), index });
        }
        // Under the other levels the transaction keeps its snapshot as long as the scan can go on.
        let held = match reads {
            Reads::View(_) if self.isolation() == Isolation::ReadCommitted => {
                Some(self.hold_snapshot()?)
            }
            _ => None,
        };
        let widens = (self.isolation() == Isolation::RepeatableRead || ranges.is_some())
            && of == KeyOf::Primary
            && matches!(reads, Reads::Locked(_, Wait::ForTimeout | Wait::No));
        Ok(RawScan::new(self, Begin { def, of, reads, ranges, widens }, range, direction, held))
    }

    /// A statement depends on whether there is a row with this key: where ranges are locked that
    /// mustn't change.
    pub(super) fn lock_for_write(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        if !self.locks_ranges {
            return Ok(());
        }
        let mut old = Vec::new();
        self.get_locked(tree, key, Mode::Exclusive, Wait::ForTimeout, &mut old)?;
        Ok(())
    }
}

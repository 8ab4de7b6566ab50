//! The transaction in which definitions change (DDL).
//!
//! It may end at any of its steps, by an error. What it has done is then taken back like any
//! transaction's: at once, or, on a device too full even for that, as soon as there is space, while
//! the database goes on. Until then the catalog's entries that it has written are locked.

use super::Inner;
use super::error::Result;
use crate::txn::{Durability, Txn};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

/// A transaction that changes definitions; see the module.
pub(super) struct DdlTxn {
    db: Arc<Inner>,
    /// `None` once it has ended.
    txn: Option<Txn>,
}

impl DdlTxn {
    /// Commits, durably.
    ///
    /// # Errors
    /// Storage errors: it is taken back, or the log has failed and the next opening tells.
    pub fn commit(self) -> Result<()> {
        self.commit_as(Durability::Sync)
    }

    /// Commits, as durably as is said.
    ///
    /// # Errors
    /// As [`DdlTxn::commit`].
    pub fn commit_as(mut self, durability: Durability) -> Result<()> {
        let end = self.commit_visibly()?;
        self.txn = None;
        Ok(self.db.transactions.wait_for_commit(end, durability)?)
    }
}

impl Deref for DdlTxn {
    type Target = Txn;

    fn deref(&self) -> &Txn {
        self.txn.as_ref().expect("a transaction that has ended isn't used")
    }
}

impl DerefMut for DdlTxn {
    fn deref_mut(&mut self) -> &mut Txn {
        self.txn.as_mut().expect("a transaction that has ended isn't used")
    }
}

impl Drop for DdlTxn {
    fn drop(&mut self) {
        if let Some(txn) = self.txn.take() {
            // Its error has been told already, or it stops the storage.
            let _ = self.db.orphans.take_back(txn, Vec::new(), None);
        }
    }
}

impl Inner {
    /// Begins one. Who writes to the catalog with it has the catalog's mutex.
    pub(super) fn begin_ddl(self: &Arc<Self>) -> DdlTxn {
        let mut txn = self.transactions.begin();
        // One change writes to the catalog at a time: only one that can't be taken back yet is in
        // the way.
        txn.lock_timeout = Duration::ZERO;
        DdlTxn { db: self.clone(), txn: Some(txn) }
    }
}

//! Transactions that could not be rolled back for want of space: they are later.

use super::Inner;
use super::table::Use;
use crate::txn::{Txn, TxnError};
use std::sync::atomic::Ordering;

/// A transaction whose user has left it, or a change of definitions, that could not be rolled back for want
/// of space.
pub(super) struct Orphan {
    txn: Txn,
    /// Their definitions must not change before.
    _used: Vec<Use>,
    /// Its name, if it was prepared: nobody else may have it before the log says that this one isn't any more.
    xid: Option<Vec<u8>>,
}

impl Inner {
    /// Takes everything back that a transaction has done; what can't be for want of space, later. `used`: its
    /// tables; `xid`: its name, if it was prepared.
    ///
    /// # Errors
    /// Faults of the storage.
    pub(super) fn take_back(
        &self,
        mut txn: Txn,
        used: Vec<Use>,
        xid: Option<Vec<u8>>,
    ) -> std::result::Result<(), TxnError> {
        let result = txn.roll_back();
        let orphan = Orphan { txn, _used: used, xid };
        match &result {
            Err(TxnError::Fault(fault)) if fault.is_no_space() => {
                self.orphans.lock().push(orphan);
                self.has_orphans.store(true, Ordering::Release);
            }
            _ => self.forget(orphan),
        }
        result
    }

    /// It has ended: its tables and its name are free. If it has not, that stops the storage.
    fn forget(&self, orphan: Orphan) {
        let Orphan { txn, _used, xid } = orphan;
        drop((txn, _used));
        if let Some(xid) = xid {
            self.prepared.remove(&xid);
        }
    }

    /// Leaves what could not be rolled back to the next opening.
    pub(super) fn leave_orphans(&self) {
        self.orphans.lock().drain(..).for_each(|orphan| orphan.txn.leave());
    }

    /// Rolls back what could not be before, as far as there is space now.
    #[inline]
    pub(super) fn roll_back_orphans(&self) {
        if self.has_orphans.load(Ordering::Acquire) {
            self.try_orphans();
        }
    }

    #[cold]
    fn try_orphans(&self) {
        let Some(mut orphans) = self.orphans.try_lock() else { return };
        while let Some(mut orphan) = orphans.pop() {
            match orphan.txn.roll_back() {
                Err(TxnError::Fault(fault)) if fault.is_no_space() => return orphans.push(orphan),
                _ => self.forget(orphan),
            }
        }
        self.has_orphans.store(false, Ordering::Release);
    }
}

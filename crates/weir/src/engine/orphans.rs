//! Transactions that could not be rolled back for want of space: they are later.

use super::prepared::Registry;
use super::table::Use;
use crate::txn::{Txn, TxnError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A transaction whose user has left it, or a change of definitions, that could not be rolled back
/// for want of space.
struct Orphan {
    txn: Txn,
    /// Their definitions must not change before.
    _used: Vec<Use>,
    /// Its name, if it was prepared: nobody else may have it before the log says that this one
    /// isn't any more.
    xid: Option<Vec<u8>>,
}

/// Those that are left; the thread of purge tries them again and again.
pub(super) struct Orphans {
    left: Mutex<Vec<Orphan>>,
    /// Whether there are any, for who asks while one is rolled back.
    any: AtomicBool,
    prepared: Arc<Registry>,
}

impl Orphans {
    pub fn new(prepared: Arc<Registry>) -> Orphans {
        Orphans { left: Mutex::default(), any: AtomicBool::new(false), prepared }
    }

    /// Takes everything back that a transaction has done; what can't be for want of space, later.
    /// `used`: its tables; `xid`: its name, if it was prepared.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn take_back(
        &self,
        mut txn: Txn,
        used: Vec<Use>,
        xid: Option<Vec<u8>>,
    ) -> Result<(), TxnError> {
        let result = txn.try_rollback();
        let orphan = Orphan { txn, _used: used, xid };
        match &result {
            Err(TxnError::Fault(fault)) if fault.is_no_space() => {
                self.left.lock().push(orphan);
                self.any.store(true, Ordering::Release);
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
    pub fn leave(&self) {
        self.left.lock().drain(..).for_each(|orphan| orphan.txn.leave());
    }

    /// Whether any are left.
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Rolls back what could not be before, as far as there is space now.
    pub fn retry(&self) {
        if !self.any() {
            return;
        }
        let Some(mut left) = self.left.try_lock() else { return };
        while let Some(mut orphan) = left.pop() {
            match orphan.txn.try_rollback() {
                Err(TxnError::Fault(fault)) if fault.is_no_space() => return left.push(orphan),
                _ => self.forget(orphan),
            }
        }
        self.any.store(false, Ordering::Release);
    }
}

//! What is told of locks to who asks.

use super::Mode;
use std::time::{Duration, Instant, SystemTime};
use weir_page::types::{TreeId, TxnId};

/// One lock held or waited for, as `LockTable::describe` saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockInfo {
    /// Tree of the row.
    pub tree: TreeId,
    /// Key of the row; where a range begins.
    pub key: Vec<u8>,
    /// How much is locked.
    pub extent: Extent,
    /// Holder or waiter.
    pub txn: TxnId,
    /// Mode held or wanted.
    pub mode: Mode,
    /// The wait; `None` for a lock that is held.
    pub wait: Option<WaitInfo>,
}

/// What a lock covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// One key.
    Key,
    /// All keys up to this one, which is not covered; without one, to the end.
    To(Option<Vec<u8>>),
}

/// A wait, as `LockTable::describe` saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitInfo {
    /// When it began.
    pub since: Instant,
    /// The nearest transactions it waits for; these may wait in turn.
    pub waits_for: Vec<TxnId>,
}

/// A circle of waits that was broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// When it was found.
    pub at: SystemTime,
    /// Each waits for the next, the last for the first.
    pub waits: Vec<DeadlockWait>,
    /// The transaction whose wait was ended for it.
    pub victim: TxnId,
}

/// A wait in a deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadlockWait {
    /// The lock, and who waited for it.
    pub lock: LockInfo,
    /// For how long it had been waited for.
    pub waited: Duration,
    /// Whose transaction that is ([`crate::Transaction::set_connection`]); 0 if it wasn't told.
    pub connection: u64,
}

//! What is told of locks to who asks.

use super::Mode;
use std::time::Instant;
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

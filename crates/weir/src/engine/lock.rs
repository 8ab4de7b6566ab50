//! How a read locks what it reads.

use crate::lock::Mode;

/// Whether a read locks, and what it does if it can't at once. A read that locks gives the newest
/// committed version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lock {
    /// It doesn't: it gives what the transaction's isolation level says.
    #[default]
    None,
    /// Others may read under lock, too; nobody else may write.
    Shared(Wait),
    /// Nobody else may lock or write.
    Exclusive(Wait),
}

/// What a locking read does when another transaction is in its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Wait {
    /// It waits as long as the transaction's timeout says.
    #[default]
    ForTimeout,
    /// It fails at once with [`crate::Error::LockWaitTimeout`] (NOWAIT).
    No,
    /// It passes over the row (SKIP LOCKED).
    Skip,
}

impl Lock {
    /// Mode and manner of waiting, if it locks.
    pub(super) fn mode(self) -> Option<(Mode, Wait)> {
        match self {
            Lock::None => None,
            Lock::Shared(wait) => Some((Mode::Shared, wait)),
            Lock::Exclusive(wait) => Some((Mode::Exclusive, wait)),
        }
    }
}

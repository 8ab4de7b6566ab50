//! Commits that are visible before they are durable.

use super::Database;
use super::error::{Error, Result};
use super::table::Home;
use crate::txn::Durability;
use weir_page::Lsn;

/// A commit that others see and that has yet to become durable; see
/// [`Transaction::commit_in_order`].
#[derive(Debug, Clone, Copy)]
#[must_use = "the commit is not durable yet"]
pub struct Committed {
    /// Where it ends in the log; none if nothing was written.
    pub(super) end: Option<Lsn>,
    /// Whose log that is.
    pub(super) home: Home,
    pub(super) durability: Durability,
}

impl Database {
    /// Waits until a commit is as durable as its transaction asked for.
    ///
    /// # Errors
    /// [`Error::ForeignCommit`]; storage errors: then it isn't known whether it is durable.
    pub fn wait(&self, committed: Committed) -> Result<()> {
        if committed.home != self.0.home {
            return Err(Error::ForeignCommit);
        }
        Ok(self.0.transactions.wait_for_commit(committed.end, committed.durability)?)
    }
}

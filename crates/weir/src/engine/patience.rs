//! How long a change of definitions waits for those who use the table, and how somebody else ends the wait.
//!
//! A prepared transaction that nobody decides uses its tables for as long as it likes, after a restart too:
//! whoever wants to change one of them has to give up some time, or is told to.

use super::error::{Error, Result};
use super::table::Shared;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long changes of definitions wait for a table's users ([`super::Database::changes`]). Clones are one:
/// one of them waits, another ends that.
#[derive(Clone)]
pub struct Patience(Arc<Inner>);

struct Inner {
    timeout: Duration,
    ended: AtomicBool,
    connection: AtomicU64,
    /// The table that is being changed.
    changing: Mutex<Option<Arc<Shared>>>,
}

impl fmt::Debug for Patience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Patience")
            .field("timeout", &self.timeout())
            .field("has_ended", &self.has_ended())
            .finish_non_exhaustive()
    }
}

impl Patience {
    /// That of `timeout`, for each wait.
    pub fn new(timeout: Duration) -> Self {
        let (ended, connection, changing) = Default::default();
        Patience(Arc::new(Inner { timeout, ended, connection, changing }))
    }

    /// Says for whom indexes are built, as [`super::Database::snapshots`] tells it; see [`super::Transaction::set_connection`].
    pub fn set_connection(&self, connection: u64) {
        self.0.connection.store(connection, Ordering::Relaxed);
    }

    pub(super) fn connection(&self) -> u64 {
        self.0.connection.load(Ordering::Relaxed)
    }

    /// Ends the wait that is on, and all later ones, and the building of indexes, with
    /// [`super::Error::Cancelled`].
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
        let changing = self.0.changing.lock().clone();
        if let Some(table) = changing {
            table.wake();
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.0.timeout
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Fails once it has ended.
    pub(super) fn check(&self) -> Result<()> {
        if self.has_ended() { Err(Error::Cancelled) } else { Ok(()) }
    }

    /// From now on the end of patience is told to whoever waits for the table.
    pub(super) fn begin(&self, table: &Arc<Shared>) {
        *self.0.changing.lock() = Some(table.clone());
    }
}

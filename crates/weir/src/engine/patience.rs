//! How long a change of definitions waits for those who use the table, and how somebody else ends
//! the wait.
//!
//! A prepared transaction that nobody decides uses its tables for as long as it likes, after a
//! restart too: whoever wants to change one of them has to give up some time, or is told to.

use super::error::{Error, Result};
use super::table::TableInner;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long changes of definitions wait for a table's users ([`super::Database::changes`]). Clones
/// are one: one of them waits, another ends that.
#[derive(Clone)]
pub struct Patience(Arc<Inner>);

struct Inner {
    timeout: Duration,
    ended: AtomicBool,
    connection: AtomicU64,
    /// The tables that are waited for.
    waited_for: Mutex<Vec<Arc<TableInner>>>,
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
    /// Waits for up to `timeout` for each table.
    pub fn new(timeout: Duration) -> Self {
        let (ended, connection, waited_for) = Default::default();
        Patience(Arc::new(Inner { timeout, ended, connection, waited_for }))
    }

    /// Says for whom indexes are built, as [`super::Database::snapshots`] tells it; see
    /// [`super::Transaction::set_connection`].
    pub fn set_connection(&self, connection: u64) {
        self.0.connection.store(connection, Ordering::Relaxed);
    }

    pub(super) fn connection(&self) -> u64 {
        self.0.connection.load(Ordering::Relaxed)
    }

    /// Ends the waits that are on, and all later ones, and the building of indexes, with
    /// [`super::Error::Cancelled`].
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::Release);
        let waited_for = self.0.waited_for.lock().clone();
        waited_for.iter().for_each(|table| table.wake());
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

    /// From now on the end of patience is told to whoever waits for the table, until what is
    /// returned is dropped.
    pub(super) fn begin(&self, table: &Arc<TableInner>) -> Waiting<'_> {
        self.0.waited_for.lock().push(table.clone());
        Waiting { patience: self, table: table.clone() }
    }
}

/// A wait for a table, that the end of patience ends.
pub(super) struct Waiting<'p> {
    patience: &'p Patience,
    table: Arc<TableInner>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waited_for = self.patience.0.waited_for.lock();
        let at = waited_for.iter().position(|table| Arc::ptr_eq(table, &self.table));
        waited_for.swap_remove(at.expect("it is there until now"));
    }
}

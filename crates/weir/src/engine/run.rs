//! Runs of transactions that are begun anew when others were in the way.

use super::Database;
use super::error::Error;
use super::transaction::{Isolation, Transaction};
use std::time::Duration;
use weir_os::Blocked;

/// How often a transaction is begun, at most.
const TRIES: u32 = 10;
/// Longest pause before the second try; twice that before the third, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// An error that [`Database::run`] may meet: the engine's, or one of the caller's that may have one
/// of the engine's in it.
pub trait RunError: From<Error> {
    /// Whether the transaction may succeed when it is begun again; see [`Error::is_retryable`].
    fn is_retryable(&self) -> bool;
}

impl RunError for Error {
    fn is_retryable(&self) -> bool {
        Error::is_retryable(self)
    }
}

impl RunError for Box<dyn std::error::Error> {
    fn is_retryable(&self) -> bool {
        has_retryable(&**self)
    }
}

impl RunError for Box<dyn std::error::Error + Send + Sync> {
    fn is_retryable(&self) -> bool {
        has_retryable(&**self)
    }
}

/// Whether it is such an error of the engine, or has one as its source.
fn has_retryable(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut all = std::iter::successors(Some(error), |error| error.source());
    all.any(|error| error.downcast_ref().is_some_and(Error::is_retryable))
}

impl Database {
    /// Runs `body` in a transaction and commits it. If that fails by what [`Error::is_retryable`]
    /// says, a deadlock for example, the transaction is rolled back, and after a pause of random
    /// length, 1 ms at most at first, and each time twice that, begun anew: it is tried ten times
    /// at most. Each try waits for locks as long as [`Options::lock_wait_timeout`](super::Options)
    /// says. So `body` is called several times: what it does beside the transaction isn't taken
    /// back.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).column("hits", Type::I64);
    /// # let pages = db.create_table("pages", schema.primary_key(&["id"]).build()?)?;
    /// let hits = db.run(Isolation::RepeatableRead, |txn| -> weir::Result<i64> {
    ///     let row = txn.get_for_update(&pages, &[Value::U64(7)])?;
    ///     let hits = row.and_then(|row| row.get(1).as_i64()).unwrap_or(0) + 1;
    ///     txn.upsert(&pages, &[Value::U64(7), Value::I64(hits)])?;
    ///     Ok(hits)
    /// })?;
    /// assert_eq!(hits, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Any other error of `body`, the last one of ten tries, and those of [`Database::begin`]: the
    /// transaction has been rolled back. Those of [`Transaction::commit`].
    pub fn run<T, E: RunError>(
        &self,
        isolation: Isolation,
        mut body: impl FnMut(&mut Transaction) -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let mut tries = 1;
        loop {
            let mut txn = self.begin(isolation)?;
            match body(&mut txn) {
                Ok(value) => return txn.commit().map(|()| value).map_err(E::from),
                Err(error) if !error.is_retryable() || tries == TRIES => return Err(error),
                Err(_) => drop(txn),
            }
            let _blocked = Blocked::begin();
            std::thread::sleep(FIRST_PAUSE.mul_f64(fastrand::f64()) * (1 << (tries - 1)));
            tries += 1;
        }
    }
}

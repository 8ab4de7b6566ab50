//! How long changes of definitions wait for those who use a table, and the end of such a wait from
//! another thread.

use crate::transaction::WeirCanceller;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir::{Changes, Database, Patience};

/// How a change of definitions waits for those who use the table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirPatience {
    /// May end the wait; null if nobody does.
    pub canceller: *const WeirCanceller,
    /// How long to wait.
    pub timeout_ms: u64,
}

/// A connection's changes of definitions, as far as they may be cancelled.
#[derive(Default)]
pub(crate) struct Waiting(Mutex<State>);

#[derive(Default)]
struct State {
    is_cancelled: bool,
    on: Option<Patience>,
}

impl Waiting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the wait that is on, or those to come until [`Waiting::renew`].
    pub(crate) fn cancel(&self) {
        let mut state = self.state();
        state.is_cancelled = true;
        if let Some(patience) = &state.on {
            patience.end();
        }
    }

    pub(crate) fn renew(&self) {
        self.state().is_cancelled = false;
    }

    fn begin(&self, patience: &Patience) {
        let mut state = self.state();
        if state.is_cancelled {
            patience.end();
        }
        state.on = Some(patience.clone());
    }

    fn end(&self) {
        self.state().on = None;
    }
}

/// Makes a change that waits as it is told.
///
/// # Safety
/// The canceller is a handle or null.
pub(crate) unsafe fn patiently<T>(
    database: &Database,
    given: WeirPatience,
    change: impl FnOnce(Changes<'_>) -> weir::Result<T>,
) -> weir::Result<T> {
    let patience = Patience::new(Duration::from_millis(given.timeout_ms));
    // SAFETY: the caller's promise.
    let canceller = unsafe { given.canceller.as_ref() };
    patience.set_connection(canceller.map_or(0, |canceller| canceller.connection));
    let waiting = canceller.map(WeirCanceller::waiting);
    if let Some(waiting) = waiting {
        waiting.begin(&patience);
    }
    let result = change(database.changes(&patience));
    if let Some(waiting) = waiting {
        waiting.end();
    }
    result
}

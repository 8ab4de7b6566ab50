//! What a waiting thread parks on.

use super::LockError;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weir_os::Blocked;

/// How a wait stands. Leaves `Parked` once, under the mutex of the queue's shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Parked,
    Granted,
    Failed(LockError),
}

/// See the module.
pub(super) struct Waiter {
    pub outcome: Mutex<Outcome>,
    wake: Condvar,
    /// Whether others have come ahead of it whom the observer hasn't been told.
    is_overtaken: AtomicBool,
}

impl Waiter {
    pub fn new() -> Arc<Self> {
        Arc::new(Waiter {
            outcome: Mutex::new(Outcome::Parked),
            wake: Condvar::new(),
            is_overtaken: AtomicBool::new(false),
        })
    }

    pub fn finish(&self, outcome: Outcome) {
        let mut current = self.outcome.lock();
        assert_eq!(*current, Outcome::Parked, "a wait ends once");
        *current = outcome;
        self.wake.notify_one();
    }

    /// Others have come ahead of it.
    pub fn overtake(&self) {
        let _outcome = self.outcome.lock();
        self.is_overtaken.store(true, Ordering::Relaxed);
        self.wake.notify_one();
    }

    /// Whether others have come ahead of it since this was asked.
    pub fn take_overtaken(&self) -> bool {
        self.is_overtaken.swap(false, Ordering::Relaxed)
    }

    /// Parks until the wait ended, `deadline` passed or others came ahead of it; without a deadline
    /// until one of the others.
    pub fn park(&self, deadline: Option<Instant>) -> Outcome {
        let _blocked = Blocked::begin();
        let mut outcome = self.outcome.lock();
        while *outcome == Outcome::Parked && !self.is_overtaken.load(Ordering::Relaxed) {
            match deadline {
                None => self.wake.wait(&mut outcome),
                Some(deadline) => {
                    if self.wake.wait_until(&mut outcome, deadline).timed_out() {
                        break;
                    }
                }
            }
        }
        *outcome
    }
}

//! What a waiting thread parks on.

use super::LockError;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
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
}

impl Waiter {
    pub fn new() -> Arc<Self> {
        Arc::new(Waiter { outcome: Mutex::new(Outcome::Parked), wake: Condvar::new() })
    }

    pub fn finish(&self, outcome: Outcome) {
        let mut current = self.outcome.lock();
        assert_eq!(*current, Outcome::Parked, "a wait ends once");
        *current = outcome;
        self.wake.notify_one();
    }

    /// Parks until the wait ended or `deadline` passed; without a deadline until it ended.
    pub fn park(&self, deadline: Option<Instant>) -> Outcome {
        let _blocked = Blocked::begin();
        let mut outcome = self.outcome.lock();
        while *outcome == Outcome::Parked {
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

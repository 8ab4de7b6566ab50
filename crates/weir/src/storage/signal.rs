//! How background threads are woken, and how they rest while there is nothing to do.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Wakes a background thread before its time.
#[derive(Default)]
pub struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Wakes the thread.
    pub fn raise(&self) {
        *self.raised.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for [`Signal::raise`] or `timeout`; whether it was raised.
    pub fn wait(&self, timeout: Duration) -> bool {
        let mut raised = self.raised.lock();
        if !*raised {
            self.changed.wait_for(&mut raised, timeout);
        }
        std::mem::take(&mut *raised)
    }
}

/// What a step of a background thread found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to do at once.
    GoesOn,
    /// There was something to do.
    Done,
    /// There was nothing.
    Idle,
    /// There is nothing any more, nor will there be.
    Over,
}

/// Rests of a thread that looks for work now and then: short while there is some, longer each time there is none.
/// A thread that wakes for nothing costs whoever shares a processor with it more than the time it takes.
#[derive(Debug)]
pub struct Rests {
    shortest: Duration,
    longest: Duration,
    next: Duration,
}

impl Rests {
    /// Begins with the shortest, which is that of a thread that finds work, too.
    pub fn new(shortest: Duration, longest: Duration) -> Rests {
        Rests { shortest, longest, next: shortest }
    }

    /// How long to rest after a look that found work, or none.
    pub fn after(&mut self, worked: bool) -> Duration {
        let rest = if worked { self.shortest } else { self.next };
        self.next = (rest * 2).min(self.longest);
        rest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_while_there_is_nothing_to_do() {
        let shortest = Duration::from_millis(5);
        let mut rests = Rests::new(shortest, 10 * shortest);
        let idle: Vec<u128> = (0..6).map(|_| rests.after(false).as_millis()).collect();
        assert_eq!(idle, [5, 10, 20, 40, 50, 50]);
        assert_eq!(rests.after(true), shortest);
        assert_eq!(rests.after(false), 2 * shortest);
    }
}

//! How background threads are woken, and how they rest while there is nothing to do.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// The longest rest of a thread that finds no work.
const LONGEST_REST: Duration = Duration::from_millis(40);

/// So long it finds none, and then sleeps: until somebody writes, so long at most
/// ([`super::Storage::rest`]).
const SLEEP: Duration = Duration::from_millis(500);

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

/// The signals of those who sleep while nobody writes.
#[derive(Default)]
pub struct Sleepers(Mutex<Vec<Arc<Signal>>>);

impl Sleepers {
    /// A signal that is raised by [`Sleepers::wake`], too.
    pub fn signal(&self) -> Arc<Signal> {
        let signal = Arc::<Signal>::default();
        self.0.lock().push(signal.clone());
        signal
    }

    /// Raises all of them: somebody writes, or the database ends.
    #[cold]
    pub fn wake(&self) {
        self.0.lock().iter().for_each(|signal| signal.raise());
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

/// Rests of a thread that looks for work now and then: short while there is some, longer each time
/// there is none. In the end it sleeps until somebody writes. A thread that wakes for nothing costs
/// whoever shares a processor with it more than the time it takes.
#[derive(Debug)]
pub struct Rests {
    shortest: Duration,
    next: Duration,
    /// How long it has rested since there was work.
    idle: Duration,
}

impl Rests {
    /// Begins with the shortest, which is that of a thread that finds work, too.
    pub fn new(shortest: Duration) -> Rests {
        Rests { shortest, next: shortest, idle: Duration::ZERO }
    }

    /// How long to rest after a look that found work, or none; whether that is a sleep.
    pub fn after(&mut self, worked: bool) -> (Duration, bool) {
        if worked {
            *self = Rests::new(self.shortest);
        }
        if self.idle >= SLEEP {
            return (SLEEP, true);
        }
        let rest = self.next;
        self.next = (rest * 2).min(LONGEST_REST);
        self.idle += rest;
        (rest, false)
    }

    /// There may be work soon: no sleep before the thread has looked for a while.
    pub fn stay_awake(&mut self) {
        self.idle = Duration::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_while_there_is_nothing_to_do_and_end_in_sleep() {
        let shortest = Duration::from_millis(5);
        let mut rests = Rests::new(shortest);
        let idle = |rests: &mut Rests| {
            let (rest, sleeps) = rests.after(false);
            (rest.as_millis(), sleeps)
        };
        assert_eq!([(); 5].map(|()| idle(&mut rests)), [5, 10, 20, 40, 40].map(|ms| (ms, false)));
        let mut rested = 115;
        while rested < 500 {
            assert_eq!(idle(&mut rests), (40, false));
            rested += 40;
        }
        assert_eq!([(); 2].map(|()| idle(&mut rests)), [(500, true); 2]);
        rests.stay_awake();
        assert_eq!([(); 13].map(|()| idle(&mut rests)), [(40, false); 13]);
        assert_eq!(idle(&mut rests), (500, true));
        assert_eq!(rests.after(true), (shortest, false));
        assert_eq!(idle(&mut rests), (10, false));
    }

    #[test]
    fn who_sleeps_is_woken_by_name_and_with_all() {
        let sleepers = Sleepers::default();
        let (one, other) = (sleepers.signal(), sleepers.signal());
        one.raise();
        assert!(one.wait(Duration::ZERO) && !other.wait(Duration::ZERO));
        sleepers.wake();
        assert!(one.wait(Duration::ZERO) && other.wait(Duration::ZERO));
        assert!(!one.wait(Duration::ZERO), "once");
    }
}

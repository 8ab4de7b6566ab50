//! Turns: one at a time, first come, first served; who waits for its turn may give up.

use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// See the module.
#[derive(Default)]
pub(super) struct Turns(Mutex<Line>);

#[derive(Default)]
struct Line {
    /// Whether somebody has the turn.
    taken: bool,
    /// Those who wait for it, in order.
    waiting: VecDeque<Arc<Place>>,
}

#[derive(Default)]
struct Place {
    /// Whether it has got the turn; changed under the line's mutex.
    called: AtomicBool,
    wake: Condvar,
}

impl Turns {
    /// Waits for the turn; whether others had to be waited for. `None`: it gave up. What `gives_up`
    /// goes by is changed before [`Turns::wake_all`] is called.
    pub fn take(&self, gives_up: impl Fn() -> bool) -> Option<bool> {
        let mut line = self.0.lock();
        if !line.taken {
            line.taken = true;
            return Some(false);
        }
        let place = Arc::new(Place::default());
        line.waiting.push_back(place.clone());
        loop {
            if place.called.load(Relaxed) {
                return Some(true);
            }
            if gives_up() {
                line.waiting.retain(|other| !Arc::ptr_eq(other, &place));
                return None;
            }
            place.wake.wait(&mut line);
        }
    }

    /// Gives the turn to who has waited longest.
    pub fn pass_on(&self) {
        let mut line = self.0.lock();
        match line.waiting.pop_front() {
            Some(next) => {
                next.called.store(true, Relaxed);
                next.wake.notify_one();
            }
            None => line.taken = false,
        }
    }

    /// How many wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.0.lock().waiting.len()
    }

    /// Has all who wait look whether they give up.
    pub fn wake_all(&self) {
        for place in &self.0.lock().waiting {
            place.wake.notify_one();
        }
    }
}

//! Time: real or simulated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// A monotonic clock.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary start; never goes back.
    fn now(&self) -> Duration;
    /// Returns when `duration` has passed.
    fn sleep(&self, duration: Duration);
}

/// The system's monotonic clock.
#[derive(Debug)]
pub struct RealClock {
    start: Instant,
}

impl RealClock {
    /// A clock that starts now.
    pub fn new() -> Self {
        RealClock { start: Instant::now() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        RealClock::new()
    }
}

impl Clock for RealClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn sleep(&self, duration: Duration) {
        thread::sleep(duration);
    }
}

/// Simulated time: it stands still until somebody sleeps, and sleeping takes no real time.
#[derive(Debug, Default)]
pub struct SimClock {
    now_nanos: AtomicU64,
}

impl SimClock {
    /// A clock at zero.
    pub fn new() -> Self {
        SimClock::default()
    }

    /// Moves time on.
    pub fn advance(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).expect("simulated time fits 584 years");
        self.now_nanos.fetch_add(nanos, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.now_nanos.load(Ordering::SeqCst))
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulated_time_moves_by_sleeping_only() {
        let clock = SimClock::new();
        assert_eq!(clock.now(), Duration::ZERO);
        clock.sleep(Duration::from_millis(7));
        clock.advance(Duration::from_micros(5));
        assert_eq!(clock.now(), Duration::from_micros(7005));
        assert_eq!(clock.now(), Duration::from_micros(7005));
    }

    #[test]
    fn real_time_does_not_go_back() {
        let clock = RealClock::new();
        let before = clock.now();
        clock.sleep(Duration::ZERO);
        assert!(clock.now() >= before);
    }
}

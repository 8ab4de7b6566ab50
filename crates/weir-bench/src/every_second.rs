//! A thread that does something once a second: what `relaxed` durability needs of engines that do
//! not sync by themselves, and questions to a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::Result;

/// The thread; stopped when dropped.
pub struct EverySecond {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl EverySecond {
    /// Starts calling `work`, until it fails.
    pub fn start(name: &str, work: impl Fn() -> Result<()> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            let began = Instant::now();
            for second in 1.. {
                // From the beginning, not from the work before: what that takes must not add up.
                wait_until(began + Duration::from_secs(second), &stopped);
                work()?;
                if stopped.load(Ordering::Acquire) {
                    break;
                }
            }
            Ok(())
        };
        let thread = thread::Builder::new().name(name.into()).spawn(body);
        EverySecond { stop, thread: Some(thread.expect("a thread can be started")) }
    }

    /// Ends the thread and says whether it had failed.
    ///
    /// # Errors
    /// The work's error.
    pub fn stop(mut self) -> Result<()> {
        self.join()
    }

    fn join(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.thread().unpark();
        thread.join().expect("the thread does not panic")
    }
}

/// Sleeps until `time`, or until told to stop.
fn wait_until(time: Instant, stopped: &AtomicBool) {
    while !stopped.load(Ordering::Acquire) {
        let left = time.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        thread::park_timeout(left);
    }
}

impl Drop for EverySecond {
    fn drop(&mut self) {
        // An error was lost only if nobody asked, that is, after another error.
        let _ = self.join();
    }
}

//! Work that waits for somebody else, and is ended from another thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Does `work`. Once `stop` is set, `end` is called now and then until the work is done: what was
/// just about to begin may not have heard it.
pub fn ended_by<T>(stop: &AtomicBool, mut end: impl FnMut() + Send, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                if stop.load(Ordering::Relaxed) {
                    end();
                }
                thread::park_timeout(LOOK_AGAIN);
            }
        });
        let result = work();
        done.store(true, Ordering::Release);
        watch.thread().unpark();
        result
    })
}

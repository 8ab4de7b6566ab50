//! Atomics, locks and threads, so that tests of interleavings can swap them for shuttle's.
//!
//! Only test builds with the feature `shuttle` are swapped: the feature alone changes nothing in a
//! production build.

#[cfg(not(all(test, feature = "shuttle")))]
mod real {
    pub(crate) use parking_lot::{Condvar, Mutex};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, fence};
    pub(crate) use std::thread::{self, Thread};
    use std::time::Duration;

    /// Waits on `condvar` for at most `timeout`.
    pub(crate) fn wait_for<T>(
        condvar: &Condvar,
        guard: &mut parking_lot::MutexGuard<'_, T>,
        timeout: Duration,
    ) {
        condvar.wait_for(guard, timeout);
    }

    /// Passes the time until another thread, which is at a step of some nanoseconds, is through. It
    /// may have lost its processor in the middle, and others may want that, too: who has waited for
    /// long gets out of their way.
    pub(crate) fn pause(turns: &mut u32) {
        const SPINS: u32 = 64;
        const REST: Duration = Duration::from_micros(50);
        match *turns {
            0 => (0..SPINS).for_each(|_| std::hint::spin_loop()),
            1..=3 => thread::yield_now(),
            _ => thread::sleep(REST),
        }
        *turns += 1;
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod real {
    pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, fence};
    use shuttle::sync::{Condvar as InnerCondvar, Mutex as InnerMutex, MutexGuard};
    pub(crate) use shuttle::thread::{self, Thread};
    use std::time::Duration;

    pub(crate) struct Mutex<T>(InnerMutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Mutex(InnerMutex::new(value))
        }
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("no holder panics")
        }
    }

    pub(crate) struct Condvar(InnerCondvar);

    impl Condvar {
        pub(crate) fn new() -> Self {
            Condvar(InnerCondvar::new())
        }
        pub(crate) fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// The model has no clock: a wait is a yield.
    pub(crate) fn wait_for<T>(_: &Condvar, guard: &mut MutexGuard<'_, T>, _: Duration) {
        let _ = guard;
        thread::yield_now();
    }

    pub(crate) fn pause(_: &mut u32) {
        thread::yield_now();
    }
}

pub(crate) use real::*;

//! Synchronisation primitives, exchanged for shuttle's when interleavings are tested.

#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Passes the time while another thread holds a latch: a few spins, then other threads' turn. Where
/// a latch is held for longer its holder has lost the processor, and others may want that, too:
/// they get it for a while.
#[inline]
pub fn spin_hint(turns: &mut u32) {
    #[cfg(feature = "shuttle")]
    {
        *turns += 1;
        shuttle::thread::yield_now();
    }
    #[cfg(not(feature = "shuttle"))]
    {
        const SPINS: u32 = 32;
        const YIELDS: u32 = 8;
        const REST: std::time::Duration = std::time::Duration::from_micros(50);
        *turns += 1;
        if *turns < SPINS {
            std::hint::spin_loop();
        } else if *turns < SPINS + YIELDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(REST);
        }
    }
}

#[cfg(not(feature = "shuttle"))]
pub use parking_lot::Mutex;

pub use weir_os::process::{coarse_time, processor};

/// A number of this thread's own, to choose among parts at each of which threads would meet
/// otherwise.
#[inline]
pub fn thread_number() -> usize {
    use std::cell::Cell;
    use std::sync::atomic::AtomicUsize;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    NUMBER.with(|number| {
        if number.get() == usize::MAX {
            number.set(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        }
        number.get()
    })
}

/// Shuttle's mutex with the interface of the one that it stands for.
#[cfg(feature = "shuttle")]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

#[cfg(feature = "shuttle")]
impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub fn new(value: T) -> Self {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    /// Waits for whoever holds it.
    pub fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no holder panics")
    }
}

#[cfg(not(feature = "shuttle"))]
use crossbeam_utils::sync::{
    ShardedLock, ShardedLockReadGuard as ReadGuard, ShardedLockWriteGuard as WriteGuard,
};
#[cfg(feature = "shuttle")]
use shuttle::sync::{
    RwLock as ShardedLock, RwLockReadGuard as ReadGuard, RwLockWriteGuard as WriteGuard,
};

/// A lock for what everybody reads all the time and hardly ever changes: readers meet nobody.
pub struct ReadMostly<T>(ShardedLock<T>);

impl<T> ReadMostly<T> {
    /// A lock that nobody holds.
    pub fn new(value: T) -> Self {
        ReadMostly(ShardedLock::new(value))
    }

    /// Waits for writers.
    pub fn read(&self) -> ReadGuard<'_, T> {
        self.0.read().expect("no holder panics")
    }

    /// Waits for everybody.
    pub fn write(&self) -> WriteGuard<'_, T> {
        self.0.write().expect("no holder panics")
    }
}

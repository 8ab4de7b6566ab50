//! Synchronisation primitives, exchanged for shuttle's when interleavings are tested.

#[cfg(feature = "shuttle")]
pub use shuttle::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Passes the time while another thread holds a latch: a few spins, then other threads' turn.
#[inline]
pub fn spin_hint(turns: &mut u32) {
    #[cfg(feature = "shuttle")]
    {
        *turns += 1;
        shuttle::thread::yield_now();
    }
    #[cfg(not(feature = "shuttle"))]
    {
        *turns += 1;
        if *turns < 32 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

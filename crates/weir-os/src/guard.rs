//! The lock of disks that are in memory: no other process sees them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Taken by one at a time.
#[derive(Default)]
pub(crate) struct Guard(Arc<AtomicBool>);

/// Gives the guard back when it is dropped.
pub(crate) struct Taken(Arc<AtomicBool>);

impl Guard {
    /// # Errors
    /// `WouldBlock` if it is taken.
    pub(crate) fn take(&self) -> io::Result<Taken> {
        match self.0.swap(true, Ordering::AcqRel) {
            false => Ok(Taken(self.0.clone())),
            true => Err(io::Error::new(
                io::ErrorKind::WouldBlock,
                "the directory is in use: another guard of this disk is alive",
            )),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

//! Free frames, the one given up last first: its bytes are likely to be in the CPU's caches, and
//! frames that were never needed take no memory.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A stack of frame numbers.
pub struct FreeFrames {
    stack: Mutex<Vec<u32>>,
    /// Length of the stack, readable without its mutex.
    len: AtomicUsize,
    /// How many were taken so far.
    taken: AtomicU64,
}

impl FreeFrames {
    /// All of `frames`, the lowest number on top.
    pub fn all(frames: usize) -> Self {
        let stack: Vec<u32> = (0..frames as u32).rev().collect();
        FreeFrames {
            len: AtomicUsize::new(stack.len()),
            stack: Mutex::new(stack),
            taken: AtomicU64::new(0),
        }
    }

    /// Takes a frame.
    pub fn pop(&self) -> Option<u32> {
        let mut stack = self.stack.lock();
        let frame = stack.pop();
        if frame.is_some() {
            // Changed under the stack's mutex only.
            self.taken.store(self.taken() + 1, Ordering::Relaxed);
        }
        self.len.store(stack.len(), Ordering::Relaxed);
        frame
    }

    /// Gives a frame back.
    pub fn push(&self, frame: u32) {
        let mut stack = self.stack.lock();
        assert!(stack.len() < stack.capacity(), "more frames are given back than there are");
        stack.push(frame);
        self.len.store(stack.len(), Ordering::Relaxed);
    }

    /// How many were taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// How many there are, or were a moment ago.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

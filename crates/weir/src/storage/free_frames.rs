//! Free frames, the one given up last first: its bytes are likely to be in the CPU's caches, and
//! frames that were never needed take no memory.

use parking_lot::{Condvar, Mutex};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// A stack of frame numbers.
pub struct FreeFrames {
    stack: Mutex<Vec<u32>>,
    /// A frame was given back: one of those who wait looks, the first of them.
    came: Condvar,
    /// How many wait.
    waiting: AtomicUsize,
    /// Length of the stack, readable without its mutex.
    len: AtomicUsize,
    /// How many were taken so far.
    taken: AtomicU64,
    /// From this one on none was ever taken.
    untouched: AtomicUsize,
    /// How many are given back as soon as nobody can know them any more.
    expected: AtomicUsize,
}

impl FreeFrames {
    /// All of `frames`, the lowest number on top.
    pub fn all(frames: usize) -> Self {
        let stack: Vec<u32> = (0..frames as u32).rev().collect();
        FreeFrames {
            len: AtomicUsize::new(stack.len()),
            stack: Mutex::new(stack),
            came: Condvar::new(),
            waiting: AtomicUsize::new(0),
            taken: AtomicU64::new(0),
            untouched: AtomicUsize::new(0),
            expected: AtomicUsize::new(0),
        }
    }

    /// Takes a frame.
    pub fn pop(&self) -> Option<u32> {
        self.take_from(&mut self.stack.lock())
    }

    /// Takes `number` frames, if `left` more are there.
    pub fn pop_many(&self, number: usize, left: usize) -> Option<Vec<u32>> {
        let mut stack = self.stack.lock();
        if stack.len() < number + left {
            return None;
        }
        Some((0..number).map_while(|_| self.take_from(&mut stack)).collect())
    }

    /// Takes up to `number` frames, as many as there are but for `left`.
    pub fn pop_up_to(&self, number: usize, left: usize) -> Vec<u32> {
        let mut stack = self.stack.lock();
        let number = number.min(stack.len().saturating_sub(left));
        (0..number).map_while(|_| self.take_from(&mut stack)).collect()
    }

    fn take_from(&self, stack: &mut Vec<u32>) -> Option<u32> {
        let frame = stack.pop();
        if let Some(frame) = frame {
            // Both are changed under the stack's mutex only.
            self.taken.store(self.taken() + 1, Ordering::Relaxed);
            let untouched = self.untouched().max(frame as usize + 1);
            self.untouched.store(untouched, Ordering::Relaxed);
        }
        self.len.store(stack.len(), Ordering::Relaxed);
        frame
    }

    /// Waits until frames have come, if there are less than `wanted`, for `longest` at most.
    pub fn wait(&self, wanted: usize, longest: Duration) {
        let mut stack = self.stack.lock();
        if stack.len() < wanted {
            self.waiting.fetch_add(1, Ordering::Relaxed);
            self.came.wait_for(&mut stack, longest);
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many wait for frames.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Gives frames back.
    pub fn push(&self, frames: &[u32]) {
        let mut stack = self.stack.lock();
        let room = stack.capacity() - stack.len();
        assert!(frames.len() <= room, "more frames are given back than there are");
        stack.extend(frames);
        self.len.store(stack.len(), Ordering::Relaxed);
        drop(stack);
        // None of them is missed: who begins to wait has looked under the mutex.
        (0..frames.len().min(self.waiting())).for_each(|_| _ = self.came.notify_one());
    }

    /// So many frames are going to [`FreeFrames::arrive`].
    pub fn expect(&self, frames: usize) {
        self.expected.fetch_add(frames, Ordering::Relaxed);
    }

    /// Gives frames back that were expected.
    pub fn arrive(&self, frames: &[u32]) {
        self.push(frames);
        self.expected.fetch_sub(frames.len(), Ordering::Relaxed);
    }

    /// How many are expected.
    pub fn expected(&self) -> usize {
        self.expected.load(Ordering::Relaxed)
    }

    /// How many were taken so far.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// The first frame that was never taken, and all after it.
    pub fn untouched(&self) -> usize {
        self.untouched.load(Ordering::Relaxed)
    }

    /// How many there are, or were a moment ago.
    pub fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }
}

/// Which frames get their memory from the machine before they are taken for the first time: a huge
/// page takes a millisecond, for which whoever needs the frame would have to wait.
#[derive(Debug, Default)]
pub struct Supply {
    /// The first frame that had never been taken when it was looked last.
    pub untouched: usize,
    supplied: usize,
}

impl Supply {
    /// So many times what was taken since the last look is kept ahead.
    const AHEAD: usize = 2;

    /// The frames to supply now, given the first of `frames` that was never taken.
    pub fn next(&mut self, untouched: usize, frames: usize) -> Range<usize> {
        let taken = untouched - std::mem::replace(&mut self.untouched, untouched);
        let from = self.supplied.max(untouched);
        let to = (untouched + Self::AHEAD * taken).min(frames).max(from);
        self.supplied = to;
        from..to
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_taken_first_and_was_touched_before() {
        let free = FreeFrames::all(10);
        let taken: Vec<u32> = (0..3).filter_map(|_| free.pop()).collect();
        assert_eq!((taken, free.untouched()), (vec![0, 1, 2], 3));
        free.push(&[1]);
        assert_eq!((free.pop(), free.untouched()), (Some(1), 3));
        assert_eq!((free.pop(), free.untouched()), (Some(3), 4));
    }

    #[test]
    fn many_are_taken_at_once_but_for_what_is_left_to_others() {
        let free = FreeFrames::all(10);
        assert_eq!(free.pop_up_to(4, 3), [0, 1, 2, 3]);
        assert_eq!(free.pop_up_to(4, 3), [4, 5, 6]);
        assert!(free.pop_up_to(4, 3).is_empty() && free.pop_many(1, 3).is_none());
        assert_eq!(free.pop_many(3, 0), Some(vec![7, 8, 9]));
        assert_eq!((free.len(), free.taken(), free.untouched()), (0, 10, 10));
        free.push(&[5, 2]);
        assert_eq!((free.len(), free.pop_up_to(9, 0)), (2, vec![2, 5]));
    }

    #[test]
    fn frames_are_supplied_once_and_as_fast_as_they_are_taken() {
        let mut supply = Supply::default();
        assert_eq!(supply.next(0, 100), 0..0);
        assert_eq!(supply.next(10, 100), 10..30);
        assert_eq!(supply.next(15, 100), 30..30);
        assert_eq!(supply.next(30, 100), 30..60);
        assert_eq!(supply.next(30, 100), 60..60);
        assert_eq!(supply.next(95, 100), 95..100);
        assert_eq!(supply.next(100, 100), 100..100);
    }
}

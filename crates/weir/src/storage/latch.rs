//! Hybrid latches: shared, exclusive, and optimistic by version.
//!
//! One word: bits 0..15 count shared holders, bit 15 is the exclusive one, bits 16..64 are a
//! version that grows with each exclusive release. An optimistic reader notes the version, reads
//! relaxed atomics, and uses what it read only if the version is still the same (a sequence lock;
//! Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?", 2012). Latches are
//! held for memory operations only, never across I/O or a wait, so waiters spin, then yield, then
//! rest for a moment: a holder may lose its processor.

use crate::sync::{AtomicU64, Ordering, fence, spin_hint};

const EXCLUSIVE: u64 = 1 << 15;
const SHARED: u64 = EXCLUSIVE - 1;
const VERSION: u64 = 1 << 16;

/// A latch; starts free.
#[derive(Default)]
pub struct Latch(AtomicU64);

/// The version that an optimistic reader saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen(u64);

impl Latch {
    /// The version, unless somebody holds the latch exclusively.
    #[inline]
    pub fn optimistic(&self) -> Option<Seen> {
        let word = self.0.load(Ordering::Acquire);
        (word & EXCLUSIVE == 0).then_some(Seen(word / VERSION))
    }

    /// Whether nobody has held the latch exclusively since `seen`.
    #[inline]
    pub fn validate(&self, seen: Seen) -> bool {
        fence(Ordering::Acquire);
        let word = self.0.load(Ordering::Relaxed);
        word & EXCLUSIVE == 0 && word / VERSION == seen.0
    }

    /// Takes the latch shared, if that needs no wait.
    #[inline]
    pub fn try_shared(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        while word & EXCLUSIVE == 0 {
            assert!(word & SHARED < SHARED, "too many holders of a latch");
            match self.0.compare_exchange_weak(word, word + 1, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Takes the latch exclusively, if that needs no wait.
    #[inline]
    pub fn try_exclusive(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        if word & (EXCLUSIVE | SHARED) != 0 {
            return false;
        }
        let taken = self
            .0
            .compare_exchange(word, word | EXCLUSIVE, Ordering::Acquire, Ordering::Relaxed)
            .is_ok();
        if taken {
            // Orders the mark before the writes that optimistic readers may see.
            fence(Ordering::Release);
        }
        taken
    }

    /// Takes the latch shared.
    #[inline]
    pub fn shared(&self) {
        let mut turns = 0;
        while !self.try_shared() {
            spin_hint(&mut turns);
        }
    }

    /// Takes the latch exclusively.
    #[inline]
    pub fn exclusive(&self) {
        let mut turns = 0;
        while !self.try_exclusive() {
            spin_hint(&mut turns);
        }
    }

    /// Takes the latch exclusively if nobody has done so since `seen`; waits for shared holders.
    pub fn exclusive_if(&self, seen: Seen) -> bool {
        let mut turns = 0;
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word / VERSION != seen.0 || word & EXCLUSIVE != 0 {
                return false;
            }
            if self.try_exclusive() {
                break;
            }
            spin_hint(&mut turns);
        }
        // Between the check and the latch others may have come and gone.
        let same = self.0.load(Ordering::Relaxed) / VERSION == seen.0;
        if !same {
            self.unlock_unchanged();
        }
        same
    }

    /// Gives up a shared hold.
    #[inline]
    pub fn unlock_shared(&self) {
        let before = self.0.fetch_sub(1, Ordering::Release);
        assert!(before & SHARED > 0, "a latch given up by nobody");
    }

    /// Gives up the exclusive hold; optimistic readers will notice.
    #[inline]
    pub fn unlock_exclusive(&self) {
        let word = self.0.load(Ordering::Relaxed);
        assert!(word & EXCLUSIVE != 0, "a latch given up by nobody");
        self.0.store((word & !EXCLUSIVE).wrapping_add(VERSION), Ordering::Release);
    }

    /// Gives up the exclusive hold of a frame that was not changed.
    #[inline]
    pub fn unlock_unchanged(&self) {
        let word = self.0.load(Ordering::Relaxed);
        assert!(word & EXCLUSIVE != 0, "a latch given up by nobody");
        self.0.store(word & !EXCLUSIVE, Ordering::Release);
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings;

//! Frames for pages, taken by those who load or make them, and given back.
//!
//! A frame is waited for with no latch held. It comes from the evictor (`evict`); without threads,
//! whoever needs one evicts pages itself.

use super::admission::Wait;
use super::{Fault, Storage};
use crossbeam_epoch as epoch;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_os::Blocked;

/// Frames that are left by those who make new pages, while recovery goes on: they may wait for
/// space in the log, which comes free as recovery brings pages in.
pub(super) const LEFT_TO_RECOVERY: usize = 2;

/// How long a frame is waited for before somebody looks whether anything is in the way, at first,
/// and at most.
const FIRST_WAIT: Duration = Duration::from_micros(500);
const LONGEST_WAIT: Duration = Duration::from_millis(20);

impl Storage {
    /// A free frame, after waiting for one.
    pub(super) fn take_frame(&self) -> Result<u32, Fault> {
        let mut wait = Wait::default();
        loop {
            if let Some(frame) = self.pool.free.pop() {
                self.ask_for_frames();
                return Ok(frame);
            }
            self.wait_for_frames(1, &mut wait)?;
        }
    }

    /// So many free frames, after waiting for them. Who waits for the last of them holds none:
    /// those who need fewer go on meanwhile, and give theirs back.
    #[inline]
    pub(super) fn take_frames(&self, number: usize) -> Result<Vec<u32>, Fault> {
        if number == 0 {
            return Ok(Vec::new());
        }
        let mut wait = Wait::default();
        loop {
            let left = if self.is_recovering() { LEFT_TO_RECOVERY } else { 0 };
            if let Some(frames) = self.pool.free.pop_many(number, left) {
                self.ask_for_frames();
                return Ok(frames);
            }
            self.wait_for_frames(number + left, &mut wait)?;
        }
    }

    /// Evicts pages, or waits for them to be evicted.
    fn wait_for_frames(&self, wanted: usize, wait: &mut Wait) -> Result<(), Fault> {
        self.check_waiting()?;
        let turns = wait.turn();
        if self.inline {
            self.evict_step(wanted)?;
            // In recovery of a database with threads, frames may wait for those of other databases.
            if turns > 1_000_000 {
                return Err(Fault::NoFrame { frames: self.pool.frames() });
            }
            std::thread::yield_now();
            return Ok(());
        }
        self.figures.frame_waits.fetch_add(1, Ordering::Relaxed);
        self.evictor.raise();
        let _blocked = Blocked::begin();
        // Many who look again soon would leave the evictor no processor.
        self.pool.free.wait(wanted, FIRST_WAIT.saturating_mul(turns).min(LONGEST_WAIT));
        self.fail_if_full(wait.is_in_vain(&self.vain.evictions, &self.vain.releases))
    }

    pub(super) fn return_frames(&self, frames: &[u32]) {
        if !frames.is_empty() {
            self.pool.free.push(frames);
        }
    }

    /// Wakes the evictor if its reserve is half used.
    pub(super) fn ask_for_frames(&self) {
        if !self.inline && self.pool.free.len() < self.frame_reserve() / 2 {
            self.evictor.raise();
        }
    }

    /// Enters an epoch: until it is left, by dropping the guard, frames that this thread looks up
    /// are not used for other pages. Never held across a wait.
    #[inline]
    pub fn enter_epoch(&self) -> epoch::Guard {
        epoch::pin()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Interrupts, Need, StorageOptions, interruptible};
    use super::*;
    use std::sync::Arc;
    use weir_os::SimDisk;
    use weir_store::StoreError;

    /// A storage whose frames nobody frees.
    fn storage() -> Storage {
        let options = StorageOptions::small(64);
        Storage::create(Arc::new(SimDisk::new(1)), &options).unwrap()
    }

    /// Under load the evictor may come late: that says nothing of the device.
    #[test]
    fn who_waits_for_a_frame_on_a_full_device_waits_until_evictions_are_in_vain() {
        let storage = storage();
        let taken: Vec<u32> = (0..64).map_while(|_| storage.pool.free.pop()).collect();
        let full = StoreError::NoSpace { needed: 1, file: "data".into() };
        let in_vain = || {
            let _ = storage.note_vain(&storage.vain.evictions, Err::<(), _>(full.clone().into()));
        };
        (0..9).for_each(|_| in_vain());
        let waits = || storage.figures.frame_waits.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| storage.take_frame());
            while waits() < 50 && !waiter.is_finished() {
                std::thread::yield_now();
            }
            storage.return_frames(&taken);
            let frame = waiter.join().unwrap().expect("nothing was in vain since it waits");
            let _taken: Vec<u32> = (0..63).map_while(|_| storage.pool.free.pop()).collect();
            let before = waits();
            let waiter = scope.spawn(|| storage.take_frame());
            while waits() == before {
                std::thread::yield_now();
            }
            while !waiter.is_finished() {
                in_vain();
                std::thread::yield_now();
            }
            assert!(waiter.join().unwrap().unwrap_err().is_no_space());
            storage.return_frames(&[frame]);
        });
    }

    /// Many who split pages at once would share all frames, and each would wait for the others' for
    /// ever.
    #[test]
    fn who_waits_for_its_last_frame_holds_none() {
        let storage = storage();
        let taken: Vec<u32> = (1..64).map_while(|_| storage.pool.free.pop()).collect();
        assert_eq!(storage.pool.free.len(), 1);
        let interrupts = Interrupts::default();
        std::thread::scope(|scope| {
            let (of_waiter, storage) = (interrupts.clone(), &storage);
            let waiter = scope.spawn(move || {
                let _ends = interruptible(&of_waiter, 1);
                storage.mtr(Need::log(256).and_pages(2)).map(drop)
            });
            while storage.figures.frame_waits.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            let one = storage.pool.free.pop();
            interrupts.raise(1);
            assert!(matches!(waiter.join().unwrap(), Err(Fault::Interrupted)));
            assert!(one.is_some(), "the last frame is held by who waits for another");
        });
        storage.return_frames(&taken);
    }
}

//! Interrupts: a thread's waits for admission, or for a frame, may be ended by another thread.
//!
//! A statement that is killed gives up what it waits for, like one that finds no space: its mtr is not begun, and
//! what the statement has done before is taken back. A rollback is never interrupted, nor is whoever
//! doesn't ask for it: commits, and what threads do in the background.

use super::{Fault, Storage, dirty};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Set to end this thread's waits; `None` if nobody may.
    static FLAG: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// While it lives, waits of this thread end once its flag is set.
#[must_use = "waits are ended for as long as it lives"]
pub struct Interruptible {
    before: Option<Arc<AtomicBool>>,
    of_thread: PhantomData<*const ()>,
}

/// Lets this thread's waits end once `flag` is set; who sets it calls [`Storage::tell_interrupted`] then.
pub fn interruptible(flag: Arc<AtomicBool>) -> Interruptible {
    Interruptible { before: FLAG.replace(Some(flag)), of_thread: PhantomData }
}

impl Drop for Interruptible {
    fn drop(&mut self) {
        FLAG.set(self.before.take());
    }
}

/// Whether this thread is to wait no more.
pub(super) fn is_set() -> bool {
    let is_set = |flag: &Arc<AtomicBool>| flag.load(Ordering::Acquire);
    !dirty::is_on_reserve() && FLAG.with_borrow(|flag| flag.as_ref().is_some_and(is_set))
}

impl Storage {
    /// Fails if there is no use in waiting any longer.
    ///
    /// # Errors
    /// [`Fault::Interrupted`]; those of [`Storage::check`].
    pub(super) fn check_waiting(&self) -> Result<(), Fault> {
        self.check()?;
        if is_set() { Err(Fault::Interrupted) } else { Ok(()) }
    }

    /// Has those who wait at the gate look whether they are to give up.
    pub fn tell_interrupted(&self) {
        self.gate.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Background, Cause, Mtr, Need, StorageOptions, on_reserve};
    use super::*;
    use weir_os::SimDisk;
    use weir_page::Redo;
    use weir_redo::RedoOptions;

    /// A storage whose pages nobody writes.
    fn storage() -> Storage {
        let options = StorageOptions {
            frames: 400,
            redo: RedoOptions {
                capacity_bytes: 4 << 20,
                segment_bytes: 1 << 20,
                buffer_bytes: 1 << 20,
                database_id: 7,
            },
            dirty_limit: 0.2,
            keep_redo_capacity: false,
            compression: weir_store::Compression::Lz4,
            inline: false,
            policy: Default::default(),
        };
        Storage::create(Arc::new(SimDisk::new(1)), &options).unwrap()
    }

    fn change(mut mtr: Mtr<'_>) {
        let page = mtr.create();
        mtr.log(&Redo::OverflowInit { page, data: b"value" });
        mtr.commit();
    }

    fn fill(storage: &Storage) {
        while storage.dirty.try_reserve().is_some() {
            change(storage.mtr(Need::pages(256, 1)).unwrap());
        }
    }

    /// A writer that waits at the gate, as the `n`-th, until its flag is set; what came of it.
    fn waiting<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        storage: &'s Storage,
        n: u64,
    ) -> (Arc<AtomicBool>, std::thread::ScopedJoinHandle<'s, Result<(), Fault>>) {
        let flag = Arc::new(AtomicBool::new(false));
        let of_writer = flag.clone();
        let writer = scope.spawn(move || {
            let _ends = interruptible(of_writer);
            storage.mtr(Need::pages(256, 1)).map(change)
        });
        while storage.gate.waiting(Cause::DirtyLimit) < n {
            std::thread::yield_now();
        }
        (flag, writer)
    }

    #[test]
    fn whoever_waits_at_the_gate_can_be_told_to_give_up_and_the_others_keep_their_turns() {
        let storage = Arc::new(storage());
        fill(&storage);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (1..=4).map(|n| waiting(scope, &storage, n)).collect();
            // The last, one in the middle, the first.
            for n in [3, 1, 0] {
                writers[n].0.store(true, Ordering::Release);
                storage.tell_interrupted();
            }
            let is_one_left = || storage.gate.waiting(Cause::DirtyLimit) == 1;
            while !is_one_left() {
                std::thread::yield_now();
            }
            let background = Background::start(&storage).unwrap();
            let ends: Vec<_> = writers.into_iter().map(|(_, w)| w.join().unwrap()).collect();
            drop(background);
            let gave_up = |end: &Result<(), Fault>| matches!(end, Err(Fault::Interrupted));
            assert_eq!(ends.iter().map(gave_up).collect::<Vec<_>>(), [true, true, false, true]);
            assert!(ends[2].is_ok());
        });
        assert_eq!(storage.gate.waiting(storage.gate.last_cause()), 0);
    }

    #[test]
    fn a_rollback_and_whoever_finds_what_it_needs_are_not_interrupted() {
        let storage = storage();
        let flag = Arc::new(AtomicBool::new(true));
        {
            let _ends = interruptible(flag);
            fill(&storage);
            assert!(matches!(storage.mtr(Need::log(64)), Err(Fault::Interrupted)));
            let _reserve = on_reserve();
            assert!(!is_set());
            change(storage.mtr(Need::pages(256, 1)).unwrap());
        }
        assert!(!is_set(), "it is over with its guard");
    }
}

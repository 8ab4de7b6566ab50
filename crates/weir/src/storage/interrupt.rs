//! Interrupts: a thread's waits for admission, or for a frame, may be ended by another thread.
//!
//! A statement that is killed gives up what it waits for, like one that finds no space: its mtr is
//! not begun, and what the statement has done before is taken back. A rollback is never
//! interrupted, nor is whoever doesn't ask for it: commits, and what threads do in the background.
//!
//! Whoever may be interrupted has a number, and those who come one after the other may share an
//! [`Interrupts`]: what is meant for one ends no wait of a later one, whose number is greater. So a
//! thread need not give up, at the end of each statement, what it has been handed for it: often it
//! is the next one's, too.

use super::{Fault, Storage, reserve};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whose waits are to end; see the module.
#[derive(Debug, Clone, Default)]
pub struct Interrupts(Arc<AtomicU64>);

impl Interrupts {
    /// The waits of `number` are to end. [`Storage::tell_interrupted`] is called then.
    pub fn raise(&self, number: u64) {
        self.0.fetch_max(number, Ordering::AcqRel);
    }

    /// The waits of `number` go on.
    pub fn take_back(&self, number: u64) {
        // If it is another's by now, it stays.
        let _ = self.0.compare_exchange(number, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Whether the waits of `number` are to end.
    pub fn is_raised(&self, number: u64) -> bool {
        number != 0 && self.0.load(Ordering::Acquire) == number
    }
}

/// What ends this thread's waits.
struct Current {
    interrupts: Option<Interrupts>,
    /// 0 if nobody may end them.
    number: u64,
}

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current { interrupts: None, number: 0 }) };
}

/// While it lives, waits of this thread may be ended.
#[must_use = "waits are ended for as long as it lives"]
pub struct Interruptible {
    /// What there was before: nothing, or the same, as a rule.
    before: Option<Interrupts>,
    number_before: u64,
    of_thread: PhantomData<*const ()>,
}

/// Lets this thread's waits end once they are to, as those of `number`.
#[inline]
pub fn interruptible(interrupts: &Interrupts, number: u64) -> Interruptible {
    CURRENT.with_borrow_mut(|current| {
        let is_same = |there: &Interrupts| Arc::ptr_eq(&there.0, &interrupts.0);
        let before = match current.interrupts.as_ref().is_some_and(is_same) {
            true => None,
            false => current.interrupts.replace(interrupts.clone()),
        };
        let number_before = std::mem::replace(&mut current.number, number);
        Interruptible { before, number_before, of_thread: PhantomData }
    })
}

impl Drop for Interruptible {
    #[inline]
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| {
            current.number = self.number_before;
            if self.number_before != 0
                && let Some(before) = self.before.take()
            {
                current.interrupts = Some(before);
            }
        });
    }
}

/// Whether this thread is to wait no more.
pub(super) fn is_set() -> bool {
    let is_raised = |current: &Current| {
        current.interrupts.as_ref().is_some_and(|there| there.is_raised(current.number))
    };
    !reserve::is_on_reserve() && CURRENT.with_borrow(is_raised)
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

    /// A storage whose pages nobody writes.
    fn storage() -> Storage {
        let options = StorageOptions { dirty_limit: 0.2, ..StorageOptions::small(400) };
        Storage::create(Arc::new(SimDisk::new(1)), &options).unwrap()
    }

    fn change(mut mtr: Mtr<'_>) {
        let page = mtr.create();
        mtr.log(&Redo::OverflowInit { page, data: b"value" });
        mtr.commit();
    }

    fn fill(storage: &Storage) {
        while storage.dirty.try_reserve().is_some() {
            change(storage.mtr(Need::log(256).and_pages(1)).unwrap());
        }
    }

    /// A writer that waits at the gate, as the `n`-th, until it is interrupted; what came of it.
    fn waiting<'s>(
        scope: &'s std::thread::Scope<'s, '_>,
        storage: &'s Storage,
        n: u64,
    ) -> (Interrupts, std::thread::ScopedJoinHandle<'s, Result<(), Fault>>) {
        let interrupts = Interrupts::default();
        let of_writer = interrupts.clone();
        let writer = scope.spawn(move || {
            let _ends = interruptible(&of_writer, 1);
            storage.mtr(Need::log(256).and_pages(1)).map(change)
        });
        while storage.gate.waiting(Cause::DirtyLimit) < n {
            std::thread::yield_now();
        }
        (interrupts, writer)
    }

    #[test]
    fn whoever_waits_at_the_gate_can_be_told_to_give_up_and_the_others_keep_their_turns() {
        let storage = Arc::new(storage());
        fill(&storage);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (1..=4).map(|n| waiting(scope, &storage, n)).collect();
            // The last, one in the middle, the first.
            for n in [3, 1, 0] {
                writers[n].0.raise(1);
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
        let interrupts = Interrupts::default();
        interrupts.raise(1);
        {
            let _ends = interruptible(&interrupts, 1);
            fill(&storage);
            assert!(matches!(storage.mtr(Need::log(64)), Err(Fault::Interrupted)));
            let _reserve = on_reserve();
            assert!(!is_set());
            change(storage.mtr(Need::log(256).and_pages(1)).unwrap());
        }
        assert!(!is_set(), "it is over with its guard");
    }

    #[test]
    fn what_is_meant_for_one_ends_no_wait_of_a_later_one() {
        let interrupts = Interrupts::default();
        interrupts.raise(5);
        assert!(!interrupts.is_raised(7) && interrupts.is_raised(5) && !interrupts.is_raised(0));
        interrupts.raise(7);
        // By those who haven't heard that it has ended.
        interrupts.raise(5);
        interrupts.take_back(5);
        assert!(interrupts.is_raised(7));
        interrupts.take_back(7);
        assert!(!interrupts.is_raised(7));
    }

    #[test]
    fn what_counted_before_counts_again_afterwards() {
        let all = [Interrupts::default(), Interrupts::default()];
        all.iter().for_each(|interrupts| interrupts.raise(1));
        let _outer = interruptible(&all[0], 1);
        {
            let _same = interruptible(&all[0], 2);
            assert!(!is_set());
        }
        assert!(is_set());
        {
            let _other = interruptible(&all[1], 2);
            assert!(!is_set());
            all[1].raise(2);
            assert!(is_set());
            all[0].take_back(1);
        }
        assert!(!is_set());
        all[0].raise(1);
        assert!(is_set());
    }
}

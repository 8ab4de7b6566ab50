//! Admission: what an mtr has to have before its first latch, and who waits for it.
//!
//! Frames for new pages come first, then credits for pages that it may dirty and space in the log.
//! Nothing of the latter two is held while the other is waited for, and whoever waits does so in
//! order, at the gate (`gate`): with background threads by waiting for them, without by doing their
//! steps itself.

use super::dirty::Reserved;
use super::{Cause, Fault, Mtr, Need, Rests, Signal, Storage, gate, interrupt, write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use weir_os::Blocked;
use weir_redo::{Admission, Credit, Refused};
use weir_store::StoreError;

/// How often the page writer tries to move the checkpoint for want of log space.
const CHECKPOINTS_MAX: u32 = 100;

/// So often must something have been tried in vain, since somebody began to wait for it, for the
/// device to count as full. Under load it may take long until anything is tried at all, so time
/// tells nothing.
const VAIN_MAX: u64 = 3;

/// What could not be done because the device is full, not even in part.
#[derive(Default)]
pub(super) struct Vain {
    /// Attempts to write a page, or to move the checkpoint.
    pub writes: AtomicU64,
    /// Attempts to free a frame.
    pub evictions: AtomicU64,
    /// How often space has been freed that attempts may have lacked.
    pub releases: AtomicU64,
}

/// How long somebody has waited for what a full device may withhold.
#[derive(Default)]
pub(super) struct Wait {
    turns: u32,
    /// What had been in vain at its first turn, or when space was freed last.
    vain_before: u64,
    releases_before: u64,
}

impl Wait {
    /// Begins a turn, and says which it is.
    pub fn turn(&mut self) -> u32 {
        self.turns += 1;
        self.turns
    }

    /// Whether it is time to say so if the device is full, after each turn. `vain`: attempts that
    /// are waited for.
    pub fn is_in_vain(&mut self, vain: &AtomicU64, releases: &AtomicU64) -> bool {
        let releases = releases.load(Ordering::Relaxed);
        let vain = vain.load(Ordering::Relaxed);
        if self.turns == 1 || releases != self.releases_before {
            (self.vain_before, self.releases_before) = (vain, releases);
        }
        vain - self.vain_before > VAIN_MAX
    }
}

/// What an mtr has been given: space in the log, credits for dirty pages.
pub struct Admitted<'s> {
    pub(super) credit: Credit<'s>,
    pub(super) dirty: Reserved<'s>,
}

impl Storage {
    /// Begins a mini-transaction, after waiting for log space and frames. Holds no latch yet.
    ///
    /// # Errors
    /// The log has failed; the device is full and nothing frees log space; the database has
    /// stopped; the wait was ended ([`super::interruptible`]).
    #[inline]
    pub fn mtr(&self, need: Need) -> Result<Mtr<'_>, Fault> {
        let promise = self.take_room(need.pages)?;
        let frames = self.take_frames(need.pages)?;
        match self.admit(need) {
            Ok(admitted) => Ok(Mtr::new(self, admitted, frames, promise)),
            Err(fault) => {
                self.return_frames(&frames);
                Err(fault)
            }
        }
    }

    #[inline]
    fn admit(&self, need: Need) -> Result<Admitted<'_>, Fault> {
        if let Some(admitted) = self.admit_at_once(need) {
            return Ok(admitted);
        }
        if self.gate.ends_sleep() {
            self.sleepers.wake();
        }
        // Whoever has ended the sleep: the gate may be open now.
        match self.admit_at_once(need) {
            Some(admitted) => Ok(admitted),
            None => self.admit_in_turn(need),
        }
    }

    #[inline]
    fn admit_at_once(&self, need: Need) -> Option<Admitted<'_>> {
        if !self.gate.is_open(|| self.progress()) {
            return None;
        }
        let dirty = self.dirty.try_reserve()?;
        let credit = self.redo.try_admit(need.log_bytes, Admission::User).ok()?;
        Some(Admitted { credit, dirty })
    }

    /// A background thread rests after a look that found work, or none. `signal`, one of
    /// [`Storage::sleepers`], ends that.
    pub fn rest(&self, signal: &Signal, rests: &mut Rests, worked: bool) {
        let (rest, sleeps) = rests.after(worked);
        if sleeps {
            self.gate.wait_for_writer();
        }
        if signal.wait(rest) && sleeps {
            rests.stay_awake();
        }
    }

    /// What writers may be held to.
    pub(super) fn progress(&self) -> gate::Progress {
        gate::Progress {
            log_end: self.redo.reserved().0,
            dirtied: self.figures.dirtied.load(Ordering::Relaxed),
        }
    }

    /// Waits at the gate for what an mtr needs.
    #[cold]
    fn admit_in_turn(&self, need: Need) -> Result<Admitted<'_>, Fault> {
        let _blocked = Blocked::begin();
        let started = Instant::now();
        let turn = self.gate.queue_up(interrupt::is_set).ok_or(Fault::Interrupted)?;
        let mut cause = turn.queued.then(|| self.gate.last_cause());
        let mut wait = Wait::default();
        let admitted = loop {
            if let Some((delay, why)) = turn.delay(self.progress()) {
                turn.waits_for(*cause.insert(why));
                self.check_waiting()?;
                std::thread::sleep(delay.min(Duration::from_millis(5)));
                continue;
            }
            let Some(dirty) = self.dirty.try_reserve() else {
                turn.waits_for(*cause.insert(Cause::DirtyLimit));
                self.relieve_dirty_limit(&mut wait)?;
                continue;
            };
            match self.redo.try_admit(need.log_bytes, Admission::User) {
                Ok(credit) => break Admitted { credit, dirty },
                Err(Refused::Poisoned) => {
                    return Err(self.redo.check().expect_err("poisoned").into());
                }
                Err(refused) => {
                    drop(dirty);
                    turn.waits_for(*cause.insert(Cause::Log));
                    self.check_waiting()?;
                    match refused {
                        Refused::Buffer => self.redo.wait_for_space(Duration::from_millis(1)),
                        _ => self.relieve_log(&mut wait)?,
                    }
                }
            }
        };
        drop(turn);
        if let Some(cause) = cause {
            self.figures.waits(cause).ended(started);
        }
        Ok(admitted)
    }

    /// Admission of the page writer itself, which nobody relieves.
    pub(super) fn admit_writer(&self, bytes: usize) -> Result<Credit<'_>, Fault> {
        let mut checkpoints = 0;
        loop {
            match self.redo.try_admit(bytes, Admission::System) {
                Ok(credit) => return Ok(credit),
                Err(Refused::Poisoned) => {
                    return Err(self.redo.check().expect_err("poisoned").into());
                }
                // However long it takes: mtrs that have lost their processor give it back when they
                // have it again.
                Err(Refused::Buffer) => {
                    self.check()?;
                    self.redo.wait_for_space(Duration::from_millis(1));
                }
                // Batches that are being written give theirs back; and whoever goes on is more than
                // a copy.
                Err(Refused::Capacity)
                    if checkpoints == CHECKPOINTS_MAX
                        && (self.log_spaces.load(Ordering::Relaxed) > 0
                            || self.kept_log.give_up()) =>
                {
                    checkpoints = 0;
                }
                Err(Refused::Capacity) if checkpoints == CHECKPOINTS_MAX => {
                    self.fail_if_full(true)?;
                    return Err(Fault::LogFull { capacity_bytes: self.redo.capacity() });
                }
                Err(Refused::Capacity) => {
                    checkpoints += 1;
                    self.checkpoint()?;
                    if !self.inline {
                        self.redo.wait_for_space(Duration::from_millis(1));
                    }
                }
            }
        }
    }

    /// Does, or waits for, what frees log space.
    fn relieve_log(&self, wait: &mut Wait) -> Result<(), Fault> {
        let turns = wait.turn();
        if self.inline {
            self.recovery_step(self.stretch_bytes())?;
            self.flush_step(self.batch_pages())?;
            self.checkpoint()?;
            if turns > 1000 {
                return Err(Fault::LogFull { capacity_bytes: self.redo.capacity() });
            }
            return Ok(());
        }
        self.kept_log.give_up_if_stalled();
        self.press();
        self.redo.wait_for_space(Duration::from_millis(5));
        self.fail_if_full(wait.is_in_vain(&self.vain.writes, &self.vain.releases))
    }

    /// Has pages written whatever the policy says, and the checkpoint moved: a writer waits for it.
    pub(super) fn press(&self) {
        self.pressed.store(true, Ordering::Relaxed);
        self.flusher.raise();
        self.checkpointer.raise();
    }

    /// Credits for the pages that an mtr may dirty, for those who dirty pages without one.
    pub(super) fn reserve_credits(&self) -> Result<Reserved<'_>, Fault> {
        let mut wait = Wait::default();
        loop {
            match self.dirty.try_reserve() {
                Some(reserved) => return Ok(reserved),
                None => self.relieve_dirty_limit(&mut wait)?,
            }
        }
    }

    /// Writes, or waits for the writes of, what is too much of dirty pages.
    pub(super) fn relieve_dirty_limit(&self, wait: &mut Wait) -> Result<(), Fault> {
        self.check_waiting()?;
        let turns = wait.turn();
        if self.inline {
            let pages = self.batch_pages();
            // Pages that only this thread's latches keep from being written would be waited for in
            // vain.
            assert!(turns < 1000, "dirty pages can't be written");
            return self.write_what_fits(pages, write::Reason::DirtyLimit).map(drop);
        }
        self.press();
        self.clean.wait(Duration::from_millis(5));
        self.fail_if_full(wait.is_in_vain(&self.vain.writes, &self.vain.releases))
    }

    /// Whether the device had no space for the last batch.
    pub(super) fn is_full(&self) -> bool {
        self.full.lock().is_some()
    }

    /// Fails if the device is full and no more is to be hoped for.
    pub(super) fn fail_if_full(&self, in_vain: bool) -> Result<(), Fault> {
        match &*self.full.lock() {
            Some(error) if in_vain => Err(error.clone().into()),
            _ => Ok(()),
        }
    }

    /// Notes that an attempt was in vain, one of those that `vain` counts, if it was: the device is
    /// full.
    pub(super) fn note_vain<T>(
        &self,
        vain: &AtomicU64,
        attempt: Result<T, Fault>,
    ) -> Result<T, Fault> {
        if let Err(Fault::Store(full @ StoreError::NoSpace { .. })) = &attempt {
            self.full.lock().replace(full.clone());
            vain.fetch_add(1, Ordering::Relaxed);
        }
        attempt
    }
}

#[cfg(test)]
mod tests {
    use super::super::mtr::tests::new_page;
    use super::super::{
        Background, Interrupts, Restart, StorageOptions, interruptible, on_reserve, retry,
    };
    use super::*;
    use std::sync::Arc;
    use weir_os::SimDisk;
    use weir_page::Redo;

    /// A storage with a small log buffer.
    fn storage() -> Storage {
        let mut options = StorageOptions::small(64);
        options.redo.buffer_bytes = 256 << 10;
        Storage::create(Arc::new(SimDisk::new(1)), &options).unwrap()
    }

    #[test]
    fn who_writes_wakes_those_who_sleep_and_no_writer_waits_for_that() {
        const WRITERS: usize = 4;
        let storage = storage();
        let signal = storage.sleepers.signal();
        storage.gate.wait_for_writer();
        let all = std::sync::Barrier::new(WRITERS);
        std::thread::scope(|scope| {
            for _ in 0..WRITERS {
                scope.spawn(|| {
                    all.wait();
                    drop(storage.mtr(Need::log(256)).unwrap());
                });
            }
        });
        assert!(signal.wait(Duration::ZERO), "raised");
        assert!(!storage.gate.ends_sleep(), "nobody sleeps any more");
        drop(storage.mtr(Need::log(256)).unwrap());
        assert!(!signal.wait(Duration::ZERO), "and nobody is woken");
        let waits = storage.figures.waits(Cause::Log);
        assert_eq!(waits.count(), 0);
    }

    #[test]
    fn a_stop_wakes_those_who_sleep() {
        let storage = storage();
        let signal = storage.sleepers.signal();
        storage.stop(Fault::Closed);
        assert!(signal.wait(Duration::ZERO));
    }

    /// Attempts were in vain for want of space that has been freed since.
    #[test]
    fn a_wait_that_saw_space_freed_begins_anew() {
        let (vain, releases, mut wait) = (AtomicU64::new(7), AtomicU64::new(1), Wait::default());
        for _ in 0..3 {
            for _ in 0..=VAIN_MAX {
                wait.turn();
                assert!(!wait.is_in_vain(&vain, &releases));
                vain.fetch_add(1, Ordering::Relaxed);
            }
            releases.fetch_add(1, Ordering::Relaxed);
        }
        wait.turn();
        assert!(!wait.is_in_vain(&vain, &releases));
        vain.fetch_add(VAIN_MAX + 1, Ordering::Relaxed);
        assert!(wait.is_in_vain(&vain, &releases));
    }

    /// There is room for pages in the data file, but on the device none for the map: the checkpoint
    /// can't move.
    #[test]
    fn who_waits_for_log_space_is_told_of_a_map_that_can_not_grow() {
        let disk = SimDisk::new(1);
        let storage = Storage::create(Arc::new(disk.clone()), &StorageOptions::small(64)).unwrap();
        let storage = Arc::new(storage);
        // Whose place in the map file is not had beforehand.
        let reserve = on_reserve();
        let page = new_page(&storage);
        drop(reserve);
        storage.write_next(1, write::Reason::Checkpoint).unwrap();
        disk.set_capacity(Some(disk.used_bytes()));
        let _background = Background::start(&storage).unwrap();
        let change = || {
            retry(&storage, || {
                let mut mtr = storage.mtr(Need::log(8 << 10))?;
                mtr.latch(page)?;
                mtr.log(&Redo::OverflowInit { page, data: &[1; 4 << 10] });
                mtr.commit();
                Ok::<_, Restart<Fault>>(())
            })
        };
        let interrupts = Interrupts::default();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let _ends = interruptible(&interrupts, 1);
                std::iter::repeat_with(change).find_map(Result::err).unwrap()
            });
            let vain = || storage.vain.writes.load(Ordering::Relaxed);
            for _ in 0..20_000_000 {
                if writer.is_finished() || vain() > 100 {
                    break;
                }
                std::thread::yield_now();
            }
            interrupts.raise(1);
            storage.tell_interrupted();
            let error = writer.join().unwrap();
            assert!(error.is_no_space(), "{error}");
        });
    }

    /// A few threads that split pages take all of a small buffer; on a busy machine for long. The
    /// database stopped then.
    #[test]
    fn the_page_writer_waits_for_the_log_buffer_as_long_as_it_takes() {
        let storage = storage();
        let claim = |bytes| storage.redo.try_admit(bytes, Admission::User).ok();
        let all = |bytes| std::iter::from_fn(move || claim(bytes));
        let held: Vec<_> = all(60_000).chain(all(1000)).collect();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| storage.admit_writer(10_000).map(drop));
            for _ in 0..100_000 {
                // Wakes it, in vain.
                drop(claim(8));
                std::thread::yield_now();
                if writer.is_finished() {
                    break;
                }
            }
            drop(held);
            writer.join().unwrap().unwrap();
        });
    }
}

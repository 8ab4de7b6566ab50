//! Room on the device, had before it is needed.
//!
//! Images are written to new places, so a rollback needs space before it gives any back. Were the
//! device full to the last unit, none would end: its pages could not be written, and no log space
//! would come free. So, where the device is about to be full, the files are kept longer than what
//! they hold, for
//! - all pages that have changed since they were written: new ones at their full size, others by
//!   what they may grow;
//! - a reserve for what a rollback dirties beyond that.
//!
//! As long as an eighth of the device's free space is as much, nothing is set aside: others aren't
//! likely to take the rest before somebody looks again, as pages are made and every few seconds.
//! The database itself would be: while its log is made longer, or entries of an index are sorted,
//! all of it is set aside ([`Storage::begin_taking`]).
//!
//! A new page is taken out of a budget, which is what there was beyond that when it was last looked
//! at; what running mtrs may still make counts as there ([`Promise`]). When that is used up, the
//! files are made longer. When they can't be, the dirty pages are written first, which take less
//! than was counted for them; then whoever wants a new page is told that there is no space.
//! Rollback is never refused, purge and commit make no new pages, and what deletes
//! ([`super::to_make_room`]) may use half of the reserve.
//!
//! What is not had beforehand: the space of holes that an earlier process has punched, which count
//! as free places until a write to them fails, and what pages grow by beyond the mean. Where a
//! rollback lacks that, it ends once there is space.

use super::{Fault, Storage, dirty, reserve, write};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};
use std::time::Duration;
use weir_page::{Lsn, PAGE_SIZE};
use weir_store::UNITS_MAX;

/// New pages for which the files are made longer at once, at least.
const PAGES_AHEAD_MIN: u64 = 64;

/// Of how many parts of the device's free space one counts as had.
const FREE_PART: u64 = 8;

/// Units that may be given up and not yet free where no log writer frees them: 64 MiB, or as many
/// as hold images.
const PENDING_MAX: u64 = (64 << 20) / weir_store::UNIT as u64;

/// Turns in which dirty pages get no fewer, before the device counts as full.
const IDLE_TURNS: u32 = 20;

/// New pages that may be made before somebody looks again.
#[derive(Default)]
pub(super) struct PageBudget {
    /// Pages that were taken so far, and how many that may come to.
    taken: AtomicI64,
    most: AtomicI64,
    /// Of those that were taken, what running mtrs haven't made yet.
    promised: AtomicU64,
    /// With so many left it is time to look again.
    low: AtomicI64,
    /// Pages of the reserve.
    reserve: AtomicI64,
    /// Whether the files could not be made longer when they were to.
    short: AtomicBool,
    /// How many are making other files of the database longer.
    takers: AtomicU32,
}

/// While it lives, none of the device's free space counts as had: other files of the database take
/// of it, at once.
#[must_use = "it ends as soon as it is dropped"]
pub(crate) struct Taking<'s>(&'s PageBudget);

impl<'s> Taking<'s> {
    fn begin(budget: &'s PageBudget) -> Self {
        budget.takers.fetch_add(1, SeqCst);
        Taking(budget)
    }
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.takers.fetch_sub(1, SeqCst);
    }
}

/// New pages that a running mtr may make.
pub(super) struct Promise<'s> {
    budget: &'s PageBudget,
    pages: u64,
}

impl Promise<'_> {
    /// One of them is made: it counts by itself.
    pub fn keep_one(&mut self) {
        self.pages -= 1;
        self.budget.promised.fetch_sub(1, SeqCst);
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if self.pages > 0 {
            self.budget.promised.fetch_sub(self.pages, SeqCst);
        }
    }
}

impl PageBudget {
    fn promise(&self, pages: usize) -> Promise<'_> {
        let pages = pages as u64;
        if pages > 0 {
            self.promised.fetch_add(pages, SeqCst);
        }
        Promise { budget: self, pages }
    }

    /// Takes so many pages, if that leaves `least`.
    fn take(&self, pages: usize, least: i64) -> Option<Promise<'_>> {
        // First: who looks meanwhile finds them promised, or not taken.
        let promise = self.promise(pages);
        let take = |taken: i64| {
            let taken = taken + pages as i64;
            (self.most.load(SeqCst) - taken >= least).then_some(taken)
        };
        self.taken.fetch_update(SeqCst, SeqCst, take).ok().map(|_| promise)
    }

    fn left(&self) -> i64 {
        self.most.load(Relaxed) - self.taken.load(Relaxed)
    }
}

impl Storage {
    /// Takes room for new pages, if need be after others were written.
    ///
    /// # Errors
    /// No space; those of making files longer, of writing pages, and of [`Storage::check_waiting`].
    pub(super) fn take_room(&self, pages: usize) -> Result<Promise<'_>, Fault> {
        if pages == 0 || reserve::is_on_reserve() {
            return Ok(self.page_budget.promise(pages));
        }
        let least = match reserve::makes_room() {
            false => 0,
            true => -self.page_budget.reserve.load(Relaxed) / 2,
        };
        let (mut fewest, mut idle) = (u64::MAX, 0);
        loop {
            if let Some(promise) = self.page_budget.take(pages, least) {
                return Ok(promise);
            }
            let looked = self.look_for_room(pages);
            if let Some(promise) = self.page_budget.take(pages, least) {
                return Ok(promise);
            }
            match looked {
                Err(full) if full.is_no_space() => {
                    self.check_waiting()?;
                    let unwritten = self.dirty.outstanding();
                    idle = if unwritten < fewest { 0 } else { idle + 1 };
                    fewest = fewest.min(unwritten);
                    if idle > IDLE_TURNS {
                        return Err(full);
                    }
                    self.write_for_room()?;
                }
                looked => looked?,
            }
        }
    }

    /// Other files of the database are about to take space: what is needed here is set aside, as
    /// far as it is there.
    ///
    /// # Errors
    /// Those of making files longer.
    pub(crate) fn begin_taking(&self) -> Result<Taking<'_>, Fault> {
        let taking = Taking::begin(&self.page_budget);
        match self.look_for_room(0) {
            Err(fault) if !fault.is_no_space() => Err(fault),
            _ => Ok(taking),
        }
    }

    /// Makes the log longer, where that leaves the space that is needed here.
    ///
    /// # Errors
    /// No space: nothing changed then. Those of [`weir_redo::Redo::set_capacity`], and of making
    /// files longer.
    pub(super) fn grow_log(&self, bytes: u64) -> Result<u64, Fault> {
        self.redo.check_growth(bytes)?;
        let taking = Taking::begin(&self.page_budget);
        let grown = self.look_for_room(0).and_then(|()| Ok(self.redo.set_capacity(bytes)?));
        drop(taking);
        if grown.is_err() {
            self.trim()?;
        }
        grown
    }

    /// Makes the files longer if half of what was had beforehand is used.
    pub(super) fn look_ahead_for_room(&self) -> Result<(), Fault> {
        let budget = &self.page_budget;
        if budget.short.load(Relaxed) || budget.left() > budget.low.load(Relaxed) {
            return Ok(());
        }
        match self.look_for_room(0) {
            // Who needs it is told.
            Err(full) if full.is_no_space() => Ok(()),
            looked => looked,
        }
    }

    /// Gives space that is not to be kept back to the file system.
    ///
    /// # Errors
    /// Those of [`weir_store::Store::trim`], and of making files longer.
    pub fn trim(&self) -> Result<(), Fault> {
        match self.look_for_room(0) {
            Err(fault) if !fault.is_no_space() => Err(fault),
            _ => Ok(self.store.trim()?),
        }
    }

    /// Sees to room for what is there, the reserve, and new pages: `pages`, better more.
    fn look_for_room(&self, pages: usize) -> Result<(), Fault> {
        // In this order: what is taken meanwhile counts as taken, and what is made may count twice.
        let taken = self.page_budget.taken.load(SeqCst);
        let promised = self.page_budget.promised.load(SeqCst);
        let now = self.store.room();
        let unstored = now.pages.saturating_sub(now.stored_pages) + promised;
        let changed = self.dirty.outstanding().saturating_sub(unstored);
        let mean = now.stored_units as f64 / now.stored_pages.max(1) as f64;
        let growth = 1.0 - mean / f64::from(UNITS_MAX);
        let reserve = dirty::reserve(self.dirty.limit()) + 2 * self.batch_pages() as u64;
        // A rollback dirties no more than there are, and never all of them.
        let reserve = reserve.min(now.pages / 2);
        let needed = unstored + reserve + (changed as f64 * growth) as u64;
        let ahead = (needed / 4).max(PAGES_AHEAD_MIN);
        let others_leave = match self.page_budget.takers.load(SeqCst) {
            0 => self.disk.free_bytes()? / FREE_PART / PAGE_SIZE as u64,
            _ => 0,
        };
        let apart = needed.saturating_sub(others_leave);
        let new = ahead.max(pages as u64);
        // A rollback makes new pages, too: were there none left in the map, no checkpoint would
        // move.
        let mapped = new + reserve + promised;
        let (kept, left) = match apart {
            0 => (self.store.keep_room(0, 0, mapped), new as i64),
            _ => {
                let kept = self.store.keep_room(apart + pages as u64, ahead, mapped);
                (kept, self.store.room().places as i64 - apart as i64)
            }
        };
        let left = left.min(self.store.room().mapped as i64 - (reserve + promised) as i64);
        self.page_budget.most.store(taken + left, SeqCst);
        self.page_budget.reserve.store(reserve as i64, Relaxed);
        self.page_budget.low.store(ahead as i64 / 2, Relaxed);
        self.page_budget.short.store(kept.is_err(), Relaxed);
        Ok(kept?)
    }

    /// Has dirty pages written, whatever the policy says.
    fn write_for_room(&self) -> Result<(), Fault> {
        self.release_pending()?;
        if self.inline {
            return self.write_what_fits(self.batch_pages(), write::Reason::FreeFrames).map(drop);
        }
        self.press();
        self.clean.wait(Duration::from_millis(5));
        Ok(())
    }

    /// Frees what was given up once it is much: for those who write pages while no log writer runs,
    /// such as recovery. Not each time, since that takes a sync of the log, and leaves small holes:
    /// batches would be written in many pieces.
    pub(super) fn release_much_pending(&self) -> Result<(), Fault> {
        let stats = self.store.stats();
        let live = stats.used_units - stats.pending_units;
        match stats.pending_units - stats.held_units > live.min(PENDING_MAX) {
            true => self.release_pending(),
            false => Ok(()),
        }
    }

    /// Frees what was given up, if there is any.
    pub(super) fn release_pending(&self) -> Result<(), Fault> {
        let stats = self.store.stats();
        if stats.pending_units > stats.held_units {
            self.release(self.redo.write_step(true)?);
        }
        Ok(())
    }

    /// Frees what was given up below `durable`, up to which the log is.
    pub(crate) fn release(&self, durable: Lsn) {
        if self.store.release(durable) > 0 {
            self.vain.releases.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Mtr, Need, StorageOptions};
    use super::*;
    use std::sync::Arc;
    use weir_os::SimDisk;
    use weir_page::{Redo, overflow};

    fn new_page(storage: &Storage, rng: &mut fastrand::Rng) {
        let mut mtr = storage.mtr(Need::log(17 << 10).and_pages(1)).unwrap();
        let page = mtr.create();
        let data: Vec<u8> = (0..overflow::CAPACITY).map(|_| rng.u8(..)).collect();
        mtr.log(&Redo::OverflowInit { page, data: &data });
        mtr.commit();
    }

    /// Whoever looked for room took those for nothing that others were about to make, and there was
    /// room for the same ones again.
    #[test]
    fn pages_that_are_about_to_be_made_have_their_room() {
        let disk = SimDisk::new(1);
        let options = StorageOptions::small(800);
        let storage = Storage::create(Arc::new(disk.clone()), &options).unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        (0..60).for_each(|_| new_page(&storage, &mut rng));
        storage.flush_all(write::Reason::Checkpoint, &mut |_| {}).unwrap();
        disk.set_capacity(Some(disk.used_bytes() + (1200 << 10)));
        let most = storage.store.room().places as usize + (1200 << 10) / PAGE_SIZE;
        let begin = || {
            storage.trim().unwrap();
            storage.mtr(Need::log(1 << 10).and_pages(1))
        };
        let mtrs: Vec<Mtr<'_>> = (0..150).map_while(|_| begin().ok()).collect();
        assert!((1..=most).contains(&mtrs.len()), "{} of {most} pages", mtrs.len());
        drop(mtrs);
        assert_eq!(storage.page_budget.promised.load(SeqCst), 0);
        begin().unwrap();
    }
}

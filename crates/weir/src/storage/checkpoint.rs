//! Checkpoints: how far the log is not needed any more, noted in the control file, so that its
//! space is free again.
//!
//! The checkpoint moves up to the oldest dirty page, the oldest change of the page map that is not
//! persisted and what a backup or recovery keeps, and no further than the log is durable. Which
//! pages are written so that it can: `choose`.

use super::write::Reason;
use super::{Fault, Storage};
use std::sync::atomic::Ordering;
use weir_page::{Lsn, PageId, TxnId};
use weir_store::Control;

impl Storage {
    /// Moves the checkpoint if that frees much.
    pub(super) fn checkpoint_if_due(&self) -> Result<(), Fault> {
        let age = self.redo.checkpoint_age();
        let movable = self.checkpoint_bound().0.saturating_sub(self.redo.checkpoint().0);
        let capacity = self.redo.capacity();
        if movable >= capacity / 16 || (age > capacity / 4 && movable >= capacity / 32) {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// How far dirty pages would let the checkpoint go, and a backup.
    fn checkpoint_bound(&self) -> Lsn {
        let mut list = self.pool.flush.lock();
        let end = self.redo.reserved();
        list.trim(|lsn, frame| self.pool.is_current(lsn, frame));
        let bound = list.bound().unwrap_or(end).min(end);
        let bound = bound.min(self.kept_log.bound());
        // The list is locked: recovery, which dirties pages before it goes on, doesn't pass any
        // that are not on it.
        bound.min(Lsn(self.replayed.load(Ordering::Acquire)))
    }

    /// Moves the checkpoint as far as the dirty pages permit, persisting map blocks that stand in
    /// the way, and gives the log's space back.
    ///
    /// # Errors
    /// Of the log, the map and the control file; the database then stops.
    pub fn checkpoint(&self) -> Result<Lsn, Fault> {
        self.move_checkpoint(&mut self.checkpointing.lock())
    }

    fn move_checkpoint(&self, noted: &mut Lsn) -> Result<Lsn, Fault> {
        let target = self.checkpoint_bound();
        self.persist_map(target)?;
        let durable = self.redo.durable();
        self.release(durable);
        // The map is asked after the list: an image is installed before its guard is given up.
        let map_bound = self.store.oldest_unpersisted().unwrap_or(target);
        let bound = target.min(map_bound).min(durable);
        if bound > self.redo.checkpoint() {
            self.write_control(noted, &self.control(bound, durable, false))?;
            self.redo.set_checkpoint(bound)?;
            self.figures.checkpoints.fetch_add(1, Ordering::Relaxed);
        }
        Ok(bound)
    }

    /// Writes the map blocks that changed before `target`, and syncs the log past what it is now.
    pub(super) fn persist_map(&self, target: Lsn) -> Result<(), Fault> {
        // Once the log has failed, copies that waited for it are never written, and their blocks
        // stay taken up.
        self.redo.check()?;
        // Blocks are copied first, and the log is synced past the copies then: relocations that go
        // on meanwhile hold up neither. The sync is needed without a block to write, too: a page
        // that is clean by now may be so thanks to a relocation that only a longer log tells of.
        let mut draft = self.store.draft_map(target)?;
        let mut settled = self.redo.reserved();
        loop {
            self.redo.wait_durable(settled)?;
            let Some(copies) = draft else { return Ok(()) };
            self.store.write_map(copies, self.redo.durable())?;
            draft = self.store.draft_map(target)?;
            settled = draft.as_ref().map_or(settled, |d| Lsn(d.newest().0 + 1));
        }
    }

    /// Syncs the log and notes in the control file how far it is durable, so that a later loss of
    /// its end is noticed.
    ///
    /// # Errors
    /// Of the log and the control file; the database then stops.
    pub fn note_durable(&self) -> Result<(), Fault> {
        // Commits wait for the sync, not for a checkpoint that goes on.
        self.redo.write_step(true)?;
        let mut noted = self.checkpointing.lock();
        let durable = self.redo.durable();
        self.release(durable);
        self.write_control(&mut noted, &self.control(self.redo.checkpoint(), durable, false))
    }

    /// Notes in the control file that nothing is left to redo, if that is so: a map block that is
    /// broken at the next open is then no write cut short.
    ///
    /// # Errors
    /// Of the log and the control file; the database then stops.
    pub fn note_clean(&self) -> Result<(), Fault> {
        let mut noted = self.checkpointing.lock();
        let (checkpoint, end) = (self.redo.checkpoint(), self.redo.reserved());
        if checkpoint == end {
            self.write_control(&mut noted, &self.control(checkpoint, end, true))?;
        }
        Ok(())
    }

    /// Replaces the contents of the control file, in which `noted` is the checkpoint.
    ///
    /// # Errors
    /// Of the log and the control file; the database then stops.
    pub(super) fn write_control(&self, noted: &mut Lsn, control: &Control) -> Result<(), Fault> {
        // A log that has failed may have done so on the way to the checkpoint of the file: the one
        // that it tells is older, and segments from there on may be gone.
        self.redo.check()?;
        assert!(*noted <= control.checkpoint, "from checkpoint {noted} to {control:?}");
        self.store.write_control(control)?;
        *noted = control.checkpoint;
        Ok(())
    }

    pub(super) fn control(&self, checkpoint: Lsn, durable: Lsn, clean: bool) -> Control {
        Control {
            database_id: self.database_id,
            checkpoint,
            durable,
            next_txn_id: TxnId(self.next_txn.load(Ordering::Acquire)),
            next_page_id: PageId(0),
            segment_bytes: self.redo.segment_bytes(),
            redo_capacity: self.redo.capacity(),
            clean,
            map_bytes: 0,
            map_version: 0,
            dirty_table: Lsn(self.tabled.load(Ordering::Relaxed)),
        }
    }

    /// Writes every dirty page and moves the checkpoint to the end of the log.
    ///
    /// # Errors
    /// As [`Storage::flush_step`].
    pub fn flush_all(&self, reason: Reason, progress: &mut dyn FnMut(u64)) -> Result<(), Fault> {
        self.finish_recovery()?;
        let end = self.redo.reserved();
        let mut idle = 0;
        while idle < 3 {
            let frames = self.oldest_dirty(self.batch_pages(), end);
            let written = self.write_pages(&frames, reason)?;
            idle = if written == 0 { idle + 1 } else { 0 };
            progress(self.pool.dirty_pages());
        }
        for _ in 0..3 {
            self.checkpoint()?;
        }
        self.trim()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::mtr::Need;
    use super::super::mtr::tests::new_page;
    use super::super::{OnProgress, StorageOptions};
    use super::*;
    use std::sync::Arc;
    use weir_os::SimDisk;
    use weir_os::sim::{self, OpKind, Times};

    /// Commits that wait for nothing were lost in a power cut for as long as a checkpoint had gone
    /// on.
    #[test]
    fn the_log_is_synced_beside_a_checkpoint_that_goes_on() {
        let disk = Arc::new(SimDisk::new(1));
        let storage = Storage::create(disk, &StorageOptions::small(64)).unwrap();
        new_page(&storage);
        let end = storage.redo.reserved();
        let goes_on = storage.checkpointing.lock();
        let is_synced = std::thread::scope(|scope| {
            let notes = scope.spawn(|| storage.note_durable());
            let is_synced = (0..1_000_000).any(|_| {
                std::thread::yield_now();
                storage.redo.durable() >= end
            });
            drop(goes_on);
            notes.join().unwrap().unwrap();
            is_synced
        });
        assert!(is_synced);
    }

    /// The second checkpoint panicked where a page came to its new place between the two: the first
    /// had copied that map block.
    #[test]
    fn checkpoints_fail_as_the_log_does() {
        let disk = Arc::new(SimDisk::new(1));
        let storage = Storage::create(Arc::clone(&disk) as _, &StorageOptions::small(64)).unwrap();
        let pages = [new_page(&storage), new_page(&storage)];
        let [first, second] = pages.map(|page| storage.pool.find(&storage.store, page).unwrap());
        assert_eq!(storage.write_pages(&[first], Reason::Checkpoint).unwrap(), 1);
        let (mut copied, mut bytes) = (Vec::new(), Vec::new());
        let space = storage.log_space(1).unwrap();
        let guard = Lsn(storage.pool.frame(second).rec_lsn.load(Ordering::Relaxed));
        storage.copy_page(second, &mut copied, &mut bytes);
        let moved = storage.store.write_batch(&[copied[0].to_store(&bytes)]).unwrap();
        let (on, at) = (Some(OpKind::Write), disk.operations());
        disk.inject(sim::Fault::Io { on, at, times: Times::Once });
        storage.persist_map(storage.redo.reserved()).unwrap_err();
        storage.relocate(space, &copied, &moved, guard);
        let error = storage.persist_map(storage.redo.reserved()).unwrap_err();
        assert!(error.to_string().contains("stopped after its first failure"), "{error}");
    }

    /// The file then named an older checkpoint than before, whose segments the log had begun to
    /// give other names: no start found them again.
    #[test]
    fn a_checkpoint_that_the_log_failed_to_follow_stays_in_the_control_file() {
        let disk = Arc::new(SimDisk::new(1));
        let mut options = StorageOptions::small(64);
        options.redo.segment_bytes = 64 << 10;
        let storage = Storage::create(Arc::clone(&disk) as _, &options).unwrap();
        // More than the log's first segment.
        while storage.redo.checkpoint_age() < 2 * storage.redo.segment_bytes() {
            let page = new_page(&storage);
            let mut mtr = storage.mtr(Need::log(256)).unwrap();
            mtr.latch(page).unwrap();
            mtr.free(page);
            mtr.commit();
        }
        storage.write_next(64, Reason::Checkpoint).unwrap();
        let mut goes_on = storage.checkpointing.lock();
        std::thread::scope(|scope| {
            new_page(&storage);
            let end = storage.redo.reserved();
            let notes = scope.spawn(|| storage.note_durable());
            while storage.redo.durable() < end {
                std::thread::yield_now();
            }
            // It waits for this checkpoint, whose segments can't be renamed.
            let (on, at) = (Some(OpKind::Name), disk.operations());
            disk.inject(sim::Fault::Io { on, at, times: Times::Once });
            storage.move_checkpoint(&mut goes_on).unwrap_err();
            drop(goes_on);
            notes.join().unwrap().unwrap_err();
        });
        let next = Storage::open(Arc::new(disk.process_kill()), &options, OnProgress::default());
        next.unwrap();
    }
}

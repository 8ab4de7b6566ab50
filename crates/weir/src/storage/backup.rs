//! A backup: a copy of the database as it is at one moment, taken while it goes on.
//!
//! What a crash at that moment would leave is a whole database, so that is what is copied: the
//! control file, the page map, the log from the checkpoint to the moment, and the images that are
//! current then. While that is done,
//! - images that are current stay where they are (`weir-store/src/copy.rs`): what is written
//!   meanwhile goes to other places;
//! - the checkpoint doesn't pass what of the log is not copied yet ([`KeptLog`]).
//!
//! Whoever would have to wait for long takes back what is held or kept, and the backup fails.
//! `docs/backup.md` tells the steps, and why they are enough.

use super::{Blocked, Fault, Storage};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_os::Disk;
use weir_page::Lsn;
use weir_redo::CopyProgress;
use weir_store::{Control, DataCopy, UNIT, write_first_control};

/// A backup that has copied nothing of the log for that long is given up for a writer who waits for
/// the log.
const STALLED: Duration = Duration::from_secs(10);

/// What a backup keeps of the log until it is copied: the checkpoint doesn't pass it.
#[derive(Default)]
pub struct KeptLog(Mutex<Option<Kept>>);

struct Kept {
    /// The start of a group: the checkpoint may come to be there.
    from: Lsn,
    /// When it came there.
    since: Instant,
}

impl KeptLog {
    /// How far the checkpoint may go.
    pub(super) fn bound(&self) -> Lsn {
        self.0.lock().as_ref().map_or(Lsn(u64::MAX), |kept| kept.from)
    }

    fn keep(&self, from: Lsn) {
        *self.0.lock() = Some(Kept { from, since: Instant::now() });
    }

    /// Keeps no more than what is from there on.
    ///
    /// # Errors
    /// `BackupGivenUp`.
    fn advance(&self, from: Lsn) -> Result<(), Fault> {
        match &mut *self.0.lock() {
            Some(kept) => *kept = Kept { from, since: Instant::now() },
            None => return Err(Fault::BackupGivenUp),
        }
        Ok(())
    }

    /// Keeps nothing any more; whether it did.
    pub(super) fn give_up(&self) -> bool {
        self.0.lock().take().is_some()
    }

    /// A writer waits for the log, and can't for ever.
    pub(super) fn give_up_if_stalled(&self) {
        let mut kept = self.0.lock();
        if kept.as_ref().is_some_and(|kept| kept.since.elapsed() > STALLED) {
            *kept = None;
        }
    }
}

/// A backup that is being made.
pub struct Copying {
    to: Arc<dyn Disk>,
    /// The contents of the control file.
    control: Control,
    data: DataCopy,
    stage: Stage,
    /// Bytes of files that are done with, and those that there are, free space among them.
    done_bytes: u64,
    all_bytes: u64,
}

/// What is copied next.
#[derive(Clone, Copy)]
enum Stage {
    Log(CopyProgress),
    Data(u64),
    Done,
    Failed,
}

impl Copying {
    /// Bytes of files that are done with, and those that there are, free space among them.
    pub fn bytes(&self) -> (u64, u64) {
        (self.done_bytes, self.all_bytes)
    }

    /// Whether the copy is a database.
    pub fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Done)
    }
}

impl Storage {
    /// Begins a backup; its moment is between the call and the return. One at a time; to be
    /// followed by [`Storage::end_backup`].
    ///
    /// # Errors
    /// Those of the log, and of copying the page map.
    pub fn begin_backup(&self, to: Arc<dyn Disk>) -> Result<Copying, Fault> {
        let _blocked = Blocked::begin();
        let (checkpoint, table) = {
            // No checkpoint moves, and no other table is made.
            let _one = self.checkpointing.lock();
            self.store.hold_space();
            let checkpoint = self.redo.checkpoint();
            self.kept_log.keep(checkpoint);
            (checkpoint, self.current_dirty_table())
        };
        // The copy has that one, or a newer one of the same block.
        let map_version = self.store.map_version();
        // What a block of the map lacks when it is copied, the log tells from the checkpoint on.
        let map_bytes = self.copy_map(&*to, checkpoint)?;
        if let Some(table) = &table {
            table.copy_to(&*to, self.database_id)?;
        }
        // What comes to be until the end has just been written.
        let images = self.store.images();
        self.redo.wait_durable(self.redo.reserved())?;
        let end = self.redo.durable();
        // Where images lie whose places the log tells up to its end, the file has been that long
        // before.
        let data = self.store.begin_data_copy(&*to, images)?;
        let dirty_table = table.map_or(Lsn(0), |table| table.at);
        let control = self.control(checkpoint, end, false);
        let all_bytes = map_bytes + (end.0 - checkpoint.0) + data.units() * UNIT as u64;
        let mut copying = Copying {
            to,
            control: Control { map_bytes, map_version, dirty_table, ..control },
            data,
            stage: Stage::Log(CopyProgress::begin(checkpoint)),
            done_bytes: map_bytes,
            all_bytes,
        };
        // A writer with one thread can't wait until the log is copied. The checkpoint follows, as
        // it would beside threads.
        while self.inline && matches!(copying.stage, Stage::Log(_)) {
            self.backup_step(&mut copying)?;
            self.checkpoint()?;
        }
        Ok(copying)
    }

    /// Copies the page map, durably but for its name, while the log is kept from `checkpoint` on;
    /// returns the length of its file.
    fn copy_map(&self, to: &dyn Disk, checkpoint: Lsn) -> Result<u64, Fault> {
        let (copy, bytes) = self.store.begin_map_copy(to)?;
        let mut copied = 0;
        while copied < bytes {
            self.check()?;
            copied = self.store.copy_map(&*copy, copied, bytes)?;
            self.kept_log.advance(checkpoint)?;
        }
        copy.sync()?;
        Ok(bytes)
    }

    /// Copies some more. After an error nothing is held any more, and the copy is of no use.
    ///
    /// # Errors
    /// Of one side or the other; of this one when it has stopped, or needs what is kept or held for
    /// the backup.
    pub fn backup_step(&self, copying: &mut Copying) -> Result<(), Fault> {
        let next = self.next_stage(copying);
        copying.stage = *next.as_ref().unwrap_or(&Stage::Failed);
        if !matches!(copying.stage, Stage::Log(_) | Stage::Data(_)) {
            self.end_backup();
        }
        next.map(drop)
    }

    fn next_stage(&self, copying: &mut Copying) -> Result<Stage, Fault> {
        self.check()?;
        match copying.stage {
            Stage::Log(before) => {
                let end = copying.control.durable;
                let copied = self.redo.copy_log(before, end, &*copying.to);
                // What was given up meanwhile may be another part of the log by now.
                self.kept_log.advance(copied.as_ref().unwrap_or(&before).bound())?;
                let copied = copied?;
                copying.done_bytes += copied.to().0 - before.to().0;
                if copied.to() < end {
                    return Ok(Stage::Log(copied));
                }
                self.kept_log.give_up();
                Ok(Stage::Data(0))
            }
            Stage::Data(from) if from < copying.data.units() => {
                let to = self.store.copy_data(&mut copying.data, from)?;
                self.store.check_held()?;
                copying.done_bytes += (to - from) * UNIT as u64;
                Ok(Stage::Data(to))
            }
            Stage::Data(_) => {
                self.store.check_held()?;
                self.store.finish_data_copy(&copying.data)?;
                write_first_control(&*copying.to, &copying.control)?;
                Ok(Stage::Done)
            }
            Stage::Done => Ok(Stage::Done),
            Stage::Failed => Err(Fault::BackupGivenUp),
        }
    }

    /// Lets go what is held for a backup.
    pub fn end_backup(&self) {
        self.kept_log.give_up();
        self.store.let_go();
    }
}

#[cfg(test)]
mod tests {
    use super::super::StorageOptions;
    use super::super::mtr::tests::new_page;
    use super::*;
    use weir_os::SimDisk;

    /// The page writer can't do without the log: it stopped the database.
    #[test]
    fn a_page_writer_without_space_in_the_log_takes_what_is_kept() {
        let storage =
            Storage::create(Arc::new(SimDisk::new(1)), &StorageOptions::small(64)).unwrap();
        new_page(&storage);
        storage.flush_all(super::super::Reason::Checkpoint, &mut |_| {}).unwrap();
        let mut copying = storage.begin_backup(Arc::new(SimDisk::new(2))).unwrap();
        while storage.kept_log.bound() < Lsn(u64::MAX) {
            let credit = storage.admit_writer(64 << 10).unwrap();
            storage.redo.append(credit, &[0; 64 << 10]);
            storage.redo.write_step(true).unwrap();
        }
        let step = storage.backup_step(&mut copying);
        assert!(matches!(step, Err(Fault::BackupGivenUp)), "{step:?}");
        drop(storage.admit_writer(64 << 10).unwrap());
        storage.check().unwrap();
    }
}

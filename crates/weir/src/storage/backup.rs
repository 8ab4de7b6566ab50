//! A backup: a copy of the database as it is at one moment, taken while it goes on.
//!
//! What a crash at that moment would leave is a whole database, so that is what is copied: the control file, the page map, the log
//! from the checkpoint to the moment, and the images that are current then. While that is done,
//! - images that are current stay where they are (`weir-store/src/copy.rs`): what is written meanwhile goes to other places;
//! - the checkpoint doesn't pass what of the log is not copied yet. Writers are held back for it only if the log is at its
//!   limit and the copy slower than they are.
//!
//! 1. Under the lock of checkpoints: space is held, the map file copied, the log synced. Its end is the moment of the backup.
//! 2. The log is copied, oldest part first, and free for the checkpoint part by part.
//! 3. The data file is copied, space is let go.
//! 4. The control file is written: from then on the copy is a database. Before, nobody takes it for one.

use super::{Fault, Storage};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use weir_os::{Disk, File};
use weir_page::Lsn;
use weir_store::{Control, UNIT, open_data_copy, write_first_control};

/// A backup that is being made.
pub struct Copying {
    to: Arc<dyn Disk>,
    /// The contents of the control file.
    control: Control,
    /// The data file, and how long it is in units.
    data: Arc<dyn File>,
    units: u64,
    stage: Stage,
    /// Bytes of files that are done with, and those that there are, free space among them.
    done_bytes: u64,
    all_bytes: u64,
}

/// What is copied next.
enum Stage {
    Log(Lsn),
    Data(u64),
    Done,
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
    /// Begins a backup; its moment is between the call and the return. One at a time; to be followed by [`Storage::end_backup`].
    ///
    /// # Errors
    /// Those of the log, and of copying the page map.
    pub fn begin_backup(&self, to: Arc<dyn Disk>) -> Result<Copying, Fault> {
        let _one = self.checkpointing.lock();
        self.store.hold_space(self.redo.reserved());
        let checkpoint = self.redo.checkpoint();
        self.backed_up.store(checkpoint.0, SeqCst);
        let (map_bytes, units) = self.store.copy_map(&*to)?;
        // The log is the newer one: it tells what the map lacks.
        self.redo.wait_durable(self.redo.reserved())?;
        let end = self.redo.durable();
        let data = open_data_copy(&*to, units)?;
        let control = self.control(checkpoint, end, false);
        let all_bytes = map_bytes + (end.0 - checkpoint.0) + units * UNIT as u64;
        let mut copying = Copying {
            to,
            // The table of dirty pages isn't copied: all of the log is read.
            control: Control { map_bytes, dirty_table: Lsn(0), ..control },
            data,
            units,
            stage: Stage::Log(checkpoint),
            done_bytes: map_bytes,
            all_bytes,
        };
        // A writer with one thread can't wait until the log is copied.
        while self.inline && matches!(copying.stage, Stage::Log(_)) {
            self.backup_step(&mut copying)?;
        }
        Ok(copying)
    }

    /// Copies some more.
    ///
    /// # Errors
    /// Of one side or the other; of this one when it has stopped, or needs what is held for the backup: the copy is of no use.
    pub fn backup_step(&self, copying: &mut Copying) -> Result<(), Fault> {
        self.check()?;
        let end = copying.control.durable;
        copying.stage = match copying.stage {
            Stage::Log(at) => {
                let copied = self.redo.copy_segment(at, end, &*copying.to)?;
                copying.done_bytes += copied.0 - at.0;
                if copied < end {
                    self.backed_up.store(copied.0, SeqCst);
                    Stage::Log(copied)
                } else {
                    self.backed_up.store(u64::MAX, SeqCst);
                    Stage::Data(0)
                }
            }
            Stage::Data(from) if from < copying.units => {
                let to = self.store.copy_data(&*copying.data, from, copying.units)?;
                self.store.check_held()?;
                copying.done_bytes += (to - from) * UNIT as u64;
                Stage::Data(to)
            }
            Stage::Data(_) => {
                self.store.check_held()?;
                self.store.let_go();
                copying.data.sync()?;
                write_first_control(&*copying.to, &copying.control)?;
                Stage::Done
            }
            Stage::Done => Stage::Done,
        };
        Ok(())
    }

    /// Lets go what is held for a backup.
    pub fn end_backup(&self) {
        self.backed_up.store(u64::MAX, SeqCst);
        self.store.let_go();
    }
}

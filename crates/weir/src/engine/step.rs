//! What threads do in the background, a step at a time: for a database that has no threads of its
//! own.

use super::Database;
use super::error::Result;
use super::open::LOSERS_STEP_WRITES;
use crate::storage::Fault;

/// Bytes of the log that one step applies, about.
const RECOVERY_STEP_BYTES: usize = 16 << 10;

/// A kind of step that threads do otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackgroundStep {
    /// Writes dirty pages.
    WritePages,
    /// Moves the checkpoint.
    MoveCheckpoint,
    /// Removes what no snapshot needs any more.
    Purge,
    /// Frees frames.
    FreeFrames,
    /// Syncs the log.
    SyncLog,
    /// Gives the end of the data file back to the file system.
    TrimFile,
    /// Moves staged index entries to where they belong.
    MoveStaged,
    /// Applies some of the log that there was at the opening.
    ApplyLog,
    /// Notes which pages are dirty.
    NoteDirtyPages,
    /// Takes back some of what was not committed at the opening.
    TakeBack,
}

impl BackgroundStep {
    /// All of them.
    pub const ALL: [BackgroundStep; 10] = [
        BackgroundStep::WritePages,
        BackgroundStep::MoveCheckpoint,
        BackgroundStep::Purge,
        BackgroundStep::FreeFrames,
        BackgroundStep::SyncLog,
        BackgroundStep::TrimFile,
        BackgroundStep::MoveStaged,
        BackgroundStep::ApplyLog,
        BackgroundStep::NoteDirtyPages,
        BackgroundStep::TakeBack,
    ];

    /// Whether it puts in order for later, which is nothing to a database that is open read-only.
    fn puts_in_order(self) -> bool {
        use BackgroundStep::{MoveStaged, NoteDirtyPages, Purge, TrimFile};
        matches!(self, Purge | TrimFile | MoveStaged | NoteDirtyPages)
    }
}

impl Database {
    /// One step of what threads do otherwise, for a single-threaded database. Those that put in
    /// order for later do nothing in one that is open read-only.
    ///
    /// # Errors
    /// Storage errors.
    pub fn background_step(&self, step: BackgroundStep) -> Result<()> {
        let (storage, transactions) = (self.0.running()?, &self.0.transactions);
        if self.0.options.read_only && step.puts_in_order() {
            return Ok(());
        }
        match step {
            BackgroundStep::WritePages => drop(storage.flush_step(16)?),
            BackgroundStep::MoveCheckpoint => drop(storage.checkpoint()?),
            BackgroundStep::Purge => {
                self.0.orphans.retry();
                transactions.purge_up_to(4)?;
            }
            BackgroundStep::FreeFrames => drop(storage.evict_step(storage.frame_reserve())?),
            BackgroundStep::SyncLog => {
                let durable = storage.redo.write_step(true).map_err(Fault::from)?;
                storage.release(durable);
            }
            BackgroundStep::TrimFile => storage.trim()?,
            BackgroundStep::MoveStaged => drop(transactions.staging_step()?),
            BackgroundStep::ApplyLog => drop(storage.recovery_step(RECOVERY_STEP_BYTES)?),
            BackgroundStep::NoteDirtyPages => drop(storage.note_dirty_pages()?),
            BackgroundStep::TakeBack => drop(transactions.roll_back_losers(LOSERS_STEP_WRITES)?),
        }
        Ok(())
    }
}

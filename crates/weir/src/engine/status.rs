//! Figures of a database at one moment. Names follow InnoDB's where the thing is the same.

use crate::storage::replay::Summary;
use crate::txn::{Running, Transactions};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What [`super::Database::status`] tells. Counters run from the opening of the database.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Status {
    /// Bytes of redo between the checkpoint and the end of the log.
    pub checkpoint_age: u64,
    /// What it never exceeds.
    pub checkpoint_max_age: u64,
    /// End of the log.
    pub lsn_current: u64,
    /// The log is on the device up to here.
    pub lsn_flushed: u64,
    /// The newest checkpoint.
    pub lsn_last_checkpoint: u64,
    /// Redo capacity in bytes.
    pub redo_capacity: u64,
    /// Frames in memory.
    pub buffer_pool_pages_total: u64,
    /// Frames that are free.
    pub buffer_pool_pages_free: u64,
    /// Frames whose page has unwritten changes.
    pub buffer_pool_pages_dirty: u64,
    /// Pages written because the log needed their space.
    pub pages_written_deadline: u64,
    /// Pages written to free frames.
    pub pages_written_free_frames: u64,
    /// Pages written at shutdown.
    pub pages_written_shutdown: u64,
    /// Pages read because somebody needed them.
    pub pages_read: u64,
    /// Pages read ahead.
    pub pages_read_ahead: u64,
    /// Pages dropped from memory.
    pub pages_evicted: u64,
    /// Bytes of pages written, before compression.
    pub page_bytes_uncompressed: u64,
    /// Bytes of pages written.
    pub page_bytes_written: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// How often a writer waited for log space.
    pub log_waits: u64,
    /// How long, in microseconds.
    pub log_wait_us: u64,
    /// How often somebody found no free frame.
    pub buffer_pool_wait_free: u64,
    /// Committed transactions.
    pub transactions_committed: u64,
    /// Transactions rolled back.
    pub transactions_rolled_back: u64,
    /// Committed transactions whose undo is kept.
    pub history_list_length: u64,
    /// Undo records that purge has been through.
    pub purged_records: u64,
    /// Index entries inserted into staging trees.
    pub staged_entries: u64,
    /// Leaves of staging trees, when last counted.
    pub staging_pages: u64,
    /// Staged entries moved into the main trees.
    pub staged_entries_moved: u64,
    /// Changes of main leaves that this took.
    pub staging_moves: u64,
    /// Row locks that had to be waited for.
    pub row_lock_waits: u64,
    /// How long, in microseconds.
    pub row_lock_time_us: u64,
    /// Deadlocks.
    pub deadlocks: u64,
    /// Length of the data file in bytes.
    pub data_file_bytes: u64,
    /// Bytes of it in use.
    pub data_used_bytes: u64,
    /// Pages that exist.
    pub pages_allocated: u64,
    /// Operations on the disk.
    pub disk: weir_os::DiskStats,
    /// Bytes of log that recovery went through when the database was opened.
    pub recovered_log_bytes: u64,
    /// Records that it applied.
    pub recovered_records: u64,
}

impl Status {
    pub(super) fn of(shared: &Transactions, recovered: &Summary) -> Status {
        let s = &shared.storage;
        let f = &s.figures;
        let store = s.store.stats();
        let locks = shared.locks.stats();
        Status {
            checkpoint_age: s.redo.checkpoint_age(),
            checkpoint_max_age: s.redo.capacity(),
            lsn_current: s.redo.reserved().0,
            lsn_flushed: s.redo.durable().0,
            lsn_last_checkpoint: s.redo.checkpoint().0,
            redo_capacity: s.redo.capacity(),
            buffer_pool_pages_total: s.pool.frames() as u64,
            buffer_pool_pages_free: s.pool.free_frames() as u64,
            buffer_pool_pages_dirty: s.pool.dirty_pages(),
            pages_written_deadline: f.written_for_deadline.load(Relaxed),
            pages_written_free_frames: f.written_for_frames.load(Relaxed),
            pages_written_shutdown: f.written_for_shutdown.load(Relaxed),
            pages_read: f.pages_loaded.load(Relaxed),
            pages_read_ahead: f.pages_read_ahead.load(Relaxed),
            pages_evicted: f.evicted.load(Relaxed),
            page_bytes_uncompressed: store.page_bytes_in,
            page_bytes_written: store.page_bytes_out,
            checkpoints: f.checkpoints.load(Relaxed),
            log_waits: f.log_waits.load(Relaxed),
            log_wait_us: f.log_wait_us.load(Relaxed),
            buffer_pool_wait_free: f.frame_waits.load(Relaxed),
            transactions_committed: shared.figures.commits.load(Relaxed),
            transactions_rolled_back: shared.figures.rollbacks.load(Relaxed),
            history_list_length: shared.history_len() as u64,
            purged_records: shared.figures.purged.load(Relaxed),
            staged_entries: shared.staging.figures.staged.load(Relaxed),
            staging_pages: shared.staging.figures.leaves.load(Relaxed),
            staged_entries_moved: shared.staging.figures.moved.load(Relaxed),
            staging_moves: shared.staging.figures.moves.load(Relaxed),
            row_lock_waits: locks.waits,
            row_lock_time_us: locks.wait_time_us,
            deadlocks: locks.deadlocks,
            data_file_bytes: store.file_bytes,
            data_used_bytes: store.used_units * 4096,
            pages_allocated: store.pages_allocated,
            disk: s.disk.stats(),
            recovered_log_bytes: recovered.log_bytes,
            recovered_records: recovered.applied,
        }
    }
}

/// What a transaction that has written is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionState {
    /// It runs, or waits for its user.
    Running,
    /// It waits for a lock.
    Waiting,
    /// It waits for its coordinator.
    Prepared,
}

/// A transaction that has written and not ended, as [`super::Database::transactions`] saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionInfo {
    /// Its number, as in [`crate::LockInfo`].
    pub id: weir_page::TxnId,
    /// What it is doing.
    pub state: TransactionState,
    /// Undo records that it has written and not taken back.
    pub undo_records: u64,
    /// How long ago it wrote first; since the opening of the database for one that was prepared before.
    pub age: Duration,
    /// Whom it waits for.
    pub waiting_for: Vec<weir_page::TxnId>,
}

impl TransactionInfo {
    pub(super) fn all(shared: &Transactions) -> Vec<TransactionInfo> {
        let locks = shared.locks.snapshot();
        let info = |running: Running| {
            let Running { txn: id, age, undo_records, prepared } = running;
            let waits = locks.iter().filter(|lock| lock.txn == id);
            let waiting_for: Vec<_> = waits
                .filter_map(|lock| lock.wait.as_ref())
                .flat_map(|w| w.waits_for.clone())
                .collect();
            let state = match (prepared, waiting_for.is_empty()) {
                (true, _) => TransactionState::Prepared,
                (false, false) => TransactionState::Waiting,
                (false, true) => TransactionState::Running,
            };
            TransactionInfo { id, state, undo_records, age, waiting_for }
        };
        let mut all: Vec<_> = shared.running().into_iter().map(info).collect();
        all.sort_by_key(|info| info.id);
        all
    }
}

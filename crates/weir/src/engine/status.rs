//! Figures of a database at one moment. Names follow InnoDB's where the thing is the same.
//!
//! The table below names each once: as a field of [`Status`], what it is, and as one of
//! [`Status::figures`], from which the endpoint, `weir top` and the benchmark take them.
//! [`Status::of`] fills it in; the device's figures, whose names are lists of their own, come last.

use super::snapshots::SnapshotInfo;
use crate::storage::Cause;
use crate::txn::{Running, Transactions};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use weir_status::{Figure, Kind, Unit};

/// `/// sentence` and `name: kind unit,` for each figure: makes the struct and its list.
macro_rules! status {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ident $unit:ident,)+) => {
        /// What [`super::Database::status`] tells. Counters run from the opening of the database.
        #[derive(Debug, Clone, Default)]
        #[non_exhaustive]
        pub struct Status {
            $($(#[doc = $help])+ pub $name: u64,)+
            /// Operations on the disk.
            pub disk: weir_os::DiskStats,
        }

        impl Status {
            fn own_figures(&self) -> Vec<Figure> {
                vec![$(figure(
                    stringify!($name),
                    concat!($($help),+),
                    status!(@kind $kind),
                    status!(@unit $unit),
                    self.$name,
                )),+]
            }
        }
    };
    (@kind counter) => { Kind::Counter };
    (@kind gauge) => { Kind::Gauge };
    (@unit count) => { Unit::Count };
    (@unit bytes) => { Unit::Bytes };
    (@unit microseconds) => { Unit::Microseconds };
}

status! {
    /// Bytes of redo between the checkpoint and the end of the log.
    checkpoint_age: gauge bytes,
    /// What the checkpoint age never exceeds.
    checkpoint_max_age: gauge bytes,
    /// LSN of the end of the log.
    lsn_current: gauge bytes,
    /// LSN up to which the log is on the device.
    lsn_flushed: gauge bytes,
    /// LSN of the newest checkpoint.
    lsn_last_checkpoint: gauge bytes,
    /// Redo capacity.
    redo_capacity: gauge bytes,
    /// Frames in memory.
    buffer_pool_pages_total: gauge count,
    /// Frames that are free.
    buffer_pool_pages_free: gauge count,
    /// Frames whose page has unwritten changes.
    buffer_pool_pages_dirty: gauge count,
    /// Most frames whose page may have unwritten changes.
    buffer_pool_pages_dirty_max: gauge count,
    /// Pages written because the log needed their space.
    pages_written_deadline: counter count,
    /// Pages written because too many were dirty.
    pages_written_dirty_limit: counter count,
    /// Pages written to free frames.
    pages_written_free_frames: counter count,
    /// Pages written because a checkpoint or compaction was asked for.
    pages_written_checkpoint: counter count,
    /// Pages written at shutdown.
    pages_written_shutdown: counter count,
    /// Pages read because somebody needed them.
    pages_read: counter count,
    /// Pages read ahead.
    pages_read_ahead: counter count,
    /// Pages dropped from memory.
    pages_evicted: counter count,
    /// Bytes of pages written, before compression.
    page_bytes_uncompressed: counter bytes,
    /// Bytes of pages written.
    page_bytes_written: counter bytes,
    /// Checkpoints.
    checkpoints: counter count,
    /// Bytes of files that a backup has still to go through; 0 while there is none.
    backup_bytes_left: gauge bytes,
    /// Backups that were made.
    backups_made: counter count,
    /// Backups that failed or were given up.
    backups_failed: counter count,
    /// How often a writer waited for log space.
    log_waits: counter count,
    /// Time that writers waited for log space.
    log_wait_us: counter microseconds,
    /// Writers that wait for log space now.
    log_waiting: gauge count,
    /// How often a writer was held back so that the page writer can follow.
    admission_waits: counter count,
    /// Time that writers were held back so that the page writer can follow.
    admission_wait_us: counter microseconds,
    /// Writers that are held back now.
    admission_waiting: gauge count,
    /// How often a writer waited because too many pages were dirty.
    dirty_limit_waits: counter count,
    /// Time that writers waited because too many pages were dirty.
    dirty_limit_wait_us: counter microseconds,
    /// Writers that wait because too many pages are dirty.
    dirty_limit_waiting: gauge count,
    /// Pages per second that the governor asks for.
    flush_rate_target: gauge count,
    /// Pages per second that the device has been seen to write.
    device_pages_per_second: gauge count,
    /// Bytes of redo per second that writers may use; 0 while they are not held back.
    log_rate_max: gauge bytes,
    /// How often somebody found no free frame.
    buffer_pool_wait_free: counter count,
    /// Committed transactions.
    transactions_committed: counter count,
    /// Transactions rolled back.
    transactions_rolled_back: counter count,
    /// Committed transactions whose undo is kept.
    history_list_length: gauge count,
    /// Age of the oldest snapshot; 0 if nobody reads.
    oldest_snapshot_age_us: gauge microseconds,
    /// Transactions that have committed since the oldest snapshot, so that their undo is kept.
    oldest_snapshot_unseen_commits: gauge count,
    /// Undo records that purge had work with.
    purged_records: counter count,
    /// Undo records of whose work purge left something because of damaged pages.
    purged_records_damaged: counter count,
    /// How often a writer waited because purge was behind.
    purge_waits: counter count,
    /// Time that writers waited because purge was behind.
    purge_wait_us: counter microseconds,
    /// Index entries inserted into staging trees, and tombstones.
    staged_entries: counter count,
    /// Leaves of staging trees when last counted.
    staging_pages: gauge count,
    /// Staged entries moved into the main trees, and tombstones settled there.
    staged_entries_moved: counter count,
    /// Changes of main leaves that moving staged entries took.
    staging_moves: counter count,
    /// How often a writer waited for staged entries to be moved.
    staging_waits: counter count,
    /// Time that writers waited for staged entries to be moved.
    staging_wait_us: counter microseconds,
    /// Row locks that had to be waited for.
    row_lock_waits: counter count,
    /// Time that row locks had to be waited for.
    row_lock_time_us: counter microseconds,
    /// Deadlocks.
    deadlocks: counter count,
    /// Length of the data file.
    data_file_bytes: gauge bytes,
    /// Bytes of the data file in use.
    data_used_bytes: gauge bytes,
    /// Pages that exist.
    pages_allocated: gauge count,
    /// Bytes of log between the checkpoint and the end when the database was opened.
    recovery_log_bytes: gauge bytes,
    /// Bytes of them that recovery has not gone through; it does so while the database is open.
    recovery_log_bytes_left: gauge bytes,
    /// Transactions that were running when the database ended and have not been rolled back; that
    /// goes on while it is open.
    recovery_transactions_left: gauge count,
    /// Records that recovery has applied.
    recovered_records: counter count,
    /// Pages that recovery has brought up to date before their turn, because somebody wanted them.
    recovered_pages_on_demand: counter count,
    /// Damaged pages that recovery has emptied, because it was told to.
    recovery_pages_given_up: counter count,
    /// Transactions that were left half done because of damage, which recovery was told to pass
    /// over.
    recovery_transactions_half_done: counter count,
}

fn figure(name: &'static str, help: &'static str, kind: Kind, unit: Unit, value: u64) -> Figure {
    Figure { name, help: help.trim(), kind, unit, value }
}

impl Status {
    /// All figures with their names, kinds and units, those of the disk included.
    pub fn figures(&self) -> Vec<Figure> {
        let mut figures = self.own_figures();
        let disk = &self.disk;
        figures.extend(
            [
                ("disk_reads", "Reads of the disk.", Unit::Count, disk.reads),
                ("disk_writes", "Writes to the disk.", Unit::Count, disk.writes),
                ("disk_syncs", "Syncs of the disk.", Unit::Count, disk.syncs),
                (
                    "disk_busy_us",
                    "Time that the disk was at work, if it is throttled.",
                    Unit::Microseconds,
                    disk.busy_us,
                ),
                ("disk_read_bytes", "Bytes read from the disk.", Unit::Bytes, disk.read_bytes),
                ("disk_write_bytes", "Bytes written to the disk.", Unit::Bytes, disk.write_bytes),
            ]
            .map(|(name, help, unit, value)| figure(name, help, Kind::Counter, unit, value)),
        );
        let help = "Memory that files take: of a database in memory, or what was written since one was opened read-only.";
        let bytes = disk.memory_bytes;
        figures.push(figure("disk_memory_bytes", help, Kind::Gauge, Unit::Bytes, bytes));
        figures
    }

    pub(super) fn of(transactions: &Transactions) -> Status {
        let s = &transactions.storage;
        let (f, recovery) = (&s.figures, &s.recovery_figures);
        let store = s.store.stats();
        let locks = transactions.locks.stats();
        let staging = transactions.staging.figures();
        let oldest = SnapshotInfo::oldest(transactions);
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
            buffer_pool_pages_dirty_max: s.dirty.limit(),
            pages_written_deadline: f.written_for_deadline.load(Relaxed),
            pages_written_dirty_limit: f.written_for_dirty_limit.load(Relaxed),
            pages_written_free_frames: f.written_for_frames.load(Relaxed),
            pages_written_checkpoint: f.written_for_checkpoint.load(Relaxed),
            pages_written_shutdown: f.written_for_shutdown.load(Relaxed),
            pages_read: f.pages_loaded.load(Relaxed),
            pages_read_ahead: f.pages_read_ahead.load(Relaxed),
            pages_evicted: f.evicted.load(Relaxed),
            page_bytes_uncompressed: store.page_bytes_in,
            page_bytes_written: store.page_bytes_out,
            backup_bytes_left: f.backup_bytes_left.load(Relaxed),
            backups_made: f.backups_made.load(Relaxed),
            backups_failed: f.backups_failed.load(Relaxed),
            checkpoints: f.checkpoints.load(Relaxed),
            log_waits: f.log_waits.count(),
            log_wait_us: f.log_waits.us(),
            log_waiting: s.gate.waiting(Cause::Log),
            admission_waits: f.admission_waits.count(),
            admission_wait_us: f.admission_waits.us(),
            admission_waiting: s.gate.waiting(Cause::Pace),
            dirty_limit_waits: f.dirty_limit_waits.count(),
            dirty_limit_wait_us: f.dirty_limit_waits.us(),
            dirty_limit_waiting: s.gate.waiting(Cause::DirtyLimit),
            flush_rate_target: f.flush_rate_target.load(Relaxed),
            device_pages_per_second: f.device_pages_per_second.load(Relaxed),
            log_rate_max: f.log_rate_max.load(Relaxed),
            buffer_pool_wait_free: f.frame_waits.load(Relaxed),
            transactions_committed: transactions.now(),
            transactions_rolled_back: transactions.figures.rollbacks.load(Relaxed),
            history_list_length: transactions.history_len(),
            oldest_snapshot_age_us: oldest.map_or(0, |oldest| oldest.age.as_micros() as u64),
            oldest_snapshot_unseen_commits: oldest.map_or(0, |oldest| oldest.unseen_commits),
            purged_records: transactions.figures.purged.load(Relaxed),
            purged_records_damaged: transactions.figures.purged_damaged.load(Relaxed),
            purge_waits: transactions.pace.waits.count(),
            purge_wait_us: transactions.pace.waits.us(),
            staged_entries: staging.staged,
            staging_pages: staging.leaves,
            staged_entries_moved: staging.moved,
            staging_moves: staging.moves,
            staging_waits: staging.waits,
            staging_wait_us: staging.wait_us,
            row_lock_waits: locks.waits,
            row_lock_time_us: locks.wait_time_us,
            deadlocks: locks.deadlocks,
            data_file_bytes: store.file_bytes,
            data_used_bytes: store.used_units * weir_store::UNIT as u64,
            pages_allocated: store.pages_allocated,
            disk: s.disk.stats(),
            recovery_log_bytes: recovery.log_bytes.load(Relaxed),
            recovery_log_bytes_left: recovery.left_bytes.load(Relaxed),
            recovery_transactions_left: transactions.losers() as u64,
            recovered_records: recovery.applied.load(Relaxed),
            recovered_pages_on_demand: recovery.on_demand.load(Relaxed),
            recovery_pages_given_up: recovery.given_up.load(Relaxed),
            recovery_transactions_half_done: recovery.half_done.load(Relaxed),
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
    /// How long ago it wrote first; since the opening of the database for one that was prepared
    /// before.
    pub age: Duration,
    /// Whom it waits for.
    pub waiting_for: Vec<weir_page::TxnId>,
}

impl TransactionInfo {
    pub(super) fn all(transactions: &Transactions) -> Vec<TransactionInfo> {
        let locks = transactions.locks.describe();
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
        let mut all: Vec<_> = transactions.running().into_iter().map(info).collect();
        all.sort_by_key(|info| info.id);
        all
    }
}

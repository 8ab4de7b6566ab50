//! Counters of the storage layer.

use super::gate::Cause;
use super::write::Reason;
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Somebody had to wait: how often, how long.
#[derive(Debug, Default)]
pub struct Waits {
    count: AtomicU64,
    us: AtomicU64,
}

impl Waits {
    /// How often.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// How long, in microseconds.
    pub fn us(&self) -> u64 {
        self.us.load(Relaxed)
    }

    /// A wait that has begun then has ended.
    pub fn ended(&self, started: Instant) {
        self.count.fetch_add(1, Relaxed);
        self.us.fetch_add(started.elapsed().as_micros() as u64, Relaxed);
    }
}

/// Counted since the database was opened.
#[derive(Debug, Default)]
pub struct Figures {
    /// Pages that became dirty.
    pub dirtied: CachePadded<AtomicU64>,
    /// Pages written because the log needed their space.
    pub written_for_deadline: AtomicU64,
    /// Pages written because too many were dirty.
    pub written_for_dirty_limit: AtomicU64,
    /// Pages written to free frames.
    pub written_for_frames: AtomicU64,
    /// Pages written because somebody asked for a checkpoint.
    pub written_for_checkpoint: AtomicU64,
    /// Pages written at shutdown.
    pub written_for_shutdown: AtomicU64,
    /// Pages read because somebody needed them.
    pub pages_loaded: AtomicU64,
    /// Pages read several at once, by who waited for them or by the threads that read ahead.
    pub pages_read_ahead: AtomicU64,
    /// Pages dropped from memory.
    pub evicted: AtomicU64,
    /// Checkpoints.
    pub checkpoints: AtomicU64,
    /// Bytes of files that a backup has still to go through.
    pub backup_bytes_left: AtomicU64,
    /// Backups that were made.
    pub backups_made: AtomicU64,
    /// Backups that failed or were given up.
    pub backups_failed: AtomicU64,
    /// Writers that had to wait for log space.
    pub log_waits: Waits,
    /// Writers that were paced.
    pub admission_waits: Waits,
    /// Writers that waited because too many pages were dirty.
    pub dirty_limit_waits: Waits,
    /// How often somebody found no free frame.
    pub frame_waits: AtomicU64,
    /// Pages per second that the governor asks for.
    pub flush_rate_target: AtomicU64,
    /// Pages per second that the device has been seen to write.
    pub device_pages_per_second: AtomicU64,
    /// Bytes of log per second that writers may use; 0 while they are not held back.
    pub log_rate_max: AtomicU64,
}

impl Figures {
    pub(super) fn waits(&self, cause: Cause) -> &Waits {
        match cause {
            Cause::Log => &self.log_waits,
            Cause::Pace => &self.admission_waits,
            Cause::DirtyLimit => &self.dirty_limit_waits,
        }
    }

    pub(super) fn count_written(&self, reason: Reason, pages: usize) {
        let counter = match reason {
            Reason::Deadline => &self.written_for_deadline,
            Reason::DirtyLimit => &self.written_for_dirty_limit,
            Reason::FreeFrames => &self.written_for_frames,
            Reason::Checkpoint => &self.written_for_checkpoint,
            Reason::Shutdown => &self.written_for_shutdown,
        };
        counter.fetch_add(pages as u64, Relaxed);
    }
}

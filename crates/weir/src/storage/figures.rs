//! Counters of the storage layer.

use super::write::Reason;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// Counted since the database was opened.
#[derive(Debug, Default)]
pub struct Figures {
    /// Pages written because the log needed their space.
    pub written_for_deadline: AtomicU64,
    /// Pages written to free frames.
    pub written_for_frames: AtomicU64,
    /// Pages written at shutdown.
    pub written_for_shutdown: AtomicU64,
    /// Pages read because somebody needed them.
    pub pages_loaded: AtomicU64,
    /// Pages read ahead.
    pub pages_read_ahead: AtomicU64,
    /// Pages dropped from memory.
    pub evicted: AtomicU64,
    /// Checkpoints.
    pub checkpoints: AtomicU64,
    /// How often somebody had to wait for log space.
    pub log_waits: AtomicU64,
    /// How long, in microseconds.
    pub log_wait_us: AtomicU64,
    /// How often somebody found no free frame.
    pub frame_waits: AtomicU64,
}

impl Figures {
    pub(super) fn count_written(&self, reason: Reason, pages: usize) {
        let counter = match reason {
            Reason::Deadline => &self.written_for_deadline,
            Reason::FreeFrames => &self.written_for_frames,
            Reason::Shutdown => &self.written_for_shutdown,
        };
        counter.fetch_add(pages as u64, Relaxed);
    }

    pub(super) fn wait_started(&self) -> Instant {
        Instant::now()
    }

    pub(super) fn log_wait_ended(&self, started: Instant) {
        self.log_waits.fetch_add(1, Relaxed);
        self.log_wait_us.fetch_add(started.elapsed().as_micros() as u64, Relaxed);
    }
}

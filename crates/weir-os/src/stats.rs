//! Counters of a disk's operations.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Operations and bytes of a disk since it was opened. An operation counts when it is tried.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs of files and of the directory.
    pub syncs: u64,
    /// Bytes asked for by reads.
    pub read_bytes: u64,
    /// Bytes given by writes.
    pub write_bytes: u64,
    /// Time that the device was at work, in microseconds; 0 from disks that don't know.
    pub busy_us: u64,
    /// Bytes that the disk itself keeps in memory now; 0 from disks that keep nothing there.
    pub memory_bytes: u64,
}

/// The counters behind [`DiskStats`], for disks without a lock of their own; on cache lines of
/// their own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    reads: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    read_bytes: AtomicU64,
    write_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn count(&self, batch: &[crate::Io]) {
        let mut sum = DiskStats::default();
        for op in batch {
            let bytes = op.buf().len() as u64;
            match op {
                crate::Io::Read { .. } => {
                    sum.reads += 1;
                    sum.read_bytes += bytes;
                }
                crate::Io::Write { .. } => {
                    sum.writes += 1;
                    sum.write_bytes += bytes;
                }
            }
        }
        if sum.reads > 0 {
            self.reads.fetch_add(sum.reads, Relaxed);
            self.read_bytes.fetch_add(sum.read_bytes, Relaxed);
        }
        if sum.writes > 0 {
            self.writes.fetch_add(sum.writes, Relaxed);
            self.write_bytes.fetch_add(sum.write_bytes, Relaxed);
        }
    }

    pub(crate) fn count_sync(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }

    pub(crate) fn get(&self) -> DiskStats {
        DiskStats {
            reads: self.reads.load(Relaxed),
            writes: self.writes.load(Relaxed),
            syncs: self.syncs.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            write_bytes: self.write_bytes.load(Relaxed),
            busy_us: 0,
            memory_bytes: 0,
        }
    }
}

//! What can go wrong with the log, and where.

use weir_os::DiskError;
use weir_page::Lsn;

use crate::reader::EndReason;

/// Why an operation on the redo log failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RedoError {
    /// The disk failed. When this came from writing, the log is poisoned from now on.
    #[error("redo log: {0}")]
    Disk(#[from] DiskError),
    /// An earlier write or sync failed, so nothing more is written and nothing more becomes
    /// durable. What was durable before is kept: repair the device, then restart.
    #[error(
        "redo log stopped after its first failure ({cause}); restart once the device is repaired"
    )]
    Poisoned {
        /// The first failure.
        cause: DiskError,
    },
    /// A log of that capacity doesn't fit on the device.
    #[error(
        "no space for a redo log of {capacity_bytes} bytes: {directory} has {free_bytes} bytes free, \
         {needed_bytes} more are needed; nothing was changed"
    )]
    NoSpace {
        /// The capacity.
        capacity_bytes: u64,
        /// The directory.
        directory: String,
        /// What is free.
        free_bytes: u64,
        /// What its files take in addition.
        needed_bytes: u64,
    },
    /// The options can't be used.
    #[error("redo log options: {what}")]
    Options {
        /// What is wrong with them.
        what: String,
    },
    /// A log is to be created where there is one.
    #[error("a redo log exists already: {file}")]
    Exists {
        /// One of its files.
        file: String,
    },
    /// There is no segment file at all.
    #[error("no redo log in {directory}")]
    NoLog {
        /// Where it was looked for.
        directory: String,
    },
    /// A segment that recovery needs is not there.
    #[error(
        "{file}: this redo segment, which holds LSN {lsn}, is missing; the checkpoint in `control` \
         needs it. Nothing was changed: restore it, or `control` if that has lost a newer checkpoint \
         (its newer half is damaged, or it is older than the log)"
    )]
    SegmentMissing {
        /// The file's name.
        file: String,
        /// The first needed LSN in it.
        lsn: Lsn,
    },
    /// A file does not begin as a segment does.
    #[error(
        "{file} at offset {offset}: not a redo segment (expected {expected:#x}, found {found:#x})"
    )]
    BadMagic {
        /// The file's name.
        file: String,
        /// Byte offset in it.
        offset: u64,
        /// What a segment has there.
        expected: u64,
        /// What is there.
        found: u64,
    },
    /// A segment header's checksum is wrong.
    #[error(
        "{file} at offset {offset}: bad checksum of the segment header \
         (expected {expected:#010x}, found {found:#010x})"
    )]
    HeaderChecksum {
        /// The file's name.
        file: String,
        /// Byte offset of the checksum.
        offset: u64,
        /// The checksum of the bytes.
        expected: u32,
        /// The stored checksum.
        found: u32,
    },
    /// The log was written by a newer release.
    #[error(
        "{file} at offset {offset}: redo format version {found}, newer than {expected} known here: \
         upgrade Weir"
    )]
    NewerVersion {
        /// The file's name.
        file: String,
        /// Byte offset of the version.
        offset: u64,
        /// The newest version known.
        expected: u32,
        /// The version found.
        found: u32,
    },
    /// The segment belongs to another database.
    #[error(
        "{file} at offset {offset}: redo of another database \
         (expected id {expected:#018x}, found {found:#018x})"
    )]
    WrongDatabase {
        /// The file's name.
        file: String,
        /// Byte offset of the id.
        offset: u64,
        /// This database's id.
        expected: u64,
        /// The id found.
        found: u64,
    },
    /// A header field has an impossible value, or does not fit the file's name.
    #[error("{file} at offset {offset}: {field} is {found}, expected {expected}")]
    BadHeader {
        /// The file's name.
        file: String,
        /// Byte offset of the field.
        offset: u64,
        /// The field.
        field: &'static str,
        /// What it should be.
        expected: u64,
        /// What it is.
        found: u64,
    },
    /// The log ends before a position that is known to have been durable: bytes were lost or
    /// damaged.
    #[error(
        "{file} at offset {offset}: the redo log ends at LSN {lsn} ({why}), \
         but it was durable up to {expected_at_least}: bytes were lost or damaged there. Nothing was \
         changed: restore the file"
    )]
    Cut {
        /// The file in which it ends.
        file: String,
        /// Byte offset in it.
        offset: u64,
        /// Where it ends.
        lsn: Lsn,
        /// The position that was durable.
        expected_at_least: Lsn,
        /// What was found there.
        why: EndReason,
    },
}

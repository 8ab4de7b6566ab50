//! Files and clocks: the only crate that makes system calls.
//!
//! A [`Disk`] is one database directory. Every form (io_uring, thread pool, in memory, simulated,
//! throttled) implements the same two traits, so every layer above runs unchanged on each.
//!
//! | form | made by | for |
//! |---|---|---|
//! | real directory | [`open_directory`] | use: io_uring, or threads where the kernel refuses it |
//! | [`MemoryDisk`] | [`MemoryDisk::new`], [`open_read_only`] | databases in memory, and those that are only read |
//! | [`SimDisk`] | [`SimDisk::new`] | tests: power cuts, faults, all by seed |
//! | [`ThrottledDisk`] | [`ThrottledDisk::new`] | measuring: any of them, made slow |
//!
//! Beside them: [`Clock`]s real and simulated, [`Region`]s of memory for the buffer pool, and what
//! the [`process`] uses; and [`Blocked`], for whoever runs threads.

mod blocking;
mod buf;
mod check;
mod clock;
mod directory;
mod guard;
mod memory;
mod pool;
pub mod process;
mod region;
pub mod sim;
mod stats;
pub mod throttle;
mod uring;

use std::io;
use std::sync::Arc;

pub use blocking::{Blocked, BlockingObserver, observe_blocking};
pub use buf::AlignedBuf;
use check::{LOCK_NAME, check_aligned, check_name, check_punch};
pub use clock::{Clock, RealClock, SimClock};
pub use directory::{Backend, open_directory};
pub use memory::{MemoryDisk, open_read_only};
pub use region::{REGION_ALIGN, Region};
pub use sim::SimDisk;
pub use stats::DiskStats;
pub use throttle::ThrottledDisk;

/// Alignment of offsets and lengths for direct I/O, in bytes.
pub const BLOCK: usize = 4096;

/// What went wrong with a file, and where.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{operation} of {file}{}: {source}", at(*.offset))]
pub struct DiskError {
    /// What was tried: `read`, `write`, `sync`, `open`, ...
    pub operation: &'static str,
    /// Path of the file as the operator knows it.
    pub file: String,
    /// Byte offset in the file, where there is one.
    pub offset: Option<u64>,
    /// The system's reason.
    #[source]
    pub source: Arc<io::Error>,
}

impl DiskError {
    /// An error of `operation` on `file`.
    pub fn new(operation: &'static str, file: &str, source: io::Error) -> Self {
        DiskError { operation, file: file.to_string(), offset: None, source: Arc::new(source) }
    }

    /// It was at this offset.
    #[must_use]
    pub fn at(self, offset: u64) -> Self {
        DiskError { offset: Some(offset), ..self }
    }

    /// The kind of the system's reason. No space is `StorageFull`, whatever has none: device,
    /// quota, or file.
    pub fn kind(&self) -> io::ErrorKind {
        kind_of(&self.source)
    }

    /// Whether who makes a file for later may go on without it. One that can't be opened is there
    /// or not: the process may have too many. A failed sync is never passed over, whatever its
    /// reason.
    pub fn may_be_passed_over(&self) -> bool {
        let is_full = self.kind() == io::ErrorKind::StorageFull;
        self.operation == "open" || is_full && !self.operation.contains("sync")
    }
}

fn at(offset: Option<u64>) -> String {
    offset.map_or_else(String::new, |offset| format!(" at offset {offset}"))
}

fn kind_of(error: &io::Error) -> io::ErrorKind {
    match error.kind() {
        io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => io::ErrorKind::StorageFull,
        kind => kind,
    }
}

/// Result of a disk operation.
pub type Result<T> = std::result::Result<T, DiskError>;

/// Whether `open` may or must create the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Create {
    /// The file must exist.
    No,
    /// The file is created when absent.
    IfAbsent,
    /// The file must be absent; it is created empty.
    New,
}

/// How a file is read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Past the page cache (O_DIRECT) where the file system allows it; offsets and lengths are
    /// multiples of [`BLOCK`].
    Direct,
    /// Through the page cache; any offset and length.
    Cached,
}

/// One read or write of a batch. Buffers are owned while the operation runs and come back with the
/// batch.
#[derive(Debug)]
pub enum Io {
    /// Fill `buf` wholly from `offset`; reading past the end is an `UnexpectedEof` error.
    Read {
        /// Byte offset in the file.
        offset: u64,
        /// Where the bytes go.
        buf: AlignedBuf,
    },
    /// Write `buf` wholly at `offset`.
    Write {
        /// Byte offset in the file.
        offset: u64,
        /// The bytes.
        buf: AlignedBuf,
    },
}

impl Io {
    /// Byte offset in the file.
    pub fn offset(&self) -> u64 {
        match self {
            Io::Read { offset, .. } | Io::Write { offset, .. } => *offset,
        }
    }

    /// The buffer.
    pub fn buf(&self) -> &AlignedBuf {
        match self {
            Io::Read { buf, .. } | Io::Write { buf, .. } => buf,
        }
    }

    /// The buffer, without the operation.
    pub fn into_buf(self) -> AlignedBuf {
        match self {
            Io::Read { buf, .. } | Io::Write { buf, .. } => buf,
        }
    }

    /// `read` or `write`, as errors name it.
    pub fn name(&self) -> &'static str {
        match self {
            Io::Read { .. } => "read",
            Io::Write { .. } => "write",
        }
    }
}

/// One database directory. Names are plain file names without separators.
pub trait Disk: Send + Sync {
    /// Opens or creates a file. The name is durable only after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists`, `PermissionDenied` and whatever the system says; nothing
    /// changed.
    fn open(&self, name: &str, create: Create, mode: Mode) -> Result<Arc<dyn File>>;
    /// Removes a file's name; durable after [`Disk::sync_dir`].
    fn remove(&self, name: &str) -> Result<()>;
    /// Renames a file, replacing the target; durable after [`Disk::sync_dir`].
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Names of all files, sorted.
    fn list(&self) -> Result<Vec<String>>;
    /// Makes creations, removals and renames durable.
    fn sync_dir(&self) -> Result<()>;
    /// Bytes that files may still take, as far as the system tells: others use the device, too, and
    /// a user may have a quota.
    fn free_bytes(&self) -> Result<u64>;
    /// Takes the directory's lock for as long as the returned guard lives.
    ///
    /// # Errors
    /// `WouldBlock` when another process (or another `Disk` of this process) holds it.
    fn lock(&self) -> Result<Box<dyn Send + Sync>>;
    /// What this disk is, for status and messages: e.g. `io_uring, O_DIRECT: /var/lib/x`.
    fn describe(&self) -> String;
    /// Where it is, for messages that say what to do there: a path, if it has one.
    fn place(&self) -> String {
        self.describe()
    }
    /// Operations and bytes since the disk was opened.
    fn stats(&self) -> DiskStats {
        DiskStats::default()
    }
}

/// One open file. All methods may be called from many threads at once.
pub trait File: Send + Sync {
    /// Runs a batch, all of it in flight together, and returns when every operation is done.
    /// The buffers come back in the order given.
    ///
    /// # Errors
    /// The first error in batch order; the outcome of the other writes is then unknown.
    fn run(&self, batch: Vec<Io>) -> Result<Vec<AlignedBuf>>;
    /// Length in bytes.
    fn len(&self) -> Result<u64>;
    /// Sets the length; growth reads as zeros and is backed by allocated space where the system
    /// can. Durable after [`File::sync`].
    ///
    /// # Errors
    /// `StorageFull` when the space can't be had; the length is then unchanged.
    fn set_len(&self, bytes: u64) -> Result<()>;
    /// Gives the space of a block-aligned range back to the file system; it reads as zeros
    /// afterwards. Where the file system can't take it, nothing happens.
    fn punch(&self, offset: u64, bytes: u64) -> Result<()>;
    /// Makes all completed writes and the length durable. After an error the file's state is
    /// unknown: never retry.
    fn sync(&self) -> Result<()>;
    /// Tells the system that nobody is about to read a block-aligned range: what of it is durable
    /// need not be kept in memory. Disks that keep nothing there ignore it.
    fn forget(&self, offset: u64, bytes: u64);
    /// The name, as an operator would know it (with directory).
    fn name(&self) -> &str;
    /// The same open file, once [`Disk::rename`] has given it that name: what it says names it so.
    fn renamed(&self, name: &str) -> Arc<dyn File>;

    /// Reads `buf.len()` bytes at `offset`.
    fn read(&self, offset: u64, buf: AlignedBuf) -> Result<AlignedBuf> {
        Ok(self.run(vec![Io::Read { offset, buf }])?.pop().expect("a batch returns its buffers"))
    }
    /// Writes `buf` at `offset`.
    fn write(&self, offset: u64, buf: AlignedBuf) -> Result<AlignedBuf> {
        Ok(self.run(vec![Io::Write { offset, buf }])?.pop().expect("a batch returns its buffers"))
    }
    /// Whether the file is empty.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}

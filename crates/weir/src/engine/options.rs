//! How to open a database.

use super::error::{Error, Result};
use crate::storage::pool::FRAMES_MAX;
use crate::storage::{OnProgress, PolicyMaker, Progress, REDO_CAPACITY, StorageOptions};
use crate::txn::Durability;
use std::sync::Arc;
use std::time::Duration;
use weir_os::Backend;
use weir_page::PAGE_SIZE;
use weir_redo::RedoOptions;
use weir_status::Address;
use weir_store::Compression;

/// How to open a database. Only three numbers matter: memory, redo capacity, durability.
///
/// ```
/// use weir::{Durability, Options};
/// let options = Options::default()
///     .memory_bytes(64 << 20)
///     .redo_capacity_bytes(256 << 20)
///     .durability(Durability::Write);
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(super) memory_bytes: u64,
    pub(super) redo_capacity_bytes: u64,
    /// Whether nobody has asked for a capacity.
    pub(super) keep_redo_capacity: bool,
    pub(super) dirty_limit: f64,
    pub(super) durability: Durability,
    pub(super) compression: Compression,
    pub(super) backend: Backend,
    pub(super) create: bool,
    pub(super) read_only: bool,
    pub(super) give_up_damaged: bool,
    pub(super) lock_wait_timeout: Duration,
    pub(super) inline: bool,
    pub(super) policy: PolicyMaker,
    pub(super) staging: bool,
    pub(super) staging_leaves: Option<usize>,
    pub(super) staging_eager: bool,
    pub(super) on_progress: OnProgress,
    pub(super) status_listen: Option<Address>,
}

impl Default for Options {
    /// 128 MiB of memory, 512 MiB of redo for a new database, commits durable on the device, LZ4.
    fn default() -> Self {
        Options {
            memory_bytes: 128 << 20,
            redo_capacity_bytes: 512 << 20,
            keep_redo_capacity: true,
            dirty_limit: 0.9,
            durability: Durability::Sync,
            compression: Compression::Lz4,
            backend: Backend::Auto,
            create: true,
            read_only: false,
            give_up_damaged: false,
            lock_wait_timeout: Duration::from_secs(50),
            inline: false,
            policy: PolicyMaker::default(),
            staging: true,
            staging_leaves: None,
            staging_eager: false,
            on_progress: OnProgress::default(),
            status_listen: None,
        }
    }
}

/// Memory for what isn't frames: buffers of the page writer, tables, the map.
fn overhead_bytes(memory: u64) -> u64 {
    let fixed = if memory >= 64 << 20 { 12 << 20 } else { 0 };
    (memory / 8).min(40 << 20) + fixed
}

/// Whether a redo capacity makes sense.
pub(super) fn check_redo_capacity(bytes: u64) -> Result<()> {
    let option = "redo_capacity_bytes";
    let (least, most) = REDO_CAPACITY;
    if bytes < least {
        return Err(Error::Options { option, what: format!("{bytes} is below 1 MiB") });
    }
    if bytes > most {
        return Err(Error::Options { option, what: format!("{bytes} is above 16 TiB") });
    }
    Ok(())
}

/// Whether a share of memory makes sense as a limit.
pub(super) fn check_dirty_limit(share: f64) -> Result<()> {
    if !(0.0..=1.0).contains(&share) {
        let what = format!("{share} is not from 0.0 to 1.0");
        return Err(Error::Options { option: "dirty_limit", what });
    }
    Ok(())
}

impl Options {
    /// All memory that the database may use, in bytes; at least 2 MiB, 128 MiB by default.
    pub fn memory_bytes(self, memory_bytes: u64) -> Self {
        Options { memory_bytes, ..self }
    }

    /// Redo capacity in bytes; at least 1 MiB. A larger log means fewer page writes; its files take
    /// that much of the device from the start. Without this, a new database gets 512 MiB, and one
    /// that exists keeps the capacity that it has. Its files are all open: some dozens, or up to
    /// 513 of a log of more than 4 GiB, and a few more after it was made longer.
    pub fn redo_capacity_bytes(self, redo_capacity_bytes: u64) -> Self {
        Options { redo_capacity_bytes, keep_redo_capacity: false, ..self }
    }

    /// Share of the frames in memory whose pages may have unwritten changes, from 0.0 to 1.0 but
    /// never fewer than 16 pages; 0.9 by default. It is never exceeded: at the limit writers wait,
    /// in order, for pages to be written. A lower one costs page writes and needs no setting for
    /// even throughput.
    pub fn dirty_limit(self, share: f64) -> Self {
        Options { dirty_limit: share, ..self }
    }

    /// When a commit returns: by default once it is on the device.
    pub fn durability(self, durability: Durability) -> Self {
        Options { durability, ..self }
    }

    /// How page images are compressed; LZ4 by default.
    pub fn compression(self, compression: Compression) -> Self {
        Options { compression, ..self }
    }

    /// How files are read and written.
    pub fn backend(self, backend: Backend) -> Self {
        Options { backend, ..self }
    }

    /// Whether a database is created where there is none; yes by default.
    pub fn create(self, create: bool) -> Self {
        Options { create, ..self }
    }

    /// Whether the database is opened to be read only; no by default. Nothing in its directory
    /// changes, nor a file's times but that of its last access, and the process needs no right to
    /// write there. Who tries to write gets [`Error::ReadOnly`]; backups can be made. Several
    /// processes may have a database open so at once, but none while one has it open to write.
    ///
    /// After a crash, or a close that wasn't clean, there is something to recover: what that writes
    /// is kept in memory beyond [`Options::memory_bytes`], and is gone at the close. It is little
    /// if `memory_bytes` is what the process had that wrote to the database last. If it is less, it
    /// may be as much as that process's memory, 64 MiB and the redo capacity, and, if a large
    /// transaction was running, the pages that it had changed, for it is taken back.
    /// `Status::disk.memory_bytes` tells how much it is.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use weir::{Database, Error, Options, Schema, Type};
    /// let options = Options::default().memory_bytes(8 << 20);
    /// let schema = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build()?;
    /// Database::open(dir.path(), options.clone())?.create_table("numbers", schema)?;
    ///
    /// let db = Database::open(dir.path(), options.read_only(true))?;
    /// let numbers = db.table("numbers").expect("it was made");
    /// assert!(matches!(db.drop_table(&numbers), Err(Error::ReadOnly)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_only(self, read_only: bool) -> Self {
        Options { read_only, ..self }
    }

    /// Whether a database is made where there is none.
    pub(super) fn may_create(&self) -> bool {
        self.create && !self.read_only
    }

    /// For a database in memory: there is nothing that a commit could be made durable on, and the
    /// log takes memory, too.
    pub(super) fn in_memory(self) -> Self {
        let redo_capacity_bytes = match self.keep_redo_capacity {
            true => (self.memory_bytes / 2).clamp(16 << 20, 512 << 20),
            false => self.redo_capacity_bytes,
        };
        Options { create: true, durability: Durability::Relaxed, redo_capacity_bytes, ..self }
    }

    /// Whether recovery gives damaged pages up, for good; no by default. A page that is damaged and
    /// that the log has changes for stops the database otherwise, each time it is opened, for the
    /// sake of who can bring back the file. Given up, the page is emptied: what was on it is lost,
    /// who needs it is told that it is damaged, and all else can be read. A transaction that was
    /// running, or prepared, and that can't be taken back whole, is left as it is: half done.
    /// [`super::Status::recovery_pages_given_up`] and `recovery_transactions_half_done` tell how
    /// many there were; [`super::Database::check`] finds the pages. The open returns when all of
    /// the log is applied and written; cut short, it is to be repeated.
    pub fn give_up_damaged(self, give_up_damaged: bool) -> Self {
        Options { give_up_damaged, ..self }
    }

    /// How long to wait for a locked row; 50 s by default.
    pub fn lock_wait_timeout(self, lock_wait_timeout: Duration) -> Self {
        Options { lock_wait_timeout, ..self }
    }

    /// Whether inserts into secondary indexes that would have to read a leaf are staged, to be
    /// moved with others later; on by default. Off is for comparisons.
    pub fn staging(self, staging: bool) -> Self {
        Options { staging, ..self }
    }

    /// Leaves that staged entries may fill before they are moved, for tests; by default a quarter
    /// of the memory. Most entries are staged then, also those whose leaf is in memory.
    #[doc(hidden)]
    pub fn staging_leaves(self, leaves: usize) -> Self {
        Options { staging_leaves: Some(leaves), staging_eager: true, ..self }
    }

    /// Is told of the progress of recovery: now and then while the log is read for its end, by the
    /// thread that opens the database; then, while the database is open, by a thread of its own,
    /// until all of the log is applied.
    pub fn on_progress(self, on_progress: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Options { on_progress: OnProgress(Some(Arc::new(on_progress))), ..self }
    }

    /// Gives the figures of the open database to whoever asks at this address, in Prometheus' text
    /// format: `http://ADDRESS/metrics`, or the same on a Unix socket; see [`Address`]. Nobody has
    /// to authenticate. With port 0, [`super::Database::status_address`] tells which one was found.
    ///
    /// ```
    /// use weir::{Options, StatusAddress};
    /// let options = Options::default().status_listen(StatusAddress::loopback(9104));
    /// ```
    pub fn status_listen(self, address: impl Into<Address>) -> Self {
        Options { status_listen: Some(address.into()), ..self }
    }

    /// What decides when pages are written, instead of the governor. For experiments only: others
    /// stall writers, or write more, or both.
    #[doc(hidden)]
    pub fn flush_policy(
        self,
        make: impl Fn() -> Box<dyn weir_governor::Policy + Send> + Send + Sync + 'static,
    ) -> Self {
        Options { policy: PolicyMaker(Arc::new(make)), ..self }
    }

    /// Starts no threads: whoever has to wait does the background work itself. For simulation: one
    /// thread, deterministic; see [`super::Database::background_step`].
    pub fn single_threaded(self) -> Self {
        Options { inline: true, ..self }
    }

    fn log_buffer_bytes(&self) -> usize {
        let wanted = (self.memory_bytes / 32).min(self.redo_capacity_bytes / 2);
        let power = 1usize << wanted.max(1).ilog2();
        power.clamp(256 << 10, 16 << 20)
    }

    pub(super) fn storage(&self, database_id: u64) -> Result<StorageOptions> {
        let refuse = |option, what: String| Err(Error::Options { option, what });
        if self.memory_bytes < 2 << 20 {
            return refuse("memory_bytes", format!("{} is below 2 MiB", self.memory_bytes));
        }
        check_redo_capacity(self.redo_capacity_bytes)?;
        check_dirty_limit(self.dirty_limit)?;
        let log_buffer = self.log_buffer_bytes();
        let for_frames = self.memory_bytes - log_buffer as u64 - overhead_bytes(self.memory_bytes);
        let frames = for_frames / (PAGE_SIZE as u64 + 128);
        if frames > FRAMES_MAX as u64 {
            return refuse("memory_bytes", format!("{} is above 32 TiB", self.memory_bytes));
        }
        Ok(StorageOptions {
            frames: frames as usize,
            redo: RedoOptions {
                capacity_bytes: self.redo_capacity_bytes,
                segment_bytes: weir_redo::segment_bytes_of(self.redo_capacity_bytes),
                buffer_bytes: log_buffer,
                database_id,
            },
            dirty_limit: self.dirty_limit,
            keep_redo_capacity: self.keep_redo_capacity,
            compression: self.compression,
            give_up_damaged: self.give_up_damaged,
            inline: self.inline,
            policy: self.policy.clone(),
        })
    }
}

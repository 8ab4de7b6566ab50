//! Pages that change atomically and survive: the log, the page store and the pool put together.
//!
//! [`Storage::mtr`] begins a mini-transaction; [`Storage::read`] latches a page for reading;
//! [`Storage::load`] brings a page into memory. Who must wait (for log space, for a frame) does so
//! here, holding no latch: with background threads by waiting for them, in order (`gate`), without
//! (simulation, tests) by doing their steps itself.

mod ahead;
mod background;
mod checkpoint;
mod cold;
mod compact;
mod dirty;
mod evict;
mod figures;
mod flush;
mod free;
mod gate;
pub mod latch;
pub mod mtr;
pub mod pool;
mod regulator;
pub mod replay;
mod signal;
mod spare;
mod write;
mod writers;

pub use background::Background;
pub use dirty::{PER_MTR, on_reserve};
pub use figures::{Figures, Waits};
pub use gate::Cause;
pub use mtr::{Mtr, Need, Restart, retry};
pub use pool::{PageRead, Stop};
pub use signal::{Rests, Signal, Step};
pub use write::Reason;

use ahead::Ahead;
use crossbeam_epoch as epoch;
use dirty::{DirtyCredits, Reserved};
use flush::FlushList;
use gate::Gate;
use parking_lot::Mutex;
use pool::Pool;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use weir_governor::{Governor, Policy};
use weir_os::{Create, Disk, DiskError};
use weir_page::{Lsn, PageId, TxnId};
use weir_redo::{Admission, Credit, Redo, RedoError, RedoOptions, Refused};
use weir_store::{Compression, Control, Store, StoreError, StoreOptions};

/// What stops an operation that is nobody's mistake: the world, or a bug in what is stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The page store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log.
    #[error(transparent)]
    Redo(#[from] RedoError),
    /// A page's contents make no sense though its checksum is right.
    #[error("page {page}: {what}")]
    Page {
        /// The page.
        page: PageId,
        /// What is wrong.
        what: String,
    },
    /// A log record makes no sense though its checksum is right.
    #[error("redo record at LSN {lsn}: {what}")]
    Record {
        /// The group.
        lsn: Lsn,
        /// What is wrong.
        what: String,
    },
    /// The log is full and the checkpoint can't move.
    #[error("the redo log ({capacity_bytes} bytes) is too small: its checkpoint can't move")]
    LogFull {
        /// Its capacity.
        capacity_bytes: u64,
    },
    /// Every frame is in use by those who wait for one.
    #[error("all {frames} frames are in use at once: give the database more memory")]
    NoFrame {
        /// Their number.
        frames: usize,
    },
    /// There are pages but no control file.
    #[error(
        "{directory}: there are files of a database, but no `control` file; nothing was changed: \
         restore the file, or remove the others to begin anew"
    )]
    Lost {
        /// The directory.
        directory: String,
    },
    /// The database was closed, by this handle or another.
    #[error("the database has been closed; open it again")]
    Closed,
    /// A background thread failed; the database must be opened again.
    #[error(
        "the database has stopped; what was durable is kept: remove the cause and open it again: {0}"
    )]
    Stopped(Arc<Fault>),
}

impl Fault {
    /// A page that makes no sense.
    pub fn page(page: PageId, what: impl Into<String>) -> Fault {
        Fault::Page { page, what: what.into() }
    }

    /// Whether it may go away by itself: no space.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Fault::Store(StoreError::NoSpace { .. }))
    }
}

/// Makes a flush policy.
#[derive(Clone)]
pub struct PolicyMaker(pub Arc<dyn Fn() -> Box<dyn Policy + Send> + Send + Sync>);

impl Default for PolicyMaker {
    /// Makes the governor.
    fn default() -> Self {
        PolicyMaker(Arc::new(|| Box::new(Governor::new())))
    }
}

impl std::fmt::Debug for PolicyMaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&(self.0)().name())
    }
}

/// Sizes and choices of a [`Storage`].
#[derive(Debug, Clone)]
pub struct StorageOptions {
    /// Number of frames.
    pub frames: usize,
    /// The log.
    pub redo: RedoOptions,
    /// Share of the frames whose pages may be dirty.
    pub dirty_limit: f64,
    /// Whether a log that exists keeps the capacity that its control file says.
    pub keep_redo_capacity: bool,
    /// Compression of page images.
    pub compression: Compression,
    /// Whether whoever waits does the background work itself.
    pub inline: bool,
    /// Makes what decides when pages are written; the governor, but for experiments.
    pub policy: PolicyMaker,
}

/// See the module.
pub struct Storage {
    /// The directory.
    pub disk: Arc<dyn Disk>,
    /// Page images.
    pub store: Store,
    /// The log.
    pub redo: Redo,
    /// Frames.
    pub pool: Pool,
    /// Credits for dirty pages.
    pub dirty: DirtyCredits,
    /// Where writers wait.
    pub gate: Gate,
    /// Counters.
    pub figures: Figures,
    /// The next transaction's number; here because checkpoints keep it.
    pub next_txn: AtomicU64,
    database_id: u64,
    inline: bool,
    policy: PolicyMaker,
    /// Set while the data file can't grow.
    full: Mutex<Option<StoreError>>,
    stopped: OnceLock<Arc<Fault>>,
    checkpointing: Mutex<()>,
    /// While the log is replayed: how far.
    replayed: AtomicU64,
    flusher: Signal,
    evictor: Signal,
    /// Dirty pages have been written.
    clean: Signal,
    checkpointer: Signal,
    ahead: Ahead,
    /// A writer can't go on before pages are written.
    pressed: AtomicBool,
    /// Batches written that the governor has not been told of.
    written: Mutex<Vec<writers::Done>>,
    /// Buffers of the page writer, used again.
    copies: Mutex<Vec<Vec<u8>>>,
}

/// A file that is there, durably, while the others of a new database are being made.
const CREATING: &str = "creating";

/// The database is complete, which its control file says, too.
fn forget_creation(disk: &dyn Disk) -> Result<(), Fault> {
    disk.remove(CREATING)?;
    disk.sync_dir()?;
    Ok(())
}

/// Pages that a share of all frames is.
fn dirty_pages_max(frames: usize, share: f64) -> u64 {
    (frames as f64 * share.clamp(0.0, 1.0)) as u64
}

/// Length of the buckets in which dirty pages are counted: the deadlines of those in one are the same to the
/// governor.
fn bucket_bytes(redo_capacity: u64) -> u64 {
    redo_capacity / 512
}

/// What an mtr has been given: space in the log, credits for dirty pages.
pub struct Admitted<'s> {
    credit: Credit<'s>,
    dirty: Reserved<'s>,
}

impl Storage {
    /// Creates an empty store and log, durably.
    ///
    /// # Errors
    /// The disk's; a directory left half made can be created anew.
    pub fn create(disk: Arc<dyn Disk>, options: &StorageOptions) -> Result<Storage, Fault> {
        disk.open(CREATING, Create::IfAbsent, weir_os::Mode::Cached)?;
        disk.sync_dir()?;
        weir_redo::remove_all(&*disk)?;
        let redo = Redo::create(disk.clone(), &options.redo)?;
        let control = Control {
            database_id: options.redo.database_id,
            checkpoint: redo.checkpoint(),
            durable: redo.durable(),
            next_txn_id: TxnId(1),
            next_page_id: PageId(1),
            segment_bytes: redo.segment_bytes(),
            redo_capacity: redo.capacity(),
            clean: false,
        };
        let store_options = StoreOptions { compression: options.compression };
        let store = Store::create(disk.clone(), store_options, &control)?;
        forget_creation(&*disk)?;
        Storage::assemble(disk, store, redo, options, &control)
    }

    /// Whether a database may be created beside files of these names, none of them `control`: there
    /// are none of ours, or a creation was cut short. Files of a database that has lost its control
    /// file are not touched.
    pub fn may_create(names: &[String]) -> bool {
        let ours = |n: &String| {
            ["data", "map", "control.new"].contains(&n.as_str()) || n.starts_with("redo-")
        };
        names.iter().any(|n| n == CREATING) || !names.iter().any(ours)
    }

    fn assemble(
        disk: Arc<dyn Disk>,
        store: Store,
        redo: Redo,
        options: &StorageOptions,
        control: &Control,
    ) -> Result<Storage, Fault> {
        let dirty = DirtyCredits::new(dirty_pages_max(options.frames, options.dirty_limit));
        let flush = FlushList::new(bucket_bytes(redo.capacity()), dirty.limit());
        Ok(Storage {
            pool: Pool::new(options.frames, flush, options.inline)?,
            dirty,
            gate: Gate::default(),
            disk,
            store,
            redo,
            figures: Figures::default(),
            next_txn: AtomicU64::new(control.next_txn_id.0),
            database_id: control.database_id,
            inline: options.inline,
            policy: options.policy.clone(),
            full: Mutex::default(),
            stopped: OnceLock::new(),
            checkpointing: Mutex::default(),
            replayed: AtomicU64::new(u64::MAX),
            flusher: Signal::default(),
            evictor: Signal::default(),
            clean: Signal::default(),
            checkpointer: Signal::default(),
            ahead: Ahead::default(),
            pressed: AtomicBool::new(false),
            written: Mutex::default(),
            copies: Mutex::default(),
        })
    }

    /// Whether nothing was ever logged.
    pub fn is_new(&self) -> bool {
        self.redo.reserved() == self.redo.checkpoint()
            && self.redo.checkpoint().0 == self.redo.segment_bytes()
    }

    /// A page is referred to, but nowhere to be found.
    pub fn lost_page(&self, page: PageId) -> Fault {
        let map = self.store.map_name();
        Fault::page(page, format!("is needed, but {map} says at no offset where it is stored"))
    }

    /// Whether whoever waits does the background work itself.
    pub fn is_inline(&self) -> bool {
        self.inline
    }

    /// Fails once the database has stopped.
    ///
    /// # Errors
    /// [`Fault::Stopped`] with the first cause.
    pub fn check(&self) -> Result<(), Fault> {
        match self.stopped.get() {
            None => Ok(()),
            Some(cause) if matches!(**cause, Fault::Closed) => Err(Fault::Closed),
            Some(cause) => Err(Fault::Stopped(cause.clone())),
        }
    }

    /// Stops the database: a background step failed.
    pub fn stop(&self, fault: Fault) {
        let _ = self.stopped.set(Arc::new(fault));
    }

    /// Begins a mini-transaction, after waiting for log space and frames. Holds no latch yet.
    ///
    /// # Errors
    /// The log has failed; the device is full and nothing frees log space; the database has stopped.
    #[inline]
    pub fn mtr(&self, need: Need) -> Result<Mtr<'_>, Fault> {
        let mut frames = Vec::new();
        while frames.len() < need.pages {
            match self.take_frame() {
                Ok(frame) => frames.push(frame),
                Err(fault) => {
                    self.return_frames(frames);
                    return Err(fault);
                }
            }
        }
        match self.admit(need) {
            Ok(admitted) => Ok(Mtr::new(self, admitted, frames)),
            Err(fault) => {
                self.return_frames(frames);
                Err(fault)
            }
        }
    }

    fn return_frames(&self, frames: Vec<u32>) {
        for frame in frames {
            self.pool.free.push(frame);
        }
    }

    #[inline]
    fn admit(&self, need: Need) -> Result<Admitted<'_>, Fault> {
        if self.gate.is_open(|| self.progress())
            && let Some(dirty) = self.dirty.try_reserve()
            && let Ok(credit) = self.redo.try_admit(need.log_bytes, Admission::User)
        {
            return Ok(Admitted { credit, dirty });
        }
        self.admit_in_turn(need)
    }

    /// What decides when pages are written.
    fn policy(&self) -> Box<dyn Policy + Send> {
        (self.policy.0)()
    }

    /// What writers may be held to.
    fn progress(&self) -> gate::Progress {
        gate::Progress {
            log_end: self.redo.reserved().0,
            dirtied: self.figures.dirtied.load(Ordering::Relaxed),
        }
    }

    /// Waits at the gate for what an mtr needs.
    #[cold]
    fn admit_in_turn(&self, need: Need) -> Result<Admitted<'_>, Fault> {
        let started = Instant::now();
        let turn = self.gate.queue_up();
        let mut cause = turn.queued.then(|| self.gate.last_cause());
        let mut turns = 0;
        let admitted = loop {
            if let Some((delay, why)) = turn.delay(self.progress()) {
                turn.waits_for(*cause.insert(why));
                self.check()?;
                turns += 1;
                self.fail_if_full(turns)?;
                std::thread::sleep(delay.min(Duration::from_millis(5)));
                continue;
            }
            let Some(dirty) = self.dirty.try_reserve() else {
                turn.waits_for(*cause.insert(Cause::DirtyLimit));
                self.relieve_dirty_limit(&mut turns)?;
                continue;
            };
            match self.redo.try_admit(need.log_bytes, Admission::User) {
                Ok(credit) => break Admitted { credit, dirty },
                Err(Refused::Poisoned) => {
                    return Err(self.redo.check().expect_err("poisoned").into());
                }
                Err(refused) => {
                    drop(dirty);
                    turn.waits_for(*cause.insert(Cause::Log));
                    match refused {
                        Refused::Buffer => self.redo.wait_for_space(Duration::from_millis(1)),
                        _ => self.relieve_log(&mut turns)?,
                    }
                }
            }
        };
        drop(turn);
        if let Some(cause) = cause {
            self.figures.waits(cause).ended(started);
        }
        Ok(admitted)
    }

    /// Admission of the page writer itself, which nobody relieves.
    fn admit_writer(&self, bytes: usize) -> Result<Credit<'_>, Fault> {
        for _ in 0..100 {
            match self.redo.try_admit(bytes, Admission::System) {
                Ok(credit) => return Ok(credit),
                Err(Refused::Poisoned) => {
                    return Err(self.redo.check().expect_err("poisoned").into());
                }
                Err(Refused::Buffer) => self.redo.wait_for_space(Duration::from_millis(1)),
                Err(Refused::Capacity) => {
                    self.checkpoint()?;
                }
            }
        }
        Err(Fault::LogFull { capacity_bytes: self.redo.capacity() })
    }

    /// Does, or waits for, what frees log space.
    fn relieve_log(&self, turns: &mut u32) -> Result<(), Fault> {
        self.check()?;
        *turns += 1;
        if self.inline {
            self.flush_step(self.batch_pages())?;
            self.checkpoint()?;
            if *turns > 1000 {
                return Err(Fault::LogFull { capacity_bytes: self.redo.capacity() });
            }
            return Ok(());
        }
        self.press();
        self.redo.wait_for_space(Duration::from_millis(5));
        self.fail_if_full(*turns)
    }

    /// Has pages written whatever the policy says, and the checkpoint moved: a writer waits for it.
    fn press(&self) {
        self.pressed.store(true, Ordering::Relaxed);
        self.flusher.raise();
        self.checkpointer.raise();
    }

    /// Writes, or waits for the writes of, what is too much of dirty pages.
    fn relieve_dirty_limit(&self, turns: &mut u32) -> Result<(), Fault> {
        self.check()?;
        *turns += 1;
        if self.inline {
            let pages = self.batch_pages();
            // Pages that only this thread's latches keep from being written would be waited for in vain.
            assert!(*turns < 1000, "dirty pages can't be written");
            return self.write_oldest(pages, write::Reason::DirtyLimit).map(drop);
        }
        self.press();
        self.clean.wait(Duration::from_millis(5));
        self.fail_if_full(*turns)
    }

    /// Changes how many pages may be dirty, as a share of all frames. A smaller number is kept once as
    /// many pages have been written.
    pub fn set_dirty_limit(&self, share: f64) {
        let mut list = self.pool.flush.lock();
        self.dirty.set_limit(dirty_pages_max(self.pool.frames(), share));
        let limit = self.dirty.limit();
        if limit > list.most() || self.dirty.outstanding() <= limit {
            list.set_most(limit);
        }
    }

    /// Changes the capacity of the log; returns what it is now. A log that is longer becomes as short as the
    /// governor lets it.
    ///
    /// # Errors
    /// Those of [`Redo::set_capacity`], and of writing pages.
    pub fn set_redo_capacity(&self, bytes: u64) -> Result<u64, Fault> {
        let capacity = self.redo.set_capacity(bytes)?;
        self.pool.flush.lock().set_bucket_bytes(bucket_bytes(capacity));
        self.flusher.raise();
        // Where no governor does it little by little, it is done now.
        while self.inline && self.redo.checkpoint_age() > self.user_capacity() {
            let before = self.redo.checkpoint_age();
            self.flush_step(self.batch_pages())?;
            self.checkpoint()?;
            if self.redo.checkpoint_age() >= before {
                break;
            }
        }
        Ok(capacity)
    }

    /// Whether the device had no space for the last batch.
    fn is_full(&self) -> bool {
        self.full.lock().is_some()
    }

    fn fail_if_full(&self, turns: u32) -> Result<(), Fault> {
        match &*self.full.lock() {
            Some(error) if turns > 20 => Err(error.clone().into()),
            _ => Ok(()),
        }
    }

    /// A free frame, after waiting for one.
    fn take_frame(&self) -> Result<u32, Fault> {
        let mut turns = 0;
        loop {
            if let Some(frame) = self.pool.free.pop() {
                self.ask_for_frames();
                return Ok(frame);
            }
            self.check()?;
            turns += 1;
            if self.inline {
                self.evict_step(1)?;
                // In recovery of a database with threads, frames may wait for those of other databases.
                if turns > 1_000_000 {
                    return Err(Fault::NoFrame { frames: self.pool.frames() });
                }
                std::thread::yield_now();
            } else {
                self.figures.frame_waits.fetch_add(1, Ordering::Relaxed);
                self.evictor.raise();
                self.pool.reclaim();
                std::thread::sleep(Duration::from_micros(100));
                self.fail_if_full(turns / 50)?;
            }
        }
    }

    /// Brings a page into memory. The caller holds no latch. `false` if no such page is stored: the
    /// reference to it was out of date.
    ///
    /// # Errors
    /// The image can't be read or is corrupt.
    pub fn load(&self, page: PageId) -> Result<bool, Fault> {
        let slot = self.store.map().slot(page);
        let Some(claim) = self.pool.claim(slot, page) else { return Ok(true) };
        if slot.extent().is_none() {
            return Ok(false);
        }
        let frame = self.take_frame()?;
        // SAFETY: the frame is free and ours alone until it is published.
        let bytes = unsafe { &mut (*self.pool.ptr(frame)).0 };
        match self.store.read_page(page, bytes) {
            Ok(()) => {
                self.figures.pages_loaded.fetch_add(1, Ordering::Relaxed);
                self.pool.publish(slot, claim, frame, 1);
                Ok(true)
            }
            Err(error) => {
                self.return_frames(vec![frame]);
                match error {
                    StoreError::NotStored { .. } => Ok(false),
                    error => Err(error.into()),
                }
            }
        }
    }

    /// Brings pages into memory ahead of their use, as far as free frames go. Holds no latch.
    pub fn prefetch(&self, pages: &[PageId]) {
        let mut claims = Vec::new();
        for &page in pages {
            let slot = self.store.map().slot(page);
            if self.pool.free.len() <= claims.len() + self.frame_reserve() / 4 {
                break;
            }
            if slot.extent().is_some() {
                claims.extend(self.pool.try_claim(slot, page).map(|claim| (page, claim)));
            }
        }
        let wanted: Vec<PageId> = claims.iter().map(|c| c.0).collect();
        let _ = self.store.read_pages(&wanted, &mut |page, read| {
            let Some(at) = claims.iter().position(|c| c.0 == page) else { return };
            let (_, claim) = claims.swap_remove(at);
            // What can't be read ahead is left to who needs it, who gets the error.
            let Ok(bytes) = read else { return };
            let Some(frame) = self.pool.free.pop() else { return };
            // SAFETY: the frame is free and ours alone until it is published.
            unsafe { (*self.pool.ptr(frame)).0.copy_from_slice(bytes) };
            self.figures.pages_read_ahead.fetch_add(1, Ordering::Relaxed);
            self.pool.publish(self.store.map().slot(page), claim, frame, 0);
        });
        self.ask_for_frames();
    }

    /// Wakes the evictor if its reserve is half used.
    fn ask_for_frames(&self) {
        if !self.inline && self.pool.free.len() < self.frame_reserve() / 2 {
            self.evictor.raise();
        }
    }

    /// Latches a resident page for reading. `scan` leaves its standing for replacement as it is.
    ///
    /// # Errors
    /// [`Stop`].
    #[inline]
    pub fn read(&self, page: PageId, scan: bool) -> Result<PageRead<'_>, Stop> {
        self.pool.read(&self.store, page, scan)
    }

    /// Keeps the frames that this thread looks up from being used for other pages while it lives.
    /// Never held across a wait.
    #[inline]
    pub fn pin(&self) -> epoch::Guard {
        epoch::pin()
    }
}

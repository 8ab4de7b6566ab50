//! Pages that change atomically and survive: the log, the page store and the pool put together.
//!
//! [`Storage::mtr`] begins a mini-transaction (`admission`, `mtr`); [`Storage::read`] latches a
//! page for reading; [`Storage::load`] brings a page into memory (`load`). Who must wait (for log
//! space, for a frame) does so there, holding no latch: with background threads by waiting for
//! them, in order (`gate`), without (simulation, tests) by doing their steps itself.

mod admission;
mod ahead;
mod background;
mod backup;
mod checkpoint;
mod choose;
mod compact;
mod dirty;
mod evict;
mod fault;
mod figures;
mod flush_list;
mod frames;
mod free_frames;
mod gate;
mod interrupt;
pub mod latch;
mod load;
pub mod mtr;
pub mod pool;
mod recovery;
mod regulator;
mod reserve;
mod room;
mod signal;
mod spare;
pub mod work;
mod write;
mod writers;

pub use admission::Admitted;
pub use background::{Background, StopsWhenPanicking};
pub use backup::Copying;
use backup::KeptLog;
pub use dirty::PER_MTR;
pub use fault::Fault;
pub use figures::{Figures, Waits};
pub use gate::Cause;
pub use interrupt::{Interruptible, Interrupts, interruptible};
pub use mtr::{Mtr, Need, Restart, retry};
pub use pool::{PageRead, Stop};
pub use recovery::{OnProgress, Progress, RecoveryFigures};
pub use reserve::{on_reserve, to_make_room};
pub use signal::{Rests, Signal, Sleepers, Step};
pub use weir_os::Blocked;
pub use work::{Work, take_work};
pub use write::Reason;

use admission::Vain;
use ahead::Ahead;
use crossbeam_utils::CachePadded;
use dirty::DirtyCredits;
use flush_list::FlushList;
use gate::Gate;
use parking_lot::{Mutex, RwLock};
use pool::Pool;
use recovery::Recovery;
use room::PageBudget;
use spare::Spare;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use weir_governor::{Governor, Policy};
use weir_os::{Create, Disk, Region};
use weir_page::{Lsn, PageId, TxnId};
use weir_redo::{Redo, RedoError, RedoOptions};
pub use weir_store::CONTROL;
use weir_store::{Compression, Control, Store, StoreError, StoreOptions};

/// The least and the most that a log's capacity may be, in bytes.
pub const REDO_CAPACITY: (u64, u64) = (1 << 20, 16 << 40);

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
    /// Whether recovery empties pages that are damaged and goes on.
    pub give_up_damaged: bool,
    /// Whether whoever waits does the background work itself.
    pub inline: bool,
    /// Makes what decides when pages are written; the governor, but for experiments.
    pub policy: PolicyMaker,
}

#[cfg(test)]
impl StorageOptions {
    /// Of a small storage with threads, for tests.
    pub fn small(frames: usize) -> StorageOptions {
        let (capacity_bytes, segment_bytes, buffer_bytes) = (4 << 20, 1 << 20, 1 << 20);
        StorageOptions {
            frames,
            redo: RedoOptions { capacity_bytes, segment_bytes, buffer_bytes, database_id: 7 },
            dirty_limit: 0.9,
            keep_redo_capacity: false,
            compression: Compression::Lz4,
            give_up_damaged: false,
            inline: false,
            policy: PolicyMaker::default(),
        }
    }
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
    /// Clean pages that are better not changed.
    spare: Spare,
    /// Counters.
    pub figures: Figures,
    /// The next transaction's number; here because checkpoints keep it.
    pub next_txn: CachePadded<AtomicU64>,
    database_id: u64,
    inline: bool,
    giving_up: AtomicBool,
    policy: PolicyMaker,
    /// Set while the data file can't grow.
    full: Mutex<Option<StoreError>>,
    vain: Vain,
    /// New pages for which there is room on the device.
    page_budget: PageBudget,
    stopped: OnceLock<Arc<Fault>>,
    /// Held by who writes the control file, of which this is the checkpoint.
    checkpointing: Mutex<Lsn>,
    /// Held from when the place of an image, or a page's end, is logged to when the page map says
    /// so, but for pages that are latched meanwhile.
    installing: RwLock<()>,
    /// LSN of the newest dirty page table.
    tabled: AtomicU64,
    /// Where there was no room for one.
    untabled: AtomicU64,
    /// What a backup keeps of the log.
    kept_log: KeptLog,
    /// While recovery goes on: how far its pass is, which the checkpoint may not pass.
    replayed: AtomicU64,
    recovery: Mutex<Option<Arc<Recovery>>>,
    /// What recovery has done.
    pub recovery_figures: RecoveryFigures,
    /// Signals of threads that sleep while nobody writes, `flusher` and `evictor` among them.
    pub sleepers: Sleepers,
    flusher: Arc<Signal>,
    evictor: Arc<Signal>,
    margin: evict::Margin,
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
    /// How many batches have space in the log for what will be said of them.
    log_spaces: AtomicU32,
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

/// Length of the buckets in which dirty pages are counted: the deadlines of those in one are the
/// same to the governor.
fn bucket_bytes(redo_capacity: u64) -> u64 {
    redo_capacity / 512
}

/// Whether a database has files of that name, its log's among them; not of its lock.
pub fn is_file(name: &str) -> bool {
    [CONTROL, "control.new", "data", "map", "dirty", "dirty.new"].contains(&name)
        || name.starts_with("redo-")
}

impl Storage {
    /// Creates an empty store and log, durably.
    ///
    /// # Errors
    /// The disk's; a directory left half made can be created anew.
    pub fn create(disk: Arc<dyn Disk>, options: &StorageOptions) -> Result<Storage, Fault> {
        // Before any file is made: it may not be had.
        let memory = Pool::map(options.frames)?;
        disk.open(CREATING, Create::IfAbsent, weir_os::Mode::Cached)?;
        disk.sync_dir()?;
        weir_redo::remove_all(&*disk)?;
        let redo = Redo::create(disk.clone(), &options.redo);
        if let Err(RedoError::NoSpace { .. }) = redo {
            forget_creation(&*disk)?;
        }
        let redo = redo?;
        let control = Control {
            database_id: options.redo.database_id,
            checkpoint: redo.checkpoint(),
            durable: redo.durable(),
            next_txn_id: TxnId(1),
            next_page_id: PageId(1),
            segment_bytes: redo.segment_bytes(),
            redo_capacity: redo.capacity(),
            clean: false,
            map_bytes: 0,
            map_version: 0,
            dirty_table: Lsn(0),
        };
        let store_options = StoreOptions { compression: options.compression };
        let store = Store::create(disk.clone(), store_options, &control)?;
        forget_creation(&*disk)?;
        Ok(Storage::assemble(disk, memory, store, redo, options, &control))
    }

    /// Whether a database may be created beside files of these names, none of them `control`: there
    /// are none of ours, or a creation was cut short. Files of a database that has lost its control
    /// file are not touched.
    pub fn may_create(names: &[String]) -> bool {
        names.iter().any(|name| name == CREATING) || !names.iter().any(|name| is_file(name))
    }

    fn assemble(
        disk: Arc<dyn Disk>,
        memory: Region,
        store: Store,
        redo: Redo,
        options: &StorageOptions,
        control: &Control,
    ) -> Storage {
        let dirty = DirtyCredits::new(dirty_pages_max(options.frames, options.dirty_limit));
        let flush = FlushList::new(bucket_bytes(redo.capacity()), dirty.limit());
        let sleepers = Sleepers::default();
        Storage {
            pool: Pool::new(memory, flush, options.inline),
            dirty,
            gate: Gate::default(),
            spare: Spare::default(),
            disk,
            store,
            redo,
            figures: Figures::default(),
            next_txn: AtomicU64::new(control.next_txn_id.0).into(),
            database_id: control.database_id,
            giving_up: AtomicBool::new(options.give_up_damaged),
            inline: options.inline,
            policy: options.policy.clone(),
            full: Mutex::default(),
            vain: Vain::default(),
            page_budget: PageBudget::default(),
            stopped: OnceLock::new(),
            checkpointing: Mutex::new(control.checkpoint),
            installing: RwLock::default(),
            tabled: AtomicU64::new(0),
            untabled: AtomicU64::new(0),
            kept_log: KeptLog::default(),
            replayed: AtomicU64::new(u64::MAX),
            recovery: Mutex::default(),
            recovery_figures: RecoveryFigures::default(),
            flusher: sleepers.signal(),
            evictor: sleepers.signal(),
            margin: evict::Margin::default(),
            sleepers,
            clean: Signal::default(),
            checkpointer: Signal::default(),
            ahead: Ahead::default(),
            pressed: AtomicBool::new(false),
            written: Mutex::default(),
            copies: Mutex::default(),
            log_spaces: AtomicU32::new(0),
        }
    }

    /// Whether nothing was ever logged.
    pub fn is_new(&self) -> bool {
        self.redo.is_unused()
    }

    /// A page is referred to, but nowhere to be found.
    pub fn lost_page(&self, page: PageId) -> Fault {
        let map = self.store.map_name();
        Fault::page(page, format!("is needed, but {map} says at no offset where it is stored"))
    }

    /// Whether damaged pages are given up: until recovery has ended, if that was asked for.
    pub fn is_giving_up(&self) -> bool {
        self.giving_up.load(Ordering::Acquire)
    }

    /// Whether it is a damaged page that stands in recovery's way, and it is to be given up.
    pub fn gives_up(&self, fault: &Fault) -> bool {
        self.is_giving_up() && fault.is_of_page()
    }

    /// Makes durable what was given up, and gives up no more. Nothing is left to recover.
    ///
    /// # Errors
    /// Those of writing pages.
    pub fn end_giving_up(&self) -> Result<(), Fault> {
        self.flush_all(Reason::Checkpoint, &mut |_| {})?;
        self.giving_up.store(false, Ordering::Release);
        Ok(())
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

    /// Stops the database: a background step failed, or it is closed.
    pub fn stop(&self, fault: Fault) {
        let _ = self.stopped.set(Arc::new(fault));
        fence(SeqCst);
        // Those who free others from their waits are among them.
        self.sleepers.wake();
    }

    /// Whether the database had stopped once the log was as it is now: who has appended to it and
    /// is told that it had not is seen by who reads the log's end after [`Storage::stop`].
    #[inline]
    pub fn has_stopped(&self) -> bool {
        fence(SeqCst);
        self.stopped.get().is_some()
    }

    /// What decides when pages are written.
    fn policy(&self) -> Box<dyn Policy + Send> {
        (self.policy.0)()
    }

    /// Changes how many pages may be dirty, as a share of all frames. A smaller number is kept once
    /// as many pages have been written.
    pub fn set_dirty_limit(&self, share: f64) {
        let mut list = self.pool.flush.lock();
        self.dirty.set_limit(dirty_pages_max(self.pool.frames(), share));
        let limit = self.dirty.limit();
        if limit > list.most() || self.dirty.outstanding() <= limit {
            list.set_most(limit);
        }
        drop(list);
        self.flusher.raise();
    }

    /// Changes the capacity of the log; returns what it is now. A log that is longer becomes as
    /// short as the governor lets it.
    ///
    /// # Errors
    /// Those of [`Redo::set_capacity`], of writing pages, and of the log and the control file,
    /// where it is noted: the database has stopped then.
    pub fn set_redo_capacity(&self, bytes: u64) -> Result<u64, Fault> {
        if self.inline {
            self.finish_recovery()?;
        }
        let capacity = match bytes > self.redo.capacity() {
            true => self.grow_log(bytes)?,
            false => self.redo.set_capacity(bytes)?,
        };
        self.pool.flush.lock().set_bucket_bytes(bucket_bytes(capacity));
        self.flusher.raise();
        // Where no governor does it little by little, it is done now.
        while self.inline && self.redo.checkpoint_age() > self.redo.user_capacity() {
            let before = self.redo.checkpoint_age();
            self.flush_step(self.batch_pages())?;
            self.checkpoint()?;
            if self.redo.checkpoint_age() >= before {
                break;
            }
        }
        // The next start knows it.
        self.note_durable()?;
        Ok(capacity)
    }
}

//! The store itself: creation, opening, and what changes only memory.

use crate::block::{self, BlockTable};
use crate::buffers::Buffers;
use crate::control::{self, Control};
use crate::error::{Result, StoreError};
use crate::extent::{Entry, Extent, Relocation, UNIT};
use crate::ids::IdSet;
use crate::image::{Compression, Encoder};
use crate::map::PageMap;
use crate::space::Space;
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use weir_os::{AlignedBuf, Create, Disk, DiskError, File, Mode};
use weir_page::{Lsn, PageId};

pub(crate) const DATA: &str = "data";
pub(crate) const MAP: &str = "map";
/// The file that says of which format a database is, and where its log begins.
pub const CONTROL: &str = "control";
const CONTROL_NEW: &str = "control.new";

/// How a store works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreOptions {
    /// Compression of images written from now on.
    pub compression: Compression,
}

/// Figures of a store, since it was opened where they count events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStats {
    /// Length of the data file.
    pub file_bytes: u64,
    /// Units in use, pending ones included.
    pub used_units: u64,
    /// Units given up but not yet free.
    pub pending_units: u64,
    /// Those of them that would be free if no copy were being made.
    pub held_units: u64,
    /// Pages that have an image.
    pub pages_stored: u64,
    /// Page ids handed out.
    pub pages_allocated: u64,
    /// Map blocks that are not persisted as they are.
    pub map_blocks_dirty: u64,
    /// Map blocks written.
    pub map_blocks_written: u64,
    /// Batches written.
    pub batches: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Write operations that they took.
    pub writes: u64,
    /// Bytes of pages before compression.
    pub page_bytes_in: u64,
    /// Bytes of images written.
    pub page_bytes_out: u64,
    /// Time that the batches' syncs took, in microseconds.
    pub batch_sync_us: u64,
    /// Pages read.
    pub pages_read: u64,
    /// Read operations that they took.
    pub reads: u64,
    /// Bytes of images read.
    pub page_bytes_read: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub pages_stored: AtomicU64,
    pub map_blocks_written: AtomicU64,
    pub batches: AtomicU64,
    pub pages_written: AtomicU64,
    pub writes: AtomicU64,
    pub page_bytes_out: AtomicU64,
    pub batch_sync_us: AtomicU64,
    pub pages_read: AtomicU64,
    pub reads: AtomicU64,
    pub page_bytes_read: AtomicU64,
}

/// What only one thread at a time does to the map and control files.
pub(crate) struct MapIo {
    pub map_bytes: u64,
    /// The length that was last synced.
    pub synced_bytes: u64,
    /// Blocks up to this version are synced; those that will be written get newer ones.
    pub synced_version: u64,
    pub control_version: u64,
    /// Offsets of broken slots, to be zeroed when recovery finishes.
    pub broken_slots: Vec<u64>,
    /// Offsets of slots that count and may not be durable, although they were synced when the store
    /// was opened.
    pub doubtful_slots: Vec<u64>,
    /// The checkpoint when the store was opened.
    pub opened_checkpoint: Lsn,
    /// A control file that no longer holds once recovery finishes: of an older format, or of a
    /// clean shutdown.
    pub outdated: Option<Control>,
}

/// The page store of one database. All methods may be called from many threads at once.
///
/// ```
/// use std::sync::Arc;
/// use weir_os::SimDisk;
/// use weir_page::{Lsn, PAGE_SIZE};
/// use weir_store::{Control, PageCopy, Store, StoreOptions};
///
/// let disk = Arc::new(SimDisk::new(1));
/// let store = Store::create(disk.clone(), StoreOptions::default(), &Control::default())?;
/// let page = store.allocate_page();
/// let bytes = vec![7; PAGE_SIZE];
/// let moved = store.write_batch(&[PageCopy::whole(page, Lsn(90), &bytes)])?;
/// // The record of `moved` goes into the log, here at LSN 100; then:
/// store.install(&moved, Lsn(100), Lsn(100));
/// // Once the log is durable past it, the old place is free and the map may be written.
/// store.release(Lsn(150));
/// let draft = store.draft_map(Lsn(150))?.expect("a block has changed");
/// assert_eq!(draft.newest(), Lsn(100));
/// store.write_map(draft, Lsn(150))?;
///
/// let (again, _) = Store::open(disk, StoreOptions::default())?;
/// again.finish_recovery()?;
/// let mut out = vec![0; PAGE_SIZE];
/// again.read_page(page, &mut out)?;
/// assert_eq!(out[32..], bytes[32..]);
/// # Ok::<(), weir_store::StoreError>(())
/// ```
pub struct Store {
    pub(crate) options: StoreOptions,
    /// Stamped on images and map blocks.
    pub(crate) database_id: u64,
    pub(crate) data: Arc<dyn File>,
    pub(crate) map_file: Arc<dyn File>,
    pub(crate) control: Arc<dyn File>,
    pub(crate) map: PageMap,
    pub(crate) blocks: Mutex<BlockTable>,
    pub(crate) space: Mutex<Space>,
    pub(crate) ids: Mutex<IdSet>,
    /// Held while the data file changes its length.
    pub(crate) growth: Mutex<()>,
    /// Syncs of the data file that were asked for.
    data_syncs_asked: AtomicU64,
    /// Up to which of them the data file is synced; held over the sync. No other lock is taken
    /// under it.
    data_synced: Mutex<u64>,
    pub(crate) map_io: Mutex<MapIo>,
    /// Whether the data file could not grow by a step when it was to the last time: small holes are
    /// filled then.
    pub(crate) short: AtomicBool,
    /// Places for pages that trimming leaves: see [`Store::keep_room`].
    pub(crate) kept_places: AtomicU64,
    /// Page ids below this have a place in the map file.
    pub(crate) mapped_pages: AtomicU64,
    pub(crate) encoders: Mutex<Vec<Encoder>>,
    /// Buffers of batches that were written, used again.
    pub(crate) buffers: Buffers,
    pub(crate) counters: Counters,
    pub(crate) recovered: AtomicBool,
    poison: OnceLock<String>,
}

impl Store {
    /// Creates the files of a new database in `disk`, durably.
    ///
    /// # Errors
    /// `Disk` with `AlreadyExists` when there is a database already; nothing changed. After any
    /// other error there is none, or a whole empty one: call `create` again, or `open`.
    pub fn create(disk: Arc<dyn Disk>, options: StoreOptions, control: &Control) -> Result<Store> {
        if disk.list()?.iter().any(|name| name == CONTROL) {
            let source = io::Error::new(io::ErrorKind::AlreadyExists, "a database exists here");
            return Err(DiskError::new("create", CONTROL, source).into());
        }
        for name in [DATA, MAP] {
            let file = disk.open(name, Create::IfAbsent, Mode::Direct)?;
            file.set_len(0)?;
            file.sync()?;
        }
        write_first_control(&*disk, control)?;
        let (store, _) = Store::open(disk, options)?;
        store.finish_recovery()?;
        Ok(store)
    }

    /// Opens a database and loads its page map. Nothing can be written or freed before
    /// [`Store::finish_recovery`].
    ///
    /// # Errors
    /// `Disk` with `NotFound` when there is no database, `Missing` when it lacks a file,
    /// `NewerFormat`, `Corrupt`.
    pub fn open(disk: Arc<dyn Disk>, options: StoreOptions) -> Result<(Store, Control)> {
        let open = |name| match disk.open(name, Create::No, Mode::Direct) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(StoreError::Missing { file: error.file })
            }
            opened => Ok(opened?),
        };
        // Without it there is no database, which may be as it should be.
        let control_file = disk.open(CONTROL, Create::No, Mode::Direct)?;
        let (data, map_file) = (open(DATA)?, open(MAP)?);
        // Before anything is changed.
        read_control(&*control_file)?;
        // What a killed process left in the system's cache is made durable before it counts.
        for file in [&data, &map_file] {
            renew_length(&**file)?;
            file.sync()?;
        }
        let (mut control, control_version, format) = renew_control(&*control_file)?;
        let map_io = MapIo {
            map_bytes: 0,
            synced_bytes: 0,
            synced_version: control.map_version,
            control_version,
            broken_slots: Vec::new(),
            doubtful_slots: Vec::new(),
            opened_checkpoint: control.checkpoint,
            outdated: (format < control::CONTROL_FORMAT || control.clean).then(|| control.clone()),
        };
        let store = Store {
            options,
            database_id: control.database_id,
            space: Mutex::new(Space::new(0)),
            map: PageMap::new(),
            blocks: Mutex::default(),
            ids: Mutex::new(IdSet::new()),
            growth: Mutex::new(()),
            data_syncs_asked: AtomicU64::new(0),
            data_synced: Mutex::new(0),
            map_io: Mutex::new(map_io),
            short: AtomicBool::new(false),
            kept_places: AtomicU64::new(0),
            mapped_pages: AtomicU64::new(0),
            encoders: Mutex::default(),
            buffers: Buffers::default(),
            counters: Counters::default(),
            recovered: AtomicBool::new(false),
            poison: OnceLock::new(),
            data,
            map_file,
            control: control_file,
        };
        store.load_map(&control)?;
        // A block is written when the log is durable past its newest change.
        let newest = store.blocks.lock().newest();
        if newest.0 > control::LSN_MAX {
            return Err(StoreError::Corrupt {
                file: store.map_name().to_string(),
                offset: 0,
                page: None,
                what: "newest LSN of a block",
                expected: format!("{} or less", control::LSN_MAX),
                found: newest.to_string(),
            });
        }
        control.durable = control.durable.max(Lsn(newest.0 + 1));
        Ok((store, control))
    }

    /// Path of the file that the page map is stored in, for messages.
    pub fn map_name(&self) -> &str {
        self.map_file.name()
    }

    /// The page map.
    #[inline]
    pub fn map(&self) -> &PageMap {
        &self.map
    }

    /// Points the map to new places. To be called after the record of `relocations` is in the log;
    /// `rec_lsn` is at or before the start of its group, `newest_lsn` is the start. The old extents
    /// are pending until the log is durable past `newest_lsn`.
    ///
    /// From the reservation of the record until this returns, no checkpoint may pass `rec_lsn`:
    /// [`Store::oldest_unpersisted`] does not know of it yet. The same goes for
    /// [`Store::free_page`].
    pub fn install(&self, relocations: &[Relocation], rec_lsn: Lsn, newest_lsn: Lsn) {
        self.assert_recovered();
        let mut old = Vec::with_capacity(relocations.len());
        let mut blocks = self.blocks.lock();
        for relocation in relocations {
            let before = self.map.slot(relocation.page).replace(relocation.entry());
            old.extend(before.extent());
            blocks.touch(block::block_of(relocation.page), rec_lsn, newest_lsn);
        }
        let mut space = self.space.lock();
        relocations.iter().for_each(|relocation| space.install(relocation.extent));
        old.iter().for_each(|extent| space.give_up(*extent, newest_lsn));
        let added = (relocations.len() - old.len()) as u64;
        self.counters.pages_stored.fetch_add(added, Ordering::Relaxed);
    }

    /// Takes the image of a freed page away. Its extent is pending until the log is durable past
    /// `newest_lsn`, the start of the group that frees it; `rec_lsn` is at or before it.
    pub fn free_page(&self, page: PageId, rec_lsn: Lsn, newest_lsn: Lsn) {
        self.assert_recovered();
        let mut blocks = self.blocks.lock();
        let Some(extent) = self.map.slot(page).replace(Entry::NONE).extent() else { return };
        blocks.touch(block::block_of(page), rec_lsn, newest_lsn);
        self.space.lock().give_up(extent, newest_lsn);
        self.counters.pages_stored.fetch_sub(1, Ordering::Relaxed);
    }

    /// The log is durable up to `durable` (a group boundary): extents given up before are free.
    /// Returns their units.
    pub fn release(&self, durable: Lsn) -> u64 {
        self.space.lock().release(durable)
    }

    /// First relocation or free that is not in a persisted map block: no checkpoint may pass it.
    pub fn oldest_unpersisted(&self) -> Option<Lsn> {
        self.blocks.lock().oldest()
    }

    /// Has images go to the front of the file from now on, if that can make it shorter by much,
    /// until [`Store::lift_ceiling`]. Returns the pages that are stored behind, in order of their
    /// places: `most` of them at the most, with so much less of the file.
    pub fn lower_ceiling(&self, most: usize) -> Option<Vec<PageId>> {
        self.assert_recovered();
        let ceiling = self.space.lock().lower_ceiling()?;
        // Small holes behind the ceiling are not what images are to go to.
        self.short.store(false, Ordering::Relaxed);
        let behind = self.map.stored().filter_map(|(page, entry)| Some((entry.extent()?, page)));
        let mut behind: Vec<(Extent, PageId)> =
            behind.filter(|(extent, _)| extent.end_unit() > ceiling).collect();
        behind.sort_unstable();
        if let Some(last_before) = behind.len().checked_sub(most.saturating_add(1)) {
            self.space.lock().set_ceiling(behind[last_before].0.end_unit())?;
            behind.drain(..=last_before);
        }
        Some(behind.into_iter().map(|(_, page)| page).collect())
    }

    /// Lets images go anywhere again.
    pub fn lift_ceiling(&self) {
        self.space.lock().lift_ceiling();
    }

    /// Hands out the lowest free page id. Not persisted: recovery is told by the log.
    pub fn allocate_page(&self) -> PageId {
        self.assert_recovered();
        self.ids.lock().allocate()
    }

    /// A page id may be handed out again.
    pub fn release_page(&self, page: PageId) {
        assert!(self.ids.lock().unmark(page), "page {page} is released twice");
    }

    /// Current figures.
    pub fn stats(&self) -> StoreStats {
        let (file_bytes, used_units, pending_units, held_units) = {
            let space = self.space.lock();
            let pending = (space.pending_units(), space.held_units());
            (space.units() * UNIT as u64, space.used(), pending.0, pending.1)
        };
        let pages_allocated = self.ids.lock().len();
        let map_blocks_dirty = self.blocks.lock().dirty_len() as u64;
        let c = &self.counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            file_bytes,
            used_units,
            pending_units,
            held_units,
            pages_stored: get(&c.pages_stored),
            pages_allocated,
            map_blocks_dirty,
            map_blocks_written: get(&c.map_blocks_written),
            batches: get(&c.batches),
            pages_written: get(&c.pages_written),
            writes: get(&c.writes),
            page_bytes_in: get(&c.pages_written) * weir_page::PAGE_SIZE as u64,
            page_bytes_out: get(&c.page_bytes_out),
            batch_sync_us: get(&c.batch_sync_us),
            pages_read: get(&c.pages_read),
            reads: get(&c.reads),
            page_bytes_read: get(&c.page_bytes_read),
        }
    }

    /// Batches written, and the time that their syncs took in microseconds.
    pub fn batch_syncs(&self) -> (u64, u64) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (get(&self.counters.batches), get(&self.counters.batch_sync_us))
    }

    /// The extent of a page, or `NotStored`.
    pub(crate) fn entry_of(&self, page: PageId) -> Result<(Entry, Extent)> {
        let entry = self.map.entry(page);
        let extent = entry.extent().ok_or(StoreError::NotStored { page })?;
        Ok((entry, extent))
    }

    pub(crate) fn assert_recovered(&self) {
        assert!(self.recovered.load(Ordering::Acquire), "the store is still being recovered");
    }

    /// # Errors
    /// `Poisoned` after an earlier failure.
    pub(crate) fn check_poison(&self) -> Result<()> {
        match self.poison.get() {
            Some(cause) => Err(StoreError::Poisoned { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Makes durable what the caller has written to the data file. One sync at a time: the system
    /// tells of a failure once, and whoever comes after must find that it was told. One serves all
    /// who had asked when it began.
    pub(crate) fn sync_data(&self) -> Result<()> {
        let asked = self.data_syncs_asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut synced = self.data_synced.lock();
        self.check_poison()?;
        if *synced < asked {
            let all = self.data_syncs_asked.load(Ordering::SeqCst);
            self.data.sync().map_err(|e| self.poisoned(e))?;
            *synced = all;
        }
        Ok(())
    }

    /// Ends all writing: `error` has left a file in an unknown state.
    pub(crate) fn poisoned(&self, error: DiskError) -> StoreError {
        let _ = self.poison.set(error.to_string());
        error.into()
    }
}

/// Makes the files in `disk` a database, durably: its control file comes last. They are synced
/// themselves.
///
/// # Errors
/// `Disk`: there is a database or none.
pub fn write_first_control(disk: &dyn Disk, control: &Control) -> Result<()> {
    let fresh = disk.open(CONTROL_NEW, Create::IfAbsent, Mode::Direct)?;
    let mut slots = AlignedBuf::zeroed(2 * control::SLOT);
    control::encode(control, 1, &mut slots[control::SLOT..]);
    fresh.set_len(slots.len() as u64)?;
    fresh.write(0, slots)?;
    fresh.sync()?;
    disk.sync_dir()?;
    drop(fresh);
    disk.rename(CONTROL_NEW, CONTROL)?;
    disk.sync_dir()?;
    Ok(())
}

/// Gives a file the length that it has, so that the next sync makes it durable: the sync after it
/// got that may have failed, and the system takes it for done then.
fn renew_length(file: &dyn File) -> Result<()> {
    let bytes = file.len()?;
    match file.set_len(bytes + 2 * UNIT as u64) {
        // Where there is no room for that, it is left as it is.
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        longer => Ok(longer.and_then(|()| file.set_len(bytes))?),
    }
}

/// Refuses a database of a newer format. Changes nothing.
///
/// # Errors
/// `NewerFormat`; what else is wrong, [`Store::open`] says.
pub fn check_format(disk: &dyn Disk) -> Result<()> {
    let file = disk.open(CONTROL, Create::No, Mode::Direct).map_err(StoreError::from);
    match file.and_then(|file| read_control(&*file)) {
        Err(error @ StoreError::NewerFormat { .. }) => Err(error),
        _ => Ok(()),
    }
}

/// Reads the control file: what it says, with its version and format, and its bytes.
fn read_control(file: &dyn File) -> Result<((Control, u64, u32), AlignedBuf)> {
    let mut slots = AlignedBuf::zeroed(2 * control::SLOT);
    if file.len()? >= slots.len() as u64 {
        slots = file.read(0, slots)?;
    }
    let (first, second) = slots.split_at(control::SLOT);
    Ok((control::decode([first, second], file.name())?, slots))
}

/// Reads the control file and makes it durable. The slot that counts is written again, as it is: if
/// the sync of it failed, the system may take it for clean.
fn renew_control(file: &dyn File) -> Result<(Control, u64, u32)> {
    let (found, slots) = read_control(file)?;
    let offset = control::slot_offset(found.1);
    let mut newest = AlignedBuf::zeroed(control::SLOT);
    newest.copy_from_slice(&slots[offset as usize..][..control::SLOT]);
    file.write(offset, newest)?;
    file.sync()?;
    Ok(found)
}

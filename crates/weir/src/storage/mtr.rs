//! Mini-transactions: latched pages and one redo group.
//!
//! Space in the log and the frames for new pages are had before the first latch. Then pages are
//! latched, everything that may fail is checked, and records are logged: [`Mtr::log`] changes the
//! page at once through [`Redo::apply`] and appends the record to the group. [`Mtr::commit`] gives
//! the group its LSN and lets go. An mtr dropped before its first record has done nothing; after
//! it, it must be committed: a panic in between ends the process.
//!
//! Latch order: tree pages from the root down and left to right, then undo pages, then the lane
//! directory.

use super::dirty::Reserved;
use super::pool::{DIRTY, FREED, FREEING, Pool, Stop, WRITING};
use super::room::Promise;
use super::{Admitted, Fault, Storage, work};
use crate::storage::latch::Seen;
use crossbeam_epoch as epoch;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_page::{Before, Lsn, Page, PageId, RECORD_BYTES, Redo};
use weir_redo::{Appended, Credit};

/// What an mtr may need, at most.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Bytes of redo.
    pub log_bytes: usize,
    /// New pages.
    pub pages: usize,
}

impl Need {
    /// Records of `log_bytes` on pages that exist.
    pub fn log(log_bytes: usize) -> Need {
        Need { log_bytes, pages: 0 }
    }

    /// So many records without a key or a value, on pages that exist.
    pub fn records(count: usize) -> Need {
        Need::log(count * RECORD_BYTES)
    }

    /// So many new pages with it.
    pub fn and_pages(self, pages: usize) -> Need {
        Need { pages, ..self }
    }
}

struct Held {
    page: PageId,
    frame: u32,
    changed: bool,
    freed: bool,
}

#[derive(Default)]
struct Scratch {
    held: Vec<Held>,
    group: Vec<u8>,
    /// Of the group.
    before: Before,
    page: Option<Box<Page>>,
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// A running mini-transaction.
pub struct Mtr<'s> {
    storage: &'s Storage,
    credit: Option<Credit<'s>>,
    dirty: Option<Reserved<'s>>,
    frames: Vec<u32>,
    /// Room for as many pages.
    promise: Promise<'s>,
    scratch: Option<Box<Scratch>>,
    /// Frames that this thread has looked up stay what they are while it lives.
    _epoch: epoch::Guard,
}

impl<'s> Mtr<'s> {
    pub(super) fn new(
        storage: &'s Storage,
        admitted: Admitted<'s>,
        frames: Vec<u32>,
        promise: Promise<'s>,
    ) -> Self {
        let scratch = Some(SCRATCH.take().unwrap_or_default());
        let Admitted { credit, dirty } = admitted;
        Mtr {
            storage,
            credit: Some(credit),
            dirty: Some(dirty),
            frames,
            promise,
            scratch,
            _epoch: epoch::pin(),
        }
    }

    fn scratch(&mut self) -> &mut Scratch {
        self.scratch.as_mut().expect("an mtr has its scratch until it ends")
    }

    fn held(&self) -> &[Held] {
        &self.scratch.as_ref().expect("an mtr has its scratch until it ends").held
    }

    /// The storage that it works on.
    pub fn storage(&self) -> &'s Storage {
        self.storage
    }

    fn pool(&self) -> &'s Pool {
        &self.storage.pool
    }

    fn hold(&mut self, page: PageId, frame: u32) {
        self.scratch().held.push(Held { page, frame, changed: false, freed: false });
    }

    /// Latches a page exclusively, unless it is held already.
    ///
    /// # Errors
    /// [`Stop::Load`] if it isn't resident.
    #[inline]
    pub fn latch(&mut self, page: PageId) -> Result<(), Stop> {
        if self.find(page).is_some() {
            return Ok(());
        }
        let frame = self.pool().latch(&self.storage.store, page)?;
        self.hold(page, frame);
        Ok(())
    }

    /// Latches a frame exclusively if it holds `page` and has not changed since `seen`.
    pub fn latch_if(&mut self, frame: u32, page: PageId, seen: Seen) -> Result<(), Stop> {
        let state = self.pool().frame(frame);
        if !state.latch.exclusive_if(seen) {
            return Err(Stop::Retry);
        }
        assert!(self.pool().holds(frame, page), "an unchanged frame holds the same page");
        self.hold(page, frame);
        Ok(())
    }

    /// Latches a frame exclusively if it holds `page`.
    #[inline]
    pub fn latch_frame(&mut self, frame: u32, page: PageId) -> Result<(), Stop> {
        if !self.pool().latch_frame(frame, page) {
            return Err(Stop::Retry);
        }
        self.hold(page, frame);
        Ok(())
    }

    /// As [`Mtr::latch_frame`], if that needs no wait: also where the order of latches is not kept.
    #[inline]
    pub fn try_latch_frame(&mut self, frame: u32, page: PageId) -> Result<(), Stop> {
        if !self.pool().try_latch_frame(frame, page) {
            return Err(Stop::Retry);
        }
        self.hold(page, frame);
        Ok(())
    }

    /// Makes a new page of a fresh number; its first record must initialise it.
    ///
    /// # Panics
    /// If more pages are made than were asked for in [`Need`].
    pub fn create(&mut self) -> PageId {
        let frame = self.frames.pop().expect("new pages are asked for beforehand");
        let state = self.pool().frame(frame);
        state.latch.exclusive();
        state.level.store(0, Ordering::Relaxed);
        state.cut_chain();
        state.hits.store(1, Ordering::Relaxed);
        state.state.store(0, Ordering::Relaxed);
        let mut passed_over = Vec::new();
        let page = loop {
            let page = self.storage.store.allocate_page();
            if self.settle(page, frame) {
                break page;
            }
            passed_over.push(page);
        };
        self.promise.keep_one();
        passed_over.into_iter().for_each(|page| self.storage.store.release_page(page));
        self.hold(page, frame);
        page
    }

    /// Makes a latched frame the home of a new page, unless somebody is about to load a page of
    /// this number, by a reference that is out of date: what that one reads might be an older image
    /// of the new page.
    fn settle(&self, page: PageId, frame: u32) -> bool {
        // SAFETY: the frame is free and latched: nobody else reads or writes it.
        let bytes = unsafe { &mut *self.pool().ptr(frame) };
        bytes.reset(page, weir_page::Kind::Blank, 0);
        bytes.set_lsn(Lsn(0));
        self.pool().settle(self.storage.store.map().slot(page), page, frame)
    }

    #[inline]
    fn find(&self, page: PageId) -> Option<usize> {
        self.held().iter().position(|h| h.page == page)
    }

    /// A page that is held.
    ///
    /// # Panics
    /// If it isn't.
    #[inline]
    pub fn page(&self, page: PageId) -> &Page {
        let at = self.find(page).expect("a page is latched before it is used");
        // SAFETY: the exclusive latch is held by this mtr; changes need `&mut self`.
        unsafe { &*self.pool().ptr(self.held()[at].frame) }
    }

    /// Gives up a page that was not changed.
    pub fn release(&mut self, page: PageId) {
        let at = self.find(page).expect("a page is latched before it is given up");
        let held = self.scratch().held.swap_remove(at);
        assert!(!held.changed, "a changed page is held until the mtr ends");
        self.pool().frame(held.frame).latch.unlock_unchanged();
    }

    /// Changes the pages that the record is about, all held, and puts it into the group.
    #[inline]
    pub fn log(&mut self, redo: &Redo<'_>) {
        let page = redo.page().expect("an mtr logs changes of pages");
        let prev = self.change(redo, page);
        let prev_undo = redo.second_page().map_or(Lsn(0), |page| self.change(redo, page));
        let Scratch { group, before, .. } = self.scratch();
        redo.encode(prev, prev_undo, before, group);
    }

    #[inline]
    fn change(&mut self, redo: &Redo<'_>, id: PageId) -> Lsn {
        let at = self.find(id).expect("a page is latched before it is changed");
        let pool = self.pool();
        let scratch = self.scratch();
        scratch.held[at].changed = true;
        let frame = scratch.held[at].frame;
        let state = pool.frame(frame);
        if state.level.load(Ordering::Relaxed) == 0 {
            // SAFETY: exclusively latched, and readers without latch keep off pages of level 0.
            let page = unsafe { &mut *pool.ptr(frame) };
            let prev = page.lsn();
            redo.apply(id, page);
            state.renew_sketch(page);
            state.level.store(page.level(), Ordering::Release);
            prev
        } else {
            let mut copy = scratch.page.take().unwrap_or_else(Page::boxed);
            // SAFETY: exclusively latched: nobody writes; readers may read along.
            copy.0.copy_from_slice(unsafe { &(*pool.ptr(frame)).0 });
            let prev = copy.lsn();
            redo.apply(id, &mut copy);
            pool.shared_page(frame).publish(&copy);
            state.level.store(copy.level(), Ordering::Release);
            scratch.page = Some(copy);
            prev
        }
    }

    /// Gives up a page that is held: logs it, and drops it from memory at commit.
    pub fn free(&mut self, page: PageId) {
        let at = self.find(page).expect("a page is latched before it is freed");
        let prev = self.page(page).lsn();
        let scratch = self.scratch();
        scratch.held[at].changed = true;
        scratch.held[at].freed = true;
        Redo::Free { page }.encode(prev, Lsn(0), &mut scratch.before, &mut scratch.group);
    }

    /// Appends the group to the log and gives up all latches.
    ///
    /// # Panics
    /// If the group is longer than was asked for in [`Need`].
    pub fn commit(mut self) -> Appended {
        let storage = self.storage;
        let mut scratch = self.scratch.take().expect("an mtr has its scratch until it ends");
        assert!(!scratch.group.is_empty(), "an mtr without records is dropped, not committed");
        let dirty = self.dirty.take().expect("an mtr has its credits until it ends");
        let guard = register(storage, &scratch.held, dirty);
        let credit = self.credit.take().expect("an mtr has its credit until it ends");
        let appended = storage.redo.append(credit, &scratch.group);
        let mut updated = 0;
        for held in &scratch.held {
            if held.changed && !held.freed {
                stamp(storage, held.frame, appended.start);
                updated += 1;
            }
        }
        work::note(|work| work.pages_updated += updated);
        if let Some(guard) = guard {
            for held in scratch.held.iter().filter(|h| h.freed) {
                drop_page(storage, held, guard, appended.start);
            }
            storage.pool.flush.lock().unguard(guard);
        }
        for held in scratch.held.drain(..).rev() {
            let latch = &storage.pool.frame(held.frame).latch;
            if held.changed { latch.unlock_exclusive() } else { latch.unlock_unchanged() }
        }
        scratch.group.clear();
        scratch.before = Before::default();
        SCRATCH.set(Some(scratch));
        appended
    }
}

/// Puts newly dirtied frames, with their credits, on the flush list; holds the checkpoint back if
/// pages are freed.
#[inline]
fn register(storage: &Storage, held: &[Held], credits: Reserved<'_>) -> Option<Lsn> {
    let pool = &storage.pool;
    let is_clean = |h: &Held| pool.frame(h.frame).state.load(Ordering::Relaxed) & DIRTY == 0;
    let newly_dirty = |h: &&Held| h.changed && !h.freed && is_clean(h);
    let frees = held.iter().any(|h| h.freed);
    if !frees && !held.iter().any(|h| newly_dirty(&h)) {
        return None;
    }
    let mut list = pool.flush.lock();
    let lsn = storage.redo.reserved();
    let mut spent = 0;
    for h in held.iter().filter(newly_dirty) {
        let frame = pool.frame(h.frame);
        frame.rec_lsn.store(lsn.0, Ordering::Relaxed);
        // A page that is being written has a credit until that is done, and keeps it now.
        let again = frame.state.fetch_or(DIRTY, Ordering::Relaxed) & WRITING != 0;
        spent += u64::from(!again);
        list.push(lsn, h.frame, again);
    }
    credits.spend(spent);
    storage.figures.dirtied.fetch_add(spent, Ordering::Relaxed);
    if frees {
        list.guard(lsn);
        held.iter().filter(|h| h.freed).for_each(|h| announce_free(storage, h.frame));
    }
    frees.then_some(lsn)
}

/// Tells the page writer, if it is at this page, that the page is about to be freed: were its
/// image's place logged behind the page's end, and the writer through before it knows of that, the
/// log's last word on the page would be wrong.
fn announce_free(storage: &Storage, frame: u32) {
    let state = &storage.pool.frame(frame).state;
    if state.load(Ordering::Relaxed) & WRITING != 0 {
        state.fetch_or(FREEING, Ordering::Relaxed);
    }
}

/// Sets the page LSN where readers without latch may look on.
#[inline]
fn stamp(storage: &Storage, frame: u32, lsn: Lsn) {
    let state = storage.pool.frame(frame);
    state.lsn.store(lsn.0, Ordering::Relaxed);
    if state.add_links(1) {
        storage.cut_chain_of(frame);
    }
    // SAFETY: bytes 8..16 of a frame are aligned and accessed by others only as an atomic word.
    let word = unsafe { &*storage.pool.ptr(frame).cast::<AtomicU64>().add(1) };
    word.store(lsn.0.to_le(), Ordering::Relaxed);
}

/// Drops a freed page from memory and gives up its image.
fn drop_page(storage: &Storage, held: &Held, rec_lsn: Lsn, lsn: Lsn) {
    let frame = storage.pool.frame(held.frame);
    frame.page.store(0, Ordering::Relaxed);
    let being_written = {
        let mut list = storage.pool.flush.lock();
        let state = frame.state.load(Ordering::Relaxed);
        let being_written = state & WRITING != 0;
        if state & DIRTY != 0 {
            list.forget(Lsn(frame.rec_lsn.load(Ordering::Relaxed)));
            if being_written {
                list.write_goes_on();
            } else {
                storage.page_is_clean(&mut list, 1);
            }
        }
        let state = if being_written { WRITING | FREED } else { 0 };
        frame.state.store(state, Ordering::Relaxed);
        frame.rec_lsn.store(lsn.0, Ordering::Relaxed);
        being_written
    };
    if !being_written {
        storage.give_up_page(held.page, held.frame, rec_lsn, lsn);
    }
}

impl Drop for Mtr<'_> {
    fn drop(&mut self) {
        if !self.frames.is_empty() {
            self.storage.pool.free.push(&self.frames);
        }
        let Some(mut scratch) = self.scratch.take() else { return };
        if !scratch.group.is_empty() {
            // Pages have changed and the log won't tell: nobody may see or write them.
            eprintln!("weir: a mini-transaction was cut short half done; the process ends");
            std::process::abort();
        }
        for held in scratch.held.drain(..).rev() {
            self.storage.pool.frame(held.frame).latch.unlock_unchanged();
        }
        SCRATCH.set(Some(scratch));
    }
}

/// Pages that one step may load on a full device.
const LOADS_MAX: u32 = 1000;

/// Times that a step may find a page nowhere, or not what it should be, before that is no passing
/// state.
const VAIN_MAX: u32 = 1000;

impl Storage {
    /// Does what the step that was stopped needs before it is begun anew. `vain` counts how often
    /// it came to a page in vain.
    ///
    /// # Errors
    /// Faults of loading pages; a page that is nowhere, or not what it should be, again and again.
    pub fn clear_way(&self, stop: Stop, vain: &mut u32) -> Result<(), Fault> {
        let fault = match stop {
            Stop::Retry => return Ok(()),
            Stop::Load(page) if self.load(page)? => return Ok(()),
            Stop::Load(page) => self.lost_page(page),
            Stop::Astray(page) => Fault::stray_page(page),
        };
        *vain += 1;
        if *vain > VAIN_MAX { Err(fault) } else { Ok(()) }
    }
}

/// Runs `step` until it neither needs a page nor meets a change of the tree.
///
/// # Errors
/// What `step` fails with otherwise, and faults of loading pages; no space, if the device is full
/// and too few frames are clean for the step.
pub fn retry<T, E: From<Fault>>(
    storage: &Storage,
    mut step: impl FnMut() -> Result<T, Restart<E>>,
) -> Result<T, E> {
    let (mut vain, mut loads) = (0, 0);
    loop {
        match step() {
            Ok(done) => return Ok(done),
            Err(Restart::Error(error)) => return Err(error),
            Err(Restart::Stop(stop)) => {
                if let Stop::Load(_) = stop {
                    // On a full device the few clean frames may not hold all that a step needs:
                    // each page loaded then takes the place of another.
                    loads += 1;
                    storage.fail_if_full(loads > LOADS_MAX)?;
                }
                storage.clear_way(stop, &mut vain)?;
            }
        }
    }
}

/// An error, or a reason to start anew.
#[derive(Debug)]
pub enum Restart<E> {
    /// Start anew.
    Stop(Stop),
    /// Give up.
    Error(E),
}

impl<E> From<Stop> for Restart<E> {
    fn from(stop: Stop) -> Self {
        Restart::Stop(stop)
    }
}

impl From<Fault> for Restart<Fault> {
    fn from(fault: Fault) -> Self {
        Restart::Error(fault)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::storage::StorageOptions;
    use std::sync::Arc;
    use weir_os::SimDisk;
    use weir_page::Lsn;
    use weir_redo::Reader;

    const SEGMENT: u64 = 1 << 20;

    fn storage(disk: &SimDisk) -> Storage {
        let options = StorageOptions::small(64);
        Storage::create(Arc::new(disk.clone()), &options).unwrap()
    }

    /// A page with a value, in memory only.
    pub fn new_page(storage: &Storage) -> PageId {
        let mut mtr = storage.mtr(Need::log(256).and_pages(1)).unwrap();
        let page = mtr.create();
        mtr.log(&Redo::OverflowInit { page, data: b"value" });
        mtr.commit();
        page
    }

    /// Whether the log's last word on the page is that it is free.
    fn ends_free(disk: &SimDisk, page: PageId) -> bool {
        let mut reader = Reader::open(Arc::new(disk.clone()), 7, Lsn(SEGMENT)).unwrap();
        let mut free = false;
        while let Some(group) = reader.next().unwrap() {
            crate::storage::recovery::for_each_record(group.start, group.payload, &mut |logged| {
                match logged.redo {
                    Redo::Free { page: freed } if freed == page => free = true,
                    Redo::Relocate { moves } => {
                        let moved = weir_store::decode_relocations(moves)?;
                        free &= moved.iter().all(|moved| moved.page != page);
                    }
                    _ => {}
                }
                Ok(())
            })
            .unwrap();
        }
        free
    }

    #[test]
    fn a_number_that_somebody_is_about_to_load_is_not_given_out() {
        let storage = storage(&SimDisk::new(1));
        let freed = new_page(&storage);
        let mut mtr = storage.mtr(Need::log(256)).unwrap();
        mtr.latch(freed).unwrap();
        mtr.free(freed);
        mtr.commit();
        let claim = storage.pool.claim(storage.store.map().slot(freed), freed);
        assert!(claim.is_some(), "by a reference that was right a moment ago");
        assert_ne!(new_page(&storage), freed);
        drop(claim);
        assert_eq!(new_page(&storage), freed, "nobody is about to load it any more");
    }

    #[test]
    fn a_page_freed_while_its_new_place_is_logged_ends_free() {
        let disk = SimDisk::new(1);
        let storage = storage(&disk);
        let page = new_page(&storage);
        // The writer has written the page, and is about to log its place.
        let space = storage.log_space(1).unwrap();
        let (mut copied, mut bytes) = (Vec::new(), Vec::new());
        let frame = storage.pool.find(&storage.store, page).unwrap();
        let guard = Lsn(storage.pool.frame(frame).rec_lsn.load(Ordering::Relaxed));
        storage.copy_page(frame, &mut copied, &mut bytes);
        let batch: Vec<_> = copied.iter().map(|c| c.to_store(&bytes)).collect();
        let moved = storage.store.write_batch(&batch).unwrap();
        // Somebody has logged the page's end, and not dropped it from memory yet.
        let mut mtr = storage.mtr(Need::log(256)).unwrap();
        mtr.latch(page).unwrap();
        mtr.free(page);
        let scratch = mtr.scratch.take().unwrap();
        let freeing = register(&storage, &scratch.held, mtr.dirty.take().unwrap()).unwrap();
        let end = storage.redo.append(mtr.credit.take().unwrap(), &scratch.group).start;
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| storage.relocate(space, &copied, &moved, guard));
            // Were it not to wait, it would be through by then.
            for _ in 0..10_000 {
                std::thread::yield_now();
                if writer.is_finished() {
                    break;
                }
            }
            drop_page(&storage, &scratch.held[0], freeing, end);
            storage.pool.flush.lock().unguard(freeing);
            storage.pool.frame(frame).latch.unlock_exclusive();
            writer.join().unwrap();
        });
        storage.redo.write_step(true).unwrap();
        assert!(ends_free(&disk, page), "recovery from between the two would find the page stored");
        let mut list = storage.pool.flush.lock();
        list.trim(|lsn, frame| storage.pool.is_current(lsn, frame));
        assert_eq!((list.bound(), list.unwritten(), storage.dirty.outstanding()), (None, 0, 0));
    }
}

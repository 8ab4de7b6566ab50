//! Frames and how they are found, latched, filled and given up.
//!
//! A page is found through its slot of the page map. A frame's identity (`page`) changes only under
//! its exclusive latch, so whoever has latched a frame and finds the page it looked for may use it;
//! no pins are needed, because nobody keeps a frame without latching it. A frame that is given up
//! is used again only after an epoch has passed (`crossbeam-epoch`): an optimistic reader never
//! sees bytes being changed by anything but [`SharedPage::publish`].
//!
//! Nobody waits for a free frame or for I/O while holding a latch: what is not resident is reported
//! as [`Stop::Load`]; the caller gives up its latches, calls [`super::Storage::load`], and starts
//! anew.

use super::flush_list::FlushList;
use super::free_frames::{FreeFrames, Supply};
use super::latch::{Latch, Seen};
use crossbeam_epoch as epoch;
use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use weir_os::{Blocked, Region};
use weir_page::node::Sketch;
use weir_page::{Lsn, PAGE_SIZE, Page, PageId, SharedPage, prefetch};
use weir_store::{MapSlot, Store};

/// No frame.
pub const NO_FRAME: u32 = u32::MAX;
/// With a frame's number: the page lags behind the log, and is there for recovery alone. What is
/// less is a frame for all.
const BEHIND: u32 = 1 << 31;
/// The page lags behind the log, and is not in memory.
pub const NOWHERE_BEHIND: u32 = NO_FRAME - 1;
/// Most frames.
pub const FRAMES_MAX: usize = (NOWHERE_BEHIND & !BEHIND) as usize;

/// Where a page is that lags behind the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Not in memory.
    Nowhere,
    /// In this frame.
    In(u32),
}

/// The page has changes that are not in its image.
pub const DIRTY: u32 = 1;
/// A copy of the page is being written.
pub const WRITING: u32 = 2;
/// The page was freed while it was being written; the writer gives up the frame.
pub const FREED: u32 = 4;
/// The page is being written, and whoever frees it is about to log that, or has just done so:
/// [`FREED`] follows.
pub const FREEING: u32 = 8;

/// A page that has been changed so often since it was written is written, though nothing else asks
/// for it: whoever wants it first after a crash waits for as many groups to be read.
pub const LINKS_MAX: u16 = 1 << 15;
/// So many changes later it is asked for again: the page writer passes over what it finds latched.
const LINKS_AGAIN: u16 = 1 << 10;

/// Recent uses that count.
const HITS_MAX: u32 = 3;
/// What counts as the uses of a page that is kept before others.
pub const HITS_KEPT: u32 = 16;

/// Why an operation on pages has to start anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// A page is not resident: load it first.
    Load(PageId),
    /// The tree changed underfoot.
    Retry,
    /// The tree leads to this page, which can't be where it is. A root may just have grown; found
    /// again and again, the tree is damaged.
    Astray(PageId),
}

/// Bytes of a cache line.
const LINE: usize = 64;

// Those that find interleavings have larger atomics.
#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Frame>() == LINE, "one cache line for each frame");

/// State of one frame.
#[repr(align(64))]
#[derive(Default)]
pub struct Frame {
    /// Protects the frame's bytes and identity.
    pub latch: Latch,
    /// The page it holds, 0 for none.
    pub page: AtomicU32,
    /// The page's level: above 0, readers go without latch.
    pub level: AtomicU8,
    /// Groups of the log that have changed the page since it was written: recovery may have to
    /// follow as many.
    links: AtomicU16,
    /// [`DIRTY`], [`WRITING`], [`FREED`], [`FREEING`]; changed under the flush list's mutex.
    pub state: AtomicU32,
    /// Recent uses, for replacement.
    pub hits: AtomicU32,
    /// First change not in the image; meaningful while dirty. For `FREED`: LSN of the free.
    pub rec_lsn: AtomicU64,
    /// LSN of the page, for who looks at many frames.
    pub lsn: AtomicU64,
    /// The words of a leaf's sketch when it was last changed, for prefetches only.
    sketch: [AtomicU64; 3],
}

impl Frame {
    /// Keeps what prefetches go by, after a change of its page.
    #[inline]
    pub fn renew_sketch(&self, page: &Page) {
        self.keep_sketch(Sketch::of(page, self.sketch()));
    }

    /// The page is about to be written as it is, or new.
    pub fn cut_chain(&self) {
        self.links.store(0, Ordering::Relaxed);
    }

    /// So many groups more have changed the page, which is latched exclusively; whether it should
    /// be written for that.
    #[inline]
    #[must_use]
    pub fn add_links(&self, groups: u16) -> bool {
        let links = self.links.load(Ordering::Relaxed).saturating_add(groups);
        let is_long = links >= LINKS_MAX;
        self.links.store(if is_long { LINKS_MAX - LINKS_AGAIN } else { links }, Ordering::Relaxed);
        is_long
    }

    #[inline]
    fn keep_sketch(&self, sketch: Sketch) {
        for (kept, word) in self.sketch.iter().zip(sketch.to_words()) {
            kept.store(word, Ordering::Relaxed);
        }
    }

    #[inline]
    fn sketch(&self) -> Sketch {
        Sketch::from_words(self.sketch.each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    /// What `read` finds while nobody changes the page. Who does so is waited for.
    pub fn settled<T>(&self, read: impl Fn(&Frame) -> T) -> T {
        let mut turns = 0;
        loop {
            if let Some(seen) = self.latch.optimistic() {
                let found = read(self);
                if self.latch.validate(seen) {
                    return found;
                }
            }
            crate::sync::spin_hint(&mut turns);
        }
    }

    /// Whether the page was not used lately, for a hand that comes by: it takes one use off
    /// otherwise.
    pub fn is_cold(&self) -> bool {
        let hits = self.hits.load(Ordering::Relaxed);
        if hits > 0 {
            self.hits.store(hits - 1, Ordering::Relaxed);
        }
        hits == 0
    }

    #[inline]
    fn touch(&self) {
        let hits = self.hits.load(Ordering::Relaxed);
        if hits < HITS_MAX {
            self.hits.store(hits + 1, Ordering::Relaxed);
        }
    }

    /// The page is passed over more often than others from now on: reading it again would be dear.
    pub fn keep(&self) {
        self.hits.store(HITS_KEPT, Ordering::Relaxed);
    }
}

/// Shards of the pages that are being read: who waits for one may be woken for another of its
/// shard.
const LOADING_SHARDS: usize = 64;

/// Pages that are being read, and who waits for them.
#[derive(Default)]
struct Loading {
    /// With whether somebody waits for each: for few pages somebody does, so who waits is seldom
    /// woken for another.
    pages: Mutex<HashMap<PageId, bool>>,
    /// A claim has ended for which somebody waited.
    ended: Condvar,
}

/// All frames.
pub struct Pool {
    region: Region,
    pub(super) frames: Box<[Frame]>,
    pub(super) free: Arc<FreeFrames>,
    pub(super) flush: CachePadded<Mutex<FlushList>>,
    /// Pages that are being read, in shards by their numbers.
    loading: [CachePadded<Loading>; LOADING_SHARDS],
    pub(super) hand: CachePadded<AtomicUsize>,
    /// Where the search for cold dirty pages goes on, in the flush list.
    pub(super) cold_from: AtomicU64,
    /// Nobody reads beside the one thread: frames are free at once, and runs can be repeated.
    single_threaded: bool,
}

/// A page latched shared.
pub struct PageRead<'a> {
    pool: &'a Pool,
    frame: u32,
}

impl Drop for PageRead<'_> {
    fn drop(&mut self) {
        self.pool.frame(self.frame).latch.unlock_shared();
    }
}

impl Deref for PageRead<'_> {
    type Target = Page;
    #[inline]
    fn deref(&self) -> &Page {
        // SAFETY: the shared latch is held: nobody writes the frame.
        unsafe { &*self.pool.ptr(self.frame) }
    }
}

/// A claim to load a page, or to keep others from doing so.
pub struct Claim<'a> {
    pool: &'a Pool,
    page: PageId,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let loading = self.pool.loading(self.page);
        let is_waited_for = loading.pages.lock().remove(&self.page);
        if is_waited_for == Some(true) {
            loading.ended.notify_all();
        }
    }
}

impl Pool {
    /// Memory for so many frames.
    ///
    /// # Errors
    /// It can't be had.
    pub fn map(frames: usize) -> Result<Region, weir_os::DiskError> {
        assert!(frames <= FRAMES_MAX, "{frames} frames, {FRAMES_MAX} are the most");
        Region::map(frames * PAGE_SIZE)
    }

    /// Empty frames in that memory, and a list of the dirty ones.
    pub fn new(region: Region, flush: FlushList, single_threaded: bool) -> Pool {
        let frames = region.len() / PAGE_SIZE;
        Pool {
            region,
            frames: (0..frames).map(|_| Frame::default()).collect(),
            free: Arc::new(FreeFrames::all(frames)),
            flush: Mutex::new(flush).into(),
            loading: std::array::from_fn(|_| CachePadded::default()),
            hand: CachePadded::default(),
            cold_from: AtomicU64::new(0),
            single_threaded,
        }
    }

    /// State of a frame.
    #[inline]
    pub fn frame(&self, frame: u32) -> &Frame {
        &self.frames[frame as usize]
    }

    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.frames.len()
    }

    /// Number of free frames.
    pub fn free_frames(&self) -> usize {
        self.free.len()
    }

    /// Number of pages whose image lacks changes: dirty or being written.
    pub fn dirty_pages(&self) -> u64 {
        self.flush.lock().unwritten()
    }

    /// Address of a frame's bytes.
    #[inline]
    pub fn ptr(&self, frame: u32) -> *mut Page {
        assert!((frame as usize) < self.frames.len(), "no frame {frame}");
        // SAFETY: the region holds that many pages.
        unsafe { self.region.as_ptr().add(frame as usize * PAGE_SIZE).cast() }
    }

    /// Takes memory from the machine for frames that are about to be used for the first time;
    /// whether any were used for the first time since the last call.
    pub fn supply(&self, supply: &mut Supply) -> bool {
        let untouched = self.free.untouched();
        let in_use = untouched > supply.untouched;
        let frames = supply.next(untouched, self.frames());
        self.region.populate(frames.start * PAGE_SIZE..frames.end * PAGE_SIZE);
        in_use
    }

    /// The frame's bytes for readers without latch.
    #[inline]
    pub fn shared_page(&self, frame: u32) -> SharedPage<'_> {
        // SAFETY: the region lives as long as the pool; see the module's head for who writes how.
        unsafe { SharedPage::new(self.ptr(frame)) }
    }

    /// The frame that holds `page`, which may have changed a moment later.
    #[inline]
    pub fn find(&self, store: &Store, page: PageId) -> Result<u32, Stop> {
        match store.map().slot(page).frame.load(Ordering::Acquire) {
            frame if frame < BEHIND => Ok(frame),
            _ => Err(Stop::Load(page)),
        }
    }

    /// Where a page is that lags behind the log; `None` if it doesn't. That changes under its
    /// frame's latch, or while a claim is held.
    #[inline]
    pub fn behind(&self, slot: &MapSlot) -> Option<Behind> {
        match slot.frame.load(Ordering::Acquire) {
            NO_FRAME => None,
            NOWHERE_BEHIND => Some(Behind::Nowhere),
            frame => (frame >= BEHIND).then_some(Behind::In(frame & !BEHIND)),
        }
    }

    /// A page that is not in memory doesn't lag behind the log any more.
    pub fn forget_behind(&self, slot: &MapSlot) {
        let (from, to) = (NOWHERE_BEHIND, NO_FRAME);
        // Otherwise it has come into memory.
        let _ = slot.frame.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Takes the page of a frame out of memory. The frame is latched.
    pub fn forget_frame(&self, slot: &MapSlot, frame: u32) {
        let is_behind = slot.frame.load(Ordering::Relaxed) & BEHIND != 0;
        let gone = if is_behind { NOWHERE_BEHIND } else { NO_FRAME };
        let before = slot.frame.swap(gone, Ordering::AcqRel);
        assert_eq!(before & !BEHIND, frame, "a resident page is in the frame that its slot names");
    }

    /// Tells the CPU that a frame is about to be used: its state and the first bytes of its page.
    #[inline]
    pub fn prefetch_frame(&self, frame: u32) {
        prefetch(std::ptr::from_ref(self.frame(frame)).cast());
        let page = self.ptr(frame).cast_const().cast::<u8>();
        prefetch(page);
        prefetch(page.wrapping_add(64));
    }

    /// Tells the CPU that a key is about to be looked for in the frame's leaf.
    #[inline]
    pub fn prefetch_search(&self, frame: u32, key: &[u8]) {
        for slots in self.frame(frame).sketch().searched(key) {
            self.prefetch_bytes(frame, slots);
        }
    }

    /// Tells the CPU that a key is about to be inserted into the frame's leaf: slots are searched,
    /// those behind it moved, and an entry is added to the heap.
    #[inline]
    pub fn prefetch_insert(&self, frame: u32, key: &[u8]) {
        let sketch = self.frame(frame).sketch();
        for slots in sketch.moved(key) {
            self.prefetch_bytes(frame, slots);
        }
        let heap_top = self.ptr(frame).cast_const().cast::<u8>().wrapping_add(sketch.heap_top());
        prefetch(heap_top);
        prefetch(heap_top.wrapping_sub(LINE));
    }

    /// Tells the CPU that the frame's leaf is about to be read from slot to slot.
    #[inline]
    pub fn prefetch_slots(&self, frame: u32) {
        self.prefetch_bytes(frame, self.frame(frame).sketch().all());
    }

    #[inline]
    fn prefetch_bytes(&self, frame: u32, bytes: Range<usize>) {
        let page = self.ptr(frame).cast_const().cast::<u8>();
        for at in (bytes.start & !(LINE - 1)..bytes.end).step_by(LINE) {
            prefetch(page.wrapping_add(at));
        }
    }

    /// Tells the CPU that it is about to be asked where a page is.
    #[inline]
    pub fn prefetch_slot(&self, slot: &MapSlot) {
        prefetch(std::ptr::from_ref(slot).cast());
    }

    /// Whether a frame's page has unwritten changes.
    #[inline]
    pub fn is_dirty(&self, frame: u32) -> bool {
        self.frame(frame).state.load(Ordering::Relaxed) & DIRTY != 0
    }

    /// Whether a frame still holds `page`.
    #[inline]
    pub fn holds(&self, frame: u32, page: PageId) -> bool {
        self.frame(frame).page.load(Ordering::Acquire) == page.0
    }

    /// Version of the frame if it holds `page`, for a read without latch.
    #[inline]
    pub fn optimistic(&self, frame: u32, page: PageId) -> Result<Seen, Stop> {
        let state = self.frame(frame);
        let mut turns = 0;
        let seen = loop {
            match state.latch.optimistic() {
                Some(seen) => break seen,
                None => crate::sync::spin_hint(&mut turns),
            }
        };
        if !self.holds(frame, page) {
            return Err(Stop::Retry);
        }
        if state.hits.load(Ordering::Relaxed) == 0 {
            state.touch();
        }
        Ok(seen)
    }

    /// Latches a resident page shared. `scan` leaves its standing for replacement as it is.
    #[inline]
    pub fn read(&self, store: &Store, page: PageId, scan: bool) -> Result<PageRead<'_>, Stop> {
        let frame = self.find(store, page)?;
        self.read_frame(frame, page, scan).ok_or(Stop::Retry)
    }

    /// Latches a frame shared if it holds `page`.
    #[inline]
    pub fn read_frame(&self, frame: u32, page: PageId, scan: bool) -> Option<PageRead<'_>> {
        let state = self.frame(frame);
        state.latch.shared();
        let read = PageRead { pool: self, frame };
        if !self.holds(frame, page) {
            return None;
        }
        if !scan {
            state.touch();
        }
        Some(read)
    }

    /// Latches a resident page exclusively.
    #[inline]
    pub fn latch(&self, store: &Store, page: PageId) -> Result<u32, Stop> {
        let frame = self.find(store, page)?;
        if self.latch_frame(frame, page) { Ok(frame) } else { Err(Stop::Retry) }
    }

    /// Latches a frame exclusively if it holds `page`.
    #[inline]
    pub fn latch_frame(&self, frame: u32, page: PageId) -> bool {
        let state = self.frame(frame);
        state.latch.exclusive();
        if !self.holds(frame, page) {
            state.latch.unlock_unchanged();
            return false;
        }
        state.touch();
        true
    }

    /// As [`Pool::latch_frame`], if that needs no wait.
    #[inline]
    pub fn try_latch_frame(&self, frame: u32, page: PageId) -> bool {
        let state = self.frame(frame);
        if !state.latch.try_exclusive() {
            return false;
        }
        if !self.holds(frame, page) {
            state.latch.unlock_unchanged();
            return false;
        }
        state.touch();
        true
    }

    fn loading(&self, page: PageId) -> &Loading {
        &self.loading[page.0 as usize % LOADING_SHARDS]
    }

    /// Keeps others from loading `page`; waits for those who do. `None` if it is resident, for all.
    pub fn claim(&self, slot: &MapSlot, page: PageId) -> Option<Claim<'_>> {
        let mut blocked = None;
        let loading = self.loading(page);
        let mut pages = loading.pages.lock();
        loop {
            if slot.frame.load(Ordering::Acquire) < BEHIND {
                return None;
            }
            let Some(is_waited_for) = pages.get_mut(&page) else {
                pages.insert(page, false);
                return Some(Claim { pool: self, page });
            };
            if blocked.is_some() {
                *is_waited_for = true;
                loading.ended.wait(&mut pages);
            } else {
                blocked = Some(MutexGuard::unlocked(&mut pages, Blocked::begin));
            }
        }
    }

    /// As [`Pool::claim`], but `None` also if somebody else has a claim, or the page is there for
    /// recovery.
    pub fn try_claim(&self, slot: &MapSlot, page: PageId) -> Option<Claim<'_>> {
        let mut pages = self.loading(page).pages.lock();
        if slot.frame.load(Ordering::Acquire) < NOWHERE_BEHIND || pages.contains_key(&page) {
            return None;
        }
        pages.insert(page, false);
        Some(Claim { pool: self, page })
    }

    /// Makes a latched frame of ours the home of a new page, unless somebody has a claim to load
    /// it.
    pub fn settle(&self, slot: &MapSlot, page: PageId, frame: u32) -> bool {
        // Held until the frame is known: whoever claims the page later finds that it is resident.
        let pages = self.loading(page).pages.lock();
        if pages.contains_key(&page) {
            return false;
        }
        self.frame(frame).page.store(page.0, Ordering::Relaxed);
        let before = slot.frame.swap(frame, Ordering::AcqRel);
        assert_eq!(before, NO_FRAME, "a new page is nowhere in memory");
        true
    }

    /// Makes a filled frame of ours the home of the claimed page: for recovery alone, if it lags
    /// behind the log.
    pub fn publish(&self, slot: &MapSlot, claim: &Claim<'_>, frame: u32, hits: u32) {
        let state = self.frame(frame);
        // The evictor keeps off until both frame and slot say where the page is.
        state.latch.exclusive();
        // SAFETY: the frame is ours until it is published.
        let page = unsafe { &*self.ptr(frame) };
        state.level.store(page.level(), Ordering::Relaxed);
        state.cut_chain();
        state.keep_sketch(Sketch::of(page, Sketch::default()));
        state.hits.store(hits, Ordering::Relaxed);
        state.state.store(0, Ordering::Relaxed);
        state.lsn.store(page.lsn().0, Ordering::Relaxed);
        // Who finds the page in the frame, by whatever way it came, sees its bytes.
        state.page.store(claim.page.0, Ordering::Release);
        let place = |now| match now {
            NO_FRAME => Some(frame),
            NOWHERE_BEHIND => Some(frame | BEHIND),
            _ => None,
        };
        let before = slot.frame.fetch_update(Ordering::AcqRel, Ordering::Relaxed, place);
        before.expect("a claimed page comes into memory in no other way");
        state.latch.unlock_exclusive();
    }

    /// Gives frames up: they are free once no optimistic reader can know them any more. Their
    /// identity is cleared and their slots empty; the caller holds their latches or is the only one
    /// to know them. Many at once come free at once: an epoch's end frees few things that were
    /// given up one by one.
    pub fn retire(&self, frames: Vec<u32>) {
        if self.single_threaded {
            return self.free.push(&frames);
        }
        let free = self.free.clone();
        free.expect(frames.len());
        let guard = epoch::pin();
        guard.defer(move || free.arrive(&frames));
        // Left in this thread's own bag, frames would be lost for as long as the thread is idle.
        guard.flush();
    }

    /// Lets retired frames become free soon.
    pub fn reclaim(&self) {
        for _ in 0..4 {
            epoch::pin().flush();
        }
    }

    /// Whether a flush list entry still says the truth.
    pub fn is_current(&self, lsn: Lsn, frame: u32) -> bool {
        let f = self.frame(frame);
        f.state.load(Ordering::Relaxed) & DIRTY != 0 && f.rec_lsn.load(Ordering::Relaxed) == lsn.0
    }
}

//! Recovery of pages, from the newest checkpoint to the end of the log, while the database is open.
//!
//! Before it opens, the log is read for its end, for the places of images, and for the pages that
//! lag *behind* it ([`analysis`]): not all of it, as a rule, since dirty pages are noted now and
//! then ([`table`]). Such a page is nowhere for anybody but recovery: its slot of the page map says
//! so ([`super::pool::Behind`]), whoever wants it has to load it, and loading it applies what the
//! log has for it, read along the chain of its records ([`catch_up`]). Meanwhile a background
//! thread applies the log in one pass, stretch by stretch ([`pass`]), and the checkpoint follows
//! it. At its end no page is behind any more.
//!
//! A damaged page stops it, unless it was told to give such pages up: all of this is done before
//! the database opens then.
//!
//! Pages that are behind are written and evicted as they are, like any others. Recovery may stop at
//! any point and run again.

mod analysis;
mod catch_up;
mod pass;
mod table;

pub use analysis::for_each_record;

use super::dirty::Reserved;
use super::pool::{Behind, Claim, DIRTY, NOWHERE_BEHIND, Pool, WRITING};
use super::{Fault, REDO_CAPACITY, Storage, StorageOptions};
use analysis::Lag;
use parking_lot::Mutex;
use pass::Pass;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use table::Table;
use weir_os::Disk;
use weir_page::{Kind, Logged, Lsn, Page, PageId, Redo};
use weir_redo::RedoOptions;
use weir_store::{MapSlot, Store, StoreOptions};

/// How far recovery is, for progress reports.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What is being done: `analysis`, before the database opens, or `redo`, while it is open.
    pub phase: &'static str,
    /// Where the log began.
    pub from: Lsn,
    /// Where recovery is.
    pub at: Lsn,
    /// End of the log, once known.
    pub end: Option<Lsn>,
}

/// Is told of progress, in whichever thread makes it.
#[derive(Clone, Default)]
pub struct OnProgress(pub Option<Arc<dyn Fn(Progress) + Send + Sync>>);

impl OnProgress {
    fn tell(&self, progress: Progress) {
        if let Some(tell) = &self.0 {
            tell(progress);
        }
    }
}

impl fmt::Debug for OnProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "somebody" } else { "nobody" })
    }
}

/// What recovery has done and has to do.
#[derive(Debug, Default)]
pub struct RecoveryFigures {
    /// Bytes of log from the checkpoint to the end, when the database was opened.
    pub log_bytes: AtomicU64,
    /// Bytes of them that the pass has not come to.
    pub left_bytes: AtomicU64,
    /// Records applied.
    pub applied: AtomicU64,
    /// Pages brought up to date because somebody wanted them.
    pub on_demand: AtomicU64,
    /// Damaged pages that were emptied.
    pub given_up: AtomicU64,
    /// Transactions of which nobody knows, or that could not be taken back whole, because of
    /// damage.
    pub half_done: AtomicU64,
}

/// A recovery that goes on.
pub(super) struct Recovery {
    /// The log that there was when the database was opened.
    from: Lsn,
    end: Lsn,
    /// Of all pages that it tells of; a slot's tag is a number in it, from 1 on.
    lags: Vec<Lag>,
    pass: Mutex<Pass>,
}

impl Recovery {
    /// What the log tells of a page that it tells of.
    fn lag(&self, slot: &MapSlot) -> &Lag {
        &self.lags[slot.tag.load(Ordering::Relaxed) as usize - 1]
    }
}

impl Storage {
    /// Opens what is stored. Its pages are brought up to date when they are wanted, and by
    /// [`Storage::recovery_step`].
    ///
    /// # Errors
    /// Damaged or missing files, a newer format, a full device; what is durable stays as it is.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: &StorageOptions,
        on_progress: OnProgress,
    ) -> Result<Storage, Fault> {
        // Before any file is changed: it may not be had.
        let memory = Pool::map(options.frames)?;
        if disk.list()?.iter().any(|n| n == super::CREATING) {
            super::forget_creation(&*disk)?;
        }
        let store_options = StoreOptions { compression: options.compression };
        let (store, control) = Store::open(disk.clone(), store_options)?;
        // What was read must be durable before anything relies on it.
        weir_redo::sync_all(&*disk)?;
        let table = Table::read(&*disk, control.database_id);
        let counts = |table: &Table| table.at == control.dirty_table;
        let table = table.filter(|table| counts(table) && table.at >= control.checkpoint);
        let tabled = table.as_ref().map_or(Lsn(0), |table| table.at);
        let analysis = analysis::analyse(&disk, &store, &control, table, &on_progress)?;
        store.derive_space()?;
        let redo_options = RedoOptions {
            database_id: control.database_id,
            capacity_bytes: match options.keep_redo_capacity {
                // Whatever damage may say.
                true => control.redo_capacity.clamp(REDO_CAPACITY.0, REDO_CAPACITY.1),
                false => options.redo.capacity_bytes,
            },
            ..options.redo.clone()
        };
        let (from, end) = (control.checkpoint, analysis.end);
        // If there is no space for it, nothing has changed.
        let redo = weir_redo::Redo::open_at(disk.clone(), &redo_options, from, end)?;
        store.end_recovery()?;
        let mut storage = Storage::assemble(disk, memory, store, redo, options, &control);
        storage.next_txn.store(analysis.next_txn.0, Ordering::Release);
        storage.tabled.store(tabled.0, Ordering::Relaxed);
        if from < end {
            let pass = Mutex::new(Pass::new(&storage, from, end, on_progress)?);
            let recovery = Recovery { from, end, lags: analysis.lags, pass };
            storage.begin_recovery(recovery);
        }
        Ok(storage)
    }

    fn begin_recovery(&mut self, mut recovery: Recovery) {
        let bytes = recovery.end.0 - recovery.from.0;
        self.recovery_figures.log_bytes.store(bytes, Ordering::Relaxed);
        self.recovery_figures.left_bytes.store(bytes, Ordering::Relaxed);
        for lag in recovery.lags.iter().filter(|lag| lag.is_behind()) {
            self.store.map().slot(lag.page).frame.store(NOWHERE_BEHIND, Ordering::Relaxed);
            // Whatever has become of its image.
            self.store.recover_allocated(lag.page);
        }
        self.replayed.store(recovery.from.0, Ordering::Release);
        self.pool.flush.lock().expect_recovered(recovery.end);
        recovery.pass.get_mut().tell(recovery.from, recovery.end, recovery.from);
        *self.recovery.get_mut() = Some(Arc::new(recovery));
    }

    /// What goes on, if anything.
    fn recovery(&self) -> Option<Arc<Recovery>> {
        self.recovery.lock().clone()
    }

    /// Whether some of the log has still to be applied.
    pub fn is_recovering(&self) -> bool {
        self.replayed.load(Ordering::Acquire) != u64::MAX
    }

    /// Applies the next `bytes` of the log, about; whether there is more.
    ///
    /// # Errors
    /// What keeps it from going on. It may be called again if there was no space.
    pub fn recovery_step(&self, bytes: usize) -> Result<bool, Fault> {
        let Some(recovery) = self.recovery() else { return Ok(false) };
        let mut pass = recovery.pass.lock();
        if self.pass_on(&recovery, &mut pass, bytes)? {
            return Ok(true);
        }
        if self.is_recovering() {
            self.end_recovery(&recovery)?;
        }
        Ok(false)
    }

    /// Applies all of the log, or waits until others have.
    ///
    /// # Errors
    /// Those of [`Storage::recovery_step`] and [`Storage::check`].
    pub fn finish_recovery(&self) -> Result<(), Fault> {
        while self.is_recovering() {
            self.check()?;
            self.recovery_step(self.stretch_bytes())?;
        }
        Ok(())
    }

    /// No page is behind any more.
    fn end_recovery(&self, recovery: &Recovery) -> Result<(), Fault> {
        for lag in recovery.lags.iter().filter(|lag| lag.is_behind()) {
            let slot = self.store.map().slot(lag.page);
            while let Some(place) = self.pool.behind(slot) {
                match place {
                    Behind::Nowhere if lag.blank.load(Ordering::Acquire) => {
                        self.end_unmade(lag, slot)?;
                    }
                    Behind::Nowhere => self.pool.forget_behind(slot),
                    Behind::In(frame) => {
                        let Some(mut latched) = self.latch_behind(lag, slot, frame) else {
                            continue;
                        };
                        if latched.page().lsn() < lag.last {
                            drop(latched);
                            self.end_unmade(lag, slot)?;
                            continue;
                        }
                        latched.reveal(slot);
                    }
                }
            }
        }
        self.replayed.store(u64::MAX, Ordering::Release);
        *self.recovery.lock() = None;
        Ok(())
    }

    /// The log has ended, and the page is not what it makes of it.
    fn end_unmade(&self, lag: &Lag, slot: &MapSlot) -> Result<(), Fault> {
        let fault = unmade(lag);
        if self.gives_up(&fault) { self.catch_up(lag.page, slot) } else { Err(fault) }
    }

    /// Latches a page that is behind, if it still is, and in this frame.
    fn latch_behind(&self, lag: &Lag, slot: &MapSlot, frame: u32) -> Option<Latched<'_>> {
        if !self.pool.latch_frame(frame, lag.page) {
            return None;
        }
        let latched = Latched { pool: &self.pool, frame };
        // It stops being behind under its latch only.
        (self.pool.behind(slot) == Some(Behind::In(frame))).then_some(latched)
    }

    /// Brings a page that is behind and not in memory into a frame, as it is stored; blank if
    /// nothing of that is needed.
    fn bring_in(&self, lag: &Lag, slot: &MapSlot, claim: &Claim<'_>) -> Result<(), Fault> {
        if !lag.blank.load(Ordering::Acquire) {
            let loaded = self.load_claimed(lag.page, slot, claim);
            match loaded.and_then(
                |is_stored| if is_stored { Ok(()) } else { Err(self.lost_page(lag.page)) },
            ) {
                // Records that don't make it anew then don't continue it.
                Err(fault) if self.gives_up(&fault) => lag.blank.store(true, Ordering::Release),
                loaded => return loaded,
            }
        }
        let frame = self.take_frame()?;
        // SAFETY: the frame is free and ours alone until it is published.
        let page = unsafe { &mut *self.pool.ptr(frame) };
        page.set_lsn(Lsn(0));
        page.reset(lag.page, Kind::Blank, 0);
        self.pool.publish(slot, claim, frame, 1);
        Ok(())
    }

    /// Applies those of these groups, in order, that the page lacks. `false` if one of them doesn't
    /// continue what the page is then.
    ///
    /// # Errors
    /// A group can't be applied. The database has stopped then: the page may be changed by half.
    fn apply(
        &self,
        lag: &Lag,
        latched: &mut Latched<'_>,
        credits: Reserved<'_>,
        groups: &[(Lsn, &[u8])],
    ) -> Result<bool, Fault> {
        let (mut applied, mut links, mut continues) = (0, 0u16, true);
        let page = latched.page();
        let have = page.lsn();
        for &(lsn, payload) in groups.iter().filter(|group| group.0 > have) {
            let of_group = match apply_group(lag.page, lsn, payload, page) {
                Ok(Some(of_group)) => of_group,
                Ok(None) => {
                    continues = false;
                    break;
                }
                Err(fault) if self.gives_up(&fault) => {
                    self.give_up(lag, latched, credits);
                    return Ok(true);
                }
                Err(fault) => {
                    self.stop(fault.clone());
                    return Err(fault);
                }
            };
            page.set_lsn(lsn);
            applied += of_group;
            links = links.saturating_add(1);
        }
        if applied > 0 {
            self.recovery_figures.applied.fetch_add(applied, Ordering::Relaxed);
            self.note_change(lag, latched, credits, links);
        }
        Ok(continues)
    }

    /// Empties a page that can't be made what it was: whoever wants it finds that it is damaged.
    fn give_up(&self, lag: &Lag, latched: &mut Latched<'_>, credits: Reserved<'_>) {
        let page = latched.page();
        page.reset(lag.page, Kind::Blank, 0);
        page.set_lsn(lag.last);
        self.recovery_figures.given_up.fetch_add(1, Ordering::Relaxed);
        self.note_change(lag, latched, credits, 1);
    }

    /// Notes that `links` groups have changed a page.
    fn note_change(&self, lag: &Lag, latched: &mut Latched<'_>, credits: Reserved<'_>, links: u16) {
        let frame = latched.frame;
        let page = latched.page();
        let state = self.pool.frame(frame);
        state.level.store(page.level(), Ordering::Release);
        state.lsn.store(page.lsn().0, Ordering::Relaxed);
        lag.blank.store(false, Ordering::Release);
        let is_hot = state.add_links(links);
        let mut list = self.pool.flush.lock();
        if state.state.load(Ordering::Relaxed) & DIRTY == 0 {
            // The pass doesn't come by a change that a page lacks: all that were just made lie
            // behind.
            let rec_lsn = Lsn(self.replayed.load(Ordering::Acquire));
            state.rec_lsn.store(rec_lsn.0, Ordering::Relaxed);
            let again = state.state.fetch_or(DIRTY, Ordering::Relaxed) & WRITING != 0;
            list.push_recovered(rec_lsn, frame, again);
            credits.spend(u64::from(!again));
        }
        drop(list);
        if is_hot {
            self.cut_chain_of(frame);
        }
    }
}

/// A page that is behind, latched exclusively.
struct Latched<'a> {
    pool: &'a Pool,
    frame: u32,
}

impl Latched<'_> {
    fn page(&mut self) -> &mut Page {
        // SAFETY: the frame's exclusive latch is held, and readers without latch don't know it.
        unsafe { &mut *self.pool.ptr(self.frame) }
    }

    /// The page is up to date: from now on it is there for all.
    fn reveal(mut self, slot: &MapSlot) {
        let state = self.pool.frame(self.frame);
        state.renew_sketch(self.page());
        slot.frame.store(self.frame, Ordering::Release);
    }
}

impl Drop for Latched<'_> {
    fn drop(&mut self) {
        self.pool.frame(self.frame).latch.unlock_exclusive();
    }
}

/// Applies what a group has for a page; the number of records. `None` if it doesn't continue what
/// the page is.
fn apply_group(
    id: PageId,
    lsn: Lsn,
    payload: &[u8],
    page: &mut Page,
) -> Result<Option<u64>, Fault> {
    let (mut applied, mut continues) = (0, true);
    for_each_record(lsn, payload, &mut |logged| {
        let Some(prev) = prev_of(logged, id) else { return Ok(()) };
        let redo = &logged.redo;
        if applied == 0 {
            continues = redo.initialises() || page.lsn() == prev;
        }
        if !continues {
            return Ok(());
        }
        redo.check(id, page).map_err(|what| misfit(lsn, id, &what))?;
        redo.apply(id, page);
        if let Redo::Image { .. } = redo {
            page.check_bounds().map_err(|what| misfit(lsn, id, &what))?;
        }
        applied += 1;
        Ok(())
    })?;
    Ok(continues.then_some(applied))
}

/// The LSN that a page has before this record, if the record is about it.
fn prev_of(logged: &Logged<'_>, page: PageId) -> Option<Lsn> {
    let redo = &logged.redo;
    if redo.page() == Some(page) {
        return Some(logged.prev);
    }
    (redo.second_page() == Some(page)).then_some(logged.prev_undo)
}

/// A record continues another state of its page than the one that is there: an image or a part of
/// the log was lost.
fn broken_chain(lsn: Lsn, page: PageId, prev: Lsn, found: Lsn) -> Fault {
    let what =
        format!("it changes page {page} as of LSN {prev}, but the page is as of LSN {found}");
    Fault::Record { lsn, what }
}

/// The log ends, and no record makes the page what others rely on.
fn unmade(lag: &Lag) -> Fault {
    let what = format!("page {} is not what the log makes of it, nor is it stored", lag.page);
    Fault::Record { lsn: lag.last, what }
}

/// A record can't be applied to its page, though both are as they were written.
#[cold]
fn misfit(lsn: Lsn, page: PageId, what: &str) -> Fault {
    Fault::Record { lsn, what: format!("it can't be applied to page {page}: {what}") }
}

#[cfg(test)]
mod tests {
    use super::super::frames::LEFT_TO_RECOVERY;
    use super::super::mtr::tests::new_page;
    use super::super::pool::LINKS_MAX;
    use super::super::{Background, Need, Reason, Restart, retry};
    use super::*;
    use weir_os::{Create, Mode, SimDisk};
    use weir_page::Before;
    use weir_redo::{Admission, RedoError};

    /// What a killed process leaves, in which a page was at this LSN in memory.
    struct Logged {
        disk: SimDisk,
        page: PageId,
        lsn: Lsn,
    }

    impl Logged {
        fn of(disk: &SimDisk, storage: &Storage, page: PageId) -> Logged {
            let lsn = || Ok::<_, Restart<Fault>>(storage.read(page, true)?.lsn());
            Logged { disk: disk.clone(), page, lsn: retry(storage, lsn).unwrap() }
        }

        fn open(&self) -> Storage {
            let disk = Arc::new(self.disk.process_kill());
            Storage::open(disk, &StorageOptions::small(64), OnProgress::default()).unwrap()
        }
    }

    fn create() -> (SimDisk, Storage, PageId) {
        let disk = SimDisk::new(1);
        let options = StorageOptions::small(64);
        let storage = Storage::create(Arc::new(disk.clone()), &options).unwrap();
        let page = new_page(&storage);
        (disk, storage, page)
    }

    /// Logs a group of these records without changing a page; its LSN.
    fn log(storage: &Storage, prev: Lsn, records: &[Redo<'_>]) -> Lsn {
        let (mut group, mut before) = (Vec::new(), Before::default());
        records.iter().for_each(|redo| redo.encode(prev, Lsn(0), &mut before, &mut group));
        let credit = storage.redo.try_admit(group.len(), Admission::User).unwrap();
        let lsn = storage.redo.append(credit, &group).start;
        storage.redo.write_step(true).unwrap();
        lsn
    }

    fn change(storage: &Storage, page: PageId, records: &[Redo<'_>]) {
        let change = || {
            let mut mtr = storage.mtr(Need::log(1 << 10))?;
            mtr.latch(page)?;
            records.iter().for_each(|redo| mtr.log(redo));
            mtr.commit();
            Ok::<_, Restart<Fault>>(())
        };
        retry(storage, change).unwrap();
    }

    type Step = fn(&Storage, PageId) -> Result<(), Fault>;

    /// By who wants the page, and by the pass.
    const STEPS: [Step; 2] = [|s, page| s.load(page).map(drop), |s, _| s.finish_recovery()];

    #[test]
    fn a_record_that_does_not_fit_its_page_is_refused() {
        let (disk, storage, page) = create();
        let logged = Logged::of(&disk, &storage, page);
        let lsn = log(&storage, logged.lsn, &[Redo::Remove { page, slot: 9 }]);
        let wanted = format!("redo record at LSN {lsn}: it can't be applied to page {page}: ");
        for step in STEPS {
            let storage = logged.open();
            let fault = step(&storage, page).unwrap_err();
            assert!(fault.is_corrupt() && fault.to_string().starts_with(&wanted), "{fault}");
            assert!(storage.check().is_err(), "the page may be changed by half");
        }
    }

    /// The log was said to be cut, in no file.
    #[test]
    fn an_older_image_than_the_log_continues_is_told() {
        let (disk, storage, page) = create();
        let logged = Logged::of(&disk, &storage, page);
        let later = log(&storage, logged.lsn, &[Redo::OverflowInit { page, data: b"later" }]);
        storage.flush_all(Reason::Checkpoint, &mut |_| {}).unwrap();
        let lsn = log(&storage, later, &[Redo::OverflowLink { page, next: PageId(9) }]);
        assert!(storage.redo.checkpoint() > later);
        let found = logged.lsn;
        let wanted = format!(
            "redo record at LSN {lsn}: it changes page {page} as of LSN {later}, but the page is as of LSN {found}"
        );
        for step in STEPS {
            let fault = step(&logged.open(), logged.page).unwrap_err();
            assert_eq!(fault.to_string(), wanted);
        }
    }

    /// It was given to a new page, and the process ended.
    #[test]
    fn the_number_of_a_page_that_was_lost_is_in_use() {
        let (disk, storage, page) = create();
        let lost = PageId(page.0 + 1);
        log(&storage, Lsn(8), &[Redo::OverflowLink { page: lost, next: page }]);
        let storage = Logged::of(&disk, &storage, page).open();
        assert_ne!(new_page(&storage), lost);
        let fault = storage.finish_recovery().unwrap_err();
        assert!(fault.to_string().starts_with(&format!("page {lost}: is needed, but ")), "{fault}");
    }

    #[test]
    fn a_page_that_is_changed_by_half_is_not_written() {
        let (disk, storage, page) = create();
        let logged = Logged::of(&disk, &storage, page);
        let link = Redo::OverflowLink { page, next: PageId(9) };
        let lsn = log(&storage, logged.lsn, &[link]);
        log(&storage, lsn, &[link, Redo::Remove { page, slot: 9 }]);
        let storage = logged.open();
        while storage.recovery_step(1).is_ok_and(|goes_on| goes_on) {}
        assert!(storage.check().is_err());
        assert_eq!(storage.pool.dirty_pages(), 1, "as of the group before");
        assert_eq!(storage.write_next(1, Reason::Checkpoint).unwrap(), 0);
    }

    /// Its image is damaged, and the pass had passed over the record that makes it anew when the
    /// checkpoint moved.
    #[test]
    fn a_page_made_anew_instead_of_its_damaged_image_outlives_a_crash() {
        let (disk, storage, page) = create();
        assert!(storage.write_next(8, Reason::Checkpoint).unwrap() >= 1);
        storage.redo.write_step(true).unwrap();
        let images = disk.open("data", Create::No, Mode::Cached).unwrap().len().unwrap();
        let other = new_page(&storage);
        (0..40).for_each(|_| {
            change(&storage, other, &[Redo::OverflowInit { page: other, data: &[1; 900] }]);
        });
        change(&storage, page, &[Redo::OverflowLink { page, next: PageId(9) }]);
        storage.redo.write_step(true).unwrap();
        let mut disk = disk.process_kill();
        (0..images).step_by(4096).for_each(|at| disk.rot("data", at + 40, 3).unwrap());
        let options = StorageOptions { give_up_damaged: true, ..StorageOptions::small(64) };
        for _ in 0..2 {
            let disk_now = Arc::new(disk.clone());
            let storage = Storage::open(disk_now, &options, OnProgress::default()).unwrap();
            while storage.recovery_step(1024).unwrap() {
                storage.checkpoint().unwrap();
            }
            assert_eq!(storage.recovery_figures.given_up.load(Ordering::Relaxed), 0);
            storage.checkpoint().unwrap();
            storage.redo.write_step(true).unwrap();
            assert!(storage.load(page).unwrap());
            disk = disk.process_kill();
        }
    }

    /// It was said to be open from then on: a damaged map block would have passed for a write cut
    /// short.
    #[test]
    fn a_database_whose_log_finds_no_space_stays_cleanly_shut_down() {
        let (disk, storage, _) = create();
        storage.flush_all(Reason::Checkpoint, &mut |_| {}).unwrap();
        storage.note_clean().unwrap();
        drop(storage);
        disk.set_capacity(Some(disk.used_bytes()));
        let mut options = StorageOptions::small(64);
        options.redo.capacity_bytes *= 2;
        let open = |options| Storage::open(Arc::new(disk.clone()), options, OnProgress::default());
        let is_clean = || {
            let store_options = StoreOptions { compression: options.compression };
            Store::open(Arc::new(disk.clone()), store_options).unwrap().1.clean
        };
        let full = open(&options).map(drop).unwrap_err();
        assert!(matches!(full, Fault::Redo(RedoError::NoSpace { .. })), "{full}");
        assert!(is_clean());
        open(&StorageOptions::small(64)).unwrap();
        assert!(!is_clean());
    }

    /// Who waited for space in the log, which recovery was to free, had all the frames that it
    /// needed.
    #[test]
    fn recovery_has_frames_whoever_waits_for_it() {
        let (disk, storage, page) = create();
        let other = new_page(&storage);
        let mut logged = Logged::of(&disk, &storage, page);
        while storage.redo.checkpoint_age() < storage.redo.user_capacity() - (40 << 10) {
            let link = Redo::OverflowLink { page, next: other };
            let long = Redo::OverflowInit { page: other, data: &[1; 8 << 10] };
            logged.lsn = log(&storage, logged.lsn, &[link, long]);
        }
        let storage = Arc::new(logged.open());
        let ends = std::thread::scope(|scope| {
            let write = || storage.mtr(Need::log(60_000).and_pages(2)).map(drop);
            let writers: Vec<_> = (0..40).map(|_| scope.spawn(write)).collect();
            while storage.pool.free_frames() > LEFT_TO_RECOVERY + 1 {
                std::thread::yield_now();
            }
            let background = Background::start(&storage).unwrap();
            let ends = (0..10_000).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(1));
                !storage.is_recovering() && writers.iter().all(|writer| writer.is_finished())
            });
            if !ends {
                storage.stop(Fault::Closed);
            }
            drop(background);
            ends
        });
        assert!(ends);
    }

    /// One page is changed for ever, and nothing else asks for a write: neither the log's space nor
    /// memory.
    #[test]
    fn a_page_that_changes_all_the_time_is_soon_caught_up() {
        let disk = SimDisk::new(1);
        let mut options = StorageOptions::small(64);
        options.redo.capacity_bytes = 64 << 20;
        let storage = Storage::create(Arc::new(disk.clone()), &options).unwrap();
        let storage = Arc::new(storage);
        let page = new_page(&storage);
        let background = Background::start(&storage).unwrap();
        let link = Redo::OverflowLink { page, next: PageId(9) };
        let changes = (1..1 << 20).find(|_| {
            change(&storage, page, &[link]);
            storage.figures.written_for_deadline.load(Ordering::Relaxed) > 0
        });
        assert!(changes >= Some(u64::from(LINKS_MAX) - 1), "{changes:?}");
        change(&storage, page, &[link]);
        let logged = Logged::of(&disk, &storage, page);
        drop(background);
        storage.redo.write_step(true).unwrap();
        let storage = logged.open();
        storage.load(page).unwrap();
        assert_eq!(Logged::of(&disk, &storage, page).lsn, logged.lsn);
        let applied = storage.recovery_figures.applied.load(Ordering::Relaxed);
        assert!((1..u64::from(LINKS_MAX)).contains(&applied), "{applied} of {changes:?}");
    }

    #[test]
    fn a_full_device_takes_no_table_and_that_is_all() {
        let (disk, storage, _) = create();
        assert!(storage.note_dirty_pages().unwrap());
        let before = storage.tabled.load(Ordering::Relaxed);
        disk.set_capacity(Some(disk.used_bytes()));
        new_page(&storage);
        assert!(!storage.note_dirty_pages().unwrap());
        assert!(!disk.list().unwrap().iter().any(|name| name == "dirty.new"));
        assert_eq!(storage.tabled.load(Ordering::Relaxed), before, "the one before counts");
        disk.set_capacity(None);
        assert!(storage.note_dirty_pages().unwrap());
    }

    /// The control file hadn't been told of it, and a log that ends in damage was taken for one
    /// that ends there.
    #[test]
    fn what_the_page_map_tells_of_was_in_the_log() {
        let (disk, storage, _) = create();
        let moved = storage.redo.reserved();
        assert_eq!(storage.write_next(1, Reason::Checkpoint).unwrap(), 1);
        storage.persist_map(storage.redo.reserved()).unwrap();
        let segment = disk.list().unwrap().into_iter().find(|n| n.starts_with("redo-")).unwrap();
        let start = storage.redo.segment_bytes();
        disk.rot(&segment, 4096 + moved.0 - start + 16, 3).unwrap();
        let (disk, options) = (Arc::new(disk.process_kill()), StorageOptions::small(64));
        let fault = Storage::open(disk, &options, OnProgress::default()).err().unwrap();
        assert!(matches!(fault, Fault::Redo(RedoError::Cut { .. })), "{fault}");
    }

    /// With a dirty page table nobody reads it before the database is open.
    #[test]
    fn damage_of_the_log_before_the_table_is_told_with_its_place() {
        let (disk, storage, page) = create();
        let logged = Logged::of(&disk, &storage, page);
        assert!(storage.note_dirty_pages().unwrap());
        let segment = disk.list().unwrap().into_iter().find(|n| n.starts_with("redo-")).unwrap();
        disk.rot(&segment, 4096 + 16, 3).unwrap();
        for step in STEPS {
            let fault = step(&logged.open(), page).unwrap_err();
            assert!(matches!(fault, Fault::Redo(RedoError::Cut { .. })), "{fault}");
            assert!(fault.to_string().contains(&segment), "{fault}");
        }
    }

    /// The older slot was taken for what there was, and the log doesn't tell all that the newer one
    /// did: some of that is from before the checkpoint, or the dirty page table. Older images were
    /// taken for pages.
    #[test]
    fn a_rotten_map_block_that_was_synced_is_no_write_cut_short() {
        for with_table in [false, true] {
            let (disk, storage, page) = create();
            let others = [new_page(&storage), new_page(&storage)];
            storage.flush_all(Reason::Checkpoint, &mut |_| {}).unwrap();
            let rewrite = |page| {
                change(&storage, page, &[Redo::OverflowLink { page, next: PageId(9) }]);
                let frame = storage.pool.find(&storage.store, page).unwrap();
                assert_eq!(storage.write_pages(&[frame], Reason::Checkpoint).unwrap(), 1);
            };
            let dirty = [Redo::OverflowLink { page: others[0], next: PageId(9) }];
            // What keeps the checkpoint from the place of the last image, and from that of the
            // first, too.
            if with_table {
                change(&storage, others[0], &dirty);
            }
            rewrite(page);
            if !with_table {
                change(&storage, others[0], &dirty);
            }
            rewrite(others[1]);
            storage.checkpoint().unwrap();
            assert_eq!(storage.note_dirty_pages().unwrap() && with_table, with_table);
            storage.redo.write_step(true).unwrap();
            let logged = Logged::of(&disk, &storage, page);
            let map = disk.open("map", Create::No, Mode::Cached).unwrap();
            let version = |slot: u64| {
                let slot = map.read(slot * 4096, weir_os::AlignedBuf::zeroed(4096)).unwrap();
                u64::from_le_bytes(slot[8..16].try_into().unwrap())
            };
            let newer = u64::from(version(1) > version(0)) * 4096;
            disk.rot("map", newer + 100, 3).unwrap();
            let (found, options) = (Arc::new(disk.process_kill()), StorageOptions::small(64));
            match Storage::open(found, &options, OnProgress::default()) {
                Err(fault) => assert!(fault.to_string().contains("sim/map is corrupt"), "{fault}"),
                Ok(storage) => {
                    let lsn = || Ok::<_, Restart<Fault>>(storage.read(page, true)?.lsn());
                    let lsn = retry(&storage, lsn).unwrap();
                    panic!("page {page} is as of LSN {lsn}, not {}", logged.lsn);
                }
            }
        }
    }

    /// The sync of a map block had failed, which the system takes for done after a restart; then
    /// the dirty page table relied on the block, and a power cut took it away. Older images were
    /// taken for pages.
    #[test]
    fn map_blocks_are_durable_before_a_table_relies_on_them() {
        let (disk, storage, page) = create();
        let other = new_page(&storage);
        storage.flush_all(Reason::Checkpoint, &mut |_| {}).unwrap();
        // It keeps the checkpoint where it is.
        change(&storage, other, &[Redo::OverflowLink { page: other, next: PageId(9) }]);
        change(&storage, page, &[Redo::OverflowLink { page, next: PageId(9) }]);
        let frame = storage.pool.find(&storage.store, page).unwrap();
        assert_eq!(storage.write_pages(&[frame], Reason::Checkpoint).unwrap(), 1);
        storage.redo.write_step(true).unwrap();
        let logged = Logged::of(&disk, &storage, page);
        let (on, at) = (Some(weir_os::sim::OpKind::Sync), disk.operations());
        disk.inject(weir_os::sim::Fault::Io { on, at, times: weir_os::sim::Times::Once });
        storage.persist_map(storage.redo.reserved()).unwrap_err();
        let disk = disk.process_kill();
        let open = |disk: SimDisk| {
            Storage::open(Arc::new(disk), &StorageOptions::small(64), OnProgress::default())
        };
        let storage = open(disk.clone()).unwrap();
        storage.finish_recovery().unwrap();
        assert!(storage.note_dirty_pages().unwrap());
        for seed in 0..20 {
            let storage = open(disk.crash(seed)).unwrap();
            let lsn = || Ok::<_, Restart<Fault>>(storage.read(page, true)?.lsn());
            assert_eq!(retry(&storage, lsn).unwrap(), logged.lsn, "seed {seed}");
        }
    }
}

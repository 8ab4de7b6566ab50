//! Recovery of pages: from the newest checkpoint to the end of the log.
//!
//! First the log is read through for its end, for the places of images, and for each page's *fate*:
//! the LSN up to which its records need no replay, because a newer image is stored, or because the
//! page was freed or initialised anew. Only then free space is known, and pages may be written. Then
//! the log is applied in one pass, in order; pages that don't fit are written as always, and
//! checkpoints move. The pages that the next stretch of the log needs are read together ([`Stretch`]).
//! Recovery may stop at any point and run again.

use super::admission::Wait;
use super::dirty::Reserved;
use super::pool::{DIRTY, Pool};
use super::{Fault, Storage, StorageOptions};
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_os::Disk;
use weir_page::varint::Input;
use weir_page::{Before, Logged, Lsn, Page, PageId, Redo, TxnId};
use weir_redo::{Reader, RedoOptions};
use weir_store::{Control, Store, StoreOptions};

/// How far recovery is, for progress reports.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// What is being done: `analysis` or `redo`.
    pub phase: &'static str,
    /// Where the log began.
    pub from: Lsn,
    /// Where recovery is.
    pub at: Lsn,
    /// End of the log, once known.
    pub end: Option<Lsn>,
}

/// What recovery did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Summary {
    /// Bytes of log from the checkpoint to the end.
    pub log_bytes: u64,
    /// Records applied.
    pub applied: u64,
    /// Records found to be in the images already.
    pub skipped: u64,
}

/// Bytes of log that are looked at for the pages that they need before they are applied, about.
const STRETCH_BYTES: usize = 256 << 10;

/// Pages that are read together, at most.
const READ_TOGETHER: usize = 128;

/// Some groups of the log, copied out of its reader.
#[derive(Default)]
struct Stretch {
    bytes: Vec<u8>,
    groups: Vec<Ahead>,
}

/// A group that is about to be applied: where it begins and ends in the log, and where its records are in
/// [`Stretch::bytes`].
struct Ahead {
    start: Lsn,
    end: Lsn,
    at: Range<usize>,
}

impl Stretch {
    /// Reads on, not past `end`.
    fn fill(&mut self, reader: &mut Reader, end: Lsn) -> Result<(), Fault> {
        self.bytes.clear();
        self.groups.clear();
        while self.bytes.len() < STRETCH_BYTES && reader.position() < end {
            let Some(group) = reader.next()? else {
                let what = "the log ends before the place where it ended a moment ago";
                return Err(Fault::Record { lsn: reader.position(), what: what.into() });
            };
            let from = self.bytes.len();
            self.bytes.extend_from_slice(group.payload);
            let at = from..self.bytes.len();
            self.groups.push(Ahead { start: group.start, end: group.end, at });
        }
        Ok(())
    }
}

/// What analysis knows of a page.
#[derive(Default, Clone, Copy)]
struct Fate {
    /// Records up to here need no replay.
    done: Lsn,
    freed: bool,
}

struct Analysis {
    fates: HashMap<PageId, Fate>,
    end: Lsn,
    next_txn: TxnId,
}

impl Storage {
    /// Opens what is stored and brings all pages up to date.
    ///
    /// # Errors
    /// Damaged or missing files, a newer format, a full device; what is durable stays as it is.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: &StorageOptions,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(Storage, Summary), Fault> {
        if disk.list()?.iter().any(|n| n == super::CREATING) {
            super::forget_creation(&*disk)?;
        }
        let store_options = StoreOptions { compression: options.compression };
        let (store, control) = Store::open(disk.clone(), store_options)?;
        // What was read must be durable before anything relies on it.
        weir_redo::sync_all(&*disk)?;
        let analysis = analyse(&disk, &store, &control, progress)?;
        store.finish_recovery()?;
        let redo_options = RedoOptions {
            database_id: control.database_id,
            capacity_bytes: match options.keep_redo_capacity {
                true => control.redo_capacity,
                false => options.redo.capacity_bytes,
            },
            ..options.redo.clone()
        };
        let redo = weir_redo::Redo::open_at(
            disk.clone(),
            &redo_options,
            control.checkpoint,
            analysis.end,
        )?;
        let mut storage = Storage::assemble(disk, store, redo, options, &control)?;
        // No background thread runs yet: recovery frees frames and log space itself.
        storage.inline = true;
        storage.next_txn.store(analysis.next_txn.0, Ordering::Release);
        let summary = storage.replay(&control, &analysis, progress)?;
        storage.inline = options.inline;
        Ok((storage, summary))
    }

    fn replay(
        &self,
        control: &Control,
        analysis: &Analysis,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Summary, Fault> {
        let from = control.checkpoint;
        let mut summary = Summary { log_bytes: analysis.end.0 - from.0, ..Summary::default() };
        self.replayed.store(from.0, Ordering::Release);
        let mut tell = |at| progress(Progress { phase: "redo", from, at, end: Some(analysis.end) });
        if from < analysis.end {
            tell(from);
        }
        let mut reader = Reader::open(self.disk.clone(), control.database_id, from)?;
        let mut stretch = Stretch::default();
        // Where the last stretch needed no page, nobody looks ahead for nothing.
        let mut looks = true;
        while reader.position() < analysis.end {
            stretch.fill(&mut reader, analysis.end)?;
            let before = self.pages_read();
            self.replay_stretch(&stretch, &analysis.fates, looks, &mut summary)?;
            looks = self.pages_read() > before;
            tell(Lsn(self.replayed.load(Ordering::Relaxed)));
        }
        self.replayed.store(u64::MAX, Ordering::Release);
        Ok(summary)
    }

    fn replay_stretch(
        &self,
        stretch: &Stretch,
        fates: &HashMap<PageId, Fate>,
        looks: bool,
        summary: &mut Summary,
    ) -> Result<(), Fault> {
        let mut covered = if looks { 0 } else { stretch.groups.len() };
        for (number, group) in stretch.groups.iter().enumerate() {
            if number == covered {
                covered += self.read_for(stretch, &stretch.groups[number..], fates)?;
            }
            let payload = &stretch.bytes[group.at.clone()];
            self.replay_group(group.start, payload, fates, summary)?;
            self.replayed.store(group.end.0, Ordering::Release);
        }
        Ok(())
    }

    fn pages_read(&self) -> u64 {
        let (loaded, ahead) = (&self.figures.pages_loaded, &self.figures.pages_read_ahead);
        loaded.load(Ordering::Relaxed) + ahead.load(Ordering::Relaxed)
    }

    /// Reads the pages that the first of `groups` need; returns how many groups these are.
    fn read_for(
        &self,
        stretch: &Stretch,
        groups: &[Ahead],
        fates: &HashMap<PageId, Fate>,
    ) -> Result<usize, Fault> {
        let most = self.read_ahead_pages().min(READ_TOGETHER);
        let (mut missing, mut seen) = (Vec::new(), HashSet::new());
        let mut covered = 0;
        while covered < groups.len() && missing.len() < most {
            let Ahead { start, at, .. } = &groups[covered];
            for_each_record(*start, &stretch.bytes[at.clone()], &mut |logged| {
                let redo = &logged.redo;
                for page in redo.page().into_iter().chain(redo.second_page()) {
                    if self.pool.find(&self.store, page).is_ok() {
                        continue;
                    }
                    let is_done = fates.get(&page).is_some_and(|f| f.done >= *start);
                    if !is_done && seen.insert(page) && !redo.initialises() {
                        missing.push(page);
                    }
                }
                Ok(())
            })?;
            covered += 1;
        }
        if !missing.is_empty() && self.pool.free_frames() < self.frame_reserve() {
            match self.evict_step(self.frame_reserve()) {
                // Whoever can't go on without says so.
                Err(fault) if fault.is_no_space() => {}
                freed => drop(freed?),
            }
        }
        self.prefetch(&missing);
        Ok(covered)
    }

    fn replay_group(
        &self,
        lsn: Lsn,
        payload: &[u8],
        fates: &HashMap<PageId, Fate>,
        summary: &mut Summary,
    ) -> Result<(), Fault> {
        let credits = self.reserve_credits()?;
        let mut touched: Vec<Touched<'_>> = Vec::new();
        for_each_record(lsn, payload, &mut |logged| {
            let redo = logged.redo;
            let first = redo.page().map(|page| (page, logged.prev));
            let second = redo.second_page().map(|page| (page, logged.prev_undo));
            for (page, prev) in first.into_iter().chain(second) {
                let done = fates.get(&page).map_or(Lsn(0), |f| f.done);
                if done >= lsn {
                    summary.skipped += 1;
                    continue;
                }
                let at = match touched.iter().position(|t| t.page == page) {
                    Some(at) => at,
                    None => {
                        touched.push(self.touch(page, redo.initialises())?);
                        touched.len() - 1
                    }
                };
                // SAFETY: `touched` holds the frame's exclusive latch.
                let bytes = unsafe { &mut *self.pool.ptr(touched[at].frame) };
                if bytes.lsn() >= lsn {
                    summary.skipped += 1;
                    continue;
                }
                touched[at].initialised |= redo.initialises();
                if !touched[at].initialised && bytes.lsn() != prev {
                    return Err(broken_chain(lsn, page, prev, bytes.lsn()));
                }
                redo.check(page, bytes).map_err(|what| misfit(lsn, page, &what))?;
                redo.apply(page, bytes);
                touched[at].changed = true;
                summary.applied += 1;
            }
            Ok(())
        })?;
        let dirtied: u64 = touched.iter().map(|t| u64::from(self.finish_touched(t, lsn))).sum();
        credits.spend(dirtied);
        Ok(())
    }

    /// Credits for the pages that an mtr may dirty, for those who dirty pages without one.
    pub(super) fn reserve_credits(&self) -> Result<Reserved<'_>, Fault> {
        let mut wait = Wait::default();
        loop {
            match self.dirty.try_reserve() {
                Some(reserved) => return Ok(reserved),
                None => self.relieve_dirty_limit(&mut wait)?,
            }
        }
    }

    /// Latches a page for replay; without reading it if it is about to be initialised.
    fn touch(&self, page: PageId, initialise: bool) -> Result<Touched<'_>, Fault> {
        let slot = self.store.map().slot(page);
        loop {
            if let Ok(frame) = self.pool.latch(&self.store, page) {
                let (changed, initialised) = (false, false);
                return Ok(Touched { pool: &self.pool, page, frame, changed, initialised });
            }
            if initialise {
                let frame = self.take_frame()?;
                let claim = self.pool.claim(slot, page).expect("recovery is alone");
                // SAFETY: the frame is free and ours alone until it is published.
                let bytes = unsafe { &mut *self.pool.ptr(frame) };
                bytes.set_lsn(Lsn(0));
                bytes.reset(page, weir_page::Kind::Blank, 0);
                self.pool.publish(slot, claim, frame, 1);
            } else if !self.load(page)? {
                return Err(self.lost_page(page));
            }
        }
    }

    /// Whether the page was clean before.
    fn finish_touched(&self, t: &Touched<'_>, lsn: Lsn) -> bool {
        if !t.changed {
            return false;
        }
        let frame = self.pool.frame(t.frame);
        // SAFETY: `t` holds the frame's exclusive latch.
        let bytes: &mut Page = unsafe { &mut *self.pool.ptr(t.frame) };
        bytes.set_lsn(lsn);
        frame.level.store(u32::from(bytes.level()), Ordering::Release);
        let mut list = self.pool.flush.lock();
        let was_clean = frame.state.load(Ordering::Relaxed) & DIRTY == 0;
        if was_clean {
            frame.rec_lsn.store(lsn.0, Ordering::Relaxed);
            frame.state.fetch_or(DIRTY, Ordering::Relaxed);
            list.push(lsn, t.frame, false);
        }
        was_clean
    }
}

struct Touched<'a> {
    pool: &'a Pool,
    page: PageId,
    frame: u32,
    changed: bool,
    /// By a record of this group.
    initialised: bool,
}

impl Drop for Touched<'_> {
    fn drop(&mut self) {
        self.pool.frame(self.frame).latch.unlock_exclusive();
    }
}

/// A record continues another state of its page than the one that is there: an image or a part of the
/// log was lost.
fn broken_chain(lsn: Lsn, page: PageId, prev: Lsn, found: Lsn) -> Fault {
    let what =
        format!("it changes page {page} as of LSN {prev}, but the page is as of LSN {found}");
    Fault::Record { lsn, what }
}

/// A record can't be applied to its page, though both are as they were written.
#[cold]
fn misfit(lsn: Lsn, page: PageId, what: &str) -> Fault {
    Fault::Record { lsn, what: format!("it can't be applied to page {page}: {what}") }
}

fn analyse(
    disk: &Arc<dyn Disk>,
    store: &Store,
    control: &Control,
    progress: &mut dyn FnMut(Progress),
) -> Result<Analysis, Fault> {
    let from = control.checkpoint;
    let mut reader =
        Reader::open(disk.clone(), control.database_id, from)?.durable_hint(control.durable);
    let mut fates: HashMap<PageId, Fate> = HashMap::new();
    let mut next_txn = control.next_txn_id;
    let mut groups = 0u64;
    while let Some(group) = reader.next()? {
        let lsn = group.start;
        for_each_record(lsn, group.payload, &mut |logged| {
            if let Redo::Write(w) = logged.redo {
                next_txn = next_txn.max(TxnId(w.txn.0 + 1));
            }
            if let Redo::UndoTail { txn, .. } | Redo::UndoInit { txn, .. } = logged.redo {
                next_txn = next_txn.max(TxnId(txn.0 + 1));
            }
            if let Redo::UndoPush { first: Some(txn), .. } = logged.redo {
                next_txn = next_txn.max(TxnId(txn.0 + 1));
            }
            note_fate(store, &mut fates, lsn, &logged.redo)
        })?;
        groups += 1;
        if groups.is_multiple_of(65536) {
            progress(Progress { phase: "analysis", from, at: lsn, end: None });
        }
    }
    let end = reader.end().unwrap_or(reader.position());
    Ok(Analysis { fates, end, next_txn })
}

fn note_fate(
    store: &Store,
    fates: &mut HashMap<PageId, Fate>,
    lsn: Lsn,
    redo: &Redo<'_>,
) -> Result<(), Fault> {
    match *redo {
        Redo::Relocate { moves } => {
            for moved in weir_store::decode_relocations(moves)? {
                let fate = fates.entry(moved.page).or_default();
                if fate.freed {
                    continue;
                }
                store.recover_relocation(&moved, lsn);
                fate.done = fate.done.max(moved.page_lsn);
            }
        }
        Redo::Free { page } => {
            store.recover_free(page, lsn);
            fates.insert(page, Fate { done: lsn, freed: true });
        }
        _ if redo.initialises() => {
            let page = redo.page().expect("only a page can be initialised");
            store.recover_allocated(page);
            let fate = fates.entry(page).or_default();
            fate.freed = false;
            fate.done = fate.done.max(Lsn(lsn.0 - 1));
        }
        _ => {}
    }
    Ok(())
}

/// Calls `each` for every record of a group.
///
/// # Errors
/// Those of `each`; [`Fault::Record`] if the bytes are no records.
pub fn for_each_record(
    lsn: Lsn,
    payload: &[u8],
    each: &mut dyn FnMut(&Logged<'_>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let (mut rest, mut before) = (payload, Before::default());
    loop {
        let mut scratch = Vec::new();
        let mut input = Input::new(rest);
        let logged = Redo::decode(&mut input, &mut before, &mut scratch)
            .map_err(|e| Fault::Record { lsn, what: e.to_string() })?;
        let Some(logged) = logged else { return Ok(()) };
        let left = input.rest().len();
        each(&logged)?;
        rest = &rest[rest.len() - left..];
    }
}

#[cfg(test)]
mod tests {
    use super::super::mtr::tests::new_page;
    use super::super::{Restart, retry};
    use super::*;
    use weir_os::SimDisk;
    use weir_redo::Admission;

    #[test]
    fn a_record_that_does_not_fit_its_page_is_refused() {
        let disk = SimDisk::new(1);
        let options = StorageOptions::small(64);
        let storage = Storage::create(Arc::new(disk.clone()), &options).unwrap();
        let page = new_page(&storage);
        let read = retry(&storage, || Ok::<_, Restart<Fault>>(storage.read(page, true)?.lsn()));
        let mut group = Vec::new();
        let redo = Redo::Remove { page, slot: 9 };
        redo.encode(read.unwrap(), Lsn(0), &mut Before::default(), &mut group);
        let credit = storage.redo.try_admit(group.len(), Admission::User).unwrap();
        let lsn = storage.redo.append(credit, &group).start;
        storage.redo.write_step(true).unwrap();
        let disk = Arc::new(disk.process_kill());
        let fault = Storage::open(disk, &options, &mut |_| {}).err().unwrap();
        let wanted = format!("redo record at LSN {lsn}: it can't be applied to page {page}: ");
        assert!(fault.is_corrupt() && fault.to_string().starts_with(&wanted), "{fault}");
    }
}

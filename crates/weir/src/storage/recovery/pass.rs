//! The pass: the log is applied in order, from the checkpoint to where it ended when the database was opened.
//!
//! Pages that are up to date already are passed over. The pages that the next stretch of the log needs are read
//! together. The checkpoint follows the pass.

use super::super::pool::Behind;
use super::super::{Fault, Storage};
use super::analysis::for_each_record;
use super::{OnProgress, Progress, Recovery};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use weir_page::{Lsn, PageId};
use weir_redo::Reader;

/// Bytes of log that are looked at for the pages that they need before they are applied, about.
pub const STEP_BYTES: usize = 256 << 10;

/// Pages that are read together, at most.
const READ_TOGETHER: usize = 128;

/// Where the pass is.
pub(super) struct Pass {
    reader: Reader,
    stretch: Stretch,
    /// The next group of the stretch, and the first whose pages have not been asked for.
    next: usize,
    asked: usize,
    /// Where the last stretch needed no page, nobody looks ahead for nothing.
    looks: bool,
    pages: Vec<PageId>,
    on_progress: OnProgress,
}

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
    /// Reads on by `bytes`, not past `end`.
    fn fill(&mut self, reader: &mut Reader, bytes: usize, end: Lsn) -> Result<(), Fault> {
        self.bytes.clear();
        self.groups.clear();
        while self.bytes.len() < bytes && reader.position() < end {
            let group =
                reader.next()?.expect("a reader that knows how far the log goes fails before");
            let from = self.bytes.len();
            self.bytes.extend_from_slice(group.payload);
            let at = from..self.bytes.len();
            self.groups.push(Ahead { start: group.start, end: group.end, at });
        }
        Ok(())
    }

    fn payload(&self, group: &Ahead) -> &[u8] {
        &self.bytes[group.at.clone()]
    }
}

impl Pass {
    /// A pass over what the log has from `from` on up to `end`: all of it was there a moment ago.
    pub fn new(
        storage: &Storage,
        from: Lsn,
        end: Lsn,
        on_progress: OnProgress,
    ) -> Result<Pass, Fault> {
        let reader = Reader::open(storage.disk.clone(), storage.database_id, from)?;
        let reader = reader.durable_hint(end);
        let (stretch, pages) = (Stretch::default(), Vec::new());
        Ok(Pass { reader, stretch, next: 0, asked: 0, looks: true, pages, on_progress })
    }

    /// Tells how far it is.
    pub fn tell(&self, from: Lsn, end: Lsn, at: Lsn) {
        self.on_progress.tell(Progress { phase: "redo", from, at, end: Some(end) });
    }
}

impl Storage {
    /// Applies the next `bytes` of the log, about, or as much as pages have been read for; whether there was any.
    ///
    /// # Errors
    /// Where it could not go on. The next step tries the same group again.
    pub(super) fn pass_on(
        &self,
        recovery: &Recovery,
        pass: &mut Pass,
        bytes: usize,
    ) -> Result<bool, Fault> {
        if pass.next == pass.stretch.groups.len() {
            (pass.next, pass.asked) = (0, 0);
            pass.stretch.fill(&mut pass.reader, bytes, recovery.end)?;
        }
        if pass.stretch.groups.is_empty() {
            return Ok(false);
        }
        let (before, first) = (self.pages_read(), pass.next);
        while let Some(group) = pass.stretch.groups.get(pass.next) {
            if pass.looks && pass.next >= pass.asked {
                if pass.next > first {
                    break;
                }
                let groups = &pass.stretch.groups[pass.next..];
                pass.asked = pass.next + self.read_for(recovery, &pass.stretch, groups)?;
            }
            self.apply_to_all(recovery, group.start, pass.stretch.payload(group), &mut pass.pages)?;
            self.replayed.store(group.end.0, Ordering::Release);
            pass.next += 1;
        }
        pass.looks = self.pages_read() > before;
        let at = Lsn(self.replayed.load(Ordering::Relaxed));
        self.recovery_figures.left_bytes.store(recovery.end.0 - at.0, Ordering::Relaxed);
        pass.tell(recovery.from, recovery.end, at);
        Ok(true)
    }

    fn pages_read(&self) -> u64 {
        let (loaded, ahead) = (&self.figures.pages_loaded, &self.figures.pages_read_ahead);
        loaded.load(Ordering::Relaxed) + ahead.load(Ordering::Relaxed)
    }

    /// Reads the pages that the first of `groups` need; returns how many groups these are.
    fn read_for(
        &self,
        recovery: &Recovery,
        stretch: &Stretch,
        groups: &[Ahead],
    ) -> Result<usize, Fault> {
        let most = self.read_ahead_pages().min(READ_TOGETHER);
        let (mut missing, mut seen) = (Vec::new(), HashSet::new());
        let mut covered = 0;
        while covered < groups.len() && missing.len() < most {
            let group = &groups[covered];
            for_each_record(group.start, stretch.payload(group), &mut |logged| {
                let redo = &logged.redo;
                for page in redo.page().into_iter().chain(redo.second_page()) {
                    let slot = self.store.map().slot(page);
                    if self.pool.behind(slot) != Some(Behind::Nowhere) {
                        continue;
                    }
                    let lag = recovery.lag(slot);
                    let needs_image = !lag.blank.load(Ordering::Relaxed);
                    if lag.done < group.start && needs_image && seen.insert(page) {
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

    /// Applies a group to all pages that lack it. `pages`: of use to nobody else.
    fn apply_to_all(
        &self,
        recovery: &Recovery,
        lsn: Lsn,
        payload: &[u8],
        pages: &mut Vec<PageId>,
    ) -> Result<(), Fault> {
        pages.clear();
        for_each_record(lsn, payload, &mut |logged| {
            let redo = &logged.redo;
            for page in redo.page().into_iter().chain(redo.second_page()) {
                let slot = self.store.map().slot(page);
                let lacks = || recovery.lag(slot).done < lsn && !pages.contains(&page);
                if self.pool.behind(slot).is_some() && lacks() {
                    pages.push(page);
                }
            }
            Ok(())
        })?;
        pages.iter().try_for_each(|&page| self.apply_to(recovery, page, lsn, payload))
    }

    /// One page after the other: nobody waits for a page with another one latched.
    ///
    /// What the log has for a page from before it was made anew may not continue what is stored of it. Its own chain, which
    /// goes no further back than it must, tells.
    fn apply_to(
        &self,
        recovery: &Recovery,
        page: PageId,
        lsn: Lsn,
        payload: &[u8],
    ) -> Result<(), Fault> {
        let slot = self.store.map().slot(page);
        let lag = recovery.lag(slot);
        while let Some(place) = self.pool.behind(slot) {
            let Behind::In(frame) = place else {
                if let Some(claim) = self.pool.claim(slot, page)
                    && self.pool.behind(slot) == Some(Behind::Nowhere)
                {
                    self.bring_in(lag, slot, &claim)?;
                }
                continue;
            };
            let credits = self.reserve_credits()?;
            let Some(mut latched) = self.latch_behind(lag, slot, frame) else { continue };
            if self.apply(lag, &mut latched, credits, &[(lsn, payload)])? {
                return Ok(());
            }
            drop(latched);
            self.catch_up(page, slot)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::mtr::tests::new_page;
    use super::super::super::{Need, Reason, Restart, StorageOptions, retry};
    use super::*;
    use std::sync::Arc;
    use weir_os::SimDisk;
    use weir_page::Redo;

    /// Who closes the database waits for a step: it read all pages that its part of the log needs.
    #[test]
    fn a_step_reads_pages_together_once() {
        let (disk, options) = (SimDisk::new(1), StorageOptions::small(64));
        let storage = Storage::create(Arc::new(disk.clone()), &options).unwrap();
        let pages: Vec<PageId> = (0..50).map(|_| new_page(&storage)).collect();
        storage.flush_all(Reason::Checkpoint, &mut |_| {}).unwrap();
        for page in pages {
            let link = || {
                let mut mtr = storage.mtr(Need::log(256))?;
                mtr.latch(page)?;
                mtr.log(&Redo::OverflowLink { page, next: PageId(9) });
                mtr.commit();
                Ok::<_, Restart<Fault>>(())
            };
            retry(&storage, link).unwrap();
        }
        storage.redo.write_step(true).unwrap();
        let disk = Arc::new(disk.process_kill());
        let storage = Storage::open(disk, &options, OnProgress::default()).unwrap();
        let (mut reads, mut most) = (0, 0);
        while storage.recovery_step(STEP_BYTES).unwrap() {
            most = most.max(storage.pages_read() - reads);
            reads = storage.pages_read();
        }
        assert!(reads > 20 && most <= storage.read_ahead_pages() as u64, "{most} of {reads}");
    }
}

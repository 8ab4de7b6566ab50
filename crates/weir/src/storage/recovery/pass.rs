//! The pass: the log is applied in order, from the checkpoint to where it ended when the database
//! was opened.
//!
//! It goes stretch by stretch: of each, the groups of one page are applied together, page after
//! page, so that a page is brought in and latched once. Pages that are up to date already are
//! passed over; those that have to be read are read together. The checkpoint follows the pass.

use super::super::pool::Behind;
use super::super::{Fault, Storage};
use super::analysis::for_each_record;
use super::{OnProgress, Progress, Recovery};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use weir_page::{Lsn, PAGE_SIZE, PageId};
use weir_redo::Reader;

/// Longest stretch, and the parts of log and memory that one may take.
const STRETCH_BYTES: usize = 8 << 20;
const PART_OF_LOG: u64 = 32;
const PART_OF_MEMORY: usize = 8;

/// Pages that are read together, at most.
const READ_TOGETHER: usize = 128;

/// Where the pass is.
pub(super) struct Pass {
    reader: Reader,
    stretch: Stretch,
    on_progress: OnProgress,
}

/// Some groups of the log, copied out of its reader, and what lacks them.
#[derive(Default)]
struct Stretch {
    bytes: Vec<u8>,
    /// What pages lack of them, by page and LSN.
    lacking: Vec<Lacking>,
    /// The first of them that has not been applied.
    next: usize,
    end: Lsn,
}

/// A group that a page lacks, and where its records are in [`Stretch::bytes`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Lacking {
    page: PageId,
    lsn: Lsn,
    from: u32,
    to: u32,
}

impl Stretch {
    /// Reads on by `bytes` of log, about. What was read before an error is there.
    fn fill(
        &mut self,
        storage: &Storage,
        recovery: &Recovery,
        reader: &mut Reader,
        bytes: usize,
    ) -> Result<(), Fault> {
        (self.next, self.end) = (0, reader.position());
        self.bytes.clear();
        self.lacking.clear();
        let mut read = Ok(());
        let to = recovery.end.min(Lsn(self.end.0 + bytes as u64));
        while read.is_ok() && self.end < to {
            read = self.take_next(storage, recovery, reader);
        }
        self.lacking.sort_unstable();
        self.lacking.dedup();
        read
    }

    fn take_next(
        &mut self,
        storage: &Storage,
        recovery: &Recovery,
        reader: &mut Reader,
    ) -> Result<(), Fault> {
        let group = reader.next()?.expect("a reader that knows how far the log goes fails before");
        let (before, from) = (self.lacking.len(), self.bytes.len() as u32);
        let (lsn, to) = (group.start, from + group.payload.len() as u32);
        let read = for_each_record(group.start, group.payload, &mut |logged| {
            let redo = &logged.redo;
            for page in redo.page().into_iter().chain(redo.second_page()) {
                let slot = storage.store.map().slot(page);
                if storage.pool.behind(slot).is_some() && recovery.lag(slot).done < lsn {
                    self.lacking.push(Lacking { page, lsn, from, to });
                }
            }
            Ok(())
        });
        if read.is_err() {
            // A group counts as a whole.
            self.lacking.truncate(before);
            return read;
        }
        self.end = group.end;
        if self.lacking.len() > before {
            self.bytes.extend_from_slice(group.payload);
        }
        Ok(())
    }

    /// What one page lacks, from that number on.
    fn of_page(&self, at: usize) -> &[Lacking] {
        let page = self.lacking[at].page;
        let rest = &self.lacking[at..];
        &rest[..rest.iter().take_while(|lacking| lacking.page == page).count()]
    }

    /// LSN and payload of its group.
    fn group(&self, lacking: &Lacking) -> (Lsn, &[u8]) {
        (lacking.lsn, &self.bytes[lacking.from as usize..lacking.to as usize])
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
        let reader = reader.durable_hint(end).forgetting();
        Ok(Pass { reader, stretch: Stretch::default(), on_progress })
    }

    /// Tells how far it is.
    pub fn tell(&self, from: Lsn, end: Lsn, at: Lsn) {
        self.on_progress.tell(Progress { phase: "redo", from, at, end: Some(end) });
    }
}

impl Storage {
    /// Bytes of log that one step of the pass is best given.
    pub fn stretch_bytes(&self) -> usize {
        let of_log = (self.redo.capacity() / PART_OF_LOG) as usize;
        let of_memory = self.pool.frames() * PAGE_SIZE / PART_OF_MEMORY;
        STRETCH_BYTES.min(of_log).min(of_memory)
    }

    /// Applies the next `bytes` of the log, about, or as much as pages have been read for; whether
    /// there was any.
    ///
    /// # Errors
    /// Where it could not go on. The next step tries the same page again.
    pub(super) fn pass_on(
        &self,
        recovery: &Recovery,
        pass: &mut Pass,
        bytes: usize,
    ) -> Result<bool, Fault> {
        let stretch = &mut pass.stretch;
        if stretch.next == stretch.lacking.len() {
            if pass.reader.position() >= recovery.end {
                return Ok(false);
            }
            stretch.fill(self, recovery, &mut pass.reader, bytes)?;
        }
        let read_to = self.read_for(recovery, stretch)?;
        while stretch.next < read_to {
            let lacking = stretch.of_page(stretch.next);
            let groups = lacking.iter().map(|group| stretch.group(group));
            let groups: SmallVec<[_; 16]> = groups.collect();
            self.apply_to(recovery, lacking[0].page, &groups)?;
            let applied = groups.len();
            drop(groups);
            stretch.next += applied;
        }
        if stretch.next == stretch.lacking.len() {
            let at = stretch.end;
            // A page whose image is damaged may be made anew from a record that the pass has passed
            // over.
            if !self.is_giving_up() {
                self.replayed.store(at.0, Ordering::Release);
            }
            self.recovery_figures.left_bytes.store(recovery.end.0 - at.0, Ordering::Relaxed);
            pass.tell(recovery.from, recovery.end, at);
        }
        Ok(true)
    }

    /// Loads the next pages that lack something of a stretch; returns up to what of that they are
    /// there.
    fn read_for(&self, recovery: &Recovery, stretch: &Stretch) -> Result<usize, Fault> {
        let most = self.load_many_max().min(READ_TOGETHER);
        let (mut missing, mut at) = (Vec::new(), stretch.next);
        while at < stretch.lacking.len() && missing.len() < most {
            let lacking = stretch.of_page(at);
            let (page, count) = (lacking[0].page, lacking.len());
            let slot = self.store.map().slot(page);
            if self.pool.behind(slot) == Some(Behind::Nowhere)
                && !recovery.lag(slot).blank.load(Ordering::Relaxed)
            {
                missing.push(page);
            }
            at += count;
        }
        if !missing.is_empty() && self.pool.free_frames() < self.frame_reserve() {
            match self.evict_step(self.frame_reserve()) {
                // Whoever can't go on without says so.
                Err(fault) if fault.is_no_space() => {}
                freed => drop(freed?),
            }
        }
        self.load_many(&missing);
        Ok(at)
    }

    /// Applies these groups, in order, to a page, as far as it lacks them. Nobody waits for a page
    /// with another one latched.
    ///
    /// What the log has for a page from before it was made anew may not continue what is stored of
    /// it. Its own chain, which goes no further back than it must, tells.
    fn apply_to(
        &self,
        recovery: &Recovery,
        page: PageId,
        groups: &[(Lsn, &[u8])],
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
            if self.apply(lag, &mut latched, credits, groups)? {
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
        let (loaded, ahead) = (&storage.figures.pages_loaded, &storage.figures.pages_read_ahead);
        while storage.recovery_step(storage.stretch_bytes()).unwrap() {
            let read = loaded.load(Ordering::Relaxed) + ahead.load(Ordering::Relaxed);
            most = most.max(read - reads);
            reads = read;
        }
        assert!(reads > 20 && most <= storage.load_many_max() as u64, "{most} of {reads}");
    }
}

//! Writing batches of pages to new places, and the growth of the data file.

use crate::buffers::Buffers;
use crate::error::{Result, StoreError};
use crate::extent::{Extent, FILE_UNITS_MAX, Relocation, UNIT};
use crate::image::{Encoder, PageCopy};
use crate::space::no_space;
use crate::store::Store;
use std::io::ErrorKind;
use std::sync::atomic::Ordering;
use std::time::Instant;
use weir_os::{AlignedBuf, DiskError, Io};
use weir_page::{Lsn, PAGE_SIZE, PageId};

/// Pages of the largest batch (128 MiB before compression).
pub const BATCH_PAGES_MAX: usize = 8192;
/// How often a batch is tried where the device has no space for it.
const TRIES: u32 = 32;
/// Bytes of the largest write.
const SEGMENT: usize = 1 << 20;

/// A page of a batch: where its image lies in memory.
struct Packed {
    page: PageId,
    lsn: Lsn,
    segment: usize,
    at: usize,
}

/// Images of a batch, back to back in buffers of up to 1 MiB.
#[derive(Default)]
struct Packing {
    pages: Vec<Packed>,
    units: Vec<u8>,
    segments: Vec<AlignedBuf>,
}

impl Packing {
    fn add(&mut self, encoder: &mut Encoder, buffers: &Buffers, copy: &PageCopy<'_>) {
        assert!(self.pages.len() < BATCH_PAGES_MAX, "a batch of more than {BATCH_PAGES_MAX} pages");
        let used = self.segments.last().map_or(SEGMENT, |s| s.len());
        if used + PAGE_SIZE > SEGMENT {
            let mut segment = buffers.take(SEGMENT);
            segment.set_len(0);
            self.segments.push(segment);
        }
        let number = self.segments.len() - 1;
        let segment = &mut self.segments[number];
        let at = segment.len();
        segment.set_len(at + PAGE_SIZE);
        let units = encoder.encode(copy, &mut segment[at..]);
        segment.set_len(at + usize::from(units) * UNIT);
        self.units.push(units);
        self.pages.push(Packed { page: copy.page, lsn: copy.lsn, segment: number, at });
    }

    fn total_units(&self) -> u64 {
        self.units.iter().map(|&u| u64::from(u)).sum()
    }

    /// The writes that bring the images to `extents`, neighbours merged.
    fn into_writes(self, buffers: &Buffers, extents: &[Extent]) -> Vec<Io> {
        let mut writes = Vec::with_capacity(self.segments.len());
        let mut start = 0;
        for (number, segment) in self.segments.into_iter().enumerate() {
            let len = self.pages[start..].iter().take_while(|p| p.segment == number).count();
            let (pages, places) = (&self.pages[start..start + len], &extents[start..start + len]);
            start += len;
            if places.windows(2).all(|w| w[0].end_unit() == w[1].start_unit) {
                writes.push(Io::Write { offset: places[0].offset(), buf: segment });
            } else {
                scatter(&segment, pages, places, buffers, &mut writes);
                buffers.keep([segment]);
            }
        }
        writes
    }
}

/// Copies the images of a segment into one buffer per run of neighbouring extents.
fn scatter(
    segment: &[u8],
    pages: &[Packed],
    places: &[Extent],
    buffers: &Buffers,
    writes: &mut Vec<Io>,
) {
    let mut order: Vec<usize> = (0..pages.len()).collect();
    order.sort_by_key(|&i| places[i].start_unit);
    for run in order.chunk_by(|&a, &b| places[a].end_unit() == places[b].start_unit) {
        let bytes = run.iter().map(|&i| places[i].bytes()).sum();
        let mut buf = buffers.take(bytes);
        let mut to = 0;
        for &i in run {
            let len = places[i].bytes();
            buf[to..to + len].copy_from_slice(&segment[pages[i].at..][..len]);
            to += len;
        }
        writes.push(Io::Write { offset: places[run[0]].offset(), buf });
    }
}

impl Store {
    /// Compresses pages, writes them to free places in one deep batch, and syncs once. Nothing
    /// refers to the new places: log the relocations and [`install`](Store::install) them.
    ///
    /// # Errors
    /// `NoSpace`: nothing changed. `Disk`: the store is poisoned. `Poisoned`.
    ///
    /// # Panics
    /// With more than [`BATCH_PAGES_MAX`] pages.
    pub fn write_batch(&self, pages: &[PageCopy<'_>]) -> Result<Vec<Relocation>> {
        self.assert_recovered();
        self.check_poison()?;
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let mut needed = 0;
        for _ in 0..TRIES {
            let packing = self.pack(pages);
            needed = packing.total_units();
            let extents = self.allocate(&packing.units)?;
            match self.write_packed(packing, &extents) {
                Err(error) if error.kind() == ErrorKind::StorageFull => {
                    if !self.found_no_space(&extents, &error) {
                        break;
                    }
                }
                Err(error) => return Err(self.poisoned(error)),
                Ok(relocations) => {
                    self.sync_batch()?;
                    return Ok(relocations);
                }
            }
        }
        no_space(self.data.name(), needed)
    }

    fn pack(&self, pages: &[PageCopy<'_>]) -> Packing {
        let mut encoder = self
            .encoders
            .lock()
            .pop()
            .unwrap_or_else(|| Encoder::new(self.options.compression, self.database_id));
        let mut packing = Packing::default();
        for page in pages {
            packing.add(&mut encoder, &self.buffers, page);
        }
        self.encoders.lock().push(encoder);
        packing
    }

    /// Writes images where `extents` say.
    fn write_packed(
        &self,
        packing: Packing,
        extents: &[Extent],
    ) -> std::result::Result<Vec<Relocation>, DiskError> {
        let relocations: Vec<Relocation> = packing
            .pages
            .iter()
            .zip(extents)
            .map(|(p, &extent)| Relocation { page: p.page, extent, page_lsn: p.lsn })
            .collect();
        let bytes = packing.total_units() * UNIT as u64;
        let writes = packing.into_writes(&self.buffers, extents);
        let count = writes.len() as u64;
        self.buffers.keep(self.data.run(writes)?);
        self.counters.pages_written.fetch_add(extents.len() as u64, Ordering::Relaxed);
        self.counters.writes.fetch_add(count, Ordering::Relaxed);
        self.counters.page_bytes_out.fetch_add(bytes, Ordering::Relaxed);
        Ok(relocations)
    }

    fn sync_batch(&self) -> Result<()> {
        let written = Instant::now();
        self.sync_data()?;
        let sync_us = written.elapsed().as_micros() as u64;
        self.counters.batch_sync_us.fetch_add(sync_us, Ordering::Relaxed);
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// A full device can't take a write into a punched hole. Nothing refers to the places, so that
    /// does no harm: they are given back, and where the first write that failed was counts as a
    /// hole, though it may be one in part only. Whether it is worth to try others.
    fn found_no_space(&self, extents: &[Extent], error: &DiskError) -> bool {
        self.short.store(true, Ordering::Relaxed);
        let mut space = self.space.lock();
        let is_news = error.offset.is_some_and(|offset| {
            let end = offset + SEGMENT as u64;
            let is_in_it = |extent: &&Extent| (offset..end).contains(&extent.offset());
            let mut found: Vec<Extent> = extents.iter().filter(is_in_it).copied().collect();
            found.sort_unstable();
            let next_to = |a: &Extent, b: &Extent| a.end_unit() == b.start_unit;
            found.chunk_by(next_to).next().is_some_and(|run| space.found_holes(run))
        });
        extents.iter().for_each(|&extent| space.give_back(extent));
        space.let_go() || is_news
    }

    fn give_back(&self, extents: &[Extent]) {
        let mut space = self.space.lock();
        for &extent in extents {
            space.give_back(extent);
        }
    }

    fn allocate(&self, counts: &[u8]) -> Result<Vec<Extent>> {
        let mut out = Vec::with_capacity(counts.len());
        loop {
            let may_grow = !self.short.load(Ordering::Relaxed);
            let (units, needed) = {
                let mut space = self.space.lock();
                let allocated = match may_grow {
                    true => space.allocate_large(counts, &mut out),
                    false => space.allocate_tight(counts, &mut out),
                };
                if allocated {
                    return Ok(out);
                }
                let needed = counts[out.len()..].iter().map(|&c| u64::from(c)).sum();
                let wants_growth = space.wants_growth(needed);
                if may_grow && !wants_growth && space.allocate_any(counts, &mut out) {
                    return Ok(out);
                }
                (space.units(), needed)
            };
            match self.grow(units, needed, needed) {
                Err(StoreError::NoSpace { .. })
                    if self.space.lock().allocate_tight(counts, &mut out) =>
                {
                    return Ok(out);
                }
                Err(error) => {
                    self.give_back(&out);
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
    }

    /// Grows the data file, durably, by what is wanted, a step or more, or else by what is needed,
    /// unless somebody has done so since it had `units`; or frees what is held in it.
    pub(crate) fn grow(&self, units: u64, needed: u64, wanted: u64) -> Result<()> {
        let _growth = self.growth.lock();
        self.check_poison()?;
        let (now, step) = {
            let space = self.space.lock();
            (space.units(), space.step().max(wanted))
        };
        if now > units {
            return Ok(());
        }
        for more in [step, needed] {
            let longer = now + more;
            if more == 0 || longer > FILE_UNITS_MAX {
                continue;
            }
            match self.data.set_len(longer * UNIT as u64) {
                Ok(()) => {
                    self.sync_data()?;
                    self.space.lock().extend(longer);
                    self.short.store(more < step, Ordering::Relaxed);
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::StorageFull => {}
                Err(e) => return Err(self.poisoned(e)),
            }
        }
        self.short.store(true, Ordering::Relaxed);
        // Whoever needs it is more than a copy.
        if needed > 0 && self.space.lock().let_go() {
            return Ok(());
        }
        no_space(self.data.name(), needed)
    }
}

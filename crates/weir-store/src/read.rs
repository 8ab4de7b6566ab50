//! Reading pages.

use crate::error::{Result, StoreError};
use crate::extent::{Entry, Extent, UNIT};
use crate::image::{self, Expected};
use crate::store::Store;
use std::sync::atomic::Ordering;
use weir_os::{AlignedBuf, Io};
use weir_page::{PAGE_SIZE, PageId};

/// Pages read in flight together.
const PAGES_IN_FLIGHT: usize = 1024;
/// Units of the longest merged read (1 MiB).
const READ_UNITS: u64 = 256;
/// Reads of one page that met a relocation under way, before its error counts.
const RETRIES: usize = 16;

struct Wanted {
    page: PageId,
    entry: Entry,
    extent: Extent,
}

impl Store {
    /// Reads a page into `out` (16 KiB). Bytes 4..8 and 8..16 are its id and LSN, the rest of the
    /// first 32 is zero.
    ///
    /// # Errors
    /// `NotStored`, `Corrupt`, `Disk`.
    pub fn read_page(&self, page: PageId, out: &mut [u8]) -> Result<()> {
        let (mut entry, mut extent) = self.entry_of(page)?;
        for _ in 0..RETRIES {
            let result = self.read_extent(page, entry, extent, out);
            // A page may have moved while it was read, its old place used again.
            let moved = result.is_err() && self.map.entry(page) != entry;
            if !moved {
                return result;
            }
            (entry, extent) = self.entry_of(page)?;
        }
        self.read_extent(page, entry, extent, out)
    }

    fn read_extent(&self, page: PageId, entry: Entry, at: Extent, out: &mut [u8]) -> Result<()> {
        let buf = self.data.read(at.offset(), AlignedBuf::zeroed(at.bytes()))?;
        self.count_reads(1, 1, at.bytes());
        let expected = self.expected(at.offset(), page, Some(entry));
        image::decode(&buf, &expected, out).map(|_| ())
    }

    /// Reads pages, many in flight together and neighbours in one read, and hands each to `sink` in
    /// order of their places. So is what goes wrong with a page.
    pub fn read_pages(&self, pages: &[PageId], sink: &mut dyn FnMut(PageId, Result<&[u8]>)) {
        let mut out = AlignedBuf::zeroed(PAGE_SIZE);
        for part in pages.chunks(PAGES_IN_FLIGHT) {
            let mut wanted = Vec::with_capacity(part.len());
            for &page in part {
                match self.entry_of(page) {
                    Ok((entry, extent)) => wanted.push(Wanted { page, entry, extent }),
                    Err(error) => sink(page, Err(error)),
                }
            }
            wanted.sort_by_key(|w| w.extent);
            self.read_sorted(&wanted, &mut out, sink);
        }
    }

    fn read_sorted(
        &self,
        wanted: &[Wanted],
        out: &mut [u8],
        sink: &mut dyn FnMut(PageId, Result<&[u8]>),
    ) {
        let runs = runs(wanted);
        let batch = runs
            .iter()
            .map(|run| {
                let units = run[run.len() - 1].extent.end_unit() - run[0].extent.start_unit;
                let buf = AlignedBuf::zeroed(units as usize * UNIT);
                Io::Read { offset: run[0].extent.offset(), buf }
            })
            .collect();
        // One bad sector fails the batch: each page is then read by itself.
        let bufs = self.data.run(batch).ok();
        for (number, run) in runs.iter().enumerate() {
            for w in *run {
                let read = match &bufs {
                    Some(bufs) => self.decode_from(&bufs[number], run[0].extent, w, out),
                    None => Err(StoreError::NotStored { page: w.page }),
                };
                match read.or_else(|_| self.read_page(w.page, out)) {
                    Ok(()) => sink(w.page, Ok(out)),
                    Err(error) => sink(w.page, Err(error)),
                }
            }
        }
        if let Some(bufs) = bufs {
            let bytes = bufs.iter().map(|buf| buf.len()).sum();
            self.count_reads(wanted.len(), runs.len(), bytes);
        }
    }

    fn decode_from(&self, buf: &[u8], first: Extent, w: &Wanted, out: &mut [u8]) -> Result<()> {
        let offset = w.extent.offset();
        let at = (offset - first.offset()) as usize;
        let expected = self.expected(offset, w.page, Some(w.entry));
        image::decode(&buf[at..][..w.extent.bytes()], &expected, out).map(|_| ())
    }

    pub(crate) fn expected(&self, offset: u64, page: PageId, entry: Option<Entry>) -> Expected<'_> {
        let (file, database_id) = (self.data.name(), self.database_id);
        Expected { file, offset, database_id, page, entry }
    }

    fn count_reads(&self, pages: usize, reads: usize, bytes: usize) {
        self.counters.pages_read.fetch_add(pages as u64, Ordering::Relaxed);
        self.counters.reads.fetch_add(reads as u64, Ordering::Relaxed);
        self.counters.page_bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// Cuts sorted extents into runs of neighbours.
fn runs(wanted: &[Wanted]) -> Vec<&[Wanted]> {
    let mut runs = Vec::new();
    let mut start = 0;
    for end in 1..=wanted.len() {
        let ends = end == wanted.len()
            || wanted[end].extent.start_unit != wanted[end - 1].extent.end_unit()
            || wanted[end].extent.end_unit() - wanted[start].extent.start_unit > READ_UNITS;
        if ends {
            runs.push(&wanted[start..end]);
            start = end;
        }
    }
    runs
}

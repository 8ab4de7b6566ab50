//! Reading groups of an open log one by one, wherever they are.

use std::fmt;

use weir_os::{AlignedBuf, BLOCK};
use weir_page::Lsn;

use crate::RedoError;
use crate::format::{GROUP_HEADER_BYTES, group_len, group_payload};
use crate::reader::EndReason;
use crate::segments::Segments;

/// Most bytes of the stream that are read beside a group, in case that others of them are asked
/// for.
const WINDOW_MAX: u64 = 256 << 10;

/// Reads groups by their LSNs. Where one after the other lies close before the last, more is read
/// at once.
pub struct Groups<'a> {
    segments: &'a Segments,
    /// Bytes of the stream from `start` on.
    window: Vec<u8>,
    start: u64,
    /// How much is read in front of a group.
    before: u64,
}

impl fmt::Debug for Groups<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Groups").field("start", &self.start).finish_non_exhaustive()
    }
}

impl<'a> Groups<'a> {
    pub(crate) fn of(segments: &'a Segments) -> Groups<'a> {
        Groups { segments, window: Vec::new(), start: 0, before: 0 }
    }

    /// The payload of the group at `lsn`, with its padding.
    ///
    /// # Errors
    /// [`RedoError::Cut`] if there is no whole group, which is so, too, once the checkpoint has
    /// passed it; the disk's.
    pub fn read(&mut self, lsn: Lsn) -> Result<&[u8], RedoError> {
        self.fill(lsn, GROUP_HEADER_BYTES)?;
        let first = (lsn.0 - self.start) as usize;
        let bytes = group_len(&self.window[first..]).map_err(|why| self.cut(lsn, why))?;
        self.fill(lsn, bytes)?;
        let first = (lsn.0 - self.start) as usize;
        group_payload(lsn.0, &self.window[first..first + bytes]).map_err(|why| self.cut(lsn, why))
    }

    fn cut(&self, lsn: Lsn, why: EndReason) -> RedoError {
        self.segments.cut(lsn, Lsn(lsn.0 + 1), why)
    }

    /// Sees to it that the window has `bytes` from `at` on.
    fn fill(&mut self, at: Lsn, bytes: usize) -> Result<(), RedoError> {
        let lsn = at.0;
        let has = |window: &[u8], start| {
            start <= lsn && lsn + bytes as u64 <= start + window.len() as u64
        };
        if has(&self.window, self.start) {
            return Ok(());
        }
        let block = BLOCK as u64;
        let is_close = lsn < self.start && self.start - lsn <= (2 * self.before).max(16 * block);
        self.before = if is_close { (2 * self.before).clamp(block, WINDOW_MAX) } else { 0 };
        let from = lsn.saturating_sub(self.before) / block * block;
        let to = (lsn + bytes as u64).next_multiple_of(block);
        self.window.clear();
        for segment in self.segments.between(from, to) {
            let (first, last) = (from.max(segment.span.start), to.min(segment.span.end()));
            if self.window.is_empty() {
                self.start = first;
            }
            let buf = AlignedBuf::zeroed((last - first) as usize);
            let buf = segment.file.read(segment.span.file_offset(first), buf)?;
            self.window.extend_from_slice(&buf);
        }
        match has(&self.window, self.start) {
            true => Ok(()),
            false => Err(self.cut(at, EndReason::Unwritten)),
        }
    }
}

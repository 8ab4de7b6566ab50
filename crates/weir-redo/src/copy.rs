//! Copies of the log's files, taken while it goes on.

use weir_os::{AlignedBuf, BLOCK, Create, Disk, Mode};
use weir_page::Lsn;

use crate::RedoError;
use crate::format::{group_len, segment_name};
use crate::redo::Redo;

/// What is copied at once.
const STEP_BYTES: u64 = 4 << 20;

/// How far a copy of the log has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyProgress {
    /// Everything before is copied; anywhere in a group.
    to: Lsn,
    /// Where the last group begins that does so before `to` or there.
    group: Lsn,
    /// Where the first group begins that does so at `to` or behind.
    next: Lsn,
}

impl CopyProgress {
    /// Nothing is copied yet of what is from `lsn` on, the start of a group.
    pub fn begin(lsn: Lsn) -> CopyProgress {
        CopyProgress { to: lsn, group: lsn, next: lsn }
    }

    /// Everything before is copied. The log needn't be readable from here: it may be in the middle of a group.
    pub fn to(&self) -> Lsn {
        self.to
    }

    /// How far the checkpoint may go meanwhile: the start of a group, not behind [`CopyProgress::to`].
    pub fn bound(&self) -> Lsn {
        self.group
    }

    /// What follows, up to `to`, is copied, too. Where it makes no sense, no later group is known.
    fn go_on(self, bytes: &[u8], to: Lsn) -> CopyProgress {
        let CopyProgress { to: from, mut group, mut next } = self;
        while next < to {
            group = next;
            let len = group_len(&bytes[(next.0 - from.0) as usize..]);
            next = len.map_or(Lsn(u64::MAX), |len| Lsn(next.0 + len as u64));
        }
        if next == to {
            group = next;
        }
        CopyProgress { to, group, next }
    }
}

impl Redo {
    /// Copies some of the log behind what is `copied`, up to `end` at most, which is durable; returns how far. A segment's file is durable, but for its
    /// name, when the end of what is to be copied of it is. Before the beginning the first one has zeros.
    ///
    /// # Errors
    /// `SegmentMissing` when the checkpoint has passed what is copied; the disks'. Here nothing has changed.
    pub fn copy_log(
        &self,
        mut copied: CopyProgress,
        end: Lsn,
        to: &dyn Disk,
    ) -> Result<CopyProgress, RedoError> {
        let at = copied.to;
        assert!(at <= end && end <= self.durable(), "copy of {at} to {end}");
        let Some(segment) = self.segments.find(at.0) else {
            return Err(RedoError::SegmentMissing { file: "redo".into(), lsn: at });
        };
        let (span, whole) = (segment.span, segment.span.end().min(end.0));
        let copy = to.open(&segment_name(span.number), Create::IfAbsent, Mode::Cached)?;
        if copy.is_empty()? {
            // What is not written now reads as zeros, as in a new segment.
            copy.set_len(span.file_bytes())?;
            copy.write(0, segment.file.read(0, AlignedBuf::zeroed(BLOCK))?)?;
        }
        let stop = whole.min(at.0 + STEP_BYTES);
        if stop > at.0 {
            let offset = span.file_offset(at.0);
            let buf = AlignedBuf::zeroed((stop - at.0) as usize);
            let buf = segment.file.read(offset, buf)?;
            copied = copied.go_on(&buf, Lsn(stop));
            copy.write(offset, buf)?;
        }
        if stop == whole {
            copy.sync()?;
        }
        Ok(copied)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Groups of 16, 40 and 24 bytes.
    fn log() -> Vec<u8> {
        let group = |len: usize| {
            let mut bytes = vec![0xff; len];
            bytes[..4].copy_from_slice(&(len as u32).to_le_bytes());
            bytes
        };
        [16, 40, 24].map(group).concat()
    }

    #[test]
    fn the_bound_is_where_a_group_begins() {
        let (log, begin) = (log(), 1 << 20);
        for step in (8..=80).step_by(8) {
            let mut copied = CopyProgress::begin(Lsn(begin));
            while copied.to() < Lsn(begin + 80) {
                let from = (copied.to().0 - begin) as usize;
                let to = (from + step).min(80);
                copied = copied.go_on(&log[from..to], Lsn(begin + to as u64));
                let last = [0, 16, 56, 80].into_iter().rfind(|start| *start <= to as u64);
                assert_eq!(Some(copied.bound().0 - begin), last, "at {to}");
            }
        }
    }

    #[test]
    fn the_bound_stays_before_what_is_no_group() {
        let mut log = log();
        log[16..20].fill(0);
        let copied =
            CopyProgress::begin(Lsn(0)).go_on(&log[..32], Lsn(32)).go_on(&log[32..], Lsn(80));
        assert_eq!((copied.to(), copied.bound()), (Lsn(80), Lsn(16)));
    }
}

//! Copies of the log's files, taken while it goes on. What is copied is looked at on its way, group
//! by group.

use weir_os::{AlignedBuf, BLOCK, Create, Disk, Mode};
use weir_page::Lsn;

use crate::RedoError;
use crate::format::{GROUP_HEADER_BYTES, group_len, head_crc, segment_name, u32_at};
use crate::reader::EndReason;
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
    /// Checksum of what is copied of the group before that, and what it is to be in the end.
    crc: u32,
    crc_stored: u32,
}

impl CopyProgress {
    /// Nothing is copied yet of what is from `lsn` on, the start of a group.
    pub fn begin(lsn: Lsn) -> CopyProgress {
        CopyProgress { to: lsn, group: lsn, next: lsn, crc: 0, crc_stored: 0 }
    }

    /// Everything before is copied. The log needn't be readable from here: it may be in the middle
    /// of a group.
    pub fn to(&self) -> Lsn {
        self.to
    }

    /// How far the checkpoint may go meanwhile: the start of a group, not behind
    /// [`CopyProgress::to`].
    pub fn bound(&self) -> Lsn {
        self.group
    }

    /// What follows is copied, too: whole words. Fails with the start of a group that isn't what
    /// was appended.
    fn go_on(mut self, mut bytes: &[u8]) -> Result<CopyProgress, (Lsn, EndReason)> {
        while !bytes.is_empty() {
            if self.to == self.next {
                let len = group_len(bytes).map_err(|why| (self.to, why))?;
                (self.group, self.next) = (self.to, Lsn(self.to.0 + len as u64));
                (self.crc, self.crc_stored) =
                    (head_crc(self.to.0, u32_at(bytes, 0)), u32_at(bytes, 4));
                bytes = self.pass(bytes, GROUP_HEADER_BYTES);
            }
            let payload = bytes.len().min((self.next.0 - self.to.0) as usize);
            self.crc = crc32c::crc32c_append(self.crc, &bytes[..payload]);
            bytes = self.pass(bytes, payload);
            if self.to == self.next && self.crc != self.crc_stored {
                let (expected, found) = (self.crc, self.crc_stored);
                return Err((self.group, EndReason::BadChecksum { expected, found }));
            }
        }
        if self.to == self.next {
            self.group = self.to;
        }
        Ok(self)
    }

    /// The log ends where the copy is: a group does so there, too.
    fn end(self) -> Result<CopyProgress, (Lsn, EndReason)> {
        match (self.next.0 - self.group.0) as u32 {
            _ if self.to == self.next => Ok(self),
            found => Err((self.group, EndReason::BadLength { found })),
        }
    }

    fn pass<'b>(&mut self, bytes: &'b [u8], count: usize) -> &'b [u8] {
        self.to = Lsn(self.to.0 + count as u64);
        &bytes[count..]
    }
}

impl Redo {
    /// Copies some of the log behind what is `copied`, up to `end` at most, which is durable;
    /// returns how far. A segment's file is durable, but for its name, when the end of what is to
    /// be copied of it is. Before the beginning the first one has zeros.
    ///
    /// # Errors
    /// `SegmentMissing` when the checkpoint has passed what is copied; `Cut`, or what is wrong with
    /// a header, where the log is damaged; the disks'. Here nothing has changed.
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
            let header = segment.file.read(0, AlignedBuf::zeroed(BLOCK))?;
            self.segments.check_header(&segment, &header)?;
            copy.write(0, header)?;
        }
        let stop = whole.min(at.0 + STEP_BYTES);
        if stop > at.0 {
            let offset = span.file_offset(at.0);
            let buf = AlignedBuf::zeroed((stop - at.0) as usize);
            let buf = segment.file.read(offset, buf)?;
            let looked_at = match stop == end.0 {
                true => copied.go_on(&buf).and_then(CopyProgress::end),
                false => copied.go_on(&buf),
            };
            copied = looked_at.map_err(|(lsn, why)| self.segments.cut(lsn, end, why))?;
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
    use crate::format::group_crc;

    /// Groups of 16, 40, 8 and 24 bytes.
    fn log(begin: u64) -> Vec<u8> {
        let mut log = Vec::new();
        for len in [16, 40, 8, 24] {
            let payload = vec![0xff; len - GROUP_HEADER_BYTES];
            let crc = group_crc(begin + log.len() as u64, len as u32, &payload);
            log.extend((len as u32).to_le_bytes());
            log.extend(crc.to_le_bytes());
            log.extend(payload);
        }
        log
    }

    /// What comes of a copy by steps of so many bytes; `each` is called with how far it is.
    fn copy(
        log: &[u8],
        begin: u64,
        step: usize,
        each: &mut dyn FnMut(CopyProgress),
    ) -> Result<CopyProgress, (Lsn, EndReason)> {
        let mut copied = CopyProgress::begin(Lsn(begin));
        for part in log.chunks(step) {
            copied = copied.go_on(part)?;
            each(copied);
        }
        copied.end()
    }

    #[test]
    fn the_bound_is_where_a_group_begins() {
        let begin = 1 << 20;
        let log = log(begin);
        for step in (8..=log.len()).step_by(8) {
            let copied = copy(&log, begin, step, &mut |copied| {
                let to = copied.to().0 - begin;
                let last = [0, 16, 56, 64, 88].into_iter().rfind(|start| *start <= to);
                assert_eq!(Some(copied.bound().0 - begin), last, "at {to}");
            });
            assert_eq!(copied.unwrap().to(), Lsn(begin + 88));
        }
    }

    #[test]
    fn any_wrong_bit_is_told_with_its_group_and_the_bound_stays_before_it() {
        let begin = 1 << 20;
        for bit in 0..8 * 88 {
            let mut log = log(begin);
            log[bit / 8] ^= 1 << (bit % 8);
            let group = [0, 16, 56, 64].into_iter().rfind(|start| *start <= bit / 8).unwrap();
            for step in [8, 24, 88] {
                let mut bound = begin;
                let copied = copy(&log, begin, step, &mut |copied| bound = copied.bound().0);
                let (lsn, _) = copied.expect_err(&format!("bit {bit}"));
                assert_eq!(lsn, Lsn(begin + group as u64), "bit {bit}");
                assert!(bound <= lsn.0);
            }
        }
    }
}

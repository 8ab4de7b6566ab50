//! Copies of the log's files, taken while it goes on.

use weir_os::{AlignedBuf, BLOCK, Create, Disk, Mode};
use weir_page::Lsn;

use crate::RedoError;
use crate::format::segment_name;
use crate::redo::Redo;

/// What is copied at once.
const STEP_BYTES: u64 = 4 << 20;

impl Redo {
    /// Copies some of the log from `at` on, up to `end` at most, which is durable; returns how far. A segment's file is durable, but for its
    /// name, when the end of what is to be copied of it is. Before `at` the first one has zeros.
    ///
    /// # Errors
    /// `SegmentMissing` when the checkpoint has passed `at`; the disks'. Here nothing has changed.
    pub fn copy_log(&self, at: Lsn, end: Lsn, to: &dyn Disk) -> Result<Lsn, RedoError> {
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
            copy.write(offset, segment.file.read(offset, buf)?)?;
        }
        if stop == whole {
            copy.sync()?;
        }
        Ok(Lsn(stop))
    }
}

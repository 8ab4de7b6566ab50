//! Copies of the log's files, taken while it goes on.

use weir_os::{AlignedBuf, Create, Disk, Mode};
use weir_page::Lsn;

use crate::RedoError;
use crate::format::{SEGMENT_HEADER_BYTES, segment_name};
use crate::redo::Redo;

/// What is read at once.
const STEP_BYTES: u64 = 1 << 20;

impl Redo {
    /// Copies the segment that holds `at`, up to `end` if that is in it, durably but for its name; returns how far the log
    /// is copied with it. `end` is durable, and the checkpoint is not moved past `at` meanwhile.
    ///
    /// # Errors
    /// The disks'; here nothing has changed.
    pub fn copy_segment(&self, at: Lsn, end: Lsn, to: &dyn Disk) -> Result<Lsn, RedoError> {
        assert!(at <= end && end <= self.durable(), "copy of {at} to {end}");
        let (segment, _) = self.segments.at(at.0);
        let (span, stop) = (segment.span, segment.span.end().min(end.0));
        let copy = to.open(&segment_name(span.number), Create::New, Mode::Cached)?;
        // What is not written now reads as zeros, as in a new segment.
        copy.set_len(span.file_bytes())?;
        let (mut offset, end) = (0, SEGMENT_HEADER_BYTES + (stop - span.start));
        while offset < end {
            let bytes = STEP_BYTES.min(end - offset);
            let buf = segment.file.read(offset, AlignedBuf::zeroed(bytes as usize))?;
            copy.write(offset, buf)?;
            offset += bytes;
        }
        copy.sync()?;
        Ok(Lsn(stop))
    }
}

//! Reading the log back, in order, up to where it ends.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use weir_os::{AlignedBuf, BLOCK, Disk, File};
use weir_page::Lsn;

use crate::RedoError;
use crate::format::{
    GROUP_HEADER_BYTES, MAX_GROUP_BYTES, SEGMENT_HEADER_BYTES, group_len, group_payload,
    segment_name, u32_at,
};
use crate::layout::{Layout, Span};
use crate::{segments, witness};

/// Most bytes in one read.
const READ_BYTES: usize = 1 << 20;

/// Why the stream ends where it does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// The place of the next group was never filled.
    Unwritten,
    /// What stands there has a length that no group has.
    BadLength {
        /// The length found.
        found: u32,
    },
    /// What stands there is not a group of this place: of an earlier lap, not wholly written, or
    /// damaged.
    BadChecksum {
        /// The checksum of the bytes.
        expected: u32,
        /// The stored checksum.
        found: u32,
    },
    /// The next segment is not there, or was being made.
    NoSegment {
        /// What is wrong with it.
        what: String,
    },
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EndReason::Unwritten => write!(f, "nothing was written there"),
            EndReason::BadLength { found } => write!(f, "impossible group length {found}"),
            EndReason::BadChecksum { expected, found } => {
                write!(f, "bad group checksum: expected {expected:#010x}, found {found:#010x}")
            }
            EndReason::NoSegment { what } => write!(f, "no further segment: {what}"),
        }
    }
}

/// A group as it was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group<'a> {
    /// Its LSN.
    pub start: Lsn,
    /// The position after it.
    pub end: Lsn,
    /// What was appended, followed by fewer than eight zero bytes of padding.
    pub payload: &'a [u8],
}

/// Reads groups in LSN order.
///
/// What it returns is not necessarily durable: a killed process leaves groups in the page cache
/// only. Call [`sync_all`] before anything relies on them.
pub struct Reader {
    disk: Arc<dyn Disk>,
    database_id: u64,
    file: Arc<dyn File>,
    /// Length of `file`.
    stored: u64,
    /// The segments that the window has bytes of, and the one of `file`, which is the last.
    spans: VecDeque<Span>,
    /// Bytes of the stream from `window_start` on.
    window: Vec<u8>,
    window_start: u64,
    /// The next group's place.
    at: u64,
    buf: AlignedBuf,
    durable_hint: u64,
    forgets: bool,
    ended: Option<EndReason>,
}

impl Reader {
    /// Opens the log to read from `from`, the start of a group or the log's end.
    ///
    /// # Errors
    /// No log; the segment of `from` is missing, damaged, newer, or of another database; the
    /// disk's. Other segments are not looked at until they are reached.
    pub fn open(disk: Arc<dyn Disk>, database_id: u64, from: Lsn) -> Result<Reader, RedoError> {
        let layout = Layout::of(&*disk, database_id)?;
        let span = layout.find(from.0).ok_or_else(|| layout.missing(from))?;
        let opened = segments::open_segment(&*disk, database_id, span.number, span.start)?;
        let stored = opened.file.len()?;
        Ok(Reader {
            disk,
            database_id,
            file: opened.file,
            stored,
            spans: VecDeque::from([opened.span]),
            window: Vec::new(),
            window_start: from.0,
            at: from.0,
            buf: AlignedBuf::zeroed(READ_BYTES),
            durable_hint: 0,
            forgets: false,
            ended: None,
        })
    }

    /// Tells up to where the log is known to have been durable (a value of `Redo::durable`, which
    /// is the end of a group): an earlier end is then an error.
    #[must_use]
    pub fn durable_hint(mut self, lsn: Lsn) -> Reader {
        self.durable_hint = lsn.0;
        self
    }

    /// Nobody is about to read again what it reads: it need not stay in the page cache.
    #[must_use]
    pub fn forgetting(mut self) -> Reader {
        self.forgets = true;
        self
    }

    /// The next group; `None` at the log's end.
    ///
    /// # Errors
    /// [`RedoError::Cut`] when the log ends before the durable hint, or where groups behind prove
    /// that this place was durable: it is damaged here; a segment of a newer release or of another
    /// database; the disk's.
    #[expect(clippy::should_implement_trait, reason = "the group borrows from the reader")]
    pub fn next(&mut self) -> Result<Option<Group<'_>>, RedoError> {
        if self.ended.is_none() {
            match self.check_next()? {
                Ok(len) => {
                    let start = self.at;
                    self.at += len as u64;
                    let first = (start - self.window_start) as usize;
                    let payload = &self.window[first + GROUP_HEADER_BYTES..first + len];
                    return Ok(Some(Group { start: Lsn(start), end: Lsn(self.at), payload }));
                }
                Err(why) => {
                    let first = (self.at - self.window_start) as usize;
                    let word = self
                        .window
                        .get(first..first + 4)
                        .map_or(0, |_| u32_at(&self.window, first));
                    let behind =
                        witness::durable_behind(&*self.disk, self.database_id, self.at, word)?;
                    self.durable_hint = self.durable_hint.max(behind);
                    self.ended = Some(why);
                }
            }
        }
        let why = self.ended.clone().expect("the end was just found");
        if self.at < self.durable_hint {
            let (file, offset) = self.place();
            let (lsn, expected_at_least) = (Lsn(self.at), Lsn(self.durable_hint));
            return Err(RedoError::Cut { file, offset, lsn, expected_at_least, why });
        }
        Ok(None)
    }

    /// File and byte offset of the next group's place, for messages.
    fn place(&self) -> (String, u64) {
        let newest = self.spans.back().expect("a segment is open");
        match self.spans.iter().find(|span| span.holds(self.at)) {
            Some(span) => (segment_name(span.number), span.file_offset(self.at)),
            None => (segment_name(newest.number + 1), SEGMENT_HEADER_BYTES),
        }
    }

    /// Position of the next group, for progress messages.
    pub fn position(&self) -> Lsn {
        Lsn(self.at)
    }

    /// Where the log ends, once [`Reader::next`] has returned `None`.
    pub fn end(&self) -> Option<Lsn> {
        self.ended.as_ref().map(|_| Lsn(self.at))
    }

    /// Length of the valid group at `at`, all of it in the window, or why there is none.
    fn check_next(&mut self) -> Result<Result<usize, EndReason>, RedoError> {
        if let Err(why) = self.fill(GROUP_HEADER_BYTES)? {
            return Ok(Err(why));
        }
        let first = (self.at - self.window_start) as usize;
        let bytes = match group_len(&self.window[first..]) {
            Ok(bytes) => bytes,
            Err(why) => return Ok(Err(why)),
        };
        if let Err(why) = self.fill(bytes)? {
            return Ok(Err(why));
        }
        let first = (self.at - self.window_start) as usize;
        Ok(group_payload(self.at, &self.window[first..first + bytes]).map(|_| bytes))
    }

    /// Reads on until the window holds `bytes` from `at` on.
    fn fill(&mut self, bytes: usize) -> Result<Result<(), EndReason>, RedoError> {
        let needed = self.at + bytes as u64;
        if self.window_start + self.window.len() as u64 >= needed {
            return Ok(Ok(()));
        }
        self.window.drain(..(self.at - self.window_start) as usize);
        self.window_start = self.at;
        while self.spans.len() > 1 && self.spans[0].end() <= self.at {
            self.spans.pop_front();
        }
        while (self.window.len() as u64) < bytes as u64 {
            if let Err(why) = self.read_on()? {
                return Ok(Err(why));
            }
        }
        assert!(self.window.len() <= MAX_GROUP_BYTES + READ_BYTES, "the window has a limit");
        Ok(Ok(()))
    }

    /// Appends the next block of the stream to the window.
    fn read_on(&mut self) -> Result<Result<(), EndReason>, RedoError> {
        let next = self.window_start + self.window.len() as u64;
        let mut span = *self.spans.back().expect("a segment is open");
        if next == span.end() {
            let number = span.number + 1;
            match segments::open_segment(&*self.disk, self.database_id, number, next) {
                Ok(opened) => {
                    (self.stored, self.file, span) = (opened.file.len()?, opened.file, opened.span);
                    self.spans.push_back(span);
                }
                Err(RedoError::Disk(e)) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(e.into());
                }
                // Whole, and no file that a crash may leave there.
                Err(e @ (RedoError::NewerVersion { .. } | RedoError::WrongDatabase { .. })) => {
                    return Err(e);
                }
                Err(e) => return Ok(Err(EndReason::NoSegment { what: e.to_string() })),
            }
        }
        let offset = span.file_offset(next);
        let bytes = ((span.end() - next).min(READ_BYTES as u64)) as usize;
        // A crash may have left the file short (cut at open, not yet grown again): zeros follow.
        let stored = self.stored.saturating_sub(offset).min(bytes as u64) as usize;
        if stored > 0 {
            let mut buf = std::mem::replace(&mut self.buf, AlignedBuf::zeroed(0));
            if buf.capacity() < READ_BYTES {
                // The last read failed, and took it along.
                buf = AlignedBuf::zeroed(READ_BYTES);
            }
            buf.set_len(stored);
            self.buf = self.file.read(offset, buf)?;
            self.window.extend_from_slice(&self.buf);
            if self.forgets {
                // Whole blocks: the one in which it ends is read on. Pieces of the cache reach over
                // the end of a read: those of the last one too.
                let block = BLOCK as u64;
                let first = offset.saturating_sub(READ_BYTES as u64).max(SEGMENT_HEADER_BYTES);
                let first = first / block * block;
                let end = (offset + stored as u64) / block * block;
                self.file.forget(first, end - first);
            }
        }
        self.window.resize(self.window.len() + bytes - stored, 0);
        Ok(Ok(()))
    }
}

/// Syncs every segment file and the directory, so that what a [`Reader`] has read is durable. For
/// those who rely on it before [`Redo::open_at`](crate::Redo::open_at), which does what is needed
/// of this itself.
///
/// # Errors
/// The disk's; recovery must not go on then.
pub fn sync_all(disk: &dyn Disk) -> Result<(), RedoError> {
    for number in segments::list(disk)? {
        disk.open(&segment_name(number), weir_os::Create::No, weir_os::Mode::Cached)?.sync()?;
    }
    disk.sync_dir()?;
    Ok(())
}

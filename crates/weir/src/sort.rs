//! External merge sort, for building an index from a filled table.
//!
//! Records (key, value) are collected in memory; when it is full they are sorted and written to a
//! temporary file, a *run*. In the end the runs are merged; when there are more than memory has
//! buffers for, some are merged into longer runs first. What fits in memory is never written.
//!
//! With [`Workers::Two`] a thread of the sort's own sorts and writes half of the memory while the
//! caller fills the other, and merges the runs while the caller takes what comes of it.
//!
//! # Invariants
//! - Memory held stays within the given number of bytes: the arenas and their indexes while
//!   collecting, the buffers of the runs while merging, and the write buffer in both, or what is
//!   merged ahead.
//! - Temporary files are named `tmp-`, never synced, never needed after a restart: they are removed
//!   when the sort ends in any way, and by [`remove_leftovers`] after a crash.
//!
//! The order of records with equal keys is not specified.

mod arena;
mod files;
mod helper;
mod merge;
mod run;
#[cfg(test)]
mod tests;

use arena::Arena;
use files::TemporaryFiles;
pub use files::remove_leftovers;
use helper::{Helper, wait};
use merge::{Ahead, Merge, batch_bytes};
use run::{BLOCK_BYTES, Run, RunReader, RunWriter};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use weir_os::{Disk, DiskError};

/// Least memory of a sort, in bytes.
pub const MEMORY_BYTES_MIN: usize = 1 << 20;

/// Records have come in ascending order if one in so many was above all before it: some may have
/// been late. Of records in random order so many are their number's logarithm.
const ASCENDING_PART: u64 = 8;

/// Sorted records lie anywhere: so many are fetched from memory ahead.
const PREFETCHED: usize = 8;

const BUFFER_BYTES_MAX: usize = 1 << 20;
/// Each run that is merged is an open file, and a process may have 1,024 where nobody has asked for
/// more.
const FAN_IN_MAX: usize = 128;

/// Why a sort failed. Its temporary files are removed when it is dropped.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SortError {
    /// A temporary file could not be written or read; `StorageFull` when the space is used up.
    #[error("sort: temporary file: {0}")]
    Disk(#[from] DiskError),
    /// A temporary file does not hold what was written.
    #[error("sort: temporary file {file} at offset {offset}: {what}; start the sort again")]
    Corrupt {
        /// The file.
        file: String,
        /// Byte offset of the block.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// A record needs more than an eighth of the memory.
    #[error("sort: a record of {bytes} bytes; with this memory at most {limit} are allowed")]
    RecordTooLarge {
        /// Bytes of key and value.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
    },
}

/// Result of a step of a sort.
pub type Result<T> = std::result::Result<T, SortError>;

/// Who does the work of a sort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workers {
    /// The caller.
    One,
    /// The caller and, once it has outgrown memory, a thread beside it.
    Two,
}

/// Collects records.
pub struct Sorter {
    arena: Arena,
    /// The run that is being written by the helper.
    writing: Option<Writing>,
    runs: VecDeque<Run>,
    workers: Workers,
    /// Dropped before the files that it writes.
    helper: Option<Helper>,
    files: TemporaryFiles,
    memory_bytes: usize,
    write_bytes: usize,
    record_bytes_max: usize,
    len: u64,
    /// The greatest key so far.
    greatest: Vec<u8>,
    /// Records that were above all before them.
    ascended: u64,
}

/// A run that is being written.
struct Writing {
    number: u32,
    written: Receiver<(Arena, Result<Run>)>,
}

impl Sorter {
    /// An empty sort. `name` must not be that of another sort on this disk that is going on.
    /// `memory_bytes` below [`MEMORY_BYTES_MIN`] count as that.
    pub fn new(disk: Arc<dyn Disk>, name: &str, memory_bytes: usize, workers: Workers) -> Sorter {
        let memory_bytes = memory_bytes.max(MEMORY_BYTES_MIN);
        let write_bytes = whole_blocks(memory_bytes / 8);
        let arenas = match workers {
            Workers::One => 1,
            Workers::Two => 2,
        };
        Sorter {
            arena: Arena::new((memory_bytes - write_bytes) / arenas),
            writing: None,
            runs: VecDeque::new(),
            workers,
            helper: None,
            files: TemporaryFiles::new(disk, name),
            memory_bytes,
            write_bytes,
            record_bytes_max: 0,
            len: 0,
            greatest: Vec::new(),
            ascended: 0,
        }
    }

    /// Adds a record.
    ///
    /// # Errors
    /// [`SortError`]; the sort has to be started again, unless the record was too large, which was
    /// not added.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (bytes, limit) = (key.len() + value.len(), self.memory_bytes / 8);
        if bytes > limit {
            return Err(SortError::RecordTooLarge { bytes, limit });
        }
        if !self.arena.make_room(arena::HEADER + bytes) {
            self.spill()?;
            assert!(self.arena.make_room(arena::HEADER + bytes), "an empty arena has room");
        }
        self.arena.push(key, value);
        self.record_bytes_max = self.record_bytes_max.max(bytes);
        self.len += 1;
        if key > &self.greatest[..] {
            self.greatest.clear();
            self.greatest.extend_from_slice(key);
            self.ascended += 1;
        }
        Ok(())
    }

    /// Sorts and merges; the result gives the records in key order.
    ///
    /// # Errors
    /// [`SortError`].
    pub fn finish(mut self) -> Result<Sorted> {
        let came_ascending = self.ascended * ASCENDING_PART >= self.len;
        let source = if self.runs.is_empty() && self.writing.is_none() {
            self.arena.sort();
            Source::Memory { arena: self.arena, next: 0 }
        } else {
            self.merge_all()?
        };
        Ok(Sorted { source, came_ascending, _helper: self.helper, _files: self.files })
    }

    fn merge_all(&mut self) -> Result<Source> {
        if !self.arena.is_empty() {
            self.spill()?;
        }
        self.end_writing()?;
        self.arena = Arena::new(0);
        let fan_in = self.fan_in();
        while self.runs.len() > fan_in {
            // As few as make the last merge a full one: long runs are not copied needlessly.
            self.merge_runs((self.runs.len() - fan_in + 1).min(fan_in))?;
        }
        let merge = self.open_merge(self.runs.len())?;
        Ok(match &self.helper {
            Some(helper) if self.record_bytes_max <= batch_bytes(self.write_bytes) => {
                Source::Ahead(merge.ahead(helper, self.write_bytes))
            }
            _ => Source::Runs(merge),
        })
    }

    /// Runs that can be merged at once.
    fn fan_in(&self) -> usize {
        let fitting =
            (self.memory_bytes - self.write_bytes) / (BLOCK_BYTES + self.record_bytes_max);
        fitting.clamp(2, FAN_IN_MAX)
    }

    fn open_merge(&self, count: usize) -> Result<Merge> {
        let share = (self.memory_bytes - self.write_bytes) / count;
        let read_bytes = whole_blocks(share.saturating_sub(self.record_bytes_max));
        let open = |run: &Run| RunReader::new(*run, self.files.open(run.number)?, read_bytes);
        Merge::new(self.runs.iter().take(count).map(open).collect::<Result<_>>()?)
    }

    /// Merges the first `count` runs into one, which becomes the last.
    fn merge_runs(&mut self, count: usize) -> Result<()> {
        let merge = self.open_merge(count)?;
        let (number, writer) = self.begin_run()?;
        self.end_run(number, merge.write(writer))?;
        for run in self.runs.drain(..count) {
            self.files.remove(run.number)?;
        }
        Ok(())
    }

    /// Has what is in memory written to a run of its own.
    fn spill(&mut self) -> Result<()> {
        let emptied = self.end_writing()?;
        let (number, writer) = self.begin_run()?;
        if self.workers == Workers::Two && self.helper.is_none() {
            self.helper = Helper::start();
        }
        let Some(helper) = &self.helper else {
            let run = write_sorted(&mut self.arena, writer);
            return self.end_run(number, run);
        };
        let empty = emptied.unwrap_or_else(|| self.arena.another());
        let mut full = mem::replace(&mut self.arena, empty);
        let (sender, written) = mpsc::sync_channel(1);
        helper.give(move || {
            let run = write_sorted(&mut full, writer);
            // Nobody waits for it where the sort has been given up.
            let _ = sender.send((full, run));
        });
        self.writing = Some(Writing { number, written });
        Ok(())
    }

    /// Waits for the run that is being written, if one is; returns its arena, which is empty then.
    fn end_writing(&mut self) -> Result<Option<Arena>> {
        let Some(Writing { number, written }) = self.writing.take() else { return Ok(None) };
        let (arena, run) = wait(&written);
        self.end_run(number, run)?;
        Ok(Some(arena))
    }

    fn begin_run(&mut self) -> Result<(u32, RunWriter)> {
        let (number, file) = self.files.create()?;
        Ok((number, RunWriter::new(number, file, self.write_bytes)))
    }

    fn end_run(&mut self, number: u32, run: Result<Run>) -> Result<()> {
        match run {
            Ok(run) => self.runs.push_back(run),
            Err(error) => {
                // Gives the space back at once; if that fails, the drop tries again.
                let _ = self.files.remove(number);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Writes an arena's records to a run, and empties it.
fn write_sorted(arena: &mut Arena, mut writer: RunWriter) -> Result<Run> {
    arena.sort();
    for at in 0..arena.len() {
        arena.prefetch(at + PREFETCHED);
        let (key, value) = arena.record(at);
        writer.put(key, value)?;
    }
    arena.clear();
    writer.finish()
}

/// A buffer's size for a share of memory: whole blocks, at least one.
fn whole_blocks(share: usize) -> usize {
    let share = share.min(BUFFER_BYTES_MAX);
    (share - share % BLOCK_BYTES).max(BLOCK_BYTES)
}

/// The records of a finished sort, in key order.
pub struct Sorted {
    source: Source,
    /// Whether the records came in about this order already.
    pub came_ascending: bool,
    /// Ends once nobody takes what it merges.
    _helper: Option<Helper>,
    /// Dropped after the readers.
    _files: TemporaryFiles,
}

enum Source {
    Memory { arena: Arena, next: usize },
    Runs(Merge),
    Ahead(Ahead),
}

impl Sorted {
    /// The next key and value; `None` at the end. They are valid until the next call.
    ///
    /// # Errors
    /// [`SortError`]; the sort has to be started again.
    #[allow(clippy::should_implement_trait, reason = "lends from itself, which Iterator can't")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &mut self.source {
            Source::Memory { arena, next } if *next < arena.len() => {
                *next += 1;
                Ok(Some(arena.record(*next - 1)))
            }
            Source::Memory { .. } => Ok(None),
            Source::Runs(merge) => merge.next(),
            Source::Ahead(ahead) => ahead.next(),
        }
    }
}

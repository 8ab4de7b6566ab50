//! External merge sort, for building an index from a filled table.
//!
//! Records (key, value) are collected in memory; when it is full they are sorted and written to a
//! temporary file, a *run*. In the end the runs are merged; when there are more than memory has
//! buffers for, some are merged into longer runs first. What fits in memory is never written.
//!
//! # Invariants
//! - Memory held stays within the given number of bytes: the arena and its index while collecting,
//!   the buffers of the runs while merging, and the write buffer in both.
//! - Temporary files are named `tmp-`, never synced, never needed after a restart: they are removed
//!   when the sort ends in any way, and by [`remove_leftovers`] after a crash.
//!
//! The order of records with equal keys is not specified.

mod merge;
mod run;
#[cfg(test)]
mod tests;

use merge::Merge;
use run::{BLOCK_BYTES, Run, RunReader, RunWriter};
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use weir_os::{Disk, DiskError};

/// How the names of temporary files begin.
pub const TEMPORARY_PREFIX: &str = "tmp-";
/// Least memory of a sort, in bytes.
pub const MEMORY_BYTES_MIN: usize = 1 << 20;

/// Records have come in ascending order if one in so many was above all before it: some may have been late. Of
/// records in random order so many are their number's logarithm.
const ASCENDING_PART: u64 = 8;

const BUFFER_BYTES_MAX: usize = 1 << 20;
/// Each run that is merged is an open file, and a process may have 1,024 where nobody has asked for more.
const FAN_IN_MAX: usize = 128;
const ARENA_BYTES_MIN: usize = 64 << 10;
/// Lengths of key and value in front of a record in the arena.
const ARENA_HEADER: usize = 8;

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

/// Removes temporary files that a crash has left. Call when a database is opened, before any sort.
/// Returns how many there were.
///
/// # Errors
/// What the disk says; some files may be removed.
pub fn remove_leftovers(disk: &dyn Disk) -> weir_os::Result<usize> {
    let mut names = disk.list()?;
    names.retain(|name| is_temporary(name));
    for name in &names {
        disk.remove(name)?;
    }
    if !names.is_empty() {
        disk.sync_dir()?;
    }
    Ok(names.len())
}

/// Whether a file has a name that [`TemporaryFiles`] gives.
fn is_temporary(name: &str) -> bool {
    let ends = name.strip_prefix(TEMPORARY_PREFIX).and_then(|rest| rest.rsplit_once('-'));
    ends.is_some_and(|(_, number)| number.parse::<u32>().is_ok())
}

/// Collects records.
pub struct Sorter {
    arena: Arena,
    runs: VecDeque<Run>,
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

impl Sorter {
    /// An empty sort. `name` must not be that of another sort on this disk that is going on.
    /// `memory_bytes` below [`MEMORY_BYTES_MIN`] count as that.
    pub fn new(disk: Arc<dyn Disk>, name: &str, memory_bytes: usize) -> Sorter {
        let memory_bytes = memory_bytes.max(MEMORY_BYTES_MIN);
        let write_bytes = whole_blocks(memory_bytes / 8);
        Sorter {
            arena: Arena::new(memory_bytes - write_bytes),
            runs: VecDeque::new(),
            files: TemporaryFiles {
                disk,
                stem: format!("{TEMPORARY_PREFIX}{name}"),
                numbers: Vec::new(),
                next: 0,
            },
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
    /// [`SortError`]; the record was not added, the others are kept.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let (bytes, limit) = (key.len() + value.len(), self.memory_bytes / 8);
        if bytes > limit {
            return Err(SortError::RecordTooLarge { bytes, limit });
        }
        if !self.arena.make_room(ARENA_HEADER + bytes) {
            self.spill()?;
            assert!(self.arena.make_room(ARENA_HEADER + bytes), "an empty arena has room");
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
        if self.runs.is_empty() {
            self.arena.sort();
            let source = Source::Memory { arena: self.arena, next: 0 };
            return Ok(Sorted { source, came_ascending, _files: self.files });
        }
        if !self.arena.is_empty() {
            self.spill()?;
        }
        self.arena = Arena::new(0);
        let fan_in = self.fan_in();
        while self.runs.len() > fan_in {
            // As few as make the last merge a full one: long runs are not copied needlessly.
            self.merge_runs((self.runs.len() - fan_in + 1).min(fan_in))?;
        }
        let merge = self.open_merge(self.runs.len())?;
        Ok(Sorted { source: Source::Runs(merge), came_ascending, _files: self.files })
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
        let open = |run: &Run| {
            let file = self.files.open(run.number, weir_os::Create::No)?;
            RunReader::new(*run, file, read_bytes)
        };
        Merge::new(self.runs.iter().take(count).map(open).collect::<Result<_>>()?)
    }

    /// Merges the first `count` runs into one, which becomes the last.
    fn merge_runs(&mut self, count: usize) -> Result<()> {
        let mut merge = self.open_merge(count)?;
        self.write_run(|_, writer| {
            while let Some((key, value)) = merge.next()? {
                writer.put(key, value)?;
            }
            Ok(())
        })?;
        drop(merge);
        for run in self.runs.drain(..count) {
            self.files.remove(run.number)?;
        }
        Ok(())
    }

    /// Writes what is in memory to a run of its own.
    fn spill(&mut self) -> Result<()> {
        self.arena.sort();
        self.write_run(|arena, writer| {
            (0..arena.index.len()).try_for_each(|at| {
                let (key, value) = arena.record(at);
                writer.put(key, value)
            })
        })?;
        self.arena.clear();
        Ok(())
    }

    fn write_run(&mut self, fill: impl FnOnce(&Arena, &mut RunWriter) -> Result<()>) -> Result<()> {
        let number = self.files.reserve();
        let write = || {
            let file = self.files.open(number, weir_os::Create::New)?;
            let mut writer = RunWriter::new(number, file, self.write_bytes);
            fill(&self.arena, &mut writer)?;
            writer.finish()
        };
        match write() {
            Ok(run) => {
                self.runs.push_back(run);
                Ok(())
            }
            Err(error) => {
                // Gives the space back at once; if that fails, the drop tries again.
                let _ = self.files.remove(number);
                Err(error)
            }
        }
    }
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
    /// Dropped after the readers.
    _files: TemporaryFiles,
}

enum Source {
    Memory { arena: Arena, next: usize },
    Runs(Merge),
}

impl Sorted {
    /// The next key and value; `None` at the end. They are valid until the next call.
    ///
    /// # Errors
    /// [`SortError`]; the sort has to be started again.
    #[allow(clippy::should_implement_trait, reason = "lends from itself, which Iterator can't")]
    pub fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        match &mut self.source {
            Source::Memory { arena, next } if *next < arena.index.len() => {
                *next += 1;
                Ok(Some(arena.record(*next - 1)))
            }
            Source::Memory { .. } => Ok(None),
            Source::Runs(merge) => merge.next(),
        }
    }
}

/// First bytes of a key as a number that compares like them.
fn key_head(key: &[u8]) -> u64 {
    let mut head = [0; 8];
    let len = key.len().min(8);
    head[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(head)
}

#[derive(Clone, Copy)]
struct ArenaEntry {
    head: u64,
    offset: usize,
}

/// Records in memory. Its two allocations together stay within the budget.
struct Arena {
    bytes: Vec<u8>,
    index: Vec<ArenaEntry>,
    budget: usize,
}

impl Arena {
    fn new(budget: usize) -> Arena {
        Arena { bytes: Vec::new(), index: Vec::new(), budget }
    }

    fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Empties the arena. An allocation that stayed half unused is given back to the other.
    fn clear(&mut self) {
        let half_used = self.index.len() >= self.index.capacity() / 2
            && self.bytes.len() >= self.bytes.capacity() / 2;
        if half_used {
            self.index.clear();
            self.bytes.clear();
        } else {
            *self = Arena::new(self.budget);
        }
    }

    fn capacity_bytes(&self) -> usize {
        self.bytes.capacity() + self.index.capacity() * mem::size_of::<ArenaEntry>()
    }

    /// Makes room for one more record of `bytes`; `false` if the budget does not allow it.
    fn make_room(&mut self, bytes: usize) -> bool {
        // Small steps, so that neither allocation takes what the other will need.
        let step = |capacity: usize, needed: usize, least: usize| {
            (capacity + capacity / 8).max(needed).max(least)
        };
        if self.index.len() == self.index.capacity() {
            let size = mem::size_of::<ArenaEntry>();
            let free = self.budget.saturating_sub(self.capacity_bytes()) / size;
            let wanted = step(self.index.capacity(), self.index.len() + 1, ARENA_BYTES_MIN / size);
            let target = wanted.min(self.index.capacity() + free);
            self.index.reserve_exact(target - self.index.len());
        }
        if self.bytes.capacity() - self.bytes.len() < bytes {
            let free = self.budget.saturating_sub(self.capacity_bytes());
            let wanted = step(self.bytes.capacity(), self.bytes.len() + bytes, ARENA_BYTES_MIN);
            let target = wanted.min(self.bytes.capacity() + free);
            self.bytes.reserve_exact(target - self.bytes.len());
        }
        if self.is_empty() && self.bytes.capacity() < bytes {
            // The index of small records has left too little for a large one: share anew.
            *self = Arena::new(self.budget);
            return self.make_room(bytes);
        }
        self.index.len() < self.index.capacity()
            && self.bytes.capacity() - self.bytes.len() >= bytes
    }

    fn push(&mut self, key: &[u8], value: &[u8]) {
        let len = |bytes: &[u8]| {
            u32::try_from(bytes.len()).expect("a record is far below 4 GiB").to_le_bytes()
        };
        self.index.push(ArenaEntry { head: key_head(key), offset: self.bytes.len() });
        self.bytes.extend_from_slice(&len(key));
        self.bytes.extend_from_slice(&len(value));
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.index.sort_unstable_by(|a, b| {
            let keys = || record_at(bytes, a.offset).0.cmp(record_at(bytes, b.offset).0);
            a.head.cmp(&b.head).then_with(keys)
        });
    }

    fn record(&self, at: usize) -> (&[u8], &[u8]) {
        record_at(&self.bytes, self.index[at].offset)
    }
}

fn record_at(bytes: &[u8], offset: usize) -> (&[u8], &[u8]) {
    let len = |at: usize| {
        let word = bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(word) as usize
    };
    let (key_len, value_len) = (len(offset), len(offset + 4));
    let record = &bytes[offset + ARENA_HEADER..][..key_len + value_len];
    record.split_at(key_len)
}

/// The names of a sort's files; removes them when dropped.
struct TemporaryFiles {
    disk: Arc<dyn Disk>,
    stem: String,
    numbers: Vec<u32>,
    next: u32,
}

impl TemporaryFiles {
    fn name(&self, number: u32) -> String {
        format!("{}-{number}", self.stem)
    }

    fn open(&self, number: u32, create: weir_os::Create) -> Result<Arc<dyn weir_os::File>> {
        Ok(self.disk.open(&self.name(number), create, weir_os::Mode::Direct)?)
    }

    fn reserve(&mut self) -> u32 {
        let number = self.next;
        self.next += 1;
        self.numbers.push(number);
        number
    }

    fn remove(&mut self, number: u32) -> Result<()> {
        self.disk.remove(&self.name(number))?;
        self.numbers.retain(|kept| *kept != number);
        Ok(())
    }
}

impl Drop for TemporaryFiles {
    fn drop(&mut self) {
        for &number in &self.numbers {
            // Whatever stays is removed when the database is opened next.
            let _ = self.disk.remove(&self.name(number));
        }
    }
}

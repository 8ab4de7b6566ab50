//! The ring of segment files: preallocation, recycling, removal, and what to do with them at open.
//!
//! Numbers present are always contiguous, `first ..= last`. A file gets a number once and its numbers
//! only grow: it is created (all zeros) or renamed from a lower number. Removal is from either end.
//! A segment enters the table, and with it the space that admission gives out, only after its length
//! and header are synced and its name is durable.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::sync::Arc;

use weir_os::{AlignedBuf, BLOCK, Create, Disk, DiskError, File, Mode};
use weir_page::Lsn;

use crate::RedoError;
use crate::format::{
    FORMAT_VERSION, Geometry, MAX_GROUP_BYTES, MAX_SEGMENT, NOTES_SINCE, SegmentHeader,
    segment_name, segment_number,
};
use crate::sync::Mutex;
use crate::writer::UNSYNCED_BYTES_MAX;

/// Numbers of the segment files on `disk`, ascending.
pub(crate) fn list(disk: &dyn Disk) -> Result<Vec<u64>, RedoError> {
    let mut numbers: Vec<u64> =
        disk.list()?.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Opens segment file `number` and reads its header, which must be whole and this database's.
pub(crate) fn open_any(
    disk: &dyn Disk,
    database_id: u64,
    number: u64,
) -> Result<(Arc<dyn File>, SegmentHeader), RedoError> {
    let file = disk.open(&segment_name(number), Create::No, Mode::Cached)?;
    let mut block = AlignedBuf::zeroed(BLOCK);
    let stored = file.len()?.min(BLOCK as u64) as usize;
    if stored > 0 {
        block.set_len(stored);
        block = file.read(0, block)?;
        block.set_len(BLOCK);
    }
    let header = SegmentHeader::decode(&block, file.name(), database_id)?;
    Ok((file, header))
}

/// Opens segment `number` of a log of known geometry.
pub(crate) fn open_segment(
    disk: &dyn Disk,
    database_id: u64,
    geometry: Geometry,
    number: u64,
) -> Result<Arc<dyn File>, RedoError> {
    Ok(open_checked(disk, database_id, geometry, number)?.0)
}

/// As [`open_segment`], with the header.
fn open_checked(
    disk: &dyn Disk,
    database_id: u64,
    geometry: Geometry,
    number: u64,
) -> Result<(Arc<dyn File>, SegmentHeader), RedoError> {
    let (file, header) = open_any(disk, database_id, number)?;
    header.expect(file.name(), number, geometry.segment_bytes)?;
    Ok((file, header))
}

/// The geometry of the log on `disk`, from the first whole header.
///
/// A torn header (of a segment that was being made at a crash) is passed over; if no header is whole,
/// the error of the newest file is returned.
pub(crate) fn discover(disk: &dyn Disk, database_id: u64) -> Result<Geometry, RedoError> {
    let mut error = RedoError::NoLog { directory: disk.describe() };
    for number in list(disk)? {
        match open_any(disk, database_id, number) {
            Ok((_, header)) => return Ok(Geometry { segment_bytes: header.segment_bytes }),
            Err(failed @ RedoError::Disk(_)) => return Err(failed),
            Err(other) => error = other,
        }
    }
    Err(error)
}

/// The segments present, by number.
struct Table {
    first: u64,
    files: VecDeque<Arc<dyn File>>,
}

impl Table {
    /// One past the last number.
    fn end(&self) -> u64 {
        self.first + self.files.len() as u64
    }
}

/// What [`Segments::take_over`] leaves to the opening.
pub(crate) struct TakenOver {
    /// Files before the checkpoint's, for recycling.
    pub spare: Vec<u64>,
    /// Where groups begin to note how far the log is durable: an older version's segment is filled in the
    /// older form.
    pub notes_from: u64,
}

/// Segments that an opening needs, and where groups begin to have notes.
type Needed = (VecDeque<Arc<dyn File>>, u64);

/// The ring of segment files of an open log.
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    database_id: u64,
    pub geometry: Geometry,
    /// Held briefly, never during I/O. Changes are made under the caller's maintenance lock.
    table: Mutex<Table>,
}

impl Segments {
    /// A ring with no segment yet; the first one made will be number `first`.
    pub fn empty(disk: Arc<dyn Disk>, database_id: u64, geometry: Geometry, first: u64) -> Self {
        let table = Mutex::new(Table { first, files: VecDeque::new() });
        Segments { disk, database_id, geometry, table }
    }

    /// Takes over the segments `checkpoint ..= end` of a recovered log, cuts it at `end`, and syncs it.
    ///
    /// Files after `end`'s segment are removed, and `end`'s is truncated at `end` and filled with zeros, so
    /// that no byte at or past `end` survives from the crashed incarnation.
    pub fn take_over(&self, checkpoint: Lsn, end: Lsn) -> Result<TakenOver, RedoError> {
        let first = self.geometry.segment(checkpoint.0);
        let numbers = list(&*self.disk)?;
        let (files, notes_from) = self.open_needed(&numbers, checkpoint, end)?;
        if checkpoint < end {
            let newest = self.geometry.segment(end.0 - 1);
            let until = self.geometry.start(newest);
            let from = end.0.saturating_sub(UNSYNCED_BYTES_MAX);
            if newest > first && from < until {
                self.rewrite_unsynced(&*files[(newest - 1 - first) as usize], from, until)?;
            }
            self.rewrite_unsynced(&*files[(newest - first) as usize], from, end.0)?;
        }
        let kept = first + files.len() as u64;
        for &number in numbers.iter().filter(|&&n| n >= kept) {
            self.disk.remove(&segment_name(number))?;
        }
        // Before the truncation: groups in them would make its zeros look like damage.
        self.disk.sync_dir()?;
        for (number, file) in (first..).zip(&files) {
            self.cut(&**file, number, end)?;
        }
        self.disk.sync_dir()?;
        self.table.lock().files = files;
        let spare = numbers.into_iter().filter(|&n| n < first).collect();
        Ok(TakenOver { spare, notes_from })
    }

    /// Opens the segments from the checkpoint's to the end's; the last one only if something of the log is in it,
    /// or it is whole. Returns where groups begin to have notes, too.
    fn open_needed(&self, numbers: &[u64], checkpoint: Lsn, end: Lsn) -> Result<Needed, RedoError> {
        let (first, last) = (self.geometry.segment(checkpoint.0), self.geometry.segment(end.0));
        let (mut files, mut notes_from) = (VecDeque::new(), 0);
        for number in first..=last {
            let is_empty = number == last && self.geometry.start(last) == end.0;
            if !numbers.contains(&number) {
                if is_empty {
                    break;
                }
                let lsn = Lsn(self.geometry.start(number).max(checkpoint.0));
                return Err(RedoError::SegmentMissing { file: segment_name(number), lsn });
            }
            match open_checked(&*self.disk, self.database_id, self.geometry, number) {
                Ok((file, header)) => {
                    files.push_back(file);
                    if header.version < NOTES_SINCE {
                        notes_from = self.geometry.start(number + 1);
                    }
                }
                Err(e @ RedoError::Disk(_)) => return Err(e),
                // Being made at the crash: it is made anew.
                Err(_) if is_empty => break,
                Err(e) => return Err(e),
            }
        }
        Ok((files, notes_from))
    }

    /// Cuts a segment at the log's end, if that is in it, gives it its length, and syncs it as far as it may not be.
    fn cut(&self, file: &dyn File, number: u64, end: Lsn) -> Result<(), RedoError> {
        let last = self.geometry.segment(end.0);
        if number == last {
            file.set_len(self.geometry.file_offset(end.0))?;
        }
        if number + 2 >= last {
            file.sync()?; // those before were, before the one after the next took its first byte
        }
        if file.len()? != self.geometry.file_bytes() {
            file.set_len(self.geometry.file_bytes())?;
            if number == last {
                self.zero_unsynced(file, end.0)?;
            }
            file.sync()?;
        }
        Ok(())
    }

    /// Writes again what the crashed incarnation may have written and not synced. If a sync of it failed,
    /// the system may take those bytes for clean: syncing them now would succeed and do nothing. `from` on, as
    /// far as they are in the segment that holds the byte before `end`.
    fn rewrite_unsynced(&self, file: &dyn File, from: u64, end: u64) -> Result<(), RedoError> {
        let start = self.geometry.start(self.geometry.segment(end - 1));
        let mut at = from.max(start) / BLOCK as u64 * BLOCK as u64;
        while at < end {
            let bytes = (end - at).min(1 << 20);
            let offset = self.geometry.file_offset(at);
            let buf = file.read(offset, AlignedBuf::zeroed(bytes as usize))?;
            file.write(offset, buf)?;
            at += bytes;
        }
        Ok(())
    }

    /// Writes zeros where the crashed incarnation may have written without a sync, which are zeros since the
    /// truncation, unless an earlier open failed to sync that.
    fn zero_unsynced(&self, file: &dyn File, end: u64) -> Result<(), RedoError> {
        let limit = self.geometry.start(self.geometry.segment(end) + 1);
        // The last group that is synced in part may have begun at `end`.
        let written = end + MAX_GROUP_BYTES as u64 + UNSYNCED_BYTES_MAX;
        let limit = limit.min(written.next_multiple_of(BLOCK as u64));
        let mut at = end;
        while at < limit {
            let bytes = (limit - at).min(1 << 20);
            file.write(self.geometry.file_offset(at), AlignedBuf::zeroed(bytes as usize))?;
            at += bytes;
        }
        Ok(())
    }

    /// The file of segment `number`, which must be present.
    pub fn file(&self, number: u64) -> Arc<dyn File> {
        let table = self.table.lock();
        assert!(
            (table.first..table.end()).contains(&number),
            "segment {number} is outside {}..{}",
            table.first,
            table.end()
        );
        table.files[(number - table.first) as usize].clone()
    }

    /// Whether there is space for a log of that capacity, which takes one segment more than `segments`. Those that
    /// are `present` count, whatever becomes of them: the space of one that is removed is free again.
    ///
    /// # Errors
    /// [`RedoError::NoSpace`]; the disk's. Nothing changed.
    pub fn check_space(
        &self,
        capacity_bytes: u64,
        segments: u64,
        present: u64,
    ) -> Result<(), RedoError> {
        let missing = (segments + 1).saturating_sub(present);
        let needed_bytes = missing * self.geometry.file_bytes();
        if needed_bytes == 0 {
            return Ok(());
        }
        let free_bytes = self.disk.free_bytes()?;
        if needed_bytes <= free_bytes {
            return Ok(());
        }
        let directory = self.disk.describe();
        Err(RedoError::NoSpace { capacity_bytes, directory, free_bytes, needed_bytes })
    }

    /// Makes the ring `first ..= last`: recycles what falls free in front, then `spare` files, creates what
    /// is still missing, removes what is too much. Everything is durable on return.
    ///
    /// # Errors
    /// The disk's. The table then still holds every segment from `first` on that it held before, short
    /// of those past `last`.
    pub fn arrange(&self, first: u64, last: u64, mut spare: Vec<u64>) -> Result<(), RedoError> {
        let mut surplus = Vec::new();
        let next = {
            let mut table = self.table.lock();
            assert!(first >= table.first && first <= last, "segments {first}..={last}");
            while table.first < first {
                if table.files.pop_front().is_some() {
                    spare.push(table.first);
                }
                table.first += 1;
            }
            while table.end() > last + 1 {
                table.files.pop_back();
                surplus.push(table.end());
            }
            table.end()
        };
        if surplus.is_empty() && spare.is_empty() && next > last {
            return Ok(());
        }
        let mut made = Vec::new();
        for number in next..=last {
            made.push(match spare.pop() {
                Some(old) => self.recycle(old, number)?,
                None => self.create(number)?,
            });
        }
        // After all of them are made, so that one commit of the file system's journal serves all.
        for file in &made {
            file.sync()?;
        }
        for number in surplus.into_iter().chain(spare) {
            self.disk.remove(&segment_name(number))?;
        }
        self.disk.sync_dir()?;
        self.table.lock().files.extend(made);
        Ok(())
    }

    fn recycle(&self, from: u64, to: u64) -> Result<Arc<dyn File>, RedoError> {
        assert!(from < to, "segment {from} recycled as {to}");
        self.disk.rename(&segment_name(from), &segment_name(to))?;
        let file = self.disk.open(&segment_name(to), Create::No, Mode::Cached)?;
        self.prepare(file, to)
    }

    fn create(&self, number: u64) -> Result<Arc<dyn File>, RedoError> {
        let file = self.disk.open(&segment_name(number), Create::New, Mode::Cached)?;
        self.prepare(file, number)
    }

    fn prepare(&self, file: Arc<dyn File>, number: u64) -> Result<Arc<dyn File>, RedoError> {
        assert!(number <= MAX_SEGMENT, "segment number {number} has more than ten digits");
        if file.len()? != self.geometry.file_bytes() {
            file.set_len(self.geometry.file_bytes())?;
        }
        let header = SegmentHeader {
            version: FORMAT_VERSION,
            database_id: self.database_id,
            number,
            segment_bytes: self.geometry.segment_bytes,
        };
        let mut block = AlignedBuf::zeroed(BLOCK);
        header.encode(&mut block);
        file.write(0, block)?;
        Ok(file)
    }

    /// Removes those of these segments that are there, after making them has failed, as far as the disk lets it.
    pub fn discard(&self, numbers: RangeInclusive<u64>) -> Result<(), DiskError> {
        for number in numbers {
            match self.disk.remove(&segment_name(number)) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        self.disk.sync_dir()
    }

    /// One past the last segment present.
    pub fn end(&self) -> u64 {
        self.table.lock().end()
    }
}

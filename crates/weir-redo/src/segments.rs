//! The ring of segment files: preallocation, recycling, removal, and what to do with them at open.
//!
//! Numbers present are always contiguous, `first ..= last`, and each segment begins where the one
//! before ends. A file gets a number once and its numbers only grow: it is created (all zeros) or
//! renamed from a lower number. Removal is from either end. Segments are made as long as the log's
//! capacity asks for then (`layout`). A segment enters the table, and with it the space that
//! admission gives out, only after its length and header are synced and its name is durable.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::Arc;

use weir_os::{AlignedBuf, BLOCK, Create, Disk, File, Mode};
use weir_page::Lsn;

use crate::RedoError;
use crate::format::{
    FORMAT_VERSION, MAX_GROUP_BYTES, MAX_SEGMENT, NOTES_SINCE, SegmentHeader, segment_name,
    segment_number,
};
use crate::layout::{Missing, Plan, Span, Wanted, missing};
use crate::reader::EndReason;
use crate::sync::Mutex;
use crate::writer::UNSYNCED_BYTES_MAX;

/// Numbers of the segment files on `disk`, ascending.
pub(crate) fn list(disk: &dyn Disk) -> Result<Vec<u64>, RedoError> {
    let mut numbers: Vec<u64> =
        disk.list()?.iter().filter_map(|name| segment_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// An open segment file with a whole header of its number and this database.
pub(crate) struct Opened {
    pub file: Arc<dyn File>,
    pub span: Span,
    version: u32,
}

/// Opens segment file `number` and reads its header.
pub(crate) fn open_any(
    disk: &dyn Disk,
    database_id: u64,
    number: u64,
) -> Result<Opened, RedoError> {
    let (file, header) = read_header(disk, database_id, number)?;
    header.expect_number(file.name(), number)?;
    Ok(Opened { file, span: header.span, version: header.version })
}

/// As [`open_any`], of a segment that begins at `start`.
pub(crate) fn open_segment(
    disk: &dyn Disk,
    database_id: u64,
    number: u64,
    start: u64,
) -> Result<Opened, RedoError> {
    let (file, header) = read_header(disk, database_id, number)?;
    header.expect_number(file.name(), number)?;
    header.expect_start(file.name(), start)?;
    Ok(Opened { file, span: header.span, version: header.version })
}

fn read_header(
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

/// A segment in use.
#[derive(Clone)]
pub(crate) struct Segment {
    pub span: Span,
    pub file: Arc<dyn File>,
}

/// The segments in use, in order.
struct Table {
    segments: VecDeque<Segment>,
    /// Number and first LSN of the segment that is made next.
    next: (u64, u64),
}

impl Table {
    fn spans(&self) -> VecDeque<Span> {
        self.segments.iter().map(|segment| segment.span).collect()
    }
}

/// What [`Segments::take_over`] leaves to be done.
#[derive(Default)]
pub(crate) struct TakenOver {
    /// Where groups begin to note how far the log is durable: an older version's segment is filled
    /// in the older form.
    pub notes_from: u64,
    /// Files behind the ring, by the numbers that they have now. Nothing in them is valid: they are
    /// made segments.
    pub spares: Vec<u64>,
}

/// The ring of segment files of an open log.
pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    database_id: u64,
    /// Held briefly, never during I/O. Changes are made under the caller's maintenance lock.
    table: Mutex<Table>,
}

impl Segments {
    /// A ring with no segment yet; the first one made will have that number, and begin at `start`.
    pub fn empty(disk: Arc<dyn Disk>, database_id: u64, number: u64, start: u64) -> Self {
        let table = Mutex::new(Table { segments: VecDeque::new(), next: (number, start) });
        Segments { disk, database_id, table }
    }

    /// Takes over the segments `checkpoint ..= end` of a recovered log, cuts it at `end`, and syncs
    /// it. No segment is in the ring yet; the one of the checkpoint comes first.
    ///
    /// Files before them are removed. Those after `end`'s segment are moved on if `may_move`,
    /// removed if not; that one is truncated at `end` and filled with zeros: so no byte at or past
    /// `end` survives from the crashed incarnation.
    pub fn take_over(
        &self,
        checkpoint: Lsn,
        end: Lsn,
        may_move: bool,
    ) -> Result<TakenOver, RedoError> {
        let (first, _) = self.next();
        let numbers = list(&*self.disk)?;
        let needed = self.open_needed(&numbers, checkpoint, end)?;
        if checkpoint < end {
            let holds = |opened: &Opened| opened.span.holds(end.0 - 1);
            let newest = needed.iter().position(holds).expect("what was read is in the segments");
            let from = end.0.saturating_sub(UNSYNCED_BYTES_MAX);
            for opened in &needed[newest.saturating_sub(1)..=newest] {
                rewrite_unsynced(opened, from, end.0)?;
            }
        }
        let kept = first..first + needed.len() as u64;
        let (behind, mut removed): (Vec<_>, Vec<_>) =
            numbers.into_iter().filter(|n| !kept.contains(n)).partition(|&n| n >= kept.end);
        let mut spares = Vec::new();
        if may_move {
            // What the last one takes is for the one that is made in front of the others.
            removed.extend(behind.last());
            spares.extend(behind.iter().rev().skip(1).map(|number| number + 1));
        } else {
            removed.extend(behind);
        }
        for number in removed {
            self.disk.remove(&segment_name(number))?;
        }
        for &spare in &spares {
            self.disk.rename(&segment_name(spare - 1), &segment_name(spare))?;
        }
        // Before the truncation: groups in them would make its zeros look like damage.
        self.disk.sync_dir()?;
        for (nth, opened) in needed.iter().enumerate() {
            cut(opened, needed.len() - nth, end.0)?;
        }
        self.disk.sync_dir()?;
        let older = needed.iter().rfind(|opened| opened.version < NOTES_SINCE);
        let notes_from = older.map_or(0, |opened| opened.span.end());
        let mut table = self.table.lock();
        for Opened { file, span, .. } in needed {
            table.next = (span.number + 1, span.end());
            table.segments.push_back(Segment { span, file });
        }
        Ok(TakenOver { notes_from, spares })
    }

    /// Opens the segments from the checkpoint's to the end's; the last one only if something of the
    /// log is in it, or it is whole.
    fn open_needed(
        &self,
        numbers: &[u64],
        checkpoint: Lsn,
        end: Lsn,
    ) -> Result<Vec<Opened>, RedoError> {
        let (mut number, mut start) = self.next();
        let mut needed: Vec<Opened> = Vec::new();
        while start <= end.0 {
            let is_empty = start == end.0;
            if !numbers.contains(&number) {
                if is_empty {
                    break;
                }
                let (file, lsn) = (segment_name(number), Lsn(start).max(checkpoint));
                return Err(RedoError::SegmentMissing { file, lsn });
            }
            match open_segment(&*self.disk, self.database_id, number, start) {
                Ok(opened) => {
                    (number, start) = (number + 1, opened.span.end());
                    needed.push(opened);
                }
                Err(e @ RedoError::Disk(_)) => return Err(e),
                // Being made at the crash: it is made anew.
                Err(_) if is_empty => break,
                Err(e) => return Err(e),
            }
        }
        Ok(needed)
    }

    /// Number and first LSN of the segment that is made next.
    pub fn next(&self) -> (u64, u64) {
        self.table.lock().next
    }

    /// The first segment.
    pub fn first(&self) -> Span {
        self.table.lock().segments.front().expect("an open log has segments").span
    }

    /// The segment that holds a position, and where the one before it begins, if that is in use.
    pub fn at(&self, lsn: u64) -> (Segment, Option<u64>) {
        let table = self.table.lock();
        let behind = table.segments.partition_point(|segment| segment.span.start <= lsn);
        let at = behind.checked_sub(1).map(|at| &table.segments[at]);
        let segment = at.filter(|segment| segment.span.holds(lsn));
        let segment = segment.unwrap_or_else(|| panic!("LSN {lsn} is outside of the segments"));
        let before = behind.checked_sub(2).map(|before| table.segments[before].span.start);
        (segment.clone(), before)
    }

    /// The segment that holds a position, if it is in use.
    pub fn find(&self, lsn: u64) -> Option<Segment> {
        let table = self.table.lock();
        table.segments.iter().find(|segment| segment.span.holds(lsn)).cloned()
    }

    /// The segments that hold `from .. to`.
    pub fn between(&self, from: u64, to: u64) -> Vec<Segment> {
        let table = self.table.lock();
        let touches = |span: Span| span.start < to && from < span.end();
        table.segments.iter().filter(|segment| touches(segment.span)).cloned().collect()
    }

    /// Whether a segment in use has the header that it was given; `block` is what it has.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_header(&self, segment: &Segment, block: &[u8]) -> Result<(), RedoError> {
        let name = segment.file.name();
        let header = SegmentHeader::decode(block, name, self.database_id)?;
        header.expect_number(name, segment.span.number)?;
        header.expect_start(name, segment.span.start)
    }

    /// The log is damaged at `lsn`, and was durable up to `durable`.
    pub fn cut(&self, lsn: Lsn, durable: Lsn, why: EndReason) -> RedoError {
        let place = self.find(lsn.0);
        let (file, offset) = place.map_or((String::new(), 0), |segment| {
            (segment.file.name().to_string(), segment.span.file_offset(lsn.0))
        });
        RedoError::Cut { file, offset, lsn, expected_at_least: durable, why }
    }

    /// Whether there is space for a log of that capacity, whose files take so many bytes. Those of
    /// the files that are `present` count, whatever becomes of them: the space of one that is
    /// removed is free again.
    ///
    /// # Errors
    /// [`RedoError::NoSpace`]; the disk's. Nothing changed.
    pub fn check_space(
        &self,
        capacity_bytes: u64,
        file_bytes: u64,
        present_bytes: u64,
    ) -> Result<(), RedoError> {
        let needed_bytes = file_bytes.saturating_sub(present_bytes);
        if needed_bytes == 0 {
            return Ok(());
        }
        let free_bytes = self.disk.free_bytes()?;
        if needed_bytes <= free_bytes {
            return Ok(());
        }
        let directory = self.disk.place();
        Err(RedoError::NoSpace { capacity_bytes, directory, free_bytes, needed_bytes })
    }

    /// The segments that `room` needs, beside those there are, were they made of `bytes`.
    pub fn missing(&self, room: u64, bytes: u64) -> Missing {
        let table = self.table.lock();
        let longest = table.segments.iter().map(|segment| segment.span.bytes).max().unwrap_or(0);
        let start = table.segments.front().map_or(table.next.1, |segment| segment.span.start);
        missing(start, table.next.1, longest, room, bytes)
    }

    /// Makes the ring what is `wanted`: recycles what falls free in front, creates what is still
    /// missing, at most `most` files, removes what is too much. Those that are among the `spares`
    /// aren't created: their files are there, and those left over are removed. Everything is
    /// durable on return. Whether nothing is missing any more.
    ///
    /// # Errors
    /// The disk's. The table then still holds every segment from the checkpoint's on that it held
    /// before, short of those that were too many.
    pub fn arrange(&self, wanted: &Wanted, most: usize, spares: &[u64]) -> Result<bool, RedoError> {
        let (mut plan, recycled) = {
            let mut table = self.table.lock();
            let (mut spans, mut next) = (table.spans(), table.next);
            let plan = Plan::of(&mut spans, &mut next, wanted);
            let recycled = plan.recycled.iter().map(|(old, span)| {
                let old = table.segments.iter().find(|segment| segment.span.number == *old);
                (old.expect("a segment that is recycled is in use").clone(), *span)
            });
            let recycled: Vec<_> = recycled.collect();
            let start = spans.front().map_or(next.1, |first| first.start);
            table.segments.retain(|segment| (start..next.1).contains(&segment.span.start));
            table.next = next;
            (plan, recycled)
        };
        let behind = plan.created.last().map_or(self.next().0, |last| last.number + 1);
        let left_over: Vec<_> = spares.iter().filter(|spare| **spare >= behind).collect();
        if plan.is_empty() && left_over.is_empty() {
            return Ok(true);
        }
        // First: what is made may need their space.
        for spare in left_over {
            self.disk.remove(&segment_name(*spare))?;
        }
        let is_done = plan.created.len() <= most;
        plan.created.truncate(most);
        let mut made = Vec::with_capacity(recycled.len() + plan.created.len());
        for (old, span) in recycled {
            made.push(Segment { span, file: self.recycle(old, span)? });
        }
        for span in plan.created {
            let how = if spares.contains(&span.number) { Create::No } else { Create::New };
            let file = self.disk.open(&segment_name(span.number), how, Mode::Cached)?;
            made.push(Segment { span, file: self.prepare(file, span)? });
        }
        // After all of them are made, so that one commit of the file system's journal serves all.
        for segment in &made {
            segment.file.sync()?;
        }
        for number in plan.removed {
            self.disk.remove(&segment_name(number))?;
        }
        self.sync_names()?;
        let mut table = self.table.lock();
        for segment in made {
            table.next = (segment.span.number + 1, segment.span.end());
            table.segments.push_back(segment);
        }
        Ok(is_done)
    }

    /// The file stays open: a process that may open no more goes on.
    fn recycle(&self, old: Segment, to: Span) -> Result<Arc<dyn File>, RedoError> {
        let from = old.span.number;
        assert!(from < to.number, "segment {from} recycled as {}", to.number);
        self.disk.rename(&segment_name(from), &segment_name(to.number))?;
        self.prepare(old.file.renamed(&segment_name(to.number)), to)
    }

    fn prepare(&self, file: Arc<dyn File>, span: Span) -> Result<Arc<dyn File>, RedoError> {
        assert!(span.number <= MAX_SEGMENT, "segment number {} is too long", span.number);
        if file.len()? != span.file_bytes() {
            file.set_len(span.file_bytes())?;
        }
        let header = SegmentHeader { version: FORMAT_VERSION, database_id: self.database_id, span };
        let mut block = AlignedBuf::zeroed(BLOCK);
        header.encode(&mut block);
        file.write(0, block)?;
        Ok(file)
    }

    /// Removes the files behind the last segment in use, which are left when making them has
    /// failed, as far as the disk lets it.
    pub fn discard_unused(&self) -> Result<(), RedoError> {
        // They were made in order, and a list of files might need a descriptor that the process
        // hasn't got.
        let (mut number, _) = self.next();
        loop {
            match self.disk.remove(&segment_name(number)) {
                Err(error) if error.kind() == ErrorKind::NotFound => break,
                removed => removed?,
            }
            number += 1;
        }
        self.sync_names()
    }

    /// Makes the names of all files of the directory durable.
    pub fn sync_names(&self) -> Result<(), RedoError> {
        Ok(self.disk.sync_dir()?)
    }
}

/// Cuts a segment at the log's end, if that is in it, gives it its length, and syncs it as far as
/// it may not be. It is the `nth` of those that the log needs, counted from the last one.
fn cut(opened: &Opened, nth: usize, end: u64) -> Result<(), RedoError> {
    let Opened { file, span, .. } = opened;
    let has_end = span.holds(end);
    if has_end {
        file.set_len(span.file_offset(end))?;
    }
    if nth <= 3 {
        file.sync()?; // those before were, before the one after the next took its first byte
    }
    if file.len()? != span.file_bytes() {
        file.set_len(span.file_bytes())?;
        if has_end {
            zero_unsynced(opened, end)?;
        }
        file.sync()?;
    }
    Ok(())
}

/// Writes again what the crashed incarnation may have written and not synced. If a sync of it
/// failed, the system may take those bytes for clean: syncing them now would succeed and do
/// nothing. From `from` to `end`, as far as that is in the segment.
fn rewrite_unsynced(opened: &Opened, from: u64, end: u64) -> Result<(), RedoError> {
    let Opened { file, span, .. } = opened;
    let end = end.min(span.end());
    let mut at = from.max(span.start) / BLOCK as u64 * BLOCK as u64;
    while at < end {
        let bytes = (end - at).min(1 << 20);
        let offset = span.file_offset(at);
        let buf = file.read(offset, AlignedBuf::zeroed(bytes as usize))?;
        file.write(offset, buf)?;
        at += bytes;
    }
    Ok(())
}

/// Writes zeros where the crashed incarnation may have written without a sync, which are zeros
/// since the truncation, unless an earlier open failed to sync that.
fn zero_unsynced(opened: &Opened, end: u64) -> Result<(), RedoError> {
    let Opened { file, span, .. } = opened;
    // The last group that is synced in part may have begun at `end`.
    let written = end + MAX_GROUP_BYTES as u64 + UNSYNCED_BYTES_MAX;
    let limit = span.end().min(written.next_multiple_of(BLOCK as u64));
    let mut at = end;
    while at < limit {
        let bytes = (limit - at).min(1 << 20);
        file.write(span.file_offset(at), AlignedBuf::zeroed(bytes as usize))?;
        at += bytes;
    }
    Ok(())
}

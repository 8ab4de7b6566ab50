//! The open log: admission, append, and the positions. Writing and syncing are in `writer`.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use weir_os::{BLOCK, Disk, DiskError};
use weir_page::Lsn;

use crate::RedoError;
use crate::commit::Commits;
use crate::format::{MAX_PAYLOAD_BYTES, MIN_SEGMENTS, group_bytes, is_segment_size};
use crate::groups::Groups;
use crate::layout::{Layout, Wanted, file_bytes, missing, next_segment_bytes};
use crate::ring::{Claim, Ring};
use crate::segments::{self, Segments, TakenOver};
use crate::sync::{AtomicBool, AtomicU64, AtomicUsize, Condvar, Mutex, fence, wait_for};
use crate::writer::Writer;

/// How to make or open a log.
#[derive(Debug, Clone)]
pub struct RedoOptions {
    /// Greatest checkpoint age; rounded down to whole segments, at least [`crate::MIN_SEGMENTS`].
    /// The files take one segment more, because the oldest is recycled only when it is wholly free.
    pub capacity_bytes: u64,
    /// Payload of a new log's segment files, a multiple of 4096: see [`crate::segment_bytes_of`]. A
    /// log that there is goes by its own files and its capacity, and ignores this field.
    pub segment_bytes: u64,
    /// Size of the log buffer in memory, a power of two.
    pub buffer_bytes: usize,
    /// Stamped on every segment, so that files of two databases can't be mixed up.
    pub database_id: u64,
}

/// Segments that growth makes in one go.
const GROWTH_SEGMENTS: usize = 4;

impl Default for RedoOptions {
    fn default() -> Self {
        RedoOptions {
            capacity_bytes: 1 << 30,
            segment_bytes: 64 << 20,
            buffer_bytes: 16 << 20,
            database_id: 0,
        }
    }
}

impl RedoOptions {
    fn check(&self) -> Result<(), RedoError> {
        let what = if !self.buffer_bytes.is_power_of_two() || self.buffer_bytes < BLOCK {
            format!("buffer_bytes {} is not a power of two from {BLOCK} on", self.buffer_bytes)
        } else if !is_segment_size(self.segment_bytes) {
            format!("segment_bytes {} is not a multiple of {BLOCK} up to 1 TiB", self.segment_bytes)
        } else {
            return Ok(());
        };
        Err(RedoError::Options { what })
    }
}

/// Who asks for space: how much of the capacity must stay unused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Ordinary work: leaves an eighth of the capacity, at least 64 KiB but never more than half,
    /// to `System`.
    User,
    /// What frees space and must not fail for want of it: relocation records.
    System,
}

/// Why no space was given. Nothing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The log buffer is full: the writer has to write.
    #[error("the redo log buffer is full")]
    Buffer,
    /// The checkpoint age is at its limit: the checkpoint has to move.
    #[error("the checkpoint age is at its limit")]
    Capacity,
    /// The log has failed; [`Redo::check`] tells the cause.
    #[error("the redo log has failed")]
    Poisoned,
}

/// Space for one group, in the log buffer and in the ring. Dropped unused, it is given back.
#[must_use = "a credit holds log space until it is appended or dropped"]
pub struct Credit<'a> {
    redo: &'a Redo,
    bytes: u64,
}

impl Credit<'_> {
    /// Bytes of the longest group that may be appended with it, header and padding included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<'a> Credit<'a> {
    /// Divides it: space for a group of at most `first` bytes of payload, and what is left.
    ///
    /// # Panics
    /// If it has less than that.
    pub fn split(mut self, first: usize) -> (Credit<'a>, Credit<'a>) {
        let rest = self.bytes.checked_sub(group_bytes(first) as u64);
        let rest = rest.unwrap_or_else(|| panic!("{first} bytes of a credit of {}", self.bytes));
        self.bytes -= rest;
        let rest = Credit { redo: self.redo, bytes: rest };
        (self, rest)
    }
}

impl fmt::Debug for Credit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credit({} bytes)", self.bytes)
    }
}

impl Drop for Credit<'_> {
    fn drop(&mut self) {
        self.redo.ring.unclaim(self.bytes);
        self.redo.wake_space_waiters();
    }
}

/// Where a group went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its LSN.
    pub start: Lsn,
    /// The position after it: what to wait for.
    pub end: Lsn,
}

/// The redo log, open for appending; shared by all threads.
pub struct Redo {
    pub(crate) ring: Ring,
    /// Everything before is in the files; the end of a group. Updated under `writer`.
    pub(crate) written: CachePadded<AtomicU64>,
    /// Everything before is on the device; at or before `ring.written()`, and like it anywhere in a
    /// group. Updated under `syncing`.
    pub(crate) synced: CachePadded<AtomicU64>,
    /// Everything before is on the device; the end of a group. Updated under `syncing`.
    pub(crate) durable: CachePadded<AtomicU64>,
    /// Nothing before is needed any more. Updated under `maintenance`.
    pub(crate) checkpoint: CachePadded<AtomicU64>,
    /// What `claimed - checkpoint` is to be at most. Updated under `maintenance`.
    capacity: CachePadded<AtomicU64>,
    /// What it is at most: the capacity, or more while the log is longer than a reduced one.
    /// Updated under `maintenance`.
    room: CachePadded<AtomicU64>,
    /// Payload of segments that are made. Updated under `maintenance`.
    segment_bytes: AtomicU64,
    pub(crate) poisoned: AtomicBool,
    pub(crate) cause: OnceLock<DiskError>,
    pub(crate) segments: Segments,
    /// Lock order: `resizing` before `maintenance`, both alone; `writer` before `syncing`; no other
    /// is held with them but the short ones inside `segments`, `commits` and `space`.
    pub(crate) writer: CachePadded<Mutex<Writer>>,
    /// One sync at a time. Up to where the page cache was told to forget the log.
    pub(crate) syncing: CachePadded<Mutex<u64>>,
    pub(crate) commits: CachePadded<Commits>,
    /// One change of the capacity at a time; before `maintenance`.
    resizing: Mutex<()>,
    maintenance: Mutex<()>,
    /// Up to where growth has made segments so far that it has not given out; 0 when nothing grows.
    /// Updated under `maintenance`.
    growing_to: AtomicU64,
    space: Mutex<()>,
    space_freed: Condvar,
    space_waiters: AtomicUsize,
}

impl Redo {
    /// Makes a new log; its first LSN is `segment_bytes`, so that 0 is never one. Durable on
    /// return.
    ///
    /// # Errors
    /// [`RedoError::Options`], [`RedoError::NoSpace`]; [`RedoError::Exists`] when there are segment
    /// files (after a creation that did not finish, remove them with [`remove_all`]); the disk's.
    pub fn create(disk: Arc<dyn Disk>, o: &RedoOptions) -> Result<Redo, RedoError> {
        o.check()?;
        if let Some(&number) = segments::list(&*disk)?.first() {
            return Err(RedoError::Exists { file: crate::format::segment_name(number) });
        }
        let start = Lsn(o.segment_bytes);
        let capacity = whole_segments(o.capacity_bytes, o.segment_bytes);
        let sizes = Sizes { segment_bytes: o.segment_bytes, capacity, room: capacity };
        let segments = Segments::empty(disk, o.database_id, 1, start.0);
        let needed = segments.missing(capacity, o.segment_bytes).file_bytes();
        segments.check_space(o.capacity_bytes, needed, 0)?;
        Self::start(segments, o, start, start, sizes, TakenOver::default())
    }

    /// Opens a recovered log, to go on at `end`, where the [`Reader`](crate::Reader) stopped.
    /// `checkpoint` is the oldest LSN still needed. What the reader read is durable on return, and
    /// nothing that lay beyond `end` can come back (see the crate's head).
    ///
    /// # Errors
    /// A segment that is needed is missing or damaged; [`RedoError::NoSpace`]; the disk's. The log
    /// up to `end` is unharmed, and the call may be repeated after a restart.
    pub fn open_at(
        disk: Arc<dyn Disk>,
        o: &RedoOptions,
        checkpoint: Lsn,
        end: Lsn,
    ) -> Result<Redo, RedoError> {
        o.check()?;
        assert!(checkpoint <= end, "checkpoint {checkpoint} is past the end {end}");
        let layout = Layout::of(&*disk, o.database_id)?;
        let mut sizes = Sizes::of(layout.newest().bytes, o.capacity_bytes, end.0 - checkpoint.0);
        let first = layout.at(checkpoint.0).ok_or_else(|| layout.missing(checkpoint))?;
        let segments = Segments::empty(disk, o.database_id, first.number, first.start);
        let kept = layout.between(first, end.0);
        let kept: Vec<u64> = kept.iter().map(|span| span.bytes).collect();
        let (next, longest) = (first.start + kept.iter().sum::<u64>(), kept.iter().max());
        let check_space = |bytes: u64| {
            let longest = longest.copied().unwrap_or(0);
            let missing = missing(first.start, next, longest, sizes.room, bytes);
            let needed = file_bytes(&kept) + missing.file_bytes();
            segments.check_space(o.capacity_bytes, needed, layout.file_bytes())
        };
        if let Err(error) = check_space(sizes.segment_bytes) {
            // With segments as they are it takes no more than it did, unless more is asked for.
            let RedoError::NoSpace { .. } = error else { return Err(error) };
            let before = layout.longest();
            check_space(before)?;
            sizes.segment_bytes = before;
        }
        // A file that has moved on must not seem to be where it was, say while its header isn't
        // whole.
        let may_move = layout.is_even(sizes.segment_bytes);
        let taken_over = segments.take_over(checkpoint, end, may_move)?;
        Self::start(segments, o, checkpoint, end, sizes, taken_over)
    }

    fn start(
        segments: Segments,
        o: &RedoOptions,
        checkpoint: Lsn,
        end: Lsn,
        sizes: Sizes,
        TakenOver { notes_from, spares }: TakenOver,
    ) -> Result<Redo, RedoError> {
        let Sizes { segment_bytes, capacity, room } = sizes;
        let wanted = Wanted { checkpoint: checkpoint.0, room, keep: end.0, bytes: segment_bytes };
        segments.arrange(&wanted, usize::MAX, &spares).inspect_err(|_| {
            // As far as it can be had: what is left is taken up or removed at the next open.
            let _ = segments.discard_unused();
        })?;
        let writer = Writer::at(&segments, end.0)?;
        let line = |lsn: u64| CachePadded::new(AtomicU64::new(lsn));
        let redo = Redo {
            ring: Ring::new(o.buffer_bytes, end.0, notes_from),
            written: line(end.0),
            synced: line(end.0),
            durable: line(end.0),
            checkpoint: line(checkpoint.0),
            capacity: line(capacity),
            room: line(room),
            segment_bytes: AtomicU64::new(segment_bytes),
            poisoned: AtomicBool::new(false),
            cause: OnceLock::new(),
            segments,
            writer: Mutex::new(writer).into(),
            syncing: Mutex::new(end.0).into(),
            commits: Commits::new().into(),
            resizing: Mutex::new(()),
            maintenance: Mutex::new(()),
            growing_to: AtomicU64::new(0),
            space: Mutex::new(()),
            space_freed: Condvar::new(),
            space_waiters: AtomicUsize::new(0),
        };
        redo.assert_order();
        Ok(redo)
    }

    /// Takes space for a group of at most `bytes` of payload, in log buffer and ring. To be called
    /// before any latch is taken. Never waits. For two groups ([`Credit::split`]): `bytes` of the
    /// second and [`group_bytes`] of the first.
    ///
    /// # Errors
    /// [`Refused`]; nothing changed.
    ///
    /// # Panics
    /// If `bytes` is above [`MAX_PAYLOAD_BYTES`].
    #[inline]
    pub fn try_admit(&self, bytes: usize, class: Admission) -> Result<Credit<'_>, Refused> {
        assert!(bytes <= MAX_PAYLOAD_BYTES, "a group of {bytes} bytes of payload is too long");
        let need = group_bytes(bytes) as u64;
        loop {
            if self.poisoned.load(Relaxed) {
                return Err(Refused::Poisoned);
            }
            let most = self.room.load(SeqCst);
            let usable = match class {
                Admission::User => user_limit(most),
                Admission::System => most,
            };
            match self.ring.claim(need, self.checkpoint.load(Acquire) + usable) {
                Claim::NoBuffer => return Err(Refused::Buffer),
                Claim::NoCapacity => return Err(Refused::Capacity),
                // Who reduces the room stores it, then reads `claimed`; we claimed, then read the
                // room again. So either our claim is seen and the segments for it are kept, or we
                // see what is new and ask again under it.
                Claim::Taken if self.room.load(SeqCst) == most => {
                    return Ok(Credit { redo: self, bytes: need });
                }
                Claim::Taken => self.ring.unclaim(need),
            }
        }
    }

    /// Appends a group. Never waits, never fails: the credit guarantees the space, and its rest is
    /// given back. Readers get the payload padded with zeros to a multiple of 8 bytes less the
    /// header's 8.
    ///
    /// # Panics
    /// If the payload is longer than the credit allows, or the credit is another log's.
    #[inline]
    pub fn append(&self, credit: Credit<'_>, payload: &[u8]) -> Appended {
        assert!(std::ptr::eq(self, credit.redo), "the credit is another log's");
        let need = group_bytes(payload.len()) as u64;
        assert!(need <= credit.bytes, "group of {need} bytes on a credit of {}", credit.bytes);
        let (start, end) = self.ring.append(payload, self.durable.load(Relaxed));
        let rest = credit.bytes - need;
        mem::forget(credit);
        if rest > 0 {
            self.ring.unclaim(rest);
        }
        Appended { start: Lsn(start), end: Lsn(end) }
    }

    /// The next LSN to be given out.
    pub fn reserved(&self) -> Lsn {
        Lsn(self.ring.reserved())
    }
    /// End of the contiguous prefix of filled groups, as the writer last saw it.
    pub fn filled(&self) -> Lsn {
        Lsn(self.ring.filled())
    }
    /// Everything before is in the files and survives the process. The end of a group.
    pub fn written(&self) -> Lsn {
        Lsn(self.written.load(Acquire))
    }
    /// Everything before is on the device and survives a power failure. The end of a group.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Acquire))
    }
    /// Nothing before is needed any more.
    pub fn checkpoint(&self) -> Lsn {
        Lsn(self.checkpoint.load(Acquire))
    }
    /// Greatest checkpoint age in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Acquire)
    }

    /// The part of it that [`Admission::User`] may fill, bytes.
    pub fn user_capacity(&self) -> u64 {
        user_limit(self.capacity())
    }
    /// `reserved - checkpoint`, in bytes.
    pub fn checkpoint_age(&self) -> u64 {
        // In this order, so that what is appended meanwhile doesn't count against an old
        // checkpoint.
        let reserved = self.ring.reserved();
        reserved.saturating_sub(self.checkpoint().0)
    }
    /// Payload bytes of the segment files that are made.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Relaxed)
    }

    /// Whether nothing was ever appended.
    pub fn is_unused(&self) -> bool {
        let (first, checkpoint) = (self.segments.first(), self.checkpoint().0);
        first.number == 1 && first.start == checkpoint && self.ring.reserved() == checkpoint
    }

    /// For reading groups that were written, and that the checkpoint has not passed, in any order.
    pub fn groups(&self) -> Groups<'_> {
        Groups::of(&self.segments)
    }

    /// Moves the checkpoint: nothing before `lsn` will ever be read again. Recycles or removes the
    /// segments that fall free, durably, then gives the space out and wakes who waits for it. One
    /// caller at a time is served; the caller has made the new checkpoint durable elsewhere
    /// **before**.
    ///
    /// # Errors
    /// [`RedoError::Poisoned`]; the disk's, after which the log is poisoned. The checkpoint is then
    /// unmoved.
    ///
    /// # Panics
    /// If `lsn` is past `durable` or before the present checkpoint.
    pub fn set_checkpoint(&self, lsn: Lsn) -> Result<(), RedoError> {
        let _alone = self.maintenance.lock();
        self.check()?;
        let (old, durable) = (self.checkpoint().0, self.durable().0);
        assert!(old <= lsn.0 && lsn.0 <= durable, "checkpoint {old} to {lsn}, durable {durable}");
        self.settle_room(lsn.0);
        self.arrange(lsn.0).map_err(|e| self.fail(e))?;
        self.checkpoint.store(lsn.0, Release);
        self.assert_order();
        let (age, room) = (self.ring.reserved() - lsn.0, self.room.load(SeqCst));
        assert!(age <= room, "the checkpoint age is {age}, {room} is the most");
        self.wake_space_waiters();
        Ok(())
    }

    /// Changes the capacity; returns it rounded. Growth makes the new segments, durably, before it
    /// gives them out. After shrinking, the old capacity holds until the checkpoint age is below
    /// the new one: it is for the caller to move the checkpoint so far. Then the segments that are
    /// too many are removed.
    ///
    /// # Errors
    /// [`RedoError::Poisoned`], [`RedoError::NoSpace`]; the disk's. When the disk has no space for
    /// growth, or the process may open no more files, the capacity is unchanged and the log goes
    /// on; any other failure poisons it.
    pub fn set_capacity(&self, bytes: u64) -> Result<u64, RedoError> {
        let _one = self.resizing.lock();
        // A log that becomes shorter changes over to shorter segments once it is.
        let segment_bytes = next_segment_bytes(self.segment_bytes(), bytes);
        let (old, new) = (self.capacity(), whole_segments(bytes, segment_bytes));
        if new > old {
            self.check_space(new, segment_bytes)?;
            // Little by little, so that the checkpoint can move meanwhile.
            while !self.grow(new, segment_bytes)? {}
        } else if new < old {
            let _alone = self.maintenance.lock();
            self.check()?;
            let checkpoint = self.checkpoint().0;
            self.capacity.store(new, SeqCst);
            self.settle_room(checkpoint);
            self.arrange(checkpoint).map_err(|e| self.fail(e))?;
        }
        Ok(new)
    }

    /// Whether there is space on the device for a log of that capacity, as far as is known
    /// beforehand.
    ///
    /// # Errors
    /// `NoSpace`: there isn't. `Poisoned`.
    pub fn check_growth(&self, bytes: u64) -> Result<(), RedoError> {
        let segment_bytes = next_segment_bytes(self.segment_bytes(), bytes);
        self.check_space(whole_segments(bytes, segment_bytes), segment_bytes)
    }

    fn check_space(&self, capacity: u64, segment_bytes: u64) -> Result<(), RedoError> {
        self.check()?;
        let room = capacity.max(self.room.load(SeqCst));
        let missing = self.segments.missing(room, segment_bytes);
        self.segments.check_space(capacity, missing.file_bytes(), 0)
    }

    /// Makes a few of the segments that the capacity `new` needs; the last of them, and it is given
    /// out. Returns whether that was so.
    fn grow(&self, new: u64, segment_bytes: u64) -> Result<bool, RedoError> {
        let _alone = self.maintenance.lock();
        self.check()?;
        let (checkpoint, room) = (self.checkpoint().0, new.max(self.room.load(SeqCst)));
        let wanted = Wanted { checkpoint, room, keep: u64::MAX, bytes: segment_bytes };
        let arranged = self.segments.arrange(&wanted, GROWTH_SEGMENTS, &[]);
        if let Err(error) = arranged {
            self.growing_to.store(0, Relaxed);
            if !matches!(&error, RedoError::Disk(cause) if cause.may_be_passed_over()) {
                return Err(self.fail(error));
            }
            self.segments.discard_unused().map_err(|e| self.fail(e))?;
            self.arrange(checkpoint).map_err(|e| self.fail(e))?;
            return Err(error);
        }
        if !matches!(arranged, Ok(true)) {
            self.growing_to.store(self.segments.next().1, Relaxed);
            return Ok(false);
        }
        self.growing_to.store(0, Relaxed);
        self.segment_bytes.store(segment_bytes, Relaxed);
        self.capacity.store(new, SeqCst);
        self.room.store(room, SeqCst);
        self.wake_space_waiters();
        Ok(true)
    }

    /// Ends the exception for a log that was longer than its capacity, if it fits by now.
    fn settle_room(&self, checkpoint: u64) {
        let (capacity, room) = (self.capacity(), self.room.load(SeqCst));
        if self.ring.claimed() - checkpoint > user_limit(capacity) {
            return;
        }
        self.room.store(capacity, SeqCst);
        // What was claimed since that look, in the room as it was, is seen now (`try_admit` says
        // why).
        if self.ring.claimed() - checkpoint > capacity {
            self.room.store(room, SeqCst);
        }
    }

    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn room(&self) -> u64 {
        self.room.load(SeqCst)
    }

    /// Makes the segments what `checkpoint`, the capacity and the claims given out need.
    fn arrange(&self, checkpoint: u64) -> Result<(), RedoError> {
        let room = self.room.load(SeqCst);
        let segment_bytes = next_segment_bytes(self.segment_bytes(), room);
        self.segment_bytes.store(segment_bytes, Relaxed);
        let keep = self.growing_to.load(Relaxed).max(self.ring.claimed());
        let wanted = Wanted { checkpoint, room, keep, bytes: segment_bytes };
        self.segments.arrange(&wanted, usize::MAX, &[]).map(drop)
    }

    /// Makes the names of other files in the log's directory durable. A sync of it that fails may
    /// be the last that knows of the log's own new names: it is no other's.
    ///
    /// # Errors
    /// [`RedoError::Poisoned`]; the disk's, after which the log is poisoned.
    pub fn sync_names(&self) -> Result<(), RedoError> {
        let _alone = self.maintenance.lock();
        self.check()?;
        self.segments.sync_names().map_err(|e| self.fail(e))
    }

    /// Parks until space may have been freed, or for `timeout`; for callers that were [`Refused`]
    /// and hold no latch. If the log buffer holds filled groups, they are written here and now, so
    /// no other thread is needed. A wake may come before the call: keep `timeout` short and ask
    /// again.
    pub fn wait_for_space(&self, timeout: Duration) {
        let before = self.ring.written();
        if self.write_step(false).is_err() || self.ring.written() > before {
            return;
        }
        let mut guard = self.space.lock();
        self.space_waiters.fetch_add(1, SeqCst);
        wait_for(&self.space_freed, &mut guard, timeout);
        self.space_waiters.fetch_sub(1, SeqCst);
    }

    pub(crate) fn wake_space_waiters(&self) {
        fence(SeqCst);
        if self.space_waiters.load(Relaxed) > 0 {
            drop(self.space.lock());
            self.space_freed.notify_all();
        }
    }

    /// Whether the log works.
    ///
    /// # Errors
    /// [`RedoError::Poisoned`] with the first failure.
    pub fn check(&self) -> Result<(), RedoError> {
        if !self.poisoned.load(Acquire) {
            return Ok(());
        }
        let cause = self.cause.get().expect("the cause is stored before the flag").clone();
        Err(RedoError::Poisoned { cause })
    }

    /// Poisons the log and wakes everybody, who will find it so.
    pub(crate) fn fail(&self, error: RedoError) -> RedoError {
        if let RedoError::Disk(cause) = &error {
            let _ = self.cause.set(cause.clone());
            self.poisoned.store(true, Release);
            self.wake_space_waiters();
            self.commits.serve(u64::MAX);
        }
        error
    }

    /// Each position is read before the greater one: all of them only grow.
    pub(crate) fn assert_order(&self) {
        let (checkpoint, durable) = (self.checkpoint(), self.durable());
        let (written, filled, reserved) = (self.written(), self.filled(), self.reserved());
        assert!(
            checkpoint <= durable && durable <= written && written <= filled && filled <= reserved,
            "redo positions out of order: checkpoint {checkpoint}, durable {durable}, \
             written {written}, filled {filled}, reserved {reserved}"
        );
    }
}

/// How large a log is made when it is created or opened, in bytes.
struct Sizes {
    /// Payload of the segments that are made.
    segment_bytes: u64,
    /// What is wanted.
    capacity: u64,
    /// The same, or more if the log is longer.
    room: u64,
}

impl Sizes {
    /// Those of a log which is `age` long, and has made segments of `now` bytes so far.
    fn of(now: u64, capacity_bytes: u64, age: u64) -> Sizes {
        let capacity = whole_segments(capacity_bytes, next_segment_bytes(now, capacity_bytes));
        let longer = whole_segments(age + user_reserve(age), now) + now;
        let fits = age <= user_limit(capacity);
        let room = if fits { capacity } else { capacity.max(longer) };
        Sizes { segment_bytes: next_segment_bytes(now, room), capacity, room }
    }
}

/// Whole segments in `capacity_bytes`, at least [`MIN_SEGMENTS`], in bytes.
fn whole_segments(capacity_bytes: u64, segment_bytes: u64) -> u64 {
    (capacity_bytes / segment_bytes).max(MIN_SEGMENTS) * segment_bytes
}

/// What [`Admission::User`] may fill of `capacity`.
fn user_limit(capacity: u64) -> u64 {
    capacity - user_reserve(capacity)
}

/// What [`Admission::User`] leaves of `capacity`.
fn user_reserve(capacity: u64) -> u64 {
    (capacity / 8).max(64 << 10).min(capacity / 2)
}

/// Removes every segment file: for a creation of a database that did not finish.
///
/// # Errors
/// The disk's; some files may be left.
pub fn remove_all(disk: &dyn Disk) -> Result<(), RedoError> {
    for number in segments::list(disk)? {
        disk.remove(&crate::format::segment_name(number))?;
    }
    disk.sync_dir()?;
    Ok(())
}

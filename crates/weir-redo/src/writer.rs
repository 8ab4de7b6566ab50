//! The way from the log buffer to the device: write, sync, wait.
//!
//! - The writer copies the filled prefix, with the head of its first 4 KiB block before it and
//!   zeros up to a block after it, and writes that. A block is rewritten as it fills: the old bytes
//!   are a prefix of the new, so a torn rewrite loses nothing that was durable.
//! - Writes end where segments and buffers do, which may be within a group. So the bytes written
//!   and synced (`ring.written()`, `synced`) are told from the groups written and durable
//!   (`written`, `durable`).
//! - Before the first byte goes to a segment, all segments but the one before it are synced. So
//!   what is not synced lies within two, and who comes to a segment's end need not wait for a sync.
//! - What is not synced is never more than [`UNSYNCED_BYTES_MAX`]: the device is kept busy evenly,
//!   and an open knows how much may be in the page cache only.
//! - What is synced is read again by backups and after a crash only: the page cache needn't hold
//!   it. The next writes take the same memory: a log of some gigabytes doesn't push out what others
//!   read, and on a virtual machine doesn't ask its host for as much memory.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Release};

use weir_os::{AlignedBuf, BLOCK, Blocked, DiskError};
use weir_page::Lsn;

use crate::RedoError;
use crate::commit::Role;
use crate::redo::Redo;
use crate::segments::{Segment, Segments};
use crate::sync::pause;

/// Most bytes in one write.
const WRITE_BYTES: u64 = 1 << 20;

/// Most bytes written and not synced.
pub(crate) const UNSYNCED_BYTES_MAX: u64 = 8 << 20;

/// Newest bytes that stay in the page cache; older ones are forgotten when there are as many.
const CACHED_BYTES: u64 = 1 << 20;

/// State of the one who writes.
pub(crate) struct Writer {
    /// Bytes of the block in which `written` lies; those before it are valid.
    tail: AlignedBuf,
    /// None while a write owns the buffer, or after one has failed.
    buf: Option<AlignedBuf>,
}

impl Writer {
    /// A writer that goes on at `end`.
    pub fn at(segments: &Segments, end: u64) -> Result<Self, RedoError> {
        let mut tail = AlignedBuf::zeroed(BLOCK);
        let head = (end % BLOCK as u64) as usize;
        if head > 0 {
            let (Segment { span, file }, _) = segments.at(end);
            tail.set_len(head);
            tail = file.read(span.file_offset(end - head as u64), tail)?;
            tail.set_len(BLOCK);
        }
        Ok(Writer { tail, buf: Some(AlignedBuf::zeroed(WRITE_BYTES as usize)) })
    }
}

/// The lead of a group commit. Dropped, it is handed over; by a panic, to those who find the log
/// poisoned: nobody knows what has been written.
struct Lead<'r> {
    redo: &'r Redo,
    has_ended: bool,
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.redo.fail(panicked().into());
        }
        // After a failure everybody is woken.
        let failed = self.redo.check().is_err();
        self.redo.commits.hand_over(if failed { u64::MAX } else { self.redo.durable().0 });
    }
}

/// The cause of a log that a panic has poisoned.
fn panicked() -> DiskError {
    let thread = std::thread::current().name().unwrap_or_default().to_string();
    let what = format!("thread {thread} has panicked: a bug, of which the panic's message tells");
    DiskError::new("group commit", "redo", io::Error::other(what))
}

impl Redo {
    /// One turn of the writer: writes the filled prefix, and syncs it when asked. Returns the new
    /// `written`, or `durable` after a sync.
    ///
    /// # Errors
    /// [`RedoError::Poisoned`]; the disk's, after which the log is poisoned.
    pub fn write_step(&self, sync: bool) -> Result<Lsn, RedoError> {
        self.check()?;
        let written = self.write_filled()?;
        if !sync {
            return Ok(Lsn(written));
        }
        let durable = self.sync_written()?;
        self.commits.serve(durable);
        Ok(Lsn(durable))
    }

    /// Waits until everything before `end` is written, which survives the process: writes it
    /// itself, unless somebody did.
    ///
    /// # Errors
    /// As [`Redo::write_step`]; what is not written then may be lost.
    ///
    /// # Panics
    /// If `end` was never reserved.
    pub fn wait_written(&self, end: Lsn) -> Result<(), RedoError> {
        assert!(end <= self.reserved(), "waiting for {end}, which nobody reserved");
        let mut turns = 0;
        while self.written() < end {
            if self.write_step(false)? < end {
                pause(&mut turns); // another thread is between reserve and publish
            }
        }
        Ok(())
    }

    /// Waits until everything before `end` is durable, which survives a power failure. The first to
    /// come writes and syncs for all; those who come meanwhile are the next batch. `Ok` for what
    /// was durable already, even when the log has failed since.
    ///
    /// # Errors
    /// As [`Redo::write_step`]; whether the rest survives a crash is then not known.
    ///
    /// # Panics
    /// If `end` was never reserved.
    pub fn wait_durable(&self, end: Lsn) -> Result<(), RedoError> {
        assert!(end <= self.reserved(), "waiting for {end}, which nobody reserved");
        let served = || self.durable() >= end || self.check().is_err();
        while self.durable() < end {
            let _blocked = Blocked::begin();
            self.check()?;
            if self.commits.enter(end.0, served) == Role::Leader {
                let mut lead = Lead { redo: self, has_ended: false };
                let led = self.lead(end);
                lead.has_ended = true;
                drop(lead);
                led?;
            }
        }
        Ok(())
    }

    fn lead(&self, end: Lsn) -> Result<(), RedoError> {
        let mut turns = 0;
        while self.durable() < end {
            if self.write_step(true)? < end {
                pause(&mut turns); // another thread is between reserve and publish
            }
        }
        Ok(())
    }

    fn write_filled(&self) -> Result<u64, RedoError> {
        let mut writer = self.writer.lock();
        self.check()?;
        let filled = self.ring.scan();
        let mut at = self.ring.written();
        if at == filled {
            return Ok(at);
        }
        while at < filled {
            at = self.write_chunk(&mut writer, at, filled)?;
            self.wake_space_waiters();
        }
        self.written.store(filled, Release);
        self.assert_order();
        Ok(filled)
    }

    /// Writes from `at` to `filled`, the end of the segment or the buffer's, whichever comes first.
    fn write_chunk(&self, writer: &mut Writer, at: u64, filled: u64) -> Result<u64, RedoError> {
        let (Segment { span, file }, before) = self.segments.at(at);
        let block = BLOCK as u64;
        let head = at % block;
        let to = filled.min(span.end()).min(at - head + WRITE_BYTES);
        let synced = self.synced.load(Acquire);
        // One before that isn't in use any more lies before the checkpoint.
        let two_behind = at == span.start && before.is_some_and(|before| synced < before);
        if two_behind || to - synced > UNSYNCED_BYTES_MAX {
            self.sync_written()?;
        }
        let bytes = (head + to - at) as usize;

        let mut buf = writer.buf.take().expect("after a failed write there is no other");
        buf.set_len(bytes.next_multiple_of(BLOCK));
        let head = head as usize;
        buf[..head].copy_from_slice(&writer.tail[..head]);
        self.ring.copy_out(at, &mut buf[head..bytes]);
        buf[bytes..].fill(0);
        let rest = bytes % BLOCK;
        writer.tail[..rest].copy_from_slice(&buf[bytes - rest..bytes]);

        let offset = span.file_offset(at - head as u64);
        writer.buf = Some(file.write(offset, buf).map_err(|e| self.fail(e.into()))?);
        self.ring.free_to(to);
        Ok(to)
    }

    /// Makes what is written durable.
    pub(crate) fn sync_written(&self) -> Result<u64, RedoError> {
        let mut forgotten = self.syncing.lock();
        self.check()?;
        let (synced, whole, to) =
            (self.synced.load(Acquire), self.written().0, self.ring.written());
        assert!(whole <= to, "written {whole} is past what the ring has freed, {to}");
        if synced < to {
            let segments = self.segments.between(synced, to);
            assert!(segments.len() <= 2, "{synced}..{to} is in more than two segments");
            for segment in segments {
                segment.file.sync().map_err(|e| self.fail(e.into()))?;
            }
            self.synced.store(to, Release);
        }
        self.durable.store(whole, Release);
        self.assert_order();
        self.forget(&mut forgotten, to);
        Ok(whole)
    }

    /// Has the page cache forget what was synced before the newest bytes. A segment may move on
    /// meanwhile: what others write there then may be written to the device early, no more.
    fn forget(&self, forgotten: &mut u64, synced: u64) {
        let block = BLOCK as u64;
        let until = synced.saturating_sub(CACHED_BYTES) / block * block;
        if until < *forgotten + CACHED_BYTES {
            return;
        }
        // Pieces of the cache reach over the end of what is forgotten: those of the last time too.
        let from = forgotten.saturating_sub(CACHED_BYTES) / block * block;
        for Segment { span, file } in self.segments.between(from, until) {
            let (first, end) = (from.max(span.start), until.min(span.end()));
            file.forget(span.file_offset(first), end - first);
        }
        *forgotten = until;
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::{Admission, RedoOptions};
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};
    use weir_os::SimDisk;

    /// They slept for ever: nobody led any more, and nobody could.
    #[test]
    fn those_who_wait_for_a_leader_that_panics_find_the_log_poisoned() {
        let redo = Redo::create(
            Arc::new(SimDisk::new(1)),
            &RedoOptions {
                capacity_bytes: 64 << 10,
                segment_bytes: 16 << 10,
                buffer_bytes: 16 << 10,
                database_id: 7,
            },
        );
        let redo = Arc::new(redo.unwrap());
        let wait = || -> JoinHandle<Result<(), RedoError>> {
            let redo = redo.clone();
            let end = redo.append(redo.try_admit(8, Admission::User).unwrap(), b"group").end;
            thread::spawn(move || redo.wait_durable(end))
        };
        // The leader finds no buffer, once it is let on.
        let mut writer = redo.writer.lock();
        writer.buf = None;
        let leader = wait();
        while !redo.commits.is_led() {
            thread::yield_now();
        }
        let others: Vec<_> = (0..3).map(|_| wait()).collect();
        while redo.commits.waiting() < others.len() {
            thread::yield_now();
        }
        drop(writer);
        assert!(leader.join().is_err(), "it panics");
        for _ in 0..1_000_000 {
            if others.iter().all(JoinHandle::is_finished) {
                break;
            }
            thread::yield_now();
        }
        for other in others {
            assert!(other.is_finished(), "it waits for a leader");
            let error = other.join().unwrap().unwrap_err();
            assert!(matches!(error, RedoError::Poisoned { .. }), "{error}");
            assert!(error.to_string().contains("panicked"), "{error}");
        }
        assert!(redo.write_step(true).is_err());
    }
}

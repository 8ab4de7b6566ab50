//! Batches through io_uring.
//!
//! A ring serves one batch at a time: the calling thread takes an idle ring (or makes one, up to
//! [`RINGS_MAX`]), keeps up to [`DEPTH`] operations in flight, and puts the ring back. A batch of
//! one is a plain read or write: one system call either way, and no ring.
//!
//! Invariants:
//! - while the kernel holds a request, its buffer lives: [`Flight`] owns the batch, and does not
//!   end, not even by a panic, before the kernel has given every request back;
//! - a ring goes back to the pool only with both queues empty;
//! - what a ring leaves undone (short transfers, a ring that fails, and EINTR, EAGAIN, ECANCELED
//!   and ENOMEM, none of which the device says) is finished by plain reads and writes, so no batch
//!   fails because of its ring.

use crate::directory::{Failure, OpenFile, RunResult, Runner};
use crate::pool::{advance, transfer_from};
use crate::{AlignedBuf, Io};
use io_uring::{IoUring, Probe, opcode, squeue, types};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

/// Operations of one ring in flight at most.
const DEPTH: u32 = 128;

/// Rings of one disk at most; further callers wait for one.
const RINGS_MAX: usize = 32;

/// Bytes of one request at most; the rest of a longer one counts as short.
const REQUEST_MAX: usize = 1 << 30;

/// Refusals by a busy kernel in a row before a ring is given up.
const BUSY_MAX: u32 = 1000;

/// A pool of rings.
pub(crate) struct Rings {
    state: Mutex<State>,
    returned: Condvar,
}

struct State {
    idle: Vec<IoUring>,
    /// Rings that exist, idle or in use.
    made: usize,
}

impl Rings {
    /// A pool with its first ring, tried out.
    ///
    /// # Errors
    /// Whatever the kernel says when it refuses io_uring (EPERM, ENOSYS, ENOMEM, ...).
    pub(crate) fn probe() -> io::Result<Self> {
        let mut ring = IoUring::new(DEPTH)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) || !probe.is_supported(opcode::Write::CODE) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring reads no files"));
        }
        // SAFETY: a no-op has no buffer.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }
            .map_err(|_| io::Error::other("a new ring has no room"))?;
        ring.submit_and_wait(1)?;
        if ring.completion().next().is_none_or(|entry| entry.result() < 0) {
            return Err(io::Error::other("io_uring does not complete a request"));
        }
        let state = State { idle: vec![ring], made: 1 };
        Ok(Rings { state: Mutex::new(state), returned: Condvar::new() })
    }

    /// An idle ring, waiting for one where there are too many; `None` when none can be had.
    fn take(&self) -> Option<IoUring> {
        let mut state = self.state.lock();
        loop {
            if let Some(ring) = state.idle.pop() {
                return Some(ring);
            }
            if state.made < RINGS_MAX {
                break;
            }
            self.returned.wait(&mut state);
        }
        state.made += 1;
        assert!(state.made <= RINGS_MAX, "the pool of rings is bounded");
        drop(state);
        let made = IoUring::new(DEPTH).ok();
        if made.is_none() {
            self.discard();
        }
        made
    }

    fn give_back(&self, ring: IoUring) {
        self.state.lock().idle.push(ring);
        self.returned.notify_one();
    }

    fn discard(&self) {
        self.state.lock().made -= 1;
        self.returned.notify_one();
    }
}

impl Runner for Rings {
    fn run(&self, file: &Arc<OpenFile>, batch: Vec<Io>) -> RunResult {
        let ring = if batch.len() > 1 { self.take() } else { None };
        let Some(mut ring) = ring else {
            return finish(file, batch.into_iter().map(|op| Slot { op, result: None }));
        };
        let mut flight = Flight::new(&mut ring, file, batch);
        let whole = flight.run();
        let slots = flight.land();
        match whole {
            true => self.give_back(ring),
            false => {
                drop(ring);
                self.discard();
            }
        }
        finish(file, slots.into_iter())
    }

    fn name(&self) -> &'static str {
        "io_uring"
    }
}

/// Does by plain calls what is not done, and gives back the buffers or the first error.
fn finish(file: &OpenFile, slots: impl Iterator<Item = Slot>) -> RunResult {
    let results: Vec<Result<AlignedBuf, Failure>> = slots
        .map(|Slot { mut op, result }| {
            match result.unwrap_or_else(|| transfer_from(file, &mut op, 0)) {
                Ok(()) => Ok(op.into_buf()),
                Err(error) => Err(Failure { operation: op.name(), offset: op.offset(), error }),
            }
        })
        .collect();
    results.into_iter().collect()
}

struct Slot {
    op: Io,
    /// How the operation ended; `None` while it is not done.
    result: Option<io::Result<()>>,
}

/// A batch on a ring.
struct Flight<'a> {
    ring: &'a mut IoUring,
    file: &'a OpenFile,
    slots: Vec<Slot>,
    /// Index of the next operation to push.
    next: usize,
    /// Operations pushed and not completed; some may still wait in the submission queue.
    pushed: usize,
}

impl<'a> Flight<'a> {
    fn new(ring: &'a mut IoUring, file: &'a OpenFile, batch: Vec<Io>) -> Self {
        let slots = batch.into_iter().map(|op| Slot { op, result: None }).collect();
        Flight { ring, file, slots, next: 0, pushed: 0 }
    }

    /// Runs all operations; `false` when the ring failed and some are left.
    fn run(&mut self) -> bool {
        let mut busy = 0;
        while self.next < self.slots.len() || self.pushed > 0 {
            self.push();
            let entered = self.ring.submit_and_wait(1);
            let progress = self.reap();
            match entered.map_err(|error| error.kind()) {
                Ok(_) | Err(io::ErrorKind::Interrupted) => busy = 0,
                Err(io::ErrorKind::WouldBlock | io::ErrorKind::ResourceBusy) => {
                    busy = if progress { 0 } else { busy + 1 };
                    if busy > BUSY_MAX {
                        return false;
                    }
                    std::thread::yield_now();
                }
                Err(_) => return false,
            }
        }
        true
    }

    /// Fills the submission queue.
    fn push(&mut self) {
        while self.next < self.slots.len() && self.pushed < DEPTH as usize {
            let entry = self.entry(self.next);
            // SAFETY: the buffer belongs to `self.slots`, which lives until the kernel has
            // completed the request (`land` and `drop` wait for that); until then nothing else
            // touches it. The file stays open, as `self.file` is borrowed for longer.
            if unsafe { self.ring.submission().push(&entry) }.is_err() {
                return;
            }
            self.next += 1;
            self.pushed += 1;
        }
    }

    fn entry(&mut self, index: usize) -> squeue::Entry {
        let fd = types::Fd(self.file.file.as_raw_fd());
        let entry = match &mut self.slots[index].op {
            Io::Read { offset, buf } => {
                let len = buf.len().min(REQUEST_MAX) as u32;
                opcode::Read::new(fd, buf.as_mut_ptr(), len).offset(*offset).build()
            }
            Io::Write { offset, buf } => {
                let len = buf.len().min(REQUEST_MAX) as u32;
                opcode::Write::new(fd, buf.as_ptr(), len).offset(*offset).build()
            }
        };
        entry.user_data(index as u64)
    }

    /// Takes in what is completed; whether there was anything.
    fn reap(&mut self) -> bool {
        let mut progress = false;
        loop {
            let Some(entry) = self.ring.completion().next() else { return progress };
            progress = true;
            self.pushed -= 1;
            let slot = &mut self.slots[entry.user_data() as usize];
            assert!(slot.result.is_none(), "an operation completes once");
            slot.result = completed(self.file, &mut slot.op, entry.result());
        }
    }

    /// Waits until the kernel holds no request. It takes as long as the device does.
    fn drain(&mut self) {
        loop {
            self.reap();
            let queued = self.ring.submission().len();
            if self.pushed == queued {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends the flight with all buffers in our hands.
    fn land(mut self) -> Vec<Slot> {
        self.drain();
        std::mem::take(&mut self.slots)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.drain();
    }
}

/// How a completed request ends its operation; `None` leaves it to plain calls.
fn completed(file: &OpenFile, op: &mut Io, result: i32) -> Option<io::Result<()>> {
    let Ok(count) = usize::try_from(result) else {
        return match Errno::from_raw_os_error(-result) {
            Errno::INTR | Errno::AGAIN | Errno::CANCELED | Errno::NOMEM => None,
            error => Some(Err(error.into())),
        };
    };
    if count == op.buf().len() {
        return Some(Ok(()));
    }
    let resumed = advance(op, file.direct, 0, count);
    Some(resumed.and_then(|done| transfer_from(file, op, done)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK;

    fn file_of(bytes: &[u8]) -> OpenFile {
        let file = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
        OpenFile { file, direct: false }
    }

    fn read(len: usize) -> Io {
        Io::Read { offset: 0, buf: AlignedBuf::zeroed(len) }
    }

    #[test]
    fn a_short_read_is_resumed() {
        let file = file_of(&[7; 3 * BLOCK]);
        let mut op = read(3 * BLOCK);
        if let Io::Read { buf, .. } = &mut op {
            buf[..BLOCK].fill(7);
        }
        completed(&file, &mut op, BLOCK as i32).unwrap().unwrap();
        assert_eq!(op.into_buf()[..], [7; 3 * BLOCK]);
    }

    #[test]
    fn a_short_read_at_the_end_is_an_error() {
        let file = file_of(&[7; BLOCK]);
        for count in [0, BLOCK as i32] {
            let error = completed(&file, &mut read(2 * BLOCK), count).unwrap().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn requests_that_the_kernel_gives_up_are_left_to_plain_calls() {
        let file = file_of(&[7; BLOCK]);
        for errno in [Errno::INTR, Errno::AGAIN, Errno::CANCELED, Errno::NOMEM] {
            assert!(completed(&file, &mut read(BLOCK), -errno.raw_os_error()).is_none());
        }
        let failed = completed(&file, &mut read(BLOCK), -Errno::IO.raw_os_error());
        assert!(failed.unwrap().is_err());
        let slots = [Slot { op: read(BLOCK), result: None }];
        let Ok(bufs) = finish(&file, slots.into_iter()) else { panic!("finish fails") };
        assert_eq!(bufs[0][..], [7; BLOCK]);
    }

    #[test]
    fn a_flight_given_up_midway_owns_its_buffers_until_the_kernel_is_done() {
        let Ok(rings) = Rings::probe() else { return };
        let file = file_of(&[7; 64 * BLOCK]);
        let batch =
            (0..64).map(|i| Io::Read { offset: i * BLOCK as u64, buf: AlignedBuf::zeroed(BLOCK) });
        let mut ring = rings.take().unwrap();
        let mut flight = Flight::new(&mut ring, &file, batch.collect());
        flight.push();
        flight.ring.submit().unwrap();
        let slots = flight.land();
        assert!(slots.iter().all(|slot| slot.result.is_some()));
        // Pushed and never submitted: nothing to wait for.
        let mut flight = Flight::new(&mut ring, &file, vec![read(BLOCK)]);
        flight.push();
        let slots = flight.land();
        assert!(slots[0].result.is_none());
    }
}

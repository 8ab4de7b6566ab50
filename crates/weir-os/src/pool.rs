//! A pool of threads that read and write: for kernels and containers without io_uring.
//!
//! A batch is shared between its caller and the pool: each takes the next operation that nobody
//! has begun, until none is left. The caller thus always makes progress, whatever the pool does,
//! and a batch of one never leaves its thread. Threads are made when a batch finds none idle, up
//! to [`THREADS_MAX`], and live as long as the pool.

use crate::directory::{Failure, OpenFile, RunResult, Runner};
use crate::{BLOCK, Io};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

/// Threads of one pool at most.
const THREADS_MAX: usize = 16;

/// Calls for help that may wait; beyond it a caller gets none.
const TICKETS_MAX: usize = 256;

/// Reads and writes batches with threads.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    queue: Mutex<Queue>,
    called: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Batches that want help: one entry per helper wanted.
    tickets: VecDeque<Arc<Batch>>,
    idle: usize,
    closed: bool,
}

/// A batch in work.
struct Batch {
    file: Arc<OpenFile>,
    ops: Vec<Mutex<Slot>>,
    /// Index of the next operation that nobody has begun.
    next: AtomicUsize,
    done: Mutex<usize>,
    all_done: Condvar,
}

struct Slot {
    op: Option<Io>,
    error: Option<io::Error>,
}

impl Pool {
    pub(crate) fn new() -> Self {
        let shared = Shared { queue: Mutex::new(Queue::default()), called: Condvar::new() };
        Pool { shared: Arc::new(shared), threads: Mutex::new(Vec::new()) }
    }

    /// Asks up to `helpers` threads to take part.
    fn call(&self, batch: &Arc<Batch>, helpers: usize) {
        let mut queue = self.shared.queue.lock();
        let free = TICKETS_MAX - queue.tickets.len();
        let helpers = helpers.min(THREADS_MAX).min(free);
        queue.tickets.extend(std::iter::repeat_n(batch, helpers).cloned());
        assert!(queue.tickets.len() <= TICKETS_MAX, "the queue of the pool is bounded");
        let missing = queue.tickets.len().saturating_sub(queue.idle);
        drop(queue);
        for _ in 0..helpers {
            self.shared.called.notify_one();
        }
        self.grow(missing);
    }

    /// Makes more threads. Failing to is no error: the callers do the work.
    fn grow(&self, missing: usize) {
        let mut threads = self.threads.lock();
        for _ in 0..missing.min(THREADS_MAX - threads.len()) {
            let shared = self.shared.clone();
            let builder = thread::Builder::new().name("weir-io".to_string());
            match builder.spawn(move || shared.serve()) {
                Ok(thread) => threads.push(thread),
                Err(_) => return,
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().closed = true;
        self.shared.called.notify_all();
        for thread in self.threads.get_mut().drain(..) {
            thread.join().expect("a thread of the pool does not panic");
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(batch) = queue.tickets.pop_front() {
                drop(queue);
                batch.work();
                drop(batch);
                queue = self.queue.lock();
            } else if queue.closed {
                return;
            } else {
                queue.idle += 1;
                self.called.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }
}

impl Batch {
    /// Does operations until none is left to begin.
    fn work(&self) {
        loop {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = self.ops.get(index) else { return };
            {
                let mut slot = slot.lock();
                let op =
                    slot.op.as_mut().expect("an operation is in its slot while the batch runs");
                slot.error = transfer(&self.file, op).err();
            }
            let mut done = self.done.lock();
            *done += 1;
            if *done == self.ops.len() {
                self.all_done.notify_all();
            }
        }
    }

    fn wait(&self) {
        let mut done = self.done.lock();
        while *done < self.ops.len() {
            self.all_done.wait(&mut done);
        }
    }
}

impl Runner for Pool {
    fn run(&self, file: &Arc<OpenFile>, batch: Vec<Io>) -> RunResult {
        if batch.len() <= 1 {
            return batch.into_iter().map(|op| finished(transfer_owned(file, op))).collect();
        }
        let slots = batch.into_iter().map(|op| Mutex::new(Slot { op: Some(op), error: None }));
        let batch = Arc::new(Batch {
            file: file.clone(),
            ops: slots.collect(),
            next: AtomicUsize::new(0),
            done: Mutex::new(0),
            all_done: Condvar::new(),
        });
        self.call(&batch, batch.ops.len() - 1);
        batch.work();
        batch.wait();
        let taken = batch.ops.iter().map(|slot| {
            let mut slot = slot.lock();
            let op = slot.op.take().expect("an operation is in its slot while the batch runs");
            finished((op, slot.error.take()))
        });
        taken.collect()
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

fn transfer_owned(file: &OpenFile, mut op: Io) -> (Io, Option<io::Error>) {
    let error = transfer(file, &mut op).err();
    (op, error)
}

fn finished((op, error): (Io, Option<io::Error>)) -> Result<crate::AlignedBuf, Failure> {
    match error {
        None => Ok(op.into_buf()),
        Some(error) => Err(Failure { operation: op.name(), offset: op.offset(), error }),
    }
}

/// Does one operation wholly.
fn transfer(file: &OpenFile, op: &mut Io) -> io::Result<()> {
    transfer_from(file, op, 0)
}

/// Does the rest of an operation of which `done` bytes are done.
pub(crate) fn transfer_from(file: &OpenFile, op: &mut Io, done: usize) -> io::Result<()> {
    let (mut done, wanted) = (done, op.buf().len());
    while done < wanted {
        let result = match op {
            Io::Read { offset, buf } => file.file.read_at(&mut buf[done..], *offset + done as u64),
            Io::Write { offset, buf } => file.file.write_at(&buf[done..], *offset + done as u64),
        };
        match result {
            Ok(count) => done = advance(op, file.direct, done, count)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes done after `count` more of them; an error when the transfer can't be resumed.
pub(crate) fn advance(op: &Io, direct: bool, done: usize, count: usize) -> io::Result<usize> {
    let done = done + count;
    // A direct transfer resumes at a block; a read that ends within one has met the end.
    let stuck = count == 0 || (direct && done < op.buf().len() && !done.is_multiple_of(BLOCK));
    match op {
        _ if !stuck => Ok(done),
        Io::Read { .. } => {
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the range ends past the file"))
        }
        Io::Write { .. } => {
            Err(io::Error::new(io::ErrorKind::WriteZero, "the device took part of the bytes"))
        }
    }
}

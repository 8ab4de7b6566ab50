//! The page writer's threads: batches of the oldest dirty pages, several in flight.
//!
//! The governor's thread says how many pages are to be written, and never waits for one. A batch is
//! taken by the next free thread, which copies, compresses, writes and syncs it (`write`); while one
//! waits for the device, others compress.

use super::write::Reason;
use super::{Fault, Storage};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::Instant;

/// Most batches that wait or run.
pub const BATCHES_MAX: usize = 8;

/// Threads that write batches.
pub const THREADS: usize = 4;

/// So many pages for that reason.
#[derive(Debug, Clone, Copy)]
struct Batch {
    pages: usize,
    reason: Reason,
}

/// A batch that has been written, for whatever reason.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// Pages in it.
    pub pages: usize,
    /// When a thread took it.
    pub began: Instant,
    /// When the pages were in place.
    pub ended: Instant,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Batch>,
    running: usize,
    /// Pages asked for in batches that wait or run.
    pages: usize,
    ending: bool,
}

/// Batches on their way.
#[derive(Default)]
pub struct Writers {
    state: Mutex<State>,
    changed: Condvar,
}

impl Writers {
    /// Pages in batches that wait or run, and the number of batches.
    pub fn in_flight(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.pages, state.waiting.len() + state.running)
    }

    /// Asks for a batch.
    ///
    /// # Panics
    /// If there are [`BATCHES_MAX`] already.
    pub fn ask(&self, pages: usize, reason: Reason) {
        let mut state = self.state.lock();
        let batches = state.waiting.len() + state.running;
        assert!(batches < BATCHES_MAX, "{batches} batches are in flight");
        state.pages += pages;
        state.waiting.push_back(Batch { pages, reason });
        self.changed.notify_one();
    }

    /// Ends the threads; batches that wait are left out.
    pub fn end(&self) {
        self.state.lock().ending = true;
        self.changed.notify_all();
    }

    fn next(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        loop {
            if state.ending {
                return None;
            }
            if let Some(batch) = state.waiting.pop_front() {
                state.running += 1;
                return Some(batch);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Writes batches until the end; `survive` is told what came of each.
    pub fn run(&self, storage: &Storage, survive: impl Fn(&Storage, Result<(), Fault>)) {
        while let Some(batch) = self.next() {
            let written = write(storage, batch);
            {
                let mut state = self.state.lock();
                state.running -= 1;
                state.pages -= batch.pages;
            }
            storage.flusher.raise();
            storage.checkpointer.raise();
            survive(storage, written.map(drop));
        }
    }
}

/// Writes a batch; fewer pages if there is no space for all of them.
fn write(storage: &Storage, batch: Batch) -> Result<usize, Fault> {
    let mut pages = batch.pages;
    loop {
        match storage.write_oldest(pages, batch.reason) {
            Err(fault) if fault.is_no_space() && pages > 1 => {
                pages = pages.div_ceil(2).min(pages - 1)
            }
            written => return written,
        }
    }
}

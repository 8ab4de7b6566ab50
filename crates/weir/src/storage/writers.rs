//! The page writer's threads: batches of dirty pages (the oldest, and what else is due), several in
//! flight.
//!
//! The governor's thread says how many pages are to be written, and never waits for one. A batch is
//! taken by the next free thread, which copies, compresses, writes and syncs it (`write`); while
//! one waits for the device, others compress.

use super::write::Reason;
use super::{Fault, Storage};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

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
    /// Since when there are any, and how long there were before.
    busy_since: Option<Instant>,
    busy: Duration,
    ending: bool,
}

impl State {
    fn batches(&self) -> usize {
        self.waiting.len() + self.running
    }

    fn ask(&mut self, batch: Batch, now: Instant) {
        let batches = self.batches();
        assert!(batches < BATCHES_MAX, "{batches} batches are in flight");
        self.pages += batch.pages;
        self.waiting.push_back(batch);
        self.busy_since.get_or_insert(now);
    }

    fn take(&mut self) -> Option<Batch> {
        let batch = self.waiting.pop_front()?;
        self.running += 1;
        Some(batch)
    }

    fn done(&mut self, batch: Batch, now: Instant) {
        self.running -= 1;
        self.pages -= batch.pages;
        if self.batches() == 0 {
            self.settle(now);
            self.busy_since = None;
        }
    }

    /// Counts the time up to `now`.
    fn settle(&mut self, now: Instant) {
        if let Some(since) = &mut self.busy_since {
            self.busy += now.saturating_duration_since(*since);
            *since = now.max(*since);
        }
    }
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
        (state.pages, state.batches())
    }

    /// For how long there were batches in flight since the last call.
    pub fn take_busy(&self, now: Instant) -> Duration {
        let mut state = self.state.lock();
        state.settle(now);
        std::mem::take(&mut state.busy)
    }

    /// Asks for a batch.
    ///
    /// # Panics
    /// If there are [`BATCHES_MAX`] already.
    pub fn ask(&self, pages: usize, reason: Reason) {
        self.state.lock().ask(Batch { pages, reason }, Instant::now());
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
            if let Some(batch) = state.take() {
                return Some(batch);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Writes batches until the end; `survive` is told what came of each.
    pub fn run(&self, storage: &Storage, survive: impl Fn(&Storage, Result<(), Fault>)) {
        while let Some(batch) = self.next() {
            let written = storage.write_what_fits(batch.pages, batch.reason);
            let written = storage.note_vain(&storage.vain.writes, written);
            self.state.lock().done(batch, Instant::now());
            storage.flusher.raise();
            storage.checkpointer.raise();
            survive(storage, written.map(drop));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_without_a_batch_in_flight_is_not_busy() {
        let (start, mut state) = (Instant::now(), State::default());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let batch = Batch { pages: 5, reason: Reason::Deadline };
        state.ask(batch, at(10));
        state.ask(batch, at(12));
        assert!(state.take().is_some() && state.take().is_some() && state.take().is_none());
        state.done(batch, at(13));
        assert_eq!((state.pages, state.batches()), (5, 1));
        state.settle(at(14));
        assert_eq!(state.busy, Duration::from_millis(4), "what is under way counts");
        state.done(batch, at(20));
        state.settle(at(50));
        assert_eq!((state.pages, state.busy), (0, Duration::from_millis(10)));
        state.ask(batch, at(60));
        state.settle(at(61));
        assert_eq!(state.busy, Duration::from_millis(11));
    }
}

//! The threads that run the storage layer's steps.

use super::{Fault, Storage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Running threads; dropped, they end.
pub struct Background {
    storage: Arc<Storage>,
    ending: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    /// Starts page writer, evictor and log keeper.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start(storage: &Arc<Storage>) -> std::io::Result<Background> {
        let mut background = Background {
            storage: storage.clone(),
            ending: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        };
        background.spawn("weir-flush", flusher)?;
        background.spawn("weir-evict", evictor)?;
        background.spawn("weir-log", log_keeper)?;
        Ok(background)
    }

    fn spawn(&mut self, name: &str, run: fn(&Storage, &AtomicBool)) -> std::io::Result<()> {
        let (storage, ending) = (self.storage.clone(), self.ending.clone());
        let thread = Builder::new().name(name.into()).spawn(move || run(&storage, &ending))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        self.storage.flusher.raise();
        self.storage.evictor.raise();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Goes on after a full device; anything else stops the database.
fn survive(storage: &Storage, result: Result<(), Fault>) {
    match result {
        Ok(()) => {}
        Err(fault) if fault.is_no_space() => std::thread::sleep(Duration::from_millis(50)),
        Err(fault) => storage.stop(fault),
    }
}

fn running(storage: &Storage, ending: &AtomicBool) -> bool {
    !ending.load(Ordering::Acquire) && storage.check().is_ok()
}

/// Follows the governor: writes the oldest pages at the lowest rate that meets every deadline.
fn flusher(storage: &Storage, ending: &AtomicBool) {
    const TURN: Duration = Duration::from_millis(10);
    let mut before = (Instant::now(), storage.redo.reserved().0);
    let mut log_rate = 0.0;
    let mut owed = 0.0;
    let mut idle_turns = 0;
    while running(storage, ending) {
        let urgent = storage.flusher.wait(TURN);
        let now = (Instant::now(), storage.redo.reserved().0);
        let seconds = (now.0 - before.0).as_secs_f64().max(1e-6);
        let rate = (now.1 - before.1) as f64 / seconds;
        let weight = (seconds / 0.5).min(1.0);
        log_rate += (rate - log_rate) * weight;
        before = now;
        owed += storage.wanted_write_rate(log_rate.max(rate)) * seconds;
        idle_turns += 1;
        if urgent {
            owed = owed.max(storage.batch_pages() as f64);
        }
        if owed >= 64.0 || (owed >= 1.0 && idle_turns >= 10) {
            let pages = owed.min(8.0 * storage.batch_pages() as f64) as usize;
            owed = 0.0;
            idle_turns = 0;
            survive(storage, storage.flush_step(pages).map(|_| ()));
        } else if urgent || idle_turns >= 100 {
            idle_turns = 0;
            survive(storage, storage.flush_step(0).map(|_| ()));
        }
    }
}

/// Keeps the reserve of free frames.
fn evictor(storage: &Storage, ending: &AtomicBool) {
    while running(storage, ending) {
        storage.evictor.wait(Duration::from_millis(100));
        if storage.pool.free.len() < storage.frame_reserve() {
            survive(storage, storage.evict_step(storage.frame_reserve()).map(|_| ()));
        }
        storage.pool.reclaim();
    }
}

/// Syncs the log now and then: `relaxed` commits, and extents waiting for a durable relocation.
fn log_keeper(storage: &Storage, ending: &AtomicBool) {
    let mut slept = Duration::ZERO;
    const TURN: Duration = Duration::from_millis(20);
    while running(storage, ending) {
        std::thread::sleep(TURN);
        slept += TURN;
        let behind = storage.redo.reserved() > storage.redo.durable();
        if behind && slept >= Duration::from_millis(400) {
            slept = Duration::ZERO;
            let synced = storage.redo.write_step(true).map_err(Fault::from);
            survive(storage, synced.map(|durable| storage.store.release(durable)));
        }
    }
}

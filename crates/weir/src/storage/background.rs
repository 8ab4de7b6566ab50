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
    let mut before = Instant::now();
    let mut owed = 0.0;
    let mut idle_turns = 0;
    while running(storage, ending) {
        let urgent = storage.flusher.wait(TURN);
        let now = Instant::now();
        let seconds = (now - before).as_secs_f64().max(1e-6);
        before = now;
        owed += storage.wanted_write_rate(seconds) * seconds;
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

/// Syncs the log now and then: `relaxed` commits, and extents waiting for a durable relocation. Gives
/// the space of what was dropped back to the file system.
fn log_keeper(storage: &Storage, ending: &AtomicBool) {
    const TURN: Duration = Duration::from_millis(20);
    const SYNC_EVERY: Duration = Duration::from_millis(400);
    const TRIM_EVERY: Duration = Duration::from_secs(5);
    let (mut synced, mut trimmed) = (Instant::now(), Instant::now());
    while running(storage, ending) {
        std::thread::sleep(TURN);
        if storage.redo.reserved() > storage.redo.durable() && synced.elapsed() >= SYNC_EVERY {
            survive(storage, storage.note_durable());
            synced = Instant::now();
        }
        if trimmed.elapsed() >= TRIM_EVERY {
            survive(storage, storage.store.trim().map_err(Fault::from));
            trimmed = Instant::now();
        }
    }
}

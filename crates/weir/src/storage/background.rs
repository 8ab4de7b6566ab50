//! The threads that run the storage layer's steps.

use super::ahead;
use super::free_frames::Supply;
use super::gate::Rates;
use super::regulator::{Regulator, TURN};
use super::writers::{THREADS, Writers};
use super::{Fault, Rests, Signal, Storage};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Running threads; dropped, they end.
pub struct Background {
    storage: Arc<Storage>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Waits for the others, and for users who wait for them: it ends first.
    recoverer: Option<JoinHandle<()>>,
}

struct Shared {
    ending: AtomicBool,
    recovery_ending: AtomicBool,
    log_keeper: Arc<Signal>,
    writers: Writers,
}

impl Background {
    /// Starts the threads of the page writer and of reading ahead, the evictor, the keepers of log
    /// and checkpoint, and recovery, if it goes on.
    ///
    /// # Errors
    /// When the system gives no threads.
    pub fn start(storage: &Arc<Storage>) -> std::io::Result<Background> {
        let shared = Arc::new(Shared {
            ending: AtomicBool::new(false),
            recovery_ending: AtomicBool::new(false),
            log_keeper: storage.sleepers.signal(),
            writers: Writers::default(),
        });
        let storage = storage.clone();
        let mut background = Background { storage, shared, threads: Vec::new(), recoverer: None };
        background.keep("weir-flush", flusher)?;
        for _ in 0..THREADS {
            background
                .keep("weir-write", |storage, shared| shared.writers.run(storage, survive))?;
        }
        for _ in 0..ahead::THREADS {
            background.keep("weir-ahead", |storage, _| storage.ahead.run(storage))?;
        }
        background.keep("weir-evict", evictor)?;
        background.keep("weir-check", checkpointer)?;
        background.keep("weir-log", log_keeper)?;
        if background.storage.is_recovering() {
            background.recoverer = Some(background.spawn("weir-recover", recoverer)?);
        }
        Ok(background)
    }

    fn keep(&mut self, name: &str, run: fn(&Storage, &Shared)) -> std::io::Result<()> {
        let thread = self.spawn(name, run)?;
        self.threads.push(thread);
        Ok(())
    }

    fn spawn(&self, name: &str, run: fn(&Storage, &Shared)) -> std::io::Result<JoinHandle<()>> {
        let (storage, shared) = (self.storage.clone(), self.shared.clone());
        Builder::new().name(name.into()).spawn(move || {
            let _stops = StopsWhenPanicking(&storage);
            run(&storage, &shared);
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.shared.recovery_ending.store(true, Ordering::Release);
        if let Some(recoverer) = self.recoverer.take() {
            let _ = recoverer.join();
        }
        self.shared.ending.store(true, Ordering::Release);
        self.shared.writers.end();
        self.storage.ahead.end();
        let storage = &self.storage;
        storage.sleepers.wake();
        storage.checkpointer.raise();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Held by a thread whose steps others wait for: if it panics the database stops, or they would
/// wait for ever.
pub struct StopsWhenPanicking<'s>(pub &'s Storage);

impl Drop for StopsWhenPanicking<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let name = std::thread::current().name().unwrap_or_default().to_string();
            self.0.stop(Fault::Panicked(name));
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

fn running(storage: &Storage, shared: &Shared) -> bool {
    !shared.ending.load(Ordering::Acquire) && storage.check().is_ok()
}

/// Follows the governor.
fn flusher(storage: &Storage, shared: &Shared) {
    let mut regulator = Regulator::new(storage.policy());
    let mut rests = Rests::new(TURN);
    while running(storage, shared) {
        storage.rest(&storage.flusher, &mut rests, !regulator.is_calm());
        // A batch that ended too soon after the last turn is followed a moment later, not a whole
        // turn.
        std::thread::sleep(regulator.rest(Instant::now()));
        regulator.turn(storage, &shared.writers, Instant::now());
    }
    // Nobody is held back for the sake of those who write no more.
    storage.gate.set_rates(Rates::NO_LIMIT, storage.progress(), Instant::now());
}

/// Moves the checkpoint when that frees much, and notes dirty pages when the log has grown by much.
fn checkpointer(storage: &Storage, shared: &Shared) {
    while running(storage, shared) {
        storage.checkpointer.wait(Duration::from_millis(500));
        let moved = storage.checkpoint_if_due();
        survive(storage, storage.note_vain(&storage.vain.writes, moved));
        survive(storage, storage.note_dirty_pages_if_due().map(drop));
    }
}

/// Keeps the reserve of free frames, and memory behind it.
fn evictor(storage: &Storage, shared: &Shared) {
    /// Frames that somebody may still know arrive once this thread looks again.
    const ARRIVAL: Duration = Duration::from_millis(1);
    /// Frames that are taken for the first time are best supplied before.
    const SUPPLY: Duration = Duration::from_millis(100);
    const REST: Duration = Duration::from_millis(250);
    let (mut supply, mut in_use) = (Supply::default(), false);
    while running(storage, shared) {
        let rest = match in_use {
            _ if storage.pool.free.expected() > 0 => ARRIVAL,
            true => SUPPLY,
            false => REST,
        };
        let woken = storage.evictor.wait(rest);
        // Many who wait at once take as many frames as the reserve has, and more.
        let waiting = storage.pool.free.waiting();
        // On a full device pages would be evicted that can be read without new frames.
        let counted = if storage.is_full() { 0 } else { waiting };
        storage.margin.adjust(counted, storage.frame_reserve(), storage.pool.frames());
        let wanted = storage.free_target() + waiting;
        if storage.pool.free.len() < wanted {
            let evicted = storage.evict_step(wanted);
            survive(storage, storage.note_vain(&storage.vain.evictions, evicted).map(drop));
        }
        storage.pool.reclaim();
        in_use = storage.pool.supply(&mut supply) || woken;
    }
}

/// Applies the log that there was when the database was opened.
fn recoverer(storage: &Storage, shared: &Shared) {
    let goes_on = || !shared.recovery_ending.load(Ordering::Acquire) && storage.check().is_ok();
    while goes_on() && storage.is_recovering() {
        survive(storage, storage.recovery_step(storage.stretch_bytes()).map(drop));
    }
}

/// Syncs the log now and then: what was written, `relaxed` commits, and extents waiting for a
/// durable relocation. Gives the space of what was dropped back to the file system.
fn log_keeper(storage: &Storage, shared: &Shared) {
    const TURN: Duration = Duration::from_millis(5);
    /// Where the log grows by less than this in a turn, turns become longer.
    const CALM_BYTES: u64 = 64 << 10;
    const SYNC_BYTES: u64 = 512 << 10;
    /// Nobody waits for these syncs, but others for the device: after one so many times its time
    /// passes...
    const SYNC_REST: u32 = 8;
    /// ... unless this part of the log waits for one.
    const SYNC_AT_ONCE: u64 = 16;
    const SYNC_EVERY: Duration = Duration::from_millis(400);
    const TRIM_EVERY: Duration = Duration::from_secs(5);
    let (mut synced, mut trimmed) = (Instant::now(), Instant::now());
    let mut rested = Instant::now();
    let (mut rests, mut end) = (Rests::new(TURN), storage.redo.reserved());
    while running(storage, shared) {
        let before = std::mem::replace(&mut end, storage.redo.reserved());
        if storage.redo.reserved() > storage.redo.durable() {
            rests.stay_awake();
        }
        storage.rest(&shared.log_keeper, &mut rests, end.0 - before.0 >= CALM_BYTES);
        if storage.redo.reserved() > storage.redo.durable() && synced.elapsed() >= SYNC_EVERY {
            survive(storage, storage.note_durable());
            synced = Instant::now();
        }
        // Little by little, so that who has to sync a segment's end has little to wait for.
        let unsynced = storage.redo.written().0.saturating_sub(storage.redo.durable().0);
        let at_once = unsynced >= storage.redo.capacity() / SYNC_AT_ONCE;
        if unsynced >= SYNC_BYTES && (at_once || Instant::now() >= rested) {
            let began = Instant::now();
            let durable = storage.redo.write_step(true).map_err(Fault::from);
            survive(storage, durable.map(|durable| storage.release(durable)));
            rested = Instant::now() + SYNC_REST * began.elapsed();
        }
        survive(storage, storage.look_ahead_for_room());
        if trimmed.elapsed() >= TRIM_EVERY {
            survive(storage, storage.trim());
            trimmed = Instant::now();
        }
    }
}

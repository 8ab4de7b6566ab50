//! The governor at work: what it is told, and what becomes of its plans.
//!
//! A thread calls [`Regulator::turn`] every few milliseconds. It measures, asks the policy, hands
//! batches to the page writer's threads ([`Writers`]) and paces those who write at the gate. It never waits for I/O,
//! so a device that has become slow is noticed while it is.

use super::Storage;
use super::gate::Rates;
use super::write::Reason;
use super::writers::{BATCHES_MAX, Writers};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weir_governor::{Device, DeviceMeter, Load, Plan, Policy};

/// Time between turns.
pub const TURN: Duration = Duration::from_millis(10);

/// At a low rate, a batch takes the pages of this time.
const BATCH_SECONDS: f64 = 0.05;

/// Pages in flight are what the device writes in this time: enough to keep it busy, and others who
/// need it don't wait long.
const IN_FLIGHT_SECONDS: f64 = 0.02;

/// Fewest pages in a batch when more are wanted.
const BATCH_PAGES_MIN: usize = 64;

/// See the module.
pub struct Regulator {
    policy: Box<dyn Policy + Send>,
    meter: DeviceMeter,
    /// When the last turn was.
    at: Instant,
    /// Whether the queue was full then.
    was_full: bool,
    deadlines: Vec<(u64, u64)>,
    dirtied: u64,
    frames_taken: u64,
    /// Pages that are due, fractions included.
    owed: f64,
    /// Since when they are.
    owed_since: Instant,
}

impl Regulator {
    /// A regulator that follows `policy`.
    pub fn new(policy: Box<dyn Policy + Send>) -> Self {
        let now = Instant::now();
        Regulator {
            policy,
            meter: DeviceMeter::new(),
            at: now,
            was_full: false,
            deadlines: Vec::new(),
            dirtied: 0,
            frames_taken: 0,
            owed: 0.0,
            owed_since: now,
        }
    }

    /// Looks at the load, and does what the policy plans.
    pub fn turn(&mut self, storage: &Storage, writers: &Writers, now: Instant) {
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        if seconds < 1e-3 {
            return;
        }
        self.at = now;
        let device = self.measure(storage, seconds);
        let plan = self.plan(storage, seconds, device);
        let rates = Rates { log: plan.log_rate_max, dirty: plan.dirty_rate_max };
        storage.gate.set_rates(rates, storage.progress(), now);
        let figures = &storage.figures;
        let rate = plan.deadline_rate + plan.dirty_limit_rate;
        figures.flush_rate_target.store(rate.min(1e12) as u64, Relaxed);
        figures
            .device_pages_per_second
            .store(device.pages_per_second.unwrap_or(0.0) as u64, Relaxed);
        let log_rate_max = if plan.log_rate_max.is_finite() { plan.log_rate_max } else { 0.0 };
        figures.log_rate_max.store(log_rate_max as u64, Relaxed);
        self.write(storage, writers, &plan, seconds, device);
    }

    fn measure(&mut self, storage: &Storage, seconds: f64) -> Device {
        for done in storage.take_written() {
            let latency = done.ended.saturating_duration_since(done.began).as_secs_f64();
            self.meter.batch_done(done.pages as u64, latency);
        }
        self.meter.elapsed(seconds, if self.was_full { seconds } else { 0.0 });
        self.meter.device()
    }

    fn plan(&mut self, storage: &Storage, seconds: f64, device: Device) -> Plan {
        let dirty_pages = {
            let list = storage.pool.flush.lock();
            list.histogram().deadlines(&mut self.deadlines);
            list.unwritten()
        };
        let dirtied = storage.figures.dirtied.load(Relaxed);
        let log_end = storage.redo.reserved().0;
        let taken = storage.pool.free.taken();
        let load = Load {
            seconds,
            log_end,
            age: log_end.saturating_sub(storage.redo.checkpoint().0),
            age_max: storage.user_capacity(),
            deadlines: &self.deadlines,
            writing: 0,
            dirty_pages,
            dirty_limit: storage.dirty.limit(),
            dirtied: dirtied - std::mem::replace(&mut self.dirtied, dirtied),
            frames: storage.pool.frames() as u64,
            free_frames: storage.pool.free_frames() as u64,
            free_target: storage.frame_reserve() as u64,
            frames_taken: taken - std::mem::replace(&mut self.frames_taken, taken),
            device,
        };
        self.policy.plan(&load)
    }

    /// Hands out what is due, in batches, as far as the queue has room.
    fn write(
        &mut self,
        storage: &Storage,
        writers: &Writers,
        plan: &Plan,
        seconds: f64,
        device: Device,
    ) {
        let rate = plan.deadline_rate + plan.dirty_limit_rate;
        let depth = depth(storage, device);
        let batch = (rate * BATCH_SECONDS).clamp(1.0, batch_pages(storage, depth) as f64);
        if self.owed < 1.0 {
            self.owed_since = self.at;
        }
        self.owed += rate * seconds;
        let aged =
            self.at.saturating_duration_since(self.owed_since).as_secs_f64() >= BATCH_SECONDS;
        loop {
            let (pages, batches) = writers.in_flight();
            self.was_full = pages + batch as usize > depth || batches == BATCHES_MAX;
            let due = self.owed >= batch || (aged && self.owed >= 1.0);
            if self.was_full || !due {
                break;
            }
            let ask = self.owed.min(batch).floor();
            let for_deadline = plan.deadline_rate >= plan.dirty_limit_rate;
            let reason = if for_deadline { Reason::Deadline } else { Reason::DirtyLimit };
            writers.ask(ask as usize, reason);
            self.owed -= ask;
            self.owed_since = self.at;
        }
        // What the queue has no room for is asked for again.
        self.owed = self.owed.min(batch);
    }
}

/// Pages that may be in flight.
fn depth(storage: &Storage, device: Device) -> usize {
    let most = super::writers::THREADS * storage.batch_pages();
    match device.pages_per_second {
        Some(rate) => ((rate * IN_FLIGHT_SECONDS) as usize).clamp(BATCH_PAGES_MIN.min(most), most),
        None => most,
    }
}

/// Most pages in a batch.
fn batch_pages(storage: &Storage, depth: usize) -> usize {
    let least = BATCH_PAGES_MIN.min(depth);
    (depth / 2).clamp(least, depth).min(storage.batch_pages())
}

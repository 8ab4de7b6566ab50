//! The governor at work: what it is told, and what becomes of its plans.
//!
//! A thread calls [`Regulator::turn`] every few milliseconds. It measures, asks the policy, hands
//! batches to the page writer's threads ([`Writers`]) and paces those who write at the gate. It
//! never waits for I/O, so a device that has become slow is noticed while it is.

use super::Storage;
use super::gate::{Cause, Rates};
use super::write::Reason;
use super::writers::{BATCHES_MAX, Writers};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use weir_governor::{Device, DeviceMeter, Load, Plan, Policy};

/// Time between turns.
pub const TURN: Duration = Duration::from_millis(10);

/// The same, at least, when batches end sooner.
const TURN_MIN: Duration = Duration::from_millis(1);

/// At a low rate, a batch takes the pages of this time...
const BATCH_SECONDS: f64 = 0.05;

/// ... and at a lower one, up to [`BATCH_PAGES_MIN`] pages of this.
const BATCH_SECONDS_MAX: f64 = 0.1;

/// A batch is what the device writes in at least and at most this time: others who need the device,
/// the log's syncs above all, shall not wait long for it...
const BATCH_DEVICE_SECONDS: (f64, f64) = (0.003, 0.06);

/// ... but so many times as long as its sync takes, and at least so many pages.
const BATCH_SYNCS: f64 = 3.0;
const BATCH_PAGES_MIN: usize = 24;

/// Batches in flight: one that the device writes, one that waits for it, one that is compressed.
const IN_FLIGHT: usize = 3;

/// Time over which the length of syncs is averaged, in seconds.
const SYNC_MEMORY: f64 = 1.0;

/// See the module.
pub struct Regulator {
    policy: Box<dyn Policy + Send>,
    meter: DeviceMeter,
    /// When the last turn was.
    at: Instant,
    /// Whether the queue was full then.
    was_full: bool,
    /// Batches and the time of their syncs so far; the mean lately.
    syncs: (u64, u64),
    sync_seconds: f64,
    deadlines: Vec<(u64, u64)>,
    dirtied: u64,
    frames_taken: u64,
    written_for_frames: u64,
    /// Pages that are due, fractions included.
    owed: f64,
    /// Since when they are.
    owed_since: Instant,
    calm: bool,
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
            syncs: (0, 0),
            sync_seconds: 0.0,
            deadlines: Vec::new(),
            dirtied: 0,
            frames_taken: 0,
            written_for_frames: 0,
            owed: 0.0,
            owed_since: now,
            calm: false,
        }
    }

    /// Whether next to nothing was to be written or held back at the last turn.
    pub fn is_calm(&self) -> bool {
        self.calm
    }

    /// How long to wait from `now` to the next turn at least.
    pub fn rest(&self, now: Instant) -> Duration {
        TURN_MIN.saturating_sub(now.saturating_duration_since(self.at))
    }

    /// Looks at the load, and does what the policy plans. Nothing, if the last turn was just now.
    pub fn turn(&mut self, storage: &Storage, writers: &Writers, now: Instant) {
        if self.rest(now) > Duration::ZERO {
            return;
        }
        let seconds = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        let busy = writers.take_busy(now).as_secs_f64().min(seconds);
        let device = self.measure(storage, seconds, busy);
        let plan = self.plan(storage, seconds, device);
        let rates = match storage.is_full() {
            // Nothing gets written, however slowly they go.
            true => Rates::NO_LIMIT,
            false => Rates { log: plan.log_rate_max, dirty: plan.dirty_rate_max },
        };
        storage.gate.set_rates(rates, storage.progress(), now);
        storage.spare.follow_log(
            plan.log_used,
            storage.redo.user_capacity(),
            storage.page_bytes(),
            seconds,
        );
        let figures = &storage.figures;
        let rate = plan.deadline_rate + plan.dirty_limit_rate;
        let free = rates.log.is_infinite() && rates.dirty.is_infinite();
        self.calm = free && (rate + plan.free_frame_rate) * TURN.as_secs_f64() < 1.0;
        figures.flush_rate_target.store(rate.min(1e12) as u64, Relaxed);
        figures
            .device_pages_per_second
            .store(device.pages_per_second.unwrap_or(0.0) as u64, Relaxed);
        let log_rate_max = if plan.log_rate_max.is_finite() { plan.log_rate_max } else { 0.0 };
        figures.log_rate_max.store(log_rate_max as u64, Relaxed);
        self.write(storage, writers, &plan, seconds, device);
    }

    fn measure(&mut self, storage: &Storage, seconds: f64, busy: f64) -> Device {
        for done in storage.take_written() {
            let latency = done.ended.saturating_duration_since(done.began).as_secs_f64();
            self.meter.batch_done(done.pages as u64, latency);
        }
        let syncs = storage.store.batch_syncs();
        let before = std::mem::replace(&mut self.syncs, syncs);
        if syncs.0 > before.0 {
            let mean = (syncs.1 - before.1) as f64 / 1e6 / (syncs.0 - before.0) as f64;
            self.sync_seconds += (mean - self.sync_seconds) * (seconds / SYNC_MEMORY).min(1.0);
        }
        // A device without space is no slow one, nor is one that had done all before we came back
        // to it.
        let was_full = self.was_full && !storage.is_full();
        self.meter.elapsed(seconds, busy, was_full);
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
        let for_frames = storage.figures.written_for_frames.load(Relaxed);
        let load = Load {
            seconds,
            log_end,
            age: log_end.saturating_sub(storage.redo.checkpoint().0),
            age_max: storage.redo.user_capacity(),
            deadlines: &self.deadlines,
            dirty_pages,
            dirty_limit: storage.dirty.users_limit(),
            dirtied: dirtied - std::mem::replace(&mut self.dirtied, dirtied),
            frames: storage.pool.frames() as u64,
            free_frames: storage.pool.free_frames() as u64,
            free_target: storage.free_target() as u64,
            frames_taken: taken - std::mem::replace(&mut self.frames_taken, taken),
            written_for_frames: for_frames
                - std::mem::replace(&mut self.written_for_frames, for_frames),
            device,
        };
        self.policy.plan(&load)
    }

    /// Most pages in a batch.
    fn batch_pages(&self, storage: &Storage, device: Device) -> usize {
        let most = storage.batch_pages();
        let Some(rate) = device.pages_per_second else { return most };
        let (least, longest) = BATCH_DEVICE_SECONDS;
        let seconds = (BATCH_SYNCS * self.sync_seconds).clamp(least, longest);
        ((rate * seconds) as usize).clamp(BATCH_PAGES_MIN.min(most), most)
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
        let most = self.batch_pages(storage, device);
        let depth = IN_FLIGHT * most;
        // At its limit nothing grows, and what follows growth alone would wait with those who wait
        // for it.
        let pressed = storage.pressed.swap(false, Relaxed);
        let rate = if pressed { rate.max(depth as f64 / seconds) } else { rate };
        let hot = storage.pool.flush.lock().hot();
        let hot = hot.saturating_sub(writers.in_flight().0);
        let few = (rate * BATCH_SECONDS_MAX).min(BATCH_PAGES_MIN as f64);
        let batch = (rate * BATCH_SECONDS).max(few).clamp(1.0, most as f64);
        if self.owed < 1.0 {
            self.owed_since = self.at;
        }
        self.owed = (self.owed + rate * seconds).max(hot as f64);
        let aged =
            self.at.saturating_duration_since(self.owed_since).as_secs_f64() >= BATCH_SECONDS_MAX;
        loop {
            let (pages, batches) = writers.in_flight();
            self.was_full = pages + batch as usize > depth || batches == BATCHES_MAX;
            let due = self.owed >= batch || (aged && self.owed >= 1.0);
            if self.was_full || !due {
                break;
            }
            let ask = self.owed.min(batch).floor();
            let for_deadline = match pressed {
                _ if hot > 0 => true,
                true => storage.gate.last_cause() != Cause::DirtyLimit,
                false => plan.deadline_rate >= plan.dirty_limit_rate,
            };
            let reason = if for_deadline { Reason::Deadline } else { Reason::DirtyLimit };
            writers.ask(ask as usize, reason);
            self.owed -= ask;
            self.owed_since = self.at;
        }
        // What the queue has no room for is asked for again.
        self.owed = self.owed.min(batch);
    }
}

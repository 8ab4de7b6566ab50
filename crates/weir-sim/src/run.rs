//! One run: a workload, a device and a policy, tick by tick.

use weir_governor::{Load, Plan, Policy};

use crate::PolicyChoice;
use crate::device::{Device, DeviceModel};
use crate::pages::{Cost, Pages};
use crate::workload::Workload;
use crate::{PAGE_BYTES, Summary};

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The workload.
    pub workload: Workload,
    /// The device.
    pub device: DeviceModel,
    /// Memory for pages.
    pub memory_bytes: u64,
    /// The redo log's capacity.
    pub redo_bytes: u64,
    /// Dirty pages at most, in percent of the frames.
    pub dirty_limit_percent: f64,
    /// How much of the operations' rate is lost when the device does nothing but write pages:
    /// commits wait behind them. 0 where commits have a device of their own.
    pub contention: f64,
    /// How long at most.
    pub seconds: u32,
    /// It ends when so many operations are done.
    pub operations_max: f64,
    /// It ends when so many times the redo has been written that the age was at most.
    pub laps_max: f64,
    /// Seconds at the start that summaries leave out.
    pub warm_up_seconds: u32,
    /// Length of a tick.
    pub tick_seconds: f64,
    /// `(from, to, speed)`: between these seconds the device has only this share of its speed.
    pub slowdown: Option<(u32, u32, f64)>,
    /// Seed of the device's variation.
    pub seed: u64,
}

/// What happened in one second; levels are those at its end.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Second {
    /// Operations done.
    pub operations: f64,
    /// Operations that clients wanted to do.
    pub wanted: f64,
    /// Bytes of redo.
    pub log_bytes: f64,
    /// End of the log less the checkpoint; the largest of the second.
    pub age: u64,
    /// What it must not pass.
    pub age_max: u64,
    /// Dirty pages, those under way included; the most of the second.
    pub dirty: f64,
    /// Dirty pages that there may be.
    pub dirty_limit: f64,
    /// Free frames.
    pub free_frames: f64,
    /// Pages written because of deadlines, the dirty limit, and free frames.
    pub written: [f64; 3],
    /// Pages read.
    pub reads: f64,
    /// Share of the time in which writers were held back by the policy.
    pub paced: f64,
    /// Share of the time in which they all but stood still.
    pub stalled: f64,
}

impl Second {
    /// Pages written for all reasons.
    pub fn pages_written(&self) -> f64 {
        self.written.iter().sum()
    }
}

impl Setup {
    /// An hour, of which the first third doesn't count; a dirty limit of 90 %.
    pub fn new(
        workload: Workload,
        device: DeviceModel,
        memory_bytes: u64,
        redo_bytes: u64,
    ) -> Self {
        Setup {
            workload,
            device,
            memory_bytes,
            redo_bytes,
            dirty_limit_percent: 90.0,
            contention: 0.0,
            seconds: 3600,
            operations_max: f64::INFINITY,
            laps_max: f64::INFINITY,
            warm_up_seconds: 1200,
            tick_seconds: 0.02,
            slowdown: None,
            seed: 1,
        }
    }
}

/// A run and what came of it.
#[derive(Debug, Clone)]
pub struct Run {
    /// The policy's name.
    pub policy: String,
    /// What was simulated.
    pub setup: Setup,
    /// Every second.
    pub seconds: Vec<Second>,
    /// The figures of the table.
    pub summary: Summary,
}

/// Runs `setup` under a policy.
///
/// # Panics
/// When a tick is longer than a second, or there is no second left after the warm-up.
pub fn simulate(setup: &Setup, choice: &PolicyChoice) -> Run {
    assert!((1e-3..=1.0).contains(&setup.tick_seconds), "a tick is part of a second");
    assert!(setup.warm_up_seconds < setup.seconds, "something is left after the warm-up");
    let policy = choice.policy(setup.dirty_limit_percent);
    let name = policy.name();
    let mut server = Server::new(setup, choice, policy);
    let ticks = (1.0 / setup.tick_seconds).round().max(1.0) as u32;
    let mut seconds = Vec::with_capacity(setup.seconds as usize);
    let (mut operations, mut age_max) = (0.0, 0u64);
    for second in 0..setup.seconds {
        let slow = setup.slowdown.filter(|&(from, to, _)| (from..to).contains(&second));
        server.device.speed = slow.map_or(1.0, |(_, _, speed)| speed);
        let mut sum = Second::default();
        for tick in 0..ticks {
            let time = f64::from(second) + f64::from(tick) / f64::from(ticks);
            server.tick(time, 1.0 / f64::from(ticks), &mut sum);
        }
        sum.paced /= f64::from(ticks);
        sum.stalled /= f64::from(ticks);
        seconds.push(sum);
        operations += sum.operations;
        age_max = age_max.max(sum.age);
        let lapped = server.log_end - LOG_BEGIN >= setup.laps_max * age_max as f64;
        let done = operations >= setup.operations_max || lapped;
        if done && second >= setup.warm_up_seconds {
            break;
        }
    }
    let measured = &seconds[setup.warm_up_seconds as usize..];
    let summary = Summary::of(measured, server.frames as f64);
    Run { policy: name, setup: setup.clone(), seconds, summary }
}

struct Server<'a> {
    setup: &'a Setup,
    pages: Pages,
    device: Device,
    policy: Box<dyn Policy>,
    has_credits: bool,
    plan: Plan,
    deadlines: Vec<(u64, u64)>,
    frames: u64,
    free_target: u64,
    age_max: u64,
    dirty_limit: u64,
    log_end: f64,
    /// Fractions of pages that the policy hasn't been told of.
    dirtied: f64,
    taken: f64,
    freed: f64,
    /// Share of the device that writes took lately.
    busy: f64,
    /// Operations per tick of the last seconds.
    usual: f64,
}

/// Writers stand still when they do less than this share of the usual...
const STALL: f64 = 0.05;
/// ... which is the mean of this time.
const USUAL_SECONDS: f64 = 10.0;

/// The log begins here, so that no LSN is near 0.
const LOG_BEGIN: f64 = (1u64 << 44) as f64;

impl<'a> Server<'a> {
    fn new(setup: &'a Setup, choice: &PolicyChoice, policy: Box<dyn Policy>) -> Self {
        let frames = (setup.memory_bytes / PAGE_BYTES).max(100);
        let age_max = ((setup.redo_bytes as f64 * choice.usable_log()) as u64).max(1);
        Server {
            setup,
            pages: Pages::new(&setup.workload, frames, age_max),
            device: Device::new(setup.device.clone(), setup.seed),
            policy,
            has_credits: choice.has_credits(),
            plan: Plan::IDLE,
            deadlines: Vec::new(),
            frames,
            free_target: frames / 100,
            age_max,
            dirty_limit: (frames as f64 * setup.dirty_limit_percent / 100.0) as u64,
            log_end: LOG_BEGIN,
            dirtied: 0.0,
            taken: 0.0,
            freed: 0.0,
            busy: 0.0,
            usual: 0.0,
        }
    }

    fn age(&self) -> u64 {
        let end = self.log_end as u64;
        let oldest = self.pages.oldest().into_iter().chain(self.device.oldest()).min();
        end - oldest.unwrap_or(end).min(end)
    }

    fn dirty(&self) -> f64 {
        self.pages.dirty() + self.device.queued()
    }

    fn tick(&mut self, time: f64, seconds: f64, sum: &mut Second) {
        self.device.begin(seconds);
        self.operate(time, seconds, sum);
        let (written, freed) = self.device.work();
        self.pages.written(freed);
        let possible = self.setup.device.pages_per_second * seconds;
        self.busy += (written / possible - self.busy) * seconds.min(1.0);
        self.write(seconds, sum);
        sum.age = sum.age.max(self.age());
        sum.dirty = sum.dirty.max(self.dirty());
        (sum.age_max, sum.dirty_limit) = (self.age_max, self.dirty_limit as f64);
        sum.free_frames = self.pages.free();
        assert!(self.age() <= self.age_max, "the age never passes its limit");
        let credits = self.dirty_limit as f64 + 1.0;
        assert!(!self.has_credits || self.dirty() <= credits, "nor do dirty pages theirs");
    }

    /// Clients do what they want, as far as they may.
    fn operate(&mut self, time: f64, seconds: f64, sum: &mut Second) {
        let workload = &self.setup.workload;
        let lost = self.setup.contention * self.busy;
        let rate = workload.rate * workload.demand.at(time) * (1.0 - lost).max(0.05);
        let wanted = rate * seconds;
        let cost = self.pages.cost();
        let paced = self.paced(seconds, &cost);
        let possible = self.possible(&cost);
        let operations = wanted.min(paced).min(possible);
        sum.wanted += wanted;
        sum.operations += operations;
        sum.paced += f64::from(u8::from(paced < wanted && paced <= possible));
        sum.stalled += f64::from(u8::from(operations < STALL * self.usual && wanted > 0.0));
        self.usual += (operations - self.usual) * (seconds / USUAL_SECONDS);
        if operations <= 0.0 {
            return;
        }
        self.log_end += operations * workload.redo_bytes;
        sum.log_bytes += operations * workload.redo_bytes;
        let done = self.pages.change(operations, self.log_end as u64);
        self.device.read(done.reads);
        sum.reads += done.reads;
        self.dirtied += done.dirtied;
        self.taken += done.frames;
    }

    /// Operations that the plan allows.
    fn paced(&self, seconds: f64, cost: &Cost) -> f64 {
        let log = self.plan.log_rate_max * seconds / self.setup.workload.redo_bytes;
        let dirty = self.plan.dirty_rate_max * seconds / cost.dirtied.max(1e-12);
        log.min(dirty)
    }

    /// Operations for which there is space in the log, frames, reads, and credits if the policy has
    /// them.
    fn possible(&self, cost: &Cost) -> f64 {
        let age = self.age();
        let log = self.age_max.saturating_sub(age + 1) as f64 / self.setup.workload.redo_bytes;
        let of = |have: f64, each: f64| if each > 1e-9 { have / each } else { f64::INFINITY };
        let frames = of(self.pages.free(), cost.frames);
        let reads = of(self.device.readable(), cost.reads);
        let mut possible = log.min(frames).min(reads);
        if self.has_credits {
            let credits = (self.dirty_limit as f64 - self.dirty()).max(0.0);
            possible = possible.min(of(credits, cost.dirtied));
        }
        possible
    }

    /// The policy looks, and pages are written accordingly.
    fn write(&mut self, seconds: f64, sum: &mut Second) {
        self.pages.deadlines(&mut self.deadlines);
        let load = Load {
            seconds,
            log_end: self.log_end as u64,
            age: self.age(),
            age_max: self.age_max,
            deadlines: &self.deadlines,
            dirty_pages: self.dirty() as u64,
            dirty_limit: self.dirty_limit,
            dirtied: self.dirtied as u64,
            frames: self.frames,
            free_frames: self.pages.free().max(0.0) as u64,
            free_target: self.free_target,
            frames_taken: self.taken as u64,
            written_for_frames: self.freed as u64,
            device: self.device.meter.device(),
        };
        self.dirtied = self.dirtied.fract();
        self.taken = self.taken.fract();
        self.freed = self.freed.fract();
        self.plan = self.policy.plan(&load);
        let plan = self.plan;

        let mut room = self.device.room();
        let mut full = false;
        self.free_frames(seconds, &mut room, &mut full, sum);
        for (at, rate) in [plan.deadline_rate, plan.dirty_limit_rate].into_iter().enumerate() {
            let wanted = (rate * seconds).min(self.pages.dirty());
            full |= wanted > room;
            let (pages, oldest) = self.pages.write_oldest(wanted.min(room));
            self.device.issue(pages, oldest);
            room -= pages;
            sum.written[at] += pages;
        }
        self.device.end(seconds, full);
    }

    /// The free-frame provider. Policies without a budget for it write whatever is in its way.
    fn free_frames(&mut self, seconds: f64, room: &mut f64, full: &mut bool, sum: &mut Second) {
        let missing = self.free_target as f64 - self.pages.free() - self.pages.leaving();
        if missing <= 0.0 {
            return;
        }
        let budget = if self.has_credits { self.plan.free_frame_rate * seconds } else { *room };
        *full |= budget > *room;
        let oldest = self.pages.oldest().unwrap_or(u64::MAX);
        let freed = self.pages.free_coldest(missing, budget.min(*room));
        self.device.issue_leaving(freed.written, oldest);
        *room -= freed.written;
        self.freed += freed.written;
        sum.written[2] += freed.written;
    }
}

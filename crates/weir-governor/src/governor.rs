//! The governor itself.
//!
//! # Deadlines
//! A page first changed at `x` must be written before the log reaches `x + A`, `A` being the age
//! target. With `n(x)` dirty pages at or before `x`, the log at `L` growing at rate `v`, the lowest
//! constant rate that meets every deadline is `v * max over x of n(x) / (x + A - L)`: the smoothest
//! schedule for jobs that are all present (Yao, Demers, Shenker, FOCS 1995). `v` is averaged over
//! up to a quarter of the time until the deadline that asks for most pages per byte
//! ([`crate::log_rate`]): a burst of the load that is short against its runway is spread over it.
//!
//! Pages that are written to free their frames need no deadline any more. If each is with
//! probability `p` per second, what is left of `n / t` over a time `t` is `n p / (e^(p t) - 1)`.
//!
//! # Admission
//! Turned around: with `C` pages per second, the log may grow at `V = C / max over x of n(x) / (x +
//! A - L)`. That is a mean over the time until the deadline; so a load that was below it before may
//! exceed it for a while, by as much as it was below: `2 V - v`.
//!
//! # Past the target
//! The target lies below what must not be passed by a *headroom*: what the log grows while the
//! device is slower than usual, and too slow. In its first half the rate that is asked for rises
//! without bound. Writers may use up nearly all of it, so that they don't feel each moment of the
//! device; what they may use of `V` falls with the cube of how far the age has come, to nothing at
//! the end: they are slowed down and never stopped.
//!
//! # A smaller log
//! When the largest age shrinks below the age, the governor follows it gradually: as fast as the
//! device has time for besides the load, and within [`SHRINK_SECONDS`] at the latest. Whoever gives
//! out log space must let the old limit stand until then.

use crate::log_rate::{LogRate, Rates};
use crate::{Load, Plan, Policy};

/// The headroom is at least this share of the largest age...
const HEADROOM_MIN: f64 = 0.05;
/// ... and at most this one.
const HEADROOM_MAX: f64 = 0.25;
/// It is averaged over so many laps of the log, and over so many seconds at least and at most.
const HEADROOM_LAPS: f64 = 4.0;
const HEADROOM_SECONDS: (f64, f64) = (1.0, 16.0);
/// Time that a page takes besides its write: until the next plan, and until the next checkpoint.
const REACTION_SECONDS: f64 = 0.05;
/// A device that is slower than usual is so by this many mean deviations, for so many seconds.
const SLOW: (f64, f64) = (2.5, 3.2);
/// Share of the headroom that writers may use up.
const USABLE: f64 = 0.9;
/// While nothing is known of the device, writers are held back from this part of the headroom on...
const CAREFUL: f64 = 0.25;
/// ... to so many times the log's growth: a load that has become larger is no device that can't
/// follow, and a device that can't shows it before the headroom is used up.
const GROWTH: f64 = 2.0;
/// Deadlines closer than this are treated as if they were this far away, so that a page that is
/// late by a moment is no reason to hurry: in seconds of log...
const CLOSEST_SECONDS: f64 = 0.1;
/// ... and as a share of the target, at least and at most.
const CLOSEST: (f64, f64) = (1.0 / 256.0, 1.0 / 4.0);
/// Pages past their deadline are written within this time even if the log stands still.
const LATE_SECONDS: f64 = 1.0;
/// Writers are held back when they use this share of what they may.
const HELD_BACK: f64 = 0.9;
/// Span over which the log's growth is averaged that is set against what it may be.
const USED_SECONDS: f64 = 1.0;
/// While they are, the device is asked for this much more than it is known to do.
const PROBE: f64 = 2.0;
/// From this share of the dirty limit on, pages are written for its sake...
const DIRTY_FROM: f64 = 0.9;
/// ... and at this share, as many as become dirty.
const DIRTY_FULL: f64 = 0.97;
/// Time in which the reserve of free frames is to be filled again.
const FREE_SECONDS: f64 = 0.5;
/// Share of the device that neither deadlines nor free frames can take from one another.
const RESERVED: f64 = 0.5;
/// A largest age that shrinks is followed at what this share of the device can do...
const SHRINK_SHARE: f64 = 0.8;
/// ... and at least in this time.
const SHRINK_SECONDS: f64 = 60.0;
/// Span over which rates of pages are averaged, in seconds.
const PAGES_SECONDS: f64 = 0.5;

/// The flush governor. Nothing to set.
#[derive(Debug, Clone, Default)]
pub struct Governor {
    log_rate: LogRate,
    /// The largest age that is kept to now, and by how much it shrinks per second at least.
    age_max: Option<f64>,
    shrinks: f64,
    /// Headroom as a share of the largest age; 0 before the first plan.
    headroom: f64,
    /// Pages per second that deadlines asked for.
    needed: Average,
    /// Pages that become dirty per second.
    dirtying: Average,
    /// Frames taken per second.
    frames: Average,
    /// Dirty pages written per second to free their frames.
    written_for_frames: Average,
    /// What the last plan allowed.
    log_rate_max: Option<f64>,
    dirty_rate_max: Option<f64>,
}

/// What the deadlines ask for.
struct Need {
    /// Pages per second.
    rate: f64,
    /// Bytes of log per second for which the device suffices.
    log_rate_max: f64,
}

impl Governor {
    /// A governor that has seen nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The largest age, if that has shrunk: what is kept to on the way there.
    fn follow_age_max(&mut self, load: &Load, rates: &Rates) -> f64 {
        let asked = load.age_max as f64;
        // Nothing is in the way of going down to what the age leaves as headroom.
        let free = asked.max(load.age as f64 / (1.0 - HEADROOM_MIN));
        let before = self.age_max.map_or(asked, |before| before.min(free));
        let even = self.log_rate_max.filter(|max| max.is_finite());
        let spare = even.map_or(rates.slow(), |even| SHRINK_SHARE * even - rates.slow());
        self.shrinks = self.shrinks.max((before - asked) / SHRINK_SECONDS);
        let fall = spare.max(self.shrinks) * load.seconds;
        let now = asked.max(before - fall);
        self.shrinks = if now > asked { self.shrinks } else { 0.0 };
        self.age_max = Some(now);
        now
    }

    /// What lies between the age target and the largest age: what the log grows while a write takes
    /// unusually long.
    fn headroom(&mut self, load: &Load, rates: &Rates, max: f64) -> f64 {
        let slow_write = 2.0 * load.device.latency_bound() + REACTION_SECONDS;
        // A device that has time to spare may be slower for a while.
        let used = load.device.pages_per_second.map_or(0.0, |all| self.needed.rate / all);
        let missing = used.min(1.0) - (1.0 - SLOW.0 * load.device.variation);
        // Slowly, in laps: a target that moves with what it makes necessary would swing.
        let (least, most) = HEADROOM_SECONDS;
        let memory = (HEADROOM_LAPS * max / rates.slow()).clamp(least, most);
        let bytes = rates.over(memory) * (slow_write + SLOW.1 * missing.max(0.0));
        let share = (bytes / max).clamp(HEADROOM_MIN, HEADROOM_MAX);
        let weight = -(-load.seconds / memory).exp_m1();
        self.headroom = self.headroom.max(HEADROOM_MIN);
        self.headroom += (share - self.headroom) * weight;
        self.headroom * max
    }

    /// Goes through all deadlines. `capacity` is what the device can do for them.
    fn need(&mut self, load: &Load, rates: &Rates, runway: &Runway, capacity: Option<f64>) -> Need {
        let freed = self.written_for_frames.observe(load.written_for_frames as f64, load.seconds);
        let freed_share = freed / load.dirty_pages.max(1) as f64;
        let mut need = Need { rate: 0.0, log_rate_max: f64::INFINITY };
        let thresholds = rates.thresholds();
        let mut span = 0;
        let (mut steepest, mut late) = (0.0, 0.0f64);
        for &(x, pages) in load.deadlines {
            if pages == 0 {
                continue;
            }
            let bytes = runway.bytes(x, load.log_end);
            while span < thresholds.len() && bytes >= thresholds[span] {
                span += 1;
            }
            let log_rate = rates.by_span[span];
            let pages = pages as f64 * left_over(freed_share * bytes / log_rate);
            let per_byte = pages / bytes;
            if per_byte > steepest {
                (steepest, need.rate) = (per_byte, per_byte * log_rate);
            }
            if runway.is_late(x, load.log_end) {
                late = late.max(pages / LATE_SECONDS);
            }
            if let Some(capacity) = capacity {
                let even = capacity * runway.usable_bytes(x, load.log_end) / pages;
                need.log_rate_max = need.log_rate_max.min(even + (even - log_rate).max(0.0));
            }
        }
        need.rate = need.rate.max(late);
        need
    }

    /// How far the age has come from its target (0) to what must not be passed (1).
    fn overrun(load: &Load, age_max: f64, headroom: f64) -> f64 {
        let room = age_max - load.age as f64;
        (1.0 - room / headroom).clamp(0.0, 1.0)
    }

    /// What writers may use, when the deadlines allow `even` and the age has overrun its target.
    fn admission(even: f64, overrun: f64, rates: &Rates, headroom: f64) -> f64 {
        if even.is_infinite() && overrun <= CAREFUL {
            return even;
        }
        // A log that stands still may start again.
        let unknown = (GROWTH * rates.max).max(headroom / LATE_SECONDS);
        let even = if even.is_infinite() { unknown } else { even };
        even * (1.0 - overrun.powi(3))
    }

    /// What share of an even growth the log's is, where it may grow at `most` for a while
    /// ([`Self::need`]).
    fn used(most: f64, rate: f64) -> f64 {
        let even = if most > rate { (most + rate) / 2.0 } else { most };
        if even > 0.0 { (rate / even).min(1.0) } else { 1.0 }
    }

    fn held_back(last: Option<f64>, rate: f64) -> bool {
        last.is_some_and(|max| rate >= HELD_BACK * max)
    }

    /// Pages per second for the dirty limit's sake, given those written anyway; and the rate at
    /// which pages may become dirty.
    fn dirty_limit(&mut self, load: &Load, written: f64) -> (f64, f64) {
        let limit = load.dirty_limit.max(1) as f64;
        let dirty = load.dirty_pages as f64;
        let dirtying = self.dirtying.observe(load.dirtied as f64, load.seconds);
        let urgency = (dirty / limit - DIRTY_FROM) / (DIRTY_FULL - DIRTY_FROM);
        if urgency <= 0.0 {
            return (0.0, f64::INFINITY);
        }
        let Some(capacity) = load.device.pages_per_second else {
            return ((urgency * dirtying - written).max(0.0), f64::INFINITY);
        };
        let room = (limit - dirty).max(0.0) / (limit * (1.0 - DIRTY_FULL));
        let allowed = capacity * room;
        let held_back = Self::held_back(self.dirty_rate_max, dirtying);
        let probe = if held_back { PROBE * capacity } else { 0.0 };
        let rate = (urgency * dirtying).max(probe * urgency.min(1.0));
        ((rate - written).max(0.0), allowed)
    }

    /// Dirty pages per second that have to be written so that their frames become free.
    fn free_frames(&mut self, load: &Load) -> f64 {
        let taken = self.frames.observe(load.frames_taken as f64, load.seconds);
        if load.frames == 0 {
            return 0.0;
        }
        let missing = load.free_target.saturating_sub(load.free_frames) as f64;
        let dirty_share = (load.dirty_pages as f64 / load.frames as f64).min(1.0);
        (taken + missing / FREE_SECONDS) * dirty_share
    }
}

impl Policy for Governor {
    fn name(&self) -> String {
        "governor".into()
    }

    fn plan(&mut self, load: &Load) -> Plan {
        assert!(load.seconds > 0.0, "time passes between plans");
        let rates = self.log_rate.observe(load.log_end, load.seconds);
        let age_max = self.follow_age_max(load, &rates);
        let headroom = self.headroom(load, &rates, age_max);
        let age_target = age_max - headroom;
        let runway = Runway::new(age_target, headroom, &rates);
        let device = load.device.pages_per_second;

        let wanted_free = self.free_frames(load);
        let for_deadlines = device.map(|all| all - wanted_free.min(RESERVED * all));
        let need = self.need(load, &rates, &runway, for_deadlines);
        self.needed.observe(need.rate.min(1e12) * load.seconds, load.seconds);
        let overrun = Self::overrun(load, age_max, headroom);
        let log_rate_max = Self::admission(need.log_rate_max, overrun, &rates, headroom);
        let held_back = Self::held_back(self.log_rate_max, rates.by_span[0]);
        let probe = if held_back { PROBE * for_deadlines.unwrap_or(0.0) } else { 0.0 };
        let deadline_rate = need.rate.max(probe);

        let for_free = device.map_or(f64::INFINITY, |all| all - deadline_rate.min(RESERVED * all));
        let free_frame_rate = wanted_free.min(for_free);
        let written = deadline_rate + free_frame_rate;
        let (dirty_limit_rate, dirty_rate_max) = self.dirty_limit(load, written);
        self.log_rate_max = Some(log_rate_max);
        self.dirty_rate_max = Some(dirty_rate_max);
        let rates_asked = [deadline_rate, dirty_limit_rate, free_frame_rate];
        debug_assert!(
            rates_asked.iter().all(|rate| rate.is_finite()),
            "{rates_asked:?} for {load:?}"
        );
        let most = [log_rate_max, dirty_rate_max];
        debug_assert!(most.iter().all(|rate| *rate >= 0.0), "{most:?} for {load:?}");
        Plan {
            deadline_rate,
            dirty_limit_rate,
            free_frame_rate,
            log_rate_max,
            dirty_rate_max,
            log_used: Self::used(log_rate_max, rates.over(USED_SECONDS)),
            age_target: age_target as u64,
        }
    }
}

/// Turns a recovery LSN into the bytes of log that are left for it.
struct Runway {
    target: f64,
    closest: f64,
    /// How far past the target a deadline may be before it is due at once.
    grace: f64,
    /// How far past the target writers may bring it.
    usable: f64,
}

impl Runway {
    fn new(target: f64, headroom: f64, rates: &Rates) -> Self {
        let (least, most) = (CLOSEST.0 * target, CLOSEST.1 * target);
        let closest = (rates.max * CLOSEST_SECONDS).clamp(least.max(1.0), most.max(1.0));
        Runway { target, closest, grace: headroom / 2.0, usable: USABLE * headroom }
    }

    /// Whether the deadline is over.
    fn is_late(&self, x: u64, log_end: u64) -> bool {
        log_end.saturating_sub(x) as f64 > self.target
    }

    /// Bytes until writers may not bring the log any further; never less than one.
    fn usable_bytes(&self, x: u64, log_end: u64) -> f64 {
        (self.target + self.usable - log_end.saturating_sub(x) as f64).max(1.0)
    }

    /// Bytes until the deadline; past it, until the grace is over. Never less than one.
    fn bytes(&self, x: u64, log_end: u64) -> f64 {
        let left = self.target - log_end.saturating_sub(x) as f64;
        if left >= self.closest {
            return left;
        }
        (self.closest * (left + self.grace) / (self.closest + self.grace)).max(1.0)
    }
}

/// Share of a rate that is still needed over a time in which `times` of what there is goes away by
/// itself.
fn left_over(times: f64) -> f64 {
    // Also when the log stands still: no time is long enough then.
    if times > 1e-3 && times.is_finite() { times / times.exp_m1() } else { 1.0 }
}

/// A mean rate over the last moments.
#[derive(Debug, Clone, Default)]
struct Average {
    rate: f64,
}

impl Average {
    fn observe(&mut self, count: f64, seconds: f64) -> f64 {
        let share = -(-seconds / PAGES_SECONDS).exp_m1();
        self.rate += (count / seconds - self.rate) * share;
        self.rate
    }
}

//! InnoDB's adaptive flushing, to compare with: MySQL 5.7 and 8.0 to 8.0.29, from its documentation
//! and published descriptions.
//!
//! Once a second the page cleaner wants the mean of three numbers of pages:
//! - a share of `io_capacity`. The share comes from the age: with `f` the age in percent of the
//!   *asynchronous* limit, `(io_capacity_max / io_capacity) * f^1.5 / 7.5` percent, nothing below
//!   `adaptive_flushing_lwm`; or from the dirty pages, `100 * dirty% / (max_dirty_pages_pct + 1)`
//!   above their low-water mark; whichever is more;
//! - what it wrote per second lately;
//! - the pages that would fall out of the log if the oldest LSN moved as fast as the newest does.
//!
//! The sum is cut at `io_capacity_max`. Rates are averaged over `flushing_avg_loops` seconds. Past
//! the *synchronous* limit writers stop, and pages are written as fast as the device can until the
//! age is below it. Without adaptive flushing, as before 2010, `io_capacity` pages are written per
//! second while too many are dirty, and else none.

use crate::{Load, Plan, Policy};

/// InnoDB's settings, by their names there.
#[derive(Debug, Clone, PartialEq)]
pub struct InnodbSettings {
    /// Whether the age counts before writers have to stop.
    pub adaptive_flushing: bool,
    /// Pages per second for background work.
    pub io_capacity: f64,
    /// Pages per second at most.
    pub io_capacity_max: f64,
    /// Percent of the log from which on the age counts.
    pub adaptive_flushing_lwm: f64,
    /// Percent of dirty pages that are to be kept.
    pub max_dirty_pages_pct: f64,
    /// Percent of dirty pages from which on they count; 0: none before the limit.
    pub max_dirty_pages_pct_lwm: f64,
    /// Seconds over which rates are averaged.
    pub flushing_avg_loops: f64,
}

impl Default for InnodbSettings {
    fn default() -> Self {
        InnodbSettings {
            adaptive_flushing: true,
            io_capacity: 200.0,
            io_capacity_max: 2000.0,
            adaptive_flushing_lwm: 10.0,
            max_dirty_pages_pct: 90.0,
            max_dirty_pages_pct_lwm: 10.0,
            flushing_avg_loops: 30.0,
        }
    }
}

/// Share of the log's capacity that the age may take: a tenth is kept for safety, and of the rest
/// another tenth.
const AGE_MAX: f64 = 0.9 * 0.9;
/// Shares of that from which on pages are written urgently, and synchronously.
const ASYNC: f64 = 7.0 / 8.0;
const SYNC: f64 = 15.0 / 16.0;
/// The LSNs to be freed are looked at this many seconds ahead, and their pages divided by it.
const LOOK_AHEAD: f64 = 3.0;

/// The policy.
#[derive(Debug, Clone)]
pub struct InnodbAdaptive {
    settings: InnodbSettings,
    second: Elapsed,
    average: Elapsed,
    rate: f64,
    /// Averages, pages and bytes per second.
    page_rate: f64,
    log_rate: f64,
}

/// What adds up until a period is over.
#[derive(Debug, Clone, Default)]
struct Elapsed {
    seconds: f64,
    log_bytes: u64,
    log_end: Option<u64>,
    pages: f64,
}

impl Elapsed {
    fn add(&mut self, load: &Load, pages: f64) {
        let grown = self.log_end.map_or(0, |before| load.log_end - before);
        self.log_end = Some(load.log_end);
        self.log_bytes += grown;
        self.seconds += load.seconds;
        self.pages += pages;
    }

    fn reset(&mut self) {
        *self = Elapsed { log_end: self.log_end, ..Elapsed::default() };
    }
}

impl InnodbAdaptive {
    /// The policy with these settings.
    pub fn new(settings: InnodbSettings) -> Self {
        InnodbAdaptive {
            settings,
            second: Elapsed::default(),
            average: Elapsed::default(),
            rate: 0.0,
            page_rate: 0.0,
            log_rate: 0.0,
        }
    }

    /// Percent of `io_capacity` that the age asks for. `log_bytes` is the log's whole capacity.
    pub fn percent_for_age(&self, age: f64, log_bytes: f64) -> f64 {
        let s = &self.settings;
        if age < s.adaptive_flushing_lwm / 100.0 * log_bytes * 0.9 {
            return 0.0;
        }
        let factor = age * 100.0 / (log_bytes * AGE_MAX * ASYNC);
        s.io_capacity_max / s.io_capacity * (factor * factor.sqrt()) / 7.5
    }

    /// Percent of `io_capacity` that the dirty pages ask for.
    pub fn percent_for_dirty(&self, dirty_percent: f64) -> f64 {
        let s = &self.settings;
        if s.max_dirty_pages_pct_lwm == 0.0 {
            return if dirty_percent >= s.max_dirty_pages_pct { 100.0 } else { 0.0 };
        }
        if dirty_percent < s.max_dirty_pages_pct_lwm {
            return 0.0;
        }
        dirty_percent * 100.0 / (s.max_dirty_pages_pct + 1.0)
    }

    /// Pages that would have to go for the oldest LSN to move at the log's rate for a second.
    fn pages_for_log(&self, load: &Load) -> f64 {
        let Some(&(oldest, _)) = load.deadlines.first() else { return 0.0 };
        let target = oldest as f64 + self.log_rate * LOOK_AHEAD;
        let at = load.deadlines.partition_point(|&(x, _)| x as f64 <= target);
        let pages = at.checked_sub(1).map_or(0, |last| load.deadlines[last].1) as f64;
        (pages / LOOK_AHEAD).min(2.0 * self.settings.io_capacity_max)
    }

    /// Once a second.
    fn recommend(&mut self, load: &Load, log_bytes: f64) {
        if self.average.seconds >= self.settings.flushing_avg_loops {
            let seconds = self.average.seconds;
            self.page_rate = (self.page_rate + self.average.pages / seconds) / 2.0;
            self.log_rate = (self.log_rate + self.average.log_bytes as f64 / seconds) / 2.0;
            self.average.reset();
        }
        let dirty = 100.0 * load.dirty_pages as f64 / load.frames.max(1) as f64;
        if !self.settings.adaptive_flushing {
            let too_many = dirty > self.settings.max_dirty_pages_pct;
            self.rate = if too_many { self.settings.io_capacity } else { 0.0 };
            return;
        }
        let age = self.percent_for_age(load.age as f64, log_bytes);
        let percent = age.max(self.percent_for_dirty(dirty));
        let share = percent / 100.0 * self.settings.io_capacity;
        let mean = (share + self.page_rate + self.pages_for_log(load)) / 3.0;
        self.rate = mean.min(self.settings.io_capacity_max);
    }
}

impl Policy for InnodbAdaptive {
    fn name(&self) -> String {
        let s = &self.settings;
        match s.adaptive_flushing {
            true => format!("innodb:{}/{}", s.io_capacity, s.io_capacity_max),
            false => format!("innodb-plain:{}", s.io_capacity),
        }
    }

    fn plan(&mut self, load: &Load) -> Plan {
        let log_bytes = load.age_max as f64;
        let pages = load.dirty_pages as f64;
        let written = self.rate * load.seconds;
        self.second.add(load, written);
        self.average.add(load, written);
        if self.second.seconds >= 1.0 {
            self.second.reset();
            self.recommend(load, log_bytes);
        }
        let age_target = log_bytes * AGE_MAX * SYNC;
        let urgent = load.age as f64 > age_target;
        Plan {
            deadline_rate: if urgent { pages / load.seconds } else { self.rate },
            log_rate_max: if urgent { 0.0 } else { f64::INFINITY },
            age_target: age_target as u64,
            ..Plan::IDLE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(io_capacity: f64, io_capacity_max: f64) -> InnodbAdaptive {
        let settings = InnodbSettings { io_capacity, io_capacity_max, ..InnodbSettings::default() };
        InnodbAdaptive::new(settings)
    }

    fn is_near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 1e-3 * expected.abs().max(1e-6), "{value}, {expected}");
    }

    #[test]
    fn percent_for_age_by_hand() {
        let policy = policy(1000.0, 4000.0);
        // A log of 10,000: the asynchronous limit is at 10,000 * 0.81 * 7/8 = 7087.5. An age of
        // 1772 is 25 % of it: 4 * 25 * 5 / 7.5 = 66.67 percent.
        is_near(policy.percent_for_age(1771.875, 10_000.0), 66.667);
        // All of it: 4 * 100 * 10 / 7.5 = 533.3 percent.
        is_near(policy.percent_for_age(7087.5, 10_000.0), 533.333);
        // The low-water mark is at a tenth of 9,000.
        assert_eq!(policy.percent_for_age(899.0, 10_000.0), 0.0);
        assert!(policy.percent_for_age(901.0, 10_000.0) > 0.0);
    }

    #[test]
    fn percent_for_dirty_pages_by_hand() {
        let mut policy = policy(1000.0, 4000.0);
        assert_eq!(policy.percent_for_dirty(9.9), 0.0);
        is_near(policy.percent_for_dirty(45.5), 50.0);
        is_near(policy.percent_for_dirty(91.0), 100.0);
        policy.settings.max_dirty_pages_pct_lwm = 0.0;
        assert_eq!(policy.percent_for_dirty(89.0), 0.0);
        assert_eq!(policy.percent_for_dirty(90.0), 100.0);
    }

    #[test]
    fn a_second_by_hand() {
        let mut policy = policy(1000.0, 4000.0);
        policy.page_rate = 700.0;
        policy.log_rate = 100.0;
        // Within 3 * 100 bytes of the oldest at 2,000 there are 450 pages: 150 per second. The age
        // of 1772 asks for 666.7, the 20 % of dirty pages for 219.8: less.
        let deadlines = [(2000, 300), (2300, 450), (2301, 2000)];
        let load = Load {
            seconds: 1.0,
            log_end: 3772,
            age: 1772,
            age_max: 10_000,
            deadlines: &deadlines,
            dirty_pages: 2000,
            frames: 10_000,
            ..Load::IDLE
        };
        let plan = policy.plan(&load);
        let share = 4.0 * (1772.0_f64 / 70.875).powf(1.5) / 7.5 * 10.0;
        is_near(plan.deadline_rate, (share + 700.0 + 150.0) / 3.0);
        assert_eq!(plan.log_rate_max, f64::INFINITY);
    }

    #[test]
    fn it_is_cut_at_io_capacity_max_until_writers_have_to_stop() {
        let mut policy = policy(1000.0, 1200.0);
        let deadlines = [(0, 9000)];
        let load = Load {
            seconds: 1.0,
            log_end: 7000,
            age: 7000,
            age_max: 10_000,
            deadlines: &deadlines,
            dirty_pages: 9000,
            frames: 10_000,
            ..Load::IDLE
        };
        policy.page_rate = 5000.0;
        assert_eq!(policy.plan(&load).deadline_rate, 1200.0);
        // 10,000 * 0.81 * 15/16 = 7593.75.
        let plan = policy.plan(&Load { log_end: 7600, age: 7600, ..load });
        assert_eq!((plan.deadline_rate, plan.log_rate_max), (9000.0, 0.0));
    }

    #[test]
    fn without_adaptive_flushing_only_too_many_dirty_pages_count() {
        let mut policy = policy(100.0, 100.0);
        policy.settings.adaptive_flushing = false;
        policy.settings.max_dirty_pages_pct = 20.0;
        let load = Load {
            seconds: 1.0,
            age: 5000,
            age_max: 10_000,
            dirty_pages: 20,
            frames: 100,
            ..Load::IDLE
        };
        assert_eq!(policy.plan(&load).deadline_rate, 0.0);
        assert_eq!(policy.plan(&Load { dirty_pages: 21, ..load }).deadline_rate, 100.0);
    }

    #[test]
    fn rates_are_averaged_over_30_seconds() {
        let mut policy = policy(1000.0, 4000.0);
        let mut load = Load { seconds: 1.0, age_max: 1 << 40, frames: 100, ..Load::IDLE };
        for second in 0..31 {
            load.log_end = second * 600;
            policy.plan(&load);
        }
        // The first call can't know how much the log had grown: 29 of 30 seconds are seen.
        is_near(policy.log_rate, 600.0 / 2.0 * 29.0 / 30.0);
    }
}

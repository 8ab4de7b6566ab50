//! How large a redo log should be.
//!
//! The larger it is, the more changes of a page end up in one write of it; and the more there is to
//! recover. So the workload is run at capacities in doublings, and the last one is marked that
//! saves at least [`ENOUGH`] of the bytes written, costs no throughput, and finds a device that
//! isn't [`IDLE`]. Data keep their size meanwhile.

use crate::pages::Pages;
use crate::run::{Run, Setup, simulate};
use crate::workload::Demand;
use crate::{PAGE_BYTES, PolicyChoice, Summary};

/// A doubling that saves less than this share of the bytes written isn't worth its space.
pub const ENOUGH: f64 = 0.1;

/// Nor is one of a log with which pages take less than this share of what the device can do.
pub const IDLE: f64 = 0.05;
/// A log that is filled sooner is too small: the model's ticks are too coarse for it.
pub const LAP_SECONDS_MIN: f64 = 2.0;

/// Laps that are simulated, the last of them measured: so many times the redo from the oldest
/// change that isn't written to the newest.
const LAPS: f64 = 4.0;
/// A tick is at most this part of a lap, and of the time in which all frames are used anew.
const TICKS: f64 = 400.0;
/// Where the device can't follow, clients want this many times what it does.
const OVERLOAD: f64 = 1.5;
/// So often it is simulated at most until the log has lapped.
const TRIES: usize = 16;
/// How long a tick is to the governor.
const TICK_SECONDS: f64 = 0.25;

/// One capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Advice {
    /// The capacity.
    pub redo_bytes: u64,
    /// Operations per second.
    pub rate: f64,
    /// Pages written per operation.
    pub pages_per_operation: f64,
    /// Bytes written per operation, redo included, pages uncompressed.
    pub bytes_per_operation: f64,
    /// Share of what the device can do that reads and writes of pages take.
    pub device_share: f64,
    /// Share of the bytes written that the doubling to this capacity saved.
    pub saved: Option<f64>,
    /// Redo to be read after a crash.
    pub recovery_bytes: u64,
    /// Pages to be brought up to date after a crash.
    pub recovery_pages: u64,
    /// Seconds that reading those pages takes the device.
    pub recovery_seconds: f64,
    /// Whether this is the one to take.
    pub advised: bool,
}

/// Simulated seconds that a capacity may take at most, with ticks in proportion to them.
const SECONDS_MAX: f64 = 100_000.0;

/// Why there is no advice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unadvised {
    /// Memory is used anew so often in a lap of the log that it would take too long.
    TooFar,
    /// Even the largest log is filled in less than [`LAP_SECONDS_MIN`].
    TooFast,
}

/// Capacities from a 128th of the data to all of it, without those that are filled too soon.
///
/// # Errors
/// When it would take too long, and when all of them are filled too soon.
pub fn advise(setup: &Setup) -> Result<Vec<Advice>, Unadvised> {
    let data = setup.workload.pages() * PAGE_BYTES as f64;
    let smallest = ((data / 128.0) as u64).next_power_of_two().max(64 << 20);
    let capacities = (0..8).map(|doubling| smallest << doubling);
    let rate = setup.workload.rate;
    let far = |redo_bytes| Scale::of(setup, redo_bytes, rate).seconds > SECONDS_MAX;
    if capacities.clone().any(far) {
        return Err(Unadvised::TooFar);
    }
    let mut rows: Vec<Advice> = Vec::new();
    for redo_bytes in capacities {
        let row = one(setup, redo_bytes, rows.last())?;
        if redo_bytes as f64 >= LAP_SECONDS_MIN * row.rate * setup.workload.redo_bytes {
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return Err(Unadvised::TooFast);
    }
    let worth = |pair: &[Advice]| {
        pair[1].saved.is_some_and(|saved| saved >= ENOUGH)
            && pair[1].rate >= 0.98 * pair[0].rate
            && pair[0].device_share >= IDLE
    };
    // On a device that can't follow, the first doublings may save less than later ones.
    let last = rows.windows(2).rposition(worth);
    rows[last.map_or(0, |pair| pair + 1)].advised = true;
    Ok(rows)
}

/// How a capacity is simulated.
struct Scale {
    /// How many times as many operations per second, on a device as much faster.
    scale: f64,
    /// How long it takes at the rate.
    seconds: f64,
}

impl Scale {
    /// Laps may take days. Nothing in a steady run depends on the unit of time: with `scale` times
    /// as many operations on a device as much faster, it is over sooner.
    fn of(setup: &Setup, redo_bytes: u64, rate: f64) -> Scale {
        let frames = frames(setup);
        let lap = lap_operations(setup, redo_bytes) / rate;
        let cost = Pages::new(&setup.workload, frames, redo_bytes).cost();
        let frames_per_second = cost.frames * rate;
        let tick = lap.min(frames as f64 / frames_per_second.max(1e-9)) / TICKS;
        let scale = tick / TICK_SECONDS;
        Scale { scale, seconds: (LAPS * lap / scale).ceil().max(60.0) }
    }
}

fn frames(setup: &Setup) -> u64 {
    (setup.memory_bytes / PAGE_BYTES).max(100)
}

/// Operations after which the log is full, or else the dirty limit reached.
fn lap_operations(setup: &Setup, redo_bytes: u64) -> f64 {
    let frames = frames(setup);
    let limit = (frames as f64 * setup.dirty_limit_percent / 100.0).max(1.0);
    let dirty_after = |operations: f64| {
        let mut pages = Pages::new(&setup.workload, frames, redo_bytes);
        pages.change(operations, redo_bytes);
        pages.dirty()
    };
    let mut operations = redo_bytes as f64 / setup.workload.redo_bytes;
    while dirty_after(operations) > limit && operations > 1e-9 {
        operations /= 2.0;
    }
    operations
}

fn one(setup: &Setup, redo_bytes: u64, before: Option<&Advice>) -> Result<Advice, Unadvised> {
    let workload = &setup.workload;
    let (run, scale) = lapped(setup, redo_bytes)?;
    let s = last_lap(&run, frames(setup) as f64);
    let recovery_pages = s.dirty_mean * frames(setup) as f64;
    let bytes_per_operation = s.pages_per_operation * PAGE_BYTES as f64 + workload.redo_bytes;
    Ok(Advice {
        redo_bytes,
        rate: s.rate_mean / scale,
        pages_per_operation: s.pages_per_operation,
        bytes_per_operation,
        device_share: (s.reads + s.pages_mean) / run.setup.device.pages_per_second,
        saved: before.map(|b| 1.0 - bytes_per_operation / b.bytes_per_operation),
        recovery_bytes: (s.age_mean * redo_bytes as f64 * PolicyChoice::Governor.usable_log())
            as u64,
        recovery_pages: recovery_pages as u64,
        recovery_seconds: recovery_pages / setup.device.pages_per_second,
        advised: false,
    })
}

/// A run in which the log has lapped [`LAPS`] times, and how many times as fast it was. Where the
/// device can't follow, clients are made to want little more than it does: with ticks for what they
/// wanted at first, a lap would take for ever.
fn lapped(setup: &Setup, redo_bytes: u64) -> Result<(Run, f64), Unadvised> {
    let (mut rate, mut longer) = (setup.workload.rate, 2.0);
    for _ in 0..TRIES {
        let Scale { scale, seconds } = Scale::of(setup, redo_bytes, rate);
        let seconds = (seconds * longer).min(SECONDS_MAX) as u32;
        let mut scaled = Setup {
            redo_bytes,
            seconds,
            laps_max: LAPS,
            warm_up_seconds: 30,
            tick_seconds: TICK_SECONDS,
            slowdown: None,
            ..setup.clone()
        };
        scaled.workload.demand = Demand::Steady;
        scaled.workload.keeps_size = true;
        scaled.workload.rate = rate * scale;
        scaled.device.pages_per_second *= scale;
        let run = simulate(&scaled, &PolicyChoice::Governor);
        if run.seconds.len() < seconds as usize {
            return Ok((run, scale));
        }
        let wanted = OVERLOAD * run.summary.rate_mean / scale;
        if wanted < 0.8 * rate {
            rate = wanted;
        } else if f64::from(seconds) < SECONDS_MAX {
            longer *= 2.0;
        } else {
            break;
        }
    }
    Err(Unadvised::TooFar)
}

/// The figures of a run's last lap.
fn last_lap(run: &Run, frames: f64) -> Summary {
    let all: f64 = run.seconds.iter().map(|second| second.log_bytes).sum();
    let mut left = all * (LAPS - 1.0) / LAPS;
    let before = run.seconds.iter().take_while(|second| {
        left -= second.log_bytes;
        left > 0.0
    });
    let begin = before.count();
    Summary::of(&run.seconds[begin..], frames)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{Workload, WorkloadKind};

    fn advice(kind: WorkloadKind, memory_gb: u64) -> Vec<Advice> {
        let workload = Workload::new(kind, 16 << 30, 20_000.0, 300.0, 3);
        let device = "sata-ssd".parse().expect("it is a device");
        advise(&Setup::new(workload, device, memory_gb << 30, 1 << 30)).expect("it isn't far")
    }

    #[test]
    fn what_would_take_for_ever_is_refused() {
        let workload = Workload::new(WorkloadKind::Cached, 1 << 40, 1e7, 300.0, 3);
        let device = "sata-ssd".parse().expect("it is a device");
        assert_eq!(
            advise(&Setup::new(workload, device, 16 << 20, 1 << 30)),
            Err(Unadvised::TooFar)
        );
    }

    #[test]
    fn a_log_that_is_filled_at_once_is_refused() {
        let workload = Workload::new(WorkloadKind::Cached, 16 << 30, 50_000.0, 1e12, 3);
        let device = "sata-ssd".parse().expect("it is a device");
        let setup = Setup::new(workload, device, 32 << 30, 1 << 30);
        assert_eq!(advise(&setup), Err(Unadvised::TooFast));
    }

    /// The advice on `redo_bytes`, and what a run of it at its own pace gives, in operations per
    /// second.
    fn advised_and_run(setup: &Setup, redo_bytes: u64) -> (f64, f64) {
        let rows = advise(setup).expect("it isn't far");
        let row = rows.iter().find(|row| row.redo_bytes == redo_bytes).expect("it is one of them");
        let setup = Setup { redo_bytes, ..setup.clone() };
        (row.rate, simulate(&setup, &PolicyChoice::Governor).summary.rate_mean)
    }

    #[test]
    fn where_the_dirty_limit_holds_advice_is_as_a_run() {
        let workload = Workload::new(WorkloadKind::Cached, 16 << 30, 50_000.0, 300.0, 3);
        let device = "sata-ssd".parse().expect("it is a device");
        let mut setup = Setup::new(workload, device, 32 << 30, 1 << 30);
        setup.seconds = 300;
        setup.warm_up_seconds = 100;
        for dirty_limit_percent in [1.0, 10.0] {
            setup.dirty_limit_percent = dirty_limit_percent;
            let (advised, run) = advised_and_run(&setup, 16 << 30);
            assert!((advised / run - 1.0).abs() < 0.1, "{advised} and {run}");
        }
    }

    #[test]
    fn where_the_device_cannot_follow_advice_is_of_a_log_that_has_lapped() {
        let workload = Workload::new(WorkloadKind::Cached, 16 << 30, 1e6, 300.0, 3);
        let device = "two-disks".parse().expect("it is a device");
        let mut setup = Setup::new(workload, device, 32 << 30, 1 << 30);
        setup.seconds = 12_000;
        setup.warm_up_seconds = 9000;
        setup.tick_seconds = 0.1;
        let (advised, run) = advised_and_run(&setup, 1 << 30);
        assert!((advised / run - 1.0).abs() < 0.2, "{advised} and {run}");
    }

    #[test]
    fn a_device_that_is_nearly_idle_needs_no_larger_log() {
        let rows = advice(WorkloadKind::Insert, 64);
        let at = rows.iter().position(|row| row.advised).expect("one is advised");
        let (before, row) = (&rows[at - 1], &rows[at]);
        assert!(before.device_share >= IDLE && row.device_share < IDLE, "{row:?}");
        let next = &rows[at + 1];
        assert!(next.saved >= Some(ENOUGH), "{next:?}: it would save more");
    }

    #[test]
    fn cached_updates_follow_the_formula() {
        // A page is written once in a lap and the time until it is changed again.
        for row in advice(WorkloadKind::Cached, 64) {
            let lap = 0.95 * 0.875 * row.redo_bytes as f64;
            let pages = f64::from(1 << 20);
            let expected = 300.0 * pages / (lap + 300.0 * pages);
            let off = row.pages_per_operation / expected - 1.0;
            assert!(off.abs() < 0.05, "{off}: {row:?}");
            assert!((row.rate / 20_000.0 - 1.0).abs() < 0.01, "{row:?}");
            // A sata-ssd does 30,000 pages a second, and nothing is read.
            let share = 20_000.0 * row.pages_per_operation / 30_000.0;
            assert!((row.device_share / share - 1.0).abs() < 0.01, "{share}: {row:?}");
        }
    }

    #[test]
    fn a_log_larger_than_the_data_costs_no_throughput() {
        let rows = advice(WorkloadKind::Insert, 20);
        let (last, data) = (rows.last().expect("there are rows"), (16u64 << 30) / PAGE_BYTES);
        assert!(last.redo_bytes >= 16 << 30, "{last:?}");
        assert!((last.rate / 20_000.0 - 1.0).abs() < 0.01, "{last:?}");
        assert!(last.recovery_pages <= data, "{last:?}: no more pages than there are");
    }

    #[test]
    fn a_slow_device_gets_the_log_that_lets_it_follow() {
        let workload = Workload::new(WorkloadKind::Cached, 16 << 30, 200_000.0, 300.0, 3);
        let device = "slow-ssd".parse().expect("it is a device");
        let rows = advise(&Setup::new(workload, device, 32 << 30, 1 << 30)).expect("it isn't far");
        let slow = rows[1].rate < 50_000.0 && rows[1].saved < rows[3].saved;
        assert!(slow, "{rows:?}: a doubling of a small log does less");
        let advised = rows.iter().find(|row| row.advised).expect("one is advised");
        assert!(advised.rate > 195_000.0, "{advised:?}");
    }

    #[test]
    fn returns_diminish_sooner_when_memory_is_small() {
        let advised = |rows: Vec<Advice>| {
            assert_eq!(rows.iter().filter(|row| row.advised).count(), 1, "{rows:?}");
            rows.into_iter().find(|row| row.advised).map(|row| row.redo_bytes)
        };
        let (large, small) = (advice(WorkloadKind::Skewed, 32), advice(WorkloadKind::Skewed, 2));
        assert!(large.windows(2).all(|w| w[1].bytes_per_operation < w[0].bytes_per_operation));
        assert!(large.windows(2).all(|w| w[1].recovery_bytes > w[0].recovery_bytes));
        assert!(advised(small) < advised(large));
    }
}

//! How large a redo log should be.
//!
//! The larger it is, the more changes of a page end up in one write of it; and the more there is to
//! recover. So the workload is run at capacities in doublings, and the last one is marked that saves at
//! least [`ENOUGH`] of the bytes written and costs no throughput. Data keep their size meanwhile.

use crate::pages::Pages;
use crate::run::{Setup, simulate};
use crate::workload::Demand;
use crate::{PAGE_BYTES, PolicyChoice};

/// A doubling that saves less than this share of the bytes written isn't worth its space.
pub const ENOUGH: f64 = 0.1;

/// Laps of the log that are simulated, the last of them measured.
const LAPS: f64 = 4.0;
/// A tick is at most this part of a lap, and of the time in which all frames are used anew.
const TICKS: f64 = 400.0;
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

/// The setup is such that a capacity would take too long to simulate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFar;

/// Capacities from a 128th of the data to all of it.
///
/// # Errors
/// When memory is used anew so often in a lap of the log that it would take too long.
pub fn advise(setup: &Setup) -> Result<Vec<Advice>, TooFar> {
    let data = setup.workload.pages() * PAGE_BYTES as f64;
    let smallest = ((data / 128.0) as u64).next_power_of_two().max(64 << 20);
    let capacities = (0..8).map(|doubling| smallest << doubling);
    if capacities.clone().any(|redo_bytes| Scale::of(setup, redo_bytes).seconds > SECONDS_MAX) {
        return Err(TooFar);
    }
    let mut rows: Vec<Advice> = Vec::new();
    for redo_bytes in capacities {
        let row = one(setup, redo_bytes, rows.last());
        rows.push(row);
    }
    let worth = |pair: &[Advice]| {
        pair[1].saved.is_some_and(|saved| saved >= ENOUGH) && pair[1].rate >= 0.98 * pair[0].rate
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
    /// For how long.
    seconds: f64,
}

impl Scale {
    /// Laps may take days. Nothing in a steady run depends on the unit of time: with `scale` times
    /// as many operations on a device as much faster, it is over sooner.
    fn of(setup: &Setup, redo_bytes: u64) -> Scale {
        let workload = &setup.workload;
        let frames = setup.memory_bytes / PAGE_BYTES;
        let lap = redo_bytes as f64 / (workload.rate * workload.redo_bytes);
        let cost = Pages::new(workload, frames, redo_bytes).cost();
        let frames_per_second = cost.frames * workload.rate;
        let tick = lap.min(frames as f64 / frames_per_second.max(1e-9)) / TICKS;
        let scale = tick / TICK_SECONDS;
        Scale { scale, seconds: (LAPS * lap / scale).ceil().max(60.0) }
    }
}

fn one(setup: &Setup, redo_bytes: u64, before: Option<&Advice>) -> Advice {
    let workload = &setup.workload;
    let frames = setup.memory_bytes / PAGE_BYTES;
    let Scale { scale, seconds } = Scale::of(setup, redo_bytes);
    let mut scaled = Setup {
        redo_bytes,
        seconds: seconds as u32,
        warm_up_seconds: (seconds * (LAPS - 1.0) / LAPS) as u32,
        tick_seconds: TICK_SECONDS,
        slowdown: None,
        ..setup.clone()
    };
    scaled.workload.demand = Demand::Steady;
    scaled.workload.keeps_size = true;
    scaled.workload.rate *= scale;
    scaled.device.pages_per_second *= scale;
    let s = simulate(&scaled, &PolicyChoice::Governor).summary;
    let recovery_pages = s.dirty_mean * frames as f64;
    let bytes_per_operation = s.pages_per_operation * PAGE_BYTES as f64 + workload.redo_bytes;
    Advice {
        redo_bytes,
        rate: s.rate_mean / scale,
        pages_per_operation: s.pages_per_operation,
        bytes_per_operation,
        device_share: (s.reads + s.pages_mean) / scaled.device.pages_per_second,
        saved: before.map(|b| 1.0 - bytes_per_operation / b.bytes_per_operation),
        recovery_bytes: (s.age_mean * redo_bytes as f64 * PolicyChoice::Governor.usable_log())
            as u64,
        recovery_pages: recovery_pages as u64,
        recovery_seconds: recovery_pages / setup.device.pages_per_second,
        advised: false,
    }
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
        assert_eq!(advise(&Setup::new(workload, device, 16 << 20, 1 << 30)), Err(TooFar));
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
        let slow = rows[1].rate < 50_000.0 && rows[1].saved < Some(ENOUGH);
        assert!(slow, "{rows:?}: a doubling of a small log does little");
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

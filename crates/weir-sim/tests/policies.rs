//! Policies side by side: what the governor is there for, in numbers.

use weir_sim::{DeviceModel, PolicyChoice, Setup, Workload, WorkloadKind, simulate};

const GB: u64 = 1 << 30;

/// 60 MB/s of redo over 400,000 pages, a log of 20 GB: each change 2500 bytes.
fn twenty_gb() -> Setup {
    let workload = Workload::new(WorkloadKind::Cached, 400_000 << 14, 24_000.0, 2500.0, 0);
    let setup = Setup::new(workload, DeviceModel::even(30_000.0), 8 * GB, 20_000_000_000);
    Setup { seconds: 1000, warm_up_seconds: 240, tick_seconds: 0.05, ..setup }
}

fn policy(name: &str) -> PolicyChoice {
    name.parse().unwrap_or_else(|error: String| panic!("{error}"))
}

fn is_about(value: f64, expected: f64, tolerance: f64) {
    let off = (value / expected - 1.0).abs();
    assert!(off < tolerance, "{value} is not within {tolerance} of {expected}");
}

/// An earlier simulation of the same case, with a target of 0.9 instead of 0.95, gave 1431 pages/s
/// and a peak of 1438; InnoDB 2200 to 4100 depending on io_capacity; at the deadline 1578 with
/// bursts of 23,616.
#[test]
fn a_log_of_20_gb_is_written_evenly_and_late() {
    let setup = twenty_gb();
    let run = |name| simulate(&setup, &policy(name)).summary;
    let governor = run("governor");
    // 400,000 pages in a lap of 277 s and the 17 s until a page is changed again.
    is_about(governor.pages_mean, 400_000.0 / (277.0 + 16.7), 0.02);
    is_about(governor.pages_mean, 1431.0, 0.06);
    assert!(governor.pages_peak < 1.01 * governor.pages_mean, "{governor:?}");
    assert!(governor.age_max < 0.951 && governor.age_mean > 0.93, "{governor:?}");
    let lazy = run("at-deadline");
    is_about(lazy.pages_peak, 23_616.0, 0.03);
    is_about(lazy.pages_mean, 1578.0, 0.06);
    let innodb = ["innodb:1000/2000", "innodb:2000/4000", "innodb:5000/10000"].map(run);
    assert!(innodb[0].pages_mean > 1.3 * governor.pages_mean, "{innodb:?}");
    assert!(innodb.windows(2).all(|w| w[1].pages_mean > w[0].pages_mean), "{innodb:?}");
    assert!(innodb.iter().all(|s| (1800.0..4300.0).contains(&s.pages_mean)), "{innodb:?}");
}

#[test]
fn it_writes_hardly_more_than_the_laziest() {
    let setup = Setup { seconds: 4000, warm_up_seconds: 1000, ..twenty_gb() };
    let governor = simulate(&setup, &PolicyChoice::Governor).summary;
    let lazy = simulate(&setup, &PolicyChoice::AtDeadline).summary;
    assert!(governor.pages_per_mb < 1.1 * lazy.pages_per_mb, "{governor:?} {lazy:?}");
    assert!(governor.pages_peak < 1.3 * governor.pages_mean, "{governor:?}");
}

/// 2 million rows, all cached, 96 MB of redo, 3000 IOPS: InnoDB stands still for seconds.
#[test]
fn there_are_no_waves_on_a_slow_device_with_a_small_log() {
    let workload = Workload::new(WorkloadKind::Cached, 500 << 20, 60_000.0, 300.0, 0);
    let setup = Setup::new(workload, DeviceModel::even(3000.0), 4 * GB, 96 << 20);
    let setup = Setup { seconds: 180, warm_up_seconds: 60, ..setup };
    let governor = simulate(&setup, &PolicyChoice::Governor).summary;
    assert!(governor.rate_99 > 0.95 * governor.rate_mean, "{governor:?}");
    assert_eq!(governor.stalled, 0.0);
    is_about(governor.pages_mean, 3000.0, 0.02);
    let lazy = simulate(&setup, &PolicyChoice::AtDeadline).summary;
    assert!(lazy.rate_99 < 0.7 * lazy.rate_mean, "{lazy:?}");
    assert!(governor.rate_mean > 0.95 * lazy.rate_mean, "{governor:?} {lazy:?}");
    let innodb = simulate(&setup, &policy("innodb:3000/3000")).summary;
    assert!(innodb.stalled > 0.1 && innodb.rate_mean < governor.rate_mean, "{innodb:?}");
}

#[test]
fn a_device_that_slows_to_a_tenth_and_returns_is_followed() {
    let workload = Workload::new(WorkloadKind::Cached, 400_000 << 14, 24_000.0, 2500.0, 0);
    let device = DeviceModel { pages_per_second: 4000.0, ..policy_device("sata-ssd") };
    let setup = Setup {
        seconds: 900,
        warm_up_seconds: 300,
        slowdown: Some((500, 600, 0.1)),
        ..Setup::new(workload, device, 8 * GB, 4 * GB)
    };
    let run = simulate(&setup, &PolicyChoice::Governor);
    let mean = |from: usize, to: usize| {
        run.seconds[from..to].iter().map(|s| s.operations).sum::<f64>() / (to - from) as f64
    };
    let before = mean(400, 500);
    is_about(mean(505, 600), before / 10.0, 0.25);
    is_about(mean(605, 700), before, 0.25);
    assert!(run.seconds[300..].iter().all(|s| s.operations > 0.03 * before), "nobody stands still");
    assert_eq!(run.summary.stalled, 0.0);
}

fn policy_device(name: &str) -> DeviceModel {
    name.parse().unwrap_or_else(|error: String| panic!("{error}"))
}

#[test]
fn dirty_pages_keep_to_their_limit_where_innodb_did_not() {
    let workload = Workload::new(WorkloadKind::Insert, 16 * GB, 5000.0, 600.0, 3);
    let setup = Setup {
        dirty_limit_percent: 20.0,
        seconds: 7200,
        warm_up_seconds: 5400,
        tick_seconds: 0.05,
        ..Setup::new(workload, policy_device("two-disks"), GB, GB)
    };
    let governor = simulate(&setup, &PolicyChoice::Governor).summary;
    assert!(governor.dirty_max <= 0.2 && governor.dirty_mean > 0.18, "{governor:?}");
    let innodb = simulate(&setup, &policy("innodb-plain:100")).summary;
    assert!(innodb.dirty_mean > 0.5, "{innodb:?}");
    assert!(governor.rate_mean > 0.85 * innodb.rate_mean, "{governor:?} {innodb:?}");
}

#[test]
fn each_doubling_of_the_log_saves_writes_and_costs_no_throughput() {
    let runs: Vec<_> = [1, 2, 4, 8, 16]
        .map(|redo| {
            let workload = Workload::new(WorkloadKind::Insert, 20 * GB, 50_000.0, 300.0, 3);
            let setup = Setup::new(workload, policy_device("slow-ssd"), 64 * GB, redo * GB);
            let setup = Setup { seconds: 2400, warm_up_seconds: 1500, tick_seconds: 0.05, ..setup };
            simulate(&setup, &PolicyChoice::Governor).summary
        })
        .into();
    for pair in runs.windows(2) {
        assert!(pair[1].pages_per_operation < 0.9 * pair[0].pages_per_operation, "{pair:?}");
        assert!(pair[1].rate_mean > 0.99 * pair[0].rate_mean, "{pair:?}");
    }
}

#[test]
fn a_server_with_terabytes_and_a_hundred_devices_is_as_even() {
    let workload = Workload::new(WorkloadKind::Skewed, 8192 * GB, 10e6, 300.0, 0);
    let setup = Setup {
        seconds: 1200,
        warm_up_seconds: 600,
        tick_seconds: 0.05,
        ..Setup::new(workload, policy_device("nvmex100"), 10_240 * GB, 1024 * GB)
    };
    let governor = simulate(&setup, &PolicyChoice::Governor).summary;
    assert!(governor.rate_99 > 0.99 * governor.rate_mean, "{governor:?}");
    assert!(governor.pages_peak < 1.1 * governor.pages_mean, "{governor:?}");
}

//! Single figures of a plan, worked out by hand.

use weir_governor::{Device, Governor, Load, Plan, Policy};

const TICK: f64 = 0.02;
const MB: f64 = 1e6;
const BEGIN: u64 = 1 << 40;

/// The plan after `seconds` of `load`, whose log grows by `log_rate` from where it is; the
/// deadlines are as far behind its end all the while.
fn plan_after(load: &Load, log_rate: f64, seconds: f64, behind: &[(u64, u64)]) -> Plan {
    let (mut governor, mut plan) = (Governor::new(), Plan::IDLE);
    for tick in 0..(seconds / TICK) as u64 {
        let log_end = BEGIN + (tick as f64 * TICK * log_rate) as u64;
        let deadlines: Vec<_> =
            behind.iter().map(|&(bytes, pages)| (log_end - bytes, pages)).collect();
        plan = governor.plan(&Load { seconds: TICK, log_end, deadlines: &deadlines, ..*load });
    }
    plan
}

/// Headroom as a share of the largest age, of a log that grows by 20 MB/s.
fn headroom(device: Device, age_max: u64, pages: u64) -> f64 {
    let load = Load { age_max, dirty_pages: pages, device, ..Load::IDLE };
    let plan = plan_after(&load, 20.0 * MB, 120.0, &[(age_max / 2, pages)]);
    1.0 - plan.age_target as f64 / age_max as f64
}

#[test]
fn headroom_is_for_a_device_that_is_slower_than_usual_and_has_no_time_to_spare() {
    let device = Device { pages_per_second: Some(1000.0), variation: 0.2, ..Device::UNKNOWN };
    // Slower by half for 3.2 s, and 0.05 s to react: 1.65 s of 20 MB/s.
    let busy = headroom(device, 200_000_000, 1_000_000);
    assert!((busy / 0.165 - 1.0).abs() < 0.01, "{busy}");
    let idle = headroom(device, 200_000_000, 100);
    assert!((idle / 0.05 - 1.0).abs() < 0.01, "{idle}");
}

#[test]
fn headroom_is_for_writes_that_take_long() {
    let device = Device { latency: 0.5, latency_deviation: 0.25, ..Device::UNKNOWN };
    // Twice the mean and four deviations, and 0.05 s to react: 3.05 s of 20 MB/s.
    let share = headroom(device, 400_000_000, 100);
    assert!((share / 0.1525 - 1.0).abs() < 0.01, "{share}");
}

#[test]
fn a_device_that_holds_writers_back_is_asked_for_twice_what_is_known() {
    let device = Device { pages_per_second: Some(500.0), ..Device::UNKNOWN };
    // 20 MB/s need 589 pages per second; 500 suffice for 18.6 MB/s.
    let load = Load { age_max: 1_000_000_000, dirty_pages: 14_000, device, ..Load::IDLE };
    let behind = [(475_000_000, 14_000)];
    let plan = plan_after(&load, 20.0 * MB, 60.0, &behind);
    assert!(plan.log_rate_max < 20.0 * MB, "{plan:?}");
    assert_eq!(plan.deadline_rate, 1000.0, "{plan:?}");
    let plan = plan_after(&load, 10.0 * MB, 60.0, &behind);
    assert!((plan.deadline_rate / 294.7 - 1.0).abs() < 0.01, "what is needed: {plan:?}");
}

#[test]
fn a_log_made_smaller_is_followed_within_a_minute() {
    // Nothing moves: there is no load, and nobody writes a page.
    let (mut governor, oldest) = (Governor::new(), BEGIN - 940_000_000);
    let mut target_after = |age_max: u64, seconds: f64| {
        let load = Load {
            seconds: TICK,
            log_end: BEGIN,
            age: BEGIN - oldest,
            age_max,
            deadlines: &[(oldest, 1000)],
            dirty_pages: 1000,
            ..Load::IDLE
        };
        let plans = (0..(seconds / TICK).round() as u64).map(|_| governor.plan(&load));
        plans.last().expect("there are some").age_target as f64 / MB
    };
    assert!((target_after(1_000_000_000, 1.0) - 950.0).abs() < 1.0);
    let half = target_after(100_000_000, 30.0);
    assert!((450.0..550.0).contains(&half), "evenly: {half}");
    let whole = target_after(100_000_000, 31.0);
    assert!((whole - 95.0).abs() < 1.0, "{whole}");
}

#[test]
fn pages_that_go_anyway_need_no_deadline() {
    let rate = |written_for_frames| {
        let load =
            Load { age_max: 1_000_000_000, dirty_pages: 100_000, written_for_frames, ..Load::IDLE };
        plan_after(&load, 10.0 * MB, 60.0, &[(450_000_000, 100_000)]).deadline_rate
    };
    // 500 MB are left, 50 s; 2000 of 100,000 go per second.
    let all = rate(0);
    assert!((all / 2000.0 - 1.0).abs() < 0.01, "{all}");
    let left = rate(40) / all;
    assert!((left / (1.0 / 1f64.exp_m1()) - 1.0).abs() < 0.02, "{left}");
}

#[test]
fn frames_that_are_taken_need_writes_as_often_as_pages_are_dirty() {
    let load = Load {
        frames: 1000,
        dirty_pages: 250,
        free_frames: 100,
        free_target: 200,
        frames_taken: 20,
        ..Load::IDLE
    };
    // 1000 per second, and 100 that are missing in half a second.
    let rate = plan_after(&load, 0.0, 20.0, &[]).free_frame_rate;
    assert!((rate / (0.25 * 1200.0) - 1.0).abs() < 0.01, "{rate}");
}

#[test]
fn pages_past_their_deadline_are_written_in_a_second_though_the_log_stands_still() {
    let load = Load { age: 960_000_000, age_max: 1_000_000_000, dirty_pages: 500, ..Load::IDLE };
    assert_eq!(plan_after(&load, 0.0, 1.0, &[(960_000_000, 500)]).deadline_rate, 500.0);
    let load = Load { age: 940_000_000, ..load };
    assert_eq!(plan_after(&load, 0.0, 1.0, &[(940_000_000, 500)]).deadline_rate, 0.0);
}

#[test]
fn what_writers_may_use_falls_with_the_cube() {
    // A headroom of 50 MB, which may be used within a second while nothing else is known.
    let share = |age| {
        let load = Load { age, age_max: 1_000_000_000, ..Load::IDLE };
        plan_after(&load, 0.0, 1.0, &[]).log_rate_max / (50.0 * MB)
    };
    assert_eq!(share(950_000_000), f64::INFINITY);
    assert!((share(975_000_000) - 0.875).abs() < 1e-6, "{}", share(975_000_000));
    assert!((share(990_000_000) - 0.488).abs() < 1e-6, "{}", share(990_000_000));
    assert_eq!(share(1_000_000_000), 0.0);
}

#[test]
fn every_plan_is_finite() {
    let mut plans = 0;
    for age_max in [1u64 << 20, 1 << 30, 10 << 40] {
        for (dirty_pages, dirty_limit) in
            [(0, 0), (0, 1), (1, 1), (1000, 1), (1000, u64::MAX), (1_000_000_000_000, 1000)]
        {
            for pages_per_second in [None, Some(0.0), Some(1e-300), Some(1.0), Some(1e12)] {
                for (age, log_rate) in [(0.0, 0.0), (0.5, 5e7), (1.0, 1e3), (2.0, 1e12)] {
                    let device = Device {
                        pages_per_second,
                        latency: 0.01,
                        latency_deviation: 0.01,
                        variation: 0.1,
                    };
                    let age = (age_max as f64 * age) as u64;
                    let load = Load {
                        age,
                        age_max,
                        dirty_pages,
                        dirty_limit,
                        dirtied: 10,
                        frames: 1000,
                        free_target: 10,
                        frames_taken: 5,
                        written_for_frames: 3,
                        device,
                        ..Load::IDLE
                    };
                    // It asserts that itself.
                    plan_after(&load, log_rate, 0.2, &[(age.min(BEGIN), dirty_pages)]);
                    plans += 1;
                }
            }
        }
    }
    assert_eq!(plans, 360);
}

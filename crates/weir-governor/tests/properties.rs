//! The governor against a model of an engine: a log, pages that become dirty, a device.

use proptest::prelude::*;
use weir_governor::{Device, DirtyHistogram, Governor, Load, Plan, Policy};

const TICK: f64 = 0.02;

/// Pages become dirty in proportion to the log; the oldest are written as the plan says.
struct Model {
    governor: Governor,
    dirty: DirtyHistogram,
    deadlines: Vec<(u64, u64)>,
    age_max: u64,
    log_end: u64,
    dirtied: f64,
    owed: f64,
    /// Pages per second that the device does, and whether that is known.
    device: f64,
    known: bool,
    dirty_limit: u64,
    /// By how many bytes of log the checkpoint is behind the oldest dirty page.
    checkpoint_behind: u64,
    written: u64,
    age_seen: u64,
    plan: Plan,
}

impl Model {
    fn new(age_max: u64) -> Self {
        Model {
            governor: Governor::new(),
            dirty: DirtyHistogram::new(age_max / 512),
            deadlines: Vec::new(),
            age_max,
            log_end: 1 << 40,
            dirtied: 0.0,
            owed: 0.0,
            device: f64::INFINITY,
            known: false,
            dirty_limit: u64::MAX,
            checkpoint_behind: 0,
            written: 0,
            age_seen: 0,
            plan: Plan::IDLE,
        }
    }

    fn age(&self) -> u64 {
        let oldest = self.dirty.oldest().unwrap_or(self.log_end).min(self.log_end);
        self.log_end - oldest + self.checkpoint_behind
    }

    /// One tick of writers that want `log_rate` bytes/s and make `per_byte` pages dirty for each.
    fn tick(&mut self, log_rate: f64, per_byte: f64) -> Plan {
        let rate = log_rate.min(self.plan.log_rate_max);
        let bytes = (rate * TICK) as u64;
        self.log_end += bytes;
        let fresh = (bytes as f64 * per_byte).min(self.plan.dirty_rate_max * TICK);
        self.dirtied += fresh;
        let dirtied = self.dirtied as u64;
        self.dirtied -= dirtied as f64;
        if dirtied > 0 {
            self.dirty.add(self.log_end - bytes / 2, dirtied);
        }
        self.age_seen = self.age_seen.max(self.age());
        self.dirty.deadlines(&mut self.deadlines);
        let device =
            Device { pages_per_second: self.known.then_some(self.device), ..Device::UNKNOWN };
        let plan = self.governor.plan(&Load {
            seconds: TICK,
            log_end: self.log_end,
            age: self.age(),
            age_max: self.age_max,
            deadlines: &self.deadlines,
            dirty_pages: self.dirty.pages(),
            dirty_limit: self.dirty_limit,
            dirtied,
            device,
            ..Load::IDLE
        });
        self.plan = plan;
        self.owed = self.owed.fract() + plan.write_rate().min(self.device) * TICK;
        self.written += self.dirty.remove_oldest(self.owed as u64);
        plan
    }

    fn run(&mut self, log_rate: f64, per_byte: f64, seconds: f64) -> Vec<Plan> {
        (0..(seconds / TICK) as usize).map(|_| self.tick(log_rate, per_byte)).collect()
    }
}

/// Means over `seconds` each.
fn means(plans: &[Plan], seconds: f64, value: impl Fn(&Plan) -> f64) -> Vec<f64> {
    let ticks = (seconds / TICK) as usize;
    let mean = |part: &[Plan]| part.iter().map(&value).sum::<f64>() / part.len() as f64;
    plans.chunks_exact(ticks).map(mean).collect()
}

const MB: f64 = 1e6;

#[test]
fn nothing_dirty_asks_for_nothing() {
    let mut model = Model::new(1 << 30);
    for plan in model.run(20.0 * MB, 0.0, 60.0) {
        assert_eq!(plan.write_rate(), 0.0);
        assert_eq!(plan.log_rate_max, f64::INFINITY);
        assert_eq!(plan.dirty_rate_max, f64::INFINITY);
        assert_eq!(plan.log_used, 0.0);
    }
}

#[test]
fn how_much_of_the_log_s_growth_is_used_follows_the_device() {
    // 20 MB/s, a thousand pages per second; of a device that does so many.
    let used = |device: f64, known: bool| {
        let mut model = Model::new(100_000_000);
        (model.device, model.known) = (device, known);
        let plans = model.run(20.0 * MB, 50.0 / MB, 60.0);
        means(&plans, 10.0, |plan| plan.log_used).pop().unwrap()
    };
    assert_eq!(used(1e6, false), 0.0, "nothing is known of a limit");
    assert!(used(1e6, true) < 0.01);
    assert!((0.4..0.6).contains(&used(2000.0, true)), "{}", used(2000.0, true));
    assert!(used(500.0, true) > 0.95, "{}", used(500.0, true));
}

#[test]
fn a_steady_load_is_written_at_its_own_rate_without_a_wave() {
    // 20 MB/s, a thousand pages per second, a lap of 50 s.
    let mut model = Model::new(1_000_000_000);
    model.run(20.0 * MB, 50.0 / MB, 250.0);
    let plans = model.run(20.0 * MB, 50.0 / MB, 500.0);
    for rate in means(&plans, 1.0, |p| p.deadline_rate) {
        assert!((rate / 1000.0 - 1.0).abs() < 0.02, "{rate}");
    }
    assert!(model.age() > 930_000_000, "and as late as can be: {}", model.age());
    assert!(model.age_seen <= 960_000_000, "{}", model.age_seen);
}

#[test]
fn the_first_lap_rises_to_the_final_rate_and_not_beyond() {
    let mut model = Model::new(1_000_000_000);
    let plans = model.run(20.0 * MB, 50.0 / MB, 400.0);
    let rates = means(&plans, 1.0, |p| p.deadline_rate);
    assert!(rates.windows(2).all(|w| w[1] >= w[0] * 0.99 - 5.0), "{rates:?}");
    assert!(rates.iter().all(|&r| r < 1020.0), "{rates:?}");
    assert!(rates[10] < 300.0, "nothing is hurried at the start: {}", rates[10]);
}

#[test]
fn a_step_up_and_down_is_absorbed_without_overshoot() {
    let mut model = Model::new(1_000_000_000);
    model.run(10.0 * MB, 50.0 / MB, 600.0);
    let up = means(&model.run(40.0 * MB, 50.0 / MB, 200.0), 1.0, |p| p.deadline_rate);
    assert!(up.iter().all(|&r| r < 2000.0 * 1.1), "{:?}", &up[..20]);
    assert!(up[20..].iter().all(|&r| (r / 2000.0 - 1.0).abs() < 0.03), "{up:?}");
    let down = means(&model.run(10.0 * MB, 50.0 / MB, 400.0), 1.0, |p| p.deadline_rate);
    assert!(down.iter().all(|&r| r < 2000.0 * 1.03 && r > 300.0), "{down:?}");
    assert!(down[250..].iter().all(|&r| (r / 500.0 - 1.0).abs() < 0.05), "{:?}", &down[250..]);
    assert!(model.age_seen < model.age_max);
}

/// Writers were held to what the log had grown by until the age was below its target again.
#[test]
fn a_step_is_not_taken_for_a_device_that_can_not_follow() {
    for age_max in [10_000_000, 40_000_000, 85_000_000] {
        let mut model = Model::new(age_max);
        model.checkpoint_behind = age_max / 32;
        model.run(20.0 * MB, 140.0 / MB, 60.0);
        let before = model.log_end;
        let plans = model.run(50.0 * MB, 140.0 / MB, 1.0);
        let grown = (model.log_end - before) as f64 / (50.0 * MB);
        assert!(grown > 0.8, "{grown} of what was wanted, {age_max}");
        assert!(plans.iter().all(|plan| plan.log_rate_max > 0.0));
        model.run(50.0 * MB, 140.0 / MB, 60.0);
        assert!(model.age_seen < age_max, "{} of {age_max}", model.age_seen);
    }
}

#[test]
fn the_headroom_of_a_fast_load_is_given_up_soon_after_it() {
    // A lap of half a second, then of two.
    let mut model = Model::new(20_000_000);
    let fast = *model.run(40.0 * MB, 50.0 / MB, 30.0).last().unwrap();
    let plans = model.run(10.0 * MB, 50.0 / MB, 12.0);
    let slow = plans.last().unwrap().age_target;
    assert!(fast.age_target < slow, "{} {slow}", fast.age_target);
    let fresh = Model::new(20_000_000).run(10.0 * MB, 50.0 / MB, 60.0);
    let wanted = fresh.last().unwrap().age_target;
    assert!(slow as f64 > 0.99 * wanted as f64, "{slow} of {wanted}");
    assert!(model.age_seen < model.age_max);
}

/// Pages per byte of log under a load whose rate wanders, against those that wait for the last
/// moment.
#[test]
fn a_wandering_load_costs_few_writes_beyond_those_at_the_deadline() {
    // The rate is another one every 0.3 s, 40 to 160 % of its mean; a lap takes 2 s.
    let age_max = 40_000_000;
    let mut random = 1u64;
    let mut phase = |model: &mut Model| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let share = 0.4 + 1.2 * (random >> 40) as f64 / (1u64 << 24) as f64;
        model.run(share * 20.0 * MB, 50.0 / MB, 0.3);
    };
    let mut model = Model::new(age_max);
    (0..200).for_each(|_| phase(&mut model));
    let (mut ages, mut targets) = (0.0, 0.0);
    for _ in 0..1000 {
        phase(&mut model);
        ages += model.age() as f64;
        targets += model.plan.age_target as f64;
    }
    assert!(ages > 0.94 * targets, "pages are written at {} of their time", ages / targets);
    assert!(model.age_seen < age_max);
}

#[test]
fn bursts_are_spread_over_the_time_between_them() {
    // 2 s at 50 MB/s, 8 s of nothing: 500 pages per second on average, 2500 in a burst.
    let mut model = Model::new(1_000_000_000);
    let period = |model: &mut Model| {
        let mut plans = model.run(50.0 * MB, 50.0 / MB, 2.0);
        plans.extend(model.run(0.0, 0.0, 8.0));
        plans
    };
    for _ in 0..50 {
        period(&mut model);
    }
    let plans: Vec<Plan> = (0..20).flat_map(|_| period(&mut model)).collect();
    let rates = means(&plans, 1.0, |p| p.deadline_rate);
    let (mean, peak) =
        (rates.iter().sum::<f64>() / rates.len() as f64, rates.iter().copied().fold(0.0, f64::max));
    assert!((mean / 500.0 - 1.0).abs() < 0.05, "{mean}");
    assert!(peak < 1.7 * mean, "{peak} of {mean}: {:?}", &rates[..20]);
    assert!(model.age_seen < model.age_max);
}

#[test]
fn idle_time_is_not_used_to_write() {
    let mut model = Model::new(1_000_000_000);
    model.run(20.0 * MB, 50.0 / MB, 100.0);
    let dirty = model.dirty.pages();
    model.run(0.0, 0.0, 3600.0);
    let left = model.dirty.pages();
    assert!(left as f64 > 0.6 * dirty as f64, "{left} of {dirty}");
    model.run(0.0, 0.0, 9_000.0);
    assert_eq!(model.dirty.pages(), left, "it ends");
}

#[test]
fn a_device_that_cannot_follow_slows_writers_down_and_stops_nobody() {
    let mut model = Model::new(1_000_000_000);
    (model.device, model.known) = (600.0, true);
    // 20 MB/s would need 1000 pages per second: 12 MB/s remain.
    let mut rates = Vec::new();
    let mut end = model.log_end;
    for _ in 0..800 {
        model.run(20.0 * MB, 50.0 / MB, 1.0);
        rates.push((model.log_end - end) as f64 / MB);
        end = model.log_end;
    }
    assert!(rates.iter().all(|&r| r > 11.0), "{:?}", rates.iter().copied().fold(99.0, f64::min));
    assert!(rates.windows(2).all(|w| w[1] < w[0] + 0.3), "it sinks smoothly: {rates:?}");
    let last = &rates[600..];
    assert!(last.iter().all(|&r| (r / 12.0 - 1.0).abs() < 0.03), "{last:?}");
    assert!(model.age_seen < model.age_max, "{}", model.age_seen);
}

#[test]
fn a_device_that_slows_to_a_tenth_never_stops_writers() {
    let mut model = Model::new(1_000_000_000);
    (model.device, model.known) = (1200.0, true);
    model.run(20.0 * MB, 50.0 / MB, 300.0);
    model.device = 120.0;
    for second in 0..120 {
        let before = model.log_end;
        model.run(20.0 * MB, 50.0 / MB, 1.0);
        assert!(model.log_end - before > 1_000_000, "second {second}: {}", model.log_end - before);
    }
    model.device = 1200.0;
    model.run(20.0 * MB, 50.0 / MB, 10.0);
    let before = model.log_end;
    model.run(20.0 * MB, 50.0 / MB, 10.0);
    assert!(model.log_end - before > 190_000_000, "{}", model.log_end - before);
    assert!(model.age_seen < model.age_max);
}

#[test]
fn a_log_made_smaller_and_larger_again_stops_nobody() {
    for known in [false, true] {
        let mut model = Model::new(2_000_000_000);
        (model.device, model.known) = (3000.0, known);
        model.run(20.0 * MB, 50.0 / MB, 300.0);
        assert!(model.age() > 1_800_000_000);
        model.age_max = 200_000_000;
        for second in 0..90 {
            let before = model.log_end;
            let plans = model.run(20.0 * MB, 50.0 / MB, 1.0);
            let grown = model.log_end - before;
            assert!(grown > 15_000_000, "second {second}: {grown}");
            let rates = means(&plans, 1.0, |p| p.deadline_rate.min(3000.0));
            assert!(second > 0 || rates[0] < 2900.0, "all at once: {rates:?}");
        }
        assert!(model.age() <= 200_000_000, "{}", model.age());
        model.age_max = 2_000_000_000;
        let rates = means(&model.run(20.0 * MB, 50.0 / MB, 20.0), 1.0, |p| p.deadline_rate);
        assert!(rates.iter().all(|&r| r < 300.0), "nothing is urgent now: {rates:?}");
    }
}

#[test]
fn the_dirty_limit_is_approached_and_not_reached() {
    for device in [f64::INFINITY, 400.0] {
        let mut model = Model::new(100_000_000_000);
        model.dirty_limit = 20_000;
        (model.device, model.known) = (device, device.is_finite());
        let plans = model.run(20.0 * MB, 50.0 / MB, 300.0);
        let dirty = model.dirty.pages();
        assert!((18_500..20_000).contains(&dirty), "{dirty}");
        let rates = means(&plans[5000..], 1.0, Plan::write_rate);
        let expected = device.min(1000.0);
        for rate in rates.iter().map(|r| r.min(device)) {
            assert!((rate / expected - 1.0).abs() < 0.03, "{rate} of {expected}");
        }
    }
}

#[test]
fn free_frames_and_deadlines_cannot_starve_one_another() {
    let device = Device { pages_per_second: Some(1000.0), ..Device::UNKNOWN };
    let deadlines = [(1 << 40, 1_000_000)];
    let mut governor = Governor::new();
    let mut load = Load {
        seconds: TICK,
        log_end: 1 << 40,
        age_max: 1 << 30,
        deadlines: &deadlines,
        dirty_pages: 1_000_000,
        frames: 1_000_000,
        free_target: 1000,
        frames_taken: 200,
        device,
        ..Load::IDLE
    };
    let mut plan = Plan::IDLE;
    for _ in 0..200 {
        load.log_end += 2 << 20;
        load.age = load.log_end - (1 << 40);
        plan = governor.plan(&load);
    }
    assert!(plan.deadline_rate > 10_000.0, "far more than there is: {plan:?}");
    assert_eq!(plan.free_frame_rate, 500.0);
    assert!(plan.log_rate_max > 0.0 && plan.log_rate_max < 100.0 * MB, "{plan:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Any load on any device: what it can do in time is done in time, and the log never fills up.
    #[test]
    fn every_deadline_is_met(
        phases in prop::collection::vec((0.0f64..60.0, 0.0f64..200.0, 0.5f64..40.0), 1..12),
        age_max_mb in 50u64..2000,
        device in prop::option::of(50.0f64..5000.0),
    ) {
        let mut model = Model::new(age_max_mb * 1_000_000);
        (model.device, model.known) = (device.unwrap_or(f64::INFINITY), device.is_some());
        for &(rate, per_mb, seconds) in &phases {
            model.run(rate * MB, per_mb / MB, seconds);
            prop_assert!(model.age_seen < model.age_max, "{} of {}", model.age_seen, model.age_max);
        }
    }

    /// The rate is what the formula of the deadlines gives, no more, when the log's rate is steady.
    #[test]
    fn no_rate_above_what_the_deadlines_need(
        pages in prop::collection::vec((1u64..1_000_000, 1u64..500), 1..50),
        rate in 0.1f64..100.0,
    ) {
        let age_max = 1_000_000_000u64;
        let mut histogram = DirtyHistogram::new(1);
        let mut lsns: Vec<_> = pages.iter().map(|&(x, n)| (x * 500, n)).collect();
        lsns.sort_unstable();
        for &(x, n) in &lsns {
            histogram.add(x, n);
        }
        let mut deadlines = Vec::new();
        histogram.deadlines(&mut deadlines);
        let mut governor = Governor::new();
        let mut log_end = 500_000_000;
        for tick in 0..50 {
            log_end += (rate * MB * TICK) as u64;
            let plan = governor.plan(&Load {
                seconds: TICK,
                log_end,
                age: log_end - lsns[0].0,
                age_max,
                deadlines: &deadlines,
                dirty_pages: histogram.pages(),
                ..Load::IDLE
            });
            let target = plan.age_target as f64;
            let need = |&(x, n): &(u64, u64)| n as f64 / (target - (log_end - x) as f64);
            let steepest = deadlines.iter().map(need).fold(0.0, f64::max);
            let nearest = deadlines[0].0 as f64 + target - log_end as f64;
            // The first plan knows of no growth.
            if tick > 0 && nearest > 0.02 * target {
                let ratio = plan.deadline_rate / (steepest * rate * MB);
                prop_assert!((0.999..1.001).contains(&ratio), "{ratio}");
            }
        }
    }

    /// A device too slow for the load: writers go on at what it can carry, whatever it is.
    #[test]
    fn writers_always_go_on(
        device in 20.0f64..2000.0,
        rate in 1.0f64..100.0,
        per_mb in 1.0f64..200.0,
        age_max_mb in 100u64..2000,
    ) {
        let mut model = Model::new(age_max_mb * 1_000_000);
        (model.device, model.known) = (device, true);
        let sustained = (device / per_mb).min(rate) * MB;
        model.run(rate * MB, per_mb / MB, 30.0);
        for second in 0..200 {
            let before = model.log_end;
            model.run(rate * MB, per_mb / MB, 1.0);
            let grown = (model.log_end - before) as f64;
            prop_assert!(grown > 0.7 * sustained, "second {second}: {grown} of {sustained}");
        }
        prop_assert!(model.age_seen <= model.age_max);
    }
}

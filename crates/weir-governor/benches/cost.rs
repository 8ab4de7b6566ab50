//! What the governor itself costs: `cargo bench -p weir-governor`.
//!
//! Ten million dirty pages over a full histogram; a plan every 10 ms, and 200,000 pages per second
//! that become dirty and are written again.

use std::hint::black_box;
use std::time::Instant;

use weir_governor::{Device, DirtyHistogram, Governor, Load, Policy};

const PAGES: u64 = 10_000_000;
const PLANS_PER_SECOND: f64 = 100.0;
const PAGES_PER_SECOND: f64 = 200_000.0;

fn main() {
    let age_max: u64 = 32 << 30;
    let bucket_bytes = age_max / 1000;
    let mut dirty = DirtyHistogram::new(bucket_bytes);
    for page in 0..PAGES {
        dirty.add(page * (age_max / PAGES), 1);
    }
    let plan = plans(&dirty, age_max);
    let page = pages(&mut dirty, age_max);
    let share = plan * PLANS_PER_SECOND + page * PAGES_PER_SECOND;
    println!("a plan: {:.1} us; a page in and out: {:.0} ns", plan * 1e6, page * 1e9);
    println!("share of a core at 100 plans/s and 200,000 pages/s: {:.2} %", 100.0 * share);
}

/// Seconds of one round, the quickest of many: others may be at work on the machine.
fn quickest(rounds: u64, mut round: impl FnMut(u64)) -> f64 {
    let time = |at| {
        let began = Instant::now();
        round(at);
        began.elapsed().as_secs_f64()
    };
    (0..rounds).map(time).fold(f64::INFINITY, f64::min)
}

/// Seconds for one plan, the histogram's summing up included.
fn plans(dirty: &DirtyHistogram, age_max: u64) -> f64 {
    let mut governor = Governor::new();
    let mut deadlines = Vec::new();
    quickest(20_000, |round| {
        dirty.deadlines(&mut deadlines);
        let log_end = age_max * 9 / 10 + round * 10_000;
        black_box(governor.plan(&Load {
            seconds: 1.0 / PLANS_PER_SECOND,
            log_end,
            age: log_end,
            age_max,
            deadlines: &deadlines,
            dirty_pages: dirty.pages(),
            written_for_frames: 10,
            device: Device { pages_per_second: Some(1e5), ..Device::UNKNOWN },
            ..Load::IDLE
        }));
    })
}

/// Seconds for one page that becomes dirty, and one that is written.
fn pages(dirty: &mut DirtyHistogram, age_max: u64) -> f64 {
    let step = age_max / PAGES;
    let each = 10_000;
    let seconds = quickest(500, |round| {
        for page in round * each..(round + 1) * each {
            dirty.add((PAGES + page) * step, 1);
            dirty.remove(black_box(page * step), 1);
        }
    });
    seconds / each as f64
}

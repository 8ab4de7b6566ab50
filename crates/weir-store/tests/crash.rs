//! After a power cut at any disk operation, the map on disk and the durable log from the checkpoint
//! give every page its last durable image.
//!
//! A failure names its seed and operation; `WEIR_SEED=n cargo test -p weir-store --test crash`
//! repeats one seed.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Log, Toy, is_missing, operations, run};
use weir_os::SimDisk;
use weir_os::sim::{Fault, OpKind, Times};

const STEPS: usize = 40;

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("WEIR_SEED") {
        Ok(seed) => vec![seed.parse().expect("WEIR_SEED is a number")],
        Err(_) => (0..count).collect(),
    }
}

/// Runs until the power fails at operation `at`; the log as far as it came, if creation did.
fn run_until(disk: &SimDisk, seed: u64, at: u64) -> Option<Log> {
    disk.crash_at(at);
    let mut toy = Toy::create(disk, seed).ok()?;
    run(&mut toy, &mut fastrand::Rng::with_seed(seed), STEPS).expect_err("the power fails");
    Some(toy.log)
}

/// Recovers, with the power failing again a few times on the way, and verifies.
fn recover(mut disk: SimDisk, mut log: Log, rng: &mut fastrand::Rng, seed: u64) -> (SimDisk, Toy) {
    for _ in 0..rng.u32(..3) {
        disk.crash_at(rng.u64(..30));
        if let Ok(mut toy) = Toy::recover(&disk, &log, seed) {
            toy.verify_unless_off(&disk);
            let _ = run(&mut toy, rng, 10);
            log = toy.log;
        }
        disk.power_off();
        log.cut(rng);
        disk = disk.crash(rng.u64(..));
    }
    let toy = Toy::recover(&disk, &log, seed).unwrap();
    toy.verify();
    (disk, toy)
}

impl Toy {
    fn verify_unless_off(&self, disk: &SimDisk) {
        if !disk.is_crashed() {
            assert_eq!(self.store.stats().pages_stored, self.model.len() as u64);
        }
    }
}

#[test]
fn a_crash_at_any_operation_loses_nothing_durable() {
    for seed in seeds(6) {
        let total = operations(seed, STEPS);
        for at in 0..total {
            let context = format!("seed {seed}, crash at operation {at} of {total}");
            let _trace = Trace(context);
            let disk = SimDisk::new(seed);
            let log = run_until(&disk, seed, at);
            for turn in 0..3 {
                let mut rng = fastrand::Rng::with_seed(seed << 32 | at << 8 | turn);
                let crashed = disk.crash(rng.u64(..));
                let Some(mut log) = log.clone() else {
                    // Creation was cut short: there is a whole empty database, or none.
                    match Toy::recover(&crashed, &Log::default(), seed) {
                        Ok(toy) => toy.verify(),
                        Err(error) if is_missing(&error) => {
                            Toy::create(&crashed, seed).unwrap().verify();
                        }
                        Err(error) => panic!("{error}"),
                    }
                    continue;
                };
                log.cut(&mut rng);
                let (_, mut toy) = recover(crashed, log, &mut rng, seed);
                run(&mut toy, &mut rng, 20).unwrap();
                toy.verify();
            }
        }
    }
}

#[test]
fn a_killed_process_then_a_power_cut_lose_nothing_durable() {
    for seed in seeds(60) {
        let _trace = Trace(format!("seed {seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut disk = SimDisk::new(seed);
        let mut toy = Toy::create(&disk, seed).unwrap();
        for _ in 0..8 {
            disk.crash_at(disk.operations() + rng.u64(1..120));
            let _ = run(&mut toy, &mut rng, 40);
            let mut log = toy.log.clone();
            log.cut(&mut rng);
            disk = if rng.bool() { disk.process_kill() } else { disk.crash(rng.u64(..)) };
            toy = Toy::recover(&disk, &log, seed).unwrap();
            toy.verify();
        }
    }
}

/// The system takes for clean what a sync failed to write; the next process finds it, and a power
/// cut takes it away.
#[test]
fn a_failed_sync_then_a_kill_then_a_power_cut_lose_nothing_durable() {
    for seed in seeds(200) {
        let _trace = Trace(format!("seed {seed}"));
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut disk = SimDisk::new(seed);
        let mut toy = Toy::create(&disk, seed).unwrap();
        for _ in 0..8 {
            let at = disk.operations() + rng.u64(..40);
            disk.inject(Fault::Io { on: Some(OpKind::Sync), at, times: Times::Once });
            if rng.bool() {
                let _ = toy.checkpoint(false);
            }
            let steps = rng.usize(..20);
            let _ = run(&mut toy, &mut rng, steps);
            let mut log = toy.log.clone();
            log.cut(&mut rng);
            disk = if rng.bool() { disk.process_kill() } else { disk.crash(rng.u64(..)) };
            toy = Toy::recover(&disk, &log, seed).unwrap();
            toy.verify();
        }
    }
}

/// Says where a failing run was.
struct Trace(String);

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

/// A map block that a killed process wrote but did not sync must not be the only whole one when the
/// next process overwrites the block's other slot.
#[test]
fn a_kill_between_write_and_sync_of_the_map_then_a_power_cut_lose_nothing() {
    let round = |toy: &mut Toy, pages: &[u32]| {
        let pages: Vec<_> = pages.iter().map(|&page| weir_page::PageId(page)).collect();
        toy.write(&pages)?;
        toy.sync_log();
        toy.checkpoint(false)
    };
    for (kill, cut) in (1..6).flat_map(|kill| (1..6).map(move |cut| (kill, cut))) {
        for seed in 0..100 {
            let _trace = Trace(format!("kill {kill}, cut {cut}, seed {seed}"));
            let mut rng = fastrand::Rng::with_seed(seed);
            let disk = SimDisk::new(seed);
            let mut toy = Toy::create(&disk, 2).unwrap();
            round(&mut toy, &[1, 62, 63, 1000]).unwrap();
            disk.crash_at(disk.operations() + kill);
            let _ = round(&mut toy, &[1, 62]);
            let mut log = toy.log;
            log.cut(&mut rng);
            let disk = disk.process_kill();
            let mut toy = Toy::recover(&disk, &log, 2).unwrap();
            toy.verify();
            disk.crash_at(disk.operations() + cut);
            let _ = round(&mut toy, &[1, 62]);
            let mut log = toy.log;
            log.cut(&mut rng);
            Toy::recover(&disk.crash(rng.u64(..)), &log, 2).unwrap().verify();
        }
    }
}

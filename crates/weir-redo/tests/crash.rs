//! Seeded crashes: whatever was durable is found again, in order, and nothing else ever is.
//!
//! `REDO_SEEDS=from..to cargo test -p weir-redo --test crash` runs others.

mod common;

use common::Model;
use weir_os::SimDisk;

fn run(seed: u64) {
    let mut model = Model::new(seed);
    let mut disk = SimDisk::new(seed);
    let mut least = model.checkpoint;
    for life in 0..6 {
        let operations = model.rng.choice([10, 40, 200]).expect("not empty");
        disk.crash_at(model.rng.u64(..operations));
        // An open that crashes promises nothing new.
        (model.durable, model.written) = (least, least);
        match model.open(&disk, least) {
            Ok(redo) => while model.step(&redo).is_ok() {},
            Err(e) => assert!(disk.is_crashed(), "life {life} does not open: {e}"),
        }
        least = model.durable.max(model.checkpoint);
        disk = if model.rng.u8(..4) == 0 {
            let disk = disk.process_kill();
            if model.created {
                // What was written is found, though it is not durable.
                let written = model.written.max(least);
                model.read(&disk, written).expect("the log is whole");
            }
            disk
        } else {
            disk.crash(model.rng.u64(..))
        };
    }
    if model.created {
        model.read(&disk, least).expect("the log is whole");
    }
}

fn seeds() -> std::ops::Range<u64> {
    let given = std::env::var("REDO_SEEDS").ok();
    let parsed = given
        .as_deref()
        .and_then(|s| s.split_once(".."))
        .and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    parsed.unwrap_or(0..1000)
}

#[test]
fn durable_groups_survive_crashes() {
    for seed in seeds() {
        let caught = std::panic::catch_unwind(|| run(seed));
        if let Err(panic) = caught {
            let to = seed + 1;
            eprintln!("seed {seed}: REDO_SEEDS={seed}..{to} cargo test -p weir-redo --test crash");
            std::panic::resume_unwind(panic);
        }
    }
}

//! Every operation of the disk fails once, for every number: the error is clear, the log is
//! poisoned, and nothing acknowledged is lost, neither over a restart nor over a power cut after
//! it.

mod common;

use common::Model;
use weir_os::SimDisk;
use weir_os::sim::{CrashProfile, Fault, Times};
use weir_redo::{Admission, Redo, RedoError, Refused};

const STEPS: usize = 60;

/// Runs the script of `seed`; returns whether it ran to its end, and the disk's operations.
fn run(seed: u64, fault: Option<Fault>) -> (bool, u64) {
    let mut model = Model::new(seed);
    let disk = SimDisk::new(seed);
    if let Some(fault) = fault {
        disk.inject(fault);
    }
    let mut whole = true;
    let mut names_in_doubt = false;
    let mut least = model.checkpoint;
    match model.open(&disk, least) {
        Ok(redo) => {
            for _ in 0..STEPS {
                if let Err(error) = model.step(&redo) {
                    whole = false;
                    names_in_doubt = is_directory_sync(&error);
                    if check_failed(&redo, &error) {
                        break;
                    }
                }
            }
            least = model.durable.max(model.checkpoint);
        }
        Err(error) => {
            whole = false;
            names_in_doubt = is_directory_sync(&error);
            assert!(matches!(error, RedoError::Disk(_)), "{error}");
        }
    }
    let operations = disk.operations();

    // The process ends; what its system thinks clean may not be on the device. After a failed sync
    // of the directory, whose names no process can write again, the machine has to start anew.
    let disk = if names_in_doubt { disk.crash(seed) } else { disk.process_kill() };
    let redo = model.open(&disk, least).expect("the restarted log works");
    use_and_crash(model, &disk, &redo, seed);
    (whole, operations)
}

/// Works on, cuts the power, and looks for what is durable.
fn use_and_crash(mut model: Model, disk: &SimDisk, redo: &Redo, seed: u64) {
    for _ in 0..20 {
        model.step(redo).expect("the restarted log works");
    }
    for (profile, seed) in [(CrashProfile::Nothing, 0), (CrashProfile::Sectors, seed)] {
        let disk = disk.crash_as(seed, profile);
        model.read(&disk, model.durable.max(model.checkpoint)).expect("the log is whole");
    }
}

#[test]
fn each_operation_of_an_open_fails_once() {
    for seed in 100..108 {
        let mut model = Model::new(seed);
        let disk = SimDisk::new(seed);
        let redo = model.open(&disk, model.checkpoint).expect("created");
        for _ in 0..STEPS {
            model.step(&redo).expect("the log works");
        }
        let least = model.durable.max(model.checkpoint);
        let found = if seed % 2 == 0 { disk.process_kill() } else { disk.crash(seed) };
        for at in 0.. {
            eprintln!("seed {seed}, fault at operation {at} of the open");
            let mut model = model.clone();
            let disk = found.process_kill();
            disk.inject(Fault::Io { on: None, at, times: Times::Once });
            let Err(error) = model.open(&disk, least) else { break };
            let again = is_directory_sync(&error);
            let disk = if again { disk.crash(seed) } else { disk.process_kill() };
            let redo = model.open(&disk, least).expect("the restarted log works");
            use_and_crash(model, &disk, &redo, seed);
        }
    }
}

fn is_directory_sync(error: &RedoError) -> bool {
    matches!(error, RedoError::Disk(e) if e.operation == "sync" && e.file == "sim")
}

/// Whether the log stopped, as it must but when there was no space for growth, or no file could be
/// opened for it.
fn check_failed(redo: &Redo, error: &RedoError) -> bool {
    let RedoError::Disk(cause) = error else { panic!("the first failure is the disk's: {error}") };
    let Err(poisoned) = redo.check() else {
        let full = cause.kind() == std::io::ErrorKind::StorageFull;
        assert!(full || cause.operation == "open", "{cause}");
        return false;
    };
    let same = |error: RedoError| match error {
        RedoError::Poisoned { cause: first } => assert_eq!(first.to_string(), cause.to_string()),
        other => panic!("not poisoned: {other}"),
    };
    same(poisoned);
    assert!(matches!(redo.try_admit(8, Admission::System), Err(Refused::Poisoned)));
    same(redo.write_step(false).expect_err("poisoned"));
    same(redo.write_step(true).expect_err("poisoned"));
    same(redo.set_checkpoint(redo.durable()).expect_err("poisoned"));
    same(redo.set_capacity(1 << 30).expect_err("poisoned"));
    redo.wait_durable(redo.durable()).expect("what is durable stays so");
    if redo.durable() < redo.reserved() {
        same(redo.wait_durable(redo.reserved()).expect_err("poisoned"));
    }
    true
}

fn sweep(seeds: std::ops::Range<u64>, fault: impl Fn(u64) -> Fault) {
    for seed in seeds {
        let (whole, operations) = run(seed, None);
        assert!(whole, "seed {seed} fails without a fault");
        let mut failed = 0;
        for at in 0..operations {
            eprintln!("seed {seed}, fault at operation {at}");
            failed += u64::from(!run(seed, Some(fault(at))).0);
        }
        assert!(failed > 0, "no fault showed");
    }
}

#[test]
fn each_operation_fails_once() {
    sweep(0..8, |at| Fault::Io { on: None, at, times: Times::Once });
}

#[test]
fn each_write_and_growth_finds_no_space() {
    sweep(16..22, |at| Fault::NoSpace { at, times: Times::Once });
}

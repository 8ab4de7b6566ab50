//! Simulated crashes of the whole engine.
//!
//! A seed and a profile make a run: one thread, a simulated disk, several transactions interleaved,
//! background steps in random order; a power cut or a killed process at any operation of the disk;
//! recovery, which may crash as well; then the database is compared with a [`model`] that knows
//! what was acknowledged, what was in doubt, and what was taken back. Then it goes on.
//!
//! [`faults`] has the runs in which the disk misbehaves, [`slots`] those in which it does so to one
//! slot of `map` or `control`, [`given_up`] those in which damaged pages are given up. Those of
//! [`beside`] have threads.
//!
//! - `cargo test -p weir --test crash` runs as many seeds as fit `WEIR_CRASH_SECONDS` (50, 15 of
//!   faults, a few of others);
//! - `WEIR_CRASH_SEEDS=n` runs that many instead, from `WEIR_CRASH_FIRST` (0) on; about ten crashes
//!   each;
//! - `WEIR_CRASH_PROFILE=name` runs one of the [`profile`]s only; `drawn`: each seed one of its
//!   own;
//! - a failure prints its last operations and the command that repeats it; with
//!   `WEIR_CRASH_VERBOSE=1` that prints all operations.

mod backup;
mod beside;
mod definitions;
mod faults;
mod given_up;
mod model;
mod profile;
mod run;
mod slots;
mod two_phase;
mod verify;
mod work;
mod world;

use profile::Profile;
use std::sync::Mutex;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use world::Counts;

/// One simulation at a time: what a process shares must not differ from run to run.
static ONE: Mutex<()> = Mutex::new(());

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

/// What runs a seed, and the test that repeats it.
type Runner = (fn(u64, &'static Profile) -> Counts, &'static str);

const CRASHES: Runner = (run::run, "repeat");
const FAULTS: Runner = (faults::run, "repeat_faults");
const BESIDE: Runner = (beside::run, "repeat_beside");
const ROT: Runner = (slots::rot, "repeat_rot");
const SYNCS: Runner = (slots::failed_syncs, "repeat_failed_syncs");
const GIVEN_UP: Runner = (given_up::run, "repeat_given_up");

/// Runs a seed in a thread of its own; `None` if it failed.
fn run_apart(seed: u64, profile: &'static Profile, (run, repeat): Runner) -> Option<Counts> {
    let (send, receive) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let counts = run(seed, profile);
        let _ = send.send(counts);
    });
    let limit = number("WEIR_CRASH_HANG").unwrap_or(60);
    match receive.recv_timeout(Duration::from_secs(limit)) {
        Ok(counts) => {
            thread.join().expect("the run has ended");
            Some(counts)
        }
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => {
            eprintln!(
                "HANGS: WEIR_CRASH_SEED={seed} WEIR_CRASH_PROFILE={} cargo test -p weir --test crash \
                 {repeat} -- --exact --nocapture",
                profile.name
            );
            std::process::abort();
        }
    }
}

/// Seeds after which what has not been met isn't waited for any more.
const SEEDS_MAX: u64 = 500;

/// Runs seeds of all profiles until the time is up and they have met what they are to meet, or as
/// many as are asked for.
fn run_many(seconds: u64, run: Runner, has_met: fn(&Counts) -> bool) -> (Counts, u64) {
    let first = number("WEIR_CRASH_FIRST").unwrap_or(0);
    let seeds = number("WEIR_CRASH_SEEDS");
    let seconds = number("WEIR_CRASH_SECONDS").unwrap_or(seconds);
    let only = std::env::var("WEIR_CRASH_PROFILE").ok();
    let started = Instant::now();
    let (mut counts, mut failed) = (Counts::default(), Vec::new());
    let mut seed = first;
    let goes_on = |seed: u64, counts: &Counts| match seeds {
        Some(seeds) => seed < first + seeds,
        None => {
            let is_time_up = started.elapsed() >= Duration::from_secs(seconds);
            !is_time_up || (!has_met(counts) && seed < first + SEEDS_MAX)
        }
    };
    while goes_on(seed, &counts) && failed.len() < 10 {
        let profile = match &only {
            Some(name) => Profile::named(name, seed),
            None => Profile::of(seed),
        };
        match run_apart(seed, profile, run) {
            Some(of_run) => counts.add(&of_run),
            None => {
                eprintln!("seed {seed} of `{}` failed", run.1);
                failed.push((seed, profile.name));
            }
        }
        seed += 1;
    }
    println!(
        "{} seeds in {:.1} s: {} crashes\n{counts:#?}",
        seed - first,
        started.elapsed().as_secs_f64(),
        counts.crashes()
    );
    assert!(failed.is_empty(), "seeds that failed: {failed:?}");
    assert!(seeds.is_some() || has_met(&counts), "{SEEDS_MAX} seeds are enough");
    (counts, seed - first)
}

#[test]
fn crashes_lose_nothing() {
    let _one = ONE.lock();
    let (counts, seeds) = run_many(50, CRASHES, |met| met.crashes() > 0 && met.recoveries > 0);
    assert!(seeds < 33 || (counts.staged > 0 && counts.moved > 0), "entries are staged and moved");
    assert!(seeds < 33 || counts.prepared_found > 0, "prepared transactions survive crashes");
    assert!(seeds < 33 || counts.backups > 0, "backups are made");
}

#[test]
fn faults_lose_nothing() {
    let _one = ONE.lock();
    run_many(15, FAULTS, |met| met.faults > 0 && met.no_space > 0 && met.rot_found > 0);
}

#[test]
fn crashes_beside_threads_lose_nothing() {
    let _one = ONE.lock();
    let (counts, seeds) = run_many(6, BESIDE, |met| met.crashes() > 0 && met.rows_verified > 0);
    assert!(seeds < 10 || counts.backups > 0, "backups are made");
}

#[test]
fn rot_of_any_slot_is_found_or_does_no_harm() {
    let _one = ONE.lock();
    run_many(4, ROT, |met| met.rot_found > 0 && met.rot_harmless > 0);
}

#[test]
fn failed_syncs_of_any_file_lose_nothing() {
    let _one = ONE.lock();
    run_many(2, SYNCS, |met| met.faults > 0);
}

#[test]
fn crashes_while_pages_are_given_up_change_nothing() {
    let _one = ONE.lock();
    run_many(3, GIVEN_UP, |met| met.rot_found > 0 && met.crashed_recoveries > 0);
}

/// Tries a run of [`crashes_beside_threads_lose_nothing`] again.
#[test]
fn repeat_beside() {
    let _one = ONE.lock();
    repeat_one(BESIDE);
}

/// Repeats one run of [`rot_of_any_slot_is_found_or_does_no_harm`].
#[test]
fn repeat_rot() {
    let _one = ONE.lock();
    repeat_one(ROT);
}

/// Repeats one run of [`failed_syncs_of_any_file_lose_nothing`].
#[test]
fn repeat_failed_syncs() {
    let _one = ONE.lock();
    repeat_one(SYNCS);
}

/// Repeats one run of [`crashes_while_pages_are_given_up_change_nothing`].
#[test]
fn repeat_given_up() {
    let _one = ONE.lock();
    repeat_one(GIVEN_UP);
}

/// Repeats one run of [`faults_lose_nothing`].
#[test]
fn repeat_faults() {
    let _one = ONE.lock();
    repeat_one(FAULTS);
}

/// Repeats one run: see the module.
#[test]
fn repeat() {
    let _one = ONE.lock();
    repeat_one(CRASHES);
}

fn repeat_one(run: Runner) {
    let Some(seed) = number("WEIR_CRASH_SEED") else { return };
    let profile = match std::env::var("WEIR_CRASH_PROFILE") {
        Ok(name) => Profile::named(&name, seed),
        Err(_) => Profile::of(seed),
    };
    let counts = run_apart(seed, profile, run).expect("the run failed");
    println!("{counts:#?}");
}

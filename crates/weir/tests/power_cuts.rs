//! Many threads on a simulated disk whose power fails, at any moment, or that fails once.
//!
//! The simulator of `tests/crash` repeats its runs, so it has one thread: page writers, checkpoints, eviction, backups and changes of the
//! log's capacity take turns there. Here they run at once. Threads commit transactions that follow from seed, thread and number alone.
//! Images of the disk are taken while they do so, as a power cut leaves them, some of them again while they are recovered: what was
//! acknowledged is there, of each thread's next transaction all or nothing, and the structure is sound. So are backups.
//!
//! `WEIR_STRESS=10` runs ten times as long; `WEIR_SEED` repeats a seed as far as threads permit.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::plan::*;
use common::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir::{Database, Durability, Error, Options, Shutdown, Table};
use weir_os::SimDisk;
use weir_os::sim::{CrashProfile, Fault, OpKind, Times};

fn small() -> Options {
    options(2 << 20, 1 << 20).lock_wait_timeout(Duration::from_secs(60))
}

/// How far a thread is.
#[derive(Default)]
struct Progress {
    /// Transactions before this one have begun.
    begun: AtomicU64,
    /// What those before this one make of the table, which are durable.
    durable: Mutex<(u64, Model)>,
}

struct Writers {
    seed: u64,
    all: [Progress; THREADS as usize],
}

impl Writers {
    /// Commits as that thread until it is to stop, or can't go on.
    fn run(
        &self,
        thread: u64,
        db: &Database,
        table: &Table,
        stops: &AtomicBool,
    ) -> Result<(), Error> {
        let progress = &self.all[thread as usize];
        let (mut number, mut model) = progress.durable.lock().unwrap().clone();
        while !stops.load(Ordering::Relaxed) {
            let plan = Plan::of(self.seed, thread, number);
            number += 1;
            progress.begun.store(number, Ordering::SeqCst);
            plan.run(db, table, Durability::Relaxed)?;
            plan.apply(&mut model);
            if plan.is_durable() {
                *progress.durable.lock().unwrap() = (number, model.clone());
            }
        }
        Ok(())
    }

    fn durable(&self) -> Vec<(u64, Model)> {
        self.all.iter().map(|p| p.durable.lock().unwrap().clone()).collect()
    }

    fn begun(&self) -> Vec<u64> {
        self.all.iter().map(|p| p.begun.load(Ordering::SeqCst)).collect()
    }

    /// What is in the database is what each thread's transactions have made, up to one between the two.
    fn assert_is_between(&self, db: &Database, from: &[(u64, Model)], to: &[u64], what: &str) {
        let table = db.table("items").unwrap_or_else(|| panic!("{what}: no table"));
        let found = found_in(db, &table);
        for thread in 0..THREADS {
            let at = thread as usize;
            let found = found_of(&found, thread);
            let (mut number, mut model) = from[at].clone();
            while rows_of(&model) != found {
                if number == to[at] {
                    same(&rows_of(&from[at].1), &found, &format!("{what}, thread {thread}"));
                }
                Plan::of(self.seed, thread, number).apply(&mut model);
                number += 1;
            }
        }
    }
}

/// A moment's image of a disk, and what has to be in it.
struct Image {
    disk: SimDisk,
    from: Vec<(u64, Model)>,
    to: Vec<u64>,
    what: String,
}

fn image(writers: &Writers, disk: &SimDisk, rng: &mut fastrand::Rng) -> Image {
    let seed = rng.u64(..1 << 32);
    let from = writers.durable();
    let disk = match rng.u8(..8) {
        0 => disk.process_kill(),
        1 => disk.crash_as(seed, CrashProfile::Nothing),
        2 => disk.crash_as(seed, CrashProfile::Sectors),
        _ => disk.crash(seed),
    };
    Image { disk, from, to: writers.begun(), what: format!("crash {seed}") }
}

/// Opens an image, some of them again and again, crashed while they recover, and looks for what has to be there.
fn verify(writers: &Writers, image: Image, rng: &mut fastrand::Rng) {
    let Image { mut disk, from, to, mut what } = image;
    let what_seed = format!("seed {}", writers.seed);
    for _ in 0..4 {
        let options = if rng.bool() { small() } else { small().redo_capacity_bytes(3 << 20) };
        let db = Database::open_on(Arc::new(disk.clone()), options);
        let db = db.unwrap_or_else(|e| panic!("{what_seed}, {what}: {e}"));
        if rng.bool() {
            std::thread::sleep(Duration::from_micros(rng.u64(..3000)));
            let seed = rng.u64(..1 << 32);
            what.push_str(&format!(", crash {seed}"));
            let next = disk.crash(seed);
            if rng.bool() {
                writers.assert_is_between(&db, &from, &to, &format!("{what_seed}, before {what}"));
            }
            drop(db);
            disk = next;
            continue;
        }
        writers.assert_is_between(&db, &from, &to, &format!("{what_seed}, {what}"));
        let mut findings = Vec::new();
        check_quiet_of(&db, &mut findings);
        assert!(findings.is_empty(), "{what_seed}, {what}: {findings:#?}");
        break;
    }
}

fn check_quiet_of(db: &Database, findings: &mut Vec<String>) {
    db.finish_recovery().unwrap();
    db.purge_all().unwrap();
    db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
}

/// Does what operators do, and what else disturbs.
fn disturb(
    writers: &Writers,
    db: &Database,
    table: &Table,
    rng: &mut fastrand::Rng,
) -> Result<(), Error> {
    match rng.u8(..12) {
        0..3 => drop(db.set_redo_capacity([1 << 20, 2 << 20, 4 << 20][rng.usize(..3)])?),
        3 => db.checkpoint()?,
        4 => drop(db.compact(&mut |_| {})?),
        5..8 => {
            let from = writers.durable();
            let to = SimDisk::new(rng.u64(..));
            let backup = db.begin_backup_on(Arc::new(to.clone()))?;
            let begun = writers.begun();
            backup.finish()?;
            let image = Image { disk: to, from, to: begun, what: "backup".into() };
            verify(writers, image, rng);
        }
        8 => db.set_dirty_limit([0.2, 0.5, 0.9][rng.usize(..3)])?,
        9 if table.schema()?.indexes().len() == 2 => {
            db.create_index(table, "extra", &["a", "b"], true)?;
        }
        9 => db.drop_index(table, "extra")?,
        _ => std::thread::sleep(Duration::from_millis(rng.u64(..20))),
    }
    Ok(())
}

fn begin(seed: u64) -> (SimDisk, Database, Table, Writers) {
    let disk = SimDisk::new(seed);
    let db = Database::open_on(Arc::new(disk.clone()), small()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    db.sync().unwrap();
    (disk, db, table, Writers { seed, all: Default::default() })
}

/// The power fails at any moment.
#[test]
fn what_was_acknowledged_survives_power_cuts() {
    let _watchdog = Watchdog::new("power cuts");
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let (disk, db, table, writers) = begin(seed);
    let stops = AtomicBool::new(false);
    let (db, table, writers, stops) = (&db, &table, &writers, &stops);
    let ends = Instant::now() + Duration::from_secs(4 * factor());
    let mut cuts = 0;
    std::thread::scope(|scope| {
        let _stop = Stop(stops);
        let threads: Vec<_> =
            (0..THREADS).map(|t| scope.spawn(move || writers.run(t, db, table, stops))).collect();
        let disturber = scope.spawn(move || {
            let mut rng = fastrand::Rng::with_seed(seed + 1);
            while !stops.load(Ordering::Relaxed) {
                disturb(writers, db, table, &mut rng).unwrap();
            }
        });
        while (Instant::now() < ends || cuts < 3) && !disturber.is_finished() {
            std::thread::sleep(Duration::from_micros(rng.u64(..20_000)));
            let image = image(writers, &disk, &mut rng);
            verify(writers, image, &mut rng);
            cuts += 1;
        }
        stops.store(true, Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        disturber.join().unwrap();
    });
    eprintln!("{cuts} cuts, transactions {:?}", writers.begun());
}

/// Ends the threads of a scope however it is left.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The device fails once: the database stops, or goes on, and what it has acknowledged is there.
#[test]
fn what_was_acknowledged_survives_a_device_that_fails_once() {
    let _watchdog = Watchdog::new("failures");
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    for round in 0..12 * factor() {
        let (disk, db, table, writers) = begin(seed + round);
        let stops = AtomicBool::new(false);
        let on =
            [None, Some(OpKind::Write), Some(OpKind::Sync), Some(OpKind::Sync)][rng.usize(..4)];
        let at = disk.operations() + rng.u64(..3000);
        disk.inject(Fault::Io { on, at, times: Times::Once });
        let (disk_of, db_of, table_of, writers_of, stops_of) =
            (&disk, &db, &table, &writers, &stops);
        std::thread::scope(|scope| {
            let _stop = Stop(stops_of);
            for t in 0..THREADS {
                scope.spawn(move || {
                    let ended = writers_of.run(t, db_of, table_of, stops_of);
                    stops_of.store(true, Ordering::Relaxed);
                    ended
                });
            }
            let mut rng = rng.fork();
            scope.spawn(move || {
                while !stops_of.load(Ordering::Relaxed) {
                    let _ = disturb(writers_of, db_of, table_of, &mut rng);
                }
            });
            let ends = Instant::now() + Duration::from_millis(1500);
            while Instant::now() < ends
                && !stops_of.load(Ordering::Relaxed)
                && disk_of.operations() <= at + 200
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            stops_of.store(true, Ordering::Relaxed);
        });
        let (from, to) = (writers.durable(), writers.begun());
        if rng.bool() {
            let _ = db.close(Shutdown::Fast, &mut |_| {});
        } else {
            drop(db);
        }
        disk.clear_faults();
        let what = format!("round {round}, {on:?} failed at {at}");
        for killed in [false, true] {
            // After a failed sync of the directory no process can make the names durable.
            if killed && on != Some(OpKind::Write) {
                continue;
            }
            let (from, to, what) = (from.clone(), to.clone(), what.clone());
            let disk = if killed { disk.process_kill() } else { disk.crash(seed) };
            verify(&writers, Image { disk, from, to, what }, &mut rng);
        }
    }
}

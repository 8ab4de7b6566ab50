//! Many threads on a simulated disk whose power fails, at any moment, or that fails itself.
//!
//! The simulator of `tests/crash` repeats its runs, so it has one thread: page writers,
//! checkpoints, eviction, backups and changes of the log's capacity take turns there. Here they run
//! at once. Threads commit transactions that follow from seed, thread and number alone. Images of
//! the disk are taken while they do so, as a power cut leaves them, some of them again while they
//! are recovered: what was acknowledged is there, of each thread's next transaction all or nothing,
//! and the structure is sound. So are backups.
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
use weir_os::sim::{CrashProfile, Fault, ObservedDisk, OpKind, Times};
use weir_os::{Disk, SimDisk};

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

    /// What is in the database is what each thread's transactions have made, up to one between the
    /// two.
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

/// Opens an image, some of them again and again, crashed while they recover, and looks for what has
/// to be there.
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
    let (db, table, writers) = begin_on(Arc::new(disk.clone()), small(), seed);
    (disk, db, table, writers)
}

fn begin_on(disk: Arc<dyn Disk>, options: Options, seed: u64) -> (Database, Table, Writers) {
    let db = Database::open_on(disk, options).unwrap();
    let table = db.create_table("items", items()).unwrap();
    db.sync().unwrap();
    (db, table, Writers { seed, all: Default::default() })
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

/// As [`begin`]; for a while from the operation of that number on, threads get to know late what
/// has become of theirs.
fn begin_slowly(seed: u64, from: Arc<AtomicU64>) -> (SimDisk, Database, Table, Writers) {
    let disk = SimDisk::new(seed);
    let of = disk.clone();
    let observed = ObservedDisk::new(disk.clone(), move |op| {
        let since = of.operations().checked_sub(from.load(Ordering::Relaxed));
        let of_four = match since {
            Some(1..12) if op.is_done => 3,
            Some(12..100) if op.is_done => 1,
            _ => 0,
        };
        if fastrand::u8(..4) < of_four {
            std::thread::sleep(Duration::from_micros(fastrand::u64(..12_000)));
        }
        Ok(())
    });
    // Changes of definitions may wait for rows that can't be taken back as long as there is no
    // space.
    let options = small().lock_wait_timeout(Duration::from_secs(5));
    let (db, table, writers) = begin_on(Arc::new(observed), options, seed);
    (disk, db, table, writers)
}

/// What fails of a round, from operation `at` on.
fn faults(rng: &mut fastrand::Rng, at: u64) -> Vec<Fault> {
    let some = 1 + u64::from(rng.u8(..3) == 0);
    let files = ["data", "map", "control", "dirty.new"];
    let fault = |n| {
        let at = at + n * rng.u64(..40);
        let times = if rng.u8(..4) == 0 { Times::Forever } else { Times::Once };
        match rng.u8(..10) {
            0 | 1 => Fault::NoSpace { at, times },
            2 => Fault::SyncOf { file: files[rng.usize(..files.len())], at },
            _ => Fault::Io { on: some_kind(rng), at, times },
        }
    };
    (0..some).map(fault).collect()
}

fn some_kind(rng: &mut fastrand::Rng) -> Option<OpKind> {
    let kinds = [OpKind::Name, OpKind::Resize, OpKind::Read, OpKind::Write, OpKind::Sync];
    kinds.get(rng.usize(..=kinds.len())).copied()
}

/// Whether a sync may fail, of the directory, too: then no process can make the names durable.
fn fails_syncs(fault: &Fault) -> bool {
    matches!(fault, Fault::Io { on: None | Some(OpKind::Sync), .. } | Fault::SyncOf { .. })
}

/// The device fails in other ways, and others go on from there until they meet it, too; or it
/// recovers meanwhile.
#[test]
fn what_was_acknowledged_survives_devices_that_fail_otherwise() {
    let _watchdog = Watchdog::new("other failures");
    let seed = seed();
    let (mut reached, mut lived_on) = (0, 0);
    for seed in seed..seed + 12 * factor() {
        let mut rng = fastrand::Rng::with_seed(seed);
        let from = Arc::new(AtomicU64::new(u64::MAX));
        let (disk, db, table, writers) = begin_slowly(seed, from.clone());
        let at = disk.operations() + rng.u64(..4000);
        from.store(at, Ordering::Relaxed);
        let faults = faults(&mut rng, at);
        faults.iter().for_each(|fault| disk.inject(*fault));
        let clears = rng.bool();
        let what = format!("seed {seed}, {faults:?}, clears {clears}");
        go_on_for_a_while(&writers, &db, &table, &mut rng, || {
            let ends = Instant::now() + Duration::from_millis(1200);
            while Instant::now() < ends && disk.operations() <= at {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(150));
            if clears {
                disk.clear_faults();
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        reached += u64::from(disk.operations() > at);
        if clears || rng.bool() {
            disk.clear_faults();
            // Where a caller's own step has failed, the database stops at the next that meets it.
            if db.checkpoint().is_ok() && db.sync().is_ok() {
                assert_lives_on(&writers, &db, &table, &what);
                lived_on += 1;
            }
        }
        let kills = !faults.iter().any(fails_syncs);
        if rng.bool() {
            let killed = kills && rng.bool();
            let next = if killed { disk.process_kill() } else { disk.crash(seed + 7) };
            next.clear_faults();
            fail_at_the_next_open(&writers, next, &mut rng, &what);
        }
        match rng.u8(..3) {
            0 => drop(db.close(Shutdown::Fast, &mut |_| {})),
            1 => drop(db.close(Shutdown::Clean, &mut |_| {})),
            _ => drop(db),
        }
        drop(table);
        disk.clear_faults();
        let mut images = vec![disk.crash(seed)];
        images.extend(kills.then(|| disk.process_kill()));
        for disk in images {
            let (from, to, what) = (writers.durable(), writers.begun(), what.clone());
            verify(&writers, Image { disk, from, to, what }, &mut rng);
        }
    }
    eprintln!("{reached} came to their fault, {lived_on} lived on");
}

/// Has all threads at work, and some who disturb them, until `meanwhile` returns, whatever becomes
/// of it.
fn go_on_for_a_while(
    writers: &Writers,
    db: &Database,
    table: &Table,
    rng: &mut fastrand::Rng,
    meanwhile: impl FnOnce(),
) {
    let stops = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(stops);
        for t in 0..THREADS {
            scope.spawn(move || writers.run(t, db, table, stops));
        }
        for _ in 0..2 {
            let mut rng = rng.fork();
            scope.spawn(move || {
                while !stops.load(Ordering::Relaxed) {
                    let _ = disturb(writers, db, table, &mut rng);
                }
            });
        }
        meanwhile();
    });
}

/// What has failed was taken back, or is: the structure is sound, and threads can go on.
fn assert_lives_on(writers: &Writers, db: &Database, table: &Table, what: &str) {
    let mut findings = Vec::new();
    check_quiet_of(db, &mut findings);
    assert!(findings.is_empty(), "{what}: {findings:#?}");
    let (from, to) = (writers.durable(), writers.begun());
    writers.assert_is_between(db, &from, &to, &format!("alive, {what}"));
    let found = found_in(db, table);
    for (thread, (mut number, mut model)) in (0..THREADS).zip(from) {
        while rows_of(&model) != found_of(&found, thread) {
            Plan::of(writers.seed, thread, number).apply(&mut model);
            number += 1;
        }
        // From here on with a number that nobody has used.
        let next = to[thread as usize];
        *writers.all[thread as usize].durable.lock().unwrap() = (next, model);
    }
    let stops = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(stops);
        let run = |t| scope.spawn(move || writers.run(t, db, table, stops));
        let threads: Vec<_> = (0..THREADS).map(run).collect();
        std::thread::sleep(Duration::from_millis(60));
        db.checkpoint().unwrap_or_else(|e| panic!("{what}: {e}"));
        stops.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap().unwrap_or_else(|e| panic!("{what}: {e}"));
        }
    });
}

/// The device fails again while the next open recovers, and while work goes on there; then another
/// opens it.
fn fail_at_the_next_open(writers: &Writers, disk: SimDisk, rng: &mut fastrand::Rng, what: &str) {
    let times = if rng.bool() { Times::Once } else { Times::Forever };
    let fault = Fault::Io { on: some_kind(rng), at: rng.u64(..500), times };
    disk.inject(fault);
    let what = format!("{what}, then {fault:?}");
    let (from, to) = (writers.durable(), writers.begun());
    let verify = |db: &Database| {
        let mut findings = Vec::new();
        check_quiet_of(db, &mut findings);
        assert!(findings.is_empty(), "{what}: {findings:#?}");
        writers.assert_is_between(db, &from, &to, &what);
    };
    if let Ok(db) = Database::open_on(Arc::new(disk.clone()), small()) {
        for _ in 0..5 {
            let _ = db.finish_recovery();
            let _ = db.purge_all();
            if db.table("more").is_none() {
                let _ = db.create_table("more", items());
            }
            if let Some(table) = db.table("more") {
                let _ = Plan::of(writers.seed, 9, 1).run(&db, &table, Durability::Relaxed);
            }
            let _ = db.checkpoint();
        }
        disk.clear_faults();
        if db.checkpoint().is_ok() && db.sync().is_ok() {
            verify(&db);
        }
    }
    disk.clear_faults();
    let killed = !fails_syncs(&fault) && rng.bool();
    let next = if killed { disk.process_kill() } else { disk.crash(rng.u64(..)) };
    verify(&Database::open_on(Arc::new(next), small()).unwrap_or_else(|e| panic!("{what}: {e}")));
}

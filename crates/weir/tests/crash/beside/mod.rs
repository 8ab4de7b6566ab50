//! Crashes beside threads: workers, each with rows of its own on pages of all, those of the
//! database, and a companion that does what the [`Scene`] says. Recovery goes on beside them, and
//! is crashed again.
//!
//! A worker knows what it has committed. One of its rows has the number of its last transaction:
//! after a crash that tells which was the last. So it goes on at once, with rows that are not
//! recovered yet, or all of them are compared first. What depends on threads doesn't repeat: a seed
//! is where to begin.

mod model;
mod verify;
mod work;

use crate::profile::Profile;
use crate::world::Counts;
use fastrand::Rng;
use model::{Model, Survives, WORKERS};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use weir::{Database, Error, Options, Schema, Type};
use weir_os::SimDisk;

/// What goes on beside the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    /// Dirty pages are noted.
    DirtyTables,
    /// Backups are made; their disks crash, too.
    Backups,
    /// Nothing else: a long log is recovered.
    Recovery,
    /// The log's capacity goes up and down; the next start asks for this one, for another, or for
    /// none.
    Capacity,
    All,
}

const SCENES: [Scene; 5] =
    [Scene::DirtyTables, Scene::Backups, Scene::Recovery, Scene::Capacity, Scene::All];

/// Longest that workers work without a crash.
const WORK_MAX: Duration = Duration::from_secs(2);

struct Beside {
    scene: Scene,
    rng: Rng,
    disk: SimDisk,
    models: [Mutex<Model>; WORKERS],
    /// Orders what workers ask for and are told.
    clock: AtomicU64,
    copies: Mutex<Vec<verify::Copy>>,
    options: Options,
    /// What the next start asks for; 0: whatever there is.
    redo: AtomicU64,
    /// Of each worker, and their longest usual body.
    keys: u64,
    body: usize,
    counts: Mutex<Counts>,
}

/// The power has failed.
struct Down;

fn schema() -> Schema {
    Schema::builder()
        .column("k", Type::U64)
        .column("s", Type::U64)
        .column("a", Type::I64)
        .column("body", Type::Bytes)
        .primary_key(&["k"])
        .index("by_a", &["a"])
        .build()
        .expect("the schema is one")
}

/// Runs a seed; panics where the database is not as the workers say.
pub fn run(seed: u64, _: &'static Profile) -> Counts {
    let scene = SCENES[seed as usize % SCENES.len()];
    let mut beside = Beside::new(seed, scene);
    println!("seed {seed}: {scene:?}");
    beside.run();
    beside.counts.into_inner().expect("nobody has panicked")
}

impl Beside {
    fn new(seed: u64, scene: Scene) -> Beside {
        let mut rng = Rng::with_seed(seed);
        let options = match rng.u8(..3) {
            0 => Options::default(),
            1 => Options::default().staging_leaves(0),
            _ => Options::default().staging_leaves(16),
        };
        let options = options.memory_bytes(rng.u64(2..8) << 20);
        Beside {
            scene,
            disk: SimDisk::new(rng.u64(..)),
            models: Default::default(),
            clock: AtomicU64::new(1),
            copies: Mutex::default(),
            options: options.lock_wait_timeout(Duration::from_secs(20)),
            redo: AtomicU64::new(match scene {
                Scene::Recovery => rng.u64(4..24) << 20,
                _ => rng.u64(1..10) << 20,
            }),
            keys: 50 << rng.u32(..5),
            body: 100 << rng.u32(..8),
            rng,
            counts: Mutex::default(),
        }
    }

    fn run(&mut self) {
        let mut db = self.open().expect("a new database");
        db.create_table("rows", schema()).expect("a new table");
        if self.rng.bool() {
            self.fill(&db);
        }
        db.sync().expect("fair weather");
        for _ in 0..self.rng.u32(3..8) {
            let most = 20 << self.rng.u32(..9);
            self.disk.crash_at(self.disk.operations() + self.rng.u64(..most));
            self.work(&db);
            drop(db);
            let mut survived = self.crash();
            let copies = std::mem::take(&mut *self.copies.lock().expect("nobody has panicked"));
            copies.iter().for_each(|copy| self.verify_copy(copy));
            for _ in 0..self.rng.u32(..4) {
                survived = survived.max(self.crash_start());
            }
            db = self.open().unwrap_or_else(|error| panic!("the database doesn't open: {error}"));
            self.verify(&db, survived);
        }
        self.compare(&db, &[]);
        self.check(&db);
    }

    fn options(&self) -> Options {
        match self.redo.load(Ordering::Relaxed) {
            0 => self.options.clone(),
            bytes => self.options.clone().redo_capacity_bytes(bytes),
        }
    }

    fn open(&self) -> Result<Database, Error> {
        Database::open_on(Arc::new(self.disk.clone()), self.options())
    }

    /// Workers and companion work until the power fails.
    fn work(&mut self, db: &Database) {
        let seeds: [u64; WORKERS + 1] = std::array::from_fn(|_| self.rng.u64(..));
        let (this, is_over, began) = (&*self, AtomicBool::new(false), Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| this.accompany(db, seeds[WORKERS], &is_over));
            let run = |w: usize| move || this.work_as(db, w, seeds[w]);
            let workers: [_; WORKERS] = std::array::from_fn(|w| scope.spawn(run(w)));
            while !workers.iter().any(|worker| worker.is_finished()) && began.elapsed() < WORK_MAX {
                std::thread::sleep(Duration::from_micros(300));
            }
            this.disk.power_off();
            is_over.store(true, Ordering::Relaxed);
        });
    }

    /// Cuts the power or kills the process, of a database that is dropped already; what that leaves
    /// of what was acknowledged.
    fn crash(&mut self) -> Survives {
        self.disk.power_off();
        let killed = self.rng.u8(..4) == 0;
        let mut counts = self.counts();
        (counts.kills, counts.power_cuts) =
            (counts.kills + u64::from(killed), counts.power_cuts + u64::from(!killed));
        drop(counts);
        if killed {
            self.disk = self.disk.process_kill();
            return Survives::Kill;
        }
        self.disk = self.disk.crash(self.rng.u64(..));
        Survives::PowerCut
    }

    /// The power fails while the database is opened, or beside the recovery that goes on then.
    fn crash_start(&mut self) -> Survives {
        let soon = self.rng.u64(..600) >> self.rng.u32(..6);
        let at = if self.rng.bool() { soon } else { self.rng.u64(50..4000) };
        self.disk.crash_at(at);
        match self.open() {
            Ok(db) => {
                std::thread::sleep(Duration::from_micros(self.rng.u64(..3000)));
                self.disk.power_off();
                drop(db);
            }
            Err(error) => {
                self.down("open", &error);
            }
        }
        self.counts().crashed_recoveries += 1;
        self.crash()
    }

    /// An error that the power cut explains.
    fn down(&self, what: &str, error: &Error) -> Down {
        let environment = matches!(error, Error::Storage(_) | Error::Sort(_));
        assert!(environment && self.disk.is_crashed(), "{what} failed: {error} ({error:?})");
        Down
    }

    fn model(&self, w: usize) -> MutexGuard<'_, Model> {
        self.models[w].lock().expect("nobody has panicked")
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().expect("nobody has panicked")
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }
}

//! A start that is cut short, at each of its operations, is begun anew, and nothing is lost.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir::{
    BackgroundStep, Database, Durability, Isolation, Options, Schema, Shutdown, Table, Value,
};
use weir_os::{AlignedBuf, Create, Disk, Mode, SimDisk};

fn item(id: u64, version: u64) -> Item {
    (id as i64 % 7, format!("{id}"), vec![version as u8; 20 + (id as usize * 37) % 900])
}

fn open(disk: &SimDisk) -> Result<Database, weir::Error> {
    let options = options(2 << 20, 1 << 20).durability(Durability::Sync).single_threaded();
    Database::open_on(Arc::new(disk.clone()), options.staging_leaves(4))
}

/// A database with all that a start has to do: changes in the log alone, a transaction that was
/// running, one that was prepared, undo that waits for purge. What must be found in it.
fn interrupted() -> (SimDisk, Vec<(u64, Item)>) {
    let disk = SimDisk::new(1);
    let db = open(&disk).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let put = |ids: std::ops::Range<u64>, version| {
        retried(&db, Isolation::default(), |txn| {
            ids.clone()
                .try_for_each(|id| txn.upsert(&table, &values(id, &item(id, version))).map(drop))
        });
    };
    put(0..400, 1);
    db.checkpoint().unwrap();
    put(100..300, 2);
    retried(&db, Isolation::default(), |txn| {
        (0..50).try_for_each(|id| txn.delete(&table, &[Value::U64(id)]).map(drop))
    });
    let mut prepared = db.begin(Isolation::default()).unwrap();
    (350..360).for_each(|id| assert!(prepared.upsert(&table, &values(id, &item(id, 3))).unwrap()));
    prepared.prepare(b"xid").unwrap();
    let mut running = db.begin(Isolation::default()).unwrap();
    (60..90).for_each(|id| assert!(running.delete(&table, &[Value::U64(id)]).unwrap()));
    (500..600).for_each(|id| running.insert(&table, &values(id, &item(id, 4))).unwrap());
    put(310..320, 5);
    let version = |id| match id {
        100..300 => 2,
        310..320 => 5,
        _ => 1,
    };
    let expected = (50..400).map(|id| (id, item(id, version(id)))).collect();
    (disk.crash(7), expected)
}

fn assert_whole(db: &Database, expected: &[(u64, Item)], what: &str) {
    assert_eq!(db.prepared(), [b"xid"], "{what}");
    let table = db.table("items").unwrap();
    same(expected, &all_items(&mut db.begin(Isolation::default()).unwrap(), &table), what);
    let mut findings = Vec::new();
    db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{what}: {findings:#?}");
}

#[test]
fn a_crash_at_each_operation_of_a_start_loses_nothing() {
    let (found, expected) = interrupted();
    let operations = {
        let disk = found.process_kill();
        let before = disk.operations();
        let db = open(&disk).unwrap();
        let operations = disk.operations() - before;
        assert_whole(&db, &expected, "a start that isn't cut short");
        operations
    };
    let mut crashed = 0;
    for at in 0..operations {
        for killed in [false, true] {
            let what = format!("crash at operation {at} of {operations}, killed {killed}");
            let disk = found.process_kill();
            disk.crash_at(disk.operations() + at);
            crashed += u64::from(open(&disk).is_err());
            let disk = if killed { disk.process_kill() } else { disk.crash(at) };
            let db = open(&disk).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_whole(&db, &expected, &what);
            db.commit_prepared(b"xid", Durability::Write).unwrap();
            db.close(Shutdown::Clean, &mut |_| {}).unwrap();
        }
    }
    assert!(crashed > 40, "{crashed} starts were cut short, of {operations} operations each");
}

/// Changes that are in the log alone, of more pages than fit into memory: they are read many at a
/// time.
#[test]
fn recovery_reads_pages_together() {
    let disk = SimDisk::new(1);
    let open = |disk: &SimDisk, memory| {
        let options = options(memory, 64 << 20).single_threaded();
        Database::open_on(Arc::new(disk.clone()), options).unwrap()
    };
    let db = open(&disk, 24 << 20);
    let table = db.create_table("items", items()).unwrap();
    let put = |step, version| {
        retried(&db, Isolation::default(), |txn| {
            (0..20_000)
                .step_by(step)
                .try_for_each(|id| txn.upsert(&table, &values(id, &item(id, version))).map(drop))
        });
    };
    put(1, 1);
    db.checkpoint().unwrap();
    put(40, 2);
    db.sync().unwrap();
    for memory in [24, 4] {
        let db = open(&disk.process_kill(), memory << 20);
        db.finish_recovery().unwrap();
        let status = db.status();
        let (ahead, alone) = (status.pages_read_ahead, status.pages_read);
        assert!(ahead > 200 && alone * 4 < ahead, "{ahead} read ahead, {alone} alone");
        let table = db.table("items").unwrap();
        let version = |id| if id % 40 == 0 { 2 } else { 1 };
        let expected: Vec<_> = (0..20_000).map(|id| (id, item(id, version(id)))).collect();
        same(&expected, &all_items(&mut db.begin(Isolation::default()).unwrap(), &table), "all");
    }
}

/// A log that was written with much memory is applied with little: pages are written again and
/// again, and what they leave is used again.
#[test]
fn recovery_with_little_memory_uses_places_again() {
    let disk = SimDisk::new(1);
    let open = |disk: &SimDisk, memory| {
        let options = options(memory, 64 << 20).single_threaded();
        Database::open_on(Arc::new(disk.clone()), options).unwrap()
    };
    let db = open(&disk, 24 << 20);
    let table = db.create_table("items", items()).unwrap();
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut model = std::collections::BTreeMap::new();
    for version in 0..10 {
        retried(&db, Isolation::default(), |txn| {
            for _ in 0..4000 {
                let id = rng.u64(..20_000);
                txn.upsert(&table, &values(id, &item(id, version)))?;
                model.insert(id, item(id, version));
            }
            Ok(())
        });
    }
    db.sync().unwrap();
    let db = open(&disk.process_kill(), 2 << 20);
    db.finish_recovery().unwrap();
    let status = db.status();
    let (file, pages) = (status.data_file_bytes, status.pages_allocated);
    let written = status.pages_written_free_frames;
    assert!(written > 4 * pages, "{written} written of {pages}");
    assert!(file < 2 * 16384 * pages, "{file} bytes for {pages} pages");
    let table = db.table("items").unwrap();
    let expected: Vec<_> = model.into_iter().collect();
    same(&expected, &all_items(&mut db.begin(Isolation::default()).unwrap(), &table), "all");
}

/// Definitions were changed, and files became longer, in a database that somebody else was told is
/// complete.
#[test]
fn other_handles_are_told_that_the_database_is_closed() {
    let disk = SimDisk::new(1);
    let options = Options::default().memory_bytes(2 << 20).redo_capacity_bytes(1 << 20);
    let db = Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert_raw(&table, b"key", b"row", &[]).unwrap();
    db.clone().close(Shutdown::Clean, &mut |_| {}).unwrap();
    let used = disk.used_bytes();
    let told = |what: &str, result: weir::Result<()>| {
        let error = result.expect_err(what).to_string();
        assert!(error.contains("has been closed"), "{what}: {error}");
    };
    told("begin", db.begin(Isolation::RepeatableRead).map(drop));
    let schema = Schema::raw(vec![], vec![]).unwrap();
    told("create_table", db.create_table("other", schema).map(drop));
    told("drop_table", db.drop_table(&table));
    told("rename_table", db.rename_table(&table, "other"));
    told("truncate_table", db.truncate_table(&table));
    told("set_meta", db.set_meta(&table, b"meta"));
    told("check", db.check(&mut |_| {}).map(drop));
    told("compact", db.compact(&mut |_| {}).map(drop));
    told("checkpoint", db.checkpoint());
    told("sync", db.sync());
    told("purge_all", db.purge_all());
    told("set_redo_capacity", db.set_redo_capacity(4 << 20).map(drop));
    told("close", db.clone().close(Shutdown::Clean, &mut |_| {}));
    assert_eq!(disk.used_bytes(), used);
    txn.rollback().unwrap();
    drop((db, table));
    let db = Database::open_on(Arc::new(disk), options).unwrap();
    assert_eq!(db.table_names(), ["t"]);
}

/// Who committed with less than `Durability::Sync` was told that it has, and nothing of it was
/// found again.
#[test]
fn a_commit_after_the_close_is_refused() {
    for durability in [Durability::Sync, Durability::Write, Durability::Relaxed] {
        let disk = SimDisk::new(1);
        let options = options(2 << 20, 1 << 20).durability(durability);
        let db = Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        let table = db.create_table("items", items()).unwrap();
        retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(1, &item(1, 1))));
        let mut txn = db.begin(Isolation::default()).unwrap();
        txn.insert(&table, &values(2, &item(2, 1))).unwrap();
        db.clone().close(Shutdown::Fast, &mut |_| {}).unwrap();
        let error = txn.commit().expect_err("nobody makes it durable").to_string();
        assert!(error.contains("has been closed"), "{error}");
        drop((table, db));
        let db = Database::open_on(Arc::new(disk.process_kill()), options).unwrap();
        let table = db.table("items").unwrap();
        let mut txn = db.begin(Isolation::default()).unwrap();
        same(&[(1, item(1, 1))], &all_items(&mut txn, &table), "what was committed before");
    }
}

/// Between the last look at the log and the word that the database is closed, a commit was lost.
#[test]
fn commits_beside_a_close_are_refused_or_kept() {
    for round in 0..100 {
        let disk = SimDisk::new(round);
        let options = options(2 << 20, 1 << 20).durability(Durability::Relaxed);
        let db = Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let commit = |id: u64| -> weir::Result<()> {
            let mut txn = db.begin(Isolation::default())?;
            txn.insert(&table, &values(id, &item(id, 1)))?;
            txn.commit()
        };
        let committed = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2u64)
                .map(|thread| {
                    let commit = &commit;
                    scope.spawn(move || {
                        let ids = (0..).map(|n| 2 * n + thread);
                        ids.take_while(|id| commit(*id).is_ok()).collect::<Vec<u64>>()
                    })
                })
                .collect();
            for _ in 0..round {
                std::thread::yield_now();
            }
            db.clone().close(Shutdown::Fast, &mut |_| {}).unwrap();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<u64>>()
        });
        drop((table, db));
        let db = Database::open_on(Arc::new(disk.crash(round)), options).unwrap();
        let table = db.table("items").unwrap();
        let mut txn = db.begin(Isolation::default()).unwrap();
        let found: Vec<u64> = all_items(&mut txn, &table).into_iter().map(|(id, _)| id).collect();
        let lost: Vec<_> = committed.iter().filter(|id| !found.contains(id)).collect();
        assert!(lost.is_empty(), "{lost:?} of {} are lost in round {round}", committed.len());
    }
}

/// It went on without its threads: who waited for what they do did so for ever.
#[test]
fn a_database_that_can_not_be_closed_cleanly_is_closed() {
    use weir_os::sim::{Fault, Times};
    let disk = SimDisk::new(1);
    let options = options(2 << 20, 1 << 20).durability(Durability::Sync);
    let db = Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(1, &item(1, 1))));
    disk.inject(Fault::NoSpace { at: disk.operations(), times: Times::Forever });
    let error = db.clone().close(Shutdown::Clean, &mut |_| {}).expect_err("no space");
    assert!(error.is_no_space(), "{error}");
    disk.clear_faults();
    let error = db.begin(Isolation::default()).map(drop).expect_err("it is closed").to_string();
    assert!(error.contains("has been closed"), "{error}");
    drop((table, db));
    let db = Database::open_on(Arc::new(disk), options).unwrap();
    let table = db.table("items").unwrap();
    let mut txn = db.begin(Isolation::default()).unwrap();
    same(&[(1, item(1, 1))], &all_items(&mut txn, &table), "what was committed");
}

/// It waited for as long as it would have otherwise.
#[test]
fn who_waits_for_a_row_is_told_of_the_close() {
    let options = options(2 << 20, 1 << 20).lock_wait_timeout(Duration::from_secs(5));
    let db = Database::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut holder = db.begin(Isolation::default()).unwrap();
    holder.insert(&table, &values(1, &item(1, 1))).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut txn = db.begin(Isolation::default()).unwrap();
            txn.insert(&table, &values(1, &item(1, 2)))
        });
        while db.locks().iter().all(|lock| lock.wait.is_none()) {
            std::thread::yield_now();
        }
        db.clone().close(Shutdown::Fast, &mut |_| {}).unwrap();
        let error = waiter.join().unwrap().expect_err("nobody goes on").to_string();
        assert!(error.contains("has been closed"), "{error}");
    });
}

/// The log is applied while others read and change what it is about, in threads of their own, and
/// who closes the database or kills it meanwhile loses nothing.
#[test]
fn a_database_is_read_and_changed_while_it_is_recovered() {
    let disk = SimDisk::new(1);
    let options = options(24 << 20, 16 << 20);
    let db = Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let put = |db: &Database, table: &Table, ids: &[u64], version| {
        retried(db, Isolation::default(), |txn| {
            ids.iter()
                .try_for_each(|&id| txn.upsert(table, &values(id, &item(id, version))).map(drop))
        });
    };
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut model = std::collections::BTreeMap::new();
    let mut some = |rng: &mut fastrand::Rng, db: &Database, table: &Table, version| {
        let ids: Vec<u64> = (0..500).map(|_| rng.u64(..6000)).collect();
        put(db, table, &ids, version);
        ids.iter().for_each(|&id| drop(model.insert(id, item(id, version))));
        model.clone()
    };
    for version in 0..12 {
        some(&mut rng, &db, &table, version);
    }
    let (mut disk, mut on_demand) = (disk, 0);
    drop((db, table));
    for round in 0..6 {
        let db = Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
        let table = db.table("items").unwrap();
        let expected = some(&mut rng, &db, &table, 100 + round);
        let mut txn = db.begin(Isolation::default()).unwrap();
        for _ in 0..200 {
            let id = rng.u64(..6000);
            let got = txn.get(&table, &[Value::from(id)]).unwrap().is_some();
            assert_eq!(got, expected.contains_key(&id), "row {id}, round {round}, seed {seed}");
        }
        on_demand += db.status().recovered_pages_on_demand;
        if round % 2 == 0 {
            let expected: Vec<_> = expected.into_iter().collect();
            same(&expected, &all_items(&mut txn, &table), "all");
        }
        drop((txn, table));
        match round % 3 {
            0 => db.close(Shutdown::Clean, &mut |_| {}).unwrap(),
            1 => db.close(Shutdown::Fast, &mut |_| {}).unwrap(),
            _ => {
                db.sync().unwrap();
                disk = disk.process_kill();
            }
        }
    }
    assert!(on_demand > 0, "no page was wanted before its turn");
}

/// The log before the table isn't read; without the table, or beside another control file, it is,
/// and the same is found.
#[test]
fn a_start_reads_the_log_from_the_dirty_page_table_on() {
    let disk = SimDisk::new(1);
    let options = options(24 << 20, 16 << 20).durability(Durability::Sync).single_threaded();
    let db = Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let put = |version| {
        retried(&db, Isolation::default(), |txn| {
            (0..3000)
                .try_for_each(|id| txn.upsert(&table, &values(id, &item(id, version))).map(drop))
        });
    };
    (0..4).for_each(put);
    let before = disk.process_kill();
    db.background_step(BackgroundStep::NoteDirtyPages).unwrap();
    put(4);
    let opened = |disk: SimDisk| {
        let db = Database::open_on(Arc::new(disk), options.clone()).unwrap();
        let read = db.status().disk.read_bytes;
        let table = db.table("items").unwrap();
        let all = all_items(&mut db.begin(Isolation::default()).unwrap(), &table);
        db.check(&mut |finding| panic!("{finding}")).unwrap();
        (read, all)
    };
    let (with, found) = opened(disk.process_kill());
    let expected: Vec<_> = (0..3000).map(|id| (id, item(id, 4))).collect();
    same(&expected, &found, "with the table");
    let without = disk.process_kill();
    without.remove("dirty").unwrap();
    let (read, found) = opened(without);
    same(&expected, &found, "without the table");
    assert!(with + (4 << 20) < read, "{with} bytes read with the table, {read} without");
    // As a backup from before that is put in place again, and the table forgotten.
    let forgotten = before.process_kill();
    let copy = |from: &SimDisk, to: &SimDisk| {
        let from = from.open("dirty", Create::No, Mode::Cached).unwrap();
        let to = to.open("dirty", Create::IfAbsent, Mode::Cached).unwrap();
        let bytes = from.read(0, AlignedBuf::zeroed(from.len().unwrap() as usize)).unwrap();
        to.write(0, bytes).unwrap();
    };
    copy(&disk, &forgotten);
    let expected: Vec<_> = (0..3000).map(|id| (id, item(id, 3))).collect();
    same(&expected, &opened(forgotten).1, "beside another control file");
}

/// What threads have written, and what they were told of it.
struct Written {
    /// Of each row, the version that was last acknowledged, and the one that was last tried.
    rows: Vec<(AtomicU64, AtomicU64)>,
    /// The rows of each thread's last commit, and their version.
    last: Vec<Mutex<(u64, Vec<u64>)>>,
}

const WRITERS: u64 = 4;
const ROWS: u64 = 4000;
/// Rows from here on are changed by transactions that never commit.
const UNCOMMITTED: u64 = ROWS;
const ALL_ROWS: u64 = ROWS + 400;

impl Written {
    /// Compares what is there with what must be, and may be; that counts from now on.
    fn verify(&self, db: &Database, what: &str) {
        let table = db.table("items").unwrap();
        let mut txn = db.begin(Isolation::default()).unwrap();
        let found = all_items(&mut txn, &table);
        assert_eq!(found.len() as u64, ALL_ROWS, "{what}");
        let version = |id: u64| found[id as usize].1.0 as u64;
        for (at, (id, found)) in found.iter().enumerate() {
            assert_eq!((*id, at as u64), (at as u64, *id), "{what}");
            let version = found.0 as u64;
            assert_eq!(*found, versioned(*id, version), "{what}: row {id}");
            let (acknowledged, tried) = &self.rows[at];
            let may_be = acknowledged.load(Relaxed)..=tried.load(Relaxed);
            assert!(may_be.contains(&version), "{what}: row {id}: {version}, not {may_be:?}");
            acknowledged.store(version, Relaxed);
        }
        for last in &self.last {
            let (tried, rows) = &*last.lock().unwrap();
            let done = rows.iter().filter(|&&id| version(id) == *tried).count();
            assert!(done == 0 || done == rows.len(), "{what}: {done} of {rows:?} are at {tried}");
        }
    }

    /// Writes until the disk fails.
    fn write(&self, db: &Database, thread: u64, seed: u64) -> weir::Result<()> {
        let mut rng = fastrand::Rng::with_seed(seed ^ thread);
        let table = db.table("items").unwrap();
        let mut uncommitted = db.begin(Isolation::default())?;
        loop {
            for _ in 0..rng.u32(..4) {
                let id = UNCOMMITTED + thread + WRITERS * rng.u64(..100);
                uncommitted.upsert(&table, &values(id, &versioned(id, 1 << 40)))?;
            }
            let mut last = self.last[thread as usize].lock().unwrap();
            last.0 += 1;
            last.1 =
                (0..rng.u64(1..6)).map(|_| thread + WRITERS * rng.u64(..ROWS / WRITERS)).collect();
            last.1.sort_unstable();
            last.1.dedup();
            let (version, rows) = last.clone();
            drop(last);
            let mut txn = db.begin(Isolation::default())?;
            for &id in &rows {
                self.rows[id as usize].1.store(version, Relaxed);
                txn.upsert(&table, &values(id, &versioned(id, version)))?;
            }
            txn.commit()?;
            rows.iter().for_each(|&id| self.rows[id as usize].0.store(version, Relaxed));
        }
    }
}

fn versioned(id: u64, version: u64) -> Item {
    (
        version as i64,
        format!("{id}"),
        vec![version as u8; 20 + (id as usize * 37 + version as usize) % 900],
    )
}

/// Again and again, at any moment of the recovery from the power cut before.
#[test]
fn power_cuts_beside_many_threads_lose_nothing() {
    let _watchdog = Watchdog::new("power cuts");
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut disk = SimDisk::new(seed);
    let options = |rng: &mut fastrand::Rng| {
        let options = options(rng.u64(2..10) << 20, rng.u64(1..8) << 20);
        options.durability(Durability::Sync).lock_wait_timeout(Duration::from_secs(60))
    };
    let db = Database::open_on(Arc::new(disk.clone()), options(&mut rng)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    for ids in (0..ALL_ROWS).collect::<Vec<_>>().chunks(100) {
        retried(&db, Isolation::default(), |txn| {
            ids.iter().try_for_each(|&id| txn.insert(&table, &values(id, &versioned(id, 0))))
        });
    }
    drop((table, db));
    let written = Written {
        rows: (0..ALL_ROWS).map(|_| Default::default()).collect(),
        last: (0..WRITERS).map(|_| Mutex::default()).collect(),
    };
    for round in 0..30 * factor() {
        let what = format!("round {round}, seed {seed}");
        let db = Database::open_on(Arc::new(disk.clone()), options(&mut rng))
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        if rng.u8(..4) > 0 {
            written.verify(&db, &what);
        }
        if rng.u8(..8) == 0 {
            let mut findings = Vec::new();
            db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
            assert!(findings.is_empty(), "{what}: {findings:#?}");
        }
        let (rest, keeps) = (rng.u64(..80), rng.bool());
        let (cut, killed) = (rng.u64(..), rng.u8(..4) == 0);
        let next = std::thread::scope(|scope| {
            for thread in 0..WRITERS {
                let (db, written) = (&db, &written);
                scope.spawn(move || drop(written.write(db, thread, cut)));
            }
            if keeps {
                let mut steps = (0..).map(|n| {
                    [
                        BackgroundStep::NoteDirtyPages,
                        BackgroundStep::MoveCheckpoint,
                        BackgroundStep::NoteDirtyPages,
                        BackgroundStep::FreeFrames,
                    ][n % 4]
                });
                let db = &db;
                scope.spawn(
                    move || while steps.next().is_some_and(|s| db.background_step(s).is_ok()) {},
                );
            }
            std::thread::sleep(Duration::from_millis(rest));
            // Some are closed beside their users, some at once.
            match cut % 8 {
                0 | 1 => db.clone().close(Shutdown::Fast, &mut |_| {}).unwrap(),
                2 => db.clone().close(Shutdown::Clean, &mut |_| {}).unwrap(),
                _ => {}
            }
            let acknowledged: Vec<u64> =
                written.rows.iter().map(|row| row.0.load(Relaxed)).collect();
            let next = if killed { disk.process_kill() } else { disk.crash(cut) };
            disk.power_off();
            (next, acknowledged)
        });
        // What was acknowledged since the cut was so on the disk that is gone.
        for (row, acknowledged) in written.rows.iter().zip(next.1) {
            row.0.store(acknowledged, Relaxed);
        }
        drop(db);
        disk = next.0;
    }
}

/// Its rows are locked until then, and whoever changes a definition takes part.
#[test]
fn a_long_transaction_that_was_running_is_rolled_back_while_the_database_is_open() {
    const ROWS: u64 = 30_000;
    let disk = SimDisk::new(1);
    let options = options(24 << 20, 64 << 20).lock_wait_timeout(Duration::from_secs(600));
    let db = Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(0, &item(0, 1))));
    let mut loser = db.begin(Isolation::default()).unwrap();
    for id in 0..ROWS {
        loser.upsert(&table, &values(id, &item(id, 2))).unwrap();
    }
    db.sync().unwrap();
    let killed = [disk.process_kill(), disk.process_kill()];
    for (disk, changes_definitions) in killed.into_iter().zip([false, true]) {
        let db = Database::open_on(Arc::new(disk), options.clone()).unwrap();
        let table = db.table("items").unwrap();
        let mut txn = db.begin(Isolation::default()).unwrap();
        assert_eq!(all_items(&mut txn, &table), [(0, item(0, 1))], "the last committed state");
        drop(txn);
        if changes_definitions {
            let other = db.create_table("other", items()).unwrap();
            assert_eq!(db.status().recovery_transactions_left, 0);
            db.drop_table(&other).unwrap();
        }
        // Each of its rows: the last that it wrote is the first to be free.
        for id in [ROWS - 1, 1] {
            retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(id, &item(id, 3))));
        }
        db.finish_recovery().unwrap();
        assert_eq!(db.status().recovery_transactions_left, 0);
        db.purge_all().unwrap();
        db.check(&mut |finding| panic!("{finding}")).unwrap();
        let expected = [(0, item(0, 1)), (1, item(1, 3)), (ROWS - 1, item(ROWS - 1, 3))];
        same(&expected, &all_items(&mut db.begin(Isolation::default()).unwrap(), &table), "all");
    }
}

/// The next checkpoint that moved told the control file of it, and none before.
#[test]
fn a_redo_capacity_that_was_set_outlives_a_kill() {
    let disk = SimDisk::new(1);
    let options = || Options::default().memory_bytes(2 << 20).single_threaded();
    let open = |disk, options| Database::open_on(Arc::new(disk), options).unwrap();
    let db = open(disk.clone(), options().redo_capacity_bytes(1 << 20));
    for capacity in [4 << 20, 2 << 20] {
        assert_eq!(db.set_redo_capacity(capacity).unwrap(), capacity);
        assert_eq!(open(disk.process_kill(), options()).status().redo_capacity, capacity);
    }
}

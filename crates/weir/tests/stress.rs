//! Many threads on one database: what any interleaving must keep.
//!
//! `WEIR_STRESS=10` runs ten times as long; `WEIR_SEED` repeats a seed as far as threads permit.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use weir::{
    Bounds, Database, Direction, Error, IndexRef, Isolation, Schema, Table, Transaction, Type,
    Value,
};

const ISOLATIONS: [Isolation; 3] =
    [Isolation::ReadUncommitted, Isolation::ReadCommitted, Isolation::RepeatableRead];

fn accounts() -> Schema {
    Schema::builder()
        .column("id", Type::U64)
        .column("branch", Type::I64)
        .column("balance", Type::I64)
        .column("filler", Type::Bytes)
        .primary_key(&["id"])
        .index("by_branch", &["branch"])
        .index("by_balance", &["balance"])
        .build()
        .unwrap()
}

struct Bank {
    db: Database,
    table: Table,
    accounts: u64,
    filler: usize,
}

const OPENING: i64 = 1000;

impl Bank {
    fn open(db: Database, accounts_: u64, filler: usize) -> Bank {
        let table = db.create_table("accounts", accounts()).unwrap();
        let bank = Bank { db, table, accounts: accounts_, filler };
        for from in (0..accounts_).step_by(500) {
            let mut txn = bank.db.begin(Isolation::RepeatableRead).unwrap();
            for id in from..(from + 500).min(accounts_) {
                bank.put(&mut txn, id, (id % 7) as i64, OPENING).unwrap();
            }
            txn.commit().unwrap();
        }
        bank
    }

    fn put(&self, txn: &mut Transaction, id: u64, branch: i64, balance: i64) -> Result<(), Error> {
        let filler = vec![id as u8; self.filler];
        let row = [Value::U64(id), Value::I64(branch), Value::I64(balance), Value::Bytes(&filler)];
        txn.upsert(&self.table, &row).map(|_| ())
    }

    fn take(&self, txn: &mut Transaction, id: u64) -> Result<(i64, i64), Error> {
        let row = txn.get_for_update(&self.table, &[Value::U64(id)])?.expect("accounts stay");
        Ok((row.get(1).as_i64().unwrap(), row.get(2).as_i64().unwrap()))
    }

    fn transfer(&self, txn: &mut Transaction, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let from = rng.u64(..self.accounts);
        let to = rng.u64(..self.accounts);
        if from == to {
            return Ok(());
        }
        let amount = rng.i64(1..50);
        let (branch_from, balance_from) = self.take(txn, from)?;
        let (branch_to, balance_to) = self.take(txn, to)?;
        let savepoint = txn.savepoint()?;
        self.put(txn, from, branch_from, balance_from - amount)?;
        if rng.u8(..8) == 0 {
            // A change of mind in the middle, when the sum is wrong.
            txn.rollback_to(savepoint)?;
            self.put(txn, from, (branch_from + 1) % 7, balance_from - amount)?;
        }
        self.put(txn, to, branch_to, balance_to + amount)
    }

    fn sum(&self, txn: &mut Transaction, rng: &mut fastrand::Rng) -> (u64, i64) {
        let direction = if rng.bool() { Direction::Forward } else { Direction::Backward };
        let index = match rng.u8(..4) {
            0 => IndexRef::Primary,
            1 => IndexRef::Named("by_branch"),
            2 => IndexRef::Named("by_balance"),
            _ => {
                let mut cursor =
                    txn.scan_keys(&self.table, "by_balance", Bounds::all(), direction).unwrap();
                let (mut n, mut sum) = (0, 0);
                while let Some(row) = cursor.next().unwrap() {
                    n += 1;
                    sum += row.get(2).unwrap().as_i64().unwrap();
                }
                return (n, sum);
            }
        };
        let mut cursor = txn.scan(&self.table, index, Bounds::all(), direction).unwrap();
        let (mut n, mut sum) = (0, 0);
        while let Some(row) = cursor.next().unwrap() {
            n += 1;
            sum += row.get(2).unwrap().as_i64().unwrap();
        }
        (n, sum)
    }

    fn run(&self, writers: u64, transfers: u64, seed: u64, also: impl Fn(u64) + Sync) {
        let expected = (self.accounts, self.accounts as i64 * OPENING);
        let left = AtomicU64::new(transfers);
        let running = AtomicBool::new(true);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let (running, bank) = (&running, self);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed + 100 + thread);
                    while running.load(Ordering::Relaxed) {
                        let isolation = ISOLATIONS[rng.usize(..3)];
                        let mut txn = bank.db.begin(isolation).unwrap();
                        for _ in 0..rng.u32(1..4) {
                            let found = bank.sum(&mut txn, &mut rng);
                            if isolation != Isolation::ReadUncommitted {
                                assert_eq!(found, expected, "{isolation:?}");
                            }
                        }
                    }
                });
            }
            let mut threads = Vec::new();
            for thread in 0..writers {
                let (left, bank, also) = (&left, self, &also);
                threads.push(scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed + thread);
                    loop {
                        let now = left.load(Ordering::Relaxed);
                        if now == 0 {
                            break;
                        }
                        let _ = left.compare_exchange(
                            now,
                            now - 1,
                            Ordering::Relaxed,
                            Ordering::Relaxed,
                        );
                        also(now);
                        let isolation = ISOLATIONS[rng.usize(..3)];
                        if rng.u8(..10) == 0 {
                            let mut txn = bank.db.begin(isolation).unwrap();
                            match bank.transfer(&mut txn, &mut rng) {
                                Ok(()) => txn.rollback().unwrap(),
                                Err(Error::Deadlock) => {}
                                Err(error) => panic!("{error}"),
                            }
                        } else {
                            retried(&bank.db, isolation, |txn| bank.transfer(txn, &mut rng));
                        }
                    }
                }));
            }
            let ended: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
            running.store(false, Ordering::Relaxed);
            for thread in ended {
                thread.unwrap();
            }
        });
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..12 {
            let mut txn = self.db.begin(Isolation::RepeatableRead).unwrap();
            assert_eq!(self.sum(&mut txn, &mut rng), expected);
        }
        check_quiet(&self.db);
    }
}

#[test]
fn transfers_keep_the_sum_in_every_snapshot() {
    let _watchdog = Watchdog::new("transfers, all in memory");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(64 << 20, 64 << 20)).unwrap();
    Bank::open(db, 200, 20).run(4, 6000 * factor(), seed(), |_| {});
}

#[test]
fn transfers_on_data_larger_than_memory() {
    let _watchdog = Watchdog::new("transfers, data larger than memory");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(2 << 20, 4 << 20)).unwrap();
    Bank::open(db, 4000, 1500).run(4, 1000 * factor(), seed(), |_| {});
}

#[test]
fn transfers_with_a_tiny_log_that_grows_and_shrinks() {
    let _watchdog = Watchdog::new("transfers, redo capacity changes");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(4 << 20, 1 << 20)).unwrap();
    let bank = Bank::open(db, 1000, 600);
    bank.run(8, 3000 * factor(), seed(), |now| {
        if now.is_multiple_of(100) {
            let capacity = [1 << 20, 8 << 20, 2 << 20, 32 << 20][(now / 100 % 4) as usize];
            let given = bank.db.set_redo_capacity(capacity).unwrap();
            assert!(given >= capacity && given <= capacity * 2, "{given} for {capacity}");
        }
    });
}

/// Every writer gets on after every change of the capacity, whatever it was and whatever it is; the
/// longest that one took for a transaction is printed.
#[test]
fn writers_go_on_while_the_capacity_changes() {
    let _watchdog = Watchdog::new("writers while the capacity changes");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(16 << 20, 1 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let done: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    let (running, longest_us) = (AtomicBool::new(true), AtomicU64::new(0));
    let seed = seed();
    std::thread::scope(|scope| {
        for (thread, done) in done.iter().enumerate() {
            let (db, table, running, longest_us) = (&db, &table, &running, &longest_us);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + thread as u64);
                while running.load(Ordering::Relaxed) {
                    let began = std::time::Instant::now();
                    let ids: Vec<u64> =
                        (0..10).map(|_| rng.u64(..2000) * 4 + thread as u64).collect();
                    retried(db, Isolation::default(), |txn| {
                        ids.iter().try_for_each(|&id| {
                            let item = (rng.i64(-20..20), format!("{id}"), vec![id as u8; 900]);
                            txn.upsert(table, &values(id, &item)).map(|_| ())
                        })
                    });
                    longest_us.fetch_max(began.elapsed().as_micros() as u64, Ordering::Relaxed);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..40 * factor() as usize {
            let capacity = [1u64 << 20, 64 << 20, 2 << 20, 16 << 20][round % 4];
            assert!(db.set_redo_capacity(capacity).unwrap() >= capacity);
            let before: Vec<u64> = done.iter().map(|d| d.load(Ordering::Relaxed)).collect();
            // Under the watchdog's eye: a writer that doesn't get on hangs here.
            while done.iter().zip(&before).any(|(d, b)| d.load(Ordering::Relaxed) < b + 50) {
                std::thread::yield_now();
            }
            let status = db.status();
            assert!(status.checkpoint_age <= status.checkpoint_max_age.max(64 << 20));
        }
        running.store(false, Ordering::Relaxed);
    });
    println!("longest transaction: {} ms", longest_us.load(Ordering::Relaxed) / 1000);
    check_quiet(&db);
    drop((table, db));
    let db = Database::open(dir.path(), options(16 << 20, 1 << 20)).unwrap();
    let table = db.table("items").unwrap();
    assert!(!all_items(&mut db.begin(Isolation::default()).unwrap(), &table).is_empty());
}

/// What one thread does to its own rows of `items`; the model of what it committed is returned.
struct Churn<'a> {
    db: &'a Database,
    table: &'a Table,
    thread: u64,
    threads: u64,
    keys: u64,
    body: usize,
    rng: fastrand::Rng,
    model: BTreeMap<u64, Item>,
}

impl<'a> Churn<'a> {
    fn new(db: &'a Database, table: &'a Table, thread: u64, threads: u64, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed * 1000 + thread);
        let (keys, body, model) = (300, 60, BTreeMap::new());
        Churn { db, table, thread, threads, keys, body, rng, model }
    }

    fn item(&mut self, id: u64) -> Item {
        let version = self.rng.u32(..1000);
        let len = if self.rng.u8(..50) == 0 { self.body * 100 } else { self.body };
        let body: Vec<u8> = (0..self.rng.usize(..=len)).map(|_| self.rng.u8(..)).collect();
        (self.rng.i64(-20..20), format!("{version:03} of {id}"), body)
    }

    /// One transaction of some statements, committed or rolled back.
    fn step(&mut self) {
        let mut after = self.model.clone();
        let mut txn = self.db.begin(ISOLATIONS[self.rng.usize(..3)]).unwrap();
        let mut save = None;
        for _ in 0..self.rng.u32(1..12) {
            let id = self.rng.u64(..self.keys) * self.threads + self.thread;
            let item = self.item(id);
            match self.rng.u8(..12) {
                0..4 => match txn.insert(self.table, &values(id, &item)) {
                    Ok(()) => assert!(after.insert(id, item).is_none(), "{id} was there"),
                    Err(Error::Duplicate { .. }) => assert!(after.contains_key(&id)),
                    Err(error) => panic!("{error}"),
                },
                4..6 => {
                    let replaced = txn.upsert(self.table, &values(id, &item)).unwrap();
                    assert_eq!(replaced, after.insert(id, item).is_some());
                }
                6..8 => {
                    let updated = txn.update(self.table, &values(id, &item)).unwrap();
                    assert_eq!(updated, after.contains_key(&id));
                    if updated {
                        after.insert(id, item);
                    }
                }
                8..10 => {
                    let deleted = txn.delete(self.table, &[Value::U64(id)]).unwrap();
                    assert_eq!(deleted, after.remove(&id).is_some());
                }
                10 => {
                    let found = txn.get_for_update(self.table, &[Value::U64(id)]).unwrap();
                    assert_eq!(found.map(|r| item_of(&r).1).as_ref(), after.get(&id));
                }
                _ => match save.take() {
                    None => save = Some((txn.savepoint().unwrap(), after.clone())),
                    Some((savepoint, then)) => {
                        txn.rollback_to(savepoint).unwrap();
                        after = then;
                    }
                },
            }
        }
        if self.rng.u8(..5) == 0 {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
            self.model = after;
        }
    }
}

fn churn(memory: u64, redo: u64, threads: u64, steps: u64, body: usize) {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(memory, redo)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let seed = seed();
    let running = AtomicBool::new(true);
    let model = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        let (db, table, running, model) = (&db, &table, &running, &model);
        for _ in 0..2 {
            scope.spawn(move || {
                while running.load(Ordering::Relaxed) {
                    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                    let first = all_items(&mut txn, table);
                    let again = all_items(&mut txn, table);
                    same(&first, &again, "one snapshot, read twice");
                }
            });
        }
        scope.spawn(move || {
            while running.load(Ordering::Relaxed) {
                let mut txn = db.begin(Isolation::ReadUncommitted).unwrap();
                for index in [IndexRef::Primary, "by_a".into(), "by_b".into()] {
                    rows(&mut txn, table, index, Direction::Forward).unwrap();
                    rows(&mut txn, table, index, Direction::Backward).unwrap();
                }
            }
        });
        scope.spawn(move || {
            while running.load(Ordering::Relaxed) {
                db.reorganize_table(table).unwrap();
            }
        });
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut churn = Churn::new(db, table, thread, threads, seed);
                    churn.body = body;
                    for _ in 0..steps {
                        churn.step();
                    }
                    model.lock().unwrap().extend(churn.model);
                })
            })
            .collect();
        let ended: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
        running.store(false, Ordering::Relaxed);
        for thread in ended {
            thread.unwrap();
        }
    });
    let expected: Vec<_> = model.into_inner().unwrap().into_iter().collect();
    check_quiet(&db);
    same(&expected, &all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table), "end");
    drop((table, db));
    let db = Database::open(dir.path(), options(memory, redo)).unwrap();
    let table = db.table("items").unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    same(&expected, &all_items(&mut txn, &table), "opened again");
}

#[test]
fn every_index_agrees_in_every_snapshot() {
    let _watchdog = Watchdog::new("churn, all in memory");
    churn(64 << 20, 64 << 20, 4, 400 * factor(), 60);
}

#[test]
fn every_index_agrees_on_data_larger_than_memory() {
    let _watchdog = Watchdog::new("churn, data larger than memory");
    churn(2 << 20, 2 << 20, 4, 150 * factor(), 3000);
}

#[test]
fn a_unique_index_has_one_winner() {
    let _watchdog = Watchdog::new("unique index");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let (seed, next) = (seed(), AtomicU64::new(0));
    const NAMES: usize = 8;
    let balance: Vec<AtomicUsize> = (0..NAMES).map(|_| AtomicUsize::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (db, table, next, balance) = (&db, &table, &next, &balance);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + thread);
                for _ in 0..500 * factor() {
                    let at = rng.usize(..NAMES);
                    let name = format!("name {at}");
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    let item = (at as i64, name.clone(), vec![]);
                    let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
                    match txn.insert(table, &values(id, &item)) {
                        Ok(()) => {
                            if rng.bool() {
                                // Noted before the commit shows it to others.
                                assert_eq!(balance[at].fetch_add(1, Ordering::SeqCst), 0, "{name}");
                                txn.commit().unwrap();
                            }
                            continue;
                        }
                        Err(Error::Duplicate { index, .. }) => assert_eq!(index, "by_b"),
                        Err(Error::Deadlock) => continue,
                        Err(error) => panic!("{error}"),
                    }
                    // Take the holder away, if it is there still.
                    let holder = {
                        let bounds = [Value::Text(&name)];
                        let mut cursor = txn
                            .scan(table, "by_b", Bounds::prefix(&bounds), Direction::Forward)
                            .unwrap();
                        let row = cursor.next().unwrap();
                        row.map(|row| row.get(0).unwrap().as_u64().unwrap())
                    };
                    let Some(holder) = holder else { continue };
                    match txn.delete(table, &[Value::U64(holder)]) {
                        Ok(false) | Err(Error::Deadlock) => {}
                        Ok(true) => {
                            // Noted before the commit lets others in.
                            assert_eq!(balance[at].fetch_sub(1, Ordering::SeqCst), 1, "{name}");
                            txn.commit().unwrap();
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let found = all_items(&mut txn, &table);
    assert_eq!(found.len(), balance.iter().map(|b| b.load(Ordering::SeqCst)).sum::<usize>());
}

#[test]
fn counters_lose_no_update() {
    let _watchdog = Watchdog::new("counters");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 4 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    const COUNTERS: u64 = 5;
    for id in 0..COUNTERS {
        retried(&db, Isolation::default(), |txn| {
            txn.insert(&table, &values(id, &(0, format!("counter {id}"), vec![])))
        });
    }
    one_of_two_gives_way(&db, &table);
    let seed = seed();
    let done: Vec<AtomicU64> = (0..COUNTERS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (db, table, done) = (&db, &table, &done);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + thread);
                for _ in 0..400 * factor() {
                    let mut ids: Vec<u64> = (0..COUNTERS).collect();
                    rng.shuffle(&mut ids);
                    ids.truncate(rng.usize(1..4));
                    let isolation = ISOLATIONS[rng.usize(..3)];
                    retried(db, isolation, |txn| {
                        for &id in &ids {
                            let row = txn.get_for_update(table, &[Value::U64(id)])?;
                            let (_, mut item) = item_of(&row.expect("counters stay"));
                            item.0 += 1;
                            assert!(
                                txn.update(table, &values(id, &item))?,
                                "a locked row has gone"
                            );
                        }
                        Ok(())
                    });
                    for id in ids {
                        done[id as usize].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for (id, (count, ..)) in all_items(&mut txn, &table) {
        assert_eq!(count as u64, done[id as usize].load(Ordering::Relaxed), "counter {id}");
    }
}

/// Two that lock the first two counters in different orders: so there is a deadlock however threads
/// run.
fn one_of_two_gives_way(db: &Database, table: &Table) {
    let mut one = db.begin(Isolation::default()).unwrap();
    let mut other = db.begin(Isolation::default()).unwrap();
    one.get_for_update(table, &[Value::U64(0)]).unwrap();
    other.get_for_update(table, &[Value::U64(1)]).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(move || other.get_for_update(table, &[Value::U64(0)]).map(drop));
        while db.locks().iter().all(|lock| lock.wait.is_none()) {
            std::thread::yield_now();
        }
        let ends = one.get_for_update(table, &[Value::U64(1)]).map(drop);
        drop(one);
        let ends = [ends, waits.join().unwrap()];
        let deadlocks = ends.iter().filter(|end| matches!(end, Err(Error::Deadlock))).count();
        assert_eq!((deadlocks, db.status().deadlocks), (1, 1), "{ends:?}");
    });
}

#[test]
fn an_old_snapshot_outlives_purge_and_churn() {
    let _watchdog = Watchdog::new("old snapshots");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(3 << 20, 2 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let (seed, running) = (seed(), AtomicBool::new(true));
    std::thread::scope(|scope| {
        let (db, table, running) = (&db, &table, &running);
        for thread in 0..2 {
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + 50 + thread);
                while running.load(Ordering::Relaxed) {
                    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                    let then = all_items(&mut txn, table);
                    for _ in 0..rng.u32(1..6) {
                        std::thread::sleep(Duration::from_millis(rng.u64(..150)));
                        db.purge_all().unwrap();
                        same(&then, &all_items(&mut txn, table), "an old snapshot");
                    }
                }
            });
        }
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let mut churn = Churn::new(db, table, thread, 3, seed);
                    churn.keys = 100;
                    churn.body = 400;
                    // The chains of versions that old snapshots walk grow with it.
                    for _ in 0..1200 * factor().min(3) {
                        churn.step();
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|t| t.join()).collect();
        running.store(false, Ordering::Relaxed);
        for writer in ended {
            writer.unwrap();
        }
    });
    check_quiet(&db);
}

#[test]
fn many_threads_on_the_smallest_log_and_memory_do_not_hang() {
    let _watchdog = Watchdog::new("tiny log, tiny memory, many threads");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(2 << 20, 1 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let seed = seed();
    std::thread::scope(|scope| {
        for thread in 0..16 {
            let (db, table) = (&db, &table);
            scope.spawn(move || {
                let mut churn = Churn::new(db, table, thread, 16, seed);
                churn.body = 800;
                for _ in 0..40 * factor() {
                    churn.step();
                }
            });
        }
    });
    check_quiet(&db);
    all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table);
}

#[test]
fn a_lock_wait_ends_in_time_and_the_transaction_goes_on() {
    let _watchdog = Watchdog::new("lock wait timeout");
    let dir = tempfile::tempdir().unwrap();
    let short = options(8 << 20, 4 << 20).lock_wait_timeout(Duration::from_millis(50));
    let db = Database::open(dir.path(), short).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let item = |a: i64| (a, format!("b {a}"), vec![]);
    retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(1, &item(1))));
    let mut holder = db.begin(Isolation::RepeatableRead).unwrap();
    holder.update(&table, &values(1, &item(2))).unwrap();
    let mut waiter = db.begin(Isolation::RepeatableRead).unwrap();
    waiter.insert(&table, &values(2, &item(20))).unwrap();
    for _ in 0..3 {
        let error = waiter.update(&table, &values(1, &item(3))).unwrap_err();
        assert!(matches!(error, Error::LockWaitTimeout), "{error}");
        let error = waiter.insert(&table, &values(3, &item(2))).unwrap_err();
        assert!(matches!(error, Error::LockWaitTimeout), "{error}");
    }
    holder.commit().unwrap();
    waiter.insert(&table, &values(4, &item(1))).unwrap();
    waiter.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let ids: Vec<u64> = all_items(&mut txn, &table).into_iter().map(|i| i.0).collect();
    assert_eq!(ids, [1, 2, 4]);
}

#[test]
fn definitions_change_beside_reads_and_writes() {
    let _watchdog = Watchdog::new("definitions change");
    let dir = tempfile::tempdir().unwrap();
    let small = options(3 << 20, 2 << 20);
    let db = Database::open(dir.path(), small.clone()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let (seed, model) = (seed(), Mutex::new(BTreeMap::new()));
    let running = AtomicBool::new(true);
    let tolerate = |error: Error| match error {
        Error::NoSuchIndex { .. }
        | Error::IndexTooNew { .. }
        | Error::TableTooNew(_)
        | Error::NoSuchTable(_) => {}
        error => panic!("{error}"),
    };
    std::thread::scope(|scope| {
        let (db, table, model, running) = (&db, &table, &model, &running);
        let tolerate = &tolerate;
        scope.spawn(move || {
            let mut rng = fastrand::Rng::with_seed(seed + 77);
            while running.load(Ordering::Relaxed) {
                let columns: &[&str] = if rng.bool() { &["a", "b"] } else { &["b"] };
                db.create_index(table, "extra", columns, rng.bool()).unwrap();
                let name = format!("renamed {}", rng.u32(..));
                db.rename_table(table, &name).unwrap();
                assert!(db.table(&name).is_some());
                let other = db.create_table("passing", items()).unwrap();
                let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                for id in 0..300 {
                    txn.insert(&other, &values(id, &(0, id.to_string(), vec![7; 9000]))).unwrap();
                }
                if rng.bool() {
                    txn.commit().unwrap()
                } else {
                    txn.rollback().unwrap()
                }
                db.drop_index(table, "extra").unwrap();
                db.drop_table(&other).unwrap();
                let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                let gone = txn.get(&other, &[Value::U64(1)]).unwrap_err();
                assert!(matches!(gone, Error::NoSuchTable(_)), "{gone}");
            }
        });
        scope.spawn(move || {
            while running.load(Ordering::Relaxed) {
                let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                let all = all_items(&mut txn, table);
                match rows(&mut txn, table, "extra".into(), Direction::Backward) {
                    Ok(rows) => assert_eq!(rows.len(), all.len()),
                    Err(error) => tolerate(error),
                }
                if let Some(other) = db.table("passing") {
                    match rows(&mut txn, &other, "by_a".into(), Direction::Forward) {
                        Ok(rows) => assert!(rows.len() == 300 || rows.is_empty()),
                        Err(error) => tolerate(error),
                    }
                }
            }
        });
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                scope.spawn(move || {
                    let mut churn = Churn::new(db, table, thread, 3, seed);
                    churn.body = 300;
                    for _ in 0..300 * factor() {
                        churn.step();
                    }
                    model.lock().unwrap().extend(churn.model);
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|t| t.join()).collect();
        running.store(false, Ordering::Relaxed);
        for writer in ended {
            writer.unwrap();
        }
    });
    let expected: Vec<_> = model.into_inner().unwrap().into_iter().collect();
    check_quiet(&db);
    same(&expected, &all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table), "end");
    let name = table.name();
    drop((table, db));
    let db = Database::open(dir.path(), small).unwrap();
    assert_eq!(db.table_names(), std::slice::from_ref(&name));
    let table = db.table(&name).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    same(&expected, &all_items(&mut txn, &table), "opened again");
}

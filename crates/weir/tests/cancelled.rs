//! Statements that other threads cancel, whatever they wait for: they have done nothing, and leave
//! nothing behind.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use fastrand::Rng;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use weir::{
    Bounds, Canceller, Database, Direction, Error, IndexRef, Isolation, Lock, Table, Transaction,
    Value, Wait,
};
use weir_os::throttle::{Profile, ThrottledDisk};

const THREADS: u64 = 4;
/// Rows that all threads write to; each has others that only it writes to.
const SHARED: u64 = 6;
const OWN: u64 = 120;

type Rows = BTreeMap<u64, Item>;

/// How a transaction goes on after a statement.
enum Then {
    GoesOn,
    /// It was chosen to give way.
    HasEnded,
}

struct Worker<'d> {
    db: &'d Database,
    table: &'d Table,
    thread: u64,
    rng: Rng,
    /// Its rows, and how often it has counted up each shared one, as of its last commit.
    committed: (Rows, [i64; SHARED as usize]),
    /// With what its transaction has done since.
    now: (Rows, [i64; SHARED as usize]),
    stamps: u64,
    cancelled: u64,
}

impl Worker<'_> {
    fn own(&mut self) -> u64 {
        SHARED + self.thread * OWN + self.rng.u64(..OWN)
    }

    fn item(&mut self) -> Item {
        self.stamps += 1;
        let (thread, stamp) = (self.thread, self.stamps);
        let body = vec![stamp as u8; self.rng.usize(..3000)];
        (self.rng.i64(..50), format!("{thread}-{stamp}"), body)
    }

    /// What a statement has come to, none of whose failures has done anything.
    fn judge<T>(&mut self, done: Result<T, Error>) -> Result<Option<T>, Then> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(Error::Cancelled) => {
                self.cancelled += 1;
                Ok(None)
            }
            Err(Error::Deadlock) => Err(Then::HasEnded),
            Err(error) => panic!("{error}"),
        }
    }

    fn put(&mut self, txn: &mut Transaction) -> Result<(), Then> {
        let (id, item) = (self.own(), self.item());
        let done = txn.upsert(self.table, &values(id, &item));
        if let Some(was_there) = self.judge(done)? {
            assert_eq!(was_there, self.now.0.insert(id, item).is_some());
        }
        Ok(())
    }

    fn insert_many(&mut self, txn: &mut Transaction) -> Result<(), Then> {
        let mut new = Rows::new();
        for _ in 0..self.rng.usize(1..12) {
            let id = self.own();
            if !self.now.0.contains_key(&id) {
                let item = self.item();
                new.insert(id, item);
            }
        }
        let all: Vec<_> = new.iter().map(|(id, item)| values(*id, item)).collect();
        let done = txn.insert_many(self.table, &all);
        drop(all);
        if self.judge(done)?.is_some() {
            self.now.0.append(&mut new);
        }
        Ok(())
    }

    fn delete(&mut self, txn: &mut Transaction) -> Result<(), Then> {
        let id = self.own();
        let done = txn.delete(self.table, &[Value::U64(id)]);
        if let Some(was_there) = self.judge(done)? {
            assert_eq!(was_there, self.now.0.remove(&id).is_some());
        }
        Ok(())
    }

    fn count_up(&mut self, txn: &mut Transaction) -> Result<(), Then> {
        let id = self.rng.u64(..SHARED);
        let done = txn.get_for_update(self.table, &[Value::U64(id)]);
        let Some(row) = self.judge(done)? else { return Ok(()) };
        let (_, (a, b, body)) = item_of(&row.expect("shared rows stay"));
        let done = txn.update(self.table, &values(id, &(a + 1, b, body)));
        if self.judge(done)?.is_some() {
            self.now.1[id as usize] += 1;
        }
        Ok(())
    }

    /// Its own rows under lock; some of a scan that was cancelled are locked.
    fn scan(&mut self, txn: &mut Transaction) -> Result<(), Then> {
        let first = SHARED + self.thread * OWN;
        let (low, high) = ([Value::U64(first)], [Value::U64(first + OWN - 1)]);
        let bounds =
            Bounds::new(std::ops::Bound::Included(&low[..]), std::ops::Bound::Included(&high[..]));
        let (forward, lock) = (Direction::Forward, Lock::Exclusive(Wait::ForTimeout));
        let found = |txn: &mut Transaction| {
            let primary = IndexRef::Primary;
            let mut rows = txn.scan_locking(self.table, primary, bounds, forward, lock)?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(item_of(&row.to_row()?));
            }
            Ok(found)
        };
        let found = found(txn);
        if let Some(found) = self.judge(found)? {
            let own: Vec<_> = self.now.0.clone().into_iter().collect();
            same(&own, &found, "its own rows");
        }
        Ok(())
    }

    fn statement(&mut self, txn: &mut Transaction) -> Result<(), Then> {
        match self.rng.u8(..12) {
            0..4 => self.put(txn),
            4 | 5 => self.insert_many(txn),
            6 | 7 => self.delete(txn),
            8..11 => self.count_up(txn),
            _ => self.scan(txn),
        }
    }

    /// A few statements, some of them taken back.
    fn statements(&mut self, txn: &mut Transaction) -> Then {
        let (savepoint, then) = (txn.savepoint().unwrap(), self.now.clone());
        for _ in 0..self.rng.u8(1..8) {
            if let Err(ended) = self.statement(txn) {
                return ended;
            }
            if self.rng.u8(..12) == 0 {
                txn.rollback_to(savepoint).unwrap();
                self.now = then.clone();
            }
        }
        Then::GoesOn
    }

    fn work(&mut self, transactions: u64, canceller: &Mutex<Option<Canceller>>) {
        let mut ended: Option<Transaction> = None;
        for _ in 0..transactions {
            let isolation = match self.rng.u8(..6) {
                0 => Isolation::Serializable,
                1 | 2 => Isolation::ReadCommitted,
                _ => Isolation::RepeatableRead,
            };
            let mut txn = match ended.take() {
                Some(mut txn) => {
                    txn.begin_again(isolation).unwrap();
                    txn
                }
                None => self.db.begin(isolation).unwrap(),
            };
            *canceller.lock().unwrap() = Some(txn.canceller().unwrap());
            self.now = self.committed.clone();
            let then = self.statements(&mut txn);
            assert_eq!(txn.has_ended(), matches!(then, Then::HasEnded));
            if matches!(then, Then::HasEnded) || self.rng.u8(..6) == 0 {
                continue;
            }
            self.db.wait(txn.commit_in_order().unwrap()).unwrap();
            self.committed = self.now.clone();
            ended = self.rng.bool().then_some(txn);
        }
    }
}

#[test]
fn cancelled_statements_have_done_nothing_and_leave_nothing() {
    let _watchdog = Watchdog::new("statements that are cancelled");
    let profile = Profile { iops: Some(3000.0), ..Profile::FAST };
    let clock = Arc::new(weir_os::RealClock::new());
    let disk = ThrottledDisk::new(Arc::new(weir_os::SimDisk::new(1)), profile, clock);
    let options = options(4 << 20, 2 << 20).dirty_limit(0.2).staging_leaves(4);
    let db = Database::open_on(Arc::new(disk), options).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let shared = |id| (0, format!("shared {id}"), vec![0; 100]);
    retried(&db, Isolation::default(), |txn| {
        (0..SHARED).try_for_each(|id| txn.insert(&table, &values(id, &shared(id))))
    });
    let (seed, running) = (seed(), AtomicBool::new(true));
    let cancellers: [Mutex<Option<Canceller>>; THREADS as usize] = Default::default();
    let cancelled = AtomicU64::new(0);
    let (mut rows, mut counted) = (Rows::new(), [0; SHARED as usize]);
    std::thread::scope(|scope| {
        let (db, table, running) = (&db, &table, &running);
        let (cancellers, cancelled) = (&cancellers, &cancelled);
        scope.spawn(move || {
            let mut rng = Rng::with_seed(!seed);
            while running.load(Ordering::Relaxed) {
                if let Some(canceller) = &*cancellers[rng.usize(..4)].lock().unwrap() {
                    canceller.cancel();
                }
                (0..rng.u32(..300)).for_each(|_| std::thread::yield_now());
            }
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let rng = Rng::with_seed(seed + thread);
                    let none = (Rows::new(), [0; SHARED as usize]);
                    let (committed, now) = (none.clone(), none);
                    let (stamps, of_worker) = (0, 0);
                    let mut worker = Worker {
                        db,
                        table,
                        thread,
                        rng,
                        committed,
                        now,
                        stamps,
                        cancelled: of_worker,
                    };
                    worker.work(400 * factor(), &cancellers[thread as usize]);
                    cancelled.fetch_add(worker.cancelled, Ordering::Relaxed);
                    worker.committed
                })
            })
            .collect();
        let ended: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
        running.store(false, Ordering::Relaxed);
        for thread in ended {
            let (mut own, more) = thread.unwrap();
            rows.append(&mut own);
            counted.iter_mut().zip(more).for_each(|(all, more)| *all += more);
        }
    });
    let cancelled = cancelled.into_inner();
    println!("{cancelled} statements were cancelled");
    assert!(cancelled > 20, "{cancelled} statements were cancelled");
    for (id, count) in (0..SHARED).zip(counted) {
        rows.insert(id, (count, format!("shared {id}"), vec![0; 100]));
    }
    assert_eq!(db.locks(), [], "locks end with their transactions");
    check_quiet(&db);
    let expected: Vec<_> = rows.into_iter().collect();
    let found = all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table);
    same(&expected, &found, "end");
}

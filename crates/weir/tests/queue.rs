//! A table used as a queue, beside a snapshot for which all that was taken from it is kept: jobs
//! are taken from its beginning, where the dead ones lie, and come back there now and then.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use weir::{
    Bounds, Database, Direction, Error, IndexRef, Isolation, Lock, Schema, Table, Transaction,
    Type, Value, Wait,
};

const JOBS: u64 = 3000;

struct Queue {
    db: Database,
    jobs: Table,
    /// How often each job was put in, less how often it was taken out.
    balance: Mutex<BTreeMap<u64, i64>>,
    stop: AtomicBool,
}

impl Queue {
    fn note(&self, id: u64, change: i64) {
        *self.balance.lock().unwrap().entry(id).or_default() += change;
    }

    /// Runs a transaction until it is through.
    fn run<T>(
        &self,
        isolation: Isolation,
        mut work: impl FnMut(&mut Transaction) -> Result<T, Error>,
    ) -> T {
        loop {
            let mut txn = self.db.begin(isolation).unwrap();
            match work(&mut txn).and_then(|done| txn.commit().map(|()| done)) {
                Ok(done) => return done,
                Err(Error::Deadlock) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Takes the first job, if there is one.
    fn take(&self, isolation: Isolation, wait: Wait) -> Option<u64> {
        let taken = self.run(isolation, |txn| {
            let id = self.first(txn, Lock::Exclusive(wait))?;
            if let Some(id) = id {
                assert!(txn.delete(&self.jobs, &[Value::U64(id)])?, "it is locked");
            }
            Ok(id)
        });
        taken.inspect(|id| self.note(*id, -1))
    }

    fn first(&self, txn: &mut Transaction, lock: Lock) -> Result<Option<u64>, Error> {
        let (all, way) = (Bounds::all(), Direction::Forward);
        let mut rows = txn.scan_locking(&self.jobs, IndexRef::Primary, all, way, lock)?;
        Ok(rows.next()?.map(|row| row.get(0).unwrap().as_u64().unwrap()))
    }

    fn put(&self, id: u64) {
        let inserted = self.run(Isolation::ReadCommitted, |txn| {
            match txn.insert(&self.jobs, &[Value::U64(id), Value::Bytes(&[7; 40])]) {
                Ok(()) => Ok(true),
                Err(Error::Duplicate { .. }) => Ok(false),
                Err(error) => Err(error),
            }
        });
        if inserted {
            self.note(id, 1);
        }
    }

    /// Nothing comes or goes in what a serializable transaction has read, until it ends.
    fn look_twice(&self, rng: &mut fastrand::Rng) {
        let low = rng.u64(..JOBS);
        let (low, high) = ([Value::U64(low)], [Value::U64(low + rng.u64(1..JOBS))]);
        let way = [Direction::Forward, Direction::Backward][rng.usize(..2)];
        self.run(Isolation::Serializable, |txn| {
            let mut count = || -> Result<usize, Error> {
                use std::ops::Bound::{Excluded, Included};
                let bounds = Bounds::new(Included(&low), Excluded(&high));
                let mut rows = txn.scan(&self.jobs, IndexRef::Primary, bounds, way)?;
                let mut count = 0;
                while rows.next()?.is_some() {
                    count += 1;
                }
                Ok(count)
            };
            let before = count()?;
            std::thread::yield_now();
            assert_eq!(count()?, before);
            Ok(())
        });
    }
}

fn ids(txn: &mut Transaction, jobs: &Table) -> Vec<u64> {
    let all = rows(txn, jobs, IndexRef::Primary, Direction::Forward).unwrap();
    all.iter().map(|row| row.get(0).as_u64().unwrap()).collect()
}

#[test]
fn each_job_is_taken_once_beside_an_old_snapshot() {
    let _watchdog = Watchdog::new("queue");
    let seed = seed();
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(16 << 20, 16 << 20)).unwrap();
    let schema = Schema::builder().column("id", Type::U64).column("what", Type::Bytes);
    let schema = schema.primary_key(&["id"]).build().unwrap();
    let jobs = db.create_table("jobs", schema).unwrap();
    let queue = Queue { db, jobs, balance: Mutex::default(), stop: AtomicBool::new(false) };
    (0..JOBS).for_each(|id| queue.put(id));
    let mut dump = queue.db.begin(Isolation::RepeatableRead).unwrap();
    let all: Vec<u64> = (0..JOBS).collect();
    assert_eq!(ids(&mut dump, &queue.jobs), all);
    let takers = [
        (Isolation::ReadCommitted, Wait::Skip),
        (Isolation::RepeatableRead, Wait::ForTimeout),
        (Isolation::Serializable, Wait::ForTimeout),
    ];
    std::thread::scope(|scope| {
        let queue = &queue;
        for (isolation, wait) in takers {
            scope.spawn(move || {
                while !queue.stop.load(Ordering::Relaxed) {
                    queue.take(isolation, wait);
                }
            });
        }
        scope.spawn(move || {
            let mut rng = fastrand::Rng::with_seed(seed);
            while !queue.stop.load(Ordering::Relaxed) {
                queue.look_twice(&mut rng);
            }
        });
        let mut rng = fastrand::Rng::with_seed(seed + 1);
        for next in 0..2 * JOBS * factor() {
            queue.put(if rng.bool() { rng.u64(..JOBS) } else { JOBS + next });
        }
        queue.stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(ids(&mut dump, &queue.jobs), all, "the snapshot sees what it saw");
    dump.rollback().unwrap();
    let left = ids(&mut queue.db.begin(Isolation::ReadCommitted).unwrap(), &queue.jobs);
    let balance = queue.balance.lock().unwrap();
    let expected: Vec<u64> = balance.iter().filter(|(_, n)| **n == 1).map(|(id, _)| *id).collect();
    assert!(balance.values().all(|n| [0, 1].contains(n)), "{balance:?}");
    assert_eq!(left, expected);
}

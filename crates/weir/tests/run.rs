//! Transactions that are begun anew when others were in the way.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::sync::Arc;
use std::time::Duration;
use weir::{Database, Error, Isolation, RunError, Table, Transaction, Value};
use weir_os::SimDisk;

fn database(timeout: Duration) -> (Database, Table) {
    let options = options(4 << 20, 4 << 20).lock_wait_timeout(timeout);
    let db = Database::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = db.create_table("items", items()).unwrap();
    (db, table)
}

fn put(txn: &mut Transaction, table: &Table, id: u64, a: i64) -> Result<bool, Error> {
    txn.upsert(table, &values(id, &(a, id.to_string(), vec![])))
}

fn a_of(db: &Database, table: &Table, id: u64) -> Option<i64> {
    let row = db.begin(Isolation::RepeatableRead).unwrap().get(table, &[id.into()]).unwrap();
    row.and_then(|row| row.get(1).as_i64())
}

#[test]
fn threads_that_deadlock_all_count_up_in_the_end() {
    const TIMES: i64 = 100;
    let (db, table) = database(Duration::from_secs(60));
    let tries = std::sync::atomic::AtomicI64::new(0);
    db.run(Isolation::RepeatableRead, |txn| {
        (0..2).try_for_each(|id| put(txn, &table, id, 0).map(drop))
    })
    .unwrap();
    std::thread::scope(|scope| {
        for order in [[0, 1], [1, 0]] {
            let (db, table, tries) = (&db, &table, &tries);
            scope.spawn(move || {
                for _ in 0..TIMES {
                    let count = |txn: &mut Transaction| -> Result<(), Error> {
                        tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        for id in order {
                            let row = txn.get_for_update(table, &[Value::U64(id)])?.unwrap();
                            put(txn, table, id, row.get(1).as_i64().unwrap() + 1)?;
                        }
                        Ok(())
                    };
                    db.run(Isolation::RepeatableRead, count).unwrap();
                }
            });
        }
    });
    assert_eq!([0, 1].map(|id| a_of(&db, &table, id)), [Some(2 * TIMES); 2]);
    assert!(tries.into_inner() >= 2 * TIMES);
}

#[test]
fn what_stays_in_the_way_is_tried_ten_times_and_told() {
    let (db, table) = database(Duration::ZERO);
    let mut holder = db.begin(Isolation::RepeatableRead).unwrap();
    put(&mut holder, &table, 1, 1).unwrap();
    let mut tries = 0;
    let failed = db.run(Isolation::RepeatableRead, |txn| {
        tries += 1;
        put(txn, &table, 2, tries)?;
        put(txn, &table, 1, 2)
    });
    assert!(matches!(failed, Err(Error::LockWaitTimeout)), "{failed:?}");
    assert_eq!((tries, a_of(&db, &table, 2)), (10, None));
}

#[derive(Debug)]
enum Mine {
    Poor,
    Engine(Error),
}

impl From<Error> for Mine {
    fn from(error: Error) -> Mine {
        Mine::Engine(error)
    }
}

impl std::fmt::Display for Mine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

impl std::error::Error for Mine {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Mine::Engine(error) = self { Some(error) } else { None }
    }
}

impl RunError for Mine {
    fn is_retryable(&self) -> bool {
        matches!(self, Mine::Engine(error) if error.is_retryable())
    }
}

#[test]
fn an_error_of_the_caller_rolls_back_and_one_of_the_engine_within_it_is_retried() {
    let (db, table) = database(Duration::ZERO);
    let mut tries = 0;
    let failed = db.run(Isolation::RepeatableRead, |txn| {
        tries += 1;
        put(txn, &table, 1, 1)?;
        if tries < 3 { Err::<(), _>(Mine::Engine(Error::Deadlock)) } else { Err(Mine::Poor) }
    });
    assert!(matches!(failed, Err(Mine::Poor)), "{failed:?}");
    assert_eq!((tries, a_of(&db, &table, 1)), (3, None));

    let mut tries = 0;
    let done = db.run(Isolation::RepeatableRead, |txn| -> Result<_, Box<dyn std::error::Error>> {
        tries += 1;
        put(txn, &table, 1, tries)?;
        match tries {
            1 => Err(Error::Deadlock.into()),
            2 => Err(Mine::Engine(Error::Deadlock).into()),
            _ => Ok("done"),
        }
    });
    assert_eq!((done.unwrap(), a_of(&db, &table, 1)), ("done", Some(3)));
}

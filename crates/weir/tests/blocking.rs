//! Who runs the threads is told of those that block, whatever they wait for: each time once, and in
//! the thread itself.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::collections::HashMap;
use std::sync::Mutex;
use std::thread::{self, ThreadId};
use weir::{
    BlockingObserver, Database, Direction, Durability, IndexRef, Isolation, Value, observe_blocking,
};

/// Of each thread, how often it was about to block, and whether it is.
static BLOCKED: Mutex<Option<HashMap<ThreadId, (u64, bool)>>> = Mutex::new(None);

fn tell(blocked: bool) {
    let mut all = BLOCKED.lock().unwrap();
    let (count, before) = all.get_or_insert_default().entry(thread::current().id()).or_default();
    assert_ne!(*before, blocked, "told twice");
    *before = blocked;
    *count += u64::from(blocked);
}

fn of(thread: ThreadId) -> (u64, bool) {
    BLOCKED.lock().unwrap().get_or_insert_default().get(&thread).copied().unwrap_or_default()
}

/// How often this thread blocks in `work`.
fn blocks_in<T>(work: impl FnOnce() -> T) -> u64 {
    let me = thread::current().id();
    let before = of(me);
    work();
    let after = of(me);
    assert!(!after.1, "it goes on");
    after.0 - before.0
}

/// Runs `waits` in a thread of its own, and once that blocks, `lets_go`.
fn blocks_until(waits: impl FnOnce() + Send, lets_go: impl FnOnce()) {
    thread::scope(|scope| {
        let waiter = scope.spawn(|| blocks_in(waits));
        while !of(waiter.thread().id()).1 {
            assert!(!waiter.is_finished(), "it didn't block");
            thread::yield_now();
        }
        lets_go();
        assert!(waiter.join().unwrap() > 0);
    });
}

#[test]
fn who_blocks_says_so() {
    let _watchdog = Watchdog::new("who_blocks_says_so");
    let observer =
        || BlockingObserver { begins: Box::new(|| tell(true)), ends: Box::new(|| tell(false)) };
    assert!(observe_blocking(observer()));
    assert!(!observe_blocking(observer()), "there is one");

    let dir = tempfile::tempdir().unwrap();
    let open = || Database::open(dir.path(), options(8 << 20, 16 << 20)).unwrap();
    let db = open();
    let table = db.create_table("items", items()).unwrap();
    let begin = || db.begin(Isolation::RepeatableRead).unwrap();
    let mut txn = begin();
    for id in 0..20_000 {
        let item = (id as i64 % 10, format!("b{id:05}"), vec![7; 300]);
        txn.insert(&table, &values(id, &item)).unwrap();
    }
    txn.commit().unwrap();

    // A row that another one has locked.
    let one = [Value::U64(1)];
    let mut holds = begin();
    holds.get_for_update(&table, &one).unwrap();
    let waits = || {
        let mut txn = begin();
        txn.get_for_update(&table, &one).unwrap();
        txn.commit().unwrap();
    };
    blocks_until(waits, || holds.commit().unwrap());

    // A table that another one uses.
    let mut uses = begin();
    uses.get(&table, &one).unwrap();
    blocks_until(|| db.rename_table(&table, "things").unwrap(), || uses.commit().unwrap());

    // Durability.
    let mut txn = begin();
    txn.set_durability(Durability::Sync);
    txn.delete(&table, &one).unwrap();
    assert!(blocks_in(|| txn.commit().unwrap()) > 0);

    // What is in memory blocks nobody.
    let mut txn = begin();
    txn.get(&table, &[Value::U64(19_999)]).unwrap();
    assert_eq!(blocks_in(|| txn.get(&table, &[Value::U64(19_999)]).unwrap()), 0);
    txn.commit().unwrap();

    // Pages that are to be read.
    drop(table);
    drop(db);
    let db = open();
    let table = db.table("things").unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let read = blocks_in(|| {
        let all = rows(&mut txn, &table, IndexRef::Primary, Direction::Forward).unwrap();
        assert_eq!(all.len(), 19_999);
    });
    assert!(read > 0);
}

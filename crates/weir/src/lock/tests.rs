use super::*;
use std::collections::HashSet;

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;

const TREE: TreeId = TreeId(7);
/// Long enough never to pass: a test that meets it has lost a wakeup.
const FOREVER: Duration = Duration::from_secs(120);

fn request(txn: u64, key: &[u8], mode: Mode, timeout: Duration) -> Request<'_> {
    Request {
        txn: TxnId(txn),
        tree: TREE,
        key,
        mode,
        wait: true,
        timeout,
        weight: txn,
        connection: 100 + txn,
        implicit_owner: None,
        is_active: &|_| true,
        is_cancelled: &|| false,
    }
}

fn lock(table: &LockTable, txn: u64, key: &[u8], mode: Mode) -> Result<(), LockError> {
    table.lock(&request(txn, key, mode, FOREVER)).map(drop)
}

fn lock_inline(table: &LockTable, txn: u64, key: &[u8], mode: Mode) -> Result<(), LockError> {
    table.lock(&request(txn, key, mode, Duration::ZERO)).map(drop)
}

fn await_waiters(table: &LockTable, count: usize) {
    while table.describe().iter().filter(|info| info.wait.is_some()).count() < count {
        thread::yield_now();
    }
}

fn assert_empty(table: &LockTable) {
    assert_eq!(table.stats().queues, 0);
    assert!(table.queues.iter().all(|shard| shard.queues.lock().is_empty()));
    assert!(table.lists.iter().all(|shard| shard.lock().is_empty()));
    assert!(table.waits.lock().is_empty());
}

#[test]
fn modes_and_owners() {
    let table = LockTable::new();
    assert!(!table.conflicts(TxnId(1), TREE, b"k", Mode::Exclusive));
    lock_inline(&table, 1, b"k", Mode::Shared).unwrap();
    lock_inline(&table, 2, b"k", Mode::Shared).unwrap();
    lock_inline(&table, 2, b"k", Mode::Shared).unwrap();
    assert!(!table.conflicts(TxnId(3), TREE, b"k", Mode::Shared));
    assert!(table.conflicts(TxnId(1), TREE, b"k", Mode::Exclusive));
    assert!(!table.conflicts(TxnId(1), TreeId(8), b"k", Mode::Exclusive));
    assert!(!table.conflicts(TxnId(1), TREE, b"kk", Mode::Exclusive));
    assert_eq!(lock_inline(&table, 1, b"k", Mode::Exclusive), Err(LockError::Timeout));
    table.release(TxnId(2), TREE, b"k");
    table.release(TxnId(2), TREE, b"k");
    lock_inline(&table, 1, b"k", Mode::Exclusive).unwrap();
    assert!(table.conflicts(TxnId(3), TREE, b"k", Mode::Shared));
    table.release_all(TxnId(1));
    table.release_all(TxnId(2));
    assert_empty(&table);
    assert_eq!(table.stats().timeouts, 1);
}

#[test]
fn memory_of_many_locks_is_given_back() {
    let table = LockTable::new();
    for n in 0..200_000u32 {
        lock_inline(&table, 1, &n.to_be_bytes(), Mode::Exclusive).unwrap();
    }
    let room = || -> usize { table.queues.iter().map(|s| s.queues.lock().capacity()).sum() };
    assert!(room() >= 200_000);
    table.release_all(TxnId(1));
    assert_empty(&table);
    assert!(room() <= SHARDS * KEPT_QUEUES);
}

#[test]
fn waiters_go_first_come_first_served() {
    let table = LockTable::new();
    let order = Mutex::new(Vec::new());
    lock_inline(&table, 1, b"k", Mode::Exclusive).unwrap();
    thread::scope(|scope| {
        for txn in 2..8 {
            let (table, order) = (&table, &order);
            scope.spawn(move || {
                lock(table, txn, b"k", Mode::Exclusive).unwrap();
                order.lock().push(txn);
                table.release_all(TxnId(txn));
            });
            await_waiters(table, txn as usize - 1);
        }
        table.release_all(TxnId(1));
    });
    assert_eq!(order.into_inner(), [2, 3, 4, 5, 6, 7]);
    assert_empty(&table);
}

#[test]
fn readers_do_not_pass_a_waiting_writer() {
    let table = LockTable::new();
    lock_inline(&table, 1, b"k", Mode::Shared).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            lock(&table, 2, b"k", Mode::Exclusive).unwrap();
            table.release_all(TxnId(2));
        });
        await_waiters(&table, 1);
        assert!(table.lock(&request(3, b"k", Mode::Shared, Duration::ZERO)).is_err());
        assert!(table.conflicts(TxnId(3), TREE, b"k", Mode::Shared));
        scope.spawn(|| {
            lock(&table, 3, b"k", Mode::Shared).unwrap();
            table.release_all(TxnId(3));
        });
        await_waiters(&table, 2);
        let waits: Vec<_> = table.describe().into_iter().filter_map(|info| info.wait).collect();
        assert_eq!(waits[0].waits_for, [TxnId(1)]);
        assert_eq!(waits[1].waits_for, [TxnId(2)]);
        // An upgrade goes ahead of both.
        lock(&table, 1, b"k", Mode::Exclusive).unwrap();
        table.release_all(TxnId(1));
    });
    assert_empty(&table);
}

#[test]
fn an_upgrade_waits_for_other_holders_only() {
    let table = LockTable::new();
    let order = Mutex::new(Vec::new());
    lock_inline(&table, 1, b"k", Mode::Shared).unwrap();
    lock_inline(&table, 2, b"k", Mode::Shared).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            lock(&table, 3, b"k", Mode::Exclusive).unwrap();
            order.lock().push(3);
            table.release_all(TxnId(3));
        });
        await_waiters(&table, 1);
        scope.spawn(|| {
            lock(&table, 1, b"k", Mode::Exclusive).unwrap();
            order.lock().push(1);
            table.release_all(TxnId(1));
        });
        await_waiters(&table, 2);
        table.release_all(TxnId(2));
    });
    assert_eq!(order.into_inner(), [1, 3]);
    assert_empty(&table);
}

/// Transactions 1..=n each hold a key and want the next one's; weights as given.
fn cycle(weights: &[u64]) -> Vec<Result<(), LockError>> {
    cycle_in(&LockTable::new(), weights)
}

fn cycle_in(table: &LockTable, weights: &[u64]) -> Vec<Result<(), LockError>> {
    let n = weights.len() as u64;
    let key = |txn: u64| [(txn % n) as u8];
    for txn in 1..=n {
        lock_inline(table, txn, &key(txn), Mode::Exclusive).unwrap();
    }
    let results: Vec<_> = thread::scope(|scope| {
        let mut threads = Vec::new();
        for txn in 1..=n {
            threads.push(scope.spawn(move || {
                let key = key(txn + 1);
                let mut req = request(txn, &key, Mode::Exclusive, FOREVER);
                req.weight = weights[txn as usize - 1];
                let result = table.lock(&req).map(drop);
                table.release_all(TxnId(txn));
                result
            }));
            if txn < n {
                await_waiters(table, txn as usize);
            }
        }
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(table.stats().deadlocks, 1);
    assert_empty(table);
    let deadlock = table.last_deadlock().expect("there was one");
    let mut waits: Vec<_> = deadlock.waits.iter().map(|wait| wait.lock.txn.0).collect();
    for (at, wait) in deadlock.waits.iter().enumerate() {
        let (lock, next) = (&wait.lock, waits[(at + 1) % waits.len()]);
        assert_eq!((lock.key.as_slice(), lock.mode), (&key(next)[..], Mode::Exclusive));
        assert_eq!(lock.wait.as_ref().expect("a wait").waits_for, [TxnId(next)]);
        assert_eq!(wait.connection, 100 + lock.txn.0);
    }
    waits.sort_unstable();
    assert_eq!(waits, (1..=n).collect::<Vec<_>>());
    assert_eq!(results[deadlock.victim.0 as usize - 1], Err(LockError::Deadlock));
    results
}

#[test]
fn a_deadlock_rolls_back_the_cheapest() {
    for n in 2..=5 {
        for victim in 0..n {
            let mut weights = vec![100; n];
            weights[victim] = 1;
            let results = cycle(&weights);
            for (at, result) in results.into_iter().enumerate() {
                let expected = if at == victim { Err(LockError::Deadlock) } else { Ok(()) };
                assert_eq!(result, expected, "{n} transactions, victim {victim}, at {at}");
            }
        }
    }
    assert_eq!(cycle(&[5, 5, 5]), [Ok(()), Ok(()), Err(LockError::Deadlock)]);
}

#[test]
fn a_preference_decides_before_the_cost() {
    let table = LockTable::new();
    // The even ones are to commit in the order of their numbers.
    table.prefer_victims(Box::new(|one, other| match (one.0 % 2, other.0 % 2) {
        (0, 0) => other.cmp(&one),
        _ => std::cmp::Ordering::Equal,
    }));
    assert_eq!(cycle_in(&table, &[9, 2, 9, 8]), [Ok(()), Ok(()), Ok(()), Err(LockError::Deadlock)]);
}

#[test]
fn two_upgrades_deadlock() {
    let table = LockTable::new();
    lock_inline(&table, 1, b"k", Mode::Shared).unwrap();
    lock_inline(&table, 2, b"k", Mode::Shared).unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| lock(&table, 2, b"k", Mode::Exclusive));
        await_waiters(&table, 1);
        // Inline, too, a deadlock is found before the timeout; here it is the requester's.
        let mut req = request(1, b"k", Mode::Exclusive, Duration::ZERO);
        req.weight = 0;
        assert_eq!(table.lock(&req), Err(LockError::Deadlock));
        table.release_all(TxnId(1));
        assert_eq!(second.join().unwrap(), Ok(()));
    });
    table.release_all(TxnId(2));
    assert_empty(&table);
}

#[test]
fn a_cancelled_wait_ends() {
    let table = LockTable::new();
    lock_inline(&table, 1, b"k", Mode::Exclusive).unwrap();
    table.cancel(TxnId(1));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock(&table, 2, b"k", Mode::Exclusive));
        await_waiters(&table, 1);
        table.cancel(TxnId(2));
        assert_eq!(waiter.join().unwrap(), Err(LockError::Cancelled));
    });
    let mut req = request(2, b"k", Mode::Exclusive, FOREVER);
    req.is_cancelled = &|| true;
    assert_eq!(table.lock(&req), Err(LockError::Cancelled));
    table.release_all(TxnId(1));
    assert_empty(&table);
}

#[test]
fn all_waits_can_be_ended() {
    let table = LockTable::new();
    for key in [b"a", b"b"] {
        lock_inline(&table, 1, key, Mode::Exclusive).unwrap();
    }
    thread::scope(|scope| {
        let table = &table;
        let waits = [b"a", b"a", b"b"]
            .into_iter()
            .zip(2..)
            .map(|(key, txn)| scope.spawn(move || lock(table, txn, key, Mode::Exclusive)));
        let waits: Vec<_> = waits.collect();
        await_waiters(table, 3);
        table.cancel_all();
        waits.into_iter().for_each(|w| assert_eq!(w.join().unwrap(), Err(LockError::Cancelled)));
    });
    table.release_all(TxnId(1));
    assert_empty(&table);
}

#[test]
fn an_implicit_owner_is_waited_for() {
    let table = LockTable::new();
    let active = AtomicBool::new(true);
    let is_active = |txn| txn != TxnId(1) || active.load(Ordering::SeqCst);
    // Granted after transaction 1 wrote the row, before the second look: taken back.
    lock_inline(&table, 2, b"k", Mode::Shared).unwrap();
    let mut req = request(2, b"k", Mode::Shared, Duration::ZERO);
    req.implicit_owner = Some(TxnId(1));
    req.is_active = &is_active;
    assert_eq!(table.lock(&req), Err(LockError::Timeout));
    assert!(!table.conflicts(TxnId(1), TREE, b"k", Mode::Exclusive));
    assert!(table.conflicts(TxnId(2), TREE, b"k", Mode::Shared));
    req.timeout = FOREVER;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            table.lock(&Request {
                is_active: &|txn| txn != TxnId(1) || active.load(Ordering::SeqCst),
                ..request(3, b"k", Mode::Exclusive, FOREVER)
            })
        });
        await_waiters(&table, 1);
        active.store(false, Ordering::SeqCst);
        table.release_all(TxnId(1));
        assert_eq!(waiter.join().unwrap(), Ok(Granted { is_new: true, waited: true }));
    });
    table.release_all(TxnId(3));
    // An owner that has ended is not entered.
    assert_eq!(table.lock(&req), Ok(Granted { is_new: true, waited: false }));
    let held = Granted { is_new: false, waited: false };
    assert_eq!(table.lock(&req), Ok(held), "it is held already");
    table.release_all(TxnId(2));
    assert_empty(&table);
}

/// It had begun to wait for whom the owner's entry sends away.
#[test]
fn an_entered_owner_that_waits_for_its_row_has_it() {
    let table = LockTable::new();
    lock_inline(&table, 2, b"k", Mode::Shared).unwrap();
    thread::scope(|scope| {
        let owner = scope.spawn(|| lock(&table, 1, b"k", Mode::Exclusive));
        let third = scope.spawn(|| lock(&table, 3, b"k", Mode::Exclusive));
        await_waiters(&table, 2);
        let mut req = request(2, b"k", Mode::Shared, FOREVER);
        (req.implicit_owner, req.wait) = (Some(TxnId(1)), false);
        assert_eq!(table.lock(&req), Err(LockError::Timeout));
        assert_eq!(owner.join().unwrap(), Ok(()));
        assert!(!third.is_finished());
        table.release_all(TxnId(1));
        assert_eq!(third.join().unwrap(), Ok(()));
    });
    table.release_all(TxnId(3));
    assert_empty(&table);
}

#[test]
fn an_entered_owner_takes_part_in_deadlocks() {
    let table = LockTable::new();
    lock_inline(&table, 2, b"a", Mode::Exclusive).unwrap();
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let result = lock(&table, 1, b"a", Mode::Exclusive);
            table.release_all(TxnId(1));
            result
        });
        await_waiters(&table, 1);
        let mut req = request(2, b"b", Mode::Shared, Duration::ZERO);
        req.implicit_owner = Some(TxnId(1));
        // The cheaper owner is rolled back; inline, the requester does not wait for that.
        assert_eq!(table.lock(&req), Err(LockError::Timeout));
        assert_eq!(owner.join().unwrap(), Err(LockError::Deadlock));
    });
    table.release_all(TxnId(2));
    assert_empty(&table);
}

/// Those who wait behind who doesn't wait, too.
#[test]
fn an_owner_entered_by_who_does_not_wait_takes_part_in_deadlocks() {
    let table = LockTable::new();
    lock_inline(&table, 2, b"s", Mode::Exclusive).unwrap();
    lock_inline(&table, 3, b"r", Mode::Exclusive).unwrap();
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let result = lock(&table, 1, b"s", Mode::Exclusive);
            table.release_all(TxnId(1));
            result
        });
        let behind = scope.spawn(|| lock(&table, 2, b"r", Mode::Exclusive));
        await_waiters(&table, 2);
        let mut req = request(3, b"r", Mode::Exclusive, FOREVER);
        (req.implicit_owner, req.wait) = (Some(TxnId(1)), false);
        assert_eq!(table.lock(&req), Err(LockError::Timeout));
        assert_eq!(owner.join().unwrap(), Err(LockError::Deadlock));
        assert_eq!(behind.join().unwrap(), Ok(()));
    });
    table.release_all(TxnId(2));
    assert_empty(&table);
}

#[test]
fn stress_mutual_exclusion() {
    const KEYS: usize = 6;
    let table = LockTable::new();
    let next_txn = AtomicU64::new(1);
    // Exclusive holders in the high half, shared ones in the low half.
    let holders: [AtomicU64; KEYS] = Default::default();
    thread::scope(|scope| {
        for seed in 0..4 {
            let (table, next_txn, holders) = (&table, &next_txn, &holders);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..3000 {
                    let txn = next_txn.fetch_add(1, Ordering::Relaxed);
                    let mut held = [0u64; KEYS];
                    for _ in 0..rng.usize(1..5) {
                        let at = rng.usize(..KEYS);
                        let mode = if rng.bool() { Mode::Shared } else { Mode::Exclusive };
                        match lock(table, txn, &[at as u8], mode) {
                            Ok(()) => {}
                            Err(LockError::Deadlock) => break,
                            Err(error) => panic!("seed {seed}: {error}"),
                        }
                        let wanted = if mode == Mode::Exclusive { 1 << 32 } else { 1 };
                        if wanted > held[at] {
                            let add = wanted - held[at];
                            let now = holders[at].fetch_add(add, Ordering::SeqCst) + add;
                            held[at] = wanted;
                            assert!(now <= 1 << 32, "seed {seed}: {now:x}");
                        }
                        if rng.u8(..4) == 0 {
                            thread::yield_now();
                        }
                    }
                    for (at, held) in held.into_iter().enumerate() {
                        holders[at].fetch_sub(held, Ordering::SeqCst);
                    }
                    table.release_all(TxnId(txn));
                }
            });
        }
    });
    assert!(table.stats().waits > 0);
    assert_empty(&table);
}

/// A row as the tree has it: a latch, a version header, and whom the test believes to hold it.
#[derive(Default)]
struct Row {
    header: TxnId,
    writer: Option<TxnId>,
    readers: HashSet<TxnId>,
}

struct World {
    table: LockTable,
    rows: Vec<Mutex<Row>>,
    active: Mutex<HashSet<TxnId>>,
}

impl World {
    fn wait(&self, txn: TxnId, at: usize, mode: Mode, owner: TxnId) -> Result<(), LockError> {
        let implicit_owner = (owner != TxnId::default() && owner != txn).then_some(owner);
        let is_active = |txn| self.active.lock().contains(&txn);
        let key = [at as u8];
        let request = request(txn.0, &key, mode, FOREVER);
        self.table.lock(&Request { implicit_owner, is_active: &is_active, ..request }).map(drop)
    }

    fn write(&self, txn: TxnId, at: usize) -> Result<(), LockError> {
        loop {
            let owner = {
                let mut row = self.rows[at].lock();
                let header = row.header;
                let foreign = header != txn && self.active.lock().contains(&header);
                let free = header == txn
                    || !foreign && !self.table.conflicts(txn, TREE, &[at as u8], Mode::Exclusive);
                if free {
                    assert!(row.writer.is_none_or(|writer| writer == txn));
                    assert!(row.readers.iter().all(|reader| *reader == txn));
                    row.header = txn;
                    row.writer = Some(txn);
                    return Ok(());
                }
                if foreign { header } else { TxnId::default() }
            };
            self.wait(txn, at, Mode::Exclusive, owner)?;
        }
    }

    fn read(&self, txn: TxnId, at: usize) -> Result<(), LockError> {
        let mut owner = TxnId::default();
        loop {
            self.wait(txn, at, Mode::Shared, owner)?;
            let mut row = self.rows[at].lock();
            owner = row.header;
            if owner == txn || !self.active.lock().contains(&owner) {
                assert!(row.writer.is_none_or(|writer| writer == txn));
                row.readers.insert(txn);
                return Ok(());
            }
        }
    }

    fn end(&self, txn: TxnId) {
        for row in &self.rows {
            let mut row = row.lock();
            row.readers.remove(&txn);
            row.writer = row.writer.filter(|writer| *writer != txn);
        }
        self.active.lock().remove(&txn);
        self.table.release_all(txn);
    }
}

#[test]
fn stress_implicit_owners() {
    let world = World {
        table: LockTable::new(),
        rows: (0..5).map(|_| Mutex::default()).collect(),
        active: Mutex::default(),
    };
    let next_txn = AtomicU64::new(1);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (world, next_txn) = (&world, &next_txn);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed);
                for _ in 0..2000 {
                    let txn = TxnId(next_txn.fetch_add(1, Ordering::Relaxed));
                    world.active.lock().insert(txn);
                    for _ in 0..rng.usize(1..5) {
                        let at = rng.usize(..world.rows.len());
                        let done =
                            if rng.bool() { world.read(txn, at) } else { world.write(txn, at) };
                        match done {
                            Ok(()) => {}
                            Err(LockError::Deadlock) => break,
                            Err(error) => panic!("seed {seed}: {error}"),
                        }
                        if rng.u8(..4) == 0 {
                            thread::yield_now();
                        }
                    }
                    world.end(txn);
                }
            });
        }
    });
    assert_empty(&world.table);
}

/// Waits as an observer was told of them: who, and for whom.
type Told = Arc<Mutex<Vec<(u64, Vec<TxnId>)>>>;

fn observed_and_shared_by_1_and_2() -> (LockTable, Told) {
    let table = LockTable::new();
    let told = Told::default();
    let to = told.clone();
    table.observe_waits(Box::new(move |txn, others| to.lock().push((txn.0, others.to_vec()))));
    lock_inline(&table, 1, b"k", Mode::Shared).unwrap();
    lock_inline(&table, 2, b"k", Mode::Shared).unwrap();
    (table, told)
}

#[test]
fn an_observer_is_told_all_who_are_in_the_way() {
    let (table, told) = observed_and_shared_by_1_and_2();
    thread::scope(|scope| {
        let table = &table;
        let wait = |txn, mode| {
            scope.spawn(move || lock(table, txn, b"k", mode).unwrap());
            await_waiters(table, txn as usize - 2);
        };
        wait(3, Mode::Exclusive);
        wait(4, Mode::Exclusive);
        wait(5, Mode::Shared);
        // It doesn't wait: nobody is told.
        assert_eq!(lock_inline(table, 6, b"k", Mode::Exclusive), Err(LockError::Timeout));
        // Each ends once it has what it waited for, so that the next goes on.
        for txn in 1..=5 {
            while !table.describe().iter().any(|info| info.txn == TxnId(txn) && info.wait.is_none())
            {
                thread::yield_now();
            }
            table.release_all(TxnId(txn));
        }
    });
    let ids = |all: &[u64]| all.iter().map(|&n| TxnId(n)).collect::<Vec<_>>();
    let expected = vec![(3, ids(&[1, 2])), (4, ids(&[1, 2, 3])), (5, ids(&[3, 4]))];
    assert_eq!(*told.lock(), expected);
    assert_empty(&table);
}

#[test]
fn who_raises_a_lock_waits_for_holders_only() {
    let (table, told) = observed_and_shared_by_1_and_2();
    thread::scope(|scope| {
        let table = &table;
        scope.spawn(move || lock(table, 3, b"k", Mode::Exclusive).unwrap());
        await_waiters(table, 1);
        scope.spawn(move || lock(table, 1, b"k", Mode::Exclusive).unwrap());
        await_waiters(table, 2);
        table.release_all(TxnId(2));
        while table.conflicts(TxnId(1), TREE, b"k", Mode::Exclusive) {
            thread::yield_now();
        }
        table.release_all(TxnId(1));
    });
    table.release_all(TxnId(3));
    assert_eq!(told.lock()[1], (1, vec![TxnId(2)]));
    assert_empty(&table);
}

/// Waits until an observer was told so often.
fn await_told(told: &Told, count: usize) {
    while told.lock().len() < count {
        thread::yield_now();
    }
}

#[test]
fn an_observer_is_told_who_comes_ahead_of_a_wait_by_raising_a_lock() {
    let (table, told) = observed_and_shared_by_1_and_2();
    thread::scope(|scope| {
        let table = &table;
        let wait = |txn, mode| scope.spawn(move || lock(table, txn, b"k", mode));
        let writer = wait(3, Mode::Exclusive);
        await_told(&told, 1);
        let reader = wait(4, Mode::Shared);
        await_told(&told, 2);
        // It waits for the other holder alone, ahead of both; then it has the lock.
        let raises = wait(1, Mode::Exclusive);
        await_told(&told, 5);
        let ids = |all: &[u64]| all.iter().map(|&n| TxnId(n)).collect::<Vec<_>>();
        assert_eq!(told.lock()[..2], [(3, ids(&[1, 2])), (4, ids(&[3]))]);
        let mut rest = told.lock()[2..].to_vec();
        rest.sort();
        assert_eq!(rest, [(1, ids(&[2])), (3, ids(&[1, 2, 1])), (4, ids(&[1, 3]))]);
        table.release_all(TxnId(2));
        assert_eq!(raises.join().unwrap(), Ok(()));
        table.release_all(TxnId(1));
        assert_eq!(writer.join().unwrap(), Ok(()));
        table.release_all(TxnId(3));
        assert_eq!(reader.join().unwrap(), Ok(()));
        table.release_all(TxnId(4));
        assert_empty(table);
    });
}

#[test]
fn an_observer_is_told_who_raises_a_lock_at_once_past_a_wait() {
    let (table, told) = observed_and_shared_by_1_and_2();
    table.release_all(TxnId(2));
    thread::scope(|scope| {
        let table = &table;
        let writer = scope.spawn(move || lock(table, 3, b"k", Mode::Exclusive));
        await_told(&told, 1);
        let reader = scope.spawn(move || lock(table, 4, b"k", Mode::Shared));
        await_told(&told, 2);
        lock_inline(table, 1, b"k", Mode::Exclusive).unwrap();
        await_told(&told, 4);
        // Whoever was between them has gone, and they stand in the way all the same.
        assert!(told.lock()[2..].contains(&(4, vec![TxnId(1), TxnId(3)])));
        // What was held before changes nothing.
        lock_inline(table, 1, b"k", Mode::Exclusive).unwrap();
        table.cancel(TxnId(3));
        assert_eq!(writer.join().unwrap(), Err(LockError::Cancelled));
        table.release_all(TxnId(1));
        assert_eq!(reader.join().unwrap(), Ok(()));
        table.release_all(TxnId(4));
        assert_eq!(told.lock().len(), 4);
        assert_empty(table);
    });
}

#[test]
fn an_observer_is_told_who_had_written_what_is_waited_for() {
    let (table, told) = observed_and_shared_by_1_and_2();
    table.release_all(TxnId(2));
    thread::scope(|scope| {
        let table = &table;
        let waiter = scope.spawn(move || lock(table, 3, b"k", Mode::Exclusive));
        await_told(&told, 1);
        // The holder finds that the row is another one's, and waits behind the first.
        let reader = scope.spawn(move || {
            let mut req = request(1, b"k", Mode::Shared, FOREVER);
            req.implicit_owner = Some(TxnId(5));
            table.lock(&req).map(drop)
        });
        await_told(&told, 3);
        let all: HashSet<_> = told.lock().iter().cloned().collect();
        assert!(all.contains(&(3, vec![TxnId(1)])));
        assert!(all.contains(&(3, vec![TxnId(5)])), "{all:?}");
        assert!(all.contains(&(1, vec![TxnId(5), TxnId(3)])), "{all:?}");
        table.release_all(TxnId(5));
        assert_eq!(waiter.join().unwrap(), Ok(()));
        table.release_all(TxnId(3));
        assert_eq!(reader.join().unwrap(), Ok(()));
        table.release_all(TxnId(1));
        assert_empty(table);
    });
}

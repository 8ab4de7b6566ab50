//! Commits, snapshots, the horizon and trims beside one another, by shuttle:
//! `cargo test -p weir --features shuttle --lib interleavings`.
//!
//! [`Order`] takes the steps of `Transactions` in their order; the table and the snapshots are the
//! real ones.

use super::{State, StatusTable};
use crate::txn::snapshots::Snapshots;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;
use weir_page::TxnId;

struct Order {
    status: StatusTable,
    clock: AtomicU64,
    committing: Mutex<()>,
    snapshots: Snapshots,
    horizon: AtomicU64,
    next: AtomicU64,
    aborted: Mutex<Vec<u64>>,
}

impl Order {
    fn new() -> Arc<Order> {
        Arc::new(Order {
            status: StatusTable::new(TxnId(1), &[]),
            clock: AtomicU64::new(0),
            committing: Mutex::new(()),
            snapshots: Snapshots::default(),
            horizon: AtomicU64::new(1),
            next: AtomicU64::new(1),
            aborted: Mutex::new(Vec::new()),
        })
    }

    fn has_aborted(&self, id: u64) -> bool {
        self.aborted.lock().expect("no holder panics").contains(&id)
    }

    fn begin(&self) -> TxnId {
        let id = TxnId(self.next.fetch_add(1, Ordering::Relaxed));
        self.status.begin(id);
        id
    }

    fn commit(&self, id: TxnId) {
        let _order = self.committing.lock().expect("no holder panics");
        let stamp = self.clock.load(Ordering::Relaxed) + 1;
        self.status.set(id, State::SeenFrom(stamp));
        self.clock.store(stamp, Ordering::Release);
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Acquire)
    }

    /// The horizon moves, and the table is trimmed every time.
    fn advance(&self) {
        let oldest = self.snapshots.oldest(|| self.now());
        let from = self.horizon.load(Ordering::Relaxed);
        let next = self.next.load(Ordering::Acquire);
        let at = self.status.settled_up_to(from, next, oldest);
        self.horizon.store(at, Ordering::Release);
        let (live, now) = self.snapshots.all(|| self.now());
        self.status.trim(TxnId(at), &live, now);
    }

    fn sees(&self, snapshot: u64, txn: TxnId) -> bool {
        txn.0 < self.horizon.load(Ordering::Acquire)
            || matches!(self.status.get(txn), State::SeenFrom(stamp) if stamp <= snapshot)
    }
}

#[test]
fn a_snapshot_never_changes_its_mind() {
    let run = || {
        let order = Order::new();
        let writer = |aborts: bool| {
            let order = order.clone();
            move || {
                for n in 0..4 {
                    let id = order.begin();
                    if aborts && n == 1 {
                        order.aborted.lock().expect("no holder panics").push(id.0);
                        order.status.set(id, State::NothingLeft);
                    } else {
                        order.commit(id);
                    }
                }
            }
        };
        let reader = |shard: usize| {
            let order = order.clone();
            move || {
                for _ in 0..2 {
                    let snapshot = order.snapshots.take_in(shard, 0, || order.now());
                    let look = || (1..=12).map(|id| order.sees(snapshot.at, TxnId(id)));
                    let first: Vec<bool> = look().collect();
                    // Those that left nothing are neither seen nor not.
                    for (id, now) in (1..).zip(look()) {
                        let before = first[id as usize - 1];
                        assert!(before == now || order.has_aborted(id), "{id}: {before}, {now}");
                    }
                    order.snapshots.end(snapshot);
                }
            }
        };
        let trimmer = {
            let order = order.clone();
            move || (0..4).for_each(|_| order.advance())
        };
        let threads = [
            thread::spawn(writer(false)),
            thread::spawn(writer(true)),
            thread::spawn(writer(false)),
            thread::spawn(reader(0)),
            thread::spawn(reader(1)),
            thread::spawn(trimmer),
        ];
        threads.into_iter().for_each(|t| t.join().expect("no thread fails"));
        order.advance();
        assert_eq!(order.horizon.load(Ordering::Relaxed), 13, "everybody sees everything");
    };
    shuttle::check_random(run, 5_000);
}

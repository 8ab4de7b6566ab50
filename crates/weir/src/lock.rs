//! The row lock table: explicit locks on (tree, key), held until a transaction ends.
//!
//! Writers lock a row *implicitly*: the version header names the writing transaction, and while
//! that transaction is active nobody else may change the row. Only locking reads, and whoever has
//! to wait, make an *explicit* entry here. The table is therefore empty in most workloads, and a
//! writer's question ([`LockTable::conflicts`], asked under the leaf latch) costs a hash and one
//! relaxed load then.
//!
//! # Protocol for callers
//! - A writer asks [`LockTable::conflicts`] under the leaf latch before it writes its header. It
//!   does not ask for a row whose header is already its own.
//! - A locking reader calls [`LockTable::lock`] with no latch held, then looks at the row *again*
//!   under the leaf latch. If the header now names another active transaction it calls `lock` again
//!   with [`Request::implicit_owner`]. This second look makes the relaxed load sufficient:
//!   whichever of the two latches the leaf first is seen by the other.
//! - The owner of such a header is entered as an exclusive holder on its behalf, so that there is
//!   somebody to wait for. The reader's own grant, if any, came after the header was written, was
//!   never effective, and is taken back.
//! - A transaction first stores its end where [`Request::is_active`] sees it, **then** calls
//!   [`LockTable::release_all`]. `is_active` is asked under the mutex of the owner's list of locks,
//!   which `release_all` empties under the same mutex: an entry made on behalf of a transaction is
//!   either in the list that `release_all` takes, or is not made. No list outlives its transaction.
//! - A transaction waits for one lock at a time.
//!
//! # Queues
//! Each key has the granted locks and a queue of waiters, first come first served. A request is
//! granted when no other holder and no waiter conflicts with it. An upgrade (shared to exclusive by
//! a holder) waits for the other holders only, ahead of those who hold nothing.
//!
//! # Deadlocks
//! Detected when a wait begins: a depth-first search over "waits for", from the new waiter. Edges
//! are read from the queues themselves, hence never stale; waits begin under one mutex, so that the
//! one that closes a cycle sees all of it. The victim is the waiter of the cycle whom the
//! coordinator would rather see go, if it has a preference; else the one with the least weight, the
//! youngest of equals. A waiter whose transaction holds no entry blocks nobody and is not searched
//! from, which keeps queues at one hot row cheap.
//!
//! # Latches
//! `waits` before a shard of queues before a shard of lists; the last deadlock after them. None is
//! held while a thread is parked.

mod deadlock;
mod info;
mod queue;
mod ranges;
#[cfg(test)]
mod tests;
mod waiter;

use crossbeam_utils::CachePadded;
use deadlock::Wait;
use hashbrown::HashTable;
pub use info::{Deadlock, DeadlockWait, Extent, LockInfo, WaitInfo};
use parking_lot::Mutex;
use queue::{LockKey, Queue, Waiting};
use ranges::RangeLocks;
pub use ranges::RangeMode;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use waiter::{Outcome, Waiter};
use weir_page::types::{TreeId, TxnId};

const SHARDS: usize = 64;
/// Queues for which a shard without any keeps memory.
const KEPT_QUEUES: usize = 1024;

/// How a row is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Others may read under lock, too; nobody else may write.
    Shared,
    /// Nobody else may lock or write.
    Exclusive,
}

impl Mode {
    /// Whether two transactions can't hold these modes at once.
    pub fn conflicts(self, other: Mode) -> bool {
        self == Mode::Exclusive || other == Mode::Exclusive
    }
}

/// Ends a wait when it is dropped: a panic of the observer's must not leave a waiter that never
/// goes.
struct CancelWait<'a> {
    table: &'a LockTable,
    txn: TxnId,
}

impl Drop for CancelWait<'_> {
    fn drop(&mut self) {
        self.table.cancel(self.txn);
    }
}

/// Why a lock was not granted. The transaction's other locks are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The wait closed a cycle and this transaction is the cheapest to roll back: roll it back.
    #[error("deadlock: this transaction was chosen as the victim; roll it back and try again")]
    Deadlock,
    /// The lock was not granted in time.
    #[error("lock wait timeout exceeded; the transaction's other locks are kept")]
    Timeout,
    /// The wait was ended by [`LockTable::cancel`].
    #[error("lock wait cancelled; the transaction's other locks are kept")]
    Cancelled,
}

/// What a transaction asks of [`LockTable::lock`].
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// Who asks.
    pub txn: TxnId,
    /// Tree of the row.
    pub tree: TreeId,
    /// Key of the row.
    pub key: &'a [u8],
    /// Mode wanted.
    pub mode: Mode,
    /// Whether to wait at all: else the lock is granted at once or [`LockError::Timeout`] comes,
    /// and no deadlock is looked for.
    pub wait: bool,
    /// How long to wait at most; zero never parks the thread, yet detects deadlocks.
    pub timeout: Duration,
    /// What rolling the transaction back would cost: undo records written so far.
    pub weight: u64,
    /// Whose transaction it is, for who asks after a deadlock; 0 if that isn't known.
    pub connection: u64,
    /// The transaction named by the row's version header, if it was active when seen.
    pub implicit_owner: Option<TxnId>,
    /// Whether a transaction has not ended. Called with the table's mutexes held: it must not wait,
    /// nor call the table.
    pub is_active: &'a dyn Fn(TxnId) -> bool,
    /// Whether a wait is to end at once. What it goes by changes before [`LockTable::cancel`] or
    /// [`LockTable::cancel_all`] is called. Called like [`Request::is_active`].
    pub is_cancelled: &'a dyn Fn() -> bool,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("txn", &self.txn)
            .field("tree", &self.tree)
            .field("key", &self.key)
            .field("mode", &self.mode)
            .field("implicit_owner", &self.implicit_owner)
            .finish_non_exhaustive()
    }
}

/// Figures since the table was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LockStats {
    /// Requests that could not be granted at once.
    pub waits: u64,
    /// Time that ended waits took, in microseconds.
    pub wait_time_us: u64,
    /// Deadlocks resolved, one per victim.
    pub deadlocks: u64,
    /// Waits that ended with [`LockError::Timeout`].
    pub timeouts: u64,
    /// Keys with an entry now.
    pub queues: u64,
}

#[derive(Default)]
struct Counters {
    waits: AtomicU64,
    wait_time_us: AtomicU64,
    deadlocks: AtomicU64,
    timeouts: AtomicU64,
}

/// What a request that could not be granted at once has come to; with whether the lock wasn't held
/// before.
enum Begun {
    Granted(bool),
    /// With all who are in the way, if somebody wants to know.
    Waits {
        waiter: Arc<Waiter>,
        new: bool,
        in_the_way: Vec<TxnId>,
    },
}

#[derive(Default)]
struct QueueShard {
    queues: Mutex<HashTable<Queue>>,
    /// How many there are: incremented before one is made, decremented after it is gone.
    count: AtomicUsize,
}

impl QueueShard {
    /// The key's queue among those of this shard, made if absent; then it is empty and admits
    /// everybody.
    fn queue<'q>(
        &self,
        queues: &'q mut HashTable<Queue>,
        hash: u64,
        req: &Request<'_>,
    ) -> &'q mut Queue {
        let is = |q: &Queue| q.is(req.tree, req.key);
        queues
            .entry(hash, is, |q| q.key().hash)
            .or_insert_with(|| {
                self.count.fetch_add(1, Ordering::Relaxed);
                Queue::new(LockKey { hash, tree: req.tree, bytes: Arc::from(req.key) })
            })
            .into_mut()
    }
}

type Lists = HashMap<TxnId, Vec<LockKey>>;

/// What [`LockTable::lock`] has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Whether the transaction didn't hold the lock before.
    pub is_new: bool,
    /// Whether others had to be waited for: what was read before may be different now.
    pub waited: bool,
}

/// Told who begins to wait, and whom all that one waits for; see [`LockTable::observe_waits`].
pub type WaitObserver = Box<dyn Fn(TxnId, &[TxnId]) + Send + Sync>;

/// Compares two transactions of a deadlock: the lesser one is rather rolled back; see
/// [`LockTable::prefer_victims`].
pub type Preference = Box<dyn Fn(TxnId, TxnId) -> std::cmp::Ordering + Send + Sync>;

/// The table of explicit row locks. See the module's head for the protocol.
pub struct LockTable {
    queues: Box<[CachePadded<QueueShard>]>,
    lists: Box<[CachePadded<Mutex<Lists>>]>,
    waits: Mutex<HashMap<TxnId, Wait>>,
    /// Range locks: [`ranges`] tells their protocol.
    pub ranges: RangeLocks,
    hasher: ahash::RandomState,
    counters: Counters,
    last_deadlock: Mutex<Option<Deadlock>>,
    observer: OnceLock<WaitObserver>,
    preference: OnceLock<Preference>,
}

impl Default for LockTable {
    fn default() -> Self {
        Self::new()
    }
}

impl LockTable {
    /// An empty table.
    pub fn new() -> Self {
        LockTable {
            queues: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            lists: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            waits: Mutex::default(),
            ranges: RangeLocks::default(),
            hasher: ahash::RandomState::new(),
            counters: Counters::default(),
            last_deadlock: Mutex::default(),
            observer: OnceLock::new(),
            preference: OnceLock::new(),
        }
    }

    /// Has every wait told before it begins, and again whenever somebody has come ahead of it, in
    /// the thread that waits and with nothing held: for a coordinator that knows of orders between
    /// transactions which this table doesn't. What is told may have ended meanwhile. The first
    /// observer stays.
    pub fn observe_waits(&self, observer: WaitObserver) {
        // A second one would have to be told of waits that are on.
        let _ = self.observer.set(observer);
    }

    /// Has `preference` asked which of two transactions in a deadlock is to be rolled back; equal
    /// if either may be. It is called with the table's mutexes held: it must not wait, nor call the
    /// table. The first one stays.
    pub fn prefer_victims(&self, preference: Preference) {
        let _ = self.preference.set(preference);
    }

    /// Whether another transaction holds, or waits ahead for, a lock that conflicts with `mode`.
    /// Never waits; meant to be called under the leaf latch.
    #[inline]
    pub fn conflicts(&self, txn: TxnId, tree: TreeId, key: &[u8], mode: Mode) -> bool {
        let hash = self.hash(tree, key);
        let shard = self.shard(hash);
        // Relaxed: the leaf latch orders a lock that matters before this load (see the protocol).
        if shard.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let queues = shard.queues.lock();
        queues.find(hash, |q| q.is(tree, key)).is_some_and(|q| !q.admits(txn, mode))
    }

    /// Acquires a lock, waiting at most [`Request::timeout`].
    /// Call with no latch held, and look at the row again afterwards.
    ///
    /// # Errors
    /// [`LockError`]; a lock held before the call is kept.
    ///
    /// # Panics
    /// If the transaction is already waiting in another thread.
    pub fn lock(&self, req: &Request<'_>) -> Result<Granted, LockError> {
        let hash = self.hash(req.tree, req.key);
        if req.implicit_owner.is_none()
            && let Some(new) = self.grant_now(hash, req)
        {
            return Ok(Granted { is_new: new, waited: false });
        }
        let (waiter, new) = match self.begin_wait(hash, req)? {
            Begun::Granted(new) => return Ok(Granted { is_new: new, waited: false }),
            Begun::Waits { waiter, new, in_the_way } => {
                self.tell_observer(req, &in_the_way);
                (waiter, new)
            }
        };
        let began = Instant::now();
        let outcome = self.wait(hash, req, &waiter, began);
        self.waits.lock().remove(&req.txn);
        let waited_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counters.wait_time_us.fetch_add(waited_us, Ordering::Relaxed);
        match outcome {
            Outcome::Granted => Ok(Granted { is_new: new, waited: true }),
            Outcome::Failed(error) => Err(error),
            Outcome::Parked => unreachable!("a finished wait has an outcome"),
        }
    }

    /// Releases every lock of a transaction that has ended, also those entered on its behalf, and
    /// grants and wakes those who waited for them. The transaction's end must already be visible
    /// through [`Request::is_active`].
    pub fn release_all(&self, txn: TxnId) {
        // Before those who wait for its end go on.
        self.ranges.release_all(txn);
        // Nothing is entered on behalf of `txn` from here on: converters ask under this mutex.
        let held = self.list(txn).lock().remove(&txn).unwrap_or_default();
        for key in held {
            self.change(key.hash, key.tree, &key.bytes, |queue| queue.revoke(txn));
        }
    }

    /// Releases one lock before the transaction ends (a row that a READ COMMITTED scan passed
    /// over). Does nothing if it is not held.
    pub fn release(&self, txn: TxnId, tree: TreeId, key: &[u8]) {
        self.change(self.hash(tree, key), tree, key, |queue| {
            let held = queue.revoke(txn);
            if held {
                self.unlist(txn, tree, key);
            }
            held
        });
    }

    /// Ends a transaction's wait, if there is one, with [`LockError::Cancelled`].
    pub fn cancel(&self, txn: TxnId) {
        let mut waits = self.waits.lock();
        if let Some(wait) = waits.remove(&txn) {
            self.end_wait(&wait.key, txn, LockError::Cancelled);
        }
    }

    /// Ends all waits, with [`LockError::Cancelled`]: who is waited for can't end.
    pub fn cancel_all(&self) {
        for (txn, wait) in self.waits.lock().drain() {
            self.end_wait(&wait.key, txn, LockError::Cancelled);
        }
    }

    /// Every lock held and waited for, in order of tree, key, and grant or arrival. Each queue is
    /// consistent; the table is not stopped as a whole.
    pub fn describe(&self) -> Vec<LockInfo> {
        let mut infos = Vec::new();
        for shard in &self.queues {
            for queue in shard.queues.lock().iter() {
                queue.describe(&mut infos);
            }
        }
        self.ranges.describe(&mut infos);
        infos.sort_by(|a, b| (a.tree, &a.key).cmp(&(b.tree, &b.key)));
        infos
    }

    /// The deadlock that was broken last.
    pub fn last_deadlock(&self) -> Option<Deadlock> {
        self.last_deadlock.lock().clone()
    }

    /// Figures since the table was made.
    pub fn stats(&self) -> LockStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let get_count = |count: &AtomicUsize| count.load(Ordering::Relaxed) as u64;
        LockStats {
            waits: get(&self.counters.waits),
            wait_time_us: get(&self.counters.wait_time_us),
            deadlocks: get(&self.counters.deadlocks),
            timeouts: get(&self.counters.timeouts),
            queues: self.queues.iter().map(|shard| get_count(&shard.count)).sum(),
        }
    }

    fn hash(&self, tree: TreeId, key: &[u8]) -> u64 {
        self.hasher.hash_one((tree, key))
    }

    fn shard(&self, hash: u64) -> &QueueShard {
        // The top seven bits tag the table's slots and the low ones choose them: take those
        // between.
        &self.queues[(hash >> 40) as usize % SHARDS]
    }

    fn list(&self, txn: TxnId) -> &Mutex<Lists> {
        &self.lists[txn.0 as usize % SHARDS]
    }

    /// Grants if nobody is in the way; whether the lock wasn't held before.
    fn grant_now(&self, hash: u64, req: &Request<'_>) -> Option<bool> {
        let shard = self.shard(hash);
        let mut queues = shard.queues.lock();
        let queue = shard.queue(&mut queues, hash, req);
        queue.admits(req.txn, req.mode).then(|| self.grant(queue, req))
    }

    /// Grants; whether the lock wasn't held before.
    fn grant(&self, queue: &mut Queue, req: &Request<'_>) -> bool {
        let held = queue.held(req.txn);
        let new = queue.grant(req.txn, req.mode);
        if new {
            self.enlist(req.txn, queue.key());
        }
        if held.is_some_and(|held| held < req.mode) {
            self.tell_overtaken(queue, req.txn);
        }
        new
    }

    /// Tells the observer of a wait that begins or goes on.
    fn tell_observer(&self, req: &Request<'_>, in_the_way: &[TxnId]) {
        if let Some(observe) = self.observer.get().filter(|_| !req.timeout.is_zero()) {
            let unless_it_panics = CancelWait { table: self, txn: req.txn };
            observe(req.txn, in_the_way);
            std::mem::forget(unless_it_panics);
        }
    }

    /// Somebody has come ahead of those who wait: the observer, if there is one, is told by each of
    /// them.
    fn tell_overtaken(&self, queue: &Queue, by: TxnId) {
        if self.observer.get().is_some() {
            queue.tell_overtaken(by);
        }
    }

    /// Who is in the way of a wait that goes on.
    fn in_the_way(&self, hash: u64, req: &Request<'_>) -> Vec<TxnId> {
        let queues = self.shard(hash).queues.lock();
        let queue = queues.find(hash, |q| q.is(req.tree, req.key));
        queue.map_or_else(Vec::new, |queue| queue.in_the_way(req.txn, req.mode))
    }

    /// Grants, or enters the request as a waiter and resolves the deadlocks that this makes.
    fn begin_wait(&self, hash: u64, req: &Request<'_>) -> Result<Begun, LockError> {
        let mut waits = self.waits.lock();
        let waiter = Waiter::new();
        let mut in_the_way = Vec::new();
        let (key, entered, new) = {
            let shard = self.shard(hash);
            let mut queues = shard.queues.lock();
            let queue = shard.queue(&mut queues, hash, req);
            let entered = self.enter_owner(queue, req);
            if queue.admits(req.txn, req.mode) {
                return Ok(Begun::Granted(self.grant(queue, req)));
            }
            let new = queue.held(req.txn).is_none();
            if req.wait {
                if self.observer.get().is_some() {
                    in_the_way = queue.in_the_way(req.txn, req.mode);
                }
                queue.push(Waiting {
                    txn: req.txn,
                    mode: req.mode,
                    since: Instant::now(),
                    waiter: Arc::clone(&waiter),
                });
                self.tell_overtaken(queue, req.txn);
            }
            (queue.key().clone(), entered, new)
        };
        // All who wait for the row wait for the owner now.
        if let Some(owner) = entered {
            self.resolve_deadlocks(&mut waits, owner);
        }
        if !req.wait {
            return Err(LockError::Timeout);
        }
        self.counters.waits.fetch_add(1, Ordering::Relaxed);
        let wait = Wait { key: key.clone(), weight: req.weight, connection: req.connection };
        assert!(waits.insert(req.txn, wait).is_none(), "{} waits for two locks", req.txn);

        // Under `waits`, like `cancel`: one of the two sees the other.
        if (req.is_cancelled)() {
            self.end_wait(&key, req.txn, LockError::Cancelled);
        } else if entered.is_some() || self.list(req.txn).lock().contains_key(&req.txn) {
            self.resolve_deadlocks(&mut waits, req.txn);
        }
        Ok(Begun::Waits { waiter, new, in_the_way })
    }

    /// Enters the implicit owner as exclusive holder if it is still active, and returns it.
    /// Whatever the requester holds was granted after the owner wrote the row, and is taken back.
    fn enter_owner(&self, queue: &mut Queue, req: &Request<'_>) -> Option<TxnId> {
        let owner = req.implicit_owner.filter(|&owner| owner != req.txn)?;
        let key = queue.key().clone();
        let held = queue.held(owner);
        {
            let mut lists = self.list(owner).lock();
            if !(req.is_active)(owner) {
                return None;
            }
            if queue.grant(owner, Mode::Exclusive) {
                lists.entry(owner).or_default().push(key.clone());
            }
        }
        // It may be waiting for it, too, behind what the requester was granted.
        if let Some(waiting) = queue.withdraw(owner) {
            waiting.waiter.finish(Outcome::Granted);
        }
        if queue.revoke(req.txn) {
            self.unlist(req.txn, key.tree, &key.bytes);
        }
        if held != Some(Mode::Exclusive) {
            self.tell_overtaken(queue, owner);
        }
        Some(owner)
    }

    fn wait(&self, hash: u64, req: &Request<'_>, waiter: &Waiter, began: Instant) -> Outcome {
        let outcome = if req.timeout.is_zero() {
            *waiter.outcome.lock()
        } else {
            self.park(hash, req, waiter, began.checked_add(req.timeout))
        };
        if outcome != Outcome::Parked {
            return outcome;
        }
        let key = LockKey { hash, tree: req.tree, bytes: Arc::from(req.key) };
        if self.end_wait(&key, req.txn, LockError::Timeout) {
            self.counters.timeouts.fetch_add(1, Ordering::Relaxed);
        }
        *waiter.outcome.lock()
    }

    /// Parks until the wait ended or `deadline` passed.
    fn park(
        &self,
        hash: u64,
        req: &Request<'_>,
        waiter: &Waiter,
        deadline: Option<Instant>,
    ) -> Outcome {
        loop {
            let outcome = waiter.park(deadline);
            if outcome != Outcome::Parked || !waiter.take_overtaken() {
                return outcome;
            }
            self.tell_observer(req, &self.in_the_way(hash, req));
        }
    }

    /// Takes a waiter out of its queue; `false` if its wait has ended already.
    fn end_wait(&self, key: &LockKey, txn: TxnId, error: LockError) -> bool {
        self.change(key.hash, key.tree, &key.bytes, |queue| {
            let waiting = queue.withdraw(txn);
            if let Some(waiting) = &waiting {
                waiting.waiter.finish(Outcome::Failed(error));
            }
            waiting.is_some()
        })
    }

    /// Takes something out of a queue, grants those who may now go, and drops the queue when empty.
    /// `take` says whether anything changed.
    fn change(
        &self,
        hash: u64,
        tree: TreeId,
        key: &[u8],
        take: impl FnOnce(&mut Queue) -> bool,
    ) -> bool {
        let shard = self.shard(hash);
        let mut queues = shard.queues.lock();
        let Ok(mut entry) = queues.find_entry(hash, |q| q.is(tree, key)) else { return false };
        let queue = entry.get_mut();
        let changed = take(queue);
        while let Some((next, new)) = queue.grant_next() {
            if new {
                self.enlist(next.txn, queue.key());
            }
            next.waiter.finish(Outcome::Granted);
        }
        if queue.is_empty() {
            entry.remove();
            shard.count.fetch_sub(1, Ordering::Relaxed);
            if queues.is_empty() && queues.capacity() > KEPT_QUEUES {
                *queues = HashTable::new();
            }
        }
        changed
    }

    fn enlist(&self, txn: TxnId, key: &LockKey) {
        self.list(txn).lock().entry(txn).or_default().push(key.clone());
    }

    fn unlist(&self, txn: TxnId, tree: TreeId, key: &[u8]) {
        let mut lists = self.list(txn).lock();
        let Some(list) = lists.get_mut(&txn) else { return };
        // From the end: it is the row locked last that is given up.
        if let Some(at) = list.iter().rposition(|k| k.tree == tree && *k.bytes == *key) {
            list.swap_remove(at);
        }
        if list.is_empty() {
            lists.remove(&txn);
        }
    }
}

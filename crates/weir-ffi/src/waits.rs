//! Waits for locks, told to the server: a replica's workers commit in an order that only the server
//! knows, and a commit that waits for others to join it goes on once somebody waits for its rows.
//!
//! A connection may have an *owner*, the server's own handle of it. Whoever begins to wait for a
//! lock has those owners told who are in its way. An owner is told only while its transaction runs,
//! and doesn't end meanwhile: both happen under one mutex, its shard's. Who needs several takes
//! them in their order.
//!
//! Whatever a thread waits for, the server's pool of threads is told that it blocks:
//! [`weir_observe_blocking`].

use crate::database::WeirDatabase;
use crossbeam_utils::CachePadded;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir::{BlockingObserver, TxnId};

/// Called in the thread of a transaction that begins to wait for a lock, with the owners of those
/// in its way that have one. It must not call the engine.
pub type WeirWaitCallback = extern "C" fn(owners: *const *mut c_void, count: usize);

/// Which of two owners' transactions, in a deadlock, is rather to be rolled back: below 0 the
/// first, above 0 the other, 0 either. It must not call the engine.
pub type WeirVictimCallback = extern "C" fn(one: *mut c_void, other: *mut c_void) -> i32;

#[derive(Clone, Copy)]
struct Owner(*mut c_void);

// SAFETY: the pointer is never followed here, only handed to the callback.
unsafe impl Send for Owner {}

/// So many transactions begin and end without meeting at a mutex.
const SHARDS: usize = 64;

type Shard = HashMap<TxnId, Owner>;

/// Owners of running transactions.
pub(crate) struct Owners(Box<[CachePadded<Mutex<Shard>>]>);

impl Default for Owners {
    fn default() -> Owners {
        Owners((0..SHARDS).map(|_| CachePadded::default()).collect())
    }
}

impl Owners {
    fn place(txn: TxnId) -> usize {
        usize::try_from(txn.0 % SHARDS as u64).expect("below SHARDS")
    }

    fn shard(&self, place: usize) -> MutexGuard<'_, Shard> {
        self.0[place].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, txn: TxnId, owner: *mut c_void) {
        self.shard(Owners::place(txn)).insert(txn, Owner(owner));
    }

    pub(crate) fn leave(&self, txn: TxnId) {
        self.shard(Owners::place(txn)).remove(&txn);
    }

    /// Calls `with` with the owners of those of `txns` that run and have one: none ends before it
    /// returns.
    fn held<T>(&self, txns: &[TxnId], with: impl FnOnce(&[Option<*mut c_void>]) -> T) -> T {
        let places: BTreeSet<usize> = txns.iter().map(|&txn| Owners::place(txn)).collect();
        let shards: BTreeMap<usize, MutexGuard<'_, Shard>> =
            places.into_iter().map(|place| (place, self.shard(place))).collect();
        let owner = |txn: &TxnId| shards[&Owners::place(*txn)].get(txn).map(|owner| owner.0);
        with(&txns.iter().map(owner).collect::<Vec<_>>())
    }

    fn tell(&self, in_the_way: &[TxnId], callback: WeirWaitCallback) {
        self.held(in_the_way, |owners| {
            let owners: Vec<*mut c_void> = owners.iter().copied().flatten().collect();
            callback(owners.as_ptr(), owners.len());
        });
    }

    fn prefer(&self, one: TxnId, other: TxnId, callback: WeirVictimCallback) -> Ordering {
        self.held(&[one, other], |owners| match owners {
            [Some(one), Some(other)] => callback(*one, *other).cmp(&0),
            _ => Ordering::Equal,
        })
    }
}

/// Has `callback` called with each wait for a lock that begins, and again if others come ahead of
/// it. Once for a database.
///
/// # Safety
/// `database` is a handle; `callback` may be called until it is closed.
#[no_mangle]
pub unsafe extern "C" fn weir_observe_waits(
    database: *const WeirDatabase,
    callback: WeirWaitCallback,
) {
    // SAFETY: the caller's promise.
    let database = unsafe { &*database };
    let owners = database.1.clone();
    database.0.observe_waits(move |_, in_the_way| owners.tell(in_the_way, callback));
}

/// Has `callback` asked which of two transactions in a deadlock is rolled back, if both have
/// owners. Once for a database.
///
/// # Safety
/// `database` is a handle; `callback` may be called until it is closed.
#[no_mangle]
pub unsafe extern "C" fn weir_prefer_victims(
    database: *const WeirDatabase,
    callback: WeirVictimCallback,
) {
    // SAFETY: the caller's promise.
    let database = unsafe { &*database };
    let owners = database.1.clone();
    database.0.prefer_victims(move |one, other| owners.prefer(one, other, callback));
}

/// Called in a thread that is about to block, or goes on. It must not call the engine.
pub type WeirBlockingCallback = extern "C" fn();

/// Has each thread of the process that blocks in the engine, for a read of the device or longer,
/// call `begins` before and `ends` after. Once for a process.
#[no_mangle]
pub extern "C" fn weir_observe_blocking(begins: WeirBlockingCallback, ends: WeirBlockingCallback) {
    let observer =
        BlockingObserver { begins: Box::new(move || begins()), ends: Box::new(move || ends()) };
    // A plugin that was uninstalled and is installed again has the same callbacks.
    weir::observe_blocking(observer);
}

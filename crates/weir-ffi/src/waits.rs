//! Waits for locks, told to the server: a replica's workers commit in an order that only the server knows.
//!
//! A connection may have an *owner*, the server's own handle of it. Whoever begins to wait for a lock has
//! those owners told who are in its way. An owner is told only while its transaction runs, and doesn't end
//! meanwhile: both happen under one mutex.

use crate::database::WeirDatabase;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use weir::TxnId;

/// Called in the thread of a transaction that begins to wait for a lock, with the owners of those in its way
/// that have one. It must not call the engine.
pub type WeirWaitCallback = extern "C" fn(owners: *const *mut c_void, count: usize);

/// Which of two owners' transactions, in a deadlock, is rather to be rolled back: below 0 the first, above 0 the
/// other, 0 either. It must not call the engine.
pub type WeirVictimCallback = extern "C" fn(one: *mut c_void, other: *mut c_void) -> i32;

#[derive(Clone, Copy)]
struct Owner(*mut c_void);

// SAFETY: the pointer is never followed here, only handed to the callback.
unsafe impl Send for Owner {}

/// Owners of running transactions.
#[derive(Default)]
pub(crate) struct Owners(Mutex<HashMap<TxnId, Owner>>);

impl Owners {
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<TxnId, Owner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, txn: TxnId, owner: *mut c_void) {
        self.all().insert(txn, Owner(owner));
    }

    pub(crate) fn leave(&self, txn: TxnId) {
        self.all().remove(&txn);
    }

    fn tell(&self, in_the_way: &[TxnId], callback: WeirWaitCallback) {
        let all = self.all();
        let owners: Vec<*mut c_void> =
            in_the_way.iter().filter_map(|txn| all.get(txn).map(|owner| owner.0)).collect();
        callback(owners.as_ptr(), owners.len());
    }

    fn prefer(&self, one: TxnId, other: TxnId, callback: WeirVictimCallback) -> Ordering {
        let all = self.all();
        match (all.get(&one), all.get(&other)) {
            (Some(one), Some(other)) => callback(one.0, other.0).cmp(&0),
            _ => Ordering::Equal,
        }
    }
}

/// Has `callback` called with each wait for a lock that begins. Once for a database.
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

/// Has `callback` asked which of two transactions in a deadlock is rolled back, if both have owners. Once for
/// a database.
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

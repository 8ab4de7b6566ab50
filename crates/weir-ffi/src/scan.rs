//! Scans of rows and index entries.

use crate::bytes::WeirBytes;
use crate::error::{failed, handle, result, WeirResult};
use crate::table::{key_of, WeirTable};
use crate::transaction::{WeirLock, WeirTransaction};
use std::mem::{offset_of, size_of};
use std::ops::Bound;
use weir::{Direction, RawPlace, RawRange, RawScan};

/// A scan. It stands on its own: rows may be read and written between its steps.
pub struct WeirScan {
    scan: RawScan,
    lock: WeirLock,
}

/// What kind of bound.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeirBoundKind {
    /// None.
    Open = 0,
    /// With all keys that begin with this one.
    Included,
    /// Without any key that begins with this one.
    Excluded,
}

/// One end of a range.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirBound {
    /// What kind.
    pub kind: WeirBoundKind,
    /// The key.
    pub key: WeirBytes,
}

/// # Safety
/// The key is readable for `'a`.
pub(crate) unsafe fn bound<'a>(bound: WeirBound) -> Bound<&'a [u8]> {
    // SAFETY: the caller's promise.
    let key = || unsafe { bound.key.slice() };
    match bound.kind {
        WeirBoundKind::Open => Bound::Unbounded,
        WeirBoundKind::Included => Bound::Included(key()),
        WeirBoundKind::Excluded => Bound::Excluded(key()),
    }
}

/// What a scan gives.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirScanned {
    /// The key.
    pub key: WeirBytes,
    /// The row, or what the index entry holds.
    pub value: WeirBytes,
    /// If not, the entry may be one that the row has no more: compare it with the row. With a dirty
    /// read (READ UNCOMMITTED) the row, looked up, may have changed since in any case.
    pub current: bool,
}

/// Where an entry of a batch lies in its bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirPlace {
    /// Where its key begins.
    pub key: u32,
    /// Where its key ends and its value begins.
    pub value: u32,
    /// Where its value ends.
    pub end: u32,
    /// False: entries whose value is elsewhere are in no batch.
    pub overflow: bool,
    /// If so, the entry may be one that the row has no more.
    pub outdated: bool,
}

// The engine's places are handed over as they are.
const _: () = assert!(
    size_of::<WeirPlace>() == size_of::<RawPlace>()
        && offset_of!(WeirPlace, key) == offset_of!(RawPlace, key)
        && offset_of!(WeirPlace, value) == offset_of!(RawPlace, value)
        && offset_of!(WeirPlace, end) == offset_of!(RawPlace, end)
        && offset_of!(WeirPlace, overflow) == offset_of!(RawPlace, overflow)
        && offset_of!(WeirPlace, outdated) == offset_of!(RawPlace, outdated)
);

/// Entries of a scan.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirBatch {
    /// Their keys and values.
    pub bytes: *const u8,
    /// Where each of them lies.
    pub places: *const WeirPlace,
    /// How many there are.
    pub count: usize,
    /// If not, none is sure to be its row's: see [`WeirScanned::current`].
    pub current: bool,
}

/// Begins a scan of an index, or of rows ([`crate::table::WEIR_PRIMARY`]).
///
/// # Safety
/// `transaction` and `table` are handles; the bounds are readable; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_scan_open(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    index: u32,
    low: WeirBound,
    high: WeirBound,
    backward: bool,
    lock: WeirLock,
    out: *mut *mut WeirScan,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (transaction, table) = unsafe { (&mut *transaction, &*table) };
    // SAFETY: the caller's promises.
    let range = unsafe { RawRange::prefixes(bound(low), bound(high)) };
    let direction = if backward { Direction::Backward } else { Direction::Forward };
    let scan = transaction
        .reading(lock)
        .and_then(|txn| txn.scan_raw(&table.table, key_of(index), range, direction, lock.into()));
    // SAFETY: the caller's promise.
    unsafe { handle(scan.map(|scan| WeirScan { scan, lock }), out) }
}

/// The next entry, and those behind it that were read with it, which count as given; `rest` may be
/// null. Their bytes are valid until the scan is used again.
///
/// # Safety
/// `scan` and `transaction` are handles, the latter of the transaction that began the scan; `out`
/// and `rest` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_scan_next(
    scan: *mut WeirScan,
    transaction: *mut WeirTransaction,
    out: *mut WeirScanned,
    rest: *mut WeirBatch,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (scan, transaction) = unsafe { (&mut *scan, &mut *transaction) };
    match transaction.reading(scan.lock).and_then(|txn| scan.scan.next(txn)) {
        Ok(Some(entry)) => {
            let (key, value) = (entry.key.into(), entry.value.into());
            // SAFETY: the caller's promise.
            unsafe { *out = WeirScanned { key, value, current: entry.current } };
            if !rest.is_null() {
                // What `out` points to stays where it is: `take_rest` promises that.
                let batch = scan.scan.take_rest();
                let (bytes, places) = (batch.bytes.as_ptr(), batch.entries.as_ptr().cast());
                let (count, current) = (batch.entries.len(), batch.current);
                // SAFETY: the caller's promise.
                unsafe { *rest = WeirBatch { bytes, places, count, current } };
            }
            WeirResult::Ok
        }
        Ok(None) => WeirResult::NotFound,
        Err(error) => failed(&error),
    }
}

/// Has what lies behind `key`, which the scan has given, read anew. For locking reads by an index:
/// who had to wait for an entry's row (`weir_lock_waits`), or finds that the row has another entry
/// now, may find that entry further on. What was given together with it isn't valid any more.
///
/// # Safety
/// `scan` is a handle; `key` is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_scan_behind(scan: *mut WeirScan, key: WeirBytes) {
    // SAFETY: the caller's promises.
    let (scan, key) = unsafe { (&mut *scan, key.slice()) };
    scan.scan.behind(key);
}

/// As `weir_scan_behind`; a scan without locks at `ReadCommitted` sees from there on what is
/// committed now.
///
/// # Safety
/// `scan` and `transaction` are handles, the latter of the transaction that began the scan; `key`
/// is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_scan_behind_as_of_now(
    scan: *mut WeirScan,
    transaction: *mut WeirTransaction,
    key: WeirBytes,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (scan, transaction, key) = unsafe { (&mut *scan, &mut *transaction, key.slice()) };
    result(transaction.running().and_then(|txn| scan.scan.behind_as_of_now(txn, key)))
}

/// Ends a scan.
///
/// # Safety
/// `scan` is a handle, given back by this, or null.
#[no_mangle]
pub unsafe extern "C" fn weir_scan_close(scan: *mut WeirScan) {
    if !scan.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(scan) });
    }
}

//! Scans of rows and index entries.

use crate::bytes::WeirBytes;
use crate::error::{failed, handle, WeirResult};
use crate::table::{key_of, WeirTable};
use crate::transaction::{WeirLock, WeirTransaction};
use std::ops::Bound;
use weir::{Direction, RawRange, RawScan};

/// A scan. It stands on its own: rows may be read and written between its steps.
pub struct WeirScan {
    scan: RawScan,
    locks: bool,
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
    /// If not, the entry may be one that the row has no more: compare it with the row.
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
        .running()
        .and_then(|txn| txn.scan_raw(&table.table, key_of(index), range, direction, lock.into()));
    let locks = lock != WeirLock::None;
    // SAFETY: the caller's promise.
    unsafe { handle(scan.map(|scan| WeirScan { scan, locks }), out) }
}

/// The next entry; its bytes are valid until the scan is used again.
///
/// # Safety
/// `scan` and `transaction` are handles, the latter of the transaction that began the scan; `out` may be
/// written.
#[no_mangle]
pub unsafe extern "C" fn weir_scan_next(
    scan: *mut WeirScan,
    transaction: *mut WeirTransaction,
    out: *mut WeirScanned,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (scan, transaction) = unsafe { (&mut *scan, &mut *transaction) };
    let txn = if scan.locks { transaction.waiting() } else { transaction.running() };
    match txn.and_then(|txn| scan.scan.next(txn)) {
        Ok(Some(entry)) => {
            let (key, value) = (entry.key.into(), entry.value.into());
            // SAFETY: the caller's promise.
            unsafe { *out = WeirScanned { key, value, current: entry.current } };
            WeirResult::Ok
        }
        Ok(None) => WeirResult::NotFound,
        Err(error) => failed(&error),
    }
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

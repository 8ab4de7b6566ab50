//! Rows and beginnings of ranges, read together before they are looked up one by one.

use crate::bytes::WeirBytes;
use crate::table::{key_of, WeirTable};
use crate::transaction::WeirTransaction;
use weir::RowsAhead;

/// When rows, or the beginnings of ranges, are worth reading together.
pub struct WeirAhead(RowsAhead);

/// To be used for one statement's scans of a table, or for its ranges.
#[no_mangle]
pub extern "C" fn weir_ahead_open() -> *mut WeirAhead {
    Box::into_raw(Box::new(WeirAhead(RowsAhead::default())))
}

/// Gives it back, or null.
///
/// # Safety
/// `ahead` is a handle, given back by this, or null.
#[no_mangle]
pub unsafe extern "C" fn weir_ahead_close(ahead: *mut WeirAhead) {
    if !ahead.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(ahead) });
    }
}

/// Another scan begins, whose entries are counted on from `number`.
///
/// # Safety
/// `ahead` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_ahead_begin(ahead: *mut WeirAhead, number: u64) {
    // SAFETY: the caller's promise.
    unsafe { (*ahead).0.begin(number) }
}

/// To be asked before the row of an index's entry, or a range, is looked up: of how many entries or
/// ranges, from this one on, the rows or beginnings are to be read together now, by
/// `weir_read_ahead`; 0 for none. `number`: that of the entry or range, from 0 on. `known`: how
/// many are known, from this one on.
///
/// # Safety
/// `ahead` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_ahead_due(ahead: *mut WeirAhead, number: u64, known: usize) -> usize {
    // SAFETY: the caller's promise.
    unsafe { (*ahead).0.due(number, known) }
}

/// Reads what keys lead to that are about to be looked up, side by side: rows
/// ([`crate::table::WEIR_PRIMARY`]), or entries of an index, of which the beginnings of keys will
/// do. What can't be read is left to who looks it up.
///
/// # Safety
/// `transaction` and `table` are handles; `keys` has `count` keys, all readable.
#[no_mangle]
pub unsafe extern "C" fn weir_read_ahead(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    index: u32,
    keys: *const WeirBytes,
    count: usize,
) {
    // Without keys their place may be null, which a slice's mustn't be.
    if count == 0 {
        return;
    }
    // SAFETY: the caller's promises.
    let (transaction, table) = unsafe { (&mut *transaction, &*table) };
    // SAFETY: the caller's promises.
    let keys = unsafe { std::slice::from_raw_parts(keys, count) };
    // SAFETY: the caller's promise.
    let keys = keys.iter().map(|key| unsafe { key.slice() });
    let (table, of) = (&table.table, key_of(index));
    let _ = transaction.running().and_then(|txn| txn.read_ahead_raw(table, of, keys));
}

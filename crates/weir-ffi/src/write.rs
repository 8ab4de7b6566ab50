//! Writes and single reads of rows.

use crate::bytes::WeirBytes;
use crate::error::{failed, result, WeirResult};
use crate::table::WeirTable;
use crate::transaction::{WeirLock, WeirTransaction};
use weir::schema::SchemaError;
use weir::{Entry, Transaction};

/// An index entry of a row.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirEntry {
    /// Position of the index in its table.
    pub index: u32,
    /// Its key.
    pub key: WeirBytes,
    /// What it holds.
    pub value: WeirBytes,
}

/// Holds a row that was read.
#[derive(Default)]
pub struct WeirRow {
    row: Vec<u8>,
    /// Its key, if that wasn't known.
    key: Vec<u8>,
}

/// Most entries that a row has: as many as a table of the server may have indexes.
const MAX_ENTRIES: usize = 128;
/// As many as most rows have; room for more would cost them more than their writing.
const FEW_ENTRIES: usize = 8;

/// Runs `write` with the entries as the engine wants them; they stay on the stack.
///
/// # Safety
/// `entries` points to `count` entries whose keys and values are readable.
unsafe fn with_entries<T>(
    entries: *const WeirEntry,
    count: usize,
    write: impl FnOnce(&[Entry<'_>]) -> weir::Result<T>,
) -> weir::Result<T> {
    if count > MAX_ENTRIES {
        return Err(SchemaError::TooManyIndexes(count).into());
    }
    // SAFETY: the caller's promise.
    unsafe {
        match count <= FEW_ENTRIES {
            true => with_room::<FEW_ENTRIES, _>(entries, count, write),
            false => with_room::<MAX_ENTRIES, _>(entries, count, write),
        }
    }
}

/// As [`with_entries`], for at most `N` of them.
///
/// # Safety
/// As [`with_entries`].
unsafe fn with_room<const N: usize, T>(
    entries: *const WeirEntry,
    count: usize,
    write: impl FnOnce(&[Entry<'_>]) -> T,
) -> T {
    let mut out = [Entry { index: 0, key: &[], value: &[] }; N];
    for (n, out) in out.iter_mut().enumerate().take(count) {
        // SAFETY: the caller's promises.
        unsafe {
            let entry = &*entries.add(n);
            let (key, value) = (entry.key.slice(), entry.value.slice());
            *out = Entry { index: entry.index as usize, key, value };
        }
    }
    write(&out[..count])
}

/// What becomes of a row that is in an insert's way.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum WeirInTheWay {
    /// It is locked as if it had been read, where ranges are locked.
    Locked = 0,
    /// It is left to the caller, who locks it, and inserts again if it is gone by then.
    Left,
}

/// Inserts a row and its index entries.
///
/// # Safety
/// `transaction` and `table` are handles; key, row and entries are readable.
#[no_mangle]
pub unsafe extern "C" fn weir_insert(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    key: WeirBytes,
    row: WeirBytes,
    entries: *const WeirEntry,
    count: usize,
    in_the_way: WeirInTheWay,
) -> WeirResult {
    // SAFETY: the caller's promises.
    unsafe {
        let (transaction, table) = (&mut *transaction, &*table);
        let (key, row) = (key.slice(), row.slice());
        let insert = |entries: &[Entry<'_>]| {
            let (transaction, table) = (transaction.waiting()?, &table.table);
            match in_the_way {
                WeirInTheWay::Locked => transaction.insert_raw(table, key, row, entries),
                WeirInTheWay::Left => transaction.try_insert_raw(table, key, row, entries),
            }
        };
        result(with_entries(entries, count, insert))
    }
}

/// Replaces a row that keeps its primary key, and those of its index entries that change. If
/// `unseen` comes back true, pass the entries that stayed to `weir_touch`.
///
/// # Safety
/// `transaction` and `table` are handles; key, row and entries are readable; `unseen` may
/// be written.
#[no_mangle]
pub unsafe extern "C" fn weir_update(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    key: WeirBytes,
    row: WeirBytes,
    removed: *const WeirEntry,
    removed_count: usize,
    added: *const WeirEntry,
    added_count: usize,
    unseen: *mut bool,
) -> WeirResult {
    // SAFETY: the caller's promises.
    unsafe {
        let (transaction, table) = (&mut *transaction, &*table);
        let (key, row) = (key.slice(), row.slice());
        let update = |removed: &[Entry<'_>]| {
            with_entries(added, added_count, |added| {
                transaction.waiting()?.update_raw(&table.table, key, row, removed, added)
            })
        };
        match with_entries(removed, removed_count, update) {
            Ok(was_unseen) => {
                *unseen = was_unseen;
                WeirResult::Ok
            }
            Err(error) => failed(&error),
        }
    }
}

/// Makes entries that stayed as they are the transaction's own: needed after a `weir_update` that
/// replaced a version which the transaction's snapshot doesn't cover.
///
/// # Safety
/// `transaction` and `table` are handles; the entries are readable.
#[no_mangle]
pub unsafe extern "C" fn weir_touch(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    entries: *const WeirEntry,
    count: usize,
) -> WeirResult {
    // SAFETY: the caller's promises.
    unsafe {
        let (transaction, table) = (&mut *transaction, &*table);
        let touch = |entries: &[Entry<'_>]| transaction.waiting()?.touch_raw(&table.table, entries);
        result(with_entries(entries, count, touch))
    }
}

/// Deletes a row and its index entries.
///
/// # Safety
/// `transaction` and `table` are handles; key and entries are readable.
#[no_mangle]
pub unsafe extern "C" fn weir_delete(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    key: WeirBytes,
    entries: *const WeirEntry,
    count: usize,
) -> WeirResult {
    // SAFETY: the caller's promises.
    unsafe {
        let (transaction, table) = (&mut *transaction, &*table);
        let key = key.slice();
        let delete =
            |entries: &[Entry<'_>]| transaction.waiting()?.delete_raw(&table.table, key, entries);
        result(with_entries(entries, count, delete))
    }
}

/// Makes a holder for rows.
#[no_mangle]
pub extern "C" fn weir_row_open() -> *mut WeirRow {
    Box::into_raw(Box::default())
}

/// Gives back a holder's memory if that is more than `most` bytes; what was read into it is gone
/// then.
///
/// # Safety
/// `row` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_row_trim(row: *mut WeirRow, most: usize) {
    // SAFETY: the caller's promise.
    let row = unsafe { &mut *row };
    if row.row.capacity() > most {
        row.row = Vec::new();
    }
}

/// Gives back a holder, or null.
///
/// # Safety
/// `row` is a handle, given back by this, or null.
#[no_mangle]
pub unsafe extern "C" fn weir_row_close(row: *mut WeirRow) {
    if !row.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(row) });
    }
}

/// Reads a row; `out` is valid until the holder is used again.
///
/// # Safety
/// `transaction`, `table` and `row` are handles; `key` is readable; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_get(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    key: WeirBytes,
    lock: WeirLock,
    row: *mut WeirRow,
    out: *mut WeirBytes,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (transaction, table, key, row) =
        unsafe { (&mut *transaction, &*table, key.slice(), &mut (*row).row) };
    let read = |txn: &mut Transaction| txn.get_raw(&table.table, key, lock.into(), row);
    match transaction.reading(lock).and_then(read) {
        Ok(true) => {
            // SAFETY: the caller's promise.
            unsafe { *out = row.as_slice().into() };
            WeirResult::Ok
        }
        Ok(false) => WeirResult::NotFound,
        Err(error) => failed(&error),
    }
}

/// Room for any short form, in bytes.
pub const WEIR_SHORT_FORM_BYTES_MAX: usize = 3532;
const _: () = assert!(WEIR_SHORT_FORM_BYTES_MAX == weir::SHORT_FORM_BYTES_MAX);

/// Writes a key's short form, which is the key itself unless it is very long; returns its length.
///
/// # Safety
/// `key` is readable; `out` has room for `WEIR_SHORT_FORM_BYTES_MAX`.
#[no_mangle]
pub unsafe extern "C" fn weir_short_form(key: WeirBytes, out: *mut u8) -> usize {
    // SAFETY: the caller's promise.
    let short = weir::short_form(unsafe { key.slice() });
    // SAFETY: the caller's promise; no short form is longer.
    unsafe { std::ptr::copy_nonoverlapping(short.as_ptr(), out, short.len()) };
    short.len()
}

/// As `weir_get`, by the key's short form; `key` is then the whole key, valid as long as `out`.
///
/// # Safety
/// As [`weir_get`]; `key` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_get_by_short_form(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    short_form: WeirBytes,
    lock: WeirLock,
    row: *mut WeirRow,
    key: *mut WeirBytes,
    out: *mut WeirBytes,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (transaction, table, short, holder) =
        unsafe { (&mut *transaction, &*table, short_form.slice(), &mut *row) };
    let WeirRow { row, key: whole } = holder;
    let read = |txn: &mut Transaction| {
        txn.get_raw_by_short_form(&table.table, short, lock.into(), whole, row)
    };
    match transaction.reading(lock).and_then(read) {
        Ok(true) => {
            // SAFETY: the caller's promises.
            unsafe {
                *out = row.as_slice().into();
                *key = whole.as_slice().into();
            }
            WeirResult::Ok
        }
        Ok(false) => WeirResult::NotFound,
        Err(error) => failed(&error),
    }
}

//! Many rows inserted or deleted at once.

use crate::bytes::WeirBytes;
use crate::error::{result, WeirResult};
use crate::table::WeirTable;
use crate::transaction::WeirTransaction;
use weir::{Pair, Table, Transaction};

/// A key and what belongs to it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirPair {
    /// The key.
    pub key: WeirBytes,
    /// What belongs to it.
    pub value: WeirBytes,
}

/// What rows have in an index: an entry for each of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirEntries {
    /// Position of the index in its table.
    pub index: u32,
    /// The entries, as many as rows.
    pub entries: *const WeirPair,
}

/// # Safety
/// `pairs` points to `count` pairs whose bytes are readable during `'a`.
unsafe fn pairs<'a>(pairs: *const WeirPair, count: usize) -> Vec<Pair<'a>> {
    // SAFETY: the caller's promises.
    let pair = |n| unsafe {
        let WeirPair { key, value } = *pairs.add(n);
        Pair { key: key.slice(), value: value.slice() }
    };
    (0..count).map(pair).collect()
}

/// Writes rows, and by the position of each index the entries that they have there.
type WriteMany = fn(
    &mut Transaction,
    &Table,
    &mut [Pair<'_>],
    &mut [(usize, Vec<Pair<'_>>)],
) -> weir::Result<()>;

/// # Safety
/// As for `weir_insert_many`.
unsafe fn write_many(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    rows: *const WeirPair,
    count: usize,
    indexes: *const WeirEntries,
    index_count: usize,
    write: WriteMany,
) -> WeirResult {
    // SAFETY: the caller's promises.
    unsafe {
        let (transaction, table) = (&mut *transaction, &*table);
        let mut rows = pairs(rows, count);
        let of_index = |n| {
            let WeirEntries { index, entries } = *indexes.add(n);
            (index as usize, pairs(entries, count))
        };
        let mut entries: Vec<_> = (0..index_count).map(of_index).collect();
        let written = |txn: &mut Transaction| write(txn, &table.table, &mut rows, &mut entries);
        result(transaction.waiting().and_then(written))
    }
}

/// Inserts rows with all their index entries. A duplicate isn't told by its name: nothing was
/// inserted then; inserted one after the other, the rows tell it.
///
/// # Safety
/// `transaction` and `table` are handles; `rows` points to `count` rows, `indexes` to `index_count`
/// indexes' entries; all are readable.
#[no_mangle]
pub unsafe extern "C" fn weir_insert_many(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    rows: *const WeirPair,
    count: usize,
    indexes: *const WeirEntries,
    index_count: usize,
) -> WeirResult {
    let write = Transaction::insert_many_raw;
    // SAFETY: the caller's promises.
    unsafe { write_many(transaction, table, rows, count, indexes, index_count, write) }
}

/// Deletes rows with all their index entries, of which only the keys matter.
///
/// # Safety
/// As for `weir_insert_many`.
#[no_mangle]
pub unsafe extern "C" fn weir_delete_many(
    transaction: *mut WeirTransaction,
    table: *const WeirTable,
    rows: *const WeirPair,
    count: usize,
    indexes: *const WeirEntries,
    index_count: usize,
) -> WeirResult {
    let write = Transaction::delete_many_raw;
    // SAFETY: the caller's promises.
    unsafe { write_many(transaction, table, rows, count, indexes, index_count, write) }
}

//! Tables: definition, removal, figures.

use crate::bytes::{WeirBytes, WeirBytesCallback};
use crate::database::WeirDatabase;
use crate::error::{failed, handle, result, WeirResult};
use crate::patience::{patiently, WeirPatience};
use crate::scan::{bound, WeirBound};
use std::ffi::c_void;
use weir::{Changes, Database, Error, KeyOf, RawIndex, RawRange, Schema, Table};

/// A table.
pub struct WeirTable {
    pub(crate) table: Table,
    pub(crate) database: Database,
}

/// An index of a table that is made.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirIndex {
    /// Its name.
    pub name: WeirBytes,
    /// Whether a key may occur once only.
    pub unique: bool,
}

/// Stands for the primary key where an index is named by its position.
pub const WEIR_PRIMARY: u32 = u32::MAX;

pub(crate) fn key_of(index: u32) -> KeyOf {
    if index == WEIR_PRIMARY {
        KeyOf::Primary
    } else {
        KeyOf::Index(index as usize)
    }
}

/// # Safety
/// `indexes` points to `count` indexes whose names are readable.
pub(crate) unsafe fn indexes(
    indexes: *const WeirIndex,
    count: usize,
) -> weir::Result<Vec<RawIndex>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise.
    let indexes = unsafe { std::slice::from_raw_parts(indexes, count) };
    // SAFETY: the caller's promise.
    let of = |i: &WeirIndex| Ok(RawIndex::new(unsafe { i.name.name() }?, i.unique));
    indexes.iter().map(of).collect()
}

/// Creates a table. `meta` is kept for the caller. With `is_own` only the connection that makes it
/// uses it: also in a transaction whose snapshot is older.
///
/// # Safety
/// `database` is a handle; `name`, `meta` and the `count` indexes are readable.
#[no_mangle]
pub unsafe extern "C" fn weir_table_create(
    database: *const WeirDatabase,
    name: WeirBytes,
    index: *const WeirIndex,
    count: usize,
    meta: WeirBytes,
    is_own: bool,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, name, meta) = unsafe { (&*database, name.name(), meta.slice().to_vec()) };
    // SAFETY: the caller's promise.
    let indexes = unsafe { indexes(index, count) };
    let create = || {
        let (name, schema) = (name?, Schema::raw(indexes?, meta)?);
        match is_own {
            true => database.0.create_own_table(&name, schema),
            false => database.0.create_table(&name, schema),
        }
    };
    result(create().map(drop))
}

/// The table of a name. Nobody keeps others from giving the name to another one: that is left to
/// the caller of the interface.
fn find(database: &Database, name: weir::Result<String>) -> weir::Result<Table> {
    let name = name?;
    database.table(&name).ok_or(Error::NoSuchTable(name))
}

/// Finds a table.
///
/// # Safety
/// `database` is a handle; `name` is readable; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_table_open(
    database: *const WeirDatabase,
    name: WeirBytes,
    out: *mut *mut WeirTable,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, name) = unsafe { (&(*database).0, name.name()) };
    let table = find(database, name).map(|table| WeirTable { table, database: database.clone() });
    // SAFETY: the caller's promise.
    unsafe { handle(table, out) }
}

/// Gives back a table's handle.
///
/// # Safety
/// `table` is a handle, given back by this, or null.
#[no_mangle]
pub unsafe extern "C" fn weir_table_close(table: *mut WeirTable) {
    if !table.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(table) });
    }
}

/// Drops a table.
///
/// # Safety
/// `database` is a handle; `name` is readable; the canceller is a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_table_drop(
    database: *const WeirDatabase,
    name: WeirBytes,
    patience: WeirPatience,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, name) = unsafe { (&(*database).0, name.name()) };
    // SAFETY: the caller's promise.
    let drop = |table| unsafe { patiently(database, patience, |with| with.drop_table(&table)) };
    result(find(database, name).and_then(drop))
}

/// From now on snapshots from before can't read the table: of a copy that takes another table's
/// place.
///
/// # Safety
/// `database` is a handle; the name is readable; the canceller is a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_table_hide_from_older(
    database: *const WeirDatabase,
    name: WeirBytes,
    patience: WeirPatience,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, name) = unsafe { (&(*database).0, name.name()) };
    // SAFETY: the caller's promise.
    let hide =
        |table| unsafe { patiently(database, patience, |with| with.hide_from_older(&table)) };
    result(find(database, name).and_then(hide))
}

/// Gives a table another name. `meta` replaces what the caller keeps with it; null: that stays.
///
/// # Safety
/// `database` is a handle; the names, and `meta` unless it is null, are readable; the canceller is
/// a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_table_rename(
    database: *const WeirDatabase,
    from: WeirBytes,
    to: WeirBytes,
    meta: *const WeirBytes,
    patience: WeirPatience,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, from, to) = unsafe { (&(*database).0, from.name(), to.name()) };
    // SAFETY: the caller's promise.
    let meta = unsafe { meta.as_ref().map(|meta| meta.slice()) };
    let rename = |table: Table, to: String| {
        let change = |with: Changes<'_>| match meta {
            Some(meta) => with.rename_raw_table(&table, &to, meta),
            None => with.rename_table(&table, &to),
        };
        // SAFETY: the caller's promise.
        unsafe { patiently(database, patience, change) }
    };
    result(find(database, from).and_then(|table| rename(table, to?)))
}

/// The tables of that many names.
///
/// # Safety
/// `names` points to `count` names that are readable.
unsafe fn find_all(
    database: &Database,
    names: *const WeirBytes,
    count: usize,
) -> weir::Result<Vec<Table>> {
    // SAFETY: the caller's promises.
    (0..count).map(|n| find(database, unsafe { (*names.add(n)).name() })).collect()
}

/// Removes all rows of tables, each named once, at once: of all or of none.
///
/// # Safety
/// `database` is a handle; the `count` names are readable; the canceller is a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_tables_truncate(
    database: *const WeirDatabase,
    names: *const WeirBytes,
    count: usize,
    patience: WeirPatience,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let database = unsafe { &(*database).0 };
    let truncate = |tables: Vec<Table>| {
        let tables: Vec<&Table> = tables.iter().collect();
        // SAFETY: the caller's promise.
        unsafe { patiently(database, patience, |with| with.truncate_tables(&tables)) }
    };
    // SAFETY: the caller's promise.
    result(unsafe { find_all(database, names, count) }.and_then(truncate))
}

/// Fills the pages of a table and of its indexes anew, where that frees many, and makes the data
/// file shorter where much of it is free; others go on meanwhile. What was done when patience ends
/// stays.
///
/// # Safety
/// `table` is a handle; the canceller is a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_table_reorganize(
    table: *const WeirTable,
    patience: WeirPatience,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let WeirTable { table, database } = unsafe { &*table };
    // SAFETY: the caller's promise.
    let done = unsafe { patiently(database, patience, |with| with.reorganize_table(table)) };
    result(done.map(drop))
}

/// Hands out the bytes that the caller keeps with the table.
///
/// # Safety
/// `table` is a handle; `callback` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn weir_table_meta(
    table: *const WeirTable,
    callback: WeirBytesCallback,
    context: *mut c_void,
) -> WeirResult {
    // SAFETY: the caller's promise.
    match unsafe { &*table }.table.meta() {
        Ok(meta) => {
            callback(context, meta.as_slice().into());
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

/// Most bytes that the caller may keep with a table.
pub const WEIR_META_BYTES_MAX: usize = 65536;
const _: () = assert!(WEIR_META_BYTES_MAX == weir::schema::MAX_META);

/// Replaces the bytes that the caller keeps with the table.
///
/// # Safety
/// `table` is a handle; `meta` is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_table_set_meta(
    table: *const WeirTable,
    meta: WeirBytes,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (table, meta) = unsafe { (&*table, meta.slice()) };
    result(table.database.set_meta(&table.table, meta))
}

/// Hands out the names of a table's indexes, in their order.
///
/// # Safety
/// `table` is a handle; `callback` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn weir_table_indexes(
    table: *const WeirTable,
    callback: WeirBytesCallback,
    context: *mut c_void,
) -> WeirResult {
    // SAFETY: the caller's promise.
    match unsafe { &*table }.table.raw_schema() {
        Ok(schema) => {
            for index in schema.indexes() {
                callback(context, index.name.as_bytes().into());
            }
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

/// About how large an index is, or a table's rows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirIndexFigures {
    /// Entries that are not dead.
    pub entries: u64,
    /// Pages that hold them.
    pub leaf_pages: u64,
    /// Pages that hold the values too long for these.
    pub overflow_pages: u64,
    /// Bytes of both.
    pub size_bytes: u64,
    /// Those of the entries that are staged.
    pub staged_entries: u64,
    /// Pages that hold staged ones.
    pub staged_leaf_pages: u64,
}

/// About how large an index is, or a table's rows ([`WEIR_PRIMARY`]).
///
/// # Safety
/// `table` is a handle; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_index_figures(
    table: *const WeirTable,
    index: u32,
    out: *mut WeirIndexFigures,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let table = unsafe { &*table };
    match table.database.index_figures(&table.table, key_of(index)) {
        Ok(figures) => {
            let figures = WeirIndexFigures {
                entries: figures.entries,
                leaf_pages: figures.leaf_pages,
                overflow_pages: figures.overflow_pages,
                size_bytes: figures.size_bytes(),
                staged_entries: figures.staged_entries,
                staged_leaf_pages: figures.staged_leaf_pages,
            };
            // SAFETY: the caller's promise.
            unsafe { *out = figures };
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

/// About how many entries lie between two bounds.
///
/// # Safety
/// `table` is a handle; the bounds are readable; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_table_range(
    table: *const WeirTable,
    index: u32,
    low: WeirBound,
    high: WeirBound,
    out: *mut u64,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (table, low, high) = unsafe { (&*table, bound(low), bound(high)) };
    let range = RawRange::prefixes(low, high);
    match table.database.estimate_range(&table.table, key_of(index), range) {
        Ok(entries) => {
            // SAFETY: the caller's promise.
            unsafe { *out = entries };
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

/// Appends where each part of a key ends to `ends`, which has room for as many as were asked for;
/// returns how many there are.
pub type WeirSplitCallback =
    extern "C" fn(context: *mut c_void, key: WeirBytes, ends: *mut usize) -> usize;

/// About how many different keys an index has, by each of their first parts. `out` has room for
/// `parts`.
///
/// # Safety
/// `table` is a handle; `callback` may be called with `context`; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_table_cardinality(
    table: *const WeirTable,
    index: u32,
    parts: usize,
    callback: WeirSplitCallback,
    context: *mut c_void,
    out: *mut u64,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let table = unsafe { &*table };
    let mut split = |key: &[u8], ends: &mut Vec<usize>| {
        ends.resize(parts, 0);
        let found = callback(context, key.into(), ends.as_mut_ptr());
        ends.truncate(found.min(parts));
    };
    match table.database.cardinality(&table.table, key_of(index), parts, &mut split) {
        Ok(different) => {
            for (n, different) in different.into_iter().enumerate().take(parts) {
                // SAFETY: the caller's promise.
                unsafe { *out.add(n) = different };
            }
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

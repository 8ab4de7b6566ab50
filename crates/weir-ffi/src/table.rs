//! Tables: definition, removal, figures.

use crate::bytes::{WeirBytes, WeirBytesCallback};
use crate::database::WeirDatabase;
use crate::error::{failed, handle, result, WeirResult};
use crate::patience::{patiently, WeirPatience};
use crate::scan::{bound, WeirBound};
use crate::write::WeirEntry;
use std::ffi::c_void;
use weir::{Changes, Database, Error, KeyOf, RawIndex, RawRange, Schema, Table, TableChange};

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
unsafe fn indexes(indexes: *const WeirIndex, count: usize) -> Vec<RawIndex> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller's promise.
    let indexes = unsafe { std::slice::from_raw_parts(indexes, count) };
    // SAFETY: the caller's promise.
    let of = |i: &WeirIndex| RawIndex::new(unsafe { i.name.text() }, i.unique);
    indexes.iter().map(of).collect()
}

/// Creates a table. `meta` is kept for the caller. With `is_own` only the connection that makes it uses it: also in
/// a transaction whose snapshot is older.
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
    let (database, name, meta) = unsafe { (&*database, name.text(), meta.slice().to_vec()) };
    // SAFETY: the caller's promise.
    let indexes = unsafe { indexes(index, count) };
    let create = || {
        let schema = Schema::raw(indexes, meta)?;
        match is_own {
            true => database.0.create_own_table(&name, schema),
            false => database.0.create_table(&name, schema),
        }
    };
    result(create().map(drop))
}

fn find(database: &Database, name: &str) -> weir::Result<Table> {
    database.table(name).ok_or_else(|| Error::NoSuchTable(name.to_string()))
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
    let (database, name) = unsafe { (&(*database).0, name.text()) };
    let table = find(database, &name).map(|table| WeirTable { table, database: database.clone() });
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
    let (database, name) = unsafe { (&(*database).0, name.text()) };
    // SAFETY: the caller's promise.
    let drop = |table| unsafe { patiently(database, patience, |with| with.drop_table(&table)) };
    result(find(database, &name).and_then(drop))
}

/// From now on snapshots from before can't read the table: of a copy that takes another table's place.
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
    let (database, name) = unsafe { (&(*database).0, name.text()) };
    // SAFETY: the caller's promise.
    let hide =
        |table| unsafe { patiently(database, patience, |with| with.hide_from_older(&table)) };
    result(find(database, &name).and_then(hide))
}

/// Gives a table another name. `meta` replaces what the caller keeps with it; null: that stays.
///
/// # Safety
/// `database` is a handle; the names, and `meta` unless it is null, are readable; the canceller is a handle
/// or null.
#[no_mangle]
pub unsafe extern "C" fn weir_table_rename(
    database: *const WeirDatabase,
    from: WeirBytes,
    to: WeirBytes,
    meta: *const WeirBytes,
    patience: WeirPatience,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, from, to) = unsafe { (&(*database).0, from.text(), to.text()) };
    // SAFETY: the caller's promise.
    let meta = unsafe { meta.as_ref().map(|meta| meta.slice()) };
    let change = |table: Table, with: Changes<'_>| match meta {
        Some(meta) => with.rename_raw_table(&table, &to, meta),
        None => with.rename_table(&table, &to),
    };
    // SAFETY: the caller's promise.
    let rename = |table| unsafe { patiently(database, patience, |with| change(table, with)) };
    result(find(database, &from).and_then(rename))
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
    (0..count).map(|n| find(database, &unsafe { (*names.add(n)).text() })).collect()
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

/// Makes the entry of a row, whose primary key is `key`, in the new index number `which`. What `out` points to is
/// valid until the next call.
pub type WeirEntryCallback = extern "C" fn(
    context: *mut c_void,
    which: u32,
    key: WeirBytes,
    row: WeirBytes,
    out: *mut WeirEntry,
) -> WeirResult;

/// An index that gets another name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirRename {
    /// What it is called now.
    pub from: WeirBytes,
    /// What it is called then.
    pub to: WeirBytes,
}

/// What is to happen to a table.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WeirTableChange {
    /// The table.
    pub table: *const WeirTable,
    /// Names of indexes that go.
    pub drop: *const WeirBytes,
    /// How many.
    pub drop_count: usize,
    /// Indexes that get other names, all at once.
    pub rename: *const WeirRename,
    /// How many.
    pub rename_count: usize,
    /// New indexes; they come behind those that stay.
    pub add: *const WeirIndex,
    /// How many.
    pub add_count: usize,
    /// What is kept with the table from now on; null: what was.
    pub meta: *const WeirBytes,
    /// What the callback is given for rows of this table.
    pub context: *mut c_void,
}

/// A change's parts as the engine wants them.
struct OwnedChange<'a> {
    table: &'a WeirTable,
    drop: Vec<String>,
    rename: Vec<(String, String)>,
    add: Vec<RawIndex>,
    meta: Option<&'a [u8]>,
    context: *mut c_void,
}

impl<'a> OwnedChange<'a> {
    /// # Safety
    /// The table is a handle; the names, indexes and the meta are readable during `'a`.
    unsafe fn of(change: &'a WeirTableChange) -> OwnedChange<'a> {
        // SAFETY: the caller's promises.
        unsafe {
            let name = |n: usize| (*change.drop.add(n)).text();
            let rename = |n: usize| {
                let WeirRename { from, to } = *change.rename.add(n);
                (from.text(), to.text())
            };
            OwnedChange {
                table: &*change.table,
                drop: (0..change.drop_count).map(name).collect(),
                rename: (0..change.rename_count).map(rename).collect(),
                add: indexes(change.add, change.add_count),
                meta: change.meta.as_ref().map(|meta| meta.slice()),
                context: change.context,
            }
        }
    }
}

/// Drops, renames and adds indexes of tables and replaces what the caller keeps with them, all at once or not at all.
/// Others may read meanwhile. Each table is named once; there is one at least.
///
/// # Safety
/// `changes` points to `count` changes, whose tables are handles and whose names, indexes and metas are
/// readable; `callback` may be called with their contexts; the canceller is a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_tables_alter(
    patience: WeirPatience,
    changes: *const WeirTableChange,
    count: usize,
    callback: WeirEntryCallback,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let all: Vec<OwnedChange<'_>> = unsafe {
        std::slice::from_raw_parts(changes, count).iter().map(|c| OwnedChange::of(c)).collect()
    };
    let drops: Vec<Vec<&str>> =
        all.iter().map(|one| one.drop.iter().map(String::as_str).collect()).collect();
    let renames: Vec<Vec<(&str, &str)>> = all
        .iter()
        .map(|one| one.rename.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect())
        .collect();
    let changes = all.iter().zip(&drops).zip(&renames).map(|((one, drop), rename)| TableChange {
        table: &one.table.table,
        drop,
        rename,
        add: &one.add,
        meta: one.meta,
    });
    let changes: Vec<TableChange<'_>> = changes.collect();
    let mut entry_of = |nth: usize,
                        which: usize,
                        key: &[u8],
                        row: &[u8],
                        to: &mut Vec<u8>,
                        value: &mut Vec<u8>| {
        let none = WeirBytes { data: std::ptr::null(), len: 0 };
        let mut out = WeirEntry { index: 0, key: none, value: none };
        match callback(all[nth].context, which as u32, key.into(), row.into(), &mut out) {
            WeirResult::Ok => {
                // SAFETY: the callback's promise.
                unsafe {
                    to.extend_from_slice(out.key.slice());
                    value.extend_from_slice(out.value.slice());
                }
                Ok(())
            }
            WeirResult::Cancelled => Err(Error::Cancelled),
            _ => Err(Error::UnfitRow(all[nth].table.table.name())),
        }
    };
    let database = &all.first().expect("a change of one table at least").table.database;
    let alter = |with: Changes<'_>| with.alter_tables(&changes, &mut entry_of);
    // SAFETY: the caller's promise.
    result(unsafe { patiently(database, patience, alter) })
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

/// Appends where each part of a key ends to `ends`, which has room for as many as were asked for; returns how
/// many there are.
pub type WeirSplitCallback =
    extern "C" fn(context: *mut c_void, key: WeirBytes, ends: *mut usize) -> usize;

/// About how many different keys an index has, by each of their first parts. `out` has room for `parts`.
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

//! Changes of tables' definitions.

use crate::bytes::WeirBytes;
use crate::database::WeirDatabase;
use crate::error::{failed, handle, result, WeirResult};
use crate::patience::{patiently, WeirPatience};
use crate::table::{indexes, WeirIndex, WeirTable};
use crate::write::WeirEntry;
use std::ffi::c_void;
use weir::{Alteration, Changes, Database, EntryOfOne, Error, TableChange};

/// Makes the entry of a row, whose primary key is `key`, in the new index number `which`. What
/// `out` points to is valid until the next call.
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
    /// What the callback is given for rows of this table.
    pub context: *mut c_void,
}

/// A change of tables' definitions that is made in steps: all of it happens or nothing.
pub struct WeirAlteration {
    database: Database,
    begun: Alteration,
    /// What callbacks are given, and the name, of each table.
    tables: Vec<(*mut c_void, String)>,
}

impl WeirAlteration {
    fn entry(&self, callback: WeirEntryCallback) -> Box<EntryOfOne<'static>> {
        let tables = self.tables.clone();
        Box::new(move |nth, which, key, row, of_key, value| {
            let none = WeirBytes { data: std::ptr::null(), len: 0 };
            let mut out = WeirEntry { index: 0, key: none, value: none };
            let (context, table) = &tables[nth];
            match callback(*context, which as u32, key.into(), row.into(), &mut out) {
                WeirResult::Ok => {
                    // SAFETY: the callback's promise.
                    unsafe {
                        of_key.extend_from_slice(out.key.slice());
                        value.extend_from_slice(out.value.slice());
                    }
                    Ok(())
                }
                WeirResult::Cancelled => Err(Error::Cancelled),
                _ => Err(Error::UnfitRow(table.clone())),
            }
        })
    }
}

/// Begins a change of tables' definitions.
///
/// # Safety
/// `database` is a handle; `out` may be written; the canceller is a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_alteration_begin(
    database: *const WeirDatabase,
    patience: WeirPatience,
    out: *mut *mut WeirAlteration,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let database = &unsafe { &*database }.0;
    // SAFETY: the caller's promise.
    let begun = unsafe { patiently(database, patience, |with| with.begin_alter()) };
    let made =
        begun.map(|begun| WeirAlteration { database: database.clone(), begun, tables: Vec::new() });
    // SAFETY: the caller's promise.
    unsafe { handle(made, out) }
}

/// Adds a table, and what is to happen to it. If it is to get indexes, those who are writing to it
/// are waited for. After an error the alteration can only be dropped, here and below.
///
/// # Safety
/// `alteration` is a handle; the change's table is a handle, and its names and indexes are
/// readable; the canceller is a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_alteration_add(
    alteration: *mut WeirAlteration,
    patience: WeirPatience,
    change: *const WeirTableChange,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (alteration, change) = unsafe { (&mut *alteration, &*change) };
    // SAFETY: the caller's promises.
    let (table, drop, rename, add) = unsafe {
        let name = |n: usize| (*change.drop.add(n)).name();
        let rename = |n: usize| {
            let WeirRename { from, to } = *change.rename.add(n);
            Ok((from.name()?, to.name()?))
        };
        (
            &(*change.table).table,
            (0..change.drop_count).map(name).collect::<weir::Result<Vec<_>>>(),
            (0..change.rename_count).map(rename).collect::<weir::Result<Vec<_>>>(),
            indexes(change.add, change.add_count),
        )
    };
    let (drop, rename, add) = match (drop, rename, add) {
        (Ok(drop), Ok(rename), Ok(add)) => (drop, rename, add),
        (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => return failed(&error),
    };
    let drop: Vec<&str> = drop.iter().map(String::as_str).collect();
    let rename: Vec<(&str, &str)> =
        rename.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    let wanted = TableChange { table, drop: &drop, rename: &rename, add: &add, meta: None };
    alteration.tables.push((change.context, table.name()));
    let WeirAlteration { database, begun, .. } = alteration;
    let add = |with: Changes<'_>| with.add_change(begun, &wanted);
    // SAFETY: the caller's promise.
    result(unsafe { patiently(database, patience, add) })
}

/// Builds the new indexes of all tables, while others read and write them.
///
/// # Safety
/// `alteration` is a handle; `callback` may be called with the tables' contexts; the canceller is a
/// handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_alteration_build(
    alteration: *mut WeirAlteration,
    patience: WeirPatience,
    callback: WeirEntryCallback,
) -> WeirResult {
    // SAFETY: the caller's promise.
    let alteration = unsafe { &mut *alteration };
    let mut entry_of = alteration.entry(callback);
    let WeirAlteration { database, begun, .. } = alteration;
    let build = |with: Changes<'_>| with.build_indexes(begun, &mut entry_of);
    // SAFETY: the caller's promise.
    result(unsafe { patiently(database, patience, build) })
}

/// What is kept with the `nth` table that was added from then on.
///
/// # Safety
/// `alteration` is a handle with so many tables; `meta` is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_alteration_set_meta(
    alteration: *mut WeirAlteration,
    nth: usize,
    meta: WeirBytes,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (alteration, meta) = unsafe { (&mut *alteration, meta.slice()) };
    result(alteration.begun.set_meta(nth, meta))
}

/// Does all of it, or nothing, after waiting for those who use the tables.
///
/// # Safety
/// `alteration` is a handle, given back by this; `callback` may be called with the tables'
/// contexts; the canceller is a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_alteration_finish(
    alteration: *mut WeirAlteration,
    patience: WeirPatience,
    callback: WeirEntryCallback,
) -> WeirResult {
    // SAFETY: a handle came from a box.
    let alteration = unsafe { Box::from_raw(alteration) };
    let mut entry_of = alteration.entry(callback);
    let WeirAlteration { database, begun, .. } = *alteration;
    let finish = |with: Changes<'_>| with.finish_alter(begun, &mut entry_of);
    // SAFETY: the caller's promise.
    result(unsafe { patiently(&database, patience, finish) })
}

/// Gives up an alteration: it has changed nothing.
///
/// # Safety
/// `alteration` is a handle, given back by this.
#[no_mangle]
pub unsafe extern "C" fn weir_alteration_drop(alteration: *mut WeirAlteration) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(alteration) });
}

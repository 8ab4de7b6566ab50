//! Changes of tables' definitions.

use crate::bytes::WeirBytes;
use crate::error::{failed, result, WeirResult};
use crate::patience::{patiently, WeirPatience};
use crate::table::{indexes, WeirIndex, WeirTable};
use crate::write::WeirEntry;
use std::ffi::c_void;
use weir::{Alteration, Changes, Error, RawIndex, TableChange};

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

/// A change of tables' definitions of which some of the work is done.
pub struct WeirAlteration(Alteration);

impl<'a> OwnedChange<'a> {
    fn drops(&self) -> Vec<&str> {
        self.drop.iter().map(String::as_str).collect()
    }

    fn renames(&self) -> Vec<(&str, &str)> {
        self.rename.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect()
    }

    fn change(&'a self, drop: &'a [&'a str], rename: &'a [(&'a str, &'a str)]) -> TableChange<'a> {
        TableChange { table: &self.table.table, drop, rename, add: &self.add, meta: self.meta }
    }

    /// The entry that a row has in new index number `which`.
    fn entry(
        &self,
        callback: WeirEntryCallback,
        which: usize,
        (key, row): (&[u8], &[u8]),
        (to, value): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> weir::Result<()> {
        let none = WeirBytes { data: std::ptr::null(), len: 0 };
        let mut out = WeirEntry { index: 0, key: none, value: none };
        match callback(self.context, which as u32, key.into(), row.into(), &mut out) {
            WeirResult::Ok => {
                // SAFETY: the callback's promise.
                unsafe {
                    to.extend_from_slice(out.key.slice());
                    value.extend_from_slice(out.value.slice());
                }
                Ok(())
            }
            WeirResult::Cancelled => Err(Error::Cancelled),
            _ => Err(Error::UnfitRow(self.table.table.name())),
        }
    }
}

/// Builds the new indexes of a table while others read and write it, for `weir_tables_alter`, which is given the same change
/// then. `alteration`: of a null pointer one is made; after an error it is given back, and null.
///
/// # Safety
/// `alteration` points to a handle or null, and may be written; `change` is one as for `weir_tables_alter`; `callback`
/// may be called with its context; the canceller is a handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_alteration_build(
    patience: WeirPatience,
    alteration: *mut *mut WeirAlteration,
    change: *const WeirTableChange,
    callback: WeirEntryCallback,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (one, alteration) = unsafe { (OwnedChange::of(&*change), &mut *alteration) };
    let (drops, renames) = (one.drops(), one.renames());
    // SAFETY: a handle came from a box.
    let begun = (!alteration.is_null()).then(|| unsafe { Box::from_raw(*alteration) });
    *alteration = std::ptr::null_mut();
    let build = |with: Changes<'_>| {
        let mut begun = match begun {
            Some(begun) => *begun,
            None => WeirAlteration(with.begin_alter()?),
        };
        let entry_of = &mut |which: usize, key: &[u8], row: &[u8], to: &mut _, value: &mut _| {
            one.entry(callback, which, (key, row), (to, value))
        };
        with.build_indexes(&mut begun.0, &one.change(&drops, &renames), entry_of)?;
        Ok(begun)
    };
    // SAFETY: the caller's promise.
    match unsafe { patiently(&one.table.database, patience, build) } {
        Ok(built) => {
            *alteration = Box::into_raw(Box::new(built));
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
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

/// Drops, renames and adds indexes of tables and replaces what the caller keeps with them, all at once or not at all.
/// Indexes that an alteration, if there is one, has built aren't built here; others may read while that is done. Each
/// table is named once; there is one at least.
///
/// # Safety
/// `alteration` is a handle, given back by this, or null; `changes` points to `count` changes, whose tables are
/// handles and whose names, indexes and metas are readable; `callback` may be called with their contexts; the canceller is a
/// handle or null.
#[no_mangle]
pub unsafe extern "C" fn weir_tables_alter(
    patience: WeirPatience,
    alteration: *mut WeirAlteration,
    changes: *const WeirTableChange,
    count: usize,
    callback: WeirEntryCallback,
) -> WeirResult {
    // SAFETY: the caller's promises; a handle came from a box.
    let (all, begun): (Vec<OwnedChange<'_>>, _) = unsafe {
        let all = std::slice::from_raw_parts(changes, count);
        let begun = (!alteration.is_null()).then(|| Box::from_raw(alteration));
        (all.iter().map(|change| OwnedChange::of(change)).collect(), begun)
    };
    let names: Vec<_> = all.iter().map(|one| (one.drops(), one.renames())).collect();
    let changes: Vec<TableChange<'_>> =
        all.iter().zip(&names).map(|(one, (drop, rename))| one.change(drop, rename)).collect();
    let entry_of =
        &mut |nth: usize, which: usize, key: &[u8], row: &[u8], to: &mut _, value: &mut _| {
            all[nth].entry(callback, which, (key, row), (to, value))
        };
    let alter = |with: Changes<'_>| match begun {
        Some(begun) => with.finish_alter(begun.0, &changes, entry_of),
        None => with.alter_tables(&changes, entry_of),
    };
    let database = &all.first().expect("a change of one table at least").table.database;
    // SAFETY: the caller's promise.
    result(unsafe { patiently(database, patience, alter) })
}

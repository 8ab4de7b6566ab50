//! Copies of a database that is in use.

use crate::bytes::WeirBytes;
use crate::database::WeirDatabase;
use crate::error::{failed, handle, WeirResult};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use weir::Backup;

/// A backup that is being made.
pub struct WeirBackup(Backup);

/// Settles the moment of a backup, and begins it. `directory` is empty, or is made.
///
/// # Safety
/// `database` is a handle; `directory` is readable; `out` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_backup_begin(
    database: *const WeirDatabase,
    directory: WeirBytes,
    out: *mut *mut WeirBackup,
) -> WeirResult {
    // SAFETY: the caller's promises.
    let (database, directory) = unsafe { (&*database, directory.slice()) };
    let begun = database.0.begin_backup(OsStr::from_bytes(directory));
    // SAFETY: the caller's promise.
    unsafe { handle(begun.map(WeirBackup), out) }
}

/// Copies some more; `more`: whether something is left. Once nothing is, the copy is a database.
///
/// # Safety
/// `backup` is a handle; `more` may be written.
#[no_mangle]
pub unsafe extern "C" fn weir_backup_step(backup: *mut WeirBackup, more: *mut bool) -> WeirResult {
    // SAFETY: the caller's promise.
    match unsafe { &mut *backup }.0.step() {
        Ok(left) => {
            // SAFETY: the caller's promise.
            unsafe { *more = left };
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

/// Bytes of files that are done with so far.
///
/// # Safety
/// `backup` is a handle.
#[no_mangle]
pub unsafe extern "C" fn weir_backup_bytes(backup: *const WeirBackup) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { &*backup }.0.progress().bytes_done
}

/// Ends a backup. Before it is done, it is given up: what was copied is removed.
///
/// # Safety
/// `backup` is a handle, given back by this.
#[no_mangle]
pub unsafe extern "C" fn weir_backup_end(backup: *mut WeirBackup) {
    // SAFETY: the caller's promise.
    drop(unsafe { Box::from_raw(backup) });
}

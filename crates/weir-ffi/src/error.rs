//! Results, and the words for the last failure of each thread.

use crate::bytes::WeirBytes;
use std::cell::RefCell;
use std::ffi::{c_char, CString};
use weir::schema::SchemaError;
use weir::{Error, RowError};

/// What a call came to.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeirResult {
    /// Done.
    Ok = 0,
    /// There is no such row, or the scan has ended.
    NotFound,
    /// A row with that key is there: see `weir_error_index`. Nothing changed.
    Duplicate,
    /// The transaction was chosen to end a deadlock, and has been rolled back.
    Deadlock,
    /// A lock was not had in time. Nothing changed.
    LockTimeout,
    /// The wait for a lock was cancelled. Nothing changed.
    Cancelled,
    /// Too many transactions write at once.
    TooManyTransactions,
    /// The transaction has ended already.
    Ended,
    /// There is such a table.
    TableExists,
    /// There is no such table.
    NoTable,
    /// There is such an index.
    IndexExists,
    /// There is no such index.
    NoIndex,
    /// Others use the table.
    TableInUse,
    /// The index is newer than the snapshot.
    IndexTooNew,
    /// The table is newer than the snapshot.
    TableTooNew,
    /// The device is full. The statement did nothing.
    NoSpace,
    /// A key or a name is too long.
    TooLong,
    /// Stored data is damaged.
    Corrupt,
    /// The database has stopped after a failure, or was closed.
    Stopped,
    /// There is no such prepared transaction.
    NoPrepared,
    /// Anything else.
    Failed,
}

#[derive(Default)]
struct Last {
    message: CString,
    index: CString,
    key: Vec<u8>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// What the thread's last failure says. Valid until its next call that can fail.
#[no_mangle]
pub extern "C" fn weir_error_message() -> *const c_char {
    LAST.with(|last| last.borrow().message.as_ptr())
}

/// Has `weir_error_message` say this until the thread's next failure: for failures that the caller
/// finds; or nothing, so that it can tell later whether there was one.
///
/// # Safety
/// `text` is readable.
#[no_mangle]
pub unsafe extern "C" fn weir_error_set(text: WeirBytes) {
    // SAFETY: the caller's promise.
    let message = c_string(&unsafe { text.text() });
    LAST.with(|last| *last.borrow_mut() = Last { message, ..Last::default() });
}

/// The index that the thread's last duplicate was found in: its name, or `primary`.
#[no_mangle]
pub extern "C" fn weir_error_index() -> *const c_char {
    LAST.with(|last| last.borrow().index.as_ptr())
}

/// The key, in that index, of the thread's last duplicate. Valid until its next call that can fail.
#[no_mangle]
pub extern "C" fn weir_error_key() -> WeirBytes {
    LAST.with(|last| last.borrow().key[..].into())
}

fn c_string(text: &str) -> CString {
    let without_nul: Vec<u8> = text.bytes().filter(|b| *b != 0).collect();
    CString::new(without_nul).expect("zero bytes were taken out")
}

/// Keeps the words of a failure, and says what kind it is.
pub fn failed(error: &Error) -> WeirResult {
    let (index, key) = match error {
        Error::Duplicate { index, key, .. } => (c_string(index), key.clone()),
        _ => Default::default(),
    };
    // A duplicate is an everyday outcome and the index says it all.
    let message = if index.is_empty() { c_string(&error.to_string()) } else { CString::default() };
    LAST.with(|last| *last.borrow_mut() = Last { message, index, key });
    kind(error)
}

fn kind(error: &Error) -> WeirResult {
    match error {
        Error::Duplicate { .. } => WeirResult::Duplicate,
        Error::Deadlock => WeirResult::Deadlock,
        Error::LockWaitTimeout => WeirResult::LockTimeout,
        Error::Cancelled => WeirResult::Cancelled,
        Error::TooManyTransactions { .. } => WeirResult::TooManyTransactions,
        Error::Ended | Error::ForeignScan => WeirResult::Ended,
        Error::TableExists(_) => WeirResult::TableExists,
        Error::NoSuchTable(_) => WeirResult::NoTable,
        Error::IndexExists { .. } => WeirResult::IndexExists,
        Error::NoSuchIndex { .. } => WeirResult::NoIndex,
        Error::TableInUse(_) => WeirResult::TableInUse,
        Error::IndexTooNew { .. } => WeirResult::IndexTooNew,
        Error::TableTooNew(_) => WeirResult::TableTooNew,
        Error::NameTooLong { .. } | Error::Row(RowError::KeyTooLong { .. }) => WeirResult::TooLong,
        Error::Schema(SchemaError::BadName(_) | SchemaError::MetaTooLong(_)) => WeirResult::TooLong,
        Error::NoSuchXid => WeirResult::NoPrepared,
        Error::NoSuchRow(_) => WeirResult::NotFound,
        Error::Storage(fault) if fault.has_stopped() => WeirResult::Stopped,
        error if error.is_no_space() => WeirResult::NoSpace,
        error if error.is_corrupt() => WeirResult::Corrupt,
        _ => WeirResult::Failed,
    }
}

/// The result of a call that gives nothing back.
pub fn result(done: weir::Result<()>) -> WeirResult {
    match done {
        Ok(()) => WeirResult::Ok,
        Err(error) => failed(&error),
    }
}

/// The result of a call that gives back a handle.
///
/// # Safety
/// `out` may be written.
pub unsafe fn handle<T>(made: weir::Result<T>, out: *mut *mut T) -> WeirResult {
    match made {
        Ok(made) => {
            // SAFETY: the caller's promise.
            unsafe { *out = Box::into_raw(Box::new(made)) };
            WeirResult::Ok
        }
        Err(error) => failed(&error),
    }
}

//! Figures of the moment.

use crate::bytes::WeirBytes;
use crate::database::WeirDatabase;
use std::ffi::c_void;

/// Called with a figure and its name, which is valid for ever. `context` is what the caller handed
/// over.
pub type WeirFigureCallback = extern "C" fn(context: *mut c_void, name: WeirBytes, value: u64);

/// Hands out all figures, always the same ones in the same order. Counters run from the opening.
///
/// # Safety
/// `database` is a handle; `callback` may be called with `context`.
#[no_mangle]
pub unsafe extern "C" fn weir_status(
    database: *const WeirDatabase,
    callback: WeirFigureCallback,
    context: *mut c_void,
) {
    // SAFETY: the caller's promise.
    for figure in unsafe { &*database }.0.status().figures() {
        callback(context, figure.name.as_bytes().into(), figure.value);
    }
}

/// What a thread has done to pages.
#[repr(C)]
#[derive(Debug)]
pub struct WeirWork {
    /// Pages looked at, in memory or not.
    pub pages_accessed: u64,
    /// Pages changed.
    pub pages_updated: u64,
    /// Pages read from the device while the thread waited.
    pub pages_read: u64,
    /// How long it waited for them, in nanoseconds.
    pub pages_read_ns: u64,
    /// Pages that it has asked of the threads that read ahead.
    pub pages_prefetched: u64,
    /// Undo records gone through to older versions of rows.
    pub undo_records_read: u64,
}

/// What the calling thread has done, in all databases, since it last called this.
#[no_mangle]
pub extern "C" fn weir_take_work() -> WeirWork {
    let work = weir::take_work();
    WeirWork {
        pages_accessed: work.pages_accessed,
        pages_updated: work.pages_updated,
        pages_read: work.pages_read,
        pages_read_ns: work.pages_read_ns,
        pages_prefetched: work.pages_prefetched,
        undo_records_read: work.undo_records_read,
    }
}

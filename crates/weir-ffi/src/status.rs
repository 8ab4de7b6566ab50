//! Figures of the moment.

use crate::bytes::WeirBytes;
use crate::database::WeirDatabase;
use std::ffi::c_void;

/// Called with a figure and its name, which is valid for ever. `context` is what the caller handed over.
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

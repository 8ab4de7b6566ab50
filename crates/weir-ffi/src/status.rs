//! Figures of the moment.

use crate::database::WeirDatabase;
use std::ffi::{c_char, c_void, CStr};

/// Called with a figure and its name, which is valid for ever. `context` is what the caller handed over.
pub type WeirFigureCallback = extern "C" fn(context: *mut c_void, name: *const c_char, value: u64);

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
    let status = unsafe { &*database }.0.status();
    for (name, value) in figures(&status) {
        callback(context, name.as_ptr(), value);
    }
}

macro_rules! figures {
    ($status:ident, $prefix:literal: $($name:ident),* $(,)?) => {
        [$((
            CStr::from_bytes_with_nul(concat!($prefix, stringify!($name), "\0").as_bytes())
                .expect("a name holds no zero byte"),
            $status.$name,
        ),)*]
    };
}

fn figures(s: &weir::Status) -> impl IntoIterator<Item = (&'static CStr, u64)> {
    let disk = &s.disk;
    let of_engine = figures![s, "":
        checkpoint_age, checkpoint_max_age, lsn_current, lsn_flushed, lsn_last_checkpoint,
        redo_capacity, buffer_pool_pages_total, buffer_pool_pages_free, buffer_pool_pages_dirty,
        pages_written_deadline, pages_written_free_frames, pages_written_shutdown, pages_read,
        pages_read_ahead, pages_evicted, page_bytes_uncompressed, page_bytes_written, checkpoints,
        log_waits, log_wait_us, buffer_pool_wait_free, transactions_committed,
        transactions_rolled_back, history_list_length, purged_records, staged_entries,
        staging_pages, staged_entries_moved, staging_moves, row_lock_waits, row_lock_time_us,
        deadlocks, data_file_bytes, data_used_bytes, pages_allocated, recovered_log_bytes,
        recovered_records,
    ];
    let of_disk = figures![disk, "disk_": reads, writes, syncs, read_bytes, write_bytes];
    of_engine.into_iter().chain(of_disk)
}

//! What a thread has done to pages, for who asks what a statement cost.

use std::cell::Cell;
use std::time::Instant;

/// Work of one thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Pages looked at on the way to rows, undo records and entries of indexes, in memory or not;
    /// one as often as it was.
    pub pages_accessed: u64,
    /// Pages changed, each as often as a mini-transaction changed it.
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

thread_local! {
    static WORK: Cell<Work> = const { Cell::new(Work::NONE) };
    static READS: Cell<DeviceReads> = const { Cell::new(DeviceReads { alone: 0, together: 0 }) };
}

impl Work {
    const NONE: Work = Work {
        pages_accessed: 0,
        pages_updated: 0,
        pages_read: 0,
        pages_read_ns: 0,
        pages_prefetched: 0,
        undo_records_read: 0,
    };
}

/// What the calling thread has done since it last called this.
pub fn take_work() -> Work {
    WORK.take()
}

/// Pages that a thread has read from the device, ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DeviceReads {
    /// When it came to them.
    pub alone: u64,
    /// Together with others that it would come to.
    pub together: u64,
}

/// What the calling thread has read.
pub(crate) fn reads() -> DeviceReads {
    READS.get()
}

/// Notes what the thread has done.
#[inline]
pub(crate) fn note(add: impl FnOnce(&mut Work)) {
    WORK.with(|cell| {
        let mut work = cell.get();
        add(&mut work);
        cell.set(work);
    });
}

/// Notes a read of a page that the thread has waited for.
pub(crate) fn note_read(began: Instant) {
    READS.with(|reads| reads.set(DeviceReads { alone: reads.get().alone + 1, ..reads.get() }));
    note_reads(1, began);
}

/// Notes a read of so many pages together that the thread has waited for.
pub(crate) fn note_read_together(pages: usize, began: Instant) {
    let so_many = pages as u64;
    READS.with(|reads| {
        reads.set(DeviceReads { together: reads.get().together + so_many, ..reads.get() });
    });
    note_reads(so_many, began);
}

fn note_reads(pages: u64, began: Instant) {
    let ns = began.elapsed().as_nanos() as u64;
    note(|work| {
        work.pages_read += pages;
        work.pages_read_ns += ns;
    });
}

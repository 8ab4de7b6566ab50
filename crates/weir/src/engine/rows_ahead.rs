//! Rows of an index's entries, read together before they are looked up one by one.
//!
//! Neighbours in an index may lie anywhere in the table. Where a row had to be read from the device, those of the entries
//! behind it are read side by side: few at first, since the caller may want no more, and twice as many each time as
//! long as they are not in memory.

use crate::storage::work;

/// Rows that are read together at first.
const FIRST: usize = 4;
/// Most of them.
const MOST: usize = 32;
/// One of so many at least was not in memory, or no more are read together.
const WORTH: u64 = 4;

/// When the rows of a scan's entries are worth reading together; one for each scan by an index. With
/// [`Transaction::read_ahead_raw`], for who looks up rows by the entries of a [`RawScan`](super::RawScan). The typed interface does so by itself.
#[derive(Debug)]
pub struct RowsAhead {
    /// Rows of entries before this one are not to be read any more.
    covered: u64,
    /// Rows that were looked up.
    looked_up: u64,
    /// So many are to be read together next, a half of that were last.
    together: usize,
    /// So many were, or one was looked up.
    rows: usize,
    /// Pages that the thread had read by then.
    read: u64,
}

impl Default for RowsAhead {
    fn default() -> Self {
        RowsAhead { covered: 0, looked_up: 0, together: 0, rows: 1, read: work::pages_read() }
    }
}

impl RowsAhead {
    /// To be asked before the row of an entry is looked up: how many rows to read together now, those of this entry and of others
    /// behind it; 0 for none. `entry`: the entry's number, among those that the scan has given, from 0 on. `known`: number of
    /// entries that are known from this one on.
    #[inline]
    pub fn due(&mut self, entry: u64, known: usize) -> usize {
        self.looked_up += 1;
        if entry < self.covered { 0 } else { self.next(entry, known) }
    }

    fn next(&mut self, entry: u64, known: usize) -> usize {
        let read = work::pages_read();
        // The thread's count may have begun anew.
        let missed = read.checked_sub(self.read).unwrap_or(read);
        self.read = read;
        let is_worth = WORTH * missed >= self.rows as u64;
        // Of entries most of which are passed over, rows would be read that nobody wants.
        let are_wanted = 2 * self.looked_up > entry;
        self.together = match is_worth && are_wanted {
            true => (2 * self.together).clamp(FIRST, MOST),
            false => 0,
        };
        // One alone is read as fast by who looks it up.
        self.rows = self.together.min(known).max(1);
        self.covered = entry + self.rows as u64;
        if self.rows > 1 { self.rows } else { 0 }
    }
}

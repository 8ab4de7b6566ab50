//! Rows read together before they are looked up one by one: those of an index's entries, or of many
//! keys.
//!
//! Neighbours in an index may lie anywhere in the table. Where a row had to be read from the
//! device, those of the entries behind it are read side by side: few at first, since the caller may
//! want no more, and twice as many each time as long as they are not in memory.

use crate::key::long::short_form;
use crate::storage::Storage;
use crate::storage::work::{self, DeviceReads};
use crate::tree::Tree;

/// Rows that are read together at first.
const FIRST: usize = 4;
/// Most of them.
const MOST: usize = 32;
/// A batch was worth reading together if at least one row in so many had to be read from the
/// device.
const MISSED_PART: u64 = 4;

/// When the rows of a scan's entries are worth reading together; one for each scan by an index, or
/// for several in turn ([`RowsAhead::begin`]). With
/// [`Transaction::read_ahead_raw`](super::Transaction::read_ahead_raw), for who looks up rows by
/// the entries of a [`RawScan`](super::RawScan). The typed interface does so by itself.
#[derive(Debug, Default)]
pub struct RowsAhead {
    /// Number of the first entry behind the last batch: the rows of those before it have been read,
    /// or were looked up.
    covered: u64,
    /// Number of the scan's first entry.
    first: u64,
    /// Rows of the scan that were looked up.
    looked_up: u64,
    /// Size of the last batch before it was cut to the entries that were known; 0 if one row was
    /// looked up alone.
    wanted: usize,
    /// Rows of the last batch; 1 if one was looked up alone.
    last_batch: usize,
    /// What this thread had read from the device when that batch began.
    reads_before: DeviceReads,
    /// Whether the last batch says something of what comes; if not, the next row is looked up
    /// alone.
    has_begun: bool,
}

impl RowsAhead {
    /// To be asked before the row of an entry is looked up: how many rows to read together now,
    /// those of this entry and of others behind it; 0 for none. `entry`: number of entries that the
    /// scan had given before this one. `known`: number of entries that are known from this one on,
    /// this one included.
    #[inline]
    pub fn due(&mut self, entry: u64, known: usize) -> usize {
        self.looked_up += 1;
        if entry < self.covered { 0 } else { self.next(entry, known) }
    }

    /// Before the `n`th of these keys is looked up: reads its row and those of others behind it
    /// together, if they are due.
    #[inline]
    pub(super) fn come_to(&mut self, s: &Storage, rows: Tree, keys: &[Vec<u8>], n: usize) {
        let due = self.due(n as u64, keys.len() - n);
        if due > 0 {
            read_leaves(s, rows, keys[n..][..due].iter().map(Vec::as_slice));
        }
    }

    /// Another scan of the same kind begins, whose first entry has this number. If what was read
    /// together for the last one was wanted, as much is from the first entry on.
    pub fn begin(&mut self, entry: u64) {
        let unwanted = self.covered.saturating_sub(entry);
        self.has_begun &= self.last_batch > 1 && 2 * unwanted <= self.last_batch as u64;
        (self.covered, self.first, self.looked_up) = (entry, entry, 0);
    }

    fn next(&mut self, entry: u64, known: usize) -> usize {
        let before = std::mem::replace(&mut self.reads_before, work::reads());
        if !std::mem::replace(&mut self.has_begun, true) {
            // Perhaps no more than this one is wanted.
            (self.wanted, self.last_batch, self.covered) = (0, 1, entry + 1);
            return 0;
        }
        let missed = match self.last_batch {
            1 => self.reads_before.alone - before.alone,
            _ => self.reads_before.together - before.together,
        };
        let is_worth = MISSED_PART * missed >= self.last_batch as u64;
        // Of entries most of which are passed over, rows would be read that nobody wants.
        let are_wanted = 2 * self.looked_up > entry.saturating_sub(self.first);
        self.wanted = match is_worth && are_wanted {
            true => (2 * self.wanted).clamp(FIRST, MOST),
            false => 0,
        };
        // One alone is read as fast by who looks it up.
        self.last_batch = self.wanted.min(known).max(1);
        self.covered = entry + self.last_batch as u64;
        if self.last_batch > 1 { self.last_batch } else { 0 }
    }
}

/// Reads the leaves of a tree that these keys lead to and that aren't in memory, side by side.
#[cold]
pub(super) fn read_leaves<'k>(s: &Storage, tree: Tree, keys: impl Iterator<Item = &'k [u8]>) {
    s.read_together(keys.filter_map(|key| tree.missing_page(s, &short_form(key))).collect());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn read_alone() {
        work::note_read(Instant::now());
    }

    fn read_together(pages: usize) {
        work::note_read_together(pages, Instant::now());
    }

    #[test]
    fn rows_are_read_together_twice_as_many_each_time_while_they_are_not_in_memory() {
        let mut ahead = RowsAhead::default();
        // In memory.
        assert_eq!([0, 1, 2].map(|entry| ahead.due(entry, 100)), [0; 3]);
        let mut entry = 3;
        read_alone();
        for rows in [4, 8, 16, 32, 32] {
            assert_eq!(ahead.due(entry, 100), rows);
            read_together(rows);
            entry += rows as u64;
            // What has been read together is looked up.
            assert!((entry - rows as u64 + 1..entry).all(|entry| ahead.due(entry, 100) == 0));
        }
        // Of these few were not in memory.
        assert_eq!(ahead.due(entry, 100), 32);
        read_together(7);
        assert!((entry + 1..entry + 32).all(|entry| ahead.due(entry, 100) == 0));
        assert_eq!(ahead.due(entry + 32, 100), 0);
    }

    #[test]
    fn no_more_rows_are_read_together_than_entries_are_known_and_one_is_read_by_its_lookup() {
        let mut ahead = RowsAhead::default();
        assert_eq!(ahead.due(0, 4), 0);
        read_alone();
        assert_eq!(ahead.due(1, 3), 3);
        read_together(3);
        assert_eq!([2, 3].map(|entry| ahead.due(entry, 2)), [0; 2]);
        assert_eq!(ahead.due(4, 1), 0);
        read_alone();
        assert_eq!(ahead.due(5, 100), 16);
    }

    #[test]
    fn rows_are_not_read_together_where_most_entries_are_passed_over() {
        let mut ahead = RowsAhead::default();
        for entry in 0..50 {
            read_alone();
            assert_eq!(ahead.due(3 * entry + 2, 100), 0);
        }
    }

    /// What a statement cost is asked and forgotten between its rows, where the server tells it.
    #[test]
    fn what_was_read_counts_though_somebody_has_asked_what_the_thread_did() {
        let mut ahead = RowsAhead::default();
        assert_eq!(ahead.due(0, 100), 0);
        read_alone();
        work::take_work();
        assert_eq!(ahead.due(1, 100), 4);
    }

    #[test]
    fn rows_that_are_in_memory_are_not_read_together_though_other_pages_are_read() {
        let mut ahead = RowsAhead::default();
        assert_eq!(ahead.due(0, 100), 0);
        read_alone();
        assert_eq!(ahead.due(1, 100), 4);
        (0..4).for_each(|_| read_alone());
        assert!((2..5).all(|entry| ahead.due(entry, 100) == 0));
        assert_eq!(ahead.due(5, 100), 0);
    }

    #[test]
    fn the_first_row_alone_may_be_wanted_unless_another_scan_has_just_wanted_more() {
        let mut ahead = RowsAhead::default();
        // Of each scan one row is wanted.
        for entry in 0..10 {
            ahead.begin(entry);
            read_alone();
            assert_eq!(ahead.due(entry, 100), 0);
            read_alone();
        }
        // Of the last of them more.
        assert_eq!([ahead.due(10, 10), ahead.due(11, 9)], [4, 0]);
        read_together(4);
        // Of four two were, and are from the first one on.
        ahead.begin(12);
        assert_eq!(ahead.due(12, 3), 3);
        read_together(3);
        // Of three one was.
        ahead.begin(13);
        read_alone();
        assert_eq!(ahead.due(13, 100), 0);
    }
}

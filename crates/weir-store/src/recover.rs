//! Recovery of the map from the log: single-threaded, records in order, then `finish_recovery`, or
//! its two halves.

use crate::block;
use crate::control::Control;
use crate::error::{Result, StoreError};
use crate::extent::{Entry, FILE_UNITS_MAX, Relocation, UNIT};
use crate::space::Space;
use crate::store::Store;
use std::sync::atomic::Ordering;
use weir_page::{Lsn, PageId};

/// Of a longer file not all counts: the bitmap takes memory for each unit, and a hole takes no
/// space, however long it is.
const LONG_UNITS: u64 = (4 << 40) / UNIT as u64;
/// Of a long file what lies behind twice of what is in use, and so many units, counts for nothing,
/// and is cut off.
const SPARE_UNITS: u64 = (64 << 30) / UNIT as u64;

impl Store {
    /// Replays a relocation of the group that starts at `lsn`.
    pub fn recover_relocation(&self, relocation: &Relocation, lsn: Lsn) {
        self.recover_entry(relocation.page, relocation.entry(), lsn);
        self.ids.lock().mark(relocation.page);
    }

    /// Replays the freeing of a page by the group that starts at `lsn`. Its id is free, unless
    /// [`Store::recover_allocated`] follows.
    pub fn recover_free(&self, page: PageId, lsn: Lsn) {
        self.recover_entry(page, Entry::NONE, lsn);
        self.ids.lock().unmark(page);
    }

    /// Marks a page id as used: the page lives, though it may have no image yet.
    pub fn recover_allocated(&self, page: PageId) {
        self.ids.lock().mark(page);
    }

    fn recover_entry(&self, page: PageId, entry: Entry, lsn: Lsn) {
        self.assert_recovering();
        let before = self.map.slot(page).replace(entry);
        // An entry that is as the record says is persisted already or dirty from an earlier one.
        if before != entry {
            self.blocks.lock().touch(block::block_of(page), lsn, lsn);
        }
    }

    /// Derives free units and page ids from the map, once all of the log has been replayed. Changes
    /// nothing on disk.
    ///
    /// # Errors
    /// `Corrupt` when two pages share a unit or an extent lies beyond the data file: the store
    /// can then only be dropped.
    pub fn derive_space(&self) -> Result<()> {
        self.assert_recovering();
        let units = self.data.len()? / UNIT as u64;
        if units > FILE_UNITS_MAX {
            return Err(StoreError::Corrupt {
                file: self.data.name().to_string(),
                offset: 0,
                page: None,
                what: "length of the file",
                expected: format!("{} bytes or fewer", FILE_UNITS_MAX * UNIT as u64),
                found: format!("{} bytes", units * UNIT as u64),
            });
        }
        let counted = match units > LONG_UNITS {
            true => units.min(2 * self.used_to() + SPARE_UNITS),
            false => units,
        };
        let mut space = Space::new(counted);
        let mut ids = self.ids.lock();
        let mut pages = 0;
        for (page, entry) in self.map.stored() {
            let extent = entry.extent().expect("a stored page has an extent");
            if !space.claim(extent) {
                let beyond = extent.end_unit() > units;
                return Err(StoreError::Corrupt {
                    file: self.data.name().to_string(),
                    offset: extent.offset(),
                    page: Some(page),
                    what: if beyond { "extent beyond the file" } else { "extent overlap" },
                    expected: if beyond {
                        format!("a file of {} bytes or more", extent.end_unit() * UNIT as u64)
                    } else {
                        let end = extent.end_unit() * UNIT as u64;
                        format!("bytes {}..{end} for one page", extent.offset())
                    },
                    found: if beyond {
                        format!("{} bytes", units * UNIT as u64)
                    } else {
                        format!("page {} there too", self.other_owner(page))
                    },
                });
            }
            ids.mark(page);
            pages += 1;
        }
        drop(ids);
        *self.space.lock() = space;
        self.counters.pages_stored.store(pages, Ordering::Relaxed);
        Ok(())
    }

    /// Ends recovery, after [`Store::derive_space`]. From now on the database is of this build's
    /// format, and counts as open.
    ///
    /// # Errors
    /// `Disk` when broken map slots can't be cleared or the control file can't be written; the
    /// store is poisoned.
    pub fn end_recovery(&self) -> Result<()> {
        self.assert_recovering();
        self.clear_broken_slots()?;
        let outdated = self.map_io.lock().outdated.take();
        if let Some(control) = outdated {
            // The map may be written from here on.
            self.write_control(&Control { clean: false, ..control })?;
        }
        self.recovered.store(true, Ordering::Release);
        Ok(())
    }

    /// [`Store::derive_space`] and [`Store::end_recovery`].
    ///
    /// # Errors
    /// Theirs.
    pub fn finish_recovery(&self) -> Result<()> {
        self.derive_space()?;
        self.end_recovery()
    }

    /// Where the last image ends.
    fn used_to(&self) -> u64 {
        let ends = self.map.stored().filter_map(|(_, entry)| Some(entry.extent()?.end_unit()));
        ends.max().unwrap_or(0)
    }

    /// The first page that shares a unit with `page`.
    fn other_owner(&self, page: PageId) -> PageId {
        let Some(mine) = self.map.entry(page).extent() else { return PageId::NONE };
        self.map
            .stored()
            .filter_map(|(other, entry)| Some((other, entry.extent()?)))
            .find(|&(other, e)| {
                other != page && e.start_unit < mine.end_unit() && mine.start_unit < e.end_unit()
            })
            .map_or(PageId::NONE, |(other, _)| other)
    }

    fn assert_recovering(&self) {
        assert!(!self.recovered.load(Ordering::Acquire), "recovery of the store is over");
    }
}

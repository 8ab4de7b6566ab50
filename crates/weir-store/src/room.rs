//! Room that is had before it is needed: a data file and a map file longer than what they hold.

use crate::block::{self, BLOCK_PAGES};
use crate::error::{Result, StoreError};
use crate::extent::UNITS_MAX;
use crate::store::Store;
use std::sync::atomic::Ordering;
use weir_page::PageId;

/// What the data file has for pages that are yet to be written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Room {
    /// Free places for pages at their full size, whose space the file system has set aside.
    pub places: u64,
    /// Units of stored images.
    pub stored_units: u64,
    /// Pages that have an image.
    pub stored_pages: u64,
    /// Pages that have been handed out.
    pub pages: u64,
    /// New pages that the map file has room for.
    pub mapped: u64,
}

impl Store {
    /// What there is now.
    pub fn room(&self) -> Room {
        let (pages, fresh_from) = {
            let ids = self.ids.lock();
            (ids.len(), ids.fresh_from())
        };
        let mapped = self.mapped_pages.load(Ordering::Relaxed).saturating_sub(fresh_from);
        let stored_pages = self.counters.pages_stored.load(Ordering::Relaxed);
        let space = self.space.lock();
        let stored_units = space.used() - space.pending_units() - space.placed_units();
        Room { places: space.places(), stored_units, stored_pages, pages, mapped }
    }

    /// Makes the data file so long that it has `needed` free places for pages, or better `more`
    /// beyond that, and the map file long enough for the next `pages` new pages. Trimming leaves
    /// them.
    ///
    /// # Errors
    /// `NoSpace`: there are fewer. `Disk`: the store is poisoned. `Poisoned`.
    pub fn keep_room(&self, needed: u64, more: u64, pages: u64) -> Result<()> {
        self.assert_recovered();
        self.map_ahead(pages)?;
        self.kept_places.store(needed + more, Ordering::Relaxed);
        loop {
            let (units, places) = {
                let space = self.space.lock();
                (space.units(), space.places())
            };
            let units_for = |wanted: u64| u64::from(UNITS_MAX) * wanted.saturating_sub(places);
            let wanted = units_for(needed + more);
            if wanted == 0 {
                // There is room, in the file or on the device: who needs more may ask for a step
                // again.
                self.short.store(false, Ordering::Relaxed);
                return Ok(());
            }
            match self.grow(units, units_for(needed), wanted) {
                Err(StoreError::NoSpace { .. }) if units_for(needed) == 0 => return Ok(()),
                Ok(()) if self.space.lock().places() < needed => {}
                grown => return grown,
            }
        }
    }

    /// Makes the map file long enough for the next new pages.
    fn map_ahead(&self, pages: u64) -> Result<()> {
        let last = (self.ids.lock().fresh_from() + pages).min(u64::from(u32::MAX));
        if last < self.mapped_pages.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut io = self.map_io.lock();
        self.check_poison()?;
        self.grow_map(&mut io, block::block_of(PageId(last as u32)))?;
        let blocks = io.map_bytes / (2 * block::SLOT as u64);
        self.mapped_pages.store(blocks * u64::from(BLOCK_PAGES), Ordering::Relaxed);
        Ok(())
    }
}

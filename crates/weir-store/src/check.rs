//! Verification of a whole store.

use crate::extent::{Entry, UNIT};
use crate::space::Space;
use crate::store::Store;
use weir_page::PageId;

/// Pages read at a time.
const PAGES_AT_ONCE: usize = 1024;

impl Store {
    /// Looks at everything that is stored and reports each finding: what [`Store::check_space`]
    /// does, and every image against its checksum, id and LSN. Pages may be written meanwhile.
    pub fn check(&self, report: &mut dyn FnMut(String)) {
        self.check_space(report);
        let pages: Vec<PageId> = self.map.stored().map(|(page, _)| page).collect();
        for part in pages.chunks(PAGES_AT_ONCE) {
            self.read_pages(part, &mut |page, read| {
                if let Err(error) = read
                    && self.map.entry(page) != Entry::NONE
                {
                    report(error.to_string());
                }
            });
        }
    }

    /// Page ids that are handed out, ascending.
    pub fn allocated_pages(&self) -> Vec<PageId> {
        self.ids.lock().iter().collect()
    }

    /// Reports where map, bitmap and page ids disagree, and extents that overlap. Reads nothing.
    /// Pages may be written meanwhile.
    pub fn check_space(&self, report: &mut dyn FnMut(String)) {
        let file = self.data.name();
        // The file isn't trimmed, and the map and the space change together.
        let _growth = self.growth.lock();
        let _blocks = self.blocks.lock();
        let space = self.space.lock();
        let ids = self.ids.lock();
        let mut model = Space::new(space.units());
        for (page, entry) in self.map.stored() {
            let extent = entry.extent().expect("a stored page has an extent");
            let offset = extent.start_unit * UNIT as u64;
            if !model.claim(extent) {
                let what = "overlaps another page or the end of the file";
                report(format!("{file}: the extent of page {page} at offset {offset} {what}"));
            }
            if !space.is_used(extent) {
                report(format!("{file}: page {page} at offset {offset} is in free space"));
            }
            if !ids.contains(page) {
                report(format!("{file}: stored page {page} has a free id"));
            }
        }
        let (mapped, used) = (model.used(), space.used());
        let (pending, placed) = (space.pending_units(), space.placed_units());
        if mapped + pending + placed != used {
            report(format!(
                "{file}: {used} units in use, but {mapped} mapped, {pending} pending and {placed} being written"
            ));
        }
    }
}

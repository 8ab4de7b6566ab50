//! The directory of undo lanes: for each lane its oldest and its newest page, u32 each,
//! from byte 64.

use crate::page::{BODY, Kind, Page};
use crate::types::{PAGE_SIZE, PageId};

/// Number of lanes: of read-write transactions that can be active at once.
pub const LANES: usize = (PAGE_SIZE - BODY) / 8;

/// Makes a page the empty directory.
pub fn init(p: &mut Page, id: PageId) {
    p.reset(id, Kind::Lanes, 0);
}

/// Oldest and newest page of a lane; both 0 when it has none.
pub fn get(p: &Page, lane: u16) -> (PageId, PageId) {
    let at = BODY + 8 * lane as usize;
    (PageId(p.u32(at)), PageId(p.u32(at + 4)))
}

/// Sets the oldest and newest page of a lane.
pub fn set(p: &mut Page, lane: u16, head: PageId, tail: PageId) {
    let at = BODY + 8 * lane as usize;
    p.set_u32(at, head.0);
    p.set_u32(at + 4, tail.0);
}

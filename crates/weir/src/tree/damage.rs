//! Damaged pages are left where they are by those who free what is there.

use crate::storage::{Fault, Restart, Storage, retry};
use weir_page::PageId;

/// As [`retry`]. A step that fails at a damaged page is run again, told that the page is among
/// those that are `lost`: it does without it, if it can.
///
/// # Errors
/// As [`retry`]; a damaged page that `step` was told of.
pub fn past_damage<T>(
    s: &Storage,
    lost: &mut Vec<PageId>,
    mut step: impl FnMut(&[PageId]) -> Result<T, Restart<Fault>>,
) -> Result<T, Fault> {
    loop {
        match retry(s, || step(lost)) {
            Ok(done) => return Ok(done),
            Err(fault) => match fault.damaged_page() {
                Some(page) if !lost.contains(&page) => lost.push(page),
                _ => return Err(fault),
            },
        }
    }
}

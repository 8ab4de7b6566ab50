//! Values too long for a leaf: chains of overflow pages.
//!
//! A chain is freed from behind its first page, which goes last, together with the change that
//! drops the reference: so freeing may be cut short and begun again. Damaged pages stay allocated,
//! with what only they lead to.

use super::past_damage;
use crate::storage::{Fault, Mtr, Need, Restart, Storage, retry};
use weir_page::overflow::{self, CAPACITY, Reference};
use weir_page::{Kind, Page, PageId, RECORD_BYTES, Redo, TxnId, Undo};

/// Redo for one page of a chain.
pub const LINK_BYTES: usize = CAPACITY + 4 * RECORD_BYTES;

/// Redo for freeing one.
pub const FREE_BYTES: usize = 4 * RECORD_BYTES;

/// Where the undo record goes by which an unfinished chain is found and freed.
#[derive(Debug, Clone, Copy)]
pub struct Announce {
    /// Undo page with room for the record.
    pub undo_page: PageId,
    /// The transaction, if this is its first record.
    pub first: Option<TxnId>,
}

/// Writes the first page of a chain for `value`, and its announcement.
///
/// # Errors
/// Faults of the storage: nothing was written or announced then.
pub fn begin(s: &Storage, value: &[u8], announce: Announce) -> Result<PageId, Fault> {
    let data = value.chunks(CAPACITY).next().unwrap_or(&[]);
    retry(s, || {
        let mut mtr = s.mtr(Need::log(LINK_BYTES).and_pages(1))?;
        mtr.latch(announce.undo_page)?;
        let page = mtr.create();
        mtr.log(&Redo::OverflowInit { page, data });
        let undo = Undo::Overflow { first: page };
        mtr.log(&Redo::UndoPush { page: announce.undo_page, first: announce.first, undo });
        mtr.commit();
        Ok::<_, Restart<Fault>>(page)
    })
}

/// Writes the rest of the chain for `value` that begins with page `first`.
///
/// # Errors
/// Faults of the storage: the chain is shorter then, and found by its announcement.
pub fn finish(s: &Storage, value: &[u8], first: PageId) -> Result<Reference, Fault> {
    let mut last = first;
    for data in value.chunks(CAPACITY).skip(1) {
        last = retry(s, || {
            let mut mtr = s.mtr(Need::log(LINK_BYTES).and_pages(1))?;
            mtr.latch(last)?;
            let page = mtr.create();
            mtr.log(&Redo::OverflowInit { page, data });
            mtr.log(&Redo::OverflowLink { page: last, next: page });
            mtr.commit();
            Ok::<_, Restart<Fault>>(page)
        })?;
    }
    Ok(Reference { first, len: value.len() as u64 })
}

fn check(page: &Page, id: PageId) -> Result<(), Fault> {
    if page.kind() == Kind::Overflow {
        return Ok(());
    }
    Err(Fault::page(id, format!("is a {:?} page where an overflow page is expected", page.kind())))
}

/// Most pages of a chain that are read together, and least.
const MOST: u32 = 32;
const LEAST: u32 = 4;

/// Pages made one after the other mostly have numbers that follow on each other. Going by that,
/// pages of a chain are read together.
struct Together {
    /// The page that the chain came to last.
    last: u32,
    /// Those before this one have been asked for.
    end: u32,
    /// Number of pages that were read together last.
    pages: u32,
}

impl Together {
    /// The chain comes to `at`; it has `left` pages from there on, if it holds what its reference
    /// says.
    fn come_to(&mut self, s: &Storage, at: PageId, left: u64) {
        let follows = at.0 == self.last.wrapping_add(1);
        self.last = at.0;
        if follows && at.0 < self.end || s.is_resident(at) {
            return;
        }
        self.pages = if follows { (2 * self.pages).clamp(LEAST, MOST) } else { 0 };
        let pages = self.pages.min(left.min(MOST.into()) as u32);
        self.end = at.0.saturating_add(pages);
        // One alone is read as fast by who needs it.
        if pages > 1 {
            s.read_together((at.0..self.end).map(PageId).collect());
        }
    }
}

/// Reads a chain.
///
/// # Errors
/// Faults of the storage; a chain that doesn't hold what its reference says.
pub fn read(s: &Storage, reference: Reference) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    let (mut at, mut mark) = (reference.first, PageId::NONE);
    let mut together = Together { last: at.0.wrapping_sub(1), end: 0, pages: 0 };
    for nth in 0..reference.pages() {
        // A damaged chain may lead back to where it has been, which is told by Brent's algorithm,
        // and a damaged reference lets it go on for ever: one page is remembered, for twice as many
        // steps each time.
        if at == PageId::NONE || at == mark {
            break;
        }
        if nth.is_power_of_two() {
            mark = at;
        }
        together.come_to(s, at, reference.pages() - nth);
        at = retry(s, || {
            let page = s.read(at, true)?;
            check(&page, at)?;
            out.extend_from_slice(overflow::data(&page));
            Ok::<_, Restart<Fault>>(overflow::next(&page))
        })?;
    }
    if out.len() as u64 != reference.len {
        let what = format!("chain holds {} bytes, not {}", out.len(), reference.len);
        return Err(Fault::page(reference.first, what));
    }
    Ok(out)
}

/// What is left of a chain after a step of freeing it.
pub enum Left {
    /// More than the first page.
    More,
    /// The first page, which is latched: it goes with the reference to the chain.
    First,
    /// Nothing that can be read: the reference goes alone.
    Nothing,
}

/// Latches the first page of a chain and frees the second, if there is one that isn't lost; nothing
/// is logged otherwise.
///
/// # Errors
/// [`Restart`]: nothing was logged.
pub fn free_second(
    mtr: &mut Mtr<'_>,
    first: PageId,
    lost: &[PageId],
) -> Result<Left, Restart<Fault>> {
    if lost.contains(&first) {
        return Ok(Left::Nothing);
    }
    mtr.latch(first)?;
    check(mtr.page(first), first)?;
    let second = overflow::next(mtr.page(first));
    if second == PageId::NONE || lost.contains(&second) {
        return Ok(Left::First);
    }
    mtr.latch(second)?;
    check(mtr.page(second), second)?;
    let third = overflow::next(mtr.page(second));
    mtr.log(&Redo::OverflowLink { page: first, next: third });
    mtr.free(second);
    Ok(Left::More)
}

/// Frees a chain; damaged pages stay, and what only they lead to: returns whether there are none.
/// `finish` runs in the last mtr, and logs, in up to [`FREE_BYTES`], that nothing refers to the
/// chain any more.
///
/// # Errors
/// Faults of the storage, those of `finish`.
pub fn free(
    s: &Storage,
    first: PageId,
    finish: &mut dyn FnMut(&mut Mtr<'_>) -> Result<(), Restart<Fault>>,
) -> Result<bool, Fault> {
    let mut lost = Vec::new();
    let mut step = |lost: &[PageId]| {
        let mut mtr = s.mtr(Need::log(2 * FREE_BYTES))?;
        let left = free_second(&mut mtr, first, lost)?;
        if !matches!(left, Left::More) {
            finish(&mut mtr)?;
        }
        if let Left::First = left {
            mtr.free(first);
        }
        mtr.commit();
        Ok::<_, Restart<Fault>>(matches!(left, Left::More))
    };
    while past_damage(s, &mut lost, &mut step)? {}
    Ok(lost.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Need;
    use crate::txn::tests::transactions;

    /// A chain of so many pages whose last leads to its first.
    fn ring(s: &Storage, pages: usize) -> PageId {
        let mut mtr = s.mtr(Need::log(1024).and_pages(pages)).unwrap();
        let ids: Vec<PageId> = (0..pages).map(|_| mtr.create()).collect();
        for (at, &page) in ids.iter().enumerate() {
            mtr.log(&Redo::OverflowInit { page, data: b"four" });
            mtr.log(&Redo::OverflowLink { page, next: ids[(at + 1) % pages] });
        }
        mtr.commit();
        ids[0]
    }

    #[test]
    fn a_chain_that_leads_back_is_freed_as_far_as_it_goes() {
        for pages in 1..4 {
            let txns = transactions(64);
            let (first, owner) = (ring(&txns.storage, pages), ring(&txns.storage, 1));
            let mut ends = 0;
            let mut finish = |mtr: &mut Mtr<'_>| {
                mtr.latch(owner)?;
                mtr.log(&Redo::OverflowLink { page: owner, next: PageId::NONE });
                ends += 1;
                Ok(())
            };
            free(&txns.storage, first, &mut finish).unwrap();
            assert_eq!(ends, 1, "{pages}");
        }
    }

    #[test]
    fn a_chain_that_leads_nowhere_ends() {
        let txns = transactions(64);
        let s = &*txns.storage;
        let page = ring(s, 1);
        let error = read(s, Reference { first: page, len: 3 * CAPACITY as u64 }).unwrap_err();
        assert!(error.to_string().ends_with("chain holds 8 bytes, not 48960"), "{error}");
    }

    #[test]
    fn a_chain_that_leads_to_a_page_of_a_wild_number_is_damaged() {
        for next in [u32::MAX, u32::MAX - 1, 1 << 20] {
            let txns = transactions(64);
            let s = &*txns.storage;
            let mut mtr = s.mtr(Need::log(1024).and_pages(1)).unwrap();
            let first = mtr.create();
            mtr.log(&Redo::OverflowInit { page: first, data: b"four" });
            mtr.log(&Redo::OverflowLink { page: first, next: PageId(next) });
            mtr.commit();
            let error = read(s, Reference { first, len: 9 * CAPACITY as u64 }).unwrap_err();
            assert!(error.damaged_page().is_some(), "{error}");
        }
    }

    /// It was read until the memory was full.
    #[test]
    fn a_chain_that_leads_back_ends_however_long_it_is_said_to_be() {
        for pages in 1..5 {
            let txns = transactions(64);
            let first = ring(&txns.storage, pages);
            let error = read(&txns.storage, Reference { first, len: u64::MAX }).unwrap_err();
            assert!(error.to_string().contains(&format!("page {first}: chain holds ")), "{error}");
        }
    }
}

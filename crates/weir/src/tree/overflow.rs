//! Values too long for a leaf: chains of overflow pages.
//!
//! A chain is freed from behind its first page, which goes last, together with the change that drops
//! the reference: so freeing may be cut short and begun again.

use crate::storage::{Fault, Mtr, Need, Restart, Storage, retry};
use weir_page::overflow::{self, CAPACITY, Reference};
use weir_page::{Kind, Page, PageId, Redo};

/// Redo for one page of a chain.
pub const LINK_BYTES: usize = CAPACITY + 256;

/// Writes `value` as a chain. `first_page` runs in the mtr of the first page, before it is made, and
/// must leave a record by which the chain can be found and freed.
///
/// # Errors
/// Faults of the storage; those of `begin`.
pub fn write(
    s: &Storage,
    value: &[u8],
    begin: &mut dyn FnMut(&mut Mtr<'_>) -> Result<BeginChain, Restart<Fault>>,
) -> Result<Reference, Fault> {
    let mut parts = value.chunks(CAPACITY);
    let data = parts.next().unwrap_or(&[]);
    let first = retry(s, || {
        let mut mtr = s.mtr(Need::pages(LINK_BYTES, 1))?;
        let announce = begin(&mut mtr)?;
        let page = mtr.create();
        mtr.log(&Redo::OverflowInit { page, data });
        announce(&mut mtr, page);
        mtr.commit();
        Ok(page)
    })?;
    let mut last = first;
    for data in parts {
        last = retry(s, || {
            let mut mtr = s.mtr(Need::pages(LINK_BYTES, 1))?;
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

/// Logs the record that announces a chain, given its first page.
pub type BeginChain = Box<dyn FnOnce(&mut Mtr<'_>, PageId)>;

fn check(page: &Page, id: PageId) -> Result<(), Fault> {
    if page.kind() == Kind::Overflow {
        return Ok(());
    }
    Err(Fault::page(id, format!("is a {:?} page where an overflow page is expected", page.kind())))
}

/// Reads a chain.
///
/// # Errors
/// Faults of the storage; a chain that doesn't hold what its reference says.
pub fn read(s: &Storage, reference: Reference) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::new();
    let mut at = reference.first;
    while at != PageId::NONE && (out.len() as u64) < reference.len {
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

/// Frees all pages of a chain but the first.
///
/// # Errors
/// Faults of the storage.
pub fn free_rest(s: &Storage, first: PageId) -> Result<(), Fault> {
    while retry(s, || free_second(s, first))? {}
    Ok(())
}

fn free_second(s: &Storage, first: PageId) -> Result<bool, Restart<Fault>> {
    let mut mtr = s.mtr(Need::log(256))?;
    mtr.latch(first)?;
    check(mtr.page(first), first)?;
    let second = overflow::next(mtr.page(first));
    if second == PageId::NONE {
        return Ok(false);
    }
    mtr.latch(second)?;
    let third = overflow::next(mtr.page(second));
    mtr.log(&Redo::OverflowLink { page: first, next: third });
    mtr.free(second);
    mtr.commit();
    Ok(true)
}


//! Freeing a tree, a page or two at a time.
//!
//! Each step leaves a smaller tree, so a drop that is cut short is begun again. The root goes last,
//! together with the change that says that the tree is no more. What a damaged tree leads to and isn't its own stays,
//! and pages that can't be read are lost: they stay allocated, and the check tells of them.

use super::{LEVELS, Tree, overflow};
use crate::storage::{Fault, Mtr, Need, Restart, Storage, retry};
use weir_page::overflow::Reference;
use weir_page::{Page, PageId, Redo, node};

enum Step {
    /// Pages were freed; there are more.
    More,
    /// The last entry of a leaf has a chain, which goes first.
    Chain(PageId),
    /// Nothing is left.
    Done,
}

struct LastPath {
    inner: Vec<PageId>,
    leaf: Option<PageId>,
}

impl Tree {
    /// Frees all pages. `finish` runs in the last mtr and logs that the tree is no more. Nobody else
    /// uses the tree.
    ///
    /// # Errors
    /// Faults of the storage, those of `finish`.
    pub fn destroy(
        &self,
        s: &Storage,
        finish: &mut dyn FnMut(&mut Mtr<'_>) -> Result<(), Restart<Fault>>,
    ) -> Result<(), Fault> {
        // Damaged pages, and first pages of chains with such.
        let mut lost = Vec::new();
        loop {
            let damaged = match retry(s, || self.destroy_step(s, &lost, finish)) {
                Ok(Step::More) => continue,
                Ok(Step::Chain(first)) => {
                    let freed = overflow::free_rest(s, first)
                        .and_then(|()| retry(s, || self.drop_last_entry(s, &lost, first)));
                    match freed {
                        Err(fault) if fault.damaged_page().is_none() => return Err(fault),
                        Err(_) => first,
                        Ok(()) => continue,
                    }
                }
                Ok(Step::Done) => return Ok(()),
                Err(fault) => match fault.damaged_page() {
                    Some(page) if !lost.contains(&page) => page,
                    _ => return Err(fault),
                },
            };
            lost.push(damaged);
        }
    }

    /// Latches the pages on the way to the last leaf: the inner ones, and the leaf. Where the way leads to a page that isn't
    /// the tree's, or is lost, there is none.
    fn latch_last_path(
        &self,
        mtr: &mut Mtr<'_>,
        lost: &[PageId],
    ) -> Result<LastPath, Restart<Fault>> {
        let (mut inner, mut at) = (Vec::new(), self.root());
        let mut above = LEVELS;
        loop {
            if lost.contains(&at) {
                return Ok(LastPath { inner, leaf: None });
            }
            mtr.latch(at)?;
            let page = mtr.page(at);
            let level = u32::from(page.level());
            if !self.owns(page, level) || level >= above {
                return Ok(LastPath { inner, leaf: None });
            }
            if level == 0 {
                return Ok(LastPath { inner, leaf: Some(at) });
            }
            above = level;
            inner.push(at);
            at = node::child(page, node::count(page) - 1);
        }
    }

    fn destroy_step(
        &self,
        s: &Storage,
        lost: &[PageId],
        finish: &mut dyn FnMut(&mut Mtr<'_>) -> Result<(), Restart<Fault>>,
    ) -> Result<Step, Restart<Fault>> {
        let mut mtr = s.mtr(Need::log(4096))?;
        let LastPath { inner, leaf } = self.latch_last_path(&mut mtr, lost)?;
        if let Some((_, first)) = leaf.and_then(|leaf| last_chain(mtr.page(leaf), lost)) {
            return Ok(Step::Chain(first));
        }
        let fork = inner.iter().rposition(|&page| node::count(mtr.page(page)) > 1);
        let (done, gone) = match fork {
            Some(at) => {
                let slot = node::count(mtr.page(inner[at])) as u16 - 1;
                mtr.log(&Redo::RemoveChild { page: inner[at], slot });
                (Step::More, &inner[at + 1..])
            }
            None => {
                finish(&mut mtr)?;
                (Step::Done, &inner[..])
            }
        };
        for page in gone.iter().copied().chain(leaf) {
            mtr.free(page);
        }
        mtr.commit();
        Ok(done)
    }

    /// Frees the first page of a chain together with the entry that refers to it.
    fn drop_last_entry(
        &self,
        s: &Storage,
        lost: &[PageId],
        first: PageId,
    ) -> Result<(), Restart<Fault>> {
        let mut mtr = s.mtr(Need::log(4096))?;
        let leaf = self.latch_last_path(&mut mtr, lost)?.leaf;
        let leaf = leaf.expect("the leaf with the chain is there");
        let (slot, of_entry) =
            last_chain(mtr.page(leaf), lost).expect("the entry with the chain is there");
        assert_eq!(of_entry, first, "nobody else changes a tree that is being destroyed");
        mtr.latch(first)?;
        mtr.log(&Redo::Remove { page: leaf, slot: slot as u16 });
        mtr.free(first);
        mtr.commit();
        Ok(())
    }
}

/// The last entry of a leaf that has an overflow chain that isn't lost, and the chain's first page.
fn last_chain(leaf: &Page, lost: &[PageId]) -> Option<(usize, PageId)> {
    (0..node::count(leaf)).rev().find_map(|slot| {
        let entry = node::entry(leaf, slot);
        let reference = entry.flags.overflow.then(|| Reference::from_bytes(entry.value))??;
        (!lost.contains(&reference.first)).then_some((slot, reference.first))
    })
}

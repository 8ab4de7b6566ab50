//! Freeing a tree, a page or two at a time.
//!
//! Each step leaves a smaller tree, so a drop that is cut short is begun again. The root goes last,
//! together with the change that says that the tree is no more. What a damaged tree leads to and
//! isn't its own stays, and pages that can't be read are lost, with what only they lead to: they
//! stay allocated, and the check tells of them.

use super::descent::LEVELS;
use super::overflow::{self, Left};
use super::{Tree, past_damage};
use crate::storage::{Fault, Mtr, Need, Restart, Storage};
use weir_page::overflow::Reference;
use weir_page::{Page, PageId, Redo, node};

struct LastPath {
    inner: Vec<PageId>,
    leaf: Option<PageId>,
}

impl Tree {
    /// Frees all pages but those that are damaged and what only they lead to: returns whether there
    /// are none. `finish` runs in the last mtr and logs that the tree is no more. Nobody else uses
    /// the tree.
    ///
    /// # Errors
    /// Faults of the storage, those of `finish`.
    pub fn destroy(
        &self,
        s: &Storage,
        finish: &mut dyn FnMut(&mut Mtr<'_>) -> Result<(), Restart<Fault>>,
    ) -> Result<bool, Fault> {
        let mut lost = Vec::new();
        while past_damage(s, &mut lost, |lost| self.destroy_step(s, lost, finish))? {}
        Ok(lost.is_empty())
    }

    /// Latches the pages on the way to the last leaf: the inner ones, and the leaf. Where the way
    /// leads to a page that isn't the tree's, or is lost, there is none.
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
            if !self.owns(page, level) || level >= above || (level > 0 && node::count(page) == 0) {
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

    /// Frees what goes next: the second page of a chain, or the first with its entry, or what is
    /// below the last place where the way to the last leaf might go on otherwise. Returns whether
    /// anything is left.
    fn destroy_step(
        &self,
        s: &Storage,
        lost: &[PageId],
        finish: &mut dyn FnMut(&mut Mtr<'_>) -> Result<(), Restart<Fault>>,
    ) -> Result<bool, Restart<Fault>> {
        let mut mtr = s.mtr(Need::log(4096))?;
        let LastPath { inner, leaf } = self.latch_last_path(&mut mtr, lost)?;
        if let Some(leaf) = leaf
            && let Some((slot, first)) = last_chain(mtr.page(leaf))
        {
            match overflow::free_second(&mut mtr, first, lost)? {
                Left::More => {}
                left => {
                    mtr.log(&Redo::Remove { page: leaf, slot: slot as u16 });
                    if let Left::First = left {
                        mtr.free(first);
                    }
                }
            }
            mtr.commit();
            return Ok(true);
        }
        let fork = inner.iter().rposition(|&page| node::count(mtr.page(page)) > 1);
        let gone = match fork {
            Some(at) => {
                let slot = node::count(mtr.page(inner[at])) as u16 - 1;
                mtr.log(&Redo::RemoveChild { page: inner[at], slot });
                &inner[at + 1..]
            }
            None => {
                finish(&mut mtr)?;
                &inner[..]
            }
        };
        for page in gone.iter().copied().chain(leaf) {
            mtr.free(page);
        }
        mtr.commit();
        Ok(fork.is_some())
    }
}

/// The last entry of a leaf that has an overflow chain, and the chain's first page.
fn last_chain(leaf: &Page) -> Option<(usize, PageId)> {
    (0..node::count(leaf)).rev().find_map(|slot| {
        let entry = node::entry(leaf, slot);
        let reference = entry.flags.overflow.then(|| Reference::from_bytes(entry.value))??;
        Some((slot, reference.first))
    })
}

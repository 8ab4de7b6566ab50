//! What the structural check asks of two trees between which entries move.

use super::{Target, Tree};
use crate::storage::{Fault, Restart, Storage, retry};
use weir_page::PageId;

impl Tree {
    /// What is wrong between this tree and `other`, to which its entries move, by page and slot: an
    /// entry of `other` is alive in both, and hidden by none, or an entry of this one hides
    /// nothing. Nobody moves entries.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn contradictions(
        &self,
        s: &Storage,
        other: Tree,
    ) -> Result<Vec<(PageId, usize, &'static str)>, Fault> {
        let (mut found, mut from) = (Vec::new(), Some(Vec::new()));
        while let Some(low) = from {
            let (page, entries, upper) = retry(s, || {
                let leaf = self.leaf(s, Target::At(&low), true)?;
                let entry = |slot| (slot, leaf.key(slot), leaf.entry(slot).flags);
                let entries: Vec<_> = (0..leaf.len()).map(entry).collect();
                let upper = leaf.upper().map(<[u8]>::to_vec);
                Ok::<_, Restart<Fault>>((leaf.page(), entries, upper))
            })?;
            for (slot, key, flags) in entries {
                if flags.deleted && !flags.hides {
                    continue;
                }
                let alive_there = retry(s, || {
                    let leaf = other.leaf(s, Target::At(&key), true)?;
                    let (slot, found) = leaf.seek(&key);
                    let is_alive = found && !leaf.entry(slot).flags.deleted;
                    Ok::<_, Restart<Fault>>(is_alive.then(|| (leaf.page(), slot)))
                })?;
                match (flags.hides, alive_there) {
                    (false, Some((page, slot))) => {
                        found.push((page, slot, "is alive in the staging tree, too"));
                    }
                    (true, None) => found.push((page, slot, "hides no entry of the main tree")),
                    _ => {}
                }
            }
            from = upper;
        }
        Ok(found)
    }
}

//! Building a tree page from front to back.

use super::*;
use crate::page::Kind;

/// Builds a tree page by appending entries in key order.
pub struct Builder {
    page: Box<Page>,
}

impl Builder {
    /// An empty page of `tree` for keys in `[lower, upper)`.
    pub fn new(id: PageId, tree: TreeId, level: u8, lower: &[u8], upper: Option<&[u8]>) -> Builder {
        let mut page = Page::boxed();
        let p = &mut *page;
        p.reset(id, if level == 0 { Kind::Leaf } else { Kind::Inner }, level);
        p.set_u32(TREE, tree.0);
        let mut top = PAGE_SIZE - lower.len();
        p.0[top..].copy_from_slice(lower);
        p.set_u16(LOWER, top as u16);
        p.set_u16(LOWER + 2, lower.len() as u16);
        match upper {
            Some(u) => {
                top -= u.len();
                p.0[top..top + u.len()].copy_from_slice(u);
                p.set_u16(UPPER, top as u16);
                p.set_u16(UPPER + 2, u.len() as u16);
                p.set_u16(PREFIX, common_prefix(lower, u) as u16);
            }
            None => p.set_u16(UPPER + 2, NO_UPPER),
        }
        p.set_u16(HEAP_TOP, top as u16);
        Builder { page }
    }

    /// Whether a leaf entry fits yet.
    pub fn fits(&self, key_len: usize, value_len: usize, versioned: bool) -> bool {
        fits_insert(&self.page, key_len, value_len, versioned)
    }

    /// Appends a leaf entry.
    pub fn push(&mut self, key: &[u8], e: &Entry<'_>) {
        let slot = count(&self.page);
        insert(&mut self.page, slot, key, e);
    }

    /// Appends entries of another leaf as they are; their keys lie within the fences. Heads have no
    /// gaps before the end.
    fn push_entries(&mut self, from: &Page, slots: Range<usize>) {
        let p = &mut *self.page;
        let (theirs, ours) = (prefix(from), p.u16(PREFIX) as usize);
        // Of each key's bytes, those that only their prefix has in common, and how many only ours
        // has.
        let regained = theirs.get(ours..).unwrap_or(&[]);
        let left_out = ours.saturating_sub(theirs.len());
        for slot in slots {
            let s = Slot::get(from, slot);
            let (state, rest) = from.0[in_heap(from, s)].split_at(leaf_key_at(0, s.versioned()));
            let parts = [state, regained, &rest[left_out..]];
            let n = count(p);
            let at = take_heap(p, parts.iter().map(|part| part.len()).sum(), n + 1);
            let mut end = at;
            for part in parts {
                p.0[end..end + part.len()].copy_from_slice(part);
                end += part.len();
            }
            let key_len = s.key_len() + regained.len() - left_out;
            let head = head(&p.0[at + state.len()..at + state.len() + key_len]);
            let len_flags = s.len_flags & !LEN_MASK | key_len as u16;
            Slot { head, offset: at as u16, len_flags }.set(p, n);
            p.set_u16(COUNT, n as u16 + 1);
            p.set_u16(LAST, n as u16);
        }
    }

    /// Appends a child; the first one's key is not kept.
    pub fn push_child(&mut self, key: &[u8], child: PageId) {
        let slot = count(&self.page);
        let suffix = if slot == 0 { &[] } else { &key[self.page.u16(PREFIX) as usize..] };
        put_child(&mut self.page, slot, suffix, child);
    }

    /// Bytes left.
    pub fn free_bytes(&self) -> usize {
        free_bytes(&self.page)
    }

    /// The page.
    pub fn finish(mut self) -> Box<Page> {
        self.page.set_u16(RUN, 0);
        if self.page.level() == 0 {
            heads::fit(&mut self.page, None);
        }
        self.page
    }
}

/// Copies the slots of `range` to the end of `to`, whose fences cover them.
pub fn copy_slots(from: &Page, range: Range<usize>, to: &mut Builder) {
    if from.level() == 0 {
        return to.push_entries(from, range);
    }
    let mut key = prefix(from).to_vec();
    let prefix = key.len();
    for slot in range {
        key.truncate(prefix);
        key.extend_from_slice(suffix(from, slot));
        to.push_child(if slot == 0 { lower(from) } else { &key }, child(from, slot));
    }
}

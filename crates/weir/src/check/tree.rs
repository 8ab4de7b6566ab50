//! Trees: pages, ranges, entries, and what those refer to.

use super::lanes::Found;
use super::{Check, Place};
use crate::storage::Fault;
use weir_page::overflow::{self, Reference};
use weir_page::undo::{self, Undo};
use weir_page::version::{Entry, UndoPtr};
use weir_page::{Kind, Page, PageId, TreeId, node};

/// What may be expected of a tree or chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    /// All of it is there.
    Whole,
    /// It may have lost its end.
    BeingFreed,
}

/// A page to be visited, and what its parent says of it.
struct Visit {
    page: PageId,
    parent: PageId,
    /// `None` for a root, whose level is its own affair.
    level: Option<u8>,
    lower: Vec<u8>,
    upper: Option<Vec<u8>>,
    /// Whether siblings to the right may be missing, so that the page may end before its parent
    /// does.
    last: bool,
}

/// What all pages of a tree have in common.
struct Of<'a> {
    id: TreeId,
    owner: String,
    condition: Condition,
    undo: &'a Found,
}

impl Check<'_> {
    /// Checks a tree from its root.
    pub(super) fn tree(
        &mut self,
        id: TreeId,
        name: &str,
        condition: Condition,
        undo: &Found,
    ) -> Result<(), Fault> {
        self.summary.trees += 1;
        let of = Of { id, owner: format!("{name} (tree {id})"), condition, undo };
        let root = Visit {
            page: PageId(id.0),
            parent: PageId::NONE,
            level: None,
            lower: Vec::new(),
            upper: None,
            last: true,
        };
        let mut left = vec![root];
        while let Some(visit) = left.pop() {
            let Some(page) = self.follow(&of.owner, visit.page, visit.parent)? else { continue };
            if !self.tree_page(&of, &visit, &page) {
                self.damaged = true;
                continue;
            }
            match page.level() {
                0 => self.leaf(&of, &page)?,
                _ => self.inner(&of, &visit, &page, &mut left),
            }
        }
        Ok(())
    }

    /// Checks what leaves and inner pages have in common; whether the page can be followed.
    fn tree_page(&mut self, of: &Of<'_>, visit: &Visit, page: &Page) -> bool {
        let id = visit.page;
        if !matches!(page.kind(), Kind::Leaf | Kind::Inner) {
            self.find(&of.owner, id, None, format!("is a {:?} page", page.kind()));
            return false;
        }
        if let Err(what) = node::validate(page) {
            self.find(&of.owner, id, None, format!("is malformed: {what}"));
            return false;
        }
        if visit.level.is_some_and(|level| level != page.level()) {
            let level = visit.level.unwrap_or_default();
            let what = format!("is of level {} where {level} is expected", page.level());
            self.find(&of.owner, id, None, what);
            return false;
        }
        if node::tree(page) != of.id {
            self.find(&of.owner, id, None, format!("says that it is of tree {}", node::tree(page)));
        }
        let may_end_early = of.condition == Condition::BeingFreed && visit.last;
        let upper_differs = node::upper(page) != visit.upper.as_deref() && !may_end_early;
        if node::lower(page) != visit.lower || upper_differs {
            let what = format!(
                "holds {} where page {} has {}",
                range(node::lower(page), node::upper(page)),
                visit.parent,
                range(&visit.lower, visit.upper.as_deref())
            );
            self.find(&of.owner, id, None, what);
        }
        true
    }

    fn inner(&mut self, of: &Of<'_>, visit: &Visit, page: &Page, left: &mut Vec<Visit>) {
        self.summary.inner_pages += 1;
        let n = node::count(page);
        if n == 0 {
            self.find(&of.owner, visit.page, None, "has no children");
        }
        for slot in (0..n).rev() {
            let lower = if slot == 0 { node::lower(page).to_vec() } else { node::key(page, slot) };
            let last = slot + 1 == n;
            let upper = if last {
                node::upper(page).map(<[u8]>::to_vec)
            } else {
                Some(node::key(page, slot + 1))
            };
            left.push(Visit {
                page: node::child(page, slot),
                parent: visit.page,
                level: Some(page.level() - 1),
                lower,
                upper,
                last: last && visit.last,
            });
        }
    }

    fn leaf(&mut self, of: &Of<'_>, page: &Page) -> Result<(), Fault> {
        self.summary.leaf_pages += 1;
        for slot in 0..node::count(page) {
            let entry = node::entry(page, slot);
            self.summary.versions += u64::from(entry.version.is_some());
            if entry.flags.deleted {
                self.summary.dead_entries += 1;
            } else {
                self.summary.entries += 1;
            }
            if of.condition == Condition::Whole {
                self.version(of, page, slot, &entry)?;
            }
            if !entry.flags.overflow {
                continue;
            }
            let Some(reference) = Reference::from_bytes(entry.value) else {
                let place = Some(Place::Slot(slot));
                self.find(&of.owner, page.id(), place, "malformed reference to a chain");
                continue;
            };
            // A chain goes before its entry does.
            let condition = if entry.flags.deleted { Condition::BeingFreed } else { of.condition };
            self.chain(&of.owner, reference, page.id(), condition)?;
        }
        Ok(())
    }

    /// An entry of a running transaction can be taken back; a dead one is known to purge.
    fn version(
        &mut self,
        of: &Of<'_>,
        page: &Page,
        slot: usize,
        entry: &Entry<'_>,
    ) -> Result<(), Fault> {
        let place = Some(Place::Slot(slot));
        let Some(version) = entry.version else {
            if entry.flags.deleted && !entry.flags.hides {
                let what = "is dead, but has no version: purge won't find it";
                self.find(&of.owner, page.id(), place, what);
            }
            return Ok(());
        };
        let next = self.storage.next_txn.load(std::sync::atomic::Ordering::Acquire);
        if version.txn.0 == 0 || version.txn.0 >= next {
            let what = format!("was written by transaction {}, the next is {next}", version.txn);
            self.find(&of.owner, page.id(), place, what);
        }
        let is_purged = entry.flags.deleted && !entry.flags.hides;
        if !is_purged && !of.undo.running.contains(&version.txn) {
            return Ok(());
        }
        let key = node::key(page, slot);
        if let Err(what) = self.undo_record(of.id, &key, is_purged, version.undo.place())? {
            let UndoPtr { page: undo_page, offset } = version.undo.place();
            let state = if is_purged { "dead" } else { "not yet committed" };
            let what = format!("is {state}, but page {undo_page}, offset {offset}, {what}");
            self.find(&of.owner, page.id(), place, what);
        }
        Ok(())
    }

    /// Whether the undo record at `at` is of that entry; else, what is there.
    fn undo_record(
        &mut self,
        tree: TreeId,
        key: &[u8],
        dead: bool,
        at: UndoPtr,
    ) -> Result<Result<(), String>, Fault> {
        if !self.ledger.knows(at.page) {
            return Ok(Err("is no undo page".into()));
        }
        let Some(page) = self.copy("undo", at.page)? else { return Ok(Ok(())) };
        if page.kind() != Kind::Undo {
            return Ok(Err(format!("is a {:?} page", page.kind())));
        }
        let Some(record) = undo::record(&page, at.offset) else {
            return Ok(Err("holds no undo record".into()));
        };
        let moves_here = |from: TreeId| self.moves.get(&from) == Some(&tree);
        let (of, fits) = match record.undo {
            Undo::Delete { tree: t, key, .. } => (key, t == tree),
            Undo::Update { tree: t, key, .. } => (key, t == tree && !dead),
            Undo::Insert { tree: t, key } => (key, (t == tree || moves_here(t)) && !dead),
            // It is a tombstone, or was put in place of one.
            Undo::Hide { tree: t, key } => (key, if dead { moves_here(t) } else { t == tree }),
            _ => return Ok(Err("holds an undo record of no entry".into())),
        };
        let is_it = of == key && fits;
        Ok(is_it.then_some(()).ok_or_else(|| "holds the undo record of another write".into()))
    }

    /// Checks an overflow chain that `from` refers to.
    pub(super) fn chain(
        &mut self,
        owner: &str,
        reference: Reference,
        from: PageId,
        condition: Condition,
    ) -> Result<(), Fault> {
        let (mut at, mut from, mut bytes) = (reference.first, from, 0);
        while at != PageId::NONE {
            let Some(page) = self.follow(owner, at, from)? else { return Ok(()) };
            if page.kind() != Kind::Overflow {
                self.damaged = true;
                let what = format!("is a {:?} page in an overflow chain", page.kind());
                self.find(owner, at, None, what);
                return Ok(());
            }
            self.summary.overflow_pages += 1;
            bytes += overflow::data(&page).len() as u64;
            (from, at) = (at, overflow::next(&page));
        }
        self.summary.overflow_bytes += bytes;
        let shorter = condition == Condition::BeingFreed && bytes < reference.len;
        if bytes != reference.len && !shorter {
            let what = format!("the chain holds {bytes} bytes, not {}", reference.len);
            self.find(owner, reference.first, None, what);
        }
        Ok(())
    }
}

/// A range of keys for people: the first bytes of each end in hexadecimal.
fn range(lower: &[u8], upper: Option<&[u8]>) -> String {
    let hex = |key: &[u8]| {
        let mut out: String = key.iter().take(16).map(|b| format!("{b:02x}")).collect();
        if key.len() > 16 {
            out += "..";
        }
        out
    };
    format!("[{}, {})", hex(lower), upper.map_or("end".into(), hex))
}

//! Undo lanes: their links, their records, and what those refer to.

use super::{Check, Place};
use crate::storage::{Fault, Restart, retry};
use crate::tree::{Target, Tree};
use crate::txn::LANE_DIRECTORY;
use weir_page::lanes::{self, LANES};
use weir_page::overflow::Reference;
use weir_page::undo::{self, State, Undo};
use weir_page::version::{Flags, UndoPtr};
use weir_page::{Kind, Page, PageId, TreeId, TxnId};

/// What undo refers to.
#[derive(Default)]
pub(super) struct Found {
    /// Prepared (or running) transactions.
    pub running: Vec<TxnId>,
    /// Those of them that are prepared.
    prepared: Vec<Prepared>,
    /// Chains of former values, and the undo page that refers to each.
    pub chains: Vec<(Reference, PageId)>,
    /// Trees dropped for good, and the undo page that says so.
    pub dropped: Vec<(TreeId, PageId)>,
}

/// A prepared transaction, and where its undo lies.
struct Prepared {
    txn: TxnId,
    owner: String,
    begin: UndoPtr,
    tail: PageId,
}

/// What a lane's records have told so far.
#[derive(Default)]
struct Walk {
    lane: u16,
    owner: String,
    /// The first record of the transaction at hand.
    begin: UndoPtr,
    /// Trees dropped by the transaction at hand.
    dropping: Vec<(TreeId, PageId)>,
    found: Found,
}

impl Walk {
    fn end_transaction(&mut self) {
        self.found.dropped.append(&mut self.dropping);
    }
}

impl Check<'_> {
    /// Checks the directory and all lanes.
    pub(super) fn lanes(&mut self) -> Result<Found, Fault> {
        const OWNER: &str = "directory of undo lanes";
        let mut walk = Walk::default();
        let Some(directory) = self.follow(OWNER, LANE_DIRECTORY, PageId::NONE)? else {
            return Ok(walk.found);
        };
        if directory.kind() != Kind::Lanes {
            self.damaged = true;
            let what = format!("is a {:?} page", directory.kind());
            self.find(OWNER, LANE_DIRECTORY, None, what);
            return Ok(walk.found);
        }
        for lane in 0..LANES as u16 {
            let (head, tail) = lanes::get(&directory, lane);
            if (head == PageId::NONE) != (tail == PageId::NONE) {
                let what = format!("lane {lane} begins at page {head} and ends at page {tail}");
                self.find(OWNER, LANE_DIRECTORY, None, what);
            }
            if head != PageId::NONE {
                (walk.lane, walk.begin) = (lane, UndoPtr::default());
                walk.owner = format!("undo lane {lane}");
                self.lane(&mut walk, head, tail)?;
            }
        }
        Ok(walk.found)
    }

    /// Goes from a lane's head to its tail. A page's link back is stale on the head only.
    fn lane(&mut self, walk: &mut Walk, head: PageId, tail: PageId) -> Result<(), Fault> {
        let (mut at, mut before) = (head, LANE_DIRECTORY);
        while let Some(page) = self.follow(&walk.owner, at, before)? {
            if !self.undo_page(walk, at, &page) {
                break;
            }
            if at != head && undo::prev(&page) != before {
                let what = format!("links back to page {}, not {before}", undo::prev(&page));
                self.find(&walk.owner, at, None, what);
            }
            let next = undo::next(&page);
            if at == tail {
                if next != PageId::NONE {
                    let what = format!("ends the lane, but links to page {next}");
                    self.find(&walk.owner, at, None, what);
                }
                self.tail_state(walk, &page);
                return Ok(());
            }
            if next == PageId::NONE {
                let what = format!("links to no page, but the lane ends at page {tail}");
                self.find(&walk.owner, at, None, what);
                break;
            }
            (at, before) = (next, at);
        }
        self.damaged = true;
        walk.end_transaction();
        Ok(())
    }

    fn tail_state(&mut self, walk: &mut Walk, tail: &Page) {
        let (txn, state) = undo::txn(tail);
        match state {
            State::Ended => return walk.end_transaction(),
            State::Prepared => {
                self.summary.prepared += 1;
                let (owner, begin, tail) = (walk.owner.clone(), walk.begin, tail.id());
                walk.found.prepared.push(Prepared { txn, owner, begin, tail });
            }
            State::Active => {
                let what = format!("transaction {txn} is still running");
                self.find(&walk.owner, tail.id(), None, what);
            }
        }
        // What it dropped is there until it commits.
        walk.dropping.clear();
        walk.found.running.push(txn);
    }

    /// Checks one undo page and notes what its records refer to; whether its links can be trusted.
    fn undo_page(&mut self, walk: &mut Walk, id: PageId, page: &Page) -> bool {
        if let Err(what) = undo::validate(page) {
            self.find(&walk.owner, id, None, format!("is malformed: {what}"));
            return false;
        }
        self.summary.undo_pages += 1;
        if undo::lane(page) != walk.lane {
            let what = format!("says that it is of lane {}", undo::lane(page));
            self.find(&walk.owner, id, None, what);
        }
        let mut at = weir_page::page::BODY as u16;
        while let Some(record) = undo::record(page, at) {
            if record.first.is_some() {
                walk.end_transaction();
                walk.begin = UndoPtr { page: id, offset: at };
            }
            if at >= undo::purge_from(page) && record.undo.needs_purge() {
                self.summary.purge_records += 1;
                self.pending(walk, UndoPtr { page: id, offset: at }, &record.undo);
            }
            at = record.end;
        }
        true
    }

    fn pending(&mut self, walk: &mut Walk, at: UndoPtr, record: &Undo<'_>) {
        match *record {
            Undo::Update { flags: Flags { overflow: true, .. }, delta, .. } => {
                match Reference::from_bytes(delta.middle) {
                    Some(reference) => walk.found.chains.push((reference, at.page)),
                    None => {
                        let place = Some(Place::Offset(at.offset));
                        self.find(&walk.owner, at.page, place, "malformed reference to a chain");
                    }
                }
            }
            Undo::DropTree { root } => walk.dropping.push((TreeId(root.0), at.page)),
            _ => {}
        }
    }

    /// Checks that what prepared transactions have written is there. All trees are sound.
    pub(super) fn writes_of_prepared(&mut self, found: &Found) -> Result<(), Fault> {
        for prepared in &found.prepared {
            let UndoPtr { mut page, mut offset } = prepared.begin;
            while let Some(copy) = self.copy(&prepared.owner, page)? {
                while let Some(record) = undo::record(&copy, offset) {
                    self.write_of(prepared, UndoPtr { page, offset }, &record.undo)?;
                    offset = record.end;
                }
                if page == prepared.tail {
                    break;
                }
                (page, offset) = (undo::next(&copy), weir_page::page::BODY as u16);
            }
        }
        Ok(())
    }

    fn write_of(&mut self, by: &Prepared, at: UndoPtr, record: &Undo<'_>) -> Result<(), Fault> {
        let (tree, key, moves) = match *record {
            Undo::Insert { tree, key } | Undo::Hide { tree, key } => (tree, key, true),
            Undo::Update { tree, key, .. } | Undo::Delete { tree, key, .. } => (tree, key, false),
            _ => return Ok(()),
        };
        let writer = |tree| {
            retry(self.storage, || {
                let leaf = Tree::new(tree).leaf(self.storage, Target::At(key), true)?;
                let (slot, found) = leaf.seek(key);
                let version = if found { leaf.entry(slot).version } else { None };
                Ok::<_, Restart<Fault>>(version.map(|version| version.txn))
            })
        };
        let moved_to = self.moves.get(&tree).copied().filter(|_| moves);
        let found = match writer(tree) {
            Ok(found) if found != Some(by.txn) => moved_to.map_or(Ok(found), writer),
            found => found,
        };
        let what = match found {
            Ok(writer) if writer == Some(by.txn) => return Ok(()),
            Ok(_) => format!("its entry of tree {tree} isn't as transaction {} left it", by.txn),
            Err(fault) if fault.is_corrupt() => format!("leads to no entry: {fault}"),
            Err(fault) => return Err(fault),
        };
        self.find(&by.owner, at.page, Some(Place::Offset(at.offset)), what);
        Ok(())
    }

    /// Checks the chains and trees that only undo refers to.
    pub(super) fn waiting_for_purge(
        &mut self,
        roots: &[(TreeId, String)],
        found: &Found,
    ) -> Result<(), Fault> {
        for &(reference, page) in &found.chains {
            self.chain("former value", reference, page, super::tree::Condition::BeingFreed)?;
        }
        for &(tree, page) in &found.dropped {
            if let Some((_, name)) = roots.iter().find(|(id, _)| *id == tree) {
                let what = format!("says that tree {tree} is dropped, but it is listed as {name}");
                self.find("undo", page, None, what);
                continue;
            }
            let name = format!("dropped tree {tree}");
            self.tree(tree, &name, super::tree::Condition::BeingFreed, found)?;
        }
        Ok(())
    }
}

//! Rollback: a transaction's last writes are taken back, the last one first.
//!
//! Each undo record is taken off its lane in the mini-transaction that puts the entry back, so that
//! a crash in between takes back the rest.

use super::lane::{LANE_DIRECTORY, LaneUse, UndoPlace, set_ends};
use super::staging::Staging;
use super::undo_record::{Former, OwnedUndo, UndoRecord};
use super::work::Stage;
use super::{Savepoint, Txn, TxnError};
use crate::storage::{Fault, Mtr, Need, Restart, Stop, Storage, on_reserve, retry};
use crate::tree::overflow::{self, Left, free_second};
use crate::tree::{Target, Tree, past_damage, run};
use std::sync::atomic::Ordering;
use weir_page::overflow::Reference;
use weir_page::undo::{self, State as LaneState};
use weir_page::version::{Entry, Flags, UndoPtr, Version};
use weir_page::{PageId, RECORD_BYTES, Redo, TreeId};

/// Undo records whose leaves are read together.
const TOGETHER: u64 = 64;
/// Fewer than this are taken back without reading ahead.
const FEW: u64 = 4;
/// Most records of [`LastWrite::pop`].
const POP_RECORDS: usize = 3;
/// Redo for that and for what an entry becomes, without key and values.
const RESTORE_BYTES: usize = (POP_RECORDS + 3) * RECORD_BYTES;

/// What an attempt to put an entry back came to.
enum Restored {
    Done {
        tail: PageId,
        sparse: bool,
    },
    /// The leaf has no room for the former state.
    NoRoom,
    /// The entry goes, and with it its chain, of which a page is gone.
    ChainShorter,
    /// The leaf hasn't what was written.
    NotThere {
        leaf: PageId,
    },
}

/// What an attempt to put a tombstone in place of taking an insert back came to.
enum Withdrawn {
    /// It is there; the lane's last page.
    Done(PageId),
    /// The staging tree has an entry of that key.
    Occupied,
    /// The leaf has no room.
    NoRoom,
}

impl Txn {
    /// Takes everything back.
    ///
    /// # Errors
    /// As [`Txn::try_rollback`]; then the storage has been stopped.
    pub fn rollback(mut self) -> Result<(), TxnError> {
        self.try_rollback()
    }

    /// Takes everything back; a transaction that was rolled back has done nothing.
    ///
    /// # Errors
    /// Faults of the storage: the rest is taken back by the call repeated, or when the database is
    /// opened next.
    pub fn try_rollback(&mut self) -> Result<(), TxnError> {
        // From here on there is nothing left to decide, whatever fails.
        self.work.stage = Stage::RollingBack;
        self.work.is_left = false;
        self.drop_snapshot();
        self.rollback_to(Savepoint(0))?;
        if self.id.0 != 0 {
            self.transactions.figures.rollbacks.fetch_add(1, Ordering::Relaxed);
        }
        self.end_taken_back();
        Ok(())
    }

    /// Takes back what was written since the savepoint. Locks of reads are kept; rows that were
    /// only written since are free for others again.
    ///
    /// # Errors
    /// Faults of the storage. The transaction can't commit before the rest is taken back: by the
    /// call repeated, or by [`Txn::finish_rollback`].
    pub fn rollback_to(&mut self, to: Savepoint) -> Result<(), TxnError> {
        let _reserve = on_reserve();
        let to = self.work.unfinished.map_or(to, |earlier| Savepoint(earlier.0.min(to.0)));
        self.work.unfinished = Some(to);
        let mut read = 0;
        while self.work.undo_records > to.0 {
            if read == 0 {
                read = self.load_leaves_to_restore(self.work.undo_records - to.0)?;
            }
            read -= 1;
            let first = self.undo_last()?;
            self.work.undo_records -= 1;
            assert_eq!(
                first,
                self.work.undo_records == 0,
                "a transaction's records end with its first"
            );
            self.changes += 1;
            let lane = self.lane.expect("a transaction with undo has a lane");
            self.transactions.lanes.get(lane.lane).count(self.work.undo_records);
        }
        self.work.unfinished = None;
        Ok(())
    }

    /// Takes back the rest of what a failed [`Txn::rollback_to`] left, if there is any.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn finish_rollback(&mut self) -> Result<(), TxnError> {
        match self.work.unfinished {
            None => Ok(()),
            Some(to) => self.rollback_to(to),
        }
    }

    /// Loads the leaves, many at once, that taking back the last records changes, up to `most`
    /// records and one undo page; returns for how many that is done.
    ///
    /// # Errors
    /// Faults of the storage.
    pub(super) fn load_leaves_to_restore(&self, most: u64) -> Result<u64, TxnError> {
        let s = &*self.transactions.storage;
        // Where all leaves are in memory, to look for them costs an eighth of a rollback.
        if most < FEW || !self.may_lack_leaves() {
            return Ok(most.min(TOGETHER));
        }
        let tail = self.lane.expect("a transaction with undo has a lane").tail;
        let mut entries = retry(s, || {
            let (page, mut entries) = (s.read(tail, false)?, Vec::new());
            let mut at = undo::last(&page);
            while at != 0 && (entries.len() as u64) < most.min(TOGETHER) {
                let Some(r) = undo::record(&page, at) else { break };
                entries.push(OwnedUndo::from(r.undo));
                at = if r.first.is_some() { 0 } else { r.prev };
            }
            Ok::<_, Restart<Fault>>(entries)
        })?;
        let count = entries.len().max(1) as u64;
        entries.retain(|undo| undo.entry().is_some());
        entries.sort_unstable_by(|a, b| a.entry().cmp(&b.entry()));
        let in_tree = |undo: &OwnedUndo| undo.entry().map(|(tree, _)| tree);
        let mut hints = Vec::new();
        for of_tree in entries.chunk_by(|a, b| in_tree(a) == in_tree(b)) {
            let Some(tree) = in_tree(&of_tree[0]) else { continue };
            let keys = || of_tree.iter().filter_map(OwnedUndo::entry).map(|(_, key)| key);
            run::approach_and_read(s, Tree::new(tree), keys(), &mut hints);
            if let Some(staging) = self.transactions.staging.of_tree(tree) {
                let moved = of_tree.iter().filter(|undo| self.is_moved(s, &staging, undo));
                let keys = moved.filter_map(|undo| undo.entry()).map(|(_, key)| key);
                run::approach_and_read(s, staging.main, keys, &mut hints);
            }
        }
        Ok(count)
    }

    /// Whether to take this back needs a leaf of the main tree: probably.
    fn is_moved(&self, s: &Storage, staging: &Staging, undo: &OwnedUndo) -> bool {
        let key = match undo {
            // Those are withdrawn.
            OwnedUndo::Insert { .. } if self.work.stage == Stage::RollingBack => return false,
            OwnedUndo::Insert { key, .. } | OwnedUndo::Hide { key, .. } => key,
            _ => return false,
        };
        let found = retry(s, || {
            let leaf = staging.tree.leaf(s, Target::At(key), true)?;
            Ok::<_, Restart<Fault>>(leaf.seek(key).1)
        });
        matches!(found, Ok(false))
    }

    /// Takes back the last write; returns whether it was the transaction's first.
    pub(super) fn undo_last(&mut self) -> Result<bool, TxnError> {
        self.drop_empty_tail()?;
        let lane = self.lane.expect("a transaction with undo has a lane");
        let s = &*self.transactions.storage;
        let record = retry(s, || {
            let page = s.read(lane.tail, false)?;
            let at = undo::last(&page);
            let r = undo::record(&page, at)
                .ok_or_else(|| Fault::page(lane.tail, format!("no undo record at {at}")))?;
            let undo = OwnedUndo::from(r.undo);
            Ok::<_, Restart<Fault>>(UndoRecord { at, prev: r.prev, first: r.first.is_some(), undo })
        })?;
        let mut last = LastWrite { txn: self, s, lane, record: &record, withdrew: false };
        let tail = last.take_back();
        let withdrew = last.withdrew;
        let tail = match tail {
            // What it has changed is lost.
            Err(TxnError::Fault(fault)) if s.gives_up(&fault) => {
                let tail = last.pop_alone()?;
                self.work.half_done = true;
                tail
            }
            tail => tail?,
        };
        self.work.withdrew |= withdrew;
        self.lane = Some(LaneUse { tail, ..lane });
        Ok(record.first)
    }

    /// Frees the lane's last page if nothing was written there since the lane was extended.
    fn drop_empty_tail(&mut self) -> Result<(), TxnError> {
        let lane = self.lane.expect("a transaction with undo has a lane");
        let s = &*self.transactions.storage;
        let tail = retry(s, || {
            let page = s.read(lane.tail, false)?;
            let prev = undo::prev(&page);
            if undo::last(&page) != 0 || prev == PageId::NONE {
                return Ok(lane.tail);
            }
            drop(page);
            let mut mtr = s.mtr(Need::records(POP_RECORDS))?;
            mtr.latch(lane.tail)?;
            mtr.latch(prev)?;
            mtr.latch(LANE_DIRECTORY)?;
            unhang_tail(&mut mtr, lane, prev);
            mtr.commit();
            Ok::<_, Restart<Fault>>(prev)
        })?;
        self.lane = Some(LaneUse { tail, ..lane });
        Ok(())
    }
}

/// A transaction's last write, which is taken back.
struct LastWrite<'t> {
    txn: &'t Txn,
    s: &'t Storage,
    lane: LaneUse,
    /// The last on the lane.
    record: &'t UndoRecord,
    /// A tombstone was put for it.
    withdrew: bool,
}

impl LastWrite<'_> {
    /// Takes it back, and its record off the lane; returns the lane's last page.
    fn take_back(&mut self) -> Result<PageId, TxnError> {
        let mut tail = self.lane.tail;
        let mut pop = |mtr: &mut Mtr<'_>| {
            tail = self.pop(mtr)?;
            Ok(())
        };
        match &self.record.undo {
            OwnedUndo::Prepare | OwnedUndo::DropTree { .. } => return self.pop_alone(),
            OwnedUndo::Overflow { first } => {
                overflow::free(self.s, *first, &mut pop)?;
            }
            OwnedUndo::CreateTree { root } => {
                Tree::new(TreeId(root.0)).destroy(self.s, &mut pop)?;
            }
            OwnedUndo::Insert { tree, key }
            | OwnedUndo::Hide { tree, key }
            | OwnedUndo::Update { tree, key, .. }
            | OwnedUndo::Delete { tree, key, .. } => return self.restore(Tree::new(*tree), key),
        }
        Ok(tail)
    }

    fn pop_alone(&self) -> Result<PageId, TxnError> {
        let popped = retry(self.s, || {
            let mut mtr = self.s.mtr(Need::records(POP_RECORDS))?;
            let tail = self.pop(&mut mtr)?;
            mtr.commit();
            Ok::<_, Restart<Fault>>(tail)
        });
        Ok(popped?)
    }

    /// Puts an entry back into the state before the write.
    fn restore(&mut self, tree: Tree, key: &[u8]) -> Result<PageId, TxnError> {
        let leaf = match self.restore_in(tree, key)? {
            Ok(tail) => return Ok(tail),
            Err(leaf) => leaf,
        };
        // In this order: entries move from the staging tree to the main tree.
        if let Some(staging) = self.txn.transactions.staging.of_tree(tree.id)
            && let Some(moved) = self.record.moved_to(staging.main.id)
        {
            if let Some(tail) = self.withdraw(&staging, key)? {
                return Ok(tail);
            }
            let moved = LastWrite { record: &moved, ..*self };
            if let Ok(tail) = moved.restore_in(staging.main, key)? {
                return Ok(tail);
            }
        }
        Err(Fault::page(leaf, "an entry to be rolled back isn't the newest").into())
    }

    /// As [`LastWrite::restore`], in a tree where it may not be: then in which leaf it isn't.
    fn restore_in(&self, tree: Tree, key: &[u8]) -> Result<Result<PageId, PageId>, TxnError> {
        let mut lost = Vec::new();
        loop {
            match past_damage(self.s, &mut lost, |lost| self.try_restore(tree, key, lost))? {
                Restored::Done { tail, sparse } => {
                    if sparse {
                        // The record is off the lane: to fail now would be to take it back twice.
                        // What keeps the leaves apart is told to who needs them.
                        let _ = tree.merge(self.s, key);
                    }
                    return Ok(Ok(tail));
                }
                Restored::NoRoom => self.make_room(tree, key)?,
                Restored::ChainShorter => {}
                Restored::NotThere { leaf } => return Ok(Err(leaf)),
            }
        }
    }

    fn make_room(&self, tree: Tree, key: &[u8]) -> Result<(), Fault> {
        tree.make_room(self.s, key, self.txn.transactions.horizon())
    }

    /// `lost`: pages that can't be read.
    fn try_restore(
        &self,
        tree: Tree,
        key: &[u8],
        lost: &[PageId],
    ) -> Result<Restored, Restart<Fault>> {
        let LastWrite { txn, s, lane, record, .. } = *self;
        let mut mtr =
            s.mtr(Need::log(RESTORE_BYTES + key.len() + 2 * weir_page::node::MAX_INLINE))?;
        let at = tree.slot_near(&mut mtr, key, &txn.near)?;
        let place = UndoPtr { page: lane.tail, offset: record.at };
        let undo = match &record.undo {
            OwnedUndo::Insert { .. } | OwnedUndo::Hide { .. } => place.of_insert(),
            _ => place,
        };
        let written = Some(Version { txn: txn.id, undo });
        let Some(e) = at.entry(&mtr).filter(|e| e.version == written) else {
            return Ok(Restored::NotThere { leaf: at.leaf });
        };
        let Former { flags, version, value } = record
            .former(e.value)
            .ok_or_else(|| Fault::page(lane.tail, "undo record doesn't fit its entry"))?;
        // What was dead before, and seen to be dead by everybody, must not come back: purge may
        // have passed by already.
        let is_dead = flags.deleted && !flags.hides;
        let gone = is_dead && version.is_none_or(|v| txn.transactions.seen_by_all(v.txn));
        if !gone && !at.fits(&mtr, key, value.len(), version.is_some()) {
            return Ok(Restored::NoRoom);
        }
        let first = match gone && flags.overflow {
            true => Reference::from_bytes(&value).map(|reference| reference.first),
            false => None,
        };
        let left = first.map_or(Ok(Left::Nothing), |at| free_second(&mut mtr, at, lost))?;
        if let Left::More = left {
            mtr.commit();
            return Ok(Restored::ChainShorter);
        }
        self.latch_pop(&mut mtr)?;
        let sparse = if gone {
            at.remove(&mut mtr)
        } else {
            at.set(&mut mtr, key, Entry { flags, version, value: &value });
            false
        };
        if let (Left::First, Some(first)) = (left, first) {
            mtr.free(first);
        }
        let tail = self.pop(&mut mtr)?;
        mtr.commit();
        Ok(Restored::Done { tail, sparse })
    }

    /// Takes an insert back that was moved to the main tree, by a tombstone that everybody sees:
    /// both go when entries are moved next. Only where the transaction ends with it: until then
    /// others would find the entry held. `None` if the entry is better removed at once, for its
    /// leaf is in memory, or if nothing may be staged.
    fn withdraw(&mut self, staging: &Staging, key: &[u8]) -> Result<Option<PageId>, TxnError> {
        let txn = self.txn;
        let is_insert = matches!(self.record.undo, OwnedUndo::Insert { .. });
        if !is_insert || txn.work.stage != Stage::RollingBack || !txn.may_withdraw(staging, key) {
            return Ok(None);
        }
        // Who scans both trees sees them anew.
        let _entered = staging.enter();
        loop {
            match retry(self.s, || self.try_withdraw(staging, key))? {
                Withdrawn::Done(tail) => {
                    staging.note_withdrawn();
                    txn.transactions.staging.backlog.note_staged(1);
                    self.withdrew = true;
                    return Ok(Some(tail));
                }
                Withdrawn::Occupied => return Ok(None),
                Withdrawn::NoRoom => self.make_room(staging.tree, key)?,
            }
        }
    }

    fn try_withdraw(&self, staging: &Staging, key: &[u8]) -> Result<Withdrawn, Restart<Fault>> {
        let mut mtr = self.s.mtr(Need::log(RESTORE_BYTES + key.len()))?;
        let at = staging.tree.slot_near(&mut mtr, key, &self.txn.near)?;
        if at.found {
            return Ok(Withdrawn::Occupied);
        }
        if !at.fits(&mtr, key, 0, false) {
            return Ok(Withdrawn::NoRoom);
        }
        self.latch_pop(&mut mtr)?;
        // Scans may pass over where it goes.
        self.txn.transactions.dead.revive(staging.tree.id, key);
        let entry = Entry { flags: Flags::TOMBSTONE, version: None, value: &[] };
        at.set(&mut mtr, key, entry);
        let tail = self.pop(&mut mtr)?;
        mtr.commit();
        Ok(Withdrawn::Done(tail))
    }

    /// Whether the record is alone on its page while the transaction has earlier ones.
    fn empties_page(&self) -> bool {
        self.record.prev == 0 && !self.record.first
    }

    /// Latches what taking the record off the lane changes, before anything is changed.
    fn latch_pop(&self, mtr: &mut Mtr<'_>) -> Result<(), Stop> {
        mtr.latch(self.lane.tail)?;
        if self.empties_page() {
            let prev = undo::prev(mtr.page(self.lane.tail));
            mtr.latch(prev)?;
            mtr.latch(LANE_DIRECTORY)?;
        }
        Ok(())
    }

    /// Takes the record off the lane; returns the lane's last page then.
    fn pop(&self, mtr: &mut Mtr<'_>) -> Result<PageId, Stop> {
        self.latch_pop(mtr)?;
        let LastWrite { lane, record, .. } = *self;
        if !self.empties_page() {
            let state = if record.first { LaneState::Ended } else { LaneState::Active };
            let place = UndoPlace { page: lane.tail, used: record.at, last: record.prev };
            self.txn.log_tail(mtr, place, state);
            return Ok(lane.tail);
        }
        let prev = undo::prev(mtr.page(lane.tail));
        unhang_tail(mtr, lane, prev);
        self.txn.transactions.staging.forget_buried(lane.tail);
        Ok(prev)
    }
}

/// Frees the lane's last page; it, the one before and the directory are latched.
fn unhang_tail(mtr: &mut Mtr<'_>, lane: LaneUse, prev: PageId) {
    mtr.log(&Redo::UndoLink { page: prev, next: PageId::NONE });
    set_ends(mtr, lane.lane, |head, _| (head, prev));
    mtr.free(lane.tail);
}

//! Commit and rollback.

use super::history::History;
use super::lane::{LANE_DIRECTORY, LaneUse, UndoPlace, set_ends};
use super::staging::Staging;
use super::undo_record::{Former, OwnedUndo, UndoRecord};
use super::{Durability, Savepoint, State, Transactions, Txn, TxnError};
use crate::storage::{Fault, Mtr, Need, Restart, Stop, Storage, on_reserve, retry};
use crate::tree::overflow::{self, Left, free_second};
use crate::tree::{Tree, past_damage};
use std::sync::atomic::Ordering;
use weir_page::overflow::Reference;
use weir_page::undo::{self, State as LaneState};
use weir_page::version::{Entry, Flags, UndoPtr, Version};
use weir_page::{Lsn, PageId, Redo, TreeId, TxnId};
use weir_redo::Appended;

/// Most undo pages that a commit gives up itself; more are left to purge.
const COMMIT_FREES: usize = 8;

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

impl Transactions {
    /// A transaction has committed: from now on others see what it has written. `queue` is told its timestamp before that.
    fn commit_in_order(&self, txn: TxnId, queue: impl FnOnce(u64)) {
        let commits = &self.commits;
        let _order = commits.order.lock();
        let stamp = commits.clock.load(Ordering::Relaxed) + 1;
        self.status.set(txn, State::Committed(stamp));
        queue(stamp);
        commits.clock.store(stamp, Ordering::Release);
    }
}

impl Txn {
    /// Commits. Others see it as soon as its record is in the log; it returns when it is as durable as asked.
    ///
    /// # Errors
    /// The log has failed: whether the transaction is durable is not known.
    pub fn commit(mut self, durability: Durability) -> Result<(), TxnError> {
        match self.commit_visibly()? {
            Some(end) => self.shared.wait_for_log(end, durability),
            None => Ok(()),
        }
    }

    /// Makes the transaction's writes visible; returns where its end is in the log, if it has
    /// written. It isn't durable yet.
    ///
    /// # Errors
    /// Faults of the storage, which may have stopped: it has not committed.
    pub fn commit_visibly(&mut self) -> Result<Option<Lsn>, TxnError> {
        self.finish_rollback()?;
        if self.undo_records == 0 {
            self.drop_snapshot();
            self.end(State::Aborted);
            return Ok(None);
        }
        // What is in the log may get no further.
        self.storage().check()?;
        let lane = self.lane.expect("a transaction with undo has a lane");
        let (appended, history) = self.log_commit(lane)?;
        // Not before: who can't commit may go on, and sees what it saw.
        self.drop_snapshot();
        let shared = &self.shared;
        shared.commit_in_order(self.id, |stamp| {
            let Some((begin, end)) = history else { return };
            shared.queue_for_purge(History {
                stamp,
                lane: lane.lane,
                begin,
                end,
                work: self.purge_work,
                is_old: self.id < shared.first,
                transactions: 1,
                records: self.undo_records,
            });
        });
        if self.id.0.is_multiple_of(16) {
            shared.advance_horizon();
        }
        self.release();
        Ok(Some(appended.end))
    }

    /// Logs the end of the transaction. Its undo goes at once if nobody can need it; else the part of
    /// the lane that purge has to go through is returned.
    fn log_commit(
        &mut self,
        lane: LaneUse,
    ) -> Result<(Appended, Option<(UndoPlace, UndoPlace)>), TxnError> {
        let s = &*self.shared.storage;
        if !self.purge_work {
            let dropped = retry(s, || match self.try_drop_undo(s, lane) {
                Err(Restart::Stop(Stop::Load(_))) => Ok(None),
                other => other,
            })?;
            if let Some(appended) = dropped {
                self.lane = Some(LaneUse { tail: lane.begin.page, ..lane });
                return Ok((appended, None));
            }
        }
        let (appended, end) = retry(s, || {
            let mut mtr = s.mtr(Need::log(64))?;
            mtr.latch(lane.tail)?;
            let page = mtr.page(lane.tail);
            let end = UndoPlace {
                page: lane.tail,
                used: undo::used(page) as u16,
                last: undo::last(page),
            };
            log_tail(&mut mtr, end, self, LaneState::Ended);
            Ok::<_, Restart<Fault>>((mtr.commit(), end))
        })?;
        Ok((appended, Some((lane.begin, end))))
    }

    /// Takes the lane back to where the transaction found it, if few and resident pages are in the way.
    fn try_drop_undo(
        &self,
        s: &Storage,
        lane: LaneUse,
    ) -> Result<Option<Appended>, Restart<Fault>> {
        let mut mtr = s.mtr(Need::log(512))?;
        let mut pages = vec![lane.tail];
        mtr.latch(lane.tail)?;
        while pages[pages.len() - 1] != lane.begin.page {
            let prev = undo::prev(mtr.page(pages[pages.len() - 1]));
            if pages.len() > COMMIT_FREES {
                return Ok(None);
            }
            mtr.latch(prev)?;
            pages.push(prev);
        }
        pages.pop();
        if !pages.is_empty() {
            mtr.latch(LANE_DIRECTORY)?;
            set_ends(&mut mtr, lane.lane, |head, _| (head, lane.begin.page));
            mtr.log(&Redo::UndoLink { page: lane.begin.page, next: PageId::NONE });
        }
        log_tail(&mut mtr, lane.begin, self, LaneState::Ended);
        for page in pages {
            mtr.free(page);
        }
        Ok(Some(mtr.commit()))
    }

    /// Takes everything back.
    ///
    /// # Errors
    /// As [`Txn::roll_back`]; then the storage has been stopped.
    pub fn rollback(mut self) -> Result<(), TxnError> {
        self.roll_back()
    }

    /// Takes everything back; a transaction that was rolled back has done nothing.
    ///
    /// # Errors
    /// Faults of the storage: the rest is taken back by the call repeated, or when the database is opened
    /// next.
    pub fn roll_back(&mut self) -> Result<(), TxnError> {
        // From here on there is nothing left to decide, whatever fails.
        self.prepared = false;
        self.rolls_back = true;
        self.drop_snapshot();
        self.rollback_to(Savepoint(0))?;
        if self.id.0 != 0 {
            self.shared.figures.rollbacks.fetch_add(1, Ordering::Relaxed);
        }
        self.end_taken_back();
        Ok(())
    }

    /// Notes the end of a transaction whose writes have been taken back. What tombstones stand for is still there: who doesn't look
    /// for those yet must not take it for older than it is.
    fn end_taken_back(&mut self) {
        if !self.withdrew.take() {
            return self.end(State::Aborted);
        }
        self.shared.commit_in_order(self.id, |_| {});
        self.release();
    }

    /// Notes the transaction's end and gives up what it holds.
    pub(super) fn end(&mut self, state: State) {
        if self.id.0 != 0 {
            self.shared.status.set(self.id, state);
        }
        self.release();
    }

    /// Gives up lane and locks; others see its end already.
    fn release(&mut self) {
        if let Some(lane) = self.lane.take() {
            self.shared.lanes.give_back(lane.lane, lane.tail);
        }
        if self.id.0 != 0 {
            self.shared.locks.release_all(self.id);
        }
        self.id = TxnId(0);
        self.undo_records = 0;
        self.unfinished = None;
        self.purge_work = false;
        self.withdrew.set(false);
        self.rolls_back = false;
        self.prepared = false;
    }

    /// Takes back what was written since the savepoint. Locks of reads are kept; rows that were only
    /// written since are free for others again.
    ///
    /// # Errors
    /// Faults of the storage. The transaction can't commit before the rest is taken back: by the call
    /// repeated, or by [`Txn::finish_rollback`].
    pub fn rollback_to(&mut self, to: Savepoint) -> Result<(), TxnError> {
        let _reserve = on_reserve();
        let to = self.unfinished.map_or(to, |earlier| Savepoint(earlier.0.min(to.0)));
        self.unfinished = Some(to);
        while self.undo_records > to.0 {
            let first = self.undo_last()?;
            self.undo_records -= 1;
            assert_eq!(first, self.undo_records == 0, "a transaction's records end with its first");
            self.changes += 1;
            let lane = self.lane.expect("a transaction with undo has a lane");
            self.shared.lanes.get(lane.lane).count(self.undo_records);
        }
        self.unfinished = None;
        Ok(())
    }

    /// Takes back the rest of what a failed [`Txn::rollback_to`] left, if there is any.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn finish_rollback(&mut self) -> Result<(), TxnError> {
        match self.unfinished {
            None => Ok(()),
            Some(to) => self.rollback_to(to),
        }
    }

    /// Takes back the last write; returns whether it was the transaction's first.
    pub(super) fn undo_last(&mut self) -> Result<bool, TxnError> {
        self.drop_empty_tail()?;
        let lane = self.lane.expect("a transaction with undo has a lane");
        let s = &*self.shared.storage;
        let record = retry(s, || {
            let page = s.read(lane.tail, false)?;
            let at = undo::last(&page);
            let r = undo::record(&page, at)
                .ok_or_else(|| Fault::page(lane.tail, format!("no undo record at {at}")))?;
            let undo = OwnedUndo::from(r.undo);
            Ok::<_, Restart<Fault>>(UndoRecord { at, prev: r.prev, first: r.first.is_some(), undo })
        })?;
        let tail = match self.take_back(s, lane, &record) {
            // What it has changed is lost.
            Err(TxnError::Fault(fault)) if s.gives_up(&fault) => {
                self.half_done = true;
                self.pop_alone(s, lane, &record)?
            }
            tail => tail?,
        };
        self.lane = Some(LaneUse { tail, ..lane });
        Ok(record.first)
    }

    /// Takes back a write, and its record off the lane; returns the lane's last page.
    fn take_back(
        &self,
        s: &Storage,
        lane: LaneUse,
        record: &UndoRecord,
    ) -> Result<PageId, TxnError> {
        let mut tail = lane.tail;
        let mut pop = |mtr: &mut Mtr<'_>| {
            tail = self.pop(mtr, lane, record)?;
            Ok(())
        };
        match &record.undo {
            OwnedUndo::Prepare | OwnedUndo::DropTree { .. } => {
                return self.pop_alone(s, lane, record);
            }
            OwnedUndo::Overflow { first } => {
                overflow::free(s, *first, &mut pop)?;
            }
            OwnedUndo::CreateTree { root } => {
                Tree::new(TreeId(root.0)).destroy(s, &mut pop)?;
            }
            OwnedUndo::Insert { tree, key }
            | OwnedUndo::Hide { tree, key }
            | OwnedUndo::Update { tree, key, .. }
            | OwnedUndo::Delete { tree, key, .. } => {
                return self.restore(s, lane, Tree::new(*tree), key, record);
            }
        }
        Ok(tail)
    }

    fn pop_alone(
        &self,
        s: &Storage,
        lane: LaneUse,
        record: &UndoRecord,
    ) -> Result<PageId, TxnError> {
        let popped = retry(s, || {
            let mut mtr = s.mtr(Need::log(256))?;
            let tail = self.pop(&mut mtr, lane, record)?;
            mtr.commit();
            Ok::<_, Restart<Fault>>(tail)
        });
        Ok(popped?)
    }

    /// Frees the lane's last page if nothing was written there since the lane was extended.
    fn drop_empty_tail(&mut self) -> Result<(), TxnError> {
        let lane = self.lane.expect("a transaction with undo has a lane");
        let s = &*self.shared.storage;
        let tail = retry(s, || {
            let page = s.read(lane.tail, false)?;
            let prev = undo::prev(&page);
            if undo::last(&page) != 0 || prev == PageId::NONE {
                return Ok(lane.tail);
            }
            drop(page);
            let mut mtr = s.mtr(Need::log(256))?;
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

    /// Puts an entry back into the state before a write, and takes the record off the lane.
    fn restore(
        &self,
        s: &Storage,
        lane: LaneUse,
        tree: Tree,
        key: &[u8],
        record: &UndoRecord,
    ) -> Result<PageId, TxnError> {
        let leaf = match self.restore_in(s, lane, tree, key, record)? {
            Ok(tail) => return Ok(tail),
            Err(leaf) => leaf,
        };
        // In this order: entries move from the staging tree to the main tree.
        if let Some(staging) = self.shared.staging.of_tree(tree.id)
            && let Some(moved) = record.moved_to(staging.main.id)
        {
            if let Some(tail) = self.withdraw(s, lane, &staging, key, record)? {
                return Ok(tail);
            }
            if let Ok(tail) = self.restore_in(s, lane, staging.main, key, &moved)? {
                return Ok(tail);
            }
        }
        Err(Fault::page(leaf, "an entry to be rolled back isn't the newest").into())
    }

    /// As [`Txn::restore`], in a tree where it may not be: then in which leaf it isn't.
    fn restore_in(
        &self,
        s: &Storage,
        lane: LaneUse,
        tree: Tree,
        key: &[u8],
        record: &UndoRecord,
    ) -> Result<Result<PageId, PageId>, TxnError> {
        let mut lost = Vec::new();
        loop {
            let step = |lost: &[PageId]| self.try_restore(s, lane, tree, key, record, lost);
            match past_damage(s, &mut lost, step)? {
                Restored::Done { tail, sparse } => {
                    if sparse {
                        // The record is off the lane: to fail now would be to take it back twice. What keeps the
                        // leaves apart is told to who needs them.
                        let _ = tree.merge(s, key);
                    }
                    return Ok(Ok(tail));
                }
                Restored::NoRoom => tree.make_room(s, key, self.shared.horizon())?,
                Restored::ChainShorter => {}
                Restored::NotThere { leaf } => return Ok(Err(leaf)),
            }
        }
    }

    /// Takes an insert back that was moved to the main tree, by a tombstone that everybody sees: both go when entries are moved
    /// next. Only where the transaction ends with it: until then others would find the entry held. `None` if the entry is better
    /// removed at once, for its leaf is in memory, or if nothing may be staged.
    fn withdraw(
        &self,
        s: &Storage,
        lane: LaneUse,
        staging: &Staging,
        key: &[u8],
        record: &UndoRecord,
    ) -> Result<Option<PageId>, TxnError> {
        let is_insert = matches!(record.undo, OwnedUndo::Insert { .. });
        if !is_insert || !self.rolls_back || !self.may_withdraw(staging, key) {
            return Ok(None);
        }
        // Who scans both trees sees them anew.
        let _entered = staging.enter();
        loop {
            match retry(s, || self.try_withdraw(s, lane, staging, key, record))? {
                Withdrawn::Done(tail) => {
                    self.shared.staging.backlog.note_staged(1);
                    self.withdrew.set(true);
                    return Ok(Some(tail));
                }
                Withdrawn::Occupied => return Ok(None),
                Withdrawn::NoRoom => staging.tree.make_room(s, key, self.shared.horizon())?,
            }
        }
    }

    fn try_withdraw(
        &self,
        s: &Storage,
        lane: LaneUse,
        staging: &Staging,
        key: &[u8],
        record: &UndoRecord,
    ) -> Result<Withdrawn, Restart<Fault>> {
        let mut mtr = s.mtr(Need::log(256 + key.len()))?;
        let at = staging.tree.slot_near(&mut mtr, key, &self.near)?;
        if at.found {
            return Ok(Withdrawn::Occupied);
        }
        if !at.fits(&mtr, key, 0, false) {
            return Ok(Withdrawn::NoRoom);
        }
        mtr_latch_pop(&mut mtr, lane, record)?;
        // Scans may pass over where it goes.
        self.shared.dead.revive(staging.tree.id, key);
        let entry = Entry { flags: Flags::TOMBSTONE, version: None, value: &[] };
        at.set(&mut mtr, key, entry);
        let tail = self.pop(&mut mtr, lane, record)?;
        mtr.commit();
        Ok(Withdrawn::Done(tail))
    }

    /// `lost`: pages that can't be read.
    fn try_restore(
        &self,
        s: &Storage,
        lane: LaneUse,
        tree: Tree,
        key: &[u8],
        record: &UndoRecord,
        lost: &[PageId],
    ) -> Result<Restored, Restart<Fault>> {
        let mut mtr = s.mtr(Need::log(256 + key.len() + 2 * weir_page::node::MAX_INLINE))?;
        let at = tree.slot_near(&mut mtr, key, &self.near)?;
        let place = UndoPtr { page: lane.tail, offset: record.at };
        let undo = match &record.undo {
            OwnedUndo::Insert { .. } | OwnedUndo::Hide { .. } => place.of_insert(),
            _ => place,
        };
        let written = Some(Version { txn: self.id, undo });
        let Some(e) = at.entry(&mtr).filter(|e| e.version == written) else {
            return Ok(Restored::NotThere { leaf: at.leaf });
        };
        let Former { flags, version, value } = record
            .former(e.value)
            .ok_or_else(|| Fault::page(lane.tail, "undo record doesn't fit its entry"))?;
        // What was dead before, and seen to be dead by everybody, must not come back: purge may have
        // passed by already.
        let is_dead = flags.deleted && !flags.hides;
        let gone = is_dead && version.is_none_or(|v| self.shared.seen_by_all(v.txn));
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
        mtr_latch_pop(&mut mtr, lane, record)?;
        let sparse = if gone {
            at.remove(&mut mtr)
        } else {
            at.set(&mut mtr, key, Entry { flags, version, value: &value });
            false
        };
        if let (Left::First, Some(first)) = (left, first) {
            mtr.free(first);
        }
        let tail = self.pop(&mut mtr, lane, record)?;
        mtr.commit();
        Ok(Restored::Done { tail, sparse })
    }

    /// Takes the last record off the lane; returns the lane's last page then.
    fn pop(&self, mtr: &mut Mtr<'_>, lane: LaneUse, record: &UndoRecord) -> Result<PageId, Stop> {
        mtr_latch_pop(mtr, lane, record)?;
        if !empties_page(record) {
            let state = if record.first { LaneState::Ended } else { LaneState::Active };
            let place = UndoPlace { page: lane.tail, used: record.at, last: record.prev };
            log_tail(mtr, place, self, state);
            return Ok(lane.tail);
        }
        let prev = undo::prev(mtr.page(lane.tail));
        unhang_tail(mtr, lane, prev);
        self.shared.staging.forget_buried(lane.tail);
        Ok(prev)
    }
}

/// Frees the lane's last page; it, the one before and the directory are latched.
fn unhang_tail(mtr: &mut Mtr<'_>, lane: LaneUse, prev: PageId) {
    mtr.log(&Redo::UndoLink { page: prev, next: PageId::NONE });
    set_ends(mtr, lane.lane, |head, _| (head, prev));
    mtr.free(lane.tail);
}

/// Whether the record is alone on its page while the transaction has earlier ones.
fn empties_page(record: &UndoRecord) -> bool {
    record.prev == 0 && !record.first
}

/// Latches what taking a record off the lane changes, before anything is changed.
fn mtr_latch_pop(mtr: &mut Mtr<'_>, lane: LaneUse, record: &UndoRecord) -> Result<(), Stop> {
    mtr.latch(lane.tail)?;
    if empties_page(record) {
        let prev = undo::prev(mtr.page(lane.tail));
        mtr.latch(prev)?;
        mtr.latch(LANE_DIRECTORY)?;
    }
    Ok(())
}

fn log_tail(mtr: &mut Mtr<'_>, place: UndoPlace, txn: &Txn, state: LaneState) {
    let UndoPlace { page, used, last } = place;
    mtr.log(&Redo::UndoTail { page, used, last, txn: txn.id, state });
}

impl Drop for Txn {
    fn drop(&mut self) {
        if self.prepared {
            return;
        }
        // A panic of the caller's is a rollback like any other: locks and snapshot must not stay.
        // A failure here is the storage's: the next open takes back the rest.
        if let Err(error) = self.roll_back() {
            self.drop_snapshot();
            if let TxnError::Fault(fault) = error {
                self.shared.storage.stop(fault);
                // What it holds is given up no more.
                self.shared.locks.cancel_all();
            }
        }
    }
}

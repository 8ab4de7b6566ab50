//! Commit, and what ends with a transaction.

use super::history::History;
use super::lane::{LANE_DIRECTORY, LaneUse, UndoPlace, set_ends};
use super::work::Work;
use super::{Durability, State, Transactions, Txn, TxnError};
use crate::storage::{Fault, Mtr, Need, Restart, Stop, Storage, retry};
use std::sync::atomic::Ordering;
use weir_page::undo::{self, State as LaneState};
use weir_page::{Lsn, PageId, Redo, TxnId};
use weir_redo::Appended;

/// Most undo pages that a commit gives up itself; more are left to purge.
const COMMIT_FREES: usize = 8;

impl Transactions {
    /// A transaction has committed: from now on others see what it has written. `queue` is told its
    /// timestamp before that.
    fn publish_commit(&self, txn: TxnId, queue: impl FnOnce(u64)) {
        let commits = &self.commits;
        let _order = commits.order.lock();
        let stamp = commits.clock.load(Ordering::Relaxed) + 1;
        self.status.set(txn, State::SeenFrom(stamp));
        queue(stamp);
        commits.clock.store(stamp, Ordering::Release);
    }

    /// Waits until the log is as durable up to `end` as asked; on the device, if nobody brings it
    /// there later: the database has been closed, or has stopped.
    ///
    /// # Errors
    /// The log has failed.
    pub fn wait_for_log(&self, end: Lsn, durability: Durability) -> Result<(), TxnError> {
        let redo = &self.storage.redo;
        match durability {
            Durability::Sync => redo.wait_durable(end).map_err(Fault::from)?,
            Durability::Write => redo.wait_written(end).map_err(Fault::from)?,
            Durability::Relaxed if self.storage.has_stopped() => {
                redo.wait_durable(end).map_err(Fault::from)?;
            }
            Durability::Relaxed => {}
        }
        Ok(())
    }

    /// Waits until the log is as durable up to a transaction's end as asked; a transaction without
    /// one has written nothing.
    ///
    /// # Errors
    /// The log has failed: whether the transaction is durable is not known.
    pub fn wait_for_commit(
        &self,
        end: Option<Lsn>,
        durability: Durability,
    ) -> Result<(), TxnError> {
        end.map_or(Ok(()), |end| self.wait_for_log(end, durability))
    }

    /// As [`Transactions::wait_for_log`], up to its end as it is now.
    ///
    /// # Errors
    /// The log has failed.
    pub fn wait_for_all_log(&self, durability: Durability) -> Result<(), TxnError> {
        self.wait_for_log(self.storage.redo.reserved(), durability)
    }
}

impl Txn {
    /// Commits. Others see it as soon as its record is in the log; it returns when it is as durable
    /// as asked.
    ///
    /// # Errors
    /// The log has failed: whether the transaction is durable is not known.
    pub fn commit(mut self, durability: Durability) -> Result<(), TxnError> {
        let end = self.commit_visibly()?;
        self.transactions.wait_for_commit(end, durability)
    }

    /// Makes the transaction's writes visible; returns where its end is in the log, if it has
    /// written. It isn't durable yet.
    ///
    /// # Errors
    /// Faults of the storage, which may have stopped: it has not committed.
    pub fn commit_visibly(&mut self) -> Result<Option<Lsn>, TxnError> {
        self.finish_rollback()?;
        if self.work.undo_records == 0 {
            self.drop_snapshot();
            self.end(State::NothingLeft);
            return Ok(None);
        }
        // What is in the log may get no further.
        self.storage().check()?;
        let lane = self.lane.expect("a transaction with undo has a lane");
        let (appended, history) = self.log_commit(lane)?;
        // Not before: who can't commit may go on, and sees what it saw.
        self.drop_snapshot();
        let transactions = &self.transactions;
        transactions.publish_commit(self.id, |stamp| {
            let Some((begin, end)) = history else { return };
            transactions.queue_for_purge(History {
                stamp,
                lane: lane.lane,
                begin,
                end,
                work: self.work.needs_purge,
                is_old: self.id < transactions.first,
                transactions: 1,
                records: self.work.undo_records,
            });
        });
        if self.id.0.is_multiple_of(16) {
            transactions.advance_horizon();
        }
        self.release();
        Ok(Some(appended.end))
    }

    /// Logs the end of the transaction. Its undo goes at once if nobody can need it; else the part
    /// of the lane that purge has to go through is returned.
    fn log_commit(
        &mut self,
        lane: LaneUse,
    ) -> Result<(Appended, Option<(UndoPlace, UndoPlace)>), TxnError> {
        let s = &*self.transactions.storage;
        if !self.work.needs_purge {
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
            let mut mtr = s.mtr(Need::records(1))?;
            mtr.latch(lane.tail)?;
            let end = UndoPlace::end_of(lane.tail, mtr.page(lane.tail));
            self.log_tail(&mut mtr, end, LaneState::Ended);
            Ok::<_, Restart<Fault>>((mtr.commit(), end))
        })?;
        Ok((appended, Some((lane.begin, end))))
    }

    /// Takes the lane back to where the transaction found it, if few and resident pages are in the
    /// way.
    fn try_drop_undo(
        &self,
        s: &Storage,
        lane: LaneUse,
    ) -> Result<Option<Appended>, Restart<Fault>> {
        let mut mtr = s.mtr(Need::records(3 + COMMIT_FREES))?;
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
        self.log_tail(&mut mtr, lane.begin, LaneState::Ended);
        for page in pages {
            mtr.free(page);
        }
        Ok(Some(mtr.commit()))
    }

    /// Notes the end of a transaction whose writes have been taken back. What tombstones stand for
    /// is still there: who doesn't look for those yet must not take it for older than it is.
    pub(super) fn end_taken_back(&mut self) {
        if !self.work.withdrew {
            return self.end(State::NothingLeft);
        }
        self.transactions.publish_commit(self.id, |_| {});
        self.release();
    }

    /// Notes the transaction's end and gives up what it holds.
    pub(super) fn end(&mut self, state: State) {
        if self.id.0 != 0 {
            self.transactions.status.set(self.id, state);
        }
        self.release();
    }

    /// Gives up lane and locks; others see its end already.
    fn release(&mut self) {
        if let Some(lane) = self.lane.take() {
            self.transactions.lanes.give_back(lane.lane, lane.tail);
        }
        if self.id.0 != 0 {
            self.transactions.locks.release_all(self.id);
        }
        self.id = TxnId(0);
        self.work = Work::default();
    }

    /// Logs where the lane's last page ends, and the transaction's state.
    pub(super) fn log_tail(&self, mtr: &mut Mtr<'_>, place: UndoPlace, state: LaneState) {
        let UndoPlace { page, used, last } = place;
        mtr.log(&Redo::UndoTail { page, used, last, txn: self.id, state });
    }
}

impl Drop for Txn {
    fn drop(&mut self) {
        if self.is_prepared() || self.work.is_left {
            return;
        }
        // A panic of the caller's is a rollback like any other: locks and snapshot must not stay.
        // A failure here is the storage's: the next open takes back the rest.
        if let Err(error) = self.try_rollback() {
            self.drop_snapshot();
            if let TxnError::Fault(fault) = error {
                self.transactions.storage.stop(fault);
                // What it holds is given up no more.
                self.transactions.locks.cancel_all();
            }
        }
    }
}

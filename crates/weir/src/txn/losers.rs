//! Losers: transactions that were running when the database ended.
//!
//! They are rolled back while it is open. Until one is, it counts as running: snapshots don't see
//! what it has written, its rows are locked, purge waits for it, and no definition changes.

use super::lane::{LaneUse, UndoPlace, read_end};
use super::recover::FoundLane;
use super::status::State;
use super::work::{Stage, Work};
use super::{Transactions, Txn, TxnError};
use crate::storage::{Step, on_reserve};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use weir_page::undo::State as LaneState;

/// Undo records that one step takes back.
const STEP: usize = 256;

/// Those that are left.
#[derive(Default)]
pub(super) struct Losers {
    left: Mutex<Vec<FoundLane>>,
    /// Their number, for who asks while one is rolled back.
    count: AtomicUsize,
}

impl Transactions {
    pub(super) fn add_loser(&self, found: FoundLane) {
        self.lanes.settle(found.lane, found.txn);
        self.losers.left.lock().push(found);
        self.losers.count.fetch_add(1, Ordering::Release);
    }

    /// Number of losers that have not been rolled back.
    pub fn losers(&self) -> usize {
        self.losers.count.load(Ordering::Acquire)
    }

    /// Takes back some writes of losers; [`Step::Over`] if none is left.
    ///
    /// # Errors
    /// Faults of the storage: the next step, or the next opening, goes on.
    pub fn rollback_step(self: &Arc<Self>) -> Result<Step, TxnError> {
        self.roll_back_losers(STEP).map(|left| if left { Step::GoesOn } else { Step::Over })
    }

    /// Takes back so many writes of losers; whether any loser is left.
    ///
    /// # Errors
    /// As [`Transactions::rollback_step`].
    pub fn roll_back_losers(self: &Arc<Self>, mut writes: usize) -> Result<bool, TxnError> {
        let mut left = self.losers.left.lock();
        while let Some(loser) = left.last_mut() {
            if writes == 0 {
                return Ok(true);
            }
            if self.take_back(loser, &mut writes)? {
                left.pop();
                self.losers.count.fetch_sub(1, Ordering::Release);
            }
        }
        Ok(false)
    }

    /// Takes back writes of a loser; whether that was all.
    fn take_back(
        self: &Arc<Self>,
        loser: &mut FoundLane,
        writes: &mut usize,
    ) -> Result<bool, TxnError> {
        let _reserve = on_reserve();
        let begin = UndoPlace { page: loser.tail, used: 0, last: 0 };
        let mut txn: Txn = self.begin();
        txn.id = loser.txn;
        txn.lane = Some(LaneUse { lane: loser.lane, begin, tail: loser.tail });
        // How many records are left isn't known, and what lies before them is others'.
        txn.work = Work {
            stage: Stage::RollingBack,
            withdrew: loser.withdrew,
            half_done: loser.half_done,
            is_left: true,
            ..Work::default()
        };
        match self.take_back_as(&mut txn, loser, writes) {
            Ok(false) => return Ok(false),
            Ok(true) if !txn.work.half_done => return txn.rollback().map(|()| true),
            Ok(true) => {}
            Err(TxnError::Fault(fault)) if self.storage.gives_up(&fault) => {
                let lane = txn.lane.expect("a loser has a lane");
                txn.lane = Some(LaneUse { tail: self.first_page(lane.lane)?, ..lane });
            }
            Err(error) => return Err(error),
        }
        // What could not be taken back stays, so nobody may look for what was before it.
        txn.end(State::SeenFrom(0));
        self.storage.recovery_figures.half_done.fetch_add(1, Ordering::Relaxed);
        Ok(true)
    }

    fn take_back_as(
        &self,
        txn: &mut Txn,
        loser: &mut FoundLane,
        writes: &mut usize,
    ) -> Result<bool, TxnError> {
        while loser.state == LaneState::Active {
            if *writes == 0 {
                return Ok(false);
            }
            *writes -= 1;
            if loser.leaves_read == 0 {
                loser.leaves_read = txn.load_leaves_to_restore(u64::MAX)?;
            }
            loser.leaves_read -= 1;
            let was_first = txn.undo_last();
            loser.tail = txn.lane.expect("a loser has a lane").tail;
            loser.half_done = txn.work.half_done;
            loser.withdrew = txn.work.withdrew;
            if was_first? {
                loser.state = LaneState::Ended;
            }
        }
        // Before the lane is given to others, whose history comes behind.
        self.queue_history(loser, read_end(&self.storage, loser.tail)?)?;
        Ok(true)
    }
}

//! Transactions after a crash: the lanes tell who was running.

use super::lane::{LANE_DIRECTORY, LaneUse, Lanes, UndoPlace};
use super::purge::History;
use super::status::StatusTable;
use super::{Stagings, Transactions, Txn, TxnError, TxnFigures};
use crate::lock::LockTable;
use crate::storage::{Fault, Mtr, Restart, Storage, retry};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_page::lanes::{self, LANES};
use weir_page::undo::{self, State as LaneState};
use weir_page::{Kind, PageId, Redo, TxnId};

/// The ends of a lane, and who was at work there.
struct Found {
    lane: u16,
    head: PageId,
    tail: PageId,
    txn: TxnId,
    state: LaneState,
}

impl Transactions {
    /// Makes the directory of lanes in a new database, in an mtr that asked for a page.
    pub fn init(mtr: &mut Mtr<'_>) {
        let page = mtr.create();
        assert_eq!(page, LANE_DIRECTORY, "the directory of lanes is the first page");
        mtr.log(&Redo::LanesInit { page });
    }

    /// Transactions of a new database.
    pub fn first(storage: Arc<Storage>) -> Arc<Transactions> {
        Transactions::assemble(storage, &[PageId::NONE; LANES], &[], &[])
    }

    fn assemble(
        storage: Arc<Storage>,
        tails: &[PageId],
        taken: &[u16],
        active: &[TxnId],
    ) -> Arc<Transactions> {
        let next = TxnId(storage.next_txn.load(Ordering::Acquire));
        let horizon = active.iter().copied().min().unwrap_or(next).min(next);
        Arc::new(Transactions {
            storage,
            locks: LockTable::new(),
            clock: AtomicU64::new(0),
            committing: Mutex::default(),
            status: StatusTable::new(next, active),
            snapshots: Mutex::new(BTreeMap::new()),
            horizon: AtomicU64::new(horizon.0),
            advancing: Mutex::default(),
            lanes: Lanes::new(tails, taken),
            history: Mutex::new(VecDeque::new()),
            purging: Mutex::default(),
            staging: Stagings::default(),
            figures: TxnFigures::default(),
        })
    }

    /// Finds the transactions that were running, rolls them back, and queues old undo for purge.
    ///
    /// # Errors
    /// Faults of the storage; it may be opened again.
    pub fn recover(
        storage: Arc<Storage>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Arc<Transactions>, TxnError> {
        let found = find_lanes(&storage)?;
        let mut tails = vec![PageId::NONE; LANES];
        for f in &found {
            tails[f.lane as usize] = f.tail;
        }
        let losers: Vec<&Found> = found.iter().filter(|f| f.state == LaneState::Active).collect();
        let taken: Vec<u16> = losers.iter().map(|f| f.lane).collect();
        let active: Vec<TxnId> = losers.iter().map(|f| f.txn).collect();
        let shared = Transactions::assemble(storage, &tails, &taken, &active);
        for (done, loser) in losers.iter().enumerate() {
            progress(losers.len() - done);
            shared.roll_back(loser)?;
        }
        for f in &found {
            shared.queue_history(f)?;
        }
        Ok(shared)
    }

    fn roll_back(self: &Arc<Self>, loser: &Found) -> Result<(), TxnError> {
        let begin = UndoPlace { page: loser.tail, used: 0, last: 0 };
        let mut txn: Txn = self.begin();
        txn.id = loser.txn;
        txn.lane = Some(LaneUse { lane: loser.lane, begin, tail: loser.tail });
        txn.undo_records = u64::MAX;
        while !txn.undo_last()? {}
        txn.undo_records = 0;
        txn.rollback()
    }

    /// Everything that a lane holds now has been committed and waits for purge.
    fn queue_history(&self, found: &Found) -> Result<(), Fault> {
        let s = &*self.storage;
        let place = |page: PageId, at_end: bool| {
            retry(s, || {
                let p = s.read(page, false)?;
                let used = if at_end { undo::used(&p) as u16 } else { undo::purge_from(&p) };
                Ok::<_, Restart<Fault>>(UndoPlace { page, used, last: undo::last(&p) })
            })
        };
        let tail = self.lanes.tail(found.lane);
        let begin = place(found.head, false)?;
        let end = place(tail, true)?;
        if begin.page == end.page && begin.used >= end.used {
            return Ok(());
        }
        self.lanes.pending[found.lane as usize].fetch_add(1, Ordering::AcqRel);
        let history = History { stamp: 0, lane: found.lane, begin, end, work: true };
        self.history.lock().push_back(history);
        Ok(())
    }
}

fn find_lanes(s: &Storage) -> Result<Vec<Found>, Fault> {
    let ends = retry(s, || {
        let page = s.read(LANE_DIRECTORY, false)?;
        if page.kind() != Kind::Lanes {
            return Err(Fault::page(LANE_DIRECTORY, "is not the directory of undo lanes").into());
        }
        let used = (0..LANES as u16).map(|lane| (lane, lanes::get(&page, lane)));
        let used: Vec<_> = used.filter(|(_, (head, _))| *head != PageId::NONE).collect();
        Ok::<_, Restart<Fault>>(used)
    })?;
    let state = |(lane, (head, tail)): (u16, (PageId, PageId))| {
        retry(s, || {
            let page = s.read(tail, false)?;
            if page.kind() != Kind::Undo || undo::lane(&page) != lane {
                return Err(Fault::page(tail, format!("is not an undo page of lane {lane}")).into());
            }
            let (txn, state) = undo::txn(&page);
            Ok::<_, Restart<Fault>>(Found { lane, head, tail, txn, state })
        })
    };
    ends.into_iter().map(state).collect()
}

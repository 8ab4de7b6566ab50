//! Transactions after a crash: the lanes tell who was running.

use super::dead::DeadRanges;
use super::history::History;
use super::lane::{LANE_DIRECTORY, Lanes, UndoPlace, read_end};
use super::losers::Losers;
use super::pace::Pace;
use super::snapshots::Snapshots;
use super::status::{State, StatusTable};
use super::{Resurrected, Stagings, Transactions, TxnError, TxnFigures};
use crate::lock::LockTable;
use crate::storage::{Fault, Mtr, Restart, Storage, retry};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_page::lanes::{self, LANES};
use weir_page::undo::{self, State as LaneState};
use weir_page::{Kind, PageId, Redo, TxnId};

/// The ends of a lane, and who was at work there.
pub(super) struct FoundLane {
    pub lane: u16,
    head: PageId,
    pub tail: PageId,
    pub txn: TxnId,
    pub state: LaneState,
    /// Something that it wrote could not be taken back, because of damage.
    pub half_done: bool,
    /// See [`super::work::Work::withdrew`]. What was taken back so before the database was opened
    /// no scan has begun before.
    pub withdrew: bool,
    /// Records to be taken back next whose leaves were read.
    pub leaves_read: u64,
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
        let lanes = Lanes::new(tails, taken, storage.is_inline());
        Arc::new(Transactions {
            storage,
            locks: LockTable::new(),
            commits: CachePadded::default(),
            status: StatusTable::new(next, active),
            first: next,
            snapshots: Snapshots::default(),
            horizon: AtomicU64::new(horizon.0).into(),
            advancing: Mutex::default(),
            trimmed: AtomicU64::new(0),
            lanes,
            purging: Mutex::default(),
            pace: Pace::default(),
            dead: DeadRanges::default(),
            losers: Losers::default(),
            staging: Stagings::default(),
            figures: TxnFigures::default(),
        })
    }

    /// Finds the transactions that were running, which [`Transactions::roll_back_losers`] takes
    /// back, and queues old undo for purge. Returns those that were prepared: their rows are
    /// locked.
    ///
    /// # Errors
    /// Faults of the storage; it may be opened again.
    pub fn recover(
        storage: Arc<Storage>,
    ) -> Result<(Arc<Transactions>, Vec<Resurrected>), TxnError> {
        let (found, lost) = find_lanes(&storage)?;
        let mut tails = vec![PageId::NONE; LANES];
        for f in &found {
            tails[f.lane as usize] = f.tail;
        }
        let running = found.iter().filter(|f| f.state != LaneState::Ended);
        let taken: Vec<u16> = running.clone().map(|f| f.lane).collect();
        let active: Vec<TxnId> = running.map(|f| f.txn).collect();
        let transactions = Transactions::assemble(storage, &tails, &taken, &active);
        lost.into_iter().try_for_each(|lane| transactions.begin_lane_anew(lane).map(drop))?;
        let mut prepared = Vec::new();
        for f in found {
            match f.state {
                LaneState::Active => transactions.add_loser(f),
                LaneState::Prepared => match transactions.resurrect(&f) {
                    Err(TxnError::Fault(fault)) if transactions.storage.gives_up(&fault) => {
                        let tail = transactions.begin_lane_anew(f.lane)?;
                        transactions.status.set(f.txn, State::SeenFrom(0));
                        transactions.lanes.give_back(f.lane, tail);
                    }
                    txn => {
                        let txn = txn?;
                        let begin = txn.txn.lane.expect("a prepared transaction has a lane").begin;
                        prepared.push(txn);
                        transactions.queue_history(&f, begin)?;
                    }
                },
                LaneState::Ended => {
                    transactions.queue_history(&f, read_end(&transactions.storage, f.tail)?)?
                }
            }
        }
        Ok((transactions, prepared))
    }

    /// Makes a lane usable whose undo is damaged: what was written there, and isn't taken back,
    /// stays. Returns its page.
    pub(super) fn begin_lane_anew(&self, lane: u16) -> Result<PageId, Fault> {
        self.storage.recovery_figures.half_done.fetch_add(1, Ordering::Relaxed);
        self.first_page(lane)
    }

    /// Everything that a lane holds before `end` has been committed and waits for purge.
    pub(super) fn queue_history(&self, found: &FoundLane, end: UndoPlace) -> Result<(), Fault> {
        let s = &*self.storage;
        let purge_from = retry(s, || {
            let page = s.read(found.head, false)?;
            let used = undo::purge_from(&page);
            Ok::<_, Restart<Fault>>(UndoPlace { used, ..UndoPlace::end_of(found.head, &page) })
        });
        let begin = match purge_from {
            // Purge passes over it.
            Err(fault) if fault.damaged_page() == Some(found.head) => {
                UndoPlace { page: found.head, used: 0, last: 0 }
            }
            begin => begin?,
        };
        if begin.page == end.page && begin.used >= end.used {
            return Ok(());
        }
        self.queue_for_purge(History {
            stamp: 0,
            lane: found.lane,
            begin,
            end,
            work: true,
            is_old: true,
            transactions: 1,
            // How many it has isn't known: nobody is held back for them.
            records: 0,
        });
        Ok(())
    }
}

/// What the lanes tell, and those whose last page is given up: nobody knows who was at work there.
fn find_lanes(s: &Storage) -> Result<(Vec<FoundLane>, Vec<u16>), Fault> {
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
            Ok::<_, Restart<Fault>>(FoundLane {
                lane,
                head,
                tail,
                txn,
                state,
                half_done: false,
                withdrew: false,
                leaves_read: 0,
            })
        })
    };
    let (mut found, mut lost) = (Vec::new(), Vec::new());
    for end in ends {
        match state(end) {
            Err(fault) if s.gives_up(&fault) => lost.push(end.0),
            of_lane => found.push(of_lane?),
        }
    }
    Ok((found, lost))
}

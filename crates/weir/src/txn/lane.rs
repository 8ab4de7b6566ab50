//! Undo lanes: where a transaction's undo records go.

use super::{Transactions, Txn, TxnError};
use crate::storage::{Fault, Mtr, Need, Restart, Stop, Storage, retry};
use crate::sync::processor;
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use weir_page::lanes::{self, LANES};
use weir_page::page::BODY;
use weir_page::undo::{self, State};
use weir_page::{Page, PageId, Redo, TxnId};

/// The page that holds the directory of lanes.
pub const LANE_DIRECTORY: PageId = PageId(1);

/// Past this much use, an emptied page is made anew when a transaction takes the lane.
const REWIND_FROM: usize = BODY + 4096;

/// It is made anew after so many records, too: recovery needs none of what the log has for it from
/// before, and one that inserts alone uses the same bytes of the page again and again.
const REWIND_AFTER: u32 = 512;

/// A place in a lane: an undo page, the end of its last record, and where that begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndoPlace {
    pub page: PageId,
    pub used: u16,
    pub last: u16,
}

impl UndoPlace {
    /// Where the records of an undo page end; `id` is its number.
    #[inline]
    pub fn end_of(id: PageId, page: &Page) -> UndoPlace {
        UndoPlace { page: id, used: undo::used(page) as u16, last: undo::last(page) }
    }
}

/// What a transaction knows of its lane.
#[derive(Debug, Clone, Copy)]
pub struct LaneUse {
    pub lane: u16,
    /// Where it found the lane's end.
    pub begin: UndoPlace,
    /// The lane's last page now.
    pub tail: PageId,
}

/// Where the next undo record goes.
#[derive(Debug, Clone, Copy)]
pub struct NextUndo {
    pub page: PageId,
    /// The transaction, if the record is its first.
    pub first: Option<TxnId>,
}

/// A lane, and who is at work in it, for those who ask. Written by its transaction, and by purge.
#[derive(Default)]
pub struct Lane {
    /// 0 for nobody.
    txn: AtomicU64,
    since_us: AtomicU64,
    undo_records: AtomicU64,
    prepared: AtomicBool,
    /// The last page, as in the directory.
    tail: AtomicU32,
    /// Committed transactions that purge has not been through.
    pub pending: AtomicU32,
    /// Records written since its page was made anew.
    unwound: AtomicU32,
}

impl Lane {
    fn new(tail: PageId) -> Self {
        Lane { tail: AtomicU32::new(tail.0), ..Lane::default() }
    }

    /// Says how many undo records it has written.
    #[inline]
    pub fn count(&self, undo_records: u64) {
        self.undo_records.store(undo_records, Ordering::Relaxed);
    }

    /// Says that it is prepared.
    pub fn prepare(&self) {
        self.prepared.store(true, Ordering::Relaxed);
    }
}

/// A transaction that has written, as it was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    pub txn: TxnId,
    pub age: Duration,
    pub undo_records: u64,
    pub prepared: bool,
}

/// All lanes.
pub struct Lanes {
    opened: Instant,
    lanes: Box<[CachePadded<Lane>]>,
    /// Lanes that were given back on each processor, and are taken there again before any other:
    /// what lies there, the undo page above all, is in its caches.
    used: Box<[CachePadded<Mutex<Vec<u16>>>]>,
    /// Those that nobody has used yet.
    unused: Mutex<Vec<u16>>,
}

impl Lanes {
    /// Lanes as the directory says; those in `taken` are in use. `single_threaded`: which is taken
    /// is always the same.
    pub fn new(tails: &[PageId], taken: &[u16], single_threaded: bool) -> Self {
        let processors = match single_threaded {
            true => 1,
            false => thread::available_parallelism().map_or(1, usize::from),
        };
        Lanes {
            opened: Instant::now(),
            lanes: tails.iter().map(|tail| Lane::new(*tail).into()).collect(),
            used: (0..processors).map(|_| CachePadded::default()).collect(),
            unused: Mutex::new((0..LANES as u16).rev().filter(|l| !taken.contains(l)).collect()),
        }
    }

    /// A lane.
    #[inline]
    pub fn get(&self, lane: u16) -> &Lane {
        &self.lanes[lane as usize]
    }

    /// Last page of a lane.
    pub fn tail(&self, lane: u16) -> PageId {
        PageId(self.get(lane).tail.load(Ordering::Acquire))
    }

    /// Those of the processor that this thread is on.
    fn used(&self) -> &Mutex<Vec<u16>> {
        &self.used[processor() % self.used.len()]
    }

    fn take(&self) -> Result<u16, TxnError> {
        let take = |free: &Mutex<Vec<u16>>| free.lock().pop();
        take(self.used())
            .or_else(|| take(&self.unused))
            .or_else(|| self.used.iter().find_map(|others| take(others)))
            .ok_or(TxnError::TooMany { most: LANES })
    }

    /// Notes who works in a lane from now on.
    pub fn settle(&self, lane: u16, txn: TxnId) -> &Lane {
        let lane = self.get(lane);
        lane.since_us.store(self.opened.elapsed().as_micros() as u64, Ordering::Relaxed);
        lane.undo_records.store(0, Ordering::Relaxed);
        lane.prepared.store(false, Ordering::Relaxed);
        lane.txn.store(txn.0, Ordering::Release);
        lane
    }

    /// All who work in lanes.
    pub fn running(&self) -> Vec<Running> {
        let now = self.opened.elapsed();
        let running = self.lanes.iter().filter_map(|lane| {
            let txn = TxnId(lane.txn.load(Ordering::Acquire));
            let since = Duration::from_micros(lane.since_us.load(Ordering::Relaxed));
            (txn.0 != 0).then(|| Running {
                txn,
                age: now.saturating_sub(since),
                undo_records: lane.undo_records.load(Ordering::Relaxed),
                prepared: lane.prepared.load(Ordering::Relaxed),
            })
        });
        running.collect()
    }

    /// Gives a lane back, with `tail` as its last page.
    pub fn give_back(&self, number: u16, tail: PageId) {
        let lane = self.get(number);
        let records = lane.undo_records.swap(0, Ordering::Relaxed);
        let records = u32::try_from(records).unwrap_or(u32::MAX / 2);
        lane.unwound.fetch_add(records, Ordering::Relaxed);
        lane.txn.store(0, Ordering::Release);
        lane.tail.store(tail.0, Ordering::Release);
        self.used().lock().push(number);
    }
}

/// Logs the lane's ends, changed by `change` from what the directory says.
pub fn set_ends(
    mtr: &mut Mtr<'_>,
    lane: u16,
    change: impl FnOnce(PageId, PageId) -> (PageId, PageId),
) {
    let (head, tail) = lanes::get(mtr.page(LANE_DIRECTORY), lane);
    let (head, tail) = change(head, tail);
    mtr.log(&Redo::LaneSet { page: LANE_DIRECTORY, lane, head, tail });
}

/// Where the records of an undo page end, which is read for that.
pub fn read_end(s: &Storage, page: PageId) -> Result<UndoPlace, Fault> {
    retry(s, || Ok::<_, Restart<Fault>>(UndoPlace::end_of(page, &*s.read(page, false)?)))
}

impl Transactions {
    fn take_lane(&self) -> Result<LaneUse, TxnError> {
        let lane = self.lanes.take()?;
        let found = self.prepare_lane(lane);
        if found.is_err() {
            let tail = self.lanes.tail(lane);
            self.lanes.give_back(lane, tail);
        }
        found
    }

    fn prepare_lane(&self, lane: u16) -> Result<LaneUse, TxnError> {
        let s = &*self.storage;
        let tail = self.lanes.tail(lane);
        let tail = if tail == PageId::NONE { self.first_page(lane)? } else { tail };
        let mut begin = read_end(s, tail)?;
        let Lane { pending, unwound, .. } = self.lanes.get(lane);
        let idle = pending.load(Ordering::Acquire) == 0;
        let is_due =
            begin.used as usize >= REWIND_FROM || unwound.load(Ordering::Relaxed) >= REWIND_AFTER;
        if idle && is_due {
            unwound.store(0, Ordering::Relaxed);
            begin = UndoPlace { page: tail, used: BODY as u16, last: 0 };
            retry(s, || {
                let mut mtr = s.mtr(Need::records(1))?;
                mtr.latch(tail)?;
                let (prev, txn, state) = (undo::prev(mtr.page(tail)), TxnId(0), State::Ended);
                mtr.log(&Redo::UndoInit { page: tail, lane, prev, txn, state });
                mtr.commit();
                Ok::<_, Restart<Fault>>(())
            })?;
        }
        Ok(LaneUse { lane, begin, tail })
    }

    /// Begins a lane, with a page that nothing is before.
    pub(super) fn first_page(&self, lane: u16) -> Result<PageId, Fault> {
        let s = &*self.storage;
        let page = retry(s, || {
            let mut mtr = s.mtr(Need::records(2).and_pages(1))?;
            mtr.latch(LANE_DIRECTORY)?;
            let page = mtr.create();
            let (prev, txn, state) = (PageId::NONE, TxnId(0), State::Ended);
            mtr.log(&Redo::UndoInit { page, lane, prev, txn, state });
            set_ends(&mut mtr, lane, |_, _| (page, page));
            mtr.commit();
            Ok::<_, Restart<Fault>>(page)
        })?;
        self.lanes.get(lane).tail.store(page.0, Ordering::Release);
        Ok(page)
    }
}

impl Txn {
    /// Where the next undo record goes; a lane is taken for the first.
    pub(super) fn next_undo(&mut self) -> Result<NextUndo, TxnError> {
        self.ensure_id();
        let lane = match self.lane {
            Some(lane) => lane,
            None => {
                self.transactions.pace.keep();
                let lane = self.transactions.take_lane()?;
                self.transactions.lanes.settle(lane.lane, self.id);
                *self.lane.insert(lane)
            }
        };
        Ok(NextUndo { page: lane.tail, first: (self.work.undo_records == 0).then_some(self.id) })
    }

    /// As [`Txn::next_undo`], with room for a record of `size` bytes.
    pub(super) fn undo_room(&mut self, size: usize) -> Result<NextUndo, TxnError> {
        let next = self.next_undo()?;
        let s = self.storage();
        let fits = retry(s, || {
            let page = s.read(next.page, false)?;
            Ok::<_, Restart<Fault>>(undo::fits(&page, size))
        })?;
        if !fits {
            self.extend_lane()?;
        }
        self.next_undo()
    }

    /// Hangs a new page behind the lane's last.
    pub(super) fn extend_lane(&mut self) -> Result<(), TxnError> {
        let lane = self.lane.expect("a lane is taken before it is extended");
        let (s, prev) = (self.storage(), lane.tail);
        let (txn, state) = match self.work.undo_records {
            0 => (TxnId(0), State::Ended),
            _ => (self.id, State::Active),
        };
        let page = retry(s, || {
            let mut mtr = s.mtr(Need::records(3).and_pages(1))?;
            mtr.latch(prev)?;
            mtr.latch(LANE_DIRECTORY)?;
            let page = mtr.create();
            mtr.log(&Redo::UndoInit { page, lane: lane.lane, prev, txn, state });
            mtr.log(&Redo::UndoLink { page: prev, next: page });
            set_ends(&mut mtr, lane.lane, |head, _| (head, page));
            mtr.commit();
            Ok::<_, Restart<Fault>>(page)
        })?;
        self.lane = Some(LaneUse { tail: page, ..lane });
        Ok(())
    }

    /// Counts undo records that were written, and whether purge has work with them.
    pub(super) fn undo_pushed(&mut self, records: u64, needs_purge: bool) {
        self.work.needs_purge |= needs_purge;
        self.work.undo_records += records;
        self.changes += records;
        if let Some(lane) = &self.lane {
            self.transactions.lanes.get(lane.lane).count(self.work.undo_records);
        }
    }

    /// Latches the undo page that the next record goes to, in an mtr that holds a leaf.
    pub(super) fn latch_undo(mtr: &mut Mtr<'_>, next: NextUndo, size: usize) -> Result<bool, Stop> {
        mtr.latch(next.page)?;
        Ok(undo::fits(mtr.page(next.page), size))
    }
}

//! Who has committed, and when: transaction ids to commit timestamps.
//!
//! Ids from that on which came next when the database was opened have an entry, in chunks; a chunk
//! is dropped once all its transactions have ended and everybody sees them. Of those before it only
//! the few have one that had not ended then. When an old snapshot keeps chunks alive, those in
//! which it can't tell transactions apart are collapsed to one number, so memory grows with the
//! number of live snapshots, not with the number of transactions.

use crate::sync::{AtomicU64, Ordering, ReadMostly};
use std::collections::VecDeque;
use weir_page::TxnId;

#[cfg(not(feature = "shuttle"))]
const CHUNK: u64 = 4096;
/// Small enough for chunks to end within a schedule.
#[cfg(feature = "shuttle")]
const CHUNK: u64 = 4;
const ACTIVE: u64 = 0;
const NOTHING_LEFT: u64 = u64::MAX;

/// What has become of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs, or it is being rolled back.
    Active,
    /// It has ended, and snapshots from this timestamp on see what it left: what it wrote if it has
    /// committed, tombstones if they had to take that back. 0: all snapshots.
    SeenFrom(u64),
    /// It has ended, and nothing it wrote is there: it was rolled back, or had written nothing.
    NothingLeft,
}

enum Chunk {
    Full(Box<[AtomicU64]>),
    /// All have ended, the last with this timestamp, and no live snapshot lies between them.
    Collapsed(u64),
}

struct Chunks {
    first: u64,
    chunks: VecDeque<Chunk>,
}

/// See the module.
pub struct StatusTable {
    chunks: ReadMostly<Chunks>,
    /// Transactions before the first chunk that had not ended when the database was opened, in
    /// ascending order.
    old: Box<[(TxnId, AtomicU64)]>,
}

impl StatusTable {
    /// A table in which all transactions before `next` have committed, but those in `active`.
    pub fn new(next: TxnId, active: &[TxnId]) -> Self {
        let first = next.0 / CHUNK;
        let is_active = |id: u64| id >= next.0 || active.contains(&TxnId(id));
        let word =
            |id| AtomicU64::new(if is_active(id) { ACTIVE } else { word_of(State::SeenFrom(0)) });
        let chunk = |number: u64| (number * CHUNK..(number + 1) * CHUNK).map(word).collect();
        let chunks = (first..next.0.div_ceil(CHUNK)).map(|number| Chunk::Full(chunk(number)));
        let chunks = ReadMostly::new(Chunks { first, chunks: chunks.collect() });
        let old = active.iter().filter(|txn| txn.0 < first * CHUNK);
        let mut old: Box<[_]> = old.map(|txn| (*txn, AtomicU64::new(ACTIVE))).collect();
        old.sort_unstable_by_key(|(txn, _)| *txn);
        StatusTable { chunks, old }
    }

    /// The entry of a transaction before the first chunk, if it has one.
    fn old(&self, txn: TxnId) -> Option<&AtomicU64> {
        let at = self.old.binary_search_by_key(&txn, |(old, _)| *old).ok()?;
        Some(&self.old[at].1)
    }

    /// Makes sure that the transaction has an entry.
    pub fn begin(&self, txn: TxnId) {
        let number = txn.0 / CHUNK;
        {
            let inner = self.chunks.read();
            if number < inner.first + inner.chunks.len() as u64 {
                return;
            }
        }
        let mut inner = self.chunks.write();
        while number >= inner.first + inner.chunks.len() as u64 {
            let chunk = (0..CHUNK).map(|_| AtomicU64::new(ACTIVE)).collect();
            inner.chunks.push_back(Chunk::Full(chunk));
        }
    }

    /// What has become of a transaction.
    pub fn get(&self, txn: TxnId) -> State {
        self.get_in(&self.chunks.read(), txn)
    }

    fn get_in(&self, chunks: &Chunks, txn: TxnId) -> State {
        let Some(index) = (txn.0 / CHUNK).checked_sub(chunks.first) else {
            return self.old(txn).map_or(State::SeenFrom(0), state_in);
        };
        match chunks.chunks.get(index as usize) {
            None => State::Active,
            Some(Chunk::Collapsed(newest)) => State::SeenFrom(*newest),
            Some(Chunk::Full(entries)) => state_in(&entries[(txn.0 % CHUNK) as usize]),
        }
    }

    /// The first from `from` on and before `next` that has not ended or is newer than the snapshot
    /// `oldest`; `next` if there is none.
    pub fn settled_up_to(&self, from: u64, next: u64, oldest: u64) -> u64 {
        let chunks = self.chunks.read();
        let is_settled = |txn: &u64| match self.get_in(&chunks, TxnId(*txn)) {
            State::Active => false,
            State::SeenFrom(stamp) => stamp <= oldest,
            State::NothingLeft => true,
        };
        (from..next).find(|txn| !is_settled(txn)).unwrap_or(next)
    }

    /// Notes a transaction's end.
    pub fn set(&self, txn: TxnId, state: State) {
        let inner = self.chunks.read();
        let entry = match (txn.0 / CHUNK).checked_sub(inner.first) {
            None => self.old(txn).expect("a running transaction has an entry"),
            Some(index) => match &inner.chunks[index as usize] {
                Chunk::Full(entries) => &entries[(txn.0 % CHUNK) as usize],
                Chunk::Collapsed(_) => panic!("a chunk with a running transaction isn't collapsed"),
            },
        };
        entry.store(word_of(state), Ordering::Release);
    }

    /// Drops what is older than `horizon`, below which everybody sees everything, and collapses the
    /// chunks that no snapshot can tell apart: neither the live ones, nor those to come, none of
    /// which is before `now`, when `snapshots` were all there were.
    pub fn trim(&self, horizon: TxnId, snapshots: &[u64], now: u64) {
        let mut inner = self.chunks.write();
        while inner.chunks.len() > 1 && (inner.first + 1) * CHUNK <= horizon.0 {
            inner.chunks.pop_front();
            inner.first += 1;
        }
        for chunk in &mut inner.chunks {
            let Chunk::Full(entries) = chunk else { continue };
            // A transaction that runs for long, or is prepared, doesn't keep later chunks.
            let Some((oldest, newest)) = bounds(entries) else { continue };
            if newest <= now && snapshots.iter().all(|&s| s < oldest || s >= newest) {
                *chunk = Chunk::Collapsed(newest);
            }
        }
    }

    /// Number of chunks that are kept in full.
    #[cfg(test)]
    fn full_chunks(&self) -> usize {
        self.chunks.read().chunks.iter().filter(|c| matches!(c, Chunk::Full(_))).count()
    }
}

/// How a state is kept.
fn word_of(state: State) -> u64 {
    match state {
        State::Active => ACTIVE,
        State::NothingLeft => NOTHING_LEFT,
        State::SeenFrom(stamp) => stamp + 1,
    }
}

/// The state that an entry keeps.
fn state_in(entry: &AtomicU64) -> State {
    match entry.load(Ordering::Acquire) {
        ACTIVE => State::Active,
        NOTHING_LEFT => State::NothingLeft,
        stamp => State::SeenFrom(stamp - 1),
    }
}

/// Oldest and newest timestamp of a chunk whose transactions have all ended.
fn bounds(entries: &[AtomicU64]) -> Option<(u64, u64)> {
    let (mut oldest, mut newest) = (u64::MAX, 0);
    for entry in entries {
        match state_in(entry) {
            State::Active => return None,
            State::NothingLeft => {}
            State::SeenFrom(stamp) => (oldest, newest) = (oldest.min(stamp), newest.max(stamp)),
        }
    }
    Some((oldest.min(newest), newest))
}

#[cfg(all(test, feature = "shuttle"))]
mod interleavings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_transactions_have_committed() {
        let t = StatusTable::new(TxnId(10_000), &[]);
        assert_eq!(t.get(TxnId(5)), State::SeenFrom(0));
        assert_eq!(t.get(TxnId(9_999)), State::SeenFrom(0));
        t.begin(TxnId(10_000));
        assert_eq!(t.get(TxnId(10_000)), State::Active);
        t.set(TxnId(10_000), State::NothingLeft);
        assert_eq!(t.get(TxnId(10_000)), State::NothingLeft);
    }

    #[test]
    fn one_that_was_prepared_long_ago_takes_no_room() {
        let next = 100 * CHUNK + 5;
        let t = StatusTable::new(TxnId(next), &[TxnId(3)]);
        assert_eq!(t.chunks.read().chunks.len(), 1);
        assert_eq!(t.get(TxnId(3)), State::Active);
        for id in [4, 50 * CHUNK, next - 1] {
            assert_eq!(t.get(TxnId(id)), State::SeenFrom(0), "{id}");
        }
        for id in next..next + 3 * CHUNK {
            t.begin(TxnId(id));
            assert_eq!(t.get(TxnId(id)), State::Active);
            t.set(TxnId(id), State::SeenFrom(id));
        }
        t.trim(TxnId(3), &[], next + 3 * CHUNK);
        // The one that isn't full.
        assert_eq!(t.full_chunks(), 1);
        t.set(TxnId(3), State::SeenFrom(7));
        assert_eq!(t.get(TxnId(3)), State::SeenFrom(7));
    }

    #[test]
    fn an_old_snapshot_does_not_keep_every_chunk() {
        let t = StatusTable::new(TxnId(1), &[]);
        for id in 1..10 * CHUNK {
            t.begin(TxnId(id));
            t.set(TxnId(id), State::SeenFrom(id));
        }
        let old = CHUNK + CHUNK / 2;
        t.trim(TxnId(old), &[old], 10 * CHUNK);
        // The chunk that the snapshot cuts.
        assert_eq!(t.full_chunks(), 1);
        let sees = |id| matches!(t.get(TxnId(id)), State::SeenFrom(stamp) if stamp <= old);
        assert!(sees(CHUNK - 1) && sees(old) && !sees(old + 1) && !sees(5 * CHUNK));
    }

    #[test]
    fn a_snapshot_taken_beside_a_trim_sees_no_less() {
        let t = StatusTable::new(TxnId(1), &[]);
        for id in 1..CHUNK {
            t.begin(TxnId(id));
        }
        // Snapshot 100 is taken after the live ones were listed; the rest of the chunk commits
        // then.
        let (listed, now) = ([50], 90);
        for id in 1..CHUNK {
            t.set(TxnId(id), State::SeenFrom(id));
        }
        t.set(TxnId(0), State::SeenFrom(0));
        t.trim(TxnId(1), &listed, now);
        assert_eq!(t.get(TxnId(100)), State::SeenFrom(100));
        t.trim(TxnId(1), &[], CHUNK);
        assert_eq!(t.full_chunks(), 0);
    }
}

//! Who has committed, and when: transaction ids to commit timestamps.
//!
//! Ids from `base` on have an entry, in chunks; a chunk is dropped once all its transactions have
//! ended and everybody sees them. When an old snapshot keeps chunks alive, those in which it can't
//! tell transactions apart are collapsed to one number, so memory grows with the number of live
//! snapshots, not with the number of transactions.

use crate::sync::{AtomicU64, Ordering, RwLock};
use std::collections::VecDeque;
use weir_page::TxnId;

#[cfg(not(feature = "shuttle"))]
const CHUNK: u64 = 4096;
/// Small enough for chunks to end within a schedule.
#[cfg(feature = "shuttle")]
const CHUNK: u64 = 4;
const ACTIVE: u64 = 0;
const ABORTED: u64 = u64::MAX;

/// What has become of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It runs, or it is being rolled back.
    Active,
    /// It has committed, with this timestamp; 0: before all snapshots.
    Committed(u64),
    /// It was rolled back; nothing it wrote is left.
    Aborted,
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
pub struct StatusTable(RwLock<Chunks>);

impl StatusTable {
    /// A table in which all transactions before `next` have committed, but those in `active`.
    pub fn new(next: TxnId, active: &[TxnId]) -> Self {
        let oldest = active.iter().copied().min().unwrap_or(next).min(next);
        let first = oldest.0 / CHUNK;
        let chunk = |number: u64| {
            let ids = number * CHUNK..(number + 1) * CHUNK;
            // A transaction may have been prepared long ago: what lies between takes no room.
            if ids.end <= next.0 && !active.iter().any(|txn| ids.contains(&txn.0)) {
                return Chunk::Collapsed(0);
            }
            let is_active = |id: u64| id >= next.0 || active.contains(&TxnId(id));
            let word = |id| if is_active(id) { ACTIVE } else { 1 };
            Chunk::Full(ids.map(|id| AtomicU64::new(word(id))).collect())
        };
        let chunks = (first..next.0.div_ceil(CHUNK)).map(chunk).collect();
        StatusTable(RwLock::new(Chunks { first, chunks }))
    }

    /// Makes sure that the transaction has an entry.
    pub fn begin(&self, txn: TxnId) {
        let number = txn.0 / CHUNK;
        {
            let inner = self.0.read();
            if number < inner.first + inner.chunks.len() as u64 {
                return;
            }
        }
        let mut inner = self.0.write();
        while number >= inner.first + inner.chunks.len() as u64 {
            let chunk = (0..CHUNK).map(|_| AtomicU64::new(ACTIVE)).collect();
            inner.chunks.push_back(Chunk::Full(chunk));
        }
    }

    /// What has become of a transaction.
    pub fn get(&self, txn: TxnId) -> State {
        let inner = self.0.read();
        let Some(index) = (txn.0 / CHUNK).checked_sub(inner.first) else {
            return State::Committed(0);
        };
        match inner.chunks.get(index as usize) {
            None => State::Active,
            Some(Chunk::Collapsed(newest)) => State::Committed(*newest),
            Some(Chunk::Full(entries)) => {
                match entries[(txn.0 % CHUNK) as usize].load(Ordering::Acquire) {
                    ACTIVE => State::Active,
                    ABORTED => State::Aborted,
                    stamp => State::Committed(stamp - 1),
                }
            }
        }
    }

    /// Notes a transaction's end.
    pub fn set(&self, txn: TxnId, state: State) {
        let word = match state {
            State::Active => ACTIVE,
            State::Aborted => ABORTED,
            State::Committed(stamp) => stamp + 1,
        };
        let inner = self.0.read();
        let index =
            (txn.0 / CHUNK).checked_sub(inner.first).expect("a running transaction has an entry");
        match &inner.chunks[index as usize] {
            Chunk::Full(entries) => {
                entries[(txn.0 % CHUNK) as usize].store(word, Ordering::Release)
            }
            Chunk::Collapsed(_) => panic!("a chunk with a running transaction isn't collapsed"),
        }
    }

    /// Drops what is older than `horizon`, below which everybody sees everything, and collapses the
    /// chunks that no snapshot can tell apart: neither the live ones, nor those to come, none of
    /// which is before `now`, when `snapshots` were all there were.
    pub fn trim(&self, horizon: TxnId, snapshots: &[u64], now: u64) {
        let mut inner = self.0.write();
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
        self.0.read().chunks.iter().filter(|c| matches!(c, Chunk::Full(_))).count()
    }
}

/// Oldest and newest timestamp of a chunk whose transactions have all ended.
fn bounds(entries: &[AtomicU64]) -> Option<(u64, u64)> {
    let (mut oldest, mut newest) = (u64::MAX, 0);
    for entry in entries {
        match entry.load(Ordering::Acquire) {
            ACTIVE => return None,
            ABORTED => {}
            stamp => (oldest, newest) = (oldest.min(stamp - 1), newest.max(stamp - 1)),
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
        assert_eq!(t.get(TxnId(5)), State::Committed(0));
        assert_eq!(t.get(TxnId(9_999)), State::Committed(0));
        t.begin(TxnId(10_000));
        assert_eq!(t.get(TxnId(10_000)), State::Active);
        t.set(TxnId(10_000), State::Aborted);
        assert_eq!(t.get(TxnId(10_000)), State::Aborted);
    }

    #[test]
    fn one_that_was_prepared_long_ago_takes_no_room() {
        let next = 100 * CHUNK + 5;
        let t = StatusTable::new(TxnId(next), &[TxnId(3)]);
        assert_eq!(t.full_chunks(), 2);
        assert_eq!(t.get(TxnId(3)), State::Active);
        for id in [4, 50 * CHUNK, next - 1] {
            assert_eq!(t.get(TxnId(id)), State::Committed(0), "{id}");
        }
        for id in next..next + 3 * CHUNK {
            t.begin(TxnId(id));
            assert_eq!(t.get(TxnId(id)), State::Active);
            t.set(TxnId(id), State::Committed(id));
        }
        t.trim(TxnId(3), &[], next + 3 * CHUNK);
        // Its own, and the one that isn't full.
        assert_eq!(t.full_chunks(), 2);
        t.set(TxnId(3), State::Aborted);
        assert_eq!(t.get(TxnId(3)), State::Aborted);
    }

    #[test]
    fn an_old_snapshot_does_not_keep_every_chunk() {
        let t = StatusTable::new(TxnId(1), &[]);
        for id in 1..10 * CHUNK {
            t.begin(TxnId(id));
            t.set(TxnId(id), State::Committed(id));
        }
        let old = CHUNK + CHUNK / 2;
        t.trim(TxnId(old), &[old], 10 * CHUNK);
        // The chunk that the snapshot cuts.
        assert_eq!(t.full_chunks(), 1);
        let sees = |id| matches!(t.get(TxnId(id)), State::Committed(stamp) if stamp <= old);
        assert!(sees(CHUNK - 1) && sees(old) && !sees(old + 1) && !sees(5 * CHUNK));
    }

    #[test]
    fn a_snapshot_taken_beside_a_trim_sees_no_less() {
        let t = StatusTable::new(TxnId(1), &[]);
        for id in 1..CHUNK {
            t.begin(TxnId(id));
        }
        // Snapshot 100 is taken after the live ones were listed; the rest of the chunk commits then.
        let (listed, now) = ([50], 90);
        for id in 1..CHUNK {
            t.set(TxnId(id), State::Committed(id));
        }
        t.set(TxnId(0), State::Committed(0));
        t.trim(TxnId(1), &listed, now);
        assert_eq!(t.get(TxnId(100)), State::Committed(100));
        t.trim(TxnId(1), &[], CHUNK);
        assert_eq!(t.full_chunks(), 0);
    }
}

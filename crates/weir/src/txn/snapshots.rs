//! Live snapshots: the timestamps at which somebody reads.
//!
//! They are kept in shards, of which each thread uses one: who begins and ends a snapshot meets nobody else there.
//! Whoever asks for the oldest reads the clock first, and then looks into one shard after the other. A snapshot
//! that it doesn't find was taken after that look, with the clock read under the shard's mutex: it isn't
//! before the time that the clock had shown.

use crate::sync::{Mutex, thread_number};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;

#[cfg(not(feature = "shuttle"))]
const SHARDS: usize = 16;
/// Few, for schedules to be short.
#[cfg(feature = "shuttle")]
const SHARDS: usize = 2;

/// A snapshot that somebody reads at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a snapshot that is not ended keeps old versions"]
pub struct Snapshot {
    /// Commits up to this timestamp are seen.
    pub at: u64,
    shard: usize,
}

/// A timestamp, and how many read at it.
struct Live {
    at: u64,
    users: u32,
}

/// In ascending order.
type Shard = CachePadded<Mutex<VecDeque<Live>>>;

/// See the module.
pub struct Snapshots([Shard; SHARDS]);

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots(std::array::from_fn(|_| Mutex::new(VecDeque::new()).into()))
    }
}

impl Snapshots {
    /// Takes a snapshot of what was committed up to now, which `clock` tells.
    #[inline]
    pub fn take(&self, clock: impl FnOnce() -> u64) -> Snapshot {
        self.take_in(thread_number() % SHARDS, clock)
    }

    pub(super) fn take_in(&self, shard: usize, clock: impl FnOnce() -> u64) -> Snapshot {
        let mut live = self.0[shard].lock();
        // Under the mutex: see the module.
        let at = clock();
        match live.back_mut() {
            Some(last) if last.at == at => last.users += 1,
            last => {
                assert!(last.is_none_or(|last| last.at < at), "the clock goes forwards");
                live.push_back(Live { at, users: 1 });
            }
        }
        Snapshot { at, shard }
    }

    /// One more reads at a snapshot.
    pub fn hold(&self, snapshot: Snapshot) -> Snapshot {
        let mut live = self.0[snapshot.shard].lock();
        let place = place_of(&live, snapshot);
        live[place].users += 1;
        snapshot
    }

    /// One less reads at a snapshot.
    pub fn end(&self, snapshot: Snapshot) {
        let mut live = self.0[snapshot.shard].lock();
        let place = place_of(&live, snapshot);
        live[place].users -= 1;
        if live[place].users == 0 {
            live.remove(place);
        }
    }

    /// The oldest; none is taken before it from now on.
    pub fn oldest(&self, clock: impl FnOnce() -> u64) -> u64 {
        let now = clock();
        let oldest = |shard: &Shard| shard.lock().front().map(|live| live.at);
        self.0.iter().filter_map(oldest).fold(now, u64::min)
    }

    /// All of them, and a timestamp: those that are taken meanwhile and are not among them are not before it.
    pub fn all(&self, clock: impl FnOnce() -> u64) -> (Vec<u64>, u64) {
        let now = clock();
        let mut all = Vec::new();
        for shard in &self.0 {
            all.extend(shard.lock().iter().map(|live| live.at));
        }
        (all, now)
    }
}

fn place_of(live: &VecDeque<Live>, snapshot: Snapshot) -> usize {
    live.binary_search_by_key(&snapshot.at, |live| live.at)
        .expect("a snapshot is live until it is ended")
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_found_whoever_took_it() {
        let snapshots = Snapshots::default();
        assert_eq!(snapshots.oldest(|| 3), 3);
        let first = snapshots.take_in(5, || 3);
        let second = snapshots.take_in(2, || 7);
        let third = snapshots.take_in(5, || 7);
        assert_eq!(snapshots.oldest(|| 9), 3);
        let held = snapshots.hold(first);
        snapshots.end(first);
        assert_eq!(snapshots.all(|| 9), (vec![7, 3, 7], 9));
        snapshots.end(held);
        assert_eq!(snapshots.oldest(|| 9), 7);
        snapshots.end(second);
        assert_eq!(snapshots.oldest(|| 9), 7);
        snapshots.end(third);
        assert_eq!((snapshots.oldest(|| 9), snapshots.all(|| 9)), (9, (vec![], 9)));
    }

    #[test]
    fn those_of_one_moment_are_ended_one_by_one() {
        let snapshots = Snapshots::default();
        let two = [snapshots.take_in(0, || 1), snapshots.take_in(0, || 1)];
        snapshots.end(two[0]);
        assert_eq!(snapshots.oldest(|| 2), 1);
        snapshots.end(two[1]);
        assert_eq!(snapshots.oldest(|| 2), 2);
    }
}

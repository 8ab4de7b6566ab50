//! Live snapshots: the timestamps at which somebody reads.
//!
//! They are kept in shards, of which each thread uses one: who begins and ends a snapshot meets
//! nobody else there. Whoever asks for the oldest reads the clock first, and then looks into one
//! shard after the other. A snapshot that it doesn't find was taken after that look, with the clock
//! read under the shard's mutex: it isn't before the time that the clock had shown.
//!
//! For those who ask what keeps old versions, each snapshot notes since when it is there and for
//! whom: in a slot of its shard, under the mutex that is held anyway.

use crate::sync::{Mutex, coarse_time, thread_number};
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::time::Duration;

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
    shard: u32,
    slot: u32,
}

/// Somebody who reads at a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader {
    /// Commits up to this timestamp are seen.
    pub at: u64,
    /// When it was taken, by [`coarse_time`].
    pub since: Duration,
    /// The caller's number of who it is for; 0 if that isn't known.
    pub connection: u64,
}

/// A timestamp, and how many read at it.
struct Live {
    at: u64,
    users: u32,
}

/// Snapshots that threads of one number have taken.
#[derive(Default)]
struct Shard {
    /// In ascending order.
    live: VecDeque<Live>,
    /// Who reads, by slots.
    readers: Vec<Option<Reader>>,
    /// Slots that are free. As many as there were snapshots at once.
    free: Vec<u32>,
}

impl Shard {
    /// Puts a reader into a slot.
    #[inline]
    fn enter(&mut self, reader: Reader) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.readers[slot as usize] = Some(reader);
            return slot;
        }
        self.readers.push(Some(reader));
        u32::try_from(self.readers.len() - 1).expect("fewer snapshots than that fit into memory")
    }

    fn leave(&mut self, slot: u32) {
        self.readers[slot as usize] = None;
        self.free.push(slot);
    }
}

/// See the module.
pub struct Snapshots([CachePadded<Mutex<Shard>>; SHARDS]);

impl Default for Snapshots {
    fn default() -> Self {
        Snapshots(std::array::from_fn(|_| Mutex::new(Shard::default()).into()))
    }
}

impl Snapshots {
    /// Takes a snapshot of what was committed up to now, which `clock` tells, for a connection.
    #[inline]
    pub fn take(&self, connection: u64, clock: impl FnOnce() -> u64) -> Snapshot {
        self.take_in(thread_number() % SHARDS, connection, clock)
    }

    pub(super) fn take_in(
        &self,
        shard_number: usize,
        connection: u64,
        clock: impl FnOnce() -> u64,
    ) -> Snapshot {
        let since = coarse_time();
        let mut shard = self.0[shard_number].lock();
        // Under the mutex: see the module.
        let at = clock();
        match shard.live.back_mut() {
            Some(last) if last.at == at => last.users += 1,
            last => {
                assert!(last.is_none_or(|last| last.at < at), "the clock goes forwards");
                shard.live.push_back(Live { at, users: 1 });
            }
        }
        let slot = shard.enter(Reader { at, since, connection });
        Snapshot { at, shard: shard_number as u32, slot }
    }

    /// One more reads at a snapshot.
    pub fn hold(&self, snapshot: Snapshot) -> Snapshot {
        let mut shard = self.0[snapshot.shard as usize].lock();
        let place = place_of(&shard.live, snapshot);
        shard.live[place].users += 1;
        let reader = shard.readers[snapshot.slot as usize].expect("who reads is in its slot");
        let slot = shard.enter(reader);
        Snapshot { slot, ..snapshot }
    }

    /// One less reads at a snapshot.
    pub fn end(&self, snapshot: Snapshot) {
        let mut shard = self.0[snapshot.shard as usize].lock();
        shard.leave(snapshot.slot);
        let place = place_of(&shard.live, snapshot);
        shard.live[place].users -= 1;
        if shard.live[place].users == 0 {
            shard.live.remove(place);
        }
    }

    /// The oldest; none is taken before it from now on.
    pub fn oldest(&self, clock: impl FnOnce() -> u64) -> u64 {
        let now = clock();
        let oldest = |shard: &CachePadded<Mutex<Shard>>| shard.lock().live.front().map(|l| l.at);
        self.0.iter().filter_map(oldest).fold(now, u64::min)
    }

    /// All of them, and a timestamp: those that are taken meanwhile and are not among them are not
    /// before it.
    pub fn all(&self, clock: impl FnOnce() -> u64) -> (Vec<u64>, u64) {
        let now = clock();
        let mut all = Vec::new();
        for shard in &self.0 {
            all.extend(shard.lock().live.iter().map(|live| live.at));
        }
        (all, now)
    }

    /// Who reads, in no order. It looks into one shard after the other: of what begins or ends
    /// meanwhile some is there.
    pub fn readers(&self) -> Vec<Reader> {
        let mut all = Vec::new();
        for shard in &self.0 {
            all.extend(shard.lock().readers.iter().flatten());
        }
        all
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
        let first = snapshots.take_in(5, 0, || 3);
        let second = snapshots.take_in(2, 0, || 7);
        let third = snapshots.take_in(5, 0, || 7);
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
        let two = [snapshots.take_in(0, 0, || 1), snapshots.take_in(0, 0, || 1)];
        snapshots.end(two[0]);
        assert_eq!(snapshots.oldest(|| 2), 1);
        snapshots.end(two[1]);
        assert_eq!(snapshots.oldest(|| 2), 2);
    }

    #[test]
    fn each_is_told_with_its_connection() {
        let snapshots = Snapshots::default();
        let told = || {
            let mut readers: Vec<_> =
                snapshots.readers().iter().map(|r| (r.at, r.connection)).collect();
            readers.sort_unstable();
            readers
        };
        let first = snapshots.take_in(1, 10, || 3);
        let second = snapshots.take_in(1, 20, || 3);
        let third = snapshots.take_in(0, 30, || 4);
        assert_eq!(told(), [(3, 10), (3, 20), (4, 30)]);
        let held = snapshots.hold(second);
        snapshots.end(second);
        snapshots.end(first);
        assert_eq!(told(), [(3, 20), (4, 30)], "who holds it is the one that took it");
        let fourth = snapshots.take_in(1, 40, || 5);
        assert_eq!(told(), [(3, 20), (4, 30), (5, 40)]);
        [held, third, fourth].into_iter().for_each(|snapshot| snapshots.end(snapshot));
        assert_eq!(told(), []);
        let shard = snapshots.0[1].lock();
        assert_eq!((shard.readers.len(), shard.free.len()), (3, 3), "slots are used again");
    }
}

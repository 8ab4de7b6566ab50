//! The backlog: how much may be staged, when moves begin, and when writers wait for them.
//!
//! - From `begin` leaves on, of all staging trees together, entries are moved, until an eighth of them
//!   is gone. `begin` is a share of the memory, and no more than a share of the dirty limit: leaves of
//!   staging trees are changed all the time, so they are dirty all the time.
//! - At twice that, writers wait: each entry that is moved makes room for one that is staged. So writers
//!   go at the pace of moves, entry by entry, and not at that of an insert into a leaf that isn't in memory.
//! - While nothing can be moved (all that is staged is of transactions that run, or is kept for old
//!   snapshots), nobody waits: entries go to the main trees at once, and so they do where there are no threads.
//!
//! Leaves are counted now and then; between two counts the number of entries says how things go on.

use crate::storage::{Storage, Waits};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Of the dirty limit, the share at which moves begin.
const SHARE_OF_DIRTY: f64 = 0.3;
/// Leaves that staging trees may have even where their share of memory is tiny.
const ALWAYS: usize = 16;
/// Entries that a leaf is taken to have before one was seen.
const PER_LEAF: u64 = 64;
/// A mean forgets so many leaves' worth.
const MEMORY: u64 = 16;
/// `allowed` when writers don't wait.
const NO_LIMIT: i64 = i64::MAX;
/// How long a writer waits before it looks again.
const LOOK: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Moving begins at so many leaves, if the dirty limit is large enough.
    most: AtomicUsize,
    /// Entries are being moved until fewer leaves are left.
    moving: AtomicBool,
    /// Nothing could be moved lately.
    stuck: AtomicBool,
    /// Entries staged and moved since the database was opened.
    staged: AtomicU64,
    moved: AtomicU64,
    /// How far `staged` may be ahead of `moved` before writers wait. Below zero where more is moved than
    /// was staged since the database was opened.
    allowed: AtomicI64,
    /// Entries in a leaf, lately, times [`MEMORY`].
    per_leaf: AtomicU64,
    turn: Mutex<()>,
    room: Condvar,
    /// Writers that waited.
    pub waits: Waits,
}

/// What a writer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    There,
    Later,
    /// Nobody knows when.
    None,
}

impl Backlog {
    /// Moving begins at `most` leaves.
    pub fn configure(&self, most: usize) {
        self.most.store(most, Relaxed);
        self.allowed.store(NO_LIMIT, Relaxed);
        self.per_leaf.store(PER_LEAF * MEMORY, Relaxed);
    }

    /// Entries staged since the database was opened.
    pub fn staged(&self) -> u64 {
        self.staged.load(Relaxed)
    }

    /// Entries moved since the database was opened.
    pub fn moved(&self) -> u64 {
        self.moved.load(Relaxed)
    }

    /// So many entries are about to be staged.
    #[inline]
    pub fn note_staged(&self, entries: u64) {
        self.staged.fetch_add(entries, Relaxed);
    }

    /// A leaf with so many entries was met.
    pub fn note_leaf(&self, entries: usize) {
        let before = self.per_leaf.load(Relaxed);
        self.per_leaf.store(before - before / MEMORY + entries as u64, Relaxed);
    }

    /// So many entries were moved.
    pub fn note_moved(&self, entries: u64) {
        self.moved.fetch_add(entries, Relaxed);
        if self.allowed.load(Relaxed) != NO_LIMIT {
            let _turn = self.turn.lock();
            self.room.notify_all();
        }
    }

    /// Nothing could be moved lately, or something could.
    pub fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Relaxed);
    }

    /// Whether entries are to be moved, when last counted.
    pub fn is_moving(&self) -> bool {
        self.moving.load(Relaxed)
    }

    /// The staging trees have so many leaves together, and so many pages may be dirty: whether entries are
    /// to be moved.
    pub fn count(&self, leaves: usize, dirty_limit: u64) -> bool {
        let of_dirty = SHARE_OF_DIRTY * dirty_limit as f64;
        let begin = self.most.load(Relaxed).min(of_dirty as usize);
        let until = if self.moving.load(Relaxed) { begin - begin / 8 } else { begin };
        let moves = leaves > until;
        self.moving.store(moves, Relaxed);
        let allowed = match moves {
            true => {
                let free = (2 * begin + ALWAYS).saturating_sub(leaves) as u64;
                self.ahead() + (free * self.per_leaf.load(Relaxed) / MEMORY) as i64
            }
            false => NO_LIMIT,
        };
        self.allowed.store(allowed, Relaxed);
        moves
    }

    /// How far staging is ahead of moving.
    fn ahead(&self) -> i64 {
        self.staged() as i64 - self.moved() as i64
    }

    #[inline]
    fn room(&self) -> Room {
        let allowed = self.allowed.load(Relaxed);
        if allowed == NO_LIMIT || self.ahead() < allowed {
            return Room::There;
        }
        if self.stuck.load(Relaxed) { Room::None } else { Room::Later }
    }

    /// Waits for room for one more entry; `false` if nobody knows when there will be. The caller holds no
    /// latch.
    #[inline]
    pub fn admits(&self, storage: &Storage) -> bool {
        match self.room() {
            Room::There => true,
            Room::None => false,
            Room::Later => self.wait(storage),
        }
    }

    #[cold]
    fn wait(&self, storage: &Storage) -> bool {
        let started = Instant::now();
        // Without threads nobody makes room. A database that has stopped says so to who writes.
        while !storage.is_inline() && storage.check().is_ok() {
            let mut turn = self.turn.lock();
            match self.room() {
                Room::Later => drop(self.room.wait_for(&mut turn, LOOK)),
                room => {
                    self.waits.ended(started);
                    return room == Room::There;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_DIRTY_LIMIT: u64 = u64::MAX;

    fn backlog(most: usize) -> Backlog {
        let backlog = Backlog::default();
        backlog.configure(most);
        backlog
    }

    fn stage(backlog: &Backlog, entries: u64) -> u64 {
        (0..entries)
            .take_while(|_| backlog.room() == Room::There)
            .map(|_| backlog.note_staged(1))
            .count() as u64
    }

    #[test]
    fn moves_begin_at_a_share_of_memory_and_end_an_eighth_below() {
        let backlog = backlog(80);
        assert!(!backlog.count(80, NO_DIRTY_LIMIT));
        assert!(backlog.count(81, NO_DIRTY_LIMIT));
        assert!(backlog.count(71, NO_DIRTY_LIMIT));
        assert!(!backlog.count(70, NO_DIRTY_LIMIT));
        assert!(!backlog.count(80, NO_DIRTY_LIMIT));
    }

    #[test]
    fn a_small_dirty_limit_lets_moves_begin_earlier() {
        let backlog = backlog(80);
        assert!(!backlog.count(30, 100));
        assert!(backlog.count(31, 100));
    }

    #[test]
    fn each_entry_moved_makes_room_for_one_staged() {
        let backlog = backlog(80);
        assert_eq!(stage(&backlog, 1_000_000), 1_000_000, "nobody waits before moves begin");
        assert!(backlog.count(100, NO_DIRTY_LIMIT));
        let room = (160 + ALWAYS as u64 - 100) * PER_LEAF;
        assert_eq!(stage(&backlog, 1_000_000), room);
        assert_eq!(backlog.room(), Room::Later);
        backlog.note_moved(10);
        assert_eq!(stage(&backlog, 1_000_000), 10);
        assert!(backlog.count(1000, NO_DIRTY_LIMIT), "far too many");
        backlog.note_moved(3);
        assert_eq!(stage(&backlog, 1_000_000), 3);
        assert!(!backlog.count(10, NO_DIRTY_LIMIT));
        assert_eq!(backlog.room(), Room::There);
    }

    #[test]
    fn what_an_earlier_life_staged_makes_room_only_once_it_is_moved() {
        let backlog = backlog(0);
        assert!(backlog.count(ALWAYS, NO_DIRTY_LIMIT));
        assert_eq!(stage(&backlog, 1000), 0);
        backlog.note_moved(100);
        assert!(backlog.count(ALWAYS, NO_DIRTY_LIMIT));
        assert_eq!(stage(&backlog, 1000), 0, "the leaves are still there");
        backlog.note_moved(7);
        assert_eq!(stage(&backlog, 1000), 7);
    }

    #[test]
    fn nobody_waits_for_moves_that_get_nowhere() {
        let backlog = backlog(0);
        assert!(backlog.count(100, NO_DIRTY_LIMIT));
        assert_eq!(backlog.room(), Room::Later);
        backlog.set_stuck(true);
        assert_eq!(backlog.room(), Room::None);
    }

    #[test]
    fn a_leaf_s_worth_follows_the_leaves_that_are_met() {
        let backlog = backlog(0);
        for _ in 0..100 {
            backlog.note_leaf(200);
        }
        assert!(backlog.count(ALWAYS - 1, NO_DIRTY_LIMIT));
        let room = stage(&backlog, 1000);
        assert!((190..=200).contains(&room), "{room} entries in a leaf");
    }
}

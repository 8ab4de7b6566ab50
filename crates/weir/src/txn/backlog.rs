//! The backlog: how much may be staged, when moves begin, and when writers wait for them.
//!
//! - About `begin` leaves, of all staging trees together, are kept. Entries are moved at the pace
//!   at which others are staged, times a factor that rises with the leaves: 0 an eighth below
//!   `begin`, 1 at it, 2 an eighth above it, and no limit further on. So moves neither stop nor
//!   hurry while inserts go on as they did. `begin` is a share of the memory, and no more than a
//!   share of the dirty limit: leaves of staging trees are changed all the time, so they are dirty
//!   all the time. Where all data is in memory, it is also no more than a share of the dirty pages:
//!   leaves of staging trees are then written in each lap of the log, like those that entries move
//!   to.
//! - At twice that share of the memory or of the limit, writers wait: each entry that is moved
//!   makes room for one that is staged. So writers go at the pace of moves, entry by entry, and not
//!   at that of an insert into a leaf that isn't in memory.
//! - While nothing can be moved (all that is staged is of transactions that run, or is kept for old
//!   snapshots), nobody waits: entries go to the main trees at once, and so they do where there are
//!   no threads.
//!
//! Leaves are counted now and then; between two counts the number of entries says how things go on.

use crate::lock::LockError;
use crate::storage::{Blocked, Storage, Waits};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

/// `begin` is at most this share of the dirty limit.
const SHARE_OF_DIRTY: f64 = 0.3;
/// And this share of the dirty pages, where all data is in memory.
const PART_OF_DIRTY: u64 = 4;
/// Leaves that staging trees may have even where their share of memory is tiny.
const ALWAYS: usize = 16;
/// Entries that a leaf is taken to have before one was seen.
const PER_LEAF: u64 = 64;
/// A mean forgets so many leaves' worth.
const MEMORY: u64 = 16;
/// Moves go from none to twice the pace of inserts within this part of `begin`, below and above it.
const BAND: usize = 8;
/// Moves are taken to be ahead of what is due by at most so many entries.
const AHEAD_MAX: i64 = 100_000;
/// `allowed` when writers don't wait.
const NO_LIMIT: i64 = i64::MAX;
/// How long a writer waits before it looks again.
const LOOK: Duration = Duration::from_millis(5);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// `begin`, if the dirty limit is large enough.
    most: AtomicUsize,
    /// Entries that are to be moved by now.
    due: AtomicI64,
    /// What `staged` was when leaves were last counted.
    staged_before: AtomicU64,
    /// Nothing could be moved lately.
    stuck: AtomicBool,
    /// Entries staged and moved since the database was opened.
    staged: AtomicU64,
    moved: AtomicU64,
    /// How far `staged` may be ahead of `moved` before writers wait. Below zero where more is moved
    /// than was staged since the database was opened.
    allowed: AtomicI64,
    /// Entries in a leaf, lately, times [`MEMORY`].
    per_leaf: AtomicU64,
    turn: Mutex<()>,
    room: Condvar,
    /// Writers that waited.
    pub waits: Waits,
}

/// What a writer is told of room for one more entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StagingRoom {
    There,
    Later,
    /// Nobody knows when.
    None,
}

impl Backlog {
    /// About `most` leaves are kept.
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
        self.due.fetch_sub(entries as i64, Relaxed);
        if self.allowed.load(Relaxed) != NO_LIMIT {
            let _turn = self.turn.lock();
            self.room.notify_all();
        }
    }

    /// Nothing could be moved lately, or something could.
    pub fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Relaxed);
    }

    /// Whether there are entries to be moved, by what was last counted.
    pub fn is_moving(&self) -> bool {
        self.due.load(Relaxed) > 0
    }

    /// The staging trees have so many leaves together, so many pages may be dirty and, where all
    /// data is in memory, so many are: whether entries are to be moved.
    pub fn count(&self, leaves: usize, dirty_limit: u64, dirty: Option<u64>) -> bool {
        let of_dirty = SHARE_OF_DIRTY * dirty_limit as f64;
        let most = self.most.load(Relaxed).min(of_dirty as usize);
        let begin =
            dirty.map_or(most, |dirty| most.min(((dirty / PART_OF_DIRTY) as usize).max(ALWAYS)));
        let low = begin - begin / BAND;
        let staged = self.staged();
        let new = (staged - self.staged_before.swap(staged, Relaxed)) as f64;
        let due = match leaves {
            _ if leaves <= low => 0,
            _ if leaves > begin + begin / BAND => NO_LIMIT,
            _ => {
                let pace = (leaves - low) as f64 / (begin - low) as f64;
                // "No limit" ends here; what steps moved beyond what was due counts, within reason.
                let left = self.due.load(Relaxed).clamp(-AHEAD_MAX, new as i64);
                left + (new * pace) as i64
            }
        };
        self.due.store(due, Relaxed);
        let allowed = match leaves > low {
            true => {
                let free = (2 * most + ALWAYS).saturating_sub(leaves) as u64;
                self.ahead() + (free * self.per_leaf.load(Relaxed) / MEMORY) as i64
            }
            false => NO_LIMIT,
        };
        self.allowed.store(allowed, Relaxed);
        due > 0
    }

    /// How far staging is ahead of moving.
    fn ahead(&self) -> i64 {
        self.staged() as i64 - self.moved() as i64
    }

    #[inline]
    fn room(&self) -> StagingRoom {
        let allowed = self.allowed.load(Relaxed);
        if allowed == NO_LIMIT || self.ahead() < allowed {
            return StagingRoom::There;
        }
        if self.stuck.load(Relaxed) { StagingRoom::None } else { StagingRoom::Later }
    }

    /// Whether there is room for more entries, or will be soon.
    pub fn takes_more(&self) -> bool {
        self.room() != StagingRoom::None
    }

    /// Waits for room for one more entry; `false` if nobody knows when there will be. The caller
    /// holds no latch.
    ///
    /// # Errors
    /// [`LockError::Cancelled`]: the wait was ended.
    #[inline]
    pub fn admits(
        &self,
        storage: &Storage,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<bool, LockError> {
        match self.room() {
            StagingRoom::There => Ok(true),
            StagingRoom::None => Ok(false),
            // Without threads nobody makes room. A database that has stopped says so to who writes.
            StagingRoom::Later => {
                self.wait(is_cancelled, || !storage.is_inline() && storage.check().is_ok())
            }
        }
    }

    #[cold]
    fn wait(
        &self,
        is_cancelled: impl Fn() -> bool,
        goes_on: impl Fn() -> bool,
    ) -> Result<bool, LockError> {
        let _blocked = Blocked::begin();
        let started = Instant::now();
        while goes_on() {
            if is_cancelled() {
                return Err(LockError::Cancelled);
            }
            let mut turn = self.turn.lock();
            match self.room() {
                StagingRoom::Later => drop(self.room.wait_for(&mut turn, LOOK)),
                room => {
                    self.waits.ended(started);
                    return Ok(room == StagingRoom::There);
                }
            }
        }
        Ok(false)
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
            .take_while(|_| backlog.room() == StagingRoom::There)
            .map(|_| backlog.note_staged(1))
            .count() as u64
    }

    #[test]
    fn moves_keep_pace_with_inserts() {
        const BEGIN: u64 = 800;
        const STEP: u64 = 300;
        let backlog = backlog(BEGIN as usize);
        let leaves = |backlog: &Backlog| (backlog.ahead() as u64 / PER_LEAF) as usize;
        let mut moved_before = 0;
        for tick in 0..10_000 {
            backlog.note_staged(100);
            if backlog.count(leaves(&backlog), NO_DIRTY_LIMIT, None) {
                backlog.note_moved(STEP);
            }
            if tick % 100 == 99 {
                let moved = backlog.moved() - std::mem::replace(&mut moved_before, backlog.moved());
                assert!(moved <= 20_000, "{moved} were moved while 10,000 were staged");
                assert!(
                    tick < 2000 || moved > 8_000,
                    "{moved} were moved while 10,000 were staged"
                );
            }
        }
        let left = leaves(&backlog) as u64;
        assert!((BEGIN * 7 / 8..=BEGIN * 9 / 8).contains(&left), "{left} leaves");
    }

    #[test]
    fn nothing_is_moved_below_the_band_and_all_that_can_be_above_it() {
        let backlog = backlog(80);
        backlog.note_staged(1000);
        assert!(!backlog.count(70, NO_DIRTY_LIMIT, None));
        assert!(!backlog.count(75, NO_DIRTY_LIMIT, None), "nothing was staged since");
        assert!(backlog.count(91, NO_DIRTY_LIMIT, None));
        backlog.note_moved(1_000_000);
        assert!(backlog.is_moving(), "until leaves are counted again");
        assert!(!backlog.count(70, NO_DIRTY_LIMIT, None));
    }

    #[test]
    fn moves_stop_hurrying_once_back_in_the_band() {
        let backlog = backlog(80);
        assert!(backlog.count(91, NO_DIRTY_LIMIT, None));
        backlog.note_staged(1000);
        assert!(backlog.count(80, NO_DIRTY_LIMIT, None));
        backlog.note_moved(3000);
        assert!(!backlog.is_moving(), "as many as were staged, and not all there are");
        backlog.note_staged(1000);
        assert!(!backlog.count(80, NO_DIRTY_LIMIT, None), "what was moved beyond that counts");
    }

    #[test]
    fn a_small_dirty_limit_lets_moves_begin_earlier() {
        let backlog = backlog(80);
        assert!(!backlog.count(26, 100, None));
        assert!(backlog.count(34, 100, None));
    }

    #[test]
    fn few_dirty_pages_let_moves_begin_earlier_and_nobody_wait() {
        let backlog = backlog(800);
        assert!(!backlog.count(300, NO_DIRTY_LIMIT, Some(4000)));
        assert!(backlog.count(300, NO_DIRTY_LIMIT, Some(1000)));
        assert_eq!(stage(&backlog, 10_000), 10_000, "there is room for 1,300 leaves");
        assert!(!backlog.count(ALWAYS / 2, NO_DIRTY_LIMIT, Some(0)));
    }

    #[test]
    fn each_entry_moved_makes_room_for_one_staged() {
        let backlog = backlog(80);
        assert_eq!(stage(&backlog, 1_000_000), 1_000_000, "nobody waits before moves begin");
        assert!(backlog.count(100, NO_DIRTY_LIMIT, None));
        let room = (160 + ALWAYS as u64 - 100) * PER_LEAF;
        assert_eq!(stage(&backlog, 1_000_000), room);
        assert_eq!(backlog.room(), StagingRoom::Later);
        backlog.note_moved(10);
        assert_eq!(stage(&backlog, 1_000_000), 10);
        assert!(backlog.count(1000, NO_DIRTY_LIMIT, None), "far too many");
        backlog.note_moved(3);
        assert_eq!(stage(&backlog, 1_000_000), 3);
        assert!(!backlog.count(10, NO_DIRTY_LIMIT, None));
        assert_eq!(backlog.room(), StagingRoom::There);
    }

    #[test]
    fn what_an_earlier_life_staged_makes_room_only_once_it_is_moved() {
        let backlog = backlog(0);
        assert!(backlog.count(ALWAYS, NO_DIRTY_LIMIT, None));
        assert_eq!(stage(&backlog, 1000), 0);
        backlog.note_moved(100);
        assert!(backlog.count(ALWAYS, NO_DIRTY_LIMIT, None));
        assert_eq!(stage(&backlog, 1000), 0, "the leaves are still there");
        backlog.note_moved(7);
        assert_eq!(stage(&backlog, 1000), 7);
    }

    #[test]
    fn nobody_waits_for_moves_that_get_nowhere() {
        let backlog = backlog(0);
        assert!(backlog.count(100, NO_DIRTY_LIMIT, None));
        assert_eq!(backlog.room(), StagingRoom::Later);
        backlog.set_stuck(true);
        assert_eq!(backlog.room(), StagingRoom::None);
    }

    #[test]
    fn a_wait_ends_where_nobody_makes_room_and_when_it_is_cancelled() {
        let backlog = backlog(0);
        assert!(backlog.count(100, NO_DIRTY_LIMIT, None));
        let cancelled = std::cell::Cell::new(false);
        let looks = std::cell::Cell::new(3);
        let goes_on = || looks.replace(looks.get() - 1) > 0;
        assert_eq!(backlog.wait(|| cancelled.get(), goes_on), Ok(false));
        assert_eq!((looks.get(), backlog.room()), (-1, StagingRoom::Later));
        let cancel = || {
            cancelled.set(true);
            true
        };
        assert_eq!(backlog.wait(|| cancelled.get(), cancel), Err(LockError::Cancelled));
    }

    #[test]
    fn a_leaf_s_worth_follows_the_leaves_that_are_met() {
        let backlog = backlog(0);
        for _ in 0..100 {
            backlog.note_leaf(200);
        }
        assert!(backlog.count(ALWAYS - 1, NO_DIRTY_LIMIT, None));
        let room = stage(&backlog, 1000);
        assert!((190..=200).contains(&room), "{room} entries in a leaf");
    }
}

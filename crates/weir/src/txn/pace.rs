//! How writers keep pace with purge.
//!
//! One thread purges, and beside many writers gets little of the processors: what waits for it
//! would grow for as long as they go on, take memory from everything else, and make scans slow. So
//! once much waits that could be purged, a transaction begins to write only when purge has got on
//! by as much as writers have left since, and a little more: what waits becomes less, slowly, and
//! nobody stands still. What a snapshot keeps holds nobody back.

use crate::storage::{Blocked, Waits};
use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Undo records that may wait for purge before writers are held back.
const MOST: u64 = 1 << 16;
/// Of what purge has done, writers may leave as much less as this part of it.
const GAIN: u64 = 16;
/// Most that they may leave at once while they are held back.
const CREDIT_MAX: i64 = 1 << 13;
/// A transaction is held back no longer: purge may be at something that takes long.
const LONGEST: Duration = Duration::from_millis(20);

/// See the module.
#[derive(Debug, Default)]
pub struct Pace {
    /// Undo records that wait for purge.
    waiting: CachePadded<AtomicU64>,
    holds_back: AtomicBool,
    /// Undo records that writers may leave while they are held back.
    credit: AtomicI64,
    turn: Mutex<()>,
    changed: Condvar,
    /// How often, and how long, transactions were held back.
    pub waits: Waits,
}

impl Pace {
    /// A transaction leaves undo records to purge.
    pub fn leave(&self, records: u64) {
        self.waiting.fetch_add(records, Relaxed);
        if self.holds_back.load(Relaxed) {
            self.credit.fetch_sub((records + records / GAIN) as i64, Relaxed);
        }
    }

    /// Purge has been through undo records.
    pub fn pass(&self, records: u64) {
        let less = |waiting: u64| Some(waiting.saturating_sub(records));
        let _ = self.waiting.fetch_update(Relaxed, Relaxed, less);
        if !self.holds_back.load(Relaxed) {
            return;
        }
        let before = self.credit.fetch_add(records as i64, Relaxed);
        if before <= 0 && before + records as i64 > 0 {
            self.wake();
        }
    }

    /// A step of purge has ended. `goes_on`: there is more that no snapshot keeps.
    pub fn judge(&self, goes_on: bool) {
        let held = self.holds_back.load(Relaxed);
        // Once held back, until half of it is gone: else it would be now one, now the other.
        let most = if held { MOST / 2 } else { MOST };
        if goes_on && self.waiting.load(Relaxed) > most {
            self.credit.fetch_min(CREDIT_MAX, Relaxed);
            self.holds_back.store(true, Relaxed);
        } else {
            self.let_go();
        }
    }

    /// Nobody is held back until purge is found to be behind again.
    pub fn let_go(&self) {
        if self.holds_back.swap(false, Relaxed) {
            self.credit.store(0, Relaxed);
            self.wake();
        }
    }

    fn wake(&self) {
        // Whoever has looked and not yet begun to wait holds it.
        drop(self.turn.lock());
        self.changed.notify_all();
    }

    fn is_open(&self) -> bool {
        !self.holds_back.load(Relaxed) || self.credit.load(Relaxed) > 0
    }

    /// A transaction is about to write: waits while purge is behind. Nothing is latched.
    #[inline]
    pub fn keep(&self) {
        if !self.is_open() {
            self.hold_back();
        }
    }

    #[cold]
    fn hold_back(&self) {
        let _blocked = Blocked::begin();
        let began = Instant::now();
        let mut turn = self.turn.lock();
        while !self.is_open() {
            if self.changed.wait_until(&mut turn, began + LONGEST).timed_out() {
                break;
            }
        }
        self.waits.ended(began);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_leave_less_than_is_purged_while_much_waits() {
        let pace = Pace::default();
        pace.judge(true);
        pace.leave(MOST + 1);
        assert!(pace.is_open(), "nobody has found that purge is behind");
        pace.judge(false);
        assert!(pace.is_open(), "a snapshot keeps it");
        pace.judge(true);
        let (mut left, mut purged) = (0, 0);
        while pace.waiting.load(Relaxed) > MOST / 2 {
            if pace.is_open() {
                pace.leave(100);
                left += 100;
            } else {
                pace.pass(50);
                purged += 50;
                pace.judge(true);
            }
        }
        assert!(purged > left && left > purged / 2, "{purged} purged, {left} left");
        pace.judge(true);
        pace.leave(1);
        assert!(pace.is_open(), "half of it is gone");
        assert_eq!(pace.waits.count(), 0);
    }

    #[test]
    fn who_is_held_back_goes_on_once_purge_has_got_on_or_is_at_something_long() {
        for goes_on in [Pace::let_go as fn(&Pace), |pace| pace.pass(1000)] {
            let pace = Pace::default();
            pace.leave(2 * MOST);
            pace.judge(true);
            pace.leave(100);
            assert!(!pace.is_open());
            std::thread::scope(|scope| {
                let writers: Vec<_> = (0..2).map(|_| scope.spawn(|| pace.keep())).collect();
                goes_on(&pace);
                writers.into_iter().for_each(|writer| writer.join().unwrap());
            });
            assert!(pace.is_open());
        }
    }
}

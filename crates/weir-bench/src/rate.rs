//! Rows at a given rate, without catching up.
//!
//! Time is divided into slots of `rows per commit / rate`. Each slot admits one commit. A slot that
//! passes while an earlier commit is still running is lost: after a stall the client goes on at its
//! rate, no faster, so the stall shows as missing inserts. A commit that merely starts late within
//! its own slot moves nothing: the slots stay where they are, and sleeping too long by
//! microseconds does not add up.
//!
//! A commit waits from when it is due: where an earlier one was still running then, its latency
//! begins there and not when it could start at last. So do commits whose slots were lost, until
//! that earlier one ended: otherwise the longest waits would be those that nobody measures.

use std::ops::Range;
use std::time::Duration;

/// Whether a commit may start now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Start it.
    Go,
    /// The next slot begins after this time.
    Wait(Duration),
}

/// Slots in time, each good for one commit.
#[derive(Debug, Clone)]
pub struct Limiter {
    slot: Duration,
    next: u64,
    lost: u64,
    /// The slots that were lost before the last turn.
    left_out: Range<u64>,
}

impl Limiter {
    /// A limiter of `rows_per_second`, in commits of `rows_per_commit`.
    ///
    /// # Panics
    /// When either is zero, or a slot is shorter than a microsecond.
    pub fn new(rows_per_second: u64, rows_per_commit: u32) -> Self {
        assert!(rows_per_second > 0 && rows_per_commit > 0, "a rate is not zero");
        let slot =
            Duration::from_secs(1) * rows_per_commit / rows_per_second.min(u32::MAX.into()) as u32;
        assert!(slot >= Duration::from_micros(1), "a slot takes a microsecond or more");
        Limiter { slot, next: 0, lost: 0, left_out: 0..0 }
    }

    /// Asks for a commit at `now`, the time since the start.
    pub fn poll(&mut self, now: Duration) -> Turn {
        let current = self.slots_by(now);
        if self.next > current {
            return Turn::Wait(self.begins(self.next).saturating_sub(now));
        }
        self.lost += current - self.next;
        self.left_out = self.next..current;
        self.next = current + 1;
        Turn::Go
    }

    /// Since when commit `number`, from 0, of the `of` in this turn waits, at `now`; the one before
    /// it ended at `free`.
    pub fn since(&self, number: u32, of: u32, free: Duration, now: Duration) -> Duration {
        let due = self.begins(self.next - 1) + self.slot * number / of;
        // Who was free in time and starts late has overslept, which is no wait for the engine.
        if due < free { due } else { now }
    }

    /// How long those who were due in each slot that was lost before this turn have waited, until
    /// the commit before it ended at `free`.
    pub fn left_out(&self, free: Duration) -> impl Iterator<Item = Duration> {
        self.waits(self.left_out.clone(), free)
    }

    /// The same for slots that were lost since, until `now`.
    pub fn left_out_by(&self, now: Duration, free: Duration) -> impl Iterator<Item = Duration> {
        self.waits(self.next..self.slots_by(now), free)
    }

    fn waits(&self, slots: Range<u64>, free: Duration) -> impl Iterator<Item = Duration> {
        let wait = move |slot| free.checked_sub(self.begins(slot));
        slots.filter_map(wait).filter(|wait| !wait.is_zero())
    }

    fn begins(&self, slot: u64) -> Duration {
        Duration::from_nanos((self.slot.as_nanos() * u128::from(slot)) as u64)
    }

    /// Slots that passed unused until `now`, those since the last commit began among them.
    pub fn lost_by(&self, now: Duration) -> u64 {
        self.lost + self.slots_by(now).saturating_sub(self.next)
    }

    /// Slots that were over at `now`.
    fn slots_by(&self, now: Duration) -> u64 {
        (now.as_nanos() / self.slot.as_nanos()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Runs commits of the given lengths on a simulated clock; returns their start times.
    fn starts(
        limiter: &mut Limiter,
        until: Duration,
        length: impl Fn(Duration) -> Duration,
    ) -> Vec<Duration> {
        let (mut now, mut starts) = (Duration::ZERO, Vec::new());
        while now < until {
            match limiter.poll(now) {
                Turn::Wait(time) => now += time,
                Turn::Go => {
                    starts.push(now);
                    now += length(now);
                }
            }
        }
        starts
    }

    #[test]
    fn keeps_the_rate_when_commits_are_quick() {
        let mut limiter = Limiter::new(1000, 50);
        let starts = starts(&mut limiter, 10 * SECOND, |_| Duration::from_millis(1));
        assert_eq!(starts.len(), 200);
        assert_eq!(limiter.lost_by(10 * SECOND), 0);
    }

    #[test]
    fn a_stall_is_not_caught_up() {
        let mut limiter = Limiter::new(1000, 50);
        let stalls = |at: Duration| if at == 3 * SECOND { 2 * SECOND } else { SECOND / 1000 };
        let starts = starts(&mut limiter, 10 * SECOND, stalls);
        assert_eq!(starts.len(), 200 - 39, "a stall of 2 s costs the 39 slots inside it");
        assert_eq!(limiter.lost_by(10 * SECOND), 39);
        let after = starts.iter().filter(|&&at| at >= 5 * SECOND && at < 6 * SECOND).count();
        assert_eq!(after, 20, "the second after the stall is no faster than any other");
    }

    #[test]
    fn a_commit_that_lasts_until_the_end_leaves_out_the_others() {
        let mut limiter = Limiter::new(1000, 50);
        assert_eq!(limiter.poll(Duration::ZERO), Turn::Go);
        assert_eq!(limiter.lost_by(SECOND / 40), 0, "its own slot isn't over");
        assert_eq!(limiter.lost_by(SECOND), 19);
    }

    #[test]
    fn who_waits_behind_a_stall_waits_from_when_it_was_due() {
        let ms = Duration::from_millis;
        // Slots of 50 ms with two commits each; the second commit stalls from 1 ms to 190 ms.
        let mut limiter = Limiter::new(1000, 50);
        assert_eq!(limiter.poll(ms(0)), Turn::Go);
        assert_eq!(limiter.since(0, 2, ms(0), ms(0)), ms(0));
        assert_eq!(limiter.since(1, 2, ms(1), ms(1)), ms(1), "it starts before it is due");
        assert_eq!(limiter.poll(ms(190)), Turn::Go);
        let waits: Vec<_> = limiter.left_out(ms(190)).collect();
        assert_eq!(waits, [ms(140), ms(90)], "slots of 50 and 100 ms were lost");
        assert_eq!(limiter.since(0, 2, ms(190), ms(190)), ms(150));
        assert_eq!(limiter.since(1, 2, ms(200), ms(200)), ms(175));
        // Asleep for too long, and free meanwhile.
        assert_eq!(limiter.poll(ms(320)), Turn::Go);
        assert_eq!(limiter.since(0, 2, ms(210), ms(320)), ms(320));
        assert_eq!(limiter.left_out(ms(210)).count(), 1, "the slot of 200 ms");
        let at_end: Vec<_> = limiter.left_out_by(ms(460), ms(500)).collect();
        assert_eq!(at_end, [ms(150), ms(100)]);
    }

    #[test]
    fn oversleeping_does_not_add_up() {
        let mut limiter = Limiter::new(100, 1);
        let (mut now, mut commits) = (Duration::ZERO, 0);
        while now < 10 * SECOND {
            match limiter.poll(now) {
                Turn::Wait(time) => now += time + Duration::from_millis(4),
                Turn::Go => commits += 1,
            }
        }
        assert_eq!(commits, 1000);
    }

    #[test]
    fn a_slow_engine_gets_every_slot_it_can_start_in() {
        let mut limiter = Limiter::new(1000, 50);
        let starts = starts(&mut limiter, 10 * SECOND, |_| Duration::from_millis(75));
        assert!((133..=135).contains(&starts.len()), "{}", starts.len());
    }
}

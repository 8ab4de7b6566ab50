//! Where writers wait: in order, before their first latch.
//!
//! An mtr needs credits for the pages that it may dirty, and space in the log; and while the device
//! can't follow, the log grows no faster than the governor allows. Who finds all of it at once
//! passes. Who doesn't queues up at the gate. The first of the queue waits for what it lacks; the
//! others wait for the first, and so does everybody who comes while it waits. It is one queue for
//! all three causes, so that none is starved of one by those who lack another.
//!
//! As soon as the first has what it lacked, the gate is open to those who come: waking the queue
//! takes its time, in which what is there may be used. (Were they to queue up, too, each would be
//! back before the queue is empty, and all would go at the pace of threads waking one another.) The
//! next of the queue, once awake, is the first: should it lack anything, nobody passes before it
//! does.
//!
//! The page writer never passes the gate, and the first of the queue waits for nothing but
//! the page writer, the device and the clock; see `docs/latching.md`.
//!
//! Background threads that have found nothing to do for a while shut it, too, and sleep: the next
//! writer opens it and wakes them, and queues up for nothing. So those who write all the time look
//! at one number only.
//!
//! # Pacing
//! The log's end and the number of pages that became dirty may each be held to a rate. The
//! allowance is a line in time, `begin + rate * seconds`. Writers pass while the count is below a
//! value published from it, [`QUANTUM`] ahead; who finds it above waits until the line gets there.
//! So the clock is read once a quantum. What is not used is kept for [`BURST`] at most.

mod turns;

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use turns::Turns;

/// How much of the allowance is given out at once.
const QUANTUM: Duration = Duration::from_micros(500);

/// How long an unused allowance is kept.
const BURST: Duration = Duration::from_millis(100);

/// Most writers in the queue.
const QUEUE_MAX: u32 = 1 << 20;

/// Least rates: pacing slows writers down, what stops them are the limits themselves.
const RATES_MIN: Rates = Rates { log: 100e3, dirty: 50.0 };

/// Flag in `state`: writers are paced.
const PACED: u32 = 1 << 31;

/// Flag in `state`: the first of the queue waits for what it lacks.
const BLOCKED: u32 = 1 << 30;

/// Flag in `state`: background threads sleep until somebody writes.
const ASLEEP: u32 = 1 << 29;

const FLAGS: u32 = PACED | BLOCKED | ASLEEP;

/// What a writer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// Space in the log: in its buffer, or the checkpoint is to move.
    Log,
    /// The page writer can't follow: the log may not grow faster.
    Pace,
    /// Too many pages are dirty.
    DirtyLimit,
}

impl Cause {
    fn of(number: u8) -> Cause {
        match number {
            0 => Cause::Log,
            1 => Cause::Pace,
            _ => Cause::DirtyLimit,
        }
    }
}

/// The gate; see the module.
pub struct Gate {
    /// Number of writers in the queue, the first included, and [`FLAGS`].
    state: AtomicU32,
    /// The first of the queue has the turn.
    turns: Turns,
    /// What the first waits for, or the last to wait did.
    cause: AtomicU8,
    log: RateLimit,
    dirty: RateLimit,
}

/// What is counted, and may be held to a rate.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// End of the log.
    pub log_end: u64,
    /// Pages that have become dirty.
    pub dirtied: u64,
}

/// Rates per second, infinite for no limit.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// Bytes of log.
    pub log: f64,
    /// Pages that become dirty.
    pub dirty: f64,
}

impl Rates {
    /// Nothing is held back.
    pub const NO_LIMIT: Rates = Rates { log: f64::INFINITY, dirty: f64::INFINITY };
}

/// Holds a count to a rate.
struct RateLimit {
    /// Writers pass while the count is below.
    open_until: AtomicU64,
    line: Mutex<Line>,
}

/// The allowance: `count` at `time`, and more with time.
struct Line {
    rate: f64,
    time: Instant,
    count: f64,
}

/// The place at the head of the queue.
pub struct Turn<'a> {
    gate: &'a Gate,
    /// Whether others came first.
    pub queued: bool,
}

impl Default for Gate {
    fn default() -> Self {
        Gate {
            state: AtomicU32::new(0),
            turns: Turns::default(),
            cause: AtomicU8::new(0),
            log: RateLimit::default(),
            dirty: RateLimit::default(),
        }
    }
}

impl Gate {
    /// Whether a writer need not queue up; `progress` is asked only while writers are paced.
    #[inline]
    pub fn is_open(&self, progress: impl FnOnce() -> Progress) -> bool {
        match self.state.load(Ordering::Relaxed) & FLAGS {
            0 => true,
            PACED => {
                let at = progress();
                self.log.is_open(at.log_end) && self.dirty.is_open(at.dirtied)
            }
            _ => false,
        }
    }

    /// Background threads are about to sleep: the next writer finds the gate shut, and is to wake
    /// them.
    pub fn wait_for_writer(&self) {
        self.state.fetch_or(ASLEEP, Ordering::Relaxed);
    }

    /// Whether the caller, a writer, is the one that background threads sleep until.
    pub fn ends_sleep(&self) -> bool {
        self.state.fetch_and(!ASLEEP, Ordering::Relaxed) & ASLEEP != 0
    }

    /// Writers who wait for that now.
    pub fn waiting(&self, cause: Cause) -> u64 {
        match self.last_cause() == cause {
            true => u64::from(self.state.load(Ordering::Relaxed) & !FLAGS),
            false => 0,
        }
    }

    /// What the first of the queue waits for, or the last to wait did.
    pub fn last_cause(&self) -> Cause {
        Cause::of(self.cause.load(Ordering::Relaxed))
    }

    /// Queues up; returns when all who came before are through, or have given up. `None`: it gives
    /// up itself. The caller holds no latch.
    pub fn queue_up(&self, gives_up: impl Fn() -> bool) -> Option<Turn<'_>> {
        let before = self.state.fetch_add(1, Ordering::Relaxed) & !FLAGS;
        assert!(before < QUEUE_MAX, "{before} writers wait for their turn");
        let queued = self.turns.take(gives_up);
        if queued.is_none() {
            self.state.fetch_sub(1, Ordering::Relaxed);
        }
        queued.map(|queued| Turn { gate: self, queued })
    }

    /// Has all in the queue look whether they give up.
    pub fn wake_all(&self) {
        self.turns.wake_all();
    }

    /// Holds writers to `rates` from `now` on.
    pub fn set_rates(&self, rates: Rates, at: Progress, now: Instant) {
        self.log.set_rate(rates.log.max(RATES_MIN.log), at.log_end, now);
        self.dirty.set_rate(rates.dirty.max(RATES_MIN.dirty), at.dirtied, now);
        match rates.log.is_infinite() && rates.dirty.is_infinite() {
            true => self.state.fetch_and(!PACED, Ordering::Relaxed),
            false => self.state.fetch_or(PACED, Ordering::Relaxed),
        };
    }
}

impl Default for RateLimit {
    fn default() -> Self {
        let line = Line { rate: f64::INFINITY, time: Instant::now(), count: 0.0 };
        RateLimit { open_until: AtomicU64::new(u64::MAX), line: Mutex::new(line) }
    }
}

impl RateLimit {
    fn is_open(&self, count: u64) -> bool {
        count < self.open_until.load(Ordering::Relaxed)
    }

    fn set_rate(&self, rate: f64, count: u64, now: Instant) {
        let mut line = self.line.lock();
        if rate.is_infinite() {
            line.rate = rate;
            self.open_until.store(u64::MAX, Ordering::Relaxed);
            return;
        }
        let allowed = match line.rate.is_infinite() {
            true => count as f64,
            false => line.allowed(count, now),
        };
        *line = Line { rate, time: now, count: allowed };
        self.open_until.store(line.open_until(), Ordering::Relaxed);
    }

    /// How long to wait until the count may grow; publishes what it may.
    fn delay(&self, count: u64, now: Instant) -> Option<Duration> {
        if self.is_open(count) {
            return None;
        }
        let mut line = self.line.lock();
        if line.rate.is_infinite() {
            return None;
        }
        line.count = line.allowed(count, now);
        line.time = now;
        let until = line.open_until();
        if count < until {
            self.open_until.store(until, Ordering::Relaxed);
            return None;
        }
        let seconds = (count as f64 - line.count) / line.rate;
        Some(Duration::from_secs_f64(seconds.min(1.0)))
    }
}

impl Line {
    /// What is allowed by `now`, with the count where it is.
    fn allowed(&self, count: u64, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.time).as_secs_f64();
        let most = count as f64 + self.rate * BURST.as_secs_f64();
        (self.count + self.rate * passed).min(most)
    }

    fn open_until(&self) -> u64 {
        (self.count + self.rate * QUANTUM.as_secs_f64()).ceil() as u64
    }
}

impl Turn<'_> {
    /// How long to wait until writers may go on, and why.
    pub fn delay(&self, at: Progress) -> Option<(Duration, Cause)> {
        let now = Instant::now();
        let log = self.gate.log.delay(at.log_end, now).map(|wait| (wait, Cause::Pace));
        log.or_else(|| self.gate.dirty.delay(at.dirtied, now).map(|w| (w, Cause::DirtyLimit)))
    }

    /// The first of the queue waits for that: nobody passes until it is through.
    pub fn waits_for(&self, cause: Cause) {
        self.gate.cause.store(cause as u8, Ordering::Relaxed);
        self.gate.state.fetch_or(BLOCKED, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.gate.state.fetch_and(!BLOCKED, Ordering::Relaxed);
        self.gate.turns.pass_on();
        self.gate.state.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const START: Progress = Progress { log_end: 0, dirtied: 0 };

    #[test]
    fn nobody_passes_while_the_first_waits_and_everybody_once_it_is_through() {
        let gate = Gate::default();
        assert!(gate.is_open(|| unreachable!("nobody is paced")));
        let turn = gate.queue_up(|| false).unwrap();
        assert!(!turn.queued);
        assert!(gate.is_open(|| unreachable!("nobody is paced")), "it lacks nothing yet");
        turn.waits_for(Cause::DirtyLimit);
        assert!(!gate.is_open(|| START));
        assert_eq!((gate.waiting(Cause::DirtyLimit), gate.waiting(Cause::Log)), (1, 0));
        drop(turn);
        assert!(gate.is_open(|| START));
    }

    #[test]
    fn a_sleep_shuts_the_gate_until_one_writer_ends_it_and_changes_nothing_else() {
        let gate = Gate::default();
        let turn = gate.queue_up(|| false).unwrap();
        turn.waits_for(Cause::DirtyLimit);
        gate.wait_for_writer();
        gate.wait_for_writer();
        assert_eq!(gate.waiting(Cause::DirtyLimit), 1);
        assert!(gate.ends_sleep() && !gate.ends_sleep(), "one of them");
        assert!(!gate.is_open(|| START), "the first still waits");
        drop(turn);
        gate.wait_for_writer();
        assert!(!gate.is_open(|| START));
        assert!(gate.ends_sleep());
        assert!(gate.is_open(|| unreachable!("nobody is paced")));
    }

    #[test]
    fn who_comes_while_somebody_waits_queues_up_and_comes_through() {
        let gate = std::sync::Arc::new(Gate::default());
        let first = gate.queue_up(|| false).unwrap();
        let threads: Vec<_> = (0..5)
            .map(|_| {
                let gate = gate.clone();
                std::thread::spawn(move || gate.queue_up(|| false).unwrap().queued)
            })
            .collect();
        while gate.turns.waiting() < 5 {
            std::thread::yield_now();
        }
        assert_eq!(gate.waiting(Cause::Log), 6);
        drop(first);
        assert!(threads.into_iter().all(|t| t.join().unwrap()));
        assert!(gate.is_open(|| START));
    }

    #[test]
    fn writers_are_held_to_either_rate() {
        let gate = Gate::default();
        let now = Instant::now();
        gate.set_rates(Rates { log: 1e6, dirty: 1000.0 }, START, now);
        assert!(gate.is_open(|| START));
        let turn = gate.queue_up(|| false).unwrap();
        assert_eq!(turn.delay(Progress { log_end: 0, dirtied: 0 }), None);
        let far = Progress { log_end: 1 << 30, dirtied: 0 };
        assert_eq!(turn.delay(far), Some((1000 * MS, Cause::Pace)));
        let far = Progress { log_end: 0, dirtied: 1 << 20 };
        assert_eq!(turn.delay(far), Some((1000 * MS, Cause::DirtyLimit)));
        drop(turn);
        gate.set_rates(Rates::NO_LIMIT, far, now);
        assert!(gate.is_open(|| unreachable!("nobody is paced")));
    }

    #[test]
    fn a_count_grows_along_the_line() {
        let limit = RateLimit::default();
        let start = Instant::now();
        let mut count = 1_000_000;
        limit.set_rate(1e6, count, start);
        // Groups of 100 bytes for 100 ms, each as soon as it may.
        let mut now = start;
        while now < start + 100 * MS {
            match limit.delay(count, now) {
                Some(wait) => now += wait,
                None => count += 100,
            }
        }
        let grown = count - 1_000_000;
        assert!((100_000..=101_000).contains(&grown), "{grown} bytes in 100 ms at 1 MB/s");
    }

    #[test]
    fn an_idle_second_is_not_made_up_for() {
        let limit = RateLimit::default();
        let start = Instant::now();
        limit.set_rate(1e6, 0, start);
        let later = start + 1000 * MS;
        let mut count = 600;
        while limit.delay(count, later).is_none() {
            count += 100;
        }
        assert!(count <= 101_200, "{count} bytes at once");
    }

    #[test]
    fn a_new_rate_takes_over() {
        let limit = RateLimit::default();
        let now = Instant::now();
        limit.set_rate(1e6, 5000, now);
        assert_eq!(limit.delay(15_000, now).unwrap(), 10 * MS);
        limit.set_rate(1e7, 15_000, now);
        assert_eq!(limit.delay(15_000, now).unwrap(), MS);
        limit.set_rate(f64::INFINITY, 15_000, now);
        assert_eq!(limit.delay(15_000, now), None);
    }
}

//! What one client thread does: write, query or scan its table.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::accounting::thread_cpu;
use crate::engine::{Index, Scanned, Session};
use crate::error::{Error, Result};
use crate::phase::{Done, Live};
use crate::rate::{Limiter, Turn};
use crate::row::{CASH_REGISTERS, Generator, IndexKey, Row, Secondary, random_start};
use crate::series::Recorder;

/// Rows or keys made at a time, so that the clock that tells clients from engine is read seldom.
const BLOCK: usize = 256;
/// Entries that one range query reads.
const RANGE_LIMIT: usize = 10;
/// A client at a given rate has turns of at least this part of a second.
const TURNS_PER_SECOND: u64 = 100;
/// The longest that a waiting client sleeps before it looks whether it is to stop.
const NAP: Duration = Duration::from_millis(50);

/// The ids of the rows in a table: `oldest..next`.
pub struct TableIds {
    oldest: AtomicU64,
    next: AtomicU64,
}

impl TableIds {
    /// Of an empty table: ids begin at 1.
    pub fn empty() -> Self {
        TableIds { oldest: AtomicU64::new(1), next: AtomicU64::new(1) }
    }

    /// The ids now in the table.
    pub fn range(&self) -> Range<u64> {
        self.oldest.load(Ordering::Acquire)..self.next.load(Ordering::Acquire)
    }
}

/// What every client needs to know.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    /// Engine's name, for errors.
    pub engine: &'static str,
    /// Its table.
    pub table: u32,
    /// The table's rows.
    pub ids: &'a TableIds,
    /// Makes the rows.
    pub generator: Generator,
    /// The number of the run's step, from 0.
    pub step: u64,
    /// For the progress line.
    pub live: &'a Live,
    /// Set when the run is to end early.
    pub stop: &'a AtomicBool,
}

/// What a writing client is to do.
#[derive(Debug, Clone, Copy)]
pub struct WritePlan {
    /// Rows to insert; `u64::MAX` for no limit.
    pub rows: u64,
    /// Rows per commit.
    pub commit: u32,
    /// Whether each insert deletes the oldest row.
    pub delete: bool,
    /// Inserts per second, when limited.
    pub rate: Option<u64>,
    /// When to end, at the latest.
    pub time: Option<Duration>,
}

/// What a writing client did.
pub struct Written {
    /// Per second and per commit.
    pub recorder: Recorder,
    /// Rows deleted.
    pub deletes: u64,
    /// Commits that a limited client had to leave out.
    pub commits_lost: u64,
}

impl Client<'_> {
    /// Inserts rows as `plan` says.
    ///
    /// # Errors
    /// The engine's.
    pub fn write(
        &self,
        session: &mut dyn Session,
        start: Instant,
        plan: WritePlan,
    ) -> Result<Done<Written>> {
        let commit = plan.commit as usize;
        let rows_at_once = plan.rate.map_or(BLOCK, rows_of_turn);
        let commits = (rows_at_once / commit).max(1);
        let block = commit * commits;
        let mut limiter = plan.rate.map(|rate| Limiter::new(rate, block as u32));
        let mut written = Written { recorder: Recorder::new(start), deletes: 0, commits_lost: 0 };
        let mut rows = Vec::with_capacity(block);
        let mut client_cpu = Duration::ZERO;
        let mut left = plan.rows;
        while left > 0 && self.wait_turn(start, plan.time, limiter.as_mut()) {
            let cpu = thread_cpu();
            let next = self.ids.range().end;
            rows.clear();
            self.generator.rows(self.table, next..next + left.min(block as u64), &mut rows);
            client_cpu += thread_cpu().saturating_sub(cpu);
            count_left_out(limiter.as_ref(), &mut written.recorder, commits as u64);
            for (number, batch) in (0..).zip(rows.chunks(commit)) {
                let due = limiter.as_ref().map(|limiter| (limiter, number, commits as u32));
                self.commit(session, start, batch, plan.delete, due, &mut written)?;
                left -= batch.len() as u64;
            }
        }
        let end = if left > 0 { end_of_turns(start, plan.time) } else { Duration::ZERO };
        count_left_out_by(end, limiter.as_ref(), &mut written.recorder, commits as u64);
        written.commits_lost = limiter.map_or(0, |limiter| limiter.lost_by(end) * commits as u64);
        Ok(Done { value: written, client_cpu })
    }

    fn commit(
        &self,
        session: &mut dyn Session,
        start: Instant,
        rows: &[Row],
        delete: bool,
        due: Option<Due>,
        written: &mut Written,
    ) -> Result<()> {
        let (oldest, count) = (self.ids.range().start, rows.len() as u64);
        let delete = if delete { oldest..oldest + count } else { oldest..oldest };
        let began = Instant::now();
        session.write(rows, delete.clone())?;
        let ended = Instant::now();
        let since = since(due, start, began, &written.recorder);
        written.recorder.record(since, ended, count);
        written.deletes += delete.end - delete.start;
        self.ids.next.fetch_add(count, Ordering::Release);
        self.ids.oldest.store(delete.end, Ordering::Release);
        self.live.inserts.fetch_add(count, Ordering::Relaxed);
        let latency_us = (ended - since).as_micros() as u64;
        self.live.insert_us_max.fetch_max(latency_us, Ordering::Relaxed);
        Ok(())
    }

    /// Changes an indexed column of `rows` random rows, each in a transaction of its own, until
    /// `time`, `rate` per second.
    ///
    /// # Errors
    /// The engine's.
    pub fn update(
        &self,
        session: &mut dyn Session,
        start: Instant,
        rows: u64,
        time: Option<Duration>,
        rate: Option<u64>,
    ) -> Result<Done<Written>> {
        let rows_at_once = rate.map_or(BLOCK, rows_of_turn) as u64;
        let mut limiter = rate.map(|rate| Limiter::new(rate, rows_at_once as u32));
        let mut random = fastrand::Rng::with_seed(self.generator.step_seed(self.table, self.step));
        let mut written = Written { recorder: Recorder::new(start), deletes: 0, commits_lost: 0 };
        let mut left = rows;
        while left > 0 && self.wait_turn(start, time, limiter.as_mut()) {
            let (ids, block) = (self.ids.range(), left.min(rows_at_once));
            count_left_out(limiter.as_ref(), &mut written.recorder, rows_at_once);
            let mut began = Instant::now();
            for number in 0..block as u32 {
                session.update(random.u64(ids.clone()), random.u32(..CASH_REGISTERS))?;
                let ended = Instant::now();
                let due = limiter.as_ref().map(|limiter| (limiter, number, rows_at_once as u32));
                let since = since(due, start, began, &written.recorder);
                written.recorder.record(since, ended, 1);
                let latency_us = (ended - since).as_micros() as u64;
                self.live.insert_us_max.fetch_max(latency_us, Ordering::Relaxed);
                began = ended;
            }
            left -= block;
            self.live.inserts.fetch_add(block, Ordering::Relaxed);
        }
        let end = if left > 0 { end_of_turns(start, time) } else { Duration::ZERO };
        count_left_out_by(end, limiter.as_ref(), &mut written.recorder, rows_at_once);
        written.commits_lost = limiter.map_or(0, |limiter| limiter.lost_by(end) * rows_at_once);
        Ok(Done { value: written, client_cpu: Duration::ZERO })
    }

    /// Waits for a slot; `false` when it is time to end.
    fn wait_turn(
        &self,
        start: Instant,
        time: Option<Duration>,
        mut limiter: Option<&mut Limiter>,
    ) -> bool {
        loop {
            let now = start.elapsed();
            if self.stop.load(Ordering::Relaxed) || time.is_some_and(|time| now >= time) {
                return false;
            }
            match limiter.as_mut().map_or(Turn::Go, |limiter| limiter.poll(now)) {
                Turn::Go => return true,
                Turn::Wait(wait) => thread::sleep(wait.min(NAP)),
            }
        }
    }
}

/// Who tells when a commit is due, its number in its turn, and how many a turn has.
type Due<'a> = (&'a Limiter, u32, u32);

/// Since when a commit waits that began at `began`; those before it are recorded.
fn since(due: Option<Due>, start: Instant, began: Instant, recorder: &Recorder) -> Instant {
    let Some((limiter, number, of)) = due else { return began };
    start + limiter.since(number, of, recorder.end(), began.saturating_duration_since(start))
}

/// Those who were left out before this turn have waited, too: `commits` in each.
fn count_left_out(limiter: Option<&Limiter>, recorder: &mut Recorder, commits: u64) {
    let Some(limiter) = limiter else { return };
    let free = recorder.end();
    limiter.left_out(free).for_each(|latency| recorder.left_out(latency, commits));
}

/// And those since the last turn, until `end`.
fn count_left_out_by(
    end: Duration,
    limiter: Option<&Limiter>,
    recorder: &mut Recorder,
    commits: u64,
) {
    let Some(limiter) = limiter else { return };
    let free = recorder.end();
    limiter.left_out_by(end, free).for_each(|latency| recorder.left_out(latency, commits));
}

/// Until when a client had turns that has not done all its rows: a commit may have ended later.
fn end_of_turns(start: Instant, time: Option<Duration>) -> Duration {
    let now = start.elapsed();
    time.map_or(now, |time| time.min(now))
}

/// Rows that a client at `rate` rows per second does in a turn.
fn rows_of_turn(rate: u64) -> usize {
    (rate / TURNS_PER_SECOND).max(1) as usize
}

/// What a querying client did.
pub struct Queried {
    /// Per second and per query.
    pub recorder: Recorder,
    /// Rows or entries read.
    pub rows: u64,
    /// Lookups that found nothing.
    pub missed: u64,
    /// Processor time inside the engine.
    pub thread_cpu: Duration,
}

impl Client<'_> {
    /// Reads short ranges of each secondary index in turn, from random places, for `time`.
    ///
    /// # Errors
    /// The engine's.
    pub fn range_queries(
        &self,
        session: &mut dyn Session,
        start: Instant,
        time: Duration,
    ) -> Result<Done<Queried>> {
        let mut entries = Vec::with_capacity(RANGE_LIMIT);
        let make = |ids: &Range<u64>, random: &mut fastrand::Rng, turn: usize| {
            let index = Secondary::ALL[turn % 3];
            (index, random_start(index, ids, random))
        };
        let ask = |(index, key): &(Secondary, IndexKey), queried: &mut Queried| {
            entries.clear();
            session.range(*index, key, RANGE_LIMIT, &mut entries)?;
            queried.rows += entries.len() as u64;
            Ok(())
        };
        self.queries(start, time, make, ask)
    }

    /// Looks up random rows by primary key, for `time`.
    ///
    /// # Errors
    /// The engine's, and a row that is missing although nobody deletes.
    pub fn point_queries(
        &self,
        session: &mut dyn Session,
        start: Instant,
        time: Duration,
        deletes: bool,
    ) -> Result<Done<Queried>> {
        let make = |ids: &Range<u64>, random: &mut fastrand::Rng, _| random.u64(ids.clone());
        let ask = |id: &u64, queried: &mut Queried| {
            match session.get(*id)? {
                Some(_) => queried.rows += 1,
                None if deletes => queried.missed += 1,
                None => return Err(self.contents(format!("row {id} is missing"))),
            }
            Ok(())
        };
        self.queries(start, time, make, ask)
    }

    fn queries<K>(
        &self,
        start: Instant,
        time: Duration,
        make: impl Fn(&Range<u64>, &mut fastrand::Rng, usize) -> K,
        mut ask: impl FnMut(&K, &mut Queried) -> Result<()>,
    ) -> Result<Done<Queried>> {
        let mut random = fastrand::Rng::with_seed(self.generator.step_seed(self.table, self.step));
        let recorder = Recorder::new(start);
        let mut queried = Queried { recorder, rows: 0, missed: 0, thread_cpu: Duration::ZERO };
        let mut keys = Vec::with_capacity(BLOCK);
        let (begin, mut client_cpu) = (thread_cpu(), Duration::ZERO);
        while start.elapsed() < time && !self.stop.load(Ordering::Relaxed) {
            let cpu = thread_cpu();
            let ids = self.ids.range();
            keys.clear();
            keys.extend((0..BLOCK).map(|turn| make(&ids, &mut random, turn)));
            client_cpu += thread_cpu().saturating_sub(cpu);
            let mut began = Instant::now();
            for key in &keys {
                ask(key, &mut queried)?;
                let ended = Instant::now();
                queried.recorder.record(began, ended, 1);
                began = ended;
                if ended.saturating_duration_since(start) >= time {
                    break;
                }
            }
            self.live.queries.fetch_add(BLOCK as u64, Ordering::Relaxed);
        }
        queried.thread_cpu = thread_cpu().saturating_sub(begin).saturating_sub(client_cpu);
        Ok(Done { value: queried, client_cpu })
    }

    /// Creates the table's secondary indexes.
    ///
    /// # Errors
    /// The engine's; [`Error::Interrupted`].
    pub fn create_indexes(&self, session: &mut dyn Session) -> Result<Done<()>> {
        session.create_indexes(self.stop).map_err(|error| self.unless_stopped(error))?;
        Ok(Done { value: (), client_cpu: Duration::ZERO })
    }

    /// Scans `index` and checks that every row was seen.
    ///
    /// # Errors
    /// The engine's, and a scan that saw other rows than those in the table;
    /// [`Error::Interrupted`].
    pub fn scan(&self, session: &mut dyn Session, index: Index) -> Result<Done<u64>> {
        let scanned = session.scan(index, self.stop).map_err(|error| self.unless_stopped(error))?;
        let Scanned { rows, id_xor, .. } = scanned;
        let expected = expected_scan(&self.ids.range());
        if (rows, id_xor) != expected {
            let name = index.name();
            let message = format!("scan of {name} saw {:?}, expected {expected:?}", (rows, id_xor));
            return Err(self.contents(message));
        }
        Ok(Done { value: rows, client_cpu: Duration::ZERO })
    }

    /// What an operation has failed with, if it wasn't told to end.
    fn unless_stopped(&self, error: Error) -> Error {
        if self.stop.load(Ordering::Relaxed) { Error::Interrupted } else { error }
    }

    fn contents(&self, message: String) -> Error {
        let message = format!("table {}: {message}", self.table + 1);
        Error::Contents { engine: self.engine, message }
    }
}

/// What a scan of a table with the rows `ids` must see: how many, and their ids by exclusive or.
fn expected_scan(ids: &Range<u64>) -> (u64, u64) {
    (ids.end - ids.start, ids.clone().fold(0u64, |xor, id| xor ^ id))
}

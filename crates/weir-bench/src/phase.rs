//! Several clients at work at the same time, and somebody who looks at the clock.
//!
//! All clients connect first; then a gate opens and time begins. The calling thread samples the
//! process once a second and reports progress until the last client is done.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::accounting::{Place, Usage};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::result::{Measured, Second};
use crate::series::Series;

/// What every phase of a run shares.
pub struct Context<'a> {
    /// The open database.
    pub engine: &'a dyn Engine,
    /// Where it works and has its files.
    pub place: &'a Place,
    /// Set when the run is to end early.
    pub stop: &'a AtomicBool,
    /// Called once a second.
    pub progress: &'a mut dyn FnMut(&Progress),
}

/// A look at a running phase.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    /// The step, and which part of it.
    pub title: String,
    /// Since the phase's start.
    pub elapsed: Duration,
    /// Part of the work that is done, when that is known.
    pub share: Option<f64>,
    /// Rows inserted in the last second.
    pub inserts: f64,
    /// Queries answered in the last second.
    pub queries: f64,
    /// Transactions of TPC-C ended in the last second.
    pub transactions: f64,
    /// The longest commit of the last second.
    pub insert_us_max: u64,
    /// Megabytes sent to the device in the last second.
    pub write_mb: f64,
    /// Resident memory.
    pub resident_bytes: u64,
}

/// Counters that clients add to now and then, for the progress line only.
#[derive(Default)]
pub struct Live {
    /// Rows inserted.
    pub inserts: AtomicU64,
    /// Queries answered.
    pub queries: AtomicU64,
    /// Transactions of TPC-C.
    pub transactions: AtomicU64,
    /// Longest commit since somebody looked.
    pub insert_us_max: AtomicU64,
    /// Rows that will have been inserted in the end; 0 when not known.
    pub inserts_expected: u64,
}

/// What a client brings back.
pub struct Done<T> {
    /// Its result.
    pub value: T,
    /// Processor time it spent outside the engine.
    pub client_cpu: Duration,
}

/// A client's work: called with its connection and the common start.
pub type Work<'a, S, T> = Box<dyn FnOnce(S, Instant) -> Result<Done<T>> + Send + 'a>;

/// What a client does, on a thread of its own.
pub struct Job<'a, S, T> {
    /// Connects, before time begins.
    pub connect: Box<dyn FnOnce() -> Result<S> + Send + 'a>,
    /// The work.
    pub work: Work<'a, S, T>,
}

/// What came of a phase.
pub struct Phase<T> {
    /// The clients' results, in the order of the jobs.
    pub results: Vec<T>,
    /// Time and resources.
    pub measured: Measured,
    /// One sample per second.
    pub samples: Vec<Second>,
}

/// Runs all jobs at the same time, each on a thread of its own.
///
/// # Errors
/// The first client's error; the others are told to stop and waited for. [`Error::Interrupted`] is
/// no client's fault, and counts only where there is no other.
pub fn run<S, T: Send>(
    context: &mut Context,
    title: &str,
    live: &Live,
    jobs: Vec<Job<S, T>>,
) -> Result<Phase<T>> {
    let gate = Gate { barrier: Barrier::new(jobs.len() + 1), start: OnceLock::new() };
    let (sender, receiver) = mpsc::channel();
    let (stop, count) = (context.stop, jobs.len());
    thread::scope(|scope| {
        for (client, job) in jobs.into_iter().enumerate() {
            let (sender, gate) = (sender.clone(), &gate);
            scope.spawn(move || {
                let connected = (job.connect)();
                let start = gate.pass();
                let done = connected.and_then(|connection| (job.work)(connection, start));
                if done.is_err() {
                    stop.store(true, Ordering::Relaxed);
                }
                // The receiver outlives the scope, so that sending can't fail.
                let _ = sender.send((client, done));
            });
        }
        drop(sender);
        let sampler = Sampler::new(context, title, live);
        let watched = watch(sampler, gate.pass(), count, &receiver);
        if watched.is_err() {
            // Nobody could tell what the clients do from here on.
            stop.store(true, Ordering::Relaxed);
        }
        let (mut results, mut measured, samples) = watched?;
        let is_fault = |done: &Result<Done<T>>| !matches!(done, Ok(_) | Err(Error::Interrupted));
        if let Some(fault) = results.iter().position(is_fault) {
            results.swap(0, fault);
        }
        let results = results.into_iter().collect::<Result<Vec<_>>>()?;
        if context.place.is_here() {
            let cpu: Duration = results.iter().map(|done| done.client_cpu).sum();
            measured.client_cpu_us += cpu.as_micros() as u64;
        }
        let results = results.into_iter().map(|done| done.value).collect();
        Ok(Phase { results, measured, samples })
    })
}

type Reports<T> = Vec<Result<Done<T>>>;

/// Samples once a second until all clients have reported; their reports in the order of the
/// clients.
fn watch<T>(
    mut sampler: Sampler,
    start: Instant,
    clients: usize,
    receiver: &mpsc::Receiver<(usize, Result<Done<T>>)>,
) -> Result<(Reports<T>, Measured, Vec<Second>)> {
    sampler.begin(start)?;
    let mut reports: BTreeMap<usize, Result<Done<T>>> = BTreeMap::new();
    while reports.len() < clients {
        match receiver.recv_timeout(sampler.until_next()) {
            Ok((client, done)) => {
                reports.insert(client, done);
            }
            Err(RecvTimeoutError::Timeout) => sampler.sample()?,
            // The scope tells of it, and of which.
            Err(RecvTimeoutError::Disconnected) => panic!("a client's thread panicked"),
        }
    }
    let (measured, samples) = sampler.finish()?;
    Ok((reports.into_values().collect(), measured, samples))
}

struct Gate {
    barrier: Barrier,
    start: OnceLock<Instant>,
}

impl Gate {
    fn pass(&self) -> Instant {
        self.barrier.wait();
        *self.start.get_or_init(Instant::now)
    }
}

struct Sampler<'a, 'b> {
    context: &'a mut Context<'b>,
    live: &'a Live,
    progress: Progress,
    start: Instant,
    first: Usage,
    first_reads: u64,
    last: Usage,
    last_at: Instant,
    clients_cpu: Duration,
    resident_max: u64,
    inserts: u64,
    queries: u64,
    transactions: u64,
    samples: Vec<Second>,
}

impl<'a, 'b> Sampler<'a, 'b> {
    fn new(context: &'a mut Context<'b>, title: &str, live: &'a Live) -> Self {
        let now = Instant::now();
        Sampler {
            context,
            live,
            progress: Progress { title: title.to_string(), ..Progress::default() },
            start: now,
            first: Usage::default(),
            first_reads: 0,
            last: Usage::default(),
            last_at: now,
            clients_cpu: Duration::ZERO,
            resident_max: 0,
            inserts: 0,
            queries: 0,
            transactions: 0,
            samples: Vec::new(),
        }
    }

    fn begin(&mut self, start: Instant) -> Result<()> {
        (self.start, self.last_at) = (start, start);
        self.clients_cpu = self.context.place.clients_cpu();
        self.first = self.context.place.usage()?;
        self.first_reads = self.context.engine.device_reads().unwrap_or(0);
        self.last = self.first;
        Ok(())
    }

    fn until_next(&self) -> Duration {
        let next = self.start + Duration::from_secs(self.samples.len() as u64 + 1);
        next.saturating_duration_since(Instant::now())
    }

    fn sample(&mut self) -> Result<()> {
        let (now, usage) = (Instant::now(), self.context.place.usage()?);
        let resident_bytes = self.context.place.resident_bytes()?;
        let second = Second {
            second: self.samples.len() as u32,
            usage: usage.since(&self.last),
            sample_seconds: (now - self.last_at).as_secs_f64(),
            resident_bytes,
            engine: self.context.engine.status().into_iter().collect::<BTreeMap<_, _>>(),
            ..Second::default()
        };
        (self.last, self.last_at) = (usage, now);
        self.resident_max = self.resident_max.max(resident_bytes);
        self.report(now, &second);
        self.samples.push(second);
        Ok(())
    }

    fn report(&mut self, now: Instant, second: &Second) {
        let inserts = self.live.inserts.load(Ordering::Relaxed);
        let queries = self.live.queries.load(Ordering::Relaxed);
        let transactions = self.live.transactions.load(Ordering::Relaxed);
        let per_second = 1.0 / second.sample_seconds.max(0.001);
        let progress = &mut self.progress;
        progress.elapsed = now - self.start;
        progress.inserts = (inserts - self.inserts) as f64 * per_second;
        progress.queries = (queries - self.queries) as f64 * per_second;
        progress.transactions = (transactions - self.transactions) as f64 * per_second;
        progress.insert_us_max = self.live.insert_us_max.swap(0, Ordering::Relaxed);
        progress.write_mb = second.usage.write_bytes as f64 / 1048576.0 * per_second;
        progress.resident_bytes = second.resident_bytes;
        let expected = self.live.inserts_expected;
        progress.share = (expected > 0).then(|| inserts as f64 / expected as f64);
        (self.inserts, self.queries, self.transactions) = (inserts, queries, transactions);
        (self.context.progress)(&self.progress);
    }

    fn finish(mut self) -> Result<(Measured, Vec<Second>)> {
        let seconds = self.start.elapsed().as_secs_f64();
        self.sample()?;
        let (reads, place) = (self.context.engine.device_reads(), self.context.place);
        let measured = Measured {
            seconds,
            usage: self.last.since(&self.first),
            device_reads: reads.map(|reads| reads.saturating_sub(self.first_reads)),
            client_cpu_us: (place.clients_cpu() - self.clients_cpu).as_micros() as u64,
            resident_bytes_max: self.resident_max,
            size_bytes: place.size_bytes(),
            unwritten_bytes: self.context.engine.unwritten_bytes(),
            unseen: !place.is_seen(),
        };
        Ok((measured, self.samples))
    }
}

/// Puts the clients' exact counts per second beside the samples.
pub fn join(mut samples: Vec<Second>, inserts: &Series, queries: &Series) -> Vec<Second> {
    let len = samples.len().max(inserts.cells.len()).max(queries.cells.len());
    // Operations that end after the last sample make one more second: what it lacks is as before.
    let last = samples.last().cloned().unwrap_or_default();
    let lacking = Second { usage: Usage::default(), sample_seconds: 0.0, ..last };
    samples.resize(len, lacking);
    for (second, sample) in samples.iter_mut().enumerate() {
        sample.second = second as u32;
        if let Some(cell) = inserts.cells.get(second) {
            sample.inserts = cell.done;
            (sample.insert_us_99, sample.insert_us_max) = (cell.latency_us_99, cell.latency_us_max);
        }
        if let Some(cell) = queries.cells.get(second) {
            sample.queries = cell.done;
            (sample.query_us_99, sample.query_us_max) = (cell.latency_us_99, cell.latency_us_max);
        }
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{EngineKind, EngineOptions};

    fn model() -> Box<dyn Engine> {
        let options = EngineOptions {
            dir: std::env::temp_dir(),
            memory_bytes: 0,
            redo_bytes: 0,
            durability: crate::Durability::Write,
            clients: 2,
            disk: Default::default(),
            status_listen: None,
            flush: Default::default(),
            server: None,
        };
        crate::engines::open(EngineKind::Model, &options).expect("it needs nothing")
    }

    /// What becomes of two clients, of which the second does `work` and the first waits to be told
    /// to stop.
    fn two_clients(place: &Place, work: fn() -> Result<()>) -> Result<Phase<()>> {
        let (engine, stop) = (model(), AtomicBool::new(false));
        let mut progress = |_: &Progress| {};
        let mut context =
            Context { engine: engine.as_ref(), place, stop: &stop, progress: &mut progress };
        let done = || Done { value: (), client_cpu: Duration::ZERO };
        let waits = || {
            while !stop.load(Ordering::Relaxed) {
                thread::yield_now();
            }
        };
        let first: Work<(), ()> = Box::new(|_, _| {
            waits();
            Ok(done())
        });
        let second: Work<(), ()> = Box::new(|_, _| work().map(|()| done()));
        let job = |work| Job { connect: Box::new(|| Ok(())), work };
        let jobs = vec![job(first), job(second)];
        run(&mut context, "test", &Live::default(), jobs)
    }

    #[test]
    fn one_client_that_fails_stops_the_others() {
        let here = Place::Here { dir: std::env::temp_dir() };
        let failed = two_clients(&here, || Err(Error::Usage("no more".into())));
        assert_eq!(failed.err().expect("it failed").to_string(), "no more");
    }

    #[test]
    fn a_client_that_fails_is_told_of_before_those_that_were_stopped() {
        let (engine, stop) = (model(), AtomicBool::new(false));
        let place = Place::Here { dir: std::env::temp_dir() };
        let mut progress = |_: &Progress| {};
        let engine = engine.as_ref();
        let mut context = Context { engine, place: &place, stop: &stop, progress: &mut progress };
        let fails = |error: Error| {
            let work: Work<(), ()> = Box::new(|_, _| Err(error));
            Job { connect: Box::new(|| Ok(())), work }
        };
        let jobs = vec![fails(Error::Interrupted), fails(Error::Usage("no more".into()))];
        let failed = run(&mut context, "test", &Live::default(), jobs);
        assert_eq!(failed.err().expect("it failed").to_string(), "no more");
    }

    #[test]
    fn a_server_that_is_gone_stops_the_clients() {
        let gone = Place::Process { pid: u32::MAX, dir: "/".into(), except: None };
        let failed = two_clients(&gone, || Ok(()));
        assert!(failed.err().expect("it failed").to_string().contains("/proc/"));
    }
}

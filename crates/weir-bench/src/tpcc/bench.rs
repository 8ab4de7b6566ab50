//! One open engine: its tables are filled, clients run, the books are checked.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use super::client::{Client, Worked};
use super::document::{Run, Second};
use super::population::{Filler, first_history_number, rows_of};
use super::random::DISTRICTS;
use super::store::Store;
use super::transactions::{Deck, Kind};
use super::{Listener, Opened, Plan};
use crate::error::{Error, Result};
use crate::percentile::rate_99;
use crate::phase::{self, Context, Done, Job, Live, Phase, Progress};
use crate::quantity::counted;
use crate::result::Measured;
use crate::series::{Recorder, Series};

/// An engine at work.
pub struct Bench<'a> {
    plan: &'a Plan,
    /// For the progress line.
    label: String,
    pub opened: Opened,
    /// Orders that there must be.
    orders: u64,
    /// The next history row's number.
    history: AtomicI64,
    /// For random values: how many sequences have been used.
    sequences: u64,
}

/// Who may end the work with an interrupt, and who is told of it.
pub struct Watch<'a> {
    pub stop: &'a AtomicBool,
    pub listener: &'a mut dyn Listener,
}

impl Watch<'_> {
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl<'a> Bench<'a> {
    /// An engine without tables yet.
    ///
    /// # Errors
    /// When it can't do TPC-C.
    pub fn new(plan: &'a Plan, label: &str, opened: Opened) -> Result<Self> {
        if opened.engine.tpcc().is_none() {
            return Err(Error::Usage(format!("{label} can't do TPC-C")));
        }
        let size = plan.size;
        let orders = u64::from(size.warehouses) * u64::from(DISTRICTS) * u64::from(size.customers);
        let history = first_history_number(size).into();
        Ok(Bench { plan, label: label.into(), opened, orders, history, sequences: 0 })
    }

    fn store(&self) -> &dyn Store {
        self.opened.engine.tpcc().expect("it can do TPC-C")
    }

    /// Seeds that no other sequence of random values has.
    fn seeds(&mut self, count: u32) -> Vec<u64> {
        let first = self.sequences + 1;
        self.sequences += u64::from(count);
        (first..=self.sequences).map(|sequence| self.plan.seed << 32 | sequence).collect()
    }

    /// Has clients do `jobs`, which end when `ended` is set: by an interrupt, or by a client that
    /// fails.
    fn phase<S, T: Send>(
        &self,
        watch: &mut Watch,
        title: &str,
        (live, ended): (&Live, &AtomicBool),
        jobs: Vec<Job<S, T>>,
    ) -> Result<Phase<T>> {
        let Watch { stop, listener } = watch;
        ended.store(stop.load(Ordering::Relaxed), Ordering::Relaxed);
        let mut progress = |progress: &Progress| {
            listener.progress(progress);
            ended.fetch_or(stop.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        let mut context = Context {
            engine: self.opened.engine.as_ref(),
            place: &self.opened.place,
            stop: ended,
            progress: &mut progress,
        };
        phase::run(&mut context, title, live, jobs)
    }

    /// Makes the tables and fills them; `None` if an interrupt leaves them half filled.
    ///
    /// # Errors
    /// The engine's.
    pub fn fill(&mut self, watch: &mut Watch) -> Result<Option<Measured>> {
        let size = self.plan.size;
        let threads = thread::available_parallelism().map_or(1, usize::from) as u32;
        let threads = threads.min(size.warehouses);
        let seeds = self.seeds(threads);
        let store = self.store();
        store.create()?;
        let live = Live { inserts_expected: rows_of(size), ..Live::default() };
        let ended = AtomicBool::new(false);
        let (all, stop) = (&live, &ended);
        let jobs = (0..).zip(seeds).map(|(thread, seed)| Job {
            connect: Box::new(move || store.loader()),
            work: Box::new(move |loader, _| {
                let mut filler = Filler::new(loader, size, seed, all, stop);
                if thread == 0 {
                    filler.items()?;
                }
                let warehouses = (1..=size.warehouses).skip(thread);
                for warehouse in warehouses.step_by(threads as usize) {
                    filler.warehouse(warehouse)?;
                }
                Ok(Done { value: (), client_cpu: filler.own_cpu() })
            }),
        });
        let title = format!("{}: load", self.label);
        let measured = self.phase(watch, &title, (&live, &ended), jobs.collect())?.measured;
        if watch.is_stopped() {
            return Ok(None);
        }
        self.check_books()?;
        Ok(Some(measured))
    }

    /// Has clients work, and fills in what came of it; `None` if an interrupt comes before the run.
    /// One that comes later ends it.
    ///
    /// # Errors
    /// The engine's, and books that don't agree.
    pub fn run(&mut self, run: Run, watch: &mut Watch) -> Result<Option<Run>> {
        let clients = run.clients;
        self.work("warm-up", clients, self.plan.warmup_seconds, watch)?;
        if watch.is_stopped() {
            return Ok(None);
        }
        let done = self.work("run", clients, self.plan.seconds, watch)?;
        if !watch.is_stopped() {
            self.check_books()?;
        }
        Ok(Some(summary(run, done)))
    }

    fn work(
        &mut self,
        what: &str,
        clients: u32,
        seconds: u32,
        watch: &mut Watch,
    ) -> Result<Phase<Worked>> {
        let seeds = self.seeds(clients);
        let (store, size, live) = (self.store(), self.plan.size, Live::default());
        let ended = AtomicBool::new(false);
        let client = Client {
            history: &self.history,
            live: &live,
            stop: &ended,
            time: Duration::from_secs(seconds.into()),
        };
        let jobs = seeds.into_iter().map(|seed| Job {
            connect: Box::new(move || store.terminal()),
            work: Box::new(move |mut terminal, start| {
                client.work(terminal.as_mut(), &mut Deck::new(size, seed), start)
            }),
        });
        let title = format!("{}, {}: {what}", self.label, counted(clients, "client"));
        let phase = self.phase(watch, &title, (&live, &ended), jobs.collect())?;
        self.orders += phase.results.iter().map(|worked| worked.ordered).sum::<u64>();
        Ok(phase)
    }

    fn check_books(&self) -> Result<()> {
        self.store().books()?.check("tpcc", self.orders)
    }
}

/// What the clients did, put together.
fn summary(run: Run, phase: Phase<Worked>) -> Run {
    let Phase { results, measured, samples } = phase;
    let merge = |of: fn(&Worked) -> &Recorder| Series::merge(results.iter().map(of));
    let all = merge(|worked| &worked.all);
    let of_kind =
        |kind: Kind| Series::merge(results.iter().map(|worked| &worked.of_kind[kind as usize]));
    let orders = of_kind(Kind::NewOrder);
    let sum = |of: fn(&Worked) -> u64| results.iter().map(of).sum::<u64>();
    let samples = phase::join(samples, &orders, &all);
    let seconds = samples.into_iter().map(|sample| Second {
        second: sample.second,
        transactions: sample.queries,
        new_orders: sample.inserts,
        latency_us_99: sample.query_us_99,
        latency_us_max: sample.query_us_max,
        usage: sample.usage,
        sample_seconds: Some(sample.sample_seconds),
        resident_bytes: sample.resident_bytes,
        engine_figures: sample.engine,
    });
    Run {
        tpm_c: sum(|worked| worked.ordered) as f64 * 60.0 / all.last_end.as_secs_f64().max(1e-9),
        rate_mean: all.mean(),
        rate_99: rate_99(&all.rates()).unwrap_or(0.0),
        whole_seconds: all.rates().len(),
        transactions: all.done(),
        rolled_back: sum(|worked| worked.rolled_back),
        retries: sum(|worked| worked.retries),
        kinds: Kind::ALL.map(|kind| (kind, of_kind(kind).latency())).into(),
        measured,
        seconds: seconds.collect(),
        ..run
    }
}

//! A whole run: open an engine, do the steps, close it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::accounting::Place;
use crate::client::{Client, Queried, TableIds, WritePlan, Written};
use crate::engine::{EngineKind, EngineOptions, Index, Limits, Session};
use crate::engines::{self, sql};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::percentile::rate_99;
use crate::phase::{self, Context, Done, Job, Live, Phase, Progress};
use crate::result::{
    Background, FORMAT, Measured, Queries, Run, ScanResult, Settings, StepResult, Throughput,
};
use crate::row::Generator;
use crate::series::Series;
use crate::step::{RATE_MAX, Step, StepKind, check_order};

/// Rows per commit of the loads, where the step doesn't say otherwise.
const LOAD_COMMIT: u32 = 100;
/// Length of query steps, where the step doesn't say otherwise.
const QUERY_SECONDS: u64 = 10;

/// Runs the steps of `settings` on a database in the empty directory `dir`. When `stop` is set the
/// current step ends early and the rest is left out.
///
/// # Errors
/// Settings that make no sense, and whatever the engine says.
pub fn run(
    settings: &Settings,
    dir: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> Result<Run> {
    check(settings)?;
    let engine = engines::open(
        settings.engine,
        &EngineOptions {
            dir: dir.to_path_buf(),
            memory_bytes: settings.memory_bytes,
            redo_bytes: settings.redo_bytes,
            durability: settings.durability,
            clients: settings.clients,
            disk: settings.disk.clone(),
            status_listen: settings.status_listen.clone(),
            flush: settings.flush.clone(),
            server: settings.server.clone(),
        },
    )?;
    let place = engine.place().unwrap_or(Place::Here { dir: dir.to_path_buf() });
    let environment = Environment::look(place.dir());
    let info = engine.info();
    // What later steps take a part of.
    let rows = loaded_rows(settings);
    let settings = &Settings { rows, ..with_limits(settings, engine.limits()) };
    let mut steps = Vec::new();
    let mut runner = Runner {
        settings,
        tables: (0..settings.clients).map(|_| TableIds::empty()).collect(),
        generator: Generator::new(settings.seed),
        step: 0,
        reached: HashMap::new(),
        context: Context { engine: engine.as_ref(), place: &place, stop, progress },
    };
    for step in &settings.steps {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let result = match runner.step(step) {
            Err(Error::Interrupted) => break,
            result => result?,
        };
        runner.end_step(&result);
        steps.push(result);
        engine.end_load_device();
    }
    let began = Instant::now();
    engine.close()?;
    Ok(Run {
        format: FORMAT,
        settings: settings.clone(),
        environment,
        engine: info,
        steps,
        close_seconds: began.elapsed().as_secs_f64(),
        interrupted: stop.load(Ordering::Relaxed),
    })
}

/// What was asked for, with what a server has instead.
fn with_limits(settings: &Settings, limits: Option<Limits>) -> Settings {
    let Some(Limits { memory_bytes, redo_bytes, durability }) = limits else {
        return settings.clone();
    };
    Settings { memory_bytes, redo_bytes, durability, ..settings.clone() }
}

/// Checks what can be checked before anything is created.
///
/// # Errors
/// What makes no sense.
pub fn check(settings: &Settings) -> Result<()> {
    let usage = |message: String| Err(Error::Usage(message));
    settings.engine.require()?;
    if let Some(choice) = &settings.server {
        sql::check(choice)?;
    }
    check_order(&settings.steps).map_err(Error::Usage)?;
    if !(1..=1024).contains(&settings.clients) {
        return usage(format!("{} clients: use 1 to 1024", settings.clients));
    }
    let (rows, clients) = (loaded_rows(settings), settings.clients);
    let fewest = rows / u64::from(clients);
    if fewest == 0 {
        return usage(format!("{rows} rows for {clients} clients: each needs at least one"));
    }
    // A server's limits are its own affair.
    if settings.engine != EngineKind::Server {
        let &Settings { memory_bytes, redo_bytes, durability, .. } = settings;
        Limits { memory_bytes, redo_bytes, durability }.check()?;
    }
    if let Some(percent) = settings.flush.dirty_limit_percent
        && !(1..=100).contains(&percent)
    {
        return usage(format!("a dirty limit of {percent} percent: use 1 to 100"));
    }
    for step in &settings.steps {
        if step.kind == StepKind::Update && !settings.engine.has_updates() {
            return usage(format!("`{step}`: {} has no updates here; weir has", settings.engine));
        }
        let (rate, commit) = (step.rate.unwrap_or(0), u64::from(commit_rows(step)));
        if rate > 0 && rate * 60 < commit {
            return usage(format!("`{step}`: less than one commit per minute"));
        }
        // A commit deletes rows that were there before it.
        if deletes(settings, step) && commit > fewest {
            let least = commit * u64::from(clients);
            return usage(format!(
                "`{step}`: a commit of {commit} rows deletes as many, and a client has {fewest}: load at \
                 least {least} rows, or take a smaller `commit`"
            ));
        }
    }
    Ok(())
}

/// Rows of the first step, which is a load.
fn loaded_rows(settings: &Settings) -> u64 {
    settings.steps.first().and_then(|step| step.rows).unwrap_or(settings.rows)
}

/// Whether the commits of `step` delete as many rows as they insert.
fn deletes(settings: &Settings, step: &Step) -> bool {
    let inserts = match step.kind {
        StepKind::Insert1 | StepKind::Insert2 => true,
        kind => kind.is_query() && step.rate.unwrap_or(0) > 0,
    };
    inserts && step.delete.unwrap_or(settings.delete)
}

/// Rows per commit of `step`: by default what the field uses, and for background inserts what makes
/// at most 20 commits per second.
fn commit_rows(step: &Step) -> u32 {
    step.commit.unwrap_or(match step.kind {
        StepKind::Insert1 => 50,
        StepKind::Insert2 => 5,
        StepKind::Update => 1,
        kind if kind.is_query() => (step.rate.unwrap_or(0) / 20).clamp(1, 50) as u32,
        _ => LOAD_COMMIT,
    })
}

struct Runner<'a> {
    settings: &'a Settings,
    tables: Vec<TableIds>,
    generator: Generator,
    /// The number of the step, from 0.
    step: u64,
    /// Rows per second of all clients in the last step of a kind that went as fast as it could.
    reached: HashMap<StepKind, f64>,
    context: Context<'a>,
}

/// What a client does with the session on its table, from the common start on.
type OnTable<'a, T> = Box<dyn FnOnce(&mut dyn Session, Instant) -> Result<Done<T>> + Send + 'a>;

/// A thread's result in steps where some write and some query.
enum Either {
    Wrote(Written),
    Queried(Queried),
}

impl Runner<'_> {
    fn step(&mut self, step: &Step) -> Result<StepResult> {
        match step.kind {
            StepKind::Load | StepKind::LoadIndexed => {
                for table in 0..self.settings.clients {
                    let indexed = step.kind == StepKind::LoadIndexed;
                    self.context.engine.create_table(table, indexed)?;
                }
                self.inserts(step, Some(step.rows.unwrap_or(self.settings.rows)))
            }
            StepKind::Insert1 => self.inserts(step, rows_or(step, self.settings.rows / 2)),
            StepKind::Insert2 => self.inserts(step, rows_or(step, self.settings.rows / 10)),
            StepKind::Update => self.updates(step),
            StepKind::CreateIndexes => self.create_indexes(step),
            StepKind::Scan => self.scan(step),
            StepKind::RangeQueries | StepKind::PointQueries => self.query(step),
        }
    }

    fn end_step(&mut self, result: &StepResult) {
        self.step += 1;
        if let Some(inserts) = result.inserts.filter(|_| result.step.is_unlimited()) {
            self.reached.insert(result.step.kind, inserts.rate_mean);
        }
    }

    /// Rows per second that each client of `step` keeps to, if it does.
    fn rate(&self, step: &Step) -> Option<u64> {
        let Some(percent) = step.rate_percent else { return step.rate };
        let reached = self.reached.get(&step.kind).expect("checked: one went before it");
        let of_client = reached / f64::from(self.settings.clients);
        Some(((of_client * f64::from(percent) / 100.0) as u64).clamp(1, RATE_MAX))
    }

    /// Runs `roles` threads per table, each with the work that `make` gives it.
    fn phase<T: Send>(
        &mut self,
        title: &str,
        live: &Live,
        roles: usize,
        make: impl for<'c> Fn(Client<'c>, usize) -> OnTable<'c, T>,
    ) -> Result<Phase<T>> {
        let (engine, mut jobs) = (self.context.engine, Vec::new());
        for role in 0..roles {
            for (table, ids) in (0..).zip(&self.tables) {
                let client = Client {
                    engine: self.settings.engine.name(),
                    table,
                    ids,
                    generator: self.generator,
                    step: self.step,
                    live,
                    stop: self.context.stop,
                };
                let work = make(client, role);
                jobs.push(Job {
                    connect: Box::new(move || engine.session(table)),
                    work: Box::new(move |mut session, start| work(session.as_mut(), start)),
                });
            }
        }
        phase::run(&mut self.context, title, live, jobs)
    }

    fn result(&self, step: &Step, measured: Measured) -> StepResult {
        StepResult {
            step: step.clone(),
            name: step.name(),
            inserts: None,
            deletes: 0,
            queries: None,
            background: None,
            scans: Vec::new(),
            measured,
            series: Vec::new(),
            whole_seconds: 0,
        }
    }

    fn inserts(&mut self, step: &Step, rows: Option<u64>) -> Result<StepResult> {
        let clients = self.settings.clients;
        let live = Live { inserts_expected: rows.unwrap_or(0), ..Live::default() };
        let (rate, delete) = (self.rate(step), deletes(self.settings, step));
        let plan = |table| WritePlan {
            rows: rows.map_or(u64::MAX, |rows| share(rows, table, clients)),
            commit: commit_rows(step),
            delete,
            rate,
            time: step.seconds.map(Duration::from_secs),
        };
        let phase = self.phase(&step.name(), &live, 1, |client, _| {
            let plan = plan(client.table);
            Box::new(move |session, start| client.write(session, start, plan))
        })?;
        Ok(self.written(step, phase))
    }

    fn updates(&mut self, step: &Step) -> Result<StepResult> {
        let clients = self.settings.clients;
        let rows = rows_or(step, self.settings.rows);
        let live = Live { inserts_expected: rows.unwrap_or(0), ..Live::default() };
        let (time, rate) = (step.seconds.map(Duration::from_secs), self.rate(step));
        let phase = self.phase(&step.name(), &live, 1, |client, _| {
            let rows = rows.map_or(u64::MAX, |rows| share(rows, client.table, clients));
            Box::new(move |session, start| client.update(session, start, rows, time, rate))
        })?;
        Ok(self.written(step, phase))
    }

    fn written(&self, step: &Step, phase: Phase<Written>) -> StepResult {
        let series = Series::merge(phase.results.iter().map(|written| &written.recorder));
        let mut result = self.result(step, phase.measured);
        result.inserts = Some(throughput(&series, rate_99(&series.rates())));
        result.deletes = phase.results.iter().map(|written| written.deletes).sum();
        result.series = phase::join(phase.samples, &series, &Series::merge([]));
        result.whole_seconds = series.rates().len();
        if let Some(rate) = self.rate(step) {
            let rate = rate as f64 * f64::from(self.settings.clients);
            let took = Duration::from_secs_f64(phase.measured.seconds);
            let time = step.seconds.map_or(took, Duration::from_secs);
            let lost = phase.results.iter().map(|written| written.commits_lost).sum();
            let background = Background::of(&series, rate, time, took, lost);
            let rate_mean = background.rate_done;
            result.inserts = result.inserts.map(|inserts| Throughput { rate_mean, ..inserts });
            result.background = Some(background);
        }
        result
    }

    fn create_indexes(&mut self, step: &Step) -> Result<StepResult> {
        let live = Live::default();
        let phase = self.phase(&step.name(), &live, 1, |client, _| {
            Box::new(move |session, _| client.create_indexes(session))
        })?;
        let rows: u64 = self.tables.iter().map(|ids| ids.range().end - ids.range().start).sum();
        let mut result = self.result(step, phase.measured);
        result.inserts = Some(Throughput {
            total: rows,
            rate_mean: rows as f64 / phase.measured.seconds,
            rate_99: None,
            latency: Default::default(),
        });
        result.series = phase.samples;
        Ok(result)
    }

    fn scan(&mut self, step: &Step) -> Result<StepResult> {
        let mut scans: Vec<ScanResult> = Vec::new();
        let mut sum = Measured::default();
        for index in Index::ALL.into_iter().chain([Index::Primary]) {
            if self.context.stop.load(Ordering::Relaxed) {
                break;
            }
            let title = format!("{} {}", step.name(), index.name());
            let phase = self.phase(&title, &Live::default(), 1, |client, _| {
                Box::new(move |session, _| client.scan(session, index))
            });
            let phase = match phase {
                Err(Error::Interrupted) => break,
                phase => phase?,
            };
            add(&mut sum, &phase.measured);
            scans.push(ScanResult {
                index: index.name().into(),
                rows: phase.results.iter().sum(),
                measured: phase.measured,
                series: phase.samples,
            });
        }
        let mut result = self.result(step, sum);
        result.scans = scans;
        Ok(result)
    }

    fn query(&mut self, step: &Step) -> Result<StepResult> {
        let clients = self.settings.clients;
        let rate = step.rate.unwrap_or(0);
        let time = query_time(step);
        let deletes = deletes(self.settings, step);
        let plan = WritePlan {
            rows: u64::MAX,
            commit: commit_rows(step),
            delete: deletes,
            rate: Some(rate),
            time: Some(time),
        };
        let live = Live::default();
        let roles = if rate > 0 { 2 } else { 1 };
        let kind = step.kind;
        let phase = self.phase(&step.name(), &live, roles, |client, role| {
            if role == 0 {
                return Box::new(move |session, start| {
                    let done = match kind {
                        StepKind::RangeQueries => client.range_queries(session, start, time)?,
                        _ => client.point_queries(session, start, time, deletes)?,
                    };
                    Ok(Done { value: Either::Queried(done.value), client_cpu: done.client_cpu })
                });
            }
            Box::new(move |session, start| {
                let done = client.write(session, start, plan)?;
                Ok(Done { value: Either::Wrote(done.value), client_cpu: done.client_cpu })
            })
        })?;
        Ok(self.query_result(step, phase, rate * u64::from(clients)))
    }

    fn query_result(&self, step: &Step, phase: Phase<Either>, rate: u64) -> StepResult {
        let (mut wrote, mut queried) = (Vec::new(), Vec::new());
        for result in phase.results {
            match result {
                Either::Wrote(written) => wrote.push(written),
                Either::Queried(done) => queried.push(done),
            }
        }
        let inserts = Series::merge(wrote.iter().map(|written| &written.recorder));
        let queries = Series::merge(queried.iter().map(|done| &done.recorder));
        let mut result = self.result(step, phase.measured);
        result.queries = Some(Queries {
            throughput: throughput(&queries, rate_99(&queries.rates())),
            rows: queried.iter().map(|done| done.rows).sum(),
            missed: queried.iter().map(|done| done.missed).sum(),
            thread_cpu_us: queried.iter().map(|done| done.thread_cpu.as_micros() as u64).sum(),
        });
        if rate > 0 {
            let took = Duration::from_secs_f64(phase.measured.seconds);
            let lost = wrote.iter().map(|written| written.commits_lost).sum();
            let background = Background::of(&inserts, rate as f64, query_time(step), took, lost);
            result.inserts = Some(Throughput {
                rate_mean: background.rate_done,
                ..throughput(&inserts, rate_99(&inserts.rates()))
            });
            result.background = Some(background);
        }
        result.deletes = wrote.iter().map(|written| written.deletes).sum();
        result.series = phase::join(phase.samples, &inserts, &queries);
        result.whole_seconds = queries.rates().len();
        result
    }
}

/// How long queries are asked.
fn query_time(step: &Step) -> Duration {
    Duration::from_secs(step.seconds.unwrap_or(QUERY_SECONDS))
}

fn throughput(series: &Series, rate_99: Option<f64>) -> Throughput {
    Throughput {
        total: series.done(),
        rate_mean: series.mean(),
        rate_99,
        latency: series.latency(),
    }
}

/// The rows of a step that may be ended by rows or by time: with only a time, no limit of rows.
fn rows_or(step: &Step, rows: u64) -> Option<u64> {
    match (step.rows, step.seconds) {
        (None, Some(_)) => None,
        (given, _) => Some(given.unwrap_or(rows.max(1))),
    }
}

/// The part of `rows` that falls to the client of `table`.
fn share(rows: u64, table: u32, clients: u32) -> u64 {
    let (table, clients) = (u64::from(table), u64::from(clients));
    rows / clients + u64::from(table < rows % clients)
}

fn add(sum: &mut Measured, part: &Measured) {
    sum.seconds += part.seconds;
    sum.client_cpu_us += part.client_cpu_us;
    sum.resident_bytes_max = sum.resident_bytes_max.max(part.resident_bytes_max);
    sum.size_bytes = part.size_bytes;
    sum.unwritten_bytes = part.unwritten_bytes;
    sum.usage = sum.usage.plus(&part.usage);
    sum.unseen |= part.unseen;
    sum.device_reads = part.device_reads.map(|reads| sum.device_reads.unwrap_or(0) + reads);
}

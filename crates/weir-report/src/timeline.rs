//! A run as columns: one value for each second, in the units of the charts.
//!
//! A run's steps follow each other; each begins a new second. The last second of a step is seldom
//! whole: its counts are divided by the part of it that was measured, and left out where that part
//! says too little. Levels are as they were at the end of a second; counters of the engine run on
//! from step to step, so that a second's share is the difference to the second before. What a
//! server counted before a run isn't known, nor what clients did who warmed up before one of TPC-C:
//! its first second has no share.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_bench::Run;
use weir_bench::result::{Measured, SAMPLE_SECONDS_MIN, Second, StepResult};
use weir_bench::step::StepKind;
use weir_bench::tpcc;

const MIB: f64 = 1048576.0;
const PAGE_MIB: f64 = 16384.0 / MIB;
/// A second of which less was measured has no rates, unless it is its step's only one.
const PART_MIN: f64 = SAMPLE_SECONDS_MIN;

/// A step's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Segment {
    /// The step's name, with a number when there was one of that name before.
    pub name: String,
    /// Its first second.
    pub from: usize,
    /// How many it has.
    pub len: usize,
}

/// A run's seconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// The steps in their order.
    pub segments: Vec<Segment>,
    /// Values by name; all columns have the same length. Columns without any value are absent.
    pub columns: BTreeMap<&'static str, Vec<Option<f64>>>,
}

/// Values of a second by their columns.
type Values = Vec<(&'static str, Option<f64>)>;

/// The engine's figures by their names.
type Figures = BTreeMap<String, f64>;

/// What a second's operations tell, of which this part of a second was counted.
type Operations<'a> = &'a dyn Fn(&Second, f64) -> Values;

/// A second's samples, and what is needed to make rates of them.
struct Context<'a> {
    second: &'a Second,
    /// The engine's figures a second earlier; none at the beginning of a run with an engine of its
    /// own.
    before: Option<&'a Figures>,
    /// Seconds that samples cover.
    sampled: f64,
    /// Whether somebody could look at the engine's process.
    is_seen: bool,
}

impl Timeline {
    /// The columns of `run`.
    pub fn of(run: &Run) -> Self {
        let (mut timeline, unknown) = (Timeline::default(), Figures::new());
        let mut before = run.settings.server.is_some().then_some(&unknown);
        for (step, label) in run.labelled() {
            let operations = |second: &Second, counted| of_step(step, second, counted);
            before = timeline.segment(label, &series(step), before, &operations);
        }
        timeline.whole()
    }

    /// The columns of these runs of one engine, each with what to call it.
    pub fn of_tpcc<'a>(runs: impl IntoIterator<Item = (&'a tpcc::document::Run, String)>) -> Self {
        let mut timeline = Timeline::default();
        for (run, label) in runs {
            let (measured, unknown) = (&run.measured, Figures::new());
            let of = |second| second_of(second, measured.seconds);
            let seconds: Vec<_> = run.seconds.iter().map(of).collect();
            timeline.segment(label, &[(measured, &seconds)], Some(&unknown), &of_transactions);
        }
        timeline.whole()
    }

    /// Adds the seconds of a step: of each series what was measured in all, and its seconds. Gives
    /// the engine's last figures.
    fn segment<'a>(
        &mut self,
        name: String,
        all: &[(&Measured, &'a [Second])],
        mut before: Option<&'a Figures>,
        operations: Operations,
    ) -> Option<&'a Figures> {
        let from = self.len();
        let mut at = from;
        for &(measured, series) in all {
            for (number, second) in series.iter().enumerate() {
                let only = series.len() == 1;
                let part = (measured.seconds - number as f64).clamp(0.0, 1.0);
                let part = if part < PART_MIN && !only { 0.0 } else { part };
                let is_short = second.sample_seconds < PART_MIN && !only;
                let sampled = if part == 0.0 || is_short { 0.0 } else { second.sample_seconds };
                let context = Context { second, before, sampled, is_seen: !measured.unseen };
                self.push(at, operations(second, part).into_iter().chain(context.values()));
                (at, before) = (at + 1, Some(&second.engine));
            }
        }
        self.segments.push(Segment { name, from, len: at - from });
        before
    }

    /// How many seconds it has.
    fn len(&self) -> usize {
        self.segments.last().map_or(0, |last| last.from + last.len)
    }

    fn push(&mut self, at: usize, values: impl Iterator<Item = (&'static str, Option<f64>)>) {
        for (name, value) in values {
            // What is no number is no value: a chart has a gap there.
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let column = self.columns.entry(name).or_default();
            column.resize(at, None);
            column.push(Some(rounded(value)));
        }
    }

    /// With all columns of the same length.
    fn whole(mut self) -> Self {
        let len = self.len();
        for column in self.columns.values_mut() {
            column.resize(len, None);
        }
        self
    }
}

/// The series of a step: its own, or those of its scans one after the other; with what was measured
/// in all.
fn series(step: &StepResult) -> Vec<(&Measured, &[Second])> {
    if step.scans.is_empty() {
        return vec![(&step.measured, &step.series)];
    }
    step.scans.iter().map(|scan| (&scan.measured, scan.series.as_slice())).collect()
}

/// A second of TPC-C as those of steps are: transactions are the queries, new orders the inserts.
fn second_of(second: &tpcc::document::Second, length: f64) -> Second {
    Second {
        second: second.second,
        inserts: second.new_orders,
        queries: second.transactions,
        query_us_99: second.latency_us_99,
        query_us_max: second.latency_us_max,
        usage: second.usage,
        sample_seconds: second
            .sample_seconds
            .unwrap_or((length - f64::from(second.second)).clamp(0.0, 1.0)),
        resident_bytes: second.resident_bytes,
        engine: second.engine_figures.clone(),
        ..Second::default()
    }
}

/// Six digits are more than a chart shows.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(5 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

/// What was done per second, where a part of one was counted.
fn rate_of(count: u64, counted: f64) -> Option<f64> {
    (counted > 0.0).then(|| count as f64 / counted)
}

/// The slowest of those that ended.
fn ms_max(ended: u64, us: u64) -> Option<f64> {
    (ended > 0 && us > 0).then_some(us as f64 / 1000.0)
}

/// Of the few that end in a part of a second the slowest tells, and no share of them.
fn ms_99(ended: u64, us: u64, counted: f64) -> Option<f64> {
    ms_max(ended, us).filter(|_| counted > 0.0)
}

fn of_step(step: &StepResult, second: &Second, counted: f64) -> Values {
    let rate = |shown: bool, count| rate_of(count, counted).filter(|_| shown);
    // The creation of indexes inserts rows, but nobody counts them by the second.
    let inserts = step.inserts.is_some() && step.step.kind != StepKind::CreateIndexes;
    vec![
        ("inserts", rate(inserts, second.inserts)),
        ("queries", rate(step.queries.is_some(), second.queries)),
        ("commit_ms_99", ms_99(second.inserts, second.insert_us_99, counted)),
        ("commit_ms_max", ms_max(second.inserts, second.insert_us_max)),
        ("query_ms_99", ms_99(second.queries, second.query_us_99, counted)),
        ("query_ms_max", ms_max(second.queries, second.query_us_max)),
    ]
}

fn of_transactions(second: &Second, counted: f64) -> Values {
    vec![
        ("transactions", rate_of(second.queries, counted)),
        ("new_orders", rate_of(second.inserts, counted)),
        ("transaction_ms_99", ms_99(second.queries, second.query_us_99, counted)),
        ("transaction_ms_max", ms_max(second.queries, second.query_us_max)),
    ]
}

impl Context<'_> {
    fn values(&self) -> Values {
        let mut values = self.levels();
        values.extend(self.rates());
        values
    }

    fn levels(&self) -> Values {
        let level = |name: &str| self.second.engine.get(name).copied();
        let mib = |name| level(name).map(|bytes| bytes / MIB);
        let total = level("buffer_pool_pages_total").filter(|total| *total > 0.0);
        let dirty = level("buffer_pool_pages_dirty");
        let free = level("buffer_pool_pages_free");
        let share = |pages: Option<f64>| Some(100.0 * pages? / total?);
        let clean = || Some((total? - dirty? - free?).max(0.0) * PAGE_MIB);
        vec![
            ("resident", self.seen(self.second.resident_bytes as f64 / MIB)),
            ("checkpoint_age", mib("checkpoint_age")),
            ("checkpoint_max_age", mib("checkpoint_max_age")),
            ("flush_target", level("flush_rate_target")),
            ("device_pages", level("device_pages_per_second")),
            ("dirty_share", share(dirty)),
            ("dirty_limit", share(level("buffer_pool_pages_dirty_max"))),
            ("pool_dirty", dirty.map(|pages| pages * PAGE_MIB)),
            ("pool_clean", clean()),
            ("pool_free", free.map(|pages| pages * PAGE_MIB)),
        ]
    }

    fn rates(&self) -> Values {
        let rate = |name| self.rate(name, Some(0.0));
        let usage = &self.second.usage;
        let sampled = |count: f64| {
            let rate = (self.sampled > 0.0).then(|| count / self.sampled);
            rate.and_then(|rate| self.seen(rate))
        };
        let mib = |bytes: Option<f64>| bytes.map(|bytes| bytes / MIB);
        let ms = |us: Option<f64>| us.map(|us| us / 1000.0);
        vec![
            ("written_deadline", rate("pages_written_deadline")),
            ("written_dirty_limit", rate("pages_written_dirty_limit")),
            ("written_free_frames", rate("pages_written_free_frames")),
            ("written_checkpoint", rate("pages_written_checkpoint")),
            ("written_shutdown", rate("pages_written_shutdown")),
            ("redo_mib", mib(self.rate("lsn_current", None))),
            ("device_read_mib", mib(sampled(usage.read_bytes as f64))),
            ("device_write_mib", mib(sampled(usage.write_bytes as f64))),
            ("engine_read_mib", mib(rate("disk_read_bytes"))),
            ("engine_write_mib", mib(rate("disk_write_bytes"))),
            ("device_reads", rate("disk_reads")),
            ("device_writes", rate("disk_writes")),
            ("device_syncs", rate("disk_syncs")),
            ("waits_log", rate("log_waits")),
            ("waits_pacing", rate("admission_waits")),
            ("waits_dirty", rate("dirty_limit_waits")),
            ("waits_frames", rate("buffer_pool_wait_free")),
            ("wait_ms_log", ms(rate("log_wait_us"))),
            ("wait_ms_pacing", ms(rate("admission_wait_us"))),
            ("wait_ms_dirty", ms(rate("dirty_limit_wait_us"))),
            ("cpu", sampled(usage.cpu_us as f64 / 1e6)),
        ]
    }

    /// What is known only of a process that can be looked at.
    fn seen(&self, value: f64) -> Option<f64> {
        self.is_seen.then_some(value)
    }

    /// Growth per second of one of the engine's counters, which was `initial` before the run.
    fn rate(&self, name: &str, initial: Option<f64>) -> Option<f64> {
        let now = self.second.engine.get(name)?;
        let before = match self.before {
            Some(before) => before.get(name).copied()?,
            None => initial?,
        };
        (self.sampled > 0.0).then(|| (now - before).max(0.0) / self.sampled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bench::result::Throughput;

    fn values_of(step: &StepResult, second: &Second, sampled: f64) -> Values {
        let samples = Context { second, before: None, sampled, is_seen: true }.values();
        of_step(step, second, sampled).into_iter().chain(samples).collect()
    }

    fn step() -> StepResult {
        let latency = Default::default();
        StepResult {
            step: "l.i1".parse().expect("a step"),
            name: "l.i1".into(),
            inserts: Some(Throughput { total: 1, rate_mean: 1.0, rate_99: Some(1.0), latency }),
            deletes: 0,
            queries: None,
            background: None,
            scans: Vec::new(),
            measured: Measured::default(),
            series: Vec::new(),
            whole_seconds: Default::default(),
        }
    }

    fn run(server: serde_json::Value) -> Run {
        Run {
            format: weir_bench::result::FORMAT,
            settings: serde_json::from_value(serde_json::json!({
                "engine": "server", "clients": 1, "rows": 1, "steps": [], "memory_bytes": 0,
                "redo_bytes": 0, "durability": "write", "delete": false, "seed": 1, "server": server
            }))
            .expect("they are settings"),
            environment: weir_bench::environment::Environment::look(None),
            engine: Default::default(),
            steps: Vec::new(),
            close_seconds: 0.0,
            interrupted: false,
        }
    }

    fn get(values: &[(&'static str, Option<f64>)], name: &str) -> Option<f64> {
        values.iter().find(|(column, _)| *column == name).and_then(|(_, value)| *value)
    }

    #[test]
    fn a_part_of_a_second_counts_for_what_it_is() {
        let engine = [("pages_written_deadline".to_string(), 50.0)].into();
        let second = Second { inserts: 500, engine, sample_seconds: 0.5, ..Second::default() };
        let mut short = step();
        short.inserts = short.inserts.map(|inserts| Throughput { rate_99: None, ..inserts });
        let values = values_of(&short, &second, 0.5);
        assert_eq!(get(&values, "inserts"), Some(1000.0));
        assert_eq!(get(&values, "written_deadline"), Some(100.0));
        assert_eq!(get(&values_of(&step(), &second, 0.0), "inserts"), None);
    }

    #[test]
    fn the_slowest_commit_of_a_short_end_is_told_and_their_99th_percentile_is_not() {
        let second =
            Second { inserts: 3, insert_us_99: 800, insert_us_max: 9000, ..Second::default() };
        let values = values_of(&step(), &second, 0.0);
        assert_eq!(get(&values, "commit_ms_99"), None);
        assert_eq!(get(&values, "commit_ms_max"), Some(9.0));
        assert_eq!(get(&values_of(&step(), &second, 0.5), "commit_ms_99"), Some(0.8));
    }

    #[test]
    fn what_an_engine_does_not_tell_is_absent() {
        let values = values_of(&step(), &Second::default(), 1.0);
        for column in
            ["checkpoint_age", "written_deadline", "waits_pacing", "redo_mib", "dirty_share"]
        {
            assert_eq!(get(&values, column), None, "{column}");
        }
        assert_eq!(get(&values, "device_write_mib"), Some(0.0), "the kernel tells");
    }

    #[test]
    fn what_nobody_could_look_at_is_absent() {
        let engine = [("disk_reads".to_string(), 5.0), ("disk_read_bytes".to_string(), MIB)].into();
        let seen = Second { sample_seconds: 1.0, ..Second::default() };
        let told = Second { engine, ..seen.clone() };
        let values =
            |second| Context { second, before: None, sampled: 1.0, is_seen: false }.values();
        for column in ["resident", "cpu", "device_read_mib", "device_write_mib"] {
            assert_eq!(get(&values(&seen), column), None, "{column}");
        }
        assert_eq!(get(&values(&told), "device_read_mib"), None, "nor by the engine's count");
        assert_eq!(get(&values(&told), "engine_read_mib"), Some(1.0), "it has a chart of its own");
    }

    #[test]
    fn what_the_device_does_is_measured_alike_for_all_engines() {
        let usage = weir_bench::accounting::Usage {
            read_bytes: 3 << 20,
            write_bytes: 2 << 20,
            ..Default::default()
        };
        let engine = ["disk_reads", "disk_read_bytes", "disk_write_bytes"];
        let engine = engine.map(|name| (name.to_string(), 9.0 * MIB)).into();
        let second = Second { usage, engine, sample_seconds: 1.0, ..Second::default() };
        let values = values_of(&step(), &second, 1.0);
        assert_eq!(get(&values, "device_read_mib"), Some(3.0));
        assert_eq!(get(&values, "device_write_mib"), Some(2.0));
        assert_eq!(get(&values, "engine_write_mib"), Some(9.0));
    }

    #[test]
    fn what_a_warm_up_counted_is_no_share_of_the_first_second() {
        let second = |second, new_orders| tpcc::document::Second {
            second,
            transactions: 2 * new_orders,
            new_orders,
            engine_figures: [("log_waits".to_string(), f64::from(second) + 70.0)].into(),
            ..Default::default()
        };
        let mut run = tpcc::document::Run::default();
        run.measured.seconds = 1.5;
        run.seconds = vec![second(0, 8), second(1, 4)];
        let runs = [(&run, "1 client".to_string()), (&run, "2 clients".to_string())];
        let timeline = Timeline::of_tpcc(runs);
        let column = |name| timeline.columns[name].clone();
        assert_eq!(column("new_orders"), [8.0, 8.0, 8.0, 8.0].map(Some));
        assert_eq!(column("transactions"), [16.0; 4].map(Some));
        assert_eq!(column("waits_log"), [None, Some(2.0), None, Some(2.0)]);
        let segments: Vec<_> = timeline.segments.iter().map(|s| (s.from, s.len)).collect();
        assert_eq!(segments, [(0, 2), (2, 2)]);
        assert!(!timeline.columns.contains_key("inserts"), "those are the Insert Benchmark's");
    }

    #[test]
    fn samples_that_make_up_for_a_late_one_give_no_rates() {
        let second = |second, waits: f64, sample_seconds| Second {
            second,
            inserts: 5,
            engine: [("log_waits".to_string(), waits)].into(),
            sample_seconds,
            ..Second::default()
        };
        let mut step = step();
        step.measured.seconds = 4.0;
        step.series = vec![
            second(0, 1.0, 1.0),
            second(1, 5.0, 2.0),
            second(2, 7.0, 0.0001),
            second(3, 8.0, 1.0),
        ];
        let timeline = Timeline::of(&Run { steps: vec![step], ..run(serde_json::Value::Null) });
        assert_eq!(timeline.columns["waits_log"], [Some(1.0), Some(2.0), None, Some(1.0)]);
        assert_eq!(timeline.columns["inserts"], [Some(5.0); 4], "clients count for themselves");
    }

    #[test]
    fn what_a_server_counted_before_is_no_share_of_the_first_second() {
        let second = |second| Second {
            second,
            inserts: 5,
            engine: [("log_waits".to_string(), f64::from(second) + 70.0)].into(),
            sample_seconds: 1.0,
            ..Second::default()
        };
        let mut step = step();
        step.measured.seconds = 2.0;
        step.series = vec![second(0), second(1)];
        let waits = |server: serde_json::Value| {
            let steps = vec![step.clone(), step.clone()];
            let run = Run { steps, ..run(server) };
            Timeline::of(&run).columns["waits_log"].clone()
        };
        let server = serde_json::json!({
            "url": "mysql://root@localhost", "socket": null, "table_engine": "innodb", "statements": "text"
        });
        assert_eq!(waits(server), [None, Some(1.0), Some(0.0), Some(1.0)]);
        let own = [Some(70.0), Some(1.0), Some(0.0), Some(1.0)];
        assert_eq!(waits(serde_json::Value::Null), own, "it counts from the run's beginning");
    }

    #[test]
    fn six_digits() {
        assert_eq!(rounded(0.0), 0.0);
        assert_eq!(rounded(123_456_789.0), 123_457_000.0);
        assert_eq!(rounded(0.001234567), 0.00123457);
    }
}

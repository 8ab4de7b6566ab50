//! A run as columns: one value for each second, in the units of the charts.
//!
//! A run's steps follow each other; each begins a new second. The last second of a step is seldom
//! whole: its counts are divided by the part of it that was measured, and left out where that part says
//! too little. Levels are as they were at the end of a second; counters of the engine run on from step to
//! step, so that a second's share is the difference to the second before.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_bench::Run;
use weir_bench::result::{Second, StepResult};

const MIB: f64 = 1048576.0;
const PAGE_MIB: f64 = 16384.0 / MIB;
/// A second of which less was measured has no rates, unless it is its step's only one.
const PART_MIN: f64 = 0.2;

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

/// A second, and what is needed to make rates of it.
struct Context<'a> {
    step: &'a StepResult,
    second: &'a Second,
    /// The engine's figures a second earlier; none at the run's beginning.
    before: Option<&'a BTreeMap<String, f64>>,
    /// Seconds that clients' counts cover.
    counted: f64,
    /// Seconds that samples cover.
    sampled: f64,
}

impl Timeline {
    /// The columns of `run`.
    pub fn of(run: &Run) -> Self {
        let mut timeline = Timeline::default();
        let (mut len, mut before) = (0, None);
        for (step, label) in run.labelled() {
            let from = len;
            for (seconds, series) in series(step) {
                for (number, second) in series.iter().enumerate() {
                    let only = series.len() == 1;
                    let part = (seconds - number as f64).clamp(0.0, 1.0);
                    let part = if part < PART_MIN && !only { 0.0 } else { part };
                    let sampled = if part == 0.0 { 0.0 } else { second.sample_seconds };
                    let context = Context { step, second, before, counted: part, sampled };
                    timeline.push(len, &context);
                    (len, before) = (len + 1, Some(&second.engine));
                }
            }
            timeline.segments.push(Segment { name: label, from, len: len - from });
        }
        for column in timeline.columns.values_mut() {
            column.resize(len, None);
        }
        timeline
    }

    fn push(&mut self, at: usize, context: &Context) {
        for (name, value) in context.values() {
            // What is no number is no value: a chart has a gap there.
            let Some(value) = value.filter(|value| value.is_finite()) else { continue };
            let column = self.columns.entry(name).or_default();
            column.resize(at, None);
            column.push(Some(rounded(value)));
        }
    }
}

/// The series of a step: its own, or those of its scans one after the other; with their lengths in
/// seconds.
fn series(step: &StepResult) -> Vec<(f64, &[Second])> {
    if step.scans.is_empty() {
        return vec![(step.measured.seconds, &step.series)];
    }
    step.scans.iter().map(|scan| (scan.measured.seconds, scan.series.as_slice())).collect()
}

/// Six digits are more than a chart shows.
fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(5 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

impl Context<'_> {
    fn values(&self) -> Vec<(&'static str, Option<f64>)> {
        let mut values = self.operations();
        values.extend(self.levels());
        values.extend(self.rates());
        values
    }

    fn operations(&self) -> Vec<(&'static str, Option<f64>)> {
        let second = self.second;
        let rate = |shown: bool, count: u64| {
            (shown && self.counted > 0.0).then(|| count as f64 / self.counted)
        };
        // The creation of indexes inserts rows, but nobody counts them by the second.
        let inserts = self.step.inserts.is_some_and(|inserts| inserts.rate_99.is_some());
        let ms = |ended: u64, us: u64| (ended > 0 && us > 0).then_some(us as f64 / 1000.0);
        // Of the few that end in a part of a second the slowest tells, and no share of them.
        let ms_99 = |ended: u64, us: u64| ms(ended, us).filter(|_| self.counted > 0.0);
        vec![
            ("inserts", rate(inserts, second.inserts)),
            ("queries", rate(self.step.queries.is_some(), second.queries)),
            ("commit_ms_99", ms_99(second.inserts, second.insert_us_99)),
            ("commit_ms_max", ms(second.inserts, second.insert_us_max)),
            ("query_ms_99", ms_99(second.queries, second.query_us_99)),
            ("query_ms_max", ms(second.queries, second.query_us_max)),
            ("resident", Some(second.resident_bytes as f64 / MIB)),
        ]
    }

    fn levels(&self) -> Vec<(&'static str, Option<f64>)> {
        let level = |name: &str| self.second.engine.get(name).copied();
        let mib = |name| level(name).map(|bytes| bytes / MIB);
        let total = level("buffer_pool_pages_total").filter(|total| *total > 0.0);
        let dirty = level("buffer_pool_pages_dirty");
        let free = level("buffer_pool_pages_free");
        let share = |pages: Option<f64>| Some(100.0 * pages? / total?);
        let clean = || Some((total? - dirty? - free?).max(0.0) * PAGE_MIB);
        vec![
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

    fn rates(&self) -> Vec<(&'static str, Option<f64>)> {
        let rate = |name| self.rate(name, Some(0.0));
        let usage = &self.second.usage;
        let sampled = |count: f64| (self.sampled > 0.0).then(|| count / self.sampled);
        // Where the engine doesn't count, the kernel does.
        let process = |own: Option<f64>, bytes: u64| {
            if self.second.engine.contains_key("disk_reads") { own } else { sampled(bytes as f64) }
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
            ("device_read_mib", mib(process(rate("disk_read_bytes"), usage.read_bytes))),
            ("device_write_mib", mib(process(rate("disk_write_bytes"), usage.write_bytes))),
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
    use weir_bench::result::{Measured, Throughput};

    fn context(
        step: &StepResult,
        second: &Second,
        sampled: f64,
    ) -> Vec<(&'static str, Option<f64>)> {
        Context { step, second, before: None, counted: sampled, sampled }.values()
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

    fn get(values: &[(&'static str, Option<f64>)], name: &str) -> Option<f64> {
        values.iter().find(|(column, _)| *column == name).and_then(|(_, value)| *value)
    }

    #[test]
    fn a_part_of_a_second_counts_for_what_it_is() {
        let engine = [("pages_written_deadline".to_string(), 50.0)].into();
        let second = Second { inserts: 500, engine, sample_seconds: 0.5, ..Second::default() };
        let values = context(&step(), &second, 0.5);
        assert_eq!(get(&values, "inserts"), Some(1000.0));
        assert_eq!(get(&values, "written_deadline"), Some(100.0));
        assert_eq!(get(&context(&step(), &second, 0.0), "inserts"), None);
    }

    #[test]
    fn the_slowest_commit_of_a_short_end_is_told_and_their_99th_percentile_is_not() {
        let second =
            Second { inserts: 3, insert_us_99: 800, insert_us_max: 9000, ..Second::default() };
        let values = context(&step(), &second, 0.0);
        assert_eq!(get(&values, "commit_ms_99"), None);
        assert_eq!(get(&values, "commit_ms_max"), Some(9.0));
        assert_eq!(get(&context(&step(), &second, 0.5), "commit_ms_99"), Some(0.8));
    }

    #[test]
    fn what_an_engine_does_not_tell_is_absent() {
        let values = context(&step(), &Second::default(), 1.0);
        for column in
            ["checkpoint_age", "written_deadline", "waits_pacing", "redo_mib", "dirty_share"]
        {
            assert_eq!(get(&values, column), None, "{column}");
        }
        assert_eq!(get(&values, "device_write_mib"), Some(0.0), "the kernel tells");
    }

    #[test]
    fn six_digits() {
        assert_eq!(rounded(0.0), 0.0);
        assert_eq!(rounded(123_456_789.0), 123_457_000.0);
        assert_eq!(rounded(0.001234567), 0.00123457);
    }
}

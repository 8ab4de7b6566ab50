//! What a run showed of page writing.

use super::Slopes;
use crate::percentile::rate_99;
use crate::result::{SAMPLE_SECONDS_MIN, Second, StepResult};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const KB: f64 = 1024.0;
const MB: f64 = 1024.0 * KB;

/// Facts of a run's step, without the seconds left out at its beginning.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Seconds that they are about.
    pub seconds: usize,
    /// Rows per second: mean of the seconds.
    pub rate_mean: f64,
    /// The rate that 99 % of the seconds reach.
    pub rate_99: f64,
    /// The slowest second.
    pub rate_min: f64,
    /// Change of the rate over the whole time, as a share of the mean: of the line through all
    /// seconds.
    pub trend: f64,
    /// What becomes of the rate as rows are added.
    #[serde(default)]
    pub slopes: Slopes,
    /// KB written to the device per row, from the whole step but its first second.
    pub write_kb_per_row: f64,
    /// KB read from the device per row, from the whole step.
    pub read_kb_per_row: f64,
    /// Microseconds of the engine's processor time per row, from the whole step.
    pub cpu_us_per_row: f64,
    /// Bytes that the database takes, at the end of the step.
    pub size_bytes: u64,
    /// Pages written per second, mean.
    pub pages_mean: f64,
    /// The second with most of them.
    pub pages_max: f64,
    /// Pages written per MB of redo.
    pub pages_per_redo_mb: f64,
    /// Share of the time that a throttled device was at work.
    #[serde(default)]
    pub busy: f64,
    /// Redo, MB per second.
    pub redo_mb_mean: f64,
    /// Pages written by reason: deadline, dirty limit, free frames.
    pub pages_by_reason: [f64; 3],
    /// Greatest checkpoint age, as a share of what it may be; sampled every second.
    pub age_max: f64,
    /// Dirty pages as a share of all frames, mean.
    pub dirty_mean: f64,
    /// Dirty pages as a share of all frames, greatest sampled.
    pub dirty_max: f64,
    /// What that may be.
    pub dirty_limit: f64,
    /// Time that writers were held back by pacing, by the dirty limit, and by a full log; seconds
    /// of all clients together.
    pub waits_seconds: [f64; 3],
}

impl Facts {
    /// Slowest 1 % of seconds, as a share of the mean.
    pub fn jitter_99(&self) -> f64 {
        share(self.rate_99, self.rate_mean)
    }

    /// Slowest second, as a share of the mean.
    pub fn jitter_min(&self) -> f64 {
        share(self.rate_min, self.rate_mean)
    }

    /// Most pages written in a second, as a multiple of the mean.
    pub fn pages_peak(&self) -> f64 {
        share(self.pages_max, self.pages_mean)
    }

    /// Facts of a step without the first `skip` of its seconds (a share). `None` if it took no
    /// second.
    pub fn of(step: &StepResult, skip: f64) -> Option<Facts> {
        let seconds = whole_seconds(step);
        let skip = (seconds.len() as f64 * skip) as usize;
        if skip >= seconds.len() {
            return None;
        }
        let of_rows = rates(&seconds[skip..]);
        let mut facts = Facts {
            seconds: of_rows.len(),
            rate_mean: mean(&of_rows),
            rate_99: rate_99(&of_rows)?,
            rate_min: of_rows.iter().copied().fold(f64::INFINITY, f64::min),
            trend: trend(&of_rows),
            slopes: Slopes::of(&seconds[skip..]),
            ..Facts::default()
        };
        facts.of_step(step);
        facts.of_figures(seconds, skip);
        Some(facts)
    }

    fn of_step(&mut self, step: &StepResult) {
        let rows = step.inserts.map_or(0, |inserts| inserts.total) as f64;
        let usage = &step.measured.usage;
        self.write_kb_per_row = match written_per_row(&step.series) {
            Some(bytes) => bytes / KB,
            None => share(usage.write_bytes as f64 / KB, rows),
        };
        self.read_kb_per_row = share(usage.read_bytes as f64 / KB, rows);
        self.cpu_us_per_row = share(step.measured.engine_cpu_us() as f64, rows);
        self.size_bytes = step.measured.size_bytes;
    }

    fn of_figures(&mut self, seconds: &[Second], skip: usize) {
        let names =
            ["pages_written_deadline", "pages_written_dirty_limit", "pages_written_free_frames"];
        let waits = ["admission_wait_us", "dirty_limit_wait_us", "log_wait_us"];
        let from = &seconds[skip.max(1) - 1..];
        let growth = |name: &str| match (from.first(), from.last()) {
            (Some(first), Some(last)) => figure(last, name) - figure(first, name),
            _ => 0.0,
        };
        let time: f64 = from.iter().skip(1).map(|s| s.sample_seconds).sum();
        self.pages_by_reason = names.map(growth);
        self.waits_seconds = waits.map(|name| growth(name) / 1e6);
        let pages: f64 = self.pages_by_reason.iter().sum();
        let redo_mb = growth("lsn_current") / MB;
        self.pages_mean = share(pages, time);
        self.busy = share(growth("disk_busy_us") / 1e6, time);
        self.redo_mb_mean = share(redo_mb, time);
        self.pages_per_redo_mb = share(pages, redo_mb);
        for pair in from.windows(2).filter(|pair| pair[1].sample_seconds >= SAMPLE_SECONDS_MIN) {
            let pages: f64 =
                names.iter().map(|name| figure(&pair[1], name) - figure(&pair[0], name)).sum();
            self.pages_max = self.pages_max.max(share(pages, pair[1].sample_seconds));
        }
        let dirty: Vec<f64> = seconds[skip..].iter().map(|s| of_frames(s, "dirty")).collect();
        self.dirty_mean = mean(&dirty);
        self.dirty_max = dirty.iter().copied().fold(0.0, f64::max);
        for second in &seconds[skip..] {
            let age = figure(second, "checkpoint_age") / figure(second, "checkpoint_max_age");
            self.age_max = self.age_max.max(age);
            self.dirty_limit = self.dirty_limit.max(of_frames(second, "dirty_max"));
        }
    }
}

/// Bytes of pages and redo per row by the engine's own counts, where it has them: those of the
/// process have each rewrite of a cached block. The first sample is of its second's end, so that
/// second's rows don't count.
fn written_per_row(seconds: &[Second]) -> Option<f64> {
    let (first, last) = (seconds.first()?, seconds.last()?);
    let rows: u64 = seconds[1..].iter().map(|second| second.inserts).sum();
    if rows == 0 || !first.engine.contains_key("page_bytes_written") {
        return None;
    }
    let growth = |name: &str| figure(last, name) - figure(first, name);
    Some((growth("page_bytes_written") + growth("lsn_current")) / rows as f64)
}

fn whole_seconds(step: &StepResult) -> &[Second] {
    &step.series[..step.whole_seconds.min(step.series.len())]
}

fn rates(seconds: &[Second]) -> Vec<f64> {
    seconds.iter().map(|s| s.inserts as f64).collect()
}

fn figure(second: &Second, name: &str) -> f64 {
    let of = |engine: &BTreeMap<String, f64>| engine.get(name).copied();
    of(&second.engine).unwrap_or(0.0)
}

fn of_frames(second: &Second, name: &str) -> f64 {
    let pages = figure(second, &format!("buffer_pool_pages_{name}"));
    share(pages, figure(second, "buffer_pool_pages_total"))
}

fn share(of: f64, whole: f64) -> f64 {
    if whole > 0.0 { of / whole } else { 0.0 }
}

fn mean(values: &[f64]) -> f64 {
    share(values.iter().sum(), values.len() as f64)
}

/// Growth along the line of least squares from the first value to the last, as a share of the mean.
fn trend(values: &[f64]) -> f64 {
    let (n, middle) = (values.len() as f64, (values.len() as f64 - 1.0) / 2.0);
    let average = mean(values);
    let (mut with, mut of) = (0.0, 0.0);
    for (i, value) in values.iter().enumerate() {
        let x = i as f64 - middle;
        with += x * (value - average);
        of += x * x;
    }
    share(share(with, of) * (n - 1.0), average.abs()).clamp(-10.0, 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trend_is_the_line_through_all_seconds() {
        assert_eq!(trend(&[5.0; 10]), 0.0);
        let falling: Vec<f64> = (0..11).map(|i| 110.0 - 2.0 * f64::from(i)).collect();
        assert!((trend(&falling) + 0.2).abs() < 1e-9, "{}", trend(&falling));
        assert_eq!(trend(&[3.0]), 0.0);
    }

    #[test]
    fn what_was_written_before_the_first_sample_is_not_set_against_its_rows() {
        // 1,000 rows a second, of 300 bytes of redo and 700 of pages each.
        let second = |n: u32| {
            let of = |each: u32| f64::from((n + 1) * 1000 * each);
            let engine =
                [("lsn_current".to_string(), of(300)), ("page_bytes_written".to_string(), of(700))];
            Second { second: n, inserts: 1000, engine: engine.into(), ..Second::default() }
        };
        let seconds: Vec<Second> = (0..3).map(second).collect();
        assert_eq!(written_per_row(&seconds), Some(1000.0));
        assert_eq!(written_per_row(&seconds[..1]), None, "the process's count is all there is");
        assert_eq!(written_per_row(&[]), None);
    }

    #[test]
    fn a_step_without_a_whole_second_has_no_facts() {
        let mut step = StepResult {
            step: "load".parse().expect("a step"),
            name: "load".into(),
            inserts: None,
            deletes: 0,
            queries: None,
            background: None,
            scans: Vec::new(),
            measured: Default::default(),
            series: vec![Second { inserts: 100_000, ..Second::default() }],
            whole_seconds: 0,
        };
        assert_eq!(Facts::of(&step, 0.0), None);
        step.whole_seconds = 1;
        assert_eq!(Facts::of(&step, 0.0).map(|facts| facts.rate_mean), Some(100_000.0));
    }

    #[test]
    fn samples_that_make_up_for_a_late_one_are_no_peak() {
        let sample = |pages: f64, sample_seconds| Second {
            engine: [("pages_written_deadline".to_string(), pages)].into(),
            sample_seconds,
            ..Second::default()
        };
        let seconds = [sample(0.0, 1.0), sample(5000.0, 5.0), sample(5050.0, 0.001)];
        let mut facts = Facts::default();
        facts.of_figures(&seconds, 0);
        assert_eq!(facts.pages_max, 1000.0);
    }

    #[test]
    fn figures_are_growth_and_levels() {
        let second = |n: u32| {
            let mut engine = BTreeMap::new();
            let mut set = |name: &str, value: u32| engine.insert(name.into(), f64::from(value));
            set("pages_written_deadline", 100 * n + if n == 3 { 50 } else { 0 });
            set("lsn_current", n << 20);
            set("checkpoint_age", 90 + n);
            set("checkpoint_max_age", 100);
            set("buffer_pool_pages_dirty", 10 * n);
            set("buffer_pool_pages_dirty_max", 50);
            set("buffer_pool_pages_total", 100);
            Second { second: n, engine, sample_seconds: 1.0, ..Second::default() }
        };
        let seconds: Vec<Second> = (0..5).map(second).collect();
        let mut facts = Facts::default();
        facts.of_figures(&seconds, 2);
        assert_eq!((facts.pages_mean, facts.pages_max), (100.0, 150.0));
        assert_eq!(facts.pages_per_redo_mb, 100.0);
        assert_eq!((facts.age_max, facts.dirty_max, facts.dirty_limit), (0.94, 0.4, 0.5));
        assert!((facts.dirty_mean - 0.3).abs() < 1e-9);
    }
}

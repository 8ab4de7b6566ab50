//! One value per second: throughput, and latency at the 99th percentile and worst.
//!
//! Each client records into its own [`Recorder`]; a completed operation counts for the second in
//! which it completed. Nothing is shared, so recording costs a few nanoseconds and the bounds of
//! the seconds are exact, however late a sampling thread would have run.
//!
//! Percentiles of all clients together need the distribution of each second of each client. When a
//! second is over, what its histogram holds is kept as pairs, most of which are absent: about a
//! kilobyte.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What one client, or all of them, did in one second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Rows inserted, or queries answered.
    pub done: u64,
    /// What 99 % of the commits, or queries, that ended in this second did not exceed;
    /// microseconds.
    pub latency_us_99: u64,
    /// The longest commit, or query, that ended in this second; microseconds.
    pub latency_us_max: u64,
}

/// Latencies in nanoseconds and how often each was seen, ascending.
type Distribution = Box<[(u64, u64)]>;

/// Times and counts of one client's operations.
pub struct Recorder {
    start: Instant,
    cells: Vec<Cell>,
    /// Of every second that is over; empty where nothing ended.
    distributions: Vec<Distribution>,
    /// The second that operations end in now, and its latencies.
    current: usize,
    current_ns: Histogram<u64>,
    latency_ns: Histogram<u64>,
    end: Duration,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 3_600_000_000_000, 2).expect("bounds are valid")
}

fn distribution(histogram: &Histogram<u64>) -> Distribution {
    histogram.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
}

impl Recorder {
    /// A recorder whose first second begins at `start`.
    pub fn new(start: Instant) -> Self {
        Recorder {
            start,
            cells: Vec::with_capacity(256),
            distributions: Vec::with_capacity(256),
            current: 0,
            current_ns: histogram(),
            latency_ns: histogram(),
            end: Duration::ZERO,
        }
    }

    /// Records an operation of `done` rows or queries that ran from `began` to `ended`. Operations
    /// are recorded in the order in which they end.
    pub fn record(&mut self, began: Instant, ended: Instant, done: u64) {
        let latency = ended.saturating_duration_since(began);
        self.end = ended.saturating_duration_since(self.start);
        let second = self.end.as_secs() as usize;
        if second != self.current {
            self.begin_second(second);
        }
        if second >= self.cells.len() {
            self.cells.resize(second + 1, Cell::default());
        }
        let cell = &mut self.cells[second];
        cell.done += done;
        cell.latency_us_max = cell.latency_us_max.max(latency.as_micros() as u64);
        self.current_ns.saturating_record(latency.as_nanos() as u64);
    }

    /// Adds `times` operations that were due and left out: each waited for `latency` until the last
    /// one that was recorded ended.
    pub fn left_out(&mut self, latency: Duration, times: u64) {
        self.current_ns.saturating_record_n(latency.as_nanos() as u64, times);
    }

    /// When the last one ended, since the start.
    pub fn end(&self) -> Duration {
        self.end
    }

    fn begin_second(&mut self, second: usize) {
        assert!(second > self.current, "operations are recorded in the order in which they end");
        self.distributions.resize(self.current, Distribution::default());
        self.distributions.push(distribution(&self.current_ns));
        self.latency_ns.add(&self.current_ns).expect("histograms have the same bounds");
        self.current_ns.reset();
        self.current = second;
    }
}

/// All clients' recorders put together.
pub struct Series {
    /// Every second from the start, the last one usually not whole.
    pub cells: Vec<Cell>,
    /// When the first client was done: from here on, fewer of them were working.
    pub first_end: Duration,
    /// When the last one was done.
    pub last_end: Duration,
    latency_ns: Histogram<u64>,
}

impl Series {
    /// Adds up the recorders of one kind of operation.
    pub fn merge<'a>(recorders: impl IntoIterator<Item = &'a Recorder>) -> Self {
        let recorders: Vec<_> = recorders.into_iter().collect();
        let mut series = Series {
            cells: Vec::new(),
            first_end: Duration::MAX,
            last_end: Duration::ZERO,
            latency_ns: histogram(),
        };
        for recorder in &recorders {
            series.add(recorder);
        }
        series.add_percentiles(&recorders);
        series.first_end = series.first_end.min(series.last_end);
        series
    }

    fn add(&mut self, recorder: &Recorder) {
        if self.cells.len() < recorder.cells.len() {
            self.cells.resize(recorder.cells.len(), Cell::default());
        }
        for (sum, cell) in self.cells.iter_mut().zip(&recorder.cells) {
            sum.done += cell.done;
            sum.latency_us_max = sum.latency_us_max.max(cell.latency_us_max);
        }
        self.first_end = self.first_end.min(recorder.end);
        self.last_end = self.last_end.max(recorder.end);
        for part in [&recorder.latency_ns, &recorder.current_ns] {
            self.latency_ns.add(part).expect("histograms have the same bounds");
        }
    }

    fn add_percentiles(&mut self, recorders: &[&Recorder]) {
        let last: Vec<_> =
            recorders.iter().map(|r| (r.current, distribution(&r.current_ns))).collect();
        for (second, cell) in self.cells.iter_mut().enumerate() {
            let whole = recorders.iter().filter_map(|recorder| recorder.distributions.get(second));
            let begun = last.iter().filter(|(current, _)| *current == second);
            let parts = whole.chain(begun.map(|(_, distribution)| distribution));
            let pairs: Vec<_> = parts.flat_map(|part| part.iter().copied()).collect();
            // The histogram rounds up to the end of a bucket, which may lie above the largest
            // value.
            cell.latency_us_99 = (percentile_99(pairs) / 1000).min(cell.latency_us_max);
        }
    }

    /// Rows or queries in all.
    pub fn done(&self) -> u64 {
        self.cells.iter().map(|cell| cell.done).sum()
    }

    /// The rates of all whole seconds in which every client was at work.
    pub fn rates(&self) -> Vec<f64> {
        let whole = self.first_end.as_secs() as usize;
        let cell = |second| self.cells.get(second).copied().unwrap_or_default();
        (0..whole).map(|second| cell(second).done as f64).collect()
    }

    /// Rows or queries per second from the start until the last client was done.
    pub fn mean(&self) -> f64 {
        let seconds = self.last_end.as_secs_f64();
        if seconds > 0.0 { self.done() as f64 / seconds } else { 0.0 }
    }

    /// The distribution of latencies.
    pub fn latency(&self) -> Latency {
        let max_us = self.cells.iter().map(|cell| cell.latency_us_max).max().unwrap_or(0) as f64;
        // The histogram rounds up to the end of a bucket, which may lie above the largest value.
        let at = |quantile| {
            (self.latency_ns.value_at_quantile(quantile) as f64 / 1000.0).min(max_us.max(1.0))
        };
        Latency {
            count: self.latency_ns.len(),
            mean_us: if self.latency_ns.is_empty() { 0.0 } else { self.latency_ns.mean() / 1000.0 },
            p50_us: at(0.50),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us,
        }
    }
}

/// The least value that 99 % of all do not exceed; 0 of none.
fn percentile_99(mut pairs: Vec<(u64, u64)>) -> u64 {
    pairs.sort_unstable();
    let count: u64 = pairs.iter().map(|(_, count)| count).sum();
    let wanted = (count * 99).div_ceil(100);
    let mut seen = 0;
    let reached = pairs.iter().find(|(_, count)| {
        seen += count;
        seen >= wanted
    });
    reached.map_or(0, |(value, _)| *value)
}

/// Latencies of commits or queries, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// How many were measured; at a given rate also those that were due and left out.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Half of them are no slower.
    pub p50_us: f64,
    /// 99 % of them are no slower.
    pub p99_us: f64,
    /// 99.9 % of them are no slower.
    pub p999_us: f64,
    /// The slowest of all.
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorder(start: Instant, operations: &[(u64, u64, u64)]) -> Recorder {
        let mut recorder = Recorder::new(start);
        for &(began, ended, done) in operations {
            let at = |ms| start + Duration::from_millis(ms);
            recorder.record(at(began), at(ended), done);
        }
        recorder
    }

    #[test]
    fn a_stall_shows_as_empty_seconds_and_a_long_latency() {
        let start = Instant::now();
        let recorder = recorder(start, &[(0, 900, 50), (900, 3500, 50), (3500, 4100, 50)]);
        let series = Series::merge([&recorder]);
        let done: Vec<_> = series.cells.iter().map(|cell| cell.done).collect();
        assert_eq!(done, [50, 0, 0, 50, 50]);
        assert_eq!(series.cells[3].latency_us_max, 2_600_000);
        assert_eq!(series.rates(), [50.0, 0.0, 0.0, 50.0]);
        assert_eq!(series.latency().max_us, 2_600_000.0);
    }

    #[test]
    fn seconds_after_the_first_client_is_done_do_not_count() {
        let start = Instant::now();
        let quick = recorder(start, &[(0, 500, 10), (500, 1500, 10), (1500, 2100, 10)]);
        let slow = recorder(start, &[(0, 1000, 10), (1000, 2000, 10), (2000, 4000, 10)]);
        let series = Series::merge([&quick, &slow]);
        assert_eq!(series.rates(), [10.0, 20.0]);
        assert_eq!(series.mean(), 60.0 / 4.0);
    }

    #[test]
    fn shorter_than_a_second_has_a_mean_and_no_whole_second() {
        let start = Instant::now();
        let series = Series::merge([&recorder(start, &[(0, 250, 10)])]);
        assert_eq!((series.mean(), series.rates()), (40.0, Vec::new()));
        assert!(Series::merge([]).rates().is_empty());
    }

    #[test]
    fn percentiles_are_of_all_clients_and_of_each_second() {
        let start = Instant::now();
        // 198 commits of 10 ms in the first two seconds; 2 slow ones by the other client.
        let fast: Vec<_> = (0..198).map(|i| (i * 10, i * 10 + 10, 1)).collect();
        let fast = recorder(start, &fast);
        let slow = recorder(start, &[(0, 400, 1), (400, 900, 1), (4000, 4100, 1)]);
        let series = Series::merge([&fast, &slow]);
        let near = |second: usize, ms: u64| {
            let us = series.cells[second].latency_us_99;
            assert!(us.abs_diff(ms * 1000) <= ms * 10, "second {second}: {us} us");
        };
        // Of 101 commits (99 fast ones, 2 slow), the 100th; then only fast ones; then none; one.
        near(0, 400);
        near(1, 10);
        assert_eq!(series.cells[3], Cell::default());
        near(4, 100);
        assert_eq!(series.latency().count, 201);
    }

    #[test]
    fn what_was_left_out_has_waited_and_is_not_done() {
        let mut recorder = recorder(Instant::now(), &[(0, 1, 50), (100, 2100, 50)]);
        (0..19).for_each(|slot| recorder.left_out(Duration::from_millis(1900 - 100 * slot), 1));
        let series = Series::merge([&recorder]);
        let latency = series.latency();
        assert_eq!((series.done(), latency.count), (100, 21));
        assert!(latency.p50_us > 900_000.0 && latency.max_us == 2_000_000.0, "{latency:?}");
    }

    #[test]
    fn percentiles_of_few() {
        assert_eq!(percentile_99(vec![]), 0);
        assert_eq!(percentile_99(vec![(5, 1)]), 5);
        assert_eq!(percentile_99(vec![(9, 1), (1, 98)]), 9);
        assert_eq!(percentile_99(vec![(9, 1), (1, 99)]), 1);
    }
}

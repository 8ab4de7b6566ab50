//! What sysbench's tests gave, as it is stored.

use serde::{Deserialize, Serialize};

use super::output::Second;
use crate::accounting::Usage;
use crate::engine::EngineInfo;
use crate::environment::Environment;
use crate::percentile::rate_99;

/// Version of the document.
pub const FORMAT: u32 = 1;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `super::Plan`")]
pub struct Settings {
    pub tables: u32,
    pub table_rows: u64,
    #[serde(default = "one_round")]
    pub rounds: u32,
    #[serde(default)]
    pub side_by_side: bool,
    pub seconds: u32,
    pub dropped_seconds: u32,
    pub iops: Option<u32>,
    #[serde(default)]
    pub rate: Option<u64>,
    pub binlog: bool,
    #[serde(default)]
    pub pinned: bool,
    pub memory_bytes: u64,
    pub redo_bytes: u64,
    pub durability: String,
}

/// As many as there were while there was no choice.
fn one_round() -> u32 {
    1
}

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`FORMAT`].
    pub format: u32,
    /// What was asked for.
    pub settings: Settings,
    /// Where it ran.
    pub environment: Environment,
    /// The servers as they were.
    #[serde(default)]
    pub servers: Vec<EngineInfo>,
    /// In the order in which they ran.
    pub runs: Vec<Run>,
}

/// One test with one number of threads on one server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The server, as it was named.
    pub server: String,
    /// From 1.
    #[serde(default = "one_round")]
    pub round: u32,
    /// The test.
    pub test: String,
    /// Client threads.
    pub threads: u32,
    /// Why there is nothing else.
    pub failure: Option<String>,
    /// Transactions in all.
    pub transactions: u64,
    /// Transactions per second, mean of the seconds that count.
    pub rate_mean: f64,
    /// The rate that 99 % of the seconds that count reach.
    pub rate_99: f64,
    /// What 95 % of the transactions of a second did not exceed: mean of the seconds in which any
    /// ended.
    pub latency_ms_95: f64,
    /// That of the second in which it was worst.
    #[serde(default)]
    pub latency_ms_95_max: f64,
    /// Seconds that count in which no transaction ended: they have no latency.
    #[serde(default)]
    pub empty_seconds: usize,
    /// Transactions per second that were rolled back and tried again.
    pub errors_per_second: f64,
    /// The server's processor time in the whole run.
    pub server_cpu_us: u64,
    /// The server's device traffic in the whole run; its processor time has this program's in it.
    pub usage: Usage,
    /// The server's resident memory at the end.
    pub resident_bytes: u64,
    /// What the server's files take at the end.
    pub size_bytes: u64,
    /// Every second, those dropped as well.
    pub seconds: Vec<Second>,
}

impl Run {
    pub(super) fn is_same(&self, other: &Run) -> bool {
        let key = |run: &Run| (run.round, run.threads);
        (&self.server, &self.test, key(self)) == (&other.server, &other.test, key(other))
    }

    /// How many seconds count: all but so many at the beginning.
    pub fn counted_seconds(&self, dropped: u32) -> usize {
        self.seconds.iter().filter(|second| second.second > dropped).count()
    }

    /// Fills in what follows from the seconds.
    pub(super) fn summarize(&mut self, dropped: u32) {
        let kept: Vec<_> = self.seconds.iter().filter(|second| second.second > dropped).collect();
        if kept.is_empty() {
            self.failure = Some("sysbench told of no second that counts".into());
            return;
        }
        let rates: Vec<f64> = kept.iter().map(|second| second.transactions).collect();
        let mean = |of: &[&Second], value: fn(&Second) -> f64| {
            of.iter().map(|second| value(second)).sum::<f64>() / of.len().max(1) as f64
        };
        self.rate_mean = mean(&kept, |second| second.transactions);
        self.errors_per_second = mean(&kept, |second| second.errors);
        // Where no transaction ended, sysbench tells a latency of 0: a stall would look quick.
        let ended: Vec<_> = kept.iter().copied().filter(|s| s.transactions > 0.0).collect();
        self.latency_ms_95 = mean(&ended, |second| second.latency_ms_95);
        self.latency_ms_95_max = ended.iter().map(|s| s.latency_ms_95).fold(0.0, f64::max);
        self.empty_seconds = kept.len() - ended.len();
        self.rate_99 = rate_99(&rates).unwrap_or(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(second: u32, transactions: f64) -> Second {
        let latency_ms_95 = if transactions > 0.0 { 6.0 } else { 0.0 };
        Second { second, transactions, latency_ms_95, ..Second::default() }
    }

    #[test]
    fn the_beginning_does_not_count() {
        let rates = [900.0, 10.0, 100.0, 300.0, 200.0];
        let seconds = (1..).zip(rates).map(|(number, rate)| second(number, rate)).collect();
        let mut run = Run { seconds, ..Run::default() };
        run.summarize(2);
        assert_eq!((run.rate_mean, run.rate_99), (200.0, 100.0));
        assert_eq!((run.latency_ms_95, run.empty_seconds), (6.0, 0));
        run.summarize(5);
        assert!(run.failure.unwrap().contains("no second that counts"));
    }

    #[test]
    fn a_second_without_a_transaction_has_no_latency() {
        let slow = Second { latency_ms_95: 10.0, ..second(5, 100.0) };
        let few = [second(1, 100.0), second(2, 0.0), second(3, 0.0), second(4, 100.0), slow];
        let mut run = Run { seconds: few.to_vec(), ..Run::default() };
        run.summarize(0);
        assert_eq!((run.rate_mean, run.rate_99, run.empty_seconds), (60.0, 0.0, 2));
        assert_eq!((run.latency_ms_95, run.latency_ms_95_max), (22.0 / 3.0, 10.0));
    }
}

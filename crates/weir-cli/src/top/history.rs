//! The last samples, and what happened between them.

use std::collections::VecDeque;
use std::time::Instant;

use weir_status::Metrics;

/// How many samples are kept.
const SAMPLES_MAX: usize = 600;

/// The metrics of a moment.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When it was taken.
    pub at: Instant,
    /// Its metrics.
    pub metrics: Metrics,
}

/// Samples, oldest first.
#[derive(Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

impl History {
    /// Without a sample.
    pub fn new() -> Self {
        History::default()
    }

    /// Adds a sample. Counters that are lower than before belong to a database that was opened
    /// anew: nothing before can be compared with it.
    pub fn push(&mut self, sample: Sample) {
        if self.samples.back().is_some_and(|last| is_reset(last, &sample)) {
            self.samples.clear();
        }
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// A metric as it is now; `None` when this database doesn't tell it.
    pub fn level(&self, metric: &str) -> Option<f64> {
        self.samples.back()?.metrics.get(metric).copied()
    }

    /// Values of a metric, oldest first.
    pub fn levels(&self, metric: &str) -> Vec<f64> {
        self.samples.iter().filter_map(|sample| sample.metrics.get(metric).copied()).collect()
    }

    /// Growth per second of a metric between one sample and the next, oldest first.
    pub fn rates(&self, metric: &str) -> Vec<f64> {
        let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
        pairs.filter_map(|(before, now)| rate(metric, before, now)).collect()
    }

    /// The newest of the rates.
    pub fn rate(&self, metric: &str) -> Option<f64> {
        let newest = self.samples.len().checked_sub(2)?;
        rate(metric, &self.samples[newest], &self.samples[newest + 1])
    }
}

fn rate(metric: &str, before: &Sample, now: &Sample) -> Option<f64> {
    let seconds = (now.at - before.at).as_secs_f64();
    let growth = now.metrics.get(metric)? - before.metrics.get(metric)?;
    (seconds > 0.0).then(|| growth.max(0.0) / seconds)
}

fn is_reset(before: &Sample, now: &Sample) -> bool {
    let counters = before.metrics.iter().filter(|(name, _)| name.ends_with("_total"));
    let lower = |(name, value): (&String, &f64)| now.metrics.get(name).is_some_and(|n| n < value);
    counters.into_iter().any(lower)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::time::Duration;

    pub fn history(samples: &[&[(&str, f64)]]) -> History {
        let mut history = History::new();
        let start = Instant::now();
        for (second, metrics) in samples.iter().enumerate() {
            let metrics = metrics.iter().map(|(name, value)| (name.to_string(), *value)).collect();
            history.push(Sample { at: start + Duration::from_secs(2 * second as u64), metrics });
        }
        history
    }

    #[test]
    fn rates_are_per_second() {
        let history = history(&[&[("a_total", 10.0)], &[("a_total", 30.0)], &[("a_total", 30.0)]]);
        assert_eq!(history.rates("a_total"), [10.0, 0.0]);
        assert_eq!(history.rate("a_total"), Some(0.0));
        assert_eq!(history.level("a_total"), Some(30.0));
        assert_eq!(history.rate("b_total"), None);
    }

    #[test]
    fn a_database_opened_anew_begins_anew() {
        let history = history(&[&[("a_total", 10.0)], &[("a_total", 3.0)]]);
        assert_eq!((history.levels("a_total"), history.rate("a_total")), (vec![3.0], None));
    }

    #[test]
    fn old_samples_are_forgotten() {
        let samples = vec![[("a", 1.0)]; SAMPLES_MAX + 5];
        let samples: Vec<&[(&str, f64)]> = samples.iter().map(|sample| &sample[..]).collect();
        assert_eq!(history(&samples).levels("a").len(), SAMPLES_MAX);
    }
}

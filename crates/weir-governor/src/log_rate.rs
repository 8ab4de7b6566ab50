//! How fast the log grows, seen over short and long times at once.
//!
//! A deadline that is near asks for what the log does now; one that is far away for what it does on
//! average until then. So the rate is kept as exponential averages over spans of 1/8 s to 16 s, and
//! each runway uses the one that fits it.

/// Averages.
pub const SPANS: usize = 8;
/// The shortest span, in seconds; each further one is twice as long.
const SHORTEST: f64 = 0.125;
/// A runway is this many spans of its average long.
const SPANS_PER_RUNWAY: f64 = 4.0;

/// Averages of the log's growth, in bytes per second.
#[derive(Debug, Clone, Default)]
pub struct LogRate {
    averages: [f64; SPANS],
    /// Weight that the averages have gathered: 1 after a few spans.
    weights: [f64; SPANS],
    end: Option<u64>,
}

/// The averages at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    /// By span, shortest first.
    pub by_span: [f64; SPANS],
    /// The largest of them.
    pub max: f64,
}

impl LogRate {
    /// The log ends at `end`, `seconds` after the last call.
    pub fn observe(&mut self, end: u64, seconds: f64) -> Rates {
        let grown = self.end.map_or(0, |before| end.saturating_sub(before));
        if self.end.replace(end).is_some() {
            let rate = grown as f64 / seconds;
            for (k, average) in self.averages.iter_mut().enumerate() {
                let share = -(-seconds / span(k)).exp_m1();
                *average += (rate - *average) * share;
                self.weights[k] += (1.0 - self.weights[k]) * share;
            }
        }
        self.rates()
    }

    fn rates(&self) -> Rates {
        let mut by_span = [0.0; SPANS];
        for (k, rate) in by_span.iter_mut().enumerate() {
            if self.weights[k] > 0.0 {
                *rate = self.averages[k] / self.weights[k];
            }
        }
        Rates { by_span, max: by_span.iter().copied().fold(0.0, f64::max) }
    }
}

fn span(k: usize) -> f64 {
    SHORTEST * (1u32 << k) as f64
}

impl Rates {
    /// The longest average.
    pub fn slow(&self) -> f64 {
        self.by_span[SPANS - 1]
    }

    /// The average of the longest span of at most `seconds`; the shortest one if there is none.
    pub fn over(&self, seconds: f64) -> f64 {
        let longer = (0..SPANS).take_while(|&k| span(k) <= seconds).count();
        self.by_span[longer.max(1) - 1]
    }

    /// Runways, in bytes, from which on each average but the first is used; ascending. A longer
    /// average that has begun to see a burst needs a longer runway at once.
    pub fn thresholds(&self) -> [f64; SPANS - 1] {
        let mut thresholds: [f64; SPANS - 1] =
            std::array::from_fn(|k| SPANS_PER_RUNWAY * span(k + 1) * self.by_span[k + 1]);
        for k in (0..SPANS - 2).rev() {
            thresholds[k] = thresholds[k].min(thresholds[k + 1]);
        }
        thresholds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_log_has_one_rate_from_the_start() {
        let mut rate = LogRate::default();
        assert_eq!(rate.observe(5000, 0.01).max, 0.0);
        for tick in 1..1000 {
            let rates = rate.observe(5000 + tick * 100, 0.01);
            for average in rates.by_span {
                assert!((average - 10_000.0).abs() < 1e-6, "{average} after {tick} ticks");
            }
        }
    }

    #[test]
    fn a_time_has_the_longest_average_within_it() {
        let rates = Rates { by_span: std::array::from_fn(|k| k as f64), max: 7.0 };
        let of = [0.01, 0.125, 0.2, 4.0, 15.9, 16.0, 1e9].map(|seconds| rates.over(seconds));
        assert_eq!(of, [0.0, 0.0, 0.0, 5.0, 6.0, 7.0, 7.0]);
    }

    #[test]
    fn short_spans_see_a_step_at_once_and_long_ones_later() {
        let mut rate = LogRate::default();
        let mut end = 0;
        let mut run = |bytes: u64, ticks: u32| {
            let mut rates = rate.observe(end, 0.01);
            for _ in 0..ticks {
                end += bytes;
                rates = rate.observe(end, 0.01);
            }
            rates
        };
        run(100, 10_000);
        let after = run(1000, 50);
        assert!(after.by_span[0] > 98_000.0 && after.by_span[0] <= 100_000.0);
        assert!(after.slow() < 13_000.0);
        assert!(after.by_span.is_sorted_by(|a, b| a >= b));
        let idle = run(0, 10_000);
        assert!(idle.max < 200.0, "{idle:?}");
    }
}

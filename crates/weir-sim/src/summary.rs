//! A run in a line.

use crate::run::{Run, Second};

/// The figures of a run after its warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Summary {
    /// Operations per second, mean.
    pub rate_mean: f64,
    /// What 99 % of the seconds reach.
    pub rate_99: f64,
    /// The lowest second.
    pub rate_min: f64,
    /// Age in shares of its limit: mean and maximum.
    pub age_mean: f64,
    /// See `age_mean`.
    pub age_max: f64,
    /// Pages written per second: mean and the highest second.
    pub pages_mean: f64,
    /// See `pages_mean`.
    pub pages_peak: f64,
    /// Pages written per second because of deadlines, the dirty limit, and free frames.
    pub pages_by_reason: [f64; 3],
    /// Pages written per MB (2^20) of redo.
    pub pages_per_mb: f64,
    /// Pages written per operation.
    pub pages_per_operation: f64,
    /// Pages read per second.
    pub reads: f64,
    /// Dirty pages in shares of the frames: mean and maximum.
    pub dirty_mean: f64,
    /// See `dirty_mean`.
    pub dirty_max: f64,
    /// Share of the time in which writers were held back.
    pub paced: f64,
    /// Share of the time in which they stood still.
    pub stalled: f64,
}

impl Summary {
    /// Of these seconds.
    pub fn of(seconds: &[Second], frames: f64) -> Summary {
        let mean = |value: &dyn Fn(&Second) -> f64| {
            seconds.iter().map(value).sum::<f64>() / seconds.len() as f64
        };
        let max = |value: &dyn Fn(&Second) -> f64| seconds.iter().map(value).fold(0.0, f64::max);
        let mut rates: Vec<f64> = seconds.iter().map(|s| s.operations).collect();
        rates.sort_by(f64::total_cmp);
        let age = |s: &Second| s.age as f64 / s.age_max as f64;
        let pages_mean = mean(&Second::pages_written);
        let rate_mean = mean(&|s| s.operations);
        Summary {
            rate_mean,
            rate_99: rates[rates.len() / 100],
            rate_min: rates[0],
            age_mean: mean(&age),
            age_max: max(&age),
            pages_mean,
            pages_peak: max(&Second::pages_written),
            pages_by_reason: [0, 1, 2].map(|at| mean(&|s| s.written[at])),
            pages_per_mb: pages_mean / (mean(&|s| s.log_bytes) / 1_048_576.0).max(1e-12),
            pages_per_operation: pages_mean / rate_mean.max(1e-12),
            reads: mean(&|s| s.reads),
            dirty_mean: mean(&|s| s.dirty) / frames,
            dirty_max: max(&|s| s.dirty) / frames,
            paced: mean(&|s| s.paced),
            stalled: mean(&|s| s.stalled),
        }
    }
}

/// The columns of [`row`], and what they mean.
pub const COLUMNS: [(&str, &str); 16] = [
    ("policy", "what decided when pages were written"),
    (
        "op/s",
        "operations per second, mean; the first third of the time doesn't count, here and below",
    ),
    ("p1/mean", "the rate that 99 % of the seconds reach, of the mean"),
    ("low/s", "the slowest second's rate"),
    ("age.av", "checkpoint age, mean, of what it may be"),
    ("age.max", "the greatest of that"),
    ("pages/s", "pages written per second, mean"),
    ("peak", "the second with most of them"),
    ("deadline", "of these, pages per second for the log's sake"),
    ("dirty", "for the dirty limit's sake"),
    ("free", "to free frames"),
    ("pages/MB", "pages written per MB (2^20) of redo"),
    ("dirty.av", "dirty pages of all frames, mean"),
    ("dirty.max", "the greatest of that"),
    ("paced", "share of the time in which writers were held back"),
    ("stalled", "share of the time in which they stood still"),
];

/// Heads of [`row`].
pub fn heads() -> [&'static str; 16] {
    COLUMNS.map(|(name, _)| name)
}

/// A run's line under [`heads`].
pub fn row(run: &Run) -> Vec<String> {
    let s = &run.summary;
    let percent = |share: f64| format!("{:.1}%", 100.0 * share);
    let whole = |value: f64| format!("{value:.0}");
    let ratio = s.rate_99 / s.rate_mean.max(1e-12);
    let mut cells = vec![run.policy.clone(), whole(s.rate_mean), format!("{ratio:.2}")];
    cells.push(whole(s.rate_min));
    cells.extend([percent(s.age_mean), percent(s.age_max)]);
    cells.extend([whole(s.pages_mean), whole(s.pages_peak)]);
    cells.extend(s.pages_by_reason.map(whole));
    cells.push(format!("{:.2}", s.pages_per_mb));
    cells.extend([s.dirty_mean, s.dirty_max, s.paced, s.stalled].map(percent));
    cells
}

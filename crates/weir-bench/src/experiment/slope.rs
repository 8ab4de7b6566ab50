//! What becomes of the rate as rows are added: slopes, and how sure they are.
//!
//! Seconds are put into blocks, and a line is fitted through the rates of the blocks by least
//! squares. What is near in time is alike, so the margin is widened by what neighbouring blocks
//! have in common. Slopes are told per 10 million rows, as a share of the mean rate.
//!
//! More data has its price in itself: deeper trees and colder caches, and a smaller part of the
//! pages in memory. So three slopes are told:
//! - `all`: of all rows;
//! - `late`: of the second half of the rows, in which the number of levels and comparisons all but
//!   stays;
//! - `late_alike`: that, at an equal number of pages read and written per row. What is left here is
//!   what more data doesn't explain.

use crate::result::Second;
use serde::{Deserialize, Serialize};

/// Blocks that seconds are put into, at most, and the fewest that make a line.
const BLOCKS: (usize, usize) = (60, 8);

/// Margins are this many standard errors: 95 %, roughly.
const MARGIN: f64 = 2.0;

/// Rows that slopes are told per.
const ROWS: f64 = 10e6;

/// A slope as a share of the mean, per 10 million rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Slope {
    /// The slope.
    pub share: f64,
    /// It is within this of the true one, 19 times of 20.
    pub margin: f64,
}

/// See the module.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Slopes {
    /// Of all rows.
    pub all: Option<Slope>,
    /// Of their second half.
    pub late: Option<Slope>,
    /// Of that, at an equal number of pages read and written per row.
    pub late_alike: Option<Slope>,
}

/// Some seconds together.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Rows there were in the middle of it.
    rows: f64,
    /// Rows per second.
    rate: f64,
    /// Pages read and written per row.
    pages: f64,
}

impl Slopes {
    /// Of the seconds of a load.
    pub fn of(seconds: &[Second]) -> Slopes {
        let total: f64 = seconds.iter().map(|s| s.inserts as f64).sum();
        let mut rows = 0.0;
        let late = seconds.iter().position(|s| {
            rows += s.inserts as f64;
            rows > total / 2.0
        });
        let late = late.unwrap_or(seconds.len());
        let all = blocks(seconds, 0);
        let late = blocks(seconds, late);
        let alike: Vec<f64> = late.iter().map(|b| b.pages).collect();
        Slopes {
            all: slope(&all, None),
            late: slope(&late, None),
            late_alike: slope(&late, Some(&alike)),
        }
    }
}

fn pages(second: &Second) -> f64 {
    const NAMES: [&str; 5] = [
        "pages_read",
        "pages_read_ahead",
        "pages_written_deadline",
        "pages_written_dirty_limit",
        "pages_written_free_frames",
    ];
    NAMES.iter().map(|name| second.engine.get(*name).copied().unwrap_or(0.0)).sum()
}

/// Blocks of the seconds from `from` on.
fn blocks(seconds: &[Second], from: usize) -> Vec<Block> {
    let mut rows: f64 = seconds[..from].iter().map(|s| s.inserts as f64).sum();
    let length = (seconds.len() - from).div_ceil(BLOCKS.0).max(1);
    let mut blocks = Vec::new();
    for block in seconds[from..].chunks_exact(length) {
        let inserted: f64 = block.iter().map(|s| s.inserts as f64).sum();
        let growth = pages(&block[length - 1]) - pages(&block[0]);
        // The first sample is of its second's end: what is counted began a second later.
        let counted: f64 = block.iter().skip(1).map(|s| s.inserts as f64).sum();
        blocks.push(Block {
            rows: rows + inserted / 2.0,
            rate: inserted / length as f64,
            pages: if counted > 0.0 { growth / counted } else { 0.0 },
        });
        rows += inserted;
    }
    blocks
}

/// The slope of the blocks' rates; at equal values of `alike`, if given.
fn slope(blocks: &[Block], alike: Option<&[f64]>) -> Option<Slope> {
    if blocks.len() < BLOCKS.1 {
        return None;
    }
    let rates = centred(blocks.iter().map(|b| b.rate));
    let mean = blocks.iter().map(|b| b.rate).sum::<f64>() / blocks.len() as f64;
    let mut rows = centred(blocks.iter().map(|b| b.rows / ROWS));
    let (mut left, mut fitted) = (rates, 2.0);
    // What the other explains is taken out of both: what is left of them makes the partial slope.
    if let Some(alike) = alike {
        let alike = centred(alike.iter().copied());
        without(&mut rows, &alike);
        without(&mut left, &alike);
        fitted += 1.0;
    }
    let spread = dot(&rows, &rows);
    if spread < 1e-9 * blocks.len() as f64 || mean <= 0.0 {
        return None;
    }
    let slope = dot(&rows, &left) / spread;
    without(&mut left, &rows);
    let variance = dot(&left, &left) / (blocks.len() as f64 - fitted);
    let alike = neighbours_alike(&left);
    let error = (variance / spread * (1.0 + alike) / (1.0 - alike)).sqrt();
    Some(Slope { share: slope / mean, margin: MARGIN * error / mean })
}

fn centred(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let values: Vec<f64> = values.collect();
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.into_iter().map(|value| value - mean).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Takes out of `values` what `other` explains of them; both are centred.
fn without(values: &mut [f64], other: &[f64]) {
    let spread = dot(other, other);
    if spread <= 0.0 {
        return;
    }
    let share = dot(values, other) / spread;
    values.iter_mut().zip(other).for_each(|(value, other)| *value -= share * other);
}

/// How much neighbouring residuals have in common, 0 to 0.9.
fn neighbours_alike(residuals: &[f64]) -> f64 {
    let spread = dot(residuals, residuals);
    if spread <= 0.0 {
        return 0.0;
    }
    (dot(&residuals[1..], &residuals[..residuals.len() - 1]) / spread).clamp(0.0, 0.9)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds of a load whose rate is `rate(rows so far, pages per row of this second)`.
    fn load(
        seconds: u32,
        pages: impl Fn(f64) -> f64,
        rate: impl Fn(f64, f64) -> f64,
    ) -> Vec<Second> {
        let (mut rows, mut all_pages) = (0.0, 0.0);
        (0..seconds)
            .map(|second| {
                let per_row = pages(rows);
                let inserts = rate(rows, per_row).round();
                rows += inserts;
                all_pages += per_row * inserts;
                let engine = [("pages_read".to_string(), all_pages)].into();
                Second { second, inserts: inserts as u64, engine, ..Second::default() }
            })
            .collect()
    }

    #[test]
    fn a_slope_is_found_within_its_margin() {
        let rng = std::cell::RefCell::new(fastrand::Rng::with_seed(3));
        let noise = || 1.0 + 0.1 * (rng.borrow_mut().f64() - 0.5);
        // 100,000 rows a second, 2 % less after each 10 million rows.
        let falling = |rows: f64, _: f64| 1e5 * (1.0 - 0.02 * rows / 1e7) * noise();
        let slope = Slopes::of(&load(1000, |_| 0.0, falling)).all.expect("long enough");
        let mean = 1.0 - 0.02 * 9.0 / 2.0;
        assert!((slope.share + 0.02 / mean).abs() < slope.margin, "{slope:?}");
        assert!((1e-5..4e-3).contains(&slope.margin), "{slope:?}");
        let even = Slopes::of(&load(1000, |_| 0.0, |_, _| 1e5 * noise())).all.expect("enough");
        assert!(even.share.abs() < 2.0 * even.margin, "{even:?}");
    }

    #[test]
    fn what_pages_per_row_explain_is_told_apart() {
        let rng = std::cell::RefCell::new(fastrand::Rng::with_seed(5));
        // Ever more pages per row, with ups and downs, and a rate that follows them and nothing
        // else.
        let pages = |rows: f64| 0.5 + rows / 2e8 + 0.2 * (rng.borrow_mut().f64() - 0.5);
        let slopes = Slopes::of(&load(2000, pages, |_, pages| 1e5 / (1.0 + pages)));
        let (late, alike) = (slopes.late.expect("enough"), slopes.late_alike.expect("enough"));
        assert!(late.share < -2.0 * late.margin, "{late:?}");
        assert!(alike.share.abs() < late.share.abs() / 4.0, "{alike:?} of {late:?}");
    }

    #[test]
    fn a_short_load_has_no_slope() {
        assert_eq!(Slopes::of(&load(7, |_| 0.0, |_, _| 1e5)), Slopes::default());
        assert_eq!(Slopes::of(&[]), Slopes::default());
    }

    #[test]
    fn neighbours_that_are_alike_widen_the_margin() {
        let wave =
            |period: f64| move |rows: f64, _: f64| 1e5 * (1.0 + 0.05 * (rows / period).sin());
        let margin = |period: f64| {
            Slopes::of(&load(1200, |_| 0.0, wave(period))).all.expect("enough").margin
        };
        assert!(margin(4e6) > 2.0 * margin(3e5), "{} {}", margin(4e6), margin(3e5));
    }
}

//! The flush governor: how fast dirty pages must be written, as a pure function.
//!
//! A page first changed at LSN `x` must be written before the log reaches `x + A`, `A` being the
//! age target. With `n(x)` dirty pages at or before `x`, the log at `L` growing at rate `v`, the
//! lowest constant rate that meets every deadline is `v * max over x of n(x) / (x + A - L)`: the
//! smoothest schedule for jobs that are all present (Yao, Demers, Shenker, FOCS 1995).

/// What the governor looks at.
#[derive(Debug, Clone)]
pub struct Input {
    /// `(x, n(x))`: dirty pages first changed at or before LSN `x`, ascending in `x`.
    pub deadlines: Vec<(u64, u64)>,
    /// End of the log.
    pub log_end: u64,
    /// Growth of the log, in bytes per second.
    pub log_rate: f64,
    /// Age that no page may pass, in bytes of log.
    pub age_target: u64,
}

/// Lowest rate of page writes, in pages per second, that meets every deadline; infinite when one
/// is due now.
pub fn write_rate(input: &Input) -> f64 {
    let mut steepest: f64 = 0.0;
    for &(x, pages) in &input.deadlines {
        let due = x + input.age_target;
        if due <= input.log_end {
            return f64::INFINITY;
        }
        steepest = steepest.max(pages as f64 / (due - input.log_end) as f64);
    }
    steepest * input.log_rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(deadlines: &[(u64, u64)]) -> Input {
        Input { deadlines: deadlines.to_vec(), log_end: 1000, log_rate: 10.0, age_target: 500 }
    }

    #[test]
    fn nothing_dirty_needs_no_writes() {
        assert_eq!(write_rate(&input(&[])), 0.0);
    }

    #[test]
    fn the_steepest_deadline_counts() {
        // 10 pages within 100 bytes of log, 20 within 500: the first is steeper.
        assert_eq!(write_rate(&input(&[(600, 10), (1000, 20)])), 1.0);
        // 10 pages within 100, 100 within 500: the second is.
        assert_eq!(write_rate(&input(&[(600, 10), (1000, 100)])), 2.0);
    }

    #[test]
    fn what_is_due_is_due() {
        assert_eq!(write_rate(&input(&[(500, 1)])), f64::INFINITY);
    }
}

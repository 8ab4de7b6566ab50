//! Policies to compare with: the laziest one, and one that an operator tunes.

use crate::{Load, Plan, Policy};

/// Share of the largest age that these policies aim at.
const TARGET: f64 = 0.95;

fn target(load: &Load) -> u64 {
    (load.age_max as f64 * TARGET) as u64
}

/// Writes each page when its deadline comes, and not before: the fewest writes possible, in waves.
#[derive(Debug, Clone, Default)]
pub struct WriteAtDeadline {
    log_end: Option<u64>,
}

impl WriteAtDeadline {
    /// Nothing to set.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Policy for WriteAtDeadline {
    fn name(&self) -> String {
        "at-deadline".into()
    }

    fn plan(&mut self, load: &Load) -> Plan {
        let target = target(load);
        let grown = load.log_end - self.log_end.replace(load.log_end).unwrap_or(load.log_end);
        // What falls due until the next call, if the log goes on as it did.
        let due_to = (load.log_end + grown).saturating_sub(target);
        let at = load.deadlines.partition_point(|&(x, _)| x <= due_to);
        let due = at.checked_sub(1).map_or(0, |last| load.deadlines[last].1);
        Plan { deadline_rate: due as f64 / load.seconds, age_target: target, ..Plan::IDLE }
    }
}

/// Writes a fixed number of pages per second, as long as there are any.
#[derive(Debug, Clone)]
pub struct FixedRate {
    pages_per_second: f64,
}

impl FixedRate {
    /// The rate is for the operator to find.
    pub fn new(pages_per_second: f64) -> Self {
        FixedRate { pages_per_second }
    }
}

impl Policy for FixedRate {
    fn name(&self) -> String {
        format!("fixed:{}", self.pages_per_second)
    }

    fn plan(&mut self, load: &Load) -> Plan {
        let pages = load.dirty_pages as f64;
        let rate = self.pages_per_second.min(pages / load.seconds);
        Plan { deadline_rate: rate, age_target: target(load), ..Plan::IDLE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: Load = Load { seconds: 0.1, log_end: 0, age_max: 1000, ..Load::IDLE };

    #[test]
    fn at_the_deadline_means_neither_before_nor_after() {
        let mut policy = WriteAtDeadline::new();
        let deadlines = [(100, 5), (200, 7), (300, 8)];
        let mut rate = |log_end| {
            let load = Load { log_end, deadlines: &deadlines, ..LOAD };
            policy.plan(&load).deadline_rate
        };
        assert_eq!(rate(1000), 0.0);
        assert_eq!(rate(1020), 0.0);
        assert_eq!(rate(1040), 50.0, "the first 5 are due at 1050, before the next call");
        assert_eq!(rate(1130), 70.0, "the second at 1150");
    }

    #[test]
    fn a_fixed_rate_ends_with_the_pages() {
        let mut policy = FixedRate::new(100.0);
        let mut rate = |dirty_pages| policy.plan(&Load { dirty_pages, ..LOAD }).deadline_rate;
        assert_eq!(rate(1000), 100.0);
        assert_eq!(rate(3), 30.0);
        assert_eq!(rate(0), 0.0);
    }
}

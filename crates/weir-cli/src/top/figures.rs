//! What is shown, and how it is called: the same on the screen and in the snapshot.

use weir_bench::quantity::format_bytes;
use weir_status::Address;

use super::history::History;

const MIB: f64 = 1048576.0;

/// What a metric is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// As it is.
    Level,
    /// Its growth per second.
    Rate,
}

/// One line of a panel.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// For readers.
    pub label: &'static str,
    /// The metric.
    pub metric: &'static str,
    /// How it is read.
    pub reading: Reading,
}

/// What belongs together.
#[derive(Debug, Clone, Copy)]
pub struct Panel {
    /// Title, as in InnoDB's dashboards.
    pub title: &'static str,
    /// What the values are.
    pub unit: &'static str,
    /// A value of the metric in that unit.
    pub scale: f64,
    /// Its lines.
    pub lines: &'static [Line],
}

const fn level(label: &'static str, metric: &'static str) -> Line {
    Line { label, metric, reading: Reading::Level }
}

const fn rate(label: &'static str, metric: &'static str) -> Line {
    Line { label, metric, reading: Reading::Rate }
}

/// All panels.
pub const PANELS: &[Panel] = &[
    Panel {
        title: "Checkpoint Age",
        unit: "MiB",
        scale: 1.0 / MIB,
        lines: &[
            level("age", "weir_checkpoint_age_bytes"),
            level("maximum", "weir_checkpoint_max_age_bytes"),
        ],
    },
    Panel {
        title: "Flushing by Type",
        unit: "pages/s",
        scale: 1.0,
        lines: &[
            rate("deadline", "weir_pages_written_deadline_total"),
            rate("dirty limit", "weir_pages_written_dirty_limit_total"),
            rate("free frames", "weir_pages_written_free_frames_total"),
            rate("checkpoint", "weir_pages_written_checkpoint_total"),
            rate("shutdown", "weir_pages_written_shutdown_total"),
        ],
    },
    Panel {
        title: "Buffer Pool Data",
        unit: "pages",
        scale: 1.0,
        lines: &[
            level("dirty", "weir_buffer_pool_pages_dirty"),
            level("dirty limit", "weir_buffer_pool_pages_dirty_max"),
            level("free", "weir_buffer_pool_pages_free"),
            level("total", "weir_buffer_pool_pages"),
        ],
    },
    Panel {
        title: "Redo Generation Rate",
        unit: "MiB/s",
        scale: 1.0 / MIB,
        lines: &[rate("redo", "weir_lsn_current_bytes")],
    },
    Panel {
        title: "Transactions",
        unit: "per s",
        scale: 1.0,
        lines: &[
            rate("commits", "weir_transactions_committed_total"),
            rate("rollbacks", "weir_transactions_rolled_back_total"),
        ],
    },
    Panel {
        title: "Time Waited",
        unit: "ms per s",
        scale: 1000.0,
        lines: &[
            rate("log space", "weir_log_wait_seconds_total"),
            rate("pacing", "weir_admission_wait_seconds_total"),
            rate("dirty limit", "weir_dirty_limit_wait_seconds_total"),
            rate("row locks", "weir_row_lock_time_seconds_total"),
        ],
    },
    Panel {
        title: "Disk",
        unit: "MiB/s",
        scale: 1.0 / MIB,
        lines: &[
            rate("read", "weir_disk_read_bytes_total"),
            rate("written", "weir_disk_write_bytes_total"),
        ],
    },
    Panel {
        title: "Purge",
        unit: "transactions",
        scale: 1.0,
        lines: &[
            level("history list length", "weir_history_list_length"),
            level("unseen by the oldest snapshot", "weir_oldest_snapshot_unseen_commits"),
        ],
    },
];

impl Line {
    /// Its newest value in the panel's unit.
    pub fn now(&self, panel: &Panel, history: &History) -> Option<f64> {
        let value = match self.reading {
            Reading::Level => history.level(self.metric),
            Reading::Rate => history.rate(self.metric),
        };
        value.map(|value| value * panel.scale)
    }

    /// All its values, oldest first.
    pub fn values(&self, panel: &Panel, history: &History) -> Vec<f64> {
        let values = match self.reading {
            Reading::Level => history.levels(self.metric),
            Reading::Rate => history.rates(self.metric),
        };
        values.into_iter().map(|value| value * panel.scale).collect()
    }
}

/// A number for readers: no more digits than say something.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 1e7 => format!("{:.1}M", value / 1e6),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

/// The database in a line.
pub fn headline(address: &Address, history: &History) -> String {
    let bytes = |metric: &str| {
        history.level(metric).map_or("?".into(), |bytes| format_bytes(bytes as u64 & !0xf_ffff))
    };
    format!(
        "weir at {address}: redo {}, data file {}, {} pages",
        bytes("weir_redo_capacity_bytes"),
        bytes("weir_data_file_bytes"),
        history.level("weir_pages_allocated").map_or("?".into(), number),
    )
}

/// Everything as text.
pub fn snapshot(address: &Address, history: &History) -> String {
    let mut text = format!("{}\n", headline(address, history));
    for panel in PANELS {
        text += &format!("\n{} ({})\n", panel.title, panel.unit);
        for line in panel.lines {
            let Some(value) = line.now(panel, history) else { continue };
            text += &format!("  {:<20} {:>12}\n", line.label, number(value));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::history;
    use super::*;

    #[test]
    fn every_metric_is_one_that_a_database_tells() {
        let told: Vec<String> =
            weir::Status::default().figures().iter().map(|figure| figure.metric()).collect();
        for line in PANELS.iter().flat_map(|panel| panel.lines) {
            assert!(told.iter().any(|metric| metric == line.metric), "{}", line.metric);
        }
    }

    #[test]
    fn numbers() {
        let shown = [0.0, 0.25, 3.15159, 42.0, 123.4, 12_345_678.0].map(number);
        assert_eq!(shown, ["0", "0.250", "3.2", "42", "123", "12.3M"]);
    }

    #[test]
    fn the_snapshot_has_levels_and_rates_and_leaves_out_what_is_not_told() {
        let sample = |age: f64, pages: f64| {
            vec![
                ("weir_checkpoint_age_bytes", age * MIB),
                ("weir_pages_written_deadline_total", pages),
            ]
        };
        let text = snapshot(
            &Address::loopback(9104),
            &history(&[&sample(10.0, 100.0), &sample(12.0, 300.0)]),
        );
        let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.starts_with("weir at 127.0.0.1:9104"), "{text}");
        assert!(squeezed.contains("Checkpoint Age (MiB) age 12"), "{text}");
        assert!(squeezed.contains("Flushing by Type (pages/s) deadline 100"), "{text}");
        assert!(!text.contains("maximum") && !text.contains("pacing"), "{text}");
    }
}

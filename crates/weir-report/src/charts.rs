//! What is shown: each chart and the columns in it.

use serde::Serialize;

use crate::source::Benchmark;

/// How the lines of a chart are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// Each for itself.
    Lines,
    /// The same, on a logarithmic scale: values far apart.
    Log,
    /// One on top of the other: parts of a sum.
    Stack,
}

/// A column in a chart.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Line {
    /// The column ([`crate::Timeline::columns`]).
    pub column: &'static str,
    /// Its name for readers.
    pub label: &'static str,
    /// Which colour; 0 is the grey dashed line of limits.
    pub colour: u8,
}

/// A chart: one panel for each run.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Chart {
    /// Identifies it in the page.
    pub id: &'static str,
    /// Title.
    pub title: &'static str,
    /// What the values are.
    pub unit: &'static str,
    /// A sentence for those who see it for the first time.
    pub about: &'static str,
    /// Whose it is; of all benchmarks if `None`.
    pub benchmark: Option<Benchmark>,
    /// How it is drawn.
    pub shape: Shape,
    /// What is in it, from below when stacked.
    pub lines: &'static [Line],
    /// Whether the runs are also drawn over each other: its one line has the run's colour.
    pub overlay: bool,
}

const fn line(column: &'static str, label: &'static str, colour: u8) -> Line {
    Line { column, label, colour }
}

/// All charts, in their order on the page.
pub const CHARTS: &[Chart] = &[
    Chart {
        id: "inserts",
        title: "Inserts",
        unit: "rows/s",
        about: "Rows inserted in each second.",
        benchmark: Some(Benchmark::Insert),
        shape: Shape::Lines,
        lines: &[line("inserts", "inserts", 1)],
        overlay: true,
    },
    Chart {
        id: "queries",
        title: "Queries",
        unit: "queries/s",
        about: "Queries answered in each second.",
        benchmark: Some(Benchmark::Insert),
        shape: Shape::Lines,
        lines: &[line("queries", "queries", 1)],
        overlay: true,
    },
    Chart {
        id: "commit-latency",
        title: "Commit latency",
        unit: "ms",
        about: "Of the commits that ended in a second: what 99 % did not exceed, and the slowest.",
        benchmark: Some(Benchmark::Insert),
        shape: Shape::Log,
        lines: &[line("commit_ms_99", "p99", 1), line("commit_ms_max", "worst", 2)],
        overlay: false,
    },
    Chart {
        id: "query-latency",
        title: "Query latency",
        unit: "ms",
        about: "Of the queries that ended in a second: what 99 % did not exceed, and the slowest.",
        benchmark: Some(Benchmark::Insert),
        shape: Shape::Log,
        lines: &[line("query_ms_99", "p99", 1), line("query_ms_max", "worst", 2)],
        overlay: false,
    },
    Chart {
        id: "transactions",
        title: "Transactions",
        unit: "per s",
        about: "Transactions of all kinds that ended in each second.",
        benchmark: Some(Benchmark::Tpcc),
        shape: Shape::Lines,
        lines: &[line("transactions", "transactions", 1)],
        overlay: true,
    },
    Chart {
        id: "new-orders",
        title: "New orders",
        unit: "per s",
        about: "New orders among them, also those that are rolled back as they are meant to be.",
        benchmark: Some(Benchmark::Tpcc),
        shape: Shape::Lines,
        lines: &[line("new_orders", "new orders", 1)],
        overlay: true,
    },
    Chart {
        id: "transaction-latency",
        title: "Transaction latency",
        unit: "ms",
        about: "Of the transactions that ended in a second: what 99 % did not exceed, and the slowest.",
        benchmark: Some(Benchmark::Tpcc),
        shape: Shape::Log,
        lines: &[line("transaction_ms_99", "p99", 1), line("transaction_ms_max", "worst", 2)],
        overlay: false,
    },
    Chart {
        id: "checkpoint-age",
        title: "Checkpoint Age",
        unit: "MiB",
        about: "Redo between the checkpoint and the end of the log, against its maximum.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[line("checkpoint_age", "age", 1), line("checkpoint_max_age", "maximum", 0)],
        overlay: false,
    },
    Chart {
        id: "flushing",
        title: "Flushing by Type",
        unit: "pages/s",
        about: "Pages written, by what asked for it.",
        benchmark: None,
        shape: Shape::Stack,
        lines: &[
            line("written_deadline", "deadline", 1),
            line("written_dirty_limit", "dirty limit", 4),
            line("written_free_frames", "free frames", 3),
            line("written_checkpoint", "checkpoint", 2),
            line("written_shutdown", "shutdown", 5),
        ],
        overlay: false,
    },
    Chart {
        id: "governor",
        title: "Governor",
        unit: "pages/s",
        about: "Pages that the governor asks for, and what the device can write; 0 while not known.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[line("flush_target", "asked", 1), line("device_pages", "device", 0)],
        overlay: false,
    },
    Chart {
        id: "dirty",
        title: "Dirty Pages",
        unit: "% of frames",
        about: "Frames whose page has unwritten changes, against their limit.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[line("dirty_share", "dirty", 1), line("dirty_limit", "limit", 0)],
        overlay: false,
    },
    Chart {
        id: "buffer-pool",
        title: "Buffer Pool Data",
        unit: "MiB",
        about: "What the frames hold.",
        benchmark: None,
        shape: Shape::Stack,
        lines: &[
            line("pool_dirty", "dirty", 2),
            line("pool_clean", "clean", 3),
            line("pool_free", "free", 6),
        ],
        overlay: false,
    },
    Chart {
        id: "redo",
        title: "Redo Generation Rate",
        unit: "MiB/s",
        about: "Bytes by which the log grows.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[line("redo_mib", "redo", 1)],
        overlay: false,
    },
    Chart {
        id: "device-bytes",
        title: "Device throughput",
        unit: "MiB/s",
        about: "Bytes that the engine's process read from and wrote to the device, as the kernel counts them: the measure of \
                rMB/s and wMB/s in the tables.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[line("device_read_mib", "read", 1), line("device_write_mib", "written", 2)],
        overlay: false,
    },
    Chart {
        id: "engine-bytes",
        title: "Bytes read and written, by the engine's count",
        unit: "MiB/s",
        about: "Bytes of its requests to files: log, pages and page map.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[line("engine_read_mib", "read", 1), line("engine_write_mib", "written", 2)],
        overlay: false,
    },
    Chart {
        id: "device-operations",
        title: "Device operations",
        unit: "per s",
        about: "Reads, writes and syncs that the engine issues.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[
            line("device_reads", "reads", 1),
            line("device_writes", "writes", 2),
            line("device_syncs", "syncs", 3),
        ],
        overlay: false,
    },
    Chart {
        id: "admission-waits",
        title: "Admission waits",
        unit: "per s",
        about: "How often writers waited, by what for.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[
            line("waits_log", "log space", 1),
            line("waits_pacing", "pacing", 2),
            line("waits_dirty", "dirty limit", 4),
            line("waits_frames", "free frames", 3),
        ],
        overlay: false,
    },
    Chart {
        id: "admission-time",
        title: "Time waited",
        unit: "ms per s",
        about: "How long they waited, all writers together: 1000 is one writer all the time.",
        benchmark: None,
        shape: Shape::Stack,
        lines: &[
            line("wait_ms_log", "log space", 1),
            line("wait_ms_pacing", "pacing", 2),
            line("wait_ms_dirty", "dirty limit", 4),
        ],
        overlay: false,
    },
    Chart {
        id: "cpu",
        title: "Processor",
        unit: "cores",
        about: "Processor time of the whole process, benchmark included.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[line("cpu", "busy", 1)],
        overlay: false,
    },
    Chart {
        id: "memory",
        title: "Memory",
        unit: "MiB",
        about: "Resident memory of the process.",
        benchmark: None,
        shape: Shape::Lines,
        lines: &[line("resident", "resident", 1)],
        overlay: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_in_the_colours_of_runs_have_one_line() {
        assert!(CHARTS.iter().all(|chart| !chart.overlay || chart.lines.len() == 1));
    }
}

//! Results as tables, in the columns that the field is used to: [`COLUMNS`] says what each means.

use crate::accounting::Usage;
use crate::phase::Progress;
use crate::result::{Measured, Run, StepResult, Throughput};

const KB: f64 = 1024.0;
const MB: f64 = 1024.0 * KB;
const GB: f64 = 1024.0 * MB;

/// What the columns mean, for readers of tables.
pub const COLUMNS: &[(&str, &str)] = &[
    ("ips.av", "inserts per second, mean; of l.x rows indexed, of update rows changed"),
    ("ips.99", "the rate that 99 % of the seconds reach; of fewer than 100 the slowest one's"),
    (
        "secs",
        "whole seconds that ips.99 or QPS.99 is of: below 100 it is the slowest; of a scan its length",
    ),
    ("r/i", "device reads per insert"),
    ("rKB/i wKB/i", "KB read from and written to the device per insert"),
    ("Mcpu/i", "microseconds of the engine's processor time per insert, all its threads"),
    ("size", "GB that the database takes on the device at the step's end, log included"),
    ("rss", "GB of resident memory, the most of any second"),
    ("r/s rMB/s wMB/s", "device reads, MB read and MB written per second"),
    ("cpu", "the engine's processor time, percent of one core"),
    ("QPS.av QPS.99", "queries per second, as for inserts"),
    ("rKB/q CPU/q", "KB read and microseconds of processor time per query, the inserts' included"),
    (
        "rate held",
        "inserts per second asked for beside the queries; whether 95 % of them were done",
    ),
    (
        "rKB/o Mcpu/o rGB",
        "of a scan by all clients: KB read and processor time per row, GB read in all",
    ),
    (
        "mean.us max.us",
        "latency of commits and queries, microseconds; p99 is what 99 % don't exceed. At a given rate, what is \
         due while an earlier commit runs waits from then on, and what is left out for it until it ended",
    ),
];

/// What KB, MB and GB are, here.
pub const COLUMNS_NOTE: &str = "KB, MB and GB are powers of 1024.";

/// What stands in one place of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// As it is shown.
    pub text: String,
    /// The number behind it, unrounded.
    pub value: Option<f64>,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell { text: text.into(), value: None }
    }
}

impl Cell {
    /// A number with so many decimals.
    pub fn number(value: f64, decimals: usize) -> Self {
        Cell { text: format!("{value:.decimals$}"), value: Some(value) }
    }

    pub(crate) fn optional(value: Option<f64>) -> Self {
        value.map_or("-".into(), |value| Cell::number(value, 0))
    }
}

/// One line of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What was measured: rows of several runs with the same key can be compared.
    pub key: String,
    /// As many as the table has heads.
    pub cells: Vec<Cell>,
}

/// A table of right-aligned columns but for those marked as text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextTable {
    /// Column heads.
    pub heads: Vec<String>,
    /// The lines.
    pub rows: Vec<Row>,
}

impl TextTable {
    /// A table with these column heads.
    pub fn new(heads: &[&str]) -> Self {
        TextTable { heads: heads.iter().map(|head| head.to_string()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(
        &mut self,
        key: impl Into<String>,
        cells: impl IntoIterator<Item = impl Into<Cell>>,
    ) {
        let row = Row { key: key.into(), cells: cells.into_iter().map(Into::into).collect() };
        assert_eq!(row.cells.len(), self.heads.len(), "a cell for each head");
        self.rows.push(row);
    }

    /// Whether there is nothing but the heads.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as lines. Columns named in `left` are aligned to the left.
    pub fn render(&self, left: &[&str]) -> String {
        let heads: Vec<&str> = self.heads.iter().map(String::as_str).collect();
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.cells.iter().map(|cell| cell.text.as_str()).collect());
        let lines: Vec<Vec<&str>> = std::iter::once(heads.clone()).chain(rows).collect();
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<_> = (0..heads.len()).map(|i| width(i).unwrap_or(0)).collect();
        let mut text = String::new();
        for cells in &lines {
            let mut line = String::new();
            for ((cell, head), &width) in cells.iter().zip(&heads).zip(&widths) {
                let space = if line.is_empty() { "" } else { "  " };
                if left.contains(head) {
                    line += &format!("{space}{cell:width$}");
                } else {
                    line += &format!("{space}{cell:>width$}");
                }
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Heads of the columns that hold no numbers.
pub const TEXT_COLUMNS: &[&str] = &["step", "scan", "of", "held", "engine", "load", "transaction"];

/// The tables of a run that have rows, each with what it is about.
pub fn tables(run: &Run) -> Vec<(&'static str, TextTable)> {
    let tables = [
        ("Inserts", inserts(run)),
        ("Queries beside inserts", queries(run)),
        ("Scans", scans(run)),
        ("Latencies", latencies(run)),
    ];
    tables.into_iter().filter(|(_, table)| !table.is_empty()).collect()
}

/// Everything about a run that fits on a screen.
pub fn summary(run: &Run) -> String {
    let mut text = header(run);
    for (_, table) in tables(run) {
        text.push('\n');
        text += &table.render(TEXT_COLUMNS);
    }
    for missed in missed(run) {
        text += &format!("\n{missed}.\n");
    }
    if let Some(unwritten) = unwritten(run) {
        text += &format!("\nChanged, and not yet written when the step ended: {unwritten}.\n");
    }
    if let Some(stolen) = stolen(run) {
        text +=
            &format!("\nThe host gave processors of this machine to others (steal): {stolen}.\n");
    }
    if run.interrupted {
        text += "\nInterrupted: the step under way is not whole, or left out, as later ones are.\n";
    }
    for note in &run.engine.notes {
        text += &format!("\nNote: {note}.\n");
    }
    text
}

/// The steps that didn't do all that was asked of them, and what they did instead.
pub fn missed(run: &Run) -> Vec<String> {
    let of = |(step, label): (&StepResult, String)| {
        let background = step.background.filter(|of| !of.held || of.commits_lost > 0)?;
        Some(format!("{label}: {background}"))
    };
    run.labelled().filter_map(of).collect()
}

/// What each step left to be written later, in steps that write; `None` where no engine tells.
pub fn unwritten(run: &Run) -> Option<String> {
    let of = |(step, label): (&StepResult, String)| {
        let bytes = step.inserts.and(step.measured.unwritten_bytes)? as f64;
        let few = bytes < GB;
        let size =
            if few { format!("{:.0} MB", bytes / MB) } else { format!("{:.2} GB", bytes / GB) };
        Some(format!("{label} {size}"))
    };
    let steps: Vec<_> = run.labelled().filter_map(of).collect();
    (!steps.is_empty()).then(|| steps.join(", "))
}

/// What share of the processors' time a host took in each step, if it is worth a word in any:
/// results are slower and less even for it, whatever the engine.
pub fn stolen(run: &Run) -> Option<String> {
    let cores = run.environment.cores_to_steal();
    let of = |(step, label): (&StepResult, String)| {
        let share = stolen_share(&step.measured.usage, step.measured.seconds, cores)?;
        Some(format!("{label} {share}"))
    };
    let steps: Vec<_> = run.labelled().filter_map(of).collect();
    (!steps.is_empty()).then(|| steps.join(", "))
}

/// The share that a host took of so many processors' time, if it is worth a word.
pub(crate) fn stolen_share(usage: &Usage, seconds: f64, cores: usize) -> Option<String> {
    const WORTH_A_WORD: f64 = 0.01;
    let share = quotient(usage.stolen_us as f64, seconds * 1e6 * cores as f64);
    (share >= WORTH_A_WORD).then(|| format!("{:.0} %", share * 100.0))
}

fn header(run: &Run) -> String {
    let (settings, environment) = (&run.settings, &run.environment);
    let mut text = format!(
        "{} {}: {}, {} rows, durability {}, memory {}, redo {}\n",
        run.engine.name,
        run.engine.version,
        crate::quantity::counted(settings.clients, "client"),
        crate::quantity::format_count(settings.rows),
        settings.durability,
        crate::quantity::format_bytes(settings.memory_bytes),
        crate::quantity::format_bytes(settings.redo_bytes),
    );
    text += &format!(
        "{}, {} cores, {:.0} GB, Linux {}, {}; built from {}\n",
        environment.cpu,
        environment.cores,
        environment.memory_bytes as f64 / GB,
        environment.kernel,
        environment.filesystem,
        environment.build,
    );
    if settings.server.is_some() {
        text += &format!("{}\n", run.engine.settings.join(", "));
    }
    for warning in environment.warnings() {
        text += &format!("Warning: {warning}.\n");
    }
    text
}

fn inserts(run: &Run) -> TextTable {
    let mut table = TextTable::new(&[
        "step", "ips.av", "ips.99", "secs", "r/i", "rKB/i", "wKB/i", "Mcpu/i", "size", "rss",
        "r/s", "rMB/s", "wMB/s", "cpu", "engine",
    ]);
    for (step, label) in run.labelled().filter(|(step, _)| step.queries.is_none()) {
        if let Some(inserts) = &step.inserts {
            let cells = insert_row(&label, inserts, step, &run.engine.name);
            table.row(label, cells);
        }
    }
    table
}

/// What is known only of a process that can be looked at.
pub(crate) fn seen(measured: &Measured, cell: Cell) -> Cell {
    if measured.unseen { "-".into() } else { cell }
}

/// How many seconds a rate that 99 % of them reach is of, where there is one.
pub(crate) fn seconds_of_99(rate_99: Option<f64>, whole_seconds: usize) -> String {
    rate_99.filter(|_| whole_seconds > 0).map_or("-".into(), |_| whole_seconds.to_string())
}

fn insert_row(name: &str, inserts: &Throughput, step: &StepResult, engine: &str) -> Vec<Cell> {
    let measured = &step.measured;
    let (per, seconds) = (inserts.total as f64, measured.seconds);
    let usage = &measured.usage;
    let (read, written) = (usage.read_bytes as f64, usage.write_bytes as f64);
    let cpu = measured.engine_cpu_us() as f64;
    let seen = |cell| seen(measured, cell);
    vec![
        name.into(),
        whole(inserts.rate_mean),
        Cell::optional(inserts.rate_99),
        seconds_of_99(inserts.rate_99, step.whole_seconds).into(),
        seen(ratio(measured.reads() as f64, per)),
        seen(ratio(read / KB, per)),
        seen(ratio(written / KB, per)),
        seen(Cell::number(quotient(cpu, per), 2)),
        seen(Cell::number(measured.size_bytes as f64 / GB, 2)),
        seen(Cell::number(measured.resident_bytes_max as f64 / GB, 2)),
        seen(whole(quotient(measured.reads() as f64, seconds))),
        seen(Cell::number(quotient(read / MB, seconds), 1)),
        seen(Cell::number(quotient(written / MB, seconds), 1)),
        seen(whole(quotient(cpu / 1e4, seconds))),
        engine.into(),
    ]
}

fn queries(run: &Run) -> TextTable {
    let mut table = TextTable::new(&[
        "step", "QPS.av", "QPS.99", "secs", "rKB/q", "CPU/q", "rate", "ips.av", "ips.99", "wKB/i",
        "held", "size", "rss", "cpu", "engine",
    ]);
    for (step, label) in run.labelled() {
        table_query(&mut table, step, &label, &run.engine.name);
    }
    table
}

fn table_query(table: &mut TextTable, step: &StepResult, label: &str, engine: &str) {
    let Some(queries) = &step.queries else { return };
    let (measured, throughput) = (&step.measured, &queries.throughput);
    let per = throughput.total as f64;
    let cpu = measured.engine_cpu_us() as f64;
    let (inserts, background) = (step.inserts.as_ref(), step.background.as_ref());
    let written = measured.usage.write_bytes as f64 / KB;
    let seen = |cell| seen(measured, cell);
    let cells: Vec<Cell> = vec![
        label.into(),
        whole(throughput.rate_mean),
        Cell::optional(throughput.rate_99),
        seconds_of_99(throughput.rate_99, step.whole_seconds).into(),
        seen(ratio(measured.usage.read_bytes as f64 / KB, per)),
        seen(Cell::number(quotient(cpu, per), 2)),
        Cell::optional(background.map(|background| background.rate_asked)),
        Cell::optional(inserts.map(|inserts| inserts.rate_mean)),
        Cell::optional(inserts.and_then(|inserts| inserts.rate_99)),
        inserts.map_or("-".into(), |inserts| seen(ratio(written, inserts.total as f64))),
        background.map_or("-", |background| if background.held { "yes" } else { "NO" }).into(),
        seen(Cell::number(measured.size_bytes as f64 / GB, 2)),
        seen(Cell::number(measured.resident_bytes_max as f64 / GB, 2)),
        seen(whole(quotient(cpu / 1e4, measured.seconds))),
        engine.into(),
    ];
    table.row(label, cells);
}

fn scans(run: &Run) -> TextTable {
    let mut table =
        TextTable::new(&["scan", "secs", "rMB/s", "rKB/o", "rGB", "Mcpu/o", "Mrows/s", "engine"]);
    for (step, label) in run.labelled() {
        for (number, scan) in step.scans.iter().enumerate() {
            let (measured, rows) = (&scan.measured, scan.rows as f64);
            let read = measured.usage.read_bytes as f64;
            let seen = |cell| seen(measured, cell);
            let cells: Vec<Cell> = vec![
                scan.index.clone().into(),
                Cell::number(measured.seconds, 2),
                seen(Cell::number(quotient(read / MB, measured.seconds), 1)),
                seen(ratio(read / KB, rows)),
                seen(Cell::number(read / GB, 2)),
                seen(ratio(measured.engine_cpu_us() as f64, rows)),
                Cell::number(quotient(rows / 1e6, measured.seconds), 2),
                run.engine.name.clone().into(),
            ];
            table.row(format!("{label}.{}.{}", number + 1, scan.index), cells);
        }
    }
    table
}

fn latencies(run: &Run) -> TextTable {
    let mut table =
        TextTable::new(&["step", "of", "mean.us", "p50.us", "p99.us", "p99.9.us", "max.us"]);
    for (step, label) in run.labelled() {
        let inserts = step.inserts.map(|inserts| ("commit", inserts.latency));
        let queries = step.queries.map(|queries| ("query", queries.throughput.latency));
        for (what, latency) in inserts.into_iter().chain(queries) {
            if latency.count == 0 {
                continue;
            }
            let cells: Vec<Cell> = vec![
                label.clone().into(),
                what.into(),
                Cell::number(latency.mean_us, 1),
                Cell::number(latency.p50_us, 1),
                Cell::number(latency.p99_us, 1),
                Cell::number(latency.p999_us, 1),
                whole(latency.max_us),
            ];
            table.row(format!("{label} {what}"), cells);
        }
    }
    table
}

/// One line about a running step.
pub fn progress_line(progress: &Progress) -> String {
    let mut line = format!("{:<22} {:>4.0} s", progress.title, progress.elapsed.as_secs_f64());
    if let Some(share) = progress.share {
        line += &format!("  {:>3.0} %", share * 100.0);
    }
    if progress.inserts > 0.0 {
        line += &format!("  {:>7.0} ips", progress.inserts);
        line += &format!("  worst {:>6.1} ms", progress.insert_us_max as f64 / 1000.0);
    }
    if progress.queries > 0.0 {
        line += &format!("  {:>8.0} qps", progress.queries);
    }
    if progress.transactions > 0.0 {
        line += &format!("  {:>8.0} tps", progress.transactions);
    }
    line += &format!("  {:>6.1} wMB/s", progress.write_mb);
    line += &format!("  rss {:.2} GB", progress.resident_bytes as f64 / GB);
    line
}

fn quotient(amount: f64, per: f64) -> f64 {
    if per > 0.0 { amount / per } else { 0.0 }
}

fn ratio(amount: f64, per: f64) -> Cell {
    Cell::number(quotient(amount, per), 3)
}

fn whole(value: f64) -> Cell {
    Cell::number(value, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&["step", "ips.av", "engine"]);
        table.row("l.i0", ["l.i0", "123456", "weir"]);
        table.row("l.x", ["l.x", "7", "weir"]);
        let text = table.render(&["step", "engine"]);
        assert_eq!(text, "step  ips.av  engine\nl.i0  123456  weir\nl.x        7  weir\n");
    }

    #[test]
    fn what_nobody_could_look_at_is_left_blank() {
        let cell = || Cell::number(0.0, 1);
        assert_eq!(seen(&Measured { unseen: true, ..Measured::default() }, cell()).text, "-");
        assert_eq!(seen(&Measured::default(), cell()).text, "0.0");
    }

    #[test]
    fn nothing_is_divided_by_zero() {
        assert_eq!(quotient(5.0, 0.0), 0.0);
        assert_eq!(ratio(1.0, 0.0).text, "0.000");
    }
}

//! Results as tables, in the columns that the field is used to.
//!
//! | column           | meaning                                                                     |
//! |------------------|-----------------------------------------------------------------------------|
//! | `ips.av`         | inserts per second, mean; for `l.x` rows indexed per second                 |
//! | `ips.99`         | the rate that 99 % of the seconds reach ([`crate::percentile`])             |
//! | `r/i`            | device reads per insert                                                     |
//! | `rKB/i` `wKB/i`  | KB read from and written to the device per insert                           |
//! | `Mcpu/i`         | microseconds of the engine's processor time per insert, all its threads     |
//! | `size`           | GB that the database takes on the device, at the step's end                 |
//! | `rss`            | GB of resident memory, the largest seen in the step                         |
//! | `r/s`            | device reads per second                                                     |
//! | `rMB/s` `wMB/s`  | MB read from and written to the device per second                           |
//! | `cpu`            | the engine's processor time, percent of one core                            |
//! | `QPS.av` `QPS.99`| queries per second, as for inserts                                          |
//! | `rKB/q` `CPU/q`  | KB read and microseconds of processor time per query, with the inserts' share |
//! | `secs`           | length of a scan; `rKB/o`, `Mcpu/o` are per row, `rGB` is what it read in all |

use crate::phase::Progress;
use crate::result::{Measured, Run, StepResult, Throughput};

const KB: f64 = 1024.0;
const MB: f64 = 1024.0 * KB;
const GB: f64 = 1024.0 * MB;

/// A table of right-aligned columns but for those marked as text.
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these column heads.
    pub fn new(heads: &[&str]) -> Self {
        TextTable { rows: vec![heads.iter().map(|head| head.to_string()).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        debug_assert_eq!(cells.len(), self.rows[0].len());
        self.rows.push(cells);
    }

    /// Whether there is nothing but the heads.
    pub fn is_empty(&self) -> bool {
        self.rows.len() == 1
    }

    /// The table as lines. Columns named in `left` are aligned to the left.
    pub fn render(&self, left: &[&str]) -> String {
        let heads = &self.rows[0];
        let width = |column: usize| self.rows.iter().map(|row| row[column].len()).max();
        let widths: Vec<_> = (0..heads.len()).map(|i| width(i).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, head), &width) in row.iter().zip(heads).zip(&widths) {
                let space = if line.is_empty() { "" } else { "  " };
                if left.contains(&head.as_str()) {
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

/// Everything about a run that fits on a screen.
pub fn summary(run: &Run) -> String {
    let mut text = header(run);
    for table in [inserts(run), queries(run), scans(run), latencies(run)] {
        if !table.is_empty() {
            text.push('\n');
            text += &table.render(&["step", "scan", "of", "engine"]);
        }
    }
    if run.interrupted {
        text += "\nInterrupted: the last step is not whole, later ones were left out.\n";
    }
    for note in &run.engine.notes {
        text += &format!("\nNote: {note}.\n");
    }
    text
}

fn header(run: &Run) -> String {
    let (settings, environment) = (&run.settings, &run.environment);
    let mut text = format!(
        "{} {}: {} client{}, {} rows, durability {}, memory {}, redo {}\n",
        run.engine.name,
        run.engine.version,
        settings.clients,
        if settings.clients == 1 { "" } else { "s" },
        crate::quantity::format_count(settings.rows),
        settings.durability,
        crate::quantity::format_bytes(settings.memory_bytes),
        crate::quantity::format_bytes(settings.redo_bytes),
    );
    text += &format!(
        "{}, {} cores, {:.0} GB, Linux {}, {}\n",
        environment.cpu,
        environment.cores,
        environment.memory_bytes as f64 / GB,
        environment.kernel,
        environment.filesystem,
    );
    if !environment.optimised {
        text += "Built without optimisation: figures mean nothing. Use `cargo run --release`.\n";
    }
    text
}

fn inserts(run: &Run) -> TextTable {
    let mut table = TextTable::new(&[
        "step", "ips.av", "ips.99", "r/i", "rKB/i", "wKB/i", "Mcpu/i", "size", "rss", "r/s",
        "rMB/s", "wMB/s", "cpu", "engine",
    ]);
    for step in run.steps.iter().filter(|step| step.queries.is_none()) {
        if let Some(inserts) = &step.inserts {
            table.row(insert_row(&step.name, inserts, &step.measured, &run.engine.name));
        }
    }
    table
}

fn insert_row(name: &str, inserts: &Throughput, measured: &Measured, engine: &str) -> Vec<String> {
    let (per, seconds) = (inserts.total as f64, measured.seconds);
    let usage = &measured.usage;
    let (read, written) = (usage.read_bytes as f64, usage.write_bytes as f64);
    let cpu = measured.engine_cpu_us() as f64;
    vec![
        name.into(),
        whole(inserts.rate_mean),
        inserts.rate_99.map_or("-".into(), whole),
        ratio(measured.reads() as f64, per),
        ratio(read / KB, per),
        ratio(written / KB, per),
        format!("{:.2}", quotient(cpu, per)),
        format!("{:.2}", measured.size_bytes as f64 / GB),
        format!("{:.2}", measured.resident_bytes_max as f64 / GB),
        whole(quotient(measured.reads() as f64, seconds)),
        format!("{:.1}", quotient(read / MB, seconds)),
        format!("{:.1}", quotient(written / MB, seconds)),
        whole(quotient(cpu / 1e4, seconds)),
        engine.into(),
    ]
}

fn queries(run: &Run) -> TextTable {
    let mut table = TextTable::new(&[
        "step", "QPS.av", "QPS.99", "rKB/q", "CPU/q", "rate", "ips.av", "ips.99", "wKB/i", "held",
        "size", "rss", "cpu", "engine",
    ]);
    for step in &run.steps {
        table_query(&mut table, step, &run.engine.name);
    }
    table
}

fn table_query(table: &mut TextTable, step: &StepResult, engine: &str) {
    let Some(queries) = &step.queries else { return };
    let (measured, throughput) = (&step.measured, &queries.throughput);
    let per = throughput.total as f64;
    let cpu = measured.engine_cpu_us() as f64;
    let (inserts, background) = (step.inserts.as_ref(), step.background.as_ref());
    let written = measured.usage.write_bytes as f64 / KB;
    table.row(vec![
        step.name.clone(),
        whole(throughput.rate_mean),
        throughput.rate_99.map_or("-".into(), whole),
        ratio(measured.usage.read_bytes as f64 / KB, per),
        format!("{:.2}", quotient(cpu, per)),
        background.map_or("-".into(), |background| whole(background.rate_asked)),
        inserts.map_or("-".into(), |inserts| whole(inserts.rate_mean)),
        inserts.and_then(|inserts| inserts.rate_99).map_or("-".into(), whole),
        inserts.map_or("-".into(), |inserts| ratio(written, inserts.total as f64)),
        background.map_or("-", |background| if background.held { "yes" } else { "NO" }).into(),
        format!("{:.2}", measured.size_bytes as f64 / GB),
        format!("{:.2}", measured.resident_bytes_max as f64 / GB),
        whole(quotient(cpu / 1e4, measured.seconds)),
        engine.into(),
    ]);
}

fn scans(run: &Run) -> TextTable {
    let mut table =
        TextTable::new(&["scan", "secs", "rMB/s", "rKB/o", "rGB", "Mcpu/o", "Mrows/s", "engine"]);
    for scan in run.steps.iter().flat_map(|step| &step.scans) {
        let (measured, rows) = (&scan.measured, scan.rows as f64);
        let read = measured.usage.read_bytes as f64;
        table.row(vec![
            scan.index.clone(),
            format!("{:.2}", measured.seconds),
            format!("{:.1}", quotient(read / MB, measured.seconds)),
            ratio(read / KB, rows),
            format!("{:.2}", read / GB),
            ratio(measured.engine_cpu_us() as f64, rows),
            format!("{:.2}", quotient(rows / 1e6, measured.seconds)),
            run.engine.name.clone(),
        ]);
    }
    table
}

fn latencies(run: &Run) -> TextTable {
    let mut table =
        TextTable::new(&["step", "of", "mean.us", "p50.us", "p99.us", "p99.9.us", "max.us"]);
    for step in &run.steps {
        let inserts = step.inserts.map(|inserts| ("commit", inserts.latency));
        let queries = step.queries.map(|queries| ("query", queries.throughput.latency));
        for (what, latency) in inserts.into_iter().chain(queries) {
            if latency.count == 0 {
                continue;
            }
            table.row(vec![
                step.name.clone(),
                what.into(),
                format!("{:.1}", latency.mean_us),
                format!("{:.1}", latency.p50_us),
                format!("{:.1}", latency.p99_us),
                format!("{:.1}", latency.p999_us),
                whole(latency.max_us),
            ]);
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
    line += &format!("  {:>6.1} wMB/s", progress.write_mb);
    line += &format!("  rss {:.2} GB", progress.resident_bytes as f64 / GB);
    line
}

fn quotient(amount: f64, per: f64) -> f64 {
    if per > 0.0 { amount / per } else { 0.0 }
}

fn ratio(amount: f64, per: f64) -> String {
    format!("{:.3}", quotient(amount, per))
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = TextTable::new(&["step", "ips.av", "engine"]);
        table.row(vec!["l.i0".into(), "123456".into(), "weir".into()]);
        table.row(vec!["l.x".into(), "7".into(), "weir".into()]);
        let text = table.render(&["step", "engine"]);
        assert_eq!(text, "step  ips.av  engine\nl.i0  123456  weir\nl.x        7  weir\n");
    }

    #[test]
    fn nothing_is_divided_by_zero() {
        assert_eq!(quotient(5.0, 0.0), 0.0);
        assert_eq!(ratio(1.0, 0.0), "0.000");
    }
}

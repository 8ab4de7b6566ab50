//! Results as tables: how the engines stand, how their tables were filled, and how long each transaction took.

use std::path::Path;

use super::document::{Document, Load, Run};
use super::transactions::Kind;
use crate::error::Result;
use crate::files::write_json;
use crate::quantity::counted;
use crate::report::TextTable;
use crate::rounds::{Median, medians};

/// What the columns mean, for readers of tables.
pub const COLUMNS: &[(&str, &str)] = &[
    ("tpmC", "new orders per minute that committed"),
    ("range", "with --rounds, the lowest and the highest tpmC; the line is the median run's"),
    ("vs.X", "tpmC against the first engine's"),
    ("tps.av", "transactions of all kinds per second"),
    (
        "tps.99",
        "the rate that 99 % of the seconds reach; of fewer than 100 the slowest; 99/av: that of the mean",
    ),
    ("retry/s", "transactions per second that the engine rolled back and that ran again"),
    ("Mcpu/t", "microseconds of the engine's processor time per transaction, or per row loaded"),
    ("rKB/t wKB/t", "KB read from and written to the device per transaction, or per row loaded"),
    ("size rss", "GB that files and memory take at the end; a binary log is left out"),
    ("p50 p99 max", "latencies in milliseconds, repeated tries included"),
];

/// All results as text.
pub fn tables(document: &Document) -> String {
    let mut text = String::new();
    if !document.loads.is_empty() {
        text += &loads(&document.loads).render(&["engine"]);
        text += "\n";
    }
    let Some(first) = document.runs.first().map(|run| run.engine.as_str()) else { return text };
    let (rates, verdicts) = rates(document, first);
    if !rates.is_empty() {
        text += &rates.render(&["engine"]);
        text += &format!("\n{}", latencies(document).render(&["transaction", "engine"]));
    }
    if !verdicts.is_empty() {
        text += &format!("\n{verdicts}");
    }
    for engine in &document.engines {
        let settings = engine.settings.join(", ");
        text += &format!("\n{}: {}, {settings}\n", engine.name, engine.version);
    }
    for run in &document.runs {
        if let Some(failure) = &run.failure {
            let clients = counted(run.clients, "client");
            text +=
                &format!("\n{}, round {}, {clients}: failed: {failure}\n", run.engine, run.round);
        }
    }
    text
}

fn gb(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / f64::from(1 << 30))
}

fn kb_per(bytes: u64, of: u64) -> String {
    format!("{:.3}", bytes as f64 / 1024.0 / of.max(1) as f64)
}

fn ratio(a: f64, b: f64) -> String {
    if b > 0.0 { format!("{:.2}", a / b) } else { "-".into() }
}

fn loads(loads: &[Load]) -> TextTable {
    let mut table = TextTable::new(&[
        "load", "engine", "rows/s", "seconds", "Mcpu/t", "rKB/t", "wKB/t", "size",
    ]);
    for load in loads {
        let Load { engine, rows, measured, .. } = load;
        let cells = [
            counted_rows(*rows),
            engine.clone(),
            format!("{:.0}", *rows as f64 / measured.seconds.max(1e-9)),
            format!("{:.1}", measured.seconds),
            format!("{:.1}", measured.engine_cpu_us() as f64 / (*rows).max(1) as f64),
            kb_per(measured.usage.read_bytes, *rows),
            kb_per(measured.usage.write_bytes, *rows),
            gb(measured.size_bytes),
        ];
        table.row("load", cells);
    }
    table
}

fn counted_rows(rows: u64) -> String {
    format!("{:.1}M rows", rows as f64 / 1e6)
}

/// An engine and its median run.
type Line<'a> = (&'a str, Median<&'a Run>);

/// The numbers of clients, in the order in which they ran first, each with the engines' median runs.
fn cases(document: &Document) -> Vec<(u32, Vec<Line<'_>>)> {
    let mut all: Vec<u32> = Vec::new();
    for run in &document.runs {
        if !all.contains(&run.clients) {
            all.push(run.clients);
        }
    }
    let medians_of = |clients: u32| {
        let good = document.runs.iter().filter(|run| run.failure.is_none());
        let of_case = good.filter(|run| run.clients == clients);
        medians(of_case.map(|run| (run.engine.as_str(), run)), |run| run.tpm_c)
    };
    all.into_iter().map(|clients| (clients, medians_of(clients))).collect()
}

fn rates(document: &Document, first: &str) -> (TextTable, String) {
    let relative = format!("vs.{first}");
    let mut table = TextTable::new(&[
        "clients", "engine", "tpmC", "range", &relative, "tps.av", "tps.99", "99/av", "retry/s",
        "Mcpu/t", "rKB/t", "wKB/t", "size", "rss",
    ]);
    let mut verdicts = String::new();
    for (clients, lines) in cases(document) {
        let base = lines.iter().find(|(engine, _)| *engine == first);
        let base = base.map(|(_, median)| median.run.tpm_c);
        for (_, median) in &lines {
            table.row(clients.to_string(), cells(median, base));
        }
        let others = lines.iter().filter(|(engine, _)| *engine != first);
        let best = others.max_by(|(_, a), (_, b)| a.run.tpm_c.total_cmp(&b.run.tpm_c));
        if let (Some(base), Some((name, best))) = (base, best) {
            let clients = counted(clients, "client");
            let times = ratio(base, best.run.tpm_c);
            verdicts +=
                &format!("{clients}: {first} is at {times}x of the fastest other, {name}\n");
        }
    }
    (table, verdicts)
}

fn cells(median: &Median<&Run>, base: Option<f64>) -> Vec<String> {
    let run = median.run;
    let (usage, transactions) = (&run.measured.usage, run.transactions);
    vec![
        run.clients.to_string(),
        run.engine.clone(),
        format!("{:.0}", run.tpm_c),
        median.range_text(),
        base.map_or("-".into(), |base| ratio(run.tpm_c, base)),
        format!("{:.0}", run.rate_mean),
        format!("{:.0}", run.rate_99),
        ratio(run.rate_99, run.rate_mean),
        format!("{:.1}", run.retries as f64 / run.measured.seconds.max(1e-9)),
        format!("{:.1}", run.measured.engine_cpu_us() as f64 / transactions.max(1) as f64),
        kb_per(usage.read_bytes, transactions),
        kb_per(usage.write_bytes, transactions),
        gb(run.measured.size_bytes),
        gb(run.measured.resident_bytes_max),
    ]
}

fn latencies(document: &Document) -> TextTable {
    let mut table =
        TextTable::new(&["transaction", "clients", "engine", "share", "p50", "p99", "max"]);
    let milliseconds = |us: f64| format!("{:.2}", us / 1000.0);
    for kind in Kind::ALL {
        for (clients, lines) in cases(document) {
            for (engine, median) in lines {
                let run = median.run;
                let Some(latency) = run.kinds.get(&kind) else { continue };
                let share = latency.count as f64 / run.transactions.max(1) as f64;
                let cells = [
                    kind.name().to_string(),
                    clients.to_string(),
                    engine.to_string(),
                    format!("{:.1} %", 100.0 * share),
                    milliseconds(latency.p50_us),
                    milliseconds(latency.p99_us),
                    milliseconds(latency.max_us),
                ];
                table.row(kind.name(), cells);
            }
        }
    }
    table
}

/// Writes the document, with its directory.
///
/// # Errors
/// When the file can't be written.
pub fn save(document: &Document, path: &Path) -> Result<()> {
    write_json(path, document)
}

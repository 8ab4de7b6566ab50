//! Results as tables: how the engines stand, how their tables were filled, and how long each
//! transaction took.

use super::document::{Document, Load, Run};
use super::transactions::Kind;
use crate::quantity::counted;
use crate::report::{Cell, TEXT_COLUMNS, TextTable, seconds_of_99, seen, stolen_share};
use crate::result::Measured;
use crate::rounds::{Median, medians, verdict};

/// What the columns mean, for readers of tables.
pub const COLUMNS: &[(&str, &str)] = &[
    ("tpmC", "new orders per minute that committed"),
    ("range", "with --rounds, the lowest and the highest tpmC; the line is the median run's"),
    ("vs.X", "tpmC against the first engine's"),
    ("tps.av", "transactions of all kinds per second"),
    ("tps.99", "the rate that 99 % of the seconds reach; of fewer than 100 the slowest one's"),
    ("secs", "whole seconds that tps.99 is of: below 100 it is the slowest one's"),
    ("99/av", "tps.99 as a part of tps.av"),
    ("retry/s", "transactions per second that the engine rolled back and that ran again"),
    ("Mcpu/t", "microseconds of the engine's processor time per transaction, or per row loaded"),
    ("rKB/t wKB/t", "KB read from and written to the device per transaction, or per row loaded"),
    ("size rss", "GB that files and memory take at the end; a binary log is left out"),
    ("debt", "GB changed and not yet written at the end: wKB/t lacks them; -: not told"),
    ("p50 p99 max", "latencies in milliseconds, repeated tries included"),
];

/// All results as text.
pub fn summary(document: &Document) -> String {
    let tables = tables(document);
    let tables: Vec<_> = tables.iter().map(|(_, table)| table.render(TEXT_COLUMNS)).collect();
    let mut text = tables.join("\n");
    let verdicts = verdicts(document);
    if !verdicts.is_empty() {
        text += &format!("\n{verdicts}");
    }
    for engine in &document.engines {
        let settings = engine.settings.join(", ");
        text += &format!("\n{}: {}, {settings}\n", engine.name, engine.version);
        for note in &engine.notes {
            text += &format!("{}: {note}\n", engine.name);
        }
    }
    text += &format!("\nBuilt from {}\n", document.environment.build);
    for run in &document.runs {
        for remark in remarks(run, document.environment.cores_to_steal()) {
            let clients = counted(run.clients, "client");
            text += &format!("\n{}, round {}, {clients}: {remark}\n", run.engine, run.round);
        }
    }
    text
}

/// What a reader has to know of a run on a machine of so many processors.
pub fn remarks(run: &Run, cores: usize) -> Vec<String> {
    let failed = run.failure.as_ref().map(|failure| format!("failed: {failure}"));
    let stolen = stolen_share(&run.measured.usage, run.measured.seconds, cores);
    let stolen = stolen.map(|share| format!("the host took processors (steal): {share}"));
    failed.into_iter().chain(stolen).collect()
}

/// The tables that have rows, each with what it is about.
pub fn tables(document: &Document) -> Vec<(&'static str, TextTable)> {
    let tables = [
        ("Load", loads(&document.loads)),
        ("Transactions", rates(document)),
        ("Latencies of transactions", latencies(document)),
    ];
    tables.into_iter().filter(|(_, table)| !table.is_empty()).collect()
}

fn gb(bytes: u64) -> Cell {
    Cell::number(bytes as f64 / f64::from(1 << 30), 2)
}

fn size(measured: &Measured) -> Cell {
    seen(measured, gb(measured.size_bytes))
}

/// Processor time, and what was read and written, for each of so many.
fn per_one(measured: &Measured, of: u64) -> [Cell; 3] {
    let (per, usage) = (of.max(1) as f64, &measured.usage);
    let kb = |bytes: u64| Cell::number(bytes as f64 / 1024.0 / per, 3);
    let cpu = Cell::number(measured.engine_cpu_us() as f64 / per, 1);
    [cpu, kb(usage.read_bytes), kb(usage.write_bytes)].map(|cell| seen(measured, cell))
}

fn ratio(a: f64, b: f64) -> Cell {
    if b > 0.0 { Cell::number(a / b, 2) } else { "-".into() }
}

fn loads(loads: &[Load]) -> TextTable {
    let mut table = TextTable::new(&[
        "load", "engine", "rows/s", "seconds", "Mcpu/t", "rKB/t", "wKB/t", "size",
    ]);
    for load in loads {
        let Load { engine, rows, measured, round } = load;
        let cells: Vec<Cell> = vec![
            counted_rows(*rows).into(),
            engine.clone().into(),
            Cell::number(*rows as f64 / measured.seconds.max(1e-9), 0),
            Cell::number(measured.seconds, 1),
        ];
        let resources = per_one(measured, *rows);
        let cells = cells.into_iter().chain(resources).chain([size(measured)]);
        table.row(format!("load {round}"), cells);
    }
    table
}

fn counted_rows(rows: u64) -> String {
    format!("{:.1}M rows", rows as f64 / 1e6)
}

/// An engine and its median run.
type Line<'a> = (&'a str, Median<&'a Run>);

/// The numbers of clients, in the order in which they ran first, each with the engines' median
/// runs.
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

/// The engine that the others are compared with, where there are others.
fn first(document: &Document) -> Option<&str> {
    let first = document.runs.first()?.engine.as_str();
    document.runs.iter().any(|run| run.engine != first).then_some(first)
}

/// The rate of the engine `first` in a case.
fn base(lines: &[Line], first: &str) -> Option<f64> {
    lines.iter().find(|(engine, _)| *engine == first).map(|(_, median)| median.run.tpm_c)
}

fn rates(document: &Document) -> TextTable {
    let first = first(document);
    let relative = first.map(|first| format!("vs.{first}"));
    let mut heads = vec!["clients", "engine", "tpmC", "range"];
    heads.extend(relative.as_deref());
    heads.extend([
        "tps.av", "tps.99", "secs", "99/av", "retry/s", "Mcpu/t", "rKB/t", "wKB/t", "size", "debt",
        "rss",
    ]);
    let mut table = TextTable::new(&heads);
    for (clients, lines) in cases(document) {
        for (engine, median) in &lines {
            let run = median.run;
            // Of a run without a whole second it is 0.
            let rate_99 = Some(run.rate_99).filter(|rate| run.whole_seconds > 0 || *rate > 0.0);
            let mut cells: Vec<Cell> = vec![
                clients.to_string().into(),
                (*engine).into(),
                Cell::number(run.tpm_c, 0),
                median.range_text().into(),
            ];
            cells.extend(first.map(|first| {
                base(&lines, first).map_or("-".into(), |base| ratio(run.tpm_c, base))
            }));
            cells.extend([
                Cell::number(run.rate_mean, 0),
                Cell::optional(rate_99),
                seconds_of_99(rate_99, run.whole_seconds).into(),
                rate_99.map_or("-".into(), |rate| ratio(rate, run.rate_mean)),
                Cell::number(run.retries as f64 / run.measured.seconds.max(1e-9), 1),
            ]);
            let measured = &run.measured;
            cells.extend(per_one(measured, run.transactions));
            cells.push(size(measured));
            cells.push(measured.unwritten_bytes.map_or("-".into(), gb));
            cells.push(seen(measured, gb(measured.resident_bytes_max)));
            table.row(clients.to_string(), cells);
        }
    }
    table
}

/// How the first engine stands beside the fastest other, a line for each number of clients.
fn verdicts(document: &Document) -> String {
    let Some(first) = first(document) else { return String::new() };
    let of_case = |(clients, lines): (u32, Vec<Line>)| {
        verdict(&counted(clients, "client"), first, &lines, |run| run.tpm_c)
    };
    cases(document).into_iter().filter_map(of_case).collect()
}

fn latencies(document: &Document) -> TextTable {
    let mut table =
        TextTable::new(&["transaction", "clients", "engine", "share", "p50", "p99", "max"]);
    let milliseconds = |us: f64| Cell::number(us / 1000.0, 2);
    for kind in Kind::ALL {
        for (clients, lines) in cases(document) {
            for (engine, median) in lines {
                let run = median.run;
                let Some(latency) = run.kinds.get(&kind) else { continue };
                let share = latency.count as f64 / run.transactions.max(1) as f64;
                let cells: Vec<Cell> = vec![
                    kind.name().into(),
                    clients.to_string().into(),
                    engine.into(),
                    format!("{:.1} %", 100.0 * share).into(),
                    milliseconds(latency.p50_us),
                    milliseconds(latency.p99_us),
                    milliseconds(latency.max_us),
                ];
                table.row(format!("{} {clients}", kind.name()), cells);
            }
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The cells of the only run under their heads.
    fn cell(measured: Measured, head: &str) -> String {
        let run = Run { transactions: 100, whole_seconds: 30, measured, ..Run::default() };
        let document = Document {
            format: super::super::document::FORMAT,
            settings: serde_json::from_value(serde_json::json!({
                "warehouses": 1, "rounds": 1, "seconds": 1, "warmup_seconds": 0, "binlog": false,
                "memory_bytes": 0, "redo_bytes": 0, "durability": "write", "device": "fast", "seed": 1
            }))
            .expect("they are settings"),
            environment: crate::environment::Environment::look(None),
            engines: Vec::new(),
            loads: Vec::new(),
            runs: vec![run],
        };
        let table = rates(&document);
        let at = table.heads.iter().position(|other| other == head).expect("there is such a head");
        table.rows[0].cells[at].text.clone()
    }

    #[test]
    fn what_is_still_to_be_written_is_told() {
        let measured = |unwritten_bytes| Measured { unwritten_bytes, ..Measured::default() };
        assert_eq!(cell(measured(Some(3 << 29)), "debt"), "1.50");
        assert_eq!(cell(measured(None), "debt"), "-");
    }

    #[test]
    fn it_is_told_of_how_many_seconds_the_slow_ones_are() {
        assert_eq!(cell(Measured::default(), "secs"), "30");
    }

    #[test]
    fn what_nobody_could_look_at_is_left_blank() {
        for head in ["Mcpu/t", "rKB/t", "wKB/t", "size", "rss"] {
            let measured = Measured { unseen: true, ..Measured::default() };
            assert_eq!(cell(measured, head), "-", "{head}");
            assert_ne!(cell(Measured::default(), head), "-", "{head}");
        }
    }

    #[test]
    fn what_a_host_takes_is_told_of_the_run() {
        let mut run = Run::default();
        run.measured.seconds = 10.0;
        assert!(remarks(&run, 2).is_empty());
        run.measured.usage.stolen_us = 1_000_000;
        assert_eq!(remarks(&run, 2), ["the host took processors (steal): 5 %"]);
    }
}

//! The table of a comparison.

use super::Outcome;
use crate::quantity::counted;
use crate::report::{TextTable, missed, seconds_of_99, stolen};
use crate::result::{Measured, Run, StepResult, Throughput};
use crate::rounds::{Median, medians, verdict};

/// What the columns mean, for readers of tables.
pub const COLUMNS: &[(&str, &str)] = &[
    ("rate.av", "inserts, queries or rows of a scan per second, mean"),
    ("range", "with --rounds, the lowest and the highest rate.av; the line is the median run's"),
    ("rate.99", "the rate that 99 % of the seconds reach; of fewer than 100 the slowest second's"),
    ("secs", "whole seconds that rate.99 is of: below 100 it is the slowest one's"),
    ("vs.X", "rate.av against the first engine's"),
    ("rKB/o wKB/o", "KB read from and written to the device per insert, query or row"),
    ("Mcpu/o", "microseconds of the engine's processor time for each, all its threads"),
    ("size", "GB that the database takes on the device at the step's end, log included"),
    ("debt", "GB changed and not yet written at the step's end: wKB/o lacks them; -: not told"),
    ("rss", "GB of resident memory, the most of any second"),
    ("max.ms", "the longest commit or query"),
];

/// The outcomes as one table, and a line for each step that names the fastest.
pub fn table(outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first().map(|outcome| outcome.name.as_str()) else {
        return String::new();
    };
    let relative = format!("vs.{first}");
    let mut table = TextTable::new(&[
        "step", "clients", "engine", "rate.av", "range", "rate.99", "secs", &relative, "rKB/o",
        "wKB/o", "Mcpu/o", "size", "debt", "rss", "max.ms",
    ]);
    let mut verdicts = String::new();
    let mut clients: Vec<_> = outcomes.iter().map(|outcome| outcome.clients).collect();
    clients.dedup();
    for name in measures(outcomes) {
        for &clients in &clients {
            let of_clients = outcomes.iter().filter(|outcome| outcome.clients == clients);
            let lines = of_clients
                .filter_map(|outcome| Some((outcome.name.as_str(), measure(outcome, &name)?)));
            let mut lines = medians(lines, |line| line.rate);
            let base = lines.iter().find(|(engine, _)| *engine == first);
            let base = base.map(|(_, median)| median.run.rate);
            for (engine, median) in &lines {
                table.row(name.as_str(), cells(median, &name, clients, engine, base));
            }
            let case = format!("{name}, {}", counted(clients, "client"));
            lines.retain(|(engine, _)| !is_another_weir(outcomes, first, engine));
            verdicts.extend(verdict(&case, first, &lines, |line| line.rate));
        }
    }
    let mut text = table.render(&["step", "engine"]);
    if !verdicts.is_empty() {
        text += "\n";
        text += &verdicts;
    }
    let remarks = remarks(outcomes);
    if !remarks.is_empty() {
        text += &format!("\n{}\n", remarks.join("\n"));
    }
    for outcome in outcomes {
        if let Err(message) = &outcome.run {
            text += &format!("\nfailed: {message}\n");
        }
    }
    text
}

/// Whether `first` and an engine are both Weir in this process, through different interfaces: none
/// is the other's rival. Two servers with other settings are.
fn is_another_weir(outcomes: &[Outcome], first: &str, engine: &str) -> bool {
    let is_weir = |name: &str| {
        let runs = outcomes.iter().filter(|outcome| outcome.name == name);
        runs.flat_map(|outcome| &outcome.run).any(|run| run.settings.engine.is_weir())
    };
    engine != first && is_weir(first) && is_weir(engine)
}

/// What a reader has to know to compare the lines fairly, each once.
fn remarks(outcomes: &[Outcome]) -> Vec<String> {
    let runs = || outcomes.iter().filter_map(|of| Some((of, of.run.as_ref().ok()?)));
    let mut remarks = Vec::new();
    for of_run in [behind, stolen_from, notes, builds, warnings] {
        for remark in runs().flat_map(|(outcome, run)| of_run(outcome, run)) {
            if !remarks.contains(&remark) {
                remarks.push(remark);
            }
        }
    }
    remarks
}

/// What runs at a rate does less, and queries beside it are the quicker, for inserts that were left
/// out.
fn behind(outcome: &Outcome, run: &Run) -> Vec<String> {
    missed(run).iter().map(|missed| format!("{}: {missed}", who(outcome))).collect()
}

fn stolen_from(outcome: &Outcome, run: &Run) -> Vec<String> {
    let told = |stolen| format!("{}: the host took processors (steal): {stolen}", who(outcome));
    stolen(run).map(told).into_iter().collect()
}

fn notes(outcome: &Outcome, run: &Run) -> Vec<String> {
    run.engine.notes.iter().map(|note| format!("{}: {note}", outcome.name)).collect()
}

fn builds(_: &Outcome, run: &Run) -> Vec<String> {
    vec![format!("Built from {}", run.environment.build)]
}

fn warnings(_: &Outcome, run: &Run) -> Vec<String> {
    run.environment.warnings().into_iter().map(|what| format!("Warning: {what}")).collect()
}

fn who(outcome: &Outcome) -> String {
    format!("{}, {}", outcome.name, counted(outcome.clients, "client"))
}

/// One line of the table.
struct Line {
    rate: f64,
    rate_99: Option<f64>,
    /// That this is of.
    whole_seconds: usize,
    read_kb: f64,
    write_kb: f64,
    cpu_us: f64,
    size_gb: f64,
    debt_gb: Option<f64>,
    resident_gb: f64,
    latency_ms_max: Option<f64>,
}

fn cells(
    median: &Median<Line>,
    name: &str,
    clients: u32,
    engine: &str,
    base: Option<f64>,
) -> Vec<String> {
    let line = &median.run;
    vec![
        name.into(),
        clients.to_string(),
        engine.to_string(),
        format!("{:.0}", line.rate),
        median.range_text(),
        line.rate_99.map_or("-".into(), |rate| format!("{rate:.0}")),
        seconds_of_99(line.rate_99, line.whole_seconds),
        base.map_or("-".into(), |base| format!("{:.2}", line.rate / base)),
        format!("{:.3}", line.read_kb),
        format!("{:.3}", line.write_kb),
        format!("{:.2}", line.cpu_us),
        format!("{:.2}", line.size_gb),
        line.debt_gb.map_or("-".into(), |debt| format!("{debt:.2}")),
        format!("{:.2}", line.resident_gb),
        line.latency_ms_max.map_or("-".into(), |max| format!("{max:.1}")),
    ]
}

/// The names of everything that any outcome measured, in the order of the steps. A scan counts once
/// for each index: the first time, which may have to read, and the last.
fn measures(outcomes: &[Outcome]) -> Vec<String> {
    let longest = outcomes.iter().filter_map(|outcome| outcome.run.as_ref().ok());
    let Some(run) = longest.max_by_key(|run| run.steps.len()) else { return Vec::new() };
    let mut names = Vec::new();
    for (step, label) in run.labelled() {
        for (i, scan) in step.scans.iter().enumerate() {
            names.push(format!("{label}.{}.{}", i + 1, scan.index));
        }
        if step.scans.is_empty() {
            names.push(label);
        }
    }
    names
}

fn measure(outcome: &Outcome, name: &str) -> Option<Line> {
    let run = outcome.run.as_ref().ok()?;
    for (step, label) in run.labelled() {
        if label == name {
            return step_line(step);
        }
        for (i, scan) in step.scans.iter().enumerate() {
            if format!("{label}.{}.{}", i + 1, scan.index) == name {
                let rate = scan.rows as f64 / scan.measured.seconds.max(1e-9);
                return Some(line(rate, scan.rows, &scan.measured));
            }
        }
    }
    None
}

fn step_line(step: &StepResult) -> Option<Line> {
    let throughput = match (&step.queries, &step.inserts) {
        (Some(queries), _) => queries.throughput,
        (None, Some(inserts)) => *inserts,
        (None, None) => return None,
    };
    let latency = (throughput.latency.count > 0).then_some(throughput.latency.max_us / 1000.0);
    let Throughput { total, rate_mean, rate_99, .. } = throughput;
    let line = line(rate_mean, total, &step.measured);
    Some(Line { rate_99, whole_seconds: step.whole_seconds, latency_ms_max: latency, ..line })
}

/// A line without what only steps have that are measured by the second.
fn line(rate: f64, operations: u64, measured: &Measured) -> Line {
    let per = operations.max(1) as f64;
    let gb = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Line {
        rate,
        rate_99: None,
        whole_seconds: 0,
        read_kb: measured.usage.read_bytes as f64 / 1024.0 / per,
        write_kb: measured.usage.write_bytes as f64 / 1024.0 / per,
        cpu_us: measured.engine_cpu_us() as f64 / per,
        size_gb: gb(measured.size_bytes),
        debt_gb: measured.unwritten_bytes.map(gb),
        resident_gb: gb(measured.resident_bytes_max),
        latency_ms_max: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineKind;
    use crate::result::Background;

    /// A run of one step with this rate.
    fn outcome(name: &str, rate: f64) -> Outcome {
        let step: crate::Step = "load".parse().expect("it is a step");
        let latency = Default::default();
        let run = Run {
            format: crate::result::FORMAT,
            settings: serde_json::from_value(serde_json::json!({
                "engine": "model", "clients": 1, "rows": 1, "steps": [], "memory_bytes": 0,
                "redo_bytes": 0, "durability": "write", "delete": false, "seed": 1
            }))
            .expect("they are settings"),
            environment: crate::environment::Environment::look(None),
            engine: Default::default(),
            steps: vec![StepResult {
                name: step.name(),
                step,
                inserts: Some(Throughput {
                    total: 1,
                    rate_mean: rate,
                    rate_99: Some(150.0),
                    latency,
                }),
                deletes: 0,
                queries: None,
                background: None,
                scans: Vec::new(),
                measured: Measured::default(),
                series: Vec::new(),
                whole_seconds: 99,
            }],
            close_seconds: 0.0,
            interrupted: false,
        };
        Outcome { name: name.into(), clients: 1, document: "run.json".into(), run: Ok(run) }
    }

    #[test]
    fn of_several_rounds_the_median_counts() {
        let rates = [("a", 900.0), ("b", 100.0), ("a", 100.0), ("b", 50.0), ("a", 200.0)];
        let outcomes: Vec<_> = rates.into_iter().map(|(name, rate)| outcome(name, rate)).collect();
        let text = table(&outcomes);
        let cells = |engine: &str| -> Vec<String> {
            let of = |line: &&str| line.split_whitespace().nth(2) == Some(engine);
            let line = text.lines().find(of).unwrap_or_else(|| panic!("{engine}: {text}"));
            line.split_whitespace().map(str::to_string).collect()
        };
        assert_eq!(cells("a")[3..8], ["200", "100-900", "150", "99", "1.00"]);
        assert_eq!(cells("b")[3..8], ["50", "50-100", "150", "99", "0.25"]);
        assert!(text.contains("load, 1 client: a is at 4.00x of the fastest other, b"), "{text}");
    }

    #[test]
    fn weir_is_not_compared_with_itself() {
        let of = |(kind, rate): (EngineKind, f64)| {
            let mut outcome = outcome(kind.name(), rate);
            outcome.run.as_mut().expect("it finished").settings.engine = kind;
            outcome
        };
        let rates =
            [(EngineKind::Weir, 4.0), (EngineKind::WeirRaw, 8.0), (EngineKind::Sqlite, 2.0)];
        let text = table(&rates.map(of));
        assert!(
            text.contains("load, 1 client: weir is at 2.00x of the fastest other, sqlite"),
            "{text}"
        );
        assert!(text.contains("weir-raw"), "its line stays: {text}");
        let text = table(&[rates[2], rates[0], rates[1]].map(of));
        assert!(text.contains("sqlite is at 0.25x of the fastest other, weir-raw"), "{text}");
        let text = table(&[rates[0], rates[1]].map(of));
        assert!(!text.contains("fastest other"), "there is none: {text}");
    }

    #[test]
    fn what_makes_lines_uneven_is_told_once() {
        let mut outcomes = ["a", "b", "b"].map(|name| outcome(name, 5.0));
        for outcome in &mut outcomes {
            let run = outcome.run.as_mut().expect("it finished");
            run.environment.optimised = true;
            run.environment.filesystem = "tmpfs on tmpfs, /dev/shm".into();
            run.engine.notes = vec!["it keeps no limit".into()];
        }
        let step = &mut outcomes[1].run.as_mut().expect("it finished").steps[0];
        let (rate_asked, rate_done) = (2000.0, 612.3);
        step.background = Some(Background { rate_asked, rate_done, held: false, commits_lost: 9 });
        let text = table(&outcomes);
        let unheld =
            "b, 1 client: load: only 612 of the 2000 rows per second asked for, 9 commits left out";
        let told = [
            unheld,
            "a: it keeps no limit",
            "b: it keeps no limit",
            "Built from ",
            "Warning: the database",
        ];
        for told in told {
            assert_eq!(text.matches(told).count(), 1, "{told}: {text}");
        }
    }
}

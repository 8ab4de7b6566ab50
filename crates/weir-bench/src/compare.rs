//! Several engines, the same steps, one after the other.
//!
//! Each engine and number of clients runs in a process of its own, so that memory, processor time and
//! device traffic are its own, and none inherits a warm or fragmented heap. The child is this same
//! program, running `bench insert`; its result comes back as the JSON document that it stores.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::engine::EngineKind;
use crate::error::{Error, Result};
use crate::report::TextTable;
use crate::result::{Measured, Run, StepResult, Throughput};

/// What to compare.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The program to run.
    pub program: PathBuf,
    /// Engines, in this order; the others are shown relative to the first.
    pub engines: Vec<EngineKind>,
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// Arguments of `bench insert` that are the same for all.
    pub arguments: Vec<String>,
    /// Where databases go, one after the other; a temporary directory when `None`.
    pub dir: Option<PathBuf>,
    /// Where the JSON documents go.
    pub results: PathBuf,
}

impl Comparison {
    /// Runs everything, in order. An engine that fails does not keep the others from running.
    ///
    /// # Errors
    /// When a child process can't be started at all.
    pub fn run(&self, mut starting: impl FnMut(EngineKind, u32)) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for &clients in &self.clients {
            for &engine in &self.engines {
                starting(engine, clients);
                outcomes.push(Outcome { engine, clients, run: self.child(engine, clients)? });
            }
        }
        Ok(outcomes)
    }

    fn child(&self, engine: EngineKind, clients: u32) -> Result<std::result::Result<Run, String>> {
        let json = self.results.join(format!("{engine}-{clients}.json"));
        // A file left by an earlier comparison must not pass for this one's.
        match std::fs::remove_file(&json) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("removing {}", json.display()), error));
            }
            _ => {}
        }
        let mut command = Command::new(&self.program);
        command.args(["bench", "insert", "--engine", engine.name()]);
        command.args(["--clients", &clients.to_string()]).arg("--json").arg(&json);
        if let Some(dir) = &self.dir {
            command.arg("--dir").arg(dir.join(format!("{engine}-{clients}")));
        }
        command.args(&self.arguments).stdout(Stdio::null());
        let status = command
            .status()
            .map_err(|error| Error::io(format!("starting {}", self.program.display()), error))?;
        if !status.success() {
            return Ok(Err(format!("{engine} with {clients} clients: {status}")));
        }
        Ok(Run::load(&json).map_err(|error| error.to_string()))
    }
}

/// What came of one engine with one number of clients.
pub struct Outcome {
    /// The engine.
    pub engine: EngineKind,
    /// Client threads.
    pub clients: u32,
    /// Its result, or why there is none.
    pub run: std::result::Result<Run, String>,
}

/// The outcomes as one table, and a line for each step that names the fastest.
pub fn table(outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first().map(|outcome| outcome.engine) else { return String::new() };
    let relative = format!("vs.{first}");
    let mut table = TextTable::new(&[
        "step", "clients", "engine", "rate.av", "rate.99", &relative, "rKB/o", "wKB/o", "Mcpu/o",
        "size", "rss", "max.ms",
    ]);
    let mut verdicts = String::new();
    let mut clients: Vec<_> = outcomes.iter().map(|outcome| outcome.clients).collect();
    clients.dedup();
    for name in measures(outcomes) {
        for &clients in &clients {
            let lines: Vec<_> = outcomes
                .iter()
                .filter(|outcome| outcome.clients == clients)
                .filter_map(|outcome| Some((outcome.engine, measure(outcome, &name)?)))
                .collect();
            let base = lines.iter().find(|(engine, _)| *engine == first).map(|(_, line)| line.rate);
            for (engine, line) in &lines {
                table.row(name.as_str(), line.cells(&name, clients, *engine, base));
            }
            verdicts += &verdict(&name, clients, first, &lines);
        }
    }
    let mut text = table.render(&["step", "engine"]);
    if !verdicts.is_empty() {
        text += "\n";
        text += &verdicts;
    }
    for outcome in outcomes {
        if let Err(message) = &outcome.run {
            text += &format!("\nfailed: {message}\n");
        }
    }
    text
}

fn verdict(name: &str, clients: u32, first: EngineKind, lines: &[(EngineKind, Line)]) -> String {
    let own = lines.iter().find(|(engine, _)| *engine == first);
    let others = lines.iter().filter(|(engine, _)| *engine != first);
    let best = others.max_by(|(_, a), (_, b)| a.rate.total_cmp(&b.rate));
    let (Some((_, own)), Some((best, fastest))) = (own, best) else { return String::new() };
    let ratio = own.rate / fastest.rate;
    let plural = if clients == 1 { "" } else { "s" };
    format!(
        "{name}, {clients} client{plural}: {first} is at {ratio:.2}x of the fastest other, {best}\n"
    )
}

/// One line of the table.
struct Line {
    rate: f64,
    rate_99: Option<f64>,
    read_kb: f64,
    write_kb: f64,
    cpu_us: f64,
    size_gb: f64,
    resident_gb: f64,
    latency_ms_max: Option<f64>,
}

impl Line {
    fn cells(
        &self,
        name: &str,
        clients: u32,
        engine: EngineKind,
        base: Option<f64>,
    ) -> Vec<String> {
        vec![
            name.into(),
            clients.to_string(),
            engine.to_string(),
            format!("{:.0}", self.rate),
            self.rate_99.map_or("-".into(), |rate| format!("{rate:.0}")),
            base.map_or("-".into(), |base| format!("{:.2}", self.rate / base)),
            format!("{:.3}", self.read_kb),
            format!("{:.3}", self.write_kb),
            format!("{:.2}", self.cpu_us),
            format!("{:.2}", self.size_gb),
            format!("{:.2}", self.resident_gb),
            self.latency_ms_max.map_or("-".into(), |max| format!("{max:.1}")),
        ]
    }
}

/// The names of everything that any outcome measured, in the order of the steps. A scan counts once for
/// each index: the first time, which may have to read, and the last.
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
                return Some(line(rate, None, scan.rows, &scan.measured, None));
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
    Some(line(rate_mean, rate_99, total, &step.measured, latency))
}

fn line(
    rate: f64,
    rate_99: Option<f64>,
    operations: u64,
    measured: &Measured,
    latency_ms_max: Option<f64>,
) -> Line {
    let per = operations.max(1) as f64;
    let gb = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    Line {
        rate,
        rate_99,
        read_kb: measured.usage.read_bytes as f64 / 1024.0 / per,
        write_kb: measured.usage.write_bytes as f64 / 1024.0 / per,
        cpu_us: measured.engine_cpu_us() as f64 / per,
        size_gb: gb(measured.size_bytes),
        resident_gb: gb(measured.resident_bytes_max),
        latency_ms_max,
    }
}

/// Whether every engine finished.
pub fn all_finished(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.run.is_ok())
}

/// The names of the documents in `results`, for the user.
pub fn documents(results: &Path, outcomes: &[Outcome]) -> Vec<PathBuf> {
    let stored = outcomes.iter().filter(|outcome| outcome.run.is_ok());
    stored.map(|o| results.join(format!("{}-{}.json", o.engine, o.clients))).collect()
}

//! Several engines, the same steps, one after the other.
//!
//! Each engine and number of clients runs in a process of its own, so that memory, processor time and
//! device traffic are its own, and none inherits a warm or fragmented heap. The child is this same
//! program, running `bench insert`; its result comes back as the JSON document that it stores.
//!
//! Engines are embedded in the child, or storage engines of servers that are started here, a new one for
//! each run ([`crate::server`]); the child is their client then.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::{EngineKind, Statements};
use crate::error::{Error, Result};
use crate::report::TextTable;
use crate::result::{Measured, Run, StepResult, Throughput};
use crate::server::{PrivateServer, ServerSetup, ServerSpec};

/// One of those that are compared.
#[derive(Debug, Clone)]
pub enum Contender {
    /// An engine inside the child.
    Embedded(EngineKind),
    /// A server's.
    Server(ServerSpec),
}

impl Contender {
    /// Its name in tables.
    pub fn name(&self) -> &str {
        match self {
            Contender::Embedded(kind) => kind.name(),
            Contender::Server(spec) => &spec.label,
        }
    }

    fn file_name(&self) -> String {
        match self {
            Contender::Embedded(kind) => kind.name().into(),
            Contender::Server(spec) => spec.file_name(),
        }
    }
}

/// What to compare.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// The program to run.
    pub program: PathBuf,
    /// Those compared, in this order; the others are shown relative to the first.
    pub contenders: Vec<Contender>,
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// Arguments of `bench insert` that are the same for all.
    pub arguments: Vec<String>,
    /// How servers are started.
    pub servers: ServerSetup,
    /// How statements are sent to servers.
    pub statements: Statements,
    /// Where databases go, one after the other; a temporary directory when `None`.
    pub dir: Option<PathBuf>,
    /// Where the JSON documents go.
    pub results: PathBuf,
}

impl Comparison {
    /// Runs everything, in order, until `stop` is set. One that fails does not keep the others from
    /// running.
    ///
    /// # Errors
    /// When a child process can't be started at all.
    pub fn run(
        &self,
        stop: &AtomicBool,
        mut starting: impl FnMut(&Contender, u32),
    ) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for &clients in &self.clients {
            for contender in &self.contenders {
                if stop.load(Ordering::Relaxed) {
                    return Ok(outcomes);
                }
                starting(contender, clients);
                let document =
                    self.results.join(format!("{}-{clients}.json", contender.file_name()));
                let run = self.one(contender, clients, &document)?;
                let name = contender.name().to_string();
                outcomes.push(Outcome { name, clients, document, run });
            }
        }
        Ok(outcomes)
    }

    fn one(
        &self,
        contender: &Contender,
        clients: u32,
        document: &Path,
    ) -> Result<std::result::Result<Run, String>> {
        let mut command = Command::new(&self.program);
        command.args(["bench", "insert", "--clients", &clients.to_string()]);
        command.arg("--json").arg(document).args(&self.arguments);
        let spec = match contender {
            Contender::Embedded(kind) => {
                self.embed(*kind, clients, &mut command);
                return self.child(contender.name(), clients, document, command);
            }
            Contender::Server(spec) => spec,
        };
        let server = match self.servers.start(spec) {
            Ok(server) => server,
            Err(error) => return Ok(Err(error.to_string())),
        };
        self.connect(&server, spec, &mut command);
        let run = self.child(contender.name(), clients, document, command)?;
        Ok(match server.stop() {
            Ok(()) => run,
            Err(error) => run.and(Err(error.to_string())),
        })
    }

    fn embed(&self, kind: EngineKind, clients: u32, command: &mut Command) {
        let limits = &self.servers.limits;
        command.args(["--engine", kind.name()]);
        command.args(["--memory", &limits.memory_bytes.to_string()]);
        command.args(["--redo", &limits.redo_bytes.to_string()]);
        command.args(["--durability", &limits.durability.to_string()]);
        if let Some(dir) = &self.dir {
            command.arg("--dir").arg(dir.join(format!("{kind}-{clients}")));
        }
    }

    fn connect(&self, server: &PrivateServer, spec: &ServerSpec, command: &mut Command) {
        let choice = server.choice(&spec.engine, self.statements);
        command.args(["--url", &choice.url]).arg("--socket").arg(server.socket());
        command.args(["--table-engine", &choice.table_engine, "--keep"]);
        command.args(["--statements", &choice.statements.to_string()]);
    }

    fn child(
        &self,
        name: &str,
        clients: u32,
        document: &Path,
        mut command: Command,
    ) -> Result<std::result::Result<Run, String>> {
        // A file left by an earlier comparison must not pass for this one's.
        match std::fs::remove_file(document) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("removing {}", document.display()), error));
            }
            _ => {}
        }
        let status = command
            .stdout(Stdio::null())
            .status()
            .map_err(|error| Error::io(format!("starting {}", self.program.display()), error))?;
        if !status.success() {
            return Ok(Err(format!("{name} with {clients} clients: {status}")));
        }
        Ok(Run::load(document).map_err(|error| error.to_string()))
    }
}

/// What came of one engine with one number of clients.
pub struct Outcome {
    /// The engine, as it was named.
    pub name: String,
    /// Client threads.
    pub clients: u32,
    /// Where its JSON document is, if it finished.
    pub document: PathBuf,
    /// Its result, or why there is none.
    pub run: std::result::Result<Run, String>,
}

/// The outcomes as one table, and a line for each step that names the fastest.
pub fn table(outcomes: &[Outcome]) -> String {
    let Some(first) = outcomes.first().map(|outcome| outcome.name.as_str()) else {
        return String::new();
    };
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
                .filter_map(|outcome| Some((outcome.name.as_str(), measure(outcome, &name)?)))
                .collect();
            let base = lines.iter().find(|(engine, _)| *engine == first).map(|(_, line)| line.rate);
            for (engine, line) in &lines {
                table.row(name.as_str(), line.cells(&name, clients, engine, base));
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

fn verdict(name: &str, clients: u32, first: &str, lines: &[(&str, Line)]) -> String {
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
    fn cells(&self, name: &str, clients: u32, engine: &str, base: Option<f64>) -> Vec<String> {
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

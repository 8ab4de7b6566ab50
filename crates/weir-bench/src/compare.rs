//! Several engines, the same steps, one after the other.
//!
//! Each engine and number of clients runs in a process of its own, so that memory, processor time and
//! device traffic are its own, and none inherits a warm or fragmented heap. The child is this same
//! program, running `bench insert`; its result comes back as the JSON document that it stores.
//! Before each the system writes what it still has of the one before: nobody pays for another's
//! debts.
//!
//! Rounds can be repeated, all engines in each, and a line of the table is then that of the run with the
//! median rate ([`crate::rounds`]).
//!
//! Engines are embedded in the child, or storage engines of servers that are started here, a new one for
//! each run ([`crate::server`]); the child is their client then.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::child;
use crate::engine::{EngineKind, Statements};
use crate::error::{Error, Result};
use crate::quantity::counted;
use crate::report::TextTable;
use crate::result::{Measured, Run, StepResult, Throughput};
use crate::rounds::{Median, medians};
use crate::server::{PrivateServer, ServerSetup, ServerSpec};

/// The exit code of a child that an interrupt ended.
const INTERRUPTED: i32 = 130;

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
    /// How often each runs.
    pub rounds: u32,
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
        for (clients, round, contender) in self.runs() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            starting(contender, clients);
            rustix::fs::sync();
            let document = self.document(contender, clients, round);
            let run = self.one(contender, clients, &document, stop)?;
            let name = contender.name().to_string();
            outcomes.push(Outcome { name, clients, document, run });
        }
        Ok(outcomes)
    }

    /// Everything that runs, in order: numbers of clients, rounds, contenders.
    fn runs(&self) -> impl Iterator<Item = (u32, u32, &Contender)> {
        let rounds = |&n: &u32| (1..=self.rounds).map(move |round| (n, round));
        let contenders = |(n, round)| self.contenders.iter().map(move |who| (n, round, who));
        self.clients.iter().flat_map(rounds).flat_map(contenders)
    }

    /// Where the documents go, one of each run.
    ///
    /// # Errors
    /// Which would replace another's.
    pub fn documents(&self) -> Result<BTreeSet<PathBuf>> {
        let mut documents = BTreeSet::new();
        for (clients, round, contender) in self.runs() {
            if !documents.insert(self.document(contender, clients, round)) {
                let (name, clients) = (contender.name(), counted(clients, "client"));
                return Err(Error::Usage(format!("{name} with {clients} is named twice")));
            }
        }
        Ok(documents)
    }

    fn document(&self, contender: &Contender, clients: u32, round: u32) -> PathBuf {
        let round = if self.rounds > 1 { format!("-round-{round}") } else { String::new() };
        self.results.join(format!("{}-{clients}{round}.json", contender.file_name()))
    }

    fn one(
        &self,
        contender: &Contender,
        clients: u32,
        document: &Path,
        stop: &AtomicBool,
    ) -> Result<std::result::Result<Run, String>> {
        let mut command = Command::new(&self.program);
        command.args(["bench", "insert", "--clients", &clients.to_string()]);
        command.arg("--json").arg(document).args(&self.arguments);
        let spec = match contender {
            Contender::Embedded(kind) => {
                self.embed(*kind, clients, &mut command);
                return self.child(contender.name(), clients, document, command, stop);
            }
            Contender::Server(spec) => spec,
        };
        let server = match self.servers.start(spec, stop) {
            Ok(server) => server,
            Err(error) => return Ok(Err(error.to_string())),
        };
        self.connect(&server, spec, &mut command);
        let run = self.child(contender.name(), clients, document, command, stop)?;
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
        stop: &AtomicBool,
    ) -> Result<std::result::Result<Run, String>> {
        // A file left by an earlier comparison must not pass for this one's.
        match std::fs::remove_file(document) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(format!("removing {}", document.display()), error));
            }
            _ => {}
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        let status = child::run(&mut command, stop)
            .map_err(|error| Error::io(format!("running {}", self.program.display()), error))?
            .status;
        let clients = counted(clients, "client");
        if status.code() == Some(INTERRUPTED) {
            return Ok(Err(format!("{name} with {clients}: interrupted")));
        }
        if !status.success() {
            return Ok(Err(format!("{name} with {clients}: {status}")));
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

/// What the columns mean, for readers of tables.
pub const COLUMNS: &[(&str, &str)] = &[
    ("rate.av", "inserts, queries or rows of a scan per second, mean"),
    ("range", "with --rounds, the lowest and the highest rate.av; the line is the median run's"),
    ("rate.99", "the rate that 99 % of the seconds reach; of fewer than 100 the slowest second's"),
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
        "step", "clients", "engine", "rate.av", "range", "rate.99", &relative, "rKB/o", "wKB/o",
        "Mcpu/o", "size", "debt", "rss", "max.ms",
    ]);
    let mut verdicts = String::new();
    let mut clients: Vec<_> = outcomes.iter().map(|outcome| outcome.clients).collect();
    clients.dedup();
    for name in measures(outcomes) {
        for &clients in &clients {
            let of_clients = outcomes.iter().filter(|outcome| outcome.clients == clients);
            let lines = of_clients
                .filter_map(|outcome| Some((outcome.name.as_str(), measure(outcome, &name)?)));
            let lines = medians(lines, |line| line.rate);
            let base = lines.iter().find(|(engine, _)| *engine == first);
            let base = base.map(|(_, median)| median.run.rate);
            for (engine, median) in &lines {
                table.row(name.as_str(), cells(median, &name, clients, engine, base));
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

fn verdict(name: &str, clients: u32, first: &str, lines: &[(&str, Median<Line>)]) -> String {
    let own = lines.iter().find(|(engine, _)| *engine == first);
    let others = lines.iter().filter(|(engine, _)| *engine != first);
    let best = others.max_by(|(_, a), (_, b)| a.run.rate.total_cmp(&b.run.rate));
    let (Some((_, own)), Some((best, fastest))) = (own, best) else { return String::new() };
    let ratio = own.run.rate / fastest.run.rate;
    let clients = counted(clients, "client");
    format!("{name}, {clients}: {first} is at {ratio:.2}x of the fastest other, {best}\n")
}

/// One line of the table.
struct Line {
    rate: f64,
    rate_99: Option<f64>,
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
        debt_gb: measured.unwritten_bytes.map(gb),
        resident_gb: gb(measured.resident_bytes_max),
        latency_ms_max,
    }
}

/// Whether every engine finished.
pub fn all_finished(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.run.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(rounds: u32) -> Comparison {
        let limits = crate::engine::Limits {
            memory_bytes: 1 << 30,
            redo_bytes: 1 << 28,
            durability: crate::Durability::Write,
        };
        Comparison {
            program: "/bin/false".into(),
            contenders: vec![
                Contender::Embedded(EngineKind::Weir),
                Contender::Server("innodb".parse().expect("it is a server")),
            ],
            clients: vec![1, 4],
            rounds,
            arguments: Vec::new(),
            servers: ServerSetup { command: "run".into(), limits, binlog: false, dir: None },
            statements: Statements::Text,
            dir: None,
            results: "out".into(),
        }
    }

    #[test]
    fn rounds_alternate_engines_and_keep_every_document() {
        let two = comparison(2);
        two.documents().expect("each has a document of its own");
        let order: Vec<_> = two.runs().map(|(n, round, who)| (n, round, who.name())).collect();
        assert_eq!(order[..3], [(1, 1, "weir"), (1, 1, "innodb"), (1, 2, "weir")]);
        assert_eq!(order.len(), 8);
        let document = |comparison: &Comparison| {
            comparison.document(&comparison.contenders[1], 4, 1).display().to_string()
        };
        assert_eq!(document(&two), "out/innodb-4-round-1.json");
        assert_eq!(document(&comparison(1)), "out/innodb-4.json");
    }

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
                inserts: Some(Throughput { total: 1, rate_mean: rate, rate_99: None, latency }),
                deletes: 0,
                queries: None,
                background: None,
                scans: Vec::new(),
                measured: Measured::default(),
                series: Vec::new(),
                whole_seconds: 0,
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
        assert_eq!(cells("a")[3..7], ["200", "100-900", "-", "1.00"]);
        assert_eq!(cells("b")[3..7], ["50", "50-100", "-", "0.25"]);
        assert!(text.contains("load, 1 client: a is at 4.00x of the fastest other, b"), "{text}");
    }
}

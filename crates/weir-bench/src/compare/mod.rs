//! Several engines, the same steps, one after the other.
//!
//! Each engine and number of clients runs in a process of its own, so that memory, processor time
//! and device traffic are its own, and none inherits a warm or fragmented heap. The child is this
//! same program, running `bench insert`; its result comes back as the JSON document that it stores.
//! Before each the system writes what it still has of the one before: nobody pays for another's
//! debts.
//!
//! Rounds can be repeated, all engines in each, and a line of the table is then that of the run
//! with the median rate ([`crate::rounds`]).
//!
//! Engines are embedded in the child, or storage engines of servers that are started here, a new
//! one for each run ([`crate::server`]); the child is their client then. A new server's memory is
//! the system's to provide, page by page, and where that is a guest its host's as well, which costs
//! a load as much with a fast engine as with a slow one. So servers may be warmed up: another child
//! does the first step before.

mod table;

pub use table::{COLUMNS, table};

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::child;
use crate::engine::{EngineKind, Statements};
use crate::error::{Error, Result};
use crate::quantity::counted;
use crate::result::Run;
use crate::server::{PrivateServer, ServerSetup, ServerSpec};
use crate::turns::{announcement, turns};

/// The exit code of a child that an interrupt ended.
const INTERRUPTED: i32 = 130;

/// One of those that are compared.
#[derive(Debug, Clone)]
pub enum Subject {
    /// An engine inside the child.
    Embedded(EngineKind),
    /// A server's.
    Private(ServerSpec),
}

impl Subject {
    /// Its name in tables.
    pub fn label(&self) -> &str {
        match self {
            Subject::Embedded(kind) => kind.name(),
            Subject::Private(spec) => &spec.label,
        }
    }

    fn file_name(&self) -> String {
        match self {
            Subject::Embedded(kind) => kind.name().into(),
            Subject::Private(spec) => spec.file_name(),
        }
    }
}

/// What to compare.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program to run.
    pub program: PathBuf,
    /// Those compared, in this order; the others are shown relative to the first.
    pub subjects: Vec<Subject>,
    /// Numbers of clients.
    pub clients: Vec<u32>,
    /// How often each runs.
    pub rounds: u32,
    /// Steps of `bench insert`, as they are written.
    pub steps: String,
    /// Those that a server does before it is measured, on tables of their own that are dropped
    /// again.
    pub warm_up: Option<String>,
    /// The other arguments of `bench insert` that are the same for all.
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

impl Plan {
    /// Runs everything, in order, until `stop` is set, and tells of each beginning. One that fails
    /// does not keep the others from running.
    ///
    /// # Errors
    /// When a child process can't be started at all.
    pub fn run(&self, stop: &AtomicBool, mut tell: impl FnMut(&str)) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        for (clients, round, subject) in self.runs() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mut of_clients = counted(clients, "client");
            if self.warm_up.is_some() {
                of_clients += ", the first step twice";
            }
            tell(&announcement(subject.label(), round, self.rounds, &of_clients));
            rustix::fs::sync();
            let document = self.document(subject, clients, round);
            let run = self.one(subject, clients, &document, stop)?;
            let name = subject.label().to_string();
            outcomes.push(Outcome { name, clients, document, run });
        }
        Ok(outcomes)
    }

    /// Everything that runs, in order: numbers of clients, rounds, subjects.
    fn runs(&self) -> impl Iterator<Item = (u32, u32, &Subject)> {
        let turns = |&clients: &u32| {
            let turns = turns(self.rounds, &self.subjects);
            turns.map(move |(round, subject)| (clients, round, subject))
        };
        self.clients.iter().flat_map(turns)
    }

    /// Where the documents go, one of each run.
    ///
    /// # Errors
    /// Which would replace another's.
    pub fn documents(&self) -> Result<BTreeSet<PathBuf>> {
        let mut documents = BTreeSet::new();
        for (clients, round, subject) in self.runs() {
            if !documents.insert(self.document(subject, clients, round)) {
                let (name, clients) = (subject.label(), counted(clients, "client"));
                return Err(Error::Usage(format!("{name} with {clients} is named twice")));
            }
        }
        Ok(documents)
    }

    fn document(&self, subject: &Subject, clients: u32, round: u32) -> PathBuf {
        let round = if self.rounds > 1 { format!("-round-{round}") } else { String::new() };
        self.results.join(format!("{}-{clients}{round}.json", subject.file_name()))
    }

    fn one(
        &self,
        subject: &Subject,
        clients: u32,
        document: &Path,
        stop: &AtomicBool,
    ) -> Result<std::result::Result<Run, String>> {
        let spec = match subject {
            Subject::Embedded(kind) => {
                let mut command = self.command(clients, &self.steps, document);
                self.embed(*kind, clients, &mut command);
                return self.child(subject.label(), clients, document, command, stop);
            }
            Subject::Private(spec) => spec,
        };
        let server = match self.servers.start(spec, stop) {
            Ok(server) => server,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let run = self.on_server(&server, spec, clients, document, stop)?;
        Ok(match server.stop() {
            Ok(()) => run,
            Err(error) => run.and(Err(error.to_string())),
        })
    }

    fn on_server(
        &self,
        server: &PrivateServer,
        spec: &ServerSpec,
        clients: u32,
        document: &Path,
        stop: &AtomicBool,
    ) -> Result<std::result::Result<Run, String>> {
        let child = |steps: &str, keep: &[&str]| {
            let mut command = self.command(clients, steps, document);
            self.connect(server, spec, &mut command);
            command.args(keep);
            self.child(&spec.label, clients, document, command, stop)
        };
        if let Some(steps) = &self.warm_up {
            let warmed_up = child(steps, &[])?;
            if warmed_up.is_err() {
                return Ok(warmed_up);
            }
            // Nobody pays for what the tables that were dropped left to be written.
            rustix::fs::sync();
        }
        let run = child(&self.steps, &["--keep"])?;
        Ok(run.and_then(|run| self.complete(run, document).map_err(|error| error.to_string())))
    }

    /// Adds to a run what its process couldn't know: how the server was started, and which
    /// processors that has.
    fn complete(&self, mut run: Run, document: &Path) -> Result<Run> {
        run.settings.binlog = self.servers.binlog;
        run.settings.pinned = self.servers.pinning.is_some();
        if let Some(pinning) = &self.servers.pinning {
            run.environment.cores = pinning.cores();
        }
        run.save(document)?;
        Ok(run)
    }

    fn command(&self, clients: u32, steps: &str, document: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["bench", "insert", "--clients", &clients.to_string(), "--steps", steps]);
        command.arg("--json").arg(document).args(&self.arguments);
        command
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
        command.args(["--table-engine", &choice.table_engine]);
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

/// Whether every engine finished.
pub fn all_finished(outcomes: &[Outcome]) -> bool {
    outcomes.iter().all(|outcome| outcome.run.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rounds: u32) -> Plan {
        let limits = crate::engine::Limits {
            memory_bytes: 1 << 30,
            redo_bytes: 1 << 28,
            durability: crate::Durability::Write,
        };
        Plan {
            program: "/bin/false".into(),
            subjects: vec![
                Subject::Embedded(EngineKind::Weir),
                Subject::Private("innodb".parse().expect("it is a server")),
            ],
            clients: vec![1, 4],
            rounds,
            steps: "load".into(),
            warm_up: None,
            arguments: Vec::new(),
            servers: ServerSetup {
                command: "run".into(),
                limits,
                binlog: false,
                pinning: None,
                dir: None,
            },
            statements: Statements::Text,
            dir: None,
            results: "out".into(),
        }
    }

    #[test]
    fn rounds_alternate_engines_and_keep_every_document() {
        let two = plan(2);
        two.documents().expect("each has a document of its own");
        let order: Vec<_> = two.runs().map(|(n, round, who)| (n, round, who.label())).collect();
        assert_eq!(order[..3], [(1, 1, "weir"), (1, 1, "innodb"), (1, 2, "innodb")]);
        assert_eq!(order.len(), 8);
        let document = |plan: &Plan| plan.document(&plan.subjects[1], 4, 1).display().to_string();
        assert_eq!(document(&two), "out/innodb-4-round-1.json");
        assert_eq!(document(&plan(1)), "out/innodb-4.json");
    }
}

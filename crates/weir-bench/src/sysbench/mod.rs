//! sysbench's OLTP tests on private servers, one engine after the other.
//!
//! For each server: start it, fill the tables, and run each test with each number of threads, the
//! tests in the same order on the same tables. Rounds of all that can be repeated, the servers in
//! turn, each time on new tables; or servers stand side by side ([`crate::turns`]). Each second's
//! transactions are kept, with the engine's figures; the first seconds of each run, while caches
//! fill and logs are new, are dropped. With a limit of I/O ([`crate::io_limit`]), which is set
//! after the tables are filled, this is the experiment that shows waves of page writing.

pub mod document;
pub mod figures;
pub mod output;
pub mod report;

use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::accounting::Place;
use crate::child;
use crate::engine::{EngineInfo, Statements};
use crate::engines::sql::facts::{self, Family};
use crate::engines::sql::target::Target;
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::io_limit::IoLimit;
use crate::quantity::counted;

use crate::server::{PrivateServer, ServerSetup, ServerSpec};
use crate::turns::{self, Comparison, Order, announcement, missing};
use document::{Document, FORMAT, Run, Settings};
use figures::Sampler;

/// sysbench's tests that run on one set of tables.
pub const TESTS: [&str; 7] = [
    "oltp_read_write",
    "oltp_point_select",
    "oltp_update_index",
    "oltp_write_only",
    "oltp_read_only",
    "oltp_update_non_index",
    "oltp_insert",
];
/// Deletes random rows and inserts none.
const DELETE: &str = "oltp_delete";
const DATABASE: &str = "sbtest";
/// Threads that fill the tables.
const LOADERS: u32 = 2;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Servers, in this order.
    pub servers: Vec<ServerSpec>,
    /// How they are started.
    pub setup: ServerSetup,
    /// Which of [`TESTS`], in this order.
    pub tests: Vec<String>,
    /// Numbers of threads.
    pub threads: Vec<u32>,
    /// Tables.
    pub tables: u32,
    /// Rows of each.
    pub table_rows: u64,
    /// How often: all servers in turn, then all again.
    pub rounds: u32,
    /// Whether all servers are there at once, one of them at work while the others are stopped, and
    /// each case runs on all of them before the next, instead of all cases on a server before the
    /// next server.
    pub side_by_side: bool,
    /// Length of each run.
    pub seconds: u32,
    /// Seconds of its beginning that don't count.
    pub dropped_seconds: u32,
    /// Reads, and writes, per second that the server's process may do once the tables are filled.
    pub iops: Option<u32>,
    /// Transactions per second that are asked for, at random moments; as many as can be if `None`.
    pub rate: Option<u64>,
}

type Turn<'a> = turns::Turn<'a, ServerSpec>;

/// One test with one number of threads.
#[derive(Debug, Clone, Copy)]
struct Case<'a> {
    test: &'a str,
    threads: u32,
}

/// A server with its tables filled.
struct Filled {
    /// Before the server: a limited one would take long to end.
    limit: Option<IoLimit>,
    server: PrivateServer,
}

/// A plan that is being carried out, and what came of it so far.
struct Running<'a, F> {
    plan: &'a Plan,
    stop: &'a AtomicBool,
    document: Document,
    tell: F,
}

impl Plan {
    /// Checks what can be checked before anything is started.
    ///
    /// # Errors
    /// What makes no sense, and a sysbench that isn't there.
    pub fn check(&self) -> Result<()> {
        let usage = |message: String| Err(Error::Usage(message));
        if self.tests.iter().any(|test| test == DELETE) {
            return usage(format!(
                "{DELETE} empties its tables in seconds, and what it does then measures nothing, nor do tests after \
                 it: use oltp_write_only, which inserts as many rows as it deletes"
            ));
        }
        if let Some(test) = self.tests.iter().find(|test| !TESTS.contains(&test.as_str())) {
            return usage(format!("`{test}` is no test; use {}", TESTS.join(", ")));
        }
        if let Some(threads) = self.threads.iter().find(|threads| !(1..=256).contains(*threads)) {
            return usage(format!("{threads} threads: use 1 to 256"));
        }
        if self.servers.is_empty() || self.tests.is_empty() || self.threads.is_empty() {
            return usage("no servers, no tests or no threads: nothing to run".into());
        }
        if self.rounds == 0 {
            return usage("0 rounds: nothing to run".into());
        }
        let servers = self.servers.iter().map(|spec| spec.label.clone());
        let tests = self.tests.iter().cloned();
        let threads = self.threads.iter().map(|&threads| counted(threads, "thread"));
        turns::refuse_twice(servers.chain(tests).chain(threads))?;
        if self.tables == 0 || self.table_rows == 0 {
            return usage("tables: at least one, with at least one row".into());
        }
        if self.rate == Some(0) {
            return usage("a rate of 0 transactions per second: use 1 or more".into());
        }
        if self.iops == Some(0) {
            return usage("a device of 0 reads and writes per second: use 1 or more".into());
        }
        if self.dropped_seconds >= self.seconds {
            let (dropped, all) = (self.dropped_seconds, self.seconds);
            return usage(format!("of {all} seconds {dropped} are dropped: nothing is left"));
        }
        self.setup.check()?;
        if self.iops.is_some() {
            IoLimit::check()?;
        }
        match Command::new("sysbench").arg("--version").output() {
            Ok(_) => Ok(()),
            Err(error) => usage(format!("sysbench: {error}; Debian's package is called sysbench")),
        }
    }

    /// All cases, in order.
    fn cases(&self) -> impl Iterator<Item = Case<'_>> {
        let of_test = |test| self.threads.iter().map(move |&threads| Case { test, threads });
        self.tests.iter().flat_map(move |test| of_test(test))
    }

    /// Runs everything, until `stop` is set. What fails does not keep the rest from running.
    ///
    /// # Errors
    /// Of this program's own surroundings.
    pub fn run(&self, stop: &AtomicBool, tell: impl FnMut(&str)) -> Result<Document> {
        self.check()?;
        let parent = self.setup.parent_dir()?;
        let document = Document {
            format: FORMAT,
            settings: self.settings(),
            environment: Environment::look(Some(parent.path())),
            servers: Vec::new(),
            runs: Vec::new(),
        };
        let mut running = Running { plan: self, stop, document, tell };
        let cases: Vec<_> = self.cases().collect();
        turns::compare(&mut running, &self.servers, &cases, self.order())?;
        Ok(running.document)
    }

    fn order(&self) -> Order {
        Order { rounds: self.rounds, side_by_side: self.side_by_side }
    }

    fn settings(&self) -> Settings {
        Settings {
            tables: self.tables,
            table_rows: self.table_rows,
            rounds: self.rounds,
            side_by_side: self.side_by_side,
            seconds: self.seconds,
            dropped_seconds: self.dropped_seconds,
            iops: self.iops,
            rate: self.rate,
            binlog: self.setup.binlog,
            pinned: self.setup.pinning.is_some(),
            memory_bytes: self.setup.limits.memory_bytes,
            redo_bytes: self.setup.limits.redo_bytes,
            durability: self.setup.limits.durability.to_string(),
        }
    }

    fn fill(&self, server: &PrivateServer, spec: &ServerSpec, stop: &AtomicBool) -> Result<()> {
        use mysql::prelude::Queryable;
        let target = Target::new(&server.choice(&spec.engine, Statements::Text))?;
        let failed = |error| Error::engine("server", "create database", error);
        let mut connection = target.connect(None)?;
        connection.query_drop(format!("CREATE DATABASE {DATABASE}")).map_err(failed)?;
        // All tests run on the same tables.
        let mut command = self.sysbench(server, spec, TESTS[0]);
        command.arg(format!("--threads={}", LOADERS.min(self.tables))).arg("prepare");
        output_of(command, stop).map(|_| ())
    }

    fn sysbench(&self, server: &PrivateServer, spec: &ServerSpec, test: &str) -> Command {
        let mut command = Command::new("sysbench");
        command.args([test, "--db-driver=mysql", "--mysql-user=root", "--rand-type=uniform"]);
        command.arg(format!("--mysql-socket={}", server.socket().display()));
        command.arg(format!("--mysql-db={DATABASE}"));
        command.arg(format!("--mysql-storage-engine={}", spec.engine));
        command.arg(format!("--tables={}", self.tables));
        command.arg(format!("--table-size={}", self.table_rows));
        command
    }

    fn one(
        &self,
        server: &PrivateServer,
        turn: Turn,
        case: Case,
        stop: &AtomicBool,
    ) -> Result<Run> {
        let (spec, Case { test, threads }) = (turn.subject, case);
        let (pid, dir) = (server.pid(), server.data_dir());
        let place = Place::Process { pid, dir, except: None };
        let mut command = self.sysbench(server, spec, test);
        command.args(["--report-interval=1", "--percentile=95"]);
        command.arg(format!("--threads={threads}")).arg(format!("--time={}", self.seconds));
        command.args(self.rate.map(|rate| format!("--rate={rate}")));
        command.arg("run");
        let (before, clients) = (place.usage()?, place.clients_cpu());
        let control = Target::new(&server.choice(&spec.engine, Statements::Text))?.connect(None)?;
        let sampler = Sampler::start(control, Family::of(&spec.engine));
        let output = output_of(command, stop)?;
        let usage = place.usage()?.since(&before);
        let own_cpu_us = (place.clients_cpu() - clients).as_micros() as u64;
        let mut run = empty(turn, case);
        run.server_cpu_us = usage.cpu_us.saturating_sub(own_cpu_us);
        run.usage = usage;
        run.resident_bytes = place.resident_bytes()?;
        run.size_bytes = place.size_bytes();
        run.transactions = output::transactions(&output).unwrap_or(0);
        run.seconds = output::seconds(&output);
        sampler.end(&mut run.seconds)?;
        run.summarize(self.dropped_seconds);
        Ok(run)
    }
}

impl<'a, F: FnMut(&str)> Comparison for Running<'a, F> {
    type Subject = ServerSpec;
    type Case = Case<'a>;
    type Ready = Filled;

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Starts a turn's server and fills its tables.
    fn prepare(&mut self, turn: Turn) -> Result<Filled> {
        let (plan, Turn { round, subject: spec }) = (self.plan, turn);
        let filling = format!("starting and filling {}", counted(plan.tables, "table"));
        (self.tell)(&announcement(&spec.label, round, plan.order().preparations(), &filling));
        let server = plan.setup.start(spec, self.stop)?;
        let servers = &mut self.document.servers;
        if servers.iter().all(|server| server.name != spec.label) {
            servers.push(info(&server, spec)?);
        }
        plan.fill(&server, spec, self.stop)?;
        let pid = server.pid();
        let limit =
            plan.iops.map(|iops| IoLimit::new(pid, &server.data_dir(), iops)).transpose()?;
        Ok(Filled { limit, server })
    }

    fn case(&mut self, filled: &mut Filled, turn: Turn, case: Case) -> Result<()> {
        if self.is_stopped() {
            return Ok(());
        }
        let run = match self.plan.one(&filled.server, turn, case, self.stop) {
            Ok(run) => run,
            // An interrupt ends sysbench, too: that is no failure of a server.
            Err(_) if self.is_stopped() => return Ok(()),
            Err(error) => failed(turn, case, &error),
        };
        (self.tell)(&report::line(&run));
        self.document.runs.push(run);
        Ok(())
    }

    fn pause(&self, filled: &Filled) -> Result<()> {
        filled.server.pause()
    }

    fn resume(&self, filled: &Filled) -> Result<()> {
        filled.server.resume()
    }

    fn end(&mut self, filled: Filled) -> Result<()> {
        drop(filled.limit);
        filled.server.stop()
    }

    fn failed(&mut self, turns: &[Turn], error: Error) -> Result<()> {
        let plan = self.plan;
        let all = turns.iter().flat_map(|turn| plan.cases().map(move |case| (*turn, case)));
        let all = all.map(|(turn, case)| failed(turn, case, &error));
        let missing = missing(all, &self.document.runs, Run::is_same);
        self.document.runs.extend(missing);
        Ok(())
    }
}

fn empty(turn: Turn, case: Case) -> Run {
    let (Turn { round, subject }, Case { test, threads }) = (turn, case);
    Run { server: subject.label.clone(), round, test: test.into(), threads, ..Run::default() }
}

fn failed(turn: Turn, case: Case, error: &Error) -> Run {
    Run { failure: Some(error.to_string()), ..empty(turn, case) }
}

/// Version and settings of a server, under the name that it has here.
fn info(server: &PrivateServer, spec: &ServerSpec) -> Result<EngineInfo> {
    let choice = server.choice(&spec.engine, Statements::Text);
    let info = facts::info(&mut Target::new(&choice)?.connect(None)?, &spec.engine)?;
    Ok(EngineInfo { name: spec.label.clone(), ..info })
}

/// What a command wrote, when it ended well.
fn output_of(mut command: Command, stop: &AtomicBool) -> Result<String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output =
        child::run(&mut command, stop).map_err(|error| Error::io("running sysbench", error))?;
    let Output { status, stdout, stderr } = output;
    let text = String::from_utf8_lossy(&stdout).into_owned();
    if status.success() {
        return Ok(text);
    }
    let both = format!("{text}{}", String::from_utf8_lossy(&stderr));
    let mut lines = both.lines().filter(|line| !line.trim().is_empty());
    let fatal = lines.clone().find(|line| line.contains("FATAL"));
    let reason = fatal.or(lines.next_back()).unwrap_or("it said no reason");
    Err(Error::engine("sysbench", "run", format!("{status}: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Durability, Limits};

    fn plan() -> Plan {
        Plan {
            servers: vec!["weir".parse().unwrap()],
            setup: ServerSetup {
                command: "/bin/true".into(),
                limits: Limits {
                    memory_bytes: 1 << 30,
                    redo_bytes: 1 << 28,
                    durability: Durability::Write,
                },
                binlog: false,
                pinning: None,
                dir: None,
            },
            tests: vec!["oltp_read_write".into()],
            threads: vec![1],
            tables: 1,
            table_rows: 1,
            rounds: 1,
            side_by_side: false,
            seconds: 2,
            dropped_seconds: 1,
            iops: None,
            rate: None,
        }
    }

    #[test]
    fn a_failure_stands_in_the_runs_that_were_not_made() {
        let servers = ["weir", "innodb"].map(|name| name.parse().unwrap()).to_vec();
        let plan = Plan { servers, rounds: 2, threads: vec![1, 4], ..plan() };
        let turn = |round, server: usize| Turn { round, subject: &plan.servers[server] };
        // What the first round has measured is not there for the second.
        let made = empty(turn(1, 0), Case { test: "oltp_read_write", threads: 1 });
        let missing = |turns: &[Turn]| {
            let document = Document {
                format: FORMAT,
                settings: plan.settings(),
                environment: Environment::look(None),
                servers: Vec::new(),
                runs: vec![made.clone()],
            };
            let stop = AtomicBool::new(false);
            let mut running = Running { plan: &plan, stop: &stop, document, tell: |_: &str| () };
            running.failed(turns, Error::Usage("gone".into())).unwrap();
            running.document.runs.len() - 1
        };
        let turns = [turn(1, 0), turn(1, 1), turn(2, 0)];
        assert_eq!(turns.map(|turn| missing(&[turn])), [1, 2, 2]);
        assert_eq!(missing(&[turns[0], turns[2]]), 3);
    }

    #[test]
    fn nonsense_is_refused() {
        let refused = |change: fn(&mut Plan), reason: &str| {
            let mut plan = plan();
            change(&mut plan);
            let error = plan.check().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        };
        refused(|plan| plan.tests.push("oltp_everything".into()), "use oltp_read_write");
        refused(|plan| plan.tests.push("oltp_delete".into()), "use oltp_write_only");
        refused(|plan| plan.threads = vec![0], "use 1 to 256");
        refused(|plan| plan.servers.clear(), "nothing to run");
        refused(|plan| plan.rounds = 0, "nothing to run");
        refused(|plan| plan.servers.push(plan.servers[0].clone()), "weir: named twice");
        refused(|plan| plan.threads.push(1), "1 thread: named twice");
        refused(|plan| plan.table_rows = 0, "at least one row");
        refused(|plan| plan.dropped_seconds = 2, "nothing is left");
        refused(|plan| plan.rate = Some(0), "use 1 or more");
        refused(|plan| plan.iops = Some(0), "use 1 or more");
        refused(|plan| plan.setup.command = "/nowhere/run".into(), "/nowhere/run is not there");
    }
}

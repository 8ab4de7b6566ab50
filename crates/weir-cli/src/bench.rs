//! `weir bench`: what its subcommands have in common.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use weir_bench::engine::{DiskChoice, FlushChoice, Limits};
use weir_bench::pinning::Pinning;
use weir_bench::quantity::{parse_bytes, parse_count};
use weir_bench::report::COLUMNS_NOTE;
use weir_bench::server::{ServerSetup, ServerSpec};
use weir_bench::{Durability, EngineKind, Error, Settings, Step};

use crate::{
    bench_compare, bench_experiment, bench_insert, bench_machine, bench_sysbench, bench_tpcc,
};

/// What `--steps` says about itself.
pub const STEPS_HELP: &str = "\
Steps, separated by commas; parameters follow after colons, as in l.i1:rows=2M:delete
  l.i0   load with the primary key only               rows= commit=
  l.x    create the three secondary indexes
  l.i1   inserts with all indexes, 50 per commit      rows= seconds= commit= delete rate=
  l.i2   the same, 5 per commit                       rows= seconds= commit= delete rate=
  load   load with all indexes from the start         rows= commit=
  update changes of an indexed column, one per commit rows= seconds= rate=
  scan   full scans: primary, each index, primary
  qr100  range queries beside 100 inserts/s           seconds= commit= delete
  qp100  primary key lookups beside 100 inserts/s     seconds= commit= delete
Rows are those of all clients together. A load has those of --rows where it doesn't say otherwise,
l.i1 half as many as were loaded, l.i2 a tenth, update as many; a load commits every 100 rows, and
queries take 10 seconds. Rates are those of one client, or a share of what the last step of the
kind reached as fast as it went: rate=75%. A second that misses its rate is not made up for later.
Otherwise than iibench's own, l.i1, l.i2 and queries delete nothing unless told to, delete in the
transaction that inserts, and query steps are short: seconds=1800 is more like it.";

/// What the columns of a table mean, for `--help`.
pub fn columns_help(columns: &[(&str, &str)]) -> String {
    let width = columns.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = columns.iter().map(|(name, meaning)| format!("\n  {name:width$}  {meaning}"));
    format!("Columns of the result:{}\n{COLUMNS_NOTE}", lines.collect::<String>())
}

#[derive(Subcommand)]
pub enum Bench {
    /// Run the Insert Benchmark on one engine, embedded or a server's.
    Insert(bench_insert::Insert),
    /// Run the Insert Benchmark on several engines, each in its own process, or servers.
    Compare(bench_compare::Compare),
    /// Run sysbench's tests on servers with different storage engines, one table.
    Sysbench(bench_sysbench::Sysbench),
    /// Run TPC-C on the embedded engine or on servers, one table.
    Tpcc(bench_tpcc::Tpcc),
    /// Run a study of page writing: several runs and a table.
    Experiment(bench_experiment::Run),
    /// Measure how even the machine itself is: no engine is more even than that.
    Machine(bench_machine::Machine),
}

impl Bench {
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Bench::Insert(insert) => insert.run(),
            Bench::Compare(compare) => compare.run(),
            Bench::Sysbench(sysbench) => sysbench.run(),
            Bench::Tpcc(tpcc) => tpcc.run(),
            Bench::Experiment(experiment) => experiment.run(),
            Bench::Machine(machine) => machine.run(),
        }
    }
}

/// What an engine gets.
#[derive(Args)]
pub struct LimitArgs {
    /// Memory for the engine
    #[arg(long, default_value = "1G", value_parser = parse_bytes)]
    memory: u64,

    /// Redo log capacity, where the engine has such a limit
    #[arg(long, default_value = "512M", value_parser = parse_bytes)]
    redo: u64,

    /// What commit promises: sync (survives the machine), write (survives the process), relaxed
    /// (up to a second may be lost)
    #[arg(long, default_value = "write")]
    durability: Durability,
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        Limits { memory_bytes: self.memory, redo_bytes: self.redo, durability: self.durability }
    }
}

/// What is the same for one engine and for several.
#[derive(Args)]
pub struct Common {
    /// Rows of the first load, all clients together
    #[arg(long, default_value = "4M", value_parser = parse_count)]
    pub rows: u64,

    #[command(flatten)]
    pub limits: LimitArgs,

    /// Delete the oldest row for each row inserted, in l.i1, l.i2, qr and qp
    #[arg(long)]
    pub delete: bool,

    /// Seed of rows and queries
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

impl Common {
    /// A run with everything else as it is by default.
    pub fn settings(&self, engine: EngineKind, clients: u32, steps: &[Step]) -> Settings {
        let Limits { memory_bytes, redo_bytes, durability } = self.limits.limits();
        Settings {
            engine,
            clients,
            rows: self.rows,
            steps: steps.to_vec(),
            memory_bytes,
            redo_bytes,
            durability,
            delete: self.delete,
            seed: self.seed,
            disk: DiskChoice::default(),
            status_listen: None,
            flush: FlushChoice::default(),
            server: None,
            binlog: false,
            pinned: false,
        }
    }
}

/// How private servers are started.
#[derive(Args)]
pub struct ServerArgs {
    /// Private servers have a binary log: rows, synced when commits are
    #[arg(long)]
    binlog: bool,

    /// Half of the processors are the private servers' alone, the others their clients': of two
    /// each side has one, however many clients there are. Without, chance decides how clients and
    /// servers share them, which can make twice the difference in short transactions
    #[arg(long)]
    pin: bool,

    /// The script that starts a private server, mariadb/run of Weir's repository
    #[arg(long, value_name = "FILE")]
    server_command: Option<PathBuf>,
}

impl ServerArgs {
    /// How these servers are started, and what any engine gets.
    pub fn setup(
        &self,
        servers: &[ServerSpec],
        limits: Limits,
        dir: Option<PathBuf>,
    ) -> Result<ServerSetup> {
        if let (true, Some(option)) = (servers.is_empty(), self.given()) {
            return Err(Error::Usage(format!("{option} needs --servers")).into());
        }
        let command = self.server_command.clone().unwrap_or_else(ServerSetup::default_command);
        let pinning = self.pin.then(Pinning::new).transpose()?;
        Ok(ServerSetup { command, limits, binlog: self.binlog, pinning, dir })
    }

    /// The first of these options that was given.
    fn given(&self) -> Option<&'static str> {
        let options = [
            ("--binlog", self.binlog),
            ("--pin", self.pin),
            ("--server-command", self.server_command.is_some()),
        ];
        options.into_iter().find_map(|(option, is_given)| is_given.then_some(option))
    }
}

/// Steps as one argument.
pub fn parse_steps(text: &str) -> Result<Vec<Step>, String> {
    text.split(',').map(|step| step.trim().parse()).collect()
}

/// Steps as one argument again.
pub fn format_steps(steps: &[Step]) -> String {
    steps.iter().map(Step::to_string).collect::<Vec<_>>().join(",")
}

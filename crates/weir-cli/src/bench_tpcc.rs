//! `weir bench tpcc`: TPC-C on the embedded engine, on private servers, or on a running one.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use weir_bench::engine::{DiskChoice, ServerChoice, Statements};
use weir_bench::engines::sql::target::split_password;
use weir_bench::files::write_json;
use weir_bench::phase::Progress;
use weir_bench::report::progress_line;
use weir_bench::server::ServerSpec;
use weir_bench::tpcc::random::Size;
use weir_bench::tpcc::{Listener, Plan, SHORTCUTS, Subject, report};

use crate::bench::{LimitArgs, ServerArgs, columns_help};
use crate::interrupt::{exit_code, stop_on_interrupt};
use crate::output::{ProgressLine, print, tell, tell_warnings};
use crate::place::{check_place, default_place};

#[derive(Args)]
#[command(after_help = format!("{SHORTCUTS}\n\n{}", columns_help(report::COLUMNS)))]
pub struct Tpcc {
    /// Warehouses; one is some 500,000 rows
    #[arg(long, default_value_t = 4)]
    warehouses: u32,

    /// Numbers of client threads, one run for each; clients neither think nor type
    #[arg(long, value_delimiter = ',', default_value = "2")]
    clients: Vec<u32>,

    /// Length of each run
    #[arg(long, default_value_t = 30)]
    seconds: u32,

    /// How long clients work before each run
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    warmup: u32,

    /// Private servers instead of the embedded engine, in order, each with the engine of its
    /// tables: weir, innodb or rocksdb, with settings of its own as in
    /// innodb:innodb-io-capacity=9000; figures are relative to the first
    #[arg(long, value_delimiter = ',', conflicts_with = "url")]
    servers: Vec<ServerSpec>,

    /// A running server instead: mysql://USER[:PASSWORD]@HOST[:PORT][/DATABASE]. Memory, redo log
    /// and durability are the server's
    #[arg(long, conflicts_with_all = ["memory", "redo", "durability", "dir"])]
    url: Option<String>,

    /// The running server's socket
    #[arg(long, value_name = "FILE", requires = "url")]
    socket: Option<PathBuf>,

    /// The running server's storage engine for the tables: weir, innodb, rocksdb, ...
    #[arg(long, value_name = "ENGINE", default_value = "weir", requires = "url")]
    table_engine: String,

    /// Keep the running server's tables afterwards
    #[arg(long, requires = "url")]
    keep: bool,

    /// How often: all engines in turn, each with new tables, then all again, backwards in every
    /// second round; the table then shows the run with the median rate
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// All servers at once, one of them at work while the others are stopped: each number of
    /// clients works on all of them, in all rounds, before the next, on the same tables
    #[arg(long, requires = "servers")]
    side_by_side: bool,

    #[command(flatten)]
    limits: LimitArgs,

    #[command(flatten)]
    server: ServerArgs,

    /// Seed of all random values
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// How the embedded engine reads and writes files: auto, io-uring or threads
    #[arg(long, default_value = "auto", conflicts_with_all = ["servers", "url"])]
    io: String,

    /// Device that the embedded engine is to pretend: fast (as it is), slow-ssd, sata-ssd,
    /// two-disks, or operations per second as in iops-3000
    #[arg(long, default_value = "fast", conflicts_with_all = ["servers", "url"])]
    device: String,

    /// Where the embedded engine tells its figures while it runs, for `weir top` and Prometheus: a
    /// port of the loopback interface, ADDRESS:PORT, or unix:FILE
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["servers", "url"])]
    status_listen: Option<String>,

    /// Directory in which the databases' directories are made
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Where the result goes, with every second; by default a new file in bench-results/
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// No progress line
    #[arg(long)]
    quiet: bool,
}

impl Tpcc {
    pub fn run(self) -> Result<ExitCode> {
        let path = self.json.clone().unwrap_or_else(|| default_place("tpcc", ".json"));
        let mut told = Told { line: ProgressLine::new(), quiet: self.quiet };
        let plan = self.plan()?;
        plan.check()?;
        check_place(&path)?;
        let stop = stop_on_interrupt()?;
        let document = plan.run(&stop, &mut told);
        told.line.end();
        let document = document?;
        // What was measured is shown, whatever becomes of the file.
        let mut text = report::summary(&document);
        if stop.load(Ordering::Relaxed) {
            text +=
                "\nInterrupted: the run under way is not whole, or left out, as later ones are.\n";
        }
        print(&format!("{text}\n"))?;
        write_json(&path, &document)?;
        let path = path.display();
        print(&format!("Every second of it: {path}\nAs a page: weir report {path}\n"))?;
        tell_warnings(&document.environment);
        let is_good = document.runs.iter().all(|run| run.failure.is_none());
        Ok(exit_code(&stop, is_good))
    }

    fn subjects(&mut self) -> Result<Vec<Subject>> {
        if let Some(url) = &self.url {
            let (url, password) = split_password(url)?;
            return Ok(vec![Subject::Running(ServerChoice {
                url,
                password,
                socket: self.socket.take(),
                table_engine: self.table_engine.clone(),
                existing: false,
                statements: Statements::Prepared,
                keep: self.keep,
            })]);
        }
        let servers = std::mem::take(&mut self.servers);
        Ok(match servers.is_empty() {
            true => vec![Subject::Embedded],
            false => servers.into_iter().map(Subject::Private).collect(),
        })
    }

    fn plan(mut self) -> Result<Plan> {
        let limits = self.limits.limits();
        let setup = self.server.setup(&self.servers, limits, self.dir.take())?;
        Ok(Plan {
            subjects: self.subjects()?,
            setup,
            size: Size::standard(self.warehouses),
            clients: self.clients,
            rounds: self.rounds,
            side_by_side: self.side_by_side,
            seconds: self.seconds,
            warmup_seconds: self.warmup,
            seed: self.seed,
            disk: DiskChoice { io: self.io, device: self.device, load_device: None },
            status_listen: self.status_listen,
        })
    }
}

/// What is told while it runs.
struct Told {
    line: ProgressLine,
    quiet: bool,
}

impl Listener for Told {
    fn progress(&mut self, progress: &Progress) {
        if !self.quiet {
            self.line.show(&progress.title, &progress_line(progress));
        }
    }

    fn line(&mut self, text: &str) {
        self.line.end();
        tell(text);
    }
}

//! `weir bench insert`: the Insert Benchmark on one engine.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use weir_bench::engine::{DiskChoice, FlushChoice, ServerChoice, Statements};
use weir_bench::engines::sql;
use weir_bench::{EngineKind, Settings, Step, report, run};

use crate::bench::{Common, STEPS_HELP, columns_help, parse_steps};
use crate::interrupt::{exit_code, stop_on_interrupt};
use crate::output::{ProgressLine, print, tell};
use crate::place::{Home, check_place, default_place};

/// Everything, in a minute or two on two cores.
const STEPS: &str = "l.i0,l.x,l.i1,l.i2,scan,qr1000,qp1000,qr100,qp100";

#[derive(Args)]
#[command(after_help = format!("{STEPS_HELP}\n\n{}", columns_help(report::COLUMNS)))]
pub struct Insert {
    /// The engine; others than weir and model need a build with their feature
    #[arg(long, default_value = "weir")]
    engine: EngineKind,

    /// Client threads, each with a table of its own
    #[arg(long, default_value_t = 2)]
    clients: u32,

    #[command(flatten)]
    common: Common,

    /// Steps to run, in order; see below
    #[arg(long, default_value = STEPS, value_parser = parse_steps, value_name = "STEPS")]
    steps: std::vec::Vec<Step>,

    /// A running server instead of an embedded engine:
    /// mysql://USER[:PASSWORD]@HOST[:PORT][/DATABASE]. Memory, redo log and durability are the
    /// server's
    #[arg(long, conflicts_with_all = [
        "engine", "memory", "redo", "durability", "dir", "io", "device", "status_listen",
        "load_device", "dirty_limit", "policy",
    ])]
    url: Option<String>,

    /// The server's socket
    #[arg(long, value_name = "FILE", requires = "url")]
    socket: Option<PathBuf>,

    /// The server's storage engine for the tables: weir, innodb, rocksdb, ...
    #[arg(long, value_name = "ENGINE", default_value = "weir", requires = "url")]
    table_engine: String,

    /// Use the server's tables purchases1, purchases2, ..., one for each client, empty and with
    /// whatever storage engine and partitions, instead of making them; they stay
    #[arg(long, requires = "url", conflicts_with = "table_engine")]
    existing_tables: bool,

    /// How statements are sent to a server: text, as the field's benchmark does, or prepared
    #[arg(long, default_value = "text", requires = "url")]
    statements: Statements,

    /// Directory of the database, new or empty; a temporary one by default
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Keep the database, or the server's tables, afterwards
    #[arg(long)]
    keep: bool,

    /// Where the result goes; by default a new file in bench-results/
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// How Weir reads and writes files: auto, io-uring or threads
    #[arg(long, default_value = "auto")]
    io: String,

    /// Device that Weir is to pretend: fast (as it is), slow-ssd, sata-ssd, two-disks,
    /// or operations per second as in iops-3000
    #[arg(long, default_value = "fast")]
    device: String,

    /// Where Weir tells its figures while it runs, for `weir top` and Prometheus: a port of the
    /// loopback interface, ADDRESS:PORT, or unix:FILE
    #[arg(long, value_name = "ADDRESS")]
    status_listen: Option<String>,

    /// Another device for the first step, as --device
    #[arg(long, value_name = "DEVICE")]
    load_device: Option<String>,

    /// Percent of Weir's frames that may be dirty
    #[arg(long, value_name = "PERCENT")]
    dirty_limit: Option<u32>,

    /// When Weir writes pages: governor, or to compare: at-deadline, fixed:PAGES,
    /// innodb:IO_CAPACITY/IO_CAPACITY_MAX, innodb-plain:IO_CAPACITY
    #[arg(long, default_value = "governor")]
    policy: String,

    /// No progress line
    #[arg(long)]
    quiet: bool,
}

impl Insert {
    pub fn run(self) -> Result<ExitCode> {
        let settings = self.settings()?;
        run::check(&settings)?;
        let home = Home::new(self.dir.as_deref(), self.keep && settings.server.is_none())?;
        let of = |name: &str| {
            let default = || default_place(format_args!("insert-{name}"), ".json");
            self.json.clone().unwrap_or_else(default)
        };
        check_place(&of(settings.engine.name()))?;
        let stop = stop_on_interrupt()?;
        let mut line = ProgressLine::new();
        let quiet = self.quiet;
        let result = run::run(&settings, home.path(), &stop, &mut |progress| {
            if !quiet {
                line.show(&progress.title, &report::progress_line(progress));
            }
        });
        line.end();
        let result = result?;
        if self.keep && settings.server.is_none() {
            tell(&format!("database kept in {}", home.path().display()));
        }
        home.remove()?;
        // What was measured is shown, whatever becomes of the file.
        print(&format!("{}\n", report::summary(&result)))?;
        let json = of(&result.engine.name);
        result.save(&json)?;
        let json = json.display();
        print(&format!("Every second of it: {json}\nAs a page: weir report {json}\n"))?;
        Ok(exit_code(&stop, true))
    }

    fn settings(&self) -> Result<Settings> {
        let server = self.server()?;
        let engine = if server.is_some() { EngineKind::Server } else { self.engine };
        Ok(Settings {
            disk: DiskChoice {
                io: self.io.clone(),
                device: self.device.clone(),
                load_device: self.load_device.clone(),
            },
            flush: FlushChoice {
                dirty_limit_percent: self.dirty_limit,
                policy: self.policy.clone(),
            },
            status_listen: self.status_listen.clone(),
            server,
            ..self.common.settings(engine, self.clients, &self.steps)
        })
    }

    fn server(&self) -> Result<Option<ServerChoice>> {
        let Some(url) = &self.url else { return Ok(None) };
        let (url, password) = sql::target::split_password(url)?;
        Ok(Some(ServerChoice {
            url,
            password,
            socket: self.socket.clone(),
            table_engine: self.table_engine.clone(),
            existing: self.existing_tables,
            statements: self.statements,
            keep: self.keep,
        }))
    }
}

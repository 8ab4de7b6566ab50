//! `weir bench sysbench`: sysbench's tests on servers with different storage engines.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use weir_bench::files::write_json;
use weir_bench::quantity::parse_count;
use weir_bench::server::ServerSpec;
use weir_bench::sysbench::{Plan, report};

use crate::bench::{LimitArgs, ServerArgs, columns_help};
use crate::interrupt::{exit_code, stop_on_interrupt};
use crate::output::{print, tell, tell_warnings};
use crate::place::{check_place, default_place};

#[derive(Args)]
#[command(after_help = columns_help(report::COLUMNS))]
pub struct Sysbench {
    /// Servers, in order, each with the engine of its tables: weir, innodb or rocksdb, with
    /// settings of its own as in innodb:innodb-io-capacity=9000; figures are relative to the first
    #[arg(long, value_delimiter = ',', default_value = "weir,innodb")]
    servers: Vec<ServerSpec>,

    /// Tests, in order: those of sysbench that run on one set of tables, without oltp_delete, which
    /// empties them. Rows are drawn evenly (--rand-type=uniform), not most from few rows as is
    /// sysbench's default
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "oltp_point_select,oltp_read_write,oltp_update_index,oltp_write_only"
    )]
    tests: Vec<String>,

    /// Numbers of threads; each test runs with each
    #[arg(long, value_delimiter = ',', default_value = "1,4,16,64")]
    threads: Vec<u32>,

    /// Tables
    #[arg(long, default_value_t = 4)]
    tables: u32,

    /// Rows of each table
    #[arg(long, default_value = "250k", value_parser = parse_count)]
    table_size: u64,

    /// How often: all servers in turn, each with new tables, then all again, backwards in every
    /// second round; the table then shows the run with the median rate
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    /// All servers at once, one of them at work while the others are stopped: each case runs on all
    /// of them, in all rounds, before the next, on the same tables. A machine that does more in one
    /// minute than in the next does it for all
    #[arg(long)]
    side_by_side: bool,

    /// Length of each run
    #[arg(long, default_value_t = 30)]
    seconds: u32,

    /// Seconds at the beginning of each run that don't count; a fifth by default
    #[arg(long, value_name = "SECONDS")]
    drop: Option<u32>,

    #[command(flatten)]
    limits: LimitArgs,

    #[command(flatten)]
    server: ServerArgs,

    /// Reads, and writes, per second that the server may do once the tables are filled, kept by the
    /// kernel's block I/O controller; needs root
    #[arg(long, value_name = "NUMBER")]
    iops: Option<u32>,

    /// Transactions per second that are asked for, at random moments, instead of as many as can be;
    /// a server that falls far behind fails the run
    #[arg(long, value_name = "NUMBER", value_parser = parse_count)]
    rate: Option<u64>,

    /// Directory in which the servers' directories are made
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Where the result goes, with every second; by default a new file in bench-results/
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Sysbench {
    pub fn run(self) -> Result<ExitCode> {
        let path = self.json.clone().unwrap_or_else(|| default_place("sysbench", ".json"));
        let plan = self.plan()?;
        plan.check()?;
        check_place(&path)?;
        let stop = stop_on_interrupt()?;
        let document = plan.run(&stop, tell)?;
        // What was measured is shown, whatever becomes of the file.
        print(&format!("{}\n", report::table(&document)))?;
        write_json(&path, &document)?;
        print(&format!("Every second of it: {}\n", path.display()))?;
        tell_warnings(&document.environment);
        let is_good = document.runs.iter().all(|run| run.failure.is_none());
        Ok(exit_code(&stop, is_good))
    }

    fn plan(self) -> Result<Plan> {
        Ok(Plan {
            setup: self.server.setup(&self.servers, self.limits.limits(), self.dir)?,
            servers: self.servers,
            tests: self.tests,
            threads: self.threads,
            tables: self.tables,
            table_rows: self.table_size,
            rounds: self.rounds,
            side_by_side: self.side_by_side,
            seconds: self.seconds,
            dropped_seconds: self.drop.unwrap_or(self.seconds / 5),
            iops: self.iops,
            rate: self.rate,
        })
    }
}

//! The `weir` command: one file per subcommand.
//!
//! Results go to standard output, progress and errors to standard error. Exit codes: 0 when all
//! went well, 1 when something failed, 2 when the command line makes no sense, 130 when an
//! interrupt ended it.

mod bench;
mod bench_compare;
mod bench_experiment;
mod bench_insert;
mod bench_machine;
mod bench_sysbench;
mod bench_tpcc;
mod check;
mod compact;
mod interrupt;
mod opening;
mod output;
mod place;
mod report;
mod sim;
mod sim_results;
mod top;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "weir", version, about = "Weir: a transactional storage engine")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run benchmarks.
    #[command(subcommand)]
    Bench(Box<bench::Bench>),
    /// Check the structure of a database.
    Check(check::Check),
    /// Make the files of a database shorter.
    Compact(compact::Compact),
    /// Make one HTML page of the results of benchmarks.
    Report(report::Report),
    /// Watch a running database in the terminal.
    Top(top::Top),
    /// Simulate page writing on models of devices and workloads.
    Sim(Box<sim::Sim>),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    interrupt::outlive_long_files();
    let done = match arguments.command {
        Command::Bench(bench) => bench.run(),
        Command::Check(check) => check.run(),
        Command::Compact(compact) => compact.run(),
        Command::Report(report) => report.run(),
        Command::Top(top) => top.run(),
        Command::Sim(sim) => sim.run(),
    };
    match done {
        Ok(code) => code,
        Err(error) => output::fail(&error),
    }
}

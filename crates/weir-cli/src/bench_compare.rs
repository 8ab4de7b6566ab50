//! `weir bench compare`: the Insert Benchmark on several engines or servers, one table.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use weir_bench::compare::{self, Plan, Subject};
use weir_bench::engine::Statements;
use weir_bench::server::ServerSpec;
use weir_bench::{EngineKind, Error, Step, run};

use crate::bench::{Common, STEPS_HELP, ServerArgs, columns_help, format_steps, parse_steps};
use crate::interrupt::{exit_code, stop_on_interrupt};
use crate::output::{print, tell};
use crate::place::check_place;

#[derive(Args)]
#[command(after_help = format!("{STEPS_HELP}\n\n{}", columns_help(compare::COLUMNS)))]
pub struct Compare {
    /// Engines, in order; figures are relative to the first. By default all of this build, but for
    /// weir-raw, which is Weir without columns, lmdb-writemap, which may be corrupt after a power
    /// cut, and model, which keeps nothing
    #[arg(long, value_delimiter = ',')]
    engines: Vec<EngineKind>,

    /// Servers instead of engines, in order, each with the engine of its tables: weir, innodb or
    /// rocksdb, with settings of its own as in innodb:innodb-io-capacity=9000
    #[arg(long, value_delimiter = ',', conflicts_with = "engines")]
    servers: Vec<ServerSpec>,

    #[command(flatten)]
    server: ServerArgs,

    /// How statements are sent to servers: text, as the field's benchmark does, or prepared
    #[arg(long, default_value = "text", requires = "servers", conflicts_with = "engines")]
    statements: Statements,

    /// A server does the first step once before it is measured, on tables that are dropped again:
    /// memory that the system, or its host, has yet to provide is there then
    #[arg(long, requires = "servers", conflicts_with = "engines")]
    warm_up: bool,

    /// Numbers of client threads; each engine runs once with each
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    clients: Vec<u32>,

    /// How often: all engines in turn, then all again, backwards in every second round; the table
    /// then shows the run with the median rate
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,

    #[command(flatten)]
    common: Common,

    /// Steps to run, in order; see below
    #[arg(
        long,
        default_value = "load,scan,qr1000,qp1000",
        value_parser = parse_steps,
        value_name = "STEPS"
    )]
    steps: std::vec::Vec<Step>,

    /// Directory in which the databases, or the servers' directories, are made, and removed, one
    /// after the other
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,

    /// Where the results go, one JSON file per engine and number of clients
    #[arg(long, value_name = "DIR", default_value = "bench-results/compare")]
    results: PathBuf,

    /// No progress lines
    #[arg(long)]
    quiet: bool,
}

impl Compare {
    pub fn run(self) -> Result<ExitCode> {
        let plan = self.plan()?;
        if let Some(hint) = self.hint(&plan.subjects) {
            tell(hint);
        }
        let stop = stop_on_interrupt()?;
        let outcomes = plan.run(&stop, tell)?;
        let mut text = compare::table(&outcomes);
        for (number, outcome) in outcomes.iter().filter(|o| o.run.is_ok()).enumerate() {
            let before = if number == 0 { "\nEvery second of it:\n" } else { "" };
            text += &format!("{before}  {}\n", outcome.document.display());
        }
        print(&text)?;
        let finished = compare::all_finished(&outcomes);
        Ok(exit_code(&stop, finished))
    }

    fn plan(&self) -> Result<Plan> {
        let subjects = self.subjects();
        if subjects.is_empty() {
            return Err(Error::Usage("no engine to compare".into()).into());
        }
        for subject in &subjects {
            // A server's limits must make as much sense as an embedded engine's.
            let engine = match subject {
                Subject::Embedded(kind) => *kind,
                Subject::Private(_) => EngineKind::Weir,
            };
            for &clients in &self.clients {
                run::check(&self.common.settings(engine, clients, &self.steps))?;
            }
        }
        let limits = self.common.limits.limits();
        let servers = self.server.setup(&self.servers, limits, self.dir.clone())?;
        if !self.servers.is_empty() {
            servers.check()?;
        }
        let plan = Plan {
            program: std::env::current_exe().context("finding this program")?,
            subjects,
            servers,
            statements: self.statements,
            clients: self.clients.clone(),
            rounds: self.rounds,
            steps: format_steps(&self.steps),
            warm_up: self.warm_up.then(|| format_steps(&self.steps[..1])),
            arguments: self.arguments(),
            dir: self.dir.clone(),
            results: self.results.clone(),
        };
        for document in plan.documents()? {
            check_place(&document)?;
        }
        Ok(plan)
    }

    fn subjects(&self) -> Vec<Subject> {
        if !self.servers.is_empty() {
            return self.servers.iter().cloned().map(Subject::Private).collect();
        }
        let all =
            || EngineKind::ALL.into_iter().filter(|kind| kind.is_compared_by_default()).collect();
        let engines = if self.engines.is_empty() { all() } else { self.engines.clone() };
        engines.into_iter().map(Subject::Embedded).collect()
    }

    /// What is to be said where nobody asked for a table of Weir alone.
    fn hint(&self, subjects: &[Subject]) -> Option<&'static str> {
        let is_chosen = !self.engines.is_empty() || !self.servers.is_empty();
        (!is_chosen && subjects.len() == 1).then_some(
            "note: this build has no other engine to compare with; scripts/peers installs some, \
             and `cargo run --release --features peers -- bench compare` has them; or compare \
             servers with --servers",
        )
    }

    fn arguments(&self) -> Vec<String> {
        let common = &self.common;
        let mut arguments: Vec<String> =
            [("--rows", common.rows.to_string()), ("--seed", common.seed.to_string())]
                .into_iter()
                .flat_map(|(name, value)| [name.to_string(), value])
                .collect();
        arguments.extend(common.delete.then(|| "--delete".to_string()));
        arguments.extend(self.quiet.then(|| "--quiet".to_string()));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        compare: Compare,
    }

    #[test]
    fn who_gets_weir_alone_without_having_asked_for_that_is_told_of_others() {
        let hint = |arguments: &[&str], subjects: &[EngineKind]| {
            let line = Line::parse_from([&["weir"], arguments].concat());
            let subjects: Vec<_> = subjects.iter().copied().map(Subject::Embedded).collect();
            line.compare.hint(&subjects).is_some()
        };
        let (one, two) = ([EngineKind::Weir], [EngineKind::Weir, EngineKind::Sqlite]);
        assert!(hint(&[], &one));
        assert!(!hint(&[], &two), "there is another");
        assert!(!hint(&["--engines", "weir"], &one), "it was asked for");
        assert!(!hint(&["--servers", "weir"], &one), "it was asked for");
    }
}

//! `weir bench compare`: the Insert Benchmark on several engines, one table.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use weir_bench::compare::{self, Comparison};
use weir_bench::engine::{DiskChoice, FlushChoice};
use weir_bench::{EngineKind, Error, Settings, Step, run};

use crate::bench::{Common, STEPS_HELP, format_steps, parse_steps};
use crate::output::{print, tell};

#[derive(Args)]
#[command(after_help = STEPS_HELP)]
pub struct Compare {
    /// Engines, in order; figures are relative to the first. By default all of this build
    #[arg(long, value_delimiter = ',')]
    engines: Vec<EngineKind>,

    /// Numbers of client threads; each engine runs once with each
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    clients: Vec<u32>,

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

    /// Directory in which the databases are made, and removed, one after the other
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
        let comparison = self.comparison()?;
        let outcomes = comparison.run(|engine, clients| {
            tell(&format!("--- {engine}, {clients} client{}", if clients == 1 { "" } else { "s" }));
        })?;
        let mut text = compare::table(&outcomes);
        text += "\nEvery second of it:\n";
        for document in compare::documents(&self.results, &outcomes) {
            text += &format!("  {}\n", document.display());
        }
        print(&text)?;
        let finished = compare::all_finished(&outcomes);
        Ok(if finished { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn comparison(&self) -> Result<Comparison> {
        let engines = self.engines();
        if engines.is_empty() {
            return Err(Error::Usage("no engine to compare".into()).into());
        }
        for (&engine, &clients) in
            engines.iter().flat_map(|e| self.clients.iter().map(move |c| (e, c)))
        {
            run::check(&self.settings(engine, clients))?;
        }
        Ok(Comparison {
            program: std::env::current_exe().context("finding this program")?,
            engines,
            clients: self.clients.clone(),
            arguments: self.arguments(),
            dir: self.dir.clone(),
            results: self.results.clone(),
        })
    }

    fn engines(&self) -> Vec<EngineKind> {
        if !self.engines.is_empty() {
            return self.engines.clone();
        }
        let real = |kind: &EngineKind| kind.is_built_in() && *kind != EngineKind::Model;
        EngineKind::ALL.into_iter().filter(real).collect()
    }

    fn settings(&self, engine: EngineKind, clients: u32) -> Settings {
        Settings {
            engine,
            clients,
            rows: self.common.rows,
            steps: self.steps.clone(),
            memory_bytes: self.common.memory,
            redo_bytes: self.common.redo,
            durability: self.common.durability,
            delete: self.common.delete,
            seed: self.common.seed,
            disk: DiskChoice::default(),
            status_listen: None,
            flush: FlushChoice::default(),
        }
    }

    fn arguments(&self) -> Vec<String> {
        let common = &self.common;
        let mut arguments: Vec<String> = [
            ("--rows", common.rows.to_string()),
            ("--memory", common.memory.to_string()),
            ("--redo", common.redo.to_string()),
            ("--durability", common.durability.to_string()),
            ("--seed", common.seed.to_string()),
            ("--steps", format_steps(&self.steps)),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_string(), value])
        .collect();
        arguments.extend(common.delete.then(|| "--delete".to_string()));
        arguments.extend(self.quiet.then(|| "--quiet".to_string()));
        arguments
    }
}

//! `weir check`: the structure of a database.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use weir::Options;

use crate::opening::open;
use crate::output;

#[derive(Args)]
pub struct Check {
    /// Directory of the database; nobody else may have it open
    dir: PathBuf,
    /// Memory to use
    #[arg(long, default_value = "256M", value_parser = weir_bench::quantity::parse_bytes)]
    memory: u64,
}

impl Check {
    pub fn run(self) -> Result<ExitCode> {
        let dir = self.dir.display();
        let options = Options::default().memory_bytes(self.memory).single_threaded();
        let db = open(&self.dir, "checking", options)?;
        let mut findings = String::new();
        let checked = db.check(&mut |finding| findings += &format!("{finding}\n"));
        // What was found before the check had to stop counts as well.
        output::print(&findings)?;
        let summary = checked.with_context(|| format!("checking {dir}"))?;
        output::print(&format!("{summary}\n"))?;
        Ok(if summary.findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

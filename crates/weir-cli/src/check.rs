//! `weir check`: the structure of a database.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Args;
use weir::{Database, Options};

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
        ensure!(self.dir.is_dir(), "checking {dir}: no such directory");
        let options = Options::default()
            .create(false)
            .memory_bytes(self.memory)
            .single_threaded()
            .on_progress(|p| {
                let mib = |bytes: u64| bytes >> 20;
                let of =
                    p.end.map_or(String::new(), |end| format!(" of {}", mib(end.0 - p.from.0)));
                output::tell(&format!("{}: {}{of} MiB of redo", p.phase, mib(p.at.0 - p.from.0)));
            });
        let db = Database::open(&self.dir, options).with_context(|| format!("opening {dir}"))?;
        let mut findings = String::new();
        let checked = db.check(&mut |finding| findings += &format!("{finding}\n"));
        // What was found before the check had to stop counts as well.
        output::print(&findings)?;
        let summary = checked.with_context(|| format!("checking {dir}"))?;
        output::print(&format!("{summary}\n"))?;
        Ok(if summary.findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

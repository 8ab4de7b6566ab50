//! `weir check`: the structure of a database.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use clap::Args;
use weir::{Database, Options, Progress};

use crate::output::{self, ProgressLine};

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
        let line = Arc::new(Mutex::new(ProgressLine::new()));
        let shown = Arc::clone(&line);
        let options = Options::default()
            .create(false)
            .memory_bytes(self.memory)
            .single_threaded()
            .on_progress(move |progress| {
                let mut line = shown.lock().expect("nobody panicked while showing");
                line.show(progress.phase, &text(&progress));
            });
        let opened = Database::open(&self.dir, options);
        line.lock().expect("nobody panicked while showing").end();
        let db = opened.with_context(|| format!("opening {dir}"))?;
        let mut findings = String::new();
        let checked = db.check(&mut |finding| findings += &format!("{finding}\n"));
        // What was found before the check had to stop counts as well.
        output::print(&findings)?;
        let summary = checked.with_context(|| format!("checking {dir}"))?;
        output::print(&format!("{summary}\n"))?;
        Ok(if summary.findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// How far recovery has come.
fn text(progress: &Progress) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let Progress { phase, from, at, end } = progress;
    let of = end.map_or(String::new(), |end| format!(" of {}", mib(end.0 - from.0)));
    format!("{phase}: {}{of} MiB of redo", mib(at.0 - from.0))
}

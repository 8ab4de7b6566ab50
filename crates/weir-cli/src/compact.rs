//! `weir compact`: a shorter data file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use weir::{Database, Options, Shutdown};
use weir_bench::quantity::{format_bytes, parse_bytes};

use crate::opening::open;
use crate::output::{self, ProgressLine};

#[derive(Args)]
pub struct Compact {
    /// Directory of the database; nobody else may have it open
    dir: PathBuf,
    /// Memory to use
    #[arg(long, default_value = "256M", value_parser = parse_bytes)]
    memory: u64,
}

impl Compact {
    pub fn run(self) -> Result<ExitCode> {
        let doing = || format!("compacting {}", self.dir.display());
        let db = self.open()?;
        let before = db.status().data_file_bytes;
        // What was deleted last may still be there; and what recovery has changed leaves holes once it is written.
        db.purge_all().with_context(doing)?;
        close(db).with_context(doing)?;
        let db = self.open()?;
        let mut line = ProgressLine::new();
        let compacted =
            db.compact(&mut |moved| line.show("compact", &format!("{moved} pages moved")));
        line.end();
        let done = compacted.with_context(doing)?;
        close(db).with_context(doing)?;
        output::print(&format!(
            "data file: {} before, {} now; {} pages were moved\n",
            format_bytes(before),
            format_bytes(done.bytes_after),
            done.pages_moved
        ))?;
        Ok(ExitCode::SUCCESS)
    }

    fn open(&self) -> Result<Database> {
        open(&self.dir, "compacting", Options::default().memory_bytes(self.memory))
    }
}

fn close(db: Database) -> weir::Result<()> {
    let mut line = ProgressLine::new();
    let mut left = |pages| line.show("close", &format!("close: {pages} pages to be written"));
    let closed = db.close(Shutdown::Clean, &mut left);
    line.end();
    closed
}

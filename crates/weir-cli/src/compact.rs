//! `weir compact`: a shorter data file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use weir::{Options, Shutdown};
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
        let dir = self.dir.display();
        let db = open(&self.dir, "compacting", Options::default().memory_bytes(self.memory))?;
        let doing = || format!("compacting {dir}");
        // What was deleted last may still be there.
        db.purge_all().with_context(doing)?;
        let mut line = ProgressLine::new();
        let compacted =
            db.compact(&mut |moved| line.show("compact", &format!("{moved} pages moved")));
        let done = compacted.inspect_err(|_| line.end()).with_context(doing)?;
        let mut left = |pages| line.show("close", &format!("close: {pages} pages to be written"));
        let closed = db.close(Shutdown::Clean, &mut left);
        line.end();
        closed.with_context(doing)?;
        output::print(&format!(
            "data file: {} before, {} now; {} pages were moved\n",
            format_bytes(done.bytes_before),
            format_bytes(done.bytes_after),
            done.pages_moved
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

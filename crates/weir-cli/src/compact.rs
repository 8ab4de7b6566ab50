//! `weir compact`: a shorter data file. Pages that have become half empty are filled, then holes
//! are.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use weir::{Database, Options, Shutdown};
use weir_bench::quantity::parse_bytes;

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

/// How often the file is gone through, at most.
const ROUNDS: usize = 8;

impl Compact {
    pub fn run(self) -> Result<ExitCode> {
        let doing = || format!("compacting {}", self.dir.display());
        // Before it is opened, which may make it longer; that there is no database, the open tells
        // better.
        let before = self.size();
        let db = self.open()?;
        let before = before?;
        // What was deleted last may still be there; and what recovery has changed leaves holes once
        // it is written.
        db.purge_all().with_context(doing)?;
        let Reorganized { pages_freed, are_all_whole } = reorganize(&db).with_context(doing)?;
        close(db).with_context(doing)?;
        let written = self.size()?;
        let (mut now, mut pages_moved) = (written, 0);
        for _ in 0..ROUNDS {
            pages_moved += self.round(pages_moved).with_context(doing)?;
            let last = std::mem::replace(&mut now, self.size()?);
            if now.file_bytes >= last.file_bytes && now.device_bytes >= last.device_bytes {
                break;
            }
        }
        let mut text = format!("data file before: {before}\n");
        if written.file_bytes > before.file_bytes {
            text += &format!("with what only the redo log had: {written}\n");
        }
        let done = format!("{pages_freed} pages were freed, {pages_moved} moved");
        output::print(&format!("{text}now: {now}; {done}\n"))?;
        Ok(if are_all_whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Compacts once, after `earlier` pages were moved; returns how many more were.
    fn round(&self, earlier: u64) -> Result<u64> {
        let db = self.open()?;
        let mut line = ProgressLine::new();
        let compacted = db.compact(&mut |moved| {
            line.show("compact", &format!("{} pages moved", earlier + moved))
        });
        line.end();
        let moved = compacted?.pages_moved;
        close(db)?;
        Ok(moved)
    }

    /// Without threads: what they write meanwhile makes the file longer again.
    fn open(&self) -> Result<Database> {
        let options = Options::default().memory_bytes(self.memory).single_threaded();
        open(&self.dir, "compacting", options)
    }

    /// That of the data file.
    fn size(&self) -> Result<Size> {
        let file = self.dir.join("data");
        let metadata = file.metadata().with_context(|| format!("reading {}", file.display()))?;
        Ok(Size { file_bytes: metadata.len(), device_bytes: metadata.blocks() * 512 })
    }
}

/// What filling the pages of all tables came to.
struct Reorganized {
    pages_freed: u64,
    are_all_whole: bool,
}

/// Fills the pages of all tables; of one with damaged pages some stay as they are.
fn reorganize(db: &Database) -> weir::Result<Reorganized> {
    let mut line = ProgressLine::new();
    let mut all = Reorganized { pages_freed: 0, are_all_whole: true };
    for name in db.table_names() {
        line.show("compact", &format!("{} pages freed; table {name}", all.pages_freed));
        let Some(table) = db.table(&name) else { continue };
        match db.reorganize_table(&table) {
            Err(error) if error.is_damaged_page() => {
                line.end();
                output::tell(&format!(
                    "table {name} is damaged (`weir check` tells more): {error}"
                ));
                all.are_all_whole = false;
            }
            reorganized => all.pages_freed += reorganized?.freed_pages,
        }
    }
    line.end();
    Ok(all)
}

/// How long a file is, and what it takes of the device: less, where it has holes.
#[derive(Clone, Copy)]
struct Size {
    file_bytes: u64,
    device_bytes: u64,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes| bytes as f64 / f64::from(1 << 20);
        let (long, taken) = (mib(self.file_bytes), mib(self.device_bytes));
        write!(f, "{long:.1} MiB long, {taken:.1} MiB on the device")
    }
}

fn close(db: Database) -> weir::Result<()> {
    let mut line = ProgressLine::new();
    let mut left = |pages| line.show("close", &format!("close: {pages} pages to be written"));
    let closed = db.close(Shutdown::Clean, &mut left);
    line.end();
    closed
}

//! `weir check`: the structure of a database.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use weir::{Database, Options};

use crate::opening::open;
use crate::output::{self, ProgressLine};

#[derive(Args)]
pub struct Check {
    /// Directory of the database; nobody else may have it open, but for others who only read it
    dir: PathBuf,
    /// Memory to use
    #[arg(long, default_value = "256M", value_parser = weir_bench::quantity::parse_bytes)]
    memory: u64,
    /// Empties pages that are damaged and that a recovery needs, for good: without this the
    /// database isn't opened
    #[arg(long)]
    give_up_damaged: bool,
    /// Changes nothing in the directory: what a recovery writes is kept in memory, beyond --memory,
    /// and so are damaged pages that are given up
    #[arg(long)]
    read_only: bool,
}

impl Check {
    pub fn run(self) -> Result<ExitCode> {
        let dir = self.dir.display();
        let options = Options::default().memory_bytes(self.memory).single_threaded();
        let options = options.give_up_damaged(self.give_up_damaged).read_only(self.read_only);
        let db = open(&self.dir, "checking", options)?;
        if self.give_up_damaged {
            let status = db.status();
            output::print(&format!(
                "damaged pages given up: {}; transactions left half done: {}\n",
                status.recovery_pages_given_up, status.recovery_transactions_half_done
            ))?;
        }
        let mut findings = String::new();
        let checked = watched(&db, || db.check(&mut |finding| findings += &format!("{finding}\n")));
        // What was found before the check had to stop counts as well.
        output::print(&findings)?;
        let summary = checked.with_context(|| format!("checking {dir}"))?;
        output::print(&format!("{summary}\n"))?;
        if summary.uncompared_indexes > 0 {
            output::print(&format!(
                "{} indexes were not compared with rows: only the program that wrote these can read them \
                 (in MariaDB, CHECK TABLE compares them), or there is other damage\n",
                summary.uncompared_indexes
            ))?;
        }
        Ok(if summary.findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Does `check`, and tells every second how much it has read.
fn watched<T>(db: &Database, check: impl FnOnce() -> T) -> T {
    let (began, ended) = (Instant::now(), AtomicBool::new(false));
    let before = db.status().disk.read_bytes;
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut line = ProgressLine::new();
            loop {
                let (seconds, bytes) =
                    (began.elapsed().as_secs(), db.status().disk.read_bytes - before);
                line.show("check", &format!("check: {seconds} s, {} MiB read", bytes >> 20));
                if ended.load(Ordering::Acquire) {
                    break;
                }
                thread::park_timeout(Duration::from_secs(1));
            }
            line.end();
        });
        let checked = check();
        ended.store(true, Ordering::Release);
        watch.thread().unpark();
        checked
    })
}

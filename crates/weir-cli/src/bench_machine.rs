//! `weir bench machine`: how even the machine is by itself.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use weir_bench::machine::Load;
use weir_bench::percentile::rate_99;

use crate::bench_insert::{exit_code, stop_on_interrupt};
use crate::output::print;

/// What each thread's block fits into, and its size in bytes.
const BLOCKS: [(&str, u64); 2] = [("a core's cache", 256 << 10), ("memory alone", 256 << 20)];

#[derive(Args)]
pub struct Machine {
    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,

    /// Seconds with each size of block
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,
}

impl Machine {
    pub fn run(self) -> Result<ExitCode> {
        let stop = stop_on_interrupt()?;
        print("random changes of what fits into  M/s    p1/av\n")?;
        for (what, block_bytes) in BLOCKS {
            let load = Load { threads: self.threads, block_bytes, seconds: self.seconds };
            let rates = load.run(&stop);
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            let slow = rate_99(&rates).unwrap_or(mean);
            print(&format!("{what:32}  {:5.1}  {:5.2}\n", mean / 1e6, slow / mean))?;
        }
        Ok(exit_code(&stop, true))
    }
}

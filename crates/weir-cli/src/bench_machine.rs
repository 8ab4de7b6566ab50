//! `weir bench machine`: how even the machine is by itself.

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use anyhow::Result;
use clap::Args;
use weir_bench::Error;
use weir_bench::environment::Environment;
use weir_bench::machine::Load;
use weir_bench::percentile::rate_99;
use weir_bench::quantity::format_bytes;

use crate::interrupt::{exit_code, stop_on_interrupt};
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
        self.check()?;
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

    /// The largest blocks must fit into memory, beside what is there.
    fn check(&self) -> Result<()> {
        let memory = Environment::look(None).memory_bytes;
        let (_, block_bytes) = BLOCKS[BLOCKS.len() - 1];
        let most = memory / 2 / block_bytes;
        if memory > 0 && u64::from(self.threads) > most {
            let message = format!(
                "{} threads have blocks of {} each: on this machine at most {most} go into half of the memory",
                self.threads,
                format_bytes(block_bytes)
            );
            return Err(Error::Usage(message).into());
        }
        Ok(())
    }
}

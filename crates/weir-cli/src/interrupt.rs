//! Interrupts, and what the program says of itself when it ends.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::output::tell;

/// The first interrupt ends the run at once but in order, with the results so far; the second kills.
pub fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        tell("\nending; once more to end at once and leave the files behind");
    })
    .context("installing the interrupt handler")?;
    Ok(stop)
}

/// What the program says of itself when it ends.
pub fn exit_code(stop: &AtomicBool, is_good: bool) -> ExitCode {
    match (stop.load(Ordering::Relaxed), is_good) {
        // As a shell tells of a program that an interrupt ended.
        (true, _) => ExitCode::from(130),
        (false, true) => ExitCode::SUCCESS,
        (false, false) => ExitCode::FAILURE,
    }
}

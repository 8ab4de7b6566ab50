//! Interrupts, and what the program says of itself when it ends.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::output::tell;

/// The first interrupt ends the run at once but in order, with the results so far; the second
/// kills.
pub fn stop_on_interrupt() -> Result<Arc<AtomicBool>> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).context("listening for interrupts")?;
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    thread::spawn(move || {
        for signal in &mut signals {
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(130);
            }
            // The others don't come from a keyboard: a comparison passes its interrupt on as one of
            // them.
            if signal == SIGINT {
                tell("\nending; once more to end at once and leave the files behind");
            }
        }
    });
    Ok(stop)
}

/// A file that would be longer than may be (`ulimit -f`) is an error of its write, not the
/// program's end.
pub fn outlive_long_files() {
    // Without it the signal ends the program as it would have.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
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

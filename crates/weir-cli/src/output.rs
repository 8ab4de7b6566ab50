//! Standard output and standard error, either of which may be closed by whoever reads them.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};

/// Prints `text` to standard output. A reader that went away is no error.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(error).context("writing to standard output")
        }
        _ => Ok(()),
    }
}

/// Says something on standard error; where that is closed, nobody wants to know.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Reports an error with its causes; the exit code tells a senseless request from a failure.
pub fn fail(error: &anyhow::Error) -> ExitCode {
    let mut text = named(&error.to_string());
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // Some errors already end with their cause.
        if !text.ends_with(&cause) {
            text += &format!("\n  because: {cause}");
        }
    }
    tell(&text);
    use weir_bench::Error::{NoRun, Usage};
    let is_usage = matches!(error.downcast_ref(), Some(Usage(_) | NoRun { .. }))
        || matches!(error.downcast_ref(), Some(weir::Error::Options { .. }));
    ExitCode::from(if is_usage { 2 } else { 1 })
}

/// An error under the program's name, which those of the engine of this name begin with already.
fn named(error: &str) -> String {
    format!("weir: {}", error.strip_prefix("weir: ").unwrap_or(error))
}

/// A line on standard error that replaces itself on a terminal; elsewhere one line every ten times.
pub struct ProgressLine {
    terminal: bool,
    shown: bool,
    title: String,
    calls: u64,
}

impl ProgressLine {
    /// Nothing shown yet.
    pub fn new() -> Self {
        ProgressLine {
            terminal: io::stderr().is_terminal(),
            shown: false,
            title: String::new(),
            calls: 0,
        }
    }

    /// Shows `text`, which belongs to the step `title`.
    pub fn show(&mut self, title: &str, text: &str) {
        let mut err = io::stderr().lock();
        let next = title != self.title;
        self.calls = if next { 0 } else { self.calls + 1 };
        if next {
            self.title = title.to_string();
        }
        let _ = if self.terminal {
            let line_break = if next && self.shown { "\n" } else { "" };
            write!(err, "{line_break}\r\x1b[K{text}")
        } else if self.calls.is_multiple_of(10) {
            writeln!(err, "{text}")
        } else {
            Ok(())
        };
        let _ = err.flush();
        self.shown = true;
    }

    /// Ends the line.
    pub fn end(&mut self) {
        if self.terminal && self.shown {
            tell("");
        }
        self.shown = false;
    }
}

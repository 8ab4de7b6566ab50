//! Databases that are there already, opened and recovered, with progress on standard error.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Result, ensure};
use weir::{Database, DiskError, Options, Progress};

use crate::output::ProgressLine;

/// Opens the database in `dir`, which is needed for `doing`, and waits until all of its log is
/// applied.
pub fn open(dir: &Path, doing: &str, options: Options) -> Result<Database> {
    let what = if dir.exists() { "not a directory" } else { "no such directory" };
    ensure!(dir.is_dir(), "{doing} {}: {what}", dir.display());
    let line = Arc::new(Mutex::new(ProgressLine::new()));
    let shown = Arc::clone(&line);
    let options = options.create(false).on_progress(move |progress| {
        let mut line = shown.lock().expect("nobody panicked while showing");
        line.show(progress.phase, &text(&progress));
    });
    let opened = Database::open(dir, options);
    let opened = opened.and_then(|db| db.finish_recovery().map(|()| db));
    line.lock().expect("nobody panicked while showing").end();
    opened.map_err(|error| {
        let hint = match &error {
            _ if error.is_damaged_page() => {
                " (where the file can't be brought back: `weir check --give-up-damaged`)"
            }
            weir::Error::Storage(fault) if fault.disk().is_some_and(is_denied) => {
                " (`weir check --read-only` needs no right to write)"
            }
            _ => "",
        };
        anyhow::Error::new(error).context(format!("opening {}{hint}", dir.display()))
    })
}

fn is_denied(error: &DiskError) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// How far recovery has come.
fn text(progress: &Progress) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let Progress { phase, from, at, end } = progress;
    let of = end.map_or(String::new(), |end| format!(" of {}", mib(end.0 - from.0)));
    format!("{phase}: {}{of} MiB of redo", mib(at.0 - from.0))
}

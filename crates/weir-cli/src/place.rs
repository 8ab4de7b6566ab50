//! Places on disk: where results go, where a database lives for as long as it is needed.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use weir_bench::{Error, environment};

use crate::output::tell;

/// Whether the result can be put there: to be told before a long run, not after it. Leaves nothing behind:
/// the run may come to nothing.
pub fn check_place(file: &Path) -> Result<()> {
    let what = || format!("preparing the result's file {}", file.display());
    let missing = file.parent().map_or(Vec::new(), missing);
    if let Some(dir) = file.parent() {
        fs::create_dir_all(dir).with_context(what)?;
    }
    let existed = file.exists();
    fs::OpenOptions::new().append(true).create(true).open(file).with_context(what)?;
    if !existed {
        fs::remove_file(file).with_context(what)?;
    }
    for dir in missing {
        fs::remove_dir(dir).with_context(what)?;
    }
    Ok(())
}

/// Where a result goes when nobody says: in a directory of results, under the time.
pub fn default_place(of: impl Display, ending: &str) -> PathBuf {
    let time = environment::utc(SystemTime::now()).replace([':', '-'], "");
    PathBuf::from(format!("bench-results/{of}-{time}{ending}"))
}

/// What has to be made so that `dir` is there, the deepest first.
fn missing(dir: &Path) -> Vec<PathBuf> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    dir.ancestors().take_while(is_missing).map(Path::to_path_buf).collect()
}

/// The directory of the database, removed when it is no longer needed, also after an error.
pub struct Home {
    path: PathBuf,
    remove: bool,
    /// The directory and those above it, as far as they were made for it, the deepest first.
    made: Vec<PathBuf>,
}

impl Home {
    pub fn new(dir: Option<&Path>, keep: bool) -> Result<Self> {
        let Some(dir) = dir else {
            let temporary = tempfile::Builder::new().prefix("weir-bench-").tempdir();
            let path = temporary.context("creating a temporary directory")?.keep();
            return Ok(Home { made: vec![path.clone()], path, remove: !keep });
        };
        let what = || format!("preparing {}", dir.display());
        let made = missing(dir);
        if !made.is_empty() {
            fs::create_dir_all(dir).with_context(what)?;
        } else if fs::read_dir(dir).with_context(what)?.next().is_some() {
            let message = format!("{} is not empty: use a new or empty directory", dir.display());
            return Err(Error::Usage(message).into());
        }
        Ok(Home { path: dir.to_path_buf(), remove: !keep, made })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn remove(mut self) -> Result<()> {
        self.remove_now().with_context(|| format!("removing {}", self.path.display()))
    }

    fn remove_now(&mut self) -> std::io::Result<()> {
        if !std::mem::replace(&mut self.remove, false) {
            return Ok(());
        }
        if let Some((dir, above)) = self.made.split_first() {
            fs::remove_dir_all(dir)?;
            // Somebody else may use those above by now.
            above.iter().take_while(|dir| fs::remove_dir(dir).is_ok()).for_each(drop);
            return Ok(());
        }
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(error) = self.remove_now() {
            tell(&format!("weir: removing {}: {error}", self.path.display()));
        }
    }
}

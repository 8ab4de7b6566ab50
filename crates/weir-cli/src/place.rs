//! Places on disk: where results go, where a database lives for as long as it is needed.

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use weir_bench::files::MadeDir;
use weir_bench::{Error, environment};

use crate::output::tell;

/// Whether the result can be put there: to be told before a long run, not after it. Leaves nothing
/// behind: the run may come to nothing.
pub fn check_place(file: &Path) -> Result<()> {
    let what = || format!("preparing the result's file {}", file.display());
    let _dir = file.parent().map(MadeDir::new).transpose().with_context(what)?;
    let existed = file.exists();
    fs::OpenOptions::new().append(true).create(true).open(file).with_context(what)?;
    if !existed {
        fs::remove_file(file).with_context(what)?;
    }
    Ok(())
}

/// Where a result goes when nobody says: in a directory of results, under the time.
pub fn default_place(of: impl Display, ending: &str) -> PathBuf {
    let time = environment::utc(SystemTime::now()).replace([':', '-'], "");
    PathBuf::from(format!("bench-results/{of}-{time}{ending}"))
}

/// A directory that is made, or has nothing in it.
fn empty_dir(dir: &Path) -> Result<MadeDir> {
    let what = || format!("preparing {}", dir.display());
    let made = MadeDir::new(dir).with_context(what)?;
    if !made.is_new() && fs::read_dir(dir).with_context(what)?.next().is_some() {
        let message = format!("{} is not empty: use a new or empty directory", dir.display());
        return Err(Error::Usage(message).into());
    }
    Ok(made)
}

/// The directory of a database, removed when it is no longer needed, also after an error.
pub struct Home {
    dir: MadeDir,
    remove: bool,
}

impl Home {
    pub fn new(dir: Option<&Path>, keep: bool) -> Result<Self> {
        let dir = match dir {
            Some(dir) => empty_dir(dir)?,
            None => MadeDir::temporary("weir-bench-").context("creating a temporary directory")?,
        };
        Ok(Home { dir: if keep { dir.keep() } else { dir }, remove: !keep })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn remove(mut self) -> Result<()> {
        self.empty().with_context(|| format!("removing {}", self.path().display()))
    }

    /// Removes what is in the directory; that goes by itself if it was made.
    fn empty(&mut self) -> std::io::Result<()> {
        if !std::mem::replace(&mut self.remove, false) {
            return Ok(());
        }
        for entry in fs::read_dir(self.path())? {
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
        if let Err(error) = self.empty() {
            tell(&format!("weir: removing {}: {error}", self.path().display()));
        }
    }
}

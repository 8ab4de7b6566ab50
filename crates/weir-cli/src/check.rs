//! `weir check`: the structure of a database.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

#[derive(Args)]
pub struct Check {
    /// Directory of the database
    dir: PathBuf,
}

impl Check {
    pub fn run(self) -> Result<ExitCode> {
        let dir = self.dir.display();
        std::fs::read_dir(&self.dir).with_context(|| format!("checking {dir}"))?;
        bail!("checking {dir}: this build has no engine yet");
    }
}

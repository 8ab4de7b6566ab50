//! Experiments on page writing: the studies that started it, each a list of runs and a table.
//!
//! | experiment        | question                                                                       |
//! |-------------------|--------------------------------------------------------------------------------|
//! | `redo-size`       | what a larger redo log buys, cached and not, on a fast and a slow device       |
//! | `dirty-limit`     | whether the limit of dirty pages is kept                                       |
//! | `nothing-to-tune` | what policies with settings reach, and which settings they need for it         |
//! | `decay`           | whether throughput falls as a table grows                                      |
//! | `wave`            | whether updates of cached data come evenly through a small log and device      |
//!
//! A [`Case`] is one run of the benchmark ([`crate::run`]); what the table says of it are its
//! [`Facts`]. Sizes follow from `scale`: at 1 an experiment takes a few minutes, everything else is
//! in proportion.

mod cases;
mod facts;
mod slope;
mod table;

pub use cases::{Case, cases};
pub use facts::Facts;
pub use slope::{Slope, Slopes};
pub use table::{legend, tables};

use crate::result::Run;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Share of a step's seconds at its beginning that the facts of further steps leave out.
const FIRST_LAPS: f64 = 0.2;

/// An experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Experiment {
    /// What a larger redo log buys.
    RedoSize,
    /// Whether the dirty limit is kept.
    DirtyLimit,
    /// What other policies need for what they reach.
    NothingToTune,
    /// Whether throughput falls as a table grows.
    Decay,
    /// Whether updates come evenly.
    Wave,
}

impl Experiment {
    /// All of them.
    pub const ALL: [Experiment; 5] = [
        Experiment::RedoSize,
        Experiment::DirtyLimit,
        Experiment::NothingToTune,
        Experiment::Decay,
        Experiment::Wave,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::RedoSize => "redo-size",
            Experiment::DirtyLimit => "dirty-limit",
            Experiment::NothingToTune => "nothing-to-tune",
            Experiment::Decay => "decay",
            Experiment::Wave => "wave",
        }
    }
}

impl fmt::Display for Experiment {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Experiment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Experiment::ALL.into_iter().find(|e| e.name() == text).ok_or_else(|| {
            let names = Experiment::ALL.map(Experiment::name).join(", ");
            format!("`{text}` is no experiment; use {names}")
        })
    }
}

/// What is left behind beside the runs: one document.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The experiment.
    pub experiment: Experiment,
    /// Its scale.
    pub scale: f64,
    /// Each case.
    pub cases: Vec<CaseReport>,
}

/// A case and what it showed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaseReport {
    /// The case.
    pub label: String,
    /// Name of the file with every second of it.
    pub file: String,
    /// What it showed.
    pub facts: Facts,
    /// What its step in which the data has its size showed, if there is one.
    #[serde(default)]
    pub steady: Option<Facts>,
    /// What its step at a given rate showed, if there is one.
    #[serde(default)]
    pub at_rate: Option<Facts>,
    /// The same of inserts, each with a delete.
    #[serde(default)]
    pub churn: Option<Facts>,
}

impl CaseReport {
    /// Of `case`, which was `run`, with every second in `file`. `None` if its steps weren't reached
    /// or took no second.
    pub fn of(case: &Case, run: &Run, file: String) -> Option<CaseReport> {
        let facts = Facts::of(run.steps.get(case.step)?, case.skip)?;
        // In the first laps of the log, pages go that the step before has changed.
        let of = |step: Option<usize>| Facts::of(run.steps.get(step?)?, FIRST_LAPS);
        let (steady, at_rate, churn) = (of(case.steady), of(case.at_rate), of(case.churn));
        Some(CaseReport { label: case.label.clone(), file, facts, steady, at_rate, churn })
    }
}

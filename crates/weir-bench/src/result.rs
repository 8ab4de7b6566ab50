//! What a run leaves behind: one JSON document with everything that was measured.
//!
//! Units are in the names; what is not named otherwise is a count. The document's [`FORMAT`]
//! changes when a field changes its meaning or goes away, not when one is added.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::accounting::Usage;
use crate::engine::{DiskChoice, Durability, EngineInfo, EngineKind, FlushChoice, ServerChoice};
use crate::environment::Environment;
use crate::error::{Error, Result};
use crate::files::write_json;
use crate::quantity::counted;
use crate::series::{Latency, Series};
use crate::step::Step;
use crate::stored::Stored;

/// Version of the document.
pub const FORMAT: u32 = 1;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The engine.
    pub engine: EngineKind,
    /// Client threads, each with a table of its own.
    pub clients: u32,
    /// Rows of the first load, all tables together.
    pub rows: u64,
    /// The steps.
    pub steps: Vec<Step>,
    /// Memory for the engine.
    pub memory_bytes: u64,
    /// Redo log, where the engine has such a limit.
    pub redo_bytes: u64,
    /// What commit promises.
    pub durability: Durability,
    /// Whether inserts delete the oldest row, where the step doesn't say otherwise.
    pub delete: bool,
    /// Seed of the rows and queries.
    pub seed: u64,
    /// How Weir reads and writes files, and what device it is to pretend.
    #[serde(default)]
    pub disk: DiskChoice,
    /// Where Weir tells its figures while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_listen: Option<String>,
    /// When Weir writes pages.
    #[serde(default)]
    pub flush: FlushChoice,
    /// The server, where the engine is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerChoice>,
    /// Whether it was started for this, with a binary log.
    #[serde(default)]
    pub binlog: bool,
    /// Whether it was started for this, and it and its clients had processors of their own.
    #[serde(default)]
    pub pinned: bool,
}

/// One run: one engine, several steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// What was asked for.
    pub settings: Settings,
    /// Where it ran.
    pub environment: Environment,
    /// What ran.
    pub engine: EngineInfo,
    /// What each step measured, in order.
    pub steps: Vec<StepResult>,
    /// How long it took to close the database.
    pub close_seconds: f64,
    /// Whether it was ended before all steps were done.
    pub interrupted: bool,
}

/// What one step measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepResult {
    /// The step as it was asked for.
    pub step: Step,
    /// Its name in reports.
    pub name: String,
    /// Inserts: also the background inserts of queries, and for `l.x` the rows indexed.
    pub inserts: Option<Throughput>,
    /// Rows deleted.
    pub deletes: u64,
    /// Queries.
    pub queries: Option<Queries>,
    /// The rate asked of inserts, updates or the background inserts, all clients together, and how
    /// it went.
    pub background: Option<Background>,
    /// Full scans.
    pub scans: Vec<ScanResult>,
    /// Time and resources; for scans their sum.
    pub measured: Measured,
    /// Every second; for scans see there.
    pub series: Vec<Second>,
    /// Seconds of the series in which all clients were at work from beginning to end; beside
    /// queries that of those who ask.
    #[serde(default)]
    pub whole_seconds: usize,
}

/// Rate and latency of inserts or queries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Throughput {
    /// Rows or queries.
    pub total: u64,
    /// Mean per second.
    pub rate_mean: f64,
    /// The rate that 99 % of the seconds reach.
    pub rate_99: Option<f64>,
    /// Of commits or queries.
    pub latency: Latency,
}

/// What queries did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Queries {
    /// Rate and latency.
    #[serde(flatten)]
    pub throughput: Throughput,
    /// Rows or entries read.
    pub rows: u64,
    /// Lookups of rows that had been deleted meanwhile.
    pub missed: u64,
    /// Processor time of the query threads alone, inside the engine, microseconds.
    pub thread_cpu_us: u64,
}

/// Rate-limited inserts or updates, beside queries or alone.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Background {
    /// Inserts per second that were asked for.
    pub rate_asked: f64,
    /// Inserts per second that were done.
    pub rate_done: f64,
    /// Whether at least 95 % of the asked rate was done.
    pub held: bool,
    /// Commits left out because an earlier one was still running.
    pub commits_lost: u64,
}

impl fmt::Display for Background {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Background { rate_asked, rate_done, held, commits_lost } = self;
        let only = if *held { "" } else { "only " };
        write!(f, "{only}{rate_done:.0} of the {rate_asked:.0} rows per second asked for")?;
        if *commits_lost > 0 {
            write!(f, ", {} left out", counted(*commits_lost, "commit"))?;
        }
        Ok(())
    }
}

/// The part of the asked rate that counts as having held it.
const HELD: f64 = 0.95;

impl Background {
    /// Of inserts that were asked for at a rate, for `time`, in a step that took `took`: less after
    /// an interrupt. That inserts end later counts; that a query does is no fault of theirs.
    pub fn of(
        inserts: &Series,
        rate_asked: f64,
        time: Duration,
        took: Duration,
        commits_lost: u64,
    ) -> Self {
        let done = inserts.done() as f64;
        // The last commit has its turn to the end of it, though it may be done sooner.
        let turns = done / rate_asked;
        let seconds = time.min(took).max(inserts.last_end).as_secs_f64().max(turns);
        let rate_done = done / seconds.max(1e-9);
        Background { rate_asked, rate_done, held: rate_done >= HELD * rate_asked, commits_lost }
    }
}

/// One full scan of an index, by all clients at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScanResult {
    /// The index's name.
    pub index: String,
    /// Entries read.
    pub rows: u64,
    /// Time and resources.
    pub measured: Measured,
    /// Every second.
    pub series: Vec<Second>,
}

/// Time and resources that something took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// From the common start to the end of the last client.
    pub seconds: f64,
    /// Of the engine's process; processor time is the clients' as well.
    pub usage: Usage,
    /// Reads of the device, where the engine counts them itself.
    pub device_reads: Option<u64>,
    /// The part of the processor time that went into making rows and keys, and into this
    /// program's own sampling; the rest is the engine's. With a server: all that this program took.
    pub client_cpu_us: u64,
    /// Largest resident memory.
    pub resident_bytes_max: u64,
    /// Allocated space of the database's files at the end.
    pub size_bytes: u64,
    /// Bytes that were changed and not yet written at the end, where the engine tells: the device's
    /// share in them comes later, and isn't in `usage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unwritten_bytes: Option<u64>,
    /// Whether nobody could look at the engine's process: what it used isn't known then, and 0
    /// here.
    #[serde(default, skip_serializing_if = "is_false")]
    pub unseen: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Measured {
    /// Device reads: the engine's count, or else what the process's accounting tells.
    pub fn reads(&self) -> u64 {
        self.device_reads.unwrap_or_else(|| self.usage.reads())
    }

    /// Processor time of the engine: its threads, and clients' threads while they are inside it.
    pub fn engine_cpu_us(&self) -> u64 {
        self.usage.cpu_us.saturating_sub(self.client_cpu_us)
    }
}

/// A sample of a shorter time than this gives no rates: one that makes up for a late one is of the
/// few microseconds since that.
pub const SAMPLE_SECONDS_MIN: f64 = 0.2;

/// One second of a step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the step's start; the next field's figures belong to the second that follows.
    pub second: u32,
    /// Rows inserted.
    pub inserts: u64,
    /// What 99 % of the commits that ended in this second did not exceed.
    #[serde(default)]
    pub insert_us_99: u64,
    /// The longest commit that ended in this second.
    pub insert_us_max: u64,
    /// Queries answered.
    pub queries: u64,
    /// What 99 % of the queries that ended in this second did not exceed.
    #[serde(default)]
    pub query_us_99: u64,
    /// The longest query that ended in this second.
    pub query_us_max: u64,
    /// What the engine's process used, sampled once a second.
    pub usage: Usage,
    /// The time that `usage` covers: 1 but for scheduling.
    pub sample_seconds: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// The engine's own figures.
    pub engine: BTreeMap<String, f64>,
}

impl Run {
    /// The steps, each with its name and, when a step of that name came before, a number.
    pub fn labelled(&self) -> impl Iterator<Item = (&StepResult, String)> {
        self.steps.iter().enumerate().map(|(number, step)| {
            let before = self.steps[..number].iter().filter(|s| s.name == step.name).count();
            let label = match before {
                0 => step.name.clone(),
                before => format!("{}#{}", step.name, before + 1),
            };
            (step, label)
        })
    }

    /// Writes the document to `path`, with its directory.
    ///
    /// # Errors
    /// When the file can't be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_json(path, self)
    }

    /// Reads a document back.
    ///
    /// # Errors
    /// When it can't be read, is of another format, or is no run but a table of several.
    pub fn load(path: &Path) -> Result<Self> {
        match Stored::load(path)? {
            Stored::Insert(run) => Ok(*run),
            Stored::Tpcc(_) => {
                Err(Error::NoRun { what: format!("reading {}", path.display()), of: "tpcc" })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::series::Recorder;
    use std::time::Instant;

    #[test]
    fn a_rate_is_held_or_not_in_the_time_that_its_inserts_had() {
        let background = |ends_ms: &[u64]| {
            let start = Instant::now();
            let mut recorder = Recorder::new(start);
            for &end in ends_ms {
                let end = start + Duration::from_millis(end);
                recorder.record(end, end, 50);
            }
            // A query ends late.
            let (time, took) = (Duration::from_secs(2), Duration::from_secs(5));
            Background::of(&Series::merge([&recorder]), 100.0, time, took, 0)
        };
        // The last slot begins half a second before the end.
        let held = background(&[1, 500, 1000, 1500]);
        assert_eq!((held.rate_done, held.held), (100.0, true));
        let stalled = background(&[1, 500, 1000, 4000]);
        assert_eq!((stalled.rate_done, stalled.held), (50.0, false));
        assert_eq!(background(&[]).rate_done, 0.0);
        // Five turns of half a second, of which the last begins at the end.
        let last = background(&[1, 500, 1000, 1500, 2000]);
        assert_eq!((last.rate_done, last.held), (100.0, true));
        assert_eq!(held.to_string(), "100 of the 100 rows per second asked for");
        let stalled = Background { commits_lost: 2, ..stalled };
        let told = "only 50 of the 100 rows per second asked for, 2 commits left out";
        assert_eq!(stalled.to_string(), told);
    }
}

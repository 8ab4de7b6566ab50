//! What TPC-C gave, as it is stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::transactions::Kind;
use crate::accounting::Usage;
use crate::engine::EngineInfo;
use crate::environment::Environment;
use crate::result::Measured;
use crate::series::Latency;

/// Version of the document.
pub const FORMAT: u32 = 1;

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "as in `super::Plan`")]
pub struct Settings {
    pub warehouses: u32,
    pub rounds: u32,
    #[serde(default)]
    pub side_by_side: bool,
    pub seconds: u32,
    pub warmup_seconds: u32,
    pub binlog: bool,
    #[serde(default)]
    pub pinned: bool,
    pub memory_bytes: u64,
    pub redo_bytes: u64,
    pub durability: String,
    pub device: String,
    pub seed: u64,
}

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`FORMAT`].
    pub format: u32,
    /// What was asked for.
    pub settings: Settings,
    /// Where it ran.
    pub environment: Environment,
    /// The engines as they were.
    pub engines: Vec<EngineInfo>,
    /// How the tables were filled.
    pub loads: Vec<Load>,
    /// In the order in which they ran.
    pub runs: Vec<Run>,
}

/// How an engine's tables were filled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The engine, as it was named.
    pub engine: String,
    /// From 1.
    pub round: u32,
    /// Rows of all tables.
    pub rows: u64,
    /// Time and resources.
    pub measured: Measured,
}

/// One number of clients on one engine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The engine, as it was named.
    pub engine: String,
    /// From 1.
    pub round: u32,
    /// Client threads.
    pub clients: u32,
    /// Why there is nothing else.
    pub failure: Option<String>,
    /// New orders per minute that committed.
    pub tpm_c: f64,
    /// Transactions per second of all kinds.
    pub rate_mean: f64,
    /// The rate that 99 % of the seconds reach.
    pub rate_99: f64,
    /// Seconds that this is of: those in which all clients were at work from beginning to end.
    #[serde(default)]
    pub whole_seconds: usize,
    /// Transactions of all kinds, those that were rolled back as they were meant to be among them.
    pub transactions: u64,
    /// New orders that were rolled back as they were meant to be.
    pub rolled_back: u64,
    /// How often a transaction was rolled back by the engine and run again.
    pub retries: u64,
    /// Latencies, those of all tries together; new orders that were rolled back as they were meant
    /// to be count here, but not in `tpm_c`.
    pub kinds: BTreeMap<Kind, Latency>,
    /// Time and resources.
    pub measured: Measured,
    /// Every second.
    pub seconds: Vec<Second>,
}

impl Run {
    /// Whether it is the same engine with as many clients in the same round.
    pub(super) fn is_same(&self, other: &Run) -> bool {
        (&self.engine, self.round, self.clients) == (&other.engine, other.round, other.clients)
    }
}

/// One second of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Seconds since the start; the figures belong to the second that follows.
    pub second: u32,
    /// Transactions that ended.
    pub transactions: u64,
    /// New orders among them, also those that were rolled back as they were meant to be.
    pub new_orders: u64,
    /// What 99 % of the transactions that ended in this second did not exceed.
    pub latency_us_99: u64,
    /// The longest transaction that ended in this second.
    pub latency_us_max: u64,
    /// What the engine's process used, sampled once a second.
    pub usage: Usage,
    /// The time that `usage` covers, where it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_seconds: Option<f64>,
    /// Resident memory.
    pub resident_bytes: u64,
    /// The engine's own figures.
    pub engine_figures: BTreeMap<String, f64>,
}

//! What the benchmark asks of a storage engine.
//!
//! An [`Engine`] is one open database. A [`Session`] is one client's connection to one table, made,
//! used and dropped on the client's own thread. Tables are numbered from 0, one per client.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::atomic::AtomicBool;

use serde::{Deserialize, Serialize};

use crate::accounting::Place;
use crate::error::{Error, Result};
use crate::quantity::format_bytes;
use crate::row::{IndexKey, Row, Secondary};
use crate::tpcc;

/// What is lost when the process or the machine dies right after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// Nothing: the log is synced before commit returns.
    Sync,
    /// Nothing when the process dies; what the system had not yet written when the machine dies.
    Write,
    /// Up to a second of commits.
    Relaxed,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "sync" => Ok(Durability::Sync),
            "write" => Ok(Durability::Write),
            "relaxed" => Ok(Durability::Relaxed),
            _ => Err(format!("`{text}` is no durability; use sync, write or relaxed")),
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Durability::Sync => "sync",
            Durability::Write => "write",
            Durability::Relaxed => "relaxed",
        })
    }
}

/// How to open an engine. Every engine gets the same figures.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// An empty directory of its own.
    pub dir: PathBuf,
    /// Memory for cached data and whatever else the engine keeps in proportion to it.
    pub memory_bytes: u64,
    /// Log that may be needed for recovery: where the engine has such a limit, it is this.
    pub redo_bytes: u64,
    /// What commit promises.
    pub durability: Durability,
    /// How many tables there will be, and client threads.
    pub clients: u32,
    /// How Weir reads and writes files.
    pub disk: DiskChoice,
    /// Where Weir tells its figures while it runs.
    pub status_listen: Option<String>,
    /// How Weir writes pages.
    pub flush: FlushChoice,
    /// The server, where the engine is one; of the rest it takes the number of clients only.
    pub server: Option<ServerChoice>,
}

/// A running server, and how to use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerChoice {
    /// Where it is: `mysql://user@host:port/database`, without the password.
    pub url: String,
    /// The user's password.
    #[serde(skip)]
    pub password: Option<String>,
    /// Its socket, which is preferred to the URL's address.
    pub socket: Option<PathBuf>,
    /// The server's storage engine that the tables are in.
    pub table_engine: String,
    /// Whether the tables are there already and stay; then they tell their storage engine.
    #[serde(default)]
    pub existing: bool,
    /// How statements are sent.
    pub statements: Statements,
    /// Whether the tables stay when the run is over.
    #[serde(default)]
    pub keep: bool,
}

/// How statements are sent to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Statements {
    /// Prepared once, then only values.
    Prepared,
    /// As text, each time.
    Text,
}

impl FromStr for Statements {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "prepared" => Ok(Statements::Prepared),
            "text" => Ok(Statements::Text),
            _ => Err(format!("`{text}`: statements are prepared or text")),
        }
    }
}

impl fmt::Display for Statements {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Statements::Prepared => "prepared",
            Statements::Text => "text",
        })
    }
}

/// When Weir writes pages, for experiments. Other engines know nothing of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushChoice {
    /// Percent of the frames that may be dirty; the engine's default without.
    pub dirty_limit_percent: Option<u32>,
    /// `governor`, or what it is compared with: `at-deadline`, `fixed:RATE`, `innodb:CAPACITY/MAX`.
    pub policy: String,
}

impl Default for FlushChoice {
    fn default() -> Self {
        FlushChoice { dirty_limit_percent: None, policy: "governor".into() }
    }
}

/// How Weir reads and writes files, by name; other engines take the defaults only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskChoice {
    /// `auto`, `io-uring` or `threads`.
    pub io: String,
    /// `fast` (as it is), or a slower device: `slow-ssd`, `sata-ssd`, `two-disks`, `iops-3000`.
    pub device: String,
    /// Another device for the first step, as `device`.
    #[serde(default)]
    pub load_device: Option<String>,
}

impl Default for DiskChoice {
    fn default() -> Self {
        DiskChoice { io: "auto".into(), device: "fast".into(), load_device: None }
    }
}

/// What ran, for the report.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineInfo {
    /// Name as in the `engine` column.
    pub name: String,
    /// Version of the library in use.
    pub version: String,
    /// How it was configured, in its own terms.
    pub settings: Vec<String>,
    /// What a reader has to know to compare it fairly.
    pub notes: Vec<String>,
}

/// The primary key or one of the secondary indexes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Index {
    /// The primary key, with whole rows.
    Primary,
    /// A secondary index.
    Secondary(Secondary),
}

impl Index {
    /// The primary key, then the secondary indexes.
    pub const ALL: [Index; 4] = [
        Index::Primary,
        Index::Secondary(Secondary::ALL[0]),
        Index::Secondary(Secondary::ALL[1]),
        Index::Secondary(Secondary::ALL[2]),
    ];

    /// Its place in [`Index::ALL`].
    pub fn position(self) -> usize {
        match self {
            Index::Primary => 0,
            Index::Secondary(index) => 1 + index as usize,
        }
    }

    /// Its name in reports, and in engines that name indexes.
    pub fn name(self) -> &'static str {
        match self {
            Index::Primary => "primary",
            Index::Secondary(index) => index.name(),
        }
    }
}

/// One entry of a secondary index, as a covering scan returns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct IndexEntry {
    /// The index's columns.
    pub key: IndexKey,
    /// The primary key.
    pub id: u64,
}

/// What a full scan saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Entries.
    pub rows: u64,
    /// Their primary keys, combined by exclusive or: proof that each entry was looked at.
    pub id_xor: u64,
    /// Of a scan of the primary key, bytes of all texts: it reads rows, not only keys.
    pub text_bytes: u64,
}

/// What a storage engine gets, or has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the storage engine.
    pub memory_bytes: u64,
    /// Its redo log.
    pub redo_bytes: u64,
    /// What its commit promises.
    pub durability: Durability,
}

impl Limits {
    /// Whether an engine in this process can be opened with them.
    ///
    /// # Errors
    /// What is too little, or too much.
    pub fn check(&self) -> Result<()> {
        let sizes = [
            ("memory", self.memory_bytes, 16 << 20, 64 << 40),
            ("redo", self.redo_bytes, 8 << 20, 16 << 40),
        ];
        for (name, bytes, least, most) in sizes {
            if !(least..=most).contains(&bytes) {
                let [bytes, least, most] = [bytes, least, most].map(format_bytes);
                let message = format!("{name} of {bytes}: use {least} to {most}");
                return Err(Error::Usage(message));
            }
        }
        Ok(())
    }
}

/// One open database.
pub trait Engine: Send + Sync {
    /// What it is and how it was configured.
    fn info(&self) -> EngineInfo;
    /// Creates a table with its primary key, and with the secondary indexes when `indexed`.
    fn create_table(&self, table: u32, indexed: bool) -> Result<()>;
    /// Connects to a table, for the calling thread.
    fn session(&self, table: u32) -> Result<Box<dyn Session + '_>>;
    /// Figures worth a line per second, such as the checkpoint age.
    fn status(&self) -> Vec<(String, f64)> {
        Vec::new()
    }
    /// Reads of the device so far, where the engine counts them itself.
    fn device_reads(&self) -> Option<u64> {
        None
    }
    /// Bytes that were changed and are still to be written, uncompressed, where the engine tells.
    /// What the kernel has taken counts as written.
    fn unwritten_bytes(&self) -> Option<u64> {
        None
    }
    /// The process that it works in, if that isn't this one.
    fn place(&self) -> Option<Place> {
        None
    }
    /// Memory, redo log and durability that it has of its own accord, whatever was asked for.
    fn limits(&self) -> Option<Limits> {
        None
    }
    /// Ends the first step's device: the one that was chosen for the other steps takes its place.
    fn end_load_device(&self) {}
    /// Itself as TPC-C needs it, where it can that.
    fn tpcc(&self) -> Option<&dyn tpcc::Store> {
        None
    }
    /// Closes the database as an application would, keeping what was committed.
    fn close(self: Box<Self>) -> Result<()>;
}

/// One client's connection to its table.
pub trait Session {
    /// Creates and fills the secondary indexes of the table. Ends soon, with an error, once `stop`
    /// is set.
    fn create_indexes(&mut self, stop: &AtomicBool) -> Result<()>;
    /// Inserts `rows` and deletes the rows with the ids `delete`, with all their index entries, in
    /// one transaction. The deleted rows were committed before.
    ///
    /// # Errors
    /// Also when a row to be deleted is not there; nothing is changed then.
    fn write(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()>;
    /// Reads a whole index from one end to the other: of the primary key the rows, of the others
    /// the entries. Ends soon, with an error, once `stop` is set.
    fn scan(&mut self, index: Index, stop: &AtomicBool) -> Result<Scanned>;
    /// Reads up to `limit` entries of an index from the first at or after `start` into `out`, from
    /// the index alone.
    fn range(
        &mut self,
        index: Secondary,
        start: &IndexKey,
        limit: usize,
        out: &mut Vec<IndexEntry>,
    ) -> Result<()>;
    /// Changes the cash register, an indexed column, of the row with primary key `id`, in one
    /// transaction.
    ///
    /// # Errors
    /// Also when the row is not there, or the engine can't.
    fn update(&mut self, id: u64, register: u32) -> Result<()> {
        let message = format!("row {id} to register {register}: this engine has no updates");
        Err(Error::Usage(message))
    }
    /// Reads the row with primary key `id`.
    fn get(&mut self, id: u64) -> Result<Option<Row>>;
}

/// What the benchmark can run on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Weir itself.
    Weir,
    /// Weir with rows that are bytes to it, as they are to the others.
    #[serde(rename = "weir-raw")]
    WeirRaw,
    /// RocksDB.
    RocksDb,
    /// LMDB.
    Lmdb,
    /// LMDB writing to its map, which a crash of the machine may leave broken.
    #[serde(rename = "lmdb-writemap")]
    LmdbWritemap,
    /// WiredTiger.
    WiredTiger,
    /// SQLite.
    Sqlite,
    /// Ordered maps in memory: what the benchmark itself costs, and what tests compare with.
    Model,
    /// A server that speaks MySQL's protocol, with one of its storage engines.
    Server,
}

impl EngineKind {
    /// All embedded engines, also those not built in.
    pub const ALL: [EngineKind; 8] = [
        EngineKind::Weir,
        EngineKind::WeirRaw,
        EngineKind::RocksDb,
        EngineKind::Lmdb,
        EngineKind::LmdbWritemap,
        EngineKind::WiredTiger,
        EngineKind::Sqlite,
        EngineKind::Model,
    ];

    /// Name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            EngineKind::Weir => "weir",
            EngineKind::WeirRaw => "weir-raw",
            EngineKind::RocksDb => "rocksdb",
            EngineKind::Lmdb => "lmdb",
            EngineKind::LmdbWritemap => "lmdb-writemap",
            EngineKind::WiredTiger => "wiredtiger",
            EngineKind::Sqlite => "sqlite",
            EngineKind::Model => "model",
            EngineKind::Server => "server",
        }
    }

    /// Build feature that brings its library.
    fn feature(self) -> &'static str {
        match self {
            EngineKind::LmdbWritemap => EngineKind::Lmdb.name(),
            other => other.name(),
        }
    }

    /// Whether it is Weir in this process, with whatever tables.
    pub fn is_weir(self) -> bool {
        matches!(self, EngineKind::Weir | EngineKind::WeirRaw)
    }

    /// Whether it is compared where no engines are named: neither another interface of one that is,
    /// nor less safe than its durability says, nor no database.
    pub fn is_compared_by_default(self) -> bool {
        let left_out = [EngineKind::WeirRaw, EngineKind::LmdbWritemap, EngineKind::Model];
        self.is_built_in() && !left_out.contains(&self)
    }

    /// Whether its sessions have [`Session::update`].
    pub fn has_updates(self) -> bool {
        self.is_weir() || self == EngineKind::Server
    }

    /// Whether this build has it.
    pub fn is_built_in(self) -> bool {
        match self {
            EngineKind::RocksDb => cfg!(feature = "rocksdb"),
            EngineKind::Lmdb | EngineKind::LmdbWritemap => cfg!(feature = "lmdb"),
            EngineKind::WiredTiger => cfg!(feature = "wiredtiger"),
            EngineKind::Sqlite => cfg!(feature = "sqlite"),
            EngineKind::Weir | EngineKind::WeirRaw | EngineKind::Model | EngineKind::Server => true,
        }
    }

    /// The names of all embedded engines of this build.
    pub fn built_in() -> String {
        let names: Vec<_> =
            Self::ALL.iter().filter(|kind| kind.is_built_in()).map(|kind| kind.name()).collect();
        names.join(", ")
    }

    /// Checks that this build has it.
    ///
    /// # Errors
    /// How to get a build that has.
    pub fn require(self) -> Result<()> {
        if self.is_built_in() { Ok(()) } else { Err(self.missing()) }
    }

    fn missing(self) -> Error {
        let (name, feature) = (self.name(), self.feature());
        Error::Usage(format!(
            "this build has no engine `{name}` (it has: {}); install its library with scripts/peers \
             and build with `--features {feature}` or `--features peers`",
            Self::built_in()
        ))
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|kind| kind.name()).collect();
            format!("`{text}` is no engine; use one of {}", names.join(", "))
        })
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_that_is_not_built_in_says_how_to_get_it() {
        let error = EngineKind::LmdbWritemap.missing();
        assert!(matches!(error, Error::Usage(_)));
        let text = error.to_string();
        for part in ["`lmdb-writemap`", "it has: weir, ", "scripts/peers", "--features lmdb`"] {
            assert!(text.contains(part), "{text}");
        }
    }
}

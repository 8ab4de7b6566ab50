//! Weir, by its public API, as any embedding program would use it: with typed tables ([`typed`]),
//! or with raw ones ([`raw`]), whose rows are bytes, as the other engines' are.
//!
//! Reads run in transactions of their own, so that each sees one snapshot; index reads are
//! covering.

mod raw;
mod typed;

use std::sync::Arc;

use weir::schema::Layout;
use weir::{Database, Shutdown, StatusAddress, Table};
use weir_governor::{InnodbSettings, PolicyChoice};
use weir_os::throttle::{Profile, UnknownProfile};
use weir_os::{Backend, RealClock, ThrottledDisk};

use crate::engine::{
    Durability, Engine, EngineInfo, EngineKind, EngineOptions, FlushChoice, Session,
};
use crate::error::{Error, Result};
use crate::quantity::format_bytes;
use crate::tpcc;

/// Name in reports and errors.
pub const NAME: &str = EngineKind::Weir.name();
/// Bytes of a page in memory.
pub(super) const PAGE_BYTES: u64 = 16 << 10;

fn failed(operation: &'static str) -> impl Fn(weir::Error) -> Error {
    move |error| Error::engine(NAME, operation, error)
}

/// What its tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    Typed,
    Raw,
}

pub(super) struct Weir {
    database: Database,
    tables: Tables,
    /// The slow device, and what it is after the first step.
    throttle: Option<(ThrottledDisk, Profile)>,
    settings: Vec<String>,
}

impl Weir {
    pub(super) fn open(options: &EngineOptions, tables: Tables) -> Result<Self> {
        let durability = match options.durability {
            Durability::Sync => weir::Durability::Sync,
            Durability::Write => weir::Durability::Write,
            Durability::Relaxed => weir::Durability::Relaxed,
        };
        let weir_options = weir::Options::default()
            .memory_bytes(options.memory_bytes)
            .redo_capacity_bytes(options.redo_bytes)
            .durability(durability);
        let weir_options = match &options.status_listen {
            Some(address) => weir_options.status_listen(status_address(address)?),
            None => weir_options,
        };
        let weir_options = with_flush(weir_options, &options.flush)?;
        let (database, throttle) = open(options, weir_options)?;
        let settings = vec![
            format!("memory={}", format_bytes(options.memory_bytes)),
            format!("redo_capacity={}", format_bytes(options.redo_bytes)),
            format!("durability={}", options.durability),
            format!("io={}", options.disk.io),
            format!("device={}", options.disk.device),
            format!("policy={}", options.flush.policy),
        ];
        Ok(Weir { database, tables, throttle, settings })
    }

    fn table(&self, table: u32) -> Result<Table> {
        let name = table_name(table);
        let found = self.database.table(&name);
        found.ok_or_else(|| Error::engine(NAME, "open table", format!("no table {name}")))
    }
}

fn status_address(text: &str) -> Result<StatusAddress> {
    text.parse().map_err(|error| Error::Usage(format!("status-listen: {error}")))
}

/// The options with those for experiments.
fn with_flush(mut options: weir::Options, choice: &FlushChoice) -> Result<weir::Options> {
    if let Some(percent) = choice.dirty_limit_percent {
        options = options.dirty_limit(f64::from(percent) / 100.0);
    }
    let policy: PolicyChoice = choice.policy.parse().map_err(Error::Usage)?;
    if policy == PolicyChoice::Governor {
        return Ok(options);
    }
    let default = InnodbSettings::default().max_dirty_pages_pct;
    let dirty_limit = choice.dirty_limit_percent.map_or(default, f64::from);
    Ok(options.flush_policy(move || policy.policy(dirty_limit)))
}

type Throttle = Option<(ThrottledDisk, Profile)>;

/// Opens the database on the disk that was asked for.
fn open(options: &EngineOptions, weir_options: weir::Options) -> Result<(Database, Throttle)> {
    let backend = match options.disk.io.as_str() {
        "auto" => Backend::Auto,
        "io-uring" => Backend::IoUring,
        "threads" => Backend::Threads,
        other => {
            let what = format!("`{other}` is no way of I/O; use auto, io-uring or threads");
            return Err(Error::Usage(what));
        }
    };
    let device = &options.disk.device;
    let first = options.disk.load_device.as_ref().unwrap_or(device);
    if device == "fast" && first == "fast" {
        let database = Database::open(&options.dir, weir_options.backend(backend));
        return Ok((database.map_err(failed("open"))?, None));
    }
    let profile = |name: &str| {
        name.parse::<Profile>().map_err(|e: UnknownProfile| Error::Usage(e.to_string()))
    };
    let (first, then) = (profile(first)?, profile(device)?);
    let disk = weir_os::open_directory(&options.dir, backend)
        .map_err(|e| Error::engine(NAME, "open", e))?;
    let throttled = ThrottledDisk::new(disk, first, Arc::new(RealClock::new()));
    let database = Database::open_on(Arc::new(throttled.clone()), weir_options);
    Ok((database.map_err(failed("open"))?, Some((throttled, then))))
}

fn table_name(table: u32) -> String {
    format!("purchases{}", table + 1)
}

impl Engine for Weir {
    fn info(&self) -> EngineInfo {
        let name = match self.tables {
            Tables::Typed => NAME,
            Tables::Raw => EngineKind::WeirRaw.name(),
        };
        EngineInfo {
            name: name.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            settings: self.settings.clone(),
            notes: Vec::new(),
        }
    }

    fn create_table(&self, table: u32, indexed: bool) -> Result<()> {
        let schema: Layout = match self.tables {
            Tables::Typed => typed::schema(indexed)?.into(),
            Tables::Raw => raw::schema(indexed)?.into(),
        };
        self.database.create_table(&table_name(table), schema).map_err(failed("create table"))?;
        Ok(())
    }

    fn session(&self, table: u32) -> Result<Box<dyn Session + '_>> {
        let (database, table) = (&self.database, self.table(table)?);
        Ok(match self.tables {
            Tables::Typed => Box::new(typed::TypedSession::new(database, table)),
            Tables::Raw => Box::new(raw::RawSession::new(database, table)?),
        })
    }

    fn status(&self) -> Vec<(String, f64)> {
        figures(&self.database.status())
    }

    fn device_reads(&self) -> Option<u64> {
        Some(self.database.status().disk.reads)
    }

    fn unwritten_bytes(&self) -> Option<u64> {
        Some(self.database.status().buffer_pool_pages_dirty * PAGE_BYTES)
    }

    fn tpcc(&self) -> Option<&dyn tpcc::Store> {
        Some(&self.database)
    }

    fn end_load_device(&self) {
        if let Some((disk, profile)) = &self.throttle {
            disk.set_profile(*profile);
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.close(Shutdown::Fast, &mut |_| {}).map_err(failed("close"))
    }
}

/// The figures of each second: levels as they are, counters since the database was opened.
fn figures(status: &weir::Status) -> Vec<(String, f64)> {
    let figures = status.figures().into_iter();
    figures.map(|figure| (figure.name.to_string(), figure.value as f64)).collect()
}

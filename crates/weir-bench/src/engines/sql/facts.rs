//! What a server tells about itself: version, settings, limits, process, figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mysql::Conn;
use mysql::prelude::Queryable;

use super::target::{NAME, Target, failed};
use crate::accounting::Place;
use crate::engine::{Durability, EngineInfo, Limits};
use crate::engines::weir::PAGE_BYTES;
use crate::error::{Error, Result};

/// Storage engines whose settings and figures are known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// Weir.
    Weir,
    /// InnoDB.
    InnoDb,
    /// MyRocks.
    RocksDb,
    /// Any other.
    Other,
}

/// Settings of every server that a commit's speed depends on.
const COMMON: &[&str] = &["log_bin", "sync_binlog", "binlog_format", "tx_isolation"];

impl Family {
    /// By the name that a table's definition has.
    pub fn of(table_engine: &str) -> Self {
        match table_engine.to_ascii_lowercase().as_str() {
            "weir" => Family::Weir,
            "innodb" => Family::InnoDb,
            "rocksdb" => Family::RocksDb,
            _ => Family::Other,
        }
    }

    /// Settings that matter to a benchmark.
    fn settings(self) -> &'static [&'static str] {
        match self {
            Family::Weir => {
                &["weir_memory", "weir_redo_capacity", "weir_durability", "weir_dirty_limit"]
            }
            Family::InnoDb => &[
                "innodb_buffer_pool_size",
                "innodb_log_file_size",
                "innodb_flush_log_at_trx_commit",
                "innodb_flush_method",
                "innodb_log_file_buffering",
                "innodb_io_capacity",
                "innodb_io_capacity_max",
                "innodb_doublewrite",
                "innodb_flush_neighbors",
                "innodb_change_buffering",
                "innodb_page_size",
            ],
            Family::RocksDb => &[
                "rocksdb_block_cache_size",
                "rocksdb_db_write_buffer_size",
                "rocksdb_max_total_wal_size",
                "rocksdb_flush_log_at_trx_commit",
                "rocksdb_deadlock_detect",
                "rocksdb_use_direct_reads",
                "rocksdb_use_direct_io_for_flush_and_compaction",
                "rocksdb_default_cf_options",
            ],
            Family::Other => &[],
        }
    }

    /// What the names of its figures begin with.
    fn prefix(self) -> Option<&'static str> {
        match self {
            Family::Weir => Some("Weir_"),
            Family::InnoDb => Some("Innodb_"),
            Family::RocksDb => Some("Rocksdb_"),
            Family::Other => None,
        }
    }

    /// The figure that counts reads of the device.
    fn device_reads(self) -> Option<&'static str> {
        match self {
            Family::Weir => Some("Weir_disk_reads"),
            Family::InnoDb => Some("Innodb_data_reads"),
            Family::RocksDb | Family::Other => None,
        }
    }

    /// The figure that counts what was changed and isn't written yet, and the bytes of one.
    fn unwritten(self) -> Option<(&'static str, u64)> {
        match self {
            Family::Weir => Some(("Weir_buffer_pool_pages_dirty", PAGE_BYTES)),
            Family::InnoDb => Some(("Innodb_buffer_pool_bytes_dirty", 1)),
            Family::RocksDb | Family::Other => None,
        }
    }
}

/// Global variables that the server has, of those named.
fn variables(control: &mut Conn, names: &[&str]) -> Result<BTreeMap<String, String>> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let list: Vec<_> = names.iter().map(|name| format!("'{name}'")).collect();
    let show = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", list.join(","));
    let rows: Vec<(String, String)> = control.query(show).map_err(failed("show variables"))?;
    Ok(rows.into_iter().collect())
}

/// Checks that tables can be made in a storage engine.
///
/// # Errors
/// Which engines the server has instead.
pub fn require_engine(control: &mut Conn, table_engine: &str) -> Result<()> {
    let find = "SELECT LOWER(ENGINE) FROM information_schema.ENGINES \
                WHERE SUPPORT IN ('YES', 'DEFAULT') ORDER BY 1";
    let there: Vec<String> = control.query(find).map_err(failed("show engines"))?;
    if there.contains(&table_engine.to_ascii_lowercase()) {
        return Ok(());
    }
    let hint = match Family::of(table_engine) {
        Family::Weir => {
            "; mariadb/run starts one with Weir, mariadb/install adds Weir to this system's"
        }
        Family::RocksDb => "; MyRocks is loaded by --plugin-load-add=ha_rocksdb.so",
        _ => "",
    };
    let message = format!(
        "the server has no storage engine `{table_engine}` loaded; it has {}{hint}",
        there.join(", ")
    );
    Err(Error::engine(NAME, "show engines", message))
}

/// What ran, for the report.
///
/// # Errors
/// The server's.
pub fn info(control: &mut Conn, table_engine: &str) -> Result<EngineInfo> {
    let version: Option<String> =
        control.query_first("SELECT VERSION()").map_err(failed("show version"))?;
    let mut settings = Vec::new();
    let family = Family::of(table_engine);
    for names in [family.settings(), COMMON] {
        let values = variables(control, names)?;
        let known = names.iter().filter_map(|name| Some((name, values.get(*name)?)));
        settings.extend(known.map(|(name, value)| format!("{name}={value}")));
    }
    let build = one_status(control, "Weir_build").filter(|_| family == Family::Weir);
    settings.extend(build.map(|build| format!("weir_build={build}")));
    Ok(EngineInfo {
        name: format!("{}-sql", table_engine.to_ascii_lowercase()),
        version: version.unwrap_or_else(|| "unknown".into()),
        settings,
        notes: Vec::new(),
    })
}

/// Memory, redo log and durability of a storage engine that is known here.
///
/// # Errors
/// The server's.
pub fn limits(control: &mut Conn, family: Family) -> Result<Option<Limits>> {
    let values = variables(control, family.settings())?;
    let number = |name: &str| values.get(name).and_then(|value| value.parse::<u64>().ok());
    let at_commit = |name: &str| {
        Some(match number(name)? {
            0 => Durability::Relaxed,
            1 => Durability::Sync,
            _ => Durability::Write,
        })
    };
    let all = |memory: Option<u64>, redo: Option<u64>, durability: Option<Durability>| {
        Some(Limits { memory_bytes: memory?, redo_bytes: redo?, durability: durability? })
    };
    Ok(match family {
        Family::Weir => {
            let durability = values.get("weir_durability").and_then(|value| value.parse().ok());
            all(number("weir_memory"), number("weir_redo_capacity"), durability)
        }
        Family::InnoDb => all(
            number("innodb_buffer_pool_size"),
            number("innodb_log_file_size"),
            at_commit("innodb_flush_log_at_trx_commit"),
        ),
        Family::RocksDb => {
            let (cache, tables) =
                (number("rocksdb_block_cache_size"), number("rocksdb_db_write_buffer_size"));
            all(
                cache.zip(tables).map(|(cache, tables)| cache + tables),
                number("rocksdb_max_total_wal_size"),
                at_commit("rocksdb_flush_log_at_trx_commit"),
            )
        }
        Family::Other => None,
    })
}

/// The server's process, and when it can't be looked at, why.
///
/// # Errors
/// The server's.
pub fn place(control: &mut Conn, target: &Target) -> Result<(Place, Option<String>)> {
    let names = ["pid_file", "datadir", "log_bin_basename"];
    let values = variables(control, &names)?;
    let value = |name: &str| values.get(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let found = match (target.is_local(), value("pid_file"), value("datadir")) {
        (false, ..) => Err("the server is not on this machine".to_string()),
        (true, Some(pid_file), Some(dir)) => process(&dir.join(pid_file)).map(|pid| (pid, dir)),
        _ => Err("the server tells no pid file".to_string()),
    };
    let (place, why) = match found {
        Ok((pid, dir)) => (Place::Process { pid, dir, except: value("log_bin_basename") }, None),
        Err(why) => (Place::Elsewhere, Some(why)),
    };
    let unknown =
        "its memory, device traffic, processor time and size are not known, and left blank";
    Ok((place, why.map(|why| format!("{why}: {unknown}"))))
}

/// The server's process, when it is one that may be looked at.
fn process(pid_file: &Path) -> std::result::Result<u32, String> {
    let shown = pid_file.display();
    let text = fs::read_to_string(pid_file).map_err(|error| format!("reading {shown}: {error}"))?;
    let pid: u32 = text.trim().parse().map_err(|_| format!("{shown} holds no process's number"))?;
    // Servers in containers tell numbers that belong to others here.
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    if !["mariadbd", "mysqld"].contains(&name.trim()) {
        return Err(format!("process {pid}, which {shown} names, is no server"));
    }
    let io = format!("/proc/{pid}/io");
    fs::read_to_string(&io).map_err(|error| format!("reading {io}: {error}"))?;
    Ok(pid)
}

/// Figures of the storage engine, named as Weir's own where it is the same thing; none when the
/// server doesn't answer, which the clients are going to notice.
pub fn status(control: &mut Conn, family: Family) -> Vec<(String, f64)> {
    let Some(prefix) = family.prefix() else { return Vec::new() };
    let show = format!("SHOW GLOBAL STATUS LIKE '{}%'", prefix.replace('_', "\\_"));
    let rows: Vec<(String, String)> = control.query(show).unwrap_or_default();
    let figure = |(name, value): (String, String)| {
        let name = figure_name(family, name.strip_prefix(prefix)?)?;
        Some((name.to_string(), value.parse().ok()?))
    };
    rows.into_iter().filter_map(figure).collect()
}

/// The name that a status variable has here, without its prefix; `None` for what is no figure.
fn figure_name(family: Family, name: &str) -> Option<&str> {
    match (family, name) {
        // It may look like a number.
        (Family::Weir, "build") => None,
        // These wait for room in the log buffer, Weir's for room in the log.
        (Family::InnoDb, "log_waits") => Some("log_buffer_waits"),
        _ => Some(name),
    }
}

/// Reads of the device so far.
pub fn device_reads(control: &mut Conn, family: Family) -> Option<u64> {
    one_status(control, family.device_reads()?)?.parse().ok()
}

/// Bytes that were changed and are still to be written.
pub fn unwritten_bytes(control: &mut Conn, family: Family) -> Option<u64> {
    let (name, each) = family.unwritten()?;
    Some(one_status(control, name)?.parse::<u64>().ok()? * each)
}

fn one_status(control: &mut Conn, name: &str) -> Option<String> {
    let row: (String, String) =
        control.query_first(format!("SHOW GLOBAL STATUS LIKE '{name}'")).ok()??;
    Some(row.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_same_thing_has_another_name() {
        assert_eq!(figure_name(Family::Weir, "log_waits"), Some("log_waits"));
        assert_eq!(figure_name(Family::InnoDb, "log_waits"), Some("log_buffer_waits"));
        assert_eq!(figure_name(Family::InnoDb, "data_reads"), Some("data_reads"));
        assert_eq!(figure_name(Family::Weir, "build"), None);
    }
}

//! The engines, one file each.
//!
//! | engine       | secondary indexes            | file            |
//! |--------------|------------------------------|-----------------|
//! | `weir`       | the engine's own             | `weir/typed.rs` |
//! | `weir-raw`   | the engine's own             | `weir/raw.rs`   |
//! | `rocksdb`    | kept here, see [`kv`]        | `rocksdb.rs`    |
//! | `lmdb`       | kept here, see [`kv`]        | `lmdb.rs`       |
//! | `wiredtiger` | kept here, see [`kv`]        | `wiredtiger.rs` |
//! | `sqlite`     | the engine's own             | `sqlite.rs`     |
//! | `model`      | ordered maps                 | `model.rs`      |
//! | `server`     | the server's                 | [`sql`]         |
//!
//! Each is configured as somebody would who knows it and wants it to look good, within the memory
//! and durability that all engines get. Where that can't be the same for all, [`EngineInfo::notes`]
//! says so.
//!
//! [`EngineInfo::notes`]: crate::engine::EngineInfo::notes

pub mod codec;
pub mod kv;
#[cfg(feature = "lmdb")]
mod lmdb;
mod model;
#[cfg(feature = "rocksdb")]
mod rocksdb;
pub mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
pub mod weir;
#[cfg(feature = "wiredtiger")]
mod wiredtiger;

use crate::engine::{DiskChoice, Engine, EngineKind, EngineOptions, FlushChoice};
use crate::error::{Error, Result};

/// Opens a new database of `kind` in an empty directory.
///
/// # Errors
/// When this build does not have the engine, and whatever the engine says.
pub fn open(kind: EngineKind, options: &EngineOptions) -> Result<Box<dyn Engine>> {
    kind.require()?;
    if !kind.is_weir() && options.disk != DiskChoice::default() {
        let what =
            format!("{kind} uses the system's files; io and device can be chosen for weir only");
        return Err(Error::Usage(what));
    }
    if !kind.is_weir() && options.status_listen.is_some() {
        return Err(Error::Usage(format!("{kind} has no status endpoint; weir has")));
    }
    if !kind.is_weir() && options.flush != FlushChoice::default() {
        let what =
            format!("{kind} writes pages its own way; dirty limit and policy are for weir only");
        return Err(Error::Usage(what));
    }
    match kind {
        EngineKind::Weir => Ok(Box::new(weir::Weir::open(options, weir::Tables::Typed)?)),
        EngineKind::WeirRaw => Ok(Box::new(weir::Weir::open(options, weir::Tables::Raw)?)),
        #[cfg(feature = "rocksdb")]
        EngineKind::RocksDb => Ok(Box::new(rocksdb::RocksDb::open(options)?)),
        #[cfg(feature = "lmdb")]
        EngineKind::Lmdb | EngineKind::LmdbWritemap => {
            let writemap = kind == EngineKind::LmdbWritemap;
            Ok(Box::new(lmdb::Lmdb::open(options, writemap)?))
        }
        #[cfg(feature = "wiredtiger")]
        EngineKind::WiredTiger => Ok(Box::new(wiredtiger::WiredTiger::open(options)?)),
        #[cfg(feature = "sqlite")]
        EngineKind::Sqlite => Ok(Box::new(sqlite::Sqlite::open(options)?)),
        EngineKind::Server => sql::open(options),
        EngineKind::Model => Ok(Box::new(model::Model::new(options))),
        #[allow(unreachable_patterns, reason = "a build with all engines has no others")]
        _ => unreachable!("what isn't built in was refused above"),
    }
}

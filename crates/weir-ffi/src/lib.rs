//! The C interface of the engine, for the MariaDB plugin and other programs that aren't written in
//! Rust.
//!
//! `mariadb/weir.h` is generated from this crate, and begins with what a caller has to know
//! (`cbindgen.toml`): results, handles, bytes, callbacks.
//!
//! Nothing unwinds into the caller: a bug of the engine ends the process (`panic = "abort"`).

pub mod ahead;
pub mod alter;
pub mod backup;
pub mod bytes;
pub mod database;
pub mod error;
pub mod many;
pub mod observe;
pub mod patience;
pub mod scan;
pub mod status;
pub mod table;
pub mod transaction;
pub mod waits;
pub mod write;

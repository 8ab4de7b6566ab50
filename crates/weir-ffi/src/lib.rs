//! The C interface of the engine, for the MariaDB plugin and other programs that aren't written in Rust.
//!
//! The caller encodes keys, rows and index entries (*raw tables*); the engine stores, versions, locks and
//! keeps them. `mariadb/weir.h` is generated from this crate.
//!
//! - **Results**: each function that can fail returns a [`WeirResult`]. What it says in words is had from
//!   [`weir_error_message`] until the thread calls the next function that can fail.
//! - **Handles** (`WeirDatabase *`, ...) are made by `..._open`, `..._begin`, and given back once by
//!   `..._close` and the like. A null handle is allowed only where that is said. Databases, tables and
//!   cancellers may be used by many threads at once; transactions, scans and rows by one at a time.
//! - **Bytes** that a function hands out belong to the handle that they were had from, and are valid until it
//!   is used again.
//!
//! Nothing unwinds into the caller: a bug of the engine ends the process (`panic = "abort"`).

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

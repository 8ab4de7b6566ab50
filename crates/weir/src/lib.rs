//! Weir: a transactional B+tree storage engine.

#![allow(missing_docs)]

pub mod check;
mod engine;
mod governor;
pub mod key;
mod lock;
pub mod row;
pub mod schema;
mod sort;
mod storage;
mod sync;
mod tree;
mod txn;
pub mod value;

pub use engine::{
    Bounds, Cursor, Database, Error, IndexRef, Isolation, Options, Result, Shutdown, Status, Table,
    Transaction,
};
pub use lock::{LockInfo, Mode as LockMode, WaitInfo};
pub use row::{Row, RowRef};
pub use schema::Schema;
pub use storage::Fault;
pub use storage::replay::Progress;
pub use txn::{Canceller, Direction, Durability, Savepoint};
pub use value::{OwnedValue, Type, Value};
pub use weir_os::Backend;
pub use weir_store::Compression;

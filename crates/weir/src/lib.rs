//! Weir: a transactional B+tree storage engine, embedded.
//!
//! [`Database`] is a directory that one process has open, or several that only read it, or it is in
//! memory alone; [`Table`] has a clustered primary key and any number of secondary indexes, which
//! the engine keeps; [`Transaction`] reads and writes rows. Begin with [`Database::open`]. How it
//! works inside: `ARCHITECTURE.md`, and the heads of the modules.
//!
//! ```
//! # let dir = tempfile::tempdir()?;
//! use weir::{Bounds, Database, Direction, Isolation, Options, Schema, Type, Value};
//!
//! let db = Database::open(dir.path(), Options::default().memory_bytes(16 << 20))?;
//! let schema = Schema::builder()
//!     .column("id", Type::U64)
//!     .column("city", Type::Text)
//!     .primary_key(&["id"])
//!     .index("by_city", &["city"])
//!     .build()?;
//! let people = db.create_table("people", schema)?;
//!
//! let mut txn = db.begin(Isolation::RepeatableRead)?;
//! txn.insert(&people, &[Value::U64(1), Value::Text("Rome")])?;
//! txn.insert(&people, &[Value::U64(2), Value::Text("Oslo")])?;
//! txn.commit()?;
//!
//! let mut txn = db.begin(Isolation::ReadCommitted)?;
//! let mut rows = txn.scan(&people, "by_city", Bounds::all(), Direction::Forward)?;
//! let first = rows.next()?.expect("there are two").get(0)?.as_u64();
//! assert_eq!(first, Some(2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod check;
mod engine;
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
    Alteration, BackgroundStep, Backup, BackupProgress, Bounds, Changes, Committed, Compacted,
    Cursor, Database, Entry, EntryOf, EntryOfOne, Error, IndexFigures, IndexRef, Isolation, Lock,
    MAX_XID, NewIndex, Options, Patience, RawBatch, RawEntry, RawPlace, RawRange, RawScan,
    Reorganized, Result, RowsAhead, RunError, Savepoint, Shutdown, SnapshotInfo, Status, Table,
    TableChange, Transaction, TransactionInfo, TransactionState, Wait,
};
pub use key::long::{SHORT_FORM_BYTES_MAX, short_form};
pub use lock::{
    Deadlock, DeadlockWait, Extent as LockExtent, LockInfo, Mode as LockMode, WaitInfo,
};
pub use row::{Row, RowError, RowRef};
pub use schema::{KeyOf, RawIndex, RawSchema, Schema, SchemaError};
pub use storage::Fault;
pub use storage::{Progress, Work, take_work};
pub use txn::{Canceller, Direction, Durability, Pair};
pub use value::{OwnedValue, Type, Value};
pub use weir_os::{Backend, BlockingObserver, Disk, DiskError, observe_blocking};
pub use weir_page::{Lsn, PageId, TreeId, TxnId};
pub use weir_status::{Address as StatusAddress, Figure, Kind as FigureKind, Unit as FigureUnit};
pub use weir_store::Compression;

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;

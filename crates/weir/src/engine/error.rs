//! What an operation of the public interface fails with.

use crate::lock::LockError;
use crate::row::RowError;
use crate::schema::SchemaError;
use crate::sort::SortError;
use crate::storage::Fault;
use crate::tree::Tree;
use crate::txn::TxnError;
use std::io::ErrorKind;

/// Why an operation failed. What it says of the transaction holds for every method.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A row with that key is there already. The statement did nothing; the transaction goes on.
    /// The row may be newer than the transaction's snapshot: then only a locking read finds it.
    #[error("duplicate key in index `{index}` of table `{table}`")]
    Duplicate {
        /// The table.
        table: String,
        /// The index; `primary` for the primary key.
        index: String,
        /// The key, as it is encoded: of a typed table [`crate::key::decode_key`] tells its values.
        key: Vec<u8>,
    },
    /// Transactions waited for each other in a circle and this one was chosen to give way: it has
    /// been rolled back. Begin it again.
    #[error("deadlock: the transaction was rolled back; begin it again")]
    Deadlock,
    /// A row stayed locked for too long. The statement did nothing; the transaction goes on.
    #[error("lock wait timeout: the statement did nothing, the transaction goes on")]
    LockWaitTimeout,
    /// The statement was cancelled, mostly while it waited for a lock, a table, log space or pages
    /// to be written. It did nothing; the transaction that it is in, if any, goes on.
    #[error("cancelled: nothing was changed, and the transaction, if there is one, goes on")]
    Cancelled,
    /// Too many transactions write at once, those that are prepared among them, also after a
    /// restart. Try again when some have ended; until then no definition changes either.
    #[error("too many read-write transactions at once: at most {most}")]
    TooManyTransactions {
        /// How many there may be.
        most: usize,
    },
    /// The transaction has ended, by itself or by a deadlock.
    #[error("the transaction has ended")]
    Ended,
    /// The scan was begun by another transaction. It is where it was.
    #[error("the scan was begun by another transaction: begin one with this")]
    ForeignScan,
    /// The transaction has not ended, and none begins in its place. Nothing changed.
    #[error("the transaction has not ended: another one can't take its place")]
    NotEnded,
    /// The transaction has been rolled back to an earlier savepoint since this one, or it is
    /// another transaction's. Nothing changed.
    #[error(
        "no such savepoint: the transaction was rolled back to an earlier one since, or it is another's"
    )]
    NoSuchSavepoint,
    /// The transaction is prepared: it can only be committed or rolled back.
    #[error("the transaction is prepared: it can only be committed or rolled back")]
    Prepared,
    /// The transaction isn't prepared.
    #[error("the transaction is not prepared")]
    NotPrepared,
    /// A prepared transaction's name is empty or too long. Nothing changed.
    #[error(
        "a prepared transaction can't have a name of {bytes} bytes: 1 to {} are allowed",
        super::MAX_XID
    )]
    BadXid {
        /// Its length.
        bytes: usize,
    },
    /// There is a prepared transaction of that name, and it belongs to somebody. Nothing changed.
    #[error("the name of the prepared transaction is in use")]
    XidInUse,
    /// There is no prepared transaction of that name.
    #[error("no prepared transaction has that name")]
    NoSuchXid,
    /// There is such a table already.
    #[error("table `{0}` exists already")]
    TableExists(String),
    /// The name of a table is too long. Nothing changed.
    #[error(
        "the table name `{start}...` has {bytes} bytes; {} are allowed",
        super::ddl::NAME_BYTES_MAX
    )]
    NameTooLong {
        /// How it begins.
        start: String,
        /// Its length.
        bytes: usize,
    },
    /// There is no such table, or it has been dropped.
    #[error("no table `{0}`")]
    NoSuchTable(String),
    /// The table is of another database, or of the same one as it was opened before: look it up by
    /// its name.
    #[error("table `{0}` is of another database, or of an earlier opening: look it up by its name")]
    ForeignTable(String),
    /// A change of several tables at once names one of them twice. Nothing changed.
    #[error("table `{0}` is named twice in one change")]
    NamedTwice(String),
    /// A table is to have an empty name. Nothing changed.
    #[error("a table needs a name")]
    NoName,
    /// A change of a table names one of its indexes twice, among those that go or get another name.
    /// Nothing changes.
    #[error("index `{index}` of table `{table}` is named twice in one change")]
    IndexNamedTwice {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The commit is of another database, or of the same one as it was opened before. It isn't
    /// known whether it is durable.
    #[error(
        "the commit is of another database, or of an earlier opening: it can't be waited for here"
    )]
    ForeignCommit,
    /// There is no row with that key. The statement did nothing; the transaction goes on.
    #[error("table `{0}` has no row with that key")]
    NoSuchRow(String),
    /// The table's rows are bytes: only the raw interface makes sense of them.
    #[error("table `{0}` is a raw table")]
    NotTyped(String),
    /// The index isn't unique: its keys may have many rows.
    #[error(
        "index `{index}` of table `{table}` is not unique: read by a key that many rows may have, scan it"
    )]
    NotUnique {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The table's rows have columns: only the typed interface writes them.
    #[error("table `{0}` is not a raw table")]
    NotRaw(String),
    /// There is such an index already.
    #[error("index `{index}` of table `{table}` exists already")]
    IndexExists {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The table has no such index.
    #[error("table `{table}` has no index `{index}`")]
    NoSuchIndex {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// A backup is being made. Nothing changed.
    #[error("a backup is being made: one at a time")]
    BackupRunning,
    /// There is something in the directory that a backup was to be made in. Nothing changed.
    #[error("{directory}: not empty; a backup goes into a new directory, or an empty one")]
    BackupTarget {
        /// The directory.
        directory: String,
    },
    /// Others have used the table for too long for it to be changed. Nothing changed. Or, from a
    /// statement: its definition is being changed, which waits for others, and that took too long.
    /// The statement did nothing; the transaction goes on.
    #[error(
        "table `{0}` is in use by other transactions, or being changed by another thread, for too long; \
         nothing was changed"
    )]
    TableInUse(String),
    /// The index was made after the transaction's snapshot. Begin a new transaction.
    #[error("index `{index}` of table `{table}` is newer than the transaction's snapshot")]
    IndexTooNew {
        /// The table.
        table: String,
        /// The index.
        index: String,
    },
    /// The table was made or emptied after the transaction's snapshot. Begin a new transaction.
    #[error(
        "table `{0}` was made or emptied after the transaction's snapshot; begin a new transaction"
    )]
    TableTooNew(String),
    /// The directory holds no database and none was to be created.
    #[error("no database in {directory}")]
    NoDatabase {
        /// The directory.
        directory: String,
    },
    /// The database was opened to be read only. The statement did nothing; the transaction goes on.
    #[error(
        "the database is open read-only: open it without `Options::read_only` to change anything"
    )]
    ReadOnly,
    /// An option makes no sense.
    #[error("option {option}: {what}")]
    Options {
        /// The option.
        option: &'static str,
        /// What is wrong with it.
        what: String,
    },
    /// Another version wrote a table's entry of the catalog. Nothing changed.
    #[error(
        "table `{table}`: its catalog entry has format {found}, this program reads up to {newest}: \
         open the database with the version that wrote it"
    )]
    CatalogFormat {
        /// The table.
        table: String,
        /// The entry's format.
        found: u8,
        /// The newest that is known.
        newest: u8,
    },
    /// What the catalog says makes no sense.
    #[error("the catalog is damaged: {0}")]
    Catalog(String),
    /// The caller of an `ALTER` of a raw table, who has made its rows, can't make an index's entry
    /// of one. Nothing changed.
    #[error("table `{0}` has a row that doesn't fit its definition: no index can be made of it")]
    UnfitRow(String),
    /// The schema makes no sense.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The row doesn't fit the schema.
    #[error(transparent)]
    Row(#[from] RowError),
    /// Sorting for an index.
    #[error(transparent)]
    Sort(#[from] SortError),
    /// Files, memory, the device; damaged data.
    #[error(transparent)]
    Storage(#[from] Fault),
}

impl Error {
    /// Whether the transaction may succeed if it is begun again as it is: others were in its way,
    /// or made what it reads only after its snapshot. It has ended after a deadlock; otherwise it
    /// goes on, and is to be rolled back first. [`Database::run`](super::Database::run) does both.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Deadlock
                | Error::LockWaitTimeout
                | Error::TableInUse(_)
                | Error::TooManyTransactions { .. }
                | Error::IndexTooNew { .. }
                | Error::TableTooNew(_)
        )
    }

    /// Whether the device is full. A statement did nothing then, and can be repeated once there is
    /// space; so can a commit, unless the log itself found no space and the database has stopped.
    pub fn is_no_space(&self) -> bool {
        let disk = match self {
            Error::Storage(fault) if fault.is_no_space() => return true,
            Error::Storage(fault) => fault.disk(),
            Error::Sort(SortError::Disk(error)) => Some(error),
            _ => None,
        };
        disk.is_some_and(|error| error.kind() == ErrorKind::StorageFull)
    }

    /// Whether what is stored is damaged, or lacks a part.
    pub fn is_corrupt(&self) -> bool {
        match self {
            Error::Catalog(_) | Error::UnfitRow(_) | Error::Schema(SchemaError::Malformed(_)) => {
                true
            }
            Error::Storage(fault) => fault.is_corrupt(),
            _ => false,
        }
    }

    /// Whether it is a page that is damaged, or what the log has for it: what
    /// [`Options::give_up_damaged`] gives up.
    ///
    /// [`Options::give_up_damaged`]: super::Options::give_up_damaged
    pub fn is_damaged_page(&self) -> bool {
        match self {
            Error::Storage(Fault::Stopped(cause)) => cause.is_of_page(),
            Error::Storage(fault) => fault.is_of_page(),
            _ => false,
        }
    }
}

impl From<TxnError> for Error {
    fn from(error: TxnError) -> Self {
        match error {
            TxnError::Fault(fault) => Error::Storage(fault),
            TxnError::Lock(LockError::Deadlock) => Error::Deadlock,
            TxnError::Lock(LockError::Timeout) => Error::LockWaitTimeout,
            TxnError::Lock(LockError::Cancelled) => Error::Cancelled,
            TxnError::TooMany { most } => Error::TooManyTransactions { most },
        }
    }
}

impl From<weir_os::DiskError> for Error {
    fn from(error: weir_os::DiskError) -> Self {
        Error::Storage(error.into())
    }
}

/// A page that the engine's own structures say must be there is not as they say.
pub(super) fn inconsistent(tree: Tree, what: &str) -> Error {
    Error::Storage(Fault::page(tree.root(), what))
}

/// Result of the public interface.
pub type Result<T> = std::result::Result<T, Error>;

//! The embedded database: tables and their indexes, the catalog, opening and closing, status.
//!
//! | what | where |
//! |---|---|
//! | statements | `transaction`, `savepoint` and `run`; of values `typed` (whose bytes `encoded` makes), `cursor` and `delete_range`, of bytes `raw`; both go through `read`, `scan`, `rows_ahead`, `write`; how they lock: `lock` |
//! | tables and definitions | `table` and `patience` (who uses one, and how long a change waits for them), `catalog`, `ddl` and its transaction `ddl_txn`, `columns`, `alter` |
//! | indexes | `index_trees` (main tree and staging tree), `indexes` (made and dropped), `online` (beside writers), `stem` (of long keys), `reorganize` |
//! | commits that others see already, two-phase commit, rollbacks that had no space | `commit`, `prepared`, `orphans` |
//! | opening, threads | `open`, `options`, `threads`, `step` |
//! | what one asks it | `status`, `statistics`, `snapshots`, `check`, `backup` |
//! | what goes wrong | `error` |

mod alter;
mod backup;
mod catalog;
mod check;
mod columns;
mod commit;
mod cursor;
mod ddl;
mod ddl_txn;
mod delete_range;
mod encoded;
mod error;
mod index_trees;
mod indexes;
mod lock;
mod online;
mod open;
mod options;
mod orphans;
mod patience;
mod prepared;
mod raw;
mod read;
mod reorganize;
mod rows_ahead;
mod run;
mod savepoint;
mod scan;
mod snapshots;
mod statistics;
mod status;
mod stem;
mod step;
mod table;
mod threads;
mod transaction;
mod typed;
mod write;

pub use alter::{Alteration, EntryOf, EntryOfOne, TableChange};
pub use backup::{Backup, BackupProgress};
pub use commit::Committed;
pub use cursor::{Bounds, Cursor, IndexRef};
pub use ddl::Changes;
pub use error::{Error, Result};
pub use indexes::NewIndex;
pub use lock::{Lock, Wait};
pub use options::Options;
pub use patience::Patience;
pub use prepared::MAX_XID;
pub use reorganize::Reorganized;
pub use rows_ahead::RowsAhead;
pub use run::RunError;
pub use savepoint::Savepoint;
pub use scan::{RawBatch, RawEntry, RawPlace, RawRange, RawScan};
pub use snapshots::SnapshotInfo;
pub use statistics::IndexFigures;
pub use status::{Status, TransactionInfo, TransactionState};
pub use step::BackgroundStep;
pub use table::Table;
pub use transaction::{Isolation, Transaction};
pub use write::Entry;

use crate::lock::{Deadlock, LockInfo};
use crate::schema::KeyOf;
use crate::storage::{Fault, Reason, Storage};
use crate::txn::{Durability, Transactions, Txn};
use orphans::Orphans;
use parking_lot::{Mutex, MutexGuard, RwLock};
use prepared::Registry;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire};
use table::Home;
use threads::Threads;
use weir_page::{TreeId, TxnId};
use weir_status::{Address, Server};

/// How a database is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shutdown {
    /// At once; the next open applies the log.
    #[default]
    Fast,
    /// After all pages have been written; the next open has nothing to do.
    Clean,
}

/// What [`Database::compact`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compacted {
    /// Length of the data file before.
    pub bytes_before: u64,
    /// Its length afterwards.
    pub bytes_after: u64,
    /// Pages that were moved.
    pub pages_moved: u64,
}

/// An open database; cheap to clone, shared by threads. Closed when the last handle goes. Not for
/// the child of a fork, which has none of its threads: it neither uses nor drops it.
#[derive(Clone)]
pub struct Database(Arc<Inner>);

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

/// What the handles share.
pub(crate) struct Inner {
    pub transactions: Arc<Transactions>,
    pub options: Options,
    home: Home,
    tables: RwLock<HashMap<String, Table>>,
    /// One definition changes at a time.
    ddl: Mutex<()>,
    prepared: Arc<Registry>,
    /// Sorts begun so far: each has a name of its own.
    sorts: AtomicU64,
    /// Whether a backup is being made.
    backing_up: AtomicBool,
    /// The file is compacted by one at a time.
    compacting: Mutex<()>,
    orphans: Arc<Orphans>,
    threads: Mutex<Option<Threads>>,
    endpoint: Mutex<Option<Server>>,
    /// Held last: nobody else opens the directory before everything has ended.
    _lock: Box<dyn Send + Sync>,
}

impl Database {
    /// Begins a transaction.
    ///
    /// # Errors
    /// [`Error::Storage`]: the database has stopped after a failure.
    pub fn begin(&self, isolation: Isolation) -> Result<Transaction> {
        let txn = self.0.begin(None)?;
        Ok(Transaction::new(self.0.clone(), txn, isolation))
    }

    /// The table of that name.
    pub fn table(&self, name: &str) -> Option<Table> {
        self.0.tables.read().get(name).cloned()
    }

    /// Names of all tables, sorted.
    pub fn table_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.tables.read().keys().cloned().collect();
        names.sort();
        names
    }

    /// Figures of the moment.
    pub fn status(&self) -> Status {
        Status::of(&self.0.transactions)
    }

    /// Where [`Options::status_listen`] listens; `None` when it wasn't asked for.
    pub fn status_address(&self) -> Option<Address> {
        self.0.endpoint.lock().as_ref().map(|endpoint| endpoint.address().clone())
    }

    /// Transactions that have written and not ended, oldest first. Who has only read isn't among
    /// them: its snapshot is in [`Database::snapshots`], and the locks that it holds in
    /// [`Database::locks`].
    pub fn transactions(&self) -> Vec<TransactionInfo> {
        TransactionInfo::all(&self.0.transactions)
    }

    /// Snapshots that somebody reads at, oldest first: what they don't see purge leaves alone
    /// ([`Status::history_list_length`]). Scans and the building of indexes are among them. At
    /// [`Isolation::ReadCommitted`] a transaction has one while a statement runs.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.set_connection(7)?;
    /// txn.take_snapshot()?;
    /// assert_eq!(db.snapshots()[0].connection, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        SnapshotInfo::all(&self.0.transactions)
    }

    /// Row and range locks that readers hold or somebody waits for, and who waits for whom. Those
    /// in tree 0 are waits for the end of the transaction that the key names.
    pub fn locks(&self) -> Vec<LockInfo> {
        self.0.transactions.locks.describe()
    }

    /// The deadlock that was broken last since the database was opened.
    pub fn last_deadlock(&self) -> Option<Deadlock> {
        self.0.transactions.locks.last_deadlock()
    }

    /// Has `observer` called with each transaction that begins to wait for a lock, and all who are
    /// in its way then; in the thread that waits, before it waits, and again if others come ahead
    /// of it. For a coordinator that knows in which order transactions are to commit: it may end
    /// one that is in the way of an earlier one, with that one's [`Canceller`](crate::Canceller).
    /// The first observer stays.
    pub fn observe_waits(&self, observer: impl Fn(TxnId, &[TxnId]) + Send + Sync + 'static) {
        self.0.transactions.locks.observe_waits(Box::new(observer));
    }

    /// Has `preference` asked which of two transactions that wait for each other in a circle is to
    /// be rolled back: the lesser one; equal if either may be. It must not wait, nor panic, nor
    /// call the database. The first preference stays.
    pub fn prefer_victims(
        &self,
        preference: impl Fn(TxnId, TxnId) -> std::cmp::Ordering + Send + Sync + 'static,
    ) {
        self.0.transactions.locks.prefer_victims(Box::new(preference));
    }

    /// Name of the table, and which of its trees it is that [`LockInfo::tree`] names.
    pub fn owner_of_tree(&self, tree: TreeId) -> Option<(String, KeyOf)> {
        let tables = self.0.tables.read();
        tables.iter().find_map(|(name, table)| {
            let def = table.0.def().ok()?;
            if def.primary.id == tree {
                return Some((name.clone(), KeyOf::Primary));
            }
            let of_index = |index: &index_trees::IndexDef| index.trees().any(|t| t.id == tree);
            let n = def.indexes.iter().position(of_index)?;
            Some((name.clone(), KeyOf::Index(n)))
        })
    }

    /// Changes the redo capacity of the running database; returns what it is now: whole segments,
    /// at least four. After it was made smaller, the larger one holds until the pages that need it
    /// are written, within a minute or so; writers are held back no more than the device asks for.
    ///
    /// # Errors
    /// [`Error::Options`], [`Error::ReadOnly`]; no space for a larger log: nothing changed then.
    /// Storage errors.
    pub fn set_redo_capacity(&self, bytes: u64) -> Result<u64> {
        options::check_redo_capacity(bytes)?;
        Ok(self.0.writable()?.set_redo_capacity(bytes)?)
    }

    /// Changes the share of memory whose pages may have unwritten changes, from 0.0 to 1.0; see
    /// [`Options::dirty_limit`]. A smaller one holds back writers until enough pages are written.
    ///
    /// # Errors
    /// [`Error::Options`]: nothing changed.
    pub fn set_dirty_limit(&self, share: f64) -> Result<()> {
        options::check_dirty_limit(share)?;
        self.0.transactions.storage.set_dirty_limit(share);
        Ok(())
    }

    /// Makes everything that was committed durable on the device.
    ///
    /// # Errors
    /// [`Error::Storage`]: the database has stopped after a failure, or does so now; then it isn't
    /// known what of the last commits is durable.
    pub fn sync(&self) -> Result<()> {
        self.0.running()?;
        Ok(self.0.transactions.wait_for_all_log(Durability::Sync)?)
    }

    /// Waits until all of the log that there was when the database was opened has been applied, and
    /// all that was not committed has been taken back, or does so. Nobody has to: pages that are
    /// wanted before are brought up to date then, and rows that are to be taken back are locked.
    ///
    /// # Errors
    /// [`Error::Storage`]; what has been done stays done, and may be called for again unless the
    /// database has stopped.
    pub fn finish_recovery(&self) -> Result<()> {
        self.0.running()?.finish_recovery()?;
        self.0.roll_back_losers(|| Ok(()))
    }

    /// Writes dirty pages and moves the checkpoint to the end of the log as it is now.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; storage errors.
    pub fn checkpoint(&self) -> Result<()> {
        Ok(self.0.writable()?.flush_all(Reason::Checkpoint, &mut |_| {})?)
    }

    /// Makes a data file with many holes shorter, a fifth of it or more: moves what is stored at
    /// its end into free places before, and gives the end back to the file system. Costs a read and
    /// a write of each page that is moved, and does nothing if little could be won. Damaged pages
    /// stay where they are. Others go on meanwhile. `progress` is told how many pages were moved.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Options};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let compacted = db.compact(&mut |_| {})?;
    /// assert!(compacted.bytes_after <= compacted.bytes_before);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::BackupRunning`]: what is moved then leaves its old place in
    /// use. Storage errors; what was moved stays moved.
    pub fn compact(&self, progress: &mut dyn FnMut(u64)) -> Result<Compacted> {
        self.0.compact(self.0.compacting.lock(), u64::MAX, &mut |moved| {
            progress(moved);
            Ok(())
        })
    }

    /// Waits until purge has caught up with what no snapshot needs.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; storage errors.
    pub fn purge_all(&self) -> Result<()> {
        self.0.writable()?;
        Ok(self.0.transactions.purge_all()?)
    }

    /// Closes the database, also if that fails; one that is open read-only has nothing to be
    /// written. Other handles must not be used any more: transactions that are running can't
    /// commit, they are rolled back when they are dropped, or at the next open. The directory is
    /// free for another open once no handle and no transaction is left. `progress` is told how many
    /// pages of a clean shutdown are still to be written.
    ///
    /// # Errors
    /// Storage errors; what was committed as durable is so all the same.
    pub fn close(self, how: Shutdown, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let how = if self.0.options.read_only { Shutdown::Fast } else { how };
        let purged = match how {
            Shutdown::Clean => self.finish_recovery().and_then(|()| self.purge_all()),
            Shutdown::Fast => Ok(()),
        };
        drop(self.0.endpoint.lock().take());
        drop(self.0.threads.lock().take());
        let written = {
            let _closing = Closing(&self.0.transactions);
            self.0.write_out(how, progress)
        };
        // Who commits meanwhile has either been told, or is waited for here.
        let synced = self.0.transactions.wait_for_all_log(Durability::Sync);
        purged?;
        written?;
        Ok(synced?)
    }
}

/// Nobody does the background work any more: from its end on, a panic's, too, who would wait for
/// that gets an error.
struct Closing<'a>(&'a Transactions);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.storage.stop(Fault::Closed);
        self.0.locks.cancel_all();
    }
}

impl Inner {
    /// Makes durable what was committed; for a clean shutdown, writes all pages.
    fn write_out(&self, how: Shutdown, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let storage = self.running()?;
        storage.note_durable()?;
        if how == Shutdown::Clean {
            storage.flush_all(Reason::Shutdown, progress)?;
            storage.note_clean()?;
        }
        Ok(())
    }

    /// Fails if there is no use in changing definitions. No loser is left then: nobody knows which
    /// tables it has written to.
    pub(crate) fn prepare_for_ddl(&self, patience: &Patience) -> Result<()> {
        self.writable()?;
        self.roll_back_losers(|| patience.check())
    }

    /// Rolls back what is left of losers, beside the thread that does so, as long as `goes_on` lets
    /// it.
    fn roll_back_losers(&self, goes_on: impl Fn() -> Result<()>) -> Result<()> {
        while self.transactions.losers() > 0 {
            self.running()?;
            goes_on()?;
            self.transactions.rollback_step()?;
        }
        Ok(())
    }

    /// Moves `most` pages at the most; `goes_on` is told how many were.
    fn compact(
        &self,
        _one: MutexGuard<'_, ()>,
        most: u64,
        goes_on: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<Compacted> {
        if self.backing_up.load(Acquire) {
            return Err(Error::BackupRunning);
        }
        let storage = self.writable()?;
        let bytes_before = storage.store.stats().file_bytes;
        let pages_moved = storage.compact(most, goes_on)?;
        let bytes_after = storage.store.stats().file_bytes;
        Ok(Compacted { bytes_before, bytes_after, pages_moved })
    }

    /// The storage, unless it has stopped.
    fn running(&self) -> Result<&Storage> {
        self.transactions.storage.check()?;
        Ok(&self.transactions.storage)
    }

    /// The storage, unless it has stopped or is only read.
    fn writable(&self) -> Result<&Storage> {
        self.check_writable()?;
        self.running()
    }

    #[inline]
    fn check_writable(&self) -> Result<()> {
        if self.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// A transaction that has done nothing yet; `ended`: one that has ended, to be used again.
    fn begin(&self, ended: Option<Txn>) -> Result<Txn> {
        self.running()?;
        let mut txn = match ended {
            None => self.transactions.begin(),
            Some(mut txn) => {
                txn.begin_again();
                txn
            }
        };
        txn.lock_timeout = self.options.lock_wait_timeout;
        Ok(txn)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        drop(self.endpoint.lock().take());
        self.orphans.leave();
        let had_threads = self.threads.lock().take().is_some();
        if had_threads && self.transactions.storage.check().is_ok() {
            // A failure here loses nothing that was promised: `relaxed` commits are on their way.
            let _ = self.transactions.storage.note_durable();
        }
    }
}

//! Opening a database: in a directory, on any disk, in memory; what is done before it takes
//! statements.

use super::error::{Error, Result};
use super::options::Options;
use super::orphans::Orphans;
use super::prepared::Registry;
use super::status::Status;
use super::table::{Home, Table, TableInner};
use super::threads::Threads;
use super::{Database, Inner, catalog};
use crate::sort;
use crate::storage::{Background, CONTROL, Fault, Storage};
use crate::txn::{Transactions, TxnError};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};
use weir_os::{Disk, MemoryDisk, open_directory, open_read_only};
use weir_status::{Address, Server};

/// Writes of losers that one step takes back: of a single-threaded database, and where damage is
/// given up.
pub(super) const LOSERS_STEP_WRITES: usize = 8;

/// Time for losers before the database opens; those that are left then are rolled back while it is
/// open.
const LOSERS_TIME_AT_OPEN: Duration = Duration::from_millis(100);

impl Database {
    /// Opens the database in a directory, or creates one there; a directory that is missing is
    /// made, with mode 0700. [`Options::read_only`] opens one that isn't to be changed.
    ///
    /// # Errors
    /// The directory is in use by another process or can't be read or written; damaged files; a
    /// newer format; [`Error::NoDatabase`] if there is none and none is to be created. What is
    /// durable stays as it is.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<Database> {
        let directory = directory.as_ref();
        options.storage(0)?;
        let name = directory.display().to_string();
        if !options.may_create() && !directory.exists() {
            return Err(Error::NoDatabase { directory: name });
        }
        let disk: Arc<dyn Disk> = match options.read_only {
            true => Arc::new(open_read_only(directory, options.backend)?),
            false => open_directory(directory, options.backend)?,
        };
        Database::open_named(disk, &name, options)
    }

    /// As [`Database::open`], on any disk: simulated, throttled.
    ///
    /// # Errors
    /// As [`Database::open`].
    pub fn open_on(disk: Arc<dyn Disk>, options: Options) -> Result<Database> {
        let name = disk.describe();
        let disk = match options.read_only {
            true => Arc::new(MemoryDisk::over(disk)?),
            false => disk,
        };
        Database::open_named(disk, &name, options)
    }

    /// A new database that is in memory alone, and gone when its last handle is. All works as in a
    /// directory; commits don't wait, whatever [`Options::durability`] says. [`Database::backup`]
    /// saves it.
    ///
    /// [`Options::memory_bytes`] is for pages as they are worked with. On top come the files: all
    /// pages once they are written, compressed, and the redo log, of half of `memory_bytes` (16 to
    /// 512 MiB) if no other capacity is asked for. `Status::disk.memory_bytes` tells how much that
    /// is.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let saved = dir.path().join("saved");
    /// use weir::{Database, Isolation, Options, Schema, Type, Value};
    /// let db = Database::in_memory(Options::default().memory_bytes(8 << 20))?;
    /// let schema = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build()?;
    /// let numbers = db.create_table("numbers", schema)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&numbers, &[Value::U64(1)])?;
    /// txn.commit()?;
    /// db.backup(&saved)?;
    /// # let db = Database::open(&saved, Options::default().memory_bytes(8 << 20))?;
    /// # assert_eq!(db.table_names(), ["numbers"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Options`], also of [`Options::read_only`]; no memory, no threads.
    pub fn in_memory(options: Options) -> Result<Database> {
        if options.read_only {
            let what = "a database in memory begins empty".to_string();
            return Err(Error::Options { option: "read_only", what });
        }
        Database::open_named(Arc::new(MemoryDisk::new()), "memory", options.in_memory())
    }

    fn open_named(disk: Arc<dyn Disk>, name: &str, options: Options) -> Result<Database> {
        // Nonsense is refused before anything is touched, the lock's file included.
        options.storage(0)?;
        exists(&*disk, name, &options)?;
        let lock = disk.lock()?;
        let exists = exists(&*disk, name, &options)?;
        let storage = if exists {
            // Where there is no database yet, files of such names are somebody else's.
            sort::remove_leftovers(&*disk)?;
            let storage_options = options.storage(0)?;
            Storage::open(disk, &storage_options, options.on_progress.clone())?
        } else {
            let storage_options = options.storage(fastrand::u64(1..))?;
            Storage::create(disk, &storage_options)?
        };
        Database::start(Arc::new(storage), name, options, lock)
    }

    fn start(
        storage: Arc<Storage>,
        name: &str,
        options: Options,
        lock: Box<dyn Send + Sync>,
    ) -> Result<Database> {
        let start_failed = |error| start_failed(name, error);
        let start = || Background::start(&storage).map_err(start_failed);
        let background = (!options.inline).then(start).transpose()?;
        // A crash between the creation of the files and of the first pages leaves an empty log.
        let (transactions, prepared) = if storage.is_new() {
            (catalog::create(&storage)?, Vec::new())
        } else {
            Transactions::recover(storage)?
        };
        let most = options.staging_leaves.unwrap_or(transactions.storage.pool.frames() / 4);
        transactions.staging.configure(most, options.staging);
        if options.staging_eager {
            transactions.staging.be_eager();
        }
        let home = Home::new();
        let tables = settle(&transactions, home, options.inline)?;
        let prepared = Arc::new(Registry::recovered(prepared, tables.values())?);
        let orphans = Arc::new(Orphans::new(prepared.clone()));
        let start = |background| {
            let mut threads = Threads::start(&transactions, background)?;
            // Where nothing is to be kept, nothing is put in order for later.
            if !options.read_only {
                threads.put_in_order(&transactions, &orphans)?;
            }
            Ok(threads)
        };
        let threads = background.map(start).transpose().map_err(start_failed)?;
        let endpoint = options.status_listen.as_ref();
        let endpoint = endpoint.map(|at| listen(at, &transactions)).transpose()?;
        Ok(Database(Arc::new(Inner {
            transactions,
            prepared,
            sorts: AtomicU64::new(0),
            backing_up: AtomicBool::new(false),
            compacting: Mutex::default(),
            orphans,
            options,
            home,
            tables: RwLock::new(tables),
            ddl: Mutex::default(),
            threads: Mutex::new(threads),
            endpoint: Mutex::new(endpoint),
            _lock: lock,
        })))
    }
}

/// Whether there is a database. Fails where it is of a newer format, or there is none and none may
/// be created. Changes nothing.
fn exists(disk: &dyn Disk, name: &str, options: &Options) -> Result<bool> {
    let names = disk.list()?;
    let exists = names.iter().any(|name| name == CONTROL);
    if !exists && !Storage::may_create(&names) {
        return Err(Error::Storage(Fault::Lost { directory: name.to_string() }));
    }
    if !exists && !options.may_create() {
        return Err(Error::NoDatabase { directory: name.to_string() });
    }
    if exists {
        weir_store::check_format(disk).map_err(Fault::from)?;
    }
    Ok(exists)
}

/// The tables of the catalog, by name; their staging trees are looked after from now on.
fn load_tables(transactions: &Arc<Transactions>, home: Home) -> Result<HashMap<String, Table>> {
    let mut tables = HashMap::new();
    for (name, def) in catalog::load(transactions)? {
        for staging in def.indexes.iter().filter_map(|index| index.staging.clone()) {
            transactions.staging.add(staging);
        }
        tables.insert(name.clone(), Table(Arc::new(TableInner::new(home, name, def))));
    }
    Ok(tables)
}

/// Takes back what was not committed when the database ended, as far as an open does that, and
/// loads the tables.
fn settle(
    transactions: &Arc<Transactions>,
    home: Home,
    inline: bool,
) -> Result<HashMap<String, Table>> {
    // Before anything is taken back: it may have been moved to another tree since.
    let known = match load_tables(transactions, home) {
        // What it needs may be taken back with the rest.
        Err(_) if transactions.storage.is_giving_up() => None,
        tables => Some(tables?),
    };
    let began = Instant::now();
    while some_losers_are_left(transactions)? && !inline && began.elapsed() < LOSERS_TIME_AT_OPEN {}
    if transactions.storage.is_giving_up() {
        // All of it now: nobody works with a database whose damage isn't known yet.
        transactions.storage.finish_recovery()?;
        while transactions.roll_back_losers(LOSERS_STEP_WRITES)? {}
        transactions.storage.end_giving_up()?;
    }
    known.map_or_else(|| load_tables(transactions, home), Ok)
}

/// Starts the endpoint that tells the database's figures.
fn listen(at: &Address, transactions: &Arc<Transactions>) -> Result<Server> {
    let transactions = transactions.clone();
    Server::start(at, move || Status::of(&transactions).figures())
        .map_err(|error| Error::Options { option: "status_listen", what: format!("{at}: {error}") })
}

/// Takes back some of what was not committed, while a database opens; whether there is more to do
/// now. What finds no space is taken back when there is some: a database that doesn't open lets
/// nobody make any.
fn some_losers_are_left(transactions: &Arc<Transactions>) -> Result<bool> {
    // One at a time: the pages that it changes may each lack much of the log.
    match transactions.roll_back_losers(1) {
        Err(TxnError::Fault(full)) if full.is_no_space() => Ok(false),
        result => Ok(result?),
    }
}

fn start_failed(name: &str, error: std::io::Error) -> Error {
    weir_os::DiskError::new("start of background threads", name, error).into()
}

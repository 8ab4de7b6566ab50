//! LMDB: a copy-on-write B+tree in a memory map, one writer at a time.
//!
//! Each index of each table is a named database of one environment. Rows arrive in key order, which
//! LMDB is told (`MDB_APPEND`).
//!
//! LMDB has no log: it writes whole pages at every commit. With `write` and `relaxed` that is not
//! synced (`MDB_NOSYNC`): a crash of the machine, not of the process, may lose the last commits,
//! and nothing else "if the filesystem preserves write order and the MDB_WRITEMAP flag is not used"
//! (`lmdb.h`). So that flag is an engine of its own here, `lmdb-writemap`: it spares LMDB a copy
//! and a system call per changed page, and a crash of the machine may leave a broken database. Its
//! cache is the page cache, which no setting limits.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::codec::{Key, Value};
use super::kv::{KvSession, KvStore};
use crate::engine::{Durability, Engine, EngineInfo, EngineOptions, Index, Session};
use crate::error::{Error, Result};
use crate::every_second::EverySecond;
use crate::row::Secondary;

const NAME: &str = "lmdb";
/// Address space, not memory: the file grows as needed.
const MAP_BYTES: usize = 256 << 30;

/// The part of `lmdb.h` (0.9) that is used here.
mod ffi {
    use super::*;

    pub enum Env {}
    pub enum Txn {}
    pub enum Cursor {}
    pub type Dbi = c_uint;

    #[repr(C)]
    pub struct Val {
        pub size: usize,
        pub data: *mut c_void,
    }

    pub const NOSYNC: c_uint = 0x10000;
    pub const RDONLY: c_uint = 0x20000;
    pub const WRITEMAP: c_uint = 0x80000;
    pub const NOTLS: c_uint = 0x200000;
    pub const NORDAHEAD: c_uint = 0x800000;
    pub const NOMEMINIT: c_uint = 0x1000000;
    pub const CREATE: c_uint = 0x40000;
    pub const APPEND: c_uint = 0x20000;
    pub const NOTFOUND: c_int = -30798;
    pub const FIRST: c_int = 0;
    pub const NEXT: c_int = 8;
    pub const SET_RANGE: c_int = 17;

    #[link(name = "lmdb")]
    unsafe extern "C" {
        pub fn mdb_version(
            major: *mut c_int,
            minor: *mut c_int,
            patch: *mut c_int,
        ) -> *const c_char;
        pub fn mdb_strerror(error: c_int) -> *const c_char;
        pub fn mdb_env_create(env: *mut *mut Env) -> c_int;
        pub fn mdb_env_open(
            env: *mut Env,
            path: *const c_char,
            flags: c_uint,
            mode: c_uint,
        ) -> c_int;
        pub fn mdb_env_sync(env: *mut Env, force: c_int) -> c_int;
        pub fn mdb_env_close(env: *mut Env);
        pub fn mdb_env_set_mapsize(env: *mut Env, size: usize) -> c_int;
        pub fn mdb_env_set_maxreaders(env: *mut Env, readers: c_uint) -> c_int;
        pub fn mdb_env_set_maxdbs(env: *mut Env, dbs: Dbi) -> c_int;
        pub fn mdb_txn_begin(
            env: *mut Env,
            parent: *mut Txn,
            flags: c_uint,
            txn: *mut *mut Txn,
        ) -> c_int;
        pub fn mdb_txn_commit(txn: *mut Txn) -> c_int;
        pub fn mdb_txn_abort(txn: *mut Txn);
        pub fn mdb_txn_reset(txn: *mut Txn);
        pub fn mdb_txn_renew(txn: *mut Txn) -> c_int;
        pub fn mdb_dbi_open(
            txn: *mut Txn,
            name: *const c_char,
            flags: c_uint,
            dbi: *mut Dbi,
        ) -> c_int;
        pub fn mdb_get(txn: *mut Txn, dbi: Dbi, key: *mut Val, data: *mut Val) -> c_int;
        pub fn mdb_put(
            txn: *mut Txn,
            dbi: Dbi,
            key: *mut Val,
            data: *mut Val,
            flags: c_uint,
        ) -> c_int;
        pub fn mdb_del(txn: *mut Txn, dbi: Dbi, key: *mut Val, data: *mut Val) -> c_int;
        pub fn mdb_cursor_open(txn: *mut Txn, dbi: Dbi, cursor: *mut *mut Cursor) -> c_int;
        pub fn mdb_cursor_close(cursor: *mut Cursor);
        pub fn mdb_cursor_renew(txn: *mut Txn, cursor: *mut Cursor) -> c_int;
        pub fn mdb_cursor_get(
            cursor: *mut Cursor,
            key: *mut Val,
            data: *mut Val,
            operation: c_int,
        ) -> c_int;
    }
}

impl ffi::Val {
    fn of(bytes: &[u8]) -> Self {
        ffi::Val { size: bytes.len(), data: bytes.as_ptr() as *mut c_void }
    }

    fn empty() -> Self {
        ffi::Val { size: 0, data: null_mut() }
    }

    /// The bytes that LMDB points to.
    ///
    /// # Safety
    /// LMDB must have set the value, and the transaction that it belongs to must neither end nor
    /// write while the slice is used.
    unsafe fn bytes<'a>(&self) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: as this function demands.
        unsafe { std::slice::from_raw_parts(self.data.cast(), self.size) }
    }
}

fn check(operation: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: mdb_strerror returns a string with static lifetime for every code.
    let message = unsafe { CStr::from_ptr(ffi::mdb_strerror(code)) };
    Err(Error::engine(NAME, operation, message.to_string_lossy()))
}

/// The environment; closed when dropped.
struct Env(*mut ffi::Env);

// SAFETY: an LMDB environment may be used by any number of threads at once.
unsafe impl Send for Env {}
// SAFETY: as above.
unsafe impl Sync for Env {}

impl Drop for Env {
    fn drop(&mut self) {
        // SAFETY: created by mdb_env_create; sessions borrow the engine, so that none is left.
        unsafe { ffi::mdb_env_close(self.0) }
    }
}

struct Table {
    dbis: [ffi::Dbi; 4],
    indexed: AtomicBool,
}

pub(super) struct Lmdb {
    // Before `env`: dropped first, so that the thread never syncs a closed environment.
    syncer: Option<EverySecond>,
    tables: Vec<Table>,
    env: Arc<Env>,
    flags: c_uint,
}

impl Lmdb {
    pub(super) fn open(options: &EngineOptions, writemap: bool) -> Result<Self> {
        let path = CString::new(options.dir.as_os_str().as_bytes())
            .map_err(|_| Error::engine(NAME, "open", "a path with a zero byte"))?;
        let mut flags = ffi::NOTLS | ffi::NORDAHEAD | ffi::NOMEMINIT;
        if options.durability != Durability::Sync {
            flags |= ffi::NOSYNC;
        }
        if writemap {
            flags |= ffi::WRITEMAP;
        }
        let mut raw = null_mut();
        // SAFETY: plain calls on a new environment, in the order that LMDB documents.
        let env = unsafe {
            check("create environment", ffi::mdb_env_create(&mut raw))?;
            let env = Env(raw);
            check("map size", ffi::mdb_env_set_mapsize(raw, MAP_BYTES))?;
            check("readers", ffi::mdb_env_set_maxreaders(raw, 4 * options.clients + 16))?;
            check("databases", ffi::mdb_env_set_maxdbs(raw, 4 * options.clients))?;
            check("open", ffi::mdb_env_open(raw, path.as_ptr(), flags, 0o644))?;
            Arc::new(env)
        };
        let tables = open_tables(&env, options.clients)?;
        let syncer = (options.durability == Durability::Relaxed).then(|| {
            let env = Arc::clone(&env);
            EverySecond::start("lmdb-sync", move || {
                // SAFETY: the closure keeps the environment open.
                let code = unsafe { ffi::mdb_env_sync(env.0, 1) };
                check("sync", code)
            })
        });
        Ok(Lmdb { syncer, tables, env, flags })
    }
}

fn open_tables(env: &Env, clients: u32) -> Result<Vec<Table>> {
    let mut txn = null_mut();
    let mut tables = Vec::new();
    // SAFETY: one write transaction on this thread; handles are valid for all once it is committed.
    unsafe {
        check("begin", ffi::mdb_txn_begin(env.0, null_mut(), 0, &mut txn))?;
        for table in 1..=clients {
            let mut dbis = [0; 4];
            for (dbi, index) in dbis.iter_mut().zip(Index::ALL) {
                let name = CString::new(format!("purchases{table}.{}", index.name()))
                    .expect("no zero byte in a table's name");
                let code = ffi::mdb_dbi_open(txn, name.as_ptr(), ffi::CREATE, dbi);
                if code != 0 {
                    ffi::mdb_txn_abort(txn);
                }
                check("open database", code)?;
            }
            tables.push(Table { dbis, indexed: AtomicBool::new(false) });
        }
        check("commit", ffi::mdb_txn_commit(txn))?;
    }
    Ok(tables)
}

impl Engine for Lmdb {
    fn info(&self) -> EngineInfo {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: three valid places for three numbers.
        unsafe { ffi::mdb_version(&mut major, &mut minor, &mut patch) };
        let mut settings = vec!["MDB_NOTLS".into(), "MDB_NORDAHEAD".into(), "MDB_NOMEMINIT".into()];
        let mut notes = vec!["LMDB's cache is the page cache: the memory limit is not kept".into()];
        let (unsynced, writemap) = (self.flags & ffi::NOSYNC != 0, self.flags & ffi::WRITEMAP != 0);
        if unsynced {
            settings.push("MDB_NOSYNC".into());
        }
        if writemap {
            settings.push("MDB_WRITEMAP".into());
        }
        if unsynced && writemap {
            let note = "it may be left broken by a crash of the machine, not just older";
            notes.push(note.into());
        }
        let version = format!("{major}.{minor}.{patch}");
        let name = if writemap { "lmdb-writemap" } else { NAME };
        EngineInfo { name: name.into(), version, settings, notes }
    }

    fn create_table(&self, table: u32, indexed: bool) -> Result<()> {
        self.tables[table as usize].indexed.store(indexed, Ordering::Relaxed);
        Ok(())
    }

    fn session(&self, table: u32) -> Result<Box<dyn Session + '_>> {
        let table = &self.tables[table as usize];
        let mut reader = null_mut();
        // SAFETY: a read transaction of this thread, reset until it is needed.
        unsafe {
            let code = ffi::mdb_txn_begin(self.env.0, null_mut(), ffi::RDONLY, &mut reader);
            check("begin reading", code)?;
            ffi::mdb_txn_reset(reader);
        }
        let cursors = [null_mut(); 4];
        Ok(Box::new(KvSession::new(LmdbStore {
            env: &self.env,
            table,
            reader,
            cursors,
            writer: null_mut(),
        })))
    }

    fn unwritten_bytes(&self) -> Option<u64> {
        // Each commit hands its pages to the system.
        Some(0)
    }

    fn close(self: Box<Self>) -> Result<()> {
        if let Some(syncer) = self.syncer {
            syncer.stop()?;
        }
        // SAFETY: the environment is open until `self.env` is dropped.
        check("sync", unsafe { ffi::mdb_env_sync(self.env.0, 1) })
    }
}

/// One client's transactions. The reader is kept and renewed for each read, its cursors with it.
struct LmdbStore<'a> {
    env: &'a Env,
    table: &'a Table,
    reader: *mut ffi::Txn,
    cursors: [*mut ffi::Cursor; 4],
    writer: *mut ffi::Txn,
}

impl LmdbStore<'_> {
    fn dbi(&self, index: Index) -> ffi::Dbi {
        self.table.dbis[index.position()]
    }

    /// Runs `work` with the reader on the newest snapshot.
    fn reading<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        // SAFETY: the reader is reset, so it may be renewed; it is reset again below.
        check("begin reading", unsafe { ffi::mdb_txn_renew(self.reader) })?;
        let done = work(self);
        // SAFETY: it was renewed above.
        unsafe { ffi::mdb_txn_reset(self.reader) };
        done
    }

    /// A cursor of the renewed reader.
    fn cursor(&mut self, index: Index) -> Result<*mut ffi::Cursor> {
        let (dbi, reader) = (self.dbi(index), self.reader);
        let cursor = &mut self.cursors[index.position()];
        // SAFETY: cursors of read transactions may be renewed for as long as they are not closed.
        let code = unsafe {
            if cursor.is_null() {
                ffi::mdb_cursor_open(reader, dbi, cursor)
            } else {
                ffi::mdb_cursor_renew(reader, *cursor)
            }
        };
        check("open cursor", code)?;
        Ok(*cursor)
    }
}

impl Drop for LmdbStore<'_> {
    fn drop(&mut self) {
        self.abort();
        // SAFETY: cursors of read transactions are closed by their owner, before the transaction.
        unsafe {
            for cursor in self.cursors.into_iter().filter(|cursor| !cursor.is_null()) {
                ffi::mdb_cursor_close(cursor);
            }
            ffi::mdb_txn_abort(self.reader);
        }
    }
}

impl KvStore for LmdbStore<'_> {
    const NAME: &'static str = NAME;

    fn is_indexed(&self) -> bool {
        self.table.indexed.load(Ordering::Relaxed)
    }

    fn set_indexed(&mut self) {
        self.table.indexed.store(true, Ordering::Relaxed);
    }

    fn begin(&mut self) -> Result<()> {
        // SAFETY: no write transaction is open in this session; LMDB waits for those of others.
        check("begin", unsafe { ffi::mdb_txn_begin(self.env.0, null_mut(), 0, &mut self.writer) })
    }

    fn put(&mut self, index: Index, key: &[u8], value: &[u8]) -> Result<()> {
        let flags = if index == Index::Primary { ffi::APPEND } else { 0 };
        let (mut key, mut value) = (ffi::Val::of(key), ffi::Val::of(value));
        // SAFETY: the writer is open; LMDB copies key and value.
        let code =
            unsafe { ffi::mdb_put(self.writer, self.dbi(index), &mut key, &mut value, flags) };
        check("put", code)
    }

    fn read(&mut self, key: &[u8]) -> Result<Option<Value>> {
        let (mut key, mut value) = (ffi::Val::of(key), ffi::Val::empty());
        let dbi = self.dbi(Index::Primary);
        // SAFETY: the writer is open and does not write before the value is copied.
        unsafe {
            match ffi::mdb_get(self.writer, dbi, &mut key, &mut value) {
                ffi::NOTFOUND => Ok(None),
                code => check("get", code).map(|()| Value::copy(value.bytes())),
            }
        }
    }

    fn delete(&mut self, index: Index, key: &[u8]) -> Result<()> {
        let mut key = ffi::Val::of(key);
        // SAFETY: the writer is open; without duplicates the data is not looked at.
        let code = unsafe { ffi::mdb_del(self.writer, self.dbi(index), &mut key, null_mut()) };
        check("delete", code)
    }

    fn commit(&mut self) -> Result<()> {
        let writer = std::mem::replace(&mut self.writer, null_mut());
        // SAFETY: the writer was open; LMDB frees it whatever it returns.
        check("commit", unsafe { ffi::mdb_txn_commit(writer) })
    }

    fn abort(&mut self) {
        let writer = std::mem::replace(&mut self.writer, null_mut());
        if !writer.is_null() {
            // SAFETY: the writer was open.
            unsafe { ffi::mdb_txn_abort(writer) }
        }
    }

    fn get<T>(&mut self, key: &[u8], with: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.reading(|store| {
            let (mut key, mut value) = (ffi::Val::of(key), ffi::Val::empty());
            let dbi = store.dbi(Index::Primary);
            // SAFETY: the reader is renewed and stays so while the value is used.
            unsafe {
                match ffi::mdb_get(store.reader, dbi, &mut key, &mut value) {
                    ffi::NOTFOUND => Ok(None),
                    code => check("get", code).map(|()| Some(with(value.bytes()))),
                }
            }
        })
    }

    fn iterate(
        &mut self,
        index: Index,
        from: &[u8],
        _long: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        self.reading(|store| {
            let cursor = store.cursor(index)?;
            let (mut key, mut value) = (ffi::Val::of(from), ffi::Val::empty());
            let first = if from.is_empty() { ffi::FIRST } else { ffi::SET_RANGE };
            // SAFETY: the reader is renewed and stays so while keys and values are used.
            unsafe {
                let mut code = ffi::mdb_cursor_get(cursor, &mut key, &mut value, first);
                while code == 0 && visit(key.bytes(), value.bytes()) {
                    code = ffi::mdb_cursor_get(cursor, &mut key, &mut value, ffi::NEXT);
                }
                if code == ffi::NOTFOUND { Ok(()) } else { check("scan", code) }
            }
        })
    }

    fn fill(&mut self, index: Secondary, keys: &[Key], whole: bool) -> Result<()> {
        let dbi = self.dbi(Index::Secondary(index));
        let flags = if whole { ffi::APPEND } else { 0 };
        // LMDB keeps a list of a transaction's pages: very large ones get slow.
        for part in keys.chunks(1_000_000) {
            self.begin()?;
            for key in part {
                let (mut key, mut value) = (ffi::Val::of(key.as_slice()), ffi::Val::empty());
                // SAFETY: the writer is open; LMDB copies the key, the value is empty.
                let code = unsafe { ffi::mdb_put(self.writer, dbi, &mut key, &mut value, flags) };
                if code != 0 {
                    self.abort();
                }
                check("fill index", code)?;
            }
            self.commit()?;
        }
        Ok(())
    }

    fn sort_limit(&self) -> usize {
        usize::MAX
    }
}

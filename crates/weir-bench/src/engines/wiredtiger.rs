//! WiredTiger: a B+tree with a log and checkpoints, as MongoDB uses it.
//!
//! Each index of each table is a table of WiredTiger's, configured as MongoDB configures its
//! collections (compressed) and indexes (prefix compression, 16 KiB pages). One session per client,
//! with one cursor per index. A checkpoint starts whenever the log has grown by the redo capacity;
//! until then, half of the cache may be dirty (`eviction_dirty_target`), which doubles the rate of
//! a load that fits into memory compared with the default of 5 %.
//!
//! Durability: `sync` syncs the log at commit; `write` hands it to the system at commit
//! (`method=none`); `relaxed` leaves it in WiredTiger's buffers and syncs it once a second.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::codec::{Key, Value};
use super::kv::{KvSession, KvStore};
use crate::engine::{Durability, Engine, EngineInfo, EngineOptions, Index, Session};
use crate::error::{Error, Result};
use crate::every_second::EverySecond;
use crate::quantity::format_bytes;
use crate::row::Secondary;

const NAME: &str = "wiredtiger";
const ROWS: &str = "key_format=u,value_format=u,memory_page_max=10MB,split_pct=90";
const ENTRIES: &str = "key_format=u,value_format=u,internal_page_max=16KB,leaf_page_max=16KB,\
                       memory_page_max=10MB,prefix_compression=true";

/// The functions of `wiredtiger.c`.
mod ffi {
    use super::*;

    pub enum Connection {}
    pub enum Session {}
    pub enum Cursor {}

    unsafe extern "C" {
        pub fn wiredtiger_strerror(code: c_int) -> *const c_char;
        pub fn weir_wt_version() -> *const c_char;
        pub fn weir_wt_not_found() -> c_int;
        pub fn weir_wt_rollback() -> c_int;
        pub fn weir_wt_open(
            home: *const c_char,
            config: *const c_char,
            connection: *mut *mut Connection,
        ) -> c_int;
        pub fn weir_wt_close(connection: *mut Connection) -> c_int;
        pub fn weir_wt_session(connection: *mut Connection, session: *mut *mut Session) -> c_int;
        pub fn weir_wt_session_close(session: *mut Session) -> c_int;
        pub fn weir_wt_create(
            session: *mut Session,
            uri: *const c_char,
            config: *const c_char,
        ) -> c_int;
        pub fn weir_wt_cursor(
            session: *mut Session,
            uri: *const c_char,
            config: *const c_char,
            cursor: *mut *mut Cursor,
        ) -> c_int;
        pub fn weir_wt_cursor_close(cursor: *mut Cursor) -> c_int;
        pub fn weir_wt_begin(session: *mut Session) -> c_int;
        pub fn weir_wt_commit(session: *mut Session) -> c_int;
        pub fn weir_wt_abort(session: *mut Session) -> c_int;
        pub fn weir_wt_log_flush(session: *mut Session) -> c_int;
        pub fn weir_wt_insert(
            cursor: *mut Cursor,
            key: *const c_void,
            key_size: usize,
            value: *const c_void,
            value_size: usize,
        ) -> c_int;
        pub fn weir_wt_remove(cursor: *mut Cursor, key: *const c_void, size: usize) -> c_int;
        pub fn weir_wt_search(cursor: *mut Cursor, key: *const c_void, size: usize) -> c_int;
        pub fn weir_wt_seek(cursor: *mut Cursor, key: *const c_void, size: usize) -> c_int;
        pub fn weir_wt_next(cursor: *mut Cursor) -> c_int;
        pub fn weir_wt_reset(cursor: *mut Cursor) -> c_int;
        pub fn weir_wt_key(
            cursor: *mut Cursor,
            data: *mut *const c_void,
            size: *mut usize,
        ) -> c_int;
        pub fn weir_wt_value(
            cursor: *mut Cursor,
            data: *mut *const c_void,
            size: *mut usize,
        ) -> c_int;
    }
}

fn check(operation: &str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: wiredtiger_strerror returns a string for every code; it is copied at once.
    let message = unsafe { CStr::from_ptr(ffi::wiredtiger_strerror(code)) };
    let message = message.to_string_lossy().into_owned();
    // SAFETY: a function without arguments that returns a constant.
    if code == unsafe { ffi::weir_wt_rollback() } {
        return Err(Error::Conflict { engine: NAME, message });
    }
    Err(Error::engine(NAME, operation, message))
}

fn text(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text).expect("no zero byte in what this adapter writes")
}

/// The connection; closed, with a checkpoint, when dropped.
struct Connection(*mut ffi::Connection);

// SAFETY: a WiredTiger connection may be used by any number of threads at once.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

impl Connection {
    fn session(&self) -> Result<WtSession> {
        let mut session = null_mut();
        // SAFETY: the connection is open.
        check("open session", unsafe { ffi::weir_wt_session(self.0, &mut session) })?;
        Ok(WtSession(session))
    }

    fn close(mut self) -> Result<()> {
        let connection = std::mem::replace(&mut self.0, null_mut());
        // SAFETY: it was open, and is never used again.
        check("close", unsafe { ffi::weir_wt_close(connection) })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: it is open; sessions borrow the engine, so that none is left.
            unsafe { ffi::weir_wt_close(self.0) };
        }
    }
}

/// A session, for one thread.
struct WtSession(*mut ffi::Session);

impl WtSession {
    fn cursor(&self, uri: &CStr, config: Option<&CStr>) -> Result<*mut ffi::Cursor> {
        let (config, mut cursor) = (config.map_or(null(), CStr::as_ptr), null_mut());
        // SAFETY: the session is open, the texts end with a zero.
        let code = unsafe { ffi::weir_wt_cursor(self.0, uri.as_ptr(), config, &mut cursor) };
        check("open cursor", code)?;
        Ok(cursor)
    }
}

impl Drop for WtSession {
    fn drop(&mut self) {
        // SAFETY: it is open; closing it closes its cursors too.
        unsafe { ffi::weir_wt_session_close(self.0) };
    }
}

/// The most that WiredTiger takes as the size of log after which it makes a checkpoint.
const LOG_BYTES_MAX: u64 = 2 << 30;

fn notes(redo_bytes: u64) -> Vec<String> {
    let mut notes = vec!["WiredTiger also uses the page cache, beyond the memory limit".into()];
    if redo_bytes > LOG_BYTES_MAX {
        let (most, asked) = (format_bytes(LOG_BYTES_MAX), format_bytes(redo_bytes));
        notes.push(format!(
            "WiredTiger makes a checkpoint after {most} of log, the most that it takes, not {asked}"
        ));
    }
    notes
}

pub(super) struct WiredTiger {
    // Before the connection: dropped first, so that the thread never uses a closed one.
    syncer: Option<EverySecond>,
    connection: Arc<Connection>,
    config: String,
    compressor: Option<&'static str>,
    indexed: Vec<AtomicBool>,
    sort_limit: usize,
    redo_bytes: u64,
}

impl WiredTiger {
    pub(super) fn open(options: &EngineOptions) -> Result<Self> {
        let sync = match options.durability {
            Durability::Sync => "enabled=true,method=fsync",
            Durability::Write => "enabled=true,method=none",
            Durability::Relaxed => "enabled=false",
        };
        let compressor = snappy();
        let extension =
            compressor.map_or(String::new(), |path| format!(",extensions=[\"{path}\"]"));
        let config = format!(
            "create,cache_size={},log=(enabled=true,file_max={}),transaction_sync=({sync}),\
             checkpoint=(log_size={}),eviction=(threads_min=1,threads_max={}),\
             eviction_dirty_target=50,eviction_dirty_trigger=80,session_max={}{extension}",
            options.memory_bytes,
            (options.redo_bytes / 4).clamp(1 << 20, 1 << 30),
            options.redo_bytes.min(LOG_BYTES_MAX),
            eviction_threads(),
            4 * options.clients + 100,
        );
        let home = text(options.dir.as_os_str().as_bytes());
        let mut raw = null_mut();
        let code = {
            let config = text(config.as_str());
            // SAFETY: both texts end with a zero and live during the call.
            unsafe { ffi::weir_wt_open(home.as_ptr(), config.as_ptr(), &mut raw) }
        };
        check("open", code)?;
        let connection = Arc::new(Connection(raw));
        let syncer =
            (options.durability == Durability::Relaxed).then(|| sync_every_second(&connection));
        Ok(WiredTiger {
            syncer,
            connection,
            config,
            compressor,
            indexed: (0..options.clients).map(|_| AtomicBool::new(false)).collect(),
            sort_limit: options.memory_bytes as usize
                / (4 * size_of::<Key>() * options.clients as usize),
            redo_bytes: options.redo_bytes,
        })
    }
}

fn sync_every_second(connection: &Arc<Connection>) -> EverySecond {
    let connection = Arc::clone(connection);
    EverySecond::start("wiredtiger-sync", move || {
        let session = connection.session()?;
        // SAFETY: the session is open.
        check("log flush", unsafe { ffi::weir_wt_log_flush(session.0) })
    })
}

/// As many as processors; WiredTiger takes 4 to 20.
fn eviction_threads() -> usize {
    std::thread::available_parallelism().map_or(4, |processors| processors.get().clamp(4, 20))
}

/// The library that compresses blocks, when it is installed.
fn snappy() -> Option<&'static str> {
    let places =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib", "/usr/lib64"];
    let paths = places.map(|place| format!("{place}/libwiredtiger_snappy.so"));
    let found = paths.into_iter().find(|path| Path::new(path).exists())?;
    Some(found.leak())
}

fn uri(table: u32, index: Index) -> CString {
    text(format!("table:purchases{}_{}", table + 1, index.name()))
}

impl Engine for WiredTiger {
    fn info(&self) -> EngineInfo {
        // SAFETY: the version is a constant text.
        let version = unsafe { CStr::from_ptr(ffi::weir_wt_version()) }.to_string_lossy();
        let number = version.split_whitespace().nth(1).unwrap_or(&version);
        EngineInfo {
            name: NAME.into(),
            version: number.trim_end_matches(':').into(),
            settings: vec![
                self.config.clone(),
                format!("rows: {}", self.row_config()),
                format!("indexes: {ENTRIES}"),
            ],
            notes: notes(self.redo_bytes),
        }
    }

    fn create_table(&self, table: u32, indexed: bool) -> Result<()> {
        let session = self.connection.session()?;
        for index in Index::ALL {
            let config = match index {
                Index::Primary => text(self.row_config()),
                Index::Secondary(_) => text(ENTRIES),
            };
            let uri = uri(table, index);
            // SAFETY: the session is open, the texts end with a zero.
            let code = unsafe { ffi::weir_wt_create(session.0, uri.as_ptr(), config.as_ptr()) };
            check("create table", code)?;
        }
        self.indexed[table as usize].store(indexed, Ordering::Relaxed);
        Ok(())
    }

    fn session(&self, table: u32) -> Result<Box<dyn Session + '_>> {
        let session = self.connection.session()?;
        let cursors = [null_mut(); 4];
        Ok(Box::new(KvSession::new(WtStore { engine: self, session, cursors, table, open: false })))
    }

    fn close(self: Box<Self>) -> Result<()> {
        if let Some(syncer) = self.syncer {
            syncer.stop()?;
        }
        let connection = Arc::into_inner(self.connection);
        connection.expect("only the syncer shared it, and it has ended").close()
    }
}

impl WiredTiger {
    fn row_config(&self) -> String {
        let compressor = if self.compressor.is_some() { ",block_compressor=snappy" } else { "" };
        format!("{ROWS}{compressor}")
    }
}

struct WtStore<'a> {
    engine: &'a WiredTiger,
    session: WtSession,
    /// Opened when first used: an index can be filled in bulk only while nobody has it open.
    cursors: [*mut ffi::Cursor; 4],
    table: u32,
    /// Whether a transaction is.
    open: bool,
}

impl WtStore<'_> {
    fn cursor(&mut self, index: Index) -> Result<*mut ffi::Cursor> {
        let position = index.position();
        if self.cursors[position].is_null() {
            self.cursors[position] = self.session.cursor(&uri(self.table, index), None)?;
        }
        Ok(self.cursors[position])
    }

    /// Looks up a row and lets go of it again.
    fn lookup<T>(&mut self, key: &[u8], with: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let cursor = self.cursor(Index::Primary)?;
        // SAFETY: the cursor is open; the value is used before the cursor moves.
        unsafe {
            let code = ffi::weir_wt_search(cursor, key.as_ptr().cast(), key.len());
            if code == ffi::weir_wt_not_found() {
                return Ok(None);
            }
            check("search", code)?;
            let found = with(part(cursor, ffi::weir_wt_value)?);
            check("reset", ffi::weir_wt_reset(cursor))?;
            Ok(Some(found))
        }
    }
}

type Part = unsafe extern "C" fn(*mut ffi::Cursor, *mut *const c_void, *mut usize) -> c_int;

/// Key or value at a cursor.
///
/// # Safety
/// The cursor must be open and on an entry, and must not move while the slice is used.
unsafe fn part<'a>(cursor: *mut ffi::Cursor, get: Part) -> Result<&'a [u8]> {
    let (mut data, mut size) = (null(), 0);
    // SAFETY: as this function demands; an empty part may have no address.
    unsafe {
        check("get", get(cursor, &mut data, &mut size))?;
        Ok(if size == 0 { &[] } else { std::slice::from_raw_parts(data.cast(), size) })
    }
}

impl Drop for WtStore<'_> {
    fn drop(&mut self) {
        self.abort();
    }
}

impl KvStore for WtStore<'_> {
    const NAME: &'static str = NAME;

    fn is_indexed(&self) -> bool {
        self.engine.indexed[self.table as usize].load(Ordering::Relaxed)
    }

    fn set_indexed(&mut self) {
        self.engine.indexed[self.table as usize].store(true, Ordering::Relaxed);
    }

    fn begin(&mut self) -> Result<()> {
        // SAFETY: the session is open and has no transaction.
        check("begin", unsafe { ffi::weir_wt_begin(self.session.0) })?;
        self.open = true;
        Ok(())
    }

    fn put(&mut self, index: Index, key: &[u8], value: &[u8]) -> Result<()> {
        let cursor = self.cursor(index)?;
        let (data, size) = (value.as_ptr().cast(), value.len());
        // SAFETY: the cursor is open; WiredTiger copies key and value.
        let code =
            unsafe { ffi::weir_wt_insert(cursor, key.as_ptr().cast(), key.len(), data, size) };
        check("insert", code)
    }

    fn read(&mut self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.lookup(key, Value::copy)?.flatten())
    }

    fn delete(&mut self, index: Index, key: &[u8]) -> Result<()> {
        let cursor = self.cursor(index)?;
        // SAFETY: the cursor is open.
        let code = unsafe { ffi::weir_wt_remove(cursor, key.as_ptr().cast(), key.len()) };
        check("remove", code)
    }

    fn commit(&mut self) -> Result<()> {
        self.open = false;
        // SAFETY: the session has a transaction; it ends, whatever is returned.
        check("commit", unsafe { ffi::weir_wt_commit(self.session.0) })
    }

    fn abort(&mut self) {
        if std::mem::replace(&mut self.open, false) {
            // SAFETY: the session has a transaction.
            unsafe { ffi::weir_wt_abort(self.session.0) };
        }
    }

    fn get<T>(&mut self, key: &[u8], with: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        self.lookup(key, with)
    }

    fn iterate(
        &mut self,
        index: Index,
        from: &[u8],
        _long: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let cursor = self.cursor(index)?;
        // SAFETY: the cursor is open; key and value are used before it moves.
        unsafe {
            let mut code = if from.is_empty() {
                check("reset", ffi::weir_wt_reset(cursor))?;
                ffi::weir_wt_next(cursor)
            } else {
                ffi::weir_wt_seek(cursor, from.as_ptr().cast(), from.len())
            };
            let end = ffi::weir_wt_not_found();
            while code != end {
                check("scan", code)?;
                let (key, value) =
                    (part(cursor, ffi::weir_wt_key)?, part(cursor, ffi::weir_wt_value)?);
                if !visit(key, value) {
                    break;
                }
                code = ffi::weir_wt_next(cursor);
            }
            check("reset", ffi::weir_wt_reset(cursor))
        }
    }

    fn fill(&mut self, index: Secondary, keys: &[Key], whole: bool) -> Result<()> {
        let uri = uri(self.table, Index::Secondary(index));
        let bulk = whole.then_some(c"bulk");
        let cursor = self.session.cursor(&uri, bulk)?;
        for key in keys {
            let key = key.as_slice();
            // SAFETY: the cursor is open; WiredTiger copies the key, the value is empty.
            let code =
                unsafe { ffi::weir_wt_insert(cursor, key.as_ptr().cast(), key.len(), null(), 0) };
            check("fill index", code)?;
        }
        // SAFETY: the cursor is open, and is never used again.
        check("close cursor", unsafe { ffi::weir_wt_cursor_close(cursor) })
    }

    fn sort_limit(&self) -> usize {
        self.engine.sort_limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_more_than_it_takes_is_noted() {
        assert_eq!(notes(2 << 30).len(), 1);
        assert!(notes(4 << 30)[1].contains("after 2G of log, the most that it takes, not 4G"));
    }
}

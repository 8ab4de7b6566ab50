//! RocksDB: a log-structured merge tree.
//!
//! One column family per index, shared by all tables; keys begin with the number of the table. So
//! primary keys, which arrive in order, move down the levels without being rewritten. Each client
//! owns its table, so that a `WriteBatch` is all the transaction it needs: atomic, without locks,
//! which is the quickest that RocksDB has. Index entries are written once and deleted once:
//! `SingleDelete`.
//!
//! Reads and compactions go past the page cache where the file system lets them, so that the memory
//! limit is kept; a quarter of the memory is for memtables.
//!
//! Durability: `sync` syncs the log at commit; `write` hands it to the system at commit; `relaxed`
//! keeps it in RocksDB's buffer and syncs it once a second. Log files are not recycled, which would
//! make syncs cheaper: RocksDB 7.8 turns that off (`recycle_log_file_num` is 0 again) but in the
//! recovery mode that skips over damage.

use std::ffi::{CStr, CString, c_char, c_int};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};

use super::codec::{KEY_MAX, Key, Value};
use super::kv::{KvSession, KvStore};
use crate::engine::{Durability, Engine, EngineInfo, EngineOptions, Index, Session};
use crate::error::{Error, Result};
use crate::every_second::EverySecond;
use crate::row::Secondary;

const NAME: &str = "rocksdb";
const PREFIX: usize = 4;

mod ffi;

/// Calls `work` with the place for an error text and turns what it leaves there into an error.
fn checked<T>(operation: &str, work: impl FnOnce(*mut *mut c_char) -> T) -> Result<T> {
    let mut error = null_mut();
    let done = work(&mut error);
    if error.is_null() {
        return Ok(done);
    }
    // SAFETY: RocksDB left a text that ends with a zero and is ours to free.
    unsafe {
        let message = CStr::from_ptr(error).to_string_lossy().into_owned();
        ffi::rocksdb_free(error.cast());
        Err(Error::engine(NAME, operation, message))
    }
}

/// The open database with its column families; closed when dropped.
struct Db {
    raw: *mut ffi::rocksdb_t,
    cfs: [*mut ffi::cf_t; 4],
    cf_options: [*mut ffi::options_t; 2],
    cache: *mut ffi::cache_t,
    write_options: *mut ffi::write_options_t,
}

// SAFETY: a RocksDB database, its handles and its options may be used by many threads at once.
unsafe impl Send for Db {}
// SAFETY: as above.
unsafe impl Sync for Db {}

impl Db {
    /// A figure of a column family.
    fn property(&self, cf: *mut ffi::cf_t, name: &CStr) -> Option<u64> {
        let mut value = 0;
        // SAFETY: database and column family are open, the name ends with a zero, the place is
        // valid.
        let code = unsafe { ffi::rocksdb_property_int_cf(self.raw, cf, name.as_ptr(), &mut value) };
        (code == 0).then_some(value)
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        // SAFETY: everything was created by `open`, the database itself unless that failed, and
        // sessions, which borrow the engine, are gone.
        unsafe {
            if !self.raw.is_null() {
                for cf in self.cfs {
                    ffi::rocksdb_column_family_handle_destroy(cf);
                }
                ffi::rocksdb_close(self.raw);
            }
            for options in self.cf_options {
                ffi::rocksdb_options_destroy(options);
            }
            ffi::rocksdb_cache_destroy(self.cache);
            ffi::rocksdb_writeoptions_destroy(self.write_options);
        }
    }
}

pub(super) struct RocksDb {
    // Before `db`: dropped first, so that the thread never uses a closed database.
    syncer: Option<EverySecond>,
    db: Arc<Db>,
    dir: PathBuf,
    direct: bool,
    memory: Memory,
    indexed: Vec<AtomicBool>,
    sort_limit: usize,
}

/// How the memory is divided.
#[derive(Clone, Copy)]
struct Memory {
    memtables: usize,
    memtable: usize,
    cache: usize,
}

impl Memory {
    fn divide(bytes: u64) -> Self {
        let bytes = bytes as usize;
        Memory {
            memtables: bytes / 4,
            // Larger ones are slower: inserting into a skip list misses the processor's caches.
            memtable: (bytes / 16).clamp(4 << 20, 32 << 20),
            cache: bytes - bytes / 4,
        }
    }
}

impl RocksDb {
    pub(super) fn open(options: &EngineOptions) -> Result<Self> {
        let memory = Memory::divide(options.memory_bytes);
        let direct = allows_direct_io(&options.dir);
        let db = Arc::new(open(options, memory, direct)?);
        let syncer = (options.durability == Durability::Relaxed).then(|| {
            let db = Arc::clone(&db);
            EverySecond::start("rocksdb-sync", move || {
                // SAFETY: the closure keeps the database open.
                checked("flush log", |error| unsafe { ffi::rocksdb_flush_wal(db.raw, 1, error) })
            })
        });
        Ok(RocksDb {
            syncer,
            db,
            dir: options.dir.clone(),
            direct,
            memory,
            indexed: (0..options.clients).map(|_| AtomicBool::new(false)).collect(),
            sort_limit: options.memory_bytes as usize
                / (4 * size_of::<Key>() * options.clients as usize),
        })
    }
}

fn open(options: &EngineOptions, memory: Memory, direct: bool) -> Result<Db> {
    let path = CString::new(options.dir.as_os_str().as_bytes())
        .map_err(|_| Error::engine(NAME, "open", "a path with a zero byte"))?;
    // SAFETY: options are created, set and handed over as RocksDB documents; `Db` destroys all but
    // those of the database, also if that can't be opened.
    unsafe {
        let cache = ffi::rocksdb_cache_create_lru(memory.cache);
        let rows = cf_options(memory, cache, true);
        let entries = cf_options(memory, cache, false);
        let db_options = db_options(options, memory, direct);
        let write_options = ffi::rocksdb_writeoptions_create();
        ffi::rocksdb_writeoptions_set_sync(
            write_options,
            u8::from(options.durability == Durability::Sync),
        );
        let names = [c"default", c"marketsegment", c"registersegment", c"pdc"];
        let names = names.map(CStr::as_ptr);
        let each = [rows, entries, entries, entries].map(|options| options.cast_const());
        let cf_options = [rows, entries];
        let mut db = Db { raw: null_mut(), cfs: [null_mut(); 4], cf_options, cache, write_options };
        let opened = checked("open", |error| {
            ffi::rocksdb_open_column_families(
                db_options,
                path.as_ptr(),
                4,
                names.as_ptr(),
                each.as_ptr(),
                db.cfs.as_mut_ptr(),
                error,
            )
        });
        ffi::rocksdb_options_destroy(db_options);
        db.raw = opened?;
        Ok(db)
    }
}

/// # Safety
/// The caller destroys the options.
unsafe fn db_options(options: &EngineOptions, memory: Memory, direct: bool) -> *mut ffi::options_t {
    // SAFETY: plain setters on new options.
    unsafe {
        let db = ffi::rocksdb_options_create();
        ffi::rocksdb_options_set_create_if_missing(db, 1);
        ffi::rocksdb_options_set_create_missing_column_families(db, 1);
        ffi::rocksdb_options_set_max_background_jobs(db, background_jobs());
        ffi::rocksdb_options_set_db_write_buffer_size(db, memory.memtables);
        ffi::rocksdb_options_set_max_total_wal_size(db, options.redo_bytes);
        ffi::rocksdb_options_set_bytes_per_sync(db, 1 << 20);
        ffi::rocksdb_options_set_max_open_files(db, -1);
        let manual = options.durability == Durability::Relaxed;
        ffi::rocksdb_options_set_manual_wal_flush(db, u8::from(manual));
        if direct {
            ffi::rocksdb_options_set_use_direct_reads(db, 1);
            ffi::rocksdb_options_set_use_direct_io_for_flush_and_compaction(db, 1);
            ffi::rocksdb_options_compaction_readahead_size(db, 2 << 20);
        }
        db
    }
}

/// # Safety
/// The caller destroys the options.
unsafe fn cf_options(
    memory: Memory,
    cache: *mut ffi::cache_t,
    filter: bool,
) -> *mut ffi::options_t {
    // SAFETY: plain setters on new options; table options are copied by the factory, and own the
    // filter.
    unsafe {
        let cf = ffi::rocksdb_options_create();
        ffi::rocksdb_options_set_compression(cf, ffi::LZ4);
        ffi::rocksdb_options_set_level_compaction_dynamic_level_bytes(cf, 1);
        ffi::rocksdb_options_set_write_buffer_size(cf, memory.memtable);
        ffi::rocksdb_options_set_max_write_buffer_number(cf, 6);
        ffi::rocksdb_options_set_max_bytes_for_level_base(cf, 8 * memory.memtable as u64);
        let table = ffi::rocksdb_block_based_options_create();
        ffi::rocksdb_block_based_options_set_block_size(table, 16 << 10);
        ffi::rocksdb_block_based_options_set_block_cache(table, cache);
        ffi::rocksdb_block_based_options_set_format_version(table, 5);
        ffi::rocksdb_block_based_options_set_cache_index_and_filter_blocks(table, 1);
        ffi::rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(table, 1);
        if filter {
            let bloom = ffi::rocksdb_filterpolicy_create_bloom_full(10.0);
            ffi::rocksdb_block_based_options_set_filter_policy(table, bloom);
        }
        ffi::rocksdb_options_set_block_based_table_factory(cf, table);
        ffi::rocksdb_block_based_options_destroy(table);
        cf
    }
}

/// One for each processor and one more. RocksDB gives a quarter of them to flushes, at least one.
fn background_jobs() -> c_int {
    std::thread::available_parallelism().map_or(3, |processors| processors.get() as c_int + 1)
}

fn allows_direct_io(dir: &Path) -> bool {
    let probe = dir.join("direct-io-probe");
    let flags = OFlags::CREATE | OFlags::RDWR | OFlags::DIRECT;
    let allowed = rustix::fs::open(&probe, flags, Mode::RUSR | Mode::WUSR).is_ok();
    // Nothing to remove where it could not even be created.
    let _ = fs::remove_file(&probe);
    allowed
}

/// The version of the library, which it writes into its options file.
fn version(dir: &Path) -> Option<String> {
    let files = fs::read_dir(dir).ok()?.flatten();
    let mut options = files.filter(|file| file.file_name().as_bytes().starts_with(b"OPTIONS-"));
    let text = fs::read_to_string(options.next()?.path()).ok()?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("rocksdb_version="))?;
    Some(line.to_string())
}

impl Engine for RocksDb {
    fn info(&self) -> EngineInfo {
        let mb = |bytes: usize| bytes >> 20;
        let mut notes = Vec::new();
        if !self.direct {
            notes.push("no O_DIRECT here: RocksDB also uses the page cache".to_string());
        }
        EngineInfo {
            name: NAME.into(),
            version: version(&self.dir).unwrap_or_else(|| "unknown".into()),
            settings: vec![
                format!("db_write_buffer_size={}MB", mb(self.memory.memtables)),
                format!("write_buffer_size={}MB", mb(self.memory.memtable)),
                format!("block_cache={}MB", mb(self.memory.cache)),
                format!("direct_io={}", self.direct),
                format!("max_background_jobs={}", background_jobs()),
                "compression=lz4, bloom filter of 10 bits on the primary key".into(),
                "WriteBatch, SingleDelete for index entries".into(),
            ],
            notes,
        }
    }

    fn create_table(&self, table: u32, indexed: bool) -> Result<()> {
        self.indexed[table as usize].store(indexed, Ordering::Relaxed);
        Ok(())
    }

    fn session(&self, table: u32) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(KvSession::new(RocksStore::new(self, table))))
    }

    fn unwritten_bytes(&self) -> Option<u64> {
        let each =
            [c"rocksdb.cur-size-all-mem-tables", c"rocksdb.estimate-pending-compaction-bytes"];
        let all = self.db.cfs.iter().flat_map(|&cf| each.map(|name| (cf, name)));
        all.map(|(cf, name)| self.db.property(cf, name)).sum()
    }

    fn close(self: Box<Self>) -> Result<()> {
        if let Some(syncer) = self.syncer {
            syncer.stop()?;
        }
        // SAFETY: the database is open until `self.db` is dropped.
        checked("flush log", |error| unsafe { ffi::rocksdb_flush_wal(self.db.raw, 1, error) })
    }
}

/// A key with its table in front.
struct FullKey {
    bytes: [u8; PREFIX + KEY_MAX],
    len: usize,
}

impl FullKey {
    fn new(prefix: [u8; PREFIX], key: &[u8]) -> Self {
        let mut bytes = [0; PREFIX + KEY_MAX];
        bytes[..PREFIX].copy_from_slice(&prefix);
        bytes[PREFIX..PREFIX + key.len()].copy_from_slice(key);
        FullKey { bytes, len: PREFIX + key.len() }
    }

    fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

struct RocksStore<'a> {
    engine: &'a RocksDb,
    table: u32,
    prefix: [u8; PREFIX],
    /// First key of the next table: RocksDB keeps the pointer.
    end: Box<[u8; PREFIX]>,
    batch: *mut ffi::batch_t,
    /// For short and for long reads.
    read_options: [*mut ffi::read_options_t; 2],
}

impl<'a> RocksStore<'a> {
    fn new(engine: &'a RocksDb, table: u32) -> Self {
        let end = Box::new((table + 1).to_be_bytes());
        // SAFETY: new options and a new batch; `end` outlives the options that point to it.
        unsafe {
            let read_options = [0, 2 << 20].map(|readahead| {
                let options = ffi::rocksdb_readoptions_create();
                let bound = end.as_ptr().cast();
                ffi::rocksdb_readoptions_set_iterate_upper_bound(options, bound, PREFIX);
                ffi::rocksdb_readoptions_set_readahead_size(options, readahead);
                options
            });
            let batch = ffi::rocksdb_writebatch_create();
            RocksStore { engine, table, prefix: table.to_be_bytes(), end, batch, read_options }
        }
    }

    fn cf(&self, index: Index) -> *mut ffi::cf_t {
        self.engine.db.cfs[index.position()]
    }

    fn ingest(&self, index: Secondary, path: &Path, keys: &[Key]) -> Result<()> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::engine(NAME, "ingest", "a path with a zero byte"))?;
        let entries = self.engine.db.cf_options[1];
        // SAFETY: writer and options are created, used and destroyed here.
        unsafe {
            let env = ffi::rocksdb_envoptions_create();
            let writer = ffi::rocksdb_sstfilewriter_create(env, entries);
            let written = self.write_file(writer, &name, keys);
            ffi::rocksdb_sstfilewriter_destroy(writer);
            ffi::rocksdb_envoptions_destroy(env);
            written?;
            let options = ffi::rocksdb_ingestexternalfileoptions_create();
            ffi::rocksdb_ingestexternalfileoptions_set_move_files(options, 1);
            let (files, db) = ([name.as_ptr()], self.engine.db.raw);
            let cf = self.cf(Index::Secondary(index));
            let done = checked("ingest", |error| {
                ffi::rocksdb_ingest_external_file_cf(db, cf, files.as_ptr(), 1, options, error)
            });
            ffi::rocksdb_ingestexternalfileoptions_destroy(options);
            done
        }
    }

    /// # Safety
    /// `writer` must be a new writer.
    unsafe fn write_file(
        &self,
        writer: *mut ffi::sst_writer_t,
        name: &CStr,
        keys: &[Key],
    ) -> Result<()> {
        // SAFETY: as this function demands; keys are sorted and copied.
        unsafe {
            checked("create file", |error| {
                ffi::rocksdb_sstfilewriter_open(writer, name.as_ptr(), error);
            })?;
            for key in keys {
                let key = FullKey::new(self.prefix, key.as_slice());
                checked("fill file", |error| {
                    let value = c"".as_ptr();
                    ffi::rocksdb_sstfilewriter_put(writer, key.as_ptr(), key.len, value, 0, error);
                })?;
            }
            checked("finish file", |error| ffi::rocksdb_sstfilewriter_finish(writer, error))
        }
    }
}

impl Drop for RocksStore<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `new`; `end` is dropped after this.
        unsafe {
            ffi::rocksdb_writebatch_destroy(self.batch);
            for options in self.read_options {
                ffi::rocksdb_readoptions_destroy(options);
            }
        }
        debug_assert_eq!(u32::from_be_bytes(*self.end), self.table + 1);
    }
}

/// What RocksDB points to.
///
/// # Safety
/// `data` must be valid for `size` bytes for as long as the slice is used.
unsafe fn slice<'a>(data: *const c_char, size: usize) -> &'a [u8] {
    // SAFETY: as this function demands; nothing may have no address.
    if size == 0 { &[] } else { unsafe { std::slice::from_raw_parts(data.cast(), size) } }
}

impl KvStore for RocksStore<'_> {
    const NAME: &'static str = NAME;

    fn is_indexed(&self) -> bool {
        self.engine.indexed[self.table as usize].load(Ordering::Relaxed)
    }

    fn set_indexed(&mut self) {
        self.engine.indexed[self.table as usize].store(true, Ordering::Relaxed);
    }

    fn begin(&mut self) -> Result<()> {
        // SAFETY: the batch is this session's.
        unsafe { ffi::rocksdb_writebatch_clear(self.batch) };
        Ok(())
    }

    fn put(&mut self, index: Index, key: &[u8], value: &[u8]) -> Result<()> {
        let (cf, key) = (self.cf(index), FullKey::new(self.prefix, key));
        let (data, size) = (value.as_ptr().cast(), value.len());
        // SAFETY: the batch is this session's and copies key and value.
        unsafe {
            ffi::rocksdb_writebatch_put_cf(self.batch, cf, key.as_ptr(), key.len, data, size);
        }
        Ok(())
    }

    fn read(&mut self, key: &[u8]) -> Result<Option<Value>> {
        Ok(self.get(key, Value::copy)?.flatten())
    }

    fn delete(&mut self, index: Index, key: &[u8]) -> Result<()> {
        let (cf, key) = (self.cf(index), FullKey::new(self.prefix, key));
        let delete = match index {
            Index::Primary => ffi::rocksdb_writebatch_delete_cf,
            Index::Secondary(_) => ffi::rocksdb_writebatch_singledelete_cf,
        };
        // SAFETY: the batch is this session's and copies the key.
        unsafe { delete(self.batch, cf, key.as_ptr(), key.len) };
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        let db = &self.engine.db;
        // SAFETY: database and options are open, the batch is this session's.
        checked("write", |error| unsafe {
            ffi::rocksdb_write(db.raw, db.write_options, self.batch, error);
        })
    }

    fn abort(&mut self) {}

    fn get<T>(&mut self, key: &[u8], with: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let (cf, key) = (self.cf(Index::Primary), FullKey::new(self.prefix, key));
        let (db, options) = (self.engine.db.raw, self.read_options[0]);
        // SAFETY: the slice is pinned until it is destroyed, after its last use.
        unsafe {
            let found = checked("get", |error| {
                ffi::rocksdb_get_pinned_cf(db, options, cf, key.as_ptr(), key.len, error)
            })?;
            if found.is_null() {
                return Ok(None);
            }
            let mut size = 0;
            let data = ffi::rocksdb_pinnableslice_value(found, &mut size);
            let value = with(slice(data, size));
            ffi::rocksdb_pinnableslice_destroy(found);
            Ok(Some(value))
        }
    }

    fn iterate(
        &mut self,
        index: Index,
        from: &[u8],
        long: bool,
        mut visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()> {
        let (cf, from) = (self.cf(index), FullKey::new(self.prefix, from));
        let options = self.read_options[usize::from(long)];
        // SAFETY: keys and values are used before the iterator moves; it is destroyed here.
        unsafe {
            let iter = ffi::rocksdb_create_iterator_cf(self.engine.db.raw, options, cf);
            ffi::rocksdb_iter_seek(iter, from.as_ptr(), from.len);
            while ffi::rocksdb_iter_valid(iter) != 0 {
                let (mut key_size, mut value_size) = (0, 0);
                let key = ffi::rocksdb_iter_key(iter, &mut key_size);
                let value = ffi::rocksdb_iter_value(iter, &mut value_size);
                let key = &slice(key, key_size)[PREFIX..];
                if !visit(key, slice(value, value_size)) {
                    break;
                }
                ffi::rocksdb_iter_next(iter);
            }
            let done = checked("scan", |error| ffi::rocksdb_iter_get_error(iter, error));
            ffi::rocksdb_iter_destroy(iter);
            done
        }
    }

    fn fill(&mut self, index: Secondary, keys: &[Key], _whole: bool) -> Result<()> {
        let name = format!("fill-{}-{}.sst", self.table, index.name());
        let path = self.engine.dir.join(name);
        self.ingest(index, &path, keys)?;
        // RocksDB has linked the file under a name of its own.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::io(format!("removing {}", path.display()), error))
            }
            _ => Ok(()),
        }
    }

    fn sort_limit(&self) -> usize {
        self.engine.sort_limit
    }
}

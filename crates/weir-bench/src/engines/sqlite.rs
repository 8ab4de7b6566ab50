//! SQLite in WAL mode, with its own indexes.
//!
//! SQLite has one writer at a time, and a connection's cache is void after another connection has
//! written. So all clients share one writing connection, which has nearly all of the memory; each
//! session has a connection of its own for reading, which reads the file through a memory map.
//! Statements are prepared once.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use rusqlite::{CachedStatement, Connection, OptionalExtension, Row as SqlRow, params};

use crate::engine::{
    Durability, Engine, EngineInfo, EngineOptions, Index, IndexEntry, Scanned, Session,
};
use crate::error::{Error, Result};
use crate::every_second::EverySecond;
use crate::row::{Data, IndexKey, Row, Secondary};
use crate::stopping::ended_by;

const NAME: &str = "sqlite";
const PAGE_BYTES: u64 = 4096;

fn failed(operation: &'static str) -> impl Fn(rusqlite::Error) -> Error {
    move |error| Error::engine(NAME, operation, error)
}

pub(super) struct Sqlite {
    writer: Mutex<Connection>,
    options: EngineOptions,
    syncer: Option<EverySecond>,
}

impl Sqlite {
    pub(super) fn open(options: &EngineOptions) -> Result<Self> {
        let cache = (options.memory_bytes - options.memory_bytes / 16) / 1024;
        let writer = connect(options)?;
        let synchronous = synchronous(options.durability);
        let pages = options.redo_bytes / PAGE_BYTES;
        writer
            .execute_batch(&format!(
                "PRAGMA page_size = {PAGE_BYTES}; PRAGMA journal_mode = WAL;
                 PRAGMA synchronous = {synchronous}; PRAGMA cache_size = -{cache};
                 PRAGMA wal_autocheckpoint = {pages}; PRAGMA temp_store = MEMORY;"
            ))
            .map_err(failed("configure"))?;
        let wal = options.dir.join("bench.db-wal");
        let syncer = (options.durability == Durability::Relaxed).then(|| {
            EverySecond::start("sqlite-sync", move || match std::fs::File::open(&wal) {
                Ok(file) => {
                    file.sync_data().map_err(|error| Error::engine(NAME, "sync of the log", error))
                }
                // SQLite removes the log when the last connection closes.
                Err(_) => Ok(()),
            })
        });
        Ok(Sqlite { writer: Mutex::new(writer), options: options.clone(), syncer })
    }

    fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock().expect("no client panicked")
    }

    fn create_indexes(&self, table: u32, stop: &AtomicBool) -> Result<()> {
        let sql: String = Secondary::ALL
            .iter()
            .map(|index| {
                let (name, columns) = (index.name(), index.columns().join(", "));
                let table = table + 1;
                format!("CREATE INDEX {name}{table} ON purchases{table} ({columns});")
            })
            .collect();
        let writer = self.writer();
        let handle = writer.get_interrupt_handle();
        let created = ended_by(stop, || handle.interrupt(), || writer.execute_batch(&sql));
        created.map_err(failed("create index"))
    }
}

/// What is synced: each commit, or only the log before a checkpoint and the file after it. Without
/// these (`OFF`) a crash of the machine could leave a broken database, not just an older one.
fn synchronous(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "FULL",
        Durability::Write | Durability::Relaxed => "NORMAL",
    }
}

fn connect(options: &EngineOptions) -> Result<Connection> {
    let connection = Connection::open(options.dir.join("bench.db")).map_err(failed("open"))?;
    connection.set_prepared_statement_cache_capacity(16 + 8 * options.clients as usize);
    Ok(connection)
}

impl Engine for Sqlite {
    fn info(&self) -> EngineInfo {
        let synchronous = synchronous(self.options.durability);
        EngineInfo {
            name: NAME.into(),
            version: rusqlite::version().into(),
            settings: vec![
                "journal_mode=WAL".into(),
                format!("synchronous={synchronous}"),
                format!("page_size={PAGE_BYTES}"),
                format!("wal_autocheckpoint={}", self.options.redo_bytes / PAGE_BYTES),
                "one writing connection with all of the cache; readers map the file".into(),
            ],
            notes: vec!["SQLite also uses the page cache, beyond the memory limit".into()],
        }
    }

    fn create_table(&self, table: u32, indexed: bool) -> Result<()> {
        let number = table + 1;
        let sql = format!(
            "CREATE TABLE purchases{number} (transactionid INTEGER PRIMARY KEY,
             dateandtime INTEGER NOT NULL, cashregisterid INTEGER NOT NULL,
             customerid INTEGER NOT NULL, productid INTEGER NOT NULL, price INTEGER NOT NULL,
             data TEXT NOT NULL)"
        );
        self.writer().execute_batch(&sql).map_err(failed("create table"))?;
        if indexed { self.create_indexes(table, &AtomicBool::new(false)) } else { Ok(()) }
    }

    fn session(&self, table: u32) -> Result<Box<dyn Session + '_>> {
        let reader = connect(&self.options)?;
        let map = self.options.memory_bytes;
        reader
            .execute_batch(&format!("PRAGMA mmap_size = {map}; PRAGMA query_only = 1;"))
            .map_err(failed("configure"))?;
        Ok(Box::new(SqliteSession { engine: self, reader, table, sql: Sql::new(table + 1) }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        if let Some(syncer) = self.syncer {
            syncer.stop()?;
        }
        let writer = self.writer.into_inner().expect("no client panicked");
        writer.close().map_err(|(_, error)| failed("close")(error))
    }
}

/// The statements on one table.
struct Sql {
    insert: String,
    delete: String,
    get: String,
    scans: [String; 4],
    ranges: [String; 3],
}

impl Sql {
    fn new(table: u32) -> Self {
        let scan = |index: Index| match index {
            Index::Primary => {
                format!("SELECT transactionid, data FROM purchases{table} ORDER BY transactionid")
            }
            Index::Secondary(index) => {
                let (name, columns) = (index.name(), index.columns().join(", "));
                format!(
                    "SELECT transactionid FROM purchases{table} INDEXED BY {name}{table}
                     ORDER BY {columns}"
                )
            }
        };
        let range = |index: Secondary| {
            let (name, columns) = (index.name(), index.columns().join(", "));
            format!(
                "SELECT {columns}, transactionid FROM purchases{table} INDEXED BY {name}{table}
                 WHERE ({columns}) >= (?1, ?2, ?3) ORDER BY {columns} LIMIT ?4"
            )
        };
        Sql {
            insert: format!("INSERT INTO purchases{table} VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"),
            delete: format!("DELETE FROM purchases{table} WHERE transactionid = ?1"),
            get: format!("SELECT * FROM purchases{table} WHERE transactionid = ?1"),
            scans: Index::ALL.map(scan),
            ranges: Secondary::ALL.map(range),
        }
    }
}

struct SqliteSession<'a> {
    engine: &'a Sqlite,
    reader: Connection,
    table: u32,
    sql: Sql,
}

fn prepare<'c>(connection: &'c Connection, sql: &str) -> Result<CachedStatement<'c>> {
    connection.prepare_cached(sql).map_err(failed("prepare"))
}

impl SqliteSession<'_> {
    fn apply(&self, connection: &Connection, rows: &[Row], delete: Range<u64>) -> Result<()> {
        let mut insert = prepare(connection, &self.sql.insert)?;
        for row in rows {
            insert
                .execute(params![
                    row.transactionid as i64,
                    row.dateandtime as i64,
                    row.cashregisterid,
                    row.customerid,
                    row.productid,
                    row.price,
                    row.data.as_str(),
                ])
                .map_err(failed("insert"))?;
        }
        let mut remove = prepare(connection, &self.sql.delete)?;
        for id in delete {
            if remove.execute(params![id as i64]).map_err(failed("delete"))? != 1 {
                return Err(Error::engine(NAME, "delete", format!("no row {id}")));
            }
        }
        Ok(())
    }
}

impl Session for SqliteSession<'_> {
    fn create_indexes(&mut self, stop: &AtomicBool) -> Result<()> {
        self.engine.create_indexes(self.table, stop)
    }

    fn write(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        let connection = self.engine.writer();
        let run = |sql| prepare(&connection, sql)?.execute([]).map_err(failed(sql));
        run("BEGIN IMMEDIATE")?;
        let written = self.apply(&connection, rows, delete);
        match written {
            Ok(()) => run("COMMIT").map(|_| ()),
            Err(error) => {
                // The first error says more than one of the rollback would.
                let _ = run("ROLLBACK");
                Err(error)
            }
        }
    }

    fn scan(&mut self, index: Index, stop: &AtomicBool) -> Result<Scanned> {
        let mut scanned = Scanned::default();
        let mut statement = prepare(&self.reader, &self.sql.scans[index.position()])?;
        let mut rows = statement.query([]).map_err(failed("scan"))?;
        while let Some(row) = rows.next().map_err(failed("scan"))? {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let id: i64 = row.get(0).map_err(failed("scan"))?;
            scanned.rows += 1;
            scanned.id_xor ^= id as u64;
            if index == Index::Primary {
                let text = row.get_ref(1).and_then(|data| Ok(data.as_str()?.len()));
                scanned.text_bytes += text.map_err(failed("scan"))? as u64;
            }
        }
        Ok(scanned)
    }

    fn range(
        &mut self,
        index: Secondary,
        start: &IndexKey,
        limit: usize,
        out: &mut Vec<IndexEntry>,
    ) -> Result<()> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let [a, b, c] = start.map(|column| column as i64);
        let mut statement = prepare(&self.reader, &self.sql.ranges[index as usize])?;
        let mut rows = statement.query(params![a, b, c, limit]).map_err(failed("range"))?;
        while let Some(row) = rows.next().map_err(failed("range"))? {
            let entry = entry(row).map_err(failed("range"))?;
            out.push(entry);
        }
        Ok(())
    }

    fn get(&mut self, id: u64) -> Result<Option<Row>> {
        let mut statement = prepare(&self.reader, &self.sql.get)?;
        statement.query_row(params![id as i64], row).optional().map_err(failed("get"))
    }
}

fn entry(row: &SqlRow) -> rusqlite::Result<IndexEntry> {
    let column = |i| row.get::<_, i64>(i).map(|value| value as u64);
    Ok(IndexEntry { key: [column(0)?, column(1)?, column(2)?], id: column(3)? })
}

fn row(row: &SqlRow) -> rusqlite::Result<Row> {
    Ok(Row {
        transactionid: row.get::<_, i64>(0)? as u64,
        dateandtime: row.get::<_, i64>(1)? as u64,
        cashregisterid: row.get(2)?,
        customerid: row.get(3)?,
        productid: row.get(4)?,
        price: row.get(5)?,
        data: Data::new(row.get_ref(6)?.as_bytes()?),
    })
}

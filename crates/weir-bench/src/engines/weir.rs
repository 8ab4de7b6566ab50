//! Weir, by its public API, as any embedding program would use it.
//!
//! Reads run in transactions of their own, so that each sees one snapshot; index reads are covering.

use std::ops::Range;
use std::sync::Arc;

use std::ops::Bound;

use weir::{
    Bounds, Database, Direction, IndexRef, Isolation, RowRef, Schema, Shutdown, Table, Type, Value,
};
use weir_os::throttle::{Profile, UnknownProfile};
use weir_os::{Backend, RealClock, ThrottledDisk};

use crate::engine::{
    Durability, Engine, EngineInfo, EngineOptions, Index, IndexEntry, Scanned, Session,
};
use crate::error::{Error, Result};
use crate::quantity::format_bytes;
use crate::row::{Data, IndexKey, Row, Secondary};

const NAME: &str = "weir";

// The columns of the table.
const TRANSACTIONID: usize = 0;
const DATEANDTIME: usize = 1;
const CASHREGISTERID: usize = 2;
const CUSTOMERID: usize = 3;
const PRODUCTID: usize = 4;
const PRICE: usize = 5;
const DATA: usize = 6;

fn failed(operation: &'static str) -> impl Fn(weir::Error) -> Error {
    move |error| Error::engine(NAME, operation, error)
}

pub(super) struct Weir {
    database: Database,
    settings: Vec<String>,
}

impl Weir {
    pub(super) fn open(options: &EngineOptions) -> Result<Self> {
        let durability = match options.durability {
            Durability::Sync => weir::Durability::Sync,
            Durability::Write => weir::Durability::Write,
            Durability::Relaxed => weir::Durability::Relaxed,
        };
        let weir_options = weir::Options::default()
            .memory_bytes(options.memory_bytes)
            .redo_capacity_bytes(options.redo_bytes)
            .durability(durability);
        let database = open(options, weir_options)?;
        let settings = vec![
            format!("memory={}", format_bytes(options.memory_bytes)),
            format!("redo_capacity={}", format_bytes(options.redo_bytes)),
            format!("durability={}", options.durability),
            format!("io={}", options.disk.io),
            format!("device={}", options.disk.device),
        ];
        Ok(Weir { database, settings })
    }

    fn table(&self, table: u32) -> Result<Table> {
        let name = table_name(table);
        let found = self.database.table(&name);
        found.ok_or_else(|| Error::engine(NAME, "open table", format!("no table {name}")))
    }
}

/// Opens the database on the disk that was asked for.
fn open(options: &EngineOptions, weir_options: weir::Options) -> Result<Database> {
    let backend = match options.disk.io.as_str() {
        "auto" => Backend::Auto,
        "io-uring" => Backend::IoUring,
        "threads" => Backend::Threads,
        other => {
            let what = format!("`{other}` is no way of I/O; use auto, io-uring or threads");
            return Err(Error::Usage(what));
        }
    };
    if options.disk.device == "fast" {
        return Database::open(&options.dir, weir_options.backend(backend)).map_err(failed("open"));
    }
    let profile: Profile =
        options.disk.device.parse().map_err(|e: UnknownProfile| Error::Usage(e.to_string()))?;
    let disk = weir_os::open_directory(&options.dir, backend)
        .map_err(|e| Error::engine(NAME, "open", e))?;
    let throttled = ThrottledDisk::new(disk, profile, Arc::new(RealClock::new()));
    Database::open_on(Arc::new(throttled), weir_options).map_err(failed("open"))
}

fn table_name(table: u32) -> String {
    format!("purchases{}", table + 1)
}

impl Engine for Weir {
    fn info(&self) -> EngineInfo {
        EngineInfo {
            name: NAME.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            settings: self.settings.clone(),
            notes: Vec::new(),
        }
    }

    fn create_table(&self, table: u32, indexed: bool) -> Result<()> {
        let mut schema = Schema::builder()
            .column("transactionid", Type::U64)
            .column("dateandtime", Type::I64)
            .column("cashregisterid", Type::U64)
            .column("customerid", Type::U64)
            .column("productid", Type::U64)
            .column("price", Type::U64)
            .column("data", Type::Text)
            .primary_key(&["transactionid"]);
        if indexed {
            for index in Secondary::ALL {
                schema = schema.index(index.name(), &index.columns());
            }
        }
        let schema = schema.build().map_err(|error| Error::engine(NAME, "schema", error))?;
        self.database.create_table(&table_name(table), schema).map_err(failed("create table"))?;
        Ok(())
    }

    fn session(&self, table: u32) -> Result<Box<dyn Session + '_>> {
        let table = self.table(table)?;
        Ok(Box::new(WeirSession { database: &self.database, table }))
    }

    fn status(&self) -> Vec<(String, f64)> {
        figures(&self.database.status())
    }

    fn device_reads(&self) -> Option<u64> {
        Some(self.database.status().disk.reads)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.close(Shutdown::Fast, &mut |_| {}).map_err(failed("close"))
    }
}

/// The figures of each second: levels as they are, counters since the database was opened.
fn figures(status: &weir::Status) -> Vec<(String, f64)> {
    macro_rules! figures {
        ($($name:ident),* $(,)?) => {
            vec![$((stringify!($name).to_string(), status.$name as f64)),*]
        };
    }
    let mut figures = figures![
        checkpoint_age,
        checkpoint_max_age,
        lsn_current,
        lsn_flushed,
        lsn_last_checkpoint,
        buffer_pool_pages_total,
        buffer_pool_pages_free,
        buffer_pool_pages_dirty,
        buffer_pool_pages_dirty_max,
        pages_written_deadline,
        pages_written_dirty_limit,
        pages_written_free_frames,
        pages_written_checkpoint,
        pages_written_shutdown,
        pages_read,
        pages_read_ahead,
        pages_evicted,
        page_bytes_uncompressed,
        page_bytes_written,
        checkpoints,
        log_waits,
        log_wait_us,
        log_waiting,
        admission_waits,
        admission_wait_us,
        admission_waiting,
        dirty_limit_waits,
        dirty_limit_wait_us,
        dirty_limit_waiting,
        flush_rate_target,
        device_pages_per_second,
        log_rate_max,
        buffer_pool_wait_free,
        history_list_length,
        staged_entries,
        staging_pages,
        staged_entries_moved,
        staging_moves,
        data_file_bytes,
        data_used_bytes,
    ];
    let disk = &status.disk;
    for (name, value) in [
        ("disk_reads", disk.reads),
        ("disk_writes", disk.writes),
        ("disk_syncs", disk.syncs),
        ("disk_read_bytes", disk.read_bytes),
        ("disk_write_bytes", disk.write_bytes),
    ] {
        figures.push((name.to_string(), value as f64));
    }
    figures
}

struct WeirSession<'a> {
    database: &'a Database,
    table: Table,
}

impl WeirSession<'_> {
    fn begin(&self) -> Result<weir::Transaction> {
        self.database.begin(Isolation::RepeatableRead).map_err(failed("begin"))
    }
}

/// The row in the order of the table's columns.
fn values(row: &Row) -> [Value<'_>; 7] {
    [
        Value::U64(row.transactionid),
        Value::I64(row.dateandtime as i64),
        Value::U64(row.cashregisterid.into()),
        Value::U64(row.customerid.into()),
        Value::U64(row.productid.into()),
        Value::U64(row.price.into()),
        Value::Text(row.data.as_str()),
    ]
}

/// The index's columns: only `dateandtime`, the second of the third index, is signed.
fn key_values(index: Secondary, key: &IndexKey) -> [Value<'static>; 3] {
    let signed = |column| index == Secondary::Price && column == 1;
    [0, 1, 2].map(|column| match signed(column) {
        true => Value::I64(key[column] as i64),
        false => Value::U64(key[column]),
    })
}

/// The index's columns, by their places in the table.
fn columns(index: Secondary) -> [usize; 3] {
    match index {
        Secondary::Market => [PRODUCTID, CUSTOMERID, PRICE],
        Secondary::Register => [CASHREGISTERID, CUSTOMERID, PRICE],
        Secondary::Price => [PRICE, DATEANDTIME, CUSTOMERID],
    }
}

fn number(row: &RowRef, column: usize) -> Result<u64> {
    let value = row.get(column).map_err(|error| Error::engine(NAME, "read column", error))?;
    Ok(unsigned(value))
}

fn unsigned(value: Value) -> u64 {
    match value {
        Value::U64(number) => number,
        Value::I64(number) => number as u64,
        other => panic!("a number was stored, {other:?} came back"),
    }
}

impl Session for WeirSession<'_> {
    fn create_indexes(&mut self) -> Result<()> {
        for index in Secondary::ALL {
            self.database
                .create_index(&self.table, index.name(), &index.columns(), false)
                .map_err(failed("create index"))?;
        }
        Ok(())
    }

    fn write(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        let mut txn = self.begin()?;
        for row in rows {
            txn.insert(&self.table, &values(row)).map_err(failed("insert"))?;
        }
        for id in delete {
            if !txn.delete(&self.table, &[Value::U64(id)]).map_err(failed("delete"))? {
                return Err(Error::engine(NAME, "delete", format!("no row {id}")));
            }
        }
        txn.commit().map_err(failed("commit"))
    }

    fn scan(&mut self, index: Index) -> Result<Scanned> {
        let mut txn = self.begin()?;
        let index = match index {
            Index::Primary => IndexRef::Primary,
            Index::Secondary(index) => IndexRef::Named(index.name()),
        };
        let mut scanned = Scanned::default();
        let mut cursor = txn
            .scan_keys(&self.table, index, Bounds::all(), Direction::Forward)
            .map_err(failed("scan"))?;
        while let Some(entry) = cursor.next().map_err(failed("scan"))? {
            scanned.rows += 1;
            scanned.id_sum = scanned.id_sum.wrapping_add(number(&entry, TRANSACTIONID)?);
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
        let mut txn = self.begin()?;
        let from = key_values(index, start);
        let mut cursor = txn
            .scan_keys(
                &self.table,
                IndexRef::Named(index.name()),
                Bounds::new(Bound::Included(&from), Bound::Unbounded),
                Direction::Forward,
            )
            .map_err(failed("range"))?;
        for _ in 0..limit {
            let Some(entry) = cursor.next().map_err(failed("range"))? else { break };
            let [a, b, c] = columns(index);
            let key = [number(&entry, a)?, number(&entry, b)?, number(&entry, c)?];
            out.push(IndexEntry { key, id: number(&entry, TRANSACTIONID)? });
        }
        Ok(())
    }

    fn get(&mut self, id: u64) -> Result<Option<Row>> {
        let mut txn = self.begin()?;
        let found = txn.get(&self.table, &[Value::U64(id)]).map_err(failed("get"))?;
        Ok(found.map(|row| {
            let column = |column| unsigned(row.get(column)) as u32;
            let Value::Text(text) = row.get(DATA) else { panic!("a text was stored") };
            Row {
                transactionid: unsigned(row.get(TRANSACTIONID)),
                dateandtime: unsigned(row.get(DATEANDTIME)),
                cashregisterid: column(CASHREGISTERID),
                customerid: column(CUSTOMERID),
                productid: column(PRODUCTID),
                price: column(PRICE),
                data: Data::new(text.as_bytes()),
            }
        }))
    }
}

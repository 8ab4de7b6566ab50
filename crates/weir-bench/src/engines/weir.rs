//! Weir, by its public API, as any embedding program would use it.
//!
//! Reads run in transactions of their own, so that each sees one snapshot; index reads are covering.

use std::ops::{Bound, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir::{
    Bounds, Database, Direction, IndexRef, Isolation, Patience, RowRef, Schema, Shutdown,
    StatusAddress, Table, Type, Value,
};
use weir_governor::{InnodbSettings, PolicyChoice};
use weir_os::throttle::{Profile, UnknownProfile};
use weir_os::{Backend, RealClock, ThrottledDisk};

use crate::engine::{
    Durability, Engine, EngineInfo, EngineOptions, FlushChoice, Index, IndexEntry, Scanned, Session,
};
use crate::error::{Error, Result};
use crate::quantity::format_bytes;
use crate::row::{Data, IndexKey, Row, Secondary};
use crate::stopping::ended_by;
use crate::tpcc;

/// Name in reports and errors.
pub const NAME: &str = "weir";
/// Bytes of a page in memory.
pub(super) const PAGE_BYTES: u64 = 16 << 10;

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
    /// The slow device, and what it is after the first step.
    throttle: Option<(ThrottledDisk, Profile)>,
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
        let weir_options = match &options.status_listen {
            Some(address) => weir_options.status_listen(status_address(address)?),
            None => weir_options,
        };
        let weir_options = with_flush(weir_options, &options.flush)?;
        let (database, throttle) = open(options, weir_options)?;
        let settings = vec![
            format!("memory={}", format_bytes(options.memory_bytes)),
            format!("redo_capacity={}", format_bytes(options.redo_bytes)),
            format!("durability={}", options.durability),
            format!("io={}", options.disk.io),
            format!("device={}", options.disk.device),
            format!("policy={}", options.flush.policy),
        ];
        Ok(Weir { database, throttle, settings })
    }

    fn table(&self, table: u32) -> Result<Table> {
        let name = table_name(table);
        let found = self.database.table(&name);
        found.ok_or_else(|| Error::engine(NAME, "open table", format!("no table {name}")))
    }
}

fn status_address(text: &str) -> Result<StatusAddress> {
    text.parse().map_err(|error| Error::Usage(format!("status-listen: {error}")))
}

/// The options with those for experiments.
fn with_flush(mut options: weir::Options, choice: &FlushChoice) -> Result<weir::Options> {
    if let Some(percent) = choice.dirty_limit_percent {
        options = options.dirty_limit(f64::from(percent) / 100.0);
    }
    let policy: PolicyChoice = choice.policy.parse().map_err(Error::Usage)?;
    if policy == PolicyChoice::Governor {
        return Ok(options);
    }
    let dirty_limit = InnodbSettings::default().max_dirty_pages_pct;
    Ok(options.flush_policy(move || policy.policy(dirty_limit)))
}

type Throttle = Option<(ThrottledDisk, Profile)>;

/// Opens the database on the disk that was asked for.
fn open(options: &EngineOptions, weir_options: weir::Options) -> Result<(Database, Throttle)> {
    let backend = match options.disk.io.as_str() {
        "auto" => Backend::Auto,
        "io-uring" => Backend::IoUring,
        "threads" => Backend::Threads,
        other => {
            let what = format!("`{other}` is no way of I/O; use auto, io-uring or threads");
            return Err(Error::Usage(what));
        }
    };
    let device = &options.disk.device;
    let first = options.disk.load_device.as_ref().unwrap_or(device);
    if device == "fast" && first == "fast" {
        let database = Database::open(&options.dir, weir_options.backend(backend));
        return Ok((database.map_err(failed("open"))?, None));
    }
    let profile = |name: &str| {
        name.parse::<Profile>().map_err(|e: UnknownProfile| Error::Usage(e.to_string()))
    };
    let (first, then) = (profile(first)?, profile(device)?);
    let disk = weir_os::open_directory(&options.dir, backend)
        .map_err(|e| Error::engine(NAME, "open", e))?;
    let throttled = ThrottledDisk::new(disk, first, Arc::new(RealClock::new()));
    let database = Database::open_on(Arc::new(throttled.clone()), weir_options);
    Ok((database.map_err(failed("open"))?, Some((throttled, then))))
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

    fn unwritten_bytes(&self) -> Option<u64> {
        Some(self.database.status().buffer_pool_pages_dirty * PAGE_BYTES)
    }

    fn tpcc(&self) -> Option<&dyn tpcc::Store> {
        Some(&self.database)
    }

    fn end_load_device(&self) {
        if let Some((disk, profile)) = &self.throttle {
            disk.set_profile(*profile);
        }
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.close(Shutdown::Fast, &mut |_| {}).map_err(failed("close"))
    }
}

/// The figures of each second: levels as they are, counters since the database was opened.
fn figures(status: &weir::Status) -> Vec<(String, f64)> {
    let figures = status.figures().into_iter();
    figures.map(|figure| (figure.name.to_string(), figure.value as f64)).collect()
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

fn number(row: &RowRef<'_>, at: usize) -> weir::Result<u64> {
    Ok(unsigned(row.get(at)?))
}

fn text_of(value: Value<'_>) -> &str {
    match value {
        Value::Text(text) => text,
        other => panic!("a text was stored, {other:?} came back"),
    }
}

fn unsigned(value: Value) -> u64 {
    match value {
        Value::U64(number) => number,
        Value::I64(number) => number as u64,
        other => panic!("a number was stored, {other:?} came back"),
    }
}

/// Reads all of an index; `None` if it was told to stop.
fn scan(
    txn: &mut weir::Transaction,
    table: &Table,
    index: Index,
    stop: &AtomicBool,
) -> weir::Result<Option<Scanned>> {
    let mut scanned = Scanned::default();
    let (all, forward) = (Bounds::all(), Direction::Forward);
    let mut cursor = match index {
        Index::Primary => txn.scan(table, IndexRef::Primary, all, forward)?,
        Index::Secondary(index) => txn.scan_keys(table, index.name(), all, forward)?,
    };
    while let Some(entry) = cursor.next()? {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        scanned.rows += 1;
        scanned.id_xor ^= number(&entry, TRANSACTIONID)?;
        if index == Index::Primary {
            scanned.text_bytes += text_of(entry.get(DATA)?).len() as u64;
        }
    }
    Ok(Some(scanned))
}

/// Reads up to `limit` entries of an index from `start` on.
fn range(
    txn: &mut weir::Transaction,
    table: &Table,
    index: Secondary,
    start: &IndexKey,
    limit: usize,
    out: &mut Vec<IndexEntry>,
) -> weir::Result<()> {
    let from = key_values(index, start);
    let bounds = Bounds::new(Bound::Included(&from), Bound::Unbounded);
    let mut cursor = txn.scan_keys(table, index.name(), bounds, Direction::Forward)?;
    for _ in 0..limit {
        let Some(entry) = cursor.next()? else { break };
        let [a, b, c] = columns(index);
        let key = [number(&entry, a)?, number(&entry, b)?, number(&entry, c)?];
        out.push(IndexEntry { key, id: number(&entry, TRANSACTIONID)? });
    }
    Ok(())
}

impl Session for WeirSession<'_> {
    fn create_indexes(&mut self, stop: &AtomicBool) -> Result<()> {
        // Nobody else uses the table.
        let patience = Patience::new(Duration::MAX);
        let changes = self.database.changes(&patience);
        let create = |index: Secondary| {
            let created = changes.create_index(&self.table, index.name(), &index.columns(), false);
            created.map_err(failed("create index"))
        };
        ended_by(stop, || patience.end(), || Secondary::ALL.into_iter().try_for_each(create))
    }

    fn write(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        let mut txn = self.begin()?;
        let rows: Vec<_> = rows.iter().map(values).collect();
        txn.insert_many(&self.table, &rows).map_err(failed("insert"))?;
        let keys: Vec<_> = delete.clone().map(|id| [Value::U64(id)]).collect();
        let deleted = txn.delete_many(&self.table, &keys).map_err(failed("delete"))?;
        if deleted < keys.len() {
            let what = format!("{deleted} of the rows {delete:?}");
            return Err(Error::engine(NAME, "delete", what));
        }
        txn.commit().map_err(failed("commit"))
    }

    fn scan(&mut self, index: Index, stop: &AtomicBool) -> Result<Scanned> {
        let mut txn = self.begin()?;
        let scanned = scan(&mut txn, &self.table, index, stop).map_err(failed("scan"))?;
        scanned.ok_or(Error::Interrupted)
    }

    fn range(
        &mut self,
        index: Secondary,
        start: &IndexKey,
        limit: usize,
        out: &mut Vec<IndexEntry>,
    ) -> Result<()> {
        let mut txn = self.begin()?;
        range(&mut txn, &self.table, index, start, limit, out).map_err(failed("range"))
    }

    fn update(&mut self, id: u64, register: u32) -> Result<()> {
        let mut txn = self.begin()?;
        let found = txn.get(&self.table, &[Value::U64(id)]).map_err(failed("get"))?;
        let row = found.ok_or_else(|| Error::engine(NAME, "update", format!("no row {id}")))?;
        let mut values: [Value<'_>; 7] = std::array::from_fn(|column| row.get(column));
        values[CASHREGISTERID] = Value::U64(register.into());
        txn.update(&self.table, &values).map_err(failed("update"))?;
        txn.commit().map_err(failed("commit"))
    }

    fn get(&mut self, id: u64) -> Result<Option<Row>> {
        let mut txn = self.begin()?;
        let found = txn.get(&self.table, &[Value::U64(id)]).map_err(failed("get"))?;
        Ok(found.map(|row| {
            let column = |column| unsigned(row.get(column)) as u32;
            let text = text_of(row.get(DATA));
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

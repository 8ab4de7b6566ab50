//! Rows of a typed table: Weir keeps columns and indexes, and gives values.

use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir::{
    Bounds, Database, Direction, IndexRef, Isolation, NewIndex, Patience, RowRef, Schema, Table,
    Type, Value,
};

use super::NAME;
use crate::engine::{Index, IndexEntry, Scanned, Session};
use crate::error::{Error, Result};
use crate::row::{Data, IndexKey, Row, Secondary};
use crate::stopping::ended_by;

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

/// The table, with its secondary indexes when `indexed`.
pub(super) fn schema(indexed: bool) -> Result<Schema> {
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
    schema.build().map_err(|error| Error::engine(NAME, "schema", error))
}

pub(super) struct TypedSession<'a> {
    database: &'a Database,
    table: Table,
}

impl<'a> TypedSession<'a> {
    pub(super) fn new(database: &'a Database, table: Table) -> Self {
        TypedSession { database, table }
    }

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

impl Session for TypedSession<'_> {
    fn create_indexes(&mut self, stop: &AtomicBool) -> Result<()> {
        // Nobody else uses the table.
        let patience = Patience::new(Duration::MAX);
        let changes = self.database.changes(&patience);
        let columns = Secondary::ALL.map(Secondary::columns);
        let indexes: [_; 3] = std::array::from_fn(|n| NewIndex {
            name: Secondary::ALL[n].name(),
            columns: &columns[n],
            unique: false,
        });
        let created =
            ended_by(stop, || patience.end(), || changes.create_indexes(&self.table, &indexes));
        created.map_err(failed("create index"))
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
        let key = [Value::U64(id)];
        let found = txn.get_for_update(&self.table, &key).map_err(failed("get"))?;
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

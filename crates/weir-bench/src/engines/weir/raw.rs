//! Rows of a raw table: they and their index entries are bytes, made and read by the benchmark as
//! it does for engines that only know bytes. The indexes are Weir's still.

use std::ops::{Bound, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use weir::{
    Database, Direction, Entry, Isolation, KeyOf, Lock, Pair, Patience, RawIndex, RawRange,
    RawSchema, Schema, Table, TableChange, Transaction, Wait,
};

use crate::engine::{EngineKind, Index, IndexEntry, Scanned, Session};
use crate::engines::codec::{self, Key};
use crate::error::{Error, Result};
use crate::row::{IndexKey, Row, Secondary};
use crate::stopping::ended_by;

const NAME: &str = EngineKind::WeirRaw.name();

fn failed(operation: &'static str) -> impl Fn(weir::Error) -> Error {
    move |error| Error::engine(NAME, operation, error)
}

/// The table, with its secondary indexes when `indexed`.
pub(super) fn schema(indexed: bool) -> Result<RawSchema> {
    let indexes = if indexed { indexes().into() } else { Vec::new() };
    Schema::raw(indexes, Vec::new()).map_err(|error| Error::engine(NAME, "schema", error))
}

fn indexes() -> [RawIndex; 3] {
    Secondary::ALL.map(|index| RawIndex::new(index.name(), false))
}

fn entry_of(index: Secondary, row: &Row) -> Key {
    codec::index_key(index, &index.key(row), row.transactionid)
}

fn key_of(index: Index) -> KeyOf {
    match index {
        Index::Primary => KeyOf::Primary,
        Index::Secondary(index) => KeyOf::Index(index as usize),
    }
}

pub(super) struct RawSession<'a> {
    database: &'a Database,
    table: Table,
    is_indexed: bool,
}

impl<'a> RawSession<'a> {
    pub(super) fn new(database: &'a Database, table: Table) -> Result<Self> {
        let schema = table.raw_schema().map_err(failed("open table"))?;
        let is_indexed = !schema.indexes().is_empty();
        Ok(RawSession { database, table, is_indexed })
    }

    fn begin(&self) -> Result<Transaction> {
        self.database.begin(Isolation::RepeatableRead).map_err(failed("begin"))
    }

    /// The row `id`, locked to be changed.
    fn lock_row(&self, txn: &mut Transaction, id: u64) -> Result<Row> {
        let (key, lock) = (codec::primary_key(id), Lock::Exclusive(Wait::ForTimeout));
        let mut value = Vec::new();
        let found = txn.get_raw(&self.table, &key, lock, &mut value).map_err(failed("get"))?;
        if !found {
            return Err(Error::Contents { engine: NAME, message: format!("no row {id}") });
        }
        codec::row_of(NAME, &key, &value)
    }

    /// Which entries of `rows` go into which index.
    fn entries(&self, rows: &[Row]) -> Vec<OfIndex> {
        let indexes: &[Secondary] = if self.is_indexed { &Secondary::ALL } else { &[] };
        let of = |&index: &Secondary| {
            (index as usize, rows.iter().map(|row| entry_of(index, row)).collect())
        };
        indexes.iter().map(of).collect()
    }
}

/// The keys that entries of an index have.
type OfIndex = (usize, Vec<Key>);

fn pairs(entries: &[OfIndex]) -> Vec<(usize, Vec<Pair<'_>>)> {
    fn of((index, keys): &OfIndex) -> (usize, Vec<Pair<'_>>) {
        (*index, keys.iter().map(|key| Pair::key_alone(key.as_slice())).collect())
    }
    entries.iter().map(of).collect()
}

/// The only entry of an index.
fn only((index, keys): &OfIndex) -> Entry<'_> {
    Entry { index: *index, key: keys[0].as_slice(), value: &[] }
}

impl Session for RawSession<'_> {
    fn create_indexes(&mut self, stop: &AtomicBool) -> Result<()> {
        // Nobody else uses the table.
        let patience = Patience::new(Duration::MAX);
        let changes = self.database.changes(&patience);
        let (table, add) = (&self.table, indexes());
        let change = TableChange { table, drop: &[], rename: &[], add: &add, meta: None };
        let mut entry =
            |_, index: usize, key: &[u8], value: &[u8], out: &mut Vec<u8>, _: &mut _| {
                let row = codec::row_of(NAME, key, value);
                let row = row.map_err(|_| weir::Error::UnfitRow(self.table.name()))?;
                out.extend_from_slice(entry_of(Secondary::ALL[index], &row).as_slice());
                Ok(())
            };
        ended_by(
            stop,
            || patience.end(),
            || changes.alter_tables(&[change], &mut entry).map_err(failed("create index")),
        )?;
        self.is_indexed = true;
        Ok(())
    }

    fn write(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        let mut txn = self.begin()?;
        if !rows.is_empty() {
            let keys: Vec<_> =
                rows.iter().map(|row| codec::primary_key(row.transactionid)).collect();
            let values: Vec<_> = rows.iter().map(codec::row_value).collect();
            let pairs_of = keys.iter().zip(&values);
            let mut inserted: Vec<_> =
                pairs_of.map(|(key, value)| Pair { key, value: value.as_slice() }).collect();
            let entries = self.entries(rows);
            let inserted = txn.insert_many_raw(&self.table, &mut inserted, &mut pairs(&entries));
            inserted.map_err(failed("insert"))?;
        }
        if !delete.is_empty() {
            let gone = delete.map(|id| self.lock_row(&mut txn, id)).collect::<Result<Vec<_>>>()?;
            let keys: Vec<_> =
                gone.iter().map(|row| codec::primary_key(row.transactionid)).collect();
            let mut deleted: Vec<_> = keys.iter().map(|key| Pair::key_alone(key)).collect();
            let entries = self.entries(&gone);
            let deleted = txn.delete_many_raw(&self.table, &mut deleted, &mut pairs(&entries));
            deleted.map_err(failed("delete"))?;
        }
        txn.commit().map_err(failed("commit"))
    }

    fn scan(&mut self, index: Index, stop: &AtomicBool) -> Result<Scanned> {
        let mut txn = self.begin()?;
        let (all, forward) = (RawRange::all(), Direction::Forward);
        let scan = txn.scan_raw(&self.table, key_of(index), all, forward, Lock::None);
        let mut scan = scan.map_err(failed("scan"))?;
        let mut scanned = Scanned::default();
        let mut count = |key: &[u8], value: &[u8]| {
            scanned.rows += 1;
            scanned.id_xor ^= codec::id_of(key).unwrap_or(0);
            // Entries of secondary indexes have no value.
            scanned.text_bytes += codec::text(value).len() as u64;
        };
        while let Some(entry) = scan.next(&mut txn).map_err(failed("scan"))? {
            count(entry.key, entry.value);
            for entry in scan.take_rest().iter() {
                count(entry.key, entry.value);
            }
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
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
        let mut txn = self.begin()?;
        let from = codec::index_key(index, start, 0);
        let range = RawRange::new(Bound::Included(from.as_slice()), Bound::Unbounded);
        let of = KeyOf::Index(index as usize);
        let scan = txn.scan_raw(&self.table, of, range, Direction::Forward, Lock::None);
        let mut scan = scan.map_err(failed("range"))?;
        for _ in 0..limit {
            let Some(entry) = scan.next(&mut txn).map_err(failed("range"))? else { break };
            out.push(codec::entry_of(NAME, index, entry.key)?);
        }
        Ok(())
    }

    fn update(&mut self, id: u64, register: u32) -> Result<()> {
        let mut txn = self.begin()?;
        let old = self.lock_row(&mut txn, id)?;
        let new = Row { cashregisterid: register, ..old };
        let (key, value) = (codec::primary_key(id), codec::row_value(&new));
        let (before, after) = (self.entries(&[old]), self.entries(&[new]));
        let mut same = Vec::new();
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for (before, after) in before.iter().zip(&after) {
            if before == after {
                same.push(only(after));
            } else {
                removed.push(only(before));
                added.push(only(after));
            }
        }
        let updated = txn.update_raw(&self.table, &key, value.as_slice(), &removed, &added);
        if updated.map_err(failed("update"))? {
            txn.touch_raw(&self.table, &same).map_err(failed("update"))?;
        }
        txn.commit().map_err(failed("commit"))
    }

    fn get(&mut self, id: u64) -> Result<Option<Row>> {
        let mut txn = self.begin()?;
        let mut value = Vec::new();
        let key = codec::primary_key(id);
        if !txn.get_raw(&self.table, &key, Lock::None, &mut value).map_err(failed("get"))? {
            return Ok(None);
        }
        codec::row_of(NAME, &key, &value).map(Some)
    }
}

//! Ordered maps in memory, without durability: what tests compare engines with, and a bound on what
//! the benchmark itself costs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, RwLock};

use crate::engine::{Engine, EngineInfo, EngineOptions, Index, IndexEntry, Scanned, Session};
use crate::error::{Error, Result};
use crate::row::{IndexKey, Row, Secondary};

const NAME: &str = "model";

#[derive(Default)]
struct Table {
    rows: BTreeMap<u64, Row>,
    indexes: Option<[BTreeSet<IndexEntry>; 3]>,
}

pub(super) struct Model {
    tables: Vec<Mutex<Table>>,
    created: RwLock<BTreeSet<u32>>,
}

impl Model {
    pub(super) fn new(options: &EngineOptions) -> Self {
        let tables = (0..options.clients).map(|_| Mutex::default()).collect();
        Model { tables, created: RwLock::default() }
    }

    fn table(&self, table: u32) -> MutexGuard<'_, Table> {
        self.tables[table as usize].lock().expect("no client panicked")
    }
}

impl Engine for Model {
    fn info(&self) -> EngineInfo {
        EngineInfo {
            name: NAME.into(),
            version: env!("CARGO_PKG_VERSION").into(),
            settings: Vec::new(),
            notes: vec!["ordered maps in memory: no storage, no durability".into()],
        }
    }

    fn create_table(&self, table: u32, indexed: bool) -> Result<()> {
        if !self.created.write().expect("no client panicked").insert(table) {
            return Err(Error::engine(NAME, "create table", "it exists"));
        }
        self.table(table).indexes = indexed.then(Default::default);
        Ok(())
    }

    fn session(&self, table: u32) -> Result<Box<dyn Session + '_>> {
        Ok(Box::new(ModelSession { model: self, table }))
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

struct ModelSession<'a> {
    model: &'a Model,
    table: u32,
}

fn entry(index: Secondary, row: &Row) -> IndexEntry {
    IndexEntry { key: index.key(row), id: row.transactionid }
}

impl Session for ModelSession<'_> {
    fn create_indexes(&mut self, _stop: &AtomicBool) -> Result<()> {
        let mut table = self.model.table(self.table);
        let rows = &table.rows;
        let build = |index| rows.values().map(|row| entry(index, row)).collect();
        table.indexes = Some(Secondary::ALL.map(build));
        Ok(())
    }

    fn write(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        let mut table = self.model.table(self.table);
        let Table { rows: stored, indexes } = &mut *table;
        if let Some(id) = delete.clone().find(|id| !stored.contains_key(id)) {
            return Err(Error::engine(NAME, "delete", format!("no row {id}")));
        }
        for row in rows {
            stored.insert(row.transactionid, *row);
            for (index, entries) in Secondary::ALL.into_iter().zip(indexes.iter_mut().flatten()) {
                entries.insert(entry(index, row));
            }
        }
        for id in delete {
            let row = stored.remove(&id).expect("looked for it above");
            for (index, entries) in Secondary::ALL.into_iter().zip(indexes.iter_mut().flatten()) {
                entries.remove(&entry(index, &row));
            }
        }
        Ok(())
    }

    fn scan(&mut self, index: Index, _stop: &AtomicBool) -> Result<Scanned> {
        let table = self.model.table(self.table);
        let mut scanned = Scanned::default();
        let mut add = |id: u64, text_bytes: usize| {
            scanned.rows += 1;
            scanned.id_xor ^= id;
            scanned.text_bytes += text_bytes as u64;
        };
        match index {
            Index::Primary => {
                table.rows.iter().for_each(|(id, row)| add(*id, row.data.as_bytes().len()));
            }
            Index::Secondary(index) => {
                entries(&table, index)?.iter().for_each(|entry| add(entry.id, 0));
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
        let table = self.model.table(self.table);
        let from = IndexEntry { key: *start, id: 0 };
        out.extend(entries(&table, index)?.range(from..).take(limit));
        Ok(())
    }

    fn get(&mut self, id: u64) -> Result<Option<Row>> {
        Ok(self.model.table(self.table).rows.get(&id).copied())
    }
}

fn entries(table: &Table, index: Secondary) -> Result<&BTreeSet<IndexEntry>> {
    let indexes = table.indexes.as_ref();
    let indexes = indexes.ok_or_else(|| Error::engine(NAME, "scan", "no such index"))?;
    Ok(&indexes[index as usize])
}

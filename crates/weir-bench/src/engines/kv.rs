//! Rows with three secondary indexes on engines that only know keys and values.
//!
//! A [`KvStore`] is one client's connection to such an engine, with one key space per index of the
//! client's table. [`KvSession`] keeps the indexes on top of it: rows are put with their three
//! index entries in the same transaction; a delete reads the row first, to know which entries go
//! with it. A transaction goes through one index after the other, in the order of its keys, as
//! somebody would who wants it to look good: neighbours come one after the other, and a tree is
//! left once.
//!
//! Indexes of a filled table are built from sorted keys, which is what every engine here does best.
//! Keys are sorted in memory, in several runs when they take more than a quarter of the engine's
//! memory.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::codec::{self, Key, Value};
use crate::engine::{Index, IndexEntry, Scanned, Session};
use crate::error::{Error, Result};
use crate::row::{IndexKey, Row, Secondary};

/// How often a transaction is tried that the engine itself rolls back.
const ATTEMPTS: u32 = 1000;

/// A connection to ordered maps of bytes, for one table.
pub trait KvStore {
    /// The engine's name.
    const NAME: &'static str;

    /// Whether the table has its secondary indexes.
    fn is_indexed(&self) -> bool;
    /// Tells the engine that the table has its secondary indexes from now on.
    fn set_indexed(&mut self);
    /// Begins a transaction that may write.
    fn begin(&mut self) -> Result<()>;
    /// Puts a new key.
    fn put(&mut self, index: Index, key: &[u8], value: &[u8]) -> Result<()>;
    /// Reads the row's value inside the transaction.
    fn read(&mut self, key: &[u8]) -> Result<Option<Value>>;
    /// Deletes a key that is there.
    fn delete(&mut self, index: Index, key: &[u8]) -> Result<()>;
    /// Commits with the engine's durability.
    fn commit(&mut self) -> Result<()>;
    /// Undoes what was done since [`KvStore::begin`].
    fn abort(&mut self);

    /// Reads a row's value by a snapshot of its own.
    fn get<T>(&mut self, key: &[u8], with: impl FnOnce(&[u8]) -> T) -> Result<Option<T>>;
    /// Visits keys and values from the first at or after `from` in order, by one snapshot, until
    /// `visit` says no. Long ones are told apart so that engines can read ahead.
    fn iterate(
        &mut self,
        index: Index,
        from: &[u8],
        long: bool,
        visit: impl FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<()>;
    /// Fills an index with sorted keys; `whole` when they are all it will get.
    fn fill(&mut self, index: Secondary, keys: &[Key], whole: bool) -> Result<()>;
    /// How many keys may be sorted in memory at a time.
    fn sort_limit(&self) -> usize;
}

/// A session on a [`KvStore`].
pub struct KvSession<S> {
    store: S,
    /// Rows that the transaction deletes, and what it does to an index: kept for their memory.
    deleted: Vec<Row>,
    changes: Vec<(Key, Change)>,
}

/// What becomes of an index entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Put,
    Delete,
}

impl<S: KvStore> KvSession<S> {
    /// A session of the client that `store` belongs to.
    pub fn new(store: S) -> Self {
        KvSession { store, deleted: Vec::new(), changes: Vec::new() }
    }

    fn write_once(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        self.store.begin()?;
        let written = self.apply(rows, delete).and_then(|()| self.store.commit());
        if written.is_err() {
            self.store.abort();
        }
        written
    }

    fn apply(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        // Ids ascend, and those of deleted rows are lower than all others.
        self.deleted.clear();
        for id in delete {
            let row = self.delete_row(id)?;
            self.deleted.push(row);
        }
        for row in rows {
            let key = codec::primary_key(row.transactionid);
            self.store.put(Index::Primary, &key, codec::row_value(row).as_slice())?;
        }
        if self.store.is_indexed() {
            for index in Secondary::ALL {
                self.change_entries(index, rows)?;
            }
        }
        Ok(())
    }

    fn delete_row(&mut self, id: u64) -> Result<Row> {
        let key = codec::primary_key(id);
        let value = self.store.read(&key)?;
        let value = value.ok_or_else(|| Error::Contents {
            engine: S::NAME,
            message: format!("no row {id} to delete"),
        })?;
        let row = codec::row_of(S::NAME, &key, value.as_slice())?;
        self.store.delete(Index::Primary, &key)?;
        Ok(row)
    }

    /// Puts the index's entries of `rows` and deletes those of the deleted ones.
    fn change_entries(&mut self, index: Secondary, rows: &[Row]) -> Result<()> {
        let key = |row: &Row| codec::index_key(index, &index.key(row), row.transactionid);
        let KvSession { store, deleted, changes } = self;
        changes.clear();
        changes.extend(rows.iter().map(|row| (key(row), Change::Put)));
        changes.extend(deleted.iter().map(|row| (key(row), Change::Delete)));
        changes.sort_unstable();
        let index = Index::Secondary(index);
        for (key, change) in changes.iter() {
            match change {
                Change::Put => store.put(index, key.as_slice(), &[])?,
                Change::Delete => store.delete(index, key.as_slice())?,
            }
        }
        Ok(())
    }

    fn create_index(&mut self, index: Secondary, stop: &AtomicBool) -> Result<()> {
        let limit = self.store.sort_limit().max(1);
        let (mut keys, mut next, mut first) = (Vec::new(), 0, true);
        loop {
            keys.clear();
            let mut read = Ok(());
            self.store.iterate(Index::Primary, &codec::primary_key(next), true, |key, value| {
                read = codec::row_of(S::NAME, key, value).map(|row| {
                    keys.push(codec::index_key(index, &index.key(&row), row.transactionid));
                    next = row.transactionid + 1;
                });
                read.is_ok() && keys.len() < limit && !stop.load(Ordering::Relaxed)
            })?;
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            read?;
            let last = keys.len() < limit;
            keys.sort_unstable();
            if !keys.is_empty() {
                self.store.fill(index, &keys, first && last)?;
            }
            if last {
                return Ok(());
            }
            first = false;
        }
    }
}

impl<S: KvStore> Session for KvSession<S> {
    fn create_indexes(&mut self, stop: &AtomicBool) -> Result<()> {
        for index in Secondary::ALL {
            self.create_index(index, stop)?;
        }
        self.store.set_indexed();
        Ok(())
    }

    fn write(&mut self, rows: &[Row], delete: Range<u64>) -> Result<()> {
        for _ in 1..ATTEMPTS {
            match self.write_once(rows, delete.clone()) {
                Err(Error::Conflict { .. }) => {}
                done => return done,
            }
        }
        self.write_once(rows, delete)
    }

    fn scan(&mut self, index: Index, stop: &AtomicBool) -> Result<Scanned> {
        let mut scanned = Scanned::default();
        self.store.iterate(index, &[], true, |key, value| {
            scanned.rows += 1;
            scanned.id_xor ^= codec::id_of(key).unwrap_or(0);
            // Entries of secondary indexes have no value.
            scanned.text_bytes += codec::text(value).len() as u64;
            !stop.load(Ordering::Relaxed)
        })?;
        if stop.load(Ordering::Relaxed) { Err(Error::Interrupted) } else { Ok(scanned) }
    }

    fn range(
        &mut self,
        index: Secondary,
        start: &IndexKey,
        limit: usize,
        out: &mut Vec<IndexEntry>,
    ) -> Result<()> {
        let from = codec::index_key(index, start, 0);
        let mut left = limit;
        let mut read = Ok(());
        self.store.iterate(Index::Secondary(index), from.as_slice(), false, |key, _| {
            read = codec::entry_of(S::NAME, index, key).map(|entry| out.push(entry));
            left -= 1;
            left > 0 && read.is_ok()
        })?;
        read
    }

    fn get(&mut self, id: u64) -> Result<Option<Row>> {
        let key = codec::primary_key(id);
        self.store.get(&key, |value| codec::row_of(S::NAME, &key, value))?.transpose()
    }
}

//! Deletes all rows of a range, as one statement.
//!
//! Rows are locked as a locking scan comes to them, and deleted by batches: of each tree the
//! batch's keys go together, in their order. The lock that the scan took on a row is given up once
//! the row is deleted, since the deletion holds it: so neither what is kept here nor the lock table
//! grows with the range. Where ranges are locked the locks stay: a few by the primary key, one a
//! row by another index.

use super::catalog::TableDef;
use super::cursor::{Bounds, Cursor, IndexRef};
use super::encoded::EncodedRows;
use super::error::{Error, Result};
use super::lock::{Lock, Wait};
use super::table::Table;
use super::transaction::Transaction;
use crate::txn::Direction;

/// Rows that are deleted together, at most.
const BATCH_ROWS: usize = 1024;
/// Of how many parts of the memory a batch's leaves may take one, were each row in a leaf of its
/// own: they are there still when the rows are deleted.
const MEMORY_PART: usize = 16;
/// Bytes of their keys and entries; the last row may pass that.
const BATCH_BYTES: usize = 1 << 20;

/// Rows to be deleted together.
#[derive(Default)]
struct Batch {
    rows: EncodedRows,
    /// Keys of those whose lock was taken for it.
    locked: Vec<Vec<u8>>,
    count: usize,
}

impl Batch {
    /// Takes the next rows of a locking scan, as many as `most`; none at its end.
    fn take(cursor: &mut Cursor<'_>, def: &TableDef, most: usize) -> Result<Batch> {
        let mut batch = Batch::default();
        while batch.count < most && batch.rows.bytes() < BATCH_BYTES {
            if cursor.next()?.is_none() {
                break;
            }
            let (key, value) = cursor.stored_row();
            batch.rows.push_stored(def, key, value)?;
            let key = key.to_vec();
            if cursor.transaction().took_lock(def.primary, &key)? {
                batch.locked.push(key);
            }
            batch.count += 1;
        }
        Ok(batch)
    }
}

impl Transaction {
    /// Deletes all rows within the bounds; returns how many there were. They are locked and looked
    /// at as by [`Transaction::scan_locking`]: of each the newest committed version counts, and a
    /// level that locks ranges keeps others' rows out of the bounds. It takes the memory of a
    /// batch, however many rows there are, and less time by the primary key than a scan with a
    /// delete for each; who knows all keys deletes them faster one by one. By a secondary index a
    /// level that locks ranges keeps a lock for each row. A [`Canceller`](crate::Canceller) ends
    /// it, if it waits or not; what it has done is taken back first ([`Transaction::rollback`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use std::ops::Bound::{Excluded, Unbounded};
    /// use weir::{Bounds, Database, Isolation, Options};
    /// # use weir::{Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).column("day", Type::I64);
    /// # let schema = schema.primary_key(&["id"]).index("by_day", &["day"]).build()?;
    /// # let events = db.create_table("events", schema)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// # for id in 0..5 {
    /// #     txn.insert(&events, &[Value::U64(id), Value::I64(id as i64)])?;
    /// # }
    /// let today = [3.into()];
    /// let before_today = Bounds::new(Unbounded, Excluded(&today));
    /// assert_eq!(txn.delete_range(&events, "by_day", before_today)?, 3);
    /// txn.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::scan_locking`], and those of locks. The statement did nothing then; what
    /// it locked may stay locked.
    pub fn delete_range<'i>(
        &mut self,
        table: &Table,
        index: impl Into<IndexRef<'i>>,
        bounds: Bounds<'_>,
    ) -> Result<u64> {
        let def = self.enter_typed_to_write(table)?;
        let before = self.txn()?.savepoint();
        let deleted = self.delete_by_batches(table, &def, index.into(), bounds);
        if deleted.is_err() && !self.has_ended() {
            self.txn()?.rollback_to(before)?;
        }
        deleted
    }

    fn delete_by_batches(
        &mut self,
        table: &Table,
        def: &TableDef,
        index: IndexRef<'_>,
        bounds: Bounds<'_>,
    ) -> Result<u64> {
        let lock = Lock::Exclusive(Wait::ForTimeout);
        let most =
            (self.db().transactions.storage.pool.frames() / MEMORY_PART).clamp(1, BATCH_ROWS);
        let mut cursor = self.scan_locking(table, index, bounds, Direction::Forward, lock)?;
        let mut deleted = 0;
        loop {
            let batch = Batch::take(&mut cursor, def, most)?;
            if batch.count == 0 {
                return Ok(deleted);
            }
            deleted += batch.count as u64;
            cursor.transaction().delete_batch(table, def, &batch)?;
        }
    }

    fn delete_batch(&mut self, table: &Table, def: &TableDef, batch: &Batch) -> Result<()> {
        let (mut rows, mut entries) = batch.rows.pairs(def.indexes.len());
        self.statement(|t| {
            let txn = t.txn()?;
            if txn.is_cancelled() {
                txn.note_cancelled();
                return Err(Error::Cancelled);
            }
            t.writer(table, def)?.0.delete_many(&mut rows, &mut entries)
        })?;
        for key in &batch.locked {
            self.release_written(def.primary, key)?;
        }
        Ok(())
    }
}

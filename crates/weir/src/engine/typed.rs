//! Typed statements: rows of values in, rows out, indexes kept.

use super::catalog::TableDef;
use super::cursor::{Bounds, Cursor, IndexRef};
use super::encoded::{EncodedRows, Entries};
use super::error::{Error, Result};
use super::lock::{Lock, Wait};
use super::rows_ahead::RowsAhead;
use super::table::Table;
use super::transaction::Transaction;
use crate::key::encode_key;
use crate::row::{Row, RowError, RowRef};
use crate::schema::{KeyOf, Schema};
use crate::txn::{Direction, Op, Outcome};
use crate::value::Value;
use std::sync::Arc;

impl Transaction {
    fn enter_typed(&mut self, table: &Table) -> Result<Arc<TableDef>> {
        let def = self.enter(table)?;
        def.typed(table)?;
        Ok(def)
    }

    pub(super) fn enter_typed_to_write(&mut self, table: &Table) -> Result<Arc<TableDef>> {
        let def = self.enter_to_write(table)?;
        def.typed(table)?;
        Ok(def)
    }

    /// Columns and keys of a typed table, which stay as they are until the transaction ends: rows
    /// are given by position, and others may add and drop columns before it has used the table.
    ///
    /// # Errors
    /// [`Error::NotTyped`]; [`Error::TableInUse`], [`Error::NoSuchTable`].
    pub fn schema(&mut self, table: &Table) -> Result<Schema> {
        Ok(self.enter_typed(table)?.schema().clone())
    }

    /// Inserts a row: one value for each column, in the order of the schema. A value of Rust
    /// becomes one by `into`: `&[7u64.into(), "Ada".into(), None::<&str>.into()]`.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::Row`]; lock and storage errors.
    pub fn insert(&mut self, table: &Table, row: &[Value<'_>]) -> Result<()> {
        let def = self.enter_typed_to_write(table)?;
        self.encoded().encode(&def, row)?;
        self.lock_encoded(&def)?;
        self.statement(|t| {
            let (mut writer, row) = t.writer(table, &def)?;
            writer.insert(&row.key, &row.value, row.entries.iter())
        })
    }

    /// Inserts many rows at once, which costs less than one after the other.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).column("name", Type::Text);
    /// # let people = db.create_table("people", schema.primary_key(&["id"]).build()?)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// let ada = [Value::U64(1), Value::Text("Ada")];
    /// let charles = [Value::U64(2), Value::Text("Charles")];
    /// txn.insert_many(&people, &[ada, charles])?;
    /// txn.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert`]; of several keys that are there already, [`Error::Duplicate`]
    /// names any. The statement did nothing then.
    pub fn insert_many<'v>(
        &mut self,
        table: &Table,
        rows: &[impl AsRef<[Value<'v>]>],
    ) -> Result<()> {
        let def = self.enter_typed_to_write(table)?;
        let mut encoded = EncodedRows::default();
        if let Some((first, others)) = rows.split_first() {
            encoded.push(&def, first.as_ref())?;
            encoded.reserve(others.len());
            others.iter().try_for_each(|row| encoded.push(&def, row.as_ref()))?;
        }
        let (mut rows, mut entries) = encoded.pairs(def.indexes.len());
        for row in &rows {
            self.lock_for_write(def.primary, row.key)?;
        }
        self.statement(|t| t.writer(table, &def)?.0.insert_many(&mut rows, &mut entries))
    }

    /// Locks the row at hand if the isolation level asks for that before a write.
    fn lock_encoded(&mut self, def: &TableDef) -> Result<()> {
        let (key, value) = self.take_buffers();
        let locked = self.lock_for_write(def.primary, &key);
        self.put_buffers(key, value);
        locked
    }

    /// Replaces the row with the same primary key; `false` if there is none.
    ///
    /// # Errors
    /// [`Error::Duplicate`] for a unique index; [`Error::Row`]; lock and storage errors.
    pub fn update(&mut self, table: &Table, row: &[Value<'_>]) -> Result<bool> {
        self.put(table, row, |value| Op::Update(value))
    }

    /// Inserts the row, or replaces the one with the same primary key; `true` if one was replaced.
    ///
    /// # Errors
    /// As [`Transaction::update`].
    pub fn upsert(&mut self, table: &Table, row: &[Value<'_>]) -> Result<bool> {
        self.put(table, row, |value| Op::Upsert(value))
    }

    /// Writes a row by `op` and keeps its index entries; whether one was replaced.
    fn put(
        &mut self,
        table: &Table,
        row: &[Value<'_>],
        op: for<'v> fn(&'v [u8]) -> Op<'v>,
    ) -> Result<bool> {
        let def = self.enter_typed_to_write(table)?;
        self.encoded().encode(&def, row)?;
        self.lock_encoded(&def)?;
        self.statement(|t| {
            let (mut writer, row) = t.writer(table, &def)?;
            let old = match writer.put_row(&row.key, op(&row.value))? {
                Outcome::Done(Some(old)) => old,
                Outcome::Done(None) => {
                    return writer.insert_entries(row.entries.iter()).map(|()| false);
                }
                Outcome::Absent => return Ok(false),
                Outcome::Exists => return Err(writer.unexpected(&Outcome::Exists)),
            };
            // An entry that the snapshot doesn't cover must become the transaction's own, like the
            // row.
            let unseen = writer.txn.overwrote_unseen;
            let old = Entries::of_stored(&def, &row.key, &old)?;
            let pairs = old.iter().zip(row.entries.iter());
            let changed = pairs.clone().filter(|(old, new)| old != new);
            let (removed, added) = (changed.clone().map(|p| p.0), changed.map(|p| p.1));
            writer.replace_entries(removed, added)?;
            if unseen {
                let same = pairs.filter(|(old, new)| old == new).map(|p| p.1);
                writer.rewrite_entries(same)?;
            }
            Ok(true)
        })
    }

    /// Deletes the row with that primary key; `false` if there is none.
    ///
    /// # Errors
    /// [`Error::Row`]; lock and storage errors.
    pub fn delete(&mut self, table: &Table, primary_key: &[Value<'_>]) -> Result<bool> {
        let def = self.enter_typed_to_write(table)?;
        self.encode_whole_key(&def, primary_key)?;
        self.lock_encoded(&def)?;
        self.statement(|t| {
            let (mut writer, row) = t.writer(table, &def)?;
            match writer.put_row(&row.key, Op::Delete)? {
                Outcome::Done(Some(old)) => {
                    let entries = Entries::of_stored(&def, &row.key, &old)?;
                    writer.delete_entries(entries.iter())?;
                    Ok(true)
                }
                Outcome::Absent => Ok(false),
                other => Err(writer.unexpected(&other)),
            }
        })
    }

    /// Deletes the rows with these primary keys, which costs less than one after the other; returns
    /// how many there were.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).column("name", Type::Text);
    /// # let people = db.create_table("people", schema.primary_key(&["id"]).build()?)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&people, &[Value::U64(1), Value::Text("Ada")])?;
    /// assert_eq!(txn.delete_many(&people, &[[Value::U64(1)], [Value::U64(2)]])?, 1);
    /// txn.commit()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::delete`]. The statement did nothing then.
    pub fn delete_many<'v>(
        &mut self,
        table: &Table,
        primary_keys: &[impl AsRef<[Value<'v>]>],
    ) -> Result<usize> {
        let def = self.enter_typed_to_write(table)?;
        let mut keys = Vec::with_capacity(primary_keys.len());
        for key in primary_keys {
            self.encode_whole_key(&def, key.as_ref())?;
            keys.push(self.encoded().key.clone());
        }
        keys.sort_unstable();
        let mut ahead = RowsAhead::default();
        for (n, key) in keys.iter().enumerate() {
            if self.locks_ranges {
                ahead.come_to(&self.transactions().storage, def.primary, &keys, n);
            }
            self.lock_for_write(def.primary, key)?;
        }
        self.statement(|t| {
            let (mut writer, _) = t.writer(table, &def)?;
            let (mut ahead, mut deleted) = (RowsAhead::default(), EncodedRows::default());
            for (n, key) in keys.iter().enumerate() {
                ahead.come_to(writer.storage, def.primary, &keys, n);
                match writer.put_row(key, Op::Delete)? {
                    Outcome::Done(Some(old)) => deleted.push_stored(&def, key, &old)?,
                    Outcome::Absent => {}
                    other => return Err(writer.unexpected(&other)),
                }
            }
            let (rows, mut entries) = deleted.pairs(def.indexes.len());
            writer.delete_many_entries(&mut entries)?;
            Ok(rows.len())
        })
    }

    fn encode_whole_key(&mut self, def: &TableDef, primary_key: &[Value<'_>]) -> Result<()> {
        let expected = def.schema().primary_key().len();
        if primary_key.len() != expected {
            let what = "the primary key".to_string();
            return Err(RowError::Count { what, expected, found: primary_key.len() }.into());
        }
        let out = self.encoded();
        out.key.clear();
        Ok(encode_key(def.schema(), KeyOf::Primary, primary_key, &mut out.key)?)
    }

    /// The row with that primary key, as the transaction's isolation sees it. One that is read to
    /// be changed is better read by [`Transaction::get_for_update`]: others may have changed it
    /// since the snapshot.
    ///
    /// # Errors
    /// [`Error::Row`]; storage errors.
    pub fn get(&mut self, table: &Table, primary_key: &[Value<'_>]) -> Result<Option<Row>> {
        self.get_locking(table, primary_key, Lock::None)
    }

    /// As [`Transaction::get`], but the newest committed version, locked against all others.
    ///
    /// # Errors
    /// [`Error::Row`]; lock and storage errors.
    pub fn get_for_update(
        &mut self,
        table: &Table,
        primary_key: &[Value<'_>],
    ) -> Result<Option<Row>> {
        self.get_locking(table, primary_key, Lock::Exclusive(Wait::ForTimeout))
    }

    /// As [`Transaction::get`], but the newest committed version, locked against writers.
    ///
    /// # Errors
    /// [`Error::Row`]; lock and storage errors.
    pub fn get_for_share(
        &mut self,
        table: &Table,
        primary_key: &[Value<'_>],
    ) -> Result<Option<Row>> {
        self.get_locking(table, primary_key, Lock::Shared(Wait::ForTimeout))
    }

    /// As [`Transaction::get_for_update`], but fails at once if the row is locked by another
    /// transaction (NOWAIT).
    ///
    /// # Errors
    /// [`Error::LockWaitTimeout`]; [`Error::Row`]; storage errors.
    pub fn get_for_update_nowait(
        &mut self,
        table: &Table,
        primary_key: &[Value<'_>],
    ) -> Result<Option<Row>> {
        self.get_locking(table, primary_key, Lock::Exclusive(Wait::No))
    }

    /// The row with that primary key, under a lock of any kind.
    ///
    /// # Errors
    /// [`Error::Row`]; lock and storage errors.
    pub fn get_locking(
        &mut self,
        table: &Table,
        primary_key: &[Value<'_>],
        lock: Lock,
    ) -> Result<Option<Row>> {
        let def = self.enter_typed(table)?;
        self.encode_whole_key(&def, primary_key)?;
        if lock == Lock::None {
            self.drop_statement_snapshot()?;
        }
        let (key, mut value) = self.take_buffers();
        let found = self.read_row(def.rows(), &key, lock, &mut value);
        let row = match &found {
            Ok(true) => RowRef::primary(def.schema(), &key, &value).to_row().map(Some),
            _ => Ok(None),
        };
        self.put_buffers(key, value);
        found?;
        Ok(row?)
    }

    /// The rows with these primary keys, as [`Transaction::get`] gives them one by one, each in its
    /// key's place; at [`Isolation::ReadCommitted`](super::Isolation) all as of one moment. What is
    /// not in memory is read from the device many at a time.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).column("name", Type::Text);
    /// # let people = db.create_table("people", schema.primary_key(&["id"]).build()?)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&people, &[Value::U64(1), Value::Text("Ada")])?;
    /// let found = txn.get_many(&people, &[[Value::U64(2)], [Value::U64(1)]])?;
    /// assert!(found[0].is_none());
    /// assert_eq!(found[1].as_ref().expect("she is there").get(1), Value::Text("Ada"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::get`]; at [`Isolation::Serializable`](super::Isolation), which locks the
    /// rows in the order of `primary_keys`, lock errors.
    pub fn get_many<'v>(
        &mut self,
        table: &Table,
        primary_keys: &[impl AsRef<[Value<'v>]>],
    ) -> Result<Vec<Option<Row>>> {
        let def = self.enter_typed(table)?;
        let mut keys = Vec::with_capacity(primary_keys.len());
        for key in primary_keys {
            self.encode_whole_key(&def, key.as_ref())?;
            keys.push(self.encoded().key.clone());
        }
        self.drop_statement_snapshot()?;
        let mut ahead = RowsAhead::default();
        let (mut value, mut found) = (Vec::new(), Vec::with_capacity(keys.len()));
        for (n, key) in keys.iter().enumerate() {
            ahead.come_to(&self.transactions().storage, def.primary, &keys, n);
            let is_there = self.read_row(def.rows(), key, Lock::None, &mut value)?;
            let row = is_there.then(|| RowRef::primary(def.schema(), key, &value).to_row());
            found.push(row.transpose()?);
        }
        Ok(found)
    }

    /// The row that has these values in a unique index, as the transaction's isolation sees it.
    /// `None` where one of them is NULL: of those there may be many.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let schema = Schema::builder().column("id", Type::U64).column("name", Type::Text);
    /// let schema = schema.primary_key(&["id"]).unique_index("by_name", &["name"]).build()?;
    /// let people = db.create_table("people", schema)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&people, &[1u64.into(), "Ada".into()])?;
    /// let ada = txn.get_by(&people, "by_name", &["Ada".into()])?.expect("she is there");
    /// assert_eq!(ada.get(0), Value::U64(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotUnique`]; as [`Transaction::scan`].
    pub fn get_by<'i>(
        &mut self,
        table: &Table,
        index: impl Into<IndexRef<'i>>,
        key: &[Value<'_>],
    ) -> Result<Option<Row>> {
        self.get_by_locking(table, index, key, Lock::None)
    }

    /// As [`Transaction::get_by`], under a lock of any kind: with one, of the newest committed
    /// version.
    ///
    /// # Errors
    /// As [`Transaction::get_by`]; lock errors.
    pub fn get_by_locking<'i>(
        &mut self,
        table: &Table,
        index: impl Into<IndexRef<'i>>,
        key: &[Value<'_>],
        lock: Lock,
    ) -> Result<Option<Row>> {
        let index = index.into();
        let def = self.enter_typed(table)?;
        let KeyOf::Index(of) = index.resolve(table, &def)? else {
            return self.get_locking(table, key, lock);
        };
        let found = &def.schema().indexes()[of];
        if !found.unique() {
            let (table, index) = (table.name(), found.name().to_string());
            return Err(Error::NotUnique { table, index });
        }
        if key.len() != found.columns().len() {
            let (what, expected) = (format!("the index `{}`", found.name()), found.columns().len());
            return Err(RowError::Count { what, expected, found: key.len() }.into());
        }
        if key.iter().any(Value::is_null) {
            return Ok(None);
        }
        let (bounds, forward) = (Bounds::prefix(key), Direction::Forward);
        let mut rows = self.cursor(table, index, bounds, forward, false, lock)?;
        Ok(rows.next()?.map(|row| row.to_row()).transpose()?)
    }

    /// Gives some columns of the row with that primary key new values, by the columns' names;
    /// `false` if there is none. The row's newest committed version is what is changed, locked
    /// against all others until the transaction ends, even if the statement fails. Of a column that
    /// is named twice the last value counts.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Isolation, Options, Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).column("name", Type::Text);
    /// # let schema = schema.nullable_column("city", Type::Text).primary_key(&["id"]).build()?;
    /// # let people = db.create_table("people", schema)?;
    /// # let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&people, &[1u64.into(), "Ada".into(), Value::Null])?;
    /// assert!(txn.update_columns(&people, &[1u64.into()], &[("city", "London".into())])?);
    /// # assert_eq!(txn.get(&people, &[1u64.into()])?.expect("she is there").get(2), "London".into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Schema`] for a column that there is not, and for one of the primary key: delete the
    /// row and insert another. As [`Transaction::update`].
    pub fn update_columns(
        &mut self,
        table: &Table,
        primary_key: &[Value<'_>],
        changes: &[(&str, Value<'_>)],
    ) -> Result<bool> {
        let def = self.enter_typed_to_write(table)?;
        let positions = changes.iter().map(|(name, _)| def.schema().changeable(name));
        let positions: Vec<usize> = positions.collect::<std::result::Result<_, _>>()?;
        let Some(row) = self.get_for_update(table, primary_key)? else {
            // As an update that finds none: only where ranges are locked must it stay so.
            if !self.locks_ranges {
                self.unlock(table, primary_key)?;
            }
            return Ok(false);
        };
        let mut values: Vec<_> = row.values().collect();
        for (position, (_, value)) in positions.into_iter().zip(changes) {
            values[position] = *value;
        }
        self.update(table, &values)
    }

    /// Gives up the lock that the last locking read took, if it is on this row. What was locked
    /// before that read, or changed, stays locked.
    ///
    /// # Errors
    /// [`Error::Row`]; [`Error::Ended`].
    pub fn unlock(&mut self, table: &Table, primary_key: &[Value<'_>]) -> Result<()> {
        let def = self.enter_typed(table)?;
        self.encode_whole_key(&def, primary_key)?;
        let (key, value) = self.take_buffers();
        let unlocked = self.unlock_key(def.primary, &key);
        self.put_buffers(key, value);
        unlocked
    }

    /// Rows in the order of an index.
    ///
    /// # Errors
    /// [`Error::NotTyped`], [`Error::NoSuchTable`], [`Error::TableTooNew`], [`Error::TableInUse`];
    /// [`Error::NoSuchIndex`], [`Error::IndexTooNew`], [`Error::Row`]; storage errors.
    pub fn scan<'t, 'i>(
        &'t mut self,
        table: &Table,
        index: impl Into<IndexRef<'i>>,
        bounds: Bounds<'_>,
        direction: Direction,
    ) -> Result<Cursor<'t>> {
        self.cursor(table, index.into(), bounds, direction, false, Lock::None)
    }

    /// As [`Transaction::scan`], but the newest committed versions, each row locked as it is given.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use weir::{Bounds, Database, Direction, IndexRef, Isolation, Lock, Options, Wait};
    /// # use weir::{Schema, Type, Value};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let schema = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build()?;
    /// # let jobs = db.create_table("jobs", schema)?;
    /// # let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// # for id in 0..3 {
    /// #     txn.insert(&jobs, &[Value::U64(id)])?;
    /// # }
    /// # txn.commit()?;
    /// // Each worker takes a job that no other is at.
    /// let free = Lock::Exclusive(Wait::Skip);
    /// let mut workers = [db.begin(Isolation::ReadCommitted)?, db.begin(Isolation::ReadCommitted)?];
    /// for (n, worker) in workers.iter_mut().enumerate() {
    ///     let (all, forward) = (Bounds::all(), Direction::Forward);
    ///     let mut rows = worker.scan_locking(&jobs, IndexRef::Primary, all, forward, free)?;
    ///     let job = rows.next()?.expect("there is one left").get(0)?.as_u64();
    ///     assert_eq!(job, Some(n as u64));
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::scan`]; of the cursor also those of locks.
    pub fn scan_locking<'t, 'i>(
        &'t mut self,
        table: &Table,
        index: impl Into<IndexRef<'i>>,
        bounds: Bounds<'_>,
        direction: Direction,
        lock: Lock,
    ) -> Result<Cursor<'t>> {
        self.cursor(table, index.into(), bounds, direction, false, lock)
    }

    /// Entries of an index alone: only its columns and those of the primary key can be read. Needs
    /// no look at the rows.
    ///
    /// # Errors
    /// As [`Transaction::scan`].
    pub fn scan_keys<'t, 'i>(
        &'t mut self,
        table: &Table,
        index: impl Into<IndexRef<'i>>,
        bounds: Bounds<'_>,
        direction: Direction,
    ) -> Result<Cursor<'t>> {
        self.cursor(table, index.into(), bounds, direction, true, Lock::None)
    }

    fn cursor<'t>(
        &'t mut self,
        table: &Table,
        index: IndexRef<'_>,
        bounds: Bounds<'_>,
        direction: Direction,
        keys_only: bool,
        lock: Lock,
    ) -> Result<Cursor<'t>> {
        let def = self.enter_typed(table)?;
        let of = index.resolve(table, &def)?;
        let range = bounds.encode(def.schema(), of)?;
        if lock == Lock::None {
            self.drop_statement_snapshot()?;
        }
        let scan = self.begin_scan(table, def, of, range.clone(), direction, lock)?;
        Ok(Cursor::new(self, scan, range, direction, keys_only))
    }
}

//! Transactions as users see them: rows in, rows out, indexes kept.

use super::Inner;
use super::catalog::TableDef;
use super::cursor::{Bounds, Cursor, IndexRef};
use super::error::{Error, Result, inconsistent};
use super::table::{Shared, Table};
use crate::key::{encode_key, encode_primary_key};
use crate::lock::Mode;
use crate::row::{Row, RowRef, encode_value, index_entry};
use crate::schema::KeyOf;
use crate::tree::{Hint, Tree};
use crate::txn::{Canceller, Direction, Durability, Op, Outcome, Savepoint, Txn, View};
use crate::value::Value;
use std::sync::Arc;

/// What a transaction's reads see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// The newest versions, committed or not.
    ReadUncommitted,
    /// What was committed when the statement began.
    ReadCommitted,
    /// What was committed when the transaction first read. Writes and locking reads see the newest.
    #[default]
    RepeatableRead,
}

/// A table that the transaction uses, with its definition.
struct Used {
    shared: Arc<Shared>,
    def: Arc<TableDef>,
}

/// A transaction. Dropped without commit, it is rolled back.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use weir::{Database, Isolation, Options, Schema, Type, Value};
/// let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
/// let schema = Schema::builder()
///     .column("id", Type::U64)
///     .column("name", Type::Text)
///     .primary_key(&["id"])
///     .index("by_name", &["name"])
///     .build()?;
/// let people = db.create_table("people", schema)?;
/// let mut txn = db.begin(Isolation::RepeatableRead)?;
/// txn.insert(&people, &[Value::U64(1), Value::Text("Ada")])?;
/// txn.commit()?;
///
/// let mut txn = db.begin(Isolation::RepeatableRead)?;
/// let row = txn.get(&people, &[Value::U64(1)])?.expect("was inserted");
/// assert_eq!(row.get(1), Value::Text("Ada"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Transaction {
    db: Arc<Inner>,
    /// `None` once it has ended.
    txn: Option<Txn>,
    isolation: Isolation,
    durability: Durability,
    used: Vec<Used>,
    /// Key and value of the row at hand, then of its index entries.
    key: Vec<u8>,
    value: Vec<u8>,
    entries: Entries,
    /// Where the entries go, found before anything is written so that the CPU can fetch the leaves.
    hints: Vec<Hint>,
}

/// Keys and values of a row's index entries, end to end.
#[derive(Default)]
struct Entries {
    bytes: Vec<u8>,
    /// End of key and end of value of each.
    ends: Vec<(usize, usize)>,
}

impl Entries {
    fn get(&self, n: usize) -> (&[u8], &[u8]) {
        let start = if n == 0 { 0 } else { self.ends[n - 1].1 };
        let (key_end, end) = self.ends[n];
        (&self.bytes[start..key_end], &self.bytes[key_end..end])
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    fn push(&mut self, value: &mut Vec<u8>, key_end: usize) {
        self.bytes.append(value);
        self.ends.push((key_end, self.bytes.len()));
    }
}

/// The entries that a row has in a table's indexes.
fn entries_of(def: &TableDef, row: &[Value<'_>], out: &mut Entries) -> Result<()> {
    out.clear();
    let mut value = Vec::new();
    for index in 0..def.indexes.len() {
        index_entry(&def.schema, index, row, &mut out.bytes, &mut value)?;
        let key_end = out.bytes.len();
        out.push(&mut value, key_end);
    }
    Ok(())
}

/// The entries that a stored row has.
fn entries_of_stored(def: &TableDef, key: &[u8], value: &[u8]) -> Result<Entries> {
    let mut out = Entries::default();
    let row = RowRef::primary(&def.schema, key, value);
    let mut of_entry = Vec::new();
    for index in 0..def.indexes.len() {
        row.index_entry(index, &mut out.bytes, &mut of_entry)?;
        let key_end = out.bytes.len();
        out.push(&mut of_entry, key_end);
    }
    Ok(out)
}

impl Transaction {
    pub(super) fn new(db: Arc<Inner>, txn: Txn, isolation: Isolation) -> Self {
        let durability = db.options.durability;
        Transaction {
            db,
            txn: Some(txn),
            isolation,
            durability,
            used: Vec::new(),
            key: Vec::new(),
            value: Vec::new(),
            entries: Entries::default(),
            hints: Vec::new(),
        }
    }

    /// Sets when [`Transaction::commit`] returns, for this transaction only.
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = durability;
    }

    fn txn(&mut self) -> Result<&mut Txn> {
        self.txn.as_mut().ok_or(Error::Ended)
    }

    /// The table's definition, fixed from its first use to the end of the transaction.
    fn enter(&mut self, table: &Table) -> Result<Arc<TableDef>> {
        // What a statement could not take back for want of space is taken back before the next.
        self.txn()?.finish_rollback()?;
        if let Some(used) = self.used.iter().find(|u| Arc::ptr_eq(&u.shared, &table.0)) {
            return Ok(used.def.clone());
        }
        let def = table.0.enter(self.db.options.lock_wait_timeout)?;
        self.used.push(Used { shared: table.0.clone(), def: def.clone() });
        Ok(def)
    }

    /// What a statement that begins now sees.
    fn view(&mut self) -> Result<View> {
        let isolation = self.isolation;
        let txn = self.txn()?;
        Ok(match isolation {
            Isolation::ReadUncommitted => View { own: txn.id(), snapshot: View::EVERYTHING },
            Isolation::ReadCommitted => {
                txn.drop_snapshot();
                txn.view()
            }
            Isolation::RepeatableRead => txn.view(),
        })
    }

    /// Ends a statement: a failed one has done nothing; a deadlock has undone all.
    fn conclude<T>(&mut self, before: Savepoint, result: Result<T>) -> Result<T> {
        match result {
            Ok(done) => Ok(done),
            Err(Error::Deadlock) => {
                self.end(|txn| txn.rollback())?;
                Err(Error::Deadlock)
            }
            Err(error) => {
                if let Some(txn) = &mut self.txn {
                    txn.rollback_to(before)?;
                }
                Err(error)
            }
        }
    }

    fn statement<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.txn()?.savepoint();
        let result = run(self);
        self.conclude(before, result)
    }

    /// Inserts a row: one value for each column, in the order of the schema.
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::Row`]; lock and storage errors.
    pub fn insert(&mut self, table: &Table, row: &[Value<'_>]) -> Result<()> {
        let def = self.enter(table)?;
        self.encode_row(&def, row)?;
        self.statement(|t| t.insert_encoded(table, &def))
    }

    /// Key, value and index entries of a row into the buffers.
    fn encode_row(&mut self, def: &TableDef, row: &[Value<'_>]) -> Result<()> {
        self.key.clear();
        self.value.clear();
        encode_primary_key(&def.schema, row, &mut self.key)?;
        encode_value(&def.schema, row, &mut self.value)?;
        entries_of(def, row, &mut self.entries)
    }

    fn insert_encoded(&mut self, table: &Table, def: &TableDef) -> Result<()> {
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        let storage = &self.db.shared.storage;
        self.hints.clear();
        for (n, index) in def.indexes.iter().enumerate() {
            self.hints.push(index.tree.approach(storage, self.entries.get(n).0));
        }
        for hint in &mut self.hints {
            hint.arrive(storage);
        }
        for hint in &self.hints {
            hint.prefetch_leaf(storage);
        }
        let outcome = txn.write(def.primary, &self.key, Op::Insert(&self.value))?;
        if outcome == Outcome::Exists {
            return Err(duplicate(table, "primary"));
        }
        for (n, index) in def.indexes.iter().enumerate() {
            let (key, value) = self.entries.get(n);
            if index.insert(txn, key, value, self.hints[n])? == Outcome::Exists {
                return Err(duplicate(table, def.schema.indexes()[n].name()));
            }
        }
        Ok(())
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
        let def = self.enter(table)?;
        self.encode_row(&def, row)?;
        self.statement(|t| {
            let value = std::mem::take(&mut t.value);
            let outcome = t.write_primary(&def, op(&value));
            t.value = value;
            match outcome? {
                Outcome::Done(Some(old)) => t.change_entries(table, &def, &old).map(|()| true),
                Outcome::Done(None) => t.insert_entries(table, &def).map(|()| false),
                Outcome::Absent => Ok(false),
                Outcome::Exists => Err(unexpected(&def, &Outcome::Exists)),
            }
        })
    }

    fn write_primary(&mut self, def: &TableDef, op: Op<'_>) -> Result<Outcome> {
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        Ok(txn.write(def.primary, &self.key, op)?)
    }

    fn insert_entries(&mut self, table: &Table, def: &TableDef) -> Result<()> {
        for n in 0..def.indexes.len() {
            self.insert_entry(table, def, n)?;
        }
        Ok(())
    }

    fn insert_entry(&mut self, table: &Table, def: &TableDef, n: usize) -> Result<()> {
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        let (key, value) = self.entries.get(n);
        let storage = &self.db.shared.storage;
        let mut hint = def.indexes[n].tree.approach(storage, key);
        hint.arrive(storage);
        match def.indexes[n].insert(txn, key, value, hint)? {
            Outcome::Exists => Err(duplicate(table, def.schema.indexes()[n].name())),
            _ => Ok(()),
        }
    }

    /// Replaces the index entries of the row that was just replaced, where they differ.
    fn change_entries(&mut self, table: &Table, def: &TableDef, old: &[u8]) -> Result<()> {
        // An entry that the snapshot doesn't cover must become the transaction's own, like the row.
        let unseen = self.txn()?.overwrote_unseen;
        let old = entries_of_stored(def, &self.key, old)?;
        for n in 0..def.indexes.len() {
            if old.get(n) != self.entries.get(n) {
                self.delete_entry(def, n, &old)?;
                self.insert_entry(table, def, n)?;
            } else if unseen {
                self.touch_entry(def, n)?;
            }
        }
        Ok(())
    }

    /// Writes an entry as it is.
    fn touch_entry(&mut self, def: &TableDef, n: usize) -> Result<()> {
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        let (key, value) = self.entries.get(n);
        match def.indexes[n].change(txn, key, Op::Update(value))? {
            Outcome::Done(_) => Ok(()),
            _ => Err(inconsistent(
                def.indexes[n].tree,
                "the index has no entry for a row of its table",
            )),
        }
    }

    fn delete_entry(&mut self, def: &TableDef, n: usize, entries: &Entries) -> Result<()> {
        match def.indexes[n].change(self.txn()?, entries.get(n).0, Op::Delete)? {
            Outcome::Done(_) => Ok(()),
            _ => Err(inconsistent(
                def.indexes[n].tree,
                "the index has no entry for a row of its table",
            )),
        }
    }

    /// Deletes the row with that primary key; `false` if there is none.
    ///
    /// # Errors
    /// [`Error::Row`]; lock and storage errors.
    pub fn delete(&mut self, table: &Table, primary_key: &[Value<'_>]) -> Result<bool> {
        let def = self.enter(table)?;
        self.encode_whole_key(&def, primary_key)?;
        self.statement(|t| match t.write_primary(&def, Op::Delete)? {
            Outcome::Done(Some(old)) => {
                let entries = entries_of_stored(&def, &t.key, &old)?;
                for n in 0..def.indexes.len() {
                    t.delete_entry(&def, n, &entries)?;
                }
                Ok(true)
            }
            Outcome::Absent => Ok(false),
            other => Err(unexpected(&def, &other)),
        })
    }

    fn encode_whole_key(&mut self, def: &TableDef, primary_key: &[Value<'_>]) -> Result<()> {
        let expected = def.schema.primary_key().len();
        if primary_key.len() != expected {
            let what = "the primary key".to_string();
            return Err(
                crate::row::RowError::Count { what, expected, found: primary_key.len() }.into()
            );
        }
        self.key.clear();
        Ok(encode_key(&def.schema, KeyOf::Primary, primary_key, &mut self.key)?)
    }

    /// The row with that primary key, as the transaction's isolation sees it.
    ///
    /// # Errors
    /// [`Error::Row`]; storage errors.
    pub fn get(&mut self, table: &Table, primary_key: &[Value<'_>]) -> Result<Option<Row>> {
        let def = self.enter(table)?;
        self.encode_whole_key(&def, primary_key)?;
        let view = self.view()?;
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        let Some(value) = txn.get_in(view, def.primary, &self.key)? else { return Ok(None) };
        Ok(Some(RowRef::primary(&def.schema, &self.key, &value).to_row()?))
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
        self.get_locked(table, primary_key, Mode::Exclusive)
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
        self.get_locked(table, primary_key, Mode::Shared)
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
        let usual = std::mem::take(&mut self.txn()?.lock_timeout);
        let found = self.get_locked(table, primary_key, Mode::Exclusive);
        if let Some(txn) = &mut self.txn {
            txn.lock_timeout = usual;
        }
        found
    }

    /// Gives up the lock on a row that was read under lock and not changed.
    ///
    /// # Errors
    /// [`Error::Row`]; [`Error::Ended`].
    pub fn unlock(&mut self, table: &Table, primary_key: &[Value<'_>]) -> Result<()> {
        let def = self.enter(table)?;
        self.encode_whole_key(&def, primary_key)?;
        let txn = self.txn.as_mut().ok_or(Error::Ended)?;
        txn.unlock(def.primary, &self.key);
        Ok(())
    }

    /// Ends this transaction's waits for locks, from another thread.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn canceller(&mut self) -> Result<Canceller> {
        Ok(self.txn()?.canceller())
    }

    fn get_locked(
        &mut self,
        table: &Table,
        primary_key: &[Value<'_>],
        mode: Mode,
    ) -> Result<Option<Row>> {
        let def = self.enter(table)?;
        self.encode_whole_key(&def, primary_key)?;
        let found = self.statement(|t| {
            let txn = t.txn.as_mut().ok_or(Error::Ended)?;
            Ok(txn.get_locked(def.primary, &t.key, mode)?)
        })?;
        let Some(value) = found else { return Ok(None) };
        Ok(Some(RowRef::primary(&def.schema, &self.key, &value).to_row()?))
    }

    /// Rows in the order of an index.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`], [`Error::IndexTooNew`], [`Error::Row`]; storage errors.
    pub fn scan<'t, 'i>(
        &'t mut self,
        table: &Table,
        index: impl Into<IndexRef<'i>>,
        bounds: Bounds<'_>,
        direction: Direction,
    ) -> Result<Cursor<'t>> {
        self.cursor(table, index.into(), bounds, direction, false)
    }

    /// Entries of an index alone: only its columns and those of the primary key can be read. Needs no
    /// look at the rows.
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
        self.cursor(table, index.into(), bounds, direction, true)
    }

    fn cursor<'t>(
        &'t mut self,
        table: &Table,
        index: IndexRef<'_>,
        bounds: Bounds<'_>,
        direction: Direction,
        keys_only: bool,
    ) -> Result<Cursor<'t>> {
        let def = self.enter(table)?;
        let view = self.view()?;
        let of = match index {
            IndexRef::Primary => KeyOf::Primary,
            IndexRef::Named(name) => {
                let at = def.schema.index_index(name).ok_or_else(|| Error::NoSuchIndex {
                    table: table.name(),
                    index: name.to_string(),
                })?;
                if view.snapshot < def.indexes[at].since {
                    let index = name.to_string();
                    return Err(Error::IndexTooNew { table: table.name(), index });
                }
                KeyOf::Index(at)
            }
        };
        let range = bounds.encode(&def.schema, of)?;
        Ok(Cursor::new(self, def, of, view, range, direction, keys_only))
    }

    pub(super) fn get_encoded(
        &mut self,
        view: View,
        tree: Tree,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        Ok(self.txn()?.get_in(view, tree, key)?)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.txn.is_none()
    }

    pub(super) fn shared(&self) -> &Arc<crate::txn::Transactions> {
        &self.db.shared
    }

    /// Where the transaction stands.
    ///
    /// # Errors
    /// [`Error::Ended`].
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        let txn = self.txn()?;
        txn.finish_rollback()?;
        Ok(txn.savepoint())
    }

    /// Takes back what was done since the savepoint; locks are kept.
    ///
    /// # Errors
    /// Storage errors.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        Ok(self.txn()?.rollback_to(savepoint)?)
    }

    fn end<T>(
        &mut self,
        how: impl FnOnce(Txn) -> std::result::Result<T, crate::txn::TxnError>,
    ) -> Result<T> {
        let txn = self.txn.take().ok_or(Error::Ended)?;
        let result = how(txn);
        self.leave_tables();
        Ok(result?)
    }

    fn leave_tables(&mut self) {
        for used in self.used.drain(..) {
            used.shared.leave();
        }
    }

    /// Commits. Returns when the transaction is as durable as was asked for.
    ///
    /// # Errors
    /// [`Error::Ended`]; storage errors: then it isn't known whether it is durable.
    pub fn commit(mut self) -> Result<()> {
        let durability = self.durability;
        self.end(|txn| txn.commit(durability))
    }

    /// Takes everything back.
    ///
    /// # Errors
    /// [`Error::Ended`]; storage errors.
    pub fn rollback(mut self) -> Result<()> {
        self.end(Txn::rollback)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        drop(self.txn.take());
        self.leave_tables();
    }
}

fn duplicate(table: &Table, index: &str) -> Error {
    Error::Duplicate { table: table.name(), index: index.to_string() }
}

fn unexpected(def: &TableDef, outcome: &Outcome) -> Error {
    inconsistent(def.primary, &format!("a write came to {outcome:?}"))
}

/// The index's tree.
pub(super) fn tree_of(def: &TableDef, of: KeyOf) -> Tree {
    match of {
        KeyOf::Primary => def.primary,
        KeyOf::Index(n) => def.indexes[n].tree,
    }
}

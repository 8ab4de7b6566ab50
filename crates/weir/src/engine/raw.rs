//! The raw interface: rows and index entries in the caller's encoding. See
//! [`crate::schema::RawSchema`].

use super::catalog::{Rows, TableDef};
use super::error::{Error, Result};
use super::lock::Lock;
use super::read::{cut_rest, lacks_rest};
use super::rows_ahead::read_leaves;
use super::scan::{RawRange, RawScan, tree_of};
use super::table::Table;
use super::transaction::Transaction;
use super::write::{Entry, Writer};
use crate::key::KEY_BYTES_MAX;
use crate::key::long::{is_short_form, split_rest, whole_key};
use crate::row::RowError;
use crate::schema::{KeyOf, RawSchema};
use crate::tree::Tree;
use crate::txn::{Direction, Op, Outcome, Pair};
use std::sync::Arc;

impl Table {
    /// The indexes of a raw table, and what the caller keeps with it.
    ///
    /// # Errors
    /// [`Error::NotRaw`]; [`Error::NoSuchTable`] once it has been dropped.
    pub fn raw_schema(&self) -> Result<RawSchema> {
        self.0.def()?.raw(self).cloned()
    }

    /// What the caller keeps with a raw table.
    ///
    /// # Errors
    /// As [`Table::raw_schema`].
    pub fn meta(&self) -> Result<Vec<u8>> {
        Ok(self.raw_schema()?.meta().to_vec())
    }
}

impl Transaction {
    fn enter_raw(&mut self, table: &Table) -> Result<Arc<TableDef>> {
        let def = self.enter(table)?;
        def.raw(table)?;
        Ok(def)
    }

    /// As [`Transaction::enter_raw`], for reads of single rows.
    #[inline]
    fn enter_raw_rows(&mut self, table: &Table) -> Result<Rows> {
        let def = self.entered(table)?;
        def.raw(table)?;
        Ok(def.rows())
    }

    fn enter_raw_to_write(&mut self, table: &Table) -> Result<Arc<TableDef>> {
        let def = self.enter_to_write(table)?;
        def.raw(table)?;
        Ok(def)
    }

    /// Inserts a row of a raw table and its index entries.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use weir::{Database, Direction, Entry, Isolation, KeyOf, Lock, Options, RawRange, Schema};
    /// use weir::schema::RawIndex;
    /// let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let schema = Schema::raw(vec![RawIndex::new("by_name", false)], Vec::new())?;
    /// let people = db.create_table("people", schema)?;
    ///
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// // The index isn't unique: the primary key makes its keys distinct.
    /// let by_name = Entry { index: 0, key: b"Ada\x00\x01", value: b"" };
    /// txn.insert_raw(&people, b"\x01", b"Ada, London", &[by_name])?;
    /// txn.commit()?;
    ///
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// let mut row = Vec::new();
    /// assert!(txn.get_raw(&people, b"\x01", Lock::None, &mut row)?);
    /// assert_eq!(row, b"Ada, London");
    /// let range = RawRange::prefix(b"Ada\x00");
    /// let mut scan =
    ///     txn.scan_raw(&people, KeyOf::Index(0), range, Direction::Forward, Lock::None)?;
    /// assert_eq!(scan.next(&mut txn)?.expect("there is one").key, b"Ada\x00\x01");
    /// assert!(scan.next(&mut txn)?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Duplicate`], [`Error::NotRaw`], [`Error::Row`] for an empty key or one that is too
    /// long, [`Error::NoSuchIndex`]; lock and storage errors. The statement did nothing then.
    pub fn insert_raw(
        &mut self,
        table: &Table,
        key: &[u8],
        row: &[u8],
        entries: &[Entry<'_>],
    ) -> Result<()> {
        let def = self.enter_raw_to_write(table)?;
        check_key("the primary key", key)?;
        check_entries(table, &def, entries)?;
        self.statement(|t| t.writer(table, &def)?.0.insert(key, row, entries.iter().copied()))
    }

    /// As [`Transaction::insert_raw`], for a caller who goes on with the row that is in the way:
    /// that isn't locked, whatever [`Transaction::set_locks_ranges`] says. The caller locks it, and
    /// inserts again if it is gone by then.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use weir::{Database, Error, Isolation, Lock, Options, Schema, Wait};
    /// let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let counters = db.create_table("counters", Schema::raw(vec![], Vec::new())?)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// let mut count = Vec::new();
    /// for _ in 0..2 {
    ///     while let Err(error) = txn.try_insert_raw(&counters, b"visits", &[1], &[]) {
    ///         let Error::Duplicate { .. } = error else { return Err(error.into()) };
    ///         let exclusive = Lock::Exclusive(Wait::ForTimeout);
    ///         if txn.get_raw(&counters, b"visits", exclusive, &mut count)? {
    ///             txn.update_raw(&counters, b"visits", &[count[0] + 1], &[], &[])?;
    ///             break;
    ///         }
    ///     }
    /// }
    /// assert!(txn.get_raw(&counters, b"visits", Lock::None, &mut count)?);
    /// assert_eq!(count, [2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert_raw`].
    pub fn try_insert_raw(
        &mut self,
        table: &Table,
        key: &[u8],
        row: &[u8],
        entries: &[Entry<'_>],
    ) -> Result<()> {
        self.without_locks_on_duplicates(|t| t.insert_raw(table, key, row, entries))
    }

    /// Inserts many rows of a raw table at once, which costs less than one after the other.
    /// `entries`: by the position of each index, those that the rows have there. All are put into
    /// the order of their keys.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use weir::{Database, Isolation, Lock, Options, Pair, RawIndex, Schema};
    /// let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let schema = Schema::raw(vec![RawIndex::new("by_name", false)], Vec::new())?;
    /// let people = db.create_table("people", schema)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// let mut rows = [
    ///     Pair { key: b"\x02", value: b"Charles, London" },
    ///     Pair { key: b"\x01", value: b"Ada, London" },
    /// ];
    /// let names = vec![
    ///     Pair { key: b"Charles\x00\x02", value: b"" },
    ///     Pair { key: b"Ada\x00\x01", value: b"" },
    /// ];
    /// txn.insert_many_raw(&people, &mut rows, &mut [(0, names)])?;
    /// assert!(txn.get_raw(&people, b"\x02", Lock::None, &mut Vec::new())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::insert_raw`]; of several keys that are there already, [`Error::Duplicate`]
    /// names any. The statement did nothing then.
    pub fn insert_many_raw(
        &mut self,
        table: &Table,
        rows: &mut [Pair<'_>],
        entries: &mut [(usize, Vec<Pair<'_>>)],
    ) -> Result<()> {
        let def = self.enter_raw_to_write(table)?;
        check_many(table, &def, rows, entries)?;
        self.statement(|t| t.writer(table, &def)?.0.insert_many(rows, entries))
    }

    /// Replaces a row of a raw table, and those of its index entries that change. An entry whose
    /// key stays and whose value changes is both in `removed` and in `added`.
    ///
    /// Returns whether the row replaced a version that the transaction's snapshot doesn't cover.
    /// Then pass the entries that stayed as they are to [`Transaction::touch_raw`]: they may be
    /// newer than the snapshot, too, and the row would be missing in the transaction's own scans.
    ///
    /// # Errors
    /// [`Error::NoSuchRow`]; otherwise as [`Transaction::insert_raw`].
    pub fn update_raw(
        &mut self,
        table: &Table,
        key: &[u8],
        row: &[u8],
        removed: &[Entry<'_>],
        added: &[Entry<'_>],
    ) -> Result<bool> {
        let def = self.enter_raw_to_write(table)?;
        check_key("the primary key", key)?;
        check_entries(table, &def, removed)?;
        check_entries(table, &def, added)?;
        self.where_present(def.primary, key, |t| {
            let (mut writer, _) = t.writer(table, &def)?;
            replaced(&mut writer, key, Op::Update(row))?;
            let unseen = writer.txn.overwrote_unseen;
            writer.replace_entries(removed.iter().copied(), added.iter().copied())?;
            Ok(unseen)
        })
    }

    /// Makes entries the transaction's own; see [`Transaction::update_raw`].
    ///
    /// # Errors
    /// As [`Transaction::update_raw`].
    pub fn touch_raw(&mut self, table: &Table, entries: &[Entry<'_>]) -> Result<()> {
        let def = self.enter_raw_to_write(table)?;
        check_entries(table, &def, entries)?;
        self.statement(|t| t.writer(table, &def)?.0.rewrite_entries(entries.iter().copied()))
    }

    /// Deletes a row of a raw table and its index entries. Which those are the caller says, here
    /// and in updates: nothing looks at the row. Of one that the index doesn't have the error is
    /// that of a damaged index; one that is left out stays, as that of no row.
    ///
    /// # Errors
    /// [`Error::NoSuchRow`]; otherwise as [`Transaction::insert_raw`].
    pub fn delete_raw(&mut self, table: &Table, key: &[u8], entries: &[Entry<'_>]) -> Result<()> {
        let def = self.enter_raw_to_write(table)?;
        check_key("the primary key", key)?;
        check_entries(table, &def, entries)?;
        self.where_present(def.primary, key, |t| {
            let (mut writer, _) = t.writer(table, &def)?;
            replaced(&mut writer, key, Op::Delete)?;
            writer.delete_entries(entries.iter().copied())
        })
    }

    /// Deletes many rows of a raw table at once, which costs less than one after the other.
    /// Everything is as for [`Transaction::insert_many_raw`], but that values are not looked at:
    /// they may be empty.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use weir::{Database, Entry, Isolation, Lock, Options, Pair, RawIndex, Schema};
    /// let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// let schema = Schema::raw(vec![RawIndex::new("by_name", false)], Vec::new())?;
    /// let people = db.create_table("people", schema)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// let by_name = |key| Entry { index: 0, key, value: b"" };
    /// txn.insert_raw(&people, b"\x01", b"Ada, London", &[by_name(b"Ada\x00\x01")])?;
    /// txn.insert_raw(&people, b"\x02", b"Charles, London", &[by_name(b"Charles\x00\x02")])?;
    /// let mut rows = [Pair::key_alone(b"\x02"), Pair::key_alone(b"\x01")];
    /// let names = vec![Pair::key_alone(b"Charles\x00\x02"), Pair::key_alone(b"Ada\x00\x01")];
    /// txn.delete_many_raw(&people, &mut rows, &mut [(0, names)])?;
    /// assert!(!txn.get_raw(&people, b"\x02", Lock::None, &mut Vec::new())?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Transaction::delete_raw`]. The statement did nothing then.
    pub fn delete_many_raw(
        &mut self,
        table: &Table,
        rows: &mut [Pair<'_>],
        entries: &mut [(usize, Vec<Pair<'_>>)],
    ) -> Result<()> {
        let def = self.enter_raw_to_write(table)?;
        check_many(table, &def, rows, entries)?;
        let delete = |t: &mut Self, rows: &mut [_], entries: &mut [_]| {
            t.statement(|t| t.writer(table, &def)?.0.delete_many(rows, entries))
        };
        match delete(self, rows, entries) {
            Err(Error::NoSuchRow(_)) if self.locks_ranges => {}
            done => return done,
        }
        for row in rows.iter() {
            self.lock_for_write(def.primary, row.key)?;
        }
        delete(self, rows, entries)
    }

    /// Changes a row as a statement. Where ranges are locked, that there is none stays true: its
    /// place is locked then, and looked at again.
    #[inline]
    fn where_present<T>(
        &mut self,
        tree: Tree,
        key: &[u8],
        change: impl Fn(&mut Self) -> Result<T>,
    ) -> Result<T> {
        match self.statement(&change) {
            Err(Error::NoSuchRow(_)) if self.locks_ranges => {}
            done => return done,
        }
        self.lock_for_write(tree, key)?;
        self.statement(change)
    }

    /// Reads a row of a raw table in place of what is in `out`; whether there is one. With
    /// [`super::Wait::Skip`] a row that others have locked counts as none.
    ///
    /// # Errors
    /// [`Error::NotRaw`]; lock and storage errors.
    pub fn get_raw(
        &mut self,
        table: &Table,
        key: &[u8],
        lock: Lock,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let rows = self.enter_raw_rows(table)?;
        self.read_row(rows, key, lock, out)
    }

    /// As [`Transaction::get_raw`], by the key's [`crate::short_form`]; puts the whole key in place
    /// of what is in `key`.
    ///
    /// # Errors
    /// As [`Transaction::get_raw`].
    pub fn get_raw_by_short_form(
        &mut self,
        table: &Table,
        short_form: &[u8],
        lock: Lock,
        key: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let rows = self.enter_raw_rows(table)?;
        let found = self.read_stored(rows, short_form, lock, out)?;
        key.clear();
        if !is_short_form(short_form) {
            key.extend_from_slice(short_form);
        } else if found {
            let (_, rest) = split_rest(out).ok_or_else(|| lacks_rest(rows.tree))?;
            *key = whole_key(short_form, rest);
            cut_rest(rows.tree, out)?;
        }
        Ok(found)
    }

    /// Reads rows or index entries of a raw table into memory that are about to be looked up, side
    /// by side; what is in memory already is left alone, and so is what there is no room for. What
    /// can't be read is left to who looks it up. `keys`: those of rows, or of entries, of which
    /// their beginnings will do.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Direction, Isolation, KeyOf, Lock, Options, RawIndex,
    /// # RawRange, RowsAhead, Schema};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let words = db.create_table("words", Schema::raw(vec![RawIndex::new("by_length", false)], vec![])?)?;
    /// # let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// # for word in [&b"weir"[..], b"a", b"lock", b"gate"] {
    /// #     let length = [word.len() as u8];
    /// #     let entry = weir::Entry { index: 0, key: &[&length, word].concat(), value: b"" };
    /// #     txn.insert_raw(&words, word, b"1", &[entry])?;
    /// # }
    /// // Keys of entries are a length and the word.
    /// let (four, forward) = (RawRange::prefix(&[4]), Direction::Forward);
    /// let mut scan = txn.scan_raw(&words, KeyOf::Index(0), four, forward, Lock::None)?;
    /// let (mut ahead, mut number, mut row) = (RowsAhead::default(), 0, Vec::new());
    /// while let Some(entry) = scan.next(&mut txn)? {
    ///     let mut keys = vec![entry.key[1..].to_vec()];
    ///     keys.extend(scan.take_rest().iter().map(|entry| entry.key[1..].to_vec()));
    ///     for (n, key) in keys.iter().enumerate() {
    ///         let due = ahead.due(number, keys.len() - n);
    ///         txn.read_ahead_raw(&words, KeyOf::Primary, keys[n..][..due].iter().map(Vec::as_slice))?;
    ///         assert!(txn.get_raw(&words, key, Lock::None, &mut row)?);
    ///         number += 1;
    ///     }
    /// }
    /// assert_eq!(number, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NotRaw`], [`Error::NoSuchIndex`]; errors of a transaction that takes no statements,
    /// or a table that it can't use.
    pub fn read_ahead_raw<'k>(
        &mut self,
        table: &Table,
        of: KeyOf,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<()> {
        let def = self.enter_raw(table)?;
        if let KeyOf::Index(n) = of {
            def.index(table, n)?;
        }
        read_leaves(&self.transactions().storage, tree_of(&def, of), keys);
        Ok(())
    }

    /// Gives up the lock that the last locking read took, if it is on this row of a raw table. What
    /// was locked before that read, or changed, stays locked.
    ///
    /// # Errors
    /// [`Error::NotRaw`]; [`Error::Ended`].
    pub fn unlock_raw(&mut self, table: &Table, key: &[u8]) -> Result<()> {
        let rows = self.enter_raw_rows(table)?;
        self.unlock_key(rows.tree, key)
    }

    /// Rows or index entries of a raw table in the order of their keys. Drop the scan when its
    /// statement ends: it may keep old versions.
    ///
    /// A locking scan of rows locks each row that it gives. One of an index gives entries for which
    /// the caller reads the row by [`Transaction::get_raw`] under the same lock, and compares:
    /// whether the entry is the row's is known only then.
    ///
    /// # Errors
    /// [`Error::NotRaw`], [`Error::NoSuchIndex`], [`Error::IndexTooNew`]; storage errors.
    pub fn scan_raw(
        &mut self,
        table: &Table,
        of: KeyOf,
        range: RawRange<'_>,
        direction: Direction,
        lock: Lock,
    ) -> Result<RawScan> {
        let def = self.enter_raw(table)?;
        if let KeyOf::Index(n) = of {
            def.index(table, n)?;
        }
        self.begin_scan(table, def, of, range.to_range(), direction, lock)
    }
}

/// Updates or deletes a row that must be there.
fn replaced(writer: &mut Writer<'_>, key: &[u8], op: Op<'_>) -> Result<()> {
    match writer.put_row(key, op)? {
        Outcome::Done(_) => Ok(()),
        Outcome::Absent => Err(Error::NoSuchRow(writer.table.name())),
        other => Err(writer.unexpected(&other)),
    }
}

#[inline]
pub(super) fn check_key(name: &str, key: &[u8]) -> Result<()> {
    match key.len() {
        1..=KEY_BYTES_MAX => Ok(()),
        0 => Err(RowError::EmptyKey { key: name.to_string() }.into()),
        bytes => Err(RowError::KeyTooLong { key: name.to_string(), bytes }.into()),
    }
}

fn check_many(
    table: &Table,
    def: &TableDef,
    rows: &[Pair<'_>],
    entries: &[(usize, Vec<Pair<'_>>)],
) -> Result<()> {
    for row in rows {
        check_key("the primary key", row.key)?;
    }
    for (index, entries) in entries {
        def.index(table, *index)?;
        for entry in entries {
            check_key(def.layout.index_name(*index), entry.key)?;
        }
    }
    Ok(())
}

#[inline]
fn check_entries(table: &Table, def: &TableDef, entries: &[Entry<'_>]) -> Result<()> {
    for entry in entries {
        def.index(table, entry.index)?;
        check_key(def.layout.index_name(entry.index), entry.key)?;
    }
    Ok(())
}

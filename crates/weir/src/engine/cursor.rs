//! Ordered reads of a table.

use super::catalog::TableDef;
use super::error::{Result, inconsistent};
use super::lock::{Lock, Wait};
use super::rows_ahead::{RowsAhead, read_leaves};
use super::scan::{RawEntry, RawScan, Reads, tree_of};
use super::table::Table;
use super::transaction::Transaction;
use crate::key::{KeyRange, after_prefix, encode_key};
use crate::row::{RowError, RowRef, primary_key_of_entry};
use crate::schema::{KeyOf, Schema};
use crate::txn::{Direction, Range};
use crate::value::Value;
use std::fmt;
use std::ops::Bound;

/// Which index a scan goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexRef<'a> {
    /// The primary key.
    Primary,
    /// The secondary index of that name.
    Named(&'a str),
}

impl IndexRef<'_> {
    /// Which of a typed table's keys it goes by.
    pub(super) fn resolve(self, table: &Table, def: &TableDef) -> Result<KeyOf> {
        match self {
            IndexRef::Primary => Ok(KeyOf::Primary),
            IndexRef::Named(name) => Ok(KeyOf::Index(def.index_named(table, name)?)),
        }
    }
}

impl<'a> From<&'a str> for IndexRef<'a> {
    fn from(name: &'a str) -> Self {
        IndexRef::Named(name)
    }
}

/// Which part of an index a scan covers, by values of its first columns.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'a> {
    low: Bound<&'a [Value<'a>]>,
    high: Bound<&'a [Value<'a>]>,
}

impl<'a> Bounds<'a> {
    /// All of it.
    pub fn all() -> Bounds<'static> {
        Bounds { low: Bound::Unbounded, high: Bound::Unbounded }
    }

    /// Entries whose first columns have these values.
    pub fn prefix(values: &'a [Value<'a>]) -> Bounds<'a> {
        Bounds { low: Bound::Included(values), high: Bound::Included(values) }
    }

    /// From one end to the other; an included end covers every entry that begins with its values.
    pub fn new(low: Bound<&'a [Value<'a>]>, high: Bound<&'a [Value<'a>]>) -> Bounds<'a> {
        Bounds { low, high }
    }

    pub(super) fn encode(
        &self,
        schema: &Schema,
        of: KeyOf,
    ) -> std::result::Result<Range, RowError> {
        let range = KeyRange::new(schema, of, self.low, self.high)?;
        Ok(Range { low: range.lower().to_vec(), high: range.upper().map(<[u8]>::to_vec) })
    }
}

/// A running scan. The transaction can be used through [`Cursor::transaction`] meanwhile. Of
/// others, a scan that doesn't lock sees what its statement saw at the start. What the transaction
/// itself changes ahead of the scan, the scan may come to: a loop that moves rows ahead, or inserts
/// there, may not end. Taken back to a savepoint meanwhile, the transaction finds what is there
/// then.
///
/// A cursor stands at the row that it gave last, or between two rows: before all of them at first,
/// behind all of them once [`Cursor::next`] has given none, where [`Cursor::seek`] has put it.
/// "Before" and "behind" are in the scan's direction. The place is one in the order of keys: it
/// stays where it is if the row there is deleted, or others are inserted around it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// use weir::{Bounds, Database, Direction, IndexRef, Isolation, Options};
/// # use weir::{Schema, Type, Value};
/// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
/// # let schema = Schema::builder().column("year", Type::I64).primary_key(&["year"]).build()?;
/// # let years = db.create_table("years", schema)?;
/// # let mut txn = db.begin(Isolation::RepeatableRead)?;
/// # for year in [1815, 1843, 1852] {
/// #     txn.insert(&years, &[Value::I64(year)])?;
/// # }
/// let mut rows = txn.scan(&years, IndexRef::Primary, Bounds::all(), Direction::Forward)?;
/// rows.seek(&[1840.into()])?;
/// assert_eq!(rows.next()?.expect("1843").get(0)?.as_i64(), Some(1843));
/// assert_eq!(rows.prev()?.expect("1815").get(0)?.as_i64(), Some(1815));
/// assert!(rows.prev()?.is_none());
/// assert_eq!(rows.next()?.expect("1815").get(0)?.as_i64(), Some(1815));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Cursor<'t> {
    transaction: &'t mut Transaction,
    scan: RawScan,
    keys_only: bool,
    /// Which way [`Cursor::next`] goes.
    direction: Direction,
    /// The bounds.
    range: Range,
    place: Place,
    /// The key that the place tells of.
    at: Vec<u8>,
    /// Which way the scan goes on from the place; `None` after a seek, and at the end.
    going: Option<Direction>,
    key: Vec<u8>,
    value: Vec<u8>,
    ahead: RowsAhead,
    /// Entries of an index that the scan has given.
    entries: u64,
}

/// Where a cursor stands, in ascending order of keys.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Below all of the bounds.
    Low,
    /// Above all of them.
    High,
    /// At the entry that the scan gave last.
    Last,
    /// At the key [`Cursor::at`]. Of several rows that a unique index has there in turn, at all.
    Key,
    /// Between the keys below [`Cursor::at`] and those from there on.
    Between,
}

impl fmt::Debug for Cursor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("transaction", &self.transaction).finish_non_exhaustive()
    }
}

impl<'t> Cursor<'t> {
    pub(super) fn new(
        transaction: &'t mut Transaction,
        scan: RawScan,
        range: Range,
        direction: Direction,
        keys_only: bool,
    ) -> Self {
        let place = match direction {
            Direction::Forward => Place::Low,
            Direction::Backward => Place::High,
        };
        let (going, [at, key, value]) = (Some(direction), [const { Vec::new() }; 3]);
        let (ahead, entries) = (RowsAhead::default(), 0);
        Cursor {
            transaction,
            scan,
            keys_only,
            direction,
            range,
            place,
            at,
            going,
            key,
            value,
            ahead,
            entries,
        }
    }

    /// The next row; it lives until the next call.
    ///
    /// # Errors
    /// Storage errors; lock errors where it locks. All but a deadlock leave the cursor where it is.
    #[expect(clippy::should_implement_trait, reason = "rows borrow from the cursor")]
    // So that a row is made where the caller has it: to move one that has just been written costs
    // more than to read it.
    #[inline(always)]
    pub fn next(&mut self) -> Result<Option<RowRef<'_>>> {
        match self.go(self.direction)? {
            true => Ok(Some(self.row())),
            false => Ok(None),
        }
    }

    /// The row before the one that was given last, by either call: after `next` gave a row, `prev`
    /// doesn't give that row but the one before it, and `next` then gives the first one again. Once
    /// `next` has given `None`, `prev` gives the last row within the bounds; once `prev` has given
    /// `None`, which it does at first, too, `next` gives the first. After [`Cursor::seek`] it gives
    /// the last row before that place.
    ///
    /// A change of way reads anew: rows that the transaction has inserted since are given, those
    /// that it has deleted are not. That costs as much as a new scan. After an error the cursor
    /// stands where it stood before: at the row that it gave last, for example.
    ///
    /// # Errors
    /// As [`Cursor::next`].
    #[inline(always)]
    pub fn prev(&mut self) -> Result<Option<RowRef<'_>>> {
        match self.go(self.direction.opposite())? {
            true => Ok(Some(self.row())),
            false => Ok(None),
        }
    }

    /// Goes to the place before the first row, in the scan's direction, whose first columns are at
    /// these values or behind them: [`Cursor::next`] gives that row, [`Cursor::prev`] the last one
    /// before it. Both stay within the bounds: if the place isn't, the cursor goes before or behind
    /// all rows. `values`: of the first columns of the index, as for [`Bounds`]. What the
    /// transaction has changed meanwhile is read anew.
    ///
    /// # Errors
    /// [`Error::Row`], for values that the columns can't have, or more than there are columns. The
    /// cursor is where it was.
    pub fn seek(&mut self, values: &[Value<'_>]) -> Result<()> {
        let mut key = Vec::new();
        encode_key(self.scan.def().schema(), self.scan.of(), values, &mut key)?;
        let place = match self.direction {
            Direction::Forward => Some(key),
            Direction::Backward => after_prefix(key),
        };
        (self.place, self.at) = match place {
            Some(key) => (Place::Between, key),
            None => (Place::High, Vec::new()),
        };
        self.going = None;
        Ok(())
    }

    /// Goes on to the next row that way; `false` at the end.
    #[inline(always)]
    fn go(&mut self, way: Direction) -> Result<bool> {
        // Of what has been copied nothing can fail, and the place need not be kept.
        let is_row = self.keys_only || self.scan.of() == KeyOf::Primary;
        if is_row && self.going == Some(way) && self.scan.take_one(self.transaction)? {
            self.place = Place::Last;
            return Ok(true);
        }
        self.go_by_steps(way)
    }

    #[inline(never)]
    fn go_by_steps(&mut self, way: Direction) -> Result<bool> {
        if matches!(self.place, Place::Last) {
            self.at.clear();
            self.at.extend_from_slice(self.scan.last().key);
            self.place = Place::Key;
        }
        if self.going != Some(way) {
            self.scan.begin_anew(self.transaction, self.rest(way), way)?;
            self.going = Some(way);
        }
        if self.find_next()? {
            self.place = Place::Last;
            return Ok(true);
        }
        self.place = match way {
            Direction::Forward => Place::High,
            Direction::Backward => Place::Low,
        };
        // It stays there, whatever is inserted before it, or comes back by a rollback to a
        // savepoint.
        self.going = None;
        Ok(false)
    }

    /// What of the bounds lies behind the place.
    fn rest(&self, way: Direction) -> Range {
        let Range { low, high } = self.range.clone();
        match (self.place, way) {
            (Place::Last, _) => unreachable!("the key has been kept"),
            (Place::Low, Direction::Forward) | (Place::High, Direction::Backward) => {
                Range { low, high }
            }
            (Place::Low, Direction::Backward) | (Place::High, Direction::Forward) => {
                Range { low: Vec::new(), high: Some(Vec::new()) }
            }
            (Place::Key, Direction::Forward) => Range { low: [&self.at[..], &[0]].concat(), high },
            (Place::Between, Direction::Forward) => Range { low: low.max(self.at.clone()), high },
            (Place::Key | Place::Between, Direction::Backward) => {
                let at = self.at.clone();
                Range { low, high: Some(high.map_or(at.clone(), |high| high.min(at))) }
            }
        }
    }

    /// The row at hand.
    #[inline(always)]
    fn row(&self) -> RowRef<'_> {
        let schema = self.scan.def().schema();
        match self.scan.of() {
            KeyOf::Index(_) if !self.keys_only => RowRef::primary(schema, &self.key, &self.value),
            of => {
                let entry = self.scan.last();
                RowRef::new(schema, of, entry.key, entry.value)
            }
        }
    }

    /// Has the scan come to the next row; `false` at the end.
    #[inline]
    fn find_next(&mut self) -> Result<bool> {
        while self.scan.advance(self.transaction)? {
            let KeyOf::Index(n) = self.scan.of() else { return Ok(true) };
            self.entries += 1;
            let stands_alone = self.keys_only && self.scan.last().current;
            if stands_alone || self.find_row_in_turn(n)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the row of the entry at hand. `false`: the row is passed over, or has another entry by
    /// now: the transaction has changed it from a newer version than its snapshot's, or others have
    /// before it was locked.
    fn find_row(&mut self, n: usize) -> Result<bool> {
        let reads = self.scan.reads();
        let entry = self.scan.last();
        let def = self.scan.def();
        self.key.clear();
        primary_key_of_entry(def.schema(), n, entry.key, entry.value, &mut self.key)?;
        let due = self.ahead.due(self.entries - 1, 1 + self.scan.copied());
        if due > 0 {
            self.read_ahead(n, due);
        }
        let found = match reads {
            Reads::View(view) => {
                self.transaction.get_in(view, def.primary, &self.key, &mut self.value)?
            }
            Reads::Newest => {
                self.transaction.read_row(def.rows(), &self.key, Lock::None, &mut self.value)?
            }
            Reads::Locked(mode, wait) => {
                let (key, value) = (&self.key[..], &mut self.value);
                self.transaction.get_locked(def.primary, key, mode, wait, value)?
            }
        };
        if !found {
            // What isn't committed may change between the two looks: others' rows, or our own when
            // rows are deleted while they are scanned.
            let settled = matches!(reads, Reads::View(view) if view.is_committed());
            if !entry.current || !settled {
                return Ok(false);
            }
            let tree = tree_of(def, self.scan.of());
            return Err(inconsistent(tree, "an entry of the index has no row"));
        }
        // A dirty read may find what was written between the two looks.
        if entry.current && !matches!(reads, Reads::View(view) if view.is_dirty()) {
            return Ok(true);
        }
        self.is_entry_of_row(n)
    }

    /// Reads the rows of so many of index `n`'s entries together, from the one at hand on, whose
    /// key has been found.
    #[cold]
    fn read_ahead(&self, n: usize, rows: usize) {
        let def = self.scan.def();
        let key_of = |(entry, value): (&[u8], &[u8])| {
            let mut key = Vec::new();
            // One that makes no sense is told when the scan comes to it.
            primary_key_of_entry(def.schema(), n, entry, value, &mut key).ok()?;
            Some(key)
        };
        let mut keys = vec![self.key.clone()];
        keys.extend(self.scan.first_copied(rows - 1).filter_map(key_of));
        let storage = &self.transaction.transactions().storage;
        read_leaves(storage, def.primary, keys.iter().map(Vec::as_slice));
    }

    /// As [`Cursor::find_row`]; where a row had to be waited for, or has another entry now, the
    /// scan looks for that behind the entry at hand. If it fails, the scan comes to the entry
    /// again.
    fn find_row_in_turn(&mut self, n: usize) -> Result<bool> {
        let waits = self.transaction.lock_waits();
        let found = match self.find_row(n) {
            Ok(found) => found,
            Err(error) => {
                self.scan.give_again();
                return Err(error);
            }
        };
        let is_in_turn = matches!(self.scan.reads(), Reads::Locked(_, wait) if wait != Wait::Skip);
        if is_in_turn && (!found || self.transaction.lock_waits() != waits) {
            let key = self.scan.last().key.to_vec();
            self.scan.behind(&key);
        }
        Ok(found)
    }

    /// Key and value of the row at hand, as they are stored; not of a scan of keys alone.
    pub(super) fn stored_row(&self) -> (&[u8], &[u8]) {
        match self.scan.of() {
            KeyOf::Index(_) => (&self.key, &self.value),
            KeyOf::Primary => (self.scan.last().key, self.scan.last().value),
        }
    }

    /// The entry at hand, as its tree has it.
    pub(super) fn entry(&self) -> RawEntry<'_> {
        self.scan.last()
    }

    /// Whether index `n`'s entry at hand is the one that the row at hand asks for.
    pub(super) fn is_entry_of_row(&self, n: usize) -> Result<bool> {
        let entry = self.scan.last();
        let row = RowRef::primary(self.scan.def().schema(), &self.key, &self.value);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        row.index_entry(n, &mut key, &mut value)?;
        Ok(key == entry.key && value == entry.value)
    }

    /// The transaction that scans.
    pub fn transaction(&mut self) -> &mut Transaction {
        self.transaction
    }
}

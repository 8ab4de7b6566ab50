//! Ordered reads of a table's bytes, which the typed cursor and the raw interface share.
//!
//! A scan doesn't borrow its transaction: any number may be open while rows are written. It goes on
//! only with the transaction that began it, since that one keeps the table's trees.

use super::catalog::TableDef;
use super::error::{Error, Result};
use super::lock::Wait;
use super::stem::{StemScan, stored_range};
use super::transaction::Transaction;
use crate::key::after_prefix;
use crate::key::long::{PLAIN, is_short_form};
use crate::lock::{Mode, RangeMode};
use crate::schema::KeyOf;
use crate::tree::Tree;
pub use crate::txn::EntryPlace as RawPlace;
use crate::txn::{
    Batch, Direction, HeldSnapshot, Look, MergedScan, Range, Scan, ScanStop, Staging, View,
};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use weir_page::TxnId;

/// Rows fetched at first; more later. Where what is fetched is locked, one: who wants no more locks
/// no more.
const FIRST_FETCH: usize = 16;

/// Rows that a locking scan locks one by one before it locks what it reads as a whole, at the level
/// that keeps rows locked that the caller doesn't want: those around them are locked then, too.
const ROWS_ALONE: usize = 128;

/// Which keys a raw scan covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRange<'a> {
    low: Bound<&'a [u8]>,
    high: Bound<&'a [u8]>,
    /// Whether an end stands for all keys that begin with it.
    prefixes: bool,
}

impl<'a> RawRange<'a> {
    /// All keys.
    pub fn all() -> RawRange<'static> {
        RawRange { low: Bound::Unbounded, high: Bound::Unbounded, prefixes: false }
    }

    /// Keys between two keys.
    pub fn new(low: Bound<&'a [u8]>, high: Bound<&'a [u8]>) -> RawRange<'a> {
        RawRange { low, high, prefixes: false }
    }

    /// Keys that begin with these bytes.
    pub fn prefix(prefix: &'a [u8]) -> RawRange<'a> {
        RawRange::prefixes(Bound::Included(prefix), Bound::Included(prefix))
    }

    /// Keys between two prefixes: an included one includes, an excluded one excludes all keys that
    /// begin with it.
    ///
    /// ```
    /// use std::ops::Bound::{Excluded, Included};
    /// use weir::RawRange;
    /// let range = RawRange::prefixes(Excluded(b"ab"), Included(b"cd"));
    /// assert!(!range.contains(b"abc") && range.contains(b"ac"));
    /// assert!(range.contains(b"cdz") && !range.contains(b"ce"));
    /// ```
    pub fn prefixes(low: Bound<&'a [u8]>, high: Bound<&'a [u8]>) -> RawRange<'a> {
        RawRange { low, high, prefixes: true }
    }

    /// Whether a key is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        let range = self.to_range();
        *key >= *range.low && range.high.as_deref().is_none_or(|high| key < high)
    }

    pub(super) fn to_range(self) -> Range {
        let after = |bytes: &[u8]| match self.prefixes {
            true => after_prefix(bytes.to_vec()),
            false => Some([bytes, &[0]].concat()),
        };
        let low = match self.low {
            Bound::Unbounded => Some(Vec::new()),
            Bound::Included(low) => Some(low.to_vec()),
            Bound::Excluded(low) => after(low),
        };
        let high = match self.high {
            Bound::Unbounded => None,
            Bound::Included(high) => after(high),
            Bound::Excluded(high) => Some(high.to_vec()),
        };
        match low {
            Some(low) => Range { low, high },
            None => Range { low: Vec::new(), high: Some(Vec::new()) },
        }
    }
}

/// How a scan was begun.
#[derive(Clone)]
pub(super) struct Begin {
    pub def: Arc<TableDef>,
    pub of: KeyOf,
    pub reads: Reads,
    /// How what it reads stays locked as a whole.
    pub ranges: Option<Mode>,
    /// Whether it locks rows as a whole once they are many.
    pub widens: bool,
}

/// What a scan reads.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reads {
    /// What a view sees.
    View(View),
    /// The newest versions, which stay as they are because their range is locked.
    Newest,
    /// The newest versions, for a locking read.
    Locked(Mode, Wait),
}

/// A running scan of a table's bytes; see [`Transaction::scan_raw`].
pub struct RawScan {
    /// The transaction that began it.
    serial: u64,
    /// How often that had been taken back to a savepoint when the scan went on last.
    rollbacks: u64,
    begin: Begin,
    /// Kept where the transaction may take another snapshot meanwhile.
    held: Option<HeldSnapshot>,
    scan: MergedScan,
    /// The entry's value, where it was looked up.
    value: Vec<u8>,
    looked_up: bool,
    direction: Direction,
    /// The range by whole keys, where that of stored keys is wider.
    limits: Option<Box<Range>>,
    /// The long keys that the scan has come to, if they are the last that it has come to.
    stem: Option<Box<StemScan>>,
    /// Rows that were locked one by one.
    locked_rows: usize,
    /// What has been copied is locked as a whole; how many changes the transaction had made then.
    whole_at: Option<u64>,
}

impl fmt::Debug for RawScan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawScan").field("direction", &self.direction).finish_non_exhaustive()
    }
}

/// What a scan gives; it lives until the scan goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawEntry<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The row, or the entry's value.
    pub value: &'a [u8],
    /// Whether it stands for itself. If not, the entry of an index may no longer be that of its
    /// row, or not yet: look the row up, and pass over the entry if there is none or if it has
    /// another entry. Who looks rows up at [`Isolation::ReadUncommitted`](super::Isolation) has to
    /// do so in any case: others may have changed them since.
    pub current: bool,
}

/// Several entries of a scan; they live until the scan goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawBatch<'a> {
    /// Their keys and values.
    pub bytes: &'a [u8],
    /// Where in `bytes` each of them lies.
    pub entries: &'a [RawPlace],
    /// Whether those that are not outdated stand for themselves; see [`RawEntry::current`].
    pub current: bool,
}

impl<'a> RawBatch<'a> {
    /// The entries in the order in which the scan gives them.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = RawEntry<'a>> + use<'a> {
        let RawBatch { bytes, entries, current } = *self;
        entries.iter().map(move |place| RawEntry {
            key: &bytes[place.key as usize..place.value as usize],
            value: &bytes[place.value as usize..place.end as usize],
            current: current && !place.outdated,
        })
    }
}

impl RawScan {
    pub(super) fn new(
        txn: &Transaction,
        begin: Begin,
        mut range: Range,
        direction: Direction,
        held: Option<HeldSnapshot>,
    ) -> RawScan {
        let limits = stored_range(&mut range);
        let tree = tree_of(&begin.def, begin.of);
        let first = if begin.ranges.is_some() { 1 } else { FIRST_FETCH };
        let rows = Scan::new(txn.transactions().clone(), tree, range, direction, first);
        let settled = matches!(begin.reads, Reads::View(view) if view.is_committed());
        let rows = match begin.of {
            KeyOf::Index(n) if begin.def.layout.index_unique(n) => rows.of_unique_index(),
            _ => rows,
        };
        let scan = MergedScan::new(rows, staging_of(&begin), settled);
        RawScan {
            serial: txn.serial,
            rollbacks: txn.rollbacks.made(),
            begin,
            held,
            scan,
            value: Vec::new(),
            looked_up: false,
            direction,
            limits,
            stem: None,
            locked_rows: 0,
            whole_at: None,
        }
    }

    /// The next entry. `txn`: the transaction that began the scan.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::Prepared`]; [`Error::ForeignScan`] with another transaction;
    /// storage errors; of a locking scan also [`Error::LockWaitTimeout`], [`Error::Deadlock`],
    /// [`Error::Cancelled`]: all but a deadlock leave the scan where it is.
    #[inline]
    pub fn next(&mut self, txn: &mut Transaction) -> Result<Option<RawEntry<'_>>> {
        Ok(self.advance(txn)?.then(|| self.last()))
    }

    /// Goes on to the next entry; `false` at the end.
    ///
    /// # Errors
    /// As [`RawScan::next`].
    #[inline(always)]
    pub(super) fn advance(&mut self, txn: &mut Transaction) -> Result<bool> {
        if self.take_one(txn)? {
            return Ok(true);
        }
        if txn.rollbacks.made() != self.rollbacks {
            self.read_anew(txn);
        }
        self.advance_by_steps(txn)
    }

    /// Goes on to the next entry if it has been copied and stands for itself; whether it does. If
    /// not, the entry at hand stays.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::Prepared`], [`Error::ForeignScan`].
    #[inline(always)]
    pub(super) fn take_one(&mut self, txn: &Transaction) -> Result<bool> {
        self.check(txn)?;
        let is_as_copied = txn.rollbacks.made() == self.rollbacks;
        let is_view = matches!(self.begin.reads, Reads::View(_));
        // What has been copied comes next, unless something of a stem is left.
        let is_next = is_view && is_as_copied && self.stem.is_none();
        let taken = is_next && self.scan.take_one(PLAIN);
        self.looked_up &= !taken;
        Ok(taken)
    }

    /// Fails unless the transaction is the one that began the scan, and takes statements.
    #[inline(always)]
    fn check(&self, txn: &Transaction) -> Result<()> {
        txn.check_running()?;
        if txn.serial == self.serial { Ok(()) } else { Err(Error::ForeignScan) }
    }

    /// Goes on with another range, or the other way, in which it sees of others what it saw before,
    /// and what `txn`, the transaction that began it, has changed since.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::Prepared`], [`Error::ForeignScan`]. The scan is where it was.
    pub(super) fn begin_anew(
        &mut self,
        txn: &mut Transaction,
        range: Range,
        direction: Direction,
    ) -> Result<()> {
        self.check(txn)?;
        if let Reads::View(view) = &mut self.begin.reads {
            // It may have had no number when the scan began.
            view.own = txn.txn()?.id();
        }
        let (begin, held) = (self.begin.clone(), self.held.take());
        *self = RawScan::new(txn, begin, range, direction, held);
        Ok(())
    }

    /// The transaction has been taken back to a savepoint: what was read ahead may be no more, and
    /// other things be there again.
    #[cold]
    fn read_anew(&mut self, txn: &Transaction) {
        self.rollbacks = txn.rollbacks.made();
        if let Some(stem) = &mut self.stem {
            stem.read_rest_anew();
        }
        self.scan.read_rest_anew();
    }

    #[inline(never)]
    fn advance_by_steps(&mut self, txn: &mut Transaction) -> Result<bool> {
        loop {
            if self.stem.is_some() && self.next_of_stem(txn)? {
                return Ok(true);
            }
            if !self.step(txn)? {
                return Ok(false);
            }
            if is_short_form(self.scan.last().key) {
                self.come_to_stem();
            } else if self.resolve(txn)? {
                return Ok(true);
            }
        }
    }

    /// As [`RawScan::next`], but it gives stored keys and values, in their order. Whether there is
    /// another.
    pub(super) fn next_stored(&mut self, txn: &mut Transaction) -> Result<bool> {
        while self.step(txn)? {
            if self.resolve(txn)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes on within the stem that the scan has come to; `false` if all of it has been given.
    #[cold]
    fn next_of_stem(&mut self, txn: &mut Transaction) -> Result<bool> {
        let stem = self.stem.as_mut().expect("the scan has come to a stem");
        stem.next(txn, self.limits.as_deref())
    }

    /// The scan has come to a short form: all of its stem is given next, unless that was done.
    #[cold]
    fn come_to_stem(&mut self) {
        let short_form = self.scan.last().key;
        if !self.stem.as_ref().is_some_and(|stem| stem.is_of(short_form)) {
            let stem = StemScan::new(short_form, self.begin.clone(), self.direction);
            self.stem = Some(Box::new(stem));
        }
    }

    /// Goes on to the next entry; `false` at the end.
    #[inline]
    fn step(&mut self, txn: &mut Transaction) -> Result<bool> {
        loop {
            let ranges = self.begin.ranges.map(|mode| RangeMode { mode, for_rows: false });
            let look = match self.begin.reads {
                Reads::View(view) => Look::At(view),
                Reads::Newest => Look::Newest { own: txn.own_id()?, skip: false, ranges },
                Reads::Locked(mode, wait) => {
                    // A range that stands for its rows keeps out whoever one of keys does, and
                    // their locks.
                    let ranges = self.widen(txn, mode)?.or(ranges);
                    Look::Newest { own: txn.own_id()?, skip: wait == Wait::Skip, ranges }
                }
            };
            match self.scan.look(look) {
                Ok(row) => return Ok(row.is_some()),
                Err(ScanStop::Fault(fault)) => return Err(fault.into()),
                Err(ScanStop::RowLocked(key)) => self.lock_row(txn, &key)?,
                Err(ScanStop::Held(other)) => {
                    let waits = !matches!(self.begin.reads, Reads::Locked(_, Wait::No));
                    txn.waiting(|txn| txn.wait_for_end(other, waits))?;
                }
            }
        }
    }

    /// Locks the next row, which others have locked, before it is read.
    #[cold]
    fn lock_row(&mut self, txn: &mut Transaction, key: &[u8]) -> Result<()> {
        let Reads::Locked(mode, wait) = self.begin.reads else {
            unreachable!("only a locking scan locks rows as a whole");
        };
        let tree = self.begin.def.primary;
        txn.get_stored_locked(tree, key, mode, wait, &mut Vec::new()).map(drop)
    }

    /// How the rows that are read next are locked as a whole, if they are: where ranges are locked
    /// anyway, and by a scan that has locked many rows one by one.
    #[inline]
    fn widen(&mut self, txn: &mut Transaction, mode: Mode) -> Result<Option<RangeMode>> {
        if self.begin.widens && self.scan.is_to_read() {
            let whole = self.begin.ranges.is_some() || self.locked_rows >= ROWS_ALONE;
            self.whole_at = if whole { Some(txn.change_count()?) } else { None };
        }
        Ok(self.whole_at.map(|_| RangeMode { mode, for_rows: true }))
    }

    /// Locks the row at hand if the scan is one of rows under lock, and reads its whole value;
    /// `false` if it is gone or passed over. If it can't, the scan comes to the row again.
    #[inline]
    fn resolve(&mut self, txn: &mut Transaction) -> Result<bool> {
        let resolved = self.try_resolve(txn);
        if resolved.is_err() {
            self.scan.give_again();
        }
        resolved
    }

    #[inline]
    fn try_resolve(&mut self, txn: &mut Transaction) -> Result<bool> {
        let entry = self.scan.last();
        let of_rows = self.begin.of == KeyOf::Primary;
        self.looked_up = false;
        // The transaction itself may have changed what was copied.
        let as_copied = match self.whole_at {
            Some(at) => txn.change_count()? == at,
            None => true,
        };
        match self.begin.reads {
            Reads::Locked(mode, wait) if of_rows && self.whole_at.is_none() => {
                let (tree, waits) = (self.begin.def.primary, txn.lock_waits());
                self.locked_rows += 1;
                let value = &mut self.value;
                self.looked_up = txn.get_stored_locked(tree, entry.key, mode, wait, value)?;
                if wait != Wait::Skip && (!self.looked_up || txn.lock_waits() != waits) {
                    let key = entry.key.to_vec();
                    self.scan.read_anew_behind(&key);
                }
                Ok(self.looked_up)
            }
            _ if !entry.overflow && as_copied => Ok(true),
            // The entry was copied a while ago: a version that isn't committed may have gone with
            // its chain since, so it is looked up anew. Staged entries have no chain.
            reads => {
                let view = match reads {
                    Reads::View(view) if entry.outdated => View { own: TxnId(0), ..view },
                    Reads::View(view) => view,
                    Reads::Newest | Reads::Locked(..) => {
                        View { own: txn.own_id()?, snapshot: View::EVERYTHING }
                    }
                };
                let tree = tree_of(&self.begin.def, self.begin.of);
                self.looked_up = txn.get_stored_in(view, tree, entry.key, &mut self.value)?;
                Ok(self.looked_up)
            }
        }
    }

    /// Has what lies behind `key`, which the scan has given, read anew, though it may have been
    /// read already. For locking reads by an index: who had to wait for an entry's row, or finds
    /// that the row has another entry now, may find that entry further on. A scan of rows under
    /// lock does so by itself.
    pub fn behind(&mut self, key: &[u8]) {
        match self.stem.as_mut().filter(|stem| stem.last().is_some()) {
            None => self.scan.read_anew_behind(key),
            Some(stem) => {
                // All of the stem has been read, and perhaps what comes behind it. In its tree the
                // whole key stands for nothing: the scan came to the stem by the entry that it gave
                // last.
                stem.read_anew_behind(key, self.begin.reads);
                // After a rollback to a savepoint what comes behind that is read anew in any case.
                if let Some(stored) = self.scan.given().map(<[u8]>::to_vec) {
                    self.scan.read_anew_behind(&stored);
                }
            }
        }
    }

    /// Has the entry that was given last given again.
    ///
    /// # Panics
    /// If it gave none.
    pub(super) fn give_again(&mut self) {
        match self.stem.as_mut().filter(|stem| stem.last().is_some()) {
            Some(stem) => stem.give_again(),
            None => self.scan.give_again(),
        }
    }

    /// As [`RawScan::behind`]; a scan without locks at [`crate::Isolation::ReadCommitted`] sees
    /// from there on what is committed now. For who reads so and then locks what it wants: a row
    /// that has changed since, or has gone, may be further on under another key. `txn`: the
    /// transaction that began the scan.
    ///
    /// # Errors
    /// [`Error::Ended`], [`Error::Prepared`], [`Error::ForeignScan`]. The scan is where it was.
    pub fn behind_as_of_now(&mut self, txn: &mut Transaction, key: &[u8]) -> Result<()> {
        self.check(txn)?;
        if self.held.is_none() {
            self.behind(key);
            return Ok(());
        }
        txn.drop_statement_snapshot()?;
        let view = txn.view()?;
        self.held = Some(txn.hold_snapshot()?);
        self.begin.reads = Reads::View(view);
        self.behind(key);
        self.scan.for_another_view(staging_of(&self.begin), view.is_committed());
        Ok(())
    }

    /// The entries behind the one that [`RawScan::next`] gave, as far as they have been read with
    /// it. They count as given, and leave that one where it is in memory. None where each entry
    /// must be looked at anew: of rows under lock, for example.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Direction, Isolation, KeyOf, Lock, Options, Pair, RawRange, Schema};
    /// # let db = Database::open(dir.path(), Options::default().memory_bytes(8 << 20))?;
    /// # let words = db.create_table("words", Schema::raw(vec![], vec![])?)?;
    /// # let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// # let mut rows = [b"a", b"b", b"c"].map(|key| Pair { key, value: b"1" });
    /// # txn.insert_many_raw(&words, &mut rows, &mut [])?;
    /// let (all, forward) = (RawRange::all(), Direction::Forward);
    /// let mut scan = txn.scan_raw(&words, KeyOf::Primary, all, forward, Lock::None)?;
    /// let mut bytes = 0;
    /// while let Some(entry) = scan.next(&mut txn)? {
    ///     bytes += entry.value.len();
    ///     bytes += scan.take_rest().iter().map(|entry| entry.value.len()).sum::<usize>();
    /// }
    /// assert_eq!(bytes, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn take_rest(&mut self) -> RawBatch<'_> {
        let current = !matches!(self.begin.reads, Reads::Locked(..));
        if !current && self.begin.of == KeyOf::Primary || self.is_in_stem() {
            return RawBatch::default();
        }
        let Batch { bytes, entries } = self.scan.take_copied(PLAIN);
        self.looked_up &= entries.is_empty();
        RawBatch { bytes, entries, current }
    }

    /// Number of entries behind the one that was given last, as far as they have been read with it.
    #[inline]
    pub(super) fn copied(&self) -> usize {
        if self.is_in_stem() { 0 } else { self.scan.copied() }
    }

    /// Keys and values of the first of them, `number` at most, without long keys.
    pub(super) fn first_copied(&self, number: usize) -> impl Iterator<Item = (&[u8], &[u8])> {
        let rows = self.scan.first_copied(number).into_iter();
        rows.filter(|row| !is_short_form(row.key)).map(|row| (row.key, row.value))
    }

    /// The entry that was given last.
    ///
    /// # Panics
    /// If it gave none.
    #[inline(always)]
    pub fn last(&self) -> RawEntry<'_> {
        if let Some(entry) = self.stem.as_ref().and_then(|stem| stem.last()) {
            return entry;
        }
        let row = self.scan.last();
        let value = if self.looked_up { &self.value[..] } else { row.value };
        let locked = matches!(self.begin.reads, Reads::Locked(..));
        // By the time that the caller locks the row, it may have another entry.
        let current = !row.outdated && (!locked || self.begin.of == KeyOf::Primary);
        RawEntry { key: row.key, value, current }
    }

    /// Whether the entry that was given last is of a long key.
    #[inline]
    fn is_in_stem(&self) -> bool {
        self.stem.as_ref().is_some_and(|stem| stem.last().is_some())
    }

    pub(super) fn def(&self) -> &TableDef {
        &self.begin.def
    }

    pub(super) fn of(&self) -> KeyOf {
        self.begin.of
    }

    pub(super) fn reads(&self) -> Reads {
        self.begin.reads
    }
}

/// The index's staging tree, if it has one.
fn staging_of(begin: &Begin) -> Option<&Arc<Staging>> {
    match begin.of {
        KeyOf::Primary => None,
        KeyOf::Index(n) => begin.def.indexes[n].staging.as_ref(),
    }
}

/// The index's tree.
pub(super) fn tree_of(def: &TableDef, of: KeyOf) -> Tree {
    match of {
        KeyOf::Primary => def.primary,
        KeyOf::Index(n) => def.indexes[n].tree,
    }
}

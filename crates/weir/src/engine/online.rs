//! Indexes that are built while others write to their table.
//!
//! Who writes to the table meanwhile notes which rows, by their primary keys ([`Notes`]). The index
//! is built from the rows of a snapshot; then it *catches up*: of each noted row the entries that
//! it had in that snapshot, and those that it has in a newer one, are compared, and what differs is
//! changed in the index. That is repeated, each time with fewer rows, and a last time once nobody
//! uses the table: versions take the place of a log of what was written.
//!
//! # Invariants
//! - Whoever began to write before there were notes has ended before the first snapshot is taken
//!   ([`Hold::note_writes`]).
//! - A row is noted before it is written, so whatever a snapshot sees has been noted when it is
//!   taken: notes are taken out after it. A note of a transaction that it doesn't see is kept for
//!   the next.
//! - What is built has exactly the entries of the rows of one snapshot, [`Online::seen`].
//!
//! As in Mohan and Narang (1992), "Algorithms for creating indexes for very large tables without
//! quiescing updates", without a side file: that of InnoDB holds entries, and is replayed.

use super::Database;
use super::error::{Error, Result, inconsistent};
use super::indexes::{LONG_SORT_BYTES, OfIndex, TableInChange, as_given, duplicate};
use super::patience::Patience;
use super::table::Hold;
use crate::key::long::{Stored, is_long, short_form};
use crate::sort::{SortError, Sorter};
use crate::txn::{HeldSnapshot, Op, Outcome, State, Txn};
use parking_lot::Mutex;
use std::sync::Arc;
use weir_page::TxnId;

/// Memory for notes; what is more goes to a temporary file.
const NOTES_BYTES: usize = 8 << 20;
/// As few rows as this are left to be caught up with while nobody uses the table.
const FEW: u64 = 2000;
/// Times that are caught up with at most before: writers may be faster.
const ROUNDS_MAX: u32 = 20;

/// Which rows of a table were written, and by whom.
pub(super) struct Notes(Mutex<Noted>);

struct Noted {
    /// Keys, and the numbers of the transactions; none once nobody wants to know.
    rows: Option<Sorter>,
    /// Why something could not be noted.
    failed: Option<SortError>,
    /// The last one.
    last: (TxnId, Vec<u8>),
}

impl Notes {
    fn new(rows: Sorter) -> Notes {
        Notes(Mutex::new(Noted { rows: Some(rows), failed: None, last: Default::default() }))
    }

    /// Notes that a transaction writes a row. If that can't be done, whoever builds the index is
    /// told, and nobody else.
    pub fn note(&self, txn: TxnId, key: &[u8]) {
        let mut noted = self.0.lock();
        let Noted { rows: Some(rows), failed, last } = &mut *noted else { return };
        if last.0 == txn && last.1 == key {
            return;
        }
        last.0 = txn;
        last.1.clear();
        last.1.extend_from_slice(key);
        if let Err(error) = rows.push(key, &txn.0.to_le_bytes()) {
            *failed = Some(error);
            noted.rows = None;
        }
    }

    /// Nothing is noted any more, though writers go on.
    pub fn close(&self) {
        self.0.lock().rows = None;
    }

    /// Takes out what was noted.
    fn take(&self, fresh: Sorter) -> Result<Sorter> {
        let mut noted = self.0.lock();
        noted.last = Default::default();
        if let Some(error) = noted.failed.take() {
            return Err(error.into());
        }
        Ok(noted.rows.replace(fresh).expect("notes are taken before they are closed"))
    }
}

/// An index's building while others write.
pub(super) struct Online {
    pub notes: Arc<Notes>,
    /// What is built has the entries of this snapshot's rows.
    pub seen: HeldSnapshot,
}

/// A snapshot of now that no transaction ends.
fn snapshot_of_now(txn: &mut Txn) -> HeldSnapshot {
    txn.drop_snapshot();
    let held = txn.hold_snapshot();
    txn.drop_snapshot();
    held
}

impl Database {
    /// From now on everybody who writes to the table notes it; what is built is to have the entries
    /// of the rows of now.
    pub(super) fn begin_online(
        &self,
        txn: &mut Txn,
        hold: &mut Hold,
        patience: &Patience,
    ) -> Result<Online> {
        let notes = Arc::new(Notes::new(self.sorter(NOTES_BYTES)));
        hold.note_writes(&notes, patience)?;
        txn.connection = patience.connection();
        Ok(Online { notes, seen: snapshot_of_now(txn) })
    }

    /// Catches up with those who write, until little is left to be done, or they are faster.
    pub(super) fn catch_up(
        &self,
        txn: &mut Txn,
        one: &mut TableInChange,
        patience: &Patience,
        entry_of: &mut OfIndex<'_>,
    ) -> Result<()> {
        let mut before = u64::MAX;
        for _ in 0..ROUNDS_MAX {
            let (rows, _) = self.catch_up_once(txn, one, patience, entry_of)?;
            if rows <= FEW || rows >= before {
                break;
            }
            before = rows;
        }
        Ok(())
    }

    /// Catches up for the last time: nobody uses the table.
    pub(super) fn catch_up_last(
        &self,
        txn: &mut Txn,
        one: &mut TableInChange,
        patience: &Patience,
        entry_of: &mut OfIndex<'_>,
    ) -> Result<()> {
        match self.catch_up_once(txn, one, patience, entry_of)? {
            (_, 0) => Ok(()),
            (_, left) => {
                let what = format!("{left} rows are written by somebody who doesn't use the table");
                Err(inconsistent(one.def.primary, &what))
            }
        }
    }

    /// Brings what is built to what the table is now, for those who have committed; returns how
    /// many rows had changed, and how many notes are of others. Nothing to do if nothing is built.
    fn catch_up_once(
        &self,
        txn: &mut Txn,
        one: &mut TableInChange,
        patience: &Patience,
        entry_of: &mut OfIndex<'_>,
    ) -> Result<(u64, u64)> {
        let Some(online) = &one.online else { return Ok((0, 0)) };
        let (seen, notes) = (&online.seen, online.notes.clone());
        let now = snapshot_of_now(txn);
        let mut noted = notes.take(self.sorter(NOTES_BYTES))?.finish()?;
        let count = one.def.indexes.len() - one.first;
        let mut inserts: Vec<_> = (0..count).map(|_| self.sorter(LONG_SORT_BYTES)).collect();
        let (mut rows, mut left, mut last) = (0, 0, None::<Vec<u8>>);
        let (mut before, mut after) = (RowAt::default(), RowAt::default());
        while let Some((key, writer)) = noted.next()? {
            patience.check()?;
            let writer =
                TxnId(u64::from_le_bytes(writer.try_into().expect("a number has 8 bytes")));
            if !self.0.transactions.sees(now.view(), writer) {
                if self.0.transactions.state(writer) != State::NothingLeft {
                    notes.note(writer, key);
                    left += 1;
                }
                continue;
            }
            if last.as_deref() == Some(key) {
                continue;
            }
            last.get_or_insert_default().clear();
            last.get_or_insert_default().extend_from_slice(key);
            rows += 1;
            before.read(txn, one, seen, key)?;
            after.read(txn, one, &now, key)?;
            if before.value == after.value {
                continue;
            }
            for (n, inserts) in (one.first..).zip(&mut inserts) {
                before.make_entry(one, n, key, entry_of)?;
                after.make_entry(one, n, key, entry_of)?;
                apply_difference(txn, one, n, &before.entry, &after.entry, inserts)?;
            }
        }
        // A key that one row has given up may be another's: what goes has gone.
        for (n, inserts) in (one.first..).zip(inserts) {
            let tree = one.def.indexes[n].tree;
            let mut inserts = inserts.finish()?;
            while let Some((key, value)) = inserts.next()? {
                patience.check()?;
                if txn.write(tree, key, Op::Insert(value))? == Outcome::Exists {
                    return Err(duplicate(&one.table, &one.def, n, key, value));
                }
            }
        }
        if let Some(online) = &mut one.online {
            online.seen = now;
        }
        Ok((rows, left))
    }
}

/// A row as a snapshot sees it, and its entry in an index, as it is stored; neither if there is
/// none.
#[derive(Default)]
struct RowAt {
    value: Option<Vec<u8>>,
    entry: Option<Stored>,
}

impl RowAt {
    fn read(&mut self, txn: &Txn, of: &TableInChange, at: &HeldSnapshot, key: &[u8]) -> Result<()> {
        let (tree, stored) = (of.def.primary, short_form(key));
        let mut value = self.value.take().unwrap_or_default();
        if !txn.get_into(at.view(), tree, &stored, &mut value)? {
            return Ok(());
        }
        let bytes = as_given(tree, &stored, &value, &mut Vec::new())?.1.len();
        value.truncate(bytes);
        self.value = Some(value);
        Ok(())
    }

    fn make_entry(
        &mut self,
        of: &TableInChange,
        n: usize,
        key: &[u8],
        entry_of: &mut OfIndex<'_>,
    ) -> Result<()> {
        let Stored { key: mut of_key, mut value } = self.entry.take().unwrap_or_default();
        let Some(row) = &self.value else { return Ok(()) };
        of_key.clear();
        value.clear();
        entry_of(&of.def, n, key, row, (&mut of_key, &mut value))?;
        self.entry = Some(match is_long(&of_key) {
            true => Stored::of(&of_key, &value),
            false => Stored { key: of_key, value },
        });
        Ok(())
    }
}

/// Writes what differs between two entries of a row in an index; what is to be inserted is so
/// later.
fn apply_difference(
    txn: &mut Txn,
    of: &TableInChange,
    n: usize,
    before: &Option<Stored>,
    after: &Option<Stored>,
    inserts: &mut Sorter,
) -> Result<()> {
    let tree = of.def.indexes[n].tree;
    let stays = |a: &Stored, b: &Stored| a.key == b.key;
    let outcome = match (before, after) {
        (Some(old), Some(new)) if stays(old, new) && old.value == new.value => return Ok(()),
        (Some(old), Some(new)) if stays(old, new) => {
            txn.write(tree, &new.key, Op::Update(&new.value))?
        }
        (Some(old), _) => txn.write(tree, &old.key, Op::Delete)?,
        (None, _) => Outcome::Done(None),
    };
    if !matches!(outcome, Outcome::Done(_)) {
        return Err(inconsistent(tree, "an index that is being built lacks an entry"));
    }
    match (before, after) {
        (Some(old), Some(new)) if stays(old, new) => Ok(()),
        (_, Some(new)) => inserts.push(&new.key, &new.value).map_err(Error::from),
        (_, None) => Ok(()),
    }
}

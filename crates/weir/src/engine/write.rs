//! Writes of rows and their index entries, as bytes: the path that typed and raw statements share.
//!
//! A row is written first, then its entries: who holds the row may write its entries. Any failure
//! leaves what was written so far to the statement, which takes it back. Long keys become short
//! forms here ([`crate::key::long`]).

use super::catalog::TableDef;
use super::error::{Error, Result, inconsistent};
use super::index_trees::IndexDef;
use super::online::Notes;
use super::read::cut_rest;
use super::table::Table;
use crate::key::long::{Stored, is_long, short_form};
use crate::schema::PRIMARY;
use crate::storage::Storage;
use crate::tree::Hint;
use crate::txn::{Op, Outcome, Pair, Txn, TxnError};
use smallvec::SmallVec;
use weir_page::PageId;

/// An entry that a row has in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Position of the index in the table.
    pub index: usize,
    /// The key; distinct from those of all other rows, unless the index is unique: then a second
    /// row with the same key is refused.
    pub key: &'a [u8],
    /// What belongs to it: where the row is to be found, and what else the caller wants to read
    /// there.
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// Whether both are at the same place of the same index.
    fn same_place(&self, other: &Entry<'_>) -> bool {
        self.index == other.index && self.key == other.key
    }
}

fn sort(pairs: &mut [Pair<'_>]) {
    // Mostly the first bytes tell.
    let head = |pair: &Pair<'_>| match pair.key.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => 0,
    };
    let by_key = |a: &Pair<'_>, b: &Pair<'_>| match (head(a), head(b)) {
        (x, y) if x != y && x != 0 && y != 0 => x.cmp(&y),
        _ => a.key.cmp(b.key),
    };
    if !pairs.is_sorted_by(|a, b| by_key(a, b).is_le()) {
        pairs.sort_unstable_by(by_key);
    }
}

/// Writes pairs in the order in which they are stored; the key of the first that can't be written,
/// if there is one: `write` says how many come before it.
fn write_run(
    pairs: &mut [Pair<'_>],
    write: impl FnOnce(&[Pair<'_>]) -> std::result::Result<usize, TxnError>,
) -> Result<Option<Vec<u8>>> {
    if pairs.iter().any(|pair| is_long(pair.key)) {
        return write_long_run(pairs, write);
    }
    sort(pairs);
    let done = write(pairs)?;
    Ok(pairs.get(done).map(|pair| pair.key.to_vec()))
}

/// As [`write_run`], where some keys are long.
#[cold]
fn write_long_run(
    pairs: &[Pair<'_>],
    write: impl FnOnce(&[Pair<'_>]) -> std::result::Result<usize, TxnError>,
) -> Result<Option<Vec<u8>>> {
    let as_stored = |pair: &Pair<'_>| is_long(pair.key).then(|| Stored::of(pair.key, pair.value));
    let stored: Vec<Option<Stored>> = pairs.iter().map(as_stored).collect();
    let mut run: Vec<Pair<'_>> = pairs.to_vec();
    for (pair, stored) in run.iter_mut().zip(&stored) {
        if let Some(Stored { key, value }) = stored {
            *pair = Pair { key, value };
        }
    }
    sort(&mut run);
    let done = write(&run)?;
    let is_it =
        |pair: &&Pair<'_>| run.get(done).is_some_and(|there| *short_form(pair.key) == *there.key);
    Ok(pairs.iter().find(is_it).map(|pair| pair.key.to_vec()))
}

/// What a statement writes to.
pub(super) struct Writer<'a> {
    pub txn: &'a mut Txn,
    pub storage: &'a Storage,
    pub table: &'a Table,
    pub def: &'a TableDef,
    /// Where entries go, found before anything is written so that the CPU can fetch the leaves.
    pub hints: &'a mut Vec<Hint>,
    /// Whether the last row that was to be inserted was there already: then the next one may be,
    /// too.
    pub met_duplicate: &'a mut bool,
    /// Where it is noted which rows are written.
    pub notes: Option<&'a Notes>,
}

impl Writer<'_> {
    /// To be called before a row is written.
    #[inline]
    fn note(&mut self, key: &[u8]) {
        if let Some(notes) = self.notes {
            notes.note(self.txn.ensure_id(), key);
        }
    }

    /// Inserts a row and its entries.
    pub fn insert<'e>(
        &mut self,
        key: &[u8],
        row: &[u8],
        entries: impl Iterator<Item = Entry<'e>> + Clone,
    ) -> Result<()> {
        let row_first = *self.met_duplicate;
        if !row_first {
            self.approach_all(entries.clone());
        }
        *self.met_duplicate = self.put_row(key, Op::Insert(row))? == Outcome::Exists;
        if *self.met_duplicate {
            return Err(self.duplicate(PRIMARY, key));
        }
        if row_first {
            self.approach_all(entries.clone());
        }
        for (n, entry) in entries.enumerate() {
            self.insert_entry(entry, self.hints[n])?;
        }
        Ok(())
    }

    /// Inserts rows and their entries, all rows first; each tree's in the order of its keys.
    pub fn insert_many(
        &mut self,
        rows: &mut [Pair<'_>],
        entries: &mut [(usize, Vec<Pair<'_>>)],
    ) -> Result<()> {
        let tree = self.def.primary;
        rows.iter().for_each(|row| self.note(row.key));
        let twice = write_run(rows, |run| self.txn.insert_run(tree, run, &[]))?;
        if let Some(key) = twice {
            return Err(self.duplicate(PRIMARY, &key));
        }
        for (index, entries) in entries {
            let def = &self.def.indexes[*index];
            let insert = |run: &[Pair<'_>]| def.insert_run(self.txn, self.storage, run, self.hints);
            if let Some(key) = write_run(entries, insert)? {
                return Err(self.duplicate(self.def.layout.index_name(*index), &key));
            }
        }
        Ok(())
    }

    /// Deletes rows and their entries, all rows first; each tree's in the order of its keys. Of
    /// rows and entries only the keys matter.
    pub fn delete_many(
        &mut self,
        rows: &mut [Pair<'_>],
        entries: &mut [(usize, Vec<Pair<'_>>)],
    ) -> Result<()> {
        let tree = self.def.primary;
        rows.iter().for_each(|row| self.note(row.key));
        if write_run(rows, |run| self.txn.delete_run(tree, run, &[]))?.is_some() {
            return Err(Error::NoSuchRow(self.table.name()));
        }
        self.delete_many_entries(entries)
    }

    /// Deletes entries of rows that were written; only their keys matter.
    pub fn delete_many_entries(&mut self, entries: &mut [(usize, Vec<Pair<'_>>)]) -> Result<()> {
        for (index, entries) in entries {
            let def = &self.def.indexes[*index];
            let delete = |run: &[Pair<'_>]| def.delete_run(self.txn, self.storage, run, self.hints);
            if write_run(entries, delete)?.is_some() {
                return Err(lacks_entry(def));
            }
        }
        Ok(())
    }

    /// Writes the row alone.
    #[inline]
    pub fn put_row(&mut self, key: &[u8], op: Op<'_>) -> Result<Outcome> {
        self.note(key);
        match is_long(key) {
            false => Ok(self.txn.write(self.def.primary, key, op)?),
            true => self.put_long_row(key, op),
        }
    }

    #[cold]
    fn put_long_row(&mut self, key: &[u8], op: Op<'_>) -> Result<Outcome> {
        let tree = self.def.primary;
        let mut outcome = with_short_form(key, op, |key, op| self.txn.write(tree, key, op))?;
        if let Outcome::Done(Some(old)) = &mut outcome {
            cut_rest(tree, old)?;
        }
        Ok(outcome)
    }

    /// Finds where the entries of a row are in the main trees, or go.
    #[inline]
    fn approach_all<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>> + Clone) {
        self.hints.clear();
        for entry in entries.clone() {
            let hint = self.approach(&entry);
            self.hints.push(hint);
        }
        for hint in self.hints.iter_mut() {
            hint.arrive(self.storage);
        }
        if self.hints.iter().any(Hint::is_missing) {
            self.read_missing(entries.clone());
        }
        for (hint, entry) in self.hints.iter().zip(entries) {
            hint.prefetch_insert(self.storage, entry.key);
        }
    }

    /// Reads the leaves that aren't in memory side by side, but for those whose entries are staged
    /// instead.
    #[cold]
    fn read_missing<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>>) {
        let is_staged = |index: usize| {
            let staging = self.def.indexes[index].staging.as_ref();
            staging.is_some_and(|staging| self.txn.stages(staging))
        };
        let missing: SmallVec<[PageId; 8]> = entries
            .zip(self.hints.iter())
            .filter(|(entry, _)| !is_staged(entry.index))
            .filter_map(|(_, hint)| hint.missing_leaf())
            .collect();
        // One alone is read by who needs it.
        if missing.len() > 1 {
            self.storage.load_many(&missing);
            self.hints.iter_mut().for_each(|hint| hint.arrive(self.storage));
        }
    }

    /// Finds where an entry goes.
    #[inline]
    fn approach(&self, entry: &Entry<'_>) -> Hint {
        self.def.indexes[entry.index].tree.approach(self.storage, &short_form(entry.key))
    }

    /// Inserts the entries of a row that was written.
    pub fn insert_entries<'e>(
        &mut self,
        entries: impl Iterator<Item = Entry<'e>> + Clone,
    ) -> Result<()> {
        self.approach_all(entries.clone());
        for (n, entry) in entries.enumerate() {
            self.insert_entry(entry, self.hints[n])?;
        }
        Ok(())
    }

    fn insert_entry(&mut self, entry: Entry<'_>, hint: Hint) -> Result<()> {
        let Entry { index, key, value } = entry;
        let of = &self.def.indexes[index];
        let outcome = match is_long(key) {
            false => of.insert(self.txn, key, value, hint)?,
            true => {
                let stored = Stored::of(key, value);
                of.insert(self.txn, &stored.key, &stored.value, hint)?
            }
        };
        match outcome {
            Outcome::Exists => Err(self.duplicate(self.def.layout.index_name(index), key)),
            _ => Ok(()),
        }
    }

    /// Replaces entries of a row that was written. What is at the same place before and after gets
    /// its new value there.
    pub fn replace_entries<'e>(
        &mut self,
        removed: impl Iterator<Item = Entry<'e>> + Clone,
        added: impl Iterator<Item = Entry<'e>> + Clone,
    ) -> Result<()> {
        let stays = |old: &Entry<'_>| added.clone().any(|new| new.same_place(old));
        let was_there = |new: &Entry<'_>| removed.clone().any(|old| old.same_place(new));
        let goes = removed.clone().filter(|old| !stays(old));
        let comes = added.clone().filter(|new| !was_there(new));
        self.approach_all(goes.clone().chain(comes.clone()));
        let mut next = 0;
        for entry in goes {
            self.write_existing_entry(entry.index, entry.key, Op::Delete, self.hints[next])?;
            next += 1;
        }
        self.rewrite_entries(added.clone().filter(|new| was_there(new)))?;
        for (entry, at) in comes.zip(next..) {
            self.insert_entry(entry, self.hints[at])?;
        }
        Ok(())
    }

    /// Writes entries that are there: with another value, or as they are, to make them the
    /// transaction's own.
    pub fn rewrite_entries<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>>) -> Result<()> {
        for entry in entries {
            self.write_existing_entry(
                entry.index,
                entry.key,
                Op::Update(entry.value),
                Hint::default(),
            )?;
        }
        Ok(())
    }

    /// Deletes the entries of a row that was written.
    pub fn delete_entries<'e>(
        &mut self,
        entries: impl Iterator<Item = Entry<'e>> + Clone,
    ) -> Result<()> {
        self.approach_all(entries.clone());
        for (n, entry) in entries.enumerate() {
            self.write_existing_entry(entry.index, entry.key, Op::Delete, self.hints[n])?;
        }
        Ok(())
    }

    /// `hint`: where the entry is in the main tree.
    fn write_existing_entry(
        &mut self,
        index: usize,
        key: &[u8],
        op: Op<'_>,
        hint: Hint,
    ) -> Result<()> {
        let index = &self.def.indexes[index];
        let outcome = match is_long(key) {
            false => index.write_existing(self.txn, key, op, hint)?,
            true => {
                with_short_form(key, op, |key, op| index.write_existing(self.txn, key, op, hint))?
            }
        };
        match outcome {
            Outcome::Done(_) => Ok(()),
            _ => Err(lacks_entry(index)),
        }
    }

    fn duplicate(&self, index: &str, key: &[u8]) -> Error {
        let (table, index, key) = (self.table.name(), index.to_string(), key.to_vec());
        Error::Duplicate { table, index, key }
    }

    /// A write came to what its operation can't come to.
    pub fn unexpected(&self, outcome: &Outcome) -> Error {
        inconsistent(self.def.primary, &format!("a write came to {outcome:?}"))
    }
}

fn lacks_entry(index: &IndexDef) -> Error {
    inconsistent(index.tree, "the index has no entry for a row of its table")
}

/// Does `op` to a long key, as it is stored.
#[cold]
fn with_short_form<T>(
    key: &[u8],
    op: Op<'_>,
    write: impl FnOnce(&[u8], Op<'_>) -> std::result::Result<T, TxnError>,
) -> Result<T> {
    let stored = Stored::of(key, op.value().unwrap_or_default());
    Ok(write(&stored.key, op.with_value(&stored.value))?)
}

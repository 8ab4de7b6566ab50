//! Writes of rows and their index entries, as bytes: the path that typed and raw statements share.
//!
//! A row is written first, then its entries: who holds the row may write its entries. Any failure
//! leaves what was written so far to the statement, which takes it back.

use super::catalog::TableDef;
use super::error::{Error, Result, inconsistent};
use super::table::Table;
use crate::storage::Storage;
use crate::tree::Hint;
use crate::txn::{Op, Outcome, Pair, Txn};

/// An entry that a row has in an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Position of the index in the table.
    pub index: usize,
    /// The key; distinct from those of all other rows, unless the index is unique: then a second row
    /// with the same key is refused.
    pub key: &'a [u8],
    /// What belongs to it: where the row is to be found, and what else the caller wants to read there.
    pub value: &'a [u8],
}

impl Entry<'_> {
    /// Whether both are at the same place of the same index.
    fn same_place(&self, other: &Entry<'_>) -> bool {
        self.index == other.index && self.key == other.key
    }
}

fn sort(pairs: &mut [Pair<'_>]) {
    if !pairs.is_sorted_by(|a, b| a.key <= b.key) {
        pairs.sort_unstable_by(|a, b| a.key.cmp(b.key));
    }
}

/// What a statement writes to.
pub(super) struct Writer<'a> {
    pub txn: &'a mut Txn,
    pub storage: &'a Storage,
    pub table: &'a Table,
    pub def: &'a TableDef,
    /// Where entries go, found before anything is written so that the CPU can fetch the leaves.
    pub hints: &'a mut Vec<Hint>,
}

impl Writer<'_> {
    /// Inserts a row and its entries.
    pub fn insert<'e>(
        &mut self,
        key: &[u8],
        row: &[u8],
        entries: impl Iterator<Item = Entry<'e>> + Clone,
    ) -> Result<()> {
        self.hints.clear();
        for entry in entries.clone() {
            self.hints.push(self.def.indexes[entry.index].tree.approach(self.storage, entry.key));
        }
        for hint in self.hints.iter_mut() {
            hint.arrive(self.storage);
        }
        for hint in self.hints.iter() {
            hint.prefetch_leaf(self.storage);
        }
        if self.put_row(key, Op::Insert(row))? == Outcome::Exists {
            return Err(self.duplicate("primary", key));
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
        sort(rows);
        let done = self.txn.insert_run(self.def.primary, rows, &[])?;
        if let Some(row) = rows.get(done) {
            return Err(self.duplicate("primary", row.key));
        }
        for (index, entries) in entries {
            sort(entries);
            let def = &self.def.indexes[*index];
            let done = def.insert_run(self.txn, self.storage, entries, self.hints)?;
            if let Some(entry) = entries.get(done) {
                return Err(self.duplicate(self.def.layout.index_name(*index), entry.key));
            }
        }
        Ok(())
    }

    /// Writes the row alone.
    #[inline]
    pub fn put_row(&mut self, key: &[u8], op: Op<'_>) -> Result<Outcome> {
        Ok(self.txn.write(self.def.primary, key, op)?)
    }

    /// Inserts the entries of a row that was written.
    pub fn insert_entries<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>>) -> Result<()> {
        for entry in entries {
            let mut hint = self.def.indexes[entry.index].tree.approach(self.storage, entry.key);
            hint.arrive(self.storage);
            self.insert_entry(entry, hint)?;
        }
        Ok(())
    }

    fn insert_entry(&mut self, entry: Entry<'_>, hint: Hint) -> Result<()> {
        let Entry { index, key, value } = entry;
        match self.def.indexes[index].insert(self.txn, key, value, hint)? {
            Outcome::Exists => Err(self.duplicate(self.def.layout.index_name(index), key)),
            _ => Ok(()),
        }
    }

    /// Replaces entries of a row that was written. What is at the same place before and after gets its
    /// new value there.
    pub fn change_entries<'e>(
        &mut self,
        removed: impl Iterator<Item = Entry<'e>> + Clone,
        added: impl Iterator<Item = Entry<'e>> + Clone,
    ) -> Result<()> {
        let stays = |old: &Entry<'_>| added.clone().any(|new| new.same_place(old));
        self.delete_entries(removed.clone().filter(|old| !stays(old)))?;
        let was_there = |new: &Entry<'_>| removed.clone().any(|old| old.same_place(new));
        self.rewrite_entries(added.clone().filter(|new| was_there(new)))?;
        self.insert_entries(added.clone().filter(|new| !was_there(new)))
    }

    /// Writes entries that are there: with another value, or as they are, to make them the
    /// transaction's own.
    pub fn rewrite_entries<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>>) -> Result<()> {
        for entry in entries {
            self.change_entry(entry.index, entry.key, Op::Update(entry.value))?;
        }
        Ok(())
    }

    /// Deletes the entries of a row that was written.
    pub fn delete_entries<'e>(&mut self, entries: impl Iterator<Item = Entry<'e>>) -> Result<()> {
        for entry in entries {
            self.change_entry(entry.index, entry.key, Op::Delete)?;
        }
        Ok(())
    }

    fn change_entry(&mut self, index: usize, key: &[u8], op: Op<'_>) -> Result<()> {
        let index = &self.def.indexes[index];
        match index.change(self.txn, key, op)? {
            Outcome::Done(_) => Ok(()),
            _ => {
                let what = "the index has no entry for a row of its table";
                Err(inconsistent(index.tree, what))
            }
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

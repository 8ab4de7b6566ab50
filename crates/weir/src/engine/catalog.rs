//! The catalog: a tree that maps table names to schemas and roots.

use super::error::{Error, Result};
use crate::schema::Schema;
use crate::storage::{Fault, Need, Storage};
use crate::tree::{Hint, Tree};
use crate::txn::{
    Direction, Durability, Op, Outcome, Range, Scan, Staging, Transactions, Txn, TxnError,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_page::{PageId, TreeId};

/// The catalog's tree.
pub const CATALOG: Tree = Tree { id: TreeId(2) };

/// What the catalog keeps of a table; postcard, behind a format byte.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stored {
    primary: u32,
    indexes: Vec<u32>,
    /// Staging trees of the indexes, 0 for none.
    staging: Vec<u32>,
    schema: Vec<u8>,
}

const FORMAT: u8 = 2;

/// Longest entry that is staged, in bytes: it fits a leaf, so none of its bytes are elsewhere.
const MAX_STAGED: usize = 3600;

/// A table's schema and its trees.
#[derive(Debug, Clone)]
pub struct TableDef {
    /// Columns, keys.
    pub schema: Schema,
    /// Rows by primary key.
    pub primary: Tree,
    /// One tree for each index of the schema, and the snapshot from which it can be used.
    pub indexes: Vec<IndexDef>,
}

/// An index's trees.
#[derive(Debug, Clone)]
pub struct IndexDef {
    /// The tree.
    pub tree: Tree,
    /// The tree for entries whose leaf isn't in memory; none for a unique index.
    pub staging: Option<Arc<Staging>>,
    /// Snapshots before this one can't use it: it was built from newer rows.
    pub since: u64,
}

impl IndexDef {
    /// Inserts an entry, whose row the transaction holds. `hint` is of the main tree.
    #[inline]
    pub fn insert(
        &self,
        txn: &mut Txn,
        key: &[u8],
        value: &[u8],
        hint: Hint,
    ) -> std::result::Result<Outcome, TxnError> {
        match &self.staging {
            Some(staging)
                if txn.is_staged(staging, &hint) && key.len() + value.len() <= MAX_STAGED =>
            {
                txn.insert_staged(staging, key, value)
            }
            _ => txn.write_at(self.tree, key, Op::Insert(value), hint),
        }
    }

    /// Updates or deletes an entry, whose row the transaction holds, where it is.
    #[inline]
    pub fn change(
        &self,
        txn: &mut Txn,
        key: &[u8],
        op: Op<'_>,
    ) -> std::result::Result<Outcome, TxnError> {
        // In this order: entries move from the staging tree to the main tree.
        if let Some(staging) = self.staging.as_ref().filter(|staging| !staging.is_empty()) {
            let outcome = txn.write(staging.tree, key, op)?;
            if outcome != Outcome::Absent {
                return Ok(outcome);
            }
        }
        txn.write(self.tree, key, op)
    }
}

impl TableDef {
    fn encode(&self) -> Vec<u8> {
        let stored = Stored {
            primary: self.primary.id.0,
            indexes: self.indexes.iter().map(|i| i.tree.id.0).collect(),
            staging: self
                .indexes
                .iter()
                .map(|i| i.staging.as_ref().map_or(0, |s| s.tree.id.0))
                .collect(),
            schema: self.schema.encode(),
        };
        postcard::to_extend(&stored, vec![FORMAT]).expect("writing to memory does not fail")
    }

    fn decode(name: &str, bytes: &[u8]) -> Result<TableDef> {
        let damaged = |what: String| Error::Catalog(format!("table `{name}`: {what}"));
        let (&format, rest) = bytes.split_first().ok_or_else(|| damaged("no entry".into()))?;
        if format != FORMAT {
            return Err(damaged(format!("format {format} is newer than {FORMAT}")));
        }
        let stored: Stored = postcard::from_bytes(rest).map_err(|e| damaged(e.to_string()))?;
        let schema = Schema::decode(&stored.schema)?;
        let trees = [stored.indexes.len(), stored.staging.len()];
        if trees != [schema.indexes().len(); 2] {
            return Err(damaged("numbers of indexes and trees differ".into()));
        }
        let tree = |root: u32| Tree::new(TreeId(root));
        let index = |(&root, &staging): (&u32, &u32)| {
            let staging = (staging != 0).then(|| Arc::new(Staging::new(tree(root), tree(staging))));
            IndexDef { tree: tree(root), staging, since: 0 }
        };
        Ok(TableDef {
            schema,
            primary: tree(stored.primary),
            indexes: stored.indexes.iter().zip(&stored.staging).map(index).collect(),
        })
    }
}

/// Makes the first pages of a new database, durably, in one mini-transaction.
pub fn create(storage: &Arc<Storage>) -> std::result::Result<Arc<Transactions>, Fault> {
    let mut mtr = storage.mtr(Need::pages(1024, 2))?;
    Transactions::init(&mut mtr);
    let root = mtr.create();
    assert_eq!(root, PageId(CATALOG.id.0), "the catalog is the second tree page");
    Tree::init(&mut mtr, root);
    let end = mtr.commit().end;
    storage.redo.wait_durable(end)?;
    storage.note_durable()?;
    Ok(Transactions::first(storage.clone()))
}

/// Writes a table's entry.
pub fn put(txn: &mut Txn, name: &str, def: &TableDef, op: PutOp) -> Result<()> {
    let value = def.encode();
    let op = match op {
        PutOp::New => Op::Insert(&value),
        PutOp::Changed => Op::Update(&value),
    };
    match txn.write(CATALOG, name.as_bytes(), op)? {
        Outcome::Done(_) => Ok(()),
        Outcome::Exists => Err(Error::TableExists(name.into())),
        Outcome::Absent => Err(Error::NoSuchTable(name.into())),
    }
}

/// Whether an entry is new.
#[derive(Debug, Clone, Copy)]
pub enum PutOp {
    /// The name is free.
    New,
    /// The name is taken by the same table.
    Changed,
}

/// Removes a table's entry.
pub fn remove(txn: &mut Txn, name: &str) -> Result<()> {
    match txn.write(CATALOG, name.as_bytes(), Op::Delete)? {
        Outcome::Done(_) => Ok(()),
        _ => Err(Error::NoSuchTable(name.into())),
    }
}

/// All tables.
pub fn load(shared: &Arc<Transactions>) -> Result<Vec<(String, TableDef)>> {
    let mut txn = shared.begin();
    let view = txn.view();
    let mut scan = Scan::new(shared.clone(), CATALOG, Range::default(), Direction::Forward, 64);
    let mut tables = Vec::new();
    while let Some(row) = scan.next(view)? {
        let name = String::from_utf8(row.key.to_vec())
            .map_err(|_| Error::Catalog("a table's name isn't UTF-8".into()))?;
        let value = crate::txn::whole(&shared.storage, CATALOG, row.overflow, row.value)?;
        tables.push((name.clone(), TableDef::decode(&name, &value)?));
    }
    txn.commit(Durability::Relaxed)?;
    Ok(tables)
}

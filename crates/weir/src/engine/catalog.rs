//! The catalog: a tree that maps table names to schemas and roots.

use super::error::{Error, Result};
use super::index_trees::IndexDef;
use super::table::Table;
use crate::schema::{Layout, RawSchema, Schema, SchemaError};
use crate::storage::{Fault, Need, Storage};
use crate::tree::Tree;
use crate::txn::{
    Direction, Durability, Op, Outcome, Range, Scan, Staging, Transactions, Txn, TxnError,
};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use weir_page::{PageId, TreeId};

/// The catalog's tree.
pub const CATALOG: Tree = Tree::new(TreeId(2));

/// What the catalog keeps of a table; postcard, behind a format byte.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stored {
    primary: u32,
    indexes: Vec<u32>,
    /// Staging trees of the indexes, 0 for none.
    staging: Vec<u32>,
    /// [`Layout::encode`]; in format 2, [`Schema::encode`].
    layout: Vec<u8>,
}

const FORMAT: u8 = 3;
/// The format before there were raw tables.
const TYPED_ONLY: u8 = 2;

/// A table's schema and its trees; on other cache lines than the number of those who use it.
#[derive(Debug, Clone)]
#[repr(align(128))]
pub struct TableDef {
    /// What its bytes are.
    pub layout: Layout,
    /// Rows by primary key.
    pub primary: Tree,
    /// One tree for each index of the schema, and the snapshot from which it can be used.
    pub indexes: Vec<IndexDef>,
    /// Snapshots before this one can't read it: its rows are newer, or were another table's. `None`
    /// of a table that only its maker uses.
    pub since: Option<u64>,
}

/// What it takes of a definition to read single rows: not the whole, whose count of users all
/// processors share.
#[derive(Debug, Clone, Copy)]
pub struct Rows {
    /// [`TableDef::primary`].
    pub tree: Tree,
    /// [`TableDef::since`].
    pub since: Option<u64>,
}

impl TableDef {
    /// Whether only its maker uses it.
    pub fn is_own(&self) -> bool {
        self.since.is_none()
    }

    /// Where its rows are.
    #[inline]
    pub fn rows(&self) -> Rows {
        Rows { tree: self.primary, since: self.since }
    }

    /// The columns of a typed table.
    ///
    /// # Panics
    /// If it is a raw one: who asks has made sure.
    #[inline]
    pub fn schema(&self) -> &Schema {
        match &self.layout {
            Layout::Typed(schema) => schema,
            Layout::Raw(_) => panic!("only a typed table has columns"),
        }
    }

    /// The columns and keys of a typed table, which errors call by its name.
    ///
    /// # Errors
    /// [`Error::NotTyped`].
    #[inline]
    pub fn typed(&self, table: &Table) -> Result<&Schema> {
        match &self.layout {
            Layout::Typed(schema) => Ok(schema),
            Layout::Raw(_) => Err(Error::NotTyped(table.name())),
        }
    }

    /// The indexes of a raw table, and what its caller keeps with it.
    ///
    /// # Errors
    /// [`Error::NotRaw`].
    #[inline]
    pub fn raw(&self, table: &Table) -> Result<&RawSchema> {
        match &self.layout {
            Layout::Raw(schema) => Ok(schema),
            Layout::Typed(_) => Err(Error::NotRaw(table.name())),
        }
    }

    /// Which index has that name.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`].
    pub fn index_named(&self, table: &Table, index: &str) -> Result<usize> {
        let no_such = || Error::NoSuchIndex { table: table.name(), index: index.to_string() };
        self.layout.index_index(index).ok_or_else(no_such)
    }

    /// The index of that number.
    ///
    /// # Errors
    /// [`Error::NoSuchIndex`].
    #[inline]
    pub fn index(&self, table: &Table, n: usize) -> Result<&IndexDef> {
        let no_such = || Error::NoSuchIndex { table: table.name(), index: format!("number {n}") };
        self.indexes.get(n).ok_or_else(no_such)
    }

    /// All its trees.
    pub fn trees(&self) -> impl Iterator<Item = Tree> + '_ {
        std::iter::once(self.primary).chain(self.indexes.iter().flat_map(IndexDef::trees))
    }

    fn encode(&self) -> Vec<u8> {
        let stored = Stored {
            primary: self.primary.id.0,
            indexes: self.indexes.iter().map(|i| i.tree.id.0).collect(),
            staging: self
                .indexes
                .iter()
                .map(|i| i.staging.as_ref().map_or(0, |s| s.tree.id.0))
                .collect(),
            layout: self.layout.encode(),
        };
        postcard::to_extend(&stored, vec![FORMAT]).expect("writing to memory does not fail")
    }

    fn decode(name: &str, bytes: &[u8]) -> Result<TableDef> {
        let damaged = |what: String| Error::Catalog(format!("table `{name}`: {what}"));
        let (&format, rest) = bytes.split_first().ok_or_else(|| damaged("no entry".into()))?;
        if !(TYPED_ONLY..=FORMAT).contains(&format) {
            return Err(Error::CatalogFormat { table: name.into(), found: format, newest: FORMAT });
        }
        let stored: Stored = postcard::from_bytes(rest).map_err(|e| damaged(e.to_string()))?;
        let layout = match format {
            TYPED_ONLY => Schema::decode(&stored.layout).map(Layout::Typed),
            _ => Layout::decode(&stored.layout),
        };
        let layout = layout.map_err(|error| match error {
            SchemaError::UnknownFormat { found, newest } => {
                Error::CatalogFormat { table: name.into(), found, newest }
            }
            error => damaged(error.to_string()),
        })?;
        let trees = [stored.indexes.len(), stored.staging.len()];
        if trees != [layout.index_count(); 2] {
            return Err(damaged("numbers of indexes and trees differ".into()));
        }
        let tree = |root: u32| Tree::new(TreeId(root));
        let index = |(&root, &staging): (&u32, &u32)| {
            let staging = (staging != 0).then(|| Arc::new(Staging::new(tree(root), tree(staging))));
            IndexDef { tree: tree(root), staging, since: 0 }
        };
        Ok(TableDef {
            layout,
            primary: tree(stored.primary),
            indexes: stored.indexes.iter().zip(&stored.staging).map(index).collect(),
            since: Some(0),
        })
    }
}

/// Makes the first pages of a new database, durably, in one mini-transaction.
pub fn create(storage: &Arc<Storage>) -> std::result::Result<Arc<Transactions>, Fault> {
    let mut mtr = storage.mtr(Need::log(1024).and_pages(2))?;
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
    match write(txn, name, op)? {
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
    match write(txn, name, Op::Delete)? {
        Outcome::Done(_) => Ok(()),
        _ => Err(Error::NoSuchTable(name.into())),
    }
}

/// Writes to a table's entry. In the way there can only be a change that has yet to be taken back.
fn write(txn: &mut Txn, name: &str, op: Op<'_>) -> Result<Outcome> {
    match txn.write(CATALOG, name.as_bytes(), op) {
        Err(TxnError::Lock(_)) => Err(Error::TableInUse(name.into())),
        done => Ok(done?),
    }
}

/// All tables.
pub fn load(transactions: &Arc<Transactions>) -> Result<Vec<(String, TableDef)>> {
    let mut txn = transactions.begin();
    let view = txn.view();
    let mut scan =
        Scan::new(transactions.clone(), CATALOG, Range::default(), Direction::Forward, 64);
    let mut tables = Vec::new();
    while let Some(row) = scan.next(view)? {
        let name = String::from_utf8(row.key.to_vec())
            .map_err(|_| Error::Catalog("a table's name isn't UTF-8".into()))?;
        let value = match row.overflow {
            true => crate::txn::read_chain(&transactions.storage, CATALOG, row.value)?,
            false => row.value.to_vec(),
        };
        tables.push((name.clone(), TableDef::decode(&name, &value)?));
    }
    txn.commit(Durability::Relaxed)?;
    Ok(tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::RawIndex;
    use crate::value::Type;

    fn tree(id: u32) -> Tree {
        Tree::new(TreeId(id))
    }

    fn typed() -> Schema {
        Schema::builder().column("a", Type::I64).primary_key(&["a"]).build().unwrap()
    }

    #[test]
    fn an_entry_whose_schema_is_newer_or_damaged_names_the_table() {
        let decode = |layout: &[u8]| {
            let entry = [&[3, 6, 0, 0, layout.len() as u8][..], layout].concat();
            TableDef::decode("t", &entry).unwrap_err().to_string()
        };
        for (layout, expected) in [
            (&[0, 9][..], "table `t`: its catalog entry has format 9, this program reads up to 2"),
            (&[1, 2], "table `t`: its catalog entry has format 2, this program reads up to 1"),
            (&[0, 1, 7], "the catalog is damaged: table `t`: the bytes are not a schema"),
        ] {
            assert!(decode(layout).starts_with(expected), "{}", decode(layout));
        }
    }

    #[test]
    fn a_raw_table_s_entry_is_golden() {
        let indexes = vec![RawIndex::new("u", true), RawIndex::new("n", false)];
        let staging = Some(Arc::new(Staging::new(tree(8), tree(9))));
        let def = TableDef {
            layout: Schema::raw(indexes, vec![5]).unwrap().into(),
            primary: tree(6),
            indexes: vec![
                IndexDef { tree: tree(7), staging: None, since: 0 },
                IndexDef { tree: tree(8), staging, since: 4 },
            ],
            since: Some(4),
        };
        let layout = [1, 1, 2, 1, b'u', 1, 1, b'n', 0, 1, 5];
        let golden = [&[3, 6, 2, 7, 8, 2, 0, 9, layout.len() as u8][..], &layout].concat();
        assert_eq!(def.encode(), golden);
        let back = TableDef::decode("t", &golden).unwrap();
        assert_eq!((back.layout.clone(), back.primary), (def.layout, tree(6)));
        assert_eq!(back.indexes.iter().map(|i| i.tree).collect::<Vec<_>>(), [tree(7), tree(8)]);
        assert_eq!(back.indexes[1].staging.as_ref().unwrap().tree, tree(9).staying());
    }

    #[test]
    fn an_entry_of_format_2_is_read() {
        let schema = typed();
        let old = [&[2, 6, 0, 0, schema.encode().len() as u8][..], &schema.encode()].concat();
        let def = TableDef::decode("t", &old).unwrap();
        assert_eq!(*def.schema(), schema);
        assert_eq!(def.encode()[0], FORMAT);
    }

    #[test]
    fn other_formats_are_refused_with_a_reason() {
        let message = |format: u8| {
            let schema = typed().encode();
            let bytes = [&[format, 6, 0, 0, schema.len() as u8][..], &schema].concat();
            TableDef::decode("t", &bytes).unwrap_err().to_string()
        };
        for format in [1, 4] {
            assert_eq!(
                message(format),
                format!(
                    "table `t`: its catalog entry has format {format}, this program reads up to 3: \
                     open the database with the version that wrote it"
                )
            );
        }
    }
}

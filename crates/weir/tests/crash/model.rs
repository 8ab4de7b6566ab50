//! The oracle: what was committed, in order, and what of it must have survived.
//!
//! Every commit, of rows or of a definition, gets the next number; so does what happens to a
//! prepared transaction. A key's versions are kept with the numbers of the commits that made them,
//! so the state after any commit can be told. What is found after a crash must be the state after
//! one of the commits from a floor on: the last that was acknowledged as surviving that kind of
//! crash.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub type Key = Rc<[u8]>;
pub type TableId = u32;

/// A row of any of the tables: they all have these columns.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub key: Key,
    /// Different in every row that is ever written.
    pub stamp: u64,
    pub a: i64,
    pub u: Option<u64>,
    pub t: Vec<u8>,
    pub body: Vec<u8>,
}

/// The indexes that a table may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Index {
    ByA,
    ByU,
    ByT,
    ByTA,
}

impl Index {
    pub const ALL: [Index; 4] = [Index::ByA, Index::ByU, Index::ByT, Index::ByTA];

    pub fn name(self) -> &'static str {
        match self {
            Index::ByA => "by_a",
            Index::ByU => "by_u",
            Index::ByT => "by_t",
            Index::ByTA => "by_ta",
        }
    }

    pub fn columns(self) -> &'static [&'static str] {
        match self {
            Index::ByA => &["a"],
            Index::ByU => &["u"],
            Index::ByT => &["t"],
            Index::ByTA => &["t", "a"],
        }
    }

    pub fn unique(self) -> bool {
        self == Index::ByU
    }

    /// Sorts rows as the index does.
    pub fn sort(self, rows: &mut [Rc<Row>]) {
        rows.sort_by(|x, y| {
            let keys = x.key.cmp(&y.key);
            match self {
                Index::ByA => x.a.cmp(&y.a).then(keys),
                Index::ByU => x.u.cmp(&y.u).then(keys),
                Index::ByT => x.t.cmp(&y.t).then(keys),
                Index::ByTA => (&x.t, x.a).cmp(&(&y.t, y.a)).then(keys),
            }
        });
    }
}

/// A column that was added to a table: rows written since have their stamp in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Added {
    pub name: String,
    /// What rows have that were there.
    pub default: Option<u64>,
    /// The newest stamp of them.
    pub after: u64,
}

/// A table as the catalog has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Def {
    pub id: TableId,
    /// In the order of the schema, with the commit that made each.
    pub indexes: Vec<(Index, u64)>,
    /// Columns behind those that all tables have.
    pub added: Vec<Added>,
    /// The commit that made it, or gave it this name.
    pub since: u64,
}

pub type Catalog = BTreeMap<String, Def>;
pub type Change = (TableId, Key, Option<Rc<Row>>);
type Versions = Vec<(u64, Option<Rc<Row>>)>;

/// A transaction that was prepared.
pub struct Pending {
    pub xid: Vec<u8>,
    /// When it was, and when it was committed or rolled back.
    since: u64,
    until: Option<u64>,
    pub writes: BTreeMap<(TableId, Key), Option<Rc<Row>>>,
    /// Rows locked by reads.
    pub locks: BTreeSet<(TableId, Key)>,
    pub used: BTreeSet<TableId>,
}

impl Pending {
    pub fn new(
        xid: Vec<u8>,
        writes: BTreeMap<(TableId, Key), Option<Rc<Row>>>,
        locks: BTreeSet<(TableId, Key)>,
        used: BTreeSet<TableId>,
    ) -> Pending {
        Pending { xid, since: 0, until: None, writes, locks, used }
    }

    fn is_at(&self, commit: u64) -> bool {
        self.since <= commit && self.until.is_none_or(|until| until > commit)
    }
}

/// See the module.
#[derive(Default)]
pub struct Model {
    pending: Vec<Pending>,
    tables: BTreeMap<TableId, BTreeMap<Key, Versions>>,
    catalogs: Vec<(u64, Catalog)>,
    /// The last commit.
    pub last: u64,
    /// Commits up to here survive a power cut.
    pub floor_power: u64,
    /// Commits up to here survive a killed process.
    pub floor_kill: u64,
}

impl Model {
    pub fn new() -> Model {
        Model { catalogs: vec![(0, Catalog::new())], ..Model::default() }
    }

    pub fn catalog(&self) -> &Catalog {
        self.catalog_at(u64::MAX)
    }

    pub fn catalog_at(&self, commit: u64) -> &Catalog {
        let at = self.catalogs.partition_point(|c| c.0 <= commit);
        &self.catalogs[at - 1].1
    }

    /// A transaction's commit.
    pub fn commit(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.last += 1;
        for (table, key, row) in changes {
            let versions = self.tables.entry(table).or_default().entry(key).or_default();
            versions.push((self.last, row));
        }
    }

    /// The commit of a definition.
    pub fn define(&mut self, change: impl FnOnce(&mut Catalog, u64)) {
        self.last += 1;
        let mut catalog = self.catalog().clone();
        change(&mut catalog, self.last);
        self.catalogs.push((self.last, catalog));
    }

    /// A transaction is prepared.
    pub fn prepare(&mut self, pending: Pending) {
        self.last += 1;
        self.pending.push(Pending { since: self.last, ..pending });
    }

    /// A prepared transaction is committed or rolled back.
    pub fn decide(&mut self, xid: &[u8], commits: bool) {
        let at = self.pending.iter().position(|p| p.until.is_none() && p.xid == xid);
        let at = at.expect("it is prepared");
        let writes = if commits { self.pending[at].writes.clone() } else { BTreeMap::new() };
        self.commit(writes.into_iter().map(|((table, key), row)| (table, key, row)));
        self.pending[at].until = Some(self.last);
    }

    /// The transactions that are prepared now.
    pub fn prepared(&self) -> impl Iterator<Item = &Pending> {
        self.pending.iter().filter(|p| p.until.is_none())
    }

    /// Names of the transactions that are prepared after a commit, sorted.
    pub fn prepared_at(&self, commit: u64) -> Vec<Vec<u8>> {
        let at = self.pending.iter().filter(|p| p.is_at(commit));
        let mut xids: Vec<Vec<u8>> = at.map(|p| p.xid.clone()).collect();
        xids.sort();
        xids
    }

    /// Everything so far survives a power cut.
    pub fn all_durable(&mut self) {
        self.floor_power = self.last;
        self.floor_kill = self.last;
    }

    /// Everything so far survives the process.
    pub fn all_written(&mut self) {
        self.floor_kill = self.last;
    }

    pub fn get(&self, table: TableId, key: &[u8], commit: u64) -> Option<Rc<Row>> {
        at(self.tables.get(&table)?.get(key)?, commit)
    }

    /// All rows after a commit, by key.
    pub fn rows(&self, table: TableId, commit: u64) -> Vec<Rc<Row>> {
        let keys = self.tables.get(&table).into_iter().flatten();
        keys.filter_map(|(_, versions)| at(versions, commit)).collect()
    }

    pub fn keys(&self, table: TableId) -> Option<&BTreeMap<Key, Versions>> {
        self.tables.get(&table)
    }

    /// The last commit turned out not to have happened.
    pub fn forget_last(&mut self) {
        let last = self.last;
        self.catalogs.retain(|c| c.0 < last);
        for versions in self.tables.values_mut().flat_map(|keys| keys.values_mut()) {
            versions.retain(|v| v.0 < last);
        }
        self.pending.retain(|p| p.since < last);
        for pending in self.pending.iter_mut().filter(|p| p.until == Some(last)) {
            pending.until = None;
        }
        self.last -= 1;
    }

    /// What is found is the state after `commit`: nothing later happened.
    pub fn settle(&mut self, commit: u64) {
        self.catalogs.retain(|c| c.0 <= commit);
        let catalog = self.catalogs.pop().expect("the first catalog is empty").1;
        self.catalogs = vec![(0, catalog)];
        for def in self.catalogs[0].1.values_mut() {
            def.indexes.iter_mut().for_each(|i| i.1 = 0);
            def.since = 0;
        }
        let alive: Vec<TableId> = self.catalog().values().map(|d| d.id).collect();
        self.tables.retain(|id, _| alive.contains(id));
        for keys in self.tables.values_mut() {
            keys.retain(|_, versions| {
                let now = at(versions, commit);
                versions.clear();
                versions.push((0, now));
                versions[0].1.is_some()
            });
        }
        self.pending.retain(|p| p.is_at(commit));
        for pending in &mut self.pending {
            (pending.since, pending.until) = (0, None);
            // What it has written is locked still, what it has read no longer.
            pending.locks.clear();
            pending.used = pending.writes.keys().map(|(table, _)| *table).collect();
        }
        (self.last, self.floor_power, self.floor_kill) = (0, 0, 0);
    }
}

fn at(versions: &Versions, commit: u64) -> Option<Rc<Row>> {
    let at = versions.partition_point(|v| v.0 <= commit);
    versions[..at].last()?.1.clone()
}

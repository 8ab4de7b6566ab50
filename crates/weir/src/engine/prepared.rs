//! Two-phase commit: prepared transactions, by name, and who may end them.
//!
//! A prepared transaction belongs to its [`Transaction`] until that is dropped or detached; then,
//! and after a restart, to the database, which ends it by its name (xid).

use super::Database;
use super::commit::Committed;
use super::error::{Error, Result};
use super::table::{Table, Use, WaitLimit};
use super::transaction::Transaction;
use crate::txn::{Durability, Resurrected, Txn};
use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use weir_os::Blocked;

/// Bytes that a prepared transaction's name may have.
pub const MAX_XID: usize = 140;

/// A prepared transaction that belongs to the database.
pub(super) struct Detached {
    txn: Txn,
    /// Its tables: their definitions must not change.
    _used: Vec<Use>,
}

const SHARDS: usize = 16;

/// Prepared transactions by name, in shards: each commit of a coordinator is here for a moment.
#[derive(Default)]
pub(super) struct Registry {
    shards: [CachePadded<Shard>; SHARDS],
    hasher: ahash::RandomState,
}

/// Transactions by name; `None` for one that belongs to a [`Transaction`] or is being ended.
type Names = HashMap<Vec<u8>, Option<Detached>, ahash::RandomState>;

#[derive(Default)]
struct Shard {
    all: Mutex<Names>,
    /// A name was given up, or came to the database.
    changed: Condvar,
}

/// Whether the name is of one that belongs to a [`Transaction`] or is being ended.
fn is_attached(names: &Names, xid: &[u8]) -> bool {
    names.get(xid).is_some_and(Option::is_none)
}

impl Registry {
    /// Takes in what recovery has found.
    pub fn recovered<'t>(
        found: Vec<Resurrected>,
        tables: impl Iterator<Item = &'t Table> + Clone,
    ) -> Result<Registry> {
        let registry = Registry::default();
        for Resurrected { txn, xid, trees } in found {
            let mut used = Vec::new();
            for table in tables.clone() {
                let def = table.0.def()?;
                if def.trees().any(|tree| trees.contains(&tree.id)) {
                    let mut of_table = Use::of(table, WaitLimit::of(Duration::ZERO))?;
                    of_table.begin_writing();
                    used.push(of_table);
                }
            }
            registry.put(xid, txn, used);
        }
        Ok(registry)
    }

    fn shard(&self, xid: &[u8]) -> &Shard {
        &self.shards[self.hasher.hash_one(xid) as usize % SHARDS]
    }

    fn reserve(&self, xid: &[u8]) -> Result<()> {
        let mut all = self.shard(xid).all.lock();
        if all.contains_key(xid) {
            return Err(Error::XidInUse);
        }
        all.insert(xid.to_vec(), None);
        Ok(())
    }

    pub fn remove(&self, xid: &[u8]) {
        let shard = self.shard(xid);
        shard.all.lock().remove(xid);
        shard.changed.notify_all();
    }

    pub fn put(&self, xid: Vec<u8>, txn: Txn, used: Vec<Use>) {
        self.put_back(xid, Detached { txn, _used: used });
    }

    fn put_back(&self, xid: Vec<u8>, detached: Detached) {
        let shard = self.shard(&xid);
        shard.all.lock().insert(xid, Some(detached));
        shard.changed.notify_all();
    }

    /// Takes a transaction to end it; its name stays taken.
    fn take(&self, xid: &[u8]) -> Result<Detached> {
        let mut all = self.shard(xid).all.lock();
        let entry = all.get_mut(xid).ok_or(Error::NoSuchXid)?;
        entry.take().ok_or(Error::XidInUse)
    }
}

impl Transaction {
    /// Prepares the transaction for a two-phase commit, under a name of at most [`MAX_XID`] bytes.
    /// Returns when that is as durable as the transaction's commit was to be. From then on it takes
    /// no statement; it is committed or rolled back, here or, after [`Transaction::detach`] or a
    /// crash, by its name.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # use weir::{Database, Durability, Isolation, Options, Schema, Type, Value};
    /// # let open = || Database::open(dir.path(), Options::default().memory_bytes(8 << 20));
    /// # let db = open()?;
    /// # let schema = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build()?;
    /// # let table = db.create_table("t", schema)?;
    /// let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// txn.insert(&table, &[Value::U64(1)])?;
    /// txn.prepare(b"of the coordinator")?;
    /// txn.detach()?;
    /// # drop((table, db));
    ///
    /// let db = open()?;
    /// assert_eq!(db.prepared(), [b"of the coordinator"]);
    /// db.commit_prepared(b"of the coordinator", Durability::Sync)?;
    /// # let mut txn = db.begin(Isolation::RepeatableRead)?;
    /// # assert!(txn.get(&db.table("t").expect("it is there"), &[Value::U64(1)])?.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::BadXid`], [`Error::XidInUse`], [`Error::ReadOnly`]; storage errors. The transaction
    /// isn't prepared then, unless the log has failed: then the next opening of the database tells.
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        if !(1..=MAX_XID).contains(&xid.len()) {
            return Err(Error::BadXid { bytes: xid.len() });
        }
        self.check_running()?;
        self.db().check_writable()?;
        self.db().prepared.reserve(xid)?;
        let result = self.prepare_as(xid);
        if !self.is_prepared() {
            self.db().prepared.remove(xid);
        }
        result
    }

    /// Gives up what a prepared transaction has locked by reading, as a restart does: what it has
    /// written stays locked.
    ///
    /// # Errors
    /// [`Error::NotPrepared`].
    pub fn release_reads(&mut self) -> Result<()> {
        self.prepared_txn()?.release_reads();
        Ok(())
    }

    /// Leaves a prepared transaction to the database, which ends it by its name. Dropping it does
    /// the same.
    ///
    /// # Errors
    /// [`Error::NotPrepared`]: it was rolled back.
    pub fn detach(self) -> Result<()> {
        match self.is_prepared() {
            true => Ok(()),
            false => Err(Error::NotPrepared),
        }
    }
}

impl Database {
    /// Names of the prepared transactions that no [`Transaction`] stands for, sorted.
    pub fn prepared(&self) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        for shard in &self.0.prepared.shards {
            let all = shard.all.lock();
            names.extend(all.iter().filter(|(_, txn)| txn.is_some()).map(|(xid, _)| xid.clone()));
        }
        names.sort_unstable();
        names
    }

    /// Waits until no [`Transaction`] stands for the prepared transaction of this name, so that it
    /// is the database's or has ended; whether that came in time. For those who hear that it may be
    /// decided before the thread that has it has let go.
    pub fn wait_until_detached(&self, xid: &[u8], timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        let shard = self.0.prepared.shard(xid);
        let _blocked = Blocked::begin();
        let mut all = shard.all.lock();
        let mut is_late = false;
        while is_attached(&all, xid) && !is_late {
            match deadline {
                None => shard.changed.wait(&mut all),
                Some(at) => is_late = shard.changed.wait_until(&mut all, at).timed_out(),
            }
        }
        !is_attached(&all, xid)
    }

    /// Commits a transaction of [`Database::prepared`]; `durability` says when this returns.
    ///
    /// # Errors
    /// [`Error::NoSuchXid`], [`Error::XidInUse`], [`Error::ReadOnly`]; storage errors: the
    /// transaction is prepared still, or the log has failed and the next opening tells.
    pub fn commit_prepared(&self, xid: &[u8], durability: Durability) -> Result<()> {
        self.0.check_writable()?;
        let registry = &self.0.prepared;
        let mut detached = registry.take(xid)?;
        match detached.txn.commit_visibly() {
            Ok(end) => {
                registry.remove(xid);
                self.wait(Committed { end, home: self.0.home, durability })
            }
            Err(error) => {
                registry.put_back(xid.to_vec(), detached);
                Err(error.into())
            }
        }
    }

    /// Rolls back a transaction of [`Database::prepared`]; `durability` says when this returns.
    ///
    /// # Errors
    /// [`Error::NoSuchXid`], [`Error::XidInUse`], [`Error::ReadOnly`]; storage errors: what can't
    /// be taken back for want of space is taken back later, and nobody else can have the name
    /// before; or the next opening tells.
    pub fn rollback_prepared(&self, xid: &[u8], durability: Durability) -> Result<()> {
        self.0.check_writable()?;
        let Detached { txn, _used } = self.0.prepared.take(xid)?;
        let mut transaction = Transaction::of_prepared(self.0.clone(), xid, txn, _used);
        transaction.set_durability(durability);
        transaction.rollback()
    }
}

//! Transactions prepared, and decided later: by their handle, or by their name.

use crate::model::Pending;
use crate::world::{Open, Step, World};
use weir::{Durability, Error};

impl World {
    /// Prepares a running transaction.
    pub fn prepare(&mut self, i: usize) -> Step {
        let Open { mut txn, number, durability, writes, locks, used, .. } = self.open.remove(i);
        let xid = format!("t{number}").into_bytes();
        let taken = self.model.prepared().next().map(|p| p.xid.clone());
        if let Some(taken) = taken {
            assert!(matches!(txn.prepare(&taken), Err(Error::XidInUse)));
        }
        let result = txn.prepare(&xid);
        let n = writes.len();
        self.note(|| format!("t{number} prepare {durability:?}, {n} writes: {result:?}"));
        self.model.prepare(Pending::new(xid.clone(), writes, locks, used));
        self.counts.prepared += 1;
        if let Err(error) = result {
            self.counts.in_doubt += 1;
            return Err(self.down("prepare", error));
        }
        assert!(matches!(txn.savepoint(), Err(Error::Prepared)));
        self.survives(durability);
        if self.rng.bool() {
            self.attached.insert(xid, txn);
        } else {
            txn.detach().expect("it is prepared");
        }
        Ok(())
    }

    /// Commits or rolls back one of the prepared transactions.
    pub fn decide(&mut self) -> Step {
        let at = self.rng.usize(..self.model.prepared().count());
        let xid = self.model.prepared().nth(at).expect("there are enough").xid.clone();
        let commits = self.rng.u8(..3) > 0;
        let handle = self.attached.remove(&xid);
        let attached = handle.is_some();
        let durability = match &handle {
            Some(txn) => txn.durability(),
            None => [Durability::Sync, Durability::Write, Durability::Relaxed][self.rng.usize(..3)],
        };
        let result = match (handle, commits) {
            (Some(mut txn), true) if self.rng.bool() => {
                txn.commit_in_order().and_then(|committed| self.db().wait(committed))
            }
            (Some(txn), true) => txn.commit(),
            (Some(txn), false) => txn.rollback(),
            (None, true) => self.db().commit_prepared(&xid, durability),
            (None, false) => self.db().rollback_prepared(&xid, durability),
        };
        let name = String::from_utf8_lossy(&xid).into_owned();
        self.note(|| format!("{name} commits {commits}, attached {attached}: {result:?}"));
        self.model.decide(&xid, commits);
        self.counts.decided += 1;
        if let Err(error) = result {
            self.counts.in_doubt += 1;
            return Err(self.down("decide", error));
        }
        self.survives(durability);
        assert!(matches!(self.db().commit_prepared(&xid, durability), Err(Error::NoSuchXid)));
        Ok(())
    }

    /// Names of all prepared transactions of the running database, sorted.
    pub fn found_prepared(&self) -> Vec<Vec<u8>> {
        let mut xids = self.db().prepared();
        xids.extend(self.attached.keys().cloned());
        xids.sort();
        xids
    }
}

//! History: undo of committed transactions that waits for purge, the oldest first.
//!
//! An old snapshot may keep that of very many. From [`MANY`] on, parts of one lane become one if
//! their transactions committed at about the same time: a lane is a queue, nobody else's records
//! lie between them. So memory grows with the number of lanes in use, not with that of
//! transactions. What became one waits for the last of its transactions.

use super::lane::UndoPlace;
use std::collections::VecDeque;

#[cfg(not(test))]
const MANY: usize = 1 << 14;
/// Few, for tests to be short.
#[cfg(test)]
const MANY: usize = 1 << 7;
/// Parts become one within so many commits.
const TOGETHER: u64 = 4096;
/// So many parts, from the newest on, are looked at for one of the same lane. Fewer than [`MANY`]:
/// the oldest, at which purge is, stays as it is.
const NEAR: usize = 64;

/// A part of a lane that waits for purge.
#[derive(Debug, Clone, Copy)]
pub struct History {
    /// Commit timestamp; 0 for what was found at open.
    pub stamp: u64,
    pub lane: u16,
    pub begin: UndoPlace,
    pub end: UndoPlace,
    /// Whether its records have work; else only pages are freed.
    pub work: bool,
    /// Whether it is of a transaction that began before the database was opened: it isn't known
    /// what was buried for it.
    pub is_old: bool,
    /// How many transactions it is of.
    pub transactions: u64,
    /// How many undo records it has.
    pub records: u64,
}

/// See the module.
#[derive(Default)]
pub struct Histories {
    queue: VecDeque<History>,
    transactions: u64,
}

impl Histories {
    /// Adds a transaction's; whether it is a part of its own.
    pub fn push(&mut self, new: History) -> bool {
        self.transactions += new.transactions;
        let looked_at = if self.queue.len() < MANY { 0 } else { NEAR };
        let mut near = self.queue.iter_mut().rev().take(looked_at);
        let together =
            |of: &&mut History| of.lane == new.lane && of.stamp / TOGETHER == new.stamp / TOGETHER;
        if let Some(before) = near.find(together) {
            let transactions = before.transactions + new.transactions;
            let work = before.work || new.work;
            let is_old = before.is_old || new.is_old;
            let records = before.records + new.records;
            *before = History { begin: before.begin, work, is_old, transactions, records, ..new };
            return false;
        }
        self.queue.push_back(new);
        true
    }

    /// The oldest part.
    pub fn oldest(&self) -> Option<History> {
        self.queue.front().copied()
    }

    /// Purge has come to `begin` in the oldest part.
    pub fn proceed(&mut self, begin: UndoPlace) {
        self.queue.front_mut().expect("a history is queued until it is done").begin = begin;
    }

    /// Purge has been through the oldest part.
    pub fn pop(&mut self) {
        let done = self.queue.pop_front().expect("a history is queued until it is done");
        self.transactions -= done.transactions;
    }

    /// Number of transactions.
    pub fn transactions(&self) -> u64 {
        self.transactions
    }

    #[cfg(test)]
    pub fn parts(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::tests::{commit, transactions, tree};
    use crate::txn::{Op, View};
    use weir_page::TxnId;

    #[test]
    fn what_an_old_snapshot_keeps_of_many_transactions_takes_little_memory() {
        const COMMITS: u64 = 3000;
        let txns = transactions(200);
        let rows = tree(&txns);
        commit(&txns, rows, b"row", Op::Insert(b"old"));
        let mut reader = txns.begin();
        let old = reader.view();
        for n in 0..COMMITS {
            commit(&txns, rows, b"row", Op::Update(&n.to_be_bytes()));
            if n % 10 == 0 {
                commit(&txns, rows, &n.to_be_bytes(), Op::Insert(b"dead"));
                commit(&txns, rows, &n.to_be_bytes(), Op::Delete);
            }
        }
        assert!(txns.history_len() >= COMMITS);
        let parts = txns.commits.history.lock().parts();
        assert!(parts <= MANY + 2, "{parts} parts");
        txns.purge_all().unwrap();
        let mut value = Vec::new();
        assert!(reader.get_into(old, rows, b"row", &mut value).unwrap());
        assert_eq!(value, b"old");
        reader.rollback().unwrap();
        txns.purge_all().unwrap();
        assert_eq!((txns.history_len(), txns.commits.history.lock().parts()), (0, 0));
        let now = View { own: TxnId(0), snapshot: txns.now() };
        assert!(txns.begin().get_into(now, rows, b"row", &mut value).unwrap());
        assert_eq!(value, (COMMITS - 1).to_be_bytes());
        // Its keys are gone: all that was dead was purged.
        let left = crate::storage::retry(&txns.storage, || {
            let target = crate::tree::Target::At(b"");
            Ok::<_, crate::storage::Restart<crate::storage::Fault>>(
                rows.leaf(&txns.storage, target, true)?.len(),
            )
        });
        assert_eq!(left.unwrap(), 1);
    }
}

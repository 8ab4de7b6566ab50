//! Prepared transactions: the first half of a two-phase commit.
//!
//! A transaction is prepared by an undo record that holds its name (xid); the lane's tail says so
//! in its state. From then on it is neither committed nor rolled back but by its coordinator. After
//! a restart, recovery gives it its lane back and finds where in it the transaction begins; its
//! rows stay locked because their headers name it and it counts as active. Locks of rows that it
//! only read are gone then.

use super::lane::{LaneUse, UndoPlace};
use super::recover::FoundLane;
use super::work::{Stage, Work};
use super::{Durability, Transactions, Txn, TxnError};
use crate::storage::{Fault, Restart, retry};
use std::collections::BTreeSet;
use std::sync::Arc;
use weir_page::undo::{self, Record};
use weir_page::{PageId, TreeId, Undo};

/// A prepared transaction that was found when the database was opened.
pub struct Resurrected {
    /// The transaction.
    pub txn: Txn,
    /// Its name.
    pub xid: Vec<u8>,
    /// Trees that it has written to.
    pub trees: BTreeSet<TreeId>,
}

/// What a transaction's records tell, from the last to the first.
#[derive(Default)]
struct Walk {
    records: u64,
    needs_purge: bool,
    xid: Option<Vec<u8>>,
    trees: BTreeSet<TreeId>,
}

impl Walk {
    fn note(&mut self, record: &Record<'_>) {
        self.records += 1;
        self.needs_purge |= record.undo.needs_purge();
        match record.undo {
            Undo::Prepare { xid } => self.xid = Some(xid.to_vec()),
            Undo::Insert { tree, .. }
            | Undo::Hide { tree, .. }
            | Undo::Update { tree, .. }
            | Undo::Delete { tree, .. } => {
                self.trees.insert(tree);
            }
            Undo::Overflow { .. } | Undo::CreateTree { .. } | Undo::DropTree { .. } => {}
        }
    }
}

impl Txn {
    /// Prepares the transaction under a name, as durably as asked; nothing but its end may follow.
    ///
    /// # Errors
    /// Faults of the storage: it isn't prepared, or the log has failed and it isn't known.
    pub fn prepare(&mut self, xid: &[u8], durability: Durability) -> Result<(), TxnError> {
        assert!(!self.is_prepared(), "a transaction is prepared once");
        self.finish_rollback()?;
        let end = self.push_undo(&Undo::Prepare { xid })?;
        self.undo_pushed(1, false);
        self.work.stage = Stage::Prepared;
        self.drop_snapshot();
        let lane = self.lane.expect("a transaction with undo has a lane");
        self.transactions.lanes.get(lane.lane).prepare();
        self.transactions.wait_for_log(end, durability)
    }

    /// Gives up what a prepared transaction has locked by reading. What it has written stays locked
    /// by that, as after a restart: whoever waited for a lock made on its behalf looks again, and
    /// waits on.
    pub fn release_reads(&self) {
        assert!(self.is_prepared(), "what comes next may need its locks");
        self.transactions.locks.release_all(self.id);
    }

    /// Leaves it as the log has it: the next opening of the database finds it prepared, or rolls it
    /// back.
    pub fn leave(mut self) {
        self.work.is_left = true;
    }

    /// Whether it is prepared.
    pub fn is_prepared(&self) -> bool {
        self.work.stage == Stage::Prepared
    }
}

impl Transactions {
    /// Gives a prepared transaction its lane and its locks back.
    pub(super) fn resurrect(self: &Arc<Self>, found: &FoundLane) -> Result<Resurrected, TxnError> {
        let mut walk = Walk::default();
        let (mut page, mut behind) = (found.tail, PageId::NONE);
        let begin = loop {
            match self.walk_page(page, behind, &mut walk)? {
                Ok(begin) => break begin,
                Err(before) => (page, behind) = (before, page),
            }
        };
        let damaged = || Fault::page(found.tail, "a prepared transaction has no name");
        let xid = walk.xid.ok_or_else(damaged)?;
        let mut txn = self.begin();
        txn.id = found.txn;
        txn.lane = Some(LaneUse { lane: found.lane, begin, tail: found.tail });
        let lane = self.lanes.settle(found.lane, found.txn);
        lane.count(walk.records);
        lane.prepare();
        txn.work = Work {
            stage: Stage::Prepared,
            undo_records: walk.records,
            needs_purge: walk.needs_purge,
            ..Work::default()
        };
        Ok(Resurrected { txn, xid, trees: walk.trees })
    }

    /// Goes through a page's records from the last one back to the transaction's first: where that
    /// one is, or else the page before. `behind`: the one that the lane goes on with.
    fn walk_page(
        &self,
        page: PageId,
        behind: PageId,
        walk: &mut Walk,
    ) -> Result<Result<UndoPlace, PageId>, Fault> {
        let s = &*self.storage;
        retry(s, || {
            let p = s.read(page, false)?;
            let next = undo::next(&p);
            // So no damage of links leads round for ever.
            if next != behind {
                let what = format!("goes on with page {next} of its lane, not {behind}");
                return Err(Fault::page(page, what).into());
            }
            let mut at = undo::last(&p);
            while at != 0 {
                let record = undo::record(&p, at)
                    .ok_or_else(|| Fault::page(page, format!("no undo record at {at}")))?;
                walk.note(&record);
                if record.first.is_some() {
                    return Ok(Ok(UndoPlace { page, used: at, last: record.prev }));
                }
                at = record.prev;
            }
            match undo::prev(&p) {
                PageId::NONE => {
                    Err(Fault::page(page, "the lane lacks a transaction's first record").into())
                }
                before => Ok::<_, Restart<Fault>>(Err(before)),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Op;
    use super::super::tests::{transactions, tree};
    use super::*;
    use crate::storage::Need;
    use weir_page::{Page, Redo};

    /// What finds a prepared transaction whose undo is all on one page, once that has been changed
    /// by `damage`.
    fn found_damaged(damage: impl Fn(&mut Page)) -> Fault {
        let txns = transactions(64);
        let rows = tree(&txns);
        let mut txn = txns.begin();
        for key in [b"one", b"two"] {
            txn.write(rows, key, Op::Insert(b"value")).unwrap();
        }
        txn.prepare(b"xid", Durability::Relaxed).unwrap();
        let tail = txn.lane.unwrap().tail;
        txn.leave();
        let mut mtr = txns.storage.mtr(Need::log(32 << 10)).unwrap();
        mtr.latch(tail).unwrap();
        let mut page = Page::boxed();
        page.0.copy_from_slice(&mtr.page(tail).0);
        damage(&mut page);
        let mut body = Vec::new();
        page.append_body(&mut body);
        mtr.log(&Redo::Image { page: tail, body: &body });
        mtr.commit();
        match Transactions::recover(txns.storage.clone()) {
            Err(TxnError::Fault(fault)) => fault,
            other => panic!("{:?}", other.map(drop)),
        }
    }

    /// The start of the database came to no end.
    #[test]
    fn records_of_a_prepared_transaction_that_lead_back_are_told() {
        let fault = found_damaged(|page| {
            let last = undo::last(page);
            let at = usize::from(last) + 2;
            page.0[at..at + 2].copy_from_slice(&last.to_le_bytes());
        });
        assert!(fault.is_corrupt(), "{fault}");
    }

    #[test]
    fn pages_of_a_prepared_transaction_that_lead_back_are_told() {
        let fault = found_damaged(|page| {
            let (lane, id, (txn, state)) = (undo::lane(page), page.id(), undo::txn(page));
            undo::init(page, id, lane, id, txn, state);
            undo::push(page, &Undo::Prepare { xid: b"xid" }, None);
        });
        assert!(fault.is_corrupt(), "{fault}");
    }
}

//! What a transaction sees: the newest version that its snapshot covers.

use super::versions::Walks;
use super::{State, Transactions, Txn, TxnError};
use crate::lock::{Mode, RangeMode};
use crate::storage::{Fault, Restart, Storage, retry};
use crate::tree::{Tree, overflow};
use weir_page::TxnId;
use weir_page::overflow::Reference;

/// A transaction's own writes, and what was committed up to a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The transaction; 0 if it has written nothing.
    pub own: TxnId,
    /// The timestamp.
    pub snapshot: u64,
}

impl View {
    /// A snapshot that covers even what isn't committed.
    pub const EVERYTHING: u64 = u64::MAX;

    /// Whether it sees what isn't committed, others' included.
    pub fn is_dirty(&self) -> bool {
        self.snapshot == View::EVERYTHING
    }

    /// Whether it sees only what is committed, and so never changes.
    pub fn is_committed(&self) -> bool {
        self.own == TxnId(0) && !self.is_dirty()
    }
}

/// How a scan looks at entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It gives what the view sees.
    At(View),
    /// It gives the newest versions, for a locking read of this transaction. An entry that another
    /// running transaction has written ends the look until that one has ended; or is passed over.
    Newest {
        /// The transaction.
        own: TxnId,
        /// Whether held entries are passed over.
        skip: bool,
        /// How what was looked at stays locked, if it does: keys that are not there included.
        ranges: Option<RangeMode>,
    },
}

/// What a locking read finds.
enum Newest {
    None,
    Value {
        overflows: bool,
    },
    /// A running transaction has written it.
    OwnedBy(TxnId),
    /// It lies in a range whose rows this one has locked.
    InRangeOf(TxnId),
}

impl Transactions {
    /// Whether `view` sees what `txn` wrote.
    #[inline]
    pub fn sees(&self, view: View, txn: TxnId) -> bool {
        if txn == view.own || txn < self.horizon() || view.is_dirty() {
            return true;
        }
        matches!(self.status.get(txn), State::SeenFrom(stamp) if stamp <= view.snapshot)
    }
}

/// The value that a leaf of `tree` has the reference of.
///
/// # Errors
/// Faults of the storage; a malformed reference.
pub fn read_chain(s: &Storage, tree: Tree, reference: &[u8]) -> Result<Vec<u8>, Fault> {
    let reference = Reference::from_bytes(reference)
        .ok_or_else(|| Fault::page(tree.root(), "a leaf of this tree has a malformed reference"))?;
    overflow::read(s, reference)
}

impl Txn {
    /// The value of `key` that `view` sees, in place of what is in `out`; whether there is one.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn get_into(
        &self,
        view: View,
        tree: Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool, TxnError> {
        let mut found = self.find_into(view, tree, key, out)?;
        loop {
            match found {
                None => return Ok(false),
                Some(false) => return Ok(true),
                Some(true) => {}
            }
            let reference = out.clone();
            let value = read_chain(self.storage(), tree, &reference);
            if view.is_committed() {
                *out = value?;
                return Ok(true);
            }
            // The chain of a version that isn't committed may go while it is read; then so does the
            // entry.
            found = self.find_into(view, tree, key, out)?;
            if found == Some(true) && *out == reference {
                *out = value?;
                return Ok(true);
            }
        }
    }

    /// What `view` sees of `key`: whether it overflows; its bytes in the leaf are in `out`.
    fn find_into(
        &self,
        view: View,
        tree: Tree,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<bool>, Fault> {
        let (s, mut walks) = (self.storage(), Walks::default());
        retry(s, || {
            let leaf = tree.leaf_near(s, key, &self.near)?;
            walks.begin_turn();
            let (slot, found) = leaf.seek(key);
            if !found {
                return Ok(None);
            }
            let entry = leaf.entry(slot);
            let seen = self.transactions.visible(view, &entry, &mut walks)?;
            let Some((flags, bytes)) = seen.filter(|(flags, _)| !flags.deleted) else {
                return Ok(None);
            };
            out.clear();
            out.extend_from_slice(&bytes);
            Ok::<_, Restart<Fault>>(Some(flags.overflow))
        })
    }

    /// Locks `key` and reads its newest value, its own or a committed one, in place of what is in
    /// `out`; whether there is one. `wait`: whether to wait if others are in the way.
    ///
    /// # Errors
    /// Deadlock, lock wait timeout, faults of the storage.
    pub fn get_locked(
        &mut self,
        tree: Tree,
        key: &[u8],
        mode: Mode,
        wait: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, TxnError> {
        let mut intends = false;
        let found = self.lock_when_free(tree, key, (mode, wait), &mut intends, out);
        if intends {
            self.transactions.locks.ranges.give_up(self.id, tree.id);
        }
        found
    }

    /// `intends`: whether it has waited for the end of somebody's range.
    fn lock_when_free(
        &mut self,
        tree: Tree,
        key: &[u8],
        (mode, wait): (Mode, bool),
        intends: &mut bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, TxnError> {
        let (mut owner, mut is_new) = (None, false);
        loop {
            is_new |= self.lock_row(tree.id, key, mode, owner, wait)?;
            self.newest_lock.note(tree.id, key, is_new);
            match self.newest(tree, key, mode, out)? {
                Newest::OwnedBy(txn) => owner = Some(txn),
                Newest::InRangeOf(holder) => {
                    if std::mem::take(&mut is_new) {
                        self.unlock(tree, key);
                    }
                    owner = None;
                    *intends = true;
                    self.wait_for_range(tree, key, holder, wait)?;
                }
                Newest::None => return Ok(false),
                Newest::Value { overflows: false } => return Ok(true),
                Newest::Value { overflows: true } => {
                    *out = read_chain(self.storage(), tree, out)?;
                    return Ok(true);
                }
            }
        }
    }

    /// Looks at a row that it has locked; its value, as it is in the leaf, is in `out` then.
    fn newest(
        &self,
        tree: Tree,
        key: &[u8],
        mode: Mode,
        out: &mut Vec<u8>,
    ) -> Result<Newest, Fault> {
        let s = self.storage();
        let ranges = &self.transactions.locks.ranges;
        retry(s, || {
            let leaf = tree.leaf_near(s, key, &self.near)?;
            if let Some(holder) = ranges.in_the_way(self.id, tree.id, key, mode) {
                return Ok(Newest::InRangeOf(holder));
            }
            let (slot, found) = leaf.seek(key);
            if !found {
                return Ok(Newest::None);
            }
            let e = leaf.entry(slot);
            match e.version {
                Some(v) if v.txn != self.id && self.transactions.is_active(v.txn) => {
                    Ok(Newest::OwnedBy(v.txn))
                }
                _ if e.flags.deleted => Ok(Newest::None),
                _ => {
                    out.clear();
                    out.extend_from_slice(e.value);
                    Ok::<_, Restart<Fault>>(Newest::Value { overflows: e.flags.overflow })
                }
            }
        })
    }
}

//! What a transaction sees: the newest version that its snapshot covers.

use super::{State, Transactions, Txn, TxnError};
use crate::lock::{Mode, RangeMode};
use crate::storage::{Fault, Restart, Storage, retry};
use crate::tree::{Target, Tree, overflow};
use std::borrow::Cow;
use weir_page::TxnId;
use weir_page::overflow::Reference;
use weir_page::undo::{self, Undo};
use weir_page::version::{Entry, Flags, UndoPtr, Version};

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

    /// Whether it sees only what is committed, and so never changes.
    pub fn is_committed(&self) -> bool {
        self.own == TxnId(0) && self.snapshot != View::EVERYTHING
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

/// What a view sees of an entry: whether the value is a reference to a chain, and its bytes.
pub type Seen<'e> = Option<(bool, Cow<'e, [u8]>)>;

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

/// What an undo record says of the version before.
enum Before {
    /// The same value.
    Same(Flags, Option<Version>),
    Other(Flags, Option<Version>, Vec<u8>),
}

impl Transactions {
    /// Whether `view` sees what `txn` wrote.
    #[inline]
    pub fn sees(&self, view: View, txn: TxnId) -> bool {
        if txn == view.own || txn < self.horizon() || view.snapshot == View::EVERYTHING {
            return true;
        }
        matches!(self.status.get(txn), State::Committed(stamp) if stamp <= view.snapshot)
    }

    /// The version of an entry that `view` sees: whether it overflows, and its bytes. The entry's
    /// leaf is latched.
    ///
    /// # Errors
    /// [`Restart`]: an undo page must be loaded first; undo that doesn't fit the entry.
    pub fn visible<'e>(&self, view: View, entry: &Entry<'e>) -> Result<Seen<'e>, Restart<Fault>> {
        self.newest_version(entry, |txn| self.sees(view, txn))
    }

    /// What the view's snapshot covers of an entry that the view's transaction has written over a version
    /// that the snapshot does not cover; else `None`. The entry's leaf is latched.
    ///
    /// # Errors
    /// As [`Transactions::visible`].
    pub fn overwritten_unseen<'e>(
        &self,
        view: View,
        entry: &Entry<'e>,
    ) -> Result<Seen<'e>, Restart<Fault>> {
        let (covered, mut passed_unseen) = (View { own: TxnId(0), ..view }, false);
        let seen = self.newest_version(entry, |txn| {
            let stops = txn != view.own && self.sees(covered, txn);
            passed_unseen |= !stops && txn != view.own;
            stops
        })?;
        Ok(seen.filter(|_| passed_unseen))
    }

    /// The newest version of an entry by a transaction that `is_it` accepts, or without a header.
    fn newest_version<'e>(
        &self,
        entry: &Entry<'e>,
        mut is_it: impl FnMut(TxnId) -> bool,
    ) -> Result<Seen<'e>, Restart<Fault>> {
        let mut flags = entry.flags;
        let mut version = entry.version;
        let mut value = Cow::Borrowed(entry.value);
        while let Some(v) = version {
            if is_it(v.txn) {
                break;
            }
            if v.undo.is_insert() {
                return Ok(None);
            }
            match before(&self.storage, v.undo, &value)? {
                Before::Same(f, v) => (flags, version) = (f, v),
                Before::Other(f, v, bytes) => {
                    (flags, version, value) = (f, v, Cow::Owned(bytes));
                }
            }
        }
        Ok((!flags.deleted).then_some((flags.overflow, value)))
    }
}

fn before(s: &Storage, at: UndoPtr, value: &[u8]) -> Result<Before, Restart<Fault>> {
    let page = s.read(at.page, false)?;
    let wrong = |what: &str| {
        Restart::Error(Fault::page(at.page, format!("undo record at {}: {what}", at.offset)))
    };
    let record = undo::record(&page, at.offset).ok_or_else(|| wrong("is none"))?;
    match record.undo {
        Undo::Delete { flags, version, .. } => Ok(Before::Same(flags, version)),
        Undo::Update { flags, version, delta, .. } => {
            if !delta.fits(value.len()) {
                return Err(wrong("keeps more bytes than there are"));
            }
            Ok(Before::Other(flags, version, delta.apply(value)))
        }
        _ => Err(wrong("is not of a version")),
    }
}

/// A value with its chain read, if it has one.
///
/// # Errors
/// Faults of the storage; a malformed reference.
pub fn whole(s: &Storage, tree: Tree, overflows: bool, bytes: &[u8]) -> Result<Vec<u8>, Fault> {
    if !overflows {
        return Ok(bytes.to_vec());
    }
    let reference = Reference::from_bytes(bytes)
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
            let value = whole(self.storage(), tree, true, &reference);
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
        let s = self.storage();
        retry(s, || {
            let leaf = tree.leaf(s, Target::At(key), false)?;
            let (slot, found) = leaf.seek(key);
            if !found {
                return Ok(None);
            }
            let entry = leaf.entry(slot);
            let Some((overflows, bytes)) = self.shared.visible(view, &entry)? else {
                return Ok(None);
            };
            out.clear();
            out.extend_from_slice(&bytes);
            Ok::<_, Restart<Fault>>(Some(overflows))
        })
    }

    /// Locks `key` and reads its newest value, its own or a committed one, in place of what is in `out`;
    /// whether there is one. `wait`: whether to wait if others are in the way.
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
                    self.wait_for_range(tree, key, holder, wait)?;
                }
                Newest::None => return Ok(false),
                Newest::Value { overflows: false } => return Ok(true),
                Newest::Value { overflows: true } => {
                    *out = whole(self.storage(), tree, true, out)?;
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
        let ranges = &self.shared.locks.ranges;
        retry(s, || {
            let leaf = tree.leaf(s, Target::At(key), false)?;
            if let Some(holder) = ranges.in_the_way(self.id, tree.id, key, mode) {
                return Ok(Newest::InRangeOf(holder));
            }
            let (slot, found) = leaf.seek(key);
            if !found {
                return Ok(Newest::None);
            }
            let e = leaf.entry(slot);
            match e.version {
                Some(v) if v.txn != self.id && self.shared.is_active(v.txn) => {
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

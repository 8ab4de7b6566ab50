//! Writes: one leaf entry and its undo record, in one mini-transaction.

use super::lane::NextUndo;
use super::{Txn, TxnError, View};
use crate::lock::Mode;
use crate::storage::{Fault, Mtr, Need, Restart, Stop, Storage, retry, to_make_room};
use crate::tree::cursor::LeafSlot;
use crate::tree::overflow::{self, Announce};
use crate::tree::{Hint, Tree};
use weir_page::node::MAX_INLINE;
use weir_page::version::{Delta, Flags, UndoPtr, Version};
use weir_page::{Change, TxnId, WRITE_BYTES, Write};

/// What is to happen to a key.
#[derive(Debug, Clone, Copy)]
pub enum Op<'a> {
    /// It gets a value; it must not be there.
    Insert(&'a [u8]),
    /// It gets another value; it must be there.
    Update(&'a [u8]),
    /// It gets a value.
    Upsert(&'a [u8]),
    /// It goes; it must be there.
    Delete,
    /// It goes, and what it hides comes to light; it must be there.
    Uncover,
    /// It gets a tombstone, in a staging tree; it must not be there.
    Hide,
    /// Its tombstone goes, which must be there, and what it hides comes to light.
    Expose,
    /// It gets a value in place of its tombstone, which must be there.
    Revive(&'a [u8]),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Done; the value that was there before.
    Done(Option<Vec<u8>>),
    /// The key was there, so nothing was inserted.
    Exists,
    /// The key was not there, so nothing was updated or deleted.
    Absent,
}

/// What a write came to under the leaf's latch.
pub(super) enum Attempt {
    Done {
        old: Option<(bool, Vec<u8>)>,
        needs_purge: bool,
        /// Whether the snapshot doesn't cover the version before.
        unseen: bool,
    },
    Exists,
    Absent,
    /// The row is held by somebody; by which active transaction, if its header says so.
    Held(Option<TxnId>),
    /// The key lies in a range that this transaction has locked.
    InRangeOf(TxnId),
    LeafFull,
    UndoFull,
}

/// A value in the form that goes into a leaf.
#[derive(Clone, Copy)]
struct Inline<'a> {
    bytes: &'a [u8],
    overflow: bool,
}

impl<'a> Op<'a> {
    /// The value that the key gets.
    pub fn value(&self) -> Option<&'a [u8]> {
        match *self {
            Op::Insert(v) | Op::Update(v) | Op::Upsert(v) | Op::Revive(v) => Some(v),
            Op::Delete | Op::Uncover | Op::Hide | Op::Expose => None,
        }
    }

    /// The same with another value, if it has one.
    pub fn with_value<'b>(&self, value: &'b [u8]) -> Op<'b> {
        match self {
            Op::Insert(_) => Op::Insert(value),
            Op::Update(_) => Op::Update(value),
            Op::Upsert(_) => Op::Upsert(value),
            Op::Delete => Op::Delete,
            Op::Uncover => Op::Uncover,
            Op::Hide => Op::Hide,
            Op::Expose => Op::Expose,
            Op::Revive(_) => Op::Revive(value),
        }
    }
}

impl Txn {
    /// Does `op` to `key`. The newest version counts, whatever the snapshot; a row held by another
    /// transaction is waited for.
    ///
    /// # Errors
    /// Deadlock, lock wait timeout: nothing was written. Faults of the storage.
    pub fn write(&mut self, tree: Tree, key: &[u8], op: Op<'_>) -> Result<Outcome, TxnError> {
        self.write_at(tree, key, op, Hint::default())
    }

    /// As [`Txn::write`], with a hint where the leaf is.
    ///
    /// # Errors
    /// As [`Txn::write`].
    pub fn write_at(
        &mut self,
        tree: Tree,
        key: &[u8],
        op: Op<'_>,
        hint: Hint,
    ) -> Result<Outcome, TxnError> {
        let too_long = |v: &[u8]| key.len() + v.len() > MAX_INLINE;
        match op.value().filter(|v| too_long(v)) {
            None => {
                let value = op.value().map(|bytes| Inline { bytes, overflow: false });
                self.write_inline(tree, key, op, value, hint)
            }
            Some(long) => {
                let before = self.savepoint();
                let reference = self.write_chain(long)?.to_bytes();
                let value = Inline { bytes: &reference, overflow: true };
                let outcome = self.write_inline(tree, key, op, Some(value), hint);
                if !matches!(outcome, Ok(Outcome::Done(_))) {
                    self.rollback_to(before)?;
                }
                outcome
            }
        }
    }

    fn write_chain(&mut self, value: &[u8]) -> Result<weir_page::overflow::Reference, TxnError> {
        let next = self.undo_room(64)?;
        let announce = Announce { undo_page: next.page, first: next.first };
        let first = overflow::begin(self.storage(), value, announce)?;
        // Announced, whether or not it can be finished.
        self.undo_pushed(1, false);
        Ok(overflow::finish(self.storage(), value, first)?)
    }

    fn write_inline(
        &mut self,
        tree: Tree,
        key: &[u8],
        op: Op<'_>,
        value: Option<Inline<'_>>,
        hint: Hint,
    ) -> Result<Outcome, TxnError> {
        let mut intends = false;
        let outcome = self.write_when_free(tree, key, op, value, hint, &mut intends);
        if intends {
            self.transactions.locks.ranges.give_up(self.id, tree.id);
        }
        outcome
    }

    /// `intends`: whether it has waited for the end of somebody's range.
    fn write_when_free(
        &mut self,
        tree: Tree,
        key: &[u8],
        op: Op<'_>,
        value: Option<Inline<'_>>,
        hint: Hint,
        intends: &mut bool,
    ) -> Result<Outcome, TxnError> {
        let _room = matches!(op, Op::Delete | Op::Hide).then(to_make_room);
        let mut next = self.next_undo()?;
        let (mut hint, mut is_locked) = (Some(hint), false);
        loop {
            match retry(self.storage(), || {
                self.attempt(tree, key, op, value, next, hint.take().unwrap_or_default())
            })? {
                Attempt::Done { old, needs_purge, unseen } => {
                    self.undo_pushed(1, needs_purge);
                    self.overwrote_unseen = unseen;
                    let old = old.map(|(overflows, bytes)| match overflows {
                        true => super::read_chain(self.storage(), tree, &bytes),
                        false => Ok(bytes),
                    });
                    return Ok(Outcome::Done(old.transpose()?));
                }
                Attempt::Exists if self.locks_duplicates && !is_locked => {
                    self.lock_row(tree.id, key, Mode::Shared, None, true)?;
                    is_locked = true;
                }
                Attempt::Exists => return Ok(Outcome::Exists),
                Attempt::Absent => return Ok(Outcome::Absent),
                Attempt::Held(owner) => {
                    self.lock_row(tree.id, key, Mode::Exclusive, owner, true)?;
                }
                Attempt::InRangeOf(holder) => {
                    *intends = true;
                    self.wait_for_range(tree, key, holder, true)?;
                }
                Attempt::LeafFull => {
                    self.transactions.advance_horizon();
                    tree.make_room(self.storage(), key, self.transactions.horizon())?;
                }
                Attempt::UndoFull => {
                    self.extend_lane()?;
                    next = self.next_undo()?;
                }
            }
        }
    }

    /// Waits for the end of a transaction in whose range the key lies. `wait`: `false` fails at
    /// once. Until `give_up` nobody else locks a range there.
    #[cold]
    pub(super) fn wait_for_range(
        &mut self,
        tree: Tree,
        key: &[u8],
        holder: TxnId,
        wait: bool,
    ) -> Result<(), TxnError> {
        self.transactions.locks.ranges.intend(self.id, tree.id, key, holder);
        self.wait_for_end(holder, wait)
    }

    #[inline]
    fn attempt(
        &self,
        tree: Tree,
        key: &[u8],
        op: Op<'_>,
        value: Option<Inline<'_>>,
        next: NextUndo,
        hint: Hint,
    ) -> Result<Attempt, Restart<Fault>> {
        let s: &Storage = self.storage();
        // The old value goes into the log once (as a delta at worst), the new one at most twice.
        let log_bytes = WRITE_BYTES + key.len() + value.map_or(0, |v| v.bytes.len()) + MAX_INLINE;
        let mut mtr = s.mtr(Need::log(log_bytes))?;
        let at = match hint.is_known() {
            true => tree.slot_at(&mut mtr, key, hint)?,
            false => tree.slot_near(&mut mtr, key, &self.near)?,
        };
        let flags = at.entry(&mtr).map(|e| e.flags);
        let alive = flags.is_some_and(|flags| !flags.deleted);
        let hides = flags.is_some_and(|flags| flags.hides);
        let is_insert = matches!(op, Op::Insert(_));
        // That a key is there its readers may be told together.
        if is_insert && alive && self.may_be_read(tree, key, &at, &mtr) {
            return Ok(Attempt::Exists);
        }
        if let Some(held) = self.held_by_other(tree, key, &at, &mtr) {
            return Ok(held);
        }
        match op {
            Op::Insert(_) if alive => return Ok(Attempt::Exists),
            Op::Update(_) | Op::Delete | Op::Uncover if !alive => return Ok(Attempt::Absent),
            Op::Hide if at.found => return Ok(Attempt::Exists),
            Op::Revive(_) | Op::Expose if alive || !hides => return Ok(Attempt::Absent),
            _ => {}
        }
        if let Op::Hide = op {
            return self.insert(mtr, tree, key, at, Flags::TOMBSTONE, &[], next);
        }
        match (at.found, value) {
            (false, Some(value)) => {
                let flags = Flags { overflow: value.overflow, ..Flags::default() };
                self.insert(mtr, tree, key, at, flags, value.bytes, next)
            }
            (true, Some(value)) => {
                let flags = Flags { overflow: value.overflow, hides, ..Flags::default() };
                self.update(mtr, tree, key, at, flags, value.bytes, next)
            }
            // What it hides stays hidden.
            (true, None) if hides && matches!(op, Op::Delete) => {
                self.update(mtr, tree, key, at, Flags::TOMBSTONE, &[], next)
            }
            (true, None) => self.delete(mtr, tree, key, at, next),
            (false, None) => Ok(Attempt::Absent),
        }
    }

    /// Who keeps this transaction from writing the key, if anybody does. If nobody does, it is
    /// written before its leaf's latch is given up, or not at all.
    pub(super) fn held_by_other(
        &self,
        tree: Tree,
        key: &[u8],
        at: &LeafSlot,
        mtr: &Mtr<'_>,
    ) -> Option<Attempt> {
        if let Some(v) = at.entry(mtr).and_then(|e| e.version) {
            if v.txn == self.id {
                return None;
            }
            if self.transactions.is_active(v.txn) {
                return Some(Attempt::Held(Some(v.txn)));
            }
        }
        // The key may be about to be alive, and who passes over it locks it in the moment in which
        // it finds it dead.
        self.transactions.dead.revive(tree.id, key);
        let locks = &self.transactions.locks;
        if locks.conflicts(self.id, tree.id, key, Mode::Exclusive) {
            return Some(Attempt::Held(None));
        }
        locks.ranges.holder(self.id, tree.id, key).map(Attempt::InRangeOf)
    }

    /// Whether nobody else has written the entry, or keeps others from reading it under lock.
    fn may_be_read(&self, tree: Tree, key: &[u8], at: &LeafSlot, mtr: &Mtr<'_>) -> bool {
        let writer = at.entry(mtr).and_then(|e| e.version).map(|v| v.txn);
        if writer.is_some_and(|writer| writer != self.id && self.transactions.is_active(writer)) {
            return false;
        }
        let locks = &self.transactions.locks;
        !locks.conflicts(self.id, tree.id, key, Mode::Shared)
            && !locks.ranges.is_exclusive_to_another(self.id, tree.id, key)
    }

    /// Whether the transaction has a snapshot that doesn't cover the version.
    fn is_unseen(&self, version: Option<Version>) -> bool {
        let (Some(snapshot), Some(version)) = (self.snapshot, version) else { return false };
        !self.transactions.sees(View { own: self.id, snapshot: snapshot.at }, version.txn)
    }

    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one place, named for what they are")]
    fn insert(
        &self,
        mut mtr: Mtr<'_>,
        tree: Tree,
        key: &[u8],
        at: LeafSlot,
        flags: Flags,
        value: &[u8],
        next: NextUndo,
    ) -> Result<Attempt, Restart<Fault>> {
        if !at.fits(&mtr, key, value.len(), true) {
            return Ok(Attempt::LeafFull);
        }
        let change = Change::Insert { flags, value };
        if !self.log_write(&mut mtr, tree, key, at, change, next)? {
            return Ok(Attempt::UndoFull);
        }
        mtr.commit();
        Ok(Attempt::Done { old: None, needs_purge: flags.hides, unseen: false })
    }

    #[expect(clippy::too_many_arguments, reason = "one place, named for what they are")]
    fn update(
        &self,
        mut mtr: Mtr<'_>,
        tree: Tree,
        key: &[u8],
        at: LeafSlot,
        flags: Flags,
        new: &[u8],
        next: NextUndo,
    ) -> Result<Attempt, Restart<Fault>> {
        if !at.fits(&mtr, key, new.len(), true) {
            return Ok(Attempt::LeafFull);
        }
        let e = at.entry(&mtr).expect("an update is of a key that is there");
        let (old_flags, old_version, old) = (e.flags, e.version, e.value.to_vec());
        // A reference to a chain stays readable in the undo record: purge frees the chain by it.
        let Delta { front, back, middle: new_middle } = match old_flags.overflow {
            true => Delta::whole(new),
            false => Delta::between(&old, new),
        };
        let change = Change::Update {
            old_flags,
            old_version,
            flags,
            front,
            back,
            old_middle: &old[front..old.len() - back],
            new_middle,
        };
        if !self.log_write(&mut mtr, tree, key, at, change, next)? {
            return Ok(Attempt::UndoFull);
        }
        mtr.commit();
        let unseen = self.is_unseen(old_version);
        let old = (!old_flags.deleted).then_some((old_flags.overflow, old));
        Ok(Attempt::Done { old, needs_purge: true, unseen })
    }

    fn delete(
        &self,
        mut mtr: Mtr<'_>,
        tree: Tree,
        key: &[u8],
        at: LeafSlot,
        next: NextUndo,
    ) -> Result<Attempt, Restart<Fault>> {
        let e = at.entry(&mtr).expect("a delete is of a key that is there");
        let (old_flags, old_version, old) = (e.flags, e.version, e.value.to_vec());
        if !at.fits(&mtr, key, old.len(), true) {
            return Ok(Attempt::LeafFull);
        }
        let change = Change::Delete { old_flags, old_version };
        if !self.log_write(&mut mtr, tree, key, at, change, next)? {
            return Ok(Attempt::UndoFull);
        }
        mtr.commit();
        Ok(Attempt::Done { old: Some((old_flags.overflow, old)), needs_purge: true, unseen: false })
    }

    /// Latches the undo page and logs the write, if the page has room.
    #[inline]
    pub(super) fn log_write(
        &self,
        mtr: &mut Mtr<'_>,
        tree: Tree,
        key: &[u8],
        at: LeafSlot,
        change: Change<'_>,
        next: NextUndo,
    ) -> Result<bool, Stop> {
        let mut write = Write {
            leaf: at.leaf,
            slot: at.slot as u16,
            undo: UndoPtr { page: next.page, offset: 0 },
            first: next.first.is_some(),
            txn: self.id,
            tree: tree.id,
            key,
            change,
        };
        let size = write.undo_record().size();
        if !Txn::latch_undo(mtr, next, size)? {
            return Ok(false);
        }
        write.undo.offset = weir_page::undo::used(mtr.page(next.page)) as u16;
        at.write(mtr, &write);
        Ok(true)
    }
}

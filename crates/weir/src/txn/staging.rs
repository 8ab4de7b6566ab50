//! Staging: inserts into secondary indexes, and deletes, without reading the leaves that they go
//! to.
//!
//! A non-unique index has a second, small tree beside its main one: the same keys, versions, pages.
//! An entry is inserted there instead if its leaf of the main tree isn't in memory, and also if it
//! is, but unchanged, and the change had to be written soon for nothing but this entry: because too
//! many pages are dirty or the log is small ([`Storage::spares`]), or memory is short.
//! [`Transactions::staging_step`] moves entries into the main trees in key order, so that each leaf
//! that is read and written takes many of them; how many may wait for that, and at what pace they
//! go, [`super::backlog`] says. While neither memory nor the dirty limit is short, what is left is
//! moved, too, so that reads find the staging trees empty.
//!
//! A delete from a leaf of the main tree that isn't in memory puts a *tombstone* into the staging
//! tree.
//!
//! What makes it simple:
//! - An entry's key ends with its row's primary key, and who writes an entry holds the row. So at
//!   most one of the two trees has the entry alive, and a snapshot sees at most one of the two.
//! - Unless the staged one *hides* that of the main tree, which has been left as it was: then that
//!   one doesn't count for who sees the staged one, dead (a tombstone) or alive (it was inserted
//!   again). Who doesn't see it sees the entry of the main tree.
//! - An entry is moved when everybody sees it, or if nothing was there before it, with the number
//!   of its transaction, which may still run. So neither a large transaction nor an old snapshot
//!   keeps entries from being moved, but those that were changed before they were moved, and those
//!   that hide others: when nothing can be moved any more, entries go to the main trees at once.
//! - A tombstone that everybody sees is settled: it goes, together with what it hides, and purge
//!   has nothing to do with either.
//! - What a tombstone hides is *buried* while the tombstone's transaction runs, and there is
//!   something to be moved: dead by the version that the tombstone had, which goes. Its undo record
//!   leads back to an entry that is alive, and purge removes it.
//! - Entries move in one direction, each in one mini-transaction. Who looks into the staging tree
//!   first and into the main tree afterwards misses none; it may find one twice, under the same
//!   key. So neither readers ([`super::merged`]) nor writers take a lock against moves.
//!
//! Undo records name the tree that was written. Who takes back a write of which nothing is there
//! has to look where it may have been moved to ([`Stagings::of_tree`]), and so has purge where
//! something was buried ([`Stagings::has_buried`]).

use super::backlog::Backlog;
use super::range::following;
use super::{Durability, Op, Outcome, Pair, State, Transactions, Txn, TxnError};
#[cfg(doc)]
use crate::lock::LockError;
use crate::storage::{Fault, Restart, Step, Storage, retry};
use crate::tree::{Fate, Hint, Moved, Mover, Target, Tree};
use parking_lot::Mutex;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use weir_page::{Entry, PageId, TreeId, TxnId, Version};

/// Leaves of the main tree that are read together.
const TOGETHER: usize = 64;
/// Leaves of a staging tree that a step goes through, at most.
const STEP_LEAVES: usize = 32;

/// The staging tree of an index.
#[derive(Debug)]
pub struct Staging {
    /// The tree.
    pub tree: Tree,
    /// The tree that its entries go to in the end.
    pub(super) main: Tree,
    /// Inserts that have begun.
    begun: AtomicU64,
    /// Inserts that have ended.
    ended: AtomicU64,
    /// Inserts taken back by a tombstone: counted before their transaction ends.
    withdrawn: AtomicU64,
    /// What `begun` was when the tree was last found empty.
    empty_at: AtomicU64,
    /// It isn't known how much it holds, for inner pages are damaged: nothing is added.
    is_closed: AtomicBool,
    /// Held while entries are moved and while the trees are dropped.
    moving: Mutex<Moving>,
}

#[derive(Debug, Default)]
struct Moving {
    /// Where the next step begins.
    position: Vec<u8>,
    /// The trees have been dropped.
    retired: bool,
}

/// Keeps moves away while the trees are dropped.
pub struct HeldStaging<'a>(parking_lot::MutexGuard<'a, Moving>);

impl HeldStaging<'_> {
    /// The trees are no more.
    pub fn retire(mut self) {
        self.0.retired = true;
    }
}

/// A running insert into a staging tree.
pub struct Entered<'a>(&'a Staging);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

impl Staging {
    /// The staging tree of `main`; it isn't known whether it is empty.
    pub fn new(main: Tree, tree: Tree) -> Staging {
        Staging {
            tree: tree.staying(),
            main,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            withdrawn: AtomicU64::new(0),
            empty_at: AtomicU64::new(u64::MAX),
            is_closed: AtomicBool::new(false),
            moving: Mutex::default(),
        }
    }

    /// Grows with each insert that begins or ends.
    pub(super) fn inserts(&self) -> u64 {
        self.begun.load(Ordering::SeqCst) + self.ended.load(Ordering::SeqCst)
    }

    /// Grows with each insert that is taken back by a tombstone, before its transaction ends.
    pub(super) fn withdrawn(&self) -> u64 {
        self.withdrawn.load(Ordering::SeqCst)
    }

    /// To be called once the tombstone is there, before its transaction ends.
    pub(super) fn note_withdrawn(&self) {
        self.withdrawn.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the tree has no entry. Who knows of an entry doesn't get this wrong.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.begun.load(Ordering::Acquire) == self.empty_at.load(Ordering::Acquire)
    }

    /// To be held during an insert.
    pub fn enter(&self) -> Entered<'_> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Entered(self)
    }

    /// Keeps moves away.
    pub fn hold(&self) -> HeldStaging<'_> {
        HeldStaging(self.moving.lock())
    }

    /// Number of leaves, 1 if that isn't known; finds out whether the tree is empty.
    fn count_leaves(&self, s: &Storage) -> Result<usize, Fault> {
        if self.is_empty() {
            return Ok(0);
        }
        let begun = self.begun.load(Ordering::SeqCst);
        let quiet = self.ended.load(Ordering::SeqCst) == begun;
        let leaves = match self.tree.leaves(s) {
            // What can be reached is moved all the same.
            Err(fault) if fault.damaged_page().is_some() => {
                self.is_closed.store(true, Ordering::Relaxed);
                1
            }
            leaves => leaves?,
        };
        if leaves == 0 && quiet {
            self.empty_at.store(begun, Ordering::Release);
        }
        Ok(leaves)
    }
}

/// All staging trees of a database.
#[derive(Debug, Default)]
pub struct Stagings {
    all: Mutex<Vec<Arc<Staging>>>,
    /// How much is staged, and may be.
    pub(super) backlog: Backlog,
    /// Whether entries may be staged.
    enabled: AtomicBool,
    /// Whether they are now and then without need, for tests.
    eager: AtomicBool,
    /// Whether most of what steps came by lately hides entries that some still see: then nothing
    /// more is hidden, so that there is room for inserts while an old snapshot lasts.
    crowded: AtomicBool,
    /// Leaves of staging trees, when last counted.
    leaves: AtomicU64,
    /// Changes of leaves of main trees that moves took.
    moves: AtomicU64,
    /// Undo pages with records of tombstones that were put and buried since the database was
    /// opened.
    buried: Mutex<HashSet<PageId>>,
}

/// Counted since the database was opened.
#[derive(Debug, Clone, Copy)]
pub struct StagingFigures {
    /// Entries inserted into staging trees.
    pub staged: u64,
    /// Leaves of staging trees, when last counted.
    pub leaves: u64,
    /// Entries moved into main trees.
    pub moved: u64,
    /// Changes of leaves of main trees that this took.
    pub moves: u64,
    /// How often a writer waited for entries to be moved.
    pub waits: u64,
    /// How long, in microseconds.
    pub wait_us: u64,
}

impl Stagings {
    /// Says how many leaves the staging trees may have together before entries are moved, and
    /// whether entries are staged at all.
    pub fn configure(&self, most: usize, enabled: bool) {
        self.backlog.configure(most);
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// What was counted.
    pub fn figures(&self) -> StagingFigures {
        StagingFigures {
            staged: self.backlog.staged(),
            leaves: self.leaves.load(Ordering::Relaxed),
            moved: self.backlog.moved(),
            moves: self.moves.load(Ordering::Relaxed),
            waits: self.backlog.waits.count(),
            wait_us: self.backlog.waits.us(),
        }
    }

    fn is_eager_now(&self) -> bool {
        self.eager.load(Ordering::Relaxed) && fastrand::u8(..4) > 0
    }

    fn may_stage(&self, staging: &Staging) -> bool {
        self.enabled.load(Ordering::Relaxed) && !staging.is_closed.load(Ordering::Relaxed)
    }

    /// Entries are staged now and then without need.
    pub fn be_eager(&self) {
        self.eager.store(true, Ordering::Relaxed);
    }

    /// The staging whose tree this is, if it is one.
    pub(super) fn of_tree(&self, tree: TreeId) -> Option<Arc<Staging>> {
        self.all.lock().iter().find(|staging| staging.tree.id == tree).cloned()
    }

    /// Whether entries may have been buried whose tombstones' undo records are on this page.
    pub(super) fn has_buried(&self, undo_page: PageId) -> bool {
        self.buried.lock().contains(&undo_page)
    }

    /// An undo page is no more.
    pub(super) fn forget_buried(&self, undo_page: PageId) {
        self.buried.lock().remove(&undo_page);
    }

    /// Steps look after the staging tree from now on.
    pub fn add(&self, staging: Arc<Staging>) {
        self.all.lock().push(staging);
    }
}

impl Txn {
    /// Whether an insert goes to the staging tree, by where its leaf of the main tree is. Waits for
    /// room there, if it is to be had; the caller holds no latch.
    ///
    /// # Errors
    /// [`LockError::Cancelled`].
    #[inline]
    pub fn is_staged(&self, staging: &Staging, hint: &Hint) -> Result<bool, TxnError> {
        let (s, all) = (self.storage(), &self.transactions.staging);
        // A leaf in memory is spared if the change costs a write that can't be put off.
        let spared = |leaf| s.spares(leaf) || (!staging.is_empty() && s.is_short_of_frames());
        let wanted =
            hint.is_missing() || all.is_eager_now() || hint.clean_leaf(s).is_some_and(spared);
        Ok(wanted && self.is_admitted(staging)?)
    }

    /// Waits for room in a staging tree, if it takes entries and room is to be had; whether there
    /// is some.
    #[inline]
    fn is_admitted(&self, staging: &Staging) -> Result<bool, TxnError> {
        let all = &self.transactions.staging;
        if !all.may_stage(staging) {
            return Ok(false);
        }
        let admitted = all.backlog.admits(self.storage(), || self.is_cancelled());
        Ok(admitted.inspect_err(|_| self.note_cancelled())?)
    }

    /// Whether a delete puts a tombstone, as [`Txn::is_staged`] says it of an insert: only if the
    /// leaf isn't in memory. Who takes the first rows of a queue has just read theirs, and would
    /// come by a tombstone for each row taken.
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn is_hidden(&self, staging: &Staging, hint: &Hint) -> Result<bool, TxnError> {
        let all = &self.transactions.staging;
        let crowded = || all.crowded.load(Ordering::Relaxed);
        let wanted = all.is_eager_now() || (hint.is_missing() && !crowded());
        Ok(wanted && self.is_admitted(staging)?)
    }

    /// Whether an insert that was moved is taken back by a tombstone, as [`Txn::is_hidden`] says it
    /// of a delete. Nobody cancels a rollback.
    pub(super) fn may_withdraw(&self, staging: &Staging, key: &[u8]) -> bool {
        let (s, all) = (self.storage(), &self.transactions.staging);
        let wanted = all.is_eager_now() || staging.main.missing_page(s, key).is_some();
        wanted && all.may_stage(staging) && all.backlog.admits(s, || false).unwrap_or(false)
    }

    /// Whether leaves may have to be read, or tests have it so.
    pub(super) fn may_lack_leaves(&self) -> bool {
        !self.storage().fits_into_memory() || self.transactions.staging.is_eager_now()
    }

    /// Whether entries whose leaf isn't in memory are staged now.
    pub fn stages(&self, staging: &Staging) -> bool {
        let all = &self.transactions.staging;
        all.may_stage(staging) && all.backlog.takes_more()
    }

    /// Inserts an entry into a staging tree.
    ///
    /// # Errors
    /// As [`Txn::write`].
    pub fn insert_staged(
        &mut self,
        staging: &Staging,
        key: &[u8],
        value: &[u8],
    ) -> Result<Outcome, TxnError> {
        let _entered = staging.enter();
        self.transactions.staging.backlog.note_staged(1);
        self.write(staging.tree, key, Op::Insert(value))
    }

    /// Inserts entries in ascending order into a staging tree; returns how many were inserted
    /// before one that is there already.
    ///
    /// # Errors
    /// As [`Txn::insert_run`].
    pub fn insert_run_staged(
        &mut self,
        staging: &Staging,
        run: &[Pair<'_>],
    ) -> Result<usize, TxnError> {
        let _entered = staging.enter();
        self.transactions.staging.backlog.note_staged(run.len() as u64);
        self.insert_run(staging.tree, run, &[])
    }

    /// Puts tombstones of entries of the main tree, in ascending order; returns how many before one
    /// that has to be deleted there.
    ///
    /// # Errors
    /// As [`Txn::write`].
    pub fn hide_run_staged(
        &mut self,
        staging: &Staging,
        run: &[Pair<'_>],
    ) -> Result<usize, TxnError> {
        let _entered = staging.enter();
        let hidden = self.hide_run(staging.tree, run)?;
        self.transactions.staging.backlog.note_staged(hidden as u64);
        Ok(hidden)
    }
}

impl Transactions {
    /// Moves entries of one staging tree on if all together have grown too large, or if there is
    /// room for them.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn staging_step(self: &Arc<Self>) -> Result<Step, Fault> {
        let moved = self.look_after_stagings();
        let stuck = !matches!(moved, Ok(Some(1..)) | Ok(None));
        self.staging.backlog.set_stuck(stuck);
        // What is moved without need takes no more of a core than the others leave.
        Ok(match moved? {
            Some(1..) if self.staging.backlog.is_moving() => Step::GoesOn,
            None if self.staging.leaves.load(Ordering::Relaxed) == 0 => Step::Idle,
            _ => Step::Done,
        })
    }

    /// Returns how many entries were moved; `None` if none were to be.
    fn look_after_stagings(self: &Arc<Self>) -> Result<Option<u64>, Fault> {
        let all = {
            let mut all = self.staging.all.lock();
            all.retain(|one| one.moving.try_lock().is_none_or(|moving| !moving.retired));
            all.clone()
        };
        let mut filled = Vec::new();
        for staging in &all {
            let Some(moving) = staging.moving.try_lock().filter(|m| !m.retired) else { continue };
            let leaves = staging.count_leaves(&self.storage)?;
            drop(moving);
            if leaves > 0 {
                filled.push((leaves, staging));
            }
        }
        let total = filled.iter().map(|(leaves, _)| leaves).sum();
        self.staging.leaves.store(total as u64, Ordering::Relaxed);
        let s = &self.storage;
        let dirty = s.fits_into_memory().then(|| s.pool.dirty_pages());
        let grown = self.staging.backlog.count(total, s.dirty.users_limit(), dirty);
        if filled.is_empty() {
            return Ok(None);
        }
        let eager = self.staging.eager.load(Ordering::Relaxed);
        if !grown && (eager || !s.has_room_to_spare()) {
            return Ok(None);
        }
        self.advance_horizon();
        self.move_some_of(filled).map(Some)
    }

    /// Goes through a few leaves of the largest staging tree whose entries may be moved: those of a
    /// transaction that runs, or that a snapshot doesn't see, may not. Returns how many entries
    /// were moved.
    fn move_some_of(
        self: &Arc<Self>,
        mut stagings: Vec<(usize, &Arc<Staging>)>,
    ) -> Result<u64, Fault> {
        stagings.sort_unstable_by_key(|(leaves, _)| Reverse(*leaves));
        for (_, staging) in stagings {
            let Some(mut moving) = staging.moving.try_lock().filter(|m| !m.retired) else {
                continue;
            };
            let moved = self.move_some(staging, &mut moving)?;
            if moved > 0 {
                return Ok(moved);
            }
        }
        Ok(0)
    }

    /// Moves all entries of a staging tree that may be moved; `check` is asked between the steps.
    ///
    /// # Errors
    /// Faults of the storage; those of `check`.
    pub fn move_staged<E: From<Fault>>(
        self: &Arc<Self>,
        staging: &Staging,
        mut check: impl FnMut() -> Result<(), E>,
    ) -> Result<(), E> {
        let mut position = Vec::new();
        loop {
            let mut moving = staging.moving.lock();
            if moving.retired || staging.is_empty() {
                return Ok(());
            }
            moving.position = position;
            self.advance_horizon();
            self.move_some(staging, &mut moving)?;
            position = moving.position.clone();
            drop(moving);
            if position.is_empty() {
                return Ok(());
            }
            check()?;
        }
    }

    /// Goes through a few leaves of a staging tree; returns how many entries were moved. Where
    /// there is damage, in either tree, the rest of the leaf stays; whoever reads what is damaged
    /// is told.
    fn move_some(self: &Arc<Self>, staging: &Staging, moving: &mut Moving) -> Result<u64, Fault> {
        let s = &*self.storage;
        let move_of = Move {
            transactions: self,
            to: staging.main,
            horizon: self.horizon(),
            oldest: self.oldest_snapshot(),
        };
        let end = self.load_targets(staging, &moving.position, &move_of)?;
        let mut total = 0;
        loop {
            let (count, next) = match self.move_from(staging, &moving.position, &move_of) {
                Err(fault) if fault.damaged_page().is_some() => {
                    (0, staging.tree.end_of_leaf(s, &moving.position).or_else(none_if_damaged)?)
                }
                moved => moved?,
            };
            total += count;
            // Fences that are damaged lead nowhere.
            moving.position = next.filter(|next| *next > moving.position).unwrap_or_default();
            if moving.position.is_empty() || end.as_ref().is_some_and(|e| moving.position >= *e) {
                return Ok(total);
            }
        }
    }

    /// Moves entries of one leaf of a staging tree, from `position` on, into one of the main tree;
    /// returns how many, and where to go on.
    fn move_from(
        self: &Arc<Self>,
        staging: &Staging,
        position: &[u8],
        move_of: &Move<'_>,
    ) -> Result<(u64, Option<Vec<u8>>), Fault> {
        let s = &*self.storage;
        loop {
            match retry(s, || staging.tree.move_step(s, staging.main, position, move_of))? {
                Moved::Full(key) => staging.main.make_room(s, &key, move_of.horizon)?,
                Moved::HidesChain(key) => {
                    if !self.delete_hidden(staging, &key)? {
                        return Ok((0, Some(following(&key))));
                    }
                }
                Moved::Entries { count, next, sparse, into_sparse } => {
                    self.staging.backlog.note_moved(count);
                    self.staging.moves.fetch_add(u64::from(count > 0), Ordering::Relaxed);
                    if sparse {
                        staging.tree.merge_unless_damaged(s, position)?;
                    }
                    if let Some(key) = into_sparse {
                        staging.main.merge_unless_damaged(s, &key)?;
                    }
                    return Ok((count, next));
                }
            }
        }
    }

    /// Deletes an entry of the main tree that a tombstone hides, in place of that: what is left to
    /// do, its chain above all, is left to purge. `false` if that isn't possible without waiting.
    fn delete_hidden(self: &Arc<Self>, staging: &Staging, key: &[u8]) -> Result<bool, Fault> {
        let mut txn = self.begin();
        txn.lock_timeout = Duration::ZERO;
        let mut write = || {
            let exposed = txn.write(staging.tree, key, Op::Expose)?;
            Ok(exposed != Outcome::Absent
                && txn.write(staging.main, key, Op::Delete)? != Outcome::Absent)
        };
        let written = write();
        let ended = match written {
            Ok(true) => txn.commit(Durability::Relaxed),
            _ => txn.rollback(),
        };
        match written.and_then(|done| ended.map(|()| done)) {
            Ok(done) => Ok(done),
            Err(TxnError::Fault(fault)) => Err(fault),
            Err(TxnError::Lock(_) | TxnError::TooMany { .. }) => Ok(false),
        }
    }

    /// Loads the leaves that entries from `position` on go to; returns how far it came.
    fn load_targets(
        &self,
        staging: &Staging,
        position: &[u8],
        move_of: &Move<'_>,
    ) -> Result<Option<Vec<u8>>, Fault> {
        let s = &*self.storage;
        let most = s.load_many_max().min(TOGETHER);
        let mut from = position.to_vec();
        let mut missing: Vec<PageId> = Vec::new();
        let (mut movable, mut kept) = (0, 0);
        for _ in 0..STEP_LEAVES {
            let read = retry(s, || {
                let leaf = staging.tree.leaf(s, Target::At(&from), true)?;
                self.staging.backlog.note_leaf(leaf.len());
                let (mut keys, mut hiding) = (Vec::new(), 0);
                for slot in leaf.seek(&from).0..leaf.len() {
                    let entry = leaf.entry(slot);
                    match move_of.fate(&entry) {
                        Fate::Stays => hiding += u64::from(entry.flags.hides),
                        _ => keys.push(leaf.key(slot)),
                    }
                }
                Ok::<_, Restart<Fault>>((keys, hiding, leaf.upper().map(<[u8]>::to_vec)))
            });
            let (keys, hiding, next) = match read {
                Err(fault) if fault.damaged_page().is_some() => break,
                read => read?,
            };
            movable += keys.len() as u64;
            kept += hiding;
            self.staging.crowded.store(kept > movable, Ordering::Relaxed);
            for key in keys {
                match staging.main.missing_page(s, &key) {
                    Some(page) if missing.last() != Some(&page) => {
                        if missing.len() >= most {
                            s.load_many(&missing);
                            return Ok(Some(key));
                        }
                        missing.push(page);
                    }
                    _ => {}
                }
            }
            match next {
                Some(next) => from = next,
                None => {
                    s.load_many(&missing);
                    return Ok(None);
                }
            }
        }
        s.load_many(&missing);
        Ok(Some(from))
    }
}

/// Where there is damage, nothing follows.
fn none_if_damaged<T>(fault: Fault) -> Result<Option<T>, Fault> {
    if fault.damaged_page().is_some() { Ok(None) } else { Err(fault) }
}

/// Moves into a main tree.
struct Move<'a> {
    transactions: &'a Transactions,
    to: Tree,
    horizon: TxnId,
    /// No snapshot is before it, from now on.
    oldest: u64,
}

impl Mover for Move<'_> {
    fn fate(&self, entry: &Entry<'_>) -> Fate {
        let flags = entry.flags;
        if flags.overflow || (flags.deleted && !flags.hides) {
            return Fate::Stays;
        }
        // A transaction that is prepared keeps the horizon for as long as it likes.
        let Some(v) = entry.version.filter(|v| v.txn >= self.horizon) else {
            return Fate::Moves(None);
        };
        match self.transactions.status.get(v.txn) {
            State::SeenFrom(at) if at <= self.oldest => Fate::Moves(None),
            // Nobody looks for the undo record of an insert that has committed; that of one that
            // runs is found by whoever takes it back.
            State::SeenFrom(_) | State::Active if v.undo.is_insert() && !flags.hides => {
                Fate::Moves(Some(v))
            }
            // Older builds have left other undo records.
            State::Active if v.undo.is_insert() && v.txn >= self.transactions.first => {
                Fate::Buries(Version { undo: v.undo.place(), ..v })
            }
            _ => Fate::Stays,
        }
    }

    fn arrives(&self, key: &[u8]) {
        self.transactions.dead.revive(self.to.id, key);
    }

    fn buries(&self, by: Version) -> bool {
        // Noted before it is looked whether the transaction still runs: purge, which comes by once
        // it doesn't, knows.
        self.transactions.staging.buried.lock().insert(by.undo.page);
        self.transactions.status.get(by.txn) == State::Active
    }

    fn is_settled(&self, version: Option<Version>) -> bool {
        version.is_none_or(|v| {
            v.txn < self.horizon
                || matches!(self.transactions.status.get(v.txn), State::SeenFrom(at) if at <= self.oldest)
        })
    }
}

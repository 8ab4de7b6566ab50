//! Staging: inserts into secondary indexes without reading the leaves that they go to.
//!
//! A non-unique index has a second, small tree beside its main one: the same keys, versions, pages.
//! An entry whose leaf of the main tree isn't in memory is inserted there instead. When the staging
//! trees together outgrow their share of memory, [`Transactions::staging_step`] moves entries into
//! the main trees in key order, so that each leaf that is read and written takes many of them.
//!
//! What makes it simple:
//! - An entry's key ends with its row's primary key, and who writes an entry holds the row. So at
//!   most one of the two trees has the entry alive, and a snapshot sees at most one of the two.
//! - An entry is moved only when it is alive and no undo record is needed of it: everybody sees it, or
//!   it was inserted by a transaction that has committed, whose number moves with it. So an old snapshot
//!   doesn't keep entries from being moved, but those that were deleted before they were moved: past a
//!   limit ([`Stagings::configure`]), entries go to the main trees at once.
//! - Entries move in one direction, each in one mini-transaction. Who looks into the staging tree
//!   first and into the main tree afterwards misses none; it may find one twice, under the same key.
//!   So neither readers ([`super::merged`]) nor writers take a lock against moves.
//!
//! Undo records name the tree that was written: rollback, purge and recovery know nothing of this.

use super::{Op, Outcome, Pair, State, Transactions, Txn, TxnError};
use crate::storage::{Fault, Restart, Storage, retry};
use crate::tree::{Fate, Hint, Moved, Target, Tree};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use weir_page::{Entry, PageId, TxnId};

/// Leaves of the main tree that are read ahead together.
const READ_AHEAD: usize = 64;
/// Leaves of a staging tree that a step goes through, at most.
const STEP_LEAVES: usize = 32;

/// Leaves that staging trees may have even where their share of memory is tiny.
const ALWAYS: usize = 16;

/// The staging tree of an index.
#[derive(Debug)]
pub struct Staging {
    /// The tree.
    pub tree: Tree,
    /// The tree that its entries go to in the end.
    main: Tree,
    /// Inserts that have begun.
    begun: AtomicU64,
    /// Inserts that have ended.
    ended: AtomicU64,
    /// What `begun` was when the tree was last found empty.
    empty_at: AtomicU64,
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
            tree,
            main,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            empty_at: AtomicU64::new(u64::MAX),
            moving: Mutex::default(),
        }
    }

    /// Grows with each insert that begins or ends.
    pub(super) fn inserts(&self) -> u64 {
        self.begun.load(Ordering::SeqCst) + self.ended.load(Ordering::SeqCst)
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

    /// Number of leaves; finds out whether the tree is empty.
    fn count_leaves(&self, s: &Storage) -> Result<usize, Fault> {
        if self.is_empty() {
            return Ok(0);
        }
        let begun = self.begun.load(Ordering::SeqCst);
        let quiet = self.ended.load(Ordering::SeqCst) == begun;
        let leaves = self.tree.leaves(s)?;
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
    /// Moving begins when all together have more leaves.
    most: AtomicUsize,
    /// Entries are being moved until few leaves are left.
    moving: AtomicBool,
    /// Whether entries may be staged.
    enabled: AtomicBool,
    /// Whether they are now and then without need, for tests.
    eager: AtomicBool,
    /// Whether moves can't follow, so that inserts go to the main trees.
    full: AtomicBool,
    /// Counters.
    pub figures: StagingFigures,
}

/// Counted since the database was opened.
#[derive(Debug, Default)]
pub struct StagingFigures {
    /// Entries inserted into staging trees.
    pub staged: AtomicU64,
    /// Leaves of staging trees, when last counted.
    pub leaves: AtomicU64,
    /// Entries moved into main trees.
    pub moved: AtomicU64,
    /// Changes of leaves of main trees that this took.
    pub moves: AtomicU64,
}

impl Stagings {
    /// Says how many leaves the staging trees may have together before entries are moved, and
    /// whether entries are staged at all.
    pub fn configure(&self, most: usize, enabled: bool) {
        self.most.store(most, Ordering::Relaxed);
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Entries are staged now and then without need.
    pub fn be_eager(&self) {
        self.eager.store(true, Ordering::Relaxed);
    }

    /// Steps look after the staging tree from now on.
    pub fn add(&self, staging: Arc<Staging>) {
        self.all.lock().push(staging);
    }
}

impl Txn {
    /// As [`Transactions::is_staged`].
    #[inline]
    pub fn is_staged(&self, staging: &Staging, hint: &Hint) -> bool {
        self.shared.is_staged(staging, hint)
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
        self.shared.staging.figures.staged.fetch_add(1, Ordering::Relaxed);
        self.write(staging.tree, key, Op::Insert(value))
    }
}

impl Txn {
    /// Inserts entries in ascending order into a staging tree; returns how many were inserted before one
    /// that is there already.
    ///
    /// # Errors
    /// As [`Txn::insert_run`].
    pub fn insert_run_staged(
        &mut self,
        staging: &Staging,
        run: &[Pair<'_>],
    ) -> Result<usize, TxnError> {
        let _entered = staging.enter();
        self.shared.staging.figures.staged.fetch_add(run.len() as u64, Ordering::Relaxed);
        self.insert_run(staging.tree, run, &[])
    }
}

impl Transactions {
    /// Whether an insert goes to the staging tree, by where its leaf of the main tree is. Even a leaf in
    /// memory is spared if the change would cost a write that the pool has no room to put off.
    #[inline]
    pub fn is_staged(&self, staging: &Staging, hint: &Hint) -> bool {
        let wanted = hint.is_missing()
            || (self.staging.eager.load(Ordering::Relaxed) && fastrand::u8(..4) > 0)
            || (!staging.is_empty()
                && hint.is_clean(&self.storage)
                && self.storage.is_short_of_frames());
        let stagings = &self.staging;
        wanted && stagings.enabled.load(Ordering::Relaxed) && !stagings.full.load(Ordering::Relaxed)
    }

    /// Moves entries of one staging tree on if all together have grown too large. Returns whether
    /// there is more to move.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn staging_step(&self) -> Result<bool, TxnError> {
        let all = {
            let mut all = self.staging.all.lock();
            all.retain(|one| one.moving.try_lock().is_none_or(|moving| !moving.retired));
            all.clone()
        };
        let (mut total, mut largest) = (0, None);
        for staging in &all {
            let Some(moving) = staging.moving.try_lock().filter(|m| !m.retired) else { continue };
            let leaves = staging.count_leaves(&self.storage)?;
            drop(moving);
            total += leaves;
            if leaves > largest.map_or(0, |(most, _)| most) {
                largest = Some((leaves, staging));
            }
        }
        self.staging.figures.leaves.store(total as u64, Ordering::Relaxed);
        let most = self.staging.most.load(Ordering::Relaxed);
        let goes_on = self.staging.moving.load(Ordering::Relaxed);
        let moves = total > if goes_on { most - most / 8 } else { most };
        self.staging.moving.store(moves, Ordering::Relaxed);
        self.staging.full.store(total > 2 * most + ALWAYS, Ordering::Relaxed);
        let Some((_, staging)) = largest.filter(|_| moves) else { return Ok(false) };
        self.advance_horizon();
        Ok(self.move_some(staging)? > 0)
    }

    /// Goes through a few leaves of a staging tree; returns how many entries were moved.
    fn move_some(&self, staging: &Staging) -> Result<u64, TxnError> {
        let s = &*self.storage;
        let Some(mut moving) = staging.moving.try_lock().filter(|m| !m.retired) else {
            return Ok(0);
        };
        let horizon = self.horizon();
        let fate = |e: &Entry<'_>| self.fate(e, horizon);
        let end = read_ahead(s, staging, &moving.position)?;
        let mut total = 0;
        loop {
            let step = || staging.tree.move_step(s, staging.main, &moving.position, &fate);
            let (count, next, sparse) = match retry(s, step)? {
                Moved::Full(key) => {
                    staging.main.make_room(s, &key, horizon)?;
                    continue;
                }
                Moved::Entries { count, next, sparse } => (count, next, sparse),
            };
            if sparse {
                staging.tree.merge(s, &moving.position)?;
            }
            total += count;
            let figures = &self.staging.figures;
            figures.moved.fetch_add(count, Ordering::Relaxed);
            figures.moves.fetch_add(u64::from(count > 0), Ordering::Relaxed);
            moving.position = next.unwrap_or_default();
            if moving.position.is_empty() || end.as_ref().is_some_and(|e| moving.position >= *e) {
                return Ok(total);
            }
        }
    }
}

impl Transactions {
    /// Whether a staged entry may be moved.
    fn fate(&self, entry: &Entry<'_>, horizon: TxnId) -> Fate {
        if entry.flags.deleted || entry.flags.overflow {
            return Fate::Stays;
        }
        match entry.version {
            None => Fate::Moves(None),
            Some(v) if v.txn < horizon => Fate::Moves(None),
            // Nobody looks for the undo record of an insert that has committed.
            Some(v) if v.undo.is_insert() && self.has_committed(v.txn) => Fate::Moves(Some(v)),
            Some(_) => Fate::Stays,
        }
    }

    fn has_committed(&self, txn: TxnId) -> bool {
        matches!(self.status.get(txn), State::Committed(_))
    }
}

/// Reads the leaves ahead that entries from `position` on go to; returns how far it came.
fn read_ahead(s: &Storage, staging: &Staging, position: &[u8]) -> Result<Option<Vec<u8>>, Fault> {
    let mut from = position.to_vec();
    let mut missing: Vec<PageId> = Vec::new();
    for _ in 0..STEP_LEAVES {
        let (keys, next) = retry(s, || {
            let leaf = staging.tree.leaf(s, Target::At(&from), true)?;
            let first = leaf.seek(&from).0;
            let key = |slot| [leaf.prefix(), leaf.suffix(slot)].concat();
            let keys: Vec<Vec<u8>> = (first..leaf.len()).map(key).collect();
            Ok::<_, Restart<Fault>>((keys, leaf.upper().map(<[u8]>::to_vec)))
        })?;
        for key in keys {
            if missing.len() >= READ_AHEAD {
                s.prefetch(&missing);
                return Ok(Some(key));
            }
            match staging.main.missing_page(s, &key) {
                Some(page) if missing.last() != Some(&page) => missing.push(page),
                _ => {}
            }
        }
        match next {
            Some(next) => from = next,
            None => {
                s.prefetch(&missing);
                return Ok(None);
            }
        }
    }
    s.prefetch(&missing);
    Ok(Some(from))
}

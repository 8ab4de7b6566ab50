//! The locks of one key: who holds them, and who waits in which order. No mutex, no threads.

use super::{Extent, LockInfo, Mode, WaitInfo, Waiter};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;
use weir_page::types::{TreeId, TxnId};

/// A locked key; the bytes are shared by its queue and the lists of its holders.
#[derive(Debug, Clone)]
pub(super) struct LockKey {
    pub(super) hash: u64,
    pub(super) tree: TreeId,
    pub(super) bytes: Arc<[u8]>,
}

/// A request that waits.
pub(super) struct Waiting {
    pub(super) txn: TxnId,
    pub(super) mode: Mode,
    pub(super) since: Instant,
    pub(super) waiter: Arc<Waiter>,
}

pub(super) struct Queue {
    key: LockKey,
    /// One entry per holder. Several with an exclusive one among them only for as long as a reader
    /// has not yet noticed an implicit owner (the module's head of `lock`).
    granted: SmallVec<[(TxnId, Mode); 1]>,
    waiting: Waiters,
}

/// Those who wait, in order. Few keys have any, and a transaction may lock very many keys: none
/// take no room.
#[derive(Default)]
#[expect(clippy::box_collection, reason = "a pointer is a quarter of an empty queue")]
struct Waiters(Option<Box<VecDeque<Waiting>>>);

static NOBODY: VecDeque<Waiting> = VecDeque::new();

impl Deref for Waiters {
    type Target = VecDeque<Waiting>;
    fn deref(&self) -> &VecDeque<Waiting> {
        self.0.as_deref().unwrap_or(&NOBODY)
    }
}

impl DerefMut for Waiters {
    fn deref_mut(&mut self) -> &mut VecDeque<Waiting> {
        self.0.get_or_insert_default()
    }
}

impl Queue {
    pub(super) fn new(key: LockKey) -> Self {
        Queue { key, granted: SmallVec::new(), waiting: Waiters::default() }
    }

    pub(super) fn key(&self) -> &LockKey {
        &self.key
    }

    pub(super) fn is(&self, tree: TreeId, key: &[u8]) -> bool {
        self.key.tree == tree && *self.key.bytes == *key
    }

    pub(super) fn is_empty(&self) -> bool {
        self.granted.is_empty() && self.waiting.is_empty()
    }

    pub(super) fn held(&self, txn: TxnId) -> Option<Mode> {
        self.granted.iter().find(|(holder, _)| *holder == txn).map(|(_, mode)| *mode)
    }

    /// Whether nobody who came before stands in the way of a new request.
    pub(super) fn admits(&self, txn: TxnId, mode: Mode) -> bool {
        match self.held(txn) {
            Some(held) if held >= mode => true,
            Some(_) => self.holders_admit(txn, mode),
            None => {
                self.holders_admit(txn, mode)
                    && !self.waiting.iter().any(|w| w.txn != txn && w.mode.conflicts(mode))
            }
        }
    }

    fn holders_admit(&self, txn: TxnId, mode: Mode) -> bool {
        !self.granted.iter().any(|&(holder, held)| holder != txn && held.conflicts(mode))
    }

    /// All who stand in the way of a request, a new one or one that waits: holders, and who waits
    /// ahead of it.
    pub(super) fn in_the_way(&self, txn: TxnId, mode: Mode) -> Vec<TxnId> {
        let holders =
            self.granted.iter().filter(|&&(_, held)| held.conflicts(mode)).map(|&(t, _)| t);
        let upgrades = self.held(txn).is_some();
        let ahead = self.waiting.iter().take_while(|w| w.txn != txn);
        let ahead = ahead.filter(|w| !upgrades && w.mode.conflicts(mode)).map(|w| w.txn);
        holders.chain(ahead).filter(|&other| other != txn).collect()
    }

    /// Tells those who wait that this one has come ahead of them, or is about to.
    pub(super) fn tell_overtaken(&self, by: TxnId) {
        // It may wait itself: then it has come ahead of those behind it alone.
        let at = self.waiting.iter().position(|w| w.txn == by).map_or(0, |at| at + 1);
        self.waiting.range(at..).for_each(|w| w.waiter.overtake());
    }

    /// Enters a holder, or raises its mode; says whether it is new.
    pub(super) fn grant(&mut self, txn: TxnId, mode: Mode) -> bool {
        if let Some((_, held)) = self.granted.iter_mut().find(|(holder, _)| *holder == txn) {
            *held = (*held).max(mode);
            return false;
        }
        self.granted.push((txn, mode));
        true
    }

    /// Takes a holder out; says whether it was one.
    pub(super) fn revoke(&mut self, txn: TxnId) -> bool {
        let before = self.granted.len();
        self.granted.retain(|(holder, _)| *holder != txn);
        self.granted.len() != before
    }

    /// Adds a waiter: at the end, or behind the other upgrades if it holds the lock already.
    pub(super) fn push(&mut self, waiting: Waiting) {
        let upgrades = || self.waiting.iter().take_while(|w| self.held(w.txn).is_some()).count();
        let at = match self.held(waiting.txn) {
            Some(_) => upgrades(),
            None => self.waiting.len(),
        };
        self.waiting.insert(at, waiting);
    }

    /// Takes a waiter out.
    pub(super) fn withdraw(&mut self, txn: TxnId) -> Option<Waiting> {
        let at = self.waiting.iter().position(|w| w.txn == txn)?;
        self.waiting.remove(at)
    }

    /// Moves the first waiter to the holders if they admit it; says whether it is a new holder.
    pub(super) fn grant_next(&mut self) -> Option<(Waiting, bool)> {
        let first = self.waiting.front()?;
        let (txn, mode) = (first.txn, first.mode);
        if self.held(txn).is_none_or(|held| held < mode) && !self.holders_admit(txn, mode) {
            return None;
        }
        let waiting = self.waiting.pop_front()?;
        Some((waiting, self.grant(txn, mode)))
    }

    /// Calls `edges` with each waiter and whom it waits for. A waiter ahead stands for those whom
    /// it waits for itself, so that the edges of a queue are about as many as its waiters.
    pub(super) fn waits_for(&self, mut edges: impl FnMut(&Waiting, Vec<TxnId>)) {
        let mut last_exclusive = None;
        for (at, waiting) in self.waiting.iter().enumerate() {
            let mut blockers = Vec::new();
            match (waiting.mode, last_exclusive) {
                (Mode::Shared, Some(last)) => blockers.push(self.waiting[last].txn),
                (Mode::Shared, None) => {}
                (Mode::Exclusive, last) => {
                    let ahead = self.waiting.range(last.unwrap_or(0)..at);
                    blockers.extend(ahead.map(|w| w.txn));
                }
            }
            if last_exclusive.is_none() {
                let holders = self.granted.iter().filter(|&&(holder, held)| {
                    holder != waiting.txn && held.conflicts(waiting.mode)
                });
                blockers.extend(holders.map(|&(holder, _)| holder));
            }
            if waiting.mode == Mode::Exclusive {
                last_exclusive = Some(at);
            }
            edges(waiting, blockers);
        }
    }

    /// What a transaction waits for here, and since when.
    pub(super) fn wait_of(&self, txn: TxnId) -> Option<(Mode, Instant)> {
        let waiting = self.waiting.iter().find(|waiting| waiting.txn == txn)?;
        Some((waiting.mode, waiting.since))
    }

    pub(super) fn describe(&self, infos: &mut Vec<LockInfo>) {
        let info = |txn, mode, wait| LockInfo {
            tree: self.key.tree,
            key: self.key.bytes.to_vec(),
            extent: Extent::Key,
            txn,
            mode,
            wait,
        };
        infos.extend(self.granted.iter().map(|&(txn, mode)| info(txn, mode, None)));
        self.waits_for(|waiting, waits_for| {
            let wait = WaitInfo { since: waiting.since, waits_for };
            infos.push(info(waiting.txn, waiting.mode, Some(wait)));
        });
    }
}

//! Deadlock detection: a search over the queues, from the transaction that begins to wait.

use super::queue::LockKey;
use super::{Deadlock, DeadlockWait, Extent, LockError, LockInfo, LockTable, WaitInfo};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::time::SystemTime;
use weir_page::types::TxnId;

/// What a waiting transaction waits for. Kept until the thread has woken: the queue says whether
/// the wait goes on.
pub(super) struct Wait {
    pub(super) key: LockKey,
    pub(super) weight: u64,
    pub(super) connection: u64,
}

type WaitMap = HashMap<TxnId, Wait>;

impl LockTable {
    /// Ends one wait of each cycle that can be reached from `start`.
    pub(super) fn resolve_deadlocks(&self, waits: &mut WaitMap, start: TxnId) {
        while let Some(cycle) = self.find_cycle(waits, start) {
            let weight = |txn: &TxnId| waits.get(txn).map_or(u64::MAX, |wait| wait.weight);
            let victim = cycle.iter().copied().min_by(|one, other| {
                let cost = |txn: &TxnId| (weight(txn), Reverse(*txn));
                self.preference(*one, *other).then_with(|| cost(one).cmp(&cost(other)))
            });
            let Some(victim) = victim else { return };
            let deadlock = self.describe_cycle(waits, &cycle, victim);
            // If its wait has just ended otherwise, so has the cycle.
            let Some(wait) = waits.remove(&victim) else { continue };
            if self.end_wait(&wait.key, victim, LockError::Deadlock) {
                self.counters.deadlocks.fetch_add(1, Ordering::Relaxed);
                if deadlock.is_some() {
                    *self.last_deadlock.lock() = deadlock;
                }
            }
        }
    }

    /// What is told of a cycle; nothing if one of its waits has ended meanwhile.
    fn describe_cycle(&self, waits: &WaitMap, cycle: &[TxnId], victim: TxnId) -> Option<Deadlock> {
        let next = cycle.iter().cycle().skip(1);
        let waits = cycle.iter().zip(next).map(|(&txn, &next)| {
            let Wait { key, connection, .. } = waits.get(&txn)?;
            let (mode, since) = {
                let queues = self.shard(key.hash).queues.lock();
                queues.find(key.hash, |q| q.is(key.tree, &key.bytes))?.wait_of(txn)?
            };
            let wait = WaitInfo { since, waits_for: vec![next] };
            let lock = LockInfo {
                tree: key.tree,
                key: key.bytes.to_vec(),
                extent: Extent::Key,
                txn,
                mode,
                wait: Some(wait),
            };
            Some(DeadlockWait { lock, waited: since.elapsed(), connection: *connection })
        });
        let waits = waits.collect::<Option<_>>()?;
        Some(Deadlock { at: SystemTime::now(), waits, victim })
    }

    /// Which of two the coordinator would rather see rolled back.
    fn preference(&self, one: TxnId, other: TxnId) -> std::cmp::Ordering {
        self.preference.get().map_or(std::cmp::Ordering::Equal, |prefer| prefer(one, other))
    }

    /// A cycle of waiting transactions that can be reached from `start`.
    fn find_cycle(&self, waits: &WaitMap, start: TxnId) -> Option<Vec<TxnId>> {
        let mut edges = Edges { table: self, waits, of: HashMap::new() };
        let mut done = HashSet::new();
        // The path from `start`, each with those of its edges that have not been followed.
        let mut path = vec![(start, edges.take(start))];
        while let Some((txn, rest)) = path.last_mut() {
            let Some(next) = rest.pop() else {
                done.insert(*txn);
                path.pop();
                continue;
            };
            if let Some(at) = path.iter().position(|(on_path, _)| *on_path == next) {
                return Some(path[at..].iter().map(|(txn, _)| *txn).collect());
            }
            if !done.contains(&next) {
                path.push((next, edges.take(next)));
            }
        }
        None
    }
}

/// Edges "waits for", read one queue at a time.
struct Edges<'a> {
    table: &'a LockTable,
    waits: &'a WaitMap,
    of: HashMap<TxnId, Vec<TxnId>>,
}

impl Edges<'_> {
    /// The edges from `txn`; none if it does not wait. Asked once per transaction.
    fn take(&mut self, txn: TxnId) -> Vec<TxnId> {
        if let Some(edges) = self.of.remove(&txn) {
            return edges;
        }
        let Some(wait) = self.waits.get(&txn) else { return Vec::new() };
        let key = &wait.key;
        let shard = self.table.shard(key.hash).queues.lock();
        if let Some(queue) = shard.find(key.hash, |q| q.is(key.tree, &key.bytes)) {
            queue.waits_for(|waiting, blockers| {
                self.of.insert(waiting.txn, blockers);
            });
        }
        self.of.remove(&txn).unwrap_or_default()
    }
}

//! Who reads at which snapshot, for those who ask what keeps purge back.

use crate::sync::coarse_time;
use crate::txn::Transactions;
use std::cmp::Reverse;
use std::time::Duration;

/// A snapshot that somebody reads at, as [`super::Database::snapshots`] saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// For whom: what [`super::Transaction::set_connection`] or [`super::Patience::set_connection`]
    /// was told; 0 if nothing.
    pub connection: u64,
    /// How long ago it was taken, by a clock that goes in steps of up to 10 ms.
    pub age: Duration,
    /// Transactions that have written and committed since: their undo is kept for it.
    pub unseen_commits: u64,
}

impl SnapshotInfo {
    /// All, oldest first.
    pub(super) fn all(transactions: &Transactions) -> Vec<SnapshotInfo> {
        let readers = transactions.readers();
        let (now, newest) = (coarse_time(), transactions.now());
        let mut all: Vec<_> = readers
            .iter()
            .map(|reader| SnapshotInfo {
                connection: reader.connection,
                age: now.saturating_sub(reader.since),
                unseen_commits: newest - reader.at,
            })
            .collect();
        all.sort_by_key(|info| Reverse((info.unseen_commits, info.age)));
        all
    }

    /// The oldest.
    pub(super) fn oldest(transactions: &Transactions) -> Option<SnapshotInfo> {
        SnapshotInfo::all(transactions).first().copied()
    }
}

//! What a transaction keeps of its own doings, from its first write to its end.

use super::Savepoint;

/// How far it has come.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// It reads and writes.
    #[default]
    Open,
    /// Only its coordinator may end it.
    Prepared,
    /// All that it wrote is being taken back, and it ends with that.
    RollingBack,
}

/// Its end leaves nothing of it.
#[derive(Default)]
pub(super) struct Work {
    pub stage: Stage,
    /// Undo records written and not taken back.
    pub undo_records: u64,
    /// Whether one of them has something to do for purge.
    pub needs_purge: bool,
    /// Where a rollback that failed was to end.
    pub unfinished: Option<Savepoint>,
    /// Something that it wrote has been taken back by a tombstone.
    pub withdrew: bool,
    /// Recovery has passed over something that it had to take back, because of damage.
    pub half_done: bool,
    /// Dropped, it is left as the log has it.
    pub is_left: bool,
}

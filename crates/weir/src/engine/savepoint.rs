//! Savepoints: where a transaction can be taken back to, for as long as that place is there.
//!
//! A savepoint is a number of undo records. A transaction that is taken back behind it and goes on may have as
//! many again in the middle of a statement: to go there would leave half a row. So a rollback makes all savepoints behind
//! it void, and a transaction remembers as much of its rollbacks as tells which are.

use crate::txn;

/// A point to which a transaction can be rolled back; see [`super::Transaction::savepoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    at: txn::Savepoint,
    /// Rollbacks before it; `None` if nobody knows.
    after: Option<u64>,
}

impl Savepoint {
    /// As a number, for those who can only keep that.
    pub fn number(self) -> u64 {
        self.at.number()
    }

    /// That of a number; 0 is where a transaction begins. Whether it is still there, the caller has to know.
    pub fn of_number(number: u64) -> Self {
        Savepoint { at: txn::Savepoint::of_number(number), after: None }
    }

    pub(super) fn place(self) -> txn::Savepoint {
        self.at
    }
}

/// Rollbacks that a transaction's user has asked for.
#[derive(Debug, Default)]
pub(super) struct Rollbacks {
    made: u64,
    /// Those that make savepoints void, by their numbers, and where they ended; both ascend.
    ends: Vec<(u64, txn::Savepoint)>,
}

impl Rollbacks {
    /// A savepoint where the transaction stands.
    pub fn savepoint(&self, at: txn::Savepoint) -> Savepoint {
        Savepoint { at, after: Some(self.made) }
    }

    /// Whether the transaction has been taken back behind a savepoint since.
    pub fn have_passed(&self, savepoint: Savepoint) -> bool {
        let Some(after) = savepoint.after else { return false };
        self.ends.iter().any(|(number, end)| *number > after && *end < savepoint.at)
    }

    /// The transaction is taken back to a savepoint.
    pub fn note(&mut self, to: Savepoint) {
        self.made += 1;
        self.ends.retain(|(_, end)| *end < to.at);
        self.ends.push((self.made, to.at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_rollback_has_passed_stays_void_and_what_comes_later_counts() {
        let at = txn::Savepoint::of_number;
        let mut rollbacks = Rollbacks::default();
        let old: Vec<Savepoint> = (0..10).map(|n| rollbacks.savepoint(at(n))).collect();
        let void = |rollbacks: &Rollbacks, of: &[Savepoint]| -> Vec<u64> {
            of.iter().filter(|s| rollbacks.have_passed(**s)).map(|s| s.number()).collect()
        };
        rollbacks.note(old[7]);
        assert_eq!(void(&rollbacks, &old), [8, 9]);
        rollbacks.note(old[4]);
        assert_eq!(void(&rollbacks, &old), [5, 6, 7, 8, 9]);
        let new: Vec<Savepoint> = (4..10).map(|n| rollbacks.savepoint(at(n))).collect();
        assert!(void(&rollbacks, &new).is_empty());
        rollbacks.note(new[2]);
        assert_eq!(void(&rollbacks, &new), [7, 8, 9]);
        assert_eq!(void(&rollbacks, &old), [5, 6, 7, 8, 9]);
        assert!(!rollbacks.have_passed(Savepoint::of_number(9)), "nobody knows of it");
    }
}

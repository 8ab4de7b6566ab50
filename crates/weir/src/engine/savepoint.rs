//! Savepoints: where a transaction can be taken back to, for as long as that place is there.
//!
//! A savepoint is a number of undo records. A transaction that is taken back behind it and goes on
//! may have as many again in the middle of a statement: to go there would leave half a row. So a
//! rollback makes all savepoints behind it void, and a transaction remembers as much of its
//! rollbacks as tells which are.

use crate::txn;

/// Bits of a savepoint's number that say how many rollbacks came before it.
const AFTER_BITS: u32 = 24;

/// So many rollbacks or more: which of them came before a savepoint isn't known.
const AFTER_UNKNOWN: u64 = (1 << AFTER_BITS) - 1;

/// A point to which a transaction can be rolled back; see [`super::Transaction::savepoint`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Savepoint {
    at: txn::Savepoint,
    /// Rollbacks before it, up to [`AFTER_UNKNOWN`].
    after: u64,
}

impl Savepoint {
    /// As a number, for those who can only keep that.
    ///
    /// # Panics
    /// Past 2^40 undo records, which no device has room for.
    pub fn number(self) -> u64 {
        let at = self.at.number();
        assert!(at < 1 << (u64::BITS - AFTER_BITS), "{at} undo records");
        at << AFTER_BITS | self.after
    }

    /// That of a number; 0 is where a transaction begins.
    pub fn of_number(number: u64) -> Self {
        let (at, after) = (number >> AFTER_BITS, number & AFTER_UNKNOWN);
        Savepoint { at: txn::Savepoint::of_number(at), after }
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
        Savepoint { at, after: self.made.min(AFTER_UNKNOWN) }
    }

    /// Whether there may be such a savepoint, in a transaction that stands at `now`: it is none of
    /// another one, and this one has not been taken back behind it since.
    pub fn know(&self, savepoint: Savepoint, now: txn::Savepoint) -> bool {
        let Savepoint { at, after } = savepoint;
        at <= now && after <= self.made && (after == AFTER_UNKNOWN || !self.have_passed(savepoint))
    }

    /// Whether the transaction has been taken back behind a savepoint since.
    fn have_passed(&self, savepoint: Savepoint) -> bool {
        let later = self.ends.partition_point(|(number, _)| *number <= savepoint.after);
        // Of all later ones this one ended first.
        self.ends.get(later).is_some_and(|(_, end)| *end < savepoint.at)
    }

    /// How many there were.
    #[inline]
    pub fn made(&self) -> u64 {
        self.made
    }

    /// The transaction is taken back to a savepoint.
    pub fn note(&mut self, to: Savepoint) {
        self.made += 1;
        let before = self.ends.partition_point(|(_, end)| *end < to.at);
        self.ends.truncate(before);
        self.ends.push((self.made, to.at));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;

    fn at(number: u64) -> txn::Savepoint {
        txn::Savepoint::of_number(number)
    }

    #[test]
    fn what_a_rollback_has_passed_stays_void_and_what_comes_later_counts() {
        let mut rollbacks = Rollbacks::default();
        let old: Vec<Savepoint> = (0..10).map(|n| rollbacks.savepoint(at(n))).collect();
        let void = |rollbacks: &Rollbacks, of: &[Savepoint]| -> Vec<u64> {
            let known = |s: &&Savepoint| rollbacks.know(**s, at(100));
            of.iter().filter(|s| !known(s)).map(|s| s.at.number()).collect()
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
    }

    /// As numbers, too: they are all that a coordinator keeps.
    #[test]
    fn a_list_of_all_savepoints_tells_the_same() {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let mut rng = Rng::with_seed(seed);
        for _ in 0..200 {
            let (mut rollbacks, mut now) = (Rollbacks::default(), 0);
            let mut all: Vec<(u64, bool)> = vec![(0, true)];
            for _ in 0..100 {
                now += rng.u64(..3);
                let savepoint = rollbacks.savepoint(at(now));
                all.push((savepoint.number(), true));
                if rng.u8(..3) == 0 {
                    let there: Vec<u64> = all.iter().filter(|(_, is)| *is).map(|s| s.0).collect();
                    let to = Savepoint::of_number(there[rng.usize(..there.len())]);
                    rollbacks.note(to);
                    now = to.at.number();
                    for (number, is_there) in &mut all {
                        *is_there &= Savepoint::of_number(*number).at <= to.at;
                    }
                }
                for (number, is_there) in &all {
                    let savepoint = Savepoint::of_number(*number);
                    assert_eq!(rollbacks.know(savepoint, at(now)), *is_there, "{savepoint:?}");
                }
            }
        }
    }

    #[test]
    fn numbers_of_nobodys_or_of_another_transaction_are_not_known() {
        let mut rollbacks = Rollbacks::default();
        let first = rollbacks.savepoint(at(3));
        rollbacks.note(first);
        let of_other = rollbacks.savepoint(at(3));
        assert!(rollbacks.know(of_other, at(3)));
        assert!(!Rollbacks::default().know(of_other, at(3)), "it has made no rollback yet");
        assert!(!rollbacks.know(first, at(2)), "it has not come so far");
        let far = Savepoint::of_number(u64::MAX);
        assert!(!rollbacks.know(far, at(3)));
    }

    /// Then it is the caller who has to know.
    #[test]
    fn past_so_many_rollbacks_what_they_have_passed_is_not_told() {
        let mut rollbacks = Rollbacks { made: AFTER_UNKNOWN - 1, ..Rollbacks::default() };
        let known = rollbacks.savepoint(at(5));
        rollbacks.note(rollbacks.savepoint(at(2)));
        let unknown = rollbacks.savepoint(at(5));
        rollbacks.note(rollbacks.savepoint(at(2)));
        let is_known = [known, unknown].map(|s| rollbacks.know(s, at(9)));
        assert_eq!(is_known, [false, true]);
    }
}

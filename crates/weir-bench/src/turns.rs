//! Whose turn it is: all subjects of a comparison do all cases, in rounds ([`crate::rounds`]), of
//! which every second one goes backwards.
//!
//! They do so one after the other, or they stand side by side: then all are there at once, one at
//! work while the others are stopped, and each case runs on all of them, in rounds, before the
//! next. What a minute of the machine is like, all share then.

use std::collections::BTreeSet;

use crate::error::{Error, Result};

/// A subject's turn in a round.
#[derive(Debug)]
pub struct Turn<'a, S> {
    /// From 1.
    pub round: u32,
    /// Who.
    pub subject: &'a S,
}

impl<S> Clone for Turn<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Turn<'_, S> {}

/// How turns follow one another.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// How often each subject does each case.
    pub rounds: u32,
    /// Whether each case runs on all subjects before the next, instead of all cases on a subject,
    /// which is made ready anew in each round.
    pub side_by_side: bool,
}

impl Order {
    /// How often all subjects are made ready.
    pub fn preparations(self) -> u32 {
        if self.side_by_side { 1 } else { self.rounds }
    }
}

/// Several subjects that all do the same cases.
pub trait Comparison {
    /// Who is compared.
    type Subject;
    /// What each does.
    type Case: Copy;
    /// A subject that is ready to work.
    type Ready;

    /// Whether an interrupt ends it.
    fn is_stopped(&self) -> bool;
    /// Makes a subject ready.
    ///
    /// # Errors
    /// The subject can't do anything.
    fn prepare(&mut self, turn: Turn<'_, Self::Subject>) -> Result<Self::Ready>;
    /// Does a case and keeps what came of it, unless an interrupt comes first.
    ///
    /// # Errors
    /// The subject can't go on.
    fn case(
        &mut self,
        ready: &mut Self::Ready,
        turn: Turn<'_, Self::Subject>,
        case: Self::Case,
    ) -> Result<()>;
    /// Stops all that a subject does, so that others may work.
    ///
    /// # Errors
    /// It is gone.
    fn pause(&self, ready: &Self::Ready) -> Result<()>;
    /// Has it go on.
    ///
    /// # Errors
    /// It is gone.
    fn resume(&self, ready: &Self::Ready) -> Result<()>;
    /// Ends a subject in order.
    ///
    /// # Errors
    /// It doesn't end so.
    fn end(&mut self, ready: Self::Ready) -> Result<()>;
    /// Keeps an error in all runs of `turns` that were not made.
    ///
    /// # Errors
    /// One that makes no sense to go on with.
    fn failed(&mut self, turns: &[Turn<'_, Self::Subject>], error: Error) -> Result<()>;
}

/// Has all subjects do all cases, until an interrupt. What fails does not keep the rest from
/// running.
///
/// # Errors
/// Those of [`Comparison::failed`].
pub fn compare<C: Comparison>(
    comparison: &mut C,
    subjects: &[C::Subject],
    cases: &[C::Case],
    order: Order,
) -> Result<()> {
    match order.side_by_side {
        true => side_by_side(comparison, subjects, cases, order.rounds),
        false => one_after_the_other(comparison, subjects, cases, order.rounds),
    }
}

fn one_after_the_other<C: Comparison>(
    comparison: &mut C,
    subjects: &[C::Subject],
    cases: &[C::Case],
    rounds: u32,
) -> Result<()> {
    for (round, subject) in turns(rounds, subjects) {
        if comparison.is_stopped() {
            break;
        }
        // Nobody pays for what the one before has left to be written.
        rustix::fs::sync();
        let turn = Turn { round, subject };
        let done = comparison.prepare(turn).and_then(|mut ready| {
            cases.iter().try_for_each(|&case| comparison.case(&mut ready, turn, case))?;
            comparison.end(ready)
        });
        settled(comparison, done, &[turn])?;
    }
    Ok(())
}

fn side_by_side<C: Comparison>(
    comparison: &mut C,
    subjects: &[C::Subject],
    cases: &[C::Case],
    rounds: u32,
) -> Result<()> {
    let all_turns = |subject| (1..=rounds).map(|round| Turn { round, subject }).collect::<Vec<_>>();
    let mut standing = Vec::new();
    for subject in subjects {
        rustix::fs::sync();
        let prepared = match comparison.is_stopped() {
            true => Err(Error::Interrupted),
            false => comparison.prepare(Turn { round: 1, subject }),
        };
        let paused = prepared.and_then(|ready| comparison.pause(&ready).map(|()| ready));
        let ready = settled(comparison, paused, &all_turns(subject))?;
        standing.push((subject, ready));
    }
    for &case in cases {
        let places: Vec<_> = (0..standing.len()).collect();
        for (round, &place) in turns(rounds, &places) {
            let (subject, Some(ready)) = &mut standing[place] else { continue };
            rustix::fs::sync();
            let done = comparison.resume(ready).and_then(|()| {
                comparison.case(ready, Turn { round, subject }, case)?;
                comparison.pause(ready)
            });
            if settled(comparison, done, &all_turns(subject))?.is_none() {
                standing[place].1 = None;
            }
        }
    }
    for (subject, ready) in standing {
        let Some(ready) = ready else { continue };
        let done = comparison.resume(&ready).and_then(|()| comparison.end(ready));
        settled(comparison, done, &all_turns(subject))?;
    }
    Ok(())
}

/// What was done; an error of it is kept, unless it comes of an interrupt, which ends what is
/// starting, too.
fn settled<C: Comparison, T>(
    comparison: &mut C,
    done: Result<T>,
    turns: &[Turn<'_, C::Subject>],
) -> Result<Option<T>> {
    match done {
        Ok(done) => return Ok(Some(done)),
        Err(_) if comparison.is_stopped() => {}
        Err(error) => comparison.failed(turns, error)?,
    }
    Ok(None)
}

/// Everybody's turns, in order: all in each round, backwards in every second one, with the round's
/// number, from 1.
pub fn turns<T>(rounds: u32, of: &[T]) -> impl Iterator<Item = (u32, &T)> {
    let place = |round: u32, turn| if round.is_multiple_of(2) { of.len() - 1 - turn } else { turn };
    let round = move |round| (0..of.len()).map(move |turn| (round, &of[place(round, turn)]));
    (1..=rounds).flat_map(round)
}

/// Each case has one line of a table for each subject: of those that are named, one that is named
/// twice would be taken for a round.
///
/// # Errors
/// Which it is.
pub fn refuse_twice(names: impl IntoIterator<Item = String>) -> Result<()> {
    let mut seen = BTreeSet::new();
    match names.into_iter().find(|name| !seen.insert(name.clone())) {
        Some(twice) => Err(Error::Usage(format!("{twice}: named twice; use --rounds"))),
        None => Ok(()),
    }
}

/// What is told when a turn begins: whose it is, in which of several rounds, and what comes first.
pub fn announcement(name: &str, round: u32, rounds: u32, first: &str) -> String {
    let of_rounds = if rounds > 1 { format!(", round {round} of {rounds}") } else { String::new() };
    format!("--- {name}{of_rounds}: {first}")
}

/// Those of `all` runs that were not made.
pub fn missing<T>(
    all: impl Iterator<Item = T>,
    made: &[T],
    is_same: impl Fn(&T, &T) -> bool,
) -> Vec<T> {
    all.filter(|run| !made.iter().any(|other| is_same(run, other))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes down what happens to two subjects, `a` and `b`; what `fails` fails.
    #[derive(Default)]
    struct Diary {
        events: Vec<String>,
        fails: &'static str,
        stops: &'static str,
    }

    impl Diary {
        fn note(&mut self, event: String) -> Result<()> {
            let fails = event == self.fails;
            self.events.push(event);
            if fails { Err(Error::Usage("gone".into())) } else { Ok(()) }
        }
    }

    impl Comparison for Diary {
        type Subject = &'static str;
        type Case = u32;
        type Ready = &'static str;

        fn is_stopped(&self) -> bool {
            self.events.iter().any(|event| event == self.stops)
        }

        fn prepare(&mut self, turn: Turn<'_, &'static str>) -> Result<&'static str> {
            self.note(format!("{}{} begins", turn.subject, turn.round))?;
            Ok(turn.subject)
        }

        fn case(
            &mut self,
            _: &mut &'static str,
            turn: Turn<'_, &'static str>,
            case: u32,
        ) -> Result<()> {
            if self.is_stopped() {
                return Ok(());
            }
            self.note(format!("{}{} does {case}", turn.subject, turn.round))
        }

        fn pause(&self, _: &&'static str) -> Result<()> {
            Ok(())
        }

        fn resume(&self, _: &&'static str) -> Result<()> {
            Ok(())
        }

        fn end(&mut self, ready: &'static str) -> Result<()> {
            self.note(format!("{ready} ends"))
        }

        fn failed(&mut self, turns: &[Turn<'_, &'static str>], _: Error) -> Result<()> {
            let turns = turns.iter().map(|turn| format!("{}{}", turn.subject, turn.round));
            self.events.push(format!("{} failed", turns.collect::<Vec<_>>().join(" ")));
            Ok(())
        }
    }

    fn diary(side_by_side: bool, fails: &'static str, stops: &'static str) -> Vec<String> {
        let mut diary = Diary { events: Vec::new(), fails, stops };
        let order = Order { rounds: 2, side_by_side };
        compare(&mut diary, &["a", "b"], &[7, 8], order).unwrap();
        diary.events
    }

    #[test]
    fn one_after_the_other_does_all_cases() {
        let expected = "a1 begins, a1 does 7, a1 does 8, a ends, b1 begins, b1 does 7, b1 does 8, b ends, \
                        b2 begins, b2 does 7, b2 does 8, b ends, a2 begins, a2 does 7, a2 does 8, a ends";
        assert_eq!(diary(false, "", "").join(", "), expected);
        let expected = "a1 begins, a1 does 7, a1 failed, b1 begins, b1 does 7, b1 does 8, b ends, \
                        b2 begins, b2 does 7, b2 does 8, b ends, a2 begins, a2 does 7, a2 does 8, a ends";
        assert_eq!(diary(false, "a1 does 7", "").join(", "), expected);
    }

    #[test]
    fn side_by_side_each_case_has_all_its_rounds_first() {
        let expected = "a1 begins, b1 begins, a1 does 7, b1 does 7, b2 does 7, a2 does 7, \
                        a1 does 8, b1 does 8, b2 does 8, a2 does 8, a ends, b ends";
        assert_eq!(diary(true, "", "").join(", "), expected);
        let expected = "a1 begins, b1 begins, a1 does 7, a1 a2 failed, b1 does 7, b2 does 7, \
                        b1 does 8, b2 does 8, b ends";
        assert_eq!(diary(true, "a1 does 7", "").join(", "), expected);
        let expected = "a1 begins, a1 a2 failed, b1 begins, b1 does 7, b2 does 7, \
                        b1 does 8, b2 does 8, b ends";
        assert_eq!(diary(true, "a1 begins", "").join(", "), expected);
    }

    #[test]
    fn an_interrupt_ends_all_in_order_and_is_no_failure() {
        assert_eq!(diary(false, "", "a1 does 7").join(", "), "a1 begins, a1 does 7, a ends");
        let expected = "a1 begins, b1 begins, a1 does 7, a ends, b ends";
        assert_eq!(diary(true, "", "a1 does 7").join(", "), expected);
        assert_eq!(diary(true, "", "a1 begins").join(", "), "a1 begins, a ends");
        assert_eq!(diary(true, "a1 begins", "a1 begins").join(", "), "a1 begins");
    }

    #[test]
    fn all_have_their_turn_before_the_next_round() {
        let turns: Vec<_> = turns(3, &["weir", "innodb"]).collect();
        let backwards = [(2, &"innodb"), (2, &"weir")];
        assert_eq!(turns[..2], [(1, &"weir"), (1, &"innodb")]);
        assert_eq!(turns[2..4], backwards);
        assert_eq!(turns[4..], [(3, &"weir"), (3, &"innodb")]);
    }

    #[test]
    fn a_turn_tells_its_round_where_there_are_several() {
        assert_eq!(announcement("weir", 2, 3, "filling"), "--- weir, round 2 of 3: filling");
        assert_eq!(announcement("weir", 1, 1, "filling"), "--- weir: filling");
    }

    #[test]
    fn what_was_made_is_not_missing() {
        assert_eq!(missing([1, 2, 3].into_iter(), &[2], |a, b| a == b), [1, 3]);
    }
}

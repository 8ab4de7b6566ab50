//! Rounds: what is compared is measured several times, all in turn, because a machine may do far more in
//! one minute than in the next. Every second round goes backwards: nobody always comes first, or after the
//! same other. What counts is the median, and how far the rounds lie apart says how much.

/// Everybody's turns, in order: all in each round, backwards in every second one, with the round's number,
/// from 1.
pub fn turns<T>(rounds: u32, of: &[T]) -> impl Iterator<Item = (u32, &T)> {
    let place = |round: u32, turn| if round.is_multiple_of(2) { of.len() - 1 - turn } else { turn };
    let round = move |round| (0..of.len()).map(move |turn| (round, &of[place(round, turn)]));
    (1..=rounds).flat_map(round)
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

/// What the rounds gave of one of those that are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Median<T> {
    /// The round with the median rate; of an even number the slower one of the two.
    pub run: T,
    /// The lowest and the highest rate, of more than one round.
    pub range: Option<(f64, f64)>,
}

impl<T> Median<T> {
    /// The range as a table shows it.
    pub fn range_text(&self) -> String {
        self.range.map_or("-".into(), |(low, high)| format!("{low:.0}-{high:.0}"))
    }
}

/// For each name the median of its rounds, in the order in which the names come first.
pub fn medians<'a, T>(
    runs: impl IntoIterator<Item = (&'a str, T)>,
    rate: impl Fn(&T) -> f64,
) -> Vec<(&'a str, Median<T>)> {
    let mut of_names: Vec<(&str, Vec<T>)> = Vec::new();
    for (name, run) in runs {
        match of_names.iter_mut().find(|(other, _)| *other == name) {
            Some((_, runs)) => runs.push(run),
            None => of_names.push((name, vec![run])),
        }
    }
    let median = |mut runs: Vec<T>| {
        runs.sort_by(|a, b| rate(a).total_cmp(&rate(b)));
        let range = (runs.len() > 1).then(|| (rate(&runs[0]), rate(&runs[runs.len() - 1])));
        Median { run: runs.swap_remove((runs.len() - 1) / 2), range }
    };
    of_names.into_iter().map(|(name, runs)| (name, median(runs))).collect()
}

/// How `first` stands beside the fastest other in a case, where there is another.
pub fn verdict<T>(
    case: &str,
    first: &str,
    lines: &[(&str, Median<T>)],
    rate: impl Fn(&T) -> f64,
) -> Option<String> {
    let of = |median: &Median<T>| rate(&median.run);
    let (_, own) = lines.iter().find(|(name, _)| *name == first)?;
    let others = lines.iter().filter(|(name, _)| *name != first);
    let (name, best) = others.max_by(|(_, a), (_, b)| of(a).total_cmp(&of(b)))?;
    let ratio = (of(best) > 0.0).then(|| of(own) / of(best))?;
    Some(format!("{case}: {first} is at {ratio:.2}x of the fastest other, {name}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_compared_with_the_fastest_other() {
        let lines = |rates: &[(&'static str, f64)]| medians(rates.iter().copied(), |&rate| rate);
        let told = |rates| verdict("load", "a", &lines(rates), |&rate| rate);
        let expected = "load: a is at 0.50x of the fastest other, c\n";
        assert_eq!(told(&[("b", 1.0), ("a", 2.0), ("c", 4.0)]).as_deref(), Some(expected));
        for nothing in [&[("a", 2.0)][..], &[("b", 2.0)], &[("a", 2.0), ("b", 0.0)]] {
            assert_eq!(told(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn the_median_has_as_many_above_as_below() {
        let of = |rates: &[f64]| medians(rates.iter().map(|&rate| ("a", rate)), |&rate| rate);
        let median = |run, range| vec![("a", Median { run, range })];
        assert_eq!(of(&[9.0, 1.0, 2.0]), median(2.0, Some((1.0, 9.0))));
        assert_eq!(of(&[3.0, 1.0, 2.0, 4.0]), median(2.0, Some((1.0, 4.0))), "the slower one");
        assert_eq!(of(&[7.0]), median(7.0, None));
        assert_eq!(of(&[]), []);
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

    #[test]
    fn names_stay_in_their_order() {
        let runs = [("b", 1.0), ("a", 2.0), ("b", 3.0), ("a", 4.0)];
        let names: Vec<_> = medians(runs, |&rate| rate).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "a"]);
    }
}

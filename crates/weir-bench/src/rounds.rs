//! Rounds: what is compared is measured several times, all in turn, because a machine may do far
//! more in one minute than in the next. Every second round goes backwards: nobody always comes
//! first, or after the same other. What counts is the median, and how far the rounds lie apart says
//! how much.

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
    fn names_stay_in_their_order() {
        let runs = [("b", 1.0), ("a", 2.0), ("b", 3.0), ("a", 4.0)];
        let names: Vec<_> = medians(runs, |&rate| rate).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["b", "a"]);
    }
}

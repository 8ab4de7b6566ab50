//! The tables of experiments.

use super::{CaseReport, Experiment, Facts, Slope};
use crate::report::TextTable;

const GB: f64 = 1024.0 * 1024.0 * 1024.0;

type Column = (&'static str, &'static str, fn(&Facts) -> String);

const COLUMNS: [Column; 25] = [
    ("ips.av", "rows per second, mean of the seconds", |f| whole(f.rate_mean)),
    ("ips.99", "the rate that 99 % of the seconds reach", |f| whole(f.rate_99)),
    ("p1/av", "that, as a share of the mean", |f| two(f.jitter_99())),
    ("min/av", "the slowest second, as a share of the mean", |f| two(f.jitter_min())),
    ("rKB/i", "KB read from the device per row", |f| three(f.read_kb_per_row)),
    (
        "eKB/i",
        "KB of pages and of the log's growth per row by the engine's own count, without map and control; \
         wKB/i elsewhere is the kernel's",
        |f| three(f.write_kb_per_row),
    ),
    ("Mcpu/i", "microseconds of the engine's processor time per row", |f| two(f.cpu_us_per_row)),
    ("size", "GB on the device", |f| two(f.size_bytes as f64 / GB)),
    ("pages/s", "pages written per second", |f| whole(f.pages_mean)),
    ("peak", "the second with most of them, as a multiple of the mean", |f| two(f.pages_peak())),
    ("busy", "share of the time that a throttled device was at work", |f| two(f.busy)),
    ("pg/MB", "pages written per MB of redo", |f| two(f.pages_per_redo_mb)),
    ("age.max", "greatest checkpoint age, of what it may be", |f| two(f.age_max)),
    ("dirty.av", "dirty pages, share of the frames", |f| three(f.dirty_mean)),
    ("dirty.max", "the greatest of that", |f| three(f.dirty_max)),
    ("limit", "what it may be", |f| three(f.dirty_limit)),
    ("w.age", "pages written for the log's sake", |f| whole(f.pages_by_reason[0])),
    ("w.dirty", "pages written for the dirty limit's sake", |f| whole(f.pages_by_reason[1])),
    ("w.free", "pages written to free frames", |f| whole(f.pages_by_reason[2])),
    ("paced.s", "seconds that clients were held back by pacing", |f| two(f.waits_seconds[0])),
    ("full.s", "seconds that clients waited for a full log", |f| two(f.waits_seconds[2])),
    ("trend", "change of the rate from beginning to end, of the mean", |f| signed(f.trend)),
    ("slope", "change of the rate per 10 M rows, of the mean (95 %)", |f| of(f.slopes.all)),
    ("slope.2", "that of the second half of the rows", |f| of(f.slopes.late)),
    ("slope.eq", "that, at equal pages read and written per row", |f| of(f.slopes.late_alike)),
];

/// Names of the columns that an experiment shows.
fn shown(experiment: Experiment) -> &'static [&'static str] {
    match experiment {
        Experiment::RedoSize => &[
            "ips.av",
            "p1/av",
            "rKB/i",
            "eKB/i",
            "Mcpu/i",
            "size",
            "age.max",
            "dirty.max",
            "paced.s",
            "full.s",
        ],
        Experiment::DirtyLimit => &[
            "ips.av",
            "ips.99",
            "p1/av",
            "min/av",
            "eKB/i",
            "limit",
            "dirty.av",
            "dirty.max",
            "w.age",
            "w.dirty",
            "w.free",
        ],
        Experiment::NothingToTune => &[
            "ips.av", "ips.99", "p1/av", "min/av", "eKB/i", "pages/s", "peak", "pg/MB", "age.max",
            "paced.s", "full.s",
        ],
        Experiment::Decay => &[
            "ips.av",
            "ips.99",
            "p1/av",
            "min/av",
            "trend",
            "slope",
            "slope.2",
            "slope.eq",
            "rKB/i",
            "eKB/i",
            "Mcpu/i",
            "size",
            "age.max",
            "dirty.max",
        ],
        Experiment::Wave => &[
            "ips.av",
            "ips.99",
            "p1/av",
            "min/av",
            "pages/s",
            "peak",
            "busy",
            "pg/MB",
            "age.max",
            "dirty.max",
            "paced.s",
            "full.s",
        ],
    }
}

/// Names of the columns that it shows of the step in which the data has its size.
fn shown_steady(experiment: Experiment) -> &'static [&'static str] {
    match experiment {
        Experiment::RedoSize => {
            &["ips.av", "p1/av", "min/av", "eKB/i", "pg/MB", "peak", "busy", "age.max"]
        }
        _ => &[],
    }
}

fn columns(names: &'static [&'static str]) -> impl Iterator<Item = &'static Column> {
    names.iter().map(|name| {
        COLUMNS.iter().find(|column| column.0 == *name).expect("only known columns are shown")
    })
}

/// The tables of an experiment: of the step it is about, and, where there is one, of that in which
/// the data has its size.
pub fn tables(experiment: Experiment, cases: &[CaseReport]) -> String {
    let mut text = table(shown(experiment), cases, |case| Some(&case.facts));
    let steady = shown_steady(experiment);
    if !steady.is_empty() {
        text.push_str("\nupdates with the data at its size, without their first fifth\n");
        text.push_str(&table(steady, cases, |case| case.steady.as_ref()));
        text.push_str("\nthe same at three quarters of that rate\n");
        text.push_str(&table(steady, cases, |case| case.at_rate.as_ref()));
        text.push_str(
            "\ninserts, each with the delete of the oldest row, without their first fifth\n",
        );
        text.push_str(&table(steady, cases, |case| case.churn.as_ref()));
    }
    text
}

fn table(
    names: &'static [&'static str],
    cases: &[CaseReport],
    facts: fn(&CaseReport) -> Option<&Facts>,
) -> String {
    let heads: Vec<&str> =
        std::iter::once("case").chain(columns(names).map(|column| column.0)).collect();
    let mut table = TextTable::new(&heads);
    for case in cases {
        let Some(facts) = facts(case) else { continue };
        let cells = columns(names).map(|column| column.2(facts));
        table.row(case.label.as_str(), std::iter::once(case.label.clone()).chain(cells));
    }
    table.render(&["case"])
}

/// What the columns of an experiment mean.
pub fn legend(experiment: Experiment) -> String {
    let (shown, steady) = (shown(experiment), shown_steady(experiment));
    let all =
        COLUMNS.iter().filter(|column| shown.contains(&column.0) || steady.contains(&column.0));
    all.map(|(name, meaning, _)| format!("  {name:<9} {meaning}\n")).collect()
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

fn two(value: f64) -> String {
    format!("{value:.2}")
}

fn three(value: f64) -> String {
    format!("{value:.3}")
}

fn of(slope: Option<Slope>) -> String {
    let percent =
        |slope: Slope| format!("{:+.2}±{:.2} %", 100.0 * slope.share, 100.0 * slope.margin);
    slope.map_or("-".to_string(), percent)
}

fn signed(value: f64) -> String {
    format!("{:+.1} %", value * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_its_table_and_every_column_a_meaning() {
        for experiment in Experiment::ALL {
            let facts = Facts { rate_mean: 1000.0, rate_99: 900.0, ..Facts::default() };
            let steady = Some(Facts { pages_per_redo_mb: 12.34, ..Facts::default() });
            let at_rate = Some(Facts { pages_per_redo_mb: 56.78, ..Facts::default() });
            let churn = Some(Facts { pages_per_redo_mb: 34.56, ..Facts::default() });
            let (label, file) = ("one".into(), "one.json".into());
            let case = CaseReport { label, file, facts, steady, at_rate, churn };
            let text = tables(experiment, &[case]);
            assert!(!text.contains("wKB/i"), "{text}: that is measured otherwise");
            assert!(text.starts_with("case") && text.contains("0.90"), "{text}");
            for steady in ["12.34", "56.78", "34.56"] {
                assert_eq!(text.contains(steady), experiment == Experiment::RedoSize, "{text}");
            }
            assert!(legend(experiment).lines().count() >= shown(experiment).len());
        }
    }
}

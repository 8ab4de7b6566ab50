//! Tables: what ran, and what it achieved, with figures relative to the first run.

use std::fmt::Write;

use weir_bench::report::{COLUMNS_NOTE, Cell, Row, TEXT_COLUMNS, TextTable};

use crate::html::escape;
use crate::page::RUN_COLOURS;
use crate::source::Source;

/// Columns of which more is better, and those of which less is; the rest is neither.
const MORE_IS_BETTER: &[&str] = &[
    "ips.av", "ips.99", "QPS.av", "QPS.99", "Mrows/s", "tpmC", "tps.av", "tps.99", "99/av",
    "rows/s",
];
const LESS_IS_BETTER: &[&str] = &[
    "r/i", "rKB/i", "wKB/i", "Mcpu/i", "size", "rss", "rKB/q", "CPU/q", "secs", "rKB/o", "rGB",
    "Mcpu/o", "mean.us", "p50.us", "p99.us", "p99.9.us", "max.us", "seconds", "retry/s", "Mcpu/t",
    "rKB/t", "wKB/t", "p50", "p99", "max",
];
/// Differences below this are not coloured.
const NOTABLE: f64 = 0.05;

/// What ran: a row for each property, a column for each run.
pub fn runs(sources: &[Source]) -> String {
    let mut text = String::from("<div class=wide><table class=runs><thead><tr><th></th>");
    for (number, source) in sources.iter().enumerate() {
        let name = escape(&source.name);
        let _ = write!(text, "<th scope=col>{}{name}</th>", chip(number));
    }
    text += "</tr></thead><tbody>";
    let all = sources.iter().flat_map(|source| &source.properties).map(|(name, _)| *name);
    for name in distinct(all) {
        let values: Vec<&str> = sources.iter().map(|source| source.property(name)).collect();
        // What one benchmark has and another hasn't is seen anyway.
        let class = match distinct(values.iter().filter(|value| !value.is_empty())).len() {
            0 => continue,
            1 => "",
            _ => " class=differs",
        };
        let _ = write!(text, "<tr{class}><th scope=row>{name}</th>");
        for value in values {
            let _ = write!(text, "<td>{}</td>", escape(value));
        }
        text += "</tr>";
    }
    text + "</tbody></table></div>"
}

/// A run's mark, in its colour; hollow where its lines are dashed.
fn chip(run: usize) -> String {
    let dash = if run < RUN_COLOURS { "" } else { " dash1" };
    format!("<span class=\"chip run{}{dash}\"></span>", run % RUN_COLOURS)
}

/// What they achieved: the field's tables, with a line for each step and run.
pub fn results(sources: &[Source]) -> String {
    let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let all = sources.iter().flat_map(|source| &source.tables).map(|(title, _)| *title);
    let mut text = String::new();
    for title in distinct(all) {
        let of_title = |source: &Source| {
            source.tables.iter().find(|(other, _)| *other == title).map(|(_, table)| table.clone())
        };
        let tables: Vec<_> = sources.iter().map(of_title).collect();
        let _ = write!(text, "<h3>{title}</h3>{}", side_by_side(&names, &tables));
    }
    text + &legend(sources)
}

/// What the columns mean, for who asks.
fn legend(sources: &[Source]) -> String {
    let mut text = String::from("<details><summary>What the columns mean</summary>");
    for benchmark in distinct(sources.iter().map(|source| source.benchmark)) {
        text += "<dl>";
        for (name, meaning) in benchmark.columns() {
            let _ = write!(text, "<dt>{name}</dt><dd>{}</dd>", escape(meaning));
        }
        text += "</dl>";
    }
    text + "<p>" + COLUMNS_NOTE + "</p></details>"
}

/// Each of them once, in the order in which they come first.
pub(crate) fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for one in all {
        if !distinct.contains(&one) {
            distinct.push(one);
        }
    }
    distinct
}

fn side_by_side(names: &[&str], tables: &[Option<TextTable>]) -> String {
    let Some(first) = tables.iter().flatten().next() else { return String::new() };
    // Inserts beside queries are as many as were asked for: more are no merit.
    let asked = first.heads.iter().any(|head| head == "rate");
    let mut text = String::from("<div class=wide><table class=figures><thead><tr>");
    for head in &first.heads {
        let _ = write!(text, "<th scope=col{}>{head}</th>", class_of(head));
    }
    text += if names.len() > 1 {
        "<th scope=col class=text>run</th></tr></thead><tbody>"
    } else {
        "</tr></thead><tbody>"
    };
    for key in distinct(tables.iter().flatten().flat_map(|table| &table.rows).map(|row| &row.key)) {
        let lines = tables.iter().enumerate().filter_map(|(run, table)| {
            let row = table.as_ref()?.rows.iter().find(|row| row.key == *key)?;
            Some((run, row))
        });
        let mut base: Option<&Row> = None;
        for (run, row) in lines {
            let class = if base.is_none() { " class=first" } else { "" };
            let _ = write!(text, "<tr{class}>");
            let chip = chip(run);
            for (place, (head, cell)) in first.heads.iter().zip(&row.cells).enumerate() {
                let against = base.and_then(|base| base.cells[place].value);
                // On narrow screens the run's name is out of sight.
                let mark = if place == 0 && names.len() > 1 { &chip } else { "" };
                let is_judged = !(asked && head.starts_with("ips."));
                text += &figure(head, cell, against, mark, is_judged);
            }
            if names.len() > 1 {
                let name = escape(names[run]);
                let _ = write!(text, "<td class=text>{chip}{name}</td>");
            }
            text += "</tr>";
            base = base.or(Some(row));
        }
    }
    text + "</tbody></table></div>"
}

fn class_of(head: &str) -> &'static str {
    if TEXT_COLUMNS.contains(&head) { " class=text" } else { "" }
}

/// A cell with a mark in front, and below it what it is of the first run's figure; whether that is
/// better is said of what may be judged.
fn figure(head: &str, cell: &Cell, base: Option<f64>, mark: &str, is_judged: bool) -> String {
    let mut text = format!("<td{}>{mark}{}", class_of(head), escape(&cell.text));
    if let Some((value, base)) = cell.value.zip(base.filter(|base| *base > 0.0)) {
        let ratio = value / base;
        let class = match verdict(head, ratio).filter(|_| is_judged) {
            Some(true) => " class=better",
            Some(false) => " class=worse",
            None => "",
        };
        let _ = write!(text, "<small{class}>{}</small>", times(ratio));
    }
    text + "</td>"
}

/// Whether a figure that is `ratio` of another is better; `None` when that says nothing.
fn verdict(head: &str, ratio: f64) -> Option<bool> {
    let notable = (ratio - 1.0).abs() >= NOTABLE;
    let more = MORE_IS_BETTER.contains(&head);
    (notable && (more || LESS_IS_BETTER.contains(&head))).then_some((ratio > 1.0) == more)
}

fn times(ratio: f64) -> String {
    if ratio >= 99.5 { format!("{ratio:.0}\u{d7}") } else { format!("{ratio:.2}\u{d7}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Benchmark;
    use crate::timeline::Timeline;

    #[test]
    fn what_differs_is_told_apart_from_what_a_run_has_not() {
        let source = |rows: &str| Source {
            name: "a".into(),
            benchmark: Benchmark::Insert,
            engine: "weir".into(),
            properties: vec![("memory", "1G".into()), ("rows", rows.into()), ("device", "".into())],
            tables: Vec::new(),
            timeline: Timeline::default(),
        };
        let differ = |rows: &[&str]| {
            let sources: Vec<_> = rows.iter().map(|rows| source(rows)).collect();
            let text = runs(&sources);
            assert!(text.contains("memory") && !text.contains("device"), "{text}");
            text.contains("<tr class=differs><th scope=row>rows")
        };
        assert!(differ(&["1M", "2M", ""]));
        assert!(!differ(&["1M", "", "1M"]));
    }

    #[test]
    fn marks_of_runs_in_the_same_colour_differ() {
        assert!(chip(0).contains("\"chip run0\"") && chip(5).contains("\"chip run5\""));
        assert!(chip(6).contains("\"chip run0 dash1\""));
    }

    #[test]
    fn better_depends_on_the_column() {
        assert_eq!(verdict("ips.av", 1.2), Some(true));
        assert_eq!(verdict("wKB/i", 1.2), Some(false));
        assert_eq!(verdict("wKB/i", 0.5), Some(true));
        assert_eq!(verdict("wKB/i", 1.01), None);
        assert_eq!(verdict("cpu", 3.0), None);
    }

    #[test]
    fn a_rate_that_was_asked_for_is_not_judged() {
        let table = |heads: &[&str], value: f64| {
            let cell = Cell { text: value.to_string(), value: Some(value) };
            let mut table = TextTable::new(heads);
            table.row("step", vec![cell; heads.len()]);
            Some(table)
        };
        let text = |heads: &[&str]| {
            let cells = [table(heads, 100.0), table(heads, 200.0)];
            side_by_side(&["a", "b"], &cells)
        };
        assert!(text(&["ips.av"]).contains("<small class=better>2.00"));
        let asked = text(&["rate", "ips.av"]);
        assert!(asked.contains("<small>2.00") && !asked.contains("better"), "{asked}");
    }

    #[test]
    fn relative_figures_come_from_unrounded_ones() {
        let cell = Cell { text: "0.00".into(), value: Some(0.003) };
        assert!(
            figure("size", &cell, Some(0.001), "", true)
                .contains("<small class=worse>3.00\u{d7}</small>")
        );
        assert!(!figure("size", &cell, None, "", true).contains("small"));
        assert!(
            !figure("size", &cell, Some(0.0), "", true).contains("small"),
            "nothing to compare with"
        );
    }
}

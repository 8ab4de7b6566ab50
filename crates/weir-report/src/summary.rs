//! Tables: what ran, and what it achieved, with figures relative to the first run.

use std::fmt::Write;

use weir_bench::engine::DiskChoice;
use weir_bench::quantity::{format_bytes, format_count};
use weir_bench::report::{
    COLUMNS, COLUMNS_NOTE, Cell, Row, TEXT_COLUMNS, TextTable, tables, unwritten,
};
use weir_bench::{EngineKind, Run, Settings};

use crate::html::escape;
use crate::page::{RUN_COLOURS, Source};

/// Columns of which more is better, and those of which less is; the rest is neither.
const MORE_IS_BETTER: &[&str] = &["ips.av", "ips.99", "QPS.av", "QPS.99", "Mrows/s"];
const LESS_IS_BETTER: &[&str] = &[
    "r/i", "rKB/i", "wKB/i", "Mcpu/i", "size", "rss", "rKB/q", "CPU/q", "secs", "rKB/o", "rGB",
    "Mcpu/o", "mean.us", "p50.us", "p99.us", "p99.9.us", "max.us",
];
/// Differences below this are not coloured.
const NOTABLE: f64 = 0.05;

/// What ran: a row for each property, a column for each run.
pub fn runs(sources: &[Source]) -> String {
    let mut text = String::from("<div class=wide><table class=runs><thead><tr><th></th>");
    for (number, source) in sources.iter().enumerate() {
        let name = escape(&source.name);
        let _ = write!(
            text,
            "<th scope=col><span class=\"chip run{}\"></span>{name}</th>",
            number % RUN_COLOURS
        );
    }
    text += "</tr></thead><tbody>";
    let columns: Vec<_> = sources.iter().map(|source| properties(&source.run)).collect();
    for (place, (name, _)) in columns[0].iter().enumerate() {
        let values: Vec<&str> = columns.iter().map(|column| column[place].1.as_str()).collect();
        if values.iter().all(|value| value.is_empty()) {
            continue;
        }
        let differs = values.iter().any(|value| *value != values[0]);
        let class = if differs { " class=differs" } else { "" };
        let _ = write!(text, "<tr{class}><th scope=row>{name}</th>");
        for value in values {
            let _ = write!(text, "<td>{}</td>", escape(value));
        }
        text += "</tr>";
    }
    text + "</tbody></table></div>"
}

fn properties(run: &Run) -> Vec<(&'static str, String)> {
    let (settings, place) = (&run.settings, &run.environment);
    let mut remarks = run.engine.notes.clone();
    if run.interrupted {
        remarks.push("interrupted: the step under way is not whole, or left out".into());
    }
    remarks.extend(place.warnings().into_iter().map(String::from));
    let steps: Vec<_> = settings.steps.iter().map(|step| step.to_string()).collect();
    let gib = place.memory_bytes as f64 / f64::from(1 << 30);
    vec![
        ("engine", format!("{} {}", run.engine.name, run.engine.version)),
        ("clients", settings.clients.to_string()),
        ("rows", format_count(settings.rows)),
        ("memory", format_bytes(settings.memory_bytes)),
        ("redo", format_bytes(settings.redo_bytes)),
        ("durability", settings.durability.to_string()),
        ("device", device(settings)),
        ("flushing", flushing(settings)),
        ("steps", steps.join(", ")),
        ("configured", run.engine.settings.join(", ")),
        ("machine", format!("{}, {} cores, {gib:.0} GiB", place.cpu, place.cores)),
        ("system", format!("{}, Linux {}, {}", place.system, place.kernel, place.filesystem)),
        ("started", place.started.clone()),
        ("unwritten at the end", unwritten(run).unwrap_or_default()),
        ("remarks", remarks.join("; ")),
    ]
}

/// The device as Weir was told of it, and how it reads and writes; other engines weren't told.
fn device(settings: &Settings) -> String {
    let disk = &settings.disk;
    if settings.engine != EngineKind::Weir && *disk == DiskChoice::default() {
        return String::new();
    }
    let first = disk.load_device.as_ref();
    let first = first.map_or(String::new(), |device| format!(" ({device} at first)"));
    format!("{}{first}, I/O {}", disk.device, disk.io)
}

/// When Weir writes pages, where it is in this process: others see to it themselves.
fn flushing(settings: &Settings) -> String {
    if settings.engine != EngineKind::Weir {
        return String::new();
    }
    let limit = settings.flush.dirty_limit_percent;
    let limit = limit.map_or(String::new(), |percent| format!(", at most {percent} % dirty"));
    format!("{}{limit}", settings.flush.policy)
}

/// What they achieved: the field's tables, with a line for each step and run.
pub fn results(sources: &[Source]) -> String {
    let of_runs: Vec<_> = sources.iter().map(|source| tables(&source.run)).collect();
    let names: Vec<&str> = sources.iter().map(|source| source.name.as_str()).collect();
    let mut titles: Vec<&str> = Vec::new();
    for (title, _) in of_runs.iter().flatten() {
        if !titles.contains(title) {
            titles.push(title);
        }
    }
    let mut text = String::new();
    for title in titles {
        let of_title = |tables: &Vec<(&str, TextTable)>| {
            tables.iter().find(|(other, _)| *other == title).map(|(_, table)| table.clone())
        };
        let tables: Vec<_> = of_runs.iter().map(of_title).collect();
        let _ = write!(text, "<h3>{title}</h3>{}", side_by_side(&names, &tables));
    }
    text + &legend()
}

/// What the columns mean, for who asks.
fn legend() -> String {
    let mut text = String::from("<details><summary>What the columns mean</summary><dl>");
    for (name, meaning) in COLUMNS {
        let _ = write!(text, "<dt>{name}</dt><dd>{}</dd>", escape(meaning));
    }
    text + "</dl><p>" + COLUMNS_NOTE + "</p></details>"
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
    for key in keys(tables) {
        let lines = tables.iter().enumerate().filter_map(|(run, table)| {
            let row = table.as_ref()?.rows.iter().find(|row| row.key == key)?;
            Some((run, row))
        });
        let mut base: Option<&Row> = None;
        for (run, row) in lines {
            let class = if base.is_none() { " class=first" } else { "" };
            let _ = write!(text, "<tr{class}>");
            let chip = format!("<span class=\"chip run{}\"></span>", run % RUN_COLOURS);
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

/// All keys, in the order of the first run that has them.
fn keys(tables: &[Option<TextTable>]) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    for row in tables.iter().flatten().flat_map(|table| &table.rows) {
        if !keys.contains(&row.key) {
            keys.push(row.key.clone());
        }
    }
    keys
}

fn class_of(head: &str) -> &'static str {
    if TEXT_COLUMNS.contains(&head) { " class=text" } else { "" }
}

/// A cell with a mark in front, and below it what it is of the first run's figure; whether that is better
/// is said of what may be judged.
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
    use weir_bench::engine::FlushChoice;

    #[test]
    fn nothing_is_said_of_how_other_engines_flush() {
        let settings = |engine: EngineKind| Settings {
            engine,
            clients: 1,
            rows: 1,
            steps: Vec::new(),
            memory_bytes: 0,
            redo_bytes: 0,
            durability: weir_bench::Durability::Write,
            delete: false,
            seed: 1,
            disk: DiskChoice::default(),
            status_listen: None,
            flush: FlushChoice { dirty_limit_percent: Some(50), ..FlushChoice::default() },
            server: None,
        };
        let weir = settings(EngineKind::Weir);
        assert_eq!(flushing(&weir), "governor, at most 50 % dirty");
        assert_eq!(device(&weir), "fast, I/O auto");
        let server = settings(EngineKind::Server);
        assert_eq!(flushing(&server) + &device(&server), "");
        let device_of = DiskChoice { device: "nvme".into(), ..DiskChoice::default() };
        let simulated = Settings { disk: device_of, ..settings(EngineKind::Model) };
        assert_eq!(flushing(&simulated) + &device(&simulated), "nvme, I/O auto");
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

//! The document.

use serde::Serialize;
use weir_bench::Run;

use crate::charts::{CHARTS, Chart};
use crate::html::{escape, json_in_script};
use crate::summary;
use crate::timeline::Timeline;

const STYLE: &str = include_str!("page.css");
const CHART_SCRIPT: &str = include_str!("chart.js");
const PAGE_SCRIPT: &str = include_str!("page.js");

/// Colours that runs have, before they begin again with another dash.
pub(crate) const RUN_COLOURS: usize = 6;

/// A run, and what to call it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name on the page.
    pub name: String,
    /// What it measured.
    pub run: Run,
}

/// What the scripts get.
#[derive(Serialize)]
struct Data<'a> {
    charts: Vec<&'a Chart>,
    runs: Vec<RunData<'a>>,
}

#[derive(Serialize)]
struct RunData<'a> {
    name: &'a str,
    engine: &'a str,
    #[serde(flatten)]
    timeline: &'a Timeline,
}

/// The page for these runs, the first of which the others are compared with.
///
/// # Panics
/// Without any run.
pub fn page(sources: &[Source]) -> String {
    assert!(!sources.is_empty(), "a report is about at least one run");
    let timelines: Vec<_> = sources.iter().map(|source| Timeline::of(&source.run)).collect();
    let recorded = |chart: &&Chart| {
        let mut lines = chart.lines.iter();
        lines.any(|line| timelines.iter().any(|t| t.columns.contains_key(line.column)))
    };
    let (charts, absent): (Vec<_>, Vec<_>) = CHARTS.iter().partition(recorded);
    let runs = sources.iter().zip(&timelines).map(|(source, timeline)| RunData {
        name: &source.name,
        engine: &source.run.engine.name,
        timeline,
    });
    let data = Data { charts, runs: runs.collect() };
    let data = serde_json::to_string(&data).expect("numbers and texts can be written as JSON");
    let title = title(sources);
    let lead = lead(sources.len(), &absent);
    // Nothing is loaded, whatever the texts of a result may hold.
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'";
    format!(
        "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n\
         <meta http-equiv=Content-Security-Policy content=\"{policy}\">\n\
         <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
         <meta name=generator content=\"weir report {version}\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header><h1>{title}</h1><button id=theme type=button>Dark</button></header>\n\
         <main>\n<h2>Runs</h2>\n{runs}\n<h2>Results</h2>\n{results}\n\
         <h2>Every second</h2>\n{lead}<div id=controls></div>\n<div id=charts></div>\n</main>\n\
         <noscript><p>The charts need scripts.</p></noscript>\n\
         <script type=\"application/json\" id=data>{data}</script>\n\
         <script>\n{CHART_SCRIPT}</script>\n<script>\n{PAGE_SCRIPT}</script>\n\
         </body>\n</html>\n",
        version = env!("CARGO_PKG_VERSION"),
        runs = summary::runs(sources),
        results = summary::results(sources),
        data = json_in_script(&data),
    )
}

fn title(sources: &[Source]) -> String {
    let mut engines: Vec<&str> = Vec::new();
    for source in sources {
        if !engines.contains(&source.run.engine.name.as_str()) {
            engines.push(&source.run.engine.name);
        }
    }
    let runs = if sources.len() == 1 { "" } else { &format!(", {} runs", sources.len()) };
    escape(&format!("Insert Benchmark: {}{runs}", engines.join(", ")))
}

/// What a reader should know about the charts.
fn lead(runs: usize, absent: &[&Chart]) -> String {
    let mut text = String::from("<p>");
    if runs > 1 {
        text += "The panels of a chart have the same scales. ";
    }
    if runs > RUN_COLOURS {
        text += "Runs beyond the sixth have the colours of the first ones, and dashes. ";
    }
    text += "<span class=screen>Drag over a chart to look closer, double-click to go back; arrow \
             keys move the line, + and \u{2212} zoom.</span>";
    if !absent.is_empty() {
        let titles: Vec<_> = absent.iter().map(|chart| chart.title).collect();
        text += &format!(" Not recorded in these runs: {}.", titles.join(", "));
    }
    text + "</p>\n"
}

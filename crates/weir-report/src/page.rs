//! The document.

use serde::Serialize;

use crate::charts::{CHARTS, Chart};
use crate::html::{escape, json_in_script};
use crate::source::{Benchmark, Source};
use crate::summary::{self, distinct};
use crate::timeline::Timeline;

const STYLE: &str = include_str!("page.css");
const CHART_SCRIPT: &str = include_str!("chart.js");
const PAGE_SCRIPT: &str = include_str!("page.js");

/// Colours that runs have, before they begin again with another dash.
pub(crate) const RUN_COLOURS: usize = 6;

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
    benchmark: Benchmark,
    #[serde(flatten)]
    timeline: &'a Timeline,
}

/// How each page names its maker, in its first KiB.
const GENERATOR: &str = "<meta name=generator content=\"weir report ";

/// Whether a file that begins so is a page that this program has made, of whatever version.
pub fn is_page(beginning: &[u8]) -> bool {
    let first = &beginning[..beginning.len().min(1 << 10)];
    first.windows(GENERATOR.len()).any(|window| window == GENERATOR.as_bytes())
}

/// The page for these runs, the first of which the others are compared with.
///
/// # Panics
/// Without any run.
pub fn page(sources: &[Source]) -> String {
    assert!(!sources.is_empty(), "a report is about at least one run");
    let is_theirs = |chart: &&Chart| {
        let benchmark = chart.benchmark;
        benchmark.is_none() || sources.iter().any(|source| benchmark == Some(source.benchmark))
    };
    let recorded = |chart: &&Chart| {
        let mut lines = chart.lines.iter();
        lines.any(|line| sources.iter().any(|s| s.timeline.columns.contains_key(line.column)))
    };
    let (charts, absent): (Vec<_>, Vec<_>) = CHARTS.iter().filter(is_theirs).partition(recorded);
    let runs = sources.iter().map(|source| RunData {
        name: &source.name,
        engine: &source.engine,
        benchmark: source.benchmark,
        timeline: &source.timeline,
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
         {GENERATOR}{version}\">\n\
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
    let of_benchmark = |benchmark: Benchmark| {
        let of_it = sources.iter().filter(|source| source.benchmark == benchmark);
        let engines = distinct(of_it.map(|source| source.engine.as_str()));
        format!("{}: {}", benchmark.title(), engines.join(", "))
    };
    let benchmarks = distinct(sources.iter().map(|source| source.benchmark));
    let benchmarks: Vec<_> = benchmarks.into_iter().map(of_benchmark).collect();
    let runs = if sources.len() == 1 { "" } else { &format!(", {} runs", sources.len()) };
    escape(&format!("{}{runs}", benchmarks.join("; ")))
}

/// What a reader should know about the charts.
fn lead(runs: usize, absent: &[&Chart]) -> String {
    let mut text = String::from("<p>");
    if runs > 1 {
        text += "The panels of a chart have the same scales. ";
    }
    if runs > RUN_COLOURS {
        text +=
            "Runs beyond the sixth have the colours of the first ones, hollow marks and dashes. ";
    }
    text += "<span class=screen>Drag over a chart to look closer, double-click to go back; arrow \
             keys move the line, + and \u{2212} zoom.</span>";
    if !absent.is_empty() {
        let titles: Vec<_> = absent.iter().map(|chart| chart.title).collect();
        text += &format!(" Not recorded in these runs: {}.", titles.join(", "));
    }
    text + "</p>\n"
}

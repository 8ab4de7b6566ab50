//! Results of benchmarks as one page of HTML: several runs side by side, opened without a network.
//!
//! # How it proceeds
//! [`insert`] and [`tpcc`] make a [`source`] of what a benchmark has left. [`timeline`] turns each
//! run into columns, one value per second: rates from counters, in the units of the charts.
//! [`charts`] says which columns go into which chart. [`summary`] makes the tables, with figures
//! relative to the first run. [`page`] puts it all into one document: data as JSON, and beside it
//! the style and the script, which are files here (`page.css`, `chart.js`, `page.js`).
//!
//! # Why a script of our own
//! A page must open offline and be small enough to be sent around. The crates that make interactive
//! charts either refer to a content network or bring megabytes of script to each page; what is
//! needed here is a few lines per second with zoom and hover, in SVG so that it prints.
//!
//! # Invariants
//! - The page loads nothing: its content security policy forbids it.
//! - Texts from results reach the page escaped ([`html`]), or as JSON and then as text nodes.
//! - The page says of itself what it has drawn: each panel carries how many values it has and how
//!   many it drew, and the document whether a script failed. Tests read that.

mod charts;
mod html;
mod insert;
mod page;
mod source;
mod summary;
mod timeline;
mod tpcc;

pub use charts::{CHARTS, Chart, Line, Shape};
pub use page::{is_page, page};
pub use source::{Benchmark, Source};
pub use timeline::{Segment, Timeline};

//! What a page shows of a run: of whatever benchmark, in one form.

use weir_bench::environment::Environment;
use weir_bench::report::{self, TextTable};
use weir_bench::tpcc;

use crate::timeline::Timeline;

/// Which benchmark ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Benchmark {
    /// The Insert Benchmark.
    Insert,
    /// TPC-C.
    Tpcc,
}

impl Benchmark {
    /// Its name for readers.
    pub fn title(self) -> &'static str {
        match self {
            Benchmark::Insert => "Insert Benchmark",
            Benchmark::Tpcc => "TPC-C",
        }
    }

    /// What the columns of its tables mean.
    pub fn columns(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Benchmark::Insert => report::COLUMNS,
            Benchmark::Tpcc => tpcc::report::COLUMNS,
        }
    }
}

/// A run, and what to call it.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its name on the page.
    pub name: String,
    /// What it is a run of.
    pub benchmark: Benchmark,
    /// The engine's name.
    pub engine: String,
    /// What ran, and where.
    pub properties: Vec<(&'static str, String)>,
    /// What it achieved, each table with what it is about.
    pub tables: Vec<(&'static str, TextTable)>,
    /// Every second.
    pub timeline: Timeline,
}

impl Source {
    /// A property, empty where it has none of the name.
    pub fn property(&self, name: &str) -> &str {
        let mut properties = self.properties.iter();
        properties.find(|(other, _)| *other == name).map_or("", |(_, value)| value)
    }
}

/// The machine that it ran on.
pub(crate) fn machine(place: &Environment) -> String {
    let gib = place.memory_bytes as f64 / f64::from(1 << 30);
    format!("{}, {} cores, {gib:.0} GiB", place.cpu, place.cores)
}

/// The system that it ran on.
pub(crate) fn system(place: &Environment) -> String {
    format!("{}, Linux {}, {}", place.system, place.kernel, place.filesystem)
}

/// The benchmark that ran.
pub(crate) fn built(place: &Environment) -> String {
    format!("{} from {}", place.version, place.build)
}

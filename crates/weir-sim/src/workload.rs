//! Workloads: which pages an operation changes, how much redo it makes, and when operations come.

use std::str::FromStr;

use crate::PAGE_BYTES;

/// Pages that are all as likely to be changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Area {
    /// What it is.
    pub name: String,
    /// Pages at the start.
    pub pages: f64,
    /// Pages changed by an operation, at random.
    pub touches: f64,
    /// Pages added by an operation.
    pub grows: f64,
}

/// When operations come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Demand {
    /// Always the same.
    Steady,
    /// For `length` seconds of each `every`, at a rate that keeps the mean; nothing in between.
    Bursts {
        /// Seconds from one to the next.
        every: f64,
        /// Seconds that one takes.
        length: f64,
    },
    /// A sine from `low` of the full rate up to it.
    DayAndNight {
        /// Seconds of a day.
        day: f64,
        /// Share of the full rate in the depth of the night.
        low: f64,
    },
}

impl Demand {
    /// Share of the full rate that is wanted at `time`.
    pub fn at(&self, time: f64) -> f64 {
        match *self {
            Demand::Steady => 1.0,
            Demand::Bursts { every, length } => {
                if time % every < length {
                    every / length
                } else {
                    0.0
                }
            }
            Demand::DayAndNight { day, low } => {
                let height = (1.0 - (std::f64::consts::TAU * time / day).cos()) / 2.0;
                low + (1.0 - low) * height
            }
        }
    }
}

/// What an operation is, and how many are wanted.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// What it changes.
    pub areas: Vec<Area>,
    /// Bytes of redo per operation.
    pub redo_bytes: f64,
    /// Operations per second that clients would do if nothing held them back.
    pub rate: f64,
    /// When.
    pub demand: Demand,
    /// Whether as much is deleted as is added: old pages go, clean, when new ones come.
    pub keeps_size: bool,
}

/// The kinds that have names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkloadKind {
    /// Updates, all pages alike.
    Cached,
    /// Updates, few pages much more than others (Zipf, exponent 0.9).
    Skewed,
    /// The Insert Benchmark: rows appended, and an entry put into each secondary index at random.
    Insert,
    /// As `Cached`, all of it in 2 of each 10 seconds.
    Bursts,
    /// As `Cached`, with a day of 30 minutes and nights at a tenth of it.
    DayAndNight,
}

impl WorkloadKind {
    const ALL: [(&str, WorkloadKind); 5] = [
        ("cached", WorkloadKind::Cached),
        ("skewed", WorkloadKind::Skewed),
        ("insert", WorkloadKind::Insert),
        ("bursts", WorkloadKind::Bursts),
        ("day-and-night", WorkloadKind::DayAndNight),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(_, kind)| *kind == self);
        found.expect("all kinds have names").0
    }
}

impl FromStr for WorkloadKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == text);
        found.map(|(_, kind)| *kind).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("`{text}` is no workload; use one of {}", names.join(", "))
        })
    }
}

/// Bytes of a row in the table, of the Insert Benchmark.
const ROW_BYTES: f64 = 110.0;
/// Bytes of an entry of a secondary index.
const ENTRY_BYTES: f64 = 32.0;
/// How full pages are that are filled in order, and at random.
const FULL: (f64, f64) = (0.95, 0.69);

/// Ranges of popularity that a skewed distribution is cut into.
const RANGES: u32 = 24;

impl Workload {
    /// A workload on `data_bytes`, with `rate` operations per second of `redo_bytes` each.
    /// `indexes` counts for inserts.
    pub fn new(
        kind: WorkloadKind,
        data_bytes: u64,
        rate: f64,
        redo_bytes: f64,
        indexes: u32,
    ) -> Self {
        let pages = (data_bytes / PAGE_BYTES).max(1) as f64;
        let uniform = vec![Area { name: "data".into(), pages, touches: 1.0, grows: 0.0 }];
        let (areas, demand) = match kind {
            WorkloadKind::Cached => (uniform, Demand::Steady),
            WorkloadKind::Skewed => (skewed(pages), Demand::Steady),
            WorkloadKind::Insert => (inserts(pages, f64::from(indexes)), Demand::Steady),
            WorkloadKind::Bursts => (uniform, Demand::Bursts { every: 10.0, length: 2.0 }),
            WorkloadKind::DayAndNight => (uniform, Demand::DayAndNight { day: 1800.0, low: 0.1 }),
        };
        Workload { areas, redo_bytes, rate, demand, keeps_size: false }
    }

    /// Pages at the start.
    pub fn pages(&self) -> f64 {
        self.areas.iter().map(|area| area.pages).sum()
    }
}

/// Popularity proportional to `rank ^ -0.9`, in ranges whose ranks grow geometrically.
fn skewed(pages: f64) -> Vec<Area> {
    let share_to = |rank: f64| (rank / pages).powf(0.1);
    let step = pages.powf(1.0 / f64::from(RANGES));
    let bounds = (0..=RANGES).map(|i| if i == 0 { 0.0 } else { step.powf(f64::from(i)) });
    let bounds: Vec<f64> = bounds.collect();
    let ranges = bounds.windows(2).enumerate();
    let area = |(i, w): (usize, &[f64])| Area {
        name: format!("range {i}"),
        pages: w[1] - w[0],
        touches: share_to(w[1]) - share_to(w[0]),
        grows: 0.0,
    };
    ranges.map(area).collect()
}

fn inserts(pages: f64, indexes: f64) -> Vec<Area> {
    let page = PAGE_BYTES as f64;
    let table = ROW_BYTES / FULL.0 / page;
    let secondary = indexes * ENTRY_BYTES / FULL.1 / page;
    let rows = pages / (table + secondary);
    let mut areas =
        vec![Area { name: "table".into(), pages: rows * table, touches: 0.0, grows: table }];
    if indexes > 0.0 {
        areas.push(Area {
            name: "secondary indexes".into(),
            pages: (rows * secondary).max(1.0),
            touches: indexes,
            grows: secondary,
        });
    }
    areas
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_keep_their_mean() {
        let mean = |demand: Demand, seconds: u32| {
            (0..seconds * 100).map(|i| demand.at(f64::from(i) / 100.0)).sum::<f64>()
                / f64::from(seconds * 100)
        };
        assert!((mean(Demand::Bursts { every: 10.0, length: 2.0 }, 100) - 1.0).abs() < 0.01);
        let day = Demand::DayAndNight { day: 100.0, low: 0.1 };
        assert!((mean(day, 200) - 0.55).abs() < 0.01);
        assert!((day.at(0.0) - 0.1).abs() < 1e-9 && (day.at(50.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn skew_is_zipf() {
        let workload = Workload::new(WorkloadKind::Skewed, 16 << 30, 1.0, 1.0, 0);
        let pages: f64 = workload.pages();
        let touches: f64 = workload.areas.iter().map(|a| a.touches).sum();
        assert!((pages / f64::from(1 << 20) - 1.0).abs() < 1e-6, "{pages}");
        assert!((touches - 1.0).abs() < 1e-9, "{touches}");
        let heat = |a: &Area| a.touches / a.pages;
        assert!(workload.areas.windows(2).all(|w| heat(&w[0]) > heat(&w[1])));
    }

    #[test]
    fn an_insert_adds_a_row_and_an_entry_per_index() {
        let workload = Workload::new(WorkloadKind::Insert, 1 << 30, 1.0, 1.0, 3);
        assert!((workload.pages() - 65_536.0).abs() < 1.0);
        assert_eq!(workload.areas[1].touches, 3.0);
        let bytes: f64 = workload.areas.iter().map(|a| a.grows).sum::<f64>() * PAGE_BYTES as f64;
        assert!((240.0..270.0).contains(&bytes), "{bytes}");
    }
}

//! The runs that an experiment consists of.

use super::Experiment;
use crate::engine::{DiskChoice, Durability, EngineKind, FlushChoice};
use crate::quantity::format_bytes;
use crate::result::Settings;
use crate::step::Step;

/// Bytes of pages per row, with three indexes, in memory.
const ROW_BYTES: f64 = 140.0;

const MIB: f64 = 1024.0 * 1024.0;

/// One run.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// What is different from the other cases.
    pub label: String,
    /// The run.
    pub settings: Settings,
    /// The step that the facts are about.
    pub step: usize,
    /// Share of the step's seconds at its beginning that facts leave out.
    pub skip: f64,
    /// A step in which the data has its size, if there is one: how even it is.
    pub steady: Option<usize>,
    /// The same at a rate below what the device and the processors can do.
    pub at_rate: Option<usize>,
    /// A step of inserts, each with a delete, so that the data keeps its size.
    pub churn: Option<usize>,
}

impl Case {
    fn new(label: String, settings: Settings, step: usize, skip: f64) -> Case {
        Case { label, settings, step, skip, steady: None, at_rate: None, churn: None }
    }
}

/// The cases of `experiment` at `scale`.
pub fn cases(experiment: Experiment, scale: f64) -> Vec<Case> {
    match experiment {
        Experiment::RedoSize => redo_size(scale),
        Experiment::DirtyLimit => dirty_limit(scale),
        Experiment::NothingToTune => nothing_to_tune(scale),
        Experiment::Decay => decay(scale),
        Experiment::Wave => wave(scale),
    }
}

/// A size that settings accept, in whole MiB.
fn bytes(wanted: f64, least_mib: f64) -> u64 {
    ((wanted / MIB).max(least_mib).round() * MIB) as u64
}

fn steps(text: &str) -> Vec<Step> {
    text.split(',').map(|step| step.parse().expect("experiments know the steps")).collect()
}

/// A run on cached data with a redo log of a tenth of it.
fn base(rows: f64, clients: u32, text: &str) -> Settings {
    let data = rows * ROW_BYTES;
    Settings {
        engine: EngineKind::Weir,
        clients,
        rows: rows as u64,
        steps: steps(text),
        memory_bytes: bytes(2.0 * data, 128.0),
        redo_bytes: bytes(data / 10.0, 8.0),
        durability: Durability::Write,
        delete: false,
        seed: 1,
        disk: DiskChoice::default(),
        flush: FlushChoice::default(),
        status_listen: None,
        server: None,
        binlog: false,
        pinned: false,
    }
}

fn redo_size(scale: f64) -> Vec<Case> {
    let rows = 2e6 * scale;
    let data = rows * ROW_BYTES;
    // What a row costs rises as the table grows. Whether rows come evenly shows when it doesn't.
    // And whether they do when neither device nor processors are the limit: at a part of that rate.
    // And with inserts, as the table is loaded, but at a size that stays.
    let (seconds, longer) = ((20.0 * scale).max(3.0).round(), (25.0 * scale).max(3.0).round());
    let text = format!(
        "load,update:seconds={seconds},update:rate=75%:seconds={longer},l.i1:delete:seconds={longer}"
    );
    let case = |device: &str, memory: f64, name: &str, redo: f64| {
        let mut settings = base(rows, 2, &text);
        settings.redo_bytes = bytes(redo, 8.0);
        settings.memory_bytes = bytes(memory, 24.0);
        settings.disk.device = device.into();
        let redo = format_bytes(settings.redo_bytes);
        let label = format!("{device}-{name}-redo-{redo}");
        let case = Case::new(label, settings, 0, 0.0);
        Case { steady: Some(1), at_rate: Some(2), churn: Some(3), ..case }
    };
    let mut cases = Vec::new();
    for device in ["fast", "slow-ssd"] {
        for (memory, name) in [(2.0 * data, "cached"), (data / 10.0, "tenth")] {
            for part in [25.0, 12.5, 6.25, 3.125] {
                cases.push(case(device, memory, name, data / part));
            }
            if (device, name) == ("fast", "cached") {
                // So large a log that no deadline comes, and none is written before: how even the
                // machine is.
                let mut none = case(device, memory, name, 10.0 * data);
                none.settings.flush.policy = "at-deadline".into();
                cases.push(Case { label: "fast-cached-no-writes".into(), ..none });
            }
        }
    }
    cases
}

fn dirty_limit(scale: f64) -> Vec<Case> {
    let rows = 1e6;
    let data = rows * ROW_BYTES;
    let seconds = (40.0 * scale).max(10.0).round();
    [20, 50, 80]
        .into_iter()
        .map(|percent| {
            let mut settings = base(rows, 2, &format!("load,l.i1:seconds={seconds}"));
            settings.memory_bytes = bytes(1.5 * data, 48.0);
            settings.redo_bytes = bytes(8.0 * data, 64.0);
            settings.disk.device = "two-disks".into();
            settings.disk.load_device = Some("fast".into());
            settings.flush.dirty_limit_percent = Some(percent);
            Case::new(format!("limit-{percent}"), settings, 1, 0.0)
        })
        .collect()
}

fn nothing_to_tune(scale: f64) -> Vec<Case> {
    let policies = [
        "governor",
        "at-deadline",
        "fixed-500",
        "fixed-2000",
        "fixed-8000",
        "innodb-1000-2000",
        "innodb-4000-8000",
    ];
    // Larger ones have longer laps of the log, too.
    let rows = 1e6 * scale.max(1.0);
    let mut cases = Vec::new();
    for redo in [1.0, 2.0] {
        for policy in policies {
            let seconds = (20.0 * scale).max(5.0).round();
            let text = format!("load,update:seconds={seconds}");
            let mut settings = base(rows, 4, &text);
            settings.redo_bytes = bytes(redo * rows * ROW_BYTES / 4.0, 8.0);
            settings.disk.device = "sata-ssd".into();
            settings.disk.load_device = Some("fast".into());
            settings.flush.policy = policy.into();
            let label = format!("redo-{}-{policy}", format_bytes(settings.redo_bytes));
            cases.push(Case::new(label, settings, 1, 1.0 / 3.0));
        }
    }
    cases
}

fn decay(scale: f64) -> Vec<Case> {
    let rows = 10e6 * scale;
    let mut settings = base(rows, 2, "load");
    // At the largest sizes a machine's memory ends; below, half of the data is cached.
    settings.memory_bytes = bytes(rows * ROW_BYTES / 2.0, 64.0).min(8 << 30);
    vec![Case::new("load".into(), settings, 0, 0.0)]
}

fn wave(scale: f64) -> Vec<Case> {
    let rows = 2e6;
    let seconds = (60.0 * scale).max(10.0).round();
    ["governor", "innodb-2000-4000", "at-deadline"]
        .into_iter()
        .map(|policy| {
            let mut settings = base(rows, 4, &format!("load,update:seconds={seconds}"));
            settings.redo_bytes = bytes(rows * ROW_BYTES / 5.0, 8.0);
            settings.disk.device = "iops-3000".into();
            settings.disk.load_device = Some("fast".into());
            settings.flush.policy = policy.into();
            Case::new(policy.into(), settings, 1, 1.0 / 3.0)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_run_and_has_a_name_of_its_own() {
        for experiment in Experiment::ALL {
            for scale in [0.05, 1.0, 20.0] {
                let cases = cases(experiment, scale);
                let mut labels: Vec<_> = cases.iter().map(|c| c.label.as_str()).collect();
                labels.sort_unstable();
                labels.dedup();
                assert!(scale < 1.0 || labels.len() == cases.len(), "{experiment} {scale}");
                for case in &cases {
                    crate::run::check(&case.settings).unwrap();
                    assert!(case.step < case.settings.steps.len());
                }
            }
            assert_eq!(experiment.name().parse(), Ok(experiment));
        }
        assert!("tide".parse::<Experiment>().unwrap_err().contains("nothing-to-tune"));
    }
}

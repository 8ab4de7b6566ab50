//! Runs of the Insert Benchmark.

use weir_bench::engine::DiskChoice;
use weir_bench::quantity::{format_bytes, format_count};
use weir_bench::report::{missed, stolen, tables, unwritten};
use weir_bench::{Run, Settings};

use crate::source::{Benchmark, Source, built, machine, system};
use crate::timeline::Timeline;

impl Source {
    /// A run of the Insert Benchmark.
    pub fn of_insert(name: String, run: &Run) -> Self {
        Source {
            name,
            benchmark: Benchmark::Insert,
            engine: run.engine.name.clone(),
            properties: properties(run),
            tables: tables(run),
            timeline: Timeline::of(run),
        }
    }
}

fn properties(run: &Run) -> Vec<(&'static str, String)> {
    let (settings, place) = (&run.settings, &run.environment);
    let mut remarks = run.engine.notes.clone();
    if run.interrupted {
        remarks.push("interrupted: the step under way is not whole, or left out".into());
    }
    remarks.extend(place.warnings().into_iter().map(String::from));
    let steps: Vec<_> = settings.steps.iter().map(|step| step.to_string()).collect();
    vec![
        ("engine", format!("{} {}", run.engine.name, run.engine.version)),
        ("clients", settings.clients.to_string()),
        ("rows", format_count(settings.rows)),
        ("memory", format_bytes(settings.memory_bytes)),
        ("redo", format_bytes(settings.redo_bytes)),
        ("durability", settings.durability.to_string()),
        ("device", device(settings)),
        ("flushing", flushing(settings)),
        ("binary log", if settings.binlog { "yes".into() } else { String::new() }),
        ("pinned", if settings.pinned { "yes".into() } else { String::new() }),
        ("steps", steps.join(", ")),
        ("configured", run.engine.settings.join(", ")),
        ("machine", machine(place)),
        ("system", system(place)),
        ("benchmark", built(place)),
        ("started", place.started.clone()),
        ("unwritten at the end", unwritten(run).unwrap_or_default()),
        ("rates not kept", missed(run).join("; ")),
        ("taken by the host", stolen(run).unwrap_or_default()),
        ("remarks", remarks.join("; ")),
    ]
}

/// The device as Weir was told of it, and how it reads and writes; other engines weren't told.
fn device(settings: &Settings) -> String {
    let disk = &settings.disk;
    if !settings.engine.is_weir() && *disk == DiskChoice::default() {
        return String::new();
    }
    let first = disk.load_device.as_ref();
    let first = first.map_or(String::new(), |device| format!(" ({device} at first)"));
    format!("{}{first}, I/O {}", disk.device, disk.io)
}

/// When Weir writes pages, where it is in this process: others see to it themselves.
fn flushing(settings: &Settings) -> String {
    if !settings.engine.is_weir() {
        return String::new();
    }
    let limit = settings.flush.dirty_limit_percent;
    let limit = limit.map_or(String::new(), |percent| format!(", at most {percent} % dirty"));
    format!("{}{limit}", settings.flush.policy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_bench::EngineKind;
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
            binlog: false,
            pinned: false,
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
}

//! Runs of TPC-C: each engine of a document is a run, whose steps are the numbers of clients.

use weir_bench::quantity::{counted, format_bytes};
use weir_bench::tpcc::document::{Document, Run};
use weir_bench::tpcc::report;

use crate::source::{Benchmark, Source, built, machine, system};
use crate::summary::distinct;
use crate::timeline::Timeline;

impl Source {
    /// What a document of TPC-C has of each engine, under its name where there are several.
    pub fn of_tpcc(name: &str, document: &Document) -> Vec<Self> {
        // Of an engine that could not be started only failures are told.
        let opened = document.engines.iter().map(|info| info.name.as_str());
        let engines = distinct(opened.chain(document.runs.iter().map(|run| run.engine.as_str())));
        let name = |engine: &str| match engines.len() {
            1 => name.to_string(),
            _ => format!("{name} {engine}"),
        };
        let source = |engine: &&str| of_engine(name(engine), engine, &only(document, engine));
        engines.iter().map(source).collect()
    }
}

/// What of a document is about one engine.
fn only(document: &Document, engine: &str) -> Document {
    let mut document = document.clone();
    document.engines.retain(|info| info.name == engine);
    document.loads.retain(|load| load.engine == engine);
    document.runs.retain(|run| run.engine == engine);
    document
}

fn of_engine(name: String, engine: &str, document: &Document) -> Source {
    let runs = document.runs.iter().map(|run| (run, label(run)));
    Source {
        name,
        benchmark: Benchmark::Tpcc,
        engine: engine.into(),
        properties: properties(engine, document),
        tables: report::tables(document),
        timeline: Timeline::of_tpcc(runs),
    }
}

fn label(run: &Run) -> String {
    let clients = counted(run.clients, "client");
    if run.round == 1 { clients } else { format!("{clients}, round {}", run.round) }
}

fn properties(engine: &str, document: &Document) -> Vec<(&'static str, String)> {
    let Document { settings, environment: place, engines, runs, .. } = document;
    let info = engines.first().cloned().unwrap_or_default();
    let mut remarks = info.notes.clone();
    for run in runs {
        let of_run = report::remarks(run, place.cores_to_steal()).into_iter();
        remarks.extend(of_run.map(|remark| format!("{}: {remark}", label(run))));
    }
    remarks.extend(place.warnings().into_iter().map(String::from));
    let of_round: Vec<_> = runs.iter().filter(|run| run.round == 1).collect();
    let clients: Vec<_> = of_round.iter().map(|run| run.clients.to_string()).collect();
    let rounds = if settings.rounds > 1 { settings.rounds.to_string() } else { String::new() };
    // Nothing but the embedded engine is told of a device: what others have is their own.
    let device = if settings.device == "fast" { String::new() } else { settings.device.clone() };
    let seconds = format!("{}, after {} to warm up", settings.seconds, settings.warmup_seconds);
    vec![
        ("engine", format!("{engine} {}", info.version)),
        ("warehouses", settings.warehouses.to_string()),
        ("clients", clients.join(", ")),
        ("rounds", rounds),
        ("seconds", seconds),
        ("memory", format_bytes(settings.memory_bytes)),
        ("redo", format_bytes(settings.redo_bytes)),
        ("durability", settings.durability.clone()),
        ("device", device),
        ("binary log", if settings.binlog { "yes".into() } else { String::new() }),
        ("pinned", if settings.pinned { "yes".into() } else { String::new() }),
        ("configured", info.settings.join(", ")),
        ("machine", machine(place)),
        ("system", system(place)),
        ("benchmark", built(place)),
        ("started", place.started.clone()),
        ("remarks", remarks.join("; ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    use weir_bench::engine::EngineInfo;
    use weir_bench::environment::Environment;
    use weir_bench::tpcc::document::{FORMAT, Settings};

    #[test]
    fn each_engine_is_a_run_and_each_number_of_clients_a_step() {
        let settings = Settings {
            warehouses: 4,
            rounds: 2,
            seconds: 30,
            side_by_side: false,
            warmup_seconds: 5,
            binlog: false,
            pinned: false,
            memory_bytes: 1 << 30,
            redo_bytes: 1 << 29,
            durability: "write".into(),
            device: "fast".into(),
            seed: 1,
        };
        let run = |engine: &str, round, clients, failure: Option<&str>| Run {
            engine: engine.into(),
            round,
            clients,
            failure: failure.map(String::from),
            tpm_c: f64::from(clients),
            ..Run::default()
        };
        let document = Document {
            format: FORMAT,
            settings,
            environment: Environment::look(None),
            engines: vec![EngineInfo { name: "weir".into(), ..EngineInfo::default() }],
            loads: Vec::new(),
            runs: vec![
                run("weir", 1, 1, None),
                run("weir", 1, 4, None),
                run("innodb", 1, 1, Some("it did not start")),
                run("weir", 2, 1, None),
            ],
        };
        let sources = Source::of_tpcc("x", &document);
        let names: Vec<_> = sources.iter().map(|source| source.name.as_str()).collect();
        assert_eq!(names, ["x weir", "x innodb"]);
        let steps = |number: usize| {
            let segments = &sources[number].timeline.segments;
            segments.iter().map(|segment| segment.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(steps(0), ["1 client", "4 clients", "1 client, round 2"]);
        assert_eq!(sources[0].property("clients"), "1, 4");
        assert!(!sources[0].property("remarks").contains("failed"));
        assert!(sources[1].property("remarks").starts_with("1 client: failed: it did not start"));
        let (title, rates) = &sources[0].tables[0];
        let keys: Vec<_> = rates.rows.iter().map(|row| row.key.as_str()).collect();
        assert_eq!((*title, keys), ("Transactions", vec!["1", "4"]));
        assert!(sources[1].tables.is_empty());
    }
}

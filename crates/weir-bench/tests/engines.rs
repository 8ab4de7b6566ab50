//! Every engine of this build does the same steps as the model and must then hold the same rows and
//! index entries; and a whole run leaves a document of the promised shape.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use common::{check, load, rows};
use weir_bench::engine::{DiskChoice, Engine, EngineOptions, FlushChoice, Index, IndexEntry};
use weir_bench::row::Secondary;
use weir_bench::{Durability, EngineKind, Error, Run, Settings, engines, run};

fn built_in() -> impl Iterator<Item = EngineKind> {
    EngineKind::ALL.into_iter().filter(|kind| kind.is_built_in())
}

fn options(dir: &Path, durability: Durability) -> EngineOptions {
    EngineOptions {
        dir: dir.to_path_buf(),
        memory_bytes: 64 << 20,
        redo_bytes: 32 << 20,
        durability,
        clients: 2,
        disk: DiskChoice::default(),
        status_listen: None,
        flush: FlushChoice::default(),
        server: None,
    }
}

fn open(kind: EngineKind, dir: &Path, durability: Durability) -> Box<dyn Engine> {
    engines::open(kind, &options(dir, durability)).unwrap_or_else(|e| panic!("{kind}: {e}"))
}

#[test]
fn indexes_kept_from_the_start() {
    for kind in built_in() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(kind, dir.path(), Durability::Write);
        for table in 0..2 {
            engine.create_table(table, true).unwrap();
            let mut session = engine.session(table).unwrap();
            load(session.as_mut(), table, 1..2001, 100);
            check(kind, session.as_mut(), table, 1..2001);
        }
        // What one table does must not show in the other.
        let mut session = engine.session(0).unwrap();
        session.write(&rows(0, 2001..2101), 1..101).unwrap();
        check(kind, session.as_mut(), 0, 101..2101);
        check(kind, engine.session(1).unwrap().as_mut(), 1, 1..2001);
        drop(session);
        engine.close().unwrap();
    }
}

#[test]
fn indexes_created_on_a_filled_table_and_then_kept() {
    for kind in built_in() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(kind, dir.path(), Durability::Write);
        for table in 0..2 {
            engine.create_table(table, false).unwrap();
            load(engine.session(table).unwrap().as_mut(), table, 1..3001, 100);
        }
        for table in 0..2 {
            let mut session = engine.session(table).unwrap();
            session.create_indexes(&AtomicBool::new(false)).unwrap();
            check(kind, session.as_mut(), table, 1..3001);
            let mut oldest = 1;
            for batch in rows(table, 3001..3501).chunks(5) {
                session.write(batch, oldest..oldest + 5).unwrap();
                oldest += 5;
            }
            check(kind, session.as_mut(), table, 501..3501);
        }
        engine.close().unwrap();
    }
}

#[test]
fn what_takes_long_ends_when_told_to() {
    for kind in built_in().filter(|kind| *kind != EngineKind::Model) {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(kind, dir.path(), Durability::Write);
        engine.create_table(0, false).unwrap();
        let mut session = engine.session(0).unwrap();
        load(session.as_mut(), 0, 1..3001, 100);
        let stop = AtomicBool::new(true);
        assert!(session.scan(Index::Primary, &stop).is_err(), "{kind}");
        // SQLite and Weir are told by another thread, which may come too late for so few rows.
        if kind != EngineKind::Sqlite && !kind.is_weir() {
            assert!(session.create_indexes(&stop).is_err(), "{kind}");
        }
        drop(session);
        engine.close().unwrap();
    }
}

#[test]
fn a_missing_row_is_an_error_and_changes_nothing() {
    for kind in built_in() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(kind, dir.path(), Durability::Write);
        engine.create_table(0, true).unwrap();
        let mut session = engine.session(0).unwrap();
        load(session.as_mut(), 0, 1..101, 10);
        session.write(&rows(0, 101..111), 1..11).unwrap();
        assert!(session.write(&rows(0, 111..121), 5..15).is_err(), "{kind}");
        check(kind, session.as_mut(), 0, 11..111);
        drop(session);
        engine.close().unwrap();
    }
}

#[test]
fn every_durability_works() {
    for kind in built_in() {
        for durability in [Durability::Sync, Durability::Write, Durability::Relaxed] {
            let dir = tempfile::tempdir().unwrap();
            let engine = open(kind, dir.path(), durability);
            engine.create_table(0, true).unwrap();
            let mut session = engine.session(0).unwrap();
            load(session.as_mut(), 0, 1..201, 50);
            check(kind, session.as_mut(), 0, 1..201);
            drop(session);
            engine.close().unwrap();
        }
    }
}

#[test]
fn clients_write_at_the_same_time() {
    for kind in built_in() {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(kind, dir.path(), Durability::Write);
        for table in 0..2 {
            engine.create_table(table, true).unwrap();
        }
        std::thread::scope(|scope| {
            for table in 0..2 {
                let engine = &engine;
                scope.spawn(move || {
                    let mut session = engine.session(table).unwrap();
                    load(session.as_mut(), table, 1..3001, 7);
                });
            }
        });
        for table in 0..2 {
            check(kind, engine.session(table).unwrap().as_mut(), table, 1..3001);
        }
        engine.close().unwrap();
    }
}

fn settings(engine: EngineKind, steps: &str) -> Settings {
    Settings {
        engine,
        clients: 2,
        rows: 3001,
        steps: steps.split(',').map(|step| step.parse().unwrap()).collect(),
        memory_bytes: 64 << 20,
        redo_bytes: 32 << 20,
        durability: Durability::Write,
        delete: false,
        seed: 1,
        disk: DiskChoice::default(),
        status_listen: None,
        flush: FlushChoice::default(),
        server: None,
        binlog: false,
        pinned: false,
    }
}

#[test]
fn whole_runs() {
    let steps = "l.i0,l.x,l.i1:rows=1k:delete,l.i2:seconds=1,scan,qr200:seconds=1,qp0:seconds=1";
    for kind in built_in() {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(kind, steps);
        let mut looks = 0;
        let run = run::run(&settings, dir.path(), &AtomicBool::new(false), &mut |_| looks += 1);
        let run = run.unwrap_or_else(|error| panic!("{kind}: {error}"));
        assert!(looks >= run.steps.len() - 1);
        let inserts = |step: usize| run.steps[step].inserts.unwrap().total;
        assert_eq!((inserts(0), inserts(1), inserts(2)), (3001, 3001, 1000));
        assert_eq!(run.steps[2].deletes, 1000);
        let rows = 3001 + inserts(3);
        assert!(run.steps[4].scans.iter().all(|scan| scan.rows == rows), "{kind}");
        assert_eq!(run.steps[4].scans.len(), 5);
        assert!(run.steps[5].queries.unwrap().throughput.total > 0);
        assert!(run.steps[5].background.is_some() && run.steps[6].background.is_none());
        assert_eq!(run.steps[6].queries.unwrap().missed, 0);
    }
}

#[test]
fn the_document_has_every_second_and_reads_back() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(EngineKind::Model, "load,l.i1:seconds=2,qp100:seconds=2:delete");
    let run = run::run(&settings, dir.path(), &AtomicBool::new(false), &mut |_| {}).unwrap();
    let path = dir.path().join("results").join("run.json");
    run.save(&path).unwrap();
    assert_eq!(Run::load(&path).unwrap(), run);

    let text = std::fs::read(&path).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(json["format"], 1);
    assert_eq!(json["settings"]["steps"][1], "l.i1:seconds=2");
    for field in ["cpu", "cores", "kernel", "memory_bytes", "filesystem", "version", "started"] {
        assert!(!json["environment"][field].is_null(), "{field}");
    }
    let (insert, query) = (&json["steps"][1], &json["steps"][2]);
    for (step, what) in [(insert, "inserts"), (query, "queries")] {
        let series = step["series"].as_array().unwrap();
        assert!(series.len() >= 2, "a step of two seconds has two");
        let which = if what == "inserts" { "insert" } else { "query" };
        let latency = |second: &serde_json::Value, of| second[format!("{which}_us_{of}")].as_u64();
        assert!(series.iter().all(|second| latency(second, "99") <= latency(second, "max")));
        assert!(series.iter().any(|second| latency(second, "max") > Some(0)));
        let sum: u64 = series.iter().map(|second| second[what].as_u64().unwrap()).sum();
        assert_eq!(step[what]["total"], sum);
        for (number, second) in series.iter().enumerate() {
            assert_eq!(second["second"], number);
            assert!(second["usage"]["cpu_us"].is_u64() && second["resident_bytes"].is_u64());
        }
        assert!(step[what]["rate_mean"].is_f64() && step[what]["rate_99"].is_f64());
    }
    assert_eq!(query["deletes"], query["inserts"]["total"]);
    assert_eq!(query["background"]["rate_asked"], 200.0);
}

#[test]
fn a_document_of_another_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(EngineKind::Model, "load");
    let mut run = run::run(&settings, dir.path(), &AtomicBool::new(false), &mut |_| {}).unwrap();
    run.format = 99;
    let path = dir.path().join("run.json");
    run.save(&path).unwrap();
    assert!(Run::load(&path).unwrap_err().to_string().contains("format 99"));
    std::fs::write(&path, "no json").unwrap();
    assert!(matches!(Run::load(&path), Err(Error::Usage(_))));
}

#[test]
fn later_steps_take_their_part_of_what_was_loaded() {
    for engine in [EngineKind::Weir, EngineKind::WeirRaw] {
        let dir = tempfile::tempdir().unwrap();
        let settings = settings(engine, "load:rows=100,l.i1:commit=1,l.i2:commit=1,update");
        let run = run::run(&settings, dir.path(), &AtomicBool::new(false), &mut |_| {}).unwrap();
        let rows: Vec<_> = run.steps.iter().map(|step| step.inserts.unwrap().total).collect();
        assert_eq!(rows, [100, 50, 10, 100]);
        assert_eq!(run.settings.rows, 100, "and the document tells it");
    }
}

#[test]
fn an_updated_row_has_its_entries() {
    for kind in [EngineKind::Weir, EngineKind::WeirRaw] {
        let dir = tempfile::tempdir().unwrap();
        let engine = open(kind, dir.path(), Durability::Write);
        engine.create_table(0, true).unwrap();
        let mut session = engine.session(0).unwrap();
        load(session.as_mut(), 0, 1..101, 10);
        session.update(7, 999).unwrap();
        session.update(7, 999).unwrap();
        assert!(session.update(101, 1).is_err());
        let mut expected = rows(0, 7..8)[0];
        expected.cashregisterid = 999;
        assert_eq!(session.get(7).unwrap(), Some(expected), "{kind}");
        for index in Secondary::ALL {
            let mut found = Vec::new();
            session.range(index, &[0; 3], 1000, &mut found).unwrap();
            assert_eq!(found.len(), 100, "{kind}");
            let entry = IndexEntry { key: index.key(&expected), id: 7 };
            assert!(found.contains(&entry), "{kind}: {}", index.name());
        }
        drop(session);
        engine.close().unwrap();
    }
}

#[test]
fn updates_are_refused_where_there_are_none() {
    let settings = settings(EngineKind::Model, "load,update");
    let error = run::check(&settings).unwrap_err().to_string();
    assert!(error.contains("`update`: model has no updates here"), "{error}");
}

#[test]
fn a_run_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let settings = settings(EngineKind::Model, "load,qp100:seconds=3600,scan");
    let run = run::run(&settings, dir.path(), &stop, &mut |progress| {
        if progress.title == "qp100" {
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let run = run.unwrap();
    assert!(run.interrupted);
    assert_eq!(run.steps.len(), 2);
}

#[test]
fn a_rate_in_percent_is_that_of_the_step_before() {
    let dir = tempfile::tempdir().unwrap();
    let settings = settings(EngineKind::Weir, "load,update:seconds=1,update:rate=20%:seconds=1");
    let run = run::run(&settings, dir.path(), &AtomicBool::new(false), &mut |_| {}).unwrap();
    let rate = |step: usize| run.steps[step].inserts.unwrap().rate_mean;
    assert_eq!(run.steps[2].name, "update@20%");
    let asked = run.steps[2].background.unwrap();
    assert!(asked.rate_asked <= 0.21 * rate(1) && asked.rate_asked > 0.19 * rate(1), "{asked}");
    assert_eq!(run.steps[1].background, None, "it went as fast as it could");
    // Turns that are missed aren't made up for, so it is never more.
    assert!(rate(2) > 0.0 && rate(2) < 0.3 * rate(1), "{} of {}", rate(2), rate(1));
}

#[test]
fn a_step_that_falls_behind_its_rate_tells_what_it_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let steps = "load,l.i1:rate=1M:commit=1:seconds=1,l.i2:rate=10:commit=1:seconds=1";
    let run = run::run(
        &settings(EngineKind::Weir, steps),
        dir.path(),
        &AtomicBool::new(false),
        &mut |_| {},
    );
    let run = run.unwrap();
    let background = |step: usize| run.steps[step].background.unwrap();
    let behind = background(1);
    assert_eq!(behind.rate_asked, 2e6, "of two clients");
    assert!(!behind.held && behind.commits_lost > 0, "{behind}");
    let inserts = run.steps[1].inserts.unwrap();
    let (commits, count) = (inserts.total, inserts.latency.count);
    let lost = count - commits;
    assert!(lost > behind.commits_lost / 2 && lost <= behind.commits_lost, "{lost} waited");
    let kept = background(2);
    assert!(kept.held && kept.commits_lost == 0, "{kept}");
    let told = run.steps[2].inserts.unwrap().rate_mean;
    assert!(told <= kept.rate_asked, "{told}: the last turn counts to its end");
    assert_eq!(weir_bench::report::missed(&run), [format!("l.i1@1M: {behind}")]);
}

#[test]
fn nonsense_is_refused_before_anything_is_created() {
    let refused = |change: fn(&mut Settings), reason: &str| {
        let mut settings = settings(EngineKind::Model, "load");
        change(&mut settings);
        let error = run::check(&settings).unwrap_err();
        assert!(matches!(error, Error::Usage(_)) && error.to_string().contains(reason), "{error}");
    };
    refused(|s| s.clients = 0, "0 clients");
    refused(|s| s.rows = 1, "each needs at least one");
    refused(|s| s.steps = vec!["load:rows=1".parse().unwrap()], "each needs at least one");
    refused(|s| s.memory_bytes = 5, "memory");
    refused(|s| s.redo_bytes = 5, "redo");
    refused(|s| s.steps.clear(), "no steps");
    refused(|s| s.steps.push("load".parse().unwrap()), "must be the first step");
}

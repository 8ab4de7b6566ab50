//! Servers' engines hold what they were given, and what can go wrong with a server is said clearly.
//!
//! These start private servers and so need MariaDB and the plugin: `mariadb/test` runs them.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use common::{check, load, rows};
use weir_bench::accounting::Place;
use weir_bench::engine::{
    DiskChoice, Durability, Engine, EngineOptions, FlushChoice, Limits, ServerChoice, Statements,
};
use weir_bench::phase::Progress;
use weir_bench::pinning::Pinning;
use weir_bench::server::{PrivateServer, ServerSetup};
use weir_bench::tpcc::random::Size;
use weir_bench::tpcc::{Listener, Plan, Subject};
use weir_bench::{EngineKind, Error, Settings, engines, run};

const LIMITS: Limits =
    Limits { memory_bytes: 64 << 20, redo_bytes: 48 << 20, durability: Durability::Write };

fn server(engine: &str, binlog: bool) -> PrivateServer {
    let command = ServerSetup::default_command();
    let setup = ServerSetup { command, limits: LIMITS, binlog, pinning: None, dir: None };
    setup.start(&engine.parse().unwrap(), &AtomicBool::new(false)).unwrap()
}

fn options(choice: ServerChoice) -> EngineOptions {
    EngineOptions {
        dir: "/nowhere".into(),
        memory_bytes: 0,
        redo_bytes: 0,
        durability: Durability::Sync,
        clients: 2,
        disk: DiskChoice::default(),
        status_listen: None,
        flush: FlushChoice::default(),
        server: Some(choice),
    }
}

fn try_open(choice: ServerChoice) -> Result<Box<dyn Engine>, Error> {
    engines::open(EngineKind::Server, &options(choice))
}

fn choice(server: &PrivateServer, engine: &str, statements: Statements) -> ServerChoice {
    ServerChoice { keep: false, ..server.choice(engine, statements) }
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn every_engine_holds_what_it_was_given() {
    for engine in ["weir", "innodb", "rocksdb"] {
        let server = server(engine, engine != "innodb");
        for statements in [Statements::Prepared, Statements::Text] {
            let name = format!("{engine}, {statements}");
            let opened = try_open(choice(&server, engine, statements)).unwrap();
            assert_eq!(opened.limits(), Some(LIMITS), "{name}");
            indexes_from_the_start(&name, opened.as_ref());
            indexes_on_filled_tables(&name, opened.as_ref());
            opened.close().unwrap();
            // Nothing was left behind: there is room for the same tables.
        }
        server.stop().unwrap();
    }
}

struct Nobody;

impl Listener for Nobody {
    fn progress(&mut self, _: &Progress) {}
    fn line(&mut self, _: &str) {}
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn the_books_of_tpcc_agree() {
    let private = |engine: &str| Subject::Private(engine.parse().unwrap());
    let command = ServerSetup::default_command();
    // Where there are processors to divide.
    let pinning = Pinning::new().ok();
    let plan = Plan {
        subjects: ["weir", "innodb", "rocksdb"].map(private).to_vec(),
        setup: ServerSetup { command, limits: LIMITS, binlog: true, pinning, dir: None },
        size: Size { warehouses: 2, customers: 30, items: 200 },
        clients: vec![4],
        rounds: 1,
        side_by_side: false,
        seconds: 3,
        warmup_seconds: 0,
        seed: 3,
        disk: DiskChoice::default(),
        status_listen: None,
    };
    let document = plan.run(&AtomicBool::new(false), &mut Nobody).unwrap();
    for run in &document.runs {
        assert_eq!(run.failure, None, "{}", run.engine);
        assert!(run.kinds.values().all(|latency| latency.count > 0), "{}", run.engine);
        assert!(run.measured.engine_cpu_us() > 0, "{}", run.engine);
    }
    assert_eq!(document.runs.len(), 3);
    assert_eq!(document.settings.pinned, pinning.is_some());
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn tpcc_on_a_running_server_tells_of_its_limits_and_its_place() {
    let server = server("innodb", false);
    let command = ServerSetup::default_command();
    let limits = Limits { memory_bytes: 1 << 40, redo_bytes: 1 << 40, ..LIMITS };
    let plan = Plan {
        subjects: vec![Subject::Running(choice(&server, "innodb", Statements::Prepared))],
        setup: ServerSetup {
            command,
            limits,
            binlog: false,
            pinning: None,
            dir: Some("/dev/shm".into()),
        },
        size: Size { warehouses: 1, customers: 30, items: 200 },
        clients: vec![1],
        rounds: 1,
        side_by_side: false,
        seconds: 1,
        warmup_seconds: 0,
        seed: 3,
        disk: DiskChoice::default(),
        status_listen: None,
    };
    let document = plan.run(&AtomicBool::new(false), &mut Nobody).unwrap();
    let told = (document.settings.memory_bytes, document.settings.redo_bytes);
    assert_eq!(told, (LIMITS.memory_bytes, LIMITS.redo_bytes));
    let dir = server.data_dir();
    let there = weir_bench::environment::Environment::look(Some(&dir));
    assert_eq!(document.environment.filesystem, there.filesystem);
    server.stop().unwrap();
}

fn indexes_from_the_start(name: &str, engine: &dyn Engine) {
    engine.create_table(0, true).unwrap();
    let mut session = engine.session(0).unwrap();
    load(session.as_mut(), 0, 1..2001, 100);
    check(name, session.as_mut(), 0, 1..2001);
    session.write(&rows(0, 2001..2101), 1..101).unwrap();
    check(name, session.as_mut(), 0, 101..2101);
    let error = session.write(&rows(0, 2101..2111), 95..105).unwrap_err();
    assert!(error.to_string().contains("4 of the rows 95..105 were there"), "{name}: {error}");
    check(name, session.as_mut(), 0, 101..2101);
    let register = session.get(200).unwrap().unwrap().cashregisterid;
    session.update(200, register).unwrap();
    session.update(200, register + 1).unwrap();
    assert_eq!(session.get(200).unwrap().unwrap().cashregisterid, register + 1, "{name}");
    assert!(session.update(7, 1).is_err(), "{name}: row 7 was deleted");
}

fn indexes_on_filled_tables(name: &str, engine: &dyn Engine) {
    engine.create_table(1, false).unwrap();
    let mut session = engine.session(1).unwrap();
    // More rows than one statement takes.
    session.write(&rows(1, 1..6002), 0..0).unwrap();
    session.create_indexes(&AtomicBool::new(false)).unwrap();
    check(name, session.as_mut(), 1, 1..6002);
}

fn settings(choice: ServerChoice, steps: &str) -> Settings {
    Settings {
        engine: EngineKind::Server,
        clients: 2,
        rows: 3001,
        steps: steps.split(',').map(|step| step.parse().unwrap()).collect(),
        memory_bytes: 0,
        redo_bytes: 0,
        durability: Durability::Sync,
        delete: false,
        seed: 1,
        disk: DiskChoice::default(),
        status_listen: None,
        flush: FlushChoice::default(),
        server: Some(choice),
        binlog: false,
        pinned: false,
    }
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn whole_runs_tell_what_the_server_used() {
    let steps = "l.i0,l.x,l.i1:rows=1k:delete,l.i2:seconds=1,update:rows=100,scan,qr200:seconds=1,qp0:seconds=1";
    for engine in ["weir", "innodb"] {
        let server = server(engine, false);
        let settings = settings(choice(&server, engine, Statements::Prepared), steps);
        let run = run::run(&settings, Path::new("/nowhere"), &AtomicBool::new(false), &mut |_| {});
        let run = run.unwrap_or_else(|error| panic!("{engine}: {error}"));
        let inserts = |step: usize| run.steps[step].inserts.unwrap().total;
        assert_eq!((inserts(0), inserts(1), inserts(2)), (3001, 3001, 1000), "{engine}");
        let rows = 3001 + inserts(3);
        assert!(run.steps[5].scans.iter().all(|scan| scan.rows == rows), "{engine}");
        assert!(run.steps[6].queries.unwrap().throughput.total > 0, "{engine}");
        assert_eq!(run.steps[7].queries.unwrap().missed, 0, "{engine}");

        assert_eq!(run.engine.name, format!("{engine}-sql"));
        assert!(run.engine.version.contains("MariaDB"), "{}", run.engine.version);
        assert!(run.engine.settings.iter().any(|s| s == "log_bin=OFF"), "{engine}");
        assert_eq!((run.settings.memory_bytes, run.settings.redo_bytes), (64 << 20, 48 << 20));
        assert_eq!(run.settings.durability, Durability::Write);
        let queried = &run.steps[7];
        assert!(queried.measured.engine_cpu_us() > 0 && queried.measured.client_cpu_us > 0);
        assert!(queried.measured.resident_bytes_max > 16 << 20 && !queried.measured.unseen);
        assert!(queried.measured.size_bytes > 1 << 20, "{engine}");
        let first = queried.series.first().unwrap();
        assert!(first.engine.contains_key("buffer_pool_pages_dirty"), "{engine}: {first:?}");
        assert!(first.engine.contains_key("checkpoint_age"), "{engine}");
        server.stop().unwrap();
    }
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn what_a_server_refuses_is_said_clearly() {
    let server = server("innodb", false);
    let good = || choice(&server, "innodb", Statements::Text);
    let refused = |choice: ServerChoice, reasons: &[&str]| {
        let Err(error) = try_open(choice) else { panic!("{reasons:?}: it was let in") };
        let text = error.to_string();
        assert!(reasons.iter().all(|reason| text.contains(reason)), "{text}");
        assert!(!text.contains("geheim"), "a password is told to nobody: {text}");
    };
    let socket = good().socket;
    let password = Some("geheim".to_string());
    refused(ServerChoice { password, ..good() }, &["as `root`", "Access denied"]);
    let nowhere = Some("/nowhere/socket".into());
    refused(ServerChoice { socket: nowhere, ..good() }, &["connecting to /nowhere/socket"]);
    // The discard port: nobody listens there.
    let url = "mysql://127.0.0.1:9/".to_string();
    refused(ServerChoice { url, socket: None, ..good() }, &["127.0.0.1:9", "refused"]);
    let engine = |name: &str| ServerChoice { table_engine: name.into(), ..good() };
    refused(engine("weir"), &["no storage engine `weir`", "mariadb/run", "innodb"]);
    refused(engine("oracle"), &["no storage engine `oracle`"]);

    let url = "mysql://root@localhost/precious".to_string();
    let there = || ServerChoice { url: url.clone(), socket: socket.clone(), ..good() };
    let first = try_open(ServerChoice { keep: true, ..there() }).unwrap();
    first.create_table(1, false).unwrap();
    first.close().unwrap();
    refused(there(), &["precious.purchases2 already"]);
    server.stop().unwrap();
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn a_server_is_watched_where_it_is() {
    let server = server("innodb", true);
    let opened = try_open(choice(&server, "innodb", Statements::Text)).unwrap();
    let Some(Place::Process { pid, dir, except }) = opened.place() else {
        panic!("{:?}", opened.place());
    };
    assert_eq!(pid, server.pid());
    assert_eq!(dir.canonicalize().unwrap(), server.data_dir().canonicalize().unwrap());
    assert!(except.unwrap().ends_with("binlog/log"));
    opened.close().unwrap();
    server.stop().unwrap();
}

#[test]
#[ignore = "needs MariaDB; mariadb/test runs it"]
fn tables_that_are_there_are_used_as_they_are() {
    let server = server("weir", false);
    let url = "mysql://root@localhost/own".to_string();
    let made_here = ServerChoice { keep: true, url, ..choice(&server, "weir", Statements::Text) };
    let there = || ServerChoice { existing: true, keep: false, ..made_here.clone() };
    let refused = |reasons: &[&str]| {
        let Err(error) = try_open(there()) else { panic!("{reasons:?}: it was let in") };
        let text = error.to_string();
        assert!(reasons.iter().all(|reason| text.contains(reason)), "{text}");
    };
    let opened = try_open(made_here.clone()).unwrap();
    opened.create_table(0, true).unwrap();
    refused(&["no table own.purchases2", "CREATE TABLE purchases2 (", "KEY pdc"]);
    opened.create_table(1, false).unwrap();
    opened.close().unwrap();

    let opened = try_open(there()).unwrap();
    assert_eq!(opened.info().name, "weir-sql");
    let error = opened.create_table(1, true).unwrap_err().to_string();
    assert!(error.contains("own.purchases2 has no index marketsegment (productid,"), "{error}");
    drop(opened);
    let opened = try_open(there()).unwrap();
    indexes_from_the_start("existing", opened.as_ref());
    indexes_on_filled_tables("existing", opened.as_ref());
    opened.close().unwrap();
    // They stayed.
    refused(&["own.purchases1 is not empty"]);
    server.stop().unwrap();
}

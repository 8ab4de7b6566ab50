//! TPC-C on the embedded engine: the books agree after clients have worked at the same time, and
//! the document tells of every transaction.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_bench::Durability;
use weir_bench::Error;
use weir_bench::engine::{DiskChoice, Limits};
use weir_bench::files::write_json;
use weir_bench::phase::Progress;
use weir_bench::server::ServerSetup;
use weir_bench::tpcc::random::Size;
use weir_bench::tpcc::transactions::Kind;
use weir_bench::tpcc::{Listener, Plan, Subject, report};

struct Nobody;

impl Listener for Nobody {
    fn progress(&mut self, _: &Progress) {}
    fn line(&mut self, _: &str) {}
}

fn plan(dir: &Path) -> Plan {
    let limits =
        Limits { memory_bytes: 64 << 20, redo_bytes: 32 << 20, durability: Durability::Write };
    Plan {
        subjects: vec![Subject::Embedded],
        setup: ServerSetup {
            command: "/nowhere".into(),
            limits,
            binlog: false,
            pinning: None,
            dir: Some(dir.join("databases")),
        },
        size: Size { warehouses: 2, customers: 30, items: 200 },
        clients: vec![1, 4],
        rounds: 1,
        side_by_side: false,
        seconds: 2,
        warmup_seconds: 0,
        seed: 7,
        disk: DiskChoice::default(),
        status_listen: None,
    }
}

#[test]
fn books_agree_after_clients_at_the_same_time() {
    let dir = tempfile::tempdir().unwrap();
    let document = plan(dir.path()).run(&AtomicBool::new(false), &mut Nobody).unwrap();
    assert_eq!(document.runs.len(), 2);
    for run in &document.runs {
        assert_eq!(run.failure, None);
        assert!(run.tpm_c > 0.0 && run.transactions > 0);
        let of_kinds: u64 = run.kinds.values().map(|latency| latency.count).sum();
        assert_eq!(of_kinds, run.transactions);
        let in_seconds: u64 = run.seconds.iter().map(|second| second.transactions).sum();
        assert_eq!(in_seconds, run.transactions);
        let ordered: u64 = run.seconds.iter().map(|second| second.new_orders).sum();
        assert_eq!(ordered, run.kinds[&Kind::NewOrder].count);
    }
    let text = report::summary(&document);
    assert!(text.contains("tpmC") && text.contains("stock level"), "{text}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the database is gone");
    let path = dir.path().join("new").join("run.json");
    write_json(&path, &document).unwrap();
    let read = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(document, read);
}

/// Stops everything at the first sign of life.
struct Impatient<'a>(&'a AtomicBool);

impl Listener for Impatient<'_> {
    fn progress(&mut self, _: &Progress) {
        self.0.store(true, Ordering::Relaxed);
    }
    fn line(&mut self, _: &str) {}
}

#[test]
fn an_interrupt_ends_it_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let plan = Plan { seconds: 3600, ..plan(dir.path()) };
    let document = plan.run(&stop, &mut Impatient(&stop)).unwrap();
    assert!(document.runs.len() <= 1, "the second number of clients doesn't run");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the database is gone");
}

/// Stops everything once clients warm up.
struct Cold<'a>(&'a AtomicBool);

impl Listener for Cold<'_> {
    fn progress(&mut self, progress: &Progress) {
        self.0.fetch_or(progress.title.contains("warm-up"), Ordering::Relaxed);
    }
    fn line(&mut self, _: &str) {}
}

#[test]
fn a_run_that_has_not_begun_when_an_interrupt_comes_has_no_figures() {
    let dir = tempfile::tempdir().unwrap();
    let stop = AtomicBool::new(false);
    let plan = Plan { warmup_seconds: 3600, ..plan(dir.path()) };
    let document = plan.run(&stop, &mut Cold(&stop)).unwrap();
    assert_eq!((document.loads.len(), document.runs.len()), (1, 0));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the database is gone");
}

#[test]
fn nonsense_is_refused() {
    let refused = |change: fn(&mut Plan), reason: &str| {
        let mut plan = plan(Path::new("/nowhere"));
        change(&mut plan);
        let error = plan.check().unwrap_err();
        assert!(matches!(error, Error::Usage(_)));
        assert!(error.to_string().contains(reason), "{error}");
    };
    refused(|plan| plan.clients = vec![0], "use 1 to 1024");
    refused(|plan| plan.clients = vec![2, 2], "2 clients: named twice");
    refused(|plan| plan.clients.clear(), "nothing to run");
    refused(|plan| plan.seconds = 0, "nothing to run");
    refused(|plan| plan.size.warehouses = 0, "use 1 to 1,000,000");
    refused(|plan| plan.setup.limits.memory_bytes = 1, "use 16M to 64T");
    refused(
        |plan| plan.subjects = vec![Subject::Private("weir".parse().unwrap())],
        "/nowhere is not there",
    );
}

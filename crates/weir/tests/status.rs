//! Figures, and the endpoint that tells them.

#![allow(clippy::unwrap_used, reason = "a test that fails panics")]

use std::collections::BTreeSet;
use std::time::Duration;

use weir::{
    Bounds, Database, Direction, Error, FigureKind, IndexRef, Isolation, KeyOf, Lock, Options,
    Patience, RawIndex, RawRange, Schema, Shutdown, Status, StatusAddress, Table, TableChange,
    Transaction, Type, Value, Work, take_work,
};
use weir_status::{FetchError, Metrics, fetch};

fn options() -> Options {
    Options::default().memory_bytes(16 << 20).status_listen(StatusAddress::loopback(0))
}

fn ask(address: &StatusAddress) -> Result<Metrics, FetchError> {
    fetch(address, Duration::from_secs(10))
}

#[test]
fn every_figure_has_a_name_of_its_own_and_a_sentence() {
    let figures = Status::default().figures();
    let metrics: BTreeSet<String> = figures.iter().map(|figure| figure.metric()).collect();
    assert_eq!(metrics.len(), figures.len());
    for figure in &figures {
        let name = figure.metric();
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
        assert!(figure.help.ends_with('.') && !figure.help.starts_with(' '), "{name}");
        let counter = figure.kind == FigureKind::Counter;
        assert!(name.starts_with("weir_") && name.ends_with("_total") == counter, "{name}");
    }
}

#[test]
fn the_endpoint_tells_all_figures_while_the_database_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let address = db.status_address().unwrap();
    let schema = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build().unwrap();
    let table = db.create_table("t", schema).unwrap();
    let before = ask(&address).unwrap();
    for figure in db.status().figures() {
        assert!(before.contains_key(&figure.metric()), "{}", figure.metric());
    }
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert(&table, &[Value::U64(1)]).unwrap();
    txn.commit().unwrap();
    let after = ask(&address).unwrap();
    let commits = "weir_transactions_committed_total";
    assert_eq!(after[commits], before[commits] + 1.0);
    assert!(after["weir_lsn_current_bytes"] > before["weir_lsn_current_bytes"]);
    assert_eq!(after["weir_checkpoint_max_age_bytes"], db.status().checkpoint_max_age as f64);
    db.close(Shutdown::Fast, &mut |_| {}).unwrap();
    assert!(matches!(ask(&address), Err(FetchError::NobodyListens { .. })));
}

#[test]
fn the_last_handle_ends_it() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("weir.sock");
    let open = || {
        let options = Options::default().memory_bytes(16 << 20).status_listen(socket.clone());
        Database::open(dir.path(), options).unwrap()
    };
    let db = open();
    let other = db.clone();
    drop(db);
    assert!(ask(&socket.clone().into()).is_ok());
    drop(other);
    assert!(!socket.exists());
    // The directory is free again, endpoint and all.
    drop(open());
}

#[test]
fn an_address_in_use_is_refused_and_nothing_stays_open() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let options = || Options::default().memory_bytes(16 << 20);
    let error =
        Database::open(dir.path(), options().status_listen(taken.local_addr().unwrap())).err();
    let Some(Error::Options { option: "status_listen", what }) = error else { panic!("{error:?}") };
    assert!(what.contains("127.0.0.1:"), "{what}");
    assert!(Database::open(dir.path(), options()).unwrap().status_address().is_none());
}

fn count(txn: &mut Transaction, table: &Table) -> u64 {
    let mut rows = txn.scan(table, IndexRef::Primary, Bounds::all(), Direction::Forward).unwrap();
    let mut count = 0;
    while rows.next().unwrap().is_some() {
        count += 1;
    }
    count
}

fn put(db: &Database, table: &Table, key: &[u8]) {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert_raw(table, key, b"", &[]).unwrap();
    txn.commit().unwrap();
}

/// Connections that read at a snapshot, oldest first, and what each doesn't see.
fn readers(db: &Database) -> Vec<(u64, u64)> {
    db.snapshots().iter().map(|s| (s.connection, s.unseen_commits)).collect()
}

#[test]
fn who_keeps_purge_back_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let begin = |isolation, connection| {
        let mut txn = db.begin(isolation).unwrap();
        txn.set_connection(connection).unwrap();
        txn
    };
    let get = |txn: &mut Transaction| {
        txn.get_raw(&table, b"a", Lock::None, &mut Vec::new()).unwrap();
    };
    let mut old = begin(Isolation::RepeatableRead, 1);
    assert_eq!(readers(&db), [], "it has not read yet");
    get(&mut old);
    put(&db, &table, b"a");
    put(&db, &table, b"b");
    let mut new = begin(Isolation::RepeatableRead, 2);
    get(&mut new);
    put(&db, &table, b"c");
    assert_eq!(readers(&db), [(1, 3), (2, 1)]);
    let status = db.status();
    assert_eq!(status.oldest_snapshot_unseen_commits, 3);
    assert!(db.snapshots()[0].age >= Duration::from_micros(status.oldest_snapshot_age_us));
    db.wait(old.commit_in_order().unwrap()).unwrap();
    assert_eq!(readers(&db), [(2, 1)]);
    // Its number stays.
    old.begin_again(Isolation::ReadCommitted).unwrap();
    get(&mut old);
    assert_eq!(readers(&db), [(2, 1), (1, 0)]);
    old.end_statement().unwrap();
    assert_eq!(readers(&db), [(2, 1)], "between statements it keeps nothing");
    drop(new);
    let status = db.status();
    assert_eq!((status.oldest_snapshot_age_us, status.oldest_snapshot_unseen_commits), (0, 0));
}

#[test]
fn what_outlives_its_statement_is_told_with_its_connection() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options()).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    put(&db, &table, b"a");
    let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
    txn.set_connection(1).unwrap();
    let (of, all) = (KeyOf::Primary, RawRange::all());
    let scan = txn.scan_raw(&table, of, all, Direction::Forward, Lock::None).unwrap();
    txn.end_statement().unwrap();
    assert_eq!(readers(&db), [(1, 0)], "the scan may go on");
    drop(scan);
    drop(txn);

    // An index is built beside writers.
    let patience = Patience::new(Duration::ZERO);
    patience.set_connection(2);
    let changes = db.changes(&patience);
    let mut alteration = changes.begin_alter().unwrap();
    let add = [RawIndex::new("by_row", false)];
    let change = TableChange { table: &table, drop: &[], rename: &[], add: &add, meta: None };
    changes.add_change(&mut alteration, &change).unwrap();
    put(&db, &table, b"b");
    assert_eq!(readers(&db), [(2, 1)]);
    drop(alteration);
    assert_eq!(readers(&db), []);
}

#[test]
fn a_thread_knows_what_it_has_done_to_pages() {
    const ROWS: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let open = || Database::open(dir.path(), options()).unwrap();
    let db = open();
    let columns = Schema::builder().column("id", Type::U64).column("n", Type::U64);
    let table = db.create_table("t", columns.primary_key(&["id"]).build().unwrap()).unwrap();
    let begin = |db: &Database| db.begin(Isolation::RepeatableRead).unwrap();
    let put = |n: u64| {
        let mut txn = begin(&db);
        (0..ROWS).for_each(|id| {
            txn.upsert(&table, &[Value::U64(id), Value::U64(n)]).unwrap();
        });
        txn.commit().unwrap();
    };
    take_work();
    put(1);
    let inserted = take_work();
    assert!(inserted.pages_accessed > 0 && inserted.pages_updated >= ROWS, "{inserted:?}");
    assert_eq!(inserted.pages_read, 0, "{inserted:?}");
    assert_eq!(take_work(), Work::default(), "nothing since");

    // Another one changes all rows; who reads goes back to what they were.
    let mut reader = begin(&db);
    assert_eq!(count(&mut reader, &table), ROWS);
    take_work();
    std::thread::scope(|scope| {
        scope.spawn(|| put(2));
    });
    assert_eq!(take_work(), Work::default(), "that was another thread's");
    assert_eq!(count(&mut reader, &table), ROWS);
    let read = take_work();
    assert!(read.undo_records_read >= ROWS, "{read:?}");
    assert_eq!((read.pages_updated, read.pages_read), (0, 0), "{read:?}");
    reader.commit().unwrap();

    drop(table);
    db.close(Shutdown::Clean, &mut |_| {}).unwrap();
    let db = open();
    let table = db.table("t").unwrap();
    take_work();
    assert_eq!(count(&mut begin(&db), &table), ROWS);
    let read = take_work();
    assert!(read.pages_read > 0 && read.pages_read_ns > 0, "{read:?}");
    assert_eq!(read.undo_records_read, 0, "{read:?}");
}

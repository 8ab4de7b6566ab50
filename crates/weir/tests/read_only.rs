//! Databases that are opened to be read only: nothing in the directory changes, whatever there is
//! to recover.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use weir::{
    BackgroundStep, Bounds, Database, Durability, Error, Isolation, Lock, Options, Patience,
    Schema, Shutdown, Table, Type, Value, Wait,
};
use weir_os::{AlignedBuf, Create, Disk, Mode, SimDisk};

const ROWS: u64 = 4000;

fn small() -> Options {
    options(2 << 20, 4 << 20)
}

fn read_only() -> Options {
    small().read_only(true)
}

fn item(id: u64, round: u64) -> Item {
    let mut rng = fastrand::Rng::with_seed(id << 8 | round);
    (rng.i64(..100), format!("{id}"), (0..300).map(|_| rng.u8(..)).collect())
}

fn upsert(db: &Database, table: &Table, ids: impl Iterator<Item = u64>, round: u64) {
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in ids {
        txn.upsert(table, &values(id, &item(id, round))).unwrap();
    }
    txn.commit().unwrap();
}

fn all(db: &Database) -> Vec<(u64, Item)> {
    let table = db.table("items").unwrap();
    all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table)
}

/// A database as it was when the power failed: changes all over that no page file has, one
/// transaction that was running, and one that was prepared.
fn crashed(seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    let db = Database::open_on(Arc::new(disk.clone()), small()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    upsert(&db, &table, 0..ROWS, 0);
    db.checkpoint().unwrap();
    upsert(&db, &table, (0..ROWS).step_by(7), 1);
    let mut prepared = db.begin(Isolation::RepeatableRead).unwrap();
    prepared.upsert(&table, &values(ROWS + 1, &item(ROWS + 1, 0))).unwrap();
    prepared.prepare(b"prepared").unwrap();
    prepared.detach().unwrap();
    let mut running = db.begin(Isolation::RepeatableRead).unwrap();
    for id in (0..ROWS).step_by(5) {
        running.upsert(&table, &values(id, &item(id, 2))).unwrap();
    }
    db.sync().unwrap();
    let found = disk.crash(seed);
    disk.power_off();
    found
}

/// Puts what is on a disk into a directory.
fn export(disk: &SimDisk, to: &Path) {
    for name in disk.list().unwrap() {
        let file = disk.open(&name, Create::No, Mode::Cached).unwrap();
        let len = file.len().unwrap() as usize;
        fs::write(to.join(&name), &file.read(0, AlignedBuf::zeroed(len)).unwrap()[..]).unwrap();
    }
}

#[test]
fn a_crashed_database_is_recovered_in_memory_and_left_as_it_is() {
    for seed in 0..6 {
        let disk = crashed(seed);
        let dir = tempfile::tempdir().unwrap();
        export(&disk, dir.path());
        let before = seen(dir.path());
        let db = Database::open(dir.path(), read_only()).unwrap();
        let found = all(&db);
        assert_sound(&db);
        assert_eq!(db.prepared(), [b"prepared"]);
        let status = db.status();
        assert!(status.recovery_log_bytes > 0 && status.disk.memory_bytes > 0, "{status:?}");
        assert_eq!((status.recovery_log_bytes_left, status.recovery_transactions_left), (0, 0));
        let copy = dir.path().with_extension("copy");
        db.backup(&copy).unwrap();
        db.close(Shutdown::Clean, &mut |_| {}).unwrap();
        assert_eq!(seen(dir.path()), before, "seed {seed}");
        // As whoever opens it to write finds it.
        for db in [Database::open_on(Arc::new(disk), small()), Database::open(&copy, small())] {
            let db = db.unwrap();
            same(&all(&db), &found, "opened to write");
            assert_sound(&db);
            assert_eq!(db.prepared(), [b"prepared"]);
        }
        fs::remove_dir_all(copy).unwrap();
    }
}

#[test]
fn a_database_that_was_closed_needs_no_memory_for_what_is_written() {
    for how in [Shutdown::Clean, Shutdown::Fast] {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), small()).unwrap();
        let table = db.create_table("items", items()).unwrap();
        upsert(&db, &table, 0..ROWS, 0);
        let rows = all(&db);
        drop(table);
        db.close(how, &mut |_| {}).unwrap();
        let before = seen(dir.path());
        let db = Database::open(dir.path(), read_only()).unwrap();
        for _ in 0..2 {
            same(&all(&db), &rows, "read only");
        }
        let memory = db.status().disk.memory_bytes;
        // What is noted of an opening at the end of the log and in the control file.
        assert!(how == Shutdown::Fast || memory < 256 << 10, "{memory}");
        drop(db);
        assert_eq!(seen(dir.path()), before, "{how:?}");
    }
}

#[test]
fn who_tries_to_write_is_told_and_reads_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    upsert(&db, &table, 0..100, 0);
    db.create_table("raw", Schema::raw(Vec::new(), Vec::new()).unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.upsert(&table, &values(200, &item(200, 0))).unwrap();
    txn.prepare(b"prepared").unwrap();
    txn.detach().unwrap();
    drop((table, db));

    let db = Database::open(dir.path(), read_only()).unwrap();
    let (table, raw) = (db.table("items").unwrap(), db.table("raw").unwrap());
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let (key, row) = ([Value::U64(1)], item(1, 1));
    let row = values(1, &row);
    let refused = [
        txn.insert(&table, &row),
        txn.insert_many(&table, &[row]),
        txn.upsert(&table, &row).map(drop),
        txn.update(&table, &row).map(drop),
        txn.delete(&table, &key).map(drop),
        txn.delete_range(&table, "by_a", Bounds::all()).map(drop),
        txn.insert_raw(&raw, b"key", b"row", &[]),
        txn.prepare(b"other"),
        db.commit_prepared(b"prepared", Durability::Sync),
        db.rollback_prepared(b"prepared", Durability::Sync),
        db.create_table("new", items()).map(drop),
        db.drop_table(&table),
        db.truncate_table(&table),
        db.rename_table(&table, "other"),
        db.add_column(&table, "new", Type::U64, Value::U64(0)),
        db.drop_column(&table, "body"),
        db.rename_column(&table, "body", "other"),
        db.set_meta(&raw, b"meta"),
        db.create_index(&table, "by_body", &["body"], false),
        db.drop_index(&table, "by_a"),
        db.changes(&Patience::new(std::time::Duration::ZERO)).begin_alter().map(drop),
        db.reorganize_table(&table).map(drop),
        db.compact(&mut |_| {}).map(drop),
        db.set_redo_capacity(8 << 20).map(drop),
        db.checkpoint(),
        db.purge_all(),
    ];
    for (nth, result) in refused.into_iter().enumerate() {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::ReadOnly), "{nth}: {error}");
        assert!(!error.is_retryable() && error.to_string().contains("Options::read_only"));
    }
    // The transaction goes on, and locking reads lock.
    assert!(txn.get(&table, &key).unwrap().is_some());
    assert!(txn.get_locking(&table, &key, Lock::Exclusive(Wait::No)).unwrap().is_some());
    txn.commit().unwrap();
    db.sync().unwrap();
    assert_eq!(db.prepared(), [b"prepared"]);
    assert_eq!((db.table_names().len(), all(&db).len()), (2, 100));
}

#[test]
fn readers_share_a_database_that_nobody_writes_to() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), small()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    upsert(&db, &table, 0..100, 0);
    let refused = Database::open(dir.path(), read_only()).unwrap_err();
    assert!(refused.to_string().contains("in use by process"), "{refused}");
    let rows = all(&db);
    drop((table, db));
    let readers = [(); 3].map(|()| Database::open(dir.path(), read_only()).unwrap());
    for reader in &readers {
        same(&all(reader), &rows, "beside others");
        let refused = Database::open(dir.path(), small()).unwrap_err();
        assert!(refused.to_string().contains("in use by others, who only read it"), "{refused}");
    }
    drop(readers);
    Database::open(dir.path(), small()).unwrap();
}

#[test]
fn no_database_is_made() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("missing"), dir.path().to_path_buf()] {
        let refused = Database::open(&path, read_only()).unwrap_err();
        assert!(matches!(refused, Error::NoDatabase { .. }), "{refused}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    let refused = Database::open_on(Arc::new(SimDisk::new(1)), read_only()).unwrap_err();
    assert!(matches!(refused, Error::NoDatabase { .. }), "{refused}");
}

/// A damaged page that recovery needs is given up in memory alone: who can bring the file back
/// still can.
#[test]
fn damaged_pages_are_given_up_for_the_reader_alone() {
    let disk = crashed(1);
    let data = disk.open("data", Create::No, Mode::Cached).unwrap().len().unwrap();
    // Not every page is one that recovery needs, or that it can do without.
    let is_given_up = (0..data).step_by(4096).any(|at| {
        let disk = disk.process_kill();
        disk.rot("data", at + 40, 3).unwrap();
        let dir = tempfile::tempdir().unwrap();
        export(&disk, dir.path());
        let before = seen(dir.path());
        let opened = Database::open(dir.path(), read_only());
        let Err(error) = opened.and_then(|db| db.finish_recovery()) else { return false };
        assert!(error.is_damaged_page(), "{error}");
        let db = Database::open(dir.path(), read_only().give_up_damaged(true));
        let given_up = db.map_or(0, |db| db.status().recovery_pages_given_up);
        assert!(seen(dir.path()) == before);
        given_up > 0
    });
    assert!(is_given_up);
}

/// Without threads, too: their steps can be asked for.
#[test]
fn steps_change_nothing() {
    let disk = crashed(3);
    let dir = tempfile::tempdir().unwrap();
    export(&disk, dir.path());
    let before = seen(dir.path());
    let db = Database::open(dir.path(), read_only().single_threaded()).unwrap();
    for _ in 0..50 {
        BackgroundStep::ALL.into_iter().for_each(|step| db.background_step(step).unwrap());
    }
    let rows = all(&db);
    db.finish_recovery().unwrap();
    same(&all(&db), &rows, "recovered");
    assert_sound(&db);
    drop(db);
    assert_eq!(seen(dir.path()), before);
    let schema = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build().unwrap();
    Database::open(dir.path(), small()).unwrap().create_table("new", schema).unwrap();
}

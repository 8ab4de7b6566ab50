//! Pages that have become half empty are filled again, and nothing in them changes.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir::{Database, Direction, Error, Isolation, KeyOf, Patience, Shutdown, Table, Value};
use weir_os::{AlignedBuf, Create, Disk, Mode, SimDisk};

const TREES: [KeyOf; 3] = [KeyOf::Primary, KeyOf::Index(0), KeyOf::Index(1)];

fn item(id: u64) -> Item {
    let mut rng = fastrand::Rng::with_seed(id);
    // Some with chains of their own, some with separators that are long.
    let body = if id.is_multiple_of(97) { 9000 } else { rng.usize(..300) };
    let text =
        format!("{}{id}", "x".repeat(if id.is_multiple_of(50) { 900 } else { rng.usize(..20) }));
    (rng.i64(..), text, (0..body).map(|_| rng.u8(..)).collect())
}

fn insert(db: &Database, table: &Table, ids: impl Iterator<Item = u64>) {
    let ids: Vec<u64> = ids.collect();
    for some in ids.chunks(200) {
        retried(db, Isolation::ReadCommitted, |txn| {
            some.iter().try_for_each(|&id| txn.insert(table, &values(id, &item(id))))
        });
    }
}

/// A table of which every third row is left, in pages that held all.
fn half_empty(db: &Database, rows: u64) -> Table {
    let table = db.create_table("items", items()).unwrap();
    insert(db, &table, 0..rows);
    thin_out(db, &table, rows);
    table
}

/// Deletes all rows but every third.
fn thin_out(db: &Database, table: &Table, rows: u64) {
    for from in (0..rows).step_by(300) {
        retried(db, Isolation::ReadCommitted, |txn| {
            for id in (from..from + 300).filter(|id| id % 3 > 0) {
                assert!(txn.delete(table, &[Value::U64(id)])?);
            }
            Ok(())
        });
    }
    db.sync().unwrap();
}

fn assert_rows(db: &Database, table: &Table, rows: u64) {
    let expected: Vec<(u64, Item)> = (0..rows).step_by(3).map(|id| (id, item(id))).collect();
    let found = all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), table);
    same(&expected, &found, "after reorganization");
}

/// Leaves of all trees of the table.
fn leaves(db: &Database, table: &Table) -> u64 {
    TREES.iter().map(|&of| db.index_figures(table, of).unwrap().leaf_pages).sum()
}

#[test]
fn half_empty_pages_are_filled_once() {
    const ROWS: u64 = 60_000;
    let disk = SimDisk::new(1);
    let options = options(16 << 20, 16 << 20).single_threaded();
    let open = |disk: &SimDisk| Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let db = open(&disk);
    let table = half_empty(&db, ROWS);
    db.purge_all().unwrap();
    db.checkpoint().unwrap();
    let before = db.status().data_used_bytes;
    let reorganized = db.reorganize_table(&table).unwrap();
    let (pages, freed) = (reorganized.leaf_pages, reorganized.freed_pages);
    // A third of the rows is left, in pages that were full or three quarters so.
    assert!(pages > 600 && freed > pages / 2 && freed < pages * 3 / 4, "{reorganized:?}");
    assert!(leaves(&db, &table) < (pages - freed) * 11 / 10);
    db.checkpoint().unwrap();
    let after = db.status().data_used_bytes;
    assert!(after < before * 9 / 10, "{after} bytes of {before}");
    let again = db.reorganize_table(&table).unwrap();
    assert_eq!(again.freed_pages, 0, "there is nothing left to win");
    assert_rows(&db, &table, ROWS);
    check_quiet(&db);
    drop((table, db));
    let db = open(&disk.crash(1));
    let table = db.table("items").unwrap();
    assert_rows(&db, &table, ROWS);
    check_quiet(&db);
    // Nor is anything lost to those who insert between.
    insert(&db, &table, (0..ROWS).filter(|id| id % 3 > 0));
    check_quiet(&db);
}

#[test]
fn versions_that_a_snapshot_needs_stay() {
    let db = Database::open_on(Arc::new(SimDisk::new(1)), options(16 << 20, 16 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    insert(&db, &table, 0..3000);
    let mut snapshot = db.begin(Isolation::RepeatableRead).unwrap();
    let then = all_items(&mut snapshot, &table);
    for id in (0..3000).filter(|id| id % 3 > 0) {
        retried(&db, Isolation::ReadCommitted, |txn| txn.delete(&table, &[Value::U64(id)]));
    }
    let reorganize = || db.reorganize_table(&table).unwrap().freed_pages;
    let freed = reorganize();
    same(&then, &all_items(&mut snapshot, &table), "the snapshot");
    assert_rows(&db, &table, 3000);
    drop(snapshot);
    db.purge_all().unwrap();
    assert!(reorganize() > 2 * freed);
    assert_rows(&db, &table, 3000);
    check_quiet(&db);
}

/// The power fails at any operation.
#[test]
fn a_crash_while_a_table_is_reorganized_loses_nothing() {
    const ROWS: u64 = 9000;
    let disk = SimDisk::new(1);
    let options = options(4 << 20, 4 << 20).single_threaded();
    let open = |disk: &SimDisk| Database::open_on(Arc::new(disk.clone()), options.clone());
    drop(half_empty(&open(&disk).unwrap(), ROWS));
    let mut rng = fastrand::Rng::with_seed(seed());
    let mut done = 0;
    for _ in 0..20 * factor() {
        let disk = disk.process_kill();
        let db = open(&disk).unwrap();
        disk.crash_at(disk.operations() + rng.u64(..600));
        let reorganized = db.reorganize_table(&db.table("items").unwrap());
        done += u32::from(reorganized.is_ok() && db.checkpoint().is_ok());
        disk.power_off();
        drop(db);
        let db = open(&disk.crash(rng.u64(..))).unwrap();
        assert_rows(&db, &db.table("items").unwrap(), ROWS);
        check_quiet(&db);
    }
    assert!(done < 20 * factor() as u32, "some crashed");
}

/// Rows are written and read meanwhile, again and again, in memory that doesn't hold them.
#[test]
fn others_go_on_while_a_table_is_reorganized() {
    let _watchdog = Watchdog::new("others_go_on_while_a_table_is_reorganized");
    const ROWS: u64 = 30_000;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(4 << 20, 8 << 20)).unwrap();
    let table = half_empty(&db, ROWS);
    let running = AtomicBool::new(true);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (db, table, running) = (&db, &table, &running);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                while running.load(Ordering::Relaxed) {
                    let id = rng.u64(..ROWS / 9) * 9 + thread * 3;
                    let passing = id + 1 + rng.u64(..2);
                    retried(db, Isolation::default(), |txn| {
                        assert!(txn.delete(table, &[Value::U64(id)])?);
                        txn.insert(table, &values(passing, &item(passing)))?;
                        txn.insert(table, &values(id, &item(id)))
                    });
                    retried(db, Isolation::default(), |txn| {
                        txn.delete(table, &[Value::U64(passing)]).map(|found| assert!(found))
                    });
                }
            });
        }
        for _ in 0..8 * factor() {
            db.reorganize_table(&table).unwrap();
        }
        running.store(false, Ordering::Relaxed);
    });
    assert_rows(&db, &table, ROWS);
    check_quiet(&db);
}

#[test]
fn it_ends_when_patience_does_and_with_the_table() {
    let db = Database::open_on(Arc::new(SimDisk::new(1)), options(8 << 20, 8 << 20)).unwrap();
    let table = half_empty(&db, 3000);
    let patience = Patience::new(Duration::ZERO);
    patience.end();
    let cancelled = db.changes(&patience).reorganize_table(&table);
    assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    assert_rows(&db, &table, 3000);
    db.drop_table(&table).unwrap();
    let gone = db.reorganize_table(&table);
    assert!(matches!(gone, Err(Error::NoSuchTable(_))), "{gone:?}");
}

/// The data file becomes shorter though pages of another table, at its end, can't be read.
#[test]
fn damage_elsewhere_is_passed_over() {
    const ROWS: u64 = 30_000;
    const MARK: &[u8] = b"to be damaged";
    let disk = SimDisk::new(1);
    let options = options(16 << 20, 16 << 20).single_threaded();
    let open = |disk: &SimDisk| Database::open_on(Arc::new(disk.clone()), options.clone()).unwrap();
    let db = open(&disk);
    let table = db.create_table("items", items()).unwrap();
    insert(&db, &table, 0..ROWS);
    db.checkpoint().unwrap();
    let other = db.create_table("other", items()).unwrap();
    retried(&db, Isolation::ReadCommitted, |txn| {
        (0..3000).try_for_each(|id| {
            let (number, text, mut body) = item(id);
            body.splice(..0, MARK.iter().copied());
            txn.insert(&other, &values(id, &(number, text, body)))
        })
    });
    db.checkpoint().unwrap();
    thin_out(&db, &table, ROWS);
    db.close(Shutdown::Clean, &mut |_| {}).unwrap();
    let data = disk.open("data", Create::No, Mode::Direct).unwrap();
    let bytes = data.len().unwrap();
    let mut damaged = 0;
    for at in (0..bytes).step_by(4096) {
        let mut unit = data.read(at, AlignedBuf::zeroed(4096)).unwrap();
        let marked = unit.windows(MARK.len()).position(|bytes| bytes == MARK);
        if let Some(marked) = marked {
            unit[marked] ^= 1;
            data.write(at, unit).unwrap();
            damaged += 1;
        }
    }
    assert!(damaged > 30, "{damaged}");
    data.sync().unwrap();
    let db = open(&disk);
    let scanned = |name| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        rows(&mut txn, &db.table(name).unwrap(), weir::IndexRef::Primary, Direction::Forward)
    };
    assert!(scanned("other").is_err_and(|error| error.is_damaged_page()));
    let reorganized = db.reorganize_table(&db.table("items").unwrap()).unwrap();
    assert!(reorganized.freed_pages > reorganized.leaf_pages / 2, "{reorganized:?}");
    assert_rows(&db, &db.table("items").unwrap(), ROWS);
    let damaged = db.reorganize_table(&db.table("other").unwrap());
    assert!(damaged.is_err_and(|error| error.is_damaged_page()));
}

/// No more is moved than was freed; the next time goes on from there.
#[test]
fn a_little_is_moved_for_a_little_that_is_freed() {
    let options = options(32 << 20, 32 << 20).single_threaded();
    let db = Database::open_on(Arc::new(SimDisk::new(1)), options).unwrap();
    let table = half_empty(&db, 60_000);
    let passing = db.create_table("passing", items()).unwrap();
    insert(&db, &passing, 0..2000);
    for id in (0..2000).filter(|id| id % 3 > 0) {
        retried(&db, Isolation::ReadCommitted, |txn| txn.delete(&passing, &[Value::U64(id)]));
    }
    db.purge_all().unwrap();
    db.checkpoint().unwrap();
    let written = || db.status().pages_written_checkpoint;
    let before = written();
    let little = db.reorganize_table(&passing).unwrap().freed_pages;
    assert!(little > 0 && written() - before <= 3 * little, "{little}, {}", written() - before);
    let much = db.reorganize_table(&table).unwrap().freed_pages;
    assert!(much > 10 * little, "{much}");
    check_quiet(&db);
}

//! A start after a crash for which a page is needed that is damaged.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Item, items, values};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use weir::{
    BackgroundStep, Database, Durability, Error, Isolation, Options, Shutdown, Transaction, Value,
};
use weir_os::sim::{Fault, OpKind, Times};
use weir_os::{Create, Disk, Mode, SimDisk};

const ROWS: u64 = 300;
const TABLES: [&str; 2] = ["one", "other"];

fn open(disk: &SimDisk, give_up_damaged: bool) -> Result<Database, Error> {
    let options = Options::default().memory_bytes(4 << 20).redo_capacity_bytes(4 << 20);
    let options = options.durability(Durability::Relaxed).single_threaded();
    Database::open_on(Arc::new(disk.clone()), options.give_up_damaged(give_up_damaged))
}

fn item(table: &str, id: u64, version: i64) -> Item {
    let body = fastrand::Rng::with_seed(id).u8(..);
    (version, format!("{table} {id:04}"), (0..200).map(|n| body.wrapping_mul(n)).collect())
}

/// Rows of two tables that have been changed since their pages were written, those below a third by
/// a transaction that hasn't committed; half of its undo was written.
fn crashed() -> SimDisk {
    let disk = SimDisk::new(1);
    let db = open(&disk, false).unwrap();
    for name in TABLES {
        let table = db.create_table(name, items()).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in 0..ROWS {
            txn.insert(&table, &values(id, &item(name, id, 0))).unwrap();
        }
        txn.commit().unwrap();
    }
    db.close(Shutdown::Clean, &mut |_| {}).unwrap();
    let db = open(&disk, false).unwrap();
    let update = |txn: &mut Transaction, ids: Range<u64>, version| {
        for name in TABLES {
            let table = db.table(name).unwrap();
            ids.clone().for_each(|id| {
                txn.update(&table, &values(id, &item(name, id, version))).unwrap();
            });
        }
    };
    let mut loser = db.begin(Isolation::RepeatableRead).unwrap();
    update(&mut loser, 0..ROWS / 6, 2);
    db.checkpoint().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    update(&mut txn, ROWS / 3..ROWS, 1);
    txn.commit().unwrap();
    let mut prepared = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 10 * ROWS..11 * ROWS {
        let table = db.table(TABLES[0]).unwrap();
        prepared.insert(&table, &values(id, &item("prepared", id, 1))).unwrap();
    }
    prepared.prepare(b"prepared").unwrap();
    update(&mut loser, ROWS / 6..ROWS / 3, 2);
    db.sync().unwrap();
    let crashed = disk.process_kill();
    loser.rollback().unwrap();
    prepared.rollback().unwrap();
    crashed
}

/// The version of each row that can be read.
fn versions(db: &Database) -> BTreeMap<(&'static str, u64), i64> {
    let mut versions = BTreeMap::new();
    for name in TABLES {
        let table = db.table(name).unwrap();
        for id in 0..ROWS {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            match txn.get(&table, &[Value::U64(id)]) {
                Ok(row) => {
                    let (_, found) = common::item_of(&row.expect("no row is lost in silence"));
                    assert_eq!(found, item(name, id, found.0));
                    versions.insert((name, id), found.0);
                }
                Err(error) => assert!(error.is_corrupt(), "{error}"),
            }
            txn.rollback().unwrap();
        }
    }
    versions
}

fn recovered(db: Database) -> Result<Database, Error> {
    db.finish_recovery()?;
    (BackgroundStep::ALL.into_iter().cycle())
        .take_while(|_| db.status().recovery_transactions_left > 0)
        .try_for_each(|step| db.background_step(step))?;
    Ok(db)
}

#[test]
fn any_one_damaged_page_given_up_leaves_the_rest_readable() {
    let disk = crashed();
    let data = disk.open("data", Create::No, Mode::Cached).unwrap().len().unwrap();
    let (mut refused, mut without, mut emptied, mut half_done) = (0, 0, 0, 0);
    for offset in (0..data).step_by(4096) {
        let damaged = || {
            let disk = disk.process_kill();
            disk.rot("data", offset + 100, 3).unwrap();
            disk
        };
        let stops = match open(&damaged(), false).and_then(recovered) {
            Ok(db) if versions(&db).len() as u64 == 2 * ROWS => {
                without += 1;
                continue;
            }
            Ok(_) => false,
            Err(error) => {
                assert!(error.is_corrupt(), "{error}");
                true
            }
        };
        let disk = damaged();
        let db = match open(&disk, true).and_then(recovered) {
            Ok(db) => db,
            // What all else hangs from.
            Err(error) => {
                assert!(stops && error.is_corrupt(), "{error}");
                refused += 1;
                continue;
            }
        };
        let status = db.status();
        let given_up = status.recovery_pages_given_up;
        assert!(given_up <= u64::from(stops));
        let found = versions(&db);
        // One page has to do with one table.
        let of_one = |name: &str| found.keys().filter(|(of, _)| *of == name).count() as u64;
        assert!(TABLES.iter().any(|name| of_one(name) == ROWS), "offset {offset}");
        let is_settled = |(&(_, id), &version): (&(_, u64), &i64)| match version {
            2 => id < ROWS / 3 && status.recovery_transactions_half_done > 0,
            version => version == i64::from(id >= ROWS / 3),
        };
        assert!(found.iter().all(is_settled), "offset {offset}: {found:?}");
        half_done += status.recovery_transactions_half_done;
        emptied += given_up;
        if found.len() as u64 != 2 * ROWS {
            let mut findings = 0;
            db.check(&mut |_| findings += 1).unwrap();
            assert!(findings > 0, "offset {offset}");
        }
        let disk = disk.process_kill();
        // It is for good.
        let db = open(&disk, false).and_then(recovered);
        let db = db.unwrap_or_else(|error| panic!("offset {offset}: {error}"));
        assert_eq!(versions(&db), found, "offset {offset}");
        for xid in db.prepared() {
            db.commit_prepared(&xid, Durability::Relaxed).unwrap();
        }
        for name in TABLES {
            db.drop_table(&db.table(name).unwrap()).unwrap();
        }
    }
    eprintln!(
        "{refused} refused, {without} without damage, {emptied} emptied, {half_done} half done"
    );
    assert!(emptied > 10 && half_done > 0 && refused < 4);
}

/// Pages whose changes can't be read are as they were, once the log is brought back.
#[test]
fn no_page_is_given_up_for_a_damaged_log() {
    let disk = SimDisk::new(1);
    let db = open(&disk, false).unwrap();
    let segment_bytes = db.status().lsn_last_checkpoint;
    let table = db.create_table(TABLES[0], items()).unwrap();
    db.create_table(TABLES[1], items()).unwrap();
    for (step, then) in [(1, BackgroundStep::MoveCheckpoint), (8, BackgroundStep::NoteDirtyPages)] {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in 0..ROWS {
            txn.upsert(&table, &values(id, &item(TABLES[0], id, step))).unwrap();
        }
        txn.commit().unwrap();
        // A checkpoint, and a table of dirty pages: what lies between is read when it is applied.
        db.background_step(then).unwrap();
    }
    let (from, to) = (db.status().lsn_last_checkpoint, db.status().lsn_current);
    db.sync().unwrap();
    let disk = disk.process_kill();
    for place in (from..to - 1000).step_by((to - from) as usize / 10) {
        let disk = disk.process_kill();
        let damage = || {
            let file = format!("redo-{:010}", place / segment_bytes);
            disk.rot(&file, 4096 + place % segment_bytes, 3).unwrap();
        };
        damage();
        let error = open(&disk, true).map(drop).unwrap_err();
        assert!(error.is_corrupt() && !error.is_damaged_page(), "{error}");
        damage();
        let db = recovered(open(&disk, false).unwrap()).unwrap();
        let table = db.table(TABLES[0]).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        assert_eq!(common::all_items(&mut txn, &table).len() as u64, ROWS);
    }
}

/// An image that the device can't read is as good as damaged; what fails otherwise is no reason to
/// give up pages.
#[test]
fn pages_that_the_device_fails_to_read_are_given_up() {
    let disk = crashed();
    let (mut given_up, mut refused, mut is_reached) = (0, 0, true);
    for operation in 0.. {
        if !is_reached {
            break;
        }
        let failing = disk.process_kill();
        let (on, at) = (Some(OpKind::Read), failing.operations() + operation);
        failing.inject(Fault::Io { on, at, times: Times::Once });
        let opened = open(&failing, true).and_then(recovered);
        is_reached = failing.operations() > at;
        failing.clear_faults();
        match opened {
            Ok(db) => {
                let emptied = db.status().recovery_pages_given_up;
                assert!(emptied <= 1, "operation {operation}: {emptied} pages");
                let found = versions(&db);
                let of_one = |name: &str| found.keys().filter(|(of, _)| *of == name).count() as u64;
                assert!(TABLES.iter().any(|name| of_one(name) == ROWS), "operation {operation}");
                given_up += emptied;
            }
            // It was something else. Nothing has changed.
            Err(error) => {
                assert!(matches!(error, Error::Storage(_)), "operation {operation}: {error}");
                drop(error);
                let db = open(&failing.process_kill(), false).and_then(recovered).unwrap();
                assert_eq!(versions(&db).len() as u64, 2 * ROWS, "operation {operation}");
                refused += 1;
            }
        }
    }
    assert!(given_up > 1 && refused > 5, "{given_up} given up, {refused} refused");
}

#[test]
fn a_data_file_that_was_cut_short_is_refused_and_not_given_up() {
    let disk = crashed();
    let cut = disk.process_kill();
    let data = cut.open("data", Create::No, Mode::Cached).unwrap();
    data.set_len(16 << 10).unwrap();
    for give_up_damaged in [false, true] {
        let error = open(&cut, give_up_damaged).map(drop).unwrap_err();
        let text = error.to_string();
        assert!(error.is_corrupt() && text.contains("extent beyond the file"), "{text}");
    }
    let db = open(&disk, true).and_then(recovered).unwrap();
    assert_eq!((db.status().recovery_pages_given_up, versions(&db).len() as u64), (0, 2 * ROWS));
}

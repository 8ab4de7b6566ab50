//! Staged index entries: what is spread over two trees reads as one, whatever moves meanwhile.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::staged::*;
use common::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir::{
    BackgroundStep, Bounds, Database, Direction, Durability, Entry, IndexRef, Isolation, KeyOf,
    Lock, RawIndex, RawRange, Schema, Shutdown, Table, Transaction, Type, Value,
};

fn item(rng: &mut fastrand::Rng, id: u64) -> Item {
    (rng.i64(-50..50), format!("{id}-{}", rng.u32(..)), vec![id as u8; rng.usize(..40)])
}

/// A random change of a row and of its model.
fn change(
    txn: &mut Transaction,
    table: &Table,
    model: &mut Model,
    rng: &mut fastrand::Rng,
    id: u64,
) {
    let new = item(rng, id);
    match (model.contains_key(&id), rng.u8(..4)) {
        (true, 0 | 1) => {
            assert!(txn.delete(table, &[Value::U64(id)]).unwrap());
            model.remove(&id);
        }
        (true, _) => {
            assert!(txn.update(table, &values(id, &new)).unwrap());
            model.insert(id, new);
        }
        (false, _) => {
            txn.insert(table, &values(id, &new)).unwrap();
            model.insert(id, new);
        }
    }
}

/// Keys of `by_a` entries between two values, in order.
fn range(
    txn: &mut Transaction,
    table: &Table,
    low: i64,
    high: i64,
    way: Direction,
) -> Vec<(i64, u64)> {
    use std::ops::Bound::{Excluded, Included};
    let (low, high) = ([Value::I64(low)], [Value::I64(high)]);
    let bounds = Bounds::new(Included(&low), Excluded(&high));
    let mut cursor = txn.scan_keys(table, "by_a", bounds, way).unwrap();
    let mut found = Vec::new();
    while let Some(row) = cursor.next().unwrap() {
        found.push((row.get(1).unwrap().as_i64().unwrap(), row.get(0).unwrap().as_u64().unwrap()));
    }
    found
}

/// One thread, all kinds of changes, steps in random order; old snapshots stay what they were.
#[test]
fn model_with_rollbacks_savepoints_and_old_snapshots() {
    let seed = seed();
    for round in 0..6 * factor() {
        let mut rng = fastrand::Rng::with_seed(seed + round);
        let dir = tempfile::tempdir().unwrap();
        let leaves = [0, 0, 3, 40][rng.usize(..4)];
        let db = Database::open(dir.path(), eager(4 << 20, leaves).single_threaded()).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let mut model = Model::new();
        let mut old: Vec<(Transaction, Model)> = Vec::new();
        for _ in 0..120 {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            let mut after = model.clone();
            if rng.u8(..6) == 0 {
                // What stays dead for the old snapshots is passed over by later scans.
                for id in std::mem::take(&mut after).into_keys() {
                    assert!(txn.delete(&table, &[Value::U64(id)]).unwrap());
                }
            }
            for _ in 0..rng.usize(1..40) {
                let (savepoint, before) = (txn.savepoint().unwrap(), after.clone());
                for _ in 0..rng.usize(1..6) {
                    let id = rng.u64(..600);
                    change(&mut txn, &table, &mut after, &mut rng, id);
                }
                if rng.u8(..4) == 0 {
                    txn.rollback_to(savepoint).unwrap();
                    after = before;
                }
                let moves = rng.bool();
                let step =
                    if moves { BackgroundStep::MoveStaged } else { step_beside_work(&mut rng) };
                db.background_step(step).unwrap();
            }
            if rng.u8(..4) == 0 {
                compare(&mut txn, &table, &after, "own writes");
            }
            if rng.u8(..3) == 0 {
                txn.rollback().unwrap();
            } else {
                txn.commit().unwrap();
                model = after;
            }
            if old.len() < 3 && rng.u8(..3) == 0 {
                let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
                assert_eq!(
                    reader.get(&table, &[Value::U64(1)]).unwrap().is_some(),
                    model.contains_key(&1)
                );
                old.push((reader, model.clone()));
            }
            if !old.is_empty() && rng.u8(..3) == 0 {
                let at = rng.usize(..old.len());
                let (txn, then) = &mut old[at];
                compare(txn, &table, then, "an old snapshot");
                if rng.bool() {
                    old.swap_remove(at);
                }
            }
            let (low, high) = (rng.i64(-60..60), rng.i64(-60..60));
            let mut expected: Vec<(i64, u64)> = model
                .iter()
                .map(|(id, x)| (x.0, *id))
                .filter(|x| (low..high).contains(&x.0))
                .collect();
            expected.sort_unstable();
            let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
            assert_eq!(range(&mut txn, &table, low, high, Direction::Forward), expected);
            expected.reverse();
            assert_eq!(range(&mut txn, &table, low, high, Direction::Backward), expected);
        }
        old.clear();
        assert!(db.status().staged_entries > 100);
        assert_sound(&db);
        for _ in 0..200 {
            db.purge_all().unwrap();
            db.background_step(BackgroundStep::MoveStaged).unwrap();
        }
        assert_sound(&db);
        if leaves == 0 {
            assert_eq!(db.status().staging_pages, 0, "everything has been moved");
        }
        db.close(Shutdown::Fast, &mut |_| {}).unwrap();
        let db = Database::open(dir.path(), eager(4 << 20, 0).single_threaded()).unwrap();
        let table = db.table("items").unwrap();
        compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "reopened");
        for _ in 0..100 {
            db.background_step(BackgroundStep::MoveStaged).unwrap();
        }
        assert_eq!(db.status().staging_pages, 0, "what an earlier life staged is moved");
        compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "moved");
        assert_sound(&db);
    }
}

/// Rows of another transaction that a snapshot doesn't cover, overwritten: each is seen once.
#[test]
fn overwritten_unseen_entries_are_seen_once() {
    let seed = seed();
    for round in 0..40 * factor() {
        let mut rng = fastrand::Rng::with_seed(seed + round);
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), eager(4 << 20, 0).single_threaded()).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let mut rows = Model::new();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in 0..20 {
            // Few values: entries die and come back under the same key.
            let new = (rng.i64(..3), format!("{id}"), Vec::new());
            txn.insert(&table, &values(id, &new)).unwrap();
            rows.insert(id, new);
        }
        txn.commit().unwrap();
        db.background_step(BackgroundStep::MoveStaged).unwrap();
        let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
        let mut seen = rows.clone();
        compare(&mut reader, &table, &seen, "the snapshot");
        for _ in 0..5 {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            for _ in 0..10 {
                let id = rng.u64(..20);
                let new = (rng.i64(..3), format!("{id}"), Vec::new());
                txn.upsert(&table, &values(id, &new)).unwrap();
                rows.insert(id, new);
            }
            txn.commit().unwrap();
            db.background_step(BackgroundStep::MoveStaged).unwrap();
        }
        for _ in 0..10 {
            let id = rng.u64(..20);
            if rng.bool() && rows.remove(&id).is_some() {
                assert!(reader.delete(&table, &[Value::U64(id)]).unwrap());
                seen.remove(&id);
            } else {
                let new = (rng.i64(..3), format!("{id}"), Vec::new());
                reader.upsert(&table, &values(id, &new)).unwrap();
                rows.insert(id, new.clone());
                seen.insert(id, new);
            }
            db.background_step(step_beside_work(&mut rng)).unwrap();
        }
        compare(&mut reader, &table, &seen, "the snapshot and what was written over it");
    }
}

/// Writers, readers in both directions, moves, purge and evictions, all at once.
#[test]
fn scans_miss_nothing_while_entries_move() {
    let _watchdog = Watchdog::new("scans_miss_nothing_while_entries_move");
    let seed = seed();
    for leaves in [0, 8] {
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), eager(6 << 20, leaves)).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let running = AtomicBool::new(true);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let (db, table, running) = (&db, &table, &running);
                    scope.spawn(move || {
                        let mut scans = 0;
                        while running.load(Ordering::Relaxed) || scans < 5 {
                            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                            let first = all_items(&mut txn, table);
                            std::thread::sleep(Duration::from_millis(20));
                            same(&first, &all_items(&mut txn, table), "the same snapshot");
                            scans += 1;
                        }
                    })
                })
                .collect();
            let writers: Vec<_> = (0..2)
                .map(|n| {
                    let (db, table) = (&db, &table);
                    scope.spawn(move || {
                        let mut rng = fastrand::Rng::with_seed(seed + n);
                        let mut model = Model::new();
                        for _ in 0..400 * factor() {
                            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                            let mut after = model.clone();
                            for _ in 0..30 {
                                let id = rng.u64(..8000) * 2 + n;
                                change(&mut txn, table, &mut after, &mut rng, id);
                            }
                            match rng.u8(..5) {
                                0 => txn.rollback().unwrap(),
                                _ => {
                                    txn.commit().unwrap();
                                    model = after;
                                }
                            }
                        }
                        model
                    })
                })
                .collect();
            let mut model = Model::new();
            for writer in writers {
                model.extend(writer.join().unwrap());
            }
            running.store(false, Ordering::Relaxed);
            for reader in readers {
                reader.join().unwrap();
            }
            compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "the end");
        });
        let status = db.status();
        assert!(status.staged_entries > 1000, "{} staged", status.staged_entries);
        assert!(leaves > 0 || status.staged_entries_moved > 500, "{status:?}");
        check_quiet(&db);
        db.close(Shutdown::Clean, &mut |_| {}).unwrap();
        let db = Database::open(dir.path(), eager(6 << 20, 0).single_threaded()).unwrap();
        assert_sound(&db);
    }
}

/// Indexes and tables come and go while their entries are moved.
#[test]
fn definitions_change_while_entries_move() {
    let _watchdog = Watchdog::new("definitions_change_while_entries_move");
    let seed = seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), eager(6 << 20, 0)).unwrap();
    for round in 0..12 * factor() {
        let table = db.create_table("items", items()).unwrap();
        let mut model = Model::new();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in 0..2000 {
            change(&mut txn, &table, &mut model, &mut rng, id);
        }
        txn.commit().unwrap();
        std::thread::sleep(Duration::from_millis(rng.u64(..12)));
        db.drop_index(&table, "by_a").unwrap();
        db.create_index(&table, "by_a", &["a"], false).unwrap();
        compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "a new index");
        if round % 2 == 0 {
            db.rename_table(&table, &format!("kept{round}")).unwrap();
        } else {
            db.drop_table(&table).unwrap();
        }
    }
    db.close(Shutdown::Fast, &mut |_| {}).unwrap();
    let db = Database::open(dir.path(), eager(6 << 20, 0).single_threaded()).unwrap();
    db.purge_all().unwrap();
    assert_sound(&db);
}

/// An entry that grows while it is staged is there whatever its length, and as before once that is
/// taken back.
#[test]
fn a_staged_entry_grows() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing is moved but by the updates.
    let db = Database::open(dir.path(), eager(6 << 20, 1000).single_threaded()).unwrap();
    let schema = Schema::raw(vec![RawIndex::new("values", false)], Vec::new()).unwrap();
    let table = db.create_table("raw", schema).unwrap();
    let mut model = BTreeMap::new();
    let insert = |txn: &mut Transaction, id: u32| {
        let entry = Entry { index: 0, key: &id.to_be_bytes(), value: &[0; 10] };
        txn.insert_raw(&table, &id.to_be_bytes(), b"row", &[entry]).unwrap();
        id.to_be_bytes().to_vec()
    };
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 0..200 {
        model.insert(insert(&mut txn, id), vec![0; 10]);
    }
    txn.commit().unwrap();
    assert!(db.status().staged_entries > 100, "{:?}", db.status().staged_entries);
    let scan = |txn: &mut Transaction, direction| {
        let mut scan =
            txn.scan_raw(&table, KeyOf::Index(0), RawRange::all(), direction, Lock::None).unwrap();
        let mut found = BTreeMap::new();
        while let Some(entry) = scan.next(txn).unwrap() {
            assert!(found.insert(entry.key.to_vec(), entry.value.to_vec()).is_none());
        }
        found
    };
    let mut old = db.begin(Isolation::RepeatableRead).unwrap();
    let before = scan(&mut old, Direction::Forward);
    for keeps in [false, true] {
        for len in [3590, 3600, 3800, 4000, 9000, 20, 5000] {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            let mut changed = model.clone();
            for (key, value) in changed.iter_mut().filter(|(key, _)| key[3] % 7 == len as u8 % 7) {
                let new = vec![9; len];
                let was = Entry { index: 0, key, value };
                let is = Entry { index: 0, key, value: &new };
                let others = txn.update_raw(&table, key, b"row", &[was], &[is]).unwrap();
                assert!(!others, "no other entry is to be touched");
                *value = new;
            }
            for direction in [Direction::Forward, Direction::Backward] {
                assert!(changed == scan(&mut txn, direction), "its own");
                assert!(before == scan(&mut old, direction), "an old snapshot's");
            }
            if keeps {
                txn.commit().unwrap();
                model = changed;
            } else {
                txn.rollback().unwrap();
            }
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            assert!(model == scan(&mut txn, Direction::Forward), "a new snapshot's");
            assert_sound(&db);
        }
    }
    drop(old);
    db.purge_all().unwrap();
    assert_sound(&db);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(model == scan(&mut txn, Direction::Forward), "after the purge");
}

/// With little memory and without any test's help: inserts are staged because leaves are missing.
#[test]
fn little_memory_stages() {
    let dir = tempfile::tempdir().unwrap();
    let small = options(4 << 20, 16 << 20);
    let db = Database::open(dir.path(), small.clone().single_threaded()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut model = Model::new();
    for from in (0..120_000).step_by(100) {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in from..from + 100 {
            let new = (rng.i64(..), format!("{id}"), vec![1; 4]);
            txn.insert(&table, &values(id, &new)).unwrap();
            model.insert(id, new);
        }
        txn.commit().unwrap();
        db.background_step(BackgroundStep::MoveStaged).unwrap();
    }
    let status = db.status();
    assert!(status.staged_entries > 2_000, "{} staged", status.staged_entries);
    compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "the end");
    assert_sound(&db);
    db.close(Shutdown::Fast, &mut |_| {}).unwrap();
    let db = Database::open(dir.path(), small.staging(false).single_threaded()).unwrap();
    let table = db.table("items").unwrap();
    compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "switched off");
    let mut cursor_of = db.begin(Isolation::RepeatableRead).unwrap();
    let n =
        rows(&mut cursor_of, &table, IndexRef::Named("by_a"), Direction::Backward).unwrap().len();
    assert_eq!(n, model.len());
}

/// A policy that says how much of what the log may grow by is used, and writes nothing.
struct LogUsed(f64);

impl weir_governor::Policy for LogUsed {
    fn name(&self) -> String {
        "log-used".into()
    }

    fn plan(&mut self, _: &weir_governor::Load) -> weir_governor::Plan {
        weir_governor::Plan { log_used: self.0, ..weir_governor::Plan::IDLE }
    }
}

/// With memory for all: inserts are staged where a small log and the device are the limit, and
/// nowhere else.
#[test]
fn a_small_log_at_the_limit_of_the_device_stages() {
    let _watchdog = Watchdog::new("inserts that are to be staged");
    let dir = tempfile::tempdir().unwrap();
    let options = options(64 << 20, 1 << 20);
    let db = Database::open(dir.path(), options.clone()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut model = Model::new();
    let mut insert = |db: &Database, table: &Table, model: &mut Model, rows: u64| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for _ in 0..rows {
            let new = (rng.i64(..), format!("{}", model.len()), vec![1; 60]);
            txn.insert(table, &values(model.len() as u64, &new)).unwrap();
            model.insert(model.len() as u64, new);
        }
        txn.commit().unwrap();
    };
    (0..100).for_each(|_| insert(&db, &table, &mut model, 600));
    let mut db = Some(db);
    for (used, redo) in [(0.5, 1 << 20), (1.0, 1 << 20), (1.0, 16 << 20)] {
        // Pages are clean then.
        db.take().expect("it was opened").close(Shutdown::Clean, &mut |_| {}).unwrap();
        let options = options.clone().redo_capacity_bytes(redo);
        let options = options.flush_policy(move || Box::new(LogUsed(used)));
        let open = db.insert(Database::open(dir.path(), options).unwrap());
        let table = open.table("items").unwrap();
        // Pages are in memory then.
        compare(&mut open.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "before");
        let is_staged = used == 1.0 && redo == 1 << 20;
        for round in 0.. {
            insert(open, &table, &mut model, 20);
            let staged = open.status().staged_entries;
            assert!(is_staged || staged == 0, "{staged} staged at {used} of a log of {redo}");
            if staged > 50 || (!is_staged && round > 100) {
                break;
            }
            open.checkpoint().unwrap();
        }
        compare(&mut open.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "staged");
        assert_sound(open);
    }
}

/// Rows deleted and inserted again by the transaction that scans them, ahead of the scan and behind
/// it.
#[test]
fn a_scan_finds_what_its_transaction_deletes_and_inserts_again() {
    let seed = seed();
    for round in 0..12 * factor() {
        let mut rng = fastrand::Rng::with_seed(seed + round);
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), eager(4 << 20, 0).single_threaded()).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let row = |id: u64| (id as i64 / 3, format!("{id}"), vec![7; 9]);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (0..3000).for_each(|id| txn.insert(&table, &values(id, &row(id))).unwrap());
        txn.commit().unwrap();
        for _ in 0..100 {
            db.background_step(BackgroundStep::MoveStaged).unwrap();
        }
        let status = db.status();
        assert_eq!(status.staged_entries, status.staged_entries_moved, "all have been moved");
        let way = if round % 2 == 0 { Direction::Forward } else { Direction::Backward };
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        // Without a write before, the scan sees its snapshot alone.
        if rng.u8(..4) > 0 {
            assert!(txn.update(&table, &values(1, &row(1))).unwrap());
        }
        let mut found = Vec::new();
        let mut cursor = txn.scan(&table, "by_a", Bounds::all(), way).unwrap();
        while let Some(row_at) = cursor.next().unwrap() {
            found.push(row_at.get(0).unwrap().as_u64().unwrap());
            if rng.u8(..40) > 0 {
                continue;
            }
            let txn = cursor.transaction();
            let savepoint = txn.savepoint().unwrap();
            for id in (0..20).map(|_| rng.u64(..3000)) {
                assert!(txn.delete(&table, &[Value::U64(id)]).unwrap());
                txn.insert(&table, &values(id, &row(id))).unwrap();
            }
            match rng.u8(..4) {
                0 => txn.rollback_to(savepoint).unwrap(),
                _ => db.background_step(BackgroundStep::MoveStaged).unwrap(),
            }
        }
        if way == Direction::Backward {
            found.reverse();
        }
        let missed: Vec<u64> = (0..3000).filter(|id| !found.contains(id)).collect();
        assert!(missed.is_empty(), "round {round}: {missed:?} were missed");
        assert!(found.is_sorted_by(|x, y| x < y), "round {round}: each is given once, in order");
    }
}

/// A snapshot that lasts keeps nothing in the staging trees that was inserted and committed after
/// it.
#[test]
fn an_old_snapshot_does_not_keep_entries_from_being_moved() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), eager(4 << 20, 0).single_threaded()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let row = |id: u64| (id as i64 / 3, format!("{id}"), vec![7; 9]);
    let mut model = Model::new();
    let insert = |ids: std::ops::Range<u64>, model: &mut Model| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in ids {
            txn.insert(&table, &values(id, &row(id))).unwrap();
            model.insert(id, row(id));
        }
        txn.commit().unwrap();
    };
    insert(0..100, &mut model);
    let before = model.clone();
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    compare(&mut reader, &table, &before, "the snapshot");
    for from in (100..2000).step_by(100) {
        insert(from..from + 100, &mut model);
    }
    for _ in 0..100 {
        db.background_step(BackgroundStep::MoveStaged).unwrap();
    }
    assert_eq!(db.status().staging_pages, 0, "everything has been moved");
    compare(&mut reader, &table, &before, "the snapshot, all being moved");
    compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "the newest");
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in (0..2000).step_by(3) {
        assert!(txn.delete(&table, &[Value::U64(id)]).unwrap());
        model.remove(&id);
    }
    txn.commit().unwrap();
    compare(&mut reader, &table, &before, "the snapshot, a third being gone");
    compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "the newest");
    reader.rollback().unwrap();
    db.purge_all().unwrap();
    assert_sound(&db);
}

/// A prepared transaction that nobody decides keeps no entry of others, whatever was done to it
/// before.
#[test]
fn a_prepared_transaction_does_not_keep_entries_from_being_moved() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), eager(4 << 20, 0).single_threaded()).unwrap();
    let plain = Schema::builder().column("id", Type::U64).primary_key(&["id"]).build().unwrap();
    let plain = db.create_table("plain", plain).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut idle = db.begin(Isolation::RepeatableRead).unwrap();
    idle.insert(&plain, &[Value::U64(1)]).unwrap();
    idle.prepare(b"idle").unwrap();
    idle.detach().unwrap();
    for round in 0..3 {
        for id in 0..200 {
            retried(&db, Isolation::default(), |txn| {
                if round > 0 {
                    assert!(txn.delete(&table, &[Value::U64(id)])?);
                }
                txn.insert(&table, &values(id, &(id as i64 % 7, format!("{id}"), vec![])))
            });
        }
    }
    assert!(db.status().staged_entries > 300, "inserts are staged");
    db.purge_all().unwrap();
    for _ in 0..100 {
        db.background_step(BackgroundStep::MoveStaged).unwrap();
    }
    assert_eq!(db.status().staging_pages, 0, "everything has been moved");
    db.rollback_prepared(b"idle", Durability::Relaxed).unwrap();
    assert_eq!(all_items(&mut db.begin(Isolation::default()).unwrap(), &table).len(), 200);
    assert_sound(&db);
}

/// What is dead in a staging tree can't be moved; what is staged for other indexes can.
#[test]
fn entries_of_one_index_that_must_wait_keep_no_others_from_being_moved() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), eager(8 << 20, 0).single_threaded()).unwrap();
    let tables = ["many", "few"].map(|name| db.create_table(name, items()).unwrap());
    let insert = |txn: &mut Transaction, table: &Table, ids: std::ops::Range<u64>| {
        for id in ids {
            txn.insert(table, &values(id, &(id as i64, format!("{id}"), vec![7; 9]))).unwrap();
        }
    };
    let mut runs = db.begin(Isolation::RepeatableRead).unwrap();
    insert(&mut runs, &tables[0], 0..5000);
    for id in 0..5000 {
        assert!(runs.delete(&tables[0], &[Value::U64(id)]).unwrap());
    }
    (0..100).for_each(|_| db.background_step(BackgroundStep::MoveStaged).unwrap());
    let before = db.status();
    assert!(before.staging_pages > 10, "entries are left");
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    insert(&mut txn, &tables[1], 0..100);
    txn.commit().unwrap();
    let staged = db.status().staged_entries - before.staged_entries;
    assert!(staged > 0, "inserts are staged");
    for _ in 0..100 {
        db.background_step(BackgroundStep::MoveStaged).unwrap();
    }
    assert_eq!(db.status().staged_entries_moved - before.staged_entries_moved, staged);
    runs.commit().unwrap();
    assert_sound(&db);
}

/// All is in memory, but few pages may be dirty: entries of one leaf share its writes all the same.
#[test]
fn near_the_dirty_limit_entries_wait_for_others_of_their_leaf() {
    let pages_written = |staging: bool| {
        let dir = tempfile::tempdir().unwrap();
        let roomy = options(24 << 20, 64 << 20).staging(staging).single_threaded();
        let db = Database::open(dir.path(), roomy).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let mut rng = fastrand::Rng::with_seed(1);
        let mut model = load(&db, &table, &mut rng, 0..60_000);
        db.checkpoint().unwrap();
        db.set_dirty_limit(0.1).unwrap();
        let before = db.status();
        for from in (60_000..80_000).step_by(500) {
            model.extend(load(&db, &table, &mut rng, from..from + 500));
            (0..8).for_each(|_| db.background_step(BackgroundStep::MoveStaged).unwrap());
        }
        let after = db.status();
        assert_eq!(after.pages_read, before.pages_read, "all is in memory");
        assert_eq!(after.staged_entries > 0, staging);
        compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "the end");
        assert_sound(&db);
        if staging {
            db.set_dirty_limit(0.9).unwrap();
            (0..300).for_each(|_| db.background_step(BackgroundStep::MoveStaged).unwrap());
            assert_eq!(db.status().staging_pages, 0, "where there is room, nothing is left staged");
            compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "moved");
            assert_sound(&db);
        }
        after.pages_written_dirty_limit - before.pages_written_dirty_limit
    };
    let (with, without) = (pages_written(true), pages_written(false));
    assert!(with * 3 < without, "{with} pages written, {without} without staging");
}

/// What is staged can't be moved before its transaction ends, so that transaction doesn't wait for
/// it.
#[test]
fn a_transaction_larger_than_what_may_be_staged_gets_through() {
    let _watchdog = Watchdog::new("a_transaction_larger_than_what_may_be_staged_gets_through");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), eager(6 << 20, 0)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let mut model = Model::new();
    for id in 0..20_000 {
        let new = (id as i64 * 7919 % 20_011, format!("{id}"), vec![1; 4]);
        txn.insert(&table, &values(id, &new)).unwrap();
        model.insert(id, new);
    }
    txn.commit().unwrap();
    compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "the end");
}

/// What lies in both trees is given many entries at once, in order, forwards and backwards, and
/// once only though it is moved between two looks at it.
#[test]
fn entries_of_both_trees_are_given_together() {
    use weir::{Entry, KeyOf, Lock, RawIndex, RawRange, Schema};
    let mut rng = fastrand::Rng::with_seed(seed());
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), eager(8 << 20, 20).single_threaded()).unwrap();
    let schema = Schema::raw(vec![RawIndex::new("i", false)], Vec::new()).unwrap();
    let table = db.create_table("t", schema).unwrap();
    let mut expected = Vec::new();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..40_000_u32 {
        let (id, key) = (n.to_be_bytes(), [rng.u32(..).to_be_bytes(), n.to_be_bytes()].concat());
        let entry = Entry { index: 0, key: &key, value: &id };
        txn.insert_raw(&table, &id, b"row", &[entry]).unwrap();
        expected.push((key, id.to_vec()));
        if n % 100 == 0 {
            txn.commit().unwrap();
            txn = db.begin(Isolation::RepeatableRead).unwrap();
            db.background_step(BackgroundStep::MoveStaged).unwrap();
        }
    }
    txn.commit().unwrap();
    let status = db.status();
    assert!(status.staging_pages >= 3 && status.staged_entries_moved > 10_000, "{status:?}");
    let left = status.staged_entries - status.staged_entries_moved;
    expected.sort();
    drop(table);
    db.close(Shutdown::Fast, &mut |_| {}).unwrap();
    let db = Database::open(dir.path(), eager(8 << 20, 0).single_threaded()).unwrap();
    let table = db.table("t").unwrap();
    for (way, moves) in
        [(Direction::Forward, false), (Direction::Backward, false), (Direction::Forward, true)]
    {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let (of, all) = (KeyOf::Index(0), RawRange::all());
        let mut scan = txn.scan_raw(&table, of, all, way, Lock::None).unwrap();
        let (mut found, mut times) = (Vec::new(), 0);
        while let Some(entry) = scan.next(&mut txn).unwrap() {
            found.push((entry.key.to_vec(), entry.value.to_vec()));
            let given = Given::of(&entry);
            let rest = scan.take_rest();
            given.assert_is(found.last().unwrap());
            for place in rest.entries {
                let bytes = |from: u32, to: u32| rest.bytes[from as usize..to as usize].to_vec();
                found.push((bytes(place.key, place.value), bytes(place.value, place.end)));
            }
            times += 1;
            if moves {
                db.background_step(BackgroundStep::MoveStaged).unwrap();
            }
        }
        assert!(found == expected, "{way:?}");
        assert!(times < expected.len() / 20, "{times} batches");
        expected.reverse();
    }
    let status = db.status();
    assert!(status.staged_entries_moved > left / 2, "{left} were left: {status:?}");
}

//! Tombstones: deletes of index entries that are staged, and what they hide.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::staged::*;
use common::*;
use std::collections::BTreeMap;
use weir::{
    BackgroundStep, Database, Direction, Entry, Isolation, KeyOf, Lock, RawIndex, RawRange, Schema,
    Transaction, Value,
};

/// Entries of few keys are deleted, come back, and get values of any length; they are hidden, in
/// whatever state they are, and seen as each snapshot has to see them.
#[test]
fn tombstones_hide_what_they_are_to_hide() {
    const LENGTHS: [usize; 6] = [0, 1, 10, 3590, 4000, 9000];
    let seed = seed();
    let mut staged = 0;
    for round in 0..12 * factor() {
        let mut rng = fastrand::Rng::with_seed(seed + round);
        let dir = tempfile::tempdir().unwrap();
        let db = Database::open(dir.path(), eager(6 << 20, 0).single_threaded()).unwrap();
        let schema = Schema::raw(vec![RawIndex::new("values", false)], Vec::new()).unwrap();
        let table = db.create_table("raw", schema).unwrap();
        // Of each row the group that its entry is in, and the entry's value.
        type Rows = BTreeMap<u8, (u8, Vec<u8>)>;
        // A value is as long as it is, and has the same byte throughout.
        let brief = |value: &[u8]| (value.len(), value.first().copied());
        let scan = |txn: &mut Transaction, direction| {
            let mut scan = txn
                .scan_raw(&table, KeyOf::Index(0), RawRange::all(), direction, Lock::None)
                .unwrap();
            let mut found = Vec::new();
            while let Some(entry) = scan.next(txn).unwrap() {
                found.push((entry.key.to_vec(), brief(entry.value)));
            }
            found
        };
        let compare = |txn: &mut Transaction, rows: &Rows, what: &str| {
            let entry =
                |(id, (group, value)): (&u8, &(u8, Vec<u8>))| (vec![*group, *id], brief(value));
            let mut expected: Vec<_> = rows.iter().map(entry).collect();
            expected.sort_unstable();
            assert_eq!(expected, scan(txn, Direction::Forward), "{what}, round {round}");
            expected.reverse();
            assert_eq!(expected, scan(txn, Direction::Backward), "{what}, round {round}");
        };
        let mut rows = Rows::new();
        let mut old: Vec<(Transaction, Rows)> = Vec::new();
        for _ in 0..80 {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            let mut after = rows.clone();
            for _ in 0..rng.usize(1..8) {
                let (savepoint, before) = (txn.savepoint().unwrap(), after.clone());
                for _ in 0..rng.usize(1..6) {
                    let id = rng.u8(..24);
                    let new = (rng.u8(..2), vec![rng.u8(..); LENGTHS[rng.usize(..LENGTHS.len())]]);
                    let (was, is) = (after.get(&id).cloned(), (rng.u8(..3) > 0).then_some(new));
                    let key_of = |row: &(u8, Vec<u8>)| [row.0, id];
                    let keys = (was.as_ref().map(key_of), is.as_ref().map(key_of));
                    match (&was, &is) {
                        (None, None) => {}
                        (None, Some(new)) => {
                            let entry = Entry { index: 0, key: &keys.1.unwrap(), value: &new.1 };
                            txn.insert_raw(&table, &[id], b"row", &[entry]).unwrap();
                        }
                        (Some(old), None) => {
                            let entry = Entry { index: 0, key: &keys.0.unwrap(), value: &old.1 };
                            txn.delete_raw(&table, &[id], &[entry]).unwrap();
                        }
                        (Some(old), Some(new)) => {
                            let was = Entry { index: 0, key: &keys.0.unwrap(), value: &old.1 };
                            let is = Entry { index: 0, key: &keys.1.unwrap(), value: &new.1 };
                            txn.update_raw(&table, &[id], b"row", &[was], &[is]).unwrap();
                        }
                    }
                    match is {
                        Some(new) => after.insert(id, new),
                        None => after.remove(&id),
                    };
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
            compare(&mut txn, &after, "own writes");
            if rng.u8(..3) == 0 {
                txn.rollback().unwrap();
            } else {
                txn.commit().unwrap();
                rows = after;
            }
            let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
            compare(&mut reader, &rows, "what is committed");
            if old.len() < 3 && rng.u8(..3) == 0 {
                old.push((reader, rows.clone()));
            }
            if !old.is_empty() && rng.u8(..2) == 0 {
                let at = rng.usize(..old.len());
                let (txn, then) = &mut old[at];
                compare(txn, then, "an old snapshot");
                if rng.bool() {
                    old.swap_remove(at);
                }
            }
            assert_sound(&db);
        }
        old.clear();
        staged += db.status().staged_entries;
        for _ in 0..100 {
            db.purge_all().unwrap();
            db.background_step(BackgroundStep::MoveStaged).unwrap();
        }
        // But for what is alive and hides a chain: in one page, unless values are long.
        let long = rows.values().filter(|(_, value)| (3000..9000).contains(&value.len())).count();
        let pages = db.status().staging_pages;
        assert!(pages <= 1 + long as u64, "{pages} pages were not moved, {long} values are long");
        assert_sound(&db);
        compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &rows, "moved");
    }
    assert!(staged > 1000, "{staged}");
}

/// Tombstones that an old snapshot keeps took all the room.
#[test]
fn an_old_snapshot_leaves_room_for_inserts_beside_tombstones() {
    const LOADED: u64 = 100_000;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(4 << 20, 16 << 20).single_threaded()).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut model = load(&db, &table, &mut rng, 0..LOADED);
    let change = |from: u64, model: &mut Model, rng: &mut fastrand::Rng| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in from..from + 100 {
            let new = (rng.i64(..), format!("{:08}", LOADED + id), vec![1; 4]);
            txn.insert(&table, &values(LOADED + id, &new)).unwrap();
            model.insert(LOADED + id, new);
            assert!(txn.delete(&table, &[Value::U64(id)]).unwrap());
            model.remove(&id);
        }
        txn.commit().unwrap();
        (0..4).for_each(|_| db.background_step(BackgroundStep::MoveStaged).unwrap());
    };
    let mut old = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(old.get(&table, &[Value::U64(0)]).unwrap().is_some());
    let (mut moved, mut staged) = (0, 0);
    for from in (0..80_000).step_by(100) {
        if from == 70_000 {
            (moved, staged) = (db.status().staged_entries_moved, db.status().staged_entries);
        }
        change(from, &mut model, &mut rng);
    }
    let status = db.status();
    let (moved, staged) = (status.staged_entries_moved - moved, status.staged_entries - staged);
    println!("of 20,000 inserts and deletes {staged} were staged, {moved} moved");
    assert!(staged > 2000 && moved > 2000, "{staged} were staged, {moved} moved");
    drop(old);
    for from in (80_000..90_000).step_by(100) {
        change(from, &mut model, &mut rng);
    }
    let later = db.status().staged_entries - status.staged_entries;
    assert!(later > 10_000, "{later} of 20,000 staged once the snapshot has gone");
    compare(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table, &model, "the newest");
    assert_sound(&db);
}

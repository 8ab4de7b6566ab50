//! What an old snapshot reads beside those who write.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::{
    Item, Watchdog, all_items, check_quiet, factor, items, options, retried, same, values,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use weir::{Database, Isolation, Value};

const ROWS: u64 = 200;
const WRITERS: u64 = 3;

fn item(writer: u64, round: u64, id: u64) -> Item {
    (round as i64 % 7, format!("{id} of {writer}"), vec![round as u8; 300])
}

/// Few rows, each of which gets far more versions than are gone through at once; their undo doesn't
/// fit into memory.
#[test]
fn an_old_snapshot_gives_what_was_there_whatever_becomes_of_it() {
    let _watchdog = Watchdog::new("an old snapshot beside writers");
    let seed = common::seed();
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(2 << 20, 8 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let expected: Vec<(u64, Item)> = (0..ROWS).map(|id| (id, item(WRITERS, 0, id))).collect();
    retried(&db, Isolation::default(), |txn| {
        expected.iter().try_for_each(|(id, item)| txn.insert(&table, &values(*id, item)))
    });
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    same(&expected, &all_items(&mut reader, &table), "before");
    let running = AtomicUsize::new(WRITERS as usize);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, table, running) = (&db, &table, &running);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed ^ writer);
                for round in 1..4000 * factor() {
                    // One of its own, of which some get most of the changes.
                    let most = 1 + rng.u64(..ROWS + 20);
                    let most = 1 + rng.u64(..most);
                    let id = rng.u64(..most) / WRITERS * WRITERS + writer;
                    let commits = rng.u8(..8) > 0;
                    let mut txn = db.begin(Isolation::ReadCommitted).unwrap();
                    let written = match rng.u8(..4) {
                        0 => txn.delete(table, &[Value::U64(id)]),
                        _ => txn.upsert(table, &values(id, &item(writer, round, id))),
                    };
                    written.unwrap();
                    if commits { txn.commit() } else { txn.rollback() }.unwrap();
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        while running.load(Ordering::Acquire) > 0 {
            same(&expected, &all_items(&mut reader, &table), "meanwhile");
            for (id, item) in expected.iter().step_by(7) {
                let row = reader.get(&table, &[Value::U64(*id)]).unwrap().expect("it was there");
                assert_eq!(common::item_of(&row).1, *item, "row {id}");
            }
        }
    });
    same(&expected, &all_items(&mut reader, &table), "afterwards");
    reader.rollback().unwrap();
    check_quiet(&db);
}

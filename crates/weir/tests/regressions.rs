//! Faults that were found once, each named after its cause.

mod common;

use common::*;
use std::time::Duration;
use weir::{Bounds, Database, Direction, Error, IndexRef, Isolation, Value};

fn item(a: i64, b: impl ToString, body: usize) -> Item {
    (a, b.to_string(), vec![a as u8; body])
}

#[test]
fn purge_frees_undo_pages_that_a_rollback_left_empty() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    retried(&db, Isolation::default(), |txn| {
        (0..20).try_for_each(|id| txn.insert(&table, &values(id, &item(0, id, 3000))))
    });
    for round in 0..30 {
        // The first record may need a new page of the lane; rolled back, the page stays its last.
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.update(&table, &values(round % 20, &item(1, round % 20, 2000 + 50 * round as usize)))
            .unwrap();
        txn.rollback().unwrap();
        retried(&db, Isolation::default(), |txn| {
            (0..20).try_for_each(|id| {
                txn.update(&table, &values(id, &item(round as i64, id, 3000))).map(|_| ())
            })
        });
    }
    db.purge_all().unwrap();
    assert_eq!(db.status().history_list_length, 0);
}

//! What an insert into a raw table locks that finds a row in its way.
#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::{Watchdog, options};
use weir::{
    Database, Direction, Entry, Error, Isolation, KeyOf, Lock, RawIndex, RawRange, Schema, Table,
    Transaction, Wait,
};

/// A table with a unique index.
fn open(dir: &std::path::Path) -> (Database, Table) {
    let db = Database::open(dir, options(8 << 20, 8 << 20)).unwrap();
    let schema = Schema::raw(vec![RawIndex::new("unique", true)], Vec::new()).unwrap();
    let table = db.create_table("t", schema).unwrap();
    (db, table)
}

/// The row that is in an insert's way isn't locked by it, and so two who go on with it don't wait
/// for each other in a circle.
#[test]
fn who_goes_on_with_a_duplicate_locks_it_alone() {
    let _watchdog = Watchdog::new("who_goes_on_with_a_duplicate_locks_it_alone");
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(dir.path());
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert_raw(&table, b"k", &[0, 0], &[]).unwrap();
    txn.commit().unwrap();
    let [mut one, mut two] = [(); 2].map(|()| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.set_locks_ranges(true).unwrap();
        let tried = txn.try_insert_raw(&table, b"k", &[0, 0], &[]);
        assert!(matches!(tried, Err(Error::Duplicate { .. })), "{tried:?}");
        txn
    });
    let (at_once, mut row) = (Lock::Exclusive(Wait::No), Vec::new());
    assert!(one.get_raw(&table, b"k", at_once, &mut row).unwrap());
    assert!(two.get_raw(&table, b"k", at_once, &mut row).is_err());
    drop((one, two));
    let exclusive = Lock::Exclusive(Wait::ForTimeout);
    let add = || {
        for _ in 0..200 {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            txn.set_locks_ranges(true).unwrap();
            let tried = txn.try_insert_raw(&table, b"k", &[0, 0], &[]);
            assert!(matches!(tried, Err(Error::Duplicate { .. })), "{tried:?}");
            let mut row = Vec::new();
            assert!(txn.get_raw(&table, b"k", exclusive, &mut row).unwrap());
            let next = u16::from_le_bytes(row.try_into().unwrap()) + 1;
            txn.update_raw(&table, b"k", &next.to_le_bytes(), &[], &[]).unwrap();
            txn.commit().unwrap();
        }
    };
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(add))));
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let mut row = Vec::new();
    assert!(txn.get_raw(&table, b"k", Lock::None, &mut row).unwrap());
    assert_eq!(row, 600u16.to_le_bytes());
}

/// Who had waited for a range to insert there, and finds a row, kept others from reading there, who
/// kept it from that in turn.
#[test]
fn an_insert_that_finds_a_row_behind_a_range_gives_up_its_turn() {
    let _watchdog = Watchdog::new("an_insert_that_finds_a_row_behind_a_range_gives_up_its_turn");
    let dir = tempfile::tempdir().unwrap();
    let (db, table) = open(dir.path());
    let entry = [Entry { index: 0, key: b"unique", value: b"k" }];
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert_raw(&table, b"k", b"row", &entry).unwrap();
    txn.commit().unwrap();
    let lock_range = |txn: &mut Transaction| {
        let (range, exclusive) = (RawRange::prefix(b"unique"), Lock::Exclusive(Wait::ForTimeout));
        let of = KeyOf::Index(0);
        let mut scan = txn.scan_raw(&table, of, range, Direction::Forward, exclusive).unwrap();
        scan.next(txn).map(|entry| entry.is_some())
    };
    for _ in 0..20 {
        let mut first = db.begin(Isolation::RepeatableRead).unwrap();
        first.set_locks_ranges(true).unwrap();
        assert!(lock_range(&mut first).unwrap());
        let insert = |key: &'static [u8]| {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            txn.set_locks_ranges(true).unwrap();
            let tried = txn.try_insert_raw(&table, key, b"row", &entry);
            assert!(matches!(tried, Err(Error::Duplicate { .. })), "{tried:?}");
            assert!(lock_range(&mut txn).unwrap());
            txn.commit().unwrap();
        };
        std::thread::scope(|scope| {
            for key in [b"l", b"m"] {
                scope.spawn(move || insert(key));
            }
            while db.locks().iter().filter(|lock| lock.wait.is_some()).count() < 2 {
                std::thread::yield_now();
            }
            first.commit().unwrap();
        });
    }
}

//! Estimates of sizes and ranges, and lists of transactions.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Watchdog, items, options, values};
use fastrand::Rng;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::time::Duration;
use weir::{
    Bounds, Database, Durability, Entry, Error, IndexRef, Isolation, KeyOf, Lock, RawIndex,
    RawRange, Schema, Table, TransactionState, Type, Value, Wait,
};

fn open(dir: &std::path::Path) -> Database {
    Database::open(dir, options(32 << 20, 64 << 20)).unwrap()
}

/// Rows `0..rows` in random order, with an index by `n % 100` and then `n / 100 % 7`.
fn filled(db: &Database, rows: u32) -> Table {
    let schema = Schema::raw(vec![RawIndex::new("parts", false)], vec![]).unwrap();
    let table = db.create_table("t", schema).unwrap();
    let mut order: Vec<u32> = (0..rows).collect();
    Rng::with_seed(7).shuffle(&mut order);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in order {
        let key = n.to_be_bytes();
        let of_entry = entry_key(n);
        let entry = Entry { index: 0, key: &of_entry, value: b"" };
        txn.insert_raw(&table, &key, &[5; 80], &[entry]).unwrap();
    }
    txn.commit().unwrap();
    table
}

fn entry_key(n: u32) -> Vec<u8> {
    [&[(n % 100) as u8, (n / 100 % 7) as u8][..], &n.to_be_bytes()].concat()
}

fn within(found: u64, expected: u64, percent: u64, what: &str) {
    let off = found.abs_diff(expected) * 100;
    assert!(off <= expected * percent, "{what}: {found}, not about {expected}");
}

#[test]
fn small_tables_are_counted_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db, 700);
    assert_eq!(db.estimate_rows(&table).unwrap(), 700);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let of_entry = entry_key(5);
    let entry = Entry { index: 0, key: &of_entry, value: b"" };
    txn.delete_raw(&table, &5u32.to_be_bytes(), &[entry]).unwrap();
    assert_eq!(db.estimate_rows(&table).unwrap(), 699);
    txn.rollback().unwrap();
    let split = &mut |_: &[u8], ends: &mut Vec<usize>| ends.extend([1, 2, 6]);
    let different = db.cardinality(&table, KeyOf::Index(0), 3, split).unwrap();
    assert_eq!(different, [100, 700, 700]);
    assert!(matches!(
        db.cardinality(&table, KeyOf::Index(1), 1, split),
        Err(Error::NoSuchIndex { .. })
    ));
    assert_eq!(db.estimate_range(&table, KeyOf::Index(0), RawRange::prefix(&[7])).unwrap(), 7);
    let empty = RawRange::new(Included(&[8]), Excluded(&[7]));
    assert_eq!(db.estimate_range(&table, KeyOf::Primary, empty).unwrap(), 0);
}

#[test]
fn large_tables_are_judged_by_a_few_pages() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let rows = 150_000;
    let table = filled(&db, rows);
    within(db.estimate_rows(&table).unwrap(), u64::from(rows), 15, "rows");
    let bytes = db.index_figures(&table, KeyOf::Primary).unwrap().size_bytes();
    assert!((84 * u64::from(rows)..3 * 110 * u64::from(rows)).contains(&bytes), "{bytes} bytes");
    let range = |low: u32, high: u32| {
        let (low, high) = (low.to_be_bytes(), high.to_be_bytes());
        let range = RawRange::new(Included(&low), Excluded(&high));
        db.estimate_range(&table, KeyOf::Primary, range).unwrap()
    };
    // Neighbours are counted, more is judged by the pages on the way to both ends.
    assert_eq!(range(70_000, 70_001), 1);
    assert_eq!(range(70_000, 70_040), 40);
    within(range(70_000, 71_000), 1_000, 30, "a thousand");
    within(range(20_000, 120_000), 100_000, 30, "most of it");
    let of_one = db.estimate_range(&table, KeyOf::Index(0), RawRange::prefix(&[42])).unwrap();
    within(of_one, u64::from(rows) / 100, 50, "a hundredth");
    let all = RawRange::new(Unbounded, Unbounded);
    within(db.estimate_range(&table, KeyOf::Index(0), all).unwrap(), u64::from(rows), 40, "all");
    let split = &mut |_: &[u8], ends: &mut Vec<usize>| ends.extend([1, 2, 6]);
    let different = db.cardinality(&table, KeyOf::Index(0), 3, split).unwrap();
    within(different[0], 100, 30, "first parts");
    within(different[2], u64::from(rows), 20, "whole keys");
    assert!(different.is_sorted());
}

/// An index by random keys is built as full as random inserts would leave it; one by keys in the
/// order of the rows, full.
#[test]
fn leaves_of_a_built_index_do_not_split_together() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let schema = Schema::raw(vec![], vec![]).unwrap();
    let table = db.create_table("t", schema).unwrap();
    // A row has two numbers below 102,000: one in no order, and one that rises but for every fifth
    // row.
    let insert = |from: u32, to: u32, indexed: bool| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for n in from..to {
            let late = if n % 5 == 0 { 100 } else { 0 };
            let row = [n * 7919 % 102_000, n - late.min(n)].map(u32::to_be_bytes);
            let key = n.to_be_bytes();
            let of_entries = row.map(|part| [&part[..], &key[..]].concat());
            let entries = [0, 1].map(|index| Entry { index, key: &of_entries[index], value: b"" });
            let entries = if indexed { &entries[..] } else { &[] };
            txn.insert_raw(&table, &key, row.as_flattened(), entries).unwrap();
        }
        txn.commit().unwrap();
    };
    insert(0, 100_000, false);
    let indexes = [RawIndex::new("random", false), RawIndex::new("rising", false)];
    db.alter_indexes(&table, &[], &indexes, None, &mut |n, key, row, of_key, _| {
        of_key.extend_from_slice(&row[4 * n..][..4]);
        of_key.extend_from_slice(key);
        Ok(())
    })
    .unwrap();
    let leaves = |n| db.index_figures(&table, KeyOf::Index(n)).unwrap().leaf_pages;
    let (built, of_rising) = (leaves(0), leaves(1));
    assert!(of_rising * 12 < built * 10, "{of_rising} leaves for rising keys, {built} for random");
    insert(100_000, 102_000, true);
    let split = leaves(0) - built;
    println!("{split} of {built} leaves have split");
    assert!(built > 50 && split > 0 && split * 10 < built, "{split} of {built}");
}

#[test]
fn pages_of_long_values_count() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    // A page holds somewhat less than 16,384 bytes: three for each of these.
    for n in 0..10u32 {
        txn.insert_raw(&table, &n.to_be_bytes(), &[7; 40_000], &[]).unwrap();
    }
    txn.insert_raw(&table, &10u32.to_be_bytes(), &[7; 100], &[]).unwrap();
    txn.commit().unwrap();
    let figures = db.index_figures(&table, KeyOf::Primary).unwrap();
    assert_eq!((figures.entries, figures.leaf_pages, figures.overflow_pages), (11, 1, 30));
    assert_eq!(figures.size_bytes(), 31 * 16_384);
}

#[test]
fn running_transactions_are_listed() {
    let _watchdog = Watchdog::new("list of transactions");
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = filled(&db, 10);
    assert!(db.transactions().is_empty());
    let mut one = db.begin(Isolation::RepeatableRead).unwrap();
    let mut two = db.begin(Isolation::RepeatableRead).unwrap();
    one.insert_raw(&table, b"one", b"", &[]).unwrap();
    let savepoint = one.savepoint().unwrap();
    one.insert_raw(&table, b"more", b"", &[]).unwrap();
    two.insert_raw(&table, b"two", b"", &[]).unwrap();
    two.insert_raw(&table, b"also", b"", &[]).unwrap();
    let listed = db.transactions();
    let brief: Vec<_> = listed.iter().map(|t| (t.state, t.undo_records)).collect();
    assert_eq!(brief, [(TransactionState::Running, 2), (TransactionState::Running, 2)]);
    one.rollback_to(savepoint).unwrap();
    let mut reader = db.begin(Isolation::Serializable).unwrap();
    let of = KeyOf::Index(0);
    let (all, forward) = (RawRange::all(), weir::Direction::Forward);
    let mut scan = reader.scan_raw(&table, of, all, forward, Lock::None).unwrap();
    while scan.next(&mut reader).unwrap().is_some() {}
    let owners: Vec<_> = db.locks().iter().map(|lock| db.owner_of_tree(lock.tree)).collect();
    assert!(!owners.is_empty() && owners.iter().all(|o| *o == Some(("t".to_string(), of))));
    reader.commit().unwrap();
    let holder = listed[0].id;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let lock = Lock::Exclusive(Wait::ForTimeout);
            two.get_raw(&table, b"one", lock, &mut Vec::new()).unwrap();
            two.set_durability(Durability::Write);
            two.prepare(b"xid").unwrap();
            two.detach().unwrap();
        });
        while db.transactions()[1].state != TransactionState::Waiting {
            std::thread::yield_now();
        }
        assert_eq!(db.transactions()[1].waiting_for, [holder]);
        assert_eq!(db.transactions()[0].undo_records, 1);
        one.commit().unwrap();
        waiter.join().unwrap();
    });
    drop((table, db));
    let db = open(dir.path());
    let listed = db.transactions();
    let brief: Vec<_> = listed.iter().map(|t| (t.state, t.undo_records)).collect();
    assert_eq!(brief, [(TransactionState::Prepared, 3)]);
    assert!(listed[0].age < Duration::from_secs(3600));
    db.rollback_prepared(b"xid", Durability::Write).unwrap();
    assert!(db.transactions().is_empty());
}

#[test]
fn bounds_of_a_typed_table_are_estimated_by_any_of_its_indexes() {
    const ROWS: u64 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for id in 0..ROWS {
        let item = ((id % 10) as i64, format!("{id:08}"), vec![1; 40]);
        txn.insert(&table, &values(id, &item)).unwrap();
    }
    txn.commit().unwrap();
    let (low, high) = ([Value::U64(5000)], [Value::U64(15_000)]);
    let half = Bounds::new(Included(&low), Excluded(&high));
    let estimate =
        |index: IndexRef<'_>, bounds: Bounds<'_>| db.estimate_bounds(&table, index, bounds);
    within(estimate(IndexRef::Primary, half).unwrap(), 10_000, 20, "ids");
    let third = [Value::I64(3)];
    within(estimate("by_a".into(), Bounds::prefix(&third)).unwrap(), 2000, 50, "by_a");
    let text = [Value::Text("00000007")];
    assert_eq!(estimate("by_b".into(), Bounds::new(Unbounded, Excluded(&text))).unwrap(), 7);
    assert_eq!(estimate("by_b".into(), Bounds::new(Excluded(&text), Excluded(&text))).unwrap(), 0);

    assert!(matches!(estimate("none".into(), Bounds::all()), Err(Error::NoSuchIndex { .. })));
    assert!(matches!(estimate("by_a".into(), Bounds::prefix(&text)), Err(Error::Row(_))));
    let raw = filled(&db, 1);
    let of_raw = db.estimate_bounds(&raw, IndexRef::Primary, Bounds::all());
    assert!(matches!(of_raw, Err(Error::NotTyped(_))), "{of_raw:?}");
}

/// The leaves at the ends of a value's rows are those that are just being filled: all others have
/// many more.
#[test]
fn rows_of_one_value_are_estimated_by_what_lies_between() {
    const ROWS: u64 = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(16 << 20, 16 << 20)).unwrap();
    let schema = Schema::builder().column("id", Type::U64).column("state", Type::Text);
    let schema = schema.primary_key(&["id"]).index("by_state", &["state"]).build().unwrap();
    let table = db.create_table("orders", schema).unwrap();
    let state = |id: u64| match id {
        id if id % 10_000 == 0 => "rare",
        id if id % 100 == 1 => "open",
        id if id % 10 == 2 => "paid",
        _ => "done",
    };
    for ids in (0..ROWS).collect::<Vec<_>>().chunks(500) {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for &id in ids {
            txn.insert(&table, &[Value::U64(id), Value::Text(state(id))]).unwrap();
        }
        txn.commit().unwrap();
    }
    db.purge_all().unwrap();
    for wanted in ["rare", "open", "paid", "done"] {
        let rows = (0..ROWS).filter(|&id| state(id) == wanted).count() as f64;
        let value = [Value::Text(wanted)];
        let bounds = Bounds::prefix(&value);
        let estimated = db.estimate_bounds(&table, "by_state", bounds).unwrap() as f64;
        assert!((0.7..1.4).contains(&(estimated / rows)), "{wanted}: {estimated} of {rows}");
    }
}

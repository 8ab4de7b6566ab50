//! Two-phase commit by the public interface.
#![allow(clippy::unwrap_used)]

mod common;

use common::{all_items, check_quiet, items, options, values};
use std::time::Duration;
use weir::{
    Database, Direction, Durability, Error, Isolation, KeyOf, Lock, MAX_XID, RawRange, Schema,
    Shutdown, Table, Transaction, Value,
};

fn open(dir: &std::path::Path) -> Database {
    let options = options(8 << 20, 8 << 20).lock_wait_timeout(Duration::ZERO);
    Database::open(dir, options.durability(Durability::Write)).unwrap()
}

fn insert(txn: &mut Transaction, table: &Table, id: u64) -> weir::Result<()> {
    txn.insert(table, &values(id, &(id as i64, format!("b{id}"), vec![1; 10])))
}

fn ids(db: &Database) -> Vec<u64> {
    let table = db.table("items").unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    all_items(&mut txn, &table).into_iter().map(|(id, _)| id).collect()
}

#[test]
fn prepared_rows_stay_locked_over_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let other = db.create_table("other", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (0..4).for_each(|id| insert(&mut txn, &table, id).unwrap());
    txn.commit().unwrap();
    for (xid, id) in [(b"commits", 4), (b"goesoff", 5)] {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        insert(&mut txn, &table, id).unwrap();
        assert!(txn.delete(&table, &[Value::U64(id - 4)]).unwrap());
        txn.prepare(xid).unwrap();
        // Dropped, it is the database's.
        drop(txn);
    }
    drop((table, other));
    for how in [Shutdown::Fast, Shutdown::Clean] {
        assert_eq!(db.prepared(), [b"commits", b"goesoff"]);
        assert_eq!(ids(&db), [0, 1, 2, 3]);
        let table = db.table("items").unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in [0, 1] {
            let deleted = txn.delete(&table, &[Value::U64(id)]);
            assert!(matches!(deleted, Err(Error::LockWaitTimeout)), "{id}");
            let locked = txn.get_for_share(&table, &[Value::U64(id)]);
            assert!(matches!(locked, Err(Error::LockWaitTimeout)), "{id}");
        }
        assert!(matches!(insert(&mut txn, &table, 4), Err(Error::LockWaitTimeout)));
        assert!(txn.delete(&table, &[Value::U64(2)]).unwrap());
        drop(txn);
        assert!(matches!(db.drop_table(&table), Err(Error::TableInUse(_))));
        db.close(how, &mut |_| {}).unwrap();
        drop(table);
        db = open(dir.path());
    }
    db.drop_table(&db.table("other").unwrap()).unwrap();
    db.commit_prepared(b"commits", Durability::Write).unwrap();
    db.rollback_prepared(b"goesoff", Durability::Write).unwrap();
    assert!(db.prepared().is_empty());
    assert_eq!(ids(&db), [1, 2, 3, 4]);
    check_quiet(&db);
    let table = db.table("items").unwrap();
    db.drop_table(&table).unwrap();
}

#[test]
fn a_prepared_transaction_takes_no_statement() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    insert(&mut txn, &table, 1).unwrap();
    let savepoint = txn.savepoint().unwrap();
    txn.prepare(b"x").unwrap();
    assert!(matches!(insert(&mut txn, &table, 2), Err(Error::Prepared)));
    assert!(matches!(txn.get(&table, &[Value::U64(1)]), Err(Error::Prepared)));
    assert!(matches!(txn.rollback_to(savepoint), Err(Error::Prepared)));
    assert!(matches!(txn.prepare(b"y"), Err(Error::Prepared)));
    // It has an owner.
    assert!(db.prepared().is_empty());
    assert!(matches!(db.commit_prepared(b"x", Durability::Write), Err(Error::XidInUse)));
    txn.rollback().unwrap();
    assert!(matches!(db.rollback_prepared(b"x", Durability::Write), Err(Error::NoSuchXid)));
    assert!(ids(&db).is_empty());
}

/// It has given up its snapshot: what the scan would come to may be gone by then.
#[test]
fn a_scan_ends_when_its_transaction_is_prepared() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("raw", Schema::raw(Vec::new(), Vec::new()).unwrap()).unwrap();
    let keys: Vec<[u8; 2]> = (0..500u16).map(u16::to_be_bytes).collect();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    keys.iter().for_each(|key| txn.insert_raw(&table, key, b"old", &[]).unwrap());
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    txn.insert_raw(&table, b"mine", b"row", &[]).unwrap();
    let (all, forward) = (RawRange::all(), Direction::Forward);
    let mut scan = txn.scan_raw(&table, KeyOf::Primary, all, forward, Lock::None).unwrap();
    assert!(scan.next(&mut txn).unwrap().is_some());
    txn.prepare(b"x").unwrap();
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    keys.iter().for_each(|key| other.delete_raw(&table, key, &[]).unwrap());
    other.commit().unwrap();
    db.purge_all().unwrap();
    assert!(matches!(scan.next(&mut txn), Err(Error::Prepared)));
    txn.commit().unwrap();
}

#[test]
fn a_prepared_transaction_may_give_up_what_it_has_only_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (0..2).for_each(|id| insert(&mut txn, &table, id).unwrap());
    assert!(matches!(txn.release_reads(), Err(Error::NotPrepared)));
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(txn.get_for_update(&table, &[Value::U64(0)]).unwrap().is_some());
    assert!(txn.delete(&table, &[Value::U64(1)]).unwrap());
    txn.prepare(b"x").unwrap();
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    let mut delete = |id| other.delete(&table, &[Value::U64(id)]);
    assert!(matches!(delete(0), Err(Error::LockWaitTimeout)));
    txn.release_reads().unwrap();
    assert!(delete(0).unwrap());
    assert!(matches!(delete(1), Err(Error::LockWaitTimeout)));
    txn.commit().unwrap();
    assert!(matches!(delete(1), Ok(false)));
}

#[test]
fn names_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let mut first = db.begin(Isolation::RepeatableRead).unwrap();
    let mut second = db.begin(Isolation::RepeatableRead).unwrap();
    insert(&mut second, &table, 2).unwrap();
    first.prepare(&[7; MAX_XID]).unwrap();
    assert!(matches!(second.prepare(&[7; MAX_XID]), Err(Error::XidInUse)));
    assert!(matches!(second.prepare(&[]), Err(Error::BadXid { bytes: 0 })));
    assert!(matches!(second.prepare(&[7; MAX_XID + 1]), Err(Error::BadXid { .. })));
    // Refused, it goes on.
    insert(&mut second, &table, 3).unwrap();
    assert!(matches!(second.detach(), Err(Error::NotPrepared)));
    assert!(ids(&db).is_empty());
    // One that has written nothing is there after a restart, too.
    first.detach().unwrap();
    drop((table, db));
    let db = open(dir.path());
    assert_eq!(db.prepared(), [[7; MAX_XID]]);
    db.commit_prepared(&[7; MAX_XID], Durability::Write).unwrap();
    check_quiet(&db);
}

#[test]
fn commits_in_order_are_visible_before_they_are_durable() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let mut commits = Vec::new();
    for id in 0..3 {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.set_durability(Durability::Sync);
        insert(&mut txn, &table, id).unwrap();
        if id > 0 {
            txn.prepare(&[id as u8]).unwrap();
        }
        commits.push(txn.commit_in_order().unwrap());
        assert_eq!(ids(&db).len() as u64, id + 1);
    }
    for committed in commits {
        db.wait(committed).unwrap();
    }
    let status = db.status();
    assert!(status.lsn_flushed <= status.lsn_current);
    check_quiet(&db);
}

#[test]
fn a_prepared_transaction_is_decided_as_durably_as_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let relaxed = options(8 << 20, 8 << 20).durability(Durability::Relaxed).single_threaded();
    let db = Database::open(dir.path(), relaxed).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let xids: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    for (id, xid) in (0..).zip(xids) {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        insert(&mut txn, &table, id).unwrap();
        txn.prepare(xid).unwrap();
        txn.detach().unwrap();
    }
    let is_durable = || db.status().lsn_flushed == db.status().lsn_current;
    db.commit_prepared(xids[0], Durability::Relaxed).unwrap();
    assert!(!is_durable());
    db.commit_prepared(xids[1], Durability::Sync).unwrap();
    assert!(is_durable());
    db.rollback_prepared(xids[2], Durability::Relaxed).unwrap();
    assert!(!is_durable());
    db.rollback_prepared(xids[3], Durability::Sync).unwrap();
    assert!(is_durable());
}

/// Its undo spans many pages of its lane, some of them behind committed history.
#[test]
fn a_large_prepared_transaction_is_found_whole() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (0..3000).for_each(|id| insert(&mut txn, &table, id).unwrap());
    txn.commit().unwrap();
    // Keeps the history of what follows.
    let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
    reader.take_snapshot().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (0..100).for_each(|id| assert!(txn.delete(&table, &[Value::U64(id)]).unwrap()));
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (100..2900).for_each(|id| assert!(txn.delete(&table, &[Value::U64(id)]).unwrap()));
    txn.prepare(b"large").unwrap();
    drop((txn, reader, table, db));
    for how in [true, false] {
        let db = open(dir.path());
        assert_eq!(ids(&db).len(), 2900);
        if how {
            continue;
        }
        db.rollback_prepared(b"large", Durability::Write).unwrap();
        assert_eq!(ids(&db).len(), 2900);
        let table = db.table("items").unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        assert!(txn.delete(&table, &[Value::U64(100)]).unwrap());
        txn.commit().unwrap();
        check_quiet(&db);
    }
}

#[test]
fn who_is_to_decide_a_transaction_can_wait_until_its_owner_lets_go() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    insert(&mut txn, &table, 1).unwrap();
    txn.prepare(b"x").unwrap();
    assert!(!db.wait_until_detached(b"x", Duration::ZERO));
    assert!(db.wait_until_detached(b"nobody's", Duration::ZERO));
    std::thread::scope(|scope| {
        let decides = scope.spawn(|| {
            assert!(db.wait_until_detached(b"x", Duration::MAX));
            db.commit_prepared(b"x", Durability::Write).unwrap();
        });
        txn.detach().unwrap();
        decides.join().unwrap();
    });
    assert_eq!(ids(&db), [1]);
}

//! What a full device leaves behind.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

use std::sync::Arc;
use weir::{
    Database, Durability, Error, Isolation, Options, Schema, Table, Transaction, Type, Value,
};
use weir_os::{Disk, SimDisk};

/// A small database with a table of bodies.
fn open() -> (SimDisk, Database, Table) {
    let disk = SimDisk::new(1);
    let options =
        Options::default().memory_bytes(2 << 20).redo_capacity_bytes(1 << 20).single_threaded();
    let db = Database::open_on(Arc::new(disk.clone()), options).unwrap();
    let schema = Schema::builder()
        .column("id", Type::U64)
        .column("body", Type::Bytes)
        .primary_key(&["id"])
        .build()
        .unwrap();
    let table = db.create_table("t", schema).unwrap();
    (disk, db, table)
}

/// Inserts rows whose bodies don't compress.
fn inserts(table: &Table) -> impl FnMut(&mut Transaction, u64) -> weir::Result<()> {
    let (mut rng, mut body) = (fastrand::Rng::with_seed(7), vec![0; 3000]);
    move |txn, id| {
        rng.fill(&mut body);
        txn.insert(table, &[Value::U64(id), Value::Bytes(&body)])
    }
}

/// Its files filled up the device before that was told, and stayed there.
#[test]
fn a_redo_log_that_does_not_fit_leaves_nothing_behind() {
    let disk = SimDisk::new(1);
    disk.set_capacity(Some(8 << 20));
    let options = |redo: u64| {
        Options::default().memory_bytes(2 << 20).redo_capacity_bytes(redo).single_threaded()
    };
    let open = |redo| Database::open_on(Arc::new(disk.clone()), options(redo));
    let refused = |result: Result<(), Error>, free: u64| {
        let error = result.expect_err("there is no space");
        let free = format!("{free} bytes free");
        assert!(error.is_no_space() && error.to_string().contains(&free), "{error}");
    };
    refused(open(16 << 20).map(drop), 8 << 20);
    assert_eq!((disk.list().unwrap(), disk.used_bytes()), (vec![], 0));
    let db = open(2 << 20).unwrap();
    db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let used = disk.used_bytes();
    refused(db.set_redo_capacity(16 << 20).map(drop), (8 << 20) - used);
    assert_eq!((db.status().redo_capacity, disk.used_bytes()), (2 << 20, used));
    drop(db);
    let used = disk.used_bytes();
    refused(open(16 << 20).map(drop), (8 << 20) - used);
    assert!(disk.used_bytes() <= used);
    assert!(open(2 << 20).unwrap().table("t").is_some());
}

/// The chain's announcement is the first thing that the transaction writes; the device fills up while
/// the chain is written.
#[test]
fn a_chain_that_could_not_be_finished_is_taken_back() {
    for spare in (0..40).map(|n| n * 37_000) {
        let (disk, db, table) = open();
        disk.set_capacity(Some(disk.used_bytes() + spare));
        let mut rng = fastrand::Rng::with_seed(7);
        let mut body = vec![0; 250_000];
        let error = (0..1000u64).find_map(|id| {
            rng.fill(&mut body);
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            let done = txn.insert(&table, &[Value::U64(id), Value::Bytes(&body)]);
            let error = done.err();
            match error {
                // What is on the device can be freed only where there is space to write.
                Some(_) => disk.set_capacity(None),
                None => txn.commit().unwrap(),
            }
            error
        });
        let error = error.expect("the device is full").to_string();
        assert!(error.contains("no space"), "{error}");
        let mut findings = Vec::new();
        db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "with {spare} bytes: {findings:#?}");
    }
}

/// Whoever begins next, once there is space, finishes what could not be taken back.
#[test]
fn a_transaction_dropped_on_a_full_device_is_rolled_back_later() {
    let mut left = 0;
    for spare in [0, 300_000, 900_000] {
        let (disk, db, table) = open();
        let mut insert = inserts(&table);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        insert(&mut txn, 1).unwrap();
        txn.commit().unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (2..400).for_each(|id| insert(&mut txn, id).unwrap());
        disk.set_capacity(Some(disk.used_bytes() + spare));
        let error = (400..100_000).find_map(|id| insert(&mut txn, id).err());
        assert!(error.expect("the device is full").to_string().contains("no space"));
        drop(txn);
        left += db.transactions().len();
        // The database goes on; a read may still want a frame that can't be written out.
        let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
        match reader.get(&table, &[Value::U64(1)]) {
            Ok(found) => assert!(found.is_some()),
            Err(error) => assert!(error.to_string().contains("no space"), "{error}"),
        }
        reader.rollback().unwrap();
        disk.set_capacity(None);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        assert!(db.transactions().is_empty());
        insert(&mut txn, 2).unwrap();
        txn.commit().unwrap();
        let mut findings = Vec::new();
        db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "with {spare} bytes: {findings:#?}");
    }
    assert!(left > 0, "no rollback was kept from its end");
}

/// It may go on then: it sees what it saw before.
#[test]
fn a_transaction_that_could_not_commit_keeps_its_snapshot() {
    let mut refused = 0;
    for spare in (0..20).map(|n| n * 60_000) {
        let (disk, db, table) = open();
        let mut insert = inserts(&table);
        let first = [Value::U64(1), Value::Bytes(b"before")];
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.insert(&table, &first).unwrap();
        txn.commit().unwrap();
        let mut old = db.begin(Isolation::RepeatableRead).unwrap();
        assert!(old.get(&table, &first[..1]).unwrap().is_some());
        insert(&mut old, 2).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.delete(&table, &first[..1]).unwrap();
        txn.commit().unwrap();
        // Many, each of which may leave pages dirty that can't be written any more.
        disk.set_capacity(Some(disk.used_bytes() + spare));
        let mut fillers = Vec::new();
        while fillers.len() < 20 {
            let mut filler = db.begin(Isolation::RepeatableRead).unwrap();
            let id = 10 + 100_000 * fillers.len() as u64;
            let error = (id..id + 100_000).find_map(|id| insert(&mut filler, id).err());
            assert!(error.expect("the device is full").is_no_space());
            fillers.push(filler);
        }
        let committed = old.commit_in_order();
        disk.set_capacity(None);
        if let Err(error) = committed {
            refused += 1;
            assert!(error.is_no_space(), "{error}");
            db.purge_all().unwrap();
            assert!(old.get(&table, &first[..1]).unwrap().is_some(), "it was there before");
            db.wait(old.commit_in_order().unwrap()).unwrap();
        }
        drop(fillers);
        let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
        assert!(reader.get(&table, &[Value::U64(2)]).unwrap().is_some());
    }
    assert!(refused > 0, "each could commit");
}

/// A change of definitions that can't even be taken back leaves the database running; it is taken back once
/// there is space.
#[test]
fn an_index_build_on_a_full_device_is_taken_back_later() {
    let (mut failed, mut left) = (0, 0);
    for spare in (0..20).map(|n| n * 40_000) {
        let disk = SimDisk::new(1);
        let options =
            Options::default().memory_bytes(2 << 20).redo_capacity_bytes(1 << 20).single_threaded();
        let db = Database::open_on(Arc::new(disk.clone()), options).unwrap();
        let schema = Schema::builder()
            .column("key", Type::Bytes)
            .column("body", Type::Bytes)
            .primary_key(&["key"])
            .build()
            .unwrap();
        let table = db.create_table("t", schema.clone()).unwrap();
        let mut rng = fastrand::Rng::with_seed(7);
        // Too long together for a leaf of the index: each entry has a chain, and an undo record.
        let key = |id: u32| [&id.to_be_bytes()[..], &[7; 1400]].concat();
        let mut body = vec![0; 2400];
        for id in 0..200 {
            rng.fill(&mut body);
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            txn.insert(&table, &[Value::Bytes(&key(id)), Value::Bytes(&body)]).unwrap();
            txn.commit().unwrap();
        }
        disk.set_capacity(Some(disk.used_bytes() + spare));
        if let Err(error) = db.create_index(&table, "by_body", &["body"], true) {
            failed += 1;
            assert!(error.is_no_space(), "{error}");
        }
        left += db.transactions().len();
        // Neither a new table nor a reader meets more than the full device.
        match db.create_table("other", schema) {
            Ok(_) => {}
            Err(error) => assert!(error.is_no_space(), "{error}"),
        }
        let mut reader = db.begin(Isolation::RepeatableRead).unwrap();
        match reader.get(&table, &[Value::Bytes(&key(1))]) {
            Ok(found) => assert!(found.is_some()),
            Err(error) => assert!(error.is_no_space(), "{error}"),
        }
        reader.rollback().unwrap();
        disk.set_capacity(None);
        match db.create_index(&table, "by_body", &["body"], true) {
            Ok(()) | Err(weir::Error::IndexExists { .. }) => {}
            Err(error) => panic!("with {spare} bytes: {error}"),
        }
        assert!(db.transactions().is_empty());
        let mut findings = Vec::new();
        db.purge_all().unwrap();
        db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
        assert!(findings.is_empty(), "with {spare} bytes: {findings:#?}");
    }
    println!("{failed} builds failed, {left} transactions were left");
    assert!(failed > 0, "a build failed");
}

/// It takes more than memory has, and the device no more.
#[test]
fn a_sort_without_space_is_a_full_device() {
    let (disk, db, table) = open();
    let mut insert = inserts(&table);
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (1..800).for_each(|id| insert(&mut txn, id).unwrap());
    txn.commit().unwrap();
    db.checkpoint().unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 100_000));
    let error = db.create_index(&table, "by_body", &["body"], false).unwrap_err();
    assert!(matches!(error, Error::Sort(_)) && error.is_no_space(), "{error}");
}

/// The log says still that it is prepared: two of one name would be found after a crash.
#[test]
fn a_name_is_not_free_before_its_transaction_has_been_taken_back() {
    let mut stuck = 0;
    for spare in [0, 300_000, 900_000] {
        let (disk, db, table) = open();
        let mut insert = inserts(&table);
        let mut next = db.begin(Isolation::RepeatableRead).unwrap();
        insert(&mut next, 1).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (2..400).for_each(|id| insert(&mut txn, id).unwrap());
        disk.set_capacity(Some(disk.used_bytes() + spare));
        let error = (400..100_000).find_map(|id| insert(&mut txn, id).err());
        assert!(error.expect("the device is full").is_no_space());
        disk.set_capacity(None);
        txn.prepare(b"name").unwrap();
        txn.detach().unwrap();
        disk.set_capacity(Some(disk.used_bytes()));
        let rolled_back = db.rollback_prepared(b"name", Durability::Relaxed);
        if let Err(error) = rolled_back {
            stuck += 1;
            assert!(error.is_no_space(), "{error}");
            assert!(matches!(next.prepare(b"name"), Err(Error::XidInUse)));
        }
        disk.set_capacity(None);
        drop(db.begin(Isolation::RepeatableRead).unwrap());
        next.prepare(b"name").unwrap();
        next.detach().unwrap();
        assert_eq!(db.prepared(), [b"name"]);
        assert_eq!(db.transactions().len(), 1);
    }
    assert!(stuck > 0, "each could be taken back at once");
}

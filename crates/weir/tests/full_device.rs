//! What a full device leaves behind.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

use std::sync::Arc;
use std::time::Duration;
use weir::{
    BackgroundStep, Database, Durability, Error, Isolation, Options, Patience, RawIndex, Schema,
    Table, TableChange, Transaction, Type, Value,
};
use weir_os::{Disk, SimDisk};

fn options() -> Options {
    Options::default().memory_bytes(2 << 20).redo_capacity_bytes(1 << 20).single_threaded()
}

/// A small database with a table of bodies.
fn open() -> (SimDisk, Database, Table) {
    open_with(SimDisk::new(1), options())
}

/// The same where no space is set aside for its data: that it could write becomes known as it does.
fn open_thin() -> (SimDisk, Database, Table) {
    let disk = SimDisk::new(1);
    disk.set_thin("data");
    open_with(disk, options())
}

fn open_with(disk: SimDisk, options: Options) -> (SimDisk, Database, Table) {
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

fn assert_sound(db: &Database, context: &str) {
    let mut findings = Vec::new();
    db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
    assert!(findings.is_empty(), "{context}: {findings:#?}");
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

/// The chain's announcement is the first thing that the transaction writes; the device fills up
/// while the chain is written.
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
        assert_sound(&db, &format!("with {spare} bytes"));
    }
}

/// Purge's step, once there is space, finishes what could not be taken back.
#[test]
fn a_transaction_dropped_on_a_full_device_is_rolled_back_later() {
    let mut left = 0;
    for spare in [0, 300_000, 900_000] {
        let (disk, db, table) = open_thin();
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
        db.background_step(BackgroundStep::Purge).unwrap();
        assert!(db.transactions().is_empty());
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        insert(&mut txn, 2).unwrap();
        txn.commit().unwrap();
        assert_sound(&db, &format!("with {spare} bytes"));
    }
    assert!(left > 0, "no rollback was kept from its end");
}

/// Who waits for its rows gets them though nobody begins anything.
#[test]
fn what_could_not_be_rolled_back_is_once_there_is_space() {
    let mut left = 0;
    for spare in [0, 300_000, 900_000] {
        let threads = Options::default().memory_bytes(2 << 20).redo_capacity_bytes(1 << 20);
        let disk = SimDisk::new(1);
        disk.set_thin("data");
        let (disk, db, table) = open_with(disk, threads);
        let mut insert = inserts(&table);
        let mut waits = db.begin(Isolation::RepeatableRead).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (2..400).for_each(|id| insert(&mut txn, id).unwrap());
        disk.set_capacity(Some(disk.used_bytes() + spare));
        let error = (400..100_000).find_map(|id| insert(&mut txn, id).err());
        assert!(error.expect("the device is full").is_no_space());
        drop(txn);
        left += db.transactions().len();
        disk.set_capacity(None);
        assert!(waits.get_for_update(&table, &[Value::U64(2)]).unwrap().is_none());
        drop(waits);
        assert_sound(&db, &format!("with {spare} bytes"));
    }
    assert!(left > 0, "no rollback was kept from its end");
}

/// It has ended, and says so: its user is to begin it again, though others wait for its rows until
/// there is space.
#[test]
fn a_deadlock_is_told_though_its_rollback_finds_no_space() {
    let mut left = 0;
    for spare in [0, 300_000, 900_000] {
        let (disk, db, table) = open_thin();
        // The younger one goes.
        db.prefer_victims(|one, other| other.cmp(&one));
        let mut insert = inserts(&table);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (0..2).for_each(|id| insert(&mut txn, id).unwrap());
        txn.commit().unwrap();
        let mut older = db.begin(Isolation::RepeatableRead).unwrap();
        older.get_for_update(&table, &[Value::U64(0)]).unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        txn.get_for_update(&table, &[Value::U64(1)]).unwrap();
        (2..400).for_each(|id| insert(&mut txn, id).unwrap());
        disk.set_capacity(Some(disk.used_bytes() + spare));
        let error = (400..100_000).find_map(|id| insert(&mut txn, id).err());
        assert!(error.expect("the device is full").is_no_space());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| older.get_for_update(&table, &[Value::U64(1)]).map(drop));
            while db.locks().iter().all(|lock| lock.wait.is_none()) {
                std::thread::yield_now();
            }
            let lost = txn.get_for_update(&table, &[Value::U64(0)]).map(drop);
            assert!(matches!(lost, Err(Error::Deadlock)), "{lost:?}");
            assert!(txn.has_ended());
            // The older one has written nothing.
            left += db.transactions().len();
            disk.set_capacity(None);
            db.background_step(BackgroundStep::Purge).unwrap();
            waits.join().unwrap().unwrap();
        });
        assert_sound(&db, &format!("with {spare} bytes"));
    }
    assert!(left > 0, "no rollback was kept from its end");
}

/// It may go on then: it sees what it saw before.
#[test]
fn a_transaction_that_could_not_commit_keeps_its_snapshot() {
    let mut refused = 0;
    for spare in (0..20).map(|n| n * 60_000) {
        let (disk, db, table) = open_thin();
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

/// A change of definitions that can't even be taken back leaves the database running; it is taken
/// back once there is space.
#[test]
fn an_index_build_on_a_full_device_is_taken_back_later() {
    let (mut failed, mut left) = (0, 0);
    for spare in (0..20).map(|n| n * 40_000) {
        let disk = SimDisk::new(1);
        disk.set_thin("data");
        let db = Database::open_on(Arc::new(disk.clone()), options()).unwrap();
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
        db.purge_all().unwrap();
        assert_sound(&db, &format!("with {spare} bytes"));
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

/// Those who write note which rows while an index is built, more than memory has, and the device
/// has no more: they go on, and the build fails.
#[test]
fn rows_that_can_not_be_noted_for_an_index_fail_its_build_alone() {
    let disk = SimDisk::new(1);
    disk.set_thin("data");
    let options = options().memory_bytes(64 << 20).redo_capacity_bytes(64 << 20);
    let db = Database::open_on(Arc::new(disk.clone()), options).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let key = |id: u32| [&id.to_be_bytes()[..], &[7; 2000]].concat();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (0..500).for_each(|id| txn.insert_raw(&table, &key(id), b"before", &[]).unwrap());
    txn.commit().unwrap();
    let update = |row: &[u8]| {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in 0..500 {
            txn.update_raw(&table, &key(id), row, &[], &[]).unwrap();
        }
        txn.commit().unwrap();
    };
    let add = [RawIndex::new("by_row", false)];
    let change = TableChange { table: &table, drop: &[], rename: &[], add: &add, meta: None };
    let by_row = &mut |_, _, key: &[u8], row: &[u8], of_key: &mut Vec<u8>, _: &mut Vec<u8>| {
        of_key.extend([row, &key[..4]].concat());
        Ok(())
    };
    let patience = Patience::new(Duration::ZERO);
    let changes = db.changes(&patience);
    let mut alteration = changes.begin_alter().unwrap();
    changes.add_change(&mut alteration, &change).unwrap();
    changes.build_indexes(&mut alteration, by_row).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + 100_000));
    (0..20u8).for_each(|n| update(&[n]));
    let error = changes.finish_alter(alteration, by_row).unwrap_err();
    assert!(matches!(error, Error::Sort(_)) && error.is_no_space(), "{error}");
    update(b"after");
    disk.set_capacity(None);
    assert!(!disk.list().unwrap().iter().any(|name| name.starts_with("tmp-")));
    assert!(table.raw_schema().unwrap().indexes().is_empty());
    changes.alter_tables(&[change], by_row).unwrap();
    assert_sound(&db, "the index is built once there is space");
}

/// The log says still that it is prepared: two of one name would be found after a crash.
#[test]
fn a_name_is_not_free_before_its_transaction_has_been_taken_back() {
    let mut stuck = 0;
    for spare in [0, 300_000, 900_000] {
        let (disk, db, table) = open_thin();
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
        db.background_step(BackgroundStep::Purge).unwrap();
        next.prepare(b"name").unwrap();
        next.detach().unwrap();
        assert_eq!(db.prepared(), [b"name"]);
        assert_eq!(db.transactions().len(), 1);
    }
    assert!(stuck > 0, "each could be taken back at once");
}

/// What a transaction does until the device is full, with keys in an order of their own.
struct Filling {
    updates: bool,
    at_random: bool,
    redo_bytes: u64,
    threads: bool,
}

impl Filling {
    const ROWS: u64 = 8000;

    fn key(&self, n: u64) -> u64 {
        if self.at_random { n.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { n }
    }

    /// A database whose rows compress well, on a device that a transaction has filled with what
    /// does not.
    fn fill(&self) -> (SimDisk, Database, Transaction) {
        let options = Options::default().memory_bytes(2 << 20).redo_capacity_bytes(self.redo_bytes);
        let options = if self.threads { options } else { options.single_threaded() };
        let (disk, db, table) = open_with(SimDisk::new(1), options);
        let mut body = vec![1; 300];
        let old_rows = if self.updates { Self::ROWS } else { 10 };
        for rows in (0..old_rows).collect::<Vec<_>>().chunks(1000) {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            for &n in rows {
                let key = Value::U64(self.key(n));
                txn.insert(&table, &[key, Value::Bytes(&body)]).unwrap();
            }
            txn.commit().unwrap();
        }
        disk.set_capacity(Some(disk.used_bytes() + (6 << 20)));
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let mut rng = fastrand::Rng::with_seed(7);
        let refused = (0..).find_map(|n: u64| {
            rng.fill(&mut body);
            let body = Value::Bytes(&body);
            match self.updates {
                true => txn.update(&table, &[Value::U64(self.key(n % Self::ROWS)), body]).err(),
                false => txn.insert(&table, &[Value::U64(self.key(old_rows + n)), body]).err(),
            }
        });
        let refused = refused.expect("the device is full");
        assert!(refused.is_no_space(), "{refused}");
        (disk, db, txn)
    }
}

/// Where others leave enough, no space is set aside for what is yet to be written.
#[test]
fn space_is_set_aside_only_where_it_is_short() {
    let used = [None, Some(20 << 20)].map(|spare| {
        let options = options().memory_bytes(8 << 20).redo_capacity_bytes(8 << 20);
        let (disk, db, table) = open_with(SimDisk::new(1), options);
        let before = disk.used_bytes();
        disk.set_capacity(spare.map(|spare| before + spare));
        let mut insert = inserts(&table);
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (0..1500).for_each(|id| insert(&mut txn, id).unwrap());
        txn.commit().unwrap();
        disk.used_bytes() - before
    });
    assert!(used[0] < used[1], "{used:?} bytes");
}

/// Its pages can be written only to new places, and until it has written some it gives none back.
#[test]
fn a_rollback_of_more_than_memory_holds_ends_on_a_full_device() {
    for case in 0..16 {
        let is_set = |bit: u32| case >> bit & 1 == 1;
        let (updates, at_random, threads) = (is_set(0), is_set(1), is_set(2));
        let redo_bytes = if is_set(3) { 16 << 20 } else { 1 << 20 };
        let filling = Filling { updates, at_random, redo_bytes, threads };
        let context = format!("updates {updates}, at random {at_random}, threads {threads}");
        let (_disk, db, txn) = filling.fill();
        txn.rollback().unwrap_or_else(|error| panic!("{context}, log {redo_bytes}: {error}"));
        assert_sound(&db, &context);
    }
}

/// Each gives a row of a table filled with [`Filling::ROWS`] rows another body.
fn updates_at_random(table: &Table) -> impl FnMut(&mut Transaction) -> weir::Result<bool> {
    let (mut rng, mut body) = (fastrand::Rng::with_seed(9), [0; 300]);
    move |txn| {
        rng.fill(&mut body);
        let id = Value::U64(rng.u64(..Filling::ROWS));
        txn.update(table, &[id, Value::Bytes(&body)])
    }
}

/// A log that was made longer took what counted as there for rollbacks, as long as the device had
/// much more.
#[test]
fn a_longer_log_leaves_the_space_that_a_rollback_needs() {
    for case in 0..8 {
        let (spare, changes) = ((10 + 4 * (case % 4)) << 20, 30 + 100 * (case / 4));
        let (disk, db, table) = open();
        let body = [1; 300];
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (0..Filling::ROWS)
            .try_for_each(|id| txn.insert(&table, &[Value::U64(id), Value::Bytes(&body)]))
            .unwrap();
        txn.commit().unwrap();
        db.checkpoint().unwrap();
        disk.set_capacity(Some(disk.used_bytes() + spare));
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let mut update = updates_at_random(&table);
        (0..changes).for_each(|_| assert!(update(&mut txn).unwrap()));
        let most = db.status().redo_capacity + spare;
        let grown = (0..most >> 18).rev().find_map(|n| db.set_redo_capacity(n << 18).ok());
        assert!(grown.unwrap() > 2 << 20, "{grown:?}");
        let refused = (0..100_000).find_map(|_| update(&mut txn).err());
        assert!(refused.is_none_or(|error| error.is_no_space()));
        let context = format!("case {case}, a log of {grown:?} bytes");
        txn.rollback().unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(db.transactions().is_empty(), "{context}");
        assert_sound(&db, &context);
    }
}

/// The same of the files of a sort, which are there for as long as it goes on.
#[test]
fn a_sort_leaves_the_space_that_a_rollback_needs() {
    let mut met_full = 0;
    for case in 0..8 {
        let (disk, db, table) = open();
        let sorted = db.create_table("sorted", Schema::raw(vec![], vec![]).unwrap()).unwrap();
        let body = [1; 300];
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        for id in 0..Filling::ROWS {
            txn.insert(&table, &[Value::U64(id), Value::Bytes(&body)]).unwrap();
            (0..2).for_each(|n: u64| {
                txn.insert_raw(&sorted, &(2 * id + n).to_be_bytes(), b"row", &[]).unwrap();
            });
        }
        txn.commit().unwrap();
        db.checkpoint().unwrap();
        disk.set_capacity(Some(disk.used_bytes() + ((10 + 2 * case) << 20)));
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let mut update = updates_at_random(&table);
        (0..30).for_each(|_| assert!(update(&mut txn).unwrap()));
        let (mut txn, mut entries) = (Some(txn), fastrand::Rng::with_seed(case));
        let add = [RawIndex::new("i", false)];
        let built = db.alter_indexes(&sorted, &[], &add, None, &mut |_, key, _, of_key, _| {
            of_key.extend((0..2000).map(|_| entries.u8(..)));
            of_key.extend_from_slice(key);
            if disk.free_bytes().unwrap() < 600_000
                && let Some(mut txn) = txn.take()
            {
                let refused = (0..100_000).find_map(|_| update(&mut txn).err());
                met_full += u32::from(refused.is_some_and(|error| error.is_no_space()));
                txn.rollback().unwrap_or_else(|error| panic!("case {case}: {error}"));
            }
            Ok(())
        });
        assert!(built.unwrap_err().is_no_space());
        drop(txn);
        disk.set_capacity(None);
        // What the build could not take back.
        db.background_step(BackgroundStep::Purge).unwrap();
        assert_sound(&db, &format!("case {case}"));
    }
    assert!(met_full >= 4, "{met_full} times");
}

/// The map file grows in steps, of this many pages. Without a block for each page no checkpoint
/// moves: new pages were handed out where the data file alone had room for them, and their rollback
/// found no room in the log.
#[test]
fn new_pages_end_with_the_map_and_their_rollback_does() {
    const PAGES_OF_A_STEP: u64 = 32 * 508;
    let (disk, db, table) = open();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut body = vec![0; 3800];
    // What doesn't compress, and gives way to what does, leaves free places in the data file.
    for compresses in [false, true] {
        for ids in (0..4000).collect::<Vec<u64>>().chunks(50) {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            for &id in ids {
                body.fill_with(|| if compresses { 1 } else { rng.u8(..) });
                txn.upsert(&table, &[Value::U64(id), Value::Bytes(&body)]).unwrap();
            }
            txn.commit().unwrap();
            db.background_step(BackgroundStep::Purge).unwrap();
        }
    }
    db.purge_all().unwrap();
    let mut rows = 4000..;
    let mut insert = |txn: &mut Transaction| {
        txn.insert(&table, &[Value::U64(rows.next().unwrap()), Value::Bytes(&body)])
    };
    while db.status().pages_allocated < PAGES_OF_A_STEP - 500 {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (0..50).for_each(|_| insert(&mut txn).unwrap());
        txn.commit().unwrap();
    }
    disk.set_capacity(Some(disk.used_bytes()));
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    let refused = (0..20_000).find_map(|_| insert(&mut txn).err());
    assert!(refused.expect("the device is full").is_no_space());
    txn.rollback().unwrap();
    assert_sound(&db, "after the rollback");
}

/// A start doesn't know of holes in the data file that an earlier process has punched: pages were
/// written to them, again and again, where others had space.
#[test]
fn a_rollback_finds_what_isn_t_a_hole_after_a_start() {
    for case in 0..8 {
        let (disk, db, table) = open();
        let big = db.create_table("big", Schema::raw(vec![], vec![]).unwrap()).unwrap();
        let mut rng = fastrand::Rng::with_seed(case);
        let mut body = [0; 1200];
        // Rows of both tables all over the file, so that it can't be cut.
        for ids in (0..Filling::ROWS).collect::<Vec<_>>().chunks(2000) {
            for of_big in [false, true] {
                let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
                for &id in ids {
                    rng.fill(&mut body);
                    match of_big {
                        true => txn.insert_raw(&big, &id.to_be_bytes(), &body, &[]),
                        false => txn.insert(&table, &[Value::U64(id), Value::Bytes(&[1; 300])]),
                    }
                    .unwrap();
                }
                txn.commit().unwrap();
            }
        }
        db.checkpoint().unwrap();
        let before = disk.used_bytes();
        db.drop_table(&big).unwrap();
        db.purge_all().unwrap();
        db.checkpoint().unwrap();
        let steps = [BackgroundStep::SyncLog, BackgroundStep::TrimFile];
        steps.into_iter().for_each(|step| db.background_step(step).unwrap());
        let used = disk.used_bytes();
        assert!(used + (4 << 20) < before, "{before} bytes, then {used}");
        disk.set_capacity(Some(disk.used_bytes() + ((2 + case % 4) << 20)));
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        let mut update = updates_at_random(&table);
        let refused = (0..100_000).find_map(|_| update(&mut txn).err());
        assert!(refused.unwrap().is_no_space());
        std::mem::forget((db, txn));
        let disk = disk.crash(3);
        disk.set_capacity(Some(disk.used_bytes()));
        let db = Database::open_on(Arc::new(disk), options()).unwrap();
        db.finish_recovery().unwrap_or_else(|error| panic!("case {case}: {error}"));
        assert!(db.transactions().is_empty());
        assert_sound(&db, &format!("case {case}"));
    }
}

/// It was refused for ever before there was more space.
#[test]
fn a_database_that_ended_on_a_full_device_opens_there() {
    for (updates, at_random) in [(false, true), (true, true), (true, false)] {
        let filling = Filling { updates, at_random, redo_bytes: 1 << 20, threads: false };
        let (disk, db, txn) = filling.fill();
        std::mem::forget((db, txn));
        let db = Database::open_on(Arc::new(disk.crash(3)), options()).unwrap();
        db.finish_recovery().unwrap();
        assert!(db.transactions().is_empty());
        assert_sound(&db, &format!("updates {updates}, at random {at_random}"));
    }
}

#[test]
fn on_a_full_device_rows_and_tables_go() {
    let (disk, db, table) = open();
    let other = db.create_table("other", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + (4 << 20)));
    let mut insert = inserts(&table);
    let mut fill = |from: u64| {
        let mut insert_one = |id| {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            insert(&mut txn, id)?;
            txn.commit()
        };
        (from..).find(|&id| insert_one(id).is_err_and(|e| e.is_no_space())).unwrap()
    };
    let rows = fill(0);
    assert!(rows > 500);
    for id in 0..rows / 2 {
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        assert!(txn.delete(&table, &[Value::U64(id)]).unwrap());
        txn.commit().unwrap();
    }
    db.purge_all().unwrap();
    let more = fill(rows) - rows;
    assert!(more > rows / 3, "{more} rows more after half of {rows} were deleted");
    db.drop_table(&other).unwrap();
    db.drop_table(&table).unwrap();
    db.purge_all().unwrap();
    db.create_table("again", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    assert_sound(&db, "after all");
}

/// New trees take pages, which none were left for.
#[test]
fn a_table_that_fills_the_device_is_emptied() {
    for indexes in [0, 8] {
        let disk = SimDisk::new(1);
        let db = Database::open_on(Arc::new(disk.clone()), options()).unwrap();
        let mut schema = Schema::builder().column("id", Type::U64).column("body", Type::Bytes);
        for n in 0..indexes {
            schema = schema.index(&format!("by_{n}"), &["id"]);
        }
        let table = db.create_table("t", schema.primary_key(&["id"]).build().unwrap()).unwrap();
        disk.set_capacity(Some(disk.used_bytes() + (6 << 20)));
        let mut insert = inserts(&table);
        for id in 0.. {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            if let Err(refused) = insert(&mut txn, id).and_then(|()| txn.commit()) {
                assert!(refused.is_no_space(), "{refused}");
                break;
            }
        }
        db.truncate_table(&table).unwrap();
        db.purge_all().unwrap();
        let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
        (0..100).for_each(|id| insert(&mut txn, id).unwrap());
        txn.commit().unwrap();
        assert_sound(&db, "emptied and filled again");
    }
}

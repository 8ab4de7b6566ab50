//! Faults that were found once, each named after its cause.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir::{Bounds, Database, Direction, Error, IndexRef, Isolation, Patience, Shutdown, Value};

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

#[test]
fn a_scan_keeps_its_snapshot_when_its_transaction_takes_another() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    retried(&db, Isolation::default(), |txn| {
        (0..200).try_for_each(|id| txn.insert(&table, &values(id, &item(id as i64, id, 1500))))
    });
    let mut reader = db.begin(Isolation::ReadCommitted).unwrap();
    let mut cursor =
        reader.scan(&table, IndexRef::Primary, Bounds::all(), Direction::Forward).unwrap();
    let mut found = 0;
    while let Some(row) = cursor.next().unwrap() {
        let row = item_of(&row.to_row().unwrap());
        assert_eq!(row, (found, item(found as i64, found, 1500)));
        found += 1;
        if found == 5 {
            for round in 1..4 {
                retried(&db, Isolation::default(), |txn| {
                    (0..200).try_for_each(|id| {
                        let item = item(1000 + round, id, 1200 + round as usize);
                        txn.update(&table, &values(id, &item)).map(|_| ())
                    })
                });
                // A statement of its own takes a new snapshot.
                cursor.transaction().get(&table, &[Value::U64(1)]).unwrap();
                db.purge_all().unwrap();
            }
        }
    }
    assert_eq!(found, 200);
}

#[test]
fn a_scan_of_a_transaction_that_has_ended_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    retried(&db, Isolation::default(), |txn| {
        (0..3).try_for_each(|id| txn.insert(&table, &values(id, &item(0, id, 10))))
    });
    let mut other = db.begin(Isolation::RepeatableRead).unwrap();
    // The other has more to lose, so it is not the victim.
    (1..3).for_each(|id| assert!(other.update(&table, &values(id, &item(1, id, 9))).unwrap()));
    let mut victim = db.begin(Isolation::RepeatableRead).unwrap();
    victim.get_for_update(&table, &[Value::U64(0)]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            other.update(&table, &values(0, &item(1, 0, 9))).unwrap();
            other.commit().unwrap();
        });
        while db.status().row_lock_waits == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut cursor =
            victim.scan(&table, IndexRef::Primary, Bounds::all(), Direction::Forward).unwrap();
        assert!(cursor.next().unwrap().is_some());
        let error = cursor.transaction().update(&table, &values(1, &item(7, 1, 7))).unwrap_err();
        assert!(matches!(error, Error::Deadlock), "{error}");
        assert!(matches!(cursor.next(), Err(Error::Ended)));
        waiting.join().unwrap();
    });
}

#[test]
fn rows_may_be_deleted_while_they_are_scanned() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    (0..100u64).for_each(|id| txn.insert(&table, &values(id, &item(5, id, 10))).unwrap());
    let mut cursor = txn.scan(&table, "by_a", Bounds::all(), Direction::Forward).unwrap();
    let mut seen = Vec::new();
    while let Some(row) = cursor.next().unwrap() {
        let id = row.get(0).unwrap().as_u64().unwrap();
        seen.push(id);
        cursor.transaction().delete(&table, &[Value::U64(id)]).unwrap();
        cursor.transaction().delete(&table, &[Value::U64(id + 1)]).unwrap();
    }
    assert_eq!(seen, (0..100).step_by(2).collect::<Vec<u64>>());
    assert!(all_items(&mut txn, &table).is_empty());
}

#[test]
fn a_panic_gives_up_the_locks_of_its_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let short = options(8 << 20, 8 << 20).lock_wait_timeout(Duration::from_millis(100));
    let db = Database::open(dir.path(), short).unwrap();
    let table = db.create_table("items", items()).unwrap();
    retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(1, &item(1, "b", 10))));
    let panicked = std::thread::scope(|scope| {
        let user = || {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            txn.update(&table, &values(1, &item(2, "c", 20))).unwrap();
            panic!("a mistake of the caller");
        };
        scope.spawn(user).join()
    });
    assert!(panicked.is_err());
    retried(&db, Isolation::default(), |txn| {
        assert_eq!(all_items(txn, &table), [(1, item(1, "b", 10))]);
        txn.update(&table, &values(1, &item(3, "d", 30))).map(|_| ())
    });
    db.drop_table(&table).unwrap();
}

#[test]
fn a_panic_of_who_observes_waits_leaves_no_waiter() {
    let dir = tempfile::tempdir().unwrap();
    let short = options(8 << 20, 8 << 20).lock_wait_timeout(Duration::from_millis(100));
    let db = Database::open(dir.path(), short).unwrap();
    let table = db.create_table("items", items()).unwrap();
    retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(1, &item(1, "b", 10))));
    db.observe_waits(|_, _| panic!("a mistake of the observer's"));
    let mut holder = db.begin(Isolation::RepeatableRead).unwrap();
    holder.update(&table, &values(1, &item(2, "c", 20))).unwrap();
    let panicked = std::thread::scope(|scope| {
        let waiter = || {
            let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
            txn.update(&table, &values(1, &item(3, "d", 30))).map(drop)
        };
        scope.spawn(waiter).join()
    });
    assert!(panicked.is_err());
    holder.commit().unwrap();
    assert_eq!(db.locks(), []);
    // Nobody is in its way: the observer isn't called again.
    let mut next = db.begin(Isolation::RepeatableRead).unwrap();
    assert!(next.update(&table, &values(1, &item(4, "e", 40))).unwrap());
    next.commit().unwrap();
}

#[test]
fn a_wait_may_be_endless() {
    let dir = tempfile::tempdir().unwrap();
    let endless = options(8 << 20, 8 << 20).lock_wait_timeout(Duration::MAX);
    let db = Database::open(dir.path(), endless).unwrap();
    let table = db.create_table("items", items()).unwrap();
    retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(1, &item(1, "b", 10))));
    let mut holder = db.begin(Isolation::RepeatableRead).unwrap();
    holder.update(&table, &values(1, &item(2, "b", 10))).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            retried(&db, Isolation::default(), |txn| {
                txn.update(&table, &values(1, &item(3, "b", 10)))
            })
        });
        while db.status().row_lock_waits == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        holder.commit().unwrap();
        assert!(waiter.join().unwrap());
    });
    db.create_index(&table, "extra", &["a", "b"], false).unwrap();
}

/// Fills most of a log with changes of pages that are not written.
fn fill_log(db: &Database, table: &weir::Table) {
    let mut round = 0;
    while db.status().checkpoint_age < db.status().redo_capacity / 8 * 6 {
        round += 1;
        retried(db, Isolation::default(), |txn| {
            (0..100).try_for_each(|id| {
                txn.upsert(table, &values(id, &item(round, id, 1000))).map(|_| ())
            })
        });
    }
}

#[test]
fn a_log_shrinks_below_its_age() {
    let _watchdog = Watchdog::new("shrinking a full log");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 1 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    for _ in 0..5 {
        assert_eq!(db.set_redo_capacity(16 << 20).unwrap(), 16 << 20);
        fill_log(&db, &table);
        assert_eq!(db.set_redo_capacity(1 << 20).unwrap(), 1 << 20);
        // Writers get on, and the log becomes short meanwhile.
        let mut round = 0;
        while db.status().checkpoint_age > 1 << 20 {
            round += 1;
            retried(&db, Isolation::default(), |txn| {
                txn.upsert(&table, &values(1, &item(round, 1, 10))).map(|_| ())
            });
        }
    }
    all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table);
}

/// It kept the segments of 64 KiB that it had begun with: 8,200 files, all open.
#[test]
fn a_log_that_is_made_much_longer_has_no_more_files_than_a_new_one() {
    let disk = weir_os::SimDisk::new(1);
    let open = |redo| {
        let options = options(8 << 20, redo);
        Database::open_on(std::sync::Arc::new(disk.clone()), options).unwrap()
    };
    let segments = || {
        let names = weir_os::Disk::list(&disk).unwrap();
        names.iter().filter(|name| name.starts_with("redo-")).count()
    };
    let db = open(1 << 20);
    let table = db.create_table("items", items()).unwrap();
    let put = |table: &weir::Table, db: &Database, round| {
        retried(db, Isolation::default(), |txn| {
            (0..100).try_for_each(|id| {
                txn.upsert(table, &values(id, &item(round, id, 1000))).map(|_| ())
            })
        });
    };
    put(&table, &db, 0);
    assert_eq!(db.set_redo_capacity(512 << 20).unwrap(), 512 << 20);
    assert!(segments() <= 17 + 17, "{} segments", segments());
    // Past those that it had before.
    (1..20).for_each(|round| put(&table, &db, round));
    let expected = all_items(&mut db.begin(Isolation::default()).unwrap(), &table);
    drop((table, db));
    let db = open(512 << 20);
    let table = db.table("items").unwrap();
    same(&expected, &all_items(&mut db.begin(Isolation::default()).unwrap(), &table), "long");
    db.checkpoint().unwrap();
    assert!(segments() <= 17 + 17, "{} segments", segments());
}

#[test]
fn a_full_log_is_opened_with_a_smaller_capacity() {
    let _watchdog = Watchdog::new("opening a full log");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 1 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    db.set_redo_capacity(16 << 20).unwrap();
    fill_log(&db, &table);
    let expected = all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table);
    drop((table, db));
    let db = Database::open(dir.path(), options(2 << 20, 1 << 20)).unwrap();
    let table = db.table("items").unwrap();
    same(&expected, &all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table), "small");
    retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(1000, &item(1, 1000, 10))));
    assert_eq!(db.set_redo_capacity(1 << 20).unwrap(), 1 << 20);
}

/// Several threads write more pages than may be dirty; at every look the limits hold.
fn write_at_the_limits(db: &Database, between: &(dyn Fn(u64) + Sync)) {
    let table = db.create_table("items", items()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..60 {
                    let from = thread * 1_000_000 + round * 50;
                    retried(db, Isolation::default(), |txn| {
                        (from..from + 50).try_for_each(|id| {
                            txn.upsert(table, &values(id, &item(round as i64, id, 1500)))
                                .map(|_| ())
                        })
                    });
                    between(round);
                    let status = db.status();
                    assert!(status.buffer_pool_pages_dirty <= status.buffer_pool_pages_dirty_max);
                    assert!(status.checkpoint_age <= status.checkpoint_max_age);
                }
            });
        }
    });
    assert_eq!(
        all_items(&mut db.begin(Isolation::RepeatableRead).unwrap(), &table).len(),
        4 * 60 * 50
    );
}

#[test]
fn writers_at_the_dirty_limit_go_on_though_nothing_grows() {
    let _watchdog = Watchdog::new("the dirty limit");
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(4 << 20, 256 << 20).dirty_limit(0.1)).unwrap();
    write_at_the_limits(&db, &|_| {});
    let status = db.status();
    assert!(status.pages_written_dirty_limit > 0, "{status:?}");
    assert_eq!(status.pages_written_shutdown, 0);
}

#[test]
fn a_device_that_drops_to_a_tenth_and_comes_back() {
    use weir_os::throttle::{Profile, ThrottledDisk};
    let _watchdog = Watchdog::new("a device that becomes slow");
    let slow = |iops: f64| Profile { iops: Some(iops), ..Profile::FAST };
    let clock = std::sync::Arc::new(weir_os::RealClock::new());
    let sim = std::sync::Arc::new(weir_os::SimDisk::new(1));
    let disk = ThrottledDisk::new(sim, slow(20_000.0), clock);
    let options = options(8 << 20, 2 << 20);
    let db = Database::open_on(std::sync::Arc::new(disk.clone()), options).unwrap();
    write_at_the_limits(&db, &|round| match round {
        20 => disk.set_profile(slow(2_000.0)),
        40 => disk.set_profile(slow(20_000.0)),
        _ => {}
    });
}

/// The leaves behind one that is not in memory were asked of a descent that ended there: none was
/// read ahead.
#[test]
fn scans_read_ahead_of_a_leaf_that_is_not_in_memory() {
    use weir::{KeyOf, Lock, RawRange, Schema};
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 64 << 20)).unwrap();
    let table = db.create_table("t", Schema::raw(vec![], vec![]).unwrap()).unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for n in 0..30_000_u32 {
        txn.insert_raw(&table, &n.to_be_bytes(), &[n as u8; 700], &[]).unwrap();
    }
    txn.commit().unwrap();
    let mut txn = db.begin(Isolation::RepeatableRead).unwrap();
    for way in [Direction::Forward, Direction::Backward] {
        let before = db.status();
        let (of, all) = (KeyOf::Primary, RawRange::all());
        let mut scan = txn.scan_raw(&table, of, all, way, Lock::None).unwrap();
        let mut count = 0;
        while scan.next(&mut txn).unwrap().is_some() {
            count += 1;
        }
        assert_eq!(count, 30_000);
        let after = db.status();
        let ahead = after.pages_read_ahead - before.pages_read_ahead;
        let alone = after.pages_read - before.pages_read;
        assert!(ahead + alone > 800 && ahead > alone / 2, "{way:?}: {ahead} ahead, {alone} alone");
    }
}

#[test]
fn after_a_clean_shutdown_a_map_block_without_its_header_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    for round in 0..3 {
        retried(&db, Isolation::default(), |txn| {
            txn.upsert(&table, &values(1, &item(round, "one", 100))).map(drop)
        });
        db.checkpoint().unwrap();
    }
    db.close(Shutdown::Clean, &mut |_| {}).unwrap();
    let path = dir.path().join("map");
    let mut map = std::fs::read(&path).unwrap();
    let version = |slot: usize| u64::from_le_bytes(map[4096 * slot + 8..][..8].try_into().unwrap());
    let newest = if version(0) > version(1) { 0 } else { 1 };
    map[4096 * newest] ^= 1;
    std::fs::write(&path, map).unwrap();
    let error = Database::open(dir.path(), options(8 << 20, 8 << 20)).map(drop).unwrap_err();
    assert!(error.to_string().contains("map"), "{error}");
}

/// The numbers of its trees mean something else there.
#[test]
fn a_table_of_another_database_is_refused() {
    let [one, other] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let open = |dir: &tempfile::TempDir| Database::open(dir.path(), options(4 << 20, 4 << 20));
    let db = open(&one).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let of_other = open(&other).unwrap().create_table("items", items()).unwrap();
    retried(&db, Isolation::default(), |txn| txn.insert(&table, &values(1, &item(1, "b", 0))));
    let before = table.clone();
    drop((db, table));
    let db = open(&one).unwrap();
    let patience = Patience::new(Duration::ZERO);
    for foreign in [&of_other, &before] {
        let refused = |error: Error| assert!(matches!(error, Error::ForeignTable(_)), "{error}");
        let mut txn = db.begin(Isolation::default()).unwrap();
        refused(txn.insert(foreign, &values(2, &item(2, "c", 0))).unwrap_err());
        refused(txn.get(foreign, &[Value::U64(1)]).unwrap_err());
        refused(db.drop_table(foreign).unwrap_err());
        refused(db.truncate_table(foreign).unwrap_err());
        refused(db.rename_table(foreign, "renamed").unwrap_err());
        refused(db.create_index(foreign, "more", &["a"], false).unwrap_err());
        refused(db.changes(&patience).hide_from_older(foreign).unwrap_err());
        refused(db.estimate_rows(foreign).unwrap_err());
    }
    let table = db.table("items").unwrap();
    assert_eq!(all_items(&mut db.begin(Isolation::default()).unwrap(), &table).len(), 1);
}

/// Where its log was longer it said that the commit was durable, where it was shorter it panicked.
#[test]
fn a_commit_of_another_database_is_not_waited_for() {
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [db, other] = [0, 1].map(|n| {
        let db = Database::open(dirs[n].path(), options(4 << 20, 4 << 20)).unwrap();
        let table = db.create_table("items", items()).unwrap();
        retried(&db, Isolation::default(), |txn| {
            let mut rows = 0..1000 * n as u64;
            rows.try_for_each(|id| txn.insert(&table, &values(id, &item(1, id, 0))))
        });
        db
    });
    for (one, other) in [(&db, &other), (&other, &db)] {
        let table = one.table("items").unwrap();
        let mut txn = one.begin(Isolation::default()).unwrap();
        txn.insert(&table, &values(5000, &item(1, "new", 0))).unwrap();
        let committed = txn.commit_in_order().unwrap();
        let error = other.wait(committed).unwrap_err();
        assert!(matches!(error, Error::ForeignCommit), "{error}");
        one.wait(committed).unwrap();
    }
}

/// Writers that a slow device held back could not be killed.
#[test]
fn a_writer_that_is_held_back_can_be_cancelled() {
    use weir_os::throttle::{Profile, ThrottledDisk};
    let _watchdog = Watchdog::new("a writer on a slow device");
    let profile = Profile { iops: Some(500.0), ..Profile::FAST };
    let clock = std::sync::Arc::new(weir_os::RealClock::new());
    let sim = std::sync::Arc::new(weir_os::SimDisk::new(1));
    let disk = ThrottledDisk::new(sim, profile, clock);
    let options = options(4 << 20, 4 << 20).dirty_limit(0.2);
    let db = Database::open_on(std::sync::Arc::new(disk.clone()), options).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let (mut txn, mut done) = (db.begin(Isolation::default()).unwrap(), 0);
    let write = |txn: &mut weir::Transaction, done: &mut u64| {
        let written = txn.insert(&table, &values(*done, &item(1, *done, 3000)));
        *done += u64::from(written.is_ok());
        written
    };
    for _ in 0..3 {
        txn.canceller().unwrap().cancel();
        let error = (0..20_000).find_map(|_| write(&mut txn, &mut done).err());
        let error = error.expect("somebody has to wait for pages to be written");
        assert!(matches!(error, Error::Cancelled), "{error}");
        // Later waits go on.
        (0..10).for_each(|_| write(&mut txn, &mut done).unwrap());
    }
    txn.commit().unwrap();
    disk.set_profile(Profile::FAST);
    let mut reader = db.begin(Isolation::default()).unwrap();
    assert_eq!(all_items(&mut reader, &table).len() as u64, done);
    drop(reader);
    check_quiet(&db);
}

/// Where it was, there is the middle of a row by now.
#[test]
fn a_savepoint_that_a_rollback_has_passed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(4 << 20, 4 << 20)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let mut txn = db.begin(Isolation::default()).unwrap();
    let insert = |txn: &mut weir::Transaction, id| txn.insert(&table, &values(id, &item(1, id, 9)));
    let first = txn.savepoint().unwrap();
    txn.delete(&table, &[Value::U64(7)]).unwrap();
    insert(&mut txn, 1).unwrap();
    assert!(txn.update(&table, &values(1, &item(1, 1, 20))).unwrap());
    let passed = txn.savepoint().unwrap();
    insert(&mut txn, 2).unwrap();
    txn.rollback_to(first).unwrap();
    (3..6).for_each(|id| insert(&mut txn, id).unwrap());
    let refused = txn.rollback_to(passed);
    assert!(matches!(refused, Err(Error::NoSuchSavepoint)), "{refused:?}");
    let later = txn.savepoint().unwrap();
    insert(&mut txn, 6).unwrap();
    txn.rollback_to(later).unwrap();
    txn.rollback_to(later).unwrap();
    txn.commit().unwrap();
    assert_eq!(all_items(&mut db.begin(Isolation::default()).unwrap(), &table).len(), 3);
    check_quiet(&db);
}

/// Whoever waited for what it does waited for ever.
#[test]
fn a_background_thread_that_panics_stops_the_database() {
    struct Panics;
    impl weir_governor::Policy for Panics {
        fn name(&self) -> String {
            "panics".into()
        }

        fn plan(&mut self, _: &weir_governor::Load) -> weir_governor::Plan {
            panic!("as the test wants it")
        }
    }
    let _watchdog = Watchdog::new("writers beside a thread that has panicked");
    let dir = tempfile::tempdir().unwrap();
    let options = options(4 << 20, 1 << 20).flush_policy(|| Box::new(Panics));
    let write = || {
        let db = Database::open(dir.path(), options)?;
        let table = db.create_table("items", items())?;
        let mut txn = db.begin(Isolation::default())?;
        (0..).try_for_each(|id| txn.insert(&table, &values(id, &item(1, id, 3000))))
    };
    let error: Error = write().expect_err("nobody writes pages");
    assert!(error.to_string().contains("weir-flush has panicked"), "{error}");
}

/// Images on their way to their places are no findings, nor is what purge and moves are at.
#[test]
fn a_database_is_checked_beside_its_own_threads() {
    let dir = tempfile::tempdir().unwrap();
    let db = Database::open(dir.path(), options(8 << 20, 8 << 20).staging_leaves(4)).unwrap();
    let table = db.create_table("items", items()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                db.checkpoint().unwrap();
            }
        });
        for round in 0..30 {
            retried(&db, Isolation::default(), |txn| {
                (0..200).try_for_each(|id| {
                    txn.upsert(&table, &values(id, &item(round, id, 1000))).map(drop)
                })
            });
            let mut findings = Vec::new();
            db.check(&mut |finding| findings.push(finding.to_string())).unwrap();
            if !findings.is_empty() {
                done.store(true, Ordering::Relaxed);
                panic!("round {round}: {findings:#?}");
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

/// Only who had a lock ended the waits for it, when it was dropped: an idle transaction isn't, nor
/// is a prepared one.
#[test]
fn waits_for_locks_end_when_the_database_stops() {
    for prepares in [false, true] {
        let disk = weir_os::SimDisk::new(1);
        let options = options(8 << 20, 8 << 20).lock_wait_timeout(Duration::from_secs(20));
        let db = Database::open_on(Arc::new(disk.clone()), options).unwrap();
        let table = db.create_table("items", items()).unwrap();
        let mut holder = db.begin(Isolation::default()).unwrap();
        holder.insert(&table, &values(1, &item(1, 1, 1))).unwrap();
        if prepares {
            holder.prepare(b"holder").unwrap();
        }
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut txn = db.begin(Isolation::default()).unwrap();
                txn.insert(&table, &values(1, &item(2, 2, 2)))
            });
            while db.status().row_lock_waits == 0 {
                std::thread::yield_now();
            }
            disk.power_off();
            // Who syncs this notices.
            let mut other = db.begin(Isolation::default()).unwrap();
            let _ = other.insert(&table, &values(2, &item(2, 2, 2)));
            let error = waits.join().unwrap().unwrap_err();
            assert!(matches!(error, Error::Storage(_)), "{error}");
        });
    }
}

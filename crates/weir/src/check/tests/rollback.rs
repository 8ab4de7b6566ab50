//! Nothing is found after rollbacks and starts that met an error, or little memory.

use super::*;
use crate::lock::Mode;

#[test]
fn a_dead_row_that_purge_passed_by_is_gone_after_rollback() {
    for len in [10, 20_000] {
        let mut bed = Bed::new(1, 1);
        let tree = bed.trees[0].0;
        bed.put(0, b"k", &vec![1; len]);
        // Keeps the horizon where it is, yet has no snapshot.
        let mut idle = bed.txns.begin();
        idle.write(tree, b"other", Op::Insert(b"")).unwrap();
        let mut deleter = bed.txns.begin();
        deleter.write(tree, b"k", Op::Delete).unwrap();
        deleter.commit(Durability::Sync).unwrap();
        bed.trees[0].1.clear();
        let mut writer = bed.txns.begin();
        writer.write(tree, b"k", Op::Insert(b"again")).unwrap();
        bed.purge_all();
        writer.rollback().unwrap();
        idle.rollback().unwrap();
        bed.purge_all();
        let summary = bed.assert_clean("after purge");
        assert_eq!((summary.dead_entries, summary.overflow_pages), (0, 0), "length {len}");
    }
}

/// A tree created by a transaction whose history is kept; the next transaction has the same lane.
fn with_history(seed: u64) -> Bed {
    let mut bed = Bed::new(seed, 1);
    bed.put(0, b"kept", b"1");
    let mut txn = bed.txns.begin();
    txn.write(bed.trees[0].0, b"kept", Op::Upsert(b"2")).unwrap();
    let created = txn.create_tree().unwrap();
    txn.commit(Durability::Sync).unwrap();
    bed.trees[0].1.insert(b"kept".to_vec(), b"2".to_vec());
    bed.trees.push((created, Rows::new()));
    bed.put(1, b"row", b"of the new tree");
    bed
}

/// A transaction that has filled some leaves.
fn with_loser(bed: &Bed) -> Txn {
    let mut loser = bed.txns.begin();
    for n in 0..100u8 {
        loser.write(bed.trees[0].0, &[n], Op::Insert(&[n; 1000])).unwrap();
    }
    bed.storage().flush_all(crate::storage::Reason::Checkpoint, &mut |_| {}).unwrap();
    loser
}

#[test]
fn a_rollback_that_fails_once_takes_back_nothing_of_others() {
    for nth in 0.. {
        let bed = with_history(5);
        let loser = with_loser(&bed);
        bed.storage().evict_step(bed.frames).unwrap();
        let at = bed.disk.operations() + nth;
        bed.disk.inject(SimFault::Io { on: Some(OpKind::Read), at, times: Times::Once });
        // A failure is told; what is left is taken back all the same.
        let _ = loser.rollback();
        let came_so_far = bed.disk.operations() > at;
        bed.disk.clear_faults();
        bed.storage().check().unwrap();
        bed.assert_clean(&format!("failed at read {nth}"));
        bed.assert_rows(&format!("failed at read {nth}"));
        if !came_so_far {
            assert!(nth > 5, "the pages have to be read");
            return;
        }
    }
}

#[test]
fn a_rollback_at_the_start_that_fails_takes_back_nothing_of_others() {
    let mut failed = 0;
    for nth in 0.. {
        let bed = with_history(5);
        with_loser(&bed).leave();
        let disk = bed.disk.crash(nth);
        let on: Arc<dyn weir_os::Disk> = Arc::new(disk.clone());
        let storage = Storage::open(on, &options(bed.frames), OnProgress::default()).unwrap();
        let storage = Arc::new(storage);
        let at = disk.operations() + nth;
        disk.inject(SimFault::Io { on: Some(OpKind::Read), at, times: Times::Once });
        let recovered = recovered(storage.clone());
        if disk.operations() <= at {
            break;
        }
        failed += u32::from(recovered.is_err());
        drop(recovered);
        // The log is written by a thread of its own.
        let _ = storage.redo.write_step(true);
        drop(storage);
        let bed = Bed { disk, ..bed }.crashed(nth);
        bed.assert_clean(&format!("failed at read {nth}"));
        bed.assert_rows(&format!("failed at read {nth}"));
    }
    assert!(failed > 2, "{failed} starts failed");
}

/// On a device that is full, a database that was at its dirty limit could not be opened any more.
#[test]
fn rollbacks_at_the_start_may_use_the_dirty_reserve() {
    let bed = with_history(5);
    let mut loser = bed.txns.begin();
    for n in 0..3u8 {
        loser.write(bed.trees[0].0, &[n], Op::Insert(b"lost")).unwrap();
    }
    bed.storage().flush_all(crate::storage::Reason::Checkpoint, &mut |_| {}).unwrap();
    loser.leave();
    let disk = bed.disk.crash(1);
    let on: Arc<dyn weir_os::Disk> = Arc::new(disk.clone());
    let storage = Storage::open(on, &options(bed.frames), OnProgress::default()).unwrap();
    let storage = Arc::new(storage);
    let of_others: Vec<_> = std::iter::from_fn(|| storage.dirty.try_reserve()).collect();
    disk.set_capacity(Some(disk.used_bytes()));
    let txns = recovered(storage.clone()).unwrap();
    drop(of_others);
    disk.set_capacity(None);
    let bed = Bed { disk, txns, ..bed };
    bed.assert_clean("rolled back");
    bed.assert_rows("rolled back");
}

#[test]
fn recovery_of_more_pages_than_frames_comes_to_its_end() {
    let mut bed = Bed::with_frames(5, 1, 400);
    bed.fill(1500);
    let disk = bed.disk.crash(1);
    let (done, opened) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let options = StorageOptions { inline: false, ..options(64) };
        let storage = Storage::open(Arc::new(disk), &options, OnProgress::default()).unwrap();
        let storage = Arc::new(storage);
        let _background = Background::start(&storage).unwrap();
        done.send(storage.finish_recovery().is_ok()).unwrap();
    });
    assert_eq!(opened.recv_timeout(Duration::from_secs(60)), Ok(true));
}

/// Whoever waits for what it holds would wait in vain.
#[test]
fn a_rollback_that_fails_for_good_ends_the_waits_for_its_rows() {
    let bed = with_history(5);
    let (tree, loser) = (bed.trees[0].0, with_loser(&bed));
    bed.storage().evict_step(bed.frames).unwrap();
    let endless = || {
        let mut txn = bed.txns.begin();
        txn.lock_timeout = Duration::MAX;
        txn
    };
    let is_stopped = |done| matches!(done, Err(TxnError::Fault(Fault::Stopped(_))));
    std::thread::scope(|scope| {
        let mut waiter = endless();
        let waits = scope.spawn(move || waiter.write(tree, &[50], Op::Upsert(b"mine")));
        while bed.txns.locks.describe().iter().all(|lock| lock.wait.is_none()) {
            std::thread::yield_now();
        }
        let at = bed.disk.operations();
        bed.disk.inject(SimFault::Io { on: Some(OpKind::Read), at, times: Times::Forever });
        drop(loser);
        assert!(is_stopped(waits.join().unwrap()));
    });
    // Nor does anybody wait who comes later.
    let mut later = endless();
    assert!(is_stopped(
        later.get_locked(tree, &[50], Mode::Shared, true, &mut Vec::new()).map(|_| Outcome::Absent)
    ));
}

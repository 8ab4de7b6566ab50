//! The newest slot of a map block that was synced is gone: the older one must not count in its
//! place.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

mod common;

use common::{Item, items, options, retried, values};
use std::ops::Range;
use std::sync::Arc;
use weir::{Database, Durability, Error, Isolation, Shutdown};
use weir_os::{AlignedBuf, Create, Disk, Mode, SimDisk};

const SLOT: usize = 4096;

fn item(id: u64) -> Item {
    ((id % 13) as i64, format!("row {id:05}"), vec![id as u8; 500])
}

fn open(disk: &SimDisk) -> Result<Database, Error> {
    let options = options(2 << 20, 2 << 20).durability(Durability::Sync).single_threaded();
    Database::open_on(Arc::new(disk.clone()), options)
}

fn put(db: &Database, range: Range<u64>) {
    let table = db.table("items").unwrap();
    for from in range.step_by(20) {
        retried(db, Isolation::default(), |txn| {
            (from..from + 20).try_for_each(|id| txn.insert(&table, &values(id, &item(id))))
        });
    }
}

/// What opening says once the newest slot of the first block is zeros.
fn without_newest_slot(disk: &SimDisk) -> String {
    let map = disk.open("map", Create::No, Mode::Cached).unwrap();
    let version = |slot: usize| {
        let read = map.read((slot * SLOT) as u64, AlignedBuf::zeroed(SLOT)).unwrap();
        u64::from_le_bytes(read[8..16].try_into().unwrap())
    };
    let newest = usize::from(version(1) > version(0));
    map.write((newest * SLOT) as u64, AlignedBuf::zeroed(SLOT)).unwrap();
    map.sync().unwrap();
    let opened = open(&disk.process_kill());
    opened.map(drop).expect_err("rows would be missing").to_string()
}

#[test]
fn a_newest_map_slot_that_is_gone_after_a_clean_shutdown_is_damage() {
    let disk = SimDisk::new(1);
    let db = open(&disk).unwrap();
    db.create_table("items", items()).unwrap();
    for range in [0..200, 200..600] {
        put(&db, range);
        db.checkpoint().unwrap();
    }
    db.close(Shutdown::Clean, &mut |_| {}).unwrap();
    let told = without_newest_slot(&disk);
    assert!(told.contains("map") && told.contains("version"), "{told}");
}

#[test]
fn a_newest_map_slot_that_is_gone_behind_the_checkpoint_is_damage() {
    let disk = SimDisk::new(1);
    let db = open(&disk).unwrap();
    db.create_table("items", items()).unwrap();
    put(&db, 0..200);
    db.checkpoint().unwrap();
    put(&db, 200..600);
    (0..3).for_each(|_| db.checkpoint().unwrap());
    let told = without_newest_slot(&disk.process_kill());
    assert!(told.contains("map") && told.contains("version"), "{told}");
}

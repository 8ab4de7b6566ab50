//! Space goes back to the file system, and a power cut meanwhile loses nothing.

#![allow(clippy::unwrap_used)]

mod common;

use common::Toy;
use weir_os::SimDisk;
use weir_os::sim::{Fault, OpKind, Times};
use weir_page::PageId;
use weir_store::StoreError;

/// Not compressed.
const SEED: u64 = 2;
const PAGES: u32 = 1000;

/// A database of 16 MiB of which a few pages are left, all durable and checkpointed.
fn mostly_dropped(keep: impl Fn(u32) -> bool) -> (SimDisk, Toy) {
    let disk = SimDisk::new(1);
    let mut toy = Toy::create(&disk, SEED).unwrap();
    let pages: Vec<PageId> = (1..=PAGES).map(PageId).collect();
    toy.write(&pages).unwrap();
    pages.iter().filter(|page| !keep(page.0)).for_each(|page| toy.free(*page));
    toy.sync_log();
    toy.checkpoint(false).unwrap();
    (disk, toy)
}

#[test]
fn a_dropped_tail_shortens_the_file() {
    let (disk, toy) = mostly_dropped(|page| page <= 30);
    let before = disk.used_bytes();
    toy.store.trim().unwrap();
    assert!(disk.used_bytes() < before / 3, "{} of {before}", disk.used_bytes());
    assert!(toy.store.stats().file_bytes < 4 << 20);
    toy.verify();
}

#[test]
fn a_dropped_middle_is_punched_and_used_again() {
    let (disk, mut toy) = mostly_dropped(|page| page % 400 == 0 || page == PAGES);
    let (before, file_bytes) = (disk.used_bytes(), toy.store.stats().file_bytes);
    toy.store.trim().unwrap();
    assert!(disk.used_bytes() < before / 3, "{} of {before}", disk.used_bytes());
    assert_eq!(toy.store.stats().file_bytes, file_bytes, "the last page is still there");
    toy.verify();
    let operations = disk.operations();
    toy.store.trim().unwrap();
    assert!(disk.operations() - operations <= 1, "nothing is punched twice");
    let pages: Vec<PageId> = (1..900).map(PageId).collect();
    toy.write(&pages).unwrap();
    toy.verify();
    // A device that is full refuses writes into holes: nothing is lost, nothing leaks.
    toy.sync_log();
    pages.iter().for_each(|page| toy.free(*page));
    toy.sync_log();
    toy.store.trim().unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    let used = toy.store.stats().used_units;
    let error = toy.write(&pages).unwrap_err().to_string();
    assert!(error.contains("no space for"), "{error}");
    assert_eq!(toy.store.stats().used_units, used);
    disk.set_capacity(None);
    toy.write(&pages).unwrap();
    toy.verify();
}

#[test]
fn a_failed_punch_or_cut_leaves_all_in_order() {
    for skip in 0..3 {
        let (disk, mut toy) = mostly_dropped(|page| page % 200 == 0 && page < 700);
        let at = disk.operations() + skip;
        disk.inject(Fault::Io { on: Some(OpKind::Resize), at, times: Times::Once });
        assert!(toy.store.trim().is_err());
        toy.verify();
        let pages: Vec<PageId> = (1..1500).map(PageId).collect();
        toy.write(&pages).unwrap();
        toy.verify();
    }
}

#[test]
fn a_crash_while_space_is_given_back_loses_nothing() {
    let (base, toy) = mostly_dropped(|page| page % 200 == 0 && page < 900);
    let log = toy.log;
    for at in 0..30 {
        for seed in 0..8 {
            let mut rng = fastrand::Rng::with_seed(at << 8 | seed);
            let disk = base.process_kill();
            let mut toy = Toy::recover(&disk, &log, SEED).unwrap();
            disk.crash_at(disk.operations() + at);
            let pages: Vec<PageId> = (200..260).map(PageId).collect();
            let _ = toy
                .store
                .trim()
                .and_then(|()| toy.write(&pages))
                .and_then(|()| {
                    toy.sync_log();
                    pages.iter().for_each(|page| toy.free(*page));
                    toy.sync_log();
                    toy.checkpoint(false)
                })
                .and_then(|()| toy.store.trim());
            let mut log = toy.log;
            log.cut(&mut rng);
            let toy = Toy::recover(&disk.crash(rng.u64(..)), &log, SEED).unwrap();
            toy.verify();
        }
    }
}

#[test]
fn a_hole_that_needs_space_of_its_own_is_punched_later() {
    let (disk, toy) = mostly_dropped(|page| page % 400 == 0 || page == PAGES);
    let used = toy.store.stats().used_units;
    disk.inject(Fault::NoSpace { at: disk.operations(), times: Times::Once });
    assert!(matches!(toy.store.trim(), Err(StoreError::NoSpace { .. })));
    assert_eq!(toy.store.stats().used_units, used, "nothing leaks");
    let before = disk.used_bytes();
    toy.store.trim().unwrap();
    assert!(disk.used_bytes() < before / 3, "{} of {before}", disk.used_bytes());
    toy.verify();
}

/// Small holes are filled while the file can't grow, and not for ever.
#[test]
fn a_device_that_is_full_no_more_takes_images_side_by_side() {
    let writes = |was_full: bool, looks: bool| {
        let (disk, mut toy) = mostly_dropped(|page| page % 8 != 0);
        if was_full {
            disk.set_capacity(Some(disk.used_bytes()));
            toy.write(&(1..20).map(PageId).collect::<Vec<_>>()).unwrap();
            disk.set_capacity(None);
        }
        if looks {
            toy.store.keep_room(0, 0, 0).unwrap();
        }
        let before = toy.store.stats().writes;
        toy.write(&(2000..2100).map(PageId).collect::<Vec<_>>()).unwrap();
        toy.verify();
        toy.store.stats().writes - before
    };
    assert!(
        writes(true, false) > 4 * writes(false, false),
        "{} {}",
        writes(true, false),
        writes(false, false)
    );
    assert!(
        writes(true, true) < 2 * writes(false, true),
        "{} {}",
        writes(true, true),
        writes(false, true)
    );
}

/// It was made longer by the batch's length, with a sync each time, until nothing was left of the
/// device, and only then looked through for places.
#[test]
fn a_batch_takes_no_more_of_a_nearly_full_device_than_it_needs() {
    let (disk, mut toy) = mostly_dropped(|page| page % 8 != 0);
    let before = toy.store.stats().file_bytes;
    disk.set_capacity(Some(disk.used_bytes() + (512 << 10)));
    for first in (2000..2080).step_by(4) {
        toy.write(&[0, 1, 2, 3].map(|n| PageId(first + n))).unwrap();
        let grown = toy.store.stats().file_bytes - before;
        assert!(
            grown <= 4 * weir_page::PAGE_SIZE as u64,
            "{grown}: there are holes for the others"
        );
    }
    toy.verify();
}

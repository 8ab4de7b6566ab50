//! A copy that is made while the store goes on: what it may hold, and what nobody takes from under
//! it.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Toy, options, page_bytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_os::sim::ObservedDisk;
use weir_os::{AlignedBuf, Create, Disk, Mode, SimDisk};
use weir_page::{Lsn, PageId};
use weir_store::{Control, DataCopy, PageCopy, Store, StoreError};

/// Not compressed.
const SEED: u64 = 2;

fn pages(range: std::ops::Range<u32>) -> Vec<PageId> {
    range.map(PageId).collect()
}

/// A write into a punched hole finds no room where the file can't grow either: it takes what is
/// held for the copy then.
#[test]
fn a_hole_that_a_full_device_can_not_fill_frees_what_is_held() {
    let disk = SimDisk::new(1);
    disk.set_thin("data");
    let mut toy = Toy::create(&disk, SEED).unwrap();
    toy.write(&pages(1..1000)).unwrap();
    pages(1..800).into_iter().for_each(|page| toy.free(page));
    toy.sync_log();
    toy.store.trim().unwrap();
    disk.set_capacity(Some(disk.used_bytes()));
    toy.store.hold_space();
    pages(800..950).into_iter().for_each(|page| toy.free(page));
    toy.sync_log();
    assert!(toy.store.stats().held_units > 0);
    toy.store.check_held().unwrap();
    toy.write(&pages(1..100)).unwrap();
    let error = toy.store.check_held().unwrap_err();
    assert!(matches!(error, StoreError::Reclaimed { .. }), "{error}");
    assert_eq!(toy.store.stats().held_units, 0);
    toy.verify();
}

fn copy_rest(store: &Store, mut copy: DataCopy) -> Result<(), StoreError> {
    let mut at = 0;
    while at < copy.units() {
        at = store.copy_data(&mut copy, at)?;
    }
    store.finish_data_copy(&copy)
}

fn begin(store: &Store) -> DataCopy {
    store.begin_data_copy(&SimDisk::new(2), store.images()).unwrap()
}

/// Copies all of the data file.
fn copy_data(store: &Store) -> Result<(), StoreError> {
    copy_rest(store, begin(store))
}

/// Wherever an image lies, and whatever of it is damaged; also if it is given up while the file is
/// copied.
#[test]
fn damage_is_found_on_its_way_into_a_copy() {
    for seed in 0..3 {
        let disk = SimDisk::new(seed);
        let mut toy = Toy::create(&disk, seed).unwrap();
        let mut rng = fastrand::Rng::with_seed(seed);
        toy.write(&pages(1..3000)).unwrap();
        toy.sync_log();
        let place = |toy: &Toy, page| toy.store.map().slot(page).extent().unwrap();
        // What was given up before is nothing to a copy.
        for page in pages(1..300) {
            let at = place(&toy, page).offset();
            toy.free(page);
            disk.rot("data", at, 0).unwrap();
        }
        toy.sync_log();
        toy.store.hold_space();
        copy_data(&toy.store).unwrap();
        let all: Vec<PageId> = pages(300..3000);
        for &page in all.iter().step_by(40).chain(&all[all.len() - 8..]) {
            let at = place(&toy, page);
            let bytes = if at.units > 1 { 4096 } else { 32 };
            let (damaged, bit) = (at.offset() + rng.u64(..bytes), rng.u8(..8));
            disk.rot("data", damaged, bit).unwrap();
            let error = copy_data(&toy.store).unwrap_err();
            let StoreError::Corrupt { page: found, offset, .. } = &error else { panic!("{error}") };
            assert_eq!(
                (*found, *offset),
                (Some(page), at.offset()),
                "seed {seed}, {at:?}: {error}"
            );
            disk.rot("data", damaged, bit).unwrap();
        }
        copy_data(&toy.store).unwrap();
        // Images that were there when the copy began, and aren't current any more when it comes to
        // them.
        let last = *all.iter().max_by_key(|&&page| place(&toy, page)).unwrap();
        let old = place(&toy, last);
        let (copy, damaged) = (begin(&toy.store), begin(&toy.store));
        all.chunks(100).for_each(|some| toy.write(some).unwrap());
        toy.sync_log();
        assert_ne!(place(&toy, last), old);
        copy_rest(&toy.store, copy).unwrap();
        disk.rot("data", old.offset(), 3).unwrap();
        let error = copy_rest(&toy.store, damaged).unwrap_err();
        let StoreError::Corrupt { offset, .. } = &error else { panic!("{error}") };
        assert_eq!(*offset, old.offset(), "{error}");
        copy_data(&toy.store).unwrap();
    }
}

/// The page writer had logged where an image is now when a copy began, and not yet said so in the
/// map. The place of the one before was taken for free, though the copy looks at what is there:
/// whatever came there was damage.
#[test]
fn images_that_are_about_to_be_given_up_when_a_copy_begins_stay_as_they_are() {
    let disk = SimDisk::new(1);
    // Compressed: images that come there begin elsewhere.
    let mut toy = Toy::create(&disk, 0).unwrap();
    toy.write(&pages(1..1000)).unwrap();
    toy.sync_log();
    let logged = toy.log.durable();
    let images = pages(1..900).into_iter().map(|page| (page, page_bytes(page, Lsn(1))));
    let images: Vec<_> = images.collect();
    let copies = images.iter().map(|(page, bytes)| PageCopy::whole(*page, Lsn(1), bytes));
    let moved = toy.store.write_batch(&copies.collect::<Vec<_>>()).unwrap();
    toy.store.hold_space();
    let copy = begin(&toy.store);
    toy.store.install(&moved, logged, logged);
    toy.store.release(Lsn(logged.0 + 1));
    (0..4).for_each(|_| toy.write(&pages(2000..3000)).unwrap());
    copy_rest(&toy.store, copy).unwrap();
}

/// Whole images, but not where they belong: of another page, as a lost write leaves one, or an
/// older one of the same.
#[test]
fn an_image_of_another_page_is_found_on_its_way_into_a_copy() {
    let disk = SimDisk::new(1);
    let mut toy = Toy::create(&disk, SEED).unwrap();
    toy.write(&pages(1..500)).unwrap();
    toy.sync_log();
    toy.store.hold_space();
    copy_data(&toy.store).unwrap();
    let place = |page| toy.store.map().slot(page).extent().unwrap();
    let data = disk.open("data", Create::No, Mode::Direct).unwrap();
    let image = |page| {
        let at = place(page);
        data.read(at.offset(), AlignedBuf::zeroed(at.bytes())).unwrap()
    };
    let (page, other) = (PageId(100), PageId(101));
    assert_eq!(place(page).units, place(other).units, "of a length: nothing else tells them apart");
    let own = image(page);
    data.write(place(page).offset(), image(other)).unwrap();
    let error = copy_data(&toy.store).unwrap_err();
    assert!(
        matches!(error, StoreError::Corrupt { page: Some(found), .. } if found == page),
        "{error}"
    );
    data.write(place(page).offset(), own).unwrap();
    copy_data(&toy.store).unwrap();
}

/// In memory the map is as it should be; the next start would find that it isn't.
#[test]
fn damage_of_the_page_map_is_found_on_its_way_into_a_copy() {
    let disk = SimDisk::new(1);
    let mut toy = Toy::create(&disk, SEED).unwrap();
    for _ in 0..3 {
        toy.write(&pages(1..3000)).unwrap();
        toy.checkpoint(false).unwrap();
    }
    let copy_map = || {
        let (copy, bytes) = toy.store.begin_map_copy(&SimDisk::new(2)).unwrap();
        let mut at = 0;
        while at < bytes {
            at = toy.store.copy_map(&*copy, at, bytes)?;
        }
        Ok::<u64, StoreError>(bytes)
    };
    let slots = copy_map().unwrap() / 4096;
    let mut found = 0;
    for slot in 0..slots {
        disk.rot("map", slot * 4096 + 100, 2).unwrap();
        match copy_map() {
            Ok(_) => {}
            Err(StoreError::Corrupt { offset, .. }) if offset == slot * 4096 => found += 1,
            Err(error) => panic!("{error}"),
        }
        disk.rot("map", slot * 4096 + 100, 2).unwrap();
    }
    assert!(
        found > 1 && found <= slots / 2,
        "the current one of two slots each: {found} of {slots}"
    );
    copy_map().unwrap();
}

#[derive(Default)]
struct Watch {
    reading: AtomicBool,
    cut_short: AtomicBool,
    /// Whether somebody is about to cut it short.
    trimming: AtomicBool,
}

/// Waits, before `data` is read, for somebody who is about to cut it short.
fn watched(watch: &Arc<Watch>) -> Arc<ObservedDisk> {
    let watch = watch.clone();
    Arc::new(ObservedDisk::new(SimDisk::new(1), move |operation| {
        match (operation.file, operation.name, operation.is_done) {
            ("data", "read", false) => {
                watch.reading.store(true, Ordering::SeqCst);
                while !watch.trimming.load(Ordering::SeqCst) {
                    std::thread::yield_now();
                }
                // Time enough to do it, if nothing keeps it from that.
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(200)
                    && !watch.cut_short.load(Ordering::SeqCst)
                {
                    std::thread::yield_now();
                }
            }
            ("data", "read", true) => watch.reading.store(false, Ordering::SeqCst),
            ("data", "set_len", false) if watch.reading.load(Ordering::SeqCst) => {
                watch.cut_short.store(true, Ordering::SeqCst);
            }
            _ => {}
        }
        Ok(())
    }))
}

/// What is free by the time that it is read would otherwise be behind the end of the file.
#[test]
fn the_data_file_is_not_cut_short_while_it_is_read() {
    let watch = Arc::new(Watch::default());
    let store = Store::create(watched(&watch), options(SEED), &Control::default()).unwrap();
    let written: Vec<_> =
        pages(1..1000).into_iter().map(|page| (page, page_bytes(page, Lsn(10)))).collect();
    let images = written.iter().map(|(page, bytes)| PageCopy::whole(*page, Lsn(10), bytes));
    let moved = store.write_batch(&images.collect::<Vec<_>>()).unwrap();
    pages(1..1000).into_iter().for_each(|page| store.recover_allocated(page));
    store.install(&moved, Lsn(10), Lsn(10));
    pages(100..1000).into_iter().for_each(|page| store.free_page(page, Lsn(20), Lsn(20)));
    store.release(Lsn(30));
    let before = store.stats().file_bytes;
    let to = SimDisk::new(2);
    let mut copy = store.begin_data_copy(&to, store.images()).unwrap();
    std::thread::scope(|scope| {
        let copied = scope.spawn(|| store.copy_data(&mut copy, 0).unwrap());
        while !watch.reading.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        watch.trimming.store(true, Ordering::SeqCst);
        store.trim().unwrap();
        copied.join().unwrap();
    });
    assert!(!watch.cut_short.load(Ordering::SeqCst), "it was cut short in the middle of a read");
    assert!(store.stats().file_bytes < before, "and afterwards it was");
}

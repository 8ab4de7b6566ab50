//! Failing, full, rotting and lying disks.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Toy, operations, page_bytes, run};
use std::sync::Arc;
use weir_os::sim::{Fault, OpKind, Times};
use weir_os::{Create, Disk, Mode, SimDisk};
use weir_page::{Lsn, PAGE_SIZE, PageId};
use weir_store::{Compression, Control, PageCopy, Store, StoreError, StoreOptions, UNIT};

const STEPS: usize = 40;

#[test]
fn after_a_failed_write_or_sync_nothing_is_written_and_nothing_is_lost() {
    for seed in 0..4 {
        let total = operations(seed, STEPS);
        for at in 0..total {
            for times in [Times::Once, Times::Forever] {
                fail_at(seed, at, times);
            }
        }
    }
}

fn fail_at(seed: u64, at: u64, times: Times) {
    let disk = SimDisk::new(seed);
    disk.inject(Fault::Io { on: None, at, times });
    let Ok(mut toy) = Toy::create(&disk, seed) else {
        disk.clear_faults();
        match Toy::create(&disk, seed) {
            Ok(toy) => toy.verify(),
            Err(StoreError::Disk(e)) => assert_eq!(e.kind(), std::io::ErrorKind::AlreadyExists),
            Err(error) => panic!("seed {seed}, operation {at}: {error}"),
        }
        return;
    };
    let mut rng = fastrand::Rng::with_seed(seed);
    let error = run(&mut toy, &mut rng, STEPS).expect_err("an operation fails");
    assert!(matches!(error, StoreError::Disk(_)), "seed {seed}, operation {at}: {error}");
    disk.clear_faults();
    let before = disk.operations();
    match toy.write(&[PageId(1)]) {
        // The operation that failed was one of trimming.
        Ok(()) => {}
        Err(StoreError::Poisoned { cause }) => {
            assert!(cause.contains("sim/"), "{cause}");
            assert_eq!(disk.operations(), before, "a poisoned store writes nothing");
            let poisoned = |e| matches!(e, StoreError::Poisoned { .. });
            toy.sync_log();
            assert!(poisoned(toy.checkpoint(false).unwrap_err()));
            assert!(poisoned(toy.store.trim().unwrap_err()));
        }
        Err(error) => panic!("seed {seed}, operation {at}: {error}"),
    }
    let mut out = vec![0; PAGE_SIZE];
    for (&page, &lsn) in &toy.model {
        toy.store.read_page(page, &mut out).unwrap();
        assert!(out == page_bytes(page, lsn), "seed {seed}, operation {at}, page {page}");
    }
    let mut log = toy.log.clone();
    log.cut(&mut rng);
    let toy = Toy::recover(&disk.crash(at), &log, seed).unwrap();
    toy.verify();
}

#[test]
fn a_full_disk_changes_nothing_and_goes_on_when_space_is_back() {
    for seed in 0..30 {
        let disk = SimDisk::new(seed);
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut toy = Toy::create(&disk, seed).unwrap();
        disk.set_capacity(Some((2 << 20) + rng.u64(..400) * UNIT as u64));
        let mut full = 0;
        let mut next = 1;
        for _ in 0..60 {
            let pages: Vec<PageId> = (next..next + rng.u32(1..40)).map(PageId).collect();
            let (before, model) = (toy.store.stats(), toy.model.clone());
            match toy.write(&pages) {
                Ok(()) => next += pages.len() as u32,
                Err(StoreError::NoSpace { needed, file }) => {
                    assert!(needed > 0 && file == "sim/data");
                    let after = toy.store.stats();
                    assert_eq!(after.used_units, before.used_units, "seed {seed}");
                    assert_eq!(toy.model, model);
                    full += 1;
                    for page in model.keys().filter(|_| rng.bool()) {
                        toy.free(*page);
                    }
                }
                Err(error) => panic!("seed {seed}: {error}"),
            }
            toy.sync_log();
            match toy.checkpoint(false) {
                Ok(()) | Err(StoreError::NoSpace { .. }) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
            if rng.u32(..8) == 0 {
                toy.store.trim().unwrap();
            }
        }
        assert!(full > 0, "seed {seed}: the disk was never full");
        toy.verify();
        let mut log = toy.log.clone();
        log.cut(&mut rng);
        Toy::recover(&disk.crash(seed), &log, seed).unwrap().verify();
    }
}

fn plain_store(disk: &SimDisk) -> Store {
    let options = StoreOptions { compression: Compression::None };
    Store::create(Arc::new(disk.clone()), options, &Control::default()).unwrap()
}

/// Writes and installs one page; returns the offset of its image.
fn put(store: &Store, page: u32, lsn: u64) -> u64 {
    let bytes = page_bytes(PageId(page), Lsn(lsn));
    let moved = store.write_batch(&[PageCopy::whole(PageId(page), Lsn(lsn), &bytes)]).unwrap();
    store.recover_allocated(PageId(page));
    store.install(&moved, Lsn(lsn), Lsn(lsn));
    moved[0].extent.offset()
}

fn findings(store: &Store) -> Vec<String> {
    let mut findings = Vec::new();
    store.check(&mut |finding| findings.push(finding));
    findings
}

#[test]
fn bit_rot_names_file_offset_and_page() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    let offsets: Vec<u64> = (1..20).map(|page| put(&store, page, 10)).collect();
    disk.rot("data", offsets[6] + 5000, 3).unwrap();
    let mut out = vec![0; PAGE_SIZE];
    match store.read_page(PageId(7), &mut out).unwrap_err() {
        StoreError::Corrupt { file, offset, page, what, .. } => {
            assert_eq!((&file[..], offset, page), ("sim/data", offsets[6], Some(PageId(7))));
            assert_eq!(what, "image checksum");
        }
        error => panic!("{error}"),
    }
    let found = findings(&store);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("(page 7)"), "{found:?}");
    let (mut good, mut bad) = (0, 0);
    let pages: Vec<PageId> = (1..21).map(PageId).collect();
    let mut sink = |page: PageId, read: weir_store::Result<&[u8]>| match read {
        Ok(bytes) => good += usize::from(bytes == page_bytes(page, Lsn(10))),
        Err(StoreError::Corrupt { page: Some(page), .. }) => bad += page.0,
        Err(StoreError::NotStored { page }) => bad += page.0,
        Err(error) => panic!("{error}"),
    };
    store.read_pages(&pages, &mut sink);
    assert_eq!((good, bad), (18, 7 + 20));
}

#[test]
fn one_unreadable_page_does_not_hide_its_neighbours() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    let _: Vec<u64> = (1..20).map(|page| put(&store, page, 10)).collect();
    let at = disk.operations();
    disk.inject(Fault::Io { on: Some(OpKind::Read), at, times: Times::Once });
    let pages: Vec<PageId> = (1..20).map(PageId).collect();
    let mut good = 0;
    store.read_pages(&pages, &mut |_, read| good += usize::from(read.is_ok()));
    assert_eq!(good, 19);
}

#[test]
fn a_lost_write_over_an_older_image_of_the_same_page_is_found() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    let first = put(&store, 1, 10);
    // The page wanders until it comes back to its first place, where the write is lost.
    for lsn in 11..2000 {
        store.release(Lsn(lsn + 1));
        disk.inject(Fault::LostWrite { at: disk.operations() });
        let offset = put(&store, 1, lsn);
        let mut out = vec![0; PAGE_SIZE];
        match store.read_page(PageId(1), &mut out).unwrap_err() {
            StoreError::Corrupt { offset: named, page, what, .. } => {
                assert_eq!((named, page), (offset, Some(PageId(1))));
                if offset == first {
                    assert_eq!(what, "an older image (lost write)");
                    return;
                }
            }
            error => panic!("{error}"),
        }
    }
    panic!("the page never came back to its first place");
}

#[test]
fn a_misdirected_write_is_found() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let store = plain_store(&disk);
        let _: Vec<u64> = (1..40).map(|page| put(&store, page, 10)).collect();
        disk.inject(Fault::MisdirectedWrite { at: disk.operations() });
        put(&store, 5, 11);
        let found = findings(&store);
        assert!(found.iter().any(|f| f.contains("(page 5)")), "seed {seed}: {found:?}");
    }
}

fn after_crash(checkpoint: Lsn) -> Control {
    Control { checkpoint, durable: checkpoint, ..Control::default() }
}

#[test]
fn a_rotten_map_block_is_found() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    let write = |lsn| {
        put(&store, 1, lsn);
        let draft = store.draft_map(Lsn(u64::MAX)).unwrap().expect("a block has changed");
        store.write_map(draft, Lsn(lsn + 1)).unwrap();
    };
    write(10);
    // Also at a checkpoint that has not passed the next change.
    store.write_control(&after_crash(Lsn(20))).unwrap();
    write(20);
    let before = disk.process_kill();
    let clean = |clean| Control { clean, ..Control::default() };
    store.write_control(&clean(true)).unwrap();
    let open = |disk: &SimDisk| Store::open(Arc::new(disk.clone()), StoreOptions::default());
    assert!(open(&disk).is_ok());
    disk.rot("map", 100, 0).unwrap();
    match open(&disk).map(drop).unwrap_err() {
        StoreError::Corrupt { file, offset: 0, page, what, .. } => {
            assert_eq!((&file[..], page, what), ("sim/map", None, "map block checksum"));
        }
        error => panic!("{error}"),
    }
    for checkpoint in [20, 21] {
        store.write_control(&after_crash(Lsn(checkpoint))).unwrap();
        assert!(open(&disk).is_err(), "it had been synced, and may tell of what was before 20");
    }
    before.rot("map", 100, 0).unwrap();
    assert!(open(&before).is_ok(), "it may be a torn write");
    before.rot("map", 4096 + 100, 0).unwrap();
    assert!(matches!(open(&before).map(drop), Err(StoreError::Corrupt { offset: 4096, .. })));
}

/// It was taken for a write cut short: the block as it was before counted, though its changes since
/// were from before the checkpoint.
#[test]
fn rot_of_a_map_blocks_header_is_no_write_cut_short() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    for lsn in [10, 20, 30] {
        put(&store, 1, lsn);
        let draft = store.draft_map(Lsn(u64::MAX)).unwrap().expect("a block has changed");
        store.write_map(draft, Lsn(lsn + 1)).unwrap();
    }
    store.write_control(&after_crash(Lsn(31))).unwrap();
    // Version 3.
    let newer = 4096;
    for bit in 0..8 * 32 {
        let disk = disk.process_kill();
        disk.rot("map", newer + bit / 8, (bit % 8) as u8).unwrap();
        let opened = Store::open(Arc::new(disk.clone()), StoreOptions::default()).map(drop);
        let error = opened.expect_err(&format!("bit {bit}"));
        assert!(
            matches!(&error, StoreError::Corrupt { file, page: None, .. } if file == "sim/map"),
            "{error}"
        );
    }
}

/// As long as the header still said something that a write might have said, the block as it was
/// before counted.
#[test]
fn two_wrong_bits_of_a_map_blocks_header_are_no_write_cut_short() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    for (page, lsn) in [(1, 10), (1, 20), (1, 30), (5000, 40)] {
        put(&store, page, lsn);
        let draft = store.draft_map(Lsn(u64::MAX)).unwrap().expect("a block has changed");
        store.write_map(draft, Lsn(lsn + 1)).unwrap();
    }
    store.write_control(&after_crash(Lsn(41))).unwrap();
    // Version 3.
    let (newer, version, newest) = (4096, 8 * 8, 8 * 16);
    let mut passed = Vec::new();
    for (one, other) in (0..20).flat_map(|one| (0..20).map(move |other| (one, other))) {
        let disk = disk.process_kill();
        for bit in [version + one, newest + other] {
            disk.rot("map", newer + bit / 8, (bit % 8) as u8).unwrap();
        }
        if Store::open(Arc::new(disk), StoreOptions::default()).is_ok() {
            passed.push((one, other));
        }
    }
    // Version 1, which it had once, with an LSN of 14; version 7, which may come next, with one
    // behind the checkpoint.
    let later = (5..20).map(|bit| (2, bit));
    assert_eq!(passed, [(1, 4)].into_iter().chain(later).collect::<Vec<_>>());
}

#[test]
fn a_map_that_was_cut_short_is_found() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    // The file grows more than once.
    for (lsn, page) in [(10, 1), (20, 50_000)] {
        put(&store, page, lsn);
        let draft = store.draft_map(Lsn(u64::MAX)).unwrap().expect("a block has changed");
        store.write_map(draft, Lsn(lsn + 1)).unwrap();
    }
    store.write_control(&Control::default()).unwrap();
    drop(store);
    let file = disk.open("map", Create::No, Mode::Direct).unwrap();
    let open = || Store::open(Arc::new(disk.clone()), StoreOptions::default()).map(drop);
    open().unwrap();
    for bytes in [file.len().unwrap() - 4096, 256 << 10, 0] {
        file.set_len(bytes).unwrap();
        let error = open().unwrap_err().to_string();
        assert!(error.contains("sim/map is corrupt") && error.contains("bytes or more"), "{error}");
    }
}

#[test]
fn a_database_that_is_open_was_not_shut_down() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    store.write_control(&Control { clean: true, ..Control::default() }).unwrap();
    drop(store);
    let open = || Store::open(Arc::new(disk.clone()), StoreOptions::default()).unwrap();
    let (store, control) = open();
    assert!(control.clean);
    assert!(open().1.clean, "nothing has been written yet");
    store.finish_recovery().unwrap();
    assert!(!open().1.clean);
}

#[test]
fn overlapping_extents_and_a_short_file_are_found_by_recovery() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    let bytes = page_bytes(PageId(1), Lsn(10));
    let mut moved = store.write_batch(&[PageCopy::whole(PageId(1), Lsn(10), &bytes)]).unwrap()[0];
    let open = || Store::open(Arc::new(disk.clone()), StoreOptions::default()).unwrap().0;
    let again = open();
    again.recover_relocation(&moved, Lsn(10));
    moved.page = PageId(2);
    moved.extent.start_unit += 1;
    again.recover_relocation(&moved, Lsn(20));
    let error = again.finish_recovery().unwrap_err().to_string();
    assert!(error.contains("(page 2): extent overlap"), "{error}");
    assert!(error.contains("page 1 there too"), "{error}");
    let again = open();
    moved.extent.start_unit = 1 << 30;
    again.recover_relocation(&moved, Lsn(20));
    let error = again.finish_recovery().unwrap_err().to_string();
    assert!(error.contains("extent beyond the file"), "{error}");
}

/// It took 16 GiB of memory to know what of that is free.
#[test]
fn a_file_that_was_made_very_long_takes_no_more_memory() {
    let disk = SimDisk::new(1);
    let store = plain_store(&disk);
    put(&store, 1, 10);
    let draft = store.draft_map(Lsn(u64::MAX)).unwrap().expect("a block has changed");
    store.write_map(draft, Lsn(11)).unwrap();
    drop(store);
    let file = disk.open("data", Create::No, Mode::Direct).unwrap();
    file.set_len(256 << 40).unwrap();
    let (store, _) = Store::open(Arc::new(disk.clone()), StoreOptions::default()).unwrap();
    store.finish_recovery().unwrap();
    assert!(store.stats().file_bytes < 128 << 30);
    store.read_page(PageId(1), &mut vec![0; PAGE_SIZE]).unwrap();
    store.trim().unwrap();
    assert!(file.len().unwrap() < 1 << 30);
}

/// The process is killed after the sync of a length has failed; the system takes it for done, and a
/// power cut takes it away.
#[test]
fn a_length_whose_sync_failed_is_durable_after_the_next_open() {
    let disk = SimDisk::new(1);
    Store::create(Arc::new(disk.clone()), StoreOptions::default(), &Control::default()).unwrap();
    for name in ["data", "map"] {
        let file = disk.open(name, Create::No, Mode::Direct).unwrap();
        file.set_len(1 << 20).unwrap();
        let (on, at) = (Some(OpKind::Sync), disk.operations());
        disk.inject(Fault::Io { on, at, times: Times::Once });
        file.sync().unwrap_err();
    }
    let killed = disk.process_kill();
    Store::open(Arc::new(killed.clone()), StoreOptions::default()).unwrap();
    for seed in 0..20 {
        let found = killed.crash(seed);
        for name in ["data", "map"] {
            let file = found.open(name, Create::No, Mode::Direct).unwrap();
            assert_eq!(file.len().unwrap(), 1 << 20, "{name}");
        }
    }
}

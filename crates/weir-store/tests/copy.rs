//! A copy that is made while the store goes on: what it may hold, and what nobody takes from under it.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Toy, options, page_bytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_os::{AlignedBuf, Create, Disk, File, Io, Mode, SimDisk};
use weir_page::{Lsn, PageId};
use weir_store::{Control, PageCopy, Store, StoreError};

/// Not compressed.
const SEED: u64 = 2;

fn pages(range: std::ops::Range<u32>) -> Vec<PageId> {
    range.map(PageId).collect()
}

/// A write into a punched hole finds no room where the file can't grow either: what is held for the copy is free then.
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
    toy.store.hold_space(toy.log.durable());
    pages(800..950).into_iter().for_each(|page| toy.free(page));
    toy.sync_log();
    assert!(toy.store.stats().held_units > 0);
    toy.store.check_held().unwrap();
    let error = toy.write(&pages(1..100)).unwrap_err();
    assert!(matches!(error, StoreError::NoSpace { .. }), "{error}");
    let error = toy.store.check_held().unwrap_err();
    assert!(matches!(error, StoreError::Reclaimed { .. }), "{error}");
    assert_eq!(toy.store.stats().held_units, 0);
    toy.verify();
}

/// A disk whose file `data` tells of being cut short while it is read.
struct Watched(SimDisk, Arc<Watch>);

#[derive(Default)]
struct Watch {
    reading: AtomicBool,
    cut_short: AtomicBool,
    /// Whether somebody is about to cut it short.
    trimming: AtomicBool,
}

struct WatchedFile(Arc<dyn File>, Arc<Watch>);

impl Disk for Watched {
    fn open(&self, name: &str, create: Create, mode: Mode) -> weir_os::Result<Arc<dyn File>> {
        let file = self.0.open(name, create, mode)?;
        Ok(if name == "data" { Arc::new(WatchedFile(file, self.1.clone())) } else { file })
    }
    fn remove(&self, name: &str) -> weir_os::Result<()> {
        self.0.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> weir_os::Result<()> {
        self.0.rename(from, to)
    }
    fn list(&self) -> weir_os::Result<Vec<String>> {
        self.0.list()
    }
    fn sync_dir(&self) -> weir_os::Result<()> {
        self.0.sync_dir()
    }
    fn free_bytes(&self) -> weir_os::Result<u64> {
        self.0.free_bytes()
    }
    fn lock(&self) -> weir_os::Result<Box<dyn Send + Sync>> {
        self.0.lock()
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

impl File for WatchedFile {
    fn run(&self, batch: Vec<Io>) -> weir_os::Result<Vec<AlignedBuf>> {
        if !matches!(batch.first(), Some(Io::Read { .. })) {
            return self.0.run(batch);
        }
        self.1.reading.store(true, Ordering::SeqCst);
        while !self.1.trimming.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // Time enough to do it, if nothing keeps it from that.
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(200)
            && !self.1.cut_short.load(Ordering::SeqCst)
        {
            std::thread::yield_now();
        }
        let done = self.0.run(batch);
        self.1.reading.store(false, Ordering::SeqCst);
        done
    }
    fn len(&self) -> weir_os::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, bytes: u64) -> weir_os::Result<()> {
        if self.1.reading.load(Ordering::SeqCst) {
            self.1.cut_short.store(true, Ordering::SeqCst);
        }
        self.0.set_len(bytes)
    }
    fn punch(&self, offset: u64, bytes: u64) -> weir_os::Result<()> {
        self.0.punch(offset, bytes)
    }
    fn sync(&self) -> weir_os::Result<()> {
        self.0.sync()
    }
    fn name(&self) -> &str {
        self.0.name()
    }
    fn renamed(&self, name: &str) -> Arc<dyn File> {
        Arc::new(WatchedFile(self.0.renamed(name), self.1.clone()))
    }
}

/// What is free by the time that it is read would otherwise be behind the end of the file.
#[test]
fn the_data_file_is_not_cut_short_while_it_is_read() {
    let watch = Arc::new(Watch::default());
    let disk = Arc::new(Watched(SimDisk::new(1), watch.clone()));
    let store = Store::create(disk, options(SEED), &Control::default()).unwrap();
    let written: Vec<_> =
        pages(1..1000).into_iter().map(|page| (page, page_bytes(page, Lsn(10)))).collect();
    let mut images = written.iter().map(|(page, bytes)| PageCopy::whole(*page, Lsn(10), bytes));
    let moved = store.write_batch(&mut images).unwrap();
    pages(1..1000).into_iter().for_each(|page| store.recover_allocated(page));
    store.install(&moved, Lsn(10), Lsn(10));
    pages(100..1000).into_iter().for_each(|page| store.free_page(page, Lsn(20), Lsn(20)));
    store.release(Lsn(30));
    let before = store.stats().file_bytes;
    let to = SimDisk::new(2);
    let (copy, units) = store.begin_data_copy(&to).unwrap();
    std::thread::scope(|scope| {
        let copied = scope.spawn(|| store.copy_data(&*copy, 0, units).unwrap());
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

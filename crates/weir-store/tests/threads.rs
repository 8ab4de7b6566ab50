//! A page writer, threads that free pages, a checkpointer and readers at once.

mod common;

use common::{options, page_bytes};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_os::SimDisk;
use weir_page::{Lsn, PAGE_SIZE, PageId};
use weir_store::{Control, PageCopy, Store, StoreError};

const WRITERS: u64 = 3;
const ROUNDS: u64 = 60;

/// Each writer owns its pages: it moves, frees and reads them, checking against its own model.
fn writer(store: &Store, clock: &AtomicU64, number: u64) -> BTreeMap<PageId, Lsn> {
    let mut rng = fastrand::Rng::with_seed(number);
    let mut model = BTreeMap::new();
    let mut out = vec![0; PAGE_SIZE];
    for _ in 0..ROUNDS {
        let mut pages: Vec<PageId> = (0..rng.usize(1..20)).map(|_| store.allocate_page()).collect();
        pages.extend(model.keys().copied().filter(|_| rng.u32(..4) == 0));
        let images: Vec<_> = pages
            .iter()
            .map(|&page| {
                let lsn = Lsn(clock.fetch_add(1, Ordering::SeqCst));
                (page, lsn, page_bytes(page, lsn))
            })
            .collect();
        let copies = images.iter().map(|(page, lsn, bytes)| PageCopy::whole(*page, *lsn, bytes));
        let moved = store.write_batch(&copies.collect::<Vec<_>>()).expect("the disk is good");
        let lsn = Lsn(clock.fetch_add(1, Ordering::SeqCst));
        store.install(&moved, lsn, lsn);
        model.extend(moved.iter().map(|r| (r.page, r.page_lsn)));
        for page in model.keys().copied().filter(|_| rng.u32(..6) == 0).collect::<Vec<_>>() {
            let lsn = Lsn(clock.fetch_add(1, Ordering::SeqCst));
            store.free_page(page, lsn, lsn);
            store.release_page(page);
            model.remove(&page);
        }
        for (&page, &lsn) in model.iter().filter(|_| rng.u32(..8) == 0) {
            store.read_page(page, &mut out).expect("the image is good");
            assert!(out == page_bytes(page, lsn), "page {page}");
        }
    }
    model
}

/// Persists the map blocks changed before `below`; what `clock` has passed is durable.
fn write_map(store: &Store, below: Lsn, clock: &AtomicU64) {
    while let Some(draft) = store.draft_map(below).expect("the disk is good") {
        let durable = Lsn(clock.load(Ordering::SeqCst));
        store.write_map(draft, durable).expect("the disk is good");
    }
}

#[test]
fn many_threads_at_once_keep_every_page() {
    let disk = SimDisk::new(1);
    let arc = || Arc::new(disk.clone());
    let store = Store::create(arc(), options(0), &Control::default()).expect("created");
    let (clock, done) = (AtomicU64::new(1), AtomicBool::new(false));
    let models: Vec<_> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (store, clock) = (&store, &clock);
                scope.spawn(move || writer(store, clock, number))
            })
            .collect();
        // All that is logged counts as durable at once here: only the races are of interest.
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                let durable = Lsn(clock.load(Ordering::SeqCst));
                store.release(durable);
                write_map(&store, durable, &clock);
                let checkpoint = store.oldest_unpersisted().unwrap_or(durable).min(durable);
                let control = Control { checkpoint, durable, ..Control::default() };
                store.write_control(&control).expect("the disk is good");
                store.trim().expect("the disk is good");
                std::thread::yield_now();
            }
        });
        let models = writers.into_iter().map(|w| w.join().expect("no panic")).collect();
        done.store(true, Ordering::SeqCst);
        models
    });
    let durable = Lsn(clock.load(Ordering::SeqCst) + 1);
    store.release(durable);
    write_map(&store, durable, &clock);
    assert_eq!((store.oldest_unpersisted(), store.stats().pending_units), (None, 0));
    let model: BTreeMap<PageId, Lsn> = models.into_iter().flatten().collect();
    let (again, _) = Store::open(arc(), options(0)).expect("opened");
    again.finish_recovery().expect("recovered");
    let mut out = vec![0; PAGE_SIZE];
    for store in [&store, &again] {
        store.check(&mut |finding| panic!("{finding}"));
        assert_eq!(store.stats().pages_stored, model.len() as u64);
        assert_eq!(store.stats().pages_allocated, model.len() as u64);
        for (&page, &lsn) in &model {
            store.read_page(page, &mut out).expect("stored");
            assert!(out == page_bytes(page, lsn));
        }
    }
    let missing = store.read_page(PageId(1 << 30), &mut out);
    assert!(matches!(missing, Err(StoreError::NotStored { page }) if page == PageId(1 << 30)));
}

//! Of two batches in flight at once, the sync of one finds that the device has failed. The system
//! tells of that once for each open file: the other's sync would succeed, though its images are
//! gone, and it would go on to log where they lie.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use weir_os::SimDisk;
use weir_os::sim::{Fault, ObservedDisk, OpKind, Times};
use weir_page::{Lsn, PAGE_SIZE, PageId};
use weir_store::{Control, PageCopy, Store, StoreOptions};

#[test]
fn a_sync_that_fails_ends_the_batches_beside_it() {
    let disk = SimDisk::new(1);
    let (armed, written) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    // Both have written before either syncs.
    let observed = ObservedDisk::new(disk.clone(), {
        let armed = armed.clone();
        move |operation| {
            let is_write = operation.name == "write" && operation.is_done;
            if operation.file == "data" && is_write && armed.load(Ordering::SeqCst) {
                written.wait();
            }
            Ok(())
        }
    });
    let control = Control { database_id: 7, ..Control::default() };
    let store = Store::create(Arc::new(observed), StoreOptions::default(), &control).unwrap();
    let pages: Vec<PageId> = (0..2).map(|_| store.allocate_page()).collect();
    // The file is long enough before.
    store.keep_room(64, 64, 64).unwrap();
    armed.store(true, Ordering::SeqCst);
    let (on, at) = (Some(OpKind::Sync), disk.operations());
    disk.inject(Fault::Io { on, at, times: Times::Once });
    let write = |page: PageId| {
        let bytes: Vec<u8> = (0..PAGE_SIZE).map(|n| (n * page.0 as usize) as u8).collect();
        store.write_batch(&[PageCopy::whole(page, Lsn(90), &bytes)])
    };
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = pages.iter().map(|&page| scope.spawn(move || write(page))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(results.iter().all(Result::is_err), "a batch is told that its images are durable");
}

//! Of two batches in flight at once, the sync of one finds that the device has failed. The system tells of that once for each open
//! file: the other's sync would succeed, though its images are gone, and it would go on to log where they lie.

#![allow(clippy::unwrap_used, reason = "a failure of a test's own step is a failed test")]

use std::sync::{Arc, Barrier, Mutex};
use weir_os::sim::{Fault, OpKind, Times};
use weir_os::{AlignedBuf, Create, Disk, DiskStats, File, Io, Mode, Result, SimDisk};
use weir_page::{Lsn, PAGE_SIZE, PageId};
use weir_store::{Control, PageCopy, Store, StoreOptions};

/// Two threads that write to `data` meet before they sync it, and sync one behind the other.
struct Meeting {
    inner: SimDisk,
    armed: Arc<Mutex<bool>>,
    written: Arc<Barrier>,
    turn: Arc<Mutex<()>>,
}

struct Met {
    inner: Arc<dyn File>,
    armed: Arc<Mutex<bool>>,
    written: Arc<Barrier>,
    turn: Arc<Mutex<()>>,
}

impl Disk for Meeting {
    fn open(&self, name: &str, create: Create, mode: Mode) -> Result<Arc<dyn File>> {
        let inner = self.inner.open(name, create, mode)?;
        if name != "data" {
            return Ok(inner);
        }
        let (armed, written, turn) = (self.armed.clone(), self.written.clone(), self.turn.clone());
        Ok(Arc::new(Met { inner, armed, written, turn }))
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn sync_dir(&self) -> Result<()> {
        self.inner.sync_dir()
    }
    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }
    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        self.inner.lock()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn stats(&self) -> DiskStats {
        self.inner.stats()
    }
}

impl File for Met {
    fn run(&self, batch: Vec<Io>) -> Result<Vec<AlignedBuf>> {
        let done = self.inner.run(batch);
        let is_armed = *self.armed.lock().unwrap();
        if is_armed {
            self.written.wait();
        }
        done
    }
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, bytes: u64) -> Result<()> {
        self.inner.set_len(bytes)
    }
    fn punch(&self, offset: u64, bytes: u64) -> Result<()> {
        self.inner.punch(offset, bytes)
    }
    fn sync(&self) -> Result<()> {
        let _turn = self.turn.lock().unwrap();
        self.inner.sync()
    }
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn renamed(&self, name: &str) -> Arc<dyn File> {
        self.inner.renamed(name)
    }
}

#[test]
fn a_sync_that_fails_beside_another_batch_ends_that_batch_too() {
    let sim = SimDisk::new(1);
    let armed = Arc::new(Mutex::new(false));
    let meeting = Meeting {
        inner: sim.clone(),
        armed: armed.clone(),
        written: Arc::new(Barrier::new(2)),
        turn: Arc::default(),
    };
    let control = Control { database_id: 7, ..Control::default() };
    let store = Store::create(Arc::new(meeting), StoreOptions::default(), &control).unwrap();
    let pages: Vec<PageId> = (0..2).map(|_| store.allocate_page()).collect();
    // The file is long enough before.
    store.keep_room(64, 64, 64).unwrap();
    *armed.lock().unwrap() = true;
    let (on, at) = (Some(OpKind::Sync), sim.operations());
    sim.inject(Fault::Io { on, at, times: Times::Once });
    let write = |page: PageId| {
        let bytes: Vec<u8> = (0..PAGE_SIZE).map(|n| (n * page.0 as usize) as u8).collect();
        store.write_batch(&mut [PageCopy::whole(page, Lsn(90), &bytes)].into_iter())
    };
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = pages.iter().map(|&page| scope.spawn(move || write(page))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    let good: Vec<_> = results.iter().filter_map(|result| result.as_ref().ok()).collect();
    // What the one that goes on is about to log must be durable.
    let mut lost = 0;
    for seed in 0..20 {
        let after = sim.crash(seed);
        let data = after.open("data", Create::No, Mode::Cached).unwrap();
        for moved in good.iter().flat_map(|moved| moved.iter()) {
            let at = moved.extent;
            let len = data.len().unwrap();
            let found = (at.offset() + 16 <= len)
                .then(|| data.read(at.offset(), AlignedBuf::zeroed(16)).unwrap().to_vec());
            let is_there = found.is_some_and(|found| found[4..8] == moved.page.0.to_le_bytes());
            lost += u32::from(!is_there);
        }
    }
    assert!(
        good.is_empty(),
        "a batch is told that its images are durable; after 20 power cuts they were lost {lost} times"
    );
}

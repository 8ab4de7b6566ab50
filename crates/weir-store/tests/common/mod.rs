//! A toy engine over the store: a log in memory with a durable prefix, and what each durable
//! prefix promises.

#![allow(dead_code)]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use weir_os::SimDisk;
use weir_page::{Lsn, PAGE_SIZE, PageId};
use weir_store::{
    Compression, Control, PageCopy, Relocation, Result, Store, StoreError, StoreOptions,
    decode_relocations, encode_relocations,
};

/// Distance of LSNs; group boundaries are its multiples.
const STEP: u64 = 10;

#[derive(Clone)]
enum Event {
    Move(Vec<u8>),
    Free(PageId),
}

/// The log: event `i` is a group at LSN `(i + 1) * STEP`.
#[derive(Clone, Default)]
pub struct Log {
    events: Vec<Event>,
    durable: usize,
    checkpoint: Lsn,
}

/// Page and the LSN of its image, which fixes the image's bytes.
pub type Model = BTreeMap<PageId, Lsn>;

impl Log {
    fn lsn(index: usize) -> Lsn {
        Lsn((index as u64 + 1) * STEP)
    }

    fn append(&mut self, event: Event) -> Lsn {
        self.events.push(event);
        Log::lsn(self.events.len() - 1)
    }

    pub fn durable(&self) -> Lsn {
        Log::lsn(self.durable)
    }

    /// A power cut: what was not durable may survive as a prefix.
    pub fn cut(&mut self, rng: &mut fastrand::Rng) {
        self.events.truncate(rng.usize(self.durable..=self.events.len()));
        self.durable = self.events.len();
    }

    /// What the log promises.
    pub fn model(&self) -> Model {
        let mut model = Model::new();
        for event in &self.events {
            match event {
                Event::Move(record) => {
                    for r in decode_relocations(record).unwrap() {
                        model.insert(r.page, r.page_lsn);
                    }
                }
                Event::Free(page) => {
                    model.remove(page);
                }
            }
        }
        model
    }
}

pub fn page_bytes(page: PageId, lsn: Lsn) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(u64::from(page.0) << 32 ^ lsn.0);
    let mut bytes = vec![0; PAGE_SIZE];
    // From all hole to all noise: images of 1 to 4 units.
    let noise = rng.usize(..PAGE_SIZE - 32);
    rng.fill(&mut bytes[32..32 + noise]);
    bytes[4..8].copy_from_slice(&page.0.to_le_bytes());
    bytes[8..16].copy_from_slice(&lsn.0.to_le_bytes());
    bytes
}

pub fn options(seed: u64) -> StoreOptions {
    let compression = match seed % 3 {
        0 => Compression::Lz4,
        1 => Compression::Zstd(1),
        _ => Compression::None,
    };
    StoreOptions { compression }
}

pub struct Toy {
    pub store: Store,
    pub log: Log,
    pub model: Model,
    page_lsn: u64,
    /// Freed pages whose ids go back when the log is durable.
    freed: BTreeMap<PageId, Lsn>,
}

/// Pages spread over so many map blocks that their file grows several times, and over more than one
/// chunk of the map.
fn some_page(rng: &mut fastrand::Rng) -> PageId {
    PageId(1 + rng.u32(..40) * 1700)
}

/// Several of them, in order.
fn some_pages(rng: &mut fastrand::Rng) -> Vec<PageId> {
    let mut pages: Vec<PageId> = (0..rng.usize(1..12)).map(|_| some_page(rng)).collect();
    pages.sort();
    pages.dedup();
    pages
}

impl Toy {
    pub fn create(disk: &SimDisk, seed: u64) -> Result<Toy> {
        let control = Control { database_id: 42, ..Control::default() };
        let store = Store::create(Arc::new(disk.clone()), options(seed), &control)?;
        Ok(Toy::over(store, Log::default(), Model::new()))
    }

    fn over(store: Store, log: Log, model: Model) -> Toy {
        let page_lsn = model.values().map(|lsn| lsn.0).max().unwrap_or(0) + 1_000_000;
        Toy { store, log, model, page_lsn, freed: BTreeMap::new() }
    }

    /// Opens and replays the log from the checkpoint.
    pub fn recover(disk: &SimDisk, log: &Log, seed: u64) -> Result<Toy> {
        let (store, control) = Store::open(Arc::new(disk.clone()), options(seed))?;
        assert_eq!(control.database_id, 42);
        // The log before the last acknowledged checkpoint may be gone.
        assert!(control.checkpoint >= log.checkpoint, "an acknowledged checkpoint was lost");
        for (index, event) in log.events.iter().enumerate() {
            let lsn = Log::lsn(index);
            match event {
                _ if lsn < control.checkpoint => {}
                Event::Move(record) => {
                    for r in decode_relocations(record)? {
                        store.recover_relocation(&r, lsn);
                    }
                }
                Event::Free(page) => store.recover_free(*page, lsn),
            }
        }
        store.finish_recovery()?;
        // The log before this one is given up from now on.
        let log = Log { checkpoint: control.checkpoint, ..log.clone() };
        Ok(Toy::over(store, log.clone(), log.model()))
    }

    /// Every page has the image that the log promises, and nothing else is there.
    pub fn verify(&self) {
        let stats = self.store.stats();
        assert_eq!(stats.pages_stored, self.model.len() as u64);
        let mut out = vec![0; PAGE_SIZE];
        for (&page, &lsn) in &self.model {
            self.store.read_page(page, &mut out).unwrap();
            assert!(out == page_bytes(page, lsn), "page {page} is not as of {lsn}");
        }
        let pages: Vec<PageId> = self.model.keys().rev().copied().collect();
        let mut seen = 0;
        let mut sink = |page, read: Result<&[u8]>| {
            assert!(read.unwrap() == page_bytes(page, self.model[&page]));
            seen += 1;
        };
        self.store.read_pages(&pages, &mut sink);
        assert_eq!(seen, pages.len());
        self.store.check(&mut |finding| panic!("{finding}"));
    }

    pub fn write(&mut self, pages: &[PageId]) -> Result<()> {
        let images: Vec<_> = pages
            .iter()
            .map(|&page| {
                self.page_lsn += 1;
                let lsn = Lsn(self.page_lsn);
                (page, lsn, page_bytes(page, lsn))
            })
            .collect();
        let copies = images.iter().map(|(page, lsn, bytes)| PageCopy::whole(*page, *lsn, bytes));
        let moved = self.store.write_batch(&copies.collect::<Vec<_>>())?;
        self.log_moves(&moved);
        Ok(())
    }

    fn log_moves(&mut self, moved: &[Relocation]) {
        let mut record = Vec::new();
        encode_relocations(moved, &mut record);
        let lsn = self.log.append(Event::Move(record));
        for r in moved {
            self.store.recover_allocated(r.page);
            self.model.insert(r.page, r.page_lsn);
        }
        self.store.install(moved, lsn, lsn);
    }

    pub fn free(&mut self, page: PageId) {
        self.model.remove(&page);
        let lsn = self.log.append(Event::Free(page));
        self.store.free_page(page, lsn, lsn);
        self.freed.insert(page, lsn);
    }

    pub fn sync_log(&mut self) {
        self.sync_log_to(self.log.events.len());
    }

    fn sync_log_to(&mut self, durable: usize) {
        self.log.durable = durable;
        let durable = self.log.durable();
        self.store.release(durable);
        for (page, _) in self.freed.extract_if(.., |_, lsn| *lsn < durable) {
            if !self.model.contains_key(&page) {
                self.store.release_page(page);
            }
        }
    }

    /// Writes the map as it is, although `meanwhile` goes on changing it.
    fn write_map(
        &mut self,
        below: Lsn,
        mut meanwhile: impl FnMut(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let Some(draft) = self.store.draft_map(below)? else { return Ok(()) };
        meanwhile(self)?;
        self.sync_log();
        self.store.write_map(draft, self.log.durable())
    }

    pub fn checkpoint(&mut self, clean: bool) -> Result<()> {
        self.write_map(Lsn(u64::MAX), |_| Ok(()))?;
        let durable = self.log.durable();
        let checkpoint = self.store.oldest_unpersisted().unwrap_or(durable).min(durable);
        let control = Control {
            database_id: 42,
            checkpoint,
            durable,
            clean: clean && checkpoint == durable,
            ..Control::default()
        };
        self.store.write_control(&control)?;
        self.log.checkpoint = checkpoint;
        Ok(())
    }

    /// One random action.
    pub fn step(&mut self, rng: &mut fastrand::Rng) -> Result<()> {
        match rng.u32(..16) {
            0..=5 => {
                let pages = some_pages(rng);
                self.write(&pages)
            }
            6 | 7 => {
                let page = some_page(rng);
                if self.model.contains_key(&page) {
                    self.free(page);
                }
                Ok(())
            }
            8 | 9 => {
                self.sync_log();
                Ok(())
            }
            10 | 11 => {
                self.sync_log_to(rng.usize(self.log.durable..=self.log.events.len()));
                Ok(())
            }
            12 => {
                let below = Lsn(rng.u64(..=self.log.durable().0 + STEP));
                let pages = some_pages(rng);
                self.write_map(below, |toy| toy.write(&pages))
            }
            13 => self.store.trim(),
            _ => self.checkpoint(false),
        }
    }
}

/// Runs `steps` random actions, to the first error.
pub fn run(toy: &mut Toy, rng: &mut fastrand::Rng, steps: usize) -> Result<()> {
    (0..steps).try_for_each(|_| toy.step(rng))
}

/// Number of disk operations of a whole run without faults.
pub fn operations(seed: u64, steps: usize) -> u64 {
    let disk = SimDisk::new(seed);
    let mut toy = Toy::create(&disk, seed).unwrap();
    run(&mut toy, &mut fastrand::Rng::with_seed(seed), steps).unwrap();
    let operations = disk.operations();
    toy.verify();
    operations
}

pub fn is_missing(error: &StoreError) -> bool {
    matches!(error, StoreError::Disk(e) if e.kind() == std::io::ErrorKind::NotFound)
}

//! Measures `write_batch` and `read_pages` on a real directory.
//!
//! `cargo run --release -p weir-store --example store_throughput -- DIRECTORY [MIB]`

use std::time::Instant;
use weir_os::{Backend, open_directory};
use weir_page::{Lsn, PAGE_SIZE, PageId};
use weir_store::{Compression, Control, PageCopy, Store, StoreOptions};

const BATCH: usize = 512;

/// A page as of a table: rows of small numbers and words, a third left free.
fn row_page(page: u32) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(u64::from(page));
    let mut bytes = vec![0; PAGE_SIZE];
    for row in bytes[64..PAGE_SIZE * 2 / 3].chunks_exact_mut(64) {
        row[..4].copy_from_slice(&page.to_le_bytes());
        rng.fill(&mut row[4..24]);
        row[24..40].copy_from_slice(b"a common phrase ");
    }
    bytes
}

fn measure(directory: &std::path::Path, compression: Compression, mib: usize) -> Result<(), Error> {
    let disk = open_directory(directory, Backend::Auto)?;
    let store = Store::create(disk, StoreOptions { compression }, &Control::default())?;
    let count = mib * (1 << 20) / PAGE_SIZE;
    let pages: Vec<Vec<u8>> = (1..=count).map(|page| row_page(page as u32)).collect();
    let mut ids: Vec<PageId> = (0..count).map(|_| store.allocate_page()).collect();
    let mut lsn = 0;
    for round in ["in order", "in random order", "in another", "in yet another"] {
        let (before, start) = (store.stats(), Instant::now());
        for batch in ids.chunks(BATCH) {
            lsn += 1;
            let image =
                |&page: &PageId| PageCopy::whole(page, Lsn(lsn), &pages[page.0 as usize - 1]);
            let images: Vec<_> = batch.iter().map(image).collect();
            let moved = store.write_batch(&images)?;
            store.install(&moved, Lsn(lsn), Lsn(lsn));
            store.release(Lsn(lsn + 1));
        }
        let rate = mib as f64 / start.elapsed().as_secs_f64();
        let s = store.stats();
        let write_kib =
            (s.page_bytes_out - before.page_bytes_out) / (s.writes - before.writes) / 1024;
        let (used_mib, file_mib) = (s.used_units / 256, s.file_bytes >> 20);
        println!(
            "{compression:?} write {round}: {rate:.0} MiB/s of pages, {write_kib} KiB a write, \
             {used_mib} of {file_mib} MiB used"
        );
        fastrand::Rng::with_seed(lsn).shuffle(&mut ids);
    }
    let batches = ids.chunks(BATCH);
    read(&store, batches, mib, "in random order")?;
    ids.sort();
    read(&store, ids.chunks(BATCH), mib, "in page order")
}

fn read(
    store: &Store,
    batches: std::slice::Chunks<'_, PageId>,
    mib: usize,
    how: &str,
) -> Result<(), Error> {
    let start = Instant::now();
    for batch in batches {
        let mut failed = None;
        store.read_pages(batch, &mut |_, read| failed = read.err().or(failed.take()));
        failed.map_or(Ok(()), Err)?;
    }
    let rate = mib as f64 / start.elapsed().as_secs_f64();
    println!("read {how}: {rate:.0} MiB/s of pages");
    Ok(())
}

type Error = Box<dyn std::error::Error>;

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let root = args.next().ok_or("which directory?")?;
    let mib = args.next().map_or(Ok(512), |mib| mib.parse())?;
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd(1)] {
        let directory = tempfile::tempdir_in(&root)?;
        measure(directory.path(), compression, mib)?;
    }
    Ok(())
}

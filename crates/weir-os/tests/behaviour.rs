//! What every form of disk does alike: one suite, run against each.

#![allow(clippy::unwrap_used)]

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use weir_os::throttle::{Profile, ThrottledDisk};
use weir_os::{
    AlignedBuf, BLOCK, Backend, Create, Disk, File, Io, MemoryDisk, Mode, SimClock, SimDisk,
    open_directory,
};

const BLOCK_BYTES: u64 = BLOCK as u64;

fn filled(len: usize, seed: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    fastrand::Rng::with_seed(seed).fill(&mut buf);
    buf
}

fn read(file: &dyn File, offset: u64, len: usize) -> Vec<u8> {
    file.read(offset, AlignedBuf::zeroed(len)).unwrap().to_vec()
}

fn names(disk: &dyn Disk) {
    assert!(disk.list().unwrap().is_empty());
    let missing = disk.open("a", Create::No, Mode::Cached).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("open of"), "{missing}");
    drop(disk.open("b", Create::New, Mode::Cached).unwrap());
    drop(disk.open("a", Create::IfAbsent, Mode::Direct).unwrap());
    drop(disk.open("a", Create::IfAbsent, Mode::Cached).unwrap());
    let existing = disk.open("b", Create::New, Mode::Cached).err().unwrap();
    assert_eq!(existing.kind(), ErrorKind::AlreadyExists);
    assert_eq!(disk.list().unwrap(), ["a", "b"]);
    disk.rename("a", "b").unwrap();
    assert_eq!(disk.list().unwrap(), ["b"]);
    disk.sync_dir().unwrap();
    disk.remove("b").unwrap();
    assert_eq!(disk.remove("b").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.rename("b", "c").unwrap_err().kind(), ErrorKind::NotFound);
    for wrong in ["", ".", "..", "a/b", "lock"] {
        let refused = disk.open(wrong, Create::IfAbsent, Mode::Cached).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{wrong}");
    }
    assert!(disk.list().unwrap().is_empty());
    assert!(!disk.describe().is_empty());
}

fn rename_keeps_content(disk: &dyn Disk) {
    let old = disk.open("old", Create::New, Mode::Cached).unwrap();
    old.write(0, filled(100, 1)).unwrap();
    disk.open("new", Create::New, Mode::Cached).unwrap().write(0, filled(100, 2)).unwrap();
    disk.rename("old", "new").unwrap();
    let new = disk.open("new", Create::No, Mode::Cached).unwrap();
    assert_eq!(read(&*new, 0, 100), filled(100, 1)[..]);
    old.write(0, filled(100, 3)).unwrap();
    assert_eq!(read(&*new, 0, 100), filled(100, 3)[..]);
    disk.remove("new").unwrap();
    assert_eq!(read(&*old, 0, 100), filled(100, 3)[..], "an open handle outlives the name");
}

fn bytes_of_any_length(disk: &dyn Disk) {
    let file = disk.open("cached", Create::New, Mode::Cached).unwrap();
    assert!(file.is_empty().unwrap());
    let mut model = vec![0; 20_000];
    let mut rng = fastrand::Rng::with_seed(3);
    file.set_len(model.len() as u64).unwrap();
    for round in 0..200 {
        let start = rng.usize(..model.len());
        let len = rng.usize(..=(model.len() - start).min(9000));
        let bytes = filled(len, round);
        model[start..start + len].copy_from_slice(&bytes);
        file.write(start as u64, bytes).unwrap();
        let start = rng.usize(..model.len());
        let len = rng.usize(..model.len() - start);
        assert_eq!(read(&*file, start as u64, len), model[start..start + len]);
    }
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), model.len() as u64);
    assert!(file.name().ends_with("cached"));
}

fn batches(disk: &dyn Disk) {
    for mode in [Mode::Direct, Mode::Cached] {
        let file = disk.open("batch", Create::IfAbsent, mode).unwrap();
        assert!(file.run(Vec::new()).unwrap().is_empty());
        // Longer than any queue, of mixed sizes.
        let offset = |i: u64| i * 4 * BLOCK_BYTES;
        let len = |i: u64| (1 + i as usize % 4) * BLOCK;
        let writes = (0..300).map(|i| Io::Write { offset: offset(i), buf: filled(len(i), i) });
        let back = file.run(writes.collect()).unwrap();
        assert_eq!(back.len(), 300);
        file.sync().unwrap();
        let reads =
            (0..300).rev().map(|i| Io::Read { offset: offset(i), buf: AlignedBuf::zeroed(len(i)) });
        let back = file.run(reads.collect()).unwrap();
        for (i, buf) in (0..300).rev().zip(back) {
            assert_eq!(buf[..], filled(len(i), i)[..], "operation {i}");
        }
    }
}

fn many_threads(disk: &dyn Disk) {
    let file = disk.open("shared", Create::New, Mode::Direct).unwrap();
    file.set_len(8 * 64 * BLOCK_BYTES).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let file = &file;
            scope.spawn(move || {
                let offset = |i: u64| (thread * 64 + i) * BLOCK_BYTES;
                for round in 0..4 {
                    let content = |i: u64| filled(BLOCK, thread << 32 | round << 16 | i);
                    let writes =
                        (0..64).map(|i| Io::Write { offset: offset(i), buf: content(i) }).collect();
                    file.run(writes).unwrap();
                    for i in 0..64 {
                        assert_eq!(read(&**file, offset(i), BLOCK), content(i)[..]);
                    }
                }
            });
        }
    });
}

fn ends_and_alignment(disk: &dyn Disk) {
    let file = disk.open("ends", Create::New, Mode::Direct).unwrap();
    file.write(0, filled(2 * BLOCK, 1)).unwrap();
    let past = file.read(BLOCK_BYTES, AlignedBuf::zeroed(2 * BLOCK)).unwrap_err();
    assert_eq!(past.kind(), ErrorKind::UnexpectedEof);
    assert_eq!((past.operation, past.offset), ("read", Some(BLOCK_BYTES)));
    let unaligned = file.write(512, filled(BLOCK, 1)).unwrap_err();
    assert_eq!(unaligned.kind(), ErrorKind::InvalidInput);
    let unaligned = file.write(0, filled(512, 1)).unwrap_err();
    assert_eq!(unaligned.kind(), ErrorKind::InvalidInput);
    // A file that ends within a block.
    file.set_len(BLOCK_BYTES + 100).unwrap();
    assert_eq!(read(&*file, 0, BLOCK), filled(2 * BLOCK, 1)[..BLOCK]);
    let short = file.read(BLOCK_BYTES, AlignedBuf::zeroed(BLOCK)).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    let short = file.read(0, AlignedBuf::zeroed(2 * BLOCK)).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::UnexpectedEof);
    // The first error in batch order is the one reported; the others are done.
    let read = |offset| Io::Read { offset, buf: AlignedBuf::zeroed(BLOCK) };
    let batch = vec![read(0), read(9 * BLOCK_BYTES), read(7 * BLOCK_BYTES)];
    assert_eq!(file.run(batch).unwrap_err().offset, Some(9 * BLOCK_BYTES));
}

fn lengths_and_holes(disk: &dyn Disk) {
    let file = disk.open("lengths", Create::New, Mode::Direct).unwrap();
    file.set_len(64 * BLOCK_BYTES).unwrap();
    assert_eq!(file.len().unwrap(), 64 * BLOCK_BYTES);
    assert_eq!(read(&*file, 0, 64 * BLOCK), vec![0; 64 * BLOCK]);
    file.write(0, filled(64 * BLOCK, 1)).unwrap();
    file.punch(3 * BLOCK_BYTES, 5 * BLOCK_BYTES).unwrap();
    assert_eq!(file.len().unwrap(), 64 * BLOCK_BYTES);
    let mut model = filled(64 * BLOCK, 1).to_vec();
    model[3 * BLOCK..8 * BLOCK].fill(0);
    assert_eq!(read(&*file, 0, 64 * BLOCK), model);
    file.punch(0, 0).unwrap();
    assert_eq!(file.punch(1, BLOCK_BYTES).unwrap_err().kind(), ErrorKind::InvalidInput);
    // What was cut off does not come back.
    file.set_len(10 * BLOCK_BYTES + 100).unwrap();
    file.set_len(12 * BLOCK_BYTES).unwrap();
    model.truncate(10 * BLOCK + 100);
    model.resize(12 * BLOCK, 0);
    assert_eq!(read(&*file, 0, 12 * BLOCK), model);
    file.sync().unwrap();
}

fn lock(disk: &dyn Disk) {
    let guard = disk.lock().unwrap();
    let refused = disk.lock().err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    assert!(refused.to_string().contains("in use"), "{refused}");
    assert!(disk.list().unwrap().is_empty(), "the lock is no file of the database");
    drop(guard);
    drop(disk.lock().unwrap());
    drop(disk.lock().unwrap());
}

fn counters(disk: &dyn Disk) {
    let file = disk.open("counted", Create::New, Mode::Direct).unwrap();
    let before = disk.stats();
    let write = |offset| Io::Write { offset, buf: filled(BLOCK, 1) };
    file.run(vec![write(0), write(BLOCK_BYTES)]).unwrap();
    file.read(0, AlignedBuf::zeroed(2 * BLOCK)).unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    let after = disk.stats();
    assert_eq!(after.writes - before.writes, 2);
    assert_eq!(after.write_bytes - before.write_bytes, 2 * BLOCK_BYTES);
    assert_eq!(after.reads - before.reads, 1);
    assert_eq!(after.read_bytes - before.read_bytes, 2 * BLOCK_BYTES);
    assert_eq!(after.syncs - before.syncs, 2);
}

type Test = fn(&dyn Disk);

/// Runs the suite; `make` returns an empty disk for each test.
fn suite(mut make: impl FnMut(&str) -> Arc<dyn Disk>) {
    let tests: [(&str, Test); 9] = [
        ("names", names),
        ("rename_keeps_content", rename_keeps_content),
        ("bytes_of_any_length", bytes_of_any_length),
        ("batches", batches),
        ("many_threads", many_threads),
        ("ends_and_alignment", ends_and_alignment),
        ("lengths_and_holes", lengths_and_holes),
        ("lock", lock),
        ("counters", counters),
    ];
    for (name, test) in tests {
        println!("{name}");
        test(&*make(name));
    }
}

fn on_directories(backend: Backend, root: &Path) {
    suite(|name| open_directory(root.join(name), backend).unwrap());
}

#[test]
fn simulated() {
    suite(|_| Arc::new(SimDisk::new(1)));
}

#[test]
fn in_memory() {
    suite(|_| Arc::new(MemoryDisk::new()));
    suite(|_| Arc::new(MemoryDisk::over(Arc::new(SimDisk::new(1))).unwrap()));
}

#[test]
fn throttled() {
    suite(|_| {
        let disk = Arc::new(SimDisk::new(1));
        Arc::new(ThrottledDisk::new(disk, Profile::TWO_DISKS, Arc::new(SimClock::new())))
    });
}

#[test]
fn threads() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    on_directories(Backend::Threads, root.path());
}

#[test]
fn threads_on_tmpfs() {
    let Ok(root) = tempfile::tempdir_in("/dev/shm") else { return };
    on_directories(Backend::Threads, root.path());
}

#[test]
fn io_uring() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    match open_directory(root.path().join("probe"), Backend::IoUring) {
        Ok(disk) => assert!(disk.describe().starts_with("io_uring"), "{}", disk.describe()),
        Err(refused) => return eprintln!("not run: {refused}"),
    }
    on_directories(Backend::IoUring, root.path());
}

#[test]
fn io_uring_on_tmpfs() {
    let Ok(root) = tempfile::tempdir_in("/dev/shm") else { return };
    if open_directory(root.path().join("probe"), Backend::IoUring).is_ok() {
        on_directories(Backend::IoUring, root.path());
    }
}

#[test]
fn the_best_of_the_kernel() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    on_directories(Backend::Auto, root.path());
}

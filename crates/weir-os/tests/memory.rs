//! The disk in memory: it does what the simulated one does, leaves what it is over alone, and gives
//! memory back.
#![allow(clippy::unwrap_used)]

use fastrand::Rng;
use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use weir_os::{
    AlignedBuf, BLOCK, Backend, Create, Disk, File, Io, MemoryDisk, Mode, SimDisk, open_directory,
    open_read_only,
};

const BLOCK_BYTES: u64 = BLOCK as u64;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn filled(len: usize, rng: &mut Rng) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    // Now and then zeros, which take no memory.
    if rng.u8(..4) > 0 {
        rng.fill(&mut buf);
    }
    buf
}

fn contents(disk: &dyn Disk) -> BTreeMap<String, Vec<u8>> {
    let read = |name: String| {
        let file = disk.open(&name, Create::No, Mode::Cached).unwrap();
        let len = file.len().unwrap() as usize;
        (name, file.read(0, AlignedBuf::zeroed(len)).unwrap().to_vec())
    };
    disk.list().unwrap().into_iter().map(read).collect()
}

/// What an operation came to; errors by their kind.
type Outcome = Result<Vec<Vec<u8>>, ErrorKind>;

fn outcome<T>(result: weir_os::Result<T>, of: impl FnOnce(T) -> Vec<Vec<u8>>) -> Outcome {
    result.map(of).map_err(|error| error.kind())
}

/// One disk, and the files that are open on it.
struct Side {
    disk: Arc<dyn Disk>,
    open: Vec<(Arc<dyn File>, Mode)>,
}

impl Side {
    fn new(disk: Arc<dyn Disk>) -> Side {
        Side { disk, open: Vec::new() }
    }

    /// The operation that the seed says.
    fn step(&mut self, rng: &mut Rng) -> Outcome {
        let name = NAMES[rng.usize(..NAMES.len())];
        let nothing = |()| Vec::new();
        match rng.u8(..10) {
            0 => {
                let create = [Create::No, Create::IfAbsent, Create::New][rng.usize(..3)];
                let mode = if rng.bool() { Mode::Direct } else { Mode::Cached };
                let opened = self.disk.open(name, create, mode);
                outcome(opened, |file| {
                    self.open.push((file, mode));
                    Vec::new()
                })
            }
            1 => outcome(self.disk.remove(name), nothing),
            2 => outcome(self.disk.rename(name, NAMES[rng.usize(..NAMES.len())]), nothing),
            3 => outcome(self.disk.list(), |names| names.into_iter().map(Vec::from).collect()),
            _ if self.open.is_empty() => Ok(Vec::new()),
            kind => {
                let (file, mode) = &self.open[rng.usize(..self.open.len())];
                on_file(&**file, *mode, kind, rng)
            }
        }
    }
}

fn on_file(file: &dyn File, mode: Mode, kind: u8, rng: &mut Rng) -> Outcome {
    let nothing = |()| Vec::new();
    let unit = if mode == Mode::Direct || rng.bool() { BLOCK } else { 1 };
    let most = 12 * BLOCK / unit;
    let (offset, len) = (rng.usize(..most) * unit, rng.usize(..=most / 3) * unit);
    let (offset, block) = (offset as u64, offset as u64 / BLOCK_BYTES * BLOCK_BYTES);
    match kind {
        4 => outcome(file.set_len(offset), nothing),
        5 => outcome(file.punch(block, len as u64 / BLOCK_BYTES * BLOCK_BYTES), nothing),
        6 => outcome(file.len(), |len| vec![len.to_le_bytes().to_vec()]),
        7 | 8 => {
            let write =
                |n: u64| Io::Write { offset: offset + n * len as u64, buf: filled(len, rng) };
            outcome(file.run((0..2).map(write).collect()), |_| Vec::new())
        }
        _ => {
            let read = |n: u64| {
                let buf = AlignedBuf::zeroed(len);
                Io::Read { offset: offset + n * len as u64, buf }
            };
            let read = file.run((0..2).map(read).collect());
            outcome(read, |bufs| bufs.iter().map(|buf| buf.to_vec()).collect())
        }
    }
}

/// Files of lengths in and between whole blocks.
fn with_files(disk: &dyn Disk, rng: &mut Rng) {
    for name in &NAMES[..3] {
        let file = disk.open(name, Create::New, Mode::Cached).unwrap();
        let blocks = rng.usize(..10) * BLOCK;
        let len = blocks + if rng.bool() { rng.usize(..BLOCK) } else { 0 };
        file.write(0, filled(len, rng)).unwrap();
    }
}

/// The same operations come to the same on `disk` and on a simulated one that began as it did.
fn compare(seed: u64, simulated: SimDisk, disk: &Arc<MemoryDisk>) {
    let mut rng = Rng::with_seed(seed);
    let (mut model, mut real) = (Side::new(Arc::new(simulated)), Side::new(disk.clone()));
    for step in 0..300 {
        let mut same = rng.clone();
        let expected = model.step(&mut rng);
        assert_eq!(real.step(&mut same), expected, "step {step} of seed {seed}");
    }
    assert_eq!(contents(&**disk), contents(&*model.disk), "seed {seed}");
}

#[test]
fn it_does_what_a_simulated_disk_does() {
    for seed in 0..200 {
        let disk = Arc::new(MemoryDisk::new());
        compare(seed, SimDisk::new(seed), &disk);
        disk.list().unwrap().iter().for_each(|name| disk.remove(name).unwrap());
        assert_eq!(disk.stats().memory_bytes, 0, "seed {seed}");
    }
}

#[test]
fn over_another_disk_it_does_the_same_and_leaves_that_alone() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for seed in 0..200 {
        let simulated = SimDisk::new(seed);
        with_files(&simulated, &mut Rng::with_seed(seed));
        let before = contents(&simulated);
        let disk = MemoryDisk::over(Arc::new(simulated.process_kill())).unwrap();
        compare(seed, simulated, &Arc::new(disk));

        let path = root.path().join(seed.to_string());
        let directory = open_directory(&path, Backend::Auto).unwrap();
        with_files(&*directory, &mut Rng::with_seed(seed));
        let simulated = SimDisk::new(seed);
        with_files(&simulated, &mut Rng::with_seed(seed));
        compare(seed, simulated, &Arc::new(open_read_only(&path, Backend::Auto).unwrap()));
        assert_eq!(contents(&*directory), before, "seed {seed}");
    }
}

/// Memory is taken by what is written and differs from zeros, once, and given back.
#[test]
fn memory_is_given_back() {
    let disk = MemoryDisk::new();
    let memory = || disk.stats().memory_bytes / BLOCK_BYTES;
    let file = disk.open("f", Create::New, Mode::Direct).unwrap();
    file.set_len(1 << 50).unwrap();
    file.write(1 << 40, AlignedBuf::zeroed(64 * BLOCK)).unwrap();
    assert_eq!(memory(), 0);
    let ones = || AlignedBuf::copy_of(&[1; 64 * BLOCK]);
    (0..3).for_each(|_| drop(file.write(1 << 40, ones()).unwrap()));
    assert_eq!(memory(), 64);
    file.punch((1 << 40) + BLOCK_BYTES, 10 * BLOCK_BYTES).unwrap();
    assert_eq!(memory(), 54);
    file.set_len((1 << 40) + 32 * BLOCK_BYTES).unwrap();
    assert_eq!(memory(), 22);
    disk.remove("f").unwrap();
    assert_eq!(memory(), 22, "it is open still");
    drop(file);
    assert_eq!(memory(), 0);
}

fn times(path: &Path) -> Vec<(SystemTime, Vec<u8>)> {
    let of = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    let mut paths: Vec<_> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let files = paths.iter().map(|file| (of(file), fs::read(file).unwrap()));
    [(of(path), Vec::new())].into_iter().chain(files).collect()
}

#[test]
fn a_directory_that_may_not_be_written_to_is_read() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = root.path();
    fs::write(path.join("f"), [1; 5000]).unwrap();
    fs::write(path.join("lock"), "").unwrap();
    let modes = |directory, file, lock| {
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
        set(&path.join("f"), file).unwrap();
        set(&path.join("lock"), lock).unwrap();
        set(path, directory).unwrap();
    };
    modes(0o500, 0o400, 0o000);
    let before = times_of_readable(path);
    let disk = open_read_only(path, Backend::Threads).unwrap();
    let file = disk.open("f", Create::No, Mode::Cached).unwrap();
    file.write(4999, AlignedBuf::copy_of(&[2; 2])).unwrap();
    assert_eq!(file.read(4998, AlignedBuf::zeroed(3)).unwrap()[..], [1, 2, 2]);
    disk.rename("f", "g").unwrap();
    assert_eq!(disk.list().unwrap(), ["g"]);
    drop((disk, file));
    assert_eq!(times_of_readable(path), before);
    modes(0o700, 0o600, 0o600);
}

/// But for the lock's file.
fn times_of_readable(path: &Path) -> (SystemTime, SystemTime, Vec<u8>) {
    let of = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    (of(path), of(&path.join("f")), fs::read(path.join("f")).unwrap())
}

#[test]
fn readers_share_a_directory_and_keep_writers_out() {
    for has_lock_file in [true, false] {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = root.path();
        let writer = || open_directory(path, Backend::Threads).unwrap();
        drop(writer().lock().unwrap());
        if !has_lock_file {
            fs::remove_file(path.join("lock")).unwrap();
        }
        let before = times(path);
        let read = || open_read_only(path, Backend::Threads);
        let readers = [read().unwrap(), read().unwrap()];
        drop(read().unwrap().lock().unwrap());
        assert_eq!(times(path), before);
        let refused = writer().lock().err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        let who = if has_lock_file { "others, who only read it" } else { "another process" };
        assert!(refused.to_string().contains(&format!("in use by {who}")), "{refused}");
        drop(readers);
        let guard = writer();
        let guard = guard.lock().unwrap();
        if !has_lock_file {
            fs::remove_file(path.join("lock")).unwrap();
        }
        let refused = read().err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("in use by"), "{refused}");
        drop(guard);
        read().unwrap();
    }
}

#[test]
fn there_has_to_be_something_to_read() {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let missing = open_read_only(root.path().join("not there"), Backend::Auto).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
    fs::write(root.path().join("f"), "").unwrap();
    let file = open_read_only(root.path().join("f"), Backend::Auto).err().unwrap();
    assert_eq!(file.kind(), ErrorKind::NotADirectory);
}

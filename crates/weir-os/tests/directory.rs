//! What only a real directory can show: the lock, refusals, full devices.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use weir_os::{AlignedBuf, BLOCK, Backend, Create, Io, Mode, open_directory};

fn root() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn the_lock_names_its_holder() {
    let root = root();
    let first = open_directory(root.path(), Backend::Threads).unwrap();
    let second = open_directory(root.path(), Backend::Threads).unwrap();
    let guard = first.lock().unwrap();
    let refused = second.lock().err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    let holder = format!("in use by process {}", std::process::id());
    assert!(refused.to_string().contains(&holder), "{refused}");
    assert_eq!(refused.file, root.path().join("lock").display().to_string());
    drop(guard);
    drop(second.lock().unwrap());
}

/// Two would have written to the same files.
#[test]
fn who_removes_the_lock_file_does_not_unlock_the_directory() {
    let root = root();
    let open = || open_directory(root.path(), Backend::Threads).unwrap();
    let (first, second) = (open(), open());
    let guard = first.lock().unwrap();
    fs::remove_file(root.path().join("lock")).unwrap();
    for _ in 0..2 {
        let refused = second.lock().err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        assert!(refused.to_string().contains("in use by another process"), "{refused}");
    }
    drop(guard);
    drop(second.lock().unwrap());
}

#[test]
fn a_stale_lock_file_is_no_obstacle() {
    let root = root();
    fs::write(root.path().join("lock"), "999999999 and a long rest\n").unwrap();
    let disk = open_directory(root.path(), Backend::Threads).unwrap();
    let _guard = disk.lock().unwrap();
    let text = fs::read_to_string(root.path().join("lock")).unwrap();
    assert_eq!(text, format!("{}\n", std::process::id()));
}

#[test]
fn directories_are_made_with_their_parents() {
    let root = root();
    let path = root.path().join("a/b/c");
    let disk = open_directory(&path, Backend::Threads).unwrap();
    drop(disk.open("f", Create::New, Mode::Direct).unwrap());
    assert!(path.join("f").is_file());
    fs::create_dir(path.join("not a file of ours")).unwrap();
    assert_eq!(disk.list().unwrap(), ["f"]);
    assert!(disk.describe().ends_with(&path.display().to_string()), "{}", disk.describe());
}

/// Files opened by path were made in what had taken the directory's place.
#[test]
fn a_directory_that_is_moved_keeps_its_files() {
    let root = root();
    let (path, moved) = (root.path().join("db"), root.path().join("moved"));
    let disk = open_directory(&path, Backend::Threads).unwrap();
    drop(disk.open("first", Create::New, Mode::Direct).unwrap());
    fs::rename(&path, &moved).unwrap();
    fs::create_dir(&path).unwrap();
    let _guard = disk.lock().unwrap();
    drop(disk.open("first", Create::No, Mode::Direct).unwrap());
    drop(disk.open("second", Create::New, Mode::Cached).unwrap());
    disk.rename("first", "third").unwrap();
    disk.remove("second").unwrap();
    disk.sync_dir().unwrap();
    assert!(disk.free_bytes().unwrap() > 0);
    assert_eq!(disk.list().unwrap(), ["third"]);
    assert!(moved.join("third").is_file() && moved.join("lock").is_file());
    assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
    let other = open_directory(&path, Backend::Threads).unwrap();
    let _guard = other.lock().unwrap();
    assert_eq!(other.list().unwrap(), [""; 0]);
}

#[test]
fn what_is_no_directory_is_refused() {
    let root = root();
    let path = root.path().join("f");
    fs::write(&path, "").unwrap();
    for wrong in [path.clone(), path.join("below")] {
        let refused = open_directory(&wrong, Backend::Threads).err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::NotADirectory, "{refused}");
        assert_eq!(refused.file, wrong.display().to_string());
    }
}

#[test]
fn a_new_directory_is_its_owners_alone() {
    let root = root();
    let path = root.path().join("new/er");
    open_directory(&path, Backend::Threads).unwrap();
    for made in [path.parent().unwrap(), &path] {
        assert_eq!(fs::metadata(made).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn a_directory_without_permission_is_refused() {
    let root = root();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let all_powerful = fs::write(root.path().join("probe"), "").is_ok();
    let opened = open_directory(root.path(), Backend::Threads);
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o700)).unwrap();
    // The superuser may write anywhere.
    if !all_powerful {
        let refused = opened.err().unwrap();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
    }
}

#[test]
fn growth_beyond_the_device_leaves_the_length_unchanged() {
    // A file system in memory knows at once that it can't take the size.
    let Ok(root) = tempfile::tempdir_in("/dev/shm") else { return };
    let disk = open_directory(root.path(), Backend::Threads).unwrap();
    let file = disk.open("f", Create::New, Mode::Direct).unwrap();
    file.write(0, AlignedBuf::copy_of(&[7; BLOCK])).unwrap();
    let refused = file.set_len(1 << 45).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::StorageFull, "{refused}");
    assert_eq!(file.len().unwrap(), BLOCK as u64);
    assert_eq!(file.read(0, AlignedBuf::zeroed(BLOCK)).unwrap()[..], [7; BLOCK]);
}

#[test]
fn growth_is_allocated_and_punching_gives_it_back() {
    use std::os::unix::fs::MetadataExt;
    let root = root();
    let disk = open_directory(root.path(), Backend::Threads).unwrap();
    let file = disk.open("f", Create::New, Mode::Direct).unwrap();
    let allocated = |path: &Path| fs::metadata(path).unwrap().blocks() * 512;
    let path = root.path().join("f");
    file.set_len(1 << 20).unwrap();
    // Some file systems allocate nothing ahead; then there is nothing to see here.
    if allocated(&path) >= 1 << 20 {
        file.punch(0, 1 << 19).unwrap();
        assert!(allocated(&path) <= (1 << 19) + 64 * 1024);
        assert_eq!(file.len().unwrap(), 1 << 20);
    }
}

#[test]
fn the_file_outlives_its_disk() {
    for backend in [Backend::Threads, Backend::Auto] {
        let root = root();
        let disk = open_directory(root.path(), backend).unwrap();
        let file = disk.open("f", Create::New, Mode::Direct).unwrap();
        drop(disk);
        let write = |i: u64| Io::Write {
            offset: i * BLOCK as u64,
            buf: AlignedBuf::copy_of(&[i as u8; BLOCK]),
        };
        file.run((0..40).map(write).collect()).unwrap();
        let last = file.read(39 * BLOCK as u64, AlignedBuf::zeroed(BLOCK)).unwrap();
        assert_eq!(last[..], [39; BLOCK]);
    }
}

#[test]
fn a_batch_with_an_error_reports_the_first_and_does_the_rest() {
    for backend in [Backend::Threads, Backend::Auto] {
        let root = root();
        let disk = open_directory(root.path(), backend).unwrap();
        let file = disk.open("f", Create::New, Mode::Direct).unwrap();
        let write = |i: u64| Io::Write {
            offset: i * BLOCK as u64,
            buf: AlignedBuf::copy_of(&[i as u8; BLOCK]),
        };
        let read = |i: u64| Io::Read { offset: i * BLOCK as u64, buf: AlignedBuf::zeroed(BLOCK) };
        let mut batch: Vec<Io> = (0..200).map(write).collect();
        batch.insert(100, read(5000));
        batch.insert(50, read(7000));
        let failed = file.run(batch).unwrap_err();
        assert_eq!((failed.operation, failed.offset), ("read", Some(7000 * BLOCK as u64)));
        assert_eq!(failed.kind(), ErrorKind::UnexpectedEof);
        for i in 0..200 {
            let found = file.read(i * BLOCK as u64, AlignedBuf::zeroed(BLOCK)).unwrap();
            assert_eq!(found[..], [i as u8; BLOCK]);
        }
    }
}

/// Where the file system tells what is in memory: tmpfs and overlayfs don't.
#[test]
fn what_is_forgotten_is_not_in_memory_any_more_and_not_lost() {
    const BLOCKS: usize = 64;
    let root = root();
    let disk = open_directory(root.path(), Backend::Threads).unwrap();
    let file = disk.open("log", Create::New, Mode::Cached).unwrap();
    let block = |n: usize| AlignedBuf::copy_of(&[n as u8; BLOCK]);
    for n in 0..BLOCKS {
        file.write((n * BLOCK) as u64, block(n)).unwrap();
    }
    let opened = fs::File::open(root.path().join("log")).unwrap();
    // Without reading ahead: a look at one block would bring in those behind it.
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::Random).unwrap();
    let in_memory = |n: usize| {
        let mut buf = [0; 1];
        let (buf, at) = (&mut [std::io::IoSliceMut::new(&mut buf)], (n * BLOCK) as u64);
        rustix::io::preadv2(&opened, buf, at, rustix::io::ReadWriteFlags::NOWAIT)
    };
    file.sync().unwrap();
    file.forget(0, (BLOCKS / 2 * BLOCK) as u64);
    if in_memory(0) != Err(rustix::io::Errno::OPNOTSUPP) {
        // To ask for a block begins to read it, which may be done before the answer.
        let left = (0..BLOCKS / 2).filter(|&n| in_memory(n).is_ok()).count();
        assert!(left < BLOCKS / 4, "{left} of {} blocks are in memory", BLOCKS / 2);
    }
    for n in 0..BLOCKS {
        let read = file.read((n * BLOCK) as u64, AlignedBuf::zeroed(BLOCK)).unwrap();
        assert_eq!(*read, *block(n));
    }
}

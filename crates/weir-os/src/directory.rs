//! A real directory: names, lengths, syncs and the lock; batches go to a [`Runner`].
//!
//! - Direct mode uses O_DIRECT where the file system takes it, and the page cache where it does
//!   not (tmpfs); the rules on alignment are the same in both cases.
//! - Growth allocates first and sets the length afterwards, so that a full device leaves the
//!   length unchanged.
//! - The directory is opened once and its files by their names in it: wherever it is moved to,
//!   whatever takes its place, and wherever the process goes.
//! - The lock is `flock` on the file `lock`, which holds the owner's process id as text. The
//!   kernel drops it with the process, so a stale file is no obstacle.
//! - Opened to be read, nothing in it changes: files are opened so, and the lock is shared. It
//!   needs no right to write, nor the file `lock`: the directory is locked itself, too.

use crate::pool::Pool;
use crate::stats::Counters;
use crate::uring::Rings;
use crate::{
    AlignedBuf, Create, Disk, DiskError, DiskStats, File, Io, LOCK_NAME, Mode, Result,
    check_aligned, check_name, check_punch,
};
use rustix::fs::{Access, Advice, AtFlags, FallocateFlags, FileType, OFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::Resource;
use std::fs::{self, TryLockError};
use std::io::{self, Read, Write};
use std::num::NonZero;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How a real directory runs its batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// io_uring where the kernel allows it, threads where it does not.
    Auto,
    /// io_uring or an error.
    IoUring,
    /// A pool of threads that read and write.
    Threads,
}

/// Runs the operations of a batch on an open file.
pub(crate) trait Runner: Send + Sync {
    /// All operations of the batch; each is whole when this returns `Ok`. On failure: the error of
    /// the first operation in batch order that failed, and its index.
    fn run(&self, file: &Arc<OpenFile>, batch: Vec<Io>) -> RunResult;
    /// For messages: `io_uring`, `threads`.
    fn name(&self) -> &'static str;
}

/// The buffers, or the first error and the operation it belongs to.
pub(crate) type RunResult = std::result::Result<Vec<AlignedBuf>, Failure>;

/// An operation that failed.
pub(crate) struct Failure {
    pub(crate) operation: &'static str,
    pub(crate) offset: u64,
    pub(crate) error: io::Error,
}

/// A file as the runners see it.
pub(crate) struct OpenFile {
    pub(crate) file: fs::File,
    pub(crate) direct: bool,
}

/// Opens a directory as a disk, creating it (and its parents) when it is absent.
///
/// # Errors
/// When the directory can't be created, read or written, and when io_uring is asked for and the
/// kernel refuses it.
///
/// ```
/// use weir_os::{AlignedBuf, Backend, Create, Mode, open_directory};
/// let dir = tempfile::tempdir()?;
/// let disk = open_directory(dir.path(), Backend::Auto)?;
/// let file = disk.open("data", Create::New, Mode::Direct)?;
/// file.write(0, AlignedBuf::copy_of(&[7; 4096]))?;
/// file.sync()?;
/// disk.sync_dir()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open_directory(path: impl AsRef<Path>, backend: Backend) -> Result<Arc<dyn Disk>> {
    let root = path.as_ref();
    create_durably(root)
        .map_err(|error| DiskError::new("create directory", &root.display().to_string(), error))?;
    Ok(Arc::new(Directory::open(root, backend, Use::Write)?))
}

/// As [`open_directory`], of one that is there and whose files are only read. Nothing may be asked
/// of it that changes anything. Its lock may be taken by several processes at once.
pub(crate) fn open_to_read(path: &Path, backend: Backend) -> Result<Arc<dyn Disk>> {
    Ok(Arc::new(Directory::open(path, backend, Use::Read)?))
}

/// The backend, and for messages why it is not the preferred one.
fn runner_for(
    backend: Backend,
    probe: impl FnOnce() -> io::Result<Rings>,
) -> io::Result<(Arc<dyn Runner>, String)> {
    let threads = |remark| Ok((Arc::new(Pool::new()) as Arc<dyn Runner>, remark));
    if backend == Backend::Threads {
        return threads(String::new());
    }
    match probe() {
        Ok(rings) => Ok((Arc::new(rings), String::new())),
        Err(error) if backend == Backend::Auto => threads(format!(" (io_uring: {error})")),
        Err(error) => Err(error),
    }
}

/// Whether files of the directory can be read past the page cache; tried on a file without name.
fn takes_direct(directory: &fs::File) -> bool {
    match open_in(directory, ".", OFlags::TMPFILE | OFlags::RDWR, 0o600) {
        Ok(file) => set_direct(&file).unwrap_or(false),
        // Such files are not for every file system; those that are not in memory have O_DIRECT.
        Err(_) => true,
    }
}

/// Creates the directory, its owner's alone, and makes its name durable; nothing when it exists.
fn create_durably(root: &Path) -> io::Result<()> {
    match fs::metadata(root) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(Errno::NOTDIR.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let parent = match root.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    create_durably(parent)?;
    match fs::DirBuilder::new().mode(0o700).create(root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::File::open(parent)?.sync_all()
}

struct Shared {
    runner: Arc<dyn Runner>,
    counters: Counters,
}

/// What a directory is opened for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Read,
    Write,
}

struct Directory {
    opened: fs::File,
    /// Where it was then, for messages.
    root: PathBuf,
    description: String,
    used: Use,
    /// Length of the longest file, when they were last listed for that.
    longest_bytes: AtomicU64,
    shared: Arc<Shared>,
}

impl Directory {
    fn open(root: &Path, backend: Backend, used: Use) -> Result<Directory> {
        let shown = root.display().to_string();
        let fail = |operation, error| DiskError::new(operation, &shown, error);
        let opened = fs::File::open(root).map_err(|error| fail("open", error))?;
        let (rights, named) = match used {
            Use::Read => (Access::READ_OK | Access::EXEC_OK, "access (read)"),
            Use::Write => {
                (Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK, "access (read and write)")
            }
        };
        rustix::fs::accessat(&opened, ".", rights, AtFlags::EACCESS)
            .map_err(|errno| fail(named, errno.into()))?;
        let (runner, remark) =
            runner_for(backend, Rings::probe).map_err(|error| fail("io_uring set-up", error))?;
        let cache = match used {
            Use::Read => "read-only",
            Use::Write if takes_direct(&opened) => "O_DIRECT",
            Use::Write => "page cache",
        };
        let description = format!("{}{remark}, {cache}: {shown}", runner.name());
        let shared = Arc::new(Shared { runner, counters: Counters::default() });
        let (root, longest_bytes) = (root.to_path_buf(), AtomicU64::new(0));
        Ok(Directory { opened, root, description, used, longest_bytes, shared })
    }

    fn shown(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    fn error<'a>(
        &'a self,
        operation: &'static str,
        name: &'a str,
    ) -> impl Fn(io::Error) -> DiskError + 'a {
        move |error| DiskError::new(operation, &self.shown(name), error)
    }

    /// Length of the longest file, in bytes. To list them takes a descriptor: if they can't be
    /// listed, what it was the last time.
    fn longest_file(&self) -> u64 {
        let length = |name: &String| {
            let found = rustix::fs::statat(&self.opened, &name[..], AtFlags::SYMLINK_NOFOLLOW);
            found.map_or(0, |found| found.st_size.unsigned_abs())
        };
        if let Ok(names) = self.list() {
            let longest = names.iter().map(length).max().unwrap_or(0);
            self.longest_bytes.store(longest, Ordering::Relaxed);
        }
        self.longest_bytes.load(Ordering::Relaxed)
    }

    fn open_file(&self, name: &str, create: Create, mode: Mode) -> io::Result<OpenFile> {
        check_name(name)?;
        let create = match create {
            Create::No => OFlags::empty(),
            Create::IfAbsent => OFlags::CREATE,
            Create::New => OFlags::CREATE | OFlags::EXCL,
        };
        let access = match self.used {
            Use::Read => OFlags::RDONLY,
            Use::Write => OFlags::RDWR,
        };
        let file = open_in(&self.opened, name, access | create, 0o666)?;
        // The mode is changed in place: one open call would have to be undone where the file
        // system creates the file and then refuses the flag.
        let direct = mode == Mode::Direct && set_direct(&file)?;
        Ok(OpenFile { file, direct })
    }
}

/// Opens what has this name in a directory; `mode` is for what is created.
fn open_in(directory: &fs::File, name: &str, flags: OFlags, mode: u32) -> io::Result<fs::File> {
    let mode = rustix::fs::Mode::from_raw_mode(mode);
    let open = || rustix::fs::openat(directory, name, flags | OFlags::CLOEXEC, mode);
    Ok(retry_on_intr(open)?.into())
}

/// Turns O_DIRECT on; `false` where the file system has none.
fn set_direct(file: &fs::File) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    match rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

impl Disk for Directory {
    fn open(&self, name: &str, create: Create, mode: Mode) -> Result<Arc<dyn File>> {
        let open = self.open_file(name, create, mode).map_err(self.error("open", name))?;
        Ok(Arc::new(RealFile {
            open: Arc::new(open),
            mode,
            path: self.shown(name),
            shared: self.shared.clone(),
        }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let remove = || Ok(rustix::fs::unlinkat(&self.opened, name, AtFlags::empty())?);
        check_name(name).and_then(|()| remove()).map_err(self.error("remove", name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let checked = check_name(from).and_then(|()| check_name(to));
        let rename = || Ok(rustix::fs::renameat(&self.opened, from, &self.opened, to)?);
        checked.and_then(|()| rename()).map_err(self.error("rename", from))
    }

    fn list(&self) -> Result<Vec<String>> {
        let names = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&self.opened)? {
                let entry = entry?;
                let kind = match entry.file_type() {
                    // Not every file system tells.
                    FileType::Unknown => {
                        let (name, flags) = (entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
                        let found = rustix::fs::statat(&self.opened, name, flags)?;
                        FileType::from_raw_mode(found.st_mode)
                    }
                    kind => kind,
                };
                let name = entry.file_name().to_string_lossy().into_owned();
                if name != LOCK_NAME && kind != FileType::Directory {
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        };
        names().map_err(self.error("list", ""))
    }

    fn sync_dir(&self) -> Result<()> {
        self.shared.counters.count_sync();
        self.opened.sync_all().map_err(self.error("sync", ""))
    }

    fn free_bytes(&self) -> Result<u64> {
        let found = rustix::fs::fstatvfs(&self.opened);
        let found = found.map_err(|errno| self.error("statvfs", "")(errno.into()))?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        match file_limit() {
            None => Ok(free),
            Some(limit) => Ok(free.min(limit.saturating_sub(self.longest_file()))),
        }
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        let lock: fn(&fs::File) -> io::Result<Vec<Locked>> = match self.used {
            Use::Read => share,
            Use::Write => |opened| Ok(vec![lock_file(opened)?, lock_directory(opened)?]),
        };
        Ok(Box::new(lock(&self.opened).map_err(self.error("lock", LOCK_NAME))?))
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn place(&self) -> String {
        self.root.display().to_string()
    }

    fn stats(&self) -> DiskStats {
        self.shared.counters.get()
    }
}

/// A locked file. Closing it would not do: a child that the process has just forked has it open,
/// too, until it runs its own program. Nor may such a child give the lock back.
#[derive(Debug)]
struct Locked {
    file: fs::File,
    owner: u32,
}

impl Locked {
    fn new(file: fs::File) -> Locked {
        Locked { file, owner: std::process::id() }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            let _ = self.file.unlock();
        }
    }
}

/// Takes the lock and writes the process id.
fn lock_file(directory: &fs::File) -> io::Result<Locked> {
    // Nobody's file is written that a link leads to.
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW;
    let mut file = open_in(directory, LOCK_NAME, flags, 0o640)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) if file.try_lock_shared().is_ok() => {
            drop(Locked::new(file));
            return Err(in_use("others, who only read it"));
        }
        Err(TryLockError::WouldBlock) => return Err(in_use(&holder_in(&mut file))),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // For messages only: a full device keeps nobody from opening what is there.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(Locked::new(file))
}

/// Who has locked the file, as it says itself: for messages only.
fn holder_in(file: &mut fs::File) -> String {
    let mut holder = String::new();
    let _ = file.read_to_string(&mut holder);
    match holder.trim() {
        "" => "another process".to_string(),
        pid if pid == std::process::id().to_string() => {
            format!("process {pid}, which is this one: a handle or a transaction of it is left")
        }
        pid => format!("process {pid}"),
    }
}

/// Takes the lock with others who only read: that of the file, unless there is none or it may not
/// be opened, and that of the directory, where the file system can do it. One of them at least.
fn share(directory: &fs::File) -> io::Result<Vec<Locked>> {
    let mut locked = Vec::new();
    match open_in(directory, LOCK_NAME, OFlags::RDONLY | OFlags::NOFOLLOW, 0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
        Err(error) => return Err(error),
        Ok(mut file) => match file.try_lock_shared() {
            Ok(()) => locked.push(Locked::new(file)),
            Err(TryLockError::WouldBlock) => return Err(in_use(&holder_in(&mut file))),
            Err(TryLockError::Error(error)) => return Err(error),
        },
    }
    let own = open_to_lock(directory)?;
    match own.try_lock_shared() {
        Ok(()) => locked.push(Locked::new(own)),
        Err(TryLockError::WouldBlock) => return Err(in_use("another process")),
        Err(TryLockError::Error(error)) if locked.is_empty() => return Err(error),
        Err(TryLockError::Error(_)) => {}
    }
    Ok(locked)
}

/// The directory once more: the lock is of this opening, and ends with it.
fn open_to_lock(directory: &fs::File) -> io::Result<fs::File> {
    open_in(directory, ".", OFlags::RDONLY | OFlags::DIRECTORY, 0)
}

/// Locks the directory as well: the file is removed by who takes it for one that was left behind.
/// Not every file system can do it.
fn lock_directory(directory: &fs::File) -> io::Result<Locked> {
    let own = open_to_lock(directory)?;
    match own.try_lock() {
        Err(TryLockError::WouldBlock) => Err(in_use("another process")),
        _ => Ok(Locked::new(own)),
    }
}

fn in_use(holder: &str) -> io::Error {
    let reason = format!("the directory is in use by {holder}; stop it or use another");
    io::Error::new(io::ErrorKind::WouldBlock, reason)
}

struct RealFile {
    open: Arc<OpenFile>,
    mode: Mode,
    path: String,
    shared: Arc<Shared>,
}

impl RealFile {
    fn fail(&self, operation: &'static str, error: io::Error) -> DiskError {
        DiskError::new(operation, &self.path, error)
    }
}

impl File for RealFile {
    fn run(&self, batch: Vec<Io>) -> Result<Vec<AlignedBuf>> {
        for op in &batch {
            check_aligned(op, self.mode).map_err(|e| self.fail(op.name(), e).at(op.offset()))?;
        }
        self.shared.counters.count(&batch);
        let done = self.shared.runner.run(&self.open, batch);
        done.map_err(|failure| self.fail(failure.operation, failure.error).at(failure.offset))
    }

    fn len(&self) -> Result<u64> {
        let found = self.open.file.metadata();
        Ok(found.map_err(|error| self.fail("len", error))?.len())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let old = self.len()?;
        let allocated = match bytes > old {
            true => may_be_so_long(bytes).and_then(|()| allocate(&self.open.file, old, bytes)),
            false => Ok(()),
        };
        allocated
            .and_then(|()| self.open.file.set_len(bytes))
            .map_err(|error| self.fail("set_len", error).at(bytes))
    }

    fn punch(&self, offset: u64, bytes: u64) -> Result<()> {
        let fail = |error| self.fail("punch", error).at(offset);
        check_punch(offset, bytes).map_err(fail)?;
        if bytes == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let file = &self.open.file;
        let punch = || rustix::fs::fallocate(file, flags, offset, bytes);
        where_supported(retry_on_intr(punch)).map_err(fail)
    }

    fn sync(&self) -> Result<()> {
        self.shared.counters.count_sync();
        self.open.file.sync_data().map_err(|error| self.fail("sync", error))
    }

    fn forget(&self, offset: u64, bytes: u64) {
        // Without a length it would be all that follows.
        let Some(bytes) = NonZero::new(bytes) else { return };
        // Whether advice is taken is the system's business.
        let _ = rustix::fs::fadvise(&self.open.file, offset, Some(bytes), Advice::DontNeed);
    }

    fn name(&self) -> &str {
        &self.path
    }

    fn renamed(&self, name: &str) -> Arc<dyn File> {
        let path = Path::new(&self.path).with_file_name(name).display().to_string();
        let (open, shared) = (self.open.clone(), self.shared.clone());
        Arc::new(RealFile { open, mode: self.mode, path, shared })
    }
}

/// Longest file that this process may make, in bytes, if there is a limit (`ulimit -f`).
fn file_limit() -> Option<u64> {
    rustix::process::getrlimit(Resource::Fsize).current
}

/// Who makes a file longer than that is sent a signal, which ends the process unless it is ignored.
fn may_be_so_long(bytes: u64) -> io::Result<()> {
    match file_limit() {
        Some(limit) if bytes > limit => Err(Errno::FBIG.into()),
        _ => Ok(()),
    }
}

/// Allocates space past the end without changing the length; nothing where the file system can't.
fn allocate(file: &fs::File, old: u64, new: u64) -> io::Result<()> {
    let flags = FallocateFlags::KEEP_SIZE;
    let grow = || rustix::fs::fallocate(file, flags, old, new - old);
    where_supported(retry_on_intr(grow)).inspect_err(|_| {
        // Give back what was allocated before the device was full. The first error counts.
        let _ = file.set_len(old);
    })
}

/// What a file system has no call for is left undone: space is allocated as it is written, and
/// kept.
fn where_supported(done: rustix::io::Result<()>) -> io::Result<()> {
    match done {
        Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_punches_no_holes_is_no_error() {
        for errno in [Errno::OPNOTSUPP, Errno::NOSYS] {
            assert!(where_supported(Err(errno)).is_ok());
        }
        for errno in [Errno::IO, Errno::NOSPC] {
            let failed = where_supported(Err(errno)).unwrap_err();
            assert_eq!(failed.raw_os_error(), Some(errno.raw_os_error()));
        }
    }

    /// As on a full device: a pipe can't be cut either.
    #[test]
    fn a_lock_in_which_nothing_can_be_noted_is_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let (kind, rights) = (FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        let opened = fs::File::open(dir.path()).unwrap();
        rustix::fs::mknodat(&opened, LOCK_NAME, kind, rights, 0).unwrap();
        lock_file(&opened).unwrap();
    }

    #[test]
    fn a_lock_that_is_given_back_is_free_whoever_has_inherited_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let opened = fs::File::open(dir.path()).unwrap();
        for lock in [lock_file, lock_directory] {
            let locked = lock(&opened).unwrap();
            let _inherited = locked.file.try_clone().unwrap();
            assert!(lock(&opened).is_err());
            drop(locked);
            lock(&opened).unwrap();
        }
    }

    /// The child of a fork has the lock's file, and a copy of who holds it.
    #[test]
    fn a_lock_is_given_back_by_the_process_that_took_it_alone() {
        let dir = tempfile::tempdir().unwrap();
        let opened = fs::File::open(dir.path()).unwrap();
        for lock in [lock_file, lock_directory] {
            let locked = lock(&opened).unwrap();
            let file = locked.file.try_clone().unwrap();
            drop(Locked { file, owner: locked.owner + 1 });
            assert!(lock(&opened).is_err());
        }
    }

    #[test]
    fn a_lock_that_is_a_link_leaves_alone_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "something").unwrap();
        std::os::unix::fs::symlink(&other, dir.path().join(LOCK_NAME)).unwrap();
        let error = lock_file(&fs::File::open(dir.path()).unwrap()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        assert_eq!(fs::read_to_string(&other).unwrap(), "something");
    }

    #[test]
    fn a_kernel_without_io_uring_gets_threads() {
        for errno in [Errno::PERM, Errno::NOSYS, Errno::NOMEM, Errno::ACCESS] {
            let (runner, remark) = runner_for(Backend::Auto, || Err(errno.into())).unwrap();
            assert_eq!(runner.name(), "threads");
            assert!(remark.starts_with(" (io_uring: "), "{remark}");
            let refused = runner_for(Backend::IoUring, || Err(errno.into())).err().unwrap();
            assert_eq!(refused.raw_os_error(), Some(errno.raw_os_error()));
        }
        let unasked = || panic!("threads need no io_uring");
        assert_eq!(runner_for(Backend::Threads, unasked).unwrap().0.name(), "threads");
    }
}

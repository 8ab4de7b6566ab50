//! A real directory: names, lengths, syncs and the lock; batches go to a [`Runner`].
//!
//! - Direct mode uses O_DIRECT where the file system takes it, and the page cache where it does
//!   not (tmpfs); the rules on alignment are the same in both cases.
//! - Growth allocates first and sets the length afterwards, so that a full device leaves the
//!   length unchanged.
//! - The lock is `flock` on the file `lock`, which holds the owner's process id as text. The
//!   kernel drops it with the process, so a stale file is no obstacle.

use crate::pool::Pool;
use crate::stats::Counters;
use crate::uring::Rings;
use crate::{
    AlignedBuf, Create, Disk, DiskError, DiskStats, File, Io, LOCK_NAME, Mode, Result,
    check_aligned, check_name, check_punch,
};
use rustix::fs::{Access, AtFlags, CWD, FallocateFlags, OFlags};
use rustix::io::Errno;
use std::fs::{self, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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
    let shown = root.display().to_string();
    let fail = |operation, error| DiskError::new(operation, &shown, 0, error);
    create_durably(root).map_err(|error| fail("create directory", error))?;
    let rights = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    rustix::fs::accessat(CWD, root, rights, AtFlags::EACCESS)
        .map_err(|errno| fail("access (read and write)", errno.into()))?;
    let (runner, remark) =
        runner_for(backend, Rings::probe).map_err(|error| fail("io_uring set-up", error))?;
    let cache = if takes_direct(root) { "O_DIRECT" } else { "page cache" };
    let description = format!("{}{remark}, {cache}: {shown}", runner.name());
    let shared = Arc::new(Shared { runner, counters: Counters::default() });
    Ok(Arc::new(Directory { root: root.to_path_buf(), description, shared }))
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
fn takes_direct(root: &Path) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::open(root, flags, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR) {
        Ok(file) => set_direct(&file.into()).unwrap_or(false),
        // Such files are not for every file system; those that are not in memory have O_DIRECT.
        Err(_) => true,
    }
}

/// Creates the directory and makes its name durable; nothing when it exists.
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
    match fs::create_dir(root) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::File::open(parent)?.sync_all()
}

struct Shared {
    runner: Arc<dyn Runner>,
    counters: Counters,
}

struct Directory {
    root: PathBuf,
    description: String,
    shared: Arc<Shared>,
}

impl Directory {
    fn shown(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }

    fn error<'a>(
        &'a self,
        operation: &'static str,
        name: &'a str,
    ) -> impl Fn(io::Error) -> DiskError + 'a {
        move |error| DiskError::new(operation, &self.shown(name), 0, error)
    }

    fn open_file(&self, name: &str, create: Create, mode: Mode) -> io::Result<OpenFile> {
        check_name(name)?;
        let path = self.root.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        match create {
            Create::No => {}
            Create::IfAbsent => {
                options.create(true);
            }
            Create::New => {
                options.create_new(true);
            }
        }
        let file = options.open(&path)?;
        // The mode is changed in place: one open call would have to be undone where the file
        // system creates the file and then refuses the flag.
        let direct = mode == Mode::Direct && set_direct(&file)?;
        Ok(OpenFile { file, direct })
    }
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
        let removed = check_name(name).and_then(|()| fs::remove_file(self.root.join(name)));
        removed.map_err(self.error("remove", name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let checked = check_name(from).and_then(|()| check_name(to));
        let renamed = checked.and_then(|()| fs::rename(self.root.join(from), self.root.join(to)));
        renamed.map_err(self.error("rename", from))
    }

    fn list(&self) -> Result<Vec<String>> {
        let names = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&self.root)? {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                if name != LOCK_NAME && !entry.file_type()?.is_dir() {
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
        let synced = fs::File::open(&self.root).and_then(|dir| dir.sync_all());
        synced.map_err(self.error("sync", ""))
    }

    fn free_bytes(&self) -> Result<u64> {
        let found = rustix::fs::statvfs(&self.root);
        let found = found.map_err(|errno| self.error("statvfs", "")(errno.into()))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        let locked = lock_file(&self.root.join(LOCK_NAME))
            .and_then(|file| Ok((file, lock_directory(&self.root)?)));
        Ok(Box::new(locked.map_err(self.error("lock", LOCK_NAME))?))
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn stats(&self) -> DiskStats {
        self.shared.counters.get()
    }
}

/// Takes the lock and writes the process id; the lock lives as long as the file is open.
fn lock_file(path: &Path) -> io::Result<fs::File> {
    let mut options = OpenOptions::new();
    let mut file =
        options.read(true).write(true).create(true).truncate(false).mode(0o640).open(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let holder = fs::read_to_string(path).unwrap_or_default();
            return Err(match holder.trim() {
                "" => in_use("another process"),
                pid => in_use(&format!("process {pid}")),
            });
        }
        Err(TryLockError::Error(error)) => return Err(error),
    }
    // For messages only: a full device keeps nobody from opening what is there.
    let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Locks the directory as well: the file is removed by who takes it for one that was left behind. Not every file
/// system can do it.
fn lock_directory(path: &Path) -> io::Result<fs::File> {
    let directory = fs::File::open(path)?;
    match directory.try_lock() {
        Err(TryLockError::WouldBlock) => Err(in_use("another process")),
        _ => Ok(directory),
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
    fn fail(&self, operation: &'static str, offset: u64, error: io::Error) -> DiskError {
        DiskError::new(operation, &self.path, offset, error)
    }
}

impl File for RealFile {
    fn run(&self, batch: Vec<Io>) -> Result<Vec<AlignedBuf>> {
        for op in &batch {
            check_aligned(op, self.mode).map_err(|e| self.fail(op.name(), op.offset(), e))?;
        }
        self.shared.counters.count(&batch);
        let done = self.shared.runner.run(&self.open, batch);
        done.map_err(|failure| self.fail(failure.operation, failure.offset, failure.error))
    }

    fn len(&self) -> Result<u64> {
        let found = self.open.file.metadata();
        Ok(found.map_err(|error| self.fail("len", 0, error))?.len())
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        let old = self.len()?;
        let allocated = if bytes > old { allocate(&self.open.file, old, bytes) } else { Ok(()) };
        allocated
            .and_then(|()| self.open.file.set_len(bytes))
            .map_err(|error| self.fail("set_len", bytes, error))
    }

    fn punch(&self, offset: u64, bytes: u64) -> Result<()> {
        let fail = |error| self.fail("punch", offset, error);
        check_punch(offset, bytes).map_err(fail)?;
        if bytes == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let file = &self.open.file;
        let punch = || rustix::fs::fallocate(file, flags, offset, bytes);
        where_supported(rustix::io::retry_on_intr(punch)).map_err(fail)
    }

    fn sync(&self) -> Result<()> {
        self.shared.counters.count_sync();
        self.open.file.sync_data().map_err(|error| self.fail("sync", 0, error))
    }

    fn name(&self) -> &str {
        &self.path
    }
}

/// Allocates space past the end without changing the length; nothing where the file system can't.
fn allocate(file: &fs::File, old: u64, new: u64) -> io::Result<()> {
    let flags = FallocateFlags::KEEP_SIZE;
    let grow = || rustix::fs::fallocate(file, flags, old, new - old);
    where_supported(rustix::io::retry_on_intr(grow)).inspect_err(|_| {
        // Give back what was allocated before the device was full. The first error counts.
        let _ = file.set_len(old);
    })
}

/// What a file system has no call for is left undone: space is allocated as it is written, and kept.
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
        let path = dir.path().join(LOCK_NAME);
        let (kind, rights) =
            (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR);
        rustix::fs::mknodat(CWD, &path, kind, rights, 0).unwrap();
        lock_file(&path).unwrap();
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

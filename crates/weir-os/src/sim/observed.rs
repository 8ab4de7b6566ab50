//! A disk of which somebody is told what happens: for tests that hold an operation up, or refuse
//! it.

use super::SimDisk;
use crate::{AlignedBuf, Create, Disk, DiskError, File, Io, Mode, Result};
use std::io;
use std::sync::Arc;

/// An operation on a file, or on the names of files.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// Name of the file; empty for those of the directory.
    pub file: &'a str,
    /// As in [`DiskError::operation`]; `read` and `write` are of whole batches.
    pub name: &'static str,
    /// Whether it has been done, in whichever way. Otherwise it is about to be.
    pub is_done: bool,
}

/// Is told of an operation before it, which an error refuses, and after it.
type Observer = dyn Fn(&Operation<'_>) -> io::Result<()> + Send + Sync;

/// The disk.
pub struct ObservedDisk {
    disk: SimDisk,
    observer: Arc<Observer>,
}

impl ObservedDisk {
    /// One that tells `observer` what happens on `disk`, without any lock of that.
    pub fn new(
        disk: SimDisk,
        observer: impl Fn(&Operation<'_>) -> io::Result<()> + Send + Sync + 'static,
    ) -> ObservedDisk {
        ObservedDisk { disk, observer: Arc::new(observer) }
    }

    fn observe<T>(
        &self,
        file: &str,
        name: &'static str,
        run: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        observe(&*self.observer, file, name, run)
    }
}

fn observe<T>(
    observer: &Observer,
    file: &str,
    name: &'static str,
    run: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let tell = |is_done| {
        let told = observer(&Operation { file, name, is_done });
        told.map_err(|error| DiskError::new(name, &SimDisk::path(file), error))
    };
    tell(false)?;
    let done = run();
    tell(true)?;
    done
}

impl Disk for ObservedDisk {
    fn open(&self, name: &str, create: Create, mode: Mode) -> Result<Arc<dyn File>> {
        let file = self.observe(name, "open", || self.disk.open(name, create, mode))?;
        let observer = self.observer.clone();
        Ok(Arc::new(ObservedFile { file, name: name.to_string(), observer }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.observe(name, "remove", || self.disk.remove(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.observe(from, "rename", || self.disk.rename(from, to))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.observe("", "list", || self.disk.list())
    }

    fn sync_dir(&self) -> Result<()> {
        self.observe("", "sync", || self.disk.sync_dir())
    }

    fn free_bytes(&self) -> Result<u64> {
        self.disk.free_bytes()
    }

    fn lock(&self) -> Result<Box<dyn Send + Sync>> {
        self.disk.lock()
    }

    fn describe(&self) -> String {
        self.disk.describe()
    }

    fn place(&self) -> String {
        self.disk.place()
    }
}

struct ObservedFile {
    file: Arc<dyn File>,
    name: String,
    observer: Arc<Observer>,
}

impl ObservedFile {
    fn observe<T>(&self, name: &'static str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        observe(&*self.observer, &self.name, name, run)
    }
}

impl File for ObservedFile {
    fn run(&self, batch: Vec<Io>) -> Result<Vec<AlignedBuf>> {
        match batch.first().map(Io::name) {
            Some(name) => self.observe(name, || self.file.run(batch)),
            None => Ok(Vec::new()),
        }
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> Result<()> {
        self.observe("set_len", || self.file.set_len(bytes))
    }

    fn punch(&self, offset: u64, bytes: u64) -> Result<()> {
        self.observe("punch", || self.file.punch(offset, bytes))
    }

    fn sync(&self) -> Result<()> {
        self.observe("sync", || self.file.sync())
    }

    fn forget(&self, offset: u64, bytes: u64) {
        self.file.forget(offset, bytes);
    }

    fn name(&self) -> &str {
        self.file.name()
    }

    fn renamed(&self, name: &str) -> Arc<dyn File> {
        let (file, observer) = (self.file.renamed(name), self.observer.clone());
        Arc::new(ObservedFile { file, name: name.to_string(), observer })
    }
}

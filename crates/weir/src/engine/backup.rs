//! Backups of a database that is in use.

use super::error::{Error, Result};
use super::{Database, Inner};
use crate::storage::{self, Copying, Storage};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use weir_os::{Disk, open_directory};

impl Database {
    /// Copies the database to a new directory while it is in use. The copy is a database like any
    /// other, as this one is at a moment soon after the call: what was committed before is in it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let (here, there) = (dir.path().join("here"), dir.path().join("there"));
    /// # use weir::{Database, Options};
    /// let db = Database::open(&here, Options::default().memory_bytes(8 << 20))?;
    /// db.backup(&there)?;
    /// let copy = Database::open(&there, Options::default().memory_bytes(8 << 20))?;
    /// assert_eq!(copy.table_names(), db.table_names());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Database::begin_backup`] and [`Backup::step`]; what was copied is removed.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<BackupProgress> {
        self.begin_backup(to)?.finish()
    }

    /// Settles the moment of a backup: what has been committed before the call is in it, what
    /// begins to be committed after the return isn't. [`Backup::step`] then makes it. `to` is an
    /// empty directory, or is made. One backup at a time.
    ///
    /// Until it has ended, the data file grows by what is written meanwhile, for nothing is written
    /// over what is to be copied. The redo log, which is copied first, is used again only where it
    /// has been: writers wait for that when it is full. So call `step` soon, and not in a thread
    /// that writes in between. A backup that keeps others from writing for ten seconds is given up.
    ///
    /// # Errors
    /// [`Error::BackupRunning`]; [`Error::BackupTarget`] when there is something in `to`; of files,
    /// on one side or the other.
    pub fn begin_backup(&self, to: impl AsRef<Path>) -> Result<Backup> {
        let to = to.as_ref();
        self.begin_backup_named(
            || open_directory(to, self.0.options.backend),
            &to.display().to_string(),
        )
    }

    /// As [`Database::begin_backup`], to any disk.
    ///
    /// # Errors
    /// As [`Database::begin_backup`].
    pub fn begin_backup_on(&self, to: Arc<dyn Disk>) -> Result<Backup> {
        let name = to.describe();
        self.begin_backup_named(|| Ok(to), &name)
    }

    fn begin_backup_named(
        &self,
        open: impl FnOnce() -> weir_os::Result<Arc<dyn Disk>>,
        name: &str,
    ) -> Result<Backup> {
        let storage = self.0.running()?;
        if self.0.backing_up.swap(true, AcqRel) {
            return Err(Error::BackupRunning);
        }
        let turn = Turn(self.0.clone());
        let begun = open().map_err(Error::from).and_then(|to| Begun::new(turn, to, name));
        let begun = begun.inspect_err(|_| {
            storage.figures.backups_failed.fetch_add(1, Relaxed);
        })?;
        let copying = storage.begin_backup(begun.to.clone())?;
        let backup = Backup { copying, begun };
        backup.tell();
        Ok(backup)
    }
}

/// How far a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupProgress {
    /// Bytes of files that are done with.
    pub bytes_done: u64,
    /// Bytes of files that there are; free space in them is passed over.
    pub bytes_total: u64,
}

/// A backup whose moment is settled: see [`Database::begin_backup`]. Dropped before it is done, it
/// is given up, and what was copied is removed. Until it is dropped the database isn't closed.
#[must_use = "a backup is made by `step` or `finish`"]
pub struct Backup {
    copying: Copying,
    begun: Begun,
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backup").field("progress", &self.progress()).finish_non_exhaustive()
    }
}

impl Backup {
    /// Copies some more, some MiB at most; whether something is left. Once nothing is, the copy is
    /// a database, durably.
    ///
    /// # Errors
    /// Of files, on one side or the other; when a page is damaged ([`Error::is_damaged_page`]);
    /// when this database has stopped or been closed, or needs the space that is held back for the
    /// backup, on its device or in its log. The backup is then good for nothing, and can only be
    /// dropped.
    pub fn step(&mut self) -> Result<bool> {
        let storage = self.begun.storage();
        storage.backup_step(&mut self.copying)?;
        self.tell();
        self.begun.is_done = self.copying.is_done();
        Ok(!self.begun.is_done)
    }

    fn tell(&self) {
        let BackupProgress { bytes_done, bytes_total } = self.progress();
        let left = &self.begun.storage().figures.backup_bytes_left;
        left.store(bytes_total - bytes_done, Relaxed);
    }

    /// How far it is.
    pub fn progress(&self) -> BackupProgress {
        let (bytes_done, bytes_total) = self.copying.bytes();
        BackupProgress { bytes_done, bytes_total }
    }

    /// Copies all that is left; how much it was in all.
    ///
    /// # Errors
    /// As [`Backup::step`].
    pub fn finish(mut self) -> Result<BackupProgress> {
        while self.step()? {}
        Ok(self.progress())
    }
}

/// Whose turn it is: another backup can begin when it is dropped.
struct Turn(Arc<Inner>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.backing_up.store(false, Release);
    }
}

/// What is to be undone of a backup, however it ends.
struct Begun {
    to: Arc<dyn Disk>,
    turn: Turn,
    /// Whether the copy is a database.
    is_done: bool,
    /// Nobody opens what is half made.
    _lock: Box<dyn Send + Sync>,
}

impl Begun {
    fn new(turn: Turn, to: Arc<dyn Disk>, name: &str) -> Result<Begun> {
        let check = || match to.list()?.is_empty() {
            true => Ok(()),
            false => Err(Error::BackupTarget { directory: name.to_string() }),
        };
        // A lock is a file: a directory that is in use for something else gets none.
        check()?;
        let lock = to.lock()?;
        check()?;
        Ok(Begun { to, turn, is_done: false, _lock: lock })
    }

    fn storage(&self) -> &Storage {
        &self.turn.0.transactions.storage
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let storage = self.storage();
        storage.end_backup();
        let figures = &storage.figures;
        figures.backup_bytes_left.store(0, Relaxed);
        let ended = if self.is_done { &figures.backups_made } else { &figures.backups_failed };
        ended.fetch_add(1, Relaxed);
        if !self.is_done {
            discard(&*self.to);
        }
    }
}

/// Removes what was copied, as far as it can be, and so that nobody takes it for a database.
fn discard(to: &dyn Disk) {
    let names = to.list().unwrap_or_default();
    let others = names.iter().map(String::as_str).filter(|name| storage::is_file(name));
    let in_order = std::iter::once(storage::CONTROL).chain(others).chain(["lock"]);
    in_order.for_each(|name| drop(to.remove(name)));
}

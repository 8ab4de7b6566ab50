//! What can go wrong below transactions, and whether it may go away by itself.

use std::io::ErrorKind;
use std::sync::Arc;
use weir_os::DiskError;
use weir_page::{Lsn, PageId};
use weir_redo::RedoError;
use weir_store::StoreError;

/// What stops an operation that is nobody's mistake: the world, or a bug in what is stored.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Fault {
    /// A file operation failed.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The page store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log.
    #[error(transparent)]
    Redo(#[from] RedoError),
    /// A page's contents make no sense though its checksum is right.
    #[error("page {page}: {what}")]
    Page {
        /// The page.
        page: PageId,
        /// What is wrong.
        what: String,
    },
    /// A log record makes no sense though its checksum is right.
    #[error("redo record at LSN {lsn}: {what}")]
    Record {
        /// The group.
        lsn: Lsn,
        /// What is wrong.
        what: String,
    },
    /// The log is full and the checkpoint can't move.
    #[error("the redo log ({capacity_bytes} bytes) is too small: its checkpoint can't move")]
    LogFull {
        /// Its capacity.
        capacity_bytes: u64,
    },
    /// Every frame is in use by those who wait for one.
    #[error("all {frames} frames are in use at once: give the database more memory")]
    NoFrame {
        /// Their number.
        frames: usize,
    },
    /// A backup can't be made: an earlier step has failed, or writers needed space in the log that
    /// it kept.
    #[error(
        "the backup was given up: the redo log was full, and it didn't copy what it kept of it; or an earlier step failed"
    )]
    BackupGivenUp,
    /// Somebody else has ended the wait for log space, for pages to be written or for a frame.
    #[error("the wait was ended before its time")]
    Interrupted,
    /// There are pages but no control file.
    #[error(
        "{directory}: there are files of a database, but no `control` file; nothing was changed: \
         restore the file, or remove the others to begin anew"
    )]
    Lost {
        /// The directory.
        directory: String,
    },
    /// A thread that others wait for has panicked.
    #[error("its thread {0} has panicked: a bug, of which the panic's message tells")]
    Panicked(String),
    /// The database was closed, by this handle or another.
    #[error("the database has been closed; open it again")]
    Closed,
    /// A background thread failed; the database must be opened again.
    #[error(
        "the database has stopped; what was durable is kept: {remedy} and open it again: {0}",
        remedy = remedy(.0)
    )]
    Stopped(Arc<Fault>),
}

fn remedy(cause: &Fault) -> &'static str {
    match cause {
        damage if damage.is_of_page() => "restore the file, or have it give damaged pages up,",
        _ => "remove the cause",
    }
}

impl Fault {
    /// A page that makes no sense.
    pub fn page(page: PageId, what: impl Into<String>) -> Fault {
        Fault::Page { page, what: what.into() }
    }

    /// A tree leads to a page that can't be where it is.
    pub fn stray_page(page: PageId) -> Fault {
        Fault::page(page, "is not the page that its tree leads to; `weir check` tells more")
    }

    /// Whether it may go away by itself: no space.
    pub fn is_no_space(&self) -> bool {
        matches!(
            self,
            Fault::Store(StoreError::NoSpace { .. }) | Fault::Redo(RedoError::NoSpace { .. })
        )
    }

    /// Whether what is stored is damaged, or lacks a part.
    pub fn is_corrupt(&self) -> bool {
        use {RedoError as R, StoreError as S};
        match self {
            Fault::Page { .. } | Fault::Record { .. } | Fault::Lost { .. } => true,
            Fault::Store(S::Corrupt { .. } | S::NotStored { .. } | S::BadRecord { .. }) => true,
            Fault::Store(S::Missing { .. }) => true,
            Fault::Redo(R::NoLog { .. } | R::SegmentMissing { .. } | R::Cut { .. }) => true,
            Fault::Redo(R::BadMagic { .. } | R::HeaderChecksum { .. }) => true,
            Fault::Redo(R::BadHeader { .. } | R::WrongDatabase { .. }) => true,
            _ => self.disk().is_some_and(|error| error.kind() == ErrorKind::UnexpectedEof),
        }
    }

    /// The page that is damaged, if that is it.
    pub fn damaged_page(&self) -> Option<PageId> {
        match *self {
            Fault::Page { page, .. } | Fault::Store(StoreError::NotStored { page }) => Some(page),
            Fault::Store(StoreError::Corrupt { page, .. }) => page,
            _ => None,
        }
    }

    /// Whether it is a page that stands in the way: its image, or what the log has for it.
    pub fn is_of_page(&self) -> bool {
        match self {
            Fault::Record { .. } => true,
            Fault::Store(StoreError::Disk(error)) => error.operation == "read",
            fault => fault.damaged_page().is_some(),
        }
    }

    /// Whether nothing is written any more before the database is opened again.
    pub fn has_stopped(&self) -> bool {
        match self {
            Fault::Closed | Fault::Stopped(_) => true,
            Fault::Store(error) => matches!(error, StoreError::Poisoned { .. }),
            Fault::Redo(error) => matches!(error, RedoError::Poisoned { .. }),
            _ => false,
        }
    }

    /// The disk's error that it is.
    pub fn disk(&self) -> Option<&DiskError> {
        match self {
            Fault::Disk(error)
            | Fault::Store(StoreError::Disk(error))
            | Fault::Redo(RedoError::Disk(error)) => Some(error),
            _ => None,
        }
    }
}

//! What can go wrong in the page store, said so that an operator can act on it.

use weir_os::DiskError;
use weir_page::PageId;

/// An error of the page store.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// Stored bytes are not what was written there. Nothing was changed.
    #[error(
        "{file} is corrupt at offset {offset}{}: {what}: expected {expected}, found {found}",
        of_page(*page)
    )]
    Corrupt {
        /// Path of the file.
        file: String,
        /// Byte offset of the image, map block or slot.
        offset: u64,
        /// The page, if it is of one: of the page map, the offset tells the place.
        page: Option<PageId>,
        /// What was wrong.
        what: &'static str,
        /// What should have been there.
        expected: String,
        /// What was there.
        found: String,
    },
    /// A file that each database has isn't there. Nothing was changed.
    #[error("{file} is missing, which the database needs; nothing was changed: restore it")]
    Missing {
        /// Path of the file.
        file: String,
    },
    /// The device is full. Nothing was changed; drop data or add space and try again.
    #[error("no space for {needed} more bytes in {file}; nothing was changed")]
    NoSpace {
        /// Bytes asked for.
        needed: u64,
        /// Path of the file.
        file: String,
    },
    /// Space that was held for a copy of the data file was needed: the device has no room left. The
    /// copy is of no use; here nothing is lost.
    #[error(
        "the device with {file} has no room left: what was held back for a copy of it was given up"
    )]
    Reclaimed {
        /// Path of the file.
        file: String,
    },
    /// The page has no stored image.
    #[error("page {page} is not stored")]
    NotStored {
        /// The page.
        page: PageId,
    },
    /// The database was written by a newer version of Weir. Nothing was changed.
    #[error("{file} has format {found}, newer than format {supported} known here: upgrade Weir")]
    NewerFormat {
        /// Path of the file.
        file: String,
        /// The file's format.
        found: u32,
        /// The newest format known to this version.
        supported: u32,
    },
    /// An earlier write or sync failed, so nothing is written any more. Reads go on. Restart to
    /// recover from the redo log.
    #[error("the page store takes no more writes since an earlier failure: {cause}")]
    Poisoned {
        /// The first failure.
        cause: String,
    },
    /// A relocation record does not decode.
    #[error("bad relocation record at byte {at}: {what}")]
    BadRecord {
        /// What was wrong.
        what: &'static str,
        /// Position in the record.
        at: usize,
    },
    /// The disk said no.
    #[error(transparent)]
    Disk(#[from] DiskError),
}

fn of_page(page: Option<PageId>) -> String {
    page.map(|page| format!(" (page {page})")).unwrap_or_default()
}

/// Result of a store operation.
pub type Result<T> = std::result::Result<T, StoreError>;

impl StoreError {
    /// The same of another page, if it is of one.
    pub(crate) fn of(self, of: PageId) -> StoreError {
        match self {
            StoreError::Corrupt { file, offset, what, expected, found, .. } => {
                StoreError::Corrupt { file, offset, page: Some(of), what, expected, found }
            }
            other => other,
        }
    }
}

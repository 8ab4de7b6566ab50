//! Identifiers and units that every layer shares.

use std::fmt;

/// Size of a page image in memory, in bytes.
pub const PAGE_SIZE: usize = 16 * 1024;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($int:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id! {
    /// Position in the endless redo stream, in bytes. A group's LSN is that of its first byte.
    Lsn(u64)
}
id! {
    /// Logical number of a page; 0 is never a page.
    PageId(u32)
}
id! {
    /// Number of a B+tree; 0 is never a tree.
    TreeId(u32)
}
id! {
    /// Number of a read-write transaction, 48 bits, handed out in ascending order; 0 is never one.
    TxnId(u64)
}

impl PageId {
    /// The absent page.
    pub const NONE: PageId = PageId(0);
}

//! Byte layouts: page images and redo records, and the one function that applies a record to a page.
//!
//! Only this crate and `weir-store` know byte offsets. Forward execution and recovery both change
//! pages through [`record::Record`].

pub mod types;

pub use types::{Lsn, PAGE_SIZE, PageId, TreeId, TxnId};

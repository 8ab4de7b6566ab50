//! Byte layouts: page images and redo records, and the one function that applies a record to a
//! page.
//!
//! Only this crate and `weir-store` know byte offsets. Forward execution and recovery both change
//! pages through [`record::Redo::apply`]; callers check that all fits before they apply.

pub mod lanes;
pub mod node;
pub mod overflow;
pub mod page;
mod prefetch;
pub mod record;
pub mod shared;
pub mod types;
pub mod undo;
pub mod varint;
pub mod version;

pub use page::{Kind, Page};
pub use prefetch::prefetch;
pub use record::{Before, Change, Logged, Malformed, RECORD_BYTES, Redo, WRITE_BYTES, Write};
pub use shared::SharedPage;
pub use types::{Lsn, PAGE_SIZE, PageId, TreeId, TxnId};
pub use undo::Undo;
pub use version::{Delta, Entry, Flags, UndoPtr, Version};

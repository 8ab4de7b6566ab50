//! Weir: a transactional B+tree storage engine.

#![allow(missing_docs)]

mod governor;
mod storage;
mod sync;

//! Weir: a transactional B+tree storage engine.

#![allow(missing_docs)]

mod engine;
mod governor;
pub mod key;
mod lock;
pub mod row;
pub mod schema;
mod sort;
mod storage;
mod sync;
mod tree;
mod txn;
pub mod value;

//! Weir: a transactional B+tree storage engine.

#![allow(missing_docs)]

pub mod check;
mod governor;
mod lock;
mod storage;
mod sync;
mod tree;
mod txn;

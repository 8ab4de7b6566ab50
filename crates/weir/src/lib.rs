//! Placeholder.

pub mod key;
pub mod lock;
pub mod row;
pub mod schema;
pub mod sort;
pub mod value;

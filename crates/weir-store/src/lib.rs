//! The page store: 16 KiB pages kept out of place in extents of the data file.
//!
//! # Terms
//! A *page* has an *image* (its stored form, see `image`) in an *extent* (1 to 4 units of 4 KiB of
//! file `data`). The *page map* says where, in memory as an array (`map`) and on disk as *map
//! blocks* (`block`). A *relocation* is the move of a page to a new extent. An extent given up is
//! *pending* until the log is durable past the record that gave it up (`space`), and, while
//! somebody copies the file, *held* beyond that (`copy`). File `control` says where the log begins
//! (`control`).
//!
//! # How a page moves
//! 1. [`Store::write_batch`] writes images to free extents and syncs once. Nothing refers to them.
//! 2. The caller logs the relocations ([`encode_relocations`]).
//! 3. [`Store::install`] points the map to the new places; the old ones are pending.
//! 4. [`Store::release`] frees them once the record is durable.
//! 5. [`Store::draft_map`] copies the blocks touched; when the log is durable past the copies,
//!    [`Store::write_map`] persists them, and the checkpoint may pass the record.
//!
//! A crash before the record is durable leaves the old images; after it, the new ones. An image is
//! never written over another that anything durable refers to, so none is ever torn.
//!
//! # Invariants
//! - Changes of one page's extent (`install`, `free_page`) come in the order of their records.
//! - The data file is as long as any extent handed out, durably, before anything is written there.
//! - The current slot of a map block is never overwritten; a block is written only when the log
//!   is durable past its newest change.
//! - After the first failed write or sync nothing is written any more ([`StoreError::Poisoned`]).
//!
//! # Recovery
//! [`Store::open`] loads the map. The caller replays the log from the checkpoint with the
//! `recover_` functions, in order, then calls [`Store::derive_space`], which derives free units and
//! free page ids from the map, and [`Store::end_recovery`]. Until then nothing can be written or
//! freed.
//!
//! # Locks
//! In this order: `growth` and `map_io` (held over I/O), then `data_synced` (over a sync), alone;
//! `blocks`, `space`, `ids` (never held over I/O).

mod block;
mod buffers;
mod check;
mod control;
mod copy;
mod error;
mod extent;
mod ids;
mod image;
mod map;
mod mapfile;
mod read;
mod recover;
mod relocation;
mod room;
mod space;
mod store;
mod trim;
mod worth;
mod write;

pub use block::BLOCK_PAGES;
pub use control::{CONTROL_FORMAT, Control};
pub use copy::{DataCopy, Images};
pub use error::{Result, StoreError};
pub use extent::{Extent, FILE_UNITS_MAX, Relocation, UNIT, UNITS_MAX};
pub use image::{Compression, IMAGE_HEADER, PageCopy};
pub use map::{MapSlot, PageMap};
pub use mapfile::MapDraft;
pub use relocation::{decode_relocations, encode_relocations, relocations_bytes_max};
pub use room::Room;
pub use store::{CONTROL, Store, StoreOptions, StoreStats, check_format, write_first_control};
pub use write::BATCH_PAGES_MAX;

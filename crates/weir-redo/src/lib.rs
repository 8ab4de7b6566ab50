//! The redo log: an endless byte stream of groups in a ring of segment files.
//!
//! # Terms
//! - **LSN**: a position in the stream, in bytes. The first is that of segment 1; 0 is never one.
//! - **Group**: what one mini-transaction changed; valid as a whole or not at all.
//! - **Segment**: a file with a stretch of the stream. Each begins where the one before, by number,
//!   ends.
//! - **Capacity**: the greatest checkpoint age, `claimed - checkpoint`.
//! - **Claim, credit**: space taken before any latch, so that appending neither waits nor fails.
//!
//! # Segment file `redo-<number, ten digits>`
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 8 | magic `WEIRREDO` |
//! | 8 | 4 | format version, 4; before 4, `start` is zero; before 3, there are no records of runs; in 1, groups have no notes |
//! | 12 | 4 | CRC-32C of these 4096 bytes, this field taken as zero |
//! | 16 | 8 | database id |
//! | 24 | 8 | segment number |
//! | 32 | 8 | `segment_bytes`, a multiple of 4096 |
//! | 40 | 8 | `start`, a multiple of 4096; before version 4, `number * segment_bytes` is meant, the latter being the same in all segments |
//! | 48 | 4048 | zero |
//! | 4096 | `segment_bytes` | stream from `start` on |
//!
//! A log's first segment has number 1 and begins at its `segment_bytes`. How long segments are
//! made, at the creation, for a larger capacity and at an open, follows from the capacity
//! (`layout`), so that no log has very many files, whatever it began with. In between, files that
//! the checkpoint has passed are used again as they are, or cut: that takes no space.
//!
//! Integers are little-endian. Magic, version and checksum keep their places in all versions.
//! Header, length and name are synced before the segment takes a byte of the stream; the header is
//! never rewritten in place. A header that is not whole is that of a segment which was being made,
//! and means that the stream ends before it; only if the segment is known to be needed is it an
//! error.
//!
//! # Group, at a multiple of 8
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | bits 0-20: length, these 8 bytes and the padding included; a multiple of 8, at most 1 MiB. Bits 21-31: note (`head`) |
//! | 4 | 4 | CRC-32C of: LSN (8 bytes), the 4 bytes before, payload, padding |
//! | 8 | | payload, opaque to this crate |
//! | | 0-7 | zero padding, handed out with the payload |
//!
//! Groups follow one another without gaps and may straddle segments. The stream ends at the first
//! place that does not hold a valid group. If that place must have been durable, because groups
//! behind note that it was, or lie so far behind that it was, the log is damaged there, and reading
//! it fails (`witness`). A group of an earlier lap is not valid: its LSN was another. Synced when
//! `durable` has passed its end, which is after everything before it.
//!
//! # Invariants
//! - `checkpoint <= durable <= written <= filled <= reserved <= claimed`, asserted in release
//!   builds.
//! - `claimed - written` fits in the log buffer, `claimed - checkpoint` in the capacity. Exception:
//!   after the capacity was reduced, the capacity as it was holds until the checkpoint has caught
//!   up, so that nobody stands still meanwhile.
//! - The segments that hold `checkpoint ..= checkpoint + capacity` (in the exception: the capacity
//!   as it was) are present and durable, so every claim has its place, and as much more as the
//!   longest segment has: with the files that it passes alone the checkpoint can move on, on a full
//!   device, too.
//! - A block of the file is only rewritten with bytes of which the old ones are a prefix.
//! - Before a segment takes its first byte, everything before the segment before it is synced:
//!   `durable .. written` lies within two segments. It is at most 8 MiB long.
//! - After the first failed write or sync the log is poisoned: nothing is written or synced again.
//!
//! # Nothing beyond the end comes back
//!
//! A crash may lose a block in the middle of what was not synced, and keep groups after it. They
//! carry the right LSNs. Recovery stops before them, at `end`; but if new groups were to end
//! exactly where such an old one starts, a later recovery would take it for valid.
//! [`Redo::open_at`] therefore makes sure, durably and before the first append, that no byte of the
//! crashed incarnation at or past `end` is left:
//!
//! 1. the files after `end`'s segment move on, durably: the last is removed, each other gets the
//!    next number, and one is made in front of them. So none is at its old place, and the space of
//!    one file only is given up for a moment. Where not all segments are as long as those that are
//!    made now, all are removed and made anew: places that are inferred, as long as a header isn't
//!    whole, could be the old ones there;
//! 2. `end`'s segment is truncated at `end`, synced, then grown to its length (zeros), zeros are
//!    written over its next 9 MiB (what may be unsynced, and a group), and it is synced.
//!
//! Why this suffices: a group at LSN x can only be valid in the file named after x's segment, and
//! bytes with the checksum for x are only written to that file, while it has that name. A file's
//! numbers only grow, and with them the LSNs of its places (it is created as zeros or renamed from
//! a lower number), so what is found valid in a segment past `end` after step 1 was written there
//! since. Truncation takes no byte before `end` in hand, can't be torn, and costs the same whatever
//! the size. A crash between the steps leaves the same `end` for the next recovery: a short file
//! reads as zeros. The zeros are written for the case that an earlier open truncated and failed to
//! sync, so that this truncation changes nothing and its sync promises nothing.
//!
//! Likewise, what the crashed process had written but not synced may be in the page cache only, and
//! if a sync failed the system may take it for clean. So the last 8 MiB before `end`, in the
//! segments of `end` and before, are written again before they are synced. Names can't be written
//! again like this: after a failed sync of the *directory* the file system has to be mounted anew
//! (journalling ones go read-only by themselves).
//!
//! # Protocol
//!
//! [`Redo::try_admit`] → latches → [`Redo::append`] → unlatch → [`Redo::wait_durable`]. Recovery:
//! [`Reader`] from the checkpoint, or a later group, to its end, [`sync_all`] before relying on it,
//! [`Redo::open_at`]. Checkpoint: make it durable in the control file, then
//! [`Redo::set_checkpoint`]. No thread is started here: whoever needs the log written writes it,
//! for all (group commit, `commit`).
//!
//! After the log of InnoDB (MySQL 8: reserve by atomic add, copy in parallel), without its link
//! buffer and its threads: the length word published last takes the place of the former, the
//! waiting committers that of the latter.

mod commit;
mod copy;
mod error;
mod format;
mod groups;
mod head;
#[cfg(all(test, feature = "shuttle"))]
mod interleavings;
mod layout;
mod reader;
mod redo;
mod ring;
mod segments;
mod sync;
mod witness;
mod writer;

pub use copy::CopyProgress;
pub use error::RedoError;
pub use format::{
    FORMAT_VERSION, GROUP_ALIGN, GROUP_HEADER_BYTES, MAX_GROUP_BYTES, MAX_PAYLOAD_BYTES,
    MIN_SEGMENTS, SEGMENT_HEADER_BYTES, group_bytes,
};
pub use groups::Groups;
pub use layout::segment_bytes_of;
pub use reader::{EndReason, Group, Reader, sync_all};
pub use redo::{Admission, Appended, Credit, Redo, RedoOptions, Refused, remove_all};

//! Checks of arguments that every form of disk makes alike.

use crate::{BLOCK, Io, Mode};
use std::io;

/// The file that holds the directory's lock: not a file of the database.
pub(crate) const LOCK_NAME: &str = "lock";

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// A plain file name, and not the lock's.
pub(crate) fn check_name(name: &str) -> io::Result<()> {
    match name {
        "" | "." | ".." => Err(invalid("not a file name")),
        LOCK_NAME => Err(invalid("the name is taken by the directory's lock")),
        _ if name.contains(['/', '\0']) => Err(invalid("a file name has no separator")),
        _ => Ok(()),
    }
}

/// Offsets and lengths of direct I/O are multiples of the block; no range passes the largest file.
pub(crate) fn check_aligned(op: &Io, mode: Mode) -> io::Result<()> {
    let (offset, len) = (op.offset(), op.buf().len() as u64);
    if offset.checked_add(len).is_none_or(|end| end > i64::MAX as u64) {
        return Err(invalid("the range passes the largest file"));
    }
    let aligned = offset.is_multiple_of(BLOCK as u64) && len.is_multiple_of(BLOCK as u64);
    if mode == Mode::Direct && !aligned {
        return Err(invalid("direct I/O needs offset and length in whole blocks"));
    }
    Ok(())
}

/// Punched ranges are whole blocks.
pub(crate) fn check_punch(offset: u64, bytes: u64) -> io::Result<()> {
    let aligned = offset.is_multiple_of(BLOCK as u64) && bytes.is_multiple_of(BLOCK as u64);
    if !aligned || offset.checked_add(bytes).is_none_or(|end| end > i64::MAX as u64) {
        return Err(invalid("punching needs offset and length in whole blocks"));
    }
    Ok(())
}

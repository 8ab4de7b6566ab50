//! Faults that a simulated disk shows on request.

use rustix::io::Errno;
use std::io;

/// Kinds of operation, for the choice of those that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// One read of a batch.
    Read,
    /// One write of a batch.
    Write,
    /// `File::sync` and `Disk::sync_dir`.
    Sync,
    /// `set_len` and `punch`.
    Resize,
    /// `open`, `remove`, `rename`, `list`.
    Name,
}

/// Whether a fault shows once or from then on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The first matching operation only.
    Once,
    /// Every matching operation from the first on.
    Forever,
}

/// A fault, armed with [`super::SimDisk::inject`]. It shows at the first matching operation whose
/// number is at or above `at` (see [`super::SimDisk::operations`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// EIO. A write that fails may have stored some of its sectors; a sync that fails takes away
    /// the guarantee of everything unsynced for good, as Linux does.
    Io {
        /// Which operations; `None` for all.
        on: Option<OpKind>,
        /// From this operation number on.
        at: u64,
        /// Once or for ever.
        times: Times,
    },
    /// EIO once, on a sync of the file of that name.
    SyncOf {
        /// The file.
        file: &'static str,
        /// From this operation number on.
        at: u64,
    },
    /// ENOSPC, EDQUOT or EFBIG on a write or a growth.
    NoSpace {
        /// From this operation number on.
        at: u64,
        /// Once or for ever.
        times: Times,
    },
    /// A write that is acknowledged and never stored.
    LostWrite {
        /// From this operation number on.
        at: u64,
    },
    /// A write that is acknowledged and lands at another block-aligned offset of the same file.
    MisdirectedWrite {
        /// From this operation number on.
        at: u64,
    },
}

/// What an armed fault does to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// As usual.
    Normal,
    /// The write is dropped.
    Lost,
    /// The write lands elsewhere.
    Misdirected,
}

impl Fault {
    fn matches(&self, kind: OpKind, number: u64) -> bool {
        match *self {
            Fault::Io { on, at, .. } => number >= at && on.is_none_or(|on| on == kind),
            // Matched with the file's name.
            Fault::SyncOf { .. } => false,
            Fault::NoSpace { at, .. } => {
                number >= at && matches!(kind, OpKind::Write | OpKind::Resize)
            }
            Fault::LostWrite { at } | Fault::MisdirectedWrite { at } => {
                number >= at && kind == OpKind::Write
            }
        }
    }

    fn lasts(&self) -> bool {
        matches!(
            self,
            Fault::Io { times: Times::Forever, .. } | Fault::NoSpace { times: Times::Forever, .. }
        )
    }
}

/// The effect of the first armed fault that matches; one that shows once is disarmed.
pub(super) fn take(faults: &mut Vec<Fault>, kind: OpKind, number: u64) -> io::Result<Effect> {
    let Some(at) = faults.iter().position(|fault| fault.matches(kind, number)) else {
        return Ok(Effect::Normal);
    };
    let fault = if faults[at].lasts() { faults[at] } else { faults.remove(at) };
    match fault {
        Fault::Io { .. } | Fault::SyncOf { .. } => Err(Errno::IO.into()),
        Fault::NoSpace { .. } => Err(no_space(number)),
        Fault::LostWrite { .. } => Ok(Effect::Lost),
        Fault::MisdirectedWrite { .. } => Ok(Effect::Misdirected),
    }
}

/// The operation of this number is a sync of the file at `path`: it fails if a fault is armed for
/// that.
pub(super) fn aim(faults: &mut [Fault], path: &str, number: u64) {
    let is_of = |name: &str| path == super::SimDisk::path(name);
    let is_armed =
        |f: &Fault| matches!(*f, Fault::SyncOf { file, at } if number >= at && is_of(file));
    if let Some(fault) = faults.iter_mut().find(|fault| is_armed(fault)) {
        *fault = Fault::Io { on: Some(OpKind::Sync), at: number, times: Times::Once };
    }
}

/// What a system may say where there is no space, by the operation's number.
pub(super) fn no_space(number: u64) -> io::Error {
    [Errno::NOSPC, Errno::DQUOT, Errno::FBIG][(number % 3) as usize].into()
}

//! Undo records out of their pages, which aren't latched any more, and the states that they lead
//! back to.

use weir_page::version::{Delta, Flags, Version};
use weir_page::{PageId, TreeId, Undo};

/// What an entry was before it was buried: dead in place of its tombstone, by a transaction that
/// was running. One with a chain, or with a version that somebody may need, isn't.
pub(super) const BEFORE_BURIED: (Flags, Option<Version>) =
    (Flags { deleted: false, overflow: false, hides: false }, None);

/// An undo record that outlives its page's latch.
pub(super) enum OwnedUndo {
    Insert { tree: TreeId, key: Vec<u8> },
    Hide { tree: TreeId, key: Vec<u8> },
    Update { tree: TreeId, key: Vec<u8>, flags: Flags, version: Option<Version>, delta: OwnedDelta },
    Delete { tree: TreeId, key: Vec<u8>, flags: Flags, version: Option<Version> },
    Prepare,
    Overflow { first: PageId },
    CreateTree { root: PageId },
    DropTree { root: PageId },
}

impl OwnedUndo {
    pub fn from(undo: Undo<'_>) -> OwnedUndo {
        match undo {
            Undo::Insert { tree, key } => OwnedUndo::Insert { tree, key: key.to_vec() },
            Undo::Hide { tree, key } => OwnedUndo::Hide { tree, key: key.to_vec() },
            Undo::Update { tree, key, flags, version, delta } => OwnedUndo::Update {
                tree,
                key: key.to_vec(),
                flags,
                version,
                delta: OwnedDelta {
                    front: delta.front,
                    back: delta.back,
                    middle: delta.middle.to_vec(),
                },
            },
            Undo::Delete { tree, key, flags, version } => {
                OwnedUndo::Delete { tree, key: key.to_vec(), flags, version }
            }
            Undo::Prepare { .. } => OwnedUndo::Prepare,
            Undo::Overflow { first } => OwnedUndo::Overflow { first },
            Undo::CreateTree { root } => OwnedUndo::CreateTree { root },
            Undo::DropTree { root } => OwnedUndo::DropTree { root },
        }
    }

    /// The entry that was written: its tree and key; `None` if it was none.
    pub fn entry(&self) -> Option<(TreeId, &[u8])> {
        match self {
            OwnedUndo::Insert { tree, key }
            | OwnedUndo::Hide { tree, key }
            | OwnedUndo::Update { tree, key, .. }
            | OwnedUndo::Delete { tree, key, .. } => Some((*tree, key)),
            OwnedUndo::Prepare
            | OwnedUndo::Overflow { .. }
            | OwnedUndo::CreateTree { .. }
            | OwnedUndo::DropTree { .. } => None,
        }
    }
}

/// A delta that owns its bytes.
pub(super) struct OwnedDelta {
    front: usize,
    back: usize,
    pub middle: Vec<u8>,
}

impl OwnedDelta {
    fn as_delta(&self) -> Delta<'_> {
        Delta { front: self.front, back: self.back, middle: &self.middle }
    }
}

/// An undo record read out of its page.
pub(super) struct UndoRecord {
    /// Where on its page it lies.
    pub at: u16,
    /// Where the one before on that page lies; 0: it is the first there.
    pub prev: u16,
    /// Whether it is its transaction's first.
    pub first: bool,
    pub undo: OwnedUndo,
}

impl UndoRecord {
    /// As it is where what it has put into a staging tree has been moved to `main` since; `None` if
    /// that doesn't happen to what it has put there.
    pub fn moved_to(&self, main: TreeId) -> Option<UndoRecord> {
        let undo = match &self.undo {
            OwnedUndo::Insert { key, .. } => OwnedUndo::Insert { tree: main, key: key.clone() },
            OwnedUndo::Hide { key, .. } => {
                let (flags, version) = BEFORE_BURIED;
                OwnedUndo::Delete { tree: main, key: key.clone(), flags, version }
            }
            _ => return None,
        };
        Some(UndoRecord { undo, ..*self })
    }

    /// The state before the write of an entry whose value is this; dead where there was none.
    /// `None` if the record doesn't fit the value.
    pub fn former(&self, value: &[u8]) -> Option<Former> {
        match &self.undo {
            OwnedUndo::Update { flags, version, delta, .. } => {
                let delta = delta.as_delta();
                let before = || delta.apply(value);
                let (flags, version) = (*flags, *version);
                delta.fits(value.len()).then(|| Former { flags, version, value: before() })
            }
            OwnedUndo::Delete { flags, version, .. } => {
                Some(Former { flags: *flags, version: *version, value: value.to_vec() })
            }
            _ => {
                let flags = Flags { deleted: true, ..Flags::default() };
                Some(Former { flags, version: None, value: Vec::new() })
            }
        }
    }
}

/// An entry as it was before a write.
pub(super) struct Former {
    pub flags: Flags,
    pub version: Option<Version>,
    pub value: Vec<u8>,
}

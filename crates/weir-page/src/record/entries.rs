//! Leaf entries of one record, in ascending order of their keys: each by how it differs from the
//! one before.
//!
//! An entry: varint slots since the one before (0 if it follows at once), varint bytes of the key
//! shared with the one before, the rest of the key, state, value. Keys and values have their length
//! in front.

use super::check::{check_key, check_kind, check_room, check_slot};
use super::codec::put_slice;
use crate::node::MAX_KEY;
use crate::page::{Kind, Page};
use crate::varint::{self, Input};
use crate::version::Entry;
use crate::{node, undo};

/// Entries as a record stores them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entries<'a>(&'a [u8]);

impl<'a> Entries<'a> {
    /// Those of `bytes`, if that is what they are.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let mut entries = Reader::new(bytes);
        while !entries.input.rest().is_empty() {
            entries.next()?;
        }
        Some(Entries(bytes))
    }

    /// Their stored form.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }

    /// Checks that they can be inserted into a page.
    pub(super) fn check(&self, page: &Page) -> Result<(), String> {
        let mut entries = Reader::new(self.0);
        let (mut n, mut room) = (node::count(page), node::free_bytes(page));
        check_kind(page, Kind::Leaf)?;
        while let Some(entry) = entries.next() {
            check_key(page, entries.key.len())?;
            let (key_len, len) = (entries.key.len(), entry.value.len());
            let size = node::insert_size(page, key_len, len, entry.version.is_some());
            check_slot(entries.slot, n)?;
            check_room(size <= room)?;
            (n, room) = (n + 1, room - size);
        }
        Ok(())
    }

    /// Inserts them into a leaf.
    pub(super) fn insert(&self, page: &mut Page) {
        let mut entries = Reader::new(self.0);
        while let Some(entry) = entries.next() {
            node::insert(page, entries.slot, &entries.key, &entry);
        }
    }
}

/// Makes [`Entries`].
#[derive(Debug, Default)]
pub struct EntriesBuilder {
    bytes: Vec<u8>,
    key: Vec<u8>,
    next: usize,
}

impl EntriesBuilder {
    /// Appends an entry. `slot` is where it goes when those before it are there.
    ///
    /// # Panics
    /// If `slot` isn't behind that of the one before.
    pub fn push(&mut self, slot: usize, key: &[u8], entry: &Entry<'_>) {
        assert!(slot >= self.next, "slot {slot} comes after {}", self.next);
        let shared = node::common_prefix(&self.key, key);
        varint::put(&mut self.bytes, (slot - self.next) as u64);
        varint::put(&mut self.bytes, shared as u64);
        put_slice(&mut self.bytes, &key[shared..]);
        undo::put_state(&mut self.bytes, entry.flags, entry.version);
        put_slice(&mut self.bytes, entry.value);
        self.next = slot + 1;
        self.key.truncate(shared);
        self.key.extend_from_slice(&key[shared..]);
    }

    /// Bytes so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The entries.
    pub fn entries(&self) -> Entries<'_> {
        Entries(&self.bytes)
    }
}

struct Reader<'a> {
    input: Input<'a>,
    key: Vec<u8>,
    slot: usize,
    next: usize,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Reader { input: Input::new(bytes), key: Vec::new(), slot: 0, next: 0 }
    }

    /// The next entry, whose slot and key are the reader's then.
    fn next(&mut self) -> Option<Entry<'a>> {
        let further = u16::try_from(self.input.varint()?).ok()?;
        let shared = usize::try_from(self.input.varint()?).ok()?;
        let rest = self.input.slice()?;
        if shared > self.key.len() || shared + rest.len() > MAX_KEY {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(rest);
        let (flags, version) = undo::get_state(&mut self.input)?;
        let value = self.input.slice()?;
        self.slot = self.next + usize::from(further);
        self.next = self.slot + 1;
        Some(Entry { flags, version, value })
    }
}

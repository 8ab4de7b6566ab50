//! The simulated directory: names now, durable names, and the changes between them.
//!
//! Changes of the same name or the same file reach the medium in order, as journalling file
//! systems do it; others survive a power cut independently.

use super::crash::Chooser;
use std::collections::{BTreeMap, BTreeSet};

/// Files by name.
pub(super) type Names = BTreeMap<String, u64>;

#[derive(Clone)]
enum Change {
    Create { name: String },
    Remove { name: String },
    Rename { from: String, to: String },
}

#[derive(Clone)]
struct Entry {
    seq: u64,
    inode: u64,
    change: Change,
    /// A directory sync failed since: no later sync makes it durable, but with a later change of
    /// the same name or file.
    doubtful: bool,
}

/// A directory.
#[derive(Clone, Default)]
pub(super) struct Directory {
    now: Names,
    durable: Names,
    log: Vec<Entry>,
}

impl Entry {
    fn names(&self) -> impl Iterator<Item = &String> {
        let (first, second) = match &self.change {
            Change::Create { name } | Change::Remove { name } => (name, None),
            Change::Rename { from, to } => (from, Some(to)),
        };
        std::iter::once(first).chain(second)
    }

    /// Whether both change a name or move a file in common.
    fn touches(&self, other: &Entry) -> bool {
        self.inode == other.inode || self.names().any(|n| other.names().any(|m| m == n))
    }

    fn apply(&self, names: &mut Names) {
        match &self.change {
            Change::Create { name } => {
                names.insert(name.clone(), self.inode);
            }
            Change::Remove { name } => {
                names.remove(name);
            }
            Change::Rename { from, to } => {
                names.remove(from);
                names.insert(to.clone(), self.inode);
            }
        }
    }
}

impl Directory {
    /// A directory in which these names are durable.
    pub(super) fn durable(names: Names) -> Self {
        Directory { now: names.clone(), durable: names, log: Vec::new() }
    }

    pub(super) fn names(&self) -> &Names {
        &self.now
    }

    pub(super) fn create(&mut self, seq: u64, name: &str, inode: u64) {
        self.change(seq, inode, Change::Create { name: name.to_string() });
    }

    pub(super) fn remove(&mut self, seq: u64, name: &str, inode: u64) {
        self.change(seq, inode, Change::Remove { name: name.to_string() });
    }

    pub(super) fn rename(&mut self, seq: u64, from: &str, to: &str, inode: u64) {
        self.change(seq, inode, Change::Rename { from: from.to_string(), to: to.to_string() });
    }

    pub(super) fn sync(&mut self) {
        let mut log = std::mem::take(&mut self.log);
        settle(&mut log);
        self.log = replay(&mut self.durable, log, |entry| !entry.doubtful);
    }

    pub(super) fn fail_sync(&mut self) {
        self.log.iter_mut().for_each(|entry| entry.doubtful = true);
    }

    /// Names as found after a power cut.
    pub(super) fn crashed(&self, chooser: &mut Chooser<'_>) -> Names {
        let mut found = self.durable.clone();
        replay(&mut found, self.log.clone(), |entry| chooser.survives(entry.seq));
        found
    }

    pub(super) fn unsynced(&self, into: &mut BTreeSet<u64>) {
        into.extend(self.log.iter().map(|entry| entry.seq));
    }

    /// Whether a name that is here, durable or in between leads to the file.
    pub(super) fn refers_to(&self, inode: u64) -> bool {
        let named = |names: &Names| names.values().any(|&i| i == inode);
        named(&self.now) || named(&self.durable) || self.log.iter().any(|e| e.inode == inode)
    }

    fn change(&mut self, seq: u64, inode: u64, change: Change) {
        let entry = Entry { seq, inode, change, doubtful: false };
        entry.apply(&mut self.now);
        self.log.push(entry);
    }
}

/// Takes the doubt from changes that later ones, which are being synced, build on: a file system
/// keeps changes of a name in order.
fn settle(log: &mut [Entry]) {
    for at in (0..log.len()).rev() {
        let (earlier, later) = log.split_at_mut(at + 1);
        let entry = &mut earlier[at];
        if later.iter().any(|l| !l.doubtful && l.touches(entry)) {
            entry.doubtful = false;
        }
    }
}

/// Applies the survivors in order and returns the others; what depends on one of these joins them.
fn replay(
    names: &mut Names,
    log: Vec<Entry>,
    mut survives: impl FnMut(&Entry) -> bool,
) -> Vec<Entry> {
    let mut lost: Vec<Entry> = Vec::new();
    for entry in log {
        let depends = lost.iter().any(|earlier| earlier.touches(&entry));
        if !depends && survives(&entry) {
            entry.apply(names);
        } else {
            lost.push(entry);
        }
    }
    lost
}

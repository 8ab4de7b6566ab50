//! What becomes of the entries of one leaf whose place is in another: planned first, for nothing
//! may be changed if there is damage, then carried out.

use super::transfer::{Fate, Mover};
use crate::storage::{Fault, Mtr};
use std::ops::Range;
use weir_page::node;
use weir_page::record::EntriesBuilder;
use weir_page::{Entry, Flags, Page, PageId, Redo, Version};

/// Redo of the entries that one plan moves, at most.
pub(super) const MOVE_BYTES: usize = 32 << 10;
/// Redo of an entry beside its key and value, or of the removal of a run, at most.
const PER_ENTRY: usize = 64;

/// Where a plan ends.
pub(super) enum End {
    /// With the last entry.
    OfLeaf,
    /// Before this key, which goes to another leaf, or into another mtr.
    At(Vec<u8>),
    /// Before this key, for which the receiving leaf has no room.
    Full(Vec<u8>),
    /// Before this key, under which the receiving leaf has an entry with a chain.
    HidesChain(Vec<u8>),
}

/// An end before a key.
type EndBefore = fn(Vec<u8>) -> End;

/// What becomes of entries of the leaf `from`, whose place is in the leaf `into`. Slots are those
/// before the plan is carried out.
pub(super) struct Plan {
    from: PageId,
    into: PageId,
    /// Bytes that `into` has left.
    room: usize,
    /// Entries that go away from `from`.
    left: Slots,
    /// Those of `into` that they hid.
    hidden: Slots,
    /// Entries for `into`.
    arrivals: EntriesBuilder,
    arrived: usize,
    /// Entries of `into` that are made dead, and by which version.
    buried: Vec<(usize, Version)>,
    buried_bytes: usize,
}

impl Plan {
    /// Plans moves from the key `first` on; both leaves are latched.
    ///
    /// # Errors
    /// An entry is alive in both, and the one doesn't hide the other.
    pub fn make(
        mtr: &Mtr<'_>,
        from: PageId,
        into: PageId,
        first: &[u8],
        mover: &impl Mover,
    ) -> Result<(Plan, End), Fault> {
        let (source, target) = (mtr.page(from), mtr.page(into));
        let mut plan = Plan {
            from,
            into,
            room: node::free_bytes(target),
            left: Slots::default(),
            hidden: Slots::default(),
            arrivals: EntriesBuilder::default(),
            arrived: 0,
            buried: Vec::new(),
            buried_bytes: 0,
        };
        for slot in node::search(source, first).0..node::count(source) {
            let key = node::key(source, slot);
            if node::upper(target).is_some_and(|upper| *key >= *upper) {
                return Ok((plan, End::At(key)));
            }
            let entry = node::entry(source, slot);
            let there = There::find(target, &key);
            if there.is_alive() && !entry.flags.deleted && !entry.flags.hides {
                let at = there.slot;
                let what = format!("slot {at} is alive in the staging page {from}, too");
                return Err(Fault::page(into, what));
            }
            match plan.add(target, &key, &entry, &there, mover) {
                Ok(true) => plan.left.push(slot),
                Ok(false) => {}
                Err(end) => return Ok((plan, end(key))),
            }
        }
        Ok((plan, End::OfLeaf))
    }

    /// Adds what becomes of an entry; whether it goes. `Err`: the plan ends before it.
    fn add(
        &mut self,
        target: &Page,
        key: &[u8],
        entry: &Entry<'_>,
        there: &There<'_>,
        mover: &impl Mover,
    ) -> Result<bool, EndBefore> {
        let is_tombstone = entry.flags.deleted;
        let hides_chain = there.is_alive() && there.has_chain();
        // What is dead there some may see alive; what is alive and hides a chain stays until it is
        // deleted, too.
        let has_to_stay = there.is_dead() || (hides_chain && !is_tombstone);
        let is_too_much = self.redo_bytes() + key.len() + entry.value.len() > MOVE_BYTES;
        match mover.fate(entry) {
            Fate::Stays => return Ok(false),
            _ if has_to_stay => return Ok(false),
            _ if is_too_much => return Err(End::At),
            Fate::Buries(by) => return self.bury(there, by, mover),
            Fate::Moves(_) if hides_chain => return Err(End::HidesChain),
            Fate::Moves(_) if is_tombstone => {}
            Fate::Moves(version) => {
                let lengths = (key.len(), entry.value.len());
                self.take_room(node::insert_size(target, lengths.0, lengths.1, version.is_some()))?;
                mover.arrives(key);
                let flags = Flags { hides: false, ..entry.flags };
                let slot = there.slot - self.hidden.count + self.arrived;
                self.arrivals.push(slot, key, &Entry { flags, version, ..*entry });
                self.arrived += 1;
            }
        }
        if there.is_alive() {
            self.hidden.push(there.slot);
        }
        Ok(true)
    }

    /// Adds that what a tombstone hides is made dead by `by`; whether the tombstone goes.
    fn bury(
        &mut self,
        there: &There<'_>,
        by: Version,
        mover: &impl Mover,
    ) -> Result<bool, EndBefore> {
        let Some(entry) = &there.entry else { return Ok(false) };
        if there.has_chain() || !mover.is_settled(entry.version) {
            return Ok(false);
        }
        self.take_room(entry.version.map_or(Version::SIZE, |_| 0))?;
        if !mover.buries(by) {
            return Ok(false);
        }
        self.buried_bytes += PER_ENTRY + entry.value.len();
        self.buried.push((there.slot, by));
        Ok(true)
    }

    fn take_room(&mut self, bytes: usize) -> Result<(), EndBefore> {
        self.room = self.room.checked_sub(bytes).ok_or(End::Full as EndBefore)?;
        Ok(())
    }

    /// Redo of what is planned and of one more, but for its key and value, at most.
    fn redo_bytes(&self) -> usize {
        let runs = self.left.runs.len() + self.hidden.runs.len() + 2;
        self.arrivals.len() + PER_ENTRY * runs + self.buried_bytes
    }

    /// Changes both leaves; returns how many entries have gone.
    pub fn carry_out(self, mtr: &mut Mtr<'_>) -> u64 {
        let count = self.left.count as u64;
        for (slot, by) in self.buried {
            bury(mtr, self.into, slot, by);
        }
        self.hidden.remove(mtr, self.into);
        if self.arrived > 0 {
            let entries = self.arrivals.entries();
            mtr.log(&Redo::InsertRun { page: self.into, entries });
        }
        self.left.remove(mtr, self.from);
        count
    }
}

/// What the receiving leaf has under a key.
struct There<'p> {
    /// Where it is, or would be.
    slot: usize,
    entry: Option<Entry<'p>>,
}

impl<'p> There<'p> {
    fn find(target: &'p Page, key: &[u8]) -> There<'p> {
        let (slot, found) = node::search(target, key);
        There { slot, entry: found.then(|| node::entry(target, slot)) }
    }

    fn is_alive(&self) -> bool {
        self.entry.is_some_and(|entry| !entry.flags.deleted)
    }

    fn is_dead(&self) -> bool {
        self.entry.is_some_and(|entry| entry.flags.deleted)
    }

    fn has_chain(&self) -> bool {
        self.entry.is_some_and(|entry| entry.flags.overflow)
    }
}

/// Makes an entry dead by a version, in place of its tombstone.
fn bury(mtr: &mut Mtr<'_>, leaf: PageId, slot: usize, by: Version) {
    let there = node::entry(mtr.page(leaf), slot);
    let (flags, value) = (Flags { deleted: true, ..there.flags }, there.value.to_vec());
    let entry = Entry { flags, version: Some(by), value: &value };
    mtr.log(&Redo::Set { page: leaf, slot: slot as u16, insert: false, key: &[], entry });
}

/// Slots of a leaf, ascending, in runs of neighbours.
#[derive(Default)]
struct Slots {
    runs: Vec<Range<usize>>,
    count: usize,
}

impl Slots {
    /// Adds a slot behind those that are there.
    fn push(&mut self, slot: usize) {
        self.count += 1;
        match self.runs.last_mut() {
            Some(run) if run.end == slot => run.end += 1,
            _ => self.runs.push(slot..slot + 1),
        }
    }

    /// Removes their entries from the leaf.
    fn remove(self, mtr: &mut Mtr<'_>, leaf: PageId) {
        // From the last one on: those before keep their slots.
        for run in self.runs.into_iter().rev() {
            let (slot, count) = (run.start as u16, run.len() as u16);
            mtr.log(&Redo::RemoveRun { page: leaf, slot, count });
        }
    }
}

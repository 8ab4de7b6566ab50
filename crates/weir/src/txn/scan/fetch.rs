//! What a scan copies of a leaf: the versions that its look gives, under the leaf's latch; and how
//! it has the leaves read that come next.

use super::{Direction, EntryPlace, Look, Range, Scan, ScanStop};
use crate::lock::RangeMode;
use crate::storage::{Fault, Restart, Stop, Storage};
use crate::tree::cursor::LeafRead;
use weir_page::{Entry, Flags, PageId, TxnId};

/// Leaves that a scan looks ahead.
const READ_AHEAD: usize = 32;
/// Leaves after which it looks ahead anew.
const READ_AHEAD_EVERY: usize = READ_AHEAD / 2;
/// Entries that a scan copies together from when on it reads ahead.
const READ_AHEAD_FROM: usize = 256;
/// Entries of a batch for each leaf that a scan looks ahead: one that has just begun may end soon.
const ENTRIES_PER_LEAF_AHEAD: usize = 64;
/// Most bytes of room that it makes at once for what comes of a leaf.
const ROOM_AT_ONCE: usize = 16 << 10;
/// Entries of a leaf that the CPU is told of before they are copied.
const CELLS_AHEAD: usize = 6;
/// It is noted that all entries of a part of a leaf are dead if there are so many: others are gone
/// through soon.
const WORTH_NOTING: usize = 16;

impl Scan {
    /// Copies entries of the next leaf that has any.
    pub(super) fn fetch(&mut self, look: Look) -> Result<(), ScanStop> {
        self.make_room();
        self.next = 0;
        let transactions = self.transactions.clone();
        let s = &*transactions.storage;
        let mut vain = 0;
        while self.copies.entries.is_empty() && !self.done {
            if self.pass_dead(look)? {
                continue;
            }
            match self.fetch_leaf(s, look) {
                Ok(()) => {
                    vain = 0;
                    self.walks.clear();
                    self.look_ahead(s);
                }
                Err(Restart::Error(ScanStop::Held(_))) if !self.copies.entries.is_empty() => break,
                Err(Restart::Error(stop)) => return Err(stop),
                Err(Restart::Stop(stop)) => {
                    if let Stop::Load(_) = stop {
                        if !self.lacks.is_empty() {
                            s.load_many(&self.lacks);
                            self.lacks.clear();
                        } else if !self.copies.entries.is_empty() {
                            break;
                        } else {
                            self.read_from_here(s);
                        }
                    }
                    s.clear_way(stop, &mut vain)?;
                }
            }
        }
        self.most = (2 * self.most).min(1 << 16);
        Ok(())
    }

    /// Takes what was copied out, and makes room for as many entries as are to be copied, if they
    /// are like those.
    fn make_room(&mut self) {
        let entry = self.copies.bytes.len() / self.copies.entries.len().max(1);
        self.copies.clear();
        self.copies.bytes.reserve((entry * self.most).min(ROOM_AT_ONCE));
        self.copies.entries.reserve(self.most.min(ROOM_AT_ONCE / size_of::<EntryPlace>()));
    }

    /// Reads the leaf that is missing together with those behind it, and has more read meanwhile
    /// from now on.
    fn read_from_here(&mut self, s: &Storage) {
        if self.most < READ_AHEAD_FROM {
            return;
        }
        s.load_many(&self.leaves_ahead(s));
        self.looks_ahead_in = Some(READ_AHEAD_EVERY);
    }

    /// Copied from a leaf: has others read that will be needed, now and then.
    #[inline]
    fn look_ahead(&mut self, s: &Storage) {
        let Some(leaves) = &mut self.looks_ahead_in else { return };
        *leaves = leaves.saturating_sub(1);
        if *leaves == 0 && !self.done {
            *leaves = READ_AHEAD_EVERY;
            s.read_ahead(self.leaves_ahead(s));
        }
    }

    /// The leaves that the scan will need next, more if it has copied much.
    fn leaves_ahead(&self, s: &Storage) -> Vec<PageId> {
        let most = (self.most / ENTRIES_PER_LEAF_AHEAD).min(READ_AHEAD);
        let whole = self.whole.as_ref().unwrap_or(&self.range);
        let (from, to) = (self.range.first(self.direction), whole.last(self.direction));
        self.tree.leaves_between(s, from, to, most)
    }

    /// Passes over what is known to be dead where the scan is, locked if what is read is; whether
    /// there was any.
    fn pass_dead(&mut self, look: Look) -> Result<bool, ScanStop> {
        let snapshot = match look {
            Look::At(view) => view.snapshot,
            Look::Newest { .. } => u64::MAX,
        };
        let lock = |passed: &Range| match look {
            Look::Newest { own, ranges: Some(how), .. } => {
                self.lock_range(own, how, (&passed.low, passed.high.as_deref()))
            }
            _ => Ok(()),
        };
        let dead = &self.transactions.dead;
        let left = dead.pass(self.tree.id, &self.range, self.direction, snapshot, lock)?;
        let Some(left) = left else { return Ok(false) };
        self.done = left.is_empty();
        self.range = left;
        Ok(true)
    }

    /// The leaf has nothing in these slots that the scan gives: notes the part of the range, which
    /// they are, if all of them are dead.
    #[cold]
    fn note_if_dead(&self, leaf: &LeafRead<'_>, slots: std::ops::Range<usize>) {
        let mut since = 0;
        for slot in slots {
            match self.transactions.dead_since(&leaf.entry(slot)) {
                Some(at) => since = since.max(at),
                None => return,
            }
        }
        let low = (&self.range.low[..]).max(leaf.lower());
        let high = match (self.range.high.as_deref(), leaf.upper()) {
            (Some(high), Some(upper)) => Some(high.min(upper)),
            (high, upper) => high.or(upper),
        };
        self.transactions.dead.note(self.tree.id, low, high, since);
    }

    fn fetch_leaf(&mut self, s: &Storage, look: Look) -> Result<(), Restart<ScanStop>> {
        let scan_use = self.most > 4096;
        let leaf = self.tree.leaf(s, self.range.first(self.direction), scan_use)?;
        self.walks.begin_turn();
        let before = match look {
            Look::Newest { ranges: Some(_), .. } => Some(self.range.clone()),
            _ => None,
        };
        let fetched = match self.direction {
            Direction::Forward => self.fetch_forward(&leaf, look),
            Direction::Backward => self.fetch_backward(&leaf, look),
        };
        if let (Look::Newest { own, ranges: Some(how), .. }, Some(before)) = (look, before)
            && let Err(stop) = self.lock_fetched(&leaf, own, how, &before)
        {
            // As if it had not been read.
            self.copies.clear();
            (self.range, self.done) = (before, false);
            return Err(Restart::Error(stop));
        }
        fetched
    }

    /// Locks the part of the range before, `range`, that has been read; its leaf is latched.
    fn lock_fetched(
        &mut self,
        leaf: &LeafRead<'_>,
        own: TxnId,
        how: RangeMode,
        range: &Range,
    ) -> Result<(), ScanStop> {
        if how.for_rows {
            self.leave_locked(leaf, own, how, range)?;
        }
        let read = match (self.done, self.direction) {
            (true, _) => (&range.low[..], range.high.as_deref()),
            (false, Direction::Forward) => (&range.low[..], Some(&self.range.low[..])),
            (false, Direction::Backward) => {
                let from = self.range.high.as_deref();
                (from.expect("a scan from the end has come past an entry"), range.high.as_deref())
            }
        };
        self.lock_range(own, how, read)
    }

    /// Locks a range that is being read.
    fn lock_range(
        &self,
        own: TxnId,
        how: RangeMode,
        read: (&[u8], Option<&[u8]>),
    ) -> Result<(), ScanStop> {
        let locks = &self.transactions.locks;
        for tree in [Some(self.tree), self.locks_too].into_iter().flatten() {
            locks.ranges.lock(own, tree.id, read, how).map_err(ScanStop::Held)?;
        }
        Ok(())
    }

    /// Leaves the first row that others have locked to be read later, and what lies behind it: who
    /// holds it may be about to write it, which a range that covers it would keep from that.
    /// `range` is what was left before.
    fn leave_locked(
        &mut self,
        leaf: &LeafRead<'_>,
        own: TxnId,
        how: RangeMode,
        range: &Range,
    ) -> Result<(), ScanStop> {
        let locks = &self.transactions.locks;
        let is_locked =
            |at: &usize| locks.conflicts(own, self.tree.id, self.entry(*at).key, how.mode);
        let Some(at) = (0..self.copies.entries.len()).find(is_locked) else { return Ok(()) };
        let key = self.entry(at).key.to_vec();
        if at == 0 {
            return Err(ScanStop::RowLocked(key));
        }
        self.copies.entries.truncate(at);
        self.done = false;
        self.range = range.clone();
        self.go_on_with(leaf, key, true)
    }

    /// What is left of the range begins with a key; `has_passed`: behind some entries of it. A scan
    /// that came to the same place again and again would never end.
    fn go_on_with(
        &mut self,
        leaf: &LeafRead<'_>,
        key: Vec<u8>,
        has_passed: bool,
    ) -> Result<(), ScanStop> {
        let (range, direction) = (&mut self.range, self.direction);
        let goes_back = range.begins_behind(&key, direction)
            || (has_passed && range.begins_with(&key, direction));
        if goes_back {
            return Err(out_of_order(leaf));
        }
        range.begin_with(key, direction);
        Ok(())
    }

    /// Whether the leaf ends at or behind the range.
    fn ends_in(&self, leaf: &LeafRead<'_>) -> bool {
        match (leaf.upper(), &self.range.high) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(upper), Some(high)) => upper >= &high[..],
        }
    }

    fn fetch_forward(&mut self, leaf: &LeafRead<'_>, look: Look) -> Result<(), Restart<ScanStop>> {
        let (from, _) = leaf.seek(&self.range.low);
        let last = self.ends_in(leaf);
        let to = match &self.range.high {
            Some(high) if last && leaf.upper().is_none_or(|u| &high[..] < u) => leaf.seek(high).0,
            _ => leaf.len(),
        };
        let horizon = self.transactions.horizon();
        for slot in from..to {
            if self.copies.entries.len() >= self.most {
                self.go_on_with(leaf, leaf.key(slot), slot > from)?;
                return Ok(());
            }
            leaf.prefetch_cell(slot + CELLS_AHEAD);
            if let Err(stop) = self.copy(leaf, slot, look, horizon) {
                self.go_on_with(leaf, leaf.key(slot), slot > from)?;
                self.look_for_undo(&stop, leaf, slot..to, look);
                return Err(stop);
            }
        }
        if self.copies.entries.is_empty() && to.saturating_sub(from) >= WORTH_NOTING {
            self.note_if_dead(leaf, from..to);
        }
        match leaf.upper() {
            Some(upper) if !last && *upper <= *self.range.low => return Err(leads_back(leaf)),
            Some(upper) if !last => self.range.low = upper.to_vec(),
            _ => self.done = true,
        }
        Ok(())
    }

    fn fetch_backward(&mut self, leaf: &LeafRead<'_>, look: Look) -> Result<(), Restart<ScanStop>> {
        let to = match &self.range.high {
            Some(high) if leaf.upper().is_none_or(|u| &high[..] < u) => leaf.seek(high).0,
            _ => leaf.len(),
        };
        let first = self.range.low[..] >= *leaf.lower();
        let from = if first { leaf.seek(&self.range.low).0 } else { 0 };
        let horizon = self.transactions.horizon();
        for slot in (from..to).rev() {
            if self.copies.entries.len() >= self.most {
                self.go_on_with(leaf, leaf.key(slot), slot + 1 < to)?;
                return Ok(());
            }
            if let Err(stop) = self.copy(leaf, slot, look, horizon) {
                self.go_on_with(leaf, leaf.key(slot), slot + 1 < to)?;
                self.look_for_undo(&stop, leaf, (from..=slot).rev(), look);
                return Err(stop);
            }
        }
        if self.copies.entries.is_empty() && to.saturating_sub(from) >= WORTH_NOTING {
            self.note_if_dead(leaf, from..to);
        }
        if first || leaf.lower().is_empty() {
            self.done = true;
        } else if self.range.high.as_ref().is_some_and(|high| *leaf.lower() >= **high) {
            return Err(leads_back(leaf));
        } else {
            self.range.high = Some(leaf.lower().to_vec());
        }
        Ok(())
    }

    /// Copies an entry if the look gives it. `horizon`: who wrote before it is seen by everybody.
    #[inline]
    fn copy(
        &mut self,
        leaf: &LeafRead<'_>,
        slot: usize,
        look: Look,
        horizon: TxnId,
    ) -> Result<(), Restart<ScanStop>> {
        let cell = leaf.cell(slot);
        if cell.writer.is_some_and(|writer| writer >= horizon) {
            return self.copy_version(leaf, slot, look);
        }
        if !cell.flags.deleted || cell.flags.hides {
            let key = self.copies.bytes.len();
            self.copies.bytes.reserve(leaf.prefix().len() + cell.bytes.len());
            self.copies.bytes.extend_from_slice(leaf.prefix());
            let value = self.copies.bytes.len() + cell.key_len;
            self.copies.bytes.extend_from_slice(cell.bytes);
            self.note(key, value, cell.flags, false);
        }
        Ok(())
    }

    /// Copies the version of an entry that the look gives.
    fn copy_version(
        &mut self,
        leaf: &LeafRead<'_>,
        slot: usize,
        look: Look,
    ) -> Result<(), Restart<ScanStop>> {
        let entry = leaf.entry(slot);
        let view = match look {
            Look::At(view) => view,
            Look::Newest { own, skip, .. } => {
                return self.copy_newest(leaf, slot, &entry, own, skip);
            }
        };
        let visible = self.transactions.visible(view, &entry, &mut self.walks).map_err(widen)?;
        let is_own = |txn| view.own.0 != 0 && txn == view.own;
        let below = match self.unique && entry.version.is_some_and(|v| is_own(v.txn)) {
            true => {
                let walks = &mut self.walks;
                self.transactions.overwritten_unseen(view, &entry, walks).map_err(widen)?
            }
            false => None,
        };
        // The same value is of the same row, which the transaction has then written.
        let below = below.filter(|(_, below)| visible.as_ref().is_none_or(|(_, v)| v != below));
        if let Some((flags, value)) = &visible {
            let outdated = view.own.0 != 0
                && entry.version.is_some_and(|v| !self.transactions.sees(view, v.txn));
            self.push(leaf, slot, value, *flags, outdated);
        } else if entry.flags.hides && view.own.0 != 0 {
            self.push(leaf, slot, &[], Flags::TOMBSTONE, true);
        }
        if let Some((flags, value)) = &below {
            self.push(leaf, slot, value, *flags, true);
        }
        Ok(())
    }

    /// The first of these entries could not be copied. If that lacks an undo page, finds those that
    /// it and the entries behind it lack, as far as they are to be copied, to be read together; up
    /// to one that needs another turn: so long has the leaf been latched.
    #[cold]
    fn look_for_undo(
        &mut self,
        stop: &Restart<ScanStop>,
        leaf: &LeafRead<'_>,
        slots: impl Iterator<Item = usize>,
        look: Look,
    ) {
        let (Look::At(view), Restart::Stop(Stop::Load(_))) = (look, stop) else { return };
        let most = self.transactions.storage.load_many_max();
        for slot in slots.take(self.most - self.copies.entries.len()) {
            if self.lacks.len() >= most {
                break;
            }
            match self.transactions.visible(view, &leaf.entry(slot), &mut self.walks) {
                Err(Restart::Stop(Stop::Retry)) => break,
                Err(Restart::Stop(Stop::Load(page))) if !self.lacks.contains(&page) => {
                    self.lacks.push(page);
                }
                // What else is wrong is told when the scan comes to the entry.
                _ => {}
            }
        }
    }

    /// Copies an entry's newest version, unless it is dead or held.
    fn copy_newest(
        &mut self,
        leaf: &LeafRead<'_>,
        slot: usize,
        entry: &Entry<'_>,
        own: TxnId,
        skip: bool,
    ) -> Result<(), Restart<ScanStop>> {
        if let Some(v) =
            entry.version.filter(|v| v.txn != own && self.transactions.is_active(v.txn))
        {
            if !skip {
                return Err(Restart::Error(ScanStop::Held(v.txn)));
            }
            // What it hides is passed over, too.
            if entry.flags.hides {
                self.push(leaf, slot, &[], Flags::TOMBSTONE, false);
            }
            return Ok(());
        }
        if !entry.flags.deleted || entry.flags.hides {
            self.push(leaf, slot, entry.value, entry.flags, false);
        }
        Ok(())
    }

    fn push(
        &mut self,
        leaf: &LeafRead<'_>,
        slot: usize,
        value: &[u8],
        flags: Flags,
        outdated: bool,
    ) {
        let key = self.copies.bytes.len();
        self.copies.bytes.extend_from_slice(leaf.prefix());
        self.copies.bytes.extend_from_slice(leaf.suffix(slot));
        let value_at = self.copies.bytes.len();
        self.copies.bytes.extend_from_slice(value);
        self.note(key, value_at, flags, outdated);
    }

    /// Notes what has been copied: from `key` and `value` on.
    #[inline]
    fn note(&mut self, key: usize, value: usize, flags: Flags, outdated: bool) {
        let (key, value, end) = (key as u32, value as u32, self.copies.bytes.len() as u32);
        let Flags { deleted, overflow, hides } = flags;
        self.copies.entries.push(EntryPlace {
            key,
            value,
            end,
            overflow,
            outdated,
            hides,
            deleted,
        });
    }
}

/// See [`Scan::cut`].
pub(super) fn cut_in(
    leaf: &LeafRead<'_>,
    range: &Range,
    direction: Direction,
    most: usize,
) -> Option<Vec<u8>> {
    match direction {
        Direction::Forward => {
            let at = leaf.seek(&range.low).0 + most;
            let cut = match at < leaf.len() {
                true => Some(leaf.key(at)),
                false => leaf.upper().map(<[u8]>::to_vec),
            };
            cut.filter(|cut| *cut > range.low && range.reaches_beyond(cut))
        }
        Direction::Backward => {
            let to = match &range.high {
                Some(high) if leaf.upper().is_none_or(|u| &high[..] < u) => leaf.seek(high).0,
                _ => leaf.len(),
            };
            let cut = match to > most {
                true => after(leaf, to - most - 1),
                false => leaf.lower().to_vec(),
            };
            (cut > range.low && range.reaches_beyond(&cut)).then_some(cut)
        }
    }
}

/// Not the leaf that a scan looked for: it would come here again and again.
#[cold]
fn leads_back(leaf: &LeafRead<'_>) -> Restart<ScanStop> {
    Restart::Error(Fault::stray_page(leaf.page()).into())
}

/// The leaf's keys are not in the order of its slots, or of their heads, whatever its checksum
/// says.
#[cold]
fn out_of_order(leaf: &LeafRead<'_>) -> ScanStop {
    Fault::page(leaf.page(), "has keys that are out of order, though its checksum is right").into()
}

impl From<ScanStop> for Restart<ScanStop> {
    fn from(stop: ScanStop) -> Self {
        Restart::Error(stop)
    }
}

fn widen(restart: Restart<Fault>) -> Restart<ScanStop> {
    match restart {
        Restart::Stop(stop) => Restart::Stop(stop),
        Restart::Error(fault) => Restart::Error(ScanStop::Fault(fault)),
    }
}

/// The least key above that of a slot.
fn after(leaf: &LeafRead<'_>, slot: usize) -> Vec<u8> {
    [leaf.prefix(), leaf.suffix(slot), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{commit, transactions, tree};
    use super::super::super::{Op, View};
    use super::*;

    const ROWS: u8 = 10;
    /// More than are gone through at once.
    const UPDATES: u16 = 300;

    /// It held the leaf while it went through those of all its neighbours, too.
    #[test]
    fn a_chain_that_needs_another_turn_ends_the_look_for_undo() {
        let txns = transactions(400);
        let rows = tree(&txns);
        (0..ROWS).for_each(|row| commit(&txns, rows, &[row], Op::Insert(b"old")));
        let mut reader = txns.begin();
        let look = Look::At(reader.view());
        for n in 0..UPDATES {
            (0..ROWS).for_each(|row| commit(&txns, rows, &[row], Op::Update(&n.to_be_bytes())));
        }
        let s = &*txns.storage;
        let lacks_a_page = Restart::Stop(Stop::Load(PageId(0)));
        for direction in [Direction::Forward, Direction::Backward] {
            let mut scan = Scan::new(txns.clone(), rows, Range::default(), direction, 1000);
            let stop = scan.fetch_leaf(s, look);
            assert!(matches!(stop, Err(Restart::Stop(Stop::Retry))));
            assert_eq!(scan.walks.len(), 1);
            let leaf = rows.leaf(s, scan.range.first(direction), true).unwrap();
            scan.walks.clear();
            scan.walks.begin_turn();
            scan.look_for_undo(&lacks_a_page, &leaf, 0..ROWS.into(), look);
            assert_eq!(scan.walks.len(), 1);
            drop(leaf);
            let view = View { own: TxnId(0), ..reader.view() };
            let mut values = 0;
            while let Some(entry) = scan.next(view).unwrap() {
                assert_eq!(entry.value, b"old");
                values += 1;
            }
            assert_eq!(values, ROWS);
        }
    }

    /// Chains none of which takes long kept the leaf latched together.
    #[test]
    fn many_chains_of_a_leaf_are_gone_through_in_turns() {
        let txns = transactions(400);
        let rows = tree(&txns);
        (0..ROWS).for_each(|row| commit(&txns, rows, &[row], Op::Insert(b"old")));
        let mut reader = txns.begin();
        let look = Look::At(reader.view());
        for n in 0..100_u16 {
            (0..ROWS).for_each(|row| commit(&txns, rows, &[row], Op::Update(&n.to_be_bytes())));
        }
        for direction in [Direction::Forward, Direction::Backward] {
            let mut scan = Scan::new(txns.clone(), rows, Range::default(), direction, 1000);
            for copied in [2, 5, 7] {
                let stop = scan.fetch_leaf(&txns.storage, look);
                assert!(matches!(stop, Err(Restart::Stop(Stop::Retry))));
                assert_eq!(scan.copies.entries.len(), copied);
            }
            assert!(scan.fetch_leaf(&txns.storage, look).is_ok());
            assert_eq!(scan.copies.entries.len(), ROWS.into());
        }
    }
}

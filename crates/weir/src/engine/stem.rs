//! The entries of a stem, in the order of their keys.
//!
//! Long keys that begin with the same 3,500 bytes share a stem, and lie in their tree in the order
//! of hashes ([`crate::key::long`]). A scan that comes to one of them reads all that share its
//! stem, by a scan of its own, and gives them sorted. If they take more than [`MEMORY_BYTES`], it
//! keeps those that come first, gives these, and reads the stem again for those behind: however
//! many there are, they are given in order, in bounded memory. A locking scan locks all that it
//! reads; a row is looked up anew if its transaction has changed anything since.

use super::error::Result;
use super::read::lacks_rest;
use super::scan::{Begin, RawEntry, RawScan, Reads, tree_of};
use super::transaction::Transaction;
use crate::key::after_prefix;
use crate::key::long::{PLAIN, is_long, is_short_form, split_rest, whole_key};
use crate::schema::KeyOf;
use crate::txn::{Direction, Range, View};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Bytes of entries that are sorted at once; one entry may have more.
const MEMORY_BYTES: usize = 4 << 20;
/// What an entry takes in memory beside its bytes, about.
const ENTRY_BYTES: usize = 128;

/// What stored keys of a range lie between. `None`: the range needs no look at whole keys.
pub(super) fn stored_range(range: &mut Range) -> Option<Box<Range>> {
    let high_is_long = range.high.as_deref().is_some_and(is_long);
    if !is_long(&range.low) && !high_is_long {
        return None;
    }
    let whole = Box::new(range.clone());
    if is_long(&range.low) {
        // Behind the stem alone, which is a plain key, and before all short forms.
        range.low.truncate(PLAIN);
        range.low.push(0);
    }
    if high_is_long {
        range.high = range.high.take().and_then(|high| after_prefix(high[..PLAIN].to_vec()));
    }
    Some(whole)
}

/// An entry, less its key.
struct Found {
    value: Vec<u8>,
    current: bool,
}

/// A running scan of a stem.
pub(super) struct StemScan {
    stem: Vec<u8>,
    begin: Begin,
    direction: Direction,
    /// What reads the stem, while it does.
    reads: Option<RawScan>,
    /// What has been read and is to be given, by the rest of its key. An old snapshot's and the
    /// transaction's own entry of a unique index may have the same key.
    sorted: BTreeMap<Vec<u8>, Vec<Found>>,
    sorted_bytes: usize,
    /// Rest of the key that was given last.
    given: Option<Vec<u8>>,
    /// Whether that is to be given again.
    gives_again: bool,
    /// Rest of the first key that has to be left to another pass.
    left: Option<Vec<u8>>,
    /// Whether all have been read that are to be given.
    is_read: bool,
    /// Changes that the transaction had made when the pass began.
    changes: u64,
    /// The entry at hand: its key, and what belongs to it.
    key: Vec<u8>,
    at_hand: Option<Found>,
}

impl StemScan {
    /// A scan of the stem that a short form begins with.
    pub fn new(short_form: &[u8], begin: Begin, direction: Direction) -> StemScan {
        StemScan {
            stem: short_form[..PLAIN].to_vec(),
            begin,
            direction,
            reads: None,
            sorted: BTreeMap::new(),
            sorted_bytes: 0,
            given: None,
            gives_again: false,
            left: None,
            is_read: false,
            changes: 0,
            key: Vec::new(),
            at_hand: None,
        }
    }

    /// Whether a short form is of this stem.
    pub fn is_of(&self, short_form: &[u8]) -> bool {
        short_form.starts_with(&self.stem)
    }

    /// The entry that was given last, unless all have been given.
    pub fn last(&self) -> Option<RawEntry<'_>> {
        let Found { value, current } = self.at_hand.as_ref()?;
        Some(RawEntry { key: &self.key, value, current: *current })
    }

    /// Has what lies behind `key`, which has been given, read anew, as `reads` says from there on.
    pub fn read_anew_behind(&mut self, key: &[u8], reads: Reads) {
        self.begin.reads = reads;
        (self.given, self.gives_again) = (Some(key[PLAIN..].to_vec()), false);
        self.read_rest_anew();
    }

    /// Has what has not been given read anew.
    pub fn read_rest_anew(&mut self) {
        (self.reads, self.left, self.is_read) = (None, None, false);
        self.sorted.clear();
    }

    /// Has the entry that was given last given again.
    ///
    /// # Panics
    /// If there is none.
    pub fn give_again(&mut self) {
        let found = self.at_hand.take().expect("an entry has been given");
        self.sorted.entry(self.key[PLAIN..].to_vec()).or_default().push(found);
        self.gives_again = true;
    }

    /// Goes on to the next entry whose key is within `limits`; `false` once all have been given.
    ///
    /// # Errors
    /// As [`RawScan::next`]; what has been read is kept.
    pub fn next(&mut self, txn: &mut Transaction, limits: Option<&Range>) -> Result<bool> {
        self.at_hand = None;
        loop {
            while self.reads.is_none() && self.take_first() {
                if self.is_there(txn)? {
                    return Ok(true);
                }
            }
            if self.is_read {
                return Ok(false);
            }
            self.read(txn, limits)?;
        }
    }

    /// Brings the row at hand up to date if the scan is one of rows under lock and its transaction
    /// has changed anything since they were read; `false` if it is gone. If it can't, the scan
    /// comes to the row again.
    fn is_there(&mut self, txn: &mut Transaction) -> Result<bool> {
        let locks_rows =
            self.begin.of == KeyOf::Primary && matches!(self.begin.reads, Reads::Locked(..));
        if !locks_rows || txn.change_count()? == self.changes {
            return Ok(true);
        }
        let found = self.at_hand.as_mut().expect("a row has been taken");
        let newest = View { own: txn.own_id()?, snapshot: View::EVERYTHING };
        let is_there = txn.get_in(newest, self.begin.def.primary, &self.key, &mut found.value);
        if is_there.is_err() {
            self.give_again();
        }
        is_there
    }

    /// Takes the first of those that are sorted; `false` if there are none.
    fn take_first(&mut self) -> bool {
        let first = match self.direction {
            Direction::Forward => self.sorted.first_entry(),
            Direction::Backward => self.sorted.last_entry(),
        };
        let Some(mut first) = first else { return false };
        let found = first.get_mut().pop().expect("a key that was read has an entry");
        let rest = first.key().clone();
        if first.get().is_empty() {
            first.remove();
        }
        self.key = whole_key(&self.stem, &rest);
        (self.given, self.gives_again) = (Some(rest), false);
        self.at_hand = Some(found);
        true
    }

    /// Reads the stem for what comes behind the key that was given last.
    fn read(&mut self, txn: &mut Transaction, limits: Option<&Range>) -> Result<()> {
        let mut reads = match self.reads.take() {
            Some(reads) => reads,
            None => {
                (self.left, self.sorted_bytes, self.changes) = (None, 0, txn.change_count()?);
                let range = Range { low: self.stem.clone(), high: after_prefix(self.stem.clone()) };
                RawScan::new(txn, self.begin.clone(), range, Direction::Forward, None)
            }
        };
        loop {
            let kept = match reads.next_stored(txn) {
                Ok(true) => self.keep(reads.last(), limits).inspect_err(|_| reads.give_again()),
                Ok(false) => {
                    self.is_read = self.left.is_none();
                    return Ok(());
                }
                Err(error) => Err(error),
            };
            if let Err(error) = kept {
                self.reads = Some(reads);
                return Err(error);
            }
        }
    }

    /// Keeps an entry if it is to be given in this pass.
    fn keep(&mut self, stored: RawEntry<'_>, limits: Option<&Range>) -> Result<()> {
        if !is_short_form(stored.key) {
            // A key that is no longer than the stem is given by the scan that came here.
            return Ok(());
        }
        let split = split_rest(stored.value);
        let tree = tree_of(&self.begin.def, self.begin.of);
        let (value, rest) = split.ok_or_else(|| lacks_rest(tree))?;
        let order = |one, other| self.direction.order(one, other);
        let was_given = self.given.as_ref().is_some_and(|given| match order(rest, given) {
            Ordering::Equal => !self.gives_again,
            order => order.is_lt(),
        });
        let is_left = self.left.as_ref().is_some_and(|left| order(rest, left).is_ge());
        if was_given || is_left || !self.is_within(limits, rest) {
            return Ok(());
        }
        self.sorted_bytes += ENTRY_BYTES + rest.len() + value.len();
        let found = Found { value: value.to_vec(), current: stored.current };
        self.sorted.entry(rest.to_vec()).or_default().push(found);
        while self.sorted_bytes > MEMORY_BYTES && self.sorted.len() > 1 {
            let last = match self.direction {
                Direction::Forward => self.sorted.pop_last(),
                Direction::Backward => self.sorted.pop_first(),
            };
            let (rest, found) = last.expect("there is more than one");
            let bytes = |found: &Found| ENTRY_BYTES + rest.len() + found.value.len();
            self.sorted_bytes -= found.iter().map(bytes).sum::<usize>();
            self.left = Some(rest);
        }
        Ok(())
    }

    fn is_within(&self, limits: Option<&Range>, rest: &[u8]) -> bool {
        let Some(Range { low, high }) = limits else { return true };
        // Compared part by part, so that the key needn't be put together.
        let cmp = |end: &[u8]| {
            let (stem, behind) = end.split_at(end.len().min(PLAIN));
            self.stem[..].cmp(stem).then_with(|| rest.cmp(behind))
        };
        cmp(low).is_ge() && high.as_deref().is_none_or(|high| cmp(high).is_lt())
    }
}

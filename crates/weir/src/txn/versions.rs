//! An entry's versions: from the newest one back, undo record by undo record.
//!
//! Undo records lie in pages that may have to be read first. Who comes to such a page gives up the entry's leaf, has the
//! page read, and begins anew. [`Walks`] keep how far it had come: so each page of a long chain is needed once, and
//! nobody has to have all of them in memory together. What takes long is done in turns, between which others come to
//! the leaf.

use super::{Transactions, View};
use crate::storage::{Fault, Restart, Stop, Storage};
use std::borrow::Cow;
use std::collections::HashMap;
use weir_page::TxnId;
use weir_page::undo::{self, Undo};
use weir_page::version::{Entry, Flags, UndoPtr, Version};

/// Undo records gone through while a leaf is latched: so long others wait who want to change it.
const AT_ONCE: usize = 256;
/// It is kept how far back an entry was looked at if that took so many records: to go through fewer again costs little.
const WORTH_KEEPING: usize = 16;
/// So often [`AT_ONCE`] is doubled, at most.
const DOUBLED_MAX: u32 = 32;

/// What a view sees of an entry: whether the value is a reference to a chain, and its bytes.
pub type Seen<'e> = Option<(bool, Cow<'e, [u8]>)>;

/// How far back a snapshot's looks at entries have come where they had to stop. The snapshot lives meanwhile.
#[derive(Default)]
pub struct Walks {
    snapshot: u64,
    /// By the version that a part of a chain began with.
    reached: HashMap<Version, Reached>,
    /// Records that may still be gone through before the leaf is given up.
    left: usize,
    /// The running transaction among whose versions a look stopped last, and how much it had taken back.
    stopped_in: Option<(TxnId, u64)>,
    /// How often one had taken back writes before the next look, so that nothing was kept.
    lost: u32,
}

/// What comes before a version: the entry as it was then. That changes no more while the version is in the chain and the
/// snapshot lives; but a running transaction may take the version back, and write another one in its place.
struct Reached {
    /// How much the version's transaction had taken back, if it ran.
    taken_back: Option<u64>,
    entry: AsOf<'static>,
}

/// A part of a chain that is gone through: the versions of a running transaction, which are the newest, or all others.
struct Part {
    begin: Version,
    /// How much the transaction has taken back, if it runs.
    taken_back: Option<u64>,
    steps: usize,
    /// Whether it was gone through before.
    is_kept: bool,
}

impl Part {
    fn goes_on_with(&self, version: Version) -> bool {
        self.taken_back.is_none() || version.txn == self.begin.txn
    }
}

impl Walks {
    /// What was reached isn't needed any more.
    pub fn clear(&mut self) {
        self.reached.clear();
        (self.stopped_in, self.lost) = (None, 0);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.reached.len()
    }

    /// A leaf has been latched for looks at its entries.
    pub fn begin_turn(&mut self) {
        self.left = AT_ONCE << self.lost;
    }

    /// For a look at this snapshot from now on.
    fn look_at(&mut self, snapshot: u64) {
        if self.snapshot != snapshot {
            self.snapshot = snapshot;
            self.clear();
        }
    }

    /// How far an earlier look came from a version that is in the part.
    fn take(&mut self, part: &Part, version: Version) -> Option<AsOf<'static>> {
        if self.reached.is_empty() {
            return None;
        }
        let reached = self.reached.remove(&version)?;
        (reached.taken_back == part.taken_back).then_some(reached.entry)
    }

    /// Keeps how far the part was gone through, if it is worth it.
    fn keep(&mut self, part: &Part, at: &AsOf<'_>, stopped: bool) {
        // Where somebody has stopped, the looks at its neighbours are repeated with its own.
        let repeated = stopped || !self.reached.is_empty();
        if part.is_kept || part.steps >= WORTH_KEEPING || (part.steps > 0 && repeated) {
            let entry = at.clone().into_owned();
            self.reached.insert(part.begin, Reached { taken_back: part.taken_back, entry });
        }
        if stopped && let Some(taken_back) = part.taken_back {
            let before = self.stopped_in.replace((part.begin.txn, taken_back));
            // Beside one that goes on taking back writes, nobody would get anywhere little by little.
            if before.is_some_and(|(txn, before)| txn == part.begin.txn && before != taken_back) {
                self.lost = (self.lost + 1).min(DOUBLED_MAX);
            }
        }
    }
}

/// An entry as of one of its versions.
#[derive(Clone)]
struct AsOf<'e> {
    flags: Flags,
    version: Option<Version>,
    value: Cow<'e, [u8]>,
}

impl AsOf<'_> {
    fn into_owned(self) -> AsOf<'static> {
        AsOf { value: Cow::Owned(self.value.into_owned()), ..self }
    }
}

/// How a walk ended.
enum End {
    /// At the version looked for.
    Found,
    /// With an insert: the entry wasn't there before.
    Absent,
    Stopped(Restart<Fault>),
}

impl Transactions {
    /// The version of an entry that `view` sees: whether it overflows, and its bytes. The entry's
    /// leaf is latched.
    ///
    /// # Errors
    /// [`Restart`]: an undo page must be loaded first; undo that doesn't fit the entry.
    pub fn visible<'e>(
        &self,
        view: View,
        entry: &Entry<'e>,
        walks: &mut Walks,
    ) -> Result<Seen<'e>, Restart<Fault>> {
        walks.look_at(view.snapshot);
        self.newest_version(entry, walks, |txn| self.sees(view, txn))
    }

    /// What the view's snapshot covers of an entry that the view's transaction has written over a version
    /// that the snapshot does not cover; else `None`. The entry's leaf is latched.
    ///
    /// # Errors
    /// As [`Transactions::visible`].
    pub fn overwritten_unseen<'e>(
        &self,
        view: View,
        entry: &Entry<'e>,
        walks: &mut Walks,
    ) -> Result<Seen<'e>, Restart<Fault>> {
        walks.look_at(view.snapshot);
        let (covered, mut passed_unseen) = (View { own: TxnId(0), ..view }, false);
        let seen = self.newest_version(entry, walks, |txn| {
            let stops = txn != view.own && self.sees(covered, txn);
            passed_unseen |= !stops && txn != view.own;
            stops
        })?;
        Ok(seen.filter(|_| passed_unseen))
    }

    /// The newest version of an entry by a transaction that `is_it` accepts, or without a header. Of those that have
    /// committed, `is_it` accepts who the snapshot of `walks` covers.
    fn newest_version<'e>(
        &self,
        entry: &Entry<'e>,
        walks: &mut Walks,
        mut is_it: impl FnMut(TxnId) -> bool,
    ) -> Result<Seen<'e>, Restart<Fault>> {
        let Entry { flags, version, value } = *entry;
        let mut at = AsOf { flags, version, value: Cow::Borrowed(value) };
        let mut part: Option<Part> = None;
        let end = loop {
            let Some(v) = at.version.filter(|v| !is_it(v.txn)) else { break End::Found };
            if v.undo.is_insert() {
                break End::Absent;
            }
            let part = match &mut part {
                Some(part) if part.goes_on_with(v) => part,
                before => {
                    before.iter().for_each(|part| walks.keep(part, &at, false));
                    let taken_back = self.taken_back(v.txn);
                    before.insert(Part { begin: v, taken_back, steps: 0, is_kept: false })
                }
            };
            // Also further back: there may be newer versions than at the look before.
            if let Some(entry) = walks.take(part, v) {
                (at, part.is_kept) = (entry, true);
                continue;
            }
            if walks.left == 0 {
                break End::Stopped(Stop::Retry.into());
            }
            match before(&self.storage, v.undo, &at) {
                Ok(before) => at = before,
                Err(restart) => break End::Stopped(restart),
            }
            walks.left -= 1;
            part.steps += 1;
        };
        let stopped = matches!(end, End::Stopped(_));
        part.iter().for_each(|part| walks.keep(part, &at, stopped));
        match end {
            End::Found => Ok((!at.flags.deleted).then_some((at.flags.overflow, at.value))),
            End::Absent => Ok(None),
            End::Stopped(restart) => Err(restart),
        }
    }
}

/// The state before a version, by its undo record.
fn before<'e>(s: &Storage, at: UndoPtr, state: &AsOf<'e>) -> Result<AsOf<'e>, Restart<Fault>> {
    let page = s.read(at.page, false)?;
    let wrong = |what: &str| {
        Restart::Error(Fault::page(at.page, format!("undo record at {}: {what}", at.offset)))
    };
    let record = undo::record(&page, at.offset).ok_or_else(|| wrong("is none"))?;
    match record.undo {
        Undo::Delete { flags, version, .. } => {
            Ok(AsOf { flags, version, value: state.value.clone() })
        }
        Undo::Update { flags, version, delta, .. } => {
            if !delta.fits(state.value.len()) {
                return Err(wrong("keeps more bytes than there are"));
            }
            Ok(AsOf { flags, version, value: Cow::Owned(delta.apply(&state.value)) })
        }
        _ => Err(wrong("is not of a version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::{Target, Tree};
    use crate::txn::tests::{commit, transactions, tree};
    use crate::txn::{Direction, Op, Range, Scan, Txn};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    const ROWS: u8 = 100;

    /// Updates of another row, whose undo fills a page.
    fn fill_a_page(txns: &Arc<Transactions>, tree: Tree, round: u8) {
        for n in 0..6 {
            commit(txns, tree, b"other", Op::Upsert(&[round ^ n; 3000]));
        }
    }

    fn loaded(txns: &Transactions) -> u64 {
        txns.storage.figures.pages_loaded.load(Ordering::Relaxed)
    }

    fn all(txns: &Arc<Transactions>, tree: Tree, view: View, direction: Direction) -> Vec<Vec<u8>> {
        let mut scan = Scan::new(txns.clone(), tree, Range::default(), direction, 1000);
        let mut values = Vec::new();
        while let Some(row) = scan.next(view).unwrap() {
            values.push(row.value.to_vec());
        }
        values
    }

    /// Who began the chain anew at each page of it had to find those before in memory.
    #[test]
    fn a_chain_of_more_pages_than_there_are_frames_is_gone_through_once() {
        let txns = transactions(64);
        let (rows, others) = (tree(&txns), tree(&txns));
        commit(&txns, rows, b"row", Op::Insert(b"old"));
        let mut reader = txns.begin();
        let view = reader.view();
        for round in 0..ROWS {
            commit(&txns, rows, b"row", Op::Update(&[round]));
            fill_a_page(&txns, others, round);
        }
        let before = loaded(&txns);
        let mut value = Vec::new();
        assert!(reader.get_into(view, rows, b"row", &mut value).unwrap());
        assert_eq!(value, b"old");
        for direction in [Direction::Forward, Direction::Backward] {
            assert_eq!(all(&txns, rows, view, direction), [b"old"]);
        }
        let loads = loaded(&txns) - before;
        assert!(loads < 4 * u64::from(ROWS), "{loads} loads");
    }

    /// A look at the only row, for one turn: what it gives, unless it takes another.
    fn look(
        txns: &Transactions,
        rows: Tree,
        view: View,
        walks: &mut Walks,
    ) -> Option<Option<Vec<u8>>> {
        let seen = || {
            let leaf = rows.leaf(&txns.storage, Target::At(b"row"), false)?;
            walks.begin_turn();
            let seen = txns.visible(view, &leaf.entry(0), walks)?;
            Ok::<_, Restart<Fault>>(seen.map(|(_, value)| value.into_owned()))
        };
        match { seen }() {
            Ok(seen) => Some(seen),
            Err(Restart::Stop(Stop::Retry)) => None,
            Err(Restart::Stop(Stop::Load(page))) => {
                assert!(txns.storage.load(page).unwrap());
                None
            }
            Err(Restart::Error(fault)) => panic!("{fault}"),
        }
    }

    /// How many turns it takes to see what was there at first. `meanwhile`: what is done between them.
    fn turns_to_old(
        txns: &Transactions,
        rows: Tree,
        view: View,
        most: usize,
        mut meanwhile: impl FnMut(usize),
    ) -> usize {
        let mut walks = Walks::default();
        for turn in 1..=most {
            if let Some(seen) = look(txns, rows, view, &mut walks) {
                assert_eq!(seen.unwrap(), b"old");
                return turn;
            }
            meanwhile(turn);
        }
        panic!("not through after {most} turns");
    }

    /// Each version that was new was the begin of another walk, and none came to its end.
    #[test]
    fn a_chain_that_grows_meanwhile_is_gone_through_all_the_same() {
        let txns = transactions(200);
        let rows = tree(&txns);
        commit(&txns, rows, b"row", Op::Insert(b"old"));
        let mut reader = txns.begin();
        let view = reader.view();
        let write = |n: usize| commit(&txns, rows, b"row", Op::Update(&n.to_be_bytes()));
        (0..4 * AT_ONCE).for_each(write);
        turns_to_old(&txns, rows, view, 5, write);
    }

    /// All of it was gone through with the leaf latched.
    #[test]
    fn what_a_running_transaction_writes_is_gone_through_in_turns() {
        let txns = transactions(200);
        let rows = tree(&txns);
        commit(&txns, rows, b"row", Op::Insert(b"old"));
        let mut reader = txns.begin();
        let view = reader.view();
        commit(&txns, rows, b"row", Op::Update(b"new"));
        let mut writer = txns.begin();
        let mut write = |n: usize| {
            writer.write(rows, b"row", Op::Update(&n.to_be_bytes())).unwrap();
        };
        (0..4 * AT_ONCE).for_each(&mut write);
        assert!(turns_to_old(&txns, rows, view, 6, write) >= 5);
    }

    /// Each look began anew, and came to its end only where all pages were in memory together.
    #[test]
    fn what_a_running_transaction_writes_may_take_more_pages_than_there_are_frames() {
        let txns = transactions(64);
        let (rows, others) = (tree(&txns), tree(&txns));
        commit(&txns, rows, b"row", Op::Insert(b"old"));
        let mut reader = txns.begin();
        let view = reader.view();
        let mut writer = txns.begin();
        let mut write = |round: usize| {
            writer.write(rows, b"row", Op::Update(&round.to_be_bytes())).unwrap();
            for n in 0..6 {
                writer.write(others, b"other", Op::Upsert(&[round as u8 ^ n; 3000])).unwrap();
            }
        };
        (0..ROWS.into()).for_each(&mut write);
        turns_to_old(&txns, rows, view, 4 * usize::from(ROWS), |turn| {
            if turn % 10 == 0 {
                write(turn);
            }
        });
    }

    /// The places of undo records that were taken back are others' then. What was reached before says nothing of them.
    #[test]
    fn what_is_taken_back_between_two_looks_leads_nobody_astray() {
        let txns = transactions(200);
        let rows = tree(&txns);
        let old = vec![0; 3000];
        commit(&txns, rows, b"row", Op::Insert(&old));
        let mut reader = txns.begin();
        let view = reader.view();
        let mut writer = txns.begin();
        writer.write(rows, b"row", Op::Update(&old)).unwrap();
        let begin = writer.savepoint();
        // Undo records of one length, each of one byte.
        let write = |writer: &mut Txn, from: usize| {
            let mut value = old.clone();
            for byte in from..from + AT_ONCE + 50 {
                value[byte] = 1;
                writer.write(rows, b"row", Op::Update(&value)).unwrap();
            }
            rows.leaf(&txns.storage, Target::At(b"row"), false).unwrap().entry(0).version
        };
        let mut walks = Walks::default();
        let before = write(&mut writer, 200);
        assert_eq!(look(&txns, rows, view, &mut walks), None);
        writer.rollback_to(begin).unwrap();
        assert_eq!(write(&mut writer, 1000), before, "it takes the same place");
        let seen = std::iter::repeat_with(|| look(&txns, rows, view, &mut walks)).flatten().next();
        assert!(seen.unwrap().unwrap() == old);
    }

    /// Where nothing is kept from turn to turn, turns become longer.
    #[test]
    fn who_takes_back_writes_all_the_time_keeps_nobody_from_what_was_before() {
        let txns = transactions(200);
        let rows = tree(&txns);
        commit(&txns, rows, b"row", Op::Insert(b"old"));
        let mut reader = txns.begin();
        let view = reader.view();
        let mut writer = txns.begin();
        for n in 0..16 * AT_ONCE {
            writer.write(rows, b"row", Op::Update(&n.to_be_bytes())).unwrap();
        }
        turns_to_old(&txns, rows, view, 8, |turn| {
            let before = writer.savepoint();
            writer.write(rows, b"row", Op::Update(&[turn as u8; 9])).unwrap();
            writer.rollback_to(before).unwrap();
            writer.write(rows, b"row", Op::Update(&turn.to_be_bytes())).unwrap();
        });
    }

    #[test]
    fn undo_pages_that_neighbours_need_are_read_together() {
        let txns = transactions(200);
        let (rows, others) = (tree(&txns), tree(&txns));
        (0..ROWS).for_each(|row| commit(&txns, rows, &[row], Op::Insert(&[row])));
        let mut reader = txns.begin();
        let view = reader.view();
        for round in 0..3 {
            for row in 0..ROWS {
                commit(&txns, rows, &[row], Op::Update(&[row, round]));
                fill_a_page(&txns, others, row);
            }
        }
        let s = &txns.storage;
        s.evict_step(180).unwrap();
        let expected: Vec<Vec<u8>> = (0..ROWS).map(|row| vec![row]).collect();
        let before = loaded(&txns);
        assert_eq!(all(&txns, rows, view, Direction::Forward), expected);
        let loads = loaded(&txns) - before;
        assert!(loads < 3 * u64::from(ROWS) / 2, "{loads} pages were read one by one");
    }
}

//! An entry's versions: from the newest one back, undo record by undo record.
//!
//! Undo records lie in pages that may have to be read first. Who comes to such a page gives up the
//! entry's leaf, has the page read, and begins anew. [`Walks`] keep how far it had come: so each
//! page of a long chain is needed once, and nobody has to have all of them in memory together. What
//! takes long is done in turns, between which others come to the leaf.

use super::undo_record::BEFORE_BURIED;
use super::{Transactions, View};
use crate::storage::{Fault, Restart, Stop, Storage, work};
use std::borrow::Cow;
use std::collections::HashMap;
use weir_page::undo::{self, Undo};
use weir_page::version::{Entry, Flags, UndoPtr, Version};
use weir_page::{Lsn, Page, TxnId};

/// Undo records gone through while a leaf is latched: so long others wait who want to change it.
const AT_ONCE: usize = 256;
/// It is kept how far back an entry was looked at if that took so many records: to go through fewer
/// again costs little.
const WORTH_KEEPING: usize = 16;
/// So often [`AT_ONCE`] is doubled, at most.
const DOUBLED_MAX: u32 = 32;

/// What a view sees of an entry: its flags, and the bytes of its value. Of what is dead it sees
/// nothing but tombstones.
pub type Seen<'e> = Option<(Flags, Cow<'e, [u8]>)>;

/// How far back a snapshot's looks at entries of one tree have come where they had to stop. The
/// snapshot lives meanwhile. Who looks into two trees, which may hold the same keys, keeps one for
/// each.
#[derive(Default)]
pub struct Walks {
    snapshot: u64,
    /// Of versions of transactions that have ended: what comes before them. By the version that a
    /// chain's part began with.
    ended: HashMap<Version, AsOf<'static>>,
    /// Of versions of running transactions, by the entry's key.
    running: HashMap<Vec<u8>, Reached<'static>>,
    /// Records that may still be gone through before the leaf is given up.
    left: usize,
    /// After how many turns something that was reached had been taken back before the next look.
    lost: u32,
    /// Whether that was so at this turn.
    loses: bool,
}

/// An entry as of a version whose undo record was gone through. A running transaction may take the
/// version back, and write another one in its place: not without a change of the undo page.
struct Reached<'e> {
    entry: AsOf<'e>,
    version: Version,
    /// The undo page's.
    lsn: Lsn,
}

/// A part of a chain that is gone through: the versions of a running transaction, which are the
/// newest, or all others.
struct Part<'e> {
    begin: Version,
    runs: bool,
    steps: usize,
    /// Whether it was gone through before.
    is_kept: bool,
    /// Where the last step was made from.
    last: Option<Reached<'e>>,
}

impl Part<'_> {
    fn goes_on_with(&self, version: Version) -> bool {
        !self.runs || version.txn == self.begin.txn
    }
}

impl Walks {
    /// What was reached isn't needed any more.
    pub fn clear(&mut self) {
        self.ended.clear();
        self.running.clear();
        (self.lost, self.loses) = (0, false);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.ended.len() + self.running.len()
    }

    fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.running.is_empty()
    }

    /// A leaf has been latched for looks at its entries.
    pub fn begin_turn(&mut self) {
        // Beside one that goes on taking back writes, nobody would get anywhere little by little.
        let lost = self.lost + u32::from(std::mem::take(&mut self.loses));
        self.lost = lost.min(DOUBLED_MAX);
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
    fn take(
        &mut self,
        s: &Storage,
        part: &Part<'_>,
        version: Version,
    ) -> Result<Option<AsOf<'static>>, Restart<Fault>> {
        if self.is_empty() {
            return Ok(None);
        }
        if !part.runs {
            // Also further back: there may be newer versions than at the look before.
            return Ok(self.ended.remove(&version));
        }
        if part.steps > 0 || part.is_kept {
            return Ok(None);
        }
        let key = key_of(s, version)?;
        let Some(reached) = self.running.get(&key) else { return Ok(None) };
        if reached.version.txn == version.txn && reached.is_there(s)? {
            return Ok(Some(reached.entry.clone()));
        }
        self.running.remove(&key);
        self.loses = true;
        Ok(None)
    }

    /// Keeps how far the part was gone through, if it is worth it.
    fn keep(&mut self, s: &Storage, part: Part<'_>, at: &AsOf<'_>, stopped: bool) {
        // Where somebody has stopped, the looks at its neighbours are repeated with its own.
        let repeated = stopped || !self.is_empty();
        let is_worth = part.is_kept || part.steps >= WORTH_KEEPING || (part.steps > 0 && repeated);
        if !is_worth {
            return;
        }
        if !part.runs {
            self.ended.insert(part.begin, at.clone().into_owned());
        } else if let Some(Reached { entry, version, lsn }) = part.last
            // Its page is in memory: it has just been read.
            && let Ok(key) = key_of(s, version)
        {
            self.running.insert(key, Reached { entry: entry.into_owned(), version, lsn });
        }
    }
}

impl Reached<'_> {
    /// Whether the version has not been taken back since.
    fn is_there(&self, s: &Storage) -> Result<bool, Stop> {
        let page = self.version.undo.page;
        match s.read(page, false) {
            Ok(page) => Ok(page.lsn() == self.lsn),
            Err(Stop::Load(_)) if s.store.map().slot(page).extent().is_some() => {
                Err(Stop::Load(page))
            }
            // It was freed, or is about to be.
            Err(_) => Ok(false),
        }
    }
}

/// An entry as of one of its versions.
#[derive(Clone)]
struct AsOf<'e> {
    flags: Flags,
    version: Option<Version>,
    value: Cow<'e, [u8]>,
    trail: Trail,
}

impl AsOf<'_> {
    fn into_owned(self) -> AsOf<'static> {
        AsOf { value: Cow::Owned(self.value.into_owned()), ..self }
    }
}

/// Tells a chain that leads back to where it has been, as damage may make it, by Brent's algorithm:
/// one version is remembered, for twice as many steps each time.
#[derive(Clone, Copy, Default)]
struct Trail {
    mark: Option<Version>,
    steps: u64,
    stride: u64,
}

impl Trail {
    /// Whether a step to this version leads back.
    fn leads_back(&mut self, to: Option<Version>) -> bool {
        if to.is_some() && to == self.mark {
            return true;
        }
        self.steps += 1;
        if self.steps > self.stride {
            *self = Trail { mark: to, steps: 0, stride: 2 * self.stride + 1 };
        }
        false
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
    /// The version of an entry that `view` sees. The entry's leaf is latched.
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

    /// What the view's snapshot covers of an entry that the view's transaction has written over a
    /// version that the snapshot does not cover; else `None`. The entry's leaf is latched.
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

    /// The newest version of an entry by a transaction that `is_it` accepts, or without a header.
    /// Of those that have committed, `is_it` accepts who the snapshot of `walks` covers.
    fn newest_version<'e>(
        &self,
        entry: &Entry<'e>,
        walks: &mut Walks,
        mut is_it: impl FnMut(TxnId) -> bool,
    ) -> Result<Seen<'e>, Restart<Fault>> {
        let Entry { flags, version, value } = *entry;
        let (value, trail) = (Cow::Borrowed(value), Trail::default());
        let mut at = AsOf { flags, version, value, trail };
        let mut part: Option<Part<'e>> = None;
        let s = &*self.storage;
        let end = loop {
            let Some(v) = at.version.filter(|v| !is_it(v.txn)) else { break End::Found };
            if v.undo.is_insert() {
                break End::Absent;
            }
            if !part.as_ref().is_some_and(|part| part.goes_on_with(v)) {
                let runs = self.is_active(v.txn);
                let new = Part { begin: v, runs, steps: 0, is_kept: false, last: None };
                part.replace(new).into_iter().for_each(|part| walks.keep(s, part, &at, false));
            }
            let part = part.as_mut().expect("each version is in a part");
            match walks.take(s, part, v) {
                Ok(None) => {}
                Ok(Some(entry)) => {
                    (at, part.is_kept) = (entry, true);
                    continue;
                }
                Err(restart) => break End::Stopped(restart),
            }
            if walks.left == 0 {
                break End::Stopped(Stop::Retry.into());
            }
            match before(s, v.undo, &at) {
                Ok((before, lsn)) => {
                    let entry = std::mem::replace(&mut at, before);
                    part.last = Some(Reached { entry, version: v, lsn });
                }
                Err(restart) => break End::Stopped(restart),
            }
            walks.left -= 1;
            part.steps += 1;
        };
        let stopped = matches!(end, End::Stopped(_));
        part.into_iter().for_each(|part| walks.keep(s, part, &at, stopped));
        match end {
            End::Found => {
                let is_seen = !at.flags.deleted || at.flags.hides;
                Ok(is_seen.then_some((at.flags, at.value)))
            }
            End::Absent => Ok(None),
            End::Stopped(restart) => Err(restart),
        }
    }
}

/// The undo record at a place of its page.
fn record(page: &Page, at: UndoPtr) -> Result<Undo<'_>, Fault> {
    let record = undo::record(page, at.offset);
    Ok(record.ok_or_else(|| wrong(at, "is none"))?.undo)
}

fn wrong(at: UndoPtr, what: &str) -> Fault {
    Fault::page(at.page, format!("undo record at {}: {what}", at.offset))
}

/// The state before a version, by its undo record, and the LSN of that one's page.
fn before<'e>(
    s: &Storage,
    at: UndoPtr,
    state: &AsOf<'e>,
) -> Result<(AsOf<'e>, Lsn), Restart<Fault>> {
    let page = s.read(at.page, false)?;
    work::note(|work| {
        work.pages_accessed += 1;
        work.undo_records_read += 1;
    });
    let (flags, version, value) = match record(&page, at)? {
        Undo::Delete { flags, version, .. } => (flags, version, state.value.clone()),
        Undo::Hide { .. } => {
            let (flags, version) = BEFORE_BURIED;
            (flags, version, state.value.clone())
        }
        Undo::Update { flags, version, delta, .. } => {
            if !delta.fits(state.value.len()) {
                return Err(wrong(at, "keeps more bytes than there are").into());
            }
            (flags, version, Cow::Owned(delta.apply(&state.value)))
        }
        _ => return Err(wrong(at, "is not of a version").into()),
    };
    let mut trail = state.trail;
    if trail.leads_back(version) {
        return Err(wrong(at, "leads back to a newer version").into());
    }
    Ok((AsOf { flags, version, value, trail }, page.lsn()))
}

/// The key of the entry that a version is of.
fn key_of(s: &Storage, version: Version) -> Result<Vec<u8>, Restart<Fault>> {
    let page = s.read(version.undo.page, false)?;
    match record(&page, version.undo)? {
        Undo::Delete { key, .. } | Undo::Hide { key, .. } | Undo::Update { key, .. } => {
            Ok(key.to_vec())
        }
        _ => Err(wrong(version.undo, "is not of a version").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Need, retry};
    use crate::tree::{Target, Tree};
    use crate::txn::tests::{commit, transactions, tree};
    use crate::txn::{Direction, Op, Range, Scan, Txn, TxnError};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use weir_page::{PageId, Redo};

    const ROWS: u8 = 100;

    /// A tree with a row, and who goes on seeing it as it is.
    fn seen_by_a_reader(txns: &Arc<Transactions>) -> (Tree, Txn, View) {
        let rows = tree(txns);
        commit(txns, rows, b"row", Op::Insert(b"old"));
        let mut reader = txns.begin();
        let view = reader.view();
        (rows, reader, view)
    }

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
        let ((rows, reader, view), others) = (seen_by_a_reader(&txns), tree(&txns));
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
            Err(Restart::Stop(Stop::Retry | Stop::Astray(_))) => None,
            Err(Restart::Stop(Stop::Load(page))) => {
                assert!(txns.storage.load(page).unwrap());
                None
            }
            Err(Restart::Error(fault)) => panic!("{fault}"),
        }
    }

    /// How many turns it takes to see what was there at first. `meanwhile`: what is done between
    /// them.
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
        let (rows, _reader, view) = seen_by_a_reader(&txns);
        let write = |n: usize| commit(&txns, rows, b"row", Op::Update(&n.to_be_bytes()));
        (0..4 * AT_ONCE).for_each(write);
        turns_to_old(&txns, rows, view, 5, write);
    }

    /// All of it was gone through with the leaf latched.
    #[test]
    fn what_a_running_transaction_writes_is_gone_through_in_turns() {
        let txns = transactions(200);
        let (rows, _reader, view) = seen_by_a_reader(&txns);
        commit(&txns, rows, b"row", Op::Update(b"new"));
        let mut writer = txns.begin();
        let mut write = |n: usize| {
            writer.write(rows, b"row", Op::Update(&n.to_be_bytes())).unwrap();
        };
        (0..16 * AT_ONCE).for_each(&mut write);
        assert!(turns_to_old(&txns, rows, view, 16, write) >= 5);
    }

    /// Each look began anew, and came to its end only where all pages were in memory together.
    #[test]
    fn what_a_running_transaction_writes_may_take_more_pages_than_there_are_frames() {
        let txns = transactions(64);
        let ((rows, _reader, view), others) = (seen_by_a_reader(&txns), tree(&txns));
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

    /// Damage of an undo page that its checksum doesn't tell: who read the row came to no end.
    #[test]
    fn a_version_that_leads_back_to_itself_is_told() {
        let txns = transactions(64);
        let (rows, reader, view) = seen_by_a_reader(&txns);
        commit(&txns, rows, b"row", Op::Update(b"new"));
        let newest = || {
            let leaf = rows.leaf(&txns.storage, Target::At(b"row"), false)?;
            Ok::<_, Restart<Fault>>(leaf.entry(0).version)
        };
        let version = retry(&txns.storage, newest).unwrap().unwrap();
        let (UndoPtr { page, offset }, txn) = (version.undo, version.txn);
        let (flags, state) = (Flags::default(), undo::State::Ended);
        let undo = Undo::Delete { tree: rows.id, key: b"row", flags, version: Some(version) };
        let mut mtr = txns.storage.mtr(Need::log(1 << 10)).unwrap();
        mtr.latch(page).unwrap();
        mtr.log(&Redo::UndoTail { page, used: offset, last: 0, txn, state });
        mtr.log(&Redo::UndoPush { page, first: Some(txn), undo });
        mtr.commit();
        let error = reader.get_into(view, rows, b"row", &mut Vec::new()).unwrap_err();
        assert!(matches!(&error, TxnError::Fault(fault) if fault.is_corrupt()), "{error}");
    }

    #[test]
    fn a_trail_tells_each_way_back_and_no_other() {
        let version = |n: u32| {
            let undo = UndoPtr { page: PageId(1 + n), offset: 64 };
            Some(Version { txn: TxnId(7), undo })
        };
        for (straight, round) in (0..40).flat_map(|n| (1..40).map(move |m| (n, m))) {
            let mut trail = Trail::default();
            let to = |step: u32| {
                if step < straight { step } else { (step - straight) % round + straight }
            };
            let told = (0..1000).find(|step| trail.leads_back(version(to(*step))));
            assert!(told.is_some_and(|step| step >= straight + round - 1), "{straight} {round}");
        }
        let mut trail = Trail::default();
        assert!((0..10_000).all(|n| !trail.leads_back(version(n))));
    }

    /// The places of undo records that were taken back are others' then. What was reached before
    /// says nothing of them.
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

    /// Where what was reached is taken back each time, turns become longer.
    #[test]
    fn who_takes_back_all_that_was_gone_through_keeps_nobody_from_what_was_before() {
        let txns = transactions(200);
        let (rows, _reader, view) = seen_by_a_reader(&txns);
        let mut writer = txns.begin();
        writer.write(rows, b"row", Op::Update(b"first")).unwrap();
        let begin = writer.savepoint();
        let write = |writer: &mut Txn| {
            for n in 0..16 * AT_ONCE {
                writer.write(rows, b"row", Op::Update(&n.to_be_bytes())).unwrap();
            }
        };
        write(&mut writer);
        turns_to_old(&txns, rows, view, 8, |_| {
            writer.rollback_to(begin).unwrap();
            write(&mut writer);
        });
    }

    #[test]
    fn a_page_that_was_reached_may_be_freed_before_the_next_look() {
        let txns = transactions(200);
        let (rows, _reader, view) = seen_by_a_reader(&txns);
        let mut writer = txns.begin();
        writer.write(rows, b"row", Op::Update(b"first")).unwrap();
        let begin = writer.savepoint();
        for n in 0..16 * AT_ONCE {
            writer.write(rows, b"row", Op::Update(&n.to_be_bytes())).unwrap();
        }
        let mut walks = Walks::default();
        (0..3).for_each(|_| assert_eq!(look(&txns, rows, view, &mut walks), None));
        writer.rollback_to(begin).unwrap();
        assert_eq!(look(&txns, rows, view, &mut walks).unwrap().unwrap(), b"old");
    }

    /// What lies before is gone through little by little.
    #[test]
    fn who_takes_back_a_few_writes_all_the_time_has_nobody_begin_anew() {
        let txns = transactions(200);
        let (rows, _reader, view) = seen_by_a_reader(&txns);
        let mut writer = txns.begin();
        for n in 0..32 * AT_ONCE {
            writer.write(rows, b"row", Op::Update(&n.to_be_bytes())).unwrap();
        }
        let turns = turns_to_old(&txns, rows, view, 40, |turn| {
            let before = writer.savepoint();
            writer.write(rows, b"row", Op::Update(&[turn as u8; 9])).unwrap();
            writer.rollback_to(before).unwrap();
            writer.write(rows, b"row", Op::Update(&turn.to_be_bytes())).unwrap();
        });
        assert!(turns > 8, "the leaf was latched for the versions of {turns} turns");
    }

    /// Each look began anew at what had come since, and needed all pages in memory together.
    #[test]
    fn who_takes_back_writes_all_the_time_may_have_written_more_pages_than_there_are_frames() {
        let txns = transactions(64);
        let ((rows, _reader, view), others) = (seen_by_a_reader(&txns), tree(&txns));
        let mut writer = txns.begin();
        let write = |writer: &mut Txn, round: usize| {
            writer.write(rows, b"row", Op::Update(&round.to_be_bytes())).unwrap();
            for n in 0..6 {
                writer.write(others, b"other", Op::Upsert(&[round as u8 ^ n; 3000])).unwrap();
            }
        };
        (0..ROWS.into()).for_each(|round| write(&mut writer, round));
        turns_to_old(&txns, rows, view, 8 * usize::from(ROWS), |turn| {
            let before = writer.savepoint();
            write(&mut writer, turn);
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

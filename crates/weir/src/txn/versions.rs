//! An entry's versions: from the newest one back, undo record by undo record.
//!
//! Undo records lie in pages that may have to be read first. Who comes to such a page gives up the entry's leaf, has the
//! page read, and begins anew. [`Walks`] keep how far it had come: so each page of a long chain is needed once, and
//! nobody has to have all of them in memory together.

use super::{Transactions, View};
use crate::storage::{Fault, Restart, Stop, Storage};
use std::borrow::Cow;
use std::collections::HashMap;
use weir_page::TxnId;
use weir_page::undo::{self, Undo};
use weir_page::version::{Entry, Flags, UndoPtr, Version};

/// Undo records gone through at once: so long others wait who want to change the entry's leaf.
const AT_ONCE: usize = 256;

/// What a view sees of an entry: whether the value is a reference to a chain, and its bytes.
pub type Seen<'e> = Option<(bool, Cow<'e, [u8]>)>;

/// How far back a snapshot's look at entries has come where it had to stop for undo pages. The snapshot lives
/// meanwhile.
#[derive(Default)]
pub struct Walks {
    snapshot: u64,
    /// By the newest version that is committed and not covered: nothing of what lies before it changes while the
    /// snapshot lives.
    reached: HashMap<Version, AsOf<'static>>,
}

impl Walks {
    /// What was reached isn't needed any more.
    pub fn clear(&mut self) {
        self.reached.clear();
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.reached.len()
    }

    /// For a look at this snapshot from now on.
    fn look_at(&mut self, snapshot: u64) {
        if self.snapshot != snapshot {
            self.snapshot = snapshot;
            self.clear();
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
        let (mut begin, mut steps) = (None, 0);
        let end = loop {
            let Some(v) = at.version.filter(|v| !is_it(v.txn)) else { break End::Found };
            if v.undo.is_insert() {
                break End::Absent;
            }
            if begin.is_none() && !self.is_active(v.txn) {
                begin = Some(v);
            }
            // Also further back: there may be newer versions than at the look before.
            if begin.is_some()
                && let Some(reached) = walks.reached.get(&v)
            {
                at = reached.clone();
                continue;
            }
            if begin.is_some() && steps == AT_ONCE {
                break End::Stopped(Stop::Retry.into());
            }
            match before(&self.storage, v.undo, &at) {
                Ok(before) => at = before,
                Err(restart) => break End::Stopped(restart),
            }
            // What running transactions wrote is gone through again at each look.
            steps += usize::from(begin.is_some());
        };
        let stopped = matches!(end, End::Stopped(_));
        // Where somebody has stopped, the looks at its neighbours are repeated with its own.
        if let Some(begin) = begin
            && steps > 0
            && (stopped || !walks.reached.is_empty())
        {
            walks.reached.insert(begin, at.clone().into_owned());
        }
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
    use crate::txn::{Direction, Op, Range, Scan};
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
        let mut walks = Walks::default();
        let mut look = || {
            let leaf = rows.leaf(&txns.storage, Target::At(b"row"), false)?;
            let seen = txns.visible(view, &leaf.entry(0), &mut walks)?;
            Ok::<_, Restart<Fault>>(seen.map(|(_, value)| value.into_owned()))
        };
        for turn in 0..5 {
            match look() {
                Err(Restart::Stop(Stop::Retry)) => write(turn),
                seen => return assert_eq!(seen.unwrap().unwrap(), b"old"),
            }
        }
        panic!("it is not through after more turns than the chain has parts");
    }

    /// Where those of a running transaction took all that are gone through at once, a look came no further.
    #[test]
    fn versions_of_a_running_transaction_keep_nobody_from_those_before() {
        let txns = transactions(200);
        let rows = tree(&txns);
        commit(&txns, rows, b"row", Op::Insert(b"old"));
        let mut reader = txns.begin();
        let view = reader.view();
        commit(&txns, rows, b"row", Op::Update(b"new"));
        let mut writer = txns.begin();
        for n in 0..AT_ONCE {
            writer.write(rows, b"row", Op::Update(&n.to_be_bytes())).unwrap();
        }
        let mut value = Vec::new();
        assert!(reader.get_into(view, rows, b"row", &mut value).unwrap());
        assert_eq!(value, b"old");
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

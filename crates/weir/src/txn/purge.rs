//! Purge: what nobody needs any more goes.
//!
//! Committed transactions whose undo has to be kept wait in a queue, oldest first. Once every live
//! snapshot sees a transaction, its undo records are gone through: entries that it deleted are
//! removed, overflow chains of values that it replaced are freed, trees that it dropped are freed;
//! then its undo pages are. Each step may be repeated after a crash: an entry is removed only if
//! the very record at hand made it dead, and what can't be repeated notes in the undo page that it
//! is done. So the order of such removals doesn't matter: those of an undo page are made tree by
//! tree, in the order of keys.
//!
//! What lies on damaged pages stays, and purge goes on: whoever reads it is told, and so is the
//! check. Nobody needs undo of an entry that is left dead: everybody sees that it is.

use super::Transactions;
use super::history::History;
use super::lane::{LANE_DIRECTORY, UndoPlace, set_ends};
use super::undo_record::OwnedUndo;
use crate::storage::{Fault, Mtr, Need, Restart, Step, Storage, retry};
use crate::tree::overflow::{self, Left, free_second};
use crate::tree::run::{self, LEAVES, LEAVES_AHEAD};
use crate::tree::{Hint, Target, Tree, past_damage};
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::Ordering;
use weir_page::overflow::Reference;
use weir_page::undo::{self, Undo};
use weir_page::version::{Flags, UndoPtr};
use weir_page::{Entry, Kind, PageId, Redo, TreeId, lanes, node};

/// A record with work, and where the next one begins.
struct Found {
    at: UndoPtr,
    next: u16,
    undo: OwnedUndo,
}

/// What is gone through together: records of one undo page, up to this many.
const TOGETHER: usize = 64;

/// An entry that the undo record at `by` made dead.
struct DeadEntry {
    tree: Tree,
    key: Vec<u8>,
    by: UndoPtr,
}

impl Transactions {
    /// Purges some transactions, unless somebody else is at it.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn purge_step(&self) -> Result<Step, Fault> {
        const MOST: usize = 64;
        let purged = self.purge_up_to(MOST);
        self.pace.judge(matches!(purged, Ok(MOST)));
        Ok(match purged? {
            0 => Step::Idle,
            MOST => Step::GoesOn,
            _ => Step::Done,
        })
    }

    /// As [`Transactions::purge_step`], up to `most`; returns how many.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn purge_up_to(&self, most: usize) -> Result<usize, Fault> {
        let Some(one) = self.purging.try_lock() else { return Ok(0) };
        self.purge_some(&one, most)
    }

    /// Keeps purge away, after whoever is at it.
    pub fn hold_purge(&self) -> MutexGuard<'_, ()> {
        self.purging.lock()
    }

    /// Purges what no snapshot needs now, after whoever is at it.
    ///
    /// # Errors
    /// Faults of the storage.
    pub fn purge_all(&self) -> Result<(), Fault> {
        let one = self.hold_purge();
        while self.purge_some(&one, 64)? > 0 {}
        Ok(())
    }

    fn purge_some(&self, _one: &MutexGuard<'_, ()>, most: usize) -> Result<usize, Fault> {
        self.advance_horizon();
        let oldest = self.oldest_snapshot();
        for done in 0..most {
            let next = self.commits.history.lock().oldest();
            if next.is_none() {
                self.dead.forget_all();
            }
            let Some(mut history) = next.filter(|h| h.stamp <= oldest) else { return Ok(done) };
            match self.purge(&mut history) {
                Err(fault) if fault.damaged_page().is_some() => self.leave(history)?,
                purged => purged?,
            }
            self.commits.history.lock().pop();
            self.lanes.get(history.lane).pending.fetch_sub(1, Ordering::AcqRel);
        }
        Ok(most)
    }

    /// What a transaction leaves to purge, which keeps its lane from being rewound.
    pub(super) fn queue_for_purge(&self, history: History) {
        self.pace.leave(history.records);
        let mut all = self.commits.history.lock();
        if all.push(history) {
            self.lanes.get(history.lane).pending.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Goes through the oldest history. After a failure, the queue says where to go on.
    fn purge(&self, history: &mut History) -> Result<(), Fault> {
        let s = &*self.storage;
        let mut head = self.lane_head(s, history.lane)?;
        // A transaction that was rolled back may have left a page behind that no history names.
        while head != history.begin.page {
            head = match self.free_head(s, history.lane, head) {
                Err(fault) if fault.damaged_page().is_some() => {
                    self.cut(s, history.lane, history.begin.page)?
                }
                next => next?,
            };
        }
        loop {
            let UndoPlace { page, used: mut from, .. } = history.begin;
            let last_page = page == history.end.page;
            let to = if last_page { history.end.used } else { u16::MAX };
            let with_buried = history.is_old || self.staging.has_buried(page);
            while history.work {
                let found = self.next_work(page, from..to, with_buried)?;
                let Some(last) = found.last() else { break };
                from = last.next;
                let count = found.len() as u64;
                self.purge_records(s, found)?;
                self.figures.purged.fetch_add(count, Ordering::Relaxed);
                // Of what was found at the open it isn't known how many there are.
                let passed = history.records.min(count);
                self.pace.pass(passed);
                history.records -= passed;
            }
            if last_page {
                self.pace.pass(history.records);
                return Ok(());
            }
            let page = self.free_head(s, history.lane, page)?;
            history.begin = UndoPlace { page, used: weir_page::page::BODY as u16, last: 0 };
            self.commits.history.lock().proceed(history.begin);
        }
    }

    /// The rest of a history can't be read, and stays; its lane begins where it ends.
    fn leave(&self, history: History) -> Result<(), Fault> {
        self.cut(&self.storage, history.lane, history.end.page)?;
        self.figures.purged_damaged.fetch_add(1, Ordering::Relaxed);
        self.pace.pass(history.records);
        Ok(())
    }

    /// Makes a page of a lane its first; those before it are lost.
    fn cut(&self, s: &Storage, lane: u16, head: PageId) -> Result<PageId, Fault> {
        retry(s, || {
            let mut mtr = s.mtr(Need::records(1))?;
            mtr.latch(LANE_DIRECTORY)?;
            set_ends(&mut mtr, lane, |_, tail| (head, tail));
            mtr.commit();
            Ok::<_, Restart<Fault>>(head)
        })
    }

    /// The next records on that part of the page that have work for purge: some that made entries
    /// dead, or one of another kind. `with_buried`: tombstones count, too, for what they hid was
    /// buried; else staging looks after them.
    fn next_work(
        &self,
        page: PageId,
        part: Range<u16>,
        with_buried: bool,
    ) -> Result<Vec<Found>, Fault> {
        retry(&self.storage, || {
            let mut all = Vec::new();
            let p = self.storage.read(page, true)?;
            if !undo::needs_purge(&p) {
                return Ok(all);
            }
            let end = (undo::used(&p) as u16).min(part.end);
            let mut at = part.start.max(undo::purge_from(&p));
            while at < end && all.len() < TOGETHER {
                let r = undo::record(&p, at)
                    .ok_or_else(|| Fault::page(page, format!("no undo record at {at}")))?;
                let is_work = match r.undo {
                    // A value that an update replaced is gone with the undo record, unless it is in
                    // a chain.
                    Undo::Update { flags, .. } => flags.overflow,
                    Undo::Hide { .. } => with_buried,
                    undo => undo.needs_purge(),
                };
                if is_work {
                    let undo = OwnedUndo::from(r.undo);
                    let is_delete =
                        matches!(undo, OwnedUndo::Delete { .. } | OwnedUndo::Hide { .. });
                    if is_delete || all.is_empty() {
                        all.push(Found { at: UndoPtr { page, offset: at }, next: r.end, undo });
                    }
                    if !is_delete {
                        break;
                    }
                }
                at = r.end;
            }
            Ok::<_, Restart<Fault>>(all)
        })
    }

    fn lane_head(&self, s: &Storage, lane: u16) -> Result<PageId, Fault> {
        retry(s, || {
            let directory = s.read(LANE_DIRECTORY, false)?;
            Ok::<_, Restart<Fault>>(lanes::get(&directory, lane).0)
        })
    }

    /// Frees the lane's first page, which purge has been through; returns the next.
    fn free_head(&self, s: &Storage, lane: u16, page: PageId) -> Result<PageId, Fault> {
        retry(s, || {
            let mut mtr = s.mtr(Need::records(2))?;
            mtr.latch(page)?;
            let next = undo::next(mtr.page(page));
            mtr.latch(LANE_DIRECTORY)?;
            let (head, _) = lanes::get(mtr.page(LANE_DIRECTORY), lane);
            if head != page {
                return Err(Fault::page(page, format!("is not the first of lane {lane}")).into());
            }
            if next == PageId::NONE {
                return Err(Fault::page(page, format!("ends lane {lane} too early")).into());
            }
            set_ends(&mut mtr, lane, |_, tail| (next, tail));
            // Before others may have the page.
            self.staging.forget_buried(page);
            mtr.free(page);
            mtr.commit();
            Ok::<_, Restart<Fault>>(next)
        })
    }

    fn purge_records(&self, s: &Storage, found: Vec<Found>) -> Result<(), Fault> {
        let (mut dead, mut left) = (Vec::new(), 0);
        for found in found {
            match found.undo {
                OwnedUndo::Delete { tree, key, .. } => {
                    dead.push(DeadEntry { tree: Tree::new(tree), key, by: found.at });
                }
                OwnedUndo::Hide { tree, key } => {
                    // Its index may have been dropped.
                    if let Some(staging) = self.staging.of_tree(tree)
                        && !is_put(s, staging.tree, &key, found.at).or_else(not_if_damaged)?
                    {
                        dead.push(DeadEntry { tree: staging.main, key, by: found.at });
                    }
                }
                _ => left += u64::from(!self.purge_record(s, &found)?),
            }
        }
        left += remove_all(s, dead)?;
        self.figures.purged_damaged.fetch_add(left, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether nothing had to be left.
    fn purge_record(&self, s: &Storage, found: &Found) -> Result<bool, Fault> {
        let mut note_done = |mtr: &mut Mtr<'_>| {
            mtr.latch(found.at.page)?;
            mtr.log(&Redo::UndoPurged { page: found.at.page, from: found.next });
            Ok(())
        };
        match &found.undo {
            OwnedUndo::Update { flags: Flags { overflow: true, .. }, delta, .. } => {
                match Reference::from_bytes(&delta.middle) {
                    Some(reference) => overflow::free(s, reference.first, &mut note_done),
                    None => Ok(false),
                }
            }
            OwnedUndo::DropTree { root } => {
                // That may take long.
                self.pace.let_go();
                Tree::new(TreeId(root.0)).destroy(s, &mut note_done)
            }
            // Nothing of it is left but the undo record.
            _ => Ok(true),
        }
    }
}

/// Whether the tree has not been dropped and freed.
fn exists(s: &Storage, tree: Tree) -> Result<bool, Fault> {
    if !s.load(tree.root())? {
        return Ok(false);
    }
    retry(s, || {
        let root = match s.read(tree.root(), true) {
            Err(crate::storage::Stop::Load(page)) if !s.load(page)? => return Ok(false),
            other => other?,
        };
        let is_tree = matches!(root.kind(), Kind::Leaf | Kind::Inner);
        Ok::<_, Restart<Fault>>(is_tree && node::tree(&root) == tree.id)
    })
}

/// Whether the tombstone that the undo record at `by` takes back is still in its staging tree:
/// nothing was buried for it, nor will be.
fn is_put(s: &Storage, tree: Tree, key: &[u8], by: UndoPtr) -> Result<bool, Fault> {
    retry(s, || {
        let leaf = tree.leaf(s, Target::At(key), true)?;
        let (slot, found) = leaf.seek(key);
        let version = if found { leaf.entry(slot).version } else { None };
        Ok::<_, Restart<Fault>>(version.is_some_and(|version| version.undo == by.of_insert()))
    })
}

/// What can't be read isn't there.
fn not_if_damaged(fault: Fault) -> Result<bool, Fault> {
    if fault.damaged_page().is_some() { Ok(false) } else { Err(fault) }
}

/// Removes entries that are still as dead as they were made, but for those on damaged pages:
/// returns how many had to be left, if only in part.
fn remove_all(s: &Storage, mut dead: Vec<DeadEntry>) -> Result<u64, Fault> {
    dead.sort_unstable_by(|a, b| (a.tree.id, &a.key).cmp(&(b.tree.id, &b.key)));
    let mut left = 0;
    for of_tree in dead.chunk_by(|a, b| a.tree == b.tree) {
        let removed = exists(s, of_tree[0].tree)
            .and_then(|exists| if exists { remove_run(s, of_tree) } else { Ok(0) });
        left += match removed {
            Err(fault) if fault.damaged_page().is_some() => remove_each(s, of_tree)?,
            removed => removed?,
        };
    }
    Ok(left)
}

/// Removes dead entries of a tree in which something is damaged; returns how many had to be left.
fn remove_each(s: &Storage, dead: &[DeadEntry]) -> Result<u64, Fault> {
    let mut left = 0;
    for DeadEntry { tree, key, by } in dead {
        match remove_dead(s, *tree, key, *by) {
            Err(fault) if fault.damaged_page().is_some() => left += 1,
            removed => left += u64::from(!removed?),
        }
    }
    Ok(left)
}

/// Removes dead entries of one tree, in ascending order; returns of how many a part had to be left.
///
/// # Errors
/// Faults of the storage: some may be removed already.
fn remove_run(s: &Storage, dead: &[DeadEntry]) -> Result<u64, Fault> {
    let tree = dead[0].tree;
    let mut hints = Vec::with_capacity(dead.len());
    run::approach_and_read(s, tree, dead.iter().map(|dead| &dead.key[..]), &mut hints);
    let (mut done, mut told, mut in_part) = (0, 0, 0);
    while done < dead.len() {
        let tell_to = dead.len().min(done + LEAVES_AHEAD);
        for (hint, dead) in hints[told..tell_to].iter().zip(&dead[told..]) {
            hint.prefetch_insert(s, &dead.key);
        }
        told = tell_to;
        let left = &dead[done..];
        let passed = match remove_some(s, tree, left, &hints[done..])? {
            // Perhaps the hint was out of date.
            None => remove_some(s, tree, left, &[])?,
            passed => passed,
        };
        match passed {
            None | Some(0) => {
                in_part += u64::from(!remove_dead(s, tree, &left[0].key, left[0].by)?);
                done += 1;
            }
            Some(passed) => done += passed,
        }
    }
    Ok(in_part)
}

/// Removes the first of some dead entries in one mtr; returns how many are done with: none if the
/// first has a chain. `None` if its leaf isn't in memory or its hint is out of date.
fn remove_some(
    s: &Storage,
    tree: Tree,
    dead: &[DeadEntry],
    hints: &[Hint],
) -> Result<Option<usize>, Fault> {
    let mut mtr = s.mtr(Need::records(dead.len()))?;
    let leaves = run::latch(&mut mtr, tree, dead.len(), |n| &dead[n].key, hints);
    if leaves.is_empty() {
        return Ok(None);
    }
    let mut done = 0;
    let mut sparse: SmallVec<[usize; LEAVES]> = SmallVec::new();
    let mut removes = false;
    for mut leaf in leaves {
        let mut slots: SmallVec<[usize; TOGETHER]> = SmallVec::new();
        let mut has_chain = false;
        for DeadEntry { key, by, .. } in &dead[done..leaf.end] {
            let at = leaf.find(&mtr, key);
            match at.entry(&mtr).filter(|e| is_dead_by(e, *by)) {
                Some(e) if e.flags.overflow => {
                    has_chain = true;
                    break;
                }
                Some(_) => slots.push(at.slot),
                None => {}
            }
            done += 1;
        }
        if !slots.is_empty() {
            removes = true;
            if leaf.remove(&mut mtr, &slots) {
                sparse.push(done - 1);
            }
        }
        if has_chain {
            break;
        }
    }
    if removes {
        mtr.commit();
    } else {
        drop(mtr);
    }
    for last in sparse {
        tree.merge_unless_damaged(s, &dead[last].key)?;
    }
    Ok(Some(done))
}

/// Whether an entry is still as dead as that undo record made it.
fn is_dead_by(e: &Entry<'_>, by: UndoPtr) -> bool {
    e.flags.deleted && e.version.is_some_and(|v| v.undo == by)
}

/// What a step of removing a dead entry came to.
enum Removal {
    /// It is gone, or no longer what was to go.
    Done { sparse: bool },
    /// A page of its chain is gone.
    ChainShorter,
}

/// Removes the entry that the undo record at `by` made dead, if it is that still. Its chain goes
/// first, page by page, each under the latch of the entry's leaf: who revives the entry meanwhile
/// has what is left of the chain, and frees it. Returns whether all of the chain could be freed.
fn remove_dead(s: &Storage, tree: Tree, key: &[u8], by: UndoPtr) -> Result<bool, Fault> {
    let mut lost = Vec::new();
    loop {
        match past_damage(s, &mut lost, |lost| try_remove_dead(s, tree, key, by, lost))? {
            Removal::ChainShorter => {}
            Removal::Done { sparse } => {
                if sparse {
                    tree.merge_unless_damaged(s, key)?;
                }
                return Ok(lost.is_empty());
            }
        }
    }
}

fn try_remove_dead(
    s: &Storage,
    tree: Tree,
    key: &[u8],
    by: UndoPtr,
    lost: &[PageId],
) -> Result<Removal, Restart<Fault>> {
    let mut mtr = s.mtr(Need::log(overflow::FREE_BYTES + key.len()))?;
    let at = tree.slot(&mut mtr, key)?;
    let Some(e) = at.entry(&mtr).filter(|e| is_dead_by(e, by)) else {
        return Ok(Removal::Done { sparse: false });
    };
    let malformed = || Fault::page(at.leaf, "malformed reference");
    let chain = match e.flags.overflow {
        true => Some(Reference::from_bytes(e.value).ok_or_else(malformed)?.first),
        false => None,
    };
    let left = chain.map_or(Ok(Left::Nothing), |first| free_second(&mut mtr, first, lost))?;
    if let Left::More = left {
        mtr.commit();
        return Ok(Removal::ChainShorter);
    }
    let sparse = at.remove(&mut mtr);
    if let (Left::First, Some(first)) = (left, chain) {
        mtr.free(first);
    }
    mtr.commit();
    Ok(Removal::Done { sparse })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::txn::tests::{commit, transactions, tree};
    use crate::txn::{Durability, Op, View};
    use weir_page::TxnId;

    const LONG: usize = 200_000;

    #[test]
    fn a_chain_whose_entry_is_revived_meanwhile_is_left_to_who_did_that() {
        let txns = transactions(200);
        let tree = tree(&txns);
        commit(&txns, tree, b"row", Op::Insert(&[1; LONG]));
        commit(&txns, tree, b"row", Op::Delete);
        let history = txns.commits.history.lock().oldest().unwrap();
        let UndoPlace { page, used, .. } = history.begin;
        let found = txns.next_work(page, used..u16::MAX, false).unwrap().pop().unwrap();
        let s = &*txns.storage;
        let step = || retry(s, || try_remove_dead(s, tree, b"row", found.at, &[])).unwrap();
        for _ in 0..5 {
            assert!(matches!(step(), Removal::ChainShorter));
        }
        let mut reviver = txns.begin();
        reviver.write(tree, b"row", Op::Insert(b"short")).unwrap();
        assert!(matches!(step(), Removal::Done { sparse: false }), "it isn't dead any more");
        // Frees what is left of the chain, as nobody needs the dead row any more.
        reviver.rollback().unwrap();
        commit(&txns, tree, b"other", Op::Insert(&[2; LONG]));
        assert!(matches!(step(), Removal::Done { sparse: false }), "it is gone");
        txns.purge_all().unwrap();
        let (view, mut value) = (View { own: TxnId(0), snapshot: txns.now() }, Vec::new());
        let reader = txns.begin();
        assert!(!reader.get_into(view, tree, b"row", &mut value).unwrap());
        assert!(reader.get_into(view, tree, b"other", &mut value).unwrap());
        assert!(value == [2; LONG]);
    }

    /// Keys of a tree's entries, dead ones included.
    fn keys(txns: &Transactions, tree: Tree) -> Vec<Vec<u8>> {
        let leaf = tree.leaf(&txns.storage, crate::tree::Target::Last, true).unwrap();
        (0..leaf.len()).map(|slot| leaf.key(slot)).collect()
    }

    #[test]
    fn dead_entries_go_together_and_what_isn_t_dead_any_more_stays() {
        let txns = transactions(200);
        let trees = [tree(&txns), tree(&txns)];
        let [one, two] = trees;
        for key in [b"a", b"b", b"c", b"d", b"e", b"f"] {
            for tree in trees {
                // A chain among others.
                let value = if key == b"d" { vec![1; LONG] } else { vec![1; 20] };
                commit(&txns, tree, key, Op::Insert(&value));
            }
        }
        let mut deleter = txns.begin();
        for key in [b"f", b"a", b"e", b"c", b"d"] {
            for tree in trees {
                deleter.write(tree, key, Op::Delete).unwrap();
            }
        }
        // The same key twice.
        deleter.write(one, b"a", Op::Insert(b"again")).unwrap();
        deleter.write(one, b"a", Op::Delete).unwrap();
        deleter.commit(Durability::Write).unwrap();
        commit(&txns, two, b"e", Op::Insert(b"revived"));
        assert_eq!(keys(&txns, one).len() + keys(&txns, two).len(), 12);
        let history = txns.commits.history.lock().oldest().unwrap();
        let UndoPlace { page, used, .. } = history.begin;
        // It may be done again after a crash.
        let found = || txns.next_work(page, used..u16::MAX, false).unwrap();
        assert_eq!(found().len(), 11, "all at once");
        txns.purge_records(&txns.storage, found()).unwrap();
        assert_eq!(keys(&txns, one), [b"b"]);
        assert_eq!(keys(&txns, two), [b"b", b"e"]);
        txns.purge_records(&txns.storage, found()).unwrap();
        txns.purge_all().unwrap();
        assert_eq!((keys(&txns, one).len(), keys(&txns, two).len()), (1, 2));
    }
}

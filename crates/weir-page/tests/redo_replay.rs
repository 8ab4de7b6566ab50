//! Pages changed by forward calls, and the same pages made from the log, are the same bytes.

mod common;

use common::{Sizes, State as EntryState, random_key, random_state};
use fastrand::Rng;
use weir_page::node::{self, Builder};
use weir_page::page::STORE_HEADER;
use weir_page::record::{self, Before, Change, EntriesBuilder, Redo, Write};
use weir_page::undo::{self, State};
use weir_page::varint::Input;
use weir_page::{Delta, Entry, Flags, Lsn, Page, PageId, TreeId, TxnId, Undo, UndoPtr, Version};
use weir_page::{lanes, overflow};

const LEAF: PageId = PageId(1);
const UNDO: PageId = PageId(2);
const INNER: PageId = PageId(3);
const TREE: TreeId = TreeId(8);

/// A page changed by forward calls, by records, and by records that went through the log.
struct Triple {
    id: PageId,
    forward: Box<Page>,
    applied: Box<Page>,
    replayed: Box<Page>,
    /// What the log has said, and what has been read: all records are one group.
    before: [Before; 2],
}

impl Triple {
    fn new(id: PageId, init: &Redo<'_>, forward: Box<Page>) -> Triple {
        let (applied, replayed, before) = (Page::boxed(), Page::boxed(), Default::default());
        let mut t = Triple { id, forward, applied, replayed, before };
        // What was there before an initialising record doesn't matter.
        t.applied.0.fill(0xee);
        t.log(init);
        t
    }

    /// Applies a record as it is and as the log gives it back.
    fn log(&mut self, redo: &Redo<'_>) {
        redo.check(self.id, &self.applied).expect("made for this page");
        redo.apply(self.id, &mut self.applied);
        let mut bytes = Vec::new();
        redo.encode(Lsn(16), Lsn(0), &mut self.before[0], &mut bytes);
        let mut scratch = Vec::new();
        let logged = Redo::decode(&mut Input::new(&bytes), &mut self.before[1], &mut scratch);
        logged.expect("well formed").expect("a record").redo.apply(self.id, &mut self.replayed);
    }

    fn check(&mut self, rng: &mut Rng) {
        let mut images = [&self.forward, &self.applied, &self.replayed].map(|p| {
            let mut image = Page::boxed();
            image.0.copy_from_slice(&p.0);
            image.0[p.hole()].fill(0);
            image
        });
        for image in &mut images {
            assert_eq!(image.id(), self.id);
            image.0[..STORE_HEADER].fill(0);
        }
        assert!(images[0].0 == images[1].0, "applied as it is");
        assert!(images[0].0 == images[2].0, "applied from the log");
        if rng.u8(0..8) == 0 {
            // As if it had been written, evicted and read again.
            let hole = self.replayed.hole();
            self.replayed.0[hole].fill(0);
        }
    }
}

fn leaf() -> Triple {
    let body = record::empty_leaf(LEAF, TREE);
    let init = Redo::Image { page: LEAF, body: &body };
    Triple::new(LEAF, &init, Builder::new(LEAF, TREE, 0, &[], None).finish())
}

fn undo_page() -> Triple {
    let (lane, prev, txn, state) = (3, PageId(0), TxnId(50), State::Active);
    let mut page = Page::boxed();
    undo::init(&mut page, UNDO, lane, prev, txn, state);
    Triple::new(UNDO, &Redo::UndoInit { page: UNDO, lane, prev, txn, state }, page)
}

/// A transaction's write of `key`, by forward calls and through the log; false if it doesn't fit.
fn write(leaf: &mut Triple, lane: &mut Triple, key: &[u8], new: Option<&EntryState>) -> bool {
    let (slot, exists) = node::search(&leaf.forward, key);
    let txn = TxnId(50);
    let undo = UndoPtr { page: UNDO, offset: undo::used(&lane.forward) as u16 };
    let version = Some(Version { txn, undo });
    let old = exists.then(|| EntryState::of(node::entry(&leaf.forward, slot)));
    let (change, state) = match (&old, new) {
        (None, None) => return true,
        (None, Some(new)) => {
            let change = Change::Insert { flags: new.flags, value: &new.value };
            let version = Some(Version { txn, undo: undo.of_insert() });
            (change, Entry { version, ..new.entry() })
        }
        (Some(old), Some(new)) => {
            let delta = Delta::between(&old.value, &new.value);
            let (front, back) = (delta.front, delta.back);
            let change = Change::Update {
                old_flags: old.flags,
                old_version: old.version,
                flags: new.flags,
                front,
                back,
                old_middle: &old.value[front..old.value.len() - back],
                new_middle: delta.middle,
            };
            (change, Entry { version, ..new.entry() })
        }
        (Some(old), None) => {
            let change = Change::Delete { old_flags: old.flags, old_version: old.version };
            let flags = Flags { deleted: true, hides: false, ..old.flags };
            (change, Entry { flags, version, value: &old.value })
        }
    };
    let w = Write {
        leaf: LEAF,
        slot: slot as u16,
        undo,
        first: undo.offset == 64,
        txn,
        tree: TREE,
        key,
        change,
    };
    let len = state.value.len();
    let fits = match exists {
        true => node::fits_replace(&leaf.forward, slot, len, true),
        false => node::fits_insert(&leaf.forward, key.len(), len, true),
    };
    if !fits || !undo::fits(&lane.forward, w.undo_record().size()) {
        return false;
    }
    match exists {
        true => node::replace(&mut leaf.forward, slot, &state),
        false => node::insert(&mut leaf.forward, slot, key, &state),
    }
    undo::push(&mut lane.forward, &w.undo_record(), w.first.then_some(txn));
    leaf.log(&Redo::Write(w));
    lane.log(&Redo::Write(w));
    assert_takes_back(&lane.forward, undo.offset, old.as_ref(), state.value);
    true
}

/// Whether the undo record yields the state before.
fn assert_takes_back(lane: &Page, at: u16, old: Option<&EntryState>, new: &[u8]) {
    let record = undo::record(lane, at).expect("a record was pushed");
    match (record.undo, old) {
        (Undo::Insert { .. } | Undo::Hide { .. }, None) => {}
        (Undo::Update { flags, version, delta, .. }, Some(old)) => {
            assert_eq!((flags, version), (old.flags, old.version));
            assert_eq!(delta.apply(new), old.value);
        }
        (Undo::Delete { flags, version, .. }, Some(old)) => {
            assert_eq!((flags, version), (old.flags, old.version));
        }
        (undo, _) => panic!("{undo:?}"),
    }
}

#[test]
fn leaves_and_undo_pages() {
    for seed in 0..150 {
        let rng = &mut Rng::with_seed(seed);
        let sizes = Sizes::random(rng);
        let (mut leaf, mut lane) = (leaf(), undo_page());
        for _ in 0..100 {
            let mut key = random_key(rng, sizes);
            let n = node::count(&leaf.forward);
            if n > 0 && rng.bool() {
                key = node::key(&leaf.forward, rng.usize(0..n));
            }
            if !node::covers(&leaf.forward, &key) {
                continue;
            }
            leaf_step(rng, &mut leaf, &mut lane, &key, sizes);
            leaf.check(rng);
            lane.check(rng);
            node::validate(&leaf.replayed).expect("well formed");
            undo::validate(&lane.replayed).expect("well formed");
        }
    }
}

fn leaf_step(rng: &mut Rng, leaf: &mut Triple, lane: &mut Triple, key: &[u8], sizes: Sizes) {
    let state = random_state(rng, key.len(), sizes);
    let (slot, exists) = node::search(&leaf.forward, key);
    let page = LEAF;
    match rng.u8(0..18) {
        0..9 => {
            let new = (rng.u8(0..4) > 0).then_some(&state);
            if !write(leaf, lane, key, new) && undo::used(&lane.forward) > 12_000 {
                *lane = undo_page();
            }
        }
        9 | 10 if exists => {
            node::remove(&mut leaf.forward, slot);
            leaf.log(&Redo::Remove { page, slot: slot as u16 });
        }
        11 => {
            let below = TxnId(rng.u64(0..110));
            node::freeze(&mut leaf.forward, below);
            leaf.log(&Redo::Freeze { page, below });
        }
        12 if node::count(&leaf.forward) > 4 && !exists => {
            let split = node::plan_leaf_split(&leaf.forward, slot, key);
            node::truncate(&mut leaf.forward, split.at, &split.separator);
            leaf.log(&Redo::Truncate { page, at: split.at as u16, upper: &split.separator });
        }
        13 => roll_back_last(lane),
        14 => insert_run(rng, leaf, sizes),
        15 if exists => {
            let count = rng.usize(1..=node::count(&leaf.forward) - slot);
            (0..count).for_each(|_| node::remove(&mut leaf.forward, slot));
            leaf.log(&Redo::RemoveRun { page, slot: slot as u16, count: count as u16 });
        }
        _ => {
            let (len, versioned, entry) =
                (state.value.len(), state.version.is_some(), state.entry());
            if exists && node::fits_replace(&leaf.forward, slot, len, versioned) {
                node::replace(&mut leaf.forward, slot, &entry);
                leaf.log(&Redo::Set { page, slot: slot as u16, insert: false, key, entry });
            } else if !exists && node::fits_insert(&leaf.forward, key.len(), len, versioned) {
                node::insert(&mut leaf.forward, slot, key, &entry);
                leaf.log(&Redo::Set { page, slot: slot as u16, insert: true, key, entry });
            }
        }
    }
}

/// Inserts a few new keys together.
fn insert_run(rng: &mut Rng, leaf: &mut Triple, sizes: Sizes) {
    let mut keys: Vec<Vec<u8>> = (0..rng.usize(1..20)).map(|_| random_key(rng, sizes)).collect();
    keys.sort();
    keys.dedup();
    let mut run = EntriesBuilder::default();
    for key in keys.iter().filter(|key| node::covers(&leaf.replayed, key)) {
        let state = random_state(rng, key.len(), sizes);
        let (slot, exists) = node::search(&leaf.forward, key);
        let (value_len, versioned) = (state.value.len(), state.version.is_some());
        if !exists && node::fits_insert(&leaf.forward, key.len(), value_len, versioned) {
            node::insert(&mut leaf.forward, slot, key, &state.entry());
            run.push(slot, key, &state.entry());
        }
    }
    leaf.log(&Redo::InsertRun { page: LEAF, entries: run.entries() });
}

fn roll_back_last(lane: &mut Triple) {
    let used = undo::last(&lane.forward);
    let Some(record) = undo::record(&lane.forward, used) else { return };
    let (last, txn, state) = (record.prev, TxnId(50), State::Active);
    undo::set_tail(&mut lane.forward, used, last, txn, state);
    lane.log(&Redo::UndoTail { page: UNDO, used, last, txn, state });
}

#[test]
fn inner_pages() {
    for seed in 0..100 {
        let rng = &mut Rng::with_seed(seed);
        let sizes = Sizes::random(rng);
        let mut b = Builder::new(INNER, TREE, 1, &[], None);
        b.push_child(&[], PageId(77));
        let page = b.finish();
        let mut body = Vec::new();
        page.append_body(&mut body);
        let mut inner = Triple::new(INNER, &Redo::Image { page: INNER, body: &body }, page);
        for _ in 0..100 {
            let (page, key) = (INNER, random_key(rng, sizes));
            let n = node::count(&inner.forward);
            if !node::covers(&inner.forward, &key) {
                continue;
            }
            let (slot, exists) = node::search(&inner.forward, &key);
            if rng.u8(0..4) == 0 && n > 1 {
                let slot = rng.usize(0..n);
                node::remove(&mut inner.forward, slot);
                inner.log(&Redo::RemoveChild { page, slot: slot as u16 });
            } else if n > 2 && !node::fits_child(&inner.forward, key.len()) {
                let split = node::plan_inner_split(&inner.forward, slot);
                node::truncate(&mut inner.forward, split.at, &split.separator);
                inner.log(&Redo::Truncate { page, at: split.at as u16, upper: &split.separator });
            } else if !exists && slot > 0 && node::fits_child(&inner.forward, key.len()) {
                let child = PageId(rng.u32(1..));
                node::insert_child(&mut inner.forward, slot, &key, child);
                inner.log(&Redo::InsertChild { page, slot: slot as u16, key: &key, child });
            }
            inner.check(rng);
        }
    }
}

#[test]
fn all_other_records() {
    let rng = &mut Rng::with_seed(0);
    let page = UNDO;
    let mut lane = undo_page();
    undo::set_next(&mut lane.forward, PageId(9));
    lane.log(&Redo::UndoLink { page, next: PageId(9) });
    let first = Some(TxnId(51));
    let undo = Undo::Prepare { xid: b"xid" };
    undo::push(&mut lane.forward, &undo, first);
    lane.log(&Redo::UndoPush { page, first, undo });
    undo::set_purge_from(&mut lane.forward, 70);
    lane.log(&Redo::UndoPurged { page, from: 70 });
    lane.check(rng);

    let mut forward = Page::boxed();
    lanes::init(&mut forward, PageId(4));
    let mut directory = Triple::new(PageId(4), &Redo::LanesInit { page: PageId(4) }, forward);
    for lane in [0, 7, lanes::LANES as u16 - 1] {
        let (page, head, tail) = (PageId(4), PageId(rng.u32(1..)), PageId(rng.u32(1..)));
        lanes::set(&mut directory.forward, lane, head, tail);
        directory.log(&Redo::LaneSet { page, lane, head, tail });
        assert_eq!(lanes::get(&directory.replayed, lane), (head, tail));
    }
    directory.check(rng);

    for len in [0, 1, 5000, overflow::CAPACITY] {
        let (page, next) = (PageId(6), PageId(7));
        let data: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        let mut forward = Page::boxed();
        overflow::init(&mut forward, page, PageId::NONE, &data);
        let mut link = Triple::new(page, &Redo::OverflowInit { page, data: &data }, forward);
        overflow::set_next(&mut link.forward, next);
        link.log(&Redo::OverflowLink { page, next });
        assert_eq!(
            (overflow::data(&link.replayed), overflow::next(&link.replayed)),
            (&data[..], next)
        );
        link.check(rng);
        link.forward.reset(page, weir_page::Kind::Blank, 0);
        link.log(&Redo::Free { page });
        link.check(rng);
    }
}

//! Redo records: what is decoded is what was encoded, and any other bytes are refused.

mod common;

use common::{Sizes, State as EntryState, random_key, random_state, random_version};
use fastrand::Rng;
use weir_page::node::Builder;
use weir_page::overflow::{self, CAPACITY};
use weir_page::record::{Before, Change, EntriesBuilder, Redo, Write};
use weir_page::undo::{self, State};
use weir_page::varint::{self, Input};
use weir_page::{
    Delta, Flags, Lsn, PAGE_SIZE, Page, PageId, RECORD_BYTES, TreeId, TxnId, Undo, UndoPtr,
    WRITE_BYTES, lanes,
};

/// Operands that random records borrow from.
struct Operands {
    key: Vec<u8>,
    entry: EntryState,
    middle: Vec<u8>,
    body: Vec<u8>,
    run: EntriesBuilder,
}

impl Operands {
    fn random(rng: &mut Rng) -> Operands {
        let sizes = Sizes::random(rng);
        let key = random_key(rng, sizes);
        let entry = random_state(rng, key.len(), sizes);
        let middle = random_key(rng, sizes);
        let mut page = Page::boxed();
        page.0[rng.usize(64..PAGE_SIZE)..].fill_with(|| rng.u8(0..4));
        page.0[32] = 5;
        let mut body = Vec::new();
        page.append_body(&mut body);
        let mut run = EntriesBuilder::default();
        for slot in 0..rng.usize(0..4) {
            let key = random_key(rng, sizes);
            run.push(2 * slot, &key, &random_state(rng, key.len(), sizes).entry());
        }
        Operands { key, entry, middle, body, run }
    }
}

fn random_id(rng: &mut Rng) -> PageId {
    let bits = rng.u32(0..32);
    PageId(rng.u32(..) >> bits)
}

fn random_txn(rng: &mut Rng) -> TxnId {
    let bits = rng.u32(16..63);
    TxnId((rng.u64(..) >> bits) + 1)
}

fn random_lsn(rng: &mut Rng) -> Lsn {
    let bits = rng.u32(0..64);
    Lsn(rng.u64(..) >> bits & !7)
}

fn random_slot(rng: &mut Rng) -> u16 {
    let bits = rng.u32(0..16);
    rng.u16(..) >> bits
}

fn random_size(rng: &mut Rng) -> usize {
    let bits = rng.u32(0..15);
    rng.usize(0..=PAGE_SIZE) >> bits
}

fn random_undo<'a>(rng: &mut Rng, from: &'a Operands) -> Undo<'a> {
    let (tree, key) = (TreeId(rng.u32(..)), &from.key[..]);
    let (flags, version) = (from.entry.flags, from.entry.version);
    let (front, back) = (random_size(rng), random_size(rng));
    match rng.u8(0..8) {
        0 => Undo::Insert { tree, key },
        1 => {
            let delta = Delta { front, back, middle: &from.middle };
            Undo::Update { tree, key, flags, version, delta }
        }
        2 => Undo::Delete { tree, key, flags, version },
        3 => Undo::Prepare { xid: key },
        4 => Undo::Overflow { first: random_id(rng) },
        5 => Undo::CreateTree { root: random_id(rng) },
        6 => Undo::DropTree { root: random_id(rng) },
        _ => Undo::Hide { tree, key },
    }
}

fn random_write<'a>(rng: &mut Rng, from: &'a Operands) -> Write<'a> {
    let (flags, old_version) = (from.entry.flags, random_version(rng));
    let old_flags = Flags { deleted: rng.bool(), overflow: rng.bool(), hides: rng.bool() };
    let change = match rng.u8(0..3) {
        0 => Change::Insert { flags, value: &from.entry.value },
        1 => Change::Update {
            old_flags,
            old_version,
            flags,
            front: random_size(rng),
            back: random_size(rng),
            old_middle: &from.middle,
            new_middle: &from.entry.value,
        },
        _ => Change::Delete { old_flags, old_version },
    };
    Write {
        leaf: random_id(rng),
        slot: random_slot(rng),
        undo: UndoPtr { page: random_id(rng), offset: random_slot(rng) },
        first: rng.bool(),
        txn: random_txn(rng),
        tree: TreeId(rng.u32(..)),
        key: &from.key,
        change,
    }
}

fn random_redo<'a>(rng: &mut Rng, from: &'a Operands) -> Redo<'a> {
    let (page, other) = (random_id(rng), random_id(rng));
    let (slot, key, txn) = (random_slot(rng), &from.key[..], random_txn(rng));
    let state = [State::Ended, State::Active, State::Prepared][rng.usize(0..3)];
    match rng.u8(0..23) {
        0..3 => Redo::Write(random_write(rng, from)),
        3 => Redo::Image { page, body: &from.body },
        4 => Redo::Free { page },
        5 => Redo::Set { page, slot, insert: rng.bool(), key, entry: from.entry.entry() },
        6 => Redo::Remove { page, slot },
        7 => Redo::Freeze { page, below: TxnId(rng.u64(..)) },
        8 => Redo::Truncate { page, at: slot, upper: key },
        9 => Redo::InsertChild { page, slot, key, child: other },
        10 => Redo::RemoveChild { page, slot },
        11 => Redo::UndoInit { page, lane: slot, prev: other, txn, state },
        12 => Redo::UndoLink { page, next: other },
        13 => {
            let first = rng.bool().then_some(txn);
            Redo::UndoPush { page, first, undo: random_undo(rng, from) }
        }
        14 => Redo::UndoTail { page, used: slot, last: rng.u16(..), txn, state },
        15 => Redo::UndoPurged { page, from: slot },
        16 => Redo::LanesInit { page },
        17 => {
            let lane = slot % weir_page::lanes::LANES as u16;
            Redo::LaneSet { page, lane, head: other, tail: random_id(rng) }
        }
        18 => Redo::OverflowInit { page, data: &from.body[..from.body.len().min(CAPACITY)] },
        19 => Redo::OverflowLink { page, next: other },
        20 => Redo::InsertRun { page, entries: from.run.entries() },
        21 => Redo::RemoveRun { page, slot, count: random_slot(rng) },
        _ => Redo::Relocate { moves: key },
    }
}

#[test]
fn what_is_decoded_is_what_was_encoded() {
    for seed in 0..3000 {
        let rng = &mut Rng::with_seed(seed);
        let operands: Vec<Operands> = (0..4).map(|_| Operands::random(rng)).collect();
        let (mut group, mut before) = (Vec::new(), Before::default());
        let mut records: Vec<(Redo<'_>, Lsn, Lsn)> = Vec::new();
        for from in &operands {
            let (redo, prev, prev_undo) = match records.last() {
                Some(&(Redo::Write(w), prev, prev_undo)) => {
                    let (like, prev) = like_the_one_before(rng, from, &w, prev);
                    (Redo::Write(like), prev, prev_undo)
                }
                _ => {
                    let redo = random_redo(rng, from);
                    let has_undo = redo.second_page().is_some();
                    (redo, random_lsn(rng), if has_undo { random_lsn(rng) } else { Lsn(0) })
                }
            };
            redo.encode(prev, prev_undo, &mut before, &mut group);
            records.push((redo, prev, prev_undo));
        }
        group.resize(group.len() + rng.usize(0..8), 0);
        let (mut input, mut before) = (Input::new(&group), Before::default());
        let mut scratch = Vec::new();
        for wanted in records {
            let logged = Redo::decode(&mut input, &mut before, &mut scratch).expect("well formed");
            let logged = logged.expect("as many records as were encoded");
            assert_eq!((logged.redo, logged.prev, logged.prev_undo), wanted, "seed {seed}");
        }
        assert_eq!(Redo::decode(&mut input, &mut before, &mut scratch), Ok(None));
    }
}

/// Who writes a record asks for this much room in the log.
#[test]
fn records_are_no_longer_than_is_said() {
    let (page, txn) = (PageId(u32::MAX), TxnId(u64::MAX >> 1));
    let (state, slot, lsn) = (State::Prepared, u16::MAX, Lsn(!7));
    let bytes_of = |redo: &Redo<'_>| {
        let mut out = Vec::new();
        redo.encode(lsn, lsn, &mut Before::default(), &mut out);
        // Where slices are longer their lengths take two bytes more.
        out.len() + 3 * 2
    };
    let version = Some(weir_page::Version { txn, undo: UndoPtr { page, offset: slot } });
    let flags = Flags { deleted: true, overflow: true, hides: true };
    let entry = weir_page::Entry { flags, version, value: &[] };
    let undo = Undo::Overflow { first: page };
    for redo in [
        Redo::Free { page },
        Redo::Set { page, slot, insert: true, key: &[], entry },
        Redo::Remove { page, slot },
        Redo::RemoveRun { page, slot, count: slot },
        Redo::Freeze { page, below: txn },
        Redo::Truncate { page, at: slot, upper: &[] },
        Redo::InsertChild { page, slot, key: &[], child: page },
        Redo::RemoveChild { page, slot },
        Redo::UndoInit { page, lane: slot, prev: page, txn, state },
        Redo::UndoLink { page, next: page },
        Redo::UndoPush { page, first: Some(txn), undo },
        Redo::UndoTail { page, used: slot, last: slot, txn, state },
        Redo::UndoPurged { page, from: slot },
        Redo::LanesInit { page },
        Redo::LaneSet { page, lane: slot, head: page, tail: page },
        Redo::OverflowInit { page, data: &[] },
        Redo::OverflowLink { page, next: page },
    ] {
        assert!(bytes_of(&redo) <= RECORD_BYTES, "{redo:?}");
    }
    let (front, back) = (PAGE_SIZE, PAGE_SIZE);
    let (old_flags, old_version, undo) = (flags, version, UndoPtr { page, offset: slot });
    let (old_middle, new_middle): (&[u8], &[u8]) = (&[], &[]);
    for change in [
        Change::Insert { flags, value: &[] },
        Change::Update { old_flags, old_version, flags, front, back, old_middle, new_middle },
        Change::Delete { old_flags, old_version },
    ] {
        let tree = TreeId(u32::MAX);
        let write = Write { leaf: page, slot, undo, first: true, txn, tree, key: &[], change };
        assert!(bytes_of(&Redo::Write(write)) <= WRITE_BYTES, "{change:?}");
    }
}

/// A write that shares with another what those of a group mostly share, and its leaf's previous
/// LSN.
fn like_the_one_before<'a>(
    rng: &mut Rng,
    from: &'a Operands,
    before: &Write<'_>,
    prev: Lsn,
) -> (Write<'a>, Lsn) {
    let w = random_write(rng, from);
    let mostly = |rng: &mut Rng| rng.u8(0..8) > 0;
    let same_leaf = mostly(rng);
    let like = Write {
        leaf: if same_leaf { before.leaf } else { w.leaf },
        slot: if mostly(rng) { before.slot.saturating_add(rng.u16(0..3)) } else { w.slot },
        undo: UndoPtr {
            page: if mostly(rng) { before.undo.page } else { w.undo.page },
            offset: before.undo.offset.saturating_add(rng.u16(0..300)),
        },
        first: !mostly(rng),
        txn: if mostly(rng) { before.txn } else { w.txn },
        tree: if mostly(rng) { before.tree } else { w.tree },
        ..w
    };
    (like, if same_leaf && mostly(rng) { prev } else { random_lsn(rng) })
}

/// Reads all records of a group, as far as they go.
fn decode_all(group: &[u8]) {
    let mut input = Input::new(group);
    let mut left = group.len() + 1;
    let [mut read, mut written, mut reread] = [Before::default(); 3];
    loop {
        let mut scratch = Vec::new();
        let found = Redo::decode(&mut input, &mut read, &mut scratch);
        let Ok(Some(logged)) = found else { return };
        assert!(input.rest().len() < left, "every record takes bytes");
        left = input.rest().len();
        let _ = (logged.redo.page(), logged.redo.second_page(), logged.redo.initialises());
        // What is accepted can be encoded again, and says the same.
        let mut again = Vec::new();
        logged.redo.encode(logged.prev, logged.prev_undo, &mut written, &mut again);
        let mut unpacked = Vec::new();
        let same = Redo::decode(&mut Input::new(&again), &mut reread, &mut unpacked);
        assert_eq!(same, Ok(Some(logged)));
        assert!(unpacked.capacity() <= 2 * PAGE_SIZE);
    }
}

/// A page of each kind.
fn random_pages(rng: &mut Rng) -> Vec<Box<Page>> {
    let sizes = Sizes::random(rng);
    let mut keys: Vec<Vec<u8>> = (0..rng.usize(2..60)).map(|_| random_key(rng, sizes)).collect();
    keys.sort();
    keys.dedup();
    let upper = keys.pop().filter(|_| rng.bool() && !keys.is_empty());
    let lower = if upper.is_some() { &keys[0][..] } else { &[] };
    let mut leaf = Builder::new(PageId(1), TreeId(1), 0, lower, upper.as_deref());
    let mut inner = Builder::new(PageId(2), TreeId(1), 1, lower, upper.as_deref());
    for key in &keys {
        let state = random_state(rng, key.len(), sizes);
        if leaf.fits(key.len(), state.value.len(), true) {
            leaf.push(key, &state.entry());
        }
        if inner.free_bytes() > key.len() + 12 {
            inner.push_child(key, random_id(rng));
        }
    }
    let mut pages = vec![leaf.finish(), inner.finish()];
    pages.resize_with(6, Page::boxed);
    undo::init(&mut pages[2], PageId(3), 0, PageId::NONE, TxnId(1), State::Active);
    while rng.u8(0..8) > 0 && undo::fits(&pages[2], 2000) {
        undo::push(&mut pages[2], &Undo::Prepare { xid: &[1; 1900] }, None);
    }
    lanes::init(&mut pages[3], PageId(4));
    overflow::init(&mut pages[4], PageId(5), PageId::NONE, &[1; 100]);
    pages
}

#[test]
fn what_is_checked_can_be_applied() {
    let (mut applied, mut refused) = (0, 0);
    for seed in 0..3000 {
        let rng = &mut Rng::with_seed(seed);
        let pages = random_pages(rng);
        for _ in 0..20 {
            let from = Operands::random(rng);
            let mut redo = random_redo(rng, &from);
            for page in &pages {
                if let (Redo::Write(w), true) = (&mut redo, rng.bool()) {
                    w.undo.offset = undo::used(page) as u16;
                }
                for id in redo.page().into_iter().chain(redo.second_page()) {
                    if redo.check(id, page).is_err() {
                        refused += 1;
                        continue;
                    }
                    let mut copy = Page::boxed();
                    copy.0.copy_from_slice(&page.0);
                    redo.apply(id, &mut copy);
                    applied += 1;
                }
            }
        }
    }
    assert!(applied > 50_000 && refused > 50_000, "{applied} applied, {refused} refused");
}

#[test]
fn mutated_and_cut_records_are_refused_or_read_without_panic() {
    for seed in 0..6000 {
        let rng = &mut Rng::with_seed(seed);
        let from = Operands::random(rng);
        let (mut bytes, mut before) = (Vec::new(), Before::default());
        let (redo, prev) = (random_redo(rng, &from), random_lsn(rng));
        redo.encode(prev, Lsn(0), &mut before, &mut bytes);
        if let Redo::Write(w) = redo {
            let (like, prev) = like_the_one_before(rng, &from, &w, prev);
            Redo::Write(like).encode(prev, Lsn(0), &mut before, &mut bytes);
        }
        for _ in 0..20 {
            let mut bytes = bytes.clone();
            for _ in 0..rng.usize(1..4) {
                let near = if rng.bool() { bytes.len().min(24) } else { bytes.len() };
                let at = rng.usize(0..near);
                bytes[at] = if rng.bool() { rng.u8(..) } else { bytes[at] ^ (1 << rng.u8(0..8)) };
            }
            if rng.u8(0..4) == 0 {
                bytes.truncate(rng.usize(0..=bytes.len()));
            }
            decode_all(&bytes);
        }
    }
}

#[test]
fn arbitrary_bytes_are_refused_or_read_without_panic() {
    for seed in 0..20_000 {
        let rng = &mut Rng::with_seed(seed);
        let mut bytes: Vec<u8> = (0..rng.usize(0..200)).map(|_| rng.u8(..)).collect();
        if let Some(op) = bytes.first_mut() {
            *op = rng.u8(0..28);
        }
        if rng.bool() {
            bytes.iter_mut().skip(1).for_each(|b| *b &= 0x0f);
        }
        decode_all(&bytes);
    }
}

#[test]
fn an_image_that_claims_another_length_is_refused() {
    let body = vec![0; 2 + PAGE_SIZE - 32];
    let packed = lz4_flex::block::compress(&body);
    for len in [0, 1, 33, 34, 16_000, 16_353, 16_355, 16_384, 16_385, 1 << 20, 1 << 40, u64::MAX] {
        let mut bytes = vec![4, 1, 0];
        varint::put(&mut bytes, len);
        varint::put(&mut bytes, packed.len() as u64);
        bytes.extend_from_slice(&packed);
        let mut scratch = Vec::new();
        let found = Redo::decode(&mut Input::new(&bytes), &mut Before::default(), &mut scratch);
        assert!(found.is_err(), "length {len}");
        assert!(scratch.capacity() <= 2 * PAGE_SIZE, "length {len}");
    }
}

#[test]
fn slices_longer_than_the_record_are_refused() {
    for op in 0..=255 {
        for fill in [0x7f, 0x80, 0xff] {
            let mut bytes = vec![op];
            bytes.resize(40, fill);
            decode_all(&bytes);
        }
    }
}

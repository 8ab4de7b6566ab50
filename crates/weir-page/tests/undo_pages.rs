//! Undo pages against a vector of records.

use fastrand::Rng;
use weir_page::undo::{self, Record, State};
use weir_page::{Delta, Flags, PAGE_SIZE, Page, PageId, TreeId, TxnId, Undo, UndoPtr, Version};

const BODY: u16 = 64;

fn page() -> Box<Page> {
    let mut p = Page::boxed();
    undo::init(&mut p, PageId(5), 3, PageId(4), TxnId(7), State::Active);
    p
}

fn random_undo<'a>(rng: &mut Rng, bytes: &'a [u8]) -> Undo<'a> {
    let tree = TreeId(rng.u32(1..));
    let key = &bytes[..if rng.u8(0..20) == 0 { 3500 } else { rng.usize(0..40) }];
    let flags = Flags { deleted: rng.bool(), overflow: rng.bool(), hides: rng.bool() };
    let version = rng.bool().then(|| Version {
        txn: TxnId(rng.u64(1..1 << 48)),
        undo: UndoPtr { page: PageId(rng.u32(..)), offset: rng.u16(..) },
    });
    let page = PageId(rng.u32(..));
    match rng.u8(0..8) {
        0 => Undo::Insert { tree, key },
        1 => {
            let middle = &bytes[..rng.usize(0..300)];
            let delta = Delta { front: rng.usize(0..PAGE_SIZE), back: rng.usize(0..300), middle };
            Undo::Update { tree, key, flags, version, delta }
        }
        2 => Undo::Delete { tree, key, flags, version },
        3 => Undo::Prepare { xid: &bytes[..rng.usize(0..140)] },
        4 => Undo::Overflow { first: page },
        5 => Undo::CreateTree { root: page },
        6 => Undo::DropTree { root: page },
        _ => Undo::Hide { tree, key },
    }
}

/// Checks both walks against the records pushed, `(offset, first, undo)`.
fn check(p: &Page, pushed: &[(u16, Option<TxnId>, Undo<'_>)]) {
    undo::validate(p).expect("a page stays well formed");
    let mut at = BODY;
    for (i, (offset, first, undo)) in pushed.iter().enumerate() {
        assert_eq!(at, *offset);
        let prev = if i == 0 { 0 } else { pushed[i - 1].0 };
        let r = undo::record(p, at).expect("a record was pushed here");
        assert_eq!(r, Record { end: r.end, prev, first: *first, undo: *undo });
        at = r.end;
    }
    assert_eq!(at as usize, undo::used(p));
    let mut at = undo::last(p);
    for (offset, ..) in pushed.iter().rev() {
        assert_eq!(at, *offset);
        at = undo::record(p, at).expect("a record was pushed here").prev;
    }
    assert_eq!(at, 0);
    if pushed.iter().any(|(.., undo)| undo.needs_purge()) {
        assert!(undo::needs_purge(p));
    }
}

#[test]
fn pushes_walks_and_rollbacks() {
    let bytes: Vec<u8> = (0..4000).map(|i| i as u8).collect();
    for seed in 0..300 {
        let rng = &mut Rng::with_seed(seed);
        let mut p = page();
        let mut pushed = Vec::new();
        let mut txn = TxnId(7);
        for _ in 0..rng.usize(1..200) {
            let undo = random_undo(rng, &bytes);
            let used = undo::used(&p);
            if undo::fits(&p, undo.size()) && rng.u8(0..10) > 0 {
                let first = (rng.u8(0..6) == 0).then(|| TxnId(rng.u64(1..1 << 48)));
                let at = undo::push(&mut p, &undo, first);
                assert!(undo::used(&p) - used <= undo.size(), "size is an upper bound: {undo:?}");
                txn = first.unwrap_or(txn);
                pushed.push((at, first, undo));
                assert_eq!(undo::txn(&p).0, txn);
            } else {
                pushed.truncate(rng.usize(0..=pushed.len()));
                let last = pushed.last().map_or(0, |(at, ..)| *at);
                let end = undo::record(&p, last).map_or(BODY, |r| r.end);
                undo::set_tail(&mut p, end, last, txn, State::Active);
                let hole = p.hole();
                p.0[hole].fill(0);
            }
            check(&p, &pushed);
        }
    }
}

#[test]
fn the_header_keeps_lane_neighbours_and_transaction() {
    let mut p = page();
    assert_eq!((undo::lane(&p), undo::prev(&p), undo::next(&p)), (3, PageId(4), PageId(0)));
    undo::set_next(&mut p, PageId(6));
    assert_eq!(undo::next(&p), PageId(6));
    assert_eq!(undo::txn(&p), (TxnId(7), State::Active));
    undo::push(&mut p, &Undo::Insert { tree: TreeId(1), key: b"k" }, Some(TxnId(0xffff_ffff_ffff)));
    assert_eq!(undo::txn(&p), (TxnId(0xffff_ffff_ffff), State::Active));
    undo::push(&mut p, &Undo::Prepare { xid: b"x" }, None);
    assert_eq!(undo::txn(&p).1, State::Prepared);
    let (used, last) = (undo::used(&p) as u16, undo::last(&p));
    undo::set_tail(&mut p, used, last, TxnId(8), State::Ended);
    assert_eq!(undo::txn(&p), (TxnId(8), State::Ended));
    assert_eq!(undo::next(&p), PageId(6));
    undo::validate(&p).expect("well formed");
}

#[test]
fn only_updates_deletes_and_dropped_trees_need_purge() {
    let (tree, key) = (TreeId(1), &b"k"[..]);
    let (flags, version) = (Flags::default(), None);
    let delta = Delta::whole(b"v");
    let root = PageId(9);
    for (undo, needs) in [
        (Undo::Insert { tree, key }, false),
        (Undo::Update { tree, key, flags, version, delta }, true),
        (Undo::Delete { tree, key, flags, version }, true),
        (Undo::Prepare { xid: b"x" }, false),
        (Undo::Overflow { first: root }, false),
        (Undo::CreateTree { root }, false),
        (Undo::DropTree { root }, true),
        (Undo::Hide { tree, key }, true),
    ] {
        let mut p = page();
        undo::push(&mut p, &undo, None);
        assert_eq!(undo::needs_purge(&p), needs, "{undo:?}");
        let end = undo::used(&p) as u16;
        undo::push(&mut p, &Undo::Insert { tree, key }, None);
        let used = undo::used(&p) as u16;
        undo::set_purge_from(&mut p, used);
        undo::set_tail(&mut p, end, BODY, TxnId(7), State::Active);
        assert_eq!(undo::needs_purge(&p), needs, "a rollback of later records keeps it");
        assert_eq!(undo::purge_from(&p), end, "purge never counts what was rolled back");
        undo::set_tail(&mut p, BODY, 0, TxnId(7), State::Active);
        assert!(!undo::needs_purge(&p), "an empty page has no work");
        assert_eq!(undo::purge_from(&p), BODY);
        undo::validate(&p).expect("well formed");
    }
}

#[test]
fn records_outside_the_used_part_are_not_there() {
    let mut p = page();
    assert_eq!(undo::record(&p, 0), None);
    assert_eq!(undo::record(&p, BODY), None);
    let at = undo::push(&mut p, &Undo::Prepare { xid: b"abc" }, None);
    assert!(undo::record(&p, at).is_some());
    undo::set_tail(&mut p, BODY, 0, TxnId(7), State::Active);
    assert_eq!(undo::record(&p, at), None);
    assert_eq!(undo::record(&p, u16::MAX), None);
}

/// Who went from it to the one before came to no end.
#[test]
fn a_record_that_is_not_behind_the_one_before_is_none() {
    let mut p = page();
    let undo = Undo::Prepare { xid: b"abc" };
    let [first, second, third] = [0; 3].map(|_| undo::push(&mut p, &undo, None));
    for prev in [second, third, u16::MAX] {
        let at = usize::from(second) + 2;
        p.0[at..at + 2].copy_from_slice(&prev.to_le_bytes());
        assert_eq!(undo::record(&p, second), None, "{prev}");
    }
    assert!(undo::record(&p, first).is_some() && undo::record(&p, third).is_some());
}

#[test]
fn a_page_is_filled_to_its_last_byte() {
    let mut p = page();
    let xid = [1; 3000];
    while undo::fits(&p, Undo::Prepare { xid: &xid }.size()) {
        undo::push(&mut p, &Undo::Prepare { xid: &xid }, None);
    }
    let left = PAGE_SIZE - undo::used(&p);
    let slack = Undo::Prepare { xid: &[] }.size();
    undo::push(&mut p, &Undo::Prepare { xid: &xid[..left - slack] }, Some(TxnId(1)));
    undo::validate(&p).expect("well formed");
    assert!(!undo::fits(&p, slack));
}

#[test]
fn any_bytes_are_refused_or_read_without_panic() {
    let bytes: Vec<u8> = (0..4000).map(|i| i as u8).collect();
    for seed in 0..3000 {
        let rng = &mut Rng::with_seed(seed);
        let mut p = page();
        for _ in 0..10 {
            let undo = random_undo(rng, &bytes[..3500]);
            if undo::fits(&p, undo.size()) {
                undo::push(&mut p, &undo, None);
            }
        }
        for _ in 0..rng.usize(1..5) {
            let to = if rng.bool() { 64 } else { undo::used(&p).max(65) };
            p.0[rng.usize(32..to)] = rng.u8(..);
        }
        let _ = (undo::validate(&p), undo::txn(&p), undo::needs_purge(&p));
        for _ in 0..20 {
            let _ = undo::record(&p, rng.u16(..));
        }
        let hole = p.hole();
        p.0[hole].fill(0);
    }
}

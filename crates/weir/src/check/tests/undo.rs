//! Damage of undo lanes is found.

use super::*;

/// A database whose first lane has several pages, and those.
fn with_lane() -> (Bed, Vec<PageId>) {
    let mut bed = Bed::new(1, 1);
    bed.fill(40);
    let mut txn = bed.txns.begin();
    for key in bed.trees[0].1.keys() {
        txn.write(bed.trees[0].0, key, Op::Update(b"other")).unwrap();
    }
    txn.commit(Durability::Sync).unwrap();
    bed.trees[0].1.values_mut().for_each(|value| *value = b"other".to_vec());
    bed.assert_clean("before damage");
    let (head, tail) = lanes::get(&bed.page(LANE_DIRECTORY), 0);
    let mut pages = vec![head];
    while pages[pages.len() - 1] != tail {
        pages.push(weir_page::undo::next(&bed.page(pages[pages.len() - 1])));
    }
    assert!(pages.len() > 3);
    (bed, pages)
}

#[test]
fn a_cut_lane_is_found() {
    let (bed, pages) = with_lane();
    bed.apply(&Redo::UndoLink { page: pages[1], next: PageId::NONE });
    bed.assert_found(&[(pages[1], "links to no page"), (pages[2], "were not reached")]);
}

#[test]
fn a_lane_that_goes_round_is_found() {
    let (bed, pages) = with_lane();
    bed.apply(&Redo::UndoLink { page: pages[1], next: pages[0] });
    bed.assert_found(&[(pages[0], "is referred to twice"), (pages[2], "were not reached")]);
}

#[test]
fn a_wrong_link_back_is_found() {
    let (bed, pages) = with_lane();
    let mut page = bed.page(pages[2]);
    page.set_u32(40, pages[0].0);
    bed.set_page(&page);
    bed.assert_found(&[(pages[2], "links back to page")]);
}

#[test]
fn a_lane_that_goes_on_behind_its_tail_is_found() {
    let (bed, pages) = with_lane();
    bed.apply(&Redo::UndoLink { page: pages[pages.len() - 1], next: pages[0] });
    bed.assert_found(&[(pages[pages.len() - 1], "ends the lane, but links to")]);
}

#[test]
fn a_page_of_two_lanes_is_found() {
    let (bed, pages) = with_lane();
    let (head, tail) = (pages[0], pages[pages.len() - 1]);
    bed.apply(&Redo::LaneSet { page: LANE_DIRECTORY, lane: 3, head, tail });
    bed.assert_found(&[(head, "is referred to twice")]);
}

#[test]
fn a_lost_write_of_a_prepared_transaction_is_found() {
    let (bed, _) = with_lane();
    let (first, last) = (long_key(0), long_key(39));
    let mut txn = bed.txns.begin();
    for key in [&first, &last] {
        txn.write(bed.trees[0].0, key, Op::Update(b"prepared")).unwrap();
    }
    txn.write(bed.trees[0].0, b"new", Op::Insert(b"prepared")).unwrap();
    txn.write(bed.trees[0].0, &first, Op::Delete).unwrap();
    txn.prepare(b"name", Durability::Sync).unwrap();
    assert_eq!(bed.assert_clean("prepared").prepared, 1);
    let (_, tail) = lanes::get(&bed.page(LANE_DIRECTORY), 0);
    let flags = Flags::default();
    set_entry(&bed, &last, Entry { flags, version: None, value: b"other" });
    let what = format!("isn't as transaction {} left it", txn.id().0);
    bed.assert_found(&[(tail, &what)]);
    txn.leave();
}

#[test]
fn a_running_transaction_is_found() {
    let (bed, pages) = with_lane();
    let tail = bed.page(pages[pages.len() - 1]);
    let (used, last) = (weir_page::undo::used(&tail) as u16, weir_page::undo::last(&tail));
    let state = weir_page::undo::State::Active;
    bed.apply(&Redo::UndoTail { page: tail.id(), used, last, txn: TxnId(900), state });
    bed.assert_found(&[(tail.id(), "transaction 900 is still running")]);
}

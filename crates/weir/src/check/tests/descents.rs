//! Whoever comes to a page that can't be where it is gets an error.

use super::*;
use crate::txn::{Direction, Range, Scan};

const EVERYTHING: Range = Range { low: Vec::new(), high: None };

/// A tree whose third child is the page that `choose` says, that page, and a key that leads to it.
fn with_stray(choose: impl Fn(&mut Bed, &[PageId]) -> PageId) -> (Bed, PageId, Vec<u8>) {
    let (mut bed, root, mut children) = two_levels(1);
    children[2] = choose(&mut bed, &children);
    bed.set_page(&with_children(&root, &children));
    (bed, children[2], node::key(&root, 2))
}

fn scan_error(bed: &Bed, range: Range, direction: Direction) -> String {
    let view = bed.txns.begin().view();
    let mut scan = Scan::new(bed.txns.clone(), bed.trees[0].0, range, direction, 1);
    for _ in 0..=bed.trees[0].1.len() {
        match scan.next(view) {
            Ok(row) => assert!(row.is_some(), "the scan ends"),
            Err(fault) => return fault.to_string(),
        }
    }
    panic!("the scan gives more rows than there are");
}

/// Asserts that reads, writes, scans and estimates tell of such a child.
fn assert_told(choose: impl Fn(&mut Bed, &[PageId]) -> PageId) {
    let (bed, stray, key) = with_stray(choose);
    let tree = bed.trees[0].0;
    let mut txn = bed.txns.begin();
    let view = txn.view();
    for error in [
        txn.get_into(view, tree, &key, &mut Vec::new()).unwrap_err().to_string(),
        txn.write(tree, &key, Op::Upsert(b"value")).unwrap_err().to_string(),
        tree.estimate_between(bed.storage(), &key, None).unwrap_err().to_string(),
        scan_error(&bed, EVERYTHING, Direction::Forward),
        scan_error(&bed, EVERYTHING, Direction::Backward),
    ] {
        let what = format!("page {stray}: is not the page that its tree leads to");
        assert!(error.contains(&what), "{error}");
    }
}

#[test]
fn a_child_that_is_no_page_of_a_tree_is_told() {
    assert_told(|_, _| LANE_DIRECTORY);
}

#[test]
fn a_child_of_too_high_a_level_is_told() {
    assert_told(|bed, _| bed.trees[0].0.root());
}

/// The root of another tree, a leaf.
fn other_leaf(bed: &mut Bed, _: &[PageId]) -> PageId {
    let mut txn = bed.txns.begin();
    let other = txn.create_tree().unwrap();
    txn.write(other, b"key", Op::Insert(b"value")).unwrap();
    txn.commit(Durability::Sync).unwrap();
    other.root()
}

#[test]
fn a_leaf_of_another_tree_is_told() {
    assert_told(other_leaf);
}

#[test]
fn a_leaf_that_leads_a_scan_back_is_told() {
    for (direction, slot) in [(Direction::Forward, 1), (Direction::Backward, 3)] {
        let (bed, stray, _) = with_stray(|_, children| children[slot]);
        let error = scan_error(&bed, EVERYTHING, direction);
        assert!(error.contains(&format!("page {stray}: is not the page")), "{error}");
    }
}

/// Empties the leaves beside such a child, merges them, drops the tree, and asserts that the child stays what it is.
fn assert_stays(choose: impl Fn(&mut Bed, &[PageId]) -> PageId) {
    let (bed, stray, _) = with_stray(choose);
    let (tree, storage) = (bed.trees[0].0, bed.storage());
    let root = bed.page(tree.root());
    let before = bed.page(stray);
    for slot in [1, 3] {
        let leaf = bed.page(node::child(&root, slot));
        let (lower, upper) = (node::lower(&leaf), node::upper(&leaf));
        bed.set_page(&Builder::new(leaf.id(), tree.id, 0, lower, upper).finish());
        tree.merge(storage, lower).unwrap();
        assert!(bed.page(stray).0[..] == before.0[..], "after a merge");
    }
    tree.destroy(storage, &mut |_| Ok(())).unwrap();
    assert!(bed.page(stray).0[..] == before.0[..], "after a drop");
    assert!(storage.store.allocated_pages().contains(&stray));
    assert!(!storage.store.allocated_pages().contains(&tree.root()));
}

#[test]
fn merges_and_drops_leave_pages_of_others() {
    assert_stays(|_, _| LANE_DIRECTORY);
    assert_stays(other_leaf);
}

#[test]
fn a_tree_that_leads_to_its_own_root_is_dropped() {
    let (bed, root, mut children) = two_levels(1);
    *children.last_mut().unwrap() = root.id();
    bed.set_page(&with_children(&root, &children));
    bed.trees[0].0.destroy(bed.storage(), &mut |_| Ok(())).unwrap();
    assert!(!bed.storage().store.allocated_pages().contains(&root.id()));
}

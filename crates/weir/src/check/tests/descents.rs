//! Whoever comes to a page that can't be where it is gets an error.

use super::*;
use crate::txn::{Direction, Look, Range, Scan, ScanStop};

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

/// Gives all that a look at a leaf of which a head is wrong gives; whether it was told.
fn is_told(bed: &Bed, look: Look, direction: Direction) -> bool {
    let tree = bed.trees[0].0;
    let mut scan = Scan::new(bed.txns.clone(), tree, EVERYTHING, direction, 1);
    for _ in 0..10_000 {
        match scan.look(look) {
            Ok(Some(_)) => {}
            Ok(None) | Err(ScanStop::Held(_)) => return false,
            Err(ScanStop::Fault(fault)) => {
                assert!(fault.to_string().contains("out of order"), "{fault}");
                return true;
            }
            Err(stop) => panic!("{stop}"),
        }
    }
    panic!("the scan never ends");
}

/// Where it was to go on it found what it had given before, up to a row that another transaction
/// had written, and gave that again and again.
#[test]
fn a_scan_of_a_leaf_whose_keys_are_out_of_order_ends() {
    let mut bed = Bed::new(1, 1);
    for n in 0..40u32 {
        bed.put(0, format!("{n:02}").as_bytes(), b"value");
    }
    let mut writer = bed.txns.begin();
    writer.write(bed.trees[0].0, b"33", Op::Upsert(b"held")).unwrap();
    writer.write(bed.trees[0].0, b"07", Op::Upsert(b"held")).unwrap();
    let own = bed.txns.begin().ensure_id();
    let looks = [
        Look::At(bed.txns.begin().view()),
        Look::Newest { own, skip: false, ranges: None },
        Look::Newest { own, skip: true, ranges: None },
    ];
    let leaf = bed.page(bed.trees[0].0.root());
    let (slots, mut told) = (64, 0);
    for slot in 0..node::count(&leaf) {
        for head in [0, 0x3130_0000, 0x3239_0000, u32::MAX] {
            let mut damaged = Page::boxed();
            damaged.0.copy_from_slice(&leaf.0);
            damaged.set_u32(slots + node::SLOT * slot, head);
            bed.set_page(&damaged);
            for look in looks {
                for direction in [Direction::Forward, Direction::Backward] {
                    told += u32::from(is_told(&bed, look, direction));
                }
            }
        }
    }
    assert!(told > 0);
}

/// Empties the leaves beside such a child, merges them, drops the tree, and asserts that the child
/// stays what it is.
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

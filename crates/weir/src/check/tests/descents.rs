//! Whoever comes to a page that can't be where it is gets an error.

use super::*;
use crate::txn::{Direction, Range, Scan};

/// Asserts that reads, writes, scans and estimates tell of a child that is this page.
fn assert_told(stray: PageId) {
    let (bed, root, mut children) = two_levels(1);
    let key = node::key(&root, 2);
    children[2] = stray;
    bed.set_page(&with_children(&root, &children));
    let tree = bed.trees[0].0;
    let mut txn = bed.txns.begin();
    let view = txn.view();
    let range = Range { low: key.clone(), high: None };
    let mut scan = Scan::new(bed.txns.clone(), tree, range, Direction::Forward, 1);
    for error in [
        txn.get_into(view, tree, &key, &mut Vec::new()).unwrap_err().to_string(),
        txn.write(tree, &key, Op::Upsert(b"value")).unwrap_err().to_string(),
        scan.next(view).unwrap_err().to_string(),
        tree.estimate_between(bed.storage(), &key, None).unwrap_err().to_string(),
    ] {
        let what = format!("page {stray}: is not the page that its tree leads to");
        assert!(error.contains(&what), "{error}");
    }
}

#[test]
fn a_child_that_is_no_page_of_a_tree_is_told() {
    assert_told(LANE_DIRECTORY);
}

#[test]
fn a_child_of_too_high_a_level_is_told() {
    let root = two_levels(1).1.id();
    assert_told(root);
}

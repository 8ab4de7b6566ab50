//! Damage of tree pages is found, and what is wrong with a list of trees; a drop cut short is no
//! damage.

use super::*;

/// The same slots in a page that may have other fences, children or tree.
fn rebuilt(page: &Page, tree: TreeId, lower: &[u8], upper: Option<&[u8]>) -> Box<Page> {
    let mut b = Builder::new(page.id(), tree, page.level(), lower, upper);
    node::copy_slots(page, 0..node::count(page), &mut b);
    b.finish()
}

#[test]
fn a_wrong_fence_is_found() {
    let (bed, _, children) = two_levels(1);
    let leaf = bed.page(children[2]);
    let mut upper = node::key(&leaf, node::count(&leaf) - 1);
    upper.truncate(6);
    upper.push(b'5');
    bed.set_page(&rebuilt(&leaf, node::tree(&leaf), node::lower(&leaf), Some(&upper)));
    bed.assert_found(&[(children[2], "holds [")]);
}

#[test]
fn a_page_of_another_tree_is_found() {
    let (bed, _, children) = two_levels(1);
    let leaf = bed.page(children[2]);
    bed.set_page(&rebuilt(&leaf, TreeId(99), node::lower(&leaf), node::upper(&leaf)));
    bed.assert_found(&[(children[2], "says that it is of tree 99")]);
}

#[test]
fn swapped_children_are_found() {
    let (bed, root, mut children) = two_levels(1);
    children.swap(1, 2);
    bed.set_page(&with_children(&root, &children));
    bed.assert_found(&[(children[1], "holds ["), (children[2], "holds [")]);
}

#[test]
fn a_child_with_two_parents_is_found_and_the_one_it_displaced() {
    let (bed, root, children) = two_levels(1);
    let mut changed = children.clone();
    changed[2] = children[1];
    bed.set_page(&with_children(&root, &changed));
    bed.assert_found(&[
        (children[1], "is referred to twice"),
        (children[2], "nothing refers to it"),
    ]);
}

#[test]
fn a_lost_page_is_found() {
    let bed = Bed::new(1, 1);
    let mut mtr = bed.storage().mtr(Need::log(1024).and_pages(1)).unwrap();
    let lost = Tree::create(&mut mtr).root();
    mtr.commit();
    bed.assert_found(&[(lost, "nothing refers to it")]);
}

#[test]
fn a_malformed_page_hides_what_is_below_it() {
    let (bed, root, children) = two_levels(1);
    let mut broken = Page::boxed();
    broken.0 = root.0;
    // The number of garbage bytes.
    broken.set_u16(42, 9000);
    bed.set_page(&broken);
    bed.assert_found(&[(root.id(), "is malformed"), (children[0], "were not reached")]);
}

#[test]
fn a_rotten_image_is_found_though_the_page_is_in_memory() {
    let (bed, _, children) = two_levels(1);
    bed.storage().flush_all(crate::storage::Reason::Checkpoint, &mut |_| {}).unwrap();
    bed.assert_clean("after writing");
    let extent = bed.storage().store.map().slot(children[0]).extent().unwrap();
    bed.disk.rot("data", extent.offset() + 200, 3).unwrap();
    let (found, _) = bed.findings();
    let text = found.iter().map(Finding::to_string).collect::<String>();
    assert!(found.len() == 1 && text.contains(&format!("(page {})", children[0])), "{text}");
    check_quickly(bed.storage(), &bed.roots(), &mut |f| panic!("{f}")).unwrap();
}

#[test]
fn an_unreadable_page_is_found_and_the_check_goes_on() {
    let (bed, _, children) = two_levels(1);
    let storage = bed.storage();
    storage.flush_all(crate::storage::Reason::Checkpoint, &mut |_| {}).unwrap();
    storage.evict_step(bed.frames).unwrap();
    for page in storage.store.allocated_pages() {
        if page != children[2] {
            bed.page(page);
        }
    }
    let at = bed.disk.operations();
    bed.disk.inject(SimFault::Io { on: Some(OpKind::Read), at, times: Times::Once });
    bed.assert_found(&[(children[2], "read of sim/data")]);
    bed.assert_clean("once it can be read");
}

#[test]
fn a_drop_cut_short_is_no_finding() {
    let (mut bed, _, _) = two_levels(1);
    bed.put(0, b"long", &[7; 50_000]);
    let (tree, _) = bed.trees.remove(0);
    let mut txn = bed.txns.begin();
    txn.drop_tree(tree).unwrap();
    txn.commit(Durability::Sync).unwrap();
    let mut before = u64::MAX;
    for turn in 0..3 {
        let summary = bed.findings();
        assert_eq!(summary.0, []);
        assert!(turn == 0 || summary.1.leaf_pages < before);
        before = summary.1.leaf_pages;
        let stop = || Restart::Error(Fault::page(tree.root(), "stop"));
        tree.destroy(bed.storage(), &mut |_| Err(stop())).unwrap_err();
        if turn == 1 {
            break;
        }
    }
    bed.purge_all();
    let (found, summary) = bed.findings();
    assert_eq!((found, summary.trees, summary.leaf_pages), (vec![], 0, 0));
}

#[test]
fn a_dropped_tree_that_is_listed_is_found() {
    let bed = Bed::new(1, 1);
    let mut txn = bed.txns.begin();
    txn.drop_tree(bed.trees[0].0).unwrap();
    txn.commit(Durability::Sync).unwrap();
    let (head, _) = lanes::get(&bed.page(LANE_DIRECTORY), 0);
    bed.assert_found(&[(head, "is dropped, but it is listed as t0")]);
}

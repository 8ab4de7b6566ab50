//! What can't be read is left where it is; what can, goes its way.

use super::*;
use crate::txn::Staging;
use weir_page::overflow;

/// Damages the image of a page, and forgets all that is in memory.
fn rot(bed: &Bed, page: PageId) {
    let storage = bed.storage();
    storage.flush_all(crate::storage::Reason::Checkpoint, &mut |_| {}).unwrap();
    let extent = storage.store.map().slot(page).extent().unwrap();
    bed.disk.rot("data", extent.offset() + 40, 3).unwrap();
    forget(bed);
    assert!(storage.load(page).is_err());
}

fn forget(bed: &Bed) {
    let storage = bed.storage();
    storage.flush_all(crate::storage::Reason::Checkpoint, &mut |_| {}).unwrap();
    while !storage.evict_step(bed.frames).unwrap() {}
}

/// Whether each of these pages is still allocated.
fn allocated<const N: usize>(bed: &Bed, pages: [PageId; N]) -> [bool; N] {
    let all = bed.storage().store.allocated_pages();
    pages.map(|page| all.contains(&page))
}

/// The first page of the chain of a tree's last entry.
fn chain_of_last(bed: &Bed) -> PageId {
    let leaf = bed.page(bed.leaf_of(0, &[0xff; 9]));
    let entry = node::entry(&leaf, node::count(&leaf) - 1);
    Reference::from_bytes(entry.value).unwrap().first
}

/// The second page of a chain and the third.
fn behind(bed: &Bed, first: PageId) -> [PageId; 2] {
    let second = overflow::next(&bed.page(first));
    [second, overflow::next(&bed.page(second))]
}

/// Asserts that the check finds something on these pages, and on no others.
fn assert_found_on(bed: &Bed, pages: &[PageId]) {
    let (found, _) = bed.findings();
    let is_one = |finding: &Finding| finding.page == PageId::NONE || pages.contains(&finding.page);
    assert!(!found.is_empty() && found.iter().all(is_one), "{found:?}");
}

fn left_by_purge(bed: &Bed) -> u64 {
    bed.txns.figures.purged_damaged.load(std::sync::atomic::Ordering::Relaxed)
}

#[test]
fn of_a_dropped_tree_only_damaged_pages_are_lost() {
    let (bed, root, children) = two_levels(1);
    rot(&bed, children[2]);
    bed.trees[0].0.destroy(bed.storage(), &mut |_| Ok(())).unwrap();
    let allocated = bed.storage().store.allocated_pages();
    let left: Vec<_> = children.iter().filter(|page| allocated.contains(page)).collect();
    assert_eq!(left, [&children[2]]);
    assert!(!allocated.contains(&root.id()));
}

#[test]
fn a_damaged_chain_does_not_keep_its_tree() {
    let (bed, reference) = with_chain();
    let [second, _] = behind(&bed, reference.first);
    rot(&bed, second);
    let tree = bed.trees[0].0;
    tree.destroy(bed.storage(), &mut |_| Ok(())).unwrap();
    assert_eq!(allocated(&bed, [tree.root(), reference.first, second]), [false, false, true]);
}

#[test]
fn a_drop_of_a_damaged_tree_is_begun_again_after_a_crash() {
    let mut unfinished = 0;
    for seed in 0..60 {
        let (mut bed, _, children) = two_levels(1);
        bed.put(0, b"a", &[1; 40_000]);
        let first = chain_of_last(&bed);
        let [second, third] = behind(&bed, first);
        rot(&bed, second);
        rot(&bed, children[2]);
        let (tree, _) = bed.trees.pop().unwrap();
        let mut txn = bed.txns.begin();
        txn.drop_tree(tree).unwrap();
        txn.commit(Durability::Sync).unwrap();
        bed.purge_all();
        let bed = bed.crashed(seed);
        unfinished += u32::from(bed.txns.history_len() > 0);
        bed.purge_all();
        let lost = [children[2], second, third];
        assert_eq!(allocated(&bed, lost), [true; 3]);
        assert_found_on(&bed, &lost);
    }
    assert!(unfinished > 5, "{unfinished} drops were cut short");
}

#[test]
fn purge_passes_over_damaged_leaves() {
    let (bed, _, children) = two_levels(1);
    let (tree, rows) = &bed.trees[0];
    let mut txn = bed.txns.begin();
    for key in rows.keys() {
        txn.write(*tree, key, Op::Delete).unwrap();
    }
    txn.commit(Durability::Sync).unwrap();
    let on_damaged = node::count(&bed.page(children[2])) as u64;
    rot(&bed, children[2]);
    bed.purge_all();
    let allocated = bed.storage().store.allocated_pages();
    for page in children {
        let is_damaged = bed.storage().load(page).is_err();
        assert!(is_damaged || !allocated.contains(&page) || node::count(&bed.page(page)) == 0);
    }
    assert_eq!(left_by_purge(&bed), on_damaged);
}

#[test]
fn of_a_replaced_value_purge_leaves_what_is_damaged() {
    let (mut bed, reference) = with_chain();
    let [second, third] = behind(&bed, reference.first);
    bed.put(0, b"a", b"short");
    bed.put(0, b"b", &[2; 40_000]);
    bed.put(0, b"b", b"short");
    rot(&bed, second);
    bed.purge_all();
    assert_eq!(left_by_purge(&bed), 1);
    bed.assert_rows("purged");
    assert_eq!(allocated(&bed, [reference.first, second, third]), [false, true, true]);
    assert_found_on(&bed, &[second, third]);
}

/// Without that, the database would stop, and not be opened any more.
#[test]
fn a_rollback_leaves_damaged_chains() {
    let mut bed = Bed::new(1, 1);
    let tree = bed.trees[0].0;
    bed.put(0, b"kept", b"1");
    for crashes in [false, true] {
        let mut loser = bed.txns.begin();
        loser.write(tree, b"kept", Op::Upsert(b"2")).unwrap();
        loser.write(tree, b"z", Op::Insert(&[1; 40_000])).unwrap();
        let first = chain_of_last(&bed);
        let [second, _] = behind(&bed, first);
        rot(&bed, second);
        if crashes {
            loser.leave();
            bed = bed.crashed(1);
        } else {
            loser.rollback().unwrap();
        }
        bed.storage().check().unwrap();
        bed.assert_rows("rolled back");
        assert_eq!(allocated(&bed, [second]), [true]);
    }
}

#[test]
fn a_row_that_purge_has_left_may_be_written_again_and_taken_back() {
    let (mut bed, reference) = with_chain();
    let tree = bed.trees[0].0;
    let [second, _] = behind(&bed, reference.first);
    let mut txn = bed.txns.begin();
    txn.write(tree, b"a", Op::Delete).unwrap();
    txn.commit(Durability::Sync).unwrap();
    rot(&bed, second);
    bed.purge_all();
    bed.trees[0].1.clear();
    let mut txn = bed.txns.begin();
    txn.write(tree, b"a", Op::Insert(b"again")).unwrap();
    txn.rollback().unwrap();
    bed.storage().check().unwrap();
    let txn = bed.txns.begin();
    assert_eq!(get_in(&txn, View { own: TxnId(0), snapshot: bed.txns.now() }, tree, b"a"), None);
    drop(txn);
    bed.put(0, b"a", b"again");
    bed.purge_all();
    bed.assert_rows("written again");
}

/// A transaction that has deleted most rows, whose undo is of several pages: the lane's first
/// pages, and its last.
fn with_much_undo() -> (Bed, [PageId; 4]) {
    let mut bed = Bed::new(1, 1);
    bed.fill(100);
    bed.purge_all();
    let mut txn = bed.txns.begin();
    for n in 0..90 {
        txn.write(bed.trees[0].0, &long_key(n), Op::Delete).unwrap();
        bed.trees[0].1.remove(&long_key(n));
    }
    txn.commit(Durability::Sync).unwrap();
    let (head, tail) = lanes::get(&bed.page(LANE_DIRECTORY), 0);
    let second = weir_page::undo::next(&bed.page(head));
    let third = weir_page::undo::next(&bed.page(second));
    (bed, [head, second, third, tail])
}

/// Without that, the database would stop, at each start again.
#[test]
fn purge_passes_over_damaged_undo() {
    for at in [0, 1] {
        let (mut bed, pages) = with_much_undo();
        let (tree, tail) = (bed.trees[0].0, pages[3]);
        rot(&bed, pages[at]);
        if at == 0 {
            bed = bed.crashed(1);
        }
        bed.purge_all();
        assert_eq!(left_by_purge(&bed), 1);
        assert_eq!(allocated(&bed, pages), [at == 0, true, true, true]);
        assert_eq!(lanes::get(&bed.page(LANE_DIRECTORY), 0), (tail, tail));
        bed.assert_rows("purged");
        // The lane is used and purged as ever.
        for n in 50..95 {
            bed.put(0, &long_key(n), b"again");
            let mut txn = bed.txns.begin();
            txn.write(tree, &long_key(n), Op::Delete).unwrap();
            txn.commit(Durability::Sync).unwrap();
            bed.trees[0].1.remove(&long_key(n));
        }
        bed.purge_all();
        assert_eq!(left_by_purge(&bed), 1);
        let bed = bed.crashed(1);
        bed.purge_all();
        bed.assert_rows("opened again");
    }
}

/// An index with every hundredth entry of many in its main tree, all others in its staging tree.
fn with_staged() -> (Bed, Arc<Staging>) {
    let mut bed = Bed::with_frames(1, 2, 600);
    let (main, staging) = (bed.trees[0].0, bed.trees[1].0);
    let staging = Arc::new(Staging::new(main, staging));
    bed.txns.staging.configure(64, true);
    bed.txns.staging.add(staging.clone());
    let mut txn = bed.txns.begin();
    for n in 0..20_000u32 {
        let key = n.to_be_bytes();
        if n % 10 == 0 {
            txn.write(main, &key, Op::Insert(&[1; 100])).unwrap();
        } else {
            txn.insert_staged(&staging, &key, b"").unwrap();
        }
    }
    txn.commit(Durability::Sync).unwrap();
    bed.trees.truncate(2);
    (bed, staging)
}

/// Keys in the leaves of a tree that can be read.
fn keys(bed: &Bed, tree: usize) -> Vec<u32> {
    let mut leaves = vec![bed.trees[tree].0.root()];
    let mut keys = Vec::new();
    while let Some(page) = leaves.pop() {
        if bed.storage().load(page).is_err() {
            continue;
        }
        let page = bed.page(page);
        for slot in 0..node::count(&page) {
            match page.level() {
                0 => keys.push(u32::from_be_bytes(node::key(&page, slot).try_into().unwrap())),
                _ => leaves.push(node::child(&page, slot)),
            }
        }
    }
    keys
}

/// Moves what can be moved.
fn move_all(bed: &Bed) {
    let moved = || bed.txns.staging.figures().moved;
    for _ in 0..200 {
        bed.txns.staging_step().unwrap();
    }
    let before = moved();
    bed.txns.staging_step().unwrap();
    assert_eq!(moved(), before, "all is moved by now");
}

#[test]
fn staged_entries_are_moved_past_a_damaged_leaf_of_the_main_tree() {
    let (bed, _staging) = with_staged();
    let damaged = bed.leaf_of(0, &5_000u32.to_be_bytes());
    let range = bed.page(damaged);
    let of_damaged = |n: u32| {
        let key = n.to_be_bytes();
        node::lower(&range) <= &key[..] && node::upper(&range).is_none_or(|upper| &key[..] < upper)
    };
    rot(&bed, damaged);
    move_all(&bed);
    let left = keys(&bed, 1);
    let unmoved = left.iter().filter(|&&n| !of_damaged(n)).count();
    assert!(left.len() > unmoved, "what goes to the damaged leaf stays");
    assert!(unmoved < 1_000, "{unmoved} of {} others are left", 18_000);
}

#[test]
fn staged_entries_are_moved_past_a_damaged_leaf_of_the_staging_tree() {
    let (bed, _staging) = with_staged();
    let damaged = bed.leaf_of(1, &5_000u32.to_be_bytes());
    rot(&bed, damaged);
    move_all(&bed);
    assert_eq!(keys(&bed, 1).len(), 0);
}

#[test]
fn nothing_is_added_to_a_staging_tree_whose_inner_pages_are_damaged() {
    let (bed, staging) = with_staged();
    forget(&bed);
    let mut txn = bed.txns.begin();
    let key = 5_000u32.to_be_bytes();
    let hint = bed.trees[0].0.approach(bed.storage(), &key);
    assert!(txn.is_staged(&staging, &hint).unwrap(), "the leaf isn't in memory");
    rot(&bed, staging.tree.root());
    bed.txns.staging_step().unwrap();
    assert!(!txn.is_staged(&staging, &hint).unwrap());
    txn.write(bed.trees[0].0, &key, Op::Insert(b"")).unwrap();
    txn.commit(Durability::Sync).unwrap();
}

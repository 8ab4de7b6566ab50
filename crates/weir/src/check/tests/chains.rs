//! Damage of entries is found, of their chains and versions; a purge cut short is no damage.

use super::*;
use crate::tree::overflow::{Left, free_second};

#[test]
fn a_chain_of_two_entries_is_found() {
    let (bed, reference) = with_chain();
    set_entry(&bed, b"b", Entry { flags: CHAIN, version: None, value: &reference.to_bytes() });
    bed.assert_found(&[(reference.first, "is referred to twice")]);
}

#[test]
fn a_chain_of_another_length_is_found() {
    let (bed, reference) = with_chain();
    let longer = Reference { len: 40_001, ..reference };
    set_entry(&bed, b"a", Entry { flags: CHAIN, version: None, value: &longer.to_bytes() });
    bed.assert_found(&[(reference.first, "holds 40000 bytes, not 40001")]);
}

#[test]
fn a_reference_to_a_free_page_is_found() {
    let (bed, _) = with_chain();
    let nowhere = Reference { first: PageId(77_777), len: 5 };
    set_entry(&bed, b"b", Entry { flags: CHAIN, version: None, value: &nowhere.to_bytes() });
    bed.assert_found(&[(nowhere.first, "not allocated")]);
}

#[test]
fn a_malformed_reference_is_found() {
    let (bed, _) = with_chain();
    let leaf = bed.leaf_of(0, b"b");
    set_entry(&bed, b"b", Entry { flags: CHAIN, version: None, value: b"short" });
    bed.assert_found(&[(leaf, "malformed reference")]);
}

#[test]
fn a_dead_entry_that_purge_will_not_find_is_found() {
    let mut bed = Bed::new(1, 1);
    bed.put(0, b"a", b"value");
    let leaf = bed.leaf_of(0, b"a");
    let flags = Flags { deleted: true, ..Flags::default() };
    set_entry(&bed, b"x", Entry { flags, version: None, value: b"" });
    bed.assert_found(&[(leaf, "is dead, but has no version")]);

    let (head, _) = lanes::get(&bed.page(LANE_DIRECTORY), 0);
    let undo = UndoPtr { page: head, offset: 8000 };
    let version = Some(Version { txn: TxnId(1), undo });
    set_entry(&bed, b"x", Entry { flags, version, value: b"" });
    bed.assert_found(&[(leaf, "holds no undo record")]);
}

#[test]
fn a_version_from_the_future_is_found() {
    let bed = Bed::new(1, 1);
    let leaf = bed.leaf_of(0, b"x");
    let version = Some(Version { txn: TxnId(1 << 40), undo: UndoPtr::default() });
    set_entry(&bed, b"x", Entry { flags: Flags::default(), version, value: b"" });
    bed.assert_found(&[(leaf, "was written by transaction")]);
}

#[test]
fn a_purge_cut_short_is_no_finding() {
    let (mut bed, reference) = with_chain();
    let mut txn = bed.txns.begin();
    txn.write(bed.trees[0].0, b"a", Op::Delete).unwrap();
    txn.commit(Durability::Sync).unwrap();
    bed.trees[0].1.clear();
    assert_eq!(bed.assert_clean("deleted").overflow_pages, 3);
    let mut left = Left::More;
    while let Left::More = left {
        let mut mtr = bed.storage().mtr(Need::log(1 << 10)).unwrap();
        left = free_second(&mut mtr, reference.first, &[]).unwrap();
        match left {
            Left::More => drop(mtr.commit()),
            _ => drop(mtr),
        }
    }
    assert_eq!(bed.assert_clean("half freed").overflow_pages, 1);
    bed.purge_all();
    assert_eq!(bed.assert_clean("purged").overflow_pages, 0);
}

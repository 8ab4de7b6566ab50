use super::*;
use crate::extent::{Extent, Relocation};

const DATABASE: u64 = 0x1122_3344_5566_7788;

fn entry(page: u32, start_unit: u64) -> Entry {
    let extent = Extent { start_unit, units: 2 };
    Relocation { page: PageId(page), extent, page_lsn: Lsn(3) }.entry()
}

fn sample() -> Vec<u8> {
    let map = PageMap::new();
    map.slot(PageId(508)).replace(entry(508, 0x0A0B));
    map.slot(PageId(1015)).replace(entry(1015, 0x0C0D));
    map.slot(PageId(1016)).replace(entry(1016, 0x0E0F));
    let mut slot = vec![0; SLOT];
    let draft = Draft { block: 1, version: 0x21, newest: Lsn(0x3132) };
    encode(&map, draft, DATABASE, &mut slot);
    slot
}

#[test]
fn block_is_golden() {
    let slot = sample();
    let mut golden = vec![0; SLOT];
    golden[0..4].copy_from_slice(b"WMB2");
    golden[4] = 1;
    golden[8] = 0x21;
    golden[16..18].copy_from_slice(&[0x32, 0x31]);
    golden[24..28].copy_from_slice(&[92, 129, 140, 53]);
    golden[28..32].copy_from_slice(&[0x88, 0x77, 0x66, 0x55]);
    golden[32..40].copy_from_slice(&[11, 10, 0, 0, 0, 0x52, 0xAA, 0x38]);
    golden[4088..4096].copy_from_slice(&entry(1015, 0x0C0D).0.to_le_bytes());
    assert_eq!(slot[..48], golden[..48]);
    assert_eq!(slot, golden);
    assert_eq!(inspect(&slot, 1, 1, DATABASE), Found::Valid { version: 0x21, newest: Lsn(0x3132) });
    assert_eq!(entries(&slot).next(), Some(entry(508, 0x0A0B)));
}

#[test]
fn damage_is_found() {
    let slot = sample();
    for at in (0..SLOT).step_by(31).chain(0..32) {
        let mut bad = slot.clone();
        bad[at] ^= 0x10;
        assert!(matches!(inspect(&bad, 1, 1, DATABASE), Found::Broken(..)), "byte {at}");
    }
    assert!(matches!(inspect(&slot, 2, 1, DATABASE), Found::Broken("map block number", ..)));
    assert!(matches!(inspect(&slot, 1, 0, DATABASE), Found::Broken("map block version", ..)));
    assert_eq!(inspect(&slot, 1, 1, DATABASE + 1), Found::Foreign(0x5566_7788));
    assert_eq!(inspect(&[0; SLOT], 7, 0, DATABASE), Found::Empty);
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..500 {
        let wild: Vec<u8> = (0..SLOT).map(|_| rng.u8(..)).collect();
        assert!(matches!(inspect(&wild, 1, 1, DATABASE), Found::Broken(..)));
    }
}

#[test]
fn impossible_entries_are_found_under_a_good_checksum() {
    let mut slot = sample();
    slot[40] = 1;
    slot[24..28].fill(0);
    let crc = crc32c::crc32c(&slot);
    slot[24..28].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(inspect(&slot, 1, 1, DATABASE), Found::Broken("map entry", ..)));
}

#[test]
fn the_last_block_ends_with_the_last_page() {
    let last = block_of(PageId(u32::MAX));
    assert_eq!(pages_of(last).last(), Some(PageId(u32::MAX)));
    assert_eq!(pages_of(0).count(), BLOCK_PAGES as usize);
}

#[test]
fn a_change_during_the_write_keeps_its_own_rec_lsn() {
    let mut table = BlockTable::default();
    table.touch(4, Lsn(10), Lsn(12));
    table.touch(4, Lsn(8), Lsn(9));
    assert_eq!(table.oldest(), Some(Lsn(8)));
    let draft = table.start_write(4);
    assert_eq!((draft.version, draft.newest), (1, Lsn(12)));
    table.touch(4, Lsn(20), Lsn(20));
    assert_eq!(table.oldest(), Some(Lsn(8)), "not synced yet");
    table.finish_write(&draft);
    assert_eq!(table.oldest(), Some(Lsn(20)));
    assert_eq!(table.dirty_below(Lsn(20), 9), []);
    assert_eq!(table.dirty_below(Lsn(21), 9), [4]);
    table.touch(3, Lsn(25), Lsn(25));
    table.touch(2, Lsn(24), Lsn(24));
    assert_eq!(table.dirty_below(Lsn(30), 2), [2, 4], "the oldest, in order of numbers");
}

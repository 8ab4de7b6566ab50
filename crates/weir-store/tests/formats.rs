//! Databases of older formats.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use weir_os::{Create, Disk, Mode, SimDisk};
use weir_page::Lsn;
use weir_store::{CONTROL_FORMAT, Control, Store, StoreOptions};

const SLOT: usize = 4096;

/// The formats of the control file's slots.
fn formats(disk: &SimDisk) -> [u32; 2] {
    let file = disk.open("control", Create::No, Mode::Direct).unwrap();
    let slots = file.read(0, weir_os::AlignedBuf::zeroed(2 * SLOT)).unwrap();
    [0, SLOT].map(|at| u32::from_le_bytes(slots[at + 8..at + 12].try_into().unwrap()))
}

/// Makes both slots of a format of the same layout.
fn set_format(disk: &SimDisk, format: u32) {
    let file = disk.open("control", Create::No, Mode::Direct).unwrap();
    let mut slots = file.read(0, weir_os::AlignedBuf::zeroed(2 * SLOT)).unwrap();
    for slot in slots.chunks_exact_mut(SLOT) {
        slot[8..12].copy_from_slice(&format.to_le_bytes());
        slot[12..16].fill(0);
        let crc = crc32c::crc32c(slot);
        slot[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    file.write(0, slots).unwrap();
    file.sync().unwrap();
}

#[test]
fn an_older_database_is_of_this_format_before_anything_changes() {
    let disk = SimDisk::new(1);
    let options = StoreOptions::default;
    let control = Control { checkpoint: Lsn(7), durable: Lsn(7), ..Control::default() };
    let store = Store::create(Arc::new(disk.clone()), options(), &control).unwrap();
    store.write_control(&control).unwrap();
    drop(store);
    for old in 1..CONTROL_FORMAT {
        set_format(&disk, old);
        let (store, found) = Store::open(Arc::new(disk.clone()), options()).unwrap();
        assert_eq!(found.checkpoint, Lsn(7));
        assert_eq!(formats(&disk), [old; 2], "recovery may still refuse");
        store.finish_recovery().unwrap();
        assert!(formats(&disk).contains(&CONTROL_FORMAT));
        let again = Store::open(Arc::new(disk.clone()), options()).unwrap().1;
        assert_eq!(again, found, "all else is as it was");
    }
}

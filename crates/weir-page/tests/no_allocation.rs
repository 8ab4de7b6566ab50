//! An insert's log and undo cost no allocation.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use weir_page::node::{self, Builder};
use weir_page::record::{Before, Change, Redo, Write};
use weir_page::undo::{self, State};
use weir_page::{Flags, Lsn, Page, PageId, TreeId, TxnId, UndoPtr};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all work is the system allocator's; counting touches no memory of its.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn an_insert_allocates_nothing() {
    let mut leaf = Builder::new(PageId(1), TreeId(1), 0, &[], None).finish();
    let mut lane = Page::boxed();
    undo::init(&mut lane, PageId(2), 0, PageId(0), TxnId(9), State::Active);
    let mut log = Vec::with_capacity(1 << 16);
    let before = ALLOCATIONS.with(Cell::get);
    for i in 0..100u32 {
        let key = i.to_be_bytes();
        let (slot, exists) = node::search(&leaf, &key);
        assert!(!exists && node::fits_insert(&leaf, key.len(), 100, true));
        let write = Write {
            leaf: PageId(1),
            slot: slot as u16,
            undo: UndoPtr { page: PageId(2), offset: undo::used(&lane) as u16 },
            first: i == 0,
            txn: TxnId(9),
            tree: TreeId(1),
            key: &key,
            change: Change::Insert { flags: Flags::default(), value: &[7; 100] },
        };
        assert!(undo::fits(&lane, write.undo_record().size()));
        let redo = Redo::Write(write);
        redo.encode(Lsn(8), Lsn(16), &mut Before::default(), &mut log);
        redo.apply(PageId(1), &mut leaf);
        redo.apply(PageId(2), &mut lane);
    }
    assert_eq!(ALLOCATIONS.with(Cell::get), before);
    assert_eq!(node::count(&leaf), 100);
}

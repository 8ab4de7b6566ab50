//! The bytes of every kind of redo record, held: a change is a change of the log's format.

use weir_page::record::{Before, Change, EntriesBuilder, Redo, Write};
use weir_page::undo::State;
use weir_page::varint::Input;
use weir_page::{Entry, Flags, Lsn, PageId, TreeId, TxnId, Undo, UndoPtr, Version};

const PAGE: PageId = PageId(300);
const LIVE: Flags = Flags { deleted: false, overflow: false, hides: false };
const DEAD: Flags = Flags { deleted: true, overflow: false, hides: false };
const LARGE: Flags = Flags { deleted: false, overflow: true, hides: false };

fn version() -> Option<Version> {
    let undo = UndoPtr { page: PageId(0x0a09_0807), offset: 0x0c0b };
    Some(Version { txn: TxnId(0x0605_0403_0201), undo })
}

/// Compares the stored form, in hex with blanks, and reads it back.
fn golden(redo: Redo<'_>, hex: &str) {
    let prev_undo = if redo.second_page().is_some() { Lsn(24) } else { Lsn(0) };
    let mut out = Vec::new();
    redo.encode(Lsn(8 * 129), prev_undo, &mut Before::default(), &mut out);
    let found: String = out.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(found, hex.replace(' ', ""), "{redo:?}");
    let (mut input, mut before, mut scratch) = (Input::new(&out), Before::default(), Vec::new());
    let logged = Redo::decode(&mut input, &mut before, &mut scratch)
        .expect("well formed")
        .expect("a record");
    assert_eq!((logged.redo, logged.prev, logged.prev_undo), (redo, Lsn(8 * 129), prev_undo));
    assert!(input.rest().is_empty());
}

fn write(first: bool, change: Change<'_>) -> Redo<'_> {
    let undo = UndoPtr { page: PageId(7), offset: 0x0140 };
    let (leaf, slot, txn, tree, key) = (PAGE, 70, TxnId(130), TreeId(5), &b"key"[..]);
    Redo::Write(Write { leaf, slot, undo, first, txn, tree, key, change })
}

#[test]
fn writes() {
    let insert = write(true, Change::Insert { flags: LARGE, value: b"val" });
    golden(insert, "01 ac02 8101 03 07 4001 8d01 8201 05 03 6b6579 02 03 76616c");
    let change = Change::Update {
        old_flags: DEAD,
        old_version: version(),
        flags: LIVE,
        front: 1,
        back: 200,
        old_middle: b"o",
        new_middle: b"nn",
    };
    let hex = "02 ac02 8101 03 07 4001 8c01 8201 05 03 6b6579 81 0102030405060708090a0b0c 00 01 \
               c801 01 6f 02 6e6e";
    golden(write(false, change), hex);
    let change = Change::Delete { old_flags: LARGE, old_version: None };
    golden(write(false, change), "03 ac02 8101 03 07 4001 8c01 8201 05 03 6b6579 02");
}

/// What a write leaves out that the one before it says, and what it can't.
#[test]
fn writes_behind_others() {
    let mut before = (Before::default(), Before::default());
    let mut behind = |change: &dyn Fn(&mut Write<'_>), prev: Lsn, hex: &str| {
        let Redo::Write(mut w) = write(false, Change::Insert { flags: LIVE, value: b"v" }) else {
            unreachable!("a write");
        };
        change(&mut w);
        let mut out = Vec::new();
        Redo::Write(w).encode(prev, Lsn(24), &mut before.0, &mut out);
        let found: String = out.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(found, hex.replace(' ', ""), "{w:?}");
        let mut scratch = Vec::new();
        let logged = Redo::decode(&mut Input::new(&out), &mut before.1, &mut scratch);
        let logged = logged.expect("well formed").expect("a record");
        assert_eq!((logged.redo, logged.prev, logged.prev_undo), (Redo::Write(w), prev, Lsn(24)));
    };
    let prev = Lsn(8 * 129);
    behind(&|_| {}, prev, "01 ac02 8101 03 07 4001 8c01 8201 05 03 6b6579 00 01 76");
    // The same leaf, two slots on, its undo record 16 bytes behind.
    let next = |w: &mut Write<'_>| (w.slot, w.undo.offset) = (72, 0x0150);
    behind(&next, prev, "18 05 10 03 6b6579 00 01 76");
    // A slot before: the leaf is said again.
    let back = |w: &mut Write<'_>| (w.slot, w.undo.offset) = (3, 0x0160);
    behind(&back, prev, "18 06 ac02 8101 10 03 6b6579 00 01 76");
    // Another leaf, and a delete.
    let other = |w: &mut Write<'_>| {
        (w.leaf, w.slot, w.undo.offset) = (PageId(9), 3, 0x0171);
        w.change = Change::Delete { old_flags: LIVE, old_version: None };
    };
    behind(&other, Lsn(16), "1a 06 09 02 11 03 6b6579 00");
    // Another tree; another undo page; a transaction's first.
    let tree = |w: &mut Write<'_>| (w.tree, w.undo.offset) = (TreeId(6), 0x0180);
    behind(&tree, prev, "01 ac02 8101 03 07 8001 8c01 8201 06 03 6b6579 00 01 76");
    let undo = |w: &mut Write<'_>| (w.tree, w.undo.page) = (TreeId(6), PageId(8));
    behind(&undo, prev, "01 ac02 8101 03 08 4001 8c01 8201 06 03 6b6579 00 01 76");
    let first = |w: &mut Write<'_>| {
        (w.tree, w.undo.page, w.undo.offset, w.first) = (TreeId(6), PageId(8), 0x0150, true);
    };
    behind(&first, prev, "01 ac02 8101 03 08 5001 8d01 8201 06 03 6b6579 00 01 76");
}

#[test]
fn nothing_is_left_out_where_nothing_was_said() {
    for op in 24..=26 {
        let bytes = [op, 5, 16, 3, 0x6b, 0x65, 0x79, 0, 1, 0x76];
        let (mut before, mut scratch) = (Before::default(), Vec::new());
        let found = Redo::decode(&mut Input::new(&bytes), &mut before, &mut scratch);
        assert!(found.is_err(), "{found:?}");
    }
}

#[test]
fn tree_pages() {
    let page = PAGE;
    let mut body = vec![0; 2 + 32];
    body[..2].copy_from_slice(&64u16.to_le_bytes());
    let hex = "04 ac02 8101 22 0d 2f40000100076000 0000000000";
    golden_image(Redo::Image { page, body: &body }, hex);
    golden(Redo::Free { page }, "05 ac02 8101");
    let (key, entry) = (&b"k"[..], Entry { flags: DEAD, version: version(), value: b"v" });
    let set = Redo::Set { page, slot: 200, insert: true, key, entry };
    golden(set, "06 ac02 8101 c801 01 01 6b 81 0102030405060708090a0b0c 01 76");
    let entry = Entry { flags: LIVE, version: None, value: b"" };
    let set = Redo::Set { page, slot: 1, insert: false, key, entry };
    golden(set, "06 ac02 8101 01 00 01 6b 00 00");
    golden(Redo::Remove { page, slot: 2 }, "07 ac02 8101 02");
    let mut run = EntriesBuilder::default();
    run.push(3, b"key", &Entry { flags: LIVE, version: None, value: b"" });
    run.push(4, b"keys", &Entry { flags: DEAD, version: version(), value: b"v" });
    run.push(204, b"l", &Entry { flags: LIVE, version: None, value: b"w" });
    let hex = "16 ac02 8101 23 03 00 03 6b6579 00 00 00 03 01 73 81 0102030405060708090a0b0c 01 76 \
               c701 00 01 6c 00 01 77";
    golden(Redo::InsertRun { page, entries: run.entries() }, hex);
    golden(Redo::RemoveRun { page, slot: 200, count: 3 }, "17 ac02 8101 c801 03");
    golden(Redo::Freeze { page, below: TxnId(128) }, "08 ac02 8101 8001");
    golden(Redo::Truncate { page, at: 3, upper: b"up" }, "09 ac02 8101 03 02 7570");
    let insert = Redo::InsertChild { page, slot: 4, key: b"c", child: PageId(129) };
    golden(insert, "0a ac02 8101 04 01 63 8101");
    golden(Redo::RemoveChild { page, slot: 5 }, "0b ac02 8101 05");
}

/// The packed bytes are LZ4's affair: the frame around them is held, and that it is read.
fn golden_image(redo: Redo<'_>, hex: &str) {
    let stored: Vec<u8> = hex.replace(' ', "").as_bytes().chunks(2).map(unhex).collect();
    let mut out = Vec::new();
    redo.encode(Lsn(8 * 129), Lsn(0), &mut Before::default(), &mut out);
    assert_eq!(out[..6], stored[..6], "{out:02x?}");
    for bytes in [&out, &stored] {
        let (mut before, mut scratch) = (Before::default(), Vec::new());
        let logged = Redo::decode(&mut Input::new(bytes), &mut before, &mut scratch);
        assert_eq!(logged.expect("well formed").expect("a record").redo, redo, "{bytes:02x?}");
    }
}

fn unhex(pair: &[u8]) -> u8 {
    let pair = std::str::from_utf8(pair).expect("ASCII");
    u8::from_str_radix(pair, 16).expect("hex digits")
}

#[test]
fn undo_pages() {
    let page = PAGE;
    let (txn, state) = (TxnId(130), State::Prepared);
    let init = Redo::UndoInit { page, lane: 6, prev: PageId(7), txn, state };
    golden(init, "0c ac02 8101 06 07 8201 02");
    golden(Redo::UndoLink { page, next: PageId(8) }, "0d ac02 8101 08");
    let push = |first, undo| Redo::UndoPush { page, first, undo };
    let (tree, key) = (TreeId(5), &b"k"[..]);
    golden(push(Some(txn), Undo::Insert { tree, key }), "0e ac02 8101 8201 01 05 01 6b");
    let delta = weir_page::Delta { front: 2, back: 128, middle: b"m" };
    let update = Undo::Update { tree, key, flags: LIVE, version: version(), delta };
    let hex = "0e ac02 8101 00 02 05 01 6b 80 0102030405060708090a0b0c 02 8001 01 6d";
    golden(push(None, update), hex);
    let delete = Undo::Delete { tree, key, flags: LARGE, version: None };
    golden(push(None, delete), "0e ac02 8101 00 03 05 01 6b 02");
    golden(push(None, Undo::Prepare { xid: b"xid" }), "0e ac02 8101 00 04 03 786964");
    golden(push(None, Undo::Overflow { first: PageId(9) }), "0e ac02 8101 00 05 09");
    golden(push(None, Undo::CreateTree { root: PageId(9) }), "0e ac02 8101 00 06 09");
    golden(push(None, Undo::DropTree { root: PageId(9) }), "0e ac02 8101 00 07 09");
    golden(push(Some(txn), Undo::Hide { tree, key }), "0e ac02 8101 8201 08 05 01 6b");
    let tail = Redo::UndoTail { page, used: 128, last: 64, txn, state: State::Ended };
    golden(tail, "0f ac02 8101 8001 40 8201 00");
    golden(Redo::UndoPurged { page, from: 128 }, "10 ac02 8101 8001");
}

#[test]
fn other_pages() {
    let page = PAGE;
    golden(Redo::LanesInit { page }, "11 ac02 8101");
    let set = Redo::LaneSet { page, lane: 9, head: PageId(10), tail: PageId(128) };
    golden(set, "12 ac02 8101 09 0a 8001");
    golden(Redo::OverflowInit { page, data: b"data" }, "13 ac02 8101 04 64617461");
    golden(Redo::OverflowLink { page, next: PageId(11) }, "14 ac02 8101 0b");
    golden(Redo::Relocate { moves: b"mv" }, "15 00 8101 02 6d76");
}

#[test]
fn a_group_ends_at_its_end_or_at_padding() {
    for bytes in [&[][..], &[0][..], &[0, 0xff]] {
        let (mut before, mut scratch) = (Before::default(), Vec::new());
        let found = Redo::decode(&mut Input::new(bytes), &mut before, &mut scratch);
        assert_eq!(found, Ok(None));
    }
}

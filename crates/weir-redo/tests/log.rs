//! The log in one thread: positions, space, reopening, damage.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use weir_os::sim::{CrashProfile, Fault, ObservedDisk, OpKind, Times};
use weir_os::{AlignedBuf, Backend, Create, Disk, Mode, SimDisk, open_directory};
use weir_page::Lsn;
use weir_redo::{
    Admission, EndReason, MIN_SEGMENTS, Reader, Redo, RedoError, RedoOptions, Refused,
};

const SEGMENT: u64 = 8192;

fn options() -> RedoOptions {
    RedoOptions {
        capacity_bytes: 4 * SEGMENT,
        segment_bytes: SEGMENT,
        buffer_bytes: 16 << 10,
        database_id: 7,
    }
}

fn create(disk: &SimDisk) -> Redo {
    Redo::create(Arc::new(disk.clone()), &options()).expect("created")
}

fn append(redo: &Redo, payload: &[u8]) -> Lsn {
    let credit = redo.try_admit(payload.len(), Admission::System).expect("there is space");
    redo.append(credit, payload).end
}

fn read_all(disk: &SimDisk, from: Lsn) -> (Vec<Vec<u8>>, Lsn) {
    let mut reader = Reader::open(Arc::new(disk.clone()), 7, from).expect("opens");
    let mut found = Vec::new();
    while let Some(group) = reader.next().expect("reads") {
        found.push(group.payload.to_vec());
    }
    (found, reader.end().expect("ended"))
}

fn bytes(disk: &SimDisk, name: &str, offset: u64, len: usize) -> Vec<u8> {
    let file = disk.open(name, Create::No, Mode::Cached).expect("there");
    file.read(offset, AlignedBuf::zeroed(len)).expect("read").to_vec()
}

fn bytes_in(disk: &SimDisk, name: &str) -> u64 {
    disk.open(name, Create::No, Mode::Cached).expect("there").len().expect("told")
}

fn patch(disk: &SimDisk, name: &str, offset: u64, bytes: &[u8]) {
    let file = disk.open(name, Create::No, Mode::Cached).expect("there");
    file.write(offset, AlignedBuf::copy_of(bytes)).expect("written");
}

#[test]
fn group_has_golden_bytes() {
    let disk = SimDisk::new(1);
    let o = RedoOptions { segment_bytes: 4096, ..options() };
    let redo = Redo::create(Arc::new(disk.clone()), &o).expect("created");
    append(&redo, b"hello");
    append(&redo, b"");
    redo.write_step(true).expect("written");
    let golden = [
        16, 0, 0x20, 0, 54, 233, 163, 21, b'h', b'e', b'l', b'l', b'o', 0, 0, 0, //
        8, 0, 0x60, 0,
    ];
    assert_eq!(bytes(&disk, "redo-0000000001", 4096, 20), golden);
    assert!(bytes(&disk, "redo-0000000001", 4096 + 24, 4072).iter().all(|&b| b == 0));
}

#[test]
fn positions_move_in_order() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    assert_eq!(redo.reserved(), Lsn(SEGMENT));
    let end = append(&redo, &[1; 100]);
    assert_eq!(end, Lsn(SEGMENT + 112));
    assert_eq!((redo.reserved(), redo.filled()), (end, Lsn(SEGMENT)));
    assert_eq!(redo.write_step(false).expect("written"), end);
    assert_eq!((redo.filled(), redo.written(), redo.durable()), (end, end, Lsn(SEGMENT)));
    redo.wait_durable(end).expect("durable");
    assert_eq!(redo.durable(), end);
    redo.set_checkpoint(end).expect("moved");
    assert_eq!((redo.checkpoint(), redo.checkpoint_age()), (end, 0));
}

#[test]
fn space_is_limited_by_class_and_given_back() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    assert_eq!(redo.capacity(), 4 * SEGMENT);
    // Half of this small capacity is the system's.
    let first = redo.try_admit(8184, Admission::User).expect("fits");
    let second = redo.try_admit(4088, Admission::User).expect("fits");
    assert_eq!(redo.try_admit(8184, Admission::System).err(), Some(Refused::Buffer));
    drop(second);
    redo.append(first, &[1; 10]);
    let end = append(&redo, &[2; 16_000]);
    redo.wait_for_space(Duration::ZERO); // writes by itself
    assert_eq!(redo.written(), end);
    assert_eq!(redo.try_admit(500, Admission::User).err(), Some(Refused::Capacity));
    append(&redo, &[3; 14_000]);
    redo.write_step(true).expect("written");
    assert_eq!(redo.try_admit(8184, Admission::System).err(), Some(Refused::Capacity));
    redo.set_checkpoint(redo.durable()).expect("moved");
    append(&redo, &[4; 8184]);
}

#[test]
fn a_directory_without_room_is_named_by_its_path() {
    let dir = tempfile::tempdir().expect("a directory can be made");
    let disk = open_directory(dir.path(), Backend::Threads).expect("it opens");
    let wanted = RedoOptions { capacity_bytes: 16 << 40, segment_bytes: 1 << 30, ..options() };
    let Err(error) = Redo::create(disk, &wanted) else { panic!("no device has that") };
    let text = error.to_string();
    assert!(text.contains(&format!("bytes: {} has ", dir.path().display())), "{text}");
}

#[test]
fn capacity_grows_and_shrinks() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    let files = || disk.list().expect("listed").len() as u64;
    assert_eq!(files(), 5);
    assert_eq!(redo.set_capacity(9 * SEGMENT + 1).expect("grown"), 9 * SEGMENT);
    assert_eq!(files(), 10);
    for _ in 0..4 {
        append(&redo, &[1; 8000]);
        redo.write_step(true).expect("written");
    }
    let least = MIN_SEGMENTS * SEGMENT;
    assert_eq!(redo.set_capacity(least + 1).expect("shrunk"), least);
    // The log is longer than that: all go on in the segments there are.
    assert_eq!(files(), 10);
    assert!(redo.try_admit(8, Admission::User).is_ok());
    assert!(redo.try_admit(8, Admission::System).is_ok());
    let (found, end) = read_all(&disk, Lsn(SEGMENT));
    assert_eq!((found.len(), end), (4, redo.durable()));
    redo.set_checkpoint(end).expect("moved");
    assert_eq!(files(), 5);
    append(&redo, &[1; 8000]);
    append(&redo, &[1; 8000]);
    redo.write_step(true).expect("written");
    assert_eq!(redo.try_admit(8000, Admission::User).err(), Some(Refused::Capacity));
}

/// Appends, and moves the checkpoint behind, until the log is so much longer; now and then it is
/// read back.
fn turn_over(disk: &SimDisk, redo: &Redo, bytes: u64) {
    let to = Lsn(redo.reserved().0 + bytes);
    let groups: Vec<Vec<u8>> = (0..6).map(|n| vec![n; 1000 * usize::from(n)]).collect();
    for round in 0.. {
        let from = redo.reserved();
        for group in &groups {
            append(redo, group);
        }
        redo.wait_durable(redo.reserved()).expect("durable");
        if round % 50 == 0 || from >= to {
            let (found, end) = read_all(disk, from);
            assert!(found.iter().zip(&groups).all(|(f, g)| f.starts_with(g)));
            assert_eq!((found.len(), end), (groups.len(), redo.reserved()));
        }
        redo.set_checkpoint(from).expect("moved");
        if from >= to {
            break;
        }
    }
}

/// A log of 1 MiB that got 512 MiB had 8,200 files, all of them open.
#[test]
fn segments_are_as_long_as_the_capacity_asks_for_whatever_it_was_before() {
    let lengths = |disk: &SimDisk| -> Vec<u64> {
        let names = disk.list().expect("listed");
        names.iter().map(|name| bytes_in(disk, name) - 4096).collect()
    };
    let mut disk = SimDisk::new(1);
    let mut redo = create(&disk);
    redo.wait_durable(append(&redo, &[1; 5000])).expect("durable");
    for capacity in [1000, 4, 3000, 300, 60] {
        let capacity = capacity * SEGMENT;
        let given = redo.set_capacity(capacity).expect("changed");
        assert!(given <= capacity && given > capacity * 7 / 8, "{given} for {capacity}");
        turn_over(&disk, &redo, 5 * SEGMENT);
        // From here on no file can be made, or become longer.
        disk.set_capacity(Some(disk.used_bytes()));
        turn_over(&disk, &redo, 3 * lengths(&disk).iter().sum::<u64>());
        assert!(lengths(&disk).len() <= 66, "{} segments", lengths(&disk).len());
        // Over a restart.
        let (checkpoint, end) = (redo.checkpoint(), redo.durable());
        drop(redo);
        disk = disk.process_kill();
        disk.set_capacity(Some(disk.used_bytes()));
        let o = RedoOptions { capacity_bytes: capacity, ..options() };
        redo = Redo::open_at(Arc::new(disk.clone()), &o, checkpoint, end).expect("opens");
        assert_eq!(redo.capacity(), given);
        turn_over(&disk, &redo, 2 * lengths(&disk).iter().sum::<u64>());
        let lengths = lengths(&disk);
        let (all, longest) = (lengths.iter().sum::<u64>(), lengths.iter().max().expect("some"));
        assert!(lengths.len() <= 66, "{} segments", lengths.len());
        assert!((given + longest..=given + 2 * longest).contains(&all), "{lengths:?} for {given}");
        assert!(*longest <= given, "{lengths:?} for {given}");
        disk.set_capacity(None);
    }
}

#[test]
fn growth_without_space_changes_nothing() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    let free = 3 * (SEGMENT + 4096);
    disk.set_capacity(Some(disk.used_bytes() + free));
    let (used, operations) = (disk.used_bytes(), disk.operations());
    let error = redo.set_capacity(12 * SEGMENT).expect_err("no space");
    assert!(matches!(error, RedoError::NoSpace { needed_bytes, free_bytes, .. }
        if needed_bytes == 8 * (SEGMENT + 4096) && free_bytes == free));
    assert_eq!(disk.operations(), operations, "nothing was tried");
    assert_eq!((redo.capacity(), disk.list().expect("listed").len()), (4 * SEGMENT, 5));
    // Where the system doesn't know that there is none, or others take it meanwhile.
    disk.inject(Fault::NoSpace { at: disk.operations() + 8, times: Times::Forever });
    let error = redo.set_capacity(7 * SEGMENT).expect_err("no space");
    assert!(matches!(&error, RedoError::Disk(e) if e.kind() == std::io::ErrorKind::StorageFull));
    assert_eq!((redo.capacity(), disk.list().expect("listed").len()), (4 * SEGMENT, 5));
    assert_eq!(disk.used_bytes(), used);
    disk.clear_faults();
    redo.wait_durable(append(&redo, &[1; 100])).expect("the log goes on");
    assert_eq!(redo.set_capacity(6 * SEGMENT).expect("fits"), 6 * SEGMENT);
}

/// A setting that asks for more files than the process may have open stopped the database.
#[test]
fn growth_that_can_not_open_its_files_changes_nothing() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    let used = disk.used_bytes();
    let (on, at) = (Some(OpKind::Name), disk.operations() + 4);
    disk.inject(Fault::Io { on, at, times: Times::Once });
    let error = redo.set_capacity(7 * SEGMENT).expect_err("a file can't be opened");
    assert!(matches!(&error, RedoError::Disk(e) if e.operation == "open"), "{error}");
    assert_eq!((redo.capacity(), disk.list().expect("listed").len()), (4 * SEGMENT, 5));
    assert_eq!(disk.used_bytes(), used);
    redo.wait_durable(append(&redo, &[1; 100])).expect("the log goes on");
    assert_eq!(redo.set_capacity(7 * SEGMENT).expect("grown"), 7 * SEGMENT);
}

/// A disk whose process may open so many files more; to list them takes one for a moment.
fn limited(disk: &SimDisk, left: &Arc<AtomicUsize>) -> Arc<ObservedDisk> {
    let left = left.clone();
    Arc::new(ObservedDisk::new(disk.clone(), move |operation| {
        let none = |_| io::Error::other("too many open files");
        let take = || left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        match (operation.name, operation.is_done) {
            ("open" | "list", false) => take().map(drop).map_err(none),
            ("list", true) => {
                left.fetch_add(1, Relaxed);
                Ok(())
            }
            _ => Ok(()),
        }
    }))
}

/// To find the files that were in vain it wanted a descriptor, too, and stopped the database
/// without.
#[test]
fn growth_without_a_descriptor_left_changes_nothing() {
    let disk = SimDisk::new(1);
    let descriptors = Arc::new(AtomicUsize::new(usize::MAX));
    let redo = Redo::create(limited(&disk, &descriptors), &options()).expect("created");
    let used = disk.used_bytes();
    for left in 0..8 {
        descriptors.store(left, Relaxed);
        let error = redo.set_capacity(12 * SEGMENT).expect_err("a file can't be opened");
        assert!(matches!(&error, RedoError::Disk(e) if e.operation == "open"), "{left}: {error}");
        assert_eq!((redo.capacity(), disk.used_bytes()), (4 * SEGMENT, used), "{left}");
        redo.wait_durable(append(&redo, &[1; 100])).expect("the log goes on");
    }
    descriptors.store(8, Relaxed);
    assert_eq!(redo.set_capacity(12 * SEGMENT).expect("grown"), 12 * SEGMENT);
}

/// It is renamed as it is open; it was opened anew, and the log failed without a descriptor for
/// that.
#[test]
fn a_segment_is_recycled_without_a_descriptor_left() {
    let disk = SimDisk::new(1);
    let descriptors = Arc::new(AtomicUsize::new(usize::MAX));
    let redo = Redo::create(limited(&disk, &descriptors), &options()).expect("created");
    descriptors.store(0, Relaxed);
    let first = disk.list().expect("listed");
    let mut all = Vec::new();
    while redo.reserved().0 < 12 * SEGMENT {
        let end = append(&redo, &[all.len() as u8; 3000]);
        all.push(end);
        redo.wait_durable(end).expect("the log goes on");
        redo.set_checkpoint(end).expect("recycled");
    }
    assert!(disk.list().expect("listed").iter().all(|name| !first.contains(name)));
    // What it says names it as it is called now.
    disk.inject(Fault::Io { on: Some(OpKind::Write), at: disk.operations(), times: Times::Once });
    let error = redo.wait_durable(append(&redo, &[1; 100])).expect_err("the disk fails");
    let name = error.to_string();
    assert!(disk.list().expect("listed").iter().any(|now| name.contains(now)), "{name}");
}

#[test]
fn a_log_that_does_not_fit_is_neither_made_nor_made_longer_at_an_open() {
    let disk = SimDisk::new(1);
    let file_bytes = SEGMENT + 4096;
    let capacity = |segments: u64| RedoOptions { capacity_bytes: segments * SEGMENT, ..options() };
    let names = || disk.list().expect("listed");
    disk.set_capacity(Some(5 * file_bytes));
    let error = Redo::create(Arc::new(disk.clone()), &capacity(5)).err().expect("no space");
    assert!(matches!(error, RedoError::NoSpace { needed_bytes, free_bytes, .. }
        if needed_bytes == 6 * file_bytes && free_bytes == 5 * file_bytes));
    assert!(names().is_empty());
    let redo = create(&disk);
    redo.wait_durable(append(&redo, &[1; 3000])).expect("durable");
    let (start, end) = (Lsn(SEGMENT), redo.reserved());
    drop(redo);
    disk.set_capacity(Some(disk.used_bytes() + 2 * file_bytes));
    let before = (names(), disk.used_bytes());
    let open = |o: &RedoOptions| Redo::open_at(Arc::new(disk.clone()), o, start, end);
    let error = open(&capacity(7)).err().expect("no space").to_string();
    let figures = [3 * file_bytes, 2 * file_bytes].map(|bytes| bytes.to_string());
    assert!(figures.iter().all(|figure| error.contains(figure)), "{error}");
    assert_eq!((names(), disk.used_bytes()), before);
    // Where others take the space meanwhile.
    let mut refused = 0;
    let redo = (0..).find_map(|at| {
        disk.inject(Fault::NoSpace { at: disk.operations() + at, times: Times::Forever });
        let opened = open(&capacity(6));
        disk.clear_faults();
        if let Err(error) = &opened {
            assert!(matches!(error, RedoError::Disk(_)), "{error}");
            assert!(names().len() <= before.0.len(), "{:?}", names());
            refused += 1;
        }
        opened.ok()
    });
    assert!(refused > 0);
    assert_eq!(redo.expect("fits").capacity(), 6 * SEGMENT);
    assert_eq!(read_all(&disk, start), (vec![vec![1; 3000]], end));
}

#[test]
fn stale_groups_past_a_hole_stay_dead() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    append(&redo, &[1; 4088]);
    let lost = disk.operations() + 1; // operations are told from 1 on in the profile
    redo.write_step(false).expect("written");
    append(&redo, b"stale");
    redo.write_step(false).expect("written");

    let disk = disk.crash_as(1, CrashProfile::AllBut { lost });
    let start = Lsn(SEGMENT);
    assert_eq!(read_all(&disk, start), (vec![], start), "the first group is lost");
    let stale = bytes(&disk, "redo-0000000001", 4096 + 4096 + 8, 5);
    assert_eq!(stale, b"stale", "the second is on the disk");

    let redo = Redo::open_at(Arc::new(disk.clone()), &options(), start, start).expect("opens");
    redo.wait_durable(append(&redo, &[2; 4088])).expect("durable");
    assert_eq!(read_all(&disk, start), (vec![vec![2; 4088]], Lsn(SEGMENT + 4096)));
}

#[test]
fn torn_header_of_an_unneeded_segment_does_no_harm() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    let end = append(&redo, &[1; 100]);
    redo.wait_durable(end).expect("durable");
    drop(redo);
    for name in ["redo-0000000002", "redo-0000000005"] {
        patch(&disk, name, 20, &[0xff; 8]);
    }
    patch(&disk, "redo-0000000003", 0, &[0; 4096]);
    disk.open("redo-0000000000", Create::New, Mode::Cached).expect("created");
    assert_eq!(read_all(&disk, Lsn(SEGMENT)).1, end);
    let redo = Redo::open_at(Arc::new(disk.clone()), &options(), Lsn(SEGMENT), end).expect("opens");
    let end = (0..3).map(|_| append(&redo, &[2; 5000])).max().expect("three");
    redo.wait_durable(end).expect("durable");
    let (found, at) = read_all(&disk, Lsn(SEGMENT));
    assert_eq!((found.len(), at), (4, end));
    assert_eq!(disk.list().expect("listed").len(), 5);
}

#[test]
fn damage_is_named() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    let first = append(&redo, &[1; 100]);
    let end = append(&redo, &[1; 100]);
    redo.wait_durable(end).expect("durable");
    let from = Lsn(SEGMENT);
    let open = |id| Reader::open(Arc::new(disk.clone()), id, from);

    assert!(matches!(open(8).err(), Some(RedoError::WrongDatabase { expected: 8, found: 7, .. })));
    let elsewhere = Reader::open(Arc::new(disk.clone()), 7, Lsn(99 * SEGMENT)).err();
    assert!(matches!(elsewhere, Some(RedoError::SegmentMissing { .. })));
    let empty = Reader::open(Arc::new(SimDisk::new(1)), 7, from).err();
    assert!(matches!(empty, Some(RedoError::NoLog { .. })));
    let again = Redo::create(Arc::new(disk.clone()), &options()).err();
    assert!(matches!(again, Some(RedoError::Exists { .. })));

    patch(&disk, "redo-0000000001", 4096 + 112 + 50, &[9]);
    let mut reader = open(7).expect("opens").durable_hint(end);
    assert!(reader.next().expect("the first is whole").is_some());
    match reader.next() {
        Err(RedoError::Cut { file, offset, lsn, expected_at_least, why }) => {
            assert_eq!((file.as_str(), offset), ("redo-0000000001", 4096 + 112));
            assert_eq!((lsn, expected_at_least), (first, end));
            assert!(matches!(why, EndReason::BadChecksum { .. }));
        }
        other => panic!("not cut: {other:?}"),
    }
    patch(&disk, "redo-0000000001", 100, &[9]);
    assert!(matches!(open(7).err(), Some(RedoError::HeaderChecksum { offset: 12, .. })));
}

/// Nothing that a crash makes of what was not synced looks like damage: whichever write is lost,
/// whichever sectors of whichever are.
#[test]
fn a_torn_tail_is_no_damage() {
    let mut ended_early = 0;
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let disk = SimDisk::new(seed);
        let redo = create(&disk);
        let mut group = |sync: bool| {
            let end = append(&redo, &vec![rng.u8(..); rng.usize(8..1500)]);
            redo.write_step(sync).expect("written");
            end
        };
        for n in 0..4 {
            group(n % 2 == 0);
        }
        let synced = redo.durable();
        let first = disk.operations() + 1;
        let end = (0..12).map(|_| group(false)).last().expect("some");
        let profiles = (first..=disk.operations())
            .map(|lost| CrashProfile::AllBut { lost })
            .chain([CrashProfile::Sectors, CrashProfile::Nothing]);
        for profile in profiles {
            let disk = disk.crash_as(seed, profile);
            let (_, at) = read_all(&disk, Lsn(SEGMENT));
            assert!(synced <= at && at <= end, "seed {seed}, {profile:?}: {at} of {synced}..{end}");
            ended_early += u32::from(at < end);
        }
    }
    assert!(ended_early > 1000, "the tail was lost {ended_early} times");
}

/// A log that an older version wrote is gone on with in the older form up to its segment's end, so
/// that the older version doesn't take what is new for the log's end.
#[test]
fn an_older_version_s_segment_is_filled_without_notes() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    let end = append(&redo, &[1; 100]);
    redo.wait_durable(end).expect("durable");
    drop(redo);
    for number in 1..=5 {
        let name = format!("redo-{number:010}");
        let mut block = bytes(&disk, &name, 0, 4096);
        block[8] = 1;
        block[12..16].fill(0);
        let crc = crc32c::crc32c(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        patch(&disk, &name, 0, &block);
    }
    let start = Lsn(SEGMENT);
    let redo = Redo::open_at(Arc::new(disk.clone()), &options(), start, end).expect("opens");
    let mut starts = Vec::new();
    while redo.reserved().0 < 3 * SEGMENT {
        starts.push(redo.reserved().0);
        let end = append(&redo, &[2; 1000]);
        redo.wait_durable(end).expect("durable");
    }
    for start in starts {
        let name = format!("redo-{:010}", start / SEGMENT);
        let word = bytes(&disk, &name, 4096 + start % SEGMENT, 4);
        let word = u32::from_le_bytes(word.try_into().expect("four bytes"));
        let expected = if start < 2 * SEGMENT { 0 } else { 1 };
        assert_eq!(word >> 21, expected, "the group at {start}");
    }
    assert_eq!(read_all(&disk, start).1, redo.durable());
}

#[test]
fn a_lap_of_groups_of_every_size_reads_back() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    let mut from = redo.reserved();
    let mut expected = Vec::new();
    for len in 0..700usize {
        let payload: Vec<u8> = (0..len).map(|i| (i * 7 + len) as u8).collect();
        let end = append(&redo, &payload);
        expected.push(payload);
        if len % 20 == 19 {
            redo.wait_durable(end).expect("durable");
            let (found, at) = read_all(&disk, from);
            assert_eq!(at, end);
            assert!(found.iter().zip(&expected).all(|(f, e)| f.starts_with(e)));
            assert_eq!(found.len(), expected.len());
            expected.clear();
            redo.set_checkpoint(end).expect("moved");
            from = end;
        }
    }
}

#[test]
#[should_panic(expected = "on a credit of")]
fn a_payload_longer_than_its_credit_is_a_bug() {
    let redo = create(&SimDisk::new(1));
    let credit = redo.try_admit(8, Admission::User).expect("fits");
    redo.append(credit, &[0; 9]);
}

#[test]
#[should_panic(expected = "which nobody reserved")]
fn waiting_for_what_nobody_appends_is_a_bug() {
    let redo = create(&SimDisk::new(1));
    let _ = redo.wait_durable(Lsn(redo.reserved().0 + 8));
}

/// A log of two segments and more, all durable; the number of its second.
fn two_segments(disk: &SimDisk) -> u64 {
    let redo = create(disk);
    while redo.reserved() < Lsn(2 * SEGMENT + 100) {
        append(&redo, &[1; 500]);
        redo.write_step(true).expect("durable");
    }
    2
}

/// Writes a segment's header anew, changed; its checksum is right.
fn change_header(disk: &SimDisk, segment: u64, at: usize, to: u8) {
    let name = format!("redo-{segment:010}");
    let mut header = bytes(disk, &name, 0, 4096);
    header[at] = to;
    header[12..16].fill(0);
    let crc = crc32c::crc32c(&header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    patch(disk, &name, 0, &header);
}

#[test]
fn a_segment_of_a_newer_release_or_of_another_database_is_no_end() {
    for (at, to) in [(8, 99), (16, 8)] {
        let disk = SimDisk::new(1);
        let segment = two_segments(&disk);
        change_header(&disk, segment, at, to);
        let mut reader = Reader::open(Arc::new(disk), 7, Lsn(SEGMENT)).expect("opens");
        let error = loop {
            match reader.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("what follows would be lost"),
                Err(error) => break error,
            }
        };
        let refused = match at {
            8 => matches!(error, RedoError::NewerVersion { found: 99, .. }),
            _ => matches!(error, RedoError::WrongDatabase { found: 8, .. }),
        };
        assert!(refused, "{error}");
    }
}

/// All files behind the end were removed and made anew: with 8 GiB of them a start took a second
/// longer.
#[test]
fn an_open_makes_one_file_anew_whatever_the_capacity() {
    let disk = SimDisk::new(1);
    let o = RedoOptions { capacity_bytes: 40 * SEGMENT, ..options() };
    let redo = Redo::create(Arc::new(disk.clone()), &o).expect("created");
    turn_over(&disk, &redo, 100 * SEGMENT);
    let (checkpoint, mut end) = (redo.checkpoint(), redo.durable());
    drop(redo);
    for _ in 0..3 {
        let before = disk.list().expect("listed");
        let removed = Arc::new(AtomicUsize::new(0));
        let counter = removed.clone();
        let observed = ObservedDisk::new(disk.clone(), move |operation| {
            counter.fetch_add((operation.name == "remove" && operation.is_done).into(), Relaxed);
            Ok(())
        });
        let redo = Redo::open_at(Arc::new(observed), &o, checkpoint, end).expect("opens");
        assert_eq!((removed.load(Relaxed), disk.list().expect("listed")), (1, before));
        end = append(&redo, &[1; 3000]);
        redo.wait_durable(end).expect("durable");
        assert_eq!(read_all(&disk, checkpoint).1, end);
    }
}

#[test]
fn the_page_cache_forgets_what_was_synced_but_for_the_newest() {
    const MB: u64 = 1 << 20;
    const BLOCK: u64 = weir_os::BLOCK as u64;
    let disk = SimDisk::new(1);
    let o = RedoOptions {
        capacity_bytes: 16 * MB,
        segment_bytes: 3 * MB,
        buffer_bytes: MB as usize,
        database_id: 7,
    };
    let redo = Redo::create(Arc::new(disk.clone()), &o).expect("created");
    let start = redo.reserved().0;
    while redo.reserved().0 < start + 8 * MB {
        append(&redo, &[7; 30_000]);
        redo.write_step(true).expect("synced");
    }
    // The first LSN is a segment's length; each file begins with a block of its own.
    let forgotten: Vec<u64> = (1..=3)
        .flat_map(|number| {
            let blocks = disk.forgotten_blocks(&format!("redo-{number:010}")).expect("there");
            blocks.into_iter().map(move |block| number * 3 * MB + block * BLOCK - BLOCK)
        })
        .collect();
    let end = redo.durable().0;
    let until = start + forgotten.len() as u64 * BLOCK;
    assert!((end - 2 * MB - 31_000..=end - MB).contains(&until), "{until} of {end}");
    assert_eq!(forgotten, (start..until).step_by(BLOCK as usize).collect::<Vec<_>>());
}

#[test]
fn a_reader_may_have_the_page_cache_forget_what_it_reads() {
    let disk = SimDisk::new(1);
    let redo = create(&disk);
    let start = redo.reserved();
    for n in 0..20 {
        append(&redo, &[n; 1000]);
        redo.write_step(true).expect("synced");
    }
    for forgets in [false, true] {
        let reader = Reader::open(Arc::new(disk.clone()), 7, start).expect("opens");
        let mut reader = if forgets { reader.forgetting() } else { reader };
        while reader.next().expect("reads").is_some() {}
        // Two segments and a half, each with a block in front.
        for number in 1..=2 {
            let forgotten = disk.forgotten_blocks(&format!("redo-{number:010}")).expect("there");
            assert_eq!(forgotten, if forgets { vec![1, 2] } else { vec![] });
        }
    }
}

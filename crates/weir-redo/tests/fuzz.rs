//! The reader on arbitrary bytes: no panic, no endless loop, and only groups whose checksum holds.

use std::sync::Arc;

use weir_os::{AlignedBuf, Create, Disk, Mode, SimDisk};
use weir_page::Lsn;
use weir_redo::{Admission, Reader, Redo, RedoError, RedoOptions};

const SEGMENT: u64 = 8192;

fn options() -> RedoOptions {
    RedoOptions {
        capacity_bytes: 0,
        segment_bytes: SEGMENT,
        buffer_bytes: 32 << 10,
        database_id: 1,
    }
}

/// A log of three segments, and the ends of its groups.
fn log(rng: &mut fastrand::Rng) -> (SimDisk, Vec<Lsn>) {
    let disk = SimDisk::new(1);
    let redo = Redo::create(Arc::new(disk.clone()), &options()).expect("created");
    let ends = fill(&redo, rng, 4 * SEGMENT);
    (disk, ends)
}

/// A log that has become longer, and got longer segments behind its first five.
fn longer_log(rng: &mut fastrand::Rng) -> (SimDisk, Vec<Lsn>) {
    let disk = SimDisk::new(1);
    let redo = Redo::create(Arc::new(disk.clone()), &options()).expect("created");
    redo.set_capacity(100 * SEGMENT).expect("grown");
    assert!(redo.segment_bytes() > 4 * SEGMENT);
    let ends = fill(&redo, rng, 20 * SEGMENT);
    (disk, ends)
}

fn fill(redo: &Redo, rng: &mut fastrand::Rng, to: u64) -> Vec<Lsn> {
    let mut ends = vec![redo.reserved()];
    while redo.reserved() < Lsn(to) {
        let payload: Vec<u8> = (0..rng.usize(..600)).map(|_| rng.u8(..)).collect();
        let credit = redo.try_admit(payload.len(), Admission::System).expect("fits");
        ends.push(redo.append(credit, &payload).end);
        redo.write_step(true).expect("written");
    }
    ends
}

/// The segment that holds a position, and where in its file that is.
fn place(disk: &SimDisk, lsn: u64) -> (String, u64) {
    let mut places = disk.list().expect("listed").into_iter().filter_map(|name| {
        let file = disk.open(&name, Create::No, Mode::Cached).expect("opens");
        let header = file.read(32, AlignedBuf::zeroed(16)).expect("read");
        let field = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight"));
        let at = lsn.checked_sub(field(8)).filter(|at| *at < field(0))?;
        Some((name, 4096 + at))
    });
    places.next().expect("a segment holds it")
}

fn write(disk: &SimDisk, number: u64, offset: u64, bytes: &[u8]) {
    let name = format!("redo-{number:010}");
    let file = disk.open(&name, Create::IfAbsent, Mode::Cached).expect("opens");
    file.write(offset, AlignedBuf::copy_of(bytes)).expect("written");
}

/// Reads from `from` to the end or a cut; the groups must be contiguous. Returns the end.
fn read(disk: &SimDisk, from: Lsn) -> Option<Lsn> {
    let mut reader = Reader::open(Arc::new(disk.clone()), 1, from).ok()?;
    let mut at = from;
    loop {
        let group = match reader.next() {
            Ok(Some(group)) => group,
            Ok(None) => break,
            Err(RedoError::Cut { lsn, expected_at_least, .. }) => {
                assert!(lsn == at && lsn < expected_at_least);
                break;
            }
            Err(error) => panic!("{error}"),
        };
        assert_eq!(group.start, at);
        assert!(group.end > at);
        at = group.end;
    }
    assert_eq!(reader.end(), Some(at));
    Some(at)
}

#[test]
fn damaged_logs_end_before_the_damage() {
    let mut rng = fastrand::Rng::with_seed(1);
    for round in 0..300 {
        let make = if round % 2 == 0 { log } else { longer_log };
        let (disk, ends) = make(&mut rng);
        let at = rng.u64(SEGMENT..ends[ends.len() - 1].0);
        let (name, offset) = place(&disk, at);
        disk.rot(&name, offset, rng.u8(..8)).expect("there");
        let intact = ends.iter().rev().find(|end| end.0 <= at).copied();
        assert_eq!(read(&disk, Lsn(SEGMENT)), intact);
        // Two groups behind, appended once the damaged one was durable, tell the damage from the
        // log's end.
        let next = ends.iter().position(|end| end.0 > at).expect("the damage is in a group");
        if next + 2 < ends.len() {
            let mut reader = Reader::open(Arc::new(disk.clone()), 1, Lsn(SEGMENT)).expect("opens");
            let cut = std::iter::repeat_with(|| reader.next().map(|g| g.is_some()))
                .find(|more| !matches!(more, Ok(true)));
            assert!(
                matches!(cut, Some(Err(RedoError::Cut { .. }))),
                "damage at {at}, in group {next} of {}: {cut:?}",
                ends.len() - 1
            );
        }
        // From anywhere, a group's start or not, aligned or not.
        read(&disk, Lsn(rng.u64(..6 * SEGMENT)));
    }
}

#[test]
fn arbitrary_bytes_are_no_log() {
    let mut rng = fastrand::Rng::with_seed(2);
    for round in 0..1000 {
        let (disk, _) = if round % 10 == 0 { log(&mut rng) } else { (SimDisk::new(1), vec![]) };
        for _ in 0..rng.usize(1..6) {
            let mut bytes: Vec<u8> = (0..rng.usize(..9000)).map(|_| rng.u8(..)).collect();
            for word in bytes.chunks_mut(8) {
                // Small lengths, so that more than the first check is reached.
                if rng.u8(..3) == 0 && word.len() == 8 {
                    word[..4].copy_from_slice(&(rng.u32(..200) * 8).to_le_bytes());
                }
            }
            let inside = 4096 + 8 * rng.u64(..1000);
            let offset = rng.choice([0, 0, 40, 4096, inside]).expect("some");
            write(&disk, rng.u64(..5), offset, &bytes);
        }
        read(&disk, Lsn(rng.u64(..6 * SEGMENT)));
        read(&disk, Lsn(SEGMENT));
        read(&disk, Lsn(u64::MAX));
    }
}

#[test]
fn whole_headers_with_arbitrary_payload_end_at_once() {
    let mut rng = fastrand::Rng::with_seed(3);
    for _ in 0..300 {
        let disk = SimDisk::new(1);
        drop(Redo::create(Arc::new(disk.clone()), &options()).expect("created"));
        for number in 1..5 {
            let bytes: Vec<u8> = (0..SEGMENT)
                .map(|i| if i % 8 < 4 && i % 8 > 0 { 0 } else { rng.u8(..) & !7 })
                .collect();
            write(&disk, number, 4096, &bytes);
        }
        let from = Lsn(SEGMENT + 8 * rng.u64(..3 * SEGMENT / 8));
        assert_eq!(read(&disk, from), Some(from));
    }
}
